/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "cache/item.h"

enum {
    VERSION = 1,
    MAGIC_SIZE = 8,
    END_LENGTH = 16,
    GROW_MIN = FW_DUMP_BLOCK_HEAD + FW_DUMP_BLOCK_SIZE,
};

/* The line's end is spoilt by who copies it as text, and that is then seen at once. */
static const char magic[MAGIC_SIZE] = {'F', 'W', 'D', 'U', 'M', 'P', '\r', '\n'};

#define KIND_ITEMS UINT32_C(0x4b4c4246) /* "FBLK" */
#define KIND_END   UINT32_C(0x444e4546) /* "FEND" */

/* ---- blocks -------------------------------------------------------------------------------- */

void fw_dump_block_init(struct fw_dump_block *block)
{
    *block = (struct fw_dump_block){.bytes = NULL};
}

void fw_dump_block_fini(struct fw_dump_block *block)
{
    free(block->bytes);
    fw_dump_block_init(block);
}

void fw_dump_block_clear(struct fw_dump_block *block)
{
    block->length = 0;
    block->items = 0;
}

/* Room for `length` bytes behind the head. */
static bool block_grow(struct fw_dump_block *block, size_t length)
{
    size_t size = FW_DUMP_BLOCK_HEAD + length;
    if (size <= block->size) {
        return true;
    }
    size = size > GROW_MIN ? size : GROW_MIN;
    char *grown = realloc(block->bytes, size);
    if (grown == NULL) {
        return false;
    }
    block->bytes = grown;
    block->size = size;
    return true;
}

bool fw_dump_block_reserve(struct fw_dump_block *block)
{
    return block_grow(block, FW_DUMP_BLOCK_SIZE);
}

static size_t item_size(const struct fw_dump_item *item)
{
    return (size_t)FW_DUMP_ITEM_HEAD + item->key_length + item->value_length;
}

bool fw_dump_block_add(struct fw_dump_block *block, const struct fw_dump_item *item)
{
    FW_ASSERT(item->key_length > 0 && item->key_length <= FW_ITEM_KEY_MAX);
    FW_ASSERT(item->value_length <= FW_DUMP_VALUE_MAX && (item->bits & ~FW_DUMP_BITS) == 0);
    size_t used = FW_DUMP_BLOCK_HEAD + block->length;
    if (block->size < used + item_size(item)) {
        return false;
    }
    char *to = block->bytes + used;
    to[0] = (char)item->key_length;
    to[1] = (char)item->bits;
    fw_le32_put(to + 2, item->value_length);
    fw_le32_put(to + 6, item->flags);
    fw_le64_put(to + 10, (uint64_t)item->expires_s);
    fw_le64_put(to + 18, item->cas);
    fw_le64_put(to + 26, (uint64_t)item->accessed_s);
    to += FW_DUMP_ITEM_HEAD;
    memcpy(to, item->key, item->key_length);
    memcpy(to + item->key_length, item->value, item->value_length);
    block->length += item_size(item);
    block->items++;
    return true;
}

bool fw_dump_block_add_large(struct fw_dump_block *block, const struct fw_dump_item *item)
{
    FW_ASSERT(block->items == 0);
    return block_grow(block, item_size(item)) && fw_dump_block_add(block, item);
}

void fw_dump_block_seal(struct fw_dump_block *block)
{
    block->checksum = fw_crc32c(0, block->bytes + FW_DUMP_BLOCK_HEAD, block->length);
}

/* ---- writing ------------------------------------------------------------------------------- */

static int writer_write(struct fw_dump_writer *writer, const void *bytes, size_t size,
                        struct fw_reason *reason)
{
    int rc = writer->write(writer->context, bytes, size, reason);
    if (rc == 0) {
        writer->bytes += size;
    }
    return rc;
}

int fw_dump_begin(struct fw_dump_writer *writer, const struct fw_dump_header *header,
                  struct fw_reason *reason)
{
    char bytes[FW_DUMP_HEADER_SIZE] = {0};
    memcpy(bytes, magic, MAGIC_SIZE);
    fw_le32_put(bytes + 8, VERSION);
    fw_le64_put(bytes + 16, (uint64_t)header->made_s);
    fw_le64_put(bytes + 24, header->number);
    fw_le32_put(bytes + 36, fw_crc32c(0, bytes, 36));
    writer->index = 0;
    writer->items = 0;
    writer->bytes = 0;
    return writer_write(writer, bytes, sizeof bytes, reason);
}

