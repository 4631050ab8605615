/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mutex that knows its place in the lock order, and asserts that threads keep to it.
 *
 * Locks are the exception here: localities own their data. The few that exist are ranked, so that a
 * wrong order aborts in the first unit test that meets it, not in production once a year. Two locks
 * of one rank (two buckets, say) are never held together; code that seems to need it takes one,
 * notes what it needs, lets go and takes the other.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "base/base.h"

/*
 * The lock order: a thread takes locks by rising rank and releases them in reverse. The table in
 * ARCHITECTURE.md says why each lock has its place; the two change in the same commit.
 */
enum fw_lock_rank {
    FW_RANK_METRICS = 50,       /* Registering and reading metrics; never on a hot path. */
    FW_RANK_DOMAIN = 55,        /* Who takes part in a domain; foms born outside of it. */
    FW_RANK_CORE = 60,          /* The threads of a core. */
    FW_RANK_CHANNEL = 65,       /* Shared channels and resources. */
    FW_RANK_JOBS_COMMANDS = 70, /* Commands under way and timed; they are posted under it. */
    FW_RANK_JOBS_ROLE = 72,     /* The dispatcher's role; taken by try-lock. */
    FW_RANK_JOBS_FRONT = 74,    /* Posting and rejoining: owners and slots. */
    FW_RANK_LOG_SHARED = 79,    /* The log's ring for threads that have none of their own. */
    FW_RANK_LOG = 80,           /* The log's writer: anyone may log under any lock but a leaf. */
    FW_RANK_LOG_LISTS = 82,     /* Who logs: modules, sites, rings. Never held while writing. */
    FW_RANK_DISK = 85,          /* A leaf: the lists between a disk and its threads. */
};

struct FW_CAPABILITY("mutex") fw_mutex {
    pthread_mutex_t mutex;
    enum fw_lock_rank rank;
    struct fw_mutex *held_before; /* Guarded by `mutex`: what its holder took before it. */
    void *waiters;                /* The simulator's. */
};

/* For the few that exist before main() begins. */
#define FW_MUTEX_INITIALIZER(lock_rank)                         \
    {                                                           \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (lock_rank) \
    }

void fw_mutex_init(struct fw_mutex *mutex, enum fw_lock_rank rank);
void fw_mutex_fini(struct fw_mutex *mutex) FW_EXCLUDES(*mutex);
void fw_mutex_lock(struct fw_mutex *mutex) FW_ACQUIRES(*mutex);
bool fw_mutex_trylock(struct fw_mutex *mutex) FW_TSA(try_acquire_capability(true, *mutex));
void fw_mutex_unlock(struct fw_mutex *mutex) FW_RELEASES(*mutex);
