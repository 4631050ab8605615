/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/operation.h"

#include <string.h>

#include "base/text.h"
#include "base/thread.h"
#include "cache/detail.h"
#include "cache/locks.h"
#include "cache/number.h"

static void detail_count(struct fw_cache_local *local, const struct fw_key *key,
                         enum fw_detail_event event)
{
    if (FW_UNLIKELY(fw_detail_is_on(local->cache->detail))) {
        fw_detail_count(local->cache->detail, key, event);
    }
}

/* What a store's value is, wherever it is. */
static const char *store_bytes(const struct fw_store *store)
{
    return store->body != NULL ? store->body->bytes : store->bytes;
}

static uint32_t store_length(const struct fw_store *store)
{
    return store->body != NULL ? store->body->length : store->length;
}

const char *fw_operation_error(enum fw_outcome outcome)
{
    switch (outcome) {
    case FW_TOO_LARGE:
        return "SERVER_ERROR object too large for cache";
    case FW_NO_MEMORY:
        return "SERVER_ERROR out of memory storing object";
    case FW_IS_LARGE:
        return "SERVER_ERROR cannot append to a large value";
    case FW_NO_SPACE:
        return "SERVER_ERROR no space left for large values";
    case FW_DISK_FAILED:
        return "SERVER_ERROR disk error storing a large value";
    case FW_DONE:
    case FW_NOT_STORED:
    case FW_EXISTS:
    case FW_NOT_FOUND:
    case FW_NOT_A_NUMBER:
    case FW_IS_LOCKED:
        break;
    }
    FW_ASSERT(false); /* It is no error. */
    return "SERVER_ERROR";
}

static enum fw_outcome refuse(struct fw_cache_local *local, const struct fw_key *key,
                              enum fw_store_mode mode, enum fw_outcome outcome)
{
    fw_counter_increment(outcome == FW_TOO_LARGE ? &local->metrics->store_too_large
                                                 : &local->metrics->store_no_memory);
    if (mode == FW_STORE_SET) {
        struct fw_hold hold;
        fw_table_hold(local->table, &hold, key);
        if (hold.item != NULL && (hold.item->bits & FW_ITEM_LOCKED) == 0) {
            fw_hold_remove(&hold);
        }
        fw_hold_release(&hold);
    }
    return outcome;
}

enum fw_outcome fw_operation_refuse(struct fw_cache_local *local, const struct fw_key *key,
                                    enum fw_store_mode mode, enum fw_outcome outcome)
{
    detail_count(local, key, FW_DETAIL_SET);
    return refuse(local, key, mode, outcome);
}

void fw_operation_spoil(struct fw_cache_local *local, const struct fw_key *key)
{
    fw_counter_increment(&local->metrics->cmd_set);
    detail_count(local, key, FW_DETAIL_SET);
}

/*
 * Whether the store may go ahead with the item that is there, or with none; else why not. Counts
 * what a store with CAS counts.
 */
static enum fw_outcome store_decide(struct fw_cache_local *local, const struct fw_hold *hold,
                                    const struct fw_store *store)
{
    struct fw_metrics_cache *metrics = local->metrics;
    const struct fw_item *item = hold->item;
    if (fw_locks_refuse(local->cache->locks, hold, store->client)) {
        return FW_IS_LOCKED;
    }
    if (item == NULL) {
        if (store->mode == FW_STORE_CAS) {
            fw_counter_increment(&metrics->cas_misses);
            return FW_NOT_FOUND;
        }
        return store->mode == FW_STORE_SET || store->mode == FW_STORE_ADD ? FW_DONE : FW_NOT_STORED;
    }
    if (store->mode == FW_STORE_ADD) {
        return FW_NOT_STORED;
    }
    if (!store->compares) {
        return FW_DONE;
    }
    /* No item has CAS 0, nor has it any with memcached's -C: then nothing is ever the same. */
    uint64_t cas = fw_operation_cas(local, item);
    bool goes_ahead = (cas != 0 && cas == store->cas) || (store->invalidates && store->cas < cas);
    if (store->mode == FW_STORE_CAS) {
        fw_counter_increment(goes_ahead ? &metrics->cas_hits : &metrics->cas_badval);
    }
    return goes_ahead ? FW_DONE : FW_EXISTS;
}

static bool store_joins(const struct fw_store *store)
{
    return store->mode == FW_STORE_APPEND || store->mode == FW_STORE_PREPEND;
}

