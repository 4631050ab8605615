/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/heap.h"

#include <errno.h>
#include <stdlib.h>

enum { PER_LINE = FW_CACHE_LINE / sizeof(struct fw_heap_entry) };

int fw_heap_init(struct fw_heap *heap, uint32_t capacity)
{
    *heap = (struct fw_heap){.capacity = capacity};
    /* A line before the first, one that may begin anywhere, and the rest of the last. */
    size_t size = ((size_t)capacity + (size_t)3 * PER_LINE) * sizeof(struct fw_heap_entry);
    heap->memory = calloc(1, size);
    if (heap->memory == NULL) {
        return -ENOMEM;
    }
    uintptr_t misplaced = (uintptr_t)heap->memory % FW_CACHE_LINE;
    char *line = (char *)heap->memory + (FW_CACHE_LINE - misplaced);
    heap->entries = (struct fw_heap_entry *)(void *)line + (PER_LINE - 1);
    return 0;
}

void fw_heap_fini(struct fw_heap *heap)
{
    free(heap->memory);
}
