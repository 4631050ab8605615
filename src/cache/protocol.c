/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/protocol.h"

#include <string.h>

#include "base/assert.h"
#include "base/parse.h"
#include "base/text.h"
#include "base/version.h"
#include "cache/store.h"

enum {
    TOKENS_MAX = 7, /* One more than the longest command has, so that too many are noticed. */
    RELATIVE_EXPIRY_MAX_S = 60 * 60 * 24 * 30,
    LINE_END_SIZE = 2, /* Values are stored with their \r\n, ready to be sent. */
};

static_assert(FW_OLD_PROTOCOL_LINE_MAX <= UINT16_MAX, "line_offset has 16 bits");

struct token {
    const char *data;
    size_t size;
};

/* One call of fw_old_session_run(): what is left of the input, and the output so far. */
struct run {
    struct fw_old_session *session;
    const char *input;
    size_t input_size;
    size_t consumed;
    struct fw_text output;
    int64_t now_s;
};

void fw_old_session_init(struct fw_old_session *session, struct fw_old_store *store, uint32_t item_size_max)
{
    *session = (struct fw_old_session){
        .store = store, .item_size_max = item_size_max, .state = FW_OLD_SESSION_COMMAND};
}

static void session_drop_item(struct fw_old_session *session)
{
    if (session->item != NULL) {
        fw_old_store_unref(session->store, session->item);
        session->item = NULL;
    }
}

void fw_old_session_fini(struct fw_old_session *session)
{
    session_drop_item(session);
    session->state = FW_OLD_SESSION_CLOSED;
}

static void reply(struct run *run, const char *line)
{
    if (!run->session->quiet) {
        fw_text_append_string(&run->output, line);
        FW_ASSERT(!run->output.truncated); /* run_step() saw room for a line. */
    }
    run->session->quiet = false;
}

/* Errors are said even to those who asked for no reply, as memcached does: they lost something. */
static void reply_error(struct run *run, const char *line)
{
    run->session->quiet = false;
    reply(run, line);
}

static bool token_is(struct token token, const char *word)
{
    return token.size == strlen(word) && memcmp(token.data, word, token.size) == 0;
}

/* The next token of `line` from `*offset` on; size 0 at its end. */
static struct token token_next(struct token line, size_t *offset)
{
    size_t begin = *offset;
    while (begin < line.size && line.data[begin] == ' ') {
        begin++;
    }
    size_t end = begin;
    while (end < line.size && line.data[end] != ' ') {
        end++;
    }
    *offset = end;
    return (struct token){.data = line.data + begin, .size = end - begin};
}

static size_t tokens_split(struct token line, struct token tokens[TOKENS_MAX])
{
    size_t offset = 0;
    size_t count = 0;
    while (count < TOKENS_MAX) {
        tokens[count] = token_next(line, &offset);
        if (tokens[count].size == 0) {
            break;
        }
        count++;
    }
    return count;
}

static void swallow_value(struct run *run, uint64_t value_size)
{
    run->session->state = FW_OLD_SESSION_SWALLOW;
    run->session->swallow = value_size + LINE_END_SIZE;
}

static int64_t expiry_absolute(int64_t exptime, int64_t now_s)
{
    if (exptime == 0 || exptime > RELATIVE_EXPIRY_MAX_S) {
        return exptime;
    }
    return exptime < 0 ? now_s : now_s + exptime; /* Negative: expired from the start. */
}

/* set KEY FLAGS EXPTIME BYTES [noreply] */
static void command_set(struct run *run, const struct token *tokens, size_t count)
{
    struct fw_old_session *session = run->session;
    uint64_t flags, value_size;
    int64_t exptime;
    session->quiet = count == 6 && token_is(tokens[5], "noreply");
    if (count < 5 || count > 6) {
        reply_error(run, "ERROR\r\n");
        return;
    }
    if (tokens[1].size > FW_KEY_SIZE_MAX ||
        fw_parse_uint(tokens[2].data, tokens[2].size, 0, UINT32_MAX, &flags) != 0 ||
        fw_parse_int(tokens[3].data, tokens[3].size, INT32_MIN, INT64_MAX, &exptime) != 0 ||
        fw_parse_uint(tokens[4].data, tokens[4].size, 0, INT32_MAX, &value_size) != 0) {
        reply_error(run, "CLIENT_ERROR bad command line format\r\n");
        return;
    }
    /* An old value must not outlive a set that its client believes replaced it. */
    if (value_size > session->item_size_max) {
        (void)fw_old_store_delete(session->store, tokens[1].data, tokens[1].size, run->now_s);
        reply_error(run, "SERVER_ERROR object too large for cache\r\n");
        swallow_value(run, value_size);
        return;
    }
    session->item = fw_old_store_item_new(session->store, tokens[1].data, tokens[1].size,
                                      (size_t)value_size + LINE_END_SIZE);
    if (session->item == NULL) {
        (void)fw_old_store_delete(session->store, tokens[1].data, tokens[1].size, run->now_s);
        reply_error(run, "SERVER_ERROR out of memory storing object\r\n");
        swallow_value(run, value_size);
        return;
    }
    session->item->flags = (uint32_t)flags;
    session->item->expires_s = expiry_absolute(exptime, run->now_s);
    session->item_offset = 0;
    session->state = FW_OLD_SESSION_DATA;
}

