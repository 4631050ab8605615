/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a master puts into the stream makes a slave's item the same; other servers get nothing
 * that would offend them; and any bytes are decoded, refused or waited for.
 * Method: two caches without a server; items of all kinds go from the one to the other, and are
 * compared by what clients see of them. Then damaged and cut messages.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/endian.h"
#include "cache/changes.h"
#include "cache/operation.h"
#include "io/clock.h"
#include "repl/ages.h"
#include "repl/apply.h"
#include "support/converse.h"

enum { LARGE = 20000 };

struct pair {
    struct converse *master, *slave;
    struct fw_repl_ageing ageing;
};

static int set_up(void **state)
{
    struct pair *pair = calloc(1, sizeof *pair);
    pair->master = converse_create();
    pair->slave = converse_create();
    *state = pair;
    return 0;
}

static int tear_down(void **state)
{
    struct pair *pair = *state;
    converse_destroy(pair->master);
    converse_destroy(pair->slave);
    free(pair);
    return 0;
}

static const char *say(struct converse *converse, const char *words)
{
    converse_say(converse, words, strlen(words), 0);
    return converse_answer(converse);
}

/* All bytes of the master's reply, gathered; returns how many. */
static size_t gather(struct pair *pair, char *bytes)
{
    struct fw_reply *reply = &pair->master->local.reply;
    uint32_t count = fw_reply_finish(reply);
    size_t length = 0;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(bytes + length, reply->pieces[i].iov_base, reply->pieces[i].iov_len);
        length += reply->pieces[i].iov_len;
    }
    fw_reply_clear(reply);
    return length;
}

static void apply(struct pair *pair, const char *bytes, size_t length)
{
    struct fw_cache_local *local = &pair->slave->local;
    while (length > 0) {
        struct fw_repl_message message;
        assert_int_equal(fw_repl_decode(bytes, length, &message), FW_REPL_MESSAGE);
        size_t size = message.size;
        if (message.is_large) {
            struct fw_body *body = fw_body_create(local->table, message.value_length);
            assert_non_null(body);
            memcpy(body->bytes, message.value, message.value_length);
            size += message.value_length;
            assert_int_equal(fw_repl_apply_large(local, &message, body), 0);
        } else if (message.opcode == FW_REPL_READ) {
            assert_int_equal(fw_repl_ageing_apply(&pair->ageing, local, &message), 0);
        } else {
            assert_int_equal(fw_repl_apply(local, &message), 0);
        }
        assert_true(size <= length);
        bytes += size;
        length -= size;
    }
}

/* Tells the slave of the key as it is, as a master does. */
static void tell(struct pair *pair, const char *name, bool is_ours)
{
    static char bytes[64 * 1024];
    struct fw_cache_local *local = &pair->master->local;
    struct fw_key key = fw_table_key(local->table, name, strlen(name));
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, &key);
    if (hold.item != NULL) {
        fw_repl_put_item(&local->reply, local, hold.item, is_ours);
    } else {
        fw_repl_put_delete(&local->reply, name, strlen(name));
    }
    fw_hold_release(&hold);
    apply(pair, bytes, gather(pair, bytes));
}

static void expect_same(struct pair *pair, const char *question)
{
    char *expected = strdup(say(pair->master, question));
    assert_string_equal(say(pair->slave, question), expected);
    free(expected);
}

