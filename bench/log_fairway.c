/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our side of the log's benchmarks:
 *
 *     log_fairway call FILE BURSTS PAUSE_NS    what a call costs, see log_call.h
 *     log_fairway rate FILE LINES              two threads log LINES lines, none of them lost
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <fairway/log.h>

#include "base/parse.h"
#include "bench/log_call.h"

FW_LOG_MODULE(bench);

enum { THREADS = 2 };

static void burst(uint32_t thread, uint32_t number)
{
    for (uint32_t i = 0; i < LOG_CALL_BURST; i++) {
        FW_LOG(bench, NOTICE, "request %u of %u took %lu us", i, thread, (unsigned long)number);
    }
}

static uint64_t lines_each;

static void *rate_run(void *argument)
{
    uint32_t thread = *(uint32_t *)argument;
    for (uint64_t i = 0; i < lines_each; i++) {
        FW_LOG(bench, NOTICE, "request %u of %u took %lu us", (uint32_t)i, thread,
               (unsigned long)i);
    }
    return NULL;
}

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int rate(void)
{
    pthread_t threads[THREADS];
    uint32_t numbers[THREADS] = {0, 1};
    double begin_s = now_s();
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, rate_run, &numbers[i]) != 0) {
            return 2;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    fw_log_stop(); /* All of them are in the file now. */
    (void)printf("{\"lines\": %lu, \"seconds\": %.4f, \"lost\": %lu}\n",
                 (unsigned long)(THREADS * lines_each), now_s() - begin_s,
                 (unsigned long)fw_log_lost());
    return 0;
}

static int usage(void)
{
    (void)fprintf(stderr, "usage: log_fairway call FILE BURSTS PAUSE_NS | rate FILE LINES\n");
    return 2;
}

int main(int argc, char **argv)
{
    uint64_t count, pause_ns = 0;
    if (argc < 4 || fw_parse_uint(argv[3], strlen(argv[3]), 1, 1U << 30, &count) != 0) {
        return usage();
    }
    fw_log_set_policy(FW_LOG_BLOCK, FW_LOG_ERROR);
    if (fw_log_set_file(argv[2]) != 0 || fw_log_start(NULL) != 0) {
        (void)fprintf(stderr, "log_fairway: cannot log to %s\n", argv[2]);
        return 2;
    }
    int status = 2;
    if (strcmp(argv[1], "rate") == 0) {
        lines_each = count / THREADS;
        status = rate();
    } else if (strcmp(argv[1], "call") == 0 && argc == 5 &&
               fw_parse_uint(argv[4], strlen(argv[4]), 0, 1U << 30, &pause_ns) == 0) {
        status = log_call_measure(burst, (uint32_t)count, (int64_t)pause_ns);
    } else {
        status = usage();
    }
    fw_log_stop();
    return status;
}
