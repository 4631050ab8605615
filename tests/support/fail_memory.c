/* SPDX-License-Identifier: Apache-2.0 */
#include "support/fail_memory.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* The linker (--wrap) sends the calls of malloc() to __wrap_malloc(), and __real_malloc() to it. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

/* Allocations until the one that fails; negative: none will. Relaxed: orders nothing else. */
static _Atomic int left = -1;

void fail_memory_after(int count)
{
    atomic_store_explicit(&left, count, memory_order_relaxed);
}

static bool fails_now(void)
{
    int seen = atomic_load_explicit(&left, memory_order_relaxed);
    if (seen >= 0) {
        seen = atomic_fetch_sub_explicit(&left, 1, memory_order_relaxed);
    }
    return seen == 0;
}

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return fails_now() ? NULL : __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails_now() ? NULL : __real_aligned_alloc(alignment, size);
}
