/* SPDX-License-Identifier: Apache-2.0 */
/* mg, md, ma and me: all but the one that has a value. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cache/base64.h"
#include "cache/locks.h"
#include "cache/meta.h"

/* What mg finds out about the item while it goes through the flags. */
struct get {
    struct fw_hold hold;
    bool is_created; /* By flag N. */
    bool has_won;    /* This client is to renew it. */
};

/* Does what the flag says, and answers it. NULL: the opaque is too long. */
static char *get_flag(char *to, const struct fw_meta *meta, const struct fw_meta_word *word,
                      struct get *get)
{
    struct fw_item *item = get->hold.item;
    switch (word->bytes[0]) {
    case 'T':
        fw_item_set_expires(item, meta->touch_expires);
        return to;
    case 'N':
        if (get->is_created) {
            fw_item_set_expires(item, meta->vivify_expires);
            get->has_won = true;
        }
        return to;
    case 'R':
        if ((item->bits & FW_ITEM_WON) == 0 && !get->is_created && fw_item_expires(item) != 0 &&
            fw_item_expires(item) < meta->recache_expires) {
            get->has_won = true;
        }
        return to;
    case 's':
        return fw_meta_put_number(to, 's', fw_item_length(item));
    case 't':
        return fw_meta_put_expiry(to, meta, fw_item_expires(item));
    case 'c':
        return fw_meta_put_number(to, 'c', fw_operation_cas(meta->local, item));
    case 'f':
        return fw_meta_put_number(to, 'f', fw_item_flags(item));
    case 'l':
        return fw_meta_put_number(to, 'l', fw_item_idle(item, meta->local->now));
    case 'h':
        return fw_meta_put_number(to, 'h', (item->bits & FW_ITEM_FETCHED) != 0);
    case 'k':
        return fw_meta_put_key(to, item->key, item->key_length,
                               (item->bits & FW_ITEM_KEY_BINARY) != 0);
    default:
        return fw_meta_put_word(to, meta, word);
    }
}

/*
 * Z: somebody was told to renew the item; X: it is stale; W: you shall renew it. The first who sees
 * a stale item wins.
 */
static char *get_state(char *to, struct fw_item *item, bool has_won)
{
    bool is_stale = (item->bits & FW_ITEM_STALE) != 0;
    bool was_won = (item->bits & FW_ITEM_WON) != 0;
    if (was_won) {
        memcpy(to, " Z", 2);
        to += 2;
    }
    if (is_stale) {
        memcpy(to, " X", 2);
        to += 2;
    }
    if (has_won || (is_stale && !was_won)) {
        memcpy(to, " W", 2);
        to += 2;
        item->bits |= FW_ITEM_WON;
    }
    return to;
}

/* The line and the value. False: the opaque is too long, and nothing was written. */
static bool get_answer(struct fw_meta *meta, struct get *get)
{
    struct fw_item *item = get->hold.item;
    struct fw_reply *reply = &meta->local->reply;
    char *to = reply->next;
    if (meta->wants_value) {
        memcpy(to, "VA ", 3);
        to += 3;
        to += fw_text_decimal(to, fw_item_length(item));
    } else {
        memcpy(to, "HD", 2);
        to += 2;
    }
    for (uint32_t i = meta->first_flag; i < meta->word_count; i++) {
        to = get_flag(to, meta, &meta->words[i], get);
        if (to == NULL) {
            return false;
        }
    }
    to = get_state(to, item, get->has_won);
    memcpy(to, "\r\n", 2);
    to += 2;
    if (meta->wants_value) {
        to = fw_reply_put_value(reply, to, item);
        memcpy(to, "\r\n", 2);
        to += 2;
    }
    fw_reply_advance(reply, to);
    return true;
}

/* Is the O of the line too long? For those who answer nothing, or do nothing, then. */
static bool has_bad_opaque(const struct fw_meta *meta)
{
    for (uint32_t i = meta->first_flag; i < meta->word_count; i++) {
        if (meta->words[i].bytes[0] == 'O' && meta->words[i].length > FW_META_OPAQUE_MAX) {
            return true;
        }
    }
    return false;
}

/* memcached marks an item as read before it sees an opaque that is too long, but for these flags.
 */
