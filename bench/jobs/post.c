/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Empty requests through a pool of one worker: jobs_post SIDE COUNT [WAITING]
 *
 * The producer keeps WINDOW requests in flight: it hands them in, the worker runs them (it adds one
 * to a number), and the producer takes them back. Prints nanoseconds on the wall per request, from
 * the first post to the last rejoin. A pool that does not hand requests back is given the same by
 * its own means: a count that the worker raises and the producer reads.
 *
 * SIDE: jobs; jobs-relaxed, whose worker takes as many at once as it may; jobs-timing, with
 * latencies measured; jobs-wake, where the producer waits for each request before it posts the
 * next, so that the worker sleeps; jobs-ageing, where WAITING more requests wait with ageing on
 * while COUNT of them are dispatched; jobs-mixed, where COUNT requests compute or use a device on
 * WAITING active workers of MIXED_WORKERS, or for 0 on as many as the kernel finds best.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <fairway/jobs.h>

#include "base/base.h"
#include "base/mutex.h"
#include "base/parse.h"
#include "base/thread.h"
#include "io/clock.h"

enum { WINDOW = 1024 };

static uint64_t work_done; /* The worker's. */

static void empty_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    (void)job;
    work_done++;
}
static struct fw_job_runnable empty = {.run = empty_run};

_Noreturn static void give_up(const char *what)
{
    (void)fprintf(stderr, "jobs_post: %s\n", what);
    exit(1);
}

static struct fw_jobs *kernel_start(struct fw_jobs_policy *policy)
{
    struct fw_jobs *jobs;
    struct fw_jobs_reason reason;
    if (fw_jobs_create(&jobs, policy, &reason) != 0 || fw_jobs_start(jobs, &reason) != 0) {
        give_up(reason.text);
    }
    return jobs;
}

static void kernel_end(struct fw_jobs *jobs)
{
    if (fw_jobs_stop(jobs, FW_JOBS_DRAIN, NULL) != 0) {
        give_up("cannot stop");
    }
    fw_jobs_destroy(jobs);
}

static void policy_one_worker(struct fw_jobs_policy *policy)
{
    fw_jobs_policy_init(policy);
    policy->workers = 1;
    policy->slots = 2 * WINDOW;
    policy->mode = 0;
    memset(policy->lane_waits_for, 0, sizeof policy->lane_waits_for);
}

static void post(struct fw_jobs *jobs, struct fw_job *job, int32_t priority)
{
    if (fw_jobs_post(jobs, job, &empty, &empty, priority, FW_JOB_REJOINABLE) != 0) {
        give_up("a post was refused");
    }
}

static void pipelined(struct fw_jobs *jobs, uint64_t count)
{
    static struct fw_job requests[WINDOW];
    struct fw_job *job;
    uint64_t posted = 0, back = 0;
    for (; posted < WINDOW && posted < count; posted++) {
        post(jobs, &requests[posted], 0);
    }
    while (back < count) {
        enum fw_rejoin answer = fw_jobs_rejoin(jobs, &empty, &job);
        if (answer == FW_REJOIN_NONE_READY) {
            answer = fw_jobs_rejoin_wait(jobs, &empty, 0, FW_JOBS_FOREVER, &job);
        }
        if (answer != FW_REJOIN_RETURNED) {
            give_up("a request was lost");
        }
        back++;
        if (posted < count) {
            post(jobs, job, 0);
            posted++;
        }
    }
}

static int64_t run_jobs(uint64_t count, uint32_t hand, bool timing)
{
    struct fw_jobs_policy policy;
    policy_one_worker(&policy);
    policy.timing = timing;
    policy.hand = hand;
    struct fw_jobs *jobs = kernel_start(&policy);
    pipelined(jobs, count / 10 + 1); /* Warm. */
    int64_t begin_ns = fw_clock_now_ns();
    pipelined(jobs, count);
    int64_t taken_ns = fw_clock_now_ns() - begin_ns;
    kernel_end(jobs);
    return taken_ns;
}

static int64_t side_jobs(uint64_t count, uint64_t waiting)
{
    (void)waiting;
    return run_jobs(count, 1, false);
}

static int64_t side_relaxed(uint64_t count, uint64_t waiting)
{
    (void)waiting;
    return run_jobs(count, FW_JOBS_HAND_MAX, false);
}

