/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: each signal runs its own call-back, once, in the reactor's turn; none is lost between block
 * and open, none comes after close. Method: the process sends itself signals, some before the
 * descriptor exists, and polls.
 */
#include "io/signal.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/descriptor.h"

static struct fw_reactor *reactor;
static struct fw_signals signals;
static struct fw_reason reason;
static char seen[64]; /* A letter for each call-back, in order. */
static pid_t sender_last;
static bool close_when_received;

static void note(char what)
{
    size_t length = strlen(seen);
    assert_true(length + 1 < sizeof seen);
    seen[length] = what;
}

static void on_closed(struct fw_signals *closed)
{
    assert_ptr_equal(closed, &signals);
    note('c');
}

static void on_usr1(struct fw_signals *from, int number, pid_t sender)
{
    assert_ptr_equal(from, &signals);
    assert_int_equal(number, SIGUSR1);
    sender_last = sender;
    note('1');
    if (close_when_received) {
        fw_signals_close(from, on_closed);
    }
}

static void on_usr2(struct fw_signals *from, int number, pid_t sender)
{
    assert_ptr_equal(from, &signals);
    assert_int_equal(number, SIGUSR2);
    sender_last = sender;
    note('2');
}

static void on_alarm(struct fw_signals *from, int number, pid_t sender)
{
    assert_ptr_equal(from, &signals);
    assert_int_equal(number, SIGALRM);
    sender_last = sender;
    note('a');
}

static const struct fw_signal_event events[] = {
    {SIGUSR1, on_usr1},
    {SIGUSR2, on_usr2},
    {SIGALRM, on_alarm},
};

static int set_up(void **state)
{
    (void)state;
    return fw_reactor_create(&reactor, &reason);
}

static int tear_down(void **state)
{
    (void)state;
    fw_reactor_destroy(reactor);
    return 0;
}

static void signals_open(void)
{
    memset(seen, 0, sizeof seen);
    assert_int_equal(fw_signals_open(&signals, reactor, events, FW_ARRAY_LENGTH(events), &reason),
                     0);
}

/* Waits until the call-backs listed in `expected` have run, in that order, and no others. */
static void seen_check(const char *expected)
{
    while (strlen(seen) < strlen(expected)) {
        (void)fw_reactor_poll(reactor, -1);
    }
    (void)fw_reactor_poll(reactor, 0);
    assert_string_equal(seen, expected);
}

static void test_must_be_blocked(void **state)
{
    (void)state;
    expect_assert_failure(
        (void)(fw_signals_open(&signals, reactor, events, FW_ARRAY_LENGTH(events), &reason) == 0));
}

/* Each of them, whichever one was forgotten. */
static void test_all_must_be_blocked(void **state)
{
    (void)state;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(events); i++) {
        sigset_t forgotten;
        assert_int_equal(sigemptyset(&forgotten), 0);
        assert_int_equal(sigaddset(&forgotten, events[i].number), 0);
        assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &forgotten, NULL), 0);
        expect_assert_failure((void)(fw_signals_open(&signals, reactor, events,
                                                     FW_ARRAY_LENGTH(events), &reason) == 0));
        assert_int_equal(pthread_sigmask(SIG_BLOCK, &forgotten, NULL), 0);
    }
}

static void test_block(void **state)
{
    (void)state;
    fw_signals_block(events, FW_ARRAY_LENGTH(events));
    sigset_t blocked;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &blocked), 0);
    assert_int_equal(sigismember(&blocked, SIGUSR1), 1);
    assert_int_equal(sigismember(&blocked, SIGALRM), 1);
    assert_int_equal(sigismember(&blocked, SIGTERM), 0); /* Not in the table. */

    /* Both would end the process if they were not ignored. */
    int pipe_fds[2];
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    assert_int_equal(close(pipe_fds[0]), 0);
    assert_int_equal(write(pipe_fds[1], "x", 1), -1);
    assert_int_equal(errno, EPIPE);
    assert_int_equal(close(pipe_fds[1]), 0);
    assert_int_equal(raise(SIGXFSZ), 0);
}

static void test_delivery(void **state)
{
    (void)state;
    /* Sent before there is a descriptor; twice is once. */
    assert_int_equal(kill(getpid(), SIGUSR2), 0);
    assert_int_equal(kill(getpid(), SIGUSR2), 0);
    signals_open();
    assert_string_equal(seen, "");
    seen_check("2");
    assert_int_equal(sender_last, getpid());

    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    assert_string_equal(seen, "2"); /* Not before the poll. */
    seen_check("21");
    sender_last = -1;
    assert_int_equal(raise(SIGUSR2), 0);
    assert_int_equal(raise(SIGUSR1), 0);
    seen_check("2112"); /* The kernel hands out lower numbers first. */
    assert_int_equal(sender_last, getpid());

    sender_last = -1;
    const struct itimerval soon = {.it_value = {.tv_usec = 1}};
    assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
    seen_check("2112a");
    assert_int_equal(sender_last, 0); /* Of the kernel. */

    assert_int_equal(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 1}), 0);
    seen_check("2112a1");
    assert_int_equal(sender_last, getpid());

    int fd = signals.fd;
    fw_signals_close(&signals, on_closed);
    assert_int_equal(raise(SIGUSR1), 0); /* Stays pending. */
    seen_check("2112a1c");
    assert_int_equal(signals.fd, -1);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    signals_open();
    seen_check("1");
    fw_signals_close(&signals, on_closed);
    seen_check("1c");
}

static void test_close_by_call_back(void **state)
{
    (void)state;
    signals_open();
    close_when_received = true;
    assert_int_equal(raise(SIGUSR1), 0);
    assert_int_equal(raise(SIGUSR2), 0); /* Read together with the first, and dropped. */
    seen_check("1c");
    close_when_received = false;
}

static void test_no_descriptors(void **state)
{
    (void)state;
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int rc = fw_signals_open(&signals, reactor, events, FW_ARRAY_LENGTH(events), &reason);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(rc, -EMFILE);
    assert_string_equal(reason.text, "cannot open a descriptor for signals: Too many open files");
}

/* The linker (--wrap) sends the calls of the reactor here. */
int __real_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
static bool epoll_is_full;

int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    if (epoll_is_full && operation == EPOLL_CTL_ADD) {
        errno = ENOSPC;
        return -1;
    }
    return __real_epoll_ctl(epoll, operation, fd, event);
}

static void test_no_watch(void **state)
{
    (void)state;
    int next = descriptor_next();
    epoll_is_full = true;
    int rc = fw_signals_open(&signals, reactor, events, FW_ARRAY_LENGTH(events), &reason);
    epoll_is_full = false;
    assert_int_equal(rc, -ENOSPC);
    assert_string_equal(reason.text, "cannot watch the descriptor for signals: No space left on "
                                     "device");
    assert_int_equal(descriptor_next(), next);
}

static void test_descriptor_0(void **state)
{
    (void)state;
    int held = descriptor_0_free();
    signals_open();
    assert_int_equal(signals.fd, STDIN_FILENO);
    assert_int_equal(raise(SIGUSR1), 0);
    seen_check("1");
    fw_signals_close(&signals, on_closed);
    seen_check("1c");
    descriptor_0_restore(held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_must_be_blocked),
        cmocka_unit_test(test_block),
        cmocka_unit_test(test_all_must_be_blocked),
        cmocka_unit_test(test_delivery),
        cmocka_unit_test(test_close_by_call_back),
        cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_no_watch),
        cmocka_unit_test(test_descriptor_0),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
