/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/options.h"

#include "base/base.h"
#include "jobs/policy.h"

#define SECTION .section = "jobs"

const struct fw_option fw_jobs_options[] = {
    FW_OPTION_UINT(struct fw_jobs_config, workers, SECTION, .name = "workers", .default_text = "8",
                   .min = 1, .max = FW_JOBS_WORKERS_MAX, .unit = "threads",
                   .help = "threads for work that blocks or is bulky"),
    FW_OPTION_UINT(struct fw_jobs_config, slots, SECTION, .name = "slots", .default_text = "1024",
                   .min = 1, .max = FW_JOBS_SLOTS_MAX, .unit = "requests",
                   .help = "requests that may wait for a thread"),
    FW_OPTION_UINT(struct fw_jobs_config, owners, SECTION, .name = "owners",
                   .default_text = "65536", .min = 1, .max = FW_JOBS_OWNERS_MAX,
                   .help = "groups of requests that may exist at the same time"),
    FW_OPTION_UINT(struct fw_jobs_config, lane_percent[0], SECTION, .name = "services-percent",
                   .default_text = "10", .max = 100, .unit = "%",
                   .help = "share of threads and slots for requests that run for ever"),
    FW_OPTION_UINT(struct fw_jobs_config, lane_percent[1], SECTION, .name = "feeders-percent",
                   .default_text = "20", .max = 100, .unit = "%",
                   .help = "share for requests that generate units of work"),
    FW_OPTION_UINT(struct fw_jobs_config, lane_percent[2], SECTION, .name = "units-percent",
                   .default_text = "20", .max = 100, .unit = "%",
                   .help = "share for units of work; the rest is for their parts"),
    FW_OPTION_BOOL(struct fw_jobs_config, ageing, SECTION, .name = "ageing", .default_text = "no",
                   .help = "requests grow more urgent while they wait"),
    FW_OPTION_DURATION(struct fw_jobs_config, ageing_interval_ns, SECTION,
                       .name = "ageing-interval", .default_text = "100ms", .min = 1000,
                       .max = INT64_C(3600000000000), .live = true,
                       .help = "after how long a waiting request grows more urgent by one"),
    FW_OPTION_BOOL(struct fw_jobs_config, boosting, SECTION, .name = "boosting",
                   .default_text = "no", .help = "requests marked for it age faster"),
    FW_OPTION_UINT(struct fw_jobs_config, boost, SECTION, .name = "boost", .default_text = "1",
                   .max = FW_JOBS_BOOST_MAX, .help = "by how much more per interval they do"),
    FW_OPTION_DURATION(struct fw_jobs_config, review_interval_ns, SECTION,
                       .name = "review-interval", .default_text = "100ms", .min = 1000,
                       .max = INT64_C(3600000000000), .live = true,
                       .help = "how often the monitor adopts settings and measures"),
    FW_OPTION_UINT(struct fw_jobs_config, workers_active, SECTION, .name = "workers-active",
                   .default_text = "0", .max = FW_JOBS_WORKERS_MAX, .unit = "threads", .live = true,
                   .help = "threads that run requests at once; 0 is all"),
    FW_OPTION_BOOL(struct fw_jobs_config, autonomic, SECTION, .name = "autonomic",
                   .default_text = "no", .live = true,
                   .help = "find the number of active threads with the highest throughput"),
    FW_OPTION_UINT(struct fw_jobs_config, hand, SECTION, .name = "hand", .default_text = "1",
                   .min = 1, .max = FW_JOBS_HAND_MAX, .unit = "requests",
                   .help = "requests that a thread takes at once; above 1, priorities are relaxed"),
    FW_OPTION_BOOL(struct fw_jobs_config, timing, SECTION, .name = "timing", .default_text = "no",
                   .live = true, .help = "measure how long requests wait and run"),
};
const size_t fw_jobs_options_count = FW_ARRAY_LENGTH(fw_jobs_options);

void fw_jobs_configure(struct fw_jobs_policy *policy, const struct fw_jobs_config *config)
{
    policy->workers = (uint32_t)config->workers;
    policy->slots = (uint32_t)config->slots;
    policy->owners = (uint32_t)config->owners;
    for (int l = 0; l < 3; l++) {
        policy->lane_percent[l] = (uint32_t)config->lane_percent[l];
    }
    policy->ageing = config->ageing;
    policy->ageing_interval_ns = config->ageing_interval_ns;
    policy->boosting = config->boosting;
    policy->boost = (int32_t)config->boost;
    policy->review_interval_ns = config->review_interval_ns;
    policy->workers_active = (uint32_t)config->workers_active;
    policy->autonomic = config->autonomic;
    policy->hand = (uint32_t)config->hand;
    policy->timing = config->timing;
}
