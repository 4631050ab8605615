/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/owner.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

enum { BUCKETS_MIN = 64, BUCKETS_MAX = 1 << 16 };

int fw_owners_init(struct fw_owners *owners, uint32_t limit)
{
    uint32_t buckets = BUCKETS_MIN;
    while (buckets < limit && buckets < BUCKETS_MAX) {
        buckets *= 2;
    }
    int rc = fw_pool_init(&owners->pool, sizeof(struct fw_jobs_owner), FW_CACHE_LINE,
                          offsetof(struct fw_jobs_owner, address), limit);
    if (rc != 0) {
        return rc;
    }
    owners->bucket_mask = buckets - 1;
    owners->buckets = calloc(buckets, sizeof(struct fw_jobs_owner *));
    if (owners->buckets == NULL) {
        fw_pool_fini(&owners->pool);
        return -ENOMEM;
    }
    return 0;
}

void fw_owners_fini(struct fw_owners *owners)
{
    for (uint32_t i = 0; i <= owners->bucket_mask; i++) {
        struct fw_jobs_owner *owner = owners->buckets[i];
        while (owner != NULL) {
            struct fw_jobs_owner *next = owner->bucket_next;
            fw_pool_free(&owners->pool, owner);
            owner = next;
        }
    }
    fw_pool_fini(&owners->pool);
    free(owners->buckets);
}

static struct fw_jobs_owner **owner_bucket(const struct fw_owners *owners, const void *address)
{
    /* Multiplied by the golden ratio, the high bits depend on all the low ones. */
    uint64_t mixed = (uint64_t)(uintptr_t)address * UINT64_C(0x9E3779B97F4A7C15);
    return &owners->buckets[(mixed >> 40) & owners->bucket_mask];
}

struct fw_jobs_owner *fw_owner_find(const struct fw_owners *owners, const void *address)
{
    struct fw_jobs_owner *owner = *owner_bucket(owners, address);
    while (owner != NULL && owner->address != address) {
        owner = owner->bucket_next;
    }
    return owner;
}

struct fw_jobs_owner *fw_owner_get(struct fw_owners *owners, const void *address)
{
    struct fw_jobs_owner *owner = fw_owner_find(owners, address);
    if (owner != NULL) {
        return owner;
    }
    owner = fw_pool_alloc(&owners->pool);
    if (owner == NULL) {
        return NULL;
    }
    /* The stable words were left as an owner without requests has them. */
    FW_ASSERT(fw_owner_is_empty(owner) && !owner->live);
    struct fw_jobs_owner **bucket = owner_bucket(owners, address);
    owner->live = true;
    owner->address = address;
    owner->bucket_next = *bucket;
    owner->taken_first = NULL;
    owner->lanes = 0;
    fw_list_init(&owner->waiters);
    owner->ready_first = NULL;
    owner->ready_last = NULL;
    owner->ready_count = 0;
    owner->dispatched = 0;
    owner->wait_ns = 0;
    atomic_store_explicit(&owner->run_ns, 0, memory_order_relaxed);
    *bucket = owner;
    return owner;
}

static void owner_forget(struct fw_owners *owners, struct fw_jobs_owner *owner)
{
    FW_ASSERT(owner->taken_first == NULL && fw_list_is_empty(&owner->waiters));
    struct fw_jobs_owner **link = owner_bucket(owners, owner->address);
    while (*link != owner) {
        link = &(*link)->bucket_next;
    }
    *link = owner->bucket_next;
    owner->live = false;
    fw_pool_free(&owners->pool, owner);
}

/* Moves what is finished from `done` to `taken`, which turns it round. */
static void owner_fetch(struct fw_jobs_owner *owner)
{
    FW_ASSERT(owner->taken_first == NULL);
    if (atomic_load_explicit(&owner->done, memory_order_relaxed) == NULL) {
        return;
    }
    /* Acquire, for the release in done(): what the requests did is seen by who gets them. */
    struct fw_job *job = atomic_exchange_explicit(&owner->done, NULL, memory_order_acquire);
    struct fw_job *behind = NULL;
    while (job != NULL) {
        struct fw_job *before = job->next;
        job->next = behind;
        behind = job;
        job = before;
    }
    owner->taken_first = behind;
}

