/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a core is made of; private to the engine.
 *
 * A locality is a set of cores, and a core is what has a turn: a run-queue, a reactor, a timer
 * wheel, pools. One thread at a time holds the turn and touches these; nothing here takes a lock
 * for them. With one core per locality, the default, the two are the same thing. With several, each
 * has its own of everything and foms pass between them by message, as between localities, but stay
 * at home. The other way, several threads sharing one run-queue and one reactor, was rejected: the
 * document's "atomic with respect to other handler threads" would be a lock around every step, and
 * a fom could not use its reactor without another.
 *
 * Who may touch what is said at each group of members: the turn's, anyone's, or under a lock.
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/engine.h>

#include "base/base.h"
#include "base/doorbell.h"
#include "base/list.h"
#include "base/mutex.h"
#include "base/pool.h"
#include "base/spsc.h"
#include "base/thread.h"
#include "base/wheel.h"
#include "engine/metrics.h"
#include "engine/queue.h"
#include "engine/trace.h"
#include "io/reactor.h"
#include "io/stack.h"
#include "io/topology.h"

enum {
    FW_CORES_MAX = 256,
    FW_FOM_QUANTUM = 16,   /* Steps that a fom goes on for before it goes behind the others. */
    FW_CHANNEL_LOCKS = 64, /* For shared channels and resources, in turn. */
};

/* In fw_fom.flags; the turn's. */
enum fw_fom_flag {
    FW_FOM_IS_LIMITED = 1 << 0,   /* The wait has the domain's limit. */
    FW_FOM_HAS_DEADLINE = 1 << 1, /* The wait has a deadline of its own. */
    FW_FOM_TIMED_OUT = 1 << 2,    /* The deadline came. */
    FW_FOM_OVERDUE = 1 << 3,      /* The limit came. */
    FW_FOM_IN_TICK = 1 << 4,      /* The guard against running twice at once. */
    FW_FOM_WANTS_PERMIT = 1 << 5, /* block_enter() refused it. */
    FW_FOM_HAS_PERMIT = 1 << 6,   /* It may enter a bracket. */
    FW_FOM_IS_MOVING = 1 << 7,    /* Has departed and not arrived; in a tick, about to depart. */
    FW_FOM_IS_FRESH = 1 << 8,     /* Has not had a tick. */
    FW_FOM_WAS_PATIENT = 1 << 9,  /* The wait that ended was one in a patient phase. */
};

/*
 * A thread that runs a core, or waits to. Its thread state's `turn` is the core while it does.
 *
 *     IDLE <--- RUNNING <---> BRACKET, or a tick that was relieved of the turn
 *       |          ^
 *       +----------+  unparked with has_turn, or with must_exit
 */
struct fw_handler {
    struct fw_thread thread;
    struct fw_parker parker;
    struct fw_core *core;
    struct fw_list_link link;  /* In core->handlers; under the core's lock. */
    struct fw_list_link place; /* In core->idle, core->returning or core->bracketed. */
    bool has_turn;             /* Given by who had it, under the lock. */
    bool must_exit;            /* Under the lock. */
    bool has_exited;           /* Under the lock: may be joined. */
    bool is_watched;           /* Under the lock: not now, the watchdog looks at it. */
    bool is_reported;          /* Under the lock: the watchdog has told of this bracket. */
    uint32_t depth;            /* Of brackets; the thread's own. */
    bool is_unrelieved;        /* In a bracket, but the turn could not be given away. */
    struct fw_fom *fom;        /* In the bracket; under the lock. */
    int64_t since;             /* When that began; under the lock. */
    uint64_t exposure;         /* Number of the exposed tick it is in, or 0; its own. */
    struct fw_stack_subject subject;
    struct fw_participant safety; /* For quiescence. */
};

/*
 * What the watchdog can see of the tick under way, beside the count of ticks. The turn writes, by
 * release, which costs nothing on x86; the watchdog reads, by acquire, the id first and last. So it
 * has never the one of a fom and the other of the next: who reads something written for a later
 * tick also finds a later count or id. (The fom itself is not its to look at.) Between two ticks of
 * a round the board shows the one before.
 */
struct fw_tick_board {
    _Atomic uint64_t fom_id;
    _Atomic uint32_t phase;
    _Atomic uint32_t turn_count;              /* How often the turn was given to a thread. */
    _Atomic(const struct fw_fom_type *) type; /* NULL: no tick. */
    _Atomic(struct fw_handler *) handler;     /* Who has the turn, or had it last. */
};

