/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A volume as device-mapper's table: where it has extents, these, on the disk itself; where it has
 * none, the same place of an NBD device behind which the host's agent is.
 *
 *     0 2048 linear /dev/sdx 8192        placed: the kernel reads and writes without us
 *     2048 6144 linear /dev/nbd0 2048    holes: reads are zeros, the first write places an extent
 *
 * So the kernel needs nobody for what is placed, and waits for the agent where something has to be
 * decided. The agent serves the whole volume, placed parts too: a table that is behind is slower,
 * and never wrong. Hence it is always made whole, from what is true on the disk, and may be loaded
 * at any time and as often as one likes.
 *
 * It would be wrong, if an extent were given back while a table has it. So nobody does that to a
 * volume that is attached in this way: the kernel is not told that the NBD device can discard
 * (io/nbd.h).
 *
 * Rejected: holes of target `error`, for then a write fails before somebody can place an extent and
 * a file system is broken by it; `zero`, which loses the write; a device that is suspended, which
 * holds it but tells nobody where it wants to go; dm-thin, which has metadata of its own that two
 * hosts cannot share.
 */
#pragma once

#include "volume/store.h"

struct fw_volume_table {
    char *text; /* From the heap. */
    size_t length;
    size_t room;
};

/* -ENOENT: there is no such volume; -ENOMEM. The names of devices as dmsetup knows them. */
FW_MUST_CHECK int fw_volume_table_make(struct fw_volume_table *table,
                                       const struct fw_volume_metadata *metadata,
                                       const struct fw_volume_geometry *geometry,
                                       const char *volume, const char *const devices[2]);
void fw_volume_table_fini(struct fw_volume_table *table);
