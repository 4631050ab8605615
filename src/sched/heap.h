/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A heap of tenants by a key, the smallest on top, for policies.
 *
 * Four children per node: they share a cache line, and ten thousand tenants are seven levels deep.
 * Keys change under way (other heads advance what a tenant has had) and tenants run out of requests
 * under way; nobody is searched for in here. Who finds that the key of the one on top is not what
 * it should be gives it a new one, and who finds that it has nothing any more takes it off. So the
 * heap needs no back pointers, and moving an entry writes nothing but the entry.
 *
 * Room is made once. Concurrency: its head's.
 */
#pragma once

#include <stdint.h>

#include "base/assert.h"

struct fw_heap_entry {
    uint64_t key;
    uint32_t tenant;
};

struct fw_heap {
    struct fw_heap_entry *entries;
    uint32_t count;
    uint32_t capacity;
};

/* Puts `entry` at `place` or, while its parent's key is larger, in the parent's place. */
static inline void fw_heap_rise(struct fw_heap *heap, uint32_t place, struct fw_heap_entry entry)
{
    while (place > 0) {
        uint32_t parent = (place - 1) / 4;
        if (heap->entries[parent].key <= entry.key) {
            break;
        }
        heap->entries[place] = heap->entries[parent];
        place = parent;
    }
    heap->entries[place] = entry;
}

/* Puts `entry` on top or, while a child's key is smaller, in the smallest child's place. */
static inline void fw_heap_sink(struct fw_heap *heap, struct fw_heap_entry entry)
{
    uint32_t place = 0;
    for (;;) {
        uint32_t first = place * 4 + 1;
        if (first >= heap->count) {
            break;
        }
        uint32_t end = first + 4 < heap->count ? first + 4 : heap->count;
        uint32_t least = first;
        for (uint32_t i = first + 1; i < end; i++) {
            least = heap->entries[i].key < heap->entries[least].key ? i : least;
        }
        if (entry.key <= heap->entries[least].key) {
            break;
        }
        heap->entries[place] = heap->entries[least];
        place = least;
    }
    heap->entries[place] = entry;
}

static inline void fw_heap_push(struct fw_heap *heap, uint64_t key, uint32_t tenant)
{
    FW_ASSERT(heap->count < heap->capacity);
    heap->count++;
    fw_heap_rise(heap, heap->count - 1, (struct fw_heap_entry){key, tenant});
}

/* The one on top gets another key. */
static inline void fw_heap_change_top(struct fw_heap *heap, uint64_t key)
{
    fw_heap_sink(heap, (struct fw_heap_entry){key, heap->entries[0].tenant});
}

static inline void fw_heap_pop(struct fw_heap *heap)
{
    FW_ASSERT(heap->count > 0);
    heap->count--;
    if (heap->count > 0) {
        fw_heap_sink(heap, heap->entries[heap->count]);
    }
}
