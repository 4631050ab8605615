/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logging in at servers that demand it, in memcached's text protocol (its -Y): a `set` of whatever
 * key, whose value is "user password".
 *
 * To a server that does not demand it this would be an item with a password in it. So the server is
 * asked first, with a command that every other one would answer.
 *
 * User and password come from a file, a line "user:password", as the server's own are: what stands
 * on a command line everybody on the machine can read. A server with SASL (-S) speaks the binary
 * protocol only, which no tool here does.
 */
#pragma once

#include "base/base.h"
#include "base/reason.h"
#include "cmd/peer.h"

enum { FW_LOGIN_MAX = 255 }; /* User, ':' and password; as in cache/auth.h. */

struct fw_login {
    char words[FW_LOGIN_MAX + 1]; /* "user password"; empty: nothing was given. */
};

/* Reads the first line of the file. `path` may be NULL. Returns 0, or a negative errno with the
 * reason: -EINVAL if it is no such line. */
FW_MUST_CHECK int fw_login_read(struct fw_login *login, const char *path, struct fw_reason *reason);

/* On a new connection. Returns 0, or a negative errno with the reason: -EACCES, it was refused. */
FW_MUST_CHECK int fw_login_send(const struct fw_login *login, struct fw_peer *peer,
                                struct fw_reason *reason);
