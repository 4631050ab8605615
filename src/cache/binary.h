/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the binary protocol: what its files share. The way in is fw_binary_command(), see
 * parser.h.
 *
 * A request is a header of 24 bytes, extras, a key and a value; a reply has the same shape. Numbers
 * are big-endian. binary.c cuts requests out of the input, checks their shape against one table
 * (which lengths an opcode may have) and calls the opcode's function, which finds everything in a
 * struct fw_binary and has at least FW_REPLY_ROOM_MIN bytes and a piece in the reply: so none of
 * them has to begin twice.
 *
 * What is wrong and how it is answered is memcached 1.6.18's, to the byte: a header that does not
 * begin with 0x80 closes the connection without an answer; lengths that do not fit the opcode are
 * answered and close it, because nobody knows where the next request would begin; all else is
 * answered and the connection lives. Errors are also answered to quiet requests; what these leave
 * out is success, and misses of gets.
 *
 * Threads: those of the local.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/endian.h"
#include "cache/parser.h"

struct fw_text;

enum { FW_BINARY_HEADER = 24, FW_BINARY_REQUEST = 0x80, FW_BINARY_REPLY = 0x81 };

enum fw_binary_status {
    FW_BINARY_OK = 0x00,
    FW_BINARY_NOT_FOUND = 0x01,
    FW_BINARY_EXISTS = 0x02,
    FW_BINARY_TOO_LARGE = 0x03,
    FW_BINARY_INVALID = 0x04,
    FW_BINARY_NOT_STORED = 0x05,
    FW_BINARY_NOT_A_NUMBER = 0x06,
    FW_BINARY_LOCKED = 0x10,
    FW_BINARY_NOT_LOCKED = 0x11,
    FW_BINARY_LOGIN_FAILED = 0x20,
    FW_BINARY_LOGIN_MORE = 0x21,
    FW_BINARY_UNKNOWN = 0x81,
    FW_BINARY_NO_MEMORY = 0x82,
    FW_BINARY_BUSY = 0x85,
    FW_BINARY_TEMPORARY = 0x86,
};

/* A request under way. Key and value lie in the input. */
struct fw_binary {
    struct fw_session *session;
    struct fw_cache_local *local;
    struct fw_input *input;
    uint8_t opcode;
    bool is_quiet;
    uint8_t variant; /* Of functions that serve several opcodes; see the table in binary.c. */
    uint8_t extras_length;
    uint16_t key_length;
    uint32_t value_length;
    uint32_t opaque; /* As it came. */
    uint64_t cas;
    const char *extras;
    const char *key;
    const char *value; /* Not all of it needs to have come; see fw_binary_has_value(). */
};

/* For functions that serve several opcodes. */
enum {
    FW_BINARY_WITH_KEY = 1, /* A get answers the key too. */
    FW_BINARY_TOUCH = 2,    /* It sets the expiry time. */
    FW_BINARY_NO_VALUE = 4, /* It answers no value. */
    FW_BINARY_MODE = 7,     /* A store: the bits of its enum fw_store_mode. */
    FW_BINARY_UNLOCK = 8,   /* It needs the lock and gives it back. */
    FW_BINARY_DOWN = 1,     /* A count goes down. */
};

/* What a reply says, beside what it takes from the request. */
struct fw_binary_answer {
    enum fw_binary_status status;
    uint8_t extras_length;
    uint16_t key_length;
    uint32_t value_length;
    uint64_t cas;
};

/* Answers without a body, with `cas`; nothing if the request is quiet. Returns FW_PARSED. */
enum fw_parsed fw_binary_succeed(const struct fw_binary *request, uint64_t cas);

/* Answers the status, with its usual text. Returns FW_PARSED. */
enum fw_parsed fw_binary_fail(const struct fw_binary *request, enum fw_binary_status status);

/* The same with another text. */
enum fw_parsed fw_binary_answer_text(const struct fw_binary *request, enum fw_binary_status status,
                                     const char *text);

