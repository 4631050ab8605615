/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: manager and agents do what the documents promise: pools fill, extents are placed, given
 * back and used again, agents and managers come and go, nobody is disturbed by messages that come
 * twice, and every extent has one owner all the time.
 * Method: a manager and two agents on one disk in memory, step by step; after each step all that is
 * on the disk and in the agents is compared (support/volume.h).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "io/disk_memory.h"
#include "ring/core.h"
#include "support/volume.h"

enum { DISK_SIZE = 960 << 10, AGENTS = 2, POOL = 4 };

static struct fw_disk_memory *memory;
static struct fw_volume_manager *manager;
static struct fw_volume_agent *agents[AGENTS];
static struct fw_volume *volumes[AGENTS];
static const char *const hosts[AGENTS] = {"one", "two"};
static struct fw_volume_manager_options options;
static struct fw_volume_layout layout;

static void check(void)
{
    char text[256];
    const char *wrong = volume_test_check(&memory->disk, agents, AGENTS, text, sizeof text);
    if (wrong != NULL) {
        fail_msg("%s", wrong);
    }
}

static void manager_start(void)
{
    VOLUME_OK(fw_volume_manager_open_on(&manager, &memory->disk, VOLUME_TEST_HOST, &options,
                                        fw_volume_reason(why)));
}

static void agent_start(size_t i)
{
    const struct fw_volume_agent_disks disks = {.rest = &memory->disk, .up = &memory->disk};
    VOLUME_OK(fw_volume_agent_open_on(&agents[i], &disks, VOLUME_TEST_HOST, hosts[i],
                                      fw_volume_reason(why)));
}

static void steps(int count)
{
    for (int i = 0; i < count; i++) {
        if (manager != NULL) {
            VOLUME_OK(fw_volume_manager_step(manager, why));
            check();
        }
        for (size_t a = 0; a < AGENTS; a++) {
            if (agents[a] != NULL) {
                VOLUME_OK(fw_volume_agent_step(agents[a], why));
                check();
            }
        }
    }
}

static int group_setup(void)
{
    const struct fw_disk_memory_options disk_options = {.size = DISK_SIZE};
    assert_int_equal(fw_disk_memory_create(&memory, &disk_options), 0);
    VOLUME_OK(fw_volume_plain_format(&memory->disk, &layout, fw_volume_reason(why)));
    options = (struct fw_volume_manager_options){.pool_min = POOL, .pool_max = UINT64_C(4) * POOL};
    manager_start();
    VOLUME_OK(fw_volume_manager_create(manager, "a", 20, why));
    VOLUME_OK(fw_volume_manager_create(manager, "b", 20, why));
    for (size_t i = 0; i < AGENTS; i++) {
        VOLUME_OK(fw_volume_manager_connect(manager, hosts[i], why));
        agent_start(i);
    }
    steps(4);
    for (size_t i = 0; i < AGENTS; i++) {
        VOLUME_OK(fw_volume_open(&volumes[i], agents[i], i == 0 ? "a" : "b", why));
    }
    steps(1);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    layout = volume_test_layout;
    return group_setup();
}

/* Rings that hold more messages than a round takes in. */
static int setup_large(void **state)
{
    (void)state;
    layout = volume_test_layout;
    layout.ring_size = UINT64_C(24) * 4096;
    return group_setup();
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < AGENTS; i++) {
        if (agents[i] != NULL) {
            fw_volume_agent_drop(agents[i]);
        }
        agents[i] = NULL;
    }
    if (manager != NULL) {
        fw_volume_manager_drop(manager);
        manager = NULL;
    }
    fw_disk_close(&memory->disk);
    return 0;
}

static void test_pools_fill(void **state)
{
    (void)state;
    for (size_t i = 0; i < AGENTS; i++) {
        assert_int_equal(fw_volume_agent_pool(agents[i]), POOL);
        assert_int_equal(manager->metadata.hosts[i].pool, POOL);
    }
}