/* A fom that has been ready for too long: the turn's to fill while empty, else the watchdog's. */
struct fw_late_board {
    atomic_bool is_full;
    const struct fw_fom_type *type;
    uint64_t fom_id;
    unsigned phase;
    int64_t duration_ns;
};

/* Between this core and one other, in this direction; the sender's turn. */
struct fw_route {
    struct fw_spsc ring;
    uintptr_t overflow_first; /* Mail that the full ring did not take, oldest first; or 0. */
    uintptr_t overflow_last;
    bool is_pushed; /* Since the bell was last rung. */
};

/* A round that is measured, for metrics; the turn's. See sample.c. */
struct fw_sample {
    uint64_t round; /* Its number, or 0: none is. */
    uint64_t begun; /* In ticks of the clock, as all below. */
    uint64_t in_ticks;
    uint64_t asleep;
};

/* One of the locks that shared channels and resources take by turns. */
struct fw_shared_lock {
    struct fw_mutex mutex; /* FW_RANK_CHANNEL */
    struct fw_domain *domain;
};

/* How long waits of a type take here; the turn's. See limit.c. */
struct fw_wait_estimate {
    int64_t peak_ns;   /* The longest lately. */
    int64_t missed_ns; /* The same, if those that failed had not. */
};

/* How many foms are ready, as an area under time; the turn's. See balance.c. */
struct fw_load {
    int64_t from;      /* The window began. */
    int64_t mark;      /* The area is up to date until here. */
    uint64_t area;     /* In foms times nanoseconds. */
    uint32_t ready;    /* So many are since then. */
    int64_t window_ns; /* Constant. */
};

enum { FW_LOAD_SHIFT = 10, FW_LOAD_ONE = 1 << FW_LOAD_SHIFT };

struct fw_core {
    /* Set when the domain is made, constant. */
    struct fw_domain *domain;
    uint32_t index;
    struct fw_cpu cpu;
    struct fw_reactor *reactor;

    /* The turn's. */
    struct fw_handler *holder;
    struct fw_fom *fom;   /* In a tick now, or the last that was in one in this round. */
    bool is_observed;     /* The domain has an observer of ticks. */
    int64_t now;          /* When this round began. */
    uint32_t round_ticks; /* How many ticks it may have; see run.c. */
    struct fw_queue queue;
    struct fw_queue_level permit_queue; /* Foms that wait for leave to enter a bracket. */
    struct fw_wheel wheel;
    struct fw_pool *pools;              /* One per type. */
    struct fw_wait_estimate *estimates; /* One per type. */
    int64_t queue_delay_ns;             /* Mean time between wake-up and tick, lately. */
    bool is_late;                       /* The oldest ready fom is so for too long, and told of. */
    uint64_t exposure_count;            /* Of exposed ticks so far, see turn.c. */
    struct fw_route *routes;            /* One per core; that to itself is not used. */
    uint32_t routes_pushed;             /* How many have is_pushed, or an overflow. */
    uint64_t next_id;
    int64_t complained_at;     /* When the log was last told of a fom that failed. */
    uint64_t complaints;       /* Since then. */
    uint32_t descriptor_count; /* Open, or closed and not let go of. */
    struct fw_metrics_engine *metrics;
    bool is_watched;        /* It is observed, or this round traced or measured. */
    bool was_woken;         /* From its sleep, by another thread, and has had no tick since. */
    struct fw_trace *trace; /* NULL: tracing is off. */
    struct fw_sample sample;
    int64_t slept_ns; /* When it last fell asleep. */
    struct fw_load load;
    uint32_t shed_count;     /* So many of the next foms that can move are to, see balance.c. */
    struct fw_core *shed_to; /* Where to; NULL: to any other core of their home. */
    struct fw_locality *shed_home; /* And what their home is then. */
    int64_t balance_at;            /* When it next compares itself with the others. */
    int64_t settled_at;            /* Before that its load does not show yet what was moved. */
    uint32_t leave_tries;          /* See leave.c. */
    struct fw_timer leave_timer;
    struct fw_message leave_message;

