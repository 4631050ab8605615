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
    fw_jobs_number(output, "posted", (int64_t)statistics.posted);
    fw_jobs_number(output, "run", (int64_t)statistics.run);
    fw_jobs_number(output, "cancelled", (int64_t)statistics.cancelled);
    fw_jobs_number(output, "unclaimed", (int64_t)statistics.unclaimed);
    fw_jobs_number(output, "refused_pool", (int64_t)statistics.refused_pool);
    fw_jobs_number(output, "refused_lane", (int64_t)statistics.refused_lane);
    fw_jobs_number(output, "waited_for_slot", (int64_t)statistics.waited);
    fw_jobs_number(output, "helped", (int64_t)statistics.helped);
    fw_jobs_number(output, "workers", statistics.workers);
    fw_jobs_number(output, "workers_active", statistics.active);
    fw_jobs_number(output, "workers_blocked", statistics.blocked);
    fw_jobs_number(output, "reviews", (int64_t)statistics.reviews);
    fw_jobs_number(output, "settings_adopted", (int64_t)statistics.adopted);
    fw_jobs_number(output, "commands", (int64_t)statistics.commands);
    return 0;
}

static void pool_row(struct fw_jobs_output *output, const char *name, uint32_t used, uint32_t size)
{
    fw_jobs_row(output, "pools");
    fw_jobs_text(output, "pool", "%s", name);
    fw_jobs_number(output, "used", used);
    fw_jobs_number(output, "size", size);
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
    fw_jobs_number(output, "unclaimed", (int64_t)statistics.unclaimed);
    pool_row(output, "ready", waiting, jobs->policy.slots);
    pool_row(output, "threads", running, statistics.workers);
    return 0;
}

static void latency_row(struct fw_jobs_output *output, const char *what, const char *name,
                        const struct fw_jobs_latency *latency)
{
    if (latency->count > 0) {
        fw_jobs_row(output, "latencies");
        fw_jobs_text(output, "what", "%s", what);
        fw_jobs_text(output, "of", "%s", name);
        fw_jobs_number(output, "count", (int64_t)latency->count);
        fw_jobs_number(output, "median_ns", (int64_t)latency->median_ns);
        fw_jobs_number(output, "p99_ns", (int64_t)latency->p99_ns);
        fw_jobs_number(output, "max_ns", (int64_t)latency->max_ns);
    }
}

