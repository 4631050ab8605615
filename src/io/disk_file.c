/* SPDX-License-Identifier: Apache-2.0 */
#include "io/disk_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"
#include "io/content.h"
#include "io/file.h"

enum {
    DIRECT_SECTOR_SAFE = 4096, /* What every file system takes where the kernel does not tell. */
    SYSFS_FILE_MAX = 4096,
};

const struct fw_disk_hooks *fw_disk_hooks;

int fw_disk_open(struct fw_disk **disk, const struct fw_disk_options *options,
                 struct fw_reason *reason)
{
    if (options->depth > FW_DISK_DEPTH_MAX || options->threads > FW_DISK_THREADS_MAX) {
        return fw_reason_set(reason, -EINVAL,
                             "cannot open %s: at most %d operations under way and "
                             "%d threads are possible",
                             options->path, FW_DISK_DEPTH_MAX, FW_DISK_THREADS_MAX);
    }
    if (fw_disk_hooks != NULL) {
        return fw_disk_hooks->open(disk, options, reason);
    }
    if (options->engine == FW_DISK_ENGINE_URING) {
        return fw_disk_uring_open(disk, options, reason);
    }
    if (options->engine == FW_DISK_ENGINE_CALLER) {
        return fw_disk_caller_open(disk, options, reason);
    }
    if (options->engine == FW_DISK_ENGINE_AUTO && fw_disk_uring_open(disk, options, NULL) == 0) {
        return 0;
    }
    /* Whatever else went wrong goes wrong again, with its reason. */
    return fw_disk_thread_open(disk, options, reason);
}

/* Opens the path, without O_DIRECT where the file system refuses that. */
static int path_open(const char *path, int flags, bool *direct)
{
    int fd;
    do {
        /* A pipe is refused later, and its other end not waited for. */
        fd = open(path, flags | (*direct ? O_DIRECT : 0) | O_CLOEXEC | O_NONBLOCK, 0600);
        if (fd < 0 && errno == EINVAL && *direct) {
            *direct = false;
            errno = EINTR; /* Once more. */
        }
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        return -errno;
    }
    /* But a file is: io_uring answers EAGAIN where it would have to. */
    int status = fcntl(fd, F_GETFL);
    if (status < 0 || fcntl(fd, F_SETFL, status & ~O_NONBLOCK) != 0) {
        int rc = -errno;
        (void)close(fd);
        return rc;
    }
    return fd;
}

/* Opens a file that may have to be made. `created` tells whether it was. */
static int file_open(const struct fw_disk_options *options, bool *direct, bool *created)
{
    int mode = (options->flags & FW_DISK_READ_ONLY) != 0 ? O_RDONLY : O_RDWR;
    struct stat status;
    if ((options->flags & FW_DISK_EXCLUSIVE) != 0 && stat(options->path, &status) == 0 &&
        S_ISBLK(status.st_mode)) {
        mode |= O_EXCL; /* Of files it means something else. */
    }
    *created = false;
    int fd = path_open(options->path, mode, direct);
    if (fd == -ENOENT && (options->flags & FW_DISK_CREATE) != 0) {
        fd = path_open(options->path, mode | O_CREAT | O_EXCL, direct);
        *created = fd >= 0;
    }
    return fd;
}

/* Makes the file at least `size` long, with room for all of it if the file system can promise. */
static int file_extend(int fd, uint64_t size)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return -errno;
    }
    if (!S_ISREG(status.st_mode) || (uint64_t)status.st_size >= size) {
        return 0;
    }
    int rc;
    do {
        rc = fallocate(fd, 0, 0, (off_t)size);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) {
        rc = ftruncate(fd, (off_t)size);
    }
    return rc != 0 ? -errno : 0;
}

/* Whether a block device's queue takes discards. Partitions have their queue one level up. */
static bool block_discards(dev_t device)
{
    static const char *const queues[] = {"queue", "../queue"};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(queues); i++) {
        char path[128];
        char *contents;
        size_t size;
        (void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u/%s/discard_max_bytes",
                       major(device), minor(device), queues[i]);
        if (fw_file_read(path, SYSFS_FILE_MAX, &contents, &size, NULL) == 0) {
            bool discards = strcmp(contents, "0\n") != 0;
            free(contents);
            return discards;
        }
    }
    return false;
}

