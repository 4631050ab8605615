/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a recorded latency costs beside the least that any histogram can do: one addition to an
 * array, at a place that the value chooses. Both sides take the same latencies, spread over three
 * orders of magnitude around 30 us as those of a busy server are.
 */
#include <stdint.h>

#include "base/base.h"
#include "base/histogram.h"
#include "bench/harness.h"

enum { LATENCIES = 4096, ARRAY_SHIFT = 10, ARRAY_LENGTH = 2048 };

struct samples {
    uint64_t latency_ns[LATENCIES];
    struct fw_histogram histogram;
    uint64_t array[ARRAY_LENGTH];
};

static void samples_fill(struct samples *samples)
{
    uint64_t seed = 1;
    for (int i = 0; i < LATENCIES; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t octave = 10 + (seed >> 60) * 10 / 15;
        samples->latency_ns[i] = (UINT64_C(1) << octave) + (seed >> 32) % (UINT64_C(1) << octave);
    }
}

static void record_run(void *state, uint64_t count)
{
    struct samples *samples = state;
    for (uint64_t i = 0; i < count; i++) {
        fw_histogram_record(&samples->histogram, samples->latency_ns[i % LATENCIES]);
    }
}

static void array_run(void *state, uint64_t count)
{
    struct samples *samples = state;
    for (uint64_t i = 0; i < count; i++) {
        samples->array[samples->latency_ns[i % LATENCIES] >> ARRAY_SHIFT]++;
    }
}

int main(int argc, char **argv)
{
    static struct samples samples;
    samples_fill(&samples);
    const struct fw_bench benches[] = {{
        .name = "base-histogram",
        .unit = "ns per value recorded",
        .ours = {"fw_histogram_record", record_run, &samples},
        .peer = {"plain array increment", array_run, &samples},
        .bar = 4.0,
        .count = 20000000,
    }};
    return fw_bench_main(argc, argv, benches, FW_ARRAY_LENGTH(benches));
}
