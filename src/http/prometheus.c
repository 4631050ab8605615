/* SPDX-License-Identifier: Apache-2.0 */
#include "http/prometheus.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/parse.h"

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

/* By runs, not by bytes: with many tenants most of the page is labels. */
static void label_print(FILE *out, const char *label)
{
    for (const char *at = label;; at++) {
        size_t plain = strcspn(at, "\\\"\n");
        (void)fwrite(at, 1, plain, out);
        at += plain;
        if (*at == '\0') {
            return;
        }
        (void)fputs(*at == '\\' ? "\\\\" : *at == '"' ? "\\\"" : " ", out);
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
        label_print(out, value->label);
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

#define MS_PER_SECOND 1e3

/*
 * A row of `stats`. One of a thing, "0:behind_ms", is named by what follows the colon; of several
 * things the largest counts. A row that is a word is 1 if it is this word and 0 if it is another.
 */
static const struct figure {
    const char *group;
    const char *figure;
    const char *word; /* NULL: it is a number. */
    const char *name; /* There. */
    const char *type;
    const char *help;
    double scale; /* 0: as it is. */
} figures[] = {
    {"", "uptime", NULL, "fairway_uptime_seconds", "gauge", "time since the start", 0},
    {"", "curr_connections", NULL, "fairway_connections", "gauge", "connections of clients", 0},
    {"", "max_connections", NULL, "fairway_connections_limit", "gauge",
     "connections of clients that there may be", 0},
    {"", "total_connections", NULL, "fairway_connections_total", "counter",
     "connections ever accepted", 0},
    {"", "rejected_connections", NULL, "fairway_connections_rejected_total", "counter",
     "connections refused because there were too many", 0},
    {"", "curr_items", NULL, "fairway_items", "gauge", "items in the cache", 0},
    {"", "total_items", NULL, "fairway_items_stored_total", "counter", "items ever stored", 0},
    {"", "bytes", NULL, "fairway_items_bytes", "gauge", "memory of the items", 0},
    {"", "limit_maxbytes", NULL, "fairway_memory_limit_bytes", "gauge", "memory that they may have",
     0},
    {"", "evictions", NULL, "fairway_evictions_total", "counter",
     "items that had to make room for others", 0},
    {"", "reclaimed", NULL, "fairway_expired_total", "counter", "items whose time was over", 0},
    {"replication", "role", "master", "fairway_repl_is_master", "gauge",
     "whether it is the master, 0 or 1", 0},
    {"replication", "slaves", NULL, "fairway_repl_slaves", "gauge", "slaves that follow it now", 0},
    {"replication", "behind_bytes", NULL, "fairway_repl_behind_bytes", "gauge",
     "what the slave that is furthest behind has not confirmed", 0},
    {"replication", "behind_ms", NULL, "fairway_repl_behind_seconds", "gauge",
     "for how long the slave that is furthest behind has not had all", MS_PER_SECOND},
    {"replication", "link", "streaming", "fairway_repl_link_up", "gauge",
     "of a slave: whether it has all and gets every change, 0 or 1", 0},
};

struct figures {
    const char *group;
    bool is_off; /* The group tells of something that is not in use. */
    bool has[FW_ARRAY_LENGTH(figures)];
    uint64_t value[FW_ARRAY_LENGTH(figures)];
};

static void figure_take(void *context, const char *name, const char *value)
{
    struct figures *taken = context;
    const char *colon = strrchr(name, ':');
    const char *figure = colon != NULL ? colon + 1 : name;
    taken->is_off |= strcmp(name, "enabled") == 0 && strcmp(value, "no") == 0;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(figures) && !taken->is_off; i++) {
        const struct figure *row = &figures[i];
        uint64_t number = 0;
        if (strcmp(row->group, taken->group) != 0 || strcmp(row->figure, figure) != 0) {
            continue;
        }
        if (row->word != NULL) {
            number = strcmp(row->word, value) == 0;
        } else if (fw_parse_uint(value, strlen(value), 0, UINT64_MAX, &number) != 0) {
            continue;
        }
        taken->value[i] = taken->value[i] > number ? taken->value[i] : number;
        taken->has[i] = true;
    }
}

static void figures_print(const struct figures *taken, FILE *out)
{
    for (size_t i = 0; i < FW_ARRAY_LENGTH(figures); i++) {
        const struct figure *row = &figures[i];
        if (taken->has[i]) {
            (void)fprintf(out, "# HELP %s %s.\n# TYPE %s %s\n%s ", row->name, row->help, row->name,
                          row->type, row->name);
            value_print(out, (double)taken->value[i], row->scale);
        }
    }
}

static void figures_write(const struct fw_http_shown *shown, FILE *out)
{
    static const char *const groups[] = {"", "replication"};
    struct figures taken = {.is_off = false};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(groups); i++) {
        taken.group = groups[i];
        taken.is_off = false;
        (void)shown->stats(shown->context, groups[i], figure_take, &taken);
    }
    figures_print(&taken, out);
}

int fw_prometheus_write(const struct fw_http_shown *shown, FILE *out)
{
    struct page page = {.out = out};
    fw_metrics_visit(shown->metrics, metric_print, &page);
    page_end(&page);
    figures_write(shown, out);
    return page.has_failed || ferror(out) ? -ENOMEM : 0;
}
