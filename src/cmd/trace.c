/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway trace FILE: what every core and every connection of a running server does for a while,
 * for ui.perfetto.dev.
 *
 * server/trace.h takes the trace, by one command of the administration socket, and hands it out in
 * pieces by others; server/admin.h says what is spoken there.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "base/parse.h"
#include "base/reason.h"
#include "cmd/peer.h"
#include "cmd/tool.h"
#include "io/address.h"
#include "io/clock.h"
#include "io/file_stream.h"

enum { QUESTION_SIZE = 64, ANSWER_MAX = 1 << 20, MODE = 0600, BYTES_PER_KIB = 1024 };

struct trace_config {
    const char *socket;
    int64_t duration_ns;
    int64_t patience_ns;
};

static const struct fw_option trace_options[] = {
    FW_OPTION_STRING(struct trace_config, socket, .name = "socket", .value_name = "PATH",
                     .default_text = "/run/fairway/admin.sock",
                     .help = "the --admin-socket of the server"),
    FW_OPTION_DURATION(struct trace_config, duration_ns, .name = "duration", .default_text = "5s",
                       .unit = "s", .min = FW_NS_PER_MS, .max = 60 * (int64_t)FW_NS_PER_S,
                       .help = "how long to trace; the last of it is kept"),
    FW_OPTION_DURATION(struct trace_config, patience_ns, .name = "timeout", .default_text = "10s",
                       .unit = "s", .min = FW_NS_PER_MS,
                       .help = "how long the server may take for each step besides"),
};

/* ---- the administration socket ------------------------------------------------------------- */

/*
 * Asks one line. *answer is lent, of *length bytes, until the next call. Returns 0, or a negative
 * errno with the reason: -EREMOTEIO is an error that the server told.
 */
static int ask(struct fw_peer *peer, const char *question, const char **answer, size_t *length,
               struct fw_reason *reason)
{
    size_t line_length, used;
    uint64_t size = 0;
    int rc = 0;
    fw_peer_take(peer, fw_peer_input_length(peer)); /* The answer before. */
    rc = fw_peer_send(peer, question, strlen(question), reason);
    const char *line = rc == 0 ? fw_peer_line(peer, &line_length, &used, &rc, reason) : NULL;
    if (line == NULL) {
        return rc;
    }
    const char *number = memrchr(line, ' ', line_length);
    bool is_ok = line_length > 3 && memcmp(line, "OK ", 3) == 0;
    bool is_error = line_length > 6 && memcmp(line, "ERROR ", 6) == 0;
    if ((!is_ok && !is_error) || number == NULL ||
        fw_parse_uint(number + 1, (size_t)(line + line_length - number - 1), 0, ANSWER_MAX,
                      &size) != 0) {
        return fw_reason_set(reason, -EPROTO, "this is not the administration socket of a fairway");
    }
    fw_peer_take(peer, used);
    rc = fw_peer_need(peer, size, reason);
    *answer = fw_peer_input(peer);
    *length = size;
    if (rc == 0 && is_error) {
        rc = fw_reason_set(reason, -EREMOTEIO, "%.*s", (int)strcspn(*answer, "\n"), *answer);
    }
    return rc;
}

/* ---- the command --------------------------------------------------------------------------- */

/* Reads what the server has kept, to its end. */
static int trace_fetch(struct fw_peer *peer, struct fw_file_writer *file, uint64_t *size,
                       struct fw_reason *reason)
{
    const char *answer = NULL;
    size_t length = 0;
    *size = 0;
    for (;;) {
        char question[QUESTION_SIZE];
        (void)snprintf(question, sizeof question, "trace read %" PRIu64 "\n", *size);
        int rc = ask(peer, question, &answer, &length, reason);
        if (rc != 0 || length == 0) {
            return rc;
        }
        rc = fw_file_writer_write(file, answer, length, reason);
        if (rc != 0) {
            return rc;
        }
        *size += length;
    }
}

static int trace_to(struct fw_peer *peer, const struct trace_config *config, const char *path,
                    uint64_t *size, struct fw_reason *reason)
{
    struct fw_file_writer file;
    char question[QUESTION_SIZE];
    const char *answer = NULL;
    size_t length = 0;
    /* First, so that nobody waits for a trace that cannot be written. */
    int rc = fw_file_writer_open(&file, strcmp(path, "-") == 0 ? NULL : path, MODE, reason);
    if (rc != 0) {
        return rc;
    }
    (void)snprintf(question, sizeof question, "trace %" PRId64 "ns\n", config->duration_ns);
    rc = ask(peer, question, &answer, &length, reason);
    if (rc == 0) {
        rc = trace_fetch(peer, &file, size, reason);
    }
    if (rc != 0) {
        fw_file_writer_abandon(&file);
        return rc;
    }
    return fw_file_writer_commit(&file, reason);
}

static enum fw_cmd_status trace_with(void *context, const struct fw_option_list *words)
{
    static const atomic_bool never = false;
    const struct trace_config *config = context;
    char text[FW_ADDRESS_TEXT_SIZE];
    struct fw_address address;
    struct fw_reason reason;
    struct fw_peer peer;
    uint64_t size = 0;
    if (words->count != 1) {
        return fw_cmd_fail(FW_CMD_USAGE, "trace takes one file; see 'fairway help trace'");
    }
    const char *prefix = strncmp(config->socket, "unix:", 5) == 0 ? "" : "unix:";
    if (snprintf(text, sizeof text, "%s%s", prefix, config->socket) >= (int)sizeof text ||
        fw_address_parse(text, 0, 0, &address, 1, &reason) < 0) {
        return fw_cmd_fail(FW_CMD_USAGE, "--socket: '%.64s' is no path of a socket",
                           config->socket);
    }
    int64_t patience_ns = config->patience_ns + config->duration_ns;
    int rc = fw_peer_open(&peer, &address, patience_ns, &never, &reason);
    if (rc == 0) {
        rc = trace_to(&peer, config, words->items[0], &size, &reason);
        fw_peer_close(&peer);
    }
    if (rc != 0) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s", reason.text);
    }
    (void)fprintf(stderr, "%" PRIu64 " KiB; open it at https://ui.perfetto.dev\n",
                  size / BYTES_PER_KIB);
    return FW_CMD_OK;
}

static enum fw_cmd_status trace_run(int count, char **arguments)
{
    struct trace_config config;
    const struct fw_option_table table = {.module = "trace",
                                          .options = trace_options,
                                          .count = FW_ARRAY_LENGTH(trace_options),
                                          .config = &config};
    return fw_tool_run(&table, count, arguments, trace_with);
}

const struct fw_command fw_cmd_trace = {
    .name = "trace",
    .summary = "trace what a running server does, for Perfetto",
    .usage = "trace [OPTIONS] FILE",
    .about = "Writes to FILE, or to standard output for -, what every core and connection of\n"
             "a running server did for some seconds: each step, what it waited for, and who\n"
             "woke it. The server was started with --admin-socket, and goes on meanwhile. Of\n"
             "each core the last 16,384 records are kept. FILE is JSON for\n"
             "https://ui.perfetto.dev, or chrome://tracing.",
    .options = trace_options,
    .option_count = FW_ARRAY_LENGTH(trace_options),
    .run = trace_run,
};
