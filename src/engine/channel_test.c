/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a fom that arms, looks and waits is woken by what happens at any step of that, by whatever
 * way and from wherever it comes, and once; clinks are fired in the order of arming, each tells
 * whether it has fired, and none stays behind; a wake-up costs a system call only if the core
 * sleeps, and then one for all that came.
 * Method: cores driven by hand. With the thread hooks the test counts the points (yield points, and
 * around locks) that the fom's core comes by between the fom's start and its parking, and has the
 * event happen at the first of them, then at the second, and so on to the last.
 */
#include <errno.h>

#include "engine/core.h"
#include "engine/mail.h"
#include "engine/word.h"
#include "support/engine_by_hand.h"

/* ---- the event at every point ---- */

enum { EVENTS = 2 };

static struct {
    void (*happens)(int number); /* On the thread of who causes it. */
    int at[EVENTS];              /* The point at which each comes. */
    int passed;                  /* Points so far. */
    int came;                    /* Bits: events that have happened. */
    int locks_held;
    bool is_on; /* The fom's core runs. */
} points;

static void event(int number)
{
    struct fw_thread_state *self = fw_thread_self();
    struct fw_thread_state saved = *self;
    points.came |= 1 << number;
    points.is_on = false; /* What the waker itself comes by is no place for another. */
    self->turn = NULL;
    points.happens(number);
    self->turn = saved.turn;
    self->handler = saved.handler;
    points.is_on = true;
}

static void point(void)
{
    if (!points.is_on || points.locks_held > 0) {
        return;
    }
    for (int i = 0; i < EVENTS; i++) {
        if (points.at[i] == points.passed && (points.came & (1 << i)) == 0) {
            event(i);
        }
    }
    points.passed++;
}

static void hook_lock(struct fw_mutex *mutex)
{
    (void)mutex;
    point();
    points.locks_held++;
}

static bool hook_trylock(struct fw_mutex *mutex)
{
    hook_lock(mutex);
    return true;
}

static void hook_unlock(struct fw_mutex *mutex)
{
    (void)mutex;
    points.locks_held--;
    point();
}

static void hook_yield(const char *where)
{
    (void)where;
    point();
}

static void hook_unpark(struct fw_parker *parker)
{
    (void)parker;
}

static const struct fw_thread_hooks hooks = {.lock = hook_lock,
                                             .trylock = hook_trylock,
                                             .unlock = hook_unlock,
                                             .yield = hook_yield,
                                             .unpark = hook_unpark};

static int teardown(void **state)
{
    (void)state;
    fw_thread_hooks = NULL;
    return 0;
}

/* ---- a fom that waits for two events ---- */

enum { PHASE_WAIT = FW_PHASE_FIRST };

struct waiter {
    struct fw_fom fom;
    struct fw_clink clinks[EVENTS];
    bool is_inside;
};

static struct by_hand hand;
static struct fw_channel channels[EVENTS];
static bool published[EVENTS];
static struct fw_ticket ticket;
static int wanted; /* Bits: the events that it waits for. */
static int ticks;
static int finished;

static enum fw_step waiter_tick(struct fw_fom *fom)
{
    struct waiter *self = FW_FOM_OF(fom, struct waiter);
    assert_int_equal(fom->phase, PHASE_WAIT);
    assert_false(self->is_inside);
    self->is_inside = true;
    ticks++;
    ticket = fw_fom_ticket(fom);
    for (int i = 0; i < EVENTS; i++) {
        fw_fom_arm(fom, &self->clinks[i], &channels[i]);
    }
    FW_YIELD_POINT("test: armed");
    int seen = 0;
    for (int i = 0; i < EVENTS; i++) {
        seen |= published[i] ? 1 << i : 0;
    }
    FW_YIELD_POINT("test: looked");
    self->is_inside = false;
    return (seen & wanted) == wanted ? fw_fom_finish(fom) : fw_fom_wait(fom, PHASE_WAIT);
}

static void waiter_finish(struct fw_fom *fom)
{
    (void)fom;
    finished++;
}

static const struct fw_phase phases[] = {{"WAIT", FW_PHASE_BIT(FW_PHASE_FINISHED), false}};

