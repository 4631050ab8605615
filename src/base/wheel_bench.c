/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What request time-outs cost while 100,000 other timers wait. Peer: a binary heap that knows each
 * timer's place, so that it can cancel too, and keeps the deadlines inside its array, so that it
 * compares without following pointers.
 *
 *   base-wheel            a request begins, with a limit of five seconds, and one of a hundred
 *                         begun before it ends: a start and a cancel. The timers that wait are
 *                         those of idle connections, hours ahead.
 *   base-wheel-restart    any of those that wait is given its time anew: its connection was not
 *                         idle after all.
 *   base-wheel-scattered  any of them is cancelled and started again. The wheel's worst case, and
 *                         no request's way of life: the timer and both its neighbours are in no
 *                         cache, while much of the heap's array is.
 *   base-wheel-expire     what a timer costs that does expire: 100,000 more are started, then time
 *                         goes on a millisecond at a time until these have expired.
 */
#include "base/wheel.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "bench/harness.h"

enum { WAITING = 100000, RECORDS = 2 * WAITING, IN_FLIGHT = 100, PER_MS = 1000, EXPIRE_MS = 10000 };

#define MS   INT64_C(1000000)
#define HOUR (3600000 * MS)

/* The peer. */

struct heap_timer {
    uint32_t place; /* 0: not pending. */
    void (*expired)(struct heap_timer *timer);
};

static struct heap_entry {
    int64_t deadline;
    struct heap_timer *timer;
} heap[RECORDS + 1]; /* From 1 on: the children of n are 2n and 2n + 1. */
static uint32_t heap_count;

static void heap_put(uint32_t place, struct heap_entry entry)
{
    heap[place] = entry;
    entry.timer->place = place;
}

/* Moves the free place at `place` up or down until `entry` fits in. */
static void heap_settle(uint32_t place, struct heap_entry entry)
{
    while (place > 1 && heap[place / 2].deadline > entry.deadline) {
        heap_put(place, heap[place / 2]);
        place /= 2;
    }
    for (uint32_t child = 2 * place; child <= heap_count; child = 2 * place) {
        if (child < heap_count && heap[child + 1].deadline < heap[child].deadline) {
            child++;
        }
        if (heap[child].deadline >= entry.deadline) {
            break;
        }
        heap_put(place, heap[child]);
        place = child;
    }
    heap_put(place, entry);
}

static void heap_cancel(struct heap_timer *timer)
{
    uint32_t place = timer->place;
    if (place == 0) {
        return;
    }
    timer->place = 0;
    struct heap_entry last = heap[heap_count--];
    if (last.timer != timer) {
        heap_settle(place, last);
    }
}

static void heap_start(struct heap_timer *timer, int64_t deadline)
{
    struct heap_entry entry = {.deadline = deadline, .timer = timer};
    if (timer->place == 0) {
        FW_ASSERT(heap_count < RECORDS);
        timer->place = ++heap_count;
    }
    heap_settle(timer->place, entry);
}

static void heap_advance(int64_t now)
{
    while (heap_count > 0 && heap[1].deadline <= now) {
        struct heap_timer *timer = heap[1].timer;
        heap_cancel(timer);
        timer->expired(timer);
    }
}

/* Connections and requests, with what a server knows about each besides its time-out. */

static struct record {
    char other[88];
    struct fw_timer timer;        /* For the wheel, */
    struct heap_timer heap_timer; /* and for the heap. */
} * records;
static struct fw_wheel wheel;
static uint64_t expired_count;

static void wheel_expired(struct fw_timer *timer)
{
    (void)timer;
    expired_count++;
}

static void heap_expired(struct heap_timer *timer)
{
    (void)timer;
    expired_count++;
}

/* What both sides can do, and the time on their clocks. */
struct side {
    void (*start)(uint64_t record, int64_t deadline);
    void (*cancel)(uint64_t record);
    void (*advance)(int64_t now);
    int64_t now;
};

static void wheel_side_start(uint64_t record, int64_t deadline)
{
    fw_wheel_start(&wheel, &records[record].timer, deadline);
}

static void wheel_side_cancel(uint64_t record)
{
    (void)fw_wheel_cancel(&wheel, &records[record].timer);
}

static void wheel_side_advance(int64_t now)
{
    (void)fw_wheel_advance(&wheel, now);
}

static void heap_side_start(uint64_t record, int64_t deadline)
{
    heap_start(&records[record].heap_timer, deadline);
}

