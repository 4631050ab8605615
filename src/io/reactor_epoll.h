/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the back end on io_uring takes over from the one on epoll; nobody else includes this.
 *
 * That is everything but sends: see reactor_uring.c for why. The functions are rows of the table in
 * reactor_backend.h, under the same names, unless a comment says more.
 */
#pragma once

#include <sys/epoll.h>

#include "base/base.h"
#include "base/reason.h"
#include "io/reactor_backend.h"

enum { FW_EPOLL_EVENTS_MAX = 256 }; /* Per round; what is beyond stays with the kernel. */

enum fw_epoll_flag {
    FW_EPOLL_UNSURE = FW_SOURCE_BACKEND, /* A short receive does not prove that nothing is left. */
    FW_EPOLL_WRITE_WATCHED = FW_SOURCE_BACKEND << 1,
    FW_EPOLL_SEND_QUEUED = FW_SOURCE_BACKEND << 2, /* io_uring's: SENDING, but not tried yet. */
};

struct fw_epoll_reactor {
    struct fw_reactor reactor; /* First, see reactor_backend.h. */
    int epoll_fd;
    int event_count;
    struct fw_source wake_source; /* Its descriptor is the eventfd. */
    struct epoll_event events[FW_EPOLL_EVENTS_MAX];
};

static inline struct fw_epoll_reactor *fw_epoll_of(struct fw_reactor *reactor)
{
    return FW_CONTAINER_OF(reactor, struct fw_epoll_reactor, reactor);
}

/* All but the memory of a reactor, which belongs to who calls them. */
FW_MUST_CHECK int fw_epoll_init(struct fw_epoll_reactor *epoll, struct fw_reason *reason);
void fw_epoll_fini(struct fw_epoll_reactor *epoll);

void fw_epoll_wait(struct fw_reactor *reactor, int64_t timeout_ns);
int fw_epoll_dispatch(struct fw_reactor *reactor);
void fw_epoll_kick(struct fw_reactor *reactor);
int fw_epoll_listener_open(struct fw_listener *listener, const struct fw_address *address,
                           const struct fw_listener_options *options, struct fw_reason *reason);
int fw_epoll_accept(struct fw_listener *listener);
void fw_epoll_refuse(int fd, const struct iovec *words);
int fw_epoll_stream_open(struct fw_stream *stream, int fd);
int fw_epoll_connect(struct fw_stream *stream, const struct fw_address *address);
ssize_t fw_epoll_receive(struct fw_stream *stream, void *buffer, size_t size);
ssize_t fw_epoll_send(struct fw_stream *stream, const struct iovec *vector, int count);
ssize_t fw_epoll_send_now(struct fw_stream *stream, const struct iovec *vector, int count);
void fw_epoll_shutdown(struct fw_stream *stream);
void fw_epoll_take(struct fw_stream *stream);
int fw_epoll_peer(int fd, struct fw_address *peer);
void fw_epoll_hold_back(struct fw_stream *stream, uint32_t size);
int fw_epoll_watch_open(struct fw_watch *watch, int fd);
void fw_epoll_close(struct fw_source *source);

/*
 * A send has found the buffer full: dispatch() tries it again when there is room. Returns 0 or a
 * negative errno, which is then the answer to the send.
 */
FW_MUST_CHECK int fw_epoll_await_room(struct fw_stream *stream);
