/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the log of changes has every change of every item, in order, forgets the oldest and says
 * so, lets who comes back go on, and goes off when nobody can.
 * Method: a small log by itself, read with odd steps; a table whose every way to change an item is
 * taken once, with the log of it beside.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cache/changes.h"
#include "cache/operation.h"
#include "support/converse.h"

enum { SIZE = FW_CHANGES_SIZE_MIN };

static uint64_t enter(struct fw_changes *changes, uint64_t *position)
{
    uint64_t history = 0;
    bool can_go_on = true;
    *position = 0;
    assert_int_equal(fw_changes_enter(changes, SIZE, 0, &history, position, &can_go_on), 0);
    assert_false(can_go_on);
    assert_int_not_equal(history, 0);
    return history;
}

static void append(struct fw_changes *changes, uint32_t number)
{
    char key[FW_ITEM_KEY_MAX];
    memset(key, 'k', sizeof key);
    int length = snprintf(key, sizeof key, "%u", number);
    key[length] = 'k';
    fw_changes_append(changes, FW_CHANGE_KEY, number, key, (uint8_t)(8 + number % 243));
}

/* Reads all there is, and expects these numbers. */
static void expect(struct fw_changes *changes, uint64_t *position, uint32_t from, uint32_t to)
{
    char batch[FW_CHANGES_BATCH];
    for (;;) {
        int length = fw_changes_read(changes, position, batch);
        assert_true(length >= 0);
        if (length == 0) {
            break;
        }
        const char *next = batch;
        while (next < batch + length) {
            struct fw_change change;
            assert_true(fw_change_next(&next, batch + length, &change));
            assert_int_equal(change.kind, FW_CHANGE_KEY);
            assert_int_equal(change.number, from);
            assert_int_equal(change.key_length, 8 + from % 243);
            assert_int_equal(strtoul(change.key, NULL, 10), from);
            from++;
        }
    }
    assert_int_equal(from, to);
    assert_int_equal(*position, fw_changes_head(changes));
}

static void test_all_is_read_in_order_round_and_round(void **state)
{
    (void)state;
    struct fw_changes changes;
    uint64_t position;
    fw_changes_init(&changes);
    (void)enter(&changes, &position);
    uint32_t number = 0;
    for (uint32_t round = 1; round < 300; round++) {
        uint32_t first = number;
        for (uint32_t i = 0; i < round % 90; i++) {
            append(&changes, number++);
        }
        expect(&changes, &position, first, number);
    }
    assert_true(position > 4 * (uint64_t)SIZE);
    fw_changes_leave(&changes, 0, position);
    fw_changes_fini(&changes);
}

static void test_who_is_too_slow_is_told(void **state)
{
    (void)state;
    struct fw_changes changes;
    uint64_t position;
    char batch[FW_CHANGES_BATCH];
    fw_changes_init(&changes);
    (void)enter(&changes, &position);
    const uint64_t begin = position;
    for (uint32_t i = 0; fw_changes_head(&changes) + 300 < SIZE; i++) {
        append(&changes, i);
        assert_false(fw_changes_has_lost(&changes, begin));
    }
    append(&changes, 242);
    append(&changes, 242);
    assert_true(fw_changes_has_lost(&changes, begin));
    assert_int_equal(fw_changes_read(&changes, &position, batch), -EOVERFLOW);
    assert_int_equal(position, begin);
    fw_changes_leave(&changes, 0, position);
    fw_changes_fini(&changes);
}

