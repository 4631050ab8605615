/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: there is one manager at a time. A second is refused and told who the first is; it takes
 * over when that one is gone; and one that was taken over writes nothing more.
 * Method: leases of several hosts on one disk in memory, under a clock that the test moves, so that
 * anyone can be stopped anywhere for any time; then all orders of a few steps, with all of them;
 * and two managers on one group. Who sleeps moves the clock, and sleeps no longer than that.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/thread.h"
#include "io/clock.h"
#include "io/disk_memory.h"
#include "io/random.h"
#include "support/volume.h"

enum { HOLD_MS = 800, W_MS = 1200, HOSTS = 3, MS = FW_NS_PER_MS };

static struct fw_disk_memory *memory;
static struct fw_volume_lease leases[HOSTS];
static struct fw_reason told;
static int64_t now_ns;
static int64_t step_ns;                 /* What each look at the clock takes. */
static struct fw_volume_manager *awake; /* Works while another sleeps; NULL: nobody. */

static int64_t test_now_ns(void)
{
    now_ns += step_ns;
    return now_ns;
}

static const struct fw_clock_hooks clock_hooks = {.now_ns = test_now_ns, .wall_ns = test_now_ns};

bool __wrap_fw_park_for(struct fw_parker *parker, int64_t timeout_ns);

bool __wrap_fw_park_for(struct fw_parker *parker, int64_t timeout_ns)
{
    (void)parker;
    now_ns += timeout_ns;
    if (awake != NULL) {
        VOLUME_OK(fw_volume_manager_step(awake, why));
    }
    return false;
}

static void lease_begin(int host)
{
    static const char *const names[HOSTS] = {"ann", "ben", "cat"};
    const struct fw_volume_lease_options options = {
        .host = (uint64_t)host + 1, .holder = names[host], .hold_ms = HOLD_MS};
    assert_int_equal(fw_volume_lease_init(&leases[host], &memory->disk, &options, &told), 0);
}

