/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the stack of a thread that stands still names where it stands, and one that does not answer
 * (in time, or at all) leaves nothing behind that would spoil the next answer.
 * Method: a thread rests in sem_wait(), in a function that has written down the address it will
 * return to: exactly that address has to be among the frames. A thread that blocks the
 * signal is one that does not answer; it takes the signal later, when nobody asks any more.
 */
#include "io/stack.h"

#include <errno.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/thread.h"
#include "io/clock.h"

enum { SHORT_NS = 1000, MEDIUM_NS = 10 * 1000 * 1000 };
#define LONG_NS (3600 * (int64_t)FW_NS_PER_S) /* A thread that does not answer hangs the test. */

/* The linker (--wrap) sends our calls here. */
int __real_backtrace(void **frames, int size);
int __wrap_backtrace(void **frames, int size);
int __real_pthread_sigqueue(pthread_t thread, int number, union sigval value);
int __wrap_pthread_sigqueue(pthread_t thread, int number, union sigval value);

static atomic_bool is_held;    /* The handler does not get on... */
static atomic_bool is_holding; /* ... and has come so far. */
static int last_value = -1;
static int queue_error; /* Not 0: no signal can be sent. */

int __wrap_backtrace(void **frames, int size)
{
    while (atomic_load(&is_held)) {
        atomic_store(&is_holding, true);
    }
    return __real_backtrace(frames, size);
}

int __wrap_pthread_sigqueue(pthread_t thread, int number, union sigval value)
{
    assert_int_not_equal(value.sival_int, last_value); /* No two requests look the same. */
    last_value = value.sival_int;
    return queue_error != 0 ? queue_error : __real_pthread_sigqueue(thread, number, value);
}

struct rester {
    struct fw_thread thread;
    struct fw_stack_subject subject;
    struct fw_parker is_there; /* Of the test. */
    sem_t nudge;
    void *return_address;
    bool is_deaf;
    int wait_result;
};

/* Not inlined, and not a tail call: it has a frame, whose return address it writes down. */
__attribute__((noinline)) static void rest(struct rester *rester)
{
    rester->return_address = __builtin_return_address(0);
    fw_unpark(&rester->is_there);
    rester->wait_result = sem_wait(&rester->nudge);
    __asm__ volatile("" ::: "memory");
}

static void rester_run(void *argument)
{
    struct rester *rester = argument;
    fw_stack_allow(&rester->subject);
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, FW_STACK_SIGNAL);
    if (rester->is_deaf) {
        (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    }
    rest(rester);
    if (rester->is_deaf) {
        (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL); /* Here comes what was asked. */
        rest(rester);
    }
}

static void rester_start(struct rester *rester, bool is_deaf)
{
    *rester = (struct rester){.is_deaf = is_deaf};
    fw_parker_init(&rester->is_there);
    assert_int_equal(sem_init(&rester->nudge, 0, 0), 0);
    assert_int_equal(fw_thread_create(&rester->thread, "rester", rester_run, rester), 0);
    fw_park(&rester->is_there);
}

static void rester_nudge(struct rester *rester)
{
    assert_int_equal(sem_post(&rester->nudge), 0);
}

static void rester_stop(struct rester *rester)
{
    rester_nudge(rester);
    fw_thread_join(&rester->thread);
    (void)sem_destroy(&rester->nudge);
}

static bool stack_has(const struct fw_stack *stack, const void *address)
{
    for (uint32_t i = 0; i < stack->count; i++) {
        if (stack->frames[i] == address) {
            return true;
        }
    }
    return false;
}

static void shows_where_a_thread_stands(void **state)
{
    (void)state;
    struct rester rester;
    rester_start(&rester, false);
    struct fw_stack stack;
    for (int i = 0; i < 3; i++) {
        memset(&stack, 0, sizeof stack);
        queue_error = EAGAIN;
        assert_int_equal(fw_stack_capture(&rester.subject, &stack, LONG_NS), -EAGAIN);
        queue_error = 0;
        assert_int_equal(fw_stack_capture(&rester.subject, &stack, LONG_NS), 0);
        assert_non_null(stack.frames[0]);
        assert_true(stack_has(&stack, rester.return_address));
    }
    rester_stop(&rester);
    assert_int_equal(rester.wait_result, 0); /* What it was in went on. */
}

static void gives_up_and_is_not_confused(void **state)
{
    (void)state;
    struct rester deaf, rester;
    rester_start(&deaf, true);
    rester_start(&rester, false);
    struct fw_stack stack;
    assert_int_equal(fw_stack_capture(&deaf.subject, &stack, SHORT_NS), -ETIMEDOUT);
    rester_nudge(&deaf); /* Now it is interrupted, for a request that is over. */
    fw_park(&deaf.is_there);
    assert_int_equal(fw_stack_capture(&rester.subject, &stack, LONG_NS), 0);
    assert_true(stack_has(&stack, rester.return_address));
    assert_int_equal(fw_stack_capture(&deaf.subject, &stack, LONG_NS), 0);
    assert_true(stack_has(&stack, deaf.return_address));
    assert_false(stack_has(&stack, rester.return_address) &&
                 rester.return_address != deaf.return_address);
    rester_stop(&deaf);
    rester_stop(&rester);
}

