/* SPDX-License-Identifier: Apache-2.0 */
#include "io/reactor.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/thread.h"
#include "io/reactor_backend.h"

static_assert(sizeof(struct fw_stream) <= 96, "idle connections are many, and each has one");

const struct fw_reactor_backend *fw_reactor_backend = &fw_reactor_epoll;

/*
 * The guard of the turn: every function that needs the turn stands between enter and leave. Calls
 * from within call-backs nest, and only the outermost leaves.
 */
#if defined(FW_CHECKS)
static bool turn_enter(struct fw_reactor *reactor)
{
    const struct fw_thread_state *self = fw_thread_self();
    const struct fw_thread_state *inside = NULL;
    bool is_outermost = atomic_compare_exchange_strong_explicit(
        &reactor->inside, &inside, self, memory_order_relaxed, memory_order_relaxed);
    FW_ASSERT(is_outermost || inside == self);
    return is_outermost;
}

static void turn_leave(struct fw_reactor *reactor, bool is_outermost)
{
    if (is_outermost) {
        atomic_store_explicit(&reactor->inside, NULL, memory_order_relaxed);
    }
}
#else
static inline bool turn_enter(struct fw_reactor *reactor)
{
    (void)reactor;
    return true;
}

static inline void turn_leave(struct fw_reactor *reactor, bool is_outermost)
{
    (void)reactor;
    (void)is_outermost;
}
#endif

int fw_reactor_choose(const char *name, struct fw_reason *reason)
{
    static const struct {
        const char *name;
        const struct fw_reactor_backend *backend;
    } known[] = {{"epoll", &fw_reactor_epoll}, {"io_uring", &fw_reactor_uring}};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(known); i++) {
        if (strcmp(name, known[i].name) == 0) {
            fw_reactor_backend = known[i].backend;
            return 0;
        }
    }
    return fw_reason_set(reason, -EINVAL,
                         "there is no '%.40s' to do the network with: choose "
                         "epoll or io_uring",
                         name);
}

int fw_reactor_create(struct fw_reactor **reactor, struct fw_reason *reason)
{
    const struct fw_reactor_backend *backend = fw_reactor_backend;
    struct fw_reactor *made;
    int rc = backend->create(&made, reason);
    if (rc != 0) {
        return rc;
    }
    made->backend = backend;
    made->source_count = 0;
    made->is_polling = false;
    fw_list_init(&made->ready);
    fw_list_init(&made->closed);
    atomic_init(&made->wake, FW_REACTOR_AWAKE);
#if defined(FW_CHECKS)
    atomic_init(&made->inside, NULL);
#endif
    *reactor = made;
    return 0;
}

void fw_reactor_destroy(struct fw_reactor *reactor)
{
    FW_ASSERT(!reactor->is_polling);
    FW_ASSERT(reactor->source_count == 0);
    FW_ASSERT(fw_list_is_empty(&reactor->ready));
    FW_ASSERT(fw_list_is_empty(&reactor->closed));
    reactor->backend->destroy(reactor);
}

/* False: someone called wake() since the last poll, so this one must not wait. */
static bool reactor_fall_asleep(struct fw_reactor *reactor)
{
    uint32_t seen = FW_REACTOR_AWAKE;
    FW_YIELD_POINT("reactor: about to sleep");
    /* Relaxed: what the waker wrote is acquired in reactor_awake(), on either way. */
    bool asleep = atomic_compare_exchange_strong_explicit(
        &reactor->wake, &seen, FW_REACTOR_SLEEPING, memory_order_relaxed, memory_order_relaxed);
    FW_ASSERT(asleep || seen == FW_REACTOR_WOKEN); /* SLEEPING would be a second poll(). */
    return asleep;
}

/* Takes a wake-up, if there was one: from here on the next one counts for the next poll(). */
static void reactor_awake(struct fw_reactor *reactor)
{
    FW_YIELD_POINT("reactor: awake");
    /* Relaxed: only asks whether the exchange is worth its cost. */
    if (atomic_load_explicit(&reactor->wake, memory_order_relaxed) != FW_REACTOR_AWAKE) {
        /* Acquire, for the release in fw_reactor_wake(). */
        (void)atomic_exchange_explicit(&reactor->wake, FW_REACTOR_AWAKE, memory_order_acquire);
    }
}

void fw_reactor_wake(struct fw_reactor *reactor)
{
    FW_YIELD_POINT("reactor: wake");
    /*
     * Release, for the acquire in reactor_awake(). An exchange even if the word says WOKEN already:
     * a plain look would leave what this caller wrote unordered with the poll that it relies on.
     */
    uint32_t before =
        atomic_exchange_explicit(&reactor->wake, FW_REACTOR_WOKEN, memory_order_release);
    if (before == FW_REACTOR_SLEEPING) {
        FW_YIELD_POINT("reactor: about to kick");
        reactor->backend->kick(reactor);
    }
}

