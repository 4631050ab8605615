/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: `stats` shows what happened, under memcached's names and in its order, over all locals, and
 * since the last reset only. Method: a few commands, then rows looked up by name.
 */
#include "cache/stats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "support/conversation.h"

/* The value of a row, which must be there just once; -1: it is not there. */
static int64_t row(const char *text, const char *name)
{
    char start[64];
    (void)snprintf(start, sizeof start, "STAT %s ", name);
    const char *found = strstr(text, start);
    if (found == NULL) {
        return -1;
    }
    assert_null(strstr(found + 1, start));
    return strtoll(found + strlen(start), NULL, 10);
}

static void test_general(void **state)
{
    (void)state;
    ask("set a 0 0 1\r\nx\r\nset n 0 0 1\r\n5\r\nadd a 0 0 1\r\nx\r\nset b 0 0 1\r\nbad\r\n"
        "get a b n c\r\nincr n 1\r\nincr c 1\r\ndecr n 1\r\ndecr n 1\r\ndecr c 1\r\n"
        "cas a 0 0 1 1\r\nx\r\ncas a 0 0 1 1\r\nx\r\ncas c 0 0 1 1\r\nx\r\n"
        "touch a 0\r\ngat 0 a c\r\ndelete a\r\ndelete a\r\ndelete a\r\n"
        "set c 0 0 2000000\r\n");
    converse_reconnect(converse);
    const char *text = ask("stats\r\n");
    static const struct {
        const char *name;
        int64_t value;
    } rows[] = {
        {"pid", 1},
        {"cmd_get", 4},
        {"cmd_set", 7},
        {"cmd_flush", 0},
        {"cmd_touch", 3},
        {"cmd_meta", 0},
        {"get_hits", 2},
        {"get_misses", 2},
        {"get_expired", 0},
        {"get_flushed", 0},
        {"delete_misses", 2},
        {"delete_hits", 1},
        {"incr_misses", 1},
        {"incr_hits", 1},
        {"decr_misses", 1},
        {"decr_hits", 2},
        {"cas_misses", 1},
        {"cas_hits", 1},
        {"cas_badval", 1},
        {"touch_hits", 2},
        {"touch_misses", 1},
        {"store_too_large", 1},
        {"store_no_memory", 0},
        {"auth_cmds", 0},
        {"auth_errors", 0},
        {"limit_maxbytes", 64 << 20},
        {"curr_items", 1},
        {"evictions", 0},
    };
    const char *at = text;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(rows); i++) {
        assert_int_equal(row(text, rows[i].name), rows[i].value);
        at = strstr(at, rows[i].name); /* In that order. */
        assert_non_null(at);
    }
    assert_true(row(text, "bytes") > 0);
    assert_int_equal(row(text, "total_items"), 3);
    assert_string_equal(text + strlen(text) - 5, "END\r\n");
}

static void test_reset(void **state)
{
    (void)state;
    ask("set a 0 0 1\r\nx\r\nget a b\r\n");
    assert_string_equal(ask("stats reset\r\n"), "RESET\r\n");
    assert_int_equal(converse->resets, 1);
    const char *text = ask("stats\r\n");
    assert_int_equal(row(text, "cmd_get"), 0);
    assert_int_equal(row(text, "get_hits"), 0);
    assert_int_equal(row(text, "total_items"), 0);
    assert_int_equal(row(text, "curr_items"), 1);
    text = ask("get a\r\nset b 0 0 1\r\nx\r\nstats\r\n");
    assert_int_equal(row(text, "cmd_get"), 1);
    assert_int_equal(row(text, "get_hits"), 1);
    assert_int_equal(row(text, "get_misses"), 0);
    assert_int_equal(row(text, "total_items"), 1);
    assert_int_equal(row(text, "curr_items"), 2);
}

/* What another local counted is shown too, also when it is gone. */
static void test_sum(void **state)
{
    (void)state;
    static struct fw_cache_local other;
    assert_int_equal(fw_cache_local_init(&other, &converse->cache), 0);
    struct fw_session session;
    fw_session_init(&session, 2);
    struct fw_session_step step = fw_session_run(&session, &other, "get a\r\nget b\r\n", 14);
    assert_int_equal(step.commands, 2);
    assert_int_equal(row(ask("get c\r\nstats\r\n"), "cmd_get"), 3);
    fw_session_fini(&session, &other);
    fw_cache_local_fini(&other);
    assert_int_equal(row(ask("stats\r\n"), "cmd_get"), 3);
}

