/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: timers expire once, in the order of their ticks, never early and never after an advance()
 * that had reached them; next() never promises too late; whatever call-backs do to timers holds.
 *
 * Method: a model that keeps all timers in an array and searches it. Random operations, seeded and
 * so repeatable, are done to both: starts, moves and cancels, from outside and from call-backs,
 * deadlines from the past to the end of time, steps of time from none to 2^50 units. No call-back
 * may come before another that the model has first, and none may be missing. Cases that chance
 * would seldom meet are done by hand before.
 */
#include "base/wheel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { TIMERS = 60, SEEDS = 200, OPERATIONS = 600 };

static struct fw_wheel wheel;
static int64_t now;

/* By hand: a timer that notes the order in which timers expired and may act once. */

struct hand_timer {
    struct fw_timer timer;
    char name;
    void (*act)(struct hand_timer *self);
    struct hand_timer *other;
    int64_t other_deadline;
};

static struct hand_timer hands[8];
static char order[32]; /* The names of those that expired. */

static void hand_expired(struct fw_timer *timer)
{
    struct hand_timer *hand = FW_CONTAINER_OF(timer, struct hand_timer, timer);
    assert_false(fw_timer_is_pending(timer));
    assert_true(strlen(order) + 1 < sizeof order);
    order[strlen(order)] = hand->name;
    if (hand->act != NULL) {
        hand->act(hand);
    }
}

static void begin(unsigned tick_bits, int64_t time)
{
    memset(&wheel, 0xff, sizeof wheel);
    memset(order, 0, sizeof order);
    now = time;
    fw_wheel_init(&wheel, tick_bits, now);
    for (int i = 0; i < (int)FW_ARRAY_LENGTH(hands); i++) {
        hands[i] = (struct hand_timer){.name = (char)('a' + i)};
        fw_timer_init(&hands[i].timer, hand_expired);
    }
}

static void start(int which, int64_t deadline)
{
    fw_wheel_start(&wheel, &hands[which].timer, deadline);
    assert_true(fw_timer_is_pending(&hands[which].timer));
    assert_int_equal(hands[which].timer.deadline, deadline);
}

/* Advances to `time` and asserts that exactly `expected` expired, in this order. */
static void assert_advance(int64_t time, const char *expected)
{
    memset(order, 0, sizeof order);
    now = time;
    assert_int_equal(fw_wheel_advance(&wheel, now), strlen(expected));
    assert_string_equal(order, expected);
}

static void test_order(void **state)
{
    (void)state;
    begin(0, 1000);
    assert_int_equal(fw_wheel_next(&wheel), FW_WHEEL_NEVER);
    start(0, 1003);
    start(1, 1001);
    start(2, 5000);
    start(3, 1003);
    start(4, 1 << 30);
    assert_int_equal(fw_wheel_next(&wheel), 1001);
    assert_advance(1000, "");
    assert_advance(1001, "b");
    assert_advance(1002, "");
    assert_int_equal(fw_wheel_next(&wheel), 1003);
    assert_advance(4999, "ad");
    assert_advance(INT64_MAX - 1, "ce");
    fw_wheel_fini(&wheel);
}

/* Started for the same tick from different distances, and so at first on different levels. */
static void test_order_within_a_tick(void **state)
{
    (void)state;
    begin(0, 0);
    start(0, 1 << 20);
    assert_advance((1 << 20) - 100000, "");
    start(1, 1 << 20);
    assert_advance((1 << 20) - 65, "");
    start(2, 1 << 20);
    assert_advance((1 << 20) - 1, "");
    start(3, 1 << 20);
    assert_advance(1 << 20, "abcd");
    fw_wheel_fini(&wheel);
}

