/* SPDX-License-Identifier: Apache-2.0 */
/* What the gate wants to know of the text protocols, classic and meta; see gate.h. */
#include <string.h>

#include "base/assert.h"
#include "cache/base64.h"
#include "cache/gate.h"
#include "cache/number.h"
#include "cache/text.h"

enum { VALUE_END = 2 /* "\r\n" */ };

/* Commands with a key; all others administer. */
static const struct keyed {
    const char *name;
    uint8_t class;
    uint8_t key;    /* Which word that is. */
    uint8_t length; /* Which word says how long the value is that follows; 0: none does. */
} keyed_commands[] = {
    {"get", FW_COMMAND_READ, 1, 0},          {"set", FW_COMMAND_WRITE, 1, 4},
    {"mg", FW_COMMAND_READ, 1, 0},           {"ms", FW_COMMAND_WRITE, 1, 2},
    {"gets", FW_COMMAND_READ, 1, 0},         {"incr", FW_COMMAND_WRITE, 1, 0},
    {"decr", FW_COMMAND_WRITE, 1, 0},        {"delete", FW_COMMAND_WRITE, 1, 0},
    {"add", FW_COMMAND_WRITE, 1, 4},         {"cas", FW_COMMAND_WRITE, 1, 4},
    {"touch", FW_COMMAND_WRITE, 1, 0},       {"gat", FW_COMMAND_READ_CHANGES, 2, 0},
    {"gats", FW_COMMAND_READ_CHANGES, 2, 0}, {"replace", FW_COMMAND_WRITE, 1, 4},
    {"append", FW_COMMAND_WRITE, 1, 4},      {"prepend", FW_COMMAND_WRITE, 1, 4},
    {"md", FW_COMMAND_WRITE, 1, 0},          {"ma", FW_COMMAND_WRITE, 1, 0},
    {"me", FW_COMMAND_READ, 1, 0},           {"bget", FW_COMMAND_READ, 1, 0},
    {"lock", FW_COMMAND_WRITE, 1, 0},        {"flush_all", FW_COMMAND_FLUSH, 0, 0},
};

static const struct keyed *keyed_find(const struct fw_word *name)
{
    for (size_t i = 0; i < FW_ARRAY_LENGTH(keyed_commands); i++) {
        if (fw_word_is(name, keyed_commands[i].name, strlen(keyed_commands[i].name))) {
            return &keyed_commands[i];
        }
    }
    return NULL;
}

static bool is_meta(const struct fw_word *name)
{
    return name->length == 2 && name->text[0] == 'm';
}

/* A line without its end; false: it has not all come. The longest are of gets, and cut. */
static bool line_find(const struct fw_input *input, struct fw_word *line, const char **behind)
{
    size_t size = (size_t)(input->end - input->next);
    const char *end = memchr(input->next, '\n', size);
    *behind = end != NULL ? end + 1 : NULL;
    if (end == NULL && size <= FW_SESSION_LINE_MAX) {
        return false;
    }
    size_t length = end != NULL ? (size_t)(end - input->next) : size;
    if (end != NULL && length > 0 && end[-1] == '\r') {
        length--;
    }
    length = length <= FW_SESSION_LINE_MAX ? length : FW_SESSION_LINE_MAX;
    *line = (struct fw_word){.text = input->next, .length = strnlen(input->next, length)};
    return true;
}

static size_t line_cut(const struct fw_word *line, struct fw_word words[FW_TEXT_WORDS_MAX])
{
    return fw_text_cut_words(line->text, line->text + line->length, words);
}

/* Has the line of a meta command one of these flags, with something behind it or without? */
static bool has_flag(const struct fw_word *words, size_t count, const char *flags, bool is_bare)
{
    for (size_t i = 2; i < count; i++) {
        if (strchr(flags, words[i].text[0]) != NULL && (words[i].length == 1) == is_bare) {
            return true;
        }
    }
    return false;
}

bool fw_text_view(const struct fw_input *input, struct fw_gate_view *view)
{
    struct fw_word line;
    struct fw_word words[FW_TEXT_WORDS_MAX];
    const char *behind;
    if (!line_find(input, &line, &behind)) {
        return false;
    }
    size_t count = line_cut(&line, words);
    const struct keyed *keyed = count > 0 ? keyed_find(&words[0]) : NULL;
    view->class = FW_COMMAND_ADMIN;
    view->key = NULL;
    view->key_length = 0;
    if (keyed == NULL || keyed->key >= count) {
        return true;
    }
    view->class = (enum fw_command_class)keyed->class;
    if (view->class == FW_COMMAND_FLUSH) {
        return true; /* It has no key. */
    }
    if (fw_word_is(&words[0], "mg", 2) && has_flag(words, count, "NRT", false)) {
        view->class = FW_COMMAND_READ_CHANGES;
    }
    view->key = words[keyed->key].text;
    view->key_length = words[keyed->key].length;
    if (is_meta(&words[0]) && view->key_length <= FW_ITEM_KEY_MAX &&
        has_flag(words, count, "b", true)) {
        size_t length = fw_base64_decode(view->key, view->key_length, view->decoded);
        view->key = length > 0 ? view->decoded : view->key;
        view->key_length = length > 0 ? length : view->key_length;
    }
    return true;
}

void fw_text_refusal(struct fw_cache_local *local)
{
    static const char begin[] = "SERVER_ERROR ";
    const char *why = local->gate != NULL ? local->gate->refusal : NULL;
    if (why == NULL) {
        FW_REPLY_ADD(&local->reply, "SERVER_ERROR out of capacity, try again later\r\n");
        return;
    }
    size_t length = strlen(why);
    char *to = local->reply.next;
    FW_ASSERT(length <= FW_GATE_REFUSAL_MAX);
    memcpy(to, begin, sizeof begin - 1);
    memcpy(to + sizeof begin - 1, why, length);
    memcpy(to + sizeof begin - 1 + length, "\r\n", 2);
    fw_reply_advance(&local->reply, to + sizeof begin - 1 + length + 2);
}

enum fw_parsed fw_text_refuse(struct fw_session *session, struct fw_cache_local *local,
                              struct fw_input *input)
{
    struct fw_word line;
    struct fw_word words[FW_TEXT_WORDS_MAX];
    const char *behind;
    uint32_t length = 0;
    if (fw_reply_room(&local->reply, FW_TEXT_ANSWER_MAX + FW_GATE_REFUSAL_MAX) == NULL) {
        return FW_PARSED_OUTPUT;
    }
    bool is_found = line_find(input, &line, &behind);
    size_t count = is_found ? line_cut(&line, words) : 0;
    const struct keyed *keyed = count > 0 ? keyed_find(&words[0]) : NULL;
    bool has_value = keyed != NULL && keyed->length > 0;
    /* What is not as it should be is told so as ever, and costs as little as to refuse it. */
    if (keyed == NULL || behind == NULL || keyed->length >= count ||
        (has_value &&
         !fw_number_u32(words[keyed->length].text, words[keyed->length].length, &length))) {
        return fw_text_command(session, local, input);
    }
    if (!FW_WORD_IS(&words[count - 1], "noreply") || is_meta(&words[0])) {
        fw_text_refusal(local);
    }
    input->next = behind;
    if (has_value) {
        fw_session_swallow(session, (uint64_t)length + VALUE_END);
    }
    return FW_PARSED;
}
