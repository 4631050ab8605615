/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a command that an operator gives to a manager that runs is done once and answered, whatever
 * write the manager dies at; what was taken back is not done; what nobody can do is explained.
 * Method: a script of commands. The manager is killed at its first write, in the next run at its
 * second, and so on until it survives; every command must be answered with success, also where an
 * earlier life had done it. Then single cases.
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
#include "volume/operator.h"

enum { DISK_SIZE = 620 << 10, OPERATOR = 9, STEPS = 5 };

static struct fw_disk_memory *memory;
static struct dying_disk mortal;
static struct fw_volume_manager *manager;
static struct fw_volume_operator own;
static struct fw_reason text;
static uint64_t deaths;

static int manager_live(void)
{
    const struct fw_volume_manager_options options = {.pool_min = 3, .pool_max = 6};
    int rc = fw_volume_manager_open_on(&manager, &mortal.disk, VOLUME_TEST_HOST, &options, NULL);
    manager = rc == 0 ? manager : NULL;
    return rc;
}

static void manager_die(void)
{
    assert_true(mortal.is_dead);
    deaths++;
    if (manager != NULL) {
        fw_volume_manager_drop(manager);
    }
    dying_disk_init(&mortal, &memory->disk, UINT64_MAX);
    assert_int_equal(manager_live(), 0);
}

static void begin(uint64_t writes)
{
    const struct fw_disk_memory_options options = {.size = DISK_SIZE};
    assert_int_equal(fw_disk_memory_create(&memory, &options), 0);
    assert_int_equal(fw_volume_plain_format(&memory->disk, &volume_test_layout, NULL), 0);
    dying_disk_init(&mortal, &memory->disk, writes);
    deaths = 0;
    if (manager_live() != 0) {
        manager_die();
    }
    assert_int_equal(fw_volume_operator_open(&own, &memory->disk, VOLUME_TEST_HOST, &text), 0);
}

static void end(void)
{
    fw_volume_operator_close(&own);
    fw_volume_manager_drop(manager);
    fw_disk_close(&memory->disk);
}

static void ask(enum fw_volume_kind kind, const char *name, uint64_t value)
{
    struct fw_volume_message command;
    fw_volume_message_init(&command, kind);
    command.value = value;
    memcpy(command.name, name, strlen(name) + 1);
    assert_int_equal(fw_volume_operator_ask(&own, &command, &text), 0);
}

/* What the manager answers, when it has died of it as often as it may. */
static int answer(void)
{
    int result = 1;
    int rc = FW_RING_RETRY;
    for (int i = 0; rc == FW_RING_RETRY && i < STEPS; i++) {
        int stepped = fw_volume_manager_step(manager, NULL);
        if (stepped != 0 && stepped != -ESHUTDOWN) {
            manager_die();
        }
        rc = fw_volume_operator_answer(&own, &result, &text, NULL);
    }
    assert_int_equal(rc, 0);
    return result;
}

static const struct {
    enum fw_volume_kind kind;
    const char *name;
    uint64_t value;
} script[] = {
    {FW_VOLUME_CONNECT, "one", 0},    {FW_VOLUME_CREATE, "a", 7}, {FW_VOLUME_RESIZE, "a", 5},
    {FW_VOLUME_CREATE, "b", 3},       {FW_VOLUME_FLUSH, "", 0},   {FW_VOLUME_REMOVE, "a", 0},
    {FW_VOLUME_CONNECT, "two", 0},    {FW_VOLUME_CREATE, "a", 1}, {FW_VOLUME_RECLAIM, "one", 0},
    {FW_VOLUME_DISCONNECT, "two", 0},
};

static void test_killed(void **state)
{
    (void)state;
    uint64_t points = 0;
    bool survives = false;
    for (uint64_t left = 0; !survives; left++) {
        begin(left);
        for (size_t i = 0; i < FW_ARRAY_LENGTH(script); i++) {
            ask(script[i].kind, script[i].name, script[i].value);
            int result = answer();
            if (result != 0) {
                fail_msg("killed at write %d: %s %s: %s", (int)left,
                         fw_volume_kind_name(script[i].kind), script[i].name, text.text);
            }
        }
        char wrong[256];
        assert_null(volume_test_check(&memory->disk, NULL, 0, wrong, sizeof wrong));
        const struct fw_volume_metadata *truth = &manager->metadata;
        assert_int_equal(truth->volumes[fw_volume_metadata_find(truth, "a")].size, 1);
        assert_int_equal(truth->volumes[fw_volume_metadata_find(truth, "b")].size, 3);
        assert_false(fw_volume_manager_has_host(manager, "one"));
        survives = deaths == 0;
        points += survives ? 0 : 1;
        end();
    }
    assert_true(points > 40);
    print_message("# killed at each of %d writes\n", (int)points);
}

