/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What bench/run ring-... starts: uses a ring in one way for a while and prints the nanoseconds per
 * message, or per push, on the wall.
 *
 *     ring_rate push PATH SIZE COUNT BATCH FLAGS     pushes; nobody waits for room: the ring is
 *                                                    emptied in between, which is not counted
 *     ring_rate pop PATH SIZE COUNT BATCH FLAGS      pops as many and gives them back BATCH-wise
 *     ring_rate follow PATH SIZE COUNT BATCH FLAGS   from the beginning of a push to the return of
 *                                                    the pop by another ring that polls; median
 *
 * FLAGS are those of fairway/ring.h, as a number.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/ring.h>

#include "base/assert.h"
#include "base/parse.h"
#include "base/thread.h"
#include "io/clock.h"

enum { BATCH_MAX = 64, MESSAGE_MAX = 65536, FOLLOWS_MAX = 100000 };

static const char *path;
static uint64_t size, count, batch, flags;
static char data[MESSAGE_MAX];
static struct fw_ring_reason reason;

static void expect(int rc, const char *what)
{
    if (rc != 0) {
        (void)fprintf(stderr, "ring_rate: %s: %d %s\n", what, rc, rc < 0 ? reason.text : "");
        exit(EXIT_FAILURE);
    }
}

static struct fw_ring *attach(enum fw_ring_role role)
{
    struct fw_ring *ring;
    const struct fw_ring_options options = {.path = path, .role = role, .flags = (unsigned)flags};
    expect(fw_ring_attach(&ring, &options, &reason), "attach");
    return ring;
}

static void push_batch(struct fw_ring *producer)
{
    struct fw_ring_message messages[BATCH_MAX];
    for (uint64_t i = 0; i < batch; i++) {
        messages[i] = (struct fw_ring_message){.data = data, .length = size};
    }
    expect(fw_ring_push_batch(producer, messages, (uint32_t)batch, &reason), "push");
}

static uint64_t pop_some(struct fw_ring *consumer, uint64_t most)
{
    struct fw_ring_message message;
    uint64_t position = 0;
    uint64_t popped = 0;
    int rc = 0;
    while (popped < most && (rc = fw_ring_pop(consumer, &message, &position, &reason)) == 0) {
        popped++;
    }
    if (rc != FW_RING_RETRY) {
        expect(rc, "pop");
    }
    if (popped > 0) {
        expect(fw_ring_advance(consumer, position, &reason), "advance");
    }
    return popped;
}

/* How many batches surely fit at once. */
static uint64_t round_batches(struct fw_ring *ring)
{
    struct fw_ring_state state;
    fw_ring_state(ring, &state);
    uint64_t batches = state.capacity / ((size + 32) * batch);
    return batches > 0 ? batches : 1;
}

/* Pushes and pops by turns; only one of the two is timed. Returns nanoseconds per push or pop. */
static double turns_time(bool times_push)
{
    struct fw_ring *producer = attach(FW_RING_PRODUCER);
    struct fw_ring *consumer = attach(FW_RING_CONSUMER);
    uint64_t round = round_batches(producer);
    int64_t taken_ns[2] = {0, 0};
    uint64_t done = 0;
    while (done < count) {
        uint64_t batches = count - done < round ? count - done : round;
        int64_t begin = fw_clock_now_ns();
        for (uint64_t i = 0; i < batches; i++) {
            push_batch(producer);
        }
        int64_t middle = fw_clock_now_ns();
        uint64_t popped = 0;
        while (popped < batches * batch) {
            popped += pop_some(consumer, batch);
        }
        taken_ns[0] += middle - begin;
        taken_ns[1] += fw_clock_now_ns() - middle;
        done += batches;
    }
    fw_ring_detach(producer);
    fw_ring_detach(consumer);
    return (double)taken_ns[times_push ? 0 : 1] / (double)count;
}

/* ---- follow ---- */

static struct fw_ring *followed;
static struct fw_parker seen;
static int64_t seen_ns[FOLLOWS_MAX];

static void follower_run(void *argument)
{
    struct fw_ring *consumer = argument;
    for (uint64_t number = 0; number < count;) {
        if (pop_some(consumer, 1) == 1) {
            seen_ns[number++] = fw_clock_now_ns();
            fw_unpark(&seen);
        }
    }
}

static int by_value(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

static double follow_time(void)
{
    struct fw_thread thread;
    static int64_t latency_ns[FOLLOWS_MAX];
    followed = attach(FW_RING_PRODUCER);
    struct fw_ring *consumer = attach(FW_RING_CONSUMER);
    fw_parker_init(&seen);
    FW_ASSERT(fw_thread_create(&thread, "follower", follower_run, consumer) == 0);
    for (uint64_t i = 0; i < count; i++) {
        int64_t begin = fw_clock_now_ns();
        expect(fw_ring_push(followed, data, size, &reason), "push");
        fw_park(&seen);
        latency_ns[i] = seen_ns[i] - begin;
    }
    fw_thread_join(&thread);
    fw_ring_detach(followed);
    fw_ring_detach(consumer);
    qsort(latency_ns, count, sizeof latency_ns[0], by_value);
    uint64_t middle = count / 2;
    return (double)latency_ns[middle];
}

static uint64_t number(const char *text, uint64_t max)
{
    uint64_t value = 0;
    expect(fw_parse_uint(text, strlen(text), 0, max, &value), text);
    return value;
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        (void)fputs("usage: ring_rate push|pop|follow PATH SIZE COUNT BATCH FLAGS\n", stderr);
        return EXIT_FAILURE;
    }
    path = argv[2];
    size = number(argv[3], MESSAGE_MAX);
    count = number(argv[4], FOLLOWS_MAX);
    batch = number(argv[5], BATCH_MAX);
    flags = number(argv[6], UINT32_MAX);
    double ns =
        strcmp(argv[1], "follow") == 0 ? follow_time() : turns_time(strcmp(argv[1], "push") == 0);
    (void)printf("%.1f\n", ns);
    return EXIT_SUCCESS;
}
