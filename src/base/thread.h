/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads, and how they wait for each other: the only place where one thread of Fairway can stop
 * for another. Mutexes (base/mutex.h) are built on the same hook.
 *
 * Everything here exists twice. In the server a thread is a POSIX thread and parking is a futex. In
 * the simulator a thread is a fibre, all fibres share one OS thread, and the seed decides at every
 * lock, park and yield point which of them goes on. Both are reached through `fw_thread_hooks`:
 * NULL in the server, so that its cost there is one load and a branch that is never taken, and the
 * same object files run in both worlds. A #ifdef would be cheaper still, but then what we test
 * would not be what we ship.
 *
 * State that belongs to a thread (the locks it holds, the core whose turn it has) is reached
 * through fw_thread_self() and never by a _Thread_local of one's own: fibres would share that.
 *
 * Parking follows the token rule: unpark() leaves a token, park() takes it or waits for it. Tokens
 * do not add up. So "look for work, find none, park" loses no wake-up as long as the waker
 * publishes the work before it unparks; and park() may return early once, which its callers' loops
 * must bear.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct fw_mutex;
struct fw_parker;

/* As nice: a part in 28 of a core that another wants whole; eight such get two of ten parts. */
enum { FW_THREAD_WAY = 15 };
enum { FW_THREAD_NAME_SIZE = 16 }; /* The kernel's limit, with the final zero. */

/* What belongs to the running thread, real or simulated. */
struct fw_thread_state {
    struct fw_mutex *held_last; /* Of the locks it holds the one taken last, see base/mutex.h. */
    void *turn;                 /* The core whose turn the thread has, or NULL; the engine's. */
    void *handler;              /* What the engine knows of a thread of its own, or NULL. */
    void *job_member;           /* What the thread is in a job kernel; jobs'. */
    const char *name;           /* As created with; of an adopted thread the kernel's. */
    _Atomic(void *) log_ring;   /* Where its lines go; the log's, see src/log/ring.h. */
    atomic_bool log_busy;       /* It is inside log_ring just now. */
    bool gives_way;             /* See fw_thread_give_way(). */
    bool ended;                 /* Its function has returned; see fw_thread_end(). */
    /* Called once when the thread ends, for what others keep about it; NULL: nobody does. */
    void (*at_end)(struct fw_thread_state *self);
};

struct fw_thread {
    pthread_t handle;
    void (*run)(void *argument);
    void *argument;
    void *fibre; /* The simulator's. */
    char name[FW_THREAD_NAME_SIZE];
    struct fw_thread_state state;
};

/* The simulator's side. Set once, before the first thread is created, never changed after. */
struct fw_thread_hooks {
    int (*create)(struct fw_thread *thread);
    void (*join)(struct fw_thread *thread);
    /* Waits until `parker` has a token or the time is over (negative: never). True: took it. */
    bool (*park)(struct fw_parker *parker, int64_t timeout_ns);
    void (*unpark)(struct fw_parker *parker);
    void (*lock)(struct fw_mutex *mutex);
    bool (*trylock)(struct fw_mutex *mutex);
    void (*unlock)(struct fw_mutex *mutex);
    void (*yield)(const char *where);
};
FW_INTERNAL extern const struct fw_thread_hooks *fw_thread_hooks;

/*
 * The running thread's state. The simulator repoints it when it switches fibres; threads that were
 * not made by fw_thread_create(), main above all, get one of their own when they first ask.
 *
 * Initial-exec: found by one load, where code for a shared library would call a function each time.
 * The price is eight bytes of the space that the loader keeps for libraries opened at run time.
 */
FW_INTERNAL extern _Thread_local struct fw_thread_state *fw_thread_self_pointer
    __attribute__((tls_model("initial-exec")));
struct fw_thread_state *fw_thread_adopt(void);
static inline struct fw_thread_state *fw_thread_self(void)
{
    struct fw_thread_state *self = fw_thread_self_pointer;
    return FW_LIKELY(self != NULL) ? self : fw_thread_adopt();
}

/*
 * What happens on a thread after its function has returned: at_end() is called. For who makes
 * threads, which is thread.c and the simulator. Adopted threads come here when the kernel ends
 * them, and may still run others' code after it.
 */
void fw_thread_end(struct fw_thread_state *self);

/*
 * Starts `run(argument)` on a new thread. `thread` stays where it is until join(), which another
 * thread may call before this returns. The name is what
 * top, gdb and the log show; it is cut to 15 characters. All signals are blocked in the new thread:
 * they are read from a descriptor (io/signal.h). Returns 0, -EAGAIN or -ENOMEM.
 */
FW_MUST_CHECK int fw_thread_create(struct fw_thread *thread, const char *name,
                                   void (*run)(void *argument), void *argument);

/* Waits until the thread's function has returned. Every thread is joined exactly once. */
void fw_thread_join(struct fw_thread *thread);

/*
 * A place where one thread sleeps. Only its owner parks on it, any thread unparks. It must outlive
 * the last unpark(), so it belongs in memory that is freed after its wakers were joined or drained.
 */
struct fw_parker {
    _Atomic uint32_t word; /* FW_PARKER_*; in the simulator too. */
};
enum { FW_PARKER_EMPTY = 0, FW_PARKER_TOKEN = 1, FW_PARKER_PARKED = 2 };

void fw_parker_init(struct fw_parker *parker);

/* Takes the token, waiting for it if there is none. */
void fw_park(struct fw_parker *parker);

/* The same for at most `timeout_ns`, not negative. False: the time was over and there was none. */
bool fw_park_for(struct fw_parker *parker, int64_t timeout_ns);

/*
 * Leaves the token. All that the caller wrote before is seen by who takes it, and who has taken it
 * may let the parker go: of that only the address is used any more.
 */
void fw_unpark(struct fw_parker *parker);

/*
 * For who makes locks: sleeps while `word` has this value, or returns too early; and wakes one who
 * sleeps so. The word need not exist any more when it is woken. Not for the simulator.
 */
void fw_thread_wait(_Atomic uint32_t *word, uint32_t value);
void fw_thread_wake(_Atomic uint32_t *word);

/* Tells the processor that this thread looks at a word again and again. */
static inline void fw_thread_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/*
 * Lets another thread have the core: for who spins on a word that its holder, should it have been
 * interrupted, cannot clear before it gets a core again.
 */
void fw_thread_yield(void);

/*
 * From now on the running thread gives way to the others of its process: for one that does bulky
 * work which nobody's small request may wait for. For good, as only the privileged could take it
 * back. It still gets some of a busy core, so that who waits for a lock of its waits a little
 * longer and not for ever. Called again it does nothing more. Not for the simulator, whose seed
 * decides.
 */
void fw_thread_give_way(void);

/*
 * Marks a point beside a shared atomic where another thread's step would matter. Costs nothing to
 * speak of in the server; in the simulator the seed may switch here. `where` is a string literal
 * for the trace.
 */
#define FW_YIELD_POINT(where)                       \
    do {                                            \
        if (FW_UNLIKELY(fw_thread_hooks != NULL)) { \
            fw_thread_hooks->yield(where);          \
        }                                           \
    } while (0)
