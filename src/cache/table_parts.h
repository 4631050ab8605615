/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What table.h keeps to itself: the table and a local, for table.c, clean.c and sweep.c.
 *
 *     table.c   making, holding, writing; memory for the next hold
 *     clean.c   cleaning of segments, which is eviction
 *     sweep.c   going round the buckets: sweep, visit, flush
 *
 * Below them, each knowing nothing of the others but the budget: bucket.h (from hash to place),
 * arena.h (segments of records), bodies.h (large values), ghost.h (who was dropped), share.h (how
 * much is for what came in).
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/mutex.h"
#include "cache/arena.h"
#include "cache/bodies.h"
#include "cache/bucket.h"
#include "cache/budget.h"
#include "cache/changes.h"
#include "cache/ghost.h"
#include "cache/large.h"
#include "cache/share.h"
#include "cache/table.h"

enum {
    FW_LOCAL_DUE = 16,      /* After so many changes a local looks after the table. */
    FW_LOCAL_STASH = 4,     /* Overflow buckets that a local keeps at hand. */
    FW_DEAD_BODIES_MAX = 8, /* That can die in one hold. */
};

struct fw_table {
    /* Constant once made. */
    uint64_t seed;
    bool is_evicting;
    bool erases;
    uint64_t memory_max;    /* What addresses were reserved for. */
    struct fw_large *large; /* The caller's, or NULL. */
    struct fw_ghosts ghosts;
    struct fw_changes changes; /* Beside what is constant: what writers look at hardly changes. */
    atomic_bool is_used_up;    /* The numbers are. */
    atomic_bool keeps_expired; /* It is a replica's: what expires stays until the master says so. */
    atomic_bool keeps_items;   /* And so does everything else: cleaning only compacts. */

    struct fw_buckets buckets;
    struct fw_arena arena;
    struct fw_bodies bodies;
    struct fw_budget budget;
    struct fw_share share;
    _Atomic uint64_t aged; /* Buckets whose ages were raised, ever. Relaxed: a figure. */

    alignas(FW_CACHE_LINE) _Atomic uint64_t flushed; /* Items with a lower number are gone. */
    alignas(FW_CACHE_LINE) _Atomic uint64_t next;    /* The next number. */
    _Atomic int64_t items; /* As far as locals have told; for the size of the table. */

    struct fw_mutex lock; /* FW_RANK_TABLE_LOCALS. Guards the list and what is retired. */
    struct fw_list locals;
    _Atomic uint32_t local_count; /* Written under the lock, a hint to others. */
    struct fw_table_counts retired;
};

/* Where a local writes records of one queue. All NULL: no segment is open. */
struct fw_log {
    struct fw_segment *segment;
    char *next;
    char *end;
    uint64_t bodies; /* Bytes of the bodies that its records refer to, at most `bodies_max`. */
};

struct fw_cleaning {
    struct fw_segment *segment; /* NULL: none is being cleaned. */
    char *next;                 /* The next record to look at. */
    uint32_t survived;          /* Bytes that were moved. */
    bool is_compacting;         /* Nothing alive is dropped. */
    uint32_t barren;            /* Of the main queue: segments in a row that gave little. */
    uint64_t size_mean;         /* Of items that were looked at, times MEAN_OF (clean.c). */
    uint32_t passed;            /* Records of the main queue since ages were raised. */
    uint64_t age_cursor;        /* Where raising the ages goes on. */
};

struct fw_table_local {
    struct fw_table *table;
    struct fw_log logs[FW_QUEUES];
    uint32_t now;
    int32_t changes;   /* Items that came, less those that went, that the table was not told of. */
    uint32_t due;      /* Records written and items removed since fw_local_tend(). */
    uint64_t noted;    /* See fw_table_local_noted(). */
    bool sees_expired; /* See fw_table_local_see_expired(). */
    struct fw_bucket_stash stash;
    uint32_t dead_count;
    struct fw_body *dead[FW_DEAD_BODIES_MAX]; /* Let go of once the hold is released. */
    struct fw_cleaning cleaning;
    uint64_t bodies_max;  /* Then a log is sealed, or too much would be where nobody can drop it. */
    struct fw_mutex held; /* Stands for the lock of a bucket in the lock order. */
    struct fw_list_link link; /* In table->locals. */
    alignas(FW_CACHE_LINE) struct fw_table_counts counts;
};

/* Relaxed, both: only the local's owner writes. */
static inline void fw_local_count(_Atomic uint64_t *counter, uint64_t amount)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount,
                          memory_order_relaxed);
}

static inline void fw_local_gauge(_Atomic int64_t *gauge, int64_t amount)
{
    atomic_store_explicit(gauge, atomic_load_explicit(gauge, memory_order_relaxed) + amount,
                          memory_order_relaxed);
}

/* `number` is one of the last: notes that, and returns it, or the last one if it is beyond. */
uint64_t fw_table_note_used_up(struct fw_table *table, uint64_t number);

/*
 * A number that nothing has yet. One sequence for all locals, and so one atomic step per write that
 * they share: clients compare numbers of the same key, also across its removal, to learn which is
 * newer, so batches per local would not do.
 */
