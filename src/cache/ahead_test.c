/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what commands that come together are about is fetched together, each once and no more, and
 * what is odd about one of them ends the look ahead.
 * Method: count what is fetched (the linker's --wrap) while a session is told many of a kind. Which
 * answers are right is tested with each protocol, where input comes in portions of every size.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "cache/table.h"
#include "support/conversation.h"
#include "support/packets.h"

#define K50  "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
#define K250 K50 K50 K50 K50 K50

enum { BINARY_GETKQ = 0x0d, BINARY_SETQ = 0x11, BINARY_NOOP = 0x0a };

static uint64_t fetched;
static uint64_t buckets_fetched; /* Ahead or not. */

void __real_fw_table_prefetch(const struct fw_table_local *local, const struct fw_key *key);
void __wrap_fw_table_prefetch(const struct fw_table_local *local, const struct fw_key *key);

void __wrap_fw_table_prefetch(const struct fw_table_local *local, const struct fw_key *key)
{
    buckets_fetched++;
    __real_fw_table_prefetch(local, key);
}

void __real_fw_table_prefetch_item(const struct fw_table_local *local, const struct fw_key *key);
void __wrap_fw_table_prefetch_item(const struct fw_table_local *local, const struct fw_key *key);

void __wrap_fw_table_prefetch_item(const struct fw_table_local *local, const struct fw_key *key)
{
    fetched++;
    __real_fw_table_prefetch_item(local, key);
}

/* If `count` commands like this, with a number for the #, come together, so many are fetched. */
static uint64_t fetched_for(const char *command, size_t count, const char *behind)
{
    char said[4096];
    size_t length = 0;
    const char *number = strchr(command, '#');
    for (size_t i = 0; i < count; i++) {
        length += (size_t)snprintf(said + length, sizeof said - length, "%.*s%02zu%s",
                                   (int)(number - command), command, i, number + 1);
    }
    length += (size_t)snprintf(said + length, sizeof said - length, "%s", behind);
    fetched = 0;
    buckets_fetched = 0;
    converse_say(converse, said, length, 0);
    (void)converse_answer(converse);
    return fetched;
}

static const char *const commands[] = {"set key-# 0 0 2\r\nxy\r\n", "mg key-# v\r\n",
                                       "ms key-# 19\r\nit is nineteen long\r\n", "mg key-#\r\n",
                                       "ms key-# 2 T0\r\nxy\r\n"};

static void test_many(void **state)
{
    (void)state;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(commands); i++) {
        assert_int_equal(fetched_for(commands[i], 1, ""), 0);
        assert_int_equal(fetched_for(commands[i], 2, ""), 2);
        assert_int_equal(fetched_for(commands[i], 16, ""), 16);
        /* A set has its bucket fetched also when its turn comes. */
        assert_int_equal(buckets_fetched, i == 0 ? 32 : 16);
        assert_int_equal(fetched_for(commands[i], 18, ""), 18);
        assert_int_equal(fetched_for(commands[i], 40, ""), 40); /* In two turns of 20. */
    }
}

static void test_what_ends_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(commands); i++) {
        assert_int_equal(fetched_for(commands[i], 2, "mn\r\n"), 2);
        assert_int_equal(fetched_for(commands[i], 1, "mn\r\n"), 0);
        assert_int_equal(fetched_for(commands[i], 1, "set " K250 " 0 0 1\r\nx\r\n"), 2);
        assert_int_equal(fetched_for(commands[i], 1, "mg " K250 "x\r\n"), 0);
        assert_int_equal(fetched_for(commands[i], 1, "mg \r\n"), 0);
        assert_int_equal(fetched_for(commands[i], 1, "md a\r\nmd b\r\n"), 0);
        assert_int_equal(fetched_for(commands[i], 1, "ms a \r\nmn\r\n"), 0);
        assert_int_equal(fetched_for(commands[i], 1, "ms a x\r\nmn\r\n"), 0);
        assert_int_equal(fetched_for(commands[i], 1, "ms a 2:\r\nmn\r\n"), 0);
        assert_int_equal(fetched_for(commands[i], 1, "ms a 9999999999\r\n"), 0);
        converse_reconnect(converse); /* That was to be swallowed. */
        assert_int_equal(fetched_for(commands[i], 1, "set a 0 0 1 noreply\r\nx\r\n"), 2);
    }
}

/* One whose value has not all come, which then comes. */
static void test_a_part(void **state)
{
    (void)state;
    assert_int_equal(fetched_for(commands[0], 2, "set more 0 0 3\r\nabc\r"), 2);
    assert_int_equal(fetched_for(commands[0], 0, "\nmg more v\r\n"), 2);
    assert_int_equal(fetched_for(commands[0], 2, "mg more v"), 2);
    assert_int_equal(fetched_for(commands[0], 0, "\r\nmg more v\r\nmg more\r\n"), 3);
}

static void packets_of(struct packets *packed, uint8_t opcode, size_t count)
{
    char key[32];
    packed->length = 0;
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(key, sizeof key, "key-%02zu", i);
        struct packet packet = {.opcode = opcode, .key = key};
        if (opcode == BINARY_SETQ) {
            packet.extras = "\0\0\0\0\0\0\0\0";
            packet.extras_length = 8;
            packet.value = "xy";
        }
        packets_add(packed, packet);
    }
}

static void test_binary(void **state)
{
    (void)state;
    static const uint8_t opcodes[] = {BINARY_GETKQ, BINARY_SETQ};
    static const size_t counts[] = {1, 2, 16, 18, 40};
    static struct packets packed;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(opcodes) * FW_ARRAY_LENGTH(counts); i++) {
        size_t count = counts[i / 2];
        packets_of(&packed, opcodes[i % 2], count);
        packets_add(&packed, (struct packet){.opcode = BINARY_NOOP});
        fetched = 0;
        converse_say(converse, packed.bytes, packed.length, 0);
        assert_int_equal(fetched, count > 1 ? count : 0);
    }
    /* The second has not all come. */
    packets_of(&packed, BINARY_SETQ, 2);
    fetched = 0;
    converse_say(converse, packed.bytes, packed.length - 1, 0);
    assert_int_equal(fetched, 0);
    converse_say(converse, packed.bytes + packed.length - 1, 1, 0);
    assert_int_equal(fetched, 0);
    assert_int_equal(converse->commands, 2 * (1 + 2 + 16 + 18 + 40 + 5) + 2);
    /* A header that contradicts itself. */
    packets_of(&packed, BINARY_GETKQ, 2);
    packed.bytes[packed.length / 2 + 11] = 0;
    converse_say(converse, packed.bytes, packed.length, 0);
    assert_int_equal(fetched, 0);
    assert_true(converse->is_closed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_ends_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_part, setup, teardown),
        cmocka_unit_test_setup_teardown(test_binary, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
