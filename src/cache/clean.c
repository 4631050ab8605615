/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleaning a segment: what is alive in it is moved or dropped, then it is free.
 *
 * Which items are dropped follows the ageing counters: an access makes an item's age 0, and each
 * sweep raises it, up to 3. A new item has age 2, or 0 if its key was dropped not long ago
 * (ghost.h) or if it replaces another.
 *
 * In the queue of what came in, an item is kept that was read there or is younger than new; one
 * that is larger than the mean, only if both hold: it was read, and not long ago. What is kept goes
 * to the end of the main queue with age 3: it has to be read again. At the main queue's begin an
 * item is kept if it was read since and its age is not above 2; or 1, if it is larger than the
 * mean; or 0, if it is larger than two of those: the room of a large item would do for several
 * others, so it must be read more often. All others are dropped.
 *
 * Sweeps are not a matter of time. Cleaning itself raises the ages, some buckets for some records
 * of the main queue, three times while that queue comes round. So an age means the same whether
 * that takes a second or a day, and a table that is not full does not age.
 *
 * Which of the two queues is cleaned depends on what share of memory each should have: share.h.
 *
 * A segment that is hollow is only compacted: its items are moved whatever their age, since it
 * gives memory all the same. In a replica all are: only its master drops items. What the master
 * drops was written at about the same time, also here, so the segments of a replica become hollow
 * one after the other, and what was read of what is left moves to the main queue as it did at the
 * master.
 *
 * Should whole segments of the main queue be kept, one after the other, the next of them is dropped
 * as it is, or a cache whose items are all read all the time would be copied round and round for
 * every new one.
 */
#include <string.h>

#include "base/assert.h"
#include "cache/bucket.h"
#include "cache/table_parts.h"

enum {
    BARREN_MAX = 8,
    KEPT_AGE_MAX = 2,
    BATCH = 8,           /* Records whose buckets are fetched together. */
    AGED_MAX = 32,       /* Buckets whose items' ages are raised at once. */
    MEAN_OF = 256,       /* The mean size is that of about so many items. */
    SWEEPS_PER_TURN = 3, /* While the main queue comes round once. */
};

static bool clean_begin(struct fw_table_local *local, bool is_urgent)
{
    struct fw_table *table = local->table;
    struct fw_cleaning *cleaning = &local->cleaning;
    bool evicts = fw_table_evicts(table);
    enum fw_victim victim = evicts                            ? FW_VICTIM_OLDEST
                            : is_urgent && table->is_evicting ? FW_VICTIM_DEAD
                                                              : FW_VICTIM_HOLLOW;
    struct fw_segment *segment =
        fw_arena_victim(&table->arena, victim, fw_share_probation(&table->share));
    if (segment == NULL) {
        return false;
    }
    cleaning->segment = segment;
    cleaning->survived = 0;
    cleaning->next = fw_arena_memory(&table->arena, segment) + FW_SEGMENT_BEGIN;
    cleaning->is_compacting = !evicts || fw_arena_is_hollow(&table->arena, segment);
    return true;
}

static uint64_t clean_size(const struct fw_item *item)
{
    return fw_item_room(item) + fw_item_outside(item);
}

/*
 * By how many steps an item is larger than others: 1 above the mean, 2 above twice that. It is
 * worth its room only if it is read as much more often.
 */
static int clean_largeness(const struct fw_cleaning *cleaning, const struct fw_item *item)
{
    uint64_t size = clean_size(item) * MEAN_OF;
    return (size > cleaning->size_mean) + (size > 2 * cleaning->size_mean);
}

static bool clean_keeps(const struct fw_table_local *local, const struct fw_item *item)
{
    const struct fw_cleaning *cleaning = &local->cleaning;
    if (cleaning->is_compacting || (item->bits & FW_ITEM_LOCKED) != 0 ||
        !fw_table_evicts(local->table)) {
        return true;
    }
    int age = item->bits & FW_ITEM_AGE;
    int largeness = clean_largeness(cleaning, item);
    if (cleaning->segment->queue == FW_PROBATION) {
        bool is_young = age < FW_ITEM_AGE_NEW;
        bool was_read = (item->bits & FW_ITEM_FETCHED) != 0;
        return largeness > 0 ? is_young && was_read : is_young || was_read;
    }
    return cleaning->barren < BARREN_MAX && age <= KEPT_AGE_MAX - largeness;
}

