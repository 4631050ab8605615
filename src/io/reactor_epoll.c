/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor's back end on epoll.
 *
 * Every descriptor is registered once, edge-triggered, when its source is opened, and taken out
 * when it is closed: while a connection is served there is no epoll_ctl(). The kernel reports a
 * change once, and READY remembers it until a receive brings less than asked for. That proves that
 * nothing is left, so the common round of event, receive, send needs no further receive only to
 * hear EAGAIN. It proves nothing after the peer has hung up, because no edge will come for the end
 * of the stream, nor after urgent data, at whose mark receives stop short: the flag UNSURE then
 * keeps READY. (A peer on a UNIX socket that passes descriptors, which nobody here asks for, can
 * stop a receive short as well. It delays only itself, until it sends again.)
 *
 * Whether a socket can be written is asked from the kernel by trying, and watched only once a send
 * has found the buffer full; from then on for good. Watching it from the start looks cheaper, one
 * flag in a call that is made anyway, but is not: a UNIX socket reports an edge whenever its peer
 * has read, that is with every reply, and for all sockets the kernel could no longer drop an event
 * whose bytes the last receive has already taken, because "can be written" is always true.
 *
 * A wake-up is a write to an eventfd. It is watched edge-triggered too and therefore never read:
 * each write is an edge, and its counter has room for 2^64 of them.
 *
 * The back end on io_uring stands on this one, see reactor_epoll.h and reactor_uring.c.
 */
#include "io/reactor_epoll.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "io/clock.h"
#include "io/syscall.h"

/* What the kernel is asked to report. It reports EPOLLERR and EPOLLHUP unasked. */
static const uint32_t STREAM_EVENTS = EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLET;
static const uint32_t READ_EVENTS = EPOLLIN | EPOLLPRI | EPOLLET;

/* What its reports mean. */
static const uint32_t MEANS_UNSURE = EPOLLPRI | EPOLLRDHUP | EPOLLHUP | EPOLLERR;
static const uint32_t MEANS_READABLE = EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLHUP | EPOLLERR;
static const uint32_t MEANS_WRITABLE = EPOLLOUT | EPOLLHUP | EPOLLERR;

static int source_control(struct fw_source *source, int fd, int operation, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    int epoll_fd = fw_epoll_of(source->reactor)->epoll_fd;
    return epoll_ctl(epoll_fd, operation, fd, &event) == 0 ? 0 : -errno;
}

/* On failure the descriptor is still the caller's. */
static int source_register(struct fw_source *source, int fd, uint32_t events)
{
    int rc = source_control(source, fd, EPOLL_CTL_ADD, events);
    if (rc == 0) {
        source->fd = fd;
    }
    return rc;
}

int fw_epoll_init(struct fw_epoll_reactor *epoll, struct fw_reason *reason)
{
    int rc;
    epoll->event_count = 0;
    epoll->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll->epoll_fd < 0) {
        return fw_reason_errno(reason, -errno, "cannot make a reactor: epoll_create1()");
    }
    int wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake_fd < 0) {
        rc = fw_reason_errno(reason, -errno, "cannot make a reactor: eventfd()");
        goto fail_eventfd;
    }
    epoll->wake_source = (struct fw_source){.reactor = &epoll->reactor, .kind = FW_SOURCE_PRIVATE};
    rc = source_register(&epoll->wake_source, wake_fd, READ_EVENTS);
    if (rc != 0) {
        rc = fw_reason_errno(reason, rc, "cannot make a reactor: epoll_ctl()");
        goto fail_register;
    }
    return 0;

fail_register:
    (void)close(wake_fd);
fail_eventfd:
    (void)close(epoll->epoll_fd);
    return rc;
}

void fw_epoll_fini(struct fw_epoll_reactor *epoll)
{
    (void)close(epoll->wake_source.fd);
    (void)close(epoll->epoll_fd);
}

static int epoll_create_reactor(struct fw_reactor **reactor, struct fw_reason *reason)
{
    struct fw_epoll_reactor *made = aligned_alloc(alignof(struct fw_epoll_reactor), sizeof *made);
    if (made == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot make a reactor");
    }
    int rc = fw_epoll_init(made, reason);
    if (rc != 0) {
        free(made);
        return rc;
    }
    *reactor = &made->reactor;
    return 0;
}

static void epoll_destroy(struct fw_reactor *reactor)
{
    struct fw_epoll_reactor *epoll = fw_epoll_of(reactor);
    fw_epoll_fini(epoll);
    free(epoll);
}

