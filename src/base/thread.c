/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"

const struct fw_thread_hooks *fw_thread_hooks;

_Thread_local struct fw_thread_state *fw_thread_self_pointer;

static pthread_once_t adopted_once = PTHREAD_ONCE_INIT;
static pthread_key_t adopted_key;

void fw_thread_end(struct fw_thread_state *self)
{
    self->ended = true;
    if (self->at_end != NULL) {
        self->at_end(self);
    }
}

static void adopted_end(void *self)
{
    fw_thread_end(self);
}

static void adopted_key_make(void)
{
    int rc = pthread_key_create(&adopted_key, adopted_end);
    FW_ASSERT(rc == 0); /* The first of 1,024 that a process may have; nobody else takes any. */
}

struct fw_thread_state *fw_thread_adopt(void)
{
    static _Thread_local struct fw_thread_state own_state;
    static _Thread_local char own_name[FW_THREAD_NAME_SIZE];
    (void)pthread_getname_np(pthread_self(), own_name, sizeof own_name);
    own_state.name = own_name;
    fw_thread_self_pointer = &own_state;
    (void)pthread_once(&adopted_once, adopted_key_make);
    int rc = pthread_setspecific(adopted_key, &own_state);
    FW_ASSERT(rc == 0); /* Keys below 32 need no memory. */
    return &own_state;
}

static void *thread_main(void *argument)
{
    struct fw_thread *thread = argument;
    fw_thread_self_pointer = &thread->state;
    (void)pthread_setname_np(pthread_self(), thread->name);
    thread->run(thread->argument);
    FW_ASSERT(thread->state.held_last == NULL);
    fw_thread_end(&thread->state);
    return NULL;
}

int fw_thread_create(struct fw_thread *thread, const char *name, void (*run)(void *argument),
                     void *argument)
{
    *thread = (struct fw_thread){.run = run, .argument = argument};
    (void)snprintf(thread->name, sizeof thread->name, "%s", name);
    thread->state.name = thread->name;
    if (fw_thread_hooks != NULL) {
        return fw_thread_hooks->create(thread);
    }

    /* The mask is inherited, so it is set around the creation rather than in a race after it. */
    sigset_t all, before;
    (void)sigfillset(&all);
    int rc = pthread_sigmask(SIG_SETMASK, &all, &before);
    FW_ASSERT(rc == 0);
    rc = pthread_create(&thread->handle, NULL, thread_main, thread);
    int restored = pthread_sigmask(SIG_SETMASK, &before, NULL);
    FW_ASSERT(restored == 0);
    /* No look at `thread` from here on: who was told by it that it is over may have freed it. */
    return -rc;
}

void fw_thread_join(struct fw_thread *thread)
{
    if (fw_thread_hooks != NULL) {
        fw_thread_hooks->join(thread);
        return;
    }
    int rc = pthread_join(thread->handle, NULL);
    FW_ASSERT(rc == 0);
}

void fw_thread_yield(void)
{
    if (fw_thread_hooks != NULL) {
        fw_thread_hooks->yield("thread: yield");
        return;
    }
    (void)sched_yield();
}

void fw_thread_give_way(void)
{
    struct fw_thread_state *self = fw_thread_self();
    if (fw_thread_hooks != NULL || self->gives_way) {
        return;
    }
    self->gives_way = true;
    /* On Linux it is the thread that becomes nice. That it is so may look like an error. */
    int level = nice(FW_THREAD_WAY);
    (void)level;
}

void fw_parker_init(struct fw_parker *parker)
{
    atomic_init(&parker->word, FW_PARKER_EMPTY);
}

/* Returns at once unless the word still has the value, so what happened meanwhile is not missed. */
static void futex_wait(_Atomic uint32_t *word, uint32_t value, const struct timespec *timeout)
{
    long rc = syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout);
    FW_ASSERT(rc == 0 || errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT);
}

void fw_thread_wait(_Atomic uint32_t *word, uint32_t value)
{
    futex_wait(word, value, NULL);
}

void fw_thread_wake(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1); /* Fails if the word is gone. */
}

enum { NS_PER_SECOND = 1000000000 };

static int64_t monotonic_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_SECOND + now.tv_nsec;
}

/* True if the token was there. Otherwise the word says PARKED and the caller goes to sleep. */
static bool parker_take_or_park(struct fw_parker *parker)
{
    uint32_t seen = FW_PARKER_EMPTY;
    if (atomic_compare_exchange_strong_explicit(&parker->word, &seen, FW_PARKER_PARKED,
                                                memory_order_relaxed, memory_order_relaxed)) {
        return false;
    }
    FW_ASSERT(seen == FW_PARKER_TOKEN); /* PARKED would mean a second owner. */
    /* Acquire, for the release in fw_unpark(). */
    (void)atomic_exchange_explicit(&parker->word, FW_PARKER_EMPTY, memory_order_acquire);
    return true;
}

/* After a wake-up, true or spurious: takes the token if there is one. */
static bool parker_take(struct fw_parker *parker)
{
    uint32_t seen = FW_PARKER_TOKEN;
    return atomic_compare_exchange_strong_explicit(&parker->word, &seen, FW_PARKER_EMPTY,
                                                   memory_order_acquire, memory_order_relaxed);
}

void fw_park(struct fw_parker *parker)
{
    if (fw_thread_hooks != NULL) {
        bool taken = fw_thread_hooks->park(parker, -1);
        FW_ASSERT(taken);
        return;
    }
    if (parker_take_or_park(parker)) {
        return;
    }
    do {
        futex_wait(&parker->word, FW_PARKER_PARKED, NULL);
    } while (!parker_take(parker));
}

bool fw_park_for(struct fw_parker *parker, int64_t timeout_ns)
{
    FW_ASSERT(timeout_ns >= 0);
    if (fw_thread_hooks != NULL) {
        return fw_thread_hooks->park(parker, timeout_ns);
    }
    if (parker_take_or_park(parker)) {
        return true;
    }
    int64_t begin_ns = monotonic_ns();
    for (int64_t left_ns = timeout_ns; left_ns > 0;
         left_ns = timeout_ns - (monotonic_ns() - begin_ns)) {
        struct timespec left = {.tv_sec = left_ns / NS_PER_SECOND,
                                .tv_nsec = left_ns % NS_PER_SECOND};
        futex_wait(&parker->word, FW_PARKER_PARKED, &left);
        if (parker_take(parker)) {
            return true;
        }
    }
    /* The token may come at the last moment; it is taken then, or it would wake the next park(). */
    return atomic_exchange_explicit(&parker->word, FW_PARKER_EMPTY, memory_order_acquire) ==
           FW_PARKER_TOKEN;
}

void fw_unpark(struct fw_parker *parker)
{
    if (fw_thread_hooks != NULL) {
        fw_thread_hooks->unpark(parker);
        return;
    }
    /* Release, for the acquire where the token is taken. */
    uint32_t before =
        atomic_exchange_explicit(&parker->word, FW_PARKER_TOKEN, memory_order_release);
    if (before == FW_PARKER_PARKED) {
        long rc = syscall(SYS_futex, &parker->word, FUTEX_WAKE_PRIVATE, 1);
        FW_ASSERT(rc >= 0);
    }
}
