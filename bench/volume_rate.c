/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What bench/run volume-allocate starts: a host's agent that allocates extents one at a time, and
 * beside it, by turns, the bare durable writes that the order of an allocation needs, on the same
 * disk.
 *
 *     volume_rate PATH HOST VOLUME COUNT
 *
 *     > ready            the pool is filled; it waits for a line, for who wants to kill the manager
 *     > waits N          the pool was used up after N allocations; so it waits for the manager
 *     > {...}            the figures
 *
 * An allocation is one push: the message, durable; then the pointer that publishes it, durable. So
 * the peer is two writes of a block with a flush behind each, by the same calls that a disk makes.
 * They go to extents of the same volume, which were allocated for that, in the same way as the ring
 * goes: from block to block, and again and again to one for the pointer.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fairway/volume.h>

#include "base/assert.h"
#include "base/parse.h"
#include "base/thread.h"
#include "io/clock.h"
#include "io/disk.h"

enum { COUNT_MAX = 100000, BARE = 64, TURN = 10, BLOCK = 4096 };

static struct fw_volume_agent *agent;
static struct fw_volume *volume;
static struct fw_ring_reason reason;
static struct fw_parker keeper_parker;
static atomic_bool is_over; /* Says nothing about other data. */

static void expect(int rc, const char *what)
{
    if (rc != 0) {
        (void)fprintf(stderr, "volume_rate: %s: %d %s\n", what, rc, rc < 0 ? reason.text : "");
        exit(EXIT_FAILURE);
    }
}

/* ---- the agent ---- */

static void keeper_run(void *argument)
{
    (void)argument;
    while (!atomic_load(&is_over)) {
        struct fw_ring_reason why = {.text = ""};
        if (fw_volume_agent_step(agent, &why) != 0) {
            (void)fprintf(stderr, "volume_rate: step: %s\n", why.text);
            exit(EXIT_FAILURE);
        }
        (void)fw_park_for(&keeper_parker, 10 * (int64_t)FW_NS_PER_MS);
    }
}

static void pause_a_moment(void)
{
    struct fw_parker parker;
    fw_parker_init(&parker);
    fw_unpark(&keeper_parker);
    (void)fw_park_for(&parker, FW_NS_PER_MS);
}

static int allocate(uint64_t logical)
{
    int rc = fw_volume_allocate(volume, logical, 1, &reason);
    if (rc != FW_VOLUME_WAIT) {
        expect(rc, "allocate");
    }
    return rc;
}

static void allocate_waiting(uint64_t logical)
{
    while (allocate(logical) == FW_VOLUME_WAIT) {
        pause_a_moment();
    }
}

/* ---- the bare writes ---- */

static int file;
static uint8_t *block;
static uint64_t bare_offsets[BARE];

static void bare_write(uint64_t offset)
{
    ssize_t written = pwrite(file, block, BLOCK, (off_t)offset);
    expect(written == BLOCK ? 0 : -EIO, "write");
    expect(fdatasync(file), "flush");
}

static void bare_prepare(const char *path)
{
    file = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    block = fw_disk_buffer(BLOCK);
    expect(file >= 0 && block != NULL ? 0 : -ENOMEM, path);
    memset(block, 'x', BLOCK);
    for (uint64_t i = 0; i < BARE; i++) {
        allocate_waiting(i);
        bool is_there = fw_volume_lookup(volume, i, &bare_offsets[i]);
        FW_ASSERT(is_there);
        bare_write(bare_offsets[i]); /* No first write is among those that are timed. */
    }
}

static int64_t bare_time(uint64_t number)
{
    int64_t begin = fw_clock_now_ns();
    bare_write(bare_offsets[1 + number % (BARE - 1)]);
    bare_write(bare_offsets[0]);
    return fw_clock_now_ns() - begin;
}

/* ---- both ---- */

static int64_t ours_ns[COUNT_MAX], bare_ns[COUNT_MAX];

static int by_value(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

static void figures_print(const char *name, int64_t *samples, uint64_t count)
{
    qsort(samples, count, sizeof samples[0], by_value);
    (void)printf("\"%s\": {\"p50\": %" PRId64 ", \"p99\": %" PRId64 "}, ", name, samples[count / 2],
                 samples[count - 1 - count / 100]);
}

/* Returns how many were allocated before the pool was empty. */
static uint64_t turns(uint64_t count)
{
    uint64_t done = 0;
    uint64_t bare = 0;
    while (done < count) {
        for (uint64_t i = 0; i < TURN && done < count; i++) {
            int64_t begin = fw_clock_now_ns();
            if (allocate(BARE + done) == FW_VOLUME_WAIT) {
                return done;
            }
            ours_ns[done++] = fw_clock_now_ns() - begin;
        }
        for (; bare < done; bare++) {
            bare_ns[bare] = bare_time(bare);
        }
    }
    return done;
}

int main(int argc, char **argv)
{
    struct fw_thread keeper;
    char line[16];
    uint64_t count = 0;
    if (argc != 5 || fw_parse_uint(argv[4], strlen(argv[4]), 1, COUNT_MAX, &count) != 0) {
        (void)fputs("usage: volume_rate PATH HOST VOLUME COUNT\n", stderr);
        return EXIT_FAILURE;
    }
    const struct fw_volume_agent_options options = {.path = argv[1], .host = argv[2]};
    expect(fw_volume_agent_open(&agent, &options, &reason), "agent");
    fw_parker_init(&keeper_parker);
    expect(fw_thread_create(&keeper, "keeper", keeper_run, NULL), "thread");
    expect(fw_volume_open(&volume, agent, argv[3], &reason), argv[3]);
    bare_prepare(argv[1]);
    (void)printf("ready\n");
    (void)fflush(stdout);
    (void)!fgets(line, sizeof line, stdin);
    uint64_t done = turns(count);
    if (done < count) {
        (void)printf("waits %" PRIu64 "\n", done);
        (void)fflush(stdout);
        allocate_waiting(BARE + done);
    }
    (void)printf("{");
    uint64_t whole = done - done % TURN; /* As many of both. */
    figures_print("ours", ours_ns, whole);
    figures_print("bare", bare_ns, whole);
    (void)printf("\"count\": %" PRIu64 "}\n", whole);
    atomic_store(&is_over, true);
    fw_unpark(&keeper_parker);
    fw_thread_join(&keeper);
    return EXIT_SUCCESS; /* As a crash would: nothing is to be put in order. */
}
