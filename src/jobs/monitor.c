/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The monitor, thread 500: starts the workers, then wakes once per review interval (and when a
 * timed command is due, or a line was logged) to adopt changed settings, sample the throughput,
 * record, and write the log.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <fairway/jobs.h>

#include "base/assert.h"
#include "io/clock.h"
#include "jobs/kernel.h"
#include "jobs/policy.h"

struct fw_jobs_monitor {
    struct fw_jobs_member member;
    struct fw_parker started; /* Who waits in start(). */
    int start_result;
    atomic_bool stopping;
    _Atomic int64_t review_interval_ns;
    atomic_bool autonomic;
    _Atomic uint64_t reviews;
    _Atomic uint64_t adopted;
    /* A setting that was asked for; relaxed, each stands alone. */
    _Atomic int64_t wanted[FW_JOBS_SETTINGS];
    _Atomic uint32_t changed; /* Bit s: wanted[s] is new. Release by set(), acquire by adopt(). */
    struct fw_climb climb;
    uint64_t run_before; /* At sampled_ns. */
    int64_t sampled_ns;
    bool unsettled; /* The number of workers was changed, so the next sample is of both. */
};

int fw_jobs_monitor_create(struct fw_jobs *jobs)
{
    struct fw_jobs_monitor *monitor = calloc(1, sizeof *monitor);
    if (monitor == NULL) {
        return -ENOMEM;
    }
    const struct fw_jobs_policy *policy = &jobs->policy;
    fw_jobs_member_init(&monitor->member, jobs, FW_JOBS_THREAD_MONITOR);
    fw_parker_init(&monitor->started);
    atomic_init(&monitor->review_interval_ns, policy->review_interval_ns);
    atomic_init(&monitor->autonomic, policy->autonomic);
    jobs->monitor = monitor;
    return 0;
}

void fw_jobs_monitor_destroy(struct fw_jobs *jobs)
{
    free(jobs->monitor);
    jobs->monitor = NULL;
}

/* Sends the first `count` workers home and waits for them. */
static void workers_dismiss(struct fw_jobs *jobs, uint32_t count)
{
    fw_jobs_role_lock(jobs);
    jobs->dismissed = true;
    fw_jobs_role_unlock(jobs);
    for (uint32_t i = 0; i < count; i++) {
        fw_thread_join(&jobs->workers[i].thread);
    }
    fw_jobs_role_lock(jobs);
    jobs->dismissed = false;
    fw_jobs_role_unlock(jobs);
}

static void members_enlist(struct fw_jobs *jobs, bool enlist)
{
    fw_jobs_role_lock(jobs);
    for (uint32_t i = 0; i <= jobs->policy.workers; i++) {
        struct fw_jobs_member *member =
            i < jobs->policy.workers ? &jobs->workers[i] : &jobs->monitor->member;
        if (enlist) {
            fw_list_push_back(&jobs->members, &member->link);
        } else {
            fw_list_remove(&member->link);
        }
    }
    fw_jobs_role_unlock(jobs);
}

static int workers_start(struct fw_jobs *jobs)
{
    for (uint32_t i = 0; i < jobs->policy.workers; i++) {
        struct fw_jobs_member *worker = &jobs->workers[i];
        char name[FW_THREAD_NAME_SIZE];
        (void)snprintf(name, sizeof name, "job-%u", i + 1);
        fw_jobs_member_init(worker, jobs, (int)i + 1);
        int rc = fw_thread_create(&worker->thread, name, fw_jobs_worker_run, worker);
        if (rc != 0) {
            FW_LOG(jobs, ERROR, "cannot start worker %u of %u", i + 1, jobs->policy.workers);
            workers_dismiss(jobs, i);
            return rc;
        }
    }
    members_enlist(jobs, true);
    fw_jobs_role_lock(jobs);
    jobs->open = true;
    fw_jobs_role_unlock(jobs); /* Dispatches what was posted before. */
    return 0;
}

