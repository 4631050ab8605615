/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/reply.h"

#include "cache/table.h"

static_assert(FW_REPLY_ROOM_MIN <= FW_REPLY_SIZE, "an empty reply has room for one item");

static void reply_begin(struct fw_reply *reply)
{
    reply->next = reply->buffer;
    reply->piece_begin = reply->buffer;
    reply->piece_count = 0;
    reply->body_bytes = 0;
    reply->has_stored = false;
}

void fw_reply_init(struct fw_reply *reply, struct fw_table_local *table)
{
    reply->table = table;
    reply_begin(reply);
}

/* The bytes since the last piece become one. */
static void reply_close_piece(struct fw_reply *reply)
{
    size_t length = (size_t)(reply->next - reply->piece_begin);
    if (length == 0) {
        return;
    }
    FW_ASSERT(reply->piece_count < FW_REPLY_PIECES_MAX);
    reply->pieces[reply->piece_count] =
        (struct iovec){.iov_base = reply->piece_begin, .iov_len = length};
    reply->bodies[reply->piece_count] = NULL;
    reply->piece_count++;
    reply->piece_begin = reply->next;
}

void fw_reply_add_body(struct fw_reply *reply, struct fw_body *body)
{
    FW_ASSERT(fw_reply_has_pieces(reply));
    reply_close_piece(reply);
    reply->pieces[reply->piece_count] =
        (struct iovec){.iov_base = body->is_stored ? NULL : body->bytes, .iov_len = body->length};
    reply->has_stored = reply->has_stored || body->is_stored;
    reply->bodies[reply->piece_count] = fw_body_ref(body);
    reply->piece_count++;
    reply->body_bytes += body->length;
}

struct fw_reply_mark fw_reply_mark(const struct fw_reply *reply)
{
    return (struct fw_reply_mark){.next = reply->next,
                                  .piece_begin = reply->piece_begin,
                                  .piece_count = reply->piece_count,
                                  .body_bytes = reply->body_bytes};
}

static void reply_drop_pieces(struct fw_reply *reply, uint32_t count)
{
    FW_ASSERT(count <= reply->piece_count);
    while (reply->piece_count > count) {
        reply->piece_count--;
        if (reply->bodies[reply->piece_count] != NULL) {
            fw_body_unref(reply->table, reply->bodies[reply->piece_count]);
        }
    }
}

void fw_reply_rewind(struct fw_reply *reply, struct fw_reply_mark mark)
{
    FW_ASSERT(mark.next <= reply->next);
    FW_ASSERT(mark.piece_begin <= mark.next);
    reply_drop_pieces(reply, mark.piece_count);
    reply->next = mark.next;
    reply->piece_begin = mark.piece_begin;
    reply->body_bytes = mark.body_bytes;
}

uint32_t fw_reply_finish(struct fw_reply *reply)
{
    reply_close_piece(reply);
    return reply->piece_count;
}

void fw_reply_clear(struct fw_reply *reply)
{
    reply_drop_pieces(reply, 0);
    if (FW_UNLIKELY(fw_table_erases(reply->table))) {
        memset(reply->buffer, 0, (size_t)(reply->next - reply->buffer));
    }
    reply_begin(reply);
}
