/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor's back end on io_uring: sends of one round leave in one system call. Everything else
 * is epoll's (reactor_epoll.h), and that is the outcome of trying, not the beginning.
 *
 * A request that the kernel cannot finish while it is being submitted belongs to the thread that
 * submitted it: only that thread can complete it. A thread that has passed its turn on and sits in
 * a file system call, where no signal reaches it, holds back every poll, receive and accept that it
 * ever started, and whoever has the turn waits in vain. (Tried: with each of no flags, COOP_TASKRUN
 * and TASKRUN_FLAG such a poll request is answered when the thread comes back and not before. Only
 * SQPOLL is free of it, for a kernel thread that spins. SINGLE_ISSUER and DEFER_TASKRUN refuse the
 * second thread altogether.) Passing the turn on around a call that blocks is what turns are for,
 * so nothing may be under way in the ring when wait() returns:
 *
 *   - whether a socket is ready is asked from epoll, which belongs to no thread;
 *   - sends are made with MSG_DONTWAIT, so that the kernel finishes each of them, with EAGAIN at
 *     worst, before io_uring_enter() returns. A full buffer is waited for by epoll again;
 *   - receives are made at once. As requests they were no faster, and the buffers of a whole round
 *     would be in use at the same time.
 *
 * This also means that there is nothing to cancel when a source is closed, that the completion
 * queue cannot overflow, that a completion cannot wait unseen, and that no socket, nor its port,
 * outlives the process in a ring.
 *
 * A round with few events has nothing to gain: its sends are made at once, as epoll's are, and a
 * lone request costs what it costs there. From BATCH_MIN events on, sends up to the next wait() are
 * queued, BATCH_MAX at most, beyond which they are made at once again. The price is that the first
 * reply of a round leaves with the last one.
 */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "io/reactor_epoll.h"

enum { BATCH_MIN = 16, BATCH_MAX = FW_EPOLL_EVENTS_MAX };

struct queued_send {
    struct fw_stream *stream; /* NULL if it was closed meanwhile. */
    struct io_uring_sqe *entry;
};

struct answered_send {
    struct fw_stream *stream; /* NULL if it was closed meanwhile. */
    int result;
};

struct uring_reactor {
    struct fw_epoll_reactor epoll; /* First, as struct fw_reactor is its first. */
    struct io_uring ring;
    bool is_batching; /* Since the last wait(). */
    unsigned queued_count;
    unsigned answered_count; /* What dispatch() has not told yet; none outside a poll. */
    struct queued_send queued[BATCH_MAX];
    struct answered_send answered[BATCH_MAX];
    struct msghdr messages[BATCH_MAX]; /* Of sends in several pieces; the kernel's until wait(). */
};

static struct uring_reactor *uring_of(struct fw_reactor *reactor)
{
    return FW_CONTAINER_OF(reactor, struct uring_reactor, epoll.reactor);
}

static int uring_create(struct fw_reactor **reactor, struct fw_reason *reason)
{
    struct uring_reactor *made = aligned_alloc(alignof(struct uring_reactor), sizeof *made);
    if (made == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot make a reactor");
    }
    made->is_batching = false;
    made->queued_count = 0;
    made->answered_count = 0;
    int rc = fw_epoll_init(&made->epoll, reason);
    if (rc != 0) {
        goto fail_epoll;
    }
    rc = io_uring_queue_init(BATCH_MAX, &made->ring, 0);
    if (rc != 0) {
        rc = fw_reason_errno(reason, rc,
                             "cannot make a reactor on io_uring (epoll works everywhere): "
                             "io_uring_setup()");
        goto fail_ring;
    }
    *reactor = &made->epoll.reactor;
    return 0;

fail_ring:
    fw_epoll_fini(&made->epoll);
fail_epoll:
    free(made);
    return rc;
}

static void uring_destroy(struct fw_reactor *reactor)
{
    struct uring_reactor *uring = uring_of(reactor);
    io_uring_queue_exit(&uring->ring);
    fw_epoll_fini(&uring->epoll);
    free(uring);
}

/* Has the kernel make the queued sends, all of them, and takes what came of each. */
static void uring_make_sends(struct uring_reactor *uring)
{
    struct io_uring_cqe *done;
    unsigned count = uring->queued_count;
    FW_ASSERT(uring->answered_count == 0);
    while (io_uring_sq_ready(&uring->ring) > 0) {
        int rc = io_uring_submit(&uring->ring);
        /* Without memory for a request the kernel takes fewer, or none, and is asked again. */
        FW_ASSERT(rc >= 0 || rc == -EAGAIN || rc == -ENOMEM || rc == -EINTR);
    }
    for (unsigned i = 0; i < count; i++) {
        /* None is waited for, see the top of the file. */
        while (io_uring_wait_cqe(&uring->ring, &done) != 0) {
        }
        uint64_t place = io_uring_cqe_get_data64(done);
        FW_ASSERT(place < count);
        uring->answered[place] =
            (struct answered_send){.stream = uring->queued[place].stream, .result = done->res};
        io_uring_cqe_seen(&uring->ring, done);
    }
    uring->answered_count = count;
    uring->queued_count = 0;
}

