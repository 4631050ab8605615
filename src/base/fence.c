/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"

atomic_bool fw_fence_is_asymmetric;

static long membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0);
}

void fw_fence_prepare(void)
{
    if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0) {
        atomic_store_explicit(&fw_fence_is_asymmetric, true, memory_order_relaxed);
    }
}

void fw_fence_heavy(void)
{
    fw_fence_full();
    if (atomic_load_explicit(&fw_fence_is_asymmetric, memory_order_relaxed)) {
        long rc = membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
        FW_ASSERT(rc == 0); /* It cannot fail for a process that has registered. */
    }
}
