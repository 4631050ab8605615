/* SPDX-License-Identifier: Apache-2.0 */
#include "ring/format.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "base/text.h"

static const char magic_1[] = "mirage shared-block-device 1.0";
static const char magic_2[16] = "fairway ring 2\n";
static const char state_magic[2][4] = {"FWRp", "FWRc"};

enum {
    MAGIC_1_SIZE = sizeof magic_1 - 1,
    STATE_TEXT = 128, /* Where the text for people begins, in both formats. */
    FLAG_TRUE = 1,
    FLAG_FALSE = 2, /* What format 1 writes; 0 is read as false too. */
    BLOCKS_BEFORE_DATA = 5,
};

/* Places in block 0 of format 2. */
enum { HEAD_CRC = 20, HEAD_VERSION = 16, HEAD_ID = 24, HEAD_DATA = 32, HEAD_CAPACITY = 40 };

/* Places in a state: format 1 has the position first and the flag behind it. */
enum { STATE1_POSITION = 0, STATE1_FLAG = 8 };
enum {
    STATE2_MAGIC = 0,
    STATE2_CRC = 4,
    STATE2_SEQUENCE = 8,
    STATE2_POSITION = 16,
    STATE2_OWNER = 24,
    STATE2_HOST = 32,
    STATE2_BEAT = 40,
    STATE2_FLAG = 48,
};

/* Places in a message's header. */
enum { HEADER_LENGTH = 0, HEADER_CRC = 4, HEADER_POSITION = 8 };

/* The CRC of a block in which the CRC itself stands at `place`; there it counts as zero. */
static uint32_t block_crc(uint64_t id, const uint8_t *block, size_t place)
{
    static const uint8_t zero[sizeof(uint32_t)];
    uint32_t crc = fw_crc32c((uint32_t)id, block, place);
    crc = fw_crc32c(crc, zero, sizeof zero);
    return fw_crc32c(crc, block + place + sizeof zero, FW_RING_STATE_SIZE - place - sizeof zero);
}

static const char *side_name(enum fw_ring_side side)
{
    return side == FW_RING_SIDE_PRODUCER ? "producer" : "consumer";
}

static void geometry_fill(struct fw_ring_geometry *geometry)
{
    bool first = geometry->format == 1;
    geometry->header_size = first ? 4 : FW_RING_HEADER_MAX;
    geometry->align = geometry->header_size;
    geometry->message_max = geometry->capacity - geometry->header_size;
    if (geometry->message_max > FW_RING_MESSAGE_MAX) {
        geometry->message_max = FW_RING_MESSAGE_MAX;
    }
}

static int geometry_init_1(struct fw_ring_geometry *geometry, uint64_t disk_size,
                           struct fw_reason *reason)
{
    uint64_t sectors = disk_size / geometry->sector_size;
    if (sectors < FW_RING_SECTORS_MIN) {
        return fw_reason_set(reason, -EINVAL,
                             "a ring of format 1 needs %d sectors of %" PRIu32
                             " bytes, but the disk has %" PRIu64,
                             FW_RING_SECTORS_MIN, geometry->sector_size, sectors);
    }
    geometry->data_offset = (uint64_t)3 * geometry->sector_size;
    geometry->capacity = (sectors - 3) * geometry->sector_size;
    return 0;
}

static int geometry_init_2(struct fw_ring_geometry *geometry, uint64_t disk_size,
                           struct fw_reason *reason)
{
    uint64_t blocks = disk_size / FW_RING_BLOCK;
    if (blocks <= BLOCKS_BEFORE_DATA) {
        return fw_reason_set(reason, -EINVAL,
                             "a ring of format 2 needs %d bytes, but the disk has %" PRIu64,
                             (BLOCKS_BEFORE_DATA + 1) * FW_RING_BLOCK, disk_size);
    }
    geometry->data_offset = (uint64_t)BLOCKS_BEFORE_DATA * FW_RING_BLOCK;
    geometry->capacity = (blocks - BLOCKS_BEFORE_DATA) * FW_RING_BLOCK;
    return 0;
}

