/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: in a busy round the sends of all streams leave in one submission, each is answered with
 * what came of it, and a stream that is closed meanwhile takes its send along. The promises that
 * are the same on epoll are tested by the tests of the reactor, which run on both.
 * Method: many streams become readable in one round, and each answers its request from there, so
 * that the sends are queued; the far ends are driven by plain system calls. io_uring_submit() is
 * defined again here: it counts, and can refuse. Streams are freed in `closed`, so ASan sees any
 * use after it.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/thread.h"
#include "io/reactor_backend.h"
#include "support/reactor_backend.h"

enum {
    FEW = 15,  /* Streams in a round that is just too small for a batch. */
    MANY = 16, /* And in one that is just large enough. */
    BATCH_MAX = 256,
    CROWD = BATCH_MAX + 40, /* More than a batch can hold. */
    REQUEST_SIZE = 7,
    REPLY_SIZE = 12,
    DESCRIPTORS = 2 * CROWD + 64,
};

static int submission_count;
static int refusals; /* So many submissions fail. */
static int refusal;

int io_uring_submit(struct io_uring *ring)
{
    submission_count++;
    if (refusals > 0) {
        refusals--;
        return refusal;
    }
    return io_uring_submit_and_wait(ring, 0); /* The same by another name. */
}

/* The linker (--wrap) sends our calls here. */
int __real_epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event);
static int modify_error; /* Not 0: what is registered cannot be changed. */

int __wrap_epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event)
{
    if (operation == EPOLL_CTL_MOD && modify_error != 0) {
        errno = modify_error;
        return -1;
    }
    return __real_epoll_ctl(epoll_fd, operation, fd, event);
}

/* A stream that answers every request as soon as it is readable. */
struct peer {
    struct fw_stream stream;
    int other; /* The far end; -1 once it is closed. */
    int at_once_count;
    int queued_count;
    int sent_count;
    ssize_t result; /* Of the last send. */
    char request[16];
    struct iovec reply[2];
    int pieces;
    struct peer *also;                /* Is answered too when this one is readable. */
    void (*react)(struct peer *peer); /* What else the test does in `sent`. */
};

static char reply_text[REPLY_SIZE] = "first,second";
static struct fw_reactor *reactor;
static struct peer *peers[CROWD]; /* NULL once closed. */
static int peer_count;
static int closed_count;

static void peer_answer(struct peer *peer)
{
    peer->reply[0] = (struct iovec){reply_text, peer->pieces == 1 ? REPLY_SIZE : 6};
    peer->reply[1] = (struct iovec){reply_text + 6, REPLY_SIZE - 6};
    ssize_t sent = fw_stream_send(&peer->stream, peer->reply, peer->pieces);
    if (sent == -EINPROGRESS) {
        peer->queued_count++;
        return;
    }
    peer->at_once_count++;
    peer->result = sent;
}

static void peer_readable(struct fw_stream *stream)
{
    struct peer *peer = FW_CONTAINER_OF(stream, struct peer, stream);
    ssize_t received = fw_stream_receive(stream, peer->request, sizeof peer->request);
    assert_true(received >= 0);
    fw_stream_wait(stream);
    if (peer->also != NULL) {
        peer_answer(peer->also);
    }
    peer_answer(peer);
}

static void peer_sent(struct fw_stream *stream, ssize_t result)
{
    struct peer *peer = FW_CONTAINER_OF(stream, struct peer, stream);
    peer->sent_count++;
    peer->result = result;
    if (peer->react != NULL) {
        peer->react(peer);
    }
}

static void peer_closed(struct fw_stream *stream)
{
    struct peer *peer = FW_CONTAINER_OF(stream, struct peer, stream);
    closed_count++;
    memset(peer, 0xff, sizeof *peer);
    free(peer);
}

static const struct fw_stream_events peer_events = {
    .readable = peer_readable,
    .sent = peer_sent,
    .closed = peer_closed,
};

