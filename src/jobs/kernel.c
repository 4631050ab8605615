/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel as a whole: made, started, stopped; and its members.
 */
#include "jobs/kernel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/jobs.h>

#include "base/assert.h"
#include "base/reason.h"
#include "io/clock.h"
#include "jobs/policy.h"
#include "jobs/trace.h"

FW_LOG_MODULE(jobs);

void fw_jobs_member_init(struct fw_jobs_member *member, struct fw_jobs *jobs, int id)
{
    member->jobs = jobs;
    member->id = id;
    fw_parker_init(&member->parker);
    fw_mutex_init(&member->hand_lock, FW_RANK_JOBS_HAND);
}

static void member_enlist(struct fw_jobs *jobs, struct fw_jobs_member *member)
{
    fw_jobs_role_lock(jobs);
    fw_list_push_back(&jobs->members, &member->link);
    fw_jobs_role_unlock(jobs);
}

void fw_jobs_limits_replace(struct fw_jobs *jobs, uint32_t count)
{
    jobs->limits_count = count;
    fw_jobs_hands_recall(jobs); /* They were filled under the limits of before. */
    count = count < jobs->policy.workers ? count : jobs->policy.workers;
    uint64_t limits = atomic_load_explicit(&jobs->worker_limits, memory_order_relaxed);
    if (fw_cmls_field(limits, FW_JOBS_LANES - 1) == count) {
        return;
    }
    struct fw_cmls cmls;
    fw_cmls_fit(&cmls, count, jobs->policy.lane_percent,
                (jobs->policy.mode & FW_JOBS_LANES_WORKERS) != 0);
    atomic_store_explicit(&jobs->worker_limits, fw_cmls_pack(&cmls), memory_order_relaxed);
    fw_gauge_set(&jobs->metrics.active, count);
}

/* What needs memory. A failure leaves nothing behind. */
static int jobs_allocate(struct fw_jobs *jobs)
{
    const struct fw_jobs_policy *policy = &jobs->policy;
    int rc = fw_owners_init(&jobs->owners, policy->owners);
    if (rc != 0) {
        return rc;
    }
    rc = fw_ready_init(&jobs->ready, policy);
    if (rc != 0) {
        goto fini_owners;
    }
    rc = fw_inbox_init(&jobs->inbox, policy->slots);
    if (rc != 0) {
        goto fini_ready;
    }
    rc = -ENOMEM;
    jobs->workers = calloc(policy->workers, sizeof *jobs->workers);
    if (jobs->workers == NULL) {
        goto fini_inbox;
    }
    rc = fw_jobs_monitor_create(jobs);
    if (rc != 0) {
        goto free_workers;
    }
    rc = fw_jobs_commands_create(jobs);
    if (rc != 0) {
        goto destroy_monitor;
    }
    return 0;

destroy_monitor:
    fw_jobs_monitor_destroy(jobs);
free_workers:
    free(jobs->workers);
fini_inbox:
    fw_inbox_fini(&jobs->inbox);
fini_ready:
    fw_ready_fini(&jobs->ready);
fini_owners:
    fw_owners_fini(&jobs->owners);
    return rc;
}

static void jobs_init(struct fw_jobs *jobs)
{
    const struct fw_jobs_policy *policy = &jobs->policy;
    uint32_t active = policy->workers_active > 0 ? policy->workers_active : policy->workers;
    bool lanes_on = (policy->mode & FW_JOBS_LANES_SLOTS) != 0;
    int rc = fw_cmls_init(&jobs->slot_limits, policy->slots, policy->lane_percent, lanes_on);
    FW_ASSERT(rc == 0); /* The policy was checked. */
    fw_mutex_init(&jobs->front, FW_RANK_JOBS_FRONT);
    fw_mutex_init(&jobs->role, FW_RANK_JOBS_ROLE);
    fw_list_init(&jobs->slot_waiters);
    fw_list_init(&jobs->members);
    fw_doorbell_init(&jobs->bell);
    jobs->phase = FW_JOBS_CREATED;
    jobs->tick_begin_ns = fw_clock_coarse_ns();
    jobs->next_attached_id = FW_JOBS_THREAD_ATTACHED;
    atomic_init(&jobs->ageing_interval_ns, policy->ageing_interval_ns);
    atomic_init(&jobs->active, active);
    atomic_init(&jobs->timing, policy->timing);
    fw_jobs_dispatch(jobs, NULL); /* Sets the limits. */
}

