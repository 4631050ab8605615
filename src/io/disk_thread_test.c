/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the threads engine asks the system for the right things, goes on after short and
 * interrupted calls, and comes to no harm where threads cannot be made.
 * Method: the system calls are defined again here, so that a test sees them and can cut them short.
 */
#include "io/disk_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

enum { SIZE = 64 << 10 };

/* Set by the main thread while no operation is under way, used by the disk's one worker. */
static struct {
    size_t part_max; /* Not 0: no call moves more than this. */
    int error;       /* Not 0: every other call fails with this... */
    int calls;       /* ... and this is how many there were. */
    int flags_last;  /* Of the last write. */
    int flushes, flush_errno;
} fault;

static bool fault_strikes(void)
{
    errno = fault.error;
    return fault.error != 0 && fault.calls++ % 2 == 0;
}

static size_t part(size_t size)
{
    return fault.part_max != 0 && fault.part_max < size ? fault.part_max : size;
}

ssize_t pread(int fd, void *into, size_t size, off_t offset)
{
    return fault_strikes() ? -1 : syscall(SYS_pread64, fd, into, part(size), offset);
}

ssize_t pwritev2(int fd, const struct iovec *vector, int count, off_t offset, int flags)
{
    assert_int_equal(count, 1);
    fault.flags_last = flags;
    if (fault_strikes()) {
        return -1;
    }
    return syscall(SYS_pwrite64, fd, vector[0].iov_base, part(vector[0].iov_len), offset);
}

int fdatasync(int fd)
{
    fault.flushes++;
    errno = fault.flush_errno;
    return fault.flush_errno != 0 ? -1 : (int)syscall(SYS_fdatasync, fd);
}

static char path[] = "/tmp/fw-disk-thread-XXXXXX";
static struct fw_disk *disk;
static struct fw_reason reason;
static uint8_t *buffer, *expected;

static struct fw_disk_options options = {
    .path = path, .engine = FW_DISK_ENGINE_THREADS, .threads = 1};

static int set_up(void **state)
{
    (void)state;
    int fd = mkostemp(path, O_CLOEXEC);
    buffer = fw_disk_buffer(SIZE);
    expected = fw_disk_buffer(SIZE);
    if (fd < 0 || ftruncate(fd, SIZE) != 0 || close(fd) != 0 || buffer == NULL) {
        return -1;
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

static int disk_open(void **state)
{
    (void)state;
    memset(&fault, 0, sizeof fault);
    return fw_disk_open(&disk, &options, &reason);
}

static int disk_close(void **state)
{
    (void)state;
    fw_disk_close(disk);
    return 0;
}

static int run(enum fw_disk_kind kind, bool sync)
{
    struct fw_disk_op op = {.kind = kind, .into = buffer, .size = SIZE, .sync = sync};
    return fw_disk_run(disk, &op, &reason);
}

static void test_short_and_interrupted(void **state)
{
    (void)state;
    for (int i = 0; i < SIZE; i++) {
        expected[i] = (uint8_t)(i * 7 + i / 256);
    }
    fault.part_max = 1000; /* Not even whole sectors. */
    fault.error = EINTR;
    memcpy(buffer, expected, SIZE);
    assert_int_equal(run(FW_DISK_WRITE, false), 0);
    assert_int_equal(fault.calls, 2 * 66);
    memset(buffer, 0, SIZE);
    assert_int_equal(run(FW_DISK_READ, false), 0);
    assert_memory_equal(buffer, expected, SIZE);
    memset(&fault, 0, sizeof fault);
    memset(buffer, 0, SIZE);
    assert_int_equal(run(FW_DISK_READ, false), 0);
    assert_memory_equal(buffer, expected, SIZE);
}

static void test_flush_and_sync(void **state)
{
    (void)state;
    assert_int_equal(run(FW_DISK_WRITE, false), 0);
    assert_int_equal(fault.flags_last, 0);
    assert_int_equal(run(FW_DISK_WRITE, true), 0);
    assert_int_equal(fault.flags_last, RWF_DSYNC);
    assert_int_equal(fault.flushes, 0);
    assert_int_equal(run(FW_DISK_FLUSH, false), 0);
    assert_int_equal(fault.flushes, 1);
    fault.flush_errno = EIO;
    assert_int_equal(run(FW_DISK_FLUSH, false), -EIO);
    fault.flush_errno = 0;
    assert_int_equal(run(FW_DISK_FLUSH, false), -EIO);
    assert_int_equal(fault.flushes, 2); /* Remembered, not tried again. */
}

/*
 * Root has no limit of processes, so the hook of base/thread.h refuses instead: the third thread
 * cannot be made, and the two before it are ended.
 */
static int created, joined;

static int hook_create(struct fw_thread *thread)
{
    (void)thread;
    return created++ < 2 ? 0 : -EAGAIN;
}

static void hook_join(struct fw_thread *thread)
{
    (void)thread;
    joined++;
}

static void hook_lock(struct fw_mutex *mutex)
{
    (void)mutex;
}

static void hook_unpark(struct fw_parker *parker)
{
    (void)parker;
}

static void test_no_threads(void **state)
{
    (void)state;
    static const struct fw_thread_hooks hooks = {
        .create = hook_create,
        .join = hook_join,
        .lock = hook_lock,
        .unlock = hook_lock,
        .unpark = hook_unpark,
    };
    struct fw_disk_options four = options;
    four.threads = 4;
    fw_thread_hooks = &hooks;
    int rc = fw_disk_open(&disk, &four, &reason);
    fw_thread_hooks = NULL;
    assert_int_equal(rc, -EAGAIN);
    assert_non_null(strstr(reason.text, "cannot start 4 threads for "));
    assert_int_equal(created, 3);
    assert_int_equal(joined, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_short_and_interrupted, disk_open, disk_close),
        cmocka_unit_test_setup_teardown(test_flush_and_sync, disk_open, disk_close),
        cmocka_unit_test(test_no_threads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
