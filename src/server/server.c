/* SPDX-License-Identifier: Apache-2.0 */
#include "server/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "cache/auth.h"
#include "cache/stats.h"
#include "engine/core.h"
#include "io/address.h"
#include "io/clock.h"
#include "io/random.h"
#include "jobs/metrics.h"
#include "server/image.h"
#include "server/listen.h"
#include "server/state.h"

FW_LOG_MODULE(server);

/* ---- the host of the cache ----------------------------------------------------------------- */

static void host_set_verbosity(void *context, unsigned level)
{
    struct fw_server *server = context;
    enum fw_log_level levels = FW_LOG_NOTICE + (level < 3 ? level : 3);
    /* Relaxed: only shown. */
    atomic_store_explicit(&server->verbosity, level, memory_order_relaxed);
    fw_log_raise(levels);
}

static int host_shutdown(void *context, bool is_graceful)
{
    struct fw_server *server = context;
    if (!server->config.has_shutdown) {
        return -EPERM;
    }
    FW_LOG(server, NOTICE, "stopping: a client has said shutdown");
    if (is_graceful) {
        fw_server_drain(server);
    } else {
        fw_server_stop(server);
    }
    return 0;
}

/* ---- made ---------------------------------------------------------------------------------- */

int fw_server_choose_auth(const struct fw_server_config *config, const char **file,
                          struct fw_reason *reason)
{
    *file = config->has_sasl && config->sasl_file != NULL ? config->sasl_file : config->auth_file;
    if (config->has_sasl && *file == NULL) {
        return fw_reason_set(reason, -EINVAL,
                             "--enable-sasl (-S) needs a file of users: give --sasl-file FILE, "
                             "with a line user:password for each");
    }
    return 0;
}

static int server_make_auth(struct fw_server *server, struct fw_reason *reason)
{
    const char *file;
    int rc = fw_server_choose_auth(&server->config, &file, reason);
    return rc == 0 && file != NULL ? fw_auth_load(&server->cache.auth, file, reason) : rc;
}

/* Each way to log in belongs to a protocol; the other one would be a way around it. */
int fw_server_choose_protocol(const struct fw_server_config *config, enum fw_protocol *protocol,
                              struct fw_reason *reason)
{
    enum fw_protocol only = config->has_sasl            ? FW_PROTOCOL_BINARY
                            : config->auth_file != NULL ? FW_PROTOCOL_TEXT
                                                        : FW_PROTOCOL_UNKNOWN;
    if (only != FW_PROTOCOL_UNKNOWN && config->protocol != FW_PROTOCOL_UNKNOWN &&
        config->protocol != only) {
        return fw_reason_set(reason, -EINVAL,
                             only == FW_PROTOCOL_TEXT
                                 ? "--auth-file (-Y) is for the text protocol: with --protocol "
                                   "(-B) binary give --enable-sasl (-S)"
                                 : "--enable-sasl (-S) is for the binary protocol: with --protocol "
                                   "(-B) ascii give --auth-file (-Y) alone");
    }
    *protocol = only != FW_PROTOCOL_UNKNOWN ? only : config->protocol;
    return 0;
}

static int server_make_cache(struct fw_server *server, struct fw_reason *reason)
{
    const struct fw_server_config *config = &server->config;
    struct fw_cache *cache = &server->cache;
    enum fw_protocol protocol;
    int rc = fw_server_choose_protocol(config, &protocol, reason);
    if (rc != 0) {
        return rc;
    }
    cache->settings = (struct fw_cache_settings){
        .item_size_max = (uint32_t)config->item_size,
        .has_cas = !config->no_cas,
        .has_flush = !config->no_flush,
        .has_dump = !config->no_dump,
        .has_sizes = config->has_sizes,
        .needs_login = config->auth_file != NULL || config->has_sasl,
        .has_locking = config->has_locking,
        .lines_max = (uint32_t)config->turn_commands,
        .protocol = protocol,
    };
    if (config->counters.is_enabled) {
        cache->settings.counters = (struct fw_counters_config){
            .memory = config->counters.memory,
            .interval_s = (uint32_t)(config->counters.interval_ns / FW_NS_PER_S),
        };
    }
    cache->host = (struct fw_cache_host){.server = server,
                                         .stats = fw_server_stats,
                                         .stats_reset = fw_server_stats_reset,
                                         .set_verbosity = host_set_verbosity,
                                         .shutdown = host_shutdown};
    cache->registry = &server->metrics;
    struct fw_table_config table = {
        .memory = config->memory, .is_evicting = !config->no_evictions, .erases = config->erases};
    if (server->large.is_made) {
        table.large = &server->large.space;
        cache->settings.has_failed_disk = server->large.path == NULL;
    }
    rc = fw_random_seed(&table.seed);
    if (rc != 0) {
        return fw_reason_errno(reason, rc, "cannot start: no random numbers");
    }
    fw_guesses_init(&server->guesses, ~table.seed);
    server->holdings.limit = config->client_memory;
    cache->holdings = &server->holdings;
    rc = fw_cache_init(cache, &table, reason);
    if (rc != 0) {
        return rc;
    }
    rc = server_make_auth(server, reason);
    if (rc != 0) {
        fw_cache_fini(cache);
    }
    return rc;
}