static bool reads_late(const struct fw_meta *meta)
{
    for (uint32_t i = meta->first_flag; i < meta->word_count; i++) {
        if (strchr("hlNRT", meta->words[i].bytes[0]) != NULL) {
            return true;
        }
    }
    return false;
}

static void get_count(struct fw_meta *meta, const struct fw_hold *hold)
{
    struct fw_metrics_cache *metrics = meta->local->metrics;
    if (hold->item != NULL && meta->touches) {
        fw_counter_increment(&metrics->cmd_touch);
        fw_counter_increment(&metrics->touch_hits);
        return;
    }
    fw_counter_increment(&metrics->cmd_get);
    fw_counter_increment(hold->item != NULL ? &metrics->get_hits : &metrics->get_misses);
    if (hold->item == NULL && hold->absence == FW_ABSENT_EXPIRED) {
        fw_counter_increment(&metrics->get_expired);
    } else if (hold->item == NULL && hold->absence == FW_ABSENT_FLUSHED) {
        fw_counter_increment(&metrics->get_flushed);
    }
}

enum fw_parsed fw_meta_get(struct fw_meta *meta)
{
    struct fw_table_local *table = meta->local->table;
    struct fw_key key = fw_table_key(table, meta->key, meta->key_length);
    /* Without memory nothing is made, and the answer is a miss. */
    size_t size = fw_item_size(key.length, 0, FW_ITEM_EXPIRES);
    /* On a replica a get makes nothing. */
    bool may_create = meta->vivifies && fw_cache_takes_writes(meta->local->cache) &&
                      fw_table_reserve(table, size);
    struct get get = {.is_created = false};
    if (meta->touches) { /* It takes memory only for an item that is there. */
        fw_table_hold_to_expire(table, &get.hold, &key);
    } else {
        fw_table_hold(table, &get.hold, &key);
    }
    if (get.hold.item == NULL && may_create) {
        (void)fw_hold_write(&get.hold, 0, FW_ITEM_EXPIRES, NULL);
        get.is_created = true;
    }
    bool is_hit = get.hold.item != NULL;
    bool is_right = true;
    if (FW_LIKELY(is_hit)) {
        const uint8_t bits = get.hold.item->bits;
        is_right = get_answer(meta, &get);
        if (meta->touches || get.hold.item->bits != bits) {
            fw_hold_note(&get.hold);
        }
        if (!meta->is_peek && (is_right || !reads_late(meta))) {
            fw_hold_access(&get.hold);
        }
    }
    if (is_right) {
        get_count(meta, &get.hold);
    }
    fw_hold_release(&get.hold);
    if (!is_right) {
        return fw_meta_answer(meta, FW_META_BAD_OPAQUE);
    }
    if (is_hit || (meta->is_quiet && !has_bad_opaque(meta))) {
        return FW_PARSED;
    }
    return fw_meta_answer_code(meta, "EN");
}

/* Not gone, but stale: the next who reads it is told to renew it. */
static enum fw_outcome item_invalidate(const struct fw_meta *meta, const struct fw_key *key)
{
    struct fw_cache_local *local = meta->local;
    struct fw_hold hold;
    enum fw_outcome outcome = FW_DONE;
    if (meta->touches) {
        fw_table_hold_to_expire(local->table, &hold, key);
    } else {
        fw_table_hold(local->table, &hold, key);
    }
    struct fw_item *item = hold.item;
    if (item == NULL) {
        fw_counter_increment(&local->metrics->delete_misses);
        outcome = FW_NOT_FOUND;
    } else if (meta->compares && meta->cas != fw_operation_cas(local, item)) {
        outcome = FW_EXISTS;
    } else if (fw_locks_refuse(local->cache->locks, &hold, meta->session->client)) {
        outcome = FW_IS_LOCKED;
    } else {
        if (meta->touches) {
            fw_item_set_expires(item, meta->touch_expires);
        }
        item->bits = (uint8_t)((item->bits | FW_ITEM_STALE) & ~FW_ITEM_WON);
        fw_hold_renumber(&hold);
    }
    fw_hold_release(&hold);
    return outcome;
}

