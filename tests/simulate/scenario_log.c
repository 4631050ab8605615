/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads log while the log becomes asynchronous and synchronous again under them, with too few
 * rings for all, rings that fill up, and a target that takes its time. The writer is the log's own
 * thread, or one that drains besides and sleeps as a monitor would.
 *
 * What must hold: lines of a thread keep their order; those that wait for room are all there, and
 * of the others as many are missing as the log says. A lost wake-up is a deadlock.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "base/thread.h"
#include "io/clock.h"
#include "log/arena.h"
#include "log/ring.h"
#include "log/writer.h"
#include "simulate/scenarios.h"

FW_LOG_MODULE(simlog);

enum { THREADS = 4, LINES_MAX = 200, FILL_MAX = 900, ROUNDS = 2 };

/* Who writes. Without anybody, callers that wait for room do. */
enum writer_kind { WRITER_OWN_THREAD, WRITER_MONITOR, WRITER_NONE };

static struct {
    int64_t sink_ns_max;     /* How long the target takes at most. */
    uint32_t lines[THREADS]; /* How many each logs. */
    uint32_t expected[THREADS];
    uint32_t seen[THREADS];
    uint64_t lost_told;
    bool can_lose;
    bool waits_below; /* Lines of even number are notices and may be lost, odd ones are errors. */
    uint32_t odd_seen[THREADS];
} world;

/* "... LEVEL simlog [logger-T] T I xxx", or "... N lines lost: ...". */
static void line_check(const char *line)
{
    uint64_t lost;
    uint32_t name, thread, number;
    if (sscanf(line, "%*s warning log [%*[^]]] %lu line", &lost) == 1) {
        SIM_EXPECT(world.can_lose);
        world.lost_told += lost;
        return;
    }
    const char *begin = strchr(line, '[');
    SIM_EXPECT(begin != NULL);
    int count = sscanf(begin, "[logger-%u] %u %u", &name, &thread, &number);
    SIM_EXPECT(count == 3);
    SIM_EXPECT(name == thread && thread < THREADS);
    if (world.can_lose) {
        SIM_EXPECT(number >= world.expected[thread]);
    } else {
        SIM_EXPECT(number == world.expected[thread]);
    }
    world.expected[thread] = number + 1;
    world.seen[thread]++;
    world.odd_seen[thread] += number % 2;
}

static int sink(void *context, const char *lines, size_t size, size_t *done)
{
    (void)context;
    if (world.sink_ns_max > 0) {
        sim_sleep(sim_between(0, world.sink_ns_max));
    }
    for (const char *line = lines; line < lines + size;) {
        line_check(line);
        line = (const char *)memchr(line, '\n', (size_t)(lines + size - line)) + 1;
    }
    *done = size;
    return 0;
}

static void logger_run(void *argument)
{
    const uint32_t *thread = argument;
    char text[FILL_MAX + 1];
    memset(text, 'x', sizeof text);
    for (uint32_t i = 0; i < world.lines[*thread]; i++) {
        if (sim_chance(4)) {
            sim_sleep(sim_between(0, 200) * SIM_US);
        }
        int length = (int)sim_between(0, FILL_MAX);
        if (i % 2 == 0) {
            FW_LOG(simlog, NOTICE, "%u %u %.*s", *thread, i, length, text);
        } else {
            FW_LOG(simlog, ERROR, "%u %u %.*s", *thread, i, length, text);
        }
    }
}

/* A writer with other work: sleeps until woken, or until that work is due. */
static struct {
    struct fw_thread thread;
    struct fw_parker parker;
    atomic_bool stop;
} monitor;

static void monitor_wake(void *context)
{
    (void)context;
    fw_unpark(&monitor.parker);
}

static void monitor_run(void *argument)
{
    (void)argument;
    while (!atomic_load(&monitor.stop)) {
        while (fw_log_drain()) {
        }
        if (fw_log_arm()) {
            fw_park(&monitor.parker);
        }
        fw_log_disarm();
    }
}

static enum writer_kind async_begin(void)
{
    enum writer_kind kind = (enum writer_kind)sim_between(WRITER_OWN_THREAD, WRITER_NONE);
    uint32_t ring_count = (uint32_t)sim_between(1, THREADS + 1);
    const struct fw_log_setup setup = {.ring_size = FW_LOG_RING_SIZE_MIN,
                                       .rings = ring_count,
                                       .without_thread = kind != WRITER_OWN_THREAD};
    int rc = fw_log_start(&setup);
    SIM_EXPECT(rc == 0);
    SIM_EXPECT(fw_log_start(&setup) == -EALREADY);
    if (kind == WRITER_MONITOR) {
        atomic_store(&monitor.stop, false);
        fw_parker_init(&monitor.parker);
        fw_log_set_waker(monitor_wake, NULL);
        rc = fw_thread_create(&monitor.thread, "monitor", monitor_run, NULL);
        FW_ASSERT(rc == 0);
    }
    return kind;
}

static void async_end(enum writer_kind kind)
{
    if (kind == WRITER_MONITOR) {
        atomic_store(&monitor.stop, true);
        fw_unpark(&monitor.parker);
        fw_thread_join(&monitor.thread);
        fw_log_set_waker(NULL, NULL);
    }
    fw_log_stop();
}

