/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: before each command the gate is asked, with its class and its key; what passes is executed,
 * what is held waits with nothing lost, what is refused is answered with an error, and the command
 * behind it is found.
 * Method: a gate that writes down what it was asked and answers by the first letter of the key:
 * h is held as often as a counter says, r is refused. Conversations in all three protocols, in one
 * piece and byte by byte.
 */
#include "cache/gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "base/version.h"
#include "support/converse.h"

enum { BUSY = 0x85 };

static struct converse *converse;
static char asked_memory[64 * 1024];
static struct fw_text asked; /* "read key,write key,admin -," and so on. */
static int holds;            /* So often a key with h is held. */

static enum fw_gate ask(struct fw_cache_gate *gate, enum fw_command_class class, const char *key,
                        size_t length)
{
    static const char *const names[] = {[FW_COMMAND_READ] = "read",
                                        [FW_COMMAND_READ_CHANGES] = "change",
                                        [FW_COMMAND_WRITE] = "write",
                                        [FW_COMMAND_FLUSH] = "flush",
                                        [FW_COMMAND_ADMIN] = "admin"};
    (void)gate;
    if (key != NULL && key[0] == 'h' && holds > 0) {
        holds--;
        return FW_GATE_HOLD;
    }
    fw_text_printf(&asked, "%s ", names[class]);
    fw_text_append(&asked, key != NULL ? key : "-", key != NULL ? length : 1);
    fw_text_append_string(&asked, ",");
    return key == NULL || key[0] == 'r' ? FW_GATE_REFUSE : FW_GATE_PASS;
}

static struct fw_cache_gate gate = {.ask = ask};

static int setup(void **state)
{
    (void)state;
    converse = converse_create();
    converse->local.gate = &gate;
    fw_text_init(&asked, asked_memory, sizeof asked_memory);
    holds = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    converse_destroy(converse);
    return 0;
}

static void say(const char *said, const char *expected)
{
    fw_text_clear(&asked);
    converse_say(converse, said, strlen(said), 0);
    assert_string_equal(converse_answer(converse), expected);
}

static void test_what_is_asked(void **state)
{
    (void)state;
    static const struct {
        const char *said;
        const char *asked;
    } table[] = {
        {"get a\r\n", "read a,"},
        {"get a b c\r\n", "read a,"},
        {"gets  a b\r\n", "read a,"},
        {"gat 0 a b\r\n", "change a,read a,read b,"},
        {"gats 0 a\r\n", "change a,"},
        {"set a 0 0 1\r\nx\r\n", "write a,"},
        {"cas a 0 0 1 9\r\nx\r\n", "write a,"},
        {"add b 0 0 1 noreply\r\nx\r\n", "write b,"},
        {"append b 0 0 1\r\nx\r\n", "write b,"},
        {"prepend b 0 0 1\r\nx\r\n", "write b,"},
        {"replace b 0 0 1\r\nx\r\n", "write b,"},
        {"incr b 1\r\n", "write b,"},
        {"decr b 1\r\n", "write b,"},
        {"touch b 1\r\n", "write b,"},
        {"delete b\r\n", "write b,"},
        {"mg a v\r\n", "read a,"},
        {"mg a t s c\r\n", "read a,"},
        {"mg a v T9\r\n", "change a,"},
        {"mg a N9\r\n", "change a,"},
        {"mg YWJj b R9 v\r\n", "change abc,"},
        {"mg YWJj v b\r\n", "read abc,"},
        {"me a\r\n", "read a,"},
        {"ms a 1\r\nx\r\n", "write a,"},
        {"md a\r\n", "write a,"},
        {"ma a\r\n", "write a,"},
        {"mn\r\n", "admin -,"},
        {"version\r\n", "admin -,"},
        {"stats\r\n", "admin -,"},
        {"flush_all\r\n", "flush -,"},
        {"get\r\n", "admin -,"},
        {"nonsense\r\n", "admin -,"},
        {"\r\n", "admin -,"},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(table); i++) {
        fw_text_clear(&asked);
        converse_say(converse, table[i].said, strlen(table[i].said), 1);
        assert_true(converse->replies_length > 0 || strstr(table[i].said, "noreply") != NULL);
        (void)converse_answer(converse);
        if (strncmp(asked.data, table[i].asked, strlen(table[i].asked)) != 0) {
            fail_msg("%s was asked about as %s", table[i].said, asked.data);
        }
    }
}

/* One that has not all come is not asked about; a long get is, by each of its keys. */
static void test_when_it_is_asked(void **state)
{
    (void)state;
    converse_say(converse, "set a 0 0", 9, 0);
    assert_int_equal(asked.length, 0);
    say(" 1\r\nx\r\n", "STORED\r\n");
    assert_true(asked.length > 0);
    char line[8 * 1024];
    struct fw_text text;
    fw_text_init(&text, line, sizeof line);
    fw_text_append_string(&text, "get first");
    for (int i = 0; i < 900; i++) {
        fw_text_printf(&text, " key%d", i);
    }
    fw_text_append_string(&text, "\r\n");
    say(line, "END\r\n");
    assert_non_null(strstr(asked.data, "read first,read key0,read key1,"));
    assert_non_null(strstr(asked.data, "read key98,read key99,read key100,"));
}

