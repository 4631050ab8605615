/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: in each layout a line says what it should, on one line, whatever is in it.
 * Method: lines made from given parts, compared byte by byte.
 */
#include "log/line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "io/clock.h"

static struct fw_log_calendar calendar;

static void check(enum fw_log_layout layout, const struct fw_log_line *line, const char *expected)
{
    char out[FW_LOG_LINE_MAX];
    size_t length = fw_log_line_make(&calendar, layout, line, out);
    assert_int_equal(length, strlen(expected));
    assert_memory_equal(out, expected, length);
}

static struct fw_log_line line_of(const char *message)
{
    return (struct fw_log_line){.wall_ns = INT64_C(1772366400) * FW_NS_PER_S + 123456789,
                                .level = FW_LOG_NOTICE,
                                .module = "server",
                                .thread = "fairway",
                                .message = message,
                                .length = strlen(message)};
}

static void test_layouts(void **state)
{
    (void)state;
    struct fw_log_line line = line_of("a \"b\" \\ \n\t\x1b\x7f");
    check(FW_LOG_LAYOUT_TEXT, &line,
          "2026-03-01T12:00:00.123456Z notice  server [fairway] a \"b\" \\ \\n\\t\\x1b\\x7f\n");
    check(FW_LOG_LAYOUT_JOURNAL, &line, "<5>server [fairway] a \"b\" \\ \\n\\t\\x1b\\x7f\n");
    check(FW_LOG_LAYOUT_JSON, &line,
          "{\"time\":\"2026-03-01T12:00:00.123456Z\",\"level\":\"notice\",\"module\":\"server\","
          "\"thread\":\"fairway\",\"message\":\"a \\\"b\\\" \\\\ \\n\\t\\u001b\x7f\"}\n");
    line.cut = true;
    line.length = 1;
    check(FW_LOG_LAYOUT_TEXT, &line, "2026-03-01T12:00:00.123456Z notice  server [fairway] a...\n");
    check(FW_LOG_LAYOUT_JSON, &line,
          "{\"time\":\"2026-03-01T12:00:00.123456Z\",\"level\":\"notice\",\"module\":\"server\","
          "\"thread\":\"fairway\",\"message\":\"a...\"}\n");
}

static void test_levels(void **state)
{
    (void)state;
    static const char *const expected[] = {"<3>m [t] x\n", "<4>m [t] x\n", "<5>m [t] x\n",
                                           "<6>m [t] x\n", "<7>m [t] x\n", "<7>m [t] x\n"};
    struct fw_log_line line = line_of("x");
    line.module = "m";
    line.thread = "t";
    for (int level = FW_LOG_ERROR; level <= FW_LOG_TRACE; level++) {
        line.level = (enum fw_log_level)level;
        check(FW_LOG_LAYOUT_JOURNAL, &line, expected[level]);
    }
}

static void test_times(void **state)
{
    (void)state;
    static const struct {
        int64_t wall_ns;
        const char *text;
    } cases[] = {
        {0, "1970-01-01T00:00:00.000000Z notice  server [fairway] x\n"},
        {999, "1970-01-01T00:00:00.000000Z notice  server [fairway] x\n"},
        {FW_NS_PER_S - 1, "1970-01-01T00:00:00.999999Z notice  server [fairway] x\n"},
        {FW_NS_PER_S, "1970-01-01T00:00:01.000000Z notice  server [fairway] x\n"},
        {-1, "1969-12-31T23:59:59.999999Z notice  server [fairway] x\n"},
        {INT64_MAX, "2262-04-11T23:47:16.854775Z notice  server [fairway] x\n"},
        {INT64_MIN, "1677-09-21T00:12:43.145224Z notice  server [fairway] x\n"},
    };
    struct fw_log_line line = line_of("x");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        line.wall_ns = cases[i].wall_ns;
        check(FW_LOG_LAYOUT_TEXT, &line, cases[i].text);
    }
}

static void test_longest(void **state)
{
    (void)state;
    char message[FW_LOG_MESSAGE_MAX + 1] = {0};
    char name[100] = {0};
    char out[FW_LOG_LINE_MAX];
    memset(message, 1, FW_LOG_MESSAGE_MAX); /* The longest escapes there are... */
    memset(name, 1, sizeof name - 1);       /* ...in names too, of which 32 bytes are shown. */
    struct fw_log_line line = line_of(message);
    line.module = name;
    line.thread = name;
    line.cut = true;
    size_t length = fw_log_line_make(&calendar, FW_LOG_LAYOUT_JSON, &line, out);
    assert_in_range(length, 6 * (FW_LOG_MESSAGE_MAX + 64), FW_LOG_LINE_MAX);
    length = fw_log_line_make(&calendar, FW_LOG_LAYOUT_TEXT, &line, out);
    assert_in_range(length, 4 * (FW_LOG_MESSAGE_MAX + 64), FW_LOG_LINE_MAX);
    assert_null(memchr(out, 1, length));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_longest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
