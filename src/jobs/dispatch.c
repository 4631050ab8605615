/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dispatcher's role; kernel.h explains it.
 */
#include "base/assert.h"
#include "io/clock.h"
#include "jobs/kernel.h"

/* Moves what was posted into the ready pool. */
static void drain_inbox(struct fw_jobs *jobs) FW_REQUIRES(jobs->role);
static void drain_inbox(struct fw_jobs *jobs)
{
    struct fw_job *job;
    while ((job = fw_inbox_take(&jobs->inbox)) != NULL) {
        atomic_store_explicit(&job->state, FW_JOB_READY, memory_order_relaxed);
        fw_ready_push(&jobs->ready, job);
        fw_owner_ready_add(job->record, job);
    }
}

void fw_jobs_gather(struct fw_jobs *jobs)
{
    fw_jobs_hands_recall(jobs);
    drain_inbox(jobs);
}

static inline void unready(struct fw_jobs *jobs, struct fw_job *job) FW_REQUIRES(jobs->role);
static inline void unready(struct fw_jobs *jobs, struct fw_job *job)
{
    fw_ready_remove(&jobs->ready, job);
    fw_owner_ready_remove(job->record, job);
    fw_jobs_slot_free(jobs, fw_job_lane(job->flags));
}

void fw_jobs_unready(struct fw_jobs *jobs, struct fw_job *job)
{
    unready(jobs, job);
}

/* The tick by which plain and boosted requests are compared; without boosts any will do. */
static int64_t dispatch_tick(struct fw_jobs *jobs) FW_REQUIRES(jobs->role);
static int64_t dispatch_tick(struct fw_jobs *jobs)
{
    if (jobs->ready.slopes[FW_READY_BOOSTED] == jobs->ready.slopes[FW_READY_PLAIN]) {
        return 0;
    }
    fw_mutex_lock(&jobs->front);
    int64_t tick = fw_jobs_tick(jobs);
    fw_mutex_unlock(&jobs->front);
    return tick;
}

static void note_wait(struct fw_jobs *jobs, struct fw_jobs_running *running, int64_t posted_ns)
    FW_REQUIRES(jobs->role);
static void note_wait(struct fw_jobs *jobs, struct fw_jobs_running *running, int64_t posted_ns)
{
    running->begin_ns = fw_clock_now_ns();
    int64_t waited_ns = running->begin_ns - posted_ns;
    running->record->wait_ns += waited_ns;
    uint32_t lane = fw_job_lane(running->flags);
    fw_histogram_record(fw_jobs_metrics_wait(&jobs->metrics, lane), (uint64_t)waited_ns);
    fw_histogram_record(fw_jobs_metrics_class(&jobs->metrics, fw_jobs_class(running->priority)),
                        (uint64_t)waited_ns);
}

static inline void note_running(struct fw_jobs *jobs, struct fw_jobs_member *member,
                                struct fw_job *job) FW_REQUIRES(jobs->role);
static inline void note_running(struct fw_jobs *jobs, struct fw_jobs_member *member,
                                struct fw_job *job)
{
    FW_ASSERT(member->depth < FW_JOBS_DEPTH_MAX);
    struct fw_jobs_running *running = &member->running[member->depth++];
    fw_jobs_running_set(running, job);
    job->record->dispatched++;
    if (job->posted_ns != 0) {
        note_wait(jobs, running, job->posted_ns);
    }
    atomic_store_explicit(&job->state, FW_JOB_BUSY, memory_order_relaxed);
}

void fw_jobs_note_running(struct fw_jobs *jobs, struct fw_jobs_member *member, struct fw_job *job)
{
    note_running(jobs, member, job);
}

void fw_jobs_note_ended(struct fw_jobs *jobs, struct fw_jobs_member *member)
{
    FW_ASSERT(member->depth > 0);
    const struct fw_jobs_running *running = &member->running[--member->depth];
    fw_counter_add(&jobs->metrics.run, 1 + member->hand_ended);
    member->hand_ended = 0; /* It has come by, or runs a request inside another. */
    if (running->run_ns > 0) {
        fw_histogram_record(fw_jobs_metrics_run(&jobs->metrics, fw_job_lane(running->flags)),
                            (uint64_t)running->run_ns);
    }
}

/* The worker has nothing to do from now on. */
static void dispatch_idle(struct fw_jobs *jobs, struct fw_jobs_member *member)
    FW_REQUIRES(jobs->role);
static void dispatch_idle(struct fw_jobs *jobs, struct fw_jobs_member *member)
{
    if (member->depth > 0) {
        fw_cmls_leave(&jobs->word, fw_job_lane(member->running[0].flags));
        fw_jobs_note_ended(jobs, member);
    }
    member->idle_next = jobs->idle;
    jobs->idle = member;
}

