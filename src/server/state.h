/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a server is made of; private to src/server.
 *
 * Threads. The thread that calls fw_server_run() has a reactor of its own for listeners and
 * signals; it accepts connections and deals them out to the domain's cores by turns, as memcached
 * does. (Listeners on every core, with SO_REUSEPORT, would spare a connection one hand-over, but
 * the kernel deals by hash: of few connections, half the cores may get none.) From then on a
 * connection is its core's alone. Who may touch what is said at each group of members.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/engine.h>
#include <fairway/jobs.h>

#include "base/base.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "cache/cache.h"
#include "cache/holdings.h"
#include "engine/core.h"
#include "io/reactor.h"
#include "io/signal.h"
#include "sched/tenant_metrics.h"
#include "server/admin.h"
#include "server/connection.h"
#include "server/crowd.h"
#include "server/guesses.h"
#include "server/image_claim.h"
#include "server/large.h"
#include "server/options.h"
#include "server/quota.h"
#include "server/replication.h"
#include "server/sweeper.h"
#include "server/tenancy.h"
#include "server/trace.h"
#include "server/volumes.h"

enum { FW_LISTENERS_MAX = 32 };

struct fw_listening {
    struct fw_listener listener;
    struct fw_server *server;
    enum fw_protocol protocol; /* UNKNOWN: what the client begins with. */
    bool is_paused;            /* Goes on when a connection has closed. */
};

enum fw_server_wish { FW_SERVER_RUN, FW_SERVER_DRAIN, FW_SERVER_STOP };

struct fw_server {
    /* Constant while it serves. */
    struct fw_server_config config;
    struct fw_domain *domain;
    struct fw_fom_type connection_type;
    struct fw_jobs *jobs;
    struct fw_server_core *cores[FW_CORES_MAX]; /* By the number of the domain's core. */
    uint32_t core_count;
    int64_t start_ns;
    int64_t start_wall_s;

    /* Shared; each has its own rules. */
    struct fw_metrics metrics;
    struct fw_cache cache;
    struct fw_large_files large;
    struct fw_sweeper sweeper;
    struct fw_volumes volumes;
    struct fw_server_trace trace;
    struct fw_guesses guesses;
    struct fw_holdings holdings;
    struct fw_tenants *tenants;
    struct fw_replication replication;
    struct fw_tenant_metrics tenant_metrics;

    /* Of the thread that runs it. */
    struct fw_reactor *reactor;
    struct fw_admin *admin;            /* Or NULL. */
    struct fw_server_cluster *cluster; /* Or NULL; its metrics are anyone's. */
    struct fw_signals signals;
    bool has_signals;
    struct fw_image_claim image_claim;
    bool has_image;                /* Its items are in the cache, and it is not noted as spent. */
    void (*reload)(void *context); /* Or NULL. */
    void *reload_context;
    void (*ending)(void *context); /* Or NULL. */
    void *ending_context;
    struct fw_listening listening[FW_LISTENERS_MAX];
    uint32_t listening_count;
    bool is_listening_over;
    int64_t short_ns;      /* When a listener last could not accept; 0: never. */
    int64_t short_told_ns; /* When the log was last told; 0: never. */
    uint64_t files_max;    /* Clients get descriptors below it only. */
    uint32_t open_count;   /* Listeners, administrators and signals whose `closed` has not run. */
    uint32_t next_home;
    uint32_t next_client;
    int64_t paused_ns;  /* When it stopped accepting; 0: it accepts. */
    int64_t retried_ns; /* Or last looked whether it may go on. */
    /* Written by that thread, read by `stats`. Relaxed: figures. */
    _Atomic uint64_t accepted_count;
    _Atomic uint64_t rejected_count;
    _Atomic uint64_t paused_count;
    _Atomic uint64_t paused_us;
    _Atomic uint32_t connection_peak;

    /* Anyone's. */
    _Atomic uint32_t wish;             /* enum fw_server_wish; only rises. */
    atomic_bool is_draining;           /* Connections close when they have nothing to do. */
    atomic_bool wants_room;            /* A listener is paused. */
    atomic_bool has_room;              /* A connection has gone since. */
    _Atomic uint32_t connection_count; /* Until their sockets are closed. */
    _Atomic uint32_t verbosity;
    _Atomic uint64_t accepted_before; /* As of `stats reset`, like the next. */
    _Atomic uint64_t rejected_before;
    _Atomic uint64_t paused_before;
    _Atomic uint64_t counted_before[FW_SERVER_COUNTERS];

    struct fw_crowd crowd; /* All connections, for any thread. */
    struct fw_quota quota;

    struct fw_mutex lock;     /* FW_RANK_SERVER; guards what follows. */
    struct fw_ruling *ruling; /* The newest. */
    enum fw_sched_policy_number policy;
};

/* What follows from the configuration; 0, or -EINVAL with the reason. In server.c. */
FW_MUST_CHECK int fw_server_choose_protocol(const struct fw_server_config *config,
                                            enum fw_protocol *protocol, struct fw_reason *reason);
/* The file of users, or NULL. */
FW_MUST_CHECK int fw_server_choose_auth(const struct fw_server_config *config, const char **file,
                                        struct fw_reason *reason);
void fw_server_jobs_policy(const struct fw_server_config *config, struct fw_jobs_policy *policy);

/* What struct fw_cache_host wants; in stats.c. */
bool fw_server_stats(void *server, const char *group, struct fw_stat_walk *walk, fw_stat_emit emit,
                     void *context);
void fw_server_stats_reset(void *server);

/* Each connection looks on its own turn what has changed. Any thread. */
void fw_server_wake_connections(struct fw_server *server);

/* A connection is about to close its socket: there is room for another. Any thread. */
void fw_server_connection_gone(struct fw_server *server);
