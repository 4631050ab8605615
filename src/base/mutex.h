/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mutex that knows its place in the lock order, and asserts that threads keep to it.
 *
 * Locks are the exception here: localities own their data. The few that exist are ranked, so that a
 * wrong order aborts in the first unit test that meets it, not in production once a year. Two locks
 * of one rank (two buckets, say) are never held together; code that seems to need it takes one,
 * notes what it needs, lets go and takes the other.
 *
 * A lock is one word and a futex, as in the C library, but taken and released in line: what is
 * guarded here is a few dozen instructions, and calling pthread_mutex_lock() and its counterpart
 * costs a hundred, most of them for kinds of mutexes that nobody has asked for. Who finds it held
 * looks again for a moment and then sleeps.
 *
 *     FREE --lock--> HELD --another finds it so--> CONTENDED      Who releases CONTENDED wakes one;
 *       ^             |                               |           who was woken takes it as
 *       +---unlock----+-------------unlock------------+           CONTENDED, for there may be more.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/base.h"
#include "base/thread.h"

/*
 * The lock order: a thread takes locks by rising rank and releases them in reverse. The table in
 * ARCHITECTURE.md says why each lock has its place; the two change in the same commit.
 */
enum fw_lock_rank {
    FW_RANK_BULK = 44,          /* A dump under way: its file is written under it. */
    FW_RANK_SERVER = 45,        /* A server's newest rules and policy. */
    FW_RANK_CROWD = 46,         /* A server's connections; their foms are woken under it. */
    FW_RANK_QUOTA = 47,         /* How many connections each tenant has. */
    FW_RANK_METRICS = 50,       /* Registering and reading metrics; never on a hot path. */
    FW_RANK_DOMAIN = 55,        /* Who takes part in a domain; foms born outside of it. */
    FW_RANK_CORE = 60,          /* The threads of a core. */
    FW_RANK_TENANTS = 62,       /* A set of tenants: names, dues, which heads there are. */
    FW_RANK_VOLUME_TURN = 63,   /* Who looks after an agent's pool; rings are used under it. */
    FW_RANK_VOLUME = 64,        /* An agent's pool and its volumes' maps; held for no I/O. */
    FW_RANK_CHANNEL = 65,       /* Shared channels and resources. */
    FW_RANK_VOLUME_THIN = 66,   /* Who transfers to and from an attached volume, and who waits. */
    FW_RANK_JOURNAL = 67,       /* A journal: who performs, who waits. */
    FW_RANK_RING = 68,          /* A ring on a disk: its operations; the disk is used under it. */
    FW_RANK_JOBS_COMMANDS = 70, /* Commands under way and timed; they are posted under it. */
    FW_RANK_JOBS_ROLE = 71,     /* The dispatcher's role; taken by try-lock. */
    FW_RANK_JOBS_FRONT = 72,    /* Posting and rejoining: owners and slots. */
    FW_RANK_JOBS_HAND = 73,     /* What a worker runs, and will run next. */
    FW_RANK_JOBS_TRACE = 74,    /* Requests that began and ended, while a trace is on. */
    FW_RANK_TABLE_GROWTH = 75,  /* Splitting and merging of buckets; taken by try-lock. */
    FW_RANK_TABLE_LOCALS = 76,  /* Who uses a table. */
    FW_RANK_TABLE_ARENA = 77,   /* Lists of segments and of overflow buckets. */
    FW_RANK_TABLE_BODIES = 78,  /* Lists of memory for large values. */
    FW_RANK_LOG_SHARED = 79,    /* The log's ring for threads that have none of their own. */
    FW_RANK_LOG = 80,           /* The log's writer: anyone may log under any lock but a leaf. */
    FW_RANK_LOG_LISTS = 82,     /* Who logs: modules, sites, rings. Never held while writing. */
    FW_RANK_COUNTERS = 83,      /* A leaf: counters of resources, and who has claimed what. */
    FW_RANK_DETAIL = 84,        /* A leaf: what `stats detail` counts per prefix of keys. */
    FW_RANK_DISK = 85,          /* A leaf: the lists between a disk and its threads. */
    FW_RANK_HTTP = 86,          /* A leaf: the sockets of HTTP clients. */
    FW_RANK_BUCKET = 95,        /* No fw_mutex: see src/cache/bucket.h. */
    FW_RANK_CHANGES = 96,       /* A leaf: the log of changes; taken in holds of a table. */
    FW_RANK_CACHE_LOCKS = 97,   /* A leaf: who has locked which item; taken in holds of a table. */
    FW_RANK_LARGE = 98,         /* A leaf: the pieces of a file of values; taken in holds. */
};

enum { FW_MUTEX_FREE = 0, FW_MUTEX_HELD = 1, FW_MUTEX_CONTENDED = 2 };

struct FW_CAPABILITY("mutex") fw_mutex {
    _Atomic uint32_t word; /* FW_MUTEX_*; not used in the simulator. */
    enum fw_lock_rank rank;
    struct fw_mutex *held_before; /* Guarded by `word`: what its holder took before it. */
    void *waiters;                /* The simulator's. */
};

/* For the few that exist before main() begins. */
#define FW_MUTEX_INITIALIZER(lock_rank) \
    {                                   \
        .rank = (lock_rank)             \
    }

void fw_mutex_init(struct fw_mutex *mutex, enum fw_lock_rank rank);
void fw_mutex_fini(struct fw_mutex *mutex) FW_EXCLUDES(*mutex);
bool fw_mutex_trylock(struct fw_mutex *mutex) FW_TSA(try_acquire_capability(true, *mutex));

/* The rest of both: wrong order, the simulator, or another thread in the way. */
void fw_mutex_lock_slowly(struct fw_mutex *mutex);
void fw_mutex_unlock_slowly(struct fw_mutex *mutex);

/* True: it was free, and the caller kept to the order. Acquire, for the release by its holder. */
static inline bool fw_mutex_take(struct fw_mutex *mutex, const struct fw_mutex *last)
{
    uint32_t seen = FW_MUTEX_FREE;
    return FW_LIKELY((last == NULL || last->rank < mutex->rank) && fw_thread_hooks == NULL &&
                     atomic_compare_exchange_strong_explicit(&mutex->word, &seen, FW_MUTEX_HELD,
                                                             memory_order_acquire,
                                                             memory_order_relaxed));
}

/* Waits while another thread holds it. */
static inline void fw_mutex_lock(struct fw_mutex *mutex) FW_ACQUIRES(*mutex);
FW_TSA_TRUSTED static inline void fw_mutex_lock(struct fw_mutex *mutex)
{
    struct fw_thread_state *self = fw_thread_self();
    if (!fw_mutex_take(mutex, self->held_last)) {
        fw_mutex_lock_slowly(mutex);
    }
    mutex->held_before = self->held_last;
    self->held_last = mutex;
}

static inline void fw_mutex_unlock(struct fw_mutex *mutex) FW_RELEASES(*mutex);
FW_TSA_TRUSTED static inline void fw_mutex_unlock(struct fw_mutex *mutex)
{
    struct fw_thread_state *self = fw_thread_self();
    FW_ASSERT(self->held_last == mutex); /* Locks are released in reverse order. */
    self->held_last = mutex->held_before;
    /* Release, for the acquire by the next holder. Nothing of the mutex is touched after it. */
    if (FW_UNLIKELY(fw_thread_hooks != NULL) ||
        FW_UNLIKELY(atomic_exchange_explicit(&mutex->word, FW_MUTEX_FREE, memory_order_release) ==
                    FW_MUTEX_CONTENDED)) {
        fw_mutex_unlock_slowly(mutex);
    }
}
