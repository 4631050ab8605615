/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a volume is a disk for many threads: bytes at any place are read as they were written, what
 * nobody wrote is zeros although the group was full of other data, discards make holes, and nothing
 * that is written beside them goes astray.
 * Method: a group in a file that was full of 0xa5, a manager's thread, and threads that write,
 * read, zero and discard parts of the volume of their own and compare with a copy in memory. Ranges
 * are any, so that parts of sectors and of extents are shared with the neighbours.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <fairway/log.h>

#include "base/thread.h"
#include "io/random.h"
#include "ring/core.h"
#include "support/volume.h"
#include "volume/thin.h"

enum { WRITERS = 4, EXTENTS = 12, LONG = 40, ROUNDS = 150, GARBAGE = 0xa5, FILE_SIZE = 4 << 20 };
#define EXTENT UINT64_C(16384)
#define SIZE   (EXTENT * EXTENTS)
#define SHARE  (SIZE / WRITERS - 777)

static char path[] = "/tmp/fairway-thin-XXXXXX";
static struct fw_volume_manager *manager;
static struct fw_volume_thin_host *host;
static struct fw_volume_thin *thin;
static struct fw_thread keeper;
static atomic_bool is_over; /* Says nothing about other data. */
static atomic_int failures;

static void manager_run(void *argument)
{
    (void)argument;
    struct fw_parker parker;
    fw_parker_init(&parker);
    while (!atomic_load(&is_over)) {
        atomic_fetch_add(&failures, fw_volume_manager_step(manager, NULL) != 0 ? 1 : 0);
        (void)fw_park_for(&parker, 200000);
    }
}

static void thin_start(void)
{
    const struct fw_volume_thin_options options = {
        .path = path, .host = "one", .interval_ns = 1000000};
    VOLUME_OK(fw_volume_thin_host_open(&host, &options, fw_volume_reason(why)));
    VOLUME_OK(fw_volume_thin_open(&thin, host, "a", fw_volume_reason(why)));
}

static void thin_stop(void)
{
    fw_volume_thin_close(thin);
    fw_volume_thin_host_close(host);
}

static int setup(void **state)
{
    (void)state;
    const struct fw_volume_manager_options options = {.path = path, .pool_min = 6, .pool_max = 12};
    const struct fw_volume_format format = {.path = path,
                                            .extent_size = EXTENT,
                                            .ring_size = 64 << 10,
                                            .log_size = 64 << 10,
                                            .force = true};
    uint8_t *garbage = malloc(FILE_SIZE);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_non_null(garbage);
    memset(garbage, GARBAGE, FILE_SIZE);
    assert_int_equal(write(fd, garbage, FILE_SIZE), FILE_SIZE);
    (void)close(fd);
    free(garbage);
    VOLUME_OK(fw_volume_format(&format, why));
    VOLUME_OK(fw_volume_manager_open(&manager, &options, why));
    VOLUME_OK(fw_volume_manager_create(manager, "a", EXTENTS, why));
    VOLUME_OK(fw_volume_manager_create(manager, "b", EXTENTS, why));
    VOLUME_OK(fw_volume_manager_create(manager, "long", LONG, why));
    VOLUME_OK(fw_volume_manager_connect(manager, "one", why));
    VOLUME_OK(fw_volume_manager_connect(manager, "two", why));
    assert_int_equal(fw_thread_create(&keeper, "manager", manager_run, NULL), 0);
    thin_start();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    thin_stop();
    atomic_store(&is_over, true);
    fw_thread_join(&keeper);
    assert_int_equal(atomic_load(&failures), 0);
    VOLUME_OK(fw_volume_manager_close(manager, why));
    (void)unlink(path);
    return 0;
}

static bool are_all(const uint8_t *bytes, uint8_t value, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++) {
        if (bytes[i] != value) {
            return false;
        }
    }
    return true;
}

