/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: listeners accept in rounds, pause for want of descriptors and when told to, lose no
 * connection over it, and report where they listen or why they cannot.
 * Method: connections wait in the backlog of a UNIX socket, where connecting is done at once, so
 * that each poll's accepts can be counted. Descriptors run out because the test lowers its limit.
 */
#include "io/reactor.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/assert.h"
#include "io/reactor_backend.h"
#include "support/network.h"
#include "support/reactor_backend.h"

enum { CLIENTS_MAX = 200 };

/* What the call-back does after it has counted. */
enum reaction { NOTHING, PAUSE, PAUSE_AND_RESUME, CLOSE, REFUSE };

struct door {
    struct fw_listener listener;
    int accepted_count;
    int closed_count;
    int error; /* The last one. */
    enum reaction reaction;
};

static struct fw_reactor *reactor;
static struct fw_address address;
static char path[64];
static int clients[CLIENTS_MAX];
static int client_count;
static int served[CLIENTS_MAX];
static int served_count;

static void door_accepted(struct fw_listener *listener, int fd)
{
    struct door *door = FW_CONTAINER_OF(listener, struct door, listener);
    if (fd < 0) {
        door->error = fd;
        return;
    }
    door->accepted_count++;
    if (door->reaction == REFUSE) {
        char words[] = "full\n";
        const struct iovec last = {.iov_base = words, .iov_len = strlen(words)};
        fw_listener_refuse(listener, fd, &last);
        return;
    }
    served[served_count++] = fd;
    switch (door->reaction) {
    case NOTHING:
    case REFUSE:
        return;
    case PAUSE_AND_RESUME:
        fw_listener_pause(listener);
        fw_listener_resume(listener);
        return;
    case PAUSE:
        fw_listener_pause(listener);
        return;
    case CLOSE:
        fw_listener_close(listener);
        return;
    }
}

static void door_closed(struct fw_listener *listener)
{
    FW_CONTAINER_OF(listener, struct door, listener)->closed_count++;
}

static const struct fw_listener_events door_events = {.accepted = door_accepted,
                                                      .closed = door_closed};
static const struct fw_listener_options options = {.backlog = CLIENTS_MAX, .mode = 0600};

static void door_open(struct door *door)
{
    struct fw_reason reason;
    *door = (struct door){.accepted_count = 0};
    assert_int_equal(
        fw_listener_open(&door->listener, reactor, &address, &options, &door_events, &reason), 0);
}

static void door_close(struct door *door)
{
    fw_listener_close(&door->listener);
    assert_int_equal(fw_reactor_poll(reactor, -1), 1);
    assert_int_equal(door->closed_count, 1);
}

static void client_connect(void)
{
    assert_int_equal(fw_socket_connect(&address, &clients[client_count]), 0);
    client_count++;
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(path, sizeof path, "/tmp/fairway-listener-test-%d", (int)getpid());
    client_count = 0;
    served_count = 0;
    if (fw_address_parse(path, 0, 0, &address, 1, NULL) != 1) {
        return -1;
    }
    return fw_reactor_create(&reactor, NULL);
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < client_count; i++) {
        fw_socket_close(clients[i]);
    }
    for (int i = 0; i < served_count; i++) {
        fw_socket_close(served[i]);
    }
    fw_reactor_destroy(reactor);
    return access(path, F_OK) == 0 ? -1 : 0; /* The file has gone with the listener. */
}

static void test_accept(void **state)
{
    (void)state;
    struct door door;
    struct stat found;
    door_open(&door);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode, S_IFSOCK | 0600);
    assert_int_equal(fw_reactor_poll(reactor, 0), 0);
    for (int i = 1; i <= 3; i++) {
        client_connect();
        assert_int_equal(fw_reactor_poll(reactor, -1), 1);
        assert_int_equal(door.accepted_count, i);
        assert_int_equal(fw_reactor_poll(reactor, 0), 0);
    }
    char byte = 0;
    assert_int_equal(send(clients[1], "x", 1, 0), 1);
    assert_int_equal(recv(served[1], &byte, 1, 0), 1); /* In the order of the backlog. */
    door_close(&door);
}

static void test_refuse(void **state)
{
    (void)state;
    struct door door;
    char heard[16] = "";
    door_open(&door);
    door.reaction = REFUSE;
    client_connect();
    assert_int_equal(fw_reactor_poll(reactor, -1), 1);
    assert_int_equal(recv(clients[0], heard, sizeof heard, MSG_WAITALL), 5); /* And the end. */
    assert_string_equal(heard, "full\n");
    door_close(&door);
}

