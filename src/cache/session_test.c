/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a run says truly why it ended, how much it used and how much it wants, and a session is
 * small. Method: runs by hand, with input that ends at every place of interest.
 */
#include "cache/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <fairway/log.h>

#include "base/text.h"
#include "cache/auth.h"
#include "cache/parser.h"
#include "cache/table_parts.h"
#include "support/conversation.h"

static struct fw_session_step run(const char *input, size_t length)
{
    return fw_session_run(&converse->session, &converse->local, input, length);
}

static void assert_reply(const char *expected)
{
    struct fw_reply *reply = &converse->local.reply;
    uint32_t count = fw_reply_finish(reply);
    assert_true(count <= 1);
    assert_int_equal(count == 0 ? 0 : reply->pieces[0].iov_len, strlen(expected));
    if (count > 0) {
        assert_memory_equal(reply->pieces[0].iov_base, expected, strlen(expected));
    }
    fw_reply_clear(reply);
}

static void test_nothing(void **state)
{
    (void)state;
    struct fw_session_step step = run("", 0);
    assert_int_equal(step.end, FW_SESSION_INPUT);
    assert_int_equal(step.consumed, 0);
    assert_int_equal(step.wanted, 1);
    assert_int_equal(step.commands, 0);
}

static void test_wanted(void **state)
{
    (void)state;
    static const char text[] = "touch a 0\r\nset a 0 0 100\r\nxyz";
    struct fw_session_step step = run(text, 5);
    assert_int_equal(step.end, FW_SESSION_INPUT);
    assert_int_equal(step.consumed, 0);
    assert_int_equal(step.wanted, 6);
    /* The whole of a value is wanted at once, with the line it belongs to. */
    step = run(text, sizeof text - 1);
    assert_int_equal(step.end, FW_SESSION_INPUT);
    assert_int_equal(step.consumed, 11);
    assert_int_equal(step.wanted, 15 + 100 + 2);
    assert_int_equal(step.commands, 1);
    assert_reply("NOT_FOUND\r\n");
}

static void test_body(void **state)
{
    (void)state;
    size_t room = 77;
    assert_null(fw_session_body(&converse->session, &room));
    static const char line[] = "set a 5 0 9000\r\n";
    static char begin[FW_PENDING_BEGIN] = "abc";
    memset(begin + 3, 'x', sizeof begin - 3);
    struct fw_session_step step = run(line, sizeof line - 1);
    assert_int_equal(step.end, FW_SESSION_INPUT);
    assert_int_equal(step.consumed, sizeof line - 1);
    assert_int_equal(step.wanted, FW_PENDING_BEGIN);
    assert_int_equal(step.commands, 1);
    assert_null(fw_session_body(&converse->session, &room)); /* Its length alone has no memory. */
    step = run(begin, sizeof begin - 1);
    assert_int_equal(step.end, FW_SESSION_INPUT);
    assert_int_equal(step.consumed, 0);
    step = run(begin, sizeof begin);
    assert_int_equal(step.end, FW_SESSION_INPUT);
    assert_int_equal(step.consumed, sizeof begin);
    char *body = fw_session_body(&converse->session, &room);
    assert_non_null(body);
    assert_int_equal(room, 9000 - FW_PENDING_BEGIN);
    memset(body, 'x', 100);
    fw_session_body_received(&converse->session, 100);
    step = run("", 0);
    assert_int_equal(step.end, FW_SESSION_INPUT);
    body = fw_session_body(&converse->session, &room);
    assert_int_equal(room, 8900 - FW_PENDING_BEGIN);
    memset(body, 'y', room);
    fw_session_body_received(&converse->session, room);
    expect_assert_failure(fw_session_body_received(&converse->session, 1));
    step = run("\r", 1);
    assert_int_equal(step.end, FW_SESSION_INPUT);
    assert_int_equal(step.consumed, 0);
    assert_int_equal(step.wanted, 2);
    step = run("\r\nget b\r\n", 9);
    assert_int_equal(step.end, FW_SESSION_INPUT);
    assert_int_equal(step.consumed, 9);
    assert_reply("STORED\r\nEND\r\n");
    assert_null(fw_session_body(&converse->session, &room));
    /* The value went there, and is sent from where it lies. */
    (void)run("get a\r\n", 7);
    struct fw_reply *reply = &converse->local.reply;
    assert_int_equal(fw_reply_finish(reply), 3);
    assert_int_equal(reply->pieces[1].iov_len, 9000);
    assert_memory_equal(reply->pieces[1].iov_base, "abcxxx", 6);
    assert_int_equal(((const char *)reply->pieces[1].iov_base)[8999], 'y');
    fw_reply_clear(reply);
}

