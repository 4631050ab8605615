/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/trace.h"

#include <stdlib.h>

#include "io/clock.h"
#include "jobs/kernel.h"

void fw_jobs_trace_note(struct fw_jobs_trace *trace, const struct fw_jobs_member *member,
                        const struct fw_job_runnable *runnable, uint32_t flags, bool is_begin)
{
    struct fw_jobs_event event = {.name = runnable->name != NULL ? runnable->name : "request",
                                  .thread = member->id,
                                  .lane = (uint8_t)fw_job_lane(flags),
                                  .is_begin = is_begin};
    fw_mutex_lock(&trace->lock);
    event.time_ns = fw_clock_now_ns(); /* In here, so that they are in its order. */
    if (event.lane == 0 && is_begin && trace->service_count < FW_JOBS_TRACE_SERVICES) {
        trace->services[trace->service_count++] = event;
    } else {
        trace->events[trace->count++ % FW_JOBS_TRACE_EVENTS] = event;
    }
    fw_mutex_unlock(&trace->lock);
}

struct fw_jobs_trace *fw_jobs_trace_create(void)
{
    struct fw_jobs_trace *trace = calloc(1, sizeof *trace);
    if (trace != NULL) {
        fw_mutex_init(&trace->lock, FW_RANK_JOBS_TRACE);
    }
    return trace;
}

void fw_jobs_trace_destroy(struct fw_jobs_trace *trace)
{
    if (trace != NULL) {
        fw_mutex_fini(&trace->lock);
        free(trace);
    }
}

void fw_jobs_trace_visit(struct fw_jobs *jobs,
                         void (*visit)(const struct fw_jobs_event *event, void *context),
                         void *context)
{
    struct fw_jobs_trace *trace = jobs->trace;
    if (trace == NULL) {
        return;
    }
    fw_mutex_lock(&trace->lock);
    for (uint32_t i = 0; i < trace->service_count; i++) {
        visit(&trace->services[i], context);
    }
    uint64_t count = trace->count < FW_JOBS_TRACE_EVENTS ? trace->count : FW_JOBS_TRACE_EVENTS;
    for (uint64_t i = trace->count - count; i < trace->count; i++) {
        visit(&trace->events[i % FW_JOBS_TRACE_EVENTS], context);
    }
    fw_mutex_unlock(&trace->lock);
}
