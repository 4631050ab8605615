/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain format: a group of our own on a disk or in a file. docs/volume.md has it in words.
 *
 *     block 0        head: what is where; written once, when the group is made
 *     block 1        the manager's lease (lease.h)
 *     slot 0, 1      metadata: header and a snapshot; each save goes to the slot of the older one
 *     log            a ring, format 2
 *     commands       two rings of a fixed size: to the manager from operators, and back
 *     rings          two for each host: up, down
 *     extents
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "io/disk_part.h"
#include "io/random.h"
#include "volume/lease.h"
#include "volume/lvm.h"
#include "volume/queue.h"
#include "volume/store.h"

enum {
    BLOCK = 4096,
    SLOTS = 2 * BLOCK,
    RING_MIN = 7 * BLOCK, /* Room for a message. */
    HEAD_VERSION = 3,
    /* Of a snapshot, at worst: an extent alone in its change; a volume with two users. */
    PER_EXTENT = FW_VOLUME_HEADER_SIZE + FW_VOLUME_RUN_SIZE,
    PER_VOLUME = 3 * FW_VOLUME_HEADER_SIZE + FW_VOLUME_NAME_MAX,
    PER_HOST = FW_VOLUME_HEADER_SIZE + FW_VOLUME_NAME_MAX,
    HOSTS_DEFAULT = 16,
    VOLUMES_DEFAULT = 1024,
};

static const uint64_t EXTENT_DEFAULT = UINT64_C(4) << 20;
static const uint64_t RING_DEFAULT = UINT64_C(1) << 20;
static const uint64_t RING_MAX = UINT64_C(1) << 30;
static const char HEAD_MAGIC[16] = "fairway volumes";
static const char SLOT_MAGIC[16] = "fairway extents";

/* All little-endian; the CRC is over the struct with itself 0. */
struct head {
    char magic[16];
    uint32_t version;
    uint32_t crc;
    uint8_t uuid[FW_VOLUME_UUID_SIZE];
    uint64_t disk_size;
    uint64_t extent_size;
    uint64_t extent_count;
    uint64_t slot_size;
    uint64_t ring_size;
    uint64_t log_size;
    uint32_t hosts_max;
    uint32_t volumes_max;
    uint64_t data_offset; /* Of the disk, where the extents are apart; 0: behind the rings. */
};

/* In front of a snapshot; the CRC is over the struct with itself 0, and the snapshot. */
struct slot {
    char magic[16];
    uint8_t uuid[FW_VOLUME_UUID_SIZE]; /* Of the group: no older group's slot is taken for ours. */
    uint64_t sequence;
    uint64_t length;
    uint64_t number;
    uint64_t generation;
    uint32_t crc;
    uint32_t zero;
};

struct plain {
    struct fw_volume_store store;
    struct fw_disk *disk;
    struct fw_disk *part; /* Closed with the store; NULL: none. */
    uint64_t apart;       /* Where the extents are on the disk, if not behind the rings. */
    uint64_t slot_size;
    uint64_t ring_size;
    uint64_t log_size;
    uint64_t sequence; /* Of the slot that was loaded or saved last. */
};

static struct plain *plain_of(struct fw_volume_store *store)
{
    return FW_CONTAINER_OF(store, struct plain, store);
}

static uint64_t round_up(uint64_t value)
{
    return (value + BLOCK - 1) / BLOCK * BLOCK;
}

static int disk_do(struct fw_disk *disk, enum fw_disk_kind kind, void *bytes, uint64_t size,
                   uint64_t offset, struct fw_reason *reason)
{
    struct fw_disk_op op = {.kind = kind, .into = bytes, .size = (size_t)size, .offset = offset};
    return fw_disk_run(disk, &op, reason);
}

/* ---- where things are ---- */

static uint64_t log_offset(const struct plain *plain)
{
    return SLOTS + 2 * plain->slot_size;
}

static uint64_t orders_offset(const struct plain *plain)
{
    return log_offset(plain) + plain->log_size;
}

static uint64_t ring_offset(const struct plain *plain, uint32_t index)
{
    return orders_offset(plain) + 2 * (uint64_t)RING_MIN + index * plain->ring_size;
}

