/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wake word: who may put a parked fom back into a run-queue, and how often. Once.
 *
 * All that wakers on any thread and the fom's own core must agree on is in one 64-bit word:
 *
 *     63                    8  7        3    2        1..0
 *     +-----------------------+---------+----------+-------+
 *     | generation            |         | NOTIFIED | state |
 *     +-----------------------+---------+----------+-------+
 *
 *               begin (ticks)       States, as wakers see them. A fom in a run-queue and a fom
 *              +-----------+        inside a tick are both READY: to wake either means the same,
 *              v           |        "look again before you park". Which of the two it is only its
 *     GONE --> READY ------+        core needs to know.
 *      ^       |   ^ |  park
 *      |       |   | +-----> PARKED
 *      |       |   +----------+     wake: the winner of this step, and nobody else, enqueues it.
 *      +-------+
 *       finish, from READY only     READY --wake--> READY + NOTIFIED: the next park fails.
 *
 * Lost wake-ups. A waker publishes what happened, then wakes. If the fom is PARKED the waker wins
 * it or another has. If it is READY the waker leaves NOTIFIED, and always by an atomic
 * read-modify-write, even if the bit is set: only so is what this waker wrote ordered before the
 * tick that the bit stands for. begin() clears the bit before the fom looks, park() fails if it is
 * set. So either the fom sees what was published, or it does not stay parked.
 *
 * Double wake-ups. Two wakers of a PARKED fom compete in one compare-and-swap.
 *
 * Late wake-ups. A ticket carries the generation, which grows when the fom fails by force and when
 * it is gone. Memory of foms is only ever used for foms and the word survives in it (base/pool.h,
 * stable bytes), so a wake may come even when the fom is gone: it finds another generation.
 *
 * Why QUEUED and RUNNING are not told apart here: a yield, the commonest step of all, would need an
 * atomic operation, to tell wakers a difference that makes none.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/thread.h"

enum fw_word_state {
    FW_WORD_GONE = 0, /* Zeroed memory: never was a fom, or is one no more. */
    FW_WORD_READY = 1,
    FW_WORD_PARKED = 2,
    FW_WORD_STATE_MASK = 3,
    FW_WORD_NOTIFIED = 4,
    FW_WORD_GENERATION_SHIFT = 8,
};

static inline enum fw_word_state fw_word_state(uint64_t word)
{
    return (enum fw_word_state)(word & FW_WORD_STATE_MASK);
}

static inline uint64_t fw_word_generation(uint64_t word)
{
    return word >> FW_WORD_GENERATION_SHIFT;
}

/* For anyone: relaxed, a guess unless the caller knows that nobody changes it. */
static inline uint64_t fw_word_get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* The maker of a fom, who alone knows it. */
static inline void fw_word_create(_Atomic uint64_t *word)
{
    uint64_t before = fw_word_get(word);
    FW_ASSERT(fw_word_state(before) == FW_WORD_GONE);
    /* Relaxed: the maker publishes the fom by other means; late wakers find a new generation. */
    atomic_store_explicit(word, before | FW_WORD_READY, memory_order_relaxed);
}

/*
 * Any thread. True: the caller has won the fom and enqueues it. `generation` is that of a ticket;
 * who knows by other means that the fom is alive passes FW_WORD_ANY.
 */
#define FW_WORD_ANY UINT64_MAX
static inline bool fw_word_wake(_Atomic uint64_t *word, uint64_t generation)
{
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    for (;;) {
        if (fw_word_state(seen) == FW_WORD_GONE ||
            (generation != FW_WORD_ANY && fw_word_generation(seen) != generation)) {
            return false;
        }
        bool is_parked = fw_word_state(seen) == FW_WORD_PARKED;
        uint64_t wanted =
            is_parked ? (seen ^ FW_WORD_PARKED) | FW_WORD_READY : seen | FW_WORD_NOTIFIED;
        FW_YIELD_POINT("word: wake");
        /*
         * Release, for the acquire in begin() and in park(): the tick sees what the waker wrote.
         * Acquire, for the release in park(): the winner sees where the fom lives.
         */
        if (atomic_compare_exchange_weak_explicit(word, &seen, wanted, memory_order_acq_rel,
                                                  memory_order_relaxed)) {
            return is_parked;
        }
    }
}

/* The fom's core, before a tick looks at anything. */
static inline void fw_word_begin(_Atomic uint64_t *word)
{
    FW_YIELD_POINT("word: begin");
    /* Acquire, for the release of the waker who won it, unless a lock or a queue did that. */
    uint64_t seen = atomic_load_explicit(word, memory_order_acquire);
    FW_ASSERT(fw_word_state(seen) == FW_WORD_READY);
    if (seen & FW_WORD_NOTIFIED) {
        /* Acquire, for the release of all who set it. */
        (void)atomic_fetch_and_explicit(word, ~(uint64_t)FW_WORD_NOTIFIED, memory_order_acquire);
    }
}

/* The fom's core, after a tick. False: it was notified meanwhile and is READY still. */
static inline bool fw_word_park(_Atomic uint64_t *word)
{
    uint64_t seen = fw_word_get(word);
    FW_ASSERT(fw_word_state(seen) == FW_WORD_READY);
    FW_YIELD_POINT("word: park");
    if (seen & FW_WORD_NOTIFIED) {
        return false;
    }
    /* Release, for the acquire of the winner. A failure means NOTIFIED: begin() acquires. */
    return atomic_compare_exchange_strong_explicit(word, &seen,
                                                   (seen ^ FW_WORD_READY) | FW_WORD_PARKED,
                                                   memory_order_release, memory_order_relaxed);
}

/*
 * The fom's core, while it is READY: tickets given out so far are worth nothing from now on, and
 * neither is what they have left here: the next park is not theirs to prevent.
 */
static inline void fw_word_renew(_Atomic uint64_t *word)
{
    uint64_t seen = fw_word_get(word);
    FW_ASSERT(fw_word_state(seen) == FW_WORD_READY);
    uint64_t next = (fw_word_generation(seen) + 1) << FW_WORD_GENERATION_SHIFT;
    FW_YIELD_POINT("word: renew");
    /* Relaxed, and no compare-and-swap: nothing is published, and only the bit may change. */
    atomic_store_explicit(word, next | FW_WORD_READY, memory_order_relaxed);
}

/* The fom's core: it is gone. Wakers of any generation so far do nothing. */
static inline void fw_word_finish(_Atomic uint64_t *word)
{
    uint64_t seen = fw_word_get(word);
    FW_ASSERT(fw_word_state(seen) == FW_WORD_READY);
    uint64_t next = (fw_word_generation(seen) + 1) << FW_WORD_GENERATION_SHIFT;
    FW_YIELD_POINT("word: finish");
    /* Relaxed, and no compare-and-swap: a NOTIFIED that comes between is as good as one later. */
    atomic_store_explicit(word, next | FW_WORD_GONE, memory_order_relaxed);
}
