/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: any threads of a host may allocate and discard at any time, beside the one that looks after
 * the agent and beside the manager; and the public calls work on a file.
 * Method: a group in a file, a manager's thread, an agent's, and four that allocate and discard
 * places of their own, with the sanitizers watching. In the end map, agent and disk agree. Then two
 * threads want the same place.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include <fairway/log.h>

#include "base/thread.h"
#include "support/volume.h"

enum { WRITERS = 4, PLACES = 5, SIZE = WRITERS * PLACES, GOAL = 40 };

static char path[] = "/tmp/fairway-volume-XXXXXX";
static struct fw_volume_manager *manager;
static struct fw_volume_agent *agent;
static struct fw_volume *volume;
static atomic_bool is_over; /* Says nothing about other data: a thread more or less of a round. */
static atomic_int failures;

static void pause_a_moment(void)
{
    struct fw_parker parker;
    fw_parker_init(&parker);
    (void)fw_park_for(&parker, 100000);
}

static void manager_run(void *argument)
{
    (void)argument;
    while (!atomic_load(&is_over)) {
        atomic_fetch_add(&failures, fw_volume_manager_step(manager, NULL) != 0 ? 1 : 0);
        pause_a_moment();
    }
}

static void keeper_run(void *argument)
{
    (void)argument;
    while (!atomic_load(&is_over)) {
        atomic_fetch_add(&failures, fw_volume_agent_step(agent, NULL) != 0 ? 1 : 0);
        pause_a_moment();
    }
}

static void writer_run(void *argument)
{
    uint64_t first = (uint64_t)(uintptr_t)argument * PLACES;
    uint64_t offset;
    for (uint64_t done = 0; done < GOAL;) {
        uint64_t logical = first + done % PLACES;
        bool is_there = fw_volume_lookup(volume, logical, &offset);
        int rc = is_there ? fw_volume_discard(volume, logical, 1, NULL)
                          : fw_volume_allocate(volume, logical, 1, NULL);
        if (rc < 0 || (rc == 0 && fw_volume_lookup(volume, logical, &offset) == is_there)) {
            atomic_fetch_add(&failures, 1);
            return;
        }
        done += rc == 0 ? 1 : 0;
        if (rc == FW_VOLUME_WAIT) {
            pause_a_moment();
        }
    }
}

static int group_begin(void **state)
{
    (void)state;
    int file = mkstemp(path);
    assert_true(file >= 0);
    (void)close(file);
    const struct fw_volume_format format = {.path = path,
                                            .size = 4 << 20,
                                            .extent_size = 16 << 10,
                                            .hosts_max = 2,
                                            .ring_size = 64 << 10,
                                            .log_size = 64 << 10};
    const struct fw_volume_manager_options options = {.path = path, .pool_min = 8};
    const struct fw_volume_agent_options agent_options = {.path = path, .host = "one"};
    VOLUME_OK(fw_volume_format(&format, why));
    VOLUME_OK(fw_volume_manager_open(&manager, &options, why));
    VOLUME_OK(fw_volume_manager_create(manager, "a", SIZE, why));
    VOLUME_OK(fw_volume_manager_connect(manager, "one", why));
    VOLUME_OK(fw_volume_agent_open(&agent, &agent_options, why));
    VOLUME_OK(fw_volume_open(&volume, agent, "a", why));
    return fw_log_set_level(NULL, FW_LOG_ERROR);
}

static void test_threads(void **state)
{
    (void)state;
    struct fw_thread threads[WRITERS + 2];
    for (size_t i = 0; i < WRITERS + 2; i++) {
        void (*run)(void *) = i < WRITERS ? writer_run : i == WRITERS ? keeper_run : manager_run;
        assert_int_equal(fw_thread_create(&threads[i], "test", run, (void *)(uintptr_t)i), 0);
    }
    for (size_t i = 0; i < WRITERS + 2; i++) {
        if (i == WRITERS) {
            atomic_store(&is_over, true);
        }
        fw_thread_join(&threads[i]);
    }
    assert_int_equal(atomic_load(&failures), 0);
    char text[256];
    const char *wrong = volume_test_check(manager->disk, &agent, 1, text, sizeof text);
    assert_null(wrong);
    uint64_t mapped = 0;
    uint64_t offset;
    for (uint64_t i = 0; i < SIZE; i++) {
        mapped += fw_volume_lookup(volume, i, &offset) ? 1 : 0;
    }
    assert_int_equal(mapped, 0); /* GOAL is a multiple of twice PLACES, so each is a hole again. */
}

/* Whoever comes second is told, or finds it done. */
static void second_run(void *argument)
{
    int *rc = argument;
    do {
        *rc = fw_volume_allocate(volume, 0, 2, NULL);
    } while (*rc == -EALREADY || *rc == FW_VOLUME_WAIT);
}

static void test_same_place(void **state)
{
    (void)state;
    struct fw_thread threads[2];
    int rcs[2];
    uint64_t pool = 0;
    while ((pool = fw_volume_agent_pool(agent)) < 4) {
        VOLUME_OK(fw_volume_manager_step(manager, why));
        VOLUME_OK(fw_volume_agent_step(agent, why));
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(fw_thread_create(&threads[i], "test", second_run, &rcs[i]), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        fw_thread_join(&threads[i]);
        assert_int_equal(rcs[i], 0);
    }
    assert_int_equal(fw_volume_agent_pool(agent), pool - 2);
}

static void test_end(void **state)
{
    (void)state;
    VOLUME_OK(fw_volume_close(volume, why));
    fw_volume_agent_close(agent, true);
    VOLUME_OK(fw_volume_manager_close(manager, why));
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_same_place),
        cmocka_unit_test(test_end),
    };
    return cmocka_run_group_tests(tests, group_begin, NULL);
}
