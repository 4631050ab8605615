/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: readers see each metric once, as the sum over all instances there are and were; counters
 * never go back; the tables' mistakes are found.
 * Method: instances that come and go by hand, checked value by value; then a reader that races
 * writers which register, count, unregister and start again. TSan checks the ordering.
 */
#include "base/metrics.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/thread.h"
#include "support/fail_memory.h"

struct shop_metrics {
    struct fw_metric_source source;
    struct fw_counter sales;
    struct fw_gauge stock;
    struct fw_histogram visit_time;
};

static const struct fw_metric shop_rows[] = {
    FW_METRIC_COUNTER(struct shop_metrics, sales, "", "things sold"),
    FW_METRIC_GAUGE(struct shop_metrics, stock, "bytes", "things there"),
    FW_METRIC_HISTOGRAM(struct shop_metrics, visit_time, "ns", "from door to door"),
};

static const struct fw_metric_table shop_table =
    FW_METRIC_TABLE("shop", struct shop_metrics, shop_rows);

struct bank_metrics {
    struct fw_metric_source source;
    struct fw_counter coins;
};

static const struct fw_metric bank_rows[] = {
    FW_METRIC_COUNTER(struct bank_metrics, coins, "", "coins taken"),
};

static const struct fw_metric_table bank_table =
    FW_METRIC_TABLE("bank", struct bank_metrics, bank_rows);

static struct fw_metrics metrics;

/* What a visit saw, in order. */
struct seen {
    size_t count;
    char names[8][FW_METRIC_NAME_SIZE];
    uint64_t counters[8];
    int64_t gauges[8];
    uint64_t histogram_counts[8], histogram_maxima[8];
};

static void see(const struct fw_metric_value *value, void *context)
{
    struct seen *seen = context;
    assert_true(seen->count < FW_ARRAY_LENGTH(seen->names));
    (void)snprintf(seen->names[seen->count], FW_METRIC_NAME_SIZE, "%s", value->name);
    switch (value->row->type) {
    case FW_METRIC_TYPE_COUNTER:
        seen->counters[seen->count] = value->counter;
        break;
    case FW_METRIC_TYPE_GAUGE:
        seen->gauges[seen->count] = value->gauge;
        break;
    case FW_METRIC_TYPE_HISTOGRAM:
        seen->histogram_counts[seen->count] = fw_histogram_count(value->histogram);
        seen->histogram_maxima[seen->count] = fw_histogram_max(value->histogram);
        break;
    }
    seen->count++;
}

static struct seen visit(void)
{
    struct seen seen = {0};
    fw_metrics_visit(&metrics, see, &seen);
    return seen;
}

static void check_shop(uint64_t sales, int64_t stock, uint64_t visits, uint64_t visit_max)
{
    struct seen seen = visit();
    assert_int_equal(seen.count, 3);
    assert_string_equal(seen.names[0], "shop_sales");
    assert_string_equal(seen.names[1], "shop_stock");
    assert_string_equal(seen.names[2], "shop_visit_time");
    assert_int_equal(seen.counters[0], sales);
    assert_int_equal(seen.gauges[1], stock);
    assert_int_equal(seen.histogram_counts[2], visits);
    assert_int_equal(seen.histogram_maxima[2], visit_max);
}

static void test_sums(void **state)
{
    (void)state;
    memset(&metrics, 0xa5, sizeof metrics); /* Whatever was there before counts for nothing. */
    fw_metrics_init(&metrics);
    static struct shop_metrics first, second;
    assert_int_equal(visit().count, 0);
    assert_int_equal(fw_metrics_register(&metrics, &shop_table, &first.source), 0);
    check_shop(0, 0, 0, 0);
    fw_counter_increment(&first.sales);
    fw_counter_add(&first.sales, 4);
    fw_gauge_set(&first.stock, 100);
    fw_gauge_add(&first.stock, -30);
    fw_histogram_record(&first.visit_time, 7);
    check_shop(5, 70, 1, 7);
    assert_int_equal(fw_counter_get(&first.sales), 5);
    assert_int_equal(fw_gauge_get(&first.stock), 70);

    assert_int_equal(fw_metrics_register(&metrics, &shop_table, &second.source), 0);
    fw_counter_add(&second.sales, 1000);
    fw_gauge_add(&second.stock, -80); /* Negative here, and in the sum. */
    fw_histogram_record(&second.visit_time, 1000000);
    check_shop(1005, -10, 2, 1000000);
    check_shop(1005, -10, 2, 1000000); /* Reading changes nothing. */

    fw_metrics_unregister(&metrics, &second.source); /* Counts stay, gauges go. */
    check_shop(1005, 70, 2, 1000000);
    fw_counter_increment(&first.sales);
    fw_metrics_unregister(&metrics, &first.source);
    check_shop(1006, 0, 2, 1000000);

    assert_int_equal(fw_metrics_register(&metrics, &shop_table, &second.source), 0);
    check_shop(1006, 0, 2, 1000000); /* Once more, and nothing is counted twice. */
    fw_counter_increment(&second.sales);
    check_shop(1007, 0, 2, 1000000);
    fw_metrics_unregister(&metrics, &second.source);
    check_shop(1007, 0, 2, 1000000);
    fw_metrics_fini(&metrics);
}

