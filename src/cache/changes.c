/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/changes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/endian.h"
#include "io/random.h"

/* A change in the ring: kind and number in one word, the key's length, the key. */
enum { HEADER = 9, KIND_SHIFT = 56, NUMBER_BITS = 48 };

static_assert(HEADER + FW_ITEM_KEY_MAX <= FW_CHANGES_BATCH, "a batch has room for any change");

void fw_changes_init(struct fw_changes *changes)
{
    *changes = (struct fw_changes){.ring = NULL};
    fw_mutex_init(&changes->lock, FW_RANK_CHANGES);
}

void fw_changes_fini(struct fw_changes *changes)
{
    FW_ASSERT(changes->reader_count == 0);
    fw_mutex_fini(&changes->lock);
    free(changes->ring);
}

static void ring_put(struct fw_changes *changes, uint64_t position, const void *bytes, size_t count)
{
    uint64_t at = position & (changes->size - 1);
    size_t first = count < changes->size - at ? count : (size_t)(changes->size - at);
    memcpy(changes->ring + at, bytes, first);
    memcpy(changes->ring, (const char *)bytes + first, count - first);
}

static void ring_get(const struct fw_changes *changes, uint64_t position, void *bytes, size_t count)
{
    uint64_t at = position & (changes->size - 1);
    size_t first = count < changes->size - at ? count : (size_t)(changes->size - at);
    memcpy(bytes, changes->ring + at, first);
    memcpy((char *)bytes + first, changes->ring, count - first);
}

/* The length of the change that stands there. */
static uint64_t ring_length(const struct fw_changes *changes, uint64_t position)
{
    return HEADER + (uint64_t)(uint8_t)changes->ring[(position + HEADER - 1) & (changes->size - 1)];
}

static uint64_t head_of(const struct fw_changes *changes)
{
    /* Relaxed: under the lock. */
    return atomic_load_explicit(&changes->head, memory_order_relaxed);
}

/* What the readers there are want. Under the lock. */
static void wants_set(struct fw_changes *changes)
{
    uint32_t wants = changes->history == 0 ? 0 : FW_CHANGES_ON;
    wants |= changes->reclaim_count > 0 ? FW_CHANGES_RECLAIMED : 0;
    changes->has_expired = changes->has_expired && changes->history != 0;
    wants |= changes->has_expired ? FW_CHANGES_EXPIRED : 0;
    /* Seq-cst, for the load in fw_table_flush(), which has no bucket's lock to order it. */
    atomic_store(&changes->wants, wants);
}

void fw_changes_append(struct fw_changes *changes, enum fw_change_kind kind, uint64_t number,
                       const char *key, uint8_t key_length)
{
    char header[HEADER];
    FW_ASSERT(number >> NUMBER_BITS == 0);
    fw_le64_put(header, (uint64_t)kind << KIND_SHIFT | number);
    header[HEADER - 1] = (char)key_length;
    fw_mutex_lock(&changes->lock);
    uint64_t head = head_of(changes);
    uint64_t end = head + HEADER + key_length;
    if (FW_UNLIKELY(changes->reader_count == 0 && end - changes->left > changes->size)) {
        changes->history = 0; /* Nobody could go on any more. */
        wants_set(changes);
    }
    if (FW_LIKELY(changes->history != 0)) {
        while (end - changes->tail > changes->size) {
            changes->tail += ring_length(changes, changes->tail);
        }
        char *to = changes->ring + (head & (changes->size - 1));
        if (FW_LIKELY((size_t)(changes->ring + changes->size - to) >= HEADER + FW_ITEM_KEY_MAX)) {
            memcpy(to, header, HEADER);
            memcpy(to + HEADER, key, key_length);
            __builtin_prefetch(to + (size_t)4 * FW_CACHE_LINE, 1); /* For changes soon to come. */
        } else {
            ring_put(changes, head, header, HEADER);
            ring_put(changes, head + HEADER, key, key_length);
        }
        /* Release, for the acquire in fw_changes_head(). */
        atomic_store_explicit(&changes->head, end, memory_order_release);
    }
    fw_mutex_unlock(&changes->lock);
}

