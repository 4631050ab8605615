/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds a whole server, with its threads and sockets, with arbitrary bytes on two connections.
 *
 * The first byte of the input says how large the pieces are that are sent, the second how they are
 * dealt out: each bit in turn chooses the connection. What must hold: however a client behaves, the
 * server closes its connection once the client has said its last word, and goes on to serve others.
 * The parsers have targets of their own that are quicker; here it is what lies between a socket and
 * a session that is looked for.
 *
 * Against the rules of tests/fuzz, a server is left running between inputs, since to start one
 * takes longer than a thousand inputs: what an input leaves in the cache is flushed by the next.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/thread.h"
#include "io/address.h"
#include "server/server.h"

enum { CLIENTS = 2, PATIENCE_MS = 20000, MEMORY = 16 << 20, ITEM_SIZE = 64 * 1024 };

static struct fw_server *server;
static struct fw_thread thread;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void serve(void *argument)
{
    fw_server_run(argument);
}

static void end(void)
{
    fw_server_stop(server);
    fw_thread_join(&thread);
    fw_server_destroy(server);
}

static void begin(void)
{
    static const char *listen[] = {"127.0.0.1:0"};
    const struct fw_server_config config = {
        .listen = {.items = listen, .count = 1},
        .backlog = 16,
        .memory = MEMORY,
        .item_size = ITEM_SIZE,
        .connections = 64,
        .threads = 2,
        .turn_commands = 7,
        .has_locking = true,
    };
    struct fw_reason reason;
    FW_ASSERT(fw_server_create(&server, &config, &reason) == 0);
    FW_ASSERT(fw_thread_create(&thread, "server", serve, server) == 0);
    (void)atexit(end);
}

static int connect_to_server(void)
{
    const struct fw_address *address = fw_server_address(server, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FW_ASSERT(fd >= 0);
    FW_ASSERT(connect(fd, &address->any, address->length) == 0);
    return fd;
}

/* Takes what has come. False: the server has closed. */
static bool drain(int fd, bool waits)
{
    char replies[65536];
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int count = poll(&ready, 1, waits ? PATIENCE_MS : 0);
    FW_ASSERT(count > 0 || !waits); /* Else the server does not close: a find. */
    return count == 0 || recv(fd, replies, sizeof replies, MSG_DONTWAIT) > 0;
}

/* Sends all of it, or as much as the server wants. */
static bool say(int fd, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            if (!drain(fd, true)) {
                return false;
            }
            continue;
        }
        if (sent <= 0) {
            return false;
        }
        bytes += sent;
        size -= (size_t)sent;
    }
    return drain(fd, false);
}

/* Another client, whom all of this does not concern. */
static void check_service(void)
{
    static const char question[] = "flush_all\r\nmn\r\n";
    static const char answer[] = "OK\r\nMN\r\n";
    char got[sizeof answer] = {0};
    int fd = connect_to_server();
    FW_ASSERT(send(fd, question, sizeof question - 1, MSG_NOSIGNAL) == sizeof question - 1);
    FW_ASSERT(recv(fd, got, sizeof answer - 1, MSG_WAITALL) == sizeof answer - 1);
    FW_ASSERT(memcmp(got, answer, sizeof answer) == 0);
    (void)close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (server == NULL) {
        begin();
    }
    if (size < 2) {
        return 0;
    }
    size_t piece = (size_t)data[0] * 16 + 1;
    int fds[CLIENTS];
    bool is_open[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = connect_to_server();
        is_open[i] = true;
    }
    uint32_t turn = 0;
    for (size_t at = 2; at < size; at += piece) {
        size_t length = size - at < piece ? size - at : piece;
        int client = data[1] >> (turn++ % 8) & 1;
        is_open[client] = is_open[client] && say(fds[client], data + at, length);
    }
    for (int i = 0; i < CLIENTS; i++) {
        (void)shutdown(fds[i], SHUT_WR);
        while (is_open[i]) {
            is_open[i] = drain(fds[i], true);
        }
        (void)close(fds[i]);
    }
    check_service();
    return 0;
}
