/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: every rule at the top of reactor.h, for streams. Waking, the turn and watches have
 * reactor_turn_test.c, listeners listener_test.c.
 * Method: one side of each connection is the reactor's, the other is driven by plain system calls.
 * Every call-back is counted, and checks that it runs inside poll() and inside no other call-back.
 * What must not happen is shown by polls that run nothing; what must happen is waited for without
 * end, and the test runner's time limit is what fails. Memory is freed in `closed`, so ASan sees
 * any use after it.
 */
#include "io/reactor.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/assert.h"
#include "support/network.h"
#include "support/reactor_backend.h"

/* One connection and all that was heard of it. */
struct peer {
    struct fw_stream stream;
    int other; /* The far end; -1 once it is closed. */
    int readable_count;
    int received_count;
    int sent_count;
    int connected_count;
    int closed_count;
    ssize_t result;                   /* Of `received`, `sent` or `connected`, the last one. */
    int order;                        /* When the last call-back ran, compared with others'. */
    void (*react)(struct peer *peer); /* What the test does in each call-back. */
    char buffer[64];
};

static struct fw_reactor *reactor;
static bool is_polling;
static bool is_inside_callback;
static int callback_count;

static int poll_once(int64_t timeout_ns)
{
    int count_before = callback_count;
    is_polling = true;
    int ran = fw_reactor_poll(reactor, timeout_ns);
    is_polling = false;
    assert_int_equal(ran, callback_count - count_before);
    return ran;
}

/* Polls until `*count` is `wanted`, and once more to see that it stays so. */
static void poll_until(const int *count, int wanted)
{
    while (*count < wanted) {
        (void)poll_once(-1);
    }
    (void)poll_once(0);
    assert_int_equal(*count, wanted);
}

static void assert_quiet(void)
{
    for (int i = 0; i < 3; i++) {
        assert_int_equal(poll_once(0), 0);
    }
}

static void callback_enter(struct peer *peer)
{
    assert_true(is_polling);
    assert_false(is_inside_callback);
    is_inside_callback = true;
    peer->order = ++callback_count;
}

static void callback_leave(struct peer *peer)
{
    if (peer->react != NULL) {
        peer->react(peer);
    }
    is_inside_callback = false;
}

static void peer_readable(struct fw_stream *stream)
{
    struct peer *peer = FW_CONTAINER_OF(stream, struct peer, stream);
    callback_enter(peer);
    peer->readable_count++;
    callback_leave(peer);
}

static void peer_received(struct fw_stream *stream, ssize_t result)
{
    struct peer *peer = FW_CONTAINER_OF(stream, struct peer, stream);
    callback_enter(peer);
    peer->received_count++;
    peer->result = result;
    callback_leave(peer);
}

static void peer_sent(struct fw_stream *stream, ssize_t result)
{
    struct peer *peer = FW_CONTAINER_OF(stream, struct peer, stream);
    callback_enter(peer);
    peer->sent_count++;
    peer->result = result;
    callback_leave(peer);
}

static void peer_connected(struct fw_stream *stream, int result)
{
    struct peer *peer = FW_CONTAINER_OF(stream, struct peer, stream);
    callback_enter(peer);
    peer->connected_count++;
    peer->result = result;
    callback_leave(peer);
}

static void peer_closed(struct fw_stream *stream)
{
    struct peer *peer = FW_CONTAINER_OF(stream, struct peer, stream);
    callback_enter(peer);
    peer->closed_count++;
    callback_leave(peer);
}

static const struct fw_stream_events peer_events = {
    .readable = peer_readable,
    .received = peer_received,
    .sent = peer_sent,
    .connected = peer_connected,
    .closed = peer_closed,
};

