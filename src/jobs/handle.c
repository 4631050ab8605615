/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handle table: each thread's own handles of what only one thread may use at a time.
 *
 * The table of a thread is touched by that thread alone, so it needs no lock; natives are few per
 * request, so it is searched from its start. Between threads a native has one word: how many have
 * it open, and whether it is being closed. Who closes it waits for one token, from whoever lowers
 * the count to 0 after that.
 */
#include <errno.h>

#include <fairway/jobs.h>

#include "base/assert.h"
#include "jobs/kernel.h"

enum { NATIVE_CLOSING = 1, NATIVE_OPEN = 2 };

/* False: the native is being closed. */
static bool native_claim(struct fw_job_native *native)
{
    uint32_t word = atomic_load_explicit(&native->word, memory_order_relaxed);
    do {
        if ((word & NATIVE_CLOSING) != 0) {
            return false;
        }
        FW_YIELD_POINT("jobs: about to claim a native");
        /* Relaxed: what was made before the native was shown to this thread is seen anyway. */
    } while (!atomic_compare_exchange_weak_explicit(&native->word, &word, word + NATIVE_OPEN,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

static void native_release(struct fw_jobs *jobs, struct fw_job_native *native)
{
    /* Release for who closes the native; acquire, for the waiter that it has set before. */
    uint32_t before = atomic_fetch_sub_explicit(&native->word, NATIVE_OPEN, memory_order_acq_rel);
    if (before == (NATIVE_OPEN | NATIVE_CLOSING)) {
        fw_mutex_lock(&jobs->front);
        fw_unpark(native->waiter); /* It sleeps, so it has not freed the native. */
        fw_mutex_unlock(&jobs->front);
    }
}

static void handle_close(struct fw_jobs_member *self, uint32_t index)
{
    struct fw_jobs_handle entry = self->handles[index];
    self->handles[index] = self->handles[--self->handle_count];
    entry.native->close(entry.native, entry.handle);
    native_release(self->jobs, entry.native);
}

void fw_jobs_handles_close(struct fw_jobs_member *self, uint32_t depth)
{
    for (uint32_t i = self->handle_count; i > 0; i--) {
        if (self->handles[i - 1].depth >= depth) {
            handle_close(self, i - 1);
        }
    }
}

int fw_jobs_handle(struct fw_jobs *jobs, struct fw_job_native *native, void **handle)
{
    struct fw_jobs_member *self = fw_jobs_self(jobs);
    if (self == NULL) {
        return -ESRCH;
    }
    for (uint32_t i = 0; i < self->handle_count; i++) {
        if (self->handles[i].native == native) {
            *handle = self->handles[i].handle;
            return 0;
        }
    }
    if (self->handle_count == FW_JOBS_HANDLES_MAX) {
        return -EMFILE;
    }
    if (!native_claim(native)) {
        return -ESHUTDOWN;
    }
    int rc = native->open(native, handle);
    if (rc != 0) {
        native_release(jobs, native);
        return rc;
    }
    self->handles[self->handle_count++] =
        (struct fw_jobs_handle){.native = native, .handle = *handle, .depth = self->depth};
    return 0;
}

void fw_jobs_native_close(struct fw_jobs *jobs, struct fw_job_native *native)
{
    struct fw_parker parker;
    fw_parker_init(&parker);
    struct fw_jobs_member *self = fw_jobs_self(jobs);
    for (uint32_t i = 0; self != NULL && i < self->handle_count; i++) {
        if (self->handles[i].native == native) {
            handle_close(self, i);
            break;
        }
    }
    native->waiter = &parker;
    /* Release, for the waiter; acquire, for what those who had it open did with it. */
    uint32_t before = atomic_fetch_or_explicit(&native->word, NATIVE_CLOSING, memory_order_acq_rel);
    FW_ASSERT((before & NATIVE_CLOSING) == 0);
    if (before >= NATIVE_OPEN) {
        fw_park(&parker);
        fw_mutex_lock(&jobs->front); /* Ends the waker's use of our parker. */
        fw_mutex_unlock(&jobs->front);
    }
}
