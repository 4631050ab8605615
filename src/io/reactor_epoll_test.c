/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the epoll back end asks the kernel for what it should, time-outs above all, and bears
 * whatever the kernel answers.
 * Method: the system calls are wrapped by the linker. The wrappers note what they are given, and
 * fail when told to; otherwise they do what they should. Nothing here waits or measures time.
 */
#include "io/reactor.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/assert.h"
#include "io/reactor_backend.h"

enum { MS = 1000000 };

int __real_epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_wait(int epoll_fd, struct epoll_event *events, int count_max, int timeout_ms);
int __wrap_epoll_pwait2(int epoll_fd, struct epoll_event *events, int count_max,
                        const struct timespec *timeout, const sigset_t *mask);
int __real_epoll_wait(int epoll_fd, struct epoll_event *events, int count_max, int timeout_ms);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags);
ssize_t __real_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
int __real_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags);

/* What the next calls fail with; 0: they do not. */
static int control_error;
static int wait_error;
static int pwait2_error;
static int eventfd_error;
static int send_error;
static int accept_error;
static int accept_error_count; /* How many more accepts fail. */
static int steal_fd = -1;      /* What there is to read is read by somebody else. */

/* What was asked for. */
static int control_count;
static int wait_count;
static int wait_timeout_ms;
static int pwait2_count;
static struct timespec pwait2_timeout;

static int fail_with(int error)
{
    errno = error;
    return -1;
}

int __wrap_epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event)
{
    control_count++;
    return control_error != 0 ? fail_with(control_error)
                              : __real_epoll_ctl(epoll_fd, operation, fd, event);
}

/* Takes what is there, and lets no time pass. What there was to read may be gone again when the
 * reactor hears of it. */
static int events_get(int epoll_fd, struct epoll_event *events, int count_max)
{
    int count = __real_epoll_wait(epoll_fd, events, count_max, 0);
    if (steal_fd >= 0) {
        char byte;
        assert_int_equal(recv(steal_fd, &byte, 1, 0), 1);
        steal_fd = -1;
    }
    return count;
}

int __wrap_epoll_wait(int epoll_fd, struct epoll_event *events, int count_max, int timeout_ms)
{
    wait_count++;
    wait_timeout_ms = timeout_ms;
    return wait_error != 0 ? fail_with(wait_error) : events_get(epoll_fd, events, count_max);
}

int __wrap_epoll_pwait2(int epoll_fd, struct epoll_event *events, int count_max,
                        const struct timespec *timeout, const sigset_t *mask)
{
    assert_null(mask);
    pwait2_count++;
    pwait2_timeout = *timeout;
    return pwait2_error != 0 ? fail_with(pwait2_error) : events_get(epoll_fd, events, count_max);
}

int __wrap_eventfd(unsigned count, int flags)
{
    return eventfd_error != 0 ? fail_with(eventfd_error) : __real_eventfd(count, flags);
}

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags)
{
    return send_error != 0 ? fail_with(send_error) : __real_send(fd, bytes, size, flags);
}

/* What io/syscall.h asks for directly where no sanitizer watches. */
long __wrap_syscall(long number, ...)
{
    va_list list;
    long arguments[6];
    va_start(list, number);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(arguments); i++) {
        arguments[i] = va_arg(list, long); /* As many as there can be; the rest is not looked at. */
    }
    va_end(list);
    if (number == SYS_epoll_pwait) {
        return __wrap_epoll_wait((int)arguments[0], (struct epoll_event *)arguments[1],
                                 (int)arguments[2], (int)arguments[3]);
    }
    if (number == SYS_sendto) {
        return __wrap_send((int)arguments[0], (const void *)arguments[1], (size_t)arguments[2],
                           (int)arguments[3]);
    }
    return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
                          arguments[4], arguments[5]);
}

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    if (accept_error_count > 0) {
        accept_error_count--;
        return fail_with(accept_error);
    }
    return __real_accept4(fd, address, length, flags);
}

static struct fw_reactor *reactor;

static int setup(void **state)
{
    (void)state;
    control_error = wait_error = pwait2_error = eventfd_error = send_error = 0;
    accept_error_count = 0;
    int rc = fw_reactor_create(&reactor, NULL);
    control_count = wait_count = pwait2_count = 0;
    return rc;
}

static int teardown(void **state)
{
    (void)state;
    fw_reactor_destroy(reactor);
    return 0;
}

