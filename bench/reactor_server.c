/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of bench/bare_loop.c through io/reactor. It uses the reactor as the server will: an idle
 * connection holds no buffer, readiness is asked for and reported, and only then is a session taken
 * and a receive started.
 *
 *            accepted               readable                 answered and sent
 *     ----------------> WAITING ----------------> RECEIVING -------------------> WAITING
 *                                                     |  send under way   ^ sent
 *                                                     `-----> SENDING ----'
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/reason.h"
#include "bench/arguments.h"
#include "bench/responder.h"
#include "io/address.h"
#include "io/reactor.h"
#include "io/socket.h"

enum { BACKLOG = 1024 };

struct connection {
    struct fw_stream stream;
    struct fw_responder_session *session; /* NULL while idle. */
    struct iovec unsent;                  /* The reactor's while a send is under way. */
};

static struct fw_responder responder;
static struct fw_reactor *reactor;

static _Noreturn void die(const char *what)
{
    (void)fprintf(stderr, "reactor_server: %s\n", what);
    exit(EXIT_FAILURE);
}

static struct connection *connection_of(struct fw_stream *stream)
{
    return FW_CONTAINER_OF(stream, struct connection, stream);
}

/* Answers and sends until nothing complete is left, then waits for more. */
static void connection_reply(struct connection *connection)
{
    struct fw_responder_session *session = connection->session;
    size_t size;
    while ((size = fw_responder_answer(&responder, session)) > 0) {
        connection->unsent = (struct iovec){
            .iov_base = session->output + session->output_begin,
            .iov_len = size,
        };
        ssize_t sent = fw_stream_send(&connection->stream, &connection->unsent, 1);
        if (sent == -EINPROGRESS) {
            return; /* connection_sent() goes on. */
        }
        if (sent < 0) {
            fw_stream_close(&connection->stream);
            return;
        }
        session->output_begin += (size_t)sent;
    }
    if (session->closing) {
        fw_stream_close(&connection->stream);
        return;
    }
    if (fw_responder_is_idle(session)) {
        connection->session = NULL;
        fw_responder_give(&responder, session);
    }
    fw_stream_wait(&connection->stream);
}

static void connection_sent(struct fw_stream *stream, ssize_t result)
{
    struct connection *connection = connection_of(stream);
    if (result < 0) {
        fw_stream_close(stream);
        return;
    }
    connection->session->output_begin += (size_t)result;
    connection_reply(connection);
}

static void connection_received(struct fw_stream *stream, ssize_t result)
{
    struct connection *connection = connection_of(stream);
    if (result <= 0) {
        fw_stream_close(stream);
        return;
    }
    connection->session->input_end += (size_t)result;
    connection_reply(connection);
}

static void connection_readable(struct fw_stream *stream)
{
    struct connection *connection = connection_of(stream);
    if (connection->session == NULL) {
        connection->session = fw_responder_take(&responder);
        if (connection->session == NULL) {
            die("no memory for a session");
        }
    }
    size_t size;
    char *place = fw_responder_place(connection->session, &size);
    ssize_t result = fw_stream_receive(stream, place, size);
    if (result != -EINPROGRESS) {
        connection_received(stream, result);
    }
}

static void connection_closed(struct fw_stream *stream)
{
    struct connection *connection = connection_of(stream);
    if (connection->session != NULL) {
        fw_responder_give(&responder, connection->session);
    }
    free(connection);
}

static const struct fw_stream_events stream_events = {
    .readable = connection_readable,
    .received = connection_received,
    .sent = connection_sent,
    .closed = connection_closed,
};

static void listener_accepted(struct fw_listener *listener, int fd)
{
    (void)listener;
    if (fd < 0) {
        die("accept failed");
    }
    struct connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL ||
        fw_stream_open(&connection->stream, reactor, fd, &stream_events) < 0) {
        die("no memory for a connection");
    }
    fw_stream_wait(&connection->stream);
}

int main(int argc, char **argv)
{
    const char *port = "11211";
    const char *backend = "epoll";
    uint64_t items = 1 << 20;
    uint64_t memory_mib = 1024;
    const struct fw_argument table[] = {
        {.name = "port", .help = "on 127.0.0.1", .text = &port},
        {.name = "backend", .help = "epoll or io_uring", .text = &backend},
        {.name = "items", .help = "limit", .number = &items, .min = 1, .max = 1 << 28},
        {.name = "memory", .help = "MiB", .number = &memory_mib, .min = 1, .max = 32 << 10},
    };
    fw_arguments_parse(argc, argv, table, FW_ARRAY_LENGTH(table));
    if (!fw_responder_init(&responder, items, memory_mib << 20)) {
        die("no memory for the table");
    }

    char text[FW_ADDRESS_TEXT_SIZE];
    (void)snprintf(text, sizeof text, "127.0.0.1:%s", port);
    static const struct fw_listener_events listener_events = {.accepted = listener_accepted};
    const struct fw_listener_options options = {.backlog = BACKLOG};
    struct fw_listener listener;
    struct fw_address address;
    struct fw_reason reason;
    if (fw_address_parse(text, 0, 0, &address, 1, &reason) < 0 ||
        fw_reactor_choose(backend, &reason) < 0 || fw_reactor_create(&reactor, &reason) < 0 ||
        fw_listener_open(&listener, reactor, &address, &options, &listener_events, &reason) < 0) {
        die(reason.text);
    }
    for (;;) {
        (void)fw_reactor_poll(reactor, -1);
    }
}
