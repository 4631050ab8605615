/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the engines keep the contract of io/disk.h on files and on block devices: every operation
 * is answered exactly once and means all of its bytes, errors are reported with their reason, and
 * too many operations are refused.
 * Method: the same tests on each engine, with and without direct I/O, in a temporary folder; then,
 * where the user may, on a loop device and on a full file system. What the disk did is compared
 * with what other means see in the file. disk_backend_test.c has the rules that no engine decides.
 */
#include "io/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "io/disk_backend.h"
#include "io/disk_file.h"
#include "io/random.h"
#include "io/reactor.h"
#include "support/fail_memory.h"
#include "support/skip.h"

enum { SIZE = 1 << 20, DEPTH = 16 };
#define SECTOR ((size_t)4096) /* A multiple of any disk's. */

struct way {
    enum fw_disk_engine engine;
    unsigned flags;
    const char *name;
};
static struct way threads = {FW_DISK_ENGINE_THREADS, 0, "threads"};
static struct way threads_direct = {FW_DISK_ENGINE_THREADS, FW_DISK_DIRECT, "threads"};
static struct way uring = {FW_DISK_ENGINE_URING, 0, "io_uring"};
static struct way uring_direct = {FW_DISK_ENGINE_URING, FW_DISK_DIRECT, "io_uring"};
static struct way caller = {FW_DISK_ENGINE_CALLER, 0, "caller"};
static struct way caller_direct = {FW_DISK_ENGINE_CALLER, FW_DISK_DIRECT, "caller"};

static char folder[] = "/tmp/fw-disk-XXXXXX";
static char path[64]; /* Of the file that tests may use as a disk. */
static struct fw_disk *disk;
static struct fw_reason reason;
static uint8_t *buffer, *model; /* SIZE bytes each. */

static int group_set_up(void **state)
{
    (void)state;
    buffer = fw_disk_buffer(SIZE);
    model = fw_disk_buffer(SIZE);
    (void)signal(SIGXFSZ, SIG_IGN);
    if (buffer == NULL || model == NULL || mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s/disk", folder);
    return 0;
}

static int group_tear_down(void **state)
{
    (void)state;
    free(buffer);
    free(model);
    return rmdir(folder);
}

static int file_remove(void **state)
{
    (void)state;
    return unlink(path) == 0 || errno == ENOENT ? 0 : -1;
}

/* Opens `where` as `way` says; skips the test where the kernel has no io_uring for us. */
static void disk_open(const struct way *way, const char *where, unsigned flags)
{
    const struct fw_disk_options options = {
        .path = where,
        .engine = way->engine,
        .flags = way->flags | flags,
        .size = SIZE,
        .depth = DEPTH,
    };
    int rc = fw_disk_open(&disk, &options, &reason);
    if (way->engine == FW_DISK_ENGINE_URING && strstr(reason.text, "io_uring") != NULL && rc != 0) {
        fw_test_skip("io-uring", reason.text);
    }
    if (rc != 0) {
        fail_msg("%s", reason.text);
    }
}

static void disk_close(void)
{
    fw_disk_close(disk);
    disk = NULL;
}

static int transfer(enum fw_disk_kind kind, uint64_t offset, size_t size)
{
    struct fw_disk_op op = {.kind = kind, .into = buffer, .size = size, .offset = offset};
    int rc = fw_disk_run(disk, &op, &reason);
    assert_int_equal(op.result, rc);
    if (rc == 0 && (kind == FW_DISK_READ || kind == FW_DISK_WRITE)) {
        assert_int_equal(op.moved, size);
    }
    return rc;
}

static void test_properties(void **state)
{
    const struct way *way = *state;
    disk_open(way, path, FW_DISK_CREATE);
    const struct fw_disk_properties *properties = fw_disk_properties(disk);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, SIZE);
    assert_true(status.st_blocks * 512 >= SIZE); /* Room is reserved. */
    assert_int_equal(properties->size, SIZE);
    assert_int_equal(properties->physical_size, status.st_blksize);
    assert_in_range(properties->sector_size, 512, SECTOR);
    assert_string_equal(properties->engine, way->name);
    assert_false(properties->read_only);
    assert_true(properties->created);
    assert_true(properties->direct || (way->flags & FW_DISK_DIRECT) == 0 ||
                properties->sector_size == 512);
    int flags = fcntl(FW_CONTAINER_OF(disk, struct fw_disk_file, disk)->fd, F_GETFL);
    assert_true(((flags & O_DIRECT) != 0) == properties->direct);
    assert_true(fw_disk_fd(disk) >= 0);
    disk_close();

    /* A second time the file is there; it is neither cut nor made again, but may be extended. */
    assert_int_equal(truncate(path, 2 * SIZE + 100), 0);
    disk_open(way, path, FW_DISK_CREATE);
    assert_int_equal(fw_disk_properties(disk)->size, 2 * SIZE); /* Whole sectors only. */
    disk_close();
    assert_int_equal(truncate(path, SIZE / 2), 0);
    disk_open(way, path, FW_DISK_CREATE);
    assert_int_equal(fw_disk_properties(disk)->size, SIZE);
    disk_close();
    assert_int_equal(truncate(path, SIZE / 2), 0);
    disk_open(way, path, FW_DISK_READ_ONLY);
    assert_int_equal(fw_disk_properties(disk)->size, SIZE / 2);
    assert_true(fw_disk_properties(disk)->read_only);
    disk_close();
}

