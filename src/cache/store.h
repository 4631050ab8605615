/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walking skeleton's table: keys, values, a memory limit, first in first out.
 *
 * It exists so that `fairway serve` is true from the first day; the object server brings a shared
 * table with a lock per bucket, ageing counters and a memory layout of its own, and removes this
 * one. Until then it keeps what users must be able to rely on: the limit counts every byte it
 * allocates, the oldest items leave when it is reached, and an item that is being sent stays whole
 * until its last reference is given back.
 *
 * Ownership: the store owns its items; get() lends a reference that the caller gives back by
 * unref(); a new item is the caller's until put() or unref(). Concurrency: none, it belongs to one
 * locality.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/list.h"

enum { FW_KEY_SIZE_MAX = 250 };

struct fw_old_item {
    struct fw_list_link age_link; /* In the store's order of arrival; unlinked: not in the table. */
    struct fw_old_item *bucket_next;
    int64_t expires_s; /* Seconds of the caller's clock; 0: never. */
    uint64_t hash;
    uint32_t flags;
    uint32_t references;
    uint32_t value_size;
    uint8_t key_size;
    char data[]; /* The key, then the value. */
};

struct fw_old_store;

/* `memory_max` bounds the table and its items together. Returns 0, -EINVAL (too little) or -ENOMEM.
 */
FW_MUST_CHECK int fw_old_store_create(struct fw_old_store **store, size_t memory_max);

/* All references must have been given back. */
void fw_old_store_destroy(struct fw_old_store *store);

/* A reference to the live item of that key, or NULL. */
struct fw_old_item *fw_old_store_get(struct fw_old_store *store, const char *key, size_t key_size,
                             int64_t now_s);

/*
 * A new item with room for its value, not yet in the table, or NULL if it would never fit or memory
 * is short. Older items leave to make room for it.
 */
struct fw_old_item *fw_old_store_item_new(struct fw_old_store *store, const char *key, size_t key_size,
                                  size_t value_size);

/* Puts the item in the table in place of any of its key and takes the caller's reference. */
void fw_old_store_put(struct fw_old_store *store, struct fw_old_item *item);

/* True if there was a live one. */
bool fw_old_store_delete(struct fw_old_store *store, const char *key, size_t key_size, int64_t now_s);

void fw_old_store_unref(struct fw_old_store *store, struct fw_old_item *item);

static inline char *fw_old_item_value(struct fw_old_item *item)
{
    return item->data + item->key_size;
}

/* What the store has allocated now; at most its limit. */
size_t fw_old_store_memory(const struct fw_old_store *store);
size_t fw_old_store_count(const struct fw_old_store *store);