static uint64_t rings_end(const struct plain *plain)
{
    return ring_offset(plain, 2 * plain->store.geometry.hosts_max);
}

static uint64_t data_offset(const struct plain *plain)
{
    return plain->apart != 0 ? plain->apart : rings_end(plain);
}

static uint64_t slot_size(uint64_t extents, uint32_t hosts, uint32_t volumes)
{
    return BLOCK + round_up(FW_VOLUME_HEADER_SIZE + extents * PER_EXTENT +
                            (uint64_t)hosts * PER_HOST + (uint64_t)volumes * PER_VOLUME);
}

/* ---- the head ---- */

static uint32_t head_crc(const struct head *head)
{
    struct head copy = *head;
    copy.crc = 0;
    return fw_crc32c(0, &copy, sizeof copy);
}

static void head_write(const struct plain *plain, uint8_t *block)
{
    const struct fw_volume_geometry *geometry = &plain->store.geometry;
    struct head head = {.version = htole32(HEAD_VERSION),
                        .disk_size = htole64(fw_disk_properties(plain->disk)->size),
                        .extent_size = htole64(geometry->extent_size),
                        .extent_count = htole64(geometry->extent_count),
                        .slot_size = htole64(plain->slot_size),
                        .ring_size = htole64(plain->ring_size),
                        .log_size = htole64(plain->log_size),
                        .hosts_max = htole32(geometry->hosts_max),
                        .volumes_max = htole32(geometry->volumes_max),
                        .data_offset = htole64(plain->apart)};
    memcpy(head.magic, HEAD_MAGIC, sizeof head.magic);
    memcpy(head.uuid, geometry->uuid.bytes, sizeof head.uuid);
    head.crc = htole32(head_crc(&head));
    memset(block, 0, BLOCK);
    memcpy(block, &head, sizeof head);
}

static bool size_is_valid(uint64_t size, uint64_t min, uint64_t max)
{
    return size % BLOCK == 0 && size >= min && size <= max;
}

/* Takes the head's numbers over. False: they cannot be. */
static bool head_take(struct plain *plain, const struct head *head)
{
    struct fw_volume_geometry *geometry = &plain->store.geometry;
    memcpy(geometry->uuid.bytes, head->uuid, sizeof head->uuid);
    geometry->extent_size = le64toh(head->extent_size);
    geometry->extent_count = le64toh(head->extent_count);
    geometry->hosts_max = le32toh(head->hosts_max);
    geometry->volumes_max = le32toh(head->volumes_max);
    plain->slot_size = le64toh(head->slot_size);
    plain->ring_size = le64toh(head->ring_size);
    plain->log_size = le64toh(head->log_size);
    plain->apart = le64toh(head->data_offset);
    bool is_valid =
        size_is_valid(geometry->extent_size, BLOCK, UINT64_C(1) << 40) &&
        size_is_valid(plain->ring_size, RING_MIN, RING_MAX) &&
        size_is_valid(plain->log_size, RING_MIN, RING_MAX) && geometry->extent_count > 0 &&
        geometry->extent_count <= FW_VOLUME_EXTENTS_MAX && geometry->hosts_max > 0 &&
        geometry->hosts_max <= FW_VOLUME_HOSTS_MAX && geometry->volumes_max > 0 &&
        geometry->volumes_max <= FW_VOLUME_VOLUMES_MAX &&
        size_is_valid(plain->slot_size,
                      slot_size(geometry->extent_count, geometry->hosts_max, geometry->volumes_max),
                      UINT64_C(1) << 40);
    geometry->ring_size = plain->ring_size;
    geometry->data_offset = is_valid ? data_offset(plain) : 0;
    return is_valid;
}