static void test_rounding(void **state)
{
    (void)state;
    begin(4, 32); /* A tick is 16 units. */
    start(0, 48);
    start(1, 49);
    start(2, 64);
    start(3, 65);
    assert_int_equal(fw_wheel_next(&wheel), 48);
    assert_advance(47, "");
    assert_advance(48, "a"); /* At its very time; */
    assert_advance(63, "");
    assert_int_equal(fw_wheel_next(&wheel), 64);
    assert_advance(64, "bc"); /* within a tick; */
    assert_advance(79, "");   /* not one unit before. */
    assert_advance(80, "d");
    fw_wheel_fini(&wheel);
}

static void test_past(void **state)
{
    (void)state;
    begin(4, 1000);
    start(0, 2000);
    start(1, 992); /* The present tick, */
    start(2, 5);   /* long ago, */
    start(3, 0);
    start(4, INT64_MIN); /* before time. */
    start(5, 1001);      /* Not yet. */
    assert_true(fw_wheel_next(&wheel) <= now);
    assert_advance(1000, "bcde");
    assert_int_equal(fw_wheel_next(&wheel), 1008);
    assert_advance(1008, "f");
    start(1, -1);
    assert_true(fw_wheel_cancel(&wheel, &hands[1].timer)); /* While it is due. */
    assert_true(fw_wheel_next(&wheel) > now);
    start(1, -1);
    start(1, 1500); /* More time for one that is due. */
    assert_true(fw_wheel_next(&wheel) > now);
    assert_advance(1499, "");
    assert_advance(1504, "b");
    assert_advance(2000, "a");
    fw_wheel_fini(&wheel);
}

static void test_restart_and_cancel(void **state)
{
    (void)state;
    begin(0, 0);
    assert_false(fw_wheel_cancel(&wheel, &hands[0].timer));
    start(0, 10);
    start(0, 100); /* Later: it stays where it is until that time comes. */
    assert_int_equal(fw_wheel_next(&wheel), 10);
    assert_advance(10, "");
    assert_int_equal(fw_wheel_next(&wheel), 64); /* The list that holds it begins there. */
    assert_advance(99, "");
    start(0, 1 << 20);
    start(0, 101); /* Earlier than before, but not than where it is. */
    assert_int_equal(fw_wheel_next(&wheel), 100);
    assert_advance(100, "");
    start(0, 1 << 20);
    start(0, 103);
    start(0, 102);
    start(0, 101); /* Where it is. */
    assert_int_equal(fw_wheel_next(&wheel), 101);
    assert_advance(101, "a");
    start(0, 200);
    start(0, 150); /* Earlier than where it is. */
    assert_advance(149, "");
    assert_advance(150, "a");
    start(0, 200);
    start(0, 300);
    assert_true(fw_wheel_cancel(&wheel, &hands[0].timer)); /* Not where its deadline says. */
    assert_int_equal(fw_wheel_next(&wheel), FW_WHEEL_NEVER);
    assert_false(fw_wheel_cancel(&wheel, &hands[0].timer));

    start(1, 200);
    start(2, 200);
    assert_true(fw_wheel_cancel(&wheel, &hands[1].timer));
    assert_false(fw_timer_is_pending(&hands[1].timer));
    assert_int_not_equal(fw_wheel_next(&wheel), FW_WHEEL_NEVER); /* The other is still there. */
    assert_true(fw_wheel_cancel(&wheel, &hands[2].timer));
    assert_int_equal(fw_wheel_next(&wheel), FW_WHEEL_NEVER);
    assert_advance(1000, "");
    fw_wheel_fini(&wheel);
}

