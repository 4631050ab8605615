/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/options.h"

#include "base/base.h"

const char *const fw_sched_policy_names[] = {
    [FW_SCHED_FIFO] = "fifo",   [FW_SCHED_CRR] = "crr",     [FW_SCHED_WFQ] = "wfq",
    [FW_SCHED_TBF] = "tbf",     [FW_SCHED_SHARE] = "share", [FW_SCHED_GANG] = "gang",
    [FW_SCHED_POLICIES] = NULL,
};

const struct fw_option fw_sched_options[] = {
    FW_OPTION_ENUM(struct fw_sched_config, policy, .section = "server", .name = "policy",
                   .default_text = "fifo", .names = fw_sched_policy_names,
                   .help = "in which order waiting requests are served: as they came (fifo), "
                           "clients by turns (crr), tenants by weight (wfq), tenants by rate "
                           "and as they came (tbf), tenants by weight with rates that hold for "
                           "the whole cluster (share), the tenant whose turn it is on all nodes "
                           "of the cluster before the others (gang)"),
};
const size_t fw_sched_options_count = FW_ARRAY_LENGTH(fw_sched_options);
