/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a wake-up is never lost and costs a system call only if someone sleeps; the reactor works
 * for whichever thread has the turn, and two are caught; time-outs end; watches keep their rules.
 * Method: another thread wakes a poll that waits without end, over and over, and writes a plain
 * variable before; a lost wake-up hangs, and TSan sees one that orders nothing. A back end whose
 * kick() counts shows the system calls. Two threads hand one reactor to and fro, and one of them
 * blocks for good while the other goes on.
 */
#include "io/reactor.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/thread.h"
#include "io/clock.h"
#include "io/reactor_backend.h"
#include "support/fail_memory.h"
#include "support/reactor_backend.h"

static struct fw_reactor *reactor;

static const struct fw_reactor_backend *real_backend;
static struct fw_reactor_backend counting_backend;
static _Atomic int kick_count;

static void counting_kick(struct fw_reactor *kicked)
{
    (void)atomic_fetch_add(&kick_count, 1);
    real_backend->kick(kicked);
}

static int setup_reactor(void **state)
{
    (void)state;
    real_backend = fw_reactor_backend;
    counting_backend = *real_backend;
    counting_backend.kick = counting_kick;
    atomic_store(&kick_count, 0);
    fw_reactor_backend = &counting_backend;
    int rc = fw_reactor_create(&reactor, NULL);
    fw_reactor_backend = real_backend;
    return rc;
}

static int teardown_reactor(void **state)
{
    (void)state;
    fw_reactor_destroy(reactor); /* Asserts that all was closed. */
    return 0;
}

static void test_wake_before_poll(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        fw_reactor_wake(reactor);
    }
    assert_int_equal(fw_reactor_poll(reactor, -1), 0); /* Does not wait. */
    fw_reactor_wake(reactor);
    assert_int_equal(fw_reactor_poll(reactor, 0), 0);
    /* That one took it: the next would wait. */
    assert_int_equal(atomic_load(&reactor->wake), FW_REACTOR_AWAKE);
    assert_int_equal(kick_count, 0); /* Nobody slept, so no system call was made. */
}

enum { WAKES = 2000 };
static _Atomic int wake_message;
static struct fw_parker waker_parker;

static void waker_run(void *argument)
{
    (void)argument;
    for (int i = 1; i <= WAKES; i++) {
        atomic_store_explicit(&wake_message, i, memory_order_relaxed); /* Ordered by the wake. */
        fw_reactor_wake(reactor);
        fw_park(&waker_parker);
    }
}

/* A wake-up that is lost leaves the poll waiting. One may also return early, as the header says. */
static void test_wake_from_thread(void **state)
{
    (void)state;
    struct fw_thread thread;
    fw_parker_init(&waker_parker);
    assert_int_equal(fw_thread_create(&thread, "waker", waker_run, NULL), 0);
    for (int i = 1; i <= WAKES; i++) {
        do {
            assert_int_equal(fw_reactor_poll(reactor, i % 2 == 0 ? -1 : INT64_MAX), 0);
        } while (atomic_load_explicit(&wake_message, memory_order_relaxed) < i);
        fw_unpark(&waker_parker);
    }
    fw_thread_join(&thread);
    assert_true(kick_count <= WAKES);
}

static int plain_message;
static _Atomic bool plain_is_woken;

static void plain_waker_run(void *argument)
{
    (void)argument;
    plain_message = 7;
    fw_reactor_wake(reactor);
    atomic_store_explicit(&plain_is_woken, true, memory_order_relaxed); /* Orders nothing. */
}

/*
 * What was written before a wake-up can be read after the poll that took it, also if that poll did
 * not sleep: then no system call orders the two, and TSan sees whether the wake-up does.
 */
static void test_wake_orders(void **state)
{
    (void)state;
    struct fw_thread thread;
    assert_int_equal(fw_thread_create(&thread, "waker", plain_waker_run, NULL), 0);
    while (!atomic_load_explicit(&plain_is_woken, memory_order_relaxed)) {
        fw_thread_yield();
    }
    assert_int_equal(fw_reactor_poll(reactor, -1), 0);
    assert_int_equal(plain_message, 7);
    fw_thread_join(&thread);
    assert_int_equal(kick_count, 0);
}