/* It answers, but so slowly that nobody waits any more: whoever asks next is not kept out. */
static void abandons_an_answer(void **state)
{
    (void)state;
    struct rester rester;
    struct fw_stack stack;
    rester_start(&rester, false);
    atomic_store(&is_held, true);
    int rc;
    do { /* The signal itself may be late too, and the handler be on its way to where it is held. */
        rc = fw_stack_capture(&rester.subject, &stack, MEDIUM_NS);
        assert_true(rc == -ETIMEDOUT || rc == -EBUSY);
    } while (!atomic_load(&is_holding));
    assert_int_equal(fw_stack_capture(&rester.subject, &stack, SHORT_NS), -EBUSY);
    atomic_store(&is_held, false);
    do {
        rc = fw_stack_capture(&rester.subject, &stack, LONG_NS);
    } while (rc == -EBUSY);
    assert_int_equal(rc, 0);
    assert_true(stack_has(&stack, rester.return_address));
    rester_stop(&rester);
}

static void errno_is_kept(void **state)
{
    (void)state;
    struct fw_stack_subject self;
    fw_stack_allow(&self);
    struct fw_stack stack;
    errno = EDOM;
    /* To itself: the handler runs before the signal's sender goes on. */
    assert_int_equal(fw_stack_capture(&self, &stack, LONG_NS), 0);
    assert_int_equal(errno, EDOM);
}

static void formats_whole_lines(void **state)
{
    (void)state;
    struct fw_stack_subject self;
    fw_stack_allow(&self);
    struct fw_stack stack;
    assert_int_equal(fw_stack_capture(&self, &stack, LONG_NS), 0);
    static char text[64 * 1024];
    fw_stack_format(&stack, text, sizeof text);
    size_t whole = strlen(text);
    uint32_t lines = 0;
    for (const char *c = text; *c != '\0'; c++) {
        lines += *c == '\n';
    }
    assert_int_equal(lines, stack.count);
    assert_non_null(strchr(text, '[')); /* With names, not just numbers. */
    static char part[64 * 1024];
    for (size_t size = 1; size <= whole + 1; size++) {
        memset(part, 'x', sizeof part);
        fw_stack_format(&stack, part, size);
        size_t length = strlen(part);
        assert_true(length < size);
        assert_memory_equal(part, text, length);
        assert_true(length == 0 || part[length - 1] == '\n');
        assert_int_equal(part[size], 'x');
    }
    assert_string_equal(part, text);
    stack.count = 0;
    fw_stack_format(&stack, part, sizeof part);
    assert_string_equal(part, "");
}

static void strangers_handler(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    (void)context;
}

static void leaves_the_signal_to_who_uses_it(void **state)
{
    (void)state;
    struct sigaction ours, theirs = {.sa_handler = SIG_IGN};
    assert_int_equal(sigaction(FW_STACK_SIGNAL, &theirs, &ours), 0);
    assert_int_equal(fw_stack_init(), -EBUSY);
    theirs = (struct sigaction){.sa_sigaction = strangers_handler, .sa_flags = SA_SIGINFO};
    assert_int_equal(sigaction(FW_STACK_SIGNAL, &theirs, NULL), 0);
    assert_int_equal(fw_stack_init(), -EBUSY);
    assert_int_equal(sigaction(FW_STACK_SIGNAL, &ours, NULL), 0);
    assert_int_equal(fw_stack_init(), 0);
}

static void nothing_without_init(void **state)
{
    (void)state;
    struct fw_stack_subject self = {.thread = pthread_self()};
    struct fw_stack stack;
    assert_int_equal(fw_stack_capture(&self, &stack, LONG_NS), -ENOTSUP);
    assert_int_equal(fw_stack_init(), 0);
}

static void nothing_in_the_simulator(void **state)
{
    (void)state;
    static const struct fw_thread_hooks hooks;
    struct fw_stack_subject self;
    fw_stack_allow(&self);
    fw_thread_hooks = &hooks;
    struct fw_stack stack;
    int init = fw_stack_init();
    int capture = fw_stack_capture(&self, &stack, LONG_NS);
    fw_thread_hooks = NULL;
    assert_int_equal(init, 0);
    assert_int_equal(capture, -ENOTSUP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_without_init), /* First: the others need it made. */
        cmocka_unit_test(shows_where_a_thread_stands),
        cmocka_unit_test(gives_up_and_is_not_confused),
        cmocka_unit_test(abandons_an_answer),
        cmocka_unit_test(errno_is_kept),
        cmocka_unit_test(formats_whole_lines),
        cmocka_unit_test(leaves_the_signal_to_who_uses_it),
        cmocka_unit_test(nothing_in_the_simulator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
