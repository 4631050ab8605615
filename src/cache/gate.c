/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/gate.h"

#include <string.h>

#include "base/assert.h"

enum { GETS_MAX = 16 }; /* As many as the parser looks up together. */

static enum fw_gate gate_ask(struct fw_cache_local *local, const struct fw_gate_view *view)
{
    enum fw_gate answer = local->gate->ask(local->gate, view->class, view->key, view->key_length);
    return answer == FW_GATE_REFUSE && view->class == FW_COMMAND_ADMIN ? FW_GATE_PASS : answer;
}

/*
 * The parser does gets that follow each other in one call, which is what makes them fast. So those
 * are asked about ahead: how many pass?
 */
static uint32_t gets_ahead(struct fw_cache_local *local, const struct fw_input *input)
{
    struct fw_input next = *input;
    uint32_t count = 1;
    while (count < input->budget && count < GETS_MAX) {
        const char *end = memchr(next.next, '\n', (size_t)(next.end - next.next));
        if (end == NULL || next.end - end <= 4 || memcmp(end + 1, "get ", 4) != 0) {
            break;
        }
        struct fw_gate_view view;
        next.next = end + 1;
        if (!fw_text_view(&next, &view) || gate_ask(local, &view) != FW_GATE_PASS) {
            break;
        }
        count++;
    }
    return count;
}

static enum fw_parsed text_pass(struct fw_session *session, struct fw_cache_local *local,
                                struct fw_input *input)
{
    const uint32_t budget = input->budget;
    bool is_get = input->end - input->next > 4 && memcmp(input->next, "get ", 4) == 0;
    uint32_t allowed = is_get ? gets_ahead(local, input) : 1;
    input->budget = allowed;
    enum fw_parsed parsed = fw_text_command(session, local, input);
    FW_ASSERT(input->budget <= allowed);
    input->budget = budget - (allowed - input->budget);
    return parsed;
}

enum fw_parsed fw_gate_command(struct fw_session *session, struct fw_cache_local *local,
                               struct fw_input *input)
{
    bool is_text = session->protocol == FW_PROTOCOL_TEXT;
    bool is_stranger = local->cache->settings.needs_login && !session->has_logged_in;
    struct fw_gate_view view;
    enum fw_gate answer = FW_GATE_PASS;
    /* Of what is not all there nothing happens but that more is waited for. */
    if (!is_stranger && (is_text ? fw_text_view(input, &view) : fw_binary_view(input, &view))) {
        answer = gate_ask(local, &view);
    }
    switch (answer) {
    case FW_GATE_HOLD:
        return FW_PARSED_HELD;
    case FW_GATE_REFUSE:
        return is_text ? fw_text_refuse(session, local, input)
                       : fw_binary_refuse(session, local, input);
    case FW_GATE_PASS:
        break;
    }
    return is_text ? text_pass(session, local, input) : fw_binary_command(session, local, input);
}