static int source_serve(struct fw_source *source)
{
    if (source->kind == FW_SOURCE_LISTENER) {
        return source->reactor->backend->accept(fw_listener_of(source));
    }
    struct fw_stream *stream = fw_stream_of(source);
    FW_ASSERT(fw_source_has(source, FW_SOURCE_WAITING));
    fw_source_clear(source, FW_SOURCE_WAITING);
    stream->events->readable(stream);
    return 1;
}

/* Gives a turn to every source on the list; what they add meanwhile waits for the next round. */
static int reactor_serve(struct fw_list *sources)
{
    int ran = 0;
    struct fw_list_link *link;
    while ((link = fw_list_pop_front(sources)) != NULL) {
        ran += source_serve(FW_LIST_ENTRY(link, struct fw_source, ready_link));
    }
    return ran;
}

/* The last that is heard of a source: the call-back may free it. */
static void source_report_closed(struct fw_source *source)
{
    switch ((enum fw_source_kind)source->kind) {
    case FW_SOURCE_STREAM: {
        struct fw_stream *stream = fw_stream_of(source);
        stream->events->closed(stream);
        return;
    }
    case FW_SOURCE_LISTENER: {
        struct fw_listener *listener = fw_listener_of(source);
        listener->events->closed(listener);
        return;
    }
    case FW_SOURCE_WATCH: {
        struct fw_watch *watch = fw_watch_of(source);
        watch->closed(watch);
        return;
    }
    case FW_SOURCE_PRIVATE:
        break;
    }
    FW_ASSERT(false);
}

/* Events kept by the back end have been handled by now, so none can name these sources. */
static int reactor_report_closed(struct fw_reactor *reactor)
{
    int ran = 0;
    struct fw_list due;
    struct fw_list_link *link;
    fw_list_init(&due);
    fw_list_append(&due, &reactor->closed);
    while ((link = fw_list_pop_front(&due)) != NULL) {
        struct fw_source *source = FW_LIST_ENTRY(link, struct fw_source, ready_link);
        FW_ASSERT(reactor->source_count > 0);
        reactor->source_count--;
        source_report_closed(source);
        ran++;
    }
    return ran;
}

void fw_reactor_wait(struct fw_reactor *reactor, int64_t timeout_ns)
{
    bool is_outermost = turn_enter(reactor);
    FW_ASSERT(!reactor->is_polling); /* A call-back that polls would starve its caller. */
    bool is_idle = fw_list_is_empty(&reactor->ready) && fw_list_is_empty(&reactor->closed);
    if (timeout_ns != 0 && (!is_idle || !reactor_fall_asleep(reactor))) {
        timeout_ns = 0;
    }
    reactor->backend->wait(reactor, timeout_ns);
    reactor_awake(reactor);
    turn_leave(reactor, is_outermost);
}

int fw_reactor_dispatch(struct fw_reactor *reactor)
{
    bool is_outermost = turn_enter(reactor);
    reactor->is_polling = true;

    /* Those remembered come after the new ones, but a new one that stays ready is not new again. */
    struct fw_list remembered;
    fw_list_init(&remembered);
    fw_list_append(&remembered, &reactor->ready);

    int ran = reactor->backend->dispatch(reactor);
    ran += reactor_serve(&remembered);
    ran += reactor_report_closed(reactor);

    reactor->is_polling = false;
    turn_leave(reactor, is_outermost);
    return ran;
}

int fw_reactor_poll(struct fw_reactor *reactor, int64_t timeout_ns)
{
    fw_reactor_wait(reactor, timeout_ns);
    return fw_reactor_dispatch(reactor);
}

static struct fw_source source_make(struct fw_reactor *reactor, enum fw_source_kind kind)
{
    return (struct fw_source){.reactor = reactor, .kind = (uint8_t)kind};
}

static void source_close(struct fw_source *source)
{
    struct fw_reactor *reactor = source->reactor;
    FW_ASSERT(!fw_source_has(source, FW_SOURCE_CLOSED));
    bool is_outermost = turn_enter(reactor);
    if (fw_list_is_linked(&source->ready_link)) {
        fw_list_remove(&source->ready_link);
    }
    source->flags = FW_SOURCE_CLOSED;
    reactor->backend->close(source);
    turn_leave(reactor, is_outermost);
}

int fw_listener_open(struct fw_listener *listener, struct fw_reactor *reactor,
                     const struct fw_address *address, const struct fw_listener_options *options,
                     const struct fw_listener_events *events, struct fw_reason *reason)
{
    bool is_outermost = turn_enter(reactor);
    *listener =
        (struct fw_listener){.source = source_make(reactor, FW_SOURCE_LISTENER), .events = events};
    int rc = reactor->backend->listener_open(listener, address, options, reason);
    reactor->source_count += rc == 0;
    turn_leave(reactor, is_outermost);
    return rc;
}

