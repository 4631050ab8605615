/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine without threads: whoever waits for operations does them, one after the other in the
 * order in which they were started. Only reads are given away, to io_uring where there is one, so
 * that they are under way while the rest is done.
 *
 * For owners who block anyway, like a thread that pushes into a ring and can go on only when its
 * message is durable: a write or a flush costs a system call and no hand-over, where io_uring gives
 * every flush to a thread of the kernel and wakes us when that is done. Writes are not overlapped;
 * who has many under way wants another engine. `bench/run volume-allocate` is what it is for.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "io/disk_file.h"

struct caller_disk {
    struct fw_disk_file file;
    struct fw_disk *reader; /* Another opening of the same; NULL: we read ourselves. */
    uint32_t reading;       /* Operations that it has. */
    struct fw_list waiting;
    struct fw_list finished;
};

static struct caller_disk *caller_disk_of(struct fw_disk *disk)
{
    return FW_CONTAINER_OF(disk, struct caller_disk, file.disk);
}

static int caller_start(struct fw_disk *disk, struct fw_disk_op *op)
{
    struct caller_disk *own = caller_disk_of(disk);
    if (op->kind == FW_DISK_READ && own->reader != NULL) {
        int rc = own->reader->backend->start(own->reader, op);
        own->reading += rc == -EINPROGRESS ? 1 : 0;
        return rc;
    }
    fw_list_push_back(&own->waiting, &op->link);
    return -EINPROGRESS;
}

static void waiting_execute(struct caller_disk *own)
{
    struct fw_list_link *link;
    while ((link = fw_list_pop_front(&own->waiting)) != NULL) {
        fw_disk_file_execute(&own->file, FW_LIST_ENTRY(link, struct fw_disk_op, link));
        fw_list_push_back(&own->finished, link);
    }
}

/* Polling does them too: nobody else would. */
static void caller_reap(struct fw_disk *disk, struct fw_list *finished)
{
    struct caller_disk *own = caller_disk_of(disk);
    waiting_execute(own);
    fw_list_append(finished, &own->finished);
    if (own->reading > 0) {
        struct fw_list read;
        struct fw_list_link *link;
        fw_list_init(&read);
        own->reader->backend->reap(own->reader, &read);
        while ((link = fw_list_pop_front(&read)) != NULL) {
            own->reading--;
            fw_list_push_back(finished, link);
        }
    }
}

static void caller_wait(struct fw_disk *disk)
{
    struct caller_disk *own = caller_disk_of(disk);
    waiting_execute(own);
    if (fw_list_is_empty(&own->finished)) {
        own->reader->backend->wait(own->reader);
    }
}

static void caller_close(struct fw_disk *disk)
{
    struct caller_disk *own = caller_disk_of(disk);
    if (own->reader != NULL) {
        own->reader->backend->close(own->reader);
    }
    fw_disk_file_close(&own->file);
    free(own);
}

static const struct fw_disk_backend caller_backend = {
    .start = caller_start,
    .reap = caller_reap,
    .wait = caller_wait,
    .close = caller_close,
    .zero = fw_disk_file_zero,
};

int fw_disk_caller_open(struct fw_disk **disk, const struct fw_disk_options *options,
                        struct fw_reason *reason)
{
    struct caller_disk *own = calloc(1, sizeof *own);
    if (own == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot open %.100s", options->path);
    }
    int rc = fw_disk_file_open(&own->file, options, reason);
    if (rc != 0) {
        free(own);
        return rc;
    }
    /* Where one operation is under way at a time, there is nothing to do meanwhile. */
    if (options->depth == 1 || fw_disk_uring_open(&own->reader, options, NULL) != 0) {
        own->reader = NULL;
    }
    fw_list_init(&own->waiting);
    fw_list_init(&own->finished);
    own->file.disk.backend = &caller_backend;
    own->file.disk.properties.engine = "caller";
    *disk = &own->file.disk;
    return 0;
}