static void world_begin(void)
{
    memset(&world, 0, sizeof world);
    int64_t policy = sim_between(FW_LOG_BLOCK, FW_LOG_DROP_BELOW);
    world.can_lose = policy != FW_LOG_BLOCK;
    world.waits_below = policy == FW_LOG_DROP_BELOW;
    world.sink_ns_max = sim_between(0, 3) * 100 * SIM_US;
    for (uint32_t i = 0; i < THREADS; i++) {
        world.lines[i] = (uint32_t)sim_between(1, LINES_MAX);
    }
    int rc = fw_log_set_level("simlog", FW_LOG_TRACE);
    FW_ASSERT(rc == 0);
    fw_log_set_policy((enum fw_log_policy)policy, FW_LOG_WARNING);
    fw_log_writer_set_sink(sink, NULL);
}

/* Everything that was logged is there, or was said to be lost. */
static void world_check(uint64_t lost_before)
{
    uint64_t seen = 0;
    uint64_t logged = 0;
    for (uint32_t i = 0; i < THREADS; i++) {
        seen += world.seen[i];
        logged += world.lines[i];
        SIM_EXPECT(!world.waits_below || world.odd_seen[i] == world.lines[i] / 2);
    }
    SIM_EXPECT(fw_log_lost() - lost_before == world.lost_told);
    SIM_EXPECT(seen + world.lost_told == logged);
    sim_trace("%lu lines, %lu lost", seen, world.lost_told);
}

static void log_run(void)
{
    struct fw_thread threads[THREADS];
    uint32_t ids[THREADS];
    world_begin();
    uint64_t lost_before = fw_log_lost();
    for (uint32_t i = 0; i < THREADS; i++) {
        char name[FW_THREAD_NAME_SIZE];
        (void)snprintf(name, sizeof name, "logger-%u", i);
        ids[i] = i;
        int rc = fw_thread_create(&threads[i], name, logger_run, &ids[i]);
        FW_ASSERT(rc == 0);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        sim_sleep(sim_between(0, 1000) * SIM_US);
        enum writer_kind kind = async_begin();
        sim_sleep(sim_between(0, 3000) * SIM_US);
        async_end(kind);
    }
    enum writer_kind kind = async_begin();
    for (uint32_t i = 0; i < THREADS; i++) {
        fw_thread_join(&threads[i]);
    }
    if (kind != WRITER_NONE) { /* Then it needs nobody to see to what they left. */
        sim_sleep(100 * SIM_MS);
        world_check(lost_before);
    }
    async_end(kind);
    world_check(lost_before);
    fw_log_writer_set_sink(NULL, NULL);
}

const struct sim_scenario sim_scenario_log = {
    .name = "log",
    .purpose = "threads log while the log starts, stops and fills up; none is lost unsaid",
    .run = log_run,
};

/*
 * The planted bug: a thread publishes a record and fills it after. It uses the ring's own two steps
 * in the wrong order; all else is the real log.
 */
static void hasty_run(void *argument)
{
    (void)argument;
    FW_LOG(simlog, ERROR, "%u %u", 0U, 0U); /* Gets it a ring. */
    struct fw_log_ring *ring = atomic_load(&fw_thread_self()->log_ring);
    SIM_EXPECT(ring != NULL);
    for (uint32_t i = 0; i < 10; i++) {
        sim_sleep(sim_between(0, 10) * SIM_US);
        uint32_t size = sizeof(struct fw_log_record) + 8 + 16 + 16;
        unsigned char *at = fw_log_ring_claim(ring, size);
        SIM_EXPECT(at != NULL);
        fw_log_ring_commit(ring, size); /* The bug: this belongs behind the rest. */
        FW_YIELD_POINT("planted: published");
        size_t budget = FW_LOG_STRINGS_MAX;
        unsigned char *end = fw_log_pack_word(at, fw_log_record_word(size, FW_LOG_SITE_TEXT, 0));
        end = fw_log_pack_word(end, fw_clock_ticks());
        end = fw_log_pack_word(end, FW_LOG_ERROR);
        end = fw_log_pack_string(end, "simlog", SIZE_MAX, &budget);
        (void)fw_log_pack_string(end, "0 0", SIZE_MAX, &budget);
    }
}

static int sink_nowhere(void *context, const char *lines, size_t size, size_t *done)
{
    (void)context;
    (void)lines;
    *done = size;
    return 0;
}

static void hasty_log_run(void)
{
    struct fw_thread thread;
    const struct fw_log_setup setup = {
        .ring_size = FW_LOG_RING_SIZE_MIN, .rings = 2, .without_thread = true};
    fw_log_writer_set_sink(sink_nowhere, NULL);
    int rc = fw_log_start(&setup);
    FW_ASSERT(rc == 0);
    rc = fw_thread_create(&thread, "hasty", hasty_run, NULL);
    FW_ASSERT(rc == 0);
    for (uint32_t i = 0; i < 20; i++) {
        sim_sleep(sim_between(0, 10) * SIM_US);
        (void)fw_log_drain();
    }
    fw_thread_join(&thread);
    fw_log_stop();
    fw_log_writer_set_sink(NULL, NULL);
}

const struct sim_scenario sim_scenario_planted_log = {
    .name = "planted-log",
    .purpose = "publishes a log record before it has written it",
    .run = hasty_log_run,
    .planted = true,
};
