/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three hosts and a manager share a disk of volumes. Each host has an agent with a thread that
 * looks after it and two that allocate and discard. The disk is slow, fails at times and loses its
 * power; each agent and the manager is killed at any moment, in the middle of whatever it does, and
 * lives again while the others go on.
 *
 * What must hold, at every step of anyone: every extent has one owner, from all that is on the disk
 * at that moment and in the agents' memory; what was answered stays. In the end everyone has done
 * what he wanted: who waits for extents gets them.
 *
 * The planted twin forgets which grants it has had, so that what the manager sends again counts
 * twice.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/thread.h"
#include "io/disk_memory.h"
#include "simulate/disk.h"
#include "simulate/mortal.h"
#include "simulate/scenarios.h"
#include "support/volume.h"

enum { HOSTS = 3, WRITERS = 2, SIZE = 8, GOAL = 14, DISASTERS = 12, DISK_SIZE = 860 << 10 };

static const char DISK[] = "/dev/group";
static const char *const names[HOSTS] = {"one", "two", "three"};

struct promise {
    enum { HOLE, THERE, DOUBTFUL } state;
    uint32_t extent;
    uint64_t generation;
};

struct host {
    uint32_t number;
    struct sim_life life;
    struct fw_volume_agent *agent; /* NULL: none lives. */
    struct fw_volume *volume;
    struct promise promised[SIZE];
    uint32_t done[WRITERS];
    bool is_failed; /* A thread of this life met an error: all end. */
};

static struct {
    struct host hosts[HOSTS];
    struct sim_life manager;
    struct fw_disk_memory *look;
    bool is_planted;
} world;

/* ---- what must hold ---- */

static void promises_check(const struct fw_volume_metadata *truth)
{
    for (uint32_t h = 0; h < HOSTS; h++) {
        uint32_t index = fw_volume_metadata_find(truth, names[h]);
        SIM_EXPECT(index != FW_VOLUME_NONE);
        for (uint64_t i = 0; i < SIZE; i++) {
            const struct promise *promise = &world.hosts[h].promised[i];
            uint32_t at = fw_volume_metadata_at(truth, index, i);
            SIM_EXPECT(promise->state != THERE || at == promise->extent);
            SIM_EXPECT(promise->state != THERE ||
                       truth->extents[at].generation == promise->generation);
            SIM_EXPECT(promise->state != HOLE || at == FW_VOLUME_NONE);
        }
    }
}

/* Takes no time, and nobody moves meanwhile. */
static void world_check(void)
{
    struct fw_volume_store *store;
    struct fw_volume_metadata truth;
    struct fw_reason reason = {.text = ""};
    char text[256];
    uint8_t *own = world.look->bytes;
    world.look->bytes = sim_disk_look(DISK);
    int rc = fw_volume_plain_open(&store, &world.look->disk, &reason);
    if (rc == 0) {
        rc = fw_volume_view(store, FW_VOLUME_ALL, &truth, &reason);
        store->ops->close(store);
    }
    world.look->bytes = own;
    if (rc != 0) {
        sim_fail("%s", reason.text);
    }
    promises_check(&truth);
    for (uint32_t h = 0; h < HOSTS; h++) {
        struct fw_volume_agent *agent = world.hosts[h].agent;
        const char *wrong = agent != NULL && agent->broken == 0
                                ? volume_test_agent(agent, &truth, text, sizeof text)
                                : NULL;
        if (wrong != NULL) {
            sim_fail("%s", wrong);
        }
    }
    fw_volume_metadata_fini(&truth);
}

static bool host_is_done(const struct host *host)
{
    return host->done[0] == GOAL && host->done[1] == GOAL;
}

static bool world_is_done(void)
{
    bool is_done = true;
    for (uint32_t h = 0; h < HOSTS; h++) {
        is_done = is_done && host_is_done(&world.hosts[h]);
    }
    return is_done;
}

/* ---- a host ---- */

struct thread {
    struct fw_thread thread;
    struct host *host;
    uint32_t writer;
};