static int ring_make(struct fw_changes *changes, uint64_t size)
{
    uint64_t rounded = FW_CHANGES_SIZE_MIN;
    while (rounded < size && rounded < FW_CHANGES_SIZE_MAX) {
        rounded *= 2;
    }
    uint64_t history;
    int rc = fw_random_seed(&history);
    if (rc != 0) {
        return rc;
    }
    char *ring = malloc(rounded); /* Not under the lock: holds wait for that. */
    fw_mutex_lock(&changes->lock);
    if (changes->ring == NULL) {
        changes->ring = ring;
        changes->size = rounded;
        ring = NULL;
    }
    bool has_ring = changes->ring != NULL;
    if (has_ring && changes->history == 0) {
        changes->history = history | 1;
        changes->tail = head_of(changes);
    }
    changes->reader_count += has_ring ? 1 : 0; /* From here on it stays as it is. */
    fw_mutex_unlock(&changes->lock);
    free(ring);
    return has_ring ? 0 : -ENOMEM;
}

int fw_changes_enter(struct fw_changes *changes, uint64_t size, uint32_t wants, uint64_t *history,
                     uint64_t *position, bool *can_go_on)
{
    int rc = ring_make(changes, size);
    if (rc != 0) {
        return rc;
    }
    fw_mutex_lock(&changes->lock);
    changes->reclaim_count += (wants & FW_CHANGES_RECLAIMED) != 0 ? 1 : 0;
    changes->has_expired |= (wants & FW_CHANGES_EXPIRED) != 0;
    wants_set(changes);
    uint64_t head = head_of(changes);
    *can_go_on = *history == changes->history && *position >= changes->tail && *position <= head;
    *history = changes->history;
    *position = *can_go_on ? *position : head;
    fw_mutex_unlock(&changes->lock);
    return 0;
}

void fw_changes_leave(struct fw_changes *changes, uint32_t wanted, uint64_t position)
{
    fw_mutex_lock(&changes->lock);
    FW_ASSERT(changes->reader_count > 0);
    changes->reader_count--;
    changes->reclaim_count -= (wanted & FW_CHANGES_RECLAIMED) != 0 ? 1 : 0;
    bool is_ahead = changes->left < position;
    changes->left = is_ahead ? position : changes->left;
    wants_set(changes);
    fw_mutex_unlock(&changes->lock);
}

int fw_changes_read(struct fw_changes *changes, uint64_t *position,
                    char buffer[static FW_CHANGES_BATCH])
{
    int result = 0;
    fw_mutex_lock(&changes->lock);
    if (*position < changes->tail) {
        result = -EOVERFLOW;
    } else {
        uint64_t end = *position;
        uint64_t head = head_of(changes);
        while (end < head) {
            uint64_t length = ring_length(changes, end);
            if (end + length > head || end + length - *position > FW_CHANGES_BATCH) {
                break;
            }
            end += length;
        }
        /* A change that does not end is none: the position was never one of ours. */
        result = end == *position && end < head ? -EOVERFLOW : (int)(end - *position);
    }
    if (result > 0) {
        ring_get(changes, *position, buffer, (size_t)result);
        *position += (uint64_t)result;
    }
    fw_mutex_unlock(&changes->lock);
    return result;
}

void fw_changes_forget(struct fw_changes *changes)
{
    fw_mutex_lock(&changes->lock);
    changes->history = 0;
    changes->tail = head_of(changes) + 1;
    wants_set(changes);
    fw_mutex_unlock(&changes->lock);
}

void fw_changes_look(struct fw_changes *changes, uint64_t *history, uint64_t *head)
{
    fw_mutex_lock(&changes->lock);
    *history = changes->history;
    *head = head_of(changes);
    fw_mutex_unlock(&changes->lock);
}

bool fw_changes_has_lost(struct fw_changes *changes, uint64_t position)
{
    fw_mutex_lock(&changes->lock);
    bool has_lost = position < changes->tail;
    fw_mutex_unlock(&changes->lock);
    return has_lost;
}

bool fw_change_next(const char **bytes, const char *end, struct fw_change *change)
{
    const char *at = *bytes;
    if (end - at < HEADER) {
        return false;
    }
    uint64_t word = fw_le64_get(at);
    change->kind = (enum fw_change_kind)(word >> KIND_SHIFT);
    change->number = word & ((UINT64_C(1) << NUMBER_BITS) - 1);
    change->key_length = (uint8_t)at[HEADER - 1];
    change->key = at + HEADER;
    change->begin = at;
    bool is_known = change->kind >= FW_CHANGE_KEY && change->kind <= FW_CHANGE_EVICTED_MAIN;
    bool is_right =
        change->kind == FW_CHANGE_FLUSH || change->kind == FW_CHANGE_LATER
            ? change->key_length == 0
            : is_known && change->key_length > 0 && change->key_length <= FW_ITEM_KEY_MAX;
    *bytes = change->key + change->key_length;
    return is_right && *bytes <= end;
}