/* What a new value needs to know of the item that it replaces. */
struct replaced {
    uint64_t cas;
    uint32_t flags;
    uint32_t expires;
    uint8_t bits;
};

static struct replaced replaced_make(const struct fw_item *item)
{
    return (struct replaced){
        .cas = fw_item_cas(item),
        .flags = fw_item_flags(item),
        .expires = fw_item_expires(item),
        .bits = item->bits,
    };
}

/* Of an item that is simply replaced only the bits matter. */
static struct replaced store_replaced(const struct fw_store *store, const struct fw_item *item)
{
    if (item != NULL && (store_joins(store) || store->invalidates)) {
        return replaced_make(item);
    }
    return (struct replaced){.bits = item != NULL ? item->bits : 0};
}

/* An older version than is there: it is shown, but as one that should be renewed. */
static bool store_is_stale(const struct fw_store *store, const struct replaced *replaced)
{
    return store->invalidates && replaced->cas != 0 && store->cas < replaced->cas;
}

static uint32_t store_flags(const struct fw_store *store, const struct replaced *replaced)
{
    return store_joins(store) ? replaced->flags : store->flags;
}

static uint32_t store_expires(const struct fw_store *store, const struct replaced *replaced)
{
    bool is_kept = store_joins(store) || store_is_stale(store, replaced);
    return is_kept ? replaced->expires : store->expires;
}

static uint8_t store_fields(const struct fw_store *store, const struct replaced *replaced)
{
    return fw_fields_needed(store_flags(store, replaced), store_expires(store, replaced),
                            store->cas_new);
}

/* The header of an item whose value is in place, and the answer. */
static void store_finish(const struct fw_cache_local *local, struct fw_item *item,
                         const struct replaced *replaced, struct fw_store *store)
{
    bool is_stale = store_is_stale(store, replaced);
    uint8_t kept = FW_ITEM_LOCKED;
    kept |= is_stale ? FW_ITEM_WON : 0;
    fw_item_set_flags(item, store_flags(store, replaced));
    fw_item_set_expires(item, store_expires(store, replaced));
    item->bits &= (uint8_t) ~(FW_ITEM_STALE | FW_ITEM_WON | FW_ITEM_KEY_BINARY | FW_ITEM_LOCKED);
    item->bits |= (uint8_t)((replaced->bits & kept) | store->bits);
    item->bits |= is_stale ? FW_ITEM_STALE : 0;
    if (store->cas_new != 0) {
        fw_item_set_cas(item, store->cas_new);
    }
    store->cas_is = fw_operation_cas(local, item);
    store->length_is = fw_item_length(item);
}

/* set, add, replace and cas: the value that came is the value. */
static enum fw_outcome store_whole(struct fw_cache_local *local, const struct fw_key *key,
                                   struct fw_store *store)
{
    uint32_t length = store_length(store);
    FW_ASSERT((store->body != NULL) == (length > FW_ITEM_INLINE_MAX));
    if (!fw_table_reserve(local->table, fw_item_size(key->length, length, FW_ITEM_FIELDS))) {
        return refuse(local, key, store->mode, FW_NO_MEMORY);
    }
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, key);
    enum fw_outcome outcome = store_decide(local, &hold, store);
    if (outcome == FW_DONE) {
        struct replaced replaced = store_replaced(store, hold.item);
        uint8_t fields = store_fields(store, &replaced);
        struct fw_item *item;
        if (store->body == NULL) {
            item = fw_hold_write(&hold, length, fields, NULL);
            memcpy(fw_item_value(item), store->bytes, length);
        } else {
            item = fw_hold_attach(&hold, store->body, fields);
            store->body = NULL;
        }
        store_finish(local, item, &replaced, store);
    }
    fw_hold_release(&hold);
    return outcome;
}

/* append and prepend. One of the two parts is what is there, the other what came. */
static void join(char *to, const struct fw_store *store, const char *there, uint32_t there_length)
{
    uint32_t came_length = store_length(store);
    bool there_first = store->mode == FW_STORE_APPEND;
    memcpy(there_first ? to : to + came_length, there, there_length);
    memcpy(there_first ? to + there_length : to, store_bytes(store), came_length);
}

/* What append saw when it looked. */
struct seen {
    enum fw_outcome outcome;
    uint64_t cas;
    uint32_t length;      /* Of the value that is there. */
    uint32_t flags;       /* The client's, of the item that is there. */
    struct fw_body *body; /* It, if it is in a body; with a reference if all is well. */
};

