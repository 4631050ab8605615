/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring between two hosts. The producer's has two threads that push and one that polls; the
 * consumer pops, gives back, and suspends the ring now and then. The disk is slow, fails at times,
 * and loses its power at any moment. What must hold: each pusher's messages come in their order;
 * those whose push has returned 0 come at least once; nothing is handed out that a later life of
 * the producer does not stand by; and between the acknowledgement of a suspend and the resume the
 * producer's pointer stands still.
 *
 * The planted twin publishes as the prototype did: by a second step, after others may have
 * acknowledged a suspend.
 *
 * A second scenario has two hosts that both want the same role of a ring of format 2, of which the
 * first freezes at some time and is dead then.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/thread.h"
#include "io/disk.h"
#include "ring/core.h"
#include "simulate/disk.h"
#include "simulate/scenarios.h"

enum { PUSHERS = 2, GOAL = 12, LIVES = 3, LENGTH_MAX = 900, PLANTED_S = 2 };

static const char DISK[] = "/dev/ring";

struct note {
    uint32_t pusher;
    uint32_t number;
};

static struct {
    uint32_t next[PUSHERS];     /* What a pusher pushes next. */
    bool is_doubtful[PUSHERS];  /* Its last push failed and may have happened all the same. */
    uint32_t expected[PUSHERS]; /* What the consumer pops next... */
    uint32_t kept[PUSHERS];     /* ... and where it would be again after a crash. */
    uint32_t popped[PUSHERS];   /* What it has popped before the last advance. */
    uint64_t advancing;         /* Where the last advance was to go. */
    bool over;                  /* The consumer has got everything. */
    bool is_planted;            /* One pusher, which publishes in two steps. */
    int64_t begin_ns;
} world;

/* What is planted may also lose an acknowledgement, for which all then wait in vain. */
static bool world_is_stuck(void)
{
    return world.is_planted && sim_now() > world.begin_ns + PLANTED_S * SIM_S;
}

static bool world_is_consumed(void)
{
    for (uint32_t i = 0; i < PUSHERS; i++) {
        if (world.expected[i] < GOAL) {
            return false;
        }
    }
    return true;
}

static struct fw_disk *disk_open(void)
{
    struct fw_disk *disk;
    const struct fw_disk_options options = {.path = DISK};
    int rc = fw_disk_open(&disk, &options, NULL);
    SIM_EXPECT(rc == 0);
    return disk;
}

static void ring_make(int format)
{
    const struct fw_ring_create create = {.format = format};
    struct fw_disk *disk = disk_open();
    int rc = fw_ring_create_on(disk, &create, NULL);
    SIM_EXPECT(rc == 0);
    fw_disk_close(disk);
}

/* ---- the producer's host ---- */

struct producer {
    struct fw_ring *ring;
    bool is_dead; /* An operation has failed for good; all threads of this life end. */
};

struct pusher {
    struct fw_thread thread;
    struct producer *producer;
    uint32_t number;
};

/* What was staged is published later, by a write of its own, without another look. */
static int push_in_two_steps(struct fw_ring *ring, const uint8_t *bytes, size_t length)
{
    const struct fw_ring_names names = {.queue = "q", .client = "c"};
    int rc = fw_ring_stage(ring, bytes, length, NULL);
    if (rc != 0) {
        return rc;
    }
    uint64_t end = ring->staged;
    sim_sleep(sim_between(0, 500) * SIM_US);
    struct fw_disk *disk = disk_open();
    uint8_t *sector = fw_disk_buffer(ring->geometry.sector_size);
    FW_ASSERT(sector != NULL);
    struct fw_ring_pointer *producer = &ring->sides[FW_RING_SIDE_PRODUCER];
    producer->position = end;
    struct fw_disk_op op = {.kind = FW_DISK_WRITE,
                            .from = sector,
                            .size = ring->geometry.sector_size,
                            .offset = fw_ring_pointer_write(&ring->geometry, FW_RING_SIDE_PRODUCER,
                                                            producer, &names, sector)};
    rc = fw_disk_run(disk, &op, NULL);
    ring->staged = end;
    free(sector);
    fw_disk_close(disk);
    return rc;
}

