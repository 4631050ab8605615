/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system's own commands: what an administrator can see and change.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/jobs.h>
#include <fairway/log.h>

#include "base/base.h"
#include "base/parse.h"
#include "jobs/command.h"
#include "jobs/kernel.h"
#include "log/module.h"

enum { TREE_OWNERS_MAX = 64 };

static const char *const lane_names[FW_JOBS_LANES] = {"services", "feeders", "units", "parts"};
static const char *const state_names[] = {"free", "posted", "ready", "busy", "done"};

static int run_status(void *context, struct fw_jobs *jobs, const char *arguments,
                      struct fw_jobs_output *output)
{
    (void)context;
    (void)arguments;
    struct fw_jobs_statistics statistics;
    fw_jobs_statistics(jobs, &statistics);
    fw_jobs_print(output, "posted %llu, run %llu, cancelled %llu, unclaimed %llu\n",
                  (unsigned long long)statistics.posted, (unsigned long long)statistics.run,
                  (unsigned long long)statistics.cancelled,
                  (unsigned long long)statistics.unclaimed);
    fw_jobs_print(output, "refused: pool %llu, lane %llu; waited for a slot %llu; helped %llu\n",
                  (unsigned long long)statistics.refused_pool,
                  (unsigned long long)statistics.refused_lane,
                  (unsigned long long)statistics.waited, (unsigned long long)statistics.helped);
    fw_jobs_print(output, "workers %u, active %u, blocked %u\n", statistics.workers,
                  statistics.active, statistics.blocked);
    fw_jobs_print(output, "monitor: reviews %llu, settings adopted %llu; commands %llu\n",
                  (unsigned long long)statistics.reviews, (unsigned long long)statistics.adopted,
                  (unsigned long long)statistics.commands);
    return 0;
}

static int run_pools(void *context, struct fw_jobs *jobs, const char *arguments,
                     struct fw_jobs_output *output)
{
    (void)context;
    (void)arguments;
    struct fw_jobs_statistics statistics;
    fw_jobs_statistics(jobs, &statistics);
    uint32_t waiting = 0, running = 0;
    for (uint32_t l = 0; l < FW_JOBS_LANES; l++) {
        waiting += statistics.waiting[l];
        running += statistics.running[l];
    }
    fw_jobs_print(output, "ready pool: %u of %u slots\n", waiting, jobs->policy.slots);
    fw_jobs_print(output, "thread pool: %u of %u workers\n", running, statistics.workers);
    fw_jobs_print(output, "finished and not rejoined: %llu\n",
                  (unsigned long long)statistics.unclaimed);
    return 0;
}

static void print_latency(struct fw_jobs_output *output, const char *name,
                          const struct fw_jobs_latency *latency)
{
    if (latency->count > 0) {
        fw_jobs_print(output, "  %-10s n %llu, median %llu ns, p99 %llu ns, max %llu ns\n", name,
                      (unsigned long long)latency->count, (unsigned long long)latency->median_ns,
                      (unsigned long long)latency->p99_ns, (unsigned long long)latency->max_ns);
    }
}

static int run_lanes(void *context, struct fw_jobs *jobs, const char *arguments,
                     struct fw_jobs_output *output)
{
    (void)context;
    (void)arguments;
    static const char *const class_names[FW_JOBS_CLASSES] = {"below 0", "0", "1 to 9", "above"};
    struct fw_jobs_statistics statistics;
    fw_jobs_statistics(jobs, &statistics);
    /* Relaxed: a reading of the moment. */
    uint64_t limits = atomic_load_explicit(&jobs->worker_limits, memory_order_relaxed);
    for (uint32_t l = 0; l < FW_JOBS_LANES; l++) {
        fw_jobs_print(output,
                      "lane %u (%s): waiting %u, running %u; lanes up to it: at most %u slots, "
                      "%u workers\n",
                      l, lane_names[l], statistics.waiting[l], statistics.running[l],
                      jobs->slot_limits.sums[l], fw_cmls_field(limits, l));
        print_latency(output, "waited", &statistics.wait_lane[l]);
        print_latency(output, "ran", &statistics.run_lane[l]);
    }
    for (uint32_t c = 0; c < FW_JOBS_CLASSES; c++) {
        print_latency(output, class_names[c], &statistics.wait_class[c]);
    }
    return 0;
}

/* The settings by name, in the order of enum fw_jobs_setting. */
static const char *const setting_names[FW_JOBS_SETTINGS] = {
    "workers-active", "ageing-interval-ns", "review-interval-ns", "autonomic", "timing"};

