/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleaning a segment: what is alive in it is moved or dropped, then it is free.
 *
 * Which items are dropped follows the ageing counters. A new item has age 1, or 0 if its key was
 * dropped not long ago; an access makes it 0; each sweep, and each time that cleaning lets it live,
 * raises it. An item of age 0 is kept. In the queue of what came in, one that was ever read is kept
 * too: it goes to the main queue, where it has as long as that queue takes to come round to be read
 * again. All others are dropped.
 *
 * A segment that is mostly dead is only compacted: its items are moved whatever their age, since it
 * gives memory all the same.
 *
 * Should whole segments in a row be kept, the next is dropped as it is, or a cache whose items are
 * all read all the time would be copied round and round for every new one.
 */
#include <string.h>

#include "base/assert.h"
#include "cache/table_parts.h"

enum {
    BARREN_MAX = 4,
    BARREN_SURVIVED = FW_SEGMENT_SIZE / 8 * 7,
};

static bool clean_begin(struct fw_table_local *local)
{
    struct fw_table *table = local->table;
    struct fw_cleaning *cleaning = &local->cleaning;
    struct fw_segment *segment = fw_arena_victim(&table->arena, table->is_evicting);
    if (segment == NULL) {
        return false;
    }
    cleaning->segment = segment;
    cleaning->survived = 0;
    cleaning->next = fw_arena_memory(&table->arena, segment);
    if (cleaning->next == table->arena.records.memory) {
        cleaning->next += 1 << FW_PLACE_SHIFT; /* Place 0 is no record's. */
    }
    /* Relaxed: it is a guess about the best use of the segment. */
    uint32_t dead = atomic_load_explicit(&segment->dead, memory_order_relaxed);
    cleaning->is_compacting = !table->is_evicting || dead >= FW_SEGMENT_SIZE / 2;
    return true;
}

static bool clean_keeps(const struct fw_table_local *local, const struct fw_item *item)
{
    const struct fw_cleaning *cleaning = &local->cleaning;
    if (cleaning->is_compacting) {
        return true;
    }
    if (cleaning->barren >= BARREN_MAX) {
        return false;
    }
    bool was_read = (item->bits & FW_ITEM_FETCHED) != 0;
    return (item->bits & FW_ITEM_AGE) == 0 || (item->bits & FW_ITEM_LOCKED) != 0 ||
           (cleaning->segment->queue == FW_PROBATION && was_read);
}

static void clean_evict(struct fw_table_local *local, struct fw_bucket *bucket,
                        _Atomic uint64_t *entry, uint64_t hash)
{
    struct fw_table *table = local->table;
    const struct fw_item *item = fw_local_item(local, fw_bucket_entry(entry));
    fw_local_count(&local->counts.evictions, 1);
    if ((item->bits & FW_ITEM_FETCHED) == 0) {
        fw_local_count(&local->counts.evicted_unread, 1);
    }
    fw_local_bury(local, item);
    fw_bucket_remove(&table->buckets, bucket, entry, &local->stash);
    fw_ghost_add(&table->ghosts, hash);
}

static void clean_move(struct fw_table_local *local, _Atomic uint64_t *entry, enum fw_queue queue)
{
    struct fw_table *table = local->table;
    uint64_t value = fw_bucket_entry(entry);
    const struct fw_item *item = fw_local_item(local, value);
    size_t size = fw_item_room(item);
    struct fw_log *log = &local->logs[queue];
    struct fw_item *copy = fw_log_take(log, size);
    memcpy(copy, item, size);
    uint8_t age = copy->bits & FW_ITEM_AGE;
    if (age < FW_ITEM_AGE_MAX && !local->cleaning.is_compacting) {
        copy->bits = (uint8_t)((copy->bits & ~FW_ITEM_AGE) | (age + 1));
    }
    if ((copy->bits & FW_ITEM_BODY) != 0) {
        log->bodies += copy->value_length;
    }
    local->cleaning.survived += (uint32_t)size;
    fw_bucket_entry_set(entry, (value & ~FW_PLACE_MASK) | fw_arena_place(&table->arena, copy));
}

/*
 * One record, alive or not; its size is returned. 0: it is alive, has to be kept, and there is no
 * room to move it to.
 */
static size_t clean_record(struct fw_table_local *local, const struct fw_item *item)
{
    struct fw_table *table = local->table;
    struct fw_cleaning *cleaning = &local->cleaning;
    /* Its lengths and its key are constant while it lies here, so no lock is needed to read them.
     */
    size_t size = fw_item_room(item);
    uint64_t hash = fw_hash(item->key, item->key_length, table->seed);
    bool stays = cleaning->is_compacting && cleaning->segment->queue == FW_PROBATION;
    enum fw_queue queue = stays ? FW_PROBATION : FW_MAIN;
    bool has_room = fw_local_log_open(local, queue, size, true);
    struct fw_bucket *bucket = fw_local_lock(local, hash);
    uint64_t value = fw_bucket_tag(hash) << FW_TAG_SHIFT | fw_arena_place(&table->arena, item);
    _Atomic uint64_t *entry = fw_bucket_find(&table->buckets, bucket, value);
    size_t done = size;
    if (entry == NULL) {
        ; /* It was dead. */
    } else if (fw_local_absence(local, item) != FW_ABSENT) {
        fw_local_reclaim(local, bucket, entry);
    } else if (has_room && clean_keeps(local, item)) {
        clean_move(local, entry, queue);
    } else if (table->is_evicting) {
        clean_evict(local, bucket, entry, hash);
    } else {
        done = 0;
    }
    fw_local_unlock(local, bucket);
    return done;
}

static void clean_end(struct fw_table_local *local)
{
    struct fw_cleaning *cleaning = &local->cleaning;
    bool is_barren = cleaning->survived >= BARREN_SURVIVED;
    cleaning->barren = is_barren ? cleaning->barren + 1 : 0;
    fw_arena_free(&local->table->arena, cleaning->segment);
    cleaning->segment = NULL;
}

bool fw_local_clean(struct fw_table_local *local, uint32_t record_count)
{
    struct fw_cleaning *cleaning = &local->cleaning;
    bool is_able = true;
    for (uint32_t i = 0; i < record_count && is_able; i++) {
        if (cleaning->segment == NULL && !clean_begin(local)) {
            is_able = false;
            break;
        }
        char *begin = fw_arena_memory(&local->table->arena, cleaning->segment);
        if (cleaning->next == begin + cleaning->segment->used) {
            clean_end(local);
            break; /* Perhaps that is enough. */
        }
        size_t size = clean_record(local, (const struct fw_item *)(void *)cleaning->next);
        cleaning->next += size;
        if (size == 0) {
            fw_arena_put_back(&local->table->arena, cleaning->segment);
            cleaning->segment = NULL;
            is_able = false;
        }
        if (local->dead_count > 0) {
            fw_local_drop_bodies(local);
        }
    }
    return is_able;
}
