/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of keys: `lru_crawler metadump`, `stats cachedump`, and `keys` of yrmcds. They go round the
 * table bucket by bucket, as the reply has room, while service goes on; nothing is copied aside.
 *
 * There are no slab classes here, so everything is in class 1 and the others are empty.
 */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/text.h"
#include "cache/number.h"
#include "cache/stats.h"
#include "cache/table.h"
#include "cache/text.h"

enum {
    CLASSES = 64,
    /* A line with a key in which every byte is written as three, and all numbers. */
    LINE_SIZE = 3 * FW_ITEM_KEY_MAX + 256,
    BUCKETS_PER_STEP_MAX = 64, /* Some ten microseconds; then others are let in. */
};

struct dump;

/* Writes what is shown of an item. */
typedef void dump_append(struct fw_text *text, const struct dump *dump, const struct fw_item *item);

struct dump {
    struct fw_cache_local *local;
    dump_append *append;
    bool is_full;       /* The reply is. */
    uint32_t limit;     /* How many more items are shown; of cachedump. */
    uint32_t shown;     /* Of the present bucket's items, in steps before. */
    uint32_t seen;      /* Of the present bucket's items, in this step. */
    uint32_t looked_at; /* Items, in this step, whether they were shown or not. */
    uint8_t prefix_length;
    char prefix[FW_ITEM_KEY_MAX]; /* Only keys that begin so; of keys. */
};

/* The unix time of a moment of the cache's clock. */
static int64_t wall_time(const struct fw_cache *cache, uint32_t at)
{
    return cache->start_wall_s + at - FW_CACHE_CLOCK_START;
}

/* As in an address of the web: letters, digits and - . _ ~ as they are, all else as %XX. */
static void append_encoded(struct fw_text *text, const char *bytes, size_t length)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < length; i++) {
        uint8_t byte = (uint8_t)bytes[i];
        bool is_plain = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
                        (byte >= 'A' && byte <= 'Z') || byte == '-' || byte == '.' || byte == '_' ||
                        byte == '~';
        if (is_plain) {
            fw_text_append_char(text, (char)byte);
        } else {
            char escape[3] = {'%', digits[byte >> 4], digits[byte & 15]};
            fw_text_append(text, escape, sizeof escape);
        }
    }
}

static void append_meta(struct fw_text *text, const struct dump *dump, const struct fw_item *item)
{
    const struct fw_cache *cache = dump->local->cache;
    fw_text_append_string(text, "key=");
    append_encoded(text, item->key, item->key_length);
    fw_text_append_string(text, " exp=");
    uint32_t expires = fw_item_expires(item);
    fw_text_append_signed(text, expires == 0 ? -1 : wall_time(cache, expires));
    fw_text_append_string(text, " la=");
    uint32_t now = dump->local->now;
    fw_text_append_signed(text, wall_time(cache, now - fw_item_idle(item, now)));
    fw_text_append_string(text, " cas=");
    fw_text_append_unsigned(text, fw_operation_cas(dump->local, item));
    fw_text_append_string(text, " fetch=");
    fw_text_append_string(text, (item->bits & FW_ITEM_FETCHED) != 0 ? "yes" : "no");
    fw_text_printf(text, " cls=%d size=", FW_STATS_CLASS);
    fw_text_append_unsigned(text, fw_item_room(item));
    fw_text_append_string(text, "\n");
}

static void append_item(struct fw_text *text, const struct dump *dump, const struct fw_item *item)
{
    uint32_t at = fw_item_expires(item);
    int64_t expires = at == 0 ? 0 : wall_time(dump->local->cache, at);
    fw_text_append_string(text, "ITEM ");
    fw_text_append(text, item->key, item->key_length);
    fw_text_append_string(text, " [");
    fw_text_append_unsigned(text, fw_item_length(item));
    fw_text_append_string(text, " b; ");
    fw_text_append_signed(text, expires);
    fw_text_append_string(text, " s]\r\n");
}

static void append_key(struct fw_text *text, const struct dump *dump, const struct fw_item *item)
{
    (void)dump;
    fw_text_append_string(text, "VALUE ");
    fw_text_append(text, item->key, item->key_length);
    fw_text_append_string(text, "\r\n");
}

