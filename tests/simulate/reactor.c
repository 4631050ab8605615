/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor's back end over the simulated network.
 *
 * It is the third beside epoll and io_uring, and gives both kinds of answers: an operation that
 * could be answered at once is answered later whenever the weather says so, and a closed source may
 * be let go of late, as a kernel with requests under way would.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/list.h"
#include "io/reactor_backend.h"
#include "simulate/network.h"
#include "simulate/sim.h"

struct sim_reactor {
    struct fw_reactor reactor;
    struct sim_fibre *waiter; /* Who is inside wait(). */
    bool kicked;
    struct fw_list events; /* Of sockets that may be ready for something. */
};

static struct sim_reactor *reactor_of(struct fw_reactor *reactor)
{
    return FW_CONTAINER_OF(reactor, struct sim_reactor, reactor);
}

static void reactor_rouse(struct sim_reactor *sim)
{
    if (sim->waiter != NULL) {
        sim_wake(sim->waiter);
    }
}

static int backend_create(struct fw_reactor **reactor, struct fw_reason *reason)
{
    (void)reason;
    struct sim_reactor *sim = aligned_alloc(FW_CACHE_LINE, sizeof *sim);
    FW_ASSERT(sim != NULL);
    memset(sim, 0, sizeof *sim);
    fw_list_init(&sim->events);
    *reactor = &sim->reactor;
    return 0;
}

static void backend_destroy(struct fw_reactor *reactor)
{
    FW_ASSERT(fw_list_is_empty(&reactor_of(reactor)->events));
    free(reactor_of(reactor));
}

static void backend_wait(struct fw_reactor *reactor, int64_t timeout_ns)
{
    struct sim_reactor *sim = reactor_of(reactor);
    if (timeout_ns != 0 && fw_list_is_empty(&sim->events) && !sim->kicked) {
        sim->waiter = sim_self();
        (void)sim_block("poll", timeout_ns < 0 ? SIM_NEVER : sim_now() + timeout_ns);
        sim->waiter = NULL;
    }
    sim->kicked = false;
}

static void backend_kick(struct fw_reactor *reactor)
{
    reactor_of(reactor)->kicked = true;
    reactor_rouse(reactor_of(reactor));
}

/* ---- sockets and their sources ---- */

static struct sim_socket *socket_of(const struct fw_source *source)
{
    return sim_socket_get(source->fd);
}

static void socket_changed(struct sim_socket *socket)
{
    struct fw_source *source = socket->owner;
    struct sim_reactor *sim = reactor_of(source->reactor);
    if (!fw_list_is_linked(&socket->event_link)) {
        fw_list_push_back(&sim->events, &socket->event_link);
    }
    reactor_rouse(sim);
}

static void socket_attach(struct sim_socket *socket, struct fw_source *source)
{
    source->fd = socket->fd;
    socket->owner = source;
    socket->changed = socket_changed;
}

static void later(void *context, uint64_t number)
{
    (void)number;
    struct sim_socket *socket = context;
    if (!socket->closed && socket->changed != NULL) {
        socket_changed(socket);
    }
}

/*
 * Whether the weather wants this answer by call-back, or if there is none, not now. What was put
 * off once is not put off again: who asks anew when told to would otherwise never get on.
 */
static bool put_off(struct sim_socket *socket)
{
    if (socket->was_put_off) {
        socket->was_put_off = false;
        return false;
    }
    if (sim_weather.later_one_in == 0 || !sim_chance(sim_weather.later_one_in)) {
        return false;
    }
    sim_at(sim_now() + sim_between(0, 100) * SIM_US, later, socket, 0);
    socket->was_put_off = true;
    return true;
}

static void note_readable(struct fw_source *source, const struct sim_socket *socket)
{
    if (sim_socket_readable(socket)) {
        fw_source_set(source, FW_SOURCE_READY);
    } else {
        fw_source_clear(source, FW_SOURCE_READY);
    }
}

/* ---- listeners ---- */

static int backend_listener_open(struct fw_listener *listener, const struct fw_address *address,
                                 const struct fw_listener_options *options,
                                 struct fw_reason *reason)
{
    (void)options;
    struct sim_socket *socket = sim_socket_listen(address);
    if (socket == NULL) {
        return fw_reason_errno(reason, -EADDRINUSE, "cannot listen");
    }
    socket_attach(socket, &listener->source);
    listener->address = socket->address;
    return 0;
}

