/* SPDX-License-Identifier: Apache-2.0 */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "io/clock.h"
#include "io/file_calls.h"

enum {
    READ_SIZE_FIRST = 4096, /* Then twice that, and so on: files of /proc do not know their size. */
    PATH_SHOWN_MAX = 200,   /* Of a longer path the end is shown, which tells files apart. */
};

/* What the user can do about an error. */
static const char *error_advice(int error)
{
    switch (-error) {
    case ENOENT:
    case ENOTDIR:
        return "check the name";
    case EISDIR:
        return "name a file in it instead";
    case EACCES:
    case EPERM:
        return "change its permissions or the user";
    case ENOSPC:
    case EDQUOT:
        return "make room on its file system";
    case EROFS:
        return "choose another place or mount it writable";
    case EMFILE:
    case ENFILE:
        return "raise the limit of open files";
    case EBUSY:
        return "another process has it";
    case EFBIG:
        return "raise the limit of the file size (ulimit -f)";
    case ENAMETOOLONG:
        return "choose a shorter name";
    default:
        return "check its disk and the kernel's log";
    }
}

static bool path_is_cut(const char *path)
{
    return strlen(path) > PATH_SHOWN_MAX;
}

static const char *path_end(const char *path)
{
    return path_is_cut(path) ? path + strlen(path) - PATH_SHOWN_MAX : path;
}

int fw_file_failed(struct fw_reason *reason, int error, const char *verb, const char *path)
{
    const char *text = strerrordesc_np(-error);
    return fw_reason_set(reason, error, "cannot %s %s%s: %s; %s", verb,
                         path_is_cut(path) ? "..." : "", path_end(path),
                         text != NULL ? text : "unknown error", error_advice(error));
}

int fw_file_open(const char *path, int flags, mode_t mode)
{
    int fd;
    do {
        fd = open(path, flags | O_CLOEXEC, mode);
    } while (fd < 0 && errno == EINTR);
    return fd < 0 ? -errno : fd;
}