static int64_t side_timing(uint64_t count, uint64_t waiting)
{
    (void)waiting;
    return run_jobs(count, 1, true);
}

static int64_t side_wake(uint64_t count, uint64_t waiting)
{
    (void)waiting;
    struct fw_jobs_policy policy;
    policy_one_worker(&policy);
    policy.idle_spins = 0;
    struct fw_jobs *jobs = kernel_start(&policy);
    struct fw_job job = {0};
    struct fw_job *back;
    int64_t begin_ns = fw_clock_now_ns();
    for (uint64_t i = 0; i < count; i++) {
        post(jobs, &job, 0);
        if (fw_jobs_rejoin_wait(jobs, &empty, 0, FW_JOBS_FOREVER, &back) != FW_REJOIN_RETURNED) {
            give_up("a request was lost");
        }
    }
    int64_t taken_ns = fw_clock_now_ns() - begin_ns;
    kernel_end(jobs);
    return taken_ns;
}

static int64_t thread_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * FW_NS_PER_S + now.tv_nsec;
}

/* The worker's processor time, from the first of COUNT dispatches to the last, while WAITING wait.
 */
static _Atomic uint64_t ageing_left;
static int64_t ageing_begin_ns;
static int64_t ageing_taken_ns;
static struct fw_parker ageing_over;

static void ageing_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    (void)job;
    uint64_t left = atomic_load_explicit(&ageing_left, memory_order_relaxed);
    if (left == 0) {
        return;
    }
    if (ageing_begin_ns == 0) {
        ageing_begin_ns = thread_now_ns();
    }
    atomic_store_explicit(&ageing_left, left - 1, memory_order_relaxed);
    if (left == 1) {
        ageing_taken_ns = thread_now_ns() - ageing_begin_ns;
        fw_unpark(&ageing_over);
    }
}

static int64_t side_ageing(uint64_t count, uint64_t waiting)
{
    static struct fw_job_runnable runnable = {.run = ageing_run};
    struct fw_jobs_policy policy;
    policy_one_worker(&policy);
    policy.slots = (uint32_t)(count + waiting);
    policy.ageing = true;
    policy.boosting = true;
    policy.boost = 1;
    policy.ageing_interval_ns = INT64_C(10) * FW_NS_PER_MS;
    struct fw_jobs *jobs;
    struct fw_jobs_reason reason;
    struct fw_job *requests = calloc(count + waiting, sizeof *requests);
    if (requests == NULL || fw_jobs_create(&jobs, &policy, &reason) != 0) {
        give_up("cannot create the kernel");
    }
    fw_parker_init(&ageing_over);
    atomic_store(&ageing_left, count);
    for (uint64_t i = 0; i < count + waiting; i++) {
        if (fw_jobs_post(jobs, &requests[i], &runnable, &requests[i % 64], (int32_t)(i * 37 % 256),
                         i % 4 == 0 ? FW_JOB_BOOST : 0) != 0) {
            give_up("a post was refused");
        }
    }
    if (fw_jobs_start(jobs, &reason) != 0) {
        give_up(reason.text);
    }
    fw_park(&ageing_over);
    kernel_end(jobs);
    free(requests);
    return ageing_taken_ns;
}

/*
 * A mixed load: one request of MIXED_KINDS computes, holding a lock for a part of it, and the
 * others use a device. That is as fast for DEVICE_DEPTH at a time as for one, and slower for more:
 * beyond, each takes longer by the square of how many there are, as of a disk that has to seek. So
 * the best number of workers is well between one and all, and hardly any of it is processor time: a
 * machine that has something else to do too moves all settings alike.
 */
enum { MIXED_WORKERS = 32, MIXED_KINDS = 4, MIXED_WORK = 20000 };
enum { DEVICE_DEPTH = 8, DEVICE_FULL = DEVICE_DEPTH * DEVICE_DEPTH, DEVICE_NS = 2000000 };
/* The search has 30 windows: of 8 samples, and one between two of them. */
enum { MIXED_REVIEW_NS = 10000000 };
#define MIXED_SEARCH_NS ((int64_t)30 * 9 * MIXED_REVIEW_NS)
static struct fw_mutex mixed_lock = FW_MUTEX_INITIALIZER(FW_RANK_METRICS);
static _Atomic uint32_t device_users;
static _Atomic uint32_t mixed_number;

