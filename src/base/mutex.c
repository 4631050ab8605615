/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mutex.h"

#include <stddef.h>

enum { LOOKS = 50 }; /* At a lock that is held, before sleeping: about two microseconds. */

void fw_mutex_init(struct fw_mutex *mutex, enum fw_lock_rank rank)
{
    atomic_init(&mutex->word, FW_MUTEX_FREE);
    mutex->rank = rank;
    mutex->held_before = NULL;
    mutex->waiters = NULL;
}

void fw_mutex_fini(struct fw_mutex *mutex)
{
    FW_ASSERT(atomic_load_explicit(&mutex->word, memory_order_relaxed) == FW_MUTEX_FREE);
}

static void mutex_rank_check(const struct fw_mutex *mutex)
{
    const struct fw_mutex *last = fw_thread_self()->held_last;
    FW_ASSERT(last == NULL || last->rank < mutex->rank);
}

/* Looks for a moment whether it comes free. */
static void mutex_look(const struct fw_mutex *mutex)
{
    for (int i = 0; i < LOOKS; i++) {
        /* Relaxed: who then takes it does so by acquire. */
        if (atomic_load_explicit(&mutex->word, memory_order_relaxed) == FW_MUTEX_FREE) {
            return;
        }
        fw_thread_relax();
    }
}

void fw_mutex_lock_slowly(struct fw_mutex *mutex)
{
    mutex_rank_check(mutex);
    if (fw_thread_hooks != NULL) {
        fw_thread_hooks->lock(mutex);
        return;
    }
    mutex_look(mutex);
    uint32_t seen = FW_MUTEX_FREE;
    if (atomic_compare_exchange_strong_explicit(&mutex->word, &seen, FW_MUTEX_HELD,
                                                memory_order_acquire, memory_order_relaxed)) {
        return;
    }
    /* Who gets it here leaves it CONTENDED: others may sleep too, and its release asks. */
    while (atomic_exchange_explicit(&mutex->word, FW_MUTEX_CONTENDED, memory_order_acquire) !=
           FW_MUTEX_FREE) {
        /* Returns at once unless it is still so; then whoever releases it wakes one. */
        fw_thread_wait(&mutex->word, FW_MUTEX_CONTENDED);
    }
}

FW_TSA_TRUSTED bool fw_mutex_trylock(struct fw_mutex *mutex)
{
    struct fw_thread_state *self = fw_thread_self();
    if (!fw_mutex_take(mutex, self->held_last)) {
        mutex_rank_check(mutex); /* A try cannot deadlock, but who succeeds holds it like any. */
        if (fw_thread_hooks == NULL || !fw_thread_hooks->trylock(mutex)) {
            return false;
        }
    }
    mutex->held_before = self->held_last;
    self->held_last = mutex;
    return true;
}

void fw_mutex_unlock_slowly(struct fw_mutex *mutex)
{
    if (fw_thread_hooks != NULL) {
        fw_thread_hooks->unlock(mutex);
        return;
    }
    /* The mutex is free and may even be gone: its address is all that is used. */
    fw_thread_wake(&mutex->word);
}
