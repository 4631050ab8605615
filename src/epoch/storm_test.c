/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever a network and its machines do, no two who stay connected are told different things
 * of an epoch, each next() is answered exactly once and in time, and when all is well again all go
 * in step again.
 * Method: three to five schedulers on a bus, thousands of random steps by seed: messages delayed,
 * processes killed, frozen and started again, the bus cut and healed with and without loss. The
 * rig (tests/support/epochs.h) checks every answer; in the end everything is healed and the epochs
 * must have everybody in them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/base.h"
#include "support/epochs.h"

enum { SEEDS = 400, STEPS = 6000, RETRY_ROUNDS = 20 };

static struct epochs epochs;

static void recover(uint64_t seed)
{
    bool has_recovered = epochs_recover(&epochs);
    if (!has_recovered) {
        print_error("seed %lu: %s\n", (unsigned long)seed,
                    epochs.wrong != NULL ? epochs.wrong : "not in step after it was healed");
    }
    assert_true(has_recovered);
    epochs_kill(&epochs, 0); /* A view for the others, who become sure of what they were told. */
    epochs_run(&epochs, 2);
    assert_null(epochs.wrong);
}

static void storm(uint32_t count, uint64_t seed)
{
    epochs_init(&epochs, count, seed);
    for (uint32_t i = 0; i < count; i++) {
        epochs_start(&epochs, i);
    }
    for (uint32_t i = 0; i < STEPS && epochs.wrong == NULL; i++) {
        epochs_random_step(&epochs, true);
    }
    recover(seed);
    epochs_fini(&epochs);
}

static void test_storms(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        storm(3 + (uint32_t)(seed % 3), seed);
    }
}

/* Without faults nobody is ever evicted, cut off or told anything but the next number. */
static void test_calm(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        epochs_init(&epochs, 3, seed);
        epochs.timeout_ns = INT64_C(3600) * 1000000000;
        for (uint32_t i = 0; i < 3; i++) {
            epochs_start(&epochs, i);
        }
        epochs_run(&epochs, 2 * RETRY_ROUNDS); /* The first ones have no quorum yet. */
        for (uint32_t i = 0; i < 3; i++) {
            epochs.nodes[i].answers = 0;
            epochs.nodes[i].started = 0;
        }
        for (uint32_t i = 0; i < STEPS; i++) {
            epochs_random_step(&epochs, false);
        }
        for (uint32_t i = 0; i < 3; i++) {
            const struct epochs_node *node = &epochs.nodes[i];
            assert_null(epochs.wrong);
            assert_true(node->started > 50);
            assert_int_equal(node->answers, node->started);
            assert_int_equal(node->cluster.figures.evicted, 0);
        }
        epochs_fini(&epochs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_storms),
        cmocka_unit_test(test_calm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