static int backend_accept(struct fw_listener *listener)
{
    struct fw_source *source = &listener->source;
    struct sim_socket *socket = socket_of(source);
    int count = 0;
    while (count < FW_ACCEPT_ROUND && !fw_source_has(source, FW_SOURCE_PAUSED | FW_SOURCE_CLOSED)) {
        struct sim_socket *accepted = sim_socket_accept(socket);
        if (accepted == NULL) {
            fw_source_clear(source, FW_SOURCE_READY);
            return count;
        }
        listener->events->accepted(listener, accepted->fd);
        count++;
    }
    if (!fw_source_has(source, FW_SOURCE_PAUSED | FW_SOURCE_CLOSED)) {
        fw_listener_remember(listener);
    }
    return count;
}

/* ---- streams ---- */

static int backend_stream_open(struct fw_stream *stream, int fd)
{
    struct sim_socket *socket = sim_socket_get(fd);
    socket_attach(socket, &stream->source);
    note_readable(&stream->source, socket);
    return 0;
}

static int backend_connect(struct fw_stream *stream, const struct fw_address *address)
{
    socket_attach(sim_socket_connect(address), &stream->source);
    fw_source_set(&stream->source, FW_SOURCE_CONNECTING);
    return -EINPROGRESS;
}

static ssize_t backend_receive(struct fw_stream *stream, void *buffer, size_t size)
{
    struct fw_source *source = &stream->source;
    struct sim_socket *socket = socket_of(source);
    ssize_t result = put_off(socket) ? -EAGAIN : sim_socket_receive(socket, buffer, size);
    if (result != -EAGAIN) {
        note_readable(source, socket);
        return result;
    }
    fw_source_clear(source, FW_SOURCE_READY);
    return -EINPROGRESS;
}

static ssize_t backend_send_now(struct fw_stream *stream, const struct iovec *vector, int count)
{
    struct sim_socket *socket = socket_of(&stream->source);
    return put_off(socket) ? -EAGAIN : sim_socket_send(socket, vector, count);
}

static ssize_t backend_send(struct fw_stream *stream, const struct iovec *vector, int count)
{
    ssize_t result = backend_send_now(stream, vector, count);
    return result != -EAGAIN ? result : -EINPROGRESS;
}

static void backend_shutdown(struct fw_stream *stream)
{
    sim_socket_shutdown(socket_of(&stream->source));
}

static void backend_take(struct fw_stream *stream)
{
    struct sim_socket *socket = socket_of(&stream->source);
    if (fw_list_is_linked(&socket->event_link)) {
        fw_list_remove(&socket->event_link);
    }
    socket->owner = NULL;
    socket->changed = NULL;
}

static int backend_peer(int fd, struct fw_address *peer)
{
    const struct sim_socket *socket = sim_socket_get(fd);
    if (socket->peer == NULL) {
        return -ENOTCONN;
    }
    /* A client has no address of its own here: its node and its descriptor tell it apart. */
    *peer = (struct fw_address){.length = sizeof peer->ipv4};
    peer->ipv4.sin_family = AF_INET;
    peer->ipv4.sin_addr.s_addr = htonl((10U << 24) + socket->peer->node);
    peer->ipv4.sin_port = htons((uint16_t)socket->peer->fd);
    return 0;
}

/* A socket keeps little by itself. */
static void backend_hold_back(struct fw_stream *stream, uint32_t size)
{
    (void)stream;
    (void)size;
}

static int backend_watch_open(struct fw_watch *watch, int fd)
{
    socket_attach(sim_socket_get(fd), &watch->source);
    socket_changed(sim_socket_get(fd)); /* It may have been signalled before. */
    return 0;
}

static void backend_refuse(int fd, const struct iovec *words)
{
    struct sim_socket *socket = sim_socket_get(fd);
    (void)sim_socket_send(socket, words, 1);
    sim_socket_close(socket);
}

/* ---- closing ---- */

static void release(void *context, uint64_t number)
{
    (void)number;
    struct fw_source *source = context;
    fw_source_release(source);
    backend_kick(source->reactor);
}

static void backend_close(struct fw_source *source)
{
    struct sim_socket *socket = socket_of(source);
    if (fw_list_is_linked(&socket->event_link)) {
        fw_list_remove(&socket->event_link);
    }
    if (source->kind == FW_SOURCE_WATCH) {
        socket->changed = NULL; /* The descriptor stays its owner's. */
    } else {
        sim_socket_close(socket);
    }
    if (sim_weather.later_one_in != 0 && sim_chance(sim_weather.later_one_in)) {
        sim_at(sim_now() + sim_between(0, 100) * SIM_US, release, source, 0);
    } else {
        fw_source_release(source);
    }
}

/* ---- events ---- */

