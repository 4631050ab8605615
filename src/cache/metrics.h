/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the cache counts, one instance per locality, under memcached's names where it has one. The
 * rows are in metrics.c. What the table counts itself (items, evictions) is in table.h.
 */
#pragma once

#include "base/metrics.h"

struct fw_metrics_cache {
    struct fw_metric_source source;
    struct fw_counter cmd_get; /* Keys asked for. */
    struct fw_counter cmd_set; /* Stores that were tried, in all modes. */
    struct fw_counter cmd_flush;
    struct fw_counter cmd_touch;
    struct fw_counter cmd_meta;
    struct fw_counter get_hits;
    struct fw_counter get_misses;
    struct fw_counter get_expired; /* Of the misses: it had expired. */
    struct fw_counter get_flushed; /* Of the misses: it had been flushed. */
    struct fw_counter delete_hits;
    struct fw_counter delete_misses;
    struct fw_counter incr_hits;
    struct fw_counter incr_misses;
    struct fw_counter decr_hits;
    struct fw_counter decr_misses;
    struct fw_counter cas_hits;
    struct fw_counter cas_misses;
    struct fw_counter cas_badval;
    struct fw_counter touch_hits;
    struct fw_counter touch_misses;
    struct fw_counter store_too_large;
    struct fw_counter store_no_memory;
    struct fw_counter auth_cmds;
    struct fw_counter auth_errors;
};

enum {
    FW_CACHE_COUNTERS = 24,      /* How many stand above. */
    FW_CACHE_TABLE_COUNTERS = 5, /* Those of the table that only rise; see stats.c. */
};

/* The place of a counter above among them, for arrays of FW_CACHE_COUNTERS. */
#define FW_CACHE_COUNTER(field)                                                                \
    ((offsetof(struct fw_metrics_cache, field) - offsetof(struct fw_metrics_cache, cmd_get)) / \
     sizeof(struct fw_counter))

extern const struct fw_metric_table fw_cache_metric_table;
