/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logging in, which memcached's -Y makes the first thing a client has to do: a `set` of whatever
 * key whose value is "user password". Everything else is refused line by line.
 */
#include <string.h>

#include "cache/auth.h"
#include "cache/number.h"
#include "cache/text.h"

enum { VALUE_END = 2 };

#define ANSWER(local, constant) FW_REPLY_ADD(&(local)->reply, constant "\r\n")

/* `value` has `length` bytes, and two behind that should be a line's end. */
static void login_check(struct fw_session *session, struct fw_cache_local *local,
                        struct fw_input *input, const char *value, size_t length)
{
    struct fw_word words[FW_TEXT_WORDS_MAX];
    if (value[length] != '\r' || value[length + 1] != '\n') {
        ANSWER(local, "CLIENT_ERROR bad command line termination");
        return;
    }
    if (fw_text_cut_words(value, value + strnlen(value, length), words) < 2) {
        ANSWER(local, "CLIENT_ERROR bad authentication token format");
        return;
    }
    fw_counter_increment(&local->metrics->auth_cmds);
    if (local->cache->auth != NULL &&
        fw_auth_check(local->cache->auth, words[0].text, words[0].length, words[1].text,
                      words[1].length)) {
        fw_session_log_in(session, words[0].text, words[0].length);
        ANSWER(local, "STORED");
    } else {
        fw_counter_increment(&local->metrics->auth_errors);
        fw_session_fail_login(session, input, words[0].text, words[0].length);
        ANSWER(local, "CLIENT_ERROR authentication failure");
    }
}

enum fw_parsed fw_text_login(struct fw_session *session, struct fw_cache_local *local,
                             struct fw_input *input)
{
    size_t available = (size_t)(input->end - input->next);
    if (fw_reply_room(&local->reply, FW_TEXT_ANSWER_MAX) == NULL) {
        return FW_PARSED_OUTPUT;
    }
    const char *end = memchr(input->next, '\n', available);
    if (end == NULL) {
        input->wanted = available + 1;
        return available > FW_SESSION_LINE_MAX ? FW_PARSED_CLOSE : FW_PARSED_INPUT;
    }
    struct fw_word words[FW_TEXT_WORDS_MAX];
    size_t line_length = strnlen(input->next, (size_t)(end - input->next));
    size_t count = fw_text_cut_words(input->next, input->next + line_length, words);
    uint32_t length;
    if (count < 5 || !FW_WORD_IS(&words[0], "set") ||
        !fw_number_u32(words[4].text, words[4].length, &length)) {
        input->next = end + 1;
        ANSWER(local, "CLIENT_ERROR unauthenticated");
        return FW_PARSED;
    }
    const char *value = end + 1;
    if (length > FW_SESSION_LINE_MAX || line_length > FW_SESSION_LINE_MAX) {
        return FW_PARSED_CLOSE; /* Nobody has a name as long as that. */
    }
    if ((size_t)(input->end - value) < length + VALUE_END) {
        input->wanted = (size_t)(value - input->next) + length + VALUE_END;
        return FW_PARSED_INPUT;
    }
    login_check(session, local, input, value, length);
    input->next = value + length + VALUE_END;
    return FW_PARSED;
}
