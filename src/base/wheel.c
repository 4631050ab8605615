/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wheel.h"

#include <stddef.h>

#include "base/assert.h"

static_assert(FW_WHEEL_LEVELS * FW_WHEEL_LEVEL_BITS >= 63, "every tick has a level");
static_assert(FW_WHEEL_SLOTS == 64, "a level's bits are one word");

/* One of the wheel's lists. */
struct slot {
    unsigned level;
    unsigned index;
};

void fw_wheel_init(struct fw_wheel *wheel, unsigned tick_bits, int64_t now)
{
    FW_ASSERT(tick_bits <= FW_WHEEL_TICK_BITS_MAX);
    FW_ASSERT(now >= 0);
    *wheel = (struct fw_wheel){
        .position = (uint64_t)now >> tick_bits,
        .present = (uint64_t)now >> tick_bits,
        .tick_bits = (uint8_t)tick_bits,
    };
    fw_list_init(&wheel->due);
    for (unsigned level = 0; level < FW_WHEEL_LEVELS; level++) {
        for (unsigned index = 0; index < FW_WHEEL_SLOTS; index++) {
            fw_list_init(&wheel->slots[level][index]);
        }
    }
}

void fw_wheel_fini(struct fw_wheel *wheel)
{
    FW_ASSERT(!wheel->advancing);
    FW_ASSERT(wheel->pending_count == 0);
    FW_ASSERT(wheel->levels_used == 0);
}

/* The first tick that begins at or after `deadline`. */
static uint64_t wheel_tick(const struct fw_wheel *wheel, int64_t deadline)
{
    if (deadline <= 0) {
        return 0;
    }
    uint64_t rest = (uint64_t)deadline & ((UINT64_C(1) << wheel->tick_bits) - 1);
    return ((uint64_t)deadline >> wheel->tick_bits) + (rest != 0);
}

/* Where a timer of `tick`, which the position has not reached, belongs. */
static struct slot wheel_slot(const struct fw_wheel *wheel, uint64_t tick)
{
    FW_ASSERT(tick > wheel->position);
    unsigned bit = 63 - (unsigned)__builtin_clzll(tick ^ wheel->position);
    unsigned level = bit / FW_WHEEL_LEVEL_BITS;
    return (struct slot){
        .level = level,
        .index = (unsigned)(tick >> (level * FW_WHEEL_LEVEL_BITS)) % FW_WHEEL_SLOTS,
    };
}

/* The first tick of a list: the position's digits above the level, the list's, and zeros. */
static uint64_t wheel_slot_begin(const struct fw_wheel *wheel, struct slot slot)
{
    uint64_t span = UINT64_C(1) << (slot.level * FW_WHEEL_LEVEL_BITS);
    uint64_t below = span * FW_WHEEL_SLOTS - 1; /* All ones for the highest level. */
    return (wheel->position & ~below) | (span * slot.index);
}

/* The earliest list that holds a timer. There must be one. */
static struct slot wheel_slot_first(const struct fw_wheel *wheel)
{
    unsigned level = (unsigned)__builtin_ctz(wheel->levels_used);
    return (struct slot){
        .level = level,
        .index = (unsigned)__builtin_ctzll(wheel->slots_used[level]),
    };
}

static void wheel_slot_mark(struct fw_wheel *wheel, struct slot slot)
{
    wheel->slots_used[slot.level] |= UINT64_C(1) << slot.index;
    wheel->levels_used |= 1u << slot.level;
}

static void wheel_slot_unmark(struct fw_wheel *wheel, struct slot slot)
{
    wheel->slots_used[slot.level] &= ~(UINT64_C(1) << slot.index);
    if (wheel->slots_used[slot.level] == 0) {
        wheel->levels_used &= ~(1u << slot.level);
    }
}

static void wheel_place(struct fw_wheel *wheel, struct fw_timer *timer, uint64_t tick)
{
    struct slot slot = wheel_slot(wheel, tick);
    timer->placed = tick;
    fw_list_push_back(&wheel->slots[slot.level][slot.index], &timer->link);
    wheel_slot_mark(wheel, slot);
}

