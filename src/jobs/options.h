/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of the job kernel, and how they become a policy. A program lists the table beside its
 * own; what a policy says beyond them (which lanes are used, who waits for whom) is the program's.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <fairway/jobs.h>

#include "base/option.h"

struct fw_jobs_config {
    uint64_t workers;
    uint64_t slots;
    uint64_t owners;
    uint64_t lane_percent[3];
    bool ageing;
    int64_t ageing_interval_ns;
    bool boosting;
    uint64_t boost;
    int64_t review_interval_ns;
    uint64_t workers_active;
    bool autonomic;
    uint64_t hand;
    bool timing;
};

extern const struct fw_option fw_jobs_options[];
extern const size_t fw_jobs_options_count;

/* Overwrites what the options say in a policy that fw_jobs_policy_init() has made. */
void fw_jobs_configure(struct fw_jobs_policy *policy, const struct fw_jobs_config *config);
