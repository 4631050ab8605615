/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the binary protocol answers each opcode, and each mistake, as memcached 1.6.18 does:
 * status, text, lengths, CAS, what quiet requests leave out, and when the connection is closed.
 * Method: packets are said to a session in bytes, and the replies, which were taken from memcached,
 * are compared field by field. A conversation with every kind of request is then cut in two at each
 * of its bytes, and said byte by byte: the replies must stay the same.
 */
#include "base/version.h"
#include "cache/binary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cache/auth.h"
#include "support/converse.h"
#include "support/packets.h"

enum {
    GET = 0x00,
    SET,
    ADD,
    REPLACE,
    DELETE,
    INCREMENT,
    DECREMENT,
    QUIT,
    FLUSH,
    GETQ,
    NOOP,
    VERSION,
    GETK,
    GETKQ,
    APPEND,
    PREPEND,
    STAT,
    SETQ,
    ADDQ,
    REPLACEQ,
    DELETEQ,
    INCREMENTQ,
    DECREMENTQ,
    QUITQ,
    FLUSHQ,
    APPENDQ,
    PREPENDQ,
    VERBOSITY,
    TOUCH,
    GAT,
    GATQ,
    SASL_LIST = 0x20,
    SASL_AUTH,
    SASL_STEP,
    GATK,
    GATKQ,
    UNKNOWN = 0x60,
};

/* What has been packed and not yet been said. */
static struct packets packed;
static struct converse *converse;

#define PACK(...) packets_add(&packed, (struct packet){__VA_ARGS__})

/* Flags 5, never expires. */
#define STORED .extras = "\0\0\0\5\0\0\0\0", .extras_length = 8
#define NEVER  .extras = "\0\0\0\0", .extras_length = 4
/* Counts by 1, begins with 5. */
#define COUNTED .extras = "\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\5\0\0\0\0", .extras_length = 20
#define COUNTED_OLD \
    .extras = "\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\5\377\377\377\377", .extras_length = 20

/* The replies, one after the other. */
static char replies[4 * PACKETS_SIZE];
static size_t replies_length;
static size_t replies_next;

static void say(void)
{
    converse_say(converse, packed.bytes, packed.length, 0);
    packed.length = 0;
    replies_length = converse->replies_length;
    assert_true(replies_length <= sizeof replies);
    memcpy(replies, converse_answer(converse), replies_length);
    replies_next = 0;
}

static struct packet_reply next_reply(void)
{
    struct packet_reply reply =
        packet_reply_read(replies + replies_next, replies_length - replies_next);
    replies_next += PACKET_HEADER + reply.body_length;
    return reply;
}

/* The next reply has that status and body; returns its CAS. */
static uint64_t expect_bytes(uint8_t opcode, uint16_t status, const char *body, size_t length)
{
    struct packet_reply reply = next_reply();
    assert_int_equal(reply.opcode, opcode);
    assert_int_equal(reply.status, status);
    assert_int_equal(reply.body_length, length);
    assert_memory_equal(reply.body, body, length);
    return reply.cas;
}

#define EXPECT(opcode, status, body) expect_bytes(opcode, status, body, sizeof(body) - 1)

static void expect_end(void)
{
    assert_int_equal(replies_next, replies_length);
}

/* All that was packed, and behind it a Noop that must be answered: the connection lives. */
static void say_alive(void)
{
    PACK(.opcode = NOOP);
    say();
}

static void expect_alive(void)
{
    assert_int_equal(EXPECT(NOOP, 0, ""), 0);
    expect_end();
    assert_false(converse->is_closed);
}

static int setup(void **state)
{
    (void)state;
    converse = converse_create();
    packed.length = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    converse_destroy(converse);
    return 0;
}

