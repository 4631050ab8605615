/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of a disk as a disk of its own, so that a ring or a table lives at a place on a large
 * device as it would on a small one. Offsets count from the part's beginning, and nothing outside
 * of it can be reached.
 *
 * The disk below stays the caller's and must outlive its parts. Part and disk belong to one caller
 * at a time together, as one disk does; polling a part polls the disk, and what of that is another
 * part's waits there for its own poll. A flush flushes all of the disk.
 *
 * A part may have a guard, which is asked before each write and discard: what it does not let
 * through has its answer for a result, and never gets to the disk.
 */
#pragma once

#include "io/disk.h"

/*
 * Makes the part of `under` that begins at `offset`; fw_disk_close() ends it. Returns 0, -ENOMEM,
 * or -EINVAL if the part is empty, beyond the end of the disk or not of whole sectors.
 */
FW_MUST_CHECK int fw_disk_part_open(struct fw_disk **part, struct fw_disk *under, uint64_t offset,
                                    uint64_t size, struct fw_reason *reason);

/* `may_write` returns 0 or a negative errno. Parts of the part are guarded too. */
void fw_disk_part_guard(struct fw_disk *part, int (*may_write)(void *context), void *context);
