/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of memory is for what came in: the share of the PROBATION queue, the rest is MAIN's.
 *
 * A small share is right while the same keys stay popular, since nearly all that comes in is not
 * worth its room. A large one is right when they change: what is kept in MAIN is of yesterday, and
 * what comes in has to be given time to be read again. Which it is, the ghosts tell. A key that
 * comes back soon after it was dropped would have been a hit, had its queue been a little longer;
 * so the queue whose drops come back more often, in relation to how many it drops, is made longer,
 * at the other's cost.
 *
 * In figures: a ghost of PROBATION adds STEP items' worth to the share, one of MAIN takes away as
 * much, times what PROBATION drops for one that MAIN does. While MAIN drops hardly anything, as in
 * a scan, little is known of what its length is worth: where PROBATION drops more than KNOWN for
 * one that MAIN does, both move the share by less, in proportion.
 *
 * MAIN's share at first is what it has to fill before it drops anything and its ghosts can tell.
 *
 * Any thread, no lock. Relaxed, all of it: an update that is lost is a ghost that was not seen.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "cache/arena.h"

#define FW_SHARE_MIN   (FW_SHARE_ONE / 32)
#define FW_SHARE_MAX   (FW_SHARE_ONE / 10 * 9)
#define FW_SHARE_FIRST (FW_SHARE_ONE / 4)

enum {
    FW_SHARE_STEP = 48, /* Items' worth of share that one ghost moves. */
    FW_SHARE_KNOWN = 4, /* One drop of MAIN for so many of PROBATION is enough to know. */
};

struct fw_share {
    _Atomic uint64_t probation;          /* In parts of FW_SHARE_ONE. */
    _Atomic uint64_t dropped[FW_QUEUES]; /* Not long ago: halved once per turn of the table. */
};

static inline void fw_share_init(struct fw_share *share)
{
    atomic_init(&share->probation, FW_SHARE_FIRST);
    for (int i = 0; i < FW_QUEUES; i++) {
        atomic_init(&share->dropped[i], 0);
    }
}

static inline uint64_t fw_share_probation(const struct fw_share *share)
{
    return atomic_load_explicit(&share->probation, memory_order_relaxed);
}

/* An item was dropped from that queue of a table that has `items`. */
static inline void fw_share_drop(struct fw_share *share, enum fw_queue queue, uint64_t items)
{
    uint64_t dropped[FW_QUEUES];
    for (int i = 0; i < FW_QUEUES; i++) {
        dropped[i] = atomic_load_explicit(&share->dropped[i], memory_order_relaxed);
    }
    dropped[queue]++;
    int halve = dropped[FW_PROBATION] + dropped[FW_MAIN] > items ? 1 : 0;
    for (int i = 0; i < FW_QUEUES; i++) {
        atomic_store_explicit(&share->dropped[i], dropped[i] >> halve, memory_order_relaxed);
    }
}

/* One that was dropped from that queue came back, and soon. */
static inline void fw_share_miss(struct fw_share *share, enum fw_queue queue, uint64_t items)
{
    uint64_t probation = fw_share_probation(share);
    uint64_t step = FW_SHARE_ONE * FW_SHARE_STEP / (items + 1);
    /* 1 more than there are, for neither may be 0. */
    uint64_t of_probation =
        1 + atomic_load_explicit(&share->dropped[FW_PROBATION], memory_order_relaxed);
    uint64_t of_main = 1 + atomic_load_explicit(&share->dropped[FW_MAIN], memory_order_relaxed);
    if (queue == FW_PROBATION) {
        uint64_t known = of_main * FW_SHARE_KNOWN;
        probation += known < of_probation ? step * known / of_probation : step;
        probation = probation < FW_SHARE_MAX ? probation : FW_SHARE_MAX;
    } else {
        uint64_t less = of_main < of_probation ? step * of_probation / of_main : step;
        less = less < step * FW_SHARE_KNOWN ? less : step * FW_SHARE_KNOWN;
        probation = probation > less + FW_SHARE_MIN ? probation - less : FW_SHARE_MIN;
    }
    atomic_store_explicit(&share->probation, probation, memory_order_relaxed);
}