ssize_t fw_file_read_full(int fd, char *buffer, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t part = read(fd, buffer + done, size - done);
        if (part == 0) {
            break;
        }
        if (part != -1) {
            done += (size_t)part;
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return (ssize_t)done;
}

int fw_file_write_full(int fd, const char *buffer, size_t size, size_t *done)
{
    *done = 0;
    while (*done < size) {
        ssize_t part = write(fd, buffer + *done, size - *done);
        if (part == 0) {
            return -EIO; /* Not what write() may do; without this it would be an endless loop. */
        }
        if (part != -1) {
            *done += (size_t)part;
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

/*
 * One byte more than is allowed is asked for, which tells "just fits" from "too big", and leaves
 * room for the zero at the end.
 */
static int read_whole(int fd, size_t size_max, char **contents, size_t *size)
{
    size_t limit = size_max + 1;
    size_t room = READ_SIZE_FIRST < limit ? READ_SIZE_FIRST : limit;
    size_t done = 0;
    char *buffer = NULL;
    int rc = 0;
    for (;;) {
        char *larger = realloc(buffer, room);
        if (larger == NULL) {
            rc = -ENOMEM;
            goto fail;
        }
        buffer = larger;
        ssize_t part = fw_file_read_full(fd, buffer + done, room - done);
        if (part < 0) {
            rc = (int)part;
            goto fail;
        }
        done += (size_t)part;
        if (done < room) {
            break;
        }
        if (room == limit) {
            rc = -EFBIG;
            goto fail;
        }
        room = room < limit / 2 ? room * 2 : limit;
    }
    buffer[done] = '\0';
    *contents = buffer;
    *size = done;
    return 0;

fail:
    free(buffer);
    return rc;
}

/* May anyone read or write what is open? 0, -EPERM or what the system said. */
static int others_check(int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return -errno;
    }
    return (status.st_mode & (S_IROTH | S_IWOTH)) != 0 ? -EPERM : 0;
}

static int file_read(const char *path, size_t size_max, char **contents, size_t *size,
                     bool is_secret, struct fw_reason *reason)
{
    FW_ASSERT(size_max <= FW_FILE_SIZE_MAX);
    int fd = fw_file_open(path, O_RDONLY, 0);
    if (fd < 0) {
        return fw_file_failed(reason, fd, "open", path);
    }
    int rc = is_secret ? others_check(fd) : 0;
    if (rc == -EPERM) {
        (void)close(fd);
        return fw_reason_set(reason, rc,
                             "every user of this machine may read or write it: chmod o= %s%s",
                             path_is_cut(path) ? "..." : "", path_end(path));
    }
    rc = rc != 0 ? rc : read_whole(fd, size_max, contents, size);
    (void)close(fd);
    if (rc == -EFBIG) {
        return fw_reason_set(reason, rc, "cannot read %s%s: it has more than the %zu bytes allowed",
                             path_is_cut(path) ? "..." : "", path_end(path), size_max);
    }
    return rc != 0 ? fw_file_failed(reason, rc, "read", path) : 0;
}

int fw_file_read(const char *path, size_t size_max, char **contents, size_t *size,
                 struct fw_reason *reason)
{
    return file_read(path, size_max, contents, size, false, reason);
}

int fw_file_read_secret(const char *path, size_t size_max, char **contents, size_t *size,
                        struct fw_reason *reason)
{
    return file_read(path, size_max, contents, size, true, reason);
}

static int lock_open(struct fw_file_lock *lock, const char *path, int flags, uint64_t byte,
                     struct fw_reason *reason)
{
    struct flock range = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
    int fd = fw_file_open(path, O_RDWR | flags, S_IRUSR | S_IWUSR);
    if (fd < 0) {
        return fw_file_failed(reason, fd, "open", path);
    }
    if (fcntl(fd, F_OFD_SETLK, &range) != 0) {
        int rc = errno == EACCES || errno == EAGAIN ? -EBUSY : -errno;
        (void)close(fd);
        return fw_file_failed(reason, rc, "lock", path);
    }
    lock->fd = fd;
    return 0;
}

int fw_file_lock_take(struct fw_file_lock *lock, const char *path, uint64_t byte,
                      struct fw_reason *reason)
{
    return lock_open(lock, path, 0, byte, reason);
}

int fw_file_lock_make(struct fw_file_lock *lock, const char *path, struct fw_reason *reason)
{
    return lock_open(lock, path, O_CREAT | O_NOFOLLOW, 0, reason);
}

int fw_file_lock_write(const struct fw_file_lock *lock, const char *text)
{
    ssize_t length = (ssize_t)strlen(text);
    ssize_t done = ftruncate(lock->fd, 0) == 0 ? pwrite(lock->fd, text, (size_t)length, 0) : -1;
    if (done < 0) {
        return -errno;
    }
    return done < length ? -ENOSPC : fsync(lock->fd) != 0 ? -errno : 0;
}

void fw_file_lock_read(const struct fw_file_lock *lock, char *text, size_t size)
{
    ssize_t length = pread(lock->fd, text, size - 1, 0);
    text[length > 0 ? length : 0] = '\0';
}

int fw_file_version(const char *path, struct fw_file_version *version)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        return -errno;
    }
    *version = (struct fw_file_version){.size = (uint64_t)status.st_size,
                                        .written_ns = (int64_t)status.st_mtim.tv_sec * FW_NS_PER_S +
                                                      status.st_mtim.tv_nsec};
    return 0;
}

/* Whether what is locked is what others will find at the path. */
static bool is_still_there(int fd, const char *path)
{
    struct stat ours, theirs;
    return fstat(fd, &ours) == 0 && stat(path, &theirs) == 0 && ours.st_ino == theirs.st_ino &&
           ours.st_dev == theirs.st_dev;
}

int fw_file_lock_wait(struct fw_file_lock *lock, const char *path, struct fw_reason *reason)
{
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0700);
        if (fd < 0) {
            return fw_reason_errno(reason, -errno, "cannot open the lock %.150s", path);
        }
        int rc;
        do {
            rc = flock(fd, LOCK_EX);
        } while (rc != 0 && errno == EINTR);
        int error = errno;
        if (rc == 0 && is_still_there(fd, path)) {
            lock->fd = fd;
            return 0;
        }
        (void)close(fd);
        if (rc != 0) {
            return fw_reason_errno(reason, -error, "cannot lock %.150s", path);
        }
    }
}

void fw_file_lock_place(const struct fw_file_lock *lock, uint64_t place[2])
{
    struct stat status = {.st_ino = 0};
    (void)!fstat(lock->fd, &status);
    place[0] = (uint64_t)status.st_dev;
    place[1] = (uint64_t)status.st_ino;
}

void fw_file_lock_release(struct fw_file_lock *lock)
{
    (void)close(lock->fd); /* The only descriptor of this opening: the lock goes with it. */
    lock->fd = -1;
}

static int write_temporary(int fd, const void *contents, size_t size, mode_t mode)
{
    size_t done;
    int rc = fw_file_write_full(fd, contents, size, &done);
    if (rc != 0) {
        return rc;
    }
    if (fchmod(fd, mode) != 0 || fsync(fd) != 0) {
        return -errno;
    }
    return 0;
}

int fw_file_flush_folder(char *path)
{
    char *slash = strrchr(path, '/');
    const char *folder = ".";
    if (slash == path) {
        folder = "/";
    } else if (slash != NULL) {
        *slash = '\0';
        folder = path;
    }
    int fd = fw_file_open(folder, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) {
        return fd;
    }
    int rc = fsync(fd) != 0 ? -errno : 0;
    (void)close(fd);
    return rc;
}

