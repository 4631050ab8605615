/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: of two threads that each write one word and read the other's, at least one sees the other,
 * with the light fence on one side and the heavy on the other, whether the kernel helps or not.
 * Method: the two meet at an atomic and race, many rounds; once before prepare(), when light is a
 * true fence, and once after. Without the fences both miss in some round of most runs, provided
 * that the two threads really run at the same time.
 */
#include "base/fence.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/thread.h"

enum { ROUNDS = 20000, SPINS = 2000, DELAYS = 300 };

static struct {
    _Atomic uint32_t round;   /* The round that may begin. */
    _Atomic uint32_t arrived; /* The last round that the other thread has ended. */
    _Atomic uint32_t often;
    _Atomic uint32_t seldom;
    uint32_t often_saw[ROUNDS + 1];
} game;

/* Spins for a while, so that the two come out of it together; but not until a time slice ends. */
static void wait_for(_Atomic uint32_t *word, uint32_t value)
{
    for (uint32_t i = 1; atomic_load_explicit(word, memory_order_acquire) != value; i++) {
        if (i % SPINS == 0) {
            (void)sched_yield();
        }
    }
}

static void often_run(void *argument)
{
    (void)argument;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        wait_for(&game.round, round);
        atomic_store_explicit(&game.often, round, memory_order_relaxed);
        fw_fence_light();
        game.often_saw[round] = atomic_load_explicit(&game.seldom, memory_order_relaxed);
        atomic_store_explicit(&game.arrived, round, memory_order_release);
    }
}

static void play(void)
{
    struct fw_thread thread;
    atomic_store(&game.round, 0);
    atomic_store(&game.arrived, 0);
    atomic_store(&game.often, 0);
    atomic_store(&game.seldom, 0);
    assert_int_equal(fw_thread_create(&thread, "often", often_run, NULL), 0);
    uint32_t both_missed = 0;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        atomic_store_explicit(&game.round, round, memory_order_release);
        for (uint32_t i = 0; i < round % DELAYS; i++) { /* About as long as the news takes. */
            atomic_signal_fence(memory_order_seq_cst);
            (void)atomic_load_explicit(&game.seldom, memory_order_relaxed);
        }
        atomic_store_explicit(&game.seldom, round, memory_order_relaxed);
        fw_fence_heavy();
        uint32_t saw = atomic_load_explicit(&game.often, memory_order_relaxed);
        wait_for(&game.arrived, round);
        both_missed += saw != round && game.often_saw[round] != round;
    }
    fw_thread_join(&thread);
    assert_int_equal(both_missed, 0);
}

static void test_one_sees_the_other(void **state)
{
    (void)state;
    assert_false(atomic_load(&fw_fence_is_asymmetric));
    play();
    fw_fence_prepare();
    fw_fence_prepare(); /* Harmless. */
    play();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_sees_the_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
