/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: an agent or a manager that is killed before or after any write leaves nothing undone that
 * matters: every extent has one owner at every moment, what was promised stays, and its next life
 * goes on while the others never noticed.
 * Method: a script of allocations, discards, restarts and flushes. One of the three is killed at
 * its first write, in the next run at its second, and so on until it survives the script. After
 * every step all that is on the disk and in the agents is compared.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <fairway/log.h>

#include "io/disk_memory.h"
#include "support/dying_disk.h"
#include "support/virtual_clock.h"
#include "support/volume.h"

enum { DISK_SIZE = 620 << 10, AGENTS = 2, SIZE = 8, ACTORS = 3, MANAGER = 2, SCRIPT = 40 };

static const char *const hosts[AGENTS] = {"one", "two"};
static const char *const names[AGENTS] = {"a", "b"};

struct promise {
    enum { HOLE, THERE, DOUBTFUL } state;
    uint32_t extent;
    uint64_t generation;
};

static struct fw_disk_memory *memory;
static struct dying_disk disks[ACTORS];
static struct fw_volume_manager *manager;
static struct fw_volume_agent *agents[AGENTS];
static struct fw_volume *volumes[AGENTS];
static struct promise promised[AGENTS][SIZE];
static uint64_t deaths;

/* ---- lives ---- */

static void check(const char *when)
{
    char text[256];
    const char *wrong = volume_test_check(&memory->disk, agents, AGENTS, text, sizeof text);
    if (wrong != NULL) {
        fail_msg("%s: %s", when, wrong);
    }
}

static void promises_check(void)
{
    struct fw_volume_store *store;
    struct fw_volume_metadata truth;
    assert_int_equal(fw_volume_plain_open(&store, &memory->disk, NULL), 0);
    assert_int_equal(fw_volume_view(store, FW_VOLUME_ALL, &truth, NULL), 0);
    store->ops->close(store);
    for (size_t v = 0; v < AGENTS; v++) {
        uint32_t index = fw_volume_metadata_find(&truth, names[v]);
        for (uint64_t i = 0; i < SIZE; i++) {
            uint32_t at = fw_volume_metadata_at(&truth, index, i);
            struct promise *promise = &promised[v][i];
            if (promise->state == THERE) {
                assert_int_equal(at, promise->extent);
                assert_int_equal(truth.extents[at].generation, promise->generation);
            } else if (promise->state == HOLE) {
                assert_int_equal(at, FW_VOLUME_NONE);
            }
        }
    }
    fw_volume_metadata_fini(&truth);
}

static int manager_live(void)
{
    const struct fw_volume_manager_options options = {.pool_min = 3, .pool_max = 6, .parts_max = 2};
    int rc =
        fw_volume_manager_open_on(&manager, &disks[MANAGER].disk, VOLUME_TEST_HOST, &options, NULL);
    manager = rc == 0 ? manager : NULL;
    return rc;
}

static int agent_live(size_t i)
{
    const struct fw_volume_agent_disks both = {.rest = &disks[i].disk, .up = &disks[i].disk};
    int rc = fw_volume_agent_open_on(&agents[i], &both, VOLUME_TEST_HOST, hosts[i], NULL);
    agents[i] = rc == 0 ? agents[i] : NULL;
    volumes[i] = NULL;
    return rc;
}

/* A death is what an error means; it comes once. The next life begins with a disk that works. */
static void manager_die(void)
{
    assert_true(disks[MANAGER].is_dead);
    deaths++;
    if (manager != NULL) {
        fw_volume_manager_drop(manager);
    }
    dying_disk_init(&disks[MANAGER], &memory->disk, UINT64_MAX);
    check("the manager is dead");
    assert_int_equal(manager_live(), 0);
    check("the manager lives again");
}

static void agent_die(size_t i)
{
    assert_true(disks[i].is_dead);
    deaths++;
    if (agents[i] != NULL) {
        fw_volume_agent_drop(agents[i]);
        agents[i] = NULL;
        volumes[i] = NULL;
    }
    dying_disk_init(&disks[i], &memory->disk, UINT64_MAX);
    check("an agent is dead");
    promises_check();
    assert_int_equal(agent_live(i), 0);
    check("an agent lives again");
}

/* ---- the script ---- */

static void manager_do(int (*act)(struct fw_volume_manager *manager, struct fw_ring_reason *reason))
{
    if (act(manager, NULL) != 0) {
        manager_die();
    }
    check("after the manager's step");
}

static void agent_do(size_t i)
{
    if (fw_volume_agent_step(agents[i], NULL) != 0) {
        agent_die(i);
    }
    check("after an agent's step");
}

static void rounds(int count)
{
    for (int i = 0; i < count; i++) {
        manager_do(fw_volume_manager_step);
        agent_do(0);
        agent_do(1);
    }
}

