/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same work on both sides. The true ratio is 1, so what this prints is the machine: run it
 * before you believe any other figure, and do not believe differences smaller than its spread.
 */
#include <stdint.h>

#include "bench/harness.h"

enum { WORDS = 1 << 15 }; /* 256 KiB: more than the first-level cache, so that neighbours show. */

static uint64_t words[WORDS];

/* A chain of dependent loads and multiplications, as in walking a table. */
static void walk_run(void *state, uint64_t count)
{
    uint64_t *position = state;
    uint64_t at = *position;
    for (uint64_t i = 0; i < count; i++) {
        at = (at ^ words[at % WORDS]) * 0x9e3779b97f4a7c15 + i;
    }
    *position = at;
    fw_bench_use(at);
}

int main(int argc, char **argv)
{
    for (uint32_t i = 0; i < WORDS; i++) {
        words[i] = i;
    }
    uint64_t ours = 1;
    uint64_t peer = 1;
    const struct fw_bench bench = {
        .name = "noise",
        .unit = "ns per step",
        .ours = {.name = "the same", .run = walk_run, .state = &ours},
        .peer = {.name = "the same", .run = walk_run, .state = &peer},
        .bar = 1.02,
        .count = 3000000,
    };
    return fw_bench_main(argc, argv, &bench, 1);
}
