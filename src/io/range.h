/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A range of addresses that is reserved whole and filled with memory piece by piece.
 *
 * For what grows and must not move: reserve for the largest it may ever become, enable what is
 * needed, give back what is not. A reserved address costs nothing. An enabled one costs nothing
 * until it is written, but where the system counts what processes might use (vm.overcommit_memory
 * 2) it is counted from then on; so a range can be reserved far beyond what the machine has, in
 * every mode. Only a limit of addresses (RLIMIT_AS, `ulimit -v`) bounds it.
 *
 * Enabled memory is zero when it is first read, and again after it was given back.
 *
 * Pages are small when memory first comes, since to fill a huge one takes the system a millisecond.
 * Of what is full and read here and there fw_range_collapse() makes huge ones afterwards, in the
 * background: a small page that is not in the processor's table of pages costs as much as a miss of
 * the cache, two of them as much as a whole get. The kernel might do that by itself, also to what
 * was given back in part, which then would be there again; so a range from which something was
 * given back has small pages from then on.
 *
 * Threads: reserve() and release() by one thread that nobody else knows the range of; the others by
 * any, on pieces that nobody else uses meanwhile.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"
#include "base/reason.h"

enum {
    FW_RANGE_ALIGNMENT = 64 * 1024, /* Of a range with small pages. */
    FW_RANGE_HUGE_PAGE = 2 * 1024 * 1024,
};

enum fw_range_pages { FW_RANGE_SMALL, FW_RANGE_HUGE };

struct fw_range {
    char *memory;
    size_t size;
    void *mapped; /* What the system gave: alignment makes it larger. */
    size_t mapped_size;
    atomic_bool may_collapse; /* Until something is given back. */
};

/* The unit of enable() and give_back(): the size of a page here. At most FW_RANGE_ALIGNMENT. */
size_t fw_range_unit(void);

static inline size_t fw_range_round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

/* Returns 0, or a negative errno with the reason. `size` is a multiple of the unit. */
FW_MUST_CHECK int fw_range_reserve(struct fw_range *range, size_t size, enum fw_range_pages pages,
                                   struct fw_reason *reason);
void fw_range_release(struct fw_range *range);

/* Makes a piece usable; one that is already stays as it is. Returns 0 or -ENOMEM. */
FW_MUST_CHECK int fw_range_enable(struct fw_range *range, size_t offset, size_t size);

/*
 * Makes one huge page of the FW_RANGE_HUGE_PAGE bytes at `offset`, a multiple of that, all of them
 * enabled and used. Takes a fraction of a millisecond, during which others who touch it wait.
 * False: it stays as it is, because the kernel cannot, or because something was given back.
 */
bool fw_range_collapse(struct fw_range *range, size_t offset);

/* The memory behind a piece goes back to the system. It stays usable, and is zero. */
void fw_range_give_back(struct fw_range *range, size_t offset, size_t size);