static void uring_wait(struct fw_reactor *reactor, int64_t timeout_ns)
{
    struct uring_reactor *uring = uring_of(reactor);
    if (uring->queued_count > 0) {
        uring_make_sends(uring); /* Before epoll is asked: an edge that follows EAGAIN is seen. */
        timeout_ns = 0;          /* There are answers to tell. */
    }
    fw_epoll_wait(reactor, timeout_ns);
    uring->is_batching = uring->epoll.event_count >= BATCH_MIN;
}

/* Tells what came of a send. Returns how many call-backs ran. */
static int stream_answer(struct fw_stream *stream, ssize_t result)
{
    struct fw_source *source = &stream->source;
    FW_ASSERT(fw_source_has(source, FW_EPOLL_SEND_QUEUED));
    fw_source_clear(source, FW_EPOLL_SEND_QUEUED);
    if (result == -EAGAIN) {
        int rc = fw_epoll_await_room(stream);
        if (rc == 0) {
            return 0;
        }
        result = rc;
    }
    fw_source_clear(source, FW_SOURCE_SENDING);
    stream->events->sent(stream, result);
    return 1;
}

static int uring_dispatch(struct fw_reactor *reactor)
{
    struct uring_reactor *uring = uring_of(reactor);
    int ran = 0;
    for (unsigned i = 0; i < uring->answered_count; i++) {
        struct fw_stream *stream = uring->answered[i].stream;
        if (stream != NULL) {
            ran += stream_answer(stream, uring->answered[i].result);
        }
    }
    uring->answered_count = 0;
    return ran + fw_epoll_dispatch(reactor);
}

static ssize_t uring_send(struct fw_stream *stream, const struct iovec *vector, int count)
{
    struct uring_reactor *uring = uring_of(stream->source.reactor);
    if (!uring->is_batching || uring->queued_count == BATCH_MAX) {
        return fw_epoll_send(stream, vector, count);
    }
    unsigned place = uring->queued_count++;
    struct io_uring_sqe *entry = io_uring_get_sqe(&uring->ring);
    FW_ASSERT(entry != NULL);
    int fd = stream->source.fd;
    if (count == 1) {
        io_uring_prep_send(entry, fd, vector->iov_base, vector->iov_len,
                           MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
        /* The kernel does not write through the vector; its type only forgot to say so. */
        struct iovec *pieces = (struct iovec *)(uintptr_t)vector;
        uring->messages[place] = (struct msghdr){.msg_iov = pieces, .msg_iovlen = (size_t)count};
        io_uring_prep_sendmsg(entry, fd, &uring->messages[place], MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    io_uring_sqe_set_data64(entry, place);
    uring->queued[place] = (struct queued_send){.stream = stream, .entry = entry};
    fw_source_set(&stream->source, FW_EPOLL_SEND_QUEUED);
    return -EINPROGRESS;
}

/* Forgets the send of a stream that ends, if it has one. Connections end rarely, so it searches. */
static void uring_forget(struct uring_reactor *uring, const struct fw_stream *stream)
{
    for (unsigned i = 0; i < uring->queued_count; i++) {
        if (uring->queued[i].stream == stream) {
            uring->queued[i].stream = NULL;
            io_uring_prep_nop(uring->queued[i].entry); /* Its place remains, to be answered. */
            io_uring_sqe_set_data64(uring->queued[i].entry, i); /* Older liburings clear it. */
        }
    }
    for (unsigned i = 0; i < uring->answered_count; i++) {
        if (uring->answered[i].stream == stream) {
            uring->answered[i].stream = NULL;
        }
    }
}

static void uring_close(struct fw_source *source)
{
    if (source->kind == FW_SOURCE_STREAM) {
        uring_forget(uring_of(source->reactor), fw_stream_of(source));
    }
    fw_epoll_close(source);
}

const struct fw_reactor_backend fw_reactor_uring = {
    .create = uring_create,
    .destroy = uring_destroy,
    .wait = uring_wait,
    .dispatch = uring_dispatch,
    .kick = fw_epoll_kick,
    .listener_open = fw_epoll_listener_open,
    .accept = fw_epoll_accept,
    .refuse = fw_epoll_refuse,
    .stream_open = fw_epoll_stream_open,
    .connect = fw_epoll_connect,
    .receive = fw_epoll_receive,
    .send = uring_send,
    .send_now = fw_epoll_send_now,
    .shutdown = fw_epoll_shutdown,
    .take = fw_epoll_take,
    .peer = fw_epoll_peer,
    .hold_back = fw_epoll_hold_back,
    .watch_open = fw_epoll_watch_open,
    .close = uring_close,
};
