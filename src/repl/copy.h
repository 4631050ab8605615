/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy of a whole table, as far as a job is needed for it: it goes round the buckets and
 * collects keys, a chunk at a time, for a link to tell its slave of.
 *
 * Keys only: what is said of them is what they are when the link comes to them, as with changes. So
 * the two need no agreement about who has said what, and the job holds each bucket only for as long
 * as it takes to copy some keys.
 *
 *     FILLING ──the job: a chunk is full──► FILLED ──the link: has used it──► FILLING
 *        └──────the job: it has come round────────► LAST ──the link: has used it──► none is left
 *
 * A chunk belongs to the job in FILLING, else to the link. The job sleeps in between, in lane 1 of
 * the kernel; how many copies go on at once is so limited by the lane.
 *
 * Threads: the link's turn, but for the job itself. The link waits for fw_repl_copy_has_ended()
 * before it destroys the copy.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/engine.h>
#include <fairway/jobs.h>

#include "base/base.h"
#include "base/thread.h"
#include "cache/cache.h"

enum fw_repl_copy_state { FW_REPL_COPY_FILLING, FW_REPL_COPY_FILLED, FW_REPL_COPY_LAST };

struct fw_repl_copy {
    struct fw_job job;
    struct fw_jobs *jobs;
    struct fw_cache_local *local;
    struct fw_ticket ticket; /* Of the link: woken when there is something for it. */
    struct fw_parker parker; /* The job's. */
    _Atomic uint32_t state;  /* enum fw_repl_copy_state */
    atomic_bool must_end;
    atomic_bool has_ended;
    uint64_t cursor;
    uint32_t used; /* Bytes of the chunk. */
    uint32_t next; /* The link's: how many of them it has used. */
    uint32_t size;
    bool is_full; /* A key found no room. */
    char *chunk;  /* A byte of length before each key. */
};

/* Starts one. Returns 0 or a negative errno: -EBUSY, too many copies are under way. */
FW_MUST_CHECK int fw_repl_copy_create(struct fw_repl_copy **copy, struct fw_cache *cache,
                                      struct fw_jobs *jobs, struct fw_ticket ticket);

/* The next key, lent until the next call; NULL: none now, and *is_over says whether ever. */
const char *fw_repl_copy_next(struct fw_repl_copy *copy, uint8_t *length, bool *is_over);

/* Tells the job to end, and looks whether it has; the ticket is woken when it does. */
bool fw_repl_copy_end(struct fw_repl_copy *copy);
void fw_repl_copy_destroy(struct fw_repl_copy *copy);
