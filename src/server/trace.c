/* SPDX-License-Identifier: Apache-2.0 */
#include "server/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/parse.h"
#include "base/thread.h"
#include "engine/trace.h"
#include "io/clock.h"
#include "server/server.h"
#include "server/state.h"

enum { JOBS_PROCESS_ID = 2 }; /* In the file; 1 is the engine. */

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

/* The job kernel as a process of its own beside the engine, with a track for each thread. */
struct jobs_writer {
    struct fw_trace_more more;
    struct fw_jobs *jobs;
    struct fw_json *json;
    int64_t epoch_ns;
};

static void json_text(struct fw_json *json, const char *key, const char *text)
{
    fw_json_key(json, key);
    fw_json_string(json, text);
}

static void json_number(struct fw_json *json, const char *key, uint64_t number)
{
    fw_json_key(json, key);
    fw_json_unsigned(json, number);
}

static void jobs_event(const struct fw_jobs_event *event, void *context)
{
    const struct jobs_writer *writer = context;
    struct fw_json *json = writer->json;
    int64_t since_ns = event->time_ns - writer->epoch_ns;
    if (since_ns < 0 && (event->lane != 0 || !event->is_begin)) {
        return; /* It was over, or nearly, when the trace began; services go on. */
    }
    char name[64];
    (void)snprintf(name, sizeof name, "lane %u: %s", event->lane, event->name);
    fw_json_object_begin(json);
    json_text(json, "ph", event->is_begin ? "B" : "E");
    json_text(json, "cat", "job");
    json_text(json, "name", name);
    json_number(json, "pid", JOBS_PROCESS_ID);
    json_number(json, "tid", (uint64_t)event->thread);
    fw_json_key(json, "ts");
    fw_json_double(json, since_ns > 0 ? (double)since_ns / 1000 : 0);
    fw_json_key(json, "args");
    fw_json_object_begin(json);
    json_number(json, "lane", event->lane);
    fw_json_object_end(json);
    fw_json_object_end(json);
}

static void jobs_write(struct fw_trace_more *more, struct fw_json *json, int64_t epoch_ns)
{
    struct jobs_writer *writer = FW_CONTAINER_OF(more, struct jobs_writer, more);
    writer->json = json;
    writer->epoch_ns = epoch_ns;
    fw_json_object_begin(json);
    json_text(json, "ph", "M");
    json_text(json, "name", "process_name");
    json_number(json, "pid", JOBS_PROCESS_ID);
    fw_json_key(json, "args");
    fw_json_object_begin(json);
    json_text(json, "name", "job kernel");
    fw_json_object_end(json);
    fw_json_object_end(json);
    fw_jobs_trace_visit(writer->jobs, jobs_event, writer);
}

int fw_server_trace_write(struct fw_server *server,
                          int (*sink)(const char *bytes, size_t length, void *context),
                          void *context)
{
    struct jobs_writer writer = {.more = {.write = jobs_write}, .jobs = server->jobs};
    return fw_domain_trace_write_more(server->domain, &writer.more, sink, context);
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
        rc = fw_server_trace_write(server, text_append, trace);
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
