/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job kernel: work that blocks or is bulky, run in parallel by a fixed set of threads, by
 * priority, without ever locking itself up.
 *
 *     struct unit { struct fw_job job; ... };
 *
 *     static void unit_run(struct fw_job_runnable *runnable, struct fw_job *job) { ... }
 *     static struct fw_job_runnable units = {.run = unit_run};
 *
 *     rc = fw_jobs_post(jobs, &unit->job, &units, owner, 0, FW_JOB_UNIT | FW_JOB_REJOINABLE);
 *     ...
 *     while (fw_jobs_rejoin_wait(jobs, owner, 0, FW_JOBS_FOREVER, &job) == FW_REJOIN_RETURNED) {
 *         ... one of the owner's requests has been run ...
 *     }
 *     ... here none of them exists any more ...
 *
 * It follows a public document, "Domino eXplorer, component architecture 3". What the document
 * calls by another name:
 *
 *     document                              here
 *     --------                              ----
 *     request, RQE                          struct fw_job, inside the caller's own struct
 *     Runnable, ExecuteThisRequest          struct fw_job_runnable, run()
 *     ThreadManagerPolicy                   struct fw_jobs_policy
 *     ThreadManager, MTExecutive, Start     struct fw_jobs: fw_jobs_create(), fw_jobs_start()
 *     PostARequest, PXR_WAITIF_BUSY         fw_jobs_post(), FW_JOB_WAIT_IF_BUSY
 *     GetRejoinRequest                      fw_jobs_rejoin(), fw_jobs_rejoin_wait()
 *     RJR_RETURNED, _NONE_READY, _NONE_EXIST   enum fw_rejoin
 *     TPOOL_MODE_CMLS                       FW_JOBS_CMLS
 *     PRIO_POLICY_AGERQS                    policy.ageing; the preferential boost: policy.boosting
 *     Ready (Pending) Pool                  policy.slots
 *     Rejoin Pool                           no pool: finished requests are linked to their owner
 *     Thread Pool member                    what fw_jobs_thread_id() numbers
 *     Database Handle Table                 struct fw_job_native, fw_jobs_handle()
 *     Command Handler, message queue        struct fw_jobs_handler, fw_jobs_command()
 *
 * Requests. A request is posted with a runnable, an owner, a priority and flags. Its memory is the
 * caller's; from a successful post it is the kernel's until
 *   - rejoin returns it, if it is FW_JOB_REJOINABLE;
 *   - else `completed` is called, if its runnable has one;
 *   - else run() is called: what nobody waits for may free itself there.
 * The kernel allocates nothing for a request, so nothing but the limits can refuse one.
 *
 *     FREE --post--> POSTED --> READY --dispatch--> BUSY --run--> DONE --rejoin--> FREE
 *
 * Owners. An owner is any address, compared and never followed; NULL is an owner too. In a tree of
 * work the owner of a request is the address of its parent. FW_REJOIN_NONE_EXIST is final: at that
 * moment no request of this owner waits, runs, or is finished and not yet returned.
 *
 * Priority. A larger number is more urgent, equals go in the order they were posted. With ageing a
 * request gains 1 for each interval that it waits, with boosting and FW_JOB_BOOST the boost beside
 * it. A request that its lane holds back is passed over; one that runs is never interrupted. Who
 * prefers throughput may let workers take several requests at once (policy.hand): then one that is
 * posted meanwhile is passed over by at most hand - 1 less urgent ones per worker. Nothing else is
 * relaxed, neither lanes nor owners; docs/relaxed-order.md has figures.
 *
 * Lanes. A request that waits for others keeps its thread. So that there is always a thread left
 * for those it waits for, requests say which level of the hierarchy they are: services (lane 0)
 * that run as long as the program, feeders (lane 1) that post units, units (lane 2), and parts of
 * units (lane 3). A policy limits lanes 0 to 2 to percentages of the threads and of the slots. A
 * request may wait only for lanes that its policy declares, and a policy can declare only lanes
 * above the waiter's own. Any other wait is refused (FW_REJOIN_REFUSED, -EDEADLK) and does not
 * hang. A rejoin is judged by all lanes in which requests of the owner were posted since the owner
 * last had none. So a request cannot wait for itself either: its own lane is one of its owner's.
 *
 * Threads. There are the workers and one monitor, which starts them, reviews settings, times
 * commands, records, and writes the log if asked to. Nobody polls: scheduler and dispatcher are
 * roles that are taken by whoever has news, for a moment. Threads have the document's numbers: 0
 * who made the kernel, 1 to 499 the workers, 500 the monitor, 600 and 700 the roles of scheduler
 * and dispatcher; from 1000 on those that attached themselves.
 *
 * Any thread may call anything here, unless said otherwise. run() and completed() may call post,
 * rejoin, cancel, block-enter and the like, but not stop or destroy. `completed` is short: it runs
 * on the worker, whose lane is taken meanwhile, or for a cancelled request on the thread that
 * cancels.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fairway/api.h>

