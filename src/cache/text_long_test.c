/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: input and answers of any length need no more than a bounded buffer, and come out whole.
 * Method: values around every limit, gets with thousands of keys, pipelines whose answers fill the
 * reply many times; each in portions of several sizes. How the runs ended is counted, so that a
 * test that meant to fill the reply is known to have done so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/text.h"
#include "cache/stats.h"
#include "support/converse.h"

enum { TEXT_SIZE = 4 << 20, MIB = 1 << 20 };

static struct converse *converse;
static struct fw_text said;
static struct fw_text expected;

static int setup(void **state)
{
    (void)state;
    char *memory = malloc(2 * (size_t)TEXT_SIZE);
    assert_non_null(memory);
    fw_text_init(&said, memory, TEXT_SIZE);
    fw_text_init(&expected, memory + TEXT_SIZE, TEXT_SIZE);
    converse = converse_create();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    converse_destroy(converse);
    free(said.data);
    return 0;
}

static void begin(void)
{
    converse_reconnect(converse);
    converse_say(converse, "flush_all\r\n", 11, 0);
    assert_string_equal(converse_answer(converse), "OK\r\n");
    memset(converse->runs, 0, sizeof converse->runs);
    fw_text_clear(&said);
    fw_text_clear(&expected);
}

static void append_value(struct fw_text *text, size_t length, char first)
{
    for (size_t i = 0; i < length; i++) {
        fw_text_append_char(text, (char)(first + (int)(i % 23)));
    }
}

/* Says what is in `said`; the answer must be what is in `expected`. */
static void check(size_t piece)
{
    assert_false(said.truncated || expected.truncated);
    converse_say(converse, said.data, said.length, piece);
    assert_int_equal(converse->replies_length, expected.length);
    assert_memory_equal(converse_answer(converse), expected.data, expected.length);
}

static const size_t pieces[] = {0, 1, 3, 1000, 1460, 8192, 16384};

static void test_values(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 100, 8191, 8192, 8193, 8194, 20000, 500000, MIB - 64};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(lengths); i++) {
        for (size_t p = 0; p < FW_ARRAY_LENGTH(pieces); p++) {
            begin();
            fw_text_printf(&said, "set a 7 0 %zu\r\n", lengths[i]);
            append_value(&said, lengths[i], 'a');
            fw_text_append_string(&said, "\r\nget a b a\r\n");
            fw_text_append_string(&expected, "STORED\r\n");
            for (int twice = 0; twice < 2; twice++) {
                fw_text_printf(&expected, "VALUE a 7 %zu\r\n", lengths[i]);
                append_value(&expected, lengths[i], 'a');
                fw_text_append_string(&expected, "\r\n");
            }
            fw_text_append_string(&expected, "END\r\n");
            check(pieces[p]);
        }
    }
}

static void test_value_damaged(void **state)
{
    (void)state;
    static const size_t lengths[] = {100, 8192, 8193, 20000};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(lengths); i++) {
        for (size_t p = 0; p < FW_ARRAY_LENGTH(pieces); p++) {
            begin();
            fw_text_printf(&said, "set a 7 0 1\r\nx\r\nset a 7 0 %zu\r\n", lengths[i]);
            append_value(&said, lengths[i], 'a');
            fw_text_append_string(&said, "\rxget a\r\n"); /* Not the end that it should have. */
            fw_text_append_string(&expected, "STORED\r\nCLIENT_ERROR bad data chunk\r\n"
                                             "VALUE a 7 1\r\nx\r\nEND\r\n");
            check(pieces[p]);
        }
    }
}

