/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the reactor (io/reactor.h) and its back ends; nobody else includes this.
 *
 * reactor.c keeps the promises of reactor.h that are the same everywhere: who may call what and
 * when, the list of sources remembered as ready, the order of things within a poll, waking, and the
 * `closed` call-backs. A back end moves the bytes. It is a table of functions, reached by at most
 * one indirect call per operation; a wait on epoll needs none.
 *
 * The flags of a source are their common language:
 *
 *     READY       The back end knows that a receive (an accept) would find something. Set by the
 *                 back end, cleared by it when that is no longer sure.
 *     WAITING     fw_stream_wait() has not been answered. With READY the source is on the reactor's
 *                 list and poll() answers it; without, the back end does, when it sets READY.
 *     RECEIVING   fw_stream_receive() has not been answered; the back end will. Never with READY.
 *     SENDING     fw_stream_send() has not been answered; the back end will.
 *     CONNECTING  fw_stream_connect() has not been answered; the back end will.
 *     PAUSED      The listener calls no `accepted`. READY is kept for when it goes on.
 *     CLOSED      Set alone: nothing else is under way, and events for the source are dropped.
 *
 * So a listener is on the list if and only if it is READY and not PAUSED, and outside its own
 * accept round; a stream if and only if it is READY and WAITING; a closed source as soon as its
 * back end has let go of it, but then on the other list.
 *
 * A simulated network is one more such table. So is io_uring, whose sends differ from epoll's, and
 * nothing else, for reasons that reactor_uring.c gives.
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "base/list.h"
#include "base/thread.h"
#include "io/reactor.h"

enum fw_source_kind {
    FW_SOURCE_STREAM = 1, /* Not 0, so that zeroed memory is no source. */
    FW_SOURCE_LISTENER,
    FW_SOURCE_WATCH,
    FW_SOURCE_PRIVATE, /* The back end's own. */
};

enum fw_source_flag {
    FW_SOURCE_READY = 1 << 0,
    FW_SOURCE_WAITING = 1 << 1,
    FW_SOURCE_RECEIVING = 1 << 2,
    FW_SOURCE_SENDING = 1 << 3,
    FW_SOURCE_CONNECTING = 1 << 4,
    FW_SOURCE_PAUSED = 1 << 5,
    FW_SOURCE_CLOSED = 1 << 6,
    FW_SOURCE_BACKEND = 1 << 8, /* This bit and those above it mean what the back end says. */
};

enum { FW_ACCEPT_ROUND = 64 }; /* Connections that a listener accepts before others have a turn. */

struct fw_reactor_backend {
    /* Makes a reactor, of which struct fw_reactor is the first member; reactor.c fills that in. */
    int (*create)(struct fw_reactor **reactor, struct fw_reason *reason);
    void (*destroy)(struct fw_reactor *reactor);

    /* Waits for events, see fw_reactor_poll(), and keeps them. Runs no call-back. */
    void (*wait)(struct fw_reactor *reactor, int64_t timeout_ns);
    /* Handles the events that wait() kept. Returns how many call-backs ran. */
    int (*dispatch)(struct fw_reactor *reactor);
    /* Makes a wait() under way return, or the next one. Called from any thread. */
    void (*kick)(struct fw_reactor *reactor);

    int (*listener_open)(struct fw_listener *listener, const struct fw_address *address,
                         const struct fw_listener_options *options, struct fw_reason *reason);
    /*
     * Accepts from a listener that is READY and on no list, FW_ACCEPT_ROUND at most; if it is READY
     * still, calls fw_listener_remember(). Returns how many call-backs ran.
     */
    int (*accept)(struct fw_listener *listener);
    void (*refuse)(int fd, const struct iovec *words);

