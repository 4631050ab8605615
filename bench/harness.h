/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame of every micro-benchmark: two ways of doing the same thing, measured side by side.
 *
 *     static void wheel_run(void *state, uint64_t count) { ... count operations ... }
 *     static void heap_run(void *state, uint64_t count) { ... count operations ... }
 *     int main(int argc, char **argv)
 *     {
 *         const struct fw_bench bench = {.name = "base-wheel", .unit = "ns per operation",
 *             .ours = {"timer wheel", wheel_run, &wheel}, .peer = {"binary heap", heap_run, &heap},
 *             .bar = 1.0, .count = 1000000};
 *         return fw_bench_main(argc, argv, &bench, 1);
 *     }
 *
 * A figure alone says more about the machine than about the code, so only ratios are judged: ours
 * to a peer's (another structure, another library) or to a limit (the same work with nothing around
 * it, such as a bare memcpy), in the same process and the same minute. The two sides take turns,
 * and who goes first alternates, so that whatever drifts (frequency, heat, a neighbour) meets both.
 * The ratio is the median over the rounds of ours / peer within one round: a machine that is now
 * fast and now slow moves the two medians apart sooner than it moves the two halves of a round.
 *
 * What is measured is the CPU time of the calling thread, not the time on the wall: it does not
 * count the moments when somebody else had the processor. So a side must do its work on the thread
 * that called it; a comparison of several threads belongs into bench/suite/.
 *
 * Spread, here and in all of bench/: (p75 - p25) / median, and for a comparison that of the rounds'
 * ratios. A difference smaller than the spread is noise.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* One side of a comparison. `run` does `count` operations; what it needs was set up before. */
struct fw_bench_side {
    const char *name; /* Names and units are plain ASCII without quotes or backslashes. */
    void (*run)(void *state, uint64_t count);
    void *state;
};

struct fw_bench {
    const char *name; /* As bench/run knows it: "base-wheel"; with several, "base-wheel-expire". */
    const char *unit; /* "ns per operation". */
    struct fw_bench_side ours;
    struct fw_bench_side peer;
    double bar;     /* The ratio ours/peer that must not be exceeded. */
    uint64_t count; /* Operations per timed run; a run should take some milliseconds or more. */
    double bar_ns;  /* What ours must not exceed by itself; 0: nothing is said of that. */
};

/*
 * Runs each benchmark, prints a table for each and, as the last line, one JSON object: `bench`,
 * `ratio` (ours / peer), `better`, `peer`, `bar`, `ok`, `runs`, `spread`, `ours_ns`,
 * `peer_ns`, `unit`, `quick`. With several benchmarks the object is that of the one that uses most
 * of its bar, and `parts` lists all.
 *
 * Options: --runs N, at least 7; --only NAME, one of several; --quick, for trying out that it
 * works: a hundredth of the operations, 3 runs, any --runs, and no judgement in the exit status.
 *
 * Returns the exit status: 0, 1 if a bar was not met, 2 if the options are wrong.
 */
int fw_bench_main(int argc, char **argv, const struct fw_bench *bench, size_t bench_count);

/* The summary of one side's runs. Quartiles interpolate between the neighbouring runs. */
struct fw_bench_summary {
    double min;
    double p25;
    double median;
    double p75;
    double max;
    double spread; /* (p75 - p25) / median, 0 if the median is 0. */
};

/* Sorts `samples`; `count` > 0. */
void fw_bench_summarise(double samples[], size_t count, struct fw_bench_summary *summary);

/* A number below `sides`, which is less than 2^32. The same ones in each run, a row per file. */
static inline uint64_t fw_bench_roll(uint64_t sides)
{
    static uint64_t dice = UINT64_C(0x9e3779b97f4a7c15);
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (dice >> 32) * sides >> 32;
}

/* Makes the compiler believe that `value` is needed and that memory may have changed. */
static inline void fw_bench_use(uint64_t value)
{
    __asm__ volatile("" : : "r"(value) : "memory");
}