static uint64_t compute(uint64_t steps)
{
    uint64_t value = steps;
    for (uint64_t i = 0; i < steps; i++) {
        value = value * UINT64_C(6364136223846793005) + 1;
        __asm__ volatile("" : "+r"(value));
    }
    return value;
}

static void device_use(void)
{
    struct fw_parker parker;
    fw_parker_init(&parker);
    int64_t users = (int64_t)atomic_fetch_add(&device_users, 1) + 1;
    int64_t excess = users > DEVICE_DEPTH ? users : DEVICE_DEPTH;
    (void)fw_park_for(&parker, DEVICE_NS * excess * excess / DEVICE_FULL);
    atomic_fetch_sub(&device_users, 1);
}

static void mixed_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    (void)job;
    if (atomic_fetch_add(&mixed_number, 1) % MIXED_KINDS != 0) {
        device_use();
        return;
    }
    (void)compute(MIXED_WORK);
    fw_mutex_lock(&mixed_lock);
    (void)compute(MIXED_WORK / 10);
    fw_mutex_unlock(&mixed_lock);
}

static void mixed_batch(struct fw_jobs *jobs, struct fw_job *requests, uint64_t count)
{
    static struct fw_job_runnable runnable = {.run = mixed_run};
    struct fw_job *back;
    for (uint64_t i = 0; i < count; i++) {
        if (fw_jobs_post(jobs, &requests[i], &runnable, requests, 0,
                         FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY) != 0) {
            give_up("a post was refused");
        }
    }
    while (fw_jobs_rejoin_wait(jobs, requests, 0, FW_JOBS_FOREVER, &back) == FW_REJOIN_RETURNED) {
    }
}

static int64_t side_mixed(uint64_t count, uint64_t active)
{
    struct fw_jobs_policy policy;
    policy_one_worker(&policy);
    policy.workers = MIXED_WORKERS;
    policy.workers_active = active > 0 ? (uint32_t)active : 1;
    policy.autonomic = active == 0;
    policy.review_interval_ns = MIXED_REVIEW_NS;
    struct fw_jobs *jobs = kernel_start(&policy);
    struct fw_job *requests = calloc(count, sizeof *requests);
    if (requests == NULL) {
        give_up("no memory");
    }
    int64_t begin_ns = fw_clock_now_ns();
    do { /* A fixed number has nothing to search for, and is only warm then. */
        mixed_batch(jobs, requests, active > 0 ? count / 10 + 1 : count / 4 + 1);
    } while (active == 0 && fw_clock_now_ns() - begin_ns < MIXED_SEARCH_NS);
    begin_ns = fw_clock_now_ns();
    mixed_batch(jobs, requests, count);
    int64_t taken_ns = fw_clock_now_ns() - begin_ns;
    kernel_end(jobs);
    free(requests);
    return taken_ns;
}

static const struct side {
    const char *name;
    int64_t (*run)(uint64_t count, uint64_t waiting); /* Nanoseconds. */
} sides[] = {
    {"jobs", side_jobs},      {"jobs-relaxed", side_relaxed}, {"jobs-timing", side_timing},
    {"jobs-wake", side_wake}, {"jobs-ageing", side_ageing},   {"jobs-mixed", side_mixed},
};

int main(int argc, char **argv)
{
    uint64_t count, waiting = 0;
    if (argc < 3 || argc > 4 || fw_parse_uint(argv[2], strlen(argv[2]), 1, 1 << 23, &count) != 0 ||
        (argc == 4 && fw_parse_uint(argv[3], strlen(argv[3]), 0, 1 << 23, &waiting) != 0)) {
        (void)fprintf(stderr, "jobs_post SIDE COUNT [WAITING]\n");
        return 2;
    }
    for (size_t i = 0; i < FW_ARRAY_LENGTH(sides); i++) {
        if (strcmp(sides[i].name, argv[1]) == 0) {
            int64_t taken_ns = sides[i].run(count, waiting);
            printf("%.2f\n", (double)taken_ns / (double)count);
            return 0;
        }
    }
    (void)fprintf(stderr, "jobs_post: there is no side '%s' in this build\n", argv[1]);
    return 3;
}