struct fw_job *fw_owner_take(struct fw_jobs_owner *owner)
{
    if (owner->taken_first == NULL) {
        owner_fetch(owner);
    }
    struct fw_job *job = owner->taken_first;
    if (job == NULL) {
        return NULL;
    }
    owner->taken_first = job->next;
    if (job->next != NULL) {
        __builtin_prefetch(job->next);
    }
    uint64_t expected = atomic_load_explicit(&owner->expected, memory_order_relaxed);
    FW_ASSERT(expected > 0);
    if (owner->taken_first != NULL) {
        /* Relaxed: there is another one, so nobody can take this for the last. */
        atomic_store_explicit(&owner->expected, expected - 1, memory_order_relaxed);
    } else {
        /* Sequentially consistent, as the addition in over(): of a rejoin that takes the last
         * finished request and a worker that ends the last other one, at least one sees that none
         * is left. */
        atomic_store_explicit(&owner->expected, expected - 1, memory_order_seq_cst);
    }
    return job;
}

bool fw_owner_wait(struct fw_jobs_owner *owner, struct fw_owner_waiter *waiter)
{
    fw_list_push_back(&owner->waiters, &waiter->link);
    /* Sequentially consistent, as the loads behind it; done() and over() are the other side. */
    atomic_store_explicit(&owner->waited_for, true, memory_order_seq_cst);
    FW_YIELD_POINT("owner: said that it waits");
    bool news = owner->taken_first != NULL ||
                atomic_load_explicit(&owner->done, memory_order_seq_cst) != NULL ||
                fw_owner_is_empty(owner);
    if (news) {
        fw_owner_unwait(owner, waiter);
    }
    return !news;
}

void fw_owner_unwait(struct fw_jobs_owner *owner, struct fw_owner_waiter *waiter)
{
    fw_list_remove(&waiter->link);
    atomic_store_explicit(&owner->waited_for, !fw_list_is_empty(&owner->waiters),
                          memory_order_relaxed);
}

void fw_owner_settle(struct fw_owners *owners, struct fw_jobs_owner *owner, struct fw_list *woken)
{
    if (!owner->live) {
        return; /* Another settled it. */
    }
    bool empty = fw_owner_is_empty(owner);
    /*
     * One finished request is for one rejoin; that none exists is for all. Who is woken leaves the
     * line, so that the next finished request wakes the next; if it finds nothing, because another
     * was faster, it comes back.
     */
    struct fw_list_link *link;
    while ((link = fw_list_pop_front(&owner->waiters)) != NULL) {
        FW_LIST_ENTRY(link, struct fw_owner_waiter, link)->is_promised = true;
        fw_list_push_back(woken, link);
        if (!empty) {
            break;
        }
    }
    bool waited_for = !fw_list_is_empty(&owner->waiters);
    atomic_store_explicit(&owner->waited_for, waited_for, memory_order_relaxed);
    if (empty) {
        owner_forget(owners, owner);
    }
}

void fw_owner_wake(struct fw_list *woken)
{
    struct fw_list_link *link;
    while ((link = fw_list_pop_front(woken)) != NULL) {
        struct fw_owner_waiter *waiter = FW_LIST_ENTRY(link, struct fw_owner_waiter, link);
        FW_YIELD_POINT("owner: promised, not woken");
        FW_ASSERT(waiter->is_promised); /* It is still there. */
        fw_unpark(&waiter->parker);
    }
}

bool fw_owner_done(struct fw_jobs_owner *owner, struct fw_job *job)
{
    struct fw_job *head = atomic_load_explicit(&owner->done, memory_order_relaxed);
    do {
        job->next = head;
        FW_YIELD_POINT("owner: about to push what is done");
        /* Release, for the acquire in owner_fetch(); sequentially consistent, for wait(). */
    } while (!atomic_compare_exchange_weak_explicit(&owner->done, &head, job, memory_order_seq_cst,
                                                    memory_order_relaxed));
    FW_YIELD_POINT("owner: done, waiters not seen");
    return atomic_load_explicit(&owner->waited_for, memory_order_seq_cst);
}

bool fw_owner_over(struct fw_jobs_owner *owner)
{
    /* Release for fw_owner_is_empty(); sequentially consistent for take() and wait(). */
    uint64_t finished = atomic_fetch_add_explicit(&owner->finished, 1, memory_order_seq_cst) + 1;
    FW_YIELD_POINT("owner: over, waiters not seen");
    return atomic_load_explicit(&owner->expected, memory_order_seq_cst) == finished ||
           atomic_load_explicit(&owner->waited_for, memory_order_seq_cst);
}