static void peers_open(int count)
{
    peer_count = count;
    for (int i = 0; i < count; i++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        peers[i] = calloc(1, sizeof *peers[i]);
        assert_non_null(peers[i]);
        peers[i]->other = pair[1];
        peers[i]->pieces = 1 + i % 2;
        assert_int_equal(fw_stream_open(&peers[i]->stream, reactor, pair[0], &peer_events), 0);
        fw_stream_wait(&peers[i]->stream);
    }
}

/* Returns the far end, which is the test's from here on. */
static int peer_close(int number)
{
    int other = peers[number]->other;
    fw_stream_close(&peers[number]->stream);
    peers[number] = NULL;
    return other;
}

static void peers_ask(void)
{
    for (int i = 0; i < peer_count; i++) {
        assert_int_equal(send(peers[i]->other, "request", REQUEST_SIZE, 0), REQUEST_SIZE);
    }
}

static void assert_reply(int fd)
{
    char buffer[2 * REPLY_SIZE];
    assert_int_equal(recv(fd, buffer, sizeof buffer, MSG_DONTWAIT), REPLY_SIZE);
    assert_memory_equal(buffer, reply_text, REPLY_SIZE);
}

static void assert_nothing_came(int fd)
{
    char buffer[1];
    assert_int_equal(recv(fd, buffer, sizeof buffer, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

static void assert_end_came(int fd)
{
    char buffer[1];
    assert_int_equal(recv(fd, buffer, sizeof buffer, MSG_DONTWAIT), 0);
}

static int setup_reactor(void **state)
{
    (void)state;
    submission_count = 0;
    refusals = 0;
    closed_count = 0;
    return fw_reactor_create(&reactor, NULL);
}

static int teardown_reactor(void **state)
{
    (void)state;
    int open_count = 0;
    for (int i = 0; i < peer_count; i++) {
        if (peers[i] != NULL) {
            open_count++;
            (void)close(peer_close(i));
        }
    }
    int before = closed_count;
    (void)fw_reactor_poll(reactor, 0);
    fw_reactor_destroy(reactor); /* Asserts that all was closed. */
    return closed_count == before + open_count ? 0 : -1;
}

static void test_one_submission(void **state)
{
    (void)state;
    peers_open(MANY);
    peers_ask();
    assert_int_equal(fw_reactor_poll(reactor, -1), MANY);
    assert_int_equal(submission_count, 0);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(peers[i]->queued_count, 1);
        assert_nothing_came(peers[i]->other);
    }
    assert_int_equal(fw_reactor_poll(reactor, -1), MANY); /* Does not wait. */
    assert_int_equal(submission_count, 1);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(peers[i]->sent_count, 1);
        assert_int_equal(peers[i]->result, REPLY_SIZE);
        assert_reply(peers[i]->other);
    }
    assert_int_equal(fw_reactor_poll(reactor, 0), 0); /* Each was answered once. */
    assert_int_equal(submission_count, 1);
}

static void test_quiet_round(void **state)
{
    (void)state;
    peers_open(MANY);
    peers_ask();
    assert_int_equal(fw_reactor_poll(reactor, -1), MANY);
    assert_int_equal(fw_reactor_poll(reactor, -1), MANY);
    peer_count = FEW; /* Of the others nothing is heard in the next round. */
    peers_ask();
    peer_count = MANY;
    assert_int_equal(fw_reactor_poll(reactor, -1), FEW);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(peers[i]->at_once_count, i < FEW ? 1 : 0);
    }
    peer_answer(peers[MANY - 1]); /* Nor is a send queued that comes between two polls. */
    assert_int_equal(peers[MANY - 1]->at_once_count, 1);
    assert_int_equal(submission_count, 1);
}