static void test_pieces(void **state)
{
    (void)state;
    uint8_t *bytes = malloc(SIZE);
    assert_int_equal(fw_volume_thin_size(thin), SIZE);
    assert_int_equal(fw_volume_thin_extent_size(thin), EXTENT);
    assert_false(fw_volume_thin_is_placed(thin, 5 * EXTENT));
    VOLUME_OK(
        fw_volume_thin_write(thin, "hello", 5, 5 * EXTENT + 1000, true, fw_volume_reason(why)));
    assert_true(fw_volume_thin_is_placed(thin, 5 * EXTENT));
    VOLUME_OK(fw_volume_thin_read(thin, bytes, SIZE, 0, fw_volume_reason(why)));
    assert_memory_equal(bytes + 5 * EXTENT + 1000, "hello", 5);
    memset(bytes + 5 * EXTENT + 1000, 0, 5);
    assert_true(are_all(bytes, 0, SIZE)); /* Nothing of what was there before. */
    VOLUME_OK(fw_volume_thin_discard(thin, EXTENT - 1, 5 * EXTENT, fw_volume_reason(why)));
    VOLUME_OK(fw_volume_thin_discard(thin, EXTENT, 5 * EXTENT - 1, fw_volume_reason(why)));
    assert_true(fw_volume_thin_is_placed(thin, 5 * EXTENT)); /* Not whole. */
    VOLUME_OK(fw_volume_thin_zero(thin, 3, 5 * EXTENT + 1001, true, fw_volume_reason(why)));
    VOLUME_OK(fw_volume_thin_read(thin, bytes, 5, 5 * EXTENT + 1000, fw_volume_reason(why)));
    assert_memory_equal(bytes, "h\0\0\0o", 5);
    VOLUME_OK(fw_volume_thin_zero(thin, 2 * EXTENT, 4 * EXTENT + 1, true, fw_volume_reason(why)));
    assert_false(fw_volume_thin_is_placed(thin, 4 * EXTENT)); /* A hole stays one. */
    assert_true(fw_volume_thin_is_placed(thin, 5 * EXTENT) == false);
    VOLUME_OK(fw_volume_thin_zero(thin, 100, 7 * EXTENT, false, fw_volume_reason(why)));
    assert_true(fw_volume_thin_is_placed(thin, 7 * EXTENT));
    thin_stop();
    thin_start();
    assert_true(fw_volume_thin_is_placed(thin, 7 * EXTENT));
    VOLUME_OK(fw_volume_thin_discard(thin, SIZE, 0, fw_volume_reason(why)));
    free(bytes);
}

/* What a writer does to bytes that are its own; false: they were not what it wrote. */
static bool writer_turn(struct fw_random *chance, uint8_t *copy, uint8_t *scratch, uint64_t base)
{
    uint64_t at = fw_random_below(chance, SHARE);
    uint64_t size = 1 + fw_random_below(chance, SHARE - at);
    int rc = 0;
    switch (fw_random_below(chance, 5)) {
    case 0:
    case 1:
        memset(copy + at, (int)fw_random_below(chance, 256), size);
        rc = fw_volume_thin_write(thin, copy + at, size, base + at, false, NULL);
        break;
    case 2:
        memset(copy + at, 0, size);
        rc = fw_volume_thin_zero(thin, size, base + at, true, NULL);
        break;
    case 3:
        /* Which bytes become zeros is looked up; others stay. */
        rc = fw_volume_thin_discard(thin, size, base + at, NULL);
        for (uint64_t i = 0; i < size; i++) {
            uint64_t first = (base + at + i) / EXTENT * EXTENT;
            if (first >= base + at && first + EXTENT <= base + at + size) {
                copy[at + i] = 0;
            }
        }
        break;
    default:
        rc = fw_volume_thin_flush(thin, NULL);
        break;
    }
    return rc == 0 && fw_volume_thin_read(thin, scratch, SHARE, base, NULL) == 0 &&
           memcmp(scratch, copy, SHARE) == 0;
}

static void writer_run(void *argument)
{
    uint64_t number = *(const uint64_t *)argument;
    struct fw_random chance;
    uint8_t *copy = calloc(1, SHARE);
    uint8_t *scratch = malloc(SHARE);
    fw_random_init(&chance, number);
    for (int i = 0; i < ROUNDS; i++) {
        if (!writer_turn(&chance, copy, scratch, number * SHARE)) {
            atomic_fetch_add(&failures, 1);
            break;
        }
    }
    free(copy);
    free(scratch);
}

