/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buckets: from a key's hash to the place of its record.
 *
 * A bucket is one cache line, a header and seven entries. The header has the lock and the number of
 * an overflow bucket; an entry has 24 bits of the hash, so that hardly ever a record is looked at
 * in vain, and 40 bits of place. Entries are dense: the first that is 0 is the end, and who takes
 * one out fills its place with the last.
 *
 * Linear hashing. There are `count` buckets, any number. With m the power of two so that
 * m < count <= 2m, a hash belongs to bucket hash mod 2m if there is one, else to hash mod m. To add
 * bucket number c, only one bucket has to be split: c without its highest bit. To take the last one
 * away, only that one is merged into. Both happen under the locks of the two buckets, the lower
 * first, and `count` changes before they are let go:
 *
 *     finder                                  splitter
 *     ------                                  --------
 *     count -> index
 *     lock index                              lock low, lock high
 *     count -> same index?                    move entries
 *        no: unlock, again                    count
 *                                             unlock both
 *
 * The lock is one bit, for a lock of 40 bytes has no room in a line. It is held for some tens of
 * nanoseconds, so a waiter spins; but the holder may have lost its core, so after a short while the
 * waiter gives up its own (fw_thread_yield()). Nothing is taken under it: in builds with checks it
 * shows in the lock order as a leaf. Two buckets are held together only here, by rising index.
 *
 * A bucket past the end may still be locked by who has not yet seen that it is gone. So its memory
 * goes back to the system only while all locks in it are held.
 *
 * Overflow buckets come from a second range and are linked by number. Inside a hold none can be
 * made, so locals bring some (struct fw_bucket_stash).
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/base.h"
#include "base/mutex.h"
#include "base/reason.h"
#include "base/thread.h"
#include "cache/budget.h"
#include "io/range.h"

enum {
    FW_BUCKET_ENTRIES = 7,
    FW_BUCKET_LOAD = 5,     /* Items per bucket above which the table grows, */
    FW_BUCKET_LOAD_LOW = 3, /* and below which it shrinks. */
    FW_BUCKETS_MIN = 16,
    FW_BUCKET_MEMORY = 64 * 1024, /* Memory for buckets is charged in such units. */
    FW_BUCKETS_PER_UNIT = FW_BUCKET_MEMORY / FW_CACHE_LINE,
    FW_TAG_SHIFT = 40,
};

#define FW_PLACE_MASK  ((UINT64_C(1) << FW_TAG_SHIFT) - 1)
#define FW_BUCKET_LOCK UINT64_C(1)
#define FW_LINK_SHIFT  32 /* Of the header: number of the overflow bucket plus 1, or 0. */

struct fw_bucket {
    alignas(FW_CACHE_LINE) _Atomic uint64_t header;
    /* Guarded by the lock; atomic, because fw_table_prefetch_item() looks without it. */
    _Atomic uint64_t entries[FW_BUCKET_ENTRIES];
};
static_assert(sizeof(struct fw_bucket) == FW_CACHE_LINE, "a bucket is one line");

/* Free overflow buckets of a local, linked by their headers. */
struct fw_bucket_stash {
    uint32_t first; /* Number plus 1; 0: none. */
    uint32_t count;
};

struct fw_buckets {
    struct fw_range primary;
    struct fw_range overflow;
    struct fw_budget *budget;
    uint64_t count_max;
    struct fw_mutex growth; /* FW_RANK_TABLE_GROWTH: who may change `count`. */
    struct fw_mutex lock;   /* FW_RANK_TABLE_ARENA. Guards the three below. */
    uint64_t overflow_fresh;
    size_t collapsed; /* Of the primary ones: up to here huge pages were made, or tried. */
    struct fw_bucket_stash overflow_free;
    alignas(FW_CACHE_LINE) _Atomic uint64_t count; /* Read by all, all the time. */
};

FW_MUST_CHECK int fw_buckets_init(struct fw_buckets *buckets, struct fw_budget *budget,
                                  uint64_t memory_max, struct fw_reason *reason);
void fw_buckets_fini(struct fw_buckets *buckets);

/* Fills a stash up to `count`. False: there is no memory. */
bool fw_buckets_stash_fill(struct fw_buckets *buckets, struct fw_bucket_stash *stash,
                           uint32_t count);
/* Gives all of it back but `count`. */
void fw_buckets_stash_trim(struct fw_buckets *buckets, struct fw_bucket_stash *stash,
                           uint32_t count);

static inline uint64_t fw_bucket_index(uint64_t hash, uint64_t count)
{
    uint64_t mask = UINT64_MAX >> __builtin_clzll(count - 1);
    uint64_t index = hash & mask;
    return index < count ? index : hash & (mask >> 1);
}

