/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what holds for all disks, whatever is behind them: what is refused before a back end is
 * asked, that answers at once run no call-back, that a failed flush is remembered, and how the
 * parts of a transfer add up. Method: a back end of the test's own that answers what it is told.
 */
#include "io/disk_backend.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/fail_memory.h"

enum { SIZE = 1 << 20 };

static struct fw_reason reason;
static char buffer[512] __attribute__((aligned(512)));

struct counted {
    struct fw_disk_op op;
    uint64_t *sum; /* Of the call-backs of all. */
};

static void on_counted(struct fw_disk_op *op)
{
    ++*FW_CONTAINER_OF(op, struct counted, op)->sum;
}

/* Answers what it is told, at once or later. */
static struct {
    struct fw_disk disk;
    int answer;
    int waits;
    struct fw_list pending;
} fake;

static int fake_start(struct fw_disk *own, struct fw_disk_op *op)
{
    assert_ptr_equal(own, &fake.disk);
    assert_int_equal(op->result, -EINPROGRESS);
    assert_int_equal(op->moved, 0);
    assert_int_equal(op->retries, 0);
    if (fake.answer == -EINPROGRESS) {
        fw_list_push_back(&fake.pending, &op->link);
    }
    return fake.answer;
}

static void fake_reap(struct fw_disk *own, struct fw_list *finished)
{
    assert_ptr_equal(own, &fake.disk);
    fw_list_append(finished, &fake.pending);
}

static void fake_wait(struct fw_disk *own)
{
    assert_ptr_equal(own, &fake.disk);
    fake.waits++;
}

static void fake_make(void)
{
    static const struct fw_disk_backend backend = {
        .start = fake_start, .reap = fake_reap, .wait = fake_wait};
    static char name[] = "fake";
    fake.disk = (struct fw_disk){
        .backend = &backend,
        .properties = {.size = SIZE, .sector_size = 512},
        .name = name,
        .fd = -1,
        .depth = 2,
    };
    fw_list_init(&fake.pending);
}

static void test_answers_at_once(void **state)
{
    (void)state;
    uint64_t sum = 0;
    struct counted counted = {.sum = &sum};
    counted.op =
        (struct fw_disk_op){.kind = FW_DISK_READ, .into = buffer, .size = 512, .done = on_counted};
    fake_make();
    fake.answer = -EINPROGRESS;
    memset(&counted.op.link, 0xee, sizeof counted.op.link); /* What was in it does not matter. */
    counted.op.moved = 3;
    counted.op.retries = 4;
    assert_int_equal(fw_disk_start(&fake.disk, &counted.op), -EINPROGRESS);
    counted.op.result = 0;
    assert_int_equal(fw_disk_poll(&fake.disk), 1);
    assert_int_equal(sum, 1);
    assert_int_equal(fw_disk_start(&fake.disk, &counted.op), -EINPROGRESS);
    counted.op.result = 0;
    fw_disk_drain(&fake.disk);
    assert_int_equal(fake.waits, 1); /* It does not just ask again and again. */
    assert_int_equal(sum, 2);
    sum = 0;

    fake.answer = 0;
    for (int i = 0; i < 5; i++) { /* More than `depth`: none is under way. */
        assert_int_equal(fw_disk_start(&fake.disk, &counted.op), 0);
    }
    fake.answer = -EIO;
    assert_int_equal(fw_disk_start(&fake.disk, &counted.op), -EIO);
    assert_int_equal(counted.op.result, -EIO);
    assert_int_equal(fake.disk.in_flight, 0);
    assert_int_equal(sum, 0); /* No call-back. */
    fake.answer = -EINVAL;    /* The system's own, which our checks did not foresee. */
    assert_int_equal(fw_disk_run(&fake.disk, &counted.op, &reason), -EINVAL);
    assert_string_equal(reason.text, "cannot read 512 bytes at 0 of fake; check it and the "
                                     "kernel's log: Invalid argument");
}

/* What the disk cannot do, it is not asked to. */
static void test_no_discard(void **state)
{
    (void)state;
    struct fw_disk_op op = {.kind = FW_DISK_DISCARD, .size = 512};
    fake_make();
    fake.answer = 0;
    assert_int_equal(fw_disk_run(&fake.disk, &op, &reason), -EOPNOTSUPP);
    assert_non_null(strstr(reason.text, "cannot discard 512 bytes at 0 of fake"));
    fake.disk.properties.discard = true;
    assert_int_equal(fw_disk_run(&fake.disk, &op, &reason), 0);
    op.size = (size_t)FW_DISK_TRANSFER_MAX * 2; /* That limit is for transfers. */
    assert_int_equal(fw_disk_run(&fake.disk, &op, &reason), -ERANGE);
    fake.disk.properties.size = op.size;
    assert_int_equal(fw_disk_run(&fake.disk, &op, &reason), 0);
    op = (struct fw_disk_op){.kind = FW_DISK_READ, .into = buffer, .size = FW_DISK_TRANSFER_MAX};
    assert_int_equal(fw_disk_run(&fake.disk, &op, &reason), 0); /* It includes its end. */
}

