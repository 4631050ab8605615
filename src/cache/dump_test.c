/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a dump is made of comes back as it was, and any damage is refused with its place,
 * never taken for items.
 * Method: dumps in memory. A small one is read back, then once with each of its bytes changed, once
 * cut at each of its lengths, and with its blocks left out, doubled and exchanged.
 */
#include "cache/dump.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/crc32c.h"
#include "base/endian.h"

enum { MEMORY = 1 << 20 };

/* A file in memory. */
struct memory {
    char *bytes;
    size_t length;
    size_t position;
    size_t room; /* A write beyond it finds no space. */
};

static int memory_write(void *context, const void *bytes, size_t size, struct fw_reason *reason)
{
    struct memory *memory = context;
    if (size > memory->room - memory->length) {
        return fw_reason_set(reason, -ENOSPC, "full");
    }
    memcpy(memory->bytes + memory->length, bytes, size);
    memory->length += size;
    return 0;
}

static ssize_t memory_read(void *context, void *buffer, size_t size, struct fw_reason *reason)
{
    (void)reason;
    struct memory *memory = context;
    size_t left = memory->length - memory->position;
    size_t count = size < left ? size : left;
    memcpy(buffer, memory->bytes + memory->position, count);
    memory->position += count;
    return (ssize_t)count;
}

static int set_up(void **state)
{
    struct memory *memory = calloc(1, sizeof *memory);
    memory->bytes = malloc(MEMORY);
    memory->room = MEMORY;
    *state = memory;
    return 0;
}

static int tear_down(void **state)
{
    struct memory *memory = *state;
    free(memory->bytes);
    free(memory);
    return 0;
}

static const struct fw_dump_item some[] = {
    {.key = "a", .key_length = 1, .value = "", .value_length = 0},
    {.key = "key \n\xff",
     .key_length = 6,
     .value = "value\r\n",
     .value_length = 7,
     .flags = UINT32_MAX,
     .expires_s = INT64_MAX,
     .accessed_s = 1700000000,
     .cas = UINT64_MAX,
     .bits = FW_DUMP_BITS},
    {.key = "third", .key_length = 5, .value = "3", .value_length = 1, .expires_s = 1},
};

static void block_fill(struct fw_dump_block *block, size_t first, size_t count)
{
    fw_dump_block_clear(block);
    assert_true(fw_dump_block_reserve(block));
    for (size_t i = first; i < first + count; i++) {
        assert_true(fw_dump_block_add(block, &some[i]));
    }
    fw_dump_block_seal(block);
}

/* Two blocks, of two items and of one. */
static void dump_make(struct memory *memory)
{
    struct fw_reason reason;
    struct fw_dump_writer writer = {.write = memory_write, .context = memory};
    const struct fw_dump_header header = {.made_s = 1234, .number = 77};
    struct fw_dump_block block;
    memory->length = 0;
    fw_dump_block_init(&block);
    assert_int_equal(fw_dump_begin(&writer, &header, &reason), 0);
    block_fill(&block, 0, 2);
    assert_int_equal(fw_dump_put(&writer, &block, &reason), 0);
    block_fill(&block, 2, 1);
    assert_int_equal(fw_dump_put(&writer, &block, &reason), 0);
    assert_int_equal(fw_dump_end(&writer, &reason), 0);
    assert_int_equal(writer.items, 3);
    assert_int_equal(writer.bytes, memory->length);
    fw_dump_block_fini(&block);
}

