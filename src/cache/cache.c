/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/cache.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "cache/detail.h"
#include "cache/locks.h"
#include "cache/verbose.h"
#include "io/clock.h"

enum { RELATIVE_MAX_S = 60 * 60 * 24 * 30, LONG_AGO = 1 };

static_assert((int)FW_CACHE_CLOCK_START > (int)LONG_AGO, "what is long ago was before the start");

int fw_cache_init(struct fw_cache *cache, const struct fw_table_config *config,
                  struct fw_reason *reason)
{
    FW_ASSERT(cache->registry != NULL);
    FW_ASSERT(cache->host.stats != NULL && cache->host.stats_reset != NULL &&
              cache->host.set_verbosity != NULL && cache->host.shutdown != NULL);
    int error = fw_detail_create(&cache->detail, config->seed);
    if (error != 0) {
        return fw_reason_errno(reason, error, "cannot make the cache");
    }
    error = cache->settings.has_locking ? fw_locks_create(&cache->locks) : 0;
    if (error != 0) {
        (void)fw_reason_errno(reason, error, "cannot make the cache");
        goto fail_locks;
    }
    const struct fw_counters_config *counters = &cache->settings.counters;
    error = counters->memory > 0 ? fw_counters_create(&cache->counters, counters, config->seed) : 0;
    if (error != 0) {
        (void)fw_reason_errno(reason, error, "cannot make the counters");
        goto fail_counters;
    }
    error = fw_table_create(&cache->table, config, reason);
    if (error != 0) {
        goto fail_table;
    }
    cache->start_ns = fw_clock_now_ns();
    cache->start_wall_s = fw_clock_wall_ns() / FW_NS_PER_S;
    return 0;

fail_table:
    fw_counters_destroy(cache->counters);
fail_counters:
    fw_locks_destroy(cache->locks);
fail_locks:
    fw_detail_destroy(cache->detail);
    return error;
}

void fw_cache_fini(struct fw_cache *cache)
{
    fw_table_destroy(cache->table);
    fw_counters_destroy(cache->counters);
    fw_locks_destroy(cache->locks);
    fw_detail_destroy(cache->detail);
}

int fw_cache_local_init(struct fw_cache_local *local, struct fw_cache *cache)
{
    local->cache = cache;
    local->notice = (struct fw_notice){.is_on = false};
    local->metrics = aligned_alloc(alignof(struct fw_metrics_cache), sizeof *local->metrics);
    if (local->metrics == NULL) {
        return -ENOMEM;
    }
    *local->metrics = (struct fw_metrics_cache){0};
    int error =
        fw_metrics_register(cache->registry, &fw_cache_metric_table, &local->metrics->source);
    if (error != 0) {
        goto fail_register;
    }
    error = fw_table_local_create(&local->table, cache->table);
    if (error != 0) {
        goto fail_table;
    }
    local->gate = NULL;
    fw_reply_init(&local->reply, local->table);
    fw_cache_local_set_time(local, fw_clock_now_ns());
    return 0;

fail_table:
    fw_metrics_unregister(cache->registry, &local->metrics->source);
fail_register:
    free(local->metrics);
    return error;
}

void fw_cache_local_fini(struct fw_cache_local *local)
{
    fw_reply_clear(&local->reply);
    fw_table_local_destroy(local->table);
    fw_metrics_unregister(local->cache->registry, &local->metrics->source);
    free(local->metrics);
}

/* It never goes back below its start, whatever `debugtime` was told. */
uint32_t fw_cache_clock(const struct fw_cache *cache, int64_t now_ns)
{
    int64_t paused_ns = atomic_load_explicit(&cache->paused_ns, memory_order_relaxed);
    int64_t passed_ns = (paused_ns != 0 ? paused_ns : now_ns) - cache->start_ns;
    int64_t seconds = FW_CACHE_CLOCK_START + passed_ns / FW_NS_PER_S +
                      atomic_load_explicit(&cache->shift_s, memory_order_relaxed);
    if (seconds < FW_CACHE_CLOCK_START) {
        return FW_CACHE_CLOCK_START;
    }
    return seconds > UINT32_MAX ? UINT32_MAX : (uint32_t)seconds;
}

/* Once a round is often enough: each thread draws far fewer numbers in one than are kept. */
static void numbers_end(struct fw_cache *cache)
{
    /* Relaxed: it is said once, and nothing else comes with it. */
    if (!atomic_exchange_explicit(&cache->is_used_up, true, memory_order_relaxed)) {
        FW_LOG(cache, ERROR,
               "the item numbers are used up: clients can read and flush, but change nothing; "
               "to begin again stop its slaves, restart it and then start them");
    }
}

void fw_cache_local_set_time(struct fw_cache_local *local, int64_t now_ns)
{
    struct fw_cache *cache = local->cache;
    local->now = fw_cache_clock(cache, now_ns);
    fw_table_local_set_now(local->table, local->now);
    if (FW_UNLIKELY(fw_table_is_used_up(cache->table))) {
        numbers_end(cache);
    }
    /* Relaxed: the exchange decides who flushes, and the table orders the flush itself. */
    uint32_t at = atomic_load_explicit(&cache->flush_at, memory_order_relaxed);
    if (FW_UNLIKELY(at != 0 && local->now >= at) &&
        atomic_compare_exchange_strong_explicit(&cache->flush_at, &at, 0, memory_order_relaxed,
                                                memory_order_relaxed)) {
        fw_table_flush(local->table);
    }
}

uint32_t fw_cache_expiry(const struct fw_cache_local *local, int64_t given)
{
    if (given == 0) {
        return 0;
    }
    if (given < 0) {
        return LONG_AGO;
    }
    int64_t expires = given <= RELATIVE_MAX_S
                          ? local->now + given
                          : given - local->cache->start_wall_s + FW_CACHE_CLOCK_START;
    if (expires <= LONG_AGO) {
        return LONG_AGO;
    }
    return expires > UINT32_MAX ? UINT32_MAX : (uint32_t)expires;
}

int64_t fw_cache_date_ns(const struct fw_cache *cache)
{
    return (cache->start_wall_s + atomic_load_explicit(&cache->shift_s, memory_order_relaxed)) *
               FW_NS_PER_S +
           fw_clock_now_ns() - cache->start_ns;
}

void fw_cache_shift(struct fw_cache_local *local, int64_t seconds)
{
    atomic_fetch_add_explicit(&local->cache->shift_s, seconds, memory_order_relaxed);
    fw_cache_local_set_time(local, fw_clock_now_ns());
}

void fw_cache_pause(struct fw_cache *cache, bool is_paused)
{
    atomic_store_explicit(&cache->paused_ns, is_paused ? fw_clock_now_ns() : 0,
                          memory_order_relaxed);
}
