/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buckets: from a key's hash to the place of its record.
 *
 * A bucket is one cache line: the lock, the number of an overflow bucket, and ten entries of 48
 * bits. An entry is a place, and in the bits above it as much of the hash as there is room for, the
 * *tag*: 16 bits in a table whose memory ends below 4 GiB, fewer by one with each doubling, 8 in
 * the largest. So hardly ever a record is looked at in vain. Entries are dense: the first that is 0
 * is the end, and who takes one out fills its place with the last.
 *
 * An entry lies in two parts, the lower 32 bits of all ten behind the upper 16 of all ten, where
 * the tags are. So a key's tag is compared with ten others at once, and without a branch for each:
 * which of the entries it is cannot be foreseen. A pointer to its lower part, the *slot*, stands
 * for an entry.
 *
 * Why not 8 bytes for each: seven in a line, at the same load, are 5 bytes more for every item.
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

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "base/assert.h"
#include "base/base.h"
#include "base/mutex.h"
#include "base/reason.h"
#include "base/thread.h"
#include "cache/budget.h"
#include "io/range.h"

enum {
    FW_BUCKET_ENTRIES = 10,
    FW_BUCKET_LOAD = 8,     /* Items per bucket above which the table grows, */
    FW_BUCKET_LOAD_LOW = 5, /* and below which it shrinks. */
    FW_BUCKETS_MIN = 16,
    FW_BUCKET_MEMORY = 64 * 1024, /* Memory for buckets is charged in such units. */
    FW_BUCKETS_PER_UNIT = FW_BUCKET_MEMORY / FW_CACHE_LINE,
    FW_PLACE_BITS_MAX = 40,
    FW_LOW_BITS = 32, /* Of an entry. */
    FW_HIGH_BITS = 16,
};

#define FW_BUCKET_LOCK UINT32_C(1)
#define FW_LINK_SHIFT  1 /* Of the head: number of the overflow bucket plus 1, or 0. */

struct fw_slot {
    _Atomic uint32_t low; /* 0: there is no entry. */
};

/* All guarded by the lock; atomic, because fw_table_prefetch_item() looks without it. */
struct fw_bucket {
    alignas(FW_CACHE_LINE) _Atomic uint32_t head; /* Lock and link. */
    _Atomic uint16_t highs[FW_BUCKET_ENTRIES];
    struct fw_slot slots[FW_BUCKET_ENTRIES];
};
static_assert(sizeof(struct fw_bucket) == FW_CACHE_LINE, "a bucket is one line");

/* Free overflow buckets of a local, linked by their links. */
struct fw_bucket_stash {
    uint32_t first; /* Number plus 1; 0: none. */
    uint32_t count;
};