static void tcp_pair(int pair[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    pair[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(pair[1], (struct sockaddr *)&address, length), 0);
    pair[0] = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(pair[0] >= 0);
    (void)close(listener);
}

/* `family` is AF_UNIX or AF_INET. */
static void peer_open(struct peer *peer, int family)
{
    int pair[2];
    if (family == AF_UNIX) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    } else {
        tcp_pair(pair);
    }
    *peer = (struct peer){.other = pair[1]};
    assert_int_equal(fw_stream_open(&peer->stream, reactor, pair[0], &peer_events), 0);
}

static void other_close(struct peer *peer)
{
    assert_int_equal(close(peer->other), 0);
    peer->other = -1;
}

static void peer_close(struct peer *peer)
{
    peer->react = NULL;
    fw_stream_close(&peer->stream);
    assert_int_equal(peer->closed_count, 0);
    (void)poll_once(-1); /* Does not wait. */
    assert_int_equal(peer->closed_count, 1);
    if (peer->other >= 0) {
        other_close(peer);
    }
}

static void other_send(struct peer *peer, const char *text)
{
    assert_int_equal(send(peer->other, text, strlen(text), 0), strlen(text));
}

static void wait_for(int fd, short events)
{
    struct pollfd item = {.fd = fd, .events = events};
    assert_int_equal(poll(&item, 1, -1), 1);
}

static ssize_t peer_receive(struct peer *peer)
{
    return fw_stream_receive(&peer->stream, peer->buffer, sizeof peer->buffer);
}

static void react_receive(struct peer *peer)
{
    peer->result = peer_receive(peer);
}

/* What a server does: takes what is there and waits for more. */
static void react_receive_and_wait(struct peer *peer)
{
    react_receive(peer);
    fw_stream_wait(&peer->stream);
}

static void react_close(struct peer *peer)
{
    if (peer->closed_count == 0) {
        fw_stream_close(&peer->stream);
    }
}

static int setup_reactor(void **state)
{
    (void)state;
    is_polling = false;
    is_inside_callback = false;
    struct fw_reason reason;
    return fw_reactor_create(&reactor, &reason);
}

static int teardown_reactor(void **state)
{
    (void)state;
    fw_reactor_destroy(reactor); /* Asserts that all was closed. */
    return 0;
}

static void test_result_at_once(void **state)
{
    (void)state;
    struct peer peer;
    char text[] = "reply";
    struct iovec piece = {.iov_base = text, .iov_len = 5};
    peer_open(&peer, AF_UNIX);
    other_send(&peer, "request");
    fw_stream_wait(&peer.stream);
    assert_int_equal(peer.readable_count, 0);
    poll_until(&peer.readable_count, 1);
    assert_int_equal(peer_receive(&peer), 7);
    assert_memory_equal(peer.buffer, "request", 7);
    assert_int_equal(fw_stream_send(&peer.stream, &piece, 1), 5);
    assert_int_equal(recv(peer.other, peer.buffer, sizeof peer.buffer, 0), 5);
    assert_memory_equal(peer.buffer, "reply", 5);
    assert_quiet(); /* Nothing else is heard of either. */
    peer_close(&peer);
}

static void test_result_later(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, AF_UNIX);
    assert_int_equal(peer_receive(&peer), -EINPROGRESS);
    assert_quiet();
    other_send(&peer, "abc");
    assert_int_equal(peer.received_count, 0);
    poll_until(&peer.received_count, 1);
    assert_int_equal(peer.result, 3);
    assert_memory_equal(peer.buffer, "abc", 3);
    other_send(&peer, "def"); /* Nobody asked for it. */
    assert_quiet();
    assert_int_equal(peer_receive(&peer), 3); /* But it is remembered. */
    peer_close(&peer);
}

static void test_wait_is_answered_once(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, AF_INET);
    other_send(&peer, "a");
    fw_stream_wait(&peer.stream);
    poll_until(&peer.readable_count, 1);
    other_send(&peer, "b");
    wait_for(peer.stream.source.fd, POLLIN);
    assert_quiet();
    fw_stream_wait(&peer.stream); /* Still readable, so answered from memory: but not at once. */
    assert_int_equal(peer.readable_count, 1);
    poll_until(&peer.readable_count, 2);
    peer_close(&peer);
}

