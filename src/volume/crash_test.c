/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever a power failure leaves, every extent has one owner, every allocation that was
 * promised is there, every discard that was promised is done, and both sides go on from it.
 * Method: a manager and two agents on a disk that records every write and flush; then every disk
 * that a crash could have left is looked at (io/disk_record.h): every prefix, every order and
 * subset of what was not flushed. Each is recovered: a new manager and new agents find all extents
 * again, and use them.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <fairway/log.h>

#include "io/disk_record.h"
#include "support/virtual_clock.h"
#include "support/volume.h"

enum {
    DISK_SIZE = 620 << 10,
    AGENTS = 2,
    SIZE = 8, /* Of each volume. */
    MARKS = 4096,
};

static const char *const hosts[AGENTS] = {"one", "two"};
static const char *const names[AGENTS] = {"a", "b"};

/* What has been promised of a place. */
struct promise {
    enum { HOLE, THERE, DOUBTFUL } state;
    uint32_t extent;
    uint64_t generation;
};

static struct fw_disk_record *record;
static struct fw_disk *disk;
static struct fw_volume_manager *manager;
static struct fw_volume_agent *agents[AGENTS];
static struct fw_volume *volumes[AGENTS];
static struct promise now[AGENTS][SIZE];
static struct promise marks[MARKS][AGENTS][SIZE];
static uint64_t marks_count;
static uint64_t visits;
static struct fw_volume_manager_options options;

static void promise_mark(void)
{
    assert_true(marks_count + 1 < MARKS);
    memcpy(marks[++marks_count], now, sizeof now);
    fw_disk_record_mark(record, marks_count);
}

static void manager_start(struct fw_disk *on)
{
    VOLUME_OK(
        fw_volume_manager_open_on(&manager, on, VOLUME_TEST_HOST, &options, fw_volume_reason(why)));
}

static int agent_try(struct fw_disk *on, size_t i, struct fw_ring_reason *reason)
{
    const struct fw_volume_agent_disks disks = {.rest = on, .up = on};
    return fw_volume_agent_open_on(&agents[i], &disks, VOLUME_TEST_HOST, hosts[i],
                                   fw_volume_reason(reason));
}

static void agent_start(struct fw_disk *on, size_t i)
{
    VOLUME_OK(agent_try(on, i, why));
}

static void steps(int count)
{
    for (int i = 0; i < count; i++) {
        VOLUME_OK(fw_volume_manager_step(manager, why));
        for (size_t a = 0; a < AGENTS; a++) {
            if (agents[a] != NULL) {
                VOLUME_OK(fw_volume_agent_step(agents[a], why));
            }
        }
    }
}

static void drop_all(void)
{
    for (size_t i = 0; i < AGENTS; i++) {
        if (agents[i] != NULL) {
            fw_volume_agent_drop(agents[i]);
        }
        agents[i] = NULL;
    }
    if (manager != NULL) {
        fw_volume_manager_drop(manager);
    }
    manager = NULL;
}

static void begin(void)
{
    const struct fw_disk_memory_options disk_options = {.size = DISK_SIZE};
    assert_int_equal(fw_disk_record_create(&record, &disk_options), 0);
    disk = fw_disk_record_disk(record);
    memset(now, 0, sizeof now);
    marks_count = 0;
    visits = 0;
    options = (struct fw_volume_manager_options){.pool_min = 3, .pool_max = 6, .parts_max = 2};
    VOLUME_OK(fw_volume_plain_format(disk, &volume_test_layout, fw_volume_reason(why)));
    manager_start(disk);
    for (size_t i = 0; i < AGENTS; i++) {
        VOLUME_OK(fw_volume_manager_create(manager, names[i], SIZE, why));
        VOLUME_OK(fw_volume_manager_connect(manager, hosts[i], why));
        agent_start(disk, i);
    }
    steps(3);
    for (size_t i = 0; i < AGENTS; i++) {
        VOLUME_OK(fw_volume_open(&volumes[i], agents[i], names[i], why));
    }
    promise_mark();
}