static const struct fw_fom_type waiter_type = {
    .name = "waiter",
    .size = sizeof(struct waiter),
    .limit_count = 256,
    .phases = phases,
    .phase_count = 1,
    .tick = waiter_tick,
    .finish = waiter_finish,
};

static void begin(int what)
{
    by_hand_begin(&hand, &(struct fw_domain_config){.locality_count = 2}, &waiter_type);
    for (int i = 0; i < EVENTS; i++) {
        fw_channel_init_shared(&channels[i], hand.domain);
    }
    wanted = what;
    finished = 0;
}

static void end(void)
{
    fw_thread_hooks = NULL;
    for (int i = 0; i < EVENTS; i++) {
        fw_channel_fini(&channels[i]);
    }
    by_hand_end(&hand);
}

/* One life of a fom, with the events where `points.at` says. Those that had no place come last. */
static void live_once(void)
{
    memset(published, 0, sizeof published);
    ticks = 0;
    finished = 0;
    points.passed = 0;
    points.came = 0;
    (void)by_hand_start(&hand, &waiter_type, 0);
    fw_thread_hooks = &hooks;
    points.is_on = true;
    by_hand_round(&hand, 0);
    points.is_on = false;
    fw_thread_hooks = NULL;
    by_hand_run(&hand, 4);
    for (int i = 0; i < EVENTS; i++) {
        if ((points.came & (1 << i)) == 0 && (wanted & (1 << i)) != 0) {
            assert_int_equal(finished, 0);
            points.happens(i);
            by_hand_run(&hand, 4);
        }
    }
    assert_int_equal(finished, 1);
    assert_int_equal(by_hand_live(&hand), 0);
    assert_in_range(ticks, 1, 1 + 2 * EVENTS); /* None comes for no reason, again and again. */
}

static void by_signal(int number)
{
    published[number] = true;
    (void)fw_channel_signal(&channels[number]);
}

static void by_broadcast(int number)
{
    published[number] = true;
    (void)fw_channel_broadcast(&channels[number]);
}

/* A ticket exists when its fom has had its first tick; before that there is nobody to wake. */
static void by_ticket(int number)
{
    published[number] = true;
    if (ticks > 0) {
        fw_ticket_wake(ticket);
    }
}

static void by_signal_of_other_core(int number)
{
    by_hand_turn(&hand, 1);
    by_signal(number);
    by_hand_turn(&hand, -1);
}

static void by_ticket_of_other_core(int number)
{
    by_hand_turn(&hand, 1);
    by_ticket(number);
    by_hand_turn(&hand, -1);
}

typedef void happens_function(int number);
static happens_function *const ways[] = {by_signal, by_broadcast, by_ticket,
                                         by_signal_of_other_core, by_ticket_of_other_core};

static void test_event_at_every_point(void **state)
{
    (void)state;
    begin(1);
    points.at[1] = -1;
    for (unsigned way = 0; way < FW_ARRAY_LENGTH(ways); way++) {
        points.happens = ways[way];
        int last = 0;
        for (points.at[0] = 0;; points.at[0]++) {
            live_once();
            if (points.came == 0) {
                break;
            }
            last = points.at[0];
        }
        assert_true(last >= 7); /* Begin, four around the locks of arming, looks, park. */
    }
    end();
}

static void test_two_events_at_every_pair_of_points(void **state)
{
    (void)state;
    begin(3);
    for (unsigned way = 0; way < FW_ARRAY_LENGTH(ways); way++) {
        points.happens = ways[way];
        for (points.at[0] = 0; points.at[0] < 24; points.at[0]++) {
            for (points.at[1] = 0; points.at[1] < 24; points.at[1]++) {
                live_once();
            }
        }
    }
    end();
}

/* ---- what a clink tells ---- */

static void (*observe)(struct waiter *self);

static enum fw_step observing_tick(struct fw_fom *fom)
{
    if (observe != NULL) {
        observe(FW_FOM_OF(fom, struct waiter));
    }
    return waiter_tick(fom);
}

static struct fw_fom_type observing_type;

