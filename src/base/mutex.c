/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mutex.h"

#include <errno.h>
#include <stddef.h>

#include "base/assert.h"
#include "base/thread.h"

void fw_mutex_init(struct fw_mutex *mutex, enum fw_lock_rank rank)
{
    mutex->rank = rank;
    mutex->held_before = NULL;
    mutex->waiters = NULL;
    int rc = pthread_mutex_init(&mutex->mutex, NULL);
    FW_ASSERT(rc == 0);
}

void fw_mutex_fini(struct fw_mutex *mutex)
{
    int rc = pthread_mutex_destroy(&mutex->mutex);
    FW_ASSERT(rc == 0);
}

static void mutex_rank_check(const struct fw_mutex *mutex)
{
    const struct fw_mutex *last = fw_thread_self()->held_last;
    FW_ASSERT(last == NULL || last->rank < mutex->rank);
}

static void mutex_note_held(struct fw_mutex *mutex)
{
    struct fw_thread_state *self = fw_thread_self();
    mutex->held_before = self->held_last;
    self->held_last = mutex;
}

FW_TSA_TRUSTED void fw_mutex_lock(struct fw_mutex *mutex)
{
    mutex_rank_check(mutex);
    if (fw_thread_hooks != NULL) {
        fw_thread_hooks->lock(mutex);
    } else {
        int rc = pthread_mutex_lock(&mutex->mutex);
        FW_ASSERT(rc == 0);
    }
    mutex_note_held(mutex);
}

FW_TSA_TRUSTED bool fw_mutex_trylock(struct fw_mutex *mutex)
{
    mutex_rank_check(mutex); /* A try cannot deadlock, but who succeeds holds it like any other. */
    if (fw_thread_hooks != NULL) {
        if (!fw_thread_hooks->trylock(mutex)) {
            return false;
        }
    } else {
        int rc = pthread_mutex_trylock(&mutex->mutex);
        FW_ASSERT(rc == 0 || rc == EBUSY);
        if (rc == EBUSY) {
            return false;
        }
    }
    mutex_note_held(mutex);
    return true;
}

FW_TSA_TRUSTED void fw_mutex_unlock(struct fw_mutex *mutex)
{
    struct fw_thread_state *self = fw_thread_self();
    FW_ASSERT(self->held_last == mutex); /* Locks are released in reverse order. */
    self->held_last = mutex->held_before;
    if (fw_thread_hooks != NULL) {
        fw_thread_hooks->unlock(mutex);
        return;
    }
    int rc = pthread_mutex_unlock(&mutex->mutex);
    FW_ASSERT(rc == 0);
}
