/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ghosts: a memory of which keys were dropped not long ago.
 *
 * A key that comes back soon after it was dropped was dropped too early, and is treated as if it
 * had been read. How soon is soon: before as many others were dropped as the table has items,
 * about. With a longer memory nearly everything would be worth keeping, and the main queue would
 * turn as fast as the cache of a policy that knows nothing.
 *
 * A ghost is 16 bits, in a table where each hash has one slot: 9 bits of the hash, the queue from
 * which it was dropped, since that is the one that was too short (share.h), and when: the era, of
 * which there are FW_GHOST_ERAS while the table is dropped once. One in 512 is mistaken for
 * another, and some are overwritten early; both cost a little hit ratio and nothing else.
 *
 * Of the slots only so many are used as the table has items, up to twice that: so old ghosts are
 * overwritten before their eras come again.
 *
 * Any thread, no lock. Relaxed: a ghost that is seen late or lost is only a worse guess.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/arena.h"
#include "io/range.h"

enum {
    FW_GHOST_MEMORY_SHARE = 128, /* One byte of ghosts for so many of the limit. */
    FW_GHOST_ERAS = 8,           /* While as many are dropped as the table has items. */
    FW_GHOST_ERAS_RECENT = 2,
    FW_GHOST_ERA_MASK = 63,
    FW_GHOST_HASH_SHIFT = 7,
};

struct fw_ghosts {
    struct fw_range range;
    uint64_t count; /* Slots of 16 bits. */
    _Atomic uint32_t era;
    _Atomic uint64_t drops; /* In this era. */
};

static inline _Atomic uint16_t *fw_ghost_slot(const struct fw_ghosts *ghosts, uint64_t hash,
                                              uint64_t items)
{
    /* A power of two, so that slots stay where they are while the number of items varies. */
    uint64_t slots = UINT64_C(2) << (63 - __builtin_clzll(items | 1));
    slots = slots < ghosts->count ? slots : ghosts->count;
    /* From the middle of the hash: low bits choose the bucket, the highest are kept. */
    uint64_t slot = ((hash >> 8) & UINT32_MAX) * slots >> 32;
    return (_Atomic uint16_t *)(void *)ghosts->range.memory + slot;
}

/* Never 0, which is nobody: eras begin with 1 (and one in 512 of each 64th is nobody, too). */
static inline uint16_t fw_ghost_mark(uint64_t hash, enum fw_queue queue, uint32_t era)
{
    return (uint16_t)((hash >> 55) << FW_GHOST_HASH_SHIFT | (era & FW_GHOST_ERA_MASK) << 1 |
                      (uint32_t)queue);
}

static inline void fw_ghost_add(struct fw_ghosts *ghosts, uint64_t hash, enum fw_queue queue,
                                uint64_t items)
{
    uint64_t drops = 1 + atomic_load_explicit(&ghosts->drops, memory_order_relaxed);
    uint32_t era = atomic_load_explicit(&ghosts->era, memory_order_relaxed);
    if (drops > items / FW_GHOST_ERAS) {
        drops = 0;
        atomic_store_explicit(&ghosts->era, ++era, memory_order_relaxed);
    }
    atomic_store_explicit(&ghosts->drops, drops, memory_order_relaxed);
    atomic_store_explicit(fw_ghost_slot(ghosts, hash, items), fw_ghost_mark(hash, queue, era),
                          memory_order_relaxed);
}

/*
 * From which queue was it dropped, and only a moment ago? It is no ghost any more. FW_QUEUES: it is
 * none.
 */
static inline enum fw_queue fw_ghost_take(struct fw_ghosts *ghosts, uint64_t hash, uint64_t items,
                                          bool *is_recent)
{
    _Atomic uint16_t *slot = fw_ghost_slot(ghosts, hash, items);
    uint16_t mark = atomic_load_explicit(slot, memory_order_relaxed);
    uint32_t era = atomic_load_explicit(&ghosts->era, memory_order_relaxed);
    enum fw_queue queue = mark & 1;
    uint32_t age = (era - (mark >> 1)) & FW_GHOST_ERA_MASK;
    if (mark == 0 || age >= FW_GHOST_ERAS || mark != fw_ghost_mark(hash, queue, mark >> 1)) {
        return FW_QUEUES;
    }
    atomic_store_explicit(slot, 0, memory_order_relaxed);
    *is_recent = age < FW_GHOST_ERAS_RECENT;
    return queue;
}