    /* Anyone's. */
    alignas(
        FW_CACHE_LINE) _Atomic uintptr_t inbox; /* Mail of senders without a turn, newest first. */
    struct fw_doorbell bell;                    /* Rung after mail was left anywhere. */
    alignas(FW_CACHE_LINE) _Atomic uint64_t tick_count; /* Written by the turn, read by anyone. */
    _Atomic uint32_t queue_length;                      /* The same. */
    struct fw_tick_board board;                         /* The same. */
    struct fw_late_board late;
    _Atomic uint64_t exposed;                /* Number of the tick that may lose its turn, or 0. */
    _Atomic int64_t live_count;              /* Foms created here, less those finished here. */
    _Atomic uint32_t returning_count;        /* Threads that want their turn back. */
    _Atomic(struct fw_trace *) trace_wanted; /* What `trace` is to be from the next round on. */
    _Atomic int64_t woken_ns;                /* When another thread began to wake it. */
    _Atomic uint32_t load_lately;    /* The turn's: mean number of ready foms, in FW_LOAD_ONEs. */
    _Atomic int64_t asleep_since;    /* The same; 0: it is awake. */
    _Atomic uint32_t resident_count; /* The same: foms that live here, whatever they do. */
    _Atomic uint32_t bound_count;    /* The same: those of them that had a tick and cannot move. */
    atomic_bool is_leaving;          /* The same: it wants to leave its locality. */
    atomic_bool must_level;          /* fw_domain_balance() was called. */
    _Atomic int64_t claimed_until;   /* Until then one core sends it foms, and no other may. */
    atomic_bool must_exit;
    atomic_bool must_stir;    /* Its foms are to notice that the domain's state has changed. */
    atomic_bool wants_permit; /* Has foms in permit_queue. */
    _Atomic(struct fw_locality *) locality; /* Changes only on its own turn. */

    /* Under the lock. */
    alignas(FW_CACHE_LINE) struct fw_mutex lock; /* FW_RANK_ENGINE. */
    struct fw_list handlers;                     /* All threads. */
    struct fw_list idle;
    struct fw_list returning;
    struct fw_list bracketed;
    uint32_t idle_count;

    struct fw_trace *trace_ring; /* NULL: never traced. Under the domain's lock. */
};

struct fw_leave_waiter;

struct fw_locality {
    struct fw_domain *domain;
    uint32_t index;
    /*
     * cores[0] never changes; the others do when cores move, under the domain's lock. Who reads
     * without it may find one that has just left: it sends on what is not for it, see leave.c.
     */
    _Atomic uint32_t core_count;
    _Atomic(struct fw_core *) cores[FW_CORES_MAX];
};

/* What the watchdog remembers of a core from one look to the next. */
struct fw_watched {
    uint64_t tick_count;
    uint32_t turn_count;
    bool is_in_tick;
    bool is_reported;
    int64_t since; /* When it was first seen in this tick. */
};

/* The domain's monitor; see watchdog.c. */
struct fw_watchdog {
    struct fw_thread thread;
    struct fw_parker parker;
    atomic_bool must_exit;
    struct fw_watched *cores; /* One per core, its own. */
    char *text;               /* For a stack. */
    uint32_t told_count;      /* Stalls of this look; its own. */
    bool is_running;          /* For who starts and stops it. */
};

enum fw_domain_state { FW_DOMAIN_INIT, FW_DOMAIN_NORMAL, FW_DOMAIN_DRAIN, FW_DOMAIN_STOP };

struct fw_domain {
    /* Set before the domain is started, constant then. */
    struct fw_domain_config config;
    const struct fw_fom_type *types[FW_FOM_TYPES_MAX];
    uint32_t type_count;
    struct fw_topology topology;
    struct fw_core *cores; /* An array. */
    uint32_t core_count;
    struct fw_locality *localities; /* An array. */
    uint32_t locality_count;

    /* Anyone's; read with every tick, and seldom written. */
    alignas(FW_CACHE_LINE) _Atomic uint32_t state; /* enum fw_domain_state. */
    atomic_bool is_killing;                        /* The grace is over: foms that wait fail. */
    _Atomic uint64_t epoch;                        /* Of quiescence, see quiesce.c. */

    /* Anyone's. */
    alignas(FW_CACHE_LINE) _Atomic int64_t live_count; /* Foms created without a turn. */
    _Atomic uint64_t killed_count; /* Foms that failed because the grace was over. */
    _Atomic int32_t permits;       /* Brackets that may still be entered. */
    struct fw_parker stopper;      /* Who waits for the last fom. */
    struct fw_parker dumper;       /* Who waits for a dump. */
    _Atomic uint32_t next_relief;  /* Where to look first for a core that wants a permit. */
    _Atomic uint32_t next_lock;    /* Of channel_locks. */
    _Atomic uint32_t next_home;    /* Where to begin to look for the least busy. */

