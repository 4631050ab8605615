/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's own commands of the administration socket. They run on workers of the job kernel,
 * while the cores serve: what belongs to those is read from atomics, or in the steps of a walk over
 * the connections (crowd.h).
 */
#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "cache/stats.h"
#include "io/address.h"
#include "io/clock.h"
#include "server/state.h"

/* Beside the time that slaves have: for clients to be dropped. */
#define DEMOTE_NS (INT64_C(5) * FW_NS_PER_S)

static void address_cell(struct fw_jobs_output *output, const char *name,
                         const struct fw_address *address)
{
    char text[FW_ADDRESS_TEXT_SIZE];
    fw_address_format(address, text);
    fw_jobs_text(output, name, "%s", text);
}

/* What `connections` still has to show. */
struct showing {
    struct fw_jobs_output *output;
    int64_t now_ns;
    uint64_t left;
};

static void connection_row(struct fw_connection *connection, void *context)
{
    struct showing *showing = context;
    struct fw_jobs_output *output = showing->output;
    struct fw_address peer;
    if (showing->left == 0) {
        return;
    }
    showing->left--;
    fw_jobs_row(output, "connections");
    fw_jobs_number(output, "id", connection->session.client);
    if (fw_stream_peer(&connection->stream, &peer) == 0) {
        address_cell(output, "peer", &peer);
    } else {
        fw_jobs_text(output, "peer", "%s", "");
    }
    address_cell(output, "local", &connection->listening->listener.address);
    /* Relaxed, both: only shown. */
    bool is_kept = atomic_load_explicit(&connection->is_kept, memory_order_relaxed);
    int64_t idle_ns =
        showing->now_ns - atomic_load_explicit(&connection->active_ns, memory_order_relaxed);
    fw_jobs_text(output, "state", "%s", is_kept ? "sending" : "reading");
    fw_jobs_number(output, "idle_ms", (idle_ns > 0 ? idle_ns : 0) / FW_NS_PER_MS);
}

static int run_connections(void *context, struct fw_jobs *jobs, const char *arguments,
                           struct fw_jobs_output *output)
{
    (void)jobs;
    struct fw_server *server = context;
    uint64_t limit = FW_ADMIN_CONNECTIONS_MAX;
    size_t length = strlen(arguments);
    if (length > 0 && fw_parse_uint(arguments, length, 0, limit, &limit) != 0) {
        fw_jobs_print(output, "connections [LIMIT], up to %d\n", FW_ADMIN_CONNECTIONS_MAX);
        return -EINVAL;
    }
    fw_jobs_number(output, "open", atomic_load(&server->connection_count));
    fw_jobs_number(output, "limit", (int64_t)server->config.connections);
    struct showing showing = {.output = output, .now_ns = fw_clock_now_ns(), .left = limit};
    uint64_t cursor = 0;
    while (fw_crowd_step(&server->crowd, &cursor, connection_row, &showing) && showing.left > 0) {
    }
    return 0;
}

static void stat_emit(void *context, const char *name, const char *value)
{
    int64_t number;
    if (fw_parse_int(value, strlen(value), INT64_MIN, INT64_MAX, &number) == 0) {
        fw_jobs_number(context, name, number);
    } else {
        fw_jobs_text(context, name, "%s", value);
    }
}

/* memcached's names, and so what its users know to read. */
static int run_stats(void *context, struct fw_jobs *jobs, const char *arguments,
                     struct fw_jobs_output *output)
{
    (void)jobs;
    struct fw_server *server = context;
    if (!fw_stats_visit_all(&server->cache, arguments, stat_emit, output)) {
        fw_jobs_print(output, "there is no group '%.40s' of stats\n", arguments);
        return -EINVAL;
    }
    return 0;
}

/* Says what it shall be; `stats replication` says when it is. */
static int role_wish(struct fw_server *server, enum fw_repl_role role, const char *arguments,
                     struct fw_jobs_output *output)
{
    bool is_forced = strcmp(arguments, "force") == 0;
    if (arguments[0] != '\0' && !is_forced) {
        fw_jobs_print(output, "%s [force]\n", role == FW_REPL_ROLE_MASTER ? "promote" : "demote");
        return -EINVAL;
    }
    int rc = fw_replication_wish(server, role, is_forced);
    if (rc == -ENOTSUP) {
        fw_jobs_print(output, "this server does not replicate, or has no --repl-master\n");
    } else if (rc == -EAGAIN) {
        fw_jobs_print(output,
                      "a copy from the master is not whole: items are missing here; promote "
                      "another slave, or say 'promote force'\n");
    }
    return rc;
}

