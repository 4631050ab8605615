/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ready pool: requests that wait, in the order in which they will go.
 *
 * Ageing without visiting anybody. Time is counted in ticks, one per ageing interval. A request of
 * priority p that was posted at tick t has at tick T the priority
 *
 *     p + slope * (T - t)  =  key + slope * T      with      key = p - slope * t,
 *
 * where the slope is 1, or 1 + boost for a boosted one, or 0 without ageing. Among requests of one
 * slope the order of their keys is the order of their priorities, at every T: the key never
 * changes and time has nothing to do. Requests of different slopes do overtake each other, so each
 * lane has two queues, a plain and a boosted one, and their heads are compared when somebody asks.
 *
 * A queue. The requests of one key are a list in the order of posting, a *level*; a hash table
 * finds the level of a key and a pairing heap knows the greatest. So what a dispatch costs depends
 * on how many different keys wait (one, usually a few, per priority and tick), not on how many
 * requests. In one heap of requests, with a million waiting, every dispatch would walk down twenty
 * cold cache lines.
 *
 * Levels are made in advance, one per slot, so that a push cannot fail; a level that is empty is
 * given back, so that they suffice.
 *
 * Concurrency: none; all of it belongs to the holder of the dispatcher's role.
 */
#pragma once

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/jobs.h>

#include "base/base.h"

enum { FW_READY_PLAIN = 0, FW_READY_BOOSTED = 1 };

/* Requests of one queue and one key. */
struct fw_job_level {
    int64_t key;
    struct fw_job *first;
    struct fw_job *last;
    struct fw_job_level *child; /* The heap: first child, siblings, and who points here. */
    struct fw_job_level *next;  /* Of a free level: the next free one. */
    struct fw_job_level *previous;
    struct fw_job_level *hash_next;
    uint32_t queue; /* 2 * lane + FW_READY_*. */
};

struct fw_ready {
    /* Constant, and read by posters too. */
    int64_t slopes[2];
    struct fw_job_level *levels; /* `slots` of them; those from `fresh` on were never used. */
    struct fw_job_level **buckets;
    uint32_t bucket_mask;
    uint32_t slots;

    alignas(FW_CACHE_LINE) struct fw_job_level *heaps[2 * FW_JOBS_LANES]; /* The greatest keys. */
    struct fw_job_level *recent[2 * FW_JOBS_LANES]; /* Last pushed to; spares most lookups. */
    uint32_t filled;                                /* Bit q: heaps[q] is not NULL. */
    uint32_t waiting[FW_JOBS_LANES];
    struct fw_job_level *free_first;
    uint32_t fresh;
};

/* A pool for `slots` requests. Returns 0 or -ENOMEM. */
FW_MUST_CHECK int fw_ready_init(struct fw_ready *ready, const struct fw_jobs_policy *policy);

/* Requests that still wait are forgotten. */
void fw_ready_fini(struct fw_ready *ready);

/* The key of a request posted at `tick`. */
int64_t fw_ready_key(const struct fw_ready *ready, int32_t priority, uint32_t flags, int64_t tick);

/* The priority that a waiting request has at `tick`, and for how many ticks it waits. */
int64_t fw_ready_priority(const struct fw_ready *ready, const struct fw_job *job, int64_t tick);
int64_t fw_ready_inspections(const struct fw_ready *ready, const struct fw_job *job, int64_t tick);

/* Pushes follow each other by rising sequence. */
void fw_ready_push(struct fw_ready *ready, struct fw_job *job);

/* Puts one back that was the first, or one of the first, of its key. */
void fw_ready_return(struct fw_ready *ready, struct fw_job *job);

/*
 * The request that goes next at `tick` among those of `lane_lowest` and the lanes above, or NULL.
 * It stays where it is.
 */
struct fw_job *fw_ready_best(const struct fw_ready *ready, uint32_t queues, int64_t tick);
static inline struct fw_job *fw_ready_first(const struct fw_ready *ready, uint32_t lane_lowest,
                                            int64_t tick)
{
    uint32_t queues = ready->filled & ~((1U << (2 * lane_lowest)) - 1);
    if (queues == 0) {
        return NULL;
    }
    bool one = (queues & (queues - 1)) == 0; /* As usual; else their heads are compared. */
    return one ? ready->heaps[__builtin_ctz(queues)]->first : fw_ready_best(ready, queues, tick);
}

/* Removes a request that waits, first or not. */
void fw_ready_remove(struct fw_ready *ready, struct fw_job *job);

/* Any request that waits, or NULL; for who removes all. */
struct fw_job *fw_ready_any(const struct fw_ready *ready);

static inline uint64_t fw_ready_count(const struct fw_ready *ready)
{
    return (uint64_t)ready->waiting[0] + ready->waiting[1] + ready->waiting[2] + ready->waiting[3];
}
