/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/client.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    EVENTS_MAX = 256,
    INPUT_SIZE_MIN = 64 << 10,
    SILENCE_MAX_MS = 30000,
    EXCERPT_SIZE = 80,
};

struct fw_client_connection {
    int fd;
    struct fw_traffic_source source; /* Composes requests. */
    struct fw_traffic_reply reply;   /* Knows the replies. */
    uint64_t *composed_ns;           /* A ring of in_flight_max: when each request was composed. */
    uint32_t composed_at;            /* Where the oldest in flight stands. */
    uint32_t in_flight;
    char *input;
    size_t input_size, input_end;
    char *output;
    size_t output_begin, output_end;
};

static _Noreturn void fail(const char *what)
{
    (void)fprintf(stderr, "load: %s: %s\n", what, strerrordesc_np(errno));
    exit(EXIT_FAILURE);
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (memory == NULL) {
        fail("memory");
    }
    return memory;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int fw_client_connect(const char *host, const char *port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int rc = getaddrinfo(host, port, &hints, &found);
    if (rc != 0) {
        (void)fprintf(stderr, "load: %s: %s\n", host, gai_strerror(rc));
        exit(EXIT_FAILURE);
    }
    int yes = 1;
    int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) < 0) {
        fail("connect");
    }
    freeaddrinfo(found);
    return fd;
}

static void connection_open(struct fw_client *client, struct fw_client_connection *connection,
                            const char *host, const char *port)
{
    size_t piece_max = fw_traffic_piece_max(client->traffic);
    connection->input_size = 2 * piece_max > INPUT_SIZE_MIN ? 2 * piece_max : INPUT_SIZE_MIN;
    connection->input = allocate(1, connection->input_size);
    connection->output = allocate(client->in_flight_max, fw_traffic_request_max(client->traffic));
    connection->composed_ns = allocate(client->in_flight_max, sizeof(uint64_t));

    connection->fd = fw_client_connect(host, port);
    struct epoll_event event = {
        .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
        .data = {.ptr = connection},
    };
    if (fcntl(connection->fd, F_SETFL, O_NONBLOCK) < 0 ||
        epoll_ctl(client->poll_fd, EPOLL_CTL_ADD, connection->fd, &event) < 0) {
        fail("connection");
    }
}

void fw_client_open(struct fw_client *client, const struct fw_traffic *traffic, const char *host,
                    const char *port, uint32_t count, uint32_t in_flight_max)
{
    *client = (struct fw_client){
        .traffic = traffic,
        .poll_fd = epoll_create1(EPOLL_CLOEXEC),
        .count = count,
        .in_flight_max = in_flight_max,
        .piece_max = SIZE_MAX,
        .connections = allocate(count, sizeof(struct fw_client_connection)),
    };
    if (client->poll_fd < 0) {
        fail("epoll");
    }
    for (uint32_t i = 0; i < count; i++) {
        connection_open(client, &client->connections[i], host, port);
    }
}

void fw_client_close(struct fw_client *client)
{
    for (uint32_t i = 0; i < client->count; i++) {
        struct fw_client_connection *connection = &client->connections[i];
        (void)close(connection->fd);
        free(connection->input);
        free(connection->output);
        free(connection->composed_ns);
    }
    free(client->connections);
    (void)close(client->poll_fd);
}

/* What came instead of the reply that was due, so that a person can see what is wrong. */
static _Noreturn void fail_reply(const struct fw_traffic_reply *reply, const char *at,
                                 const char *end)
{
    (void)fprintf(stderr, "load: wrong reply to a %s, key number %08llx: \"",
                  reply->set ? "set" : "get", (unsigned long long)reply->key);
    for (int i = 0; i < EXCERPT_SIZE && at < end; i++, at++) {
        (void)fprintf(stderr, isprint((unsigned char)*at) ? "%c" : "\\x%02x", (unsigned char)*at);
    }
    (void)fprintf(stderr, "\"\n");
    exit(EXIT_FAILURE);
}

static bool phase_may_issue(const struct fw_client *client, const struct fw_client_phase *phase,
                            const struct fw_client_connection *connection)
{
    return phase->prefill ? connection->source.state < client->traffic->keys
                          : phase->issued < phase->requests;
}

/* Composes as many requests as may be in flight. */
static void connection_compose(const struct fw_client *client, struct fw_client_phase *phase,
                               struct fw_client_connection *connection, uint64_t at_ns)
{
    char *to = connection->output + connection->output_end;
    while (connection->in_flight < phase->in_flight && phase_may_issue(client, phase, connection)) {
        to = fw_traffic_compose(client->traffic, &connection->source, to);
        if (connection->in_flight == 0) {
            fw_traffic_expect(client->traffic, &connection->reply);
        }
        uint32_t slot = connection->composed_at + connection->in_flight;
        connection->composed_ns[slot % client->in_flight_max] = at_ns;
        connection->in_flight++;
        phase->issued++;
    }
    connection->output_end = (size_t)(to - connection->output);
}

