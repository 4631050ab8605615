/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a disk finds out rightly what it stands on, also where that is unusual: file systems
 * without direct I/O, without holes, without reservation of room, with large sectors, devices with
 * odd ones, kernels that do not tell.
 * Method: the system calls that ask are defined again here and answer what the test wants.
 */
#include "io/disk_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

enum { SIZE = 64 << 10, SIZE_WANTED = 2 * SIZE, NOT_TOLD = -1 };

static struct {
    int open_errno;  /* Not 0: an open with O_DIRECT fails so. */
    int direct_unit; /* What statx() tells. */
    int statx_errno;
    int fcntl_failing; /* The number of the change of flags that fails, from 1. */
    int hole_errno;    /* Of making holes... */
    int room_errno;    /* ... and of reserving room. */
    int interruptions; /* So many calls of fallocate() and open() are interrupted first. */
    int room_interruptions;
    int fstat_errno;
    bool no_memory; /* strdup() has none. */
    int truncations;
    int64_t hole_offset; /* Of the last hole. */
    int64_t hole_size;
    bool block_device; /* fstat() says so. */
    int sector_size;
    uint64_t size;
    int ioctl_failing;      /* The number of the ioctl that fails, from 1. */
    const char *queue_file; /* The one file of the queue that exists in /sys, ... */
    const char *queue_text; /* ... and what it says. */
} fake;

static bool interrupted(void)
{
    if (fake.interruptions == 0) {
        return false;
    }
    fake.interruptions--;
    errno = EINTR;
    return true;
}

