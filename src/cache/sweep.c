/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Going round the buckets while the table grows and shrinks.
 *
 * A cursor is a hash, bit-reversed. Read in that way a bucket is an interval: bucket b of those
 * that k bits tell apart has all hashes whose reversal begins with the k reversed bits of b. A
 * split cuts an interval in two, a merge joins two neighbours. So going up the reversed hashes,
 * from the end of one bucket's interval to the bucket that holds what follows, meets every item
 * that is there all the time, and meets twice only what was merged meanwhile.
 */
#include "base/assert.h"
#include "cache/bucket.h"
#include "cache/table_parts.h"

/* How much more than its limit a table may take that keeps what others drop. */
enum { SLACK_OF = 16, SLACK_SEGMENTS = 8 };

static uint64_t reverse(uint64_t bits)
{
    bits = (bits >> 1 & UINT64_C(0x5555555555555555)) | (bits & UINT64_C(0x5555555555555555)) << 1;
    bits = (bits >> 2 & UINT64_C(0x3333333333333333)) | (bits & UINT64_C(0x3333333333333333)) << 2;
    bits = (bits >> 4 & UINT64_C(0x0f0f0f0f0f0f0f0f)) | (bits & UINT64_C(0x0f0f0f0f0f0f0f0f)) << 4;
    return __builtin_bswap64(bits);
}

/* Where the interval ends that `cursor` is in; 0: at the end of all. Under the bucket's lock. */
static uint64_t cursor_next(uint64_t cursor, uint64_t count)
{
    uint32_t bits = 64 - (uint32_t)__builtin_clzll(count - 1);
    uint64_t half = UINT64_C(1) << (bits - 1);
    if ((reverse(cursor) & (half - 1)) + half >= count) {
        bits--; /* Its other half has no bucket of its own. */
    }
    uint64_t width = UINT64_C(1) << (64 - bits);
    return (cursor & ~(width - 1)) + width;
}

/* What is done with an item. It may take its entry out of the bucket. */
typedef void (*entry_visit)(struct fw_table_local *local, struct fw_bucket *bucket,
                            struct fw_slot *slot, void *context);

/* False: some were not visited, since too many bodies have died. */
static bool bucket_visit(struct fw_table_local *local, struct fw_bucket *primary, entry_visit visit,
                         void *context)
{
    for (uint32_t i = 0; i < FW_BUCKET_ENTRIES; i++) { /* All at once, not one after the other. */
        __builtin_prefetch(fw_local_item(local, fw_bucket_entry_at(primary, i)), 1);
    }
    for (struct fw_bucket *bucket = primary;;) {
        for (uint32_t i = 0; i < FW_BUCKET_ENTRIES;) {
            struct fw_slot *slot = &bucket->slots[i];
            uint64_t entry = fw_bucket_entry(slot);
            if (entry == 0) {
                return true; /* The end. This bucket may even have left the chain just now. */
            }
            if (local->dead_count == FW_DEAD_BODIES_MAX) {
                return false; /* No room to remember one more that dies. */
            }
            visit(local, primary, slot, context);
            /* Else it is gone, and the last stands in its place. */
            i += fw_bucket_entry(slot) == entry ? 1 : 0;
        }
        uint32_t link = fw_bucket_link(bucket);
        if (link == 0) {
            return true;
        }
        bucket = fw_bucket_overflow(&local->table->buckets, link);
    }
}

/* Goes on from the cursor. True: it has come round. */
static bool go_round(struct fw_table_local *local, uint64_t *cursor, uint32_t bucket_count,
                     entry_visit visit, void *context)
{
    struct fw_buckets *buckets = &local->table->buckets;
    for (uint32_t i = 0; i < bucket_count; i++) {
        struct fw_bucket *bucket = fw_local_lock(local, reverse(*cursor));
        bool is_whole = bucket_visit(local, bucket, visit, context);
        if (is_whole) {
            /* While the bucket is locked its interval is what the count says. */
            *cursor = cursor_next(*cursor, fw_buckets_count(buckets));
        }
        fw_local_unlock(local, bucket);
        if (local->dead_count > 0) {
            fw_local_drop_bodies(local);
        }
        if (*cursor == 0 && is_whole) {
            return true;
        }
    }
    return false;
}

static void sweep_entry(struct fw_table_local *local, struct fw_bucket *bucket,
                        struct fw_slot *slot, void *context)
{
    const bool *raise_ages = context;
    struct fw_item *item = fw_local_item(local, fw_bucket_entry(slot));
    if (fw_local_may_reclaim(local, fw_local_absence(local, item))) {
        fw_local_reclaim(local, bucket, slot);
    } else if (*raise_ages && (item->bits & FW_ITEM_AGE) < FW_ITEM_AGE_MAX) {
        item->bits++; /* The age is in the lowest bits. */
    }
}

bool fw_table_sweep(struct fw_table_local *local, uint64_t *cursor, uint32_t bucket_count,
                    bool raise_ages)
{
    bool is_round = go_round(local, cursor, bucket_count, sweep_entry, &raise_ages);
    fw_local_tend(local);
    return is_round;
}

void fw_table_age(struct fw_table_local *local, uint64_t *cursor, uint32_t bucket_count)
{
    bool raise_ages = true;
    (void)go_round(local, cursor, bucket_count, sweep_entry, &raise_ages);
    atomic_fetch_add_explicit(&local->table->aged, bucket_count, memory_order_relaxed);
}

uint64_t fw_table_aged(const struct fw_table *table)
{
    return atomic_load_explicit(&table->aged, memory_order_relaxed);
}

uint64_t fw_table_buckets(const struct fw_table *table)
{
    return fw_buckets_count(&table->buckets);
}

