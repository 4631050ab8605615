/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler's options, for a program that lists the table beside its own and makes its heads
 * with the result: struct fw_sched_config is filled as it is.
 */
#pragma once

#include <stddef.h>

#include <fairway/sched.h>

#include "base/option.h"

extern const struct fw_option fw_sched_options[];
extern const size_t fw_sched_options_count;
