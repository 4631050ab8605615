/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: no image makes a ring crash, read out of bounds, or hand out a message that is not there.
 * What is popped is compared with what a second, simpler reader finds in the very bytes; who is
 * refused has changed nothing; who is not can push, and what was pushed comes out.
 *
 * The first byte chooses format and sector size of a small ring with three messages, and whether
 * large sectors are on a disk that has small ones; the rest says how it is spoilt: patches of a
 * part, a place in it, a length, and bytes. The checksums of format 2 can be made right again, so
 * that what is behind them is reached too.
 */
#include <endian.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "io/disk_memory.h"
#include "io/random.h"
#include "ring/core.h"
#include "ring/inspect.h"

enum {
    INPUT_MAX = 4096,
    PATCH_SIZE = 4,
    HOST = 1,
    POPS_MAX = 64,
    BLOCK = 4096,
    BLOCKS_2 = 7,
    FIXED_SEED = 42,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t fixed_seed(void)
{
    return FIXED_SEED;
}

static const struct fw_random_hooks seed_hooks = {.seed = fixed_seed};

static struct fw_ring *attach(struct fw_disk *disk, enum fw_ring_role role)
{
    const struct fw_ring_options options = {.role = role};
    struct fw_ring *ring = NULL;
    struct fw_reason reason;
    int rc = fw_ring_attach_on(&ring, disk, HOST, &options, &reason);
    FW_ASSERT(rc <= 0);
    return rc == 0 ? ring : NULL;
}

static void image_make(struct fw_disk *disk, int format, uint32_t sector_size)
{
    static const char text[] = "abcdefghijklmnopqrstuvwxyz";
    const struct fw_ring_create create = {.format = format, .sector_size = sector_size};
    struct fw_ring_message message;
    uint64_t position;
    int rc = fw_ring_create_on(disk, &create, NULL);
    FW_ASSERT(rc == 0);
    struct fw_ring *ring = attach(disk, FW_RING_BOTH);
    FW_ASSERT(ring != NULL);
    for (size_t i = 0; i < 3; i++) {
        rc = fw_ring_push(ring, text, 3 + 7 * i, NULL);
        FW_ASSERT(rc == 0);
    }
    rc = fw_ring_pop(ring, &message, &position, NULL);
    FW_ASSERT(rc == 0);
    rc = fw_ring_advance(ring, position, NULL);
    FW_ASSERT(rc == 0);
    fw_ring_detach(ring);
}

/* Makes the checksum of a block right: of the head, or of a state. */
static void block_repair(uint8_t *block, size_t place, uint32_t start)
{
    uint32_t crc = 0;
    memcpy(block + place, &crc, sizeof crc);
    crc = htole32(fw_crc32c_table(start, block, FW_RING_STATE_SIZE));
    memcpy(block + place, &crc, sizeof crc);
}

static void image_spoil(struct fw_disk_memory *memory, int format, const uint8_t *data, size_t size)
{
    uint64_t disk_size = memory->disk.properties.size;
    uint64_t unit = disk_size / 7;
    while (size >= PATCH_SIZE) {
        uint64_t offset = data[0] % 7 * unit + data[1] + ((uint64_t)(data[2] & 15) << 8);
        bool repairs = (data[2] & 128) != 0;
        size_t length = data[3];
        data += PATCH_SIZE;
        size -= PATCH_SIZE;
        length = length < size ? length : size;
        if (offset <= disk_size - length) {
            memcpy(memory->bytes + offset, data, length);
        }
        data += length;
        size -= length;
        uint32_t id;
        memcpy(&id, memory->bytes + 24, sizeof id);
        for (uint64_t block = 0; repairs && format == 2 && block <= 4; block++) {
            block_repair(memory->bytes + block * BLOCK, block == 0 ? 20 : 4, le32toh(id));
        }
    }
}

/* Another host would be watched for seconds. */
static bool is_watched(struct fw_disk *disk)
{
    struct fw_ring_geometry geometry;
    if (fw_ring_read_head(disk, disk->properties.sector_size, &geometry, NULL) != 0) {
        return false;
    }
    for (int side = 0; side < 2; side++) {
        struct fw_ring_pointer pointer;
        if (fw_ring_read_side(disk, &geometry, (enum fw_ring_side)side, &pointer, NULL) == 0 &&
            pointer.owner != 0 && pointer.host != HOST) {
            return true;
        }
    }
    return false;
}

/*
 * The second reader: is that message at that position of the bytes? How large the sectors are is
 * all it believes.
 */
static void message_compare(const struct fw_disk_memory *memory,
                            const struct fw_ring_geometry *geometry, uint64_t position,
                            const struct fw_ring_message *message)
{
    int format = geometry->format;
    uint64_t sector = geometry->sector_size;
    uint64_t first = format == 1 ? 3 * sector : (uint64_t)5 * BLOCK;
    uint64_t area = memory->disk.properties.size - first;
    uint64_t header_size = format == 1 ? 4 : 16;
    if (format == 2) {
        uint64_t told;
        memcpy(&told, memory->bytes + 40, sizeof told);
        area = le64toh(told);
    }
    uint8_t header[16];
    for (uint64_t i = 0; i < header_size; i++) {
        header[i] = memory->bytes[first + (position + i) % area];
    }
    uint32_t length;
    memcpy(&length, header, sizeof length);
    FW_ASSERT(le32toh(length) == message->length);
    const uint8_t *data = message->data;
    for (uint64_t i = 0; i < message->length; i++) {
        FW_ASSERT(data[i] == memory->bytes[first + (position + header_size + i) % area]);
    }
    if (format == 2) {
        uint32_t crc;
        uint64_t own;
        uint32_t id;
        memcpy(&crc, header + 4, sizeof crc);
        memcpy(&own, header + 8, sizeof own);
        memcpy(&id, memory->bytes + 24, sizeof id);
        FW_ASSERT(le64toh(own) == position);
        uint32_t right = fw_crc32c_table(le32toh(id), header, 4);
        right = fw_crc32c_table(right, header + 8, 8);
        right = fw_crc32c_table(right, message->data, message->length);
        FW_ASSERT(right == le32toh(crc));
    }
}

struct look {
    const struct fw_disk_memory *memory;
    struct fw_ring_geometry geometry;
};

static void on_head(void *context, const struct fw_ring_geometry *geometry,
                    const struct fw_ring_pointer *producer, const struct fw_ring_pointer *consumer)
{
    struct look *look = context;
    (void)producer;
    (void)consumer;
    look->geometry = *geometry;
}

static void on_message(void *context, uint64_t position, const struct fw_ring_message *message)
{
    const struct look *look = context;
    message_compare(look->memory, &look->geometry, position, message);
}

static void on_damage(void *context, const char *text)
{
    (void)context;
    FW_ASSERT(strlen(text) > 0 && strlen(text) < FW_REASON_SIZE);
}

static void image_inspect(struct fw_disk_memory *memory)
{
    struct look look = {.memory = memory};
    const struct fw_ring_visitor visitor = {
        .head = on_head, .message = on_message, .damage = on_damage, .context = &look};
    struct fw_reason reason;
    (void)!fw_ring_inspect(&memory->disk, 0, &visitor, &reason);
}

static void image_consume(struct fw_disk_memory *memory)
{
    struct fw_ring *ring = attach(&memory->disk, FW_RING_CONSUMER);
    if (ring == NULL) {
        return;
    }
    uint64_t begin = ring->cursor;
    for (int i = 0; i < POPS_MAX; i++) {
        struct fw_ring_message message;
        struct fw_ring_reason reason;
        uint64_t position;
        int rc = fw_ring_pop(ring, &message, &position, &reason);
        if (rc != 0) {
            break;
        }
        message_compare(memory, &ring->geometry, begin, &message);
        FW_ASSERT(position > begin);
        rc = fw_ring_advance(ring, position, NULL);
        FW_ASSERT(rc == 0);
        begin = position;
    }
    (void)!fw_ring_suspend(ring, NULL);
    fw_ring_detach(ring);
}

static void image_produce(struct fw_disk_memory *memory)
{
    struct fw_ring *ring = attach(&memory->disk, FW_RING_PRODUCER);
    if (ring == NULL) {
        return;
    }
    struct fw_ring_reason reason;
    (void)!fw_ring_poll(ring, &reason);
    (void)!fw_ring_push(ring, "pushed", 6, &reason);
    fw_ring_detach(ring);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > INPUT_MAX) {
        return 0;
    }
    fw_random_hooks = &seed_hooks;
    int format = (data[0] & 1) != 0 ? 2 : 1;
    uint32_t sector_size = (data[0] & 2) != 0 ? 4096 : 512;
    bool on_small = format == 1 && (data[0] & 4) != 0;
    struct fw_disk_memory *memory;
    const struct fw_disk_memory_options options = {.size = format == 1 ? (uint64_t)7 * sector_size
                                                                       : (uint64_t)BLOCKS_2 * BLOCK,
                                                   .sector_size = on_small ? 512 : sector_size};
    int rc = fw_disk_memory_create(&memory, &options);
    FW_ASSERT(rc == 0);
    image_make(&memory->disk, format, sector_size);
    image_spoil(memory, format, data + 1, size - 1);
    uint8_t *before = malloc(options.size);
    FW_ASSERT(before != NULL);
    memcpy(before, memory->bytes, options.size);
    image_inspect(memory);
    FW_ASSERT(memcmp(before, memory->bytes, options.size) == 0);
    if (!is_watched(&memory->disk)) {
        struct fw_ring *ring = attach(&memory->disk, FW_RING_BOTH);
        FW_ASSERT(ring != NULL || memcmp(before, memory->bytes, options.size) == 0);
        if (ring != NULL) {
            fw_ring_detach(ring);
            memcpy(memory->bytes, before, options.size);
        }
        image_consume(memory);
        image_produce(memory);
        image_consume(memory);
    }
    free(before);
    fw_disk_close(&memory->disk);
    return 0;
}
