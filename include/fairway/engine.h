/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: many requests on few threads.
 *
 * A request is a state machine, a *fom*. It runs in steps (*ticks*) that never block. Between two
 * of them it costs its own bytes and nothing else: no thread, no stack. A *locality* is a set of
 * cores that share a cache; a fom has one as its home and runs only there, so what it works on
 * stays in that cache and, for all that belongs to the locality, takes no lock. All localities
 * together are a *domain*.
 *
 *     static enum fw_step copy_tick(struct fw_fom *fom)
 *     {
 *         struct copy *copy = FW_FOM_OF(fom, struct copy);
 *         switch (fom->phase) {
 *         case COPY_READ:
 *             fw_fom_arm(fom, &copy->clink, &copy->input.channel);   1. arm
 *             if (!input_has_data(&copy->input)) {                   2. look
 *                 return fw_fom_wait(fom, COPY_READ);                3. wait
 *             }
 *             return fw_fom_goto(fom, COPY_WRITE);
 *         ...
 *
 * How to wait. A *channel* is where something will happen, a *clink* is a fom's interest in it.
 * Arm, then look, then wait, in this order, and no wake-up is lost: what happens after the look
 * finds the clink armed. Any number of clinks may be armed, and fw_fom_wait_until() adds a time.
 * The first event wakes the fom; when its next tick begins all its clinks are disarmed again, and
 * fw_clink_fired() tells which had fired. A tick may also come for no reason (the fom was moved, or
 * an old event came late): look again, wait again.
 *
 * What may outlive a fom (a job, a reply from afar) keeps no pointer to one but a *ticket*.
 * fw_ticket_wake() may come at any time, from any thread; if that fom is gone it does nothing.
 *
 * How to block. What can only block (a file system call) stands between fw_block_enter() and
 * fw_block_leave(): another thread runs the locality meanwhile. Inside, the fom's own state may be
 * used and nothing of the locality: no channel, no fom, no reactor. Or it is handed to
 * fw_fom_offload(), which runs it on a thread of the server's job kernel.
 *
 * Phases. Every fom begins in INITIALISE, AUTHENTICATE, AUTHORISE, which the domain's owner plugs
 * in once and no type can skip, goes through the phases of its type, which say what may follow
 * what, and ends in FINISHED, by way of FAILED if anything went wrong:
 *
 *     INITIALISE --> AUTHENTICATE --> AUTHORISE --> phases of the type --> FINISHED
 *          |               |              |          |   ^                    ^
 *          |               |              +<---------+   | (may come again)   |
 *          +---------------+--------------+--------------+-----> FAILED ------+
 *
 * A wait that lasts too long ends in FAILED, with -ETIMEDOUT, unless the phase is declared patient.
 * "Too long" adapts to how long waits of that type have taken lately and to the load; it is noticed
 * at most FW_DETECTION_BOUND_NS late. Explicit deadlines are no failures: the fom looks at
 * fw_fom_timed_out() and decides.
 *
 * Threads. One thread per core runs ticks, the holder of the core's *turn*. "On the turn" below
 * means: from a tick, or from a call-back of the locality's reactor, timers or messages. Which
 * functions may be called from elsewhere is said at each. Nothing here may be called from a signal
 * handler.
 *
 * Ownership. Foms live in pools of their locality; a type says how large its struct is. The memory
 * is the fom's until its `finish` has returned. Channels, messages and resources are the users' and
 * stay where they are while they are in use; clinks lie in the fom that uses them.
 *
 * Why not a thread per request: stacks, and a switch through the kernel per wait. Why not
 * coroutines with stacks of their own: a million parked requests would hold a million stacks, a fom
 * holds what it declared; and a phase has a name, so what a request waits for can be seen, bounded
 * and measured. Why not a loop per core that shares nothing and forbids blocking (Seastar): code of
 * others blocks.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fairway/api.h>
#include <fairway/types.h>

struct fw_core;
struct fw_domain;
struct fw_locality;
struct fw_metrics;
struct fw_mutex;
struct fw_fom;
struct fw_channel;

/* ---- phases and types ---------------------------------------------------------------------- */

/* The standard phases. A type's own are counted from FW_PHASE_FIRST. */
enum {
    FW_PHASE_FINISHED,
    FW_PHASE_FAILED,
    FW_PHASE_INITIALISE,
    FW_PHASE_AUTHENTICATE,
    FW_PHASE_AUTHORISE,
    FW_PHASE_FIRST,
    FW_PHASES_MAX = 64,
};
#define FW_PHASE_BIT(phase) (UINT64_C(1) << (phase))

struct fw_phase {
    const char *name;
    /*
     * FW_PHASE_BIT() of every phase that may follow. To stay, and to fail, is always allowed; any
     * other step that is not listed fails the fom with -EPROTO and says so in the log.
     */
    uint64_t next;
    bool is_patient; /* A wait may last for ever: an idle connection's for its next request. */
};

/* What a tick answers. Made by the functions fw_fom_goto() to fw_fom_finish() below. */
enum fw_step { FW_STEP_AGAIN, FW_STEP_YIELD, FW_STEP_WAIT };

enum { FW_FOM_TYPES_MAX = 32, FW_FOM_SIZE_MAX = 64 * 1024 };

struct fw_fom_type {
    const char *name;
    size_t size;                   /* Of the user's struct, which begins with its struct fw_fom. */
    uint32_t limit_count;          /* At most so many at a time on each core. */
    const struct fw_phase *phases; /* phases[0] is FW_PHASE_FIRST. */
    uint32_t phase_count;
    /*
     * The ticks touch nothing but their own struct: they arm nothing, signal nothing, create
     * nothing, set no deadline and do not ask for the time. If one of them blocks outside of a
     * bracket for longer than stall_ns, another thread takes the turn, and this one waits for it
     * when the tick is over. (What follows a bracket in such a tick is as in any other.)
     */
    bool is_self_contained;

    /* In INITIALISE, in its home. 0, or the error to fail with. May be NULL. */
    int (*initialise)(struct fw_fom *fom);
    /* One step in one of the type's phases, or in FAILED: there to end what is under way. */
    enum fw_step (*tick)(struct fw_fom *fom);
    /* The last that the fom is asked: frees what it holds. Does not wait. May be NULL. */
    void (*finish)(struct fw_fom *fom);
    /* Builds with FW_CHECKS assert it before and after each tick. May be NULL. */
    bool (*invariant)(const struct fw_fom *fom);
    /*
     * A type that has these may be moved to another core, between two ticks. `depart` runs on the
     * old turn and lets go of all that is bound to it; false: not now. `arrive` runs on the new
     * one. The next tick comes in any case.
     */
    bool (*depart)(struct fw_fom *fom);
    void (*arrive)(struct fw_fom *fom);
};

/* ---- foms ---------------------------------------------------------------------------------- */

/* 0 is served first; none starves: a level that waits gets its share of every round. */
enum { FW_FOM_PRIORITIES = 4, FW_FOM_PRIORITY_NORMAL = 2 };

/*
 * 120 bytes, of which a tick that only yields touches the first 64. Users read `phase` and
 * `result`; the rest is the engine's.
 */
struct fw_fom {
    _Atomic uint64_t wake_word;     /* See engine/word.h. Stays valid when the fom is gone. */
    _Atomic(struct fw_core *) core; /* Where it runs; changes only there. */
    const struct fw_fom_type *type;
    struct fw_fom *next; /* In a run-queue or on the way to one. */
    int64_t since;       /* When it got into the state it is in. */
    uint64_t id;         /* For traces: never used twice in a domain. */
    uint8_t phase;
    uint8_t next_phase;
    uint8_t priority;
    uint8_t type_number;
    uint16_t flags;
    uint16_t armed; /* Where in the fom the clink is that was armed last; 0: none is. */
    _Atomic uint16_t offload_count; /* Works of it that others are at. */
    uint16_t born;                  /* The core whose pool it came from. */
    uint16_t locality;              /* Its home. */

    struct fw_timer timer; /* Deadline of the wait; on its core's wheel. */
    int32_t result;        /* 0, or the negative errno that it failed with. */
    void *cross_cut;       /* Of fw_domain_config.observer. */
};

#define FW_FOM_OF(fom, struct_type) ((struct_type *)(void *)(fom))

/*
 * Makes a fom of a type that the domain knows, with its home at `home`, or if that is NULL in the
 * caller's locality. All of the user's struct behind the fom is zero. Any thread. Returns 0;
 * -ESHUTDOWN while the domain is not in NORMAL; -ENOMEM if there are too many of the type, or no
 * memory. What was created is started, or given back with fw_fom_discard(). What belongs to the
 * turn (channels, descriptors) is made in `initialise`: which core of its home it gets is open.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_fom_create(struct fw_fom **fom, struct fw_domain *domain,
                                              const struct fw_fom_type *type,
                                              struct fw_locality *home);
FW_PUBLIC void fw_fom_start(struct fw_fom *fom);
FW_PUBLIC void fw_fom_discard(struct fw_fom *fom);

/* From its own ticks, or before it is started. */
FW_PUBLIC void fw_fom_set_priority(struct fw_fom *fom, unsigned priority);

/* A tick ends with one of these six. Go on in `phase`, at once (or, after a quantum, later). */
static inline enum fw_step fw_fom_goto(struct fw_fom *fom, unsigned phase)
{
    fom->next_phase = (uint8_t)phase;
    return FW_STEP_AGAIN;
}

/* Go on in `phase` when all others that are ready have had a tick. */
static inline enum fw_step fw_fom_yield(struct fw_fom *fom, unsigned phase)
{
    fom->next_phase = (uint8_t)phase;
    return FW_STEP_YIELD;
}

/* Go on in `phase` when something armed has happened. */
static inline enum fw_step fw_fom_wait(struct fw_fom *fom, unsigned phase)
{
    fom->next_phase = (uint8_t)phase;
    return FW_STEP_WAIT;
}

/* The same, or when `deadline_ns` has come, by the clock of fw_fom_now(). */
FW_PUBLIC enum fw_step fw_fom_wait_until(struct fw_fom *fom, unsigned phase, int64_t deadline_ns);

/* To FAILED with a negative errno; in FAILED itself, to FINISHED. */
static inline enum fw_step fw_fom_fail(struct fw_fom *fom, int error)
{
    fom->result = error;
    return fw_fom_goto(fom, fom->phase == FW_PHASE_FAILED ? FW_PHASE_FINISHED : FW_PHASE_FAILED);
}

static inline enum fw_step fw_fom_finish(struct fw_fom *fom)
{
    return fw_fom_goto(fom, FW_PHASE_FINISHED);
}

/* For the domain's authenticate and authorise: done, go on with the phase behind. */
static inline enum fw_step fw_fom_next(struct fw_fom *fom)
{
    return fw_fom_goto(fom, fom->phase + 1U);
}

/* In a tick after fw_fom_wait_until(): no event came, the time did. */
FW_PUBLIC bool fw_fom_timed_out(const struct fw_fom *fom);

/* The time at which this round of ticks began, in nanoseconds of a clock that does not go back. */
FW_PUBLIC int64_t fw_fom_now(const struct fw_fom *fom);

FW_PUBLIC struct fw_domain *fw_fom_domain(const struct fw_fom *fom);
FW_PUBLIC struct fw_locality *fw_fom_home(const struct fw_fom *fom);

/*
 * From a tick: the fom goes to `home` when this tick ends, if its type can be moved. Returns 0 or
 * -ENOTSUP.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_fom_move(struct fw_fom *fom, struct fw_locality *home);

/*
 * A reference that may be kept longer than the fom lives, until the domain is destroyed. wake() may
 * be called by any thread, often or never; once the fom has finished, or was failed because it had
 * waited too long or the domain stopped, it does nothing.
 */
struct fw_ticket {
    struct fw_fom *fom;
    uint64_t generation;
};
FW_PUBLIC struct fw_ticket fw_fom_ticket(struct fw_fom *fom); /* From its own ticks. */
FW_PUBLIC void fw_ticket_wake(struct fw_ticket ticket);

/* ---- channels ------------------------------------------------------------------------------ */

struct fw_channel {
    struct fw_list clinks;
    struct fw_core *core;  /* Whose turn it belongs to, or NULL: anyone's. */
    struct fw_mutex *lock; /* Of one that is anyone's. */
    const char *name;      /* For traces and dumps, or NULL. */
};

/* Lies in the struct of the fom that arms it. */
struct fw_clink {
    struct fw_list_link link;
    _Atomic(struct fw_channel *) channel; /* NULL: fired. */
    uint16_t offset;                      /* Where in the fom. */
    uint16_t next;                        /* Where the one is that was armed before; 0: none. */
    uint32_t lock_number;                 /* Of the channel's lock; 0: it is the turn's. */
};

/*
 * A channel of the caller's turn: armed and signalled there and nowhere else, without a lock. When
 * the fom that owns it moves, its `arrive` makes the channel again.
 */
FW_PUBLIC void fw_channel_init(struct fw_channel *channel);

/* One that foms of all localities arm and any thread signals, under a lock. */
FW_PUBLIC void fw_channel_init_shared(struct fw_channel *channel, struct fw_domain *domain);

/*
 * Says what foms wait for here, for traces and dumps: "reply", "room in the journal". After init,
 * before it is used. The text must last as long as the domain: a trace shows what was, when the
 * channel may be gone.
 */
static inline void fw_channel_set_name(struct fw_channel *channel, const char *name)
{
    channel->name = name;
}

/* No clink may be armed. */
FW_PUBLIC void fw_channel_fini(struct fw_channel *channel);

/* Wakes the fom that armed first, if any. True: there was one. */
FW_PUBLIC bool fw_channel_signal(struct fw_channel *channel);

/* Wakes all. Returns how many there were. */
FW_PUBLIC uint32_t fw_channel_broadcast(struct fw_channel *channel);

/* From a tick of `fom`, in whose struct the clink lies; it is of no other channel at the time. */
FW_PUBLIC void fw_fom_arm(struct fw_fom *fom, struct fw_clink *clink, struct fw_channel *channel);

/* Of a clink that was armed before the last wait. Relaxed: the wake-up has ordered it. */
static inline bool fw_clink_fired(const struct fw_clink *clink)
{
    return atomic_load_explicit(&clink->channel, memory_order_relaxed) == NULL;
}

/* ---- resources ----------------------------------------------------------------------------- */

/*
 * Something of which there is a limited amount, given out in the order of asking. A request for
 * much is not overtaken by later ones for little, so nobody starves. Shared by all localities.
 */
struct fw_resource {
    struct fw_mutex *lock;
    uint64_t capacity;
    uint64_t used;
    struct fw_list claims; /* Those that wait, oldest first. */
};

struct fw_claim {
    struct fw_list_link link;
    struct fw_ticket ticket;
    uint64_t amount;
    _Atomic int state; /* 0: none; see resource.c. */
};

FW_PUBLIC void fw_resource_init(struct fw_resource *resource, struct fw_domain *domain,
                                uint64_t capacity);
FW_PUBLIC void fw_resource_fini(struct fw_resource *resource);

/*
 * From a tick: asks for `amount`, at most the capacity. True: granted. False: the fom is woken when
 * it is; call again with the same claim, which tells. The claim stays until fw_resource_put().
 */
FW_PUBLIC FW_API_MUST_CHECK bool fw_resource_get(struct fw_resource *resource, struct fw_fom *fom,
                                                 struct fw_claim *claim, uint64_t amount);

/* Gives back what was granted, or takes the request back; nothing if there was none. Any thread. */
FW_PUBLIC void fw_resource_put(struct fw_resource *resource, struct fw_claim *claim);

/* A lock that foms hold over many ticks: readers take one share, a writer all. Fair. */
struct fw_long_lock {
    struct fw_resource shares;
};
enum { FW_LONG_LOCK_SHARES = 1 << 30 };

static inline void fw_long_lock_init(struct fw_long_lock *lock, struct fw_domain *domain)
{
    fw_resource_init(&lock->shares, domain, FW_LONG_LOCK_SHARES);
}
static inline void fw_long_lock_fini(struct fw_long_lock *lock)
{
    fw_resource_fini(&lock->shares);
}
FW_API_MUST_CHECK static inline bool fw_long_lock_read(struct fw_long_lock *lock,
                                                       struct fw_fom *fom, struct fw_claim *claim)
{
    return fw_resource_get(&lock->shares, fom, claim, 1);
}
FW_API_MUST_CHECK static inline bool fw_long_lock_write(struct fw_long_lock *lock,
                                                        struct fw_fom *fom, struct fw_claim *claim)
{
    return fw_resource_get(&lock->shares, fom, claim, FW_LONG_LOCK_SHARES);
}
static inline void fw_long_unlock(struct fw_long_lock *lock, struct fw_claim *claim)
{
    fw_resource_put(&lock->shares, claim);
}

/* ---- what blocks --------------------------------------------------------------------------- */

/*
 * From a tick, before a call that may block. True: the caller may block, and another thread has the
 * turn. False: too many are blocked already; the fom is woken when it may try again:
 *
 *     if (!fw_block_enter(fom)) {
 *         return fw_fom_wait(fom, fom->phase);
 *     }
 *     ... fsync(fd) ...
 *     fw_block_leave(fom);
 *
 * Pairs may be nested; the inner ones cost nothing and are never refused.
 */
FW_PUBLIC FW_API_MUST_CHECK bool fw_block_enter(struct fw_fom *fom);

/* Behind that call: gets the turn back, and may wait for it. */
FW_PUBLIC void fw_block_leave(struct fw_fom *fom);

/*
 * Work for a thread of someone else, in memory of the fom that asks for it. The fom is woken when
 * it is done, and does not finish before.
 */
struct fw_offload {
    void (*run)(struct fw_offload *work); /* Where it may block; not on the turn. */
    struct fw_ticket ticket;
    struct fw_list_link link; /* For who runs it. */
    atomic_bool is_done;
};

/*
 * From a tick: has `work->run` called by fw_domain_config.offload. Returns what that answered, 0 or
 * a negative errno, -ENOTSUP if there is none.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_fom_offload(struct fw_fom *fom, struct fw_offload *work);

/* For who was given it: runs the work and wakes its fom. On any thread, exactly once. */
FW_PUBLIC void fw_offload_run(struct fw_offload *work);

/* ---- the outside --------------------------------------------------------------------------- */

/*
 * Tells when an open descriptor, of a socket or a pipe, may be read or written: signals `channel`,
 * of the caller's turn, each time that has changed. So read or write until EAGAIN before waiting.
 */
struct fw_descriptor;
FW_PUBLIC FW_API_MUST_CHECK int fw_descriptor_open(struct fw_descriptor **descriptor, int fd,
                                                   struct fw_channel *channel);
/* The channel is signalled no more. Then the fd may be closed. */
FW_PUBLIC void fw_descriptor_close(struct fw_descriptor *descriptor);

/*
 * Something to be done on a locality's turn. The message is the receiver's until `run`. Any thread.
 * Those of one sender arrive in order; who is in a bracket is a sender of its own.
 */
struct fw_message {
    void (*run)(struct fw_message *message);
    struct fw_message *next;
};
FW_PUBLIC void fw_locality_send(struct fw_locality *locality, struct fw_message *message);

/* ---- domains ------------------------------------------------------------------------------- */

/* A time-out is noticed at most this late, as long as no tick lasts longer itself. */
#define FW_DETECTION_BOUND_NS INT64_C(10000000)

/* Something that did not get on for too long. Lent to the call-back. */
struct fw_stall {
    enum { FW_STALL_TICK, FW_STALL_BRACKET, FW_STALL_READY } kind;
    const char *type; /* Of the fom. */
    const char *phase;
    uint64_t fom_id;
    uint32_t core;
    int64_t duration_ns;
    const char *stack; /* One frame per line, or NULL. */
};

/* Looks at every fom of a domain, whatever its type. Each may be NULL; all run on the turn. */
struct fw_observer {
    void (*created)(struct fw_fom *fom, void **cross_cut);
    void (*tick_begins)(struct fw_fom *fom, void **cross_cut);
    void (*tick_ended)(struct fw_fom *fom, void **cross_cut, enum fw_step step);
    void (*finished)(struct fw_fom *fom, void **cross_cut);
};

/*
 * Load between localities: left as it is; levelled by foms that change their homes; or by cores
 * that change their localities, so that foms keep their homes. Between the cores of one locality it
 * is always levelled. Only foms whose type has `depart` move, and those that had no tick yet.
 */
enum fw_balance { FW_BALANCE_OFF, FW_BALANCE_FOMS, FW_BALANCE_CORES };

/* All zero is a sensible domain: one locality per core that the process may use. */
struct fw_domain_config {
    uint32_t locality_count;     /* 0: as the machine suggests. */
    uint32_t cores_per_locality; /* 0: 1, or all of a cache if locality_count says so. */
    bool is_pinned;              /* Threads keep to their CPUs. */
    uint32_t bracket_limit;      /* Threads inside brackets, all localities together. 0: 64. */
    uint32_t spare_limit;        /* Idle threads kept per core. 0: 2. */
    int64_t spare_idle_ns;       /* And for how long. 0: 2 s. */
    int64_t wait_min_ns;         /* Waits are never found too long below this. 0: 1 s. */
    int64_t wait_max_ns;         /* And always above this. 0: 60 s. */
    int64_t stall_ns;            /* A tick, a bracket, a place in the queue is reported. 0: 1 s. */
    enum fw_balance balance;     /* What the domain does on its own when load is uneven. */
    int64_t balance_interval_ns; /* How often. 0: 100 ms. */

    /* Standard phases of every fom. NULL: passed. They answer as a tick, fw_fom_next() for yes. */
    enum fw_step (*authenticate)(struct fw_fom *fom);
    enum fw_step (*authorise)(struct fw_fom *fom);

    /* Has fw_offload_run(work) called on another thread. Returns 0 or a negative errno. */
    int (*offload)(void *context, struct fw_offload *work);
    void *offload_context;

    /*
     * Called by the domain's watchdog, on its own thread, at most once for each stall. May be NULL;
     * the log has it too. A tick's stack is had by interrupting its thread with the signal SIGRTMAX
     * - 1: calls that never restart return EINTR there. If the program has a handler for that
     * signal there are no stacks.
     */
    void (*stalled)(void *context, const struct fw_stall *stall);
    void *stalled_context;

    struct fw_observer observer;

    /* Where the server's metrics are, for the engine's own to be among them. NULL: nowhere. */
    struct fw_metrics *metrics;
};

/*
 * Makes a domain in INIT; no thread runs. Returns 0 or a negative errno, and then the log says why.
 *
 *     INIT --start--> NORMAL --drain--> DRAIN --stop--> STOP --destroy
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_domain_create(struct fw_domain **domain,
                                                 const struct fw_domain_config *config);

/* Makes a type known, in INIT. Returns 0, -ENOMEM, or -EINVAL if the type contradicts itself. */
FW_PUBLIC FW_API_MUST_CHECK int fw_domain_add_type(struct fw_domain *domain,
                                                   const struct fw_fom_type *type);

/* Starts the threads. Returns 0 or a negative errno, and then it is in INIT still. */
FW_PUBLIC FW_API_MUST_CHECK int fw_domain_start(struct fw_domain *domain);

/*
 * No new foms from now on. Those that wait in patient phases fail with -ESHUTDOWN, now or when they
 * next do; the others go on to their ends. Any thread.
 */
FW_PUBLIC void fw_domain_drain(struct fw_domain *domain);

/*
 * Drains, waits until all foms are gone, after `grace_ns` fails those that wait, and ends all
 * threads. Not from a thread of the domain. Returns how many foms had to be failed after the grace.
 */
FW_PUBLIC uint64_t fw_domain_stop(struct fw_domain *domain, int64_t grace_ns);

/* In INIT or STOP. */
FW_PUBLIC void fw_domain_destroy(struct fw_domain *domain);

FW_PUBLIC uint32_t fw_domain_locality_count(const struct fw_domain *domain);
FW_PUBLIC struct fw_locality *fw_domain_locality(struct fw_domain *domain, uint32_t index);

/* A home by affinity: the same key, the same locality. */
FW_PUBLIC struct fw_locality *fw_domain_home_by_key(struct fw_domain *domain, uint64_t key);

/* A home by load: the least busy. */
FW_PUBLIC struct fw_locality *fw_domain_home_by_load(struct fw_domain *domain);

/*
 * Levels load out once, now, between localities too and whatever the domain does on its own: busy
 * cores send some of their foms to idle ones. Any thread.
 */
FW_PUBLIC void fw_domain_balance(struct fw_domain *domain);

/*
 * Takes a core with its threads and its memory from one locality to another. Its foms move to the
 * other cores of their home first. Waits for that; not from a thread of the domain. Returns 0;
 * -EINVAL if the two are the same; -EBUSY, and the log says why, if a fom there cannot be moved or
 * refuses for too long, if it is the last core or if another one is moving; -ESHUTDOWN while the
 * domain is not in NORMAL. Unless it returns 0 the core stays where it was.
 */
FW_PUBLIC FW_API_MUST_CHECK int
fw_domain_move_core(struct fw_domain *domain, struct fw_locality *from, struct fw_locality *to);

/*
 * Quiescence: has everyone who may have seen an object let go of it? From a tick, with a zeroed
 * request: false, and the fom is woken when every thread that runs ticks, and every one attached,
 * has since been at a point where it holds no borrowed reference. Called again with the same
 * request it tells whether that is so. For another round, zero the request.
 */
struct fw_quiescence {
    struct fw_list_link link;
    struct fw_ticket ticket;
    uint64_t target;
    atomic_bool is_passed;
};
FW_PUBLIC FW_API_MUST_CHECK bool fw_domain_quiesce(struct fw_domain *domain, struct fw_fom *fom,
                                                   struct fw_quiescence *quiescence);

/* Takes the request back, for a fom that ends before it was granted. */
FW_PUBLIC void fw_quiescence_cancel(struct fw_domain *domain, struct fw_quiescence *quiescence);

/* A thread of someone else that reads what quiescence protects: between attach and detach it holds
 * no reference except between enter and leave. */
struct fw_participant {
    struct fw_list_link link;
    _Atomic uint64_t seen;
    struct fw_domain *domain;
};
FW_PUBLIC void fw_participant_attach(struct fw_participant *participant, struct fw_domain *domain);
FW_PUBLIC void fw_participant_enter(struct fw_participant *participant);
FW_PUBLIC void fw_participant_leave(struct fw_participant *participant);
FW_PUBLIC void fw_participant_detach(struct fw_participant *participant);

/* ---- what is going on ---------------------------------------------------------------------- */

/*
 * Switches tracing on or off; it is off at first, and costs nothing then. From the next round of
 * each core on it writes down every tick, every wait with its reason and its channels, every
 * wake-up; the newest 16,384 of these per core are kept, in 512 KiB, the oldest overwritten. What
 * was traced stays readable when it is off; to switch it on again begins anew. Any thread. Returns
 * 0 or -ENOMEM.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_domain_trace(struct fw_domain *domain, bool on);

/*
 * Writes the trace as JSON for chrome://tracing or ui.perfetto.dev, through `sink(bytes, length,
 * context)`, which returns 0 or a negative errno. A track per core has a slice per tick, named
 * type:phase, and what happened to foms between; each fom has a track of its own with its waits and
 * what it waited for. Times are in microseconds since tracing was switched on. Stops nobody, so
 * what happens meanwhile may be in it for one core and not for another. Any thread, but better none
 * with a turn: it takes long. Returns 0, -ENOMEM, -ENODATA if it was never switched on, or the
 * sink's error.
 */
FW_PUBLIC FW_API_MUST_CHECK int
fw_domain_trace_write(struct fw_domain *domain,
                      int (*sink)(const char *bytes, size_t length, void *context), void *context);

/*
 * Notes in the trace, if one is on, that something has happened to the fom: an instant on its
 * track. On the turn of its core, in a tick or not. The text must last as long as the domain.
 */
FW_PUBLIC void fw_fom_mark(struct fw_fom *fom, const char *what);

enum { FW_DUMP_LINES_MAX = 10000 };

/*
 * Writes a line for each fom of the domain, at most `lines_max` (or FW_DUMP_LINES_MAX): its type
 * and phase, whether it is ready, waits or is in a bracket, for how long, for what. Then a line
 * that counts. Every core does its share on its turn, one after the other, so foms on their way
 * between two may be missing. From a thread that is none of the domain's, while that runs (in
 * NORMAL or DRAIN) and is not being stopped. Returns 0, -ESHUTDOWN, -EBUSY if another thread is at
 * it, -ENOMEM, or the sink's error.
 */
FW_PUBLIC FW_API_MUST_CHECK int
fw_domain_dump(struct fw_domain *domain, uint32_t lines_max,
               int (*sink)(const char *bytes, size_t length, void *context), void *context);