static void test_get(void **state)
{
    (void)state;
    PACK(.opcode = SET, .key = "key", .value = "hello", STORED);
    PACK(.opcode = GET, .key = "key");
    PACK(.opcode = GETQ, .key = "key");
    PACK(.opcode = GETK, .key = "key");
    PACK(.opcode = GETKQ, .key = "key");
    say_alive();
    uint64_t cas = EXPECT(SET, 0, "");
    assert_true(cas != 0);
    assert_int_equal(EXPECT(GET, 0, "\0\0\0\5hello"), cas);
    assert_int_equal(EXPECT(GETQ, 0, "\0\0\0\5hello"), cas);
    struct packet_reply reply = next_reply();
    assert_int_equal(reply.opcode, GETK);
    assert_int_equal(reply.extras_length, 4);
    assert_int_equal(reply.key_length, 3);
    assert_int_equal(reply.body_length, 12);
    assert_memory_equal(reply.body, "\0\0\0\5keyhello", 12);
    assert_int_equal(EXPECT(GETKQ, 0, "\0\0\0\5keyhello"), cas);
    expect_alive();
}

static void test_get_miss(void **state)
{
    (void)state;
    PACK(.opcode = GET, .key = "none");
    PACK(.opcode = GETQ, .key = "none");
    PACK(.opcode = GETK, .key = "none");
    PACK(.opcode = GETKQ, .key = "none");
    PACK(.opcode = GAT, .key = "none", NEVER);
    PACK(.opcode = GATQ, .key = "none", NEVER);
    PACK(.opcode = GATK, .key = "none", NEVER);
    PACK(.opcode = GATKQ, .key = "none", NEVER);
    PACK(.opcode = TOUCH, .key = "none", NEVER);
    say_alive();
    EXPECT(GET, 1, "Not found");
    struct packet_reply reply = next_reply();
    assert_int_equal(reply.opcode, GETK);
    assert_int_equal(reply.status, 1);
    assert_int_equal(reply.key_length, 4);
    assert_int_equal(reply.body_length, 4);
    assert_memory_equal(reply.body, "none", 4);
    EXPECT(GAT, 1, "Not found");
    EXPECT(GATK, 1, "none");
    EXPECT(TOUCH, 1, "Not found");
    expect_alive();
    assert_int_equal(fw_counter_get(&converse->local.metrics->get_misses), 4);
    assert_int_equal(fw_counter_get(&converse->local.metrics->touch_misses), 5);
}

static void test_touch(void **state)
{
    (void)state;
    PACK(.opcode = SET, .key = "key", .value = "hello", STORED);
    PACK(.opcode = GAT, .key = "key", NEVER);
    PACK(.opcode = GATQ, .key = "key", NEVER);
    PACK(.opcode = GATK, .key = "key", NEVER);
    PACK(.opcode = GATKQ, .key = "key", NEVER);
    /* Until the year 2001. */
    PACK(.opcode = TOUCH, .key = "key", .extras = "\x3b\0\0\0", .extras_length = 4);
    PACK(.opcode = GET, .key = "key");
    say_alive();
    uint64_t cas = EXPECT(SET, 0, "");
    assert_int_equal(EXPECT(GAT, 0, "\0\0\0\5hello"), cas);
    EXPECT(GATQ, 0, "\0\0\0\5hello");
    EXPECT(GATK, 0, "\0\0\0\5keyhello");
    EXPECT(GATKQ, 0, "\0\0\0\5keyhello");
    assert_int_equal(EXPECT(TOUCH, 0, "\0\0\0\5"), cas);
    EXPECT(GET, 1, "Not found");
    expect_alive();
}

static void test_store(void **state)
{
    (void)state;
    PACK(.opcode = ADD, .key = "key", .value = "1", STORED);
    PACK(.opcode = ADD, .key = "key", .value = "2", STORED);
    PACK(.opcode = ADDQ, .key = "key", .value = "2", STORED);
    PACK(.opcode = ADDQ, .key = "new", .value = "2", STORED);
    PACK(.opcode = REPLACE, .key = "key", .value = "3", STORED);
    PACK(.opcode = REPLACE, .key = "none", .value = "3", STORED);
    PACK(.opcode = REPLACEQ, .key = "none", .value = "3", STORED);
    PACK(.opcode = REPLACEQ, .key = "key", .value = "4", STORED);
    PACK(.opcode = SETQ, .key = "set", .value = "5", STORED);
    PACK(.opcode = GET, .key = "key");
    PACK(.opcode = GET, .key = "new");
    PACK(.opcode = GET, .key = "set");
    say_alive();
    EXPECT(ADD, 0, "");
    assert_int_equal(EXPECT(ADD, 2, "Data exists for key."), 0);
    EXPECT(ADDQ, 2, "Data exists for key.");
    EXPECT(REPLACE, 0, "");
    EXPECT(REPLACE, 1, "Not found");
    EXPECT(REPLACEQ, 1, "Not found");
    EXPECT(GET, 0,
           "\0\0\0\5"
           "4");
    EXPECT(GET, 0,
           "\0\0\0\5"
           "2");
    EXPECT(GET, 0,
           "\0\0\0\5"
           "5");
    expect_alive();
}