/* No item has CAS 0, where there are CAS: who asks for it is told so, if there is an item. */
static enum fw_outcome remove_zero(const struct fw_meta *meta, const struct fw_key *key)
{
    struct fw_hold hold;
    fw_table_hold(meta->local->table, &hold, key);
    bool is_there = hold.item != NULL;
    fw_hold_release(&hold);
    if (!is_there) {
        fw_counter_increment(&meta->local->metrics->delete_misses);
    }
    return is_there ? FW_EXISTS : FW_NOT_FOUND;
}

enum fw_parsed fw_meta_delete(struct fw_meta *meta)
{
    if (has_bad_opaque(meta)) {
        return fw_meta_answer(meta, FW_META_BAD_OPAQUE);
    }
    struct fw_cache_local *local = meta->local;
    struct fw_key key = fw_table_key(local->table, meta->key, meta->key_length);
    enum fw_outcome outcome;
    if (meta->invalidates) {
        outcome = item_invalidate(meta, &key);
    } else if (meta->compares && meta->cas == 0 && local->cache->settings.has_cas) {
        outcome = remove_zero(meta, &key);
    } else {
        outcome = fw_operation_remove(local, &key, meta->cas, meta->session->client);
    }
    switch (outcome) {
    case FW_DONE:
        return meta->is_quiet ? FW_PARSED : fw_meta_answer_code(meta, "HD");
    case FW_NOT_FOUND:
        return fw_meta_answer_code(meta, "NF");
    case FW_EXISTS:
        fw_counter_increment(&local->metrics->delete_misses);
        return fw_meta_answer_code(meta, "EX");
    case FW_NOT_STORED:
    case FW_TOO_LARGE:
    case FW_NO_MEMORY:
    case FW_IS_LARGE:
    case FW_NO_SPACE:
    case FW_DISK_FAILED:
    case FW_NOT_A_NUMBER:
    case FW_IS_LOCKED:
        break;
    }
    return fw_meta_answer_code(meta, "NS");
}

/* The value, if it is asked for, and the flags in their order. NULL: the opaque is too long. */
static char *count_put(char *to, const struct fw_meta *meta, const struct fw_count *count)
{
    char digits[FW_TEXT_DECIMAL_MAX];
    size_t length = fw_text_decimal(digits, count->value);
    uint32_t expires = count->expires_was; /* As of this place in the line. */
    if (meta->wants_value) {
        memcpy(to, "VA ", 3);
        to += 3;
        to += fw_text_decimal(to, length);
    } else {
        memcpy(to, "HD", 2);
        to += 2;
    }
    for (uint32_t i = meta->first_flag; i < meta->word_count && to != NULL; i++) {
        switch (meta->words[i].bytes[0]) {
        case 'c':
            to = fw_meta_put_number(to, 'c', count->cas_is);
            break;
        case 't':
            to = fw_meta_put_expiry(to, meta, expires);
            break;
        case 'T':
            expires = meta->touch_expires;
            break;
        case 'N':
            expires = count->is_created ? meta->vivify_expires : expires;
            break;
        default:
            to = fw_meta_put_word(to, meta, &meta->words[i]);
        }
    }
    if (to != NULL && meta->wants_value) {
        memcpy(to, "\r\n", 2);
        memcpy(to + 2, digits, length);
        to += 2 + length;
    }
    return to;
}

static enum fw_parsed count_answer(struct fw_meta *meta, const struct fw_count *count)
{
    /* One that was made is also answered to who wants to hear nothing. */
    if (meta->is_quiet && !count->is_created && !has_bad_opaque(meta)) {
        return FW_PARSED;
    }
    struct fw_reply *reply = &meta->local->reply;
    char *to = count_put(reply->next, meta, count);
    if (to == NULL) {
        return fw_meta_answer(meta, FW_META_BAD_OPAQUE);
    }
    memcpy(to, "\r\n", 2);
    fw_reply_advance(reply, to + 2);
    return FW_PARSED;
}

/* When an item that is made expires: what N or T says, whichever comes last in the line. */
static uint32_t count_expires(const struct fw_meta *meta)
{
    uint32_t expires = 0;
    for (uint32_t i = meta->first_flag; i < meta->word_count; i++) {
        char letter = meta->words[i].bytes[0];
        expires = letter == 'N' ? meta->vivify_expires : expires;
        expires = letter == 'T' ? meta->touch_expires : expires;
    }
    return expires;
}

