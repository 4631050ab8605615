/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constrained multi-lane scheduling: how many requests of each lane a resource may hold at once.
 *
 * A request that waits for its sub-requests keeps its worker (and before that its slot in the ready
 * pool). If requests of that kind may take all workers, none is left for the sub-requests, and
 * everyone waits for ever. So each of the lanes 0, 1 and 2 gets a share of the resource in percent,
 * and lane 3 the rest; a request of lane l may use the shares of the lanes 0 to l and no other.
 *
 *     N units, percentages c0 c1 c2
 *
 *     s_l = floor(N * c_l / 100), at least 1 if c_l > 0        for l = 0, 1, 2
 *     s_3 = N - s_0 - s_1 - s_2
 *     S_k = s_0 + ... + s_k                                     so S_3 = N
 *
 * Whether a set of requests can be given units is a matching of requests to shares, and by Hall's
 * theorem the answer is four sums: n_0 + ... + n_k <= S_k for every k. So one more request of lane
 * l is admitted iff, for every k >= l, the number admitted in lanes 0 to k, plus one, is at most
 * S_k. No unit is ever assigned to a lane, and nobody has to be moved to let another in.
 *
 * That is why it cannot hang: the lanes 0 to k never hold more than S_k, so beyond them at least
 * s_{k+1} + ... + s_3 units are left for those they wait for, which are in lanes above k. Lane 3
 * waits for nobody, hence ends, hence lane 2 does, and so on.
 *
 * For workers all four counts fit one 64-bit word, 16 bits for each lane, so that all four sums are
 * compared with their limits in a few instructions. It is changed by the holder of the dispatcher's
 * role alone, who needs no atomic addition for that: a worker's unit is given back when the worker
 * comes for its next request, which is at once. Slots are counted under the lock that posting takes
 * anyway, and may be more than 32,767.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/base.h"

enum {
    FW_CMLS_LANES = 4,
    FW_CMLS_FIELD_BITS = 16,
    FW_CMLS_FIELD_MAX = (1 << (FW_CMLS_FIELD_BITS - 1)) - 1, /* The top bit is for comparing. */
};

/* A 1, and the top bit, in every field of a word. */
#define FW_CMLS_ONES UINT64_C(0x0001000100010001)
#define FW_CMLS_TOPS UINT64_C(0x8000800080008000)

/* S_0 to S_3. */
struct fw_cmls {
    uint32_t sums[FW_CMLS_LANES];
};

/*
 * The sums for `count` units. With lanes off all four are `count`. Returns 0, or -EINVAL if less
 * than one unit is left for lane 3.
 */
FW_MUST_CHECK int fw_cmls_init(struct fw_cmls *cmls, uint32_t count, const uint32_t percent[3],
                               bool lanes_on);

/*
 * The sums for a part of the units that init() accepted, where the same percentages may leave
 * nothing for lane 3: then the largest shares give, but every lane that has a percentage, and lane
 * 3, keeps at least one. `count` is at least fw_cmls_least().
 */
void fw_cmls_fit(struct fw_cmls *cmls, uint32_t count, const uint32_t percent[3], bool lanes_on);

/* The fewest units with which every lane that has a percentage, and lane 3, has one. */
uint32_t fw_cmls_least(const uint32_t percent[3], bool lanes_on);

/* True if one more of `lane` may come to those that `used` counts. */
static inline bool fw_cmls_admits(const struct fw_cmls *cmls, const uint32_t used[FW_CMLS_LANES],
                                  uint32_t lane)
{
    uint32_t sum = 0;
    for (uint32_t k = 0; k < FW_CMLS_LANES; k++) {
        sum += used[k];
        if (k >= lane && sum + 1 > cmls->sums[k]) {
            return false;
        }
    }
    return true;
}

static inline uint32_t fw_cmls_field(uint64_t word, uint32_t lane)
{
    return (uint32_t)(word >> (lane * FW_CMLS_FIELD_BITS)) & ((1U << FW_CMLS_FIELD_BITS) - 1);
}

static inline uint64_t fw_cmls_unit(uint32_t lane)
{
    return UINT64_C(1) << (lane * FW_CMLS_FIELD_BITS);
}

/* The limits as a word. No sum is above FW_CMLS_FIELD_MAX. */
uint64_t fw_cmls_pack(const struct fw_cmls *cmls);

/*
 * The lowest lane of which the word admits one more, FW_CMLS_LANES if it admits none. Who may come
 * in lane l may come in every lane above: it has fewer sums to keep to.
 */
static inline uint32_t fw_cmls_lowest(uint64_t word, uint64_t limits)
{
    /*
     * All four lanes at once. Multiplied by ones, field k is the sum of the fields up to k. The top
     * bit of (limit + top - sum - 1) is set iff sum + 1 <= limit; nothing is borrowed from the next
     * field, since limits and sums are below the top bit. The highest field without it decides.
     */
    uint64_t sums = word * FW_CMLS_ONES;
    uint64_t full = ~((limits | FW_CMLS_TOPS) - sums - FW_CMLS_ONES) & FW_CMLS_TOPS;
    return full == 0 ? 0 : FW_CMLS_LANES - (uint32_t)__builtin_clzll(full) / FW_CMLS_FIELD_BITS;
}

/* Admits one of `lane` if the limits allow it. False: nothing has changed. One writer at a time. */
static inline bool fw_cmls_enter(_Atomic uint64_t *word, uint64_t limits, uint32_t lane)
{
    /* Relaxed, as all here: writers are ordered by a lock, and who only reads wants a number. */
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    if (lane < fw_cmls_lowest(seen, limits)) {
        return false;
    }
    atomic_store_explicit(word, seen + fw_cmls_unit(lane), memory_order_relaxed);
    return true;
}

/* Gives the unit back. One writer at a time. */
static inline void fw_cmls_leave(_Atomic uint64_t *word, uint32_t lane)
{
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    FW_ASSERT(fw_cmls_field(seen, lane) > 0);
    atomic_store_explicit(word, seen - fw_cmls_unit(lane), memory_order_relaxed);
}
