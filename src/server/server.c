/* SPDX-License-Identifier: Apache-2.0 */
#include "server/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "cache/store.h"
#include "io/address.h"
#include "io/reactor.h"
#include "io/signal.h"
#include "server/connection.h"

enum { LISTENERS_MAX = 32 };

FW_LOG_MODULE(server);

struct listening {
    struct fw_listener listener;
    struct fw_server *server;
    bool paused; /* For want of descriptors or memory; goes on when a connection has closed. */
};

struct fw_server {
    struct fw_reactor *reactor;
    struct fw_old_store *store;
    struct fw_connections connections;
    struct fw_signals signals;
    bool signals_open;
    struct listening listening[LISTENERS_MAX];
    uint32_t listening_count;
    uint32_t open_count; /* Listeners and signals whose `closed` has not run. */
    atomic_bool stop;
};

static struct listening *listening_of(struct fw_listener *listener)
{
    return FW_CONTAINER_OF(listener, struct listening, listener);
}

static void listening_accepted(struct fw_listener *listener, int fd)
{
    struct listening *listening = listening_of(listener);
    if (fd < 0) {
        listening->paused = fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM || fd == -ENOBUFS;
        FW_LOG(server, WARNING, "cannot accept a connection: %s%s", strerrordesc_np(-fd),
               listening->paused ? "; waiting until one is closed" : "");
        return;
    }
    if (fw_connection_open(&listening->server->connections, fd) != 0) {
        /* A client too many is told so and closed, as memcached does it. */
        static char text[] = "ERROR Too many open connections\r\n";
        struct iovec words = {.iov_base = text, .iov_len = sizeof text - 1};
        fw_listener_refuse(listener, fd, &words);
    }
}

static void listening_closed(struct fw_listener *listener)
{
    listening_of(listener)->server->open_count--;
}

static const struct fw_listener_events listening_events = {
    .accepted = listening_accepted,
    .closed = listening_closed,
};

static void connection_gone(struct fw_connections *connections)
{
    struct fw_server *server = FW_CONTAINER_OF(connections, struct fw_server, connections);
    for (uint32_t i = 0; i < server->listening_count; i++) {
        if (server->listening[i].paused && !atomic_load(&server->stop)) {
            server->listening[i].paused = false;
            fw_listener_resume(&server->listening[i].listener);
        }
    }
}

static int listen_on(struct fw_server *server, const struct fw_server_config *config,
                     const struct fw_address *address, struct fw_reason *reason)
{
    if (server->listening_count == LISTENERS_MAX) {
        return fw_reason_set(reason, -E2BIG, "too many addresses to listen on, at most %d",
                             LISTENERS_MAX);
    }
    struct listening *listening = &server->listening[server->listening_count];
    listening->server = server;
    struct fw_listener_options options = {.backlog = (int)config->backlog,
                                          .mode = (mode_t)config->unix_mode};
    int rc = fw_listener_open(&listening->listener, server->reactor, address, &options,
                              &listening_events, reason);
    if (rc != 0) {
        return rc;
    }
    server->listening_count++;
    server->open_count++;
    char text[FW_ADDRESS_TEXT_SIZE];
    fw_address_format(&listening->listener.address, text);
    FW_LOG(server, NOTICE, "listening on %s", text);
    return 0;
}

/* Every address that `text` stands for. */
static int listen_on_text(struct fw_server *server, const struct fw_server_config *config,
                          const char *text, struct fw_reason *reason)
{
    struct fw_address addresses[LISTENERS_MAX];
    int count = fw_address_parse(text, (uint16_t)config->port, FW_ADDRESS_RESOLVE, addresses,
                                 LISTENERS_MAX, reason);
    int rc = count < 0 ? count : 0;
    for (int i = 0; i < count && rc == 0; i++) {
        rc = listen_on(server, config, &addresses[i], reason);
    }
    return rc;
}

static int listen_on_all(struct fw_server *server, const struct fw_server_config *config,
                         struct fw_reason *reason)
{
    int rc = 0;
    if (config->unix_socket != NULL) {
        rc = listen_on_text(server, config, config->unix_socket, reason);
    } else if (config->listen.count == 0) {
        rc = listen_on_text(server, config, "127.0.0.1", reason);
    }
    for (size_t i = 0; i < config->listen.count && rc == 0; i++) {
        rc = listen_on_text(server, config, config->listen.items[i], reason);
    }
    return rc;
}