/* Who needs longer than the round for an answer still sends it in the same batch. */
static void test_send_between_polls(void **state)
{
    (void)state;
    peers_open(MANY + 1);
    peer_count = MANY;
    peers_ask();
    peer_count = MANY + 1;
    assert_int_equal(fw_reactor_poll(reactor, -1), MANY);
    peer_answer(peers[MANY]);
    assert_int_equal(peers[MANY]->queued_count, 1);
    assert_int_equal(fw_reactor_poll(reactor, -1), MANY + 1);
    assert_int_equal(submission_count, 1);
    assert_reply(peers[MANY]->other);
}

static void test_batch_is_full(void **state)
{
    (void)state;
    int queued_count = 0;
    peers_open(CROWD);
    peers_ask();
    assert_int_equal(fw_reactor_poll(reactor, -1), BATCH_MAX); /* As many events as fit a round. */
    for (int i = 0; i < CROWD; i++) {
        if (peers[i]->queued_count == 0) {
            peer_answer(peers[i]);
            assert_int_equal(peers[i]->at_once_count, 1);
            assert_reply(peers[i]->other);
        }
        queued_count += peers[i]->queued_count;
    }
    assert_int_equal(queued_count, BATCH_MAX);
    /* The answers of the full batch, and the events that did not fit, which can be queued again. */
    assert_int_equal(fw_reactor_poll(reactor, -1), BATCH_MAX + (CROWD - BATCH_MAX));
    assert_int_equal(fw_reactor_poll(reactor, -1), CROWD - BATCH_MAX);
    assert_int_equal(submission_count, 2);
    for (int i = 0; i < CROWD; i++) {
        assert_reply(peers[i]->other);
    }
}

static void test_close_while_queued(void **state)
{
    (void)state;
    peers_open(MANY);
    peers_ask();
    assert_int_equal(fw_reactor_poll(reactor, -1), MANY);
    int freed = peers[0]->stream.source.fd;
    int first = peer_close(0);
    int last = peer_close(MANY - 1);
    assert_end_came(first);
    assert_end_came(last);
    int pair[2]; /* Somebody else gets the number of a closed descriptor, and no stray reply. */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(dup2(pair[0], freed), freed);
    assert_int_equal(fw_reactor_poll(reactor, -1), MANY - 2 + 2);
    assert_nothing_came(pair[1]);
    assert_int_equal(close(pair[1]), 0);
    if (pair[0] != freed) {
        assert_int_equal(close(pair[0]), 0);
    }
    assert_int_equal(close(freed), 0);
    assert_int_equal(closed_count, 2);
    for (int i = 1; i < MANY - 1; i++) {
        assert_reply(peers[i]->other);
    }
    (void)close(first);
    (void)close(last);
}

static void react_close_neighbours(struct peer *peer)
{
    for (int i = 0; i < peer_count; i++) {
        if (peers[i] != NULL && peers[i] != peer) {
            (void)close(peer_close(i));
        }
    }
}

/* The answers of all are there when the first is told; it ends the others. */
static void close_while_answered(int count)
{
    peers_open(count);
    for (int i = 0; i < count; i++) {
        peers[i]->react = react_close_neighbours;
    }
    peers_ask();
    assert_int_equal(fw_reactor_poll(reactor, -1), count);
    assert_int_equal(fw_reactor_poll(reactor, -1), 1 + count - 1); /* One `sent`, then `closed`. */
    assert_int_equal(closed_count, count - 1);
    assert_int_equal(fw_reactor_poll(reactor, 0), 0);
}

static void test_close_while_answered(void **state)
{
    (void)state;
    close_while_answered(MANY);
}

/* Every place is in use. */
static void test_close_while_all_answered(void **state)
{
    (void)state;
    close_while_answered(BATCH_MAX);
}

static void react_answer_and_close(struct peer *peer)
{
    for (int i = 0; i < peer_count; i++) {
        if (peers[i] == peer) {
            peer->react = NULL;
            peer_answer(peer); /* Queued, if that round has events enough. */
            (void)close(peer_close(i));
        }
    }
}

