/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/metrics.h"

#define COUNTER(field, help) FW_METRIC_COUNTER(struct fw_metrics_cache, field, "", help)

static const struct fw_metric rows[] = {
    COUNTER(cmd_get, "keys that were asked for"),
    COUNTER(cmd_set, "stores that were tried, in all modes"),
    COUNTER(cmd_flush, "flushes"),
    COUNTER(cmd_touch, "keys that got a new expiry time, or should have"),
    COUNTER(cmd_meta, "commands of the meta protocol"),
    COUNTER(get_hits, "keys that were asked for and found"),
    COUNTER(get_misses, "keys that were asked for and not found"),
    COUNTER(get_expired, "of the misses, keys that had expired"),
    COUNTER(get_flushed, "of the misses, keys that had been flushed"),
    COUNTER(delete_hits, "deletes that found their key"),
    COUNTER(delete_misses, "deletes that did not find their key"),
    COUNTER(incr_hits, "increments that found their key"),
    COUNTER(incr_misses, "increments that did not find their key"),
    COUNTER(decr_hits, "decrements that found their key"),
    COUNTER(decr_misses, "decrements that did not find their key"),
    COUNTER(cas_hits, "stores that compared, and stored"),
    COUNTER(cas_misses, "stores that had nothing to compare with"),
    COUNTER(cas_badval, "stores that compared, and did not store"),
    COUNTER(touch_hits, "touches that found their key"),
    COUNTER(touch_misses, "touches that did not find their key"),
    COUNTER(store_too_large, "values that were larger than an item may be"),
    COUNTER(store_no_memory, "values for which there was no memory"),
    COUNTER(auth_cmds, "logins that were tried"),
    COUNTER(auth_errors, "logins that failed"),
};

static_assert(FW_ARRAY_LENGTH(rows) == FW_CACHE_COUNTERS, "each counter has its row");
static_assert(FW_CACHE_COUNTER(auth_errors) == FW_CACHE_COUNTERS - 1, "only counters stand there");

const struct fw_metric_table fw_cache_metric_table =
    FW_METRIC_TABLE("cache", struct fw_metrics_cache, rows);