static void clean_evict(struct fw_table_local *local, struct fw_bucket *bucket,
                        struct fw_slot *slot, uint64_t hash)
{
    struct fw_table *table = local->table;
    struct fw_item *item = fw_local_item(local, fw_bucket_entry(slot));
    fw_local_count(&local->counts.evictions, 1);
    if ((item->bits & FW_ITEM_FETCHED) == 0) {
        fw_local_count(&local->counts.evicted_unread, 1);
    }
    enum fw_queue queue = local->cleaning.segment->queue;
    local->noted++;
    if (fw_changes_wants(&table->changes, FW_CHANGES_ON)) {
        fw_changes_append(&table->changes,
                          queue == FW_MAIN ? FW_CHANGE_EVICTED_MAIN : FW_CHANGE_EVICTED,
                          fw_item_number(item), item->key, item->key_length);
    }
    fw_local_bury(local, item);
    fw_bucket_remove(&table->buckets, bucket, slot, &local->stash);
    uint64_t items = fw_table_items(table);
    fw_ghost_add(&table->ghosts, hash, queue, items);
    fw_share_drop(&table->share, queue, items);
}

/* Was it read since it came in, or known before? */
static bool clean_is_used(const struct fw_item *item)
{
    return (item->bits & FW_ITEM_FETCHED) != 0 || (item->bits & FW_ITEM_AGE) < FW_ITEM_AGE_NEW;
}

static void clean_move(struct fw_table_local *local, struct fw_slot *slot, uint64_t hash,
                       enum fw_queue queue)
{
    struct fw_table *table = local->table;
    const struct fw_item *item = fw_local_item(local, fw_bucket_entry(slot));
    size_t size = fw_item_room(item);
    struct fw_log *log = &local->logs[queue];
    struct fw_item *copy = fw_log_take(log, size);
    memcpy(copy, item, size);
    if (!local->cleaning.is_compacting) {
        copy->bits = (uint8_t)((copy->bits & ~FW_ITEM_AGE) | FW_ITEM_AGE_MAX);
    }
    log->bodies += fw_item_outside(copy);
    local->cleaning.survived += (uint32_t)size;
    uint64_t place = fw_arena_place(&table->arena, copy);
    fw_bucket_entry_set(slot, fw_buckets_entry(&table->buckets, hash, place));
    fw_arena_bury(&table->arena, fw_arena_place(&table->arena, item), size);
}

/*
 * One record, alive or not; its size is returned. 0: it is alive, has to be kept, and there is no
 * room to move it to.
 */
static size_t clean_record(struct fw_table_local *local, const struct fw_item *item, uint64_t hash)
{
    struct fw_table *table = local->table;
    size_t size = fw_item_room(item);
    /*
     * To the main log in any case: in the log that the local writes to, new records would fill the
     * room that those which are still to be moved will need.
     */
    bool has_room = fw_local_log_open(local, FW_MAIN, size, true);
    /* In a replica what the master has not judged yet stays among what came in, if it can. */
    bool may_stay = !fw_table_evicts(table) && local->cleaning.segment->queue == FW_PROBATION &&
                    fw_local_log_open(local, FW_PROBATION, size, false);
    struct fw_bucket *bucket = fw_local_lock(local, hash);
    uint64_t place = fw_arena_place(&table->arena, item);
    uint64_t entry = fw_buckets_entry(&table->buckets, hash, place);
    struct fw_slot *slot = fw_bucket_find(&table->buckets, bucket, entry);
    if (slot != NULL) {
        local->cleaning.size_mean += clean_size(item) - local->cleaning.size_mean / MEAN_OF;
    }
    size_t done = size;
    if (slot == NULL) {
        ; /* It was dead. */
    } else if (fw_local_may_reclaim(local, fw_local_absence(local, item))) {
        fw_local_reclaim(local, bucket, slot);
    } else if (has_room && clean_keeps(local, item)) {
        clean_move(local, slot, hash, may_stay && !clean_is_used(item) ? FW_PROBATION : FW_MAIN);
    } else if (fw_table_evicts(table)) {
        clean_evict(local, bucket, slot, hash);
    } else {
        done = 0;
    }
    fw_local_unlock(local, bucket);
    return done;
}

