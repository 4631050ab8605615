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
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/fail_memory.h"
#include "support/skip.h"

static struct {
    char call;       /* The first letter of the system call that fails... */
    int error;       /* ... with this error... */
    int skip;        /* ... once this many went well... */
    int times;       /* ... and as often as this. */
    size_t part_max; /* Not 0: reads and writes move no more than this. */
    bool stuck;      /* Writes move nothing. */
    char order[16];  /* f: fsync of a file, d: of a folder, r: rename. */
    ino_t flushed;   /* The folder that was flushed last. */
} fault;

static bool fault_strikes(char call)
{
    if (fault.call != call || fault.times == 0) {
        return false;
    }
    if (fault.skip > 0) {
        fault.skip--;
        return false;
    }
    fault.times--;
    errno = fault.error;
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

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = va_arg(arguments, mode_t);
    va_end(arguments);
    return fault_strikes('o') ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int close(int fd)
{
    int rc = (int)syscall(SYS_close, fd);
    return fault_strikes('c') ? -1 : rc;
}

ssize_t read(int fd, void *buffer, size_t size)
{
    return fault_strikes('r') ? -1 : syscall(SYS_read, fd, buffer, part(size));
}

ssize_t write(int fd, const void *buffer, size_t size)
{
    if (fault.stuck) {
        return 0;
    }
    return fault_strikes('w') ? -1 : syscall(SYS_write, fd, buffer, part(size));
}

int fsync(int fd)
{
    struct stat status;
    assert_int_equal(fstat(fd, &status), 0);
    order_note(S_ISDIR(status.st_mode) ? 'd' : 'f');
    fault.flushed = S_ISDIR(status.st_mode) ? status.st_ino : fault.flushed;
    return fault_strikes('f') ? -1 : (int)syscall(SYS_fsync, fd);
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

static void file_check_size(const char *path, size_t size)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, size);
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

static void test_read_secret(void **state)
{
    (void)state;
    char *contents;
    size_t size;
    static const mode_t wrong[] = {0644, 0604, 0602, 0666};
    file_make("a", "hidden");
    for (size_t i = 0; i < FW_ARRAY_LENGTH(wrong); i++) {
        assert_int_equal(chmod("a", wrong[i]), 0);
        assert_int_equal(fw_file_read_secret("a", 12, &contents, &size, &reason), -EPERM);
        assert_string_equal(reason.text,
                            "every user of this machine may read or write it: chmod o= a");
    }
    assert_int_equal(chmod("a", 0640), 0);
    assert_int_equal(fw_file_read_secret("a", 12, &contents, &size, &reason), 0);
    assert_string_equal(contents, "hidden");
    free(contents);
    assert_int_equal(fw_file_read_secret("none", 1, &contents, &size, &reason), -ENOENT);
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
    file_make("a", "x");
    assert_int_equal(fw_file_read("a", 0, &contents, &size, &reason), -EFBIG);
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
    fault.call = 'r';
    fault.error = EINTR;
    fault.times = 3;
    read_check("a", 100, "contents");
    assert_int_equal(fault.times, 0);
    fault.call = 'o';
    fault.times = 3;
    read_check("a", 100, "contents");
    assert_int_equal(fault.times, 0);
    fault.call = 'r';
    fault.error = EIO;
    fault.times = 1;
    fault.skip = 1;
    fault.part_max = 3;
    assert_int_equal(fw_file_read("a", 100, &contents, &size, &reason), -EIO);
    assert_string_equal(reason.text, "cannot read a: Input/output error; check its disk and the "
                                     "kernel's log");
    assert_int_equal(unlink("a"), 0);
}

/* Sizes about those that are asked for one after the other, with limits that just fit or do not. */
static void test_read_sizes(void **state)
{
    (void)state;
    static const size_t sizes[] = {4095, 4096, 4097, 8191, 8192, 8193, 50000};
    enum { SIZE_MAX_HERE = 50000 };
    char *text = malloc(SIZE_MAX_HERE + 1);
    assert_non_null(text);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(sizes); i++) {
        char *contents = NULL;
        size_t size = 0;
        memset(text, 'x', SIZE_MAX_HERE);
        text[sizes[i]] = '\0';
        text[sizes[i] - 1] = 'y';
        file_make("a", text);
        for (size_t part_max = 0; part_max < 6; part_max += 5) {
            fault.part_max = part_max;
            read_check("a", sizes[i], text);
            read_check("a", sizes[i] + 1, text);
            read_check("a", FW_FILE_SIZE_MAX, text);
            assert_int_equal(fw_file_read("a", sizes[i] - 1, &contents, &size, &reason), -EFBIG);
            (void)reset(NULL);
        }
    }
    free(text);
    assert_int_equal(unlink("a"), 0);
    expect_assert_failure(
        (void)(fw_file_read("a", (size_t)FW_FILE_SIZE_MAX + 1, &text, NULL, &reason) == 0));
}

