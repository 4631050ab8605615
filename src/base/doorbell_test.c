/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a receiver never sleeps on a message, and one arming is answered by at most one sender.
 *
 * Method: first every interleaving of two senders and a receiver. The three run as fibres that
 * change at the doorbell's yield points and between the steps of its protocol; a depth-first walk
 * over "who goes next" repeats the story until all choices have been made. A story whose receiver
 * sleeps when nobody is left to wake it is a lost wake-up. This shows the protocol right as long as
 * memory is sequentially consistent. That the fences make it so needs two cores: a sender and a
 * receiver start from one line again and again, and at least one of them must see the other. Then
 * with real sleep: two threads pass a message to and fro, and hang (into the test's time limit) if
 * one wake-up is lost; and many senders, each with its ring, meet one receiver.
 */
#include "base/doorbell.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#include <cmocka.h>

#include "base/spsc.h"

/* The fibres of the first test are unknown to TSan, and one OS thread has no races to show it. */
#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif

static struct fw_doorbell bell;

#if !defined(UNDER_TSAN)
/* Every interleaving. */

enum { SENDERS = 2, FIBRES = SENDERS + 1, RECEIVER = SENDERS, STACK_SIZE = 64 * 1024 };
enum { STEPS_MAX = 64 };

enum fibre_state { RUNNABLE, ASLEEP, DONE };

static struct fibre {
    ucontext_t context;
    enum fibre_state state;
    char stack[STACK_SIZE] __attribute__((aligned(16)));
} fibres[FIBRES];
static ucontext_t scheduler;
static int running;

static bool full[SENDERS]; /* A queue of one message for each sender. */
static int received, armings, wakes, answers;

/* Back to the scheduler, which decides who goes on. */
static void step(void)
{
    int self = running;
    (void)swapcontext(&fibres[self].context, &scheduler);
}

static void yield_hook(const char *where)
{
    (void)where;
    step();
}

static void sender_fibre(int self)
{
    full[self] = true;
    if (fw_doorbell_ring(&bell)) {
        step();
        wakes++; /* The token: remembered if the receiver is not asleep yet. */
        if (fibres[RECEIVER].state == ASLEEP) {
            fibres[RECEIVER].state = RUNNABLE;
        }
    }
    fibres[self].state = DONE;
}

static bool receiver_drain(void)
{
    bool found = false;
    for (int i = 0; i < SENDERS; i++) {
        found |= full[i];
        received += full[i];
        full[i] = false;
    }
    return found;
}

static void receiver_fibre(void)
{
    int tokens_taken = 0;
    while (received < SENDERS) {
        if (receiver_drain()) {
            continue;
        }
        step();
        fw_doorbell_arm(&bell);
        armings++;
        if (!receiver_drain()) {
            step();
            if (wakes == tokens_taken) { /* Parking takes a token, or waits for one. */
                fibres[RECEIVER].state = ASLEEP;
                step();
            }
            tokens_taken = wakes;
        }
        answers += fw_doorbell_disarm(&bell);
    }
    fibres[RECEIVER].state = DONE;
}

static void fibre_main(int self)
{
    if (self == RECEIVER) {
        receiver_fibre();
    } else {
        sender_fibre(self);
    }
    for (;;) {
        step(); /* Never resumed. */
    }
}

static void fibre_begin(struct fibre *fibre, int self)
{
    int rc = getcontext(&fibre->context);
    assert_int_equal(rc, 0);
    fibre->context.uc_stack.ss_sp = fibre->stack;
    fibre->context.uc_stack.ss_size = sizeof fibre->stack;
    makecontext(&fibre->context, (void (*)(void))(uintptr_t)fibre_main, 1, self);
    fibre->state = RUNNABLE;
}

static void story_begin(void)
{
    memset(&bell, 0xff, sizeof bell);
    fw_doorbell_init(&bell);
    memset(full, 0, sizeof full);
    received = armings = wakes = answers = 0;
    for (int i = 0; i < FIBRES; i++) {
        fibre_begin(&fibres[i], i);
    }
}

/* The choices made at each step of a story: the which-th of how many runnable fibres. */
struct choices {
    int chosen[STEPS_MAX];
    int options[STEPS_MAX];
    int count;
};

/* Runs one story: the choices given, and then always the first. Notes what there was to choose. */
static void story_run(struct choices *choices)
{
    int given = choices->count;
    story_begin();
    for (choices->count = 0;; choices->count++) {
        int runnable[FIBRES];
        int options = 0;
        for (int i = 0; i < FIBRES; i++) {
            if (fibres[i].state == RUNNABLE) {
                runnable[options++] = i;
            }
        }
        if (options == 0) {
            return;
        }
        int at = choices->count;
        assert_true(at < STEPS_MAX);
        if (at >= given) {
            choices->chosen[at] = 0;
        }
        choices->options[at] = options;
        running = runnable[choices->chosen[at]];
        (void)swapcontext(&scheduler, &fibres[running].context);
    }
}

/* The next story in depth-first order; false after the last. */
static bool story_next(struct choices *choices)
{
    while (choices->count > 0) {
        int last = choices->count - 1;
        if (++choices->chosen[last] < choices->options[last]) {
            return true;
        }
        choices->count--;
    }
    return false;
}

static void test_every_interleaving(void **state)
{
    (void)state;
    static const struct fw_thread_hooks hooks = {.yield = yield_hook};
    static struct choices choices;
    uint64_t stories = 0, both_answers = 0, woken = 0;
    choices.count = 0;
    fw_thread_hooks = &hooks;
    do {
        story_run(&choices);
        bool lost = fibres[RECEIVER].state != DONE;
        bool told_truth = answers == wakes && wakes <= armings;
        if (lost || received != SENDERS || !told_truth) {
            fw_thread_hooks = NULL;
            fail_msg("story %ju: %s, %d received, %d armings, %d wakes, %d answers",
                     (uintmax_t)stories, lost ? "lost a wake-up" : "all woke", received, armings,
                     wakes, answers);
        }
        stories++;
        woken += wakes > 0;
        both_answers += wakes == 2;
    } while (story_next(&choices));
    fw_thread_hooks = NULL;
    print_message("# %ju stories, %ju with a wake, %ju with two\n", (uintmax_t)stories,
                  (uintmax_t)woken, (uintmax_t)both_answers);
    /* The walk reached the cases that matter. */
    assert_true(woken > 0 && woken < stories && both_answers > 0 && both_answers < woken);
}

#endif

/* Pauses for a random moment, so that two threads meet in ever new ways. */
static void dawdle(uint64_t *dice, uint64_t turns_max)
{
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    for (volatile uint64_t i = *dice % turns_max; i > 0; i--) {
    }
}

/* Messages sent at the very moment when the receiver arms. */

enum { STARTS = 20000, LANES = 64, START_DELAY_MAX = 32, SPINS_MAX = 1000 };

static struct lane {
    struct fw_doorbell bell;
    struct fw_spsc ring;
    bool rang;  /* What the sender was told. */
    bool found; /* What the receiver saw. */
} lanes[LANES];
static alignas(FW_CACHE_LINE) _Atomic int sender_at;
static alignas(FW_CACHE_LINE) _Atomic int receiver_at;

/* Keeps the calling thread off the cores of the other, if there are two: a matter of likelihood. */
static void pin(bool odd)
{
    cpu_set_t allowed, half;
    CPU_ZERO(&half);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return;
    }
    for (size_t core = odd; core < CPU_SETSIZE; core += 2) {
        if (CPU_ISSET(core, &allowed)) {
            CPU_SET(core, &half);
        }
    }
    (void)sched_setaffinity(0, sizeof half, &half);
}

