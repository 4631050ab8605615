/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what the table has for replicas: it can be emptied, flushed to a number and told which
 * numbers are taken; what it drops by itself is written down; and that of a replica drops nothing,
 * but moves its items together until there is no room at all.
 * Method: each by hand, with more large values in a bucket than can die in one hold, too.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "cache/changes.h"
#include "cache/table_parts.h"
#include "support/table_world.h"

enum { BODY = 9000, MORE_THAN_FIT = 20000 };

static bool is_there(struct world *world, uint64_t number)
{
    struct key_text text = key_text(number);
    struct fw_key key = key_of(world->local, &text);
    struct fw_hold hold;
    fw_table_hold(world->local, &hold, &key);
    bool is_there = hold.item != NULL;
    fw_hold_release(&hold);
    return is_there;
}

static void test_clear(void **state)
{
    (void)state;
    struct world world = world_make(64 * MIB, true);
    for (uint64_t i = 0; i < 3000; i++) {
        store(&world, i, i % 8 == 0 ? BODY : 20, 0);
    }
    fw_table_flush(world.local);
    store(&world, 1, 20, 0);
    uint64_t cursor = 0;
    uint32_t steps = 0;
    while (!fw_table_clear(world.local, &cursor, 16)) {
        steps++;
    }
    assert_true(steps > 3);
    struct fw_table_totals totals = totals_of(&world);
    assert_int_equal(totals.items, 0);
    assert_int_equal(totals.bytes, 0);
    /* An item with a number below that of the old flush is alive. */
    store(&world, 5, 20, 0);
    struct key_text text = key_text(5);
    struct fw_key key = key_of(world.local, &text);
    struct fw_hold hold;
    fw_table_hold(world.local, &hold, &key);
    fw_item_set_number(hold.item, 1);
    fw_hold_release(&hold);
    assert_true(is_there(&world, 5));
    world_end(&world);
}

static void test_numbers(void **state)
{
    (void)state;
    struct world world = world_make(8 * MIB, true);
    assert_int_equal(fw_table_number(world.table), 1);
    fw_table_take_numbers(world.table, 1000);
    assert_int_equal(fw_table_number(world.table), 1001);
    fw_table_take_numbers(world.table, 1000);
    fw_table_take_numbers(world.table, 7);
    assert_int_equal(fw_table_number(world.table), 1001);
    store(&world, 1, 20, 0); /* 1001 */
    store(&world, 2, 20, 0); /* 1002 */
    fw_table_flush_below(world.local, 1002);
    assert_false(is_there(&world, 1));
    assert_true(is_there(&world, 2));
    fw_table_flush_below(world.local, 5);
    assert_true(is_there(&world, 2));
    fw_table_flush_below(world.local, 1003);
    assert_false(is_there(&world, 2));
    world_end(&world);
}

/* The last numbers are given once each, and then nothing wraps: a flush still takes everything. */
static void test_the_end_of_the_numbers(void **state)
{
    (void)state;
    struct world world = world_make(8 * MIB, true);
    store(&world, 1, 20, 0);
    fw_table_take_numbers(world.table, FW_ITEM_NUMBER_END - FW_ITEM_NUMBERS_KEPT - 3);
    store(&world, 2, 20, 0);
    assert_false(fw_table_is_used_up(world.table));
    store(&world, 3, 20, 0);
    store(&world, 4, 20, 0);
    assert_true(fw_table_is_used_up(world.table));
    fw_table_flush(world.local);
    store(&world, 5, 20, 0); /* It began while there were some left. */
    assert_true(!is_there(&world, 1) && !is_there(&world, 4) && is_there(&world, 5));
    fw_table_flush(world.local);
    assert_false(is_there(&world, 5));
    fw_table_take_numbers(world.table, UINT64_MAX);
    assert_int_equal(fw_table_number(world.table), FW_ITEM_NUMBER_END - 1);
    for (uint64_t i = 6; i < 9; i++) {
        store(&world, i, 20, 0);
        assert_true(is_there(&world, i));
    }
    assert_int_equal(fw_table_number(world.table), FW_ITEM_NUMBER_END - 1);
    world_end(&world);
}

