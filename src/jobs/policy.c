/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy: what is sensible, what is allowed, and what could hang.
 */
#include <errno.h>
#include <string.h>

#include <fairway/jobs.h>

#include "base/base.h"
#include "base/reason.h"
#include "io/clock.h"
#include "jobs/cmls.h"
#include "jobs/policy.h"

#define INTERVAL_NS_MAX (INT64_C(3600) * FW_NS_PER_S)

void fw_jobs_policy_init(struct fw_jobs_policy *policy)
{
    *policy = (struct fw_jobs_policy){
        .workers = 8,
        .slots = 1024,
        .owners = 65536,
        .mode = FW_JOBS_CMLS,
        .lane_percent = {10, 20, 20},
        .lanes_used = (1U << FW_JOBS_LANES) - 1,
        .lane_waits_for = {0xE, 0xC, 0x8, 0}, /* All above. */
        .ageing_interval_ns = INT64_C(100) * FW_NS_PER_MS,
        .review_interval_ns = INT64_C(100) * FW_NS_PER_MS,
        .idle_spins = 100,
        .hand = 1,
    };
}

static int check_sizes(const struct fw_jobs_policy *policy, struct fw_reason *reason)
{
    if (policy->workers < 1 || policy->workers > FW_JOBS_WORKERS_MAX) {
        return fw_reason_set(reason, -EINVAL, "%u workers; between 1 and %d can be",
                             policy->workers, FW_JOBS_WORKERS_MAX);
    }
    if (policy->slots < 1 || policy->slots > FW_JOBS_SLOTS_MAX) {
        return fw_reason_set(reason, -EINVAL, "%u slots; between 1 and %d can be", policy->slots,
                             FW_JOBS_SLOTS_MAX);
    }
    if (policy->owners < 1 || policy->owners > FW_JOBS_OWNERS_MAX) {
        return fw_reason_set(reason, -EINVAL, "%u owners; between 1 and %d can be", policy->owners,
                             FW_JOBS_OWNERS_MAX);
    }
    if (policy->workers_active > policy->workers) {
        return fw_reason_set(reason, -EINVAL, "%u active workers of %u", policy->workers_active,
                             policy->workers);
    }
    if ((policy->mode & ~(uint32_t)(FW_JOBS_CMLS | FW_JOBS_UNCHECKED)) != 0) {
        return fw_reason_set(reason, -EINVAL, "unknown scheduling mode %#x", policy->mode);
    }
    if (policy->boost < 0 || policy->boost > FW_JOBS_BOOST_MAX) {
        return fw_reason_set(reason, -EINVAL, "a boost of %d; between 0 and %d can be",
                             policy->boost, FW_JOBS_BOOST_MAX);
    }
    if (policy->hand < 1 || policy->hand > FW_JOBS_HAND_MAX) {
        return fw_reason_set(reason, -EINVAL, "a hand of %u requests; between 1 and %d can be",
                             policy->hand, FW_JOBS_HAND_MAX);
    }
    if (policy->idle_spins > FW_JOBS_SPINS_MAX) {
        return fw_reason_set(reason, -EINVAL, "%u idle spins; at most %d", policy->idle_spins,
                             FW_JOBS_SPINS_MAX);
    }
    return 0;
}

static int check_intervals(const struct fw_jobs_policy *policy, struct fw_reason *reason)
{
    if (!fw_jobs_interval_is_valid(policy->ageing_interval_ns) ||
        !fw_jobs_interval_is_valid(policy->review_interval_ns)) {
        return fw_reason_set(reason, -EINVAL,
                             "intervals of %lld ns (ageing) and %lld ns (review); between a "
                             "microsecond and an hour can be",
                             (long long)policy->ageing_interval_ns,
                             (long long)policy->review_interval_ns);
    }
    return 0;
}

bool fw_jobs_interval_is_valid(int64_t interval_ns)
{
    return interval_ns >= FW_NS_PER_US && interval_ns <= INTERVAL_NS_MAX;
}

