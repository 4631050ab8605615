/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fleet: three hosts with many volumes, which they open, grow, write, discard and close as they
 * like; a manager; and an operator who makes volumes larger and smaller, removes and makes them,
 * disconnects hosts, reclaims those that never return, and connects them again, all by commands
 * through the disk. Agents and manager are killed in whatever they do, recovery included, and the
 * disk is slow, fails at times and loses its power.
 *
 * What must hold, at every step of anyone: every extent has one owner, from all that is on the disk
 * at that moment and in the agents' memory; what was answered to a host or to the operator stays.
 * In the end everyone has done what he wanted.
 *
 * A volume is used by one host at a time, and not while the operator is at it: that is for whoever
 * attaches volumes to see to, and here it is the scenario.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/thread.h"
#include "io/disk_memory.h"
#include "simulate/disk.h"
#include "simulate/mortal.h"
#include "simulate/scenarios.h"
#include "support/volume.h"
#include "volume/operator.h"

enum { HOSTS = 3, WRITERS = 2, PLACES = 6, VOLUMES_MAX = 1000, MANAGER_NUMBER = 100 };
enum { FEW_DISK = 1300 << 10, MANY_DISK = 4 << 20 };

static const char DISK[] = "/dev/fleet";
static const char *const names[HOSTS] = {"one", "two", "three"};

struct promise {
    enum { HOLE, THERE, DOUBTFUL } state;
    uint32_t extent;
    uint64_t generation;
};

struct volume {
    bool is_there;
    bool is_doubtful; /* Whether it is there, and how large. */
    bool is_taken;    /* A host uses it, or the operator is at it. */
    uint64_t size;
    struct promise promised[PLACES];
};

struct host {
    uint32_t index;
    uint64_t number; /* Who it is, for the rings. */
    struct sim_life life;
    struct fw_volume_agent *agent; /* NULL: none lives. */
    bool is_living;                /* The process, agent or not. */
    bool is_gone;                  /* It does not return before the operator has reclaimed it. */
    bool is_failed;                /* A thread of this life met an error: all end. */
    uint32_t done[WRITERS];
};

static struct {
    struct host hosts[HOSTS];
    struct volume volumes[VOLUMES_MAX];
    uint32_t volume_count;
    uint32_t goal;
    uint32_t check_one_in; /* With many volumes a look takes long. */
    struct sim_life manager;
    struct fw_disk_memory *look;
    bool is_calm; /* No more disasters. */
    bool operator_is_done;
} fleet;

static void name_of(uint32_t volume, char name[FW_VOLUME_NAME_MAX + 1])
{
    (void)snprintf(name, FW_VOLUME_NAME_MAX + 1, "v%u", volume);
}

/* ---- what must hold ---- */

static void volume_check(const struct fw_volume_metadata *truth, uint32_t index,
                         const struct volume *volume)
{
    SIM_EXPECT(volume->is_there || volume->is_doubtful);
    SIM_EXPECT(volume->is_doubtful || truth->volumes[index].size == volume->size);
    for (uint64_t i = 0; i < PLACES; i++) {
        const struct promise *promise = &volume->promised[i];
        uint32_t at = fw_volume_metadata_at(truth, index, i);
        SIM_EXPECT(promise->state != THERE || at == promise->extent);
        SIM_EXPECT(promise->state != THERE || truth->extents[at].generation == promise->generation);
        SIM_EXPECT(promise->state != HOLE || at == FW_VOLUME_NONE);
    }
}

static void truth_read(struct fw_volume_metadata *truth)
{
    struct fw_volume_store *store;
    struct fw_reason reason = {.text = ""};
    uint8_t *own = fleet.look->bytes;
    fleet.look->bytes = sim_disk_look(DISK);
    int rc = fw_volume_plain_open(&store, &fleet.look->disk, &reason);
    if (rc == 0) {
        rc = fw_volume_view(store, FW_VOLUME_ALL, truth, &reason);
        store->ops->close(store);
    }
    fleet.look->bytes = own;
    if (rc != 0) {
        sim_fail("%s", reason.text);
    }
}

