/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/counter_protocol.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "cache/binary.h"
#include "cache/counters.h"
#include "cache/parser.h"

enum {
    NUMBER = 4,
    NAME_LENGTH = 2,
    BODY_MAX = 2 * NUMBER + NAME_LENGTH + FW_COUNTERS_NAME_MAX, /* Of requests, and of rows. */
    STATS_MAX = 1024,                                           /* All of them. */
    LISTS_PER_STEP_MAX = 4096, /* Of a dump; then others are let in. */
};

static_assert(FW_COUNTER_HEADER + BODY_MAX <= FW_SESSION_INPUT_MAX, "a request fits the input");
static_assert(FW_COUNTER_HEADER + BODY_MAX <= FW_REPLY_ROOM_MIN, "a row fits an empty reply");
static_assert(FW_COUNTER_HEADER + STATS_MAX <= FW_REPLY_ROOM_MIN, "and so do statistics");

enum status {
    OK = 0x00,
    NOT_FOUND = 0x01,
    INVALID = 0x04,
    NOT_AVAILABLE = 0x21,
    NOT_ACQUIRED = 0x22,
    UNKNOWN = 0x81,
    NO_MEMORY = 0x82,
};

struct request {
    struct fw_session *session;
    struct fw_cache_local *local;
    uint8_t opcode;
    uint32_t opaque; /* As it came. */
    const char *body;
    uint32_t body_length;
    struct fw_counters_name name; /* Of opcodes that have one. */
};

struct command {
    const char *name;
    void (*run)(struct request *request);
    uint8_t numbers; /* Before the name, of 4 bytes each. */
    bool has_name;   /* Else it has no body. */
};

static const char *status_text(enum status status)
{
    switch (status) {
    case OK:
        return "";
    case NOT_FOUND:
        return "Not found";
    case INVALID:
        return "Invalid arguments";
    case NOT_AVAILABLE:
        return "Resource not available";
    case NOT_ACQUIRED:
        return "Not acquired";
    case UNKNOWN:
        return "Unknown command";
    case NO_MEMORY:
        return "Out of memory";
    }
    return "?";
}

/* ---- replies; there is room ----------------------------------------------------------------- */

static void answer_header(struct fw_reply *reply, uint8_t opcode, uint32_t opaque,
                          enum status status, size_t body_length)
{
    char *to = reply->next;
    *to++ = (char)FW_COUNTER_REPLY;
    *to++ = (char)opcode;
    *to++ = (char)status;
    *to++ = 0;
    to = fw_binary_put_u32(to, (uint32_t)body_length);
    memcpy(to, &opaque, sizeof opaque);
    fw_reply_advance(reply, to + sizeof opaque);
}

static void answer(const struct request *request, enum status status, const char *body,
                   size_t length)
{
    struct fw_reply *reply = &request->local->reply;
    answer_header(reply, request->opcode, request->opaque, status, length);
    fw_reply_add(reply, body, length);
}

static void answer_status(const struct request *request, enum status status)
{
    const char *text = status_text(status);
    answer(request, status, text, strlen(text));
}

static void answer_number(const struct request *request, uint32_t number)
{
    char body[NUMBER];
    (void)fw_binary_put_u32(body, number);
    answer(request, OK, body, sizeof body);
}

static enum status status_of(enum fw_counters_answer given)
{
    switch (given) {
    case FW_COUNTERS_OK:
        return OK;
    case FW_COUNTERS_NOT_FOUND:
        return NOT_FOUND;
    case FW_COUNTERS_NOT_AVAILABLE:
        return NOT_AVAILABLE;
    case FW_COUNTERS_NOT_ACQUIRED:
        return NOT_ACQUIRED;
    case FW_COUNTERS_NO_MEMORY:
        break;
    }
    return NO_MEMORY;
}

/* ---- commands ------------------------------------------------------------------------------- */

static void run_noop(struct request *request)
{
    answer_status(request, OK);
}

static void run_get(struct request *request)
{
    uint32_t consumption = 0;
    enum status status =
        status_of(fw_counters_get(request->local->cache->counters, &request->name, &consumption));
    if (status == OK) {
        answer_number(request, consumption);
    } else {
        answer_status(request, status);
    }
}

