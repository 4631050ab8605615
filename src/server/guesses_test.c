/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: failures are counted by address and by name, forgotten in time, and delay more and more.
 * Method: failures at chosen times.
 */
#include "server/guesses.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct fw_guesses guesses;

static struct fw_address address(const char *text)
{
    struct fw_address parsed;
    assert_int_equal(fw_address_parse(text, 1, 0, &parsed, 1, NULL), 1);
    return parsed;
}

static uint32_t note(const char *peer, const char *name, int64_t now_s)
{
    struct fw_address from = address(peer);
    return fw_guesses_note(&guesses, &from, name, now_s * FW_NS_PER_S);
}

static void test_counts(void **state)
{
    (void)state;
    fw_guesses_init(&guesses, 7);
    assert_int_equal(note("10.0.0.1:1", "ann", 100), 1);
    assert_int_equal(note("10.0.0.1:2", "bob", 100), 2); /* One address, two names. */
    assert_int_equal(note("10.0.0.2:1", "cid", 100), 1);
    assert_int_equal(note("10.0.0.3:1", "ann", 100), 2); /* One name, two addresses. */
    assert_int_equal(note("[2001:db8::1]:1", "dan", 100), 1);
    assert_int_equal(note("[2001:db8::2]:1", "eve", 100), 2); /* One network. */
    assert_int_equal(note("10.0.0.1:1", "fay", 100 + FW_GUESS_FORGET_S), 3);
    assert_int_equal(note("10.0.0.1:1", "gus", 101 + 2 * FW_GUESS_FORGET_S), 1);
}

static void test_no_overflow(void **state)
{
    (void)state;
    uint32_t count = 0;
    fw_guesses_init(&guesses, 7);
    for (int i = 0; i < UINT16_MAX + 10; i++) {
        count = note("10.0.0.1:1", "ann", 100);
    }
    assert_int_equal(count, UINT16_MAX);
}

static void test_delays(void **state)
{
    (void)state;
    assert_int_equal(fw_guess_delay_ns(1), FW_GUESS_DELAY_NS);
    assert_int_equal(fw_guess_delay_ns(2), 2 * FW_GUESS_DELAY_NS);
    assert_int_equal(fw_guess_delay_ns(4), 8 * FW_GUESS_DELAY_NS);
    assert_int_equal(fw_guess_delay_ns(8), FW_GUESS_DELAY_MAX_NS);
    assert_int_equal(fw_guess_delay_ns(UINT16_MAX), FW_GUESS_DELAY_MAX_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_no_overflow),
        cmocka_unit_test(test_delays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
