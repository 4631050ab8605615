/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor: starts network operations and reports how they ended.
 *
 * It is written for completions, not for readiness, so that epoll, io_uring and the simulated
 * network fit behind the same calls. An operation is started by a function that answers in one of
 * two ways:
 *
 *   - the result, at once: bytes moved, 0 for the end of the stream, or a negative errno. Nothing
 *     else will be heard of this operation;
 *   - -EINPROGRESS: the call-back of that operation runs exactly once, later, from
 *     fw_reactor_poll(), with such a result. Never from inside the call that started it, so no
 *     caller meets itself on its own stack. Buffers stay untouched by the caller until then.
 *
 * Callers hand both answers to the same function of theirs. epoll mostly gives the first answer and
 * io_uring the second, and neither pays for the other.
 *
 * Waiting needs no buffer. fw_stream_wait() says "tell me when there is something to read"; only
 * then does the owner find a buffer and start a receive. Ten thousand idle connections hold no
 * buffers, and a scheduler can hold a flood back before its bytes are read.
 *
 * Fairness. Sockets are watched edge-triggered, so readiness is reported once and remembered here
 * until a receive comes back short. A stream that waits again while it is still known readable goes
 * to the tail of a list, which each poll serves once, after the streams that became readable since.
 * One busy socket therefore gets one turn per round, like all others.
 *
 * Ownership. Streams, listeners and watches are embedded in the caller's structs and stay there, at
 * the same address, from open until their `closed` call-back has run. Only after that call-back may
 * the memory be reused: events that the kernel had already queued for it are dropped before. After
 * close() no other call-back of that object runs. Call-backs may open, use and close any source,
 * their own too.
 *
 * Threads. A reactor belongs to a locality's turn, not to a thread: whoever holds the turn calls
 * it, one at a time, and a hand-over of the turn orders their memory. A call-back does not hand the
 * turn over: it runs inside poll(). Only fw_reactor_wake() may be called by anyone. Builds with
 * FW_CHECKS assert that two never meet inside.
 *
 * Why not libuv or libevent: both tie the loop to a thread, give every socket a buffer or a call
 * per readiness, and their timers and queues would stand beside ours.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/base.h"
#include "base/list.h"
#include "base/reason.h"
#include "io/address.h"
#include "io/socket.h"

struct fw_reactor;
struct fw_stream;
struct fw_listener;
struct fw_watch;

/* What all watched objects share; private to io/. */
struct fw_source {
    struct fw_reactor *reactor;
    struct fw_list_link ready_link; /* In a list of the reactor: remembered as ready, or closed. */
    int fd;
    uint8_t kind;
    uint16_t flags;
};

struct fw_stream_events {
    void (*readable)(struct fw_stream *stream);                 /* Answers fw_stream_wait(). */
    void (*received)(struct fw_stream *stream, ssize_t result); /* Answers fw_stream_receive(). */
    void (*sent)(struct fw_stream *stream, ssize_t result);     /* Answers fw_stream_send(). */
    void (*connected)(struct fw_stream *stream, int result);    /* Answers fw_stream_connect(). */
    void (*closed)(struct fw_stream *stream); /* The memory is the owner's again. */
};

/* A connected socket, or one that is being connected. All of it is private to io/. */
struct fw_stream {
    struct fw_source source;
    const struct fw_stream_events *events;
    /* The operations under way; buffers and vectors are the caller's. */
    void *receive_buffer;
    size_t receive_size;
    const struct iovec *send_vector;
    int send_count;
};

struct fw_listener_events {
    /*
     * A new connection: `fd` is the owner's now, non-blocking and close-on-exec; it is given to
     * fw_stream_open() or to fw_listener_refuse(). A negative `fd` is an error of accept(). Unless
     * it concerned that one connection only (-ECONNABORTED and the like), above all for want of
     * resources (-EMFILE, -ENFILE, -ENOMEM, -ENOBUFS), the listener has paused itself and goes on
     * at fw_listener_resume(), best called when a connection was closed.
     */
    void (*accepted)(struct fw_listener *listener, int fd);
    void (*closed)(struct fw_listener *listener);
};