static void allocate(size_t v, uint64_t logical, uint64_t count)
{
    for (uint64_t i = logical; i < logical + count; i++) {
        now[v][i].state = now[v][i].state == THERE ? THERE : DOUBTFUL;
    }
    promise_mark();
    VOLUME_OK(fw_volume_allocate(volumes[v], logical, count, why));
    for (uint64_t i = logical; i < logical + count; i++) {
        const struct fw_volume_place *place = &volumes[v]->places[i];
        now[v][i] = (struct promise){
            .state = THERE, .extent = place->extent, .generation = place->generation};
    }
    promise_mark();
}

static void discard(size_t v, uint64_t logical)
{
    now[v][logical].state = DOUBTFUL;
    promise_mark();
    VOLUME_OK(fw_volume_discard(volumes[v], logical, 1, why));
    now[v][logical].state = HOLE;
    promise_mark();
}

/* ---- looking at what a crash left ---- */

static void crash_fail(const struct fw_disk_crash *crash, const char *what)
{
    char text[FW_DISK_CRASH_TEXT_SIZE];
    fail_msg("%s; %s", what, fw_disk_crash_describe(crash, text, sizeof text));
}

static void promises_check(const struct fw_disk_crash *crash,
                           const struct fw_volume_metadata *truth)
{
    for (size_t v = 0; v < AGENTS; v++) {
        uint32_t index = fw_volume_metadata_find(truth, names[v]);
        if (index == FW_VOLUME_NONE) {
            crash_fail(crash, "a volume is lost");
        }
        for (uint64_t i = 0; i < SIZE; i++) {
            const struct promise *promise = &marks[crash->mark][v][i];
            uint32_t at = fw_volume_metadata_at(truth, index, i);
            if (promise->state == THERE &&
                (at != promise->extent || truth->extents[at].generation != promise->generation)) {
                crash_fail(crash, "an allocation is lost");
            }
            if (promise->state == HOLE && at != FW_VOLUME_NONE) {
                crash_fail(crash, "a discard is undone");
            }
        }
    }
}

static void recover_check(const struct fw_disk_crash *crash)
{
    char text[256];
    const char *wrong = volume_test_check(crash->disk, agents, AGENTS, text, sizeof text);
    if (wrong != NULL) {
        crash_fail(crash, wrong);
    }
}

/* A new manager and new agents: nothing may be lost to them, and all can be used. */
static void recover(const struct fw_disk_crash *crash)
{
    bool is_there[AGENTS];
    manager_start(crash->disk);
    for (size_t i = 0; i < AGENTS; i++) {
        is_there[i] = fw_volume_manager_has_host(manager, hosts[i]);
        if (is_there[i] && agent_try(crash->disk, i, NULL) == -ESHUTDOWN) {
            agents[i] = NULL; /* It had left, and only that has not been taken in. */
        } else if (is_there[i]) {
            assert_non_null(agents[i]);
        }
    }
    for (int round = 0; round < 5; round++) {
        VOLUME_OK(fw_volume_manager_step(manager, why));
        recover_check(crash);
        for (size_t i = 0; i < AGENTS; i++) {
            int rc = agents[i] != NULL ? fw_volume_agent_step(agents[i], NULL) : 0;
            if (rc == -ESHUTDOWN) { /* It was being disconnected. */
                fw_volume_agent_drop(agents[i]);
                agents[i] = NULL;
            }
            recover_check(crash);
        }
    }
    for (size_t i = 0; i < AGENTS; i++) {
        if (agents[i] == NULL) {
            continue;
        }
        if (agents[i]->phase != FW_VOLUME_RUNNING ||
            fw_volume_agent_pool(agents[i]) != manager->metadata.hosts[agents[i]->host].pool) {
            crash_fail(crash, "extents are forgotten");
        }
        VOLUME_OK(fw_volume_open(&volumes[i], agents[i], names[i], why));
        VOLUME_OK(fw_volume_allocate(volumes[i], SIZE - 1, 1, why));
        recover_check(crash);
    }
    drop_all();
}

static int crash_check(const struct fw_disk_crash *crash, void *context)
{
    (void)context;
    if (crash->mark == 0) {
        return 0;
    }
    visits++;
    struct fw_volume_store *store;
    struct fw_volume_metadata truth;
    struct fw_reason reason = {.text = ""};
    int rc = fw_volume_plain_open(&store, crash->disk, &reason);
    if (rc == 0) {
        rc = fw_volume_view(store, FW_VOLUME_ALL, &truth, &reason);
        store->ops->close(store);
    }
    if (rc != 0) {
        crash_fail(crash, reason.text);
        return rc;
    }
    promises_check(crash, &truth);
    fw_volume_metadata_fini(&truth);
    recover(crash);
    return 0;
}

