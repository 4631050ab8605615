/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of changes: which keys have changed, in the order in which they did, for who replicates.
 *
 * Whoever changes an item writes its key down here, inside the hold, so that changes of one key
 * stand in the order of the bucket's lock. Nothing else is written: not the value. A reader who
 * comes to a key looks it up, in a hold of its own, and tells its replica what is there *now*: the
 * item as it is, or that there is none. From that follows what replication rests on:
 *
 *     After a reader has gone past a change, what it told of that key is at least as new; and a
 *     change that came after it looked stands further on in the log, and is still to be read.
 *
 * So a replica that has been told everything up to the head is equal, and one that has been told up
 * to a position has everything that was changed before it, or what came later.
 *
 * Why not values, as in a log of commands: a megabyte would have to be copied under a bucket's
 * lock, or be kept alive for a slow reader; and the same memory would remember a twentieth of the
 * changes. What is lost: a replica cut off in the middle may have a newer value of one key beside
 * an older one of another, which no moment of the master had. For a cache that is no promise;
 * docs/departures.md tells it.
 *
 * The log is a ring of bytes, made when it is first wanted. Writers never wait for readers: the
 * oldest changes are forgotten, and a reader that was too slow is told so (-EOVERFLOW) and has to
 * copy all. That is the bound: the ring's size, whatever readers do. A position is the count of
 * bytes ever written, so it tells how far behind somebody is, and who comes back with one can go on
 * from there if it is still in the ring. Positions mean something within one *history*, a random
 * number; where changes were not written down for a while, there is a new one.
 *
 *     OFF --fw_changes_enter()--> ON --no reader is left, and the ring has gone round--> OFF
 *
 * While it is off a change costs one branch. It goes off by itself, in append(), once nobody could
 * go on from where the last reader left.
 *
 * Threads: any. One lock, FW_RANK_CHANGES, a leaf that is taken inside holds, for as long as it
 * takes to copy a key, or for readers FW_CHANGES_BATCH bytes. A ring per locality would need none,
 * but then a position would be a list of them; one lock for a few dozen nanoseconds per write is no
 * limit as long as a write takes a microsecond elsewhere.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/mutex.h"
#include "cache/item.h"

enum {
    FW_CHANGES_BATCH = 4096, /* The most that is read at once. */
    FW_CHANGES_SIZE_MIN = 64 * 1024,
};
#define FW_CHANGES_SIZE_MAX (UINT64_C(1) << 36)

/* fw_changes.wants */
enum {
    FW_CHANGES_ON = 1,
    FW_CHANGES_RECLAIMED = 2, /* Also what expired or was flushed, as it is found. */
    FW_CHANGES_EXPIRED = 4,   /* Also what expired, as it is found. */
};

enum fw_change_kind {
    FW_CHANGE_KEY = 1, /* Written or removed: look. */
    FW_CHANGE_TOUCH,   /* Only its expiry time or its bits, and only if it still has the number. */
    FW_CHANGE_FLUSH,   /* All items with a lower number are gone. */
    FW_CHANGE_LATER,   /* A flush was put off, or is to come no more: look. */
    /* Evicted, from PROBATION or from MAIN, with this number: what has a higher one came later. */
    FW_CHANGE_EVICTED,
    FW_CHANGE_EVICTED_MAIN,
};

/* One change, as read. The key lies in the reader's buffer. */
struct fw_change {
    enum fw_change_kind kind;
    uint8_t key_length; /* 0: FLUSH, LATER. */
    uint64_t number;
    const char *key;
    const char *begin; /* The change itself ends with its key. */
};

static inline bool fw_change_is_eviction(const struct fw_change *change)
{
    return change->kind == FW_CHANGE_EVICTED || change->kind == FW_CHANGE_EVICTED_MAIN;
}

struct fw_changes {
    _Atomic uint32_t wants; /* Written under the lock. Writers look at it inside a hold. */
    _Atomic uint64_t head;  /* Where the next change goes. Written under the lock. */
    struct fw_mutex lock;   /* FW_RANK_CHANGES; guards what follows. */
    char *ring;             /* NULL: never wanted. */
    uint64_t size;          /* A power of two. */
    uint64_t tail;          /* The oldest change that is still there. */
    uint64_t left;          /* Where the last reader left. */
    uint64_t history;       /* Never 0 while it is on. */
    uint32_t reader_count;
    uint32_t reclaim_count; /* Of them, those who want FW_CHANGES_RECLAIMED. */
    bool has_expired;       /* One of this history wanted FW_CHANGES_EXPIRED, and may come back. */
};

void fw_changes_init(struct fw_changes *changes);
void fw_changes_fini(struct fw_changes *changes); /* No reader is left. */

/* Does anybody want to know? Relaxed: in a hold the bucket's lock orders it; see enter(). */
static inline bool fw_changes_wants(const struct fw_changes *changes, uint32_t what)
{
    return FW_UNLIKELY((atomic_load_explicit(&changes->wants, memory_order_relaxed) & what) != 0);
}

/* Writes a change down. In the hold of its key, or, for FLUSH and LATER, after it. */
void fw_changes_append(struct fw_changes *changes, enum fw_change_kind kind, uint64_t number,
                       const char *key, uint8_t key_length);

/*
 * A reader begins. `history` and `position` are what it had before (0, 0: nothing). True: it can go
 * on from there. False: it has to copy everything, and then to read from *position, which is set to
 * the head. *history is set in any case. Every change that begins after the return is written down;
 * one whose hold has begun before is either written down or seen by who then holds its bucket.
 * `wants`: 0, RECLAIMED or EXPIRED; leave() gets the same.
 */
FW_MUST_CHECK int fw_changes_enter(struct fw_changes *changes, uint64_t size, uint32_t wants,
                                   uint64_t *history, uint64_t *position, bool *can_go_on);
void fw_changes_leave(struct fw_changes *changes, uint32_t wanted, uint64_t position);

/*
 * Copies whole changes from *position on to the buffer and moves *position behind them. Returns how
 * many bytes, 0 at the head, or -EOVERFLOW: what stood there was forgotten.
 */
FW_MUST_CHECK int fw_changes_read(struct fw_changes *changes, uint64_t *position,
                                  char buffer[static FW_CHANGES_BATCH]);

/* Forgets everything: what readers there are have lost what they had not read. */
void fw_changes_forget(struct fw_changes *changes);

/* Which history it is in (0: none), and where that ends: two that belong together. */
void fw_changes_look(struct fw_changes *changes, uint64_t *history, uint64_t *head);

/* Has what stood at the position been forgotten? */
bool fw_changes_has_lost(struct fw_changes *changes, uint64_t position);

static inline uint64_t fw_changes_head(const struct fw_changes *changes)
{
    /* Acquire, for the release in append(); who must not miss one has a fence before. */
    return atomic_load_explicit(&changes->head, memory_order_acquire);
}

/* Takes one change off what was read, which is not empty. False: it is damaged. */
FW_MUST_CHECK bool fw_change_next(const char **bytes, const char *end, struct fw_change *change);