static int run_settings(void *context, struct fw_jobs *jobs, const char *arguments,
                        struct fw_jobs_output *output)
{
    (void)context;
    (void)arguments;
    struct fw_jobs_policy policy;
    fw_jobs_policy_get(jobs, &policy);
    const int64_t values[FW_JOBS_SETTINGS] = {policy.workers_active, policy.ageing_interval_ns,
                                              policy.review_interval_ns, policy.autonomic,
                                              policy.timing};
    for (int s = 0; s < FW_JOBS_SETTINGS; s++) {
        fw_jobs_print(output, "%s %lld\n", setting_names[s], (long long)values[s]);
    }
    fw_jobs_print(output, "workers %u\nslots %u\nowners %u\nmode %#x\nlane-percent %u %u %u\n",
                  policy.workers, policy.slots, policy.owners, policy.mode, policy.lane_percent[0],
                  policy.lane_percent[1], policy.lane_percent[2]);
    fw_jobs_print(output, "ageing %d\nboosting %d\nboost %d\nidle-spins %u\nhand %u\n",
                  policy.ageing, policy.boosting, policy.boost, policy.idle_spins, policy.hand);
    return 0;
}

static int run_set(void *context, struct fw_jobs *jobs, const char *arguments,
                   struct fw_jobs_output *output)
{
    (void)context;
    size_t length = strcspn(arguments, " ");
    const char *number = arguments + length + strspn(arguments + length, " ");
    for (int s = 0; s < FW_JOBS_SETTINGS; s++) {
        if (strlen(setting_names[s]) != length ||
            memcmp(setting_names[s], arguments, length) != 0) {
            continue;
        }
        uint64_t value;
        int rc = fw_parse_uint(number, strlen(number), 0, INT64_MAX, &value);
        if (rc == 0) {
            rc = fw_jobs_set(jobs, (enum fw_jobs_setting)s, (int64_t)value);
        }
        if (rc != 0) {
            fw_jobs_print(output, "%s cannot be '%.40s'\n", setting_names[s], number);
        }
        return rc;
    }
    fw_jobs_print(output, "there is no setting '%.*s'; see settings\n",
                  length < 40 ? (int)length : 40, arguments);
    return -EINVAL;
}

/* log LEVEL, or log MODULE LEVEL. */
static int run_log(void *context, struct fw_jobs *jobs, const char *arguments,
                   struct fw_jobs_output *output)
{
    (void)context;
    (void)jobs;
    char module[FW_JOBS_COMMAND_SIZE];
    size_t length = strcspn(arguments, " ");
    const char *level = arguments + length + strspn(arguments + length, " ");
    bool all = *level == '\0';
    (void)snprintf(module, sizeof module, "%.*s", (int)length, arguments);
    level = all ? arguments : level;
    for (int i = 0; fw_log_level_names[i] != NULL; i++) {
        if (strcmp(fw_log_level_names[i], level) == 0) {
            int rc = fw_log_set_level(all ? NULL : module, (enum fw_log_level)i);
            if (rc != 0) {
                fw_jobs_print(output, "there is no module '%.40s'\n", module);
            }
            return rc;
        }
    }
    fw_jobs_print(output, "there is no level '%.40s'\n", level);
    return -EINVAL;
}

/* Everything about one request, as a row. */
struct request_row {
    const void *request;
    enum fw_job_state state;
    const void *owner;
    int32_t priority;
    int64_t priority_now;
    int64_t inspections;
    uint32_t flags;
    int thread; /* -1: none. */
};

static void print_row(struct fw_jobs_output *output, const struct request_row *row)
{
    fw_jobs_print(output,
                  "request %p state %s owner %p lane %u priority %d now %lld inspected %lld%s%s%s",
                  row->request, state_names[row->state], row->owner, fw_job_lane(row->flags),
                  row->priority, (long long)row->priority_now, (long long)row->inspections,
                  (row->flags & FW_JOB_REJOINABLE) != 0 ? " rejoinable" : "",
                  (row->flags & FW_JOB_BOOST) != 0 ? " boost" : "",
                  (row->flags & FW_JOB_CANCELLED) != 0 ? " cancelled" : "");
    if (row->thread >= 0) {
        fw_jobs_print(output, " thread %d", row->thread);
    }
    fw_jobs_print(output, "\n");
}

/* The owners whose requests are still to be shown; the requests shown may be owners too. */
struct tree {
    struct fw_jobs *jobs;
    struct fw_jobs_output *output;
    const void *owners[TREE_OWNERS_MAX];
    uint32_t owner_count;
    int64_t tick;
    uint32_t shown;
};

static void tree_show(struct tree *tree, const struct request_row *row)
{
    print_row(tree->output, row);
    tree->shown++;
    if (tree->owner_count < TREE_OWNERS_MAX) {
        tree->owners[tree->owner_count++] = row->request;
    }
}

static void tree_show_job(struct tree *tree, const struct fw_job *job, enum fw_job_state state)
{
    bool waits = state == FW_JOB_READY;
    const struct fw_ready *ready = &tree->jobs->ready;
    struct request_row row = {
        .request = job,
        .state = state,
        .owner = job->owner,
        .priority = job->priority,
        .priority_now = waits ? fw_ready_priority(ready, job, tree->tick) : job->priority,
        .inspections = waits ? fw_ready_inspections(ready, job, tree->tick) : 0,
        .flags = job->flags,
        .thread = -1};
    tree_show(tree, &row);
}

