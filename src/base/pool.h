/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of one type and size, taken from slabs and given back in constant time.
 *
 * Type-stable: until fini() the memory of an object holds nothing but objects of this pool, never
 * another type's and never the system's. So an old pointer to an object that was freed is still a
 * pointer to such an object, perhaps in its next life, and it may be asked which. That buys two
 * things malloc() cannot give:
 *
 *   - handles: a pointer and a generation. The owner raises the object's generation when it frees
 *     it; a message that comes late finds another generation there and is dropped;
 *   - readers without locks: they follow a pointer, read, and then look whether the object was
 *     still theirs. What they read may be stale but it is never some other structure's bytes.
 *
 * For this the first `stable_size` bytes of an object belong to its users even while it is free.
 * The pool zeroes them once, before the first alloc(), and never touches them again; there the
 * generation lives, or the word that readers look at. All behind them is the pool's while the
 * object is free, and holds its free list, so a pool has no overhead per object. With FW_CHECKS
 * that part is overwritten when an object is freed and compared when it is allocated, and behind
 * each object stands a mark that a double free, a free into the wrong pool or an overrun would
 * break; with AddressSanitizer it cannot be read. So the pool hides no bug that malloc() would
 * show.
 *
 * Slabs come from the heap, one when all objects are in use and the limit is not reached; a pool
 * that has grown to its working size allocates nothing. The last object freed is the next
 * allocated, as it is the most likely to be in a cache.
 *
 * Ownership: the pool owns the memory; an object is the caller's from alloc() to free().
 *
 * Concurrency: none. The pool belongs to a locality and is used by whoever holds its turn; the
 * stable bytes may be read by anyone, with atomics of the users' own. Freeing from elsewhere is
 * left out on purpose: who needs it sends the owner a message, as for everything else, and then
 * the common case needs no atomic operation.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

enum {
    FW_POOL_LIMIT_MAX = 1 << 30,
    FW_POOL_OBJECT_SIZE_MAX = 1 << 20,
    FW_POOL_ALIGNMENT_MAX = 4096,
    FW_POOL_SLAB_SIZE = 64 * 1024, /* As many objects as fit, or one. */
};

struct fw_pool {
    /* Set by init(), constant until fini(). */
    uint32_t object_size;
    uint32_t stable_size; /* Rounded up. A free object has the address of the next one there. */
    uint32_t mark_offset; /* With FW_CHECKS, of the mark behind the object. */
    uint32_t stride;      /* From one object of a slab to the next. */
    uint32_t alignment;   /* Of slabs, and so of objects. */
    uint32_t slab_objects;
    uint32_t limit_count;

    uint32_t live_count;
    void *free_first; /* The object freed last. */
    char *fresh;      /* The objects of the newest slab that were never allocated. */
    uint32_t fresh_count;
    uint32_t slab_count;
    void *slab_last; /* Each slab ends with the address of the one before. */
};

/*
 * Makes a pool of at most `limit_count` objects; takes no memory yet. `alignment` is a power of
 * two; `stable_size`, which may be 0, is rounded up to that of a pointer. Sizes beyond the limits
 * above are bugs. Returns 0, or -EINVAL unless limit_count is in [1, FW_POOL_LIMIT_MAX].
 */
FW_MUST_CHECK int fw_pool_init(struct fw_pool *pool, size_t object_size, size_t alignment,
                               size_t stable_size, uint64_t limit_count);

/* Gives all slabs back to the system. All objects must have been freed. */
void fw_pool_fini(struct fw_pool *pool);

/*
 * Returns an object, or NULL if the limit is reached or the system has no memory. An object that is
 * allocated for the first time is zeroed. Later its stable bytes are as its users left them and
 * the others undefined.
 */
FW_MUST_CHECK void *fw_pool_alloc(struct fw_pool *pool);

/* Takes `object`, which alloc() of this pool returned, back. */
void fw_pool_free(struct fw_pool *pool, void *object);

/* Objects between alloc() and free(). */
static inline uint32_t fw_pool_live_count(const struct fw_pool *pool)
{
    return pool->live_count;
}

/* Bytes of all slabs. Never falls before fini(). */
uint64_t fw_pool_bytes(const struct fw_pool *pool);

/*
 * Calls `visit` for every object that was ever allocated, those that are free now included: which
 * is which must be told by the stable bytes, and of a free object only those may be looked at. The
 * visitor neither allocates nor frees.
 */
void fw_pool_visit(const struct fw_pool *pool, void (*visit)(void *object, void *context),
                   void *context);
