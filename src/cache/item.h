/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An item: one key with its value, as it lies in memory.
 *
 * An item is a *record*: 14 bytes of header, the key, fields that only some items have, the value;
 * not aligned, and nothing between it and the next. It has no links: the table's buckets point at
 * it, and the memory it lies in is walked from record to record. So an item of a 32-byte key and
 * 100 bytes takes 146 bytes, where memcached takes 196.
 *
 * What most items do not have costs nothing: when it expires, the client's flags, a CAS that a
 * client chose. `fields` says which of them stand behind the key. An item that is to get one that
 * it lacks needs a new record; fw_table_hold_with() sees to it.
 *
 * The *number* is the item's in the sequence of all that was ever written, and its CAS unless a
 * client chose another. It also says whether the item is older than the last flush. 48 bits last
 * for nine years of a million writes a second. When all but FW_ITEM_NUMBERS_KEPT are given, clients
 * can change nothing any more and are told why (cache.h). To begin again at 1 with items in the
 * table would bring back flushed items, and to give the last number twice would make every `cas`
 * succeed. A restart begins again: see server/image.h. Numbers that come from outside, in an image,
 * a dump or from a master, are refused from FW_ITEM_NUMBER_END on.
 *
 * Values beyond FW_ITEM_INLINE_MAX live in a *body* of their own, and the record ends with a
 * pointer to it. A body is counted by references, because it is sent straight from where it lies
 * and a slow client may take its time; a record never is: whoever reads one holds its bucket's lock
 * and copies what it needs. So a record can be moved, overwritten in place or dropped by whoever
 * holds that lock, and nobody has to be waited for. A body may also stand for a value that is not
 * in memory at all (large.h).
 *
 * All but the body's count is guarded by the lock of the key's bucket. Times are in seconds of the
 * cache's own clock, see cache.h: 0 is never. Of the time of the last access there are 24 bits: who
 * has not been read for 194 days seems to have been a moment ago.
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/base.h"

enum {
    FW_ITEM_KEY_MAX = 250,
    FW_ITEM_INLINE_MAX = 8192, /* Longer values are copied once only: from the network to a body. */
    FW_ITEM_AGE_MAX = 3,
    FW_ITEM_AGE_NEW = 2, /* Of an item that nobody has read yet. */
    FW_ITEM_IDLE_MAX = 0xffffff,
};

/* Every number is lower. The last ones are for writes that began while some were left. */
#define FW_ITEM_NUMBER_END   (UINT64_C(1) << 48)
#define FW_ITEM_NUMBERS_KEPT (UINT64_C(1) << 20)

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

/* fw_item.fields: what stands behind the key, in this order. */
enum {
    FW_ITEM_EXPIRES = 1, /* 32 bits. */
    FW_ITEM_FLAGS = 2,   /* The client's, 32 bits. */
    FW_ITEM_CAS = 4,     /* The client's, 64 bits. */
    FW_ITEM_FIELDS = 7,  /* All of them: as much room as a record may ever need. */
};

/* Packed: a record begins at any address. */
struct __attribute__((packed)) fw_item {
    uint32_t number_low;
    uint16_t number_high;
    uint16_t tail_length; /* Of what ends the record: the value, or a pointer to its body. */
    uint16_t accessed_low;
    uint8_t accessed_high;
    uint8_t bits;
    uint8_t fields;
    uint8_t key_length;
    char key[];
};

struct fw_body {
    _Atomic uint32_t references;
    uint32_t length; /* Of the value. */
    uint32_t room;   /* How many bytes stand below. */
    bool is_stored;  /* They are not the value, but say where in a file it is: large.h. */
    alignas(16) char bytes[];
};

/* A key with its hash, which is computed once per request: fw_table_key() makes it. */
struct fw_key {
    const char *bytes;
    uint64_t hash;
    uint32_t length;
};

/* How much room these fields take. */
static inline size_t fw_fields_size(uint8_t fields)
{
    if (FW_LIKELY(fields == 0)) {
        return 0;
    }
    return ((fields & FW_ITEM_EXPIRES) != 0 ? sizeof(uint32_t) : 0) +
           ((fields & FW_ITEM_FLAGS) != 0 ? sizeof(uint32_t) : 0) +
           ((fields & FW_ITEM_CAS) != 0 ? sizeof(uint64_t) : 0);
}

/* How much room a record takes. */
static inline size_t fw_item_size(size_t key_length, size_t value_length, uint8_t fields)
{
    size_t tail = value_length > FW_ITEM_INLINE_MAX ? sizeof(void *) : value_length;
    return sizeof(struct fw_item) + key_length + fw_fields_size(fields) + tail;
}

/* How much room this one takes. */
static inline size_t fw_item_room(const struct fw_item *item)
{
    return sizeof *item + item->key_length + fw_fields_size(item->fields) + item->tail_length;
}

/* Where its value begins, or where the pointer to its body is. */
static inline char *fw_item_value(struct fw_item *item)
{
    return item->key + item->key_length + fw_fields_size(item->fields);
}

