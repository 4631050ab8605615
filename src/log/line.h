/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a line looks. Whatever is in the message, the result is one line: control characters are
 * escaped, as C does it or as JSON demands.
 *
 *     text      2026-03-01T12:00:00.123456Z notice  server [fairway] listening on 127.0.0.1:11211
 *     journal   <5>server [fairway] listening on 127.0.0.1:11211
 *     json      {"time":"2026-03-01T12:00:00.123456Z","level":"notice","module":"server",
 *               "thread":"fairway","message":"listening on 127.0.0.1:11211"}   (on one line)
 *
 * journald has a time and a level of its own for each line; it takes the level from the number.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fairway/log.h>

enum fw_log_layout { FW_LOG_LAYOUT_TEXT, FW_LOG_LAYOUT_JSON, FW_LOG_LAYOUT_JOURNAL };

/* The longest is a message of control characters in JSON, six bytes each. */
enum { FW_LOG_LINE_MAX = 6 * (FW_LOG_MESSAGE_MAX + 64) + 256 };

struct fw_log_line {
    int64_t wall_ns;
    enum fw_log_level level;
    const char *module;
    const char *thread;
    const char *message;
    size_t length; /* Of the message. */
    bool cut;      /* It was longer: "..." is added. */
};

/* "17 lines lost: the ring was full" */
enum { FW_LOG_LOST_MAX = 64 };
void fw_log_lost_message(char message[FW_LOG_LOST_MAX], uint32_t count);

/* Remembers the text of the last second. All zero to begin with; one thread at a time. */
struct fw_log_calendar {
    int64_t second;
    char text[24];
};

/* Returns the length of the line with its newline; there is no zero at its end. */
size_t fw_log_line_make(struct fw_log_calendar *calendar, enum fw_log_layout layout,
                        const struct fw_log_line *line, char out[FW_LOG_LINE_MAX]);