static int head_read(struct plain *plain, struct fw_reason *reason)
{
    uint64_t size = fw_disk_properties(plain->disk)->size;
    uint8_t *block = size >= BLOCK ? fw_disk_buffer(BLOCK) : NULL;
    struct head head;
    if (block == NULL) {
        return size >= BLOCK ? fw_reason_errno(reason, -ENOMEM, "cannot read a group")
                             : fw_reason_set(reason, -ENOENT, "there is no group of volumes");
    }
    int rc = disk_do(plain->disk, FW_DISK_READ, block, BLOCK, 0, reason);
    memcpy(&head, block, sizeof head);
    free(block);
    if (rc != 0) {
        return rc;
    }
    if (memcmp(head.magic, HEAD_MAGIC, sizeof head.magic) != 0) {
        return fw_reason_set(reason, -ENOENT,
                             "there is no group of volumes; "
                             "'fairway volume format' makes one");
    }
    if (le32toh(head.crc) != head_crc(&head)) {
        return fw_reason_set(reason, -EBADMSG, "block 0 (head): its checksum is wrong");
    }
    if (le32toh(head.version) != HEAD_VERSION || !head_take(plain, &head)) {
        return fw_reason_set(
            reason, -EBADMSG,
            "block 0 (head): version %" PRIu32
            " with numbers that cannot be; was it made by another version of the program?",
            le32toh(head.version));
    }
    const struct fw_volume_geometry *geometry = &plain->store.geometry;
    uint64_t end = plain->apart != 0
                       ? rings_end(plain)
                       : geometry->data_offset + geometry->extent_count * geometry->extent_size;
    if (end > size) {
        return fw_reason_set(reason, -EBADMSG,
                             "the group was made on a disk of %" PRIu64
                             " bytes, and this one has %" PRIu64,
                             le64toh(head.disk_size), size);
    }
    return 0;
}

/* ---- slots ---- */

static uint32_t slot_crc(const struct slot *slot, const uint8_t *snapshot, uint64_t length)
{
    struct slot copy = *slot;
    copy.crc = 0;
    return fw_crc32c(fw_crc32c(0, &copy, sizeof copy), snapshot, length);
}

/* Reads the header of a slot. 0: there is none, or not ours. */
static int slot_head_read(struct plain *plain, uint32_t index, struct slot *slot,
                          struct fw_reason *reason)
{
    uint8_t *block = fw_disk_buffer(BLOCK);
    memset(slot, 0, sizeof *slot);
    if (block == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot read metadata");
    }
    int rc =
        disk_do(plain->disk, FW_DISK_READ, block, BLOCK, SLOTS + index * plain->slot_size, reason);
    memcpy(slot, block, sizeof *slot);
    free(block);
    bool is_ours = rc == 0 && memcmp(slot->magic, SLOT_MAGIC, sizeof slot->magic) == 0 &&
                   memcmp(slot->uuid, plain->store.geometry.uuid.bytes, sizeof slot->uuid) == 0 &&
                   le64toh(slot->length) <= plain->slot_size - BLOCK &&
                   le64toh(slot->sequence) % 2 == index;
    if (!is_ours) {
        memset(slot, 0, sizeof *slot);
    }
    return rc;
}

/* Reads the slot whole; the snapshot is for free(). *sequence is 0 if the slot is not sound. */
static int slot_read(struct plain *plain, uint32_t index, struct slot *slot, uint8_t **snapshot,
                     uint64_t *sequence, struct fw_reason *reason)
{
    *sequence = 0;
    *snapshot = NULL;
    int rc = slot_head_read(plain, index, slot, reason);
    uint64_t length = le64toh(slot->length);
    if (rc != 0 || slot->sequence == 0) {
        return rc;
    }
    uint8_t *bytes = fw_disk_buffer((size_t)round_up(length) + BLOCK);
    if (bytes == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot read metadata");
    }
    if (length > 0) {
        rc = disk_do(plain->disk, FW_DISK_READ, bytes, round_up(length),
                     SLOTS + index * plain->slot_size + BLOCK, reason);
    }
    if (rc == 0 && slot_crc(slot, bytes, length) == le32toh(slot->crc)) {
        *sequence = le64toh(slot->sequence);
        *snapshot = bytes;
    } else {
        free(bytes);
    }
    return rc;
}

