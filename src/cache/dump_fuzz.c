/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds for every input: read as a dump it is refused, or has items that, written again, are read
 * again as the same. So does the same input as what is in a block whose checksums are right, since
 * no fuzzer guesses those; and memory stays in proportion to the input.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "cache/dump.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct memory {
    char *bytes;
    size_t length;
    size_t position;
};

static int memory_write(void *context, const void *bytes, size_t size, struct fw_reason *reason)
{
    (void)reason;
    struct memory *memory = context;
    memory->bytes = realloc(memory->bytes, memory->length + size);
    FW_ASSERT(memory->bytes != NULL);
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

/* The block's items once more, in a block of their own. */
static int block_copy(const struct fw_dump_block *block, struct fw_dump_writer *writer)
{
    struct fw_dump_block copy;
    struct fw_dump_cursor cursor = {0};
    struct fw_dump_item item;
    struct fw_reason reason;
    int rc;
    fw_dump_block_init(&copy);
    bool can = fw_dump_block_reserve(&copy);
    FW_ASSERT(can);
    while ((rc = fw_dump_next_item(block, &cursor, &item, &reason)) == 1) {
        can = copy.items == 0 ? fw_dump_block_add_large(&copy, &item)
                              : fw_dump_block_add(&copy, &item);
        if (!can) { /* Longer than blocks are made; nothing is wrong with that. */
            rc = -ENOBUFS;
            break;
        }
    }
    if (rc == 0) {
        fw_dump_block_seal(&copy);
        FW_ASSERT(copy.length == block->length && copy.items == block->items);
        FW_ASSERT(memcmp(copy.bytes + FW_DUMP_BLOCK_HEAD, block->bytes + FW_DUMP_BLOCK_HEAD,
                         copy.length) == 0);
        rc = fw_dump_put(writer, &copy, &reason);
    }
    fw_dump_block_fini(&copy);
    return rc;
}

static void look(struct memory *input)
{
    struct memory output = {.bytes = NULL};
    struct fw_dump_reader reader = {.read = memory_read, .context = input};
    struct fw_dump_writer writer = {.write = memory_write, .context = &output};
    struct fw_dump_block block;
    struct fw_reason reason;
    fw_dump_block_init(&block);
    int rc = fw_dump_open(&reader, &reason);
    if (rc == 0) {
        rc = fw_dump_begin(&writer, &reader.header, &reason);
    }
    while (rc == 0 && (rc = fw_dump_next_block(&reader, &block, &reason)) == 1) {
        rc = fw_dump_check(&block, &reason);
        rc = rc == 0 ? block_copy(&block, &writer) : rc;
    }
    FW_ASSERT(block.size <= 4 * (input->length + FW_DUMP_BLOCK_SIZE));
    if (rc == 0) {
        rc = fw_dump_end(&writer, &reason);
        FW_ASSERT(rc == 0 && output.length == input->length);
        FW_ASSERT(memcmp(output.bytes, input->bytes, output.length) == 0);
    }
    fw_dump_block_fini(&block);
    free(output.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory raw = {.bytes = malloc(size + 1), .length = size};
    FW_ASSERT(raw.bytes != NULL);
    memcpy(raw.bytes, data, size);
    look(&raw);
    free(raw.bytes);
    if (size < 2) {
        return 0;
    }
    struct memory made = {.bytes = NULL};
    struct fw_dump_writer writer = {.write = memory_write, .context = &made};
    const struct fw_dump_header header = {.number = data[0]};
    struct fw_reason reason;
    struct fw_dump_block block = {.length = size - 1, .items = data[0]};
    block.items += block.items == 0 ? 1 : 0;
    block.bytes = malloc(FW_DUMP_BLOCK_HEAD + block.length);
    FW_ASSERT(block.bytes != NULL);
    memcpy(block.bytes + FW_DUMP_BLOCK_HEAD, data + 1, block.length);
    fw_dump_block_seal(&block);
    int rc = fw_dump_begin(&writer, &header, &reason);
    FW_ASSERT(rc == 0);
    rc = fw_dump_put(&writer, &block, &reason);
    FW_ASSERT(rc == 0);
    rc = fw_dump_end(&writer, &reason);
    FW_ASSERT(rc == 0);
    free(block.bytes);
    look(&made);
    free(made.bytes);
    return 0;
}
