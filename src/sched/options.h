/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler's options, for a program that lists the table beside its own and makes its heads
 * with the result: struct fw_sched_config is filled as it is. They stand in the section [server],
 * where an operator looks for them. Those of tenants are in sched/tenant_options.h.
 */
#pragma once

#include <stddef.h>

#include <fairway/sched.h>

#include "base/option.h"

/* By enum fw_sched_policy_number, NULL at the end. */
extern const char *const fw_sched_policy_names[];

extern const struct fw_option fw_sched_options[];
extern const size_t fw_sched_options_count;