struct fw_listener {
    struct fw_source source;
    const struct fw_listener_events *events;
    struct fw_address address; /* As bound: with the port the kernel chose for port 0. */
    struct fw_socket_file file;
};

/* Any other descriptor that can be polled: a signalfd, netlink, a library's socket. */
struct fw_watch {
    struct fw_source source;
    void (*ready)(struct fw_watch *watch); /* Can be read. Edge-triggered: read until -EAGAIN. */
    bool is_writer;                        /* Or can be written; see fw_watch_open_both(). */
    void (*closed)(struct fw_watch *watch);
};

/*
 * Says what reactors are made with from now on: "epoll", as they are without being told, or
 * "io_uring". For the start of the server, before the first reactor. Returns 0 or -EINVAL with the
 * reason; whether the machine has it is only seen when a reactor is made.
 */
FW_MUST_CHECK int fw_reactor_choose(const char *name, struct fw_reason *reason);

/*
 * Makes a reactor on the heap. Returns 0 or a negative errno with the reason (descriptors used up,
 * no memory, io_uring forbidden or not built in).
 */
FW_MUST_CHECK int fw_reactor_create(struct fw_reactor **reactor, struct fw_reason *reason);

/* All streams, listeners and watches must have been closed and reported so. */
void fw_reactor_destroy(struct fw_reactor *reactor);

/*
 * Waits at most `timeout_ns` (0: not at all; negative: until something happens; cheapest in whole
 * milliseconds) and runs the call-backs of what happened: every source gets one turn, then come
 * those of `closed`. Returns how many ran, which may be 0 before the time is over, after a wake for
 * example: callers loop. Does not wait while a source is remembered as ready or a `closed` is due.
 */
int fw_reactor_poll(struct fw_reactor *reactor, int64_t timeout_ns);

/*
 * The two halves of poll(), for a caller that has something to do in between, when it is awake but
 * no call-back has run: wait() only waits, dispatch() runs the call-backs. Always one after the
 * other.
 */
void fw_reactor_wait(struct fw_reactor *reactor, int64_t timeout_ns);
int fw_reactor_dispatch(struct fw_reactor *reactor);

/*
 * Makes the running or the next poll() return without waiting. Any thread, any time before destroy.
 * All that the caller wrote before is seen by whoever returns from that poll().
 */
void fw_reactor_wake(struct fw_reactor *reactor);

/*
 * Listens on `address`. A UNIX socket's file that a dead server left behind is replaced. Returns 0
 * or a negative errno with a reason that says what to do (the address is in use, the port needs
 * privileges, ...).
 */
FW_MUST_CHECK int fw_listener_open(struct fw_listener *listener, struct fw_reactor *reactor,
                                   const struct fw_address *address,
                                   const struct fw_listener_options *options,
                                   const struct fw_listener_events *events,
                                   struct fw_reason *reason);

/* No `accepted` until resume(); new connections wait in the backlog. Both may be called twice. */
void fw_listener_pause(struct fw_listener *listener);
void fw_listener_resume(struct fw_listener *listener);

/* Closes the connection that was just accepted, after a few last words, if the socket takes them.
 */
void fw_listener_refuse(struct fw_listener *listener, int fd, const struct iovec *words);

/* Where the connection that was just accepted comes from; as fw_stream_peer(). */
FW_MUST_CHECK int fw_listener_peer(const struct fw_listener *listener, int fd,
                                   struct fw_address *peer);

/* Stops listening, and removes a UNIX socket's file if it is still this listener's own. */
void fw_listener_close(struct fw_listener *listener);

/*
 * Takes the connected socket `fd` over. On failure (-ENOMEM, -ENOSPC) the descriptor is still the
 * caller's.
 */
FW_MUST_CHECK int fw_stream_open(struct fw_stream *stream, struct fw_reactor *reactor, int fd,
                                 const struct fw_stream_events *events);

/*
 * Opens a stream and connects it. -EINPROGRESS: `connected` follows, and nothing but close() is
 * called before. 0: connected already. Any other error, here or in `connected`: in the first case
 * nothing was opened, in the second the stream is closed by its owner as usual. -EAGAIN comes from
 * a UNIX socket whose backlog is full.
 */