static int run_promote(void *context, struct fw_jobs *jobs, const char *arguments,
                       struct fw_jobs_output *output)
{
    (void)jobs;
    return role_wish(context, FW_REPL_ROLE_MASTER, arguments, output);
}

/* A slave that is held forgets what it has, and follows. */
static int run_accept(void *context, struct fw_jobs *jobs, const char *arguments,
                      struct fw_jobs_output *output)
{
    (void)jobs;
    (void)arguments;
    struct fw_server *server = context;
    int rc = fw_repl_accept(&server->replication.repl);
    if (rc != 0) {
        fw_jobs_print(output, "there is nothing to accept: the link to the master is not held\n");
    }
    return rc;
}

/* Waits until it is known whether the slaves have all, so that the next command may promote one. */
static int run_demote(void *context, struct fw_jobs *jobs, const char *arguments,
                      struct fw_jobs_output *output)
{
    struct fw_server *server = context;
    struct fw_replication *replication = &server->replication;
    enum fw_replication_stage stage = fw_replication_stage(replication);
    bool was_master = stage == FW_REPLICATION_MASTER || stage == FW_REPLICATION_RESIGNING;
    int rc = role_wish(server, FW_REPL_ROLE_SLAVE, arguments, output);
    if (rc != 0 || !was_master || arguments[0] != '\0') {
        return rc;
    }
    struct fw_parker parker;
    fw_parker_init(&parker);
    int64_t until_ns = fw_clock_now_ns() + server->config.repl.ack_timeout_ns + DEMOTE_NS;
    fw_jobs_block_enter(jobs);
    while (atomic_load(&replication->outcome) == FW_REPLICATION_WAITING &&
           atomic_load(&server->wish) == FW_SERVER_RUN && fw_clock_now_ns() < until_ns) {
        (void)fw_park_for(&parker, FW_NS_PER_MS);
    }
    fw_jobs_block_leave(jobs);
    if (atomic_load(&replication->outcome) != FW_REPLICATION_HANDED_OVER) {
        fw_jobs_print(output, "not every slave is known to have all that this server had; compare "
                              "their positions before you promote one\n");
        return -ETIMEDOUT;
    }
    return 0;
}

/* A time, not a duration: what was held up on its way must not count as new; see server/lease.h. */
static int run_lease(void *context, struct fw_jobs *jobs, const char *arguments,
                     struct fw_jobs_output *output)
{
    (void)jobs;
    struct fw_server *server = context;
    struct fw_lease *lease = &server->replication.lease;
    int64_t until_ns;
    int rc = 0;
    if (strcmp(arguments, "end") == 0) {
        fw_lease_give_up(lease);
    } else if (fw_parse_int(arguments, strlen(arguments), 0, INT64_MAX, &until_ns) == 0) {
        rc = fw_lease_renew(lease, until_ns);
    } else {
        fw_jobs_print(output, "lease UNTIL, nanoseconds since the machine started; or lease end\n");
        return -EINVAL;
    }
    if (rc == -ENOTSUP) {
        fw_jobs_print(output, "this server needs no lease: start it with --lease-limit\n");
    } else if (rc == -ERANGE) {
        fw_jobs_print(output, "that is further ahead than --lease-limit allows\n");
    } else if (rc == -ESTALE) {
        fw_jobs_print(output, "that time has passed\n");
    }
    fw_reactor_wake(server->reactor); /* A role may have waited for it. */
    return rc;
}

const struct fw_jobs_command fw_admin_commands[] = {
    {"accept", "follow a master that has less, and forget what is here", run_accept},
    {"connections", "[LIMIT]: who is connected", run_connections},
    {"demote", "[force]: drop the clients, wait for the slaves, follow the master", run_demote},
    {"lease", "UNTIL|end: until when a master may answer", run_lease},
    {"promote", "[force]: become the master", run_promote},
    {"stats", "[GROUP]: what memcached's stats shows", run_stats},
    {"trace", "DURATION, then read OFFSET: what the engine did, for ui.perfetto.dev",
     fw_server_trace_command},
};
const size_t fw_admin_commands_count = FW_ARRAY_LENGTH(fw_admin_commands);
