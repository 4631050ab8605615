/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/thread.h"

/* What the registry knows of a module. */
struct fw_metric_module {
    struct fw_metric_module *next; /* In the order in which they came. */
    const struct fw_metric_table *table;
    struct fw_list sources;
    /*
     * An instance of the module's struct with what those that are gone have counted. It is on the
     * list like the others, so that summing knows no second case. Its gauges stay 0.
     */
    struct fw_metric_source *retired;
};

static void *field_at(struct fw_metric_source *source, const struct fw_metric *row)
{
    return (char *)source + row->offset;
}

static void metric_name(struct fw_text *text, const struct fw_metric_table *table,
                        const struct fw_metric *row)
{
    fw_text_append_string(text, table->module);
    fw_text_append_char(text, '_');
    fw_text_append_string(text, row->name);
}

/* Names have to suit Prometheus, `stats` and JSON alike, and the tables are the modules' own. */
static void table_invariant(const struct fw_metric_table *table)
{
    FW_ASSERT(table->row_count > 0);
    FW_ASSERT(table->struct_size % FW_CACHE_LINE == 0);
    for (size_t i = 0; i < table->row_count; i++) {
        char name[FW_METRIC_NAME_SIZE];
        struct fw_text text;
        fw_text_init(&text, name, sizeof name);
        metric_name(&text, table, &table->rows[i]);
        FW_ASSERT(!text.truncated);
        FW_ASSERT(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == text.length);
        FW_ASSERT(table->rows[i].offset >= sizeof(struct fw_metric_source));
        FW_ASSERT(table->rows[i].offset < table->struct_size);
    }
}

void fw_metrics_init(struct fw_metrics *metrics)
{
    fw_mutex_init(&metrics->lock, FW_RANK_METRICS);
    metrics->modules = NULL;
    fw_list_init(&metrics->collectors);
    fw_histogram_init(&metrics->merged);
}

void fw_metrics_fini(struct fw_metrics *metrics)
{
    struct fw_metric_module *module;
    while ((module = metrics->modules) != NULL) {
        /* It has been the first since the module was made, and now has to be the last. */
        FW_ASSERT(module->retired->link.next == &module->sources.head);
        metrics->modules = module->next;
        free(module->retired);
        free(module);
    }
    FW_ASSERT(fw_list_is_empty(&metrics->collectors));
    fw_mutex_fini(&metrics->lock);
}

static struct fw_metric_module *module_create(const struct fw_metric_table *table)
{
    struct fw_metric_module *module = malloc(sizeof *module);
    struct fw_metric_source *retired = aligned_alloc(FW_CACHE_LINE, table->struct_size);
    if (module == NULL || retired == NULL) {
        free(module);
        free(retired);
        return NULL;
    }
    memset(retired, 0, table->struct_size);
    *module = (struct fw_metric_module){.table = table, .retired = retired};
    fw_list_init(&module->sources);
    fw_list_push_back(&module->sources, &retired->link);
    return module;
}

/* Where the pointer to the table's module is, or, if the module is new, has to be. */
static struct fw_metric_module **module_place(struct fw_metrics *metrics,
                                              const struct fw_metric_table *table)
    FW_REQUIRES(metrics->lock);

static struct fw_metric_module **module_place(struct fw_metrics *metrics,
                                              const struct fw_metric_table *table)
{
    struct fw_metric_module **place = &metrics->modules;
    while (*place != NULL && (*place)->table != table) {
        FW_ASSERT(strcmp((*place)->table->module, table->module) != 0);
        place = &(*place)->next;
    }
    return place;
}

int fw_metrics_register(struct fw_metrics *metrics, const struct fw_metric_table *table,
                        struct fw_metric_source *source)
{
    table_invariant(table);
    FW_ASSERT(source->module == NULL);

    fw_mutex_lock(&metrics->lock);
    struct fw_metric_module **place = module_place(metrics, table);
    if (*place == NULL) {
        *place = module_create(table);
    }
    struct fw_metric_module *module = *place;
    if (module != NULL) {
        fw_list_push_back(&module->sources, &source->link);
        source->module = module;
    }
    fw_mutex_unlock(&metrics->lock);

    return module != NULL ? 0 : -ENOMEM;
}

