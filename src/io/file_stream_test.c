/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a long file comes into being whole, under its name, or not at all, and leaves nothing
 * behind; pipes and devices are written to as they are; readers get all there is.
 * Method: real files in a temporary folder. Where a file system has no nameless files is simulated
 * by an open() that refuses O_TMPFILE, a full disk by the limit of the file size.
 */
#include "io/file_stream.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

static bool refuses_nameless;
static int fsync_error;

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = va_arg(arguments, mode_t);
    va_end(arguments);
    if (refuses_nameless && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_open64(path, flags, mode);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    if (fsync_error != 0) {
        errno = fsync_error;
        return -1;
    }
    return __real_fsync(fd);
}

static char folder[64];
static char path[128];

static int set_up(void **state)
{
    (void)state;
    refuses_nameless = false;
    fsync_error = 0;
    (void)snprintf(folder, sizeof folder, "/tmp/fw-file-stream-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s/dump", folder);
    return 0;
}

/* Removes all that is in the folder, and returns how many files that were. */
static int folder_empty(void)
{
    int count = 0;
    DIR *listing = opendir(folder);
    assert_non_null(listing);
    const struct dirent *entry;
    while ((entry = readdir(listing)) != NULL) { /* NOLINT(concurrency-mt-unsafe): one thread. */
        if (entry->d_name[0] != '.') {
            assert_int_equal(unlinkat(dirfd(listing), entry->d_name, 0), 0);
            count++;
        }
    }
    (void)closedir(listing);
    return count;
}

static int tear_down(void **state)
{
    (void)state;
    (void)folder_empty();
    return rmdir(folder);
}

static void assert_contents(const char *expected)
{
    struct fw_reason reason;
    struct fw_file_reader reader;
    char buffer[64];
    assert_int_equal(fw_file_reader_open(&reader, path, &reason), 0);
    assert_int_equal(reader.size, strlen(expected));
    for (int round = 0; round < 2; round++) {
        ssize_t length = fw_file_reader_read(&reader, buffer, sizeof buffer, &reason);
        assert_int_equal(length, strlen(expected));
        assert_memory_equal(buffer, expected, strlen(expected));
        assert_int_equal(fw_file_reader_read(&reader, buffer, sizeof buffer, &reason), 0);
        assert_true(fw_file_reader_rewind(&reader));
    }
    fw_file_reader_close(&reader);
}

static void write_text(struct fw_file_writer *writer, const char *text)
{
    struct fw_reason reason;
    assert_int_equal(fw_file_writer_write(writer, text, strlen(text), &reason), 0);
}

static void commit_and_abandon(void)
{
    struct fw_reason reason;
    struct fw_file_writer writer;
    struct stat status;
    assert_int_equal(fw_file_writer_open(&writer, path, 0640, &reason), 0);
    write_text(&writer, "first ");
    write_text(&writer, "file");
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(fw_file_writer_commit(&writer, &reason), 0);
    assert_contents("first file");
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0640);

    /* The old one stays until the new one is complete, and if it never is. */
    assert_int_equal(fw_file_writer_open(&writer, path, 0600, &reason), 0);
    write_text(&writer, "second");
    assert_contents("first file");
    fw_file_writer_abandon(&writer);
    assert_contents("first file");
    assert_int_equal(fw_file_writer_open(&writer, path, 0600, &reason), 0);
    write_text(&writer, "third");
    assert_int_equal(fw_file_writer_commit(&writer, &reason), 0);
    assert_contents("third");
    assert_int_equal(folder_empty(), 1);
}

static void test_replaces_in_one_step(void **state)
{
    (void)state;
    commit_and_abandon();
}

static void test_without_nameless_files(void **state)
{
    (void)state;
    refuses_nameless = true;
    commit_and_abandon();
}

