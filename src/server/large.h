/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of large values: how they get into it and out of it. Which part of it is whose is kept
 * by cache/large.h.
 *
 * The file has no name: it is made in a folder for temporary files and is gone with the process,
 * however that ends. Or it is a block device or a file that the administrator names, or a volume of
 * a group (large_volume.h), whose contents then belong to the server. Nothing in it outlives the
 * server: after a restart it is empty (items over a restart are kept by server/image.h, values and
 * all).
 *
 * Transfers. A locality never reads or writes the file. A connection whose window of a value is
 * full, or empty, hands a *transfer* to the job kernel and waits, and the others are served:
 *
 *     connection's fom ── fw_transfer_start() ──► lane 2: the transfer of one window
 *          ▲                                         │ posts, and waits for
 *          │                                         ▼
 *          └────────── woken when all are ◄──── lane 3: one piece each, on a worker's own disk
 *
 * Workers that have moved a piece give way to the threads that serve (base/thread.h), with whom
 * they may share a core: a window is copied by several of them in turn, and who asks for a small
 * value is not to wait for all. Services, such as the sweeper, keep their own workers.
 *
 * So what is under way for one client is a window, whatever its value's length; slow disks and slow
 * clients hold up neither others' requests nor, beyond their lane, others' transfers. A client that
 * is slow holds a window and no thread.
 *
 * Errors. What fails is one client's: a value that cannot be written is not stored, and its client
 * is told so; one that cannot be read back is dropped from the cache, and as its length has been
 * promised by then its client's connection is closed. Both are counted, and the first of a kind is
 * logged, with the reason. If the file cannot even be made the server serves, and refuses values
 * that would have gone there.
 *
 * Ownership: the server's. Each worker has its own opening of the disk (io/disk.h), made when it
 * first needs it. Threads: begin() and end() are the server's; a transfer belongs to its connection
 * until it is started and again when the fom is woken. fetch() and put() block, for jobs.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include <fairway/engine.h>
#include <fairway/jobs.h>

#include "base/base.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/reason.h"
#include "cache/large.h"
#include "io/disk.h"
#include "io/file.h"
#include "io/file_stream.h"
#include "server/large_volume.h"

struct fw_cache_local;

enum { FW_TRANSFER_PARTS = FW_LARGE_WINDOW_PIECES + 1 };

struct fw_server_large_config {
    uint64_t value_min; /* Longer values go to the file; 0: none does. */
    uint64_t limit;     /* Bytes of it. */
    const char *folder; /* Of the temporary file; NULL: as the environment says. */
    const char *volume; /* A device, a file or NAME@GROUP instead; NULL: none. */
};

struct fw_large_files {
    const struct fw_server_large_config *config;
    struct fw_metrics *metrics;
    struct fw_jobs *jobs; /* The server's; set before the first transfer. */
    struct fw_large space;
    struct fw_file_temporary temporary;
    const char *path;        /* Of the disk; NULL: there is none, */
    struct fw_reason reason; /* for this reason. */
    bool is_made;            /* Else all values are in memory. */
    bool has_temporary;
    bool has_lock;
    struct fw_file_lock lock;                       /* Of a device. */
    struct fw_large_volume volume;                  /* Of a group. */
    struct fw_disk *disks[FW_JOBS_WORKERS_MAX + 1]; /* By number of worker, and only its. */
    atomic_bool is_read_told, is_write_told;        /* The log knows that it fails. */

    struct fw_metric_collector collector;
    /* Figures, relaxed. */
    _Atomic uint64_t reads, writes, bytes_read, bytes_written;
    _Atomic uint64_t read_errors, write_errors;
};

/*
 * Makes the file if values may be long enough for it (`item_size_max`) and are to go there. A file
 * that cannot be made is no error: `path` is NULL then.
 */
FW_MUST_CHECK int fw_large_files_begin(struct fw_large_files *files,
                                       const struct fw_server_large_config *config,
                                       uint64_t item_size_max, struct fw_metrics *metrics,
                                       struct fw_reason *reason);
/* Transfers that wait for space on a volume fail, now and later: for a server that is to end. */
void fw_large_files_stop(struct fw_large_files *files);

/* No transfer is under way, no value left, the workers are gone. */
void fw_large_files_end(struct fw_large_files *files);

/* Tells what is counted about large values. */
void fw_large_visit(const struct fw_large_files *files, fw_metric_visit visit, void *context);

struct fw_transfer_part {
    struct fw_job job;
    struct fw_disk_op op;
    struct fw_transfer *transfer;
    int rc;
};

/* One window of one value, from or to the file. */
struct fw_transfer {
    struct fw_offload offload; /* Its fom. */
    struct fw_large_files *files;
    struct fw_body *body;
    struct fw_window window; /* Of one that reads: its own. Else a copy of the session's. */
    uint32_t size;           /* Bytes of the value in the window; 0: it was never started. */
    bool is_write;
    bool is_under_way;  /* The fom's to read and write, as the next. */
    struct iovec slice; /* Of the window: what is being sent. */
    int result;         /* 0 or a negative errno; -EINPROGRESS: it has not run. */
    struct fw_job unit;
    struct fw_transfer_part parts[FW_TRANSFER_PARTS];
};

/* NULL: no memory. Nobody is at one that is destroyed. */
struct fw_transfer *fw_transfer_create(struct fw_large_files *files, bool is_write);
void fw_transfer_destroy(struct fw_transfer *transfer, struct fw_table_local *table);

/*
 * For who sends the last `rest` bytes of a value. 0: the next of them, at most `slice_max`, are in
 * the slice; -EINPROGRESS: they have to be read first, for which the transfer is to be started; or
 * another error: they cannot be had, and the item is dropped if that is the disk's fault.
 */
FW_MUST_CHECK int fw_transfer_look(struct fw_transfer *transfer, struct fw_cache_local *local,
                                   struct fw_body *body, size_t rest, size_t slice_max);

/*
 * Begins the transfer, whose body, window, size and direction are set. The fom is woken when it is
 * over. Returns 0, or a negative errno: the job kernel is busy, try again later.
 */
FW_MUST_CHECK int fw_transfer_start(struct fw_transfer *transfer, struct fw_fom *fom);

/* For fw_domain_config.offload, with the files as context: all work is transfers. */
int fw_large_offload(void *files, struct fw_offload *work);

/*
 * In a later tick of the fom: nobody is at it any more, and `result` says what came of it. More
 * than is_done: a fom that finishes must have been let go of, and then there is a wake-up to come.
 */
static inline bool fw_transfer_is_over(const struct fw_transfer *transfer)
{
    /* Acquire, for the release in fw_offload_run(). */
    return atomic_load_explicit(&transfer->offload.ticket.fom->offload_count,
                                memory_order_acquire) == 0;
}

/* One could not be written, for which its client gets an error. */
void fw_large_write_failed(struct fw_large_files *files);

/* All of a value, in a job. 0 or a negative errno. */
FW_MUST_CHECK int fw_large_fetch(struct fw_large_files *files, struct fw_body *body, char *to);
FW_MUST_CHECK int fw_large_put(struct fw_large_files *files, struct fw_body *body,
                               const char *from);
