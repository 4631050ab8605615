/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session: what one connection has said so far, in whichever protocol, and the answers to it.
 *
 * It does no I/O. Bytes go in, in whatever portions they arrive; replies go to the locality's
 * fw_reply. So the same code is served by the engine, driven by the simulator and fed by the
 * fuzzer. Unless the settings name the protocol, the first byte of a connection chooses it: 0x80 is
 * binary, all else is text, where each line's first word says whether it is classic or meta. A
 * connection to the counters' address speaks their protocol, which its owner sets after init().
 *
 * The parser goes over the bytes once, in place. A command whose bytes are all there is executed
 * from the input buffer: keys and values are not copied, except a value into its item. One that is
 * not complete is left in the buffer and given again with more behind it; `wanted` says how much
 * is needed before that makes sense. No command needs more than FW_SESSION_INPUT_MAX bytes at once:
 *
 *   - a value longer than FW_ITEM_INLINE_MAX is received into a body that grows as its bytes come
 *     (parser.h says how): fw_session_body() says where the next bytes go;
 *   - one that will be in a file (large.h) is received into a window of memory, and whenever that
 *     is full a run ends with DISK: the server writes the window and says what came of it. If
 *     memory or disk refuse a value, the rest of it is dropped as it comes, and the answer is an
 *     error;
 *   - a `get` of very many keys is kept aside until its line has ended, as a client may send all of
 *     it before it reads anything; beyond FW_SESSION_HOARD_MAX it is answered as it comes;
 *   - what is refused (too large, no memory) is swallowed, however long it is;
 *   - a line that is longer than it may be closes the connection, as memcached does.
 *
 * A run ends because the input is used up (INPUT), because the reply is full (OUTPUT), because the
 * connection has had its share (TURN), because it is over (CLOSE: quit, garbage, wrong password),
 * because the server holds the next command (HELD, see gate.h), or because a window is full (DISK).
 * In every case what was replied so far is sent first. A share is counted in commands and in keys,
 * so that who gets a hundred with each command holds others up no longer.
 *
 * What a run has cost is told by fw_session_cost(); it is what tenants pay with.
 *
 * A session is small, since ten thousands are idle: what only some need (a large value under way)
 * is allocated while it is needed.
 *
 * Ownership: the session holds what it has under way and gives it back in fini(). It may be used
 * with another local from one run to the next (the connection moved). Concurrency: none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "cache/cache.h"

enum {
    FW_SESSION_LINE_MAX = 2048,     /* Of a line that is not a get. */
    FW_SESSION_HOARD_MAX = 1 << 20, /* Of a line that is. */
    FW_SESSION_INPUT_MAX = FW_ITEM_INLINE_MAX + FW_SESSION_LINE_MAX + 2,
    FW_SESSION_KEYS_MAX = 64, /* A run that has looked up so many ends with the command. */
};

enum fw_session_state {
    FW_SESSION_COMMAND, /* Between two commands, or inside one whose bytes have not all come. */
    FW_SESSION_KEYS,    /* Inside a get: more keys follow. */
    FW_SESSION_BODY,    /* A large value is under way. */
    FW_SESSION_SWALLOW, /* `swallow` bytes are to be dropped. */
    FW_SESSION_LISTING, /* A long list (stats, key dump) is written by and by. */
    FW_SESSION_CLOSED,
};

struct fw_window;
struct fw_pending; /* A large value under way, with the key and all else of its command. */
struct fw_listing; /* A list under way. */
struct fw_hoard;   /* The line of a very long get. */

