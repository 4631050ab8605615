/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: receive_now() and send_now() of reactor.h answer at once and leave nothing under way, and a
 * stream that was taken is whole in another reactor.
 * Method: one end of each connection is the reactor's, the other is driven by plain system calls,
 * which show what is on its way without a further poll. Call-backs are counted: none may come that
 * was not asked for.
 */
#include "io/reactor.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/assert.h"
#include "support/reactor_backend.h"

enum { BATCH = 40 }; /* Enough for io_uring to queue sends that may be queued. */

struct peer {
    struct fw_stream stream;
    int other;
    int readable_count;
    int sent_count;
    int closed_count;
    ssize_t result; /* Of `sent`. */
    bool replies;   /* To a readable, at once. */
};

static struct fw_reactor *reactor;

static struct peer *peer_of(struct fw_stream *stream)
{
    return FW_CONTAINER_OF(stream, struct peer, stream);
}

static void peer_readable(struct fw_stream *stream)
{
    struct peer *peer = peer_of(stream);
    peer->readable_count++;
    if (peer->replies) {
        char byte;
        assert_int_equal(fw_stream_receive_now(stream, &byte, 1), 1);
        byte++;
        struct iovec piece = {.iov_base = &byte, .iov_len = 1};
        assert_int_equal(fw_stream_send_now(stream, &piece, 1), 1);
        assert_int_equal(recv(peer->other, &byte, 1, MSG_DONTWAIT), 1);
        assert_int_equal(byte, 'b');
    }
}

static void peer_received(struct fw_stream *stream, ssize_t result)
{
    (void)stream;
    (void)result;
    fail_msg("nothing was left under way");
}

static void peer_sent(struct fw_stream *stream, ssize_t result)
{
    peer_of(stream)->sent_count++;
    peer_of(stream)->result = result;
}

static void peer_closed(struct fw_stream *stream)
{
    peer_of(stream)->closed_count++;
}

static const struct fw_stream_events peer_events = {
    .readable = peer_readable,
    .received = peer_received,
    .sent = peer_sent,
    .closed = peer_closed,
};

static void peer_open(struct peer *peer)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    *peer = (struct peer){.other = ends[1]};
    assert_int_equal(fw_stream_open(&peer->stream, reactor, ends[0], &peer_events), 0);
}

static void peer_close(struct peer *peer)
{
    fw_stream_close(&peer->stream);
    while (peer->closed_count == 0) {
        (void)fw_reactor_poll(reactor, -1);
    }
    (void)close(peer->other);
}

static void assert_quiet(void)
{
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fw_reactor_poll(reactor, 0), 0);
    }
}

static void poll_until(const int *count, int wanted)
{
    while (*count < wanted) {
        (void)fw_reactor_poll(reactor, -1);
    }
    assert_int_equal(*count, wanted);
}

static int setup(void **state)
{
    (void)state;
    struct fw_reason reason;
    return fw_reactor_create(&reactor, &reason);
}

static int teardown(void **state)
{
    (void)state;
    fw_reactor_destroy(reactor);
    return 0;
}

/* Without data the answer is -EAGAIN, and data that comes later goes to nobody's old buffer. */
static void test_receive_now(void **state)
{
    (void)state;
    struct peer peer;
    char buffer[8] = "........";
    peer_open(&peer);
    assert_int_equal(fw_stream_receive_now(&peer.stream, buffer, sizeof buffer), -EAGAIN);
    assert_int_equal(send(peer.other, "abc", 3, 0), 3);
    assert_quiet();
    assert_memory_equal(buffer, "........", 8);
    fw_stream_wait(&peer.stream);
    poll_until(&peer.readable_count, 1);
    assert_int_equal(fw_stream_receive_now(&peer.stream, buffer, sizeof buffer), 3);
    assert_memory_equal(buffer, "abc.....", 8);
    /* A short receive has drained it: the next is not even tried, and a wait is quiet. */
    assert_int_equal(fw_stream_receive_now(&peer.stream, buffer, sizeof buffer), -EAGAIN);
    fw_stream_wait(&peer.stream);
    assert_quiet();
    assert_int_equal(send(peer.other, "d", 1, 0), 1);
    poll_until(&peer.readable_count, 2);
    assert_int_equal(fw_stream_receive_now(&peer.stream, buffer, sizeof buffer), 1);
    peer_close(&peer);
}

/* A receive that filled its buffer proves nothing: readiness is remembered until one is short. */
static void test_receive_now_exactly(void **state)
{
    (void)state;
    struct peer peer;
    char buffer[4];
    peer_open(&peer);
    assert_int_equal(send(peer.other, "abcdefgh", 8, 0), 8);
    fw_stream_wait(&peer.stream);
    poll_until(&peer.readable_count, 1);
    for (int i = 2; i < 4; i++) {
        assert_int_equal(fw_stream_receive_now(&peer.stream, buffer, sizeof buffer), 4);
        fw_stream_wait(&peer.stream);
        poll_until(&peer.readable_count, i);
    }
    assert_memory_equal(buffer, "efgh", 4);
    assert_int_equal(fw_stream_receive_now(&peer.stream, buffer, sizeof buffer), -EAGAIN);
    fw_stream_wait(&peer.stream);
    assert_quiet();
    (void)close(peer.other);
    poll_until(&peer.readable_count, 4);
    assert_int_equal(fw_stream_receive_now(&peer.stream, buffer, sizeof buffer), 0);
    peer.other = dup(0);
    peer_close(&peer);
}