static void test_timeouts_in_milliseconds(void **state)
{
    (void)state;
    static const struct {
        int64_t timeout_ns;
        int timeout_ms;
    } rows[] = {
        {0, 0},
        {-1, -1},
        {INT64_MIN, -1},
        {MS, 1},
        {3000LL * MS, 3000},
        {(int64_t)INT_MAX * MS, INT_MAX},
        {((int64_t)INT_MAX + 1) * MS, INT_MAX},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(rows); i++) {
        assert_int_equal(fw_reactor_poll(reactor, rows[i].timeout_ns), 0);
        assert_int_equal(wait_count, i + 1);
        assert_int_equal(wait_timeout_ms, rows[i].timeout_ms);
    }
    assert_int_equal(pwait2_count, 0);
}

static void test_timeouts_in_nanoseconds(void **state)
{
    (void)state;
    static const struct {
        int64_t timeout_ns;
        time_t seconds;
        long nanoseconds;
        int timeout_ms; /* Where only milliseconds are to be had: never too early. */
    } rows[] = {
        {1, 0, 1, 1},
        {MS + 1, 0, MS + 1, 2},
        {3000LL * MS - 1, 2, 1000L * MS - 1, 3000},
        {3000LL * MS + 1, 3, 1, 3001},
        {INT64_MAX, INT64_MAX / 1000 / MS, INT64_MAX % (1000L * MS), INT_MAX},
    };
    static const int missing[] = {ENOSYS, EPERM};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(rows); i++) {
        assert_int_equal(fw_reactor_poll(reactor, rows[i].timeout_ns), 0);
        assert_int_equal(pwait2_timeout.tv_sec, rows[i].seconds);
        assert_int_equal(pwait2_timeout.tv_nsec, rows[i].nanoseconds);
    }
    assert_int_equal(pwait2_count, FW_ARRAY_LENGTH(rows));
    assert_int_equal(wait_count, 0);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(rows); i++) {
        pwait2_error = missing[i % FW_ARRAY_LENGTH(missing)];
        assert_int_equal(fw_reactor_poll(reactor, rows[i].timeout_ns), 0);
        assert_int_equal(wait_count, i + 1);
        assert_int_equal(wait_timeout_ms, rows[i].timeout_ms);
    }
}

/* Whatever was asked for, a poll that must not wait does not. */
static void test_no_timeout_after_wake(void **state)
{
    (void)state;
    static const int64_t timeouts_ns[] = {-1, 1, MS, MS + 1};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(timeouts_ns); i++) {
        fw_reactor_wake(reactor);
        assert_int_equal(fw_reactor_poll(reactor, timeouts_ns[i]), 0);
        assert_int_equal(wait_count, i + 1);
        assert_int_equal(wait_timeout_ms, 0);
    }
    assert_int_equal(pwait2_count, 0);
}

static void test_interrupted(void **state)
{
    (void)state;
    wait_error = EINTR;
    assert_int_equal(fw_reactor_poll(reactor, -1), 0);
    pwait2_error = EINTR;
    assert_int_equal(fw_reactor_poll(reactor, 1), 0);
    assert_int_equal(wait_count, 1); /* A signal is no reason to try the other call. */
    wait_error = 0;
    pwait2_error = 0;

    struct fw_reactor *broken;
    assert_int_equal(fw_reactor_create(&broken, NULL), 0);
    wait_error = EBADF;
    expect_assert_failure((void)fw_reactor_poll(broken, 0));
    broken->is_polling = false; /* What the assertion left behind. */
    fw_reactor_destroy(broken);
}

static int descriptor_next(void)
{
    int fd = dup(0);
    assert_int_equal(close(fd), 0);
    return fd;
}

static void nothing_readable(struct fw_stream *stream)
{
    (void)stream;
    fail();
}

static int stream_sent_count;

static void stream_sent(struct fw_stream *stream, ssize_t result)
{
    (void)stream;
    assert_true(result > 0);
    stream_sent_count++;
}

static int stream_closed_count;

static void stream_closed(struct fw_stream *stream)
{
    (void)stream;
    stream_closed_count++;
}

static const struct fw_stream_events stream_events = {
    .readable = nothing_readable, .sent = stream_sent, .closed = stream_closed};

/* Each descriptor is registered once; a stream whose buffer was full a second time, for writing. */
static void test_few_registrations(void **state)
{
    (void)state;
    struct fw_stream stream;
    static char block[1 << 16];
    struct iovec piece = {.iov_base = block, .iov_len = sizeof block};
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(fw_stream_open(&stream, reactor, pair[0], &stream_events), 0);
    fw_stream_wait(&stream);
    assert_int_equal(fw_stream_send(&stream, &piece, 1), sizeof block);
    assert_int_equal(recv(pair[1], block, sizeof block, MSG_WAITALL), sizeof block);
    assert_int_equal(fw_reactor_poll(reactor, 0), 0);
    assert_int_equal(control_count, 1);
    ssize_t sent;
    do {
        sent = fw_stream_send(&stream, &piece, 1);
    } while (sent > 0);
    assert_int_equal(sent, -EINPROGRESS);
    assert_int_equal(control_count, 2);
    while (recv(pair[1], block, sizeof block, MSG_DONTWAIT) > 0) {
    }
    assert_int_equal(fw_reactor_poll(reactor, 0), 1);
    while (fw_stream_send(&stream, &piece, 1) > 0) {
    }
    assert_int_equal(control_count, 2); /* Once is enough. */
    fw_stream_close(&stream);
    assert_int_equal(control_count, 3);
    assert_int_equal(fw_reactor_poll(reactor, 0), 1);
    assert_int_equal(close(pair[1]), 0);
}

