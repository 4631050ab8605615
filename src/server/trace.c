/* SPDX-License-Identifier: Apache-2.0 */
#include "server/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "base/thread.h"
#include "io/clock.h"
#include "server/server.h"
#include "server/state.h"

#define SLICE_NS (50 * (int64_t)FW_NS_PER_MS) /* How late the server's end may be seen. */

static void text_drop(struct fw_server_trace *trace)
{
    free(trace->text);
    trace->text = NULL;
    trace->length = trace->size = 0;
}

void fw_server_trace_fini(struct fw_server_trace *trace)
{
    text_drop(trace);
}

static int text_append(const char *bytes, size_t length, void *context)
{
    struct fw_server_trace *trace = context;
    if (length > trace->size - trace->length) {
        size_t size = 2 * trace->size + length;
        char *grown = size <= FW_SERVER_TRACE_SIZE_MAX ? realloc(trace->text, size) : NULL;
        if (grown == NULL) {
            return -ENOMEM;
        }
        trace->text = grown;
        trace->size = size;
    }
    memcpy(trace->text + trace->length, bytes, length);
    trace->length += length;
    return 0;
}

/* Waits, but not beyond the server's end. */
static void trace_wait(const struct fw_server *server, int64_t duration_ns)
{
    struct fw_parker parker;
    int64_t deadline_ns = fw_clock_now_ns() + duration_ns;
    int64_t left_ns = duration_ns;
    fw_parker_init(&parker);
    while (left_ns > 0 && fw_server_is_ready(server)) {
        (void)fw_park_for(&parker, left_ns < SLICE_NS ? left_ns : SLICE_NS);
        left_ns = deadline_ns - fw_clock_now_ns();
    }
}

static int trace_take(struct fw_server *server, int64_t duration_ns, struct fw_jobs_output *output)
{
    struct fw_server_trace *trace = &server->trace;
    text_drop(trace);
    int rc = fw_domain_trace(server->domain, true);
    if (rc == 0) {
        trace_wait(server, duration_ns);
        rc = fw_domain_trace(server->domain, false);
    }
    if (rc == 0) {
        rc = fw_domain_trace_write(server->domain, text_append, trace);
    }
    if (rc != 0) {
        text_drop(trace);
        fw_jobs_print(output, "no memory for a trace\n");
        return rc;
    }
    fw_jobs_number(output, "bytes", (int64_t)trace->length);
    return 0;
}

static int trace_read(struct fw_server_trace *trace, const char *text,
                      struct fw_jobs_output *output)
{
    uint64_t offset;
    if (fw_parse_uint(text, strlen(text), 0, SIZE_MAX, &offset) != 0) {
        fw_jobs_print(output, "trace read OFFSET\n");
        return -EINVAL;
    }
    if (offset >= trace->length) {
        text_drop(trace); /* It was read to its end. */
        return 0;
    }
    size_t length = trace->length - offset;
    if (length > FW_SERVER_TRACE_PIECE) {
        length = FW_SERVER_TRACE_PIECE;
    }
    fw_jobs_print(output, "%.*s", (int)length, trace->text + offset);
    return 0;
}

static int trace_run(struct fw_server *server, const char *arguments, struct fw_jobs_output *output)
{
    static const char reads[] = "read ";
    int64_t duration_ns;
    if (strncmp(arguments, reads, sizeof reads - 1) == 0) {
        return trace_read(&server->trace, arguments + sizeof reads - 1, output);
    }
    if (fw_parse_duration(arguments, strlen(arguments), FW_NS_PER_S, &duration_ns) != 0 ||
        duration_ns <= 0 || duration_ns > FW_SERVER_TRACE_S_MAX * (int64_t)FW_NS_PER_S) {
        fw_jobs_print(output, "trace DURATION, up to %ds; or trace read OFFSET\n",
                      FW_SERVER_TRACE_S_MAX);
        return -EINVAL;
    }
    return trace_take(server, duration_ns, output);
}

int fw_server_trace_command(void *context, struct fw_jobs *jobs, const char *arguments,
                            struct fw_jobs_output *output)
{
    (void)jobs;
    struct fw_server *server = context;
    struct fw_server_trace *trace = &server->trace;
    if (atomic_load(&trace->is_always)) {
        fw_jobs_print(output, "this server traces to its --trace-file\n");
        return -EBUSY;
    }
    if (atomic_exchange(&trace->is_busy, true)) {
        fw_jobs_print(output, "a trace is being taken; try again later\n");
        return -EBUSY;
    }
    int rc = trace_run(server, arguments, output);
    atomic_store(&trace->is_busy, false);
    return rc;
}
