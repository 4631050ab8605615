/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: an item that one client has locked is changed by nobody else, in whichever protocol, until
 * that client unlocks it or goes; and the list of keys shows each key of a prefix once.
 * Method: two sessions on one cache, each said packets or lines, one after the other. Threads then
 * lock, count and unlock one item at the same time: with locks no count is lost, although each is
 * read and written in two steps.
 */
#include "cache/locks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cache/parser.h"
#include "support/converse.h"
#include "support/packets.h"

enum {
    GET = 0x00,
    SET = 0x01,
    DELETE = 0x04,
    INCREMENT = 0x05,
    FLUSH = 0x08,
    APPEND = 0x0e,
    LOCK = 0x40,
    LOCKQ,
    UNLOCK,
    UNLOCKQ,
    UNLOCK_ALL,
    UNLOCK_ALLQ,
    LOCK_AND_GET,
    LOCK_AND_GETQ,
    LOCK_AND_GETK,
    LOCK_AND_GETKQ,
    REPLACE_AND_UNLOCK,
    REPLACE_AND_UNLOCKQ,
    KEYS = 0x50,
    OK = 0,
    NOT_FOUND = 1,
    LOCKED = 0x10,
    NOT_LOCKED = 0x11,
};

#define STORED  .extras = "\0\0\0\5\0\0\0\0", .extras_length = 8
#define COUNTED .extras = "\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\5\0\0\0\0", .extras_length = 20

/* Two clients of one cache. */
static struct converse *converse;
static struct fw_session sessions[2];

static int setup(void **state)
{
    (void)state;
    converse = converse_create();
    converse->cache.settings.has_locking = true;
    assert_int_equal(fw_locks_create(&converse->cache.locks), 0);
    for (uint32_t i = 0; i < 2; i++) {
        fw_session_init(&sessions[i], 10 + i);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        fw_session_fini(&sessions[i], &converse->local);
    }
    converse_destroy(converse);
    return 0;
}

static char replies[PACKETS_SIZE];
static size_t replies_length;
static struct packets packed;

/* Says it all at once. */
static void say(int client, const char *bytes, size_t size)
{
    replies_length = 0;
    for (;;) {
        struct fw_session_step step =
            fw_session_run(&sessions[client], &converse->local, bytes, size);
        bytes += step.consumed;
        size -= step.consumed;
        struct fw_reply *reply = &converse->local.reply;
        for (uint32_t i = 0, count = fw_reply_finish(reply); i < count; i++) {
            assert_true(replies_length + reply->pieces[i].iov_len < sizeof replies);
            memcpy(replies + replies_length, reply->pieces[i].iov_base, reply->pieces[i].iov_len);
            replies_length += reply->pieces[i].iov_len;
        }
        fw_reply_clear(reply);
        if (step.end == FW_SESSION_INPUT || step.end == FW_SESSION_CLOSE) {
            break;
        }
    }
    replies[replies_length] = '\0';
}

static struct packet_reply ask_packet(int client, struct packet packet)
{
    packed.length = 0;
    packets_add(&packed, packet);
    say(client, packed.bytes, packed.length);
    return packet_reply_read(replies, replies_length);
}

/* One packet, one reply: its status. */
#define ASK(client, ...) ask_packet(client, (struct packet){__VA_ARGS__}).status

/* One quiet packet, no reply. */
#define ASK_QUIETLY(client, ...)                            \
    do {                                                    \
        packed.length = 0;                                  \
        packets_add(&packed, (struct packet){__VA_ARGS__}); \
        say(client, packed.bytes, packed.length);           \
        assert_int_equal(replies_length, 0);                \
    } while (0)