/* What the kernel calls writable it may have given away again, for want of memory for example. */
static void test_writable_but_full(void **state)
{
    (void)state;
    struct fw_stream stream;
    static char block[1 << 16];
    struct iovec piece = {.iov_base = block, .iov_len = sizeof block};
    int pair[2];
    stream_sent_count = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(fw_stream_open(&stream, reactor, pair[0], &stream_events), 0);
    while (fw_stream_send(&stream, &piece, 1) > 0) {
    }
    while (recv(pair[1], block, sizeof block, MSG_DONTWAIT) > 0) {
    }
    send_error = EAGAIN;
    assert_int_equal(fw_reactor_poll(reactor, 0), 0);
    send_error = 0;
    assert_int_equal(__real_send(pair[0], block, 1, 0),
                     1); /* For one more edge, when it is read. */
    assert_int_equal(recv(pair[1], block, 1, 0), 1);
    assert_int_equal(fw_reactor_poll(reactor, 0), 1);
    assert_int_equal(stream_sent_count, 1);
    fw_stream_close(&stream);
    assert_int_equal(fw_reactor_poll(reactor, 0), 1);
    assert_int_equal(close(pair[1]), 0);
}

static char received[2];

static void stream_received(struct fw_stream *stream, ssize_t result)
{
    (void)stream;
    assert_int_equal(result, 1);
    assert_int_equal(received[0], 'b');
    received[1] = 'x';
}

/* What the kernel calls readable somebody else may have read. */
static void test_readable_but_empty(void **state)
{
    (void)state;
    static const struct fw_stream_events events = {.received = stream_received,
                                                   .closed = stream_closed};
    struct fw_stream stream;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(fw_stream_open(&stream, reactor, pair[0], &events), 0);
    assert_int_equal(fw_stream_receive(&stream, received, 1), -EINPROGRESS);
    assert_int_equal(__real_send(pair[1], "a", 1, 0), 1);
    steal_fd = pair[0];
    assert_int_equal(fw_reactor_poll(reactor, 0), 0); /* No call-back. */
    assert_int_equal(__real_send(pair[1], "b", 1, 0), 1);
    assert_int_equal(fw_reactor_poll(reactor, 0), 1);
    assert_int_equal(received[1], 'x');
    fw_stream_close(&stream);
    assert_int_equal(fw_reactor_poll(reactor, 0), 1);
    assert_int_equal(close(pair[1]), 0);
}

static void test_create_fails(void **state)
{
    (void)state;
    struct fw_reactor *made;
    struct fw_reason reason = {""};
    int next = descriptor_next();
    eventfd_error = EMFILE;
    assert_int_equal(fw_reactor_create(&made, &reason), -EMFILE);
    assert_non_null(strstr(reason.text, "cannot make a reactor: eventfd()"));
    eventfd_error = 0;
    control_error = ENOSPC;
    assert_int_equal(fw_reactor_create(&made, &reason), -ENOSPC);
    assert_non_null(strstr(reason.text, "cannot make a reactor: epoll_ctl()"));
    control_error = 0;
    assert_int_equal(descriptor_next(), next);
    assert_int_equal(fw_reactor_create(&made, NULL), 0);
    fw_reactor_destroy(made);
    assert_int_equal(descriptor_next(), next); /* Nor does one that ends in order keep any. */
}

static void test_registration_fails(void **state)
{
    (void)state;
    struct fw_stream stream;
    static char block[1 << 16];
    struct iovec piece = {.iov_base = block, .iov_len = sizeof block};
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);

    control_error = ENOSPC;
    assert_int_equal(fw_stream_open(&stream, reactor, pair[0], &stream_events), -ENOSPC);
    control_error = 0;
    assert_int_equal(fw_stream_open(&stream, reactor, pair[0], &stream_events), 0);
    control_error = ENOMEM; /* When the stream is to be watched for writing. */
    ssize_t sent;
    do {
        sent = fw_stream_send(&stream, &piece, 1);
    } while (sent > 0);
    assert_int_equal(sent, -ENOMEM);
    control_error = 0;
    assert_int_equal(fw_stream_send(&stream, &piece, 1), -EINPROGRESS);
    stream_closed_count = 0;
    fw_stream_close(&stream);
    assert_int_equal(fw_reactor_poll(reactor, 0), 1);
    assert_int_equal(stream_closed_count, 1);
    assert_int_equal(close(pair[1]), 0);
}