static inline struct fw_body *fw_item_body(const struct fw_item *item)
{
    struct fw_body *body;
    memcpy(&body, item->key + item->key_length + fw_fields_size(item->fields), sizeof(void *));
    return body;
}

/* Is the value in a file? */
static inline bool fw_item_is_stored(const struct fw_item *item)
{
    return (item->bits & FW_ITEM_BODY) != 0 && fw_item_body(item)->is_stored;
}

/* The bytes of the value, which is not in a file, and how many. */
static inline const char *fw_item_bytes(struct fw_item *item)
{
    FW_ASSERT(!fw_item_is_stored(item));
    return (item->bits & FW_ITEM_BODY) != 0 ? fw_item_body(item)->bytes : fw_item_value(item);
}

/* How much memory it has outside of its record. */
static inline uint32_t fw_item_outside(const struct fw_item *item)
{
    return (item->bits & FW_ITEM_BODY) != 0 ? fw_item_body(item)->room : 0;
}

static inline uint32_t fw_item_length(const struct fw_item *item)
{
    return FW_UNLIKELY((item->bits & FW_ITEM_BODY) != 0) ? fw_item_body(item)->length
                                                         : item->tail_length;
}

/* Where that field is, which the item has. */
static inline char *fw_item_field(struct fw_item *item, uint8_t field)
{
    FW_ASSERT((item->fields & field) != 0);
    uint8_t before = (uint8_t)(item->fields & (field - 1));
    return item->key + item->key_length + fw_fields_size(before);
}

static inline uint32_t fw_item_u32(const struct fw_item *item, uint8_t field)
{
    uint32_t value = 0;
    if ((item->fields & field) != 0) {
        uint8_t before = (uint8_t)(item->fields & (field - 1));
        memcpy(&value, item->key + item->key_length + fw_fields_size(before), sizeof value);
    }
    return value;
}

static inline void fw_item_set_u32(struct fw_item *item, uint8_t field, uint32_t value)
{
    if ((item->fields & field) != 0) {
        memcpy(fw_item_field(item, field), &value, sizeof value);
    } else {
        FW_ASSERT(value == 0); /* That is what it means not to have it. */
    }
}

static inline uint32_t fw_item_expires(const struct fw_item *item)
{
    return fw_item_u32(item, FW_ITEM_EXPIRES);
}

static inline void fw_item_set_expires(struct fw_item *item, uint32_t expires)
{
    fw_item_set_u32(item, FW_ITEM_EXPIRES, expires);
}

static inline uint32_t fw_item_flags(const struct fw_item *item)
{
    return fw_item_u32(item, FW_ITEM_FLAGS);
}

static inline void fw_item_set_flags(struct fw_item *item, uint32_t flags)
{
    fw_item_set_u32(item, FW_ITEM_FLAGS, flags);
}

static inline uint64_t fw_item_number(const struct fw_item *item)
{
    return (uint64_t)item->number_high << 32 | item->number_low;
}

static inline uint64_t fw_item_cas(const struct fw_item *item)
{
    if (FW_LIKELY((item->fields & FW_ITEM_CAS) == 0)) {
        return fw_item_number(item);
    }
    uint64_t cas;
    uint8_t before = (uint8_t)(item->fields & (FW_ITEM_CAS - 1));
    memcpy(&cas, item->key + item->key_length + fw_fields_size(before), sizeof cas);
    return cas;
}

/* It has the field. */
static inline void fw_item_set_cas(struct fw_item *item, uint64_t cas)
{
    memcpy(fw_item_field(item, FW_ITEM_CAS), &cas, sizeof cas);
}

/* A new number, which is its CAS too from now on. */
static inline void fw_item_set_number(struct fw_item *item, uint64_t number)
{
    item->number_low = (uint32_t)number;
    item->number_high = (uint16_t)(number >> 32);
    if (FW_UNLIKELY((item->fields & FW_ITEM_CAS) != 0)) {
        fw_item_set_cas(item, number);
    }
}

static inline void fw_item_set_accessed(struct fw_item *item, uint32_t now)
{
    item->accessed_low = (uint16_t)now;
    item->accessed_high = (uint8_t)(now >> 16);
}

/* For how many seconds nobody has accessed it. Another thread's clock may be a moment ahead. */
static inline uint32_t fw_item_idle(const struct fw_item *item, uint32_t now)
{
    enum { AHEAD_MAX = 256 };
    uint32_t accessed = (uint32_t)item->accessed_high << 16 | item->accessed_low;
    uint32_t idle = (now - accessed) & FW_ITEM_IDLE_MAX;
    return idle > FW_ITEM_IDLE_MAX - AHEAD_MAX ? 0 : idle;
}

/* Which fields an item needs for these. A CAS of 0 is none. */
static inline uint8_t fw_fields_needed(uint32_t flags, uint32_t expires, uint64_t cas)
{
    return (uint8_t)((expires != 0 ? FW_ITEM_EXPIRES : 0) | (flags != 0 ? FW_ITEM_FLAGS : 0) |
                     (cas != 0 ? FW_ITEM_CAS : 0));
}
