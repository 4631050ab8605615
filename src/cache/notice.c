/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/notice.h"

#include <string.h>

#include "base/endian.h"
#include "cache/binary.h"
#include "cache/cache.h"
#include "cache/gate.h"
#include "cache/parser.h"
#include "cache/session.h"

static const char text_error[] = "SERVER_ERROR not confirmed by enough replicas\r\n";
static const char binary_error[] = "Not confirmed by enough replicas";

static_assert(sizeof text_error <= FW_NOTICE_ERROR_MAX, "there is room");
static_assert(FW_BINARY_HEADER + sizeof binary_error <= FW_NOTICE_ERROR_MAX, "there is room");

enum { OPCODE = 1, OPAQUE = 12 }; /* Where they stand in a header. */

static bool is_command_write(const struct fw_session *session, const struct fw_input *input)
{
    struct fw_gate_view view;
    if (session->state != FW_SESSION_COMMAND || input->next == input->end) {
        return false;
    }
    bool is_binary = (uint8_t)input->next[0] == FW_BINARY_REQUEST;
    return (is_binary ? fw_binary_view(input, &view) : fw_text_view(input, &view)) &&
           view.class == FW_COMMAND_WRITE;
}

struct fw_notice_change fw_notice_next(const struct fw_session *session,
                                       const struct fw_cache_local *local,
                                       const struct fw_input *input, bool *is_write)
{
    struct fw_notice_change change = {.before = fw_reply_length(&local->reply)};
    *is_write = !local->notice.refuses_write &&
                (session->state == FW_SESSION_BODY || is_command_write(session, input));
    if (session->state == FW_SESSION_BODY) {
        change.opcode = session->pending->opcode;
        change.opaque = session->pending->opaque;
    } else if (input->end - input->next >= FW_BINARY_HEADER) {
        change.opcode = (uint8_t)input->next[OPCODE];
        memcpy(&change.opaque, input->next + OPAQUE, sizeof change.opaque);
    }
    return change;
}

size_t fw_notice_error(const struct fw_notice_change *change, char to[static FW_NOTICE_ERROR_MAX])
{
    if (!change->is_binary) {
        memcpy(to, text_error, sizeof text_error - 1);
        return sizeof text_error - 1;
    }
    memset(to, 0, FW_BINARY_HEADER);
    to[0] = (char)FW_BINARY_REPLY;
    to[OPCODE] = (char)change->opcode;
    fw_be16_put(to + 6, FW_BINARY_TEMPORARY);
    fw_be32_put(to + 8, sizeof binary_error - 1);
    memcpy(to + OPAQUE, &change->opaque, sizeof change->opaque);
    memcpy(to + FW_BINARY_HEADER, binary_error, sizeof binary_error - 1);
    return FW_BINARY_HEADER + sizeof binary_error - 1;
}
