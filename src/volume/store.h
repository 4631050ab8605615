/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a group keeps its metadata, its rings and its extents: an interface, so that a group of our
 * own format (plain.c) and one of LVM's look the same to manager and agents.
 *
 *     metadata      load() and save(); after a crash in save() load() finds the old or the new
 *     parts         the manager's lease, the redo log, two rings for operators and two per host,
 * each as a disk extents       extent x is at data_offset + x * extent_size
 *
 * A store belongs to one thread at a time, together with its disk, which is the caller's, and the
 * parts, which are closed first.
 */
#pragma once

#include "io/disk.h"
#include "volume/metadata.h"

struct fw_volume_geometry {
    struct fw_volume_uuid uuid;
    uint64_t extent_size;
    uint64_t extent_count;
    uint64_t data_offset;
    uint64_t ring_size;
    uint32_t hosts_max;
    uint32_t volumes_max;
    bool is_lvm; /* The extents are a part of a volume group of LVM's. */
};

enum fw_volume_part {
    FW_VOLUME_PART_LOG,
    FW_VOLUME_PART_COMMANDS, /* From operators to the manager, */
    FW_VOLUME_PART_ANSWERS,  /* and back. */
    FW_VOLUME_PART_UP,       /* Of each host. */
    FW_VOLUME_PART_DOWN,
    FW_VOLUME_PART_LEASE,
};

struct fw_volume_store {
    const struct fw_volume_store_ops *ops;
    struct fw_volume_geometry geometry;
};

struct fw_volume_store_ops {
    /* Makes `metadata` what was saved last. -EBADMSG: damaged; nothing was written. */
    int (*load)(struct fw_volume_store *store, struct fw_volume_metadata *metadata,
                struct fw_reason *reason);
    /* Which save that was, without reading it: it differs after every save. */
    int (*sequence)(struct fw_volume_store *store, uint64_t *sequence, struct fw_reason *reason);
    /* Durable when it returns 0. */
    int (*save)(struct fw_volume_store *store, const struct fw_volume_metadata *metadata,
                struct fw_reason *reason);
    int (*part)(struct fw_volume_store *store, enum fw_volume_part part, uint32_t host,
                struct fw_disk **disk, struct fw_reason *reason);
    void (*close)(struct fw_volume_store *store);
};

struct fw_volume_layout {
    uint64_t extent_size;
    uint32_t hosts_max;
    uint32_t volumes_max;
    uint64_t ring_size;
    uint64_t log_size;
    uint64_t host_number; /* Who made it, and may manage it at once. */
    uint32_t hold_ms;     /* Of the manager's lease; 0: FW_VOLUME_LEASE_HOLD_MS. */
    bool replace;
    /* If not 0, these many extents are there on the disk, and this is a part of it without them. */
    uint64_t data_offset;
    uint64_t extent_count;
};

/* ---- plain.c: the format of our own ---- */

/* Makes an empty group on the disk. */
FW_MUST_CHECK int fw_volume_plain_format(struct fw_disk *disk,
                                         const struct fw_volume_layout *layout,
                                         struct fw_reason *reason);

/* -ENOENT: there is no group; -EBADMSG: its head is damaged, or the disk is too small for it. */
FW_MUST_CHECK int fw_volume_plain_open(struct fw_volume_store **store, struct fw_disk *disk,
                                       struct fw_reason *reason);

/* How large a part without extents is, and where its rings begin; 0: that cannot be. */
uint64_t fw_volume_plain_front(const struct fw_volume_layout *layout, uint64_t *log_end);

/* Opens the group of our own or LVM's that is on the disk. As above. */
FW_MUST_CHECK int fw_volume_store_open(struct fw_volume_store **store, struct fw_disk *disk,
                                       struct fw_reason *reason);

/* One that nothing else has. */
FW_MUST_CHECK int fw_volume_uuid_draw(struct fw_volume_uuid *uuid, struct fw_reason *reason);

/* ---- view.c ---- */

static const uint32_t FW_VOLUME_ALL = UINT32_MAX - 1;

/*
 * Reads what is true now without being the manager: metadata, redo log and the up rings, of one
 * host, of FW_VOLUME_ALL, or of FW_VOLUME_NONE. The manager may be at work meanwhile: what is read
 * moves only from the rings to the log to the metadata, so it is read in that order, and again when
 * the metadata have been written meanwhile. -EAGAIN: that happened too often.
 */
FW_MUST_CHECK int fw_volume_view(struct fw_volume_store *store, uint32_t host,
                                 struct fw_volume_metadata *metadata, struct fw_reason *reason);