static void test_lock(void **state)
{
    (void)state;
    assert_int_equal(ASK(0, .opcode = LOCK, .key = "k"), NOT_FOUND);
    assert_int_equal(ASK(0, .opcode = UNLOCK, .key = "k"), NOT_FOUND);
    assert_int_equal(ASK(0, .opcode = SET, .key = "k", STORED, .value = "1"), OK);
    assert_int_equal(ASK(0, .opcode = UNLOCK, .key = "k"), NOT_LOCKED);
    struct packet_reply reply = ask_packet(0, (struct packet){.opcode = LOCK, .key = "k"});
    assert_int_equal(reply.status, OK);
    assert_int_equal(reply.body_length, 0);
    assert_int_equal(ASK(0, .opcode = LOCK, .key = "k"), OK); /* It has it. */
    reply = ask_packet(1, (struct packet){.opcode = LOCK, .key = "k"});
    assert_int_equal(reply.status, LOCKED);
    assert_memory_equal(reply.body, "Locked", 6);
    reply = ask_packet(1, (struct packet){.opcode = UNLOCK, .key = "k"});
    assert_int_equal(reply.status, NOT_LOCKED);
    assert_memory_equal(reply.body, "Not locked", 10);
    assert_int_equal(ASK(0, .opcode = UNLOCK, .key = "k"), OK);
    assert_int_equal(ASK(0, .opcode = UNLOCK, .key = "k"), NOT_LOCKED);
    ASK_QUIETLY(1, .opcode = LOCKQ, .key = "k");
    assert_int_equal(ASK(0, .opcode = LOCKQ, .key = "k"), LOCKED);
    ASK_QUIETLY(1, .opcode = UNLOCKQ, .key = "k");
    assert_int_equal(ASK(0, .opcode = LOCK, .key = "k"), OK);
}

static void test_off(void **state)
{
    (void)state;
    converse->cache.settings.has_locking = false;
    for (int opcode = LOCK; opcode <= REPLACE_AND_UNLOCKQ; opcode++) {
        assert_int_equal(ASK(0, .opcode = (uint8_t)opcode), 0x81);
    }
    assert_int_equal(ASK(0, .opcode = KEYS), 0x81);
}

/* Whatever the protocol: client 1 cannot change it, client 0 can. */
static void test_others_cannot_write(void **state)
{
    (void)state;
    assert_int_equal(ASK(0, .opcode = SET, .key = "k", STORED, .value = "1"), OK);
    assert_int_equal(ASK(0, .opcode = LOCK, .key = "k"), OK);
    assert_int_equal(ASK(1, .opcode = GET, .key = "k"), OK);
    assert_int_equal(ASK(1, .opcode = SET, .key = "k", STORED, .value = "2"), LOCKED);
    assert_int_equal(ASK(1, .opcode = APPEND, .key = "k", .value = "2"), LOCKED);
    assert_int_equal(ASK(1, .opcode = INCREMENT, .key = "k", COUNTED), LOCKED);
    assert_int_equal(ASK(1, .opcode = DELETE, .key = "k"), LOCKED);

    fw_session_fini(&sessions[1], &converse->local);
    fw_session_init(&sessions[1], 11);
    static const char lines[] = "set k 0 0 1\r\n3\r\ndelete k\r\nincr k 1\r\n"
                                "ms k 1\r\n3\r\nmd k\r\nmd k I\r\nma k\r\nget k\r\n";
    say(1, lines, sizeof lines - 1);
    assert_string_equal(replies, "LOCKED\r\nLOCKED\r\nLOCKED\r\nNS\r\nNS\r\nNS\r\nNS\r\n"
                                 "VALUE k 5 1\r\n1\r\nEND\r\n");

    /* It stays locked while its owner changes it. */
    assert_int_equal(ASK(0, .opcode = SET, .key = "k", STORED, .value = "2"), OK);
    assert_int_equal(ASK(0, .opcode = APPEND, .key = "k", .value = "22"), OK);
    assert_int_equal(ASK(0, .opcode = INCREMENT, .key = "k", COUNTED), OK);
    say(1, "delete k\r\n", 10);
    assert_string_equal(replies, "LOCKED\r\n");
    /* Removed, it is not: another may make it anew. */
    assert_int_equal(ASK(0, .opcode = DELETE, .key = "k"), OK);
    say(1, "set k 0 0 1\r\n3\r\n", 16);
    assert_string_equal(replies, "STORED\r\n");
}

