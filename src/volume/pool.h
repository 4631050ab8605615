/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many extents a host should have in advance: its target.
 *
 * A host that uses up half of its target within the quiet time gets twice as much from then on; one
 * that used less than an eighth in all of that time gets half. In between nothing changes, so that
 * a steady load has a steady pool. The pool is filled when it is below half of the target, in one
 * go, so that there are few grants and the extents of one lie together.
 *
 * A pool is what a host can go on with while the manager is down: with the default of 60 s quiet
 * time, at least as much as it used in the busiest minute lately. That is why it grows at once and
 * shrinks late.
 */
#pragma once

#include <stdint.h>

struct fw_volume_limits {
    uint64_t min; /* At least 1. */
    uint64_t max; /* At least min. */
    int64_t quiet_ns;
};

struct fw_volume_demand {
    uint64_t target;
    uint64_t used;    /* Since... */
    int64_t since_ns; /* ... then. */
};

/* Of a host that has `pool` extents already. */
void fw_volume_demand_init(struct fw_volume_demand *demand, const struct fw_volume_limits *limits,
                           uint64_t pool, int64_t now_ns);

/* The host has placed that many. */
void fw_volume_demand_use(struct fw_volume_demand *demand, uint64_t count);

/* Adapts the target, and tells how many to grant to a host that has `pool`. */
uint64_t fw_volume_demand_want(struct fw_volume_demand *demand,
                               const struct fw_volume_limits *limits, uint64_t pool,
                               int64_t now_ns);

/* Others have none: takes half of what is above the minimum. */
void fw_volume_demand_squeeze(struct fw_volume_demand *demand,
                              const struct fw_volume_limits *limits);
