/* SPDX-License-Identifier: Apache-2.0 */
#include "server/listen.h"

#include <errno.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "io/address.h"
#include "io/clock.h"
#include "io/process.h"
#include "server/server.h"
#include "server/state.h"

FW_LOG_MODULE_USE(server);

static struct fw_listening *listening_of(struct fw_listener *listener)
{
    return FW_CONTAINER_OF(listener, struct fw_listening, listener);
}

/* A figure that this thread alone writes. Relaxed: others only show it. */
static void figure_increment(_Atomic uint64_t *figure)
{
    atomic_store_explicit(figure, atomic_load_explicit(figure, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* Counts one more connection, if there may be one. */
static bool connection_count_up(struct fw_server *server)
{
    uint32_t count = atomic_load(&server->connection_count);
    if (count >= server->config.connections) {
        return false;
    }
    /* Only this thread counts up, so it cannot have become too many. */
    count = atomic_fetch_add(&server->connection_count, 1) + 1;
    if (count > atomic_load_explicit(&server->connection_peak, memory_order_relaxed)) {
        atomic_store_explicit(&server->connection_peak, count, memory_order_relaxed);
    }
    return true;
}

/* Makes a connection of the descriptor, on the next core. 0 or a negative errno. */
static int connection_start(struct fw_server *server, struct fw_listening *listening, int fd,
                            uint32_t tenant)
{
    struct fw_fom *fom;
    uint32_t place = server->next_home++ % fw_domain_locality_count(server->domain);
    int rc = fw_fom_create(&fom, server->domain, &server->connection_type,
                           fw_domain_locality(server->domain, place));
    if (rc != 0) {
        return rc;
    }
    struct fw_connection *connection = FW_FOM_OF(fom, struct fw_connection);
    server->next_client += server->next_client == UINT32_MAX ? 2 : 1; /* Never 0. */
    connection->listening = listening;
    connection->fd = fd;
    connection->counted = tenant;
    connection->needs_input = true;
    connection->term = atomic_load(&server->replication.term);
    connection->request.class = (struct fw_sched_class){.client = server->next_client, .cost = 1};
    atomic_init(&connection->active_ns, fw_clock_now_ns());
    fw_session_init(&connection->session, server->next_client);
    connection->session.protocol = (uint8_t)listening->protocol;
    fw_fom_start(fom);
    return 0;
}

/* Stops accepting until a connection has gone: there are as many as may be, or something is short.
 */
static void listening_pause(struct fw_listening *listening, bool is_full)
{
    struct fw_server *server = listening->server;
    if (server->paused_ns == 0) {
        server->paused_ns = server->retried_ns = fw_clock_now_ns();
        figure_increment(&server->paused_count);
    }
    listening->is_paused = true;
    fw_listener_pause(&listening->listener);
    /* Said first, then looked: see fw_server_connection_gone(). */
    atomic_store(&server->wants_room, true);
    FW_YIELD_POINT("server: wants room");
    if (is_full && atomic_load(&server->connection_count) < server->config.connections) {
        atomic_store(&server->has_room, true); /* One has gone meanwhile. */
        fw_reactor_wake(server->reactor);
    }
}

static void listening_refuse(struct fw_listening *listening, int fd)
{
    static char text[] = FW_LISTEN_REFUSAL;
    /* The protocol of counters has no words for that. */
    size_t length = listening->protocol == FW_PROTOCOL_COUNTERS ? 0 : sizeof text - 1;
    struct iovec words = {.iov_base = text, .iov_len = length};
    figure_increment(&listening->server->rejected_count);
    fw_listener_refuse(&listening->listener, fd, &words);
}

static void short_tell(struct fw_server *server, const char *whom, const char *why)
{
    int64_t now = fw_clock_now_ns();
    if (server->short_told_ns == 0 || now - server->short_told_ns >= FW_LISTEN_TELL_NS) {
        server->short_told_ns = now;
        FW_LOG(server, WARNING,
               "cannot accept %s: %s; trying again every second; if descriptors are short, raise "
               "the limit (ulimit -n, LimitNOFILE=) or lower --conn-limit",
               whom, why);
    }
}

void fw_listen_failed(struct fw_server *server, const char *whom, int error)
{
    server->short_ns = fw_clock_now_ns();
    short_tell(server, whom, strerrordesc_np(-error));
}

bool fw_listen_may_retry(const struct fw_server *server)
{
    return fw_clock_now_ns() - server->short_ns >= FW_LISTEN_RETRY_NS;
}

/* Whether an error of accept() is about all connections, not about one that was given up. */
static bool listening_is_short(int error)
{
    return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -ENOBUFS;
}

static void listening_pause_all(struct fw_server *server, bool is_full)
{
    for (uint32_t i = 0; i < server->listening_count; i++) {
        listening_pause(&server->listening[i], is_full);
    }
}

static void listening_accepted(struct fw_listener *listener, int fd)
{
    struct fw_listening *listening = listening_of(listener);
    struct fw_server *server = listening->server;
    if (fd < 0) {
        fw_listen_failed(server, "a connection", fd);
        if (listening_is_short(fd)) {
            listening_pause(listening, false);
        }
        return;
    }
    if (FW_UNLIKELY((uint64_t)fd >= server->files_max)) { /* The last, until one has gone. */
        short_tell(server, "connections", "the descriptors left are kept for administration");
        listening_pause_all(server, false);
    }
    figure_increment(&server->accepted_count);
    /* Counters are not replicated, and their protocol has no words for who is not master. */
    bool is_slaves_counter = listening->protocol == FW_PROTOCOL_COUNTERS &&
                             fw_replication_refuses_reads(&server->replication);
    if (FW_UNLIKELY(fw_replication_refuses(&server->replication) || is_slaves_counter)) {
        struct iovec nothing = {.iov_base = NULL, .iov_len = 0};
        figure_increment(&server->rejected_count);
        fw_listener_refuse(listener, fd, &nothing);
        return;
    }
    if (!connection_count_up(server)) {
        listening_refuse(listening, fd);
        return;
    }
    uint32_t tenant = fw_tenancy_of_accepted(server, listener, fd);
    bool has_place = fw_quota_take(&server->quota, tenant);
    if (!has_place || connection_start(server, listening, fd, tenant) != 0) {
        listening_refuse(listening, fd);
        if (has_place) {
            fw_quota_put(&server->quota, tenant);
        }
        atomic_fetch_sub(&server->connection_count, 1);
        return;
    }
    if (!server->config.refuses_fast &&
        atomic_load(&server->connection_count) >= server->config.connections) {
        listening_pause_all(server, true);
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

int64_t fw_listen_patience_ns(const struct fw_server *server)
{
    bool is_paused = server->paused_ns != 0 || fw_admin_is_paused(server) ||
                     fw_replication_is_paused(&server->replication);
    return is_paused ? FW_LISTEN_RETRY_NS : -1;
}

void fw_listen_resume(struct fw_server *server)
{
    if (FW_LIKELY(server->paused_ns == 0)) {
        return;
    }
    bool is_full = !server->config.refuses_fast &&
                   atomic_load(&server->connection_count) >= server->config.connections;
    int64_t now = fw_clock_now_ns();
    bool is_due = atomic_load(&server->has_room) || now - server->retried_ns >= FW_LISTEN_RETRY_NS;
    if (is_full || !is_due) {
        return;
    }
    server->retried_ns = now;
    atomic_store(&server->has_room, false);
    if (server->config.descriptors > 0 && !fw_process_has_files(server->files_max)) {
        return;
    }
    atomic_store(&server->wants_room, false);
    uint64_t us = (uint64_t)(now - server->paused_ns) / 1000;
    server->paused_ns = 0;
    /* Relaxed: a figure, and this thread's alone to write. */
    atomic_fetch_add_explicit(&server->paused_us, us, memory_order_relaxed);
    for (uint32_t i = 0; i < server->listening_count; i++) {
        if (server->listening[i].is_paused) {
            server->listening[i].is_paused = false;
            fw_listener_resume(&server->listening[i].listener);
        }
    }
}

static int listen_on(struct fw_server *server, const struct fw_address *address,
                     enum fw_protocol protocol, struct fw_reason *reason)
{
    if (server->listening_count == FW_LISTENERS_MAX) {
        return fw_reason_set(reason, -E2BIG, "too many addresses to listen on, at most %d",
                             FW_LISTENERS_MAX);
    }
    struct fw_listening *listening = &server->listening[server->listening_count];
    listening->server = server;
    listening->protocol = protocol;
    struct fw_listener_options options = {.backlog = (int)server->config.backlog,
                                          .mode = (mode_t)server->config.unix_mode};
    int rc = fw_listener_open(&listening->listener, server->reactor, address, &options,
                              &listening_events, reason);
    if (rc != 0) {
        return rc;
    }
    server->listening_count++;
    server->open_count++;
    char text[FW_ADDRESS_TEXT_SIZE];
    fw_address_format(&listening->listener.address, text);
    FW_LOG(server, NOTICE, "listening on %s%s", text,
           protocol == FW_PROTOCOL_COUNTERS ? " for counters" : "");
    return 0;
}

/* Every address that `text` stands for. */
static int listen_on_text(struct fw_server *server, const char *text, enum fw_protocol protocol,
                          struct fw_reason *reason)
{
    struct fw_address addresses[FW_LISTENERS_MAX];
    uint64_t port =
        protocol == FW_PROTOCOL_COUNTERS ? server->config.counters.port : server->config.port;
    int count = fw_address_parse(text, (uint16_t)port, FW_ADDRESS_RESOLVE, addresses,
                                 FW_LISTENERS_MAX, reason);
    int rc = count < 0 ? count : 0;
    for (int i = 0; i < count && rc == 0; i++) {
        rc = listen_on(server, &addresses[i], protocol, reason);
    }
    return rc;
}

/* Every text of the list, or this machine's own address if it is empty. */
static int listen_on_list(struct fw_server *server, const struct fw_option_list *list,
                          enum fw_protocol protocol, struct fw_reason *reason)
{
    if (list->count == 0) {
        return listen_on_text(server, "127.0.0.1", protocol, reason);
    }
    int rc = 0;
    for (size_t i = 0; i < list->count && rc == 0; i++) {
        rc = listen_on_text(server, list->items[i], protocol, reason);
    }
    return rc;
}

uint64_t fw_server_files_kept(uint64_t descriptors)
{
    uint64_t part = descriptors / FW_LISTEN_RESERVE_PART;
    return descriptors > 0 && part < FW_LISTEN_RESERVE ? part : FW_LISTEN_RESERVE;
}

int fw_listen_open(struct fw_server *server, struct fw_reason *reason)
{
    const struct fw_server_config *config = &server->config;
    server->files_max = config->descriptors > 0
                            ? config->descriptors - fw_server_files_kept(config->descriptors)
                            : UINT64_MAX;
    int rc = 0;
    if (config->unix_socket != NULL) {
        rc = listen_on_text(server, config->unix_socket, FW_PROTOCOL_UNKNOWN, reason);
    }
    if (rc == 0 && (config->unix_socket == NULL || config->listen.count > 0)) {
        rc = listen_on_list(server, &config->listen, FW_PROTOCOL_UNKNOWN, reason);
    }
    if (rc == 0 && config->counters.is_enabled) {
        rc = listen_on_list(server, &config->counters.listen, FW_PROTOCOL_COUNTERS, reason);
    }
    return rc;
}

void fw_listen_close(struct fw_server *server)
{
    if (server->is_listening_over) {
        return;
    }
    server->is_listening_over = true;
    for (uint32_t i = 0; i < server->listening_count; i++) {
        fw_listener_close(&server->listening[i].listener);
    }
}
