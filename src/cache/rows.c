/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/rows.h"

#include <stdlib.h>
#include <string.h>

#include "cache/parser.h"

enum { SIZE_MIN = 8192 };

static void rows_grow(struct fw_rows *rows, size_t length)
{
    size_t size = rows->size == 0 ? SIZE_MIN : rows->size;
    while (size <= FW_ROWS_SIZE_MAX && size - rows->length < length) {
        size *= 2;
    }
    char *grown = size <= FW_ROWS_SIZE_MAX ? realloc(rows->text, size) : NULL;
    if (grown == NULL) {
        rows->is_lost = true;
        return;
    }
    rows->text = grown;
    rows->size = size;
}

void fw_rows_add(struct fw_rows *rows, const void *bytes, size_t length)
{
    if (!rows->is_lost && rows->size - rows->length < length) {
        rows_grow(rows, length);
    }
    if (!rows->is_lost && length > 0) {
        memcpy(rows->text + rows->length, bytes, length);
        rows->length += length;
    }
}

void fw_rows_fini(struct fw_rows *rows)
{
    free(rows->text);
    *rows = (struct fw_rows){0};
}

/* In a listing. */
struct rows_listing {
    struct fw_rows rows;
    fw_rows_make *make; /* NULL: these are the last. */
    char state[];
};

static struct rows_listing *listing_of(struct fw_listing *listing)
{
    return (struct rows_listing *)(void *)listing->state;
}

static enum fw_parsed rows_step(struct fw_session *session, struct fw_cache_local *local,
                                struct fw_listing *listing)
{
    (void)session;
    struct rows_listing *self = listing_of(listing);
    struct fw_rows *rows = &self->rows;
    if ((listing->cursor == rows->length || rows->is_held) && self->make != NULL) {
        if (!rows->is_held) {
            rows->length = 0;
            listing->cursor = 0;
        }
        size_t before = rows->length;
        self->make = self->make(rows, local, self->state) ? self->make : NULL;
        listing->work += (uint32_t)((rows->length - before) / FW_SESSION_COST_ROWS);
        if (rows->is_lost) {
            return FW_PARSED_CLOSE;
        }
    }
    if (rows->is_held) {
        return FW_PARSED_OUTPUT;
    }
    size_t left = rows->length - (size_t)listing->cursor;
    size_t room = (size_t)(local->reply.buffer + FW_REPLY_SIZE - local->reply.next);
    size_t count = left < room ? left : room;
    if (count > 0) {
        fw_reply_add(&local->reply, rows->text + listing->cursor, count);
    }
    listing->cursor += count;
    return count == left && self->make == NULL ? FW_PARSED : FW_PARSED_OUTPUT;
}

static void rows_listing_fini(struct fw_listing *listing)
{
    fw_rows_fini(&listing_of(listing)->rows);
}

bool fw_rows_send(struct fw_rows *rows, struct fw_session *session, fw_rows_make *make,
                  const void *state, size_t state_size)
{
    struct fw_listing *listing =
        rows->is_lost ? NULL : fw_listing_create(session, sizeof(struct rows_listing) + state_size);
    if (listing == NULL) {
        fw_rows_fini(rows);
        return false;
    }
    listing->step = rows_step;
    listing->fini = rows_listing_fini;
    listing->work = FW_SESSION_COST_STATS + (uint32_t)(rows->length / FW_SESSION_COST_ROWS);
    struct rows_listing *self = listing_of(listing);
    self->rows = *rows;
    self->make = make;
    if (state_size > 0) {
        memcpy(self->state, state, state_size);
    }
    *rows = (struct fw_rows){0};
    return true;
}
