/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a server tells of an item becomes that item, and an item becomes the command that
 * stores it so; wrong lines are told apart from right ones.
 * Method: lines as memcached and Fairway write them, and lines with one thing wrong.
 */
#include "cache/dump_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

enum { NOW = 1000000 };

static char key[FW_ITEM_KEY_MAX];

static bool reads(const char *line, struct fw_dump_item *item)
{
    return fw_dump_wire_read(line, strlen(line), NOW, item, key);
}

static void test_reads_items(void **state)
{
    (void)state;
    struct fw_dump_item item;
    assert_true(reads("VA 3 kfoo f7 t100 c12 h1 l40", &item));
    assert_int_equal(item.key_length, 3);
    assert_memory_equal(item.key, "foo", 3);
    assert_int_equal(item.value_length, 3);
    assert_int_equal(item.flags, 7);
    assert_int_equal(item.expires_s, NOW + 100);
    assert_int_equal(item.accessed_s, NOW - 40);
    assert_int_equal(item.cas, 12);
    assert_int_equal(item.bits, FW_DUMP_FETCHED);

    assert_true(
        reads("VA 0 kYSBi b f4294967295 t-1 c18446744073709551615 h0 l4294967295 X Z W O1", &item));
    assert_int_equal(item.key_length, 3);
    assert_memory_equal(item.key, "a b", 3);
    assert_int_equal(item.value_length, 0);
    assert_int_equal(item.flags, UINT32_MAX);
    assert_int_equal(item.expires_s, 0);
    assert_int_equal(item.accessed_s, 0);
    assert_true(item.cas == UINT64_MAX);
    assert_int_equal(item.bits, FW_DUMP_BINARY | FW_DUMP_STALE | FW_DUMP_WON);
    assert_true(reads("VA 1073741824 ka", &item));
}

static void test_refuses_lines(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "VA",
        "EN",
        "HD kfoo",
        "VA kfoo",
        "VA 3",
        "VA x kfoo",
        "VA -1 kfoo",
        "VA 3 k",
        "VA 1073741825 kfoo",
        "VA 3 kfoo f",
        "VA 3 kfoo f-1",
        "VA 3 kfoo t",
        "VA 3 kfoo t-2",
        "VA 3 kfoo f4294967296",
        "VA 3 kfoo c18446744073709551616",
        "VA 3 kfoo lx",
        "VA 3 kY b",
        "VA 3 k*** b",
        "VAX 3 kfoo",
    };
    struct fw_dump_item item;
    char line[FW_DUMP_LINE_MAX];
    for (size_t i = 0; i < FW_ARRAY_LENGTH(wrong); i++) {
        assert_false(reads(wrong[i], &item));
    }
    (void)snprintf(line, sizeof line, "VA 3 k%0250d", 1);
    assert_true(reads(line, &item));
    (void)snprintf(line, sizeof line, "VA 3 k%0251d", 1);
    assert_false(reads(line, &item));
    (void)snprintf(line, sizeof line, "VA 3 k%0336d b", 1);
    assert_false(reads(line, &item)); /* 252 bytes. */
    (void)snprintf(line, sizeof line, "VA 3 k%0800d b", 1);
    assert_false(reads(line, &item));
}

static size_t key_of(const char *line)
{
    return fw_dump_wire_read_key(line, strlen(line), key);
}

static void test_reads_keys(void **state)
{
    (void)state;
    char line[FW_DUMP_LINE_MAX];
    assert_int_equal(key_of("key=foo%20b%2Fr exp=-1 la=1 cas=2 fetch=no cls=1 size=9"), 7);
    assert_memory_equal(key, "foo b/r", 7);
    assert_int_equal(key_of("key=%fF"), 1);
    assert_memory_equal(key, "\xff", 1);
    assert_int_equal(key_of("key= exp=1"), 0);
    assert_int_equal(key_of("key=a%2"), 0);
    assert_int_equal(key_of("key=a%2 exp"), 0);
    assert_int_equal(key_of("key=a%gg"), 0);
    assert_int_equal(key_of("END"), 0);
    assert_int_equal(key_of(""), 0);
    (void)snprintf(line, sizeof line, "key=%0250d exp=-1", 1);
    assert_int_equal(key_of(line), 250);
    (void)snprintf(line, sizeof line, "key=%0251d exp=-1", 1);
    assert_int_equal(key_of(line), 0);
}

static void assert_get(const char *bytes, const char *expected)
{
    char line[FW_DUMP_LINE_MAX];
    *fw_dump_wire_put_get(line, bytes, strlen(bytes)) = '\0';
    assert_string_equal(line, expected);
}

static void test_asks(void **state)
{
    (void)state;
    assert_get("foo", "mg foo k f t c h l v u q\r\n");
    assert_get("a b", "mg YSBi b k f t c h l v u q\r\n");
    assert_get("a\x7f\xff", "mg a\x7f\xff k f t c h l v u q\r\n");
}

static void assert_set(const struct fw_dump_item *item, bool adds, const char *expected)
{
    char line[FW_DUMP_LINE_MAX];
    char *end = fw_dump_wire_put_set(line, item, NOW, adds);
    if (expected == NULL) {
        assert_null(end);
        return;
    }
    assert_non_null(end);
    *end = '\0';
    assert_string_equal(line, expected);
}

static void test_stores(void **state)
{
    (void)state;
    const int64_t month = INT64_C(30) * 86400;
    struct fw_dump_item item = {.key = "foo", .key_length = 3, .value_length = 5};
    assert_set(&item, false, "ms foo 5 q\r\n");
    assert_set(&item, true, "ms foo 5 ME q\r\n");
    item.flags = UINT32_MAX;
    item.expires_s = NOW + 1;
    assert_set(&item, false, "ms foo 5 F4294967295 T1 q\r\n");
    item.flags = 0;
    item.expires_s = NOW;
    assert_set(&item, false, NULL);
    item.expires_s = NOW + month;
    assert_set(&item, false, "ms foo 5 T2592000 q\r\n");
    item.expires_s = NOW + month + 1;
    assert_set(&item, false, "ms foo 5 T3592001 q\r\n");
    item.expires_s = INT64_MAX;
    assert_set(&item, false, "ms foo 5 q\r\n");
    item.expires_s = 0;
    item.bits = FW_DUMP_BINARY;
    assert_set(&item, false, "ms Zm9v 5 b q\r\n");
    item.bits = 0;
    item.key = "a\nb";
    assert_set(&item, false, "ms YQpi 5 b q\r\n");

    char longest[FW_ITEM_KEY_MAX];
    char line[FW_DUMP_LINE_MAX];
    memset(longest, '\0', sizeof longest);
    item = (struct fw_dump_item){.key = longest,
                                 .key_length = FW_ITEM_KEY_MAX,
                                 .value_length = FW_DUMP_VALUE_MAX,
                                 .flags = UINT32_MAX,
                                 .expires_s = NOW + month};
    assert_true(fw_dump_wire_put_set(line, &item, NOW, true) < line + sizeof line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_items), cmocka_unit_test(test_refuses_lines),
        cmocka_unit_test(test_reads_keys),  cmocka_unit_test(test_asks),
        cmocka_unit_test(test_stores),
    };
    return cmocka_run_group_tests_name("cache/dump_wire", tests, NULL, NULL);
}