static void test_store_compares(void **state)
{
    (void)state;
    PACK(.opcode = SET, .key = "key", .value = "1", STORED);
    say();
    uint64_t cas = EXPECT(SET, 0, "");
    /* With a CAS set, add and replace are the same. */
    PACK(.opcode = SET, .key = "key", .value = "2", STORED, .cas = cas + 99);
    PACK(.opcode = SET, .key = "none", .value = "2", STORED, .cas = cas);
    PACK(.opcode = ADD, .key = "none", .value = "2", STORED, .cas = cas);
    PACK(.opcode = REPLACE, .key = "none", .value = "2", STORED, .cas = cas);
    PACK(.opcode = ADD, .key = "key", .value = "3", STORED, .cas = cas);
    PACK(.opcode = APPEND, .key = "key", .value = "4", .cas = cas);
    PACK(.opcode = GET, .key = "key");
    say_alive();
    EXPECT(SET, 2, "Data exists for key.");
    EXPECT(SET, 1, "Not found");
    EXPECT(ADD, 1, "Not found");
    EXPECT(REPLACE, 1, "Not found");
    uint64_t cas_now = EXPECT(ADD, 0, "");
    EXPECT(APPEND, 2, "Data exists for key.");
    assert_int_equal(EXPECT(GET, 0,
                            "\0\0\0\5"
                            "3"),
                     cas_now);
    expect_alive();
    PACK(.opcode = APPEND, .key = "key", .value = "4", .cas = cas_now);
    say_alive();
    assert_true(EXPECT(APPEND, 0, "") != cas_now);
    expect_alive();
}

static void test_append(void **state)
{
    (void)state;
    PACK(.opcode = APPEND, .key = "key", .value = "x");
    PACK(.opcode = PREPENDQ, .key = "key", .value = "x");
    PACK(.opcode = SET, .key = "key", .value = "m", STORED);
    PACK(.opcode = APPEND, .key = "key", .value = "z");
    PACK(.opcode = PREPEND, .key = "key", .value = "a");
    PACK(.opcode = APPENDQ, .key = "key", .value = "!");
    PACK(.opcode = PREPENDQ, .key = "key", .value = "?");
    PACK(.opcode = APPEND, .key = "key");
    PACK(.opcode = GET, .key = "key");
    say_alive();
    EXPECT(APPEND, 5, "Not stored.");
    EXPECT(PREPENDQ, 5, "Not stored.");
    EXPECT(SET, 0, "");
    EXPECT(APPEND, 0, "");
    EXPECT(PREPEND, 0, "");
    uint64_t cas = EXPECT(APPEND, 0, "");
    assert_int_equal(EXPECT(GET, 0, "\0\0\0\5?amz!"), cas);
    expect_alive();
}

static void test_delete(void **state)
{
    (void)state;
    PACK(.opcode = SET, .key = "key", .value = "1", STORED);
    PACK(.opcode = DELETE, .key = "none");
    PACK(.opcode = DELETEQ, .key = "none");
    PACK(.opcode = DELETE, .key = "key", .cas = UINT64_MAX);
    PACK(.opcode = DELETE, .key = "key");
    PACK(.opcode = SETQ, .key = "key", .value = "1", STORED);
    PACK(.opcode = DELETEQ, .key = "key");
    PACK(.opcode = GET, .key = "key");
    say_alive();
    EXPECT(SET, 0, "");
    EXPECT(DELETE, 1, "Not found");
    EXPECT(DELETEQ, 1, "Not found");
    EXPECT(DELETE, 2, "Data exists for key.");
    assert_int_equal(EXPECT(DELETE, 0, ""), 0);
    EXPECT(GET, 1, "Not found");
    expect_alive();
    PACK(.opcode = SET, .key = "key", .value = "1", STORED);
    say();
    uint64_t cas = EXPECT(SET, 0, "");
    PACK(.opcode = DELETE, .key = "key", .cas = cas);
    say_alive();
    EXPECT(DELETE, 0, "");
    expect_alive();
}