static void keeper_run(void *argument)
{
    struct host *host = ((struct thread *)argument)->host;
    while (!host->is_failed && !host_is_done(host)) {
        if (world.is_planted) {
            host->agent->seen = 0;
        }
        int rc = fw_volume_agent_step(host->agent, NULL);
        host->is_failed |= rc != 0;
        world_check();
        sim_sleep(sim_between(0, 2000) * SIM_US);
    }
}

/* Allocates what is a hole and discards what is none. Returns whether it was done. */
static bool place_turn(struct host *host, uint64_t logical)
{
    struct promise *promise = &host->promised[logical];
    const struct promise before = *promise;
    bool allocates = before.state == HOLE;
    promise->state = DOUBTFUL;
    int rc = allocates ? fw_volume_allocate(host->volume, logical, 1, NULL)
                       : fw_volume_discard(host->volume, logical, 1, NULL);
    const struct fw_volume_place *place = &host->volume->places[logical];
    if (rc == 0) {
        *promise = (struct promise){.state = allocates ? THERE : HOLE,
                                    .extent = place->extent,
                                    .generation = place->generation};
    } else if (rc == FW_VOLUME_WAIT) {
        *promise = before;
    } else {
        SIM_EXPECT(rc < 0);
        host->is_failed = true;
    }
    return rc == 0;
}

static void writer_run(void *argument)
{
    struct thread *own = argument;
    struct host *host = own->host;
    while (!host->is_failed && host->done[own->writer] < GOAL) {
        uint64_t pair = (uint64_t)sim_between(0, SIZE / WRITERS - 1);
        if (place_turn(host, pair * WRITERS + own->writer)) {
            host->done[own->writer]++;
        }
        world_check();
        sim_sleep(sim_between(0, 4000) * SIM_US);
    }
}

/* What an earlier life left in doubt is as the map says. */
static void doubts_settle(struct host *host)
{
    for (uint64_t i = 0; i < SIZE; i++) {
        const struct fw_volume_place *place = &host->volume->places[i];
        if (host->promised[i].state == DOUBTFUL) {
            host->promised[i] =
                (struct promise){.state = place->state == FW_VOLUME_MAPPED ? THERE : HOLE,
                                 .extent = place->extent,
                                 .generation = place->generation};
        }
    }
}

static void agent_work(struct host *host)
{
    struct thread threads[WRITERS + 1];
    for (uint32_t i = 0; i <= WRITERS; i++) {
        threads[i].host = host;
        threads[i].writer = i;
        int rc = fw_thread_create(&threads[i].thread, i < WRITERS ? "writer" : "keeper",
                                  i < WRITERS ? writer_run : keeper_run, &threads[i]);
        FW_ASSERT(rc == 0);
    }
    for (uint32_t i = 0; i <= WRITERS; i++) {
        fw_thread_join(&threads[i].thread);
    }
}

static void agent_live(struct host *host)
{
    struct fw_volume_agent *agent;
    sim_life_begin(&host->life, DISK);
    const struct fw_volume_agent_disks disks = {.rest = host->life.disks[0],
                                                .up = host->life.disks[1]};
    int rc = fw_volume_agent_open_on(&agent, &disks, host->number, names[host->number - 1], NULL);
    if (rc == 0) {
        host->is_failed = false;
        rc = fw_volume_open(&host->volume, agent, names[host->number - 1], NULL);
        host->agent = agent;
        if (rc == 0) {
            doubts_settle(host);
            world_check();
            agent_work(host);
        }
        host->agent = NULL;
        fw_volume_agent_drop(agent);
    }
    SIM_EXPECT(rc == 0 || rc == -ENODEV || rc == -EIO || rc == -EAGAIN || rc == FW_VOLUME_WAIT);
    sim_life_end(&host->life);
}

static void host_run(void *argument)
{
    struct host *host = argument;
    while (!host_is_done(host)) {
        agent_live(host);
        sim_sleep(sim_between(0, 500) * SIM_US);
    }
}

/* ---- the manager ---- */

static const struct fw_volume_manager_options manager_options = {
    .pool_min = 5, .pool_max = 12, .parts_max = 2, .quiet_ns = 5 * SIM_MS};

