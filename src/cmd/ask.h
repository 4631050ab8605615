/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions to a running server, in memcached's text protocol, and all of each answer.
 *
 * The caller waits, at most the peer's patience for each piece of the answer.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"
#include "cmd/peer.h"

enum { FW_ASK_ANSWER_MAX = 64 * 1024 * 1024 };

/* Whom to ask; from the options of a command. */
struct fw_ask_server {
    const char *address;    /* With or without a port. */
    const char *login_file; /* See cmd/login.h; NULL: none. */
    int64_t patience_ns;
};

/*
 * Connects, and logs in where that is demanded. Returns 0, or a negative errno with the reason:
 * -EINVAL is a wrong address or a wrong file.
 */
FW_MUST_CHECK int fw_ask_open(struct fw_peer *peer, const struct fw_ask_server *server,
                              const atomic_bool *must_end, struct fw_reason *reason);

/*
 * Sends `question`, a line with its end, and gathers lines until one is `last` or begins with an
 * error. *answer has a final zero and is for free(). Returns 0, or a negative errno with the
 * reason: -EPROTO is an error that the server told; after it the peer can be asked again.
 */
FW_MUST_CHECK int fw_ask_peer(struct fw_peer *peer, const char *question, const char *last,
                              char **answer, struct fw_reason *reason);

/* Both, for one question. */
FW_MUST_CHECK int fw_ask(const struct fw_ask_server *server, const char *question, const char *last,
                         char **answer, struct fw_reason *reason);
