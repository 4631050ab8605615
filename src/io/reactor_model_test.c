/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: with a thousand sockets and any order of operations, every byte arrives once and in order,
 * every operation is answered exactly once, and the end arrives after the last byte.
 * Method: both sides of 500 connections, TCP and UNIX, belong to one reactor. A seeded generator
 * picks who waits, changes its mind, receives, sends, ends or breaks off; socket buffers are made
 * so small that they are often full. A model beside each side knows what is under way and how many
 * bytes went each way; the bytes themselves are a function of connection, direction and position.
 * Sides are freed in `closed`. A lost event means a connection that never ends, and the test
 * runner's time limit is what fails. `reactor_model_test SEED` runs one seed.
 */
#include "io/reactor.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/assert.h"
#include "support/reactor_backend.h"

enum {
    LINKS = 500,
    SIDES = 2 * LINKS,
    TOTAL_MAX = 20000,  /* Bytes that a side sends in all. */
    PIECE_MAX = 900,    /* Of one piece of a send; there are up to three. */
    RECEIVE_MAX = 1500, /* Of one receive. */
    BUFFER_SIZE = 4096, /* What a socket may keep unsent; the kernel takes a little more. */
    ACTIONS = 100,      /* Between two polls. */
    DESCRIPTORS = SIDES + 64,
};

struct side {
    struct fw_stream stream;
    int number; /* Place in `sides`; that of the other side differs in the last bit. */
    /* The model. */
    size_t total;
    size_t sent;
    size_t received;
    bool is_waiting;
    bool is_receiving;
    bool is_sending;
    bool has_shut_down;
    bool has_seen_end;
    /* Owned by the operation under way. */
    struct iovec vector[3];
    uint8_t send_bytes[3 * PIECE_MAX];
    uint8_t receive_bytes[RECEIVE_MAX];
};

static struct fw_reactor *reactor;
static struct side *sides[SIDES]; /* NULL once closed. */
static size_t totals[SIDES];      /* What each was to send, known also when it is gone. */
static bool is_broken[LINKS];     /* Closed before its end, so that bytes may be missing. */
static int open_count;
static uint64_t generator;
static uint64_t first_seed = 1, last_seed = 3;

/* A number below `limit`: xorshift, so that a seed means the same everywhere. */
static uint32_t choose(uint32_t limit)
{
    generator ^= generator << 13;
    generator ^= generator >> 7;
    generator ^= generator << 17;
    return (uint32_t)(generator >> 32) % limit;
}

static uint8_t byte_at(int sender, size_t position)
{
    return (uint8_t)((position * 0x9e3779b1u >> 7) + (size_t)sender * 29);
}

static struct side *side_of(struct fw_stream *stream)
{
    struct side *side = FW_CONTAINER_OF(stream, struct side, stream);
    assert_ptr_equal(sides[side->number], side); /* No call-back after close(). */
    return side;
}

static void side_close(struct side *side)
{
    sides[side->number] = NULL;
    fw_stream_close(&side->stream);
}

/* Takes the result of a receive, from wherever it came. */
static void side_take(struct side *side, ssize_t result)
{
    int sender = side->number ^ 1;
    if (result <= 0) {
        bool may_fail = is_broken[side->number / 2];
        assert_true(result == 0 || (may_fail && result == -ECONNRESET));
        assert_true(may_fail || side->received == totals[sender]);
        side->has_seen_end = true;
        return;
    }
    assert_false(side->has_seen_end);
    for (ssize_t i = 0; i < result; i++) {
        assert_int_equal(side->receive_bytes[i], byte_at(sender, side->received));
        side->received++;
    }
    assert_true(side->received <= totals[sender]);
}

static void side_receive(struct side *side)
{
    size_t size = 1 + choose(choose(2) == 0 ? 16 : RECEIVE_MAX);
    ssize_t result = fw_stream_receive(&side->stream, side->receive_bytes, size);
    if (result == -EINPROGRESS) {
        side->is_receiving = true;
    } else {
        side_take(side, result);
    }
}

/* Takes the result of a send. A broken connection ends this side's sending. */
static void side_sent(struct side *side, ssize_t result)
{
    if (result < 0) {
        assert_true(is_broken[side->number / 2]);
        assert_true(result == -EPIPE || result == -ECONNRESET);
        side->has_shut_down = true;
        return;
    }
    side->sent += (size_t)result;
    assert_true(side->sent <= side->total);
}

static void side_send(struct side *side)
{
    int count = 1 + (int)choose(3);
    size_t length = 0;
    for (int i = 0; i < count; i++) {
        size_t left = side->total - side->sent - length;
        size_t piece = choose(PIECE_MAX);
        piece = piece < left ? piece : left;
        side->vector[i] = (struct iovec){side->send_bytes + length, piece};
        length += piece;
    }
    for (size_t i = 0; i < length; i++) {
        side->send_bytes[i] = byte_at(side->number, side->sent + i);
    }
    ssize_t result = fw_stream_send(&side->stream, side->vector, count);
    if (result == -EINPROGRESS) {
        side->is_sending = true;
    } else {
        side_sent(side, result);
    }
}

