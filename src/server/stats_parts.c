/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `stats` shows of the parts beside the cache: the job kernel by lanes, and the allocators of
 * volumes. An administrator sees more of both; this is what a picture of the whole needs.
 */
#include <inttypes.h>
#include <stdio.h>

#include "server/state.h"
#include "server/stats_parts.h"

enum { NAME_SIZE = 64, VALUE_SIZE = 32 };

struct rows {
    const char *thing; /* NULL: the figures that follow are of the whole. */
    fw_stat_emit emit;
    void *context;
};

static void row_number(const struct rows *rows, const char *figure, uint64_t number)
{
    char name[NAME_SIZE];
    char value[VALUE_SIZE];
    (void)snprintf(value, sizeof value, "%" PRIu64, number);
    if (rows->thing != NULL) {
        (void)snprintf(name, sizeof name, "%s:%s", rows->thing, figure);
    }
    rows->emit(rows->context, rows->thing != NULL ? name : figure, value);
}

void fw_server_stats_lanes(struct fw_server *server, fw_stat_emit emit, void *context)
{
    static const char *const names[FW_JOBS_LANES] = {"services", "feeders", "units", "parts"};
    struct fw_jobs_statistics statistics;
    struct rows rows = {.emit = emit, .context = context};
    fw_jobs_statistics(server->jobs, &statistics);
    row_number(&rows, "posted", statistics.posted);
    row_number(&rows, "run", statistics.run);
    row_number(&rows, "refused", statistics.refused_pool + statistics.refused_lane);
    row_number(&rows, "workers", statistics.workers);
    row_number(&rows, "workers_active", statistics.active);
    row_number(&rows, "workers_blocked", statistics.blocked);
    for (size_t i = 0; i < FW_JOBS_LANES; i++) {
        rows.thing = names[i];
        row_number(&rows, "waiting", statistics.waiting[i]);
        row_number(&rows, "running", statistics.running[i]);
        row_number(&rows, "started", statistics.wait_lane[i].count);
        row_number(&rows, "wait_p99_ns", statistics.wait_lane[i].p99_ns);
        row_number(&rows, "run_p99_ns", statistics.run_lane[i].p99_ns);
    }
}

void fw_server_stats_volumes(struct fw_server *server, fw_stat_emit emit, void *context)
{
    const struct fw_server_volume_config *config = &server->config.volume;
    const struct fw_volumes *volumes = &server->volumes;
    const struct rows rows = {.emit = emit, .context = context};
    emit(context, "enabled", config->group != NULL ? "yes" : "no");
    if (config->group == NULL) {
        return;
    }
    emit(context, "group", config->group);
    emit(context, "host", config->host != NULL ? config->host : "-");
    /* Relaxed, all: figures. */
    row_number(&rows, "managers", atomic_load_explicit(&volumes->managers, memory_order_relaxed));
    row_number(&rows, "agents", atomic_load_explicit(&volumes->agents, memory_order_relaxed));
    row_number(&rows, "pool", atomic_load_explicit(&volumes->pool, memory_order_relaxed));
    row_number(&rows, "extents", atomic_load_explicit(&volumes->extents, memory_order_relaxed));
    row_number(&rows, "free", atomic_load_explicit(&volumes->free, memory_order_relaxed));
    row_number(&rows, "low", atomic_load_explicit(&volumes->low, memory_order_relaxed));
}
