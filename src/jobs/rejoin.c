/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rejoining and cancelling.
 */
#include <errno.h>

#include <fairway/jobs.h>

#include "base/assert.h"
#include "io/clock.h"
#include "jobs/kernel.h"

bool fw_job_was_cancelled(const struct fw_job *job)
{
    return (job->flags & FW_JOB_CANCELLED) != 0;
}

/* If it was the last one, those who wait for others are added to `woken`. */
static enum fw_rejoin rejoin_locked(struct fw_jobs *jobs, struct fw_jobs_owner *owner,
                                    struct fw_job **job, struct fw_list *woken)
    FW_REQUIRES(jobs->front);
static enum fw_rejoin rejoin_locked(struct fw_jobs *jobs, struct fw_jobs_owner *owner,
                                    struct fw_job **job, struct fw_list *woken)
{
    if (owner == NULL) {
        return FW_REJOIN_NONE_EXIST;
    }
    *job = fw_owner_take(owner);
    if (*job != NULL) {
        fw_counter_increment(&jobs->metrics.rejoined);
        atomic_store_explicit(&(*job)->state, FW_JOB_FREE, memory_order_relaxed);
        if (fw_owner_is_empty(owner)) {
            fw_owner_settle(&jobs->owners, owner, woken);
        }
        return FW_REJOIN_RETURNED;
    }
    if (fw_owner_is_empty(owner)) {
        fw_owner_settle(&jobs->owners, owner, woken);
        return FW_REJOIN_NONE_EXIST;
    }
    return FW_REJOIN_NONE_READY;
}

enum fw_rejoin fw_jobs_rejoin(struct fw_jobs *jobs, const void *owner, struct fw_job **job)
{
    struct fw_list woken;
    fw_list_init(&woken);
    *job = NULL;
    fw_mutex_lock(&jobs->front);
    enum fw_rejoin answer = rejoin_locked(jobs, fw_owner_find(&jobs->owners, owner), job, &woken);
    fw_mutex_unlock(&jobs->front);
    fw_owner_wake(&woken);
    return answer;
}

/*
 * The record of an owner that has requests in the ready pool, or NULL. While it has one, which only
 * the holder of the role can take out, the record stays.
 */
static struct fw_jobs_owner *owner_with_ready(struct fw_jobs *jobs, const void *owner)
    FW_REQUIRES(jobs->role);
static struct fw_jobs_owner *owner_with_ready(struct fw_jobs *jobs, const void *owner)
{
    fw_jobs_gather(jobs);
    fw_mutex_lock(&jobs->front);
    struct fw_jobs_owner *record = fw_owner_find(&jobs->owners, owner);
    if (record != NULL && record->ready_first == NULL) {
        record = NULL;
    }
    fw_mutex_unlock(&jobs->front);
    return record;
}

/* Takes a request of the owner that waits and runs it here. False: there is none. */
static bool rejoin_help(struct fw_jobs *jobs, struct fw_jobs_member *self, const void *owner)
{
    if (self == NULL || self->depth == FW_JOBS_DEPTH_MAX) {
        return false;
    }
    fw_jobs_role_lock(jobs);
    struct fw_jobs_owner *record = owner_with_ready(jobs, owner);
    struct fw_job *job = record != NULL ? record->ready_first : NULL;
    if (job != NULL) {
        fw_jobs_unready(jobs, job);
        fw_jobs_note_running(jobs, self, job);
        fw_counter_increment(&jobs->metrics.helped);
        jobs->helping++;
    }
    fw_jobs_role_unlock(jobs);
    if (job == NULL) {
        return false;
    }
    fw_jobs_execute(jobs, self);
    fw_jobs_role_lock(jobs);
    fw_jobs_note_ended(jobs, self);
    jobs->helping--;
    fw_jobs_role_unlock(jobs);
    return true;
}

/*
 * Looks for news of the owner for a while, without the lock: who ends a request for which somebody
 * sleeps pays for waking him. The record may have another owner by now; then so be it, the words
 * that are read are in its stable part and the answer is a hint.
 */
static void rejoin_spin(const struct fw_jobs *jobs, const struct fw_jobs_owner *owner)
{
    for (uint32_t i = 0; i < jobs->policy.idle_spins; i++) {
        if (atomic_load_explicit(&owner->done, memory_order_relaxed) != NULL ||
            fw_owner_is_empty(owner)) {
            return;
        }
        FW_YIELD_POINT("jobs: looks again before it waits");
        fw_thread_relax();
    }
}

/* Sleeps until there may be news of the owner, or until the deadline. False: it has passed. */
static bool rejoin_sleep(struct fw_jobs *jobs, struct fw_jobs_owner *owner, int64_t deadline_ns)
    FW_REQUIRES(jobs->front);
static bool rejoin_sleep(struct fw_jobs *jobs, struct fw_jobs_owner *owner, int64_t deadline_ns)
{
    struct fw_owner_waiter waiter = {.link = {0}};
    fw_parker_init(&waiter.parker);
    if (!fw_owner_wait(owner, &waiter)) {
        return true;
    }
    fw_mutex_unlock(&jobs->front);
    bool woken = true;
    if (deadline_ns == FW_JOBS_FOREVER) {
        fw_park(&waiter.parker);
    } else {
        int64_t left_ns = deadline_ns - fw_clock_now_ns();
        woken = left_ns > 0 && fw_park_for(&waiter.parker, left_ns);
    }
    fw_mutex_lock(&jobs->front);
    if (!waiter.is_promised) {
        fw_owner_unwait(owner, &waiter); /* In its line, so it exists. */
    } else if (!woken) {
        fw_mutex_unlock(&jobs->front);
        fw_park(&waiter.parker); /* Who has promised it is about to touch what is on our stack. */
        fw_mutex_lock(&jobs->front);
    }
    return woken;
}