/* delete KEY [0] [noreply] */
static void command_delete(struct run *run, const struct token *tokens, size_t count)
{
    struct fw_old_session *session = run->session;
    session->quiet = count > 2 && token_is(tokens[count - 1], "noreply");
    size_t words = session->quiet ? count - 1 : count;
    if (count < 2 || count > 4) {
        reply_error(run, "ERROR\r\n");
        return;
    }
    if (words > 3 || (words == 3 && !token_is(tokens[2], "0"))) {
        reply_error(run, "CLIENT_ERROR bad command line format.  "
                         "Usage: delete <key> [noreply]\r\n");
        return;
    }
    if (tokens[1].size > FW_KEY_SIZE_MAX) {
        reply_error(run, "CLIENT_ERROR bad command line format\r\n");
        return;
    }
    bool deleted = fw_old_store_delete(session->store, tokens[1].data, tokens[1].size, run->now_s);
    reply(run, deleted ? "DELETED\r\n" : "NOT_FOUND\r\n");
}

static void run_command(struct run *run, struct token line)
{
    struct fw_old_session *session = run->session;
    struct token tokens[TOKENS_MAX];
    size_t count = tokens_split(line, tokens);
    if (count >= 2 && token_is(tokens[0], "get")) {
        session->state = FW_OLD_SESSION_KEYS;
        session->line_offset = (uint16_t)(tokens[1].data - line.data);
    } else if (count > 0 && token_is(tokens[0], "set")) {
        command_set(run, tokens, count);
    } else if (count > 0 && token_is(tokens[0], "delete")) {
        command_delete(run, tokens, count);
    } else if (count == 1 && token_is(tokens[0], "version")) {
        reply(run, "VERSION " FW_VERSION "\r\n");
    } else if (count == 1 && token_is(tokens[0], "quit")) {
        session->state = FW_OLD_SESSION_CLOSED;
    } else {
        reply_error(run, "ERROR\r\n");
    }
}

/* The line at the head of the input without its end, or a NULL one; `*size` with its end. */
static struct token input_line(const struct run *run, size_t *size)
{
    const char *begin = run->input + run->consumed;
    size_t left = run->input_size - run->consumed;
    const char *end = left == 0 ? NULL : memchr(begin, '\n', left);
    if (end == NULL) {
        return (struct token){.data = NULL};
    }
    *size = (size_t)(end - begin) + 1;
    size_t length = *size - 1;
    if (length > 0 && begin[length - 1] == '\r') {
        length--;
    }
    return (struct token){.data = begin, .size = length};
}

/* Each step returns false when it can go no further: for want of input, or of output. */
static bool step_command(struct run *run)
{
    struct fw_old_session *session = run->session;
    size_t size = 0;
    struct token line = input_line(run, &size);
    if (line.data == NULL ? run->input_size - run->consumed >= FW_OLD_PROTOCOL_LINE_MAX
                          : size > FW_OLD_PROTOCOL_LINE_MAX) {
        reply_error(run, "CLIENT_ERROR line too long\r\n");
        session->state = FW_OLD_SESSION_CLOSED;
        return false;
    }
    if (line.data == NULL) {
        return false;
    }
    run_command(run, line);
    if (session->state != FW_OLD_SESSION_KEYS) {
        run->consumed += size; /* The line of a get stays until its last key is answered. */
    }
    return true;
}

