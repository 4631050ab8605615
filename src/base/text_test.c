/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a text never leaves its memory, is a string at all times, tells once and for all that
 * something was cut, and writes every number right.
 * Method: each kind of piece into memory of every size from 1 to more than enough, with guard bytes
 * behind; then numbers beside printf at all powers of two and ten and their neighbours.
 */
#include "base/text.h"

#include <inttypes.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

enum { GUARD = 0x5a, MEMORY_SIZE = 64 };

static char memory[MEMORY_SIZE];
static struct fw_text text;

static void begin(size_t size)
{
    memset(memory, GUARD, sizeof memory);
    fw_text_init(&text, memory, size);
}

/* The text is `expected` and ends where it says; what is behind its memory is as it was. */
static void check(const char *expected, bool truncated)
{
    assert_int_equal(text.length, strlen(expected));
    assert_memory_equal(text.data, expected, text.length + 1);
    assert_int_equal(text.truncated, truncated);
    assert_int_equal(fw_text_room(&text), text.size - 1 - text.length);
    for (size_t i = text.size; i < sizeof memory; i++) {
        assert_int_equal(memory[i], GUARD);
    }
}

static void append_bytes(void)
{
    fw_text_append(&text, "0123456789", 10);
}

static void append_string(void)
{
    fw_text_append_string(&text, "0123456789");
}

static void append_chars(void)
{
    for (const char *digit = "0123456789"; *digit != '\0'; digit++) {
        fw_text_append_char(&text, *digit);
    }
}

static void append_printf(void)
{
    fw_text_printf(&text, "%s%d", "01234", 56789);
}

static void append_unsigned(void)
{
    fw_text_append_unsigned(&text, 1234567890);
}

static void append_signed(void)
{
    fw_text_append_signed(&text, -123456789);
}

static void test_every_size(void **state)
{
    (void)state;
    static const struct {
        void (*append)(void);
        const char *expected;
        bool cut; /* What does not fit is cut; else it is left out. */
    } cases[] = {
        {append_bytes, "0123456789", true},     {append_string, "0123456789", true},
        {append_chars, "0123456789", true},     {append_printf, "0123456789", true},
        {append_unsigned, "1234567890", false}, {append_signed, "-123456789", false},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        for (size_t size = 1; size <= 13; size++) { /* 11 is enough. */
            char expected[16];
            bool fits = size > 10;
            size_t keep = fits ? 10 : cases[i].cut ? size - 1 : 0;
            begin(size);
            check("", false);
            cases[i].append();
            (void)snprintf(expected, sizeof expected, "%.*s", (int)keep, cases[i].expected);
            check(expected, !fits);

            /* Nothing gets behind a gap, even if it would fit; clearing makes a new start. */
            size_t room = fw_text_room(&text);
            fw_text_append_char(&text, '!');
            fw_text_append_unsigned(&text, 7);
            fw_text_append_signed(&text, -7);
            fw_text_printf(&text, "?");
            if (!fits) {
                check(expected, true);
            } else {
                assert_int_equal(text.truncated, room < 5);
            }
            fw_text_clear(&text);
            check("", false);
        }
    }
}

/* A number that did not fit leaves room that later pieces must not use either. */
static void test_number_cut_is_final(void **state)
{
    (void)state;
    begin(4);
    fw_text_append_unsigned(&text, 1000);
    check("", true);
    fw_text_append_string(&text, "a");
    fw_text_append_unsigned(&text, 1);
    fw_text_printf(&text, "b");
    check("", true);
    fw_text_clear(&text);
    fw_text_append_unsigned(&text, 999);
    check("999", false);

    begin(4);
    fw_text_append_signed(&text, -100); /* Its digits would fit, its sign does not. */
    check("", true);
}

static void test_pieces_follow_each_other(void **state)
{
    (void)state;
    begin(40);
    fw_text_append_string(&text, "VALUE ");
    fw_text_append(&text, "key and more", 3);
    fw_text_append(&text, NULL, 0);
    fw_text_append_string(&text, "");
    fw_text_append_char(&text, ' ');
    fw_text_append_unsigned(&text, 0);
    fw_text_printf(&text, " %u\r\n", 1024u);
    fw_text_append_signed(&text, -1);
    fw_text_append_signed(&text, 1);
    check("VALUE key 0 1024\r\n-11", false);

    begin(10); /* A zero byte is a byte like any other. */
    fw_text_append(&text, "a\0b", 3);
    assert_int_equal(text.length, 3);
    assert_memory_equal(text.data, "a\0b", 4);
}

static void check_number(uint64_t value)
{
    char expected[24], digits[FW_TEXT_DECIMAL_MAX + 1];
    (void)snprintf(expected, sizeof expected, "%" PRIu64, value);
    begin(sizeof memory);
    fw_text_append_unsigned(&text, value);
    check(expected, false);

    memset(digits, GUARD, sizeof digits);
    size_t length = fw_text_decimal(digits, value);
    assert_int_equal(length, strlen(expected));
    assert_memory_equal(digits, expected, length);
    assert_int_equal(digits[length], GUARD);

    (void)snprintf(expected, sizeof expected, "%" PRId64, (int64_t)value);
    begin(strlen(expected) + 1); /* An exact fit. */
    fw_text_append_signed(&text, (int64_t)value);
    check(expected, false);
}

static void test_numbers(void **state)
{
    (void)state;
    for (uint64_t value = 0; value < 20000; value++) {
        check_number(value);
    }
    for (int bit = 0; bit < 64; bit++) {
        for (uint64_t delta = 0; delta < 3; delta++) {
            check_number((UINT64_C(1) << bit) + delta - 1);
            check_number(-((UINT64_C(1) << bit) + delta - 1));
        }
    }
    uint64_t power = 1;
    for (int digits = 1; digits <= 20; digits++, power *= 10) {
        check_number(power - 1);
        check_number(power);
        check_number(power + 1);
    }
    check_number(UINT64_MAX);
    check_number((uint64_t)INT64_MIN);
}

static void test_misuse(void **state)
{
    (void)state;
    expect_assert_failure(fw_text_init(&text, memory, 0));
    begin(8);
    text.length = 8;
    expect_assert_failure(fw_text_append_char(&text, 'a'));
#if defined(FW_CHECKS)
    begin(8);
    memory[0] = 'a'; /* Somebody wrote past the text without telling it. */
    expect_assert_failure(fw_text_append_char(&text, 'a'));
    expect_assert_failure(fw_text_append_unsigned(&text, 1));
    expect_assert_failure(fw_text_printf(&text, "a"));
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_size),
        cmocka_unit_test(test_number_cut_is_final),
        cmocka_unit_test(test_pieces_follow_each_other),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
