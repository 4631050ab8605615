/* SPDX-License-Identifier: Apache-2.0 */
#include "server/large.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "base/thread.h"
#include "cache/cache.h"
#include "cache/table.h"
#include "io/process.h"

FW_LOG_MODULE(large);

enum {
    DISK_DEPTH = 1, /* A worker does one thing at a time. */
    LOCK_BYTE = 0,  /* Of a volume, so that no two servers use it. */
};

static void count_up(_Atomic uint64_t *counter, uint64_t amount)
{
    /* Relaxed: only shown. */
    (void)atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

/* ---- the file ------------------------------------------------------------------------------ */

static int disk_open(const struct fw_large_files *files, struct fw_disk **disk,
                     struct fw_reason *reason)
{
    const struct fw_disk_options options = {
        .path = files->path, .engine = FW_DISK_ENGINE_CALLER, .depth = DISK_DEPTH};
    return fw_disk_open(disk, &options, reason);
}

static int temporary_begin(struct fw_large_files *files, uint64_t *size)
{
    const char *folder = files->config->folder;
    folder = folder != NULL ? folder : fw_process_variable("TMPDIR");
    folder = folder != NULL ? folder : "/var/tmp";
    int rc = fw_file_temporary_open(&files->temporary, folder, *size, &files->reason);
    if (rc == 0) {
        files->has_temporary = true;
        files->path = files->temporary.path;
        *size = files->temporary.size;
    }
    return rc;
}

static int thin_begin(struct fw_large_files *files, uint64_t *size)
{
    files->path = files->config->volume;
    int rc = fw_large_volume_open(&files->volume, files->path, *size, &files->reason);
    if (rc == 0) {
        uint64_t there = fw_volume_thin_size(files->volume.thin);
        *size = there < *size ? there : *size;
    }
    return rc;
}

static int device_begin(struct fw_large_files *files, uint64_t *size)
{
    struct fw_disk *disk;
    files->path = files->config->volume;
    int rc = disk_open(files, &disk, &files->reason);
    if (rc != 0) {
        return rc;
    }
    uint64_t there = fw_disk_properties(disk)->size;
    fw_disk_close(disk);
    *size = there < *size ? there : *size;
    rc = fw_file_lock_take(&files->lock, files->path, LOCK_BYTE, &files->reason);
    files->has_lock = rc == 0;
    return rc == -ENOENT ? 0 : rc; /* Disks that are no files have nobody to share them with. */
}

/* ---- figures ------------------------------------------------------------------------------- */

enum {
    VALUES,
    BYTES,
    LIMIT,
    READS,
    WRITES,
    BYTES_READ,
    BYTES_WRITTEN,
    EVICTIONS,
    NO_SPACE,
    READ_ERRORS,
    WRITE_ERRORS,
    FIGURES
};

#define ROW(kind, row_name, unit_text, help_text)                     \
    {                                                                 \
        .name = (row_name), .unit = (unit_text), .help = (help_text), \
        .type = FW_METRIC_TYPE_##kind                                 \
    }

static const struct fw_metric rows[FIGURES] = {
    [VALUES] = ROW(GAUGE, "large_values", "", "values in the file, with those on their way"),
    [BYTES] = ROW(GAUGE, "large_bytes", "bytes", "of the file that are in use"),
    [LIMIT] = ROW(GAUGE, "large_limit", "bytes", "that the file may have"),
    [READS] = ROW(COUNTER, "large_reads", "", "windows read from the file"),
    [WRITES] = ROW(COUNTER, "large_writes", "", "windows written to the file"),
    [BYTES_READ] = ROW(COUNTER, "large_bytes_read", "bytes", "read from the file"),
    [BYTES_WRITTEN] = ROW(COUNTER, "large_bytes_written", "bytes", "written to the file"),
    [EVICTIONS] = ROW(COUNTER, "large_evictions", "", "values dropped to make room in the file"),
    [NO_SPACE] = ROW(COUNTER, "large_no_space", "", "values refused, for there was no room"),
    [READ_ERRORS] = ROW(COUNTER, "large_read_errors", "", "values that could not be read"),
    [WRITE_ERRORS] = ROW(COUNTER, "large_write_errors", "", "values that could not be written"),
};

static uint64_t figure(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

void fw_large_visit(const struct fw_large_files *files, fw_metric_visit visit, void *context)
{
    const struct fw_large *space = &files->space;
    uint64_t used = atomic_load_explicit(&space->used, memory_order_relaxed);
    struct fw_metric_value values[FIGURES] = {
        [VALUES] = {.gauge = atomic_load_explicit(&space->values, memory_order_relaxed)},
        [BYTES] = {.gauge = (int64_t)(used * space->piece_size)},
        [LIMIT] = {.gauge = (int64_t)((uint64_t)space->piece_max * space->piece_size)},
        [READS] = {.counter = figure(&files->reads)},
        [WRITES] = {.counter = figure(&files->writes)},
        [BYTES_READ] = {.counter = figure(&files->bytes_read)},
        [BYTES_WRITTEN] = {.counter = figure(&files->bytes_written)},
        [EVICTIONS] = {.counter = figure(&space->evictions)},
        [NO_SPACE] = {.counter = figure(&space->no_space)},
        [READ_ERRORS] = {.counter = figure(&files->read_errors)},
        [WRITE_ERRORS] = {.counter = figure(&files->write_errors)},
    };
    for (size_t i = 0; i < FIGURES; i++) {
        values[i].name = rows[i].name;
        values[i].row = &rows[i];
        visit(&values[i], context);
    }
}

static void files_collect(struct fw_metric_collector *collector, fw_metric_visit visit,
                          void *context)
{
    fw_large_visit(FW_CONTAINER_OF(collector, struct fw_large_files, collector), visit, context);
}

int fw_large_files_begin(struct fw_large_files *files, const struct fw_server_large_config *config,
                         uint64_t item_size_max, struct fw_metrics *metrics,
                         struct fw_reason *reason)
{
    files->config = config;
    files->metrics = metrics;
    if (config->value_min == 0 || item_size_max <= config->value_min) {
        return 0;
    }
    uint64_t size = config->limit;
    int rc = config->volume == NULL                     ? temporary_begin(files, &size)
             : fw_large_volume_is_named(config->volume) ? thin_begin(files, &size)
                                                        : device_begin(files, &size);
    if (rc != 0) {
        files->path = NULL;
        size = config->limit; /* For the bookkeeping of what will be refused. */
        FW_LOG(large, WARNING, "values of more than %" PRIu64 " bytes are refused: %s",
               config->value_min, files->reason.text);
    }
    rc = fw_large_init(&files->space, config->value_min, size);
    if (rc != 0) {
        (void)fw_reason_set(reason, rc, "%" PRIu64 " bytes are too few for large values", size);
        fw_large_files_end(files);
        return rc;
    }
    files->is_made = true;
    files->collector.collect = files_collect;
    fw_metrics_add_collector(metrics, &files->collector);
    return 0;
}

void fw_large_files_stop(struct fw_large_files *files)
{
    fw_large_volume_stop(&files->volume);
}

void fw_large_files_end(struct fw_large_files *files)
{
    for (size_t i = 0; i < FW_ARRAY_LENGTH(files->disks); i++) {
        if (files->disks[i] != NULL) {
            fw_disk_close(files->disks[i]);
        }
    }
    if (files->is_made) {
        fw_metrics_remove_collector(files->metrics, &files->collector);
        fw_large_fini(&files->space);
        files->is_made = false;
    }
    fw_large_volume_close(&files->volume);
    if (files->has_lock) {
        fw_file_lock_release(&files->lock);
    }
    if (files->has_temporary) {
        fw_file_temporary_close(&files->temporary);
    }
}

/* ---- parts --------------------------------------------------------------------------------- */

/* This worker's opening of the file. */
static int worker_disk(struct fw_large_files *files, struct fw_disk **disk,
                       struct fw_reason *reason)
{
    int id = fw_jobs_thread_id(files->jobs);
    FW_ASSERT(id > 0 && id <= FW_JOBS_WORKERS_MAX);
    int rc = files->disks[id] == NULL ? disk_open(files, &files->disks[id], reason) : 0;
    *disk = files->disks[id];
    return rc;
}

static void failure_tell(struct fw_large_files *files, bool is_write, const struct fw_reason *why)
{
    atomic_bool *is_told = is_write ? &files->is_write_told : &files->is_read_told;
    if (!atomic_exchange(is_told, true)) {
        FW_LOG(large, WARNING, "large values cannot be %s: %s; further ones are only counted",
               is_write ? "written" : "read", why->text);
    }
}

/* One piece, or less. Blocks. From then on the worker goes behind the threads that serve. */
static int piece_move(struct fw_large_files *files, struct fw_disk_op *op)
{
    struct fw_reason reason;
    struct fw_disk *disk = NULL;
    bool is_thin = files->volume.thin != NULL;
    fw_thread_give_way();
    int rc = is_thin ? 0 : worker_disk(files, &disk, &reason);
    if (rc == 0) {
        fw_jobs_block_enter(files->jobs);
        rc = is_thin ? fw_large_volume_move(&files->volume, op, &reason)
                     : fw_disk_run(disk, op, &reason);
        fw_jobs_block_leave(files->jobs);
    }
    if (rc != 0) {
        failure_tell(files, op->kind == FW_DISK_WRITE, &reason);
    }
    return rc;
}

/* From `offset` of the value on, at most up to the end of that piece. Returns how many bytes. */
static uint32_t piece_plan(const struct fw_large_files *files, struct fw_body *body,
                           uint32_t offset, uint32_t size, struct fw_disk_op *op)
{
    const struct fw_large *space = &files->space;
    uint32_t room = space->piece_size - offset % space->piece_size;
    uint32_t part = size < room ? size : room;
    op->offset = fw_large_place(space, fw_stored_of(body), offset);
    op->size = ((size_t)part + FW_LARGE_UNIT - 1) / FW_LARGE_UNIT * FW_LARGE_UNIT;
    return part;
}

static void part_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct fw_transfer_part *part = FW_CONTAINER_OF(job, struct fw_transfer_part, job);
    part->rc = piece_move(part->transfer->files, &part->op);
}

static struct fw_job_runnable parts = {.run = part_run, .name = "piece of a large value"};

/* ---- transfers ----------------------------------------------------------------------------- */

/* What is in the last sector behind the value is nobody's. */
static void window_pad(const struct fw_transfer *transfer)
{
    uint32_t over = transfer->size % FW_LARGE_UNIT;
    if (over > 0) {
        memset(transfer->window.bytes + transfer->size, 0, FW_LARGE_UNIT - over);
    }
}

static void transfer_run(struct fw_offload *work)
{
    struct fw_transfer *transfer = FW_CONTAINER_OF(work, struct fw_transfer, offload);
    struct fw_large_files *files = transfer->files;
    uint32_t done = 0;
    uint32_t count = 0;
    if (transfer->is_write) {
        window_pad(transfer);
    }
    for (; done < transfer->size; count++) {
        FW_ASSERT(count < FW_TRANSFER_PARTS);
        struct fw_transfer_part *part = &transfer->parts[count];
        *part = (struct fw_transfer_part){.transfer = transfer};
        part->op.kind = transfer->is_write ? FW_DISK_WRITE : FW_DISK_READ;
        part->op.into = transfer->window.bytes + done;
        done += piece_plan(files, transfer->body, transfer->window.begin + done,
                           transfer->size - done, &part->op);
        int rc = fw_jobs_post(files->jobs, &part->job, &parts, &transfer->unit, 0,
                              FW_JOB_PART | FW_JOB_REJOINABLE);
        if (rc != 0) { /* There is no room for it to wait: it is done here. */
            part->rc = piece_move(files, &part->op);
        }
    }
    struct fw_job *job;
    while (fw_jobs_rejoin_wait(files->jobs, &transfer->unit, FW_REJOIN_HELP, FW_JOBS_FOREVER,
                               &job) == FW_REJOIN_RETURNED) {
    }
    transfer->result = 0;
    for (uint32_t i = 0; i < count && transfer->result == 0; i++) {
        transfer->result = transfer->parts[i].rc;
    }
    count_up(transfer->is_write ? &files->writes : &files->reads, 1);
    count_up(transfer->is_write ? &files->bytes_written : &files->bytes_read, transfer->size);
}

static void unit_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    /* Once it has run the transfer may be gone. */
    fw_offload_run(&FW_CONTAINER_OF(job, struct fw_transfer, unit)->offload);
}