enum fw_parsed fw_meta_count(struct fw_meta *meta)
{
    bool is_down = meta->mode == 'D' || meta->mode == '-';
    if (!is_down && meta->mode != 0 && meta->mode != 'I' && meta->mode != '+') {
        return fw_meta_answer(meta, "CLIENT_ERROR invalid mode for ma M token");
    }
    struct fw_count count = {
        .delta = meta->delta,
        .is_down = is_down,
        .may_create = meta->vivifies,
        .may_touch = meta->touches,
        .initial = meta->initial,
        .expires = count_expires(meta),
        .touch_expires = meta->touch_expires,
        .cas = meta->cas,
        .client = meta->session->client,
    };
    struct fw_key key = fw_table_key(meta->local->table, meta->key, meta->key_length);
    switch (fw_operation_count(meta->local, &key, &count)) {
    case FW_DONE:
        return count_answer(meta, &count);
    case FW_NOT_FOUND:
        return fw_meta_answer_code(meta, "NF");
    case FW_EXISTS:
        return fw_meta_answer_code(meta, "EX");
    case FW_NOT_A_NUMBER:
        return fw_meta_answer(meta, "CLIENT_ERROR cannot increment or decrement non-numeric value");
    case FW_NO_MEMORY:
        return fw_meta_answer(meta, "SERVER_ERROR out of memory");
    case FW_NOT_STORED:
    case FW_TOO_LARGE:
    case FW_IS_LARGE:
    case FW_NO_SPACE:
    case FW_DISK_FAILED:
    case FW_IS_LOCKED:
        break;
    }
    return fw_meta_answer_code(meta, "NS");
}

/* Item classes are memcached's; here there is one. The expiry has memcached's odd sign. */
static void debug_answer(struct fw_meta *meta, const struct fw_item *item)
{
    struct fw_reply *reply = &meta->local->reply;
    uint32_t now = meta->local->now;
    FW_REPLY_ADD(reply, "ME ");
    if ((item->bits & FW_ITEM_KEY_BINARY) != 0) {
        fw_reply_advance(reply, fw_base64_encode(item->key, item->key_length, reply->next));
    } else {
        fw_reply_add(reply, item->key, item->key_length);
    }
    enum { ROOM = 256 };
    struct fw_text text;
    fw_text_init(&text, reply->next, ROOM);
    fw_text_append_string(&text, " exp=");
    uint32_t expires = fw_item_expires(item);
    fw_text_append_signed(&text, expires == 0 ? -1 : (int64_t)now - expires);
    fw_text_append_string(&text, " la=");
    fw_text_append_unsigned(&text, fw_item_idle(item, now));
    fw_text_append_string(&text, " cas=");
    fw_text_append_unsigned(&text, fw_operation_cas(meta->local, item));
    fw_text_append_string(&text, (item->bits & FW_ITEM_FETCHED) != 0 ? " fetch=yes" : " fetch=no");
    fw_text_append_string(&text, " cls=1 size=");
    fw_text_append_unsigned(&text, fw_item_room(item));
    fw_text_append_string(&text, "\r\n");
    fw_reply_advance(reply, reply->next + text.length);
}

enum fw_parsed fw_meta_debug(struct fw_meta *meta)
{
    if (meta->word_count < 2 || meta->key_length > FW_ITEM_KEY_MAX) {
        return fw_meta_answer(meta, FW_META_BAD_LINE);
    }
    if (meta->word_count > 2 && meta->words[2].length == 1 && meta->words[2].bytes[0] == 'b') {
        size_t length = fw_base64_decode(meta->key, meta->key_length, meta->key_decoded);
        if (length == 0) {
            return fw_meta_answer(meta, FW_META_BAD_LINE);
        }
        meta->key = meta->key_decoded;
        meta->key_length = (uint32_t)length;
    }
    struct fw_key key = fw_table_key(meta->local->table, meta->key, meta->key_length);
    struct fw_hold hold;
    fw_counter_increment(&meta->local->metrics->cmd_meta);
    fw_table_hold(meta->local->table, &hold, &key);
    bool is_there = hold.item != NULL;
    if (is_there) {
        debug_answer(meta, hold.item);
    }
    fw_hold_release(&hold);
    return is_there ? FW_PARSED : fw_meta_answer(meta, "EN");
}