static void server_end_cache(struct fw_server *server)
{
    struct fw_cache *cache = &server->cache;
    fw_auth_destroy(cache->auth);
    fw_cache_fini(cache);
}

static int server_make_domain(struct fw_server *server, struct fw_reason *reason)
{
    struct fw_domain_config domain = {.metrics = &server->metrics,
                                      .offload = fw_large_offload,
                                      .offload_context = &server->large};
    const struct fw_engine_config *engine = &server->config.engine;
    if (engine->wait_max_ns > 0) { /* Else nobody has filled it in, and zeros are sensible. */
        int rc = fw_engine_configure(engine, &domain, reason);
        if (rc != 0) {
            return rc;
        }
    }
    if (server->config.threads > 0) {
        domain.locality_count = (uint32_t)server->config.threads;
    }
    server->connection_type = fw_connection_type;
    server->connection_type.limit_count = (uint32_t)server->config.connections + FW_LISTEN_SLACK;
    int rc = fw_domain_create(&server->domain, &domain);
    if (rc != 0) {
        return fw_reason_errno(reason, rc, "cannot make the engine");
    }
    rc = fw_domain_add_type(server->domain, &server->connection_type);
    if (rc != 0) {
        fw_domain_destroy(server->domain);
        return fw_reason_errno(reason, rc, "cannot make the engine");
    }
    return 0;
}

static void server_end_cores(struct fw_server *server)
{
    for (uint32_t i = 0; i < server->core_count; i++) {
        fw_server_core_fini(server->cores[i]);
        free(server->cores[i]);
    }
    server->core_count = 0;
}

static int server_make_cores(struct fw_server *server, struct fw_reason *reason)
{
    uint32_t count = server->domain->core_count;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        struct fw_server_core *core = malloc(sizeof *core);
        rc = core != NULL ? fw_server_core_init(core, server, &server->domain->cores[i]) : -ENOMEM;
        if (rc != 0) {
            free(core);
            break;
        }
        server->cores[i] = core;
        server->core_count++;
    }
    if (rc != 0) {
        server_end_cores(server);
        return fw_reason_errno(reason, rc, "cannot make %" PRIu32 " cores", count);
    }
    return 0;
}

/* Makes room in lane 0 for services that run as long as the server does. */
static void lanes_widen(struct fw_jobs_policy *policy, uint32_t services)
{
    uint32_t percent = (100 * services + policy->workers - 1) / policy->workers;
    if (services > 1 && policy->lane_percent[0] < percent) {
        policy->lane_percent[0] = percent;
    }
}

/* For the sweeper. Without a lock: what it is about need not be exact. */
static uint64_t server_served(void *context)
{
    const struct fw_server *server = context;
    uint64_t count = 0;
    for (uint32_t i = 0; i < server->core_count; i++) {
        count += fw_counter_get(&server->cores[i]->metrics->turns);
    }
    return count;
}

void fw_server_jobs_policy(const struct fw_server_config *config, struct fw_jobs_policy *policy)
{
    fw_jobs_policy_init(policy);
    if (config->jobs.workers > 0) {
        fw_jobs_configure(policy, &config->jobs);
    }
    /* A trace may be wanted later, and then it shall have the services that began before. */
    policy->trace = config->is_traced || config->admin_socket != NULL;
    lanes_widen(policy, 1 + fw_volumes_services(&config->volume));
}