static void test_count(void **state)
{
    (void)state;
    PACK(.opcode = INCREMENT, .key = "n", COUNTED_OLD);
    PACK(.opcode = INCREMENTQ, .key = "n", COUNTED_OLD);
    PACK(.opcode = INCREMENT, .key = "n", COUNTED);
    PACK(.opcode = INCREMENT, .key = "n", COUNTED);
    PACK(.opcode = DECREMENT, .key = "n", COUNTED_OLD);
    PACK(.opcode = DECREMENTQ, .key = "n", COUNTED);
    PACK(.opcode = INCREMENTQ, .key = "n", COUNTED);
    PACK(.opcode = INCREMENT, .key = "n", COUNTED, .cas = UINT64_MAX);
    PACK(.opcode = GET, .key = "n");
    PACK(.opcode = SETQ, .key = "s", .value = "abc", STORED);
    PACK(.opcode = DECREMENT, .key = "s", COUNTED);
    say_alive();
    EXPECT(INCREMENT, 1, "Not found");
    EXPECT(INCREMENTQ, 1, "Not found");
    uint64_t cas = EXPECT(INCREMENT, 0, "\0\0\0\0\0\0\0\5");
    assert_true(cas != 0);
    assert_true(EXPECT(INCREMENT, 0, "\0\0\0\0\0\0\0\6") != cas);
    EXPECT(DECREMENT, 0, "\0\0\0\0\0\0\0\5");
    EXPECT(INCREMENT, 2, "Data exists for key.");
    EXPECT(GET, 0,
           "\0\0\0\0"
           "5");
    EXPECT(DECREMENT, 6, "Non-numeric server-side value for incr or decr");
    expect_alive();
}

static void test_flush(void **state)
{
    (void)state;
    PACK(.opcode = SETQ, .key = "key", .value = "1", STORED);
    PACK(.opcode = FLUSH);
    PACK(.opcode = GET, .key = "key");
    PACK(.opcode = SETQ, .key = "key", .value = "1", STORED);
    PACK(.opcode = FLUSHQ, NEVER);
    PACK(.opcode = GET, .key = "key");
    PACK(.opcode = SETQ, .key = "key", .value = "1", STORED);
    PACK(.opcode = FLUSH, .extras = "\0\0\0\x9", .extras_length = 4); /* In 9 s. */
    PACK(.opcode = GET, .key = "key");
    say_alive();
    assert_int_equal(EXPECT(FLUSH, 0, ""), 0);
    EXPECT(GET, 1, "Not found");
    EXPECT(GET, 1, "Not found");
    EXPECT(FLUSH, 0, "");
    EXPECT(GET, 0,
           "\0\0\0\5"
           "1");
    expect_alive();
    assert_int_equal(fw_counter_get(&converse->local.metrics->cmd_flush), 3);
    converse->cache.settings.has_flush = false;
    PACK(.opcode = FLUSH);
    say_alive();
    EXPECT(FLUSH, 0x20, "Auth failure.");
    expect_alive();
}

static void test_server(void **state)
{
    (void)state;
    PACK(.opcode = VERSION);
    PACK(.opcode = VERBOSITY, .extras = "\0\0\0\2", .extras_length = 4);
    say_alive();
    EXPECT(VERSION, 0, FW_CACHE_VERSION);
    EXPECT(VERBOSITY, 0, "");
    expect_alive();
    assert_int_equal(converse->verbosity, 2);
    PACK(.opcode = QUIT);
    PACK(.opcode = NOOP);
    say();
    EXPECT(QUIT, 0, "");
    expect_end();
    assert_true(converse->is_closed);
    converse_reconnect(converse);
    PACK(.opcode = QUITQ);
    say();
    expect_end();
    assert_true(converse->is_closed);
}

