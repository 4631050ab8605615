/* SPDX-License-Identifier: Apache-2.0 */
#include <fairway/journal.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "io/clock.h"
#include "ring/core.h"

FW_LOG_MODULE_USE(ring);

enum { RETRY_MS_MIN = 10, RETRY_MS_MAX = 10000 };

/* A thread that waits for others to perform. */
struct waiter {
    struct fw_parker parker;
    struct fw_list_link link;
};

struct fw_journal {
    struct fw_ring *ring;
    struct fw_journal_options options; /* `path` and `client` are not kept. */

    struct fw_mutex lock; /* FW_RANK_JOURNAL. Guards what follows. */
    uint64_t done;        /* All operations before this position have been performed. */
    uint32_t callers;     /* Threads inside fw_journal_perform(). */
    bool closing;
    bool performing;           /* A thread has the role of performing. */
    struct fw_list waiters;    /* Those that have not. */
    struct fw_parker *sleeper; /* Of the performer, while it waits to try again. */
    struct fw_parker *closer;

    /* The performer's: an operation that was popped and could not be performed yet. */
    bool is_stuck;
    struct fw_ring_message stuck;
    uint64_t stuck_position;
};

static void waiters_wake(struct fw_journal *journal)
{
    FW_LIST_FOR_EACH (&journal->waiters, struct waiter, link, waiter) {
        fw_unpark(&waiter->parker); /* It needs the lock to go away. */
    }
}

/* Waits before another attempt. False: the journal is being closed. */
static bool performer_sleep(struct fw_journal *journal, uint32_t delay_ms)
{
    struct fw_parker parker;
    fw_parker_init(&parker);
    fw_mutex_lock(&journal->lock);
    bool closing = journal->closing;
    journal->sleeper = &parker;
    fw_mutex_unlock(&journal->lock);
    if (!closing) {
        (void)fw_park_for(&parker, (int64_t)delay_ms * FW_NS_PER_MS);
    }
    fw_mutex_lock(&journal->lock);
    journal->sleeper = NULL;
    closing = journal->closing;
    fw_mutex_unlock(&journal->lock);
    return !closing;
}

uint32_t fw_journal_delay_ms(const struct fw_journal_options *options, uint32_t attempt)
{
    uint32_t min_ms = options->retry_ms_min != 0 ? options->retry_ms_min : RETRY_MS_MIN;
    uint32_t max_ms = options->retry_ms_max != 0 ? options->retry_ms_max : RETRY_MS_MAX;
    uint32_t delay_ms = min_ms;
    for (uint32_t i = 1; i < attempt && delay_ms < max_ms; i++) {
        delay_ms = delay_ms <= max_ms / 2 ? 2 * delay_ms : max_ms;
    }
    return delay_ms;
}

/* Performs one operation, again and again if need be. */
static int operation_perform(struct fw_journal *journal, const struct fw_ring_message *message,
                             uint64_t position, struct fw_reason *reason)
{
    const struct fw_journal_options *options = &journal->options;
    for (uint32_t attempt = 1;; attempt++) {
        int rc = options->perform(message->data, message->length, options->context);
        if (rc == 0) {
            if (attempt > 1) {
                FW_LOG(ring, NOTICE,
                       "the journal's operation before %" PRIu64 " was performed at the %" PRIu32
                       "th attempt",
                       position, attempt);
            }
            return 0;
        }
        bool is_last = attempt == options->attempts_max;
        FW_LOG(ring, WARNING,
               "the journal's operation before %" PRIu64 " failed with %d at attempt %" PRIu32
               "; it stays in the journal, %s",
               position, rc, attempt, is_last ? "for later" : "and is tried again");
        if (is_last) {
            return fw_reason_errno(reason, rc,
                                   "the operation was not performed in %" PRIu32
                                   " attempts and stays in the journal",
                                   attempt);
        }
        if (!performer_sleep(journal, fw_journal_delay_ms(options, attempt))) {
            return fw_reason_set(reason, -ECANCELED, "the journal is being closed");
        }
    }
}

/* The next operation: the one that is stuck, or one from the ring. As fw_ring_pop(). */
static int operation_next(struct fw_journal *journal, struct fw_reason *reason)
{
    if (journal->is_stuck) {
        return 0;
    }
    int rc = fw_ring_pop(journal->ring, &journal->stuck, &journal->stuck_position,
                         (struct fw_ring_reason *)(void *)reason);
    journal->is_stuck = rc == 0;
    return rc;
}

/*
 * Performs what is pending now and gives it back, as far as it goes. The role is ours, so that the
 * order is the ring's.
 */
static int pending_perform(struct fw_journal *journal, struct fw_reason *reason)
{
    struct fw_ring_state state;
    fw_ring_state(journal->ring, &state);
    uint64_t performed = state.consumer;
    int rc = 0;
    while (rc == 0 && performed < state.producer) {
        rc = operation_next(journal, reason);
        FW_ASSERT(rc <= 0); /* There is one before the producer. */
        if (rc == 0) {
            rc = operation_perform(journal, &journal->stuck, journal->stuck_position, reason);
        }
        if (rc == 0) {
            performed = journal->stuck_position;
            journal->is_stuck = false;
        }
    }
    if (performed > state.consumer) {
        struct fw_ring_reason why;
        int advanced = fw_ring_advance(journal->ring, performed, &why);
        if (advanced != 0) {
            return fw_reason_set(reason, advanced, "%s", why.text);
        }
        fw_mutex_lock(&journal->lock);
        journal->done = performed;
        fw_mutex_unlock(&journal->lock);
    }
    return rc;
}

