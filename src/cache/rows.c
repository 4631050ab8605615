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

static enum fw_parsed rows_step(struct fw_session *session, struct fw_cache_local *local,
                                struct fw_listing *listing)
{
    (void)session;
    struct fw_rows rows;
    memcpy(&rows, listing->state, sizeof rows);
    size_t left = rows.length - (size_t)listing->cursor;
    size_t room = (size_t)(local->reply.buffer + FW_REPLY_SIZE - local->reply.next);
    size_t count = left < room ? left : room;
    fw_reply_add(&local->reply, rows.text + listing->cursor, count);
    listing->cursor += count;
    return count == left ? FW_PARSED : FW_PARSED_OUTPUT;
}

static void rows_listing_fini(struct fw_listing *listing)
{
    struct fw_rows rows;
    memcpy(&rows, listing->state, sizeof rows);
    fw_rows_fini(&rows);
}

bool fw_rows_send(struct fw_rows *rows, struct fw_session *session)
{
    struct fw_listing *listing = rows->is_lost ? NULL : fw_listing_create(session, sizeof *rows);
    if (listing == NULL) {
        fw_rows_fini(rows);
        return false;
    }
    listing->step = rows_step;
    listing->fini = rows_listing_fini;
    memcpy(listing->state, rows, sizeof *rows);
    *rows = (struct fw_rows){0};
    return true;
}