static uint64_t memory_used(void)
{
    struct fw_table_totals totals;
    fw_table_totals(converse->cache.table, &totals);
    return totals.memory_used;
}

/* Memory follows the bytes that have come, at five times their number at most. */
static void test_body_grows(void **state)
{
    (void)state;
    enum { LENGTH = 1000000, PORTION = 8192 };
    static char portion[PORTION];
    char line[64];
    memset(portion, 'p', sizeof portion);
    (void)run("set b 0 0 1\r\nb\r\n", 17); /* The table has its first segment. */
    int size = snprintf(line, sizeof line, "set a 0 0 %d\r\n", LENGTH);
    uint64_t before = memory_used();
    (void)run(line, (size_t)size);
    assert_int_equal(memory_used(), before);
    for (uint32_t sent = 0; sent < LENGTH;) {
        uint32_t count = LENGTH - sent < PORTION ? LENGTH - sent : PORTION;
        struct fw_session_step step = run(portion, count);
        assert_int_equal(step.consumed, count);
        sent += count;
        uint64_t kept = atomic_load(&converse->cache.table->bodies.kept_bytes);
        assert_true(memory_used() - before - kept <= (uint64_t)sent * 5);
    }
    (void)run("\r\n", 2);
    fw_reply_clear(&converse->local.reply);
    (void)run("get a\r\n", 7);
    struct fw_reply *reply = &converse->local.reply;
    assert_int_equal(fw_reply_finish(reply), 3);
    assert_int_equal(reply->pieces[1].iov_len, LENGTH);
    for (size_t i = 0; i < LENGTH; i++) {
        assert_int_equal(((const char *)reply->pieces[1].iov_base)[i], 'p');
    }
    fw_reply_clear(reply);
}

static void test_close(void **state)
{
    (void)state;
    struct fw_session_step step = run("touch a 0\r\nquit\r\ntouch a 0\r\n", 28);
    assert_int_equal(step.end, FW_SESSION_CLOSE);
    assert_int_equal(step.commands, 2);
    assert_reply("NOT_FOUND\r\n");
    /* Whatever comes behind is not looked at. */
    step = run("touch a 0\r\n", 11);
    assert_int_equal(step.end, FW_SESSION_CLOSE);
    assert_int_equal(step.consumed, 0);
    assert_reply("");
}

/* A reply that others have left little room in: the command waits, and is done just once. */
static void test_reply_in_use(void **state)
{
    (void)state;
    struct fw_reply *reply = &converse->local.reply;
    static const char *const commands[] = {"incr n 1\r\n", "get n\r\n", "get n n\r\n",
                                           "set n 0 0 1\r\n7\r\n", "stats\r\n"};
    (void)run("set n 0 0 1\r\n5\r\n", 16);
    fw_reply_clear(reply);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        fw_reply_advance(reply, reply->next + FW_REPLY_SIZE - 10);
        struct fw_session_step step = run(commands[i], strlen(commands[i]));
        assert_int_equal(step.end, FW_SESSION_OUTPUT);
        assert_int_equal(reply->next - reply->buffer, FW_REPLY_SIZE - 10);
        fw_reply_clear(reply);
        step = run(commands[i] + step.consumed, strlen(commands[i]) - step.consumed);
        assert_int_equal(step.end, FW_SESSION_INPUT);
        static const char *const answers[] = {"6\r\n", "VALUE n 0 1\r\n6\r\nEND\r\n",
                                              "VALUE n 0 1\r\n6\r\nVALUE n 0 1\r\n6\r\nEND\r\n",
                                              "STORED\r\n"};
        if (i < 4) {
            assert_reply(answers[i]);
        }
        fw_reply_clear(reply);
    }
}

