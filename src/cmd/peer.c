/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "io/clock.h"

enum { LINE_MAX_BYTES = 2048 };

#define SLICE_NS (50 * (int64_t)FW_NS_PER_MS) /* How late an interruption may be seen. */

static struct fw_peer *peer_of(struct fw_stream *stream)
{
    return FW_CONTAINER_OF(stream, struct fw_peer, stream);
}

static void peer_readable(struct fw_stream *stream)
{
    peer_of(stream)->is_readable = true;
}

static void peer_sent(struct fw_stream *stream, ssize_t result)
{
    peer_of(stream)->sent = result;
}

static void peer_connected(struct fw_stream *stream, int result)
{
    peer_of(stream)->connected = result;
}

static void peer_closed(struct fw_stream *stream)
{
    peer_of(stream)->is_closed = true;
}

/* Receives are made by the call that does not wait, so that none is ever under way. */
static void peer_received(struct fw_stream *stream, ssize_t result)
{
    (void)stream;
    (void)result;
    FW_ASSERT(false);
}

static const struct fw_stream_events peer_events = {
    .readable = peer_readable,
    .received = peer_received,
    .sent = peer_sent,
    .connected = peer_connected,
    .closed = peer_closed,
};

/* Lets something happen. 0, or why to wait no longer. */
static int peer_poll(struct fw_peer *peer, int64_t deadline_ns, struct fw_reason *reason)
{
    int64_t left = deadline_ns - fw_clock_now_ns();
    if (peer->waiting != NULL) {
        peer->waiting(peer->waiting_context);
    }
    if (atomic_load(peer->must_end)) {
        return fw_reason_set(reason, -EINTR, "interrupted");
    }
    if (left <= 0) {
        return fw_reason_set(reason, -ETIMEDOUT, "the server does not answer");
    }
    (void)fw_reactor_poll(peer->reactor, left < SLICE_NS ? left : SLICE_NS);
    return 0;
}

static int64_t peer_deadline(const struct fw_peer *peer)
{
    return fw_clock_now_ns() + peer->patience_ns;
}

int fw_peer_open(struct fw_peer *peer, const struct fw_address *address, int64_t patience_ns,
                 const atomic_bool *must_end, struct fw_reason *reason)
{
    char text[FW_ADDRESS_TEXT_SIZE];
    *peer = (struct fw_peer){.patience_ns = patience_ns,
                             .must_end = must_end,
                             .input = malloc(FW_PEER_INPUT_FIRST),
                             .size = FW_PEER_INPUT_FIRST};
    if (peer->input == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "no memory for a connection");
    }
    int rc = fw_reactor_create(&peer->reactor, reason);
    if (rc != 0) {
        free(peer->input);
        return rc;
    }
    peer->connected = fw_stream_connect(&peer->stream, peer->reactor, address, &peer_events);
    bool is_open = peer->connected == 0 || peer->connected == -EINPROGRESS;
    int64_t deadline_ns = peer_deadline(peer);
    while (peer->connected == -EINPROGRESS && rc == 0) {
        rc = peer_poll(peer, deadline_ns, reason);
    }
    if (rc == 0 && peer->connected != 0) {
        fw_address_format(address, text);
        rc = fw_reason_errno(reason, peer->connected, "cannot connect to the server at %s", text);
    }
    if (rc != 0 && is_open) {
        fw_peer_close(peer);
    } else if (rc != 0) {
        fw_reactor_destroy(peer->reactor);
        free(peer->input);
    }
    return rc;
}

void fw_peer_close(struct fw_peer *peer)
{
    fw_stream_close(&peer->stream);
    while (!peer->is_closed) {
        (void)fw_reactor_poll(peer->reactor, -1);
    }
    fw_reactor_destroy(peer->reactor);
    free(peer->input);
    peer->input = NULL;
}

void fw_peer_destroy(struct fw_peer *peer)
{
    fw_peer_close(peer);
    free(peer);
}

/* Room for one more byte at least. */
static bool input_grow(struct fw_peer *peer)
{
    size_t length = peer->end - peer->begin;
    if (peer->end < peer->size) {
        return true;
    }
    if (peer->begin > 0 && peer->begin >= peer->size / 2) {
        memmove(peer->input, peer->input + peer->begin, length);
        peer->begin = 0;
        peer->end = length;
        return true;
    }
    size_t size = 2 * peer->size < FW_PEER_INPUT_MAX ? 2 * peer->size : FW_PEER_INPUT_MAX;
    char *grown = size > peer->size ? realloc(peer->input, size) : NULL;
    if (grown == NULL) {
        return false;
    }
    peer->input = grown;
    peer->size = size;
    return true;
}