static void test_allocate(void **state)
{
    (void)state;
    uint64_t offsets[3];
    assert_false(fw_volume_lookup(volumes[0], 5, &offsets[0]));
    VOLUME_OK(fw_volume_allocate(volumes[0], 5, 3, why));
    check();
    for (uint64_t i = 0; i < 3; i++) {
        assert_true(fw_volume_lookup(volumes[0], 5 + i, &offsets[i]));
        assert_true(offsets[i] >= manager->store->geometry.data_offset);
        assert_true(offsets[i] + VOLUME_TEST_EXTENT <= DISK_SIZE);
        assert_true(i == 0 || offsets[i] != offsets[i - 1]);
    }
    assert_int_equal(fw_volume_agent_pool(agents[0]), POOL - 3);
    VOLUME_OK(fw_volume_allocate(volumes[0], 5, 3, why)); /* They are there. */
    assert_int_equal(fw_volume_agent_pool(agents[0]), POOL - 3);
    assert_int_equal(fw_volume_allocate(volumes[0], 18, 3, NULL), -EINVAL);
    assert_int_equal(fw_volume_allocate(volumes[0], UINT64_MAX, 2, NULL), -EINVAL);
    steps(2);
    assert_int_equal(manager->metadata.volumes[0].placed, 3);
    assert_true(fw_volume_agent_pool(agents[0]) >= POOL / 2);
}

/* ---- what an allocation costs ---- */

static uint32_t counts[FW_DISK_DISCARD + 1];

static int count_started(void *context, struct fw_disk_op *op)
{
    (void)context;
    counts[op->kind]++;
    return 0;
}

static void count_finished(void *context, struct fw_disk_op *op)
{
    (void)context;
    (void)op;
}

/* Data, flush, pointer, flush: as many as a push needs, and no more. */
static void test_costs(void **state)
{
    (void)state;
    static const struct fw_disk_memory_observer observer = {.started = count_started,
                                                            .finished = count_finished};
    VOLUME_OK(fw_volume_allocate(volumes[0], 0, 1, why)); /* The ring has its window now. */
    memory->observer = &observer;
    for (uint64_t i = 1; i < POOL; i++) {
        memset(counts, 0, sizeof counts);
        VOLUME_OK(fw_volume_allocate(volumes[0], i, 1, why));
        assert_int_equal(counts[FW_DISK_WRITE], 2);
        assert_int_equal(counts[FW_DISK_FLUSH], 2);
    }
    memset(counts, 0, sizeof counts);
    VOLUME_OK(fw_volume_allocate(volumes[0], 0, POOL, why)); /* All there: nothing to do. */
    assert_int_equal(counts[FW_DISK_WRITE] + counts[FW_DISK_FLUSH] + counts[FW_DISK_READ], 0);
    memory->observer = NULL;
}

/* V13: without a manager the pool serves; then who wants more waits, and goes on when it is back.
 */
static void test_manager_away(void **state)
{
    (void)state;
    fw_volume_manager_drop(manager);
    manager = NULL;
    for (uint64_t i = 0; i < POOL; i++) {
        VOLUME_OK(fw_volume_allocate(volumes[0], i, 1, why));
        check();
    }
    steps(3);
    assert_int_equal(fw_volume_allocate(volumes[0], POOL, 1, NULL), FW_VOLUME_WAIT);
    manager_start();
    steps(2);
    VOLUME_OK(fw_volume_allocate(volumes[0], POOL, 1, why));
    assert_int_equal(manager->metadata.volumes[0].placed, POOL);
    steps(1);
    assert_int_equal(manager->metadata.volumes[0].placed, POOL + 1);
}

/* V3: a manager that begins anew sends everything again, also what has been used meanwhile. */
static void test_sent_again(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        VOLUME_OK(fw_volume_allocate(volumes[0], (uint64_t)round, 1, why));
        uint64_t pool = fw_volume_agent_pool(agents[0]);
        fw_volume_manager_drop(manager);
        manager_start();
        assert_int_equal(manager->peers[0].sent, 0);
        VOLUME_OK(fw_volume_agent_step(agents[0], why));
        check();
        assert_int_equal(fw_volume_agent_pool(agents[0]), pool);
        steps(2);
    }
    assert_int_equal(manager->metadata.volumes[0].placed, 3);
    assert_int_equal(fw_volume_agent_pool(agents[0]), manager->metadata.hosts[0].pool);
}

