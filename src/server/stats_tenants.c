/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `stats tenants` shows: who is served, delayed, throttled and refused, by how much, and which
 * rules made it theirs. The rows of a tenant are NAME:FIGURE and follow each other.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/clock.h"
#include "sched/options.h"
#include "server/state.h"
#include "server/stats_tenants.h"

enum { NS_PER_MS = 1000000, NAME_SIZE = FW_SCHED_NAME_MAX + 64, VALUE_SIZE = 64 };
enum { PERCENT = 100, DELAYS = FW_SCHED_DELAYS };
/* In one step; and where in the walk the first tenant is shown: behind those that are added up. */
enum { TENANTS_ADDED = 64, TENANTS_SHOWN = 8, FIRST_SHOWN = FW_SCHED_TENANTS_MAX + 1 };

/* Where the rows of one tenant go. */
struct rows {
    const char *tenant;
    fw_stat_emit emit;
    void *context;
};

static void row(const struct rows *rows, const char *figure, const char *value)
{
    char name[NAME_SIZE];
    (void)snprintf(name, sizeof name, "%s:%s", rows->tenant, figure);
    rows->emit(rows->context, name, value);
}

static void row_number(const struct rows *rows, const char *figure, uint64_t number)
{
    char value[VALUE_SIZE];
    (void)snprintf(value, sizeof value, "%" PRIu64, number);
    row(rows, figure, value);
}

/* The delay that `percent` of those served had at most; known by powers of two. */
static uint64_t delay_percentile(const struct fw_tenant_figures *figures, uint64_t percent)
{
    uint64_t all = 0;
    for (size_t i = 0; i < DELAYS; i++) {
        all += figures->delay_count[i];
    }
    uint64_t below = 0;
    for (size_t i = 0; i < DELAYS && all > 0; i++) {
        below += figures->delay_count[i];
        if (below * PERCENT >= all * percent) {
            return UINT64_C(2) << i;
        }
    }
    return 0;
}

static void rows_delays(const struct rows *rows, const struct fw_tenant_figures *figures)
{
    row_number(rows, "delay_p50_ns", delay_percentile(figures, 50));
    row_number(rows, "delay_p99_ns", delay_percentile(figures, 99));
    for (size_t i = 0; i < DELAYS; i++) {
        char figure[VALUE_SIZE];
        if (figures->delay_count[i] > 0) {
            (void)snprintf(figure, sizeof figure, "delay_under_%" PRIu64 "_ns", UINT64_C(2) << i);
            row_number(rows, figure, figures->delay_count[i]);
        }
    }
}

static void rows_connections(const struct rows *rows, struct fw_server *server, uint32_t tenant)
{
    struct fw_quota_tenant quota;
    fw_quota_read(&server->quota, tenant, &quota);
    row_number(rows, "connections", quota.count);
    row_number(rows, "connections_limit", quota.limit);
    row_number(rows, "connections_guaranteed", quota.guaranteed);
    row_number(rows, "connections_refused", quota.refused);
}

static void rows_tenant(const struct rows *rows, const struct fw_tenant_config *due,
                        const struct fw_tenant_figures *figures, uint64_t cost_all)
{
    row_number(rows, "weight", due->weight);
    row_number(rows, "rate", due->rate);
    row_number(rows, "burst", due->burst);
    row_number(rows, "cluster_rate", due->cluster_rate);
    row_number(rows, "delay_limit_ms", (uint64_t)due->delay_max_ns / NS_PER_MS);
    row_number(rows, "served", figures->served);
    row_number(rows, "cost", figures->cost);
    row_number(rows, "share_percent", cost_all > 0 ? figures->cost * PERCENT / cost_all : 0);
    row_number(rows, "delayed", figures->delayed);
    row_number(rows, "throttled", figures->throttled);
    row_number(rows, "shed", figures->shed);
    row_number(rows, "waiting", figures->waiting);
    row_number(rows, "throttled_for_ms", (uint64_t)figures->throttled_for_ns / NS_PER_MS);
    rows_delays(rows, figures);
}

/* Rows about all of them. */
static void rows_all(struct fw_server *server, enum fw_sched_policy_number policy, uint32_t count,
                     uint64_t cost_all, fw_stat_emit emit, void *context)
{
    char value[VALUE_SIZE];
    emit(context, "policy", fw_sched_policy_names[policy]);
    (void)snprintf(value, sizeof value, "%" PRIu32, count);
    emit(context, "count", value);
    (void)snprintf(value, sizeof value, "%" PRIu64, cost_all);
    emit(context, "cost", value);
    (void)snprintf(value, sizeof value, "%" PRId64,
                   (fw_clock_now_ns() - server->start_ns) / NS_PER_MS);
    emit(context, "uptime_ms", value);
}

/* Shares need the sum of all costs. It is made first: up to `count` the walk only adds. */
static void costs_add(const struct fw_server *server, struct fw_stat_walk *walk, uint32_t count)
{
    uint64_t end = walk->next + TENANTS_ADDED < count ? walk->next + TENANTS_ADDED : count;
    for (; walk->next < end; walk->next++) {
        struct fw_tenant_figures figures;
        fw_tenants_read(server->tenants, (uint32_t)walk->next, NULL, &figures);
        walk->sum += figures.cost;
    }
}

void fw_server_stats_tenants(struct fw_server *server, struct fw_stat_walk *walk, fw_stat_emit emit,
                             void *context)
{
    uint32_t count = fw_tenants_count(server->tenants); /* It may grow during the walk. */
    if (walk->next < FIRST_SHOWN) {
        costs_add(server, walk, count);
    }
    walk->has_more = true;
    if (walk->next < count) {
        return;
    }
    enum fw_sched_policy_number policy;
    struct fw_ruling *ruling = fw_tenancy_get(server, &policy);
    if (walk->next < FIRST_SHOWN) {
        rows_all(server, policy, count, walk->sum, emit, context);
        walk->next = FIRST_SHOWN;
    }
    uint32_t shown = (uint32_t)(walk->next - FIRST_SHOWN);
    uint32_t end = shown + TENANTS_SHOWN < count ? shown + TENANTS_SHOWN : count;
    for (; shown < end; shown++) {
        struct rows rows = {
            .tenant = fw_tenants_name(server->tenants, shown), .emit = emit, .context = context};
        struct fw_tenant_config due;
        struct fw_tenant_figures figures;
        fw_tenants_read(server->tenants, shown, &due, &figures);
        rows_tenant(&rows, &due, &figures, walk->sum);
        rows_connections(&rows, server, shown);
        bool has_rules = shown < ruling->tenant_count && ruling->texts[shown] != NULL;
        row(&rows, "match",
            has_rules && ruling->texts[shown][0] != '\0' ? ruling->texts[shown] : "-");
    }
    fw_tenancy_put(ruling);
    walk->next = FIRST_SHOWN + shown;
    walk->has_more = shown < count;
}