/* Goes through all of it. Returns 0 or the error; *count says how many items were right. */
static int dump_read(struct memory *memory, size_t *count, struct fw_reason *reason)
{
    struct fw_dump_reader reader = {.read = memory_read, .context = memory};
    struct fw_dump_block block;
    memory->position = 0;
    *count = 0;
    fw_dump_block_init(&block);
    int rc = fw_dump_open(&reader, reason);
    if (rc == 0) {
        assert_int_equal(reader.header.made_s, 1234);
        assert_int_equal(reader.header.number, 77);
    }
    while (rc == 0 && (rc = fw_dump_next_block(&reader, &block, reason)) == 1) {
        struct fw_dump_cursor cursor = {0};
        struct fw_dump_item item;
        rc = fw_dump_check(&block, reason);
        while (rc == 0 && (rc = fw_dump_next_item(&block, &cursor, &item, reason)) == 1) {
            const struct fw_dump_item *is = &some[*count];
            assert_true(*count < FW_ARRAY_LENGTH(some));
            assert_int_equal(item.key_length, is->key_length);
            assert_memory_equal(item.key, is->key, is->key_length);
            assert_int_equal(item.value_length, is->value_length);
            assert_memory_equal(item.value, is->value, is->value_length);
            assert_true(item.flags == is->flags && item.cas == is->cas && item.bits == is->bits);
            assert_true(item.expires_s == is->expires_s && item.accessed_s == is->accessed_s);
            (*count)++;
            rc = 0;
        }
    }
    fw_dump_block_fini(&block);
    return rc;
}

static void test_round_trip(void **state)
{
    struct memory *memory = *state;
    struct fw_reason reason;
    size_t count;
    dump_make(memory);
    assert_int_equal(dump_read(memory, &count, &reason), 0);
    assert_int_equal(count, FW_ARRAY_LENGTH(some));
}

static void test_empty(void **state)
{
    struct memory *memory = *state;
    struct fw_reason reason;
    struct fw_dump_writer writer = {.write = memory_write, .context = memory};
    const struct fw_dump_header header = {.made_s = 1234, .number = 77};
    size_t count;
    assert_int_equal(fw_dump_begin(&writer, &header, &reason), 0);
    assert_int_equal(fw_dump_end(&writer, &reason), 0);
    assert_int_equal(dump_read(memory, &count, &reason), 0);
    assert_int_equal(count, 0);
}

/* Every bit of every byte is under a checksum. */
static void test_every_change_is_seen(void **state)
{
    struct memory *memory = *state;
    struct fw_reason reason;
    size_t count;
    dump_make(memory);
    for (size_t i = 0; i < memory->length; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            memory->bytes[i] = (char)(memory->bytes[i] ^ (1 << bit));
            assert_int_equal(dump_read(memory, &count, &reason), -EBADMSG);
            memory->bytes[i] = (char)(memory->bytes[i] ^ (1 << bit));
        }
    }
}

static void test_every_cut_is_seen(void **state)
{
    struct memory *memory = *state;
    struct fw_reason reason;
    char place[64];
    size_t count;
    dump_make(memory);
    size_t whole = memory->length;
    for (memory->length = 0; memory->length < whole; memory->length++) {
        assert_int_equal(dump_read(memory, &count, &reason), -EBADMSG);
        if (memory->length >= FW_DUMP_HEADER_SIZE) {
            (void)snprintf(place, sizeof place, "cut short at byte %zu", memory->length);
            assert_non_null(strstr(reason.text, place));
        }
    }
    memory->length = whole + 1;
    assert_int_equal(dump_read(memory, &count, &reason), -EBADMSG);
    assert_non_null(strstr(reason.text, "something follows the end"));
}

