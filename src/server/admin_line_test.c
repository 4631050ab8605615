/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: lines are found however they are cut into pieces, and what is no line is said to be none.
 * Method: all of it in pieces of every size; then the limits, one byte at each side of them.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "io/clock.h"
#include "server/admin_line.h"

static char line[FW_JOBS_COMMAND_SIZE];

static void give(struct fw_admin_input *input, const char *bytes, size_t length)
{
    size_t room;
    char *place = fw_admin_input_room(input, &room);
    assert_true(length <= room);
    memcpy(place, bytes, length);
    fw_admin_input_received(input, length);
}

static void test_pieces(void **state)
{
    (void)state;
    static const char all[] = "status\njson pools\r\n\n\001\nset a 1\n";
    static const struct {
        enum fw_admin_input_line found;
        const char *text;
    } expected[] = {{FW_ADMIN_LINE, "status"},
                    {FW_ADMIN_LINE, "json pools"},
                    {FW_ADMIN_LINE, ""},
                    {FW_ADMIN_STRANGE, NULL},
                    {FW_ADMIN_LINE, "set a 1"}};
    for (size_t step = 1; step < sizeof all; step++) {
        struct fw_admin_input input = {.length = 0};
        size_t next = 0;
        for (size_t i = 0; i < sizeof all - 1; i += step) {
            size_t left = sizeof all - 1 - i;
            give(&input, all + i, left < step ? left : step);
            enum fw_admin_input_line found;
            while ((found = fw_admin_input_next(&input, line)) != FW_ADMIN_NONE) {
                assert_true(next < FW_ARRAY_LENGTH(expected));
                assert_int_equal(found, expected[next].found);
                if (found == FW_ADMIN_LINE) {
                    assert_string_equal(line, expected[next].text);
                }
                next++;
            }
        }
        assert_int_equal(next, FW_ARRAY_LENGTH(expected));
    }
}

/* A line of so many characters, with this end, and then another. */
static enum fw_admin_input_line found_of(size_t length, const char *end)
{
    struct fw_admin_input input = {.length = 0};
    for (size_t i = 0; i < length; i++) {
        give(&input, "x", 1);
        assert_int_equal(fw_admin_input_next(&input, line), FW_ADMIN_NONE);
    }
    for (; *end != '\0'; end++) {
        assert_int_equal(fw_admin_input_next(&input, line), FW_ADMIN_NONE);
        give(&input, end, 1);
    }
    enum fw_admin_input_line found = fw_admin_input_next(&input, line);
    if (found == FW_ADMIN_LINE) {
        assert_int_equal(strlen(line), length);
    }
    give(&input, "after\n", 6);
    assert_int_equal(fw_admin_input_next(&input, line), FW_ADMIN_LINE);
    assert_string_equal(line, "after");
    return found;
}

static void test_limits(void **state)
{
    (void)state;
    static const char *const ends[] = {"\n", "\r\n"};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(ends); i++) {
        assert_int_equal(found_of(FW_ADMIN_LINE_MAX, ends[i]), FW_ADMIN_LINE);
        assert_int_equal(found_of(FW_ADMIN_LINE_MAX + 1, ends[i]), FW_ADMIN_LONG);
        assert_int_equal(found_of(FW_ADMIN_LINE_MAX + 2, ends[i]), FW_ADMIN_LONG);
        assert_int_equal(found_of(5 * (size_t)FW_ADMIN_LINE_MAX, ends[i]), FW_ADMIN_LONG);
    }
}

static void test_every(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int rc;
        int64_t interval_ms;
        const char *command;
    } cases[] = {
        {"status", 0, 0, "status"},
        {"  every 2 json status ", 0, 2000, "json status "},
        {"every  100ms  status", 0, 100, "status"},
        {"every 1d status", 0, 86400000, "status"},
        {"everything", 0, 0, "everything"},
        {"every", 0, 0, "every"},
        {"every 99ms status", -EINVAL, 0, NULL},
        {"every 86401 status", -EINVAL, 0, NULL},
        {"every 5s", -EINVAL, 0, NULL},
        {"every 5s ", -EINVAL, 0, NULL},
        {"every status", -EINVAL, 0, NULL},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        int64_t interval_ns = -1;
        const char *command = NULL;
        assert_int_equal(fw_admin_every(cases[i].line, &interval_ns, &command), cases[i].rc);
        if (cases[i].rc == 0) {
            assert_int_equal(interval_ns, cases[i].interval_ms * FW_NS_PER_MS);
            assert_string_equal(command, cases[i].command);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_every),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
