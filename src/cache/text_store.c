/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storing. What a line says of the value is read first; then the value is stored from where it
 * stands in the input, or waited for, or received into a body, or swallowed.
 *
 * A value must be followed by \r\n. If it is not, memcached drops just as many bytes as it had
 * counted on, and takes what follows for a command; so do we, for clients that are out of step must
 * see the same errors.
 */
#include <limits.h>
#include <string.h>

#include "base/assert.h"
#include "cache/number.h"
#include "cache/table.h"
#include "cache/text.h"

enum {
    SET_LENGTH = 4,     /* "set " */
    DIGITS_HOT_MAX = 9, /* More do not fit into 32 bits for sure, and are read with care. */
    VALUE_END = 2,      /* "\r\n" */
};

/* What a line asks for. */
struct request {
    enum fw_store_mode mode;
    bool is_quiet;
    struct fw_key key;
    uint32_t flags;
    uint32_t length;
    int32_t exptime;
    uint64_t cas;
    const char *line; /* Where it began. */
    const char *data; /* Behind it. */
};

static void answer(struct fw_cache_local *local, enum fw_outcome outcome)
{
    struct fw_reply *reply = &local->reply;
    switch (outcome) {
    case FW_DONE:
        FW_REPLY_ADD(reply, "STORED\r\n");
        break;
    case FW_NOT_STORED:
        FW_REPLY_ADD(reply, "NOT_STORED\r\n");
        break;
    case FW_EXISTS:
        FW_REPLY_ADD(reply, "EXISTS\r\n");
        break;
    case FW_NOT_FOUND:
        FW_REPLY_ADD(reply, "NOT_FOUND\r\n");
        break;
    case FW_IS_LOCKED:
        FW_REPLY_ADD(reply, "LOCKED\r\n");
        break;
    case FW_TOO_LARGE:
    case FW_NO_MEMORY:
    case FW_IS_LARGE:
    case FW_NO_SPACE:
    case FW_DISK_FAILED:
        fw_reply_add(reply, fw_operation_error(outcome), strlen(fw_operation_error(outcome)));
        FW_REPLY_ADD(reply, "\r\n");
        break;
    case FW_NOT_A_NUMBER:
        FW_ASSERT(false); /* Is not for stores. */
        break;
    }
}

/* What ends the value decides whether it is one. */
static void store_and_answer(struct fw_cache_local *local, const struct fw_key *key,
                             struct fw_store *store, const char *value_end, bool is_quiet)
{
    if (FW_UNLIKELY(value_end[0] != '\r' || value_end[1] != '\n')) {
        fw_operation_spoil(local, key);
        if (!is_quiet) {
            FW_REPLY_ADD(&local->reply, "CLIENT_ERROR bad data chunk\r\n");
        }
        return;
    }
    enum fw_outcome outcome = fw_operation_store(local, key, store);
    if (!is_quiet) {
        answer(local, outcome);
    }
}

static struct fw_store request_store(const struct fw_session *session,
                                     const struct fw_cache_local *local,
                                     const struct request *request)
{
    return (struct fw_store){
        .mode = request->mode,
        .compares = request->mode == FW_STORE_CAS,
        .cas = request->cas,
        .flags = request->flags,
        .expires = request->exptime == 0 ? 0 : fw_cache_expiry(local, request->exptime),
        .bytes = request->data,
        .length = request->length,
        .client = session->client,
    };
}

/* A body is full, and perhaps what ends the value has come too. */
static enum fw_parsed pending_complete(struct fw_session *session, struct fw_cache_local *local,
                                       struct fw_input *input)
{
    struct fw_pending *pending = session->pending;
    if (fw_reply_room(&local->reply, FW_TEXT_ANSWER_MAX) == NULL) {
        return FW_PARSED_OUTPUT;
    }
    if (input->end - input->next < VALUE_END) {
        input->wanted = VALUE_END;
        return FW_PARSED_INPUT;
    }
    struct fw_key key = fw_table_key(local->table, pending->key, pending->key_length);
    store_and_answer(local, &key, &pending->store, input->next, pending->is_quiet);
    input->next += VALUE_END;
    fw_pending_drop_body(pending, local);
    return FW_PARSED;
}

/* Says why the value is not taken, and drops it. */
static enum fw_parsed request_refuse(struct fw_session *session, struct fw_cache_local *local,
                                     struct fw_input *input, const struct request *request,
                                     enum fw_outcome why)
{
    (void)fw_operation_refuse(local, &request->key, request->mode, why);
    if (!request->is_quiet) {
        answer(local, why);
    }
    input->next = request->data;
    fw_session_swallow(session, (uint64_t)request->length + VALUE_END);
    return FW_PARSED;
}

/* The value is received into a body. */
static enum fw_parsed request_begin_body(struct fw_session *session, struct fw_cache_local *local,
                                         struct fw_input *input, const struct request *request)
{
    enum fw_outcome why;
    struct fw_pending *pending = fw_pending_create(session, local, request->length, "", 0, &why);
    if (pending == NULL) {
        return request_refuse(session, local, input, request, why);
    }
    pending->store = request_store(session, local, request);
    pending->store.bytes = NULL;
    pending->complete = pending_complete;
    pending->is_quiet = request->is_quiet;
    pending->key_length = (uint8_t)request->key.length;
    memcpy(pending->key, request->key.bytes, request->key.length);
    input->next = request->data;
    return FW_PARSED;
}