/* The caller is the writer of both: of `from` by its promise, of `into` by the lock. */
static void field_move(void *into, void *from, enum fw_metric_type type)
{
    switch (type) {
    case FW_METRIC_TYPE_COUNTER:
        fw_counter_add(into, fw_counter_get(from));
        *(struct fw_counter *)from = (struct fw_counter){0};
        return;
    case FW_METRIC_TYPE_GAUGE:
        fw_gauge_set(from, 0); /* What was there is there no more. */
        return;
    case FW_METRIC_TYPE_HISTOGRAM:
        fw_histogram_merge(into, from);
        fw_histogram_init(from);
        return;
    }
}

void fw_metrics_unregister(struct fw_metrics *metrics, struct fw_metric_source *source)
{
    FW_ASSERT(source->module != NULL);

    fw_mutex_lock(&metrics->lock);
    struct fw_metric_module *module = source->module;
    for (size_t i = 0; i < module->table->row_count; i++) {
        const struct fw_metric *row = &module->table->rows[i];
        field_move(field_at(module->retired, row), field_at(source, row), row->type);
    }
    fw_list_remove(&source->link);
    source->module = NULL;
    fw_mutex_unlock(&metrics->lock);
}

void fw_metrics_add_collector(struct fw_metrics *metrics, struct fw_metric_collector *collector)
{
    fw_mutex_lock(&metrics->lock);
    fw_list_push_back(&metrics->collectors, &collector->link);
    fw_mutex_unlock(&metrics->lock);
}

void fw_metrics_remove_collector(struct fw_metrics *metrics, struct fw_metric_collector *collector)
{
    fw_mutex_lock(&metrics->lock);
    fw_list_remove(&collector->link);
    fw_mutex_unlock(&metrics->lock);
}

/* Adds one instance's share to `value`. */
static void value_add(struct fw_metrics *metrics, struct fw_metric_value *value, const void *field)
    FW_REQUIRES(metrics->lock);

static void value_add(struct fw_metrics *metrics, struct fw_metric_value *value, const void *field)
{
    switch (value->row->type) {
    case FW_METRIC_TYPE_COUNTER:
        value->counter += fw_counter_get(field);
        return;
    case FW_METRIC_TYPE_GAUGE: /* Not as signed: a sum on its way to a small one may overflow. */
        value->gauge = (int64_t)((uint64_t)value->gauge + (uint64_t)fw_gauge_get(field));
        return;
    case FW_METRIC_TYPE_HISTOGRAM:
        fw_histogram_merge(&metrics->merged, field);
        return;
    }
}

static void metric_visit(struct fw_metrics *metrics, struct fw_metric_module *module,
                         const struct fw_metric *row, fw_metric_visit visit, void *context)
    FW_REQUIRES(metrics->lock);

static void metric_visit(struct fw_metrics *metrics, struct fw_metric_module *module,
                         const struct fw_metric *row, fw_metric_visit visit, void *context)
{
    char name[FW_METRIC_NAME_SIZE];
    struct fw_text text;
    fw_text_init(&text, name, sizeof name);
    metric_name(&text, module->table, row);

    struct fw_metric_value value = {.name = name, .row = row, .counter = 0};
    if (row->type == FW_METRIC_TYPE_HISTOGRAM) {
        fw_histogram_init(&metrics->merged);
        value.histogram = &metrics->merged;
    }
    FW_LIST_FOR_EACH (&module->sources, struct fw_metric_source, link, source) {
        FW_YIELD_POINT("metrics: between two instances of a sum");
        value_add(metrics, &value, field_at(source, row));
    }
    visit(&value, context);
}

void fw_metrics_visit_table(struct fw_metrics *metrics, const struct fw_metric_table *table,
                            fw_metric_visit visit, void *context)
{
    fw_mutex_lock(&metrics->lock);
    struct fw_metric_module *module = *module_place(metrics, table);
    for (size_t i = 0; module != NULL && i < table->row_count; i++) {
        metric_visit(metrics, module, &table->rows[i], visit, context);
    }
    fw_mutex_unlock(&metrics->lock);
}

void fw_metrics_visit(struct fw_metrics *metrics, fw_metric_visit visit, void *context)
{
    fw_mutex_lock(&metrics->lock);
    for (struct fw_metric_module *module = metrics->modules; module != NULL;
         module = module->next) {
        for (size_t i = 0; i < module->table->row_count; i++) {
            metric_visit(metrics, module, &module->table->rows[i], visit, context);
        }
    }
    FW_LIST_FOR_EACH (&metrics->collectors, struct fw_metric_collector, link, collector) {
        collector->collect(collector, visit, context);
    }
    fw_mutex_unlock(&metrics->lock);
}
