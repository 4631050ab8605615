/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: V24. What a host has is given to others only when the host has said that it writes no more,
 * or an operator has said so for it; and an order to leave is neither forgotten nor done by halves.
 * Method: a manager and two agents on one disk in memory, step by step, along the counterexamples
 * of models/leave.pml; after each step all that is on the disk and in the agents is compared.
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
static struct fw_volume *volume;
static const char *const hosts[AGENTS] = {"one", "two"};

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
    const struct fw_volume_manager_options options = {.pool_min = POOL, .pool_max = POOL};
    VOLUME_OK(fw_volume_manager_open_on(&manager, &memory->disk, VOLUME_TEST_HOST, &options,
                                        fw_volume_reason(why)));
}

static void manager_restart(void)
{
    fw_volume_manager_drop(manager);
    manager_start();
}

static int agent_try(size_t i, struct fw_ring_reason *reason)
{
    const struct fw_volume_agent_disks disks = {.rest = &memory->disk, .up = &memory->disk};
    int rc = fw_volume_agent_open_on(&agents[i], &disks, VOLUME_TEST_HOST, hosts[i],
                                     fw_volume_reason(reason));
    agents[i] = rc == 0 ? agents[i] : NULL;
    return rc;
}

static void agent_kill(size_t i)
{
    fw_volume_agent_drop(agents[i]);
    agents[i] = NULL;
}

static void manager_step(void)
{
    VOLUME_OK(fw_volume_manager_step(manager, why));
    check();
}

static void steps(int count)
{
    for (int i = 0; i < count; i++) {
        manager_step();
        for (size_t a = 0; a < AGENTS; a++) {
            if (agents[a] != NULL) {
                VOLUME_OK(fw_volume_agent_step(agents[a], why));
                check();
            }
        }
    }
}

static int setup(void **state)
{
    (void)state;
    const struct fw_disk_memory_options disk_options = {.size = DISK_SIZE};
    assert_int_equal(fw_disk_memory_create(&memory, &disk_options), 0);
    VOLUME_OK(fw_volume_plain_format(&memory->disk, &volume_test_layout, fw_volume_reason(why)));
    manager_start();
    VOLUME_OK(fw_volume_manager_create(manager, "a", 20, why));
    for (size_t i = 0; i < AGENTS; i++) {
        VOLUME_OK(fw_volume_manager_connect(manager, hosts[i], why));
        VOLUME_OK(agent_try(i, why));
    }
    steps(4);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < AGENTS; i++) {
        if (agents[i] != NULL) {
            agent_kill(i);
        }
    }
    fw_volume_manager_drop(manager);
    manager = NULL;
    fw_disk_close(&memory->disk);
    return 0;
}

static void leaves(size_t i)
{
    assert_int_equal(fw_volume_agent_step(agents[i], NULL), -ESHUTDOWN);
    check();
}

/* Nothing of the host's has been given away. */
static void assert_listed(uint64_t users)
{
    assert_true(fw_volume_manager_has_host(manager, "one"));
    assert_int_equal(manager->metadata.hosts[0].pool, POOL);
    assert_int_equal(manager->metadata.volumes[0].users, users);
}

/* Nobody else gets what the host has open. */
static void assert_kept_from_others(void)
{
    struct fw_volume *other;
    assert_int_equal(fw_volume_open(&other, agents[1], "a", NULL), -EBUSY);
}

/* Told to leave, it answers and is gone; its pool is free, and it may come back. */
static void test_leaves(void **state)
{
    (void)state;
    struct fw_volume *other;
    uint64_t free_before = manager->metadata.free_count;
    VOLUME_OK(fw_volume_manager_disconnect(manager, "one", why));
    manager_step();
    assert_listed(0);
    leaves(0);
    assert_listed(0); /* Said, and not heard yet. */
    assert_int_equal(fw_volume_open(&other, agents[0], "a", NULL), -ESHUTDOWN);
    manager_step();
    assert_false(fw_volume_manager_has_host(manager, "one"));
    assert_int_equal(manager->metadata.free_count, free_before + POOL);
    agent_kill(0);
    steps(2);
    assert_int_equal(agent_try(0, NULL), -ENOENT);
    VOLUME_OK(fw_volume_manager_connect(manager, "one", why));
    VOLUME_OK(agent_try(0, why));
    steps(4);
    assert_int_equal(fw_volume_agent_pool(agents[0]), POOL);
}

