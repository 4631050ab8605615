/* SPDX-License-Identifier: Apache-2.0 */
#include "http/prometheus.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define NS_PER_SECOND 1e9

enum { EDGE_FIRST = 8, EDGE_LAST = 36, EDGE_STEP = 2 };
enum { NAME_SIZE = FW_METRIC_NAME_SIZE + 32, COLUMNS_MAX = 64 };

/* ---- the registry ---- */

struct shape {
    const char *suffix; /* The unit, as it ends the name. */
    double scale;
};

static struct shape shape_of(const char *name, const char *unit)
{
    if (strcmp(unit, "ns") == 0) {
        return (struct shape){.suffix = "_seconds", .scale = NS_PER_SECOND};
    }
    if (strcmp(unit, "ppm") == 0) {
        return (struct shape){.suffix = "_ratio", .scale = 1e6};
    }
    bool says_bytes = strcmp(unit, "bytes") == 0 && strstr(name, "bytes") == NULL;
    return (struct shape){.suffix = says_bytes ? "_bytes" : "", .scale = 1};
}

/* A whole number stays one; others get as many digits as they have. */
static void value_print(FILE *out, double value, double scale)
{
    if (scale > 1) {
        (void)fprintf(out, "%.9g\n", value / scale);
    } else {
        (void)fprintf(out, "%.17g\n", value);
    }
}

/*
 * Samples of a metric stand together there, under one head. Metrics of things that people name come
 * thing by thing, so each such metric has a text of its own until all have told theirs.
 */
struct column {
    const struct fw_metric *row;
    FILE *out;
    char *text;
    size_t length;
};

struct page {
    FILE *out;
    struct column columns[COLUMNS_MAX];
    size_t column_count;
    bool has_failed;
};

/* Where the metric's samples go; its head is written with the first. NULL: no memory. */
static FILE *page_place(struct page *page, const struct fw_metric_value *value, const char *name)
{
    static const char *const types[] = {[FW_METRIC_TYPE_COUNTER] = "counter",
                                        [FW_METRIC_TYPE_GAUGE] = "gauge",
                                        [FW_METRIC_TYPE_HISTOGRAM] = "histogram"};
    FILE *out = page->out;
    if (value->label_name != NULL) {
        for (size_t i = 0; i < page->column_count; i++) {
            if (page->columns[i].row == value->row) {
                return page->columns[i].out;
            }
        }
        FW_ASSERT(page->column_count < COLUMNS_MAX);
        struct column *column = &page->columns[page->column_count];
        column->row = value->row;
        column->out = open_memstream(&column->text, &column->length);
        page->column_count += column->out != NULL;
        out = column->out;
    }
    if (out != NULL) {
        (void)fprintf(out, "# HELP %s %s.\n# TYPE %s %s\n", name, value->row->help, name,
                      types[value->row->type]);
    }
    return out;
}

/* Behind the last sample of the last thing: the columns, one after the other. */
static void page_end(struct page *page)
{
    for (size_t i = 0; i < page->column_count; i++) {
        struct column *column = &page->columns[i];
        if (fclose(column->out) != 0) {
            page->has_failed = true;
        } else {
            (void)fwrite(column->text, 1, column->length, page->out);
        }
        free(column->text);
    }
}

/* {label="what",le="edge"}, as far as there are any. */
static void labels_print(FILE *out, const struct fw_metric_value *value, const char *edge)
{
    if (value->label_name == NULL && edge == NULL) {
        return;
    }
    (void)fputc('{', out);
    if (value->label_name != NULL) {
        (void)fprintf(out, "%s=\"", value->label_name);
        for (const char *at = value->label; *at != '\0'; at++) {
            if (*at == '\\' || *at == '"') {
                (void)fputc('\\', out);
            }
            (void)fputc(*at == '\n' ? ' ' : *at, out);
        }
        (void)fputs(edge != NULL ? "\"," : "\"", out);
    }
    if (edge != NULL) {
        (void)fprintf(out, "le=\"%s\"", edge);
    }
    (void)fputc('}', out);
}

static void sample_print(FILE *out, const struct fw_metric_value *value, const char *name,
                         const char *suffix, double number, double scale)
{
    (void)fprintf(out, "%s%s", name, suffix);
    labels_print(out, value, NULL);
    (void)fputc(' ', out);
    value_print(out, number, scale);
}

