/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the disk in memory keeps the rules of all disks, and finishes deferred operations in an
 * order that the seed decides.
 * Method: operations whose ends are written down, with one seed, the same and another; what breaks
 * the rules is expected to be refused. disk_record_test.c has what the disk holds.
 */
#include "io/disk_memory.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SECTOR = 512, SECTORS = 8, SIZE = SECTORS * SECTOR };

static struct fw_disk_memory *memory;
static struct fw_disk *disk;
static uint8_t *buffer; /* Of one disk's size. */

static void memory_make(const struct fw_disk_memory_options *options)
{
    assert_int_equal(fw_disk_memory_create(&memory, options), 0);
    disk = &memory->disk;
    buffer = fw_disk_buffer(options->size);
    assert_non_null(buffer);
}

static void memory_free(void)
{
    fw_disk_close(disk);
    free(buffer);
}

/* The order of deferred operations depends on the seed, and only on it. */
static char order[16];

static void on_ordered(struct fw_disk_op *op)
{
    size_t length = strlen(order);
    assert_true(length + 1 < sizeof order);
    order[length] = (char)('0' + op->offset / SECTOR);
}

static void order_run(uint64_t seed)
{
    const struct fw_disk_memory_options options = {
        .size = SIZE, .deferred = true, .seed = seed, .depth = SECTORS};
    struct fw_disk_op ops[SECTORS + 1];
    memory_make(&options);
    memset(order, 0, sizeof order);
    for (uint64_t i = 0; i <= SECTORS; i++) {
        ops[i] = (struct fw_disk_op){.kind = FW_DISK_READ,
                                     .into = buffer + i % SECTORS * SECTOR,
                                     .size = SECTOR,
                                     .offset = i % SECTORS * SECTOR,
                                     .done = on_ordered};
        assert_int_equal(fw_disk_start(disk, &ops[i]), i < SECTORS ? -EINPROGRESS : -EAGAIN);
    }
    assert_in_range(fw_disk_poll(disk), 1, SECTORS);
    fw_disk_drain(disk);
    assert_int_equal(fw_disk_poll(disk), 0);
    assert_int_equal(strlen(order), SECTORS);
    memory_free();
}

static void test_deferred_order(void **state)
{
    (void)state;
    char first[sizeof order];
    order_run(1);
    memcpy(first, order, sizeof first);
    order_run(1);
    assert_string_equal(order, first);
    order_run(2);
    assert_string_not_equal(order, first);
}

static void on_done(struct fw_disk_op *op)
{
    (void)op;
}

static void test_one_writer_per_sector(void **state)
{
    (void)state;
    const struct fw_disk_memory_options options = {.size = SIZE, .deferred = true};
    memory_make(&options);
    struct fw_disk_op one = {
        .kind = FW_DISK_WRITE, .from = buffer, .size = (size_t)2 * SECTOR, .done = on_done};
    struct fw_disk_op other = {
        .kind = FW_DISK_WRITE, .from = buffer, .size = SECTOR, .offset = SECTOR, .done = on_done};
    struct fw_disk_op apart = other;
    apart.offset = (uint64_t)2 * SECTOR;
    struct fw_disk_op above = other;
    above.offset = (uint64_t)4 * SECTOR;
    struct fw_disk_op between = other;
    between.offset = (uint64_t)3 * SECTOR;
    struct fw_disk_op reader = {
        .kind = FW_DISK_READ, .into = buffer + SECTOR, .size = SECTOR, .done = on_done};
    assert_int_equal(fw_disk_start(disk, &one), -EINPROGRESS);
    assert_int_equal(fw_disk_start(disk, &apart), -EINPROGRESS);
    assert_int_equal(fw_disk_start(disk, &above), -EINPROGRESS);
    assert_int_equal(fw_disk_start(disk, &between), -EINPROGRESS); /* Touches two others. */
    assert_int_equal(fw_disk_start(disk, &reader), -EINPROGRESS);
    uint32_t in_flight = disk->in_flight;
    expect_assert_failure((void)(fw_disk_start(disk, &other) == 0));
    disk->in_flight = in_flight; /* The assertion ended that start half-way. */
    fw_disk_drain(disk);
    memory_free();
}

