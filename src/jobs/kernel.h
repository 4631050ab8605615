/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the job kernel share. <fairway/jobs.h> says what it does; this page says who
 * may touch what.
 *
 * Two locks, and nothing of one is touched under the other:
 *
 *     front   (FW_RANK_JOBS_FRONT)  who posts and rejoins: the owners, the slots, who waits for
 * them role    (FW_RANK_JOBS_ROLE)   who dispatches: the ready pool, idle workers, what each one
 * runs
 *
 * A request goes round them like this:
 *
 *     post: front --push--> inbox --drain--> ready pool --assign--> worker: run
 *                                 (role)               (role)         |
 *     rejoin: front <--take all-- owner's done list <--push-----------+
 *
 * Both crossings are made for batches. The inbox (jobs/inbox.h) is drained when a request in it may
 * go first, and a done list (jobs/owner.h) is taken whole; so in a busy kernel neither side touches
 * a request that the other has just written, more often than once.
 *
 * The dispatcher's role. The holder of `role` drains the inbox and gives the best requests that the
 * lanes admit to idle workers, until there are no more of one kind. It is taken by try-lock, by
 * whoever has news: a worker that has become available, a poster who finds that workers are idle
 * (the doorbell says so), who changes a limit. Who does not get it leaves its news in `news` (a
 * worker itself on the `available` stack) and goes: the holder looks at `news` after it has let go
 * of the lock. Between the store of one and the load of the other there is a sequentially
 * consistent fence on both sides, so one of the two sees the other's (see base/doorbell.h, where
 * the same argument is spelled out). So no worker waits for a lock in order to get work.
 *
 * Locks are taken role before front where both are needed, which only helping and the dump do.
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/jobs.h>
#include <fairway/log.h>

#include "base/base.h"
#include "base/doorbell.h"
#include "base/list.h"
#include "base/mutex.h"
#include "base/pool.h"
#include "base/thread.h"
#include "jobs/climb.h"
#include "jobs/cmls.h"
#include "jobs/inbox.h"
#include "jobs/metrics.h"
#include "jobs/owner.h"
#include "jobs/ready.h"

FW_LOG_MODULE_USE(jobs);

/* The kernel's bit among a request's flags. */
enum { FW_JOB_CANCELLED = 1 << 8 };

/* A request that a thread runs. Copied, because its memory may be gone before it ends. */
struct fw_jobs_trace;

struct fw_jobs_running {
    struct fw_job *job;
    struct fw_job_runnable *runnable;
    const void *owner;
    struct fw_jobs_owner *record;
    int32_t priority;
    uint32_t flags;
    uint64_t sequence;
    int64_t inspections;
    int64_t begin_ns;
    int64_t run_ns; /* Set by the thread when it ends, if timed. */
    atomic_bool cancelled;
};

struct fw_jobs_handle {
    struct fw_job_native *native;
    void *handle;
    uint32_t depth; /* Of the request that opened it. */
};

/* A thread of the pool. */
struct fw_jobs_member {
    struct fw_jobs *jobs;
    int id;
    struct fw_thread thread;
    struct fw_parker parker;
    struct fw_list_link link; /* In jobs->members, under role. */

    /* A request, or the kernel's sentinel at the end. Release by who assigns, acquire here. */
    _Atomic(struct fw_job *) assigned;
    struct fw_jobs_member *available_next; /* On the stack of the available. */
    struct fw_jobs_member *idle_next;      /* Under role. */

    /*
     * Under role, or under hand_lock by a worker that goes on with its hand: who looks needs both,
     * and the thread itself neither.
     */
    struct fw_jobs_running running[FW_JOBS_DEPTH_MAX];
    uint32_t depth;

    /* See hand.c. Under hand_lock. */
    struct fw_mutex hand_lock;
    struct fw_job *hand[FW_JOBS_HAND_MAX];
    uint32_t hand_first;
    uint32_t hand_end;
    uint32_t hand_ended; /* Requests that ended since the worker last came by. */

    /* The thread's own. */
    struct fw_jobs_handle handles[FW_JOBS_HANDLES_MAX];
    uint32_t handle_count;
    atomic_bool blocked; /* The dump reads it; relaxed. */
};

/* Who waits for a slot. On the waiter's stack, on a list under front. */
struct fw_jobs_slot_waiter {
    struct fw_list_link link;
    struct fw_parker parker;
    uint32_t lane;
    bool is_worker;
    int result; /* 1 while it waits, then 0 or a negative errno. */
};

enum fw_jobs_phase {
    FW_JOBS_CREATED,
    FW_JOBS_RUNNING,
    FW_JOBS_DRAINING,  /* Only requests that run may post. */
    FW_JOBS_ABANDONED, /* Nobody may. */
    FW_JOBS_STOPPED,
};

struct fw_jobs {
    struct fw_jobs_policy policy; /* As created. */
    struct fw_cmls slot_limits;