/* Who has closed stdin gets its number for a socket, which is as good as any other. */
static void test_descriptor_0(void **state)
{
    (void)state;
    struct door door;
    int kept = dup(0);
    assert_true(kept > 0);
    assert_int_equal(close(0), 0);
    door_open(&door);
    client_connect();
    assert_int_equal(fw_reactor_poll(reactor, -1), 1);
    assert_int_equal(door.accepted_count, 1);
    door_close(&door);
    assert_int_equal(dup2(kept, 0), 0);

    door_open(&door);
    client_connect();
    client_connect();
    assert_int_equal(close(0), 0);
    while (door.accepted_count < 2) { /* It does not take the first for an error, and pause. */
        (void)fw_reactor_poll(reactor, -1);
    }
    assert_int_equal(served[1], 0);
    door_close(&door);
    assert_int_equal(dup2(kept, 0), 0);
    served[1] = served[--served_count];
    assert_int_equal(close(kept), 0);
}

static void test_accept_in_rounds(void **state)
{
    (void)state;
    struct door door;
    door_open(&door);
    for (int i = 0; i < 2 * FW_ACCEPT_ROUND + 10; i++) {
        client_connect();
    }
    assert_int_equal(fw_reactor_poll(reactor, -1), FW_ACCEPT_ROUND);
    client_connect(); /* An event for one that is remembered does not give it a second turn. */
    assert_int_equal(fw_reactor_poll(reactor, -1), FW_ACCEPT_ROUND);
    assert_int_equal(fw_reactor_poll(reactor, -1), 11);
    assert_int_equal(fw_reactor_poll(reactor, 0), 0);
    assert_int_equal(door.accepted_count, 2 * FW_ACCEPT_ROUND + 11);
    client_connect();
    assert_int_equal(fw_reactor_poll(reactor, -1), 1);
    door_close(&door);
}

static void test_pause(void **state)
{
    (void)state;
    struct door door;
    door_open(&door);
    fw_listener_resume(&door.listener); /* One that was not paused. */
    fw_listener_pause(&door.listener);
    fw_listener_pause(&door.listener);
    client_connect();
    assert_int_equal(fw_reactor_poll(reactor, 0), 0);
    fw_listener_resume(&door.listener);
    fw_listener_resume(&door.listener);
    fw_listener_pause(&door.listener); /* Before its turn came. */
    assert_int_equal(fw_reactor_poll(reactor, 0), 0);
    fw_listener_resume(&door.listener);
    assert_int_equal(fw_reactor_poll(reactor, -1), 1);

    fw_listener_pause(&door.listener); /* With nothing to accept. */
    fw_listener_resume(&door.listener);
    assert_int_equal(fw_reactor_poll(reactor, 0), 0);
    client_connect();
    assert_int_equal(fw_reactor_poll(reactor, -1), 1);
    assert_int_equal(door.accepted_count, 2);
    door_close(&door);
}

static void test_pause_in_callback(void **state)
{
    (void)state;
    struct door door;
    door_open(&door);
    for (int i = 0; i < 4; i++) {
        client_connect();
    }
    door.reaction = PAUSE;
    assert_int_equal(fw_reactor_poll(reactor, -1), 1);
    assert_int_equal(fw_reactor_poll(reactor, 0), 0);
    door.reaction = PAUSE_AND_RESUME;
    fw_listener_resume(&door.listener);
    assert_int_equal(fw_reactor_poll(reactor, -1), 1); /* The rest comes with the next round. */
    door.reaction = NOTHING;
    assert_int_equal(fw_reactor_poll(reactor, -1), 2);
    assert_int_equal(fw_reactor_poll(reactor, 0), 0);
    assert_int_equal(door.accepted_count, 4);
    door_close(&door);
}

static void test_close_in_callback(void **state)
{
    (void)state;
    struct door door;
    door_open(&door);
    client_connect();
    client_connect();
    door.reaction = CLOSE;
    assert_int_equal(fw_reactor_poll(reactor, -1), 2); /* `accepted`, and `closed`. */
    assert_int_equal(door.accepted_count, 1);
    assert_int_equal(door.closed_count, 1);
    assert_int_equal(fw_reactor_poll(reactor, 0), 0);
}

/* A listener and a stream with events in one batch, of which the stream's comes first. */
struct closer {
    struct fw_stream stream;
    struct door *door;
    int closed_count;
};

static void closer_readable(struct fw_stream *stream)
{
    struct closer *closer = FW_CONTAINER_OF(stream, struct closer, stream);
    fw_listener_close(&closer->door->listener);
    fw_stream_close(stream);
}

static void closer_closed(struct fw_stream *stream)
{
    FW_CONTAINER_OF(stream, struct closer, stream)->closed_count++;
}

