/* SPDX-License-Identifier: Apache-2.0 */
/* ms: the one meta command that has a value. */
#include <string.h>

#include "cache/meta.h"
#include "cache/number.h"

enum { LENGTH_WORD = 2, END_LENGTH = 2 }; /* Of the "\r\n" behind a value. */

/* Says what is wrong and drops the value, which is coming in any case. */
static enum fw_parsed set_refuse(struct fw_meta *meta, const char *error, uint32_t length)
{
    fw_session_swallow(meta->session, (uint64_t)length + END_LENGTH);
    return fw_meta_answer(meta, error);
}

/* M. False: there is no such mode. */
static bool mode_read(const struct fw_meta *meta, enum fw_store_mode *mode)
{
    switch (meta->mode) {
    case 0:
    case 'S':
        *mode = FW_STORE_SET;
        break;
    case 'E':
        *mode = FW_STORE_ADD;
        break;
    case 'A':
        *mode = FW_STORE_APPEND;
        break;
    case 'P':
        *mode = FW_STORE_PREPEND;
        break;
    case 'R':
        *mode = FW_STORE_REPLACE;
        break;
    default:
        return false;
    }
    return true;
}

/* What the flags ask for. NULL, or what is wrong with them. */
static const char *store_read(struct fw_meta *meta, struct fw_store *store)
{
    if (!fw_meta_read_flags(meta)) {
        return meta->error;
    }
    enum fw_store_mode mode;
    if (!mode_read(meta, &mode)) {
        return "CLIENT_ERROR invalid mode for ms M token";
    }
    for (uint32_t i = meta->first_flag; i < meta->word_count; i++) {
        if (meta->words[i].bytes[0] == 'O' && meta->words[i].length > FW_META_OPAQUE_MAX) {
            return FW_META_BAD_OPAQUE;
        }
    }
    bool joins = mode == FW_STORE_APPEND || mode == FW_STORE_PREPEND;
    if (meta->compares && (mode == FW_STORE_SET || mode == FW_STORE_REPLACE)) {
        mode = FW_STORE_CAS;
    }
    *store = (struct fw_store){
        .mode = mode,
        .compares = mode == FW_STORE_CAS || (joins && meta->cas != 0),
        .invalidates = meta->invalidates && mode == FW_STORE_CAS && meta->cas != 0,
        .bits = meta->key_is_binary && !joins ? FW_ITEM_KEY_BINARY : 0,
        .cas = meta->cas,
        .flags = meta->client_flags,
        .expires = meta->touch_expires,
        .client = meta->session->client,
    };
    return NULL;
}

/* Answers with the flags O, k and c in their order. */
static enum fw_parsed set_answer(struct fw_meta *meta, const char code[2], uint64_t cas)
{
    struct fw_reply *reply = &meta->local->reply;
    char *to = reply->next;
    memcpy(to, code, 2);
    to += 2;
    for (uint32_t i = meta->first_flag; i < meta->word_count; i++) {
        const struct fw_meta_word *word = &meta->words[i];
        to = word->bytes[0] == 'c' ? fw_meta_put_number(to, 'c', cas)
                                   : fw_meta_put_word(to, meta, word);
    }
    memcpy(to, "\r\n", 2);
    fw_reply_advance(reply, to + 2);
    return FW_PARSED;
}

static enum fw_parsed set_run(struct fw_meta *meta, struct fw_store *store)
{
    struct fw_key key = fw_table_key(meta->local->table, meta->key, meta->key_length);
    enum fw_outcome outcome = fw_operation_store(meta->local, &key, store);
    switch (outcome) {
    case FW_DONE:
        return meta->is_quiet ? FW_PARSED : set_answer(meta, "HD", store->cas_is);
    case FW_EXISTS:
        return set_answer(meta, "EX", 0);
    case FW_NOT_FOUND:
        return set_answer(meta, "NF", 0);
    case FW_TOO_LARGE:
    case FW_NO_MEMORY:
    case FW_IS_LARGE:
    case FW_NO_SPACE:
    case FW_DISK_FAILED:
        return fw_meta_answer(meta, fw_operation_error(outcome));
    case FW_NOT_STORED:
    case FW_NOT_A_NUMBER:
    case FW_IS_LOCKED:
        break;
    }
    return set_answer(meta, "NS", 0);
}