    /* The posters' side. */
    alignas(FW_CACHE_LINE) struct fw_mutex front;
    enum fw_jobs_phase phase;
    struct fw_owners owners;
    uint64_t slots_taken[FW_JOBS_LANES];
    uint64_t slots_freed_seen[FW_JOBS_LANES]; /* slots_freed, as we last looked. */
    /* How many more the lanes 0 to k may have by that reading, for each k. */
    uint32_t slots_left[FW_JOBS_LANES];
    struct fw_list slot_waiters;
    uint64_t sequence;
    int64_t tick; /* At tick_begin_ns; see jobs_tick(). */
    int64_t tick_begin_ns;
    uint64_t rejoinable; /* Posted ones. */

    /* Between the two sides. What one side writes often is on a line of its own. */
    struct fw_inbox inbox;
    alignas(FW_CACHE_LINE) struct fw_doorbell bell; /* Armed while a worker is idle. */
    alignas(FW_CACHE_LINE) atomic_bool news;
    _Atomic(struct fw_jobs_member *) available;
    atomic_bool slots_wanted; /* Somebody waits for one. */
    _Atomic uint32_t active;  /* Workers that may run at once, without those that blocked add. */
    _Atomic uint32_t blocked; /* Workers in brackets. */
    atomic_bool timing;
    _Atomic int64_t ageing_interval_ns;
    alignas(FW_CACHE_LINE) _Atomic uint64_t slots_freed[FW_JOBS_LANES]; /* By who has the role. */
    _Atomic uint64_t worker_limits; /* Packed sums; written under role. */
    atomic_bool backlog;            /* Some request waits in the ready pool; a hint. */
    /* Running requests per lane, see cmls.h. Written under role, relaxed: others read it to tell.
     */
    _Atomic uint64_t word;

    /* The dispatcher's side. */
    alignas(FW_CACHE_LINE) struct fw_mutex role;
    struct fw_ready ready;
    struct fw_jobs_member *idle; /* Newest first: its cache is the warmest. */
    struct fw_list members;      /* All of them. */
    bool bell_armed;
    bool hands_out;   /* Some worker may have a hand. */
    uint32_t helping; /* Requests that run inside a rejoin. */
    bool open;        /* Requests are dispatched: all workers have been started. */
    bool dismissed;   /* Workers are sent home at once: starting them has failed. */
    bool ending;      /* Workers are sent home once nothing is left. */
    uint32_t next_attached_id;
    uint32_t limits_count; /* Active and blocked workers, for which worker_limits are. */
    struct fw_jobs_metrics metrics;
    struct fw_jobs_trace *trace; /* Constant; NULL: it is off. */
    struct fw_job sentinel;      /* Assigned to workers at the end. */

    /* Threads. */
    struct fw_jobs_member main_member;
    struct fw_jobs_member *workers; /* policy.workers of them. */
    struct fw_jobs_monitor *monitor;
    struct fw_jobs_commands *commands;
};

/* The member that the calling thread is in this kernel, or NULL. */
static inline struct fw_jobs_member *fw_jobs_self(const struct fw_jobs *jobs)
{
    struct fw_jobs_member *member = fw_thread_self()->job_member;
    return member != NULL && member->jobs == jobs ? member : NULL;
}

/* The request that the calling thread runs, or NULL. */
static inline struct fw_jobs_running *fw_jobs_self_running(const struct fw_jobs *jobs)
{
    struct fw_jobs_member *self = fw_jobs_self(jobs);
    return self != NULL && self->depth > 0 ? &self->running[self->depth - 1] : NULL;
}

/* True if the running request may wait for all of these lanes. */
bool fw_jobs_may_wait(const struct fw_jobs *jobs, uint32_t lanes);

/* The present tick of ageing, 0 without it. Under front; role has its own reading. */
int64_t fw_jobs_tick(struct fw_jobs *jobs) FW_REQUIRES(jobs->front);

/*
 * Takes the dispatcher's role, or leaves the news to who has it. `arriving`: a worker that has
 * become available, else NULL.
 */
void fw_jobs_dispatch(struct fw_jobs *jobs, struct fw_jobs_member *arriving) FW_EXCLUDES(jobs->role)
    FW_EXCLUDES(jobs->front);

/*
 * For who needs what belongs to the role for another purpose than dispatching. News may have come
 * meanwhile, so letting go of it means to dispatch once.
 */
void fw_jobs_role_lock(struct fw_jobs *jobs) FW_ACQUIRES(jobs->role) FW_EXCLUDES(jobs->front);
void fw_jobs_role_unlock(struct fw_jobs *jobs) FW_RELEASES(jobs->role) FW_EXCLUDES(jobs->front);

/* Brings all that waits into the ready pool: what was posted, and what workers have in hand. */
void fw_jobs_gather(struct fw_jobs *jobs) FW_REQUIRES(jobs->role);

/* Hands, see hand.c: puts all back; fills that of the caller, a worker; goes on with it. */
void fw_jobs_hands_recall(struct fw_jobs *jobs) FW_REQUIRES(jobs->role);
void fw_jobs_hand_fill(struct fw_jobs *jobs, struct fw_jobs_member *self, int64_t tick)
    FW_REQUIRES(jobs->role);
FW_MUST_CHECK bool fw_jobs_hand_next(struct fw_jobs *jobs, struct fw_jobs_member *self)
    FW_EXCLUDES(jobs->role);

