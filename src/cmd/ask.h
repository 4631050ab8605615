/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One question to a running server, in memcached's text protocol, and all of the answer.
 *
 * The caller waits, at most `patience_ns` for each piece of the answer. Nothing is kept between two
 * questions: a tool that asks once a second connects once a second.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"

enum { FW_ASK_ANSWER_MAX = 64 * 1024 * 1024 };

/*
 * Sends `question`, a line with its end, to the server at `server`, and gathers lines until one is
 * `last` or begins with an error. *answer has a final zero and is for free(). Returns 0, or a
 * negative errno with the reason: -EINVAL is a wrong address, -EPROTO an error that the server
 * told.
 */
FW_MUST_CHECK int fw_ask(const char *server, const char *question, const char *last,
                         int64_t patience_ns, char **answer, struct fw_reason *reason);
