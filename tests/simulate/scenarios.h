/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scenarios, one line each. A scenario is a file scenario_NAME.c (planted bugs share one, or
 * stand beside what they spoil).
 */
#pragma once

#include "simulate/sim.h"

extern const struct sim_scenario sim_scenario_disk;
extern const struct sim_scenario sim_scenario_engine_block;
extern const struct sim_scenario sim_scenario_engine_block_stop;
extern const struct sim_scenario sim_scenario_engine_cancel;
extern const struct sim_scenario sim_scenario_engine_drain;
extern const struct sim_scenario sim_scenario_engine_idle;
extern const struct sim_scenario sim_scenario_engine_leave;
extern const struct sim_scenario sim_scenario_engine_level;
extern const struct sim_scenario sim_scenario_engine_level_cores;
extern const struct sim_scenario sim_scenario_engine_level_told;
extern const struct sim_scenario sim_scenario_engine_mail;
extern const struct sim_scenario sim_scenario_engine_move;
extern const struct sim_scenario sim_scenario_engine_quiesce;
extern const struct sim_scenario sim_scenario_engine_refuse;
extern const struct sim_scenario sim_scenario_engine_resource;
extern const struct sim_scenario sim_scenario_engine_stop;
extern const struct sim_scenario sim_scenario_engine_timeout;
extern const struct sim_scenario sim_scenario_engine_trace;
extern const struct sim_scenario sim_scenario_engine_wake;
extern const struct sim_scenario sim_scenario_engine_watchdog;
extern const struct sim_scenario sim_scenario_epoch;
extern const struct sim_scenario sim_scenario_share;
extern const struct sim_scenario sim_scenario_handoff;
extern const struct sim_scenario sim_scenario_jobs_hang;
extern const struct sim_scenario sim_scenario_jobs_planted_admission;
extern const struct sim_scenario sim_scenario_jobs_planted_exist;
extern const struct sim_scenario sim_scenario_jobs_planted_wakeup;
extern const struct sim_scenario sim_scenario_jobs_order;
extern const struct sim_scenario sim_scenario_jobs_race;
extern const struct sim_scenario sim_scenario_jobs_relaxed;
extern const struct sim_scenario sim_scenario_jobs_slots;
extern const struct sim_scenario sim_scenario_lease;
extern const struct sim_scenario sim_scenario_log;
extern const struct sim_scenario sim_scenario_planted_close;
extern const struct sim_scenario sim_scenario_planted_flush;
extern const struct sim_scenario sim_scenario_planted_log;
extern const struct sim_scenario sim_scenario_planted_publish;
extern const struct sim_scenario sim_scenario_planted_ring;
extern const struct sim_scenario sim_scenario_planted_wakeup;
extern const struct sim_scenario sim_scenario_repl;
extern const struct sim_scenario sim_scenario_repl_faults;
extern const struct sim_scenario sim_scenario_repl_ack;
extern const struct sim_scenario sim_scenario_repl_copying;
extern const struct sim_scenario sim_scenario_sched_rate;
extern const struct sim_scenario sim_scenario_sched_share;
extern const struct sim_scenario sim_scenario_server;
extern const struct sim_scenario sim_scenario_server_faults;
extern const struct sim_scenario sim_scenario_server_large;
extern const struct sim_scenario sim_scenario_server_move;
extern const struct sim_scenario sim_scenario_server_stop;
extern const struct sim_scenario sim_scenario_table;
extern const struct sim_scenario sim_scenario_ring;
extern const struct sim_scenario sim_scenario_ring_owner;
extern const struct sim_scenario sim_scenario_planted_volume;
extern const struct sim_scenario sim_scenario_volume;
extern const struct sim_scenario sim_scenario_fleet;
extern const struct sim_scenario sim_scenario_thousand;

/* clang-format off */
#define SIM_SCENARIOS \
    &sim_scenario_handoff, \
    &sim_scenario_disk, \
    &sim_scenario_engine_wake, \
    &sim_scenario_engine_block, \
    &sim_scenario_engine_block_stop, \
    &sim_scenario_engine_watchdog, \
    &sim_scenario_engine_cancel, \
    &sim_scenario_engine_timeout, \
    &sim_scenario_engine_drain, \
    &sim_scenario_engine_idle, \
    &sim_scenario_engine_leave, \
    &sim_scenario_engine_level, \
    &sim_scenario_engine_level_cores, \
    &sim_scenario_engine_level_told, \
    &sim_scenario_engine_mail, \
    &sim_scenario_engine_move, \
    &sim_scenario_engine_quiesce, \
    &sim_scenario_engine_refuse, \
    &sim_scenario_engine_resource, \
    &sim_scenario_engine_stop, \
    &sim_scenario_repl, \
    &sim_scenario_repl_faults, \
    &sim_scenario_repl_ack, \
    &sim_scenario_repl_copying, \
    &sim_scenario_lease, \
    &sim_scenario_sched_rate, \
    &sim_scenario_sched_share, \
    &sim_scenario_server, \
    &sim_scenario_server_faults, \
    &sim_scenario_server_large, \
    &sim_scenario_server_move, \
    &sim_scenario_server_stop, \
    &sim_scenario_table, \
    &sim_scenario_ring, \
    &sim_scenario_ring_owner, \
    &sim_scenario_epoch, \
    &sim_scenario_share, \
    &sim_scenario_volume, \
    &sim_scenario_fleet, \
    &sim_scenario_thousand, \
    &sim_scenario_engine_trace, \
    &sim_scenario_log, \
    &sim_scenario_planted_wakeup, \
    &sim_scenario_jobs_order, \
    &sim_scenario_jobs_race, \
    &sim_scenario_jobs_relaxed, \
    &sim_scenario_jobs_slots, \
    &sim_scenario_jobs_hang, \
    &sim_scenario_planted_publish, \
    &sim_scenario_planted_close, \
    &sim_scenario_planted_flush, \
    &sim_scenario_planted_log, \
    &sim_scenario_planted_ring, \
    &sim_scenario_planted_volume, \
    &sim_scenario_jobs_planted_admission, \
    &sim_scenario_jobs_planted_exist, \
    &sim_scenario_jobs_planted_wakeup
/* clang-format on */