static int snapshot_apply(struct fw_volume_metadata *metadata, const uint8_t *bytes,
                          uint64_t length, struct fw_reason *reason)
{
    struct fw_volume_message change;
    int rc = 0;
    while (rc == 0 && length > 0) {
        size_t part = fw_volume_message_length(bytes, length);
        rc = fw_volume_message_decode(&change, bytes, part, reason);
        if (rc == 0 && change.number != 0) {
            rc = fw_reason_set(reason, -EBADMSG, "the metadata have a numbered change");
        }
        if (rc == 0) {
            rc = fw_volume_metadata_apply(metadata, &change, reason);
        }
        bytes += part;
        length -= part;
    }
    return rc;
}

static int plain_load(struct fw_volume_store *store, struct fw_volume_metadata *metadata,
                      struct fw_reason *reason)
{
    struct plain *plain = plain_of(store);
    struct slot slots[2];
    uint8_t *snapshots[2] = {NULL, NULL};
    uint64_t sequences[2] = {0, 0};
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < 2; i++) {
        rc = slot_read(plain, i, &slots[i], &snapshots[i], &sequences[i], reason);
    }
    uint32_t newest = sequences[1] > sequences[0] ? 1 : 0;
    if (rc == 0 && sequences[newest] == 0) {
        rc = fw_reason_set(reason, -EBADMSG,
                           "both copies of the metadata are damaged; blocks 2 and %" PRIu64,
                           2 + plain->slot_size / BLOCK);
    }
    if (rc == 0 && fw_volume_metadata_init(metadata, store->geometry.extent_count) != 0) {
        rc = fw_reason_errno(reason, -ENOMEM, "cannot hold the metadata");
    } else if (rc == 0) {
        rc = snapshot_apply(metadata, snapshots[newest], le64toh(slots[newest].length), reason);
        metadata->number = le64toh(slots[newest].number);
        metadata->generation = le64toh(slots[newest].generation);
        plain->sequence = sequences[newest];
        if (rc == 0) {
            rc = fw_volume_metadata_check(metadata, reason);
        }
        if (rc != 0) {
            fw_volume_metadata_fini(metadata);
        }
    }
    free(snapshots[0]);
    free(snapshots[1]);
    return rc;
}

static int plain_sequence(struct fw_volume_store *store, uint64_t *sequence,
                          struct fw_reason *reason)
{
    struct slot slots[2];
    int rc = slot_head_read(plain_of(store), 0, &slots[0], reason);
    if (rc == 0) {
        rc = slot_head_read(plain_of(store), 1, &slots[1], reason);
    }
    if (rc == 0) {
        uint64_t first = le64toh(slots[0].sequence);
        uint64_t second = le64toh(slots[1].sequence);
        *sequence = first > second ? first : second;
    }
    return rc;
}

struct gathered {
    uint8_t *bytes;
    uint64_t length;
    uint64_t room;
};

static int gather(void *context, const struct fw_volume_message *change)
{
    struct gathered *gathered = context;
    uint8_t encoded[FW_VOLUME_MESSAGE_MAX];
    size_t length = fw_volume_message_encode(change, encoded);
    if (length > gathered->room - gathered->length) {
        return -ENOSPC;
    }
    memcpy(gathered->bytes + gathered->length, encoded, length);
    gathered->length += length;
    return 0;
}

/* The body first, then the header: until that is durable, the slot is none. */
static int slot_write(struct plain *plain, const struct slot *slot, uint8_t *bytes, uint64_t length,
                      struct fw_reason *reason)
{
    uint64_t offset = SLOTS + le64toh(slot->sequence) % 2 * plain->slot_size;
    int rc = 0;
    if (length > 0) {
        rc = disk_do(plain->disk, FW_DISK_WRITE, bytes, round_up(length), offset + BLOCK, reason);
    }
    memset(bytes, 0, BLOCK);
    memcpy(bytes, slot, sizeof *slot);
    if (rc == 0) {
        rc = disk_do(plain->disk, FW_DISK_WRITE, bytes, BLOCK, offset, reason);
    }
    return rc == 0 ? disk_do(plain->disk, FW_DISK_FLUSH, NULL, 0, 0, reason) : rc;
}

