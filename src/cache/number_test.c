/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: numbers are read as memcached reads them, oddities included. Method: a table of texts with
 * what each of the four readings makes of them.
 */
#include "cache/number.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

#define U64_MAX "18446744073709551615"

struct reading {
    const char *text;
    size_t length;
    bool is_unsigned; /* It is a number as such. */
    bool is_signed;
    uint64_t unsigned_value;
    int64_t signed_value;
};

#define READING(string, is_u, u, is_s, s)                                      \
    {                                                                          \
        .text = (string), .length = sizeof(string) - 1, .is_unsigned = (is_u), \
        .unsigned_value = (u), .is_signed = (is_s), .signed_value = (s)        \
    }

static const struct reading readings[] = {
    READING("0", true, 0, true, 0),
    READING("7", true, 7, true, 7),
    READING("0042", true, 42, true, 42),
    READING("+5", true, 5, true, 5),
    READING("-5", false, 0, true, -5),
    READING("-0", true, 0, true, 0),
    READING(" \t\n\v\f\r5", true, 5, true, 5),
    READING("5 x", true, 5, true, 5),
    READING("5\tx", true, 5, true, 5),
    READING("5\r", true, 5, true, 5),
    READING("5\0x", true, 5, true, 5),
    READING("5x", false, 0, false, 0),
    READING("x", false, 0, false, 0),
    READING("", false, 0, false, 0),
    READING(" ", false, 0, false, 0),
    READING("+", false, 0, false, 0),
    READING("-", false, 0, false, 0),
    READING("+-5", false, 0, false, 0),
    READING("- 5", false, 0, false, 0),
    READING("0x10", false, 0, false, 0),
    READING("4294967295", true, 4294967295, true, 4294967295),
    READING("4294967297", true, 4294967297, true, 4294967297),
    READING("9223372036854775807", true, INT64_MAX, true, INT64_MAX),
    READING("9223372036854775808", true, UINT64_C(1) << 63, false, 0),
    READING("-9223372036854775808", false, 0, true, INT64_MIN),
    READING("-9223372036854775809", true, INT64_MAX, false, 0),
    READING(U64_MAX, true, UINT64_MAX, false, 0),
    READING("18446744073709551616", false, 0, false, 0),
    READING("99999999999999999999", false, 0, false, 0),
    READING("-" U64_MAX, true, 1, false, 0),
    READING("000000000000000000000000000009", true, 9, true, 9),
};

static void test_readings(void **state)
{
    (void)state;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(readings); i++) {
        const struct reading *reading = &readings[i];
        uint64_t u64 = 77;
        uint32_t u32 = 77;
        int64_t i64 = 77;
        int32_t i32 = 77;
        assert_int_equal(fw_number_u64(reading->text, reading->length, &u64), reading->is_unsigned);
        assert_int_equal(fw_number_u32(reading->text, reading->length, &u32), reading->is_unsigned);
        assert_int_equal(fw_number_i64(reading->text, reading->length, &i64), reading->is_signed);
        assert_int_equal(fw_number_i32(reading->text, reading->length, &i32), reading->is_signed);
        assert_int_equal(u64, reading->is_unsigned ? reading->unsigned_value : 77);
        assert_int_equal(u32, reading->is_unsigned ? (uint32_t)reading->unsigned_value : 77);
        assert_int_equal(i64, reading->is_signed ? reading->signed_value : 77);
        assert_int_equal(i32, reading->is_signed ? (int32_t)reading->signed_value : 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_readings)};
    return cmocka_run_group_tests_name("number", tests, NULL, NULL);
}