static void test_close_in_batch(void **state)
{
    (void)state;
    static const struct fw_stream_events events = {.readable = closer_readable,
                                                   .closed = closer_closed};
    struct door door;
    struct closer closer = {.door = &door};
    int pair[2];
    door_open(&door);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(fw_stream_open(&closer.stream, reactor, pair[0], &events), 0);
    fw_stream_wait(&closer.stream);
    assert_int_equal(send(pair[1], "x", 1, 0), 1); /* The kernel keeps the order of events. */
    client_connect();
    assert_int_equal(fw_reactor_poll(reactor, -1), 3);
    assert_int_equal(door.accepted_count, 0);
    assert_int_equal(door.closed_count, 1);
    assert_int_equal(closer.closed_count, 1);
    assert_int_equal(close(pair[1]), 0);
}

/* Lets no descriptor beyond those in use be made, until limit_restore(). */
static struct rlimit limit_before;

static void limit_descriptors(void)
{
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit_before), 0);
    int next = dup(0);
    assert_true(next >= 0);
    assert_int_equal(close(next), 0);
    struct rlimit limit = {.rlim_cur = (rlim_t)next, .rlim_max = limit_before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void limit_restore(void)
{
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit_before), 0);
}

static void test_descriptors_used_up(void **state)
{
    (void)state;
    struct door door, second;
    struct fw_reactor *other;
    struct fw_reason reason = {""};
    door_open(&door);
    client_connect();
    client_connect();
    limit_descriptors();
    int ran = fw_reactor_poll(reactor, -1);
    int error = door.error;
    door.error = 0;
    int ran_again = fw_reactor_poll(reactor, 0);
    int create_rc = fw_reactor_create(&other, &reason);
    int open_rc =
        fw_listener_open(&second.listener, reactor, &address, &options, &door_events, &reason);
    limit_restore();

    assert_int_equal(ran, 1);
    assert_int_equal(error, -EMFILE);
    assert_int_equal(ran_again, 0); /* It has paused itself. */
    assert_int_equal(door.error, 0);
    assert_int_equal(create_rc, -EMFILE);
    assert_int_equal(open_rc, -EMFILE);
    assert_non_null(strstr(reason.text, "raise the limit on open files"));

    assert_int_equal(fw_reactor_poll(reactor, 0), 0); /* Not before it is told to go on. */
    fw_listener_resume(&door.listener);
    assert_int_equal(fw_reactor_poll(reactor, -1), 2);
    assert_int_equal(door.accepted_count, 2);
    door_close(&door);
}

static void check_port(const char *text)
{
    struct door door, second;
    struct fw_reason reason;
    assert_int_equal(fw_address_parse(text, 0, 0, &address, 1, NULL), 1);
    door_open(&door);
    address = door.listener.address;
    assert_int_not_equal(fw_address_port(&address), 0);
    int rc = fw_socket_connect(&address, &clients[client_count++]);
    assert_true(rc == 0 || rc == -EINPROGRESS);
    while (door.accepted_count == 0) {
        (void)fw_reactor_poll(reactor, -1);
    }
    rc = fw_listener_open(&second.listener, reactor, &address, &options, &door_events, &reason);
    assert_int_equal(rc, -EADDRINUSE);
    assert_non_null(strstr(reason.text, "choose another port"));
    door_close(&door);
}

static void test_port_is_reported(void **state)
{
    (void)state;
    check_port("127.0.0.1:0");
}

static void test_port_is_reported_ipv6(void **state)
{
    (void)state;
    fw_test_need_ipv6();
    check_port("[::1]:0");
}

static void test_misuse(void **state)
{
    (void)state;
    struct door door;
    door_open(&door);
    fw_listener_close(&door.listener);
    expect_assert_failure(fw_listener_close(&door.listener));
    expect_assert_failure(fw_listener_pause(&door.listener));
    expect_assert_failure(fw_listener_resume(&door.listener));
    assert_int_equal(fw_reactor_poll(reactor, -1), 1);
}

#define WITH_REACTOR(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_REACTOR(test_accept),
        WITH_REACTOR(test_refuse),
        WITH_REACTOR(test_descriptor_0),
        WITH_REACTOR(test_accept_in_rounds),
        WITH_REACTOR(test_pause),
        WITH_REACTOR(test_pause_in_callback),
        WITH_REACTOR(test_close_in_callback),
        WITH_REACTOR(test_close_in_batch),
        WITH_REACTOR(test_descriptors_used_up),
        WITH_REACTOR(test_port_is_reported),
        WITH_REACTOR(test_port_is_reported_ipv6),
        WITH_REACTOR(test_misuse),
    };
    return fw_test_run_on_backend(tests);
}