/* Takes no time, and nobody moves meanwhile. */
static void fleet_check(void)
{
    struct fw_volume_metadata truth;
    char text[256];
    uint32_t found = 0;
    uint32_t expected = 0;
    if (fleet.check_one_in > 1 && !sim_chance(fleet.check_one_in)) {
        return;
    }
    truth_read(&truth);
    for (uint32_t i = 0; i < truth.volumes_end; i++) {
        if (truth.volumes[i].is_used) {
            uint32_t number = (uint32_t)strtoul(truth.volumes[i].name + 1, NULL, 10);
            SIM_EXPECT(number < fleet.volume_count);
            volume_check(&truth, i, &fleet.volumes[number]);
            found += fleet.volumes[number].is_doubtful ? 0 : 1;
        }
    }
    for (uint32_t i = 0; i < fleet.volume_count; i++) {
        expected += fleet.volumes[i].is_there && !fleet.volumes[i].is_doubtful ? 1 : 0;
    }
    SIM_EXPECT(found == expected);
    for (uint32_t h = 0; h < HOSTS; h++) {
        struct fw_volume_agent *agent = fleet.hosts[h].agent;
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
    return host->done[0] >= fleet.goal && host->done[1] >= fleet.goal;
}

static bool hosts_are_done(void)
{
    return host_is_done(&fleet.hosts[0]) && host_is_done(&fleet.hosts[1]) &&
           host_is_done(&fleet.hosts[2]);
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
        int rc = fw_volume_agent_step(host->agent, NULL);
        host->is_failed |= rc != 0;
        fleet_check();
        sim_sleep(sim_between(0, 4000) * SIM_US);
    }
}

/* Allocates or discards a range. Returns whether it was done. */
static bool range_turn(struct host *host, struct fw_volume *open, struct volume *volume)
{
    if (volume->size == 0) {
        return true;
    }
    uint64_t logical = (uint64_t)sim_between(0, (int64_t)volume->size - 1);
    uint64_t count = (uint64_t)sim_between(1, (int64_t)(volume->size - logical));
    bool allocates = sim_chance(2);
    struct promise before[PLACES];
    memcpy(before, volume->promised, sizeof before);
    for (uint64_t i = logical; i < logical + count; i++) {
        volume->promised[i].state = DOUBTFUL;
    }
    int rc = allocates ? fw_volume_allocate(open, logical, count, NULL)
                       : fw_volume_discard(open, logical, count, NULL);
    SIM_EXPECT(rc <= 0 || rc == FW_VOLUME_WAIT);
    if (rc < 0) {
        host->is_failed = true;
        return false;
    }
    if (rc == FW_VOLUME_WAIT) {
        memcpy(volume->promised, before, sizeof before);
        return false;
    }
    for (uint64_t i = logical; i < logical + count; i++) {
        const struct fw_volume_place *place = &open->places[i];
        volume->promised[i] = (struct promise){.state = allocates ? THERE : HOLE,
                                               .extent = place->extent,
                                               .generation = place->generation};
    }
    return true;
}

/* What an earlier life left in doubt is as the map says; all else must be as it was promised. */
static void doubts_settle(struct volume *volume, const struct fw_volume *open)
{
    SIM_EXPECT(open->size == volume->size);
    for (uint64_t i = 0; i < open->size; i++) {
        const struct fw_volume_place *place = &open->places[i];
        if (volume->promised[i].state == DOUBTFUL) {
            volume->promised[i] =
                (struct promise){.state = place->state == FW_VOLUME_MAPPED ? THERE : HOLE,
                                 .extent = place->extent,
                                 .generation = place->generation};
        }
    }
}

/* Opens a volume, works on it, and closes it. */
static void volume_turn(struct host *host, uint32_t writer, uint32_t number)
{
    struct volume *volume = &fleet.volumes[number];
    struct fw_volume *open;
    char name[FW_VOLUME_NAME_MAX + 1];
    name_of(number, name);
    int rc = fw_volume_open(&open, host->agent, name, NULL);
    if (rc != 0) {
        SIM_EXPECT(rc < 0 || rc == FW_VOLUME_WAIT);
        SIM_EXPECT(rc != -ENOENT && rc != -EBUSY);
        host->is_failed |= rc < 0 && rc != -EAGAIN;
        return;
    }
    doubts_settle(volume, open);
    for (int64_t turns = sim_between(1, 5); turns > 0 && !host->is_failed; turns--) {
        host->done[writer] += range_turn(host, open, volume) ? 1 : 0;
        fleet_check();
        sim_sleep(sim_between(0, 3000) * SIM_US);
    }
    do {
        rc = host->is_failed ? -ESHUTDOWN : fw_volume_close(open, NULL);
        sim_sleep(rc == FW_VOLUME_WAIT ? SIM_MS : 0);
    } while (rc == FW_VOLUME_WAIT);
    host->is_failed |= rc != 0;
}