static void bucket_print(FILE *out, const struct fw_metric_value *value, const char *name,
                         const char *edge, uint64_t below)
{
    (void)fprintf(out, "%s_bucket", name);
    labels_print(out, value, edge);
    (void)fprintf(out, " %" PRIu64 "\n", below);
}

static void histogram_print(FILE *out, const struct fw_metric_value *value, const char *name,
                            double scale)
{
    const struct fw_histogram *histogram = value->histogram;
    char text[NAME_SIZE];
    uint64_t below = 0;
    uint32_t at = 0;
    for (unsigned edge = EDGE_FIRST; edge <= EDGE_LAST; edge += EDGE_STEP) {
        uint64_t limit = UINT64_C(1) << edge;
        for (; at < fw_histogram_bucket(limit); at++) {
            /* Relaxed: as the histogram's own readers. */
            below += atomic_load_explicit(&histogram->buckets[at], memory_order_relaxed);
        }
        (void)snprintf(text, sizeof text, "%.9g", (double)(limit - 1) / scale);
        bucket_print(out, value, name, text, below);
    }
    for (; at < FW_HISTOGRAM_BUCKETS; at++) {
        below += atomic_load_explicit(&histogram->buckets[at], memory_order_relaxed);
    }
    bucket_print(out, value, name, "+Inf", below);
    sample_print(out, value, name, "_sum", (double)below * (double)fw_histogram_mean(histogram),
                 scale);
    sample_print(out, value, name, "_count", (double)below, 1);
}

static void metric_print(const struct fw_metric_value *value, void *context)
{
    struct page *page = context;
    char name[NAME_SIZE];
    struct shape shape = shape_of(value->name, value->row->unit);
    bool is_counter = value->row->type == FW_METRIC_TYPE_COUNTER;
    (void)snprintf(name, sizeof name, "fairway_%s%s%s", value->name, shape.suffix,
                   is_counter ? "_total" : "");
    FILE *out = page_place(page, value, name);
    if (out == NULL) {
        page->has_failed = true;
        return;
    }
    switch (value->row->type) {
    case FW_METRIC_TYPE_COUNTER:
        sample_print(out, value, name, "", (double)value->counter, shape.scale);
        break;
    case FW_METRIC_TYPE_GAUGE:
        sample_print(out, value, name, "", (double)value->gauge, shape.scale);
        break;
    case FW_METRIC_TYPE_HISTOGRAM:
        histogram_print(out, value, name, shape.scale);
        break;
    }
}

/* ---- what `stats` counts beside the registry ---- */

static const struct figure {
    const char *figure;
    const char *name; /* There. */
    const char *type;
    const char *help;
} figures[] = {
    {"uptime", "fairway_uptime_seconds", "gauge", "time since the start"},
    {"curr_connections", "fairway_connections", "gauge", "connections of clients"},
    {"total_connections", "fairway_connections_total", "counter", "connections ever accepted"},
    {"rejected_connections", "fairway_connections_rejected_total", "counter",
     "connections refused because there were too many"},
    {"curr_items", "fairway_items", "gauge", "items in the cache"},
    {"total_items", "fairway_items_stored_total", "counter", "items ever stored"},
    {"bytes", "fairway_items_bytes", "gauge", "memory of the items"},
    {"limit_maxbytes", "fairway_memory_limit_bytes", "gauge", "memory that they may have"},
    {"evictions", "fairway_evictions_total", "counter", "items that had to make room for others"},
    {"reclaimed", "fairway_expired_total", "counter", "items whose time was over"},
};

static void figure_print(void *context, const char *name, const char *value)
{
    FILE *out = context;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(figures); i++) {
        const struct figure *figure = &figures[i];
        if (strcmp(figure->figure, name) == 0) {
            (void)fprintf(out, "# HELP %s %s.\n# TYPE %s %s\n%s %s\n", figure->name, figure->help,
                          figure->name, figure->type, figure->name, value);
        }
    }
}

int fw_prometheus_write(const struct fw_http_shown *shown, FILE *out)
{
    struct page page = {.out = out};
    fw_metrics_visit(shown->metrics, metric_print, &page);
    page_end(&page);
    (void)shown->stats(shown->context, "", figure_print, out);
    return page.has_failed || ferror(out) ? -ENOMEM : 0;
}