void fw_listener_pause(struct fw_listener *listener)
{
    struct fw_source *source = &listener->source;
    FW_ASSERT(!fw_source_has(source, FW_SOURCE_CLOSED));
    bool is_outermost = turn_enter(source->reactor);
    fw_source_set(source, FW_SOURCE_PAUSED);
    if (fw_list_is_linked(&source->ready_link)) {
        fw_list_remove(&source->ready_link);
    }
    turn_leave(source->reactor, is_outermost);
}

void fw_listener_resume(struct fw_listener *listener)
{
    struct fw_source *source = &listener->source;
    FW_ASSERT(!fw_source_has(source, FW_SOURCE_CLOSED));
    bool is_outermost = turn_enter(source->reactor);
    if (fw_source_has(source, FW_SOURCE_PAUSED)) {
        fw_source_clear(source, FW_SOURCE_PAUSED);
        if (fw_source_has(source, FW_SOURCE_READY)) {
            fw_listener_remember(listener);
        }
    }
    turn_leave(source->reactor, is_outermost);
}

void fw_listener_close(struct fw_listener *listener)
{
    source_close(&listener->source);
}

void fw_listener_refuse(struct fw_listener *listener, int fd, const struct iovec *words)
{
    listener->source.reactor->backend->refuse(fd, words);
}

int fw_listener_peer(const struct fw_listener *listener, int fd, struct fw_address *peer)
{
    return listener->source.reactor->backend->peer(fd, peer);
}

static struct fw_stream stream_make(struct fw_reactor *reactor,
                                    const struct fw_stream_events *events)
{
    return (struct fw_stream){.source = source_make(reactor, FW_SOURCE_STREAM), .events = events};
}

int fw_stream_open(struct fw_stream *stream, struct fw_reactor *reactor, int fd,
                   const struct fw_stream_events *events)
{
    bool is_outermost = turn_enter(reactor);
    *stream = stream_make(reactor, events);
    int rc = reactor->backend->stream_open(stream, fd);
    reactor->source_count += rc == 0;
    turn_leave(reactor, is_outermost);
    return rc;
}

int fw_stream_connect(struct fw_stream *stream, struct fw_reactor *reactor,
                      const struct fw_address *address, const struct fw_stream_events *events)
{
    bool is_outermost = turn_enter(reactor);
    *stream = stream_make(reactor, events);
    int rc = reactor->backend->connect(stream, address);
    if (rc == -EINPROGRESS) {
        fw_source_set(&stream->source, FW_SOURCE_CONNECTING);
    }
    reactor->source_count += rc == 0 || rc == -EINPROGRESS;
    turn_leave(reactor, is_outermost);
    return rc;
}

/* What excludes a receive, and what excludes a send. */
enum {
    NOT_RECEIVABLE =
        FW_SOURCE_WAITING | FW_SOURCE_RECEIVING | FW_SOURCE_CONNECTING | FW_SOURCE_CLOSED,
    NOT_SENDABLE = FW_SOURCE_SENDING | FW_SOURCE_CONNECTING | FW_SOURCE_CLOSED,
};

void fw_stream_wait(struct fw_stream *stream)
{
    struct fw_source *source = &stream->source;
    FW_ASSERT(!fw_source_has(source, NOT_RECEIVABLE));
    bool is_outermost = turn_enter(source->reactor);
    fw_source_set(source, FW_SOURCE_WAITING);
    if (fw_source_has(source, FW_SOURCE_READY)) {
        fw_list_push_back(&source->reactor->ready, &source->ready_link);
    }
    turn_leave(source->reactor, is_outermost);
}

void fw_stream_wait_cancel(struct fw_stream *stream)
{
    struct fw_source *source = &stream->source;
    FW_ASSERT(!fw_source_has(source, FW_SOURCE_CLOSED));
    bool is_outermost = turn_enter(source->reactor);
    fw_source_clear(source, FW_SOURCE_WAITING);
    if (fw_list_is_linked(&source->ready_link)) {
        fw_list_remove(&source->ready_link);
    }
    turn_leave(source->reactor, is_outermost);
}

ssize_t fw_stream_receive(struct fw_stream *stream, void *buffer, size_t size)
{
    struct fw_source *source = &stream->source;
    FW_ASSERT(size > 0);
    FW_ASSERT(!fw_source_has(source, NOT_RECEIVABLE));
    bool is_outermost = turn_enter(source->reactor);
    ssize_t result = source->reactor->backend->receive(stream, buffer, size);
    if (result == -EINPROGRESS) {
        fw_source_set(source, FW_SOURCE_RECEIVING);
        stream->receive_buffer = buffer;
        stream->receive_size = size;
    }
    turn_leave(source->reactor, is_outermost);
    return result;
}