bool fw_wheel_cancel(struct fw_wheel *wheel, struct fw_timer *timer)
{
    if (!fw_timer_is_pending(timer)) {
        return false;
    }
    FW_ASSERT(wheel->pending_count > 0);
    wheel->pending_count--;
    bool alone = timer->link.next == timer->link.previous; /* Both are the list's head. */
    fw_list_remove(&timer->link);
    if (alone && timer->placed > wheel->position) {
        /* A timer that is due was in no slot, but then the question does no harm. */
        struct slot slot = wheel_slot(wheel, timer->placed);
        if (fw_list_is_empty(&wheel->slots[slot.level][slot.index])) {
            wheel_slot_unmark(wheel, slot);
        }
    }
    return true;
}

void fw_wheel_start(struct fw_wheel *wheel, struct fw_timer *timer, int64_t deadline)
{
    FW_ASSERT(timer->expired != NULL);
    timer->deadline = deadline;
    uint64_t tick = wheel_tick(wheel, deadline);
    if (fw_timer_is_pending(timer) && timer->placed > wheel->present && tick >= timer->placed) {
        return; /* wheel_open() will find the new deadline in time. */
    }
    (void)fw_wheel_cancel(wheel, timer);
    wheel->pending_count++;
    if (tick <= wheel->present) {
        timer->placed = tick;
        fw_list_push_back(&wheel->due, &timer->link);
    } else {
        wheel_place(wheel, timer, tick);
    }
}

/*
 * The position has come to the beginning of the slot: its timers of this very tick go to `expired`,
 * the others down to where they belong now, or, if they were given more time, up.
 */
static void wheel_open(struct fw_wheel *wheel, struct slot slot, struct fw_list *expired)
{
    struct fw_list *list = &wheel->slots[slot.level][slot.index];
    wheel_slot_unmark(wheel, slot);
    struct fw_list_link *link;
    while ((link = fw_list_pop_front(list)) != NULL) { /* None comes back to this list. */
        struct fw_timer *timer = FW_LIST_ENTRY(link, struct fw_timer, link);
        uint64_t tick = wheel_tick(wheel, timer->deadline);
        FW_ASSERT(wheel->position <= timer->placed && timer->placed <= tick);
        if (tick == wheel->position) {
            fw_list_push_back(expired, link);
        } else {
            wheel_place(wheel, timer, tick);
        }
    }
}

/* Call-backs may take timers off the list, so it is read anew each time. */
static uint64_t wheel_expire(struct fw_wheel *wheel, struct fw_list *expired)
{
    uint64_t count = 0;
    struct fw_list_link *link;
    while ((link = fw_list_pop_front(expired)) != NULL) {
        struct fw_timer *timer = FW_LIST_ENTRY(link, struct fw_timer, link);
        wheel->pending_count--;
        count++;
        timer->expired(timer); /* The timer may be gone after this. */
    }
    return count;
}

uint64_t fw_wheel_advance(struct fw_wheel *wheel, int64_t now)
{
    FW_ASSERT(now >= 0);
    uint64_t present = (uint64_t)now >> wheel->tick_bits;
    FW_ASSERT(present >= wheel->present);
    FW_ASSERT(!wheel->advancing);
    wheel->advancing = true;
    wheel->present = present;

    struct fw_list expired;
    fw_list_init(&expired);
    fw_list_append(&expired, &wheel->due);
    uint64_t count = wheel_expire(wheel, &expired);
    while (wheel->levels_used != 0) {
        struct slot slot = wheel_slot_first(wheel);
        uint64_t begin = wheel_slot_begin(wheel, slot);
        FW_ASSERT(begin > wheel->position);
        if (begin > present) {
            break;
        }
        wheel->position = begin;
        wheel_open(wheel, slot, &expired);
        count += wheel_expire(wheel, &expired);
    }
    /* All lists left begin after the present, so every timer stays on its level. */
    wheel->position = present;
    wheel->advancing = false;
    return count;
}

int64_t fw_wheel_next(const struct fw_wheel *wheel)
{
    if (!fw_list_is_empty(&wheel->due)) {
        return (int64_t)(wheel->present << wheel->tick_bits);
    }
    if (wheel->levels_used == 0) {
        return FW_WHEEL_NEVER;
    }
    uint64_t begin = wheel_slot_begin(wheel, wheel_slot_first(wheel));
    bool comes = begin <= (uint64_t)FW_WHEEL_NEVER >> wheel->tick_bits;
    return comes ? (int64_t)(begin << wheel->tick_bits) : FW_WHEEL_NEVER;
}