/* A grant that was logged and never sent arrives through the next manager. */
static void test_grant_not_sent(void **state)
{
    (void)state;
    struct fw_volume_message change;
    assert_int_equal(fw_volume_metadata_grant(&manager->metadata, 0, 3, &change), 3);
    assert_int_equal(fw_volume_manager_change(manager, &change), 0);
    VOLUME_OK(fw_volume_manager_commit(manager, fw_volume_reason(why)));
    fw_volume_manager_drop(manager);
    manager_start();
    steps(2);
    assert_int_equal(fw_volume_agent_pool(agents[0]), POOL + 3);
}

/* V8, V23: the list of a resync comes in parts, and what was placed before is not in it. */
static void test_resync(void **state)
{
    (void)state;
    options.parts_max = 1;
    fw_volume_manager_drop(manager);
    manager_start();
    VOLUME_OK(fw_volume_allocate(volumes[0], 0, 1, why));
    VOLUME_OK(fw_volume_allocate(volumes[0], 2, 1, why));
    VOLUME_OK(fw_volume_discard(volumes[0], 0, 1, why));
    uint64_t old_pool = fw_volume_agent_pool(agents[0]);
    fw_volume_agent_drop(agents[0]);
    agent_start(0);
    assert_int_equal(fw_volume_agent_pool(agents[0]), 0);
    VOLUME_OK(fw_volume_agent_step(agents[0], why)); /* Asks. */
    check();
    VOLUME_OK(fw_volume_manager_step(manager, why)); /* Takes in, and acknowledges. */
    check();
    VOLUME_OK(fw_volume_agent_step(agents[0], why)); /* Drops and resumes. */
    check();
    assert_int_equal(fw_volume_agent_pool(agents[0]), 0);
    VOLUME_OK(fw_volume_manager_step(manager, why)); /* Answers. */
    check();
    VOLUME_OK(fw_volume_agent_step(agents[0], why));
    check();
    assert_int_equal(agents[0]->phase, FW_VOLUME_RUNNING);
    assert_int_equal(fw_volume_agent_pool(agents[0]), old_pool);
    VOLUME_OK(fw_volume_open(&volumes[0], agents[0], "a", why));
    uint64_t offset;
    assert_true(fw_volume_lookup(volumes[0], 2, &offset));
    assert_false(fw_volume_lookup(volumes[0], 0, &offset));
}

/* V22: what is given back goes to others, and what its old owner said of it is old. */
static void test_give_back(void **state)
{
    (void)state;
    uint64_t total = manager->metadata.extent_count;
    for (int round = 0; round < 200; round++) {
        VOLUME_OK(fw_volume_allocate(volumes[0], (uint64_t)round % 20, 1, why));
        check();
        VOLUME_OK(fw_volume_discard(volumes[0], (uint64_t)round % 20, 1, why));
        check();
        steps(2);
    }
    assert_true(manager->metadata.generation > 200 / (4 * POOL)); /* All were used again. */
    assert_true(total < 200);
    assert_int_equal(manager->metadata.volumes[0].placed, 0);
    uint64_t offset;
    assert_false(fw_volume_lookup(volumes[0], 0, &offset));
    VOLUME_OK(fw_volume_discard(volumes[0], 0, 20, why)); /* Holes stay holes. */
}

/* V14: a busy host gets more in advance, a quiet one gives it back, and so on. */
static void test_pools_follow_demand(void **state)
{
    (void)state;
    for (int cycle = 0; cycle < 3; cycle++) {
        manager->limits.quiet_ns = INT64_MAX;
        for (uint64_t i = 0; i < 16; i++) {
            VOLUME_OK(fw_volume_allocate(volumes[0], i, 1, why));
            steps(1);
        }
        VOLUME_OK(fw_volume_discard(volumes[0], 0, 16, why));
        steps(2);
        assert_true(fw_volume_agent_pool(agents[0]) >= UINT64_C(2) * POOL);
        manager->limits.quiet_ns = 0; /* From now on every round counts as quiet. */
        steps(8);
        assert_int_equal(fw_volume_agent_pool(agents[0]), POOL);
        assert_int_equal(manager->metadata.hosts[0].pool, POOL);
    }
}