static void test_gauges_that_overflow_on_the_way(void **state)
{
    (void)state;
    fw_metrics_init(&metrics);
    static struct shop_metrics instances[3];
    static const int64_t stocks[] = {INT64_MAX, INT64_MAX, -INT64_MAX};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(instances); i++) {
        assert_int_equal(fw_metrics_register(&metrics, &shop_table, &instances[i].source), 0);
        fw_gauge_set(&instances[i].stock, stocks[i]);
    }
    check_shop(0, INT64_MAX, 0, 0);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(instances); i++) {
        fw_metrics_unregister(&metrics, &instances[i].source);
    }
    fw_metrics_fini(&metrics);
}

static void test_modules_in_order(void **state)
{
    (void)state;
    fw_metrics_init(&metrics);
    static struct shop_metrics shop;
    static struct bank_metrics bank, other_bank;
    assert_int_equal(fw_metrics_register(&metrics, &bank_table, &bank.source), 0);
    assert_int_equal(fw_metrics_register(&metrics, &shop_table, &shop.source), 0);
    assert_int_equal(fw_metrics_register(&metrics, &bank_table, &other_bank.source), 0);
    fw_counter_add(&bank.coins, 2);
    fw_counter_add(&other_bank.coins, 3);
    fw_counter_add(&shop.sales, 7);
    struct seen seen = visit();
    assert_int_equal(seen.count, 4);
    assert_string_equal(seen.names[0], "bank_coins");
    assert_string_equal(seen.names[1], "shop_sales");
    assert_int_equal(seen.counters[0], 5);
    assert_int_equal(seen.counters[1], 7);
    fw_metrics_unregister(&metrics, &bank.source);
    fw_metrics_unregister(&metrics, &other_bank.source);
    fw_metrics_unregister(&metrics, &shop.source);
    assert_int_equal(visit().count, 4); /* A module that was there stays. */
    fw_metrics_fini(&metrics);
}

static void test_table_says_what_the_struct_is(void **state)
{
    (void)state;
    assert_string_equal(shop_rows[1].name, "stock");
    assert_string_equal(shop_rows[1].unit, "bytes");
    assert_string_equal(shop_rows[1].help, "things there");
    assert_int_equal(shop_rows[1].offset, offsetof(struct shop_metrics, stock));
    assert_int_equal(shop_table.struct_size, sizeof(struct shop_metrics));
    assert_int_equal(alignof(struct shop_metrics) % FW_CACHE_LINE, 0);
}

static void expect_refused(const struct fw_metric_table *table)
{
    static struct bank_metrics bank;
    expect_assert_failure((void)(fw_metrics_register(&metrics, table, &bank.source) == 0));
}

static void test_bad_tables(void **state)
{
    (void)state;
    fw_metrics_init(&metrics);
    static const char long_name[] =
        "a_name_so_long_that_it_cannot_be_put_behind_that_of_its_module_";
    struct fw_metric row = bank_rows[0];
    struct fw_metric_table table = bank_table;
    table.rows = &row;

    table.row_count = 0;
    expect_refused(&table);
    table.row_count = 1;
    row.name = "Coins";
    expect_refused(&table);
    row.name = long_name;
    expect_refused(&table);
    row.name = bank_rows[0].name;
    table.module = "a bank";
    expect_refused(&table);
    table.module = "bank";
    row.offset = 0;
    expect_refused(&table);
    row.offset = sizeof(struct bank_metrics);
    expect_refused(&table);
    fw_metrics_fini(&metrics);
}

/* The assertion was met with the lock held, and no test would go on otherwise. */
FW_TSA_TRUSTED static void unlock_after_assertion(void)
{
    fw_mutex_unlock(&metrics.lock);
}

static void test_misuse(void **state)
{
    (void)state;
    fw_metrics_init(&metrics);
    static struct bank_metrics bank;
    expect_assert_failure(fw_metrics_unregister(&metrics, &bank.source));
    assert_int_equal(fw_metrics_register(&metrics, &bank_table, &bank.source), 0);
    expect_assert_failure(
        (void)(fw_metrics_register(&metrics, &bank_table, &bank.source) == 0)); /* Twice. */
    expect_assert_failure(fw_metrics_fini(&metrics));                           /* Still there. */
    fw_metrics_unregister(&metrics, &bank.source);

    struct fw_metric_table same_name = bank_table; /* Two modules of one name. */
    expect_assert_failure((void)(fw_metrics_register(&metrics, &same_name, &bank.source) == 0));
    unlock_after_assertion();
    fw_metrics_fini(&metrics);
}

static void test_no_memory(void **state)
{
    (void)state;
    static struct bank_metrics bank;
    fw_metrics_init(&metrics);
    for (int allocation = 0; allocation < 2; allocation++) {
        fail_memory_after(allocation);
        assert_int_equal(fw_metrics_register(&metrics, &bank_table, &bank.source), -ENOMEM);
        assert_int_equal(visit().count, 0); /* As if it had not been tried. */
    }
    assert_int_equal(fw_metrics_register(&metrics, &bank_table, &bank.source), 0);
    assert_int_equal(visit().count, 1);
    fw_metrics_unregister(&metrics, &bank.source);
    fw_metrics_fini(&metrics);
}

