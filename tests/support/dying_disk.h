/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk as a process sees it that is killed: all goes well up to some write, which is not done any
 * more, and neither is anything after it. The disk below goes on, for others. To be killed at a
 * read or a flush is no other case: what others find is the same as at the next write.
 *
 * Answers at once, so the disk below must too.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"
#include "io/disk_backend.h"

struct dying_disk {
    struct fw_disk disk;
    struct fw_disk *under;
    uint64_t left; /* Writes until it dies. */
    bool is_dead;
};

static inline void dying_disk_ignore(struct fw_disk_op *op)
{
    (void)op;
}

static inline int dying_disk_start(struct fw_disk *disk, struct fw_disk_op *op)
{
    struct dying_disk *dying = FW_CONTAINER_OF(disk, struct dying_disk, disk);
    bool writes = op->kind == FW_DISK_WRITE;
    dying->is_dead = dying->is_dead || (writes && dying->left == 0);
    if (dying->is_dead) {
        return -ENODEV;
    }
    dying->left -= writes ? 1 : 0;
    struct fw_disk_op copy = *op;
    copy.done = dying_disk_ignore;
    int rc = fw_disk_start(dying->under, &copy);
    FW_ASSERT(rc != -EINPROGRESS);
    op->moved = copy.moved;
    return rc;
}

static inline void dying_disk_reap(struct fw_disk *disk, struct fw_list *finished)
{
    (void)disk;
    (void)finished;
}

static inline void dying_disk_wait(struct fw_disk *disk)
{
    (void)disk;
}

static inline void dying_disk_init(struct dying_disk *dying, struct fw_disk *under, uint64_t left)
{
    static const struct fw_disk_backend backend = {
        .start = dying_disk_start, .reap = dying_disk_reap, .wait = dying_disk_wait};
    static char name[] = "dying";
    *dying = (struct dying_disk){.disk = {.backend = &backend,
                                          .properties = under->properties,
                                          .name = name,
                                          .fd = -1,
                                          .depth = under->depth},
                                 .under = under,
                                 .left = left};
}