bool fw_table_collapse(struct fw_table *table)
{
    return fw_buckets_collapse(&table->buckets) || fw_arena_collapse(&table->arena);
}

struct visiting {
    void (*visit)(struct fw_item *item, void *context);
    void *context;
};

static void visit_entry(struct fw_table_local *local, struct fw_bucket *bucket,
                        struct fw_slot *slot, void *context)
{
    (void)bucket;
    const struct visiting *visiting = context;
    struct fw_item *item = fw_local_item(local, fw_bucket_entry(slot));
    if (fw_local_absence(local, item) == FW_ABSENT) {
        visiting->visit(item, visiting->context);
    }
}

bool fw_table_visit(struct fw_table_local *local, uint64_t *cursor, uint32_t bucket_count,
                    void (*visit)(struct fw_item *item, void *context), void *context)
{
    struct visiting visiting = {.visit = visit, .context = context};
    return go_round(local, cursor, bucket_count, visit_entry, &visiting);
}

uint64_t fw_table_cursor_of(const struct fw_table_local *local, const struct fw_item *item)
{
    return reverse(fw_hash(item->key, item->key_length, local->table->seed));
}

void fw_table_flush_below(struct fw_table_local *local, uint64_t number)
{
    struct fw_table *table = local->table;
    /* Relaxed, both: nothing else comes with them. Another flush may have been faster. */
    uint64_t flushed = atomic_load_explicit(&table->flushed, memory_order_relaxed);
    while (flushed < number &&
           !atomic_compare_exchange_weak_explicit(&table->flushed, &flushed, number,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

void fw_table_keep_expired(struct fw_table *table, bool keeps)
{
    /* Relaxed: see fw_local_may_reclaim(). */
    atomic_store_explicit(&table->keeps_expired, keeps, memory_order_relaxed);
}

void fw_table_keep_items(struct fw_table *table, bool keeps)
{
    uint64_t slack =
        fw_table_memory(table) / SLACK_OF + (uint64_t)SLACK_SEGMENTS * table->arena.segment_size;
    /* Relaxed, both: see fw_table_evicts(). Else fw_local_tend() takes it back by and by. */
    if (keeps && table->is_evicting) {
        atomic_store_explicit(&table->budget.slack, slack, memory_order_relaxed);
    }
    atomic_store_explicit(&table->keeps_items, keeps, memory_order_relaxed);
}

void fw_table_local_see_expired(struct fw_table_local *local, bool sees)
{
    local->sees_expired = sees;
}

void fw_table_note_later(struct fw_table_local *local)
{
    struct fw_changes *changes = &local->table->changes;
    local->noted++;
    /* As in fw_table_flush(). */
    atomic_thread_fence(memory_order_seq_cst);
    if (fw_changes_wants(changes, FW_CHANGES_ON)) {
        fw_changes_append(changes, FW_CHANGE_LATER, 0, "", 0);
    }
}

void fw_table_flush(struct fw_table_local *local)
{
    struct fw_table *table = local->table;
    uint64_t number = fw_table_number(table);
    fw_table_flush_below(local, number);
    local->noted++;
    /*
     * Flushed first, looked then; who begins to replicate says so first and looks then, at all
     * items: so one of the two sees the other.
     */
    atomic_thread_fence(memory_order_seq_cst);
    if (fw_changes_wants(&table->changes, FW_CHANGES_ON)) {
        fw_changes_append(&table->changes, FW_CHANGE_FLUSH, number, "", 0);
    }
}

uint64_t fw_table_note_used_up(struct fw_table *table, uint64_t number)
{
    /* Relaxed: who sees it late gives some more of the numbers that are kept for that. */
    atomic_store_explicit(&table->is_used_up, true, memory_order_relaxed);
    return number < FW_ITEM_NUMBER_END ? number : FW_ITEM_NUMBER_END - 1;
}

bool fw_table_is_used_up(const struct fw_table *table)
{
    return atomic_load_explicit(&table->is_used_up, memory_order_relaxed);
}

void fw_table_take_numbers(struct fw_table *table, uint64_t number)
{
    uint64_t wanted = number < FW_ITEM_NUMBER_END - 1 ? number + 1 : FW_ITEM_NUMBER_END - 1;
    /* Relaxed: as in fw_table_next(). */
    uint64_t next = atomic_load_explicit(&table->next, memory_order_relaxed);
    while (next < wanted &&
           !atomic_compare_exchange_weak_explicit(&table->next, &next, wanted, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
    if (wanted >= FW_ITEM_NUMBER_END - FW_ITEM_NUMBERS_KEPT) {
        (void)fw_table_note_used_up(table, wanted);
    }
}

uint64_t fw_table_number(struct fw_table *table)
{
    /* Adds nothing, but unlike a load sees the last number that was given. */
    uint64_t number = atomic_fetch_add_explicit(&table->next, 0, memory_order_relaxed);
    return number < FW_ITEM_NUMBER_END ? number : FW_ITEM_NUMBER_END - 1;
}

static void clear_entry(struct fw_table_local *local, struct fw_bucket *bucket,
                        struct fw_slot *slot, void *context)
{
    (void)context;
    fw_local_bury(local, fw_local_item(local, fw_bucket_entry(slot)));
    fw_bucket_remove(&local->table->buckets, bucket, slot, &local->stash);
}

bool fw_table_clear(struct fw_table_local *local, uint64_t *cursor, uint32_t bucket_count)
{
    bool is_round = go_round(local, cursor, bucket_count, clear_entry, NULL);
    if (is_round) {
        /* Relaxed: there is nothing left that it could say anything about. */
        atomic_store_explicit(&local->table->flushed, 0, memory_order_relaxed);
    }
    fw_local_tend(local);
    return is_round;
}

struct fw_changes *fw_table_changes(struct fw_table *table)
{
    return &table->changes;
}
