/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a park never misses a token, tokens do not add up, a timed park ends; locks keep their
 * order. Method: each rule by hand, then two threads that hand a turn to and fro 20,000 times,
 * which hangs (and runs into the test's time limit) if one wake-up is lost. TSan checks the
 * ordering.
 */
#include "base/thread.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mutex.h"

enum { ROUNDS = 20000 };

static struct fw_parker ping, pong;
static int turns; /* Guarded by whose turn it is. */

static void test_tokens(void **state)
{
    (void)state;
    struct fw_parker parker;
    fw_parker_init(&parker);
    assert_false(fw_park_for(&parker, 0));
    fw_unpark(&parker);
    fw_unpark(&parker); /* Does not add up. */
    fw_park(&parker);
    assert_false(fw_park_for(&parker, 1000));
    fw_unpark(&parker);
    assert_true(fw_park_for(&parker, 0));
    assert_false(fw_park_for(&parker, 0));
}

static void pong_run(void *argument)
{
    (void)argument;
    for (int i = 0; i < ROUNDS; i++) {
        fw_park(&pong);
        turns++;
        fw_unpark(&ping);
    }
}

static void test_ping_pong(void **state)
{
    (void)state;
    struct fw_thread thread;
    fw_parker_init(&ping);
    fw_parker_init(&pong);
    turns = 0;
    assert_int_equal(fw_thread_create(&thread, "a name that is too long", pong_run, NULL), 0);
    assert_string_equal(thread.name, "a name that is ");
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(turns, i);
        fw_unpark(&pong);
        if (i % 2 == 0) {
            fw_park(&ping);
        } else {
            while (!fw_park_for(&ping, 1000)) {
            }
        }
    }
    fw_thread_join(&thread);
    assert_int_equal(turns, ROUNDS);
}

static void state_run(void *argument)
{
    *(struct fw_thread_state **)argument = fw_thread_self();
}

static void test_state_is_per_thread(void **state)
{
    (void)state;
    struct fw_thread thread;
    struct fw_thread_state *seen = NULL;
    assert_int_equal(fw_thread_create(&thread, "state", state_run, &seen), 0);
    fw_thread_join(&thread);
    assert_ptr_equal(seen, &thread.state);
    assert_ptr_not_equal(seen, fw_thread_self());
}

static void test_lock_order(void **state)
{
    (void)state;
    struct fw_mutex low, high;
    fw_mutex_init(&low, FW_RANK_METRICS);
    fw_mutex_init(&high, FW_RANK_LOG);
    fw_mutex_lock(&low);
    fw_mutex_lock(&high);
    expect_assert_failure(fw_mutex_unlock(&low)); /* Not in reverse order. */
    fw_mutex_unlock(&high);
    expect_assert_failure(fw_mutex_lock(&low)); /* Held already: same rank. */
    fw_mutex_unlock(&low);

    assert_true(fw_mutex_trylock(&high));
    expect_assert_failure(fw_mutex_lock(&low)); /* Against the order. */
    expect_assert_failure((void)fw_mutex_trylock(&low));
    fw_mutex_unlock(&high);
    fw_mutex_fini(&low);
    fw_mutex_fini(&high);
}

static struct fw_mutex contended;

static void try_run(void *argument)
{
    *(bool *)argument = fw_mutex_trylock(&contended);
}

static void test_trylock_refuses(void **state)
{
    (void)state;
    struct fw_thread thread;
    bool taken = true;
    fw_mutex_init(&contended, FW_RANK_LOG);
    fw_mutex_lock(&contended);
    assert_int_equal(fw_thread_create(&thread, "try", try_run, &taken), 0);
    fw_thread_join(&thread);
    assert_false(taken);
    fw_mutex_unlock(&contended);
    fw_mutex_fini(&contended);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_ping_pong),
        cmocka_unit_test(test_state_is_per_thread),
        cmocka_unit_test(test_lock_order),
        cmocka_unit_test(test_trylock_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