static void test_lock_and_get(void **state)
{
    (void)state;
    assert_int_equal(ASK(0, .opcode = LOCK_AND_GETQ, .key = "k"), NOT_FOUND);
    assert_int_equal(ASK(0, .opcode = SET, .key = "k", STORED, .value = "1"), OK);
    struct packet_reply reply = ask_packet(0, (struct packet){.opcode = LOCK_AND_GET, .key = "k"});
    assert_int_equal(reply.status, OK);
    assert_int_equal(reply.body_length, 5);
    assert_memory_equal(reply.body,
                        "\0\0\0\5"
                        "1",
                        5);
    assert_int_equal(ASK(1, .opcode = LOCK_AND_GET, .key = "k"), LOCKED);
    assert_int_equal(ASK(1, .opcode = LOCK_AND_GETQ, .key = "k"), LOCKED);
    reply = ask_packet(0, (struct packet){.opcode = LOCK_AND_GETK, .key = "k"});
    assert_int_equal(reply.key_length, 1);
    assert_memory_equal(reply.body, "\0\0\0\5k1", 6);
    assert_int_equal(ASK(0, .opcode = LOCK_AND_GETKQ, .key = "k"), OK);
    /* Its expiry time can be set at once. */
    assert_int_equal(
        ASK(0, .opcode = LOCK_AND_GET, .key = "k", .extras = "\0\0\0\x1e", .extras_length = 4), OK);
    fw_session_fini(&sessions[1], &converse->local);
    fw_session_init(&sessions[1], 11);
    say(1, "mg k t\r\n", 8);
    assert_string_equal(replies, "HD t30\r\n");
}

static void test_replace_and_unlock(void **state)
{
    (void)state;
    static char value[20000 + 1];
    memset(value, 'v', sizeof value - 1);
    const struct packet packet = {.opcode = REPLACE_AND_UNLOCK, .key = "k", STORED, .value = "2"};
    assert_int_equal(ask_packet(0, packet).status, NOT_FOUND);
    assert_int_equal(ASK(0, .opcode = SET, .key = "k", STORED, .value = "1"), OK);
    assert_int_equal(ask_packet(0, packet).status, NOT_LOCKED);
    assert_int_equal(ASK(0, .opcode = LOCK, .key = "k"), OK);
    assert_int_equal(ask_packet(1, packet).status, NOT_LOCKED);
    assert_int_equal(ask_packet(0, packet).status, OK);
    assert_int_equal(ASK(1, .opcode = LOCK, .key = "k"), OK);
    struct packet_reply reply = ask_packet(0, (struct packet){.opcode = GET, .key = "k"});
    assert_memory_equal(reply.body,
                        "\0\0\0\5"
                        "2",
                        5);
    /* The same with a value that comes in pieces, refused and taken. */
    assert_int_equal(ASK(0, .opcode = REPLACE_AND_UNLOCK, .key = "k", STORED, .value = value),
                     NOT_LOCKED);
    ASK_QUIETLY(1, .opcode = REPLACE_AND_UNLOCKQ, .key = "k", STORED, .value = value);
    assert_int_equal(ASK(0, .opcode = LOCK, .key = "k"), OK);
}

static void test_ends_with_connection(void **state)
{
    (void)state;
    enum { KEYS_COUNT = 50 };
    char key[16];
    for (int i = 0; i < KEYS_COUNT; i++) {
        (void)snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(ASK(0, .opcode = SET, .key = key, STORED, .value = "1"), OK);
        assert_int_equal(ASK(i % 2, .opcode = LOCK, .key = key), OK);
    }
    assert_int_equal(ASK(1, .opcode = UNLOCK_ALL), OK);
    fw_session_fini(&sessions[0], &converse->local);
    fw_session_init(&sessions[0], 12);
    for (int i = 0; i < KEYS_COUNT; i++) {
        (void)snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(ASK(0, .opcode = LOCK, .key = key), OK);
    }
    ASK_QUIETLY(0, .opcode = UNLOCK_ALLQ);
    ASK_QUIETLY(1, .opcode = LOCKQ, .key = "k1");
}