static void pusher_run(void *argument)
{
    struct pusher *own = argument;
    uint32_t i = own->number;
    uint8_t bytes[LENGTH_MAX];
    while (!own->producer->is_dead && world.next[i] < GOAL && (i == 0 || !world.is_planted) &&
           !world_is_stuck()) {
        const struct note note = {.pusher = i, .number = world.next[i]};
        size_t length = (size_t)sim_between(sizeof note, LENGTH_MAX);
        memset(bytes, 'a' + (int)i, length);
        memcpy(bytes, &note, sizeof note);
        int rc = world.is_planted ? push_in_two_steps(own->producer->ring, bytes, length)
                                  : fw_ring_push(own->producer->ring, bytes, length, NULL);
        if (rc == 0) {
            world.next[i]++;
            world.is_doubtful[i] = false;
        } else if (rc < 0) {
            world.is_doubtful[i] = true;
            own->producer->is_dead = true;
        } else {
            SIM_EXPECT(rc == FW_RING_RETRY || rc == FW_RING_SUSPENDED);
            sim_sleep(sim_between(0, 500) * SIM_US);
        }
    }
}

static void poller_run(void *argument)
{
    struct pusher *own = argument;
    while (!own->producer->is_dead && !world.over) {
        int rc = fw_ring_poll(own->producer->ring, NULL);
        own->producer->is_dead |= rc < 0;
        sim_sleep(sim_between(0, 1000) * SIM_US);
    }
}

static void producer_live(void)
{
    struct fw_disk *disk = disk_open();
    const struct fw_ring_options options = {.role = FW_RING_PRODUCER,
                                            .flags = sim_chance(2) ? FW_RING_FUA : 0U};
    struct producer producer = {.is_dead = false};
    int rc = fw_ring_attach_on(&producer.ring, disk, 1, &options, NULL);
    if (rc == 0) {
        struct pusher threads[PUSHERS + 1];
        for (uint32_t i = 0; i <= PUSHERS; i++) {
            threads[i].producer = &producer;
            threads[i].number = i;
            rc = fw_thread_create(&threads[i].thread, i < PUSHERS ? "pusher" : "poller",
                                  i < PUSHERS ? pusher_run : poller_run, &threads[i]);
            FW_ASSERT(rc == 0);
        }
        for (uint32_t i = 0; i <= PUSHERS; i++) {
            fw_thread_join(&threads[i].thread);
        }
        fw_ring_detach(producer.ring);
    } else {
        SIM_EXPECT(rc == -EIO || rc == -ENODEV || rc == -ENOSPC);
    }
    fw_disk_close(disk);
}

static void producer_run(void *argument)
{
    (void)argument;
    while (!world.over) {
        producer_live();
        sim_sleep(sim_between(0, 300) * SIM_US);
    }
}

/* ---- the consumer's host ---- */

/* A message whose push failed may come once more when it is pushed again. */
static void message_check(const struct fw_ring_message *message)
{
    struct note note;
    SIM_EXPECT(message->length >= sizeof note);
    memcpy(&note, message->data, sizeof note);
    SIM_EXPECT(note.pusher < PUSHERS);
    const uint8_t *bytes = message->data;
    for (size_t i = sizeof note; i < message->length; i++) {
        SIM_EXPECT(bytes[i] == 'a' + note.pusher);
    }
    uint32_t *expected = &world.expected[note.pusher];
    SIM_EXPECT(note.number == *expected || note.number + 1 == *expected);
    SIM_EXPECT(note.number <= world.next[note.pusher]);
    *expected = note.number + 1;
}

/* Returns 0, or why this life is over. */
static int consumer_pop(struct fw_ring *ring)
{
    uint64_t end = 0;
    int rc = 0;
    for (int64_t left = sim_between(1, 6); left > 0 && rc == 0; left--) {
        struct fw_ring_message message;
        uint64_t position;
        rc = fw_ring_pop(ring, &message, &position, NULL);
        if (rc == 0) {
            message_check(&message);
            end = position;
        }
    }
    SIM_EXPECT(rc == 0 || rc == FW_RING_RETRY || rc == -EIO || rc == -ENODEV);
    if (end > 0 && rc >= 0) {
        world.advancing = end;
        memcpy(world.popped, world.expected, sizeof world.popped);
        rc = fw_ring_advance(ring, end, NULL);
        if (rc == 0) {
            memcpy(world.kept, world.expected, sizeof world.kept);
        }
    }
    return rc < 0 ? rc : 0;
}