/* Blocks that are whole by themselves, in the wrong place. */
static void test_order_is_seen(void **state)
{
    struct memory *memory = *state;
    struct fw_reason reason;
    size_t count;
    dump_make(memory);
    size_t first = FW_DUMP_HEADER_SIZE;
    size_t first_size = FW_DUMP_BLOCK_HEAD + fw_le32_get(memory->bytes + first + 4);
    size_t second = first + first_size;
    size_t second_size = FW_DUMP_BLOCK_HEAD + fw_le32_get(memory->bytes + second + 4);
    size_t end = second + second_size;
    struct memory other = {.bytes = malloc(MEMORY), .room = MEMORY};
    const size_t orders[][4] = {
        {0, 1, 3, 9}, {0, 2, 3, 9}, {0, 2, 1, 3}, {0, 1, 1, 3}, {0, 3, 9, 9}};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(orders); i++) {
        const size_t begins[] = {0, first, second, end, memory->length};
        other.length = 0;
        for (size_t j = 0; j < 4 && orders[i][j] < 4; j++) {
            size_t part = orders[i][j];
            assert_int_equal(memory_write(&other, memory->bytes + begins[part],
                                          begins[part + 1] - begins[part], &reason),
                             0);
        }
        assert_int_equal(dump_read(&other, &count, &reason), -EBADMSG);
    }
    free(other.bytes);
}

static void test_place_of_damage(void **state)
{
    struct memory *memory = *state;
    struct fw_reason reason;
    char place[64];
    size_t count;
    dump_make(memory);
    size_t second = FW_DUMP_HEADER_SIZE + FW_DUMP_BLOCK_HEAD +
                    fw_le32_get(memory->bytes + FW_DUMP_HEADER_SIZE + 4);
    memory->bytes[second + FW_DUMP_BLOCK_HEAD + FW_DUMP_ITEM_HEAD] ^= 1;
    assert_int_equal(dump_read(memory, &count, &reason), -EBADMSG);
    assert_int_equal(count, 2);
    (void)snprintf(place, sizeof place, "damaged at byte %zu:", second);
    assert_non_null(strstr(reason.text, place));
    assert_non_null(strstr(reason.text, "block 1"));
}

/* The header's checksum is right, but the version is not ours. */
static void test_other_versions(void **state)
{
    struct memory *memory = *state;
    struct fw_reason reason;
    size_t count;
    dump_make(memory);
    fw_le32_put(memory->bytes + 8, 2);
    fw_le32_put(memory->bytes + 36, fw_crc32c(0, memory->bytes, 36));
    assert_int_equal(dump_read(memory, &count, &reason), -EPROTONOSUPPORT);
    assert_non_null(strstr(reason.text, "version 2"));
}

/* One byte of the first block is `value`, and its checksums are right: a liar wrote it. */
static void block_lies(struct memory *memory, size_t at, char value, int expected)
{
    struct fw_reason reason;
    size_t count;
    dump_make(memory);
    char *head = memory->bytes + FW_DUMP_HEADER_SIZE;
    char *items = head + FW_DUMP_BLOCK_HEAD;
    head[at] = value;
    fw_le32_put(head + 20, fw_crc32c(0, items, fw_le32_get(head + 4) % 4096));
    fw_le32_put(head + 24, fw_crc32c(0, head, 24));
    assert_int_equal(dump_read(memory, &count, &reason), expected);
}

static void test_lies(void **state)
{
    struct memory *memory = *state;
    const size_t item = FW_DUMP_BLOCK_HEAD;
    block_lies(memory, item, 1, 0);                /* As it was: the method is sound. */
    block_lies(memory, item, 0, -EBADMSG);         /* No key. */
    block_lies(memory, item, (char)251, -EBADMSG); /* A key that is too long. */
    block_lies(memory, item + 1, 64, -EBADMSG);    /* A bit that means nothing. */
    block_lies(memory, item + 2, 100, -EBADMSG);   /* A value beyond the block. */
    block_lies(memory, item + 5, 127, -EBADMSG);   /* And far beyond. */
    block_lies(memory, item + 17, -1, -EBADMSG);   /* It expires before 1970. */
    block_lies(memory, item + 33, -1, -EBADMSG);   /* And was read then. */
    block_lies(memory, 8, 1, -EBADMSG);            /* An item fewer than there are. */
    block_lies(memory, 8, 3, -EBADMSG);            /* One more. */
    block_lies(memory, 7, 127, -EBADMSG);          /* A length that nobody writes. */
    block_lies(memory, 7, 1, -EBADMSG);            /* One that may be, and is not there. */
    block_lies(memory, 0, 'x', -EBADMSG);          /* A kind of the future. */
}

