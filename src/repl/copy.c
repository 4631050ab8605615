/* SPDX-License-Identifier: Apache-2.0 */
#include "repl/copy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cache/table.h"
#include "io/clock.h"

/*
 * The job may share its processor with a core, whose clients wait while a chunk is filled: some
 * hundred keys take it some ten microseconds.
 */
enum { CHUNK = 16 * 1024, CHUNK_ENOUGH = 4 * 1024, CHUNK_MAX = 1 << 26 };

static void copy_visit(struct fw_item *item, void *context)
{
    struct fw_repl_copy *copy = context;
    if (copy->is_full || copy->size - copy->used < 1 + (uint32_t)item->key_length) {
        copy->is_full = true;
        return;
    }
    copy->chunk[copy->used] = (char)item->key_length;
    memcpy(copy->chunk + copy->used + 1, item->key, item->key_length);
    copy->used += 1 + (uint32_t)item->key_length;
}

/* A bucket whose keys find no room is visited again with more. False: there is no memory. */
static bool copy_grow(struct fw_repl_copy *copy)
{
    uint32_t size = copy->size * 2;
    char *chunk = size <= CHUNK_MAX ? realloc(copy->chunk, size) : NULL;
    if (chunk == NULL) {
        return false;
    }
    copy->chunk = chunk;
    copy->size = size;
    return true;
}

/* Fills a chunk. Returns the state it is then in. */
static enum fw_repl_copy_state copy_fill(struct fw_repl_copy *copy)
{
    bool is_round = false;
    copy->used = 0;
    fw_cache_local_set_time(copy->local, fw_clock_now_ns());
    while (!is_round && copy->used < CHUNK_ENOUGH) {
        uint64_t cursor = copy->cursor;
        uint32_t used = copy->used;
        copy->is_full = false;
        is_round = fw_table_visit(copy->local->table, &copy->cursor, 1, copy_visit, copy);
        if (copy->is_full) {
            copy->cursor = cursor;
            copy->used = used;
            is_round = false;
            if (!copy_grow(copy)) {
                (void)fw_park_for(&copy->parker, FW_NS_PER_MS); /* Until there is. */
            }
        }
        /* Acquire, for the release in end(). */
        if (atomic_load_explicit(&copy->must_end, memory_order_acquire)) {
            break;
        }
    }
    return is_round ? FW_REPL_COPY_LAST : FW_REPL_COPY_FILLED;
}

static void copy_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct fw_repl_copy *copy = FW_CONTAINER_OF(job, struct fw_repl_copy, job);
    enum fw_repl_copy_state state = FW_REPL_COPY_FILLING;
    while (!atomic_load_explicit(&copy->must_end, memory_order_acquire) &&
           state != FW_REPL_COPY_LAST) {
        state = copy_fill(copy);
        /* Release the chunk, for the acquire in next(). */
        atomic_store_explicit(&copy->state, state, memory_order_release);
        fw_ticket_wake(copy->ticket);
        fw_jobs_block_enter(copy->jobs);
        /* Acquire, for the release in next(): the chunk is ours again. */
        while (atomic_load_explicit(&copy->state, memory_order_acquire) == FW_REPL_COPY_FILLED &&
               !atomic_load_explicit(&copy->must_end, memory_order_acquire)) {
            fw_park(&copy->parker);
        }
        fw_jobs_block_leave(copy->jobs);
    }
}

static void copy_completed(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct fw_repl_copy *copy = FW_CONTAINER_OF(job, struct fw_repl_copy, job);
    struct fw_ticket ticket = copy->ticket;
    FW_YIELD_POINT("copy: has ended");
    /* Release, for the acquire in end(). Then the copy may be gone. */
    atomic_store_explicit(&copy->has_ended, true, memory_order_release);
    fw_ticket_wake(ticket);
}

static struct fw_job_runnable copy_runnable = {.run = copy_run, .completed = copy_completed};

int fw_repl_copy_create(struct fw_repl_copy **copy, struct fw_cache *cache, struct fw_jobs *jobs,
                        struct fw_ticket ticket)
{
    struct fw_repl_copy *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return -ENOMEM;
    }
    int rc = -ENOMEM;
    made->jobs = jobs;
    made->ticket = ticket;
    made->size = CHUNK;
    made->chunk = malloc(CHUNK);
    made->local = malloc(sizeof *made->local);
    fw_parker_init(&made->parker);
    if (made->chunk == NULL || made->local == NULL) {
        goto no_memory;
    }
    rc = fw_cache_local_init(made->local, cache);
    if (rc != 0) {
        goto no_memory;
    }
    rc = fw_jobs_post(jobs, &made->job, &copy_runnable, made, 0, FW_JOB_FEEDER);
    if (rc != 0) {
        goto no_job;
    }
    *copy = made;
    return 0;

no_job:
    fw_cache_local_fini(made->local);
no_memory:
    free(made->local);
    free(made->chunk);
    free(made);
    return rc;
}

const char *fw_repl_copy_next(struct fw_repl_copy *copy, uint8_t *length, bool *is_over)
{
    /* Acquire, for the release in run(): the chunk is ours. */
    uint32_t state = atomic_load_explicit(&copy->state, memory_order_acquire);
    *is_over = false;
    if (state == FW_REPL_COPY_FILLING) {
        return NULL;
    }
    if (copy->next < copy->used) {
        const char *key = copy->chunk + copy->next + 1;
        *length = (uint8_t)key[-1];
        copy->next += 1 + (uint32_t)*length;
        return key;
    }
    *is_over = state == FW_REPL_COPY_LAST;
    if (!*is_over) {
        copy->next = 0;
        /* Release, for the acquire in run(): it may be filled again. */
        atomic_store_explicit(&copy->state, FW_REPL_COPY_FILLING, memory_order_release);
        fw_unpark(&copy->parker);
    }
    return NULL;
}

bool fw_repl_copy_end(struct fw_repl_copy *copy)
{
    /* Release, for the acquires of the job. */
    atomic_store_explicit(&copy->must_end, true, memory_order_release);
    fw_unpark(&copy->parker);
    /* Acquire, for the release in completed(). */
    return atomic_load_explicit(&copy->has_ended, memory_order_acquire);
}

void fw_repl_copy_destroy(struct fw_repl_copy *copy)
{
    fw_cache_local_fini(copy->local);
    free(copy->local);
    free(copy->chunk);
    free(copy);
}