static void expect_second_fired(struct waiter *self)
{
    assert_false(fw_clink_fired(&self->clinks[0]));
    assert_true(fw_clink_fired(&self->clinks[1]));
    /* The other is disarmed, else the next signal would be lost on it. */
    assert_true(fw_list_is_empty(&channels[0].clinks));
    observe = NULL;
}

static void test_which_one_fired(void **state)
{
    (void)state;
    observing_type = waiter_type;
    observing_type.tick = observing_tick;
    by_hand_begin(&hand, &(struct fw_domain_config){.locality_count = 1}, &observing_type);
    for (int i = 0; i < EVENTS; i++) {
        fw_channel_init_shared(&channels[i], hand.domain);
    }
    wanted = 3;
    finished = 0;
    memset(published, 0, sizeof published);
    (void)by_hand_start(&hand, &observing_type, 0);
    by_hand_round(&hand, 0);
    observe = expect_second_fired;
    by_signal(1);
    assert_false(fw_channel_signal(&channels[1])); /* It has fired; there is no other. */
    by_hand_round(&hand, 0);
    assert_null(observe);
    by_signal(0);
    by_hand_round(&hand, 0);
    assert_int_equal(finished, 1);
    end();
}

static uint64_t woken[8];
static uint32_t woken_count;

static void note_woken(struct waiter *self)
{
    woken[woken_count++] = self->fom.id;
}

static void test_order_of_arming(void **state)
{
    (void)state;
    observing_type = waiter_type;
    observing_type.tick = observing_tick;
    by_hand_begin(&hand, &(struct fw_domain_config){.locality_count = 1}, &observing_type);
    for (int i = 0; i < EVENTS; i++) {
        fw_channel_init_shared(&channels[i], hand.domain);
    }
    wanted = 1;
    finished = 0;
    memset(published, 0, sizeof published);
    uint64_t first = by_hand_start(&hand, &observing_type, 0)->id;
    for (int i = 1; i < 5; i++) {
        (void)by_hand_start(&hand, &observing_type, 0);
    }
    by_hand_round(&hand, 0);
    observe = note_woken;
    woken_count = 0;
    assert_true(fw_channel_signal(&channels[1])); /* The first arms again, as the last. */
    by_hand_round(&hand, 0);
    published[0] = true;
    assert_true(fw_channel_signal(&channels[0]));
    by_hand_round(&hand, 0);
    assert_int_equal(fw_channel_broadcast(&channels[0]), 4);
    assert_int_equal(fw_channel_broadcast(&channels[0]), 0);
    assert_false(fw_channel_signal(&channels[0]));
    by_hand_round(&hand, 0);
    static const uint64_t expected[] = {0, 1, 2, 3, 4, 0};
    assert_int_equal(woken_count, FW_ARRAY_LENGTH(expected));
    for (uint32_t i = 0; i < woken_count; i++) {
        assert_int_equal(woken[i], first + expected[i]);
    }
    observe = NULL;
    end();
}

/* ---- channels of one turn ---- */

static void test_channel_of_a_turn(void **state)
{
    (void)state;
    begin(1);
    by_hand_turn(&hand, 0);
    struct fw_channel own;
    fw_channel_init(&own);
    assert_false(fw_channel_signal(&own));
    by_hand_turn(&hand, 1);
    expect_assert_failure((void)fw_channel_signal(&own));
    by_hand_turn(&hand, -1);
    expect_assert_failure((void)fw_channel_signal(&own));
    expect_assert_failure(fw_channel_init(&own));
    end();
}

/* ---- the end of a channel ---- */

static struct fw_channel *dying;

static void dying_finish(struct fw_fom *fom)
{
    waiter_finish(fom);
    fw_channel_fini(dying);
    memset((void *)dying, 0x5a, sizeof *dying); /* Its memory may be used for something else. */
}

static bool has_run;

/* The waker has made the fom ready and not yet returned; the fom's core is quick. */
static void hook_run_core(const char *where)
{
    if (!has_run && strcmp(where, "doorbell: ring, pushed") == 0) {
        struct fw_thread_state saved = *fw_thread_self();
        has_run = true;
        by_hand_round(&hand, 0);
        fw_thread_self()->turn = saved.turn;
    }
}

