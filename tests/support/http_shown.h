/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of src/http: a server that has one metric of each kind and two tenants. Its
 * context, "yes" or "no", says whether it replicates, to two slaves; NULL: it cannot.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/metrics.h"
#include "http/http.h"

struct shown_metrics {
    struct fw_metric_source source;
    struct fw_counter hits;
    struct fw_counter sent;
    struct fw_gauge idle;
    struct fw_histogram wait;
};

static const struct fw_metric shown_rows[] = {
    FW_METRIC_COUNTER(struct shown_metrics, hits, "", "gets that found their key"),
    FW_METRIC_COUNTER(struct shown_metrics, sent, "bytes", "sent to clients"),
    FW_METRIC_GAUGE(struct shown_metrics, idle, "", "connections that wait"),
    FW_METRIC_HISTOGRAM(struct shown_metrics, wait, "ns", "until it was served"),
};
static const struct fw_metric_table shown_table =
    FW_METRIC_TABLE("cache", struct shown_metrics, shown_rows);

static inline bool shown_stats(void *context, const char *group, fw_http_emit emit,
                               void *emit_context)
{
    if (group[0] == '\0') {
        emit(emit_context, "version", "1.2");
        emit(emit_context, "curr_items", "7");
        return true;
    }
    if (context != NULL && strcmp(group, "replication") == 0) {
        emit(emit_context, "enabled", context);
        emit(emit_context, "role", "master");
        emit(emit_context, "slaves", "2");
        emit(emit_context, "0:behind_ms", "2500");
        emit(emit_context, "1:behind_ms", "40");
        emit(emit_context, "link", "copying");
        return true;
    }
    if (strcmp(group, "tenants") == 0) {
        emit(emit_context, "web:weight", "2");
        emit(emit_context, "web:served", "100");
        emit(emit_context, "web:rules", "listener :1");
        emit(emit_context, "a\"b\\c:d:served", "5");
        return true;
    }
    return false;
}

static inline bool shown_is_ready(void *context)
{
    (void)context;
    return true;
}

/* Two tenants, each with a count and a delay. */
static const struct fw_metric shown_named[] = {
    {.name = "sched_tenant_served", .unit = "", .help = "requests", .type = FW_METRIC_TYPE_COUNTER},
    {.name = "sched_tenant_delay", .unit = "ns", .help = "waits", .type = FW_METRIC_TYPE_HISTOGRAM},
};

static inline void shown_collect(struct fw_metric_collector *collector, fw_metric_visit visit,
                                 void *context)
{
    static const char *const names[] = {"web", "a\"b\\c:d"};
    static struct fw_histogram delays;
    (void)collector;
    fw_histogram_init(&delays);
    fw_histogram_record(&delays, 255);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(names); i++) {
        struct fw_metric_value value = {.name = shown_named[0].name,
                                        .label_name = "tenant",
                                        .label = names[i],
                                        .row = &shown_named[0],
                                        .counter = i == 0 ? 100 : 5};
        visit(&value, context);
        value.name = shown_named[1].name;
        value.row = &shown_named[1];
        value.histogram = &delays;
        visit(&value, context);
    }
}

struct shown {
    struct fw_metrics metrics;
    struct fw_metric_collector collector;
    struct shown_metrics *counts;
    struct fw_http_shown shown;
    char *text;
    size_t length;
    FILE *out;
};

static inline int shown_setup(void **state)
{
    struct shown *shown = calloc(1, sizeof *shown);
    assert_non_null(shown);
    shown->counts = aligned_alloc(alignof(struct shown_metrics), sizeof *shown->counts);
    assert_non_null(shown->counts);
    memset(shown->counts, 0, sizeof *shown->counts);
    fw_metrics_init(&shown->metrics);
    assert_int_equal(fw_metrics_register(&shown->metrics, &shown_table, &shown->counts->source), 0);
    shown->collector.collect = shown_collect;
    fw_metrics_add_collector(&shown->metrics, &shown->collector);
    shown->shown = (struct fw_http_shown){
        .metrics = &shown->metrics, .stats = shown_stats, .is_ready = shown_is_ready};
    shown->out = open_memstream(&shown->text, &shown->length);
    assert_non_null(shown->out);
    *state = shown;
    return 0;
}

static inline int shown_teardown(void **state)
{
    struct shown *shown = *state;
    (void)fclose(shown->out);
    free(shown->text);
    fw_metrics_remove_collector(&shown->metrics, &shown->collector);
    fw_metrics_unregister(&shown->metrics, &shown->counts->source);
    fw_metrics_fini(&shown->metrics);
    free(shown->counts);
    free(shown);
    return 0;
}