/* What has expired stays where the master says what is gone, through sweeps and cleaning too. */
static void test_expired_items_are_kept(void **state)
{
    (void)state;
    struct world world = world_make(8 * MIB, true);
    fw_table_keep_expired(world.table, true);
    for (uint64_t i = 0; i < 100; i++) {
        store(&world, i, 20, 200);
    }
    fw_table_local_set_now(world.local, 300);
    uint64_t cursor = 0;
    while (!fw_table_sweep(world.local, &cursor, 16, true)) {
    }
    while (fw_local_clean(world.local, 1000, true)) {
    }
    assert_int_equal(totals_of(&world).items, 100);
    assert_false(is_there(&world, 5));
    fw_table_local_see_expired(world.local, true);
    assert_true(is_there(&world, 5));
    fw_table_local_see_expired(world.local, false);
    assert_int_equal(totals_of(&world).items, 100);
    fw_table_keep_expired(world.table, false);
    assert_false(is_there(&world, 5));
    assert_int_equal(totals_of(&world).items, 99);
    while (!fw_table_sweep(world.local, &cursor, 16, true)) {
    }
    assert_int_equal(totals_of(&world).items, 0);
    world_end(&world);
}

/* What expires is written down for who wants it, and for as long as that one may come back. */
static void test_expired_items_are_written_down(void **state)
{
    (void)state;
    struct world world = world_make(8 * MIB, true);
    struct fw_changes *changes = fw_table_changes(world.table);
    uint64_t history = 0, position = 0;
    bool can_go_on;
    assert_int_equal(
        fw_changes_enter(changes, 0, FW_CHANGES_EXPIRED, &history, &position, &can_go_on), 0);
    fw_changes_leave(changes, FW_CHANGES_EXPIRED, position);
    store(&world, 1, 20, 200);
    store(&world, 2, 20, 0);
    uint64_t before = fw_changes_head(changes);
    uint64_t noted = fw_table_local_noted(world.local);
    fw_table_local_set_now(world.local, 300);
    assert_false(is_there(&world, 1));
    uint64_t after = fw_changes_head(changes);
    assert_true(after > before);
    fw_table_flush(world.local);
    uint64_t flushed = fw_changes_head(changes);
    assert_false(is_there(&world, 2)); /* The flush stands there already. */
    assert_int_equal(fw_changes_head(changes), flushed);
    assert_int_equal(fw_table_local_noted(world.local), noted + 1);
    fw_changes_forget(changes);
    assert_false(fw_changes_wants(changes, FW_CHANGES_EXPIRED));
    world_end(&world);
}

static void test_evictions_are_written_down(void **state)
{
    (void)state;
    struct world world = world_make(2 * MIB, true);
    struct fw_changes *changes = fw_table_changes(world.table);
    uint64_t history = 0, position = 0;
    bool can_go_on;
    assert_int_equal(fw_changes_enter(changes, 16 * MIB, 0, &history, &position, &can_go_on), 0);
    enum { STORES = 20000 };
    for (uint64_t i = 0; i < STORES; i++) {
        store(&world, i, 200, 0);
    }
    assert_true(totals_of(&world).evictions > STORES / 4);
    char batch[FW_CHANGES_BATCH];
    uint64_t count = 0, evicted = 0;
    int length;
    while ((length = fw_changes_read(changes, &position, batch)) > 0) {
        const char *next = batch;
        struct fw_change change;
        for (; next < batch + length; count++) {
            assert_true(fw_change_next(&next, batch + length, &change));
            if (fw_change_is_eviction(&change)) {
                evicted++;
                assert_in_range(change.number, 1, STORES);
            }
        }
    }
    assert_int_equal(length, 0);
    assert_int_equal(count, STORES + totals_of(&world).evictions);
    assert_int_equal(evicted, totals_of(&world).evictions);
    fw_changes_leave(changes, 0, position);
    world_end(&world);
}