/* The ends of the range, at each tick size that matters. */
static void test_end_of_time(void **state)
{
    (void)state;
    begin(0, 0);
    start(0, INT64_MAX - 1);
    start(1, INT64_MAX);
    assert_advance(INT64_MAX - 2, "");
    assert_int_equal(fw_wheel_next(&wheel), INT64_MAX - 1);
    assert_advance(INT64_MAX - 1, "a");
    assert_advance(INT64_MAX, "b");
    fw_wheel_fini(&wheel);

    /* The last whole tick begins at INT64_MAX - 15; what is rounded up beyond it never comes. */
    begin(4, INT64_MAX - 100);
    start(0, INT64_MAX - 15);
    start(1, INT64_MAX - 14);
    start(2, FW_WHEEL_NEVER);
    assert_int_equal(fw_wheel_next(&wheel), INT64_MAX - 15);
    assert_advance(INT64_MAX - 16, "");
    assert_advance(INT64_MAX, "a");
    assert_int_equal(fw_wheel_next(&wheel), FW_WHEEL_NEVER);
    assert_true(fw_wheel_cancel(&wheel, &hands[1].timer));
    assert_true(fw_wheel_cancel(&wheel, &hands[2].timer));
    fw_wheel_fini(&wheel);

    begin(FW_WHEEL_TICK_BITS_MAX, 0);
    start(0, 1);
    assert_advance((INT64_C(1) << FW_WHEEL_TICK_BITS_MAX) - 1, "");
    assert_advance(INT64_C(1) << FW_WHEEL_TICK_BITS_MAX, "a");
    fw_wheel_fini(&wheel);
}

/* Powers of 64 and their neighbours: each deadline is met exactly, from each position. */
static void test_level_borders(void **state)
{
    (void)state;
    for (unsigned from = 0; from < 60; from += FW_WHEEL_LEVEL_BITS) {
        for (unsigned to = 0; to < 63; to++) {
            for (int64_t off = -1; off <= 1; off++) {
                int64_t present = (INT64_C(1) << from) - 1;
                int64_t deadline = present + (INT64_C(1) << to) + off;
                if (deadline <= present) {
                    continue;
                }
                begin(0, present);
                start(0, deadline);
                /* Following next() leads there, not past it, in a step for each level. */
                int steps = 0;
                int64_t next;
                while ((next = fw_wheel_next(&wheel)) < deadline) {
                    assert_true(next > now);
                    assert_advance(next, "");
                    assert_true(++steps < FW_WHEEL_LEVELS);
                }
                assert_int_equal(next, deadline);
                assert_advance(deadline - 1, "");
                assert_advance(deadline, "a");
                fw_wheel_fini(&wheel);
            }
        }
    }
}

static void act_start_other(struct hand_timer *self)
{
    fw_wheel_start(&wheel, &self->other->timer, self->other_deadline);
}

static void act_cancel_other(struct hand_timer *self)
{
    assert_true(fw_wheel_cancel(&wheel, &self->other->timer));
}

static void act_repeat(struct hand_timer *self)
{
    fw_wheel_start(&wheel, &self->timer, self->timer.deadline + 10);
}

static void act_forget(struct hand_timer *self)
{
    memset(&self->timer, 0xff, sizeof self->timer); /* As free() may. */
}

static void act_advance(struct hand_timer *self)
{
    (void)self;
    expect_assert_failure((void)fw_wheel_advance(&wheel, now));
}

