/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call stack of another thread, while that runs, or does not.
 *
 * A thread that has got stuck cannot say where, so it is interrupted: FW_STACK_SIGNAL is sent to
 * that very thread, and the handler writes its return addresses into a buffer that waits for them.
 * It takes no lock and no memory. The names of the functions are looked up by who asked.
 *
 * What the thread was in when the signal came goes on (SA_RESTART), except that calls which never
 * restart (poll, epoll_wait, nanosleep; signal(7) has the list) return EINTR. So only ask threads
 * that have done something wrong. A thread in an uninterruptible sleep of the kernel's gets the
 * signal when that ends; the answer is not waited for so long, and who asks next is not confused by
 * it, because each request has a number.
 *
 * Any thread may ask, one at a time. In the simulator there is no stack to be had.
 *
 * Why not read the stack from outside (ptrace, /proc/PID/stack): the one needs a second process,
 * the other is for root and shows the kernel's side only.
 */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

/* Real-time, since only those carry a number; next to last, since programs count from the first. */
#define FW_STACK_SIGNAL (SIGRTMAX - 1)

enum { FW_STACK_FRAMES_MAX = 64 };

/* A thread that may be asked. Its owner keeps it from being joined while it is. */
struct fw_stack_subject {
    pthread_t thread;
};

struct fw_stack {
    void *frames[FW_STACK_FRAMES_MAX]; /* Innermost first: those of the handler itself. */
    uint32_t count;
};

/*
 * Before anything else here, any number of times. Returns 0, or -EBUSY if the program uses the
 * signal for something else; then there are no stacks.
 */
FW_MUST_CHECK int fw_stack_init(void);

/* The calling thread may be asked from now on. */
void fw_stack_allow(struct fw_stack_subject *subject);

/*
 * Returns 0; -ETIMEDOUT if the thread does not answer within `timeout_ns`; -EBUSY if another is
 * being asked; -ESRCH if it has ended; -ENOTSUP in the simulator, or if init() has failed.
 */
FW_MUST_CHECK int fw_stack_capture(const struct fw_stack_subject *subject, struct fw_stack *stack,
                                   int64_t timeout_ns);

/*
 * Writes one frame per line, as many as fit: file, function if it is an exported one, address. May
 * take memory.
 */
void fw_stack_format(const struct fw_stack *stack, char *text, size_t size);