/* Rounds up to milliseconds, so that no timer finds itself too early. Negative: for ever. */
static int epoll_wait_ms(struct fw_epoll_reactor *epoll, int64_t timeout_ns)
{
    int64_t timeout_ms = timeout_ns / FW_NS_PER_MS + (timeout_ns % FW_NS_PER_MS > 0);
    int limited_ms = timeout_ms < INT_MAX ? (int)timeout_ms : INT_MAX;
    return fw_syscall_epoll_wait(epoll->epoll_fd, epoll->events, FW_EPOLL_EVENTS_MAX,
                                 timeout_ns < 0 ? -1 : limited_ms);
}

static int epoll_wait_ns(struct fw_epoll_reactor *epoll, int64_t timeout_ns)
{
    const struct timespec timeout = {.tv_sec = timeout_ns / FW_NS_PER_S,
                                     .tv_nsec = timeout_ns % FW_NS_PER_S};
    int count = epoll_pwait2(epoll->epoll_fd, epoll->events, FW_EPOLL_EVENTS_MAX, &timeout, NULL);
    /* Kernels before 5.11 do not know it, and the filters of older containers forbid it. */
    bool is_missing = count < 0 && (errno == ENOSYS || errno == EPERM);
    return is_missing ? epoll_wait_ms(epoll, timeout_ns) : count;
}

void fw_epoll_wait(struct fw_reactor *reactor, int64_t timeout_ns)
{
    struct fw_epoll_reactor *epoll = fw_epoll_of(reactor);
    FW_ASSERT(epoll->event_count == 0);
    /* The call with nanoseconds is the dearer one, so it is made only where they matter. */
    bool is_exact = timeout_ns > 0 && timeout_ns % FW_NS_PER_MS != 0;
    int count = is_exact ? epoll_wait_ns(epoll, timeout_ns) : epoll_wait_ms(epoll, timeout_ns);
    FW_ASSERT(count >= 0 || errno == EINTR);
    epoll->event_count = count < 0 ? 0 : count;
}

void fw_epoll_kick(struct fw_reactor *reactor)
{
    const uint64_t one = 1;
    ssize_t written = write(fw_epoll_of(reactor)->wake_source.fd, &one, sizeof one);
    FW_ASSERT(written == (ssize_t)sizeof one);
}

int fw_epoll_listener_open(struct fw_listener *listener, const struct fw_address *address,
                           const struct fw_listener_options *options, struct fw_reason *reason)
{
    int fd = fw_socket_listen(address, options, &listener->address, &listener->file, reason);
    if (fd < 0) {
        return fd;
    }
    int rc = source_register(&listener->source, fd, READ_EVENTS);
    if (rc != 0) {
        fw_socket_unlink(&listener->address, &listener->file);
        fw_socket_close(fd);
        return fw_reason_errno(reason, rc, "cannot watch the listening socket: epoll_ctl()");
    }
    return 0;
}

/* Errors of the one connection that was to be accepted; the next one may be in order. */
static bool accept_may_go_on(int error)
{
    switch (-error) {
    case ECONNABORTED:
    case EINTR:
    case EPERM: /* A firewall's. */
    case EPROTO:
    case ENETDOWN: /* From here on: what was wrong with the network, see accept(2). */
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
    case ENOPROTOOPT:
    case EOPNOTSUPP:
        return true;
    default:
        return false;
    }
}

int fw_epoll_accept(struct fw_listener *listener)
{
    struct fw_source *source = &listener->source;
    int ran = 0;
    while (ran < FW_ACCEPT_ROUND) {
        int fd = fw_socket_accept(source->fd);
        if (fd == -EAGAIN) {
            fw_source_clear(source, FW_SOURCE_READY);
            return ran;
        }
        if (fd < 0 && !accept_may_go_on(fd)) {
            fw_source_set(source, FW_SOURCE_PAUSED);
        }
        listener->events->accepted(listener, fd);
        ran++;
        if (fw_source_has(source, FW_SOURCE_PAUSED | FW_SOURCE_CLOSED)) {
            return ran;
        }
        if (fw_list_is_linked(&source->ready_link)) {
            return ran; /* Paused and resumed by the call-back. */
        }
    }
    fw_listener_remember(listener);
    return ran;
}

void fw_epoll_refuse(int fd, const struct iovec *words)
{
    ssize_t sent = fw_socket_send(fd, words, 1);
    (void)sent; /* Who does not hear them sees the connection closed. */
    fw_socket_close(fd);
}

static int listener_event(struct fw_listener *listener)
{
    struct fw_source *source = &listener->source;
    if (fw_source_has(source, FW_SOURCE_CLOSED)) {
        return 0;
    }
    bool was_ready = fw_source_has(source, FW_SOURCE_READY);
    fw_source_set(source, FW_SOURCE_READY);
    if (was_ready || fw_source_has(source, FW_SOURCE_PAUSED)) {
        return 0; /* On the list, or will be at resume(). */
    }
    return fw_epoll_accept(listener);
}

