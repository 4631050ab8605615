/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the defaults of the options are those of the policy, every option reaches its field, and
 * every metric of the table has a name of its own.
 * Method: parse nothing and compare with fw_jobs_policy_init(); then give every option a value.
 */
#include "jobs/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/metrics.h"
#include "jobs/metrics.h"

static struct fw_jobs_config config;
static struct fw_options options;
static const struct fw_option_table *table(void)
{
    static struct fw_option_table made;
    made = (struct fw_option_table){.module = "jobs",
                                    .options = fw_jobs_options,
                                    .count = fw_jobs_options_count,
                                    .config = &config};
    return &made;
}

static void test_defaults(void **state)
{
    (void)state;
    struct fw_jobs_policy policy, plain;
    assert_int_equal(fw_options_init(&options, table(), 1, NULL), 0);
    fw_jobs_policy_init(&plain);
    policy = plain;
    fw_jobs_configure(&policy, &config);
    plain.boost = 1; /* Counts only with boosting. */
    assert_memory_equal(&policy, &plain, sizeof policy);
    assert_int_equal(fw_jobs_policy_check(&policy, NULL), 0);
    fw_options_fini(&options);
}

static void test_values(void **state)
{
    (void)state;
    static const char text[] =
        "[jobs]\nworkers = 20\nslots = 300\nowners = 17\nservices-percent = 5\n"
        "feeders-percent = 6\nunits-percent = 7\nageing = yes\nageing-interval = 3ms\n"
        "boosting = yes\nboost = 9\nreview-interval = 4ms\nworkers-active = 11\n"
        "autonomic = yes\ntiming = yes\n";
    struct fw_jobs_policy policy;
    assert_int_equal(fw_options_init(&options, table(), 1, NULL), 0);
    assert_int_equal(fw_options_parse_file(&options, "test", text, strlen(text), NULL), 0);
    fw_jobs_policy_init(&policy);
    fw_jobs_configure(&policy, &config);
    assert_int_equal(policy.workers, 20);
    assert_int_equal(policy.slots, 300);
    assert_int_equal(policy.owners, 17);
    assert_int_equal(policy.lane_percent[0], 5);
    assert_int_equal(policy.lane_percent[1], 6);
    assert_int_equal(policy.lane_percent[2], 7);
    assert_true(policy.ageing && policy.boosting && policy.autonomic && policy.timing);
    assert_int_equal(policy.ageing_interval_ns, 3000000);
    assert_int_equal(policy.boost, 9);
    assert_int_equal(policy.review_interval_ns, 4000000);
    assert_int_equal(policy.workers_active, 11);
    fw_options_fini(&options);
}

static void metric_visit(const struct fw_metric_value *value, void *context)
{
    assert_int_equal(strncmp(value->name, "jobs_", 5), 0);
    if (strcmp(value->name, "jobs_active") == 0) {
        assert_int_equal(value->gauge, 8);
    }
    ++*(size_t *)context;
}

static void test_metrics(void **state)
{
    (void)state;
    struct fw_metrics metrics;
    struct fw_jobs *jobs;
    struct fw_jobs_policy policy;
    fw_metrics_init(&metrics);
    fw_jobs_policy_init(&policy);
    assert_int_equal(fw_jobs_create(&jobs, &policy, NULL), 0);
    struct fw_jobs_metrics *own = fw_jobs_metrics_of(jobs);
    assert_int_equal(fw_metrics_register(&metrics, &fw_jobs_metric_table, &own->source), 0);
    size_t seen = 0;
    fw_metrics_visit(&metrics, metric_visit, &seen);
    assert_int_equal(seen, fw_jobs_metric_table.row_count);
    fw_metrics_unregister(&metrics, &own->source);
    fw_jobs_destroy(jobs);
    fw_metrics_fini(&metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
