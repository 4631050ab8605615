/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of an administrator's client. For every input: lines that are cut out of pieces, whose
 * sizes the first byte says, are those that splitting the whole at LF gives; there is always room
 * to receive more; and what is timed has an interval within the limits and a command, which is the
 * end of its line.
 */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "io/clock.h"
#include "server/admin_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_every(const char *line)
{
    int64_t interval_ns;
    const char *command;
    if (fw_admin_every(line, &interval_ns, &command) == 0) {
        size_t length = strlen(line), rest = strlen(command);
        FW_ASSERT(rest <= length && strcmp(line + length - rest, command) == 0);
        FW_ASSERT(interval_ns == 0 ||
                  (*command != '\0' &&
                   interval_ns >= FW_ADMIN_EVERY_MS_MIN * (int64_t)FW_NS_PER_MS &&
                   interval_ns <= FW_ADMIN_EVERY_S_MAX * (int64_t)FW_NS_PER_S));
    }
}

/* The next line of the whole input, at *data, must be `found`. */
static void check_line(const uint8_t **data, const uint8_t *end, enum fw_admin_input_line found,
                       const char *line)
{
    const uint8_t *begin = *data;
    const uint8_t *lf = memchr(begin, '\n', (size_t)(end - begin));
    FW_ASSERT(lf != NULL);
    *data = lf + 1;
    size_t length = (size_t)(lf - begin);
    length -= length > 0 && begin[length - 1] == '\r' ? 1 : 0;
    if (length > FW_ADMIN_LINE_MAX) {
        FW_ASSERT(found == FW_ADMIN_LONG);
        return;
    }
    bool is_text = true;
    for (size_t i = 0; i < length; i++) {
        is_text = is_text && begin[i] >= 0x20 && begin[i] != 0x7f;
    }
    FW_ASSERT(found == (is_text ? FW_ADMIN_LINE : FW_ADMIN_STRANGE));
    if (is_text) {
        FW_ASSERT(strlen(line) == length && memcmp(line, begin, length) == 0);
        check_every(line);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    size_t step = data[0] + (size_t)1;
    const uint8_t *end = data + size;
    const uint8_t *expected = data + 1, *next = data + 1;
    struct fw_admin_input input = {.length = 0};
    while (next < end) {
        size_t room;
        char *place = fw_admin_input_room(&input, &room);
        FW_ASSERT(room > 0);
        size_t count = (size_t)(end - next);
        count = count < step ? count : step;
        count = count < room ? count : room;
        memcpy(place, next, count);
        next += count;
        fw_admin_input_received(&input, count);
        for (;;) {
            char line[FW_JOBS_COMMAND_SIZE];
            enum fw_admin_input_line found = fw_admin_input_next(&input, line);
            if (found == FW_ADMIN_NONE) {
                break;
            }
            check_line(&expected, end, found, line);
        }
    }
    FW_ASSERT(memchr(expected, '\n', (size_t)(end - expected)) == NULL);
    return 0;
}