struct vault_metrics {
    struct fw_metric_source source;
    struct fw_gauge gold;
};

static const struct fw_metric vault_rows[] = {
    FW_METRIC_GAUGE(struct vault_metrics, gold, "", "bars of gold"),
};

static const struct fw_metric_table vault_table =
    FW_METRIC_TABLE("vault", struct vault_metrics, vault_rows);

/* A gauge at the end of its struct: ASan sees who takes it for the beginning of a histogram. */
static void test_gauge_alone(void **state)
{
    (void)state;
    static struct vault_metrics vault;
    fw_metrics_init(&metrics);
    assert_int_equal(fw_metrics_register(&metrics, &vault_table, &vault.source), 0);
    fw_gauge_set(&vault.gold, -3);
    struct seen seen = visit();
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.names[0], "vault_gold");
    assert_int_equal(seen.gauges[0], -3);
    fw_metrics_unregister(&metrics, &vault.source);
    fw_metrics_fini(&metrics);
}

enum { WRITERS = 3, ROUNDS = 20, SALES = 10000 };

static void writer_run(void *argument)
{
    struct shop_metrics *own = argument;
    for (int round = 0; round < ROUNDS; round++) {
        int rc = fw_metrics_register(&metrics, &shop_table, &own->source);
        FW_ASSERT(rc == 0);
        for (uint64_t i = 1; i <= SALES; i++) {
            fw_counter_increment(&own->sales);
            fw_gauge_add(&own->stock, i % 2 == 0 ? 1 : -1);
            fw_histogram_record(&own->visit_time, i);
        }
        fw_metrics_unregister(&metrics, &own->source);
    }
}

static void test_readers_stop_nobody(void **state)
{
    (void)state;
    fw_metrics_init(&metrics);
    static struct shop_metrics instances[WRITERS];
    struct fw_thread writers[WRITERS];
    const uint64_t total = UINT64_C(1) * WRITERS * ROUNDS * SALES;
    uint64_t sales = 0, visits = 0;
    for (int i = 0; i < WRITERS; i++) {
        assert_int_equal(fw_thread_create(&writers[i], "writer", writer_run, &instances[i]), 0);
    }
    while (sales < total) {
        struct seen seen = visit();
        if (seen.count > 0) {
            assert_true(seen.counters[0] >= sales && seen.counters[0] <= total);
            assert_true(seen.histogram_counts[2] >= visits && seen.histogram_counts[2] <= total);
            assert_true(seen.gauges[1] >= -WRITERS && seen.gauges[1] <= 0);
            assert_true(seen.histogram_maxima[2] <= SALES);
            sales = seen.counters[0];
            visits = seen.histogram_counts[2];
        }
    }
    for (int i = 0; i < WRITERS; i++) {
        fw_thread_join(&writers[i]);
    }
    check_shop(total, 0, total, SALES);
    fw_metrics_fini(&metrics);
}

/* Tells two things of the same name, told apart by a label. */
static void collect_two(struct fw_metric_collector *collector, fw_metric_visit tell, void *context)
{
    (void)collector;
    for (uint64_t i = 0; i < 2; i++) {
        tell(&(struct fw_metric_value){.name = "shop_till",
                                       .label_name = "till",
                                       .label = i == 0 ? "left" : "right",
                                       .row = &shop_rows[0],
                                       .counter = 10 + i},
             context);
    }
}

static void labels_see(const struct fw_metric_value *value, void *context)
{
    char(*labels)[16] = context;
    if (value->label_name != NULL) {
        (void)snprintf(labels[value->counter - 10], sizeof labels[0], "%s=%s", value->label_name,
                       value->label);
    }
}

static void test_collector(void **state)
{
    (void)state;
    fw_metrics_init(&metrics);
    static struct shop_metrics shop;
    static struct fw_metric_collector collector = {.collect = collect_two};
    char labels[2][16] = {"", ""};
    assert_int_equal(fw_metrics_register(&metrics, &shop_table, &shop.source), 0);
    fw_metrics_add_collector(&metrics, &collector);
    struct seen seen = visit();
    assert_int_equal(seen.count, 5); /* Behind the modules' own, which have no label. */
    assert_string_equal(seen.names[4], "shop_till");
    assert_int_equal(seen.counters[4], 11);
    fw_metrics_visit(&metrics, labels_see, labels);
    assert_string_equal(labels[0], "till=left");
    assert_string_equal(labels[1], "till=right");
    fw_metrics_remove_collector(&metrics, &collector);
    assert_int_equal(visit().count, 3);
    fw_metrics_unregister(&metrics, &shop.source);
    fw_metrics_fini(&metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collector),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_gauges_that_overflow_on_the_way),
        cmocka_unit_test(test_modules_in_order),
        cmocka_unit_test(test_table_says_what_the_struct_is),
        cmocka_unit_test(test_bad_tables),
        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_gauge_alone),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_readers_stop_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
