/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table under every order of steps that the seeds find: threads store, read and remove, buckets
 * split and merge, segments are cleaned, one goes round and sweeps, another goes round and visits.
 *
 * A book is kept beside the table, written inside the holds, where no other fibre can come in
 * between. Whatever a hold finds must be what the book says, whole; what it does not find must be
 * out of the book, unless the table may evict. Some keys stay for good, and every round of visits
 * must show them all. In the end book, counts and a last visit agree.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/thread.h"
#include "cache/bucket.h"
#include "cache/table.h"
#include "simulate/scenarios.h"
#include "support/table.h"

enum { KEYS = 260, STAYING = 12, WRITERS = 2, ROUNDS = 4, LENGTH_MAX = 8000 };

static struct {
    struct fw_table *table;
    bool is_evicting;
    uint32_t length_max;
    bool is_there[KEYS];
    uint64_t stamp[KEYS];
    uint64_t stamp_next;
    uint32_t seen[KEYS];
    uint32_t writers_left;
    uint64_t moved_buckets; /* How often the number of buckets was seen to have changed. */
} world;

static struct fw_table_local *local_make(void)
{
    struct fw_table_local *local;
    int rc = fw_table_local_create(&local, world.table);
    SIM_EXPECT(rc == 0);
    fw_table_local_set_now(local, 10);
    return local;
}

static void book_check(struct fw_item *item, uint64_t number)
{
    if (item == NULL) {
        SIM_EXPECT(world.is_evicting || !world.is_there[number]);
        world.is_there[number] = false;
        return;
    }
    SIM_EXPECT(world.is_there[number]);
    const char *bytes = fw_item_bytes(item);
    SIM_EXPECT(value_stamp(bytes) == world.stamp[number]);
    SIM_EXPECT(value_is_whole(bytes, fw_item_length(item), number));
}

/* A value of another length each time, or of the same: then it is written in place. */
static void store(struct fw_table_local *local, uint64_t number)
{
    struct key_text text = key_text(number);
    struct fw_key key = key_of(local, &text);
    uint32_t length = (uint32_t)sim_between(8, world.length_max);
    length = sim_chance(3) ? 64 : length;
    if (!fw_table_reserve(local, fw_item_size(key.length, length, FW_ITEM_FIELDS))) {
        SIM_EXPECT(!world.is_evicting);
        return;
    }
    struct fw_hold hold;
    fw_table_hold(local, &hold, &key);
    book_check(hold.item, number);
    struct fw_item *item = fw_hold_write(&hold, length, 0, NULL);
    world.stamp[number] = ++world.stamp_next;
    world.is_there[number] = true;
    value_fill(fw_item_value(item), length, number, world.stamp_next);
    fw_hold_release(&hold);
}

static void look(struct fw_table_local *local, uint64_t number, bool removes)
{
    struct key_text text = key_text(number);
    struct fw_key key = key_of(local, &text);
    struct fw_hold hold;
    fw_table_hold(local, &hold, &key);
    book_check(hold.item, number);
    if (hold.item != NULL && removes) {
        fw_hold_remove(&hold);
        world.is_there[number] = false;
    } else if (hold.item != NULL) {
        fw_hold_access(&hold);
    }
    fw_hold_release(&hold);
}

/* Fills the table and empties it again, so that it grows and shrinks. */
static void writer_run(void *argument)
{
    (void)argument;
    struct fw_table_local *local = local_make();
    for (int round = 0; round < ROUNDS; round++) {
        int64_t steps = sim_between(50, 200);
        for (int64_t i = 0; i < steps; i++) {
            store(local, (uint64_t)sim_between(0, KEYS - 1));
            look(local, (uint64_t)sim_between(0, KEYS - 1), false);
        }
        steps = sim_between(50, 400);
        for (int64_t i = 0; i < steps; i++) {
            look(local, (uint64_t)sim_between(STAYING, KEYS - 1), true);
        }
    }
    fw_table_local_destroy(local);
    world.writers_left--;
}