static int state_look(struct fw_ring *ring, struct fw_ring_state *state)
{
    int rc = fw_ring_poll(ring, NULL);
    fw_ring_state(ring, state);
    return rc;
}

/* Suspends, and watches the producer's pointer until it resumes. */
static int consumer_suspend(struct fw_ring *ring)
{
    struct fw_ring_state state;
    int rc = fw_ring_suspend(ring, NULL);
    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    do {
        sim_sleep(sim_between(0, 500) * SIM_US);
        rc = state_look(ring, &state);
    } while (rc == 0 && !state.suspend_acknowledged && !world_is_stuck());
    if (world_is_stuck()) {
        return -ETIMEDOUT;
    }
    uint64_t producer = state.producer;
    for (int i = 0; i < 3 && rc == 0; i++) {
        sim_sleep(sim_between(0, 500) * SIM_US);
        rc = state_look(ring, &state);
        SIM_EXPECT(rc != 0 || state.producer == producer);
    }
    return rc == 0 ? fw_ring_resume(ring, NULL) : rc;
}

/* A life may have ended between the acknowledgement and the resume. */
static int consumer_recover(struct fw_ring *ring)
{
    struct fw_ring_state state;
    int rc = state_look(ring, &state);
    if (rc == 0 && state.suspend_requested && state.suspend_acknowledged) {
        rc = fw_ring_resume(ring, NULL);
    }
    return rc < 0 ? rc : 0;
}

/*
 * A new life pops from the pointer on the disk. That is where the last advance that returned 0 left
 * it, or where one that failed was to go.
 */
static void consumer_begin(struct fw_ring *ring)
{
    struct fw_ring_state state;
    fw_ring_state(ring, &state);
    if (state.consumer == world.advancing && world.advancing > 0) {
        memcpy(world.kept, world.popped, sizeof world.kept);
    }
    memcpy(world.expected, world.kept, sizeof world.expected);
}

static void consumer_live(void)
{
    struct fw_disk *disk = disk_open();
    const struct fw_ring_options options = {.role = FW_RING_CONSUMER,
                                            .flags = sim_chance(2) ? FW_RING_FUA : 0U};
    struct fw_ring *ring;
    int rc = fw_ring_attach_on(&ring, disk, 2, &options, NULL);
    if (rc == 0) {
        consumer_begin(ring);
        while (rc == 0 && !world_is_consumed() && !world_is_stuck()) {
            rc = consumer_recover(ring);
            if (rc == 0) {
                rc = consumer_pop(ring);
            }
            if (rc == 0 && sim_chance(6)) {
                rc = consumer_suspend(ring);
            }
            sim_sleep(sim_between(0, 300) * SIM_US);
        }
        fw_ring_detach(ring);
    } else {
        SIM_EXPECT(rc == -EIO || rc == -ENODEV || rc == -ENOSPC);
    }
    fw_disk_close(disk);
}

static void consumer_run(void *argument)
{
    (void)argument;
    while (!world_is_consumed() && !world_is_stuck()) {
        consumer_live();
        sim_sleep(sim_between(0, 300) * SIM_US);
    }
    world.over = true;
}

static void weather_set(void)
{
    sim_disk_weather.latency_min_ns = 5 * SIM_US;
    sim_disk_weather.latency_max_ns = 200 * SIM_US;
}

