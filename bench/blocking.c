/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three ways for a fom to make a call that blocks, under one workload:
 *
 *   bracket     fw_block_enter(), the call, fw_block_leave(): another thread runs the core
 * meanwhile. one pool    fw_fom_offload() to one job kernel for the whole domain. own pools
 * fw_fom_offload() to a job kernel for each locality.
 *
 * Requests, more of them than there are threads for, compute for a few microseconds, make the call,
 * and begin anew. Beside them run foms that never block, and measure how long a trip through the
 * run-queue takes: the price that others pay. Two kinds of call: one that sleeps, as a disk or a
 * database would, and one that returns at once, as a file system call does whose data is cached.
 *
 * It prints a table, which docs/blocking.md explains, and as the last line a JSON object. The bar
 * is that none of the three makes the others' p99 worse than three times what it is without any
 * call.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fairway/engine.h>
#include <fairway/jobs.h>

#include "base/assert.h"
#include "base/base.h"
#include "base/histogram.h"
#include "base/thread.h"
#include "bench/harness.h"
#include "io/clock.h"

enum {
    LOCALITIES = 2,
    REQUESTS = 200,
    OTHERS = 20,
    THREADS = 32, /* That may be blocked at a time, whichever way. */
    SLEEP_NS = 200 * 1000,
    WORK_LOOPS = 5000,
    MEASURE_MS = 1000,
};

enum way { WAY_NONE, WAY_BRACKET, WAY_POOL, WAY_POOLS, WAYS };
enum kind { KIND_SLEEP, KIND_CACHED, KINDS };

static const char *const way_names[WAYS] = {"no calls", "bracket", "one pool", "own pools"};
static const char *const kind_names[KINDS] = {"sleeps 200 us", "returns at once"};

static struct {
    enum way way;
    enum kind kind;
    struct fw_jobs *jobs[LOCALITIES];
    int fd;
    atomic_bool stop;
    _Atomic uint64_t calls;
    struct fw_histogram trips[LOCALITIES];
} bench;

enum { COMPUTE = FW_PHASE_FIRST, CALL, CALLED };

/* What fw_fom_offload() is given here: the work with the request that carries it. */
struct call {
    struct fw_offload work;
    struct fw_job job;
};

struct request {
    struct fw_fom fom;
    struct call call;
};

static void compute(void)
{
    for (uint64_t i = 0; i < WORK_LOOPS; i++) {
        fw_bench_use(i);
    }
}

static void call_that_blocks(void)
{
    if (bench.kind == KIND_SLEEP) {
        struct fw_parker parker;
        fw_parker_init(&parker);
        (void)fw_park_for(&parker, SLEEP_NS);
    } else {
        char bytes[512];
        ssize_t got = pread(bench.fd, bytes, sizeof bytes, 0);
        FW_ASSERT(got >= 0);
    }
}

static void call_run(struct fw_offload *work)
{
    (void)work;
    call_that_blocks();
}

static enum fw_step request_bracket(struct fw_fom *fom)
{
    if (!fw_block_enter(fom)) {
        return fw_fom_wait(fom, CALL);
    }
    call_that_blocks();
    fw_block_leave(fom);
    return fw_fom_goto(fom, CALLED);
}

static enum fw_step request_offload(struct fw_fom *fom)
{
    struct call *call = &FW_FOM_OF(fom, struct request)->call;
    call->work.run = call_run;
    int rc = fw_fom_offload(fom, &call->work);
    FW_ASSERT(rc == 0);
    return fw_fom_wait(fom, CALLED);
}

static enum fw_step request_call(struct fw_fom *fom)
{
    if (bench.way == WAY_NONE) {
        return fw_fom_yield(fom, CALLED);
    }
    return bench.way == WAY_BRACKET ? request_bracket(fom) : request_offload(fom);
}