static void test_wait_cancel(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, AF_UNIX);
    fw_stream_wait_cancel(&peer.stream); /* Of none. */
    fw_stream_wait(&peer.stream);
    fw_stream_wait_cancel(&peer.stream);
    other_send(&peer, "a");
    assert_quiet();
    fw_stream_wait(&peer.stream); /* Of one that is answered from memory. */
    fw_stream_wait_cancel(&peer.stream);
    assert_quiet();
    fw_stream_wait(&peer.stream);
    poll_until(&peer.readable_count, 1);
    assert_int_equal(peer_receive(&peer), 1);
    peer_close(&peer);
}

/* A receive of exactly what there is cannot know that it was all. */
static void test_exact_receive(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, AF_UNIX);
    other_send(&peer, "abcd");
    fw_stream_wait(&peer.stream);
    poll_until(&peer.readable_count, 1);
    assert_int_equal(fw_stream_receive(&peer.stream, peer.buffer, 4), 4);
    fw_stream_wait(&peer.stream);
    poll_until(&peer.readable_count, 2);
    assert_int_equal(peer_receive(&peer), -EINPROGRESS);
    assert_quiet();
    other_send(&peer, "e");
    poll_until(&peer.received_count, 1);
    assert_int_equal(peer.result, 1);

    other_send(&peer, "fgh"); /* But one byte less than asked for is proof enough. */
    assert_quiet();
    assert_int_equal(fw_stream_receive(&peer.stream, peer.buffer, 4), 3);
    fw_stream_wait(&peer.stream);
    assert_quiet();
    fw_stream_wait_cancel(&peer.stream);

    other_send(&peer, "ijkl");
    assert_quiet();
    assert_int_equal(fw_stream_receive(&peer.stream, peer.buffer, 4), 4);
    other_close(&peer); /* Not polled since, so only the receives can tell; each of them does. */
    assert_int_equal(peer_receive(&peer), 0);
    assert_int_equal(peer_receive(&peer), 0);
    peer_close(&peer);
}

enum { CHUNK = 16 };

static void react_one_chunk(struct peer *peer)
{
    assert_int_equal(fw_stream_receive(&peer->stream, peer->buffer, CHUNK), CHUNK);
    fw_stream_wait(&peer->stream);
}

static void test_fairness(void **state)
{
    (void)state;
    enum { QUIET = 4, BUSY = 2, ROUNDS = 20 };
    struct peer quiet[QUIET], busy[BUSY];
    char flood[CHUNK * (ROUNDS + 2)];
    memset(flood, 'f', sizeof flood);
    for (int i = 0; i < BUSY; i++) {
        peer_open(&busy[i], AF_UNIX);
        busy[i].react = react_one_chunk;
        fw_stream_wait(&busy[i].stream);
        assert_int_equal(send(busy[i].other, flood, sizeof flood, 0), sizeof flood);
    }
    for (int i = 0; i < QUIET; i++) {
        peer_open(&quiet[i], AF_UNIX);
        quiet[i].react = react_receive_and_wait;
        fw_stream_wait(&quiet[i].stream);
    }
    assert_int_equal(poll_once(0), BUSY);

    for (int round = 1; round <= ROUNDS; round++) {
        /* The busy ones get an event too, which must not become a second turn. */
        for (int i = 0; i < BUSY; i++) {
            assert_int_equal(send(busy[i].other, flood, CHUNK, 0), CHUNK);
        }
        for (int i = 0; i < QUIET; i++) {
            other_send(&quiet[i], "q");
        }
        assert_int_equal(poll_once(-1), QUIET + BUSY); /* Does not wait. */
        for (int i = 0; i < QUIET; i++) {
            assert_int_equal(quiet[i].readable_count, round);
            assert_true(quiet[i].order < busy[0].order);
        }
        assert_int_equal(busy[0].readable_count, round + 1);
        assert_int_equal(busy[1].readable_count, round + 1);
        assert_true(busy[0].order < busy[1].order); /* The first to wait is the first served. */
    }
    for (int i = 0; i < BUSY; i++) {
        peer_close(&busy[i]);
    }
    for (int i = 0; i < QUIET; i++) {
        peer_close(&quiet[i]);
    }
}

