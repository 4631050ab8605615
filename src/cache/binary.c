/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/binary.h"

#include "base/assert.h"
#include "base/text.h"
#include "cache/ahead.h"
#include "cache/gate.h"

enum key_rule { KEY_NONE, KEY_NEEDED, KEY_ANY };

/* What comes behind extras and key. */
enum value_rule {
    VALUE_NONE,
    VALUE_ANY,
    VALUE_UNSEEN, /* It is not looked for: if there is one it is read as the next request. */
};

struct command {
    const char *name;
    fw_binary_function run; /* NULL: there is no such opcode. */
    uint8_t variant;
    uint8_t extras_length;
    bool has_optional_extras; /* None will do, too. */
    uint8_t key;              /* enum key_rule */
    uint8_t value;            /* enum value_rule */
    bool is_quiet;
    bool is_before_login;
    bool is_extension; /* Of yrmcds, where that is enabled. */
};

/* The shapes that several opcodes have, as designated members. */
#define NOTHING .key = KEY_NONE
#define KEY     .key = KEY_NEEDED
#define STORE   .run = fw_binary_store, .extras_length = 8, .key = KEY_NEEDED, .value = VALUE_ANY
#define JOIN    .run = fw_binary_store, .key = KEY_NEEDED, .value = VALUE_ANY
#define COUNT   .run = fw_binary_count, .extras_length = 20, .key = KEY_NEEDED
#define FLUSH   .run = fw_binary_flush, .extras_length = 4, .has_optional_extras = true
#define TOUCH   .run = fw_binary_get, .extras_length = 4, .key = KEY_NEEDED, .value = VALUE_UNSEEN
#define LOGIN   .run = fw_binary_sasl_login, .key = KEY_NEEDED, .value = VALUE_ANY
#define LOCK                                                                                   \
    .run = fw_binary_lock, .extras_length = 4, .has_optional_extras = true, .key = KEY_NEEDED, \
    .is_extension = true
#define QUIET .is_quiet = true

static const struct command commands[256] = {
    [0x00] = {"get", .run = fw_binary_get, KEY},
    [0x01] = {"set", STORE, .variant = FW_STORE_SET},
    [0x02] = {"add", STORE, .variant = FW_STORE_ADD},
    [0x03] = {"replace", STORE, .variant = FW_STORE_REPLACE},
    [0x04] = {"delete", .run = fw_binary_delete, KEY},
    [0x05] = {"increment", COUNT},
    [0x06] = {"decrement", COUNT, .variant = FW_BINARY_DOWN},
    [0x07] = {"quit", .run = fw_binary_quit, NOTHING},
    [0x08] = {"flush", FLUSH},
    [0x09] = {"getq", .run = fw_binary_get, KEY, QUIET},
    [0x0a] = {"noop", .run = fw_binary_noop, NOTHING},
    [0x0b] = {"version", .run = fw_binary_version, NOTHING, .is_before_login = true},
    [0x0c] = {"getk", .run = fw_binary_get, KEY, .variant = FW_BINARY_WITH_KEY},
    [0x0d] = {"getkq", .run = fw_binary_get, KEY, .variant = FW_BINARY_WITH_KEY, QUIET},
    [0x0e] = {"append", JOIN, .variant = FW_STORE_APPEND},
    [0x0f] = {"prepend", JOIN, .variant = FW_STORE_PREPEND},
    [0x10] = {"stat", .run = fw_binary_stat, .key = KEY_ANY, .value = VALUE_UNSEEN},
    [0x11] = {"setq", STORE, .variant = FW_STORE_SET, QUIET},
    [0x12] = {"addq", STORE, .variant = FW_STORE_ADD, QUIET},
    [0x13] = {"replaceq", STORE, .variant = FW_STORE_REPLACE, QUIET},
    [0x14] = {"deleteq", .run = fw_binary_delete, KEY, QUIET},
    [0x15] = {"incrementq", COUNT, QUIET},
    [0x16] = {"decrementq", COUNT, .variant = FW_BINARY_DOWN, QUIET},
    [0x17] = {"quitq", .run = fw_binary_quit, NOTHING, QUIET},
    [0x18] = {"flushq", FLUSH, QUIET},
    [0x19] = {"appendq", JOIN, .variant = FW_STORE_APPEND, QUIET},
    [0x1a] = {"prependq", JOIN, .variant = FW_STORE_PREPEND, QUIET},
    [0x1b] = {"verbosity", .run = fw_binary_verbosity, .extras_length = 4, NOTHING},
    [0x1c] = {"touch", TOUCH, .variant = FW_BINARY_TOUCH | FW_BINARY_NO_VALUE},
    [0x1d] = {"gat", TOUCH, .variant = FW_BINARY_TOUCH},
    [0x1e] = {"gatq", TOUCH, .variant = FW_BINARY_TOUCH, QUIET},
    [0x20] = {"sasl_list", .run = fw_binary_sasl_list, NOTHING, .is_before_login = true},
    [0x21] = {"sasl_auth", LOGIN, .is_before_login = true},
    [0x22] = {"sasl_step", LOGIN, .is_before_login = true},
    [0x23] = {"gatk", TOUCH, .variant = FW_BINARY_TOUCH | FW_BINARY_WITH_KEY},
    [0x24] = {"gatkq", TOUCH, .variant = FW_BINARY_TOUCH | FW_BINARY_WITH_KEY, QUIET},
    [0x40] = {"lock", .run = fw_binary_lock, KEY, .variant = FW_BINARY_NO_VALUE,
              .is_extension = true},
    [0x41] = {"lockq", .run = fw_binary_lock, KEY, .variant = FW_BINARY_NO_VALUE, QUIET,
              .is_extension = true},
    [0x42] = {"unlock", .run = fw_binary_unlock, KEY, .is_extension = true},
    [0x43] = {"unlockq", .run = fw_binary_unlock, KEY, QUIET, .is_extension = true},
    [0x44] = {"unlock_all", .run = fw_binary_unlock_all, NOTHING, .is_extension = true},
    [0x45] = {"unlock_allq", .run = fw_binary_unlock_all, NOTHING, QUIET, .is_extension = true},
    [0x46] = {"lock_and_get", LOCK},
    [0x47] = {"lock_and_getq", LOCK, QUIET},
    [0x48] = {"lock_and_getk", LOCK, .variant = FW_BINARY_WITH_KEY},
    [0x49] = {"lock_and_getkq", LOCK, .variant = FW_BINARY_WITH_KEY, QUIET},
    [0x4a] = {"replace_and_unlock", STORE, .variant = FW_STORE_REPLACE | FW_BINARY_UNLOCK,
              .is_extension = true},
    [0x4b] = {"replace_and_unlockq", STORE, .variant = FW_STORE_REPLACE | FW_BINARY_UNLOCK, QUIET,
              .is_extension = true},
    [0x50] = {"keys", .run = fw_binary_keys, .key = KEY_ANY, .is_extension = true},
};

