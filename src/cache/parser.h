/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between session.c and the protocols: a parser does one command per call.
 *
 * The session loops over commands, counts them, and keeps what spans several runs: a large value
 * on its way into a body, a list that is written by and by, bytes to be swallowed. A parser looks
 * at input->next, and either executes one command and moves `next` behind it, or moves nothing and
 * says what it lacks. It asks the reply for room before it changes anything, so a command that is
 * told OUTPUT can be parsed again as if for the first time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cache/large.h"
#include "cache/operation.h"
#include "cache/session.h"

struct fw_input {
    const char *next;
    const char *end;
    size_t wanted; /* Set with FW_PARSED_INPUT: bytes from `next`, at most FW_SESSION_INPUT_MAX. */
    /*
     * How many commands this run may do, the present one included. A parser that does several in
     * one call takes the others off.
     */
    uint32_t budget;
    uint32_t keys;       /* Looked up so far by gets of several, and work like it; parsers add. */
    const char *fetched; /* What is ahead was looked at as far as that: fw_look_ahead(). */
};

enum fw_parsed {
    FW_PARSED,        /* A command was executed, or refused, and answered. */
    FW_PARSED_INPUT,  /* Its bytes have not all come. */
    FW_PARSED_OUTPUT, /* The reply has no room. */
    FW_PARSED_CLOSE,  /* No more is read from this client. */
    FW_PARSED_HELD,   /* The server wants it to be given again later. */
    FW_PARSED_DISK,   /* A window of a large value has to be written before there is room. */
};

/*
 * One command at input->next, which is not at the end; the text protocol does several `get`s that
 * follow each other in one call.
 */
enum fw_parsed fw_text_command(struct fw_session *session, struct fw_cache_local *local,
                               struct fw_input *input);
enum fw_parsed fw_binary_command(struct fw_session *session, struct fw_cache_local *local,
                                 struct fw_input *input);
enum fw_parsed fw_counter_command(struct fw_session *session, struct fw_cache_local *local,
                                  struct fw_input *input);

/* In state KEYS: the next key of a get. */
enum fw_parsed fw_text_key(struct fw_session *session, struct fw_cache_local *local,
                           struct fw_input *input);

/*
 * For the text protocol, whose lines these are: a meta command, of which [input->next, line_end) is
 * the line without its end and `data` is what comes behind it.
 */
enum fw_parsed fw_meta_command(struct fw_session *session, struct fw_cache_local *local,
                               struct fw_input *input, const char *line_end, const char *data);

/*
 * A large value under way. Its parser has filled in all of it; when the value is complete the
 * session calls `complete` with the input behind the value. That checks what ends the value,
 * stores, answers, and returns as a parser does; the session frees the struct and goes back to
 * COMMAND when it was done (FW_PARSED or CLOSE). `complete` takes store.body over (sets it to
 * NULL).
 *
 * The length is only what the client says, so it costs nothing: memory is taken, and items are
 * evicted, for bytes that have come. The first FW_PENDING_BEGIN bytes stay in the input buffer, as
 * those of a short command do. Then the value moves to a body of the smallest of these lengths that
 * is enough: the whole, a quarter of it, a quarter of that, and so on. When the body is full the
 * next length follows, and what has come is copied: a third of the value, all together. So a client
 * that stops sending holds this struct and what it has sent, or five times that at most: four by
 * the steps, and a quarter more by the sizes of runs (bodies.h). Addresses without memory would
 * save the copies, but idle clients could take all addresses of one size.
 *
 * If memory or disk refuse the value on its way, `store.refusal` says why and the rest is dropped
 * as it comes.
 */
enum { FW_PENDING_BEGIN = FW_ITEM_INLINE_MAX };

struct fw_pending {
    enum fw_parsed (*complete)(struct fw_session *session, struct fw_cache_local *local,
                               struct fw_input *input);
    struct fw_store store; /* The body is the session's until the value is complete. */
    uint32_t length;       /* Of the value. */
    uint32_t filled;
    bool is_large;           /* It goes to a file, */
    struct fw_window window; /* through this. */
    uint32_t opaque;         /* Of the binary protocol, with opcode and what it needs to answer. */
    uint8_t opcode;
    bool is_quiet;
    uint8_t key_length;
    char key[FW_ITEM_KEY_MAX];
    uint32_t line_length; /* The command's line, for who wants to read it again. */
    char line[];
};

/*
 * Begins a large value: makes the struct, with a copy of `line`. NULL: no such value can be stored,
 * and `*why` says why not; the parser answers that and swallows. The session is in BODY then.
 */
struct fw_pending *fw_pending_create(struct fw_session *session, struct fw_cache_local *local,
                                     uint32_t length, const char *line, size_t line_length,
                                     enum fw_outcome *why);

/* Frees the struct and what the value has taken. */
void fw_pending_destroy(struct fw_pending *pending, struct fw_cache_local *local);

/* It is not stored. */
void fw_pending_drop_body(struct fw_pending *pending, struct fw_cache_local *local);

/* From here on the value is only dropped, and this is why. */
void fw_pending_refuse(struct fw_pending *pending, struct fw_cache_local *local,
                       enum fw_outcome why);

/* Where the next bytes can be received, and how many; NULL: nowhere but in the input buffer. */
char *fw_pending_room(const struct fw_pending *pending, size_t *room);

/*
 * Moves what is in the input to its place. FW_PARSED: all of the value has come. FW_PARSED_INPUT:
 * more is to come, and if a body or window is open it has room. FW_PARSED_DISK: the window has to
 * be written first.
 */
enum fw_parsed fw_pending_fill(struct fw_pending *pending, struct fw_cache_local *local,
                               struct fw_input *input);

/*
 * A list under way. `step` writes what there is room for; FW_PARSED: it is complete,
 * FW_PARSED_OUTPUT: more follows. The session frees the struct, after `fini` if that is not NULL.
 */
struct fw_listing {
    enum fw_parsed (*step)(struct fw_session *session, struct fw_cache_local *local,
                           struct fw_listing *listing);
    void (*fini)(struct fw_listing *listing);
    uint64_t cursor;
    uint32_t work; /* What steps have cost beside what they sent; the session takes it off. */
    _Alignas(max_align_t) char state[]; /* The parser's. */
};

/* Begins a list. NULL: no memory. The session is in LISTING then, and steps begin at once. */
struct fw_listing *fw_listing_create(struct fw_session *session, size_t state_size);

/* Ends all locks that the client has on items. */
void fw_session_unlock_all(struct fw_session *session, struct fw_cache_local *local);

/* From now on `count` bytes are dropped before the next command is read. */
static inline void fw_session_swallow(struct fw_session *session, uint64_t count)
{
    session->state = FW_SESSION_SWALLOW;
    session->swallow = count;
}