/* A long message that is sent in vectors of three pieces, whatever part is left. */
enum { MESSAGE_SIZE = 32 << 20, SEND_BUFFER = 1 << 16 }; /* More than buffers grow to. */
static uint8_t message[MESSAGE_SIZE];
static size_t message_sent;
static int message_waits; /* How often a send was answered with -EINPROGRESS. */
static struct iovec message_vector[3];

static void message_send(struct peer *peer)
{
    while (message_sent < MESSAGE_SIZE) {
        size_t left = MESSAGE_SIZE - message_sent;
        size_t piece = left / 3;
        uint8_t *next = message + message_sent;
        message_vector[0] = (struct iovec){next, piece};
        message_vector[1] = (struct iovec){next + piece, piece};
        message_vector[2] = (struct iovec){next + 2 * piece, left - 2 * piece};
        ssize_t sent = fw_stream_send(&peer->stream, message_vector, 3);
        if (sent == -EINPROGRESS) {
            message_waits++;
            return;
        }
        assert_true(sent > 0);
        message_sent += (size_t)sent;
    }
}

static void react_message_sent(struct peer *peer)
{
    assert_true(peer->result > 0);
    message_sent += (size_t)peer->result;
    message_send(peer);
}

static void check_partial_send(int family)
{
    struct peer peer;
    size_t received = 0;
    static uint8_t taken[65536];
    for (size_t i = 0; i < MESSAGE_SIZE; i++) {
        message[i] = (uint8_t)(i * 131 >> 3);
    }
    message_sent = 0;
    message_waits = 0;
    peer_open(&peer, family);
    peer.react = react_message_sent;
    const int size = SEND_BUFFER;
    assert_int_equal(setsockopt(peer.stream.source.fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size),
                     0);
    message_send(&peer);
    assert_int_equal(message_waits, 1);
    assert_true(message_sent > 0); /* A part was taken, the rest must wait. */
    if (family == AF_UNIX) {       /* By TCP more may be under way, and make room. */
        assert_quiet();
    }
    while (received < MESSAGE_SIZE) {
        ssize_t count = recv(peer.other, taken, sizeof taken, MSG_DONTWAIT);
        if (count < 0) {
            assert_int_equal(errno, EAGAIN);
            (void)poll_once(-1); /* There is room now, so this does not wait for ever. */
            continue;
        }
        assert_memory_equal(taken, message + received, (size_t)count);
        received += (size_t)count;
    }
    poll_until(&peer.sent_count, message_waits);
    assert_int_equal(message_sent, MESSAGE_SIZE);
    assert_true(message_waits > 1);
    assert_quiet();
    peer_close(&peer);
}

static void test_partial_send(void **state)
{
    (void)state;
    check_partial_send(AF_UNIX);
    check_partial_send(AF_INET);
}

/* Both directions of one stream are answered by one poll, and independently. */
static void test_send_beside_receive(void **state)
{
    (void)state;
    struct peer peer;
    static uint8_t taken[65536];
    peer_open(&peer, AF_UNIX);
    assert_int_equal(peer_receive(&peer), -EINPROGRESS);
    message_sent = 0;
    message_send(&peer);
    other_send(&peer, "abc");
    poll_until(&peer.received_count, 1);
    assert_int_equal(peer.result, 3);
    assert_int_equal(peer.sent_count, 0);
    fw_stream_wait(&peer.stream);
    while (recv(peer.other, taken, sizeof taken, MSG_DONTWAIT) > 0) {
    }
    poll_until(&peer.sent_count, 1);
    assert_true(peer.result > 0);
    assert_int_equal(peer.readable_count, 0);
    other_send(&peer, "d");
    poll_until(&peer.readable_count, 1);
    peer_close(&peer);
}