static void ring_run(void)
{
    memset(&world, 0, sizeof world);
    bool large_sectors = sim_chance(4);
    int format = sim_chance(2) ? 1 : 2;
    weather_set();
    sim_disk_make(DISK, large_sectors ? 32768 : 28672, large_sectors ? 4096 : 512);
    ring_make(format);
    if (sim_chance(3)) {
        sim_disk_weather.error_one_in = 100;
    }
    struct fw_thread producer;
    struct fw_thread consumer;
    int rc = fw_thread_create(&producer, "producer", producer_run, NULL);
    FW_ASSERT(rc == 0);
    rc = fw_thread_create(&consumer, "consumer", consumer_run, NULL);
    FW_ASSERT(rc == 0);
    for (int64_t lives = sim_between(0, LIVES); lives > 0; lives--) {
        sim_sleep(sim_between(0, 20000) * SIM_US);
        if (!world.over) {
            sim_disk_crash(DISK);
        }
    }
    sim_disk_weather.error_one_in = 0;
    fw_thread_join(&consumer);
    fw_thread_join(&producer);
}

const struct sim_scenario sim_scenario_ring = {
    .name = "ring",
    .purpose = "two hosts share a ring on a disk that fails and loses its power",
    .run = ring_run,
};

static void planted_run(void)
{
    memset(&world, 0, sizeof world);
    world.is_planted = true;
    world.begin_ns = sim_now();
    world.expected[1] = GOAL; /* The second pusher has nothing to do. */
    world.kept[1] = GOAL;
    weather_set();
    sim_disk_make(DISK, 28672, 512);
    ring_make(1);
    struct fw_thread producer;
    struct fw_thread consumer;
    int rc = fw_thread_create(&producer, "producer", producer_run, NULL);
    FW_ASSERT(rc == 0);
    rc = fw_thread_create(&consumer, "consumer", consumer_run, NULL);
    FW_ASSERT(rc == 0);
    fw_thread_join(&consumer);
    fw_thread_join(&producer);
}

const struct sim_scenario sim_scenario_planted_ring = {
    .name = "planted-ring",
    .purpose = "publishes to a ring in a second step, after the acknowledgement",
    .run = planted_run,
    .planted = true,
};

/* ---- whose is the role? ---- */

static bool first_is_frozen;

static void first_run(void *argument)
{
    struct fw_ring *ring = argument;
    int64_t end_ns = sim_now() + sim_between(0, 20) * SIM_S;
    while (sim_now() < end_ns) {
        int rc = fw_ring_poll(ring, NULL);
        SIM_EXPECT(rc == 0);
        sim_sleep((int64_t)FW_RING_BEAT_MS * SIM_MS / 2);
    }
    first_is_frozen = true;
}

static void owner_run(void)
{
    static const enum fw_ring_role roles[] = {FW_RING_PRODUCER, FW_RING_CONSUMER, FW_RING_BOTH};
    const struct fw_ring_options options = {.role = roles[sim_between(0, 2)]};
    struct fw_ring *first;
    struct fw_ring *second;
    weather_set();
    first_is_frozen = false;
    sim_disk_make(DISK, 32768, 4096);
    ring_make(2);
    struct fw_disk *disks[2] = {disk_open(), disk_open()};
    int rc = fw_ring_attach_on(&first, disks[0], 1, &options, NULL);
    SIM_EXPECT(rc == 0);
    struct fw_thread thread;
    rc = fw_thread_create(&thread, "first", first_run, first);
    FW_ASSERT(rc == 0);
    do {
        sim_sleep(sim_between(0, 2000) * SIM_MS);
        rc = fw_ring_attach_on(&second, disks[1], 2, &options, NULL);
        SIM_EXPECT(rc == 0 || rc == -EBUSY);
        SIM_EXPECT(rc == -EBUSY || first_is_frozen); /* Never two that live. */
    } while (rc != 0);
    fw_thread_join(&thread);
    if (options.role != FW_RING_CONSUMER) {
        rc = fw_ring_push(second, "mine", 4, NULL);
        SIM_EXPECT(rc == 0);
    }
    rc = fw_ring_poll(first, NULL); /* It thaws. */
    SIM_EXPECT(rc == -ESTALE);
    fw_ring_detach(first);
    rc = fw_ring_poll(second, NULL);
    SIM_EXPECT(rc == 0);
    fw_ring_detach(second);
    fw_disk_close(disks[0]);
    fw_disk_close(disks[1]);
}

const struct sim_scenario sim_scenario_ring_owner = {
    .name = "ring-owner",
    .purpose = "a second host takes a role of a ring only when the first is dead",
    .run = owner_run,
};