/* Answers an item that is held. A value beyond FW_ITEM_INLINE_MAX is sent from where it lies. */
void fw_binary_answer_item(const struct fw_binary *request, struct fw_item *item);

/* Answers a store. */
enum fw_parsed fw_binary_answer_store(const struct fw_binary *request, enum fw_outcome outcome,
                                      const struct fw_store *store);

/* Stores if the client has locked the item, unlocks it, and answers. Takes a body over. */
enum fw_parsed fw_binary_store_and_unlock(const struct fw_binary *request, const struct fw_key *key,
                                          struct fw_store *store);

/* For an answer to a request whose value has come later: fills what answers need. */
void fw_binary_resume(struct fw_binary *request, const struct fw_pending *pending);

/* For the log: opcode and key of the request, and the status of the answer, that begin there. */
void fw_binary_show_request(struct fw_text *text, const char *bytes, size_t size);
void fw_binary_show_answer(struct fw_text *text, const char *bytes, size_t size);

/*
 * Has the whole value come? If not, says how much is wanted, and the function returns
 * FW_PARSED_INPUT. For values of FW_ITEM_INLINE_MAX at the most.
 */
static inline bool fw_binary_has_value(const struct fw_binary *request)
{
    if (request->value_length <= (size_t)(request->input->end - request->value)) {
        return true;
    }
    request->input->wanted =
        (size_t)(request->value - request->input->next) + request->value_length;
    return false;
}

/* Write a number of a reply and return its end. */
static inline char *fw_binary_put_u32(char *to, uint32_t number)
{
    fw_be32_put(to, number);
    return to + sizeof number;
}

static inline char *fw_binary_put_u64(char *to, uint64_t number)
{
    fw_be64_put(to, number);
    return to + sizeof number;
}

/* Writes a header to where there is room for it and returns its end. */
static inline char *fw_binary_header(char *to, const struct fw_binary *request,
                                     const struct fw_binary_answer *answer)
{
    to =
        fw_binary_put_u64(to, (uint64_t)FW_BINARY_REPLY << 56 | (uint64_t)request->opcode << 48 |
                                  (uint64_t)answer->key_length << 32 |
                                  (uint64_t)answer->extras_length << 24 | (uint64_t)answer->status);
    to = fw_binary_put_u32(to, answer->extras_length + answer->key_length + answer->value_length);
    memcpy(to, &request->opaque, sizeof request->opaque);
    return fw_binary_put_u64(to + sizeof request->opaque, answer->cas);
}

/*
 * The opcodes' functions. One that is done with a value moves request->value behind it: that is
 * where the next request begins.
 */
typedef enum fw_parsed (*fw_binary_function)(struct fw_binary *request);

enum fw_parsed fw_binary_get(struct fw_binary *request);
enum fw_parsed fw_binary_store(struct fw_binary *request);
enum fw_parsed fw_binary_delete(struct fw_binary *request);
enum fw_parsed fw_binary_count(struct fw_binary *request);

enum fw_parsed fw_binary_flush(struct fw_binary *request);
enum fw_parsed fw_binary_noop(struct fw_binary *request);
enum fw_parsed fw_binary_quit(struct fw_binary *request);
enum fw_parsed fw_binary_stat(struct fw_binary *request);
enum fw_parsed fw_binary_verbosity(struct fw_binary *request);
enum fw_parsed fw_binary_version(struct fw_binary *request);
enum fw_parsed fw_binary_sasl_list(struct fw_binary *request);
enum fw_parsed fw_binary_sasl_login(struct fw_binary *request);

enum fw_parsed fw_binary_lock(struct fw_binary *request);
enum fw_parsed fw_binary_unlock(struct fw_binary *request);
enum fw_parsed fw_binary_unlock_all(struct fw_binary *request);
enum fw_parsed fw_binary_keys(struct fw_binary *request);
