/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the job kernel counts. Each field has one writer at a time: the holder of the lock that its
 * group names. A program that has a registry registers fw_jobs_metrics_of() there.
 */
#pragma once

#include <stdalign.h>
#include <stdint.h>

#include <fairway/jobs.h>

#include "base/base.h"
#include "base/histogram.h"
#include "base/metrics.h"

struct fw_jobs_metrics {
    struct fw_metric_source source;

    /* Under front. */
    struct fw_counter posted;
    struct fw_counter refused_pool;
    struct fw_counter refused_lane;
    struct fw_counter waited;
    struct fw_counter rejoined;

    /* Under role; apart, so that posters and dispatcher do not fight over a cache line. */
    alignas(FW_CACHE_LINE) struct fw_counter run;
    struct fw_counter cancelled;
    struct fw_counter helped;
    struct fw_gauge active;
    struct fw_histogram wait_service;
    struct fw_histogram wait_feeder;
    struct fw_histogram wait_unit;
    struct fw_histogram wait_part;
    struct fw_histogram wait_below;
    struct fw_histogram wait_normal;
    struct fw_histogram wait_raised;
    struct fw_histogram wait_urgent;
    struct fw_histogram run_service;
    struct fw_histogram run_feeder;
    struct fw_histogram run_unit;
    struct fw_histogram run_part;
};

extern const struct fw_metric_table fw_jobs_metric_table;

struct fw_jobs_metrics *fw_jobs_metrics_of(struct fw_jobs *jobs);

/* By lane and by class of priority. */
struct fw_histogram *fw_jobs_metrics_wait(struct fw_jobs_metrics *metrics, uint32_t lane);
struct fw_histogram *fw_jobs_metrics_run(struct fw_jobs_metrics *metrics, uint32_t lane);
struct fw_histogram *fw_jobs_metrics_class(struct fw_jobs_metrics *metrics, uint32_t class);

/* The class of a priority: below 0, 0, 1 to 9, above. */
uint32_t fw_jobs_class(int32_t priority);
