/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/metrics.h"

#include "jobs/kernel.h"

static const struct fw_metric rows[] = {
    FW_METRIC_COUNTER(struct fw_jobs_metrics, posted, "", "requests posted"),
    FW_METRIC_COUNTER(struct fw_jobs_metrics, refused_pool, "", "posts refused: no slot was free"),
    FW_METRIC_COUNTER(struct fw_jobs_metrics, refused_lane, "", "posts refused: the lane was full"),
    FW_METRIC_COUNTER(struct fw_jobs_metrics, waited, "", "posts that waited for a slot"),
    FW_METRIC_COUNTER(struct fw_jobs_metrics, rejoined, "", "requests handed back by a rejoin"),
    FW_METRIC_COUNTER(struct fw_jobs_metrics, run, "", "requests run"),
    FW_METRIC_COUNTER(struct fw_jobs_metrics, cancelled, "",
                      "requests cancelled while they waited"),
    FW_METRIC_COUNTER(struct fw_jobs_metrics, helped, "", "requests run by a rejoin that waited"),
    FW_METRIC_GAUGE(struct fw_jobs_metrics, active, "", "workers that may run requests at once"),
    FW_METRIC_HISTOGRAM(struct fw_jobs_metrics, wait_service, "ns", "waiting time in lane 0"),
    FW_METRIC_HISTOGRAM(struct fw_jobs_metrics, wait_feeder, "ns", "waiting time in lane 1"),
    FW_METRIC_HISTOGRAM(struct fw_jobs_metrics, wait_unit, "ns", "waiting time in lane 2"),
    FW_METRIC_HISTOGRAM(struct fw_jobs_metrics, wait_part, "ns", "waiting time in lane 3"),
    FW_METRIC_HISTOGRAM(struct fw_jobs_metrics, wait_below, "ns", "waiting time, priority below 0"),
    FW_METRIC_HISTOGRAM(struct fw_jobs_metrics, wait_normal, "ns", "waiting time, priority 0"),
    FW_METRIC_HISTOGRAM(struct fw_jobs_metrics, wait_raised, "ns", "waiting time, priority 1 to 9"),
    FW_METRIC_HISTOGRAM(struct fw_jobs_metrics, wait_urgent, "ns", "waiting time, priority above"),
    FW_METRIC_HISTOGRAM(struct fw_jobs_metrics, run_service, "ns", "running time in lane 0"),
    FW_METRIC_HISTOGRAM(struct fw_jobs_metrics, run_feeder, "ns", "running time in lane 1"),
    FW_METRIC_HISTOGRAM(struct fw_jobs_metrics, run_unit, "ns", "running time in lane 2"),
    FW_METRIC_HISTOGRAM(struct fw_jobs_metrics, run_part, "ns", "running time in lane 3"),
};

const struct fw_metric_table fw_jobs_metric_table =
    FW_METRIC_TABLE("jobs", struct fw_jobs_metrics, rows);

struct fw_jobs_metrics *fw_jobs_metrics_of(struct fw_jobs *jobs)
{
    return &jobs->metrics;
}

struct fw_histogram *fw_jobs_metrics_wait(struct fw_jobs_metrics *metrics, uint32_t lane)
{
    struct fw_histogram *const all[FW_JOBS_LANES] = {&metrics->wait_service, &metrics->wait_feeder,
                                                     &metrics->wait_unit, &metrics->wait_part};
    return all[lane];
}

struct fw_histogram *fw_jobs_metrics_run(struct fw_jobs_metrics *metrics, uint32_t lane)
{
    struct fw_histogram *const all[FW_JOBS_LANES] = {&metrics->run_service, &metrics->run_feeder,
                                                     &metrics->run_unit, &metrics->run_part};
    return all[lane];
}

struct fw_histogram *fw_jobs_metrics_class(struct fw_jobs_metrics *metrics, uint32_t class)
{
    struct fw_histogram *const all[FW_JOBS_CLASSES] = {
        &metrics->wait_below, &metrics->wait_normal, &metrics->wait_raised, &metrics->wait_urgent};
    return all[class];
}

uint32_t fw_jobs_class(int32_t priority)
{
    if (priority < 0) {
        return 0;
    }
    if (priority == 0) {
        return 1;
    }
    return priority < 10 ? 2 : 3;
}