static void test_items_become_the_same(void **state)
{
    struct pair *pair = *state;
    static const struct {
        const char *words, *key;
    } cases[] = {
        {"set a 0 0 3\r\nabc\r\n", "a"},
        {"set a 7 0 3\r\nabd\r\n", "a"},
        {"set a 7 1000 3\r\nabd\r\n", "a"},
        {"set a 0 0 5\r\nlonge\r\n", "a"},
        {"set a 0 2592000 0\r\n\r\n", "a"},
        {"set a 0 2000000000 1\r\nx\r\n", "a"},
        {"ms b 2 T100 F9\r\nhi\r\n", "b"},
        {"ms b 2 T100\r\nhj\r\n", "b"},
        {"md b I\r\n", "b"},
        {"mg b v\r\n", "b"},
        {"ms YmluYXJ5 2 b\r\nhi\r\n", "binary"},
        {"incr a 1\r\n", "a"},
        {"delete a\r\n", "a"},
        {"delete a\r\n", "a"},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        char question[64];
        (void)say(pair->master, cases[i].words);
        tell(pair, cases[i].key, true);
        (void)snprintf(question, sizeof question, "mg %s c t f s v k q\r\n", cases[i].key);
        /* Both are asked as often, so that who asks first wins at both. */
        expect_same(pair, question);
        tell(pair, cases[i].key, true);
        expect_same(pair, question);
    }
}

/* Its number is told beside it, or a flush would not know what to do with it. */
static void test_a_cas_of_ones_own(void **state)
{
    struct pair *pair = *state;
    struct fw_cache_local *local = &pair->master->local;
    struct fw_key key = fw_table_key(local->table, "a", 1);
    struct fw_store store = {
        .mode = FW_STORE_SET, .cas_new = 12345678901, .flags = 3, .bytes = "x", .length = 1};
    assert_int_equal(fw_operation_store(local, &key, &store), FW_DONE);
    tell(pair, "a", true);
    expect_same(pair, "gets a\r\n");
    assert_non_null(strstr(say(pair->slave, "gets a\r\n"), "12345678901"));
    fw_table_flush_below(pair->slave->local.table, fw_table_number(pair->master->cache.table) - 1);
    expect_same(pair, "gets a\r\n");
    fw_table_flush_below(pair->slave->local.table, fw_table_number(pair->master->cache.table));
    assert_string_equal(say(pair->slave, "gets a\r\n"), "END\r\n");
}

static void test_large_values(void **state)
{
    struct pair *pair = *state;
    static char words[LARGE + 64];
    int length = snprintf(words, sizeof words, "set big 3 0 %d\r\n", LARGE);
    for (int i = 0; i < LARGE; i++) {
        words[length + i] = (char)('a' + i % 23);
    }
    memcpy(words + length + LARGE, "\r\n", 3);
    assert_string_equal(say(pair->master, words), "STORED\r\n");
    tell(pair, "big", true);
    expect_same(pair, "gets big\r\n");
    (void)say(pair->master, "set big 0 0 1\r\n1\r\n");
    tell(pair, "big", true);
    expect_same(pair, "gets big\r\n");
}

static void test_touch_and_flush(void **state)
{
    struct pair *pair = *state;
    char bytes[4096];
    struct fw_cache_local *local = &pair->master->local;
    (void)say(pair->master, "set a 0 0 1\r\n1\r\n");
    tell(pair, "a", true);
    (void)say(pair->master, "touch a 500\r\n");
    struct fw_key key = fw_table_key(local->table, "a", 1);
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, &key);
    fw_repl_put_touch(&local->reply, local, hold.item, true);
    fw_hold_release(&hold);
    apply(pair, bytes, gather(pair, bytes));
    expect_same(pair, "mg a t c v\r\n");

    /* One that was stored right after the flush stays, though it came before it. */
    (void)say(pair->master, "set before 0 0 1\r\n1\r\n");
    tell(pair, "before", true);
    uint64_t number = fw_table_number(pair->master->cache.table);
    (void)say(pair->master, "flush_all\r\nset after 0 0 1\r\n2\r\n");
    tell(pair, "after", true);
    fw_repl_put_flush(&local->reply, number);
    apply(pair, bytes, gather(pair, bytes));
    expect_same(pair, "gets a before after\r\n");
    assert_non_null(strstr(say(pair->slave, "get after\r\n"), "2\r\n"));
}

