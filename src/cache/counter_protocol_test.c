/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the protocol of counters answers as yrmcds documents it, to the byte; what is wrong is
 * refused, and what is too long is swallowed; what a connection has goes back when it ends.
 * Method: packets written out as bytes, said to a session at once and in pieces of any size, and
 * replies compared with what the document says. What counters do has a test of its own.
 */
#include "cache/counter_protocol.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/assert.h"
#include "cache/counters.h"
#include "support/converse.h"
#include "support/packets.h"

enum {
    NOOP = 0x00,
    GET = 0x01,
    ACQUIRE = 0x02,
    RELEASE = 0x03,
    STATS = 0x10,
    DUMP = 0x11,
    OK = 0x00,
    NOT_FOUND = 0x01,
    INVALID = 0x04,
    NOT_AVAILABLE = 0x21,
    NOT_ACQUIRED = 0x22,
    UNKNOWN = 0x81,
    NO_MEMORY = 0x82,
    HEADER = 12,
    OPAQUE = 0x0a0b0c0d,
    MEMORY = 4 << 20, /* Of so many lists that a dump goes round in several steps. */
};

static struct converse *converse;
static struct packets said;

static void connect_again(void)
{
    converse_reconnect(converse);
    converse->session.protocol = FW_PROTOCOL_COUNTERS;
}

static int setup(void **state)
{
    (void)state;
    const struct fw_counters_config config = {.memory = MEMORY, .interval_s = 100};
    converse = converse_create();
    assert_int_equal(fw_counters_create(&converse->cache.counters, &config, 1), 0);
    connect_again();
    said.length = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    converse_destroy(converse);
    return 0;
}

/* A header. `body_length` may be a lie. */
static void add_header(uint8_t opcode, size_t body_length)
{
    packets_add_number(&said, 0x90, 1);
    packets_add_number(&said, opcode, 1);
    packets_add_number(&said, 0, 2);
    packets_add_number(&said, body_length, 4);
    packets_add_number(&said, OPAQUE, 4);
}

/* A request with as many of the numbers as its opcode has, and a name. */
static void add(uint8_t opcode, uint32_t count, uint32_t total, const char *name)
{
    size_t numbers = opcode == ACQUIRE ? 8 : opcode == RELEASE ? 4 : 0;
    add_header(opcode, numbers + 2 + strlen(name));
    if (numbers > 0) {
        packets_add_number(&said, count, 4);
    }
    if (numbers > 4) {
        packets_add_number(&said, total, 4);
    }
    packets_add_number(&said, strlen(name), 2);
    packets_add_bytes(&said, name, strlen(name));
}

struct reply {
    uint8_t opcode;
    uint8_t status;
    uint32_t body_length;
    const char *body;
};

static const char *replies;
static size_t replies_length;

/* Takes the next reply off. */
static struct reply next_reply(void)
{
    FW_ASSERT(replies_length >= HEADER);
    assert_int_equal(packet_number(replies, 1), 0x91);
    assert_int_equal(packet_number(replies + 3, 1), 0);
    assert_int_equal(packet_number(replies + 8, 4), OPAQUE);
    struct reply reply = {
        .opcode = (uint8_t)packet_number(replies + 1, 1),
        .status = (uint8_t)packet_number(replies + 2, 1),
        .body_length = (uint32_t)packet_number(replies + 4, 4),
        .body = replies + HEADER,
    };
    FW_ASSERT(reply.body_length <= replies_length - HEADER);
    replies += HEADER + reply.body_length;
    replies_length -= HEADER + reply.body_length;
    return reply;
}

/* Says what was added, in pieces of that size. */
static void say(size_t piece)
{
    converse_say(converse, said.bytes, said.length, piece);
    said.length = 0;
    replies_length = converse->replies_length;
    replies = converse_answer(converse);
}

static struct reply ask(uint8_t opcode, uint32_t count, uint32_t total, const char *name)
{
    add(opcode, count, total, name);
    say(0);
    struct reply reply = next_reply();
    assert_int_equal(replies_length, 0);
    assert_int_equal(reply.opcode, opcode);
    return reply;
}

/* An error, with the text that goes with it. */
static void assert_refused(struct reply reply, int status, const char *text)
{
    assert_int_equal(reply.status, status);
    assert_int_equal(reply.body_length, strlen(text));
    assert_memory_equal(reply.body, text, strlen(text));
}

