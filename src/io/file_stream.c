/* SPDX-License-Identifier: Apache-2.0 */
#include "io/file_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "io/file_calls.h"

static const char suffix[] = ".new-XXXXXX";

/* PATH.new-XXXXXX, to be made unique. */
static char *temporary_name(const char *path)
{
    size_t size = strlen(path) + sizeof suffix;
    char *name = malloc(size);
    if (name != NULL) {
        (void)snprintf(name, size, "%s%s", path, suffix);
    }
    return name;
}

/* A file without a name in the folder of `path`, or a negative errno. */
static int open_nameless(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) {
        return fw_file_open(".", O_TMPFILE | O_WRONLY, S_IRUSR | S_IWUSR);
    }
    size_t length = slash == path ? 1 : (size_t)(slash - path);
    char *folder = strndup(path, length);
    int fd =
        folder != NULL ? fw_file_open(folder, O_TMPFILE | O_WRONLY, S_IRUSR | S_IWUSR) : -ENOMEM;
    free(folder);
    return fd;
}

static int open_named(struct fw_file_writer *writer)
{
    writer->temporary = temporary_name(writer->path);
    if (writer->temporary == NULL) {
        return -ENOMEM;
    }
    int fd = mkostemp(writer->temporary, O_CLOEXEC);
    if (fd < 0) {
        fd = -errno;
        free(writer->temporary);
        writer->temporary = NULL;
    }
    return fd;
}

/* To a pipe or a device: there is nothing to replace. */
static bool mode_is_direct(mode_t mode)
{
    return mode != 0 && !S_ISREG(mode) && !S_ISDIR(mode);
}

int fw_file_writer_open(struct fw_file_writer *writer, const char *path, mode_t mode,
                        struct fw_reason *reason)
{
    *writer = (struct fw_file_writer){.fd = STDOUT_FILENO, .is_direct = true};
    if (path == NULL) {
        return 0;
    }
    struct stat status = {.st_mode = 0};
    (void)stat(path, &status); /* There need not be anything yet. */
    if (S_ISDIR(status.st_mode)) {
        return fw_file_failed(reason, -EISDIR, "write", path);
    }
    writer->path = strdup(path);
    if (writer->path == NULL) {
        return fw_file_failed(reason, -ENOMEM, "write", path);
    }
    writer->is_direct = mode_is_direct(status.st_mode);
    int fd = writer->is_direct ? fw_file_open(path, O_WRONLY, 0) : open_nameless(path);
    /* Not every file system has files without names. Who must not write is told so below. */
    if (fd < 0 && !writer->is_direct) {
        fd = open_named(writer);
    }
    if (fd < 0) {
        free(writer->path);
        return fw_file_failed(reason, fd, writer->is_direct ? "open" : "make a file beside", path);
    }
    writer->fd = fd;
    if (!writer->is_direct && fchmod(fd, mode) != 0) {
        int rc = fw_file_failed(reason, -errno, "make a file beside", path);
        fw_file_writer_abandon(writer);
        return rc;
    }
    return 0;
}

static const char *writer_name(const struct fw_file_writer *writer)
{
    return writer->path != NULL ? writer->path : "standard output";
}

int fw_file_writer_write(struct fw_file_writer *writer, const void *bytes, size_t size,
                         struct fw_reason *reason)
{
    size_t done;
    int rc = fw_file_write_full(writer->fd, bytes, size, &done);
    return rc != 0 ? fw_file_failed(reason, rc, "write", writer_name(writer)) : 0;
}

static void writer_end(struct fw_file_writer *writer)
{
    if (writer->path != NULL) {
        (void)close(writer->fd);
    }
    free(writer->temporary);
    free(writer->path);
    *writer = (struct fw_file_writer){.fd = -1};
}

void fw_file_writer_abandon(struct fw_file_writer *writer)
{
    if (writer->temporary != NULL) {
        (void)unlink(writer->temporary);
    }
    writer_end(writer);
}