static int plain_save(struct fw_volume_store *store, const struct fw_volume_metadata *metadata,
                      struct fw_reason *reason)
{
    struct plain *plain = plain_of(store);
    struct gathered gathered = {.room = plain->slot_size - BLOCK};
    gathered.bytes = fw_disk_buffer((size_t)plain->slot_size);
    if (gathered.bytes == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot save the metadata");
    }
    const struct fw_volume_sink sink = {.take = gather, .context = &gathered};
    int rc = fw_volume_metadata_snapshot(metadata, &sink);
    if (rc != 0) {
        (void)fw_reason_set(reason, rc, "the metadata do not fit; remove volumes");
    } else {
        struct slot slot = {.sequence = htole64(plain->sequence + 1),
                            .length = htole64(gathered.length),
                            .number = htole64(metadata->number),
                            .generation = htole64(metadata->generation)};
        memcpy(slot.magic, SLOT_MAGIC, sizeof slot.magic);
        memcpy(slot.uuid, store->geometry.uuid.bytes, sizeof slot.uuid);
        slot.crc = htole32(slot_crc(&slot, gathered.bytes, gathered.length));
        rc = slot_write(plain, &slot, gathered.bytes, gathered.length, reason);
    }
    if (rc == 0) {
        plain->sequence++;
    }
    free(gathered.bytes);
    return rc;
}

/* ---- the rest ---- */

static int plain_part(struct fw_volume_store *store, enum fw_volume_part part, uint32_t host,
                      struct fw_disk **disk, struct fw_reason *reason)
{
    struct plain *plain = plain_of(store);
    if (part == FW_VOLUME_PART_LEASE) {
        return fw_disk_part_open(disk, plain->disk, BLOCK, FW_VOLUME_LEASE_SIZE, reason);
    }
    if (part == FW_VOLUME_PART_LOG) {
        return fw_disk_part_open(disk, plain->disk, log_offset(plain), plain->log_size, reason);
    }
    if (part == FW_VOLUME_PART_COMMANDS || part == FW_VOLUME_PART_ANSWERS) {
        uint64_t offset = orders_offset(plain) + (part == FW_VOLUME_PART_ANSWERS ? RING_MIN : 0);
        return fw_disk_part_open(disk, plain->disk, offset, RING_MIN, reason);
    }
    FW_ASSERT(host < store->geometry.hosts_max);
    uint32_t index = 2 * host + (part == FW_VOLUME_PART_DOWN ? 1 : 0);
    return fw_disk_part_open(disk, plain->disk, ring_offset(plain, index), plain->ring_size,
                             reason);
}

static void plain_close(struct fw_volume_store *store)
{
    struct plain *plain = plain_of(store);
    if (plain->part != NULL) {
        fw_disk_close(plain->part);
    }
    free(plain);
}

static const struct fw_volume_store_ops plain_ops = {.load = plain_load,
                                                     .sequence = plain_sequence,
                                                     .save = plain_save,
                                                     .part = plain_part,
                                                     .close = plain_close};

int fw_volume_plain_open(struct fw_volume_store **store, struct fw_disk *disk,
                         struct fw_reason *reason)
{
    struct plain *plain = calloc(1, sizeof *plain);
    if (plain == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot open a group");
    }
    plain->store.ops = &plain_ops;
    plain->disk = disk;
    int rc = head_read(plain, reason);
    if (rc != 0) {
        free(plain);
        return rc;
    }
    *store = &plain->store;
    return 0;
}

int fw_volume_store_open(struct fw_volume_store **store, struct fw_disk *disk,
                         struct fw_reason *reason)
{
    struct fw_volume_lvm lvm;
    struct fw_disk *part;
    int rc = fw_volume_plain_open(store, disk, reason);
    if (rc != -ENOENT) {
        return rc;
    }
    int found = fw_volume_lvm_find(disk, &lvm, reason);
    if (found != 0) {
        return found; /* It has said more exactly what is not there. */
    }
    rc = fw_disk_part_open(&part, disk, lvm.meta_offset, lvm.meta_size, reason);
    if (rc == 0) {
        rc = fw_volume_plain_open(store, part, reason);
        if (rc != 0) {
            fw_disk_close(part);
            return rc;
        }
        plain_of(*store)->part = part;
        (*store)->geometry.is_lvm = true;
    }
    return rc;
}