static void test_stat(void **state)
{
    (void)state;
    PACK(.opcode = SETQ, .key = "key", .value = "1", STORED);
    PACK(.opcode = STAT);
    say_alive();
    bool has_set = false;
    for (;;) {
        struct packet_reply reply = next_reply();
        assert_int_equal(reply.opcode, STAT);
        assert_int_equal(reply.status, 0);
        if (reply.key_length == 0) {
            assert_int_equal(reply.body_length, 0);
            break;
        }
        assert_true(reply.body_length > reply.key_length);
        has_set |= reply.body_length == 8 && memcmp(reply.body, "cmd_set1", 8) == 0;
    }
    assert_true(has_set);
    expect_alive();

    PACK(.opcode = STAT, .key = "bogus");
    PACK(.opcode = STAT, .key = "conns");
    PACK(.opcode = STAT, .key = "reset");
    PACK(.opcode = STAT, .key = "detail");
    PACK(.opcode = STAT, .key = "detail on");
    PACK(.opcode = GETQ, .key = "a:b");
    PACK(.opcode = STAT, .key = "detail dump");
    PACK(.opcode = STAT, .key = "detail off");
    say_alive();
    EXPECT(STAT, 1, "Not found");
    EXPECT(STAT, 1, "Not found");
    EXPECT(STAT, 0, "");
    EXPECT(STAT, 1, "Not found");
    EXPECT(STAT, 0, "");
    EXPECT(STAT, 0, "detailedPREFIX a get 1 hit 0 set 0 del 0\r\nEND\r\n");
    EXPECT(STAT, 0, "");
    EXPECT(STAT, 0, "");
    expect_alive();
    assert_int_equal(converse->resets, 1);
}

/* Says what is packed; it must be answered with that, and the connection closed. */
static void expect_refused(uint8_t opcode, uint16_t status, const char *text)
{
    PACK(.opcode = NOOP);
    say();
    expect_bytes(opcode, status, text, strlen(text));
    expect_end();
    assert_true(converse->is_closed);
    converse_reconnect(converse);
}

static void test_lengths(void **state)
{
    (void)state;
    static const char *const invalid = "Invalid arguments";
    char key[FW_ITEM_KEY_MAX + 2];
    memset(key, 'k', sizeof key);
    key[FW_ITEM_KEY_MAX + 1] = '\0';
    static const struct packet wrong[] = {
        {.opcode = GET},
        {.opcode = GET, .key = "a", .value = "1"},
        {.opcode = GETQ, .key = "a", NEVER},
        {.opcode = SET, .key = "a", .value = "1"},
        {.opcode = SET, .key = "a", NEVER, .value = "1"},
        {.opcode = SETQ, STORED, .value = "1"},
        {.opcode = APPEND, .key = "a", NEVER, .value = "1"},
        {.opcode = APPEND, .value = "1"},
        {.opcode = DELETE},
        {.opcode = DELETE, .key = "a", .value = "1"},
        {.opcode = DELETE, .key = "a", NEVER},
        {.opcode = INCREMENT, .key = "a", NEVER},
        {.opcode = INCREMENT, COUNTED},
        {.opcode = INCREMENT, .key = "a", COUNTED, .value = "1"},
        {.opcode = NOOP, .key = "a"},
        {.opcode = VERSION, .value = "a"},
        {.opcode = QUIT, NEVER},
        {.opcode = FLUSH, .key = "a"},
        {.opcode = FLUSH, STORED},
        {.opcode = STAT, NEVER},
        {.opcode = GAT, .key = "a"},
        {.opcode = TOUCH, NEVER},
        {.opcode = SASL_LIST, .key = "a"},
        {.opcode = SASL_AUTH, .value = "a"},
        {.opcode = VERBOSITY},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(wrong); i++) {
        packets_add(&packed, wrong[i]);
        expect_refused(wrong[i].opcode, 4, invalid);
    }
    PACK(.opcode = GET, .key = key);
    expect_refused(GET, 4, invalid);
    PACK(.opcode = UNKNOWN, .key = key);
    expect_refused(UNKNOWN, 4, invalid);
    /* Key and extras are longer than the body is said to be. */
    PACK(.opcode = GET, .key = "abc", .body_more = -1);
    expect_refused(GET, 0x81, "Unknown command");
    PACK(.opcode = SET, .key = "abc", STORED, .body_more = -1);
    expect_refused(SET, 0x81, "Unknown command");
    /* The longest key there may be. */
    key[FW_ITEM_KEY_MAX] = '\0';
    PACK(.opcode = GET, .key = key);
    say_alive();
    EXPECT(GET, 1, "Not found");
    expect_alive();
}