static struct seen append_look(struct fw_cache_local *local, const struct fw_key *key,
                               const struct fw_store *store)
{
    struct fw_hold hold;
    struct seen seen = {0};
    fw_table_hold(local->table, &hold, key);
    seen.outcome = store_decide(local, &hold, store);
    if (seen.outcome == FW_DONE) {
        seen.cas = fw_item_cas(hold.item);
        seen.length = fw_item_length(hold.item);
        seen.flags = fw_item_flags(hold.item);
        if (fw_item_is_stored(hold.item)) {
            seen.outcome = FW_IS_LARGE;
        } else if ((hold.item->bits & FW_ITEM_BODY) != 0) {
            seen.body = fw_body_ref(fw_item_body(hold.item));
        }
    }
    fw_hold_release(&hold);
    return seen;
}

/*
 * Puts the joined value in place if the item is still the one that was seen. Memory was reserved.
 * `joined` is a body for it, or NULL if it is short; it is taken if the answer is true.
 */
static bool append_place(struct fw_cache_local *local, const struct fw_key *key,
                         struct fw_store *store, const struct seen *seen, struct fw_body *joined)
{
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, key);
    bool is_same = hold.item != NULL && fw_item_cas(hold.item) == seen->cas &&
                   !fw_locks_refuse(local->cache->locks, &hold, store->client);
    if (is_same) {
        struct replaced replaced = store_replaced(store, hold.item);
        uint8_t fields = store_fields(store, &replaced);
        struct fw_item *item;
        if (joined == NULL) {
            struct fw_item *old = hold.item;
            item = fw_hold_write(&hold, seen->length + store_length(store), fields, &old);
            join(fw_item_value(item), store, fw_item_value(old), seen->length);
        } else {
            if (seen->body == NULL) {
                join(joined->bytes, store, fw_item_value(hold.item), seen->length);
            }
            item = fw_hold_attach(&hold, joined, fields);
        }
        store_finish(local, item, &replaced, store);
    }
    fw_hold_release(&hold);
    return is_same;
}

/* One try of append or prepend; false: the item has changed meanwhile. */
static bool append_try(struct fw_cache_local *local, const struct fw_key *key,
                       struct fw_store *store, enum fw_outcome *outcome)
{
    struct seen seen = append_look(local, key, store);
    *outcome = seen.outcome;
    if (seen.outcome != FW_DONE) {
        return true;
    }
    bool is_done = true;
    struct fw_body *joined = NULL;
    uint64_t length = (uint64_t)seen.length + store_length(store);
    if (!fw_operation_fits(local->cache, key->length, seen.flags, length)) {
        *outcome = FW_NOT_STORED;
        goto out;
    }
    if (!fw_table_reserve(local->table, fw_item_size(key->length, length, FW_ITEM_FIELDS))) {
        *outcome = refuse(local, key, store->mode, FW_NO_MEMORY);
        goto out;
    }
    if (length > FW_ITEM_INLINE_MAX) {
        joined = fw_body_create(local->table, (uint32_t)length);
        if (joined == NULL) {
            *outcome = refuse(local, key, store->mode, FW_NO_MEMORY);
            goto out;
        }
        /* A body does not change, so that it can be copied without holding anything. */
        if (seen.body != NULL) {
            join(joined->bytes, store, seen.body->bytes, seen.length);
        }
    }
    FW_YIELD_POINT("operation: append has looked");
    is_done = append_place(local, key, store, &seen, joined);
    if (is_done) {
        joined = NULL;
    }
out:
    if (joined != NULL) {
        fw_body_unref(local->table, joined);
    }
    if (seen.body != NULL) {
        fw_body_unref(local->table, seen.body);
    }
    return is_done;
}

enum fw_outcome fw_operation_store(struct fw_cache_local *local, const struct fw_key *key,
                                   struct fw_store *store)
{
    enum fw_outcome outcome;
    fw_counter_increment(&local->metrics->cmd_set);
    detail_count(local, key, FW_DETAIL_SET);
    if (FW_UNLIKELY(store->refusal != FW_DONE)) {
        outcome = refuse(local, key, store->mode, store->refusal);
    } else if (!fw_operation_fits(local->cache, key->length, store->flags, store_length(store))) {
        outcome = refuse(local, key, store->mode, FW_TOO_LARGE);
    } else if (store_joins(store) && store->body != NULL && store->body->is_stored) {
        outcome = FW_IS_LARGE;
    } else if (store_joins(store)) {
        while (!append_try(local, key, store, &outcome)) {
        }
    } else {
        outcome = store_whole(local, key, store);
    }
    if (store->body != NULL) {
        fw_body_unref(local->table, store->body);
        store->body = NULL;
    }
    return outcome;
}