struct fw_session {
    uint8_t protocol; /* Before the first byte: unknown, unless the address says it. */
    uint8_t state;
    bool has_logged_in;
    uint8_t get_form;     /* In KEYS: which get it is; the text protocol's. */
    uint32_t get_expires; /* In KEYS: of gat. */
    uint32_t client;      /* Number of the connection in this server, never 0. */
    bool has_locks;       /* Holds locks, to be let go of at the end. */
    bool has_new_login;   /* `login` has changed; who wants to know it sets it back. */
    /* A login has failed, which also ended the run. `login` is who tried, until it is set back. */
    bool has_failed_login;
    uint8_t login_failures; /* So many, and no more than fit. */
    uint64_t swallow;
    struct fw_pending *pending;
    struct fw_listing *listing;
    struct fw_hoard *hoard;
    struct fw_counters_client counting; /* What it has claimed, in the counters' protocol. */
    char *login; /* As whom it has logged in, with a final zero; NULL: it has not. */
};

enum fw_session_end {
    FW_SESSION_INPUT,
    FW_SESSION_OUTPUT,
    FW_SESSION_TURN,
    FW_SESSION_CLOSE,
    FW_SESSION_HELD,
    FW_SESSION_DISK,
};

struct fw_session_step {
    size_t consumed;   /* Of the input. The rest is given again, with more behind it. */
    size_t wanted;     /* INPUT: so many bytes, counted from there, make a new run worth while. */
    uint32_t commands; /* How many began. */
    uint32_t keys;     /* Those of gets of several (a single one is counted with its command), and
                          what `stats` and lists cost. */
    enum fw_session_end end;
};

enum {
    FW_SESSION_COST_BYTES = 1024,
    FW_SESSION_COST_STATS = 32, /* Of `stats`, beside its rows: it adds up what all cores count. */
    FW_SESSION_COST_ROWS = 16,  /* So many bytes of rows cost 1. */
};

/*
 * The unit that tenants' rates and shares are counted in: 1 for a command, 1 for each key of a get
 * of several, 1 for each KiB that was received or sent. These take about the same time; what a
 * system call takes beside them is not counted, since it is nobody's choice how much comes at once.
 *
 * Rows of `stats` are dear, as they are made and not only sent: 1 for each 16 bytes, which is
 * half a row, and lists of keys cost 1 for each item that they look at. These come with `keys`, so
 * that a run ends after them as it does after many keys: a pipeline of `stats` has its turns too.
 */
static inline uint32_t fw_session_cost(uint32_t commands, uint32_t keys, uint64_t bytes)
{
    uint64_t cost = commands + (uint64_t)keys + bytes / FW_SESSION_COST_BYTES;
    return cost < UINT32_MAX ? (uint32_t)cost : UINT32_MAX;
}

void fw_session_init(struct fw_session *session, uint32_t client);
void fw_session_fini(struct fw_session *session, struct fw_cache_local *local);

/* Goes through the input. `local` has the time and a reply, which need not be empty. */
struct fw_session_step fw_session_run(struct fw_session *session, struct fw_cache_local *local,
                                      const char *input, size_t size);

/* For the protocols: the client is this user from now on, or, with NULL, nobody any more. */
void fw_session_log_in(struct fw_session *session, const char *user, size_t length);

/* For parsers: that has failed. The run ends behind the command, whatever the client sent. */
struct fw_input;
void fw_session_fail_login(struct fw_session *session, struct fw_input *input, const char *user,
                           size_t length);

/*
 * In BODY: where the next bytes of the value go, and how many fit there. NULL: into the input
 * buffer, as everything else does. When some have come there the caller says so with
 * body_received(), and a run, with nothing or with what came behind, goes on.
 */
char *fw_session_body(struct fw_session *session, size_t *room);
void fw_session_body_received(struct fw_session *session, size_t count);

/* How many bytes of such a value are still to come; 0: none is on its way. */
uint32_t fw_session_body_rest(const struct fw_session *session);

/*
 * After DISK: the body that is under way, and the window with the next `*size` bytes of it.
 * written() says that they are in the file, or the negative errno with which they are not.
 */
struct fw_body *fw_session_window(struct fw_session *session, const struct fw_window **window,
                                  uint32_t *size);
void fw_session_written(struct fw_session *session, struct fw_cache_local *local, int result);
