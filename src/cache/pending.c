/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cache/parser.h"

enum { GROWTH = 4 }; /* A body on its way has less than so many times the bytes that have come. */

/* Of a value that is too long for the table or for the file nothing is received. */
static bool length_fits(const struct fw_pending *pending, const struct fw_cache_local *local,
                        enum fw_outcome *why)
{
    if (!pending->is_large) {
        *why = FW_NO_MEMORY;
        return fw_body_fits(local->table, pending->length);
    }
    *why = local->cache->settings.has_failed_disk ? FW_DISK_FAILED : FW_NO_SPACE;
    return *why == FW_NO_SPACE &&
           fw_large_fits(fw_table_large(local->cache->table), pending->length);
}

struct fw_pending *fw_pending_create(struct fw_session *session, struct fw_cache_local *local,
                                     uint32_t length, const char *line, size_t line_length,
                                     enum fw_outcome *why)
{
    FW_ASSERT(session->pending == NULL && length > FW_PENDING_BEGIN);
    FW_ASSERT(line_length <= FW_SESSION_INPUT_MAX);
    struct fw_pending *pending = calloc(1, sizeof *pending + line_length);
    if (pending == NULL) {
        *why = FW_NO_MEMORY;
        return NULL;
    }
    const struct fw_large *large = fw_table_large(local->cache->table);
    pending->length = length;
    pending->is_large = large != NULL && length > large->value_min;
    if (!length_fits(pending, local, why)) {
        free(pending);
        return NULL;
    }
    pending->line_length = (uint32_t)line_length;
    memcpy(pending->line, line, line_length);
    session->pending = pending;
    session->state = FW_SESSION_BODY;
    return pending;
}

void fw_pending_drop_body(struct fw_pending *pending, struct fw_cache_local *local)
{
    if (pending->store.body != NULL) {
        fw_body_unref(local->table, pending->store.body);
        pending->store.body = NULL;
    }
}

void fw_pending_destroy(struct fw_pending *pending, struct fw_cache_local *local)
{
    fw_pending_drop_body(pending, local);
    fw_window_close(&pending->window, local->table);
    free(pending);
}

void fw_pending_refuse(struct fw_pending *pending, struct fw_cache_local *local,
                       enum fw_outcome why)
{
    fw_pending_drop_body(pending, local);
    fw_window_close(&pending->window, local->table);
    pending->store.refusal = why;
}

char *fw_pending_room(const struct fw_pending *pending, size_t *room)
{
    const struct fw_window *window = &pending->window;
    if (FW_UNLIKELY(window->body != NULL)) {
        uint32_t begun = pending->filled - window->begin;
        uint32_t rest = pending->length - pending->filled;
        *room = rest < window->size - begun ? rest : window->size - begun;
        return window->bytes + begun;
    }
    if (pending->store.body == NULL) {
        return NULL; /* Nothing has begun, or it is refused. */
    }
    *room = pending->store.body->room - pending->filled;
    return pending->store.body->bytes + pending->filled;
}

/* The shortest step that has room for `needed` bytes. */
static uint32_t step_for(uint32_t length, uint32_t needed)
{
    while (length / GROWTH >= needed && length / GROWTH > FW_ITEM_INLINE_MAX) {
        length /= GROWTH;
    }
    return length;
}

static bool body_grow(struct fw_pending *pending, struct fw_cache_local *local, uint32_t needed)
{
    struct fw_body *old = pending->store.body;
    struct fw_body *grown = fw_body_create(local->table, step_for(pending->length, needed));
    if (grown != NULL && old != NULL) {
        memcpy(grown->bytes, old->bytes, pending->filled);
        fw_body_unref(local->table, old);
    }
    pending->store.body = grown != NULL ? grown : old;
    return grown != NULL;
}

static bool window_grow(struct fw_pending *pending, struct fw_cache_local *local)
{
    uint32_t rest = pending->length - pending->window.begin;
    return fw_window_grow(&pending->window, local->table, rest);
}

/* Pieces of the file for what is in the window. */
static enum fw_parsed window_end(struct fw_pending *pending, struct fw_cache_local *local)
{
    switch (fw_large_extend(local->table, pending->length, pending->filled, &pending->store.body)) {
    case FW_LARGE_DONE:
        return FW_PARSED_DISK;
    case FW_LARGE_NO_SPACE:
        fw_pending_refuse(pending, local, FW_NO_SPACE);
        break;
    case FW_LARGE_NO_MEMORY:
        fw_pending_refuse(pending, local, FW_NO_MEMORY);
        break;
    }
    return FW_PARSED;
}

/* There is no room, or `come` bytes and no place for them yet. PARSED: there is, or it is refused.
 */
static enum fw_parsed room_make(struct fw_pending *pending, struct fw_cache_local *local,
                                size_t come)
{
    uint32_t rest = pending->length - pending->filled;
    if (pending->is_large) {
        if (rest > 0 && window_grow(pending, local)) {
            return FW_PARSED;
        }
        if (pending->filled > pending->window.begin) {
            return window_end(pending, local);
        }
    } else {
        uint32_t next = come < rest ? (uint32_t)come : rest;
        if (body_grow(pending, local, pending->filled + (next > 0 ? next : 1))) {
            return FW_PARSED;
        }
    }
    fw_pending_refuse(pending, local, FW_NO_MEMORY);
    return FW_PARSED;
}

/* All that is in the input and belongs to the value, as far as there is room. */
static void input_move(struct fw_pending *pending, struct fw_input *input)
{
    size_t come = (size_t)(input->end - input->next);
    size_t room = pending->length - pending->filled;
    char *to = fw_pending_room(pending, &room);
    size_t count = come < room ? come : room;
    if (to != NULL && count > 0) {
        memcpy(to, input->next, count);
    }
    pending->filled += (uint32_t)count;
    input->next += count;
}

/* Is there something to do before more of the value can be received, or before it is complete? */
static bool room_is_due(const struct fw_pending *pending)
{
    size_t room = 0;
    if (pending->store.refusal != FW_DONE) {
        return false;
    }
    if (pending->is_large && pending->filled == pending->length) {
        return pending->filled > pending->window.begin;
    }
    return pending->filled < pending->length &&
           (fw_pending_room(pending, &room) == NULL || room == 0);
}

enum fw_parsed fw_pending_fill(struct fw_pending *pending, struct fw_cache_local *local,
                               struct fw_input *input)
{
    for (;;) {
        size_t come = (size_t)(input->end - input->next);
        if (pending->filled == 0 && come < FW_PENDING_BEGIN && pending->store.refusal == FW_DONE) {
            input->wanted = FW_PENDING_BEGIN;
            return FW_PARSED_INPUT;
        }
        if (room_is_due(pending)) {
            enum fw_parsed parsed = room_make(pending, local, come);
            if (parsed != FW_PARSED) {
                return parsed;
            }
        } else if (pending->filled == pending->length) {
            return FW_PARSED;
        } else if (come == 0) {
            input->wanted = 1;
            return FW_PARSED_INPUT;
        } else {
            input_move(pending, input);
        }
    }
}
