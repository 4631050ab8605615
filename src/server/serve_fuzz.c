/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds a whole server, with its threads and sockets, with arbitrary bytes on two connections.
 *
 * The first byte of the input says how large the pieces are that are sent, the second how they are
 * dealt out: each bit in turn chooses the connection. The third says what manners each client has:
 * whether it leaves replies lying until the server takes no more, whether it hangs up at the end
 * instead of reading to the end, and whether it comes to the counters' address. What must hold:
 * however clients behave, the server closes their connections once they have said their last word,
 * and goes on to serve others.
 *
 * The parsers have targets of their own that are quicker and compare more; what is looked for here
 * lies between a socket and a session: input in parts, replies that are kept, closing half-way.
 *
 * A server is left running between inputs, since to start one takes longer than a thousand inputs.
 * What an input has left in the cache is flushed behind it, and what can be switched is switched
 * back; threads and the kernel decide the rest, so an input need not take the same way twice.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/thread.h"
#include "io/address.h"
#include "io/clock.h"
#include "server/server.h"

enum {
    CLIENTS = 2,
    HEADER = 3,
    INPUT_MAX = 64 * 1024,
    PATIENCE_MS = 20000,
    MEMORY_MIB = 16,
    ITEM_SIZE = 64 * 1024,
};

/* Of the third byte, once for each client. */
enum { IS_LAZY = 1, HANGS_UP = 2, COUNTS = 4, MANNERS_BITS = 3 };

struct client {
    int fd;
    bool is_open;
    unsigned manners;
};

static struct fw_server *server;
static struct fw_thread thread;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void serve(void *argument)
{
    (void)fw_server_run(argument);
}

static void end(void)
{
    fw_server_stop(server);
    fw_thread_join(&thread);
    fw_server_destroy(server);
}

static void begin(void)
{
    /* Not TCP: some thousand connections a second would use up the ports. And not a file, which
     * would stay behind if the fuzzer ends the program. */
    static char name[64];
    static char counters_name[64];
    static const char *counters_names[] = {counters_name};
    (void)snprintf(name, sizeof name, "unix:@fairway-fuzz-%d", (int)getpid());
    (void)snprintf(counters_name, sizeof counters_name, "unix:@fairway-fuzz-%d-counters",
                   (int)getpid());
    const struct fw_server_config config = {
        .unix_socket = name,
        .backlog = 16,
        .memory = (uint64_t)MEMORY_MIB << 20,
        .item_size = ITEM_SIZE,
        .connections = 64,
        .threads = 2,
        .turn_commands = 7,
        .has_locking = true,
        .counters = {.is_enabled = true,
                     .listen = {.items = counters_names, .count = 1},
                     .memory = 1 << 20,
                     .interval_ns = FW_NS_PER_S},
    };
    struct fw_reason reason;
    int rc = fw_server_create(&server, &config, &reason);
    FW_ASSERT(rc == 0);
    rc = fw_thread_create(&thread, "server", serve, server);
    FW_ASSERT(rc == 0);
    rc = atexit(end);
    FW_ASSERT(rc == 0);
}

/* To the address of that number. */
static int connect_to_server(uint32_t number)
{
    const struct fw_address *address = fw_server_address(server, number);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FW_ASSERT(fd >= 0);
    /* libFuzzer looks at its clock in a signal's handler, which interrupts this and poll(). */
    long rc = TEMP_FAILURE_RETRY(connect(fd, &address->any, address->length));
    FW_ASSERT(rc == 0);
    return fd;
}

/* Waits until one of these is so, for as long as a server may take; more is a find. */
static short await(int fd, short events)
{
    struct pollfd ready = {.fd = fd, .events = events};
    long count = TEMP_FAILURE_RETRY(poll(&ready, 1, PATIENCE_MS));
    FW_ASSERT(count > 0);
    return ready.revents;
}

/* Takes what has come. False: the server has closed. */
static bool drain(int fd)
{
    char replies[65536];
    ssize_t received = recv(fd, replies, sizeof replies, MSG_DONTWAIT);
    return received > 0 || (received < 0 && errno == EAGAIN);
}

/* Sends all of it, unless the server closes before. */
static void client_say(struct client *client, const uint8_t *bytes, size_t size)
{
    while (client->is_open && size > 0) {
        ssize_t sent = send(client->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            bytes += sent;
            size -= (size_t)sent;
        } else if (errno != EAGAIN) {
            client->is_open = false;
        } else if ((await(client->fd, POLLIN | POLLOUT) & POLLIN) != 0) {
            client->is_open = drain(client->fd);
        }
    }
    if (client->is_open && (client->manners & IS_LAZY) == 0) {
        client->is_open = drain(client->fd);
    }
}

static void client_leave(struct client *client)
{
    if ((client->manners & HANGS_UP) == 0) {
        (void)shutdown(client->fd, SHUT_WR);
        while (client->is_open) {
            (void)await(client->fd, POLLIN);
            client->is_open = drain(client->fd);
        }
    }
    (void)close(client->fd);
}

/* Another client, whom all of this does not concern. It also takes back what may have been set. */
static void check_service(void)
{
    static const char question[] = "flush_all\r\nverbosity 0\r\ncache_memlimit 16\r\n"
                                   "stats detail off\r\nmn\r\n";
    static const char answer[] = "OK\r\nOK\r\nOK\r\nOK\r\nMN\r\n";
    static_assert(MEMORY_MIB == 16, "as in the question");
    char got[sizeof answer] = {0};
    size_t length = 0;
    int fd = connect_to_server(0);
    ssize_t sent = send(fd, question, sizeof question - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    FW_ASSERT(sent == sizeof question - 1);
    while (length < sizeof answer - 1) {
        (void)await(fd, POLLIN);
        ssize_t received = recv(fd, got + length, sizeof answer - 1 - length, MSG_DONTWAIT);
        FW_ASSERT(received > 0);
        length += (size_t)received;
    }
    FW_ASSERT(memcmp(got, answer, sizeof answer) == 0);
    (void)close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEADER || size > INPUT_MAX) {
        return 0;
    }
    if (server == NULL) {
        begin();
    }
    size_t piece = (size_t)data[0] * 16 + 1;
    struct client clients[CLIENTS];
    for (unsigned i = 0; i < CLIENTS; i++) {
        unsigned manners = (unsigned)data[2] >> (i * MANNERS_BITS);
        clients[i] = (struct client){.fd = connect_to_server((manners & COUNTS) != 0 ? 1 : 0),
                                     .is_open = true,
                                     .manners = manners};
    }
    uint32_t turn = 0;
    for (size_t at = HEADER; at < size; at += piece) {
        size_t length = size - at < piece ? size - at : piece;
        client_say(&clients[data[1] >> (turn++ % 8) & 1], data + at, length);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        client_leave(&clients[i]);
    }
    check_service();
    return 0;
}
