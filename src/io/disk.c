/* SPDX-License-Identifier: Apache-2.0 */
#include "io/disk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "io/disk_backend.h"

enum {
    BUFFER_ALIGN = FW_DISK_SECTOR_MAX,
    ZEROS = 256 << 10,
    RETRIES_MAX = 64, /* Attempts in a row that get nowhere and do not say why. */
};

const struct fw_disk_properties *fw_disk_properties(const struct fw_disk *disk)
{
    return &disk->properties;
}

int fw_disk_fd(const struct fw_disk *disk)
{
    return disk->fd;
}

static bool op_is_aligned(const struct fw_disk *disk, const struct fw_disk_op *op)
{
    uint64_t mask = disk->properties.sector_size - 1;
    uint64_t all = op->offset | op->size;
    if (op->kind != FW_DISK_DISCARD) {
        all |= (uintptr_t)op->from; /* The same bytes as `into`. */
    }
    return (all & mask) == 0;
}

/* What the caller got wrong, as a negative errno, or 0. */
static int op_check(const struct fw_disk *disk, const struct fw_disk_op *op)
{
    const struct fw_disk_properties *properties = &disk->properties;
    if (op->kind == FW_DISK_FLUSH) {
        return 0;
    }
    if (op->size == 0 || !op_is_aligned(disk, op)) {
        return -EINVAL;
    }
    if (op->kind != FW_DISK_DISCARD && op->size > FW_DISK_TRANSFER_MAX) {
        return -EINVAL;
    }
    if (op->size > properties->size || op->offset > properties->size - op->size) {
        return -ERANGE;
    }
    if (op->kind != FW_DISK_READ && properties->read_only) {
        return -EROFS;
    }
    if (op->kind == FW_DISK_DISCARD && !properties->discard) {
        return -EOPNOTSUPP;
    }
    return 0;
}

static void op_finish(struct fw_disk *disk, struct fw_disk_op *op)
{
    FW_ASSERT(disk->in_flight > 0);
    disk->in_flight--;
    if (op->kind == FW_DISK_FLUSH) {
        if (disk->flush_error == 0) {
            disk->flush_error = op->result;
        }
        op->result = disk->flush_error; /* Another one may have failed while this was under way. */
    }
}

int fw_disk_start(struct fw_disk *disk, struct fw_disk_op *op)
{
    FW_ASSERT(op->done != NULL);
    fw_list_link_init(&op->link);
    op->moved = 0;
    op->retries = 0;
    op->result = op_check(disk, op);
    if (op->result == 0 && disk->in_flight == disk->depth) {
        op->result = -EAGAIN;
    }
    if (op->result == 0 && op->kind == FW_DISK_FLUSH) {
        op->result = disk->flush_error;
    }
    if (op->result != 0) {
        return op->result;
    }

    disk->in_flight++;
    op->result = -EINPROGRESS;
    int rc = disk->backend->start(disk, op);
    if (rc != -EINPROGRESS) {
        op->result = rc;
        op_finish(disk, op); /* Changes no result: a flush after a failed one was refused above. */
    }
    return rc;
}

int fw_disk_poll(struct fw_disk *disk)
{
    FW_ASSERT(!disk->polling); /* Not from a call-back: it would meet itself. */
    struct fw_list finished;
    struct fw_list_link *link;
    int count = 0;
    disk->polling = true;
    fw_list_init(&finished);
    disk->backend->reap(disk, &finished);
    while ((link = fw_list_pop_front(&finished)) != NULL) {
        struct fw_disk_op *op = FW_LIST_ENTRY(link, struct fw_disk_op, link);
        FW_ASSERT(op->result != -EINPROGRESS);
        op_finish(disk, op);
        op->done(op);
        count++;
    }
    disk->polling = false;
    return count;
}

void fw_disk_drain(struct fw_disk *disk)
{
    while (disk->in_flight > 0) {
        disk->backend->wait(disk);
        (void)fw_disk_poll(disk);
    }
}

static void run_done(struct fw_disk_op *op)
{
    op->done = NULL; /* fw_disk_run() looks at the result itself. */
}

int fw_disk_run(struct fw_disk *disk, struct fw_disk_op *op, struct fw_reason *reason)
{
    FW_ASSERT(disk->in_flight == 0);
    op->done = run_done;
    if (fw_disk_start(disk, op) == -EINPROGRESS) {
        fw_disk_drain(disk);
        FW_ASSERT(op->done == NULL);
    }
    return op->result != 0 ? fw_disk_explain(disk, op, reason) : 0;
}

/* What a device does for us; -EOPNOTSUPP: it does not, or the range is not for it to judge. */
static int zero_fast(struct fw_disk *disk, uint64_t offset, uint64_t size)
{
    const struct fw_disk_properties *properties = &disk->properties;
    if (disk->backend->zero == NULL || properties->read_only || size == 0 ||
        offset % properties->sector_size != 0 || size % properties->sector_size != 0 ||
        offset > properties->size || size > properties->size - offset) {
        return -EOPNOTSUPP;
    }
    return disk->backend->zero(disk, offset, size);
}