static void writer_run(void *argument)
{
    struct thread *own = argument;
    struct host *host = own->host;
    while (!host->is_failed && host->done[own->writer] < fleet.goal) {
        uint32_t slots = fleet.volume_count / (HOSTS * WRITERS);
        uint32_t slot = (uint32_t)sim_between(0, slots - 1);
        uint32_t number = (slot * WRITERS + own->writer) * HOSTS + host->index;
        struct volume *volume = &fleet.volumes[number];
        if (volume->is_there && !volume->is_taken && !volume->is_doubtful) {
            volume->is_taken = true;
            volume_turn(host, own->writer, number);
            volume->is_taken = false;
        } else if (fleet.operator_is_done && !volume->is_there) {
            host->done[own->writer]++; /* Nobody will make it again. */
        }
        sim_sleep(sim_between(1, 2000) * SIM_US);
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

static void host_live(struct host *host)
{
    struct fw_volume_agent *agent;
    host->is_living = true;
    sim_life_begin(&host->life, DISK);
    const struct fw_volume_agent_disks disks = {.rest = host->life.disks[0],
                                                .up = host->life.disks[1]};
    int rc = fw_volume_agent_open_on(&agent, &disks, host->number, names[host->index], NULL);
    if (rc == 0) {
        host->is_failed = false;
        host->agent = agent;
        agent_work(host);
        host->agent = NULL;
        fw_volume_agent_drop(agent);
    } else { /* ENOENT: it has been disconnected, and waits until it is connected again. */
        SIM_EXPECT(rc == -ENODEV || rc == -EIO || rc == -EAGAIN || rc == -ENOENT);
    }
    sim_life_end(&host->life);
    host->is_living = false;
}

static void host_run(void *argument)
{
    struct host *host = argument;
    while (!host_is_done(host)) {
        if (!host->is_gone) {
            host_live(host);
        }
        sim_sleep(sim_between(100, 3000) * SIM_US);
    }
}

/* ---- the manager ---- */

static const struct fw_volume_manager_options manager_options = {
    .pool_min = 6, .pool_max = 24, .parts_max = 2, .quiet_ns = 5 * SIM_MS};

static bool fleet_is_over(void)
{
    return hosts_are_done() && fleet.operator_is_done;
}

/* The disk is gone or failed, or it failed when the lease was to be renewed. */
static bool manager_may_end(int rc)
{
    return rc == 0 || rc == -ENODEV || rc == -EIO || rc == -ESTALE;
}

static void manager_run(void *argument)
{
    (void)argument;
    while (!fleet_is_over()) {
        struct fw_volume_manager *manager;
        sim_life_begin(&fleet.manager, DISK);
        int rc = fw_volume_manager_open_on(&manager, fleet.manager.disks[0], MANAGER_NUMBER,
                                           &manager_options, NULL);
        SIM_EXPECT(manager_may_end(rc));
        if (rc == 0) {
            while (rc == 0 && !fleet_is_over()) {
                rc = fw_volume_manager_step(manager, NULL);
                fleet_check();
                sim_sleep(sim_between(0, 3000) * SIM_US);
            }
            SIM_EXPECT(manager_may_end(rc));
            fw_volume_manager_drop(manager);
        }
        sim_life_end(&fleet.manager);
        sim_sleep(sim_between(0, 3000) * SIM_US);
    }
}

/* ---- the operator ---- */

/* The answer to a command; -ETIMEDOUT: nobody knows, for our own disk has failed. */
static int command(struct sim_life *life, enum fw_volume_kind kind, const char *name,
                   uint64_t value)
{
    struct fw_volume_operator own;
    struct fw_volume_message message;
    struct fw_reason text;
    fw_volume_message_init(&message, kind);
    message.value = value;
    (void)snprintf(message.name, sizeof message.name, "%s", name);
    int answer = -ETIMEDOUT;
    int rc = fw_volume_operator_open(&own, life->disks[0], MANAGER_NUMBER, NULL);
    if (rc != 0) {
        return -ETIMEDOUT;
    }
    rc = fw_volume_operator_ask(&own, &message, NULL);
    int64_t begin_ns = sim_now();
    while (rc == 0 && (rc = fw_volume_operator_answer(&own, &answer, &text, NULL)) != 0) {
        rc = rc == FW_RING_RETRY ? 0 : rc;
        SIM_EXPECT(sim_now() - begin_ns < 60 * SIM_S); /* A manager always comes. */
        sim_sleep(SIM_MS);
    }
    fw_volume_operator_close(&own);
    return rc == 0 ? answer : -ETIMEDOUT;
}

/* Until all that was asked before is done: commands are done in their order. */
static void commands_settle(struct sim_life *life)
{
    int rc = -ETIMEDOUT;
    while (rc != 0) {
        rc = command(life, FW_VOLUME_FLUSH, "", 0);
        if (rc == -ETIMEDOUT) { /* After an error a disk flushes nothing any more. */
            sim_life_end(life);
            sim_life_begin(life, DISK);
        }
    }
}

static void volume_settle(struct volume *volume, const char *name)
{
    struct fw_volume_metadata truth;
    truth_read(&truth);
    uint32_t index = fw_volume_metadata_find(&truth, name);
    volume->is_there = index != FW_VOLUME_NONE;
    volume->size = volume->is_there ? truth.volumes[index].size : 0;
    fw_volume_metadata_fini(&truth);
    volume->is_doubtful = false;
    for (uint64_t i = 0; !volume->is_there && i < PLACES; i++) {
        volume->promised[i] = (struct promise){.state = HOLE};
    }
}

/* Makes, resizes or removes one that nobody uses. */
static void volume_command(struct sim_life *life)
{
    uint32_t number = (uint32_t)sim_between(0, fleet.volume_count - 1);
    uint64_t size = (uint64_t)sim_between(1, PLACES);
    bool removes = sim_chance(3);
    struct volume *volume = &fleet.volumes[number];
    char name[FW_VOLUME_NAME_MAX + 1];
    if (volume->is_taken) {
        return;
    }
    name_of(number, name);
    const struct volume before = *volume;
    volume->is_taken = true;
    volume->is_doubtful = true;
    enum fw_volume_kind kind = !volume->is_there ? FW_VOLUME_CREATE
                               : removes         ? FW_VOLUME_REMOVE
                                                 : FW_VOLUME_RESIZE;
    for (uint64_t i = 0; kind == FW_VOLUME_REMOVE && i < PLACES; i++) {
        volume->promised[i].state = DOUBTFUL;
    }
    int rc = command(life, kind, name, size);
    if (rc == -ETIMEDOUT) {
        commands_settle(life);
    }
    volume_settle(volume, name);
    if (rc == 0) {
        SIM_EXPECT(volume->is_there == (kind != FW_VOLUME_REMOVE));
        SIM_EXPECT(kind == FW_VOLUME_REMOVE || volume->size == size);
    } else if (rc != -ETIMEDOUT) { /* A dead life has it open, or there is data behind the end. */
        SIM_EXPECT(rc == -EBUSY);
    }
    if (volume->is_there && before.is_there) {
        memcpy(volume->promised, before.promised, sizeof before.promised);
    }
    volume->is_taken = false;
}

static bool host_is_listed(const char *name)
{
    struct fw_volume_metadata truth;
    truth_read(&truth);
    bool is_listed = fw_volume_metadata_find_host(&truth, name) != FW_VOLUME_NONE;
    fw_volume_metadata_fini(&truth);
    return is_listed;
}

/* Switches it off, and it does not come back by itself. */
static void host_fence(struct host *host)
{
    host->is_gone = true;
    while (host->is_living) {
        host->life.is_dead = true;
        sim_sleep(SIM_MS);
    }
}

/* Takes a host out of the group, dead or alive, and lets it in again. */
static void host_command(struct sim_life *life)
{
    struct host *host = &fleet.hosts[sim_between(0, HOSTS - 1)];
    const char *name = names[host->index];
    bool dies = sim_chance(2);
    if (dies) {
        host_fence(host);
    }
    while (host_is_listed(name)) {
        int rc = command(life, dies ? FW_VOLUME_RECLAIM : FW_VOLUME_DISCONNECT, name, 0);
        SIM_EXPECT(rc == 0 || rc == -ETIMEDOUT || rc == -ENOENT || (rc == -EBUSY && !dies));
        if (rc == -ETIMEDOUT) {
            commands_settle(life);
        }
        if (rc == -EBUSY && sim_chance(4)) { /* It has a volume open, maybe for ever. */
            host_fence(host);
            dies = true;
        }
        if (host_is_done(host) && !dies) { /* Nobody is left there to answer. */
            dies = true;
        }
        sim_sleep(5 * SIM_MS);
    }
    host->is_gone = true; /* A lock of the file would keep it off, or a ring's owner. */
    while (host->is_living) {
        sim_sleep(SIM_MS);
    }
    while (!host_is_listed(name)) {
        int rc = command(life, FW_VOLUME_CONNECT, name, 0);
        SIM_EXPECT(rc == 0 || rc == -ETIMEDOUT);
        if (rc == -ETIMEDOUT) {
            commands_settle(life);
        }
    }
    host->is_gone = false;
}

static void operator_run(void *argument)
{
    static struct sim_life life;
    (void)argument;
    memset(&life, 0, sizeof life);
    sim_life_begin(&life, DISK);
    for (int64_t left = sim_between(0, 12); left > 0; left--) {
        if (sim_chance(5)) {
            host_command(&life);
        } else {
            volume_command(&life);
        }
        fleet_check();
        sim_sleep(sim_between(0, 5000) * SIM_US);
    }
    sim_life_end(&life);
    fleet.operator_is_done = true;
}

/* ---- the world ---- */

static void group_make(uint64_t disk_size)
{
    struct fw_disk *disk;
    struct fw_volume_manager *manager;
    const struct fw_disk_options options = {.path = DISK};
    const struct fw_volume_layout layout = {.extent_size = VOLUME_TEST_EXTENT,
                                            .hosts_max = HOSTS,
                                            .volumes_max = fleet.volume_count,
                                            .ring_size = UINT64_C(7) * 4096,
                                            .log_size = UINT64_C(9) * 4096,
                                            .host_number = MANAGER_NUMBER};
    sim_disk_make(DISK, disk_size, 512);
    int rc = fw_disk_open(&disk, &options, NULL);
    SIM_EXPECT(rc == 0);
    rc = fw_volume_plain_format(disk, &layout, NULL);
    SIM_EXPECT(rc == 0);
    rc = fw_volume_manager_open_on(&manager, disk, MANAGER_NUMBER, &manager_options, NULL);
    SIM_EXPECT(rc == 0);
    for (uint32_t i = 0; i < fleet.volume_count; i++) {
        char name[FW_VOLUME_NAME_MAX + 1];
        name_of(i, name);
        fleet.volumes[i].is_there = true;
        fleet.volumes[i].size = (uint64_t)sim_between(1, PLACES);
        rc = fw_volume_manager_create(manager, name, fleet.volumes[i].size, NULL);
        SIM_EXPECT(rc == 0);
    }
    bool is_one_machine = sim_chance(2); /* Or a reclaim watches for 5 s whether the host lives. */
    for (uint32_t h = 0; h < HOSTS; h++) {
        fleet.hosts[h].index = h;
        fleet.hosts[h].number = is_one_machine ? MANAGER_NUMBER : h + 1;
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
        fleet.hosts[what].life.is_dead = true;
    } else if (what == HOSTS) {
        sim_disk_crash(DISK);
    } else {
        fleet.manager.is_dead = true;
    }
}

static void fleet_world(uint32_t volumes, uint32_t goal, uint64_t disk_size)
{
    memset(&fleet, 0, sizeof fleet);
    fleet.volume_count = volumes;
    fleet.goal = goal;
    fleet.check_one_in = volumes > 100 ? 16 : 1;
    const struct fw_disk_memory_options look = {.size = disk_size};
    int rc = fw_disk_memory_create(&fleet.look, &look);
    FW_ASSERT(rc == 0);
    group_make(disk_size);
    sim_disk_weather.latency_min_ns = 5 * SIM_US;
    sim_disk_weather.latency_max_ns = 200 * SIM_US;
    if (sim_chance(3)) {
        sim_disk_weather.error_one_in = 300;
    }
    struct fw_thread threads[HOSTS + 2];
    for (uint32_t i = 0; i < HOSTS + 2; i++) {
        void (*run)(void *) = i < HOSTS ? host_run : i == HOSTS ? manager_run : operator_run;
        rc = fw_thread_create(&threads[i], "fleet", run, i < HOSTS ? &fleet.hosts[i] : NULL);
        FW_ASSERT(rc == 0);
    }
    for (int64_t left = sim_between(0, 12); left > 0; left--) {
        sim_sleep(sim_between(0, 8000) * SIM_US);
        disaster();
    }
    sim_disk_weather.error_one_in = 0;
    for (uint32_t i = 0; i < HOSTS + 2; i++) {
        fw_thread_join(&threads[i]);
    }
    fleet.check_one_in = 1;
    fleet_check();
    fw_disk_close(&fleet.look->disk);
}

static void few_run(void)
{
    fleet_world(HOSTS * WRITERS * (uint32_t)sim_between(1, 4), 12, FEW_DISK);
}

const struct sim_scenario sim_scenario_fleet = {
    .name = "volume-fleet",
    .purpose = "hosts with many volumes, and an operator who changes them, hosts too",
    .run = few_run,
};

static void many_run(void)
{
    fleet_world(996, 12, MANY_DISK);
}

const struct sim_scenario sim_scenario_thousand = {
    .name = "volume-thousand",
    .purpose = "the same with a thousand volumes",
    .run = many_run,
};