/* V14: what could not be given back, for the ring was full, is given back later. */
static void test_shrinks_later(void **state)
{
    (void)state;
    int rc = 0;
    struct fw_volume_batch batch = {.bytes = NULL};
    struct fw_volume_message message;
    fw_volume_message_init(&message, FW_VOLUME_CLOSE);
    assert_int_equal(fw_volume_batch_add(&batch, &message), 0);
    while (rc == 0) {
        rc = fw_volume_agent_push(agents[0], &batch, NULL);
    }
    fw_volume_batch_fini(&batch);
    assert_int_equal(rc, FW_VOLUME_WAIT);
    fw_volume_message_init(&message, FW_VOLUME_KEEP);
    message.value = 1;
    VOLUME_OK(fw_volume_queue_push(manager->peers[0].down, &message, fw_volume_reason(why)));
    VOLUME_OK(fw_volume_agent_step(agents[0], why));
    assert_int_equal(fw_volume_agent_pool(agents[0]), POOL); /* Nothing was lost either. */
    for (int i = 0; i < 3; i++) {
        VOLUME_OK(fw_volume_peer_receive(manager, 0, fw_volume_reason(why)));
    }
    VOLUME_OK(fw_volume_agent_step(agents[0], why));
    assert_int_equal(fw_volume_agent_pool(agents[0]), 1);
    check();
}

/* V21: a full group is an answer, not a catastrophe; and what comes back can be used. */
static void test_group_full(void **state)
{
    (void)state;
    uint64_t extents = manager->metadata.extent_count;
    VOLUME_OK(fw_volume_manager_resize(manager, "a", 200, why));
    VOLUME_OK(fw_volume_close(volumes[0], why));
    VOLUME_OK(fw_volume_open(&volumes[0], agents[0], "a", why));
    uint64_t placed = 0;
    for (int idle = 0; idle < 20;) {
        int rc = fw_volume_allocate(volumes[0], placed, 1, NULL);
        assert_true(rc == 0 || rc == FW_VOLUME_WAIT);
        placed += rc == 0 ? 1 : 0;
        idle = rc == 0 ? 0 : idle + 1;
        steps(1);
    }
    assert_true(placed >= extents - UINT64_C(2) * POOL);
    assert_int_equal(manager->metadata.free_count, 0);
    assert_true(manager->is_low);
    assert_true(agents[0]->is_full && agents[0]->dry_ns != 0);
    agents[0]->full_wait_ns = 0; /* Time is up. */
    struct fw_ring_reason full = {.text = ""};
    assert_int_equal(fw_volume_allocate(volumes[0], placed, 1, &full), -ENOSPC);
    assert_non_null(strstr(full.text, "the group is full; discard data or remove volumes"));
    check();
    VOLUME_OK(fw_volume_discard(volumes[0], 0, 1, why));
    steps(3);
    VOLUME_OK(fw_volume_allocate(volumes[0], placed, 1, why));
    assert_int_equal(agents[0]->dry_ns, 0); /* Who comes next waits anew. */
    steps(3);
    assert_true(agents[0]->is_full); /* And it is told again. */
    check();
}

/* V30: in need, the pool of a host without an agent is taken back; that of a silent one is not. */
static void test_group_full_of_pools(void **state)
{
    (void)state;
    VOLUME_OK(fw_volume_manager_connect(manager, "three", why));
    steps(2);
    assert_int_equal(manager->metadata.hosts[2].pool, 0); /* Its agent has never run. */
    struct fw_volume_agent *silent = agents[1];
    agents[1] = NULL;
    VOLUME_OK(fw_volume_manager_resize(manager, "a", 200, why));
    VOLUME_OK(fw_volume_close(volumes[0], why));
    VOLUME_OK(fw_volume_open(&volumes[0], agents[0], "a", why));
    uint64_t placed = 0;
    for (int idle = 0; idle < 20;) {
        int rc = fw_volume_allocate(volumes[0], placed, 1, NULL);
        placed += rc == 0 ? 1 : 0;
        idle = rc == 0 ? 0 : idle + 1;
        steps(1);
    }
    assert_int_equal(placed, manager->metadata.extent_count - POOL);
    assert_int_equal(manager->metadata.hosts[1].pool, POOL);
    agents[1] = silent;
    VOLUME_OK(fw_volume_agent_step(silent, why));
    VOLUME_OK(fw_volume_close(volumes[1], why));
    fw_volume_agent_close(silent, false); /* It keeps its pool, as far as it is concerned. */
    agents[1] = NULL;
    steps(3);
    assert_int_equal(manager->metadata.hosts[1].pool, 0);
    for (uint64_t i = 0; i < POOL; i++) {
        VOLUME_OK(fw_volume_allocate(volumes[0], placed + i, 1, why));
        steps(2);
    }
    agent_start(1); /* It comes back, to nothing. */
    steps(4);
    assert_int_equal(agents[1]->phase, FW_VOLUME_RUNNING);
    assert_int_equal(fw_volume_agent_pool(agents[1]), 0);
    assert_true(agents[1]->is_full);
}

