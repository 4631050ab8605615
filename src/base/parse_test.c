/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: every text is either the value a reader would say it is, or refused with the right error,
 * and a refused one leaves the caller's variable alone.
 * Method: tables of texts around every edge: empty, signs, spaces, rests, limits and one beyond.
 * Each text is parsed from a copy on the heap that ends with its last character, so that ASan sees
 * a look behind it.
 */
#include "base/parse.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { UNTOUCHED = 77 };

static char *exact_copy(const char *text, size_t length)
{
    char *copy = malloc(length > 0 ? length : 1);
    assert_non_null(copy);
    memcpy(copy, text, length);
    return copy;
}

static void test_uint(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t min, max;
        int rc;
        uint64_t value;
    } cases[] = {
        {"0", 0, 0, 0, 0},
        {"11211", 0, 65535, 0, 11211},
        {"65535", 0, 65535, 0, 65535},
        {"65536", 0, 65535, -ERANGE, UNTOUCHED},
        {"4", 5, 6, -ERANGE, UNTOUCHED},
        {"5", 5, 6, 0, 5},
        {"007", 0, 10, 0, 7},
        {"18446744073709551615", 0, UINT64_MAX, 0, UINT64_MAX},
        {"18446744073709551616", 0, UINT64_MAX, -ERANGE, UNTOUCHED},
        {"18446744073709551620", 0, UINT64_MAX, -ERANGE, UNTOUCHED},
        {"99999999999999999999", 0, UINT64_MAX, -ERANGE, UNTOUCHED},
        {"184467440737095516160", 0, UINT64_MAX, -ERANGE, UNTOUCHED},
        {"99999999999999999999x", 0, UINT64_MAX, -EINVAL, UNTOUCHED},
        {"", 0, 10, -EINVAL, UNTOUCHED},
        {" 1", 0, 10, -EINVAL, UNTOUCHED},
        {"1 ", 0, 10, -EINVAL, UNTOUCHED},
        {"+1", 0, 10, -EINVAL, UNTOUCHED},
        {"-1", 0, UINT64_MAX, -EINVAL, UNTOUCHED},
        {"-0", 0, 10, -EINVAL, UNTOUCHED},
        {"1.0", 0, 10, -EINVAL, UNTOUCHED},
        {"0x1", 0, 10, -EINVAL, UNTOUCHED},
        {"1/", 0, 10, -EINVAL, UNTOUCHED}, /* The neighbours of the digits in ASCII. */
        {"1:", 0, 10, -EINVAL, UNTOUCHED},
        {"1\xb1", 0, 10, -EINVAL, UNTOUCHED},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        size_t length = strlen(cases[i].text);
        char *copy = exact_copy(cases[i].text, length);
        uint64_t value = UNTOUCHED;
        assert_int_equal(fw_parse_uint(copy, length, cases[i].min, cases[i].max, &value),
                         cases[i].rc);
        assert_true(value == cases[i].value);
        free(copy);
    }
}

static void test_int(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t min, max;
        int rc;
        int64_t value;
    } cases[] = {
        {"0", -1, 1, 0, 0},
        {"-0", -1, 1, 0, 0},
        {"-1", -1, 1, 0, -1},
        {"-2", -1, 1, -ERANGE, UNTOUCHED},
        {"2", -1, 1, -ERANGE, UNTOUCHED},
        {"9223372036854775807", INT64_MIN, INT64_MAX, 0, INT64_MAX},
        {"9223372036854775808", INT64_MIN, INT64_MAX, -ERANGE, UNTOUCHED},
        {"-9223372036854775808", INT64_MIN, INT64_MAX, 0, INT64_MIN},
        {"-9223372036854775809", INT64_MIN, INT64_MAX, -ERANGE, UNTOUCHED},
        {"-18446744073709551616", INT64_MIN, INT64_MAX, -ERANGE, UNTOUCHED},
        {"", -1, 1, -EINVAL, UNTOUCHED},
        {"-", -1, 1, -EINVAL, UNTOUCHED},
        {"--1", -1, 1, -EINVAL, UNTOUCHED},
        {"+1", -1, 1, -EINVAL, UNTOUCHED},
        {"- 1", -1, 1, -EINVAL, UNTOUCHED},
        {"1-", -1, 1, -EINVAL, UNTOUCHED},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        size_t length = strlen(cases[i].text);
        char *copy = exact_copy(cases[i].text, length);
        int64_t value = UNTOUCHED;
        assert_int_equal(fw_parse_int(copy, length, cases[i].min, cases[i].max, &value),
                         cases[i].rc);
        assert_true(value == cases[i].value);
        free(copy);
    }
}

/* Of an empty text no byte is looked at: ASan guards the one behind the block. */
static void test_empty(void **state)
{
    (void)state;
    char *block = malloc(1);
    assert_non_null(block);
    const char *text = block + 1;
    uint64_t natural = UNTOUCHED;
    int64_t number = UNTOUCHED;
    bool truth = true;
    assert_int_equal(fw_parse_uint(text, 0, 0, 1, &natural), -EINVAL);
    assert_int_equal(fw_parse_octal(text, 0, 1, &natural), -EINVAL);
    assert_int_equal(fw_parse_size(text, 0, 1, &natural), -EINVAL);
    assert_int_equal(fw_parse_int(text, 0, 0, 1, &number), -EINVAL);
    assert_int_equal(fw_parse_duration(text, 0, 1, &number), -EINVAL);
    assert_int_equal(fw_parse_bool(text, 0, &truth), -EINVAL);
    assert_int_equal(natural, UNTOUCHED);
    assert_int_equal(number, UNTOUCHED);
    assert_true(truth);
    free(block);
}

