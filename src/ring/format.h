/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a ring looks like on the disk: both formats, and nothing but bytes. No function here reads
 * or writes a disk, and none believes what it is given: every answer was checked, and what cannot
 * be is -EBADMSG with a reason that names the place.
 *
 *   format 1            512- or 4,096-byte sectors (ss)      format 2       4,096-byte blocks
 *   sector 0            magic                                block 0        magic, geometry, CRC
 *   sector 1            producer                             blocks 1, 2    producer, two slots
 *   sector 2            consumer                             blocks 3, 4    consumer, two slots
 *   sector 3 ...        messages                             block 5 ...    messages
 *
 * Positions count bytes of messages since the ring was made. They never go back and never wrap; the
 * byte at position p lies at p modulo the capacity of the message area.
 *
 *   message in format 1:  u32 length | data | padding to 4
 *   message in format 2:  u32 length | u32 CRC | u64 own position | data | padding to 16
 *
 * A header never straddles a sector; data goes round the end. All numbers are little-endian.
 *
 * A side (producer or consumer) is a position and a flag: "suspend acknowledged" of the producer,
 * "suspend requested" of the consumer. In format 2 it also has a sequence number that every write
 * raises and whose lowest bit says which slot is written, so that the former state is never
 * touched: of two sound slots the later counts, and a torn one does not. The CRC of everything
 * starts with the ring's own random number, so that what an older ring left on the disk is not
 * taken for this one's. A message carries its own position rather than a count, for a position is
 * as unique, and a consumer that goes on in the middle needs to know nothing else.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fairway/ring.h>

#include "base/base.h"
#include "base/reason.h"

enum {
    FW_RING_BLOCK = 4096,     /* The unit of format 2. */
    FW_RING_HEAD_SIZE = 4096, /* As much of a disk as tells which ring it is, if there is it. */
    FW_RING_LARGE_SIZE = 3 * 4096, /* ...and as tells the sectors of format 1. */
    FW_RING_AREA_MAX = 8192,       /* Of one side. */
    FW_RING_STATE_SIZE = 512,      /* What of a sector or slot a state uses. */
    FW_RING_HEADER_MAX = 16,
    FW_RING_SECTORS_MIN = 4, /* Of format 1. */
};

/* Beyond this no position is believed; at 10 GB/s it is reached in 14 years. */
#define FW_RING_POSITION_MAX (UINT64_C(1) << 62)

enum fw_ring_side { FW_RING_SIDE_PRODUCER, FW_RING_SIDE_CONSUMER };

struct fw_ring_geometry {
    int format;
    uint32_t sector_size; /* The unit of reads and writes. */
    uint32_t header_size;
    uint32_t align; /* Of positions. */
    uint64_t data_offset;
    uint64_t capacity;
    uint64_t message_max;
    uint64_t id; /* Format 2: what every CRC starts with. */
};

struct fw_ring_pointer {
    uint64_t position;
    bool flag;

    /* Format 2 only. */
    uint64_t sequence; /* Of the slot that was read or is to be written. */
    uint64_t owner;    /* Random number of whoever is attached; 0: nobody. */
    uint64_t host;     /* Of the owner. */
    uint64_t beat;     /* Raised while the owner lives. */
    uint32_t slots_sound;
};

struct fw_ring_names {
    const char *queue;
    const char *client;
};

/*
 * A new ring on a disk of that size. Returns 0 or -EINVAL with a reason. `id` is for format 2.
 */
FW_MUST_CHECK int fw_ring_geometry_init(struct fw_ring_geometry *geometry, int format,
                                        uint64_t disk_size, uint32_t sector_size, uint64_t id,
                                        struct fw_reason *reason);

/*
 * Which ring is on a disk, from the first `head_size` bytes of it, FW_RING_HEAD_SIZE or all.
 * -ENOENT if there is none; -EBADMSG if there is one, but damaged or too large for the disk.
 */
FW_MUST_CHECK int fw_ring_geometry_read(struct fw_ring_geometry *geometry, const uint8_t *head,
                                        size_t head_size, uint64_t disk_size, uint32_t sector_size,
                                        struct fw_reason *reason);

/*
 * Whether the first FW_RING_LARGE_SIZE bytes of a disk are those of a format 1 ring with sectors of
 * 4,096 bytes, of which one side may be damaged. Who takes its sectors for 512 bytes sees an empty
 * ring, and would write one into it.
 */
FW_MUST_CHECK bool fw_ring_is_large(const uint8_t *head);

/* Fills the first sector (format 2: block) of the disk; returns its size. */
size_t fw_ring_head_write(const struct fw_ring_geometry *geometry, uint8_t *head);

/* Where all states of a side are, and how many bytes. */
uint64_t fw_ring_area_offset(const struct fw_ring_geometry *geometry, enum fw_ring_side side);
size_t fw_ring_area_size(const struct fw_ring_geometry *geometry);

/* Reads a side from its area. */
FW_MUST_CHECK int fw_ring_pointer_read(const struct fw_ring_geometry *geometry,
                                       enum fw_ring_side side, const uint8_t *area,
                                       struct fw_ring_pointer *pointer, struct fw_reason *reason);

/* Whether two sides can be those of one ring. */
FW_MUST_CHECK int fw_ring_pointers_check(const struct fw_ring_geometry *geometry,
                                         const struct fw_ring_pointer *producer,
                                         const struct fw_ring_pointer *consumer,
                                         struct fw_reason *reason);

/*
 * Fills a sector with the side's state and returns its place on the disk. Without names there is no
 * text in it.
 */
uint64_t fw_ring_pointer_write(const struct fw_ring_geometry *geometry, enum fw_ring_side side,
                               const struct fw_ring_pointer *pointer,
                               const struct fw_ring_names *names, uint8_t *sector);

/* What a message of that length takes, header and padding included. */
uint64_t fw_ring_message_size(const struct fw_ring_geometry *geometry, uint64_t length);

/* The header of the message at `position`; header_size bytes. */
void fw_ring_header_write(const struct fw_ring_geometry *geometry, uint64_t position,
                          const struct fw_ring_message *message, uint8_t *header);

/*
 * The length of the message at `position`, from its header. `room` is how far away the producer is,
 * not 0.
 */
FW_MUST_CHECK int fw_ring_header_read(const struct fw_ring_geometry *geometry, uint64_t position,
                                      uint64_t room, const uint8_t *header, uint64_t *length,
                                      struct fw_reason *reason);

/* Whether header and data, which follows it, belong together. Always 0 in format 1. */
FW_MUST_CHECK int fw_ring_message_check(const struct fw_ring_geometry *geometry, uint64_t position,
                                        const uint8_t *header, uint64_t length,
                                        struct fw_reason *reason);

/* Where the byte at a position is on the disk. */
static inline uint64_t fw_ring_disk_offset(const struct fw_ring_geometry *geometry,
                                           uint64_t position)
{
    return geometry->data_offset + position % geometry->capacity;
}