    struct fw_shared_lock channel_locks[FW_CHANNEL_LOCKS];
    struct fw_metrics_engine *metrics; /* Of threads without a turn; always by atomic addition. */

    struct fw_watchdog watchdog;

    struct fw_mutex lock;          /* FW_RANK_DOMAIN; guards what follows. */
    struct fw_pool *foreign_pools; /* Of foms created without a turn; one per type. */
    uint64_t foreign_id;
    struct fw_list participants;
    struct fw_list quiescences;
    bool is_tracing;
    bool is_dumping;
    int64_t trace_epoch_ns;            /* Times in an exported trace count from here. */
    _Atomic(struct fw_core *) leaving; /* Written under the lock; NULL: no core is. See leave.c. */
    struct fw_locality *leaving_to;
    struct fw_leave_waiter *leave_waiter; /* Who asked for it, or NULL. */
    int64_t core_move_at;                 /* Before that none moves unless it is told to. */
};

/* The core whose turn the calling thread has, or NULL. */
static inline struct fw_core *fw_core_self(void)
{
    return fw_thread_self()->turn;
}

/* Its locality, for the core itself, which alone changes it. */
static inline struct fw_locality *fw_core_locality(const struct fw_core *core)
{
    return atomic_load_explicit(&core->locality, memory_order_relaxed);
}

/* Adds to a figure that the turn alone writes; relaxed, others only compare. */
static inline void fw_figure_add(_Atomic uint32_t *figure, int32_t change)
{
    uint32_t before = atomic_load_explicit(figure, memory_order_relaxed);
    atomic_store_explicit(figure, before + (uint32_t)change, memory_order_relaxed);
}

/* That of a fom, for its own core or for who has won it: relaxed, the winning has ordered it. */
static inline struct fw_core *fw_fom_core(const struct fw_fom *fom)
{
    return atomic_load_explicit(&fom->core, memory_order_relaxed);
}

static inline enum fw_domain_state fw_domain_state(const struct fw_domain *domain)
{
    return (enum fw_domain_state)atomic_load_explicit(&domain->state, memory_order_acquire);
}

/* The turn: says to others which phase the fom is in that has a tick. */
static inline void fw_core_show_phase(struct fw_core *core, const struct fw_fom *fom)
{
    atomic_store_explicit(&core->board.phase, fom->phase, memory_order_release);
}

/* The turn: says which fom is in a tick, NULL for none, to who asks on the turn and to others. */
static inline void fw_core_show(struct fw_core *core, struct fw_fom *fom)
{
    core->fom = fom;
    struct fw_tick_board *board = &core->board;
    if (fom != NULL) {
        atomic_store_explicit(&board->fom_id, fom->id, memory_order_release);
        fw_core_show_phase(core, fom);
    }
    atomic_store_explicit(&board->type, fom != NULL ? fom->type : NULL, memory_order_release);
}

/* run.c */

/* The core's loop, until `handler` has to give the turn to another or the core ends. */
void fw_core_run(struct fw_core *core, struct fw_handler *handler);

/* fom.c */

/* Up to so many visits of foms from the run-queue. */
void fw_core_run_ticks(struct fw_core *core, uint32_t count);

/* Puts a READY fom into the run-queue of this core. */
void fw_fom_enqueue(struct fw_core *core, struct fw_fom *fom);

/* The winner of a fom takes it to its core. */
void fw_fom_deliver(struct fw_fom *fom);

/* Any thread that knows it to be alive. */
void fw_fom_wake(struct fw_fom *fom);

/* Takes the memory of a fom that is gone back, on the core it was born on. */
void fw_fom_free(struct fw_core *core, struct fw_fom *fom);

/* Sends a READY fom in no queue to another core and home. False: it does not want to, and stays. */
bool fw_fom_depart(struct fw_core *core, struct fw_fom *fom, struct fw_core *to,
                   struct fw_locality *home);

/*
 * Wakes foms that were born here: all, so that they notice a change of the domain's state; or while
 * that is NORMAL those that live on a core that is leaving.
 */
void fw_core_stir(struct fw_core *core);
void fw_domain_stir_foreign(struct fw_domain *domain);
void fw_domain_stir(struct fw_domain *domain); /* On all cores, and the foreign ones. */

/* For people. */
const char *fw_phase_name(const struct fw_fom_type *type, unsigned phase);

