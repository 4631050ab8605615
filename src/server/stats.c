/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `stats` shows of the server, under memcached's names. What the cache counts it shows itself.
 *
 * All of it runs on the turn of the connection that asks, or on a worker for an administrator; what
 * belongs to others is read from atomics, or in the steps of a walk (crowd.h).
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/version.h"
#include "engine/core.h"
#include "io/address.h"
#include "io/clock.h"
#include "io/process.h"
#include "server/state.h"
#include "server/stats_parts.h"
#include "server/stats_tenants.h"

enum { VALUE_SIZE = 256, NAME_SIZE = 64, US_PER_S = 1000000 };

/* Where the rows go. */
struct rows {
    const struct fw_server *server;
    fw_stat_emit emit;
    void *context;
};

FW_PRINTF(3, 4)
static void row(const struct rows *rows, const char *name, const char *format, ...)
{
    char value[VALUE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    rows->emit(rows->context, name, value);
}

static void row_number(const struct rows *rows, const char *name, uint64_t value)
{
    row(rows, name, "%" PRIu64, value);
}

static void row_yes(const struct rows *rows, const char *name, bool value)
{
    row(rows, name, "%s", value ? "yes" : "no");
}

static void row_time(const struct rows *rows, const char *name, int64_t us)
{
    row(rows, name, "%" PRId64 ".%06" PRId64, us / US_PER_S, us % US_PER_S);
}

/* Relaxed, in both: figures. */
static uint64_t figure(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static uint64_t figure_since(const _Atomic uint64_t *value, const _Atomic uint64_t *before)
{
    return figure(value) - figure(before);
}

/* ---- sums over the cores ------------------------------------------------------------------- */

/* Of each counter of struct fw_metrics_server, in the order of its members. */
static void counters_sum(const struct fw_server *server, uint64_t sums[static FW_SERVER_COUNTERS])
{
    memset(sums, 0, FW_SERVER_COUNTERS * sizeof *sums);
    for (uint32_t i = 0; i < server->core_count; i++) {
        const struct fw_counter *counters = &server->cores[i]->metrics->turns;
        for (size_t j = 0; j < FW_SERVER_COUNTERS; j++) {
            sums[j] += fw_counter_get(&counters[j]);
        }
    }
}

static_assert(offsetof(struct fw_metrics_server, login_kicks) -
                      offsetof(struct fw_metrics_server, turns) ==
                  (FW_SERVER_COUNTERS - 1) * sizeof(struct fw_counter),
              "they are summed as an array");

static uint64_t counter_since(const struct rows *rows, const uint64_t *sums, size_t offset)
{
    size_t place = (offset - offsetof(struct fw_metrics_server, turns)) / sizeof(struct fw_counter);
    return sums[place] - figure(&rows->server->counted_before[place]);
}

#define ROW_COUNTER(rows, sums, field, name) \
    row_number(rows, name, counter_since(rows, sums, offsetof(struct fw_metrics_server, field)))

void fw_server_stats_reset(void *context)
{
    struct fw_server *server = context;
    uint64_t sums[FW_SERVER_COUNTERS];
    counters_sum(server, sums);
    /* Relaxed: figures. */
    for (size_t i = 0; i < FW_SERVER_COUNTERS; i++) {
        atomic_store_explicit(&server->counted_before[i], sums[i], memory_order_relaxed);
    }
    atomic_store_explicit(&server->accepted_before, figure(&server->accepted_count),
                          memory_order_relaxed);
    atomic_store_explicit(&server->rejected_before, figure(&server->rejected_count),
                          memory_order_relaxed);
    atomic_store_explicit(&server->paused_before, figure(&server->paused_count),
                          memory_order_relaxed);
}

/* ---- groups -------------------------------------------------------------------------------- */

static void rows_process(const struct rows *rows)
{
    const struct fw_server *server = rows->server;
    struct fw_process_usage usage = fw_process_usage();
    int64_t uptime_s = (fw_clock_now_ns() - server->start_ns) / FW_NS_PER_S;
    row(rows, "pid", "%d", (int)fw_process_id());
    row(rows, "uptime", "%" PRId64, uptime_s);
    row(rows, "time", "%" PRId64, server->start_wall_s + uptime_s);
    row(rows, "version", "%s", FW_CACHE_VERSION);
    row_number(rows, "pointer_size", 8 * sizeof(void *));
    row_time(rows, "rusage_user", usage.user_us);
    row_time(rows, "rusage_system", usage.system_us);
}

static void row_large(const struct fw_metric_value *value, void *context)
{
    row_number(context, value->name,
               value->row->type == FW_METRIC_TYPE_COUNTER ? value->counter
                                                          : (uint64_t)value->gauge);
}

static void rows_general(const struct rows *rows)
{
    const struct fw_server *server = rows->server;
    uint64_t sums[FW_SERVER_COUNTERS];
    counters_sum(server, sums);
    rows_process(rows);
    row_number(rows, "max_connections", server->config.connections);
    row_number(rows, "curr_connections", atomic_load(&server->connection_count));
    row_number(rows, "total_connections",
               figure_since(&server->accepted_count, &server->accepted_before));
    row_number(rows, "rejected_connections",
               figure_since(&server->rejected_count, &server->rejected_before));
    row_number(rows, "connection_structures",
               atomic_load_explicit(&server->connection_peak, memory_order_relaxed));
    ROW_COUNTER(rows, sums, bytes_read, "bytes_read");
    ROW_COUNTER(rows, sums, bytes_written, "bytes_written");
    row_number(rows, "accepting_conns", atomic_load(&server->wants_room) ? 0 : 1);
    row_number(rows, "listen_disabled_num",
               figure_since(&server->paused_count, &server->paused_before));
    row_number(rows, "time_in_listen_disabled_us", figure(&server->paused_us));
    row_number(rows, "threads", server->core_count);
    row_number(rows, "client_memory", figure(&server->holdings.used));
    row_number(rows, "client_memory_limit", server->holdings.limit);
    row_number(rows, "client_memory_refused", figure(&server->holdings.refused));
    ROW_COUNTER(rows, sums, conn_yields, "conn_yields");
    if (server->config.idle_timeout_ns != 0) {
        ROW_COUNTER(rows, sums, idle_kicks, "idle_kicks");
    }
    row_number(rows, "lru_crawler_starts", figure(&server->sweeper.round_count));
    if (server->config.volume.group != NULL) {
        row_number(rows, "volume_managers", figure(&server->volumes.managers));
        row_number(rows, "volume_agents", figure(&server->volumes.agents));
        row_number(rows, "volume_pool", figure(&server->volumes.pool));
        row_number(rows, "volume_extents", figure(&server->volumes.extents));
        row_number(rows, "volume_free", figure(&server->volumes.free));
        row_number(rows, "volume_low", figure(&server->volumes.low));
    }
    if (server->large.is_made) {
        struct rows copy = *rows; /* A visitor's context is not constant. */
        fw_large_visit(&server->large, row_large, &copy);
    }
}

/* As bound, if there is one: with the port that the system chose for 0. */
static uint64_t tcp_port(const struct fw_server *server)
{
    uint64_t port = 0;
    for (uint32_t i = 0; i < server->listening_count && port == 0; i++) {
        const struct fw_listening *listening = &server->listening[i];
        if (listening->protocol != FW_PROTOCOL_COUNTERS) {
            port = fw_address_port(&listening->listener.address);
        }
    }
    return port;
}

static const char *protocol_name(enum fw_protocol protocol)
{
    return protocol == FW_PROTOCOL_TEXT     ? "ascii"
           : protocol == FW_PROTOCOL_BINARY ? "binary"
                                            : "auto-negotiate";
}

static void rows_settings(const struct rows *rows)
{
    const struct fw_server_config *config = &rows->server->config;
    row_number(rows, "maxbytes", config->memory);
    row_number(rows, "maxconns", config->connections);
    row_number(rows, "tcpport", tcp_port(rows->server));
    row_number(rows, "udpport", 0);
    row(rows, "inter", "%s", config->listen.count > 0 ? config->listen.items[0] : "NULL");
    row_number(rows, "verbosity",
               atomic_load_explicit(&rows->server->verbosity, memory_order_relaxed));
    row(rows, "evictions", "%s", config->no_evictions ? "off" : "on");
    row(rows, "domain_socket", "%s", config->unix_socket != NULL ? config->unix_socket : "NULL");
    row(rows, "umask", "%" PRIo64, config->unix_mode);
    row_yes(rows, "shutdown_command", config->has_shutdown);
    row_number(rows, "num_threads", rows->server->core_count);
    row(rows, "stat_key_prefix", ":");
    row_number(rows, "reqs_per_event", config->turn_commands);
    row_yes(rows, "cas_enabled", !config->no_cas);
    row_number(rows, "tcp_backlog", config->backlog);
    row(rows, "binding_protocol", "%s", protocol_name(rows->server->cache.settings.protocol));
    row_yes(rows, "auth_enabled_sasl", config->has_sasl);
    row(rows, "auth_enabled_ascii", "%s", config->auth_file != NULL ? config->auth_file : "no");
    row_number(rows, "item_size_max", config->item_size);
    row_yes(rows, "maxconns_fast", config->refuses_fast);
    row(rows, "hash_algorithm", "xxh3");
    row_number(rows, "idle_timeout", (uint64_t)(config->idle_timeout_ns / FW_NS_PER_S));
    row_yes(rows, "flush_enabled", !config->no_flush);
    row_yes(rows, "track_sizes", config->has_sizes);
    row_yes(rows, "dump_enabled", !config->no_dump);
    row_yes(rows, "locking_enabled", config->has_locking);
    row_yes(rows, "counters_enabled", config->counters.is_enabled);
}

static void conn_row(const struct rows *rows, int fd, const char *what, const char *value)
{
    char name[NAME_SIZE];
    (void)snprintf(name, sizeof name, "%d:%s", fd, what);
    rows->emit(rows->context, name, value);
}

static void conn_row_address(const struct rows *rows, int fd, const char *what,
                             const struct fw_address *address)
{
    char text[FW_ADDRESS_TEXT_SIZE];
    char value[FW_ADDRESS_TEXT_SIZE + NAME_SIZE];
    fw_address_format(address, text);
    const char *kind = address->any.sa_family == AF_UNIX    ? "unix"
                       : address->any.sa_family == AF_INET6 ? "tcp6"
                                                            : "tcp";
    (void)snprintf(value, sizeof value, "%s:%s", kind, text);
    conn_row(rows, fd, what, value);
}

/* What is shown of a connection: copied under the crowd's lock, and written without it. */
struct conn {
    int fd;
    bool has_peer;
    bool is_kept;
    uint32_t client;
    int64_t active_ns;
    struct fw_address peer;
    const struct fw_address *listener;
};

struct conns {
    struct conn of[FW_CROWD_STEP];
    uint32_t count;
};

static void conns_add(struct fw_connection *connection, void *context)
{
    struct conns *conns = context;
    struct conn *conn = &conns->of[conns->count++];
    conn->fd = connection->stream.source.fd;
    conn->has_peer = fw_stream_peer(&connection->stream, &conn->peer) == 0;
    conn->client = connection->session.client;
    conn->listener = &connection->listening->listener.address;
    /* Relaxed, both: only shown. */
    conn->is_kept = atomic_load_explicit(&connection->is_kept, memory_order_relaxed);
    conn->active_ns = atomic_load_explicit(&connection->active_ns, memory_order_relaxed);
}

static void conn_rows(const struct rows *rows, const struct conn *conn, bool is_asking)
{
    if (conn->has_peer) {
        conn_row_address(rows, conn->fd, "addr", &conn->peer);
    }
    conn_row_address(rows, conn->fd, "listen_addr", conn->listener);
    conn_row(rows, conn->fd, "state",
             is_asking       ? "conn_parse_cmd"
             : conn->is_kept ? "conn_mwrite"
                             : "conn_read");
    char value[NAME_SIZE];
    int64_t idle_ns = fw_clock_now_ns() - conn->active_ns;
    (void)snprintf(value, sizeof value, "%" PRId64, (idle_ns > 0 ? idle_ns : 0) / FW_NS_PER_S);
    conn_row(rows, conn->fd, "secs_since_last_cmd", value);
}

static void rows_conns(const struct rows *rows, struct fw_server *server, struct fw_stat_walk *walk)
{
    const struct fw_core *self = fw_core_self(); /* NULL: an administrator asks. */
    uint32_t asking = self != NULL ? server->cores[self->index]->serving->session.client : 0;
    for (uint32_t i = 0; i < server->listening_count && walk->next == 0; i++) {
        const struct fw_listener *listener = &server->listening[i].listener;
        conn_row_address(rows, listener->source.fd, "addr", &listener->address);
        conn_row(rows, listener->source.fd, "state", "conn_listening");
    }
    struct conns conns = {.count = 0};
    walk->has_more = fw_crowd_step(&server->crowd, &walk->next, conns_add, &conns);
    for (uint32_t i = 0; i < conns.count; i++) {
        conn_rows(rows, &conns.of[i], conns.of[i].client == asking);
    }
}

static void rows_threads(const struct rows *rows)
{
    for (uint32_t i = 0; i < rows->server->core_count; i++) {
        const struct fw_metrics_server *metrics = rows->server->cores[i]->metrics;
        const struct {
            const char *name;
            const struct fw_counter *counter;
        } counters[] = {
            {"turns", &metrics->turns},
            {"conn_yields", &metrics->conn_yields},
            {"bytes_read", &metrics->bytes_read},
            {"bytes_written", &metrics->bytes_written},
        };
        for (size_t j = 0; j < FW_ARRAY_LENGTH(counters); j++) {
            char name[NAME_SIZE];
            (void)snprintf(name, sizeof name, "%" PRIu32 ":%s", i, counters[j].name);
            row_number(rows, name, fw_counter_get(counters[j].counter));
        }
        char name[NAME_SIZE];
        (void)snprintf(name, sizeof name, "%" PRIu32 ":run_queue", i);
        row(rows, name, "%" PRId64,
            fw_gauge_get(&rows->server->domain->cores[i].metrics->run_queue));
    }
}

bool fw_server_stats(void *context, const char *group, struct fw_stat_walk *walk, fw_stat_emit emit,
                     void *emit_context)
{
    struct fw_server *server = context;
    const struct rows rows = {.server = server, .emit = emit, .context = emit_context};
    if (group[0] == '\0') {
        rows_general(&rows);
    } else if (strcmp(group, "settings") == 0) {
        rows_settings(&rows);
    } else if (strcmp(group, "conns") == 0) {
        rows_conns(&rows, server, walk);
    } else if (strcmp(group, "threads") == 0) {
        rows_threads(&rows);
    } else if (strcmp(group, "replication") == 0 || strcmp(group, "repl") == 0) {
        fw_replication_stats(server, emit, emit_context);
    } else if (strcmp(group, "epochs") == 0) {
        fw_server_stats_epochs(server, emit, emit_context);
    } else if (strcmp(group, "tenants") == 0) {
        fw_server_stats_tenants(server, walk, emit, emit_context);
    } else if (strcmp(group, "lanes") == 0) {
        fw_server_stats_lanes(server, emit, emit_context);
    } else if (strcmp(group, "volumes") == 0) {
        fw_server_stats_volumes(server, emit, emit_context);
    } else {
        return false;
    }
    return true;
}