static void test_close_in_silence(void **state)
{
    (void)state;
    PACK(.opcode = NOOP);
    PACK(.opcode = NOOP, .magic = 0x81);
    say();
    EXPECT(NOOP, 0, "");
    expect_end();
    assert_true(converse->is_closed);
    converse_reconnect(converse);
    /* A key for which no buffer is large enough. */
    PACK(.opcode = GET, .key_more = UINT16_MAX, .body_more = UINT16_MAX);
    say();
    expect_end();
    assert_true(converse->is_closed);
}

static void test_unknown(void **state)
{
    (void)state;
    PACK(.opcode = UNKNOWN);
    PACK(.opcode = 0x40);
    PACK(.opcode = SASL_LIST);
    PACK(.opcode = SASL_AUTH, .key = "PLAIN", .value = "1234567");
    say_alive();
    EXPECT(UNKNOWN, 0x81, "Unknown command");
    EXPECT(0x40, 0x81, "Unknown command");
    EXPECT(SASL_LIST, 0x81, "Unknown command");
    EXPECT(SASL_AUTH, 0x81, "Unknown command");
    expect_alive();
    /* memcached skips the body twice, so to say: once it has been read. */
    PACK(.opcode = UNKNOWN, .key = "abc", .value = "12345");
    packets_add_bytes(&packed, "xyz", 3);
    say_alive();
    EXPECT(UNKNOWN, 0x81, "Unknown command");
    expect_alive();
    /* But nothing of a body that is longer than its numbers go. */
    PACK(.opcode = UNKNOWN, .body_more = INT32_MIN);
    say_alive();
    EXPECT(UNKNOWN, 0x81, "Unknown command");
    expect_alive();
    /* Nor does it look for a value where none belongs. */
    PACK(.opcode = TOUCH, .key = "abc", NEVER, .body_more = 24);
    say_alive();
    EXPECT(TOUCH, 1, "Not found");
    expect_alive();
}

static void fill(char *value, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        value[i] = (char)('a' + i % 23);
    }
    value[length] = '\0';
}

static void test_large(void **state)
{
    (void)state;
    static const size_t lengths[] = {FW_ITEM_INLINE_MAX, FW_ITEM_INLINE_MAX + 1, 20000};
    static char value[20000 + 1];
    for (size_t i = 0; i < FW_ARRAY_LENGTH(lengths); i++) {
        size_t length = lengths[i];
        fill(value, length);
        PACK(.opcode = SET, .key = "key", STORED, .value = value);
        PACK(.opcode = GETK, .key = "key");
        PACK(.opcode = SETQ, .key = "key", STORED, .value = value);
        say_alive();
        uint64_t cas = EXPECT(SET, 0, "");
        struct packet_reply reply = next_reply();
        assert_int_equal(reply.cas, cas);
        assert_int_equal(reply.body_length, 7 + length);
        assert_memory_equal(reply.body, "\0\0\0\5key", 7);
        assert_memory_equal(reply.body + 7, value, length);
        expect_alive();
        PACK(.opcode = ADD, .key = "key", STORED, .value = value);
        PACK(.opcode = PREPEND, .key = "key", .value = value);
        PACK(.opcode = SET, .key = "key", STORED, .value = value, .cas = cas);
        say_alive();
        EXPECT(ADD, 2, "Data exists for key.");
        EXPECT(PREPEND, 0, "");
        EXPECT(SET, 2, "Data exists for key.");
        expect_alive();
        PACK(.opcode = GET, .key = "key");
        say_alive();
        reply = next_reply();
        assert_int_equal(reply.body_length, 4 + 2 * length);
        assert_memory_equal(reply.body + 4, value, length);
        assert_memory_equal(reply.body + 4 + length, value, length);
        expect_alive();
    }
}