static void adopt_one(struct fw_jobs *jobs, enum fw_jobs_setting setting, int64_t value)
{
    struct fw_jobs_monitor *monitor = jobs->monitor;
    switch (setting) {
    case FW_JOBS_SET_WORKERS_ACTIVE:
        atomic_store_explicit(&jobs->active, (uint32_t)value, memory_order_relaxed);
        fw_jobs_dispatch(jobs, NULL);
        break;
    case FW_JOBS_SET_AGEING_INTERVAL_NS:
        fw_mutex_lock(&jobs->front);
        (void)fw_jobs_tick(jobs); /* Ticks so far were of the old length. */
        atomic_store_explicit(&jobs->ageing_interval_ns, value, memory_order_relaxed);
        fw_mutex_unlock(&jobs->front);
        break;
    case FW_JOBS_SET_REVIEW_INTERVAL_NS:
        atomic_store_explicit(&monitor->review_interval_ns, value, memory_order_relaxed);
        break;
    case FW_JOBS_SET_AUTONOMIC:
        atomic_store_explicit(&monitor->autonomic, value != 0, memory_order_relaxed);
        monitor->climb.low = 0; /* It begins anew. */
        break;
    case FW_JOBS_SET_TIMING:
        atomic_store_explicit(&jobs->timing, value != 0, memory_order_relaxed);
        break;
    case FW_JOBS_SETTINGS:
        FW_ASSERT(false);
    }
    atomic_fetch_add_explicit(&monitor->adopted, 1, memory_order_relaxed);
}

static void monitor_adopt(struct fw_jobs *jobs)
{
    struct fw_jobs_monitor *monitor = jobs->monitor;
    uint32_t changed = atomic_exchange_explicit(&monitor->changed, 0, memory_order_acquire);
    for (int s = 0; s < FW_JOBS_SETTINGS; s++) {
        if ((changed & (1U << s)) != 0) {
            adopt_one(jobs, (enum fw_jobs_setting)s,
                      atomic_load_explicit(&monitor->wanted[s], memory_order_relaxed));
        }
    }
}

/*
 * Throughput says something about the number of workers only while requests wait for one. It is
 * what was finished by the time that passed: on a busy machine, just where it matters, the monitor
 * comes late, and by how much differs.
 */
static void monitor_climb(struct fw_jobs *jobs)
{
    struct fw_jobs_monitor *monitor = jobs->monitor;
    uint64_t run = fw_counter_get(&jobs->metrics.run);
    int64_t now_ns = fw_clock_now_ns();
    double finished = (double)(run - monitor->run_before);
    double passed_ns = (double)(now_ns - monitor->sampled_ns);
    bool unsettled = monitor->unsettled;
    monitor->run_before = run;
    monitor->sampled_ns = now_ns;
    monitor->unsettled = false;
    if (!atomic_load_explicit(&monitor->autonomic, memory_order_relaxed)) {
        return;
    }
    uint32_t active = atomic_load_explicit(&jobs->active, memory_order_relaxed);
    if (monitor->climb.low == 0) {
        uint32_t least = fw_cmls_least(jobs->policy.lane_percent,
                                       (jobs->policy.mode & FW_JOBS_LANES_WORKERS) != 0);
        fw_climb_init(&monitor->climb, least, jobs->policy.workers,
                      active > least ? active : least);
        return; /* The interval was not measured from its begin. */
    }
    if (unsettled || passed_ns <= 0 ||
        !atomic_load_explicit(&jobs->backlog, memory_order_relaxed)) {
        return;
    }
    uint32_t wanted = fw_climb_sample(&monitor->climb, finished * FW_NS_PER_S / passed_ns);
    if (wanted != active) {
        monitor->unsettled = true;
        atomic_store_explicit(&jobs->active, wanted, memory_order_relaxed);
        fw_jobs_dispatch(jobs, NULL);
    }
}

static void monitor_log_wake(void *context)
{
    fw_jobs_monitor_wake(context);
}

/* Writes what was logged, and sleeps for a time or until somebody has news. */
static void monitor_sleep(struct fw_jobs *jobs, int64_t duration_ns)
{
    bool sleeps = true;
    if (jobs->policy.drain_log) {
        while (fw_log_drain()) {
        }
        sleeps = fw_log_arm();
    }
    if (sleeps && duration_ns > 0) {
        (void)fw_park_for(&jobs->monitor->member.parker, duration_ns);
    }
    if (jobs->policy.drain_log) {
        fw_log_disarm();
    }
}