/* V21: a full ring is an answer too; nothing of what was not pushed is lost. */
static void test_ring_full(void **state)
{
    (void)state;
    fw_volume_manager_drop(manager);
    manager = NULL;
    uint64_t pool = fw_volume_agent_pool(agents[0]);
    int rc = 0;
    int rounds = 0;
    for (; rc == 0; rounds++) {
        rc = fw_volume_allocate(volumes[0], 0, 1, NULL);
        pool -= rc == 0 ? 1 : 0;
        if (rc == 0 && rounds >= 1) {
            break;
        }
        rc = rc == 0 ? fw_volume_discard(volumes[0], 0, 1, NULL) : rc;
    }
    struct fw_volume_batch batch = {.bytes = NULL};
    struct fw_volume_message message;
    fw_volume_message_init(&message, FW_VOLUME_OPEN);
    assert_int_equal(fw_volume_batch_add(&batch, &message), 0);
    while (rc == 0) { /* Fills the ring with what says nothing. */
        rc = fw_volume_agent_push(agents[0], &batch, NULL);
    }
    assert_int_equal(rc, FW_VOLUME_WAIT);
    fw_volume_batch_fini(&batch);
    assert_int_equal(fw_volume_allocate(volumes[0], 1, 1, NULL), FW_VOLUME_WAIT);
    assert_int_equal(fw_volume_discard(volumes[0], 0, 1, NULL), FW_VOLUME_WAIT);
    check();
    assert_int_equal(fw_volume_agent_pool(agents[0]), pool);
    uint64_t offset;
    assert_true(fw_volume_lookup(volumes[0], 0, &offset));
    manager_start();
    steps(4);
    VOLUME_OK(fw_volume_allocate(volumes[0], 1, 1, why));
    check();
}

/* Messages that say nothing, so that the next one is far behind. */
static void chatter(size_t i, int count)
{
    struct fw_volume_batch batch = {.bytes = NULL};
    struct fw_volume_message message;
    fw_volume_message_init(&message, FW_VOLUME_CLOSE);
    for (int n = 0; n < count; n++) {
        assert_int_equal(fw_volume_batch_add(&batch, &message), 0);
    }
    VOLUME_OK(fw_volume_agent_push(agents[i], &batch, fw_volume_reason(why)));
    fw_volume_batch_fini(&batch);
}

/* V8: however much there is to take in, it comes before the list. */
static void test_resync_long(void **state)
{
    (void)state;
    chatter(0, 300);
    VOLUME_OK(fw_volume_allocate(volumes[0], 0, 1, why));
    fw_volume_agent_drop(agents[0]);
    agent_start(0);
    VOLUME_OK(fw_volume_agent_step(agents[0], why));
    steps(3);
    assert_int_equal(agents[0]->phase, FW_VOLUME_RUNNING);
    assert_int_equal(manager->metadata.volumes[0].placed, 1);
}

/* V11: all that a host has said counts before it is removed. */
static void test_disconnect_long(void **state)
{
    (void)state;
    chatter(0, 300);
    VOLUME_OK(fw_volume_allocate(volumes[0], 0, 2, why));
    VOLUME_OK(fw_volume_close(volumes[0], why));
    VOLUME_OK(fw_volume_manager_disconnect(manager, "one", why));
    VOLUME_OK(fw_volume_manager_step(manager, why));
    assert_int_equal(fw_volume_agent_step(agents[0], NULL), -ESHUTDOWN);
    VOLUME_OK(fw_volume_manager_step(manager, why));
    assert_false(fw_volume_manager_has_host(manager, "one"));
    assert_int_equal(manager->metadata.volumes[0].placed, 2);
    check();
}