/* What has come already: how much that is, 0 if nothing has, or a negative errno. */
static ssize_t peer_receive_now(struct fw_peer *peer, struct fw_reason *reason)
{
    if (peer->begin == peer->end) {
        peer->begin = 0;
        peer->end = 0;
    }
    if (!input_grow(peer)) {
        return fw_reason_errno(reason, -ENOMEM, "no memory for what the server answers");
    }
    ssize_t received =
        fw_stream_receive_now(&peer->stream, peer->input + peer->end, peer->size - peer->end);
    if (received == -EAGAIN) {
        return 0;
    }
    if (received == 0) {
        return fw_reason_set(reason, -ECONNRESET, "the server has closed the connection");
    }
    if (received < 0) {
        return fw_reason_errno(reason, (int)received, "lost the connection to the server");
    }
    peer->end += (size_t)received;
    return received;
}

int fw_peer_receive(struct fw_peer *peer, struct fw_reason *reason)
{
    int64_t deadline_ns = peer_deadline(peer);
    for (;;) {
        ssize_t received = peer_receive_now(peer, reason);
        if (received != 0) {
            return received > 0 ? 0 : (int)received;
        }
        peer->is_readable = false;
        fw_stream_wait(&peer->stream);
        int rc = 0;
        while (!peer->is_readable && rc == 0) {
            rc = peer_poll(peer, deadline_ns, reason);
        }
        if (rc != 0) {
            fw_stream_wait_cancel(&peer->stream);
            return rc;
        }
    }
}

int fw_peer_need(struct fw_peer *peer, size_t size, struct fw_reason *reason)
{
    int rc = 0;
    while (rc == 0 && fw_peer_input_length(peer) < size) {
        rc = fw_peer_receive(peer, reason);
    }
    return rc;
}

const char *fw_peer_line(struct fw_peer *peer, size_t *length, size_t *used, int *rc,
                         struct fw_reason *reason)
{
    for (size_t seen = 0;;) {
        size_t there = fw_peer_input_length(peer);
        const char *line = fw_peer_input(peer);
        const char *end = there > seen ? memchr(line + seen, '\n', there - seen) : NULL;
        if (end != NULL) {
            *used = (size_t)(end - line) + 1;
            *length = *used - 1 - (end > line && end[-1] == '\r' ? 1 : 0);
            return line;
        }
        if (there > LINE_MAX_BYTES) {
            *rc = fw_reason_set(reason, -EPROTO, "the server answers something else than asked");
            return NULL;
        }
        seen = there;
        *rc = fw_peer_receive(peer, reason);
        if (*rc != 0) {
            return NULL;
        }
    }
}

/* The socket is full: waits for room, and takes in what comes meanwhile. */
static ssize_t peer_send_waiting(struct fw_peer *peer, const struct iovec *piece,
                                 struct fw_reason *reason)
{
    int64_t deadline_ns = peer_deadline(peer);
    int rc = 0;
    peer->sent = fw_stream_send(&peer->stream, piece, 1);
    peer->is_readable = false;
    if (peer->sent == -EINPROGRESS) {
        fw_stream_wait(&peer->stream);
    }
    while (peer->sent == -EINPROGRESS && rc == 0) {
        rc = peer_poll(peer, deadline_ns, reason);
        if (rc == 0 && peer->is_readable) {
            ssize_t received = peer_receive_now(peer, reason);
            rc = received < 0 ? (int)received : 0;
            deadline_ns = received > 0 ? peer_deadline(peer) : deadline_ns;
            peer->is_readable = false;
            fw_stream_wait(&peer->stream);
        }
    }
    fw_stream_wait_cancel(&peer->stream);
    return rc != 0 ? rc : peer->sent;
}

int fw_peer_send(struct fw_peer *peer, const void *bytes, size_t size, struct fw_reason *reason)
{
    /* iovec has no const, and nobody writes there. */
    struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    while (piece.iov_len > 0) {
        ssize_t sent = fw_stream_send_now(&peer->stream, &piece, 1);
        if (sent == -EAGAIN) {
            sent = peer_send_waiting(peer, &piece, reason);
            if (sent == -EINTR || sent == -ETIMEDOUT || sent == -ENOMEM || sent == -ECONNRESET) {
                return (int)sent;
            }
        }
        if (sent < 0) {
            return fw_reason_errno(reason, (int)sent, "lost the connection to the server");
        }
        piece.iov_base = (char *)piece.iov_base + sent;
        piece.iov_len -= (size_t)sent;
    }
    return 0;
}