/* Success with a number, or with nothing. */
static void assert_number(struct reply reply, uint32_t expected)
{
    assert_int_equal(reply.status, OK);
    assert_int_equal(reply.body_length, 4);
    assert_int_equal(packet_number(reply.body, 4), expected);
}

static void assert_empty(struct reply reply)
{
    assert_int_equal(reply.status, OK);
    assert_int_equal(reply.body_length, 0);
}

/* As they stand on the wire; the other tests read and write with helpers. */
static void test_bytes(void **state)
{
    (void)state;
    static const char request[] = "\x90\x02\x00\x00\x00\x00\x00\x0d\x01\x02\x03\x04"
                                  "\x00\x00\x00\x02\x00\x00\x00\x05\x00\x03"
                                  "abc";
    static const char expected[] = "\x91\x02\x00\x00\x00\x00\x00\x04\x01\x02\x03\x04"
                                   "\x00\x00\x00\x02";
    converse_say(converse, request, sizeof request - 1, 0);
    assert_int_equal(converse->replies_length, sizeof expected - 1);
    assert_memory_equal(converse_answer(converse), expected, sizeof expected - 1);
    assert_number(ask(GET, 0, 0, "abc"), 2);
}

static void test_commands(void **state)
{
    (void)state;
    add_header(NOOP, 0);
    say(0);
    assert_empty(next_reply());
    assert_refused(ask(GET, 0, 0, "a"), NOT_FOUND, "Not found");
    assert_refused(ask(RELEASE, 0, 0, "a"), NOT_FOUND, "Not found");
    assert_number(ask(ACQUIRE, 3, 0x01020304, "a"), 3);
    assert_number(ask(ACQUIRE, 0x01020301, 0x01020304, "a"), 0x01020301);
    assert_refused(ask(ACQUIRE, 1, 0x01020304, "a"), NOT_AVAILABLE, "Resource not available");
    assert_number(ask(GET, 0, 0, "a"), 0x01020304);
    assert_refused(ask(RELEASE, 0x01020305, 0, "a"), NOT_ACQUIRED, "Not acquired");
    assert_empty(ask(RELEASE, 0x01020303, 0, "a"));
    assert_number(ask(GET, 0, 0, "a"), 1);
    assert_empty(ask(RELEASE, 0, 0, "a"));
    assert_empty(ask(RELEASE, 1, 0, "a"));
    assert_number(ask(GET, 0, 0, "a"), 0);
}

static void test_end_of_connection(void **state)
{
    (void)state;
    assert_number(ask(ACQUIRE, 2, 2, "a"), 2);
    assert_number(ask(ACQUIRE, 1, 2, "b"), 1);
    connect_again();
    assert_number(ask(GET, 0, 0, "a"), 0);
    assert_number(ask(GET, 0, 0, "b"), 0);
    assert_refused(ask(RELEASE, 1, 0, "a"), NOT_ACQUIRED, "Not acquired");
    assert_number(ask(ACQUIRE, 2, 2, "a"), 2);
}

static void test_invalid(void **state)
{
    (void)state;
    static const char text[] = "Invalid arguments";
    static const struct {
        uint8_t opcode;
        size_t body_length;
        const char *body;
    } bad[] = {
        {NOOP, 1, "x"},
        {STATS, 1, "x"},
        {DUMP, 2, "\0\0"},
        {GET, 0, ""},
        {GET, 1, "\0"},
        {GET, 2, "\0\0"},   /* No name. */
        {GET, 3, "\0\2a"},  /* Less than it says. */
        {GET, 4, "\0\1ab"}, /* More. */
        {RELEASE, 0, ""},
        {RELEASE, 5, "\0\0\0\1\0"},
        {RELEASE, 6, "\0\0\0\1\0\0"},
        {ACQUIRE, 9, "\0\0\0\1\0\0\0\1\0"},
        {ACQUIRE, 10, "\0\0\0\1\0\0\0\1\0\0"},
        {ACQUIRE, 11, "\0\0\0\0\0\0\0\0\0\1a"}, /* Nothing. */
        {ACQUIRE, 11, "\0\0\0\2\0\0\0\1\0\1a"}, /* More than there is. */
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        add_header(bad[i].opcode, bad[i].body_length);
        packets_add_bytes(&said, bad[i].body, bad[i].body_length);
    }
    add(GET, 0, 0, "a");
    say(0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_refused(next_reply(), INVALID, text);
    }
    assert_refused(next_reply(), NOT_FOUND, "Not found"); /* None of them was done. */
    assert_int_equal(replies_length, 0);
}