/* Says that we have come to `line` and waits until the other has. */
static void line_up(_Atomic int *own, _Atomic int *other, int line)
{
    atomic_store_explicit(own, line, memory_order_release);
    for (int spins = 0; atomic_load_explicit(other, memory_order_acquire) < line; spins++) {
        if (spins > SPINS_MAX) {
            (void)sched_yield();
        }
    }
}

static void starter_run(void *argument)
{
    (void)argument;
    uint64_t dice = 1;
    pin(true);
    for (int i = 0; i < STARTS; i++) {
        line_up(&sender_at, &receiver_at, 2 * i + 1);
        dawdle(&dice, START_DELAY_MAX);
        for (struct lane *lane = lanes; lane < lanes + LANES; lane++) {
            void *message = lane;
            uint32_t taken = fw_spsc_push(&lane->ring, &message, 1);
            FW_ASSERT(taken == 1);
            lane->rang = fw_doorbell_ring(&lane->bell);
        }
        line_up(&sender_at, &receiver_at, 2 * i + 2);
    }
}

/* After a run, while the sender waits: how often neither saw the other. Empties the lanes. */
static int lanes_missed(void)
{
    int missed = 0;
    for (struct lane *lane = lanes; lane < lanes + LANES; lane++) {
        void *message;
        missed += !lane->found && !lane->rang;
        bool answered = fw_doorbell_disarm(&lane->bell);
        FW_ASSERT(answered == lane->rang);
        bool left = fw_spsc_pop(&lane->ring, &message, 1) == 1;
        FW_ASSERT(left != lane->found);
    }
    return missed;
}

static void armer_run(void *argument)
{
    int *missed = argument;
    uint64_t dice = 2;
    pin(false);
    for (int i = 0; i < STARTS; i++) {
        line_up(&receiver_at, &sender_at, 2 * i + 1);
        dawdle(&dice, START_DELAY_MAX);
        for (struct lane *lane = lanes; lane < lanes + LANES; lane++) {
            void *message;
            fw_doorbell_arm(&lane->bell);
            lane->found = fw_spsc_pop(&lane->ring, &message, 1) == 1;
        }
        line_up(&receiver_at, &sender_at, 2 * i + 2);
        *missed += lanes_missed();
    }
}

