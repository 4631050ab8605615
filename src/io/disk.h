/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk: an array of sectors that is read, written, flushed and discarded without blocking. It is
 * a block device or a regular file; in tests, memory that remembers all that was done to it
 * (io/disk_record.h), and in the simulator a disk that the seed lets fail.
 *
 * An operation is a struct that its owner fills in and embeds where it likes:
 *
 *     push->op = (struct fw_disk_op){.kind = FW_DISK_WRITE, .from = sector, .size = 512,
 *                                    .offset = 1024, .sync = true, .done = push_written};
 *     int rc = fw_disk_start(disk, &push->op);
 *
 * The answer follows the rule of io/reactor.h. Either it is the result, at once, 0 or a negative
 * errno, and no call-back will run; or it is -EINPROGRESS, and `done` runs exactly once, later, out
 * of fw_disk_poll(), with the result in the struct. Until then the struct and the buffer are the
 * disk's. The call-back may start the same struct again.
 *
 * Results. 0 means all of it: what the system transferred in part is continued here, and what
 * cannot be continued is an error, with `moved` telling how far it got. fw_disk_explain() puts any
 * error into words. The errors made here rather than by the system are
 *
 *     -EINVAL      offset, size or buffer is not a multiple of the sector size; or no bytes, or too
 *                  many
 *     -ERANGE      beyond the end of the disk
 *     -EROFS       the disk was opened for reading
 *     -EOPNOTSUPP  the disk cannot discard
 *     -EAGAIN      `depth` operations are under way: start it again when one of them is done
 *     -ENODATA     the file has become shorter than it was when it was opened
 *
 * Order and durability. Operations under way at the same time happen in any order, so a sector has
 * at most one writer at a time. A finished write is visible to every later read, but after a power
 * failure any part of it may be missing, sector by sector, until a flush that was started after the
 * write had finished has itself finished. A write with `sync` is durable when it finishes, and says
 * nothing about others. Once a flush has failed, every later one fails as well: the system may have
 * dropped what it could not write, and a later flush that went well would be a lie.
 *
 * Discarded sectors hold anything until they are written again. A file that may not grow that far
 * (ulimit -f) answers -EFBIG, provided SIGXFSZ is ignored, as fw_signals_block() has it.
 *
 * Threads. A disk belongs to a locality's turn, as a reactor does: one caller at a time, and the
 * hand-over of the turn orders their memory. Several localities open a device several times; the
 * price is a ring or a few threads for each. fw_disk_fd() becomes readable when there is something
 * to poll, so one fw_watch whose call-back calls fw_disk_poll() connects a disk with a reactor.
 *
 * Each operation is handed to the kernel as it is started. Gathering them would save system calls,
 * and would add "and then submit" to what every caller may forget.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/list.h"
#include "base/reason.h"

struct fw_disk;

enum {
    FW_DISK_TRANSFER_MAX = 1 << 30, /* Bytes of one read or write. */
    FW_DISK_DEPTH_MAX = 4096,       /* Operations under way. */
    FW_DISK_THREADS_MAX = 64,
    FW_DISK_SECTOR_MIN = 512,
    FW_DISK_SECTOR_MAX = 4096,
};

enum fw_disk_kind { FW_DISK_READ, FW_DISK_WRITE, FW_DISK_FLUSH, FW_DISK_DISCARD };

struct fw_disk_op {
    /* The caller's to fill in. A flush needs no more than kind and done. */
    enum fw_disk_kind kind;
    bool sync; /* Of a write: durable when it finishes. */
    union {
        void *into;       /* A read's buffer. */
        const void *from; /* A write's. */
    };
    size_t size; /* Bytes; a discard may be larger than FW_DISK_TRANSFER_MAX. */
    uint64_t offset;
    void (*done)(struct fw_disk_op *op);

    /* The disk's to fill in. */
    int result;
    size_t moved; /* Bytes transferred, also where the operation failed half-way. */

    /* Private to the disk. */
    struct fw_list_link link;
    uint64_t tag;
    uint32_t retries;
};

enum fw_disk_engine {
    FW_DISK_ENGINE_AUTO,    /* io_uring where the kernel allows it, else threads. */
    FW_DISK_ENGINE_URING,   /* io_uring or an error. */
    FW_DISK_ENGINE_THREADS, /* Threads that block in plain system calls. */
    /* Done by who waits: for owners who block anyway. Its descriptor never becomes readable. */
    FW_DISK_ENGINE_CALLER,
};