int fw_server_create(struct fw_server **server, const struct fw_server_config *config,
                     struct fw_reason *reason)
{
    struct fw_server *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot start");
    }
    int rc = fw_old_store_create(&made->store, config->memory);
    if (rc != 0) {
        (void)fw_reason_errno(reason, rc, "cannot set %" PRIu64 " MiB of memory apart",
                              config->memory >> 20);
        goto no_store;
    }
    rc = fw_reactor_create(&made->reactor, reason);
    if (rc != 0) {
        goto no_reactor;
    }
    made->connections.reactor = made->reactor;
    made->connections.store = made->store;
    made->connections.item_size_max = (uint32_t)config->item_size;
    made->connections.closed = connection_gone;
    rc = fw_connections_init(&made->connections, (uint32_t)config->connections);
    if (rc != 0) {
        (void)fw_reason_errno(reason, rc, "cannot serve %" PRIu64 " connections",
                              config->connections);
        goto no_connections;
    }
    rc = listen_on_all(made, config, reason);
    if (rc != 0) {
        fw_server_destroy(made);
        return rc;
    }
    *server = made;
    return 0;

no_connections:
    fw_reactor_destroy(made->reactor);
no_reactor:
    fw_old_store_destroy(made->store);
no_store:
    free(made);
    return rc;
}

const struct fw_address *fw_server_address(const struct fw_server *server, uint32_t index)
{
    return index < server->listening_count ? &server->listening[index].listener.address : NULL;
}

void fw_server_stop(struct fw_server *server)
{
    /* Release, for the acquire in fw_server_run(). */
    atomic_store_explicit(&server->stop, true, memory_order_release);
    fw_reactor_wake(server->reactor);
}

static void signal_stop(struct fw_signals *signals, int number, pid_t sender)
{
    FW_LOG(server, NOTICE, "stopping: signal %s from process %d", sigabbrev_np(number),
           (int)sender);
    fw_server_stop(FW_CONTAINER_OF(signals, struct fw_server, signals));
}

static void signal_reopen(struct fw_signals *signals, int number, pid_t sender)
{
    (void)signals;
    (void)number;
    (void)sender;
    int rc = fw_log_reopen();
    if (rc != 0) {
        FW_LOG(server, ERROR, "cannot open the log's file again: %s", strerrordesc_np(-rc));
    }
}

static const struct fw_signal_event signal_events[] = {
    {.number = SIGTERM, .received = signal_stop},
    {.number = SIGINT, .received = signal_stop},
    {.number = SIGHUP, .received = signal_reopen},
};

void fw_server_signals_block(void)
{
    fw_signals_block(signal_events, FW_ARRAY_LENGTH(signal_events));
}

int fw_server_signals_open(struct fw_server *server, struct fw_reason *reason)
{
    int rc = fw_signals_open(&server->signals, server->reactor, signal_events,
                             FW_ARRAY_LENGTH(signal_events), reason);
    if (rc == 0) {
        server->signals_open = true;
        server->open_count++;
    }
    return rc;
}

static void signals_closed(struct fw_signals *signals)
{
    FW_CONTAINER_OF(signals, struct fw_server, signals)->open_count--;
}

static void close_all(struct fw_server *server)
{
    atomic_store(&server->stop, true);
    for (uint32_t i = 0; i < server->listening_count; i++) {
        fw_listener_close(&server->listening[i].listener);
    }
    if (server->signals_open) {
        fw_signals_close(&server->signals, signals_closed);
    }
    fw_connections_close(&server->connections);
    while (server->open_count > 0 || fw_pool_live_count(&server->connections.pool) > 0) {
        (void)fw_reactor_poll(server->reactor, -1);
    }
    server->listening_count = 0;
    server->signals_open = false;
}

void fw_server_run(struct fw_server *server)
{
    /* Acquire, for the release in fw_server_stop(). */
    while (!atomic_load_explicit(&server->stop, memory_order_acquire)) {
        (void)fw_reactor_poll(server->reactor, -1);
    }
    close_all(server);
}

void fw_server_destroy(struct fw_server *server)
{
    close_all(server);
    fw_connections_fini(&server->connections);
    fw_reactor_destroy(server->reactor);
    fw_old_store_destroy(server->store);
    free(server);
}
