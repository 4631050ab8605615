/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics of each tenant: what `stats tenants` shows, for whoever reads the registry. They are
 * called sched_tenant_served and so on, with the label `tenant`, and are asked for when somebody
 * reads, since tenants are configured while the server runs.
 *
 * Threads: begin and end where the tenants are made and ended; in between anyone may read.
 */
#pragma once

#include <fairway/sched.h>

#include "base/histogram.h"
#include "base/metrics.h"

struct fw_tenant_metrics {
    struct fw_metric_collector collector;
    struct fw_metrics *metrics;
    const struct fw_tenants *tenants;
    struct fw_histogram delays; /* Of the tenant that is being told; under the registry's lock. */
};

void fw_tenant_metrics_begin(struct fw_tenant_metrics *self, struct fw_metrics *metrics,
                             const struct fw_tenants *tenants);
void fw_tenant_metrics_end(struct fw_tenant_metrics *self);