static inline struct fw_bucket *fw_bucket_at(const struct fw_buckets *buckets, uint64_t index)
{
    return (struct fw_bucket *)(void *)buckets->primary.memory + index;
}

static inline struct fw_bucket *fw_bucket_overflow(const struct fw_buckets *buckets, uint32_t link)
{
    return (struct fw_bucket *)(void *)buckets->overflow.memory + (link - 1);
}

/* Relaxed, here and in the next four: under the lock, or a hint. */
static inline uint64_t fw_bucket_entry(const _Atomic uint64_t *entry)
{
    return atomic_load_explicit(entry, memory_order_relaxed);
}

static inline void fw_bucket_entry_set(_Atomic uint64_t *entry, uint64_t value)
{
    atomic_store_explicit(entry, value, memory_order_relaxed);
}

static inline uint32_t fw_bucket_link(const struct fw_bucket *bucket)
{
    return (uint32_t)(atomic_load_explicit(&bucket->header, memory_order_relaxed) >> FW_LINK_SHIFT);
}

static inline uint64_t fw_buckets_count(const struct fw_buckets *buckets)
{
    return atomic_load_explicit(&buckets->count, memory_order_relaxed);
}

static inline uint64_t fw_bucket_tag(uint64_t hash)
{
    return hash >> FW_TAG_SHIFT;
}

void fw_bucket_lock_wait(struct fw_bucket *bucket);

static inline void fw_bucket_lock(struct fw_bucket *bucket)
{
    FW_YIELD_POINT("bucket: lock");
    /* Acquire, for the release in fw_bucket_unlock(). */
    if (FW_UNLIKELY(
            (atomic_fetch_or_explicit(&bucket->header, FW_BUCKET_LOCK, memory_order_acquire) &
             FW_BUCKET_LOCK) != 0)) {
        fw_bucket_lock_wait(bucket);
    }
}

static inline void fw_bucket_unlock(struct fw_bucket *bucket)
{
    /* Relaxed: nobody but the holder changes a header that is locked. */
    uint64_t header = atomic_load_explicit(&bucket->header, memory_order_relaxed);
    FW_ASSERT((header & FW_BUCKET_LOCK) != 0);
    /* Release, for the acquire in fw_bucket_lock(). */
    atomic_store_explicit(&bucket->header, header & ~FW_BUCKET_LOCK, memory_order_release);
    FW_YIELD_POINT("bucket: unlocked");
}

/* Locks the bucket that the hash belongs to. */
static inline struct fw_bucket *fw_buckets_lock(struct fw_buckets *buckets, uint64_t hash)
{
    for (;;) {
        uint64_t index = fw_bucket_index(hash, fw_buckets_count(buckets));
        struct fw_bucket *bucket = fw_bucket_at(buckets, index);
        fw_bucket_lock(bucket);
        /*
         * Relaxed is enough: if a splitter held this lock before us, we see its count because of
         * the lock; and while we hold it the bucket is neither split nor merged.
         */
        if (FW_LIKELY(fw_bucket_index(hash, fw_buckets_count(buckets)) == index)) {
            return bucket;
        }
        fw_bucket_unlock(bucket);
    }
}

/* Puts an entry behind the last. May take an overflow bucket from the stash, which has one. */
_Atomic uint64_t *fw_bucket_insert(struct fw_buckets *buckets, struct fw_bucket *bucket,
                                   uint64_t value, struct fw_bucket_stash *stash);

/* Takes an entry of this bucket or of its overflow out. May add to the stash. */
void fw_bucket_remove(struct fw_buckets *buckets, struct fw_bucket *bucket, _Atomic uint64_t *entry,
                      struct fw_bucket_stash *stash);

/* The entry with that value, or NULL. */
_Atomic uint64_t *fw_bucket_find(struct fw_buckets *buckets, struct fw_bucket *bucket,
                                 uint64_t value);

/* Asked for the hash of an entry when its bucket is split. */
typedef uint64_t (*fw_bucket_hash)(void *context, uint64_t entry);

/*
 * Splits one bucket. Returns 0, -EBUSY (somebody else is at it), -ENOMEM (not within the budget) or
 * -ENOSPC (there are as many as can be).
 */
FW_MUST_CHECK int fw_buckets_split(struct fw_buckets *buckets, struct fw_bucket_stash *stash,
                                   fw_bucket_hash hash_of, void *context);

/* Merges the last with its other half; the stash is not empty. Returns 0, -EBUSY or -ENOSPC. */
FW_MUST_CHECK int fw_buckets_merge(struct fw_buckets *buckets, struct fw_bucket_stash *stash);

/* Makes a huge page of the next part that is in use. False: there is none, or it cannot be. */
bool fw_buckets_collapse(struct fw_buckets *buckets);