static void dump_visit(struct fw_item *item, void *context)
{
    struct dump *dump = context;
    struct fw_reply *reply = &dump->local->reply;
    char *room = fw_reply_room(reply, LINE_SIZE);
    dump->looked_at++;
    if (dump->is_full || dump->limit == 0 || item->key_length < dump->prefix_length ||
        memcmp(item->key, dump->prefix, dump->prefix_length) != 0) {
        return;
    }
    if (dump->seen < dump->shown) {
        dump->seen++;
        return;
    }
    if (room == NULL) {
        dump->is_full = true;
        return;
    }
    struct fw_text text;
    fw_text_init(&text, room, LINE_SIZE);
    dump->append(&text, dump, item);
    FW_ASSERT(!text.truncated);
    fw_reply_advance(reply, room + text.length);
    dump->seen++;
    if (dump->limit != UINT32_MAX) {
        dump->limit--;
    }
}

static enum fw_parsed dump_step(struct fw_session *session, struct fw_cache_local *local,
                                struct fw_listing *listing)
{
    (void)session;
    struct dump *dump = (struct dump *)(void *)listing->state;
    bool is_round = dump->limit == 0;
    dump->local = local;
    dump->is_full = false;
    dump->looked_at = 0;
    for (uint32_t i = 0; i < BUCKETS_PER_STEP_MAX && !is_round && !dump->is_full; i++) {
        uint64_t cursor = listing->cursor;
        dump->seen = 0;
        is_round = fw_table_visit(local->table, &cursor, 1, dump_visit, dump);
        dump->shown = dump->is_full ? dump->seen : 0;
        if (!dump->is_full) {
            listing->cursor = cursor;
        }
    }
    listing->work += 1 + dump->looked_at;
    bool is_done = !dump->is_full && (is_round || dump->limit == 0);
    if (!is_done || fw_reply_room(&local->reply, LINE_SIZE) == NULL) {
        return FW_PARSED_OUTPUT;
    }
    FW_REPLY_ADD(&local->reply, "END\r\n");
    return FW_PARSED;
}

/* Shows `limit` items, or all if that is 0, whose keys begin with the prefix, if that is not NULL.
 */
static enum fw_parsed dump_begin(const struct fw_text_line *line, dump_append *append,
                                 uint32_t limit, const struct fw_word *prefix)
{
    struct fw_listing *listing = fw_listing_create(line->session, sizeof(struct dump));
    if (listing == NULL) {
        FW_TEXT_ANSWER(line, "SERVER_ERROR out of memory");
        return FW_PARSED;
    }
    struct dump dump = {.append = append, .limit = limit == 0 ? UINT32_MAX : limit};
    if (prefix != NULL) {
        dump.prefix_length = (uint8_t)prefix->length;
        memcpy(dump.prefix, prefix->text, prefix->length);
    }
    memcpy(listing->state, &dump, sizeof dump);
    listing->step = dump_step;
    return FW_PARSED;
}

enum fw_parsed fw_command_metadump(struct fw_text_line *line)
{
    return dump_begin(line, append_meta, 0, NULL);
}

enum fw_parsed fw_command_cachedump(struct fw_text_line *line)
{
    uint32_t class, limit;
    if (!line->local->cache->settings.has_dump) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR stats cachedump not allowed");
    } else if (line->count < 4) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR bad command line");
    } else if (!fw_number_u32(line->words[2].text, line->words[2].length, &class) ||
               !fw_number_u32(line->words[3].text, line->words[3].length, &limit)) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR bad command line format");
    } else if (class >= CLASSES) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR Illegal slab id");
    } else if (class != FW_STATS_CLASS) {
        FW_TEXT_ANSWER(line, "END");
    } else {
        return dump_begin(line, append_item, limit, NULL);
    }
    return FW_PARSED;
}

enum fw_parsed fw_command_keys(struct fw_text_line *line)
{
    const struct fw_word *prefix = line->count > 1 ? &line->words[1] : NULL;
    if (!line->local->cache->settings.has_dump) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR keys not allowed");
        return FW_PARSED;
    }
    if (prefix != NULL && prefix->length > FW_ITEM_KEY_MAX) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR bad command line format");
        return FW_PARSED;
    }
    return dump_begin(line, append_key, 0, prefix);
}
