/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor on io_uring beside the reactor on epoll: what a request costs the server's thread,
 * in rounds of a known size. A client thread sends one request on each connection, only then does
 * the server poll until it has answered all, and the client takes the replies. So the size of a
 * round is what the benchmark says and not what the machine's load makes of it; a benchmark of
 * whole servers cannot know it. The hand-over between the two threads, the same on both sides, is
 * part of what is measured.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/base.h"
#include "base/reason.h"
#include "base/thread.h"
#include "bench/harness.h"
#include "io/reactor.h"

enum {
    CONNECTIONS = 50,
    REQUEST_SIZE = 45, /* A get of a key of 32 bytes, with room to spare, and ... */
    REPLY_SIZE = 140,  /* ... its reply with a value of 100 bytes. */
    PIPELINE_MAX = 16,
};

struct connection {
    struct fw_stream stream;
    struct side *side;
    int other; /* The client's end. */
    struct iovec reply;
    char received[REQUEST_SIZE * PIPELINE_MAX + 1]; /* One more, so that a receive is short. */
};

/* One reactor with its connections. */
struct side {
    struct fw_reactor *reactor;
    struct connection connections[CONNECTIONS];
    int answered; /* In this round. */
};

/* A side and the rounds it is used for. */
struct load {
    struct side *side;
    int connections;
    int pipeline; /* Requests on each connection at once. */
};

static char reply_bytes[REPLY_SIZE * PIPELINE_MAX];

/* What the client does in the next round; guarded by who was unparked last. */
static struct load current;
static struct fw_parker client_parker, server_parker;
static bool is_ending;

static _Noreturn void die(const char *what)
{
    (void)fprintf(stderr, "reactor_uring_bench: %s\n", what);
    exit(EXIT_FAILURE); /* NOLINT(concurrency-mt-unsafe): nobody else exits. */
}

static struct connection *connection_of(struct fw_stream *stream)
{
    return FW_CONTAINER_OF(stream, struct connection, stream);
}

static void connection_sent(struct fw_stream *stream, ssize_t result)
{
    struct connection *connection = connection_of(stream);
    FW_ASSERT(result == (ssize_t)connection->reply.iov_len);
    connection->side->answered++;
    fw_stream_wait(stream);
}

static void connection_readable(struct fw_stream *stream)
{
    struct connection *connection = connection_of(stream);
    ssize_t received = fw_stream_receive(stream, connection->received, sizeof connection->received);
    FW_ASSERT(received > 0 && received % REQUEST_SIZE == 0);
    connection->reply = (struct iovec){
        .iov_base = reply_bytes,
        .iov_len = (size_t)received / REQUEST_SIZE * REPLY_SIZE,
    };
    ssize_t sent = fw_stream_send(stream, &connection->reply, 1);
    if (sent != -EINPROGRESS) {
        connection_sent(stream, sent);
    }
}

static const struct fw_stream_events stream_events = {
    .readable = connection_readable,
    .sent = connection_sent,
};

static int socket_create(void)
{
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
        die("cannot make a socket");
    }
    return fd;
}

static void side_open(struct side *side, const char *backend)
{
    struct fw_reason reason;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    if (fw_reactor_choose(backend, &reason) != 0 ||
        fw_reactor_create(&side->reactor, &reason) != 0) {
        die(reason.text);
    }
    int listener = socket_create(); /* What it accepts inherits TCP_NODELAY. */
    if (bind(listener, (struct sockaddr *)&address, length) != 0 ||
        listen(listener, CONNECTIONS) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0) {
        die("cannot listen");
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *connection = &side->connections[i];
        connection->side = side;
        connection->other = socket_create();
        if (connect(connection->other, (struct sockaddr *)&address, length) != 0) {
            die("cannot connect");
        }
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 || fw_stream_open(&connection->stream, side->reactor, fd, &stream_events) != 0) {
            die("cannot accept");
        }
        fw_stream_wait(&connection->stream);
    }
    (void)close(listener);
}

static void client_send(void)
{
    static const char requests[REQUEST_SIZE * PIPELINE_MAX];
    ssize_t size = (ssize_t)current.pipeline * REQUEST_SIZE;
    for (int i = 0; i < current.connections; i++) {
        if (send(current.side->connections[i].other, requests, (size_t)size, 0) != size) {
            die("cannot send");
        }
    }
}

static void client_receive(void)
{
    static char replies[sizeof reply_bytes];
    size_t size = (size_t)current.pipeline * REPLY_SIZE;
    for (int i = 0; i < current.connections; i++) {
        int fd = current.side->connections[i].other;
        if (recv(fd, replies, size, MSG_WAITALL) != (ssize_t)size) {
            die("cannot receive");
        }
    }
}

static void client_run(void *argument)
{
    (void)argument;
    for (;;) {
        fw_park(&client_parker);
        if (is_ending) {
            return;
        }
        client_send();
        fw_unpark(&server_parker);
        fw_park(&client_parker);
        client_receive();
        fw_unpark(&server_parker);
    }
}

static void server_round(const struct load *load)
{
    current = *load;
    load->side->answered = 0;
    fw_unpark(&client_parker);
    fw_park(&server_parker);
    while (load->side->answered < load->connections) {
        (void)fw_reactor_poll(load->side->reactor, -1);
    }
    fw_unpark(&client_parker);
    fw_park(&server_parker);
}

/* `count` requests, in rounds. */
static void load_run(void *state, uint64_t count)
{
    const struct load *load = state;
    uint64_t per_round = (uint64_t)load->connections * (uint64_t)load->pipeline;
    for (uint64_t done = 0; done < count; done += per_round) {
        server_round(load);
    }
}

int main(int argc, char **argv)
{
    static struct side uring, epoll;
    side_open(&uring, "io_uring");
    side_open(&epoll, "epoll");
    struct load lone[] = {{&uring, 1, 1}, {&epoll, 1, 1}};
    struct load busy[] = {{&uring, CONNECTIONS, 1}, {&epoll, CONNECTIONS, 1}};
    struct load full[] = {{&uring, CONNECTIONS, PIPELINE_MAX}, {&epoll, CONNECTIONS, PIPELINE_MAX}};
    const struct fw_bench benches[] = {
        {.name = "io-reactor_uring-lone",
         .unit = "ns per request, one ready connection",
         .ours = {"io_uring", load_run, &lone[0]},
         .peer = {"epoll", load_run, &lone[1]},
         .bar = 1.05,
         .count = 2000},
        {.name = "io-reactor_uring-busy",
         .unit = "ns per request, 50 ready connections",
         .ours = {"io_uring", load_run, &busy[0]},
         .peer = {"epoll", load_run, &busy[1]},
         .bar = 1.0,
         .count = 10000},
        {.name = "io-reactor_uring-full",
         .unit = "ns per request, 50 ready connections with 16 requests each",
         .ours = {"io_uring", load_run, &full[0]},
         .peer = {"epoll", load_run, &full[1]},
         .bar = 1.0,
         .count = 160000},
    };
    struct fw_thread client;
    fw_parker_init(&client_parker);
    fw_parker_init(&server_parker);
    if (fw_thread_create(&client, "client", client_run, NULL) != 0) {
        die("cannot start the client");
    }
    int status = fw_bench_main(argc, argv, benches, FW_ARRAY_LENGTH(benches));
    is_ending = true;
    fw_unpark(&client_parker);
    fw_thread_join(&client);
    return status;
}