static void test_octal(void **state)
{
    (void)state;
    uint64_t value = UNTOUCHED;
    assert_int_equal(fw_parse_octal("8", 1, 0777, &value), -EINVAL);
    assert_int_equal(fw_parse_octal("1000", 4, 0777, &value), -ERANGE);
    assert_int_equal(fw_parse_octal("", 0, 0777, &value), -EINVAL);
    assert_int_equal(value, UNTOUCHED);
    assert_int_equal(fw_parse_octal("0700", 4, 0777, &value), 0);
    assert_int_equal(value, 0700);
    assert_int_equal(fw_parse_octal("777", 3, 0777, &value), 0);
    assert_int_equal(value, 0777);
}

static void test_size(void **state)
{
    (void)state;
    static const uint64_t kib = 1024, mib = kib * kib, gib = mib * kib, tib = gib * kib;
    const struct {
        const char *text;
        uint64_t unit;
        int rc;
        uint64_t value;
    } cases[] = {
        {"0", mib, 0, 0},
        {"64", mib, 0, 64 * mib}, /* memcached -m 64 */
        {"64", 1, 0, 64},
        {"1m", 1, 0, mib}, /* memcached -I 1m */
        {"500k", 1, 0, 500 * kib},
        {"500K", mib, 0, 500 * kib},
        {"7b", mib, 0, 7},
        {"7kb", 1, 0, 7 * kib},
        {"7KiB", 1, 0, 7 * kib},
        {"7MB", 1, 0, 7 * mib},
        {"7MiB", 1, 0, 7 * mib},
        {"7g", 1, 0, 7 * gib},
        {"7GiB", 1, 0, 7 * gib},
        {"7t", 1, 0, 7 * tib},
        {"16777215t", 1, 0, 16777215 * tib},
        {"16777216t", 1, -ERANGE, UNTOUCHED},
        {"18446744073709551616", 1, -ERANGE, UNTOUCHED},
        {"", 1, -EINVAL, UNTOUCHED},
        {"k", 1, -EINVAL, UNTOUCHED},
        {"1 k", 1, -EINVAL, UNTOUCHED},
        {"1kk", 1, -EINVAL, UNTOUCHED},
        {"1ki", 1, -EINVAL, UNTOUCHED},
        {"1bb", 1, -EINVAL, UNTOUCHED},
        {"1.5g", 1, -EINVAL, UNTOUCHED},
        {"-1k", 1, -EINVAL, UNTOUCHED},
        {"1x", 1, -EINVAL, UNTOUCHED},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        size_t length = strlen(cases[i].text);
        char *copy = exact_copy(cases[i].text, length);
        uint64_t value = UNTOUCHED;
        assert_int_equal(fw_parse_size(copy, length, cases[i].unit, &value), cases[i].rc);
        assert_true(value == cases[i].value);
        free(copy);
    }
}

static void test_duration(void **state)
{
    (void)state;
    static const int64_t second = 1000000000;
    const struct {
        const char *text;
        int64_t unit_ns;
        int rc;
        int64_t value;
    } cases[] = {
        {"0", second, 0, 0},
        {"10", second, 0, 10 * second},
        {"10", 1, 0, 10},
        {"10ns", second, 0, 10},
        {"10us", 1, 0, 10000},
        {"10ms", 1, 0, 10000000},
        {"10s", 1, 0, 10 * second},
        {"10m", 1, 0, 600 * second},
        {"10h", 1, 0, 36000 * second},
        {"10D", 1, 0, 864000 * second},
        {"9223372036854775807ns", 1, 0, INT64_MAX},
        {"9223372036854775808ns", 1, -ERANGE, UNTOUCHED},
        {"106751d", 1, 0, 106751 * (86400 * second)},
        {"106752d", 1, -ERANGE, UNTOUCHED},
        {"", 1, -EINVAL, UNTOUCHED},
        {"s", 1, -EINVAL, UNTOUCHED},
        {"1 s", 1, -EINVAL, UNTOUCHED},
        {"-1s", 1, -EINVAL, UNTOUCHED},
        {"1min", 1, -EINVAL, UNTOUCHED},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        size_t length = strlen(cases[i].text);
        char *copy = exact_copy(cases[i].text, length);
        int64_t value = UNTOUCHED;
        assert_int_equal(fw_parse_duration(copy, length, cases[i].unit_ns, &value), cases[i].rc);
        assert_true(value == cases[i].value);
        free(copy);
    }
}

static void test_bool(void **state)
{
    (void)state;
    static const char *const yes[] = {"yes", "true", "on", "1", "YES", "True", "oN"};
    static const char *const no[] = {"no", "false", "off", "0", "NO"};
    static const char *const neither[] = {"", "y", "n", "2", "01", "yes ", "truex", "tru"};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(yes); i++) {
        bool value = false;
        assert_int_equal(fw_parse_bool(yes[i], strlen(yes[i]), &value), 0);
        assert_true(value);
    }
    for (size_t i = 0; i < FW_ARRAY_LENGTH(no); i++) {
        bool value = true;
        assert_int_equal(fw_parse_bool(no[i], strlen(no[i]), &value), 0);
        assert_false(value);
    }
    for (size_t i = 0; i < FW_ARRAY_LENGTH(neither); i++) {
        bool value = true;
        assert_int_equal(fw_parse_bool(neither[i], strlen(neither[i]), &value), -EINVAL);
        assert_true(value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uint),  cmocka_unit_test(test_int),  cmocka_unit_test(test_empty),
        cmocka_unit_test(test_octal), cmocka_unit_test(test_size), cmocka_unit_test(test_duration),
        cmocka_unit_test(test_bool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
