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

/*
 * Connects to `server`, an address with or without a port. Returns 0, or a negative errno with the
 * reason: -EINVAL is a wrong address.
 */
FW_MUST_CHECK int fw_ask_open(struct fw_peer *peer, const char *server, int64_t patience_ns,
                              const atomic_bool *must_end, struct fw_reason *reason);

/*
 * Sends `question`, a line with its end, and gathers lines until one is `last` or begins with an
 * error. *answer has a final zero and is for free(). Returns 0, or a negative errno with the
 * reason: -EPROTO is an error that the server told; after it the peer can be asked again.
 */
FW_MUST_CHECK int fw_ask_peer(struct fw_peer *peer, const char *question, const char *last,
                              char **answer, struct fw_reason *reason);

/* Both, for one question. */
FW_MUST_CHECK int fw_ask(const char *server, const char *question, const char *last,
                         int64_t patience_ns, char **answer, struct fw_reason *reason);