/* channel.c */
void fw_fom_disarm(struct fw_fom *fom);

/* The clink at that place of the fom; NULL for 0. The first is at fom->armed, then clink->next. */
struct fw_clink *fw_fom_clink(struct fw_fom *fom, uint32_t offset);

/* On the turn of the clink's fom, which waits. False: it has fired. */
bool fw_clink_name(struct fw_clink *clink, const char **name);

/* One of the domain's locks, for an object that all threads share. */
struct fw_mutex *fw_domain_pick_lock(struct fw_domain *domain);

/* domain.c */
int64_t fw_domain_live_count(struct fw_domain *domain);

/* turn.c */

/* Makes a thread that has the turn, which the caller has given up, or that nobody had. */
FW_MUST_CHECK int fw_core_add_handler(struct fw_core *core);
void fw_domain_release_permit(struct fw_domain *domain);
void fw_core_queue_for_permit(struct fw_core *core, struct fw_fom *fom);
void fw_core_take_permits(struct fw_core *core);
/* Makes those who wait for one ready: they are to ask again elsewhere. */
void fw_core_dismiss_permits(struct fw_core *core);
void fw_core_join(struct fw_core *core);

/*
 * Around a tick of a self-contained type: in between the turn may be another thread's. The second
 * gets it back, unless the tick has done so itself by entering a bracket.
 */
void fw_turn_expose(struct fw_core *core);
void fw_turn_settle(struct fw_core *core, struct fw_fom *fom);

/*
 * The watchdog: takes the turn from the exposed tick of that number and gives it to a spare thread.
 * Returns 0; -EAGAIN if the tick is over, -EBUSY if as many threads are blocked as may be, or why
 * no thread could be made.
 */
FW_MUST_CHECK int fw_turn_revoke(struct fw_core *core, uint64_t exposure);

/* watchdog.c */
FW_MUST_CHECK int fw_watchdog_start(struct fw_domain *domain);
void fw_watchdog_stop(struct fw_domain *domain);

/* sample.c */

/* A round begins; it may be one that is measured. Returns its number if so, else 0. */
uint64_t fw_sample_begin(struct fw_core *core);
/* It ends. Not called if the turn was another's meanwhile. */
void fw_sample_end(struct fw_core *core);

/* Takes a lock that threads of the engine share, and counts if it had to wait for it. */
void fw_shared_lock(struct fw_mutex *lock) FW_ACQUIRES(*lock);
void fw_core_lock(struct fw_core *core) FW_ACQUIRES(core->lock);

/* limit.c */

/* For a wait that begins; and for one that has reached its limit, by what others have shown. */
int64_t fw_limit_ns(const struct fw_core *core, const struct fw_fom *fom);
int64_t fw_limit_shown_ns(const struct fw_core *core, const struct fw_fom *fom);
void fw_limit_observe(struct fw_core *core, const struct fw_fom *fom, int64_t waited_ns);
void fw_limit_missed(struct fw_core *core, const struct fw_fom *fom, int64_t waited_ns);

/* balance.c */
void fw_balance_init(struct fw_core *core);

/* At the beginning of a round, when all that has come is in the queue. */
void fw_balance_round(struct fw_core *core);

/* The core goes to sleep, at core->now, and is awake again. */
void fw_balance_asleep(struct fw_core *core);
void fw_balance_awake(struct fw_core *core);

/* Moves a fom whose turn for a tick it is away instead, if it should and can. True: it has left. */
bool fw_balance_shed(struct fw_core *core, struct fw_fom *fom);

/* Chooses a core of the locality: the least busy, and none that is leaving. */
struct fw_core *fw_locality_core(struct fw_locality *locality);

/* leave.c */

/* Asks a core to go from one locality to another. `waiter` may be NULL. 0 or a negative errno. */
FW_MUST_CHECK int fw_leave_ask(struct fw_domain *domain, struct fw_core *core,
                               struct fw_locality *to, struct fw_leave_waiter *waiter);

/* The turn of a core that is leaving, once per round. */
void fw_leave_check(struct fw_core *core);

/* All threads have ended: nobody waits for a core any more. */
void fw_leave_abort(struct fw_domain *domain);
void fw_leave_init(struct fw_core *core);

/* quiesce.c */
void fw_safety_online(struct fw_participant *participant);
void fw_safety_offline(struct fw_participant *participant);
void fw_safety_pass(struct fw_participant *participant);