static void crash_everywhere(void)
{
    struct fw_disk_record_summary summary;
    const struct fw_disk_record_limits limits = {.exact_max = 64, .samples = 32};
    drop_all();
    assert_int_equal(fw_disk_record_enumerate(record, &limits, &summary, crash_check, NULL), 0);
    fw_disk_record_destroy(record);
    assert_true(visits > 100);
    print_message("# %d crash points, %d images recovered\n", (int)summary.points, (int)visits);
}

/* ---- what is done before the crash ---- */

static void test_allocate_and_discard(void **state)
{
    (void)state;
    begin();
    for (uint64_t i = 0; i < 3; i++) {
        allocate(0, i, 1);
        allocate(1, 2 * i, 2);
        steps(1);
        if (i > 0) {
            discard(0, i - 1);
        }
        steps(1);
    }
    discard(1, 0);
    steps(2);
    allocate(0, 4, 2);
    crash_everywhere();
}

static void test_agent_restarts(void **state)
{
    (void)state;
    begin();
    for (int round = 0; round < 2; round++) {
        allocate(0, (uint64_t)round, 1);
        allocate(1, (uint64_t)round, 1);
        fw_volume_agent_drop(agents[0]);
        agent_start(disk, 0);
        steps(3);
        VOLUME_OK(fw_volume_open(&volumes[0], agents[0], names[0], why));
        promise_mark();
    }
    crash_everywhere();
}

static void test_manager_restarts(void **state)
{
    (void)state;
    begin();
    for (int round = 0; round < 2; round++) {
        allocate(0, 2 * (uint64_t)round, 2);
        discard(0, 2 * (uint64_t)round);
        fw_volume_manager_drop(manager);
        allocate(0, 2 * (uint64_t)round, 1);
        manager_start(disk);
        steps(1);
        VOLUME_OK(fw_volume_manager_flush(manager, why));
        promise_mark();
    }
    crash_everywhere();
}

/* The redo log has two blocks: it runs full, and the metadata are saved. */
static void test_log_full(void **state)
{
    (void)state;
    begin();
    for (uint64_t i = 0; i < 60; i++) {
        allocate(0, i % 4, 1);
        discard(0, i % 4);
        steps(2);
    }
    struct fw_ring_state log;
    fw_ring_state(manager->log, &log);
    assert_true(log.consumer > 0); /* It was emptied at least once. */
    crash_everywhere();
}

static void test_hosts_go(void **state)
{
    (void)state;
    begin();
    allocate(0, 0, 2);
    allocate(1, 0, 2);
    VOLUME_OK(fw_volume_close(volumes[0], why));
    VOLUME_OK(fw_volume_manager_disconnect(manager, hosts[0], why));
    promise_mark();
    VOLUME_OK(fw_volume_manager_step(manager, why));
    assert_int_equal(fw_volume_agent_step(agents[0], NULL), -ESHUTDOWN);
    fw_volume_agent_drop(agents[0]);
    agents[0] = NULL;
    promise_mark();
    steps(1);
    fw_volume_agent_drop(agents[1]);
    agents[1] = NULL;
    VOLUME_OK(fw_volume_manager_reclaim(manager, hosts[1], why));
    promise_mark();
    VOLUME_OK(fw_volume_manager_connect(manager, hosts[1], why));
    promise_mark();
    VOLUME_OK(fw_volume_manager_resize(manager, names[0], SIZE, why));
    VOLUME_OK(fw_volume_manager_create(manager, "c", 3, why));
    VOLUME_OK(fw_volume_manager_remove(manager, "c", why));
    promise_mark();
    crash_everywhere();
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
        cmocka_unit_test(test_allocate_and_discard),
        cmocka_unit_test(test_agent_restarts),
        cmocka_unit_test(test_manager_restarts),
        cmocka_unit_test(test_log_full),
        cmocka_unit_test(test_hosts_go),
    };
    return cmocka_run_group_tests(tests, group_setup, NULL);
}
