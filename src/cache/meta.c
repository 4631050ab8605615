/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/meta.h"

#include <string.h>

#include "base/text.h"
#include "cache/base64.h"
#include "cache/number.h"

enum fw_parsed fw_meta_answer(struct fw_meta *meta, const char *text)
{
    struct fw_reply *reply = &meta->local->reply;
    fw_reply_add(reply, text, strlen(text));
    FW_REPLY_ADD(reply, "\r\n");
    return FW_PARSED;
}

char *fw_meta_put_number(char *to, char letter, uint64_t number)
{
    *to++ = ' ';
    *to++ = letter;
    return to + fw_text_decimal(to, number);
}

char *fw_meta_put_expiry(char *to, const struct fw_meta *meta, uint32_t expires)
{
    if (expires == 0) {
        memcpy(to, " t-1", 4);
        return to + 4;
    }
    return fw_meta_put_number(to, 't', expires - meta->local->now);
}

char *fw_meta_put_key(char *to, const char *key, size_t length, bool is_binary)
{
    *to++ = ' ';
    *to++ = 'k';
    if (!is_binary) {
        memcpy(to, key, length);
        return to + length;
    }
    to = fw_base64_encode(key, length, to);
    *to++ = ' ';
    *to++ = 'b';
    return to;
}

char *fw_meta_put_word(char *to, const struct fw_meta *meta, const struct fw_meta_word *word)
{
    if (word->bytes[0] == 'k') {
        return fw_meta_put_key(to, meta->key, meta->key_length, meta->key_is_binary);
    }
    if (word->bytes[0] != 'O') {
        return to;
    }
    if (word->length > FW_META_OPAQUE_MAX) {
        return NULL;
    }
    *to++ = ' ';
    memcpy(to, word->bytes, word->length);
    return to + word->length;
}

enum fw_parsed fw_meta_answer_code(struct fw_meta *meta, const char code[2])
{
    struct fw_reply *reply = &meta->local->reply;
    char *to = reply->next;
    memcpy(to, code, 2);
    to += 2;
    for (uint32_t i = meta->first_flag; i < meta->word_count; i++) {
        to = fw_meta_put_word(to, meta, &meta->words[i]);
        if (to == NULL) {
            return fw_meta_answer(meta, FW_META_BAD_OPAQUE);
        }
    }
    memcpy(to, "\r\n", 2);
    fw_reply_advance(reply, to + 2);
    return FW_PARSED;
}

void fw_meta_init(struct fw_meta *meta, struct fw_session *session, struct fw_cache_local *local,
                  struct fw_input *input)
{
    /* Not the words and the decoded key behind it: they are large, and written before read. */
    memset(meta, 0, offsetof(struct fw_meta, words));
    meta->session = session;
    meta->local = local;
    meta->input = input;
    meta->first_flag = 2;
    meta->delta = 1;
}

void fw_meta_read_words(struct fw_meta *meta, const char *line, const char *line_end)
{
    uint32_t count = 0;
    const char *next = line;
    while (count <= FW_META_WORDS_MAX) {
        while (next < line_end && *next == ' ') {
            next++;
        }
        const char *begin = next;
        while (next < line_end && *next != ' ' && *next != '\0') {
            next++;
        }
        if (next == begin) {
            break;
        }
        meta->words[count].bytes = begin;
        meta->words[count++].length = (size_t)(next - begin);
    }
    meta->word_count = count;
    if (count > 1) {
        meta->key = meta->words[1].bytes;
        meta->key_length = (uint32_t)meta->words[1].length;
    }
}

/* From here on functions that read one flag; false: it is wrong, and meta->error may say why. */

static bool flag_expiry(struct fw_meta *meta, const struct fw_meta_word *word, uint32_t *expires)
{
    int32_t given;
    if (!fw_number_i32(word->bytes + 1, word->length - 1, &given)) {
        meta->error = "CLIENT_ERROR bad token in command line format";
        return false;
    }
    *expires = fw_cache_expiry(meta->local, given);
    return true;
}

static bool flag_number(struct fw_meta *meta, const struct fw_meta_word *word, uint64_t *number,
                        const char *error)
{
    if (!fw_number_u64(word->bytes + 1, word->length - 1, number)) {
        meta->error = error;
        return false;
    }
    return true;
}

static bool flag_key(struct fw_meta *meta)
{
    size_t length = fw_base64_decode(meta->key, meta->key_length, meta->key_decoded);
    if (length == 0) {
        meta->error = "CLIENT_ERROR error decoding key";
        return false;
    }
    meta->key = meta->key_decoded;
    meta->key_length = (uint32_t)length;
    meta->key_is_binary = true;
    return true;
}

static bool flag_mode(struct fw_meta *meta, const struct fw_meta_word *word)
{
    if (word->length != 2) {
        meta->error = "CLIENT_ERROR incorrect length for M token";
        return false;
    }
    meta->mode = word->bytes[1];
    return true;
}

