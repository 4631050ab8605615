/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First come, first served. The head's own queue is that already, so the policy has no state and
 * enqueues nothing: what any policy falls back on is what this one is.
 */
#include "sched/policy.h"

const struct fw_sched_policy fw_sched_fifo = {.name = "fifo", .lets_pass = true};
