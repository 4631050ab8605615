/* SPDX-License-Identifier: Apache-2.0 */
#include "io/disk_part.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "io/disk_backend.h"

enum { PART_DEPTH = 16 };

struct part;

/* An operation of the part, as the disk below sees it. */
struct proxy {
    struct fw_disk_op op;
    struct fw_disk_op *outer; /* NULL: free. */
    struct part *part;
};

struct part {
    struct fw_disk disk;
    struct fw_disk *under;
    uint64_t offset;
    int (*may_write)(void *context); /* NULL: there is no guard. */
    void *context;
    struct fw_list finished;
    struct proxy proxies[PART_DEPTH];
};

static struct part *part_of(struct fw_disk *disk)
{
    return FW_CONTAINER_OF(disk, struct part, disk);
}

static void proxy_answer(struct proxy *proxy)
{
    proxy->outer->moved = proxy->op.moved;
    proxy->outer->result = proxy->op.result;
    proxy->outer = NULL;
}

static void proxy_done(struct fw_disk_op *op)
{
    struct proxy *proxy = FW_CONTAINER_OF(op, struct proxy, op);
    struct fw_disk_op *outer = proxy->outer;
    proxy_answer(proxy);
    fw_list_push_back(&proxy->part->finished, &outer->link);
}

static int part_start(struct fw_disk *disk, struct fw_disk_op *op)
{
    struct part *part = part_of(disk);
    struct proxy *proxy = part->proxies;
    bool changes = op->kind == FW_DISK_WRITE || op->kind == FW_DISK_DISCARD;
    if (changes && part->may_write != NULL) {
        int may = part->may_write(part->context);
        if (may != 0) {
            op->result = may;
            return may;
        }
    }
    while (proxy->outer != NULL) { /* There is one: no more than `depth` are under way. */
        proxy++;
        FW_ASSERT(proxy < part->proxies + PART_DEPTH);
    }
    proxy->part = part;
    proxy->outer = op;
    proxy->op = (struct fw_disk_op){.kind = op->kind,
                                    .sync = op->sync,
                                    .from = op->from,
                                    .size = op->size,
                                    .offset = part->offset + op->offset,
                                    .done = proxy_done};
    int rc = fw_disk_start(part->under, &proxy->op);
    if (rc != -EINPROGRESS) {
        proxy_answer(proxy);
    }
    return rc;
}

static void part_reap(struct fw_disk *disk, struct fw_list *finished)
{
    struct part *part = part_of(disk);
    (void)fw_disk_poll(part->under);
    fw_list_append(finished, &part->finished);
}

static void part_wait(struct fw_disk *disk)
{
    struct part *part = part_of(disk);
    if (fw_list_is_empty(&part->finished)) {
        part->under->backend->wait(part->under);
    }
}

static void part_close(struct fw_disk *disk)
{
    struct part *part = part_of(disk);
    free(part->disk.name);
    free(part);
}

static const struct fw_disk_backend part_backend = {
    .start = part_start, .reap = part_reap, .wait = part_wait, .close = part_close};

int fw_disk_part_open(struct fw_disk **made, struct fw_disk *under, uint64_t offset, uint64_t size,
                      struct fw_reason *reason)
{
    const struct fw_disk_properties *properties = &under->properties;
    if (size == 0 || offset > properties->size || size > properties->size - offset ||
        offset % properties->sector_size != 0 || size % properties->sector_size != 0) {
        return fw_reason_set(reason, -EINVAL,
                             "%.100s has %" PRIu64 " bytes in sectors of %" PRIu32
                             ", and no part of %" PRIu64 " bytes at %" PRIu64,
                             under->name, properties->size, properties->sector_size, size, offset);
    }
    struct part *part = calloc(1, sizeof *part);
    char *name = strdup(under->name);
    if (part == NULL || name == NULL) {
        free(part);
        free(name);
        return fw_reason_errno(reason, -ENOMEM, "cannot open a part of a disk");
    }
    part->disk = (struct fw_disk){.backend = &part_backend,
                                  .properties = *properties,
                                  .name = name,
                                  .fd = under->fd,
                                  .depth = PART_DEPTH};
    part->disk.properties.size = size;
    part->under = under;
    part->offset = offset;
    fw_list_init(&part->finished);
    *made = &part->disk;
    return 0;
}

void fw_disk_part_guard(struct fw_disk *disk, int (*may_write)(void *context), void *context)
{
    struct part *part = part_of(disk);
    FW_ASSERT(disk->backend == &part_backend);
    part->may_write = may_write;
    part->context = context;
}
