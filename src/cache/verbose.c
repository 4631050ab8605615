/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/verbose.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "cache/binary.h"
#include "cache/counter_protocol.h"

FW_LOG_MODULE(cache);

enum { SHOWN_MAX = 200 }; /* Characters; what comes behind is cut off. */

static void append_line(struct fw_text *text, const char *bytes, size_t size)
{
    const char *end = memchr(bytes, '\n', size);
    size_t length = end != NULL ? (size_t)(end - bytes) : size;
    if (length > 0 && bytes[length - 1] == '\r') {
        length--;
    }
    fw_text_append(text, bytes, length);
}

void fw_verbose_command(const struct fw_session *session, const char *bytes, size_t size)
{
    char shown[SHOWN_MAX + 1];
    struct fw_text text;
    fw_text_init(&text, shown, sizeof shown);
    if (session->protocol == FW_PROTOCOL_BINARY) {
        fw_binary_show_request(&text, bytes, size);
    } else if (session->protocol == FW_PROTOCOL_COUNTERS) {
        fw_counter_show_request(&text, bytes, size);
    } else {
        append_line(&text, bytes, size);
    }
    FW_LOG(cache, DEBUG, "<%" PRIu32 " %s", session->client, shown);
}

void fw_verbose_answer(const struct fw_session *session, const char *bytes, size_t size)
{
    char shown[SHOWN_MAX + 1];
    struct fw_text text;
    if (size == 0) {
        return;
    }
    fw_text_init(&text, shown, sizeof shown);
    if (session->protocol == FW_PROTOCOL_BINARY) {
        fw_binary_show_answer(&text, bytes, size);
    } else if (session->protocol == FW_PROTOCOL_COUNTERS) {
        fw_counter_show_answer(&text, bytes, size);
    } else {
        append_line(&text, bytes, size);
    }
    FW_LOG(cache, DEBUG, ">%" PRIu32 " %s", session->client, shown);
}