static void file_compare(const char *where)
{
    int fd = open(where, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, buffer, SIZE, 0), SIZE);
    assert_int_equal(close(fd), 0);
    assert_memory_equal(buffer, model, SIZE);
}

static void test_round_trip(void **state)
{
    struct fw_random generator;
    fw_random_init(&generator, 1);
    disk_open(*state, path, FW_DISK_CREATE);
    fw_random_fill(&generator, model, SIZE);
    for (uint64_t offset = 0, size = SECTOR; offset < SIZE; offset += size, size *= 2) {
        size = size < SIZE - offset ? size : SIZE - offset;
        memcpy(buffer, model + offset, size);
        assert_int_equal(transfer(FW_DISK_WRITE, offset, size), 0);
    }
    struct fw_disk_op op = {.kind = FW_DISK_WRITE, .from = model, .size = SECTOR, .sync = true};
    assert_int_equal(fw_disk_run(disk, &op, &reason), 0);
    assert_int_equal(transfer(FW_DISK_FLUSH, 0, 0), 0);
    file_compare(path);
    memset(buffer, 0, SIZE);
    assert_int_equal(transfer(FW_DISK_READ, 0, SIZE), 0);
    assert_memory_equal(buffer, model, SIZE);
    memset(buffer, 0, SIZE);
    assert_int_equal(transfer(FW_DISK_READ, SIZE - SECTOR, SECTOR), 0);
    assert_memory_equal(buffer, model + SIZE - SECTOR, SECTOR);
    disk_close();
}

static void test_discard(void **state)
{
    struct stat before, after;
    disk_open(*state, path, FW_DISK_CREATE);
    memset(buffer, 'x', SIZE);
    assert_int_equal(transfer(FW_DISK_WRITE, 0, SIZE), 0);
    if (!fw_disk_properties(disk)->discard) {
        assert_int_equal(transfer(FW_DISK_DISCARD, 0, SIZE / 2), -EOPNOTSUPP);
        disk_close();
        fw_test_skip("file-holes", "the temporary folder's file system has none");
    }
    assert_int_equal(transfer(FW_DISK_FLUSH, 0, 0), 0);
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(transfer(FW_DISK_DISCARD, SIZE / 4, SIZE / 2), 0);
    assert_int_equal(stat(path, &after), 0);
    assert_true(after.st_blocks < before.st_blocks);
    assert_int_equal(after.st_size, SIZE);
    memset(model, 'x', SIZE);
    memset(model + SIZE / 4, 0, SIZE / 2); /* So files do it; disks need not. */
    file_compare(path);
    disk_close();
}

static void test_zero(void **state)
{
    disk_open(*state, path, FW_DISK_CREATE);
    memset(buffer, 'x', SIZE);
    assert_int_equal(transfer(FW_DISK_WRITE, 0, SIZE), 0);
    assert_int_equal(fw_disk_zero(disk, SIZE / 4, SIZE / 2 + SECTOR, &reason), 0);
    memset(model, 'x', SIZE);
    memset(model + SIZE / 4, 0, SIZE / 2 + SECTOR);
    file_compare(path);
    assert_int_equal(fw_disk_zero(disk, 0, 1, &reason), -EINVAL);
    assert_int_equal(fw_disk_zero(disk, 0, 0, &reason), -EINVAL);
    assert_int_equal(fw_disk_zero(disk, SIZE, SECTOR, &reason), -ERANGE);
    file_compare(path);
    disk_close();
}

struct counted {
    struct fw_disk_op op;
    uint32_t done;
    uint64_t *sum; /* Of all. */
};

static void on_counted(struct fw_disk_op *op)
{
    struct counted *counted = FW_CONTAINER_OF(op, struct counted, op);
    counted->done++;
    ++*counted->sum;
}

