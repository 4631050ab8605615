/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/stats.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/text.h"
#include "cache/detail.h"
#include "cache/table.h"

enum { NAME_SIZE = 64, VALUE_SIZE = 32 };

/* The table's counters that only rise, as they stand in fw_cache.table_before. */
enum { TOTAL_ITEMS, EVICTIONS, EVICTED_UNREAD, EXPIRED_UNREAD, RECLAIMED };

static_assert(RECLAIMED == FW_CACHE_TABLE_COUNTERS - 1, "each has its place");

/* All that is shown, as of now. */
struct sums {
    uint64_t counted[FW_CACHE_COUNTERS];
    uint64_t table[FW_CACHE_TABLE_COUNTERS];
    struct fw_table_totals totals;
};

static void sums_add(const struct fw_metric_value *value, void *context)
{
    struct sums *sums = context;
    sums->counted[value->row - fw_cache_metric_table.rows] = value->counter;
}

static void sums_make(struct fw_cache *cache, struct sums *sums)
{
    *sums = (struct sums){0};
    fw_metrics_visit_table(cache->registry, &fw_cache_metric_table, sums_add, sums);
    fw_table_totals(cache->table, &sums->totals);
    sums->table[TOTAL_ITEMS] = sums->totals.total_items;
    sums->table[EVICTIONS] = sums->totals.evictions;
    sums->table[EVICTED_UNREAD] = sums->totals.evicted_unread;
    sums->table[EXPIRED_UNREAD] = sums->totals.expired_unread;
    sums->table[RECLAIMED] = sums->totals.reclaimed;
}

void fw_stats_reset(struct fw_cache *cache)
{
    struct sums sums;
    sums_make(cache, &sums);
    for (size_t i = 0; i < FW_CACHE_COUNTERS; i++) {
        atomic_store_explicit(&cache->counted_before[i], sums.counted[i], memory_order_relaxed);
    }
    for (size_t i = 0; i < FW_CACHE_TABLE_COUNTERS; i++) {
        atomic_store_explicit(&cache->table_before[i], sums.table[i], memory_order_relaxed);
    }
    fw_detail_reset(cache->detail);
    cache->host.stats_reset(cache->host.server);
}

static void sums_since_reset(struct fw_cache *cache, struct sums *sums)
{
    sums_make(cache, sums);
    for (size_t i = 0; i < FW_CACHE_COUNTERS; i++) {
        sums->counted[i] -= atomic_load_explicit(&cache->counted_before[i], memory_order_relaxed);
    }
    for (size_t i = 0; i < FW_CACHE_TABLE_COUNTERS; i++) {
        sums->table[i] -= atomic_load_explicit(&cache->table_before[i], memory_order_relaxed);
    }
}

/* Who shows rows, and to whom. */
struct show {
    fw_stat_emit emit;
    void *context;
    const char *prefix;
};

static void show_number(const struct show *show, const char *name, uint64_t number)
{
    char value_text[VALUE_SIZE];
    char name_text[NAME_SIZE];
    struct fw_text value;
    struct fw_text full;
    fw_text_init(&value, value_text, sizeof value_text);
    fw_text_append_unsigned(&value, number);
    fw_text_init(&full, name_text, sizeof name_text);
    fw_text_append_string(&full, show->prefix);
    fw_text_append_string(&full, name);
    show->emit(show->context, name_text, value_text);
}

struct counter_row {
    const char *name;
    size_t place;
};

#define COUNTER(field)                                   \
    {                                                    \
        .name = #field, .place = FW_CACHE_COUNTER(field) \
    }

/* In memcached's order. */
static const struct counter_row counter_rows[] = {
    COUNTER(cmd_get),         COUNTER(cmd_set),         COUNTER(cmd_flush),   COUNTER(cmd_touch),
    COUNTER(cmd_meta),        COUNTER(get_hits),        COUNTER(get_misses),  COUNTER(get_expired),
    COUNTER(get_flushed),     COUNTER(delete_misses),   COUNTER(delete_hits), COUNTER(incr_misses),
    COUNTER(incr_hits),       COUNTER(decr_misses),     COUNTER(decr_hits),   COUNTER(cas_misses),
    COUNTER(cas_hits),        COUNTER(cas_badval),      COUNTER(touch_hits),  COUNTER(touch_misses),
    COUNTER(store_too_large), COUNTER(store_no_memory), COUNTER(auth_cmds),   COUNTER(auth_errors),
};

static_assert(FW_ARRAY_LENGTH(counter_rows) == FW_CACHE_COUNTERS, "each counter is shown");