static void test_groups(void **state)
{
    (void)state;
    assert_string_equal(ask("stats items\r\n"), "END\r\n");
    ask("set a 0 0 1\r\nx\r\nget a\r\n");
    const char *text = ask("stats items\r\n");
    assert_int_equal(row(text, "items:1:number"), 1);
    assert_int_equal(row(text, "items:1:evicted"), 0);
    assert_int_equal(row(text, "items:1:expired_unfetched"), 0);
    assert_int_equal(row(text, "items:1:evicted_unfetched"), 0);
    text = ask("stats slabs\r\n");
    assert_int_equal(row(text, "1:used_chunks"), 1);
    assert_int_equal(row(text, "1:get_hits"), 1);
    assert_int_equal(row(text, "active_slabs"), 1);
    assert_true(row(text, "total_malloced") > 0);
    assert_string_equal(ask("stats sizes\r\n"), "STAT sizes_status disabled\r\nEND\r\n");
    ask("stats detail on\r\n");
    assert_string_equal(ask("stats settings\r\n"), "STAT detail_enabled yes\r\nEND\r\n");
    assert_string_equal(ask("stats unknown\r\n"), "ERROR\r\n");
    assert_string_equal(ask("stats a_name_that_is_longer_than_any_group_has\r\n"), "ERROR\r\n");
}

static void store(const char *key, size_t length)
{
    char line[64];
    char *value = malloc(length + 2);
    assert_non_null(value);
    memset(value, 'v', length);
    memcpy(value + length, "\r\n", 2);
    (void)snprintf(line, sizeof line, "set %s 0 0 %zu\r\n", key, length);
    converse_say(converse, line, strlen(line), 0);
    converse_say(converse, value, length + 2, 0);
    assert_string_equal(converse_answer(converse), "STORED\r\n");
    free(value);
}

/* Others have filled the reply whenever the session is run again, but for `room` bytes. */
static const char *say_tightly(const char *said, size_t room)
{
    static char answer[1024];
    struct fw_reply *reply = &converse->local.reply;
    size_t length = 0;
    size_t filled = FW_REPLY_SIZE - 128; /* As much as a command needs to begin. */
    struct fw_session_step step;
    do {
        fw_reply_clear(reply);
        fw_reply_advance(reply, reply->buffer + filled);
        step = fw_session_run(&converse->session, &converse->local, said, strlen(said));
        said += step.consumed;
        size_t count = (size_t)(reply->next - reply->buffer) - filled;
        assert_true(length + count < sizeof answer);
        memcpy(answer + length, reply->buffer + filled, count);
        length += count;
        filled = FW_REPLY_SIZE - room;
    } while (step.end == FW_SESSION_OUTPUT);
    fw_reply_clear(reply);
    answer[length] = '\0';
    return answer;
}

/* Records have 28 bytes beside key and value, bodies 8, and a pointer to them. */
static void test_sizes(void **state)
{
    (void)state;
    enum { MIB = 1 << 20, BODY = 16 + 14 + 1 + 8, MANY = 5000 };
    converse->cache.settings.has_sizes = true;
    converse->cache.settings.item_size_max = 4 * MIB;
    assert_string_equal(ask("stats sizes\r\n"), "END\r\n");
    store("a", 0);
    store("b", 32 - 15);
    store("c", 33 - 15);
    for (size_t i = 0; i < 5; i++) {
        store((const char *[]){"h", "i", "j", "k", "l"}[i], 1000 * i + 1000);
    }
    store("d", 10000);
    store("e", MIB - BODY);
    store("f", MIB - BODY + 1);
    store("g", 2 * MIB - BODY + 1);
    static const char rows[] =
        "STAT 32 2\r\nSTAT 64 1\r\nSTAT 1024 1\r\nSTAT 2016 1\r\nSTAT 3040 1\r\nSTAT 4032 "
        "1\r\nSTAT 5024 1\r\nSTAT 10048 1\r\nSTAT 1048576 1\r\n"
        "STAT 2097152 1\r\nSTAT 3145728 1\r\nEND\r\n";
    assert_string_equal(ask("stats sizes\r\n"), rows);
    /* Also if the reply never has room for more than one or two of them. */
    for (size_t room = 64; room < 128; room++) {
        assert_string_equal(say_tightly("stats sizes\r\n", room), rows);
    }
    /* More than are counted in one step. */
    for (int i = 0; i < MANY; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "key-%d", i);
        store(key, 100);
    }
    const char *text = ask("stats sizes\r\n");
    assert_int_equal(row(text, "128"), MANY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_general, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reset, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sum, setup, teardown),
        cmocka_unit_test_setup_teardown(test_groups, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sizes, setup, teardown),
    };
    return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
