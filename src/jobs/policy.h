/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of the policy, and reasons on their way through the public interface, which does not know
 * struct fw_reason.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fairway/jobs.h>

#include "base/reason.h"

enum { FW_JOBS_BOOST_MAX = 1000, FW_JOBS_SPINS_MAX = 1000000 };

bool fw_jobs_interval_is_valid(int64_t interval_ns);

/* `to` may be NULL. */
void fw_jobs_reason_copy(struct fw_jobs_reason *to, const struct fw_reason *from);