static void test_back_pressure(void **state)
{
    struct counted counted[DEPTH + 1] = {0};
    uint64_t sum = 0;
    disk_open(*state, path, FW_DISK_CREATE);
    memset(buffer, 'x', SIZE);
    for (size_t i = 0; i <= DEPTH; i++) {
        counted[i].sum = &sum;
        counted[i].op = (struct fw_disk_op){.kind = FW_DISK_WRITE,
                                            .from = buffer + i * SECTOR,
                                            .size = SECTOR,
                                            .offset = i * SECTOR,
                                            .done = on_counted};
        int rc = fw_disk_start(disk, &counted[i].op);
        assert_int_equal(rc, i < DEPTH ? -EINPROGRESS : -EAGAIN);
        assert_int_equal(sum, 0); /* Never from inside of start(). */
    }
    assert_int_equal(fw_disk_explain(disk, &counted[DEPTH].op, &reason), -EAGAIN);
    assert_non_null(strstr(reason.text, "16 operations are under way"));
    expect_assert_failure(fw_disk_close(disk));
    fw_disk_drain(disk);
    assert_int_equal(sum, DEPTH);
    for (int i = 0; i < DEPTH; i++) {
        assert_int_equal(counted[i].done, 1);
        assert_int_equal(counted[i].op.result, 0);
    }
    assert_int_equal(counted[DEPTH].done, 0);
    assert_int_equal(fw_disk_start(disk, &counted[DEPTH].op), -EINPROGRESS);
    fw_disk_drain(disk);
    assert_int_equal(counted[DEPTH].done, 1);
    assert_int_equal(fw_disk_poll(disk), 0);
    disk_close();
}

static bool fd_is_readable(int timeout_ms)
{
    struct pollfd wanted = {.fd = fw_disk_fd(disk), .events = POLLIN};
    int rc = poll(&wanted, 1, timeout_ms);
    assert_true(rc >= 0);
    return rc == 1;
}

/* As behind a reactor: wait for the descriptor, then poll, and once more than is needed. */
static void test_descriptor(void **state)
{
    uint64_t sum = 0;
    struct counted counted = {.sum = &sum};
    disk_open(*state, path, FW_DISK_CREATE);
    assert_false(fd_is_readable(0));
    assert_int_equal(fw_disk_poll(disk), 0);
    for (uint64_t round = 1; round <= 100; round++) {
        static const enum fw_disk_kind kinds[] = {FW_DISK_WRITE, FW_DISK_READ, FW_DISK_FLUSH};
        counted.op = (struct fw_disk_op){
            .kind = kinds[round % 3], .into = buffer, .size = SECTOR, .done = on_counted};
        assert_int_equal(fw_disk_start(disk, &counted.op), -EINPROGRESS);
        while (sum < round) {
            assert_true(fd_is_readable(-1));
            (void)fw_disk_poll(disk);
        }
        (void)fw_disk_poll(disk); /* The signal may come behind its operation. */
    }
    disk_close();
}

/* Behind a reactor: operations that start the next one, until all are done. */
enum { REACTOR_ROUNDS = 200 };

static struct fw_watch watch;
static bool watch_is_closed;

static void on_watch(struct fw_watch *ready)
{
    assert_ptr_equal(ready, &watch);
    (void)fw_disk_poll(disk);
}

static void on_watch_closed(struct fw_watch *closed)
{
    assert_ptr_equal(closed, &watch);
    watch_is_closed = true;
}

static void on_reactor_done(struct fw_disk_op *op)
{
    struct counted *counted = FW_CONTAINER_OF(op, struct counted, op);
    assert_int_equal(op->result, 0);
    counted->done++;
    ++*counted->sum;
    if (counted->done < REACTOR_ROUNDS) {
        op->kind = op->kind == FW_DISK_READ ? FW_DISK_WRITE : FW_DISK_READ;
        assert_int_equal(fw_disk_start(disk, op), -EINPROGRESS);
    }
}