struct fw_buckets {
    struct fw_range primary;
    struct fw_range overflow;
    struct fw_budget *budget;
    uint64_t count_max;
    uint64_t place_mask;    /* Of an entry; what is above is the tag. */
    uint16_t tag_mask;      /* Of its upper bits. */
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

/* The bucket, primary or overflow, that a slot is in. */
static inline struct fw_bucket *fw_slot_bucket(const struct fw_slot *slot)
{
    return (struct fw_bucket *)((uintptr_t)slot & ~(uintptr_t)(FW_CACHE_LINE - 1));
}

/* Relaxed, here and in the next six: under the lock, or a hint. */
static inline bool fw_bucket_has(const struct fw_bucket *bucket, uint32_t index)
{
    return atomic_load_explicit(&bucket->slots[index].low, memory_order_relaxed) != 0;
}

static inline uint64_t fw_bucket_entry_at(const struct fw_bucket *bucket, uint32_t index)
{
    uint64_t high = atomic_load_explicit(&bucket->highs[index], memory_order_relaxed);
    uint64_t low = atomic_load_explicit(&bucket->slots[index].low, memory_order_relaxed);
    return high << FW_LOW_BITS | low;
}

static inline uint64_t fw_bucket_entry(const struct fw_slot *slot)
{
    const struct fw_bucket *bucket = fw_slot_bucket(slot);
    return fw_bucket_entry_at(bucket, (uint32_t)(slot - bucket->slots));
}

static inline void fw_bucket_entry_set(struct fw_slot *slot, uint64_t entry)
{
    struct fw_bucket *bucket = fw_slot_bucket(slot);
    uint16_t high = (uint16_t)(entry >> FW_LOW_BITS);
    atomic_store_explicit(&bucket->highs[slot - bucket->slots], high, memory_order_relaxed);
    atomic_store_explicit(&slot->low, (uint32_t)entry, memory_order_relaxed);
}

static inline uint32_t fw_bucket_link(const struct fw_bucket *bucket)
{
    return atomic_load_explicit(&bucket->head, memory_order_relaxed) >> FW_LINK_SHIFT;
}

static inline uint64_t fw_buckets_count(const struct fw_buckets *buckets)
{
    return atomic_load_explicit(&buckets->count, memory_order_relaxed);
}

/* The entry of a record that lies at `place`, whose lower 32 bits are not 0. */
static inline uint64_t fw_buckets_entry(const struct fw_buckets *buckets, uint64_t hash,
                                        uint64_t place)
{
    FW_ASSERT((uint32_t)place != 0 && (place & ~buckets->place_mask) == 0);
    return (hash >> (64 - FW_LOW_BITS - FW_HIGH_BITS) & ~buckets->place_mask) | place;
}

static inline uint64_t fw_buckets_place(const struct fw_buckets *buckets, uint64_t entry)
{
    return entry & buckets->place_mask;
}

/*
 * A bit for each slot whose upper bits, as far as `mask` says, are `high`. Some may be empty.
 *
 * The fast way loads eight of 16 bits each at once. That each of them is what somebody wrote is all
 * that is needed; but it is more than C promises, so builds that look for races take the other.
 */
static inline uint32_t fw_bucket_match(const struct fw_bucket *bucket, uint16_t high, uint16_t mask)
{
#if defined(__SSE2__) && !FW_TSAN
    const char *highs = (const char *)bucket + offsetof(struct fw_bucket, highs);
    __m128i first = _mm_loadu_si128((const __m128i *)(const void *)highs);
    __m128i last = _mm_loadu_si32(highs + sizeof first);
    __m128i masks = _mm_set1_epi16((short)mask);
    __m128i wanted = _mm_set1_epi16((short)(high & mask));
    __m128i same = _mm_packs_epi16(_mm_cmpeq_epi16(_mm_and_si128(first, masks), wanted),
                                   _mm_cmpeq_epi16(_mm_and_si128(last, masks), wanted));
    return (uint32_t)_mm_movemask_epi8(same) & ((1U << FW_BUCKET_ENTRIES) - 1);
#else
    uint32_t matches = 0;
    for (uint32_t i = 0; i < FW_BUCKET_ENTRIES; i++) {
        uint16_t there = atomic_load_explicit(&bucket->highs[i], memory_order_relaxed);
        matches |= (uint32_t)(((there ^ high) & mask) == 0) << i;
    }
    return matches;
#endif
}

/* The slots of records that may have this hash. */
static inline uint32_t fw_buckets_match(const struct fw_buckets *buckets,
                                        const struct fw_bucket *bucket, uint64_t hash)
{
    return fw_bucket_match(bucket, (uint16_t)(hash >> (64 - FW_HIGH_BITS)), buckets->tag_mask);
}

/* Takes one out of a set that is not empty. */
static inline uint32_t fw_matches_take(uint32_t *matches)
{
    uint32_t index = (uint32_t)__builtin_ctz(*matches);
    *matches &= *matches - 1;
    return index;
}

void fw_bucket_lock_wait(struct fw_bucket *bucket);

static inline void fw_bucket_lock(struct fw_bucket *bucket)
{
    FW_YIELD_POINT("bucket: lock");
    /* Acquire, for the release in fw_bucket_unlock(). */
    if (FW_UNLIKELY((atomic_fetch_or_explicit(&bucket->head, FW_BUCKET_LOCK, memory_order_acquire) &
                     FW_BUCKET_LOCK) != 0)) {
        fw_bucket_lock_wait(bucket);
    }
}

static inline void fw_bucket_unlock(struct fw_bucket *bucket)
{
    /* Relaxed: nobody but the holder changes the head of a bucket that is locked. */
    uint32_t head = atomic_load_explicit(&bucket->head, memory_order_relaxed);
    FW_ASSERT((head & FW_BUCKET_LOCK) != 0);
    /* Release, for the acquire in fw_bucket_lock(). */
    atomic_store_explicit(&bucket->head, head & ~FW_BUCKET_LOCK, memory_order_release);
    FW_YIELD_POINT("bucket: unlocked");
}

/* Locks the bucket that the hash belongs to. */
static inline struct fw_bucket *fw_buckets_lock(struct fw_buckets *buckets, uint64_t hash)
{
    for (;;) {
        uint64_t count = fw_buckets_count(buckets);
        uint64_t index = fw_bucket_index(hash, count);
        struct fw_bucket *bucket = fw_bucket_at(buckets, index);
        fw_bucket_lock(bucket);
        /*
         * Relaxed is enough: if a splitter held this lock before us, we see its count because of
         * the lock; and while we hold it the bucket is neither split nor merged.
         */
        uint64_t count_now = fw_buckets_count(buckets);
        if (FW_LIKELY(count_now == count) || fw_bucket_index(hash, count_now) == index) {
            return bucket;
        }
        fw_bucket_unlock(bucket);
    }
}

/* Puts an entry behind the last. May take an overflow bucket from the stash, which has one. */
struct fw_slot *fw_bucket_insert(struct fw_buckets *buckets, struct fw_bucket *bucket,
                                 uint64_t entry, struct fw_bucket_stash *stash);

/* Takes an entry of this bucket or of its overflow out. May add to the stash. */
void fw_bucket_remove(struct fw_buckets *buckets, struct fw_bucket *bucket, struct fw_slot *slot,
                      struct fw_bucket_stash *stash);

/* Where that entry is, or NULL. */
struct fw_slot *fw_bucket_find(struct fw_buckets *buckets, struct fw_bucket *bucket,
                               uint64_t entry);

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
