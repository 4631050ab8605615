/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory the table may take, and how much it has: one number for segments, bodies, buckets
 * and all that manages them.
 *
 * Memory is charged before it is first touched, and given back here after it was given back to the
 * system. What lies free but may still be resident stays charged, so `used` is never less than what
 * the process has of it.
 *
 * Any thread may call anything here.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"
#include "io/range.h"

#define FW_BUDGET_HUGE_MIN (UINT64_C(32) << 20)

/* Relaxed, all of it: the numbers order nothing, what they count is handed over under locks. */
struct fw_budget {
    _Atomic uint64_t limit;
    _Atomic uint64_t used;
    _Atomic uint64_t slack; /* How much more it may be for now. */
};

static inline uint64_t fw_budget_bound(const struct fw_budget *budget)
{
    return atomic_load_explicit(&budget->limit, memory_order_relaxed) +
           atomic_load_explicit(&budget->slack, memory_order_relaxed);
}

/* Huge pages are for what is large: a part of 2 MiB may be a good part of a small table. */
static inline enum fw_range_pages fw_budget_pages(const struct fw_budget *budget)
{
    uint64_t limit = atomic_load_explicit(&budget->limit, memory_order_relaxed);
    return limit >= FW_BUDGET_HUGE_MIN ? FW_RANGE_HUGE : FW_RANGE_SMALL;
}

/* False: less than `margin` would be left. */
static inline bool fw_budget_charge(struct fw_budget *budget, uint64_t bytes, uint64_t margin)
{
    uint64_t bound = fw_budget_bound(budget);
    uint64_t used = atomic_load_explicit(&budget->used, memory_order_relaxed);
    do {
        if (used + bytes + margin > bound) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&budget->used, &used, used + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

static inline void fw_budget_return(struct fw_budget *budget, uint64_t bytes)
{
    uint64_t before = atomic_fetch_sub_explicit(&budget->used, bytes, memory_order_relaxed);
    FW_ASSERT(before >= bytes);
}

/* Is so much left? */
static inline bool fw_budget_has(const struct fw_budget *budget, uint64_t bytes)
{
    return atomic_load_explicit(&budget->used, memory_order_relaxed) + bytes <=
           fw_budget_bound(budget);
}

static inline bool fw_budget_has_slack(const struct fw_budget *budget)
{
    return atomic_load_explicit(&budget->slack, memory_order_relaxed) != 0;
}

/* The limit was lowered and more is still in use. */
static inline bool fw_budget_is_exceeded(const struct fw_budget *budget)
{
    return !fw_budget_has(budget, 0);
}