static int dispatch_connect(struct fw_stream *stream, struct sim_socket *socket)
{
    struct fw_source *source = &stream->source;
    if (!fw_source_has(source, FW_SOURCE_CONNECTING) ||
        (socket->error == 0 && socket->peer == NULL)) {
        return 0;
    }
    fw_source_clear(source, FW_SOURCE_CONNECTING);
    stream->events->connected(stream, socket->error);
    return 1;
}

static int dispatch_receive(struct fw_stream *stream, struct sim_socket *socket)
{
    struct fw_source *source = &stream->source;
    if (!fw_source_has(source, FW_SOURCE_RECEIVING)) {
        return 0;
    }
    ssize_t result = sim_socket_receive(socket, stream->receive_buffer, stream->receive_size);
    if (result == -EAGAIN) {
        return 0;
    }
    fw_source_clear(source, FW_SOURCE_RECEIVING);
    note_readable(source, socket);
    stream->events->received(stream, result);
    return 1;
}

static int dispatch_send(struct fw_stream *stream, struct sim_socket *socket)
{
    struct fw_source *source = &stream->source;
    if (!fw_source_has(source, FW_SOURCE_SENDING)) {
        return 0;
    }
    ssize_t result = sim_socket_send(socket, stream->send_vector, stream->send_count);
    if (result == -EAGAIN) {
        return 0;
    }
    fw_source_clear(source, FW_SOURCE_SENDING);
    stream->events->sent(stream, result);
    return 1;
}

static int dispatch_wait(struct fw_stream *stream, struct sim_socket *socket)
{
    struct fw_source *source = &stream->source;
    if (fw_source_has(source, FW_SOURCE_READY | FW_SOURCE_RECEIVING) ||
        !sim_socket_readable(socket)) {
        return 0;
    }
    fw_source_set(source, FW_SOURCE_READY);
    if (!fw_source_has(source, FW_SOURCE_WAITING)) {
        return 0;
    }
    fw_source_clear(source, FW_SOURCE_WAITING);
    stream->events->readable(stream);
    return 1;
}

static int dispatch_stream(struct fw_stream *stream, struct sim_socket *socket)
{
    static int (*const steps[])(struct fw_stream *, struct sim_socket *) = {
        dispatch_connect, dispatch_send, dispatch_receive, dispatch_wait};
    int count = 0;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(steps); i++) {
        if (!fw_source_has(&stream->source, FW_SOURCE_CLOSED)) {
            count += steps[i](stream, socket);
        }
    }
    return count;
}

static int dispatch_listener(struct fw_listener *listener)
{
    struct fw_source *source = &listener->source;
    if (fw_source_has(source, FW_SOURCE_READY)) {
        return 0; /* On the list, or paused: its turn will come. */
    }
    fw_source_set(source, FW_SOURCE_READY);
    return fw_source_has(source, FW_SOURCE_PAUSED) ? 0 : backend_accept(listener);
}

static int backend_dispatch(struct fw_reactor *reactor)
{
    struct sim_reactor *sim = reactor_of(reactor);
    struct fw_list batch; /* What changes from now on belongs to the next round. */
    fw_list_init(&batch);
    fw_list_append(&batch, &sim->events);
    int count = 0;
    for (struct fw_list_link *link; (link = fw_list_pop_front(&batch)) != NULL;) {
        struct sim_socket *socket = FW_LIST_ENTRY(link, struct sim_socket, event_link);
        struct fw_source *source = socket->owner;
        if (source->kind == FW_SOURCE_LISTENER) {
            count += dispatch_listener(fw_listener_of(source));
        } else if (source->kind == FW_SOURCE_STREAM) {
            count += dispatch_stream(fw_stream_of(source), socket);
        } else {
            fw_watch_of(source)->ready(fw_watch_of(source));
            count++;
        }
    }
    return count;
}

static const struct fw_reactor_backend backend = {
    .create = backend_create,
    .destroy = backend_destroy,
    .wait = backend_wait,
    .dispatch = backend_dispatch,
    .kick = backend_kick,
    .listener_open = backend_listener_open,
    .accept = backend_accept,
    .refuse = backend_refuse,
    .stream_open = backend_stream_open,
    .connect = backend_connect,
    .receive = backend_receive,
    .send = backend_send,
    .send_now = backend_send_now,
    .shutdown = backend_shutdown,
    .take = backend_take,
    .peer = backend_peer,
    .hold_back = backend_hold_back,
    .watch_open = backend_watch_open,
    .close = backend_close,
};

void sim_reactor_install(void)
{
    fw_reactor_backend = &backend;
}
