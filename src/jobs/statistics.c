/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include <fairway/jobs.h>

#include "jobs/kernel.h"

static void latency_of(const struct fw_histogram *histogram, struct fw_jobs_latency *latency)
{
    latency->count = fw_histogram_count(histogram);
    latency->median_ns = fw_histogram_percentile(histogram, 50);
    latency->p99_ns = fw_histogram_percentile(histogram, 99);
    latency->max_ns = fw_histogram_max(histogram);
}

void fw_jobs_statistics(struct fw_jobs *jobs, struct fw_jobs_statistics *statistics)
{
    struct fw_jobs_metrics *metrics = &jobs->metrics;
    *statistics = (struct fw_jobs_statistics){.workers = jobs->policy.workers};
    for (uint32_t l = 0; l < FW_JOBS_LANES; l++) {
        latency_of(fw_jobs_metrics_wait(metrics, l), &statistics->wait_lane[l]);
        latency_of(fw_jobs_metrics_run(metrics, l), &statistics->run_lane[l]);
    }
    for (uint32_t c = 0; c < FW_JOBS_CLASSES; c++) {
        latency_of(fw_jobs_metrics_class(metrics, c), &statistics->wait_class[c]);
    }
    statistics->run = fw_counter_get(&metrics->run);
    statistics->cancelled = fw_counter_get(&metrics->cancelled);
    statistics->helped = fw_counter_get(&metrics->helped);
    statistics->blocked = atomic_load_explicit(&jobs->blocked, memory_order_relaxed);
    uint64_t limits = atomic_load_explicit(&jobs->worker_limits, memory_order_relaxed);
    statistics->active = fw_cmls_field(limits, FW_JOBS_LANES - 1);
    uint64_t word = atomic_load_explicit(&jobs->word, memory_order_relaxed);
    fw_mutex_lock(&jobs->front);
    for (uint32_t l = 0; l < FW_JOBS_LANES; l++) {
        uint64_t freed = atomic_load_explicit(&jobs->slots_freed[l], memory_order_relaxed);
        statistics->waiting[l] = (uint32_t)(jobs->slots_taken[l] - freed);
        statistics->running[l] = fw_cmls_field(word, l);
    }
    statistics->posted = fw_counter_get(&metrics->posted);
    statistics->refused_pool = fw_counter_get(&metrics->refused_pool);
    statistics->refused_lane = fw_counter_get(&metrics->refused_lane);
    statistics->waited = fw_counter_get(&metrics->waited);
    statistics->unclaimed = jobs->rejoinable - fw_counter_get(&metrics->rejoined);
    fw_mutex_unlock(&jobs->front);
    fw_jobs_monitor_counts(jobs, &statistics->reviews, &statistics->adopted);
    statistics->commands = fw_jobs_commands_count(jobs);
}

int fw_jobs_owner_statistics(struct fw_jobs *jobs, const void *owner,
                             struct fw_jobs_owner_statistics *statistics)
{
    int rc = -ENOENT;
    fw_jobs_role_lock(jobs);
    fw_jobs_gather(jobs);
    fw_mutex_lock(&jobs->front);
    const struct fw_jobs_owner *record = fw_owner_find(&jobs->owners, owner);
    if (record != NULL) {
        *statistics = (struct fw_jobs_owner_statistics){
            .waiting = record->ready_count,
            .dispatched = record->dispatched,
            .wait_ns = record->wait_ns,
            .run_ns = atomic_load_explicit(&record->run_ns, memory_order_relaxed)};
        for (const struct fw_job *job = record->taken_first; job != NULL; job = job->next) {
            statistics->done++;
        }
        /* Acquire, for the release in fw_owner_done(). Only rejoin takes from it, under front. */
        for (const struct fw_job *job = atomic_load_explicit(&record->done, memory_order_acquire);
             job != NULL; job = job->next) {
            statistics->done++;
        }
        rc = 0;
    }
    fw_mutex_unlock(&jobs->front);
    fw_jobs_role_unlock(jobs);
    return rc;
}