static void test_unknown(void **state)
{
    (void)state;
    for (int opcode = 0; opcode < 256; opcode++) {
        if (opcode <= RELEASE || opcode == STATS || opcode == DUMP) {
            continue;
        }
        add_header((uint8_t)opcode, 3);
        packets_add_bytes(&said, "abc", 3);
        say(0);
        struct reply reply = next_reply();
        assert_int_equal(reply.opcode, opcode);
        assert_refused(reply, UNKNOWN, "Unknown command");
    }
    assert_false(converse->is_closed);
    packets_add_bytes(&said, "get a\r\nget b\r\n", 14); /* Another protocol. */
    say(0);
    assert_int_equal(replies_length, 0);
    assert_true(converse->is_closed);
}

/* The longest name, one that is longer, and bodies that nobody can have meant. */
static void test_long(void **state)
{
    (void)state;
    static char name[FW_COUNTERS_NAME_MAX + 2];
    memset(name, 'n', sizeof name - 1);
    assert_refused(ask(ACQUIRE, 1, 1, name), INVALID, "Invalid arguments");
    assert_refused(ask(GET, 1, 1, name), INVALID, "Invalid arguments");
    name[FW_COUNTERS_NAME_MAX] = '\0';
    assert_number(ask(ACQUIRE, 1, 1, name), 1);
    assert_number(ask(GET, 0, 0, name), 1);

    enum { SWALLOWED = 3 * PACKETS_SIZE };
    static const uint8_t opcodes[] = {ACQUIRE, NOOP, 0x77};
    static const int statuses[] = {INVALID, INVALID, UNKNOWN};
    for (int i = 0; i < 3; i++) {
        add_header(opcodes[i], SWALLOWED);
        say(0);
        assert_int_equal(next_reply().status, statuses[i]); /* At once. */
        for (size_t left = SWALLOWED; left > 0; left -= PACKETS_SIZE / 2) {
            said.length = PACKETS_SIZE / 2;
            memset(said.bytes, 0x55, said.length);
            say(0);
            assert_int_equal(replies_length, 0);
        }
        assert_number(ask(GET, 0, 0, name), 1);
    }
}

static void test_pieces(void **state)
{
    (void)state;
    for (size_t piece = 1; piece < 40; piece++) {
        add(ACQUIRE, 2, 3, "some name");
        add_header(NOOP, 0);
        add(ACQUIRE, 2, 3, "some name");
        add_header(0x77, 0);
        add(RELEASE, 2, 0, "some name");
        say(piece);
        assert_number(next_reply(), 2);
        assert_empty(next_reply());
        assert_int_equal(next_reply().status, NOT_AVAILABLE);
        assert_int_equal(next_reply().status, UNKNOWN);
        assert_empty(next_reply());
        assert_int_equal(replies_length, 0);
    }
}

static void test_stats(void **state)
{
    (void)state;
    assert_number(ask(ACQUIRE, 2, 2, "a"), 2);
    assert_number(ask(ACQUIRE, 1, 2, "b"), 1);
    (void)ask(ACQUIRE, 1, 2, "a");
    add_header(STATS, 0);
    say(0);
    struct reply reply = next_reply();
    assert_int_equal(reply.status, OK);
    char text[512] = "";
    const char *at = reply.body;
    while (at < reply.body + reply.body_length) {
        int name_length = (int)packet_number(at, 2);
        int value_length = (int)packet_number(at + 2, 2);
        at += 4;
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%.*s=%.*s ", name_length,
                       at, value_length, at + name_length);
        at += name_length + value_length;
    }
    assert_ptr_equal(at, reply.body + reply.body_length);
    char expected[512];
    struct fw_counters_stats stats;
    fw_counters_stats(converse->cache.counters, &stats);
    (void)snprintf(expected, sizeof expected,
                   "objects=2 total_objects=2 used_memory=%d limit_memory=%d claims=2 acquired=2 "
                   "refused=1 ",
                   (int)stats.memory_used, MEMORY);
    assert_string_equal(text, expected);
}

