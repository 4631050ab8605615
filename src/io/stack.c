/* SPDX-License-Identifier: Apache-2.0 */
#include "io/stack.h"

#include <errno.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/thread.h"
#include "io/clock.h"

/*
 * The one request there can be: its number, and how far it has come.
 *
 *     FREE --capture--> ASKED --handler--> ANSWERING --handler--> ANSWERED --capture--> FREE
 *      ^                  |                    |
 *      |             time is over         time is over
 *      |                  |                    v
 *      +------------------+                ABANDONED --handler--> FREE
 *
 * A handler that comes when its number is no longer ASKED does nothing.
 */
enum slot_state { FREE, ASKED, ANSWERING, ANSWERED, ABANDONED, STATE_MASK = 7 };
enum { NUMBER_SHIFT = 3 };

static struct {
    _Atomic uint32_t slot;
    struct fw_parker answer; /* Of who asks. */
    void *frames[FW_STACK_FRAMES_MAX];
    int count;
    atomic_bool is_ready; /* The handler is there. */
} request;

static bool slot_change(uint32_t number, enum slot_state from, enum slot_state to)
{
    uint32_t expected = number << NUMBER_SHIFT | from;
    /* Release for what the frames are, acquire for what they were: they change hands with it. */
    return atomic_compare_exchange_strong_explicit(&request.slot, &expected,
                                                   number << NUMBER_SHIFT | to,
                                                   memory_order_acq_rel, memory_order_acquire);
}

static void signal_handle(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    int saved = errno;
    uint32_t number = (uint32_t)info->si_value.sival_int;
    if (info->si_code == SI_QUEUE && slot_change(number, ASKED, ANSWERING)) {
        request.count = backtrace(request.frames, FW_STACK_FRAMES_MAX);
        if (!slot_change(number, ANSWERING, ANSWERED)) {
            (void)slot_change(number, ABANDONED, FREE);
        }
        fw_unpark(&request.answer);
    }
    errno = saved;
}

int fw_stack_init(void)
{
    if (fw_thread_hooks != NULL) {
        return 0;
    }
    struct sigaction before;
    int rc = sigaction(FW_STACK_SIGNAL, NULL, &before);
    FW_ASSERT(rc == 0);
    if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction == signal_handle) {
        return 0;
    }
    if ((before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_DFL) {
        return -EBUSY;
    }
    /* The first call loads what unwinds the stack, for which it takes memory: not in a handler. */
    void *frame;
    (void)backtrace(&frame, 1);
    struct sigaction action = {.sa_sigaction = signal_handle, .sa_flags = SA_SIGINFO | SA_RESTART};
    (void)sigfillset(&action.sa_mask);
    rc = sigaction(FW_STACK_SIGNAL, &action, NULL);
    FW_ASSERT(rc == 0);
    /* Release, for the acquire in capture(): no signal before there is a handler. */
    atomic_store_explicit(&request.is_ready, true, memory_order_release);
    return 0;
}

void fw_stack_allow(struct fw_stack_subject *subject)
{
    if (fw_thread_hooks != NULL) {
        return;
    }
    subject->thread = pthread_self();
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, FW_STACK_SIGNAL);
    int rc = pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    FW_ASSERT(rc == 0);
}

/* True: answered. False: the time is over, and the request is given up. */
static bool answer_wait(uint32_t number, int64_t deadline_ns)
{
    for (;;) {
        /* Acquire, for the frames. */
        uint32_t seen = atomic_load_explicit(&request.slot, memory_order_acquire);
        if ((seen & STATE_MASK) == ANSWERED) {
            return true;
        }
        int64_t left = deadline_ns - fw_clock_now_ns();
        if (left > 0) {
            (void)fw_park_for(&request.answer, left);
        } else if (slot_change(number, ASKED, FREE) || slot_change(number, ANSWERING, ABANDONED)) {
            return false;
        }
    }
}

int fw_stack_capture(const struct fw_stack_subject *subject, struct fw_stack *stack,
                     int64_t timeout_ns)
{
    /* Acquire, for the release in init(). */
    if (fw_thread_hooks != NULL || !atomic_load_explicit(&request.is_ready, memory_order_acquire)) {
        return -ENOTSUP;
    }
    uint32_t seen = atomic_load_explicit(&request.slot, memory_order_relaxed);
    uint32_t number = ((seen >> NUMBER_SHIFT) + 1) & (UINT32_MAX >> NUMBER_SHIFT);
    /* Acquire, for who had it before. */
    if ((seen & STATE_MASK) != FREE || !atomic_compare_exchange_strong_explicit(
                                           &request.slot, &seen, number << NUMBER_SHIFT | ASKED,
                                           memory_order_acq_rel, memory_order_relaxed)) {
        return -EBUSY;
    }
    int rc = pthread_sigqueue(subject->thread, FW_STACK_SIGNAL,
                              (union sigval){.sival_int = (int)number});
    if (rc != 0) {
        bool is_freed = slot_change(number, ASKED, FREE);
        FW_ASSERT(is_freed);
        return -rc;
    }
    if (!answer_wait(number, fw_clock_now_ns() + timeout_ns)) {
        return -ETIMEDOUT;
    }
    stack->count = (uint32_t)request.count;
    for (uint32_t i = 0; i < stack->count; i++) {
        stack->frames[i] = request.frames[i];
    }
    bool is_freed = slot_change(number, ANSWERED, FREE);
    FW_ASSERT(is_freed);
    return 0;
}

void fw_stack_format(const struct fw_stack *stack, char *text, size_t size)
{
    FW_ASSERT(size > 0);
    text[0] = '\0';
    char **names = backtrace_symbols(stack->frames, (int)stack->count);
    size_t used = 0;
    for (uint32_t i = 0; i < stack->count && used < size; i++) {
        int length = names != NULL ? snprintf(text + used, size - used, "%s\n", names[i])
                                   : snprintf(text + used, size - used, "%p\n", stack->frames[i]);
        if (length < 0 || (size_t)length >= size - used) {
            text[used] = '\0'; /* Whole lines only. */
            break;
        }
        used += (size_t)length;
    }
    free((void *)names);
}