/* 0 is a descriptor like any other. */
static void test_descriptor_zero(void **state)
{
    (void)state;
    struct fw_appender appender;
    int saved = dup(0);
    assert_true(saved > 0);
    assert_int_equal(close(0), 0);
    int rc = fw_file_replace("a", "old\n", 4, 0600, &reason);
    int rc_open = fw_appender_open(&appender, "a", 0600, &reason);
    int fd = appender.fd;
    int rc_append = fw_appender_write(&appender, "new\n", 4, NULL, &reason);
    int rc_reopen = fw_appender_reopen(&appender, &reason); /* Gets another one... */
    int rc_again = fw_appender_reopen(&appender, &reason);  /* ... and 0 again. */
    int fd_again = appender.fd;
    fw_appender_close(&appender);
    char *contents = NULL;
    size_t size = 0;
    int rc_read = fw_file_read("a", 8, &contents, &size, &reason);
    assert_int_equal(dup2(saved, 0), 0);
    assert_int_equal(close(saved), 0);
    assert_int_equal(rc, 0);
    assert_int_equal(rc_open, 0);
    assert_int_equal(fd, 0);
    assert_int_equal(rc_append, 0);
    assert_int_equal(rc_reopen, 0);
    assert_int_equal(rc_again, 0);
    assert_int_equal(fd_again, 0);
    assert_int_equal(rc_read, 0);
    assert_string_equal(contents, "old\nnew\n");
    free(contents);
    assert_int_equal(unlink("a"), 0);
}

