/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gang: the nodes of a cluster serve the same tenant at the same time.
 *
 * A request that fans out over several nodes is done when its last part is. If each node goes by
 * its own order, one part or another waits behind other tenants; if all nodes serve the same group
 * at the same time, the parts are done together. So each epoch (fairway/epoch.h) the nodes agree on
 * a group, which is a tenant, and serve its requests before all others:
 *
 *     epoch 7: web   |   epoch 8: batch   |   epoch 9: web   | ...        on every node alike
 *
 * Each node says which tenants have requests waiting, and for how many epochs they were not chosen;
 * of each the longest counts, and who has waited longest on any node is chosen, by all alike. So
 * with N tenants that always have something waiting each is chosen once in N epochs.
 *
 * An epoch lasts `epoch_ns` at most, and is over earlier on a node where nothing of the chosen one
 * waits any more; it goes on with it until all are ready for the next. Nobody idles: where the
 * chosen one has nothing waiting the others are served, by weight, as with `wfq`. A choice ends by
 * the heads' own clocks, so that one whose node is cut off, or whose other threads hang, serves by
 * weight until it is in step again.
 *
 * Tenants are named by a hash of their names, of which an epoch's data holds FW_SHARE_RECORDS. If
 * so many wait at once, every second epoch chooses nobody: then those who do not fit are served.
 *
 * Threads: as sched/share.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fairway/epoch.h>
#include <fairway/sched.h>

#include "base/base.h"
#include "sched/share.h"

struct fw_gang;

struct fw_gang_config {
    struct fw_tenants *tenants;
    int64_t epoch_ns;   /* How long an epoch lasts, at most, as far as this node is concerned. */
    int64_t timeout_ns; /* The handler's. */
    int64_t (*now)(struct fw_gang *gang);
    /* As in struct fw_share_config. */
    void (*arm)(struct fw_gang *gang, int64_t when_ns);
    void (*changed)(struct fw_gang *gang, bool is_in, int error);
};

struct fw_gang {
    struct fw_gang_config config;
    struct fw_epoch *epoch;
    struct fw_share_data data;
    bool is_running;
    bool is_pending;
    bool is_asking; /* Inside next(). */
    bool is_in;
    int64_t number;
    int64_t started_ns;
    int64_t ask_ns;
    uint32_t chosen; /* A tenant's number plus one; 0: none. */
    uint32_t participants;
    uint32_t *ages; /* By tenant: epochs since it was chosen, or had nothing waiting. */
    uint64_t *ids;
    uint32_t id_count; /* Of those that are known. */
};

/* The handler's configuration takes fw_share_combine() and fw_share_swab(). 0 or -ENOMEM. */
FW_MUST_CHECK int fw_gang_init(struct fw_gang *gang, const struct fw_gang_config *config);
void fw_gang_fini(struct fw_gang *gang);

void fw_gang_start(struct fw_gang *gang, struct fw_epoch *epoch);
void fw_gang_stop(struct fw_gang *gang);
void fw_gang_poll(struct fw_gang *gang);