struct fw_jobs;
struct fw_job;
struct fw_job_level;
struct fw_jobs_owner;
struct fw_jobs_output;

enum {
    FW_JOBS_LANES = 4,
    FW_JOBS_WORKERS_MAX = 499, /* 500 is the monitor. */
    FW_JOBS_SLOTS_MAX = 1 << 24,
    FW_JOBS_OWNERS_MAX = 1 << 24,
    FW_JOBS_HANDLES_MAX = 16, /* Open at once on one thread. */
    FW_JOBS_DEPTH_MAX = 8,    /* Requests inside each other on one thread, see FW_REJOIN_HELP. */
    FW_JOBS_HAND_MAX = 64,    /* Requests that a worker takes at once. */
    FW_JOBS_REASON_SIZE = 512,
    FW_JOBS_COMMAND_SIZE = 256,  /* Of a command line. */
    FW_JOBS_OUTPUT_SIZE = 65536, /* Of a command's answer, before it is laid out. */
    FW_JOBS_COMMANDS_MAX = 64,   /* Under way or timed. */
};

enum fw_jobs_thread_id {
    FW_JOBS_THREAD_MAIN = 0,
    FW_JOBS_THREAD_MONITOR = 500,
    FW_JOBS_THREAD_SCHEDULER = 600,  /* A role: ages requests, by arithmetic alone. */
    FW_JOBS_THREAD_DISPATCHER = 700, /* A role: gives requests to workers. */
    FW_JOBS_THREAD_ATTACHED = 1000,  /* The first of them. */
};

#define FW_JOBS_FOREVER INT64_MAX

/* Flags of a request. Lanes are two bits of them, not to be combined. */
enum fw_job_flag {
    FW_JOB_PART = 0,       /* Lane 3: a part of a unit; waits for nobody. */
    FW_JOB_UNIT = 1,       /* Lane 2: a unit transaction. */
    FW_JOB_FEEDER = 2,     /* Lane 1: generates units. */
    FW_JOB_SERVICE = 3,    /* Lane 0: runs as long as the program does. */
    FW_JOB_REJOINABLE = 4, /* It stays, once run, until a rejoin returns it. */
    FW_JOB_BOOST = 8,      /* Ages faster, if the policy boosts. */
    FW_JOB_WAIT_IF_BUSY = 16,
    FW_JOB_FLAGS = 31,
};

enum fw_job_state {
    FW_JOB_FREE,   /* The caller's. A request starts as zeroed memory. */
    FW_JOB_POSTED, /* Handed to the kernel, not yet among those that wait. */
    FW_JOB_READY,  /* Waits in the order of its priority. */
    FW_JOB_BUSY,
    FW_JOB_DONE, /* Run or cancelled; not yet rejoined. */
};

/* Who executes requests: one object, on many threads at once. Stays while its requests exist. */
struct fw_job_runnable {
    void (*run)(struct fw_job_runnable *runnable, struct fw_job *job);
    /* After run(), or instead of it if the request was cancelled. NULL: none. */
    void (*completed)(struct fw_job_runnable *runnable, struct fw_job *job);
    const char *name; /* For traces, or NULL. Lasts as long as the kernel. */
};

