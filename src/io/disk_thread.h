/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that do a disk's operations by blocking system calls: the threads engine, and the few
 * operations io_uring has no command for. Private to io/.
 *
 * Ownership and threads: push() and reap() are called by the holder of the turn; what is between
 * them belongs to the workers and, in the two lists, to the lock.
 */
#pragma once

#include "base/mutex.h"
#include "base/thread.h"
#include "io/disk_file.h"

struct fw_disk_worker {
    struct fw_disk_workers *workers;
    struct fw_thread thread;
    struct fw_parker parker;
    struct fw_list_link idle_link; /* On `idle` while the worker is about to park or parked. */
};

struct fw_disk_workers {
    const struct fw_disk_file *file;
    struct fw_disk_worker *worker;
    uint32_t worker_count;

    struct fw_mutex lock; /* FW_RANK_DISK, a leaf; guards what follows. */
    struct fw_list pending;
    struct fw_list finished;
    struct fw_list idle;
    bool stopping;

    struct fw_parker waiter; /* Of the holder of the turn, in wait(). */
};

/* Starts the threads. Returns 0, -ENOMEM or -EAGAIN; then none runs. */
FW_MUST_CHECK int fw_disk_workers_init(struct fw_disk_workers *workers,
                                       const struct fw_disk_file *file, uint32_t worker_count);

/* Ends the threads. Nothing may be under way. */
void fw_disk_workers_fini(struct fw_disk_workers *workers);

void fw_disk_workers_push(struct fw_disk_workers *workers, struct fw_disk_op *op);

/* Appends what has finished to the list. */
void fw_disk_workers_reap(struct fw_disk_workers *workers, struct fw_list *finished);

/* Waits until reap() has something. */
void fw_disk_workers_wait(struct fw_disk_workers *workers);
