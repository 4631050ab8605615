/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands behind a disk. disk.c checks operations, counts them and runs call-backs, the same
 * for all; a back end only does them. Private to io/, its tests and the simulator.
 */
#pragma once

#include "io/disk.h"

struct fw_disk_backend {
    /*
     * Does the operation, which has been checked, or begins to: as fw_disk_start(), but never
     * answers with the errors listed there, for those are the caller's.
     */
    int (*start)(struct fw_disk *disk, struct fw_disk_op *op);
    /* Appends what has finished, `result` set, to the list. Does not wait. */
    void (*reap)(struct fw_disk *disk, struct fw_list *finished);
    /* Waits until reap() has something. At least one operation is under way. */
    void (*wait)(struct fw_disk *disk);
    void (*close)(struct fw_disk *disk);
    /* As fw_disk_zero(), checked; -EOPNOTSUPP, or NULL: zeros are written instead. */
    int (*zero)(struct fw_disk *disk, uint64_t offset, uint64_t size);
};

/* The first member of every back end's own struct. */
struct fw_disk {
    const struct fw_disk_backend *backend;
    struct fw_disk_properties properties;
    char *name;
    int fd; /* What fw_disk_fd() answers. */
    uint32_t depth;
    uint32_t in_flight;
    int flush_error; /* Of the first flush that failed, else 0. */
    bool polling;
};

enum { FW_DISK_DEPTH_DEFAULT = 64 };

/*
 * Takes in what one attempt at a read, write, flush or discard gave: bytes or 0, or a negative
 * errno. True: the operation has finished and its result is set. False: what is left (from `moved`
 * on) is to be tried again.
 */
FW_MUST_CHECK bool fw_disk_op_progress(struct fw_disk_op *op, int64_t answer);
