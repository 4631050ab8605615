/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The io_uring engine of disks.
 *
 * The ring is made without flags. SINGLE_ISSUER and DEFER_TASKRUN answer EEXIST to a second thread,
 * and the turn changes threads. With COOP_TASKRUN a completion waits until the thread that started
 * the operation enters the kernel, and a thread that has given its turn away may not do that soon.
 *
 * Completions are announced through the disk's eventfd. Discards of block devices have no command
 * before Linux 6.12, and all discards block somewhere in the kernel, so they go to a thread of ours
 * that is started with the first of them.
 */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>

#include "base/assert.h"
#include "io/disk_file.h"
#include "io/disk_thread.h"

struct uring_disk {
    struct fw_disk_file file;
    struct io_uring ring;
    struct fw_disk_workers workers;
    bool workers_run;
};

static struct uring_disk *uring_disk_of(struct fw_disk *disk)
{
    return FW_CONTAINER_OF(disk, struct uring_disk, file.disk);
}

/* Queues what is left of the operation. There is room: the ring has `depth` entries. */
static void uring_prepare(struct uring_disk *own, struct fw_disk_op *op)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(&own->ring);
    FW_ASSERT(entry != NULL);
    unsigned left = (unsigned)(op->size - op->moved);
    uint64_t offset = op->offset + op->moved;
    if (op->kind == FW_DISK_READ) {
        io_uring_prep_read(entry, own->file.fd, (char *)op->into + op->moved, left, offset);
    } else if (op->kind == FW_DISK_WRITE) {
        io_uring_prep_write(entry, own->file.fd, (const char *)op->from + op->moved, left, offset);
        entry->rw_flags = op->sync ? RWF_DSYNC : 0;
    } else {
        FW_ASSERT(op->kind == FW_DISK_FLUSH);
        io_uring_prep_fsync(entry, own->file.fd, IORING_FSYNC_DATASYNC);
    }
    io_uring_sqe_set_data(entry, op);
}

/*
 * Hands the queue to the kernel. What it does not take now (it was interrupted, or has no memory)
 * is handed over again at the next poll, which the signal brings about.
 */
static void uring_submit(struct uring_disk *own)
{
    (void)io_uring_submit(&own->ring);
    if (io_uring_sq_ready(&own->ring) > 0) {
        fw_disk_file_signal(&own->file);
    }
}

static int uring_discard(struct uring_disk *own, struct fw_disk_op *op)
{
    if (!own->workers_run) {
        int rc = fw_disk_workers_init(&own->workers, &own->file, 1);
        if (rc != 0) {
            return -ENOMEM; /* -EAGAIN of a thread would mean to our caller that he is too fast. */
        }
        own->workers_run = true;
    }
    fw_disk_workers_push(&own->workers, op);
    return -EINPROGRESS;
}

static int uring_start(struct fw_disk *disk, struct fw_disk_op *op)
{
    struct uring_disk *own = uring_disk_of(disk);
    if (op->kind == FW_DISK_DISCARD) {
        return uring_discard(own, op);
    }
    uring_prepare(own, op);
    uring_submit(own);
    return -EINPROGRESS;
}

static void uring_reap(struct fw_disk *disk, struct fw_list *finished)
{
    struct uring_disk *own = uring_disk_of(disk);
    struct io_uring_cqe *entry;
    fw_disk_file_signal_clear(&own->file); /* First, or a signal that comes now would be lost. */
    while (io_uring_peek_cqe(&own->ring, &entry) == 0) {
        struct fw_disk_op *op = io_uring_cqe_get_data(entry);
        int answer = entry->res;
        io_uring_cqe_seen(&own->ring, entry);
        if (fw_disk_op_progress(op, answer)) {
            fw_list_push_back(finished, &op->link);
        } else {
            uring_prepare(own, op);
        }
    }
    if (io_uring_sq_ready(&own->ring) > 0) {
        uring_submit(own);
    }
    if (own->workers_run) {
        fw_disk_workers_reap(&own->workers, finished);
    }
}

static void uring_wait(struct fw_disk *disk)
{
    struct pollfd wanted = {.fd = disk->fd, .events = POLLIN};
    int rc;
    do {
        rc = poll(&wanted, 1, -1);
    } while (rc < 0 && errno == EINTR);
    FW_ASSERT(rc == 1);
}

static void uring_close(struct fw_disk *disk)
{
    struct uring_disk *own = uring_disk_of(disk);
    if (own->workers_run) {
        fw_disk_workers_fini(&own->workers);
    }
    io_uring_queue_exit(&own->ring);
    fw_disk_file_close(&own->file);
    free(own);
}

static const struct fw_disk_backend uring_backend = {
    .start = uring_start,
    .reap = uring_reap,
    .wait = uring_wait,
    .close = uring_close,
    .zero = fw_disk_file_zero,
};

static int uring_init(struct uring_disk *own, struct fw_reason *reason)
{
    int rc = io_uring_queue_init(own->file.disk.depth, &own->ring, 0);
    if (rc != 0) {
        return fw_reason_errno(reason, rc, "cannot use io_uring; choose the threads engine");
    }
    rc = io_uring_register_eventfd(&own->ring, own->file.disk.fd);
    if (rc != 0) {
        io_uring_queue_exit(&own->ring);
        return fw_reason_errno(reason, rc,
                               "cannot use io_uring with an eventfd; choose the "
                               "threads engine");
    }
    return 0;
}

int fw_disk_uring_open(struct fw_disk **disk, const struct fw_disk_options *options,
                       struct fw_reason *reason)
{
    struct uring_disk *own = calloc(1, sizeof *own);
    if (own == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot open %.100s", options->path);
    }
    int rc = fw_disk_file_open(&own->file, options, reason);
    if (rc != 0) {
        goto fail_own;
    }
    rc = uring_init(own, reason);
    if (rc != 0) {
        goto fail_file;
    }
    own->file.disk.backend = &uring_backend;
    own->file.disk.properties.engine = "io_uring";
    *disk = &own->file.disk;
    return 0;

fail_file:
    fw_disk_file_close(&own->file);
fail_own:
    free(own);
    return rc;
}