/* The job kernel with the services that always run. */
static int server_start_jobs(struct fw_server *server, struct fw_reason *reason)
{
    struct fw_jobs_policy policy;
    struct fw_jobs_reason why = {.text = ""};
    fw_server_jobs_policy(&server->config, &policy);
    int rc = fw_jobs_create(&server->jobs, &policy, &why);
    if (rc != 0) {
        return fw_reason_set(reason, rc, "cannot make the job kernel: %s", why.text);
    }
    server->large.jobs = server->jobs;
    rc = fw_jobs_start(server->jobs, &why);
    if (rc != 0) {
        (void)fw_reason_set(reason, rc, "cannot start the job kernel: %s", why.text);
        goto not_started;
    }
    rc = fw_metrics_register(&server->metrics, &fw_jobs_metric_table,
                             &fw_jobs_metrics_of(server->jobs)->source);
    if (rc != 0) {
        (void)fw_reason_errno(reason, rc, "cannot start the job kernel");
        goto no_metrics;
    }
    rc = fw_sweeper_begin(&server->sweeper, server->jobs, &server->cache, server_served, server);
    if (rc != 0) {
        (void)fw_reason_errno(reason, rc, "cannot start the sweeper");
        goto no_sweeper;
    }
    rc = fw_volumes_begin(&server->volumes, server->jobs, &server->config.volume, reason);
    if (rc != 0) {
        goto no_volumes;
    }
    return 0;

no_volumes:
    fw_sweeper_end(&server->sweeper);
no_sweeper:
    (void)!fw_jobs_stop(server->jobs, FW_JOBS_DRAIN, NULL); /* While its figures are its own. */
    fw_metrics_unregister(&server->metrics, &fw_jobs_metrics_of(server->jobs)->source);
    goto not_started;
no_metrics:
    (void)!fw_jobs_stop(server->jobs, FW_JOBS_DRAIN, NULL);
not_started:
    fw_jobs_destroy(server->jobs);
    return rc;
}

static void server_end_jobs(struct fw_server *server)
{
    fw_volumes_end(&server->volumes);
    fw_sweeper_end(&server->sweeper);
    int rc = fw_jobs_stop(server->jobs, FW_JOBS_DRAIN, NULL);
    FW_ASSERT(rc == 0);
    fw_metrics_unregister(&server->metrics, &fw_jobs_metrics_of(server->jobs)->source);
    fw_jobs_destroy(server->jobs);
}

