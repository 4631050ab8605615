/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics: what a module counts, declared once, written without cost, read without stopping anyone.
 *
 * A module writes down what it counts in a struct, and one row about each field in a table:
 *
 *     struct fw_cache_metrics {
 *         struct fw_metric_source source;
 *         struct fw_counter get_hits;
 *         struct fw_gauge items;
 *         struct fw_histogram get_time;
 *     };
 *     static const struct fw_metric rows[] = {
 *         FW_METRIC_COUNTER(struct fw_cache_metrics, get_hits, "", "gets that found their key"),
 *         FW_METRIC_GAUGE(struct fw_cache_metrics, items, "", "items in the table"),
 *         FW_METRIC_HISTOGRAM(struct fw_cache_metrics, get_time, "ns", "from request to reply"),
 *     };
 *     const struct fw_metric_table fw_cache_metric_table =
 *         FW_METRIC_TABLE("cache", struct fw_cache_metrics, rows);
 *
 * The metrics are then called cache_get_hits, cache_items, cache_get_time. A row that calls a gauge
 * a counter does not compile. `stats`, the Prometheus page and JSON read what is registered and
 * know no metric by name.
 *
 * One instance of the struct per writer. A locality has one, written by the holder of its turn; so
 * has a thread that has no locality. Readers add the instances up. An instance therefore has one
 * writer at a time, ordered by the hand-over of the turn, and an increment is a load, an addition
 * and a store, each relaxed: no other thread's store can come between. A locked addition would
 * cost some twenty cycles each, on every request, for a conflict that cannot happen. Instances are
 * aligned to cache lines, so neither do writers slow each other down by false sharing.
 *
 * What a reader sees: every value untorn, some recent past, and counters that never go back, not
 * even when an instance goes away: unregister() moves its counts to a retired total. Metrics are
 * not consistent with each other; hits and misses may differ from gets by those under way.
 * A gauge may be raised by one instance and lowered by another (a connection that moved), so that
 * single instances are negative and only the sum means something. It goes away with its instance.
 *
 * Things that people name and that come and go, such as tenants, are no fields of a struct. Who has
 * them adds a *collector*, which is asked when somebody reads, and tells each metric once per
 * thing, with a label that says which.
 *
 * Locks: the registry's, FW_RANK_METRICS, guards its lists. Registering and reading take it;
 * writers never do.
 *
 * Ownership: instances and tables are the modules' and stay where they are until unregistered. The
 * registry owns the retired totals, the only memory it allocates, one struct per module. There is
 * one registry per server, handed down, not a global: the simulator runs several servers.
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/base.h"
#include "base/histogram.h"
#include "base/list.h"
#include "base/mutex.h"

enum { FW_METRIC_NAME_SIZE = 64 }; /* "module_field" with the final zero. */

/* Only ever rises. */
struct fw_counter {
    _Atomic uint64_t value;
};

/* How much of something there is now. */
struct fw_gauge {
    _Atomic int64_t value;
};

struct fw_metric_module;

/* The first member of every struct of metrics, called `source`. The registry's. */
struct fw_metric_source {
    alignas(FW_CACHE_LINE) struct fw_list_link link; /* In module->sources. */
    struct fw_metric_module *module;                 /* NULL while not registered. */
};

/* The writer only. Relaxed, here and below: see the essay. */
static inline void fw_counter_add(struct fw_counter *counter, uint64_t amount)
{
    uint64_t value = atomic_load_explicit(&counter->value, memory_order_relaxed);
    atomic_store_explicit(&counter->value, value + amount, memory_order_relaxed);
}

static inline void fw_counter_increment(struct fw_counter *counter)
{
    fw_counter_add(counter, 1);
}

/* Of this instance alone; anyone. */
static inline uint64_t fw_counter_get(const struct fw_counter *counter)
{
    return atomic_load_explicit(&counter->value, memory_order_relaxed);
}

/* The writer only. */
static inline void fw_gauge_set(struct fw_gauge *gauge, int64_t value)
{
    atomic_store_explicit(&gauge->value, value, memory_order_relaxed);
}

/* The writer only. `amount` may be negative. */
static inline void fw_gauge_add(struct fw_gauge *gauge, int64_t amount)
{
    fw_gauge_set(gauge, atomic_load_explicit(&gauge->value, memory_order_relaxed) + amount);
}

/* Of this instance alone; anyone. */
static inline int64_t fw_gauge_get(const struct fw_gauge *gauge)
{
    return atomic_load_explicit(&gauge->value, memory_order_relaxed);
}

enum fw_metric_type { FW_METRIC_TYPE_COUNTER, FW_METRIC_TYPE_GAUGE, FW_METRIC_TYPE_HISTOGRAM };

/* One row; made by the macros below. */
struct fw_metric {
    const char *name; /* The field's. */
    const char *unit; /* "bytes", "ns"; "" for plain numbers. */
    const char *help; /* For a person: a phrase without a full stop. */
    size_t offset;    /* In the module's struct. */
    enum fw_metric_type type;
};