/* A request. Zeroed at first; all its members are the kernel's. */
struct fw_job {
    struct fw_job_runnable *runnable;
    const void *owner;
    int32_t priority;
    uint32_t flags; /* enum fw_job_flag, and the kernel's. */
    _Atomic uint32_t state;
    uint32_t reserved;
    struct fw_jobs_owner *record;
    struct fw_job *next; /* In the one list of the state it is in. */
    struct fw_job *previous;
    int64_t key;       /* Its place among those that wait, see jobs/ready.h. */
    uint64_t sequence; /* Of posting. */
    int64_t posted_ns;
    struct fw_job_level *level;
    struct fw_job *sibling_next; /* Those of the owner that are ready. */
    struct fw_job *sibling_previous;
};

static inline enum fw_job_state fw_job_state(const struct fw_job *job)
{
    /* Relaxed: who acts on the state learnt of it in another way, from rejoin say. */
    return (enum fw_job_state)atomic_load_explicit(&job->state, memory_order_relaxed);
}

/* For who gets it from rejoin or in `completed`: it was cancelled before it ran. */
FW_PUBLIC bool fw_job_was_cancelled(const struct fw_job *job);

static inline uint32_t fw_job_lane(uint32_t flags)
{
    return 3 - (flags & 3);
}

enum fw_jobs_mode {
    FW_JOBS_LANES_WORKERS = 1, /* Lanes limit workers. */
    FW_JOBS_LANES_SLOTS = 2,   /* Lanes limit slots. */
    FW_JOBS_CMLS = 3,          /* Both: constrained multi-lane scheduling. */
    /*
     * Accepts a policy and waits that can hang. It is for those who want to see them hang, and for
     * programs that know better.
     */
    FW_JOBS_UNCHECKED = 4,
};

/* The thread manager's policy. fw_jobs_policy_init() fills it with what suits most. */
struct fw_jobs_policy {
    uint32_t workers; /* The most there will be; at most FW_JOBS_WORKERS_MAX. */
    uint32_t slots;   /* Of requests that wait. */
    uint32_t owners;  /* That may have requests at the same time. */
    uint32_t mode;    /* enum fw_jobs_mode. */
    uint32_t lane_percent[3];
    uint32_t lanes_used; /* Bit l: requests of lane l will be posted. */
    /* Bits of the lanes that a request of this lane may wait for. */
    uint32_t lane_waits_for[FW_JOBS_LANES];
    bool ageing;
    bool boosting;
    int32_t boost; /* Per interval, beside the 1 of ageing. */
    int64_t ageing_interval_ns;
    int64_t review_interval_ns; /* Of the monitor. */
    uint32_t workers_active;    /* How many run requests at once to begin with; 0: all. */
    bool autonomic;             /* The number of active workers follows the throughput. */
    /*
     * The monitor writes the log while the kernel runs. For one kernel of a program, whose log was
     * started without a thread of its own (fw_log_start()).
     */
    bool drain_log;
    bool timing;         /* Measure how long requests wait and run. */
    bool trace;          /* Remember which began and ended, see fw_jobs_trace_visit(). */
    uint32_t idle_spins; /* How often who has to wait looks again before it sleeps. */
    /*
     * How many requests a worker takes at once; 1: the order of priority is strict. At most
     * FW_JOBS_HAND_MAX. While `timing` is on it counts as 1.
     */
    uint32_t hand;
};

struct fw_jobs_reason {
    char text[FW_JOBS_REASON_SIZE]; /* One line for a person. */
};

FW_PUBLIC void fw_jobs_policy_init(struct fw_jobs_policy *policy);

/*
 * Returns 0, or -EINVAL with the reason if a value is out of its limits or the policy can hang: a
 * lane that is used has no share, lane 3 would get none, or a lane waits for itself or below.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_jobs_policy_check(const struct fw_jobs_policy *policy,
                                                     struct fw_jobs_reason *reason);

/*
 * Makes a kernel with no thread yet; the caller becomes thread 0. Returns 0, -EINVAL or -ENOMEM,
 * with the reason, which may be NULL.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_jobs_create(struct fw_jobs **jobs,
                                               const struct fw_jobs_policy *policy,
                                               struct fw_jobs_reason *reason);

/*
 * Starts monitor and workers; returns when the monitor runs and has started them. Returns 0,
 * -EALREADY if it was started before, or what creating a thread said; then nothing runs.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_jobs_start(struct fw_jobs *jobs, struct fw_jobs_reason *reason);

enum fw_jobs_ending {
    FW_JOBS_DRAIN,   /* What was posted is run. Only requests that run may still post. */
    FW_JOBS_ABANDON, /* What waits is cancelled, what runs is told so; nobody may post. */
};