static void test_others_get_the_plain_form(void **state)
{
    struct pair *pair = *state;
    char bytes[4096];
    struct fw_repl_message message;
    struct fw_cache_local *local = &pair->master->local;
    (void)say(pair->master, "ms a 2 T100 F9\r\nhi\r\nmd a I\r\n");
    struct fw_key key = fw_table_key(local->table, "a", 1);
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, &key);
    fw_repl_put_item(&local->reply, local, hold.item, false);
    fw_hold_release(&hold);
    size_t length = gather(pair, bytes);
    assert_int_equal(fw_repl_decode(bytes, length, &message), FW_REPL_MESSAGE);
    assert_int_equal(message.cas, 0);
    assert_int_equal(message.opaque, 0);
    assert_int_equal(message.size, FW_REPL_HEADER + 8 + 1 + 2);
    /* memcached's own parser takes it. */
    converse_say(pair->slave, bytes, length, 0);
    assert_int_equal(pair->slave->replies_length, 0);
}

static void test_marks_and_greetings(void **state)
{
    struct pair *pair = *state;
    char bytes[256];
    struct fw_repl_message message;
    struct fw_reply *reply = &pair->master->local.reply;
    fw_repl_put_mark(
        reply, &(struct fw_repl_mark){.opaque = 0xc0000001, .position = 1234567, .number = 77});
    assert_int_equal(fw_repl_decode(bytes, gather(pair, bytes), &message), FW_REPL_MESSAGE);
    assert_int_equal(message.opcode, FW_REPL_NOOP);
    assert_int_equal(message.cas, 1234567);
    assert_int_equal(message.number, 77);
    assert_int_equal(message.opaque, 0xc0000001);
    assert_int_equal(message.echo, 0);
    fw_repl_put_mark(reply, &(struct fw_repl_mark){.number = 78, .has_echo = true, .echo = 79});
    assert_int_equal(fw_repl_decode(bytes, gather(pair, bytes), &message), FW_REPL_MESSAGE);
    assert_true(message.number == 78 && message.echo == 79);
    assert_int_equal(fw_repl_put_mark_answer(bytes, 42, true, 77), FW_REPL_HEADER);
    assert_int_equal(fw_repl_decode(bytes, FW_REPL_HEADER, &message), FW_REPL_MESSAGE);
    assert_true(message.is_answer && message.opaque == 42 && message.status == 0);
    assert_int_equal(message.cas, 77);
    (void)fw_repl_put_mark_answer(bytes, 43, false, 0);
    assert_int_equal(fw_repl_decode(bytes, FW_REPL_HEADER, &message), FW_REPL_MESSAGE);
    assert_true(message.is_answer && message.opaque == 43 && message.status != 0);
    const struct fw_repl_about about = {1, 2, 3, 4, 5, 6, 7, 8};
    fw_repl_put_about(reply, &about);
    assert_int_equal(fw_repl_decode(bytes, gather(pair, bytes), &message), FW_REPL_MESSAGE);
    const struct fw_repl_about read = fw_repl_about_read(&message);
    assert_memory_equal(&read, &about, sizeof read);
    struct fw_repl_greeting greeting = {.history = 5, .position = 6, .start = FW_REPL_GO_ON};
    size_t length = fw_repl_put_hello(bytes, &greeting);
    assert_int_equal(fw_repl_decode(bytes, length, &message), FW_REPL_MESSAGE);
    assert_false(message.is_answer);
    assert_int_equal(message.version, FW_REPL_VERSION);
    assert_int_equal(message.history, 5);
    assert_int_equal(message.position, 6);
    fw_repl_put_hello_answer(reply, &greeting);
    assert_int_equal(fw_repl_decode(bytes, gather(pair, bytes), &message), FW_REPL_MESSAGE);
    assert_true(message.is_answer);
    assert_int_equal(message.start, FW_REPL_GO_ON);
}

static void item_of(struct converse *converse, const char *name, uint8_t *bits, uint64_t *number)
{
    struct fw_key key = fw_table_key(converse->local.table, name, strlen(name));
    struct fw_hold hold;
    fw_table_hold(converse->local.table, &hold, &key);
    assert_non_null(hold.item);
    *bits = hold.item->bits;
    *number = fw_item_number(hold.item);
    fw_hold_release(&hold);
}