/* memcached's limit counts its item's header, the key, and the flags if there are any. */
static void test_value_too_large(void **state)
{
    (void)state;
    static const struct {
        const char *command;
        size_t length;
        bool fits;
        bool keeps; /* What was there before. */
    } cases[] = {
        {"set a 0 0", MIB - 60, true, false},
        {"set a 0 0", MIB - 59, false, false},
        {"set a 1 0", MIB - 64, true, false},
        {"set a 1 0", MIB - 63, false, false},
        {"add b 0 0", MIB - 59, false, true},
        {"replace a 0 0", MIB - 59, false, true},
        {"append a 0 0", MIB, false, true},
        {"prepend a 0 0", (size_t)2 * MIB, false, true},
        {"set a 0 0", (size_t)3 * MIB + 17, false, false},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        begin();
        fw_text_append_string(&said, "set a 0 0 1\r\nx\r\n");
        fw_text_printf(&said, "%s %zu\r\n", cases[i].command, cases[i].length);
        append_value(&said, cases[i].length, 'a');
        fw_text_append_string(&said, cases[i].fits ? "\r\ndelete a\r\n" : "\r\nget a\r\n");
        fw_text_append_string(&expected, "STORED\r\n");
        if (cases[i].fits) {
            fw_text_append_string(&expected, "STORED\r\nDELETED\r\n");
        } else {
            fw_text_append_string(&expected, "SERVER_ERROR object too large for cache\r\n");
            fw_text_append_string(&expected,
                                  cases[i].keeps ? "VALUE a 0 1\r\nx\r\nEND\r\n" : "END\r\n");
        }
        check(i % 2 == 0 ? 0 : 5000);
    }
}

/* From a record to a body, from a body to a larger one, and not beyond the limit. */
static void test_append(void **state)
{
    (void)state;
    static const size_t lengths[] = {8190, 1, 1, 1, 9000, 1, 100000};
    for (int is_prepend = 0; is_prepend < 2; is_prepend++) {
        begin();
        fw_text_append_string(&said, "set a 9 0 0\r\n\r\n");
        fw_text_append_string(&expected, "STORED\r\n");
        size_t total = 0;
        for (size_t i = 0; i < FW_ARRAY_LENGTH(lengths); i++) {
            fw_text_printf(&said, "%s a 0 0 %zu\r\n", is_prepend != 0 ? "prepend" : "append",
                           lengths[i]);
            append_value(&said, lengths[i], (char)('A' + i));
            fw_text_append_string(&said, "\r\n");
            fw_text_append_string(&expected, "STORED\r\n");
            total += lengths[i];
        }
        fw_text_printf(&said, "append a 0 0 %d\r\n", MIB - 60000);
        append_value(&said, MIB - 60000, 'a');
        fw_text_append_string(&said, "\r\nget a\r\n");
        fw_text_printf(&expected, "NOT_STORED\r\nVALUE a 9 %zu\r\n", total);
        for (size_t i = 0; i < FW_ARRAY_LENGTH(lengths); i++) {
            size_t which = is_prepend != 0 ? FW_ARRAY_LENGTH(lengths) - 1 - i : i;
            append_value(&expected, lengths[which], (char)('A' + which));
        }
        fw_text_append_string(&expected, "\r\nEND\r\n");
        check(7000);
    }
}

/* Answers that fill the reply many times over, of short values and of bodies, in one pipeline. */
static void test_output(void **state)
{
    (void)state;
    for (size_t p = 0; p < FW_ARRAY_LENGTH(pieces); p++) {
        begin();
        fw_text_append_string(&said, "set a 0 0 5000\r\n");
        append_value(&said, 5000, 'a');
        fw_text_append_string(&said, "\r\nset b 0 0 9000\r\n");
        append_value(&said, 9000, 'b');
        fw_text_append_string(&said, "\r\n");
        fw_text_append_string(&expected, "STORED\r\nSTORED\r\n");
        for (int i = 0; i < 100; i++) {
            fw_text_append_string(&said, i % 3 == 0 ? "get a\r\n" : "get a b\r\n");
            fw_text_append_string(&expected, "VALUE a 0 5000\r\n");
            append_value(&expected, 5000, 'a');
            if (i % 3 != 0) {
                fw_text_append_string(&expected, "\r\nVALUE b 0 9000\r\n");
                append_value(&expected, 9000, 'b');
            }
            fw_text_append_string(&expected, "\r\nEND\r\n");
        }
        check(pieces[p]);
        if (pieces[p] == 0) {
            assert_true(converse->runs[FW_SESSION_OUTPUT] > 5);
        }
    }
}

