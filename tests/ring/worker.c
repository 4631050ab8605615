/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One side of a ring, for tests that run both as processes and kill them.
 *
 *     ring_worker produce PATH COUNT SEED     pushes messages up to number COUNT
 *     ring_worker consume PATH COUNT SEED     pops them, checks them, and suspends now and then
 *
 * Length and contents of a message follow from its number alone, so that a worker finds out from
 * its pointer which is next, and a killed one is replaced by starting another. What has been
 * promised is printed, a line each: "pushed N", "popped N", at last "over". Whatever is wrong ends
 * the program with status 1 and a line on stderr.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/ring.h>

#include "base/parse.h"
#include "base/thread.h"
#include "io/clock.h"
#include "io/random.h"

enum { LENGTH_MAX = 700, BATCH_MAX = 16, PAUSE_US = 200 };

static struct fw_ring *ring;
static struct fw_ring_reason reason;
static struct fw_random chance;
static uint64_t count;

static _Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

static _Noreturn void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    (void)fputc('\n', stderr);
    va_end(arguments);
    exit(EXIT_FAILURE); /* NOLINT(concurrency-mt-unsafe): there is one thread. */
}

static void pause_a_little(void)
{
    struct fw_parker parker;
    fw_parker_init(&parker);
    (void)fw_park_for(&parker, (int64_t)PAUSE_US * FW_NS_PER_US);
}

static void say(const char *what, uint64_t number)
{
    if (printf("%s %" PRIu64 "\n", what, number) < 0 || fflush(stdout) != 0) {
        die("nobody listens");
    }
}

static size_t message_length(uint64_t number)
{
    uint64_t mixed = number * UINT64_C(0x9e3779b97f4a7c15);
    return sizeof number + (mixed >> 40) % (mixed >> 60 == 0 ? LENGTH_MAX : 60);
}

static void message_fill(uint64_t number, uint8_t *bytes)
{
    memset(bytes, (int)(number % 251), message_length(number));
    memcpy(bytes, &number, sizeof number);
}

/* The number of the message that begins at the position. */
static uint64_t number_at(uint64_t position, int format)
{
    uint64_t header = format == 1 ? 4 : 16;
    uint64_t at = 0;
    uint64_t number = 0;
    while (at < position) {
        at += (message_length(number) + 2 * header - 1) / header * header;
        number++;
    }
    if (at != position) {
        die("position %" PRIu64 " is inside of message %" PRIu64, position, number);
    }
    return number;
}

static void attach(const char *path, enum fw_ring_role role)
{
    const struct fw_ring_options options = {.path = path, .role = role, .client = "worker"};
    int rc = fw_ring_attach(&ring, &options, &reason);
    if (rc != 0) {
        die("cannot attach: %s", reason.text);
    }
}

static struct fw_ring_state state_now(void)
{
    struct fw_ring_state state;
    fw_ring_state(ring, &state);
    return state;
}

static void produce(void)
{
    static uint8_t bytes[BATCH_MAX][LENGTH_MAX + sizeof(uint64_t)];
    uint64_t next = number_at(state_now().producer, state_now().format);
    while (next < count) {
        struct fw_ring_message batch[BATCH_MAX];
        uint32_t size = (uint32_t)fw_random_between(&chance, 1, BATCH_MAX);
        size = count - next < size ? (uint32_t)(count - next) : size;
        for (uint32_t i = 0; i < size; i++) {
            message_fill(next + i, bytes[i]);
            batch[i] =
                (struct fw_ring_message){.data = bytes[i], .length = message_length(next + i)};
        }
        int rc = fw_ring_push_batch(ring, batch, size, &reason);
        if (rc == 0) {
            next += size;
            say("pushed", next);
        } else if (rc == FW_RING_RETRY || rc == FW_RING_SUSPENDED) {
            pause_a_little();
        } else {
            die("cannot push: %s", reason.text);
        }
    }
}

/* Asks for a suspend, and when that has been answered sees that nothing appears. */
static void suspend(void)
{
    int rc = fw_ring_suspend(ring, &reason);
    if (rc == FW_RING_RETRY) {
        return;
    }
    while (rc == 0 && !state_now().suspend_acknowledged) {
        pause_a_little();
        rc = fw_ring_poll(ring, &reason);
    }
    uint64_t producer = state_now().producer;
    for (int i = 0; rc == 0 && i < 3; i++) {
        rc = fw_ring_poll(ring, &reason);
        if (state_now().producer != producer) {
            die("a message appeared after the acknowledgement");
        }
    }
    if (rc == 0) {
        rc = fw_ring_resume(ring, &reason);
    }
    if (rc != 0) {
        die("cannot suspend: %d %s", rc, reason.text);
    }
}

/* Pops all there is, or a part of it. Returns where that ends, or 0. */
static uint64_t consume_some(uint64_t *next)
{
    uint8_t expected[LENGTH_MAX + sizeof(uint64_t)];
    uint64_t end = 0;
    for (uint64_t left = fw_random_between(&chance, 1, 64); left > 0; left--) {
        struct fw_ring_message message;
        uint64_t position;
        int rc = fw_ring_pop(ring, &message, &position, &reason);
        if (rc == FW_RING_RETRY) {
            break;
        }
        if (rc != 0) {
            die("cannot pop: %s", reason.text);
        }
        message_fill(*next, expected);
        if (message.length != message_length(*next) ||
            memcmp(message.data, expected, message.length) != 0) {
            die("message %" PRIu64 " is not what it should be", *next);
        }
        (*next)++;
        end = position;
    }
    return end;
}

static void consume(void)
{
    struct fw_ring_state state = state_now();
    uint64_t next = number_at(state.consumer, state.format);
    if (state.suspend_requested && fw_ring_poll(ring, &reason) == 0 &&
        state_now().suspend_acknowledged && fw_ring_resume(ring, &reason) < 0) {
        die("cannot resume what the last one suspended: %s", reason.text);
    }
    while (next < count) {
        uint64_t end = consume_some(&next);
        if (end > 0 && fw_ring_advance(ring, end, &reason) != 0) {
            die("cannot advance: %s", reason.text);
        }
        if (end > 0) {
            say("popped", next);
        } else {
            pause_a_little();
        }
        state = state_now();
        if (state.suspend_requested && state.suspend_acknowledged &&
            fw_ring_resume(ring, &reason) < 0) {
            die("cannot resume: %s", reason.text);
        }
        /* Never after the last message: by then the producer may be gone, and nobody answers. */
        if (next < count && fw_random_chance(&chance, 1, 200)) {
            suspend();
        }
    }
}

int main(int argc, char **argv)
{
    uint64_t seed;
    if (argc != 5 || fw_parse_uint(argv[3], strlen(argv[3]), 0, UINT32_MAX, &count) != 0 ||
        fw_parse_uint(argv[4], strlen(argv[4]), 0, UINT64_MAX, &seed) != 0) {
        die("usage: ring_worker produce|consume PATH COUNT SEED");
    }
    fw_random_init(&chance, seed);
    bool is_producer = strcmp(argv[1], "produce") == 0;
    attach(argv[2], is_producer ? FW_RING_PRODUCER : FW_RING_CONSUMER);
    if (is_producer) {
        produce();
        /* The consumer may ask for a suspend until it has the last message. */
        while (state_now().consumer < state_now().producer) {
            if (fw_ring_poll(ring, &reason) < 0) {
                die("cannot poll: %s", reason.text);
            }
            pause_a_little();
        }
    } else {
        consume();
    }
    fw_ring_detach(ring);
    (void)puts("over");
    return EXIT_SUCCESS;
}
