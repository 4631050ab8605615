/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walking skeleton's share of memcached's text protocol: version, get, set, delete, quit.
 *
 * A session is what one connection remembers between two batches of bytes. It does no I/O: bytes go
 * in, replies come out into a buffer of the caller's, and what did not fit is asked for again. So
 * the same code is served by the reactor, driven by the simulator and fed by the fuzzer.
 *
 * Values never pass through the input buffer whole: the bytes of a `set` go straight into the new
 * item, those of a `get` come out piece by piece from an item that the session holds a reference
 * to. A session therefore needs no more buffer than one command line, whatever the size of the
 * values.
 *
 * Ownership: the session may hold one item under way and gives it back in fini(). Concurrency:
 * none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

enum {
    FW_OLD_PROTOCOL_LINE_MAX = 8192, /* The longest command line, with its end. */
    FW_OLD_PROTOCOL_REPLY_MIN = 512, /* Output that always has room for one line of a reply. */
};

struct fw_old_store;
struct fw_old_item;

enum fw_old_session_state {
    FW_OLD_SESSION_COMMAND, /* Between two commands. */
    FW_OLD_SESSION_KEYS,    /* Inside a get: `line_offset` says which key is next. */
    FW_OLD_SESSION_VALUE,   /* Sending `item` from `item_offset`; goes on with the keys. */
    FW_OLD_SESSION_DATA,    /* Receiving the value of `item`. */
    FW_OLD_SESSION_SWALLOW, /* Dropping `swallow` bytes of a value that was refused. */
    FW_OLD_SESSION_CLOSED,  /* Nothing more is read; the connection closes once replies are out. */
};

struct fw_old_session {
    struct fw_old_store *store;
    struct fw_old_item *item;
    uint32_t item_offset;
    uint32_t item_size_max; /* The longest value a client may set. */
    uint64_t swallow;
    uint16_t line_offset;
    uint8_t state;
    bool quiet; /* The command under way said noreply. */
};

/* What a call of fw_old_session_run() did. */
struct fw_old_session_step {
    size_t consumed; /* Of the input. The rest is given again, with more behind it. */
    size_t produced; /* Of the output. */
    bool more;       /* It stopped for want of output, not of input: call again once it is sent. */
};

void fw_old_session_init(struct fw_old_session *session, struct fw_old_store *store, uint32_t item_size_max);
void fw_old_session_fini(struct fw_old_session *session);

/*
 * Goes through the input as far as it can. `output_size` is more than FW_OLD_PROTOCOL_REPLY_MIN.
 * `now_s` is the wall clock, since clients give expiry times in it.
 */
struct fw_old_session_step fw_old_session_run(struct fw_old_session *session, const char *input,
                                      size_t input_size, char *output, size_t output_size,
                                      int64_t now_s);