/* One operation on sector 1, and how many bytes it says it moved. */
static uint64_t moved_by(enum fw_disk_kind kind)
{
    struct fw_disk_op op = {.kind = kind};
    if (kind != FW_DISK_FLUSH) {
        op.size = SECTOR;
        op.offset = SECTOR;
    }
    if (kind == FW_DISK_READ || kind == FW_DISK_WRITE) {
        op.into = buffer;
    }
    assert_int_equal(fw_disk_run(disk, &op, NULL), 0);
    return op.moved;
}

static void test_contents(void **state)
{
    (void)state;
    const struct fw_disk_memory_options options = {.size = SIZE};
    memory_make(&options);
    assert_true(fw_disk_properties(disk)->direct && fw_disk_properties(disk)->discard);
    memset(buffer, 'w', SECTOR);
    assert_int_equal(moved_by(FW_DISK_WRITE), SECTOR);
    memset(buffer, 0, SECTOR);
    assert_int_equal(moved_by(FW_DISK_READ), SECTOR);
    assert_int_equal(buffer[SECTOR - 1], 'w');
    assert_int_equal(moved_by(FW_DISK_FLUSH), 0);
    assert_int_equal(moved_by(FW_DISK_DISCARD), 0);
    (void)moved_by(FW_DISK_READ);
    for (size_t i = 0; i < SECTOR; i++) {
        assert_int_equal(buffer[i], FW_DISK_MEMORY_DISCARDED);
    }
    assert_int_equal(memory->bytes[SECTOR - 1], 0); /* Its neighbours are as they were. */
    assert_int_equal(memory->bytes[(size_t)2 * SECTOR], 0);
    memory_free();
}

static void test_options(void **state)
{
    (void)state;
    static const struct fw_disk_memory_options bad[] = {
        {.size = 0},
        {.size = SECTOR + 1},
        {.size = FW_DISK_MEMORY_SIZE_MAX + (uint64_t)SECTOR},
        {.size = 4096, .sector_size = 256},
        {.size = 8192, .sector_size = 8192},
        {.size = 4096, .sector_size = 1536},
        {.size = 4096, .depth = FW_DISK_DEPTH_MAX + 1},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(bad); i++) {
        assert_int_equal(fw_disk_memory_create(&memory, &bad[i]), -EINVAL);
    }
}

/* Each sector that was changed since the last time is told once, also on a disk of many. */
static char touched[256];

static void on_touched(void *context, uint64_t offset)
{
    assert_ptr_equal(context, touched);
    assert_true(offset % SECTOR == 0 && offset / SECTOR < sizeof touched);
    touched[offset / SECTOR]++;
}

static void test_touched(void **state)
{
    (void)state;
    const struct fw_disk_memory_options options = {.size = sizeof touched * SECTOR};
    static const struct fw_disk_op writes[] = {
        {.kind = FW_DISK_WRITE, .offset = 0, .size = SECTOR},
        {.kind = FW_DISK_DISCARD, .offset = (uint64_t)62 * SECTOR, .size = (size_t)4 * SECTOR},
        {.kind = FW_DISK_WRITE, .offset = (uint64_t)255 * SECTOR, .size = SECTOR},
        {.kind = FW_DISK_READ, .offset = (uint64_t)128 * SECTOR, .size = SECTOR},
    };
    memory_make(&options);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(writes); i++) {
        struct fw_disk_op op = writes[i];
        op.into = op.kind == FW_DISK_DISCARD ? NULL : buffer;
        assert_int_equal(fw_disk_run(disk, &op, NULL), 0);
    }
    fw_disk_memory_touched_take(memory, on_touched, touched);
    fw_disk_memory_touched_take(memory, on_touched, touched); /* Nothing new. */
    for (int i = 0; i < (int)sizeof touched; i++) {
        assert_int_equal(touched[i], i == 0 || (i >= 62 && i < 66) || i == 255 ? 1 : 0);
    }
    memory_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deferred_order), cmocka_unit_test(test_one_writer_per_sector),
        cmocka_unit_test(test_contents),       cmocka_unit_test(test_options),
        cmocka_unit_test(test_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