void fw_operation_miss(struct fw_cache_local *local, const struct fw_hold *hold)
{
    struct fw_metrics_cache *metrics = local->metrics;
    if (hold->absence == FW_ABSENT_EXPIRED) {
        fw_counter_increment(&metrics->get_expired);
    } else if (hold->absence == FW_ABSENT_FLUSHED) {
        fw_counter_increment(&metrics->get_flushed);
    }
}

/*
 * Counts a get by its prefix. It takes a lock, so it looks for itself and lets go before: a hold
 * must not wait, and whoever has asked for details does not mind the time.
 */
void fw_operation_note_get_now(struct fw_cache_local *local, const struct fw_key *key)
{
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, key);
    bool is_hit = hold.item != NULL;
    fw_hold_release(&hold);
    fw_detail_count(local->cache->detail, key, is_hit ? FW_DETAIL_HIT : FW_DETAIL_GET);
}

void fw_operation_find(struct fw_cache_local *local, struct fw_hold *hold, const struct fw_key *key)
{
    struct fw_finds finds = {0};
    fw_operation_note_get(local, key);
    fw_operation_find_next(local, hold, key, &finds);
    fw_operation_finds_end(local, &finds);
}

void fw_operation_touch(struct fw_cache_local *local, struct fw_hold *hold,
                        const struct fw_key *key, uint32_t expires)
{
    struct fw_metrics_cache *metrics = local->metrics;
    fw_counter_increment(&metrics->cmd_touch);
    fw_table_hold_to_expire(local->table, hold, key);
    if (hold->item != NULL) {
        fw_counter_increment(&metrics->touch_hits);
        fw_hold_access(hold);
        fw_item_set_expires(hold->item, expires);
        fw_hold_note(hold);
    } else {
        fw_counter_increment(&metrics->touch_misses);
        fw_operation_miss(local, hold);
    }
}

enum fw_outcome fw_operation_remove(struct fw_cache_local *local, const struct fw_key *key,
                                    uint64_t cas, uint32_t client)
{
    struct fw_hold hold;
    enum fw_outcome outcome = FW_DONE;
    detail_count(local, key, FW_DETAIL_DELETE);
    fw_table_hold(local->table, &hold, key);
    if (hold.item == NULL) {
        fw_counter_increment(&local->metrics->delete_misses);
        outcome = FW_NOT_FOUND;
    } else if (fw_locks_refuse(local->cache->locks, &hold, client)) {
        outcome = FW_IS_LOCKED;
    } else if (cas != 0 && cas != fw_operation_cas(local, hold.item)) {
        outcome = FW_EXISTS;
    } else {
        fw_counter_increment(&local->metrics->delete_hits);
        (void)fw_locks_release(local->cache->locks, &hold, client);
        fw_hold_remove(&hold);
    }
    fw_hold_release(&hold);
    return outcome;
}

/* The value after counting; false: it is no number. */
static bool count_apply(struct fw_item *item, struct fw_count *count)
{
    uint64_t value;
    /* A value in a body is far too long to be a number, and may be on its way to a client. */
    if ((item->bits & FW_ITEM_BODY) != 0 ||
        !fw_number_u64(fw_item_value(item), item->tail_length, &value)) {
        return false;
    }
    if (count->is_down) {
        count->value = value > count->delta ? value - count->delta : 0;
    } else {
        count->value = value + count->delta;
    }
    return true;
}

/* Fills the value with the number, and with spaces behind it as memcached does. */
static void count_write(struct fw_item *item, const char *digits, size_t length)
{
    memcpy(fw_item_value(item), digits, length);
    memset(fw_item_value(item) + length, ' ', item->tail_length - length);
}

/* What an item that is there must have for it. */
static uint8_t count_fields(const struct fw_count *count)
{
    return fw_fields_needed(0, count->may_touch ? count->touch_expires : 0, count->cas_new);
}