static const char *status_text(enum fw_binary_status status)
{
    switch (status) {
    case FW_BINARY_NOT_FOUND:
        return "Not found";
    case FW_BINARY_EXISTS:
        return "Data exists for key.";
    case FW_BINARY_TOO_LARGE:
        return "Too large.";
    case FW_BINARY_INVALID:
        return "Invalid arguments";
    case FW_BINARY_NOT_STORED:
        return "Not stored.";
    case FW_BINARY_NOT_A_NUMBER:
        return "Non-numeric server-side value for incr or decr";
    case FW_BINARY_LOCKED:
        return "Locked";
    case FW_BINARY_NOT_LOCKED:
        return "Not locked";
    case FW_BINARY_LOGIN_FAILED:
        return "Auth failure.";
    case FW_BINARY_UNKNOWN:
        return "Unknown command";
    case FW_BINARY_NO_MEMORY:
        return "Out of memory";
    case FW_BINARY_BUSY:
        return "Out of capacity, try again later";
    case FW_BINARY_TEMPORARY:
        return "Temporary failure";
    case FW_BINARY_OK:
    case FW_BINARY_LOGIN_MORE:
        break;
    }
    return "";
}

enum fw_parsed fw_binary_answer_text(const struct fw_binary *request, enum fw_binary_status status,
                                     const char *text)
{
    struct fw_reply *reply = &request->local->reply;
    uint32_t length = (uint32_t)strlen(text);
    const struct fw_binary_answer answer = {.status = status, .value_length = length};
    fw_reply_advance(reply, fw_binary_header(reply->next, request, &answer));
    fw_reply_add(reply, text, length);
    return FW_PARSED;
}

enum fw_parsed fw_binary_fail(const struct fw_binary *request, enum fw_binary_status status)
{
    return fw_binary_answer_text(request, status, status_text(status));
}

enum fw_parsed fw_binary_succeed(const struct fw_binary *request, uint64_t cas)
{
    if (!request->is_quiet) {
        struct fw_reply *reply = &request->local->reply;
        const struct fw_binary_answer answer = {.cas = cas};
        fw_reply_advance(reply, fw_binary_header(reply->next, request, &answer));
    }
    return FW_PARSED;
}

