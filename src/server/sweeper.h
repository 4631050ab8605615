/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sweeper: goes round the table and removes what has expired. It raises no ages: those follow
 * the turns of a full cache (cache/clean.c), not the clock.
 *
 * A service of the job kernel, in lane 0, for as long as the server runs. It sweeps in steps of a
 * few buckets, a burst of them takes some hundred microseconds, and a round over the whole table
 * takes `round_ns`: it may have its processor from a core that serves, which then waits for a
 * burst. The round follows what there is to find: one that has reclaimed much is followed by a
 * faster one, one that found nothing by a slower one, between two bounds. So a server on which
 * nothing expires hardly sweeps, and does not spin.
 *
 * It also makes huge pages of the table's memory, one at a time. The kernel takes up to 5 ms for
 * one, in which it holds up who touches the page, and whoever else is on that processor. So while
 * there are requests to serve, it does that for no more than one part in COLLAPSE_PART of the time;
 * while there are none, it may do nothing else.
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
    uint64_t (*served)(void *server); /* How many requests the server has had until now. */
    void *server;
    uint64_t served_before;       /* When it was last asked. */
    int64_t served_ns;            /* When that was last seen to grow. */
    int64_t collapse_due_ns;      /* Not before then, while there are requests. */
    _Atomic uint64_t round_count; /* Relaxed: a figure. */
};

/* `served` is asked from the job's thread. Returns 0, or a negative errno: nothing is to be ended.
 */
FW_MUST_CHECK int fw_sweeper_begin(struct fw_sweeper *sweeper, struct fw_jobs *jobs,
                                   struct fw_cache *cache, uint64_t (*served)(void *server),
                                   void *server);

/* Returns when the job has ended. */
void fw_sweeper_end(struct fw_sweeper *sweeper);

/* Of `reclaimed` items of `items` in a round that took `round_ns`: how long the next is to take. */
int64_t fw_sweeper_adapt(int64_t round_ns, uint64_t reclaimed, uint64_t items);

/* Of a table with `buckets`, in a round of `round_ns`: how many to sweep before the next pause. */
uint64_t fw_sweeper_share(int64_t round_ns, uint64_t buckets);

/* And how long that pause is to be. */
int64_t fw_sweeper_pause(int64_t round_ns, uint64_t buckets);

/*
 * May a huge page be made at `now_ns`? Yes if nobody was served for some time, or if the last
 * one, of which collapsed() tells, is long enough ago.
 */
bool fw_sweeper_may_collapse(struct fw_sweeper *sweeper, int64_t now_ns);
void fw_sweeper_collapsed(struct fw_sweeper *sweeper, int64_t begun_ns, int64_t now_ns);