static void tree_show_running(struct tree *tree, const void *owner)
{
    FW_LIST_FOR_EACH (&tree->jobs->members, struct fw_jobs_member, link, member) {
        fw_mutex_lock(&member->hand_lock);
        for (uint32_t i = 0; i < member->depth; i++) {
            const struct fw_jobs_running *running = &member->running[i];
            if (running->owner == owner) {
                struct request_row row = {.request = running->job,
                                          .state = FW_JOB_BUSY,
                                          .owner = owner,
                                          .priority = running->priority,
                                          .priority_now = running->priority,
                                          .flags = running->flags,
                                          .thread = member->id};
                tree_show(tree, &row);
            }
        }
        fw_mutex_unlock(&member->hand_lock);
    }
}

/* Under both locks: then requests stay where they are, but for those that end meanwhile. */
static void tree_show_owner(struct tree *tree, const void *owner)
{
    const struct fw_jobs_owner *record = fw_owner_find(&tree->jobs->owners, owner);
    if (record == NULL) {
        return;
    }
    for (const struct fw_job *job = record->ready_first; job != NULL; job = job->sibling_next) {
        tree_show_job(tree, job, FW_JOB_READY);
    }
    tree_show_running(tree, owner);
    for (const struct fw_job *job = record->taken_first; job != NULL; job = job->next) {
        tree_show_job(tree, job, FW_JOB_DONE);
    }
    /* Acquire, for the release in fw_owner_done(). Only rejoin takes from it, under front. */
    for (const struct fw_job *job = atomic_load_explicit(&record->done, memory_order_acquire);
         job != NULL; job = job->next) {
        tree_show_job(tree, job, FW_JOB_DONE);
    }
}

static int run_owner(void *context, struct fw_jobs *jobs, const char *arguments,
                     struct fw_jobs_output *output)
{
    (void)context;
    char *end;
    const void *address = (const void *)(uintptr_t)strtoull(arguments, &end, 16); // NOLINT
    if (end == arguments || *end != '\0') {
        fw_jobs_print(output, "owner ADDRESS, in hexadecimal digits\n");
        return -EINVAL;
    }
    struct tree tree = {.jobs = jobs, .output = output, .owners = {address}, .owner_count = 1};
    fw_jobs_role_lock(jobs);
    fw_jobs_gather(jobs);
    fw_mutex_lock(&jobs->front);
    tree.tick = fw_jobs_tick(jobs);
    for (uint32_t i = 0; i < tree.owner_count; i++) {
        tree_show_owner(&tree, tree.owners[i]);
    }
    fw_mutex_unlock(&jobs->front);
    fw_jobs_role_unlock(jobs);
    if (tree.shown == 0) {
        fw_jobs_print(output, "no request of owner %p exists\n", address);
    }
    return 0;
}

static int run_threads(void *context, struct fw_jobs *jobs, const char *arguments,
                       struct fw_jobs_output *output)
{
    (void)context;
    (void)arguments;
    fw_jobs_role_lock(jobs);
    FW_LIST_FOR_EACH (&jobs->members, struct fw_jobs_member, link, member) {
        const char *kind = "worker";
        if (member->id == FW_JOBS_THREAD_MAIN) {
            kind = "main";
        } else if (member->id == FW_JOBS_THREAD_MONITOR) {
            kind = "monitor";
        } else if (member->id >= FW_JOBS_THREAD_ATTACHED) {
            kind = "attached";
        }
        fw_jobs_print(output, "thread %d %s", member->id, kind);
        if (atomic_load_explicit(&member->blocked, memory_order_relaxed)) {
            fw_jobs_print(output, " blocked");
        }
        fw_mutex_lock(&member->hand_lock);
        for (uint32_t i = 0; i < member->depth; i++) {
            fw_jobs_print(output, " runs %p", (void *)member->running[i].job);
        }
        fw_mutex_unlock(&member->hand_lock);
        fw_jobs_print(output, "\n");
    }
    fw_mutex_lock(&jobs->front);
    int64_t tick = fw_jobs_tick(jobs);
    fw_mutex_unlock(&jobs->front);
    fw_jobs_print(output, "thread %d scheduler, a role: tick %lld\n", FW_JOBS_THREAD_SCHEDULER,
                  (long long)tick);
    fw_jobs_print(output, "thread %d dispatcher, a role: held by thread %d\n",
                  FW_JOBS_THREAD_DISPATCHER, fw_jobs_thread_id(jobs));
    fw_jobs_role_unlock(jobs);
    return 0;
}

const struct fw_jobs_command fw_jobs_system_commands[] = {
    {"status", "what the kernel has done", run_status},
    {"pools", "how full the pools are", run_pools},
    {"lanes", "limits, requests and latencies of each lane", run_lanes},
    {"settings", "all settings", run_settings},
    {"set", "NAME VALUE: changes a setting", run_set},
    {"threads", "all threads and roles, and what they run", run_threads},
    {"log", "LEVEL, or MODULE LEVEL: changes what is logged", run_log},
    {"owner", "ADDRESS: the requests of an owner, and theirs", run_owner},
};
const size_t fw_jobs_system_commands_count = FW_ARRAY_LENGTH(fw_jobs_system_commands);
