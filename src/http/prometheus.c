/* SPDX-License-Identifier: Apache-2.0 */
#include "http/prometheus.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_SECOND 1e9

enum { EDGE_FIRST = 8, EDGE_LAST = 36, EDGE_STEP = 2 };
enum { NAME_SIZE = FW_METRIC_NAME_SIZE + 32, LABEL_SIZE = 256 };

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
    bool says_bytes = strcmp(unit, "bytes") == 0 && strstr(name, "bytes") == NULL;
    return (struct shape){.suffix = says_bytes ? "_bytes" : "", .scale = 1};
}

/* A whole number stays one; time gets as many digits as it has. */
static void value_print(FILE *out, double value, double scale)
{
    if (scale > 1) {
        (void)fprintf(out, "%.9g\n", value / scale);
    } else {
        (void)fprintf(out, "%.17g\n", value);
    }
}

static void head_print(FILE *out, const char *name, const char *help, const char *type)
{
    (void)fprintf(out, "# HELP %s %s.\n# TYPE %s %s\n", name, help, name, type);
}

static void histogram_print(FILE *out, const char *name, const struct fw_histogram *histogram,
                            double scale)
{
    uint64_t below = 0;
    uint32_t at = 0;
    for (unsigned edge = EDGE_FIRST; edge <= EDGE_LAST; edge += EDGE_STEP) {
        uint64_t value = UINT64_C(1) << edge;
        for (; at < fw_histogram_bucket(value); at++) {
            /* Relaxed: as the histogram's own readers. */
            below += atomic_load_explicit(&histogram->buckets[at], memory_order_relaxed);
        }
        (void)fprintf(out, "%s_bucket{le=\"%.9g\"} %" PRIu64 "\n", name,
                      (double)(value - 1) / scale, below);
    }
    for (; at < FW_HISTOGRAM_BUCKETS; at++) {
        below += atomic_load_explicit(&histogram->buckets[at], memory_order_relaxed);
    }
    (void)fprintf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum ", name, below, name);
    value_print(out, (double)below * (double)fw_histogram_mean(histogram), scale);
    (void)fprintf(out, "%s_count %" PRIu64 "\n", name, below);
}

static void metric_print(const struct fw_metric_value *value, void *context)
{
    FILE *out = context;
    char name[NAME_SIZE];
    struct shape shape = shape_of(value->name, value->row->unit);
    bool is_counter = value->row->type == FW_METRIC_TYPE_COUNTER;
    (void)snprintf(name, sizeof name, "fairway_%s%s%s", value->name, shape.suffix,
                   is_counter ? "_total" : "");
    switch (value->row->type) {
    case FW_METRIC_TYPE_COUNTER:
        head_print(out, name, value->row->help, "counter");
        (void)fprintf(out, "%s ", name);
        value_print(out, (double)value->counter, shape.scale);
        break;
    case FW_METRIC_TYPE_GAUGE:
        head_print(out, name, value->row->help, "gauge");
        (void)fprintf(out, "%s ", name);
        value_print(out, (double)value->gauge, shape.scale);
        break;
    case FW_METRIC_TYPE_HISTOGRAM:
        head_print(out, name, value->row->help, "histogram");
        histogram_print(out, name, value->histogram, shape.scale);
        break;
    }
}

/* ---- groups of rows ---- */

struct figure {
    const char *figure;
    const char *name; /* There. */
    const char *type;
    const char *help;
};

#define TENANT(is, type, help)                 \
    {                                          \
#is, "fairway_tenant_" #is, type, help \
    }
#define TENANT_TOTAL(is, help)                               \
    {                                                        \
#is, "fairway_tenant_" #is "_total", "counter", help \
    }

static const struct figure tenant_figures[] = {
    TENANT(weight, "gauge", "Its weight"),
    TENANT(rate, "gauge", "The cost that it may cause in a second, 0 for any"),
    TENANT(share_percent, "gauge", "Its part of all cost since the start"),
    TENANT(waiting, "gauge", "Requests that wait for their turn"),
    TENANT_TOTAL(served, "Requests that were served"),
    TENANT_TOTAL(cost, "The cost of what was served"),
    TENANT_TOTAL(delayed, "Requests that had to wait for others"),
    TENANT_TOTAL(throttled, "Requests that had to wait for the tenant's rate"),
    TENANT_TOTAL(shed, "Requests that were refused because they could not be served in time"),
};

