/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: going round the buckets does what it says, however many large values a bucket has.
 * Method: by hand, with more large values in a bucket than can die in one hold.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "cache/table_parts.h"
#include "support/table_world.h"

enum { BODY = 9000, BODIES = 400 };

static void test_buckets_full_of_bodies_expire_at_once(void **state)
{
    (void)state;
    struct world world = world_make(64 * MIB, true);
    for (uint64_t i = 0; i < BODIES; i++) {
        store(&world, i, BODY, 200);
    }
    assert_true(totals_of(&world).items / totals_of(&world).buckets >= FW_BUCKET_LOAD_LOW);
    fw_table_local_set_now(world.local, 200);
    uint64_t cursor = 0;
    while (!fw_table_sweep(world.local, &cursor, 4, false)) {
    }
    assert_int_equal(totals_of(&world).items, 0);
    assert_int_equal(totals_of(&world).reclaimed, BODIES);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets_full_of_bodies_expire_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