static enum fw_step request_tick(struct fw_fom *fom)
{
    struct request *self = FW_FOM_OF(fom, struct request);
    switch (fom->phase) {
    case COMPUTE:
        if (atomic_load_explicit(&bench.stop, memory_order_relaxed)) {
            return fw_fom_finish(fom);
        }
        compute();
        return fw_fom_goto(fom, CALL);
    case CALL:
        return request_call(fom);
    case FW_PHASE_FAILED: /* The domain stops. */
        return fw_fom_finish(fom);
    default:
        if (bench.way >= WAY_POOL && !atomic_load(&self->call.work.is_done)) {
            return fw_fom_wait(fom, CALLED);
        }
        atomic_fetch_add_explicit(&bench.calls, 1, memory_order_relaxed);
        return fw_fom_yield(fom, COMPUTE);
    }
}

struct other {
    struct fw_fom fom;
    int64_t began;
};

static enum fw_step other_tick(struct fw_fom *fom)
{
    struct other *self = FW_FOM_OF(fom, struct other);
    int64_t now = fw_clock_now_ns();
    if (self->began != 0) {
        struct fw_histogram *trips = &bench.trips[fom->locality];
        fw_histogram_record(trips, (uint64_t)(now - self->began));
    }
    self->began = now;
    compute();
    bool is_over = atomic_load_explicit(&bench.stop, memory_order_relaxed);
    return is_over ? fw_fom_finish(fom) : fw_fom_yield(fom, COMPUTE);
}

#define NEXT(phase) FW_PHASE_BIT(phase) | FW_PHASE_BIT(FW_PHASE_FINISHED)

static const struct fw_phase phases[] = {
    {"COMPUTE", NEXT(CALL), true},
    {"CALL", NEXT(CALLED), true},
    {"CALLED", NEXT(COMPUTE), true},
};

static const struct fw_fom_type request_type = {
    .name = "request",
    .size = sizeof(struct request),
    .limit_count = REQUESTS,
    .phases = phases,
    .phase_count = FW_ARRAY_LENGTH(phases),
    .tick = request_tick,
};

static const struct fw_fom_type other_type = {
    .name = "other",
    .size = sizeof(struct other),
    .limit_count = OTHERS,
    .phases = phases,
    .phase_count = FW_ARRAY_LENGTH(phases),
    .tick = other_tick,
};

static void job_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    fw_offload_run(&FW_CONTAINER_OF(job, struct call, job)->work);
}

static struct fw_job_runnable runnable = {.run = job_run};

static int offload(void *context, struct fw_offload *work)
{
    (void)context;
    struct call *call = FW_CONTAINER_OF(work, struct call, work);
    uint32_t locality = bench.way == WAY_POOLS ? work->ticket.fom->locality : 0;
    memset(&call->job, 0, sizeof call->job);
    return fw_jobs_post(bench.jobs[locality], &call->job, &runnable, NULL, 0, FW_JOB_PART);
}

static void jobs_begin(void)
{
    uint32_t count = bench.way == WAY_POOLS ? LOCALITIES : bench.way == WAY_POOL ? 1 : 0;
    for (uint32_t i = 0; i < LOCALITIES; i++) {
        bench.jobs[i] = NULL;
        if (i >= count) {
            continue;
        }
        struct fw_jobs_policy policy;
        fw_jobs_policy_init(&policy);
        policy.workers = THREADS / count;
        int rc = fw_jobs_create(&bench.jobs[i], &policy, NULL);
        FW_ASSERT(rc == 0);
        rc = fw_jobs_start(bench.jobs[i], NULL);
        FW_ASSERT(rc == 0);
    }
}

static void jobs_end(void)
{
    for (uint32_t i = 0; i < LOCALITIES; i++) {
        if (bench.jobs[i] != NULL) {
            int rc = fw_jobs_stop(bench.jobs[i], FW_JOBS_DRAIN, NULL);
            FW_ASSERT(rc == 0);
            fw_jobs_destroy(bench.jobs[i]);
        }
    }
}