static void test_one_sees_the_other(void **state)
{
    (void)state;
    struct fw_thread sender, receiver;
    int missed = 0;
    atomic_init(&sender_at, 0);
    atomic_init(&receiver_at, 0);
    for (struct lane *lane = lanes; lane < lanes + LANES; lane++) {
        fw_doorbell_init(&lane->bell);
        assert_int_equal(fw_spsc_init(&lane->ring, 2), 0);
    }
    assert_int_equal(fw_thread_create(&sender, "sender", starter_run, NULL), 0);
    assert_int_equal(fw_thread_create(&receiver, "receiver", armer_run, &missed), 0);
    fw_thread_join(&sender);
    fw_thread_join(&receiver);
    for (struct lane *lane = lanes; lane < lanes + LANES; lane++) {
        fw_spsc_fini(&lane->ring);
    }
    assert_int_equal(missed, 0);
}

/* Two threads that sleep until the other sends. */

enum { ROUNDS = 20000, DELAY_MAX = 256 };

static struct side {
    struct fw_spsc ring;
    struct fw_doorbell bell;
    struct fw_parker parker;
    struct fw_thread thread;
    uint64_t dice;
    struct side *other;
} sides[2];

static void side_send(struct side *side)
{
    void *message = side;
    uint32_t taken = fw_spsc_push(&side->other->ring, &message, 1);
    FW_ASSERT(taken == 1);
    if (fw_doorbell_ring(&side->other->bell)) {
        fw_unpark(&side->other->parker);
    }
}

static void side_receive(struct side *side)
{
    void *message;
    while (fw_spsc_pop(&side->ring, &message, 1) == 0) {
        dawdle(&side->dice, DELAY_MAX);
        fw_doorbell_arm(&side->bell);
        bool found = fw_spsc_pop(&side->ring, &message, 1) == 1;
        if (!found) {
            fw_park(&side->parker);
        }
        (void)fw_doorbell_disarm(&side->bell);
        if (found) {
            return;
        }
    }
}

static void side_run(void *argument)
{
    struct side *side = argument;
    for (int i = 0; i < ROUNDS; i++) {
        dawdle(&side->dice, DELAY_MAX);
        side_send(side);
        side_receive(side);
    }
}

static void test_ping_pong(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fw_spsc_init(&sides[i].ring, 2), 0);
        fw_doorbell_init(&sides[i].bell);
        fw_parker_init(&sides[i].parker);
        sides[i].dice = 0x9e3779b97f4a7c15u + (uint64_t)i;
        sides[i].other = &sides[1 - i];
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fw_thread_create(&sides[i].thread, "side", side_run, &sides[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        fw_thread_join(&sides[i].thread);
    }
    for (int i = 0; i < 2; i++) {
        fw_spsc_fini(&sides[i].ring); /* Asserts that nothing was left. */
    }
}

/* Many senders, one receiver. */

enum { CROWD = 3, MESSAGES = 5000, CAPACITY = 8, BATCH = 4 };

static struct fw_spsc rings[CROWD];
static struct fw_parker parker;
static _Atomic int crowd_wakes;

static void crowd_run(void *argument)
{
    struct fw_spsc *ring = argument;
    void *message = ring;
    for (int i = 0; i < MESSAGES;) {
        bool pushed = fw_spsc_push(ring, &message, 1) == 1;
        if (pushed) {
            i++;
        }
        /* A full queue is a reason to ring too: who sleeps on it will not make room. */
        if (fw_doorbell_ring(&bell)) {
            atomic_fetch_add_explicit(&crowd_wakes, 1, memory_order_relaxed); /* Only counted. */
            fw_unpark(&parker);
        } else if (!pushed) {
            (void)sched_yield();
        }
    }
}

static uint32_t crowd_drain(void)
{
    void *batch[BATCH];
    uint32_t count = 0;
    for (int i = 0; i < CROWD; i++) {
        count += fw_spsc_pop(&rings[i], batch, BATCH);
    }
    return count;
}

static void test_crowd(void **state)
{
    (void)state;
    struct fw_thread threads[CROWD];
    uint32_t total = 0;
    int slept = 0, answered = 0;
    atomic_init(&crowd_wakes, 0);
    fw_doorbell_init(&bell);
    fw_parker_init(&parker);
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(fw_spsc_init(&rings[i], CAPACITY), 0);
    }
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(fw_thread_create(&threads[i], "crowd", crowd_run, &rings[i]), 0);
    }
    while (total < CROWD * MESSAGES) {
        uint32_t count = crowd_drain();
        if (count == 0) {
            fw_doorbell_arm(&bell);
            count = crowd_drain();
            if (count == 0) {
                slept++;
                fw_park(&parker);
            }
            answered += fw_doorbell_disarm(&bell);
        }
        total += count;
    }
    for (int i = 0; i < CROWD; i++) {
        fw_thread_join(&threads[i]);
        fw_spsc_fini(&rings[i]);
    }
    assert_int_equal(total, CROWD * MESSAGES);
    assert_int_equal(atomic_load(&crowd_wakes), answered);
    print_message("# slept %d times, woken %d times\n", slept, answered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#if !defined(UNDER_TSAN)
        cmocka_unit_test(test_every_interleaving),
#endif
        cmocka_unit_test(test_one_sees_the_other),
        cmocka_unit_test(test_ping_pong),
        cmocka_unit_test(test_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
