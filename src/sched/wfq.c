/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weighted fair queueing: tenants share by weight, in cost, whatever the number of heads; within a
 * tenant clients take turns. Rates hold too.
 */
#include "sched/dues.h"
#include "sched/policy.h"

static int wfq_init(struct fw_sched *sched)
{
    return fw_dues_init(sched, true);
}

const struct fw_sched_policy fw_sched_wfq = {.name = "wfq", .init = wfq_init, FW_DUES_POLICY};