static void clean_end(struct fw_table_local *local)
{
    struct fw_cleaning *cleaning = &local->cleaning;
    struct fw_arena *arena = &local->table->arena;
    if (cleaning->segment->queue == FW_MAIN) {
        bool is_barren = cleaning->survived >= arena->segment_size / 8 * 7;
        cleaning->barren = is_barren ? cleaning->barren + 1 : 0;
    }
    fw_arena_free(arena, cleaning->segment);
    cleaning->segment = NULL;
}

/*
 * The hashes of the next records, whose buckets will be there by the time they are looked at. A
 * record's lengths and key are constant while it lies in a sealed segment: no lock is needed.
 */
static uint32_t clean_look_ahead(struct fw_table_local *local, uint64_t hashes[BATCH])
{
    const struct fw_table *table = local->table;
    const struct fw_cleaning *cleaning = &local->cleaning;
    const char *end = fw_arena_memory(&table->arena, cleaning->segment) + cleaning->segment->used;
    const char *next = cleaning->next;
    uint32_t count = 0;
    for (; count < BATCH && next < end; count++) {
        const struct fw_item *item = (const struct fw_item *)(const void *)next;
        struct fw_key key = fw_table_key(local, item->key, item->key_length);
        fw_table_prefetch(local, &key);
        hashes[count] = key.hash;
        next += fw_item_room(item);
    }
    FW_ASSERT(next <= end);
    return count;
}

/*
 * The main queue went on by some records: the ages of all items rise at a pace at which they are
 * met SWEEPS_PER_TURN times while it comes round. So age is told in turns of the queue, not in
 * seconds, and a table that is not full does not age.
 */
static void clean_raise_ages(struct fw_table_local *local, uint32_t record_count)
{
    struct fw_table *table = local->table;
    uint64_t buckets = fw_buckets_count(&table->buckets);
    uint64_t count = buckets * record_count * SWEEPS_PER_TURN / fw_table_items(table) + 1;
    fw_table_age(local, &local->cleaning.age_cursor,
                 (uint32_t)(count < AGED_MAX ? count : AGED_MAX));
}

enum clean_result { CLEAN_GOES_ON, CLEAN_ENOUGH, CLEAN_STUCK };

static enum clean_result clean_batch(struct fw_table_local *local)
{
    struct fw_cleaning *cleaning = &local->cleaning;
    uint64_t hashes[BATCH];
    uint32_t count = clean_look_ahead(local, hashes);
    if (count == 0) {
        clean_end(local);
        return CLEAN_ENOUGH;
    }
    if (cleaning->passed >= BATCH) {
        clean_raise_ages(local, cleaning->passed);
        cleaning->passed = 0;
    }
    bool is_turning = cleaning->segment->queue == FW_MAIN && !cleaning->is_compacting;
    for (uint32_t i = 0; i < count; i++) {
        const struct fw_item *item = (const struct fw_item *)(void *)cleaning->next;
        size_t size = clean_record(local, item, hashes[i]);
        cleaning->next += size;
        cleaning->passed += is_turning ? 1 : 0;
        if (size == 0) {
            fw_arena_put_back(&local->table->arena, cleaning->segment);
            cleaning->segment = NULL;
            return CLEAN_STUCK;
        }
        if (local->dead_count > 0) {
            fw_local_drop_bodies(local);
            return CLEAN_ENOUGH;
        }
    }
    return CLEAN_GOES_ON;
}

bool fw_local_clean(struct fw_table_local *local, uint32_t record_count, bool is_urgent)
{
    enum clean_result result = CLEAN_GOES_ON;
    for (uint32_t i = 0; i < record_count && result == CLEAN_GOES_ON; i += BATCH) {
        if (local->cleaning.segment == NULL && !clean_begin(local, is_urgent)) {
            return false;
        }
        result = clean_batch(local);
    }
    return result != CLEAN_STUCK;
}
