/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#if defined(__SANITIZE_ADDRESS__)
#define POOL_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POOL_ASAN 1
#endif
#endif

#if defined(POOL_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size)   ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

/* Whether objects carry a mark and free memory a pattern. */
#if defined(FW_CHECKS)
enum { POOL_CHECKS = 1 };
#else
enum { POOL_CHECKS = 0 };
#endif

enum { POOL_PATTERN = 0xdb };

/* What the mark behind an object says, mixed with the pool's address: each pool has its own. */
enum { POOL_MARK_LIVE = 0x11fe0000, POOL_MARK_FREE = 0x0f4ee000 };

static size_t round_up(size_t size, size_t alignment)
{
    return (size + alignment - 1) & ~(alignment - 1);
}

int fw_pool_init(struct fw_pool *pool, size_t object_size, size_t alignment, size_t stable_size,
                 uint64_t limit_count)
{
    FW_ASSERT(object_size > 0 && object_size <= FW_POOL_OBJECT_SIZE_MAX);
    FW_ASSERT(alignment > 0 && alignment <= FW_POOL_ALIGNMENT_MAX);
    FW_ASSERT((alignment & (alignment - 1)) == 0);
    FW_ASSERT(stable_size <= object_size);
    if (limit_count < 1 || limit_count > FW_POOL_LIMIT_MAX) {
        return -EINVAL; /* Not an assertion: the limit comes from the configuration file. */
    }

    if (alignment < sizeof(void *)) {
        alignment = sizeof(void *);
    }
    /* Room for the object or, while it is free, for its stable bytes and the link; then the mark.
     */
    stable_size = round_up(stable_size, sizeof(void *));
    size_t mark_offset = round_up(object_size, sizeof(void *));
    if (mark_offset < stable_size + sizeof(void *)) {
        mark_offset = stable_size + sizeof(void *);
    }
    size_t stride = round_up(mark_offset + (POOL_CHECKS ? sizeof(uintptr_t) : 0), alignment);
    size_t slab_objects = stride < FW_POOL_SLAB_SIZE ? FW_POOL_SLAB_SIZE / stride : 1;
    if (slab_objects > limit_count) {
        slab_objects = limit_count; /* A small pool stays small. */
    }
    *pool = (struct fw_pool){
        .object_size = (uint32_t)object_size,
        .stable_size = (uint32_t)stable_size,
        .mark_offset = (uint32_t)mark_offset,
        .stride = (uint32_t)stride,
        .alignment = (uint32_t)alignment,
        .slab_objects = (uint32_t)slab_objects,
        .limit_count = (uint32_t)limit_count,
    };
    return 0;
}

/* The objects of a slab, and the address of the slab before it. */
static size_t pool_slab_objects_size(const struct fw_pool *pool)
{
    return (size_t)pool->slab_objects * pool->stride;
}

static size_t pool_slab_size(const struct fw_pool *pool)
{
    return round_up(pool_slab_objects_size(pool) + sizeof(void *), pool->alignment);
}

static void **pool_slab_link(const struct fw_pool *pool, void *slab)
{
    return (void **)(void *)((char *)slab + pool_slab_objects_size(pool));
}

uint64_t fw_pool_bytes(const struct fw_pool *pool)
{
    return (uint64_t)pool->slab_count * pool_slab_size(pool);
}

void fw_pool_fini(struct fw_pool *pool)
{
    FW_ASSERT(pool->live_count == 0);
    while (pool->slab_last != NULL) {
        void *slab = pool->slab_last;
        pool->slab_last = *pool_slab_link(pool, slab);
        ASAN_UNPOISON_MEMORY_REGION(slab, pool_slab_size(pool));
        free(slab);
    }
    pool->limit_count = 0; /* A later alloc() finds no room. */
}

static bool pool_grow(struct fw_pool *pool)
{
    void *slab = aligned_alloc(pool->alignment, pool_slab_size(pool));
    if (slab == NULL) {
        return false;
    }
    *pool_slab_link(pool, slab) = pool->slab_last;
    ASAN_POISON_MEMORY_REGION(slab, pool_slab_objects_size(pool));
    pool->slab_last = slab;
    pool->slab_count++;
    pool->fresh = slab;
    pool->fresh_count = pool->slab_objects;
    return true;
}