static void test_flush_leaves_no_lock(void **state)
{
    (void)state;
    assert_int_equal(ASK(0, .opcode = SET, .key = "k", STORED, .value = "1"), OK);
    assert_int_equal(ASK(0, .opcode = LOCK, .key = "k"), OK);
    assert_int_equal(ASK(1, .opcode = FLUSH), OK);
    assert_int_equal(ASK(1, .opcode = SET, .key = "k", STORED, .value = "1"), OK);
    /* The entry of client 0 is taken over, and client 0 does not know. */
    assert_int_equal(ASK(1, .opcode = LOCK, .key = "k"), OK);
    assert_int_equal(ASK(0, .opcode = UNLOCK_ALL), OK);
    assert_int_equal(ASK(0, .opcode = SET, .key = "k", STORED, .value = "1"), LOCKED);
    assert_int_equal(ASK(1, .opcode = UNLOCK, .key = "k"), OK);
}

static void test_locked_does_not_expire(void **state)
{
    (void)state;
    static const struct packet get = {.opcode = GET, .key = "k"};
    assert_int_equal(ASK(0, .opcode = SET, .key = "k", .extras = "\0\0\0\0\0\0\0\x1e",
                         .extras_length = 8, .value = "1"),
                     OK);
    assert_int_equal(ASK(0, .opcode = LOCK, .key = "k"), OK);
    converse->local.now += 30;
    fw_table_local_set_now(converse->local.table, converse->local.now);
    assert_int_equal(ask_packet(1, get).status, OK);
    assert_int_equal(ASK(0, .opcode = UNLOCK, .key = "k"), OK);
    assert_int_equal(ask_packet(1, get).status, NOT_FOUND);
}

static void test_limit(void **state)
{
    (void)state;
    char key[16];
    for (int i = 0; i <= FW_LOCKS_MAX; i++) {
        (void)snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(ASK(0, .opcode = SET, .key = key, STORED, .value = "1"), OK);
        assert_int_equal(ASK(0, .opcode = LOCK, .key = key), i < FW_LOCKS_MAX ? OK : 0x82);
    }
    assert_int_equal(ASK(0, .opcode = UNLOCK, .key = "k0"), OK);
    assert_int_equal(ASK(0, .opcode = LOCK, .key = key), OK);
}

/* Counts replies to Keys; each key must be one of `prefix` and have come for the first time. */
static int count_keys(const char *prefix, const char *bytes, size_t length, bool *seen)
{
    int count = 0;
    for (;;) {
        struct packet_reply reply = packet_reply_read(bytes, length);
        assert_int_equal(reply.opcode, KEYS);
        assert_int_equal(reply.status, OK);
        assert_int_equal(reply.body_length, reply.key_length);
        bytes += PACKET_HEADER + reply.body_length;
        length -= PACKET_HEADER + reply.body_length;
        if (reply.key_length == 0) {
            assert_int_equal(length, 0);
            return count;
        }
        assert_memory_equal(reply.body, prefix, strlen(prefix));
        char number[16] = "";
        memcpy(number, reply.body + 1, reply.key_length - 1U);
        long index = strtol(number, NULL, 10);
        assert_false(seen[index]);
        seen[index] = true;
        count++;
    }
}

