/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posting: a slot, a place among the owner's requests, and into the inbox.
 *
 * Slots are counted by two numbers per lane that only rise: taken, by posters under `front`, and
 * freed, by the dispatcher. A poster looks at the dispatcher's only when its last reading says that
 * there is no room, so the two sides do not fight over a cache line.
 */
#include <errno.h>

#include <fairway/jobs.h>

#include "base/assert.h"
#include "io/clock.h"
#include "jobs/kernel.h"

bool fw_jobs_may_wait(const struct fw_jobs *jobs, uint32_t lanes)
{
    const struct fw_jobs_running *running = fw_jobs_self_running(jobs);
    if (running == NULL || (jobs->policy.mode & FW_JOBS_UNCHECKED) != 0) {
        return true;
    }
    return (lanes & ~jobs->policy.lane_waits_for[fw_job_lane(running->flags)]) == 0;
}

int64_t fw_jobs_tick(struct fw_jobs *jobs)
{
    if (!jobs->policy.ageing) {
        return 0;
    }
    int64_t interval_ns = atomic_load_explicit(&jobs->ageing_interval_ns, memory_order_relaxed);
    int64_t passed_ns = fw_clock_coarse_ns() - jobs->tick_begin_ns;
    if (passed_ns >= interval_ns) {
        jobs->tick += passed_ns / interval_ns;
        jobs->tick_begin_ns += passed_ns - passed_ns % interval_ns;
    }
    return jobs->tick;
}

static void slots_used(const struct fw_jobs *jobs, uint32_t used[FW_JOBS_LANES])
{
    for (uint32_t l = 0; l < FW_JOBS_LANES; l++) {
        used[l] = (uint32_t)(jobs->slots_taken[l] - jobs->slots_freed_seen[l]);
    }
}

/* Looks at what was freed since, and counts anew how many slots are left. */
static void slots_recount(struct fw_jobs *jobs) FW_REQUIRES(jobs->front);
static void slots_recount(struct fw_jobs *jobs)
{
    uint32_t sum = 0;
    for (uint32_t k = 0; k < FW_JOBS_LANES; k++) {
        /* Acquire, for the release in fw_jobs_unready(): its level and its inbox entry are free. */
        jobs->slots_freed_seen[k] =
            atomic_load_explicit(&jobs->slots_freed[k], memory_order_acquire);
        sum += (uint32_t)(jobs->slots_taken[k] - jobs->slots_freed_seen[k]);
        FW_ASSERT(sum <= jobs->slot_limits.sums[k]);
        jobs->slots_left[k] = jobs->slot_limits.sums[k] - sum;
    }
}

/* What fw_cmls_admits() says, from differences that are kept: lane 3 has one to look at. */
static bool slot_is_left(const struct fw_jobs *jobs, uint32_t lane)
{
    for (uint32_t k = lane; k < FW_JOBS_LANES; k++) {
        if (jobs->slots_left[k] == 0) {
            return false;
        }
    }
    return true;
}

static bool slot_try(struct fw_jobs *jobs, uint32_t lane) FW_REQUIRES(jobs->front);
static bool slot_try(struct fw_jobs *jobs, uint32_t lane)
{
    if (!slot_is_left(jobs, lane)) {
        slots_recount(jobs);
        if (!slot_is_left(jobs, lane)) {
            return false;
        }
    }
    for (uint32_t k = lane; k < FW_JOBS_LANES; k++) {
        jobs->slots_left[k]--;
    }
    jobs->slots_taken[lane]++;
    return true;
}

/* Gives a slot back that was not used. */
static void slot_return(struct fw_jobs *jobs, uint32_t lane) FW_REQUIRES(jobs->front);
static void slot_return(struct fw_jobs *jobs, uint32_t lane)
{
    jobs->slots_taken[lane]--;
    slots_recount(jobs);
}

/* Why there is no slot: the whole pool is full, or this lane. */
static int slot_refused(const struct fw_jobs *jobs)
{
    uint32_t used[FW_JOBS_LANES];
    slots_used(jobs, used);
    return used[0] + used[1] + used[2] + used[3] >= jobs->policy.slots ? -EAGAIN : -EBUSY;
}

static int slot_wait(struct fw_jobs *jobs, uint32_t lane) FW_REQUIRES(jobs->front);
static int slot_wait(struct fw_jobs *jobs, uint32_t lane)
{
    struct fw_jobs_slot_waiter waiter = {
        .lane = lane, .is_worker = fw_jobs_self_running(jobs) != NULL, .result = 1};
    fw_parker_init(&waiter.parker);
    FW_YIELD_POINT("jobs: found no slot");
    fw_list_push_back(&jobs->slot_waiters, &waiter.link);
    atomic_store_explicit(&jobs->slots_wanted, true, memory_order_relaxed);
    fw_fence_full(); /* Pairs with that in fw_jobs_dispatch(), after slots were freed. */
    FW_YIELD_POINT("jobs: said that it wants a slot");
    if (slot_try(jobs, lane)) {
        fw_list_remove(&waiter.link);
        return 0;
    }
    fw_counter_increment(&jobs->metrics.waited);
    while (waiter.result == 1) {
        fw_mutex_unlock(&jobs->front);
        fw_park(&waiter.parker);
        fw_mutex_lock(&jobs->front);
    }
    return waiter.result;
}

