/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway admin COMMAND: asks a running server, through its administration socket.
 *
 * server/admin.h says what is spoken there. One thread, one connection: each operation is started
 * and waited for, up to a limit of time, so that a server that hangs is told from one that is slow.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/jobs.h>

#include "base/option.h"
#include "base/parse.h"
#include "base/reason.h"
#include "base/text.h"
#include "cmd/tool.h"
#include "io/address.h"
#include "io/clock.h"
#include "io/reactor.h"

enum { HEADER_MAX = 64, ANSWER_MAX = 1 << 20, TIMES_MAX = 1000000000 };

struct admin_config {
    const char *socket;
    bool json;
    int64_t every_ns;
    uint64_t times;
    int64_t timeout_ns;
};

static const struct fw_option admin_options[] = {
    FW_OPTION_STRING(struct admin_config, socket, .name = "socket", .value_name = "PATH",
                     .default_text = "/run/fairway/admin.sock",
                     .help = "the --admin-socket of the server"),
    FW_OPTION_BOOL(struct admin_config, json, .name = "json", .default_text = "no",
                   .help = "print a JSON object instead of tables"),
    FW_OPTION_DURATION(struct admin_config, every_ns, .name = "every", .default_text = "0",
                       .unit = "s", .help = "ask again and again; 0: once"),
    FW_OPTION_UINT(struct admin_config, times, .name = "times", .default_text = "0",
                   .max = TIMES_MAX, .help = "with --every: how often; 0: until interrupted"),
    FW_OPTION_DURATION(struct admin_config, timeout_ns, .name = "timeout", .default_text = "10s",
                       .min = FW_NS_PER_MS, .unit = "s",
                       .help = "how long the server may take for each step"),
};

static struct fw_option_table admin_table(struct admin_config *config)
{
    return (struct fw_option_table){.module = "admin",
                                    .options = admin_options,
                                    .count = FW_ARRAY_LENGTH(admin_options),
                                    .config = config};
}

/* The connection. */
struct admin {
    const struct admin_config *config;
    struct fw_reactor *reactor;
    struct fw_stream stream;
    bool is_open;
    ssize_t result; /* Of the operation under way: -EINPROGRESS until it has ended. */
    char *answer;   /* ANSWER_MAX bytes: what has come and was not used. */
    size_t length;
};

static void operation_ended(struct fw_stream *stream, ssize_t result)
{
    FW_CONTAINER_OF(stream, struct admin, stream)->result = result;
}

static void connect_ended(struct fw_stream *stream, int result)
{
    operation_ended(stream, result);
}

static void stream_closed(struct fw_stream *stream)
{
    FW_CONTAINER_OF(stream, struct admin, stream)->is_open = false;
}

static const struct fw_stream_events admin_events = {.received = operation_ended,
                                                     .sent = operation_ended,
                                                     .connected = connect_ended,
                                                     .closed = stream_closed};

/* Of an operation just started: waits until it has ended, or -ETIMEDOUT. */
static ssize_t await(struct admin *admin, ssize_t result, int64_t patience_ns)
{
    int64_t deadline_ns = fw_clock_now_ns() + patience_ns;
    admin->result = result;
    while (admin->result == -EINPROGRESS) {
        int64_t left_ns = deadline_ns - fw_clock_now_ns();
        if (left_ns <= 0) {
            return -ETIMEDOUT;
        }
        (void)fw_reactor_poll(admin->reactor, left_ns);
    }
    return admin->result;
}

/* Says why the server could not be asked. */
static enum fw_cmd_status failed(const struct admin *admin, ssize_t error)
{
    const char *path = admin->config->socket;
    switch (error) {
    case -ENOENT:
        return fw_cmd_fail(FW_CMD_FAILED,
                           "there is no socket %s: start the server with --admin-socket, and give "
                           "its path with --socket",
                           path);
    case -ECONNREFUSED:
        return fw_cmd_fail(FW_CMD_FAILED, "nobody listens at %s: its server has ended", path);
    case -EACCES:
        return fw_cmd_fail(FW_CMD_FAILED, "%s belongs to another user: ask as that user or as root",
                           path);
    case -EAGAIN:
    case -ETIMEDOUT:
        return fw_cmd_fail(FW_CMD_FAILED,
                           "no answer from %s in time: the server is stopped or overloaded", path);
    case 0:
    case -EPIPE:
    case -ECONNRESET:
        return fw_cmd_fail(FW_CMD_FAILED, "%s was closed before an answer came: the server ends",
                           path);
    case -EPROTO:
        return fw_cmd_fail(FW_CMD_FAILED, "%s is not the administration socket of a fairway", path);
    default:
        return fw_cmd_fail(FW_CMD_FAILED, "%s: %s", path, strerrordesc_np((int)-error));
    }
}