static void test_reactor(void **state)
{
    struct fw_reactor *reactor;
    struct counted counted[4] = {0};
    uint64_t sum = 0;
    disk_open(*state, path, FW_DISK_CREATE);
    assert_int_equal(fw_reactor_create(&reactor, &reason), 0);
    int rc = fw_watch_open(&watch, reactor, fw_disk_fd(disk), on_watch, on_watch_closed);
    assert_int_equal(rc, 0);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(counted); i++) {
        counted[i].sum = &sum;
        counted[i].op = (struct fw_disk_op){.kind = FW_DISK_READ,
                                            .into = buffer + i * SECTOR,
                                            .size = SECTOR,
                                            .offset = i * SECTOR,
                                            .done = on_reactor_done};
        assert_int_equal(fw_disk_start(disk, &counted[i].op), -EINPROGRESS);
    }
    while (sum < FW_ARRAY_LENGTH(counted) * REACTOR_ROUNDS) {
        (void)fw_reactor_poll(reactor, -1); /* Hangs if a signal gets lost. */
    }
    watch_is_closed = false;
    fw_watch_close(&watch);
    while (!watch_is_closed) {
        (void)fw_reactor_poll(reactor, 0);
    }
    fw_reactor_destroy(reactor);
    disk_close();
}

/* A call-back starts its own operation again, CHAIN times. */
enum { CHAIN = 50 };

static void on_chain(struct fw_disk_op *op)
{
    struct counted *counted = FW_CONTAINER_OF(op, struct counted, op);
    assert_int_equal(op->result, 0);
    counted->done++;
    if (counted->done < CHAIN) {
        op->offset += SECTOR;
        assert_int_equal(fw_disk_start(disk, op), -EINPROGRESS);
    } else {
        expect_assert_failure((void)fw_disk_poll(disk)); /* Not from a call-back. */
    }
}

static void test_chain(void **state)
{
    struct counted counted = {
        .op = {.kind = FW_DISK_READ, .into = buffer, .size = SECTOR, .done = on_chain}};
    disk_open(*state, path, FW_DISK_CREATE);
    assert_int_equal(fw_disk_start(disk, &counted.op), -EINPROGRESS);
    fw_disk_drain(disk);
    assert_int_equal(counted.done, CHAIN);
    disk_close();
}

/*
 * Many operations at once, none of which touches a sector another one has, against a model: each
 * slot of the file has its operation, and what it reads is what it wrote last.
 */
enum { SLOTS = 12, SLOT_SIZE = SIZE / SLOTS / SECTOR * SECTOR, MIXED = 3000 };

struct slot {
    struct fw_disk_op op;
    uint8_t *bytes;
    uint8_t *expected;
    bool busy;
};
static uint64_t mixed_left;
static struct fw_random mixed_choice;

static void slot_start(struct slot *slot);

static void on_slot(struct fw_disk_op *op)
{
    struct slot *slot = FW_CONTAINER_OF(op, struct slot, op);
    assert_true(slot->busy);
    slot->busy = false;
    assert_int_equal(op->result, 0);
    if (op->kind == FW_DISK_READ) {
        size_t within = op->offset % SLOT_SIZE;
        assert_memory_equal(op->into, slot->expected + within, op->size);
    }
    if (mixed_left > 0) {
        mixed_left--;
        slot_start(slot);
    }
}

static void slot_start(struct slot *slot)
{
    uint64_t base = (uint64_t)(slot->bytes - buffer);
    uint64_t first = fw_random_below(&mixed_choice, SLOT_SIZE / SECTOR);
    uint64_t end = fw_random_between(&mixed_choice, first + 1, SLOT_SIZE / SECTOR);
    enum fw_disk_kind kind = FW_DISK_FLUSH;
    if (!fw_random_chance(&mixed_choice, 1, 20)) {
        kind = fw_random_chance(&mixed_choice, 1, 2) ? FW_DISK_READ : FW_DISK_WRITE;
    }
    slot->op = (struct fw_disk_op){
        .kind = kind,
        .sync = fw_random_chance(&mixed_choice, 1, 20),
        .into = slot->bytes + first * SECTOR,
        .size = (end - first) * SECTOR,
        .offset = base + first * SECTOR,
        .done = on_slot,
    };
    if (slot->op.kind == FW_DISK_WRITE) {
        fw_random_fill(&mixed_choice, slot->op.into, slot->op.size);
        memcpy(slot->expected + first * SECTOR, slot->op.into, slot->op.size);
    }
    slot->busy = true;
    assert_int_equal(fw_disk_start(disk, &slot->op), -EINPROGRESS);
}

static void test_mixed(void **state)
{
    struct slot slots[SLOTS] = {0};
    disk_open(*state, path, FW_DISK_CREATE);
    memset(model, 0, SIZE);
    memset(buffer, 0, SIZE);
    assert_int_equal(transfer(FW_DISK_WRITE, 0, SIZE), 0);
    fw_random_init(&mixed_choice, 3);
    mixed_left = MIXED;
    for (int i = 0; i < SLOTS; i++) {
        slots[i].bytes = buffer + (size_t)i * SLOT_SIZE;
        slots[i].expected = model + (size_t)i * SLOT_SIZE;
        slot_start(&slots[i]);
    }
    fw_disk_drain(disk);
    assert_int_equal(mixed_left, 0);
    disk_close();
    file_compare(path);
}

