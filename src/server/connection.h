/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client's connection: a stream, a session, and buffers only while there is something in them.
 *
 * An idle connection is this struct and nothing else. When it becomes readable it takes a pair of
 * buffers from its locality's pool, and gives them back as soon as every byte that arrived has been
 * answered and every answer has been sent. A client that stops in the middle of a line, or does not
 * read its replies, keeps its pair and no more: while replies wait, nothing further is read from
 * it.
 *
 *             readable                 all answered
 *     IDLE ──────────────► RECEIVING ───────────────► IDLE
 *      ▲                    │     ▲ rest of a command
 *      │                    ▼     │
 *      └──────────────── ANSWERING ◄──► SENDING (the socket is full)
 *                            │ quit, end of stream, error
 *                            ▼
 *                         CLOSING ── closed ──► back to the pool
 *
 * One readiness is one receive of at most a buffer's size, then the connection goes behind the
 * others: that is the quantum.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/base.h"
#include "base/list.h"
#include "base/pool.h"
#include "cache/protocol.h"
#include "io/reactor.h"

struct fw_connection_buffers {
    char input[2 * FW_OLD_PROTOCOL_LINE_MAX]; /* A whole line and as much again behind it. */
    char output[16384];
};

/* What the connections of one locality share. */
struct fw_connections {
    struct fw_reactor *reactor;
    struct fw_old_store *store;
    struct fw_pool pool;         /* Of struct fw_connection. */
    struct fw_pool buffers_pool; /* Of struct fw_connection_buffers. */
    struct fw_list open;
    uint32_t item_size_max;
    void (*closed)(struct fw_connections *connections); /* One more place is free. */
};

struct fw_connection {
    struct fw_stream stream;
    struct fw_old_session session;
    struct fw_connections *connections;
    struct fw_list_link link; /* In `open`. */
    struct fw_connection_buffers *buffers;
    struct iovec unsent; /* The part of the output that is still to be sent. */
    uint32_t input_length;
    bool more; /* The session stopped for want of output. */
};

/* `limit` connections at the most. Returns 0 or -ENOMEM. */
FW_MUST_CHECK int fw_connections_init(struct fw_connections *connections, uint32_t limit);

/* All connections must have been closed and reported so. */
void fw_connections_fini(struct fw_connections *connections);

/* Serves `fd`. -EMFILE: the limit is reached; that and other errors leave `fd` to the caller. */
FW_MUST_CHECK int fw_connection_open(struct fw_connections *connections, int fd);

/* Begins to close all of them. */
void fw_connections_close(struct fw_connections *connections);