int fw_file_replace(const char *path, const void *contents, size_t size, mode_t mode,
                    struct fw_reason *reason)
{
    static const char suffix[] = ".new-XXXXXX";
    size_t temporary_size = strlen(path) + sizeof suffix;
    char *temporary = malloc(temporary_size);
    if (temporary == NULL) {
        return fw_file_failed(reason, -ENOMEM, "replace", path);
    }
    (void)snprintf(temporary, temporary_size, "%s%s", path, suffix);

    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        int rc = fw_file_failed(reason, -errno, "make a file beside", path);
        free(temporary);
        return rc;
    }
    int rc = write_temporary(fd, contents, size, mode);
    if (close(fd) != 0 && rc == 0) {
        rc = -errno;
    }
    if (rc == 0 && rename(temporary, path) != 0) {
        rc = -errno;
    }
    if (rc != 0) {
        (void)unlink(temporary);
        (void)fw_file_failed(reason, rc, "replace", path);
    } else {
        rc = fw_file_flush_folder(temporary);
        if (rc != 0) {
            (void)fw_file_failed(reason, rc, "flush, after replacing it, the folder of", path);
        }
    }
    free(temporary);
    return rc;
}

static int appender_open_path(const struct fw_appender *appender, struct fw_reason *reason)
{
    int fd = fw_file_open(appender->path, O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY, appender->mode);
    return fd < 0 ? fw_file_failed(reason, fd, "open", appender->path) : fd;
}

/* What is open now, and how much is in it. */
static void appender_take(struct fw_appender *appender, int fd)
{
    struct stat status;
    appender->fd = fd;
    appender->torn = false;
    appender->size = fstat(fd, &status) == 0 && status.st_size > 0 ? (uint64_t)status.st_size : 0;
}

int fw_appender_open(struct fw_appender *appender, const char *path, mode_t mode,
                     struct fw_reason *reason)
{
    *appender = (struct fw_appender){.path = strdup(path), .mode = mode};
    if (appender->path == NULL) {
        return fw_file_failed(reason, -ENOMEM, "open", path);
    }
    int fd = appender_open_path(appender, reason);
    if (fd < 0) {
        free(appender->path);
        return fd;
    }
    appender_take(appender, fd);
    return 0;
}

void fw_appender_close(struct fw_appender *appender)
{
    (void)close(appender->fd); /* Nothing was promised about flushing. */
    free(appender->path);
    appender->path = NULL;
    appender->fd = -1;
}

int fw_appender_reopen(struct fw_appender *appender, struct fw_reason *reason)
{
    int fd = appender_open_path(appender, reason);
    if (fd < 0) {
        return fd;
    }
    (void)close(appender->fd);
    appender_take(appender, fd);
    return 0;
}

/* PATH.number; PATH itself for 0. */
static void rotated_name(char *name, size_t size, const char *path, uint32_t number)
{
    (void)snprintf(name, size, number == 0 ? "%s" : "%s.%u", path, number);
}

int fw_appender_rotate(struct fw_appender *appender, uint32_t keep, struct fw_reason *reason)
{
    FW_ASSERT(keep >= 1);
    size_t size = strlen(appender->path) + sizeof ".4294967295";
    char *names = malloc(2 * size);
    if (names == NULL) {
        return fw_file_failed(reason, -ENOMEM, "rotate", appender->path);
    }
    char *from = names;
    char *to = names + size;
    int rc = 0;
    /* The oldest first. One that is not there is none to keep. */
    for (uint32_t number = keep; number > 0 && rc == 0; number--) {
        rotated_name(from, size, appender->path, number - 1);
        rotated_name(to, size, appender->path, number);
        if (rename(from, to) != 0 && errno != ENOENT) {
            rc = fw_file_failed(reason, -errno, "rotate", from);
        }
    }
    free(names);
    return rc != 0 ? rc : fw_appender_reopen(appender, reason);
}

int fw_appender_write(struct fw_appender *appender, const char *lines, size_t size, size_t *done,
                      struct fw_reason *reason)
{
    FW_ASSERT(size > 0 && lines[size - 1] == '\n');
    size_t written = 0;
    int rc = 0;
    if (appender->torn) {
        rc = fw_file_write_full(appender->fd, "\n", 1, &written);
        appender->size += written;
        written = 0;
    }
    if (rc == 0) {
        appender->torn = false;
        rc = fw_file_write_full(appender->fd, lines, size, &written);
        appender->size += written;
        if (rc != 0) {
            appender->torn = written > 0 && lines[written - 1] != '\n';
        }
    }
    if (done != NULL) {
        *done = written;
    }
    return rc != 0 ? fw_file_failed(reason, rc, "append to", appender->path) : 0;
}

int fw_stderr_write(const char *lines, size_t size, size_t *done)
{
    return fw_file_write_full(STDERR_FILENO, lines, size, done);
}

bool fw_stderr_is_journal(void)
{
    /* systemd names the stream that it made; ours may have been redirected since. */
    const char *stream = getenv("JOURNAL_STREAM"); /* NOLINT(concurrency-mt-unsafe): nobody sets. */
    struct stat status;
    char own[64];
    if (stream == NULL || fstat(STDERR_FILENO, &status) != 0) {
        return false;
    }
    (void)snprintf(own, sizeof own, "%ju:%ju", (uintmax_t)status.st_dev, (uintmax_t)status.st_ino);
    return strcmp(stream, own) == 0;
}