static void react_receive_after_end(struct peer *peer)
{
    if (peer->other >= 0) { /* The end comes between the event and the receive. */
        other_close(peer);
        wait_for(peer->stream.source.fd, POLLRDHUP);
    }
    react_receive_and_wait(peer);
}

/* The end of the stream, before, between and after what leads to the last bytes being received. */
static void check_end(int family)
{
    struct peer peer;
    peer_open(&peer, family);
    peer.react = react_receive_and_wait;
    other_send(&peer, "abc");
    other_close(&peer);
    wait_for(peer.stream.source.fd, POLLRDHUP);
    fw_stream_wait(&peer.stream);
    assert_int_equal(poll_once(-1), 1);
    assert_int_equal(peer.result, 3);
    assert_int_equal(poll_once(-1), 1);
    assert_int_equal(peer.result, 0);
    assert_int_equal(poll_once(-1), 1); /* The end stays the end, for as often as one asks. */
    assert_int_equal(peer.result, 0);
    peer_close(&peer);

    peer_open(&peer, family);
    peer.react = react_receive_after_end;
    other_send(&peer, "abc");
    fw_stream_wait(&peer.stream);
    while (peer.readable_count < 2) {
        (void)poll_once(-1);
    }
    assert_int_equal(peer.result, 0);
    peer_close(&peer);

    peer_open(&peer, family);
    assert_int_equal(peer_receive(&peer), -EINPROGRESS);
    other_send(&peer, "abc");
    poll_until(&peer.received_count, 1);
    assert_int_equal(peer_receive(&peer), -EINPROGRESS);
    assert_int_equal(shutdown(peer.other, SHUT_WR), 0);
    poll_until(&peer.received_count, 2);
    assert_int_equal(peer.result, 0);
    peer_close(&peer);
}

static void test_end(void **state)
{
    (void)state;
    check_end(AF_UNIX);
    check_end(AF_INET);
}

static void test_shutdown(void **state)
{
    (void)state;
    struct peer peer;
    char text[] = "bye";
    struct iovec piece = {.iov_base = text, .iov_len = 3};
    peer_open(&peer, AF_INET);
    assert_int_equal(fw_stream_send(&peer.stream, &piece, 1), 3);
    fw_stream_shutdown(&peer.stream);
    assert_int_equal(recv(peer.other, peer.buffer, sizeof peer.buffer, MSG_WAITALL), 3);
    other_send(&peer, "still here"); /* Only one direction has ended. */
    fw_stream_wait(&peer.stream);
    poll_until(&peer.readable_count, 1);
    assert_int_equal(peer_receive(&peer), 10);
    assert_int_equal(fw_stream_send(&peer.stream, &piece, 1), -EPIPE);
    peer_close(&peer);
}

static void other_reset(struct peer *peer)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    assert_int_equal(setsockopt(peer->other, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    other_close(peer);
}

static void test_reset(void **state)
{
    (void)state;
    struct peer peer;
    char text[] = "reply";
    struct iovec piece = {.iov_base = text, .iov_len = 5};
    peer_open(&peer, AF_INET);
    assert_int_equal(peer_receive(&peer), -EINPROGRESS);
    other_reset(&peer);
    poll_until(&peer.received_count, 1);
    assert_int_equal(peer.result, -ECONNRESET);
    assert_int_equal(fw_stream_send(&peer.stream, &piece, 1), -EPIPE);
    assert_int_equal(peer_receive(&peer), 0);
    peer_close(&peer);

    peer_open(&peer, AF_INET); /* The same for a send that waits for room. */
    message_sent = 0;
    message_send(&peer);
    other_reset(&peer);
    poll_until(&peer.sent_count, 1);
    assert_int_equal(peer.result, -ECONNRESET);
    peer_close(&peer);
}

/* Receives stop short at urgent data, although there is more. */
static void test_urgent_data(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, AF_INET);
    other_send(&peer, "a");
    assert_int_equal(send(peer.other, "b", 1, MSG_OOB), 1);
    other_send(&peer, "c");
    for (int unacknowledged = 1; unacknowledged > 0; (void)sched_yield()) {
        assert_int_equal(ioctl(peer.other, SIOCOUTQ, &unacknowledged), 0);
    }
    fw_stream_wait(&peer.stream);
    poll_until(&peer.readable_count, 1);
    assert_int_equal(peer_receive(&peer), 1);
    assert_int_equal(peer.buffer[0], 'a');
    assert_int_equal(peer_receive(&peer), 1);
    assert_int_equal(peer.buffer[0], 'c');
    assert_int_equal(peer_receive(&peer), -EINPROGRESS);
    other_send(&peer, "d");
    poll_until(&peer.received_count, 1);
    assert_int_equal(peer_receive(&peer), -EINPROGRESS); /* From now on as usual. */
    peer_close(&peer);
}

