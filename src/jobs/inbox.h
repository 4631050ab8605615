/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inbox: requests on their way from who posts to who dispatches.
 *
 * A ring with a place for every slot of the ready pool, so that it is never full: a request keeps
 * its slot until it is dispatched, and leaves the ring before that. Posters write it under `front`,
 * the dispatcher reads it under `role`; the two sides share no other word than the entries.
 *
 *     entry i:   the request's address, and in its lowest bit the parity of the lap
 *                the request's key (jobs/ready.h)
 *
 * The parity says whether the entry is of this lap or still of the last one, so that the dispatcher
 * learns that something was posted, and what, from one cache line; a tail beside the entries would
 * be a second, and every miss on the way to a request is waited for in turn.
 *
 * The key is there so that most requests can stay in the ring for a while. A request whose key is
 * not above that of the best one that waits goes behind it, whatever else it is, and need not be
 * touched to know so. So the dispatcher looks at the keys of what has come, and takes requests out
 * only when one of them may go first, or when nothing else is left: then many at once, the next
 * ones being fetched while one is sorted in. (Where some age faster than others a key alone says
 * nothing, and everything is taken out at once.)
 *
 * Why no entry is overwritten before it was read. Of the posts up to number i + size at least i + 1
 * have given their slots back, as far as the poster knows; one of these has a number of at least i;
 * so entry i was taken before, since entries are taken in order. The poster knows it by acquire
 * (slot_try()).
 *
 * Rejected: a stack that is pushed by compare-and-swap and emptied by one exchange. It must be
 * turned round, and to walk along it is one cache miss after the other.
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/jobs.h>

#include "base/base.h"
#include "base/thread.h"

enum { FW_INBOX_AHEAD = 4 }; /* Requests that are fetched before they are needed. */

struct fw_inbox_entry {
    _Atomic uintptr_t word;
    int64_t key; /* Guarded by `word`. */
};

struct fw_inbox {
    struct fw_inbox_entry *entries;
    uint64_t size; /* A power of two. */

    alignas(FW_CACHE_LINE) uint64_t tail; /* The posters'. */

    /* The dispatcher's. Relaxed: others read it for a hint only. */
    alignas(FW_CACHE_LINE) _Atomic uint64_t head;
    uint64_t seen;   /* Entries before it have been looked at. */
    int64_t key_max; /* The greatest key of those from head to `seen`. */
};

/* For `slots` requests. Returns 0 or -ENOMEM. */
FW_MUST_CHECK int fw_inbox_init(struct fw_inbox *inbox, uint32_t slots);
void fw_inbox_fini(struct fw_inbox *inbox);

static inline struct fw_inbox_entry *fw_inbox_entry(const struct fw_inbox *inbox, uint64_t number)
{
    return &inbox->entries[number & (inbox->size - 1)];
}

/* The parity of the lap: 1 in the first, so that a zeroed entry is of no lap. */
static inline uintptr_t fw_inbox_parity(const struct fw_inbox *inbox, uint64_t number)
{
    return (number & inbox->size) == 0 ? 1 : 0;
}

/* For a poster that has a slot. */
static inline void fw_inbox_push(struct fw_inbox *inbox, struct fw_job *job)
{
    uint64_t number = inbox->tail++;
    struct fw_inbox_entry *entry = fw_inbox_entry(inbox, number);
    entry->key = job->key;
    FW_YIELD_POINT("inbox: about to push");
    /* Release, for the acquire in fw_inbox_job(). */
    atomic_store_explicit(&entry->word, (uintptr_t)job | fw_inbox_parity(inbox, number),
                          memory_order_release);
}

/* The request with this number, or NULL if it has not been posted. */
static inline struct fw_job *fw_inbox_job(const struct fw_inbox *inbox, uint64_t number)
{
    uintptr_t word =
        atomic_load_explicit(&fw_inbox_entry(inbox, number)->word, memory_order_acquire);
    bool posted = word != 0 && (word & 1) == fw_inbox_parity(inbox, number);
    return posted ? (struct fw_job *)(word & ~(uintptr_t)1) : NULL; // NOLINT
}

/* For anyone, and to who is not the dispatcher a hint. */
static inline bool fw_inbox_is_empty(const struct fw_inbox *inbox)
{
    uint64_t head = atomic_load_explicit(&inbox->head, memory_order_relaxed);
    return fw_inbox_job(inbox, head) == NULL;
}

/* For the dispatcher: none of the requests in the inbox has a key above `key`. */
bool fw_inbox_is_below(struct fw_inbox *inbox, int64_t key);

/* For the dispatcher: the oldest request, taken out, or NULL. */
struct fw_job *fw_inbox_take(struct fw_inbox *inbox);
