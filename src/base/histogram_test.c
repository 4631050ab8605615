/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: every answer is within 1/128 of the value recorded, the largest is exact, merging loses
 * nothing, and readers may look at any moment.
 * Method: the bound at both edges of all buckets, one value at a time; percentiles of known sets
 * beside a sorted array; a maximum that lags behind its bucket, made by hand; and a reader racing
 * the writer, which TSan watches.
 */
#include "base/histogram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/thread.h"

static struct fw_histogram histogram, other;

/* |answer - value| <= value / 128, without a division that would round in our favour. */
static void assert_within_bound(uint64_t answer, uint64_t value)
{
    uint64_t error = answer > value ? answer - value : value - answer;
    if (error > UINT64_MAX / 128 || error * 128 > value) {
        fail_msg("%ju stands for %ju", (uintmax_t)answer, (uintmax_t)value);
    }
}

/* The lowest value of each bucket, found without the formula under test: by bisection. */
static uint64_t bucket_low(uint32_t bucket)
{
    uint64_t below = 0, at = FW_HISTOGRAM_LIMIT;
    while (below < at) {
        uint64_t middle = below + (at - below) / 2;
        if (fw_histogram_bucket(middle) < bucket) {
            below = middle + 1;
        } else {
            at = middle;
        }
    }
    return at;
}

/* Records `value` below a larger one, so that the answer is the bucket's and not the maximum. */
static void check_value(uint64_t value)
{
    fw_histogram_init(&histogram);
    fw_histogram_record(&histogram, value);
    assert_int_equal(fw_histogram_percentile(&histogram, 50), value); /* The largest: exact. */
    fw_histogram_record(&histogram, FW_HISTOGRAM_LIMIT);
    assert_within_bound(fw_histogram_percentile(&histogram, 50), value);
}

static void test_bound_at_every_edge(void **state)
{
    (void)state;
    uint64_t low = 0;
    for (uint32_t bucket = 0; bucket < FW_HISTOGRAM_BUCKETS - 1; bucket++) {
        uint64_t next = bucket_low(bucket + 1);
        assert_true(next > low); /* No bucket is empty, and they rise. */
        assert_int_equal(fw_histogram_bucket(low), bucket);
        assert_int_equal(fw_histogram_bucket(next - 1), bucket);
        check_value(low);
        check_value(next - 1);
        if (low < 128) {
            assert_int_equal(next, low + 1); /* Small values are told apart. */
        }
        low = next;
    }
    assert_int_equal(low, FW_HISTOGRAM_LIMIT);
    assert_int_equal(fw_histogram_bucket(UINT64_MAX), FW_HISTOGRAM_BUCKETS - 1);
}

static void test_empty(void **state)
{
    (void)state;
    fw_histogram_init(&histogram);
    assert_int_equal(fw_histogram_count(&histogram), 0);
    assert_int_equal(fw_histogram_max(&histogram), 0);
    assert_int_equal(fw_histogram_mean(&histogram), 0);
    assert_int_equal(fw_histogram_percentile(&histogram, 99), 0);
    expect_assert_failure((void)fw_histogram_percentile(&histogram, 100.1));
    expect_assert_failure((void)fw_histogram_percentile(&histogram, -0.1));
    expect_assert_failure((void)fw_histogram_percentile(&histogram, __builtin_nan("")));
}

static void test_beyond_the_limit(void **state)
{
    (void)state;
    fw_histogram_init(&histogram);
    fw_histogram_record(&histogram, FW_HISTOGRAM_LIMIT - 1);
    fw_histogram_record(&histogram, UINT64_MAX);
    fw_histogram_record(&histogram, UINT64_MAX);
    fw_histogram_record(&histogram, FW_HISTOGRAM_LIMIT);
    assert_int_equal(fw_histogram_count(&histogram), 4);
    assert_within_bound(fw_histogram_percentile(&histogram, 25), FW_HISTOGRAM_LIMIT - 1);
    assert_int_equal(fw_histogram_percentile(&histogram, 50), UINT64_MAX);
    assert_int_equal(fw_histogram_max(&histogram), UINT64_MAX);

    fw_histogram_init(&histogram);
    fw_histogram_record(&histogram, UINT64_MAX);
    assert_int_equal(fw_histogram_mean(&histogram), UINT64_MAX);
}