/* Receives until `enough` bytes are there. 0 or a negative errno; -ECONNRESET at the end. */
static ssize_t receive_until(struct admin *admin, size_t enough, int64_t patience_ns)
{
    while (admin->length < enough) {
        ssize_t result = await(admin,
                               fw_stream_receive(&admin->stream, admin->answer + admin->length,
                                                 ANSWER_MAX - admin->length),
                               patience_ns);
        if (result <= 0) {
            return result == 0 ? -ECONNRESET : result;
        }
        admin->length += (size_t)result;
    }
    return 0;
}

/* "OK 123" or "ERROR EINVAL 123", of `length` bytes. 0 or -EPROTO. */
static int header_parse(const char *header, size_t length, char name[static HEADER_MAX],
                        uint64_t *size)
{
    static const char ok[] = "OK ", error[] = "ERROR ";
    name[0] = '\0';
    if (length > sizeof error && memcmp(header, error, sizeof error - 1) == 0) {
        header += sizeof error - 1;
        length -= sizeof error - 1;
        const char *space = memchr(header, ' ', length);
        if (space == NULL) {
            return -EPROTO;
        }
        size_t name_length = (size_t)(space - header);
        memcpy(name, header, name_length);
        name[name_length] = '\0';
        header += name_length + 1;
        length -= name_length + 1;
    } else if (length > sizeof ok - 1 && memcmp(header, ok, sizeof ok - 1) == 0) {
        header += sizeof ok - 1;
        length -= sizeof ok - 1;
    } else {
        return -EPROTO;
    }
    return fw_parse_uint(header, length, 0, ANSWER_MAX - HEADER_MAX, size) == 0 ? 0 : -EPROTO;
}

/* Waits for an answer and prints it. */
static enum fw_cmd_status answer_print(struct admin *admin, int64_t patience_ns)
{
    const char *end = NULL;
    ssize_t rc = 0;
    while (end == NULL && rc == 0) {
        end = memchr(admin->answer, '\n', admin->length);
        if (end == NULL && admin->length >= HEADER_MAX) {
            rc = -EPROTO;
        } else if (end == NULL) {
            rc = receive_until(admin, admin->length + 1, patience_ns);
        }
    }
    char name[HEADER_MAX];
    uint64_t size = 0;
    size_t begin = 0;
    if (rc == 0) {
        begin = (size_t)(end - admin->answer) + 1;
        rc = begin <= HEADER_MAX ? header_parse(admin->answer, begin - 1, name, &size) : -EPROTO;
    }
    if (rc == 0) {
        rc = receive_until(admin, begin + size, admin->config->timeout_ns);
    }
    if (rc != 0) {
        return failed(admin, rc);
    }
    char *text = admin->answer + begin;
    fw_cmd_tame(text, size);
    enum fw_cmd_status status = FW_CMD_OK;
    if (name[0] == '\0') {
        (void)fwrite(text, 1, size, stdout); /* main() looks whether it worked. */
    } else {
        bool is_mistake = strcmp(name, "EINVAL") == 0 || strcmp(name, "ENOENT") == 0;
        bool has_end = size > 0 && text[size - 1] == '\n';
        status = fw_cmd_fail(is_mistake ? FW_CMD_USAGE : FW_CMD_FAILED, "%.*s",
                             (int)(size - has_end), text);
    }
    admin->length -= begin + size;
    memmove(admin->answer, text + size, admin->length);
    return status;
}

static enum fw_cmd_status admin_ask(struct admin *admin, const struct fw_text *line)
{
    const struct admin_config *config = admin->config;
    struct iovec piece = {.iov_base = line->data, .iov_len = line->length};
    while (piece.iov_len > 0) {
        ssize_t sent = await(admin, fw_stream_send(&admin->stream, &piece, 1), config->timeout_ns);
        if (sent < 0) {
            return failed(admin, sent);
        }
        piece.iov_base = (char *)piece.iov_base + sent;
        piece.iov_len -= (size_t)sent;
    }
    enum fw_cmd_status status;
    uint64_t left = config->every_ns > 0 ? config->times : 1; /* 0: for ever. */
    do {
        status = answer_print(admin, config->timeout_ns + config->every_ns);
        (void)fflush(stdout); /* Somebody watches. */
    } while (status == FW_CMD_OK && ferror(stdout) == 0 && --left != 0);
    return status;
}