static bool shape_is_right(const struct command *command, const struct fw_binary *request)
{
    bool has_extras = request->extras_length == command->extras_length ||
                      (command->has_optional_extras && request->extras_length == 0);
    bool has_key =
        command->key == KEY_ANY || (request->key_length > 0) == (command->key == KEY_NEEDED);
    return has_extras && has_key && (command->value != VALUE_NONE || request->value_length == 0);
}

/* Skips as much as memcached does: the body, counted from where its value begins. */
static enum fw_parsed unknown(struct fw_binary *request)
{
    uint32_t body_length = request->extras_length + request->key_length + request->value_length;
    (void)fw_binary_fail(request, FW_BINARY_UNKNOWN);
    if (body_length > 0 && body_length <= INT32_MAX) {
        fw_session_swallow(request->session, body_length);
    }
    return FW_PARSED;
}

void fw_binary_resume(struct fw_binary *request, const struct fw_pending *pending)
{
    const struct command *command = &commands[pending->opcode];
    request->opcode = pending->opcode;
    request->is_quiet = command->is_quiet;
    request->variant = command->variant;
    request->opaque = pending->opaque;
}

/* Header, extras and key have come. */
static enum fw_parsed dispatch(struct fw_binary *request)
{
    const struct fw_cache_settings *settings = &request->local->cache->settings;
    const struct command *command = &commands[request->opcode];
    request->is_quiet = command->is_quiet;
    request->variant = command->variant;
    if (FW_UNLIKELY(settings->needs_login && !request->session->has_logged_in &&
                    !command->is_before_login)) {
        (void)fw_binary_fail(request, FW_BINARY_LOGIN_FAILED);
        return FW_PARSED_CLOSE;
    }
    if (FW_UNLIKELY(request->key_length > FW_ITEM_KEY_MAX)) {
        (void)fw_binary_fail(request, FW_BINARY_INVALID);
        return FW_PARSED_CLOSE;
    }
    if (FW_UNLIKELY(command->run == NULL || (command->is_extension && !settings->has_locking))) {
        return unknown(request);
    }
    if (FW_UNLIKELY(!shape_is_right(command, request))) {
        (void)fw_binary_fail(request, FW_BINARY_INVALID);
        return FW_PARSED_CLOSE;
    }
    return command->run(request);
}

/* Reads the header. False: its lengths contradict each other. */
static bool header_read(struct fw_binary *request, const char *header)
{
    uint64_t first = fw_be64_get(header);
    uint32_t body_length = fw_be32_get(header + 8);
    request->opcode = (uint8_t)(first >> 48);
    request->key_length = (uint16_t)(first >> 32);
    request->extras_length = (uint8_t)(first >> 24);
    memcpy(&request->opaque, header + 12, sizeof request->opaque);
    request->cas = fw_be64_get(header + 16);
    request->extras = header + FW_BINARY_HEADER;
    request->key = request->extras + request->extras_length;
    request->value = request->key + request->key_length;
    uint32_t before_value = (uint32_t)request->extras_length + request->key_length;
    request->value_length = body_length - before_value;
    return before_value <= body_length;
}

static enum fw_command_class class_of(const struct command *command)
{
    bool is_get = command->run == fw_binary_get && (command->variant & FW_BINARY_NO_VALUE) == 0;
    bool is_keyed = command->key == KEY_NEEDED && command->run != fw_binary_sasl_login;
    if (is_get) {
        return (command->variant & FW_BINARY_TOUCH) != 0 ? FW_COMMAND_READ_CHANGES
                                                         : FW_COMMAND_READ;
    }
    if (command->run == fw_binary_flush) {
        return FW_COMMAND_FLUSH;
    }
    return is_keyed ? FW_COMMAND_WRITE : FW_COMMAND_ADMIN;
}

bool fw_binary_view(const struct fw_input *input, struct fw_gate_view *view)
{
    struct fw_binary request;
    size_t size = (size_t)(input->end - input->next);
    if (size < FW_BINARY_HEADER || (uint8_t)input->next[0] != FW_BINARY_REQUEST ||
        !header_read(&request, input->next) || request.value > input->end) {
        return false;
    }
    view->class = class_of(&commands[request.opcode]);
    bool has_key = view->class != FW_COMMAND_ADMIN && view->class != FW_COMMAND_FLUSH;
    view->key = has_key ? request.key : NULL;
    view->key_length = has_key ? request.key_length : 0;
    return true;
}

