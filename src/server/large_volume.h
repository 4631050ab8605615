/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A volume of a group (<fairway/volume.h>) as the place of large values: `--large-volume
 * NAME@GROUP`. Opening does all that people would have to type: it connects this host, makes the
 * volume if there is none, is the host's agent, and opens the volume. Closing gives its extents
 * back, for nothing in it outlives the server.
 *
 * A manager has to run somewhere, as for every volume: without one, writes wait once the extents
 * are used up that the host had in advance.
 *
 * Threads: open() and close() belong to the server; in between all may transfer.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"
#include "io/disk.h"
#include "volume/thin.h"

struct fw_large_volume {
    struct fw_volume_thin_host *host;
    struct fw_volume_thin *thin; /* NULL: it is not open. */
};

/* Whether it names a volume of a group, and not a device or file. */
bool fw_large_volume_is_named(const char *text);

/* A new volume has room for `size` bytes. Blocks. */
FW_MUST_CHECK int fw_large_volume_open(struct fw_large_volume *volume, const char *text,
                                       uint64_t size, struct fw_reason *reason);

/* Nobody waits for an extent any more, now or later. */
void fw_large_volume_stop(struct fw_large_volume *volume);

/* No transfer is under way. Nothing, if it is not open. */
void fw_large_volume_close(struct fw_large_volume *volume);

/* A read or a write. Blocks. */
FW_MUST_CHECK int fw_large_volume_move(struct fw_large_volume *volume, const struct fw_disk_op *op,
                                       struct fw_reason *reason);
