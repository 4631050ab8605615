/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token buckets: a tenant goes when its bucket has tokens, in order of arrival among those who may.
 */
#include "sched/dues.h"
#include "sched/policy.h"

static int tbf_init(struct fw_sched *sched)
{
    return fw_dues_init(sched, false);
}

const struct fw_sched_policy fw_sched_tbf = {.name = "tbf", .init = tbf_init, FW_DUES_POLICY};