ssize_t fw_stream_send(struct fw_stream *stream, const struct iovec *vector, int count)
{
    struct fw_source *source = &stream->source;
    FW_ASSERT(count > 0 && count <= FW_STREAM_SEND_MAX);
    FW_ASSERT(!fw_source_has(source, NOT_SENDABLE));
    bool is_outermost = turn_enter(source->reactor);
    ssize_t result = source->reactor->backend->send(stream, vector, count);
    if (result == -EINPROGRESS) {
        fw_source_set(source, FW_SOURCE_SENDING);
        stream->send_vector = vector;
        stream->send_count = count;
    }
    turn_leave(source->reactor, is_outermost);
    return result;
}

ssize_t fw_stream_receive_now(struct fw_stream *stream, void *buffer, size_t size)
{
    struct fw_source *source = &stream->source;
    FW_ASSERT(size > 0);
    FW_ASSERT(!fw_source_has(source, NOT_RECEIVABLE));
    bool is_outermost = turn_enter(source->reactor);
    /* A back end keeps nothing of a receive before RECEIVING is set. */
    ssize_t result = source->reactor->backend->receive(stream, buffer, size);
    turn_leave(source->reactor, is_outermost);
    return result != -EINPROGRESS ? result : -EAGAIN;
}

ssize_t fw_stream_send_now(struct fw_stream *stream, const struct iovec *vector, int count)
{
    struct fw_source *source = &stream->source;
    FW_ASSERT(count > 0 && count <= FW_STREAM_SEND_MAX);
    FW_ASSERT(!fw_source_has(source, NOT_SENDABLE));
    bool is_outermost = turn_enter(source->reactor);
    ssize_t result = source->reactor->backend->send_now(stream, vector, count);
    turn_leave(source->reactor, is_outermost);
    return result;
}

void fw_stream_shutdown(struct fw_stream *stream)
{
    struct fw_source *source = &stream->source;
    FW_ASSERT(!fw_source_has(source, NOT_SENDABLE));
    bool is_outermost = turn_enter(source->reactor);
    source->reactor->backend->shutdown(stream);
    turn_leave(source->reactor, is_outermost);
}

void fw_stream_close(struct fw_stream *stream)
{
    source_close(&stream->source);
}

int fw_stream_take(struct fw_stream *stream)
{
    struct fw_source *source = &stream->source;
    struct fw_reactor *reactor = source->reactor;
    FW_ASSERT(!fw_source_has(source, NOT_SENDABLE | FW_SOURCE_RECEIVING));
    FW_ASSERT(!reactor->is_polling);
    bool is_outermost = turn_enter(reactor);
    if (fw_list_is_linked(&source->ready_link)) {
        fw_list_remove(&source->ready_link);
    }
    source->flags = FW_SOURCE_CLOSED;
    reactor->backend->take(stream);
    reactor->source_count--;
    turn_leave(reactor, is_outermost);
    return source->fd;
}

int fw_stream_peer(const struct fw_stream *stream, struct fw_address *peer)
{
    return stream->source.reactor->backend->peer(stream->source.fd, peer);
}

void fw_stream_hold_back(struct fw_stream *stream, uint32_t size)
{
    stream->source.reactor->backend->hold_back(stream, size);
}

/* `made` has what the caller chose. */
static int watch_open(struct fw_watch *watch, struct fw_reactor *reactor, int fd,
                      struct fw_watch made)
{
    bool is_outermost = turn_enter(reactor);
    made.source = source_make(reactor, FW_SOURCE_WATCH);
    *watch = made;
    int rc = reactor->backend->watch_open(watch, fd);
    reactor->source_count += rc == 0;
    turn_leave(reactor, is_outermost);
    return rc;
}

int fw_watch_open(struct fw_watch *watch, struct fw_reactor *reactor, int fd,
                  void (*ready)(struct fw_watch *watch), void (*closed)(struct fw_watch *watch))
{
    return watch_open(watch, reactor, fd, (struct fw_watch){.ready = ready, .closed = closed});
}

int fw_watch_open_both(struct fw_watch *watch, struct fw_reactor *reactor, int fd,
                       void (*ready)(struct fw_watch *watch),
                       void (*closed)(struct fw_watch *watch))
{
    return watch_open(watch, reactor, fd,
                      (struct fw_watch){.ready = ready, .closed = closed, .is_writer = true});
}

void fw_watch_close(struct fw_watch *watch)
{
    source_close(&watch->source);
}
