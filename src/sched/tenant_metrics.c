/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/tenant_metrics.h"

#include "base/base.h"

/* In the order in which tenant_collect() fills them in. */
enum { SERVED, COST, DELAYED, THROTTLED, SHED, WAITING, THROTTLED_FOR, SHARE, DELAY, METRICS };

enum { PER_MILLION = 1000000 };

#define ROW(kind, row_name, unit_text, help_text)                     \
    {                                                                 \
        .name = (row_name), .unit = (unit_text), .help = (help_text), \
        .type = FW_METRIC_TYPE_##kind                                 \
    }

static const struct fw_metric rows[METRICS] = {
    [SERVED] = ROW(COUNTER, "sched_tenant_served", "", "requests served"),
    [COST] = ROW(COUNTER, "sched_tenant_cost", "", "what they were charged"),
    [DELAYED] = ROW(COUNTER, "sched_tenant_delayed", "", "of those: others were before them"),
    [THROTTLED] = ROW(COUNTER, "sched_tenant_throttled", "", "of those: waited for the rate"),
    [SHED] =
        ROW(COUNTER, "sched_tenant_shed", "", "requests refused, for they had waited too long"),
    [WAITING] = ROW(GAUGE, "sched_tenant_waiting", "", "connections that wait for their turn"),
    [THROTTLED_FOR] = ROW(GAUGE, "sched_tenant_throttled_for", "ns", "waits for the rate so long"),
    [SHARE] = ROW(GAUGE, "sched_tenant_share", "ppm", "of the cost of all since the start"),
    [DELAY] = ROW(HISTOGRAM, "sched_tenant_delay", "ns", "from readable to its turn"),
};

static uint64_t cost_of_all(const struct fw_tenants *tenants, uint32_t count)
{
    uint64_t cost = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct fw_tenant_figures figures;
        fw_tenants_read(tenants, i, NULL, &figures);
        cost += figures.cost;
    }
    return cost;
}

/* Delays are known by powers of two; each counts as the largest it may have been. */
static void delays_fill(struct fw_histogram *delays, const struct fw_tenant_figures *figures)
{
    fw_histogram_init(delays);
    for (uint32_t i = 0; i < FW_SCHED_DELAYS; i++) {
        if (figures->delay_count[i] > 0) {
            fw_histogram_record_many(delays, (UINT64_C(2) << i) - 1, figures->delay_count[i]);
        }
    }
}

static void tenant_collect(struct fw_tenant_metrics *self, uint32_t tenant, uint64_t cost_all,
                           fw_metric_visit visit, void *context)
{
    struct fw_tenant_figures figures;
    fw_tenants_read(self->tenants, tenant, NULL, &figures);
    delays_fill(&self->delays, &figures);
    uint64_t share = cost_all > 0 ? figures.cost * PER_MILLION / cost_all : 0;
    struct fw_metric_value values[METRICS] = {
        [SERVED] = {.counter = figures.served},
        [COST] = {.counter = figures.cost},
        [DELAYED] = {.counter = figures.delayed},
        [THROTTLED] = {.counter = figures.throttled},
        [SHED] = {.counter = figures.shed},
        [WAITING] = {.gauge = (int64_t)figures.waiting},
        [THROTTLED_FOR] = {.gauge = figures.throttled_for_ns},
        [SHARE] = {.gauge = (int64_t)share},
        [DELAY] = {.histogram = &self->delays},
    };
    for (size_t i = 0; i < METRICS; i++) {
        values[i].name = rows[i].name;
        values[i].label_name = "tenant";
        values[i].label = fw_tenants_name(self->tenants, tenant);
        values[i].row = &rows[i];
        visit(&values[i], context);
    }
}

static void tenants_collect(struct fw_metric_collector *collector, fw_metric_visit visit,
                            void *context)
{
    struct fw_tenant_metrics *self =
        FW_CONTAINER_OF(collector, struct fw_tenant_metrics, collector);
    uint32_t count = fw_tenants_count(self->tenants);
    uint64_t cost_all = cost_of_all(self->tenants, count);
    for (uint32_t i = 0; i < count; i++) {
        tenant_collect(self, i, cost_all, visit, context);
    }
}

void fw_tenant_metrics_begin(struct fw_tenant_metrics *self, struct fw_metrics *metrics,
                             const struct fw_tenants *tenants)
{
    self->collector = (struct fw_metric_collector){.collect = tenants_collect};
    self->metrics = metrics;
    self->tenants = tenants;
    fw_metrics_add_collector(metrics, &self->collector);
}

void fw_tenant_metrics_end(struct fw_tenant_metrics *self)
{
    fw_metrics_remove_collector(self->metrics, &self->collector);
}
