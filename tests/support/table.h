/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of the table: keys that are numbers, and values that say whose they are, so that one
 * which is torn, moved wrongly or another key's is noticed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cache/table.h"

struct key_text {
    char bytes[FW_ITEM_KEY_MAX];
    size_t length;
};

/* Keys have various lengths, the same for the same number. */
static inline struct key_text key_text(uint64_t number)
{
    struct key_text text;
    text.length = (size_t)snprintf(text.bytes, sizeof text.bytes, "%0*lu", (int)(number % 7 + 4),
                                   (unsigned long)number);
    return text;
}

static inline struct fw_key key_of(const struct fw_table_local *local, const struct key_text *text)
{
    return fw_table_key(local, text->bytes, text->length);
}

/* The bytes of a value follow from its key's number and a stamp, which is its first 8 bytes. */
static inline char value_byte(uint64_t number, uint64_t stamp, size_t place)
{
    return (char)((number * 31 + stamp * 17 + place) & 0xff);
}

static inline void value_fill(char *value, size_t length, uint64_t number, uint64_t stamp)
{
    for (size_t i = 0; i < length; i++) {
        if (i < sizeof stamp) {
            value[i] = (char)(stamp >> (8 * i));
        } else {
            value[i] = value_byte(number, stamp, i);
        }
    }
}

static inline uint64_t value_stamp(const char *value)
{
    uint64_t stamp = 0;
    for (size_t i = 0; i < sizeof stamp; i++) {
        stamp |= (uint64_t)(unsigned char)value[i] << (8 * i);
    }
    return stamp;
}

/* Is it whole, and this key's? `length` is at least 8. */
static inline bool value_is_whole(const char *value, size_t length, uint64_t number)
{
    uint64_t stamp = value_stamp(value);
    for (size_t i = sizeof stamp; i < length; i++) {
        if (value[i] != value_byte(number, stamp, i)) {
            return false;
        }
    }
    return true;
}

/* Stores a value, in a body if it is long. False: no memory. */
static inline bool table_put(struct fw_table_local *local, uint64_t number, uint32_t length,
                             uint64_t stamp, uint32_t expires)
{
    struct key_text text = key_text(number);
    struct fw_key key = key_of(local, &text);
    struct fw_body *body = NULL;
    if (length > FW_ITEM_INLINE_MAX) {
        body = fw_body_create(local, length);
        if (body == NULL) {
            return false;
        }
        value_fill(body->bytes, length, number, stamp);
    }
    if (!fw_table_reserve(local, fw_item_size(key.length, length, FW_ITEM_FIELDS))) {
        if (body != NULL) {
            fw_body_unref(local, body);
        }
        return false;
    }
    struct fw_hold hold;
    fw_table_hold(local, &hold, &key);
    uint8_t fields = fw_fields_needed(0, expires, 0);
    struct fw_item *item = body != NULL ? fw_hold_attach(&hold, body, fields)
                                        : fw_hold_write(&hold, length, fields, NULL);
    fw_item_set_expires(item, expires);
    if (body == NULL) {
        value_fill(fw_item_value(item), length, number, stamp);
    }
    fw_hold_release(&hold);
    return true;
}

struct table_found {
    bool is_there;
    bool is_whole;
    enum fw_absence absence;
    uint32_t length;
    uint64_t stamp;
    uint64_t cas;
    uint64_t room; /* Of its record. */
    uint8_t bits;
};

/* Looks without marking it as read, unless `is_access`. */
static inline struct table_found table_look(struct fw_table_local *local, uint64_t number,
                                            bool is_access)
{
    struct key_text text = key_text(number);
    struct fw_key key = key_of(local, &text);
    struct fw_hold hold;
    fw_table_hold(local, &hold, &key);
    struct table_found found = {.is_there = hold.item != NULL, .absence = hold.absence};
    if (hold.item != NULL) {
        struct fw_item *item = hold.item;
        if (is_access) {
            fw_hold_access(&hold);
        }
        found.length = fw_item_length(item);
        found.cas = fw_item_cas(item);
        found.room = fw_item_room(item);
        found.bits = item->bits;
        found.stamp = value_stamp(fw_item_bytes(item));
        found.is_whole = value_is_whole(fw_item_bytes(item), fw_item_length(item), number);
    }
    fw_hold_release(&hold);
    return found;
}

static inline bool table_remove(struct fw_table_local *local, uint64_t number)
{
    struct key_text text = key_text(number);
    struct fw_key key = key_of(local, &text);
    struct fw_hold hold;
    fw_table_hold(local, &hold, &key);
    bool was_there = hold.item != NULL;
    if (was_there) {
        fw_hold_remove(&hold);
    }
    fw_hold_release(&hold);
    return was_there;
}