static void side_act_as_sender(struct side *side)
{
    if (side->is_sending || side->has_shut_down) {
        return;
    }
    if (side->sent < side->total) {
        side_send(side);
    } else {
        fw_stream_shutdown(&side->stream);
        side->has_shut_down = true;
    }
}

static void side_act_as_receiver(struct side *side)
{
    if (side->is_receiving || side->has_seen_end) {
        return;
    }
    if (side->is_waiting) {
        if (choose(8) == 0) {
            fw_stream_wait_cancel(&side->stream);
            side->is_waiting = false;
        }
    } else if (choose(2) == 0) {
        fw_stream_wait(&side->stream);
        side->is_waiting = true;
    } else {
        side_receive(side);
    }
}

static void side_act(struct side *side)
{
    if (choose(20000) == 0) {
        is_broken[side->number / 2] = true;
        side_close(side);
        return;
    }
    if (choose(2) == 0) {
        side_act_as_sender(side);
    } else {
        side_act_as_receiver(side);
    }
    if (side->has_shut_down && side->has_seen_end) {
        side_close(side);
    }
}

static void model_readable(struct fw_stream *stream)
{
    struct side *side = side_of(stream);
    assert_true(side->is_waiting);
    side->is_waiting = false;
    if (choose(4) != 0) {
        side_receive(side);
    }
    if (choose(4) == 0) { /* Someone else's turn to be touched from here. */
        struct side *other = sides[choose(SIDES)];
        if (other != NULL) {
            side_act(other);
        }
    }
}

static void model_received(struct fw_stream *stream, ssize_t result)
{
    struct side *side = side_of(stream);
    assert_true(side->is_receiving);
    side->is_receiving = false;
    side_take(side, result);
}

static void model_sent(struct fw_stream *stream, ssize_t result)
{
    struct side *side = side_of(stream);
    assert_true(side->is_sending);
    side->is_sending = false;
    side_sent(side, result);
}

static void model_closed(struct fw_stream *stream)
{
    struct side *side = FW_CONTAINER_OF(stream, struct side, stream);
    assert_null(sides[side->number]);
    assert_true(open_count > 0);
    open_count--;
    memset(side, 0xff, sizeof *side);
    free(side);
}

static const struct fw_stream_events model_events = {
    .readable = model_readable,
    .received = model_received,
    .sent = model_sent,
    .closed = model_closed,
};

static void side_open(int number, int fd)
{
    const int size = BUFFER_SIZE;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size), 0);
    struct side *side = calloc(1, sizeof *side);
    assert_non_null(side);
    side->number = number;
    side->total = choose(TOTAL_MAX);
    totals[number] = side->total;
    sides[number] = side;
    assert_int_equal(fw_stream_open(&side->stream, reactor, fd, &model_events), 0);
    open_count++;
}

static void links_open(void)
{
    const struct fw_listener_options options = {.backlog = 1};
    struct fw_address address;
    struct fw_socket_file file;
    assert_int_equal(fw_address_parse("127.0.0.1:0", 0, 0, &address, 1, NULL), 1);
    int listener = fw_socket_listen(&address, &options, &address, &file, NULL);
    assert_true(listener >= 0);
    for (int i = 0; i < LINKS; i++) {
        int pair[2];
        if (i % 2 == 0) {
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        } else {
            pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            assert_int_equal(connect(pair[0], &address.any, address.length), 0);
            struct pollfd item = {.fd = listener, .events = POLLIN}; /* It hears of it later. */
            assert_int_equal(poll(&item, 1, -1), 1);
            pair[1] = fw_socket_accept(listener);
            assert_true(pair[1] >= 0);
        }
        is_broken[i] = false;
        side_open(2 * i, pair[0]);
        side_open(2 * i + 1, pair[1]);
    }
    fw_socket_close(listener);
}

static void test_model(void **state)
{
    (void)state;
    for (uint64_t seed = first_seed; seed <= last_seed; seed++) {
        print_message("# seed %llu\n", (unsigned long long)seed);
        generator = seed * 0x9e3779b97f4a7c15u;
        assert_int_equal(fw_reactor_create(&reactor, NULL), 0);
        links_open();
        while (open_count > 0) {
            for (int i = 0; i < ACTIONS; i++) {
                struct side *side = sides[choose(SIDES)];
                if (side != NULL) {
                    side_act(side);
                }
            }
            (void)fw_reactor_poll(reactor, 0);
        }
        fw_reactor_destroy(reactor);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_model)};
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < DESCRIPTORS) {
        limit.rlim_cur = DESCRIPTORS;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* If it fails, so will the test, and say why. */
    }
    if (argc > 1) {
        first_seed = strtoull(argv[1], NULL, 10);
        last_seed = first_seed;
    }
    return fw_test_run_on_backend(tests);
}
