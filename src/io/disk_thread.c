/* SPDX-License-Identifier: Apache-2.0 */
#include "io/disk_thread.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

enum { THREADS_DEFAULT = 4 };

struct thread_disk {
    struct fw_disk_file file;
    struct fw_disk_workers workers;
};

/* The next operation, waiting for one; NULL when it is time to stop. */
static struct fw_disk_op *worker_next(struct fw_disk_worker *worker)
{
    struct fw_disk_workers *workers = worker->workers;
    fw_mutex_lock(&workers->lock);
    for (;;) {
        struct fw_list_link *link = fw_list_pop_front(&workers->pending);
        if (link != NULL) {
            fw_mutex_unlock(&workers->lock);
            return FW_LIST_ENTRY(link, struct fw_disk_op, link);
        }
        if (workers->stopping) {
            fw_mutex_unlock(&workers->lock);
            return NULL;
        }
        /* Who gives us work takes us off the list; any other wake-up leaves us on it. */
        if (!fw_list_is_linked(&worker->idle_link)) {
            fw_list_push_front(&workers->idle, &worker->idle_link);
        }
        fw_mutex_unlock(&workers->lock);
        fw_park(&worker->parker);
        fw_mutex_lock(&workers->lock);
    }
}

static void worker_run(void *argument)
{
    struct fw_disk_worker *worker = argument;
    struct fw_disk_workers *workers = worker->workers;
    struct fw_disk_op *op;
    while ((op = worker_next(worker)) != NULL) {
        fw_disk_file_execute(workers->file, op);
        fw_mutex_lock(&workers->lock);
        bool first = fw_list_is_empty(&workers->finished);
        fw_list_push_back(&workers->finished, &op->link);
        fw_mutex_unlock(&workers->lock);
        /* reap() clears the signal before it takes the list, so the first of a batch suffices. */
        if (first) {
            fw_disk_file_signal(workers->file);
            fw_unpark(&workers->waiter);
        }
    }
}

/* Takes a worker that waits for work, or NULL. */
static struct fw_disk_worker *idle_take(struct fw_disk_workers *workers) FW_REQUIRES(workers->lock);

static struct fw_disk_worker *idle_take(struct fw_disk_workers *workers)
{
    struct fw_list_link *link = fw_list_pop_front(&workers->idle);
    return link != NULL ? FW_LIST_ENTRY(link, struct fw_disk_worker, idle_link) : NULL;
}

void fw_disk_workers_push(struct fw_disk_workers *workers, struct fw_disk_op *op)
{
    fw_mutex_lock(&workers->lock);
    fw_list_push_back(&workers->pending, &op->link);
    struct fw_disk_worker *worker = idle_take(workers);
    fw_mutex_unlock(&workers->lock);
    if (worker != NULL) {
        fw_unpark(&worker->parker);
    }
}

void fw_disk_workers_reap(struct fw_disk_workers *workers, struct fw_list *finished)
{
    fw_mutex_lock(&workers->lock);
    fw_list_append(finished, &workers->finished);
    fw_mutex_unlock(&workers->lock);
}

void fw_disk_workers_wait(struct fw_disk_workers *workers)
{
    for (;;) {
        fw_mutex_lock(&workers->lock);
        bool empty = fw_list_is_empty(&workers->finished);
        fw_mutex_unlock(&workers->lock);
        if (!empty) {
            return;
        }
        fw_park(&workers->waiter);
    }
}

static void workers_stop(struct fw_disk_workers *workers, uint32_t started)
{
    fw_mutex_lock(&workers->lock);
    FW_ASSERT(fw_list_is_empty(&workers->pending));
    FW_ASSERT(fw_list_is_empty(&workers->finished));
    workers->stopping = true;
    fw_mutex_unlock(&workers->lock);
    for (uint32_t i = 0; i < started; i++) {
        fw_unpark(&workers->worker[i].parker);
    }
    for (uint32_t i = 0; i < started; i++) {
        fw_thread_join(&workers->worker[i].thread);
    }
    fw_mutex_fini(&workers->lock);
    free(workers->worker);
}

int fw_disk_workers_init(struct fw_disk_workers *workers, const struct fw_disk_file *file,
                         uint32_t worker_count)
{
    FW_ASSERT(worker_count > 0);
    *workers = (struct fw_disk_workers){
        .file = file,
        .worker = calloc(worker_count, sizeof *workers->worker),
        .worker_count = worker_count,
    };
    if (workers->worker == NULL) {
        return -ENOMEM;
    }
    fw_mutex_init(&workers->lock, FW_RANK_DISK);
    fw_list_init(&workers->pending);
    fw_list_init(&workers->finished);
    fw_list_init(&workers->idle);
    fw_parker_init(&workers->waiter);
    for (uint32_t i = 0; i < worker_count; i++) {
        struct fw_disk_worker *worker = &workers->worker[i];
        worker->workers = workers;
        fw_parker_init(&worker->parker);
        int rc = fw_thread_create(&worker->thread, "disk", worker_run, worker);
        if (rc != 0) {
            workers_stop(workers, i);
            return rc;
        }
    }
    return 0;
}

void fw_disk_workers_fini(struct fw_disk_workers *workers)
{
    workers_stop(workers, workers->worker_count);
}

static struct thread_disk *thread_disk_of(struct fw_disk *disk)
{
    return FW_CONTAINER_OF(disk, struct thread_disk, file.disk);
}

static int thread_start(struct fw_disk *disk, struct fw_disk_op *op)
{
    fw_disk_workers_push(&thread_disk_of(disk)->workers, op);
    return -EINPROGRESS;
}

static void thread_reap(struct fw_disk *disk, struct fw_list *finished)
{
    struct thread_disk *own = thread_disk_of(disk);
    fw_disk_file_signal_clear(&own->file);
    fw_disk_workers_reap(&own->workers, finished);
}

static void thread_wait(struct fw_disk *disk)
{
    fw_disk_workers_wait(&thread_disk_of(disk)->workers);
}

static void thread_close(struct fw_disk *disk)
{
    struct thread_disk *own = thread_disk_of(disk);
    fw_disk_workers_fini(&own->workers);
    fw_disk_file_close(&own->file);
    free(own);
}

static const struct fw_disk_backend thread_backend = {
    .start = thread_start,
    .reap = thread_reap,
    .wait = thread_wait,
    .close = thread_close,
    .zero = fw_disk_file_zero,
};

int fw_disk_thread_open(struct fw_disk **disk, const struct fw_disk_options *options,
                        struct fw_reason *reason)
{
    struct thread_disk *own = calloc(1, sizeof *own);
    if (own == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot open %.100s", options->path);
    }
    int rc = fw_disk_file_open(&own->file, options, reason);
    if (rc != 0) {
        goto fail_own;
    }
    uint32_t threads = options->threads != 0 ? options->threads : THREADS_DEFAULT;
    rc = fw_disk_workers_init(&own->workers, &own->file, threads);
    if (rc != 0) {
        (void)fw_reason_errno(reason, rc, "cannot start %u threads for %.100s", threads,
                              options->path);
        goto fail_file;
    }
    own->file.disk.backend = &thread_backend;
    own->file.disk.properties.engine = "threads";
    *disk = &own->file.disk;
    return 0;

fail_file:
    fw_disk_file_close(&own->file);
fail_own:
    free(own);
    return rc;
}