void fw_jobs_slots_grant(struct fw_jobs *jobs)
{
    struct fw_list granted, still;
    fw_list_init(&granted);
    fw_list_init(&still);
    struct fw_list_link *link;
    fw_mutex_lock(&jobs->front);
    while ((link = fw_list_pop_front(&jobs->slot_waiters)) != NULL) {
        struct fw_jobs_slot_waiter *waiter = FW_LIST_ENTRY(link, struct fw_jobs_slot_waiter, link);
        if (slot_try(jobs, waiter->lane)) {
            waiter->result = 0;
            fw_list_push_back(&granted, link);
        } else {
            fw_list_push_back(&still, link);
        }
    }
    fw_list_append(&jobs->slot_waiters, &still);
    atomic_store_explicit(&jobs->slots_wanted, !fw_list_is_empty(&jobs->slot_waiters),
                          memory_order_relaxed);
    fw_mutex_unlock(&jobs->front);
    /* Only now, for who is woken may run at once, and wants front; it waits for its token. */
    while ((link = fw_list_pop_front(&granted)) != NULL) {
        fw_unpark(&FW_LIST_ENTRY(link, struct fw_jobs_slot_waiter, link)->parker);
    }
}

void fw_jobs_slots_refuse(struct fw_jobs *jobs, int error, bool workers)
{
    struct fw_list still;
    fw_list_init(&still);
    struct fw_list_link *link;
    while ((link = fw_list_pop_front(&jobs->slot_waiters)) != NULL) {
        struct fw_jobs_slot_waiter *waiter = FW_LIST_ENTRY(link, struct fw_jobs_slot_waiter, link);
        if (waiter->is_worker && !workers) {
            fw_list_push_back(&still, link);
            continue;
        }
        waiter->result = error;
        fw_unpark(&waiter->parker);
    }
    fw_list_append(&jobs->slot_waiters, &still);
}

/* Nobody may post any more, or only those inside a request. */
static bool post_is_refused(const struct fw_jobs *jobs)
{
    switch (jobs->phase) {
    case FW_JOBS_CREATED:
    case FW_JOBS_RUNNING:
        return false;
    case FW_JOBS_DRAINING:
        return fw_jobs_self_running(jobs) == NULL;
    case FW_JOBS_ABANDONED:
    case FW_JOBS_STOPPED:
        break;
    }
    return true;
}

static int slot_take(struct fw_jobs *jobs, uint32_t lane, uint32_t flags) FW_REQUIRES(jobs->front);
static int slot_take(struct fw_jobs *jobs, uint32_t lane, uint32_t flags)
{
    if (slot_try(jobs, lane)) {
        return 0;
    }
    if ((flags & FW_JOB_WAIT_IF_BUSY) == 0) {
        int rc = slot_refused(jobs);
        fw_counter_increment(rc == -EAGAIN ? &jobs->metrics.refused_pool
                                           : &jobs->metrics.refused_lane);
        return rc;
    }
    return fw_jobs_may_wait(jobs, 1U << lane) ? slot_wait(jobs, lane) : -EDEADLK;
}

/* Fills the request in and makes it visible. */
static void post_push(struct fw_jobs *jobs, struct fw_job *job) FW_REQUIRES(jobs->front);
static void post_push(struct fw_jobs *jobs, struct fw_job *job)
{
    job->sequence = jobs->sequence++;
    job->key = fw_ready_key(&jobs->ready, job->priority, job->flags, fw_jobs_tick(jobs));
    fw_counter_increment(&jobs->metrics.posted);
    if ((job->flags & FW_JOB_REJOINABLE) != 0) {
        jobs->rejoinable++;
    }
    atomic_store_explicit(&job->state, FW_JOB_POSTED, memory_order_relaxed);
    fw_inbox_push(&jobs->inbox, job);
}

static int post_locked(struct fw_jobs *jobs, struct fw_job *job) FW_REQUIRES(jobs->front);
static int post_locked(struct fw_jobs *jobs, struct fw_job *job)
{
    uint32_t lane = fw_job_lane(job->flags);
    if (post_is_refused(jobs)) {
        return -ESHUTDOWN;
    }
    int rc = slot_take(jobs, lane, job->flags);
    if (rc != 0) {
        return rc;
    }
    if (post_is_refused(jobs)) { /* While it waited for the slot. */
        slot_return(jobs, lane);
        return -ESHUTDOWN;
    }
    job->record = fw_owner_get(&jobs->owners, job->owner);
    if (job->record == NULL) {
        slot_return(jobs, lane);
        return -ENOMEM;
    }
    fw_owner_expect(job->record, lane); /* Before it can be seen. */
    post_push(jobs, job);
    return 0;
}

int fw_jobs_post(struct fw_jobs *jobs, struct fw_job *job, struct fw_job_runnable *runnable,
                 const void *owner, int32_t priority, uint32_t flags)
{
    FW_ASSERT(runnable != NULL && runnable->run != NULL);
    FW_ASSERT(fw_job_state(job) == FW_JOB_FREE);
    if ((flags & ~(uint32_t)FW_JOB_FLAGS) != 0 ||
        (jobs->policy.lanes_used & (1U << fw_job_lane(flags))) == 0) {
        return -EINVAL;
    }
    job->runnable = runnable;
    job->owner = owner;
    job->priority = priority;
    job->flags = flags;
    if (atomic_load_explicit(&jobs->timing, memory_order_relaxed)) {
        job->posted_ns = fw_clock_now_ns();
    } else {
        job->posted_ns = 0;
    }

    fw_mutex_lock(&jobs->front);
    int rc = post_locked(jobs, job);
    fw_mutex_unlock(&jobs->front);
    if (rc == 0 && fw_doorbell_ring(&jobs->bell)) {
        fw_jobs_dispatch(jobs, NULL);
    }
    /* It may have given a slot back that it was granted, and others wait. Relaxed: its own lock. */
    if (FW_UNLIKELY(rc != 0) && atomic_load_explicit(&jobs->slots_wanted, memory_order_relaxed)) {
        fw_jobs_slots_grant(jobs);
    }
    return rc;
}
