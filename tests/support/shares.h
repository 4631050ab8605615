/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that divide the rates of a cluster, on a bus (epoch/bus.h), in milliseconds of a clock of
 * their own; and what must be true of what they serve, whatever happens.
 *
 * Each node has tenants, one head of the request scheduler, its share (sched/share.h) and an epoch
 * handler: the object files that the server is made of. All nodes have the tenants "a" and "b", in
 * different orders and beside others. Of each tenant a node wants nothing, so much per second, or
 * all it can get.
 *
 * What is checked of both tenants, summed over all nodes:
 *   - in no second more than 105 % of the rate was served, and the cost of a request per node;
 *   - in every second that begins 2 s after the last change of anything, at least 95 % of what was
 *     wanted and could be had.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fairway/sched.h>

#include "epoch/bus.h"
#include "epoch/cluster.h"
#include "io/random.h"
#include "sched/share.h"

enum {
    SHARES_NODES = 3,
    SHARES_TENANTS = 2,
    SHARES_REQUESTS = 32, /* Of one tenant on one node. */
    SHARES_COST_MAX = 8,
    SHARES_RATE = 10000,
    SHARES_WINDOW_MS = 1000,
    SHARES_SETTLE_MS = 2000,
};

#define SHARES_ALL UINT32_MAX /* Wants all it can get. */

struct shares;

struct shares_demand {
    struct fw_sched_request requests[SHARES_REQUESTS];
    uint32_t number; /* The tenant's, on this node. */
    uint32_t wanted; /* Units per second, or SHARES_ALL. */
    double due;      /* Units that should have been handed in by then, and were not. */
    int64_t due_ns;
};

struct shares_node {
    struct shares *shares;
    uint32_t place;
    bool is_up;
    bool is_frozen;
    bool is_deaf; /* Its head serves, but nothing else of it runs. */
    struct fw_epoch_cluster cluster;
    int64_t cluster_ns; /* When to poll it, as the next two. */
    struct fw_share share;
    int64_t share_ns;
    struct fw_tenants *tenants;
    struct fw_sched sched;
    int64_t sched_ns;
    struct fw_sched_getter getter;
    struct fw_sched_request *got;
    struct shares_demand demands[SHARES_TENANTS];
};

struct shares {
    struct fw_bus bus;
    struct fw_random chance;
    int64_t now_ns;
    int64_t timeout_ns;
    bool keeps_fair;
    bool is_prompt; /* Nodes are never late by themselves. */
    int64_t changed_ns;
    struct shares_node nodes[SHARES_NODES];
    /* By tenant: served in each of the last milliseconds, and in all of them. */
    uint32_t served[SHARES_TENANTS][SHARES_WINDOW_MS];
    uint64_t window[SHARES_TENANTS];
    uint64_t milliseconds;
    uint64_t window_max[SHARES_TENANTS]; /* The most in any second so far; */
    double least; /* of what was wanted, as a part of one: in any second of which it is required. */
    const char *wrong; /* What should not have happened; NULL: nothing did. */
};

void shares_init(struct shares *shares, bool keeps_fair, uint64_t seed);
void shares_fini(struct shares *shares);

void shares_start(struct shares *shares, uint32_t place);
void shares_kill(struct shares *shares, uint32_t place);
void shares_freeze(struct shares *shares, uint32_t place, bool is_frozen);
void shares_deafen(struct shares *shares, uint32_t place, bool is_deaf);
/* Node by node, who hears whom. */
void shares_arrange(struct shares *shares, const uint32_t *components);

void shares_want(struct shares *shares, uint32_t place, uint32_t tenant, uint32_t wanted);

void shares_pass(struct shares *shares, uint32_t milliseconds);

/* Anything changes: demand, a node, who hears whom. */
void shares_random_change(struct shares *shares);