int fw_ring_geometry_init(struct fw_ring_geometry *geometry, int format, uint64_t disk_size,
                          uint32_t sector_size, uint64_t id, struct fw_reason *reason)
{
    FW_ASSERT(format == 1 || format == 2);
    *geometry = (struct fw_ring_geometry){
        .format = format, .sector_size = sector_size, .id = format == 2 ? id : 0};
    int rc = format == 1 ? geometry_init_1(geometry, disk_size, reason)
                         : geometry_init_2(geometry, disk_size, reason);
    if (rc == 0) {
        geometry_fill(geometry);
    }
    return rc;
}

static int geometry_read_2(struct fw_ring_geometry *geometry, const uint8_t *head,
                           uint64_t disk_size, uint32_t sector_size, struct fw_reason *reason)
{
    uint64_t id = fw_le64_get(head + HEAD_ID);
    if (fw_le32_get(head + HEAD_CRC) != block_crc(id, head, HEAD_CRC)) {
        return fw_reason_set(reason, -EBADMSG,
                             "block 0: the checksum of a ring of format 2 is wrong");
    }
    if (fw_le32_get(head + HEAD_VERSION) != 2) {
        return fw_reason_set(reason, -EBADMSG, "block 0: version %" PRIu32 " is not known",
                             fw_le32_get(head + HEAD_VERSION));
    }
    int rc = fw_ring_geometry_init(geometry, 2, disk_size, sector_size, id, reason);
    if (rc != 0) {
        return -EBADMSG; /* The disk is shorter than when the ring was made. */
    }
    uint64_t capacity = fw_le64_get(head + HEAD_CAPACITY);
    if (fw_le64_get(head + HEAD_DATA) != geometry->data_offset || capacity > geometry->capacity ||
        capacity == 0 || capacity % FW_RING_BLOCK != 0) {
        return fw_reason_set(reason, -EBADMSG,
                             "block 0: a ring of %" PRIu64 " bytes does not fit this disk; was "
                             "it cut off?",
                             capacity);
    }
    geometry->capacity = capacity;
    geometry_fill(geometry);
    return 0;
}

int fw_ring_geometry_read(struct fw_ring_geometry *geometry, const uint8_t *head, size_t head_size,
                          uint64_t disk_size, uint32_t sector_size, struct fw_reason *reason)
{
    FW_ASSERT(head_size >= FW_RING_STATE_SIZE);
    if (memcmp(head, magic_2, sizeof magic_2) == 0) {
        return geometry_read_2(geometry, head, disk_size, sector_size, reason);
    }
    if (memcmp(head, magic_1, MAGIC_1_SIZE) == 0) {
        int rc = fw_ring_geometry_init(geometry, 1, disk_size, sector_size, 0, reason);
        return rc != 0 ? -EBADMSG : 0;
    }
    return fw_reason_set(reason, -ENOENT, "sector 0 holds no ring: its first bytes are wrong");
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0;
}

/* Only states that say 1 or 2: a 0 in a place that nobody wrote means nothing. */
static bool is_state_1(const uint8_t *sector)
{
    return fw_le64_get(sector + STATE1_POSITION) % 4 == 0 &&
           fw_le64_get(sector + STATE1_POSITION) <= FW_RING_POSITION_MAX &&
           (sector[STATE1_FLAG] == FLAG_TRUE || sector[STATE1_FLAG] == FLAG_FALSE) &&
           is_zero(sector + STATE1_FLAG + 1, STATE_TEXT - STATE1_FLAG - 1);
}

bool fw_ring_is_large(const uint8_t *head)
{
    const size_t sector = FW_RING_LARGE_SIZE / 3;
    return memcmp(head, magic_1, MAGIC_1_SIZE) == 0 &&
           is_zero(head + MAGIC_1_SIZE, sector - MAGIC_1_SIZE) &&
           (is_state_1(head + sector) || is_state_1(head + 2 * sector));
}

