/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The newest requests that began and ended, for traces: a ring under a lock of its own, which
 * workers take for each request where the policy wants a trace. It is wanted from the start or
 * never: services begin with the kernel, and a trace without them would miss a lane. Private to
 * jobs; <fairway/jobs.h> has what others see.
 */
#pragma once

#include <stdint.h>

#include <fairway/jobs.h>

#include "base/mutex.h"

struct fw_jobs_member;

enum {
    FW_JOBS_TRACE_EVENTS = 16384,
    FW_JOBS_TRACE_SERVICES = 16, /* That run, and are remembered however long ago they began. */
};

struct fw_jobs_trace {
    struct fw_mutex lock; /* FW_RANK_JOBS_TRACE; guards the rest. */
    uint64_t count;       /* Ever noted. */
    uint32_t service_count;
    struct fw_jobs_event services[FW_JOBS_TRACE_SERVICES];
    struct fw_jobs_event events[FW_JOBS_TRACE_EVENTS];
};

/* On the thread of `member`, which runs a request with these flags. */
void fw_jobs_trace_note(struct fw_jobs_trace *trace, const struct fw_jobs_member *member,
                        const struct fw_job_runnable *runnable, uint32_t flags, bool is_begin);

/* NULL: no memory. */
struct fw_jobs_trace *fw_jobs_trace_create(void);
void fw_jobs_trace_destroy(struct fw_jobs_trace *trace); /* NULL is allowed. */