/* _Generic has only the one type to choose from, so that a field of another does not compile. */
#define FW_METRIC_COUNTER(struct_type, field, unit, help)                  \
    FW_METRIC_ROW(FW_METRIC_TYPE_COUNTER, field, unit, help,               \
                  _Generic(((struct_type *)NULL)->field, struct fw_counter \
                           : offsetof(struct_type, field)))
#define FW_METRIC_GAUGE(struct_type, field, unit, help)                  \
    FW_METRIC_ROW(FW_METRIC_TYPE_GAUGE, field, unit, help,               \
                  _Generic(((struct_type *)NULL)->field, struct fw_gauge \
                           : offsetof(struct_type, field)))
#define FW_METRIC_HISTOGRAM(struct_type, field, unit, help)                  \
    FW_METRIC_ROW(FW_METRIC_TYPE_HISTOGRAM, field, unit, help,               \
                  _Generic(((struct_type *)NULL)->field, struct fw_histogram \
                           : offsetof(struct_type, field)))
#define FW_METRIC_ROW(metric_type, field, unit_text, help_text, field_offset)               \
    {                                                                                       \
        .name = #field, .unit = (unit_text), .help = (help_text), .offset = (field_offset), \
        .type = (metric_type),                                                              \
    }

/* All about one module's metrics. Constant; its address is the module's identity. */
struct fw_metric_table {
    const char *module; /* Lower case; no two tables of a registry share it. */
    const struct fw_metric *rows;
    size_t row_count;
    size_t struct_size;
};

/* The array of negative length is for the struct whose first member is not its source. */
#define FW_METRIC_TABLE(module_name, struct_type, row_array)                                     \
    {                                                                                            \
        .module = (module_name), .rows = (row_array), .row_count = FW_ARRAY_LENGTH(row_array),   \
        .struct_size =                                                                           \
            sizeof(struct_type) + 0 * sizeof(char[offsetof(struct_type, source) == 0 ? 1 : -1]), \
    }

struct fw_metrics {
    struct fw_mutex lock;             /* FW_RANK_METRICS; guards all below. */
    struct fw_metric_module *modules; /* The first of them; see metrics.c. */
    struct fw_list collectors;
    struct fw_histogram merged; /* For a reader's sums: too large for a fibre's stack. */
};

void fw_metrics_init(struct fw_metrics *metrics);

/* All instances must have been unregistered. */
void fw_metrics_fini(struct fw_metrics *metrics);

/*
 * From now on readers see the instance that starts with `source`, one of the struct that `table` is
 * about. It was all zero when it was made and stays where it is until unregister(). Returns 0 or
 * -ENOMEM.
 */
FW_MUST_CHECK int fw_metrics_register(struct fw_metrics *metrics,
                                      const struct fw_metric_table *table,
                                      struct fw_metric_source *source) FW_EXCLUDES(metrics->lock);

/*
 * Readers see the instance no more, but what it counted stays in the sums: it is moved, so that the
 * instance is all zero again. Its writer has stopped, and the caller knows: it is the writer, or
 * has joined it, or holds the turn.
 */
void fw_metrics_unregister(struct fw_metrics *metrics, struct fw_metric_source *source)
    FW_EXCLUDES(metrics->lock);

/* One metric, all instances together. Lent to the visitor until it returns. */
struct fw_metric_value {
    const char *name;       /* "cache_get_hits". */
    const char *label_name; /* "tenant", and then which: `label`. NULL: it has none. */
    const char *label;
    const struct fw_metric *row;
    union { /* As row->type says. */
        uint64_t counter;
        int64_t gauge;
        const struct fw_histogram *histogram;
    };
};

typedef void (*fw_metric_visit)(const struct fw_metric_value *value, void *context);

/* Inside its owner's struct. */
struct fw_metric_collector {
    struct fw_list_link link; /* The registry's. */
    /* Tells `visit` what there is. Runs under the registry's lock, and must not call it. */
    void (*collect)(struct fw_metric_collector *collector, fw_metric_visit visit, void *context);
};

/* Readers ask it from now on, and after remove() no more: nor is it being asked then. */
void fw_metrics_add_collector(struct fw_metrics *metrics, struct fw_metric_collector *collector)
    FW_EXCLUDES(metrics->lock);
void fw_metrics_remove_collector(struct fw_metrics *metrics, struct fw_metric_collector *collector)
    FW_EXCLUDES(metrics->lock);

/*
 * Calls `visit` for every metric of every module that ever registered, modules in the order of
 * their first registration and metrics in that of their table; then for what collectors tell. The
 * visitor runs under the lock: it
 * may take locks of higher rank and log, but not come back here, and should not wait for anything,
 * or starting and stopping localities wait with it.
 */
void fw_metrics_visit(struct fw_metrics *metrics, fw_metric_visit visit, void *context)
    FW_EXCLUDES(metrics->lock);
/* The same for the metrics of one module. */
void fw_metrics_visit_table(struct fw_metrics *metrics, const struct fw_metric_table *table,
                            fw_metric_visit visit, void *context) FW_EXCLUDES(metrics->lock);
