/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/large.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cache/table.h"
#include "cache/table_parts.h"

enum {
    EVICT_MAX = 1 << 16, /* Values looked at for one that wants room. */
    LIST_MIN = 512,      /* Pieces of which the list is made at once. */
};

/* A quarter of the shortest value, so that little is lost by rounding up. */
static uint32_t piece_size_for(uint64_t value_min)
{
    uint32_t size = FW_LARGE_PIECE_MAX;
    while (size > FW_LARGE_PIECE_MIN && size > value_min / 4) {
        size /= 2;
    }
    return size;
}

int fw_large_init(struct fw_large *large, uint64_t value_min, uint64_t space)
{
    if (value_min < FW_LARGE_VALUE_MIN || value_min > UINT32_MAX) {
        return -EINVAL;
    }
    *large = (struct fw_large){.value_min = (uint32_t)value_min,
                               .piece_size = piece_size_for(value_min)};
    uint64_t count = space / large->piece_size;
    large->piece_max = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
    if (large->piece_max == 0) {
        return -EINVAL;
    }
    /* The system has memory for it as it comes into use: four bytes for each piece in the file. */
    large->free = malloc((size_t)large->piece_max * sizeof *large->free);
    if (large->free == NULL) {
        return -ENOMEM;
    }
    fw_list_init(&large->stored);
    fw_mutex_init(&large->lock, FW_RANK_LARGE);
    return 0;
}

void fw_large_fini(struct fw_large *large)
{
    fw_mutex_fini(&large->lock);
    free(large->free);
    large->free = NULL;
}

