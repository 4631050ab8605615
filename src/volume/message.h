/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What manager and agents tell each other, and what the manager tells its later self: one form for
 * the messages in the rings, the records of the redo log and those of a snapshot of the metadata.
 *
 *     u32 CRC of all that follows | u8 version | u8 kind | u8 flags | u8 name length
 *     u32 host | u32 runs | u64 number | u64 value | 16 bytes UUID | name | runs
 *
 * All numbers are little-endian; a run has four of 64 bits: extent, count, generation, logical. A
 * run says "these extents of the disk, of that generation", and with `logical` "at that place of
 * the volume". The CRC is always there: not every ring has one, and 4 bytes are cheaper than to
 * ask.
 *
 * Nothing here believes what it decodes: every field is in its limits or the answer is -EBADMSG.
 * What the numbers mean, and whether they can be true, is metadata.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fairway/volume.h>

#include "base/base.h"
#include "base/reason.h"

enum {
    FW_VOLUME_VERSION = 1,
    FW_VOLUME_RUNS_MAX = 128,
    FW_VOLUME_HEADER_SIZE = 48,
    FW_VOLUME_RUN_SIZE = 32,
    FW_VOLUME_MESSAGE_MAX =
        FW_VOLUME_HEADER_SIZE + FW_VOLUME_NAME_MAX + FW_VOLUME_RUNS_MAX * FW_VOLUME_RUN_SIZE,
};

enum fw_volume_kind {
    /* Up: from an agent to the manager. They name the volume, by UUID and, for people, by name. */
    FW_VOLUME_PLACE = 1,     /* Extents of the pool are in a volume from now on. */
    FW_VOLUME_GIVE_BACK = 2, /* Extents of a volume are free. */
    FW_VOLUME_RETURN = 3,    /* Extents of the pool are not wanted. */
    FW_VOLUME_OPEN = 4,      /* The host uses the volume. */
    FW_VOLUME_CLOSE = 5,
    FW_VOLUME_STAYS = 6, /* The answer to LEAVE: a volume is open. */
    FW_VOLUME_LEFT = 7,  /* The other answer, and the last message: nothing is written any more. */

    /* Down: from the manager to an agent. */
    FW_VOLUME_FREE = 16,  /* Extents for the pool; `number`: the newest generation there is. */
    FW_VOLUME_KEEP = 17,  /* Return what is above `value` extents. */
    FW_VOLUME_FULL = 19,  /* The host wants extents, and there are none. FREE ends it. */
    FW_VOLUME_LEAVE = 18, /* An operator wants the host to go; `number`: which order of his. */

    /* Changes of the metadata: in the log with their `number`, in a snapshot with 0. */
    FW_VOLUME_HOST_ADDED = 32, /* In a snapshot with the `value` of HOST_LEAVING, or 0. */
    FW_VOLUME_HOST_REMOVED = 33,
    FW_VOLUME_VOLUME_ADDED = 34, /* `value`: logical extents. */
    FW_VOLUME_VOLUME_RESIZED = 35,
    FW_VOLUME_VOLUME_REMOVED = 36,
    FW_VOLUME_VOLUME_OPENED = 37,
    FW_VOLUME_VOLUME_CLOSED = 38,
    FW_VOLUME_GRANTED = 39,      /* FREE becomes HOST. */
    FW_VOLUME_PLACED = 40,       /* HOST becomes VOLUME. */
    FW_VOLUME_FREED = 41,        /* HOST, VOLUME or SET_ASIDE becomes FREE. */
    FW_VOLUME_QUARANTINED = 42,  /* HOST becomes SET_ASIDE. */
    FW_VOLUME_COMMANDED = 43,    /* The operator's command `value` has been done. */
    FW_VOLUME_HOST_LEAVING = 44, /* It is to be told LEAVE; `value` is the number. */
    FW_VOLUME_HOST_STAYS = 45,   /* It has answered that it does not. */

    /* Commands of an operator; `number` is the command's. */
    FW_VOLUME_CREATE = 48,
    FW_VOLUME_RESIZE = 49,
    FW_VOLUME_REMOVE = 50,
    FW_VOLUME_CONNECT = 51,
    FW_VOLUME_DISCONNECT = 52,
    FW_VOLUME_RECLAIM = 53,
    FW_VOLUME_FLUSH = 54,
    FW_VOLUME_SHUTDOWN = 55,
    FW_VOLUME_CANCEL = 56, /* The command `value` before this one. */
};

/*
 * Of FREE. What is sent together can be several parts, of which one is the last; those of a
 * complete list are all marked as such, and one is the first.
 */
enum { FW_VOLUME_SYNC = 1 << 0, FW_VOLUME_FIRST = 1 << 1, FW_VOLUME_LAST = 1 << 2 };

struct fw_volume_uuid {
    uint8_t bytes[FW_VOLUME_UUID_SIZE];
};

struct fw_volume_run {
    uint64_t extent;
    uint64_t count; /* Not 0. */
    uint64_t generation;
    uint64_t logical;
};

struct fw_volume_message {
    enum fw_volume_kind kind;
    unsigned flags;
    uint32_t host; /* The host's number in the group. */
    uint32_t count;
    uint64_t number;
    uint64_t value;
    struct fw_volume_uuid uuid;
    char name[FW_VOLUME_NAME_MAX + 1];
    struct fw_volume_run runs[FW_VOLUME_RUNS_MAX];
};

/* Writes the message and returns its length, at most FW_VOLUME_MESSAGE_MAX. */
size_t fw_volume_message_encode(const struct fw_volume_message *message, uint8_t *bytes);

FW_MUST_CHECK int fw_volume_message_decode(struct fw_volume_message *message, const void *data,
                                           size_t length, struct fw_reason *reason);

/* How long the message at `data` says it is; 0 if there is none in `size` bytes. */
size_t fw_volume_message_length(const void *data, size_t size);

/* For people; "?" if there is no such kind. */
const char *fw_volume_kind_name(enum fw_volume_kind kind);

/* Adds a run, to the last one if it continues that. False: the message is full. */
bool fw_volume_message_add(struct fw_volume_message *message, const struct fw_volume_run *run);

/* Empties the message; no byte of it is left from before. */
void fw_volume_message_init(struct fw_volume_message *message, enum fw_volume_kind kind);

/* Letters, digits and "+_.-", not beginning with '-' or '.', as LVM has it; not empty. */
bool fw_volume_name_is_valid(const char *name);

/* 0, or -EINVAL with the reason. */
FW_MUST_CHECK int fw_volume_name_check(const char *name, struct fw_reason *reason);
