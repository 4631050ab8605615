/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What it costs to free one object and allocate another while many live, as a server does with
 * connections and requests. Peer: malloc() and free() of the C library, which serve any size and
 * any thread; the pool must be worth its narrower promise.
 *
 *   base-pool        one of 10,000 live objects, chosen at random, is replaced, and its first bytes
 *                    are written. The best case of malloc's cache per thread: what was just freed
 *                    is taken again.
 *   base-pool-burst  16 objects are allocated and then freed, as a batch of requests does. That is
 *                    more than malloc's cache keeps of one size by default.
 */
#include "base/pool.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "bench/harness.h"

enum { LIVE = 10000, BURST = 16, OBJECT_SIZE = 256 };

static struct fw_pool pool;
static uint64_t *objects[2][LIVE]; /* Ours and malloc's. */

static void *ours_alloc(void)
{
    return fw_pool_alloc(&pool);
}

static void ours_free(void *object)
{
    fw_pool_free(&pool, object);
}

static void *peer_alloc(void)
{
    return malloc(OBJECT_SIZE);
}

static void peer_free(void *object)
{
    free(object);
}

/* One side: its two functions and the objects it has out. */
struct side {
    void *(*alloc)(void);
    void (*free)(void *object);
    uint64_t **live;
};

static uint64_t *side_alloc(const struct side *side)
{
    uint64_t *object = side->alloc();
    FW_ASSERT(object != NULL);
    *object = 1;
    return object;
}

static void side_fill(const struct side *side)
{
    for (int i = 0; i < LIVE; i++) {
        side->live[i] = side_alloc(side);
    }
}

static void side_empty(const struct side *side)
{
    for (int i = 0; i < LIVE; i++) {
        side->free(side->live[i]);
    }
}

static void replace_run(void *state, uint64_t count)
{
    const struct side *side = state;
    uint64_t dice = 0x9e3779b97f4a7c15u;
    for (uint64_t i = 0; i < count; i++) {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        uint64_t **chosen = &side->live[(dice >> 32) * LIVE >> 32];
        side->free(*chosen);
        *chosen = side_alloc(side);
    }
}

static void burst_run(void *state, uint64_t count)
{
    const struct side *side = state;
    uint64_t *burst[BURST];
    for (uint64_t done = 0; done < count; done += BURST) {
        for (int i = 0; i < BURST; i++) {
            burst[i] = side_alloc(side);
        }
        for (int i = 0; i < BURST; i++) {
            side->free(burst[i]);
        }
    }
}

int main(int argc, char **argv)
{
    if (fw_pool_init(&pool, OBJECT_SIZE, 8, 8, LIVE + BURST) != 0) {
        (void)fprintf(stderr, "the pool refuses a limit of %d objects\n", LIVE + BURST);
        return 1;
    }
    struct side ours = {.alloc = ours_alloc, .free = ours_free, .live = objects[0]};
    struct side peer = {.alloc = peer_alloc, .free = peer_free, .live = objects[1]};
    side_fill(&ours);
    side_fill(&peer);
    const struct fw_bench benches[] = {
        {.name = "base-pool",
         .unit = "ns per free and alloc",
         .ours = {.name = "pool", .run = replace_run, .state = &ours},
         .peer = {.name = "malloc", .run = replace_run, .state = &peer},
         .bar = 0.7,
         .count = 2000000},
        {.name = "base-pool-burst",
         .unit = "ns per alloc and free",
         .ours = {.name = "pool", .run = burst_run, .state = &ours},
         .peer = {.name = "malloc", .run = burst_run, .state = &peer},
         .bar = 0.5,
         .count = 4000000},
    };
    int status = fw_bench_main(argc, argv, benches, FW_ARRAY_LENGTH(benches));
    side_empty(&ours);
    side_empty(&peer);
    fw_pool_fini(&pool);
    return status;
}
