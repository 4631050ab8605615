/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: requests leave the inbox in the order in which they came, over many laps, and whether one
 * of them may go before another is known without taking any out.
 * Method: random pushes and takes beside a model that is an array and two numbers; every question
 * is put to both.
 */
#include "jobs/inbox.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io/random.h"
#include "support/fail_memory.h"

enum { SLOTS = 6, STEPS = 20000 };

static void test_laps(void **state)
{
    (void)state;
    struct fw_inbox inbox;
    struct fw_random generator;
    static struct fw_job jobs[SLOTS];
    uint64_t pushed = 0, taken = 0;
    fw_random_init(&generator, 1);
    assert_int_equal(fw_inbox_init(&inbox, SLOTS), 0);
    for (int step = 0; step < STEPS; step++) {
        assert_int_equal(fw_inbox_is_empty(&inbox), pushed == taken);
        if (pushed - taken < SLOTS && fw_random_below(&generator, 2) == 0) {
            jobs[pushed % SLOTS].key = (int64_t)fw_random_below(&generator, 9) - 4;
            fw_inbox_push(&inbox, &jobs[pushed++ % SLOTS]);
        }
        int64_t key = (int64_t)fw_random_below(&generator, 11) - 5;
        bool below = true;
        for (uint64_t i = taken; i < pushed; i++) {
            below = below && jobs[i % SLOTS].key <= key;
        }
        assert_int_equal(fw_inbox_is_below(&inbox, key), below);
        if (fw_random_below(&generator, 5) == 0) {
            while (taken < pushed) {
                assert_ptr_equal(fw_inbox_take(&inbox), &jobs[taken++ % SLOTS]);
            }
            assert_null(fw_inbox_take(&inbox));
        }
    }
    assert_true(taken > (uint64_t)100 * SLOTS);
    fw_inbox_fini(&inbox);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct fw_inbox inbox;
    fail_memory_after(0);
    assert_int_equal(fw_inbox_init(&inbox, SLOTS), -ENOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_laps),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