static void show_general(const struct show *show, const struct sums *sums)
{
    const struct fw_table_totals *totals = &sums->totals;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(counter_rows); i++) {
        show_number(show, counter_rows[i].name, sums->counted[counter_rows[i].place]);
    }
    uint64_t power = 0;
    while ((totals->buckets >> power) > 1) {
        power++;
    }
    show_number(show, "limit_maxbytes", totals->memory_limit);
    show_number(show, "hash_power_level", power);
    show_number(show, "hash_bytes", totals->buckets * FW_CACHE_LINE);
    show_number(show, "hash_is_expanding", 0); /* It grows bucket by bucket, at every insert. */
    show_number(show, "bytes", totals->bytes);
    show_number(show, "curr_items", totals->items);
    show_number(show, "total_items", sums->table[TOTAL_ITEMS]);
    show_number(show, "expired_unfetched", sums->table[EXPIRED_UNREAD]);
    show_number(show, "evicted_unfetched", sums->table[EVICTED_UNREAD]);
    show_number(show, "evictions", sums->table[EVICTIONS]);
    show_number(show, "reclaimed", sums->table[RECLAIMED]);
}

static void show_items(struct show *show, const struct sums *sums)
{
    if (sums->totals.items == 0) {
        return; /* memcached shows no class that is empty. */
    }
    show->prefix = "items:1:";
    show_number(show, "number", sums->totals.items);
    show_number(show, "mem_requested", sums->totals.bytes);
    show_number(show, "evicted", sums->table[EVICTIONS]);
    show_number(show, "outofmemory", sums->counted[FW_CACHE_COUNTER(store_no_memory)]);
    show_number(show, "reclaimed", sums->table[RECLAIMED]);
    show_number(show, "expired_unfetched", sums->table[EXPIRED_UNREAD]);
    show_number(show, "evicted_unfetched", sums->table[EVICTED_UNREAD]);
}

static void show_slabs(struct show *show, const struct sums *sums)
{
    static const size_t places[] = {
        FW_CACHE_COUNTER(get_hits),   FW_CACHE_COUNTER(cmd_set),    FW_CACHE_COUNTER(delete_hits),
        FW_CACHE_COUNTER(incr_hits),  FW_CACHE_COUNTER(decr_hits),  FW_CACHE_COUNTER(cas_hits),
        FW_CACHE_COUNTER(cas_badval), FW_CACHE_COUNTER(touch_hits),
    };
    show->prefix = "1:";
    show_number(show, "used_chunks", sums->totals.items);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(places); i++) {
        show_number(show, fw_cache_metric_table.rows[places[i]].name, sums->counted[places[i]]);
    }
    show->prefix = "";
    show_number(show, "active_slabs", 1);
    show_number(show, "total_malloced", sums->totals.memory_used);
}

/* A group of sums; false: it is none. */
static bool show_sums(struct fw_cache *cache, const char *group, struct show *show)
{
    bool is_general = strcmp(group, "") == 0;
    bool is_items = strcmp(group, "items") == 0;
    struct sums sums;
    if (!is_general && !is_items && strcmp(group, "slabs") != 0) {
        return false;
    }
    sums_since_reset(cache, &sums);
    if (is_general) {
        show_general(show, &sums);
    } else if (is_items) {
        show_items(show, &sums);
    } else {
        show_slabs(show, &sums);
    }
    return true;
}

bool fw_stats_visit(struct fw_cache *cache, const char *group, struct fw_stat_walk *walk,
                    fw_stat_emit emit, void *context)
{
    struct show show = {.emit = emit, .context = context, .prefix = ""};
    walk->has_more = false;
    bool is_servers = cache->host.stats(cache->host.server, group, walk, emit, context);
    if (walk->has_more || show_sums(cache, group, &show)) {
        return true;
    }
    if (strcmp(group, "settings") == 0) {
        emit(context, "detail_enabled", fw_detail_is_on(cache->detail) ? "yes" : "no");
    } else if (strcmp(group, "sizes") == 0) {
        emit(context, "sizes_status", "disabled"); /* If enabled, text_sizes.c has answered. */
    } else {
        return is_servers;
    }
    return true;
}

bool fw_stats_visit_all(struct fw_cache *cache, const char *group, fw_stat_emit emit, void *context)
{
    struct fw_stat_walk walk = {.next = 0};
    bool is_known;
    do {
        is_known = fw_stats_visit(cache, group, &walk, emit, context);
    } while (walk.has_more);
    return is_known;
}