static void test_binary_is_told_apart(void **state)
{
    (void)state;
    run("\x80", 1);
    assert_int_equal(converse->session.protocol, FW_PROTOCOL_BINARY);
    fw_reply_clear(&converse->local.reply);
    converse_reconnect(converse);
    run("\x81", 1);
    assert_int_equal(converse->session.protocol, FW_PROTOCOL_TEXT);
}

/* memcached's -B: what is said in another one is read as if it were that one. */
static void test_protocol_is_set(void **state)
{
    (void)state;
    converse->cache.settings.protocol = FW_PROTOCOL_TEXT;
    struct fw_session_step step = run("\x80\n", 2);
    assert_int_equal(step.end, FW_SESSION_INPUT);
    assert_int_equal(step.consumed, 2);
    assert_int_equal(converse->session.protocol, FW_PROTOCOL_TEXT);
    assert_reply("ERROR\r\n");
    converse_reconnect(converse);
    converse->cache.settings.protocol = FW_PROTOCOL_BINARY;
    step = run("get 0123456789012345678901234567890\r\n", 37);
    assert_int_equal(step.end, FW_SESSION_CLOSE);
    assert_int_equal(converse->session.protocol, FW_PROTOCOL_BINARY);
    assert_reply("");
}

static void say(const char *said, const char *answered)
{
    for (size_t piece = 1; piece <= strlen(said); piece++) {
        converse_reconnect(converse);
        converse_say(converse, said, strlen(said), piece);
        assert_string_equal(converse_answer(converse), answered);
    }
}

static void say_once(const char *said)
{
    converse_say(converse, said, strlen(said), 0);
}

/* memcached's -Y; the answers are memcached's. */
static void test_login(void **state)
{
    (void)state;
    char path[] = "/tmp/fairway-session-test.XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    static const char users[] = "ann:secret\nbob:other word\n";
    assert_int_equal(write(file, users, sizeof users - 1), sizeof users - 1);
    close(file);
    assert_int_equal(fw_auth_load(&converse->cache.auth, path, NULL), 0);
    unlink(path);
    converse->cache.settings.needs_login = true;
    say("get a\r\n\r\nset a 0 0\r\nset a 0 0 x\r\nget a 0 0 1\r\n",
        "CLIENT_ERROR unauthenticated\r\nCLIENT_ERROR unauthenticated\r\n"
        "CLIENT_ERROR unauthenticated\r\nCLIENT_ERROR unauthenticated\r\n"
        "CLIENT_ERROR unauthenticated\r\n");
    say("set a 0 0 10\r\nann secret\r\nget a\r\n", "STORED\r\nEND\r\n");
    say("set a 0 0 10 more words\r\nann secret\r\nversionx\r\n", "STORED\r\nERROR\r\n");
    say("set a 0 0 9\r\nann wrong\r\nget a\r\n",
        "CLIENT_ERROR authentication failure\r\nCLIENT_ERROR unauthenticated\r\n");
    say("set a 0 0 3\r\nann\r\nset a 0 0 10\r\nann secret\r\nget a\r\n",
        "CLIENT_ERROR bad authentication token format\r\nSTORED\r\nEND\r\n");
    say("set a 0 0 9\r\nann secret\r\n",
        "CLIENT_ERROR bad command line termination\r\nCLIENT_ERROR unauthenticated\r\n");
    uint64_t errors = fw_counter_get(&converse->local.metrics->auth_errors);
    assert_true(errors > 0 && errors < fw_counter_get(&converse->local.metrics->auth_cmds));
    converse_reconnect(converse);
    converse_say(converse, "set a 0 0 5000\r\n", 16, 0);
    assert_true(converse->is_closed);
    fw_auth_destroy(converse->cache.auth);
}

static const char *log_read(const char *path)
{
    static char text[4096];
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t length = fread(text, 1, sizeof text - 1, file);
    text[length] = '\0';
    assert_int_equal(fclose(file), 0);
    return text;
}

/* Each line of the log without its time: the lines, joined, are these? */
static void assert_log(const char *path, const char *expected)
{
    static const char before[] = " cache [session_test] ";
    char lines[4096];
    struct fw_text text;
    fw_text_init(&text, lines, sizeof lines);
    for (const char *at = log_read(path); (at = strstr(at, before)) != NULL;) {
        at += sizeof before - 1;
        fw_text_append(&text, at, (size_t)(strchr(at, '\n') + 1 - at));
    }
    assert_string_equal(lines, expected);
    assert_int_equal(truncate(path, 0), 0);
}