size_t fw_ring_head_write(const struct fw_ring_geometry *geometry, uint8_t *head)
{
    if (geometry->format == 1) {
        memset(head, 0, geometry->sector_size);
        memcpy(head, magic_1, MAGIC_1_SIZE);
        return geometry->sector_size;
    }
    memset(head, 0, FW_RING_BLOCK);
    memcpy(head, magic_2, sizeof magic_2);
    fw_le32_put(head + HEAD_VERSION, 2);
    fw_le64_put(head + HEAD_ID, geometry->id);
    fw_le64_put(head + HEAD_DATA, geometry->data_offset);
    fw_le64_put(head + HEAD_CAPACITY, geometry->capacity);
    fw_le32_put(head + HEAD_CRC, block_crc(geometry->id, head, HEAD_CRC));
    return FW_RING_BLOCK;
}

uint64_t fw_ring_area_offset(const struct fw_ring_geometry *geometry, enum fw_ring_side side)
{
    if (geometry->format == 1) {
        return (uint64_t)geometry->sector_size * (side == FW_RING_SIDE_PRODUCER ? 1 : 2);
    }
    return (uint64_t)FW_RING_BLOCK * (side == FW_RING_SIDE_PRODUCER ? 1 : 3);
}

size_t fw_ring_area_size(const struct fw_ring_geometry *geometry)
{
    return geometry->format == 1 ? geometry->sector_size : (size_t)2 * FW_RING_BLOCK;
}

static int pointer_read_1(enum fw_ring_side side, const uint8_t *sector,
                          struct fw_ring_pointer *pointer, struct fw_reason *reason)
{
    uint8_t flag = sector[STATE1_FLAG];
    if (flag > FLAG_FALSE) {
        return fw_reason_set(reason, -EBADMSG,
                             "sector %d (%s): byte 8 is %u, which is neither true (1) nor "
                             "false (2)",
                             side == FW_RING_SIDE_PRODUCER ? 1 : 2, side_name(side), flag);
    }
    *pointer = (struct fw_ring_pointer){.position = fw_le64_get(sector + STATE1_POSITION),
                                        .flag = flag == FLAG_TRUE,
                                        .slots_sound = 1};
    return 0;
}

static bool slot_is_sound(const struct fw_ring_geometry *geometry, enum fw_ring_side side,
                          const uint8_t *slot)
{
    return memcmp(slot + STATE2_MAGIC, state_magic[side], sizeof state_magic[side]) == 0 &&
           fw_le32_get(slot + STATE2_CRC) == block_crc(geometry->id, slot, STATE2_CRC) &&
           slot[STATE2_FLAG] <= 1;
}

static int pointer_read_2(const struct fw_ring_geometry *geometry, enum fw_ring_side side,
                          const uint8_t *area, struct fw_ring_pointer *pointer,
                          struct fw_reason *reason)
{
    const uint8_t *best = NULL;
    uint32_t sound = 0;
    for (uint64_t i = 0; i < 2; i++) {
        const uint8_t *slot = area + i * FW_RING_BLOCK;
        /* A sound state in the wrong slot was put there by nobody of ours. */
        if (!slot_is_sound(geometry, side, slot) || fw_le64_get(slot + STATE2_SEQUENCE) % 2 != i) {
            continue;
        }
        sound++;
        if (best == NULL ||
            fw_le64_get(slot + STATE2_SEQUENCE) > fw_le64_get(best + STATE2_SEQUENCE)) {
            best = slot;
        }
    }
    if (best == NULL) {
        int first = side == FW_RING_SIDE_PRODUCER ? 1 : 3;
        return fw_reason_set(reason, -EBADMSG, "blocks %d and %d (%s): no state is sound", first,
                             first + 1, side_name(side));
    }
    *pointer = (struct fw_ring_pointer){
        .position = fw_le64_get(best + STATE2_POSITION),
        .flag = best[STATE2_FLAG] == 1,
        .sequence = fw_le64_get(best + STATE2_SEQUENCE),
        .owner = fw_le64_get(best + STATE2_OWNER),
        .host = fw_le64_get(best + STATE2_HOST),
        .beat = fw_le64_get(best + STATE2_BEAT),
        .slots_sound = sound,
    };
    return 0;
}

