/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/ask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "io/address.h"
#include "io/clock.h"
#include "io/reactor.h"

enum { PORT = 11211, ANSWER_FIRST = 16 * 1024 };

struct asking {
    struct fw_stream stream;
    struct fw_reactor *reactor;
    struct iovec words;
    const char *last;
    char *answer;
    size_t length;
    size_t size;
    int64_t deadline_ns;
    int64_t patience_ns;
    int result; /* -EINPROGRESS until it is over. */
    bool is_closed;
};

static struct asking *asking_of(struct fw_stream *stream)
{
    return FW_CONTAINER_OF(stream, struct asking, stream);
}

/* The last line that has come whole, or NULL. */
static const char *line_last(const struct asking *asking)
{
    if (asking->length < 2 || asking->answer[asking->length - 1] != '\n') {
        return NULL;
    }
    const char *before = memrchr(asking->answer, '\n', asking->length - 1);
    return before != NULL ? before + 1 : asking->answer;
}

static bool begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* The answer has grown: is it complete? */
static void answer_look(struct asking *asking)
{
    asking->answer[asking->length] = '\0';
    const char *line = line_last(asking);
    if (line != NULL && begins_with(line, asking->last)) {
        asking->result = 0;
    } else if (line != NULL && (begins_with(line, "ERROR") || begins_with(line, "CLIENT_ERROR") ||
                                begins_with(line, "SERVER_ERROR"))) {
        asking->result = -EPROTO;
    }
}

/* Room for more and for a final zero. */
static bool answer_grow(struct asking *asking)
{
    if (asking->length + 1 < asking->size) {
        return true;
    }
    size_t size = asking->size == 0 ? ANSWER_FIRST : 2 * asking->size;
    char *grown = size <= FW_ASK_ANSWER_MAX ? realloc(asking->answer, size) : NULL;
    if (grown != NULL) {
        asking->answer = grown;
        asking->size = size;
    }
    return grown != NULL;
}

static void asking_receive(struct asking *asking);

static void asking_received(struct fw_stream *stream, ssize_t result)
{
    struct asking *asking = asking_of(stream);
    if (result <= 0) {
        asking->result = result == 0 ? -ECONNRESET : (int)result;
        return;
    }
    asking->length += (size_t)result;
    asking->deadline_ns = fw_clock_now_ns() + asking->patience_ns;
    answer_look(asking);
}

static void asking_receive(struct asking *asking)
{
    ssize_t received = 0;
    while (asking->result == -EINPROGRESS && received != -EINPROGRESS) {
        if (!answer_grow(asking)) {
            asking->result = -ENOMEM;
            return;
        }
        received = fw_stream_receive_now(&asking->stream, asking->answer + asking->length,
                                         asking->size - asking->length - 1);
        if (received == -EAGAIN) {
            fw_stream_wait(&asking->stream);
            return;
        }
        asking_received(&asking->stream, received);
    }
}

static void asking_readable(struct fw_stream *stream)
{
    asking_receive(asking_of(stream));
}

/* A question is short, and the socket empty: it is taken whole. */
static void asking_connected(struct fw_stream *stream, int result)
{
    struct asking *asking = asking_of(stream);
    if (result != 0) {
        asking->result = result;
        return;
    }
    ssize_t sent = fw_stream_send_now(stream, &asking->words, 1);
    if (sent != (ssize_t)asking->words.iov_len) {
        asking->result = sent < 0 ? (int)sent : -EIO;
        return;
    }
    asking_receive(asking);
}

static void asking_closed(struct fw_stream *stream)
{
    asking_of(stream)->is_closed = true;
}

static const struct fw_stream_events asking_events = {
    .readable = asking_readable,
    .received = asking_received,
    .connected = asking_connected,
    .closed = asking_closed,
};

static int asking_run(struct asking *asking, const struct fw_address *address)
{
    int rc = fw_stream_connect(&asking->stream, asking->reactor, address, &asking_events);
    if (rc != 0 && rc != -EINPROGRESS) {
        return rc;
    }
    if (rc == 0) {
        asking_connected(&asking->stream, 0);
    }
    while (asking->result == -EINPROGRESS) {
        int64_t left = asking->deadline_ns - fw_clock_now_ns();
        if (left <= 0) {
            asking->result = -ETIMEDOUT;
            break;
        }
        (void)fw_reactor_poll(asking->reactor, left);
    }
    fw_stream_close(&asking->stream);
    while (!asking->is_closed) {
        (void)fw_reactor_poll(asking->reactor, -1);
    }
    return asking->result;
}

/* Without the end of the line. */
static int answer_refused(const struct asking *asking, struct fw_reason *reason)
{
    const char *line = line_last(asking);
    return fw_reason_set(reason, -EPROTO, "the server answers: %.*s", (int)strcspn(line, "\r\n"),
                         line);
}

int fw_ask(const char *server, const char *question, const char *last, int64_t patience_ns,
           char **answer, struct fw_reason *reason)
{
    struct fw_address address;
    size_t length = strlen(question);
    char *words = strdup(question);
    struct asking asking = {.words = {.iov_base = words, .iov_len = length},
                            .last = last,
                            .deadline_ns = fw_clock_now_ns() + patience_ns,
                            .patience_ns = patience_ns,
                            .result = -EINPROGRESS};
    int rc = words != NULL ? 0 : fw_reason_errno(reason, -ENOMEM, "cannot ask");
    if (rc == 0 && fw_address_parse(server, PORT, FW_ADDRESS_RESOLVE, &address, 1, reason) < 0) {
        rc = -EINVAL;
    }
    if (rc == 0) {
        rc = fw_reactor_create(&asking.reactor, reason);
    }
    if (rc == 0) {
        rc = asking_run(&asking, &address);
        fw_reactor_destroy(asking.reactor);
        if (rc == -EPROTO) {
            (void)answer_refused(&asking, reason);
        } else if (rc != 0) {
            (void)fw_reason_errno(reason, rc, "cannot ask the server at %s", server);
        }
    }
    free(words);
    if (rc != 0) {
        free(asking.answer);
        return rc;
    }
    *answer = asking.answer;
    return 0;
}