/* What the master has evicted goes at the slave, unless it is newer than what was evicted. */
static void test_evictions(void **state)
{
    struct pair *pair = *state;
    char bytes[1024];
    struct fw_changes *changes = fw_table_changes(pair->master->local.cache->table);
    uint64_t history = 0, position = 0;
    bool can_go_on;
    assert_int_equal(fw_changes_enter(changes, 0, 0, &history, &position, &can_go_on), 0);
    for (const char *name = "abc"; *name != '\0'; name++) {
        char words[] = "set ? 0 0 1\r\n1\r\n";
        words[4] = *name;
        (void)say(pair->master, words);
        tell(pair, (char[]){*name, '\0'}, true);
    }
    uint8_t bits;
    uint64_t number;
    item_of(pair->master, "b", &bits, &number);
    uint64_t begin = fw_changes_head(changes);
    fw_changes_append(changes, FW_CHANGE_EVICTED, number, "b", 1);
    fw_changes_append(changes, FW_CHANGE_EVICTED_MAIN, number, "c", 1);
    fw_changes_append(changes, FW_CHANGE_EVICTED, number, "unknown", 7);
    char batch[FW_CHANGES_BATCH];
    int length = fw_changes_read(changes, &begin, batch);
    assert_true(length > 0);
    fw_repl_put_evicted(&pair->master->local.reply, batch, (size_t)length);
    apply(pair, bytes, gather(pair, bytes));
    assert_string_equal(say(pair->slave, "get a b c\r\n"),
                        "VALUE a 0 1\r\n1\r\nVALUE c 0 1\r\n1\r\nEND\r\n");
    /* Other changes have no business there, nor has half of one. */
    struct fw_repl_message message;
    fw_repl_put_evicted(&pair->master->local.reply, batch, (size_t)length - 1);
    assert_int_equal(fw_repl_decode(bytes, gather(pair, bytes), &message), FW_REPL_MESSAGE);
    assert_int_equal(fw_repl_apply(&pair->slave->local, &message), -EPROTO);
    batch[7] = FW_CHANGE_KEY;
    fw_repl_put_evicted(&pair->master->local.reply, batch, (size_t)length);
    assert_int_equal(fw_repl_decode(bytes, gather(pair, bytes), &message), FW_REPL_MESSAGE);
    assert_int_equal(fw_repl_apply(&pair->slave->local, &message), -EPROTO);
    fw_changes_leave(changes, 0, begin);
}

/* An item is as old at the slave as it was when it was sent. */
static void test_ages_come_with_items(void **state)
{
    struct pair *pair = *state;
    (void)say(pair->master, "set new 0 0 1\r\n1\r\n");
    (void)say(pair->master, "set read 0 0 1\r\n1\r\n");
    (void)say(pair->master, "get read\r\n");
    tell(pair, "new", true);
    tell(pair, "read", true);
    uint8_t bits;
    uint64_t number;
    item_of(pair->slave, "new", &bits, &number);
    assert_int_equal(bits & (FW_ITEM_AGE | FW_ITEM_FETCHED), FW_ITEM_AGE_NEW);
    item_of(pair->slave, "read", &bits, &number);
    assert_int_equal(bits & (FW_ITEM_AGE | FW_ITEM_FETCHED), FW_ITEM_FETCHED);
}

