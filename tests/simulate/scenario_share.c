/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three nodes divide the rates of their cluster, while demand moves and nodes die, freeze, are cut
 * off and return by the seed. Both bounds are checked at every millisecond where what was served is
 * counted (tests/support/shares.h).
 */
#include "simulate/scenarios.h"
#include "support/shares.h"

enum { CHANGES = 40, SOON_MS = 700, LATE_MS = 5000 };

static struct shares shares;

static void share_trace(uint32_t change)
{
    for (uint32_t i = 0; i < SHARES_NODES; i++) {
        const struct shares_node *node = &shares.nodes[i];
        sim_trace("change %u: node %u: %s%s, component %u, epoch %lld, last error %d", change, i,
                  node->is_up ? "up" : "down", node->is_frozen ? ", frozen" : "",
                  shares.bus.places[i].component, (long long)node->share.number,
                  node->share.last_error);
    }
}

static void share_run(void)
{
    uint64_t seed = (uint64_t)sim_between(0, INT64_MAX);
    bool keeps_fair = sim_chance(2);
    shares_init(&shares, keeps_fair, seed);
    for (uint32_t i = 0; i < SHARES_NODES; i++) {
        shares_start(&shares, i);
    }
    for (uint32_t i = 0; i < CHANGES; i++) {
        shares_random_change(&shares);
        int64_t longest = sim_chance(4) ? LATE_MS : SOON_MS;
        shares_pass(&shares, (uint32_t)sim_between(1, longest));
        if (shares.wrong != NULL) {
            share_trace(i);
            sim_trace("%s: %llu and %llu in the last second", shares.wrong,
                      (unsigned long long)shares.window[0], (unsigned long long)shares.window[1]);
        }
        SIM_EXPECT(shares.wrong == NULL);
    }
    shares_fini(&shares);
}

const struct sim_scenario sim_scenario_share = {
    .name = "share",
    .purpose = "nodes divide a cluster's rates, while demand moves and nodes come and go",
    .run = share_run,
};
