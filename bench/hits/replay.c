/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/hits/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bench/client.h"

enum {
    BATCH_MAX = 32,
    VALUE_MAX = 1 << 20,
    OUTPUT_SIZE = BATCH_MAX * (VALUE_MAX + 128) + 4096,
    INPUT_SIZE = 1 << 20,
    NS_PER_S = 1000000000,
};

struct replay {
    const struct fw_trace *trace;
    int fd;
    char *output;
    size_t output_size;
    char *input; /* A window over what the server sends. */
    size_t input_begin, input_end;
    uint32_t *batch_of; /* By object: the last batch it was in. */
    uint32_t batch;
    uint32_t asked[BATCH_MAX];
    bool found[BATCH_MAX];
    size_t asked_count;
};

static _Noreturn void fail(const char *what)
{
    (void)fprintf(stderr, "hits: %s%s%s\n", what, errno != 0 ? ": " : "",
                  errno != 0 ? strerrordesc_np(errno) : "");
    exit(EXIT_FAILURE);
}

static void send_output(struct replay *replay)
{
    for (size_t sent = 0; sent < replay->output_size;) {
        ssize_t result =
            send(replay->fd, replay->output + sent, replay->output_size - sent, MSG_NOSIGNAL);
        if (result <= 0) {
            fail("send");
        }
        sent += (size_t)result;
    }
    replay->output_size = 0;
}

static void receive_more(struct replay *replay)
{
    if (replay->input_begin > 0) {
        memmove(replay->input, replay->input + replay->input_begin,
                replay->input_end - replay->input_begin);
        replay->input_end -= replay->input_begin;
        replay->input_begin = 0;
    }
    errno = 0;
    ssize_t result =
        recv(replay->fd, replay->input + replay->input_end, INPUT_SIZE - replay->input_end, 0);
    if (result <= 0) {
        fail("the server ended the connection");
    }
    replay->input_end += (size_t)result;
}

/* The next line, whole and ended with a zero; its bytes are gone with the next call. */
static char *receive_line(struct replay *replay)
{
    char *end;
    while ((end = memchr(replay->input + replay->input_begin, '\n',
                         replay->input_end - replay->input_begin)) == NULL) {
        receive_more(replay);
    }
    char *line = replay->input + replay->input_begin;
    *end = '\0';
    replay->input_begin = (size_t)(end + 1 - replay->input);
    return line;
}

static void receive_skip(struct replay *replay, size_t count)
{
    while (replay->input_end - replay->input_begin < count) {
        count -= replay->input_end - replay->input_begin;
        replay->input_begin = replay->input_end;
        receive_more(replay);
    }
    replay->input_begin += count;
}

/* Appends at most 64 bytes of text. */
__attribute__((format(printf, 2, 3))) static void compose(struct replay *replay, const char *format,
                                                          ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(replay->output + replay->output_size, 64, format, arguments);
    va_end(arguments);
    replay->output_size += (size_t)length;
}

static void compose_set(struct replay *replay, uint32_t object)
{
    const struct fw_trace_object *what = &replay->trace->objects[object];
    compose(replay, "set %020" PRIu32 " 0 %u %u noreply\r\n", object, what->lifetime,
            what->value_size);
    memset(replay->output + replay->output_size, 'v', what->value_size);
    replay->output_size += what->value_size;
    compose(replay, "\r\n");
}

/* Takes requests from number `next` on into a batch; returns how many. */
static size_t compose_batch(struct replay *replay, size_t next)
{
    const struct fw_trace *trace = replay->trace;
    replay->batch++;
    replay->asked_count = 0;
    for (size_t i = next; i < trace->request_count && replay->asked_count < BATCH_MAX; i++) {
        uint32_t object = trace->requests[i];
        if (replay->batch_of[object] == replay->batch) {
            break;
        }
        replay->batch_of[object] = replay->batch;
        compose(replay, "%s%020" PRIu32, replay->asked_count == 0 ? "get " : " ", object);
        replay->found[replay->asked_count] = false;
        replay->asked[replay->asked_count++] = object;
    }
    compose(replay, "\r\n");
    return replay->asked_count;
}

static void receive_batch(struct replay *replay)
{
    size_t at = 0;
    for (;;) {
        char *line = receive_line(replay);
        if (strncmp(line, "END", 3) == 0) {
            return;
        }
        uint32_t object;
        uint32_t size;
        if (sscanf(line, "VALUE %" SCNu32 " 0 %" SCNu32, &object, &size) != 2) {
            errno = 0;
            fail(line);
        }
        while (at < replay->asked_count && replay->asked[at] != object) {
            at++;
        }
        if (at == replay->asked_count || size != replay->trace->objects[object].value_size) {
            errno = 0;
            fail("the server sent what was not asked for");
        }
        replay->found[at] = true;
        receive_skip(replay, (size_t)size + 2);
    }
}

static void wait_for_rate(const struct fw_trace *trace, size_t next, const struct timespec *begin)
{
    if (trace->rate == 0) {
        return;
    }
    uint64_t due = (uint64_t)next * NS_PER_S / trace->rate;
    struct timespec until = {.tv_sec = begin->tv_sec + (time_t)(due / NS_PER_S),
                             .tv_nsec = begin->tv_nsec + (long)(due % NS_PER_S)};
    if (until.tv_nsec >= NS_PER_S) {
        until.tv_sec++;
        until.tv_nsec -= NS_PER_S;
    }
    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

uint64_t fw_replay(const struct fw_trace *trace, const char *host, const char *port,
                   size_t counted_from)
{
    struct replay replay = {.trace = trace, .fd = fw_client_connect(host, port)};
    replay.output = malloc(OUTPUT_SIZE);
    replay.input = malloc(INPUT_SIZE);
    replay.batch_of = calloc(trace->object_count, sizeof *replay.batch_of);
    if (replay.output == NULL || replay.input == NULL || replay.batch_of == NULL) {
        fail("memory");
    }
    struct timespec begin;
    (void)clock_gettime(CLOCK_MONOTONIC, &begin);
    uint64_t hits = 0;
    for (size_t next = 0; next < trace->request_count;) {
        wait_for_rate(trace, next, &begin);
        size_t count = compose_batch(&replay, next);
        send_output(&replay);
        receive_batch(&replay);
        for (size_t i = 0; i < count; i++) {
            hits += replay.found[i] && next + i >= counted_from;
            if (!replay.found[i]) {
                compose_set(&replay, replay.asked[i]);
            }
        }
        next += count;
    }
    (void)close(replay.fd);
    free(replay.output);
    free(replay.input);
    free(replay.batch_of);
    return hits;
}
