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
#include "support/table.h"

#define MIB (UINT64_C(1) << 20)

enum { BODY = 9000, BODIES = 400 };

struct world {
    struct fw_table *table;
    struct fw_table_local *local;
};

static struct world world_make(uint64_t memory)
{
    struct world world;
    struct fw_table_config config = {.memory = memory, .is_evicting = true, .seed = 7};
    assert_int_equal(fw_table_create(&world.table, &config, NULL), 0);
    assert_int_equal(fw_table_local_create(&world.local, world.table), 0);
    fw_table_local_set_now(world.local, 100);
    return world;
}

static void world_end(struct world *world)
{
    fw_table_local_destroy(world->local);
    fw_table_destroy(world->table);
}

static struct fw_table_totals totals_of(const struct world *world)
{
    struct fw_table_totals totals;
    fw_table_totals(world->table, &totals);
    return totals;
}

static void store(struct world *world, uint64_t number, uint32_t length, uint32_t expires)
{
    struct key_text text = key_text(number);
    struct fw_key key = key_of(world->local, &text);
    struct fw_body *body =
        length > FW_ITEM_INLINE_MAX ? fw_body_create(world->local, length) : NULL;
    struct fw_hold hold;
    struct fw_item *item;
    assert_true(fw_table_reserve(world->local, fw_item_size(key.length, length, FW_ITEM_FIELDS)));
    fw_table_hold(world->local, &hold, &key);
    if (length > FW_ITEM_INLINE_MAX) {
        assert_non_null(body);
        item = fw_hold_attach(&hold, body, FW_ITEM_EXPIRES);
    } else {
        item = fw_hold_write(&hold, length, FW_ITEM_EXPIRES, NULL);
    }
    fw_item_set_expires(item, expires);
    fw_hold_release(&hold);
}

static void test_buckets_full_of_bodies_expire_at_once(void **state)
{
    (void)state;
    struct world world = world_make(64 * MIB);
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
