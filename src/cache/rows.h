/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A long answer that is made at once and sent by and by.
 *
 * The rows of `stats` are shown by call-backs that cannot be stopped halfway, and the reply may
 * have no room for all of them. So they are written into memory first, and go from there to the
 * reply as a listing (parser.h) as it has room.
 *
 * Ownership: who fills the rows owns them until fw_rows_send() or fw_rows_fini(). Threads: none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"
#include "cache/session.h"

enum { FW_ROWS_SIZE_MAX = 64 << 20 };

/* Zero at first. */
struct fw_rows {
    char *text;
    size_t length;
    size_t size;
    bool is_lost; /* There was no memory, or they were too long. */
};

void fw_rows_add(struct fw_rows *rows, const void *bytes, size_t length);
void fw_rows_fini(struct fw_rows *rows);

/* Begins to send them, and takes them over in any case. False: there is no memory. */
FW_MUST_CHECK bool fw_rows_send(struct fw_rows *rows, struct fw_session *session);