enum { CROWD = 4, ROUNDS = 50 };

static void crowd_run(void *argument)
{
    (void)argument;
    fw_reactor_wake(reactor);
}

/* Several wake at once: a system call is made only by the first who meets the sleeper. */
static void test_wake_from_crowd(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct fw_thread threads[CROWD];
        for (int i = 0; i < CROWD; i++) {
            assert_int_equal(fw_thread_create(&threads[i], "crowd", crowd_run, NULL), 0);
        }
        assert_int_equal(fw_reactor_poll(reactor, -1), 0);
        for (int i = 0; i < CROWD; i++) {
            fw_thread_join(&threads[i]);
        }
        (void)fw_reactor_poll(reactor, 0); /* Takes what came too late for the first. */
        assert_int_equal(atomic_load(&reactor->wake), FW_REACTOR_AWAKE);
    }
    assert_true(kick_count <= ROUNDS);
}

static void test_create_without_memory(void **state)
{
    (void)state;
    struct fw_reason reason = {""};
    struct fw_reactor *none;
    fail_memory_after(0);
    assert_int_equal(fw_reactor_create(&none, &reason), -ENOMEM);
    assert_non_null(strstr(reason.text, "cannot make a reactor"));
}

static void test_timeouts(void **state)
{
    (void)state;
    assert_int_equal(fw_reactor_poll(reactor, 0), 0);
    assert_int_equal(fw_reactor_poll(reactor, 1), 0);
    assert_int_equal(fw_reactor_poll(reactor, 1000000), 0);
    /* It sleeps rather than spins: it may return early, but not again and again. */
    int64_t begin_ns = fw_clock_now_ns();
    int polls = 0;
    do {
        assert_int_equal(fw_reactor_poll(reactor, 1500000), 0);
        polls++;
    } while (fw_clock_now_ns() - begin_ns < 1500000);
    assert_in_range(polls, 1, 5);
}

/* One stream that whoever has the turn serves. */
static struct fw_stream stream;
static int stream_other;
static int readable_count;
static int closed_count;

static void stream_readable(struct fw_stream *readable)
{
    char buffer[8];
    readable_count++;
    assert_int_equal(fw_stream_receive(readable, buffer, sizeof buffer), 3);
    fw_stream_wait(readable);
}

static void stream_closed(struct fw_stream *closed)
{
    (void)closed;
    closed_count++;
}

static void stream_open(const struct fw_stream_events *events)
{
    int pair[2];
    readable_count = 0;
    closed_count = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    stream_other = pair[1];
    assert_int_equal(fw_stream_open(&stream, reactor, pair[0], events), 0);
    fw_stream_wait(&stream);
}

static void stream_close(void)
{
    fw_stream_close(&stream);
    assert_int_equal(fw_reactor_poll(reactor, -1), 1);
    assert_int_equal(closed_count, 1);
    assert_int_equal(close(stream_other), 0);
}

enum { TURNS = 1000 };
static struct fw_parker turn_parkers[2];

static void turn_use(void)
{
    int before = readable_count;
    assert_int_equal(send(stream_other, "abc", 3, 0), 3);
    while (readable_count == before) {
        (void)fw_reactor_poll(reactor, -1);
    }
}

static void turn_run(void *argument)
{
    (void)argument;
    for (int i = 0; i < TURNS; i++) {
        fw_park(&turn_parkers[1]);
        turn_use();
        fw_unpark(&turn_parkers[0]);
    }
}

