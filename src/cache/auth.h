/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may log in: users and their passwords, from a file of lines "user:password".
 *
 * The format is that of memcached's -Y; the same file serves SASL PLAIN of the binary protocol
 * (-S), where memcached would ask the Cyrus library and its database. The user ends at the line's
 * first ':'; everything behind it is the password, further ':' and spaces too. A user may have
 * several lines, so that a password can be changed without a gap. An empty file lets nobody in.
 * memcached drops what goes beyond its limits in silence; here it is a reason not to start.
 *
 * fw_auth_check() compares with every entry, and every byte of it, whatever matches: from the time
 * it takes nobody learns whether a user exists or how much of a password was right.
 *
 * Ownership: the caller's. Once loaded it does not change, so any thread may check; to change it,
 * load another and destroy the old one when no thread can see it any more. Passwords are wiped
 * from memory before it is freed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"
#include "base/reason.h"

enum {
    FW_AUTH_ENTRIES_MAX = 1024, /* memcached stops reading after 8. */
    FW_AUTH_LINE_MAX = 255,     /* User, ':' and password; memcached's too. */
};

struct fw_auth;

/*
 * Reads the file. Returns 0 or a negative errno with the reason, which names the file and the line
 * but never shows what is in it. Blocks; for start and reloading.
 */
FW_MUST_CHECK int fw_auth_load(struct fw_auth **auth, const char *path, struct fw_reason *reason);
void fw_auth_destroy(struct fw_auth *auth);

bool fw_auth_check(const struct fw_auth *auth, const char *user, size_t user_length,
                   const char *password, size_t password_length);
