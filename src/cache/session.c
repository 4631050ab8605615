/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cache/gate.h"
#include "cache/holdings.h"
#include "cache/locks.h"
#include "cache/parser.h"
#include "cache/verbose.h"

enum { BINARY_MAGIC = 0x80, HOARD_FIRST = 64 * 1024 };

/*
 * What has come of a get whose line is longer than the input buffer. Who sends such a line in one
 * call and reads nothing before it is out would wait for us to read, while we wait for it to take
 * the replies to the first keys.
 */
struct fw_hoard {
    size_t begin, end; /* Not yet answered. */
    size_t size;
    bool is_whole; /* The end of the line is in it. */
    struct fw_holding claim;
    char bytes[];
};

static void hoard_free(struct fw_session *session, struct fw_cache_local *local)
{
    if (session->hoard != NULL && local->cache->holdings != NULL) {
        fw_holding_end(&session->hoard->claim, local->cache->holdings);
    }
    free(session->hoard);
    session->hoard = NULL;
}

void fw_session_init(struct fw_session *session, uint32_t client)
{
    FW_ASSERT(client != 0);
    *session = (struct fw_session){
        .protocol = FW_PROTOCOL_UNKNOWN, .state = FW_SESSION_COMMAND, .client = client};
    fw_counters_client_init(&session->counting);
}

static void session_end_pending(struct fw_session *session, struct fw_cache_local *local)
{
    fw_pending_destroy(session->pending, local);
    session->pending = NULL;
}

static void session_end_listing(struct fw_session *session)
{
    struct fw_listing *listing = session->listing;
    if (listing->fini != NULL) {
        listing->fini(listing);
    }
    free(listing);
    session->listing = NULL;
}

void fw_session_unlock_all(struct fw_session *session, struct fw_cache_local *local)
{
    if (session->has_locks) {
        fw_locks_release_all(local->cache->locks, local->table, session->client);
        session->has_locks = false;
    }
}

void fw_session_fini(struct fw_session *session, struct fw_cache_local *local)
{
    if (session->pending != NULL) {
        session_end_pending(session, local);
    }
    if (session->listing != NULL) {
        session_end_listing(session);
    }
    hoard_free(session, local);
    free(session->login);
    session->login = NULL;
    fw_session_unlock_all(session, local);
    if (!fw_list_is_empty(&session->counting.claims)) {
        fw_counters_release_all(local->cache->counters, &session->counting, local->now);
    }
    session->state = FW_SESSION_CLOSED;
}

void fw_session_log_in(struct fw_session *session, const char *user, size_t length)
{
    free(session->login);
    /* Without memory for the name it is in all the same, as somebody whom no rule names. */
    session->login = user != NULL ? strndup(user, length) : NULL;
    session->has_logged_in = user != NULL;
    session->has_new_login = true;
}

void fw_session_fail_login(struct fw_session *session, struct fw_input *input, const char *user,
                           size_t length)
{
    input->budget = 1; /* Whatever follows this command has to wait. */
    fw_session_log_in(session, user, length);
    session->has_logged_in = false;
    session->has_failed_login = true;
    if (session->login_failures < UINT8_MAX) {
        session->login_failures++;
    }
}

struct fw_listing *fw_listing_create(struct fw_session *session, size_t state_size)
{
    FW_ASSERT(session->listing == NULL);
    struct fw_listing *listing = calloc(1, sizeof *listing + state_size);
    if (listing != NULL) {
        session->listing = listing;
        session->state = FW_SESSION_LISTING;
    }
    return listing;
}

char *fw_session_body(struct fw_session *session, size_t *room)
{
    return session->state == FW_SESSION_BODY ? fw_pending_room(session->pending, room) : NULL;
}

void fw_session_body_received(struct fw_session *session, size_t count)
{
    FW_ASSERT(session->state == FW_SESSION_BODY);
    struct fw_pending *pending = session->pending;
    FW_ASSERT(count <= pending->length - pending->filled);
    pending->filled += (uint32_t)count;
}

uint32_t fw_session_body_rest(const struct fw_session *session)
{
    if (session->state != FW_SESSION_BODY) {
        return 0;
    }
    return session->pending->length - session->pending->filled;
}

struct fw_body *fw_session_window(struct fw_session *session, const struct fw_window **window,
                                  uint32_t *size)
{
    struct fw_pending *pending = session->pending;
    FW_ASSERT(session->state == FW_SESSION_BODY && pending->window.body != NULL);
    *window = &pending->window;
    *size = pending->filled - pending->window.begin;
    return pending->store.body;
}

