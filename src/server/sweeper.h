/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sweeper: goes round the table and removes what has expired. It raises no ages: those follow
 * the turns of a full cache (cache/clean.c), not the clock.
 *
 * A service of the job kernel, in lane 0, for as long as the server runs. It sweeps in steps of a
 * few dozen buckets, each short, and a burst of them a few times a second at the most; a round over
 * the whole table takes `round_ns`. That follows what there is to find: a round that has reclaimed
 * much is followed by a faster one, one that found nothing by a slower one, between two bounds. So
 * a server on which nothing expires hardly sweeps, and does not spin.
 *
 * Threads: begin() and end() belong to who makes and ends the server; the rest is the job's.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/jobs.h>

#include "base/base.h"
#include "base/thread.h"
#include "cache/cache.h"

struct fw_sweeper {
    struct fw_job job;
    struct fw_jobs *jobs;
    struct fw_cache_local *local;
    struct fw_parker parker;
    atomic_bool must_end;
    uint64_t cursor;
    uint64_t reclaimed; /* By the table's count, when this round began. */
    int64_t round_ns;
    _Atomic uint64_t round_count; /* Relaxed: a figure. */
};

/* Returns 0, or a negative errno; then nothing is to be ended. */
FW_MUST_CHECK int fw_sweeper_begin(struct fw_sweeper *sweeper, struct fw_jobs *jobs,
                                   struct fw_cache *cache);

/* Returns when the job has ended. */
void fw_sweeper_end(struct fw_sweeper *sweeper);

/* Of `reclaimed` items of `items` in a round that took `round_ns`: how long the next is to take. */
int64_t fw_sweeper_adapt(int64_t round_ns, uint64_t reclaimed, uint64_t items);