static void heap_side_cancel(uint64_t record)
{
    heap_cancel(&records[record].heap_timer);
}

/* How long a connection may be idle: one to five hours. */
static int64_t roll_idle(void)
{
    return HOUR + (int64_t)fw_bench_roll((uint64_t)(4 * HOUR / MS)) * MS;
}

static void side_begin(struct side *side)
{
    for (uint64_t i = 0; i < WAITING; i++) {
        side->start(i, side->now + roll_idle());
    }
}

static void side_end(struct side *side)
{
    for (uint64_t i = 0; i < RECORDS; i++) {
        side->cancel(i);
    }
}

static void side_pass_time(struct side *side, uint64_t operation)
{
    if (operation % PER_MS == 0) {
        side->now += MS;
        side->advance(side->now);
    }
}

static void requests_run(void *state, uint64_t count)
{
    struct side *side = state;
    uint64_t in_flight[IN_FLIGHT];
    for (uint64_t i = 0; i < IN_FLIGHT; i++) {
        in_flight[i] = RECORDS - 1 - i;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t begins = WAITING + i % WAITING;
        uint64_t *ends = &in_flight[fw_bench_roll(IN_FLIGHT)];
        side->start(begins, side->now + 5000 * MS);
        side->cancel(*ends);
        *ends = begins;
        side_pass_time(side, i);
    }
    for (uint64_t i = 0; i < IN_FLIGHT; i++) {
        side->cancel(in_flight[i]);
    }
}

static void restart_run(void *state, uint64_t count)
{
    struct side *side = state;
    for (uint64_t i = 0; i < count; i++) {
        side->start(fw_bench_roll(WAITING), side->now + 5 * HOUR);
        side_pass_time(side, i);
    }
}

static void scattered_run(void *state, uint64_t count)
{
    struct side *side = state;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t record = fw_bench_roll(WAITING);
        side->cancel(record);
        side->start(record, side->now + roll_idle());
        side_pass_time(side, i);
    }
}

static void expire_run(void *state, uint64_t count)
{
    struct side *side = state;
    for (uint64_t done = 0; done < count; done += WAITING) {
        for (uint64_t i = WAITING; i < RECORDS; i++) {
            side->start(i, side->now + (int64_t)fw_bench_roll(EXPIRE_MS) * MS);
        }
        uint64_t before = expired_count;
        while (expired_count - before < WAITING) {
            side->now += MS;
            side->advance(side->now);
        }
    }
}

int main(int argc, char **argv)
{
    records = calloc(RECORDS, sizeof *records);
    if (records == NULL) {
        (void)fprintf(stderr, "no memory for %d records\n", RECORDS);
        return 1;
    }
    fw_wheel_init(&wheel, FW_WHEEL_TICK_BITS, 0);
    for (int i = 0; i < RECORDS; i++) {
        fw_timer_init(&records[i].timer, wheel_expired);
        records[i].heap_timer.expired = heap_expired;
    }
    struct side ours = {wheel_side_start, wheel_side_cancel, wheel_side_advance, 0};
    struct side peer = {heap_side_start, heap_side_cancel, heap_advance, 0};
    side_begin(&ours);
    side_begin(&peer);
    const struct {
        const char *name;
        void (*run)(void *state, uint64_t count);
        double bar;
        uint64_t count;
    } parts[] = {
        {"base-wheel", requests_run, 1.0, 2000000},
        {"base-wheel-restart", restart_run, 0.8, 1000000},
        {"base-wheel-scattered", scattered_run, 1.5, 1000000},
        {"base-wheel-expire", expire_run, 1.0, 300000},
    };
    struct fw_bench benches[FW_ARRAY_LENGTH(parts)];
    for (size_t i = 0; i < FW_ARRAY_LENGTH(parts); i++) {
        benches[i] = (struct fw_bench){
            .name = parts[i].name,
            .unit = "ns per operation",
            .ours = {.name = "timer wheel", .run = parts[i].run, .state = &ours},
            .peer = {.name = "binary heap", .run = parts[i].run, .state = &peer},
            .bar = parts[i].bar,
            .count = parts[i].count,
        };
    }
    int status = fw_bench_main(argc, argv, benches, FW_ARRAY_LENGTH(benches));
    side_end(&ours);
    side_end(&peer);
    fw_wheel_fini(&wheel);
    free(records);
    return status;
}