static struct fw_job_runnable units = {.run = unit_run, .name = "window of a large value"};

int fw_large_offload(void *context, struct fw_offload *work)
{
    struct fw_large_files *files = context;
    struct fw_transfer *transfer = FW_CONTAINER_OF(work, struct fw_transfer, offload);
    FW_ASSERT(transfer->files == files);
    transfer->unit = (struct fw_job){.runnable = NULL};
    return fw_jobs_post(files->jobs, &transfer->unit, &units, files, 0, FW_JOB_UNIT);
}

int fw_transfer_start(struct fw_transfer *transfer, struct fw_fom *fom)
{
    FW_ASSERT(!transfer->is_under_way && transfer->size > 0);
    FW_ASSERT(transfer->size <= transfer->window.size);
    FW_ASSERT(transfer->size <= transfer->body->length - transfer->window.begin);
    transfer->offload.run = transfer_run;
    int rc = fw_fom_offload(fom, &transfer->offload);
    transfer->is_under_way = rc == 0;
    return rc;
}

/* ---- reading ------------------------------------------------------------------------------- */

struct fw_transfer *fw_transfer_create(struct fw_large_files *files, bool is_write)
{
    struct fw_transfer *transfer = calloc(1, sizeof *transfer);
    if (transfer != NULL) {
        transfer->files = files;
        transfer->is_write = is_write;
        transfer->result = -EINPROGRESS;
    }
    return transfer;
}