static void test_threads(void **state)
{
    (void)state;
    static const uint64_t numbers[WRITERS] = {0, 1, 2, 3};
    struct fw_thread threads[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        uint64_t *number = (uint64_t *)(uintptr_t)&numbers[i];
        assert_int_equal(fw_thread_create(&threads[i], "writer", writer_run, number), 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        fw_thread_join(&threads[i]);
    }
    assert_int_equal(atomic_load(&failures), 0);
}

/* Two volumes of a host do not disturb each other, and who opens one twice has it twice. */
static void test_two_volumes(void **state)
{
    (void)state;
    struct fw_volume_thin *other;
    struct fw_volume_thin *again;
    uint8_t byte = 0;
    VOLUME_OK(fw_volume_thin_open(&other, host, "b", fw_volume_reason(why)));
    VOLUME_OK(fw_volume_thin_open(&again, host, "b", fw_volume_reason(why)));
    assert_ptr_equal(other, again);
    VOLUME_OK(fw_volume_thin_write(thin, "a", 1, 0, false, fw_volume_reason(why)));
    VOLUME_OK(fw_volume_thin_write(other, "b", 1, 0, false, fw_volume_reason(why)));
    fw_volume_thin_close(other);
    VOLUME_OK(fw_volume_thin_read(again, &byte, 1, 0, fw_volume_reason(why)));
    assert_int_equal(byte, 'b');
    VOLUME_OK(fw_volume_thin_read(thin, &byte, 1, 0, fw_volume_reason(why)));
    assert_int_equal(byte, 'a');
    VOLUME_OK(fw_volume_thin_discard(thin, SIZE, 0, fw_volume_reason(why)));
    VOLUME_OK(fw_volume_thin_read(again, &byte, 1, 0, fw_volume_reason(why)));
    assert_int_equal(byte, 'b');
    VOLUME_OK(fw_volume_thin_discard(again, SIZE, 0, fw_volume_reason(why)));
    fw_volume_thin_close(again);
}

/* Who writes in order gets the next extent in advance, which is a hole until he writes to it. */
static void test_in_order(void **state)
{
    (void)state;
    struct fw_volume_thin *in_order;
    struct fw_volume_thin *other;
    uint8_t byte = 1;
    VOLUME_OK(fw_volume_thin_open(&in_order, host, "long", fw_volume_reason(why)));
    for (uint64_t i = 0; i < 30; i++) {
        VOLUME_OK(fw_volume_thin_write(in_order, "x", 1, i * EXTENT, false, fw_volume_reason(why)));
    }
    while (fw_volume_thin_spare(in_order) != 30) {
        fw_thread_yield();
    }
    /* It is being placed; who opens a volume gets his turn when that is done. */
    VOLUME_OK(fw_volume_thin_open(&other, host, "b", fw_volume_reason(why)));
    fw_volume_thin_close(other);
    assert_int_equal(fw_volume_thin_spare(in_order), 30);
    assert_false(fw_volume_thin_is_placed(in_order, 30 * EXTENT));
    VOLUME_OK(fw_volume_thin_read(in_order, &byte, 1, 30 * EXTENT, fw_volume_reason(why)));
    assert_int_equal(byte, 0);
    VOLUME_OK(fw_volume_thin_write(in_order, "y", 1, 30 * EXTENT, false, fw_volume_reason(why)));
    assert_true(fw_volume_thin_is_placed(in_order, 30 * EXTENT));
    while (fw_volume_thin_spare(in_order) != 31) {
        fw_thread_yield();
    }
    fw_volume_thin_close(in_order); /* Gives 31 back, and nothing that was written. */
    VOLUME_OK(fw_volume_thin_open(&in_order, host, "long", fw_volume_reason(why)));
    for (uint64_t i = 0; i < LONG; i++) {
        assert_true(fw_volume_thin_is_placed(in_order, i * EXTENT) == (i < 31));
    }
    VOLUME_OK(fw_volume_thin_read(in_order, &byte, 1, 30 * EXTENT, fw_volume_reason(why)));
    assert_int_equal(byte, 'y');
    VOLUME_OK(fw_volume_thin_write(in_order, "z", 1, 35 * EXTENT, false, fw_volume_reason(why)));
    assert_true(fw_volume_thin_spare(in_order) == UINT64_MAX); /* Not in order. */
    VOLUME_OK(fw_volume_thin_discard(in_order, LONG * EXTENT, 0, fw_volume_reason(why)));
    fw_volume_thin_close(in_order);
}

enum { RACES = 40 };
static atomic_int met;     /* How often one of the two has come to a meeting. */
static atomic_int owners;  /* Who have the volume now. */
static atomic_int rivalry; /* How often two had. */

/* Both go on when both are here. */
static void meet(int *times)
{
    (*times)++;
    (void)atomic_fetch_add(&met, 1);
    while (atomic_load(&met) < 2 * *times) {
        fw_thread_yield();
    }
}

/* Opens and closes a volume again and again, at the same time as another host. */
static void rival_run(void *argument)
{
    int times = 0;
    for (int i = 0; i < RACES; i++) {
        struct fw_volume_thin *got = NULL;
        meet(&times);
        int rc = fw_volume_thin_open(&got, argument, "b", NULL);
        atomic_fetch_add(&failures, rc != 0 && rc != -EBUSY ? 1 : 0);
        if (rc == 0 && atomic_fetch_add(&owners, 1) != 0) {
            atomic_fetch_add(&rivalry, 1);
        }
        meet(&times);
        if (rc == 0) {
            atomic_fetch_sub(&owners, 1);
            fw_volume_thin_close(got);
        }
    }
}

static void test_two_hosts(void **state)
{
    (void)state;
    const struct fw_volume_thin_options two = {.path = path, .host = "two", .interval_ns = 1000000};
    struct fw_volume_thin_host *rival;
    struct fw_volume_thin *other;
    struct fw_thread threads[2];
    VOLUME_OK(fw_volume_thin_host_open(&rival, &two, fw_volume_reason(why)));
    assert_int_equal(fw_thread_create(&threads[0], "one", rival_run, host), 0);
    assert_int_equal(fw_thread_create(&threads[1], "two", rival_run, rival), 0);
    fw_thread_join(&threads[0]);
    fw_thread_join(&threads[1]);
    assert_int_equal(atomic_load(&rivalry), 0);
    assert_int_equal(atomic_load(&failures), 0);
    VOLUME_OK(fw_volume_thin_open(&other, rival, "b", fw_volume_reason(why)));
    fw_volume_thin_close(other);
    fw_volume_thin_host_close(rival);
}

/* Takes the up ring of host "two" from its agent, as a manager does who was told that it is off. */
static void producer_take(void)
{
    const struct fw_disk_options options = {.path = path, .flags = FW_DISK_DIRECT};
    const struct fw_ring_options producer = {.role = FW_RING_PRODUCER};
    struct fw_volume_store *store;
    struct fw_disk *disk;
    struct fw_disk *part;
    struct fw_file_lock lock;
    struct fw_ring *ring;
    VOLUME_OK(fw_file_lock_take(&lock, path, 0, fw_volume_reason(why)));
    VOLUME_OK(fw_disk_open(&disk, &options, fw_volume_reason(why)));
    VOLUME_OK(fw_volume_store_open(&store, disk, fw_volume_reason(why)));
    VOLUME_OK(store->ops->part(store, FW_VOLUME_PART_UP, 1, &part, fw_volume_reason(why)));
    VOLUME_OK(fw_ring_attach_on(&ring, part, fw_ring_host_number(&lock), &producer,
                                fw_volume_reason(why)));
    fw_ring_detach(ring);
    fw_file_lock_release(&lock);
    fw_disk_close(part);
    store->ops->close(store);
    fw_disk_close(disk);
}

/* V24: an agent that was taken for dead finds out, and touches nothing from then on. */
static void test_taken_for_dead(void **state)
{
    (void)state;
    const struct fw_volume_thin_options two = {.path = path, .host = "two", .interval_ns = 1000000};
    struct fw_volume_thin_host *dead;
    struct fw_volume_thin *its;
    struct fw_reason reason = {.text = ""};
    uint8_t byte = 0;
    VOLUME_OK(fw_volume_thin_host_open(&dead, &two, fw_volume_reason(why)));
    VOLUME_OK(fw_volume_thin_open(&its, dead, "b", fw_volume_reason(why)));
    VOLUME_OK(fw_volume_thin_write(its, "x", 1, 0, true, fw_volume_reason(why)));
    producer_take();
    int rc = 0;
    while (rc == 0) {
        rc = fw_volume_thin_read(its, &byte, 1, 0, &reason);
        fw_thread_yield();
    }
    assert_int_equal(rc, -EIO);
    assert_non_null(strstr(reason.text, "not in the group any more"));
    assert_int_equal(fw_volume_thin_write(its, "y", 1, 0, false, NULL), -EIO);
    assert_int_equal(fw_volume_thin_write(its, "y", 1, 5 * EXTENT, false, NULL), -EIO);
    assert_int_equal(fw_volume_thin_zero(its, 1, 0, true, NULL), -EIO);
    assert_int_equal(fw_volume_thin_flush(its, NULL), -EIO);
    fw_volume_thin_close(its);
    fw_volume_thin_host_close(dead);
}

static void test_what_cannot_be(void **state)
{
    (void)state;
    struct fw_volume_thin_host *second;
    struct fw_volume_thin *other;
    struct fw_reason reason;
    const struct fw_volume_thin_options busy = {.path = path, .host = "one"};
    const struct fw_volume_thin_options nobody = {.path = path, .host = "three"};
    const struct fw_volume_thin_options two = {.path = path, .host = "two"};
    assert_int_equal(fw_volume_thin_host_open(&second, &busy, &reason), -EBUSY);
    assert_int_equal(fw_volume_thin_host_open(&second, &nobody, &reason), -ENOENT);
    assert_int_equal(fw_volume_thin_open(&other, host, "c", &reason), -ENOENT);
    VOLUME_OK(fw_volume_thin_host_open(&second, &two, fw_volume_reason(why)));
    assert_int_equal(fw_volume_thin_open(&other, second, "a", &reason), -EBUSY);
    fw_volume_thin_host_close(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),         cmocka_unit_test(test_threads),
        cmocka_unit_test(test_two_volumes),    cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_two_hosts),      cmocka_unit_test(test_what_cannot_be),
        cmocka_unit_test(test_taken_for_dead),
    };
    (void)!fw_log_set_level("volume", FW_LOG_ERROR);
    return cmocka_run_group_tests(tests, setup, teardown);
}
