/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `stats sizes`: how many items there are of each size, in steps of 32 bytes.
 *
 * memcached counts at every store. Here the table is gone through when somebody asks, in steps, as
 * for a dump: so nobody else pays for it, and what is shown is what was there in these moments.
 */
#include "base/assert.h"
#include "base/text.h"
#include "cache/table.h"
#include "cache/text.h"

enum {
    SIZE_STEP = 32,
    FINE_MAX = 1 << 20, /* Larger items are counted in steps of that: they are few. */
    FINE_COUNT = FINE_MAX / SIZE_STEP,
    COUNTS = FINE_COUNT + 1024 + 1, /* Up to the largest item that can be configured. */
    BUCKETS_PER_STEP = 64,          /* Some ten microseconds; then others are let in. */
    ROW_SIZE = sizeof "STAT  \r\n" + 2UL * FW_TEXT_DECIMAL_MAX,
};

struct sizes {
    bool is_counted; /* From then on the listing's cursor goes through the counts. */
    uint64_t counts[COUNTS];
};

static size_t count_index(uint64_t size)
{
    size_t index = size <= FINE_MAX ? (size_t)(size + SIZE_STEP - 1) / SIZE_STEP
                                    : FINE_COUNT + (size_t)((size + FINE_MAX - 1) / FINE_MAX) - 1;
    return index < COUNTS ? index : COUNTS - 1;
}

/* The largest size that is counted there. */
static uint64_t count_size(size_t index)
{
    return index <= FINE_COUNT ? (uint64_t)index * SIZE_STEP
                               : (uint64_t)(index - FINE_COUNT + 1) * FINE_MAX;
}

static void sizes_visit(struct fw_item *item, void *context)
{
    struct sizes *sizes = context;
    uint64_t size = fw_item_room(item);
    if ((item->bits & FW_ITEM_BODY) != 0) {
        size += sizeof(struct fw_body) + fw_item_length(item);
    }
    sizes->counts[count_index(size)]++;
}

static enum fw_parsed sizes_show(struct sizes *sizes, struct fw_reply *reply, uint64_t *cursor)
{
    static_assert(ROW_SIZE >= sizeof "END\r\n", "that is found room for as a row");
    for (; *cursor < COUNTS; (*cursor)++) {
        if (sizes->counts[*cursor] == 0) {
            continue;
        }
        char *room = fw_reply_room(reply, ROW_SIZE);
        if (room == NULL) {
            return FW_PARSED_OUTPUT;
        }
        struct fw_text text;
        fw_text_init(&text, room, ROW_SIZE);
        fw_text_append_string(&text, "STAT ");
        fw_text_append_unsigned(&text, count_size(*cursor));
        fw_text_append_string(&text, " ");
        fw_text_append_unsigned(&text, sizes->counts[*cursor]);
        fw_text_append_string(&text, "\r\n");
        FW_ASSERT(!text.truncated);
        fw_reply_advance(reply, room + text.length);
    }
    if (fw_reply_room(reply, ROW_SIZE) == NULL) {
        return FW_PARSED_OUTPUT;
    }
    FW_REPLY_ADD(reply, "END\r\n");
    return FW_PARSED;
}

static enum fw_parsed sizes_step(struct fw_session *session, struct fw_cache_local *local,
                                 struct fw_listing *listing)
{
    (void)session;
    struct sizes *sizes = (struct sizes *)(void *)listing->state;
    if (!sizes->is_counted) {
        sizes->is_counted =
            fw_table_visit(local->table, &listing->cursor, BUCKETS_PER_STEP, sizes_visit, sizes);
        listing->work += BUCKETS_PER_STEP;
        if (!sizes->is_counted) {
            return FW_PARSED_OUTPUT;
        }
        listing->cursor = 0;
    }
    return sizes_show(sizes, &local->reply, &listing->cursor);
}

enum fw_parsed fw_command_sizes(struct fw_text_line *line)
{
    struct fw_listing *listing = fw_listing_create(line->session, sizeof(struct sizes));
    if (listing == NULL) {
        FW_TEXT_ANSWER(line, "SERVER_ERROR out of memory");
        return FW_PARSED;
    }
    listing->step = sizes_step;
    return FW_PARSED;
}
