/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the io_uring engine asks the kernel for the right things, goes on after short transfers,
 * and loses nothing when the kernel does not take an entry at once.
 * Method: io_uring_submit() is defined again here. It sees the entries on their way, can make them
 * shorter, which gives real short transfers, and can refuse to hand them over.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "io/disk.h"
#include "support/descriptor.h"
#include "support/skip.h"

enum { SIZE = 64 << 10, SECTOR = 4096 };

static struct {
    unsigned part_max; /* Not 0: no entry moves more than this. */
    int refusals;      /* So many submissions fail with -EAGAIN. */
    int submissions;
    bool no_eventfd;
    struct io_uring_sqe last;
} fault;

int io_uring_submit(struct io_uring *ring)
{
    fault.submissions++;
    if (fault.refusals > 0) {
        fault.refusals--;
        return -EAGAIN;
    }
    for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; i++) {
        struct io_uring_sqe *entry = &ring->sq.sqes[i & *ring->sq.kring_mask];
        if (fault.part_max != 0 && entry->len > fault.part_max) {
            entry->len = fault.part_max;
        }
        fault.last = *entry;
    }
    return io_uring_submit_and_wait(ring, 0); /* The same by another name. */
}

int io_uring_register_eventfd(struct io_uring *ring, int fd)
{
    if (fault.no_eventfd) {
        return -EPERM;
    }
    return syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_EVENTFD, &fd, 1) != 0
               ? -errno
               : 0;
}

static char path[] = "/tmp/fw-disk-uring-XXXXXX";
static struct fw_disk *disk;
static struct fw_reason reason;
static uint8_t *buffer, *expected;

static int set_up(void **state)
{
    (void)state;
    int fd = mkostemp(path, O_CLOEXEC);
    buffer = fw_disk_buffer(SIZE);
    expected = fw_disk_buffer(SIZE);
    if (fd < 0 || ftruncate(fd, SIZE) != 0 || close(fd) != 0 || buffer == NULL) {
        return -1;
    }
    for (int i = 0; i < SIZE; i++) {
        expected[i] = (uint8_t)(i * 7 + i / 256);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(buffer);
    free(expected);
    return unlink(path);
}

static void disk_open(void)
{
    const struct fw_disk_options options = {
        .path = path, .engine = FW_DISK_ENGINE_URING, .depth = 4};
    memset(&fault, 0, sizeof fault);
    if (fw_disk_open(&disk, &options, &reason) != 0) {
        fw_test_skip("io-uring", reason.text);
    }
}

static int run(enum fw_disk_kind kind, bool sync)
{
    struct fw_disk_op op = {.kind = kind, .into = buffer, .size = SIZE, .sync = sync};
    return fw_disk_run(disk, &op, &reason);
}

static void test_short_transfers(void **state)
{
    (void)state;
    disk_open();
    fault.part_max = 1000;
    memcpy(buffer, expected, SIZE);
    assert_int_equal(run(FW_DISK_WRITE, false), 0);
    assert_int_equal(fault.submissions, 66);
    memset(buffer, 0, SIZE);
    assert_int_equal(run(FW_DISK_READ, false), 0);
    assert_memory_equal(buffer, expected, SIZE);
    fault.part_max = 0;
    memset(buffer, 0, SIZE);
    assert_int_equal(run(FW_DISK_READ, false), 0);
    assert_memory_equal(buffer, expected, SIZE);
    fw_disk_close(disk);
}

static void test_flush_and_sync(void **state)
{
    (void)state;
    disk_open();
    assert_int_equal(run(FW_DISK_WRITE, false), 0);
    assert_int_equal(fault.last.opcode, IORING_OP_WRITE);
    assert_int_equal(fault.last.rw_flags, 0);
    assert_int_equal(run(FW_DISK_WRITE, true), 0);
    assert_int_equal(fault.last.rw_flags, RWF_DSYNC);
    assert_int_equal(run(FW_DISK_FLUSH, false), 0);
    assert_int_equal(fault.last.opcode, IORING_OP_FSYNC);
    assert_int_equal(fault.last.fsync_flags, IORING_FSYNC_DATASYNC);
    fw_disk_close(disk);
}

/* Entries that the kernel would not take are handed over again, without anyone's asking. */
static void test_refused_submission(void **state)
{
    (void)state;
    disk_open();
    fault.refusals = 5;
    memcpy(buffer, expected, SIZE);
    assert_int_equal(run(FW_DISK_WRITE, false), 0);
    assert_int_equal(fault.refusals, 0);
    assert_int_equal(fault.submissions, 6);
    memset(buffer, 0, SIZE);
    assert_int_equal(run(FW_DISK_READ, false), 0);
    assert_memory_equal(buffer, expected, SIZE);
    fw_disk_close(disk);
}

static int hook_create(struct fw_thread *thread)
{
    (void)thread;
    return -EAGAIN;
}

static void hook_ignore_mutex(struct fw_mutex *mutex)
{
    (void)mutex;
}

/* The thread for discards cannot be made: an error at once, and another attempt the next time. */
static void test_discard_without_thread(void **state)
{
    (void)state;
    static const struct fw_thread_hooks hooks = {
        .create = hook_create, .lock = hook_ignore_mutex, .unlock = hook_ignore_mutex};
    disk_open();
    if (!fw_disk_properties(disk)->discard) {
        fw_disk_close(disk);
        fw_test_skip("file-holes", "the temporary folder's file system has none");
    }
    fw_thread_hooks = &hooks;
    int rc = run(FW_DISK_DISCARD, false);
    fw_thread_hooks = NULL;
    assert_int_equal(rc, -ENOMEM);
    assert_int_equal(run(FW_DISK_DISCARD, false), 0);
    fw_disk_close(disk);
}

/* Enough descriptors for the file and its eventfd, but none for the ring: both are closed again. */
static void test_no_descriptor_for_the_ring(void **state)
{
    (void)state;
    const struct fw_disk_options options = {.path = path, .engine = FW_DISK_ENGINE_URING};
    struct rlimit before, few;
    int first = dup(0);
    int second = dup(0);
    assert_true(first > 0 && second > first);
    assert_int_equal(close(first) | close(second), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)second + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int rc = fw_disk_open(&disk, &options, &reason);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(rc, -EMFILE);
    assert_int_equal(fcntl(first, F_GETFD), -1);
    assert_int_equal(fcntl(second, F_GETFD), -1);
}

static void test_no_eventfd(void **state)
{
    (void)state;
    const struct fw_disk_options options = {
        .path = path, .engine = FW_DISK_ENGINE_URING, .depth = 4};
    disk_open(); /* Or there is nothing to test. */
    fw_disk_close(disk);
    int next = descriptor_next();
    fault.no_eventfd = true;
    assert_int_equal(fw_disk_open(&disk, &options, &reason), -EPERM);
    assert_non_null(strstr(reason.text, "choose the threads engine"));
    assert_int_equal(descriptor_next(), next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_transfers),
        cmocka_unit_test(test_flush_and_sync),
        cmocka_unit_test(test_refused_submission),
        cmocka_unit_test(test_discard_without_thread),
        cmocka_unit_test(test_no_descriptor_for_the_ring),
        cmocka_unit_test(test_no_eventfd),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
