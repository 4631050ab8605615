/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit: the least that a server on epoll can do. One thread, one loop, edge-triggered; per
 * readiness one recv(), all requests in it answered (bench/responder.h), one send(). No call-backs,
 * no lists, no timers, no fairness: a connection that always has more to read keeps the loop.
 *
 * bench/reactor_server.c does the same work through io/reactor, and the difference between the two
 * is what the reactor costs. Keep this file as small as it is: a slow limit would flatter us, which
 * is why bench/run also reports how it compares with memcached.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "bench/arguments.h"
#include "bench/responder.h"

enum { EVENTS_MAX = 256, BACKLOG = 1024, DESCRIPTORS_MAX = 1 << 16 };

static struct fw_responder responder;
static struct fw_responder_session *sessions[DESCRIPTORS_MAX]; /* By descriptor; NULL if idle. */

static _Noreturn void die(const char *what)
{
    perror(what);
    exit(EXIT_FAILURE);
}

static int listen_on(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int yes = 1;
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons(port),
        .sin_addr = {htonl(INADDR_LOOPBACK)},
    };
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) < 0 ||
        bind(fd, (const struct sockaddr *)&address, sizeof address) < 0 ||
        listen(fd, BACKLOG) < 0) {
        die("listen");
    }
    return fd;
}

static void watch(int poll_fd, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data = {.fd = fd}};
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        die("epoll_ctl");
    }
}

static void accept_all(int poll_fd, int listen_fd)
{
    int fd;
    while ((fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        int yes = 1;
        if (fd >= DESCRIPTORS_MAX ||
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) < 0) {
            die("accept");
        }
        watch(poll_fd, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    }
    if (errno != EAGAIN && errno != ECONNABORTED) {
        die("accept");
    }
}

enum flow { GOES_ON, BLOCKED, ENDED };

/* Answers and sends until nothing complete is left. */
static enum flow reply(int fd, struct fw_responder_session *session)
{
    size_t size;
    while ((size = fw_responder_answer(&responder, session)) > 0) {
        ssize_t sent = send(fd, session->output + session->output_begin, size, MSG_NOSIGNAL);
        if (sent < 0) {
            return errno == EAGAIN ? BLOCKED : ENDED;
        }
        session->output_begin += (size_t)sent;
    }
    return session->closing ? ENDED : GOES_ON;
}

static enum flow receive_and_reply(int fd, struct fw_responder_session *session)
{
    if (session->output_begin < session->output_end) {
        enum flow flow = reply(fd, session);
        if (flow != GOES_ON) {
            return flow;
        }
    }
    ssize_t received;
    size_t size;
    do {
        char *place = fw_responder_place(session, &size);
        received = recv(fd, place, size, 0);
        if (received <= 0) {
            return received < 0 && errno == EAGAIN ? GOES_ON : ENDED;
        }
        session->input_end += (size_t)received;
        enum flow flow = reply(fd, session);
        if (flow != GOES_ON) {
            return flow;
        }
    } while ((size_t)received == size); /* Less than asked for: there is no more for now. */
    return GOES_ON;
}

static void serve(int fd)
{
    struct fw_responder_session *session = sessions[fd];
    if (session == NULL) {
        session = fw_responder_take(&responder);
        if (session == NULL) {
            die("session");
        }
    }
    enum flow flow = receive_and_reply(fd, session);
    bool keeps = flow != ENDED && !fw_responder_is_idle(session);
    sessions[fd] = keeps ? session : NULL;
    if (!keeps) {
        fw_responder_give(&responder, session);
    }
    if (flow == ENDED) {
        (void)close(fd);
    }
}

int main(int argc, char **argv)
{
    uint64_t port = 11211;
    uint64_t items = 1 << 20;
    uint64_t memory_mib = 1024;
    const struct fw_argument table[] = {
        {.name = "port", .help = "on 127.0.0.1", .number = &port, .min = 1, .max = UINT16_MAX},
        {.name = "items", .help = "limit", .number = &items, .min = 1, .max = 1 << 28},
        {.name = "memory", .help = "MiB", .number = &memory_mib, .min = 1, .max = 32 << 10},
    };
    fw_arguments_parse(argc, argv, table, FW_ARRAY_LENGTH(table));
    if (!fw_responder_init(&responder, items, memory_mib << 20)) {
        die("memory");
    }
    int listen_fd = listen_on((uint16_t)port);
    int poll_fd = epoll_create1(EPOLL_CLOEXEC);
    watch(poll_fd, listen_fd, EPOLLIN);

    for (;;) {
        struct epoll_event events[EVENTS_MAX];
        int count = epoll_wait(poll_fd, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listen_fd) {
                accept_all(poll_fd, listen_fd);
            } else {
                serve(fd);
            }
        }
    }
}