/*
 * In the hold; FW_DONE, with the item as it shall be. A number that is no longer than the value
 * that is there is written over it, so that most counting touches one record and no memory.
 */
static enum fw_outcome count_present(struct fw_cache_local *local, struct fw_hold *hold,
                                     struct fw_count *count, bool has_memory)
{
    struct fw_item *item = hold->item;
    if (fw_locks_refuse(local->cache->locks, hold, count->client)) {
        return FW_IS_LOCKED;
    }
    if (item->tail_length == 0) {
        return FW_NOT_A_NUMBER;
    }
    if (count->cas != 0 && count->cas != fw_operation_cas(local, item)) {
        return FW_EXISTS;
    }
    if (!count_apply(item, count)) {
        return FW_NOT_A_NUMBER;
    }
    fw_counter_increment(count->is_down ? &local->metrics->decr_hits : &local->metrics->incr_hits);
    char digits[FW_TEXT_DECIMAL_MAX];
    size_t length = fw_text_decimal(digits, count->value);
    bool fits = length <= item->tail_length;
    if ((!fits || (count_fields(count) & ~item->fields) != 0) && !has_memory) {
        return FW_NO_MEMORY;
    }
    if (fits) {
        fw_hold_renumber(hold);
    } else {
        struct replaced replaced = replaced_make(item);
        uint8_t kept = FW_ITEM_KEY_BINARY | FW_ITEM_LOCKED;
        item = fw_hold_write(hold, (uint32_t)length, item->fields, NULL);
        fw_item_set_flags(item, replaced.flags);
        fw_item_set_expires(item, replaced.expires);
        item->bits |= replaced.bits & kept;
    }
    count_write(item, digits, length);
    count->expires_was = fw_item_expires(item);
    if (count->may_touch) {
        fw_item_set_expires(item, count->touch_expires);
    }
    return FW_DONE;
}

static enum fw_outcome count_absent(struct fw_cache_local *local, struct fw_hold *hold,
                                    struct fw_count *count, bool has_memory)
{
    if (!count->may_create) {
        fw_counter_increment(count->is_down ? &local->metrics->decr_misses
                                            : &local->metrics->incr_misses);
        return FW_NOT_FOUND;
    }
    if (!has_memory) {
        return FW_NO_MEMORY;
    }
    char digits[FW_TEXT_DECIMAL_MAX];
    size_t length = fw_text_decimal(digits, count->initial);
    uint8_t fields = fw_fields_needed(0, count->expires, count->cas_new);
    struct fw_item *item = fw_hold_write(hold, (uint32_t)length, fields, NULL);
    fw_item_set_expires(item, count->expires);
    item->bits |= count->bits;
    count->value = count->initial;
    count->is_created = true;
    count_write(item, digits, length);
    return FW_DONE;
}

enum fw_outcome fw_operation_count(struct fw_cache_local *local, const struct fw_key *key,
                                   struct fw_count *count)
{
    /* For the longest number: what is not used stays reserved for the next. Most need none. */
    size_t size = fw_item_size(key->length, FW_TEXT_DECIMAL_MAX, FW_ITEM_FIELDS);
    struct fw_hold hold;
    bool has_memory = fw_table_hold_with(local->table, &hold, key, count_fields(count), size);
    enum fw_outcome outcome = hold.item != NULL ? count_present(local, &hold, count, has_memory)
                                                : count_absent(local, &hold, count, has_memory);
    if (outcome == FW_DONE) {
        if (count->cas_new != 0) {
            fw_item_set_cas(hold.item, count->cas_new);
        }
        count->cas_is = fw_operation_cas(local, hold.item);
    }
    fw_hold_release(&hold);
    return outcome;
}

uint32_t fw_operation_flush_time(const struct fw_cache_local *local, int64_t delay)
{
    if (delay <= 0) {
        return 0;
    }
    uint32_t at = fw_cache_expiry(local, delay);
    return at < FW_CACHE_CLOCK_START ? UINT32_MAX : at - 1;
}

void fw_operation_flush(struct fw_cache_local *local, uint32_t at)
{
    bool is_due = at <= local->now;
    fw_counter_increment(&local->metrics->cmd_flush);
    /* Relaxed: see fw_cache_local_set_time(). */
    atomic_store_explicit(&local->cache->flush_at, is_due ? 0 : at, memory_order_relaxed);
    if (is_due) {
        fw_table_flush(local->table);
    } else {
        fw_table_note_later(local->table);
    }
}