int fw_ring_pointer_read(const struct fw_ring_geometry *geometry, enum fw_ring_side side,
                         const uint8_t *area, struct fw_ring_pointer *pointer,
                         struct fw_reason *reason)
{
    bool first = geometry->format == 1;
    int rc = first ? pointer_read_1(side, area, pointer, reason)
                   : pointer_read_2(geometry, side, area, pointer, reason);
    if (rc != 0) {
        return rc;
    }
    uint64_t place = fw_ring_area_offset(geometry, side) /
                     (first ? geometry->sector_size : (uint32_t)FW_RING_BLOCK);
    if (pointer->position % geometry->align != 0 || pointer->position > FW_RING_POSITION_MAX) {
        return fw_reason_set(reason, -EBADMSG,
                             "%s %" PRIu64 " (%s): position %" PRIu64 " is no multiple of %" PRIu32
                             " or out of all bounds",
                             first ? "sector" : "block", place, side_name(side), pointer->position,
                             geometry->align);
    }
    return 0;
}

int fw_ring_pointers_check(const struct fw_ring_geometry *geometry,
                           const struct fw_ring_pointer *producer,
                           const struct fw_ring_pointer *consumer, struct fw_reason *reason)
{
    const char *unit = geometry->format == 1 ? "sectors 1 and 2" : "blocks 1 to 4";
    if (consumer->position > producer->position) {
        return fw_reason_set(reason, -EBADMSG,
                             "%s: the consumer at %" PRIu64 " is ahead of the producer at %" PRIu64,
                             unit, consumer->position, producer->position);
    }
    if (producer->position - consumer->position > geometry->capacity) {
        return fw_reason_set(reason, -EBADMSG,
                             "%s: from the consumer at %" PRIu64 " to the producer at %" PRIu64
                             " are more than the %" PRIu64 " bytes there are",
                             unit, consumer->position, producer->position, geometry->capacity);
    }
    return 0;
}

/* The line for people. What is too long is cut. */
static void state_text(enum fw_ring_side side, const struct fw_ring_pointer *pointer,
                       const struct fw_ring_names *names, uint8_t *state)
{
    char line[FW_RING_STATE_SIZE - STATE_TEXT + 1];
    struct fw_text text;
    bool is_producer = side == FW_RING_SIDE_PRODUCER;
    fw_text_init(&text, line, sizeof line);
    fw_text_printf(&text, "%s used by %s; %s = %" PRIu64 "; %s = %s", names->queue, names->client,
                   side_name(side), pointer->position, is_producer ? "suspend_ack" : "suspend",
                   pointer->flag ? "true" : "false");
    memcpy(state + STATE_TEXT, line, text.length);
}

uint64_t fw_ring_pointer_write(const struct fw_ring_geometry *geometry, enum fw_ring_side side,
                               const struct fw_ring_pointer *pointer,
                               const struct fw_ring_names *names, uint8_t *sector)
{
    memset(sector, 0, geometry->sector_size);
    if (names != NULL) {
        state_text(side, pointer, names, sector);
    }
    uint64_t place = fw_ring_area_offset(geometry, side);
    if (geometry->format == 1) {
        fw_le64_put(sector + STATE1_POSITION, pointer->position);
        sector[STATE1_FLAG] = pointer->flag ? FLAG_TRUE : FLAG_FALSE;
        return place;
    }
    memcpy(sector + STATE2_MAGIC, state_magic[side], sizeof state_magic[side]);
    fw_le64_put(sector + STATE2_SEQUENCE, pointer->sequence);
    fw_le64_put(sector + STATE2_POSITION, pointer->position);
    fw_le64_put(sector + STATE2_OWNER, pointer->owner);
    fw_le64_put(sector + STATE2_HOST, pointer->host);
    fw_le64_put(sector + STATE2_BEAT, pointer->beat);
    sector[STATE2_FLAG] = pointer->flag ? 1 : 0;
    fw_le32_put(sector + STATE2_CRC, block_crc(geometry->id, sector, STATE2_CRC));
    return place + pointer->sequence % 2 * FW_RING_BLOCK;
}

