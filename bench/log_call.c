/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/log_call.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 2, WARM_BURSTS = 50 };

struct caller {
    pthread_t thread;
    uint32_t number;
    uint32_t bursts;
    int64_t pause_ns;
    log_call_burst *burst;
    double *samples;
};

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* What the measurement itself adds to a burst. */
static int64_t clock_cost_ns(void)
{
    enum { READINGS = 1001 };
    int64_t least = INT64_MAX;
    for (int i = 0; i < READINGS; i++) {
        int64_t begin = now_ns();
        int64_t taken = now_ns() - begin;
        least = taken < least ? taken : least;
    }
    return least;
}

static void *caller_run(void *argument)
{
    struct caller *caller = argument;
    int64_t cost_ns = clock_cost_ns();
    for (uint32_t i = 0; i < WARM_BURSTS + caller->bursts; i++) {
        int64_t begin_ns = now_ns();
        caller->burst(caller->number, i);
        int64_t end_ns = now_ns();
        if (i >= WARM_BURSTS) {
            caller->samples[i - WARM_BURSTS] =
                (double)(end_ns - begin_ns - cost_ns) / LOG_CALL_BURST;
        }
        while (now_ns() < end_ns + caller->pause_ns) {
        }
    }
    return NULL;
}

static int ascending(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return left < right ? -1 : left > right;
}

int log_call_measure(log_call_burst *burst, uint32_t bursts, int64_t pause_ns)
{
    struct caller callers[THREADS];
    size_t count = (size_t)THREADS * bursts;
    double *samples = calloc(count, sizeof *samples);
    if (samples == NULL) {
        return 2;
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){.number = i,
                                     .bursts = bursts,
                                     .pause_ns = pause_ns,
                                     .burst = burst,
                                     .samples = samples + (size_t)i * bursts};
        if (pthread_create(&callers[i].thread, NULL, caller_run, &callers[i]) != 0) {
            return 2;
        }
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        (void)pthread_join(callers[i].thread, NULL);
    }
    qsort(samples, count, sizeof *samples, ascending);
    (void)printf("{\"median\": %.2f, \"p90\": %.2f, \"p99\": %.2f, \"calls\": %zu}\n",
                 samples[count / 2], samples[count * 9 / 10], samples[count * 99 / 100],
                 count * LOG_CALL_BURST);
    free(samples);
    return 0;
}
