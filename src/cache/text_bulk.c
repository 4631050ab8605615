/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `dump`: items with their values, for `fairway dump`.
 *
 *     dump PART PARTS [PREFIX]
 *
 *     VA 5 kKEY f0 t-1 c17 h0 l3
 *     value
 *     ...
 *     EN
 *
 * An item is answered as `mg KEY k f t c h l v` would answer it, with X and Z behind that if it is
 * stale and if somebody was told to renew it; reading it leaves no trace. A walk may be cut into
 * parts (see walk.h), so that several connections share it. It goes on as the reply has room, while
 * service goes on, and in short steps: whoever else is served on this core waits for one of them.
 *
 * memcached's way, a list of keys and a get for each, works here as well; this is half the work for
 * both sides, and no item that is there all the time can be missed.
 */
#include <string.h>

#include "base/assert.h"
#include "base/text.h"
#include "cache/meta.h"
#include "cache/number.h"
#include "cache/text.h"
#include "cache/walk.h"

enum {
    STEP_BYTES = 8 * 1024,    /* Some 10 microseconds, with what it takes to send them. */
    STEP_BUCKETS_MAX = 64,    /* Of buckets where nothing is found. */
    LINE_SIZE = 1024 - 2 * 2, /* Of an item's first line; FW_REPLY_ROOM_MIN counts with it. */
};

struct bulk {
    struct fw_walk walk;
    struct fw_cache_local *local;
    bool is_single; /* This bucket is walked item by item. */
    uint8_t prefix_length;
    char prefix[FW_ITEM_KEY_MAX];
};

static char *put_state(char *to, const struct fw_item *item)
{
    if ((item->bits & FW_ITEM_STALE) != 0) {
        memcpy(to, " X", 2);
        to += 2;
    }
    if ((item->bits & FW_ITEM_WON) != 0) {
        memcpy(to, " Z", 2);
        to += 2;
    }
    return to;
}

/* A key that a line cannot have is shown in base64 too, whoever stored it. */
static bool key_is_binary(const struct fw_item *item)
{
    const char *end = item->key + item->key_length;
    return (item->bits & FW_ITEM_KEY_BINARY) != 0 || fw_text_scan(item->key, end) != end;
}

static char *put_line(char *to, const struct fw_cache_local *local, const struct fw_item *item)
{
    uint32_t expires = fw_item_expires(item);
    memcpy(to, "VA ", 3);
    to += 3;
    to += fw_text_decimal(to, fw_item_length(item));
    to = fw_meta_put_key(to, item->key, item->key_length, key_is_binary(item));
    to = fw_meta_put_number(to, 'f', fw_item_flags(item));
    if (expires == 0) {
        memcpy(to, " t-1", 4);
        to += 4;
    } else { /* A locked item may stay beyond its time: it has the least there is left. */
        to = fw_meta_put_number(to, 't', expires > local->now ? expires - local->now : 1);
    }
    to = fw_meta_put_number(to, 'c', fw_operation_cas(local, item));
    to = fw_meta_put_number(to, 'h', (item->bits & FW_ITEM_FETCHED) != 0);
    to = fw_meta_put_number(to, 'l', fw_item_idle(item, local->now));
    to = put_state(to, item);
    memcpy(to, "\r\n", 2);
    return to + 2;
}

static bool bulk_take(struct fw_item *item, void *context)
{
    const struct bulk *bulk = context;
    struct fw_reply *reply = &bulk->local->reply;
    bool has_body = (item->bits & FW_ITEM_BODY) != 0;
    if (item->key_length < bulk->prefix_length ||
        memcmp(item->key, bulk->prefix, bulk->prefix_length) != 0) {
        return true;
    }
    char *to = fw_reply_room(reply, LINE_SIZE + 2 + (has_body ? 0 : (size_t)item->tail_length));
    if (to == NULL || (has_body && !fw_reply_has_pieces(reply))) {
        return false;
    }
    to = put_line(to, bulk->local, item);
    to = fw_reply_put_value(reply, to, item);
    memcpy(to, "\r\n", 2);
    fw_reply_advance(reply, to + 2);
    return true;
}

/* A bucket, or an item of it. False: the reply is full. */
static bool bulk_advance(struct bulk *bulk)
{
    struct fw_reply *reply = &bulk->local->reply;
    struct fw_table_local *table = bulk->local->table;
    if (bulk->is_single) {
        enum fw_walk_item item = fw_walk_item(&bulk->walk, table, bulk_take, bulk);
        bulk->is_single = item != FW_WALK_OVER;
        return item != FW_WALK_REFUSED;
    }
    struct fw_reply_mark mark = fw_reply_mark(reply);
    bool was_empty = fw_reply_is_empty(reply);
    if (fw_walk_bucket(&bulk->walk, table, bulk_take, bulk)) {
        return true;
    }
    fw_reply_rewind(reply, mark);
    bulk->is_single = was_empty;
    return was_empty;
}

static enum fw_parsed bulk_step(struct fw_session *session, struct fw_cache_local *local,
                                struct fw_listing *listing)
{
    (void)session;
    struct bulk *bulk = (struct bulk *)(void *)listing->state;
    uint64_t length_max = fw_reply_length(&local->reply) + STEP_BYTES;
    bulk->local = local;
    for (uint32_t i = 0; i < STEP_BUCKETS_MAX && !bulk->walk.is_done; i++) {
        listing->work++;
        if (!bulk_advance(bulk) || fw_reply_length(&local->reply) >= length_max) {
            return FW_PARSED_OUTPUT;
        }
    }
    if (!bulk->walk.is_done || fw_reply_room(&local->reply, FW_TEXT_ANSWER_MAX) == NULL) {
        return FW_PARSED_OUTPUT;
    }
    FW_REPLY_ADD(&local->reply, "EN\r\n");
    return FW_PARSED;
}

enum fw_parsed fw_command_dump(struct fw_text_line *line)
{
    uint32_t part, parts;
    if (!line->local->cache->settings.has_dump) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR dump not allowed");
        return FW_PARSED;
    }
    if (!fw_number_u32(line->words[1].text, line->words[1].length, &part) ||
        !fw_number_u32(line->words[2].text, line->words[2].length, &parts) ||
        !fw_walk_has_parts(parts) || part >= parts ||
        (line->count > 3 && line->words[3].length > FW_ITEM_KEY_MAX)) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR bad command line format");
        return FW_PARSED;
    }
    struct fw_listing *listing = fw_listing_create(line->session, sizeof(struct bulk));
    if (listing == NULL) {
        FW_TEXT_ANSWER(line, "SERVER_ERROR out of memory");
        return FW_PARSED;
    }
    struct bulk *bulk = (struct bulk *)(void *)listing->state;
    fw_walk_init(&bulk->walk, part, parts);
    if (line->count > 3) {
        bulk->prefix_length = (uint8_t)line->words[3].length;
        memcpy(bulk->prefix, line->words[3].text, line->words[3].length);
    }
    listing->step = bulk_step;
    return FW_PARSED;
}