/* Numbers of items have 48 bits, but a CAS that a client chose may be anything. */
static void test_numbers_that_cannot_be(void **state)
{
    struct pair *pair = *state;
    char bytes[256];
    struct fw_repl_message message;
    struct fw_reply *reply = &pair->master->local.reply;
    const uint64_t numbers[] = {FW_ITEM_NUMBER_END - 1, FW_ITEM_NUMBER_END, UINT64_MAX};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(numbers); i++) {
        enum fw_repl_decoded decoded = i == 0 ? FW_REPL_MESSAGE : FW_REPL_DAMAGED;
        fw_repl_put_mark(reply, &(struct fw_repl_mark){.position = 1, .number = numbers[i]});
        assert_int_equal(fw_repl_decode(bytes, gather(pair, bytes), &message), decoded);
        fw_repl_put_flush(reply, numbers[i]);
        assert_int_equal(fw_repl_decode(bytes, gather(pair, bytes), &message), decoded);
        /* SetQ with a CAS, and with a CAS and a number behind it. */
        char set[FW_REPL_HEADER + 17] = {(char)0x80, 0x11, 0, 1, 8};
        fw_be32_put(set + 8, 9);
        fw_be64_put(set + 16, numbers[i]);
        assert_int_equal(fw_repl_decode(set, FW_REPL_HEADER + 9, &message), decoded);
        set[4] = 16;
        fw_be32_put(set + 8, 17);
        fw_be64_put(set + 16, UINT64_MAX);
        fw_be64_put(set + FW_REPL_HEADER + 8, numbers[i]);
        assert_int_equal(fw_repl_decode(set, sizeof set, &message), decoded);
    }
}

/* A takeover skips what the old master can have given, and no more than is needed. */
static void test_numbers_ahead(void **state)
{
    (void)state;
    const int64_t second = (int64_t)FW_NS_PER_S;
    uint64_t base = fw_repl_numbers_ahead(0);
    assert_int_equal(base, UINT64_C(1) << 30);
    assert_true(fw_repl_numbers_ahead(20 * second) - base >= UINT64_C(20) << 24);
    assert_true(fw_repl_numbers_ahead(20 * second) < UINT64_C(1) << 31);
    assert_int_equal(fw_repl_numbers_ahead(-second), base);
    assert_true(fw_repl_numbers_ahead(INT64_MAX) >= FW_ITEM_NUMBER_END);
}

static void test_cut_and_damaged(void **state)
{
    struct pair *pair = *state;
    char bytes[4096];
    struct fw_repl_message message;
    struct fw_cache_local *local = &pair->master->local;
    (void)say(pair->master, "set key 1 0 5\r\nvalue\r\n");
    struct fw_key key = fw_table_key(local->table, "key", 3);
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, &key);
    fw_repl_put_item(&local->reply, local, hold.item, true);
    fw_hold_release(&hold);
    const size_t length = gather(pair, bytes);
    for (size_t size = 0; size < length; size++) {
        assert_int_equal(fw_repl_decode(bytes, size, &message), FW_REPL_MORE);
        assert_true(message.size > size && message.size <= length);
    }
    static const struct {
        size_t place;
        uint8_t byte;
    } damages[] = {
        {0, 0x7f}, /* No magic. */
        {1, 0x00}, /* A get. */
        {2, 0x01}, /* A key of 259 bytes. */
        {3, 0x00}, /* No key. */
        {4, 0x07}, /* Extras of 7. */
        {4, 0xff}, /* More extras than there is body. */
        {8, 0x7f}, /* A value beyond the limit. */
        {1, 0x14}, /* A DeleteQ with a value. */
        {1, 0x0a}, /* A Noop with a key. */
        {1, 0xf0}, /* A greeting with a key. */
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(damages); i++) {
        char damaged[4096];
        memcpy(damaged, bytes, length);
        damaged[damages[i].place] = (char)damages[i].byte;
        assert_int_equal(fw_repl_decode(damaged, length, &message), FW_REPL_DAMAGED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_items_become_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_cas_of_ones_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_large_values, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_touch_and_flush, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_others_get_the_plain_form, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_marks_and_greetings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_evictions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ages_come_with_items, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_numbers_that_cannot_be, set_up, tear_down),
        cmocka_unit_test(test_numbers_ahead),
        cmocka_unit_test_setup_teardown(test_cut_and_damaged, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