int fw_jobs_create(struct fw_jobs **jobs_out, const struct fw_jobs_policy *policy,
                   struct fw_jobs_reason *reason)
{
    int rc = fw_jobs_policy_check(policy, reason);
    if (rc != 0) {
        return rc;
    }
    struct fw_jobs *jobs = aligned_alloc(FW_CACHE_LINE, sizeof *jobs);
    if (jobs != NULL) {
        memset(jobs, 0, sizeof *jobs);
        jobs->policy = *policy;
        jobs->trace = policy->trace ? fw_jobs_trace_create() : NULL;
        rc = policy->trace && jobs->trace == NULL ? -ENOMEM : jobs_allocate(jobs);
    }
    if (jobs == NULL || rc != 0) {
        fw_jobs_trace_destroy(jobs != NULL ? jobs->trace : NULL);
        struct fw_reason why;
        (void)fw_reason_set(&why, -ENOMEM, "no memory for %u slots and %u workers", policy->slots,
                            policy->workers);
        fw_jobs_reason_copy(reason, &why);
        free(jobs);
        return -ENOMEM;
    }
    jobs_init(jobs);
    fw_jobs_member_init(&jobs->main_member, jobs, FW_JOBS_THREAD_MAIN);
    member_enlist(jobs, &jobs->main_member);
    if (fw_thread_self()->job_member == NULL) {
        fw_thread_self()->job_member = &jobs->main_member;
    }
    *jobs_out = jobs;
    return 0;
}

int fw_jobs_start(struct fw_jobs *jobs, struct fw_jobs_reason *reason)
{
    fw_mutex_lock(&jobs->front);
    bool created = jobs->phase == FW_JOBS_CREATED;
    if (created) {
        jobs->phase = FW_JOBS_RUNNING;
    }
    fw_mutex_unlock(&jobs->front);
    struct fw_reason why;
    int rc;
    if (!created) {
        rc = fw_reason_set(&why, -EALREADY, "the job kernel was started before");
        fw_jobs_reason_copy(reason, &why);
        return rc;
    }
    rc = fw_jobs_monitor_start(jobs);
    if (rc != 0) {
        (void)fw_reason_errno(&why, rc, "cannot start the threads of the job kernel");
        fw_jobs_reason_copy(reason, &why);
        fw_mutex_lock(&jobs->front);
        jobs->phase = FW_JOBS_CREATED;
        fw_mutex_unlock(&jobs->front);
        return rc;
    }
    FW_LOG(jobs, INFO, "%u workers, %u slots", jobs->policy.workers, jobs->policy.slots);
    return 0;
}

static void jobs_account(struct fw_jobs *jobs, struct fw_jobs_account *account)
{
    fw_mutex_lock(&jobs->front);
    account->posted = fw_counter_get(&jobs->metrics.posted);
    account->run = fw_counter_get(&jobs->metrics.run);
    account->cancelled = fw_counter_get(&jobs->metrics.cancelled);
    account->unclaimed = jobs->rejoinable - fw_counter_get(&jobs->metrics.rejoined);
    fw_mutex_unlock(&jobs->front);
}

int fw_jobs_stop(struct fw_jobs *jobs, enum fw_jobs_ending ending, struct fw_jobs_account *account)
{
    FW_ASSERT(fw_jobs_self_running(jobs) == NULL);
    bool abandon = ending == FW_JOBS_ABANDON;
    fw_jobs_commands_stop(jobs);
    fw_mutex_lock(&jobs->front);
    bool running = jobs->phase == FW_JOBS_RUNNING;
    if (running) {
        jobs->phase = abandon ? FW_JOBS_ABANDONED : FW_JOBS_DRAINING;
        fw_jobs_slots_refuse(jobs, -ESHUTDOWN, abandon);
    }
    fw_mutex_unlock(&jobs->front);
    if (!running) {
        return -EALREADY;
    }
    if (abandon) {
        (void)fw_jobs_cancel_all(jobs);
    }
    fw_jobs_role_lock(jobs);
    jobs->ending = true;
    fw_jobs_role_unlock(jobs);
    for (uint32_t i = 0; i < jobs->policy.workers; i++) {
        fw_thread_join(&jobs->workers[i].thread);
    }
    fw_jobs_monitor_stop(jobs);
    fw_mutex_lock(&jobs->front);
    jobs->phase = FW_JOBS_STOPPED;
    fw_mutex_unlock(&jobs->front);
    FW_ASSERT(atomic_load_explicit(&jobs->word, memory_order_relaxed) == 0);

    struct fw_jobs_account sums;
    jobs_account(jobs, &sums);
    FW_ASSERT(sums.posted == sums.run + sums.cancelled);
    if (account != NULL) {
        *account = sums;
    }
    return 0;
}