/* A name of that length, at least 8, which ends with the number in 8 digits. */
static const char *name_of(size_t length, size_t number)
{
    static char name[FW_COUNTERS_NAME_MAX + 1];
    memset(name, 'n', length);
    for (size_t i = 1; i <= 8; i++) {
        name[length - i] = (char)('0' + number % 10);
        number /= 10;
    }
    name[length] = '\0';
    return name;
}

static size_t number_of(const char *name_end)
{
    size_t number = 0;
    for (const char *digit = name_end - 8; digit < name_end; digit++) {
        number = number * 10 + (size_t)(*digit - '0');
    }
    return number;
}

/* Dumps `count` counters with names of that length; each must be there once. */
static void check_dump(size_t count, size_t name_length)
{
    static bool seen[20000];
    for (size_t i = 0; i < count; i++) {
        const char *name = name_of(name_length, i);
        assert_number(ask(ACQUIRE, (uint32_t)i + 2, 1 << 20, name), (uint32_t)i + 2);
        assert_empty(ask(RELEASE, 1, 0, name));
    }
    memset(seen, 0, sizeof seen);
    add_header(DUMP, 0);
    say(0);
    for (size_t i = 0; i < count; i++) {
        struct reply reply = next_reply();
        assert_int_equal(reply.opcode, DUMP);
        assert_int_equal(reply.status, OK);
        assert_int_equal(reply.body_length, 10 + name_length);
        assert_int_equal(packet_number(reply.body + 8, 2), name_length);
        size_t number = number_of(reply.body + reply.body_length);
        assert_true(number < count && !seen[number]);
        seen[number] = true;
        assert_memory_equal(reply.body + 10, name_of(name_length, number), name_length);
        assert_int_equal(packet_number(reply.body, 4), number + 1);
        assert_int_equal(packet_number(reply.body + 4, 4), number + 2);
    }
    struct reply last = next_reply();
    assert_int_equal(last.opcode, DUMP);
    assert_empty(last);
    assert_int_equal(replies_length, 0);
}

/* Ten times what a reply has room for: some are full in the middle of one of the lists. */
static void test_dump(void **state)
{
    (void)state;
    check_dump(0, 8);
    check_dump(20000, 10);
    assert_true(converse->runs[FW_SESSION_OUTPUT] > 10);
    assert_number(ask(GET, 0, 0, name_of(10, 7)), 8); /* The session is back where it was. */
}

/* Seven of them fill a reply. */
static void test_dump_of_long_names(void **state)
{
    (void)state;
    check_dump(100, FW_COUNTERS_NAME_MAX);
    assert_true(converse->runs[FW_SESSION_OUTPUT] > 100 / 8);
}

static void test_no_memory(void **state)
{
    (void)state;
    const char *name = NULL;
    uint8_t status = OK;
    for (size_t i = 0; i < 1000 && status == OK; i++) {
        name = name_of(FW_COUNTERS_NAME_MAX, i);
        status = ask(ACQUIRE, 1, 1, name).status;
    }
    assert_int_equal(status, NO_MEMORY);
    assert_refused(ask(ACQUIRE, 1, 1, name), NO_MEMORY, "Out of memory");
    assert_refused(ask(GET, 0, 0, name), NOT_FOUND, "Not found");
}

static void test_shown(void **state)
{
    (void)state;
    char bytes[64];
    struct fw_text text;
    fw_text_init(&text, bytes, sizeof bytes);
    add(ACQUIRE, 1, 1, "a");
    add_header(0x77, 0);
    fw_counter_show_request(&text, said.bytes, said.length);
    fw_text_append_string(&text, ", ");
    fw_counter_show_request(&text, said.bytes + said.length - HEADER, HEADER);
    fw_text_append_string(&text, ", ");
    fw_counter_show_request(&text, said.bytes, HEADER - 1);
    assert_string_equal(text.data, "acquire, opcode 0x77, what is no request");
    fw_text_clear(&text);
    fw_counter_show_answer(&text, "\x91\x02\x21\x00\x00\x00\x00\x00\x00\x00\x00\x00", HEADER);
    fw_counter_show_answer(&text, "\x91\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", HEADER);
    assert_string_equal(text.data, "Resource not availableOK");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_commands, setup, teardown),
        cmocka_unit_test_setup_teardown(test_end_of_connection, setup, teardown),
        cmocka_unit_test_setup_teardown(test_invalid, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pieces, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stats, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dump, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dump_of_long_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shown, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