/* Gives a file without a name one beside the path: linkat() replaces nothing, rename() does. */
static int writer_name_it(struct fw_file_writer *writer)
{
    enum { TRIES = 100, DESCRIPTOR_SIZE = 32 };
    char descriptor[DESCRIPTOR_SIZE];
    (void)snprintf(descriptor, sizeof descriptor, "/proc/self/fd/%d", writer->fd);
    for (int i = 0; i < TRIES; i++) {
        char *name = temporary_name(writer->path);
        if (name == NULL) {
            return -ENOMEM;
        }
        /* The name need not be a secret: who else is in that folder may write there anyway. */
        (void)snprintf(name + strlen(name) - 6, 7, "%06u", (unsigned)(getpid() + i) % 1000000U);
        if (linkat(AT_FDCWD, descriptor, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0) {
            writer->temporary = name;
            return 0;
        }
        free(name);
        if (errno != EEXIST) {
            return -errno;
        }
    }
    return -EEXIST;
}

int fw_file_writer_commit(struct fw_file_writer *writer, struct fw_reason *reason)
{
    int rc = 0;
    if (!writer->is_direct && fsync(writer->fd) != 0) {
        rc = -errno;
    }
    if (rc == 0 && !writer->is_direct && writer->temporary == NULL) {
        rc = writer_name_it(writer);
    }
    if (rc == 0 && !writer->is_direct && rename(writer->temporary, writer->path) != 0) {
        rc = -errno;
    }
    if (rc != 0) {
        (void)fw_file_failed(reason, rc, "write", writer_name(writer));
        fw_file_writer_abandon(writer);
        return rc;
    }
    if (!writer->is_direct) {
        rc = fw_file_flush_folder(writer->temporary);
        if (rc != 0) {
            (void)fw_file_failed(reason, rc, "flush, after writing it, the folder of",
                                 writer->path);
        }
    }
    writer_end(writer);
    return rc;
}

int fw_file_reader_open(struct fw_file_reader *reader, const char *path, struct fw_reason *reason)
{
    *reader = (struct fw_file_reader){.path = path, .fd = STDIN_FILENO};
    if (path != NULL) {
        reader->fd = fw_file_open(path, O_RDONLY, 0);
        if (reader->fd < 0) {
            return fw_file_failed(reason, reader->fd, "open", path);
        }
    }
    struct stat status;
    if (fstat(reader->fd, &status) == 0 && S_ISREG(status.st_mode)) {
        reader->size = (uint64_t)status.st_size;
    }
    return 0;
}

ssize_t fw_file_reader_read(struct fw_file_reader *reader, void *buffer, size_t size,
                            struct fw_reason *reason)
{
    ssize_t done = fw_file_read_full(reader->fd, buffer, size);
    if (done < 0) {
        return fw_file_failed(reason, (int)done, "read",
                              reader->path != NULL ? reader->path : "standard input");
    }
    return done;
}

bool fw_file_reader_rewind(struct fw_file_reader *reader)
{
    return lseek(reader->fd, 0, SEEK_SET) == 0;
}

void fw_file_reader_close(struct fw_file_reader *reader)
{
    if (reader->path != NULL) {
        (void)close(reader->fd);
    }
    reader->fd = -1;
}

/* A file in that folder that has no name, or has none any more. */
static int nameless_open(const char *folder)
{
    int fd = fw_file_open(folder, O_TMPFILE | O_RDWR | O_EXCL, 0600);
    if (fd != -EOPNOTSUPP && fd != -EISDIR) {
        return fd;
    }
    /* A file system that knows no such files: it has a name for a moment. */
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/fairway.XXXXXX", folder);
    if (length < 0 || (size_t)length >= sizeof path) {
        return -ENAMETOOLONG;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    (void)unlink(path);
    return fd;
}

int fw_file_temporary_open(struct fw_file_temporary *temporary, const char *folder, uint64_t size,
                           struct fw_reason *reason)
{
    int fd = nameless_open(folder);
    if (fd < 0) {
        return fw_file_failed(reason, fd, "make a file in", folder);
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size) {
        size = limit.rlim_cur;
    }
    if (ftruncate(fd, (off_t)size) != 0) {
        int rc = fw_file_failed(reason, -errno, "make a file in", folder);
        (void)close(fd);
        return rc;
    }
    *temporary = (struct fw_file_temporary){.fd = fd, .size = size};
    (void)snprintf(temporary->path, sizeof temporary->path, "/proc/self/fd/%d", fd);
    return 0;
}

void fw_file_temporary_close(struct fw_file_temporary *temporary)
{
    (void)close(temporary->fd);
    temporary->fd = -1;
}

int fw_file_remove(const char *path, struct fw_reason *reason)
{
    if (unlink(path) != 0 && errno != ENOENT) {
        return fw_file_failed(reason, -errno, "remove", path);
    }
    return 0;
}

bool fw_stderr_is_terminal(void)
{
    return isatty(STDERR_FILENO) == 1;
}