static void test_buffers(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 512, 4095, 4096, 4097, 8192, 8193};
    for (int round = 0; round < 2; round++) { /* The second time the memory is likely a used one. */
        for (size_t i = 0; i < FW_ARRAY_LENGTH(sizes); i++) {
            char *bytes = fw_disk_buffer(sizes[i]);
            assert_non_null(bytes);
            assert_int_equal((uintptr_t)bytes % FW_DISK_SECTOR_MAX, 0);
            for (size_t j = 0; j < sizes[i]; j++) {
                assert_int_equal(bytes[j], 0);
                bytes[j] = 'x'; /* ASan watches the end. */
            }
            free(bytes);
        }
    }
    fail_memory_after(0);
    assert_null(fw_disk_buffer(1));
}

static void test_failed_flush_is_remembered(void **state)
{
    (void)state;
    uint64_t sum = 0;
    struct counted one = {.op = {.kind = FW_DISK_FLUSH, .done = on_counted}, .sum = &sum};
    struct counted other = one;
    fake_make();
    fake.answer = -EINPROGRESS;
    assert_int_equal(fw_disk_start(&fake.disk, &one.op), -EINPROGRESS);
    assert_int_equal(fw_disk_start(&fake.disk, &other.op), -EINPROGRESS);
    one.op.result = -EIO;
    other.op.result = 0; /* Went well, but what the other one dropped it cannot know. */
    assert_int_equal(fw_disk_poll(&fake.disk), 2);
    assert_int_equal(one.op.result, -EIO);
    assert_int_equal(other.op.result, -EIO);
    fake.answer = 0;
    assert_int_equal(fw_disk_start(&fake.disk, &one.op), -EIO);
    struct fw_disk_op write = {.kind = FW_DISK_WRITE, .from = buffer, .size = 512};
    assert_int_equal(fw_disk_run(&fake.disk, &write, &reason), 0);

    fake_make();
    fake.answer = -ENOSPC;
    assert_int_equal(fw_disk_start(&fake.disk, &one.op), -ENOSPC);
    fake.answer = 0;
    assert_int_equal(fw_disk_start(&fake.disk, &one.op), -ENOSPC);
}

static void test_progress(void **state)
{
    (void)state;
    struct fw_disk_op op = {.kind = FW_DISK_WRITE, .size = 1536};
    assert_false(fw_disk_op_progress(&op, 512));
    assert_int_equal(op.moved, 512);
    assert_int_equal(op.result, -EINPROGRESS);
    assert_false(fw_disk_op_progress(&op, -EINTR));
    assert_false(fw_disk_op_progress(&op, -ECANCELED));
    assert_false(fw_disk_op_progress(&op, -EAGAIN));
    assert_true(fw_disk_op_progress(&op, 1024));
    assert_int_equal(op.result, 0);
    assert_int_equal(op.moved, 1536);
    expect_assert_failure((void)(fw_disk_op_progress(&op, 1) == true));

    op = (struct fw_disk_op){.kind = FW_DISK_WRITE, .size = 1024, .moved = 512};
    assert_true(fw_disk_op_progress(&op, 0)); /* Would go on for ever. */
    assert_int_equal(op.result, -EIO);
    op.kind = FW_DISK_READ;
    assert_true(fw_disk_op_progress(&op, 0));
    assert_int_equal(op.result, -ENODATA);
    assert_true(fw_disk_op_progress(&op, -ENXIO));
    assert_int_equal(op.result, -ENXIO);
    op.kind = FW_DISK_FLUSH;
    assert_false(fw_disk_op_progress(&op, -EINTR));
    assert_true(fw_disk_op_progress(&op, 0));
    assert_int_equal(op.result, 0);
    op.kind = FW_DISK_DISCARD;
    assert_true(fw_disk_op_progress(&op, 0));
    assert_int_equal(op.result, 0);

    op = (struct fw_disk_op){.kind = FW_DISK_READ, .size = 1024};
    int attempts = 1;
    while (!fw_disk_op_progress(&op, -EAGAIN)) {
        attempts++;
    }
    assert_int_equal(attempts, 64);
    assert_int_equal(op.result, -EIO);
}

static int hook_open(struct fw_disk **opened, const struct fw_disk_options *options,
                     struct fw_reason *why)
{
    (void)why;
    assert_string_equal(options->path, "simulated");
    fake_make();
    *opened = &fake.disk;
    return 0;
}

static void test_hook(void **state)
{
    (void)state;
    static const struct fw_disk_hooks hooks = {.open = hook_open};
    const struct fw_disk_options options = {.path = "simulated"};
    struct fw_disk *disk = NULL;
    fw_disk_hooks = &hooks;
    int rc = fw_disk_open(&disk, &options, &reason);
    fw_disk_hooks = NULL;
    assert_int_equal(rc, 0);
    assert_ptr_equal(disk, &fake.disk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_at_once), cmocka_unit_test(test_no_discard),
        cmocka_unit_test(test_buffers),         cmocka_unit_test(test_failed_flush_is_remembered),
        cmocka_unit_test(test_progress),        cmocka_unit_test(test_hook),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