static void test_close_in_own_callback(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, AF_UNIX); /* In `readable`, with a send that could go on in the same event. */
    peer.react = react_close;
    message_sent = 0;
    message_send(&peer);
    fw_stream_wait(&peer.stream);
    other_close(&peer);
    assert_int_equal(poll_once(-1), 2);
    assert_int_equal(peer.sent_count, 1);
    assert_int_equal(peer.readable_count, 0);
    assert_int_equal(peer.closed_count, 1);
    assert_quiet();

    peer_open(&peer, AF_UNIX); /* In `received`. */
    peer.react = react_close;
    assert_int_equal(peer_receive(&peer), -EINPROGRESS);
    other_send(&peer, "abc");
    assert_int_equal(poll_once(-1), 2);
    assert_int_equal(peer.closed_count, 1);
    other_close(&peer);
    assert_quiet();
}

static void test_close_forgets_operations(void **state)
{
    (void)state;
    struct peer peer;
    peer_open(&peer, AF_UNIX); /* A wait that was to be answered from memory. */
    other_send(&peer, "abc");
    assert_quiet();
    fw_stream_wait(&peer.stream);
    peer_close(&peer);
    assert_int_equal(peer.readable_count, 0);

    peer_open(&peer, AF_UNIX);
    assert_int_equal(peer_receive(&peer), -EINPROGRESS);
    message_sent = 0;
    message_send(&peer);
    other_send(&peer, "abc");
    peer_close(&peer);
    assert_int_equal(peer.received_count + peer.sent_count, 0);
    assert_quiet();
}

static struct peer *close_next;

static void react_close_next(struct peer *peer)
{
    (void)peer;
    fw_stream_close(&close_next->stream);
}

static void test_close_in_closed(void **state)
{
    (void)state;
    struct peer first, second;
    peer_open(&first, AF_UNIX);
    peer_open(&second, AF_UNIX);
    first.react = react_close_next;
    close_next = &second;
    fw_stream_close(&first.stream);
    assert_int_equal(poll_once(-1), 1); /* What is closed meanwhile waits for the next poll, */
    assert_int_equal(first.closed_count, 1);
    assert_int_equal(poll_once(-1), 1); /* which does not wait for anything. */
    assert_int_equal(second.closed_count, 1);
    other_close(&first);
    other_close(&second);
}

enum { BATCH = 8 };
static struct peer *batch[BATCH];
static int batch_readable_count;
static int batch_closed_count;

/* The first to be called ends all, whose events are in the same batch; then it takes their place.
 */
static void batch_readable(struct fw_stream *stream)
{
    (void)stream;
    callback_count++;
    batch_readable_count++;
    for (int i = 0; i < BATCH; i++) {
        fw_stream_close(&batch[i]->stream);
    }
}

static void batch_closed(struct fw_stream *stream)
{
    struct peer *peer = FW_CONTAINER_OF(stream, struct peer, stream);
    callback_count++;
    batch_closed_count++;
    (void)close(peer->other);
    memset(peer, 0xff, sizeof *peer);
    free(peer);
}