static int run_lanes(void *context, struct fw_jobs *jobs, const char *arguments,
                     struct fw_jobs_output *output)
{
    (void)context;
    (void)arguments;
    static const char *const class_names[FW_JOBS_CLASSES] = {"priority below 0", "priority 0",
                                                             "priority 1 to 9", "priority above"};
    struct fw_jobs_statistics statistics;
    fw_jobs_statistics(jobs, &statistics);
    /* Relaxed: a reading of the moment. */
    uint64_t limits = atomic_load_explicit(&jobs->worker_limits, memory_order_relaxed);
    for (uint32_t l = 0; l < FW_JOBS_LANES; l++) {
        fw_jobs_row(output, "lanes");
        fw_jobs_number(output, "lane", l);
        fw_jobs_text(output, "name", "%s", lane_names[l]);
        fw_jobs_number(output, "waiting", statistics.waiting[l]);
        fw_jobs_number(output, "running", statistics.running[l]);
        /* Of this lane and all before it together. */
        fw_jobs_number(output, "slots_sum_max", jobs->slot_limits.sums[l]);
        fw_jobs_number(output, "workers_sum_max", fw_cmls_field(limits, l));
    }
    for (uint32_t l = 0; l < FW_JOBS_LANES; l++) {
        latency_row(output, "waited", lane_names[l], &statistics.wait_lane[l]);
        latency_row(output, "ran", lane_names[l], &statistics.run_lane[l]);
    }
    for (uint32_t c = 0; c < FW_JOBS_CLASSES; c++) {
        latency_row(output, "waited", class_names[c], &statistics.wait_class[c]);
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
        fw_jobs_number(output, setting_names[s], values[s]);
    }
    fw_jobs_number(output, "workers", policy.workers);
    fw_jobs_number(output, "slots", policy.slots);
    fw_jobs_number(output, "owners", policy.owners);
    fw_jobs_number(output, "mode", policy.mode);
    fw_jobs_text(output, "lane-percent", "%u %u %u", policy.lane_percent[0], policy.lane_percent[1],
                 policy.lane_percent[2]);
    fw_jobs_number(output, "ageing", policy.ageing);
    fw_jobs_number(output, "boosting", policy.boosting);
    fw_jobs_number(output, "boost", policy.boost);
    fw_jobs_number(output, "idle-spins", policy.idle_spins);
    fw_jobs_number(output, "hand", policy.hand);
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
    fw_jobs_row(output, "requests");
    fw_jobs_text(output, "request", "%p", row->request);
    fw_jobs_text(output, "state", "%s", state_names[row->state]);
    fw_jobs_text(output, "owner", "%p", row->owner);
    fw_jobs_number(output, "lane", fw_job_lane(row->flags));
    fw_jobs_number(output, "priority", row->priority);
    fw_jobs_number(output, "now", row->priority_now);
    fw_jobs_number(output, "inspected", row->inspections);
    fw_jobs_number(output, "thread", row->thread); /* Or -1. */
    fw_jobs_number(output, "rejoinable", (row->flags & FW_JOB_REJOINABLE) != 0);
    fw_jobs_number(output, "boost", (row->flags & FW_JOB_BOOST) != 0);
    fw_jobs_number(output, "cancelled", (row->flags & FW_JOB_CANCELLED) != 0);
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

static const char *thread_kind(int id)
{
    switch (id) {
    case FW_JOBS_THREAD_MAIN:
        return "main";
    case FW_JOBS_THREAD_MONITOR:
        return "monitor";
    default:
        return id >= FW_JOBS_THREAD_ATTACHED ? "attached" : "worker";
    }
}

static void thread_row(struct fw_jobs_output *output, int id, const char *kind, const char *state)
{
    fw_jobs_row(output, "threads");
    fw_jobs_number(output, "thread", id);
    fw_jobs_text(output, "kind", "%s", kind);
    fw_jobs_text(output, "state", "%s", state);
}

static void member_row(struct fw_jobs_output *output, struct fw_jobs_member *member)
{
    /* Relaxed: only shown. */
    bool blocked = atomic_load_explicit(&member->blocked, memory_order_relaxed);
    fw_mutex_lock(&member->hand_lock);
    thread_row(output, member->id, thread_kind(member->id),
               blocked             ? "blocked"
               : member->depth > 0 ? "busy"
                                   : "");
    /* The innermost: what it waits for is that one's owner. */
    if (member->depth > 0) {
        fw_jobs_text(output, "runs", "%p", (void *)member->running[member->depth - 1].job);
    } else {
        fw_jobs_text(output, "runs", "%s", "");
    }
    fw_jobs_number(output, "depth", member->depth);
    fw_mutex_unlock(&member->hand_lock);
}

static void role_row(struct fw_jobs_output *output, int id, const char *kind)
{
    thread_row(output, id, kind, "a role");
    fw_jobs_text(output, "runs", "%s", "");
    fw_jobs_number(output, "depth", 0);
}

static int run_threads(void *context, struct fw_jobs *jobs, const char *arguments,
                       struct fw_jobs_output *output)
{
    (void)context;
    (void)arguments;
    fw_jobs_role_lock(jobs);
    fw_mutex_lock(&jobs->front);
    int64_t tick = fw_jobs_tick(jobs);
    fw_mutex_unlock(&jobs->front);
    fw_jobs_number(output, "scheduler_tick", tick);
    fw_jobs_number(output, "dispatcher_is_thread", fw_jobs_thread_id(jobs));
    FW_LIST_FOR_EACH (&jobs->members, struct fw_jobs_member, link, member) {
        member_row(output, member);
    }
    role_row(output, FW_JOBS_THREAD_SCHEDULER, "scheduler");
    role_row(output, FW_JOBS_THREAD_DISPATCHER, "dispatcher");
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