static void test_close_self_with_new_send(void **state)
{
    (void)state;
    peers_open(2 * MANY);
    for (int i = 0; i < MANY; i++) {
        peers[i]->react = react_answer_and_close;
    }
    peer_count = MANY;
    peers_ask();
    peer_count = 2 * MANY;
    assert_int_equal(fw_reactor_poll(reactor, -1), MANY);
    for (int i = MANY; i < 2 * MANY; i++) {
        assert_int_equal(send(peers[i]->other, "request", REQUEST_SIZE, 0), REQUEST_SIZE);
    }
    /* `sent` and `closed` of the first half, `readable` of the second. */
    assert_int_equal(fw_reactor_poll(reactor, -1), 3 * MANY);
    assert_int_equal(closed_count, MANY);
    assert_int_equal(fw_reactor_poll(reactor, -1), MANY);
    for (int i = MANY; i < 2 * MANY; i++) {
        assert_reply(peers[i]->other);
    }
}

/* Makes the stream's buffer full, and returns how much is in it. */
static size_t peer_fill(struct peer *peer)
{
    static char bytes[4096];
    size_t total = 0;
    ssize_t sent;
    while ((sent = send(peer->stream.source.fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
        total += (size_t)sent;
    }
    assert_int_equal(errno, EAGAIN);
    return total;
}

static void other_drain(struct peer *peer, size_t total)
{
    static char bytes[65536];
    while (total > 0) {
        ssize_t received =
            recv(peer->other, bytes, total < sizeof bytes ? total : sizeof bytes, MSG_DONTWAIT);
        assert_true(received > 0);
        total -= (size_t)received;
    }
}

static void test_buffer_is_full(void **state)
{
    (void)state;
    peers_open(MANY);
    for (int round = 1; round <= 2; round++) { /* The second time epoll watches it already. */
        size_t total = peer_fill(peers[0]);
        peers_ask();
        while (peers[MANY - 1]->sent_count < round || peers[0]->queued_count < round) {
            (void)fw_reactor_poll(reactor, -1);
        }
        assert_int_equal(peers[0]->sent_count, round - 1);
        other_drain(peers[0], total);
        while (peers[0]->sent_count < round) {
            (void)fw_reactor_poll(reactor, -1);
        }
        assert_int_equal(peers[0]->result, REPLY_SIZE);
        for (int i = 0; i < MANY; i++) {
            assert_reply(peers[i]->other);
        }
    }
}

/* There is room, says an event that comes after the send was queued: it must not be made twice. */
/* Room cannot be waited for: who sends is told so, and not EAGAIN, which would mean nothing. */
static void test_full_and_unwatched(void **state)
{
    (void)state;
    peers_open(MANY);
    (void)peer_fill(peers[0]);
    modify_error = ENOMEM;
    peers_ask();
    while (peers[0]->sent_count == 0) {
        (void)fw_reactor_poll(reactor, -1);
    }
    modify_error = 0;
    assert_int_equal(peers[0]->result, -ENOMEM);
}

static void test_room_while_queued(void **state)
{
    (void)state;
    peers_open(MANY);
    size_t total = peer_fill(peers[0]);
    peer_answer(peers[0]); /* Finds it full, and from now on epoll watches for room. */
    other_drain(peers[0], total);
    while (peers[0]->sent_count < 1) {
        (void)fw_reactor_poll(reactor, -1);
    }
    peers[1]->also = peers[0];
    for (int i = 1; i < MANY; i++) {
        assert_int_equal(send(peers[i]->other, "request", REQUEST_SIZE, 0), REQUEST_SIZE);
    }
    assert_reply(peers[0]->other); /* Which makes room, after the others became readable. */
    assert_int_equal(fw_reactor_poll(reactor, -1), MANY - 1);
    assert_int_equal(peers[0]->sent_count, 1);
    assert_int_equal(fw_reactor_poll(reactor, -1), MANY);
    assert_int_equal(peers[0]->sent_count, 2);
    assert_reply(peers[0]->other);
}

static void test_far_end_is_gone(void **state)
{
    (void)state;
    peers_open(MANY);
    peers_ask();
    assert_int_equal(fw_reactor_poll(reactor, -1), MANY);
    for (int i = 0; i < 2; i++) { /* In one piece, and in two: neither raises SIGPIPE. */
        assert_int_equal(close(peers[i]->other), 0);
        peers[i]->other = open("/dev/null", O_RDWR | O_CLOEXEC);
    }
    while (peers[MANY - 1]->sent_count == 0) {
        (void)fw_reactor_poll(reactor, -1);
    }
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(peers[i]->sent_count, 1);
        assert_int_equal(peers[i]->result, i < 2 ? -EPIPE : REPLY_SIZE);
    }
}

static void test_kernel_refuses(void **state)
{
    (void)state;
    static const int errors[] = {-EAGAIN, -ENOMEM, -EINTR};
    peers_open(MANY);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(errors); i++) {
        refusals = 2;
        refusal = errors[i];
        submission_count = 0;
        peers_ask();
        assert_int_equal(fw_reactor_poll(reactor, -1), MANY);
        assert_int_equal(fw_reactor_poll(reactor, -1), MANY);
        assert_int_equal(submission_count, 3);
        for (int k = 0; k < MANY; k++) {
            assert_reply(peers[k]->other);
        }
    }
}