/* The turn moves: one thread starts operations and ends, another one gets the answers. */
static void starter_run(void *argument)
{
    struct counted *counted = argument;
    for (int i = 0; i < DEPTH; i++) {
        if (fw_disk_start(disk, &counted[i].op) != -EINPROGRESS) {
            counted[i].done = UINT32_MAX; /* Assertions of cmocka are for the main thread. */
        }
    }
}

static void test_turn_moves(void **state)
{
    struct counted counted[DEPTH] = {0};
    uint64_t sum = 0;
    disk_open(*state, path, FW_DISK_CREATE);
    for (size_t i = 0; i < DEPTH; i++) {
        counted[i].sum = &sum;
        counted[i].op = (struct fw_disk_op){.kind = FW_DISK_WRITE,
                                            .from = buffer + i * SECTOR,
                                            .size = SECTOR,
                                            .offset = i * SECTOR,
                                            .sync = true,
                                            .done = on_counted};
    }
    struct fw_thread thread;
    assert_int_equal(fw_thread_create(&thread, "starter", starter_run, counted), 0);
    fw_thread_join(&thread);
    fw_disk_drain(disk);
    assert_int_equal(sum, DEPTH);
    for (int i = 0; i < DEPTH; i++) {
        assert_int_equal(counted[i].done, 1);
        assert_int_equal(counted[i].op.result, 0);
    }
    disk_close();
}

static void test_refused(void **state)
{
    disk_open(*state, path, FW_DISK_CREATE);
    assert_int_equal(transfer(FW_DISK_READ, 1, SECTOR), -EINVAL);
    assert_int_equal(transfer(FW_DISK_READ, 0, SECTOR + 1), -EINVAL);
    assert_int_equal(transfer(FW_DISK_READ, 0, 0), -EINVAL);
    assert_int_equal(transfer(FW_DISK_WRITE, 0, (size_t)FW_DISK_TRANSFER_MAX + SECTOR), -EINVAL);
    assert_int_equal(transfer(FW_DISK_DISCARD, 0, SECTOR + 1), -EINVAL);
    struct fw_disk_op op = {.kind = FW_DISK_WRITE, .from = buffer + 8, .size = SECTOR};
    assert_int_equal(fw_disk_run(disk, &op, &reason), -EINVAL);
    assert_non_null(strstr(reason.text, path));
    assert_non_null(strstr(reason.text, "cannot write 4096 bytes at 0"));
    assert_non_null(strstr(reason.text, "must be multiples of"));

    assert_int_equal(transfer(FW_DISK_READ, SIZE, SECTOR), -ERANGE);
    assert_int_equal(transfer(FW_DISK_WRITE, SIZE - SECTOR, 2 * SECTOR), -ERANGE);
    assert_non_null(strstr(reason.text, "the disk ends at 1048576"));
    assert_int_equal(transfer(FW_DISK_READ, UINT64_MAX - SECTOR + 1, SECTOR), -ERANGE);
    assert_int_equal(transfer(FW_DISK_DISCARD, 0, (size_t)2 * SIZE), -ERANGE);
    expect_assert_failure((void)(fw_disk_start(disk, &(struct fw_disk_op){0}) == 0));
    disk_close();

    disk_open(*state, path, FW_DISK_READ_ONLY);
    assert_int_equal(transfer(FW_DISK_READ, 0, SECTOR), 0);
    assert_int_equal(transfer(FW_DISK_FLUSH, 0, 0), 0);
    assert_int_equal(transfer(FW_DISK_WRITE, 0, SECTOR), -EROFS);
    assert_non_null(strstr(reason.text, "open for reading only"));
    assert_int_equal(transfer(FW_DISK_DISCARD, 0, SECTOR), -EROFS);
    disk_close();
}

static void test_cut_off_file(void **state)
{
    disk_open(*state, path, FW_DISK_CREATE);
    assert_int_equal(truncate(path, (off_t)(3 * SECTOR)), 0);
    struct fw_disk_op op = {
        .kind = FW_DISK_READ, .into = buffer, .size = 4 * SECTOR, .offset = SECTOR};
    assert_int_equal(fw_disk_run(disk, &op, &reason), -ENODATA);
    assert_int_equal(op.moved, 2 * SECTOR);
    assert_non_null(strstr(reason.text, "it ends after 8192 of them; was it cut off?"));
    assert_int_equal(transfer(FW_DISK_READ, 0, 3 * SECTOR), 0);
    disk_close();
}