static void test_who_comes_back_goes_on(void **state)
{
    (void)state;
    struct fw_changes changes;
    uint64_t position;
    bool can_go_on;
    fw_changes_init(&changes);
    uint64_t history = enter(&changes, &position);
    for (uint32_t i = 0; i < 10; i++) {
        append(&changes, i);
    }
    expect(&changes, &position, 0, 10);
    fw_changes_leave(&changes, 0, position);
    assert_true(fw_changes_wants(&changes, FW_CHANGES_ON));
    for (uint32_t i = 10; i < 20; i++) {
        append(&changes, i);
    }
    uint64_t claimed = position;
    assert_int_equal(fw_changes_enter(&changes, SIZE, 0, &history, &claimed, &can_go_on), 0);
    assert_true(can_go_on);
    assert_int_equal(claimed, position);
    expect(&changes, &claimed, 10, 20);
    fw_changes_leave(&changes, 0, claimed);
    /* Another history, or a position that never was, is not believed. */
    uint64_t other = history + 2;
    assert_int_equal(fw_changes_enter(&changes, SIZE, 0, &other, &position, &can_go_on), 0);
    assert_false(can_go_on);
    assert_int_equal(position, claimed);
    assert_int_equal(other, history);
    fw_changes_leave(&changes, 0, position);
    position = claimed + 1;
    assert_int_equal(fw_changes_enter(&changes, SIZE, 0, &history, &position, &can_go_on), 0);
    assert_false(can_go_on);
    fw_changes_leave(&changes, 0, position);
    fw_changes_fini(&changes);
}

static void test_it_goes_off_when_nobody_can_go_on(void **state)
{
    (void)state;
    struct fw_changes changes;
    uint64_t position;
    bool can_go_on;
    fw_changes_init(&changes);
    assert_false(fw_changes_wants(&changes, FW_CHANGES_ON));
    uint64_t history = enter(&changes, &position);
    assert_true(fw_changes_wants(&changes, FW_CHANGES_ON));
    assert_false(fw_changes_wants(&changes, FW_CHANGES_RECLAIMED));
    fw_changes_leave(&changes, 0, position);
    uint32_t number = 0;
    while (fw_changes_wants(&changes, FW_CHANGES_ON)) {
        append(&changes, number++);
        assert_true(number < SIZE);
    }
    assert_true(number > SIZE / 300);
    uint64_t before = history;
    assert_int_equal(
        fw_changes_enter(&changes, SIZE, FW_CHANGES_RECLAIMED, &history, &position, &can_go_on), 0);
    assert_false(can_go_on);
    assert_int_not_equal(history, before);
    assert_true(fw_changes_wants(&changes, FW_CHANGES_RECLAIMED));
    fw_changes_leave(&changes, FW_CHANGES_RECLAIMED, position);
    assert_false(fw_changes_wants(&changes, FW_CHANGES_RECLAIMED));
    fw_changes_fini(&changes);
}

static void test_forgetting_ends_the_history(void **state)
{
    (void)state;
    struct fw_changes changes;
    uint64_t position;
    char batch[FW_CHANGES_BATCH];
    fw_changes_init(&changes);
    uint64_t history = enter(&changes, &position);
    append(&changes, 1);
    uint64_t shown, head;
    fw_changes_look(&changes, &shown, &head);
    assert_int_equal(shown, history);
    assert_true(head > position);
    fw_changes_forget(&changes);
    fw_changes_look(&changes, &shown, &head);
    assert_int_equal(shown, 0);
    assert_false(fw_changes_wants(&changes, FW_CHANGES_ON));
    assert_int_equal(fw_changes_read(&changes, &position, batch), -EOVERFLOW);
    fw_changes_leave(&changes, 0, position);
    uint64_t after = enter(&changes, &position);
    assert_int_not_equal(after, history);
    append(&changes, 7);
    expect(&changes, &position, 7, 8);
    fw_changes_leave(&changes, 0, position);
    fw_changes_fini(&changes);
}

static void test_a_false_position_does_no_harm(void **state)
{
    (void)state;
    struct fw_changes changes;
    uint64_t position;
    char batch[FW_CHANGES_BATCH];
    fw_changes_init(&changes);
    (void)enter(&changes, &position);
    append(&changes, 242);
    append(&changes, 3);
    for (uint64_t at = 1; at < fw_changes_head(&changes); at++) {
        uint64_t from = at;
        int length = fw_changes_read(&changes, &from, batch);
        const char *next = batch;
        struct fw_change change;
        while (length > 0 && next < batch + length) {
            if (!fw_change_next(&next, batch + length, &change)) {
                break;
            }
        }
        assert_true(from <= fw_changes_head(&changes));
    }
    fw_changes_leave(&changes, 0, position);
    fw_changes_fini(&changes);
}

/* ---- what a table writes down -------------------------------------------------------------- */

struct watched {
    struct converse *converse;
    struct fw_changes *changes;
    uint64_t position;
};

