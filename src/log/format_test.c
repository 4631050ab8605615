/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: packed and rendered, every format gives what vsnprintf() gives, to the byte, cut at the
 * same place; what cannot be packed is refused; and bytes that pack() did not write are refused.
 * Method: the same call twice, once to vsnprintf() and once through pack() and render(), over all
 * conversions, flags, stars and lengths; then the packed bytes are shortened at every length.
 */
#include "log/format.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void compare(const char *text, ...) FW_PRINTF(1, 2);

static void compare(const char *text, ...)
{
    struct fw_log_format format;
    assert_true(fw_log_format_parse(&format, text));
    static _Alignas(8) unsigned char packed[FW_LOG_PACKED_MAX];
    va_list arguments;
    va_start(arguments, text);
    size_t size = (size_t)(fw_log_pack(&format, packed, arguments) - packed);
    va_end(arguments);
    assert_int_equal(size % 8, 0);
    assert_true(size <= format.packed_max && format.packed_max <= FW_LOG_PACKED_MAX);

    char expected[FW_LOG_MESSAGE_MAX + 1];
    va_start(arguments, text);
    int wanted = vsnprintf(expected, sizeof expected, text, arguments);
    va_end(arguments);

    char out[FW_LOG_MESSAGE_MAX + 1];
    int rendered = fw_log_format_render(&format, packed, size, out);
    assert_string_equal(out, expected);
    assert_int_equal(rendered > FW_LOG_MESSAGE_MAX, wanted > FW_LOG_MESSAGE_MAX);
    if (wanted <= FW_LOG_MESSAGE_MAX) {
        assert_int_equal(rendered, wanted);
    }
    for (size_t shorter = 0; shorter < size; shorter++) {
        unsigned char *copy = malloc(shorter + 1); /* ASan knows its end. */
        assert_non_null(copy);
        memcpy(copy, packed, shorter);
        assert_int_equal(fw_log_format_render(&format, copy, shorter, out), -EBADMSG);
        free(copy);
    }
    assert_int_equal(fw_log_format_render(&format, packed, size + 8, out), -EBADMSG);
}

static void test_integers(void **state)
{
    (void)state;
    compare("nothing");
    compare("%s", "");
    compare("100 %% %d%%", 7);
    compare("%d %i %u %x %X %o", INT_MIN, INT_MAX, UINT_MAX, 0xbeef, 0xbeef, 8);
    compare("%ld %lu %lx %lld %llu", LONG_MIN, ULONG_MAX, 255L, LLONG_MIN, ULLONG_MAX);
    compare("%zu %zd %jd %td", SIZE_MAX, (ssize_t)-1, INTMAX_MIN, (ptrdiff_t)-5);
    compare("%hhd %hhu %hd %hu", (signed char)-1, (unsigned char)200, (short)-5,
            (unsigned short)60000);
    compare("%c%c", 'a', '\n');
    compare("[%5d] [%-5d] [%05d] [%+d] [% d] [%#x] [%.3d] [%8.3d]", 1, 2, 3, 4, 5, 6, 7, 8);
    compare("[%*d] [%-*d] [%.*d] [%*.*d]", 6, 1, 6, 2, 3, 3, 8, 4, 5);
    compare("[%*d] [%.*d]", -6, 1, -1, 2);
    compare("%" PRIu64 " %" PRId32 " %p %p", UINT64_C(1) << 63, INT32_MIN, (void *)state, NULL);
}

static void test_others(void **state)
{
    (void)state;
    compare("%f %e %g %a %.2f %10.3f|%-10.1f|", 1.5, -2e300, 1e-9, 1.0, 3.14159, 2.5, 9.99);
    compare("%f %F %g", INFINITY, -INFINITY, NAN);
    compare("%Lf %.10Lg", 1.25L, 1e4000L);
    compare("%.1000f|%s", 1.0, "behind");
    compare("%s and %s", "one", "two");
    compare("[%10s] [%-10s] [%.2s] [%5.1s] [%.0s]", "abc", "abc", "abc", "abc", "abc");
    compare("[%.*s] [%*s] [%-*.*s]", 2, "abc", 5, "abc", 6, 1, "abc");
    compare("[%.*s]", -1, "all of it");
    const char *volatile none = NULL; /* Where the compiler cannot see it. */
    compare("%s [%.3s] [%.6s] [%9s]", none, none, none, none);
    char unended[3] = {'x', 'y', 'z'};
    compare("%.3s %.*s", unended, 3, unended);
}

static void test_cut(void **state)
{
    (void)state;
    char longer[3 * FW_LOG_MESSAGE_MAX];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    for (int length = FW_LOG_MESSAGE_MAX - 24; length <= FW_LOG_MESSAGE_MAX + 2; length++) {
        compare("%.*s", length, longer);
        compare("%.*s%d%s", length, longer, -1234567, "tail");
        compare("%.*s%lu%5d %s", length, longer, ULONG_MAX, 12, longer);
        compare("%*d", length, 1);
    }
    compare("%s%s%s", longer, longer, longer);
    compare("%0*d", 1000000, 5);
    compare("%s %s %s %s %s %s %s %s %s %s %s %s %s %s %s %s", "1", "2", "3", "4", "5", "6", "7",
            "8", "9", "10", "11", "12", "13", "14", "15", "16");
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "%n",
        "%m",
        "%ls",
        "%lc",
        "%1$d",
        "%",
        "text %",
        "%5",
        "%.",
        "%l",
        "%Ld",
        "%hs",
        "%hf",
        "%4096d",
        "%.4096s",
        "%y",
        "%S",
        "%C",
        "%-------d",
        "%99999999999999999999d",
        "%Id",
        "%lp",
        "%*1$d",
        "%**d",
        "%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d",
        "%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%*d",
        "%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%",
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(refused); i++) {
        struct fw_log_format format;
        assert_false(fw_log_format_parse(&format, refused[i]));
    }
    static char huge[UINT16_MAX + 1];
    memset(huge, 'x', sizeof huge - 1);
    struct fw_log_format format;
    assert_false(fw_log_format_parse(&format, huge));
    huge[UINT16_MAX - 1] = '\0';
    assert_true(fw_log_format_parse(&format, huge));
}

static void test_strings_that_lie(void **state)
{
    (void)state;
    struct fw_log_format format;
    char out[FW_LOG_MESSAGE_MAX + 1];
    assert_true(fw_log_format_parse(&format, "%s"));
    static const struct {
        uint64_t length;
        const char bytes[9];
        int answer;
    } cases[] = {
        {3, "abc", 3},
        {3, "abcdefg", -EBADMSG},          /* Not ended where it says. */
        {8, "abcdefgh", -EBADMSG},         /* Nor room for the end. */
        {UINT64_MAX, "abc", -EBADMSG},     /* Would wrap. */
        {UINT64_MAX - 7, "abc", -EBADMSG}, /* Would wrap to nothing. */
        {FW_LOG_STRINGS_MAX + 1, "abc", -EBADMSG},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        unsigned char *packed = malloc(16);
        assert_non_null(packed);
        memcpy(packed, &cases[i].length, 8);
        memcpy(packed + 8, cases[i].bytes, 8);
        assert_int_equal(fw_log_format_render(&format, packed, 16, out), cases[i].answer);
        free(packed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_strings_that_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