static void test_call_backs(void **state)
{
    (void)state;
    /* The first cancels its neighbours: of the same tick, of a later one that is due as well. */
    begin(0, 0);
    hands[0].act = hands[1].act = act_cancel_other;
    hands[0].other = &hands[2];
    hands[1].other = &hands[3];
    start(0, 10);
    start(1, 10);
    start(2, 10);
    start(3, 700);
    start(4, 800);
    assert_advance(1000, "abe");
    fw_wheel_fini(&wheel);

    /* One starts another for the rest of this jump: at the next advance. And a far one. */
    begin(0, 0);
    hands[0].act = hands[1].act = hands[2].act = act_start_other;
    hands[0].other = &hands[3];
    hands[0].other_deadline = 500;
    hands[1].other = &hands[4];
    hands[1].other_deadline = 5000;
    hands[2].other = &hands[5];
    hands[2].other_deadline = 1001;
    start(0, 10);
    start(1, 10);
    start(2, 20);
    assert_advance(1000, "abc");
    assert_true(fw_wheel_next(&wheel) <= now);
    assert_advance(1000, "d");
    assert_advance(4999, "f");
    assert_advance(5000, "e");
    fw_wheel_fini(&wheel);

    /* More time for one that would be next, and for one that this advance has yet to reach. */
    begin(0, 0);
    hands[0].act = hands[1].act = act_start_other;
    hands[0].other = &hands[2];
    hands[0].other_deadline = 2000;
    hands[1].other = &hands[3];
    hands[1].other_deadline = 2001;
    start(0, 10);
    start(1, 10);
    start(2, 10);
    start(3, 700);
    assert_advance(1000, "ab");
    assert_advance(1999, "");
    assert_advance(2001, "cd");
    fw_wheel_fini(&wheel);

    /* A timer that repeats itself expires once in an advance, however far that goes. */
    begin(0, 0);
    hands[0].act = act_repeat;
    hands[1].act = act_forget;
    hands[2].act = act_advance;
    start(0, 10);
    start(1, 10);
    start(2, 10);
    assert_advance(1000, "abc");
    assert_advance(1000, "a"); /* The one for 20. */
    assert_advance(1000, "a");
    assert_true(fw_wheel_cancel(&wheel, &hands[0].timer));
    fw_wheel_fini(&wheel);
}

static void test_misuse(void **state)
{
    (void)state;
    begin(4, 160);
    start(0, 200);
    expect_assert_failure(fw_wheel_fini(&wheel));               /* Still pending. */
    expect_assert_failure((void)fw_wheel_advance(&wheel, 159)); /* Back in time. */
    expect_assert_failure((void)fw_wheel_advance(&wheel, -1));
    assert_true(fw_wheel_cancel(&wheel, &hands[0].timer));
    hands[0].timer.expired = NULL;
    expect_assert_failure(fw_wheel_start(&wheel, &hands[0].timer, 200));
    fw_wheel_fini(&wheel);
    expect_assert_failure(fw_wheel_init(&wheel, FW_WHEEL_TICK_BITS_MAX + 1, 0));
    expect_assert_failure(fw_wheel_init(&wheel, 0, -1));
}

/* The model. */

static struct model_timer {
    struct fw_timer timer;
    bool pending;
    bool due;          /* Started when its time had come; expires before all others. */
    bool moved;        /* Started while it was pending: anywhere within its tick. */
    int64_t tick;      /* When its time comes, in units. */
    uint64_t sequence; /* Of all starts. */
} models[TIMERS];
static unsigned model_tick_bits;
static uint64_t model_sequence;
static uint64_t model_sequence_limit; /* Timers started later and due wait for the next advance. */
static uint64_t dice;

static uint64_t roll(uint64_t sides)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (dice >> 11) % sides;
}

/* A span of time: as often short as long. */
static int64_t roll_span(void)
{
    return (int64_t)roll(UINT64_C(1) << roll(50));
}

/* When the tick after `deadline` begins; FW_WHEEL_NEVER if there is none. */
static int64_t model_round_up(int64_t deadline)
{
    int64_t size = INT64_C(1) << model_tick_bits;
    int64_t over = deadline <= 0 ? 0 : deadline % size;
    if (over == 0) {
        return deadline;
    }
    return deadline - over > INT64_MAX - size ? FW_WHEEL_NEVER : deadline - over + size;
}

static int64_t model_round_down(int64_t time)
{
    return time - time % (INT64_C(1) << model_tick_bits);
}

/* Whether the timer may expire in this advance(). */
static bool model_is_expired(const struct model_timer *model)
{
    return model->pending && model->tick <= model_round_down(now) &&
           !(model->due && model->sequence >= model_sequence_limit);
}

/* Whether `one` must expire before `other`. */
static bool model_is_before(const struct model_timer *one, const struct model_timer *other)
{
    if (one->due != other->due) {
        return one->due;
    }
    if (!one->due && one->tick != other->tick) {
        return one->tick < other->tick;
    }
    return !one->moved && !other->moved && one->sequence < other->sequence;
}