static void test_close_others_in_batch(void **state)
{
    (void)state;
    static const struct fw_stream_events events = {.readable = batch_readable,
                                                   .closed = batch_closed};
    batch_readable_count = 0;
    batch_closed_count = 0;
    for (int i = 0; i < BATCH; i++) {
        int pair[2];
        batch[i] = calloc(1, sizeof *batch[i]);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        batch[i]->other = pair[1];
        assert_int_equal(fw_stream_open(&batch[i]->stream, reactor, pair[0], &events), 0);
        if (i % 2 == 0) {
            other_send(batch[i], "abc");
        }
    }
    assert_quiet(); /* Half of them are remembered as ready, the others' events are to come. */
    for (int i = 0; i < BATCH; i++) {
        if (i % 2 != 0) {
            other_send(batch[i], "abc");
        }
        fw_stream_wait(&batch[i]->stream);
    }
    assert_int_equal(poll_once(-1), 1 + BATCH);
    assert_int_equal(batch_readable_count, 1);
    assert_int_equal(batch_closed_count, BATCH);
    assert_quiet();
}

static void check_connect(const char *text)
{
    const struct fw_listener_options options = {.backlog = 1};
    struct peer peer = {.other = -1};
    struct fw_address address;
    struct fw_socket_file file;
    assert_int_equal(fw_address_parse(text, 0, 0, &address, 1, NULL), 1);
    int listener = fw_socket_listen(&address, &options, &address, &file, NULL);
    assert_true(listener >= 0);
    int rc = fw_stream_connect(&peer.stream, reactor, &address, &peer_events);
    assert_int_equal(rc, -EINPROGRESS);
    wait_for(listener, POLLIN);
    peer.other = fw_socket_accept(listener);
    other_send(&peer, "welcome"); /* May come with the same event. */
    poll_until(&peer.connected_count, 1);
    assert_int_equal(peer.result, 0);
    fw_stream_wait(&peer.stream);
    poll_until(&peer.readable_count, 1);
    assert_int_equal(peer_receive(&peer), 7);
    peer_close(&peer);

    peer = (struct peer){.other = -1}; /* Closed while it is being connected. */
    rc = fw_stream_connect(&peer.stream, reactor, &address, &peer_events);
    assert_int_equal(rc, -EINPROGRESS);
    peer_close(&peer);
    assert_int_equal(peer.connected_count, 0);
    fw_socket_close(listener);

    peer = (struct peer){.other = -1, .react = react_close}; /* Now nobody listens. */
    rc = fw_stream_connect(&peer.stream, reactor, &address, &peer_events);
    assert_int_equal(rc, -EINPROGRESS);
    poll_until(&peer.closed_count, 1);
    assert_int_equal(peer.connected_count, 1);
    assert_int_equal(peer.result, -ECONNREFUSED);
}

static void test_connect(void **state)
{
    (void)state;
    check_connect("127.0.0.1:0");
}

static void test_connect_ipv6(void **state)
{
    (void)state;
    fw_test_need_ipv6();
    check_connect("[::1]:0");
}

static void test_connect_local(void **state)
{
    (void)state;
    const struct fw_listener_options options = {.backlog = 0};
    struct peer peer = {.other = -1};
    struct peer second = {.other = -1};
    char text[64];
    struct fw_address address;
    struct fw_socket_file file;
    (void)snprintf(text, sizeof text, "unix:@fairway-reactor-test-%d", (int)getpid());
    assert_int_equal(fw_address_parse(text, 0, 0, &address, 1, NULL), 1);
    assert_int_equal(fw_stream_connect(&peer.stream, reactor, &address, &peer_events),
                     -ECONNREFUSED);
    int listener = fw_socket_listen(&address, &options, &address, &file, NULL);
    assert_int_equal(fw_stream_connect(&peer.stream, reactor, &address, &peer_events), 0);
    assert_int_equal(fw_stream_connect(&second.stream, reactor, &address, &peer_events), -EAGAIN);
    peer.other = fw_socket_accept(listener);
    other_send(&peer, "abc");
    fw_stream_wait(&peer.stream);
    poll_until(&peer.readable_count, 1);
    assert_int_equal(peer.connected_count, 0);
    peer_close(&peer);
    fw_socket_close(listener);
}