/* V15: what the host announced counts, the rest is free, and if it lives after all it cannot push.
 */
static void test_reclaim(void **state)
{
    (void)state;
    uint64_t free_before = manager->metadata.free_count;
    VOLUME_OK(fw_volume_allocate(volumes[0], 3, 1, why));
    VOLUME_OK(fw_volume_manager_reclaim(manager, "one", why));
    assert_false(fw_volume_manager_has_host(manager, "one"));
    assert_int_equal(manager->metadata.volumes[0].placed, 1);
    assert_int_equal(manager->metadata.volumes[0].users, 0);
    assert_int_equal(manager->metadata.free_count, free_before + POOL - 1);
    assert_int_equal(fw_volume_allocate(volumes[0], 4, 1, NULL), -ESHUTDOWN);
    assert_int_equal(fw_volume_discard(volumes[0], 3, 1, NULL), -ESHUTDOWN);
    check();
    fw_volume_agent_drop(agents[0]);
    agents[0] = NULL;
    steps(2);
    assert_int_equal(fw_volume_manager_reclaim(manager, "one", NULL), -ENOENT);
}

/* V15, V21: the ring of a dead host is damaged: its pool may hold data, so it is set aside. */
static void test_reclaim_damaged(void **state)
{
    (void)state;
    VOLUME_OK(fw_volume_allocate(volumes[0], 3, 1, why));
    struct fw_disk *part;
    VOLUME_OK(manager->store->ops->part(manager->store, FW_VOLUME_PART_UP, 0, &part,
                                        fw_volume_reason(why)));
    fw_volume_agent_drop(agents[0]);
    agents[0] = NULL;
    uint8_t *zeroes = fw_disk_buffer(4096);
    for (uint64_t block = 5; block < 7; block++) { /* The messages. */
        struct fw_disk_op op = {
            .kind = FW_DISK_WRITE, .from = zeroes, .size = 4096, .offset = block * 4096};
        assert_int_equal(fw_disk_run(part, &op, NULL), 0);
    }
    free(zeroes);
    fw_disk_close(part);
    VOLUME_OK(fw_volume_manager_step(manager, why)); /* Goes on without that host. */
    assert_null(manager->peers[0].up);
    VOLUME_OK(fw_volume_manager_step(manager, why));
    VOLUME_OK(fw_volume_manager_reclaim(manager, "one", why));
    assert_int_equal(manager->metadata.hosts[0].set_aside, POOL);
    assert_int_equal(manager->metadata.hosts[0].pool, 0);
    fw_volume_manager_drop(manager);
    manager_start();
    assert_int_equal(manager->metadata.hosts[0].set_aside, POOL);
}

/* V3: a volume that is not there any more: the extent is set aside and told of, nothing dies. */
static void test_unknown_volume(void **state)
{
    (void)state;
    VOLUME_OK(fw_volume_close(volumes[0], why));
    VOLUME_OK(fw_volume_open(&volumes[0], agents[0], "a", why));
    VOLUME_OK(fw_volume_manager_step(manager, why));
    assert_int_equal(fw_volume_manager_remove(manager, "a", NULL), -EBUSY);
    manager->metadata.volumes[0].users = 0; /* Somebody removes it all the same. */
    struct fw_volume_message change;
    fw_volume_message_init(&change, FW_VOLUME_VOLUME_REMOVED);
    change.uuid = manager->metadata.volumes[0].uuid;
    assert_int_equal(fw_volume_manager_change(manager, &change), 0);
    VOLUME_OK(fw_volume_manager_commit(manager, fw_volume_reason(why)));
    VOLUME_OK(fw_volume_allocate(volumes[0], 0, 2, why));
    steps(2);
    assert_int_equal(manager->metadata.hosts[0].set_aside, 2);
    VOLUME_OK(fw_volume_discard(volumes[0], 0, 2, why)); /* The host gives them back. */
    steps(1);
    assert_int_equal(manager->metadata.hosts[0].set_aside, 0);
    VOLUME_OK(fw_volume_allocate(volumes[1], 0, 1, why));
    steps(1);
}