/* ---- making one ---- */

/* The extents are apart: log and rings begin at multiples of an extent. */
static int layout_align(struct plain *plain, const struct fw_volume_layout *layout,
                        struct fw_reason *reason)
{
    struct fw_volume_geometry *geometry = &plain->store.geometry;
    uint64_t unit = geometry->extent_size;
    uint64_t needed = slot_size(layout->extent_count, geometry->hosts_max, geometry->volumes_max);
    if (unit % (UINT64_C(2) * SLOTS) != 0) {
        return fw_reason_set(reason, -EINVAL, "the group's extents must be multiples of %d bytes",
                             2 * SLOTS);
    }
    plain->slot_size = ((SLOTS + 2 * needed + unit - 1) / unit * unit - SLOTS) / 2;
    plain->log_size = (plain->log_size + unit - 1) / unit * unit;
    plain->apart = layout->data_offset;
    geometry->extent_count = layout->extent_count;
    return 0;
}

uint64_t fw_volume_plain_front(const struct fw_volume_layout *layout, uint64_t *log_end)
{
    struct plain plain = {.ring_size = layout->ring_size, .log_size = layout->log_size};
    plain.store.geometry = (struct fw_volume_geometry){.extent_size = layout->extent_size,
                                                       .hosts_max = layout->hosts_max,
                                                       .volumes_max = VOLUMES_DEFAULT};
    if (layout_align(&plain, layout, NULL) != 0) {
        return 0;
    }
    *log_end = orders_offset(&plain);
    return rings_end(&plain);
}

static int layout_fit(struct plain *plain, const struct fw_volume_layout *layout,
                      struct fw_reason *reason)
{
    struct fw_volume_geometry *geometry = &plain->store.geometry;
    uint64_t size = fw_disk_properties(plain->disk)->size;
    geometry->extent_size = layout->extent_size != 0 ? layout->extent_size : EXTENT_DEFAULT;
    geometry->hosts_max = layout->hosts_max != 0 ? layout->hosts_max : HOSTS_DEFAULT;
    geometry->volumes_max = layout->volumes_max != 0 ? layout->volumes_max : VOLUMES_DEFAULT;
    plain->ring_size = layout->ring_size != 0 ? layout->ring_size : RING_DEFAULT;
    plain->log_size = layout->log_size != 0 ? layout->log_size : RING_DEFAULT;
    if (!size_is_valid(geometry->extent_size, BLOCK, UINT64_C(1) << 40) ||
        !size_is_valid(plain->ring_size, RING_MIN, RING_MAX) ||
        !size_is_valid(plain->log_size, RING_MIN, RING_MAX) ||
        geometry->hosts_max > FW_VOLUME_HOSTS_MAX ||
        geometry->volumes_max > FW_VOLUME_VOLUMES_MAX) {
        return fw_reason_set(reason, -EINVAL,
                             "sizes are multiples of %d, rings have %d bytes or more, and there "
                             "are at most %d hosts and %d volumes",
                             BLOCK, RING_MIN, FW_VOLUME_HOSTS_MAX, FW_VOLUME_VOLUMES_MAX);
    }
    if (layout->data_offset != 0) {
        return layout_align(plain, layout, reason);
    }
    /* Each extent takes its own bytes and some of both slots. */
    uint64_t count = size / (geometry->extent_size + 2 * (uint64_t)PER_EXTENT);
    count = count < FW_VOLUME_EXTENTS_MAX ? count : FW_VOLUME_EXTENTS_MAX;
    for (; count > 0; count--) {
        plain->slot_size = slot_size(count, geometry->hosts_max, geometry->volumes_max);
        if (data_offset(plain) + count * geometry->extent_size <= size) {
            break;
        }
    }
    geometry->extent_count = count;
    return count > 0
               ? 0
               : fw_reason_set(reason, -EINVAL,
                               "%" PRIu64 " bytes are too few for one extent of %" PRIu64
                               " and %" PRIu32 " hosts with rings of %" PRIu64,
                               size, geometry->extent_size, geometry->hosts_max, plain->ring_size);
}

