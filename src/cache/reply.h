/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replies of one batch, gathered for one send.
 *
 * A locality has one fw_reply. Replies are written into its buffer, one behind the other; a large
 * value is not copied but referred to, as a piece of its own. Then the whole is sent as one vector.
 * What the socket does not take is moved to the connection (server/connection.h), so that an idle
 * or a fast connection has no buffer, and this one stays in the cache.
 *
 * Room is asked for before it is written: fw_reply_room() answers where to write, or NULL if the
 * buffer is full, and then the session stops and is called again when all has been sent. An empty
 * reply always has room for FW_REPLY_ROOM_MIN bytes and for a body, so a session that asks for no
 * more per step always gets on.
 *
 * fw_reply_mark() and fw_reply_rewind() take back what a command had written before it failed.
 *
 * A value that is in a file (large.h) is a piece without an address. Who sends the reply fetches it
 * when its turn comes (server/unsent.h).
 *
 * Ownership: a piece that refers to a body holds a reference until the piece is sent or dropped.
 * Concurrency: none; belongs to the turn.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "base/assert.h"
#include "base/base.h"
#include "cache/item.h"

struct fw_table_local;

enum {
    FW_REPLY_SIZE = 64 * 1024,
    FW_REPLY_PIECES_MAX = 60, /* Within FW_STREAM_SEND_MAX. */
    /* Bytes of bodies after which it is full: one send of 60 would take milliseconds. */
    FW_REPLY_BODIES_MAX = 128 * 1024,
    /* An item's line with a key in base64, its value, and what ends it. */
    FW_REPLY_ROOM_MIN = FW_ITEM_INLINE_MAX + 1024,
};

/* Bytes of the buffer, or of a body. The vector beside it has the same index. */
struct fw_reply {
    struct fw_table_local *table; /* Where bodies go back to. */
    char *next;                   /* Where the next byte goes. */
    char *piece_begin;            /* Of the bytes that are in no piece yet. */
    uint32_t piece_count;
    uint64_t body_bytes; /* In pieces that refer to bodies. */
    bool has_stored;     /* One of them may be in a file: it has no address. */
    struct iovec pieces[FW_REPLY_PIECES_MAX];
    struct fw_body *bodies[FW_REPLY_PIECES_MAX]; /* NULL for bytes of the buffer. */
    char buffer[FW_REPLY_SIZE];
};

struct fw_reply_mark {
    char *next;
    char *piece_begin;
    uint32_t piece_count;
    uint64_t body_bytes;
};

void fw_reply_init(struct fw_reply *reply, struct fw_table_local *table);

/* Where `size` bytes may be written, or NULL. Nothing is kept until fw_reply_advance(). */
static inline char *fw_reply_room(struct fw_reply *reply, size_t size)
{
    return size <= (size_t)(reply->buffer + FW_REPLY_SIZE - reply->next) ? reply->next : NULL;
}

static inline void fw_reply_advance(struct fw_reply *reply, char *end)
{
    FW_ASSERT(end >= reply->next && end <= reply->buffer + FW_REPLY_SIZE);
    reply->next = end;
}

/* Room was found by the caller. */
static inline void fw_reply_add(struct fw_reply *reply, const char *bytes, size_t length)
{
    FW_ASSERT(length <= (size_t)(reply->buffer + FW_REPLY_SIZE - reply->next));
    memcpy(reply->next, bytes, length);
    reply->next += length;
}

/* A string constant, without its zero. */
#define FW_REPLY_ADD(reply, text) fw_reply_add((reply), (text), sizeof(text) - 1)

/* Is there a piece left for a body, and one for the bytes before and behind it? */
static inline bool fw_reply_has_pieces(const struct fw_reply *reply)
{
    return reply->piece_count + 3 <= FW_REPLY_PIECES_MAX && reply->body_bytes < FW_REPLY_BODIES_MAX;
}

/* All that is in it. */
static inline uint64_t fw_reply_length(const struct fw_reply *reply)
{
    return (uint64_t)(reply->next - reply->buffer) + reply->body_bytes;
}

/* Sends `body` from where it lies. Takes a reference of its own. fw_reply_has_pieces() was true. */
void fw_reply_add_body(struct fw_reply *reply, struct fw_body *body);

/*
 * The item's value behind what the caller has written up to `to`: copied, or sent from where it
 * lies. Returns where to go on; nothing is kept before fw_reply_advance(). There is room for both.
 */
static inline char *fw_reply_put_value(struct fw_reply *reply, char *to, struct fw_item *item)
{
    if (FW_LIKELY((item->bits & FW_ITEM_BODY) == 0)) {
        memcpy(to, fw_item_value(item), item->tail_length);
        return to + item->tail_length;
    }
    fw_reply_advance(reply, to);
    fw_reply_add_body(reply, fw_item_body(item));
    return reply->next;
}

static inline bool fw_reply_is_empty(const struct fw_reply *reply)
{
    return reply->next == reply->buffer && reply->piece_count == 0;
}

struct fw_reply_mark fw_reply_mark(const struct fw_reply *reply);
void fw_reply_rewind(struct fw_reply *reply, struct fw_reply_mark mark);

/* Closes the last piece. The vector is reply->pieces; returns how many. */
uint32_t fw_reply_finish(struct fw_reply *reply);

/* All was sent, or nobody wants it: gives the bodies back and begins anew. */
void fw_reply_clear(struct fw_reply *reply);
