/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the table by hand: one table and one who uses it, at second 100. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "support/table.h"

#define MIB (UINT64_C(1) << 20)

struct world {
    struct fw_table *table;
    struct fw_table_local *local;
};

static inline struct world world_make(uint64_t memory, bool is_evicting)
{
    struct world world;
    struct fw_table_config config = {.memory = memory, .is_evicting = is_evicting, .seed = 7};
    assert_int_equal(fw_table_create(&world.table, &config, NULL), 0);
    assert_int_equal(fw_table_local_create(&world.local, world.table), 0);
    fw_table_local_set_now(world.local, 100);
    return world;
}

static inline void world_end(struct world *world)
{
    fw_table_local_destroy(world->local);
    fw_table_destroy(world->table);
}

static inline struct fw_table_totals totals_of(const struct world *world)
{
    struct fw_table_totals totals;
    fw_table_totals(world->table, &totals);
    return totals;
}

/* Stores a value of that length, in the record or beside it, which expires. What it says is open.
 */
static inline void store(struct world *world, uint64_t number, uint32_t length, uint32_t expires)
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