    int (*stream_open)(struct fw_stream *stream, int fd);
    int (*connect)(struct fw_stream *stream, const struct fw_address *address);
    /*
     * These two answer as fw_stream_receive() and fw_stream_send() do, but keep nothing: reactor.c
     * notes down what is under way, and does not if the caller wanted an answer at once.
     */
    ssize_t (*receive)(struct fw_stream *stream, void *buffer, size_t size);
    ssize_t (*send)(struct fw_stream *stream, const struct iovec *vector, int count);
    /* Answers as fw_stream_send_now() does. */
    ssize_t (*send_now)(struct fw_stream *stream, const struct iovec *vector, int count);
    void (*shutdown)(struct fw_stream *stream);
    /* Forgets the stream, whose descriptor stays open. wait() has kept no events. */
    void (*take)(struct fw_stream *stream);
    /* Any thread, while the stream is open. */
    int (*peer)(int fd, struct fw_address *peer);
    void (*hold_back)(struct fw_stream *stream, uint32_t size);

    int (*watch_open)(struct fw_watch *watch, int fd);

    /*
     * Ends the source, which is CLOSED, and calls fw_source_release() as soon as neither the kernel
     * nor the back end will touch its memory, except for events that wait() has kept.
     */
    void (*close)(struct fw_source *source);
};

/* What fw_reactor_create() makes a reactor with. The simulator puts its own table here, once. */
extern const struct fw_reactor_backend *fw_reactor_backend;
extern const struct fw_reactor_backend fw_reactor_epoll;
extern const struct fw_reactor_backend fw_reactor_uring; /* Without liburing, only its name. */

/*
 * Whether someone has to be woken:
 *
 *               poll(), about to wait            wake()
 *     AWAKE ------------------------> SLEEPING ---------> WOKEN, and the waker calls kick()
 *       \                                                ^
 *        `------------------------ wake() --------------'
 *
 * and back to AWAKE when poll() has waited, or has seen that it must not. Only the first wake()
 * that meets a sleeper costs a system call.
 */
enum fw_reactor_wake { FW_REACTOR_AWAKE, FW_REACTOR_SLEEPING, FW_REACTOR_WOKEN };

struct fw_reactor {
    const struct fw_reactor_backend *backend;
    struct fw_list ready;  /* Of sources remembered as ready, the longest waiting first. */
    struct fw_list closed; /* Of sources whose `closed` call-back is due. */
    uint32_t source_count; /* Opened, and `closed` has not run. */
    bool is_polling;
#if defined(FW_CHECKS)
    /* Who is inside. Relaxed on purpose: it must not order what only the turn should order. */
    _Atomic(const struct fw_thread_state *) inside;
#endif
    alignas(FW_CACHE_LINE) _Atomic uint32_t wake; /* enum fw_reactor_wake; other threads' line. */
};

static inline bool fw_source_has(const struct fw_source *source, unsigned flags)
{
    return (source->flags & flags) != 0;
}

static inline void fw_source_set(struct fw_source *source, unsigned flags)
{
    source->flags = (uint16_t)(source->flags | flags);
}

static inline void fw_source_clear(struct fw_source *source, unsigned flags)
{
    source->flags = (uint16_t)(source->flags & ~flags);
}

static inline struct fw_stream *fw_stream_of(struct fw_source *source)
{
    FW_ASSERT(source->kind == FW_SOURCE_STREAM);
    return FW_CONTAINER_OF(source, struct fw_stream, source);
}

static inline struct fw_listener *fw_listener_of(struct fw_source *source)
{
    FW_ASSERT(source->kind == FW_SOURCE_LISTENER);
    return FW_CONTAINER_OF(source, struct fw_listener, source);
}

static inline struct fw_watch *fw_watch_of(struct fw_source *source)
{
    FW_ASSERT(source->kind == FW_SOURCE_WATCH);
    return FW_CONTAINER_OF(source, struct fw_watch, source);
}

/* Puts a listener that is READY, and not PAUSED or CLOSED, on the list for the next poll. */
static inline void fw_listener_remember(struct fw_listener *listener)
{
    struct fw_source *source = &listener->source;
    FW_ASSERT(fw_source_has(source, FW_SOURCE_READY));
    FW_ASSERT(!fw_source_has(source, FW_SOURCE_PAUSED | FW_SOURCE_CLOSED));
    fw_list_push_back(&source->reactor->ready, &source->ready_link);
}

/* The `closed` call-back may run, at the end of this round or the next. */
static inline void fw_source_release(struct fw_source *source)
{
    FW_ASSERT(source->flags == FW_SOURCE_CLOSED);
    fw_list_push_back(&source->reactor->closed, &source->ready_link);
}
