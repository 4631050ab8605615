/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: with several threads no value is ever torn or another key's, no write is lost that was not
 * replaced, removed or evicted, bodies live as long as their references, and the counts add up.
 * Method: threads hammer few keys in a small table, so that buckets split and merge, segments are
 * cleaned and items evicted all the time, while another sweeps and visits. TSan sees the rest.
 */
#include "cache/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/thread.h"
#include "cache/table_parts.h"
#include "io/random.h"
#include "support/table.h"

enum { THREADS = 3, STEPS = 20000, KEYS = 4000, COUNTERS = 8, COUNTS = 20000 };

static struct fw_table *table;
static atomic_uint running;
static _Atomic uint64_t bad;

struct worker {
    struct fw_thread thread;
    uint64_t number;
    uint32_t key_count;
    bool has_bodies;
};

static void table_make(uint64_t memory, bool is_evicting)
{
    struct fw_table_config config = {.memory = memory, .is_evicting = is_evicting, .seed = 3};
    assert_int_equal(fw_table_create(&table, &config, NULL), 0);
    atomic_store(&bad, 0);
}

/* Reads through a reference, after the hold. */
static void body_read(struct fw_table_local *local, uint64_t number)
{
    struct key_text text = key_text(number);
    struct fw_key key = key_of(local, &text);
    struct fw_body *body = NULL;
    struct fw_hold hold;
    fw_table_hold(local, &hold, &key);
    if (hold.item != NULL && (hold.item->bits & FW_ITEM_BODY) != 0) {
        body = fw_body_ref(fw_item_body(hold.item));
    }
    fw_hold_release(&hold);
    if (body != NULL) {
        if (!value_is_whole(body->bytes, body->length, number)) {
            atomic_fetch_add(&bad, 1);
        }
        fw_body_unref(local, body);
    }
}

static void hammer_run(void *argument)
{
    struct worker *worker = argument;
    struct fw_table_local *local;
    if (fw_table_local_create(&local, table) != 0) {
        atomic_fetch_add(&bad, 1);
        return;
    }
    struct fw_random dice;
    fw_random_init(&dice, worker->number);
    for (int i = 0; i < STEPS; i++) {
        fw_table_local_set_now(local, (uint32_t)(2 + i / 1000));
        uint64_t number = fw_random_below(&dice, worker->key_count);
        uint64_t what = fw_random_below(&dice, 10);
        if (what < 4) {
            struct table_found found = table_look(local, number, what < 2);
            if (found.is_there && !found.is_whole) {
                atomic_fetch_add(&bad, 1);
            }
        } else if (what < 8) {
            uint32_t length = (uint32_t)fw_random_between(&dice, 8, what == 4 ? 5000 : 200);
            if (worker->has_bodies && fw_random_below(&dice, 20) == 0) {
                length = (uint32_t)fw_random_between(&dice, 8193, 50000);
            }
            uint32_t expires = fw_random_below(&dice, 10) == 0 ? (uint32_t)(3 + i / 1000) : 0;
            (void)table_put(local, number, length, (uint64_t)i, expires);
        } else if (what < 9) {
            (void)table_remove(local, number);
        } else {
            body_read(local, number);
        }
    }
    fw_table_local_destroy(local);
    atomic_fetch_sub(&running, 1);
}

static void visit_check(struct fw_item *item, void *context)
{
    (void)context;
    char text[FW_ITEM_KEY_MAX + 1] = "";
    memcpy(text, item->key, item->key_length);
    uint64_t number = strtoul(text, NULL, 10);
    if (!value_is_whole(fw_item_bytes(item), fw_item_length(item), number)) {
        atomic_fetch_add(&bad, 1);
    }
}

/* Also looks at the limit, and flushes now and then. */
static void sweeper_run(void *argument)
{
    uint64_t limit = *(uint64_t *)argument;
    struct fw_table_local *local;
    if (fw_table_local_create(&local, table) != 0) {
        atomic_fetch_add(&bad, 1);
        return;
    }
    uint64_t sweep = 0;
    uint64_t visit = 0;
    for (uint32_t i = 0; atomic_load(&running) > 0; i++) {
        fw_table_local_set_now(local, 2 + i / 1000);
        (void)fw_table_sweep(local, &sweep, 10, i % 2 == 0);
        (void)fw_table_visit(local, &visit, 10, visit_check, NULL);
        struct fw_table_totals totals;
        fw_table_totals(table, &totals);
        if (totals.memory_used > limit) {
            atomic_fetch_add(&bad, 1);
        }
        if (i % 5000 == 4999) {
            fw_table_flush(local);
        }
        fw_thread_yield();
    }
    fw_table_local_destroy(local);
}

