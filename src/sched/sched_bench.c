/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What scheduling adds to a request: nothing waits, and it goes straight through; a hundred wait.
 * Beside a list of the same requests that somebody pushes and pops, which orders nothing.
 */
#include <stdint.h>

#include <fairway/sched.h>

#include "base/base.h"
#include "base/list.h"
#include "bench/harness.h"

enum { WAITING = 100 };

static struct fw_sched sched;
static struct fw_sched_request requests[WAITING + 1];
static struct fw_sched_getter getter;
static struct fw_sched_request *served;
static struct fw_list list;

static int getter_ready(struct fw_sched_getter *self, struct fw_sched_request *request)
{
    (void)self;
    served = request;
    return 0;
}

static void straight_run(void *state, uint64_t count)
{
    struct fw_sched_request *request = state;
    for (uint64_t i = 0; i < count; i++) {
        fw_sched_get_next(&sched, &getter);
        fw_sched_incoming(&sched, request);
        fw_bench_use((uint64_t)(uintptr_t)served);
    }
}

/* So many wait all the time: who was served comes again, behind the others. */
static void waiting_run(void *state, uint64_t count)
{
    (void)state;
    for (uint32_t i = 0; i < WAITING; i++) {
        fw_sched_incoming(&sched, &requests[i]);
    }
    for (uint64_t i = 0; i < count; i++) {
        fw_sched_get_next(&sched, &getter);
        fw_sched_incoming(&sched, served);
    }
    for (uint32_t i = 0; i < WAITING; i++) {
        fw_sched_get_next(&sched, &getter);
    }
}

static void list_run(void *state, uint64_t count)
{
    (void)state;
    for (uint32_t i = 0; i < WAITING; i++) {
        fw_list_push_back(&list, &requests[i].link);
    }
    for (uint64_t i = 0; i < count; i++) {
        struct fw_list_link *link = fw_list_pop_front(&list);
        fw_bench_use((uint64_t)(uintptr_t)link);
        fw_list_push_back(&list, link);
    }
    while (fw_list_pop_front(&list) != NULL) {
    }
}

int main(int argc, char **argv)
{
    fw_list_init(&list);
    getter.ready = getter_ready;
    if (fw_sched_init(&sched, &(struct fw_sched_config){.policy = FW_SCHED_FIFO}) != 0) {
        return 1;
    }
    const struct fw_bench benches[] = {
        {
            .name = "sched-sched-straight",
            .unit = "ns per request",
            .ours = {"nothing waits", straight_run, &requests[WAITING]},
            .peer = {"a list", list_run, NULL},
            .bar = 10,
            .bar_ns = 10,
            .count = 5000000,
        },
        {
            .name = "sched-sched-fifo",
            .unit = "ns per request",
            .ours = {"100 wait", waiting_run, NULL},
            .peer = {"a list", list_run, NULL},
            .bar = 20,
            .bar_ns = 60,
            .count = 5000000,
        },
    };
    return fw_bench_main(argc, argv, benches, FW_ARRAY_LENGTH(benches));
}
