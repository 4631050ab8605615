/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: files are read whole or refused, replaced in one step or left as they were, and lines are
 * appended whole; interrupted calls, short writes and full disks included.
 * Method: real files in a temporary folder. The system calls that matter are defined again here, so
 * that a test can make one of them fail, come back short or be interrupted at a given call, and can
 * see the order in which they come.
 */
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/skip.h"

static struct {
    int read_errno, write_errno, fsync_errno; /* Not 0: the next calls fail so... */
    int skip;                                 /* ... once this many went well... */
    int times;                                /* ... and as often as this. */
    size_t part_max;                          /* Not 0: reads and writes move no more than this. */
    bool stuck;                               /* Writes move nothing. */
    char order[16];                           /* f: fsync of a file, d: of a folder, r: rename. */
} fault;

static bool fault_strikes(int error)
{
    if (error == 0 || fault.times == 0) {
        return false;
    }
    if (fault.skip > 0) {
        fault.skip--;
        return false;
    }
    fault.times--;
    errno = error;
    return true;
}

static void order_note(char what)
{
    size_t length = strlen(fault.order);
    if (length + 1 < sizeof fault.order) {
        fault.order[length] = what;
    }
}

static size_t part(size_t size)
{
    return fault.part_max != 0 && fault.part_max < size ? fault.part_max : size;
}

ssize_t read(int fd, void *buffer, size_t size)
{
    return fault_strikes(fault.read_errno) ? -1 : syscall(SYS_read, fd, buffer, part(size));
}

ssize_t write(int fd, const void *buffer, size_t size)
{
    if (fault.stuck) {
        return 0;
    }
    return fault_strikes(fault.write_errno) ? -1 : syscall(SYS_write, fd, buffer, part(size));
}

