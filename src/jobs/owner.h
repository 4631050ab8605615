/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owners: how many requests of an address exist, and which of them are finished.
 *
 * There is a record for every owner that has a request or for whom somebody waits; a hash table
 * finds it by address. A request counts from before it can be seen until it is handed back by a
 * rejoin, or, if nobody will rejoin it, until it is over. So "none exist" is one comparison and
 * authoritative, whatever the requests do meanwhile: a request that posts a sibling is itself still
 * counted. (models/owner.pml; looking from place to place, as the document does, can miss a request
 * on its way, see models/rejoin.pml.)
 *
 *     expected   posted and not handed back         changes under `front`
 *     finished   of these, those that are over and will never be handed back    changes anywhere
 *
 *     none exist  <=>  expected == finished
 *
 * Workers take no lock: they push what is finished on `done`, or raise `finished`, and then look
 * whether someone must be told: a rejoin that waits, or, for the last one, the table. The change
 * and the look are sequentially consistent, as on the other side are saying "I wait" and looking
 * for what is finished: all four have one order, and at least one of the two sees the other.
 *
 * Records come from a pool that is type-stable, for a worker looks at the record once more after
 * its change, when a fast rejoin may have ended the record's life. The words it looks at are in the
 * stable part; what it then does under the lock is right for whichever owner has the record now.
 *
 * Rejected: a bounded pool of finished requests, as the document has. A parent that posts all
 * before it collects any would fill it and wait for itself.
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/jobs.h>

#include "base/base.h"
#include "base/list.h"
#include "base/pool.h"
#include "base/thread.h"

struct fw_jobs_owner {
    /* The stable part: first what workers write, then on another line what posters do. */
    alignas(FW_CACHE_LINE) _Atomic(struct fw_job *) done; /* Newest first. */
    _Atomic int64_t run_ns; /* Of those that have run, in sum, where timed. Relaxed: a statistic. */
    atomic_bool waited_for; /* `waiters` is not empty. */
    alignas(FW_CACHE_LINE) _Atomic uint64_t expected;
    _Atomic uint64_t finished; /* Here, because most are rejoined and do not raise it. */
    bool live;                 /* In the table. Under front. */

    /* Under front. */
    const void *address;
    struct fw_jobs_owner *bucket_next;
    struct fw_job *taken_first; /* From `done`, oldest first. */
    uint32_t lanes;             /* Bits: where its requests were posted since it last had none. */
    struct fw_list waiters;

    /* Under role. */
    alignas(FW_CACHE_LINE) struct fw_job
        *ready_first; /* Its requests in the ready pool, oldest first. */
    struct fw_job *ready_last;
    uint64_t ready_count;
    uint64_t dispatched;
    int64_t wait_ns;
};

/*
 * Who waits in a rejoin. On the waiter's stack, which he leaves when he has either taken himself
 * out of the line or got the token that he was promised: see fw_owner_settle().
 */
struct fw_owner_waiter {
    struct fw_list_link link;
    struct fw_parker parker;
    bool is_promised; /* He is out of the line, and will be woken. Under front. */
};

struct fw_owners {
    struct fw_pool pool;
    struct fw_jobs_owner **buckets;
    uint32_t bucket_mask;
};

FW_MUST_CHECK int fw_owners_init(struct fw_owners *owners, uint32_t limit);
void fw_owners_fini(struct fw_owners *owners); /* Records that are left are forgotten. */

/* The record, or NULL. All from here on under front. */
struct fw_jobs_owner *fw_owner_find(const struct fw_owners *owners, const void *address);

/* The same, made if there is none. NULL: there are too many. */
struct fw_jobs_owner *fw_owner_get(struct fw_owners *owners, const void *address);

/* One more request, of this lane. */
static inline void fw_owner_expect(struct fw_jobs_owner *owner, uint32_t lane)
{
    owner->lanes |= 1U << lane;
    /* Relaxed: the request is not yet visible to anyone, and only the lock's holder writes. */
    uint64_t expected = atomic_load_explicit(&owner->expected, memory_order_relaxed);
    atomic_store_explicit(&owner->expected, expected + 1, memory_order_relaxed);
}

/* No request exists. */
static inline bool fw_owner_is_empty(const struct fw_jobs_owner *owner)
{
    uint64_t expected = atomic_load_explicit(&owner->expected, memory_order_relaxed);
    /*
     * Acquire, for the release in over(): what the last request did is seen by who learns this.
     * Sequentially consistent, for fw_owner_wait().
     */
    return atomic_load_explicit(&owner->finished, memory_order_seq_cst) == expected;
}

/*
 * Hands back the oldest finished request, or NULL. The caller settles afterwards if that was the
 * last.
 */
struct fw_job *fw_owner_take(struct fw_jobs_owner *owner);

/* Puts the waiter in line and looks once more: false, and out of the line, if there is news. */
bool fw_owner_wait(struct fw_jobs_owner *owner, struct fw_owner_waiter *waiter);

/* Takes the waiter out of the line. Who is promised a token is out of it already. */
void fw_owner_unwait(struct fw_jobs_owner *owner, struct fw_owner_waiter *waiter);

/*
 * Adds who must know to `woken`, and forgets the owner if nobody needs it any more. The caller
 * calls fw_owner_wake() as soon as he has let go of front: who is woken often runs at once, in
 * place of who woke him, and wants front; and so may a core, which then waits for both.
 */
void fw_owner_settle(struct fw_owners *owners, struct fw_jobs_owner *owner, struct fw_list *woken);

/* Without front. */
void fw_owner_wake(struct fw_list *woken);

/* Without a lock, by who has finished a request. True: somebody must call settle(). */
FW_MUST_CHECK bool fw_owner_done(struct fw_jobs_owner *owner, struct fw_job *job);
FW_MUST_CHECK bool fw_owner_over(struct fw_jobs_owner *owner);

/* Under role. */
static inline void fw_owner_ready_add(struct fw_jobs_owner *owner, struct fw_job *job)
{
    job->sibling_next = NULL;
    job->sibling_previous = owner->ready_last;
    if (owner->ready_last != NULL) {
        owner->ready_last->sibling_next = job;
    } else {
        owner->ready_first = job;
    }
    owner->ready_last = job;
    owner->ready_count++;
}

static inline void fw_owner_ready_remove(struct fw_jobs_owner *owner, struct fw_job *job)
{
    if (job->sibling_previous != NULL) {
        job->sibling_previous->sibling_next = job->sibling_next;
    } else {
        owner->ready_first = job->sibling_next;
    }
    if (job->sibling_next != NULL) {
        job->sibling_next->sibling_previous = job->sibling_previous;
    } else {
        owner->ready_last = job->sibling_previous;
    }
    owner->ready_count--;
}
