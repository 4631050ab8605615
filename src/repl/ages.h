/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How popular items are, for slaves: so that one that becomes master evicts as the old one would
 * have.
 *
 * What eviction goes by (cache/clean.c) comes to a slave in three ways. Which queue an item is in,
 * and which keys were dropped, follows from the evictions that it is told of: it forgets the same
 * items, and so its segments become hollow, and its ghosts are made, in the same order. An item
 * that is sent has its age and whether it was read with it. What is left is what clients read
 * afterwards, and that is harvested here.
 *
 * A link goes round the table, some buckets at a time, and tells the keys that were read since the
 * round before. The slave makes their age 0. Beside them it is told how many buckets had their ages
 * raised at the master meanwhile, as a share of all, and raises them in as many of its own; but
 * never in more than the harvest has gone on by. So where the master's queue comes round faster
 * than the harvest does, an item that is read all the time is at most one step older at the slave,
 * not three, and is not taken for one that nobody reads.
 *
 * Bounds. A round takes ROUND_NS at least, and each step looks at so many buckets that this costs
 * about one part in a hundred of a core. What is told is at most SHARE of what the link sends, or
 * BYTES_PER_S if that is more. Both make rounds longer, nothing else: what was read is told later.
 * A key is some 30 bytes. Why not a hash, which would be 5: a slave has another seed, on purpose,
 * and could not find the item by it.
 *
 * Why not in the log of changes: reads are many, and would push out of it what slaves that come
 * back have missed. What is lost with a link is only told once more.
 *
 * Threads: of the harvest the link's turn, of the ageing the follower's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "cache/cache.h"
#include "repl/stream.h"

enum { FW_REPL_HARVEST_BYTES = 8000 };

/* A master's, for one slave. */
struct fw_repl_harvest {
    int64_t due_ns; /* Of the next step. */
    uint64_t cursor;
    uint32_t left;         /* Buckets of the step that are still to be looked at. */
    uint32_t round_now;    /* When this round began, by the cache's clock, */
    uint32_t since;        /* and what was read from then on is told. */
    uint64_t aged;         /* By fw_table_aged(): what the slave knows of. */
    uint64_t sent_before;  /* By the link, when the step began. */
    uint64_t buckets_done; /* Since the slave was told of ages. */
    int64_t bytes_left;    /* That may be told now. */
    uint32_t used;
    char keys[FW_REPL_HARVEST_BYTES];
};

/* `is_known`: what was read before now comes with the copy. */
void fw_repl_harvest_begin(struct fw_repl_harvest *harvest, const struct fw_cache_local *local,
                           int64_t now_ns, bool is_known);

/*
 * Goes on, if a step is due; `sent` is what the link has sent so far. The reply has room for
 * FW_REPLY_ROOM_MIN bytes. True: the step is not over, and the rest of it wants another call soon.
 */
bool fw_repl_harvest_go_on(struct fw_repl_harvest *harvest, struct fw_cache_local *local,
                           struct fw_reply *reply, int64_t now_ns, uint64_t sent);

/* A slave's. */
struct fw_repl_ageing {
    uint64_t cursor;
    uint64_t rest; /* Parts of a bucket, of FW_REPL_AGE_ALL, that are still due. */
};

/* A Read has come. 0, or -EPROTO: it makes no sense. */
FW_MUST_CHECK int fw_repl_ageing_apply(struct fw_repl_ageing *ageing, struct fw_cache_local *local,
                                       const struct fw_repl_message *message);
