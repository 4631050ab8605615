/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An item: one key with its value, as it lies in memory.
 *
 * An item is a *record*: 28 bytes of header, the key, the value, rounded up to 8. It has no links:
 * the table's buckets point at it, and the memory it lies in is walked from record to record. So
 * an item of a 32-byte key and 100 bytes takes 160 bytes, where memcached takes 240.
 *
 * Values beyond FW_ITEM_INLINE_MAX live in a *body* of their own, and the record ends with a
 * pointer to it. A body is counted by references, because it is sent straight from where it lies
 * and a slow client may take its time; a record never is: whoever reads one holds its bucket's lock
 * and copies what it needs. So a record can be moved, overwritten in place or dropped by whoever
 * holds that lock, and nobody has to be waited for.
 *
 * All members but the body's count are guarded by the lock of the key's bucket. Times are in
 * seconds of the cache's own clock, see cache.h: 0 is never.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/base.h"

enum {
    FW_ITEM_KEY_MAX = 250,
    FW_ITEM_INLINE_MAX = 8192, /* Longer values are copied once only: from the network to a body. */
    FW_ITEM_AGE_MAX = 3,
    FW_ITEM_AGE_NEW = 2, /* Of an item that nobody has read yet. */
};

/* fw_item.bits */
enum {
    FW_ITEM_AGE = 3,         /* A counter: raised by each sweep, cleared by access; see clean.c. */
    FW_ITEM_FETCHED = 4,     /* Was read since it was stored. */
    FW_ITEM_STALE = 8,       /* Meta: invalidated, but still shown; somebody should renew it. */
    FW_ITEM_WON = 16,        /* Meta: somebody was told to renew it. */
    FW_ITEM_BODY = 32,       /* The value is elsewhere. */
    FW_ITEM_KEY_BINARY = 64, /* Meta: the key came in base64 and is shown so. */
    FW_ITEM_LOCKED = 128,    /* A client has locked it; by whom is in the table of locks. */
};

struct fw_item {
    uint64_t cas;
    uint32_t value_length;
    uint32_t expires;
    uint32_t accessed;
    uint32_t flags;      /* The client's. */
    uint16_t generation; /* Items of an older one than the table's were flushed. */
    uint8_t bits;
    uint8_t key_length;
    char key[]; /* Then the value, or the pointer to a body, unaligned. */
};

struct fw_body {
    _Atomic uint32_t references;
    uint32_t length;
    char bytes[];
};

/* A key with its hash, which is computed once per request: fw_table_key() makes it. */
struct fw_key {
    const char *bytes;
    uint64_t hash;
    uint32_t length;
};

static inline char *fw_item_value(struct fw_item *item)
{
    return item->key + item->key_length;
}

static inline struct fw_body *fw_item_body(const struct fw_item *item)
{
    struct fw_body *body;
    memcpy(&body, item->key + item->key_length, sizeof(void *));
    return body;
}

/* The bytes of the value, wherever they are. */
static inline const char *fw_item_bytes(struct fw_item *item)
{
    return (item->bits & FW_ITEM_BODY) != 0 ? fw_item_body(item)->bytes : fw_item_value(item);
}

/* How much room a record takes. */
static inline size_t fw_item_size(size_t key_length, size_t value_length)
{
    size_t tail = value_length > FW_ITEM_INLINE_MAX ? sizeof(void *) : value_length;
    return (offsetof(struct fw_item, key) + key_length + tail + 7) & ~(size_t)7;
}
