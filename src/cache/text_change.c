/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that change what is there, or take it away. */
#include "base/assert.h"
#include "base/text.h"
#include "cache/number.h"
#include "cache/table.h"
#include "cache/text.h"

enum fw_parsed fw_command_delete(struct fw_text_line *line)
{
    struct fw_key key;
    /* Long ago it took a time during which the key could not be added; 0 is still accepted. */
    if (line->count > 2) {
        bool has_zero = FW_WORD_IS(&line->words[2], "0");
        fw_text_line_set_quiet(line);
        bool is_sound = line->count == 3 ? has_zero || line->is_quiet : has_zero && line->is_quiet;
        if (!is_sound) {
            FW_TEXT_ANSWER(line, "CLIENT_ERROR bad command line format.  "
                                 "Usage: delete <key> [noreply]");
            return FW_PARSED;
        }
    }
    if (!fw_text_key_word(line, 1, &key)) {
        return FW_PARSED;
    }
    enum fw_outcome outcome = fw_operation_remove(line->local, &key, 0, line->session->client);
    if (outcome == FW_DONE) {
        FW_TEXT_ANSWER(line, "DELETED");
    } else if (outcome == FW_IS_LOCKED) {
        FW_TEXT_ANSWER(line, "LOCKED");
    } else {
        FW_TEXT_ANSWER(line, "NOT_FOUND");
    }
    return FW_PARSED;
}

static void answer_number(const struct fw_text_line *line, uint64_t value)
{
    if (line->is_quiet) {
        return;
    }
    struct fw_reply *reply = &line->local->reply;
    char *to = fw_reply_room(reply, FW_TEXT_ANSWER_MAX);
    FW_ASSERT(to != NULL);
    to += fw_text_decimal(to, value);
    *to++ = '\r';
    *to++ = '\n';
    fw_reply_advance(reply, to);
}

static enum fw_parsed count_line(struct fw_text_line *line, bool is_down)
{
    struct fw_key key;
    struct fw_count count = {.is_down = is_down, .client = line->session->client};
    fw_text_line_set_quiet(line);
    if (!fw_text_key_word(line, 1, &key)) {
        return FW_PARSED;
    }
    if (!fw_number_u64(line->words[2].text, line->words[2].length, &count.delta)) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR invalid numeric delta argument");
        return FW_PARSED;
    }
    enum fw_outcome outcome = fw_operation_count(line->local, &key, &count);
    if (outcome == FW_DONE) {
        answer_number(line, count.value);
    } else if (outcome == FW_NOT_A_NUMBER) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR cannot increment or decrement non-numeric value");
    } else if (outcome == FW_NO_MEMORY) {
        FW_TEXT_ANSWER(line, "SERVER_ERROR out of memory");
    } else if (outcome == FW_IS_LOCKED) {
        FW_TEXT_ANSWER(line, "LOCKED");
    } else {
        FW_TEXT_ANSWER(line, "NOT_FOUND");
    }
    return FW_PARSED;
}

enum fw_parsed fw_command_incr(struct fw_text_line *line)
{
    return count_line(line, false);
}

enum fw_parsed fw_command_decr(struct fw_text_line *line)
{
    return count_line(line, true);
}

enum fw_parsed fw_command_touch(struct fw_text_line *line)
{
    struct fw_key key;
    struct fw_hold hold;
    int32_t exptime;
    fw_text_line_set_quiet(line);
    if (!fw_text_key_word(line, 1, &key)) {
        return FW_PARSED;
    }
    if (!fw_number_i32(line->words[2].text, line->words[2].length, &exptime)) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR invalid exptime argument");
        return FW_PARSED;
    }
    fw_operation_touch(line->local, &hold, &key, fw_cache_expiry(line->local, exptime));
    bool was_there = hold.item != NULL;
    fw_hold_release(&hold);
    if (was_there) {
        FW_TEXT_ANSWER(line, "TOUCHED");
    } else {
        FW_TEXT_ANSWER(line, "NOT_FOUND");
    }
    return FW_PARSED;
}

enum fw_parsed fw_command_flush_all(struct fw_text_line *line)
{
    int32_t delay = 0;
    fw_text_line_set_quiet(line);
    if (!fw_cache_can_flush(line->local->cache)) {
        fw_counter_increment(&line->local->metrics->cmd_flush);
        FW_TEXT_ANSWER(line, "CLIENT_ERROR flush_all not allowed");
        return FW_PARSED;
    }
    if (line->count != (line->is_quiet ? 2 : 1) &&
        !fw_number_i32(line->words[1].text, line->words[1].length, &delay)) {
        fw_counter_increment(&line->local->metrics->cmd_flush);
        FW_TEXT_ANSWER(line, "CLIENT_ERROR invalid exptime argument");
        return FW_PARSED;
    }
    fw_operation_flush(line->local, fw_operation_flush_time(line->local, delay));
    FW_TEXT_ANSWER(line, "OK");
    return FW_PARSED;
}
