/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines out of the bytes that an administrator's client sends, however they are cut.
 *
 *     size_t room;
 *     char *place = fw_admin_input_room(&input, &room);
 *     ... receive up to `room` bytes there ...
 *     fw_admin_input_received(&input, count);
 *     while (fw_admin_input_next(&input, line) != FW_ADMIN_NONE) { ... }
 *
 * A line ends with LF or CR LF. Each is answered, also one that is too long or is no text, so that
 * answers and lines stay in step: such a line is passed over up to its end. What is not ended by LF
 * is no line, even if no more follows: "set slots 10" may have been meant to be "set slots 100".
 *
 * There is room for one line, and memory for nothing else. Concurrency: none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fairway/jobs.h>

#include "base/base.h"

enum { FW_ADMIN_LINE_MAX = FW_JOBS_COMMAND_SIZE - 1 }; /* Without its end. */

struct fw_admin_input {
    uint32_t length;
    bool is_skipping; /* Up to the end of a line that is too long. */
    char bytes[FW_ADMIN_LINE_MAX + 2];
};

enum fw_admin_input_line {
    FW_ADMIN_NONE,    /* More must be received. */
    FW_ADMIN_LINE,    /* `line` has it, without its end. */
    FW_ADMIN_LONG,    /* It was longer than FW_ADMIN_LINE_MAX. */
    FW_ADMIN_STRANGE, /* It had control characters. */
};

/* Where to receive, and how much there is room for: at least 1 after next() has said NONE. */
char *fw_admin_input_room(struct fw_admin_input *input, size_t *room);
void fw_admin_input_received(struct fw_admin_input *input, size_t count);

enum fw_admin_input_line fw_admin_input_next(struct fw_admin_input *input,
                                             char line[static FW_JOBS_COMMAND_SIZE]);

/*
 * "every DURATION COMMAND": returns 0, with the interval and where the command begins. Another
 * line: 0, with an interval of 0 and the line itself. -EINVAL: it begins so, but does not go on so.
 */
enum { FW_ADMIN_EVERY_MS_MIN = 100, FW_ADMIN_EVERY_S_MAX = 86400 };
FW_MUST_CHECK int fw_admin_every(const char *line, int64_t *interval_ns, const char **command);