/* What became of all requests ever posted: posted = run + cancelled. */
struct fw_jobs_account {
    uint64_t posted;
    uint64_t run;
    uint64_t cancelled;
    uint64_t unclaimed; /* Of both: those that no rejoin has returned. */
};

/*
 * Ends all threads, after the last request. What is finished can still be rejoined until
 * fw_jobs_destroy(). Not from inside a request. `account` may be NULL. Returns 0, or -EALREADY.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_jobs_stop(struct fw_jobs *jobs, enum fw_jobs_ending ending,
                                             struct fw_jobs_account *account);

/*
 * The kernel was stopped or never started. Requests not yet rejoined are the caller's again. By the
 * thread that created it: another would leave that one thread 0 of a kernel that is gone.
 */
FW_PUBLIC void fw_jobs_destroy(struct fw_jobs *jobs);

/* The policy as created, with the settings in force now. */
FW_PUBLIC void fw_jobs_policy_get(struct fw_jobs *jobs, struct fw_jobs_policy *policy);

/*
 * Posts `job`, which is FREE, and does not wait for its execution. Returns 0, or
 *   -EAGAIN     all slots are taken,
 *   -EBUSY      there are slots, but not for this lane;
 *               both only without FW_JOB_WAIT_IF_BUSY, which waits until there is room,
 *   -EDEADLK    it would have to wait for room, in a lane for which the running request may not,
 *   -EINVAL     flags that mean nothing, or a lane that the policy does not use,
 *   -ENOMEM     too many owners,
 *   -ESHUTDOWN  the kernel is stopping.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_jobs_post(struct fw_jobs *jobs, struct fw_job *job,
                                             struct fw_job_runnable *runnable, const void *owner,
                                             int32_t priority, uint32_t flags);

enum fw_rejoin {
    FW_REJOIN_RETURNED,   /* *job is a finished request, and the caller's. */
    FW_REJOIN_NONE_READY, /* Some wait or run, none is finished. */
    FW_REJOIN_NONE_EXIST, /* The owner has no request. */
    FW_REJOIN_REFUSED,    /* The running request may not wait for the lanes of this owner. */
};

/* Returns a finished request of `owner`, each exactly once, in the order they were finished. */
FW_PUBLIC enum fw_rejoin fw_jobs_rejoin(struct fw_jobs *jobs, const void *owner,
                                        struct fw_job **job);

enum fw_rejoin_flag {
    /*
     * While it waits, the thread itself runs requests of this owner, on the share of the request
     * that waits. Never those of another. It looks once before each sleep. Only threads that are
     * members do: workers, and those attached.
     */
    FW_REJOIN_HELP = 1,
};

/* The same, but waits up to `timeout_ns` while none is ready. NONE_READY: the time was over. */
FW_PUBLIC enum fw_rejoin fw_jobs_rejoin_wait(struct fw_jobs *jobs, const void *owner,
                                             uint32_t flags, int64_t timeout_ns,
                                             struct fw_job **job);

/*
 * Cancels the requests of `owner` that wait: they are finished without having run. Those that run
 * are told so by fw_jobs_is_cancelled(). Returns how many were cancelled.
 */
FW_PUBLIC uint64_t fw_jobs_cancel(struct fw_jobs *jobs, const void *owner);

/* For a request that runs: its owner's requests were cancelled, or the kernel is abandoned. */
FW_PUBLIC bool fw_jobs_is_cancelled(struct fw_jobs *jobs);

/*
 * A request that runs brackets a call that blocks for long, so that another worker may be active in
 * its place while there are more workers than active ones. The lane stays taken. Pairs nest not.
 */