/* Opens the volume if this life has not yet; false: it died of it. */
static bool opened(size_t v)
{
    if (volumes[v] == NULL && fw_volume_open(&volumes[v], agents[v], names[v], NULL) != 0) {
        volumes[v] = NULL;
        agent_die(v);
        return false;
    }
    for (uint64_t i = 0; i < SIZE; i++) { /* What was doubtful is certain now. */
        const struct fw_volume_place *place = &volumes[v]->places[i];
        if (promised[v][i].state == DOUBTFUL) {
            promised[v][i] =
                (struct promise){.state = place->state == FW_VOLUME_MAPPED ? THERE : HOLE,
                                 .extent = place->extent,
                                 .generation = place->generation};
        }
    }
    return true;
}

static void place_do(size_t v, uint64_t logical, bool allocates)
{
    if (!opened(v)) {
        return;
    }
    struct promise *promise = &promised[v][logical];
    const struct promise before = *promise;
    promise->state = DOUBTFUL;
    int rc = allocates ? fw_volume_allocate(volumes[v], logical, 1, NULL)
                       : fw_volume_discard(volumes[v], logical, 1, NULL);
    const struct fw_volume_place *place = &volumes[v]->places[logical];
    if (rc == FW_VOLUME_WAIT) {
        *promise = before;
    } else if (rc == 0) {
        *promise = (struct promise){.state = allocates ? THERE : HOLE,
                                    .extent = place->extent,
                                    .generation = place->generation};
    } else {
        agent_die(v);
    }
    check(allocates ? "after an allocation" : "after a discard");
    promises_check();
}

static void script_run(void)
{
    for (uint64_t i = 0; i < SCRIPT; i++) {
        place_do(i % AGENTS, i / AGENTS % SIZE, true);
        if (i % 3 == 2) {
            place_do(i % AGENTS, i / AGENTS % SIZE, false);
        }
        if (i % 5 != 4) { /* Sometimes the manager is slow. */
            rounds(1);
        }
        if (i == 12) { /* A change of agents, in the ordinary way. */
            fw_volume_agent_drop(agents[0]);
            if (agent_live(0) != 0) {
                agent_die(0);
            }
            rounds(4);
        }
        if (i == 20) {
            manager_do(fw_volume_manager_flush);
        }
        if (i == 25) {
            fw_volume_manager_drop(manager);
            if (manager_live() != 0) {
                manager_die();
            }
        }
    }
}

static void group_make(void)
{
    const struct fw_disk_memory_options options = {.size = DISK_SIZE};
    assert_int_equal(fw_disk_memory_create(&memory, &options), 0);
    assert_int_equal(fw_volume_plain_format(&memory->disk, &volume_test_layout, NULL), 0);
    for (size_t i = 0; i < ACTORS; i++) {
        dying_disk_init(&disks[i], &memory->disk, UINT64_MAX);
    }
    memset(promised, 0, sizeof promised);
    assert_int_equal(manager_live(), 0);
    for (size_t i = 0; i < AGENTS; i++) {
        assert_int_equal(fw_volume_manager_create(manager, names[i], SIZE, NULL), 0);
        assert_int_equal(fw_volume_manager_connect(manager, hosts[i], NULL), 0);
        assert_int_equal(agent_live(i), 0);
    }
}

/* Nothing may be forgotten: what the manager calls a host's is in its pool. */
static void end_check(void)
{
    rounds(8);
    for (size_t i = 0; i < AGENTS; i++) {
        assert_int_equal(agents[i]->phase, FW_VOLUME_RUNNING);
        assert_int_equal(fw_volume_agent_pool(agents[i]), manager->metadata.hosts[i].pool);
        assert_true(fw_volume_agent_pool(agents[i]) > 0);
        fw_volume_agent_drop(agents[i]);
        agents[i] = NULL;
    }
    fw_volume_manager_drop(manager);
    fw_disk_close(&memory->disk);
}

static void kill_everywhere(size_t actor)
{
    bool survives = false;
    uint64_t points = 0;
    for (uint64_t left = 0; !survives; left++) {
        group_make();
        deaths = 0;
        dying_disk_init(&disks[actor], &memory->disk, left);
        script_run();
        survives = deaths == 0;
        end_check();
        points += survives ? 0 : 1;
    }
    assert_true(points > 40);
    print_message("# killed at each of %d writes\n", (int)points);
}

static void test_agent_killed(void **state)
{
    (void)state;
    kill_everywhere(0);
}

static void test_manager_killed(void **state)
{
    (void)state;
    kill_everywhere(MANAGER);
}

static int group_setup(void **state)
{
    (void)state;
    virtual_clock_install();
    return fw_log_set_level(NULL, FW_LOG_ERROR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agent_killed),
        cmocka_unit_test(test_manager_killed),
    };
    return cmocka_run_group_tests(tests, group_setup, NULL);
}