/* memcached's -vv: what is said and answered is in the log, each command of a packet. */
static void test_verbose(void **state)
{
    (void)state;
    char path[] = "/tmp/fairway-session-test.XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(fw_log_set_file(path), 0);
    say_once("set a 0 0 1\r\nx\r\n");
    assert_log(path, "");
    assert_int_equal(fw_log_set_level("cache", FW_LOG_DEBUG), 0);
    say_once("get a\r\nget a\r\nget b\r\nset a 0 0 6\r\nsecret\r\n\x01\r\n");
    assert_log(path, "<1 get a\n>1 VALUE a 0 1\n<1 get a\n>1 VALUE a 0 1\n<1 get b\n>1 END\n"
                     "<1 set a 0 0 6\n>1 STORED\n<1 \\x01\n>1 ERROR\n");
    struct fw_session_step step = run("touch b 0\r\ntouch b 0\r\n", 22); /* In one turn, still. */
    assert_int_equal(step.end, FW_SESSION_INPUT);
    assert_int_equal(step.commands, 2);
    fw_reply_clear(&converse->local.reply);
    assert_log(path, "<1 touch b 0\n>1 NOT_FOUND\n<1 touch b 0\n>1 NOT_FOUND\n");
    say_once("set b 0 0 9000\r\n");
    assert_log(path, "<1 set b 0 0 9000\n");
    converse_reconnect(converse);
    say_once("stats\r\nquit\r\n");
    assert_log(path, "<1 stats\n<1 quit\n");
    converse_reconnect(converse);
    /* A get that has begun, but waits for room to answer. */
    struct fw_reply *reply = &converse->local.reply;
    fw_reply_advance(reply, reply->next + FW_REPLY_SIZE - 10);
    static const char get[] = "get b b\r\n";
    step = run(get, sizeof get - 1);
    assert_int_equal(step.end, FW_SESSION_OUTPUT);
    assert_log(path, "<1 get b b\n");
    fw_reply_clear(reply);
    (void)run(get + step.consumed, sizeof get - 1 - step.consumed);
    fw_reply_clear(reply);
    assert_log(path, ">1 END\n");
    /* Of a line 200 characters are shown, before the rest of it has come. */
    char keys[3000];
    char shown[sizeof "<1 \n" + 200];
    memset(keys, 'k', sizeof keys);
    for (size_t i = 3; i < sizeof keys; i += 100) {
        keys[i] = ' ';
    }
    memcpy(keys, "get", 3);
    (void)snprintf(shown, sizeof shown, "<1 %.200s\n", keys);
    converse_say(converse, keys, sizeof keys, 0);
    assert_log(path, shown);
    converse_reconnect(converse);
    /* getq of a key that is not there, an opcode that does not exist, and nonsense. */
    static const char packets[] = "\x80\x09\0\3\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0key"
                                  "\x80\xfe\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                  "nonsense of twenty-four.";
    converse_say(converse, packets, sizeof packets - 1, 0);
    assert_true(converse->is_closed);
    assert_log(path, "<1 getq key\n<1 opcode 0xfe\n>1 Unknown command\n<1 what is no request\n");
    assert_int_equal(fw_log_set_level("cache", FW_LOG_NOTICE), 0);
    assert_int_equal(fw_log_set_file(NULL), 0);
    unlink(path);
}

static void test_size(void **state)
{
    (void)state;
    assert_true(sizeof(struct fw_session) <= 72);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wanted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_body, setup, teardown),
        cmocka_unit_test_setup_teardown(test_body_grows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_close, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reply_in_use, setup, teardown),
        cmocka_unit_test_setup_teardown(test_binary_is_told_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_protocol_is_set, setup, teardown),
        cmocka_unit_test_setup_teardown(test_login, setup, teardown),
        cmocka_unit_test_setup_teardown(test_verbose, setup, teardown),
        cmocka_unit_test_setup_teardown(test_size, setup, teardown),
    };
    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