enum {
    FW_DISK_READ_ONLY = 1 << 0,
    /*
     * Around the page cache, so that other hosts' writes are seen and memory is not used twice. On
     * file systems that cannot, the disk opens without; the properties tell.
     */
    FW_DISK_DIRECT = 1 << 1,
    /* A file that is not there is made; one shorter than `size` is extended. Room is reserved. */
    FW_DISK_CREATE = 1 << 2,
    /*
     * Of a block device: nobody else has it for himself, no mount and no driver, nor can until it
     * is closed. Those who open it without this flag are not noticed.
     */
    FW_DISK_EXCLUSIVE = 1 << 3,
};

struct fw_disk_options {
    const char *path;
    unsigned flags;
    uint64_t size; /* With FW_DISK_CREATE; block devices ignore it. */
    enum fw_disk_engine engine;
    uint32_t depth;   /* Operations under way at a time; 0: 64. */
    uint32_t threads; /* Of the threads engine; 0: 4. */
};

struct fw_disk_properties {
    uint64_t size;        /* In bytes, a multiple of sector_size. */
    uint32_t sector_size; /* The unit of all offsets and sizes and the alignment of buffers. */
    uint32_t
        physical_size; /* What the device writes in one go; a file's: its file system's block. */
    bool read_only;
    bool direct;
    bool discard;       /* Discarding works. */
    bool is_file;       /* A regular file, which FW_DISK_CREATE can extend. */
    bool created;       /* Opening it made the file. */
    const char *engine; /* For people: "io_uring", "threads", ... */
};

/* The simulator's side: opens disks of its own. NULL in the server; set once, early. */
struct fw_disk_hooks {
    int (*open)(struct fw_disk **disk, const struct fw_disk_options *options,
                struct fw_reason *reason);
};
extern const struct fw_disk_hooks *fw_disk_hooks;

/*
 * Opens a block device or a regular file. Blocks, as opening always may. Returns 0, or a negative
 * errno with a reason that names the path: what open() said, -ENOTBLK for anything else than a
 * device or file, -EINVAL for a disk without a whole sector or with sectors of a size that is
 * none of ours, -ENOSPC if there is no room to
 * create it.
 */
FW_MUST_CHECK int fw_disk_open(struct fw_disk **disk, const struct fw_disk_options *options,
                               struct fw_reason *reason);

/* No operation may be under way; see fw_disk_drain(). Not from a call-back. */
void fw_disk_close(struct fw_disk *disk);

/* As close(), and takes the file away again if opening it made it. */
void fw_disk_close_undo(struct fw_disk *disk);

const struct fw_disk_properties *fw_disk_properties(const struct fw_disk *disk);

/* The essay says all about it. */
FW_MUST_CHECK int fw_disk_start(struct fw_disk *disk, struct fw_disk_op *op);

/* Runs the call-backs of what has finished and returns how many. Never waits. */
int fw_disk_poll(struct fw_disk *disk);

/* Readable while poll() has something to do. -1: the disk has none and is polled by hand. */
int fw_disk_fd(const struct fw_disk *disk);

/*
 * The blocking forms, for tools, tests and shutdown. drain() waits for all that is under way and
 * runs the call-backs. run() does one operation and returns its result, with the reason; nothing
 * else may be under way, and `done` is not used.
 */
void fw_disk_drain(struct fw_disk *disk);
FW_MUST_CHECK int fw_disk_run(struct fw_disk *disk, struct fw_disk_op *op,
                              struct fw_reason *reason);

/*
 * Makes zeros of a range, by a command of the device or file system where there is one: that costs
 * little, where writing zeros costs as much as writing data. As a write, it is durable after a
 * flush. Blocking, and as run(). -EINVAL, -ERANGE, -EROFS as above.
 */
FW_MUST_CHECK int fw_disk_zero(struct fw_disk *disk, uint64_t offset, uint64_t size,
                               struct fw_reason *reason);

/* Why the operation failed, in words, with the disk's name. Returns op->result, not 0. */
int fw_disk_explain(const struct fw_disk *disk, const struct fw_disk_op *op,
                    struct fw_reason *reason);

/* A zeroed buffer fit for any disk, for free(); NULL without memory. `size` is not 0. */
void *fw_disk_buffer(size_t size);
