/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks of OpenMP, with two threads: one makes them, the other runs them. It keeps no strict
 * priorities. jobs_gomp COUNT [IN_FLIGHT]
 *
 * libgomp has no queue of 1,024: beyond 64 tasks per thread, which is 128, it does not hand a task
 * over at all but calls its function on the spot, in the thread that made it. That is fast, and no
 * longer what a pool of threads does. With IN_FLIGHT the maker waits before it would come to that,
 * so that every task is run by the other thread.
 *
 * Prints nanoseconds per task, and on stderr how many of a hundred the maker has run itself.
 */
#include "bench/jobs/peer.h"

#include <omp.h>

static _Atomic uint64_t tasks_done;
static _Atomic uint64_t tasks_by_maker;

static void task_run(void)
{
    if (omp_get_thread_num() == 0) {
        atomic_fetch_add_explicit(&tasks_by_maker, 1, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&tasks_done, 1, memory_order_relaxed);
}

static void run_all(uint64_t count, uint64_t in_flight)
{
    atomic_store(&tasks_done, 0);
    atomic_store(&tasks_by_maker, 0);
#pragma omp parallel num_threads(2)
#pragma omp master
    for (uint64_t i = 0; i < count; i++) {
        while (i - atomic_load_explicit(&tasks_done, memory_order_relaxed) >= in_flight) {
            (void)sched_yield();
        }
#pragma omp task
        task_run();
    }
}

int main(int argc, char **argv)
{
    uint64_t count = argc >= 2 ? strtoull(argv[1], NULL, 10) : 0;
    uint64_t in_flight = argc >= 3 ? strtoull(argv[2], NULL, 10) : UINT64_MAX;
    if (count == 0 || in_flight == 0) {
        (void)fprintf(stderr, "%s COUNT [IN_FLIGHT]\n", argv[0]);
        return 2;
    }
    run_all(count / 10 + 1, in_flight);
    int64_t begin_ns = peer_now_ns();
    run_all(count, in_flight);
    printf("%.2f\n", (double)(peer_now_ns() - begin_ns) / (double)count);
    (void)fprintf(stderr, "%.1f\n",
                  100 * (double)atomic_load(&tasks_by_maker) / (double)atomic_load(&tasks_done));
    return 0;
}
