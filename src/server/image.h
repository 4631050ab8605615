/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The image: all items of a server in a file, written at a clean stop and read at the next start,
 * so that a restart does not begin with an empty cache. It is a dump (cache/dump.h), with ages, CAS
 * numbers and times of access as well.
 *
 * What an image must never do is bring back what was changed since. So it is written when the last
 * client has gone, and noted as spent before the first comes (image_claim.h). The server that comes
 * after one that was killed starts empty. The file stays until a complete new one replaces it.
 * Where it cannot be noted its items are dropped again, for the same reason.
 *
 * A damaged image is refused as a whole. One could take what comes before the damage, since a cache
 * may lack any item; but who finds a damaged file cannot know that nothing else is wrong with it,
 * and half a cache that looks like a whole one is worse to find than none. It is read once, not
 * verified first: nobody is served yet, and the table is emptied if the end is not reached.
 *
 * Time goes on by the wall clock while the server is down: what expired meanwhile is left out. CAS
 * numbers go on where they ended, so that none is given twice. They go on only when all of the file
 * was read: what is refused leaves no trace in them. Once half of all numbers are given, the items
 * get new ones, and these begin at 1. That is safe here and nowhere else: no client is there, and
 * whatever CAS one remembers from before is too high to be given again for years. So a server whose
 * numbers are used up (cache/item.h) is helped by a restart.
 *
 * The work is done by the job kernel: one feeder (lane 1), which posts a unit (lane 2) for each
 * part of the table, or for each block of the file. Who calls waits for it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fairway/jobs.h>

#include "base/base.h"
#include "base/reason.h"
#include "cache/cache.h"

/* What was done. */
struct fw_image {
    uint64_t items;
    uint64_t bytes;       /* Of the file. */
    uint64_t expired;     /* load: left out. */
    uint64_t refused;     /* load: for which there was no memory, or which are too large by now. */
    bool has_new_numbers; /* load: items have another CAS than before. */
    int64_t took_ns;
};

/* Writes all items, while nobody uses the cache. 0, or a negative errno with the reason. */
FW_MUST_CHECK int fw_image_save(struct fw_jobs *jobs, struct fw_cache *cache, const char *path,
                                struct fw_image *image, struct fw_reason *reason);

/*
 * Reads all items into a cache that is empty and that nobody uses. Returns 0; -ENOENT: there is no
 * image; or another negative errno, with the reason, and then the cache is empty.
 */
FW_MUST_CHECK int fw_image_load(struct fw_jobs *jobs, struct fw_cache *cache, const char *path,
                                struct fw_image *image, struct fw_reason *reason);