void fw_transfer_destroy(struct fw_transfer *transfer, struct fw_table_local *table)
{
    FW_ASSERT(!transfer->is_under_way);
    if (!transfer->is_write) {
        fw_window_close(&transfer->window, table);
    }
    free(transfer);
}

/* A value that cannot be read is of no use to anybody. */
static void value_drop(struct fw_cache_local *local, struct fw_body *body)
{
    const struct fw_stored *stored = fw_stored_of(body);
    struct fw_key key = fw_table_key(local->table, stored->key, stored->key_length);
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, &key);
    if (hold.item != NULL && fw_item_is_stored(hold.item) && fw_item_body(hold.item) == body) {
        fw_hold_remove(&hold);
    }
    fw_hold_release(&hold);
}

int fw_transfer_look(struct fw_transfer *transfer, struct fw_cache_local *local,
                     struct fw_body *body, size_t rest, size_t slice_max)
{
    struct fw_window *window = &transfer->window;
    uint32_t offset = body->length - (uint32_t)rest;
    if (transfer->result < 0 && transfer->result != -EINPROGRESS) {
        count_up(&transfer->files->read_errors, 1);
        value_drop(local, body);
        return transfer->result;
    }
    bool is_there = transfer->result == 0 && transfer->body == body && offset >= window->begin &&
                    offset - window->begin < transfer->size;
    if (!is_there) {
        if (transfer->body != body) {
            fw_window_close(window, local->table); /* It was made for another length. */
        }
        if (window->body == NULL && !fw_window_open(window, local->table, (uint32_t)rest)) {
            return -ENOMEM;
        }
        transfer->body = body;
        window->begin = offset;
        transfer->size = rest < window->size ? (uint32_t)rest : window->size;
        transfer->result = -EINPROGRESS;
        return -EINPROGRESS;
    }
    uint32_t done = offset - window->begin;
    size_t length = transfer->size - done;
    transfer->slice = (struct iovec){.iov_base = window->bytes + done,
                                     .iov_len = length < slice_max ? length : slice_max};
    return 0;
}