/* From a turn that comes from memory, so that no event is being handled. */
static void react_poll(struct peer *peer)
{
    (void)peer;
    expect_assert_failure((void)fw_reactor_poll(reactor, 0));
}

/* The last source is gone, but the poll that says so is not over. */
static void react_destroy(struct peer *peer)
{
    (void)peer;
    expect_assert_failure(fw_reactor_destroy(reactor));
}

static void test_misuse(void **state)
{
    (void)state;
    struct peer peer;
    char text[] = "a";
    struct iovec piece = {.iov_base = text, .iov_len = 1};
    peer_open(&peer, AF_UNIX);
    expect_assert_failure(fw_reactor_destroy(reactor)); /* With a stream open. */
    expect_assert_failure((void)!fw_stream_receive(&peer.stream, peer.buffer, 0));
    expect_assert_failure((void)!fw_stream_send(&peer.stream, &piece, 0));
    expect_assert_failure((void)!fw_stream_send(&peer.stream, &piece, FW_STREAM_SEND_MAX + 1));

    fw_stream_wait(&peer.stream);
    expect_assert_failure(fw_stream_wait(&peer.stream)); /* Two waits. */
    expect_assert_failure((void)!peer_receive(&peer));   /* A receive beside a wait. */
    fw_stream_wait_cancel(&peer.stream);
    assert_int_equal(peer_receive(&peer), -EINPROGRESS);
    expect_assert_failure((void)!peer_receive(&peer)); /* Two receives. */
    expect_assert_failure(fw_stream_wait(&peer.stream));

    message_sent = 0;
    message_send(&peer);
    expect_assert_failure((void)!fw_stream_send(&peer.stream, &piece, 1)); /* Two sends. */
    expect_assert_failure(fw_stream_shutdown(&peer.stream));

    other_send(&peer, "abc");
    poll_until(&peer.received_count, 1);
    other_send(&peer, "abc");
    assert_quiet();
    peer.react = react_poll;
    fw_stream_wait(&peer.stream);
    poll_until(&peer.readable_count, 1);
    fw_stream_close(&peer.stream);
    expect_assert_failure(fw_stream_close(&peer.stream));
    expect_assert_failure(fw_stream_wait(&peer.stream));
    expect_assert_failure((void)!peer_receive(&peer));
    expect_assert_failure(fw_reactor_destroy(reactor)); /* Before `closed` was called. */
    peer.react = react_destroy;
    poll_until(&peer.closed_count, 1);
    other_close(&peer);
}

#define WITH_REACTOR(test) cmocka_unit_test_setup_teardown(test, setup_reactor, teardown_reactor)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_REACTOR(test_result_at_once),
        WITH_REACTOR(test_result_later),
        WITH_REACTOR(test_wait_is_answered_once),
        WITH_REACTOR(test_wait_cancel),
        WITH_REACTOR(test_exact_receive),
        WITH_REACTOR(test_fairness),
        WITH_REACTOR(test_partial_send),
        WITH_REACTOR(test_send_beside_receive),
        WITH_REACTOR(test_end),
        WITH_REACTOR(test_shutdown),
        WITH_REACTOR(test_reset),
        WITH_REACTOR(test_urgent_data),
        WITH_REACTOR(test_close_in_own_callback),
        WITH_REACTOR(test_close_forgets_operations),
        WITH_REACTOR(test_close_in_closed),
        WITH_REACTOR(test_close_others_in_batch),
        WITH_REACTOR(test_connect),
        WITH_REACTOR(test_connect_ipv6),
        WITH_REACTOR(test_connect_local),
        WITH_REACTOR(test_misuse),
    };
    return fw_test_run_on_backend(tests);
}
