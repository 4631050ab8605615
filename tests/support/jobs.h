/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the kernel share: a kernel to begin with, requests that wait for a sign, and
 * what all of them do again and again.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fairway/jobs.h>

#include "base/thread.h"

/* A gate that requests stop at until it is opened. They say when they have arrived. */
struct gate {
    atomic_bool is_open;
    _Atomic uint32_t arrived;
};

struct gated {
    struct fw_job job;
    struct gate *gate;
};

static inline void pause_briefly(void)
{
    struct fw_parker parker;
    fw_parker_init(&parker);
    (void)fw_park_for(&parker, 20000);
}

static inline void gated_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct gate *gate = FW_CONTAINER_OF(job, struct gated, job)->gate;
    atomic_fetch_add(&gate->arrived, 1);
    while (!atomic_load(&gate->is_open)) {
        pause_briefly();
    }
}
static struct fw_job_runnable gated_runnable = {.run = gated_run};

static inline void gate_await(struct gate *gate, uint32_t count)
{
    while (atomic_load(&gate->arrived) < count) {
        pause_briefly();
    }
}

static inline struct fw_jobs *jobs_make(const struct fw_jobs_policy *policy)
{
    struct fw_jobs *made;
    struct fw_jobs_reason reason = {.text = ""};
    int rc = fw_jobs_create(&made, policy, &reason);
    if (rc != 0) {
        fail_msg("%s", reason.text);
    }
    return made;
}

static inline struct fw_jobs *jobs_start(const struct fw_jobs_policy *policy)
{
    struct fw_jobs *made = jobs_make(policy);
    assert_int_equal(fw_jobs_start(made, NULL), 0);
    return made;
}

static inline void jobs_end(struct fw_jobs *jobs)
{
    assert_int_equal(fw_jobs_stop(jobs, FW_JOBS_DRAIN, NULL), 0);
    fw_jobs_destroy(jobs);
}

/* Takes all finished requests of the owner until none exists; returns how many there were. */
static inline uint64_t rejoin_all(struct fw_jobs *jobs, const void *owner)
{
    struct fw_job *job;
    uint64_t count = 0;
    enum fw_rejoin answer;
    while ((answer = fw_jobs_rejoin_wait(jobs, owner, 0, FW_JOBS_FOREVER, &job)) ==
           FW_REJOIN_RETURNED) {
        count++;
    }
    assert_int_equal(answer, FW_REJOIN_NONE_EXIST);
    return count;
}