/* A volume is open: the order is refused, says which, and changes nothing. */
static void test_refused(void **state)
{
    (void)state;
    struct fw_ring_reason reason = {.text = ""};
    VOLUME_OK(fw_volume_open(&volume, agents[0], "a", why));
    VOLUME_OK(fw_volume_allocate(volume, 0, 1, why));
    assert_int_equal(fw_volume_manager_disconnect(manager, "one", &reason), -EBUSY);
    assert_non_null(strstr(reason.text, "host 'one' has 'a' open"));
    steps(3);
    assert_kept_from_others();
    assert_int_equal(manager->metadata.volumes[0].users, 1);
    assert_int_equal(manager->metadata.hosts[0].leaving, 0);
    VOLUME_OK(fw_volume_allocate(volume, 1, 1, why));
    VOLUME_OK(fw_volume_close(volume, why));
    VOLUME_OK(fw_volume_manager_disconnect(manager, "one", why));
    manager_step();
    leaves(0);
    manager_step();
    assert_false(fw_volume_manager_has_host(manager, "one"));
    assert_int_equal(manager->metadata.volumes[0].placed, 2);
    VOLUME_OK(fw_volume_open(&volume, agents[1], "a", why));
}

/* A volume is opened when the manager has looked, before the host hears of the order: it stays. */
static void test_opened_meanwhile(void **state)
{
    (void)state;
    VOLUME_OK(fw_volume_manager_disconnect(manager, "one", why));
    manager_step();
    VOLUME_OK(fw_volume_open(&volume, agents[0], "a", why));
    manager_step(); /* Hears of that first. */
    assert_listed(1);
    assert_kept_from_others();
    VOLUME_OK(fw_volume_agent_step(agents[0], why));
    manager_step();
    assert_listed(1);
    assert_int_equal(manager->metadata.hosts[0].leaving, 0); /* The operator is told. */
    VOLUME_OK(fw_volume_allocate(volume, 0, 1, why));
    /* Nor does the order count later, if it comes once more. */
    struct fw_volume_message again;
    fw_volume_message_init(&again, FW_VOLUME_LEAVE);
    again.number = agents[0]->stayed;
    VOLUME_OK(fw_volume_queue_push(manager->peers[0].down, &again, fw_volume_reason(why)));
    VOLUME_OK(fw_volume_close(volume, why));
    steps(3);
    assert_int_equal(agents[0]->phase, FW_VOLUME_RUNNING);
}

/* Opened in that moment by a life that dies: what it had open is nobody else's, so it stays too. */
static void test_opened_by_a_past_life(void **state)
{
    (void)state;
    VOLUME_OK(fw_volume_manager_disconnect(manager, "one", why));
    manager_step();
    VOLUME_OK(fw_volume_open(&volume, agents[0], "a", why));
    agent_kill(0);
    VOLUME_OK(agent_try(0, why));
    steps(5);
    assert_listed(1);
    assert_int_equal(manager->metadata.hosts[0].leaving, 0);
    assert_kept_from_others();
}

/* A host that does not answer keeps what it has, and holds nobody up. */
static void test_silent(void **state)
{
    (void)state;
    struct fw_volume_agent *frozen = agents[0];
    VOLUME_OK(fw_volume_manager_disconnect(manager, "one", why));
    VOLUME_OK(fw_volume_manager_disconnect(manager, "one", why));
    agents[0] = NULL;
    VOLUME_OK(fw_volume_open(&volume, agents[1], "a", why));
    for (uint64_t i = 0; i < 8; i++) {
        VOLUME_OK(fw_volume_allocate(volume, i, 1, why));
        steps(2);
        assert_listed(2);
    }
    manager_restart();
    steps(2);
    assert_listed(2);
    agents[0] = frozen; /* It wakes up. */
    leaves(0);
    manager_step();
    assert_false(fw_volume_manager_has_host(manager, "one"));
}