/* A lane may wait only for lanes above it, and only where those are sure to get their share. */
static int check_waits(const struct fw_jobs_policy *policy, struct fw_reason *reason)
{
    for (uint32_t l = 0; l < FW_JOBS_LANES; l++) {
        uint32_t waits = policy->lane_waits_for[l];
        if ((policy->lanes_used & (1U << l)) == 0 || waits == 0) {
            continue;
        }
        if ((waits & ((2U << l) - 1)) != 0) {
            return fw_reason_set(reason, -EINVAL,
                                 "requests of lane %u would wait for their own lane or one below: "
                                 "when these have all its threads, they wait for ever",
                                 l);
        }
        if ((policy->mode & FW_JOBS_CMLS) != FW_JOBS_CMLS) {
            return fw_reason_set(reason, -EINVAL,
                                 "requests of lane %u would wait for others, but lanes do not "
                                 "limit both threads and slots: when those that wait have all of "
                                 "one, they wait for ever",
                                 l);
        }
    }
    return 0;
}

static int check_shares(const struct fw_jobs_policy *policy, struct fw_reason *reason)
{
    if ((policy->mode & FW_JOBS_CMLS) == 0) {
        return 0;
    }
    for (uint32_t l = 0; l < 3; l++) {
        bool used = (policy->lanes_used & (1U << l)) != 0;
        if (policy->lane_percent[l] > 100) {
            return fw_reason_set(reason, -EINVAL, "lane %u has %u percent", l,
                                 policy->lane_percent[l]);
        }
        if (used && policy->lane_percent[l] == 0) {
            return fw_reason_set(reason, -EINVAL,
                                 "lane %u is used but has no share, so its requests might never "
                                 "run; give it a percentage",
                                 l);
        }
    }
    struct fw_cmls cmls;
    if (fw_cmls_init(&cmls, policy->workers, policy->lane_percent, true) != 0) {
        return fw_reason_set(reason, -EINVAL,
                             "lanes 0 to 2 take all %u workers, and those they wait for in lane 3 "
                             "would never run; lower the percentages or have more workers",
                             policy->workers);
    }
    if (fw_cmls_init(&cmls, policy->slots, policy->lane_percent, true) != 0) {
        return fw_reason_set(reason, -EINVAL,
                             "lanes 0 to 2 take all %u slots, and those they wait for in lane 3 "
                             "could never be posted; lower the percentages or have more slots",
                             policy->slots);
    }
    uint32_t least = fw_cmls_least(policy->lane_percent, true);
    if (policy->workers_active > 0 && policy->workers_active < least) {
        return fw_reason_set(reason, -EINVAL, "%u active workers, but %u lanes need one each",
                             policy->workers_active, least);
    }
    return 0;
}

static int policy_check(const struct fw_jobs_policy *policy, struct fw_reason *reason)
{
    int rc = check_sizes(policy, reason);
    if (rc == 0) {
        rc = check_intervals(policy, reason);
    }
    if (rc == 0 && (policy->lanes_used & (1U << 3)) == 0) {
        rc = fw_reason_set(reason, -EINVAL, "lane 3 is not used; commands run there");
    }
    if (rc == 0 && (policy->mode & FW_JOBS_UNCHECKED) == 0) {
        rc = check_waits(policy, reason);
    }
    return rc == 0 ? check_shares(policy, reason) : rc;
}

void fw_jobs_reason_copy(struct fw_jobs_reason *to, const struct fw_reason *from)
{
    static_assert(sizeof to->text == sizeof from->text, "reasons are copied whole");
    if (to != NULL) {
        memcpy(to->text, from->text, sizeof to->text);
    }
}

int fw_jobs_policy_check(const struct fw_jobs_policy *policy, struct fw_jobs_reason *reason)
{
    struct fw_reason why = {.text = ""};
    int rc = policy_check(policy, &why);
    if (rc != 0) {
        fw_jobs_reason_copy(reason, &why);
    }
    return rc;
}