static void test_too_large(void **state)
{
    (void)state;
    converse->cache.settings.item_size_max = 20000;
    static char value[20000 + 1];
    fill(value, 20000);
    PACK(.opcode = SETQ, .key = "key", STORED, .value = "old");
    PACK(.opcode = ADD, .key = "key", STORED, .value = value);
    PACK(.opcode = APPENDQ, .key = "key", .value = value);
    say_alive();
    EXPECT(ADD, 3, "Too large.");
    EXPECT(APPENDQ, 3, "Too large.");
    expect_alive();
    PACK(.opcode = GET, .key = "key");
    PACK(.opcode = SETQ, .key = "key", STORED, .value = value);
    PACK(.opcode = GET, .key = "key");
    say_alive();
    EXPECT(GET, 0, "\0\0\0\5old");
    EXPECT(SETQ, 3, "Too large.");
    EXPECT(GET, 1, "Not found"); /* Better than a value that was to be replaced. */
    expect_alive();
    value[12000] = '\0';
    PACK(.opcode = SETQ, .key = "key", STORED, .value = value);
    PACK(.opcode = APPEND, .key = "key", .value = value);
    say_alive();
    EXPECT(APPEND, 5, "Not stored.");
    expect_alive();
}

static void test_login(void **state)
{
    (void)state;
    char path[] = "/tmp/fairway-binary-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "user:secret\n", 12), 12);
    close(fd);
    struct fw_auth *auth;
    assert_int_equal(fw_auth_load(&auth, path, NULL), 0);
    (void)unlink(path);
    converse->cache.auth = auth;
    converse->cache.settings.needs_login = true;

    PACK(.opcode = GET, .key = "key");
    expect_refused(GET, 0x20, "Auth failure.");
    PACK(.opcode = VERSION);
    PACK(.opcode = SASL_LIST);
    PACK(.opcode = SASL_AUTH, .key = "CRAM-MD5", .value = "x");
    PACK(.opcode = SASL_AUTH, .key = "MECHANISM-OF-32-CHARACTERS-45678", .value = "x");
    PACK(.opcode = SASL_AUTH, .key = "MECHANISM-OF-33-CHARACTERS-456789", .value = "value");
    PACK(.opcode = SASL_AUTH, .key = "MECHANISM-OF-33-CHARACTERS-456789");
    PACK(.opcode = SASL_AUTH, .key = "PLAIN", .value = "x");
    PACK(.opcode = SASL_AUTH, .key = "PLAIN");
    PACK(.opcode = SASL_STEP, .key = "PLAIN");
    PACK(.opcode = SASL_AUTH, .key = "PLAIN", .body_more = 12);
    packets_add_bytes(&packed, "\0user\0secre?", 12);
    say();
    EXPECT(VERSION, 0, FW_CACHE_VERSION);
    EXPECT(SASL_LIST, 0, "PLAIN");
    EXPECT(SASL_AUTH, 0x20, "Auth failure.");
    EXPECT(SASL_AUTH, 0x20, "Auth failure.");
    EXPECT(SASL_AUTH, 4, "Invalid arguments");
    EXPECT(SASL_AUTH, 4, "Invalid arguments");
    EXPECT(SASL_AUTH, 0x20, "Auth failure.");
    EXPECT(SASL_AUTH, 0x21, "");
    EXPECT(SASL_STEP, 0x20, "Auth failure.");
    EXPECT(SASL_AUTH, 0x20, "Auth failure.");
    expect_end();
    assert_int_equal(fw_counter_get(&converse->local.metrics->auth_cmds), 5);
    assert_int_equal(fw_counter_get(&converse->local.metrics->auth_errors), 5);

    PACK(.opcode = SASL_AUTH, .key = "PLAIN", .body_more = 12);
    packets_add_bytes(&packed, "\0user\0secret", 12);
    PACK(.opcode = GET, .key = "key");
    say_alive();
    EXPECT(SASL_AUTH, 0, "Authenticated");
    EXPECT(GET, 1, "Not found");
    expect_alive();
    /* Who tries again and fails has to log in again. */
    PACK(.opcode = SASL_AUTH, .key = "PLAIN", .value = "x");
    PACK(.opcode = NOOP);
    say();
    EXPECT(SASL_AUTH, 0x20, "Auth failure.");
    EXPECT(NOOP, 0x20, "Auth failure.");
    expect_end();
    assert_true(converse->is_closed);
    fw_auth_destroy(auth);
    converse->cache.auth = NULL;
}