void fw_jobs_destroy(struct fw_jobs *jobs)
{
    FW_ASSERT(jobs->phase == FW_JOBS_CREATED || jobs->phase == FW_JOBS_STOPPED);
    if (fw_thread_self()->job_member == &jobs->main_member) {
        fw_thread_self()->job_member = NULL;
    }
    fw_jobs_handles_close(&jobs->main_member, 0);
    fw_jobs_role_lock(jobs);
    fw_list_remove(&jobs->main_member.link);
    FW_ASSERT(jobs->phase == FW_JOBS_CREATED || fw_list_is_empty(&jobs->members));
    fw_jobs_role_unlock(jobs);
    fw_jobs_commands_destroy(jobs);
    fw_jobs_monitor_destroy(jobs);
    free(jobs->workers);
    fw_inbox_fini(&jobs->inbox);
    fw_ready_fini(&jobs->ready);
    fw_owners_fini(&jobs->owners);
    fw_mutex_fini(&jobs->role);
    fw_mutex_fini(&jobs->front);
    fw_jobs_trace_destroy(jobs->trace);
    free(jobs);
}

int fw_jobs_attach(struct fw_jobs *jobs)
{
    if (fw_thread_self()->job_member != NULL) {
        return -EBUSY;
    }
    struct fw_jobs_member *member = calloc(1, sizeof *member);
    if (member == NULL) {
        return -ENOMEM;
    }
    fw_jobs_role_lock(jobs);
    fw_jobs_member_init(member, jobs, (int)jobs->next_attached_id++);
    fw_list_push_back(&jobs->members, &member->link);
    fw_jobs_role_unlock(jobs);
    fw_thread_self()->job_member = member;
    return 0;
}

void fw_jobs_detach(struct fw_jobs *jobs)
{
    struct fw_jobs_member *self = fw_jobs_self(jobs);
    FW_ASSERT(self != NULL && self->id >= FW_JOBS_THREAD_ATTACHED && self->depth == 0);
    fw_jobs_handles_close(self, 0);
    fw_jobs_role_lock(jobs);
    fw_list_remove(&self->link);
    fw_jobs_role_unlock(jobs);
    fw_thread_self()->job_member = NULL;
    free(self);
}

int fw_jobs_thread_id(struct fw_jobs *jobs)
{
    const struct fw_jobs_member *self = fw_jobs_self(jobs);
    return self != NULL ? self->id : -ESRCH;
}

void fw_jobs_block_enter(struct fw_jobs *jobs)
{
    struct fw_jobs_member *self = fw_jobs_self(jobs);
    FW_ASSERT(self != NULL && self->depth > 0);
    FW_ASSERT(!atomic_load_explicit(&self->blocked, memory_order_relaxed));
    atomic_store_explicit(&self->blocked, true, memory_order_relaxed);
    atomic_fetch_add_explicit(&jobs->blocked, 1, memory_order_relaxed);
    fw_jobs_dispatch(jobs, NULL);
}

void fw_jobs_block_leave(struct fw_jobs *jobs)
{
    struct fw_jobs_member *self = fw_jobs_self(jobs);
    FW_ASSERT(self != NULL && atomic_load_explicit(&self->blocked, memory_order_relaxed));
    atomic_store_explicit(&self->blocked, false, memory_order_relaxed);
    atomic_fetch_sub_explicit(&jobs->blocked, 1, memory_order_relaxed);
}
