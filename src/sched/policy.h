/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's own policies, one file and one table each, and what they may ask of a head beyond
 * what <fairway/sched_policy.h> gives to everyone.
 */
#pragma once

#include <stdint.h>

#include <fairway/sched.h>
#include <fairway/sched_policy.h>

#include "base/base.h"
#include "io/clock.h"

/* By enum fw_sched_policy_number. */
extern const struct fw_sched_policy *const fw_sched_policies[];

extern const struct fw_sched_policy fw_sched_fifo;
extern const struct fw_sched_policy fw_sched_crr;
extern const struct fw_sched_policy fw_sched_wfq;
extern const struct fw_sched_policy fw_sched_tbf;
extern const struct fw_sched_policy fw_sched_share;
extern const struct fw_sched_policy fw_sched_gang;

/* The time, looked up now. */
static inline int64_t fw_sched_time(struct fw_sched *sched)
{
    return sched->now != NULL ? sched->now(sched) : fw_clock_now_ns();
}