FW_PUBLIC void fw_jobs_block_enter(struct fw_jobs *jobs);
FW_PUBLIC void fw_jobs_block_leave(struct fw_jobs *jobs);

/*
 * Makes the calling thread, which the kernel did not create, a member with a number; posting and
 * rejoining work without, handles and helping do not. Returns 0, -EBUSY if the thread is a member
 * of a kernel already, or -ENOMEM. Who attaches detaches, before destroy().
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_jobs_attach(struct fw_jobs *jobs);
FW_PUBLIC void fw_jobs_detach(struct fw_jobs *jobs);

/* The number of the calling thread, or -ESRCH if it is no member. */
FW_PUBLIC int fw_jobs_thread_id(struct fw_jobs *jobs);

/*
 * Something that only one thread may use at a time, and that every thread may open for itself: a
 * database, a file with a position. A thread's handle is opened when it first asks inside a
 * request and closed, by that thread, at the end of the request; or when it detaches.
 */
struct fw_job_native {
    int (*open)(struct fw_job_native *native, void **handle); /* 0 or a negative errno. */
    void (*close)(struct fw_job_native *native, void *handle);
    _Atomic uint32_t word; /* The kernel's, as the next. */
    void *waiter;
};

/*
 * This thread's handle of `native`. Returns 0, -ESHUTDOWN if the native is being closed, -ESRCH if
 * the thread is no member, -EMFILE if it has too many, or what open() said.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_jobs_handle(struct fw_jobs *jobs, struct fw_job_native *native,
                                               void **handle);

/*
 * Closes the caller's own handle and waits until every other thread has closed its own; from then
 * on the native can be freed. One caller at a time. A request may call it only if none that it
 * waits for uses the native.
 */
FW_PUBLIC void fw_jobs_native_close(struct fw_jobs *jobs, struct fw_job_native *native);

/* What can be changed while the kernel runs. The monitor adopts it within a review interval. */
enum fw_jobs_setting {
    FW_JOBS_SET_WORKERS_ACTIVE,
    FW_JOBS_SET_AGEING_INTERVAL_NS,
    FW_JOBS_SET_REVIEW_INTERVAL_NS,
    FW_JOBS_SET_AUTONOMIC,
    FW_JOBS_SET_TIMING,
    FW_JOBS_SETTINGS,
};

/* Returns 0, or -EINVAL if the value is out of its limits. */
FW_PUBLIC FW_API_MUST_CHECK int fw_jobs_set(struct fw_jobs *jobs, enum fw_jobs_setting setting,
                                            int64_t value);

enum { FW_JOBS_CLASSES = 4 }; /* Of priority: below 0, 0, 1 to 9, and above. */

/* Of the requests that were timed. */
struct fw_jobs_latency {
    uint64_t count;
    uint64_t median_ns;
    uint64_t p99_ns;
    uint64_t max_ns;
};

struct fw_jobs_statistics {
    uint64_t posted;
    uint64_t refused_pool; /* -EAGAIN. */
    uint64_t refused_lane; /* -EBUSY. */
    uint64_t waited;       /* Posts that had to wait for room. */
    uint64_t run;
    uint64_t cancelled;
    uint64_t unclaimed;
    uint64_t helped; /* Of those run: by a rejoin that waited. */
    uint32_t waiting[FW_JOBS_LANES];
    uint32_t running[FW_JOBS_LANES];
    uint32_t workers;
    uint32_t active;   /* That may run requests at once. */
    uint32_t blocked;  /* In brackets. */
    uint64_t reviews;  /* Of the monitor. */
    uint64_t adopted;  /* Settings. */
    uint64_t commands; /* Run. */
    struct fw_jobs_latency wait_lane[FW_JOBS_LANES];
    struct fw_jobs_latency run_lane[FW_JOBS_LANES];
    struct fw_jobs_latency wait_class[FW_JOBS_CLASSES];
};

FW_PUBLIC void fw_jobs_statistics(struct fw_jobs *jobs, struct fw_jobs_statistics *statistics);