int fw_epoll_stream_open(struct fw_stream *stream, int fd)
{
    return source_register(&stream->source, fd, STREAM_EVENTS);
}

int fw_epoll_connect(struct fw_stream *stream, const struct fw_address *address)
{
    struct fw_source *source = &stream->source;
    int fd;
    int connected = fw_socket_connect(address, &fd);
    if (connected != 0 && connected != -EINPROGRESS) {
        return connected;
    }
    uint32_t events = STREAM_EVENTS;
    if (connected == -EINPROGRESS) {
        events |= EPOLLOUT;
        fw_source_set(source, FW_EPOLL_WRITE_WATCHED);
    }
    int rc = source_register(source, fd, events);
    if (rc != 0) {
        fw_socket_close(fd);
        return rc;
    }
    return connected;
}

ssize_t fw_epoll_receive(struct fw_stream *stream, void *buffer, size_t size)
{
    struct fw_source *source = &stream->source;
    if (!fw_source_has(source, FW_SOURCE_READY)) {
        return -EINPROGRESS;
    }
    ssize_t received = fw_socket_receive(source->fd, buffer, size);
    if (received == -EAGAIN) {
        fw_source_clear(source, FW_SOURCE_READY | FW_EPOLL_UNSURE);
        return -EINPROGRESS;
    }
    bool is_short = received > 0 && (size_t)received < size;
    if (is_short && !fw_source_has(source, FW_EPOLL_UNSURE)) {
        fw_source_clear(source, FW_SOURCE_READY);
    }
    return received; /* After the end or an error the next receive has something to say too. */
}

int fw_epoll_await_room(struct fw_stream *stream)
{
    struct fw_source *source = &stream->source;
    if (fw_source_has(source, FW_EPOLL_WRITE_WATCHED)) {
        return 0;
    }
    /* If there has come room since, the kernel reports it now: no edge is lost. */
    int rc = source_control(source, source->fd, EPOLL_CTL_MOD, STREAM_EVENTS | EPOLLOUT);
    if (rc == 0) {
        fw_source_set(source, FW_EPOLL_WRITE_WATCHED);
    }
    return rc;
}

ssize_t fw_epoll_send(struct fw_stream *stream, const struct iovec *vector, int count)
{
    ssize_t sent = fw_socket_send(stream->source.fd, vector, count);
    if (FW_LIKELY(sent != -EAGAIN)) {
        return sent;
    }
    int rc = fw_epoll_await_room(stream);
    return rc == 0 ? -EINPROGRESS : rc;
}

ssize_t fw_epoll_send_now(struct fw_stream *stream, const struct iovec *vector, int count)
{
    return fw_socket_send(stream->source.fd, vector, count);
}

void fw_epoll_shutdown(struct fw_stream *stream)
{
    /* Fails only if the connection has ended already, which the next receive or send tells. */
    (void)shutdown(stream->source.fd, SHUT_WR);
}

void fw_epoll_take(struct fw_stream *stream)
{
    FW_ASSERT(fw_epoll_of(stream->source.reactor)->event_count == 0);
    int rc = source_control(&stream->source, stream->source.fd, EPOLL_CTL_DEL, 0);
    FW_ASSERT(rc == 0);
}

int fw_epoll_peer(int fd, struct fw_address *peer)
{
    return fw_socket_peer(fd, peer);
}

void fw_epoll_hold_back(struct fw_stream *stream, uint32_t size)
{
    fw_socket_hold_back(stream->source.fd, size);
}

static void stream_remember(struct fw_source *source, uint32_t events)
{
    unsigned unsure = (events & MEANS_UNSURE) != 0 ? FW_EPOLL_UNSURE : 0;
    fw_source_set(source, FW_SOURCE_READY | unsure);
}

/* The kernel reports nothing of a socket that is being connected until that has ended. */
static int stream_connected(struct fw_stream *stream, uint32_t events)
{
    struct fw_source *source = &stream->source;
    if ((events & MEANS_READABLE) != 0) {
        stream_remember(source, events); /* The peer may have spoken first. */
    }
    fw_source_clear(source, FW_SOURCE_CONNECTING);
    stream->events->connected(stream, fw_socket_error(source->fd));
    return 1;
}

static int stream_send_again(struct fw_stream *stream)
{
    struct fw_source *source = &stream->source;
    ssize_t sent = fw_socket_send(source->fd, stream->send_vector, stream->send_count);
    if (sent == -EAGAIN) {
        return 0;
    }
    fw_source_clear(source, FW_SOURCE_SENDING);
    stream->events->sent(stream, sent);
    return 1;
}

