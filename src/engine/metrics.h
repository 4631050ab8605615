/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engine counts. One instance per core, written by the holder of its turn, and one for all
 * threads without a turn, in which only what says so below is counted, by atomic addition.
 *
 * Scheduling overhead is measured, not guessed: of one round in 64 the cycles are counted, and
 * those inside ticks apart (sample.c). The share of the rest is what the engine costs. To measure
 * every round would double what is measured.
 */
#pragma once

#include "base/metrics.h"

struct fw_metrics_engine {
    struct fw_metric_source source;
    struct fw_counter foms_created;
    struct fw_counter foms_failed;
    struct fw_counter foms_overdue;
    struct fw_counter foms_moved;
    struct fw_counter core_moves;
    struct fw_counter rounds;
    struct fw_counter mail_ring;
    struct fw_counter mail_inbox;
    struct fw_counter mail_overflows;
    struct fw_counter sleeps;
    struct fw_counter woken;
    struct fw_counter brackets;
    struct fw_counter brackets_refused;
    struct fw_counter brackets_unrelieved;
    struct fw_counter ticks_relieved;
    struct fw_counter threads_created;
    struct fw_counter threads_reaped;
    struct fw_counter illegal_steps;
    struct fw_counter lock_waits; /* Also without a turn. */
    struct fw_counter sampled_cycles;
    struct fw_counter sampled_tick_cycles;
    struct fw_gauge foms_live; /* Also without a turn. */
    struct fw_gauge run_queue;
    struct fw_histogram first_tick;
    struct fw_histogram ready_delay;
    struct fw_histogram wake_latency;
    struct fw_histogram lock_wait;
};

extern const struct fw_metric_table fw_engine_metric_table;
