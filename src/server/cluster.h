/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server as a node of a cluster: its place in the epochs, and what comes of them.
 *
 *     Corosync ── group ── epoch handler ── share ──grants──► tenants ◄── heads, on their cores
 *                                        └─ gang ───choice───►    │
 *     └───────── the thread that runs the server ─────────┘       └ atomics: no request waits
 *
 * It is there if [cluster] has a name, and takes part in epochs while the policy is `share` or
 * `gang`. With the first the cluster rates of tenants are divided with the other nodes
 * (sched/share.h), with the second all serve the same tenant at the same time (sched/gang.h). With
 * any other policy, and while the server drains, it has left. A cluster rate is this node's own
 * limit whenever it is not divided.
 *
 * Nothing here waits, and nothing of a request passes through here: grants are words that heads
 * read. Whether Corosync is there, the server serves; docs/epochs.md says how.
 *
 * Threads: that of the server's reactor; stats may be asked for by anyone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "base/metrics.h"
#include "base/option.h"
#include "base/reason.h"
#include "cache/cache.h"

struct fw_server;
struct fw_server_cluster;

enum fw_cluster_fallback { FW_CLUSTER_FAIR, FW_CLUSTER_NONE };

struct fw_server_cluster_config {
    const char *name; /* Of the group; NULL: no cluster. */
    uint64_t nodes;   /* 0: as Corosync says. */
    int64_t epoch_ns;
    int64_t timeout_ns;
    int64_t bound_ns; /* 0: three times the time-out. */
    enum fw_cluster_fallback fallback;
};

extern const struct fw_option fw_server_cluster_options[];
extern const size_t fw_server_cluster_options_count;

/* What the epochs look like from here; also what `stats epochs` shows. */
struct fw_metrics_epoch {
    struct fw_metric_source source;
    struct fw_gauge in_step;
    struct fw_gauge epoch;
    struct fw_gauge peers;
    struct fw_gauge participants;
    struct fw_counter started;
    struct fw_counter missed;
    struct fw_counter evictions;
    struct fw_counter stale;
    struct fw_counter cut_off;
    struct fw_counter timed_out;
    struct fw_counter refused;
    struct fw_gauge ragged_ns;
    struct fw_gauge ragged_max_ns;
    struct fw_gauge last_error;
};
extern const struct fw_metric_table fw_epoch_metric_table;

/* 0, or a negative errno with the reason: its options do not go together. */
FW_MUST_CHECK int fw_server_cluster_check(const struct fw_server_cluster_config *config,
                                          struct fw_reason *reason);

/* Joins the group, if one is configured. Returns 0, or a negative errno with the reason. */
FW_MUST_CHECK int fw_server_cluster_open(struct fw_server *server, struct fw_reason *reason);
/* The policy may have changed. */
void fw_server_cluster_look(struct fw_server *server);
/* Leaves; what is not closed yet is in the server's `open_count`. */
void fw_server_cluster_close(struct fw_server *server);
/* After close(), when nothing is open any more. */
void fw_server_cluster_fini(struct fw_server *server);

/* What `stats epochs` shows. Any thread. */
void fw_server_stats_epochs(struct fw_server *server, fw_stat_emit emit, void *context);