void fw_session_written(struct fw_session *session, struct fw_cache_local *local, int result)
{
    struct fw_pending *pending = session->pending;
    pending->window.begin = pending->filled;
    if (result == 0) {
        return;
    }
    bool is_full = result == -ENOSPC || result == -EFBIG || result == -EDQUOT;
    if (is_full) {
        fw_large_disk_full(local->table, pending->store.body);
        pending->store.body = NULL;
    }
    fw_pending_refuse(pending, local, is_full ? FW_NO_SPACE : FW_DISK_FAILED);
}

static size_t input_length(const struct fw_input *input)
{
    return (size_t)(input->end - input->next);
}

/* Each of these goes on in its state as far as it can and answers as a parser does. */

static enum fw_parsed run_body(struct fw_session *session, struct fw_cache_local *local,
                               struct fw_input *input)
{
    enum fw_parsed parsed = fw_pending_fill(session->pending, local, input);
    if (parsed != FW_PARSED) {
        return parsed;
    }
    parsed = session->pending->complete(session, local, input);
    if (parsed == FW_PARSED || parsed == FW_PARSED_CLOSE) {
        FW_ASSERT(session->pending->store.body == NULL);
        session_end_pending(session, local);
        if (session->state == FW_SESSION_BODY) {
            session->state = FW_SESSION_COMMAND;
        }
    }
    return parsed;
}

static bool hoard_claim(struct fw_holding *claim, struct fw_cache_local *local, size_t bytes)
{
    struct fw_holdings *holdings = local->cache->holdings;
    uint32_t tenant = local->whose != NULL ? local->whose(local) : 0;
    return holdings == NULL || fw_holding_grow(claim, holdings, tenant, bytes);
}

/* Makes room, at least one byte. False: it is as large as it may be, or there is no memory. */
static bool hoard_grow(struct fw_session *session, struct fw_cache_local *local)
{
    struct fw_hoard *hoard = session->hoard;
    if (hoard != NULL && hoard->begin > 0) {
        memmove(hoard->bytes, hoard->bytes + hoard->begin, hoard->end - hoard->begin);
        hoard->end -= hoard->begin;
        hoard->begin = 0;
        return true;
    }
    size_t size = hoard == NULL ? HOARD_FIRST : 2 * hoard->size;
    struct fw_holding claim = hoard != NULL ? hoard->claim : (struct fw_holding){.bytes = 0};
    size_t more = hoard != NULL ? size - hoard->size : sizeof *hoard + size;
    if (size > FW_SESSION_HOARD_MAX || !hoard_claim(&claim, local, more)) {
        return false;
    }
    struct fw_hoard *grown = realloc(hoard, sizeof *grown + size);
    if (grown == NULL && hoard == NULL && local->cache->holdings != NULL) {
        fw_holding_end(&claim, local->cache->holdings);
    } else if (grown == NULL && hoard != NULL) {
        hoard->claim = claim; /* More than it has, until it ends. */
    }
    if (grown == NULL) {
        return false;
    }
    if (hoard == NULL) {
        *grown = (struct fw_hoard){.begin = 0};
    }
    grown->claim = claim;
    grown->size = size;
    session->hoard = grown;
    return true;
}

/* Takes input up to the end of the line, or as much as there is room for. */
static void hoard_take(struct fw_session *session, struct fw_cache_local *local,
                       struct fw_input *input)
{
    const char *line_end = memchr(input->next, '\n', input_length(input));
    const char *end = line_end != NULL ? line_end + 1 : input->end;
    while (input->next < end) {
        struct fw_hoard *hoard = session->hoard;
        if ((hoard == NULL || hoard->end == hoard->size) && !hoard_grow(session, local)) {
            return;
        }
        hoard = session->hoard;
        size_t room = hoard->size - hoard->end;
        size_t count = (size_t)(end - input->next) < room ? (size_t)(end - input->next) : room;
        memcpy(hoard->bytes + hoard->end, input->next, count);
        hoard->end += count;
        input->next += count;
    }
    FW_ASSERT(session->hoard != NULL);
    session->hoard->is_whole = line_end != NULL;
}

