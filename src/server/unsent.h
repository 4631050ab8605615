/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a socket did not take of a reply: kept by the connection until its client reads on.
 *
 * A locality has one reply, which the next connection needs. So bytes are copied, into one piece of
 * memory of just the right size, and large values are kept by reference, since they lie in memory
 * of their own that is shared with the table and counted against its limit. It is bounded by what
 * one reply can hold; nothing more is read from a client that has one. A value in a file is kept by
 * reference too, as a piece without an address, and how long it is says how much is still to come.
 *
 * Ownership: the connection's. Concurrency: none; belongs to the turn.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/base.h"
#include "cache/holdings.h"
#include "cache/reply.h"
#include "cache/table.h"

enum { FW_UNSENT_LAST_MAX = 96 };

struct fw_unsent {
    uint32_t first;          /* The piece that is sent next. */
    uint32_t count;          /* Of all pieces. */
    size_t size;             /* Of the bytes at the end. */
    struct fw_holding claim; /* The owner's, to note whose memory it is. */
    size_t rest;             /* To be sent, of all pieces. */
    struct iovec slice;      /* Of a piece that is longer than what is sent at a time. */
    struct iovec pieces[FW_REPLY_PIECES_MAX + 1];
    struct fw_body *bodies[FW_REPLY_PIECES_MAX + 1]; /* NULL for bytes. */
    char last[FW_UNSENT_LAST_MAX];                   /* What cut() has put behind the rest. */
    char bytes[];
};

/* All of a finished reply behind its first `sent` bytes, of which there is something. NULL: no
 * memory. The reply is as before. */
struct fw_unsent *fw_unsent_create(const struct fw_reply *reply, size_t sent);

/* What it takes. */
size_t fw_unsent_size(const struct fw_unsent *unsent);
void fw_unsent_destroy(struct fw_unsent *unsent, struct fw_table_local *table);

/*
 * Nothing was sent of it yet: drops all behind the first `keep` bytes, of which it has no fewer,
 * and puts something else there, of at most FW_UNSENT_LAST_MAX bytes.
 */
void fw_unsent_cut(struct fw_unsent *unsent, struct fw_table_local *table, size_t keep,
                   const char *last, size_t last_length);

/*
 * What to send next, at most `most` bytes of it, which is not 0: so many pieces, which stay where
 * they are until advance() is told of them. 0: the next one is in a file.
 */
uint32_t fw_unsent_next(struct fw_unsent *unsent, size_t most, const struct iovec **pieces);

/* So many bytes have been sent. True: that was all. */
bool fw_unsent_advance(struct fw_unsent *unsent, size_t sent);