static inline uint64_t fw_table_next(struct fw_table *table)
{
    /* Relaxed: each is given once, and who is told of one draws a higher one. */
    uint64_t number = atomic_fetch_add_explicit(&table->next, 1, memory_order_relaxed);
    return FW_LIKELY(number < FW_ITEM_NUMBER_END - FW_ITEM_NUMBERS_KEPT)
               ? number
               : fw_table_note_used_up(table, number);
}

/* For who replicates: this item was written, or is removed. In its hold. */
static inline void fw_local_note(struct fw_table_local *local, const struct fw_item *item)
{
    struct fw_changes *changes = &local->table->changes;
    local->noted++;
    if (fw_changes_wants(changes, FW_CHANGES_ON)) {
        fw_changes_append(changes, FW_CHANGE_KEY, 0, item->key, item->key_length);
    }
}

static inline struct fw_item *fw_local_item(const struct fw_table_local *local, uint64_t entry)
{
    return fw_arena_item(&local->table->arena, fw_buckets_place(&local->table->buckets, entry));
}

/* All buckets are locked and let go of by these. */
struct fw_bucket *fw_local_lock(struct fw_table_local *local, uint64_t hash);
void fw_local_unlock(struct fw_table_local *local, struct fw_bucket *bucket);

static inline bool fw_table_has_flushed(const struct fw_table *table, const struct fw_item *item)
{
    /* Relaxed: the number stands alone, and who sees it late was a moment earlier. */
    return fw_item_number(item) < atomic_load_explicit(&table->flushed, memory_order_relaxed);
}

/* Why an item is as good as absent, or FW_ABSENT if it is not. Under the bucket's lock. */
static inline enum fw_absence fw_local_absence(const struct fw_table_local *local,
                                               const struct fw_item *item)
{
    /* What a client has locked does not expire before it is unlocked. */
    uint32_t expires = fw_item_expires(item);
    if (expires != 0 && expires <= local->now && (item->bits & FW_ITEM_LOCKED) == 0 &&
        !local->sees_expired) {
        return FW_ABSENT_EXPIRED;
    }
    return FW_UNLIKELY(fw_table_has_flushed(local->table, item)) ? FW_ABSENT_FLUSHED : FW_ABSENT;
}

/* May what is absent for this reason be taken out? */
static inline bool fw_local_may_reclaim(const struct fw_table_local *local, enum fw_absence absence)
{
    /* Relaxed: who sees it late takes out, or keeps, one more item that nobody is shown. */
    return absence == FW_ABSENT_FLUSHED ||
           (absence == FW_ABSENT_EXPIRED &&
            !atomic_load_explicit(&local->table->keeps_expired, memory_order_relaxed));
}

/* May items be dropped that are alive? Relaxed: as above. */
static inline bool fw_table_evicts(const struct fw_table *table)
{
    return table->is_evicting && !atomic_load_explicit(&table->keeps_items, memory_order_relaxed);
}

/* Counts a record as gone, and its body, and erases it. The entry is the caller's business. */
void fw_local_bury(struct fw_table_local *local, struct fw_item *item);

/* Takes an item that has expired or was flushed out of its bucket, and counts it. */
void fw_local_reclaim(struct fw_table_local *local, struct fw_bucket *bucket, struct fw_slot *slot);

/* Room for `size` bytes in that log, in a new segment if need be. False: there is none. */
bool fw_local_log_open(struct fw_table_local *local, enum fw_queue queue, size_t size,
                       bool is_cleaner);

/* The next `size` bytes of the log, which has them. */
static inline struct fw_item *fw_log_take(struct fw_log *log, size_t size)
{
    FW_ASSERT(size <= (size_t)(log->end - log->next));
    struct fw_item *item = (struct fw_item *)(void *)log->next;
    log->next += size;
    return item;
}

/*
 * Cleans: looks at `record_count` records at the most, about, and stops earlier when a segment has
 * become free or a body was dropped. False: there is nothing to clean, or it cannot be moved.
 * `is_urgent`: where nothing may be dropped, also segments are compacted that give little memory.
 */
bool fw_local_clean(struct fw_table_local *local, uint32_t record_count, bool is_urgent);

/* How many items the table has, about. */
static inline uint64_t fw_table_items(const struct fw_table *table)
{
    /* Relaxed: it is told of by locals now and then. Negative only before the first of them did. */
    int64_t items = atomic_load_explicit(&table->items, memory_order_relaxed);
    return items > 1 ? (uint64_t)items : 1;
}

/*
 * What has to be done now and then, in a step of some ten microseconds: tells the table of items
 * that came and went, splits or merges buckets if it is time to, and cleans a part of a segment if
 * memory is short. So memory is there when it is needed, and nobody waits for more than such steps.
 */
void fw_local_tend(struct fw_table_local *local);

/* A body of any length, for which memory is made if need be; NULL: there is none. */
struct fw_body *fw_local_body(struct fw_table_local *local, uint32_t length);

/* Lets go of bodies that died. No bucket is locked. */
void fw_local_drop_bodies(struct fw_table_local *local);
