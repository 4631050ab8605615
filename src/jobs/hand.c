/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hands: the relaxed order, for those who prefer throughput.
 *
 * With policy.hand above 1 a worker that has become the dispatcher takes, beside the request that
 * it will run, the next ones of the same lane into its hand, and runs them one after the other
 * without coming back. So workers meet at the dispatcher's lock once per hand and not once per
 * request.
 *
 * What is relaxed is the order of priority alone. What is posted meanwhile has to wait until a hand
 * is empty; a request is passed over by at most (hand - 1) less urgent ones per worker. Everything
 * else is as exact as ever:
 *
 *   lanes     A hand has requests of one lane, that of the request that runs. When one ends and the
 *             next begins, the number that runs in each lane does not change. When a limit changes,
 *             all hands are recalled.
 *   slots     A request in a hand keeps its slot until it begins.
 *   owners    It counts as any that waits. Who cancels, helps or tells recalls all hands first.
 *   idleness  A worker takes a hand only when no other is idle, and its part of what waits; a
 * worker that then finds nothing to do recalls all hands.
 *
 * A recall puts requests back where they were, in the order of posting. It costs a lock per worker,
 * and is for when there is little to do, or something rare.
 *
 * Locks. A hand, and what its worker runs, is under the worker's `hand_lock`
 * (FW_RANK_JOBS_HAND); who fills or recalls holds the role beside it. With hand = 1 nobody takes
 * it.
 *
 * Rejected: queues per worker with a poster's choice of the queue. What a post costs would not
 * change, owners and slots being what they are, and idle workers would have to search. Timed
 * requests in hands: their histograms have one writer at a time, the dispatcher; so with timing on
 * the order is strict.
 */
#include "base/assert.h"
#include "jobs/kernel.h"

static void hand_put_back(struct fw_jobs *jobs, struct fw_jobs_member *worker)
    FW_REQUIRES(jobs->role);
static void hand_put_back(struct fw_jobs *jobs, struct fw_jobs_member *worker)
{
    fw_mutex_lock(&worker->hand_lock);
    while (worker->hand_first < worker->hand_end) {
        struct fw_job *job = worker->hand[--worker->hand_end];
        fw_ready_return(&jobs->ready, job);
        fw_owner_ready_add(job->record, job);
        job->record->dispatched--;
    }
    fw_mutex_unlock(&worker->hand_lock);
}

void fw_jobs_hands_recall(struct fw_jobs *jobs)
{
    if (!jobs->hands_out) {
        return;
    }
    jobs->hands_out = false;
    for (uint32_t i = 0; i < jobs->policy.workers; i++) {
        hand_put_back(jobs, &jobs->workers[i]);
    }
}

void fw_jobs_hand_fill(struct fw_jobs *jobs, struct fw_jobs_member *self, int64_t tick)
{
    uint64_t waiting = fw_ready_count(&jobs->ready);
    uint64_t part = (waiting + jobs->policy.workers - 1) / jobs->policy.workers;
    uint32_t most = part < jobs->policy.hand - 1 ? (uint32_t)part : jobs->policy.hand - 1;
    uint32_t lane = fw_job_lane(self->running[0].flags);
    fw_mutex_lock(&self->hand_lock);
    FW_ASSERT(self->hand_first == self->hand_end);
    self->hand_first = 0;
    self->hand_end = 0;
    while (self->hand_end < most) {
        struct fw_job *job = fw_ready_first(&jobs->ready, lane, tick);
        if (job == NULL || fw_job_lane(job->flags) != lane || job->posted_ns != 0) {
            break;
        }
        fw_ready_remove(&jobs->ready, job);
        fw_owner_ready_remove(job->record, job);
        job->record->dispatched++;
        self->hand[self->hand_end++] = job;
        jobs->hands_out = true;
    }
    fw_mutex_unlock(&self->hand_lock);
}

bool fw_jobs_hand_next(struct fw_jobs *jobs, struct fw_jobs_member *self)
{
    fw_mutex_lock(&self->hand_lock);
    bool more = self->hand_first < self->hand_end;
    if (more) {
        struct fw_job *job = self->hand[self->hand_first++];
        self->hand_ended++;
        fw_jobs_running_set(&self->running[0], job);
        fw_jobs_slot_free(jobs, fw_job_lane(job->flags));
        atomic_store_explicit(&job->state, FW_JOB_BUSY, memory_order_relaxed);
    }
    fw_mutex_unlock(&self->hand_lock);
    if (more) {
        fw_fence_full(); /* Pairs with that in slot_wait(). */
        FW_YIELD_POINT("jobs: took one from its hand");
        if (atomic_load_explicit(&jobs->slots_wanted, memory_order_relaxed)) {
            fw_jobs_slots_grant(jobs);
        }
    }
    return more;
}
