/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the peers of the job kernel share: NAME COUNT runs COUNT empty requests on one worker, with
 * at most PEER_WINDOW of them in flight, and prints nanoseconds on the wall per request. A pool
 * that hands nothing back is asked by a count that its worker raises.
 */
#pragma once

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PEER_WINDOW = 1024 };

static _Atomic uint64_t peer_done;

static inline int64_t peer_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline void peer_work(void)
{
    uint64_t done = atomic_load_explicit(&peer_done, memory_order_relaxed);
    atomic_store_explicit(&peer_done, done + 1, memory_order_release);
}

/* Until fewer than `in_flight` of those posted are not done. */
static inline void peer_wait(uint64_t posted, uint64_t in_flight)
{
    while (posted - atomic_load_explicit(&peer_done, memory_order_acquire) >= in_flight) {
        (void)sched_yield();
    }
}

/* Runs `post` COUNT times, after a tenth of it to warm up, and prints. */
static inline int peer_main(int argc, char **argv, void (*post)(void))
{
    uint64_t count = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
    if (count == 0) {
        (void)fprintf(stderr, "%s COUNT\n", argv[0]);
        return 2;
    }
    int64_t begin_ns = 0;
    uint64_t warm = count / 10;
    for (uint64_t posted = 0; posted < warm + count; posted++) {
        if (posted == warm) {
            peer_wait(posted, 1);
            begin_ns = peer_now_ns();
        }
        peer_wait(posted, PEER_WINDOW);
        post();
    }
    peer_wait(warm + count, 1);
    printf("%.2f\n", (double)(peer_now_ns() - begin_ns) / (double)count);
    return 0;
}