static void manager_live(void)
{
    struct fw_volume_manager *manager;
    sim_life_begin(&world.manager, DISK);
    int rc = fw_volume_manager_open_on(&manager, world.manager.disks[0], VOLUME_TEST_HOST,
                                       &manager_options, NULL);
    SIM_EXPECT(rc == 0 || rc == -ENODEV || rc == -EIO);
    if (rc == 0) {
        while (rc == 0 && !world_is_done()) {
            rc = sim_chance(10) ? fw_volume_manager_flush(manager, NULL)
                                : fw_volume_manager_step(manager, NULL);
            world_check();
            sim_sleep(sim_between(0, 1500) * SIM_US);
        }
        SIM_EXPECT(rc == 0 || rc == -ENODEV || rc == -EIO);
        fw_volume_manager_drop(manager);
    }
    sim_life_end(&world.manager);
}

static void manager_run(void *argument)
{
    (void)argument;
    while (!world_is_done()) {
        manager_live();
        sim_sleep(sim_between(0, 3000) * SIM_US);
    }
}

/* ---- the world ---- */

static void group_make(void)
{
    struct fw_disk *disk;
    struct fw_volume_manager *manager;
    const struct fw_disk_options options = {.path = DISK};
    sim_disk_make(DISK, DISK_SIZE, 512);
    int rc = fw_disk_open(&disk, &options, NULL);
    SIM_EXPECT(rc == 0);
    rc = fw_volume_plain_format(disk, &volume_test_layout, NULL);
    SIM_EXPECT(rc == 0);
    rc = fw_volume_manager_open_on(&manager, disk, VOLUME_TEST_HOST, &manager_options, NULL);
    SIM_EXPECT(rc == 0);
    for (uint32_t h = 0; h < HOSTS; h++) {
        world.hosts[h].number = h + 1;
        rc = fw_volume_manager_create(manager, names[h], SIZE, NULL);
        SIM_EXPECT(rc == 0);
        rc = fw_volume_manager_connect(manager, names[h], NULL);
        SIM_EXPECT(rc == 0);
    }
    fw_volume_manager_drop(manager);
    fw_disk_close(disk);
}

static void disaster(void)
{
    int64_t what = sim_between(0, HOSTS + 2);
    if (what < HOSTS) {
        world.hosts[what].life.is_dead = true;
    } else if (what == HOSTS) {
        sim_disk_crash(DISK);
    } else {
        world.manager.is_dead = true;
    }
}

static void volume_world(bool is_planted)
{
    memset(&world, 0, sizeof world);
    world.is_planted = is_planted;
    sim_disk_weather.latency_min_ns = 5 * SIM_US;
    sim_disk_weather.latency_max_ns = 200 * SIM_US;
    const struct fw_disk_memory_options look = {.size = DISK_SIZE};
    int rc = fw_disk_memory_create(&world.look, &look);
    FW_ASSERT(rc == 0);
    group_make();
    if (sim_chance(3)) {
        sim_disk_weather.error_one_in = 300;
    }
    struct fw_thread threads[HOSTS + 1];
    for (uint32_t i = 0; i <= HOSTS; i++) {
        rc = fw_thread_create(&threads[i], i < HOSTS ? "host" : "manager",
                              i < HOSTS ? host_run : manager_run,
                              i < HOSTS ? (void *)&world.hosts[i] : NULL);
        FW_ASSERT(rc == 0);
    }
    for (int64_t left = sim_between(0, DISASTERS); left > 0; left--) {
        sim_sleep(sim_between(0, 8000) * SIM_US);
        disaster();
    }
    sim_disk_weather.error_one_in = 0;
    for (uint32_t i = 0; i <= HOSTS; i++) {
        fw_thread_join(&threads[i]);
    }
    world_check();
    fw_disk_close(&world.look->disk);
}

static void volume_run(void)
{
    volume_world(false);
}

const struct sim_scenario sim_scenario_volume = {
    .name = "volume",
    .purpose = "hosts and a manager share volumes on a disk, and all of them crash",
    .run = volume_run,
};

static void planted_run(void)
{
    volume_world(true);
}

const struct sim_scenario sim_scenario_planted_volume = {
    .name = "planted-volume",
    .purpose = "a host forgets which grants it has had, and takes them twice",
    .run = planted_run,
    .planted = true,
};