/* The head is in the memory before the items, so that both leave in one write. */
static int put(struct fw_dump_writer *writer, struct fw_dump_block *block, uint32_t kind,
               struct fw_reason *reason)
{
    char *head = block->bytes;
    FW_ASSERT(block->length <= FW_DUMP_PAYLOAD_MAX);
    block->index = writer->index++;
    writer->items += block->items;
    fw_le32_put(head, kind);
    fw_le32_put(head + 4, (uint32_t)block->length);
    fw_le32_put(head + 8, block->items);
    fw_le64_put(head + 12, block->index);
    fw_le32_put(head + 20, block->checksum);
    fw_le32_put(head + 24, fw_crc32c(0, head, 24));
    return writer_write(writer, head, FW_DUMP_BLOCK_HEAD + block->length, reason);
}

int fw_dump_put(struct fw_dump_writer *writer, struct fw_dump_block *block,
                struct fw_reason *reason)
{
    FW_ASSERT(block->items > 0);
    FW_CHECK(block->checksum == fw_crc32c(0, block->bytes + FW_DUMP_BLOCK_HEAD, block->length));
    return put(writer, block, KIND_ITEMS, reason);
}

int fw_dump_end(struct fw_dump_writer *writer, struct fw_reason *reason)
{
    char bytes[FW_DUMP_BLOCK_HEAD + END_LENGTH];
    struct fw_dump_block block = {.bytes = bytes, .size = sizeof bytes, .length = END_LENGTH};
    fw_le64_put(bytes + FW_DUMP_BLOCK_HEAD, writer->items);
    fw_le64_put(bytes + FW_DUMP_BLOCK_HEAD + 8, writer->index);
    fw_dump_block_seal(&block);
    return put(writer, &block, KIND_END, reason);
}

/* ---- reading ------------------------------------------------------------------------------- */

static int damaged(struct fw_reason *reason, uint64_t offset, const char *what)
{
    return fw_reason_set(reason, -EBADMSG, "damaged at byte %" PRIu64 ": %s", offset, what);
}

/* All of `size` bytes; 1, or 0 if the file ends before, or what `read` returned. */
static int read_all(struct fw_dump_reader *reader, void *buffer, size_t size,
                    struct fw_reason *reason)
{
    ssize_t length = reader->read(reader->context, buffer, size, reason);
    if (length < 0) {
        return (int)length;
    }
    FW_ASSERT((size_t)length <= size);
    reader->offset += (uint64_t)length;
    return (size_t)length == size;
}

int fw_dump_open(struct fw_dump_reader *reader, struct fw_reason *reason)
{
    char bytes[FW_DUMP_HEADER_SIZE];
    reader->offset = 0;
    reader->index = 0;
    reader->items = 0;
    int rc = read_all(reader, bytes, sizeof bytes, reason);
    if (rc < 0) {
        return rc;
    }
    if (rc == 0 || memcmp(bytes, magic, MAGIC_SIZE) != 0) {
        return fw_reason_set(reason, -EBADMSG, "this is no dump: it does not begin as one");
    }
    if (fw_le32_get(bytes + 36) != fw_crc32c(0, bytes, 36)) {
        return damaged(reason, 0, "the header's checksum is wrong");
    }
    uint32_t version = fw_le32_get(bytes + 8);
    if (version != VERSION) {
        return fw_reason_set(reason, -EPROTONOSUPPORT,
                             "a dump of version %" PRIu32 "; only version %d is understood here",
                             version, (int)VERSION);
    }
    reader->header = (struct fw_dump_header){.made_s = (int64_t)fw_le64_get(bytes + 16),
                                             .number = fw_le64_get(bytes + 24)};
    if (reader->header.number >= FW_ITEM_NUMBER_END) {
        return damaged(reason, 24, "a number that no item can have");
    }
    return 0;
}

/* As much memory as there are bytes to fill it, about: the length may be anything. */
static int read_payload(struct fw_dump_reader *reader, struct fw_dump_block *block, size_t length,
                        struct fw_reason *reason)
{
    for (block->length = 0; block->length < length;) {
        size_t step = block->length > GROW_MIN ? block->length : GROW_MIN;
        size_t part = length - block->length < step ? length - block->length : step;
        if (!block_grow(block, block->length + part)) {
            return fw_reason_errno(reason, -ENOMEM, "no memory for a block of %zu bytes", length);
        }
        int rc = read_all(reader, block->bytes + FW_DUMP_BLOCK_HEAD + block->length, part, reason);
        if (rc <= 0) {
            return rc < 0 ? rc
                          : fw_reason_set(reason, -EBADMSG,
                                          "cut short at byte %" PRIu64 ", in block %" PRIu64,
                                          reader->offset, block->index);
        }
        block->length += part;
    }
    return 0;
}