static void watch(struct watched *watched, bool wants_reclaimed)
{
    uint64_t history = 0;
    bool can_go_on;
    watched->converse = converse_create();
    watched->changes = fw_table_changes(watched->converse->cache.table);
    watched->position = 0;
    assert_int_equal(fw_changes_enter(watched->changes, SIZE,
                                      wants_reclaimed ? FW_CHANGES_RECLAIMED : 0, &history,
                                      &watched->position, &can_go_on),
                     0);
}

static void unwatch(struct watched *watched, bool wanted_reclaimed)
{
    fw_changes_leave(watched->changes, wanted_reclaimed ? FW_CHANGES_RECLAIMED : 0,
                     watched->position);
    converse_destroy(watched->converse);
}

/* After these words the log has, for each change, its kind and key: "Ka Tb F". */
static void expect_changes(struct watched *watched, const char *words, const char *expected)
{
    char shown[256] = "";
    char batch[FW_CHANGES_BATCH];
    converse_say(watched->converse, words, strlen(words), 0);
    (void)converse_answer(watched->converse);
    int length = fw_changes_read(watched->changes, &watched->position, batch);
    assert_true(length >= 0);
    const char *next = batch;
    while (next < batch + length) {
        struct fw_change change;
        assert_true(fw_change_next(&next, batch + length, &change));
        size_t used = strlen(shown);
        (void)snprintf(shown + used, sizeof shown - used, "%s%c%.*s", used > 0 ? " " : "",
                       "?KTF"[change.kind], change.key_length, change.key);
    }
    assert_string_equal(shown, expected);
}

static void test_every_command_that_changes_is_written_down(void **state)
{
    (void)state;
    struct watched watched;
    watch(&watched, false);
    expect_changes(&watched, "set a 0 0 1\r\n1\r\n", "Ka");
    expect_changes(&watched, "get a\r\n", "");
    expect_changes(&watched, "set a 0 0 1\r\n2\r\n", "Ka");
    expect_changes(&watched, "add a 0 0 1\r\n2\r\n", "");
    expect_changes(&watched, "append a 0 0 1\r\n3\r\n", "Ka");
    expect_changes(&watched, "incr a 1\r\n", "Ka");
    expect_changes(&watched, "incr a 100\r\n", "Ka");
    expect_changes(&watched, "touch a 100\r\n", "Ta");
    expect_changes(&watched, "gat 100 a\r\n", "Ta");
    expect_changes(&watched, "mg a t\r\n", "");
    expect_changes(&watched, "mg a T100\r\n", "Ta");
    expect_changes(&watched, "md a I\r\n", "Ka");
    expect_changes(&watched, "mg a v\r\n", "Ta"); /* It was stale: somebody has won. */
    expect_changes(&watched, "mg a v\r\n", "");
    expect_changes(&watched, "mg b N100\r\n", "Kb Tb");
    expect_changes(&watched, "ma c N0 J5\r\n", "Kc");
    expect_changes(&watched, "delete a\r\n", "Ka");
    expect_changes(&watched, "delete a\r\n", "");
    expect_changes(&watched, "flush_all\r\n", "F");
    expect_changes(&watched, "get b\r\n", ""); /* Whoever replicates knows of the flush. */
    unwatch(&watched, false);
}

static void test_what_is_reclaimed_is_written_down_where_wanted(void **state)
{
    (void)state;
    struct watched watched;
    watch(&watched, true);
    expect_changes(&watched, "set a 0 0 1\r\n1\r\n", "Ka");
    expect_changes(&watched, "flush_all\r\n", "F");
    expect_changes(&watched, "get a\r\n", "Ka");
    expect_changes(&watched, "get a\r\n", "");
    unwatch(&watched, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_is_read_in_order_round_and_round),
        cmocka_unit_test(test_who_is_too_slow_is_told),
        cmocka_unit_test(test_who_comes_back_goes_on),
        cmocka_unit_test(test_it_goes_off_when_nobody_can_go_on),
        cmocka_unit_test(test_forgetting_ends_the_history),
        cmocka_unit_test(test_a_false_position_does_no_harm),
        cmocka_unit_test(test_every_command_that_changes_is_written_down),
        cmocka_unit_test(test_what_is_reclaimed_is_written_down_where_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
