/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two questions about the ring between two localities, each with two threads that spin, since how
 * they sleep is not the ring's business. What is measured is the thread that sends.
 *
 *   base-spsc             what a message costs its sender when messages come in batches. Peer: the
 *                         same ring under a mutex, which is what one writes first.
 *   base-spsc-round-trip  how long one message takes to the other core and back. Peer: a bare word
 *                         that two cores write in turn, the fastest that a cache line can travel.
 *                         The ring's line changes hands once more each way, when its slot is freed.
 *
 * On a machine with one core, or whose cores are busy with something else, both mean little.
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
#include "bench/halves.h"
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

static cpu_set_t cores; /* That we may use. */

/* What `produce` does on this thread and `consume` on another. */
struct work {
    void (*produce)(const struct work *work);
    void (*consume)(const struct work *work);
    const struct queue *queue; /* Of the first benchmark. */
    uint64_t count;
};

static void consumer_run(void *argument)
{
    const struct work *work = argument;
    fw_bench_take_half(&cores, true);
    work->consume(work);
}

static void work_run(struct work work)
{
    struct fw_thread consumer;
    int rc = fw_thread_create(&consumer, "consumer", consumer_run, &work);
    FW_ASSERT(rc == 0);
    fw_bench_take_half(&cores, false);
    work.produce(&work);
    fw_thread_join(&consumer);
}

/* Batches, through the ring and through the same under a mutex. */

struct queue {
    uint32_t (*push)(void *const messages[], uint32_t count);
    uint32_t (*pop)(void *messages[], uint32_t count_max);
};

static uint32_t ring_push(void *const messages[], uint32_t count)
{
    return fw_spsc_push(&there, messages, count);
}

static uint32_t ring_pop(void *messages[], uint32_t count_max)
{
    return fw_spsc_pop(&there, messages, count_max);
}

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

static void batch_produce(const struct work *work)
{
    void *batch[BATCH];
    for (int i = 0; i < BATCH; i++) {
        batch[i] = &message;
    }
    uint32_t spins = 0;
    for (uint64_t left = work->count; left > 0;) {
        uint32_t taken = work->queue->push(batch, left < BATCH ? (uint32_t)left : BATCH);
        if (taken == 0) {
            spin(&spins);
        }
        left -= taken;
    }
}

static void batch_consume(const struct work *work)
{
    void *batch[BATCH];
    uint32_t spins = 0;
    for (uint64_t left = work->count; left > 0;) {
        uint32_t count = work->queue->pop(batch, BATCH);
        if (count == 0) {
            spin(&spins);
        }
        left -= count;
    }
}

static void batch_run(void *state, uint64_t count)
{
    work_run((struct work){batch_produce, batch_consume, state, count});
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

static void trip_produce(const struct work *work)
{
    for (uint64_t i = 0; i < work->count; i++) {
        pass(&there);
        await(&back);
    }
}

static void trip_consume(const struct work *work)
{
    for (uint64_t i = 0; i < work->count; i++) {
        await(&there);
        pass(&back);
    }
}

static void trip_run(void *state, uint64_t count)
{
    (void)state;
    work_run((struct work){trip_produce, trip_consume, NULL, count});
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

static void word_produce(const struct work *work)
{
    for (uint64_t i = 0; i < work->count; i++) {
        word_step(false);
    }
}

static void word_consume(const struct work *work)
{
    for (uint64_t i = 0; i < work->count; i++) {
        word_step(true);
    }
}

static void word_run(void *state, uint64_t count)
{
    (void)state;
    work_run((struct work){word_produce, word_consume, NULL, count});
}

int main(int argc, char **argv)
{
    (void)sched_getaffinity(0, sizeof cores, &cores);
    fw_mutex_init(&locked.lock, FW_RANK_DISK);
    if (fw_spsc_init(&there, CAPACITY) != 0 || fw_spsc_init(&back, CAPACITY) != 0) {
        (void)fprintf(stderr, "no memory for two rings of %d messages\n", CAPACITY);
        return 1;
    }
    struct queue ring = {ring_push, ring_pop};
    struct queue mutex = {locked_push, locked_pop};
    const struct fw_bench benches[] = {
        {.name = "base-spsc",
         .unit = "ns per message",
         .ours = {.name = "ring", .run = batch_run, .state = &ring},
         .peer = {.name = "ring under a mutex", .run = batch_run, .state = &mutex},
         .bar = 0.5,
         .count = 4000000},
        {.name = "base-spsc-round-trip",
         .unit = "ns per round trip",
         .ours = {.name = "two rings", .run = trip_run},
         .peer = {.name = "one word, the limit", .run = word_run},
         .bar = 3.5,
         .count = 200000},
    };
    int status = fw_bench_main(argc, argv, benches, FW_ARRAY_LENGTH(benches));
    fw_spsc_fini(&there);
    fw_spsc_fini(&back);
    fw_mutex_fini(&locked.lock);
    return status;
}