static void model_start(struct model_timer *model)
{
    int64_t deadline = roll(8) == 0 ? now - roll_span() : now;
    deadline += deadline < INT64_MAX / 2 ? roll_span() : 0;
    if (roll(200) == 0) {
        deadline = FW_WHEEL_NEVER;
    }
    model->moved = model->pending;
    model->pending = true;
    model->tick = model_round_up(deadline);
    model->due = model->tick <= model_round_down(now);
    model->sequence = model_sequence++;
    fw_wheel_start(&wheel, &model->timer, deadline);
}

static void model_cancel(struct model_timer *model)
{
    assert_int_equal(fw_wheel_cancel(&wheel, &model->timer), model->pending);
    model->pending = false;
}

static void model_touch_any(void)
{
    struct model_timer *model = &models[roll(TIMERS)];
    if (roll(3) == 0) {
        model_cancel(model);
    } else {
        model_start(model);
    }
}

static void model_expired(struct fw_timer *timer)
{
    struct model_timer *model = FW_CONTAINER_OF(timer, struct model_timer, timer);
    assert_true(model_is_expired(model));
    for (int i = 0; i < TIMERS; i++) {
        assert_false(model_is_expired(&models[i]) && model_is_before(&models[i], model));
    }
    model->pending = false;
    for (uint64_t touches = roll(3); touches > 0; touches--) {
        model_touch_any();
    }
}

/* The bound may be early, but not late, and it says of a due timer that it is due. */
static void model_check_next(void)
{
    int64_t earliest = FW_WHEEL_NEVER;
    bool any_pending = false, any_due = false;
    for (int i = 0; i < TIMERS; i++) {
        if (models[i].pending && models[i].tick < earliest) {
            earliest = models[i].tick;
        }
        any_pending |= models[i].pending;
        any_due |= models[i].pending && models[i].due;
        assert_int_equal(fw_timer_is_pending(&models[i].timer), models[i].pending);
    }
    int64_t next = fw_wheel_next(&wheel);
    if (any_due) {
        assert_true(next <= now);
    } else {
        assert_true(next > now && next <= earliest);
        assert_true(any_pending || next == FW_WHEEL_NEVER);
    }
}

static void model_advance(void)
{
    int64_t step = roll(4) == 0 ? 0 : roll_span();
    int64_t next = fw_wheel_next(&wheel);
    if (roll(4) == 0 && next != FW_WHEEL_NEVER && next > now) {
        step = next - now;
    }
    now = now > INT64_MAX - step ? INT64_MAX : now + step;
    model_sequence_limit = model_sequence;
    (void)fw_wheel_advance(&wheel, now);
    for (int i = 0; i < TIMERS; i++) {
        assert_false(model_is_expired(&models[i]));
    }
    model_sequence_limit = UINT64_MAX;
}

static void model_run(uint64_t seed)
{
    dice = seed * 0x9e3779b97f4a7c15u + 1;
    model_tick_bits = (unsigned)(roll(2) == 0 ? 0 : roll(24));
    model_sequence = 0;
    now = roll_span();
    fw_wheel_init(&wheel, model_tick_bits, now);
    for (int i = 0; i < TIMERS; i++) {
        models[i] = (struct model_timer){.pending = false};
        fw_timer_init(&models[i].timer, model_expired);
    }
    for (int i = 0; i < OPERATIONS; i++) {
        if (roll(3) == 0) {
            model_advance();
        } else {
            model_touch_any();
        }
        model_check_next();
    }
    for (int i = 0; i < TIMERS; i++) {
        model_cancel(&models[i]);
    }
    fw_wheel_fini(&wheel);
}

static void test_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        model_run(seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_order_within_a_tick),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_past),
        cmocka_unit_test(test_restart_and_cancel),
        cmocka_unit_test(test_end_of_time),
        cmocka_unit_test(test_level_borders),
        cmocka_unit_test(test_call_backs),
        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