/* A listener that is left to the events to open, on a file. */
struct door {
    struct fw_listener listener;
    int accepted_count;
    int failed_count;
};

static void door_accepted(struct fw_listener *listener, int fd)
{
    struct door *door = FW_CONTAINER_OF(listener, struct door, listener);
    if (fd < 0) {
        assert_int_equal(fd, -accept_error);
        door->failed_count++;
        return;
    }
    door->accepted_count++;
    fw_socket_close(fd);
}

static void door_closed(struct fw_listener *listener)
{
    (void)listener;
}

static const struct fw_listener_events door_events = {.accepted = door_accepted,
                                                      .closed = door_closed};
static const struct fw_listener_options options = {.backlog = 16, .mode = 0600};

static struct fw_address door_address(void)
{
    char text[64];
    struct fw_address address;
    (void)snprintf(text, sizeof text, "/tmp/fairway-reactor-epoll-test-%d", (int)getpid());
    assert_int_equal(fw_address_parse(text, 0, 0, &address, 1, NULL), 1);
    return address;
}

static void test_registration_fails_late(void **state)
{
    (void)state;
    struct door door;
    struct fw_stream stream;
    struct fw_reason reason = {""};
    struct fw_socket_file file;
    struct fw_address address = door_address();
    int next = descriptor_next();
    control_error = ENOSPC;
    int rc = fw_listener_open(&door.listener, reactor, &address, &options, &door_events, &reason);
    assert_int_equal(rc, -ENOSPC);
    assert_non_null(strstr(reason.text, "cannot watch"));
    assert_int_equal(access(fw_address_path(&address), F_OK), -1); /* Nothing is left behind. */
    assert_int_equal(descriptor_next(), next);

    int listener = fw_socket_listen(&address, &options, &address, &file, NULL);
    next = descriptor_next();
    assert_int_equal(fw_stream_connect(&stream, reactor, &address, &stream_events), -ENOSPC);
    assert_int_equal(descriptor_next(), next);
    fw_socket_unlink(&address, &file);
    fw_socket_close(listener);
}

static void check_accept_error(int error, bool goes_on)
{
    struct door door = {.accepted_count = 0};
    struct fw_address address = door_address();
    int client;
    int rc = fw_listener_open(&door.listener, reactor, &address, &options, &door_events, NULL);
    assert_int_equal(rc, 0);
    assert_int_equal(fw_socket_connect(&address, &client), 0);
    accept_error = error;
    accept_error_count = 3;
    assert_int_equal(fw_reactor_poll(reactor, 0), goes_on ? 4 : 1);
    assert_int_equal(door.failed_count, goes_on ? 3 : 1);
    assert_int_equal(door.accepted_count, goes_on ? 1 : 0);
    assert_int_equal(fw_reactor_poll(reactor, 0), 0); /* Paused, or done. */
    accept_error_count = 0;
    fw_listener_resume(&door.listener);
    (void)fw_reactor_poll(reactor, 0);
    assert_int_equal(door.accepted_count, 1);
    fw_socket_close(client);
    fw_listener_close(&door.listener);
    assert_int_equal(fw_reactor_poll(reactor, 0), 1);
}

static void test_accept_errors(void **state)
{
    (void)state;
    static const int of_one_connection[] = {
        ECONNABORTED, EINTR,        EPERM,  EPROTO,      ENETDOWN,   ENETUNREACH,
        EHOSTDOWN,    EHOSTUNREACH, ENONET, ENOPROTOOPT, EOPNOTSUPP,
    };
    static const int of_the_listener[] = {EMFILE, ENFILE, ENOMEM, ENOBUFS, EINVAL};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(of_one_connection); i++) {
        check_accept_error(of_one_connection[i], true);
    }
    for (size_t i = 0; i < FW_ARRAY_LENGTH(of_the_listener); i++) {
        check_accept_error(of_the_listener[i], false);
    }
}

#define WITH_REACTOR(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_REACTOR(test_timeouts_in_milliseconds),
        WITH_REACTOR(test_timeouts_in_nanoseconds),
        WITH_REACTOR(test_no_timeout_after_wake),
        WITH_REACTOR(test_interrupted),
        WITH_REACTOR(test_few_registrations),
        WITH_REACTOR(test_writable_but_full),
        WITH_REACTOR(test_readable_but_empty),
        WITH_REACTOR(test_create_fails),
        WITH_REACTOR(test_registration_fails),
        WITH_REACTOR(test_registration_fails_late),
        WITH_REACTOR(test_accept_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