static enum fw_parsed run_keys(struct fw_session *session, struct fw_cache_local *local,
                               struct fw_input *input)
{
    if (session->hoard == NULL && memchr(input->next, '\n', input_length(input)) != NULL) {
        return fw_text_key(session, local, input);
    }
    if (session->hoard == NULL || !session->hoard->is_whole) {
        hoard_take(session, local, input);
    }
    struct fw_hoard *hoard = session->hoard;
    if (hoard == NULL) {
        return fw_text_key(session, local, input); /* No memory: as it comes. */
    }
    if (!hoard->is_whole && input->next == input->end) {
        input->wanted = 1;
        return FW_PARSED_INPUT;
    }
    struct fw_input kept = {.next = hoard->bytes + hoard->begin,
                            .end = hoard->bytes + hoard->end,
                            .budget = input->budget,
                            .keys = input->keys};
    enum fw_parsed parsed = fw_text_key(session, local, &kept);
    input->keys = kept.keys;
    hoard->begin = (size_t)(kept.next - hoard->bytes);
    if (session->state != FW_SESSION_KEYS) {
        hoard_free(session, local);
    }
    return parsed == FW_PARSED_INPUT ? FW_PARSED : parsed; /* There is room for more again. */
}

static enum fw_parsed run_swallow(struct fw_session *session, struct fw_input *input)
{
    size_t count = input_length(input);
    count = count < session->swallow ? count : (size_t)session->swallow;
    input->next += count;
    session->swallow -= count;
    if (session->swallow > 0) {
        input->wanted = 1;
        return FW_PARSED_INPUT;
    }
    session->state = FW_SESSION_COMMAND;
    return FW_PARSED;
}

static enum fw_parsed run_listing(struct fw_session *session, struct fw_cache_local *local,
                                  struct fw_input *input)
{
    enum fw_parsed parsed = session->listing->step(session, local, session->listing);
    input->keys += session->listing->work;
    session->listing->work = 0;
    if (parsed == FW_PARSED || parsed == FW_PARSED_CLOSE) {
        session_end_listing(session);
        session->state = FW_SESSION_COMMAND;
    }
    return parsed;
}

static enum fw_protocol protocol_choose(const struct fw_cache *cache, char first)
{
    if (cache->settings.protocol != FW_PROTOCOL_UNKNOWN) {
        return cache->settings.protocol;
    }
    return (uint8_t)first == BINARY_MAGIC ? FW_PROTOCOL_BINARY : FW_PROTOCOL_TEXT;
}

static enum fw_parsed run_command(struct fw_session *session, struct fw_cache_local *local,
                                  struct fw_input *input)
{
    if (FW_UNLIKELY(session->protocol == FW_PROTOCOL_UNKNOWN)) {
        session->protocol = (uint8_t)protocol_choose(local->cache, *input->next);
    }
    /* The counters have a listener of their own, and no keys: what is known of it must do. */
    if (FW_UNLIKELY(local->gate != NULL) && session->protocol != FW_PROTOCOL_COUNTERS) {
        return fw_gate_command(session, local, input);
    }
    if (FW_LIKELY(session->protocol == FW_PROTOCOL_TEXT)) {
        return fw_text_command(session, local, input);
    }
    return session->protocol == FW_PROTOCOL_BINARY ? fw_binary_command(session, local, input)
                                                   : fw_counter_command(session, local, input);
}

/* What the state needs to go on. A command also needs leave to begin: that is the budget. */
static enum fw_parsed run_state(struct fw_session *session, struct fw_cache_local *local,
                                struct fw_input *input)
{
    enum fw_session_state state = session->state;
    bool is_dry = input->next == input->end && state != FW_SESSION_BODY &&
                  state != FW_SESSION_LISTING && session->swallow == 0 && session->hoard == NULL;
    if (is_dry) {
        input->wanted = 1;
        return FW_PARSED_INPUT;
    }
    switch (state) {
    case FW_SESSION_COMMAND:
        return run_command(session, local, input);
    case FW_SESSION_KEYS:
        return run_keys(session, local, input);
    case FW_SESSION_BODY:
        return run_body(session, local, input);
    case FW_SESSION_SWALLOW:
        return run_swallow(session, input);
    case FW_SESSION_LISTING:
        return run_listing(session, local, input);
    case FW_SESSION_CLOSED:
        return FW_PARSED_CLOSE;
    }
    FW_ASSERT(false);
    return FW_PARSED_CLOSE;
}