/* What the flag asks for. `*is_known` false: no command has such a flag. */
static bool flag_read(struct fw_meta *meta, const struct fw_meta_word *word, bool *is_known)
{
    switch (word->bytes[0]) {
    case 'b':
        return flag_key(meta);
    case 'v':
        meta->wants_value = true;
        return true;
    case 'q':
        meta->is_quiet = true;
        return true;
    case 'u':
        meta->is_peek = true;
        return true;
    case 'I':
        meta->invalidates = true;
        return true;
    case 'N':
        meta->vivifies = true;
        return flag_expiry(meta, word, &meta->vivify_expires);
    case 'T':
        meta->touches = true;
        return flag_expiry(meta, word, &meta->touch_expires);
    case 'R':
        return flag_expiry(meta, word, &meta->recache_expires);
    case 'F': /* Has no text of its own for what is wrong. */
        return fw_number_u32(word->bytes + 1, word->length - 1, &meta->client_flags);
    case 'C':
        meta->compares = true;
        return flag_number(meta, word, &meta->cas, "CLIENT_ERROR bad token in command line format");
    case 'J':
        return flag_number(meta, word, &meta->initial,
                           "CLIENT_ERROR invalid numeric initial value");
    case 'D':
        return flag_number(meta, word, &meta->delta, "CLIENT_ERROR invalid numeric delta value");
    case 'M':
        return flag_mode(meta, word);
    case 'O': /* Answered when the answer is written, as are those below. */
    case 'c':
    case 'f':
    case 'h':
    case 'k':
    case 'l':
    case 's':
    case 't':
    case 'L': /* For proxies. */
    case 'P':
        return true;
    default:
        *is_known = false;
        return false;
    }
}

bool fw_meta_read_flags(struct fw_meta *meta)
{
    enum { LETTERS = 127 };
    uint64_t seen[2] = {0};
    bool is_right = true;
    bool is_known = true;
    meta->error = FW_META_BAD_LINE;
    for (uint32_t i = meta->first_flag; i < meta->word_count; i++) {
        uint8_t letter = (uint8_t)meta->words[i].bytes[0];
        uint64_t bit = UINT64_C(1) << (letter & 63);
        if (letter >= LETTERS || (seen[letter >> 6] & bit) != 0) {
            meta->error = "CLIENT_ERROR duplicate flag";
            return false;
        }
        seen[letter >> 6] |= bit;
        is_right &= flag_read(meta, &meta->words[i], &is_known);
        if (!is_known) {
            meta->error = "CLIENT_ERROR invalid flag";
            return false;
        }
    }
    return is_right;
}

/* The second letter tells which; 0: there is none such. */
static char command_letter(const struct fw_meta *meta)
{
    if (meta->word_count == 0 || meta->words[0].length != 2 || meta->words[0].bytes[0] != 'm') {
        return '\0';
    }
    return meta->words[0].bytes[1];
}

/* What mg, md and ma check alike before they do anything. False: it was answered. */
static bool line_is_right(struct fw_meta *meta, const char *too_many, const char *bad_flags)
{
    if (meta->word_count < 2) {
        (void)fw_meta_answer(meta, "ERROR");
        return false;
    }
    if (meta->key_length > FW_ITEM_KEY_MAX) {
        (void)fw_meta_answer(meta, FW_META_BAD_LINE);
        return false;
    }
    if (meta->word_count > FW_META_WORDS_MAX) {
        (void)fw_meta_answer(meta, too_many);
        return false;
    }
    if (!fw_meta_read_flags(meta)) {
        (void)fw_meta_answer(meta, bad_flags != NULL ? bad_flags : meta->error);
        return false;
    }
    return true;
}

/* The line is done with, whatever comes of it. `ms` goes on behind it by itself. */
static enum fw_parsed command_run(struct fw_meta *meta)
{
    static const char too_many[] = "CLIENT_ERROR options flags too long";
    static const char bad_flags[] = "CLIENT_ERROR invalid or duplicate flag";
    switch (command_letter(meta)) {
    case 'g':
        return line_is_right(meta, "CLIENT_ERROR options flags are too long", NULL)
                   ? fw_meta_get(meta)
                   : FW_PARSED;
    case 's':
        return fw_meta_set(meta);
    case 'd':
        return line_is_right(meta, too_many, bad_flags) ? fw_meta_delete(meta) : FW_PARSED;
    case 'a':
        return line_is_right(meta, too_many, bad_flags) ? fw_meta_count(meta) : FW_PARSED;
    case 'e':
        return fw_meta_debug(meta);
    case 'n':
        return fw_meta_answer(meta, "MN");
    default:
        return fw_meta_answer(meta, "ERROR");
    }
}

enum fw_parsed fw_meta_command(struct fw_session *session, struct fw_cache_local *local,
                               struct fw_input *input, const char *line_end, const char *data)
{
    if (fw_reply_room(&local->reply, FW_REPLY_ROOM_MIN) == NULL ||
        !fw_reply_has_pieces(&local->reply)) {
        return FW_PARSED_OUTPUT;
    }
    struct fw_meta meta;
    fw_meta_init(&meta, session, local, input);
    meta.data = data;
    fw_meta_read_words(&meta, input->next, line_end);
    enum fw_parsed parsed = command_run(&meta);
    if (parsed == FW_PARSED) {
        input->next = meta.data;
    }
    return parsed;
}
