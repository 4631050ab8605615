/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers: what a thread does with the request that it was given.
 *
 *     available --assigned--> busy: run() -> completed() -> to the owner -> close handles ->
 * available
 */
#include "base/assert.h"
#include "io/clock.h"
#include "jobs/kernel.h"
#include "jobs/trace.h"

void fw_jobs_finish(struct fw_jobs *jobs, const struct fw_jobs_finish *finish)
{
    if (finish->runnable->completed != NULL) {
        if ((finish->flags & FW_JOB_REJOINABLE) == 0) {
            /* Its memory is the completion function's. */
            atomic_store_explicit(&finish->job->state, FW_JOB_FREE, memory_order_relaxed);
        }
        finish->runnable->completed(finish->runnable, finish->job);
    }
    bool settle;
    if ((finish->flags & FW_JOB_REJOINABLE) != 0) {
        atomic_store_explicit(&finish->job->state, FW_JOB_DONE, memory_order_relaxed);
        settle = fw_owner_done(finish->record, finish->job);
    } else {
        settle = fw_owner_over(finish->record);
    }
    if (settle) {
        struct fw_list woken;
        fw_list_init(&woken);
        fw_mutex_lock(&jobs->front);
        fw_owner_settle(&jobs->owners, finish->record, &woken);
        fw_mutex_unlock(&jobs->front);
        fw_owner_wake(&woken);
    }
}

static inline void execute_note(const struct fw_jobs *jobs, const struct fw_jobs_member *self,
                                const struct fw_jobs_finish *finish, bool is_begin)
{
    if (FW_UNLIKELY(jobs->trace != NULL)) {
        fw_jobs_trace_note(jobs->trace, self, finish->runnable, finish->flags, is_begin);
    }
}

void fw_jobs_execute(struct fw_jobs *jobs, struct fw_jobs_member *self)
{
    struct fw_jobs_running *running = &self->running[self->depth - 1];
    struct fw_jobs_finish finish = {.job = running->job,
                                    .runnable = running->runnable,
                                    .record = running->record,
                                    .flags = running->flags};
    if (finish.runnable->completed == NULL && (finish.flags & FW_JOB_REJOINABLE) == 0) {
        /* Nobody will be told of its end, so from here on its memory is the runnable's. */
        atomic_store_explicit(&finish.job->state, FW_JOB_FREE, memory_order_relaxed);
    }
    execute_note(jobs, self, &finish, true);
    finish.runnable->run(finish.runnable, finish.job);
    execute_note(jobs, self, &finish, false);
    FW_ASSERT(!atomic_load_explicit(&self->blocked, memory_order_relaxed)); /* Brackets pair up. */
    if (running->begin_ns != 0) {
        running->run_ns = fw_clock_now_ns() - running->begin_ns;
        /* Relaxed: a statistic. Before it is finished, while the owner is sure to exist. */
        atomic_fetch_add_explicit(&finish.record->run_ns, running->run_ns, memory_order_relaxed);
    }
    fw_jobs_finish(jobs, &finish);
    if (self->handle_count > 0) {
        fw_jobs_handles_close(self, self->depth);
    }
}

/*
 * Before it says that it is idle, a worker that knows of nothing to do looks at the inbox for a
 * while: whoever posts to a sleeper pays for waking it.
 */
static void worker_spin(const struct fw_jobs *jobs)
{
    for (uint32_t i = 0; i < jobs->policy.idle_spins; i++) {
        /* Both are hints: whatever they say, the worker goes to the dispatcher next. */
        if (atomic_load_explicit(&jobs->backlog, memory_order_relaxed) ||
            !fw_inbox_is_empty(&jobs->inbox)) {
            return;
        }
        FW_YIELD_POINT("jobs: looks again before it is idle");
        fw_thread_relax();
    }
}

/* Waits for the next request; the sentinel at the end. */
static struct fw_job *worker_next(struct fw_jobs *jobs, struct fw_jobs_member *self)
{
    fw_jobs_dispatch(jobs, self);
    struct fw_job *job;
    /* Acquire, for the release in dispatch_assign(). */
    while ((job = atomic_load_explicit(&self->assigned, memory_order_acquire)) == NULL) {
        fw_park(&self->parker);
    }
    /* Relaxed: who assigns does so only to an idle worker, of which it learns by acquire. */
    atomic_store_explicit(&self->assigned, NULL, memory_order_relaxed);
    return job;
}

void fw_jobs_worker_run(void *argument)
{
    struct fw_jobs_member *self = argument;
    struct fw_jobs *jobs = self->jobs;
    fw_thread_self()->job_member = self;
    while (worker_next(jobs, self) != &jobs->sentinel) {
        do {
            fw_jobs_execute(jobs, self);
        } while (jobs->policy.hand > 1 && fw_jobs_hand_next(jobs, self));
        worker_spin(jobs);
    }
}
