/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A heap of tenants by a key, the smallest on top, for policies.
 *
 * Four children per node: they are one cache line, and ten thousand tenants are seven levels deep.
 * Of a line that is not full the rest has the largest key there is, so that the smallest of four is
 * always the smallest of four, found without a branch that nobody could predict.
 *
 * Keys change under way (other heads advance what a tenant has had) and tenants run out of requests
 * under way; nobody is searched for in here. Who finds that the key of the one on top is not what
 * it should be gives it a new one, and who finds that it has nothing any more takes it off. So the
 * heap needs no back pointers, and moving an entry writes nothing but the entry.
 *
 * Room is made once, and touched as far as it is used. Concurrency: its head's.
 */
#pragma once

#include <stdint.h>

#include "base/assert.h"
#include "base/base.h"

struct fw_heap_entry {
    uint64_t key; /* Less than UINT64_MAX. */
    uint64_t tenant;
};

struct fw_heap {
    struct fw_heap_entry *entries; /* The second begins a cache line, so each four children do. */
    uint32_t count;
    uint32_t capacity;
    void *memory;
};

/* Returns 0 or -ENOMEM. */
FW_MUST_CHECK int fw_heap_init(struct fw_heap *heap, uint32_t capacity);
void fw_heap_fini(struct fw_heap *heap);

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

/*
 * Puts `entry` on top or, while a child's key is smaller, in the smallest child's place. Which of
 * four that is nobody can predict, so it is found by sums of comparisons, without branches.
 */
static inline void fw_heap_sink(struct fw_heap *heap, struct fw_heap_entry entry)
{
    struct fw_heap_entry *entries = heap->entries;
    uint64_t count = heap->count;
    uint64_t place = 0;
    for (uint64_t first = 1; first < count; first = place * 4 + 1) {
        uint64_t left = first + (entries[first + 1].key < entries[first].key);
        uint64_t right = first + 2 + (entries[first + 3].key < entries[first + 2].key);
        uint64_t is_right = entries[right].key < entries[left].key;
        uint64_t least = left + ((right - left) & (0 - is_right));
        if (entry.key <= entries[least].key) {
            break;
        }
        entries[place] = entries[least];
        place = least;
    }
    entries[place] = entry;
}

static inline void fw_heap_push(struct fw_heap *heap, uint64_t key, uint32_t tenant)
{
    FW_ASSERT(heap->count < heap->capacity && key < UINT64_MAX);
    uint32_t place = heap->count++;
    if (place % 4 == 1) { /* Begins a line. */
        heap->entries[place + 1].key = UINT64_MAX;
        heap->entries[place + 2].key = UINT64_MAX;
        heap->entries[place + 3].key = UINT64_MAX;
    }
    fw_heap_rise(heap, place, (struct fw_heap_entry){key, tenant});
}

/* The one on top gets another key. */
static inline void fw_heap_change_top(struct fw_heap *heap, uint64_t key)
{
    FW_ASSERT(heap->count > 0 && key < UINT64_MAX);
    fw_heap_sink(heap, (struct fw_heap_entry){key, heap->entries[0].tenant});
}

/* Removes the last, which may have any key. */
static inline struct fw_heap_entry fw_heap_take_last(struct fw_heap *heap)
{
    FW_ASSERT(heap->count > 0);
    heap->count--;
    struct fw_heap_entry last = heap->entries[heap->count];
    heap->entries[heap->count].key = UINT64_MAX;
    return last;
}

static inline void fw_heap_pop(struct fw_heap *heap)
{
    struct fw_heap_entry last = fw_heap_take_last(heap);
    if (heap->count > 0) {
        fw_heap_sink(heap, last);
    }
}