/* Quiet ones are told too: that they are quiet means only that nothing went wrong. */
enum fw_parsed fw_binary_refuse(struct fw_session *session, struct fw_cache_local *local,
                                struct fw_input *input)
{
    struct fw_binary request = {.session = session, .local = local, .input = input};
    bool is_consistent = header_read(&request, input->next);
    FW_ASSERT(is_consistent); /* Else it would not have been asked about. */
    if (!shape_is_right(&commands[request.opcode], &request)) {
        return fw_binary_command(session, local, input);
    }
    if (fw_reply_room(&local->reply, FW_REPLY_ROOM_MIN) == NULL) {
        return FW_PARSED_OUTPUT;
    }
    input->next = request.value;
    if (request.value_length > 0 && commands[request.opcode].value == VALUE_ANY) {
        fw_session_swallow(session, request.value_length);
    }
    const char *why = local->gate->refusal;
    return why == NULL ? fw_binary_fail(&request, FW_BINARY_BUSY)
                       : fw_binary_answer_text(&request, FW_BINARY_BUSY, why);
}

void fw_binary_show_request(struct fw_text *text, const char *bytes, size_t size)
{
    struct fw_binary request;
    if (size < FW_BINARY_HEADER || (uint8_t)bytes[0] != FW_BINARY_REQUEST) {
        fw_text_append_string(text, "what is no request");
        return;
    }
    bool is_consistent = header_read(&request, bytes);
    const char *name = commands[request.opcode].name;
    if (name != NULL) {
        fw_text_append_string(text, name);
    } else {
        fw_text_printf(text, "opcode 0x%02x", request.opcode);
    }
    if (is_consistent && request.key_length > 0 && request.value <= bytes + size) {
        fw_text_append_string(text, " ");
        fw_text_append(text, request.key, request.key_length);
    }
}

void fw_binary_show_answer(struct fw_text *text, const char *bytes, size_t size)
{
    FW_ASSERT(size >= FW_BINARY_HEADER);
    enum fw_binary_status status = (uint16_t)fw_be64_get(bytes);
    const char *shown = status_text(status);
    fw_text_append_string(text, shown[0] != '\0' ? shown : "OK");
}

/* What is seen of a request that was sent ahead. */
static bool sight_take(struct fw_sight *sight, const char *at, const char *end)
{
    if (end - at < FW_BINARY_HEADER || (uint8_t)at[0] != FW_BINARY_REQUEST) {
        return false;
    }
    struct fw_binary request;
    bool is_consistent = header_read(&request, at);
    size_t body_length = (size_t)request.extras_length + request.key_length + request.value_length;
    if (!is_consistent || (size_t)(end - at) - FW_BINARY_HEADER < body_length) {
        return false;
    }
    sight->key = request.key;
    sight->key_length = request.key_length;
    sight->end = request.value + request.value_length;
    return true;
}

enum fw_parsed fw_binary_command(struct fw_session *session, struct fw_cache_local *local,
                                 struct fw_input *input)
{
    size_t size = (size_t)(input->end - input->next);
    if (size < FW_BINARY_HEADER) {
        input->wanted = FW_BINARY_HEADER;
        return FW_PARSED_INPUT;
    }
    if ((uint8_t)input->next[0] != FW_BINARY_REQUEST) {
        return FW_PARSED_CLOSE;
    }
    struct fw_binary request = {.session = session, .local = local, .input = input};
    bool is_consistent = header_read(&request, input->next);
    size_t wanted = (size_t)(request.value - input->next);
    if (wanted > FW_SESSION_INPUT_MAX) {
        return FW_PARSED_CLOSE; /* memcached has no room for such a key either. */
    }
    if (size < wanted) {
        input->wanted = wanted;
        return FW_PARSED_INPUT;
    }
    if (fw_reply_room(&local->reply, FW_REPLY_ROOM_MIN) == NULL ||
        !fw_reply_has_pieces(&local->reply)) {
        return FW_PARSED_OUTPUT;
    }
    if ((size_t)(input->end - request.value) > request.value_length) {
        fw_look_ahead(local, input, sight_take);
    }
    enum fw_parsed parsed;
    if (FW_LIKELY(is_consistent)) {
        parsed = dispatch(&request);
    } else {
        (void)fw_binary_fail(&request, FW_BINARY_UNKNOWN);
        parsed = FW_PARSED_CLOSE;
    }
    if (parsed == FW_PARSED || parsed == FW_PARSED_CLOSE) {
        input->next = request.value;
    }
    return parsed;
}
