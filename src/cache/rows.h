/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A long answer that is made in steps and sent by and by.
 *
 * The rows of `stats` are shown by call-backs that cannot be stopped halfway, and the reply may
 * have no room for all of them. So a bounded number of rows is written into memory, and goes from
 * there to the reply, as a listing (parser.h), as it has room. Then the next are made, in another
 * turn of the connection, so that others are served in between.
 *
 * Ownership: who fills the rows owns them until fw_rows_send() or fw_rows_fini(). Threads: none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "cache/session.h"

enum { FW_ROWS_SIZE_MAX = 64 << 20 };

/* Zero at first. */
struct fw_rows {
    char *text;
    size_t length;
    size_t size;
    bool is_lost; /* There was no memory, or they were too long. */
    bool is_held; /* Not to be sent before others were added. */
};

void fw_rows_add(struct fw_rows *rows, const void *bytes, size_t length);
void fw_rows_fini(struct fw_rows *rows);

/*
 * Adds the rows that follow those that were sent, or none yet. False: they are the last. `state` is
 * the maker's.
 */
typedef bool fw_rows_make(struct fw_rows *rows, struct fw_cache_local *local, void *state);

/*
 * Begins to send the rows, and takes them over in any case; those that follow are made by `make`,
 * with a copy of the state, unless it is NULL. False: there is no memory. If there is none later,
 * the connection is closed.
 */
FW_MUST_CHECK bool fw_rows_send(struct fw_rows *rows, struct fw_session *session,
                                fw_rows_make *make, const void *state, size_t state_size);
