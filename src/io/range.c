/* SPDX-License-Identifier: Apache-2.0 */
#include "io/range.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"

#if !defined(MADV_COLLAPSE)
#define MADV_COLLAPSE 25 /* Linux 6.1; older ones answer EINVAL. */
#endif

size_t fw_range_unit(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    FW_ASSERT(page <= FW_RANGE_ALIGNMENT);
    return page;
}

int fw_range_reserve(struct fw_range *range, size_t size, enum fw_range_pages pages,
                     struct fw_reason *reason)
{
    FW_ASSERT(size > 0 && size % fw_range_unit() == 0);
    bool is_huge = pages == FW_RANGE_HUGE;
    size_t alignment = is_huge ? FW_RANGE_HUGE_PAGE : FW_RANGE_ALIGNMENT;
    size_t mapped_size = size + alignment;
    /* No access: where the system counts possible use, what cannot be written is not counted. */
    void *mapped = mapped_size < size ? MAP_FAILED
                                      : mmap(NULL, mapped_size, PROT_NONE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        return fw_reason_errno(reason, -ENOMEM, "cannot reserve %zu MiB of addresses (ulimit -v?)",
                               size >> 20);
    }
    if (!is_huge) {
        (void)madvise(mapped, mapped_size, MADV_NOHUGEPAGE); /* The kernel may have none anyway. */
    }
    size_t slack = -(uintptr_t)mapped & (alignment - 1);
    *range = (struct fw_range){.memory = (char *)mapped + slack,
                               .size = size,
                               .mapped = mapped,
                               .mapped_size = mapped_size,
                               .may_collapse = is_huge};
    return 0;
}

void fw_range_release(struct fw_range *range)
{
    int rc = munmap(range->mapped, range->mapped_size);
    FW_ASSERT(rc == 0);
    *range = (struct fw_range){.memory = NULL};
}

static void range_invariant(const struct fw_range *range, size_t offset, size_t size)
{
    FW_ASSERT(range->memory != NULL);
    FW_ASSERT(offset <= range->size && size <= range->size - offset);
    FW_ASSERT(offset % fw_range_unit() == 0 && size % fw_range_unit() == 0);
}

int fw_range_enable(struct fw_range *range, size_t offset, size_t size)
{
    range_invariant(range, offset, size);
    int rc = mprotect(range->memory + offset, size, PROT_READ | PROT_WRITE);
    FW_ASSERT(rc == 0 || errno == ENOMEM);
    return rc == 0 ? 0 : -ENOMEM;
}

bool fw_range_collapse(struct fw_range *range, size_t offset)
{
    range_invariant(range, offset, FW_RANGE_HUGE_PAGE);
    FW_ASSERT(offset % FW_RANGE_HUGE_PAGE == 0);
    /* Relaxed: who gives back at this moment may lose a little memory to a huge page. */
    return atomic_load_explicit(&range->may_collapse, memory_order_relaxed) &&
           madvise(range->memory + offset, FW_RANGE_HUGE_PAGE, MADV_COLLAPSE) == 0;
}

void fw_range_give_back(struct fw_range *range, size_t offset, size_t size)
{
    range_invariant(range, offset, size);
    /* Relaxed: to say it twice does no harm. */
    if (atomic_load_explicit(&range->may_collapse, memory_order_relaxed)) {
        atomic_store_explicit(&range->may_collapse, false, memory_order_relaxed);
        (void)madvise(range->mapped, range->mapped_size, MADV_NOHUGEPAGE);
    }
    int rc = madvise(range->memory + offset, size, MADV_DONTNEED);
    FW_ASSERT(rc == 0);
}