/* A write that the limit of the file's size cuts in two: half is done, then comes the error. */
static void test_size_limit(void **state)
{
    struct rlimit before, low;
    disk_open(*state, path, FW_DISK_CREATE);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = before;
    low.rlim_cur = 2 * SECTOR;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    struct fw_disk_op op = {
        .kind = FW_DISK_WRITE, .from = buffer, .size = 2 * SECTOR, .offset = SECTOR};
    int rc = fw_disk_run(disk, &op, &reason);
    int rc_beyond = transfer(FW_DISK_WRITE, 4 * SECTOR, SECTOR);
    int rc_below = transfer(FW_DISK_WRITE, 0, 2 * SECTOR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(rc, -EFBIG);
    assert_int_equal(op.moved, SECTOR);
    assert_int_equal(rc_beyond, -EFBIG);
    assert_int_equal(rc_below, 0);
    disk_close();
}

/* The descriptor turns bad under the disk's hands. */
static void test_bad_descriptor(void **state)
{
    disk_open(*state, path, FW_DISK_CREATE);
    int bad = open(path, O_PATH | O_CLOEXEC);
    int fd = FW_CONTAINER_OF(disk, struct fw_disk_file, disk)->fd;
    assert_true(bad >= 0);
    assert_int_equal(dup2(bad, fd), fd);
    assert_int_equal(transfer(FW_DISK_READ, 0, SECTOR), -EBADF);
    assert_non_null(strstr(reason.text, "Bad file descriptor"));
    assert_int_equal(transfer(FW_DISK_WRITE, 0, SECTOR), -EBADF);
    if (fw_disk_properties(disk)->discard) {
        assert_int_equal(transfer(FW_DISK_DISCARD, 0, SECTOR), -EBADF);
    }
    assert_int_equal(transfer(FW_DISK_FLUSH, 0, 0), -EBADF);
    assert_non_null(strstr(reason.text, "cannot flush"));
    assert_int_equal(close(bad), 0);

    /* A flush that failed has failed for good. */
    int good = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(dup2(good, fd), fd);
    assert_int_equal(transfer(FW_DISK_WRITE, 0, SECTOR), 0);
    assert_int_equal(transfer(FW_DISK_FLUSH, 0, 0), -EBADF);
    assert_int_equal(close(good), 0);
    disk_close();
}

static void open_check(const struct fw_disk_options *options, int error, const char *text)
{
    assert_int_equal(fw_disk_open(&disk, options, &reason), error);
    assert_non_null(strstr(reason.text, text));
}

static void test_open_fails(void **state)
{
    const struct way *way = *state;
    char long_path[300];
    disk_open(way, path, FW_DISK_CREATE); /* Skips where there is no io_uring. */
    disk_close();
    struct fw_disk_options options = {.path = path, .engine = way->engine, .depth = 4097};
    open_check(&options, -EINVAL, "at most 4096 operations");
    options = (struct fw_disk_options){.path = path, .engine = way->engine, .threads = 65};
    open_check(&options, -EINVAL, "64 threads");
    options.threads = 0;
    assert_int_equal(truncate(path, 511), 0);
    open_check(&options, -EINVAL, "it has not even one sector of ");
    assert_int_equal(unlink(path), 0);
    open_check(&options, -ENOENT, path);
    options.path = folder;
    open_check(&options, -EISDIR, folder);
    options.path = "/dev/zero";
    open_check(&options, -ENOTBLK, "/dev/zero as a disk: it is neither a block device");
    assert_int_equal(mkfifo(path, 0600), 0); /* Whose other end is not waited for. */
    options.path = path;
    options.flags = FW_DISK_READ_ONLY;
    open_check(&options, -ENOTBLK, "neither a block device");
    options.flags = 0;
    assert_int_equal(unlink(path), 0);
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    options.path = long_path;
    open_check(&options, -ENAMETOOLONG, "xxx");

    /* No room: the file that was begun goes away again. */
    options = (struct fw_disk_options){
        .path = path, .engine = way->engine, .flags = FW_DISK_CREATE, .size = UINT64_C(1) << 62};
    assert_int_not_equal(fw_disk_open(&disk, &options, &reason), 0);
    assert_non_null(strstr(reason.text, "4611686018427387904 bytes long"));
    assert_int_equal(access(path, F_OK), -1);
}

/* No descriptor is left for the disk, or none for its signals. */
static void test_open_without_descriptors(void **state)
{
    const struct way *way = *state;
    disk_open(way, path, FW_DISK_CREATE);
    disk_close();
    struct rlimit before, low;
    int lowest = dup(0);
    assert_true(lowest >= 0);
    assert_int_equal(close(lowest), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    struct fw_disk_options options = {.path = path, .engine = way->engine};
    for (int spare = 0; spare < 2; spare++) {
        low.rlim_cur = (rlim_t)lowest + (rlim_t)spare;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        int rc = fw_disk_open(&disk, &options, &reason);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(rc, -EMFILE);
        int again = dup(0); /* Nothing has stayed open. */
        assert_int_equal(again, lowest);
        assert_int_equal(close(again), 0);
    }
}

/* Memory runs out at each of the places that need some. */
static void test_open_without_memory(void **state)
{
    const struct way *way = *state;
    disk_open(way, path, FW_DISK_CREATE);
    disk_close();
    const struct fw_disk_options options = {.path = path, .engine = way->engine};
    int rc = -ENOMEM;
    for (int count = 0; rc != 0; count++) {
        fail_memory_after(count);
        rc = fw_disk_open(&disk, &options, &reason);
        assert_true(rc == 0 || rc == -ENOMEM);
        assert_true(count > 0 || rc == -ENOMEM);
    }
    fail_memory_after(-1);
    disk_close();
}

/* A file system with room for 64 KiB. */
static void test_full_file_system(void **state)
{
    const struct way *way = *state;
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", folder, "tmpfs", 0, "size=64k") != 0) {
        fw_test_skip("mounts", "may not mount a file system");
    }
    struct fw_disk_options options = {
        .path = path, .engine = way->engine, .flags = FW_DISK_CREATE | way->flags, .size = SIZE};
    int rc = fw_disk_open(&disk, &options, &reason);
    bool absent = access(path, F_OK) != 0;
    char text[FW_REASON_SIZE];
    memcpy(text, reason.text, sizeof text);

    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, SIZE), 0); /* All hole. */
    assert_int_equal(close(fd), 0);
    options.flags = way->flags;
    struct fw_disk_op op = {.kind = FW_DISK_WRITE, .from = buffer, .size = SIZE};
    int rc_write = 0;
    int rc_open = fw_disk_open(&disk, &options, &reason);
    if (rc_open == 0) {
        rc_write = fw_disk_run(disk, &op, &reason);
        disk_close();
    }
    assert_int_equal(umount2(folder, MNT_DETACH), 0);

    if (way->engine == FW_DISK_ENGINE_URING && rc_open != 0) {
        fw_test_skip("io-uring", reason.text);
    }
    assert_int_equal(rc, -ENOSPC);
    assert_non_null(strstr(text, "1048576 bytes long; choose a smaller size or make room"));
    assert_true(absent);
    assert_int_equal(rc_open, 0);
    assert_int_equal(rc_write, -ENOSPC);
    assert_true(op.moved > 0 && op.moved <= 64 << 10);
    assert_non_null(strstr(reason.text, "make room on its file system: No space left on device"));
}