static void test_no_memory(void **state)
{
    (void)state;
    char *contents = NULL;
    size_t size = 0;
    char text[6000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    file_make("a", text);
    for (int count = 0; count < 2; count++) { /* The first buffer, or a larger one. */
        fail_memory_after(count);
        assert_int_equal(fw_file_read("a", 8000, &contents, &size, &reason), -ENOMEM);
        assert_non_null(strstr(reason.text, "cannot read a: Cannot allocate memory"));
    }
    fail_memory_after(0);
    assert_int_equal(fw_file_replace("a", "new", 3, 0600, &reason), -ENOMEM);
    assert_non_null(strstr(reason.text, "cannot replace a: Cannot allocate memory"));
    file_check_size("a", sizeof text - 1);
    assert_int_equal(unlink("a"), 0);
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
    assert_int_equal(stat(".", &status), 0);
    assert_int_equal(fault.flushed, status.st_ino);
    assert_int_equal(stat("a", &status), 0);
    assert_int_equal(status.st_mode & 07777, 0640);

    fault.part_max = 1;
    fault.call = 'w';
    fault.error = EINTR;
    fault.times = 2;
    assert_int_equal(fw_file_replace(absolute, "newer", 5, 0604, &reason), 0);
    file_check("a", "newer");
    assert_string_equal(fault.order, "frdfrd");
    assert_int_equal(stat("a", &status), 0);
    assert_int_equal(status.st_mode & 07777, 0604);
    assert_int_equal(files_in_folder(), 1);
    assert_int_equal(unlink("a"), 0);

    assert_int_equal(mkdir("sub", 0700), 0);
    assert_int_equal(fw_file_replace("sub/a", "x", 1, 0600, &reason), 0);
    assert_int_equal(stat("sub", &status), 0);
    assert_int_equal(fault.flushed, status.st_ino);
    assert_int_equal(unlink("sub/a"), 0);
    assert_int_equal(rmdir("sub"), 0);
}

static void test_replace_fails(void **state)
{
    (void)state;
    file_make("a", "old");
    fault.call = 'w';
    fault.error = ENOSPC;
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
    fault.call = 'f';
    fault.error = EIO;
    fault.times = 1;
    assert_int_equal(fw_file_replace("a", "new", 3, 0600, &reason), -EIO);
    assert_string_equal(fault.order, "f");
    file_check("a", "old");
    assert_int_equal(files_in_folder(), 1);

    fault.call = 'c'; /* A close may be where a network's file system says it is full. */
    fault.error = EDQUOT;
    fault.times = 1;
    assert_int_equal(fw_file_replace("a", "new", 3, 0600, &reason), -EDQUOT);
    file_check("a", "old");
    assert_int_equal(files_in_folder(), 1);

    fault.call = 'o';
    fault.error = EMFILE;
    fault.times = 1;
    assert_int_equal(fw_file_replace("a", "newer", 5, 0600, &reason), -EMFILE);
    assert_non_null(strstr(reason.text, "the folder of a: Too many open files; raise the limit"));
    file_check("a", "newer");
    fault.call = 'f';
    fault.error = EIO;
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
    struct stat status;
    assert_int_equal(fw_file_replace(path, "x", 1, 0600, &reason), 0);
    assert_string_equal(fault.order, "frd");
    assert_int_equal(stat("/", &status), 0);
    assert_int_equal(fault.flushed, status.st_ino);
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

    path[201] = '\0'; /* Shown is the end, up to 200 characters of it. */
    path[0] = 'a';
    assert_int_equal(fw_file_read(path, 1, &contents, &size, &reason), -ENOENT);
    assert_non_null(strstr(reason.text, "cannot open ...xxx"));
    assert_int_equal(fw_file_read(path + 1, 1, &contents, &size, &reason), -ENOENT);
    assert_non_null(strstr(reason.text, "cannot open xxx"));
}

/* Each error that users meet has advice of its own. */
static void test_advice(void **state)
{
    (void)state;
    static const struct {
        int error;
        const char *advice;
    } cases[] = {
        {ENOENT, "No such file or directory; check the name"},
        {ENOTDIR, "Not a directory; check the name"},
        {EISDIR, "Is a directory; name a file in it instead"},
        {EACCES, "Permission denied; change its permissions or the user"},
        {EPERM, "Operation not permitted; change its permissions or the user"},
        {ENOSPC, "No space left on device; make room on its file system"},
        {EDQUOT, "Disk quota exceeded; make room on its file system"},
        {EROFS, "Read-only file system; choose another place or mount it writable"},
        {EMFILE, "Too many open files; raise the limit of open files"},
        {ENFILE, "Too many open files in system; raise the limit of open files"},
        {EFBIG, "File too large; raise the limit of the file size (ulimit -f)"},
        {ENAMETOOLONG, "File name too long; choose a shorter name"},
        {EIO, "Input/output error; check its disk and the kernel's log"},
        {12345, "unknown error; check its disk and the kernel's log"},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        struct fw_appender appender;
        char expected[FW_REASON_SIZE];
        (void)snprintf(expected, sizeof expected, "cannot open a: %s", cases[i].advice);
        fault.call = 'o';
        fault.error = cases[i].error;
        fault.times = 1;
        assert_int_equal(fw_appender_open(&appender, "a", 0600, &reason), -cases[i].error);
        assert_string_equal(reason.text, expected);
    }
}

static void append(struct fw_appender *appender, const char *line)
{
    assert_int_equal(fw_appender_write(appender, line, strlen(line), NULL, &reason), 0);
}

static void test_append(void **state)
{
    (void)state;
    struct fw_appender appender;
    file_make("log", "before\n");
    assert_int_equal(fw_appender_open(&appender, "log", 0600, &reason), 0);
    append(&appender, "one\n");
    fault.part_max = 2;
    fault.call = 'w';
    fault.error = EINTR;
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
    expect_assert_failure((void)(fw_appender_write(&appender, "no end", 6, NULL, &reason) == 0));
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
    fault.call = 'w';
    fault.error = ENOSPC;
    fault.times = 3;
    assert_int_equal(fw_appender_write(&appender, "lost\n", 5, NULL, &reason), -ENOSPC);
    assert_string_equal(
        reason.text, "cannot append to log: No space left on device; make room on its file system");
    fault.part_max = 1;
    fault.skip = 1;
    assert_int_equal(fw_appender_write(&appender, "torn\n", 5, NULL, &reason), -ENOSPC);
    assert_int_equal(fw_appender_write(&appender, "still\n", 6, NULL, &reason), -ENOSPC);
    assert_int_equal(fault.times, 0);
    append(&appender, "next\n");
    append(&appender, "last\n");
    file_check("log", "t\nnext\nlast\n");

    fault.times = 1;
    fault.skip = 1;
    assert_int_equal(fw_appender_write(&appender, "torn\n", 5, NULL, &reason), -ENOSPC);
    assert_int_equal(unlink("log"), 0);
    assert_int_equal(fw_appender_reopen(&appender, &reason), 0);
    append(&appender, "new\n"); /* A new file has no torn line. */
    file_check("log", "new\n");
    fw_appender_close(&appender);
    assert_int_equal(unlink("log"), 0);
}

static void test_append_counts(void **state)
{
    (void)state;
    struct fw_appender appender;
    size_t done;
    file_make("log", "before\n");
    assert_int_equal(fw_appender_open(&appender, "log", 0600, &reason), 0);
    assert_int_equal(appender.size, 7);
    assert_int_equal(fw_appender_write(&appender, "one\ntwo\n", 8, &done, &reason), 0);
    assert_int_equal(done, 8);
    assert_int_equal(appender.size, 15);
    fault.call = 'w';
    fault.error = ENOSPC;
    fault.times = 1;
    fault.skip = 1;
    fault.part_max = 4;
    assert_int_equal(fw_appender_write(&appender, "a\nb\nc\n", 6, &done, &reason), -ENOSPC);
    assert_int_equal(done, 4);
    assert_int_equal(appender.size, 19);
    append(&appender, "next\n"); /* What was written ended with a line: no gap is needed. */
    file_check("log", "before\none\ntwo\na\nb\nnext\n");
    fw_appender_close(&appender);
    assert_int_equal(unlink("log"), 0);
}

static void test_rotate(void **state)
{
    (void)state;
    struct fw_appender appender;
    assert_int_equal(fw_appender_open(&appender, "log", 0600, &reason), 0);
    for (int i = 1; i <= 4; i++) {
        char line[] = "0\n";
        line[0] = (char)('0' + i);
        append(&appender, line);
        assert_int_equal(fw_appender_rotate(&appender, 2, &reason), 0);
        assert_int_equal(appender.size, 0);
    }
    append(&appender, "5\n");
    file_check("log", "5\n");
    file_check("log.1", "4\n");
    file_check("log.2", "3\n");
    assert_int_equal(access("log.3", F_OK), -1);
    expect_assert_failure((void)(fw_appender_rotate(&appender, 0, &reason) == 0));

    assert_int_equal(unlink("log.2"), 0);
    assert_int_equal(mkdir("log.2", 0700), 0);
    assert_int_equal(fw_appender_rotate(&appender, 2, &reason), -EISDIR);
    assert_string_equal(reason.text,
                        "cannot rotate log.1: Is a directory; name a file in it instead");
    append(&appender, "6\n"); /* Where it went before. */
    file_check("log", "5\n6\n");
    fw_appender_close(&appender);
    assert_int_equal(rmdir("log.2"), 0);
    assert_int_equal(unlink("log.1"), 0);
    assert_int_equal(unlink("log"), 0);
}

/* NOLINTBEGIN(concurrency-mt-unsafe): there is one thread. */
static void test_journal(void **state)
{
    (void)state;
    struct stat status;
    char stream[64];
    assert_int_equal(fstat(STDERR_FILENO, &status), 0);
    assert_int_equal(unsetenv("JOURNAL_STREAM"), 0);
    assert_false(fw_stderr_is_journal());
    (void)snprintf(stream, sizeof stream, "%ju:%ju", (uintmax_t)status.st_dev,
                   (uintmax_t)status.st_ino);
    assert_int_equal(setenv("JOURNAL_STREAM", stream, 1), 0);
    assert_true(fw_stderr_is_journal());
    (void)snprintf(stream, sizeof stream, "%ju:%ju", (uintmax_t)status.st_dev,
                   (uintmax_t)status.st_ino + 1); /* It was redirected. */
    assert_int_equal(setenv("JOURNAL_STREAM", stream, 1), 0);
    assert_false(fw_stderr_is_journal());
    assert_int_equal(unsetenv("JOURNAL_STREAM"), 0);
}
/* NOLINTEND(concurrency-mt-unsafe) */

/* Another opening is refused, and another process; when the holder is gone the byte is free. */
static void test_lock(void **state)
{
    (void)state;
    struct fw_file_lock lock;
    struct fw_file_lock other;
    assert_int_equal(fw_file_lock_take(&lock, "locked", 1, &reason), -ENOENT);
    assert_int_equal(fw_file_replace("locked", "", 0, 0600, &reason), 0);
    assert_int_equal(fw_file_lock_take(&lock, "locked", 1, &reason), 0);
    assert_int_equal(fw_file_lock_take(&other, "locked", 1, &reason), -EBUSY);
    assert_int_equal(fw_file_lock_take(&other, "locked", 2, &reason), 0); /* Only that byte. */
    fw_file_lock_release(&other);
    pid_t child = fork();
    if (child == 0) {
        struct fw_file_lock own;
        (void)close(lock.fd); /* Or the child would share the opening. */
        int rc = fw_file_lock_take(&own, "locked", 1, NULL);
        _exit(rc == -EBUSY && fw_file_lock_take(&own, "locked", 3, NULL) == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(fw_file_lock_take(&other, "locked", 3, &reason), 0); /* It has ended. */
    fw_file_lock_release(&other);
    fw_file_lock_release(&lock);
    assert_int_equal(fw_file_lock_take(&lock, "locked", 1, &reason), 0);
    fw_file_lock_release(&lock);
    assert_int_equal(unlink("locked"), 0);
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

/* A file that exists to be locked, and what its owner notes there. */
static void test_lock_file(void **state)
{
    (void)state;
    struct fw_file_lock lock, other;
    struct fw_file_version first, second;
    struct stat status;
    char text[8];
    assert_int_equal(fw_file_version("made", &first), -ENOENT);
    assert_int_equal(fw_file_lock_make(&lock, "made", &reason), 0);
    assert_int_equal(stat("made", &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(fw_file_lock_make(&other, "made", &reason), -EBUSY);
    assert_non_null(strstr(reason.text, "another process has it"));
    fw_file_lock_read(&lock, text, sizeof text);
    assert_string_equal(text, "");
    assert_int_equal(fw_file_lock_write(&lock, "longer than that"), 0);
    fw_file_lock_read(&lock, text, sizeof text);
    assert_string_equal(text, "longer ");
    assert_int_equal(fw_file_lock_write(&lock, "short"), 0);
    fw_file_lock_release(&lock);
    assert_int_equal(fw_file_lock_make(&lock, "made", &reason), 0); /* And the note stays. */
    fw_file_lock_read(&lock, text, sizeof text);
    assert_string_equal(text, "short");
    fw_file_lock_release(&lock);
    assert_int_equal(fw_file_version("made", &first), 0);
    assert_int_equal(first.size, 5);
    const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 3, .tv_nsec = 7}};
    assert_int_equal(utimensat(AT_FDCWD, "made", times, 0), 0);
    assert_int_equal(fw_file_version("made", &second), 0);
    assert_int_equal(second.written_ns, INT64_C(3000000007));
    assert_int_equal(unlink("made"), 0);
    assert_int_equal(symlink("nowhere", "made"), 0);
    assert_int_equal(fw_file_lock_make(&lock, "made", &reason), -ELOOP);
    assert_int_equal(unlink("made"), 0);
}

/* The lock that LVM takes; and one whose file is removed by who had it is not taken for it. */
static void test_lock_by_flock(void **state)
{
    (void)state;
    char path[] = "/tmp/fairway-flock-XXXXXX";
    struct fw_file_lock lock;
    struct fw_reason why;
    int other = mkstemp(path);
    assert_true(other >= 0);
    assert_int_equal(fw_file_lock_wait(&lock, path, &why), 0);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), -1);
    assert_int_equal(errno, EWOULDBLOCK);
    fw_file_lock_release(&lock);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(unlink(path), 0); /* A new file, which nobody has. */
    assert_int_equal(fw_file_lock_wait(&lock, path, &why), 0);
    (void)close(other);
    fw_file_lock_release(&lock);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(fw_file_lock_wait(&lock, "/nowhere/lock", &why), -ENOENT);
    assert_non_null(strstr(why.text, "/nowhere/lock"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_read, reset),
        cmocka_unit_test_setup(test_read_secret, reset),
        cmocka_unit_test_setup(test_read_interrupted, reset),
        cmocka_unit_test_setup(test_read_sizes, reset),
        cmocka_unit_test_setup(test_descriptor_zero, reset),
        cmocka_unit_test_setup(test_no_memory, reset),
        cmocka_unit_test_setup(test_replace, reset),
        cmocka_unit_test_setup(test_replace_fails, reset),
        cmocka_unit_test_setup(test_replace_in_root, reset),
        cmocka_unit_test_setup(test_long_path, reset),
        cmocka_unit_test_setup(test_advice, reset),
        cmocka_unit_test_setup(test_append, reset),
        cmocka_unit_test_setup(test_append_torn, reset),
        cmocka_unit_test_setup(test_append_counts, reset),
        cmocka_unit_test_setup(test_rotate, reset),
        cmocka_unit_test_setup(test_journal, reset),
        cmocka_unit_test_setup(test_lock, reset),
        cmocka_unit_test_setup(test_lock_file, reset),
        cmocka_unit_test_setup(test_append_open_fails, reset),
        cmocka_unit_test(test_lock_by_flock),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
