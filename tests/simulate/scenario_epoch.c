/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedulers of a cluster that go in step, while messages are late and processes and connections
 * come and go by the seed. What must be true of every answer is checked where it arrives
 * (tests/support/epochs.h); in the end all is healed, and all must be in step again.
 */
#include "simulate/scenarios.h"
#include "support/epochs.h"

enum { STEPS = 3000 };

static struct epochs epochs;

static void nodes_trace(const char *when)
{
    for (uint32_t i = 0; i < epochs.count; i++) {
        const struct epochs_node *node = &epochs.nodes[i];
        sim_trace("%s: node %u: %s, epoch %lld of life %llu, %llu answers, %llu started", when, i,
                  node->is_up ? "up" : "down", (long long)node->number,
                  (unsigned long long)node->incarnation, (unsigned long long)node->answers,
                  (unsigned long long)node->started);
    }
}

static void epoch_run(void)
{
    uint32_t count = (uint32_t)sim_between(2, 5);
    uint64_t seed = (uint64_t)sim_between(0, INT64_MAX);
    epochs_init(&epochs, count, seed);
    for (uint32_t i = 0; i < epochs.count; i++) {
        epochs_start(&epochs, i);
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        epochs_random_step(&epochs, true);
        if (epochs.wrong != NULL) {
            sim_trace("after %u steps: %s", i, epochs.wrong);
        }
        SIM_EXPECT(epochs.wrong == NULL);
    }
    nodes_trace("before it is healed");
    bool has_recovered = epochs_recover(&epochs);
    nodes_trace("after it was healed");
    SIM_EXPECT(has_recovered);
    epochs_fini(&epochs);
}

const struct sim_scenario sim_scenario_epoch = {
    .name = "epoch",
    .purpose = "schedulers in step, with kills, freezes and cuts",
    .run = epoch_run,
};