static int stream_receive_again(struct fw_stream *stream)
{
    ssize_t received = fw_epoll_receive(stream, stream->receive_buffer, stream->receive_size);
    if (received == -EINPROGRESS) {
        return 0;
    }
    fw_source_clear(&stream->source, FW_SOURCE_RECEIVING);
    stream->events->received(stream, received);
    return 1;
}

static int stream_readable(struct fw_stream *stream, uint32_t events)
{
    struct fw_source *source = &stream->source;
    bool was_ready = fw_source_has(source, FW_SOURCE_READY);
    stream_remember(source, events);
    if (FW_UNLIKELY(was_ready)) {
        return 0; /* If it waits, it is on the list, and has its turn from there. */
    }
    if (FW_LIKELY(fw_source_has(source, FW_SOURCE_WAITING))) {
        fw_source_clear(source, FW_SOURCE_WAITING);
        stream->events->readable(stream);
        return 1;
    }
    return fw_source_has(source, FW_SOURCE_RECEIVING) ? stream_receive_again(stream) : 0;
}

static int stream_event(struct fw_stream *stream, uint32_t events)
{
    struct fw_source *source = &stream->source;
    int ran = 0;
    if (FW_UNLIKELY(
            fw_source_has(source, FW_SOURCE_CONNECTING | FW_SOURCE_SENDING | FW_SOURCE_CLOSED))) {
        if (fw_source_has(source, FW_SOURCE_CONNECTING)) {
            return stream_connected(stream, events);
        }
        if (fw_source_has(source, FW_SOURCE_SENDING) &&
            !fw_source_has(source, FW_EPOLL_SEND_QUEUED) && (events & MEANS_WRITABLE) != 0) {
            ran += stream_send_again(stream);
        }
        if (fw_source_has(source, FW_SOURCE_CLOSED)) {
            return ran; /* Before, or by the call-back. */
        }
    }
    if ((events & MEANS_READABLE) != 0) {
        ran += stream_readable(stream, events);
    }
    return ran;
}

static int watch_event(struct fw_watch *watch)
{
    if (fw_source_has(&watch->source, FW_SOURCE_CLOSED)) {
        return 0;
    }
    watch->ready(watch);
    return 1;
}

int fw_epoll_dispatch(struct fw_reactor *reactor)
{
    struct fw_epoll_reactor *epoll = fw_epoll_of(reactor);
    int ran = 0;
    for (int i = 0; i < epoll->event_count; i++) {
        struct fw_source *source = epoll->events[i].data.ptr;
        switch ((enum fw_source_kind)source->kind) {
        case FW_SOURCE_STREAM:
            ran += stream_event(fw_stream_of(source), epoll->events[i].events);
            break;
        case FW_SOURCE_LISTENER:
            ran += listener_event(fw_listener_of(source));
            break;
        case FW_SOURCE_WATCH:
            ran += watch_event(fw_watch_of(source));
            break;
        case FW_SOURCE_PRIVATE: /* The eventfd has done its work. */
            break;
        }
    }
    epoll->event_count = 0;
    return ran;
}

int fw_epoll_watch_open(struct fw_watch *watch, int fd)
{
    return source_register(&watch->source, fd,
                           watch->is_writer ? READ_EVENTS | EPOLLOUT : READ_EVENTS);
}

void fw_epoll_close(struct fw_source *source)
{
    /*
     * Closing alone would do, unless another process holds the same socket, after a fork() for
     * example: then the kernel would go on reporting events for memory that is no longer a source.
     */
    int rc = source_control(source, source->fd, EPOLL_CTL_DEL, 0);
    FW_ASSERT(rc == 0 || source->kind == FW_SOURCE_WATCH); /* Whose owner may have closed it. */
    if (source->kind == FW_SOURCE_LISTENER) {
        struct fw_listener *listener = fw_listener_of(source);
        fw_socket_unlink(&listener->address, &listener->file);
    }
    if (source->kind != FW_SOURCE_WATCH) {
        fw_socket_close(source->fd);
    }
    fw_source_release(source);
}

const struct fw_reactor_backend fw_reactor_epoll = {
    .create = epoll_create_reactor,
    .destroy = epoll_destroy,
    .wait = fw_epoll_wait,
    .dispatch = fw_epoll_dispatch,
    .kick = fw_epoll_kick,
    .listener_open = fw_epoll_listener_open,
    .accept = fw_epoll_accept,
    .refuse = fw_epoll_refuse,
    .stream_open = fw_epoll_stream_open,
    .connect = fw_epoll_connect,
    .receive = fw_epoll_receive,
    .send = fw_epoll_send,
    .send_now = fw_epoll_send_now,
    .shutdown = fw_epoll_shutdown,
    .take = fw_epoll_take,
    .peer = fw_epoll_peer,
    .hold_back = fw_epoll_hold_back,
    .watch_open = fw_epoll_watch_open,
    .close = fw_epoll_close,
};
