/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/bodies.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/assert.h"

enum {
    REGION_PART_MIN = 16,
    EXACT = 8,           /* Sizes of so many units and less are all there. */
    CHUNK = 1024 * 1024, /* Addresses are enabled in chunks of at least this. */
};

/*
 * Sizes are 1, 2, ... 8 units, then 10, 12, 14, 16, 20, 24, 28, 32, 40, ...: four for each power
 * of two. With u = units - 1, whose highest bit is e, the three highest bits of u say which.
 */
static uint32_t size_number(uint64_t units)
{
    FW_ASSERT(units > 0);
    if (units <= EXACT) {
        return (uint32_t)units - 1;
    }
    uint64_t u = units - 1;
    uint32_t e = 63 - (uint32_t)__builtin_clzll(u);
    return EXACT + (e - 3) * 4 + (uint32_t)((u >> (e - 2)) - 4);
}

static uint64_t size_units(uint32_t number)
{
    if (number < EXACT) {
        return number + 1;
    }
    uint32_t e = 3 + (number - EXACT) / 4;
    return (uint64_t)(5 + (number - EXACT) % 4) << (e - 2);
}

static uint32_t body_size_number(const struct fw_bodies *bodies, uint32_t length)
{
    FW_ASSERT(length <= FW_BODY_LENGTH_MAX);
    size_t size = offsetof(struct fw_body, bytes) + length;
    return size_number((size + bodies->unit - 1) / bodies->unit);
}

uint64_t fw_bodies_size(const struct fw_bodies *bodies, uint32_t length)
{
    return size_units(body_size_number(bodies, length)) * bodies->unit;
}

int fw_bodies_init(struct fw_bodies *bodies, struct fw_budget *budget, uint64_t memory_max,
                   struct fw_reason *reason)
{
    *bodies = (struct fw_bodies){.budget = budget, .unit = fw_range_unit()};
    /* Where addresses are limited: so much of the memory at most for bodies of one size. */
    int rc = -ENOMEM;
    for (uint64_t part = 1; rc != 0 && part <= REGION_PART_MIN; part *= 2) {
        bodies->region = fw_range_round_up(memory_max / part, FW_RANGE_ALIGNMENT);
        rc =
            fw_range_reserve(&bodies->runs, bodies->region * FW_BODY_SIZES, FW_RANGE_SMALL, reason);
    }
    if (rc != 0) {
        return rc;
    }
    uint64_t numbers = 0;
    for (uint32_t i = 0; i < FW_BODY_SIZES; i++) {
        numbers += bodies->region / (size_units(i) * bodies->unit);
    }
    size_t stacks = fw_range_round_up(numbers * sizeof(uint32_t), FW_RANGE_ALIGNMENT);
    rc = fw_range_reserve(&bodies->released, stacks, FW_RANGE_SMALL, reason);
    if (rc != 0) {
        fw_range_release(&bodies->runs);
        return rc;
    }
    rc = fw_range_enable(&bodies->released, 0, stacks);
    if (rc != 0) {
        fw_range_release(&bodies->released);
        fw_range_release(&bodies->runs);
        return fw_reason_errno(reason, rc, "no memory to manage %zu MiB", memory_max >> 20);
    }
    uint32_t *next = (uint32_t *)(void *)bodies->released.memory;
    for (uint32_t i = 0; i < FW_BODY_SIZES; i++) {
        bodies->sizes[i].released = next;
        next += bodies->region / (size_units(i) * bodies->unit);
    }
    fw_mutex_init(&bodies->lock, FW_RANK_TABLE_BODIES);
    return 0;
}

void fw_bodies_fini(struct fw_bodies *bodies)
{
    fw_mutex_fini(&bodies->lock);
    fw_range_release(&bodies->released);
    fw_range_release(&bodies->runs);
}

static uint64_t bodies_kept(const struct fw_bodies *bodies)
{
    /* Relaxed: only written under the lock, and who reads it without wants a hint. */
    return atomic_load_explicit(&bodies->kept_bytes, memory_order_relaxed);
}

static void bodies_count_kept(struct fw_bodies *bodies, int64_t change) FW_REQUIRES(bodies->lock);
static void bodies_count_kept(struct fw_bodies *bodies, int64_t change)
{
    atomic_store_explicit(&bodies->kept_bytes, bodies_kept(bodies) + (uint64_t)change,
                          memory_order_relaxed);
}

static void *bodies_take_kept(struct fw_bodies *bodies, uint32_t number, uint64_t size)
    FW_REQUIRES(bodies->lock);
static void *bodies_take_kept(struct fw_bodies *bodies, uint32_t number, uint64_t size)
{
    struct fw_run_kept *run = bodies->sizes[number].kept;
    if (run != NULL) {
        bodies->sizes[number].kept = run->next;
        bodies_count_kept(bodies, -(int64_t)size);
    }
    return run;
}