uint64_t fw_ring_message_size(const struct fw_ring_geometry *geometry, uint64_t length)
{
    uint64_t mask = geometry->align - 1;
    return (geometry->header_size + length + mask) & ~mask;
}

static uint32_t message_crc(const struct fw_ring_geometry *geometry, const uint8_t *header,
                            const void *data, size_t length)
{
    uint32_t crc = fw_crc32c((uint32_t)geometry->id, header + HEADER_LENGTH, sizeof(uint32_t));
    crc = fw_crc32c(crc, header + HEADER_POSITION, sizeof(uint64_t));
    return fw_crc32c(crc, data, length);
}

void fw_ring_header_write(const struct fw_ring_geometry *geometry, uint64_t position,
                          const struct fw_ring_message *message, uint8_t *header)
{
    FW_ASSERT(message->length <= geometry->message_max);
    fw_le32_put(header + HEADER_LENGTH, (uint32_t)message->length);
    if (geometry->format == 2) {
        fw_le64_put(header + HEADER_POSITION, position);
        fw_le32_put(header + HEADER_CRC,
                    message_crc(geometry, header, message->data, message->length));
    }
}

/* "message at 40 (sector 3)" is the place for an error. */
#define MESSAGE_PLACE "message at %" PRIu64 " (sector %" PRIu64 "): "

static uint64_t message_sector(const struct fw_ring_geometry *geometry, uint64_t position)
{
    return fw_ring_disk_offset(geometry, position) / geometry->sector_size;
}

int fw_ring_header_read(const struct fw_ring_geometry *geometry, uint64_t position, uint64_t room,
                        const uint8_t *header, uint64_t *length, struct fw_reason *reason)
{
    uint64_t told = fw_le32_get(header + HEADER_LENGTH);
    if (fw_ring_message_size(geometry, told) > room) {
        return fw_reason_set(reason, -EBADMSG,
                             MESSAGE_PLACE "its length %" PRIu64
                                           " reaches beyond the producer, which is %" PRIu64
                                           " bytes away",
                             position, message_sector(geometry, position), told, room);
    }
    if (told > geometry->message_max) {
        return fw_reason_set(
            reason, -EMSGSIZE, MESSAGE_PLACE "its length %" PRIu64 " is beyond our limit of %d",
            position, message_sector(geometry, position), told, FW_RING_MESSAGE_MAX);
    }
    if (geometry->format == 2 && fw_le64_get(header + HEADER_POSITION) != position) {
        return fw_reason_set(
            reason, -EBADMSG, MESSAGE_PLACE "there is one that belongs to %" PRIu64, position,
            message_sector(geometry, position), fw_le64_get(header + HEADER_POSITION));
    }
    *length = told;
    return 0;
}

int fw_ring_message_check(const struct fw_ring_geometry *geometry, uint64_t position,
                          const uint8_t *header, uint64_t length, struct fw_reason *reason)
{
    if (geometry->format == 1 ||
        fw_le32_get(header + HEADER_CRC) ==
            message_crc(geometry, header, header + geometry->header_size, length)) {
        return 0;
    }
    return fw_reason_set(reason, -EBADMSG, MESSAGE_PLACE "its checksum is wrong", position,
                         message_sector(geometry, position));
}