static void final_visit(struct fw_item *item, void *context)
{
    struct fw_table_totals *sum = context;
    visit_check(item, NULL);
    sum->items++;
    sum->bytes += fw_item_room(item);
    sum->bytes += (item->bits & FW_ITEM_BODY) != 0 ? fw_item_length(item) : 0;
}

/* After all have gone, a walk finds exactly what the counts say. */
static void counts_check(void)
{
    struct fw_table_local *local;
    assert_int_equal(fw_table_local_create(&local, table), 0);
    fw_table_local_set_now(local, 1000);
    uint64_t cursor = 0;
    while (!fw_table_sweep(local, &cursor, 100, false)) {
    }
    struct fw_table_totals sum = {.items = 0};
    while (!fw_table_visit(local, &cursor, 100, final_visit, &sum)) {
    }
    struct fw_table_totals totals;
    fw_table_totals(table, &totals);
    assert_int_equal(sum.items, totals.items);
    assert_int_equal(sum.bytes, totals.bytes);
    /* With nothing alive all memory can be given back but buckets and what is kept or open. */
    fw_table_flush(local);
    while (!fw_table_sweep(local, &cursor, 100, false)) {
    }
    fw_table_totals(table, &totals);
    assert_int_equal(totals.items, 0);
    assert_int_equal(totals.bytes, 0);
    fw_table_local_destroy(local);
    assert_int_equal(atomic_load(&bad), 0);
}

static void hammer(uint64_t memory, bool is_evicting, uint32_t key_count, bool has_bodies)
{
    static struct worker workers[THREADS];
    struct fw_thread sweeper;
    table_make(memory, is_evicting);
    atomic_store(&running, THREADS);
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i].number = i + 1;
        workers[i].key_count = key_count;
        workers[i].has_bodies = has_bodies;
        assert_int_equal(fw_thread_create(&workers[i].thread, "hammer", hammer_run, &workers[i]),
                         0);
    }
    assert_int_equal(fw_thread_create(&sweeper, "sweeper", sweeper_run, &memory), 0);
    for (int i = 0; i < THREADS; i++) {
        fw_thread_join(&workers[i].thread);
    }
    fw_thread_join(&sweeper);
    counts_check();
    fw_table_destroy(table);
}

static void test_few_keys(void **state)
{
    (void)state;
    hammer(UINT64_C(4) << 20, true, 20, true);
}

static void test_evicting(void **state)
{
    (void)state;
    hammer(UINT64_C(2) << 20, true, KEYS, true);
}

static void test_refusing(void **state)
{
    (void)state;
    hammer(UINT64_C(2) << 20, false, KEYS, false);
}

/* Counting up in a hold loses nothing. */
static void counter_run(void *argument)
{
    (void)argument;
    struct fw_table_local *local;
    if (fw_table_local_create(&local, table) != 0) {
        atomic_fetch_add(&bad, 1);
        return;
    }
    for (uint64_t i = 0; i < COUNTS; i++) {
        struct key_text text = key_text(i % COUNTERS);
        struct fw_key key = key_of(local, &text);
        struct fw_hold hold;
        if (!fw_table_reserve(local, fw_item_size(key.length, 64, 0))) {
            atomic_fetch_add(&bad, 1);
        }
        fw_table_hold(local, &hold, &key);
        uint64_t value = hold.item == NULL ? 0 : value_stamp(fw_item_value(hold.item));
        struct fw_item *item = fw_hold_write(&hold, value % 3 == 0 ? 16 : 24, 0, NULL);
        value_fill(fw_item_value(item), item->tail_length, i % COUNTERS, value + 1);
        fw_hold_release(&hold);
    }
    fw_table_local_destroy(local);
}

static void test_counters(void **state)
{
    (void)state;
    static struct worker workers[THREADS];
    table_make(UINT64_C(1) << 20, true);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(fw_thread_create(&workers[i].thread, "counter", counter_run, NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        fw_thread_join(&workers[i].thread);
    }
    struct fw_table_local *local;
    assert_int_equal(fw_table_local_create(&local, table), 0);
    for (uint64_t i = 0; i < COUNTERS; i++) {
        struct table_found found = table_look(local, i, false);
        assert_true(found.is_whole);
        assert_int_equal(found.stamp, THREADS * COUNTS / COUNTERS);
    }
    fw_table_local_destroy(local);
    counts_check();
    fw_table_destroy(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_keys),
        cmocka_unit_test(test_evicting),
        cmocka_unit_test(test_refusing),
        cmocka_unit_test(test_counters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