/* One that has no memory yet, or no more. */
static void *bodies_take_empty(struct fw_bodies *bodies, uint32_t number, uint64_t size)
    FW_REQUIRES(bodies->lock);
static void *bodies_take_empty(struct fw_bodies *bodies, uint32_t number, uint64_t size)
{
    struct fw_run_size *sizes = &bodies->sizes[number];
    char *region = bodies->runs.memory + number * bodies->region;
    if (sizes->released_count > 0) {
        return region + sizes->released[--sizes->released_count] * size;
    }
    uint64_t offset = sizes->fresh * size;
    if (offset + size > bodies->region) {
        return NULL;
    }
    /* Enabled is all below the last chunk that a run was taken from. */
    uint64_t chunk = fw_range_round_up(size > CHUNK ? size : CHUNK, bodies->unit);
    uint64_t enabled = fw_range_round_up(offset, chunk);
    if (offset + size > enabled) {
        uint64_t end = fw_range_round_up(offset + size, chunk);
        end = end < bodies->region ? end : bodies->region;
        if (fw_range_enable(&bodies->runs, number * bodies->region + enabled, end - enabled) != 0) {
            return NULL;
        }
    }
    sizes->fresh++;
    return region + offset;
}

struct fw_body *fw_bodies_take(struct fw_bodies *bodies, uint32_t length)
{
    uint32_t number = body_size_number(bodies, length);
    uint64_t size = size_units(number) * bodies->unit;
    fw_mutex_lock(&bodies->lock);
    void *run = bodies_take_kept(bodies, number, size);
    bodies->is_kept_used |= run != NULL;
    if (run == NULL && fw_budget_charge(bodies->budget, size, 0)) {
        run = bodies_take_empty(bodies, number, size);
        if (run == NULL) {
            fw_budget_return(bodies->budget, size);
        }
    }
    fw_mutex_unlock(&bodies->lock);
    struct fw_body *body = run;
    if (body != NULL) {
        atomic_init(&body->references, 1);
        body->length = length;
        body->room = length;
        body->is_stored = false;
    }
    return body;
}

/* The run has no owner; its memory goes, its addresses stay. */
static void bodies_give_back(struct fw_bodies *bodies, void *run, uint32_t number)
{
    uint64_t size = size_units(number) * bodies->unit;
    uint64_t region = number * bodies->region;
    size_t offset = (size_t)((char *)run - bodies->runs.memory);
    FW_ASSERT(offset >= region && (offset - region) % size == 0);
    fw_range_give_back(&bodies->runs, offset, size);
    fw_mutex_lock(&bodies->lock);
    struct fw_run_size *sizes = &bodies->sizes[number];
    sizes->released[sizes->released_count++] = (uint32_t)((offset - region) / size);
    fw_mutex_unlock(&bodies->lock);
    fw_budget_return(bodies->budget, size);
}

void fw_bodies_free(struct fw_bodies *bodies, struct fw_body *body)
{
    uint32_t number = body_size_number(bodies, body->room);
    uint64_t size = size_units(number) * bodies->unit;
    /* Relaxed: about how much is kept, and no more. */
    uint64_t limit = atomic_load_explicit(&bodies->budget->limit, memory_order_relaxed);
    bool is_kept = false;
    fw_mutex_lock(&bodies->lock);
    if (bodies_kept(bodies) + size <= limit / FW_BODY_KEPT_SHARE &&
        !fw_budget_is_exceeded(bodies->budget)) {
        struct fw_run_kept *run = (void *)body;
        run->next = bodies->sizes[number].kept;
        bodies->sizes[number].kept = run;
        bodies_count_kept(bodies, (int64_t)size);
        is_kept = true;
    }
    fw_mutex_unlock(&bodies->lock);
    if (!is_kept) {
        bodies_give_back(bodies, body, number);
    }
}

bool fw_bodies_release(struct fw_bodies *bodies)
{
    void *run = NULL;
    uint32_t number = FW_BODY_SIZES;
    fw_mutex_lock(&bodies->lock);
    while (bodies_kept(bodies) > 0 && run == NULL) {
        number--;
        run = bodies_take_kept(bodies, number, size_units(number) * bodies->unit);
    }
    fw_mutex_unlock(&bodies->lock);
    if (run == NULL) {
        return false;
    }
    bodies_give_back(bodies, run, number);
    return true;
}

bool fw_bodies_release_unused(struct fw_bodies *bodies)
{
    if (FW_LIKELY(bodies_kept(bodies) == 0)) {
        return false;
    }
    fw_mutex_lock(&bodies->lock);
    bool was_used = bodies->is_kept_used;
    bodies->is_kept_used = false;
    fw_mutex_unlock(&bodies->lock);
    return !was_used && fw_bodies_release(bodies);
}