int fsync(int fd)
{
    struct stat status;
    assert_int_equal(fstat(fd, &status), 0);
    order_note(S_ISDIR(status.st_mode) ? 'd' : 'f');
    return fault_strikes(fault.fsync_errno) ? -1 : (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    order_note('r');
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static char folder[] = "/tmp/fw-file-XXXXXX"; /* Current directory while tests run. */
static struct fw_reason reason;

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL && chdir(folder) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return chdir("/") == 0 && rmdir(folder) == 0 ? 0 : -1; /* Fails if a test left a file. */
}

static int reset(void **state)
{
    (void)state;
    memset(&fault, 0, sizeof fault);
    memset(&reason, 0, sizeof reason);
    return 0;
}

static void file_make(const char *path, const char *contents)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(contents, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* What is in the file, read by other means than those under test. */
static void file_check(const char *path, const char *expected)
{
    char contents[256] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t size = fread(contents, 1, sizeof contents - 1, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(size, strlen(expected));
    assert_string_equal(contents, expected);
}

static int files_in_folder(void)
{
    DIR *directory = opendir(".");
    assert_non_null(directory);
    int count = 0;
    while (readdir(directory) != NULL) { /* NOLINT(concurrency-mt-unsafe): one thread. */
        count++;
    }
    assert_int_equal(closedir(directory), 0);
    return count - 2; /* Itself and its parent. */
}

static void read_check(const char *path, size_t size_max, const char *expected)
{
    char *contents = NULL;
    size_t size = 0;
    assert_int_equal(fw_file_read(path, size_max, &contents, &size, &reason), 0);
    assert_int_equal(size, strlen(expected));
    assert_string_equal(contents, expected); /* So the zero is there too. */
    free(contents);
    assert_string_equal(reason.text, "");
}

static void test_read(void **state)
{
    (void)state;
    char *contents = NULL;
    size_t size = 0;
    file_make("a", "twelve bytes");
    read_check("a", 12, "twelve bytes");
    read_check("a", FW_FILE_SIZE_MAX, "twelve bytes");
    fault.part_max = 5;
    read_check("a", 12, "twelve bytes");
    assert_int_equal(fw_file_read("a", 11, &contents, &size, &reason), -EFBIG);
    assert_string_equal(reason.text, "cannot read a: it has more than the 11 bytes allowed");
    (void)reset(NULL);
    file_make("a", "");
    read_check("a", 0, "");
    assert_int_equal(unlink("a"), 0);

    assert_int_equal(fw_file_read("a", 1, &contents, &size, &reason), -ENOENT);
    assert_string_equal(reason.text, "cannot open a: No such file or directory; check the name");
    assert_int_equal(fw_file_read(".", 1, &contents, &size, &reason), -EISDIR);
    assert_non_null(strstr(reason.text, "cannot read .: "));
    assert_null(contents);
}

static void test_read_interrupted(void **state)
{
    (void)state;
    char *contents = NULL;
    size_t size = 0;
    file_make("a", "contents");
    fault.read_errno = EINTR;
    fault.times = 3;
    read_check("a", 100, "contents");
    assert_int_equal(fault.times, 0);
    fault.read_errno = EIO;
    fault.times = 1;
    fault.skip = 1;
    fault.part_max = 3;
    assert_int_equal(fw_file_read("a", 100, &contents, &size, &reason), -EIO);
    assert_string_equal(reason.text, "cannot read a: Input/output error; check its disk and the "
                                     "kernel's log");
    assert_int_equal(unlink("a"), 0);
}

/* Files of /proc say that their size is 0; this one has more than the first attempt asks for. */
static void test_read_without_size(void **state)
{
    (void)state;
    enum { SIZE = 300000 };
    char *text = malloc(SIZE + 1);
    char *contents = NULL;
    size_t size = 0;
    int pipe_fds[2];
    char path[32];
    assert_non_null(text);
    memset(text, 'x', SIZE);
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    assert_true(fcntl(pipe_fds[1], F_SETPIPE_SZ, SIZE) >= SIZE);
    assert_int_equal(write(pipe_fds[1], text, SIZE), SIZE);
    assert_int_equal(close(pipe_fds[1]), 0);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", pipe_fds[0]);
    assert_int_equal(fw_file_read(path, SIZE, &contents, &size, &reason), 0);
    assert_int_equal(size, SIZE);
    assert_memory_equal(contents, text, SIZE);
    assert_int_equal(contents[SIZE], '\0');
    assert_int_equal(close(pipe_fds[0]), 0);
    free(contents);
    free(text);
}

static void test_replace(void **state)
{
    (void)state;
    struct stat status;
    char absolute[64];
    (void)snprintf(absolute, sizeof absolute, "%s/a", folder);
    assert_int_equal(fw_file_replace("a", "old", 3, 0640, &reason), 0);
    file_check("a", "old");
    assert_string_equal(fault.order, "frd"); /* Flushed, then renamed, then the folder flushed. */
    assert_int_equal(stat("a", &status), 0);
    assert_int_equal(status.st_mode & 07777, 0640);

    fault.part_max = 1;
    fault.write_errno = EINTR;
    fault.times = 2;
    assert_int_equal(fw_file_replace(absolute, "newer", 5, 0604, &reason), 0);
    file_check("a", "newer");
    assert_string_equal(fault.order, "frdfrd");
    assert_int_equal(stat("a", &status), 0);
    assert_int_equal(status.st_mode & 07777, 0604);
    assert_int_equal(files_in_folder(), 1);
    assert_int_equal(unlink("a"), 0);
}

static void test_replace_fails(void **state)
{
    (void)state;
    file_make("a", "old");
    fault.write_errno = ENOSPC;
    fault.times = 1;
    fault.skip = 1;
    fault.part_max = 2;
    assert_int_equal(fw_file_replace("a", "new", 3, 0600, &reason), -ENOSPC);
    assert_string_equal(reason.text,
                        "cannot replace a: No space left on device; make room on its file system");
    (void)reset(NULL);
    fault.stuck = true;
    assert_int_equal(fw_file_replace("a", "new", 3, 0600, &reason), -EIO);
    (void)reset(NULL);
    fault.fsync_errno = EIO;
    fault.times = 1;
    assert_int_equal(fw_file_replace("a", "new", 3, 0600, &reason), -EIO);
    assert_string_equal(fault.order, "f");
    file_check("a", "old");
    assert_int_equal(files_in_folder(), 1);

    fault.times = 1;
    fault.skip = 1; /* The flush of the folder. */
    assert_int_equal(fw_file_replace("a", "new", 3, 0600, &reason), -EIO);
    assert_non_null(strstr(reason.text, "the folder of a"));
    file_check("a", "new");
    assert_int_equal(unlink("a"), 0);

    assert_int_equal(fw_file_replace("none/a", "new", 3, 0600, &reason), -ENOENT);
    assert_non_null(strstr(reason.text, "none/a"));
    assert_int_equal(mkdir("b", 0700), 0);
    assert_int_equal(fw_file_replace("b", "new", 3, 0600, &reason), -EISDIR);
    assert_int_equal(rmdir("b"), 0);
    assert_int_equal(files_in_folder(), 0);
}

static void test_replace_in_root(void **state)
{
    (void)state;
    if (access("/", W_OK) != 0) {
        fw_test_skip("writable-root-folder", "the root folder is not writable");
    }
    char path[64];
    (void)snprintf(path, sizeof path, "/fw-file-test-%d", (int)getpid());
    assert_int_equal(fw_file_replace(path, "x", 1, 0600, &reason), 0);
    assert_string_equal(fault.order, "frd");
    assert_int_equal(unlink(path), 0);
}

static void test_long_path(void **state)
{
    (void)state;
    char path[1000];
    char *contents = NULL;
    size_t size = 0;
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    path[sizeof path - 3] = 'y';
    assert_int_equal(fw_file_read(path, 1, &contents, &size, &reason), -ENAMETOOLONG);
    assert_non_null(strstr(reason.text, "...xxx"));
    assert_non_null(strstr(reason.text, "xyx: File name too long; choose a shorter name"));
}

static void append(struct fw_appender *appender, const char *line)
{
    assert_int_equal(fw_appender_write(appender, line, strlen(line), &reason), 0);
}

static void test_append(void **state)
{
    (void)state;
    struct fw_appender appender;
    file_make("log", "before\n");
    assert_int_equal(fw_appender_open(&appender, "log", 0600, &reason), 0);
    append(&appender, "one\n");
    fault.part_max = 2;
    fault.write_errno = EINTR;
    fault.times = 1;
    append(&appender, "two\n");
    file_check("log", "before\none\ntwo\n");

    assert_int_equal(rename("log", "log.1"), 0);
    append(&appender, "three\n"); /* Still the old file. */
    assert_int_equal(fw_appender_reopen(&appender, &reason), 0);
    append(&appender, "four\n");
    file_check("log.1", "before\none\ntwo\nthree\n");
    file_check("log", "four\n");

    /* A file emptied by who rotates it is appended to from its new end. */
    assert_int_equal(truncate("log", 0), 0);
    append(&appender, "five\n");
    file_check("log", "five\n");
    expect_assert_failure((void)(fw_appender_write(&appender, "no end", 6, &reason) == 0));
    fw_appender_close(&appender);
    assert_int_equal(appender.fd, -1);
    assert_int_equal(unlink("log"), 0);
    assert_int_equal(unlink("log.1"), 0);
}

static void test_append_torn(void **state)
{
    (void)state;
    struct fw_appender appender;
    assert_int_equal(fw_appender_open(&appender, "log", 0600, &reason), 0);
    fault.write_errno = ENOSPC;
    fault.times = 3;
    assert_int_equal(fw_appender_write(&appender, "lost\n", 5, &reason), -ENOSPC);
    assert_string_equal(
        reason.text, "cannot append to log: No space left on device; make room on its file system");
    fault.part_max = 2;
    fault.skip = 1;
    assert_int_equal(fw_appender_write(&appender, "torn\n", 5, &reason), -ENOSPC);
    assert_int_equal(fw_appender_write(&appender, "still\n", 6, &reason), -ENOSPC);
    assert_int_equal(fault.times, 0);
    append(&appender, "next\n");
    append(&appender, "last\n");
    file_check("log", "to\nnext\nlast\n");

    fault.times = 1;
    fault.skip = 1;
    assert_int_equal(fw_appender_write(&appender, "torn\n", 5, &reason), -ENOSPC);
    assert_int_equal(unlink("log"), 0);
    assert_int_equal(fw_appender_reopen(&appender, &reason), 0);
    append(&appender, "new\n"); /* A new file has no torn line. */
    file_check("log", "new\n");
    fw_appender_close(&appender);
    assert_int_equal(unlink("log"), 0);
}

static void test_append_open_fails(void **state)
{
    (void)state;
    struct fw_appender appender;
    assert_int_equal(fw_appender_open(&appender, "none/log", 0600, &reason), -ENOENT);
    assert_string_equal(reason.text,
                        "cannot open none/log: No such file or directory; check the name");
    assert_int_equal(mkdir("some", 0700), 0);
    assert_int_equal(fw_appender_open(&appender, "some/log", 0600, &reason), 0);
    assert_int_equal(rename("some", "other"), 0);
    assert_int_equal(fw_appender_reopen(&appender, &reason), -ENOENT);
    append(&appender, "kept\n"); /* What was open stays open. */
    file_check("other/log", "kept\n");
    fw_appender_close(&appender);
    assert_int_equal(unlink("other/log"), 0);
    assert_int_equal(rmdir("other"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_read, reset),
        cmocka_unit_test_setup(test_read_interrupted, reset),
        cmocka_unit_test_setup(test_read_without_size, reset),
        cmocka_unit_test_setup(test_replace, reset),
        cmocka_unit_test_setup(test_replace_fails, reset),
        cmocka_unit_test_setup(test_replace_in_root, reset),
        cmocka_unit_test_setup(test_long_path, reset),
        cmocka_unit_test_setup(test_append, reset),
        cmocka_unit_test_setup(test_append_torn, reset),
        cmocka_unit_test_setup(test_append_open_fails, reset),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