/* Notes which request it is that runs. */
static inline void fw_jobs_running_set(struct fw_jobs_running *running, struct fw_job *job)
{
    running->job = job;
    running->runnable = job->runnable;
    running->owner = job->owner;
    running->record = job->record;
    running->priority = job->priority;
    running->flags = job->flags;
    running->sequence = job->sequence;
    running->begin_ns = 0;
    running->run_ns = 0;
    /* Relaxed: a reader is the thread that is given the request, and learns of that by acquire. */
    atomic_store_explicit(&running->cancelled, false, memory_order_relaxed);
}

/* Gives the slot of a request back that begins. Release, for the acquire in slots_recount(). */
static inline void fw_jobs_slot_free(struct fw_jobs *jobs, uint32_t lane)
{
    if (FW_UNLIKELY(jobs->policy.hand > 1)) {
        atomic_fetch_add_explicit(&jobs->slots_freed[lane], 1, memory_order_release);
        return;
    }
    /* Only the holder of the role writes it. */
    uint64_t freed = atomic_load_explicit(&jobs->slots_freed[lane], memory_order_relaxed);
    atomic_store_explicit(&jobs->slots_freed[lane], freed + 1, memory_order_release);
}

/* Takes a request out of the ready pool and frees its slot. */
void fw_jobs_unready(struct fw_jobs *jobs, struct fw_job *job) FW_REQUIRES(jobs->role);

/* Notes that the member runs it. */
void fw_jobs_note_running(struct fw_jobs *jobs, struct fw_jobs_member *member, struct fw_job *job)
    FW_REQUIRES(jobs->role);
void fw_jobs_note_ended(struct fw_jobs *jobs, struct fw_jobs_member *member)
    FW_REQUIRES(jobs->role);

/* Runs the newest request of the calling member, up to and including its completion. */
void fw_jobs_execute(struct fw_jobs *jobs, struct fw_jobs_member *self);

/* What a request needs to be finished, run or not. */
struct fw_jobs_finish {
    struct fw_job *job;
    struct fw_job_runnable *runnable;
    struct fw_jobs_owner *record;
    uint32_t flags;
};
void fw_jobs_finish(struct fw_jobs *jobs, const struct fw_jobs_finish *finish)
    FW_EXCLUDES(jobs->role) FW_EXCLUDES(jobs->front);

/* Gives free slots to those who wait for one. */
void fw_jobs_slots_grant(struct fw_jobs *jobs) FW_EXCLUDES(jobs->front);

/* All that wait get `error`; with `workers`, also those inside a request. */
void fw_jobs_slots_refuse(struct fw_jobs *jobs, int error, bool workers) FW_REQUIRES(jobs->front);

/* Cancels all that waits and tells all that runs; for FW_JOBS_ABANDON. */
uint64_t fw_jobs_cancel_all(struct fw_jobs *jobs) FW_EXCLUDES(jobs->role);

/* Closes the handles that were opened at `depth` or inside. */
void fw_jobs_handles_close(struct fw_jobs_member *self, uint32_t depth);

/* Members. */
void fw_jobs_member_init(struct fw_jobs_member *member, struct fw_jobs *jobs, int id);
void fw_jobs_worker_run(void *argument);

/* The monitor: start() returns when it runs, with the workers started, or with the error. */
FW_MUST_CHECK int fw_jobs_monitor_create(struct fw_jobs *jobs);
void fw_jobs_monitor_destroy(struct fw_jobs *jobs);
FW_MUST_CHECK int fw_jobs_monitor_start(struct fw_jobs *jobs);
void fw_jobs_monitor_stop(struct fw_jobs *jobs);
void fw_jobs_monitor_wake(struct fw_jobs *jobs); /* A timed command has changed. */
void fw_jobs_monitor_counts(struct fw_jobs *jobs, uint64_t *reviews, uint64_t *adopted);

/* Commands. */
FW_MUST_CHECK int fw_jobs_commands_create(struct fw_jobs *jobs);
void fw_jobs_commands_destroy(struct fw_jobs *jobs);
void fw_jobs_commands_stop(struct fw_jobs *jobs); /* No more are taken; the timed ones are gone. */
uint64_t fw_jobs_commands_count(struct fw_jobs *jobs);
/* Posts the timed commands that are due; returns when the next one is, INT64_MAX for never. */
int64_t fw_jobs_commands_due(struct fw_jobs *jobs, int64_t now_ns);

/* The sums of the limits for the workers that may be active now, if these have changed. */
void fw_jobs_limits_replace(struct fw_jobs *jobs, uint32_t count) FW_REQUIRES(jobs->role);
static inline void fw_jobs_limits_update(struct fw_jobs *jobs) FW_REQUIRES(jobs->role)
{
    /* Relaxed: who changes one of the two comes by afterwards, and dispatching orders that. */
    uint32_t count = atomic_load_explicit(&jobs->active, memory_order_relaxed) +
                     atomic_load_explicit(&jobs->blocked, memory_order_relaxed);
    if (FW_UNLIKELY(count != jobs->limits_count)) {
        fw_jobs_limits_replace(jobs, count);
    }
}
