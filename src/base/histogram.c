/* SPDX-License-Identifier: Apache-2.0 */
#include "base/histogram.h"

#include <stdbool.h>

#include "base/assert.h"
#include "base/thread.h"

static_assert(sizeof(struct fw_histogram) < 20000, "the header promises 19 KB");

void fw_histogram_init(struct fw_histogram *histogram)
{
    atomic_init(&histogram->max, 0);
    for (uint32_t i = 0; i < FW_HISTOGRAM_BUCKETS; i++) {
        atomic_init(&histogram->buckets[i], 0);
    }
}

/* Relaxed, here and below, for the reasons the header gives. */
static uint64_t bucket_count(const struct fw_histogram *histogram, uint32_t bucket)
{
    return atomic_load_explicit(&histogram->buckets[bucket], memory_order_relaxed);
}

void fw_histogram_merge(struct fw_histogram *into, const struct fw_histogram *from)
{
    for (uint32_t i = 0; i < FW_HISTOGRAM_BUCKETS; i++) {
        uint64_t more = bucket_count(from, i);
        if (more > 0) { /* Mostly not: most buckets stay empty for good. */
            atomic_store_explicit(&into->buckets[i], bucket_count(into, i) + more,
                                  memory_order_relaxed);
        }
    }
    FW_YIELD_POINT("histogram: merged the buckets, not yet the maximum");
    uint64_t max = fw_histogram_max(from);
    if (max > fw_histogram_max(into)) {
        atomic_store_explicit(&into->max, max, memory_order_relaxed);
    }
}

uint64_t fw_histogram_count(const struct fw_histogram *histogram)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < FW_HISTOGRAM_BUCKETS; i++) {
        count += bucket_count(histogram, i);
    }
    return count;
}

uint64_t fw_histogram_max(const struct fw_histogram *histogram)
{
    return atomic_load_explicit(&histogram->max, memory_order_relaxed);
}

/*
 * The middle of a bucket. Undoes fw_histogram_bucket(), where `shift` 0 gave the buckets 0 to 127
 * and every further bit of shift 64 more.
 */
static uint64_t bucket_middle(uint32_t bucket)
{
    uint32_t shift = bucket < FW_HISTOGRAM_SUB_COUNT ? 0 : bucket / FW_HISTOGRAM_SUB_COUNT - 1;
    uint64_t low = (uint64_t)(bucket - shift * FW_HISTOGRAM_SUB_COUNT) << shift;
    uint64_t width = UINT64_C(1) << shift;
    return low + width / 2;
}

/*
 * The value that stands for those in `bucket`. In the maximum's own bucket nothing is above it, so
 * the answer is not either. A maximum that is older than the buckets (its reader saw the stores of
 * one record() half, or came between them) is in a lower bucket and says nothing.
 */
static uint64_t bucket_value(uint32_t bucket, uint64_t max)
{
    uint64_t middle = bucket_middle(bucket);
    if (fw_histogram_bucket(max) != bucket) {
        return middle;
    }
    bool unbounded = bucket == FW_HISTOGRAM_BUCKETS - 1;
    return unbounded || max < middle ? max : middle;
}

/*
 * How many values lie at or below the percentile: percent * count / 100, rounded up, at least one.
 * 99.9 and most of its kind have no exact binary form, so the product misses the integer it should
 * be by a little; less than a billionth of it is not rounded up.
 */
static uint64_t percentile_rank(uint64_t count, double percent)
{
    double exact = percent * (double)count / 100.0;
    if (exact >= (double)count) {
        return count;
    }
    uint64_t rank = (uint64_t)exact;
    if (rank == 0 || exact - (double)rank > exact * 1e-9) {
        rank++;
    }
    return rank;
}

uint64_t fw_histogram_percentile(const struct fw_histogram *histogram, double percent)
{
    FW_ASSERT(percent >= 0 && percent <= 100);

    uint64_t count = fw_histogram_count(histogram);
    if (count == 0) {
        return 0;
    }
    uint64_t rank = percentile_rank(count, percent);
    FW_ASSERT(rank >= 1 && rank <= count);

    FW_YIELD_POINT("histogram: counted, not yet walked to the rank");
    uint32_t bucket = 0;
    uint64_t seen = bucket_count(histogram, bucket);
    while (seen < rank) {
        bucket++;
        FW_ASSERT(bucket < FW_HISTOGRAM_BUCKETS); /* No bucket has gone down since we counted. */
        seen += bucket_count(histogram, bucket);
    }
    uint64_t max = fw_histogram_max(histogram);
    if (rank == count && fw_histogram_bucket(max) >= bucket) {
        return max;
    }
    return bucket_value(bucket, max);
}

uint64_t fw_histogram_mean(const struct fw_histogram *histogram)
{
    uint64_t max = fw_histogram_max(histogram);
    uint64_t count = 0;
    double sum = 0; /* Not an integer: values near the limit would overflow it. */
    for (uint32_t i = 0; i < FW_HISTOGRAM_BUCKETS; i++) {
        uint64_t here = bucket_count(histogram, i);
        count += here;
        sum += (double)here * (double)bucket_value(i, max);
    }
    if (count == 0) {
        return 0;
    }
    /* Values up to 2^64 - 1 round up to 2^64 as a double, which would not convert back. */
    double mean = sum / (double)count;
    return mean < 0x1p64 ? (uint64_t)mean : UINT64_MAX;
}
