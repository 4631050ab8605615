/* SPDX-License-Identifier: Apache-2.0 */
#include "server/connection.h"

#include <errno.h>
#include <stdalign.h>
#include <string.h>

#include "base/assert.h"
#include "io/clock.h"

enum { NS_PER_S = 1000000000 };

static void connection_readable(struct fw_stream *stream);
static void connection_received(struct fw_stream *stream, ssize_t result);
static void connection_sent(struct fw_stream *stream, ssize_t result);
static void connection_closed(struct fw_stream *stream);

static const struct fw_stream_events connection_events = {
    .readable = connection_readable,
    .received = connection_received,
    .sent = connection_sent,
    .closed = connection_closed,
};

static struct fw_connection *connection_of(struct fw_stream *stream)
{
    return FW_CONTAINER_OF(stream, struct fw_connection, stream);
}

int fw_connections_init(struct fw_connections *connections, uint32_t limit)
{
    fw_list_init(&connections->open);
    int rc = fw_pool_init(&connections->pool, sizeof(struct fw_connection),
                          alignof(struct fw_connection), 0, limit);
    if (rc != 0) {
        return rc;
    }
    rc = fw_pool_init(&connections->buffers_pool, sizeof(struct fw_connection_buffers),
                      FW_CACHE_LINE, 0, limit);
    if (rc != 0) {
        fw_pool_fini(&connections->pool);
    }
    return rc;
}

void fw_connections_fini(struct fw_connections *connections)
{
    FW_ASSERT(fw_list_is_empty(&connections->open));
    fw_pool_fini(&connections->buffers_pool);
    fw_pool_fini(&connections->pool);
}

int fw_connection_open(struct fw_connections *connections, int fd)
{
    struct fw_connection *connection = fw_pool_alloc(&connections->pool);
    if (connection == NULL) {
        return -EMFILE;
    }
    memset(connection, 0, sizeof *connection);
    int rc = fw_stream_open(&connection->stream, connections->reactor, fd, &connection_events);
    if (rc != 0) {
        fw_pool_free(&connections->pool, connection);
        return rc;
    }
    connection->connections = connections;
    fw_old_session_init(&connection->session, connections->store, connections->item_size_max);
    fw_list_push_back(&connections->open, &connection->link);
    fw_stream_wait(&connection->stream);
    return 0;
}

static void connection_close(struct fw_connection *connection)
{
    fw_list_remove(&connection->link);
    fw_old_session_fini(&connection->session);
    fw_stream_close(&connection->stream);
}

void fw_connections_close(struct fw_connections *connections)
{
    while (!fw_list_is_empty(&connections->open)) {
        connection_close(
            FW_LIST_ENTRY(fw_list_first(&connections->open), struct fw_connection, link));
    }
}

static void connection_buffers_release(struct fw_connection *connection)
{
    fw_pool_free(&connection->connections->buffers_pool, connection->buffers);
    connection->buffers = NULL;
}

static void connection_closed(struct fw_stream *stream)
{
    struct fw_connection *connection = connection_of(stream);
    struct fw_connections *connections = connection->connections;
    if (connection->buffers != NULL) {
        connection_buffers_release(connection);
    }
    fw_pool_free(&connections->pool, connection);
    connections->closed(connections);
}

/* Lets the session answer what has arrived, as far as one output buffer goes. */
static void connection_answer(struct fw_connection *connection)
{
    struct fw_connection_buffers *buffers = connection->buffers;
    struct fw_old_session_step step =
        fw_old_session_run(&connection->session, buffers->input, connection->input_length,
                       buffers->output, sizeof buffers->output, fw_clock_wall_ns() / NS_PER_S);
    connection->input_length -= (uint32_t)step.consumed;
    if (connection->input_length > 0 && step.consumed > 0) {
        memmove(buffers->input, buffers->input + step.consumed, connection->input_length);
    }
    connection->unsent = (struct iovec){.iov_base = buffers->output, .iov_len = step.produced};
    connection->more = step.more;
}

/* Takes note of what a send did. False: the connection is broken. */
static bool connection_note_sent(struct fw_connection *connection, ssize_t result)
{
    if (result <= 0) {
        return false;
    }
    FW_ASSERT((size_t)result <= connection->unsent.iov_len);
    connection->unsent.iov_base = (char *)connection->unsent.iov_base + result;
    connection->unsent.iov_len -= (size_t)result;
    return true;
}

/* Answers and sends in turn until the input is used up, the socket is full, or all is over. */
static void connection_go_on(struct fw_connection *connection)
{
    for (;;) {
        while (connection->unsent.iov_len > 0) {
            ssize_t result = fw_stream_send(&connection->stream, &connection->unsent, 1);
            if (result == -EINPROGRESS) {
                return; /* connection_sent() follows. */
            }
            if (!connection_note_sent(connection, result)) {
                connection_close(connection);
                return;
            }
        }
        if (!connection->more) {
            break;
        }
        connection_answer(connection);
    }
    if (connection->session.state == FW_OLD_SESSION_CLOSED) {
        connection_close(connection);
        return;
    }
    if (connection->input_length == 0) {
        connection_buffers_release(connection);
    }
    fw_stream_wait(&connection->stream);
}

static void connection_readable(struct fw_stream *stream)
{
    struct fw_connection *connection = connection_of(stream);
    if (connection->buffers == NULL) {
        connection->buffers = fw_pool_alloc(&connection->connections->buffers_pool);
        if (connection->buffers == NULL) {
            connection_close(connection); /* Out of memory; the client may try again. */
            return;
        }
    }
    ssize_t result =
        fw_stream_receive(stream, connection->buffers->input + connection->input_length,
                          sizeof connection->buffers->input - connection->input_length);
    if (result != -EINPROGRESS) {
        connection_received(stream, result);
    }
}

static void connection_received(struct fw_stream *stream, ssize_t result)
{
    struct fw_connection *connection = connection_of(stream);
    if (result <= 0) {
        connection_close(connection);
        return;
    }
    connection->input_length += (uint32_t)result;
    connection_answer(connection);
    connection_go_on(connection);
}

static void connection_sent(struct fw_stream *stream, ssize_t result)
{
    struct fw_connection *connection = connection_of(stream);
    if (!connection_note_sent(connection, result)) {
        connection_close(connection);
        return;
    }
    connection_go_on(connection);
}