/* CAS differ from run to run. */
static void replies_blank_cas(void)
{
    for (replies_next = 0; replies_next < replies_length;) {
        char *cas = replies + replies_next + 16;
        (void)next_reply();
        memset(cas, 0, 8);
    }
}

static void test_cuts(void **state)
{
    (void)state;
    static char value[9000 + 1];
    static char script[PACKETS_SIZE];
    static char expected[sizeof replies];
    fill(value, 300);
    PACK(.opcode = FLUSHQ);
    PACK(.opcode = SET, .key = "key", STORED, .value = value);
    PACK(.opcode = GETK, .key = "key");
    PACK(.opcode = GETQ, .key = "none");
    PACK(.opcode = APPENDQ, .key = "key", .value = "more");
    PACK(.opcode = GATQ, .key = "key", NEVER);
    PACK(.opcode = INCREMENT, .key = "n", COUNTED);
    PACK(.opcode = UNKNOWN);
    PACK(.opcode = DELETE, .key = "key");
    PACK(.opcode = STAT, .key = "reset");
    fill(value, 9000);
    PACK(.opcode = ADD, .key = "large", STORED, .value = value);
    PACK(.opcode = GET, .key = "large");
    PACK(.opcode = VERSION);
    PACK(.opcode = NOOP, .key = "wrong");
    size_t script_length = packed.length;
    memcpy(script, packed.bytes, packed.length);
    say();
    assert_true(converse->is_closed);
    replies_blank_cas();
    size_t expected_length = replies_length;
    memcpy(expected, replies, replies_length);

    for (size_t cut = 0; cut <= script_length; cut++) {
        converse_reconnect(converse);
        size_t piece = cut == 0 ? 1 : cut;
        converse_say(converse, script, cut, 0);
        converse_say(converse, script + cut, script_length - cut, cut == 0 ? piece : 0);
        say();
        replies_blank_cas();
        assert_true(converse->is_closed);
        assert_int_equal(replies_length, expected_length);
        assert_memory_equal(replies, expected, expected_length);
    }
    assert_true(converse->input_most < FW_SESSION_INPUT_MAX);
}

static void test_pipeline_fills_reply(void **state)
{
    (void)state;
    enum { GETS = 600 };
    static char value[500 + 1];
    fill(value, 500);
    PACK(.opcode = SETQ, .key = "key", STORED, .value = value);
    for (int i = 0; i < GETS; i++) {
        PACK(.opcode = GET, .key = "key");
    }
    PACK(.opcode = NOOP);
    converse_say(converse, packed.bytes, packed.length, 0);
    packed.length = 0;
    size_t each = 24 + 4 + 500;
    assert_int_equal(converse->replies_length, GETS * each + 24);
    const char *answer = converse_answer(converse);
    for (int i = 0; i < GETS; i++) {
        assert_memory_equal(answer + (size_t)i * each + 28, value, 500);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_get, setup, teardown),
        cmocka_unit_test_setup_teardown(test_get_miss, setup, teardown),
        cmocka_unit_test_setup_teardown(test_touch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_store, setup, teardown),
        cmocka_unit_test_setup_teardown(test_store_compares, setup, teardown),
        cmocka_unit_test_setup_teardown(test_append, setup, teardown),
        cmocka_unit_test_setup_teardown(test_delete, setup, teardown),
        cmocka_unit_test_setup_teardown(test_count, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flush, setup, teardown),
        cmocka_unit_test_setup_teardown(test_server, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stat, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lengths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_close_in_silence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_login, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cuts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pipeline_fills_reply, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