/* The end was read: does it say what was seen, and is it the end? */
static int end_check(struct fw_dump_reader *reader, const struct fw_dump_block *block,
                     struct fw_reason *reason)
{
    char behind;
    const char *bytes = block->bytes + FW_DUMP_BLOCK_HEAD;
    if (block->length != END_LENGTH || fw_le64_get(bytes) != reader->items ||
        fw_le64_get(bytes + 8) != block->index) {
        return damaged(reason, block->offset, "the end does not count what came before");
    }
    uint64_t offset = reader->offset;
    int rc = read_all(reader, &behind, 1, reason);
    return rc > 0 ? damaged(reason, offset, "something follows the end") : rc;
}

static int head_check(const struct fw_dump_reader *reader, const struct fw_dump_block *block,
                      const char *head, struct fw_reason *reason)
{
    uint32_t kind = fw_le32_get(head);
    if (fw_le32_get(head + 24) != fw_crc32c(0, head, 24)) {
        return damaged(reason, block->offset, "the checksum of a block's head is wrong");
    }
    if (fw_le64_get(head + 12) != reader->index) {
        return damaged(reason, block->offset, "a block is missing, or out of its place");
    }
    uint32_t length = fw_le32_get(head + 4);
    if ((kind != KIND_ITEMS && kind != KIND_END) || length == 0 || length > FW_DUMP_PAYLOAD_MAX) {
        return damaged(reason, block->offset, "a block of an unknown kind");
    }
    return 0;
}

int fw_dump_next_block(struct fw_dump_reader *reader, struct fw_dump_block *block,
                       struct fw_reason *reason)
{
    char head[FW_DUMP_BLOCK_HEAD];
    fw_dump_block_clear(block);
    block->offset = reader->offset;
    block->index = reader->index;
    int rc = read_all(reader, head, sizeof head, reason);
    if (rc <= 0) {
        return rc < 0 ? rc
                      : fw_reason_set(reason, -EBADMSG,
                                      "cut short at byte %" PRIu64 ": the end is missing",
                                      reader->offset);
    }
    rc = head_check(reader, block, head, reason);
    if (rc == 0) {
        rc = read_payload(reader, block, fw_le32_get(head + 4), reason);
    }
    if (rc != 0) {
        return rc;
    }
    block->items = fw_le32_get(head + 8);
    block->checksum = fw_le32_get(head + 20);
    reader->index++;
    if (fw_le32_get(head) == KIND_ITEMS) {
        reader->items += block->items;
        return 1;
    }
    rc = fw_dump_check(block, reason);
    return rc != 0 ? rc : end_check(reader, block, reason);
}

int fw_dump_check(const struct fw_dump_block *block, struct fw_reason *reason)
{
    uint32_t checksum = fw_crc32c(0, block->bytes + FW_DUMP_BLOCK_HEAD, block->length);
    if (checksum != block->checksum) {
        return fw_reason_set(reason, -EBADMSG,
                             "damaged at byte %" PRIu64 ": the checksum of block %" PRIu64
                             ", %zu bytes, is wrong",
                             block->offset, block->index, block->length);
    }
    return 0;
}

int fw_dump_next_item(const struct fw_dump_block *block, struct fw_dump_cursor *cursor,
                      struct fw_dump_item *item, struct fw_reason *reason)
{
    uint64_t offset = block->offset + FW_DUMP_BLOCK_HEAD + cursor->position;
    size_t left = block->length - cursor->position;
    const char *from = block->bytes + FW_DUMP_BLOCK_HEAD + cursor->position;
    if (left == 0 && cursor->count == block->items) {
        return 0;
    }
    if (left < FW_DUMP_ITEM_HEAD || cursor->count == block->items) {
        return damaged(reason, offset, "a block has fewer or more items than it says");
    }
    *item = (struct fw_dump_item){.key_length = (uint8_t)from[0],
                                  .bits = (uint8_t)from[1],
                                  .value_length = fw_le32_get(from + 2),
                                  .flags = fw_le32_get(from + 6),
                                  .expires_s = (int64_t)fw_le64_get(from + 10),
                                  .cas = fw_le64_get(from + 18),
                                  .accessed_s = (int64_t)fw_le64_get(from + 26)};
    if (item->key_length == 0 || item->key_length > FW_ITEM_KEY_MAX ||
        (item->bits & ~FW_DUMP_BITS) != 0 || item->value_length > FW_DUMP_VALUE_MAX ||
        item->expires_s < 0 || item->accessed_s < 0 || item_size(item) > left) {
        return damaged(reason, offset, "an item that cannot be");
    }
    item->key = from + FW_DUMP_ITEM_HEAD;
    item->value = item->key + item->key_length;
    cursor->position += item_size(item);
    cursor->count++;
    return 1;
}