static void test_volumes(void **state)
{
    (void)state;
    struct fw_volume *other;
    assert_int_equal(fw_volume_manager_create(manager, "a", 1, NULL), -EEXIST);
    assert_int_equal(fw_volume_manager_create(manager, "-x", 1, NULL), -EINVAL);
    assert_int_equal(fw_volume_manager_create(manager, "", 1, NULL), -EINVAL);
    assert_int_equal(fw_volume_manager_create(manager, "big", FW_VOLUME_EXTENTS_MAX + 1ULL, NULL),
                     -EINVAL);
    assert_int_equal(fw_volume_manager_create(manager, "c", 0, NULL), -EINVAL);
    VOLUME_OK(fw_volume_manager_create(manager, "c", 1, why));
    VOLUME_OK(fw_volume_manager_create(manager, "d", 1, why));
    assert_int_equal(fw_volume_manager_create(manager, "e", 1, NULL), -ENOSPC);
    assert_int_equal(fw_volume_manager_connect(manager, "one", NULL), -EEXIST);
    VOLUME_OK(fw_volume_manager_connect(manager, "three", why));
    assert_int_equal(fw_volume_manager_connect(manager, "four", NULL), -ENOSPC);
    assert_int_equal(fw_volume_open(&other, agents[1], "a", NULL), -EBUSY); /* The other host's. */
    assert_int_equal(fw_volume_open(&other, agents[0], "a", NULL), -EBUSY);
    assert_int_equal(fw_volume_open(&other, agents[0], "nothing", NULL), -ENOENT);
    VOLUME_OK(fw_volume_allocate(volumes[0], 19, 1, why));
    VOLUME_OK(fw_volume_close(volumes[0], why));
    steps(1);
    assert_int_equal(fw_volume_manager_resize(manager, "a", 19, NULL), -EBUSY);
    VOLUME_OK(fw_volume_manager_resize(manager, "a", 30, why));
    VOLUME_OK(fw_volume_open(&volumes[0], agents[1], "a", why));
    assert_int_equal(fw_volume_size(volumes[0]), 30);
    /* That it is open the manager finds in the ring when it is asked. */
    assert_int_equal(fw_volume_manager_resize(manager, "a", 29, NULL), -EBUSY);
    assert_int_equal(fw_volume_manager_remove(manager, "a", NULL), -EBUSY);
    VOLUME_OK(fw_volume_close(volumes[0], why));
    uint64_t free_before = manager->metadata.free_count;
    VOLUME_OK(fw_volume_manager_remove(manager, "a", why));
    assert_int_equal(manager->metadata.free_count, free_before + 1);
    assert_int_equal(fw_volume_manager_remove(manager, "a", NULL), -ENOENT);
    check();
}

/* A clean end of all: nothing is in any ring or log, and the pools are free. */
static void test_close(void **state)
{
    (void)state;
    VOLUME_OK(fw_volume_allocate(volumes[0], 0, 2, why));
    for (size_t i = 0; i < AGENTS; i++) {
        VOLUME_OK(fw_volume_close(volumes[i], why));
        fw_volume_agent_close(agents[i], true);
        agents[i] = NULL;
    }
    VOLUME_OK(fw_volume_manager_close(manager, why));
    manager_start();
    struct fw_ring_state ring;
    fw_ring_state(manager->log, &ring);
    assert_int_equal(ring.producer, ring.consumer);
    assert_int_equal(manager->metadata.free_count, manager->metadata.extent_count - 2);
    for (size_t i = 0; i < AGENTS; i++) {
        fw_ring_state(manager->peers[i].up, &ring);
        assert_int_equal(ring.producer, ring.consumer);
    }
    assert_int_equal(manager->metadata.volumes[0].users, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pools_fill, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocate, setup, teardown),
        cmocka_unit_test_setup_teardown(test_costs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_manager_away, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sent_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_grant_not_sent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resync, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resync_long, setup_large, teardown),
        cmocka_unit_test_setup_teardown(test_disconnect_long, setup_large, teardown),
        cmocka_unit_test_setup_teardown(test_give_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pools_follow_demand, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shrinks_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_group_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_group_full_of_pools, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ring_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reclaim, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reclaim_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unknown_volume, setup, teardown),
        cmocka_unit_test_setup_teardown(test_volumes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_close, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