/* The manager dies: when it has logged the order, when it has sent it, when it has the answer. */
static void test_manager_dies(void **state)
{
    (void)state;
    VOLUME_OK(fw_volume_manager_disconnect(manager, "one", why));
    manager_restart();
    assert_true(manager->metadata.hosts[0].leaving != 0);
    VOLUME_OK(fw_volume_manager_flush(manager, why)); /* Nor is it only in the log. */
    manager_restart();
    assert_true(manager->metadata.hosts[0].leaving != 0);
    manager_step();
    manager_restart();
    leaves(0);
    assert_int_equal(fw_volume_manager_receive(manager, NULL), 0);
    assert_listed(0);
    manager_restart(); /* It had read the answer, and done nothing yet. */
    assert_listed(0);
    manager_step();
    assert_false(fw_volume_manager_has_host(manager, "one"));
}

/* The agent dies with the order in its ring, which the next life drops: it is told again. */
static void test_agent_dies(void **state)
{
    (void)state;
    VOLUME_OK(fw_volume_manager_disconnect(manager, "one", why));
    manager_step();
    agent_kill(0);
    VOLUME_OK(agent_try(0, why));
    int rc = 0;
    for (int i = 0; rc == 0 && i < 8; i++) {
        rc = fw_volume_agent_step(agents[0], NULL);
        manager_step();
    }
    assert_int_equal(rc, -ESHUTDOWN);
    assert_false(fw_volume_manager_has_host(manager, "one"));
}

/* Its last word is in the ring, and nobody has read it: no later life may start and write. */
static void test_restarted_behind_its_last_word(void **state)
{
    (void)state;
    struct fw_ring_reason reason = {.text = ""};
    VOLUME_OK(fw_volume_manager_disconnect(manager, "one", why));
    manager_step();
    leaves(0);
    agent_kill(0);
    assert_int_equal(agent_try(0, &reason), -ESHUTDOWN);
    assert_non_null(strstr(reason.text, "has left the group"));
    manager_step();
    assert_false(fw_volume_manager_has_host(manager, "one"));
}

/* The up ring is full: the gate is shut, and the answer is given when there is room. */
static void test_ring_full(void **state)
{
    (void)state;
    struct fw_volume_batch batch = {.bytes = NULL};
    struct fw_volume_message message;
    struct fw_volume *other;
    VOLUME_OK(fw_volume_manager_disconnect(manager, "one", why));
    manager_step();
    fw_volume_message_init(&message, FW_VOLUME_CLOSE);
    assert_int_equal(fw_volume_batch_add(&batch, &message), 0);
    int rc = 0;
    while (rc == 0) {
        rc = fw_volume_agent_push(agents[0], &batch, NULL);
    }
    fw_volume_batch_fini(&batch);
    assert_int_equal(rc, FW_VOLUME_WAIT);
    VOLUME_OK(fw_volume_agent_step(agents[0], why));
    assert_int_equal(agents[0]->phase, FW_VOLUME_SHUT);
    assert_int_equal(fw_volume_open(&other, agents[0], "a", NULL), -ESHUTDOWN);
    VOLUME_OK(fw_volume_manager_receive(manager, fw_volume_reason(why)));
    assert_listed(0);
    leaves(0);
    manager_step();
    assert_false(fw_volume_manager_has_host(manager, "one"));
}

/* An earlier release suspended the up ring instead. What it left so is resumed, and nothing freed.
 */
static void test_suspended_by_an_earlier_release(void **state)
{
    (void)state;
    VOLUME_OK(fw_ring_suspend(manager->peers[0].up, why));
    manager_restart();
    leaves(0);
    agent_kill(0);
    steps(3);
    assert_listed(0);
    VOLUME_OK(agent_try(0, why));
    steps(4);
    assert_int_equal(agents[0]->phase, FW_VOLUME_RUNNING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_leaves, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_opened_meanwhile, setup, teardown),
        cmocka_unit_test_setup_teardown(test_opened_by_a_past_life, setup, teardown),
        cmocka_unit_test_setup_teardown(test_silent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_manager_dies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_agent_dies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_restarted_behind_its_last_word, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ring_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_suspended_by_an_earlier_release, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