/* What the socket does not take is not sent behind the caller's back. */
static void test_send_now(void **state)
{
    (void)state;
    struct peer peer;
    static char bytes[65536];
    peer_open(&peer);
    memset(bytes, 'x', sizeof bytes);
    struct iovec pieces[2] = {{.iov_base = bytes, .iov_len = 1000},
                              {.iov_base = bytes, .iov_len = sizeof bytes}};
    size_t sent = 0;
    ssize_t result;
    while ((result = fw_stream_send_now(&peer.stream, pieces, 2)) > 0) {
        sent += (size_t)result;
    }
    assert_int_equal(result, -EAGAIN);
    assert_quiet();
    size_t received = 0;
    while ((result = recv(peer.other, bytes, sizeof bytes, 0)) > 0) {
        received += (size_t)result;
    }
    assert_int_equal(received, sent);
    assert_quiet();
    assert_int_equal(recv(peer.other, bytes, sizeof bytes, 0), -1);
    assert_int_equal(peer.sent_count, 0);
    /* Who wants to wait for room asks for it, and the two go together. */
    while (fw_stream_send_now(&peer.stream, pieces, 2) > 0) {
    }
    assert_int_equal(fw_stream_send(&peer.stream, pieces, 1), -EINPROGRESS);
    while (recv(peer.other, bytes, sizeof bytes, 0) > 0) {
    }
    poll_until(&peer.sent_count, 1);
    assert_int_equal(peer.result, 1000);
    assert_int_equal(fw_stream_send_now(&peer.stream, pieces, 1), 1000);
    (void)close(peer.other);
    assert_int_equal(fw_stream_send_now(&peer.stream, pieces, 1), -EPIPE);
    peer.other = dup(0);
    peer_close(&peer);
}

/* In a busy round too, when io_uring would queue a send. */
static void test_send_now_in_a_batch(void **state)
{
    (void)state;
    static struct peer peers[BATCH];
    for (int i = 0; i < BATCH; i++) {
        peer_open(&peers[i]);
        peers[i].replies = true;
        fw_stream_wait(&peers[i].stream);
        assert_int_equal(send(peers[i].other, "a", 1, 0), 1);
    }
    for (int i = 0; i < BATCH; i++) {
        poll_until(&peers[i].readable_count, 1);
    }
    for (int i = 0; i < BATCH; i++) {
        peer_close(&peers[i]);
    }
}

/* From one reactor to another, with what had arrived and been reported, and what had not. */
static void test_take(void **state)
{
    (void)state;
    struct peer peer;
    struct fw_reactor *first = reactor;
    struct fw_reason reason;
    struct fw_address address;
    char buffer[8];
    for (int reported = 0; reported < 2; reported++) {
        peer_open(&peer);
        assert_int_equal(fw_stream_peer(&peer.stream, &address), 0);
        assert_int_equal(address.any.sa_family, AF_UNIX);
        if (reported == 0) {
            fw_stream_wait(&peer.stream); /* It waits while it is taken. */
            assert_quiet();
        }
        assert_int_equal(send(peer.other, "abc", 3, 0), 3);
        if (reported == 1) { /* The edge is spent. */
            assert_quiet();
            fw_stream_wait(&peer.stream);
        }
        int fd = fw_stream_take(&peer.stream);
        assert_quiet();
        assert_int_equal(fw_reactor_create(&reactor, &reason), 0);
        memset(&peer.stream, 0x5a, sizeof peer.stream);
        assert_int_equal(fw_stream_open(&peer.stream, reactor, fd, &peer_events), 0);
        fw_stream_wait(&peer.stream);
        poll_until(&peer.readable_count, 1);
        assert_int_equal(fw_stream_receive_now(&peer.stream, buffer, sizeof buffer), 3);
        fw_stream_wait(&peer.stream); /* What comes from now on is the second's alone. */
        assert_int_equal(send(peer.other, "d", 1, 0), 1);
        assert_int_equal(fw_reactor_poll(first, 0), 0);
        poll_until(&peer.readable_count, 2);
        peer_close(&peer);
        fw_reactor_destroy(reactor);
        reactor = first;
        assert_quiet();
    }
}

static void test_misuse(void **state)
{
    (void)state;
    struct peer peer;
    char byte;
    static volatile ssize_t answer;
    struct iovec piece = {.iov_base = &byte, .iov_len = 1};
    peer_open(&peer);
    expect_assert_failure(answer = fw_stream_receive_now(&peer.stream, &byte, 0));
    expect_assert_failure(answer = fw_stream_send_now(&peer.stream, &piece, 0));
    expect_assert_failure(answer =
                              fw_stream_send_now(&peer.stream, &piece, FW_STREAM_SEND_MAX + 1));
    fw_stream_wait(&peer.stream);
    expect_assert_failure(answer = fw_stream_receive_now(&peer.stream, &byte, 1));
    fw_stream_wait_cancel(&peer.stream);
    assert_int_equal(fw_stream_receive(&peer.stream, &byte, 1), -EINPROGRESS);
    expect_assert_failure(answer = fw_stream_receive_now(&peer.stream, &byte, 1));
    expect_assert_failure(answer = fw_stream_take(&peer.stream));
    assert_int_equal(answer, 0);
    peer_close(&peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_receive_now, setup, teardown),
        cmocka_unit_test_setup_teardown(test_receive_now_exactly, setup, teardown),
        cmocka_unit_test_setup_teardown(test_send_now, setup, teardown),
        cmocka_unit_test_setup_teardown(test_send_now_in_a_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_take, setup, teardown),
        cmocka_unit_test_setup_teardown(test_misuse, setup, teardown),
    };
    return fw_test_run_on_backend(tests);
}
