/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a message that was encoded is decoded as it was, and nothing else is decoded.
 * Method: messages of every kind, empty and full; every single bit turned; every length cut;
 * numbers beyond their limits with a checksum that is right.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "volume/message.h"

static const enum fw_volume_kind kinds[] = {
    FW_VOLUME_PLACE,         FW_VOLUME_GIVE_BACK,      FW_VOLUME_RETURN,
    FW_VOLUME_OPEN,          FW_VOLUME_CLOSE,          FW_VOLUME_FREE,
    FW_VOLUME_KEEP,          FW_VOLUME_HOST_ADDED,     FW_VOLUME_HOST_REMOVED,
    FW_VOLUME_VOLUME_ADDED,  FW_VOLUME_VOLUME_RESIZED, FW_VOLUME_VOLUME_REMOVED,
    FW_VOLUME_VOLUME_OPENED, FW_VOLUME_VOLUME_CLOSED,  FW_VOLUME_GRANTED,
    FW_VOLUME_PLACED,        FW_VOLUME_FREED,          FW_VOLUME_QUARANTINED,
    FW_VOLUME_COMMANDED,     FW_VOLUME_CREATE,         FW_VOLUME_RESIZE,
    FW_VOLUME_REMOVE,        FW_VOLUME_CONNECT,        FW_VOLUME_DISCONNECT,
    FW_VOLUME_RECLAIM,       FW_VOLUME_FLUSH,          FW_VOLUME_SHUTDOWN,
    FW_VOLUME_CANCEL,
};

static void message_fill(struct fw_volume_message *message, enum fw_volume_kind kind, uint32_t runs)
{
    bool places =
        kind == FW_VOLUME_PLACE || kind == FW_VOLUME_GIVE_BACK || kind == FW_VOLUME_PLACED;
    fw_volume_message_init(message, kind);
    message->flags = FW_VOLUME_SYNC | FW_VOLUME_LAST;
    message->host = 5;
    message->number = UINT64_C(0x0102030405060708);
    message->value = 99;
    memset(&message->uuid, 0xab, sizeof message->uuid);
    memcpy(message->name, "disk-1", 7);
    for (uint32_t i = 0; i < runs; i++) {
        const struct fw_volume_run run = {.extent = 10 * (uint64_t)i,
                                          .count = 1 + i % 3,
                                          .generation = UINT64_MAX - i,
                                          .logical = places ? 7 * (uint64_t)i : 0};
        assert_true(fw_volume_message_add(message, &run));
    }
    assert_int_equal(message->count, runs);
}

static void test_round_trip(void **state)
{
    (void)state;
    static const uint32_t runs[] = {0, 1, 2, FW_VOLUME_RUNS_MAX};
    struct fw_volume_message message, decoded;
    uint8_t bytes[FW_VOLUME_MESSAGE_MAX];
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        assert_string_not_equal(fw_volume_kind_name(kinds[k]), "?");
        for (size_t r = 0; r < sizeof runs / sizeof runs[0]; r++) {
            message_fill(&message, kinds[k], runs[r]);
            size_t length = fw_volume_message_encode(&message, bytes);
            assert_int_equal(fw_volume_message_length(bytes, sizeof bytes), length);
            assert_int_equal(fw_volume_message_decode(&decoded, bytes, length, NULL), 0);
            assert_memory_equal(&message, &decoded, sizeof message);
        }
    }
}

