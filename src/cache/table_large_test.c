/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: places beyond 4 GiB work as those below: a record is found, moved, replaced and dropped
 * wherever it lies.
 * Method: a table with a limit of 8 GiB, which is addresses and hardly any memory. Its arena is
 * told that all segments but the last few below 4 GiB were used up, and the budget that they were
 * paid for: so the next records lie on both sides of the border, and there is memory for some MiB
 * of them only. Two places that differ by 4 GiB or by their upper bits alone are the same to code
 * that keeps 32 bits of them.
 */
#include "cache/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "cache/table_parts.h"
#include "support/table.h"

#define MIB    (UINT64_C(1) << 20)
#define GIB    (UINT64_C(1) << 30)
#define BORDER (4 * GIB)

enum { BELOW = 2 }; /* Segments that are left below the border. */

struct world {
    struct fw_table *table;
    struct fw_table_local *local;
};

/* So much memory is left. */
static struct world world_make(uint64_t left)
{
    struct world world;
    struct fw_table_config config = {.memory = 8 * GIB, .is_evicting = true, .seed = 7};
    assert_int_equal(fw_table_create(&world.table, &config, NULL), 0);
    assert_int_equal(fw_table_local_create(&world.local, world.table), 0);
    struct fw_arena *arena = &world.table->arena;
    arena->fresh = (BORDER >> arena->segment_shift) - BELOW;
    struct fw_budget *budget = &world.table->budget;
    assert_true(fw_budget_charge(budget, budget->limit - budget->used - left, 0));
    return world;
}

static void world_end(struct world *world)
{
    fw_table_local_destroy(world->local);
    fw_table_destroy(world->table);
}

static uint64_t place_of(const struct world *world, uint64_t number)
{
    struct key_text text = key_text(number);
    struct fw_key key = key_of(world->local, &text);
    struct fw_hold hold;
    fw_table_hold(world->local, &hold, &key);
    assert_non_null(hold.item);
    uint64_t place = fw_arena_place(&world->table->arena, hold.item);
    fw_hold_release(&hold);
    return place;
}

/* While memory lasts all items are there, on both sides, with their values. */
static void test_border(void **state)
{
    (void)state;
    enum { ITEMS = 2000, LENGTH = 1000 };
    struct world world = world_make(16 * MIB);
    for (uint64_t i = 0; i < ITEMS; i++) {
        assert_true(table_put(world.local, i, LENGTH, i, 0));
    }
    assert_true(place_of(&world, 0) < BORDER);
    assert_true(place_of(&world, ITEMS - 1) > BORDER);
    uint64_t last = 0;
    for (uint64_t i = 0; i < ITEMS; i++) {
        assert_true(table_look(world.local, i, false).is_whole);
        uint64_t place = place_of(&world, i);
        assert_true(place > last); /* Written one after the other. */
        last = place;
    }
    /* Dead bytes are counted where the record lies. */
    const struct fw_segment *segments = (void *)world.table->arena.segments.memory;
    uint64_t index = place_of(&world, ITEMS - 1) >> world.table->arena.segment_shift;
    assert_int_equal(segments[index].dead, 0);
    assert_true(table_remove(world.local, ITEMS - 1));
    assert_true(segments[index].dead > LENGTH);
    world_end(&world);
}

/* Segments beyond the border are cleaned: items are dropped and moved, and come and go. */
static void test_cleaning(void **state)
{
    (void)state;
    enum { HOT = 100, ITEMS = 40000, LENGTH = 500, EVERY = 20 };
    struct world world = world_make(4 * MIB);
    for (uint64_t i = 0; i < ITEMS; i++) {
        assert_true(table_put(world.local, HOT + i, LENGTH, i, 0));
        if (i % EVERY == 0) {
            uint64_t hot = i / EVERY % HOT;
            if (!table_look(world.local, hot, true).is_there) {
                assert_true(table_put(world.local, hot, LENGTH, hot, 0));
            }
        }
    }
    struct fw_table_totals totals;
    fw_table_totals(world.table, &totals);
    assert_in_range(totals.items, 4 * MIB / LENGTH / 2, 4 * MIB / LENGTH);
    assert_int_equal(totals.items + totals.evictions, totals.total_items);
    uint64_t beyond = 0;
    for (uint64_t i = 0; i < HOT; i++) {
        assert_true(table_look(world.local, i, true).is_whole);
        beyond += place_of(&world, i) > BORDER ? 1 : 0;
    }
    assert_true(beyond > 0);
    assert_true(table_look(world.local, HOT + ITEMS - 1, true).is_whole);
    world_end(&world);
}

/* How much of the first `size` bytes from the border on is in memory. */
static size_t resident(const struct fw_arena *arena, size_t size)
{
    static unsigned char present[4096];
    size_t unit = fw_range_unit();
    size_t count = 0;
    assert_true(size / unit <= sizeof present);
    assert_int_equal(mincore(arena->records.memory + BORDER, size, present), 0);
    for (size_t i = 0; i < size / unit; i++) {
        count += present[i] & 1;
    }
    return count * unit;
}

/* When the limit is lowered, memory beyond the border goes back to the system. */
static void test_giving_back(void **state)
{
    (void)state;
    enum { ITEMS = 6000, LENGTH = 1000 };
    struct world world = world_make(8 * MIB);
    const struct fw_arena *arena = &world.table->arena;
    for (uint64_t i = 0; i < ITEMS; i++) {
        assert_true(table_put(world.local, i, LENGTH, i, 0));
    }
    assert_true(resident(arena, 8 * MIB) > 4 * MIB);
    assert_int_equal(fw_table_set_memory(world.table, 8 * GIB - 6 * MIB), 0);
    for (uint64_t i = 0; i < ITEMS; i++) {
        (void)table_remove(world.local, i); /* Its share of the work for all is done there. */
    }
    for (uint64_t cursor = 0; !fw_table_sweep(world.local, &cursor, 1, false);) {
    }
    assert_true(resident(arena, 8 * MIB) <= 2 * MIB);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_border),
        cmocka_unit_test(test_cleaning),
        cmocka_unit_test(test_giving_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