int fw_disk_zero(struct fw_disk *disk, uint64_t offset, uint64_t size, struct fw_reason *reason)
{
    FW_ASSERT(disk->in_flight == 0);
    int rc = zero_fast(disk, offset, size);
    if (rc != -EOPNOTSUPP) {
        return rc == 0 ? 0
                       : fw_reason_errno(reason, rc, "cannot write zeros to %.100s", disk->name);
    }
    uint8_t *zeros = fw_disk_buffer(ZEROS);
    if (zeros == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot write zeros to %.100s", disk->name);
    }
    do {
        uint64_t part = size < ZEROS ? size : ZEROS;
        struct fw_disk_op op = {
            .kind = FW_DISK_WRITE, .from = zeros, .size = (size_t)part, .offset = offset};
        rc = fw_disk_run(disk, &op, reason);
        offset += part;
        size -= part;
    } while (rc == 0 && size > 0);
    free(zeros);
    return rc;
}

void fw_disk_close(struct fw_disk *disk)
{
    FW_ASSERT(disk->in_flight == 0);
    FW_ASSERT(!disk->polling);
    disk->backend->close(disk);
}

static int op_failed_so(const struct fw_disk_op *op, int64_t answer)
{
    if (answer < 0) {
        return (int)answer;
    }
    return op->kind == FW_DISK_READ ? -ENODATA : -EIO; /* Nothing more can be moved. */
}

bool fw_disk_op_progress(struct fw_disk_op *op, int64_t answer)
{
    if (answer == -EINTR || answer == -EAGAIN || answer == -ECANCELED) {
        /* Nothing is wrong with the disk; io_uring cancels what an ending thread had started. */
        op->retries++;
        if (op->retries < RETRIES_MAX) {
            return false;
        }
        answer = -EIO;
    }
    bool transfer = op->kind == FW_DISK_READ || op->kind == FW_DISK_WRITE;
    if (answer < 0 || (transfer && answer == 0)) {
        op->result = op_failed_so(op, answer);
        return true;
    }
    if (!transfer) {
        op->result = 0;
        return true;
    }
    op->retries = 0;
    op->moved += (size_t)answer;
    FW_ASSERT(op->moved <= op->size);
    op->result = op->moved == op->size ? 0 : -EINPROGRESS;
    return op->result == 0;
}

static const char *kind_verb(enum fw_disk_kind kind)
{
    static const char *const verbs[] = {
        [FW_DISK_READ] = "read",
        [FW_DISK_WRITE] = "write",
        [FW_DISK_FLUSH] = "flush",
        [FW_DISK_DISCARD] = "discard",
    };
    return verbs[kind];
}

int fw_disk_explain(const struct fw_disk *disk, const struct fw_disk_op *op,
                    struct fw_reason *reason)
{
    const struct fw_disk_properties *properties = &disk->properties;
    char what[160];
    FW_ASSERT(op->result < 0);
    if (op->kind == FW_DISK_FLUSH) {
        (void)snprintf(what, sizeof what, "cannot flush %.100s", disk->name);
    } else {
        (void)snprintf(what, sizeof what, "cannot %s %zu bytes at %" PRIu64 " of %.80s",
                       kind_verb(op->kind), op->size, op->offset, disk->name);
    }
    if (op->result == -EINVAL && op_check(disk, op) == -EINVAL) { /* Else it was the system's. */
        return fw_reason_set(reason, op->result,
                             "%s: offset, size and buffer must be multiples of %" PRIu32
                             " and the size from that to %d",
                             what, properties->sector_size, FW_DISK_TRANSFER_MAX);
    }
    switch (-op->result) {
    case ERANGE:
        return fw_reason_set(reason, op->result, "%s: the disk ends at %" PRIu64, what,
                             properties->size);
    case EROFS:
        return fw_reason_set(reason, op->result, "%s: it is open for reading only", what);
    case EAGAIN:
        return fw_reason_set(reason, op->result, "%s: %" PRIu32 " operations are under way", what,
                             disk->in_flight);
    case ENODATA:
        return fw_reason_set(reason, op->result, "%s: it ends after %zu of them; was it cut off?",
                             what, op->moved);
    case ENOSPC:
    case EDQUOT:
        return fw_reason_errno(reason, op->result, "%s; make room on its file system", what);
    default:
        return fw_reason_errno(reason, op->result, "%s; check it and the kernel's log", what);
    }
}

void *fw_disk_buffer(size_t size)
{
    FW_ASSERT(size > 0 && size <= FW_DISK_TRANSFER_MAX);
    size_t rounded = (size + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
    void *buffer = aligned_alloc(BUFFER_ALIGN, rounded);
    if (buffer != NULL) {
        memset(buffer, 0, rounded);
    }
    return buffer;
}