static void sweeper_run(void *argument)
{
    (void)argument;
    struct fw_table_local *local = local_make();
    uint64_t cursor = 0;
    struct fw_table_totals totals;
    uint64_t buckets = 0;
    while (world.writers_left > 0) {
        uint32_t bucket_count = (uint32_t)sim_between(1, 20);
        bool raises = sim_chance(2);
        (void)fw_table_sweep(local, &cursor, bucket_count, raises);
        fw_table_totals(world.table, &totals);
        SIM_EXPECT(totals.memory_used <= totals.memory_limit);
        world.moved_buckets += totals.buckets != buckets ? 1 : 0;
        buckets = totals.buckets;
        sim_sleep(sim_between(0, 2) * SIM_US);
    }
    fw_table_local_destroy(local);
}

static void visit(struct fw_item *item, void *context)
{
    (void)context;
    char text[FW_ITEM_KEY_MAX + 1] = "";
    memcpy(text, item->key, item->key_length);
    uint64_t number = strtoul(text, NULL, 10);
    SIM_EXPECT(number < KEYS);
    book_check(item, number);
    world.seen[number]++;
}

static void round_check(struct fw_table_local *local)
{
    uint64_t cursor = 0;
    memset(world.seen, 0, sizeof world.seen);
    while (!fw_table_visit(local, &cursor, (uint32_t)sim_between(1, 9), visit, NULL)) {
        sim_sleep(sim_between(0, 2) * SIM_US);
    }
    for (int i = 0; i < STAYING; i++) {
        SIM_EXPECT(world.seen[i] > 0 || world.is_evicting);
    }
}

static void visitor_run(void *argument)
{
    (void)argument;
    struct fw_table_local *local = local_make();
    while (world.writers_left > 0) {
        round_check(local);
    }
    fw_table_local_destroy(local);
}

/* Alone again: what is in the book is there once, and nothing else. */
static void end_check(void)
{
    struct fw_table_local *local = local_make();
    uint64_t count = 0;
    for (uint64_t i = 0; i < KEYS; i++) {
        look(local, i, false);
        count += world.is_there[i] ? 1 : 0;
    }
    round_check(local);
    for (uint64_t i = 0; i < KEYS; i++) {
        SIM_EXPECT(world.seen[i] == (world.is_there[i] ? 1 : 0));
    }
    struct fw_table_totals totals;
    fw_table_totals(world.table, &totals);
    SIM_EXPECT(totals.items == count);
    sim_trace("%u items, %u buckets, %u evictions, %u changes seen", (unsigned)totals.items,
              (unsigned)totals.buckets, (unsigned)totals.evictions, (unsigned)world.moved_buckets);
    fw_table_local_destroy(local);
}

static void table_run(void)
{
    memset(&world, 0, sizeof world);
    world.is_evicting = sim_chance(3);
    world.length_max = sim_chance(2) ? LENGTH_MAX : 200;
    world.writers_left = WRITERS;
    struct fw_table_config config = {.memory = 1 << 20, .is_evicting = world.is_evicting};
    config.seed = (uint64_t)sim_between(1, 1000000);
    int rc = fw_table_create(&world.table, &config, NULL);
    SIM_EXPECT(rc == 0);
    struct fw_table_local *local = local_make();
    for (uint64_t i = 0; i < STAYING; i++) {
        store(local, i);
    }
    fw_table_local_destroy(local);
    struct fw_thread threads[WRITERS + 2];
    for (int i = 0; i < WRITERS + 2; i++) {
        void (*run)(void *) = i < WRITERS ? writer_run : i == WRITERS ? sweeper_run : visitor_run;
        rc = fw_thread_create(&threads[i], "table", run, NULL);
        FW_ASSERT(rc == 0);
    }
    for (int i = 0; i < WRITERS + 2; i++) {
        fw_thread_join(&threads[i]);
    }
    end_check();
    fw_table_destroy(world.table);
}

const struct sim_scenario sim_scenario_table = {
    .name = "table",
    .purpose = "items are stored, moved and removed while buckets split and merge",
    .run = table_run,
};