enum fw_rejoin fw_jobs_rejoin_wait(struct fw_jobs *jobs, const void *owner, uint32_t flags,
                                   int64_t timeout_ns, struct fw_job **job)
{
    FW_ASSERT(timeout_ns >= 0);
    int64_t deadline_ns =
        timeout_ns == FW_JOBS_FOREVER ? FW_JOBS_FOREVER : fw_clock_now_ns() + timeout_ns;
    bool in_time = true;
    bool has_spun = false;
    struct fw_list woken;
    fw_list_init(&woken);
    enum fw_rejoin answer;
    *job = NULL;
    fw_mutex_lock(&jobs->front);
    for (;;) {
        struct fw_jobs_owner *record = fw_owner_find(&jobs->owners, owner);
        answer = rejoin_locked(jobs, record, job, &woken);
        if (answer != FW_REJOIN_NONE_READY || !in_time) {
            break;
        }
        if (!fw_jobs_may_wait(jobs, record->lanes)) {
            answer = FW_REJOIN_REFUSED;
            break;
        }
        if ((flags & FW_REJOIN_HELP) != 0) {
            fw_mutex_unlock(&jobs->front);
            bool helped = rejoin_help(jobs, fw_jobs_self(jobs), owner);
            fw_mutex_lock(&jobs->front);
            if (helped) {
                continue;
            }
            record = fw_owner_find(&jobs->owners, owner);
            if (record == NULL) {
                continue;
            }
        }
        if (!has_spun) {
            has_spun = true;
            fw_mutex_unlock(&jobs->front);
            rejoin_spin(jobs, record);
            fw_mutex_lock(&jobs->front);
            continue;
        }
        in_time = rejoin_sleep(jobs, record, deadline_ns);
    }
    fw_mutex_unlock(&jobs->front);
    fw_owner_wake(&woken);
    return answer;
}

/* Moves a request from the ready pool to `list`, linked by next. */
static void cancel_one(struct fw_jobs *jobs, struct fw_job *job, struct fw_job **list)
    FW_REQUIRES(jobs->role);
static void cancel_one(struct fw_jobs *jobs, struct fw_job *job, struct fw_job **list)
{
    fw_jobs_unready(jobs, job);
    job->flags |= FW_JOB_CANCELLED;
    job->next = *list;
    *list = job;
    fw_counter_increment(&jobs->metrics.cancelled);
}

/* Finishes what was cancelled, oldest first. Returns how many. */
static uint64_t cancel_finish(struct fw_jobs *jobs, struct fw_job *list)
{
    struct fw_job *oldest = NULL;
    while (list != NULL) {
        struct fw_job *next = list->next;
        list->next = oldest;
        oldest = list;
        list = next;
    }
    uint64_t count = 0;
    while (oldest != NULL) {
        struct fw_job *next = oldest->next;
        struct fw_jobs_finish finish = {.job = oldest,
                                        .runnable = oldest->runnable,
                                        .record = oldest->record,
                                        .flags = oldest->flags};
        if (finish.runnable->completed == NULL && (finish.flags & FW_JOB_REJOINABLE) == 0) {
            /* Nobody will be told, so its memory is the caller's from now on. */
            atomic_store_explicit(&oldest->state, FW_JOB_FREE, memory_order_relaxed);
        }
        fw_jobs_finish(jobs, &finish);
        oldest = next;
        count++;
    }
    return count;
}

/* Tells those that run, of the owner or all of them. */
static void cancel_running(struct fw_jobs *jobs, const void *owner, bool all)
    FW_REQUIRES(jobs->role);
static void cancel_running(struct fw_jobs *jobs, const void *owner, bool all)
{
    FW_LIST_FOR_EACH (&jobs->members, struct fw_jobs_member, link, member) {
        fw_mutex_lock(&member->hand_lock);
        for (uint32_t i = 0; i < member->depth; i++) {
            if (all || member->running[i].owner == owner) {
                atomic_store_explicit(&member->running[i].cancelled, true, memory_order_relaxed);
            }
        }
        fw_mutex_unlock(&member->hand_lock);
    }
}

uint64_t fw_jobs_cancel(struct fw_jobs *jobs, const void *owner)
{
    struct fw_job *list = NULL;
    fw_jobs_role_lock(jobs);
    struct fw_jobs_owner *record = owner_with_ready(jobs, owner);
    while (record != NULL && record->ready_first != NULL) {
        cancel_one(jobs, record->ready_first, &list); /* It counts until it is finished below. */
    }
    cancel_running(jobs, owner, false);
    fw_jobs_role_unlock(jobs);
    return cancel_finish(jobs, list);
}

uint64_t fw_jobs_cancel_all(struct fw_jobs *jobs)
{
    struct fw_job *list = NULL;
    fw_jobs_role_lock(jobs);
    fw_jobs_gather(jobs);
    struct fw_job *job;
    while ((job = fw_ready_any(&jobs->ready)) != NULL) {
        cancel_one(jobs, job, &list);
    }
    cancel_running(jobs, NULL, true);
    fw_jobs_role_unlock(jobs);
    return cancel_finish(jobs, list);
}

bool fw_jobs_is_cancelled(struct fw_jobs *jobs)
{
    struct fw_jobs_running *running = fw_jobs_self_running(jobs);
    /* Relaxed: it says that something is to end, not what. */
    return running != NULL && atomic_load_explicit(&running->cancelled, memory_order_relaxed);
}