/* The value has come, all of it; what stands behind it must end the line. */
static enum fw_parsed set_complete(struct fw_session *session, struct fw_cache_local *local,
                                   struct fw_input *input)
{
    struct fw_pending *pending = session->pending;
    if (input->end - input->next < END_LENGTH) {
        input->wanted = END_LENGTH;
        return FW_PARSED_INPUT;
    }
    if (fw_reply_room(&local->reply, FW_REPLY_ROOM_MIN) == NULL) {
        return FW_PARSED_OUTPUT;
    }
    struct fw_meta meta;
    struct fw_store unused;
    fw_meta_init(&meta, session, local, input);
    fw_meta_read_words(&meta, pending->line, pending->line + pending->line_length);
    meta.first_flag = LENGTH_WORD + 1;
    const char *error = store_read(&meta, &unused);
    FW_ASSERT(error == NULL); /* It was read before. */
    bool has_end = memcmp(input->next, "\r\n", END_LENGTH) == 0;
    input->next += END_LENGTH;
    if (!has_end) {
        fw_pending_drop_body(pending, local);
        return fw_meta_answer(&meta, "CLIENT_ERROR bad data chunk");
    }
    return set_run(&meta, &pending->store);
}

/* The value is longer than the input buffer: it goes to a body. */
static enum fw_parsed set_begin(struct fw_meta *meta, const struct fw_store *store, uint32_t length)
{
    const char *line = meta->words[0].bytes;
    const struct fw_meta_word *last = &meta->words[meta->word_count - 1];
    enum fw_outcome why;
    size_t line_length = (size_t)(last->bytes + last->length - line);
    struct fw_pending *pending =
        fw_pending_create(meta->session, meta->local, length, line, line_length, &why);
    if (pending == NULL) {
        struct fw_key key = fw_table_key(meta->local->table, meta->key, meta->key_length);
        (void)fw_operation_refuse(meta->local, &key, FW_STORE_SET, why);
        return set_refuse(meta, fw_operation_error(why), length);
    }
    pending->complete = set_complete;
    pending->store = *store;
    return FW_PARSED;
}

/* The value is in the input, or will be. */
static enum fw_parsed set_in_place(struct fw_meta *meta, struct fw_store *store, uint32_t length)
{
    struct fw_input *input = meta->input;
    if ((size_t)(input->end - meta->data) < length + END_LENGTH) {
        input->wanted = (size_t)(meta->data - input->next) + length + END_LENGTH;
        return FW_PARSED_INPUT;
    }
    store->bytes = meta->data;
    store->length = length;
    meta->data += length + END_LENGTH;
    if (memcmp(store->bytes + length, "\r\n", END_LENGTH) != 0) {
        return fw_meta_answer(meta, "CLIENT_ERROR bad data chunk");
    }
    return set_run(meta, store);
}

enum fw_parsed fw_meta_set(struct fw_meta *meta)
{
    if (meta->word_count < 2) {
        return fw_meta_answer(meta, "ERROR");
    }
    if (meta->key_length > FW_ITEM_KEY_MAX || meta->word_count == LENGTH_WORD) {
        return fw_meta_answer(meta, FW_META_BAD_LINE);
    }
    if (meta->word_count > FW_META_WORDS_MAX) {
        return fw_meta_answer(meta, "CLIENT_ERROR options flags too long");
    }
    int32_t given;
    const struct fw_meta_word *word = &meta->words[LENGTH_WORD];
    if (!fw_number_i32(word->bytes, word->length, &given) || given < 0 ||
        given > INT32_MAX - END_LENGTH) {
        return fw_meta_answer(meta, FW_META_BAD_LINE);
    }
    /* From here on it is known how much is coming, and errors drop that. */
    uint32_t length = (uint32_t)given;
    struct fw_store store = {0};
    meta->first_flag = LENGTH_WORD + 1;
    const char *error = store_read(meta, &store);
    if (error != NULL) {
        return set_refuse(meta, error, length);
    }
    if (!fw_operation_fits(meta->local->cache, meta->key_length, store.flags, length)) {
        struct fw_key key = fw_table_key(meta->local->table, meta->key, meta->key_length);
        (void)fw_operation_refuse(meta->local, &key, FW_STORE_SET, FW_TOO_LARGE);
        return set_refuse(meta, fw_operation_error(FW_TOO_LARGE), length);
    }
    return length <= FW_ITEM_INLINE_MAX ? set_in_place(meta, &store, length)
                                        : set_begin(meta, &store, length);
}
