/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a count costs: beside a plain increment, which no other thread may read, and beside a locked
 * addition, which is what it would take to share one counter among the localities.
 */
#include <stdatomic.h>
#include <stdint.h>

#include "base/base.h"
#include "base/metrics.h"
#include "bench/harness.h"

/* As many as a request touches; one alone would measure how fast a store becomes loadable. */
enum { COUNTERS = 8 };

static struct fw_counter counters[COUNTERS];
static uint64_t plain[COUNTERS];
static _Atomic uint64_t locked[COUNTERS];

static void counter_run(void *state, uint64_t count)
{
    struct fw_counter *of = state;
    for (uint64_t i = 0; i < count; i++) {
        fw_counter_increment(&of[i % COUNTERS]);
        fw_bench_use(i);
    }
}

static void plain_run(void *state, uint64_t count)
{
    uint64_t *of = state;
    for (uint64_t i = 0; i < count; i++) {
        of[i % COUNTERS]++;
        fw_bench_use(i); /* Or the compiler would add once for all. */
    }
}

static void locked_run(void *state, uint64_t count)
{
    _Atomic uint64_t *of = state;
    for (uint64_t i = 0; i < count; i++) {
        atomic_fetch_add_explicit(&of[i % COUNTERS], 1, memory_order_relaxed);
        fw_bench_use(i);
    }
}

int main(int argc, char **argv)
{
    const struct fw_bench benches[] = {
        {
            .name = "base-metrics-plain",
            .unit = "ns per increment",
            .ours = {"fw_counter_increment", counter_run, counters},
            .peer = {"plain increment", plain_run, plain},
            .bar = 1.3,
            .count = 20000000,
        },
        {
            .name = "base-metrics-locked",
            .unit = "ns per increment",
            .ours = {"fw_counter_increment", counter_run, counters},
            .peer = {"locked addition", locked_run, locked},
            .bar = 0.5,
            .count = 20000000,
        },
    };
    return fw_bench_main(argc, argv, benches, FW_ARRAY_LENGTH(benches));
}