/* Makes a loop device over the file; skips the test where that is not possible. */
static int loop_open(char name[32], uint32_t sector_size)
{
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    int number = control >= 0 ? ioctl(control, LOOP_CTL_GET_FREE) : -1;
    if (control >= 0) {
        (void)close(control);
    }
    (void)snprintf(name, 32, "/dev/loop%d", number);
    int loop = number >= 0 ? open(name, O_RDWR | O_CLOEXEC) : -1;
    int backing = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(backing >= 0);
    assert_int_equal(ftruncate(backing, SIZE), 0);
    const struct loop_config config = {
        .fd = (uint32_t)backing,
        .block_size = sector_size,
        .info = {.lo_flags = LO_FLAGS_AUTOCLEAR},
    };
    int rc = loop >= 0 ? ioctl(loop, LOOP_CONFIGURE, &config) : -1;
    assert_int_equal(close(backing), 0);
    if (rc != 0) {
        if (loop >= 0) {
            (void)close(loop);
        }
        fw_test_skip("loop-devices", "none can be made");
    }
    return loop;
}

static void block_device_check(const struct way *way, uint32_t sector_size)
{
    char name[32];
    struct fw_random generator;
    int loop = loop_open(name, sector_size);
    disk_open(way, name, FW_DISK_CREATE); /* That is for files and does nothing here. */
    const struct fw_disk_properties *properties = fw_disk_properties(disk);
    assert_int_equal(properties->size, SIZE);
    assert_int_equal(properties->sector_size, sector_size);
    assert_in_range(properties->physical_size, sector_size, 4096);
    assert_true(properties->direct == ((way->flags & FW_DISK_DIRECT) != 0));

    fw_random_init(&generator, 2);
    fw_random_fill(&generator, model, SIZE);
    memcpy(buffer, model, SIZE);
    assert_int_equal(transfer(FW_DISK_WRITE, 0, SIZE), 0);
    memset(buffer, 'y', SIZE);
    memset(model + sector_size, 'y', sector_size);
    struct fw_disk_op op = {.kind = FW_DISK_WRITE,
                            .from = buffer,
                            .size = sector_size,
                            .offset = sector_size,
                            .sync = true};
    assert_int_equal(fw_disk_run(disk, &op, &reason), 0);
    assert_int_equal(transfer(FW_DISK_FLUSH, 0, 0), 0);
    file_compare(path); /* It has come through to the file below. */
    memset(buffer, 0, SIZE);
    assert_int_equal(transfer(FW_DISK_READ, 0, SIZE), 0);
    assert_memory_equal(buffer, model, SIZE);
    assert_int_equal(transfer(FW_DISK_READ, 0, sector_size / 2), -EINVAL);
    assert_int_equal(transfer(FW_DISK_READ, SIZE, sector_size), -ERANGE);

    if (properties->discard) {
        struct stat before, after;
        assert_int_equal(stat(path, &before), 0);
        assert_int_equal(transfer(FW_DISK_DISCARD, SIZE / 2, SIZE / 2), 0);
        assert_int_equal(stat(path, &after), 0);
        assert_true(after.st_blocks < before.st_blocks);
    }
    disk_close();
    assert_int_equal(close(loop), 0);
}