int fw_volume_uuid_draw(struct fw_volume_uuid *uuid, struct fw_reason *reason)
{
    for (size_t i = 0; i < FW_VOLUME_UUID_SIZE; i += sizeof(uint64_t)) {
        uint64_t half;
        int rc = fw_random_seed(&half);
        if (rc != 0) {
            return fw_reason_errno(reason, rc, "cannot draw a random number");
        }
        memcpy(uuid->bytes + i, &half, sizeof half);
    }
    return 0;
}

static uint32_t hold_of(const struct fw_volume_layout *layout)
{
    return layout->hold_ms != 0 ? layout->hold_ms : FW_VOLUME_LEASE_HOLD_MS;
}

/* What a group has from the beginning; rings come with hosts. */
static int parts_make(struct plain *plain, const struct fw_volume_layout *layout,
                      struct fw_reason *reason)
{
    static const enum fw_volume_part parts[] = {FW_VOLUME_PART_LOG, FW_VOLUME_PART_COMMANDS,
                                                FW_VOLUME_PART_ANSWERS};
    struct fw_disk *part;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < FW_ARRAY_LENGTH(parts); i++) {
        rc = plain_part(&plain->store, parts[i], 0, &part, reason);
        if (rc == 0) {
            rc = fw_volume_queue_make(part, reason);
            fw_disk_close(part);
        }
    }
    if (rc == 0) {
        rc = plain_part(&plain->store, FW_VOLUME_PART_LEASE, 0, &part, reason);
    }
    if (rc == 0) {
        rc = fw_volume_lease_format(part, layout->host_number, hold_of(layout), reason);
        fw_disk_close(part);
    }
    return rc;
}

/* The head goes last: what has none is no group. */
static int group_write(struct plain *plain, const struct fw_volume_layout *layout,
                       struct fw_reason *reason)
{
    struct fw_volume_metadata metadata;
    uint8_t *block = fw_disk_buffer(BLOCK);
    if (block == NULL ||
        fw_volume_metadata_init(&metadata, plain->store.geometry.extent_count) != 0) {
        free(block);
        return fw_reason_errno(reason, -ENOMEM, "cannot make a group");
    }
    int rc = disk_do(plain->disk, FW_DISK_WRITE, block, BLOCK, 0, reason);
    if (rc == 0) {
        rc = disk_do(plain->disk, FW_DISK_FLUSH, NULL, 0, 0, reason);
    }
    if (rc == 0) {
        rc = plain_save(&plain->store, &metadata, reason);
    }
    if (rc == 0) {
        rc = parts_make(plain, layout, reason);
    }
    head_write(plain, block);
    if (rc == 0) {
        rc = disk_do(plain->disk, FW_DISK_WRITE, block, BLOCK, 0, reason);
    }
    if (rc == 0) {
        rc = disk_do(plain->disk, FW_DISK_FLUSH, NULL, 0, 0, reason);
    }
    fw_volume_metadata_fini(&metadata);
    free(block);
    return rc;
}

int fw_volume_plain_format(struct fw_disk *disk, const struct fw_volume_layout *layout,
                           struct fw_reason *reason)
{
    struct plain plain = {.store = {.ops = &plain_ops}, .disk = disk};
    struct fw_reason why;
    int rc = head_read(&plain, &why);
    if (rc != -ENOENT && !layout->replace) {
        return rc == 0 || rc == -EBADMSG
                   ? fw_reason_set(reason, -EEXIST, "there is a group of volumes already%s%.150s",
                                   rc == 0 ? "" : ", damaged: ", rc == 0 ? "" : why.text)
                   : fw_reason_set(reason, rc, "%s", why.text);
    }
    rc = fw_volume_lease_hold_check(hold_of(layout), reason);
    if (rc == 0) {
        rc = layout_fit(&plain, layout, reason);
    }
    if (rc == 0) {
        rc = fw_volume_uuid_draw(&plain.store.geometry.uuid, reason);
    }
    return rc == 0 ? group_write(&plain, layout, reason) : rc;
}
