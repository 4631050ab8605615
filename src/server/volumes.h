/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocators of volumes as services of the server: the agent of this host, and the manager of
 * the group where this server is to be that.
 *
 * Both are jobs of lane 0, for as long as the server runs: they block, and look into their rings a
 * few times a second. Each opens its side of the group itself and, when the disk fails or the host
 * is not connected yet, says so once and tries again. So a group that is not there does not keep a
 * cache from serving. Only an operator's shutdown ends a service for good.
 *
 * What they do is `fairway volume agent` and `fairway volume manager` without a process of their
 * own. Threads: begin() and end() belong to who makes and ends the server; figures are read by any.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/jobs.h>

#include "base/base.h"
#include "base/reason.h"
#include "base/thread.h"

struct fw_server_volume_config {
    const char *group; /* The path of its disk; NULL: no volumes. */
    const char *host;  /* The agent's; NULL: no agent. */
    bool is_manager;
    uint64_t pool_min;
    uint64_t low_percent;
    int64_t interval_ns;
};

struct fw_volumes_service {
    struct fw_job job; /* Also its owner. */
    struct fw_parker parker;
    struct fw_volumes *volumes;
    struct fw_reason told; /* Why it does not run; said once. */
    bool is_posted;
};

struct fw_volumes {
    const struct fw_server_volume_config *config;
    struct fw_jobs *jobs;
    struct fw_volumes_service manager, agent;
    atomic_bool must_end;

    /* Figures, relaxed. */
    _Atomic uint64_t managers, agents, pool, extents, free, low;
};

/* 0, or -EINVAL with the reason. */
FW_MUST_CHECK int fw_volumes_check(const struct fw_server_volume_config *config,
                                   struct fw_reason *reason);

/* How many workers they need in lane 0. */
uint32_t fw_volumes_services(const struct fw_server_volume_config *config);

/* Returns 0, or a negative errno with the reason; then nothing is to be ended. */
FW_MUST_CHECK int fw_volumes_begin(struct fw_volumes *volumes, struct fw_jobs *jobs,
                                   const struct fw_server_volume_config *config,
                                   struct fw_reason *reason);

/* Returns when both have let go of the group: pools are given back, metadata flushed. */
void fw_volumes_end(struct fw_volumes *volumes);