static int setup(void **state)
{
    (void)state;
    const struct fw_disk_memory_options options = {.size = FW_VOLUME_LEASE_SIZE};
    now_ns = 1000 * (int64_t)FW_NS_PER_S;
    step_ns = 0;
    assert_int_equal(fw_disk_memory_create(&memory, &options), 0);
    assert_int_equal(fw_volume_lease_format(&memory->disk, 1, HOLD_MS, &told), 0);
    for (int i = 0; i < HOSTS; i++) {
        lease_begin(i);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    memory->observer = NULL;
    fw_disk_close(&memory->disk);
    return 0;
}

static int try(int host)
{
    told.text[0] = '\0';
    return fw_volume_lease_try(&leases[host], &told);
}

static int renew(int host)
{
    return fw_volume_lease_renew(&leases[host], &told);
}

static bool holds(int host)
{
    return fw_volume_lease_check(&leases[host]) == 0;
}

static void pass_ms(int64_t ms)
{
    now_ns += ms * MS;
}

/* The host tries, every now and then, until there is an answer. */
static int try_long(int host)
{
    int rc = FW_VOLUME_WAIT;
    for (int i = 0; rc == FW_VOLUME_WAIT && i < 100; i++) {
        rc = try(host);
        pass_ms(50);
    }
    return rc;
}

/* ---- one after the other ---- */

static void test_first_and_next_of_a_host(void **state)
{
    (void)state;
    assert_false(holds(0));
    assert_int_equal(renew(0), -ESTALE);
    assert_int_equal(try(0), 0); /* Who made the group need not wait. */
    assert_true(holds(0));
    assert_int_equal(try(0), 0);
    pass_ms(HOLD_MS - 1);
    assert_true(holds(0));
    pass_ms(1);
    assert_false(holds(0));
    lease_begin(0); /* It is dead, and the host's next process goes on at once. */
    assert_int_equal(try(0), 0);
    assert_int_equal(leases[0].ours.term, 2);
    fw_volume_lease_release(&leases[0]);
    assert_false(holds(0));
    lease_begin(0);
    assert_int_equal(try(0), 0);
}

static void test_second_is_refused(void **state)
{
    (void)state;
    assert_int_equal(try(0), 0);
    assert_int_equal(try(1), FW_VOLUME_WAIT);
    pass_ms(HOLD_MS / 2);
    assert_int_equal(renew(0), 0);
    assert_int_equal(try(1), -EBUSY);
    assert_string_equal(told.text, "ann holds the manager's lease of this group");
    assert_true(holds(0));
    assert_int_equal(try(1), FW_VOLUME_WAIT); /* It may ask again. */
    assert_int_equal(leases[0].phase, FW_VOLUME_LEASE_HOLDS);
}

static void test_renewal(void **state)
{
    (void)state;
    assert_int_equal(try(0), 0);
    uint64_t beat = leases[0].ours.beat;
    pass_ms(HOLD_MS / 4 - 1);
    assert_int_equal(renew(0), 0); /* Too early to be worth a write. */
    assert_int_equal(leases[0].ours.beat, beat);
    pass_ms(1);
    assert_int_equal(renew(0), 0);
    assert_int_equal(leases[0].ours.beat, beat + 1);
    for (int i = 0; i < 10; i++) {
        pass_ms(HOLD_MS - 1);
        assert_true(holds(0));
        assert_int_equal(renew(0), 0);
    }
    pass_ms(INT64_C(10) * HOLD_MS); /* It slept, and nobody else came. */
    assert_false(holds(0));
    assert_int_equal(renew(0), 0);
    assert_true(holds(0));
}

static void test_taken_over(void **state)
{
    (void)state;
    assert_int_equal(try(0), 0);
    assert_int_equal(try(1), FW_VOLUME_WAIT);
    pass_ms(W_MS - 1);
    assert_int_equal(try(1), FW_VOLUME_WAIT);
    assert_int_equal(leases[1].phase, FW_VOLUME_LEASE_WATCHES);
    pass_ms(1);
    assert_int_equal(try(1), FW_VOLUME_WAIT);
    assert_int_equal(leases[1].phase, FW_VOLUME_LEASE_CLAIMS);
    assert_false(holds(1));
    pass_ms(W_MS - 1);
    assert_int_equal(try(1), FW_VOLUME_WAIT);
    assert_false(holds(1));
    pass_ms(1);
    assert_int_equal(try(1), 0);
    assert_true(holds(1) && !holds(0));
    assert_int_equal(renew(0), -ESTALE);
    assert_string_equal(told.text, "ben holds the manager's lease of this group");
    assert_int_equal(renew(0), -ESTALE); /* For good. */
    assert_true(holds(1));
    assert_int_equal(try_long(0), 0); /* "ben" is silent. */
}

static void test_released(void **state)
{
    (void)state;
    assert_int_equal(try(0), 0);
    fw_volume_lease_release(&leases[0]);
    fw_volume_lease_release(&leases[0]); /* Nothing. */
    assert_int_equal(try(1), FW_VOLUME_WAIT);
    assert_int_equal(leases[1].phase, FW_VOLUME_LEASE_CLAIMS);
    pass_ms(HOLD_MS);
    assert_int_equal(try(1), FW_VOLUME_WAIT);
    assert_int_equal(try(2), FW_VOLUME_WAIT); /* A third finds somebody who claims... */
    pass_ms(50);
    assert_int_equal(try(1), FW_VOLUME_WAIT);
    assert_int_equal(try(2), -EBUSY); /* ... and lives. */
    assert_string_equal(told.text, "ben is taking over the manager's lease of this group");
    assert_int_equal(try_long(1), 0);
    fw_volume_lease_release(&leases[1]);
    assert_int_equal(try(0), FW_VOLUME_WAIT); /* It is ben's now to have at once. */
    assert_int_equal(leases[0].phase, FW_VOLUME_LEASE_CLAIMS);
}

static void test_released_while_watched(void **state)
{
    (void)state;
    assert_int_equal(try(0), 0);
    assert_int_equal(try(1), FW_VOLUME_WAIT);
    fw_volume_lease_release(&leases[0]);
    assert_int_equal(try(1), FW_VOLUME_WAIT);
    assert_int_equal(leases[1].phase, FW_VOLUME_LEASE_CLAIMS);
}

static void test_claim_overwritten(void **state)
{
    (void)state;
    assert_int_equal(try(0), 0);
    fw_volume_lease_release(&leases[0]);
    assert_int_equal(try(1), FW_VOLUME_WAIT);
    lease_begin(0);
    assert_int_equal(fw_volume_lease_format(&memory->disk, 1, HOLD_MS, &told), 0);
    assert_int_equal(try(0), 0); /* As if "ann" had read before "ben" wrote. */
    assert_int_equal(try(1), -EBUSY);
    assert_true(holds(0) && !holds(1));
}

static void test_damaged(void **state)
{
    (void)state;
    struct fw_volume_lease_record record;
    assert_int_equal(try(0), 0);
    for (size_t at = 0; at < 192; at++) {
        memory->bytes[at] ^= 0x10;
        assert_int_equal(fw_volume_lease_read(&memory->disk, &record, &told), -EBADMSG);
        memory->bytes[at] ^= 0x10;
    }
    memory->bytes[30] ^= 1;
    assert_int_equal(try(1), FW_VOLUME_WAIT);
    assert_int_equal(leases[1].phase, FW_VOLUME_LEASE_WATCHES);
    pass_ms(3 * FW_VOLUME_LEASE_HOLD_MS / 2 - 1); /* It does not say how long to wait. */
    assert_int_equal(try(1), FW_VOLUME_WAIT);
    assert_int_equal(leases[1].phase, FW_VOLUME_LEASE_WATCHES);
    pass_ms(1);
    assert_int_equal(try(1), FW_VOLUME_WAIT);
    assert_int_equal(leases[1].phase, FW_VOLUME_LEASE_CLAIMS);
    const struct fw_volume_lease_options wrong = {.holder = "", .hold_ms = 99};
    assert_int_equal(fw_volume_lease_init(&leases[2], &memory->disk, &wrong, &told), -EINVAL);
}

/* A holder inherits the group's time. One that asks for another time changes it for the next. */
static void test_inherited(void **state)
{
    (void)state;
    const struct fw_volume_lease_options inherits = {.host = 2, .holder = "ben"};
    struct fw_volume_lease_record record;
    assert_int_equal(fw_volume_lease_format(&memory->disk, 1, 99, &told), -EINVAL);
    assert_int_equal(fw_volume_lease_format(&memory->disk, 1, 600001, &told), -EINVAL);
    assert_int_equal(fw_volume_lease_format(&memory->disk, 1, 2 * HOLD_MS, &told), 0);
    assert_int_equal(fw_volume_lease_init(&leases[1], &memory->disk, &inherits, &told), 0);
    assert_int_equal(try(1), FW_VOLUME_WAIT);
    pass_ms(3 * HOLD_MS - 1);
    assert_int_equal(try(1), FW_VOLUME_WAIT);
    pass_ms(1);
    assert_int_equal(try(1), 0);
    assert_int_equal(fw_volume_lease_read(&memory->disk, &record, &told), 0);
    assert_int_equal(record.hold_ms, 2 * HOLD_MS);
    pass_ms(2 * HOLD_MS - 1);
    assert_true(holds(1));
    pass_ms(1);
    assert_false(holds(1));
}

/* ---- disks that take long ---- */

static int64_t write_takes_ns, read_takes_ns;

static int slow_started(void *context, struct fw_disk_op *op)
{
    (void)context;
    now_ns += op->kind == FW_DISK_WRITE ? write_takes_ns : read_takes_ns;
    return 0;
}

static void slow_finished(void *context, struct fw_disk_op *op)
{
    (void)context;
    (void)op;
}

static const struct fw_disk_memory_observer slow = {.started = slow_started,
                                                    .finished = slow_finished};

static void test_right_counts_from_the_read(void **state)
{
    (void)state;
    memory->observer = &slow;
    read_takes_ns = 300 * (int64_t)MS;
    write_takes_ns = 300 * (int64_t)MS;
    assert_int_equal(try(0), 0);
    assert_true(holds(0));
    pass_ms(HOLD_MS - 600);
    assert_false(holds(0));
    read_takes_ns = HOLD_MS * (int64_t)MS; /* Too late to write. */
    uint64_t beat = leases[0].ours.beat;
    assert_int_equal(renew(0), 0);
    assert_false(holds(0));
    assert_int_equal(leases[0].ours.beat, beat);
}

static void test_write_that_took_too_long(void **state)
{
    (void)state;
    assert_int_equal(try(0), 0);
    memory->observer = &slow;
    read_takes_ns = 0;
    write_takes_ns = W_MS * (int64_t)MS;
    pass_ms(HOLD_MS / 2);
    assert_int_equal(renew(0), -ESTALE); /* Somebody else may have it. */
    assert_false(holds(0));
    write_takes_ns = 0;
    assert_int_equal(try(0), FW_VOLUME_WAIT); /* That the record is ours proves nothing. */
    assert_int_equal(leases[0].phase, FW_VOLUME_LEASE_WATCHES);
    assert_int_equal(try_long(0), 0);
}

/* ---- any order ---- */

/* Whatever they do and however long they sleep, no two hold it. */
static void test_any_order(void **state)
{
    (void)state;
    struct fw_random chance;
    uint64_t held = 0;
    fw_random_init(&chance, 11);
    for (int round = 0; round < 60000; round++) {
        int host = (int)fw_random_below(&chance, HOSTS);
        uint64_t what = fw_random_below(&chance, 100);
        if (what < 45) {
            (void)!try(host);
        } else if (what < 75) {
            (void)!renew(host);
        } else if (what < 77) {
            fw_volume_lease_release(&leases[host]);
        } else if (what < 79) {
            lease_begin(host); /* A crash. */
        } else {
            pass_ms((int64_t)fw_random_below(&chance, what < 97 ? 60 : W_MS));
        }
        int holders = 0;
        for (int i = 0; i < HOSTS; i++) {
            holders += holds(i) ? 1 : 0;
        }
        assert_true(holders <= 1);
        held += (uint64_t)holders;
    }
    assert_true(held > 1000); /* It is not so that nobody ever does. */
}

/* ---- managers ---- */

static void test_managers(void **state)
{
    (void)state;
    static struct fw_disk_memory *disk;
    const struct fw_disk_memory_options disk_options = {.size = 900 << 10};
    const struct fw_volume_manager_options options = {.lease_ms = 160};
    struct fw_volume_manager *first, *second;
    assert_int_equal(fw_disk_memory_create(&disk, &disk_options), 0);
    assert_int_equal(fw_volume_plain_format(&disk->disk, &volume_test_layout, &told), 0);
    assert_int_equal(
        fw_volume_manager_open_on(&first, &disk->disk, VOLUME_TEST_HOST, &options, &told), 0);
    VOLUME_OK(fw_volume_manager_connect(first, "one", why));
    awake = first;
    assert_int_equal(fw_volume_manager_open_on(&second, &disk->disk, 8, &options, &told), -EBUSY);
    assert_non_null(strstr(told.text, "host 7"));
    awake = NULL;
    /*
     * From here on time passes, and the first does nothing. All rings are still the first's, on
     * another host, and to watch any of them for a sign of life takes longer than a lease: the
     * second, which nobody renews it for meanwhile, would lose it before it has begun.
     */
    step_ns = MS;
    assert_int_equal(fw_volume_manager_open_on(&second, &disk->disk, 8, &options, &told), 0);
    step_ns = 0;
    VOLUME_OK(fw_volume_manager_step(second, why));
    uint8_t *before = malloc(disk_options.size);
    assert_non_null(before);
    memcpy(before, disk->bytes, disk_options.size);
    struct fw_ring_reason reason;
    assert_int_equal(fw_volume_manager_create(first, "late", 4, &reason), -ESTALE);
    assert_non_null(strstr(reason.text, "host 8 holds the manager's lease"));
    assert_int_equal(fw_volume_manager_step(first, &reason), -ESTALE);
    assert_int_equal(fw_volume_manager_close(first, &reason), -ESTALE);
    assert_memory_equal(before, disk->bytes, disk_options.size);
    VOLUME_OK(fw_volume_manager_create(second, "web", 4, why));
    VOLUME_OK(fw_volume_manager_close(second, why));
    assert_int_equal(fw_volume_manager_open_on(&first, &disk->disk, 8, &options, &told), 0);
    assert_int_equal(fw_volume_metadata_find(&first->metadata, "late"), FW_VOLUME_NONE);
    assert_int_not_equal(fw_volume_metadata_find(&first->metadata, "web"), FW_VOLUME_NONE);
    fw_volume_manager_drop(first);
    free(before);
    fw_disk_close(&disk->disk);
}

/* The guard itself: a manager that slept in the middle of what it does. */
static void test_manager_sleeps(void **state)
{
    (void)state;
    static struct fw_disk_memory *disk;
    const struct fw_disk_memory_options disk_options = {.size = 900 << 10};
    const struct fw_volume_manager_options options = {.lease_ms = HOLD_MS};
    struct fw_volume_manager *manager;
    assert_int_equal(fw_disk_memory_create(&disk, &disk_options), 0);
    assert_int_equal(fw_volume_plain_format(&disk->disk, &volume_test_layout, &told), 0);
    assert_int_equal(
        fw_volume_manager_open_on(&manager, &disk->disk, VOLUME_TEST_HOST, &options, &told), 0);
    pass_ms(HOLD_MS);
    uint8_t byte = disk->bytes[0];
    uint8_t *block = fw_disk_buffer(4096);
    struct fw_disk_op op = {.kind = FW_DISK_WRITE, .from = block, .size = 4096};
    assert_int_equal(fw_disk_run(manager->leased, &op, &told), -ESTALE);
    assert_int_equal(disk->bytes[0], byte);
    VOLUME_OK(fw_volume_manager_step(manager, why)); /* Nobody came: it goes on. */
    /* So it is before a record of the log, before metadata, and at the end. */
    pass_ms(HOLD_MS);
    VOLUME_OK(fw_volume_manager_create(manager, "web", 4, why));
    pass_ms(HOLD_MS);
    VOLUME_OK(fw_volume_manager_flush(manager, why));
    pass_ms(HOLD_MS);
    VOLUME_OK(fw_volume_manager_close(manager, why));
    free(block);
    fw_disk_close(&disk->disk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_first_and_next_of_a_host, setup, teardown),
        cmocka_unit_test_setup_teardown(test_second_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_renewal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_taken_over, setup, teardown),
        cmocka_unit_test_setup_teardown(test_released, setup, teardown),
        cmocka_unit_test_setup_teardown(test_released_while_watched, setup, teardown),
        cmocka_unit_test_setup_teardown(test_claim_overwritten, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_inherited, setup, teardown),
        cmocka_unit_test_setup_teardown(test_right_counts_from_the_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_write_that_took_too_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_any_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_managers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_manager_sleeps, setup, teardown),
    };
    fw_clock_hooks = &clock_hooks;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