/* What was before it is done, what is behind it waits; then all goes on as if nothing was. */
static void test_held(void **state)
{
    (void)state;
    holds = 3;
    memset(converse->runs, 0, sizeof converse->runs);
    say("set a 0 0 1\r\n1\r\nset h 0 0 1\r\n2\r\nget h\r\nget a\r\n",
        "STORED\r\nSTORED\r\nVALUE h 0 1\r\n2\r\nEND\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    assert_int_equal(converse->runs[FW_SESSION_HELD], 3);
    assert_int_equal(holds, 0);
    /* In the middle of gets that would be done together. */
    holds = 1;
    memset(converse->runs, 0, sizeof converse->runs);
    say("get a\r\nget a\r\nget h\r\nget a\r\n",
        "VALUE a 0 1\r\n1\r\nEND\r\nVALUE a 0 1\r\n1\r\nEND\r\nVALUE h 0 1\r\n2\r\nEND\r\n"
        "VALUE a 0 1\r\n1\r\nEND\r\n");
    assert_true(converse->runs[FW_SESSION_HELD] <= 1);
    assert_int_equal(holds, 0);
    /* And in the middle of a get of several keys. */
    holds = 2;
    memset(converse->runs, 0, sizeof converse->runs);
    say("get a h a\r\nget a\r\n",
        "VALUE a 0 1\r\n1\r\nVALUE h 0 1\r\n2\r\nVALUE a 0 1\r\n1\r\nEND\r\n"
        "VALUE a 0 1\r\n1\r\nEND\r\n");
    assert_int_equal(converse->runs[FW_SESSION_HELD], 2);
    assert_int_equal(holds, 0);
}

#define REFUSED "SERVER_ERROR out of capacity, try again later\r\n"

static void test_refused_in_text(void **state)
{
    (void)state;
    for (size_t piece = 0; piece < 2; piece++) {
        const char *said = "set a 0 0 1\r\n1\r\n"
                           "get r\r\nget a\r\n"
                           "set r 0 0 5\r\nget a\r\n"
                           "set r 0 0 1 noreply\r\nx\r\n"
                           "ms r 4\r\nmg a\r\n"
                           "mg r v q\r\nmn\r\n"
                           "incr r 1\r\ndelete r noreply\r\n"
                           "set r 0 0 20000\r\n";
        char body[20003];
        memset(body, '\n', 20000);
        memcpy(body + 20000, "\r\n", 3);
        converse_say(converse, said, strlen(said), piece);
        converse_say(converse, body, 20002, piece);
        assert_string_equal(converse_answer(converse),
                            "STORED\r\n" REFUSED
                            "VALUE a 0 1\r\n1\r\nEND\r\n" REFUSED REFUSED REFUSED
                            "MN\r\n" REFUSED REFUSED);
        /* What is wrong anyhow is told so, and what administers is done. */
        say("set r 0 0 x\r\nversion\r\nget r\r\nget a\r\n",
            "CLIENT_ERROR bad command line format\r\nVERSION 1.6.18-fairway-" FW_VERSION
            "\r\n" REFUSED "VALUE a 0 1\r\n1\r\nEND\r\n");
    }
}

/* The gate may say why. */
static void test_refused_with_a_reason(void **state)
{
    (void)state;
    gate.refusal = "ask another";
    say("get r\r\nset r 0 0 1\r\n1\r\nget a\r\n",
        "SERVER_ERROR ask another\r\nSERVER_ERROR ask another\r\nEND\r\n");
    char why[FW_GATE_REFUSAL_MAX + 1];
    memset(why, 'y', FW_GATE_REFUSAL_MAX);
    why[FW_GATE_REFUSAL_MAX] = '\0';
    gate.refusal = why;
    for (int i = 0; i < 400; i++) { /* More than a reply has room for. */
        converse_say(converse, "get r\r\n", 7, 0);
    }
    assert_int_equal(converse->replies_length, 400 * (FW_GATE_REFUSAL_MAX + 15));
    gate.refusal = NULL;
}

/* ---- binary ---------------------------------------------------------------------------------- */

static size_t request(char *to, uint8_t opcode, size_t extras, const char *key, size_t value)
{
    size_t key_length = strlen(key);
    size_t body = extras + key_length + value;
    memset(to, 0, 24 + body);
    to[0] = (char)0x80;
    to[1] = (char)opcode;
    to[3] = (char)key_length;
    to[4] = (char)extras;
    to[10] = (char)(body >> 8);
    to[11] = (char)body;
    memcpy(to + 24 + extras, key, key_length);
    memset(to + 24 + extras + key_length, 'v', value);
    return 24 + body;
}

static void test_binary(void **state)
{
    (void)state;
    for (size_t piece = 0; piece < 2; piece++) {
        char said[4096];
        size_t length = 0;
        length += request(said + length, 0x01, 8, "rk", 300); /* set */
        length += request(said + length, 0x09, 0, "rk", 0);   /* getq */
        length += request(said + length, 0x05, 20, "rk", 0);  /* increment */
        length += request(said + length, 0x00, 0, "hk", 0);   /* get */
        length += request(said + length, 0x0a, 0, "", 0);     /* noop */
        holds = 1;
        fw_text_clear(&asked);
        converse_reconnect(converse);
        converse_say(converse, said, length, piece);
        assert_string_equal(asked.data, "write rk,read rk,write rk,read hk,admin -,");
        const char *reply = converse->replies;
        static const uint8_t opcodes[] = {0x01, 0x09, 0x05, 0x00, 0x0a};
        static const uint8_t statuses[] = {BUSY, BUSY, BUSY, 0x01, 0x00};
        for (size_t i = 0; i < FW_ARRAY_LENGTH(opcodes); i++) {
            assert_int_equal((uint8_t)reply[1], opcodes[i]);
            assert_int_equal((uint8_t)reply[7], statuses[i]);
            reply += 24 + (uint8_t)reply[11];
        }
        assert_int_equal(reply - converse->replies, converse->replies_length);
        (void)converse_answer(converse);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_when_it_is_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_held, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_in_text, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_with_a_reason, setup, teardown),
        cmocka_unit_test_setup_teardown(test_binary, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