/* A connection that has sent very much at once has its turn, and then others have theirs. */
static void test_turn(void **state)
{
    (void)state;
    begin();
    converse->cache.settings.lines_max = 7;
    for (int i = 0; i < 71; i++) {
        fw_text_append_string(&said, i % 10 == 0 ? "touch a 0\r\n" : "get a\r\n");
        fw_text_append_string(&expected, i % 10 == 0 ? "NOT_FOUND\r\n" : "END\r\n");
    }
    converse->commands = 0;
    check(0);
    assert_int_equal(converse->commands, 71);
    assert_int_equal(converse->runs[FW_SESSION_TURN], 10);
    assert_int_equal(converse->runs[FW_SESSION_INPUT], 1);
    /* Exactly a turn's worth: nothing is left to come back for. */
    begin();
    fw_text_append_string(&said, "get a\r\nget b\r\nget c\r\nget d\r\nget e\r\nget f\r\nget g\r\n");
    fw_text_append_string(&expected, "END\r\nEND\r\nEND\r\nEND\r\nEND\r\nEND\r\nEND\r\n");
    check(0);
    assert_int_equal(converse->runs[FW_SESSION_TURN], 0);
    converse->cache.settings.lines_max = 20;
}

/* So has one whose commands are few, but ask for many keys each. */
static void test_turn_of_keys(void **state)
{
    enum { GETS = 10, KEYS = 40 };
    (void)state;
    begin();
    for (int i = 0; i < GETS; i++) {
        fw_text_append_string(&said, i == 5 ? "gets" : "get");
        for (int j = 0; j < KEYS; j++) {
            fw_text_printf(&said, " k%d", j);
        }
        fw_text_append_string(&said, "\r\n");
        fw_text_append_string(&expected, "END\r\n");
    }
    converse->commands = 0;
    converse->keys = 0;
    check(0);
    assert_int_equal(converse->commands, GETS);
    assert_int_equal(converse->keys, GETS * KEYS);
    assert_int_equal(converse->runs[FW_SESSION_TURN], GETS / 2 - 1); /* Two reach the limit. */
    assert_int_equal(converse->runs[FW_SESSION_INPUT], 1);
    /* A single line that is longer than the input goes on in several. */
    begin();
    fw_text_append_string(&said, "get");
    for (int i = 0; i < 100 * KEYS; i++) {
        fw_text_printf(&said, " key%d", i);
    }
    fw_text_append_string(&said, "\r\n");
    fw_text_append_string(&expected, "END\r\n");
    converse->keys = 0;
    check(0);
    assert_int_equal(converse->keys, 100 * KEYS);
    assert_int_equal(converse->runs[FW_SESSION_TURN], 100 * KEYS / FW_SESSION_KEYS_MAX);
    /* A single key is paid for with its command. */
    begin();
    converse->keys = 0;
    fw_text_append_string(&said, "get a\r\nget b\r\nmg a v\r\n");
    fw_text_append_string(&expected, "END\r\nEND\r\nEN\r\n");
    check(0);
    assert_int_equal(converse->keys, 0);
}

static void test_cost(void **state)
{
    (void)state;
    assert_int_equal(fw_session_cost(3, 0, 1023), 3);
    assert_int_equal(fw_session_cost(1, 100, UINT64_C(5) * 1024), 106);
    assert_int_equal(fw_session_cost(1, 0, UINT64_MAX), UINT32_MAX);
}

/* A get line of any length needs no more input kept than a line of another command. */
static void test_get_many_keys(void **state)
{
    (void)state;
    for (size_t p = 0; p < FW_ARRAY_LENGTH(pieces); p++) {
        bool has_cas = p % 2 != 0;
        converse_destroy(converse); /* So that the numbers of CAS begin at 1. */
        converse = converse_create();
        begin();
        for (int i = 0; i < 50; i++) {
            fw_text_printf(&said, "set key%d 0 0 2\r\n%02d\r\n", i * 100, i);
            fw_text_append_string(&expected, "STORED\r\n");
        }
        fw_text_append_string(&said, has_cas ? "  gets" : "get");
        for (int i = 0; i < 5000; i++) {
            fw_text_printf(&said, "  key%d", i);
            if (i % 100 == 0) {
                fw_text_printf(&expected, "VALUE key%d 0 2", i);
                if (has_cas) {
                    fw_text_printf(&expected, " %d", i / 100 + 1);
                }
                fw_text_printf(&expected, "\r\n%02d\r\n", i / 100);
            }
        }
        fw_text_append_string(&said, " \r\ntouch a 0\r\n");
        fw_text_append_string(&expected, "END\r\nNOT_FOUND\r\n");
        check(pieces[p]);
        assert_true(converse->input_most <= FW_SESSION_LINE_MAX || pieces[p] > FW_SESSION_LINE_MAX);
    }
}

