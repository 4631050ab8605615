/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers by the hundred thousand: a hierarchical timer wheel.
 *
 * Nearly every timer of a server guards against something that does not happen, a request that
 * never ends or a peer that falls silent; it is cancelled, or given more time. So starting and
 * cancelling take constant time, more time takes no more than writing the new deadline down, and
 * timers that wait cost nothing, however many they are. The link and the deadline live inside the
 * caller's struct:
 *
 *     struct request { ...; struct fw_timer timeout; };
 *     fw_timer_init(&request->timeout, request_timed_out);
 *     fw_wheel_start(&wheel, &request->timeout, now + limit);
 *
 * Times are counts of any unit, mostly nanoseconds, of a clock that does not go back. The wheel
 * counts in ticks of 2^tick_bits units: a deadline is rounded up to a tick and the present down, so
 * a timer is never early, and late by less than a tick if advance() is called at each. The
 * call-backs of one advance() run in the order of their ticks; within a tick in the order in which
 * they were started, those apart that were started again while they were pending.
 *
 * How it works. A tick is a number of eleven digits to the base 64, and each digit has a level with
 * 64 lists. A timer is on the level of the highest digit in which its tick differs from the wheel's
 * position, in the list of that digit. So all timers of a level are earlier than those of the
 * levels above, and the earliest list is found by two bit searches. When the position reaches a
 * list, its timers of that very tick expire and the others are dealt out again, to lower levels.
 * That happens to a timer at most ten times, and mostly once or never. A long jump of time costs no
 * more than the lists it passes that hold something.
 *
 * A pending timer that is given a later deadline stays where it is: when its list is reached it is
 * dealt out by the new one. To move it at once would fetch both its neighbours into the cache, for
 * each request of a connection with an idle time-out.
 *
 * The price of the levels is that a list is dealt out in one go. A hundred thousand timers hours
 * ahead that share a list take some milliseconds when it is their turn. Wheels that leave timers
 * where they are (the Linux kernel's) avoid this and fire up to an eighth too late; that was
 * rejected, because a time-out bound is a promise here. A heap was rejected for what it costs:
 * wheel_bench.c compares the two.
 *
 * Call-backs may start and cancel any timer, their own included, and free its memory; a timer is
 * not pending any more when its call-back runs. What they start for a time that has come already
 * runs at the next advance(), so none runs twice in one, and advance() ends.
 *
 * Ownership: the timers are their users'; the wheel has no limit and allocates nothing.
 * Concurrency: none. A wheel belongs to a locality's turn.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fairway/types.h>

#include "base/base.h"
#include "base/list.h"

enum {
    FW_WHEEL_TICK_BITS = 20, /* The usual tick: 1.05 ms, if the unit is the nanosecond. */
    FW_WHEEL_TICK_BITS_MAX = 32,
    FW_WHEEL_LEVEL_BITS = 6,
    FW_WHEEL_SLOTS = 1 << FW_WHEEL_LEVEL_BITS,
    FW_WHEEL_LEVELS = 11, /* Enough digits for every tick of 63 bits. */
};

/* A deadline that does not come, and what fw_wheel_next() says when none does. */
#define FW_WHEEL_NEVER INT64_MAX

struct fw_wheel {
    uint64_t position; /* The tick up to which timers have expired. */
    uint64_t present;  /* The tick to which the last advance() went or the running one goes. */
    uint8_t tick_bits;
    bool advancing;
    uint32_t levels_used; /* One bit for each level that has a bit in slots_used. */
    uint64_t pending_count;
    struct fw_list due;                   /* Started when their time had come already. */
    uint64_t slots_used[FW_WHEEL_LEVELS]; /* One bit for each list that is not empty. */
    struct fw_list slots[FW_WHEEL_LEVELS][FW_WHEEL_SLOTS];
};

/* `now` is not negative, here and below. */
void fw_wheel_init(struct fw_wheel *wheel, unsigned tick_bits, int64_t now);

/* No timer may be pending. */
void fw_wheel_fini(struct fw_wheel *wheel);

/* Before a timer is first started. It stays at its address while it is pending. */
static inline void fw_timer_init(struct fw_timer *timer, void (*expired)(struct fw_timer *timer))
{
    fw_list_link_init(&timer->link);
    timer->deadline = FW_WHEEL_NEVER;
    timer->expired = expired;
}

static inline bool fw_timer_is_pending(const struct fw_timer *timer)
{
    return fw_list_is_linked(&timer->link);
}

/* Starts the timer, or moves it if it is pending. A deadline may lie in the past. */
void fw_wheel_start(struct fw_wheel *wheel, struct fw_timer *timer, int64_t deadline);

/* True if the timer was pending; its call-back will not run. False: nothing to do. */
bool fw_wheel_cancel(struct fw_wheel *wheel, struct fw_timer *timer);

/* Runs the call-backs of all timers whose time has come at `now`; returns how many. */
uint64_t fw_wheel_advance(struct fw_wheel *wheel, int64_t now);

/*
 * When advance() is next needed: never later than a timer's time comes, sometimes earlier, and then
 * each advance() to the time answered brings the next answer nearer. FW_WHEEL_NEVER: none is
 * pending. Not after the present: some are due.
 */
int64_t fw_wheel_next(const struct fw_wheel *wheel);