/* Stores what comes next, up to `end`, while there is memory. Returns which could not be stored. */
static uint64_t fill(struct world *world, uint64_t next, uint64_t end)
{
    while (next < end && fw_table_reserve(world->local, fw_item_size(sizeof(struct key_text), 200,
                                                                     FW_ITEM_FIELDS))) {
        store(world, next++, 200, 0);
    }
    return next;
}

static void evict(struct world *world, uint64_t number, bool is_main)
{
    struct key_text text = key_text(number);
    struct fw_key key = key_of(world->local, &text);
    struct fw_hold hold;
    fw_table_hold(world->local, &hold, &key);
    assert_non_null(hold.item);
    fw_hold_evict(&hold, is_main);
    fw_hold_release(&hold);
}

/*
 * A replica has no room when it is full, and drops nothing. What its master drops here and there,
 * less than would make any segment hollow, is room for as much again.
 */
static void test_a_replica_drops_nothing(void **state)
{
    (void)state;
    struct world world = world_make(2 * MIB, true);
    fw_table_keep_items(world.table, true);
    uint64_t full = fill(&world, 0, MORE_THAN_FIT);
    assert_in_range(full, 4000, 12000);
    assert_int_equal(totals_of(&world).items, full);
    assert_int_equal(totals_of(&world).evictions, 0);
    uint64_t dropped = 0;
    for (uint64_t i = 5; i < full; i += 10) {
        evict(&world, i, false);
        dropped++;
    }
    uint64_t next = fill(&world, full, full + dropped - 100);
    assert_int_equal(next, full + dropped - 100);
    assert_int_equal(totals_of(&world).evictions, 0);
    for (uint64_t i = 0; i < next; i++) {
        assert_int_equal(is_there(&world, i), i >= full || i % 10 != 5);
    }
    world_end(&world);
}

/* On its own again it goes back to its limit, and what was read stays. */
static void test_a_replica_becomes_independent(void **state)
{
    (void)state;
    enum { READ_EVERY = 20 };
    struct world world = world_make(2 * MIB, true);
    fw_table_keep_items(world.table, true);
    uint64_t full = fill(&world, 0, MORE_THAN_FIT);
    for (uint64_t i = 0; i < full; i += READ_EVERY) {
        struct key_text text = key_text(i);
        struct fw_key key = key_of(world.local, &text);
        struct fw_hold hold;
        fw_table_hold(world.local, &hold, &key);
        fw_hold_access(&hold);
        fw_hold_release(&hold);
    }
    assert_true(totals_of(&world).memory_used > totals_of(&world).memory_limit);
    fw_table_keep_items(world.table, false);
    assert_int_equal(fill(&world, full, full + full / 4), full + full / 4);
    assert_true(totals_of(&world).memory_used <= totals_of(&world).memory_limit);
    assert_true(totals_of(&world).evictions > full / 4);
    for (uint64_t i = 0; i < full; i += READ_EVERY) {
        assert_true(is_there(&world, i));
    }
    world_end(&world);
}

/* What the master has evicted is known when it comes back, as it is there. */
static void test_evicted_keys_are_remembered(void **state)
{
    (void)state;
    struct world world = world_make(8 * MIB, true);
    fw_table_keep_items(world.table, true);
    assert_int_equal(fill(&world, 0, 1000), 1000);
    evict(&world, 7, true);
    store(&world, 7, 200, 0);
    store(&world, 1001, 200, 0);
    for (uint64_t i = 7; i <= 1001; i += 994) {
        struct key_text text = key_text(i);
        struct fw_key key = key_of(world.local, &text);
        struct fw_hold hold;
        fw_table_hold(world.local, &hold, &key);
        assert_int_equal(hold.item->bits & FW_ITEM_AGE, i == 7 ? 0 : FW_ITEM_AGE_NEW);
        fw_hold_release(&hold);
    }
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clear),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_the_end_of_the_numbers),
        cmocka_unit_test(test_expired_items_are_kept),
        cmocka_unit_test(test_expired_items_are_written_down),
        cmocka_unit_test(test_evictions_are_written_down),
        cmocka_unit_test(test_a_replica_drops_nothing),
        cmocka_unit_test(test_a_replica_becomes_independent),
        cmocka_unit_test(test_evicted_keys_are_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