/* The fom that a channel has woken may end the channel at once. */
static void test_fom_ends_the_channel(void **state)
{
    (void)state;
    static const struct fw_thread_hooks quick = {.lock = hook_lock,
                                                 .trylock = hook_trylock,
                                                 .unlock = hook_unlock,
                                                 .yield = hook_run_core,
                                                 .unpark = hook_unpark};
    static struct fw_fom_type dying_type;
    dying_type = waiter_type;
    dying_type.finish = dying_finish;
    for (unsigned way = 0; way < 2; way++) {
        by_hand_begin(&hand, &(struct fw_domain_config){.locality_count = 1}, &dying_type);
        for (int i = 0; i < EVENTS; i++) {
            fw_channel_init_shared(&channels[i], hand.domain);
        }
        dying = &channels[0];
        wanted = 1;
        finished = 0;
        has_run = false;
        memset(published, 0, sizeof published);
        (void)by_hand_start(&hand, &dying_type, 0);
        by_hand_round(&hand, 0);
        fw_thread_hooks = &quick;
        (way == 0 ? by_signal : by_broadcast)(0);
        fw_thread_hooks = NULL;
        assert_true(has_run);
        assert_int_equal(finished, 1);
        fw_channel_fini(&channels[1]);
        by_hand_end(&hand);
    }
}

/* ---- when a core is woken ---- */

static int reactor_wakes;

void __real_fw_reactor_wake(struct fw_reactor *reactor);
void __wrap_fw_reactor_wake(struct fw_reactor *reactor);

void __wrap_fw_reactor_wake(struct fw_reactor *reactor)
{
    reactor_wakes++;
    __real_fw_reactor_wake(reactor);
}

enum { CROWD = 100 };

/* Parks a crowd on core 0 and wakes it, from `turn`. Returns how often the reactor was woken. */
static int wakes_of_a_crowd(int turn, bool is_idle)
{
    memset(published, 0, sizeof published);
    finished = 0;
    for (int i = 0; i < CROWD; i++) {
        (void)by_hand_start(&hand, &waiter_type, 0);
    }
    by_hand_round(&hand, 0);
    by_hand_round(&hand, 0);
    struct fw_core *core = &hand.domain->cores[0];
    assert_int_equal(core->queue.length, 0);
    reactor_wakes = 0;
    if (is_idle) {
        fw_doorbell_arm(&core->bell); /* As it does before it sleeps. */
    }
    by_hand_turn(&hand, turn);
    published[0] = true;
    for (int i = 0; i < CROWD; i++) {
        assert_true(fw_channel_signal(&channels[0]));
    }
    if (turn >= 0) {
        (void)fw_mail_flush(&hand.domain->cores[turn]);
    }
    if (is_idle) {
        (void)fw_doorbell_disarm(&core->bell);
    }
    int wakes = reactor_wakes;
    by_hand_run(&hand, 10);
    assert_int_equal(finished, CROWD);
    return wakes;
}

static void test_only_an_idle_core_is_woken(void **state)
{
    (void)state;
    begin(1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wakes_of_a_crowd(-1, false), 0);
        assert_int_equal(wakes_of_a_crowd(-1, true), 1);
        assert_int_equal(wakes_of_a_crowd(1, false), 0);
        assert_int_equal(wakes_of_a_crowd(1, true), 1);
        assert_int_equal(wakes_of_a_crowd(0, false), 0);
        assert_int_equal(wakes_of_a_crowd(0, true), 0); /* It wakes its own: nobody sleeps. */
    }
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_event_at_every_point, teardown),
        cmocka_unit_test_teardown(test_two_events_at_every_pair_of_points, teardown),
        cmocka_unit_test(test_which_one_fired),
        cmocka_unit_test(test_order_of_arming),
        cmocka_unit_test(test_channel_of_a_turn),
        cmocka_unit_test_teardown(test_fom_ends_the_channel, teardown),
        cmocka_unit_test(test_only_an_idle_core_is_woken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
