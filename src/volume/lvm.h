/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group inside of a volume group of LVM's, such that LVM's own tools agree.
 *
 * Adopting takes one run of free extents of a volume group, and from then on it belongs to logical
 * volumes that have the tag "fairway":
 *
 *     fairway_meta │ fairway_log │ fairway_rings │ our extents
 *     └──────────── the plain format ───────────┘ │
 *                                                 └ fairway_free, fairway_pool_HOST,
 *                                                   fairway_aside, and each volume by its name
 *
 * What owns our extents is in our own metadata, redo log and rings, as in a group of our own. A
 * flush writes it into LVM's metadata, too. Between two flushes LVM's picture is old, but only
 * about which of *our* logical volumes an extent is in: the union of them never changes. So an
 * administrator may make, extend and remove other logical volumes at any time, and neither side can
 * take an extent from the other.
 *
 * A volume's holes are segments of type "zero". Reading them by LVM alone gives zeros; writing does
 * nothing. So LVM alone is for looking and copying, and for volumes without holes (docs).
 *
 * How LVM's metadata are changed: under LVM's own lock of the volume group, read from the device
 * and parsed by libdevmapper, our logical volumes replaced in the tree, and given to vgcfgrestore,
 * after the seqno was compared again. All that is not ours stays as it was found. What LVM would
 * not accept it refuses, and nothing has changed.
 *
 * Why not lvcreate and lvextend: a flush would be hundreds of them, and no step in between is one
 * that should be seen. Why not write the metadata area ourselves: LVM's checks, its checksums and
 * its second copy come with vgcfgrestore.
 *
 * Limits: a volume group on one device; its metadata area must hold all segments, some 200 bytes
 * each (vgcreate --metadatasize). Administrators on other hosts need what LVM needs for that:
 * lvmlockd, or the rule to do it on the manager's host.
 */
#pragma once

#include "volume/metadata.h"
#include "volume/store.h"

enum { FW_VOLUME_LVM_NAME_MAX = 127 };

struct fw_volume_lvm {
    char group[FW_VOLUME_LVM_NAME_MAX + 1];
    char device[FW_VOLUME_LVM_NAME_MAX + 1]; /* As the metadata call it: "pv0". */
    uint64_t seqno;
    uint64_t extent_size; /* Bytes, as all that follows. */
    uint64_t first;       /* Where extent 0 is. */
    uint64_t extent_count;
    uint64_t meta_offset; /* Our front, on the device. */
    uint64_t meta_size;
};

/* Looks for a group in a volume group. -ENOENT: there is none; the reason says which of the two. */
FW_MUST_CHECK int fw_volume_lvm_find(struct fw_disk *disk, struct fw_volume_lvm *lvm,
                                     struct fw_reason *reason);

struct fw_volume_lvm_adopt {
    const char *path;   /* The device. */
    const char *backup; /* Where LVM's metadata are kept as they were; NULL: in LVM's archive. */
    uint64_t extents;   /* How many to take; 0: the largest run of free ones. */
    uint32_t hosts_max;
    uint64_t ring_size;
    uint32_t hold_ms; /* Of the manager's lease; 0: 8 s. */
};

/* Takes free extents of the device's volume group and makes an empty group of them. Blocks. */
FW_MUST_CHECK int fw_volume_lvm_adopt(const struct fw_volume_lvm_adopt *adopt,
                                      struct fw_reason *reason);

/* Makes LVM's metadata say what ours say. -EAGAIN: they changed although we had the lock. */
FW_MUST_CHECK int fw_volume_lvm_publish(const char *path, struct fw_volume_store *store,
                                        const struct fw_volume_metadata *metadata,
                                        struct fw_reason *reason);