static int queue_open(const char *path)
{
    if (fake.queue_file == NULL || strcmp(path, fake.queue_file) != 0) {
        errno = ENOENT;
        return -1;
    }
    int fd = memfd_create("queue", MFD_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t size = (ssize_t)strlen(fake.queue_text);
    assert_int_equal(write(fd, fake.queue_text, (size_t)size), size);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = va_arg(arguments, mode_t);
    va_end(arguments);
    if (interrupted()) {
        return -1;
    }
    if (strncmp(path, "/sys/", 5) == 0) {
        return queue_open(path);
    }
    if ((flags & O_DIRECT) != 0 && fake.open_errno != 0) {
        errno = fake.open_errno;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int statx(int fd, const char *restrict path, int flags, unsigned mask, struct statx *restrict into)
{
    assert_string_equal(path, "");
    assert_int_equal(flags, AT_EMPTY_PATH);
    errno = fake.statx_errno;
    if (fake.statx_errno != 0) {
        return -1;
    }
    memset(into, 0, sizeof *into);
    if (fake.direct_unit != NOT_TOLD) {
        into->stx_mask = STATX_DIOALIGN & mask;
        into->stx_dio_offset_align = (uint32_t)fake.direct_unit;
    }
    assert_true(fcntl(fd, F_GETFD) >= 0);
    return 0;
}

int fcntl(int fd, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    long argument = va_arg(arguments, long);
    va_end(arguments);
    if (command == F_SETFL && fake.fcntl_failing > 0 && --fake.fcntl_failing == 0) {
        errno = EPERM;
        return -1;
    }
    return (int)syscall(SYS_fcntl, fd, command, argument);
}

int fallocate(int fd, int mode, off_t offset, off_t size)
{
    if (interrupted()) {
        return -1;
    }
    if (mode == 0 && fake.room_interruptions > 0) {
        fake.room_interruptions--;
        errno = EINTR;
        return -1;
    }
    if (mode == 0 && fake.room_errno != 0) {
        errno = fake.room_errno;
        return -1;
    }
    if (mode == 0) {
        return (int)syscall(SYS_fallocate, fd, mode, offset, size);
    }
    assert_int_equal(mode, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
    fake.hole_offset = offset;
    fake.hole_size = size;
    errno = fake.hole_errno != 0 ? fake.hole_errno : EIO; /* Means nothing after a success. */
    return fake.hole_errno != 0 ? -1 : 0;
}

int ftruncate(int fd, off_t size)
{
    fake.truncations++;
    return (int)syscall(SYS_ftruncate, fd, size);
}

int fstat(int fd, struct stat *status)
{
    if (fake.fstat_errno != 0) {
        errno = fake.fstat_errno;
        return -1;
    }
    int rc = (int)syscall(SYS_newfstatat, fd, "", status, AT_EMPTY_PATH);
    if (rc == 0 && fake.block_device) {
        status->st_mode = (status->st_mode & ~(mode_t)S_IFMT) | S_IFBLK;
        status->st_rdev = 0; /* No device has this number, and so none of its files exist. */
    }
    return rc;
}

char *strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = fake.no_memory ? NULL : malloc(size);
    return copy != NULL ? memcpy(copy, text, size) : NULL;
}

int ioctl(int fd, unsigned long request, ...)
{
    static int number;
    va_list arguments;
    va_start(arguments, request);
    void *into = va_arg(arguments, void *);
    va_end(arguments);
    assert_true(fd >= 0);
    number = request == BLKSSZGET ? 1 : number + 1;
    if (number == fake.ioctl_failing) {
        errno = ENOTTY;
        return -1;
    }
    if (request == BLKSSZGET) {
        *(int *)into = fake.sector_size;
    } else if (request == BLKPBSZGET) {
        *(unsigned *)into = 4096;
    } else {
        assert_int_equal(request, BLKGETSIZE64);
        *(uint64_t *)into = fake.size;
    }
    return 0;
}

static char path[] = "/tmp/fw-disk-file-XXXXXX";
static struct fw_disk *disk;
static struct fw_reason reason;

static int set_up(void **state)
{
    (void)state;
    int fd = mkostemp(path, O_CLOEXEC);
    return fd >= 0 && syscall(SYS_ftruncate, fd, SIZE) == 0 && close(fd) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

static int reset(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.direct_unit = 512;
    fake.sector_size = 512;
    fake.size = SIZE;
    return truncate(path, SIZE);
}

static int disk_open(unsigned flags)
{
    const struct fw_disk_options options = {
        .path = path, .flags = flags, .engine = FW_DISK_ENGINE_THREADS, .size = SIZE_WANTED};
    return fw_disk_open(&disk, &options, &reason);
}

static bool descriptor_is_direct(void)
{
    const struct fw_disk_file *file = FW_CONTAINER_OF(disk, struct fw_disk_file, disk);
    int flags = (int)syscall(SYS_fcntl, file->fd, F_GETFL);
    assert_int_equal(flags & O_NONBLOCK, 0);
    return (flags & O_DIRECT) != 0;
}

static int unused_descriptor(void)
{
    int fd = dup(0);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    return fd;
}

/* Opens for direct I/O and compares. */
static void direct_check(bool direct, uint32_t sector_size)
{
    assert_int_equal(disk_open(FW_DISK_DIRECT), 0);
    assert_true(fw_disk_properties(disk)->direct == direct);
    assert_true(descriptor_is_direct() == direct);
    assert_int_equal(fw_disk_properties(disk)->sector_size, sector_size);
    fw_disk_close(disk);
}

static void test_direct(void **state)
{
    (void)state;
    direct_check(true, 512);
    fake.direct_unit = 1;
    direct_check(true, 512); /* Never smaller than a sector. */
    fake.direct_unit = 4096;
    direct_check(true, 4096);
    fake.direct_unit = 0; /* Not for this file. */
    direct_check(false, 512);
    fake.direct_unit = NOT_TOLD;
    direct_check(true, 4096);
    fake.direct_unit = 512;
    fake.statx_errno = ENOSYS;
    direct_check(true, 4096);
    fake.statx_errno = 0;
    fake.open_errno = EINVAL; /* The file system has no such thing. */
    direct_check(false, 512);
    fake.open_errno = EACCES;
    assert_int_equal(disk_open(FW_DISK_DIRECT), -EACCES);
    assert_int_equal(disk_open(0), 0);
    assert_false(fw_disk_properties(disk)->direct);
    fw_disk_close(disk);
    fake.open_errno = 0;
    fake.direct_unit = 0;
    int unused = unused_descriptor();
    for (int failing = 1; failing <= 2; failing++) {
        fake.fcntl_failing = failing;
        assert_int_equal(disk_open(FW_DISK_DIRECT), -EPERM);
    }
    assert_int_equal(unused_descriptor(), unused);
    fake.direct_unit = 8192; /* More than we know how to handle. */
    assert_int_equal(disk_open(FW_DISK_DIRECT), -EINVAL);
    assert_non_null(strstr(reason.text, "sectors of 8192 bytes are not supported"));
}

static void test_interrupted(void **state)
{
    (void)state;
    fake.interruptions = 3; /* The open. */
    assert_int_equal(disk_open(0), 0);
    fw_disk_close(disk);
    assert_int_equal(fake.interruptions, 0);
    assert_int_equal(disk_open(0), 0);
    fake.interruptions = 3;
    struct fw_disk_op op = {.kind = FW_DISK_DISCARD, .size = 1024, .offset = 512};
    assert_int_equal(fw_disk_run(disk, &op, &reason), 0);
    assert_int_equal(fake.interruptions, 0);
    assert_int_equal(fake.hole_offset, 512);
    assert_int_equal(fake.hole_size, 1024);
    fw_disk_close(disk);
}

static void test_holes(void **state)
{
    (void)state;
    assert_int_equal(disk_open(0), 0);
    assert_true(fw_disk_properties(disk)->discard);
    assert_true(fake.hole_offset >= SIZE); /* The attempt touched nothing. */
    fw_disk_close(disk);
    fake.hole_errno = EOPNOTSUPP;
    assert_int_equal(disk_open(0), 0);
    assert_false(fw_disk_properties(disk)->discard);
    fw_disk_close(disk);
    fake.hole_errno = 0;
    assert_int_equal(disk_open(FW_DISK_READ_ONLY), 0);
    assert_false(fw_disk_properties(disk)->discard);
    fw_disk_close(disk);
}

static void test_room(void **state)
{
    (void)state;
    static const int cannot[] = {EOPNOTSUPP, ENOSYS};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cannot); i++) {
        (void)reset(NULL);
        fake.room_errno = cannot[i];
        assert_int_equal(disk_open(FW_DISK_CREATE), 0);
        assert_int_equal(fake.truncations, 1); /* Then at least the size is right. */
        assert_int_equal(fw_disk_properties(disk)->size, SIZE_WANTED);
        fw_disk_close(disk);
    }
    assert_int_equal(disk_open(FW_DISK_CREATE), 0); /* Long enough already. */
    assert_int_equal(fake.truncations, 1);
    fw_disk_close(disk);
    (void)reset(NULL);
    fake.room_errno = ENOSPC;
    assert_int_equal(disk_open(FW_DISK_CREATE), -ENOSPC);
    assert_int_equal(fake.truncations, 0);
    assert_int_equal(access(path, F_OK), 0); /* It was there before and stays. */
    assert_int_equal(disk_open(0), 0);       /* Nothing is reserved for who does not ask. */
    assert_int_equal(fw_disk_properties(disk)->size, SIZE);
    fw_disk_close(disk);

    (void)reset(NULL);
    assert_int_equal(truncate(path, SIZE_WANTED - 1), 0); /* The last byte counts. */
    fake.room_interruptions = 2;
    assert_int_equal(disk_open(FW_DISK_CREATE), 0);
    assert_int_equal(fake.room_interruptions, 0);
    assert_int_equal(fw_disk_properties(disk)->size, SIZE_WANTED);
    fw_disk_close(disk);
}

/* What is made belongs to its owner alone, whatever the umask allows. */
static void test_mode(void **state)
{
    (void)state;
    struct stat status;
    assert_int_equal(unlink(path), 0);
    mode_t mask = umask(0);
    int rc = disk_open(FW_DISK_CREATE);
    (void)umask(mask);
    assert_int_equal(rc, 0);
    fw_disk_close(disk);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
}

/* A device has its queue beside it, or, as a partition, one level up. */
static void test_discarding_devices(void **state)
{
    (void)state;
    static const char *const files[] = {"/sys/dev/block/0:0/queue/discard_max_bytes",
                                        "/sys/dev/block/0:0/../queue/discard_max_bytes"};
    fake.block_device = true;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(files); i++) {
        fake.queue_file = files[i];
        fake.queue_text = "2147450880\n";
        assert_int_equal(disk_open(0), 0);
        assert_true(fw_disk_properties(disk)->discard);
        fw_disk_close(disk);
        fake.queue_text = "0\n";
        assert_int_equal(disk_open(0), 0);
        assert_false(fw_disk_properties(disk)->discard);
        fw_disk_close(disk);
    }
}

static void test_devices(void **state)
{
    (void)state;
    static const int odd[] = {0, 256, 520, 8192};
    fake.block_device = true;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(odd); i++) {
        fake.sector_size = odd[i];
        assert_int_equal(disk_open(0), -EINVAL);
        assert_non_null(strstr(reason.text, "bytes are not supported"));
    }
    fake.sector_size = 4096;
    fake.size = 4095;
    assert_int_equal(disk_open(0), -EINVAL);
    assert_non_null(strstr(reason.text, "it has not even one sector of 4096 bytes"));
    fake.size = 4096 + 512;
    assert_int_equal(disk_open(FW_DISK_DIRECT), 0);
    assert_int_equal(fw_disk_properties(disk)->size, 4096);
    assert_int_equal(fw_disk_properties(disk)->sector_size, 4096);
    assert_int_equal(fw_disk_properties(disk)->physical_size, 4096);
    assert_true(fw_disk_properties(disk)->direct);
    assert_false(fw_disk_properties(disk)->discard); /* Nobody says that it could. */
    fw_disk_close(disk);
    for (fake.ioctl_failing = 1; fake.ioctl_failing <= 3; fake.ioctl_failing++) {
        assert_int_equal(disk_open(0), -ENOTTY);
        assert_non_null(strstr(reason.text, "cannot examine"));
    }
}