static void test_block_device(void **state)
{
    block_device_check(*state, 512);
}

static void test_block_device_4096(void **state)
{
    block_device_check(*state, 4096);
}

/* A device whose medium is gone: the file below has been cut off. */
static void test_block_device_fails(void **state)
{
    char name[32];
    int loop = loop_open(name, 512);
    const struct way direct = {((struct way *)*state)->engine, FW_DISK_DIRECT, ""};
    disk_open(&direct, name, 0);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(transfer(FW_DISK_READ, SIZE / 2, SECTOR), -EIO);
    assert_non_null(strstr(reason.text, "check it and the kernel's log: Input/output error"));
    disk_close();
    assert_int_equal(close(loop), 0);
}

/* Whatever the kernel allows, AUTO opens, and says nothing about what it could not use. */
static void test_automatic(void **state)
{
    (void)state;
    const struct fw_disk_options options = {.path = path, .flags = FW_DISK_CREATE, .size = SIZE};
    memset(&reason, 0, sizeof reason);
    assert_int_equal(fw_disk_open(&disk, &options, &reason), 0);
    assert_string_equal(reason.text, "");
    assert_int_equal(transfer(FW_DISK_WRITE, 0, SIZE), 0);
    disk_close();
    assert_int_equal(unlink(path), 0);
    struct fw_disk_options missing = {.path = path};
    open_check(&missing, -ENOENT, path);
}

#define ON(way, test)                                                                   \
    {                                                                                   \
        .name = #test " (" #way ")", .test_func = (test), .teardown_func = file_remove, \
        .initial_state = &(way)                                                         \
    }
#define ON_ALL(test)                                                                      \
    ON(threads, test), ON(threads_direct, test), ON(uring, test), ON(uring_direct, test), \
        ON(caller, test), ON(caller_direct, test)
/* The caller's descriptor is not watched, and it reads through another one. */
#define ON_OTHERS(test) ON(threads, test), ON(uring, test)
#define ON_EACH(test)   ON(threads, test), ON(uring, test), ON(caller, test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ALL(test_properties),
        ON_ALL(test_round_trip),
        ON_ALL(test_discard),
        ON_ALL(test_zero),
        ON_EACH(test_back_pressure),
        ON_OTHERS(test_descriptor),
        ON_OTHERS(test_reactor),
        ON_EACH(test_chain),
        ON_ALL(test_mixed),
        ON_ALL(test_turn_moves),
        ON_EACH(test_refused),
        ON_ALL(test_cut_off_file),
        ON_ALL(test_size_limit),
        ON_OTHERS(test_bad_descriptor),
        ON_EACH(test_open_fails),
        ON_EACH(test_open_without_descriptors),
        ON_EACH(test_open_without_memory),
        ON_ALL(test_full_file_system),
        ON_ALL(test_block_device),
        ON_ALL(test_block_device_4096),
        ON_EACH(test_block_device_fails),
        cmocka_unit_test_teardown(test_automatic, file_remove),
    };
    return cmocka_run_group_tests(tests, group_set_up, group_tear_down);
}