static void large_count(_Atomic uint64_t *counter)
{
    /* Relaxed: only shown. */
    (void)atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* Gauges that are written under the lock and shown without it. Relaxed, therefore. */
static void large_gauge(_Atomic uint32_t *gauge, uint32_t change)
{
    atomic_store_explicit(gauge, atomic_load_explicit(gauge, memory_order_relaxed) + change,
                          memory_order_relaxed);
}

/* So many pieces all together for a value, or no more than it has. */
static bool pieces_take(struct fw_large *large, struct fw_stored *stored, uint32_t count)
{
    uint32_t before = stored->piece_count;
    FW_ASSERT(count >= before);
    fw_mutex_lock(&large->lock);
    uint32_t unused = large->free_count + (large->piece_max - large->fresh);
    bool has_room = count - before <= unused;
    for (uint32_t i = before; has_room && i < count; i++) {
        stored->pieces[i] =
            large->free_count > 0 ? large->free[--large->free_count] : large->fresh++;
    }
    if (has_room) {
        large_gauge(&large->used, count - before);
        large_gauge(&large->values, before == 0 ? 1 : 0);
        stored->piece_count = count;
    }
    fw_mutex_unlock(&large->lock);
    return has_room;
}

void fw_large_forget(struct fw_large *large, struct fw_body *body)
{
    struct fw_stored *stored = fw_stored_of(body);
    fw_mutex_lock(&large->lock);
    if (stored->is_listed) {
        fw_list_remove(&stored->link);
        stored->is_listed = false;
    }
    /* The last first, so that they come out in the order in which they went in. */
    for (uint32_t i = stored->piece_count; i > 0; i--) {
        large->free[large->free_count++] = stored->pieces[i - 1];
    }
    large_gauge(&large->used, -stored->piece_count);
    large_gauge(&large->values, stored->piece_count > 0 ? -1U : 0);
    stored->piece_count = 0;
    fw_mutex_unlock(&large->lock);
}

void fw_large_enlist(struct fw_large *large, struct fw_body *body, const struct fw_key *key)
{
    struct fw_stored *stored = fw_stored_of(body);
    stored->key_length = (uint8_t)key->length;
    memcpy(stored->key, key->bytes, key->length);
    fw_mutex_lock(&large->lock);
    FW_ASSERT(!stored->is_listed);
    stored->is_listed = true;
    fw_list_push_back(&large->stored, &stored->link);
    fw_mutex_unlock(&large->lock);
}

/* The oldest value's key; and it is the newest then. NULL: there is none. */
static const struct fw_stored *victim_take(struct fw_large *large, char key[FW_ITEM_KEY_MAX],
                                           size_t *key_length)
{
    fw_mutex_lock(&large->lock);
    struct fw_list_link *link = fw_list_pop_front(&large->stored);
    const struct fw_stored *stored =
        link != NULL ? FW_LIST_ENTRY(link, struct fw_stored, link) : NULL;
    if (stored != NULL) {
        fw_list_push_back(&large->stored, link);
        *key_length = stored->key_length;
        memcpy(key, stored->key, stored->key_length);
    }
    fw_mutex_unlock(&large->lock);
    return stored;
}

/* One look at the oldest value: it is dropped, or spared for once. False: there is none. */
static bool large_evict(struct fw_table_local *local, uint32_t *piece_count)
{
    char bytes[FW_ITEM_KEY_MAX];
    size_t length;
    /* From here on it may be gone: it is only compared. */
    const struct fw_stored *stored = victim_take(local->table->large, bytes, &length);
    if (stored == NULL) {
        return false;
    }
    struct fw_key key = fw_table_key(local, bytes, length);
    struct fw_hold hold;
    fw_table_hold(local, &hold, &key);
    struct fw_item *item = hold.item;
    bool is_it = item != NULL && (item->bits & FW_ITEM_BODY) != 0 &&
                 fw_item_body(item)->is_stored && fw_stored_of(fw_item_body(item)) == stored;
    if (is_it && (item->bits & FW_ITEM_AGE) == 0) {
        item->bits |= FW_ITEM_AGE_NEW;
    } else if (is_it && (item->bits & FW_ITEM_LOCKED) == 0) {
        *piece_count += stored->piece_count;
        fw_local_count(&local->counts.evictions, 1);
        fw_local_count(&local->counts.evicted_unread, (item->bits & FW_ITEM_FETCHED) == 0 ? 1 : 0);
        large_count(&local->table->large->evictions);
        fw_hold_remove(&hold);
    }
    fw_hold_release(&hold);
    return true;
}

static uint32_t pieces_of(const struct fw_large *large, uint32_t length)
{
    return (uint32_t)(((uint64_t)length + large->piece_size - 1) / large->piece_size);
}

bool fw_large_fits(struct fw_large *large, uint32_t length)
{
    bool fits = pieces_of(large, length) <= large->piece_max;
    if (!fits) {
        large_count(&large->no_space); /* Without dropping all others first. */
    }
    return fits;
}

/* How many pieces a body can name. */
static uint32_t list_room(const struct fw_body *body)
{
    return (uint32_t)((body->room - sizeof(struct fw_stored)) / sizeof(uint32_t));
}

/* A body that can name `count` pieces, and more if the value needs more, with those of the old. */
static bool list_grow(struct fw_table_local *local, uint32_t length, uint32_t count,
                      struct fw_body **body)
{
    uint32_t room = pieces_of(local->table->large, length);
    while (room / FW_LARGE_GROWTH >= count && room > LIST_MIN) {
        room /= FW_LARGE_GROWTH;
    }
    size_t size = sizeof(struct fw_stored) + (size_t)room * sizeof(uint32_t);
    struct fw_body *made = fw_local_body(local, (uint32_t)size);
    if (made == NULL) {
        return false;
    }
    made->length = length;
    made->is_stored = true;
    *fw_stored_of(made) = (struct fw_stored){.piece_count = 0};
    if (*body != NULL) {
        struct fw_stored *old = fw_stored_of(*body);
        FW_ASSERT(!old->is_listed);
        memcpy(fw_stored_of(made), old, sizeof *old + old->piece_count * sizeof old->pieces[0]);
        old->piece_count = 0;
        fw_body_unref(local, *body);
    }
    *body = made;
    return true;
}

enum fw_large_answer fw_large_extend(struct fw_table_local *local, uint32_t length, uint32_t upto,
                                     struct fw_body **body)
{
    struct fw_large *large = local->table->large;
    FW_ASSERT(large != NULL && length > large->value_min && upto > 0 && upto <= length);
    uint32_t count = pieces_of(large, upto);
    if ((*body == NULL || list_room(*body) < count) && !list_grow(local, length, count, body)) {
        return FW_LARGE_NO_MEMORY;
    }
    uint32_t dropped = 0;
    for (uint32_t i = 0; i < EVICT_MAX; i++) {
        if (pieces_take(large, fw_stored_of(*body), count)) {
            return FW_LARGE_DONE;
        }
        if (!local->table->is_evicting || !large_evict(local, &dropped)) {
            break;
        }
    }
    large_count(&large->no_space);
    return FW_LARGE_NO_SPACE;
}

enum fw_large_answer fw_large_create(struct fw_table_local *local, uint32_t length,
                                     struct fw_body **body)
{
    struct fw_body *made = NULL;
    enum fw_large_answer answer = FW_LARGE_NO_SPACE;
    if (fw_large_fits(local->table->large, length)) {
        answer = fw_large_extend(local, length, length, &made);
    }
    if (answer == FW_LARGE_DONE) {
        *body = made;
    } else if (made != NULL) {
        fw_body_unref(local, made);
    }
    return answer;
}

void fw_large_disk_full(struct fw_table_local *local, struct fw_body *body)
{
    uint32_t wanted = fw_stored_of(body)->piece_count;
    uint32_t dropped = 0;
    large_count(&local->table->large->no_space);
    fw_body_unref(local, body);
    for (uint32_t i = 0; i < EVICT_MAX && local->table->is_evicting && dropped < wanted; i++) {
        if (!large_evict(local, &dropped)) {
            return;
        }
    }
}

/* ---- windows ------------------------------------------------------------------------------- */

static uint32_t window_size(const struct fw_table_local *local, uint32_t rest)
{
    const struct fw_large *large = local->table->large;
    uint64_t size = (uint64_t)large->piece_size * FW_LARGE_WINDOW_PIECES;
    uint64_t whole = ((uint64_t)rest + FW_LARGE_UNIT - 1) / FW_LARGE_UNIT * FW_LARGE_UNIT;
    size = size < whole ? size : whole;
    /* Relaxed, all: a measure of how much there is, by which nobody's memory is ordered. */
    uint64_t limit = atomic_load_explicit(&local->table->budget.limit, memory_order_relaxed);
    uint64_t open = atomic_load_explicit(&large->window_bytes, memory_order_relaxed);
    if (open + size > limit / FW_LARGE_WINDOW_SHARE && size > FW_LARGE_WINDOW_MIN) {
        size = FW_LARGE_WINDOW_MIN;
    }
    return (uint32_t)size;
}

static bool window_make(struct fw_window *window, struct fw_table_local *local, uint32_t size)
{
    struct fw_body *body = fw_local_body(local, size + FW_LARGE_UNIT);
    if (body == NULL) {
        return false;
    }
    (void)atomic_fetch_add_explicit(&local->table->large->window_bytes, size, memory_order_relaxed);
    uintptr_t bytes = (uintptr_t)body->bytes;
    size_t skipped = (FW_LARGE_UNIT - bytes % FW_LARGE_UNIT) % FW_LARGE_UNIT;
    *window = (struct fw_window){.body = body, .bytes = body->bytes + skipped, .size = size};
    return true;
}

bool fw_window_open(struct fw_window *window, struct fw_table_local *local, uint32_t rest)
{
    return window_make(window, local, window_size(local, rest));
}

bool fw_window_grow(struct fw_window *window, struct fw_table_local *local, uint32_t rest)
{
    uint64_t next = FW_LARGE_WINDOW_MIN;
    if (window->body != NULL) {
        next = (uint64_t)window->size * FW_LARGE_GROWTH;
    }
    uint32_t size = window_size(local, next < rest ? (uint32_t)next : rest);
    struct fw_window grown;
    if (size <= window->size || !window_make(&grown, local, size)) {
        return false;
    }
    if (window->body != NULL) {
        memcpy(grown.bytes, window->bytes, window->size);
        grown.begin = window->begin;
        fw_window_close(window, local);
    }
    *window = grown;
    return true;
}

void fw_window_close(struct fw_window *window, struct fw_table_local *local)
{
    if (window->body != NULL) {
        (void)atomic_fetch_sub_explicit(&local->table->large->window_bytes, window->size,
                                        memory_order_relaxed);
        fw_body_unref(local, window->body);
        window->body = NULL;
    }
}
