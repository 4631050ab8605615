/* SPDX-License-Identifier: Apache-2.0 */
#include "repl/apply.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "cache/changes.h"
#include "io/clock.h"

#define AHEAD_MIN        (UINT64_C(1) << 30)
#define AHEAD_PER_SECOND (UINT64_C(1) << 24)

uint64_t fw_repl_numbers_ahead(int64_t silence_ns)
{
    uint64_t seconds = silence_ns > 0 ? (uint64_t)silence_ns / FW_NS_PER_S + 1 : 0;
    /* So many would use up all numbers: more makes no difference. */
    uint64_t seconds_max = FW_ITEM_NUMBER_END / AHEAD_PER_SECOND;
    return AHEAD_MIN + (seconds < seconds_max ? seconds : seconds_max) * AHEAD_PER_SECOND;
}

static void apply_delete(struct fw_cache_local *local, const struct fw_key *key)
{
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, key);
    if (hold.item != NULL) {
        fw_hold_remove(&hold);
    }
    fw_hold_release(&hold);
}

/* The item that was just written gets all but its value. */
static void item_finish(struct fw_item *item, const struct fw_repl_message *message,
                        uint32_t expires)
{
    uint64_t number = message->number != 0 ? message->number : message->cas;
    fw_item_set_flags(item, message->flags);
    fw_item_set_expires(item, expires);
    item->bits &= (uint8_t)~FW_REPL_BITS;
    item->bits |= (uint8_t)(message->opaque & FW_REPL_BITS);
    if ((message->opaque & FW_REPL_AGED) != 0) {
        item->bits &= (uint8_t)~FW_REPL_AGE_BITS;
        item->bits |= (uint8_t)(message->opaque & FW_REPL_AGE_BITS);
    }
    if (message->cas != 0) { /* Else the master is none of ours, and the number is our own. */
        fw_item_set_number(item, number);
    }
    if (message->number != 0) {
        fw_item_set_cas(item, message->cas);
    }
}

static int apply_set(struct fw_cache_local *local, const struct fw_repl_message *message,
                     struct fw_body *body)
{
    struct fw_key key = fw_table_key(local->table, message->key, message->key_length);
    uint32_t expires = fw_cache_expiry(local, message->expires);
    uint8_t fields = fw_fields_needed(message->flags, expires, message->number);
    size_t size = fw_item_size(key.length, message->value_length, fields);
    if (!fw_table_reserve(local->table, size)) {
        if (body != NULL) {
            fw_body_unref(local->table, body);
        }
        apply_delete(local, &key);
        return -ENOSPC;
    }
    struct fw_hold hold;
    struct fw_item *item;
    fw_table_hold(local->table, &hold, &key);
    if (body == NULL) {
        item = fw_hold_write(&hold, message->value_length, fields, NULL);
        memcpy(fw_item_value(item), message->value, message->value_length);
    } else {
        item = fw_hold_attach(&hold, body, fields);
    }
    item_finish(item, message, expires);
    fw_hold_release(&hold);
    return 0;
}

static int apply_touch(struct fw_cache_local *local, const struct fw_repl_message *message)
{
    struct fw_key key = fw_table_key(local->table, message->key, message->key_length);
    struct fw_hold hold;
    int rc = 0;
    if (!fw_table_hold_with(local->table, &hold, &key, FW_ITEM_EXPIRES, 0) && hold.item != NULL &&
        (hold.item->fields & FW_ITEM_EXPIRES) == 0) {
        fw_hold_remove(&hold); /* There is no memory to note when it expires. */
        rc = -ENOSPC;
    }
    if (hold.item != NULL) {
        fw_item_set_expires(hold.item, fw_cache_expiry(local, message->expires));
        hold.item->bits &= (uint8_t)~FW_REPL_BITS;
        hold.item->bits |= (uint8_t)(message->opaque & FW_REPL_BITS);
    }
    fw_hold_release(&hold);
    return rc;
}

/* What the master has evicted, unless it was written again since. 0 or -EPROTO. */
static int apply_evicted(struct fw_cache_local *local, const struct fw_repl_message *message)
{
    const char *next = message->value;
    const char *end = next + message->value_length;
    while (next < end) {
        struct fw_change change;
        struct fw_hold hold;
        if (!fw_change_next(&next, end, &change) || !fw_change_is_eviction(&change)) {
            return -EPROTO;
        }
        struct fw_key key = fw_table_key(local->table, change.key, change.key_length);
        fw_table_hold(local->table, &hold, &key);
        if (hold.item != NULL && fw_item_number(hold.item) <= change.number) {
            fw_hold_evict(&hold, change.kind == FW_CHANGE_EVICTED_MAIN);
        }
        fw_hold_release(&hold);
    }
    return 0;
}

static void apply_later(struct fw_cache_local *local, uint32_t seconds)
{
    uint64_t at = seconds == 0 ? 0 : (uint64_t)local->now + seconds;
    /* Relaxed: read when there is no follower. */
    atomic_store_explicit(&local->cache->master_flush_at,
                          at < UINT32_MAX ? (uint32_t)at : UINT32_MAX, memory_order_relaxed);
}

static int apply(struct fw_cache_local *local, const struct fw_repl_message *message)
{
    FW_ASSERT(!message->is_large);
    struct fw_key key;
    int rc = 0;
    switch (message->opcode) {
    case FW_REPL_SET:
    case FW_REPL_SETQ:
        rc = apply_set(local, message, NULL);
        break;
    case FW_REPL_DELETE:
    case FW_REPL_DELETEQ:
        key = fw_table_key(local->table, message->key, message->key_length);
        apply_delete(local, &key);
        break;
    case FW_REPL_TOUCH:
        rc = apply_touch(local, message);
        break;
    case FW_REPL_EVICTED:
        rc = apply_evicted(local, message);
        break;
    case FW_REPL_FLUSHQ:
        if (message->cas != 0) {
            fw_table_flush_below(local->table, message->cas);
        } else {
            fw_table_flush(local->table);
        }
        break;
    case FW_REPL_LATER:
        apply_later(local, message->expires);
        break;
    case FW_REPL_NOOP:
    case FW_REPL_HELLO:
    case FW_REPL_CHALLENGE:
    case FW_REPL_PROOF:
    case FW_REPL_READ:
    case FW_REPL_ABOUT:
        break;
    }
    return rc;
}

int fw_repl_apply(struct fw_cache_local *local, const struct fw_repl_message *message)
{
    /* What has expired by our clock may be alive at the master, which touches it then. */
    fw_table_local_see_expired(local->table, true);
    int rc = apply(local, message);
    fw_table_local_see_expired(local->table, false);
    return rc;
}

int fw_repl_apply_large(struct fw_cache_local *local, const struct fw_repl_message *message,
                        struct fw_body *body)
{
    FW_ASSERT(message->is_large && body->length == message->value_length);
    fw_table_local_see_expired(local->table, true);
    int rc = apply_set(local, message, body);
    fw_table_local_see_expired(local->table, false);
    return rc;
}
