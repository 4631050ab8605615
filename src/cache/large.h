/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large values: those that lie in a file and not in memory. Here is what is kept about them; the
 * file itself is read and written by the server (server/large.h), since nothing here does I/O.
 *
 * The file is cut into *pieces* of one size. A value has as many as it needs, anywhere, so there is
 * nothing to be fragmented; at most one of them is partly unused, which is a fifth of the value or
 * less, for a piece is a quarter of the shortest value that comes here. Pieces that were given back
 * are used before the file grows.
 *
 * To the rest of the cache such a value is a body (item.h) whose `bytes` are not the value but say
 * where it is: struct fw_stored. So items, expiry, flushing, CAS and references work as for every
 * body, and who would touch the bytes of one asks is_stored first. A reader holds a reference, and
 * pieces are free only when the last is gone: what is on its way to a slow client is never written
 * over.
 *
 *     begun ──► window by window: pieces taken, written ──► attached to an item ──► let go of
 *        └── refused: the pieces go back                        (eviction, too)
 *
 * A *window* is the memory through which a value moves between its client and the file: a few
 * pieces at the most, counted against the table's limit. All windows together take an eighth of it;
 * beyond that each is small, so that a thousand clients cost no more than their buffers would.
 *
 * A value takes pieces when it is about to be written, and its first window is small and grows, so
 * that other values go for bytes that have come, and never for a length that a client only states.
 *
 * When the space is used up the oldest values go, except those that were read since they were last
 * looked at: they go to the end of the list once (the age of item.h says so, as it does in memory).
 * Looking for them in the table's own order would drop thousands of small items for each.
 *
 * Threads: any. One lock, FW_RANK_LARGE, a leaf, taken also inside holds, for the length of a copy
 * of the pieces' numbers.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "base/list.h"
#include "base/mutex.h"
#include "cache/item.h"

struct fw_table_local;

enum {
    FW_LARGE_UNIT = 4096, /* Offsets and lengths of transfers are multiples of it. */
    FW_LARGE_VALUE_MIN = 16 * 1024,
    FW_LARGE_PIECE_MIN = 4096,
    FW_LARGE_PIECE_MAX = 128 * 1024,
    FW_LARGE_WINDOW_PIECES = 4,
    FW_LARGE_WINDOW_MIN = 16 * 1024, /* The first of a value, and when the share is used up. */
    FW_LARGE_WINDOW_SHARE = 8,       /* Of the table's memory, one part in so many. */
    FW_LARGE_GROWTH = 4,             /* By so much a window or a list of pieces grows. */
};

/* What the bytes of a body say of a value in the file. */
struct fw_stored {
    struct fw_list_link link; /* In the list of those that items have. */
    bool is_listed;
    uint8_t key_length;
    char key[FW_ITEM_KEY_MAX];
    uint32_t piece_count;
    uint32_t pieces[];
};

struct fw_large {
    /* Constant once made. */
    uint32_t value_min; /* Longer values come here. */
    uint32_t piece_size;
    uint32_t piece_max; /* How many the file may have. */

    _Atomic uint64_t window_bytes;
    struct fw_mutex lock;       /* FW_RANK_LARGE; guards what follows. */
    uint32_t fresh;             /* Pieces from here on were never used. */
    uint32_t free_count;        /* Others that nobody has: */
    uint32_t *free;             /* a stack of them. */
    struct fw_list stored;      /* The oldest first. */
    _Atomic uint32_t used;      /* Pieces; written under the lock. */
    _Atomic uint32_t values;    /* Likewise: how many there are, with those on their way. */
    _Atomic uint64_t evictions; /* To make room. */
    _Atomic uint64_t no_space;  /* Values refused for want of room. */
};

/* `space` bytes of a file for values longer than `value_min`. 0, -EINVAL or -ENOMEM. */
FW_MUST_CHECK int fw_large_init(struct fw_large *large, uint64_t value_min, uint64_t space);
void fw_large_fini(struct fw_large *large); /* The table is gone, and all values with it. */

static inline struct fw_stored *fw_stored_of(struct fw_body *body)
{
    FW_ASSERT(body->is_stored);
    return (struct fw_stored *)(void *)body->bytes;
}

/* What came of it. */
enum fw_large_answer { FW_LARGE_DONE, FW_LARGE_NO_MEMORY, FW_LARGE_NO_SPACE };

/* Is the file large enough for such a value, if all others were dropped? Counts it if not. */
bool fw_large_fits(struct fw_large *large, uint32_t length);

/*
 * Takes pieces for the first `upto` bytes of a value of `length`, beyond those that it has; other
 * values may be dropped for them. `*body` is NULL at first. It is replaced by a larger one now and
 * then, and stays the caller's, with the pieces that it has, also if the answer is not DONE.
 */
FW_MUST_CHECK enum fw_large_answer fw_large_extend(struct fw_table_local *local, uint32_t length,
                                                   uint32_t upto, struct fw_body **body);

/* A body for a value of `length`, with one reference and all its pieces. */
FW_MUST_CHECK enum fw_large_answer fw_large_create(struct fw_table_local *local, uint32_t length,
                                                   struct fw_body **body);

/*
 * The disk is full although the space is not: lets go of the body, whose pieces have nothing behind
 * them, and then drops values until as many have come back that do have. They are used first.
 */
void fw_large_disk_full(struct fw_table_local *local, struct fw_body *body);

/* For the table: an item of that key has the body now; in its hold. The body has no owner left. */
void fw_large_enlist(struct fw_large *large, struct fw_body *body, const struct fw_key *key);
void fw_large_forget(struct fw_large *large, struct fw_body *body);

/* Where in the file the byte `offset` of the value is. */
static inline uint64_t fw_large_place(const struct fw_large *large, const struct fw_stored *stored,
                                      uint32_t offset)
{
    uint32_t piece = offset / large->piece_size;
    FW_ASSERT(piece < stored->piece_count);
    return (uint64_t)stored->pieces[piece] * large->piece_size + offset % large->piece_size;
}

/* ---- windows ------------------------------------------------------------------------------- */

struct fw_window {
    struct fw_body *body; /* The memory, or NULL: there is none. */
    char *bytes;          /* Of it, aligned as disks want it. */
    uint32_t size;
    uint32_t begin; /* Where in the value the first byte of the window belongs. */
};

/* For a value of which `rest` bytes are to come. False: no memory. */
FW_MUST_CHECK bool fw_window_open(struct fw_window *window, struct fw_table_local *local,
                                  uint32_t rest);

/*
 * Makes a window larger, or opens the first, which is small: `rest` bytes of the value are from its
 * begin on. False: it stays as it is, because it is large enough or there is no memory.
 */
FW_MUST_CHECK bool fw_window_grow(struct fw_window *window, struct fw_table_local *local,
                                  uint32_t rest);
void fw_window_close(struct fw_window *window, struct fw_table_local *local);
