/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the sweeper is as fast as there is something to find, within its bounds; as a job it
 * removes what has expired though nobody asks for it, and ends when it is told to. Method: the
 * arithmetic alone, step by step; then the job on a real kernel, by a clock that the test moves on.
 */
#include "server/sweeper.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/metrics.h"
#include "cache/operation.h"
#include "io/clock.h"

#define S ((int64_t)FW_NS_PER_S)

static void test_adapts(void **state)
{
    (void)state;
    assert_int_equal(fw_sweeper_adapt(16 * S, 0, 1000000), 32 * S);
    assert_int_equal(fw_sweeper_adapt(16 * S, 1000, 1000000), 32 * S);
    assert_int_equal(fw_sweeper_adapt(16 * S, 10000, 1000000), 16 * S);
    assert_int_equal(fw_sweeper_adapt(16 * S, 100000, 1000000), 8 * S);
    assert_int_equal(fw_sweeper_adapt(16 * S, 0, 0), 32 * S);
    int64_t round_ns = 16 * S;
    for (int i = 0; i < 10; i++) {
        round_ns = fw_sweeper_adapt(round_ns, 0, 100);
    }
    assert_int_equal(round_ns, 64 * S);
    for (int i = 0; i < 10; i++) {
        round_ns = fw_sweeper_adapt(round_ns, 100, 100);
    }
    assert_int_equal(round_ns, 2 * S);
}

/*
 * A burst is short whatever the table's size, the pauses make up for it, and a small table is not
 * looked at more often than once in a pause's usual length.
 */
static void test_bursts_are_short(void **state)
{
    (void)state;
    assert_int_equal(fw_sweeper_share(2 * S, 16), 8);
    assert_int_equal(fw_sweeper_share(2 * S, 1000), 56);
    assert_int_equal(fw_sweeper_share(2 * S, 40000), 160);
    assert_int_equal(fw_sweeper_share(64 * S, 40000), 64);
    for (uint64_t buckets = 16; buckets < 200000; buckets = buckets * 3 / 2) {
        for (int64_t round_ns = 2 * S; round_ns <= 64 * S; round_ns *= 2) {
            uint64_t bursts = buckets / fw_sweeper_share(round_ns, buckets) + 1;
            int64_t all_ns = (int64_t)bursts * fw_sweeper_pause(round_ns, buckets);
            assert_in_range(all_ns, round_ns - round_ns / 100, round_ns + round_ns / 100);
        }
    }
    assert_int_equal(fw_sweeper_pause(2 * S, 1U << 30), FW_NS_PER_MS); /* It does not spin. */
}

static uint64_t served_count;

static uint64_t host_served(void *server)
{
    (void)server;
    return served_count;
}

/* While requests come, a page that took 4 ms is followed by 800 ms without one. */
static void test_huge_pages_yield_to_requests(void **state)
{
    (void)state;
    static struct fw_sweeper sweeper = {.served = host_served};
    const int64_t ms = FW_NS_PER_MS;
    served_count = 5;
    assert_true(fw_sweeper_may_collapse(&sweeper, 1000 * ms)); /* None was made yet. */
    fw_sweeper_collapsed(&sweeper, 1000 * ms, 1004 * ms);
    assert_false(fw_sweeper_may_collapse(&sweeper, 1004 * ms));
    assert_false(fw_sweeper_may_collapse(&sweeper, 1099 * ms));
    assert_true(fw_sweeper_may_collapse(&sweeper, 1100 * ms)); /* Nobody came for 100 ms. */
    assert_true(fw_sweeper_may_collapse(&sweeper, 1101 * ms));
    for (int64_t at = 1102; at < 1804; at += 50) {
        served_count++;
        assert_false(fw_sweeper_may_collapse(&sweeper, at * ms));
    }
    served_count++;
    assert_true(fw_sweeper_may_collapse(&sweeper, 1804 * ms));
    fw_sweeper_collapsed(&sweeper, 1804 * ms, 1805 * ms);
    assert_true(fw_sweeper_may_collapse(&sweeper, 1904 * ms));
    served_count++;
    assert_false(fw_sweeper_may_collapse(&sweeper, 1905 * ms));
}

static bool host_stats(void *server, const char *group, struct fw_stat_walk *walk,
                       fw_stat_emit emit, void *context)
{
    (void)server;
    (void)walk;
    (void)group;
    (void)emit;
    (void)context;
    return false;
}

static void host_reset(void *server)
{
    (void)server;
}

static void host_verbosity(void *server, unsigned level)
{
    (void)server;
    (void)level;
}

static int host_shutdown(void *server, bool is_graceful)
{
    (void)server;
    (void)is_graceful;
    return -1;
}

static void store(struct fw_cache_local *local, const char *name, int64_t expires)
{
    struct fw_key key = fw_table_key(local->table, name, strlen(name));
    struct fw_store one = {.mode = FW_STORE_SET,
                           .expires = fw_cache_expiry(local, expires),
                           .bytes = "v",
                           .length = 1};
    assert_int_equal(fw_operation_store(local, &key, &one), FW_DONE);
}

static void test_removes_what_has_expired(void **state)
{
    (void)state;
    struct fw_reason reason;
    struct fw_metrics metrics;
    static struct fw_cache cache;
    fw_metrics_init(&metrics);
    cache =
        (struct fw_cache){.registry = &metrics,
                          .settings = {.item_size_max = 1 << 20, .has_cas = true, .lines_max = 20},
                          .host = {.stats = host_stats,
                                   .stats_reset = host_reset,
                                   .set_verbosity = host_verbosity,
                                   .shutdown = host_shutdown}};
    const struct fw_table_config config = {.memory = 64 << 20, .is_evicting = true, .seed = 1};
    assert_int_equal(fw_cache_init(&cache, &config, &reason), 0);
    struct fw_cache_local *local = malloc(sizeof *local);
    assert_non_null(local);
    assert_int_equal(fw_cache_local_init(local, &cache), 0);
    store(local, "stays", 0);
    store(local, "goes", 10);
    atomic_store(&cache.shift_s, 100); /* The cache's clock leaps. */

    struct fw_jobs_policy policy;
    struct fw_jobs *jobs;
    fw_jobs_policy_init(&policy);
    assert_int_equal(fw_jobs_create(&jobs, &policy, NULL), 0);
    assert_int_equal(fw_jobs_start(jobs, NULL), 0);
    static struct fw_sweeper sweeper;
    assert_int_equal(fw_sweeper_begin(&sweeper, jobs, &cache, host_served, NULL), 0);
    struct fw_table_totals totals;
    do { /* The test runner's limit ends this if nobody sweeps. */
        fw_unpark(&sweeper.parker);
        fw_table_totals(cache.table, &totals);
    } while (totals.items != 1 || totals.reclaimed != 1);
    fw_sweeper_end(&sweeper);

    assert_int_equal(fw_jobs_stop(jobs, FW_JOBS_DRAIN, NULL), 0);
    fw_jobs_destroy(jobs);
    fw_cache_local_fini(local);
    free(local);
    fw_cache_fini(&cache);
    fw_metrics_fini(&metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adapts),
        cmocka_unit_test(test_bursts_are_short),
        cmocka_unit_test(test_huge_pages_yield_to_requests),
        cmocka_unit_test(test_removes_what_has_expired),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