static void test_cancelled(void **state)
{
    (void)state;
    begin(UINT64_MAX);
    ask(FW_VOLUME_CREATE, "a", 7);
    assert_int_equal(fw_volume_operator_cancel(&own, &text), 0);
    ask(FW_VOLUME_CREATE, "b", 7);
    assert_int_equal(answer(), 0);
    assert_int_equal(fw_volume_metadata_find(&manager->metadata, "a"), FW_VOLUME_NONE);
    assert_int_not_equal(fw_volume_metadata_find(&manager->metadata, "b"), FW_VOLUME_NONE);
    assert_int_equal(fw_volume_operator_cancel(&own, &text), 0); /* Too late. */
    ask(FW_VOLUME_REMOVE, "b", 0);
    assert_int_equal(answer(), 0);
    end();
}

static void test_refused(void **state)
{
    (void)state;
    begin(UINT64_MAX);
    ask(FW_VOLUME_REMOVE, "a", 0);
    assert_int_equal(answer(), -ENOENT);
    assert_string_equal(text.text, "there is no volume 'a'");
    ask(FW_VOLUME_PLACE, "a", 0);
    assert_int_equal(answer(), -EINVAL);
    end();
}

/* Ends once, though the manager dies of it before it has answered. */
static void test_shutdown(void **state)
{
    (void)state;
    begin(UINT64_MAX);
    ask(FW_VOLUME_SHUTDOWN, "", 0);
    assert_int_equal(answer(), 0);
    assert_int_equal(fw_volume_manager_step(manager, NULL), -ESHUTDOWN);
    VOLUME_OK(fw_volume_manager_close(manager, why));
    assert_int_equal(manager_live(), 0);
    assert_int_equal(fw_volume_manager_step(manager, NULL), 0);
    end();
}

/* Operators who died, and an answer ring that nobody has emptied. */
static void test_left_behind(void **state)
{
    (void)state;
    begin(UINT64_MAX);
    for (int i = 0; i < 200; i++) {
        struct fw_volume_message command;
        fw_volume_message_init(&command, FW_VOLUME_FLUSH);
        command.number = 1000 + (uint64_t)i;
        assert_int_equal(fw_volume_queue_push(own.commands, &command, &text), 0);
        VOLUME_OK(fw_volume_manager_step(manager, why));
    }
    ask(FW_VOLUME_CREATE, "a", 7);
    assert_int_equal(answer(), 0);
    end();
}

/* There is nothing in these rings that could be missed. */
static void test_damaged_rings(void **state)
{
    (void)state;
    begin(UINT64_MAX);
    fw_volume_operator_close(&own);
    fw_volume_manager_drop(manager);
    struct fw_volume_store *store;
    struct fw_disk *part;
    uint8_t *rubbish = fw_disk_buffer(4096);
    memset(rubbish, 'x', 4096);
    assert_int_equal(fw_volume_plain_open(&store, &memory->disk, NULL), 0);
    assert_int_equal(store->ops->part(store, FW_VOLUME_PART_COMMANDS, 0, &part, NULL), 0);
    for (uint64_t offset = 0; offset < fw_disk_properties(part)->size; offset += 4096) {
        struct fw_disk_op op = {
            .kind = FW_DISK_WRITE, .from = rubbish, .size = 4096, .offset = offset};
        assert_int_equal(fw_disk_run(part, &op, NULL), 0);
    }
    free(rubbish);
    fw_disk_close(part);
    store->ops->close(store);
    assert_int_equal(manager_live(), 0);
    assert_int_equal(fw_volume_operator_open(&own, &memory->disk, VOLUME_TEST_HOST, &text), 0);
    ask(FW_VOLUME_CREATE, "a", 7);
    assert_int_equal(answer(), 0);
    end();
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
        cmocka_unit_test(test_killed),      cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_shutdown),
        cmocka_unit_test(test_left_behind), cmocka_unit_test(test_damaged_rings),
    };
    return cmocka_run_group_tests(tests, group_setup, NULL);
}