static void test_keys(void **state)
{
    (void)state;
    enum { KEYS_COUNT = 5000 }; /* More than a reply has room for. */
    static bool seen[KEYS_COUNT];
    char key[16];
    struct packet_reply reply = ask_packet(0, (struct packet){.opcode = KEYS});
    assert_int_equal(reply.status, OK);
    assert_int_equal(reply.body_length, 0);
    for (int i = 0; i < KEYS_COUNT; i++) {
        (void)snprintf(key, sizeof key, "%c%d", i % 2 == 0 ? 'e' : 'o', i);
        assert_int_equal(ASK(0, .opcode = SET, .key = key, STORED, .value = "1"), OK);
    }
    packed.length = 0;
    packets_add(&packed, (struct packet){.opcode = KEYS});
    converse_say(converse, packed.bytes, packed.length, 0);
    size_t length = converse->replies_length;
    memset(seen, 0, sizeof seen);
    assert_int_equal(count_keys("", converse_answer(converse), length, seen), KEYS_COUNT);
    packed.length = 0;
    packets_add(&packed, (struct packet){.opcode = KEYS, .key = "e1"});
    converse_say(converse, packed.bytes, packed.length, 0);
    length = converse->replies_length;
    memset(seen, 0, sizeof seen);
    /* The even ones that begin with 1: none of one digit, then 5, 50, 500. */
    assert_int_equal(count_keys("e1", converse_answer(converse), length, seen), 555);
    assert_int_equal(ASK(0, .opcode = KEYS, .key = "none"), OK);
    assert_int_equal(replies_length, PACKET_HEADER);
    converse->cache.settings.has_dump = false;
    assert_int_equal(ASK(0, .opcode = KEYS), 0x20);
}

/* One line or more, and all that is answered. */
#define ASSERT_SAID(client, lines, expected)         \
    do {                                             \
        say(client, lines "", sizeof(lines "") - 1); \
        assert_string_equal(replies, expected);      \
    } while (0)

static void test_text_lock(void **state)
{
    (void)state;
    ASSERT_SAID(0, "lock k\r\nunlock k\r\nunlock_all\r\n",
                "NOT_FOUND\r\nCLIENT_ERROR not locked\r\nOK\r\n");
    ASSERT_SAID(0, "set k 0 0 1\r\n1\r\nunlock k\r\nlock k\r\nlock k\r\n",
                "STORED\r\nCLIENT_ERROR not locked\r\nOK\r\nOK\r\n");
    ASSERT_SAID(1, "lock k\r\nunlock k\r\nunlock_all\r\nlock k\r\n",
                "LOCKED\r\nCLIENT_ERROR not locked\r\nOK\r\nLOCKED\r\n");
    /* Others read it and do not change it; its owner does both. */
    ASSERT_SAID(1, "get k\r\nset k 0 0 1\r\n2\r\nreplace k 0 0 1\r\n2\r\nappend k 0 0 1\r\n2\r\n",
                "VALUE k 0 1\r\n1\r\nEND\r\nLOCKED\r\nLOCKED\r\nLOCKED\r\n");
    ASSERT_SAID(0, "set k 0 0 1\r\n3\r\nunlock k\r\nunlock k\r\n",
                "STORED\r\nOK\r\nCLIENT_ERROR not locked\r\n");
    ASSERT_SAID(1, "lock k\r\ndelete k\r\nunlock k\r\n",
                "OK\r\nDELETED\r\nCLIENT_ERROR not locked\r\n");
}

/* What a client has locked it unlocks by one command, and by going. */
static void test_text_unlock_all(void **state)
{
    (void)state;
    ASSERT_SAID(0, "set a 0 0 1\r\n1\r\nset b 0 0 1\r\n1\r\nset c 0 0 1\r\n1\r\n",
                "STORED\r\nSTORED\r\nSTORED\r\n");
    ASSERT_SAID(1, "lock c\r\n", "OK\r\n");
    ASSERT_SAID(0, "lock a\r\nlock b\r\nunlock_all\r\nunlock a\r\n",
                "OK\r\nOK\r\nOK\r\nCLIENT_ERROR not locked\r\n");
    ASSERT_SAID(0, "lock c\r\n", "LOCKED\r\n");
    ASSERT_SAID(1, "lock a\r\nlock b\r\n", "OK\r\nOK\r\n");
    fw_session_fini(&sessions[1], &converse->local);
    fw_session_init(&sessions[1], 12);
    ASSERT_SAID(0, "lock a\r\nlock b\r\nlock c\r\n", "OK\r\nOK\r\nOK\r\n");
}