/* The line was understood. There is room for an answer. */
static enum fw_parsed request_run(struct fw_session *session, struct fw_cache_local *local,
                                  struct fw_input *input, const struct request *request)
{
    if (FW_UNLIKELY(!fw_operation_fits(local->cache, request->key.length, request->flags,
                                       request->length))) {
        return request_refuse(session, local, input, request, FW_TOO_LARGE);
    }
    if (FW_UNLIKELY(request->length > FW_ITEM_INLINE_MAX)) {
        return request_begin_body(session, local, input, request);
    }
    size_t needed = request->length + VALUE_END;
    if (FW_UNLIKELY((size_t)(input->end - request->data) < needed)) {
        input->next = request->line;
        input->wanted = (size_t)(request->data - request->line) + needed;
        /* A line as long as that is mostly spaces. */
        return input->wanted <= FW_SESSION_INPUT_MAX ? FW_PARSED_INPUT : FW_PARSED_CLOSE;
    }
    struct fw_store store = request_store(session, local, request);
    store_and_answer(local, &request->key, &store, request->data + request->length,
                     request->is_quiet);
    input->next = request->data + needed;
    return FW_PARSED;
}

static enum fw_parsed store_line(struct fw_text_line *line, enum fw_store_mode mode)
{
    struct request request = {.mode = mode, .line = line->begin, .data = line->input->next};
    const struct fw_word *words = line->words;
    int32_t length = 0;
    fw_text_line_set_quiet(line);
    if (!fw_text_key_word(line, 1, &request.key)) {
        return FW_PARSED;
    }
    bool is_sound =
        fw_number_u32(words[2].text, words[2].length, &request.flags) &&
        fw_number_i32(words[3].text, words[3].length, &request.exptime) &&
        fw_number_i32(words[4].text, words[4].length, &length) &&
        (mode != FW_STORE_CAS || fw_number_u64(words[5].text, words[5].length, &request.cas)) &&
        length >= 0 && length <= INT_MAX - VALUE_END;
    if (!is_sound) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR bad command line format");
        return FW_PARSED;
    }
    request.length = (uint32_t)length;
    request.is_quiet = line->is_quiet;
    return request_run(line->session, line->local, line->input, &request);
}

enum fw_parsed fw_command_set(struct fw_text_line *line)
{
    return store_line(line, FW_STORE_SET);
}

enum fw_parsed fw_command_add(struct fw_text_line *line)
{
    return store_line(line, FW_STORE_ADD);
}

enum fw_parsed fw_command_replace(struct fw_text_line *line)
{
    return store_line(line, FW_STORE_REPLACE);
}

enum fw_parsed fw_command_append(struct fw_text_line *line)
{
    return store_line(line, FW_STORE_APPEND);
}

enum fw_parsed fw_command_prepend(struct fw_text_line *line)
{
    return store_line(line, FW_STORE_PREPEND);
}

enum fw_parsed fw_command_cas(struct fw_text_line *line)
{
    return store_line(line, FW_STORE_CAS);
}

/* A few digits and `ended_by` behind them; returns what is behind that, or NULL. */
static inline const char *read_digits(const char *at, const char *end, char ended_by,
                                      uint32_t *value)
{
    uint32_t digit;
    /* Most flags and times are 0. */
    if (end - at > 1 && at[1] == ended_by && (digit = (uint32_t)(uint8_t)*at - '0') <= 9) {
        *value = digit;
        return at + 2;
    }
    uint32_t result = 0;
    const char *begin = at;
    while (at < end && (digit = (uint32_t)(uint8_t)*at - '0') <= 9) {
        result = result * 10 + digit;
        at++;
    }
    *value = result;
    bool is_usual = (size_t)(at - begin) - 1 < DIGITS_HOT_MAX && at < end && *at == ended_by;
    return is_usual ? at + 1 : NULL;
}

bool fw_text_set_hot(struct fw_session *session, struct fw_cache_local *local,
                     struct fw_input *input, enum fw_parsed *parsed)
{
    const char *key = input->next + SET_LENGTH;
    const char *end = input->end;
    const char *at = fw_text_scan(key, end);
    size_t key_length = (size_t)(at - key);
    if (key_length == 0 || key_length > FW_ITEM_KEY_MAX || at == end || *at != ' ') {
        return false;
    }
    struct request request = {.mode = FW_STORE_SET, .line = input->next};
    /* Fetched while the numbers are read. */
    request.key = fw_table_key(local->table, key, key_length);
    fw_table_prefetch(local->table, &request.key);
    uint32_t exptime;
    at = read_digits(at + 1, end, ' ', &request.flags);
    at = at != NULL ? read_digits(at, end, ' ', &exptime) : NULL;
    at = at != NULL ? read_digits(at, end, '\r', &request.length) : NULL;
    if (at == NULL || at == end || *at != '\n' ||
        fw_reply_room(&local->reply, FW_TEXT_ANSWER_MAX) == NULL) {
        return false;
    }
    request.exptime = (int32_t)exptime;
    request.data = at + 1;
    if ((size_t)(end - request.data) > (size_t)request.length + VALUE_END) {
        fw_look_ahead(local, input, fw_text_sight);
    }
    *parsed = request_run(session, local, input, &request);
    return true;
}
