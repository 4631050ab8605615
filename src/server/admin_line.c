/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin_line.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/parse.h"
#include "io/clock.h"

char *fw_admin_input_room(struct fw_admin_input *input, size_t *room)
{
    *room = sizeof input->bytes - input->length;
    return input->bytes + input->length;
}

void fw_admin_input_received(struct fw_admin_input *input, size_t count)
{
    FW_ASSERT(count <= sizeof input->bytes - input->length);
    input->length += (uint32_t)count;
}

static bool is_strange(const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (byte < ' ' || byte == 0x7f) {
            return true;
        }
    }
    return false;
}

enum fw_admin_input_line fw_admin_input_next(struct fw_admin_input *input,
                                             char line[static FW_JOBS_COMMAND_SIZE])
{
    const char *end = memchr(input->bytes, '\n', input->length);
    if (end == NULL) {
        /* A CR may be the last byte that there is room for. */
        if (input->is_skipping || input->length == sizeof input->bytes) {
            input->is_skipping = true;
            input->length = 0;
        }
        return FW_ADMIN_NONE;
    }
    size_t length = (size_t)(end - input->bytes);
    size_t taken = length + 1;
    length -= length > 0 && input->bytes[length - 1] == '\r' ? 1 : 0;
    enum fw_admin_input_line found = FW_ADMIN_LINE;
    if (input->is_skipping || length > FW_ADMIN_LINE_MAX) {
        found = FW_ADMIN_LONG;
    } else if (is_strange(input->bytes, length)) {
        found = FW_ADMIN_STRANGE;
    } else {
        memcpy(line, input->bytes, length);
        line[length] = '\0';
    }
    input->is_skipping = false;
    input->length -= (uint32_t)taken;
    memmove(input->bytes, input->bytes + taken, input->length);
    return found;
}

int fw_admin_every(const char *line, int64_t *interval_ns, const char **command)
{
    static const char every[] = "every ";
    line += strspn(line, " ");
    *interval_ns = 0;
    *command = line;
    if (strncmp(line, every, sizeof every - 1) != 0) {
        return 0;
    }
    line += sizeof every - 1;
    line += strspn(line, " ");
    size_t length = strcspn(line, " ");
    const char *rest = line + length + strspn(line + length, " ");
    int64_t value;
    if (*rest == '\0' || fw_parse_duration(line, length, FW_NS_PER_S, &value) != 0 ||
        value < FW_ADMIN_EVERY_MS_MIN * (int64_t)FW_NS_PER_MS ||
        value > FW_ADMIN_EVERY_S_MAX * (int64_t)FW_NS_PER_S) {
        return -EINVAL;
    }
    *interval_ns = value;
    *command = rest;
    return 0;
}