static uint32_t count_threads(void)
{
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/task");
    FW_ASSERT(folder != NULL);
    while (readdir(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count - 2;
}

struct figures {
    double calls_per_s;
    double cpu_us;   /* Per call. */
    double switches; /* Voluntary, per call. */
    double p50_us, p99_us;
    uint32_t threads;
};

static double cpu_us(const struct rusage *usage)
{
    return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1e6 +
           (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

static void start(struct fw_domain *domain, const struct fw_fom_type *type, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct fw_fom *fom;
        int rc = fw_fom_create(&fom, domain, type, fw_domain_locality(domain, i % LOCALITIES));
        FW_ASSERT(rc == 0);
        fw_fom_start(fom);
    }
}

static struct figures measure(enum way way, enum kind kind, int64_t measure_ms)
{
    bench.way = way;
    bench.kind = kind;
    atomic_store(&bench.stop, false);
    atomic_store(&bench.calls, 0);
    for (uint32_t i = 0; i < LOCALITIES; i++) {
        fw_histogram_init(&bench.trips[i]);
    }
    jobs_begin();
    struct fw_domain_config config = {
        .locality_count = LOCALITIES, .bracket_limit = THREADS, .offload = offload};
    struct fw_domain *domain;
    int rc = fw_domain_create(&domain, &config);
    FW_ASSERT(rc == 0);
    rc = fw_domain_add_type(domain, &request_type);
    FW_ASSERT(rc == 0);
    rc = fw_domain_add_type(domain, &other_type);
    FW_ASSERT(rc == 0);
    rc = fw_domain_start(domain);
    FW_ASSERT(rc == 0);
    start(domain, &other_type, OTHERS);
    start(domain, &request_type, REQUESTS);
    struct rusage before, after;
    (void)getrusage(RUSAGE_SELF, &before);
    struct fw_parker parker;
    fw_parker_init(&parker);
    (void)fw_park_for(&parker, measure_ms * FW_NS_PER_MS);
    struct figures figures = {.threads = count_threads()};
    double calls = (double)atomic_load(&bench.calls);
    (void)getrusage(RUSAGE_SELF, &after);
    atomic_store(&bench.stop, true);
    (void)fw_domain_stop(domain, INT64_MAX / 2);
    fw_domain_destroy(domain);
    jobs_end();
    fw_histogram_merge(&bench.trips[0], &bench.trips[1]);
    figures.calls_per_s = calls * 1000 / (double)measure_ms;
    figures.cpu_us = (cpu_us(&after) - cpu_us(&before)) / calls;
    figures.switches = (double)(after.ru_nvcsw - before.ru_nvcsw) / calls;
    figures.p50_us = (double)fw_histogram_percentile(&bench.trips[0], 50) / 1000;
    figures.p99_us = (double)fw_histogram_percentile(&bench.trips[0], 99) / 1000;
    return figures;
}

int main(int argc, char **argv)
{
    bool is_quick = argc > 1 && strcmp(argv[argc - 1], "--quick") == 0;
    int64_t measure_ms = is_quick ? MEASURE_MS / 10 : MEASURE_MS;
    bench.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    FW_ASSERT(bench.fd >= 0);
    double worst = 0;
    for (enum kind kind = 0; kind < KINDS; kind++) {
        (void)printf("a call that %s; %d requests, %d others, %d threads that may block\n",
                     kind_names[kind], REQUESTS, OTHERS, THREADS);
        (void)printf("  %-10s %12s %12s %14s %12s %12s %9s\n", "", "calls per s", "CPU us/call",
                     "switches/call", "others p50", "others p99", "threads");
        double without = 0;
        for (enum way way = 0; way < WAYS; way++) {
            struct figures figures = measure(way, kind, measure_ms);
            (void)printf("  %-10s %12.0f %12.2f %14.2f %9.0f us %9.0f us %9u\n", way_names[way],
                         figures.calls_per_s, figures.cpu_us, figures.switches, figures.p50_us,
                         figures.p99_us, figures.threads);
            without = way == WAY_NONE ? figures.p99_us : without;
            double ratio = figures.p99_us / without;
            worst = ratio > worst ? ratio : worst;
        }
        (void)printf("\n");
    }
    (void)printf(
        "{\"bench\": \"engine-blocking\", \"ratio\": %.4f, \"better\": \"lower\", \"peer\": "
        "\"the others' p99 without calls\", \"bar\": 3.0, \"ok\": %s, \"runs\": 1, "
        "\"spread\": 0.0, \"quick\": %s}\n",
        worst, worst <= 3 ? "true" : "false", is_quick ? "true" : "false");
    return 0;
}
