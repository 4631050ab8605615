/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's own options: where it listens, how much it may take. The rows are in options.c.
 *
 * Besides these there are memcached's options that mean nothing here (how its slabs grow, how its
 * threads that maintain lists behave). A start script that names them must work, so they are
 * accepted, in a table of their own, and the program says once that they do nothing.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fairway/sched.h>

#include "base/option.h"
#include "cache/cache.h"
#include "engine/options.h"
#include "jobs/options.h"
#include "repl/options.h"
#include "sched/tenant_options.h"
#include "server/cluster.h"
#include "server/large.h"
#include "server/lease.h"
#include "server/volumes.h"

enum fw_server_io_engine { FW_SERVER_EPOLL, FW_SERVER_IO_URING };

/* Counters of resources (cache/counters.h), which have an address of their own. */
struct fw_server_counters_config {
    bool is_enabled;
    struct fw_option_list listen; /* Addresses; those without a port get `port`. */
    uint64_t port;
    uint64_t memory;
    int64_t interval_ns;
};

struct fw_server_config {
    struct fw_option_list listen; /* Addresses; those without a port get `port`. */
    uint64_t port;
    const char *unix_socket; /* A path, or NULL. Then no TCP unless `listen` was given. */
    uint64_t unix_mode;
    const char *admin_socket; /* A path, or NULL: none. */
    uint64_t backlog;
    uint64_t memory;         /* Bytes for items and table. */
    uint64_t client_memory;  /* Bytes that clients make us hold beside; 0: any number. */
    const char *memory_file; /* Where items are kept over a restart; NULL: nowhere. */
    uint64_t item_size;      /* Bytes of the largest item, counted as memcached does. */
    uint64_t connections;    /* At the same time. */
    bool refuses_fast;       /* Beyond that they are told so and closed; else they wait. */
    uint64_t threads;        /* Localities; 0: as the engine's options say. */
    uint64_t turn_commands;
    int64_t idle_timeout_ns; /* 0: never. */
    int64_t drain_ns;
    bool no_evictions;
    bool no_cas;
    bool no_flush;
    bool no_dump;
    bool has_sizes;
    bool has_shutdown;
    bool has_locking;
    bool erases;           /* Memory of what is gone. */
    const char *auth_file; /* Of the text protocol; NULL: none. */
    bool has_sasl;
    const char *sasl_file;     /* NULL: auth_file. */
    enum fw_protocol protocol; /* UNKNOWN: both, unless there are users; then theirs. */
    enum fw_server_io_engine io_engine;

    uint64_t descriptors; /* That may be open; 0: unknown. No option of its own. */
    bool is_traced; /* The job kernel, too: fw_server_trace() may follow. No option of its own. */

    /* Of the parts; each has a table of its own. All zero is sensible. */
    struct fw_server_counters_config counters;
    struct fw_server_large_config large;
    struct fw_repl_config repl;
    struct fw_server_lease_config lease;
    struct fw_server_volume_config volume;
    struct fw_server_cluster_config cluster;
    struct fw_engine_config engine;
    struct fw_jobs_config jobs;
    struct fw_sched_config sched;             /* Of which only the policy is an option. */
    const struct fw_tenant_sections *tenants; /* Only read by create(); NULL: none. */
};

/* In the order of the enum, NULL at the end; as fw_reactor_choose() knows them. */
extern const char *const fw_server_io_engines[];

extern const struct fw_option fw_server_options[];
extern const size_t fw_server_options_count;

extern const struct fw_option fw_server_counters_options[];
extern const size_t fw_server_counters_options_count;

extern const struct fw_option fw_server_large_options[];
extern const size_t fw_server_large_options_count;

extern const struct fw_option fw_server_volume_options[];
extern const size_t fw_server_volume_options_count;

/* What is accepted and ignored: one field for each kind of value, all rows write there. */
struct fw_server_ignored {
    const char *text;
    bool yes;
    uint64_t count;
};
extern const struct fw_option fw_server_ignored_options[];
extern const size_t fw_server_ignored_options_count;