/* The end counts other items, or other blocks, than came before; its checksums are right. */
static void test_end_lies(void **state)
{
    struct memory *memory = *state;
    struct fw_reason reason;
    size_t count;
    for (size_t at = 0; at < 16; at += 8) {
        dump_make(memory);
        char *counts = memory->bytes + memory->length - 16;
        char *head = counts - FW_DUMP_BLOCK_HEAD;
        fw_le64_put(counts + at, fw_le64_get(counts + at) + 1);
        fw_le32_put(head + 20, fw_crc32c(0, counts, 16));
        fw_le32_put(head + 24, fw_crc32c(0, head, 24));
        assert_int_equal(dump_read(memory, &count, &reason), -EBADMSG);
        assert_non_null(strstr(reason.text, "the end does not count"));
    }
}

static void test_large_items(void **state)
{
    struct memory *memory = *state;
    struct fw_reason reason;
    struct fw_dump_writer writer = {.write = memory_write, .context = memory};
    struct fw_dump_reader reader = {.read = memory_read, .context = memory};
    const struct fw_dump_header header = {.made_s = 1};
    const uint32_t length = 2 * FW_DUMP_BLOCK_SIZE + 1;
    char *value = malloc(length);
    memset(value, 'v', length);
    const struct fw_dump_item item = {
        .key = "k", .key_length = 1, .value = value, .value_length = length};
    struct fw_dump_block block;
    fw_dump_block_init(&block);
    assert_false(fw_dump_block_add(&block, &some[0])); /* It has no memory. */
    assert_true(fw_dump_block_reserve(&block));
    assert_false(fw_dump_block_add(&block, &item));
    assert_int_equal(block.items, 0);
    assert_true(fw_dump_block_add_large(&block, &item));
    assert_false(fw_dump_block_add(&block, &some[0])); /* It is full. */
    fw_dump_block_seal(&block);
    assert_int_equal(fw_dump_begin(&writer, &header, &reason), 0);
    assert_int_equal(fw_dump_put(&writer, &block, &reason), 0);
    assert_int_equal(fw_dump_end(&writer, &reason), 0);
    fw_dump_block_fini(&block);

    struct fw_dump_cursor cursor = {0};
    struct fw_dump_item back;
    assert_int_equal(fw_dump_open(&reader, &reason), 0);
    assert_int_equal(fw_dump_next_block(&reader, &block, &reason), 1);
    assert_int_equal(fw_dump_check(&block, &reason), 0);
    assert_int_equal(fw_dump_next_item(&block, &cursor, &back, &reason), 1);
    assert_int_equal(back.value_length, length);
    assert_memory_equal(back.value, value, length);
    assert_int_equal(fw_dump_next_item(&block, &cursor, &back, &reason), 0);
    assert_int_equal(fw_dump_next_block(&reader, &block, &reason), 0);
    fw_dump_block_fini(&block);
    free(value);
}

static void test_full_disk(void **state)
{
    struct memory *memory = *state;
    struct fw_reason reason;
    struct fw_dump_writer writer = {.write = memory_write, .context = memory};
    const struct fw_dump_header header = {.made_s = 1};
    struct fw_dump_block block;
    fw_dump_block_init(&block);
    memory->room = FW_DUMP_HEADER_SIZE;
    assert_int_equal(fw_dump_begin(&writer, &header, &reason), 0);
    block_fill(&block, 0, 2);
    assert_int_equal(fw_dump_put(&writer, &block, &reason), -ENOSPC);
    assert_int_equal(fw_dump_end(&writer, &reason), -ENOSPC);
    fw_dump_block_fini(&block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_empty, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_change_is_seen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_cut_is_seen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_order_is_seen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_place_of_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_versions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_end_lies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_large_items, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_full_disk, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("cache/dump", tests, NULL, NULL);
}