void fw_large_write_failed(struct fw_large_files *files)
{
    count_up(&files->write_errors, 1);
}

/* ---- whole values -------------------------------------------------------------------------- */

/* Through a buffer that disks like. */
static int value_move(struct fw_large_files *files, struct fw_body *body, char *to,
                      const char *from)
{
    char *buffer = fw_disk_buffer(files->space.piece_size);
    if (buffer == NULL) {
        return -ENOMEM;
    }
    int rc = 0;
    uint32_t part;
    for (uint32_t done = 0; rc == 0 && done < body->length; done += part) {
        struct fw_disk_op op = {.kind = from != NULL ? FW_DISK_WRITE : FW_DISK_READ,
                                .into = buffer};
        part = piece_plan(files, body, done, body->length - done, &op);
        if (from != NULL) {
            memcpy(buffer, from + done, part);
        }
        rc = piece_move(files, &op);
        if (rc == 0 && to != NULL) {
            memcpy(to + done, buffer, part);
        }
    }
    free(buffer);
    return rc;
}

int fw_large_fetch(struct fw_large_files *files, struct fw_body *body, char *to)
{
    return value_move(files, body, to, NULL);
}

int fw_large_put(struct fw_large_files *files, struct fw_body *body, const char *from)
{
    return value_move(files, body, NULL, from);
}