static bool step_keys(struct run *run)
{
    struct fw_old_session *session = run->session;
    size_t size = 0;
    struct token line = input_line(run, &size);
    FW_ASSERT(line.data != NULL); /* step_command() saw it, and nothing was consumed since. */
    size_t offset = session->line_offset;
    struct token key = token_next(line, &offset);
    session->line_offset = (uint16_t)offset;
    if (key.size == 0 || key.size > FW_KEY_SIZE_MAX) {
        reply(run, key.size == 0 ? "END\r\n" : "CLIENT_ERROR bad command line format\r\n");
        session->state = FW_OLD_SESSION_COMMAND;
        run->consumed += size;
        return true;
    }
    struct fw_old_item *item = fw_old_store_get(session->store, key.data, key.size, run->now_s);
    if (item != NULL) {
        fw_text_append_string(&run->output, "VALUE ");
        fw_text_append(&run->output, item->data, item->key_size);
        fw_text_append_char(&run->output, ' ');
        fw_text_append_unsigned(&run->output, item->flags);
        fw_text_append_char(&run->output, ' ');
        fw_text_append_unsigned(&run->output, item->value_size - LINE_END_SIZE);
        fw_text_append_string(&run->output, "\r\n");
        FW_ASSERT(!run->output.truncated);
        session->item = item;
        session->item_offset = 0;
        session->state = FW_OLD_SESSION_VALUE;
    }
    return true;
}

static bool step_value(struct run *run)
{
    struct fw_old_session *session = run->session;
    size_t left = session->item->value_size - session->item_offset;
    size_t room = fw_text_room(&run->output);
    size_t size = left < room ? left : room;
    fw_text_append(&run->output, fw_old_item_value(session->item) + session->item_offset, size);
    session->item_offset += (uint32_t)size;
    if (size < left) {
        return false;
    }
    session_drop_item(session);
    session->state = FW_OLD_SESSION_KEYS;
    return true;
}

static bool step_data(struct run *run)
{
    struct fw_old_session *session = run->session;
    struct fw_old_item *item = session->item;
    size_t left = item->value_size - session->item_offset;
    size_t size = run->input_size - run->consumed;
    size = size < left ? size : left;
    memcpy(fw_old_item_value(item) + session->item_offset, run->input + run->consumed, size);
    session->item_offset += (uint32_t)size;
    run->consumed += size;
    if (size < left) {
        return false;
    }
    session->state = FW_OLD_SESSION_COMMAND;
    const char *end = fw_old_item_value(item) + item->value_size - LINE_END_SIZE;
    if (memcmp(end, "\r\n", LINE_END_SIZE) != 0) {
        session_drop_item(session);
        reply_error(run, "CLIENT_ERROR bad data chunk\r\n");
        return true;
    }
    session->item = NULL;
    fw_old_store_put(session->store, item);
    reply(run, "STORED\r\n");
    return true;
}

static bool step_swallow(struct run *run)
{
    struct fw_old_session *session = run->session;
    size_t size = run->input_size - run->consumed;
    size = size < session->swallow ? size : (size_t)session->swallow;
    session->swallow -= size;
    run->consumed += size;
    if (session->swallow > 0) {
        return false;
    }
    session->state = FW_OLD_SESSION_COMMAND;
    return true;
}

static bool run_step(struct run *run)
{
    switch ((enum fw_old_session_state)run->session->state) {
    case FW_OLD_SESSION_COMMAND:
        return step_command(run);
    case FW_OLD_SESSION_KEYS:
        return step_keys(run);
    case FW_OLD_SESSION_VALUE:
        return step_value(run);
    case FW_OLD_SESSION_DATA:
        return step_data(run);
    case FW_OLD_SESSION_SWALLOW:
        return step_swallow(run);
    case FW_OLD_SESSION_CLOSED:
        return false;
    }
    FW_ASSERT(false);
    return false;
}

struct fw_old_session_step fw_old_session_run(struct fw_old_session *session, const char *input,
                                      size_t input_size, char *output, size_t output_size,
                                      int64_t now_s)
{
    FW_ASSERT(output_size > FW_OLD_PROTOCOL_REPLY_MIN);
    struct run run = {.session = session, .input = input, .input_size = input_size, .now_s = now_s};
    fw_text_init(&run.output, output, output_size);
    bool room = true;
    while (room && run_step(&run)) {
        room = fw_text_room(&run.output) >= FW_OLD_PROTOCOL_REPLY_MIN;
    }
    return (struct fw_old_session_step){
        .consumed = run.consumed,
        .produced = run.output.length,
        .more = !room || session->state == FW_OLD_SESSION_VALUE,
    };
}
