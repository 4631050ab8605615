/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The callers' side of the asynchronous log: a ring per thread, and the bell that wakes the writer.
 *
 * Who owns what. Each ring has one caller, its thread, and one consumer, who holds the writer's
 * role (writer.h). `struct fw_log_ring` is what the process needs to know of a ring and is never
 * freed, so that a pointer to it never dangles; the buffer is in the arena (arena.h), which exists
 * from start to stop. One ring more than threads may have is shared, under a lock; it is for
 * threads that came when all others were taken.
 *
 *     FREE ──attach()──► OWNED ──thread ends──► RELEASED ──writer has emptied it──► FREE
 *
 * In and out. A thread says that it is inside a ring (log_busy in its state) before it looks
 * whether it has one (log_ring); stop() takes its ring away and then waits until it is out. The
 * fence between the two is the light one on the thread's side (base/fence.h). log_busy is in the
 * thread's state and not in the ring, because a thread that was held up between two steps may come
 * back when the ring has become another's.
 *
 * The bell. Each call looks, after it has published, whether the writer asked to be woken:
 *
 *     AWAKE    The writer will look by itself. Costs the caller one load.
 *     RESTING  It will look within a millisecond; a ring that is half full should not wait.
 *     ASLEEP   It waits for this very line.
 *
 * Waiting for room. A caller marks its ring, looks again, and takes the writer's role if nobody has
 * it; else it parks. Who leaves the role looks at the marks after it has left. So either the
 * caller gets the role or who had it sees the mark.
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/log.h>

#include "base/base.h"
#include "base/mutex.h"
#include "base/reason.h"
#include "base/thread.h"
#include "io/map.h"
#include "log/arena.h"

enum fw_log_ring_state { FW_LOG_RING_FREE, FW_LOG_RING_OWNED, FW_LOG_RING_RELEASED };

struct fw_log_ring {
    /* The caller's. Constant from start to stop: data, size, header, shared. */
    alignas(FW_CACHE_LINE) unsigned char *at; /* Where the next record goes. */
    unsigned char *room_end;                  /* Up to here there is room, as far as known. */
    struct fw_log_ring_header *header;
    uint64_t written; /* The position that belongs to `at`. */
    unsigned char *data;
    uint64_t size;
    uint32_t lost; /* The lower half of header->lost. */
    bool shared;
    struct fw_parker room; /* Its caller waits here. */

    /* Both sides'. */
    alignas(FW_CACHE_LINE) atomic_bool waiting;
    _Atomic uint32_t state;        /* enum fw_log_ring_state. */
    struct fw_thread_state *owner; /* Under rings.lock; NULL unless OWNED. */
};

enum fw_log_bell { FW_LOG_BELL_AWAKE, FW_LOG_BELL_RESTING, FW_LOG_BELL_ASLEEP };

struct fw_log_rings {
    /* Read by every call. */
    alignas(FW_CACHE_LINE) _Atomic uint32_t bell;
    atomic_bool is_async;
    _Atomic int policy;
    _Atomic int waiting_level;

    alignas(FW_CACHE_LINE) struct fw_mutex lock; /* FW_RANK_LOG_LISTS; guards what follows. */
    struct fw_map map;
    struct fw_log_arena *arena; /* Also under the writer's lock: either is enough to look. */
    _Atomic uint32_t count;     /* Of rings; the shared one is rings[count]. Read without too. */
    struct fw_log_known *known[FW_LOG_SITES_MAX]; /* By id; see fw_log_site_known(). */
    uint32_t known_count;
    void (*wake)(void *context);
    void *wake_context;

    struct fw_mutex shared_lock; /* FW_RANK_LOG_SHARED; who holds it is the shared ring's caller. */
    bool shared_open;            /* Under it. */
    struct fw_log_ring rings[FW_LOG_RINGS_MAX + 1];
};
FW_INTERNAL extern struct fw_log_rings fw_log_rings;

/* Looks how much room there is by now, and goes to the start of the buffer if need be. */
unsigned char *fw_log_ring_claim_slow(struct fw_log_ring *ring, uint32_t size);

/* There is room for a record of at most `size` bytes at `at`, and that is known already. */
static inline bool fw_log_ring_has_room(const struct fw_log_ring *ring, uint32_t size)
{
    return (size_t)(ring->room_end - ring->at) >= size;
}

/*
 * Room for a record of at most `size` bytes, or NULL. The caller fills it from its start and then
 * commits it; nobody sees it before.
 */
static inline unsigned char *fw_log_ring_claim(struct fw_log_ring *ring, uint32_t size)
{
    if (FW_LIKELY(fw_log_ring_has_room(ring, size))) {
        return ring->at;
    }
    return fw_log_ring_claim_slow(ring, size);
}

/* Publishes the first `size` bytes, a multiple of 8, of what was claimed. */
static inline void fw_log_ring_commit(struct fw_log_ring *ring, uint32_t size)
{
    ring->at += size;
    ring->written += size;
    /* Release, for the acquire in the writer; and for a reader of the file after our death. */
    atomic_store_explicit(&ring->header->written, ring->written, memory_order_release);
}

/* Makes the arena and everything else but the writer's thread. */
FW_MUST_CHECK int fw_log_rings_start(const struct fw_log_setup *setup, struct fw_reason *reason);

/* Lets nobody in any more, waits until all are out, and writes what they left. */
void fw_log_rings_stop(void);

/*
 * The calling thread's ring, found for it if it has none. NULL: it must use the shared one, or
 * write its line itself.
 */
struct fw_log_ring *fw_log_ring_attach(struct fw_thread_state *self);

/* Finds out what there is to know about the site, unless that is known, or was tried in vain. */
void fw_log_site_learn(struct fw_log_site *site);

/*
 * For who found no room. True: there is some now, for a record of that size; false: the line is
 * dropped, and counted.
 */
FW_MUST_CHECK bool fw_log_ring_wait(struct fw_log_ring *ring, uint32_t size,
                                    enum fw_log_level level);

/*
 * After a commit: whether the caller must see to the bell. Relaxed, like all that is done to it:
 * the rings themselves order what is in them.
 */
static inline bool fw_log_bell_is_due(void)
{
    return FW_UNLIKELY(atomic_load_explicit(&fw_log_rings.bell, memory_order_relaxed) !=
                       FW_LOG_BELL_AWAKE);
}

/* Then: wakes the writer, if it sleeps or this ring is filling up, unless another does. */
void fw_log_bell_ring(const struct fw_log_ring *ring);

/* Wakes the writer in any case. */
void fw_log_bell_force(void);

/* The writer rests: it will look again soon by itself. */
void fw_log_bell_rest(void);

/* By who has left the writer's role: wakes whoever waits for room. */
void fw_log_rings_wake(void);
