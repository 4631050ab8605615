/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks of OpenMP, with two threads: one makes them, the other runs them, and so does the first
 * when there are many. It keeps no strict priorities.
 */
#include "bench/jobs/peer.h"

static _Atomic uint64_t tasks_done;

static void run_all(uint64_t count)
{
#pragma omp parallel num_threads(2)
#pragma omp single
    for (uint64_t i = 0; i < count; i++) {
#pragma omp task
        atomic_fetch_add_explicit(&tasks_done, 1, memory_order_relaxed);
    }
}

int main(int argc, char **argv)
{
    uint64_t count = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
    if (count == 0) {
        (void)fprintf(stderr, "%s COUNT\n", argv[0]);
        return 2;
    }
    run_all(count / 10 + 1);
    int64_t begin_ns = peer_now_ns();
    run_all(count);
    printf("%.2f\n", (double)(peer_now_ns() - begin_ns) / (double)count);
    return 0;
}