/* The second one, since an open disk has two. */
static int second_free_descriptor(void)
{
    int first = dup(0);
    int second = dup(0);
    assert_true(first > 0 && second > first);
    assert_int_equal(close(first), 0);
    assert_int_equal(close(second), 0);
    return second;
}

/* Opening fails at each of its steps, and leaves no descriptor behind; nor does closing. */
static void test_nothing_stays_open(void **state)
{
    (void)state;
    int free_before = second_free_descriptor();
    assert_int_equal(disk_open(0), 0);
    fw_disk_close(disk);
    assert_int_equal(second_free_descriptor(), free_before);
    fake.fstat_errno = EIO;
    assert_int_equal(disk_open(0), -EIO);
    assert_non_null(strstr(reason.text, "cannot examine"));
    assert_int_equal(disk_open(FW_DISK_CREATE), -EIO);
    assert_non_null(strstr(reason.text, "bytes long"));
    fake.fstat_errno = 0;
    fake.no_memory = true;
    assert_int_equal(disk_open(0), -ENOMEM);
    assert_non_null(strstr(reason.text, "cannot open"));
    assert_int_equal(second_free_descriptor(), free_before);
}

/* The largest depth and number of threads work; 0 is a descriptor like any other. */
static void test_edges(void **state)
{
    (void)state;
    const struct fw_disk_options options = {.path = path,
                                            .engine = FW_DISK_ENGINE_THREADS,
                                            .depth = FW_DISK_DEPTH_MAX,
                                            .threads = FW_DISK_THREADS_MAX};
    assert_int_equal(fw_disk_open(&disk, &options, &reason), 0);
    fw_disk_close(disk);

    int saved = dup(0);
    assert_true(saved > 0);
    assert_int_equal(close(0), 0);
    errno = EINTR; /* Of something else, and long past. */
    int rc = disk_open(0);
    int fd = rc == 0 ? FW_CONTAINER_OF(disk, struct fw_disk_file, disk)->fd : -1;
    if (rc == 0) {
        fw_disk_close(disk);
    }
    assert_int_equal(dup2(saved, 0), 0);
    assert_int_equal(close(saved), 0);
    assert_int_equal(rc, 0);
    assert_int_equal(fd, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_direct, reset),
        cmocka_unit_test_setup(test_interrupted, reset),
        cmocka_unit_test_setup(test_holes, reset),
        cmocka_unit_test_setup(test_room, reset),
        cmocka_unit_test_setup(test_mode, reset),
        cmocka_unit_test_setup(test_devices, reset),
        cmocka_unit_test_setup(test_discarding_devices, reset),
        cmocka_unit_test_setup(test_nothing_stays_open, reset),
        cmocka_unit_test_setup(test_edges, reset),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