/* One protocol's lock is the other's. */
static void test_text_and_binary(void **state)
{
    (void)state;
    assert_int_equal(ASK(0, .opcode = SET, .key = "k", STORED, .value = "1"), OK);
    ASSERT_SAID(1, "lock k\r\n", "OK\r\n");
    assert_int_equal(ASK(0, .opcode = LOCK, .key = "k"), LOCKED);
    ASSERT_SAID(1, "unlock k\r\n", "OK\r\n");
    assert_int_equal(ASK(0, .opcode = LOCK, .key = "k"), OK);
    ASSERT_SAID(1, "lock k\r\n", "LOCKED\r\n");
}

#define LONG_KEY_10  "0123456789"
#define LONG_KEY_50  LONG_KEY_10 LONG_KEY_10 LONG_KEY_10 LONG_KEY_10 LONG_KEY_10
#define LONG_KEY_250 LONG_KEY_50 LONG_KEY_50 LONG_KEY_50 LONG_KEY_50 LONG_KEY_50

static void test_text_lines(void **state)
{
    (void)state;
    static const char bad[] = "CLIENT_ERROR bad command line format\r\n";
    ASSERT_SAID(0, "lock\r\nlock a b\r\nunlock\r\nunlock a b\r\nunlock_all a\r\nkeys a b\r\n",
                "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\n");
    ASSERT_SAID(0, "lock " LONG_KEY_250 "\r\n", "NOT_FOUND\r\n");
    ASSERT_SAID(0, "lock " LONG_KEY_250 "x\r\n", bad);
    ASSERT_SAID(0, "unlock " LONG_KEY_250 "x\r\n", bad);
    ASSERT_SAID(0, "keys " LONG_KEY_250 "\r\n", "END\r\n");
    ASSERT_SAID(0, "keys " LONG_KEY_250 "x\r\n", bad);
    /* Not asked for, they are as unknown as they are to memcached, in a browser's line too. */
    converse->cache.settings.has_locking = false;
    ASSERT_SAID(0, "lock a\r\nunlock a\r\nunlock_all\r\nkeys\r\nkeys a\r\n",
                "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\n");
    ASSERT_SAID(0, "keys HTTP/1.1\r\nversion\r\n", "");
    assert_int_equal(sessions[0].state, FW_SESSION_CLOSED);
}

static void test_text_limit(void **state)
{
    (void)state;
    char lines[64];
    for (int i = 0; i <= FW_LOCKS_MAX; i++) {
        int length = snprintf(lines, sizeof lines, "set k%d 0 0 1\r\n1\r\nlock k%d\r\n", i, i);
        say(0, lines, (size_t)length);
        assert_string_equal(replies, i < FW_LOCKS_MAX
                                         ? "STORED\r\nOK\r\n"
                                         : "STORED\r\nSERVER_ERROR too many locks\r\n");
    }
}

/* Counts the lines of an answer to `keys`; each must be there once, and begin so. */
static int count_text_keys(const char *answer, const char *prefix, bool *seen)
{
    int count = 0;
    while (strncmp(answer, "VALUE ", 6) == 0) {
        answer += 6;
        assert_memory_equal(answer, prefix, strlen(prefix));
        char *end;
        long index = strtol(answer + 1, &end, 10);
        assert_false(seen[index]);
        seen[index] = true;
        assert_memory_equal(end, "\r\n", 2);
        answer = end + 2;
        count++;
    }
    assert_string_equal(answer, "END\r\n");
    return count;
}