static void test_turn_moves(void **state)
{
    (void)state;
    static const struct fw_stream_events events = {.readable = stream_readable,
                                                   .closed = stream_closed};
    struct fw_thread thread;
    fw_parker_init(&turn_parkers[0]);
    fw_parker_init(&turn_parkers[1]);
    stream_open(&events);
    assert_int_equal(fw_thread_create(&thread, "turn", turn_run, NULL), 0);
    for (int i = 0; i < TURNS; i++) {
        turn_use();
        fw_unpark(&turn_parkers[1]);
        fw_park(&turn_parkers[0]);
    }
    fw_thread_join(&thread);
    assert_int_equal(readable_count, 2 * TURNS);
    stream_close();
}

static int blocked_pipe[2]; /* Tells that the thread is blocked. */
static int release_pipe[2]; /* Ends that. */

/*
 * Uses the reactor, then blocks in the kernel where no signal reaches it, as a file system call
 * may: a parent is not runnable again until its vfork()ed child ends. Without CLONE_VM the child
 * has memory of its own, so that it can be an ordinary one.
 */
static void blocker_run(void *argument)
{
    (void)argument;
    turn_use();
    (void)fw_reactor_poll(reactor, 0);
    fw_unpark(&turn_parkers[0]); /* The turn is handed over; the pipe tells only that we block. */
    long child = syscall(SYS_clone, CLONE_VFORK | SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) {
        char byte = 0;
        _exit(write(blocked_pipe[1], &byte, 1) == 1 && read(release_pipe[0], &byte, 1) == 1 ? 0
                                                                                            : 1);
    }
    int status = -1;
    assert_int_equal(waitpid((pid_t)child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* A thread that gave its turn away and blocks keeps nothing that the next one needs. */
static void test_turn_moves_from_blocked(void **state)
{
    (void)state;
    static const struct fw_stream_events events = {.readable = stream_readable,
                                                   .closed = stream_closed};
    struct fw_thread thread;
    char byte;
    assert_int_equal(pipe2(blocked_pipe, O_CLOEXEC), 0);
    assert_int_equal(pipe2(release_pipe, O_CLOEXEC), 0);
    fw_parker_init(&turn_parkers[0]);
    stream_open(&events);
    assert_int_equal(fw_thread_create(&thread, "blocker", blocker_run, NULL), 0);
    fw_park(&turn_parkers[0]);
    assert_int_equal(read(blocked_pipe[0], &byte, 1), 1);
    turn_use();
    assert_int_equal(write(release_pipe[1], &byte, 1), 1);
    fw_thread_join(&thread);
    assert_int_equal(readable_count, 2);
    stream_close();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(close(blocked_pipe[i]), 0);
        assert_int_equal(close(release_pipe[i]), 0);
    }
}

#if defined(FW_CHECKS)
static void intruder_run(void *argument)
{
    (void)argument;
    expect_assert_failure(fw_stream_wait_cancel(&stream));
    expect_assert_failure((void)fw_reactor_poll(reactor, 0));
    readable_count++;
}

static void stream_let_in_intruder(struct fw_stream *readable)
{
    (void)readable;
    struct fw_thread thread;
    fw_stream_wait_cancel(readable); /* We may: it is our turn. */
    assert_int_equal(fw_thread_create(&thread, "intruder", intruder_run, NULL), 0);
    fw_thread_join(&thread);
}

static void test_two_inside(void **state)
{
    (void)state;
    static const struct fw_stream_events events = {.readable = stream_let_in_intruder,
                                                   .closed = stream_closed};
    stream_open(&events);
    assert_int_equal(send(stream_other, "abc", 3, 0), 3);
    assert_int_equal(fw_reactor_poll(reactor, -1), 1);
    assert_int_equal(readable_count, 1); /* The other thread met both assertions. */
    stream_close();
}
#endif

static void other_thread_run(void *argument)
{
    *(int *)argument = fw_reactor_poll(reactor, 0);
}

/* The turn is somebody else's for one poll. */
static int poll_elsewhere(void)
{
    struct fw_thread thread;
    int ran = -1;
    assert_int_equal(fw_thread_create(&thread, "elsewhere", other_thread_run, &ran), 0);
    fw_thread_join(&thread);
    return ran;
}

static void door_accepted(struct fw_listener *listener, int fd)
{
    (void)listener;
    (void)fd;
    fail();
}

static void door_closed(struct fw_listener *listener)
{
    (void)listener;
}

/* Every call leaves the reactor again, successful or not, and then the turn may move. */
static void test_turn_is_left(void **state)
{
    (void)state;
    static const struct fw_stream_events events = {.readable = stream_readable,
                                                   .closed = stream_closed};
    static const struct fw_listener_events door_events = {.accepted = door_accepted,
                                                          .closed = door_closed};
    static const struct fw_listener_options options = {.backlog = 1};
    struct fw_listener listener;
    struct fw_address address;
    char byte = 'x';
    const struct iovec piece = {.iov_base = &byte, .iov_len = 1};
    stream_open(&events);
    assert_int_equal(poll_elsewhere(), 0);
    fw_stream_wait_cancel(&stream);
    assert_int_equal(poll_elsewhere(), 0);
    assert_int_equal(fw_stream_send(&stream, &piece, 1), 1);
    assert_int_equal(poll_elsewhere(), 0);
    assert_int_equal(fw_stream_send_now(&stream, &piece, 1), 1);
    assert_int_equal(poll_elsewhere(), 0);
    assert_int_equal(fw_stream_receive_now(&stream, &byte, 1), -EAGAIN);
    assert_int_equal(poll_elsewhere(), 0);
    fw_stream_shutdown(&stream);
    assert_int_equal(poll_elsewhere(), 0);
    assert_int_equal(fw_stream_receive(&stream, &byte, 1), -EINPROGRESS);
    assert_int_equal(poll_elsewhere(), 0);
    fw_stream_close(&stream);
    assert_int_equal(poll_elsewhere(), 1);
    assert_int_equal(close(stream_other), 0);

    assert_int_equal(fw_address_parse("127.0.0.1:0", 0, 0, &address, 1, NULL), 1);
    int rc = fw_listener_open(&listener, reactor, &address, &options, &door_events, NULL);
    assert_int_equal(rc, 0);
    assert_int_equal(poll_elsewhere(), 0);
    fw_listener_pause(&listener);
    assert_int_equal(poll_elsewhere(), 0);
    fw_listener_resume(&listener);
    assert_int_equal(poll_elsewhere(), 0);
    fw_listener_close(&listener);
    assert_int_equal(poll_elsewhere(), 1);
    rc = fw_stream_connect(&stream, reactor, &listener.address, &events);
    assert_int_equal(rc, -EINPROGRESS);
    fw_stream_close(&stream);
    assert_int_equal(poll_elsewhere(), 1);
}

struct watched {
    struct fw_watch watch;
    int fd;
    int ready_count;
    int closed_count;
    struct watched *closes; /* What it closes when it is ready. */
};

static void watched_ready(struct fw_watch *watch)
{
    struct watched *watched = FW_CONTAINER_OF(watch, struct watched, watch);
    watched->ready_count++;
    if (watched->closes != NULL) {
        fw_watch_close(&watched->closes->watch);
    }
}

static void watched_closed(struct fw_watch *watch)
{
    FW_CONTAINER_OF(watch, struct watched, watch)->closed_count++;
}

static void watched_open(struct watched *watched, unsigned count)
{
    *watched = (struct watched){.fd = eventfd(count, EFD_NONBLOCK | EFD_CLOEXEC)};
    int rc = fw_watch_open(&watched->watch, reactor, watched->fd, watched_ready, watched_closed);
    assert_int_equal(rc, 0);
}

static void test_watch(void **state)
{
    (void)state;
    struct watched watched;
    watched_open(&watched, 0);
    assert_int_equal(poll_elsewhere(), 0);
    assert_int_equal(eventfd_write(watched.fd, 1), 0);
    assert_int_equal(fw_reactor_poll(reactor, -1), 1);
    assert_int_equal(watched.ready_count, 1);
    assert_int_equal(fw_reactor_poll(reactor, 0), 0); /* Edge-triggered, although it is not read. */
    assert_int_equal(eventfd_write(watched.fd, 1), 0);
    assert_int_equal(fw_reactor_poll(reactor, -1), 1);
    assert_int_equal(watched.ready_count, 2);

    assert_int_equal(eventfd_write(watched.fd, 1), 0);
    fw_watch_close(&watched.watch);
    assert_int_equal(watched.closed_count, 0);
    assert_int_equal(fw_reactor_poll(reactor, -1), 1);
    assert_int_equal(watched.closed_count, 1);
    assert_int_equal(watched.ready_count, 2);
    assert_int_equal(eventfd_write(watched.fd, 1), 0); /* The descriptor is the caller's. */
    assert_int_equal(fw_reactor_poll(reactor, 0), 0);
    assert_int_equal(close(watched.fd), 0);

    FILE *plain = tmpfile();
    int rc = fw_watch_open(&watched.watch, reactor, fileno(plain), watched_ready, watched_closed);
    assert_int_equal(rc, -EPERM);
    assert_int_equal(fclose(plain), 0);
}

/* A pipe's writing end: reported when it has room, silent while it is full, reported again. */
static void test_watch_both(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    struct watched watched = {.fd = ends[1]};
    int rc = fw_watch_open_both(&watched.watch, reactor, ends[1], watched_ready, watched_closed);
    assert_int_equal(rc, 0);
    assert_int_equal(fw_reactor_poll(reactor, -1), 1);
    char page[4096] = {0};
    while (write(ends[1], page, sizeof page) > 0) {
    }
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(fw_reactor_poll(reactor, 0), 0);
    while (read(ends[0], page, sizeof page) > 0) {
    }
    assert_true(fw_reactor_poll(reactor, -1) >= 1);
    assert_true(watched.ready_count >= 2);
    fw_watch_close(&watched.watch);
    assert_int_equal(fw_reactor_poll(reactor, -1), 1);
    assert_int_equal(close(ends[0]) + close(ends[1]), 0);
}

/* Two watches whose events are in one batch, each of which closes the other when it is called. */
static void test_watch_closed_in_batch(void **state)
{
    (void)state;
    struct watched watched[2];
    watched_open(&watched[0], 1);
    watched_open(&watched[1], 1);
    watched[0].closes = &watched[1];
    watched[1].closes = &watched[0];
    assert_int_equal(fw_reactor_poll(reactor, -1), 2); /* One `ready`, one `closed`. */
    struct watched *survivor = watched[0].ready_count == 1 ? &watched[0] : &watched[1];
    assert_int_equal(survivor->ready_count, 1);
    assert_int_equal(survivor->closed_count, 0);
    assert_int_equal(survivor->closes->ready_count, 0);
    assert_int_equal(survivor->closes->closed_count, 1);

    survivor->closes = survivor; /* And one that closes itself. */
    assert_int_equal(eventfd_write(survivor->fd, 1), 0);
    assert_int_equal(fw_reactor_poll(reactor, -1), 2);
    assert_int_equal(survivor->closed_count, 1);
    assert_int_equal(close(watched[0].fd), 0);
    assert_int_equal(close(watched[1].fd), 0);
}

#define WITH_REACTOR(test) cmocka_unit_test_setup_teardown(test, setup_reactor, teardown_reactor)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_REACTOR(test_wake_before_poll),
        WITH_REACTOR(test_wake_from_thread),
        WITH_REACTOR(test_wake_orders),
        WITH_REACTOR(test_wake_from_crowd),
        WITH_REACTOR(test_create_without_memory),
        WITH_REACTOR(test_timeouts),
        WITH_REACTOR(test_turn_moves),
        WITH_REACTOR(test_turn_moves_from_blocked),
        WITH_REACTOR(test_turn_is_left),
#if defined(FW_CHECKS)
        WITH_REACTOR(test_two_inside),
#endif
        WITH_REACTOR(test_watch),
        WITH_REACTOR(test_watch_both),
        WITH_REACTOR(test_watch_closed_in_batch),
    };
    return fw_test_run_on_backend(tests);
}