/* What serves: threads run when it returns 0. */
static int server_start(struct fw_server *server, struct fw_reason *reason)
{
    int rc = server_start_jobs(server, reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_replication_init(server);
    if (rc != 0) {
        server_end_jobs(server);
        return fw_reason_errno(reason, rc, "cannot prepare replication");
    }
    rc = fw_domain_start(server->domain);
    if (rc != 0) {
        fw_replication_fini(server);
        server_end_jobs(server);
        return fw_reason_errno(reason, rc, "cannot start the engine's threads");
    }
    return 0;
}

static int server_make(struct fw_server *server, struct fw_reason *reason)
{
    const struct fw_server_config *config = &server->config;
    int rc = fw_volumes_check(&config->volume, reason);
    if (rc == 0 && !config->repl.is_enabled) { /* What is replicated is in memory. */
        rc = fw_large_files_begin(&server->large, &config->large, config->item_size,
                                  &server->metrics, reason);
    }
    if (rc != 0) {
        return rc;
    }
    rc = server_make_cache(server, reason);
    if (rc != 0) {
        goto no_cache;
    }
    rc = fw_tenancy_init(server, reason);
    if (rc != 0) {
        goto no_tenants;
    }
    rc = fw_reactor_create(&server->reactor, reason);
    if (rc != 0) {
        goto no_reactor;
    }
    rc = server_make_domain(server, reason);
    if (rc != 0) {
        goto no_domain;
    }
    rc = server_make_cores(server, reason);
    if (rc != 0) {
        goto no_cores;
    }
    rc = server_start(server, reason);
    if (rc != 0) {
        goto no_threads;
    }
    return 0;

no_threads:
    server_end_cores(server);
no_cores:
    fw_domain_destroy(server->domain);
no_domain:
    fw_reactor_destroy(server->reactor);
no_reactor:
    fw_tenancy_fini(server);
no_tenants:
    server_end_cache(server);
no_cache:
    fw_large_files_end(&server->large);
    return rc;
}

/* ---- the image, see image.h ---------------------------------------------------------------- */

static double seconds(int64_t ns)
{
    return (double)ns / (double)FW_NS_PER_S;
}

/* Whatever is wrong with its contents, the server serves: with an empty cache. */
static void server_load_image(struct fw_server *server)
{
    const char *path = server->config.memory_file;
    struct fw_image image;
    struct fw_reason reason;
    if (path == NULL) {
        return;
    }
    if (fw_image_claim_is_spent(&server->image_claim, path)) {
        FW_LOG(server, WARNING,
               "starting empty: the server that read %s was not stopped cleanly, so its items may "
               "be out of date; to use them nevertheless, stop, remove %s.lock and start again",
               path, path);
        return;
    }
    int rc = fw_image_load(server->jobs, &server->cache, path, &image, &reason);
    server->has_image = rc == 0;
    if (rc == 0) {
        FW_LOG(server, NOTICE,
               "read %" PRIu64 " items from %s, %" PRIu64 " bytes, in %.2f s; %" PRIu64
               " had expired, %" PRIu64 " did not fit",
               image.items, path, image.bytes, seconds(image.took_ns), image.expired,
               image.refused);
        if (image.has_new_numbers) {
            FW_LOG(server, NOTICE,
                   "more than half of all item numbers were used: items of %s have "
                   "a new CAS",
                   path);
        }
    } else if (rc == -ENOENT) {
        FW_LOG(server, NOTICE, "starting empty: there is no %s from a clean stop", path);
    } else {
        FW_LOG(server, WARNING, "starting empty: cannot use %s: %s", path, reason.text);
    }
}

/* Before the first client is served: from now on the image is of the past. */
static void server_spend_image(struct fw_server *server)
{
    const char *path = server->config.memory_file;
    int rc = server->has_image ? fw_image_claim_spend(&server->image_claim, path) : 0;
    if (rc != 0) {
        /* The sweeper's local: nobody else is there yet, and to flush is one step. */
        fw_table_flush(server->sweeper.local->table);
        FW_LOG(server, WARNING,
               "starting empty: a crash would bring back the old items, for %s.lock cannot be "
               "written: %s",
               path, strerrordesc_np(-rc));
    }
    server->has_image = false;
}

static int server_save_image(struct fw_server *server)
{
    const char *path = server->config.memory_file;
    struct fw_image image;
    struct fw_reason reason;
    if (path == NULL) {
        return 0;
    }
    int rc = fw_image_save(server->jobs, &server->cache, path, &image, &reason);
    if (rc != 0) {
        FW_LOG(server, ERROR, "the items are not kept: %s", reason.text);
        return rc;
    }
    FW_LOG(server, NOTICE, "kept %" PRIu64 " items in %s, %" PRIu64 " bytes, in %.2f s",
           image.items, path, image.bytes, seconds(image.took_ns));
    return 0;
}

static int server_begin(struct fw_server **begun, const struct fw_server_config *config,
                        struct fw_reason *reason)
{
    struct fw_server *made = aligned_alloc(alignof(struct fw_server), sizeof *made);
    if (made == NULL) {
        (void)fw_reason_errno(reason, -ENOMEM, "cannot start");
        return -ENOMEM;
    }
    memset(made, 0, sizeof *made);
    made->config = *config;
    made->start_ns = fw_clock_now_ns();
    made->start_wall_s = fw_clock_wall_ns() / FW_NS_PER_S;
    fw_metrics_init(&made->metrics);
    fw_mutex_init(&made->lock, FW_RANK_SERVER);
    int rc = fw_crowd_init(&made->crowd, (uint32_t)config->connections);
    if (rc != 0) {
        (void)fw_reason_errno(reason, rc, "cannot start");
        goto no_crowd;
    }
    rc = fw_quota_init(&made->quota, config->connections);
    if (rc != 0) {
        (void)fw_reason_errno(reason, rc, "cannot start");
        goto no_quota;
    }
    rc = server_make(made, reason);
    if (rc != 0) {
        goto not_made;
    }
    *begun = made;
    return 0;

not_made:
    fw_quota_fini(&made->quota);
no_quota:
    fw_crowd_fini(&made->crowd);
no_crowd:
    fw_mutex_fini(&made->lock);
    fw_metrics_fini(&made->metrics);
    free(made);
    return rc;
}

int fw_server_create(struct fw_server **server, const struct fw_server_config *config,
                     struct fw_reason *reason)
{
    struct fw_server *made = NULL;
    int rc = server_begin(&made, config, reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_server_cluster_open(made, reason);
    if (rc != 0) {
        fw_server_destroy(made);
        return rc;
    }
    rc = made->config.memory_file != NULL
             ? fw_image_claim_take(&made->image_claim, made->config.memory_file, reason)
             : 0;
    if (rc != 0) {
        fw_server_destroy(made);
        return rc;
    }
    server_load_image(made);
    /* First, so that who sees it listen can administer it. */
    rc = fw_admin_open(made, reason);
    if (rc == 0) { /* Its role is known before it listens. */
        rc = fw_replication_open(made, reason);
    }
    if (rc == 0) {
        rc = fw_listen_open(made, reason);
    }
    if (rc != 0) {
        fw_server_destroy(made);
        return rc == -EINVAL ? rc : -EADDRNOTAVAIL;
    }
    fw_tenancy_check_listeners(made);
    *server = made;
    return 0;
}

const struct fw_address *fw_server_address(const struct fw_server *server, uint32_t index)
{
    return index < server->listening_count ? &server->listening[index].listener.address : NULL;
}

bool fw_server_visit_stats(struct fw_server *server, const char *group,
                           void (*emit)(void *context, const char *name, const char *value),
                           void *context)
{
    return fw_stats_visit_all(&server->cache, group, emit, context);
}

bool fw_server_is_ready(const struct fw_server *server)
{
    return atomic_load(&server->wish) == FW_SERVER_RUN;
}

struct fw_metrics *fw_server_metrics(struct fw_server *server)
{
    return &server->metrics;
}

int fw_server_change(struct fw_server *server, const struct fw_server_config *config,
                     struct fw_reason *reason)
{
    return fw_tenancy_change(server, config->tenants, config->sched.policy, reason);
}

/* ---- run ----------------------------------------------------------------------------------- */

/* The wish only rises: who wants it to stop at once is not made to wait by who wants it to drain.
 */
static void server_wish(struct fw_server *server, enum fw_server_wish wish)
{
    uint32_t before = atomic_load(&server->wish);
    while (before < wish && !atomic_compare_exchange_weak(&server->wish, &before, wish)) {
    }
    fw_reactor_wake(server->reactor);
}

void fw_server_drain(struct fw_server *server)
{
    server_wish(server, FW_SERVER_DRAIN);
}

void fw_server_stop(struct fw_server *server)
{
    server_wish(server, FW_SERVER_STOP);
}

void fw_server_connection_gone(struct fw_server *server)
{
    /*
     * Counted first, looked at then, and who wants room or waits for the end says so first and
     * counts then: one of the two sees the other.
     */
    atomic_fetch_sub(&server->connection_count, 1);
    FW_YIELD_POINT("server: a connection has gone");
    if (FW_UNLIKELY(atomic_load(&server->wants_room))) {
        atomic_store(&server->has_room, true);
        fw_reactor_wake(server->reactor);
    }
    if (FW_UNLIKELY(atomic_load(&server->is_draining) ||
                    fw_replication_refuses(&server->replication))) {
        fw_reactor_wake(server->reactor);
    }
}

static void connection_wake(struct fw_connection *connection, void *context)
{
    (void)context;
    fw_fom_wake(&connection->fom); /* Alive: it leaves the crowd before it ends. */
}

void fw_server_wake_connections(struct fw_server *server)
{
    fw_crowd_visit(&server->crowd, connection_wake, NULL);
}

/* Connections that have nothing to do go now, the others when they have no more. */
static void server_drain(struct fw_server *server)
{
    int64_t deadline = fw_clock_now_ns() + server->config.drain_ns;
    /* Release, for the acquire in connection.c. */
    atomic_store(&server->is_draining, true);
    fw_tenancy_open_up(server);
    fw_server_wake_connections(server);
    for (;;) {
        int64_t left = deadline - fw_clock_now_ns();
        uint32_t count = atomic_load(&server->connection_count);
        if (count == 0 || atomic_load(&server->wish) == FW_SERVER_STOP) {
            return;
        }
        if (left <= 0) {
            FW_LOG(server, NOTICE, "%" PRIu32 " connections are closed with replies left to send",
                   count);
            return;
        }
        (void)fw_reactor_poll(server->reactor, left);
    }
}

static void signals_closed(struct fw_signals *signals)
{
    FW_CONTAINER_OF(signals, struct fw_server, signals)->open_count--;
}

/* Listeners, connections and threads; what is left is memory. */
static void server_end(struct fw_server *server)
{
    server_wish(server, FW_SERVER_DRAIN);
    fw_listen_close(server);
    fw_admin_close(server);
    fw_replication_close(server);
    if (atomic_load(&server->wish) == FW_SERVER_DRAIN) {
        server_drain(server);
    }
    fw_server_cluster_close(server);
    fw_large_files_stop(&server->large);
    (void)fw_domain_stop(server->domain, 0);
    FW_ASSERT(atomic_load(&server->connection_count) == 0);
    if (server->has_signals) {
        fw_signals_close(&server->signals, signals_closed);
        server->has_signals = false;
    }
    while (server->open_count > 0) {
        (void)fw_reactor_poll(server->reactor, -1);
    }
}

void fw_server_on_end(struct fw_server *server, void (*ending)(void *context), void *context)
{
    server->ending = ending;
    server->ending_context = context;
}

/* How long its thread may sleep; -1: until it is woken. */
static int64_t server_patience_ns(const struct fw_server *server)
{
    int64_t listen_ns = fw_listen_patience_ns(server);
    int64_t lease_ns = fw_replication_patience_ns(server);
    return listen_ns < 0 || (lease_ns >= 0 && lease_ns < listen_ns) ? lease_ns : listen_ns;
}

int fw_server_run(struct fw_server *server)
{
    server_spend_image(server);
    while (atomic_load(&server->wish) == FW_SERVER_RUN) {
        (void)fw_reactor_poll(server->reactor, server_patience_ns(server));
        fw_listen_resume(server);
        fw_admin_look(server);
        fw_replication_look(server);
    }
    if (server->ending != NULL) {
        server->ending(server->ending_context);
    }
    server_end(server);
    return server_save_image(server);
}

void fw_server_destroy(struct fw_server *server)
{
    server_wish(server, FW_SERVER_STOP);
    server_end(server);
    fw_replication_fini(server);
    server_end_jobs(server);
    fw_admin_fini(server);
    fw_server_trace_fini(&server->trace);
    fw_server_cluster_fini(server);
    server_end_cores(server);
    fw_domain_destroy(server->domain);
    fw_reactor_destroy(server->reactor);
    fw_tenancy_fini(server);
    server_end_cache(server);
    fw_large_files_end(&server->large);
    fw_image_claim_release(&server->image_claim);
    fw_mutex_fini(&server->lock);
    fw_quota_fini(&server->quota);
    fw_crowd_fini(&server->crowd);
    fw_metrics_fini(&server->metrics);
    free(server);
}

/* ---- signals ------------------------------------------------------------------------------- */

static void signal_end(struct fw_signals *signals, int number, pid_t sender)
{
    struct fw_server *server = FW_CONTAINER_OF(signals, struct fw_server, signals);
    FW_LOG(server, NOTICE, "stopping: signal %s from process %d", sigabbrev_np(number),
           (int)sender);
    if (number == SIGINT) {
        fw_server_stop(server);
    } else {
        fw_server_drain(server);
    }
}

static void signal_reload(struct fw_signals *signals, int number, pid_t sender)
{
    (void)number;
    (void)sender;
    struct fw_server *server = FW_CONTAINER_OF(signals, struct fw_server, signals);
    int rc = fw_log_reopen();
    if (rc != 0) {
        FW_LOG(server, ERROR, "cannot open the log's file again: %s", strerrordesc_np(-rc));
    }
    if (server->reload != NULL) {
        server->reload(server->reload_context);
    }
}

static const struct fw_signal_event signal_events[] = {
    {.number = SIGTERM, .received = signal_end},
    {.number = SIGINT, .received = signal_end},
    {.number = SIGUSR1, .received = signal_end},
    {.number = SIGHUP, .received = signal_reload},
};

void fw_server_signals_block(void)
{
    fw_signals_block(signal_events, FW_ARRAY_LENGTH(signal_events));
}

int fw_server_signals_open(struct fw_server *server, void (*reload)(void *context), void *context,
                           struct fw_reason *reason)
{
    server->reload = reload;
    server->reload_context = context;
    int rc = fw_signals_open(&server->signals, server->reactor, signal_events,
                             FW_ARRAY_LENGTH(signal_events), reason);
    if (rc == 0) {
        server->has_signals = true;
        server->open_count++;
    }
    return rc;
}

/* ---- trace --------------------------------------------------------------------------------- */

int fw_server_trace(struct fw_server *server)
{
    atomic_store(&server->trace.is_always, true);
    return fw_domain_trace(server->domain, true);
}
