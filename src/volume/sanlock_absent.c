/* SPDX-License-Identifier: Apache-2.0 */
/* A build without sanlock's headers. */
#include <errno.h>

#include "volume/sanlock.h"

int fw_volume_sanlock_take(const char *resource, int *held, struct fw_reason *reason)
{
    (void)held;
    return fw_reason_set(reason, -ENOSYS,
                         "cannot lease %.120s: " FW_REASON_ABSENT("sanlock", "sanlock"), resource);
}

void fw_volume_sanlock_drop(int held)
{
    (void)held;
}