static size_t smaller(size_t one, size_t other)
{
    return one < other ? one : other;
}

static void connection_send(const struct fw_client *client, struct fw_client_connection *connection)
{
    while (connection->output_begin < connection->output_end) {
        size_t length =
            smaller(connection->output_end - connection->output_begin, client->piece_max);
        ssize_t sent = send(connection->fd, connection->output + connection->output_begin, length,
                            MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EAGAIN) {
                return; /* EPOLLOUT brings us back. */
            }
            fail("send");
        }
        connection->output_begin += (size_t)sent;
    }
    connection->output_begin = 0;
    connection->output_end = 0;
}

/* Checks the replies that have arrived and keeps the rest. */
static void connection_check(const struct fw_client *client, struct fw_client_phase *phase,
                             struct fw_client_connection *connection, uint64_t at_ns)
{
    const char *at = connection->input;
    const char *end = connection->input + connection->input_end;
    while (at < end && connection->in_flight > 0) {
        ptrdiff_t size =
            fw_traffic_check(client->traffic, &connection->reply, at, end, &phase->counts);
        if (size <= 0) {
            if (size < 0) {
                fail_reply(&connection->reply, at, end);
            }
            break;
        }
        at += size;
        if (connection->reply.done) {
            fw_histogram_record(&phase->latency_ns,
                                at_ns - connection->composed_ns[connection->composed_at]);
            connection->composed_at = (connection->composed_at + 1) % client->in_flight_max;
            connection->in_flight--;
            if (connection->in_flight > 0) {
                fw_traffic_expect(client->traffic, &connection->reply);
            }
        }
    }
    if (at < end && connection->in_flight == 0) {
        fail_reply(&connection->reply, at, end); /* Nothing more was asked for. */
    }
    connection->input_end = (size_t)(end - at);
    memmove(connection->input, at, connection->input_end);
}

static void connection_run(const struct fw_client *client, struct fw_client_phase *phase,
                           struct fw_client_connection *connection, uint64_t at_ns)
{
    size_t room;
    ssize_t received;
    do {
        room = smaller(connection->input_size - connection->input_end, client->piece_max);
        received = recv(connection->fd, connection->input + connection->input_end, room, 0);
        if (received <= 0) {
            if (received < 0 && errno == EAGAIN) {
                break;
            }
            errno = received == 0 ? ECONNRESET : errno;
            fail("the server ended a connection");
        }
        connection->input_end += (size_t)received;
        connection_check(client, phase, connection, at_ns);
    } while ((size_t)received == room);

    /* While an earlier batch is stuck in the socket there is no room behind it for another. */
    if (connection->output_end == 0) {
        connection_compose(client, phase, connection, at_ns);
    }
    connection_send(client, connection);
}

static void phase_begin(struct fw_client *client, struct fw_client_phase *phase, uint64_t at_ns)
{
    phase->issued = 0;
    phase->counts = (struct fw_traffic_counts){0};
    fw_histogram_init(&phase->latency_ns);
    for (uint32_t i = 0; i < client->count; i++) {
        struct fw_client_connection *connection = &client->connections[i];
        connection->source =
            phase->prefill ? (struct fw_traffic_source){.state = i, .step = client->count}
                           : (struct fw_traffic_source){.state = phase->seed ^ ((uint64_t)i << 32)};
        connection->reply.source = connection->source;
        connection_compose(client, phase, connection, at_ns);
        connection_send(client, connection);
    }
}

void fw_client_run(struct fw_client *client, struct fw_client_phase *phase)
{
    uint64_t begin_ns = now_ns();
    phase_begin(client, phase, begin_ns);
    uint64_t at_ns = begin_ns;
    while (phase->counts.requests < phase->issued) {
        struct epoll_event events[EVENTS_MAX];
        int count = epoll_wait(client->poll_fd, events, EVENTS_MAX, SILENCE_MAX_MS);
        if (count == 0) {
            errno = ETIMEDOUT;
            fail("the server has stopped to answer");
        }
        for (int i = 0; i < count; i++) {
            at_ns = now_ns();
            if (at_ns - begin_ns >= phase->duration_ns) {
                phase->requests = 0; /* What is in flight is waited for. */
            }
            connection_run(client, phase, events[i].data.ptr, at_ns);
        }
    }
    phase->elapsed_ns = at_ns - begin_ns;
}