static void run_acquire(struct request *request)
{
    uint32_t count = fw_be32_get(request->body);
    uint32_t total = fw_be32_get(request->body + NUMBER);
    if (count == 0 || count > total) {
        answer_status(request, INVALID);
        return;
    }
    struct fw_cache_local *local = request->local;
    enum status status =
        status_of(fw_counters_acquire(local->cache->counters, &request->session->counting,
                                      &request->name, count, total, local->now));
    if (status == OK) {
        answer_number(request, count);
    } else {
        answer_status(request, status);
    }
}

static void run_release(struct request *request)
{
    struct fw_cache_local *local = request->local;
    answer_status(request, status_of(fw_counters_release(
                               local->cache->counters, &request->session->counting, &request->name,
                               fw_be32_get(request->body), local->now)));
}

static char *put_u16(char *to, size_t number)
{
    fw_be16_put(to, (uint16_t)number);
    return to + sizeof(uint16_t);
}

static void stats_add(struct fw_text *text, const char *name, uint64_t value)
{
    char digits[FW_TEXT_DECIMAL_MAX];
    size_t length = fw_text_decimal(digits, value);
    char lengths[2 * NAME_LENGTH];
    (void)put_u16(put_u16(lengths, strlen(name)), length);
    fw_text_append(text, lengths, sizeof lengths);
    fw_text_append_string(text, name);
    fw_text_append(text, digits, length);
}

static void run_stats(struct request *request)
{
    struct fw_counters_stats stats;
    char body[STATS_MAX];
    struct fw_text text;
    fw_counters_stats(request->local->cache->counters, &stats);
    fw_text_init(&text, body, sizeof body);
    stats_add(&text, "objects", stats.counters);
    stats_add(&text, "total_objects", stats.counters_made);
    stats_add(&text, "used_memory", stats.memory_used);
    stats_add(&text, "limit_memory", stats.memory_limit);
    stats_add(&text, "claims", stats.claims);
    stats_add(&text, "acquired", stats.acquired_count);
    stats_add(&text, "refused", stats.refused_count);
    FW_ASSERT(!text.truncated);
    answer(request, OK, body, text.length);
}

/* ---- dump ----------------------------------------------------------------------------------- */

struct dump {
    struct fw_reply *reply;
    uint32_t opaque;
    uint8_t opcode;
    bool is_full;   /* The reply is. */
    uint32_t shown; /* Of the present list, in steps before. */
    uint32_t seen;  /* Of the present list, in this step. */
};

static void dump_row(const struct fw_counters_row *row, void *context)
{
    struct dump *dump = context;
    struct fw_reply *reply = dump->reply;
    size_t length = 2 * NUMBER + NAME_LENGTH + row->name.length;
    if (dump->is_full) {
        return;
    }
    if (dump->seen == dump->shown) {
        if (fw_reply_room(reply, FW_COUNTER_HEADER + length) == NULL) {
            dump->is_full = true;
            return;
        }
        answer_header(reply, dump->opcode, dump->opaque, OK, length);
        char *to = fw_binary_put_u32(reply->next, row->consumption);
        to = fw_binary_put_u32(to, row->peak);
        fw_reply_advance(reply, put_u16(to, row->name.length));
        fw_reply_add(reply, row->name.bytes, row->name.length);
        dump->shown++;
    }
    dump->seen++;
}

/* List by list, while service goes on: what comes or goes meanwhile may be shown or not. */
static enum fw_parsed dump_step(struct fw_session *session, struct fw_cache_local *local,
                                struct fw_listing *listing)
{
    (void)session;
    struct dump *dump = (struct dump *)(void *)listing->state;
    bool is_round = false;
    dump->reply = &local->reply;
    dump->is_full = false;
    for (int i = 0; i < LISTS_PER_STEP_MAX && !is_round; i++) {
        uint64_t cursor = listing->cursor;
        dump->seen = 0;
        is_round = fw_counters_visit(local->cache->counters, &cursor, local->now, dump_row, dump);
        if (dump->is_full) {
            return FW_PARSED_OUTPUT;
        }
        dump->shown = 0;
        listing->cursor = cursor;
    }
    if (!is_round) {
        return FW_PARSED_OUTPUT;
    }
    if (fw_reply_room(&local->reply, FW_COUNTER_HEADER) == NULL) {
        return FW_PARSED_OUTPUT;
    }
    answer_header(&local->reply, dump->opcode, dump->opaque, OK, 0);
    return FW_PARSED;
}