/* Of `count` values `zeros` are 0 and the others 1: the answer tells which side the rank is on. */
static uint64_t percentile_of_two(uint64_t count, uint64_t zeros, double percent)
{
    fw_histogram_init(&histogram);
    atomic_store(&histogram.buckets[0], zeros);
    atomic_store(&histogram.buckets[1], count - zeros);
    atomic_store(&histogram.max, count > zeros);
    return fw_histogram_percentile(&histogram, percent);
}

static void test_ranks(void **state)
{
    (void)state;
    static const struct {
        double percent;
        uint64_t thousandths; /* The same in integers, for a rank without rounding. */
    } cases[] = {{0, 0},        {0.001, 1},     {1, 1000},       {12.5, 12500}, {33.3, 33300},
                 {50, 50000},   {66.6, 66600},  {90, 90000},     {95, 95000},   {99, 99000},
                 {99.9, 99900}, {99.99, 99990}, {99.999, 99999}, {100, 100000}};
    for (uint64_t count = 1; count <= 10000000; count += count < 1010 ? 1 : count * 2 / 3) {
        for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
            uint64_t rank = (count * cases[i].thousandths + 99999) / 100000;
            rank = rank > 0 ? rank : 1;
            assert_int_equal(percentile_of_two(count, rank - 1, cases[i].percent), 1);
            assert_int_equal(percentile_of_two(count, rank, cases[i].percent), 0);
        }
    }
}

static int compare_values(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* The same numbers in every run. */
static uint64_t next_value(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t magnitude = *seed >> 58;                  /* 0 to 63, */
    return (*seed >> 6) >> (22 + magnitude * 36 / 63); /* so 0 to 36 bits, all as likely. */
}

static void test_percentiles_beside_a_sorted_array(void **state)
{
    (void)state;
    enum { COUNT = 10007 };
    static uint64_t values[COUNT];
    uint64_t seed = 1;
    double sum = 0;
    fw_histogram_init(&histogram);
    for (int i = 0; i < COUNT; i++) {
        values[i] = next_value(&seed);
        sum += (double)values[i];
        fw_histogram_record(&histogram, values[i]);
    }
    qsort(values, COUNT, sizeof values[0], compare_values);
    for (uint64_t rank = 1; rank <= COUNT; rank++) {
        double percent = (double)rank * 100.0 / COUNT;
        assert_within_bound(fw_histogram_percentile(&histogram, percent), values[rank - 1]);
    }
    assert_int_equal(fw_histogram_count(&histogram), COUNT);
    assert_int_equal(fw_histogram_max(&histogram), values[COUNT - 1]);
    assert_within_bound(fw_histogram_mean(&histogram), (uint64_t)(sum / COUNT));
}

static void test_merge(void **state)
{
    (void)state;
    static struct fw_histogram whole;
    uint64_t seed = 2;
    fw_histogram_init(&histogram);
    fw_histogram_init(&other);
    fw_histogram_init(&whole);
    for (int i = 0; i < 1000; i++) {
        uint64_t value = next_value(&seed);
        fw_histogram_record(i % 3 == 0 ? &histogram : &other, value);
        fw_histogram_record(&whole, value);
    }
    fw_histogram_merge(&histogram, &other);
    for (uint32_t i = 0; i < FW_HISTOGRAM_BUCKETS; i++) {
        assert_int_equal(atomic_load(&histogram.buckets[i]), atomic_load(&whole.buckets[i]));
    }
    assert_int_equal(fw_histogram_max(&histogram), fw_histogram_max(&whole));

    fw_histogram_init(&other); /* The maximum survives a merge with something smaller. */
    fw_histogram_merge(&histogram, &other);
    assert_int_equal(fw_histogram_max(&histogram), fw_histogram_max(&whole));
    assert_int_equal(fw_histogram_count(&histogram), 1000);
}

/* The first and the last bucket, and a maximum that is larger by one. */
static void test_merge_edges(void **state)
{
    (void)state;
    fw_histogram_init(&histogram);
    fw_histogram_init(&other);
    fw_histogram_record(&histogram, UINT64_MAX - 1);
    fw_histogram_record(&other, 0);
    fw_histogram_record(&other, UINT64_MAX);
    fw_histogram_merge(&histogram, &other);
    assert_int_equal(fw_histogram_max(&histogram), UINT64_MAX);
    assert_int_equal(atomic_load(&histogram.buckets[0]), 1);
    assert_int_equal(atomic_load(&histogram.buckets[FW_HISTOGRAM_BUCKETS - 1]), 2);
    assert_int_equal(fw_histogram_count(&histogram), 3);
}

/* A double rounds such a count up: there is still no rank beyond the last value. */
static void test_rank_of_huge_counts(void **state)
{
    (void)state;
    uint64_t count = (UINT64_C(1) << 60) - 1;
    assert_int_equal(percentile_of_two(count, count - 1, 100), 1);
    assert_int_equal(percentile_of_two(count, count, 100), 0);
}

static void test_mean_of_zero(void **state)
{
    (void)state;
    fw_histogram_init(&histogram);
    fw_histogram_record(&histogram, 0);
    assert_int_equal(fw_histogram_mean(&histogram), 0);
}

/* What a reader sees that comes between the two stores of record(): the maximum is one behind. */
static void test_maximum_behind_its_bucket(void **state)
{
    (void)state;
    enum { VALUE = 1000000 };
    fw_histogram_init(&histogram);
    fw_histogram_record(&histogram, VALUE);
    atomic_store(&histogram.max, 0);
    assert_within_bound(fw_histogram_percentile(&histogram, 100), VALUE);
    assert_within_bound(fw_histogram_mean(&histogram), VALUE);

    /* In the very next bucket below, and as far away from the value as it can be there. */
    uint64_t low = bucket_low(1000), next = bucket_low(1001);
    fw_histogram_init(&histogram);
    fw_histogram_record(&histogram, next - 1);
    atomic_store(&histogram.max, low - 1);
    assert_within_bound(fw_histogram_percentile(&histogram, 100), next - 1);

    fw_histogram_init(&histogram);
    fw_histogram_record(&histogram, UINT64_MAX);
    atomic_store(&histogram.max, 0);
    assert_true(fw_histogram_percentile(&histogram, 50) >= FW_HISTOGRAM_LIMIT);
}

/* No answer exceeds the maximum, although the middle of its bucket may. */
static void test_maximum_bounds_its_bucket(void **state)
{
    (void)state;
    uint64_t low = bucket_low(1000), next = bucket_low(1001);
    const uint64_t values[] = {low, low + (next - low) / 2 - 1};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(values); i++) {
        fw_histogram_init(&histogram);
        for (int k = 0; k < 4; k++) {
            fw_histogram_record(&histogram, values[i]);
        }
        assert_int_equal(fw_histogram_percentile(&histogram, 50), values[i]);
        assert_int_equal(fw_histogram_mean(&histogram), values[i]);
    }
}