static int block_properties(int fd, dev_t device, struct fw_disk_properties *properties)
{
    int sector_size;
    unsigned physical_size;
    uint64_t size;
    if (ioctl(fd, BLKSSZGET, &sector_size) != 0 || ioctl(fd, BLKPBSZGET, &physical_size) != 0 ||
        ioctl(fd, BLKGETSIZE64, &size) != 0) {
        return -errno;
    }
    properties->sector_size = (uint32_t)sector_size;
    properties->physical_size = physical_size;
    properties->size = size;
    properties->discard = block_discards(device);
    return 0;
}

/*
 * The unit of direct transfers from and to a file, 0 if they are not possible. Old kernels do not
 * tell.
 */
static uint32_t file_direct_unit(int fd)
{
#if defined(STATX_DIOALIGN)
    struct statx status;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
        (status.stx_mask & STATX_DIOALIGN) != 0) {
        return status.stx_dio_offset_align;
    }
#else
    (void)fd;
#endif
    return DIRECT_SECTOR_SAFE;
}

static int file_properties(int fd, const struct stat *status, struct fw_disk_properties *properties)
{
    properties->sector_size = FW_DISK_SECTOR_MIN;
    if (properties->direct) {
        uint32_t unit = file_direct_unit(fd);
        if (unit == 0) {
            properties->direct = false;
            int flags = fcntl(fd, F_GETFL);
            if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_DIRECT) != 0) {
                return -errno;
            }
        } else if (unit > properties->sector_size) {
            properties->sector_size = unit;
        }
    }
    properties->physical_size = (uint32_t)status->st_blksize;
    properties->size = (uint64_t)status->st_size;
    /* A hole behind the end changes nothing, and tells whether there can be holes. */
    properties->discard =
        !properties->read_only && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                            status->st_size, DIRECT_SECTOR_SAFE) == 0;
    return 0;
}

static int descriptor_examine(struct fw_disk_file *file, struct fw_reason *reason)
{
    struct fw_disk_properties *properties = &file->disk.properties;
    const char *name = file->disk.name;
    struct stat status;
    int rc;
    if (fstat(file->fd, &status) != 0) {
        return fw_reason_errno(reason, -errno, "cannot examine %.100s", name);
    }
    file->block_device = S_ISBLK(status.st_mode);
    if (file->block_device) {
        rc = block_properties(file->fd, status.st_rdev, properties);
    } else if (S_ISREG(status.st_mode)) {
        properties->is_file = true;
        rc = file_properties(file->fd, &status, properties);
    } else {
        return fw_reason_set(reason, -ENOTBLK,
                             "cannot use %.100s as a disk: it is neither a block "
                             "device nor a regular file",
                             name);
    }
    if (rc != 0) {
        return fw_reason_errno(reason, rc, "cannot examine %.100s", name);
    }
    uint32_t sector_size = properties->sector_size;
    if (sector_size < FW_DISK_SECTOR_MIN || sector_size > FW_DISK_SECTOR_MAX ||
        (sector_size & (sector_size - 1)) != 0) {
        return fw_reason_set(reason, -EINVAL,
                             "cannot use %.100s as a disk: sectors of %u bytes "
                             "are not supported",
                             name, sector_size);
    }
    properties->size -= properties->size % sector_size;
    if (properties->size == 0) {
        return fw_reason_set(reason, -EINVAL,
                             "cannot use %.100s as a disk: it has not even one "
                             "sector of %u bytes",
                             name, sector_size);
    }
    return 0;
}

static int descriptor_open(struct fw_disk_file *file, const struct fw_disk_options *options,
                           struct fw_reason *reason)
{
    bool created;
    file->fd = file_open(options, &file->disk.properties.direct, &created);
    if (file->fd == -EBUSY && (options->flags & FW_DISK_EXCLUSIVE) != 0) {
        char text[FW_CONTENT_TEXT];
        fw_content_holder(options->path, text, sizeof text);
        return fw_reason_set(reason, -EBUSY,
                             "cannot have %.80s alone: %s; unmount or stop that first",
                             options->path, text);
    }
    if (file->fd < 0) {
        return fw_reason_errno(reason, file->fd,
                               "cannot open %.100s; check its name and "
                               "permissions",
                               options->path);
    }
    int rc = 0;
    if ((options->flags & FW_DISK_CREATE) != 0) {
        rc = file_extend(file->fd, options->size);
        if (rc != 0) {
            (void)fw_reason_errno(reason, rc,
                                  "cannot make %.100s %llu bytes long; choose a smaller "
                                  "size or make room",
                                  options->path, (unsigned long long)options->size);
        }
    }
    if (rc == 0) {
        rc = descriptor_examine(file, reason);
    }
    file->disk.properties.created = created;
    if (rc != 0) {
        (void)close(file->fd);
        if (created) {
            (void)unlink(options->path);
        }
    }
    return rc;
}

