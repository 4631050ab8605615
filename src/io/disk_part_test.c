/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a part of a disk is a disk: same promises, own offsets, and nothing outside is touched.
 * Method: two parts of a disk in memory, one that answers at once and one that answers late and in
 * any order; what is written through a part is looked for in the bytes of the disk.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/disk_memory.h"
#include "io/disk_part.h"

enum { OPS = 4 };
#define SECTOR  UINT64_C(512)
#define SECTORS UINT64_C(16)

static struct fw_disk_memory *memory;
static struct fw_disk *first, *second;
static uint32_t done_count;

static void setup(bool deferred)
{
    const struct fw_disk_memory_options options = {
        .size = SECTORS * SECTOR, .deferred = deferred, .seed = 5};
    assert_int_equal(fw_disk_memory_create(&memory, &options), 0);
    assert_int_equal(fw_disk_part_open(&first, &memory->disk, 2 * SECTOR, 4 * SECTOR, NULL), 0);
    assert_int_equal(fw_disk_part_open(&second, &memory->disk, 6 * SECTOR, 4 * SECTOR, NULL), 0);
    done_count = 0;
}

static void teardown(void)
{
    fw_disk_close(first);
    fw_disk_close(second);
    fw_disk_close(&memory->disk);
}

static void test_own_offsets(void **state)
{
    (void)state;
    setup(false);
    uint8_t *buffer = fw_disk_buffer(SECTOR);
    memset(buffer, 'a', SECTOR);
    struct fw_disk_op op = {
        .kind = FW_DISK_WRITE, .from = buffer, .size = SECTOR, .offset = 3 * SECTOR};
    assert_int_equal(fw_disk_run(first, &op, NULL), 0);
    for (size_t i = 0; i < SECTORS; i++) {
        assert_int_equal(memory->bytes[i * SECTOR], i == 5 ? 'a' : 0);
    }
    assert_int_equal(op.moved, SECTOR);
    assert_int_equal(op.offset, 3 * SECTOR);
    op.offset = 4 * SECTOR;
    assert_int_equal(fw_disk_run(first, &op, NULL), -ERANGE);
    assert_int_equal(memory->bytes[6 * SECTOR], 0);
    op = (struct fw_disk_op){.kind = FW_DISK_FLUSH};
    assert_int_equal(fw_disk_run(first, &op, NULL), 0);
    assert_int_equal(fw_disk_properties(first)->size, 4 * SECTOR);
    free(buffer);
    teardown();
}

static void test_what_is_no_part(void **state)
{
    (void)state;
    setup(false);
    struct fw_disk *part;
    struct fw_reason reason;
    const uint64_t wrong[][2] = {{0, 0},
                                 {0, (SECTORS + 1) * SECTOR},
                                 {SECTORS * SECTOR, SECTOR},
                                 {UINT64_MAX - SECTOR + 1, 2 * SECTOR},
                                 {1, SECTOR},
                                 {0, SECTOR + 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(fw_disk_part_open(&part, &memory->disk, wrong[i][0], wrong[i][1], &reason),
                         -EINVAL);
        assert_non_null(strstr(reason.text, "no part"));
    }
    teardown();
}

static void counted(struct fw_disk_op *op)
{
    assert_int_equal(op->result, 0);
    done_count++;
}

/* Both parts have operations under way; waiting for one of them loses none of the other's. */
static void test_two_at_once(void **state)
{
    (void)state;
    setup(true);
    struct fw_disk_op ops[2][OPS];
    uint8_t *buffer = fw_disk_buffer(SECTOR);
    memset(buffer, 'b', SECTOR);
    for (size_t i = 0; i < OPS; i++) {
        for (size_t side = 0; side < 2; side++) {
            ops[side][i] = (struct fw_disk_op){.kind = FW_DISK_WRITE,
                                               .from = buffer,
                                               .size = SECTOR,
                                               .offset = i * SECTOR,
                                               .done = counted};
            assert_int_equal(fw_disk_start(side == 0 ? first : second, &ops[side][i]),
                             -EINPROGRESS);
        }
    }
    fw_disk_drain(first);
    assert_true(done_count == OPS);
    fw_disk_drain(second);
    assert_int_equal(done_count, 2 * OPS);
    for (size_t i = 0; i < SECTORS; i++) {
        assert_int_equal(memory->bytes[i * SECTOR], i >= 2 && i < 10 ? 'b' : 0);
    }
    free(buffer);
    teardown();
}

/* A part has no command for it: zeros are written, and nowhere else. */
static void test_zero(void **state)
{
    (void)state;
    setup(false);
    memset(memory->bytes, 'x', SECTORS * SECTOR);
    assert_int_equal(fw_disk_zero(first, SECTOR, 2 * SECTOR, NULL), 0);
    for (uint64_t i = 0; i < SECTORS * SECTOR; i++) {
        bool is_zero = i / SECTOR == 3 || i / SECTOR == 4;
        assert_int_equal(memory->bytes[i], is_zero ? 0 : 'x');
    }
    assert_int_equal(fw_disk_zero(first, 3 * SECTOR, 2 * SECTOR, NULL), -ERANGE);
    teardown();
}

static int guard_says;

static int guard(void *context)
{
    assert_ptr_equal(context, &guard_says);
    return guard_says;
}

/* What the guard refuses does not get to the disk; reading and flushing it does not ask for. */
static void test_guard(void **state)
{
    (void)state;
    uint8_t *sector = fw_disk_buffer(SECTOR);
    struct fw_disk *inner;
    setup(false);
    assert_int_equal(fw_disk_part_open(&inner, first, SECTOR, SECTOR, NULL), 0);
    fw_disk_part_guard(first, guard, &guard_says);
    memset(sector, 7, SECTOR);
    struct fw_disk_op op = {.kind = FW_DISK_WRITE, .from = sector, .size = SECTOR};
    guard_says = -ESTALE;
    assert_int_equal(fw_disk_run(first, &op, NULL), -ESTALE);
    op = (struct fw_disk_op){.kind = FW_DISK_WRITE, .from = sector, .size = SECTOR};
    assert_int_equal(fw_disk_run(inner, &op, NULL), -ESTALE);
    assert_int_equal(memory->bytes[2 * SECTOR], 0);
    assert_int_equal(memory->bytes[3 * SECTOR], 0);
    op = (struct fw_disk_op){.kind = FW_DISK_DISCARD, .size = SECTOR};
    assert_int_equal(fw_disk_run(first, &op, NULL), -ESTALE);
    op = (struct fw_disk_op){.kind = FW_DISK_READ, .into = sector, .size = SECTOR};
    assert_int_equal(fw_disk_run(first, &op, NULL), 0);
    op = (struct fw_disk_op){.kind = FW_DISK_FLUSH};
    assert_int_equal(fw_disk_run(first, &op, NULL), 0);
    guard_says = 0;
    memset(sector, 7, SECTOR);
    op = (struct fw_disk_op){.kind = FW_DISK_WRITE, .from = sector, .size = SECTOR};
    assert_int_equal(fw_disk_run(inner, &op, NULL), 0);
    assert_int_equal(memory->bytes[3 * SECTOR], 7);
    fw_disk_close(inner);
    free(sector);
    teardown();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_offsets), cmocka_unit_test(test_what_is_no_part),
        cmocka_unit_test(test_two_at_once), cmocka_unit_test(test_guard),
        cmocka_unit_test(test_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