static void dispatch_collect(struct fw_jobs *jobs) FW_REQUIRES(jobs->role);
static void dispatch_collect(struct fw_jobs *jobs)
{
    if (atomic_load_explicit(&jobs->available, memory_order_relaxed) == NULL) {
        return;
    }
    /* Acquire, for the release in available_push(). */
    struct fw_jobs_member *member =
        atomic_exchange_explicit(&jobs->available, NULL, memory_order_acquire);
    while (member != NULL) {
        struct fw_jobs_member *next = member->available_next;
        dispatch_idle(jobs, member);
        member = next;
    }
}

/* Gives it to an idle worker, and returns whom. */
static struct fw_jobs_member *dispatch_assign(struct fw_jobs *jobs, struct fw_job *job)
    FW_REQUIRES(jobs->role);
static struct fw_jobs_member *dispatch_assign(struct fw_jobs *jobs, struct fw_job *job)
{
    struct fw_jobs_member *member = jobs->idle;
    jobs->idle = member->idle_next;
    if (job != &jobs->sentinel) {
        unready(jobs, job);
        note_running(jobs, member, job);
    }
    FW_YIELD_POINT("jobs: about to assign");
    /* Release, for the acquire in worker_next(). */
    atomic_store_explicit(&member->assigned, job, memory_order_release);
    if (member != fw_jobs_self(jobs)) {
        fw_unpark(&member->parker);
    }
    return member;
}

/*
 * The request that goes next, out of those in the ready pool and those in the inbox, which come
 * behind all of their own key; NULL if the lanes admit none.
 */
static struct fw_job *dispatch_best(struct fw_jobs *jobs, uint32_t lane_lowest, int64_t tick)
    FW_REQUIRES(jobs->role);
static struct fw_job *dispatch_best(struct fw_jobs *jobs, uint32_t lane_lowest, int64_t tick)
{
    struct fw_job *job = fw_ready_first(&jobs->ready, lane_lowest, tick);
    bool keys_decide = jobs->ready.slopes[FW_READY_BOOSTED] == jobs->ready.slopes[FW_READY_PLAIN];
    if (job == NULL || !keys_decide || !fw_inbox_is_below(&jobs->inbox, job->key)) {
        drain_inbox(jobs);
        job = fw_ready_first(&jobs->ready, lane_lowest, tick);
    }
    return job;
}

/* Gives the best requests that the lanes admit to idle workers. */
static void dispatch_requests(struct fw_jobs *jobs) FW_REQUIRES(jobs->role);
static void dispatch_requests(struct fw_jobs *jobs)
{
    uint64_t limits = atomic_load_explicit(&jobs->worker_limits, memory_order_relaxed);
    int64_t tick = dispatch_tick(jobs);
    struct fw_jobs_member *self = fw_jobs_self(jobs);
    bool given = false; /* One to ourselves. */
    while (jobs->idle != NULL) {
        uint64_t word = atomic_load_explicit(&jobs->word, memory_order_relaxed);
        uint32_t lowest = fw_cmls_lowest(word, limits);
        struct fw_job *job = lowest < FW_JOBS_LANES ? dispatch_best(jobs, lowest, tick) : NULL;
        if (job == NULL && lowest < FW_JOBS_LANES && jobs->hands_out) {
            fw_jobs_hands_recall(jobs); /* Nobody idles while another has more than he runs. */
            job = fw_ready_first(&jobs->ready, lowest, tick);
        }
        if (job == NULL) {
            return;
        }
        bool admitted = fw_cmls_enter(&jobs->word, limits, fw_job_lane(job->flags));
        FW_ASSERT(admitted);
        given = dispatch_assign(jobs, job) == self || given;
    }
    if (given && jobs->policy.hand > 1) {
        fw_jobs_hand_fill(jobs, self, tick); /* No other worker is idle. */
    }
}

/* At the end, once nothing waits and nothing runs that could post, the workers go home. */
static bool dispatch_is_over(struct fw_jobs *jobs) FW_REQUIRES(jobs->role);
static bool dispatch_is_over(struct fw_jobs *jobs)
{
    return jobs->ending && jobs->helping == 0 && fw_ready_count(&jobs->ready) == 0 &&
           atomic_load_explicit(&jobs->word, memory_order_relaxed) == 0 &&
           fw_inbox_is_empty(&jobs->inbox);
}

