/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/metrics.h"

#define COUNTER(field, help)   FW_METRIC_COUNTER(struct fw_metrics_engine, field, "", help)
#define GAUGE(field, help)     FW_METRIC_GAUGE(struct fw_metrics_engine, field, "", help)
#define HISTOGRAM(field, help) FW_METRIC_HISTOGRAM(struct fw_metrics_engine, field, "ns", help)

static const struct fw_metric rows[] = {
    COUNTER(foms_created, "foms created on a turn"),
    COUNTER(foms_failed, "foms that went to FAILED"),
    COUNTER(foms_overdue, "of these, for waiting too long"),
    COUNTER(foms_moved, "foms that left for another core"),
    COUNTER(core_moves, "times that the core left its locality for another"),
    COUNTER(rounds, "rounds: looks at the outside, with some ticks before each"),
    COUNTER(mail_ring, "foms and messages received from other cores"),
    COUNTER(mail_inbox, "foms and messages received from threads without a turn"),
    COUNTER(mail_overflows, "foms and messages that found the ring to another core full"),
    COUNTER(sleeps, "times that a core had nothing to do"),
    COUNTER(woken, "times that a sleeping core was woken by another thread"),
    COUNTER(brackets, "brackets entered"),
    COUNTER(brackets_refused, "foms that had to wait to enter a bracket"),
    COUNTER(brackets_unrelieved, "brackets that kept the turn, because no thread could be made"),
    COUNTER(ticks_relieved, "self-contained ticks that stalled and lost the turn"),
    COUNTER(threads_created, "threads attached to a core"),
    COUNTER(threads_reaped, "idle threads that ended"),
    COUNTER(illegal_steps, "steps from a phase to one that may not follow it"),
    COUNTER(lock_waits, "locks of the engine, of channels and resources that had to be waited for"),
    FW_METRIC_COUNTER(struct fw_metrics_engine, sampled_cycles, "cycles",
                      "of one round in 64, sleep apart; nanoseconds if they cannot be counted"),
    FW_METRIC_COUNTER(struct fw_metrics_engine, sampled_tick_cycles, "cycles",
                      "of these, inside ticks; the rest is the engine's own"),
    GAUGE(foms_live, "foms that were created and have not finished"),
    GAUGE(run_queue, "foms that are ready and wait for a tick"),
    HISTOGRAM(first_tick, "time from the start of a fom to its first tick"),
    HISTOGRAM(ready_delay, "time from a wake-up to the tick, of one round in 64"),
    HISTOGRAM(wake_latency, "time from the waking of a core that slept to its first tick"),
    HISTOGRAM(lock_wait, "time that a core waited for a lock, if it had to"),
};

const struct fw_metric_table fw_engine_metric_table =
    FW_METRIC_TABLE("engine", struct fw_metrics_engine, rows);