static void test_text_keys(void **state)
{
    (void)state;
    enum { KEYS_COUNT = 20000 }; /* More than a reply has room for. */
    static bool seen[KEYS_COUNT];
    char line[32];
    ASSERT_SAID(0, "keys\r\nkeys a\r\n", "END\r\nEND\r\n");
    for (int i = 0; i < KEYS_COUNT; i++) {
        int length =
            snprintf(line, sizeof line, "set %c%d 0 0 1\r\n1\r\n", i % 2 == 0 ? 'e' : 'o', i);
        say(0, line, (size_t)length);
        assert_string_equal(replies, "STORED\r\n");
    }
    converse_say(converse, "keys\r\n", 6, 0);
    assert_true(converse->runs[FW_SESSION_OUTPUT] > 1);
    memset(seen, 0, sizeof seen);
    assert_int_equal(count_text_keys(converse_answer(converse), "", seen), KEYS_COUNT);
    converse_say(converse, "keys o1\r\n", 9, 0);
    memset(seen, 0, sizeof seen);
    /* The odd ones that begin with 1: 1, 5 of two digits, 50, 500, 5000. */
    assert_int_equal(count_text_keys(converse_answer(converse), "o1", seen), 5556);
    ASSERT_SAID(0, "keys o19999\r\n", "VALUE o19999\r\nEND\r\n");
    ASSERT_SAID(0, "keys o199999\r\n", "END\r\n");
    converse->cache.settings.has_dump = false;
    ASSERT_SAID(0, "keys\r\n", "CLIENT_ERROR keys not allowed\r\n");
}

enum { THREADS = 3, ROUNDS = 2000 };

static void *count_run(void *argument)
{
    uint32_t client = *(uint32_t *)argument;
    struct fw_locks *locks = converse->cache.locks;
    struct fw_table_local *table;
    FW_ASSERT(fw_table_local_create(&table, converse->cache.table) == 0);
    fw_table_local_set_now(table, converse->local.now);
    struct fw_key key = fw_table_key(table, "n", 1);
    for (int i = 0; i < ROUNDS;) {
        struct fw_hold hold;
        struct fw_lock *spare = fw_lock_create(locks, &key);
        FW_ASSERT(spare != NULL);
        fw_table_hold(table, &hold, &key);
        bool is_mine = fw_locks_acquire(locks, &hold, client, &spare) == FW_LOCK_TAKEN;
        uint32_t number = fw_item_flags(hold.item);
        fw_hold_release(&hold);
        fw_lock_destroy(spare);
        if (is_mine) {
            fw_table_hold(table, &hold, &key);
            fw_item_set_flags(hold.item, number + 1);
            FW_ASSERT(fw_locks_release(locks, &hold, client));
            fw_hold_release(&hold);
            i++;
        }
    }
    fw_table_local_destroy(table);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    assert_int_equal(ASK(0, .opcode = SET, .key = "n", STORED, .value = "1"), OK);
    pthread_t threads[THREADS];
    uint32_t clients[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        clients[i] = 100 + i;
        assert_int_equal(pthread_create(&threads[i], NULL, count_run, &clients[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    struct packet_reply reply = ask_packet(0, (struct packet){.opcode = GET, .key = "n"});
    assert_int_equal(packet_number(reply.body, 4), 5 + THREADS * ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lock, setup, teardown),
        cmocka_unit_test_setup_teardown(test_off, setup, teardown),
        cmocka_unit_test_setup_teardown(test_others_cannot_write, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lock_and_get, setup, teardown),
        cmocka_unit_test_setup_teardown(test_replace_and_unlock, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ends_with_connection, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flush_leaves_no_lock, setup, teardown),
        cmocka_unit_test_setup_teardown(test_locked_does_not_expire, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_text_lock, setup, teardown),
        cmocka_unit_test_setup_teardown(test_text_unlock_all, setup, teardown),
        cmocka_unit_test_setup_teardown(test_text_and_binary, setup, teardown),
        cmocka_unit_test_setup_teardown(test_text_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(test_text_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_text_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
