/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to a running server, for tools that may wait: what is sent has been sent when the
 * call returns, and what has come lies in one buffer until it is taken.
 *
 * A server that cannot get rid of its answers stops reading. So while something is being sent,
 * answers are received, however many there are: both sides can never wait for each other.
 *
 * Each call waits `patience_ns` at the most for the server to do something, and ends with -EINTR
 * soon after *must_end has become true; while it waits it calls `waiting` some times a second, if
 * its owner has set that. After any error the peer is only good for closing.
 *
 * Threads: one at a time. Each peer has a reactor of its own.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/list.h"
#include "base/reason.h"
#include "io/address.h"
#include "io/reactor.h"

enum {
    FW_PEER_PORT = 11211,
    FW_PEER_INPUT_FIRST = 256 * 1024,
    FW_PEER_INPUT_MAX = (1 << 30) + (1 << 20), /* The largest item, and a line. */
};

struct fw_peer {
    struct fw_list_link link; /* The owner's. */
    struct fw_stream stream;
    struct fw_reactor *reactor;
    const atomic_bool *must_end;
    void (*waiting)(void *context); /* The owner's, or NULL. */
    void *waiting_context;
    int64_t patience_ns;
    ssize_t sent;     /* Of the send under way: what came of it; -EINPROGRESS until then. */
    int connected;    /* The same of connecting. */
    bool is_readable; /* Of waiting. */
    bool is_closed;
    char *input; /* [begin, end) has come and was not taken yet. */
    size_t begin, end, size;
};

/* Connects. Returns 0, or a negative errno with the reason; then there is nothing to close. */
FW_MUST_CHECK int fw_peer_open(struct fw_peer *peer, const struct fw_address *address,
                               int64_t patience_ns, const atomic_bool *must_end,
                               struct fw_reason *reason);
void fw_peer_close(struct fw_peer *peer);

/* Closes one that malloc() gave, and frees it. */
void fw_peer_destroy(struct fw_peer *peer);

FW_MUST_CHECK int fw_peer_send(struct fw_peer *peer, const void *bytes, size_t size,
                               struct fw_reason *reason);

/* Waits for at least one more byte of input. -ECONNRESET: the server has closed. */
FW_MUST_CHECK int fw_peer_receive(struct fw_peer *peer, struct fw_reason *reason);

/* Waits until `size` bytes are there. */
FW_MUST_CHECK int fw_peer_need(struct fw_peer *peer, size_t size, struct fw_reason *reason);

static inline const char *fw_peer_input(const struct fw_peer *peer)
{
    return peer->input + peer->begin;
}

static inline size_t fw_peer_input_length(const struct fw_peer *peer)
{
    return peer->end - peer->begin;
}

static inline void fw_peer_take(struct fw_peer *peer, size_t size)
{
    peer->begin += size;
}

/*
 * Waits for a line and returns it without its end, "\n" or "\r\n"; `*used` is its length with it,
 * for fw_peer_take(). Lent until the next call. NULL: an error, in `*rc`, with the reason; a line
 * of more than 2 KiB is one.
 */
const char *fw_peer_line(struct fw_peer *peer, size_t *length, size_t *used, int *rc,
                         struct fw_reason *reason);