/*
 * The mark behind an object. It is checked wherever the object changes hands; between that, with
 * AddressSanitizer, nobody may touch it.
 */
static void pool_mark(const struct fw_pool *pool, char *object, uintptr_t before, uintptr_t after)
{
    if (POOL_CHECKS) {
        uintptr_t *mark = (uintptr_t *)(void *)(object + pool->mark_offset);
        ASAN_UNPOISON_MEMORY_REGION(mark, sizeof *mark);
        FW_ASSERT(before == 0 || *mark == ((uintptr_t)pool ^ before));
        *mark = (uintptr_t)pool ^ after;
        ASAN_POISON_MEMORY_REGION(mark, sizeof *mark);
    }
}

/* Where the pattern is: behind the link, to the end of the object. */
static size_t pool_pattern_offset(const struct fw_pool *pool)
{
    return pool->stable_size + sizeof(void *);
}

/* True if nobody wrote to the object while it was free. */
static bool pool_pattern_is_whole(const struct fw_pool *pool, const char *object)
{
    for (size_t at = pool_pattern_offset(pool); at < pool->object_size; at++) {
        if ((unsigned char)object[at] != POOL_PATTERN) {
            return false;
        }
    }
    return true;
}

static void **pool_link(const struct fw_pool *pool, char *object)
{
    return (void **)(void *)(object + pool->stable_size);
}

static void *pool_take_fresh(struct fw_pool *pool)
{
    if (pool->fresh_count == 0 && !pool_grow(pool)) {
        return NULL;
    }
    char *object = pool->fresh;
    pool->fresh += pool->stride;
    pool->fresh_count--;
    ASAN_UNPOISON_MEMORY_REGION(object, pool->object_size);
    memset(object, 0, pool->object_size);
    pool_mark(pool, object, 0, POOL_MARK_LIVE);
    return object;
}

static void *pool_take_freed(struct fw_pool *pool)
{
    char *object = pool->free_first;
    ASAN_UNPOISON_MEMORY_REGION(object,
                                pool->mark_offset); /* The link may lie behind the object. */
    pool->free_first = *pool_link(pool, object);
    ASAN_POISON_MEMORY_REGION(object + pool->object_size, pool->mark_offset - pool->object_size);
    FW_CHECK(pool_pattern_is_whole(pool, object));
    pool_mark(pool, object, POOL_MARK_FREE, POOL_MARK_LIVE);
    return object;
}

void *fw_pool_alloc(struct fw_pool *pool)
{
    if (pool->live_count == pool->limit_count) {
        return NULL;
    }
    void *object = pool->free_first != NULL ? pool_take_freed(pool) : pool_take_fresh(pool);
    if (FW_LIKELY(object != NULL)) {
        pool->live_count++;
    }
    return object;
}

void fw_pool_free(struct fw_pool *pool, void *object)
{
    FW_ASSERT(object != NULL);
    FW_ASSERT(((uintptr_t)object & (pool->alignment - 1)) == 0);
    FW_ASSERT(pool->live_count > 0);

    pool_mark(pool, object, POOL_MARK_LIVE, POOL_MARK_FREE);
    if (POOL_CHECKS && pool->object_size > pool_pattern_offset(pool)) {
        size_t offset = pool_pattern_offset(pool);
        memset((char *)object + offset, POOL_PATTERN, pool->object_size - offset);
    }
    ASAN_UNPOISON_MEMORY_REGION(object, pool->mark_offset);
    *pool_link(pool, object) = pool->free_first;
    ASAN_POISON_MEMORY_REGION((char *)object + pool->stable_size,
                              pool->mark_offset - pool->stable_size);
    pool->free_first = object;
    pool->live_count--;
}

void fw_pool_visit(const struct fw_pool *pool, void (*visit)(void *object, void *context),
                   void *context)
{
    uint32_t count = pool->slab_objects - pool->fresh_count; /* Of the newest slab. */
    for (void *slab = pool->slab_last; slab != NULL; slab = *pool_slab_link(pool, slab)) {
        for (uint32_t i = 0; i < count; i++) {
            visit((char *)slab + (size_t)i * pool->stride, context);
        }
        count = pool->slab_objects;
    }
}