enum { RACE_RECORDS = 200000 };

static void race_run(void *argument)
{
    struct fw_histogram *shared = argument;
    for (uint64_t i = 1; i <= RACE_RECORDS; i++) {
        fw_histogram_record(shared, i);
    }
}

static void test_readers_do_not_stop_the_writer(void **state)
{
    (void)state;
    struct fw_thread writer;
    uint64_t count = 0, max = 0;
    fw_histogram_init(&histogram);
    assert_int_equal(fw_thread_create(&writer, "writer", race_run, &histogram), 0);
    do {
        uint64_t count_now = fw_histogram_count(&histogram);
        uint64_t max_now = fw_histogram_max(&histogram);
        assert_true(count_now >= count && max_now >= max); /* Neither goes back. */
        count = count_now;
        max = max_now;
        uint64_t high = fw_histogram_percentile(&histogram, 99.9);
        assert_true(high <= RACE_RECORDS + RACE_RECORDS / 128);
        fw_histogram_init(&other);
        fw_histogram_merge(&other, &histogram);
        assert_true(fw_histogram_count(&other) >= count);
    } while (count < RACE_RECORDS);
    fw_thread_join(&writer);
    assert_int_equal(fw_histogram_count(&histogram), RACE_RECORDS);
    assert_int_equal(fw_histogram_max(&histogram), RACE_RECORDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound_at_every_edge),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_beyond_the_limit),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_percentiles_beside_a_sorted_array),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_merge_edges),
        cmocka_unit_test(test_rank_of_huge_counts),
        cmocka_unit_test(test_mean_of_zero),
        cmocka_unit_test(test_maximum_behind_its_bucket),
        cmocka_unit_test(test_maximum_bounds_its_bucket),
        cmocka_unit_test(test_readers_do_not_stop_the_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