static void test_damage(void **state)
{
    (void)state;
    struct fw_volume_message message;
    struct fw_reason reason;
    uint8_t bytes[FW_VOLUME_MESSAGE_MAX];
    message_fill(&message, FW_VOLUME_PLACE, 3);
    size_t length = fw_volume_message_encode(&message, bytes);
    for (size_t bit = 0; bit < 8 * length; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
        assert_int_equal(fw_volume_message_decode(&message, bytes, length, &reason), -EBADMSG);
        bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
    for (size_t cut = 0; cut < length; cut++) {
        assert_int_equal(fw_volume_message_decode(&message, bytes, cut, &reason), -EBADMSG);
    }
    assert_int_equal(fw_volume_message_decode(&message, bytes, length + 1, &reason), -EBADMSG);
}

/* Puts a byte somewhere, makes the checksum right, and decodes. */
static int patched(enum fw_volume_kind kind, size_t at, uint8_t value, struct fw_reason *reason)
{
    struct fw_volume_message message;
    uint8_t bytes[FW_VOLUME_MESSAGE_MAX];
    message_fill(&message, kind, 1);
    size_t length = fw_volume_message_encode(&message, bytes);
    bytes[at] = value;
    uint32_t crc = fw_crc32c(0, bytes + 4, length - 4);
    for (int i = 0; i < 4; i++) {
        bytes[i] = (uint8_t)(crc >> (8 * i));
    }
    return fw_volume_message_decode(&message, bytes, length, reason);
}

static void test_limits(void **state)
{
    (void)state;
    const size_t name = FW_VOLUME_HEADER_SIZE;
    const size_t run = name + 6;
    const struct {
        size_t at;
        uint8_t value;
        const char *says;
    } wrong[] = {
        {4, 2, "version 2"},
        {5, 0, "kind 0"},
        {5, 255, "kind 255"},
        {6, 8, "flags"},
        {8, FW_VOLUME_HOSTS_MAX, "host 64"},
        {name, '/', "name"},
        {name, 0, "name"},
        {name + 5, 0, "name"},
        {name, '-', "name"},
        {run + 8, 0, "run 0"},
        {run + 3, 1, "run 0"},
        {run + 15, 1, "run 0"},
        {run + 7, 255, "run 0"},
        {run + 27, 1, "run 0"},
    };
    struct fw_reason reason;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(patched(FW_VOLUME_PLACE, wrong[i].at, wrong[i].value, &reason), -EBADMSG);
        assert_non_null(strstr(reason.text, wrong[i].says));
    }
    assert_int_equal(patched(FW_VOLUME_PLACE, 8, FW_VOLUME_HOSTS_MAX - 1, NULL), 0);
    assert_int_equal(patched(FW_VOLUME_PLACE, run + 24, 3, NULL), 0);
    assert_int_equal(patched(FW_VOLUME_RETURN, run + 24, 3, NULL), -EBADMSG); /* It has no place. */
}

static void test_runs_join(void **state)
{
    (void)state;
    struct fw_volume_message message;
    fw_volume_message_init(&message, FW_VOLUME_PLACE);
    const struct fw_volume_run runs[] = {
        {.extent = 4, .count = 2, .generation = 9, .logical = 10},
        {.extent = 6, .count = 1, .generation = 9, .logical = 12},  /* Goes on. */
        {.extent = 7, .count = 1, .generation = 9, .logical = 14},  /* Another place. */
        {.extent = 8, .count = 1, .generation = 8, .logical = 15},  /* Another generation. */
        {.extent = 10, .count = 1, .generation = 8, .logical = 16}, /* Another extent. */
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        assert_true(fw_volume_message_add(&message, &runs[i]));
    }
    assert_int_equal(message.count, 4);
    assert_int_equal(message.runs[0].count, 3);
    while (message.count < FW_VOLUME_RUNS_MAX) {
        const struct fw_volume_run run = {.extent = 100 + 2 * (uint64_t)message.count, .count = 1};
        assert_true(fw_volume_message_add(&message, &run));
    }
    const struct fw_volume_run more = {.extent = 9, .count = 1};
    assert_false(fw_volume_message_add(&message, &more));
    struct fw_volume_run next = message.runs[FW_VOLUME_RUNS_MAX - 1];
    next.extent++;
    next.logical++;
    assert_true(fw_volume_message_add(&message, &next)); /* Joins, so it fits. */
}

static void test_names(void **state)
{
    (void)state;
    char name[FW_VOLUME_NAME_MAX + 2];
    memset(name, 'a', sizeof name);
    name[FW_VOLUME_NAME_MAX + 1] = '\0';
    assert_false(fw_volume_name_is_valid(name));
    name[FW_VOLUME_NAME_MAX] = '\0';
    assert_true(fw_volume_name_is_valid(name));
    assert_true(fw_volume_name_is_valid("A-z_0.9+"));
    assert_false(fw_volume_name_is_valid(""));
    assert_false(fw_volume_name_is_valid(".hidden"));
    assert_false(fw_volume_name_is_valid("-option"));
    assert_false(fw_volume_name_is_valid("a b"));
    assert_false(fw_volume_name_is_valid("a\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_limits),     cmocka_unit_test(test_runs_join),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
