/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/bucket.h"

#include <errno.h>

enum {
    /* The least that an item takes in the arena; so no table ever needs more buckets than this. */
    RECORD_MIN = 16,
    SPINS = 100, /* Some hundred nanoseconds: longer than any holder that has a core takes. */
};

int fw_buckets_init(struct fw_buckets *buckets, struct fw_budget *budget, uint64_t memory_max,
                    struct fw_reason *reason)
{
    *buckets = (struct fw_buckets){.budget = budget};
    size_t size = memory_max / RECORD_MIN / FW_BUCKET_LOAD * sizeof(struct fw_bucket);
    size = (size / FW_RANGE_HUGE_PAGE + 1) * FW_RANGE_HUGE_PAGE;
    buckets->count_max = size / sizeof(struct fw_bucket);
    uint32_t place_bits = 64 - (uint32_t)__builtin_clzll(memory_max - 1);
    place_bits = place_bits > FW_LOW_BITS ? place_bits : FW_LOW_BITS;
    FW_ASSERT(place_bits <= FW_PLACE_BITS_MAX);
    buckets->place_mask = (UINT64_C(1) << place_bits) - 1;
    buckets->tag_mask = (uint16_t)(~buckets->place_mask >> FW_LOW_BITS);
    int rc = fw_range_reserve(&buckets->primary, size, fw_budget_pages(budget), reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_range_reserve(&buckets->overflow, size, FW_RANGE_SMALL, reason);
    if (rc != 0) {
        fw_range_release(&buckets->primary);
        return rc;
    }
    if (!fw_budget_charge(budget, FW_BUCKET_MEMORY, 0) ||
        fw_range_enable(&buckets->primary, 0, FW_BUCKET_MEMORY) != 0) {
        fw_range_release(&buckets->overflow);
        fw_range_release(&buckets->primary);
        return fw_reason_set(reason, -ENOMEM, "no memory for the first %d buckets", FW_BUCKETS_MIN);
    }
    fw_mutex_init(&buckets->growth, FW_RANK_TABLE_GROWTH);
    fw_mutex_init(&buckets->lock, FW_RANK_TABLE_ARENA);
    atomic_init(&buckets->count, FW_BUCKETS_MIN);
    return 0;
}

void fw_buckets_fini(struct fw_buckets *buckets)
{
    fw_mutex_fini(&buckets->lock);
    fw_mutex_fini(&buckets->growth);
    fw_range_release(&buckets->overflow);
    fw_range_release(&buckets->primary);
}

void fw_bucket_lock_wait(struct fw_bucket *bucket)
{
    for (uint32_t spins = 1;; spins++) {
        /* Relaxed: only a hint that trying makes sense. */
        uint32_t head = atomic_load_explicit(&bucket->head, memory_order_relaxed);
        /* Acquire, for the release in fw_bucket_unlock(). */
        if ((head & FW_BUCKET_LOCK) == 0 &&
            (atomic_fetch_or_explicit(&bucket->head, FW_BUCKET_LOCK, memory_order_acquire) &
             FW_BUCKET_LOCK) == 0) {
            return;
        }
        if (spins % SPINS == 0 || fw_thread_hooks != NULL) {
            fw_thread_yield();
        } else {
            fw_thread_relax();
        }
    }
}

/* Sets the link and leaves the lock as it is. The holder of the chain's lock only. */
static void bucket_link_set(struct fw_bucket *bucket, uint32_t link)
{
    /* Relaxed: under the lock, whose bit nobody else changes meanwhile but to try. */
    uint32_t head = atomic_load_explicit(&bucket->head, memory_order_relaxed);
    head = (head & FW_BUCKET_LOCK) | link << FW_LINK_SHIFT;
    atomic_store_explicit(&bucket->head, head, memory_order_relaxed);
}

static void stash_put(struct fw_buckets *buckets, struct fw_bucket_stash *stash, uint32_t link)
{
    bucket_link_set(fw_bucket_overflow(buckets, link), stash->first);
    stash->first = link;
    stash->count++;
}

static uint32_t stash_take(struct fw_buckets *buckets, struct fw_bucket_stash *stash)
{
    FW_ASSERT(stash->count > 0);
    uint32_t link = stash->first;
    struct fw_bucket *bucket = fw_bucket_overflow(buckets, link);
    stash->first = fw_bucket_link(bucket);
    stash->count--;
    bucket_link_set(bucket, 0);
    return link;
}

/* The next buckets of the overflow range, if the budget allows. */
static bool buckets_overflow_more(struct fw_buckets *buckets) FW_REQUIRES(buckets->lock);
static bool buckets_overflow_more(struct fw_buckets *buckets)
{
    size_t offset = buckets->overflow_fresh * sizeof(struct fw_bucket);
    if (offset == buckets->overflow.size ||
        !fw_budget_charge(buckets->budget, FW_BUCKET_MEMORY, 0)) {
        return false;
    }
    if (fw_range_enable(&buckets->overflow, offset, FW_BUCKET_MEMORY) != 0) {
        fw_budget_return(buckets->budget, FW_BUCKET_MEMORY);
        return false;
    }
    return true;
}

bool fw_buckets_stash_fill(struct fw_buckets *buckets, struct fw_bucket_stash *stash,
                           uint32_t count)
{
    fw_mutex_lock(&buckets->lock);
    while (stash->count < count) {
        if (buckets->overflow_free.count > 0) {
            stash_put(buckets, stash, stash_take(buckets, &buckets->overflow_free));
        } else if (buckets->overflow_fresh % FW_BUCKETS_PER_UNIT != 0 ||
                   buckets_overflow_more(buckets)) {
            stash_put(buckets, stash, (uint32_t)++buckets->overflow_fresh);
        } else {
            break;
        }
    }
    fw_mutex_unlock(&buckets->lock);
    return stash->count >= count;
}

void fw_buckets_stash_trim(struct fw_buckets *buckets, struct fw_bucket_stash *stash,
                           uint32_t count)
{
    fw_mutex_lock(&buckets->lock);
    while (stash->count > count) {
        stash_put(buckets, &buckets->overflow_free, stash_take(buckets, stash));
    }
    fw_mutex_unlock(&buckets->lock);
}

struct fw_slot *fw_bucket_insert(struct fw_buckets *buckets, struct fw_bucket *bucket,
                                 uint64_t entry, struct fw_bucket_stash *stash)
{
    for (;;) {
        for (uint32_t i = 0; i < FW_BUCKET_ENTRIES; i++) {
            if (!fw_bucket_has(bucket, i)) {
                fw_bucket_entry_set(&bucket->slots[i], entry);
                return &bucket->slots[i];
            }
        }
        if (fw_bucket_link(bucket) == 0) {
            bucket_link_set(bucket, stash_take(buckets, stash));
        }
        bucket = fw_bucket_overflow(buckets, fw_bucket_link(bucket));
    }
}

void fw_bucket_remove(struct fw_buckets *buckets, struct fw_bucket *bucket, struct fw_slot *slot,
                      struct fw_bucket_stash *stash)
{
    struct fw_bucket *before = NULL;
    while (fw_bucket_link(bucket) != 0) {
        before = bucket;
        bucket = fw_bucket_overflow(buckets, fw_bucket_link(bucket));
    }
    uint32_t last = 0;
    while (last + 1 < FW_BUCKET_ENTRIES && fw_bucket_has(bucket, last + 1)) {
        last++;
    }
    fw_bucket_entry_set(slot, fw_bucket_entry_at(bucket, last));
    fw_bucket_entry_set(&bucket->slots[last], 0);
    if (last == 0 && before != NULL) {
        uint32_t link = fw_bucket_link(before);
        bucket_link_set(before, 0);
        stash_put(buckets, stash, link);
    }
}

struct fw_slot *fw_bucket_find(struct fw_buckets *buckets, struct fw_bucket *bucket, uint64_t entry)
{
    uint16_t high = (uint16_t)(entry >> FW_LOW_BITS);
    for (;;) {
        uint32_t matches = fw_bucket_match(bucket, high, UINT16_MAX);
        while (matches != 0) {
            uint32_t i = fw_matches_take(&matches);
            if (fw_bucket_entry_at(bucket, i) == entry) {
                return &bucket->slots[i];
            }
        }
        if (fw_bucket_link(bucket) == 0) {
            return NULL;
        }
        bucket = fw_bucket_overflow(buckets, fw_bucket_link(bucket));
    }
}

/* The entries of one bucket, taken out of it; its overflow is its no more. */
struct handful {
    uint64_t entries[FW_BUCKET_ENTRIES];
    uint32_t count;
    uint32_t link;
};

static void bucket_empty(struct fw_bucket *bucket, struct handful *handful)
{
    handful->count = 0;
    handful->link = fw_bucket_link(bucket);
    bucket_link_set(bucket, 0);
    for (uint32_t i = 0; i < FW_BUCKET_ENTRIES; i++) {
        if (fw_bucket_has(bucket, i)) {
            handful->entries[handful->count++] = fw_bucket_entry_at(bucket, i);
            fw_bucket_entry_set(&bucket->slots[i], 0);
        }
    }
}

/* A bucket that is split, or two that are merged: the higher one's number without its top bit. */
struct pair {
    struct fw_bucket *low;
    struct fw_bucket *high;
    uint64_t bit; /* That tells their hashes apart. */
};

static struct pair pair_lock(struct fw_buckets *buckets, uint64_t high)
{
    uint64_t bit = UINT64_C(1) << (63 - __builtin_clzll(high));
    struct pair pair = {
        .low = fw_bucket_at(buckets, high ^ bit), .high = fw_bucket_at(buckets, high), .bit = bit};
    fw_bucket_lock(pair.low);
    fw_bucket_lock(pair.high);
    return pair;
}

/* The new count is seen by all who lock one of the two, and nobody else needs to. */
static void pair_unlock(struct fw_buckets *buckets, const struct pair *pair, uint64_t count)
{
    FW_YIELD_POINT("bucket: moved, not yet counted");
    /* Relaxed: ordered by the locks. */
    atomic_store_explicit(&buckets->count, count, memory_order_relaxed);
    fw_bucket_unlock(pair->high);
    fw_bucket_unlock(pair->low);
}

/*
 * Takes all out of `from` and puts each where it belongs: without `hash_of` all in `low`. Handful
 * by handful: a bucket of the chain is emptied and goes to the stash before its entries are put
 * anywhere. So a split needs nothing from the stash, since what n buckets held needs at most n - 1
 * overflow buckets in two chains, and a merge needs one.
 */
static void pair_pour(struct fw_buckets *buckets, const struct pair *pair, struct fw_bucket *from,
                      struct fw_bucket_stash *stash, fw_bucket_hash hash_of, void *context)
{
    struct handful handful;
    bucket_empty(from, &handful);
    for (;;) {
        for (uint32_t i = 0; i < handful.count; i++) {
            uint64_t entry = handful.entries[i];
            bool is_high = hash_of != NULL && (hash_of(context, entry) & pair->bit) != 0;
            (void)fw_bucket_insert(buckets, is_high ? pair->high : pair->low, entry, stash);
        }
        if (handful.link == 0) {
            return;
        }
        uint32_t link = handful.link;
        bucket_empty(fw_bucket_overflow(buckets, link), &handful);
        stash_put(buckets, stash, link);
    }
}

/* There is memory for bucket number `count`. */
static bool buckets_extend(struct fw_buckets *buckets, uint64_t count)
{
    size_t offset = count * sizeof(struct fw_bucket);
    if (offset % FW_BUCKET_MEMORY != 0) {
        return true;
    }
    if (!fw_budget_charge(buckets->budget, FW_BUCKET_MEMORY, 0)) {
        return false;
    }
    if (fw_range_enable(&buckets->primary, offset, FW_BUCKET_MEMORY) != 0) {
        fw_budget_return(buckets->budget, FW_BUCKET_MEMORY);
        return false;
    }
    return true;
}

int fw_buckets_split(struct fw_buckets *buckets, struct fw_bucket_stash *stash,
                     fw_bucket_hash hash_of, void *context)
{
    if (!fw_mutex_trylock(&buckets->growth)) {
        return -EBUSY;
    }
    int rc = 0;
    uint64_t count = fw_buckets_count(buckets);
    if (count == buckets->count_max) {
        rc = -ENOSPC;
    } else if (!buckets_extend(buckets, count)) {
        rc = -ENOMEM;
    } else {
        struct pair pair = pair_lock(buckets, count);
        pair_pour(buckets, &pair, pair.low, stash, hash_of, context);
        pair_unlock(buckets, &pair, count + 1);
    }
    fw_mutex_unlock(&buckets->growth);
    return rc;
}

/* If nothing is used of the unit of memory that begins with bucket `count`, gives it back. */
static void buckets_cut(struct fw_buckets *buckets, uint64_t count)
{
    size_t offset = count * sizeof(struct fw_bucket);
    if (offset % FW_BUCKET_MEMORY != 0) {
        return;
    }
    for (uint64_t i = 0; i < FW_BUCKETS_PER_UNIT; i++) {
        fw_bucket_lock(fw_bucket_at(buckets, count + i));
    }
    /* Zero is an empty bucket that is not locked. */
    fw_range_give_back(&buckets->primary, offset, FW_BUCKET_MEMORY);
    fw_budget_return(buckets->budget, FW_BUCKET_MEMORY);
}

int fw_buckets_merge(struct fw_buckets *buckets, struct fw_bucket_stash *stash)
{
    FW_ASSERT(stash->count > 0);
    if (!fw_mutex_trylock(&buckets->growth)) {
        return -EBUSY;
    }
    int rc = -ENOSPC;
    uint64_t last = fw_buckets_count(buckets) - 1;
    if (last >= FW_BUCKETS_MIN) {
        struct pair pair = pair_lock(buckets, last);
        pair_pour(buckets, &pair, pair.high, stash, NULL, NULL);
        pair_unlock(buckets, &pair, last);
        buckets_cut(buckets, last);
        rc = 0;
    }
    fw_mutex_unlock(&buckets->growth);
    return rc;
}

bool fw_buckets_collapse(struct fw_buckets *buckets)
{
    fw_mutex_lock(&buckets->lock);
    size_t used = fw_buckets_count(buckets) * sizeof(struct fw_bucket);
    size_t offset = buckets->collapsed;
    bool is_due = offset + FW_RANGE_HUGE_PAGE <= used;
    buckets->collapsed += is_due ? FW_RANGE_HUGE_PAGE : 0;
    fw_mutex_unlock(&buckets->lock);
    return is_due && fw_range_collapse(&buckets->primary, offset);
}
