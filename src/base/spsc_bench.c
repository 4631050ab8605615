/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two questions about the ring between two localities, each with both threads spinning, since how
 * they sleep is not the ring's business.
 *
 *   base-spsc             what a message costs its sender when messages come in batches. Peer: the
 *                         same ring under a mutex, which is what one writes first.
 *   base-spsc-round-trip  how long one message takes to the other core and back. Peer: a bare word
 *                         that two cores write in turn, the fastest that a cache line can travel.
 *                         The ring's line changes hands once more each way, when its slot is freed.
 */
#include "base/spsc.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "bench/harness.h"

enum { CAPACITY = 1024, BATCH = 32, SPINS_MAX = 1000 };

static struct fw_spsc there, back;
static char message;

/* Spins, but lets the other thread run where there is no core for it. */
static void spin(uint32_t *spins)
{
    if (++*spins > SPINS_MAX) {
        *spins = 0;
        (void)sched_yield();
    }
}

/* Runs `consume(&count)` on another thread and `produce` on this one. */
static void run_both(void (*produce)(uint64_t count), void (*consume)(void *count), uint64_t count)
{
    struct fw_thread consumer;
    int rc = fw_thread_create(&consumer, "consumer", consume, &count);
    FW_ASSERT(rc == 0);
    produce(count);
    fw_thread_join(&consumer);
}

/* The ring in batches. */

static void ring_produce(uint64_t count)
{
    void *batch[BATCH];
    for (int i = 0; i < BATCH; i++) {
        batch[i] = &message;
    }
    uint32_t spins = 0;
    while (count > 0) {
        uint32_t taken = fw_spsc_push(&there, batch, count < BATCH ? (uint32_t)count : BATCH);
        if (taken == 0) {
            spin(&spins);
        }
        count -= taken;
    }
}

static void ring_consume(void *argument)
{
    void *batch[BATCH];
    uint32_t spins = 0;
    for (uint64_t left = *(uint64_t *)argument; left > 0;) {
        uint32_t count = fw_spsc_pop(&there, batch, BATCH);
        if (count == 0) {
            spin(&spins);
        }
        left -= count;
    }
}

static void ring_run(void *state, uint64_t count)
{
    (void)state;
    run_both(ring_produce, ring_consume, count);
}

/* The same under a mutex. */

static struct {
    struct fw_mutex lock;
    void *slots[CAPACITY];
    uint64_t pushed, popped;
} locked;

static uint32_t locked_push(void *const messages[], uint32_t count)
{
    fw_mutex_lock(&locked.lock);
    uint64_t room = CAPACITY - (locked.pushed - locked.popped);
    uint32_t taken = room < count ? (uint32_t)room : count;
    for (uint32_t i = 0; i < taken; i++) {
        locked.slots[(locked.pushed + i) % CAPACITY] = messages[i];
    }
    locked.pushed += taken;
    fw_mutex_unlock(&locked.lock);
    return taken;
}

static uint32_t locked_pop(void *messages[], uint32_t count_max)
{
    fw_mutex_lock(&locked.lock);
    uint64_t ready = locked.pushed - locked.popped;
    uint32_t count = ready < count_max ? (uint32_t)ready : count_max;
    for (uint32_t i = 0; i < count; i++) {
        messages[i] = locked.slots[(locked.popped + i) % CAPACITY];
    }
    locked.popped += count;
    fw_mutex_unlock(&locked.lock);
    return count;
}

static void locked_produce(uint64_t count)
{
    void *batch[BATCH];
    for (int i = 0; i < BATCH; i++) {
        batch[i] = &message;
    }
    uint32_t spins = 0;
    while (count > 0) {
        uint32_t taken = locked_push(batch, count < BATCH ? (uint32_t)count : BATCH);
        if (taken == 0) {
            spin(&spins);
        }
        count -= taken;
    }
}

static void locked_consume(void *argument)
{
    void *batch[BATCH];
    uint32_t spins = 0;
    for (uint64_t left = *(uint64_t *)argument; left > 0;) {
        uint32_t count = locked_pop(batch, BATCH);
        if (count == 0) {
            spin(&spins);
        }
        left -= count;
    }
}

static void locked_run(void *state, uint64_t count)
{
    (void)state;
    run_both(locked_produce, locked_consume, count);
}

/* One message at a time, there and back. */

static void pass(struct fw_spsc *ring)
{
    void *out = &message;
    uint32_t taken = fw_spsc_push(ring, &out, 1);
    FW_ASSERT(taken == 1);
}

static void await(struct fw_spsc *ring)
{
    void *in;
    uint32_t spins = 0;
    while (fw_spsc_pop(ring, &in, 1) == 0) {
        spin(&spins);
    }
}

static void trip_produce(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        pass(&there);
        await(&back);
    }
}

static void trip_consume(void *argument)
{
    for (uint64_t left = *(uint64_t *)argument; left > 0; left--) {
        await(&there);
        pass(&back);
    }
}

static void trip_run(void *state, uint64_t count)
{
    (void)state;
    run_both(trip_produce, trip_consume, count);
}

/* One word that two threads make odd and even in turn. */

static alignas(FW_CACHE_LINE) _Atomic uint64_t word;

/* Waits until the word is odd or even as asked and adds one. */
static void word_step(bool odd)
{
    uint32_t spins = 0;
    uint64_t seen;
    while (((seen = atomic_load_explicit(&word, memory_order_acquire)) & 1) != odd) {
        spin(&spins);
    }
    atomic_store_explicit(&word, seen + 1, memory_order_release);
}

static void word_produce(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        word_step(false);
    }
}

static void word_consume(void *argument)
{
    for (uint64_t left = *(uint64_t *)argument; left > 0; left--) {
        word_step(true);
    }
}

static void word_run(void *state, uint64_t count)
{
    (void)state;
    run_both(word_produce, word_consume, count);
}

int main(int argc, char **argv)
{
    fw_mutex_init(&locked.lock, FW_RANK_MPSC_PUSH);
    if (fw_spsc_init(&there, CAPACITY) != 0 || fw_spsc_init(&back, CAPACITY) != 0) {
        (void)fprintf(stderr, "no memory for two rings of %d messages\n", CAPACITY);
        return 1;
    }
    const struct fw_bench benches[] = {
        {.name = "base-spsc",
         .unit = "ns per message",
         .ours = {.name = "ring", .run = ring_run},
         .peer = {.name = "ring under a mutex", .run = locked_run},
         .bar = 0.5,
         .count = 4000000},
        {.name = "base-spsc-round-trip",
         .unit = "ns per round trip",
         .ours = {.name = "two rings", .run = trip_run},
         .peer = {.name = "one word, the limit", .run = word_run},
         .bar = 3.0,
         .count = 200000},
    };
    int status = fw_bench_main(argc, argv, benches, FW_ARRAY_LENGTH(benches));
    fw_spsc_fini(&there);
    fw_spsc_fini(&back);
    fw_mutex_fini(&locked.lock);
    return status;
}