FW_MUST_CHECK int fw_stream_connect(struct fw_stream *stream, struct fw_reactor *reactor,
                                    const struct fw_address *address,
                                    const struct fw_stream_events *events);

/*
 * Asks for one `readable` call-back, when bytes, the end or an error can be received. It may come
 * without any of them: then a receive answers -EINPROGRESS.
 */
void fw_stream_wait(struct fw_stream *stream);

/* Takes a wait back. Nothing happens if none is under way. */
void fw_stream_wait_cancel(struct fw_stream *stream);

/*
 * Receives up to `size` bytes, `size` > 0. One receive at a time, and none beside a wait. -EAGAIN
 * is never an answer: without data it is -EINPROGRESS.
 */
FW_MUST_CHECK ssize_t fw_stream_receive(struct fw_stream *stream, void *buffer, size_t size);

/*
 * Sends from `count` pieces (1 to FW_STREAM_SEND_MAX) and answers how many bytes were taken, which
 * may be fewer than all. One send at a time; the vector too stays the caller's until it is
 * answered.
 */
enum { FW_STREAM_SEND_MAX = 64 };
FW_MUST_CHECK ssize_t fw_stream_send(struct fw_stream *stream, const struct iovec *vector,
                                     int count);

/*
 * The same two for who has a buffer only now: they never leave anything under way, and answer
 * -EAGAIN where the others would have answered -EINPROGRESS. After it a receive is preceded by a
 * wait; a send is made again by fw_stream_send(), which waits for room. For the sake of many
 * connections that share one buffer: what is in it is gone when the caller returns.
 */
FW_MUST_CHECK ssize_t fw_stream_receive_now(struct fw_stream *stream, void *buffer, size_t size);
FW_MUST_CHECK ssize_t fw_stream_send_now(struct fw_stream *stream, const struct iovec *vector,
                                         int count);

/* No more will be sent, and no send is under way; the peer reads the end after what was sent. */
void fw_stream_shutdown(struct fw_stream *stream);

/* Ends the connection. Operations under way are forgotten; `closed` follows at the end of a poll.
 */
void fw_stream_close(struct fw_stream *stream);

/*
 * Takes the descriptor back, open, for a reactor elsewhere; who waits for something does not any
 * more. Nothing but a wait may be under way, and it is not called from a call-back: then the
 * reactor keeps no events, so the stream's memory is the owner's at once and no `closed` follows.
 * What had arrived is reported to the stream that is opened with it next.
 */
FW_MUST_CHECK int fw_stream_take(struct fw_stream *stream);

/*
 * Who is on the other side. Any thread, which knows by other means that the stream stays open
 * meanwhile. Returns 0, -ENOTCONN, or -EAFNOSUPPORT (not an address of ours).
 */
FW_MUST_CHECK int fw_stream_peer(const struct fw_stream *stream, struct fw_address *peer);

/*
 * The peer may be ahead by about twice `size` bytes, and waits with what is beyond. For who reads
 * slowly, much and among others: the kernel lets a peer be ahead by megabytes, and if that has
 * waited for room, the receive that makes some also does the peer's sending, all of it, before it
 * returns. A socket of the machine itself does so, and one of a network that shares the processor.
 */
void fw_stream_hold_back(struct fw_stream *stream, uint32_t size);

/*
 * Watches `fd`, which stays the caller's and is open until `closed` has run. Returns 0 or -ENOMEM,
 * -ENOSPC, -EPERM (a descriptor that cannot be polled).
 */
FW_MUST_CHECK int fw_watch_open(struct fw_watch *watch, struct fw_reactor *reactor, int fd,
                                void (*ready)(struct fw_watch *watch),
                                void (*closed)(struct fw_watch *watch));

/*
 * The same, and `ready` also comes when there is room to write again. Apart, because an eventfd has
 * room after every read.
 */
FW_MUST_CHECK int fw_watch_open_both(struct fw_watch *watch, struct fw_reactor *reactor, int fd,
                                     void (*ready)(struct fw_watch *watch),
                                     void (*closed)(struct fw_watch *watch));
void fw_watch_close(struct fw_watch *watch);