/* Sees to it that everything before `position` has been performed, by this thread or another. */
static int performed_wait(struct fw_journal *journal, uint64_t position, struct fw_reason *reason)
{
    struct waiter waiter;
    int rc = 0;
    fw_parker_init(&waiter.parker);
    fw_list_link_init(&waiter.link);
    fw_mutex_lock(&journal->lock);
    fw_list_push_back(&journal->waiters, &waiter.link);
    while (rc == 0 && journal->done < position) {
        bool ours = !journal->performing && !journal->closing;
        if (journal->closing && !journal->performing) {
            rc = fw_reason_set(reason, -ECANCELED, "the journal is being closed");
            break;
        }
        journal->performing = true;
        fw_mutex_unlock(&journal->lock);
        if (ours) {
            rc = pending_perform(journal, reason);
        } else {
            fw_park(&waiter.parker);
        }
        fw_mutex_lock(&journal->lock);
        if (ours) {
            journal->performing = false;
            waiters_wake(journal);
        }
    }
    fw_list_remove(&waiter.link);
    fw_mutex_unlock(&journal->lock);
    return rc;
}

static int operation_push(struct fw_journal *journal, const struct fw_ring_message *message,
                          uint64_t *position, struct fw_reason *reason)
{
    for (;;) {
        struct fw_ring_op op = {.kind = FW_RING_PUSH, .messages = message, .count = 1};
        int rc = fw_ring_run(journal->ring, &op, (struct fw_ring_reason *)(void *)reason);
        if (rc != FW_RING_RETRY) {
            *position = op.position;
            return rc;
        }
        struct fw_ring_state state; /* Full: there will be room when all this is done. */
        fw_ring_state(journal->ring, &state);
        rc = performed_wait(journal, state.producer, reason);
        if (rc != 0) {
            return rc;
        }
    }
}

int fw_journal_perform(struct fw_journal *journal, const void *data, size_t length,
                       struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = (struct fw_reason *)(void *)public_reason;
    const struct fw_ring_message message = {.data = data, .length = length};
    uint64_t position = 0;
    fw_mutex_lock(&journal->lock);
    bool closing = journal->closing;
    journal->callers += closing ? 0 : 1;
    fw_mutex_unlock(&journal->lock);
    if (closing) {
        return fw_reason_set(reason, -ECANCELED, "the journal is being closed");
    }
    int rc = operation_push(journal, &message, &position, reason);
    if (rc == 0) {
        rc = performed_wait(journal, position, reason);
    }
    fw_mutex_lock(&journal->lock);
    journal->callers--;
    if (journal->callers == 0 && journal->closer != NULL) {
        fw_unpark(journal->closer);
    }
    fw_mutex_unlock(&journal->lock);
    return rc;
}

static int journal_attach(struct fw_journal *journal, const struct fw_journal_options *options,
                          struct fw_ring_reason *reason)
{
    const struct fw_ring_create create = {.path = options->path,
                                          .format = options->format != 0 ? options->format : 1,
                                          .size = options->size};
    const struct fw_ring_options ring_options = {.path = options->path,
                                                 .role = FW_RING_BOTH,
                                                 .flags = options->flags & ~(unsigned)FW_RING_SYNCS,
                                                 .queue = "journal",
                                                 .client = options->client};
    int rc = fw_ring_create(&create, reason);
    /* Of the other format or damaged: attaching says so. Or it cannot grow while operations wait.
     */
    if (rc == 0 || rc == -EEXIST) {
        rc = fw_ring_attach(&journal->ring, &ring_options, reason);
    }
    return rc;
}

int fw_journal_open(struct fw_journal **made, const struct fw_journal_options *options,
                    struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = (struct fw_reason *)(void *)public_reason;
    FW_ASSERT(options->perform != NULL);
    struct fw_journal *journal = calloc(1, sizeof *journal);
    if (journal == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot open the journal");
    }
    int rc = journal_attach(journal, options, public_reason);
    if (rc != 0) {
        free(journal);
        return rc;
    }
    journal->options = *options;
    fw_mutex_init(&journal->lock, FW_RANK_JOURNAL);
    fw_list_init(&journal->waiters);
    struct fw_ring_state state;
    fw_ring_state(journal->ring, &state);
    journal->done = state.consumer;
    if (state.producer > state.consumer) {
        FW_LOG(ring, NOTICE, "performing what the journal %s held: %" PRIu64 " bytes",
               options->path, state.producer - state.consumer);
    }
    rc = performed_wait(journal, state.producer, reason);
    if (rc != 0) {
        fw_journal_close(journal);
        return rc;
    }
    *made = journal;
    return 0;
}

void fw_journal_close(struct fw_journal *journal)
{
    struct fw_parker parker;
    fw_parker_init(&parker);
    fw_mutex_lock(&journal->lock);
    journal->closing = true;
    journal->closer = &parker;
    if (journal->sleeper != NULL) {
        fw_unpark(journal->sleeper);
    }
    waiters_wake(journal);
    while (journal->callers > 0) {
        fw_mutex_unlock(&journal->lock);
        fw_park(&parker);
        fw_mutex_lock(&journal->lock);
    }
    fw_mutex_unlock(&journal->lock);
    fw_ring_detach(journal->ring);
    fw_mutex_fini(&journal->lock);
    free(journal);
}
