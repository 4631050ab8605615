/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latency histogram: takes any 64-bit value, forgets no value's order of magnitude, and tells
 * percentiles within 1 %, in 19 KB that never grow.
 *
 * Buckets are log-linear. Below 128 every value has its own. Above, each power of two is cut into
 * 64 buckets of equal width: with e = floor(log2 v), the bucket of v is [l, l + w), w = 2^(e-6),
 * and l >= 2^e = 64 w. A bucket answers with its middle, l + w/2, so
 *
 *     error / v  <=  (w/2) / l  <=  (w/2) / (64 w)  =  1/128  =  0.78 %.
 *
 * Interpolating inside the bucket by rank looks finer and is worse: it is right only if values are
 * spread evenly there, and where they are not it may be wrong by the whole width, 1.56 %. With 32
 * buckets per power the bound would be 1.56 % too; 128 would double the memory for a digit nobody
 * reads.
 *
 * The whole 64-bit range at that resolution would be 30 KB, a third of it for values no latency
 * has. So the resolution ends at FW_HISTOGRAM_LIMIT, 2^42: 73 minutes in nanoseconds, 4 TiB in
 * bytes. Larger values are counted in one last bucket, which answers with the exact maximum.
 *
 * The buckets and the maximum are all there is. Count and mean are derived from the buckets, so
 * record() touches one bucket and reads one maximum, no sum can overflow, and a reader cannot catch
 * a count that disagrees with its buckets. The mean has the same bound of 0.78 %, as long as no
 * value is beyond the limit: those enter it as the maximum.
 *
 * Concurrency: one writer at a time, which is to say one histogram per locality, written by the
 * holder of the turn; readers merge them. Any number of readers, at any time, without stopping the
 * writer. All accesses are atomic and relaxed: a reader needs each bucket untorn and never going
 * back, which coherence of a single atomic gives, and no order between two of them: percentile()
 * takes a maximum that is older than the buckets into account. What it sees is some recent past.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum {
    FW_HISTOGRAM_SUB_BITS = 6, /* 64 buckets per power of two. */
    FW_HISTOGRAM_SUB_COUNT = 1 << FW_HISTOGRAM_SUB_BITS,
    FW_HISTOGRAM_LIMIT_BITS = 42,
    /* As fw_histogram_bucket() numbers them; the last is that of FW_HISTOGRAM_LIMIT. */
    FW_HISTOGRAM_BUCKETS =
        (FW_HISTOGRAM_LIMIT_BITS - FW_HISTOGRAM_SUB_BITS + 1) * FW_HISTOGRAM_SUB_COUNT + 1,
};

/* Values from here on share one bucket. */
#define FW_HISTOGRAM_LIMIT (UINT64_C(1) << FW_HISTOGRAM_LIMIT_BITS)

/* All zero is an empty histogram, so one inside zeroed memory needs no init(). */
struct fw_histogram {
    _Atomic uint64_t max;
    _Atomic uint64_t buckets[FW_HISTOGRAM_BUCKETS];
};

/* Makes it empty. No other thread may be able to reach it. */
void fw_histogram_init(struct fw_histogram *histogram);

/*
 * The number of the bucket of `value`: its highest bit chooses the power of two, the six bits below
 * that one the bucket. Small values fall out of the same formula with a shift of 0.
 */
static inline uint32_t fw_histogram_bucket(uint64_t value)
{
    uint64_t clamped = value < FW_HISTOGRAM_LIMIT ? value : FW_HISTOGRAM_LIMIT;
    uint32_t top_bit = 63 - (uint32_t)__builtin_clzll(clamped | FW_HISTOGRAM_SUB_COUNT);
    uint32_t shift = top_bit - FW_HISTOGRAM_SUB_BITS;
    return shift * FW_HISTOGRAM_SUB_COUNT + (uint32_t)(clamped >> shift);
}

/* Counts `value`, so many times, at least once. The writer only. */
static inline void fw_histogram_record_many(struct fw_histogram *histogram, uint64_t value,
                                            uint64_t times)
{
    /* The writer alone stores, so load and store make an addition without a locked instruction. */
    _Atomic uint64_t *bucket = &histogram->buckets[fw_histogram_bucket(value)];
    uint64_t count = atomic_load_explicit(bucket, memory_order_relaxed);
    atomic_store_explicit(bucket, count + times, memory_order_relaxed);
    if (value > atomic_load_explicit(&histogram->max, memory_order_relaxed)) {
        atomic_store_explicit(&histogram->max, value, memory_order_relaxed);
    }
}

/* Counts `value`. The writer only. */
static inline void fw_histogram_record(struct fw_histogram *histogram, uint64_t value)
{
    fw_histogram_record_many(histogram, value, 1);
}

/* Adds all that `from` counted. The caller is the writer of `into` and a reader of `from`. */
void fw_histogram_merge(struct fw_histogram *into, const struct fw_histogram *from);

/* How many values were recorded. */
uint64_t fw_histogram_count(const struct fw_histogram *histogram);

/*
 * The value that `percent` (0 to 100; 99.9 for the p99.9) of all recorded values do not exceed: the
 * smallest recorded one with that property, within the bound above. Where that is the largest value
 * of all, as it is for 100 and for the p99.9 of fewer than 1,000 values, the answer is exact.
 * 0 if the histogram is empty.
 */
uint64_t fw_histogram_percentile(const struct fw_histogram *histogram, double percent);

/* The largest recorded value, exact. 0 if the histogram is empty. */
uint64_t fw_histogram_max(const struct fw_histogram *histogram);

/* The mean of all recorded values within the bound above, rounded down. 0 if there are none. */
uint64_t fw_histogram_mean(const struct fw_histogram *histogram);
