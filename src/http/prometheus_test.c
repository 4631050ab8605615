/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the page of metrics is what Prometheus reads: names, units, types, labels, and buckets that
 * hold what their edges say.
 * Method: known metrics, compared with the text written down. That promtool likes the whole page of
 * a running server is in tests/http.
 */
#include "http/prometheus.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/http_shown.h"

static const char *page(struct shown *shown)
{
    assert_int_equal(fw_prometheus_write(&shown->shown, shown->out), 0);
    assert_int_equal(fflush(shown->out), 0);
    return shown->text;
}

static void assert_says(const char *text, const char *line)
{
    if (strstr(text, line) == NULL) {
        fail_msg("no '%s' in:\n%s", line, text);
    }
}

static void test_names(void **state)
{
    struct shown *shown = *state;
    fw_counter_add(&shown->counts->hits, 3);
    fw_counter_add(&shown->counts->sent, UINT64_C(1) << 40);
    fw_gauge_set(&shown->counts->idle, -2);
    const char *text = page(shown);
    assert_says(text, "# HELP fairway_cache_hits_total gets that found their key.\n"
                      "# TYPE fairway_cache_hits_total counter\n"
                      "fairway_cache_hits_total 3\n");
    assert_says(text, "\nfairway_cache_sent_bytes_total 1099511627776\n");
    assert_says(text, "# TYPE fairway_cache_idle gauge\nfairway_cache_idle -2\n");
}

/* A bucket's edge is inclusive there, and ours is not: so it is one below a power of two. */
static void test_histogram(void **state)
{
    struct shown *shown = *state;
    fw_histogram_record(&shown->counts->wait, 255);
    fw_histogram_record(&shown->counts->wait, 256);
    fw_histogram_record(&shown->counts->wait, 1023);
    fw_histogram_record(&shown->counts->wait, UINT64_C(1) << 41);
    const char *text = page(shown);
    assert_says(text, "# TYPE fairway_cache_wait_seconds histogram\n"
                      "fairway_cache_wait_seconds_bucket{le=\"2.55e-07\"} 1\n"
                      "fairway_cache_wait_seconds_bucket{le=\"1.023e-06\"} 3\n");
    assert_says(text, "fairway_cache_wait_seconds_bucket{le=\"68.7194767\"} 3\n"
                      "fairway_cache_wait_seconds_bucket{le=\"+Inf\"} 4\n");
    assert_says(text, "\nfairway_cache_wait_seconds_count 4\n");
    const char *sum = strstr(text, "_seconds_sum ");
    assert_non_null(sum);
    double seconds = strtod(sum + strlen("_seconds_sum "), NULL);
    assert_true(seconds > 2199 * 0.99 && seconds < 2199 * 1.01);
}

/* Samples of one metric stand together, and quotes are escaped. */
static void test_labels(void **state)
{
    const char *text = page(*state);
    assert_says(text,
                "# HELP fairway_sched_tenant_served_total requests.\n"
                "# TYPE fairway_sched_tenant_served_total counter\n"
                "fairway_sched_tenant_served_total{tenant=\"web\"} 100\n"
                "fairway_sched_tenant_served_total{tenant=\"a\\\"b\\\\c:d\"} 5\n"
                "# HELP fairway_sched_tenant_delay_seconds waits.\n"
                "# TYPE fairway_sched_tenant_delay_seconds histogram\n"
                "fairway_sched_tenant_delay_seconds_bucket{tenant=\"web\",le=\"2.55e-07\"} 1\n");
    assert_says(text, "\nfairway_sched_tenant_delay_seconds_count{tenant=\"web\"} 1\n"
                      "fairway_sched_tenant_delay_seconds_bucket{tenant=\"a");
}

static void test_figures_of_the_server(void **state)
{
    const char *text = page(*state);
    assert_says(text, "# TYPE fairway_items gauge\nfairway_items 7\n");
    assert_null(strstr(text, "1.2"));
}

/* Of several slaves the one that is furthest behind; words are 0 or 1; a row that is missing is not
 * 0. */
static void test_figures_of_replication(void **state)
{
    struct shown *shown = *state;
    shown->shown.context = (char[]){"yes"};
    const char *text = page(shown);
    assert_says(text, "# TYPE fairway_repl_is_master gauge\nfairway_repl_is_master 1\n");
    assert_says(text, "\nfairway_repl_slaves 2\n");
    assert_says(text, "\nfairway_repl_behind_seconds 2.5\n");
    assert_says(text, "\nfairway_repl_link_up 0\n");
    assert_null(strstr(text, "fairway_repl_behind_bytes"));
}

static void test_what_is_off_is_left_out(void **state)
{
    struct shown *shown = *state;
    shown->shown.context = (char[]){"no"};
    const char *text = page(shown);
    assert_says(text, "\nfairway_items 7\n");
    assert_null(strstr(text, "fairway_repl"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_names, shown_setup, shown_teardown),
        cmocka_unit_test_setup_teardown(test_histogram, shown_setup, shown_teardown),
        cmocka_unit_test_setup_teardown(test_labels, shown_setup, shown_teardown),
        cmocka_unit_test_setup_teardown(test_figures_of_the_server, shown_setup, shown_teardown),
        cmocka_unit_test_setup_teardown(test_figures_of_replication, shown_setup, shown_teardown),
        cmocka_unit_test_setup_teardown(test_what_is_off_is_left_out, shown_setup, shown_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
