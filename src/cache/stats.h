/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `stats` shows, whichever protocol asks: the server's rows first, as memcached begins with
 * them, then the cache's. memcached's names are kept where they mean something here; groups about
 * slab classes have one class, of number FW_STATS_CLASS, which holds everything.
 *
 * Counters never go back, so a reset remembers what they were, and shows what came since.
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

#include "cache/cache.h"

enum { FW_STATS_CLASS = 1, FW_STATS_GROUP_MAX = 31 };

/*
 * Shows a part of the group; as long as walk->has_more, the next call shows what follows. "" is the
 * general group. False: there is no such group, and nothing was shown.
 */
bool fw_stats_visit(struct fw_cache *cache, const char *group, struct fw_stat_walk *walk,
                    fw_stat_emit emit, void *context);
/* Shows all of it, for callers that nobody waits for. */
bool fw_stats_visit_all(struct fw_cache *cache, const char *group, fw_stat_emit emit,
                        void *context);

void fw_stats_reset(struct fw_cache *cache);