static enum fw_cmd_status admin_connect_and_ask(struct admin *admin, const struct fw_text *line)
{
    struct fw_address address;
    struct fw_reason reason;
    char text[FW_ADDRESS_TEXT_SIZE];
    const char *path = admin->config->socket;
    int length =
        snprintf(text, sizeof text, "%s%s", strncmp(path, "unix:", 5) == 0 ? "" : "unix:", path);
    if (length >= (int)sizeof text) {
        return fw_cmd_fail(FW_CMD_USAGE, "--socket: the path is too long");
    }
    if (fw_address_parse(text, 0, 0, &address, 1, &reason) < 0) {
        return fw_cmd_fail(FW_CMD_USAGE, "--socket: %s", reason.text);
    }
    int rc = fw_stream_connect(&admin->stream, admin->reactor, &address, &admin_events);
    admin->is_open = rc == 0 || rc == -EINPROGRESS;
    ssize_t connected = admin->is_open ? await(admin, rc, admin->config->timeout_ns) : rc;
    enum fw_cmd_status status = connected == 0 ? admin_ask(admin, line) : failed(admin, connected);
    if (admin->is_open) {
        fw_stream_close(&admin->stream);
    }
    while (admin->is_open) {
        (void)fw_reactor_poll(admin->reactor, -1);
    }
    return status;
}

/* What is sent: all words of the command, in one line. */
static bool line_make(struct fw_text *line, const struct admin_config *config,
                      const struct fw_option_list *words)
{
    if (config->every_ns > 0) {
        fw_text_printf(line, "every %" PRId64 "ns ", config->every_ns);
    }
    if (config->json) {
        fw_text_append_string(line, "json ");
    }
    for (size_t i = 0; i < words->count; i++) {
        fw_text_append_string(line, i > 0 ? " " : "");
        fw_text_append_string(line, words->items[i]);
    }
    bool is_one_line = memchr(line->data, '\n', line->length) == NULL;
    fw_text_append_char(line, '\n');
    return is_one_line && !line->truncated;
}

static enum fw_cmd_status admin_with(void *context, const struct fw_option_list *words)
{
    const struct admin_config *config = context;
    char memory[FW_JOBS_COMMAND_SIZE + 1];
    struct fw_text line;
    struct fw_reason reason;
    struct admin admin = {.config = config};
    fw_text_init(&line, memory, sizeof memory);
    if (words->count == 0) {
        return fw_cmd_fail(FW_CMD_USAGE, "admin takes a command, such as help");
    }
    if (!line_make(&line, config, words)) {
        return fw_cmd_fail(FW_CMD_USAGE, "a command is one line of at most %d characters",
                           FW_JOBS_COMMAND_SIZE - 1);
    }
    admin.answer = malloc(ANSWER_MAX);
    if (admin.answer == NULL) {
        return fw_cmd_fail(FW_CMD_FAILED, "no memory");
    }
    enum fw_cmd_status status;
    if (fw_reactor_create(&admin.reactor, &reason) != 0) {
        status = fw_cmd_fail(FW_CMD_FAILED, "%s", reason.text);
    } else {
        status = admin_connect_and_ask(&admin, &line);
        fw_reactor_destroy(admin.reactor);
    }
    free(admin.answer);
    return status;
}

static enum fw_cmd_status admin_run(int count, char **arguments)
{
    struct admin_config config;
    const struct fw_option_table table = admin_table(&config);
    return fw_tool_run(&table, count, arguments, admin_with);
}

const struct fw_command fw_cmd_admin = {
    .name = "admin",
    .summary = "ask a running server, or change its settings",
    .usage = "admin [OPTIONS] COMMAND [ARGUMENTS]",
    .about = "Asks a running server that was started with --admin-socket, or changes its\n"
             "settings. 'fairway admin help' lists the commands of that server, among them\n"
             "status, connections, stats, pools, lanes, threads, settings, set and log.",
    .options = admin_options,
    .option_count = FW_ARRAY_LENGTH(admin_options),
    .run = admin_run,
};