static void other_thread_run(void *argument)
{
    (void)argument;
    assert_int_equal(fw_reactor_poll(reactor, -1), MANY);
}

/* One thread queues, another has the turn when they are made. */
static void test_turn_moves(void **state)
{
    (void)state;
    struct fw_thread thread;
    peers_open(MANY);
    peers_ask();
    assert_int_equal(fw_reactor_poll(reactor, -1), MANY);
    assert_int_equal(fw_thread_create(&thread, "other", other_thread_run, NULL), 0);
    fw_thread_join(&thread);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(peers[i]->sent_count, 1);
        assert_reply(peers[i]->other);
    }
}

static void test_choose(void **state)
{
    (void)state;
    struct fw_reason reason = {""};
    assert_int_equal(fw_reactor_choose("epoll", &reason), 0);
    assert_ptr_equal(fw_reactor_backend, &fw_reactor_epoll);
    assert_int_equal(fw_reactor_choose("io_uring", &reason), 0);
    assert_ptr_equal(fw_reactor_backend, &fw_reactor_uring);
    assert_string_equal(reason.text, "");
    assert_int_equal(fw_reactor_choose("kqueue", &reason), -EINVAL);
    assert_non_null(strstr(reason.text, "'kqueue'"));
    assert_non_null(strstr(reason.text, "epoll or io_uring"));
    assert_ptr_equal(fw_reactor_backend, &fw_reactor_uring); /* As it was. */
}

#define WITH_REACTOR(test) cmocka_unit_test_setup_teardown(test, setup_reactor, teardown_reactor)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_REACTOR(test_one_submission),
        WITH_REACTOR(test_quiet_round),
        WITH_REACTOR(test_send_between_polls),
        WITH_REACTOR(test_batch_is_full),
        WITH_REACTOR(test_close_while_queued),
        WITH_REACTOR(test_close_while_answered),
        WITH_REACTOR(test_close_while_all_answered),
        WITH_REACTOR(test_close_self_with_new_send),
        WITH_REACTOR(test_buffer_is_full),
        WITH_REACTOR(test_full_and_unwatched),
        WITH_REACTOR(test_room_while_queued),
        WITH_REACTOR(test_far_end_is_gone),
        WITH_REACTOR(test_kernel_refuses),
        WITH_REACTOR(test_turn_moves),
        cmocka_unit_test(test_choose),
    };
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < DESCRIPTORS) {
        limit.rlim_cur = DESCRIPTORS;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* If it fails, so will the test, and say why. */
    }
    (void)setenv("FW_TEST_REACTOR", "io_uring", 1); /* NOLINT(concurrency-mt-unsafe): one thread. */
    return fw_test_run_on_backend(tests);
}