static void dispatch_farewell(struct fw_jobs *jobs) FW_REQUIRES(jobs->role);
static void dispatch_farewell(struct fw_jobs *jobs)
{
    if (!jobs->dismissed && !dispatch_is_over(jobs)) {
        return;
    }
    while (jobs->idle != NULL) {
        (void)dispatch_assign(jobs, &jobs->sentinel);
    }
}

/* No lane admits one more. */
static bool dispatch_is_full(struct fw_jobs *jobs) FW_REQUIRES(jobs->role);
static bool dispatch_is_full(struct fw_jobs *jobs)
{
    uint64_t limits = atomic_load_explicit(&jobs->worker_limits, memory_order_relaxed);
    uint64_t word = atomic_load_explicit(&jobs->word, memory_order_relaxed);
    return fw_cmls_lowest(word, limits) == FW_JOBS_LANES;
}

static void dispatch_round(struct fw_jobs *jobs) FW_REQUIRES(jobs->role);
static void dispatch_round(struct fw_jobs *jobs)
{
    if (jobs->bell_armed) {
        (void)fw_doorbell_disarm(&jobs->bell);
        jobs->bell_armed = false;
    }
    for (;;) {
        dispatch_collect(jobs);
        if (jobs->open) {
            dispatch_requests(jobs);
        }
        dispatch_farewell(jobs);
        /* Relaxed: a hint for workers that wonder whether to come here at once. */
        atomic_store_explicit(&jobs->backlog, fw_ready_count(&jobs->ready) > 0,
                              memory_order_relaxed);
        if (jobs->idle == NULL || !jobs->open || dispatch_is_full(jobs)) {
            return; /* A worker that ends its request comes by; until then posts change nothing. */
        }
        FW_YIELD_POINT("jobs: found nothing more");
        fw_doorbell_arm(&jobs->bell);
        jobs->bell_armed = true;
        if (fw_inbox_is_empty(&jobs->inbox)) {
            return;
        }
        (void)fw_doorbell_disarm(&jobs->bell);
        jobs->bell_armed = false;
    }
}

static void available_push(struct fw_jobs *jobs, struct fw_jobs_member *member)
{
    struct fw_jobs_member *head = atomic_load_explicit(&jobs->available, memory_order_relaxed);
    do {
        member->available_next = head;
        FW_YIELD_POINT("jobs: about to become available");
        /* Release, for the acquire in dispatch_collect(). */
    } while (!atomic_compare_exchange_weak_explicit(&jobs->available, &head, member,
                                                    memory_order_release, memory_order_relaxed));
}

/* Leaves the news to the holder of the role, or else becomes it. True: now it is the caller. */
static bool dispatch_announce(struct fw_jobs *jobs, struct fw_jobs_member *arriving)
    FW_TSA(try_acquire_capability(true, jobs->role));
static bool dispatch_announce(struct fw_jobs *jobs, struct fw_jobs_member *arriving)
{
    if (arriving != NULL) {
        available_push(jobs, arriving);
    }
    /* Release, for the acquire in fw_jobs_dispatch(): who takes the news finds what it is about. */
    atomic_store_explicit(&jobs->news, true, memory_order_release);
    fw_fence_full(); /* Pairs with that in fw_jobs_dispatch(), after the lock is let go. */
    FW_YIELD_POINT("jobs: announced");
    return fw_mutex_trylock(&jobs->role);
}

void fw_jobs_dispatch(struct fw_jobs *jobs, struct fw_jobs_member *arriving)
{
    if (fw_mutex_trylock(&jobs->role)) {
        if (arriving != NULL) {
            dispatch_idle(jobs, arriving);
        }
    } else if (!dispatch_announce(jobs, arriving)) {
        return;
    }
    bool again;
    do {
        if (atomic_load_explicit(&jobs->news, memory_order_relaxed)) {
            (void)atomic_exchange_explicit(&jobs->news, false, memory_order_acquire);
        }
        fw_jobs_limits_update(jobs);
        dispatch_round(jobs);
        fw_mutex_unlock(&jobs->role);
        fw_fence_full(); /* Pairs with those in dispatch_announce() and slot_wait(). */
        FW_YIELD_POINT("jobs: let go of the role");
        if (atomic_load_explicit(&jobs->slots_wanted, memory_order_relaxed)) {
            fw_jobs_slots_grant(jobs);
        }
        again = atomic_load_explicit(&jobs->news, memory_order_relaxed) &&
                fw_mutex_trylock(&jobs->role);
    } while (again);
}

void fw_jobs_role_lock(struct fw_jobs *jobs)
{
    fw_mutex_lock(&jobs->role);
}

void fw_jobs_role_unlock(struct fw_jobs *jobs)
{
    fw_mutex_unlock(&jobs->role);
    fw_jobs_dispatch(jobs, NULL);
}