/* Of the whole server. */
static const struct figure general_figures[] = {
    {"uptime", "fairway_uptime_seconds", "gauge", "Time since the start"},
    {"curr_connections", "fairway_connections", "gauge", "Connections of clients"},
    {"total_connections", "fairway_connections_total", "counter", "Connections ever accepted"},
    {"rejected_connections", "fairway_connections_rejected_total", "counter",
     "Connections refused because there were too many"},
    {"curr_items", "fairway_items", "gauge", "Items in the cache"},
    {"total_items", "fairway_items_stored_total", "counter", "Items ever stored"},
    {"bytes", "fairway_items_bytes", "gauge", "Memory of the items"},
    {"limit_maxbytes", "fairway_memory_limit_bytes", "gauge", "Memory that they may have"},
    {"evictions", "fairway_evictions_total", "counter", "Items that had to make room for others"},
    {"reclaimed", "fairway_expired_total", "counter", "Items whose time was over"},
};

static const struct group {
    const char *group;
    const char *label; /* NULL: there is only one thing. */
    const struct figure *figures;
    size_t count;
} groups[] = {
    {"", NULL, general_figures, FW_ARRAY_LENGTH(general_figures)},
    {"tenants", "tenant", tenant_figures, FW_ARRAY_LENGTH(tenant_figures)},
};

enum { FIGURES_MAX = 16 };
static_assert(FW_ARRAY_LENGTH(tenant_figures) <= FIGURES_MAX &&
                  FW_ARRAY_LENGTH(general_figures) <= FIGURES_MAX,
              "each has a text");

/* All samples of a metric stand together there, so each figure has a text of its own. */
struct columns {
    const struct group *group;
    FILE *out[FIGURES_MAX];
    char *texts[FIGURES_MAX];
    size_t lengths[FIGURES_MAX];
};

/* As a label's value stands between its quotes. */
static void label_print(FILE *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length && i < LABEL_SIZE; i++) {
        if (text[i] == '\\' || text[i] == '"') {
            (void)fputc('\\', out);
        }
        (void)fputc(text[i] == '\n' ? ' ' : text[i], out);
    }
}

static bool is_number(const char *text)
{
    return text[0] != '\0' && strspn(text, "0123456789.") == strlen(text);
}

static void row_take(void *context, const char *name, const char *value)
{
    struct columns *columns = context;
    const struct group *group = columns->group;
    const char *colon = strrchr(name, ':');
    const char *wanted = colon != NULL ? colon + 1 : name;
    if ((colon != NULL) != (group->label != NULL) || !is_number(value)) {
        return;
    }
    for (size_t i = 0; i < group->count; i++) {
        if (strcmp(group->figures[i].figure, wanted) != 0) {
            continue;
        }
        (void)fputs(group->figures[i].name, columns->out[i]);
        if (colon != NULL) {
            (void)fprintf(columns->out[i], "{%s=\"", group->label);
            label_print(columns->out[i], name, (size_t)(colon - name));
            (void)fputs("\"}", columns->out[i]);
        }
        (void)fprintf(columns->out[i], " %s\n", value);
    }
}

static int columns_end(struct columns *columns, FILE *out)
{
    int rc = 0;
    for (size_t i = 0; i < columns->group->count; i++) {
        if (columns->out[i] == NULL || fclose(columns->out[i]) != 0) {
            rc = -ENOMEM;
        } else if (columns->lengths[i] > 0) {
            const struct figure *figure = &columns->group->figures[i];
            head_print(out, figure->name, figure->help, figure->type);
            (void)fwrite(columns->texts[i], 1, columns->lengths[i], out);
        }
        free(columns->texts[i]);
    }
    return rc;
}

static int group_print(const struct fw_http_shown *shown, const struct group *group, FILE *out)
{
    struct columns columns = {.group = group};
    bool is_whole = true;
    for (size_t i = 0; i < group->count; i++) {
        columns.out[i] = open_memstream(&columns.texts[i], &columns.lengths[i]);
        is_whole = is_whole && columns.out[i] != NULL;
    }
    if (is_whole) {
        (void)shown->stats(shown->context, group->group, row_take, &columns);
    }
    return columns_end(&columns, out);
}

int fw_prometheus_write(const struct fw_http_shown *shown, FILE *out)
{
    fw_metrics_visit(shown->metrics, metric_print, out);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < FW_ARRAY_LENGTH(groups); i++) {
        rc = group_print(shown, &groups[i], out);
    }
    return rc == 0 && ferror(out) ? -ENOMEM : rc;
}
