/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For benchmarks of two threads, which must not share a core: each takes one half of those there
 * are. On a machine with one core one of them is left where it was.
 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* Keeps the calling thread to the odd or the even ones of `cores`, which are all we may use. */
static inline void fw_bench_take_half(const cpu_set_t *cores, bool odd)
{
    cpu_set_t half;
    CPU_ZERO(&half);
    for (size_t core = odd; core < CPU_SETSIZE; core += 2) {
        if (CPU_ISSET(core, cores)) {
            CPU_SET(core, &half);
        }
    }
    (void)sched_setaffinity(0, sizeof half, &half);
}
