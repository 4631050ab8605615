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

static bool host_stats(void *server, const char *group, fw_stat_emit emit, void *context)
{
    (void)server;
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
    assert_int_equal(fw_sweeper_begin(&sweeper, jobs, &cache), 0);
    struct fw_table_totals totals;
    do { /* The test runner's limit ends this if nobody sweeps. */
        fw_unpark(&sweeper.parker);
        fw_table_totals(cache.table, &totals);
    } while (totals.items != 1);
    assert_int_equal(totals.reclaimed, 1);
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
        cmocka_unit_test(test_removes_what_has_expired),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