/* Of one owner, as long as a request of its exists. */
struct fw_jobs_owner_statistics {
    uint64_t waiting;
    uint64_t dispatched;
    uint64_t done;   /* Finished and not yet rejoined. */
    int64_t wait_ns; /* Of those dispatched, in sum, where timed. */
    int64_t run_ns;
};

/* Returns 0, or -ENOENT if the owner has no request. */
FW_PUBLIC FW_API_MUST_CHECK int
fw_jobs_owner_statistics(struct fw_jobs *jobs, const void *owner,
                         struct fw_jobs_owner_statistics *statistics);

/* In a trace: a request began or ended. */
struct fw_jobs_event {
    int64_t time_ns;  /* Of the clock that does not go back. */
    const char *name; /* Of its runnable. */
    int32_t thread;   /* Which ran it. */
    uint8_t lane;
    bool is_begin;
};

/* Shows what is kept, the oldest first; none if it was never switched on. Workers wait meanwhile.
 */
FW_PUBLIC void fw_jobs_trace_visit(struct fw_jobs *jobs,
                                   void (*visit)(const struct fw_jobs_event *event, void *context),
                                   void *context);

/*
 * Commands: lines of text, as they come from an administrator. They run on a worker, in lane 3 and
 * before everything else that waits there, so that one that blocks stops neither monitor nor log.
 * `help` lists them. The system's own: status, pools, lanes, settings, set, threads, log, owner.
 */
struct fw_jobs_command {
    const char *name;
    const char *help; /* A phrase. */
    /* `arguments`: what follows the name, without spaces around it. 0 or a negative errno. */
    int (*run)(void *context, struct fw_jobs *jobs, const char *arguments,
               struct fw_jobs_output *output);
};

/* The application's commands. One with the name of a system command replaces it. */
struct fw_jobs_handler {
    const struct fw_jobs_command *commands;
    size_t count;
    void *context;
};

/* NULL: none. The handler stays until another is attached and no command runs. */
FW_PUBLIC void fw_jobs_attach_handler(struct fw_jobs *jobs, const struct fw_jobs_handler *handler);

/*
 * What a command answers. Figures come first, then rows of tables and text. The rows of a table
 * have the same cells in the same order and come one after the other; from the first row on figures
 * are its cells. How it looks is not the command's business: people see lists and tables, and a
 * line with `json` before the command is answered by one JSON object, with figures as members and
 * an array of objects for each table. What goes beyond FW_JOBS_OUTPUT_SIZE is cut, and the answer
 * says so. Names are like those of variables.
 */
FW_PUBLIC void fw_jobs_row(struct fw_jobs_output *output, const char *table);
FW_PUBLIC void fw_jobs_number(struct fw_jobs_output *output, const char *name, int64_t value);
FW_PUBLIC void fw_jobs_text(struct fw_jobs_output *output, const char *name, const char *format,
                            ...) __attribute__((format(printf, 3, 4)));

/* Text for people, above all why a command has failed. In JSON it is an array, `text`. */
FW_PUBLIC void fw_jobs_print(struct fw_jobs_output *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The answer, on a worker. `status` is what the command returned, -ENOENT if there is no such. */
typedef void fw_jobs_answer(void *context, int status, const char *text, size_t length);

/*
 * Hands a command in. Returns 0, and then `answer` is called exactly once; or -EMSGSIZE, -EAGAIN if
 * there are too many, -ENOMEM, -ESHUTDOWN. If the kernel ends first, the answer is -ECANCELED.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_jobs_command(struct fw_jobs *jobs, const char *line,
                                                fw_jobs_answer *answer, void *context);

/*
 * The same every `interval_ns`, the first time one interval from now, until the kernel stops or
 * fw_jobs_command_cancel() is called with the number that is returned. If a run is still under way
 * when the next is due, that one is left out. The last answer, and only that, is -ECANCELED: from
 * then on `context` may be freed. It may come on the thread that cancels or stops.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_jobs_command_every(struct fw_jobs *jobs, const char *line,
                                                      int64_t interval_ns, fw_jobs_answer *answer,
                                                      void *context);
FW_PUBLIC void fw_jobs_command_cancel(struct fw_jobs *jobs, int number);