static void test_get_long_fails(void **state)
{
    (void)state;
    for (size_t p = 0; p < FW_ARRAY_LENGTH(pieces); p++) {
        begin();
        fw_text_append_string(&said, "set a 0 0 1\r\nx\r\nget a");
        for (int i = 0; i < 1000; i++) {
            fw_text_append_string(&said, " keykey");
        }
        fw_text_append_string(&said, " a ");
        append_value(&said, 251, 'a');
        fw_text_append_string(&said, " a");
        append_value(&said, 30000, 'a');
        fw_text_append_string(&said, "\r\nget a\r\n");
        fw_text_append_string(&expected, "STORED\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\n"
                                         "CLIENT_ERROR bad command line format\r\n"
                                         "VALUE a 0 1\r\nx\r\nEND\r\n");
        check(pieces[p]);
    }
}

/* A thousand at a time. */
static void say_keys(size_t count)
{
    static char keys[2 * 1024];
    for (size_t i = 0; i < sizeof keys; i += 2) {
        memcpy(keys + i, " a", 2);
    }
    for (size_t said_count = 0; said_count < count; said_count += sizeof keys / 2) {
        converse_say(converse, keys, sizeof keys, 0);
    }
}

/*
 * A client may send all of a very long get before it reads anything, so nothing is answered before
 * the line has ended; but one that is too long to be kept is answered as it comes.
 */
static void test_get_long_is_kept(void **state)
{
    (void)state;
    begin();
    converse_say(converse, "set a 0 0 1\r\nx\r\n", 16, 0);
    assert_string_equal(converse_answer(converse), "STORED\r\n");
    static const struct {
        size_t keys;
        bool is_kept;
    } cases[] = {{FW_SESSION_HOARD_MAX / 4, true}, {FW_SESSION_HOARD_MAX, false}};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        converse_say(converse, "get", 3, 0);
        say_keys(cases[i].keys);
        size_t before = strlen(converse_answer(converse));
        assert_int_equal(before == 0, cases[i].is_kept);
        converse_say(converse, "\r\nmn\r\n", 6, 0);
        const char *answer = converse_answer(converse);
        size_t item = strlen("VALUE a 0 1\r\nx\r\n");
        assert_int_equal(before + strlen(answer), cases[i].keys * item + strlen("END\r\nMN\r\n"));
        assert_string_equal(answer + strlen(answer) - strlen("END\r\nMN\r\n"), "END\r\nMN\r\n");
    }
    converse_say(converse, "get", 3, 0);
    say_keys(FW_SESSION_HOARD_MAX / 4);
    converse_reconnect(converse); /* And leaves in the middle. */
}

/* Keys of a line that is longer than can be kept, each another: all are met, once and in order. */
static void test_get_longest(void **state)
{
    (void)state;
    enum { KEY = 7, KEYS = FW_SESSION_HOARD_MAX / KEY * 3 / 2, STORED_EVERY = 500 };
    begin();
    for (int i = 0; i < KEYS; i += STORED_EVERY) {
        fw_text_printf(&said, "set %06d 0 0 3\r\n%03d\r\n", i, i / STORED_EVERY);
        fw_text_append_string(&expected, "STORED\r\n");
    }
    fw_text_append_string(&said, "get");
    for (int i = 0; i < KEYS; i++) {
        fw_text_printf(&said, " %06d", i);
        if (i % STORED_EVERY == 0) {
            fw_text_printf(&expected, "VALUE %06d 0 3\r\n%03d\r\n", i, i / STORED_EVERY);
        }
    }
    fw_text_append_string(&said, "\r\n");
    fw_text_append_string(&expected, "END\r\n");
    check(16384);
}

