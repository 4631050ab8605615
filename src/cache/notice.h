/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of the gathered replies speak of changes: for who holds replies back until replicas have
 * confirmed what was changed.
 *
 * While local->notice.is_on, the session notes of the commands whose replies are gathered the first
 * that changed something or was to, and how many bytes of replies stand before its own. That is all
 * that is needed should the change not be confirmed in time: what stands before it is true and is
 * sent; then comes an error in the client's protocol; then the connection is closed. Replies behind
 * it are dropped, and with the end of the connection their client knows that it does not know what
 * became of them. To put an error in place of each would keep the connection, but every protocol
 * would have to remember for every command where its reply begins, for the sake of a moment in
 * which a replica has just been lost.
 *
 * A command that writes is noted also if it changed nothing: a `delete` that finds nothing, since
 * the one before it was not confirmed, says that the key is gone, and is believed.
 *
 * Whoever sends the replies sets `has_change` back. Threads: those of the local.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

struct fw_cache_local;
struct fw_input;
struct fw_session;

enum { FW_NOTICE_ERROR_MAX = 96 };

struct fw_notice_change {
    bool is_binary;
    uint8_t opcode;  /* Of the command, in the binary protocol, like the next. */
    uint32_t opaque; /* As the client has sent it. */
    uint64_t before; /* Bytes of replies before its own. */
};

struct fw_notice {
    bool is_on;         /* The server's, like the next. */
    bool refuses_write; /* The gate does: only what was changed all the same is noted. */
    bool has_change;
    struct fw_notice_change change;
};

/* For the session: what would be noted of the command that is next, and whether it writes. */
struct fw_notice_change fw_notice_next(const struct fw_session *session,
                                       const struct fw_cache_local *local,
                                       const struct fw_input *input, bool *is_write);

/* What the client is told of a change that was not confirmed. Returns how many bytes. */
size_t fw_notice_error(const struct fw_notice_change *change, char to[static FW_NOTICE_ERROR_MAX]);