static void run_dump(struct request *request)
{
    struct fw_listing *listing = fw_listing_create(request->session, sizeof(struct dump));
    if (listing == NULL) {
        answer_status(request, NO_MEMORY);
        return;
    }
    const struct dump dump = {.opaque = request->opaque, .opcode = request->opcode};
    memcpy(listing->state, &dump, sizeof dump);
    listing->step = dump_step;
}

/* ---- requests ------------------------------------------------------------------------------- */

static const struct command commands[256] = {
    [0x00] = {"noop", run_noop, 0, false},      [0x01] = {"get", run_get, 0, true},
    [0x02] = {"acquire", run_acquire, 2, true}, [0x03] = {"release", run_release, 1, true},
    [0x10] = {"stats", run_stats, 0, false},    [0x11] = {"dump", run_dump, 0, false},
};

/* Has the body the lengths that the opcode wants? Finds the name. */
static bool body_read(const struct command *command, struct request *request)
{
    if (!command->has_name) {
        return request->body_length == 0;
    }
    size_t before = (size_t)command->numbers * NUMBER + NAME_LENGTH;
    if (request->body_length < before) {
        return false;
    }
    request->name =
        (struct fw_counters_name){.bytes = request->body + before,
                                  .length = fw_be16_get(request->body + before - NAME_LENGTH)};
    return request->name.length > 0 && request->name.length == request->body_length - before;
}

static void request_run(struct request *request)
{
    const struct command *command = &commands[request->opcode];
    if (command->run == NULL) {
        answer_status(request, UNKNOWN);
    } else if (request->body_length > BODY_MAX || !body_read(command, request) ||
               request->name.length > FW_COUNTERS_NAME_MAX) {
        answer_status(request, INVALID);
    } else {
        command->run(request);
    }
}

enum fw_parsed fw_counter_command(struct fw_session *session, struct fw_cache_local *local,
                                  struct fw_input *input)
{
    size_t size = (size_t)(input->end - input->next);
    if (size < FW_COUNTER_HEADER) {
        input->wanted = FW_COUNTER_HEADER;
        return FW_PARSED_INPUT;
    }
    const char *header = input->next;
    if ((uint8_t)header[0] != FW_COUNTER_REQUEST) {
        return FW_PARSED_CLOSE;
    }
    if (fw_reply_room(&local->reply, FW_REPLY_ROOM_MIN) == NULL) {
        return FW_PARSED_OUTPUT;
    }
    struct request request = {.session = session,
                              .local = local,
                              .opcode = (uint8_t)header[1],
                              .body = header + FW_COUNTER_HEADER,
                              .body_length = fw_be32_get(header + 4)};
    memcpy(&request.opaque, header + 8, sizeof request.opaque);
    size_t length = FW_COUNTER_HEADER;
    if (request.body_length > BODY_MAX) { /* Nothing of it is looked at. */
        fw_session_swallow(session, request.body_length);
    } else {
        length += request.body_length;
    }
    if (size < length) {
        input->wanted = length;
        return FW_PARSED_INPUT;
    }
    request_run(&request);
    input->next += length;
    return FW_PARSED;
}

void fw_counter_show_request(struct fw_text *text, const char *bytes, size_t size)
{
    if (size < FW_COUNTER_HEADER || (uint8_t)bytes[0] != FW_COUNTER_REQUEST) {
        fw_text_append_string(text, "what is no request");
        return;
    }
    uint8_t opcode = (uint8_t)bytes[1];
    if (commands[opcode].name != NULL) {
        fw_text_append_string(text, commands[opcode].name);
    } else {
        fw_text_printf(text, "opcode 0x%02x", opcode);
    }
}

void fw_counter_show_answer(struct fw_text *text, const char *bytes, size_t size)
{
    FW_ASSERT(size >= FW_COUNTER_HEADER);
    enum status status = (uint8_t)bytes[2];
    fw_text_append_string(text, status == OK ? "OK" : status_text(status));
}