/* A line that is not a get is waited for up to a limit, and then the client is hung up on. */
static void test_line_too_long(void **state)
{
    (void)state;
    static const char *const words[] = {"touch ", "gat 0 ", "got ", "set ", ""};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(words); i++) {
        begin();
        fw_text_append_string(&said, words[i]);
        append_value(&said, FW_SESSION_LINE_MAX - said.length, 'a');
        check(0);
        assert_false(converse->is_closed);
        converse_say(converse, "b", 1, 0);
        assert_true(converse->is_closed);
    }
    /* More spaces before a get than anybody would type. */
    begin();
    for (int i = 0; i < 101; i++) {
        fw_text_append_string(&said, " ");
    }
    fw_text_append_string(&said, "get ");
    append_value(&said, FW_SESSION_LINE_MAX, 'a');
    check(0);
    assert_true(converse->is_closed);
}

static void test_stats_long(void **state)
{
    (void)state;
    begin();
    fw_text_append_string(&said, "stats long\r\nget a\r\n");
    for (int i = 0; i < 10000; i++) {
        fw_text_append_string(&expected, "STAT row 0123456789\r\n");
    }
    fw_text_append_string(&expected, "END\r\nEND\r\n");
    check(0);
    assert_true(converse->runs[FW_SESSION_OUTPUT] >= 3);
}

/* Each key once, and more of them than fit into a reply. */
static void test_dump(void **state)
{
    (void)state;
    enum { KEYS = 3000 };
    static uint8_t seen[KEYS];
    static const char *const commands[] = {"lru_crawler metadump all\r\n",
                                           "stats cachedump 1 0\r\n"};
    for (size_t c = 0; c < FW_ARRAY_LENGTH(commands); c++) {
        begin();
        memset(seen, 0, sizeof seen);
        for (int i = 0; i < KEYS; i++) {
            fw_text_printf(&said, "set key:%d 0 0 1 noreply\r\nx\r\n", i);
        }
        check(0);
        memset(converse->runs, 0, sizeof converse->runs);
        converse_say(converse, commands[c], strlen(commands[c]), 0);
        assert_true(converse->runs[FW_SESSION_OUTPUT] > 0);
        const char *at = converse_answer(converse);
        const char *prefix = c == 0 ? "key=key%3A" : "ITEM key:";
        size_t count = 0;
        for (; strncmp(at, prefix, strlen(prefix)) == 0; count++) {
            long number = strtol(at + strlen(prefix), NULL, 10);
            assert_in_range(number, 0, KEYS - 1);
            seen[number]++;
            at = strchr(at, '\n') + 1;
        }
        assert_string_equal(at, "END\r\n");
        assert_int_equal(count, KEYS);
        for (int i = 0; i < KEYS; i++) {
            assert_int_equal(seen[i], 1);
        }
    }
    converse_say(converse, "stats cachedump 1 1\r\n", 21, 0);
    const char *answer = converse_answer(converse);
    assert_string_equal(strchr(answer, '\n') + 1, "END\r\n");
    converse_say(converse, "lru_crawler metadump 2,3\r\n", 26, 0);
    assert_string_equal(converse_answer(converse), "END\r\n");
}

/* A client may leave at any moment: nothing of what it had begun stays. ASan sees what does. */
static void test_leave(void **state)
{
    (void)state;
    begin();
    fw_text_append_string(&said, "set a 0 0 100000\r\n");
    append_value(&said, 50000, 'a');
    check(1000);
    begin();
    fw_text_append_string(&said, "set a 0 0 2000000\r\nabc");
    fw_text_append_string(&expected, "SERVER_ERROR object too large for cache\r\n");
    check(0);
    /* In the middle of a list. */
    begin();
    struct fw_session_step step =
        fw_session_run(&converse->session, &converse->local, "stats long\r\n", 12);
    assert_int_equal(step.end, FW_SESSION_OUTPUT);
    fw_reply_clear(&converse->local.reply);
    begin();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_value_damaged),
        cmocka_unit_test(test_value_too_large),
        cmocka_unit_test(test_append),
        cmocka_unit_test(test_output),
        cmocka_unit_test(test_turn),
        cmocka_unit_test(test_turn_of_keys),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_get_many_keys),
        cmocka_unit_test(test_get_long_fails),
        cmocka_unit_test(test_get_long_is_kept),
        cmocka_unit_test(test_get_longest),
        cmocka_unit_test(test_line_too_long),
        cmocka_unit_test(test_stats_long),
        cmocka_unit_test(test_dump),
        cmocka_unit_test(test_leave),
    };
    return cmocka_run_group_tests_name("text_long", tests, setup, teardown);
}