/* The same, and shows in the log what was begun and what was answered. */
static enum fw_parsed run_state_verbosely(struct fw_session *session, struct fw_cache_local *local,
                                          struct fw_input *input)
{
    const enum fw_session_state state = session->state;
    const char *command = input->next;
    const char *answer = local->reply.next;
    const uint32_t budget = input->budget;
    input->budget = budget > 0 ? 1 : 0; /* So that no parser does several commands in one call. */
    enum fw_parsed parsed = run_state(session, local, input);
    input->budget = session->has_failed_login ? 1 : budget;
    bool has_begun = parsed == FW_PARSED || parsed == FW_PARSED_CLOSE || session->state != state;
    if (state == FW_SESSION_COMMAND && has_begun) {
        fw_verbose_command(session, command, (size_t)(input->end - command));
    }
    if (state != FW_SESSION_LISTING) { /* Lists come in pieces that begin anywhere. */
        fw_verbose_answer(session, answer, (size_t)(local->reply.next - answer));
    }
    return parsed;
}

/* Either of the two, and notes which command was the first that changed something or was to. */
static enum fw_parsed run_state_noticing(struct fw_session *session, struct fw_cache_local *local,
                                         struct fw_input *input, bool is_verbose)
{
    bool is_write;
    struct fw_notice_change change = fw_notice_next(session, local, input, &is_write);
    uint64_t noted = fw_table_local_noted(local->table);
    enum fw_parsed parsed =
        is_verbose ? run_state_verbosely(session, local, input) : run_state(session, local, input);
    is_write = (is_write && parsed == FW_PARSED) || fw_table_local_noted(local->table) != noted;
    if (is_write && !local->notice.has_change) {
        change.is_binary = session->protocol == FW_PROTOCOL_BINARY;
        local->notice.has_change = true;
        local->notice.change = change;
    }
    return parsed;
}

static enum fw_session_end end_of(enum fw_parsed parsed)
{
    switch (parsed) {
    case FW_PARSED:
        return FW_SESSION_TURN;
    case FW_PARSED_INPUT:
        return FW_SESSION_INPUT;
    case FW_PARSED_OUTPUT:
        return FW_SESSION_OUTPUT;
    case FW_PARSED_HELD:
        return FW_SESSION_HELD;
    case FW_PARSED_DISK:
        return FW_SESSION_DISK;
    case FW_PARSED_CLOSE:
        break;
    }
    return FW_SESSION_CLOSE;
}

/*
 * Only commands are paid for: what goes on inside one ends by itself, or at the output; but for a
 * get of very many keys, which goes on in the next run.
 */
static inline bool may_go_on(const struct fw_session *session, const struct fw_input *input)
{
    if (FW_UNLIKELY(input->keys >= FW_SESSION_KEYS_MAX)) {
        return session->state != FW_SESSION_COMMAND && session->state != FW_SESSION_KEYS;
    }
    return input->budget > 0 || session->state != FW_SESSION_COMMAND;
}

struct fw_session_step fw_session_run(struct fw_session *session, struct fw_cache_local *local,
                                      const char *input_bytes, size_t size)
{
    const uint32_t budget = local->cache->settings.lines_max;
    struct fw_input input = {
        .next = input_bytes, .end = input_bytes + size, .budget = budget, .fetched = input_bytes};
    enum fw_parsed parsed = FW_PARSED;
    const bool is_verbose = fw_verbose_is_on();
    const bool is_special = is_verbose || local->notice.is_on;
    FW_ASSERT(budget > 0);
    while (parsed == FW_PARSED && may_go_on(session, &input)) {
        bool begins = session->state == FW_SESSION_COMMAND;
        parsed = FW_LIKELY(!is_special) ? run_state(session, local, &input)
                 : local->notice.is_on  ? run_state_noticing(session, local, &input, is_verbose)
                                        : run_state_verbosely(session, local, &input);
        FW_ASSERT(input.next <= input.end);
        bool is_split = parsed == FW_PARSED_HELD && session->state == FW_SESSION_KEYS;
        if (begins && (parsed == FW_PARSED || parsed == FW_PARSED_CLOSE || is_split)) {
            input.budget--;
        }
    }
    if (parsed == FW_PARSED_CLOSE) {
        session->state = FW_SESSION_CLOSED;
    }
    /* The last command of the budget may have been the last of the input too. */
    if (parsed == FW_PARSED && input.next == input.end && session->state == FW_SESSION_COMMAND) {
        parsed = FW_PARSED_INPUT;
        input.wanted = 1;
    }
    FW_ASSERT(parsed != FW_PARSED_INPUT ||
              (input.wanted > 0 && input.wanted <= FW_SESSION_INPUT_MAX));
    return (struct fw_session_step){.consumed = (size_t)(input.next - input_bytes),
                                    .wanted = input.wanted,
                                    .commands = budget - input.budget,
                                    .keys = input.keys,
                                    .end = end_of(parsed)};
}
