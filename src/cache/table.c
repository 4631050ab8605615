/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cache/bucket.h"
#include "cache/table_parts.h"

enum {
    CLEAN_STEP = 32,        /* Records looked at before asking again whether it was enough. */
    CLEAN_STEPS_MAX = 8192, /* For one reservation. */
    /* Buckets split at once, where FW_LOCAL_DUE items need 2, or merged, which is much cheaper. */
    SPLITS_MAX = 4,
    MERGES_MAX = 16,
    MEMORY_HEADROOM = 4, /* The limit can be raised to so many times what it was at first. */
    OPEN_SHARE = 16,     /* At most one part in so many of memory is in open segments' bodies. */
    OPEN_BODIES_MIN = 512 * 1024,
    RESERVED_MAX = FW_SEGMENT_SIZE_MAX / 4, /* In one go; half of a segment at the most. */
};
static_assert((int)FW_ITEM_AGE_MAX == (int)FW_ITEM_AGE, "an age is all of its bits");

/* The least with which a table works. */
#define MEMORY_MIN (UINT64_C(1) << 20)
#define MEMORY_MAX (UINT64_C(1) << FW_PLACE_BITS_MAX)

static int table_reserve_addresses(struct fw_table *table, struct fw_reason *reason)
{
    struct fw_budget *budget = &table->budget;
    int rc = fw_buckets_init(&table->buckets, budget, table->memory_max, reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_arena_init(&table->arena, budget, table->memory_max, reason);
    if (rc != 0) {
        goto fail_buckets;
    }
    rc = fw_bodies_init(&table->bodies, budget, table->memory_max, reason);
    if (rc != 0) {
        goto fail_arena;
    }
    return 0;

fail_arena:
    fw_arena_fini(&table->arena);
fail_buckets:
    fw_buckets_fini(&table->buckets);
    return rc;
}

static int table_make_ghosts(struct fw_table *table, uint64_t memory, struct fw_reason *reason)
{
    size_t size = memory / FW_GHOST_MEMORY_SHARE / fw_range_unit() * fw_range_unit();
    size = size > 0 ? size : fw_range_unit();
    int rc = fw_range_reserve(&table->ghosts.range, size, FW_RANGE_SMALL, reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_range_enable(&table->ghosts.range, 0, size);
    if (rc != 0) {
        fw_range_release(&table->ghosts.range);
        return fw_reason_errno(reason, rc, "no memory to remember dropped keys");
    }
    table->ghosts.count = size / sizeof(uint16_t);
    atomic_init(&table->ghosts.era, 1);
    /* With all segments' descriptions: small, touched sooner or later, never given back. */
    uint64_t managing = size + (memory >> table->arena.segment_shift) * sizeof(struct fw_segment);
    bool can = fw_budget_charge(&table->budget, managing, 0);
    FW_ASSERT(can);
    return 0;
}

int fw_table_create(struct fw_table **table, const struct fw_table_config *config,
                    struct fw_reason *reason)
{
    if (config->memory < MEMORY_MIN || config->memory > MEMORY_MAX) {
        return fw_reason_set(reason, -EINVAL, "the memory limit must be 1 MiB to 1 TiB");
    }
    struct fw_table *made = aligned_alloc(alignof(struct fw_table), sizeof *made);
    if (made == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "no memory for a table");
    }
    memset(made, 0, sizeof *made);
    made->seed = config->seed;
    made->is_evicting = config->is_evicting;
    made->large = config->large;
    made->erases = config->erases;
    int rc = -ENOMEM;
    /* Where addresses are limited the table does with less: the limit cannot be raised then. */
    for (uint64_t headroom = MEMORY_HEADROOM; rc != 0 && headroom > 0; headroom /= 2) {
        atomic_store_explicit(&made->budget.limit, config->memory, memory_order_relaxed);
        atomic_store_explicit(&made->budget.used, 0, memory_order_relaxed);
        made->memory_max =
            config->memory * headroom < MEMORY_MAX ? config->memory * headroom : MEMORY_MAX;
        rc = table_reserve_addresses(made, reason);
    }
    if (rc != 0) {
        goto fail_table;
    }
    rc = table_make_ghosts(made, config->memory, reason);
    if (rc != 0) {
        goto fail_addresses;
    }
    made->arena.erases = config->erases;
    fw_share_init(&made->share);
    fw_mutex_init(&made->lock, FW_RANK_TABLE_LOCALS);
    fw_list_init(&made->locals);
    atomic_init(&made->next, 1);
    fw_changes_init(&made->changes);
    *table = made;
    return 0;

fail_addresses:
    fw_bodies_fini(&made->bodies);
    fw_arena_fini(&made->arena);
    fw_buckets_fini(&made->buckets);
fail_table:
    free(made);
    return rc;
}

void fw_table_destroy(struct fw_table *table)
{
    FW_ASSERT(fw_list_is_empty(&table->locals));
    fw_mutex_fini(&table->lock);
    fw_changes_fini(&table->changes);
    fw_range_release(&table->ghosts.range);
    fw_bodies_fini(&table->bodies);
    fw_arena_fini(&table->arena);
    fw_buckets_fini(&table->buckets);
    free(table);
}

int fw_table_set_memory(struct fw_table *table, uint64_t memory)
{
    if (memory < MEMORY_MIN || memory > table->memory_max) {
        return -EINVAL;
    }
    /* Relaxed: everyone sees it soon, and nothing else comes with it. */
    atomic_store_explicit(&table->budget.limit, memory, memory_order_relaxed);
    return 0;
}

uint64_t fw_table_memory(const struct fw_table *table)
{
    return atomic_load_explicit(&table->budget.limit, memory_order_relaxed);
}

int fw_table_local_create(struct fw_table_local **local, struct fw_table *table)
{
    struct fw_table_local *made = aligned_alloc(alignof(struct fw_table_local), sizeof *made);
    if (made == NULL) {
        return -ENOMEM;
    }
    memset(made, 0, sizeof *made);
    made->table = table;
    made->bodies_max = OPEN_BODIES_MIN;
    fw_mutex_init(&made->held, FW_RANK_BUCKET);
    fw_mutex_lock(&table->lock);
    fw_list_push_back(&table->locals, &made->link);
    /* Relaxed, here and below: see the member. */
    (void)atomic_fetch_add_explicit(&table->local_count, 1, memory_order_relaxed);
    fw_mutex_unlock(&table->lock);
    *local = made;
    return 0;
}

static void counts_move(struct fw_table_counts *to, struct fw_table_counts *from)
{
    fw_local_gauge(&to->items, atomic_load_explicit(&from->items, memory_order_relaxed));
    fw_local_gauge(&to->bytes, atomic_load_explicit(&from->bytes, memory_order_relaxed));
    fw_local_count(&to->total_items,
                   atomic_load_explicit(&from->total_items, memory_order_relaxed));
    fw_local_count(&to->evictions, atomic_load_explicit(&from->evictions, memory_order_relaxed));
    fw_local_count(&to->evicted_unread,
                   atomic_load_explicit(&from->evicted_unread, memory_order_relaxed));
    fw_local_count(&to->expired_unread,
                   atomic_load_explicit(&from->expired_unread, memory_order_relaxed));
    fw_local_count(&to->reclaimed, atomic_load_explicit(&from->reclaimed, memory_order_relaxed));
}

static void log_seal(struct fw_table_local *local, enum fw_queue queue)
{
    struct fw_log *log = &local->logs[queue];
    struct fw_arena *arena = &local->table->arena;
    if (log->segment != NULL) {
        uint32_t used = (uint32_t)(log->next - fw_arena_memory(arena, log->segment));
        fw_arena_seal(arena, log->segment, queue, used);
    }
    *log = (struct fw_log){.segment = NULL};
}

void fw_table_local_destroy(struct fw_table_local *local)
{
    struct fw_table *table = local->table;
    FW_ASSERT(local->dead_count == 0);
    if (local->cleaning.segment != NULL) {
        fw_arena_put_back(&table->arena, local->cleaning.segment);
    }
    for (enum fw_queue queue = 0; queue < FW_QUEUES; queue++) {
        log_seal(local, queue);
    }
    fw_buckets_stash_trim(&table->buckets, &local->stash, 0);
    (void)atomic_fetch_add_explicit(&table->items, local->changes, memory_order_relaxed);
    fw_mutex_lock(&table->lock);
    fw_list_remove(&local->link);
    (void)atomic_fetch_sub_explicit(&table->local_count, 1, memory_order_relaxed);
    counts_move(&table->retired, &local->counts);
    fw_mutex_unlock(&table->lock);
    fw_mutex_fini(&local->held);
    free(local);
}

void fw_table_totals(struct fw_table *table, struct fw_table_totals *totals)
{
    struct fw_table_counts sum = {.items = 0};
    fw_mutex_lock(&table->lock);
    counts_move(&sum, &table->retired);
    FW_LIST_FOR_EACH (&table->locals, struct fw_table_local, link, local) {
        counts_move(&sum, &local->counts);
    }
    fw_mutex_unlock(&table->lock);
    int64_t items = sum.items;
    int64_t bytes = sum.bytes;
    *totals = (struct fw_table_totals){
        .items = items > 0 ? (uint64_t)items : 0, /* One local was asked before the other. */
        .bytes = bytes > 0 ? (uint64_t)bytes : 0,
        .total_items = sum.total_items,
        .evictions = sum.evictions,
        .evicted_unread = sum.evicted_unread,
        .expired_unread = sum.expired_unread,
        .reclaimed = sum.reclaimed,
        .memory_limit = atomic_load_explicit(&table->budget.limit, memory_order_relaxed),
        .memory_used = atomic_load_explicit(&table->budget.used, memory_order_relaxed),
        .buckets = fw_buckets_count(&table->buckets),
    };
}

void fw_table_local_set_now(struct fw_table_local *local, uint32_t now)
{
    local->now = now;
}

uint32_t fw_table_local_now(const struct fw_table_local *local)
{
    return local->now;
}

struct fw_key fw_table_key(const struct fw_table_local *local, const char *bytes, size_t length)
{
    FW_ASSERT(length > 0 && length <= FW_ITEM_KEY_MAX);
    return (struct fw_key){.bytes = bytes,
                           .hash = fw_hash(bytes, length, local->table->seed),
                           .length = (uint32_t)length};
}

void fw_table_prefetch(const struct fw_table_local *local, const struct fw_key *key)
{
    const struct fw_buckets *buckets = &local->table->buckets;
    uint64_t index = fw_bucket_index(key->hash, fw_buckets_count(buckets));
    __builtin_prefetch(fw_bucket_at(buckets, index), 1);
}

void fw_table_prefetch_item(const struct fw_table_local *local, const struct fw_key *key)
{
    const struct fw_buckets *buckets = &local->table->buckets;
    uint64_t index = fw_bucket_index(key->hash, fw_buckets_count(buckets));
    struct fw_bucket *bucket = fw_bucket_at(buckets, index);
    uint32_t matches = fw_buckets_match(buckets, bucket, key->hash);
    if (FW_LIKELY(matches != 0)) {
        /* Whatever it is by now: fetching an address that is wrong does no harm. */
        uint64_t entry = fw_bucket_entry_at(bucket, fw_matches_take(&matches));
        const char *record = (const char *)fw_local_item(local, entry);
        __builtin_prefetch(record, 1);
        __builtin_prefetch(record + FW_CACHE_LINE);
    }
}

bool fw_table_erases(const struct fw_table_local *local)
{
    return local->table->erases;
}

struct fw_large *fw_table_large(const struct fw_table *table)
{
    return table->large;
}

/* Memory. */

bool fw_local_log_open(struct fw_table_local *local, enum fw_queue queue, size_t size,
                       bool is_cleaner)
{
    struct fw_log *log = &local->logs[queue];
    if ((size_t)(log->end - log->next) >= size && log->bodies <= local->bodies_max) {
        return true;
    }
    struct fw_arena *arena = &local->table->arena;
    struct fw_segment *segment = fw_arena_take(arena, is_cleaner);
    if (segment == NULL) {
        return false;
    }
    log_seal(local, queue);
    log->segment = segment;
    char *memory = fw_arena_memory(arena, segment);
    log->next = memory + FW_SEGMENT_BEGIN;
    log->end = memory + arena->segment_size;
    return true;
}

static uint64_t entry_hash(void *context, uint64_t entry)
{
    const struct fw_table_local *local = context;
    const struct fw_item *item = fw_local_item(local, entry);
    return fw_hash(item->key, item->key_length, local->table->seed);
}

/* One step towards the size that the table should have. False: that is the size, or not now. */
static bool local_resize(struct fw_table_local *local, int64_t items)
{
    struct fw_table *table = local->table;
    struct fw_buckets *buckets = &table->buckets;
    int64_t count = (int64_t)fw_buckets_count(buckets);
    if (items > count * FW_BUCKET_LOAD) {
        int rc = fw_buckets_split(buckets, &local->stash, entry_hash, local);
        if (rc == -ENOMEM) {
            /* Buckets go before records: without them every item would be hard to find. */
            return fw_arena_release(&table->arena, 0) || fw_local_clean(local, CLEAN_STEP, true);
        }
        return rc == 0;
    }
    if (items < count * FW_BUCKET_LOAD_LOW && count > FW_BUCKETS_MIN) {
        return fw_buckets_stash_fill(buckets, &local->stash, 1) &&
               fw_buckets_merge(buckets, &local->stash) == 0;
    }
    return false;
}

/* Makes some memory free, or tries. False: there is no hope. */
static bool memory_make(struct fw_table_local *local)
{
    return fw_bodies_release(&local->table->bodies) || fw_local_clean(local, CLEAN_STEP, true);
}

/*
 * It was a replica's, and has more than its limit. What it may have is lowered by steps, as memory
 * is given back: at once there would be no room for what cleaning keeps, and all would be dropped.
 */
static void local_shrink(struct fw_table_local *local)
{
    struct fw_table *table = local->table;
    struct fw_budget *budget = &table->budget;
    uint64_t limit = fw_table_memory(table);
    /* Relaxed, all: as in budget.h. */
    uint64_t used = atomic_load_explicit(&budget->used, memory_order_relaxed);
    uint64_t spare = (uint64_t)FW_ARENA_SPARE * table->arena.segment_size;
    uint64_t needed = used > limit ? used - limit + spare : 0;
    if (needed < atomic_load_explicit(&budget->slack, memory_order_relaxed)) {
        atomic_store_explicit(&budget->slack, needed, memory_order_relaxed);
    }
    if (needed > 0) {
        (void)(fw_arena_release(&table->arena, FW_ARENA_SPARE) || memory_make(local));
    }
}

void fw_local_tend(struct fw_table_local *local)
{
    struct fw_table *table = local->table;
    local->due = 0;
    /* Relaxed: the size of the table follows the number of items, about. */
    int64_t items = local->changes +
                    atomic_fetch_add_explicit(&table->items, local->changes, memory_order_relaxed);
    local->changes = 0;
    int64_t count = (int64_t)fw_buckets_count(&table->buckets);
    uint32_t steps = items > count * FW_BUCKET_LOAD ? SPLITS_MAX : MERGES_MAX;
    for (uint32_t i = 0; i < steps && local_resize(local, items); i++) {
    }
    if (local->stash.count > 4 * FW_LOCAL_STASH) {
        fw_buckets_stash_trim(&table->buckets, &local->stash, FW_LOCAL_STASH);
    }
    /* Relaxed: hints both. */
    uint64_t limit = atomic_load_explicit(&table->budget.limit, memory_order_relaxed);
    uint64_t locals = atomic_load_explicit(&table->local_count, memory_order_relaxed);
    local->bodies_max = limit / OPEN_SHARE / locals;
    if (local->bodies_max < OPEN_BODIES_MIN) {
        local->bodies_max = OPEN_BODIES_MIN;
    }
    if (FW_UNLIKELY(fw_budget_has_slack(&table->budget) && fw_table_evicts(table))) {
        local_shrink(local);
    } else if (fw_budget_is_exceeded(&table->budget)) {
        (void)(fw_arena_release(&table->arena, 0) || memory_make(local));
    } else if (table->is_evicting && fw_arena_is_short(&table->arena)) {
        (void)(fw_bodies_release_unused(&table->bodies) ||
               fw_local_clean(local, CLEAN_STEP, false));
    }
}

static bool reserve_slowly(struct fw_table_local *local, size_t size)
{
    struct fw_table *table = local->table;
    for (uint32_t steps = 0; steps < CLEAN_STEPS_MAX; steps++) {
        if (local->stash.count == 0) {
            (void)fw_buckets_stash_fill(&table->buckets, &local->stash, FW_LOCAL_STASH);
        }
        bool has_stash = local->stash.count > 0;
        if (has_stash && fw_local_log_open(local, FW_PROBATION, size, false)) {
            return true;
        }
        if (!has_stash && fw_arena_release(&table->arena, 0)) {
            continue;
        }
        if (!memory_make(local)) {
            return false;
        }
    }
    return false;
}

bool fw_table_reserve(struct fw_table_local *local, size_t size)
{
    FW_ASSERT(size <= RESERVED_MAX);
    const struct fw_log *log = &local->logs[FW_PROBATION];
    if (FW_LIKELY((size_t)(log->end - log->next) >= size && log->bodies <= local->bodies_max &&
                  local->stash.count > 0)) {
        return true;
    }
    return reserve_slowly(local, size);
}

bool fw_body_fits(const struct fw_table_local *local, uint32_t length)
{
    const struct fw_table *table = local->table;
    /* Relaxed: the limit stands alone. */
    uint64_t limit = atomic_load_explicit(&table->budget.limit, memory_order_relaxed);
    return length <= FW_BODY_LENGTH_MAX && fw_bodies_size(&table->bodies, length) <= limit / 4 * 3;
}

struct fw_body *fw_body_create(struct fw_table_local *local, uint32_t length)
{
    FW_ASSERT(length > FW_ITEM_INLINE_MAX);
    return fw_local_body(local, length);
}

struct fw_body *fw_local_body(struct fw_table_local *local, uint32_t length)
{
    struct fw_table *table = local->table;
    if (!fw_body_fits(local, length)) {
        return NULL; /* Without dropping everything else first. */
    }
    bool was_sealed = false;
    for (uint32_t steps = 0; steps < CLEAN_STEPS_MAX; steps++) {
        struct fw_body *body = fw_bodies_take(&table->bodies, length);
        if (body != NULL) {
            return body;
        }
        if (fw_arena_release(&table->arena, FW_ARENA_SPARE) || memory_make(local)) {
            continue;
        }
        if (was_sealed) {
            return NULL;
        }
        /* A few large values may be all there is, and all in here. */
        for (enum fw_queue queue = 0; queue < FW_QUEUES; queue++) {
            log_seal(local, queue);
        }
        was_sealed = true;
    }
    return NULL;
}

struct fw_body *fw_body_ref(struct fw_body *body)
{
    /* Relaxed: the caller has a reference already, or the lock of an item that has. */
    uint32_t before = atomic_fetch_add_explicit(&body->references, 1, memory_order_relaxed);
    FW_ASSERT(before > 0);
    return body;
}

void fw_body_unref(struct fw_table_local *local, struct fw_body *body)
{
    /* Release what we did with it, for the acquire of who frees it. */
    uint32_t before = atomic_fetch_sub_explicit(&body->references, 1, memory_order_acq_rel);
    FW_ASSERT(before > 0);
    if (before == 1) {
        if (FW_UNLIKELY(body->is_stored)) {
            fw_large_forget(local->table->large, body);
        }
        if (FW_UNLIKELY(local->table->erases)) {
            memset(body->bytes, 0, body->room);
        }
        fw_bodies_free(&local->table->bodies, body);
    }
}

void fw_local_drop_bodies(struct fw_table_local *local)
{
    while (local->dead_count > 0) {
        fw_body_unref(local, local->dead[--local->dead_count]);
    }
}

/* Holds. */

struct fw_bucket *fw_local_lock(struct fw_table_local *local, uint64_t hash)
{
    struct fw_bucket *bucket = fw_buckets_lock(&local->table->buckets, hash);
#if defined(FW_CHECKS)
    /* Who takes a mutex from here on breaks the lock order. */
    struct fw_thread_state *self = fw_thread_self();
    FW_ASSERT(self->held_last == NULL || self->held_last->rank < FW_RANK_BUCKET);
    local->held.held_before = self->held_last;
    self->held_last = &local->held;
#endif
    return bucket;
}

void fw_local_unlock(struct fw_table_local *local, struct fw_bucket *bucket)
{
#if defined(FW_CHECKS)
    struct fw_thread_state *self = fw_thread_self();
    FW_ASSERT(self->held_last == &local->held);
    self->held_last = local->held.held_before;
#else
    (void)local;
#endif
    fw_bucket_unlock(bucket);
}

/* The value of a record that is dead; its length and its key are still wanted by cleaners. */
static void record_erase(struct fw_item *item)
{
    memset(fw_item_value(item), 0, item->tail_length);
}

/* All but erasing. */
static void local_count_dead(struct fw_table_local *local, const struct fw_item *item)
{
    struct fw_table *table = local->table;
    size_t size = fw_item_room(item);
    int64_t bytes = (int64_t)size;
    fw_arena_bury(&table->arena, fw_arena_place(&table->arena, item), size);
    if ((item->bits & FW_ITEM_BODY) != 0) {
        bytes += fw_item_outside(item);
        FW_ASSERT(local->dead_count < FW_DEAD_BODIES_MAX);
        local->dead[local->dead_count++] = fw_item_body(item);
    }
    fw_local_gauge(&local->counts.items, -1);
    fw_local_gauge(&local->counts.bytes, -bytes);
    local->changes--;
    local->due++;
}

void fw_local_bury(struct fw_table_local *local, struct fw_item *item)
{
    local_count_dead(local, item);
    if (FW_UNLIKELY(local->table->erases)) {
        record_erase(item);
    }
}

void fw_local_reclaim(struct fw_table_local *local, struct fw_bucket *bucket, struct fw_slot *slot)
{
    struct fw_item *item = fw_local_item(local, fw_bucket_entry(slot));
    fw_local_count(&local->counts.reclaimed, 1);
    if ((item->bits & FW_ITEM_FETCHED) == 0) {
        fw_local_count(&local->counts.expired_unread, 1);
    }
    bool is_expired = fw_local_absence(local, item) == FW_ABSENT_EXPIRED;
    uint32_t who = (uint32_t)FW_CHANGES_RECLAIMED | (is_expired ? FW_CHANGES_EXPIRED : 0);
    /* Not as a change of the client that met it: its reply need not wait for slaves. */
    if (fw_changes_wants(&local->table->changes, who)) {
        fw_changes_append(&local->table->changes, FW_CHANGE_KEY, 0, item->key, item->key_length);
    }
    fw_local_bury(local, item);
    fw_bucket_remove(&local->table->buckets, bucket, slot, &local->stash);
}

/* The item of the key, alive or not, and its slot; NULL: there is none. */
static struct fw_item *bucket_search(struct fw_table_local *local, struct fw_bucket *bucket,
                                     const struct fw_key *key, struct fw_slot **slot)
{
    for (;;) {
        uint32_t matches = fw_buckets_match(&local->table->buckets, bucket, key->hash);
        while (matches != 0) {
            uint32_t i = fw_matches_take(&matches);
            if (FW_UNLIKELY(!fw_bucket_has(bucket, i))) {
                continue;
            }
            struct fw_item *item = fw_local_item(local, fw_bucket_entry_at(bucket, i));
            /* All of it, or most, while the key is still on its way to be compared. */
            __builtin_prefetch((const char *)item + FW_CACHE_LINE);
            __builtin_prefetch((const char *)item + (size_t)2 * FW_CACHE_LINE);
            __builtin_prefetch((const char *)item + (size_t)2 * FW_CACHE_LINE + FW_CACHE_LINE / 2);
            if (item->key_length == key->length &&
                memcmp(item->key, key->bytes, key->length) == 0) {
                *slot = &bucket->slots[i];
                return item;
            }
        }
        uint32_t link = fw_bucket_link(bucket);
        if (FW_LIKELY(link == 0)) {
            return NULL;
        }
        bucket = fw_bucket_overflow(&local->table->buckets, link);
    }
}

void fw_table_hold(struct fw_table_local *local, struct fw_hold *hold, const struct fw_key *key)
{
    struct fw_bucket *bucket = fw_local_lock(local, key->hash);
    *hold = (struct fw_hold){.local = local, .key = key, .bucket = bucket};
    struct fw_item *item = bucket_search(local, bucket, key, &hold->slot);
    if (item == NULL) {
        return;
    }
    hold->absence = fw_local_absence(local, item);
    if (FW_LIKELY(hold->absence == FW_ABSENT)) {
        hold->item = item;
    } else if (FW_UNLIKELY(!fw_local_may_reclaim(local, hold->absence))) {
        hold->slot = NULL; /* A reader's hold: nobody writes to a replica but who sees it. */
    } else {
        /* One that was read, and is asked for again, will be written again: it is still in use. */
        bool is_used = hold->absence == FW_ABSENT_EXPIRED && (item->bits & FW_ITEM_FETCHED) != 0;
        fw_local_reclaim(local, bucket, hold->slot);
        hold->slot = NULL;
        if (is_used) {
            fw_ghost_add(&local->table->ghosts, key->hash, FW_MAIN, fw_table_items(local->table));
        }
    }
}

void fw_hold_release(struct fw_hold *hold)
{
    struct fw_table_local *local = hold->local;
    if (FW_UNLIKELY(hold->buried != NULL)) {
        record_erase(hold->buried);
    }
    fw_local_unlock(local, hold->bucket);
    hold->bucket = NULL;
    hold->item = NULL;
    if (FW_UNLIKELY(local->dead_count > 0)) {
        fw_local_drop_bodies(local);
    }
    if (FW_UNLIKELY(local->due >= FW_LOCAL_DUE)) {
        fw_local_tend(local);
    }
}

static void fields_clear(struct fw_item *item)
{
    if (FW_UNLIKELY(item->fields != 0)) {
        memset(item->key + item->key_length, 0, fw_fields_size(item->fields));
    }
}

/* A record in place of the item's, if there is one. */
static void hold_place(struct fw_hold *hold, struct fw_item *item)
{
    struct fw_table_local *local = hold->local;
    struct fw_table *table = local->table;
    uint64_t place = fw_arena_place(&table->arena, item);
    uint64_t entry = fw_buckets_entry(&table->buckets, hold->key->hash, place);
    if (hold->item != NULL) {
        fw_bucket_entry_set(hold->slot, entry);
    } else {
        hold->slot = fw_bucket_insert(&table->buckets, hold->bucket, entry, &local->stash);
    }
    hold->item = item;
    local->due++;
}

/*
 * The number of a write to what is held. If that was flushed since the hold began, the write was
 * before the flush: a new number would bring back, as changed, what the flush has taken.
 */
static uint64_t hold_number(const struct fw_hold *hold)
{
    struct fw_table *table = hold->local->table;
    uint64_t number = fw_table_next(table);
    bool is_late = hold->item != NULL && fw_table_has_flushed(table, hold->item);
    return FW_UNLIKELY(is_late) ? fw_item_number(hold->item) : number;
}

/*
 * Is the key in use? One that is written again is, and so is one that was missed not long after it
 * was dropped; if it was dropped only a moment ago, that also says which queue was too short.
 */
static bool hold_is_young(const struct fw_hold *hold)
{
    struct fw_table *table = hold->local->table;
    if (hold->item != NULL) {
        return true;
    }
    uint64_t items = fw_table_items(table);
    bool is_recent;
    enum fw_queue queue = fw_ghost_take(&table->ghosts, hold->key->hash, items, &is_recent);
    if (queue == FW_QUEUES) {
        return false;
    }
    if (is_recent) {
        fw_share_miss(&table->share, queue, items);
    }
    return true;
}

/* A new record in place of the old one, if there is one, with all but the value. */
static struct fw_item *hold_renew(struct fw_hold *hold, uint32_t value_length, uint8_t fields)
{
    struct fw_table_local *local = hold->local;
    struct fw_table *table = local->table;
    const struct fw_key *key = hold->key;
    fields |= table->is_evicting ? 0 : FW_ITEM_EXPIRES; /* See fw_table_hold_to_expire(). */
    size_t size = fw_item_size(key->length, value_length, fields);
    struct fw_item *item = fw_log_take(&local->logs[FW_PROBATION], size);
    item->bits = hold_is_young(hold) ? 0 : FW_ITEM_AGE_NEW;
    item->fields = fields;
    item->key_length = (uint8_t)key->length;
    item->tail_length =
        (uint16_t)(value_length > FW_ITEM_INLINE_MAX ? sizeof(void *) : value_length);
    memcpy(item->key, key->bytes, key->length);
    fields_clear(item);
    fw_item_set_number(item, hold_number(hold));
    fw_item_set_accessed(item, local->now);
    if (hold->item != NULL) { /* Its value may be read until the hold is released. */
        FW_ASSERT(hold->buried == NULL);
        local_count_dead(local, hold->item);
        hold->buried = table->erases ? hold->item : NULL;
    }
    hold_place(hold, item);
    fw_local_gauge(&local->counts.items, 1);
    fw_local_gauge(&local->counts.bytes, (int64_t)size);
    local->changes++;
    fw_local_count(&local->counts.total_items, 1);
    fw_local_note(local, item);
    return item;
}

struct fw_item *fw_hold_write(struct fw_hold *hold, uint32_t value_length, uint8_t fields,
                              struct fw_item **old)
{
    FW_ASSERT(value_length <= FW_ITEM_INLINE_MAX);
    struct fw_table_local *local = hold->local;
    struct fw_item *item = hold->item;
    if (old != NULL) {
        *old = item;
    }
    if (item == NULL || item->tail_length != value_length || (item->bits & FW_ITEM_BODY) != 0 ||
        (fields & ~item->fields) != 0) {
        return hold_renew(hold, value_length, fields);
    }
    fields_clear(item);
    fw_item_set_number(item, hold_number(hold));
    fw_item_set_accessed(item, local->now);
    item->bits &= (uint8_t) ~(FW_ITEM_FETCHED | FW_ITEM_AGE);
    fw_local_count(&local->counts.total_items, 1);
    fw_local_note(local, item);
    return item;
}

struct fw_item *fw_hold_attach(struct fw_hold *hold, struct fw_body *body, uint8_t fields)
{
    FW_ASSERT(body->length > FW_ITEM_INLINE_MAX);
    struct fw_table_local *local = hold->local;
    struct fw_item *item = hold_renew(hold, body->length, fields);
    item->bits |= FW_ITEM_BODY;
    memcpy(fw_item_value(item), &body, sizeof(void *));
    fw_local_gauge(&local->counts.bytes, body->room);
    local->logs[FW_PROBATION].bodies += body->room;
    if (FW_UNLIKELY(body->is_stored)) {
        fw_large_enlist(local->table->large, body, hold->key);
    }
    return item;
}

void fw_hold_renumber(struct fw_hold *hold)
{
    fw_item_set_number(hold->item, hold_number(hold));
    fw_item_set_accessed(hold->item, hold->local->now);
    fw_local_note(hold->local, hold->item);
}

uint64_t fw_table_local_noted(const struct fw_table_local *local)
{
    return local->noted;
}

void fw_hold_note(struct fw_hold *hold)
{
    struct fw_changes *changes = &hold->local->table->changes;
    const struct fw_item *item = hold->item;
    hold->local->noted++;
    if (fw_changes_wants(changes, FW_CHANGES_ON)) {
        fw_changes_append(changes, FW_CHANGE_TOUCH, fw_item_number(item), item->key,
                          item->key_length);
    }
}

/* The same item in a larger record, which was reserved, with fields that are 0. */
static void hold_widen(struct fw_hold *hold, uint8_t fields)
{
    struct fw_table_local *local = hold->local;
    struct fw_table *table = local->table;
    struct fw_item *old = hold->item;
    size_t size_old = fw_item_room(old);
    uint64_t cas = fw_item_cas(old);
    fields |= old->fields;
    size_t size = size_old - fw_fields_size(old->fields) + fw_fields_size(fields);
    struct fw_log *log = &local->logs[FW_PROBATION];
    struct fw_item *item = fw_log_take(log, size);
    memcpy(item, old, sizeof *item + old->key_length);
    item->fields = fields;
    fields_clear(item);
    fw_item_set_expires(item, fw_item_expires(old));
    if ((fields & FW_ITEM_FLAGS) != 0) {
        fw_item_set_flags(item, fw_item_flags(old));
    }
    if ((fields & FW_ITEM_CAS) != 0) {
        fw_item_set_cas(item, cas);
    }
    memcpy(fw_item_value(item), fw_item_value(old), item->tail_length);
    log->bodies += fw_item_outside(item);
    fw_arena_bury(&table->arena, fw_arena_place(&table->arena, old), size_old);
    if (FW_UNLIKELY(table->erases)) {
        record_erase(old);
    }
    hold_place(hold, item);
    fw_local_gauge(&local->counts.bytes, (int64_t)(size - size_old));
}

bool fw_table_hold_with(struct fw_table_local *local, struct fw_hold *hold,
                        const struct fw_key *key, uint8_t fields, size_t size)
{
    bool has_memory = size == 0 || fw_table_reserve(local, size);
    for (;;) {
        fw_table_hold(local, hold, key);
        const struct fw_item *item = hold->item;
        if (item == NULL || (fields & ~item->fields) == 0) {
            return has_memory;
        }
        /* As large as it is, whatever it gets, and what shall be left. */
        size_t needed = fw_item_room(item) + fw_fields_size(fields) + size;
        const struct fw_log *log = &local->logs[FW_PROBATION];
        if ((size_t)(log->end - log->next) >= needed) {
            hold_widen(hold, fields);
            return true;
        }
        fw_hold_release(hold);
        /* Without a hold: the item may be another then, and is asked again. */
        if (!fw_table_reserve(local, needed)) {
            fw_table_hold(local, hold, key);
            return false;
        }
    }
}

void fw_table_hold_to_expire(struct fw_table_local *local, struct fw_hold *hold,
                             const struct fw_key *key)
{
    if (!fw_table_hold_with(local, hold, key, FW_ITEM_EXPIRES, 0) && hold->item != NULL &&
        (hold->item->fields & FW_ITEM_EXPIRES) == 0) {
        fw_local_count(&local->counts.evictions, 1);
        fw_hold_remove(hold);
    }
}

void fw_hold_remove(struct fw_hold *hold)
{
    FW_ASSERT(hold->item != NULL);
    struct fw_table_local *local = hold->local;
    fw_local_note(local, hold->item);
    fw_local_bury(local, hold->item);
    fw_bucket_remove(&local->table->buckets, hold->bucket, hold->slot, &local->stash);
    hold->item = NULL;
    hold->slot = NULL;
}

void fw_hold_evict(struct fw_hold *hold, bool is_main)
{
    struct fw_table *table = hold->local->table;
    enum fw_queue queue = is_main ? FW_MAIN : FW_PROBATION;
    uint64_t items = fw_table_items(table);
    fw_hold_remove(hold);
    fw_ghost_add(&table->ghosts, hold->key->hash, queue, items);
    fw_share_drop(&table->share, queue, items);
}

void fw_hold_access(struct fw_hold *hold)
{
    struct fw_item *item = hold->item;
    uint8_t bits = (uint8_t)((item->bits & ~FW_ITEM_AGE) | FW_ITEM_FETCHED);
    if (item->bits != bits) {
        item->bits = bits;
    }
    uint32_t now = hold->local->now;
    if (item->accessed_low != (uint16_t)now || item->accessed_high != (uint8_t)(now >> 16)) {
        fw_item_set_accessed(item, now);
    }
}
