/* SPDX-License-Identifier: Apache-2.0 */
#include "io/mark.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/clock.h"

enum { PATH_SIZE = 4096, LINE_SIZE = FW_MARK_TEXT + 32, FILE_MODE = 0644 };

/* ---- making one ---- */

/* A lock of the open file, which all of the process's threads have, and nobody who opens it. */
static int lock_set(int fd)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &range) == 0 ? 0 : -errno;
}

static int line_write(int fd, const char *text)
{
    char line[LINE_SIZE];
    int length = snprintf(line, sizeof line, "%d%s%.*s\n", (int)getpid(),
                          text[0] != '\0' ? " " : "", FW_MARK_TEXT - 1, text);
    ssize_t written = write(fd, line, (size_t)length);
    return written == length ? 0 : written < 0 ? -errno : -ENOSPC;
}

int fw_mark_make(const char *path, const char *text, struct fw_reason *reason)
{
    char fresh[PATH_SIZE];
    if (snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid()) >= (int)sizeof fresh) {
        return fw_reason_errno(reason, -ENAMETOOLONG, "cannot make %.100s", path);
    }
    (void)unlink(fresh); /* Of one with our number, that died here. */
    int fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
    int rc = fd >= 0 ? lock_set(fd) : -errno;
    if (rc == 0) {
        rc = line_write(fd, text);
    }
    if (rc == 0 && rename(fresh, path) != 0) {
        rc = -errno;
    }
    if (rc == 0) {
        return 0; /* The descriptor stays open as long as we live. */
    }
    if (fd >= 0) {
        (void)unlink(fresh);
        (void)close(fd);
    }
    return fw_reason_errno(reason, rc, "cannot make %.100s", path);
}

/* ---- finding one ---- */

static bool lock_is_held(int fd)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

static int line_read(int fd, struct fw_mark *mark)
{
    char line[LINE_SIZE];
    struct stat status;
    ssize_t length = pread(fd, line, sizeof line - 1, 0);
    if (length < 0 || fstat(fd, &status) != 0) {
        return -errno;
    }
    line[length] = '\0';
    line[strcspn(line, "\n")] = '\0';
    char *rest;
    long number = strtol(line, &rest, 10);
    mark->process = number > 1 && number <= INT_MAX ? (pid_t)number : 0;
    (void)snprintf(mark->text, sizeof mark->text, "%s", *rest == ' ' ? rest + 1 : rest);
    /* When it was renamed: two processes have no number in common at one time. */
    mark->id = (uint64_t)status.st_ctim.tv_sec * FW_NS_PER_S + (uint64_t)status.st_ctim.tv_nsec;
    mark->id = (mark->id ^ (uint64_t)mark->process << 1) | 1;
    return 0;
}

int fw_mark_find(const char *path, struct fw_mark *mark)
{
    *mark = (struct fw_mark){.fd = -1};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return -errno;
    }
    int rc = line_read(fd, mark);
    if (rc == 0) {
        mark->fd = mark->process != 0 ? pidfd_open(mark->process, 0) : -1;
        rc = mark->fd >= 0 ? 0 : -ENXIO;
        if (!lock_is_held(fd)) { /* After the other: the header says why. */
            fw_mark_close(mark);
            rc = -ESRCH;
        }
    }
    (void)close(fd);
    return rc;
}

void fw_mark_close(struct fw_mark *mark)
{
    if (mark->fd >= 0) {
        (void)close(mark->fd);
    }
    mark->fd = -1;
}

int fw_mark_signal(const struct fw_mark *mark, int number)
{
    return pidfd_send_signal(mark->fd, number, NULL, 0) == 0 ? 0 : -errno;
}

bool fw_mark_wait(const struct fw_mark *mark, int64_t patience_ns)
{
    int64_t deadline_ns = fw_clock_now_ns() + patience_ns;
    struct pollfd process = {.fd = mark->fd, .events = POLLIN};
    for (;;) {
        int64_t left_ms = (deadline_ns - fw_clock_now_ns() + FW_NS_PER_MS - 1) / FW_NS_PER_MS;
        left_ms = left_ms < 0 ? 0 : left_ms > INT_MAX ? INT_MAX : left_ms;
        int rc = poll(&process, 1, (int)left_ms);
        if (rc > 0 || (rc < 0 && errno != EINTR) || left_ms == 0) {
            return rc > 0;
        }
    }
}