void fw_disk_close_undo(struct fw_disk *disk)
{
    if (disk->properties.created) {
        (void)unlink(disk->name);
    }
    fw_disk_close(disk);
}

int fw_disk_file_open(struct fw_disk_file *file, const struct fw_disk_options *options,
                      struct fw_reason *reason)
{
    struct fw_disk *disk = &file->disk;
    *disk = (struct fw_disk){
        .name = strdup(options->path),
        .depth = options->depth != 0 ? options->depth : FW_DISK_DEPTH_DEFAULT,
        .properties =
            {
                .read_only = (options->flags & FW_DISK_READ_ONLY) != 0,
                .direct = (options->flags & FW_DISK_DIRECT) != 0,
            },
    };
    if (disk->name == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot open %.100s", options->path);
    }
    int rc = descriptor_open(file, options, reason);
    if (rc != 0) {
        goto fail_name;
    }
    disk->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (disk->fd < 0) {
        rc = fw_reason_errno(reason, -errno, "cannot open a descriptor for %.100s", options->path);
        goto fail_file;
    }
    return 0;

fail_file:
    (void)close(file->fd);
fail_name:
    free(disk->name);
    return rc;
}

void fw_disk_file_close(struct fw_disk_file *file)
{
    (void)close(file->disk.fd);
    (void)close(file->fd);
    free(file->disk.name);
}

/* The next attempt at an operation: bytes moved or 0, or a negative errno. */
static int64_t file_attempt(const struct fw_disk_file *file, const struct fw_disk_op *op)
{
    struct iovec from = {.iov_len = op->size - op->moved};
    off_t offset = (off_t)(op->offset + op->moved);
    int64_t answer = -1;
    switch (op->kind) {
    case FW_DISK_READ:
        answer = pread(file->fd, (char *)op->into + op->moved, op->size - op->moved, offset);
        break;
    case FW_DISK_WRITE:
        from.iov_base = (char *)op->into + op->moved; /* An iovec knows no const. */
        answer = pwritev2(file->fd, &from, 1, offset, op->sync ? RWF_DSYNC : 0);
        break;
    case FW_DISK_FLUSH:
        answer = fdatasync(file->fd);
        break;
    case FW_DISK_DISCARD:
        if (file->block_device) {
            uint64_t range[2] = {op->offset, op->size};
            answer = ioctl(file->fd, BLKDISCARD, range);
        } else {
            answer = fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                               (off_t)op->size);
        }
        break;
    }
    return answer < 0 ? -errno : answer;
}

void fw_disk_file_execute(const struct fw_disk_file *file, struct fw_disk_op *op)
{
    while (!fw_disk_op_progress(op, file_attempt(file, op))) {
    }
}

void fw_disk_file_signal(const struct fw_disk_file *file)
{
    ssize_t size;
    do {
        size = write(file->disk.fd, &(uint64_t){1}, sizeof(uint64_t));
    } while (size < 0 && errno == EINTR);
    /* EAGAIN: the count is at its largest, so it is readable as it should be. */
    FW_ASSERT(size == (ssize_t)sizeof(uint64_t) || errno == EAGAIN);
}

void fw_disk_file_signal_clear(const struct fw_disk_file *file)
{
    uint64_t count;
    ssize_t size;
    do {
        size = read(file->disk.fd, &count, sizeof count);
    } while (size < 0 && errno == EINTR);
    FW_ASSERT(size == (ssize_t)sizeof count || errno == EAGAIN);
}

int fw_disk_file_zero(struct fw_disk *disk, uint64_t offset, uint64_t size)
{
    const struct fw_disk_file *file = FW_CONTAINER_OF(disk, struct fw_disk_file, disk);
    uint64_t range[2] = {offset, size};
    int rc;
    do {
        rc = file->block_device ? ioctl(file->fd, BLKZEROOUT, range)
                                : fallocate(file->fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
                                            (off_t)offset, (off_t)size);
    } while (rc != 0 && errno == EINTR);
    if (rc == 0) {
        return 0;
    }
    bool cannot = errno == EOPNOTSUPP || errno == ENOSYS || errno == ENOTTY || errno == EINVAL;
    return cannot ? -EOPNOTSUPP : -errno;
}
