/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far from the strict order requests run, and what that buys: jobs_rank HAND WORKERS COUNT
 *
 * Speed: a producer keeps WINDOW empty requests in flight, with random priorities of PRIORITIES.
 *
 * Order: WINDOW requests wait; each that begins counts how many more urgent ones wait at that
 * moment, its rank error, and posts itself again with another priority. There is no other producer,
 * so that with one worker the figures are exact and the same on every machine. With more, one that
 * loses its processor between being given a request and its begin counts what the others did since.
 *
 * Prints a JSON object: `ns` on the wall per request; `mean` and `max` of the rank error.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/jobs.h>

#include "base/parse.h"
#include "io/clock.h"

enum { WINDOW = 1024, PRIORITIES = 16 };

static struct fw_jobs *jobs;
static struct fw_job requests[WINDOW];
static _Atomic int64_t waiting[PRIORITIES];
static _Atomic int64_t left; /* Of the requests to be posted. */
static _Atomic uint64_t draws;
static _Atomic uint64_t error_sum;
static _Atomic uint64_t error_max;

_Noreturn static void give_up(const char *what)
{
    (void)fprintf(stderr, "jobs_rank: %s\n", what);
    exit(1);
}

/* Relaxed, here and below: counts, for a mean and a maximum. */
static int32_t priority_draw(void)
{
    uint64_t number = atomic_fetch_add_explicit(&draws, 1, memory_order_relaxed);
    number = (number + 1) * UINT64_C(0x9E3779B97F4A7C15);
    number = (number ^ (number >> 32)) * UINT64_C(0xD6E8FEB86659FD93);
    return (int32_t)(number >> 60) % PRIORITIES;
}

static void post(struct fw_job *job, struct fw_job_runnable *runnable, int32_t priority,
                 uint32_t flags)
{
    if (fw_jobs_post(jobs, job, runnable, &requests, priority, flags) != 0) {
        give_up("a post was refused");
    }
}

/* Speed. */

static void empty_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    (void)job;
}

/* Nanoseconds for `count` requests. */
static int64_t pipelined(uint64_t count)
{
    static struct fw_job_runnable empty = {.run = empty_run};
    struct fw_job *job;
    uint64_t posted = 0;
    int64_t begin_ns = fw_clock_now_ns();
    for (; posted < WINDOW && posted < count; posted++) {
        post(&requests[posted], &empty, priority_draw(), FW_JOB_REJOINABLE);
    }
    while (fw_jobs_rejoin_wait(jobs, &requests, 0, FW_JOBS_FOREVER, &job) == FW_REJOIN_RETURNED) {
        if (posted < count) {
            post(job, &empty, priority_draw(), FW_JOB_REJOINABLE);
            posted++;
        }
    }
    return fw_clock_now_ns() - begin_ns;
}

/* Order. */

static void ranked_post(struct fw_job *job, struct fw_job_runnable *runnable)
{
    int32_t priority = priority_draw();
    atomic_fetch_add_explicit(&waiting[priority], 1, memory_order_relaxed);
    post(job, runnable, priority, 0);
}

static void ranked_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    uint64_t error = 0;
    atomic_fetch_sub_explicit(&waiting[job->priority], 1, memory_order_relaxed);
    for (int32_t p = job->priority + 1; p < PRIORITIES; p++) {
        error += (uint64_t)atomic_load_explicit(&waiting[p], memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&error_sum, error, memory_order_relaxed);
    uint64_t max = atomic_load_explicit(&error_max, memory_order_relaxed);
    while (error > max &&
           !atomic_compare_exchange_weak_explicit(&error_max, &max, error, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
    if (atomic_fetch_sub_explicit(&left, 1, memory_order_relaxed) > 0) {
        ranked_post(job, runnable); /* Nobody waits for it, so it is ours. */
    }
}

static void kernel_make(const struct fw_jobs_policy *policy)
{
    struct fw_jobs_reason reason;
    if (fw_jobs_create(&jobs, policy, &reason) != 0) {
        give_up(reason.text);
    }
}

static void kernel_start(void)
{
    struct fw_jobs_reason reason;
    if (fw_jobs_start(jobs, &reason) != 0) {
        give_up(reason.text);
    }
}

static void kernel_end(void)
{
    if (fw_jobs_stop(jobs, FW_JOBS_DRAIN, NULL) != 0) {
        give_up("cannot stop");
    }
    fw_jobs_destroy(jobs);
}

int main(int argc, char **argv)
{
    uint64_t hand, workers, count;
    struct fw_jobs_policy policy;
    static struct fw_job_runnable ranked = {.run = ranked_run};
    if (argc != 4 || fw_parse_uint(argv[1], strlen(argv[1]), 1, FW_JOBS_HAND_MAX, &hand) != 0 ||
        fw_parse_uint(argv[2], strlen(argv[2]), 1, FW_JOBS_WORKERS_MAX, &workers) != 0 ||
        fw_parse_uint(argv[3], strlen(argv[3]), WINDOW, UINT32_MAX, &count) != 0) {
        (void)fprintf(stderr, "usage: jobs_rank HAND WORKERS COUNT\n");
        return 2;
    }
    fw_jobs_policy_init(&policy);
    policy.workers = (uint32_t)workers;
    policy.slots = 2 * WINDOW;
    policy.mode = 0;
    memset(policy.lane_waits_for, 0, sizeof policy.lane_waits_for);
    policy.hand = (uint32_t)hand;
    kernel_make(&policy);
    kernel_start();
    (void)pipelined(count / 10 + 1); /* Warm. */
    int64_t taken_ns = pipelined(count);
    kernel_end();

    kernel_make(&policy);
    atomic_store(&left, (int64_t)count - WINDOW);
    for (uint32_t i = 0; i < WINDOW; i++) {
        ranked_post(&requests[i], &ranked);
    }
    kernel_start();
    kernel_end();
    (void)printf("{\"ns\": %.2f, \"mean\": %.3f, \"max\": %lu}\n", (double)taken_ns / (double)count,
                 (double)atomic_load(&error_sum) / (double)count,
                 (unsigned long)atomic_load(&error_max));
    return 0;
}
