/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the head (sched.c) and the policies, one file and one table each.
 *
 * A policy orders what waits; the head matches it with getters, keeps the promises of sched.h and
 * counts. A policy that has no place for a request (its tables are full) leaves it to the head's
 * plain queue by answering false, so that `incoming` cannot fail whatever the policy; the head asks
 * the policy first and its own queue then.
 *
 * A policy's state hangs on sched->state. It never calls back: what it lets go of is returned.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fairway/sched.h>

#include "base/base.h"

struct fw_sched_policy {
    const char *name;
    /* A request that finds none before it, and a getter, need not be shown to the policy. */
    bool lets_pass;
    /* Makes the state; 0 or a negative errno. NULL: there is none. */
    int (*init)(struct fw_sched *sched, const struct fw_sched_config *config);
    void (*fini)(struct fw_sched *sched);
    /* Puts it in its place; false: there is none, the head keeps it. NULL: never has one. */
    bool (*enqueue)(struct fw_sched *sched, struct fw_sched_request *request);
    /* The next, unlinked; NULL: none, or none that may go now. After shutdown all may. */
    struct fw_sched_request *(*dequeue)(struct fw_sched *sched);
    /* The one that was dequeued last is to be the next again. */
    void (*requeue)(struct fw_sched *sched, struct fw_sched_request *request);
    /* One that waits leaves: unlinks it, be it enqueued or in the head's own queue. */
    void (*remove)(struct fw_sched *sched, struct fw_sched_request *request);
    void (*charge)(struct fw_sched *sched, const struct fw_sched_request *request, uint32_t cost);
};

/* By enum fw_sched_policy_number. */
extern const struct fw_sched_policy *const fw_sched_policies[];

extern const struct fw_sched_policy fw_sched_fifo;
