/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what is stored in a map is in its file, which is new, private, whole from the start, and
 * gone after destroy(); without a folder there is no file.
 * Method: make maps in a folder of the test's own, read the files behind them, and fail in every
 * way that a user can meet.
 */
#include "io/map.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/descriptor.h"
#include "support/fail_memory.h"

enum { SIZE = 64 * 1024 };

static char folder[] = "map_test.XXXXXX";

static int setup(void **state)
{
    (void)state;
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
    assert_non_null(mkdtemp(folder));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(folder); /* Nothing is left in it. */
}

/* The linker (--wrap) sends the calls of the map here; the 64 is what the headers make of it. */
void *__real_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset);
static bool mmap_fails;

void *__wrap_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (mmap_fails) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return __real_mmap64(at, size, protection, flags, fd, offset);
}

static void test_file(void **state)
{
    (void)state;
    struct fw_map first, second;
    struct fw_reason reason;
    char expected[128];
    assert_int_equal(fw_map_create(&first, folder, "stem", SIZE, &reason), 0);
    (void)snprintf(expected, sizeof expected, "%s/stem.%d.0", folder, (int)getpid());
    assert_string_equal(first.path, expected);
    assert_int_equal(first.process, getpid());
    assert_int_equal(fw_map_create(&second, folder, "stem", SIZE, &reason), 0);
    (void)snprintf(expected, sizeof expected, "%s/stem.%d.1", folder, (int)getpid());
    assert_string_equal(second.path, expected); /* The first is left alone. */

    struct stat status;
    assert_int_equal(stat(first.path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(status.st_size, SIZE);
    assert_true(status.st_blocks * 512 >= SIZE); /* There is room for all of it. */

    unsigned char *memory = first.memory;
    for (size_t i = 0; i < SIZE; i++) {
        assert_int_equal(memory[i], 0);
    }
    memcpy(memory + SIZE - 4, "end", 4);
    int fd = open(first.path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    char end[4];
    assert_int_equal(pread(fd, end, sizeof end, SIZE - 4), 4);
    assert_string_equal(end, "end");
    assert_int_equal(close(fd), 0);
    assert_int_equal(((unsigned char *)second.memory)[SIZE - 4], 0);
    fw_map_destroy(&first);
    assert_null(first.memory);
    fw_map_destroy(&second);
}

/* A map costs no descriptor, and is content with any: of a daemon the first ones may be closed. */
static void test_descriptor(void **state)
{
    (void)state;
    struct fw_map map;
    int next = descriptor_next();
    assert_int_equal(fw_map_create(&map, folder, "stem", SIZE, NULL), 0);
    assert_int_equal(descriptor_next(), next);
    fw_map_destroy(&map);

    int held = descriptor_0_free();
    int rc = fw_map_create(&map, folder, "stem", SIZE, NULL);
    int next_now = descriptor_next();
    descriptor_0_restore(held);
    assert_int_equal(rc, 0);
    assert_int_equal(next_now, STDIN_FILENO);
    memset(map.memory, 1, SIZE);
    fw_map_destroy(&map);
}

static void test_plain_memory(void **state)
{
    (void)state;
    struct fw_map map;
    static const char *const folders[] = {NULL, ""};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fw_map_create(&map, folders[i], "stem", SIZE, NULL), 0);
        assert_null(map.path);
        memset(map.memory, 1, SIZE);
        fw_map_destroy(&map);
    }
    struct fw_reason reason;
    assert_int_equal(fw_map_create(&map, NULL, "stem", SIZE_MAX / 2, &reason), -ENOMEM);
    assert_string_equal(reason.text, "cannot take 9007199254740991 KiB of memory: Cannot allocate "
                                     "memory");
}

static void test_refused(void **state)
{
    (void)state;
    struct fw_map map;
    struct fw_reason reason;
    assert_int_equal(fw_map_create(&map, "/nonexistent", "stem", SIZE, &reason), -ENOENT);
    assert_string_equal(reason.text, "cannot make a file of 64 KiB in /nonexistent: No such file "
                                     "or directory");
    fail_memory_after(0);
    assert_int_equal(fw_map_create(&map, folder, "stem", SIZE, &reason), -ENOMEM);
    fail_memory_after(-1);
    mmap_fails = true; /* There are limits to addresses too. The file must not be left behind. */
    assert_int_equal(fw_map_create(&map, folder, "stem", SIZE, &reason), -ENOMEM);
    mmap_fails = false;
    /* No room: the limit of the size of files stands for a full file system. */
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = {.rlim_cur = SIZE / 2, .rlim_max = before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = fw_map_create(&map, folder, "stem", SIZE, &reason);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(rc, -EFBIG);
    /* And the name of what others left behind is not taken, a hundred times over. */
    for (int i = 0; i < 100; i++) {
        char name[128];
        (void)snprintf(name, sizeof name, "%s/stem.%d.%d", folder, (int)getpid(), i);
        assert_int_equal(symlink("/dev/null", name), 0);
    }
    assert_int_equal(fw_map_create(&map, folder, "stem", SIZE, &reason), -EEXIST);
    char last[128];
    (void)snprintf(last, sizeof last, "%s/stem.%d.99", folder, (int)getpid());
    assert_int_equal(unlink(last), 0);
    assert_int_equal(fw_map_create(&map, folder, "stem", SIZE, &reason), 0);
    assert_string_equal(map.path, last);
    fw_map_destroy(&map);
    assert_int_equal(symlink("/dev/null", last), 0);
    for (int i = 0; i < 100; i++) {
        char name[128];
        (void)snprintf(name, sizeof name, "%s/stem.%d.%d", folder, (int)getpid(), i);
        assert_int_equal(unlink(name), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_descriptor, setup, teardown),
        cmocka_unit_test_setup_teardown(test_plain_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