static void test_full_disk(void **state)
{
    (void)state;
    struct fw_reason reason;
    struct fw_file_writer writer;
    struct rlimit before;
    struct rlimit limit = {.rlim_cur = 4};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit.rlim_max = before.rlim_max;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(fw_file_writer_open(&writer, path, 0600, &reason), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int rc = fw_file_writer_write(&writer, "12345678", 8, &reason);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(rc, -EFBIG);
    assert_non_null(strstr(reason.text, path));
    fw_file_writer_abandon(&writer);
    assert_int_equal(folder_empty(), 0);
}

static void test_failed_flush(void **state)
{
    (void)state;
    struct fw_reason reason;
    struct fw_file_writer writer;
    for (int round = 0; round < 2; round++) {
        refuses_nameless = round == 1;
        assert_int_equal(fw_file_writer_open(&writer, path, 0600, &reason), 0);
        write_text(&writer, "lost");
        fsync_error = EIO;
        assert_int_equal(fw_file_writer_commit(&writer, &reason), -EIO);
        fsync_error = 0;
        assert_int_equal(folder_empty(), 0);
    }
}

static void test_name_is_taken(void **state)
{
    (void)state;
    struct fw_reason reason;
    struct fw_file_writer writer;
    char other[160];
    /* Left by a process of the same number, which could not end. */
    (void)snprintf(other, sizeof other, "%s.new-%06u", path, (unsigned)getpid() % 1000000U);
    FILE *file = fopen(other, "we");
    assert_non_null(file);
    (void)fclose(file);
    assert_int_equal(fw_file_writer_open(&writer, path, 0600, &reason), 0);
    write_text(&writer, "new");
    assert_int_equal(fw_file_writer_commit(&writer, &reason), 0);
    assert_contents("new");
    assert_int_equal(folder_empty(), 2);
}

static void test_devices_and_folders(void **state)
{
    (void)state;
    struct fw_reason reason;
    struct fw_file_writer writer;
    struct stat status;
    assert_int_equal(fw_file_writer_open(&writer, "/dev/full", 0600, &reason), 0);
    assert_int_equal(fw_file_writer_write(&writer, "x", 1, &reason), -ENOSPC);
    fw_file_writer_abandon(&writer);
    assert_int_equal(fw_file_writer_open(&writer, "/dev/null", 0600, &reason), 0);
    write_text(&writer, "x");
    assert_int_equal(fw_file_writer_commit(&writer, &reason), 0);
    assert_int_equal(stat("/dev/null", &status), 0);
    assert_true(S_ISCHR(status.st_mode));

    char inside[160];
    (void)snprintf(inside, sizeof inside, "%s/no/such", folder);
    assert_int_equal(fw_file_writer_open(&writer, inside, 0600, &reason), -ENOENT);
    assert_non_null(strstr(reason.text, inside));
    assert_int_equal(fw_file_writer_open(&writer, folder, 0600, &reason), -EISDIR);
    assert_non_null(strstr(reason.text, "name a file in it instead"));
}

static void test_readers(void **state)
{
    (void)state;
    struct fw_reason reason;
    struct fw_file_reader reader;
    int ends[2];
    char name[64];
    char buffer[8];
    assert_int_equal(fw_file_reader_open(&reader, path, &reason), -ENOENT);
    assert_non_null(strstr(reason.text, path));
    assert_int_equal(fw_file_reader_open(&reader, folder, &reason), 0);
    assert_int_equal(fw_file_reader_read(&reader, buffer, sizeof buffer, &reason), -EISDIR);
    fw_file_reader_close(&reader);

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "abc", 3), 3);
    (void)snprintf(name, sizeof name, "/proc/self/fd/%d", ends[0]);
    assert_int_equal(fw_file_reader_open(&reader, name, &reason), 0);
    assert_int_equal(reader.size, 0);
    assert_false(fw_file_reader_rewind(&reader));
    (void)close(ends[1]);
    assert_int_equal(fw_file_reader_read(&reader, buffer, sizeof buffer, &reason), 3);
    fw_file_reader_close(&reader);
    (void)close(ends[0]);
}

/* A file that only its descriptors know, of any length and with nothing in it. */
static void check_temporary(void)
{
    enum { SIZE = 1 << 30 };
    struct fw_reason reason;
    struct fw_file_temporary temporary;
    struct stat status;
    assert_int_equal(fw_file_temporary_open(&temporary, folder, SIZE, &reason), 0);
    assert_int_equal(temporary.size, SIZE);
    assert_int_equal(folder_empty(), 0);
    int fd = open(temporary.path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "abc", 3, SIZE - 3), 3);
    (void)close(fd);
    char read[4] = "";
    assert_int_equal(pread(temporary.fd, read, 3, SIZE - 3), 3);
    assert_string_equal(read, "abc");
    assert_int_equal(fstat(temporary.fd, &status), 0);
    assert_int_equal(status.st_size, SIZE);
    assert_true(status.st_blocks * 512 < SIZE / 2);
    fw_file_temporary_close(&temporary);
    assert_int_equal(folder_empty(), 0);
}

static void test_temporary(void **state)
{
    (void)state;
    check_temporary();
    refuses_nameless = true;
    check_temporary();
    refuses_nameless = false;
    struct fw_reason reason;
    struct fw_file_temporary temporary;
    assert_int_equal(fw_file_temporary_open(&temporary, "/no/such", 4096, &reason), -ENOENT);
    assert_non_null(strstr(reason.text, "cannot make a file in /no/such"));
    /* Where files may not be that long it is as long as it may be. */
    struct rlimit before;
    struct rlimit limit = {.rlim_cur = 8192};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int rc = fw_file_temporary_open(&temporary, folder, 1 << 20, &reason);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(rc, 0);
    assert_int_equal(temporary.size, 8192);
    fw_file_temporary_close(&temporary);
}

static void test_remove(void **state)
{
    (void)state;
    struct fw_reason reason;
    struct fw_file_writer writer;
    assert_int_equal(fw_file_remove(path, &reason), 0);
    assert_int_equal(fw_file_writer_open(&writer, path, 0600, &reason), 0);
    assert_int_equal(fw_file_writer_commit(&writer, &reason), 0);
    assert_int_equal(fw_file_remove(path, &reason), 0);
    assert_int_equal(access(path, F_OK), -1);
    assert_true(fw_file_remove(folder, &reason) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_replaces_in_one_step, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_nameless_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_full_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failed_flush, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_name_is_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_devices_and_folders, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_readers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_temporary, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_remove, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("io/file_stream", tests, NULL, NULL);
}
