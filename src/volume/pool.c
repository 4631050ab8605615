/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/pool.h"

#include <stdbool.h>

static uint64_t clamp(uint64_t target, const struct fw_volume_limits *limits)
{
    if (target < limits->min) {
        return limits->min;
    }
    return target > limits->max ? limits->max : target;
}

void fw_volume_demand_init(struct fw_volume_demand *demand, const struct fw_volume_limits *limits,
                           uint64_t pool, int64_t now_ns)
{
    *demand = (struct fw_volume_demand){.target = clamp(pool, limits), .since_ns = now_ns};
}

void fw_volume_demand_use(struct fw_volume_demand *demand, uint64_t count)
{
    demand->used += count;
}

uint64_t fw_volume_demand_want(struct fw_volume_demand *demand,
                               const struct fw_volume_limits *limits, uint64_t pool, int64_t now_ns)
{
    bool is_busy = 2 * demand->used > demand->target;
    bool is_over = now_ns - demand->since_ns >= limits->quiet_ns;
    if (is_busy) {
        demand->target = clamp(2 * demand->target, limits);
    } else if (is_over && 8 * demand->used < demand->target) {
        demand->target = clamp(demand->target / 2, limits);
    }
    if (is_busy || is_over) {
        demand->used = 0;
        demand->since_ns = now_ns;
    }
    return 2 * pool < demand->target ? demand->target - pool : 0;
}

void fw_volume_demand_squeeze(struct fw_volume_demand *demand,
                              const struct fw_volume_limits *limits)
{
    demand->target = clamp(demand->target - (demand->target - limits->min + 1) / 2, limits);
}
