/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk over the table for who copies it into buffers: dumps, images.
 *
 * A bucket is copied whole, under its lock, since between two looks its items change places. Where
 * that finds no room the copy of this bucket is thrown away and made again once there is:
 *
 *     while (!walk.is_done) {
 *         mark = where the buffer ends;
 *         if (fw_walk_bucket(&walk, local, take, buffer)) { continue; }
 *         cut the buffer back to mark;
 *         if (mark > 0) { empty the buffer; continue; }
 *         ... not even an empty buffer has room for this bucket: fw_walk_item(), until it is over
 *     }
 *
 * Item by item goes in the order of the table's cursor, which neither splits nor merges change. In
 * both ways every item that is there during the whole walk is taken at least once, and more than
 * once only if buckets were merged meanwhile.
 *
 * The table is walked in 1, 2, 4, 8 or 16 parts, by as many threads: no bucket is ever in two of
 * them, for there are never fewer than 16.
 *
 * Threads: those of the local.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "cache/table.h"

enum { FW_WALK_PARTS_MAX = 16 };

struct fw_walk {
    uint64_t cursor;
    uint64_t last; /* The last place of the part. */
    bool is_done;
};

/* Copies the item, which is lent for the call, under its bucket's lock. False: there is no room. */
typedef bool fw_walk_take(struct fw_item *item, void *context);

/* Can a walk have so many parts? */
static inline bool fw_walk_has_parts(uint32_t parts)
{
    return parts > 0 && parts <= FW_WALK_PARTS_MAX && (parts & (parts - 1)) == 0;
}

/* Begins part `part`, from 0 on, of `parts`. */
void fw_walk_init(struct fw_walk *walk, uint32_t part, uint32_t parts);

/* Takes the items of the next bucket and moves on; or, one was refused, does not move: false. */
FW_MUST_CHECK bool fw_walk_bucket(struct fw_walk *walk, struct fw_table_local *local,
                                  fw_walk_take *take, void *context);

enum fw_walk_item {
    FW_WALK_TAKEN,
    FW_WALK_REFUSED, /* And the walk has not moved. */
    FW_WALK_OVER,    /* There was none left in this bucket, and the walk is at the next. */
};
FW_MUST_CHECK enum fw_walk_item fw_walk_item(struct fw_walk *walk, struct fw_table_local *local,
                                             fw_walk_take *take, void *context);