static void monitor_run(void *argument)
{
    struct fw_jobs *jobs = argument;
    struct fw_jobs_monitor *monitor = jobs->monitor;
    fw_thread_self()->job_member = &monitor->member;
    monitor->start_result = workers_start(jobs);
    bool failed = monitor->start_result != 0;
    if (!failed && jobs->policy.drain_log) {
        fw_log_set_waker(monitor_log_wake, jobs);
    }
    fw_unpark(&monitor->started);
    int64_t review_ns = fw_clock_now_ns();
    /* Acquire, for the release in stop(). */
    while (!failed && !atomic_load_explicit(&monitor->stopping, memory_order_acquire)) {
        int64_t now_ns = fw_clock_now_ns();
        if (now_ns >= review_ns) {
            monitor_adopt(jobs);
            monitor_climb(jobs);
            atomic_fetch_add_explicit(&monitor->reviews, 1, memory_order_relaxed);
            review_ns =
                now_ns + atomic_load_explicit(&monitor->review_interval_ns, memory_order_relaxed);
        }
        int64_t due_ns = fw_jobs_commands_due(jobs, now_ns);
        int64_t next_ns = due_ns < review_ns ? due_ns : review_ns;
        monitor_sleep(jobs, next_ns - now_ns);
    }
}

int fw_jobs_monitor_start(struct fw_jobs *jobs)
{
    struct fw_jobs_monitor *monitor = jobs->monitor;
    int rc = fw_thread_create(&monitor->member.thread, "job-monitor", monitor_run, jobs);
    if (rc != 0) {
        return rc;
    }
    fw_park(&monitor->started);
    if (monitor->start_result != 0) {
        fw_thread_join(&monitor->member.thread);
        return monitor->start_result;
    }
    return 0;
}

void fw_jobs_monitor_stop(struct fw_jobs *jobs)
{
    struct fw_jobs_monitor *monitor = jobs->monitor;
    atomic_store_explicit(&monitor->stopping, true, memory_order_release);
    fw_unpark(&monitor->member.parker);
    fw_thread_join(&monitor->member.thread);
    if (jobs->policy.drain_log) {
        fw_log_set_waker(NULL, NULL);
        while (fw_log_drain()) {
        }
    }
    members_enlist(jobs, false);
}

void fw_jobs_monitor_wake(struct fw_jobs *jobs)
{
    fw_unpark(&jobs->monitor->member.parker);
}

void fw_jobs_monitor_counts(struct fw_jobs *jobs, uint64_t *reviews, uint64_t *adopted)
{
    *reviews = atomic_load_explicit(&jobs->monitor->reviews, memory_order_relaxed);
    *adopted = atomic_load_explicit(&jobs->monitor->adopted, memory_order_relaxed);
}

int fw_jobs_set(struct fw_jobs *jobs, enum fw_jobs_setting setting, int64_t value)
{
    struct fw_jobs_monitor *monitor = jobs->monitor;
    bool valid = false;
    switch (setting) {
    case FW_JOBS_SET_WORKERS_ACTIVE:
        valid = value >= fw_cmls_least(jobs->policy.lane_percent,
                                       (jobs->policy.mode & FW_JOBS_LANES_WORKERS) != 0) &&
                value <= jobs->policy.workers;
        break;
    case FW_JOBS_SET_AGEING_INTERVAL_NS:
    case FW_JOBS_SET_REVIEW_INTERVAL_NS:
        valid = fw_jobs_interval_is_valid(value);
        break;
    case FW_JOBS_SET_AUTONOMIC:
    case FW_JOBS_SET_TIMING:
        valid = value == 0 || value == 1;
        break;
    case FW_JOBS_SETTINGS:
        break;
    }
    if (!valid) {
        return -EINVAL;
    }
    atomic_store_explicit(&monitor->wanted[setting], value, memory_order_relaxed);
    atomic_fetch_or_explicit(&monitor->changed, 1U << setting, memory_order_release);
    return 0;
}

void fw_jobs_policy_get(struct fw_jobs *jobs, struct fw_jobs_policy *policy)
{
    struct fw_jobs_monitor *monitor = jobs->monitor;
    *policy = jobs->policy;
    policy->workers_active = atomic_load_explicit(&jobs->active, memory_order_relaxed);
    policy->ageing_interval_ns =
        atomic_load_explicit(&jobs->ageing_interval_ns, memory_order_relaxed);
    policy->review_interval_ns =
        atomic_load_explicit(&monitor->review_interval_ns, memory_order_relaxed);
    policy->autonomic = atomic_load_explicit(&monitor->autonomic, memory_order_relaxed);
    policy->timing = atomic_load_explicit(&jobs->timing, memory_order_relaxed);
}
