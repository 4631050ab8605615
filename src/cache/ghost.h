/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ghosts: a memory of which keys were dropped not long ago.
 *
 * A key that comes back soon after it was dropped unread was dropped too early, and is treated as
 * if it had been read. 16 bits of its hash are kept, in a table where each hash has one slot; so
 * ghosts are forgotten when others take their slots, after about as many drops as there are slots,
 * and one in 65,536 is mistaken for another. Both cost a little hit ratio and nothing else.
 *
 * Any thread, no lock. Relaxed: a ghost that is seen late or lost is only a worse guess.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/range.h"

enum { FW_GHOST_MEMORY_SHARE = 128 }; /* One byte of ghosts for so many of the limit. */

struct fw_ghosts {
    struct fw_range range;
    uint64_t count; /* Slots of 16 bits. */
};

static inline _Atomic uint16_t *fw_ghost_slot(const struct fw_ghosts *ghosts, uint64_t hash)
{
    /* From the middle of the hash: low bits choose the bucket, the highest are kept. */
    uint64_t slot = ((hash >> 8) & UINT32_MAX) * ghosts->count >> 32;
    return (_Atomic uint16_t *)(void *)ghosts->range.memory + slot;
}

static inline uint16_t fw_ghost_mark(uint64_t hash)
{
    return (uint16_t)(hash >> 48 | 1); /* 0 is nobody. */
}

static inline void fw_ghost_add(struct fw_ghosts *ghosts, uint64_t hash)
{
    atomic_store_explicit(fw_ghost_slot(ghosts, hash), fw_ghost_mark(hash), memory_order_relaxed);
}

/* Is it one? Then no more. */
static inline bool fw_ghost_take(struct fw_ghosts *ghosts, uint64_t hash)
{
    _Atomic uint16_t *slot = fw_ghost_slot(ghosts, hash);
    if (atomic_load_explicit(slot, memory_order_relaxed) != fw_ghost_mark(hash)) {
        return false;
    }
    atomic_store_explicit(slot, 0, memory_order_relaxed);
    return true;
}
