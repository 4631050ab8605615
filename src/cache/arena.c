/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/arena.h"

#include <string.h>

#include "base/assert.h"

enum {
    /* Segments looked at for one that is hollow: some, or many if nothing else will do. */
    HOLLOW_LOOKS = 16,
    HOLLOW_LOOKS_MAX = 256,
    /* Where nothing may be dropped: of many segments one that is at least so much dead, or of all.
     */
    DEAD_LOOKS = 4096,
    DEAD_OF = 8,
    DEAD_OF_ALL = 64,
};

static struct fw_segment *arena_segment(const struct fw_arena *arena, uint64_t index)
{
    return (struct fw_segment *)(void *)arena->segments.memory + index;
}

int fw_arena_init(struct fw_arena *arena, struct fw_budget *budget, uint64_t memory_max,
                  struct fw_reason *reason)
{
    *arena = (struct fw_arena){.budget = budget};
    /* Relaxed: nobody else knows it yet. */
    bool is_small = atomic_load_explicit(&budget->limit, memory_order_relaxed) < FW_ARENA_SMALL &&
                    fw_range_unit() <= UINT32_C(1) << FW_SEGMENT_SHIFT_SMALL;
    arena->segment_shift = is_small ? FW_SEGMENT_SHIFT_SMALL : FW_SEGMENT_SHIFT;
    arena->segment_size = UINT32_C(1) << arena->segment_shift;
    arena->segments_max = memory_max >> arena->segment_shift;
    int rc = fw_range_reserve(&arena->records, fw_range_round_up(memory_max, FW_RANGE_HUGE_PAGE),
                              fw_budget_pages(budget), reason);
    if (rc != 0) {
        return rc;
    }
    size_t managing =
        fw_range_round_up(arena->segments_max * sizeof(struct fw_segment), FW_RANGE_ALIGNMENT);
    rc = fw_range_reserve(&arena->segments, managing, FW_RANGE_SMALL, reason);
    if (rc != 0) {
        fw_range_release(&arena->records);
        return rc;
    }
    rc = fw_range_enable(&arena->segments, 0, managing);
    if (rc != 0) {
        fw_range_release(&arena->segments);
        fw_range_release(&arena->records);
        return fw_reason_errno(reason, rc, "no memory to manage %zu MiB", memory_max >> 20);
    }
    fw_mutex_init(&arena->lock, FW_RANK_TABLE_ARENA);
    fw_list_init(&arena->free);
    fw_list_init(&arena->released);
    for (int i = 0; i < FW_QUEUES; i++) {
        fw_list_init(&arena->queues[i]);
    }
    return 0;
}

void fw_arena_fini(struct fw_arena *arena)
{
    fw_mutex_fini(&arena->lock);
    fw_range_release(&arena->segments);
    fw_range_release(&arena->records);
}

static struct fw_segment *segment_of(struct fw_list_link *link)
{
    return link == NULL ? NULL : FW_LIST_ENTRY(link, struct fw_segment, link);
}

static void arena_count_free(struct fw_arena *arena, int64_t change) FW_REQUIRES(arena->lock);
static void arena_count_free(struct fw_arena *arena, int64_t change)
{
    /* Relaxed: only written under the lock, and who reads it without wants a hint. */
    uint64_t count = atomic_load_explicit(&arena->free_count, memory_order_relaxed);
    atomic_store_explicit(&arena->free_count, count + (uint64_t)change, memory_order_relaxed);
}

/* One that has no memory yet, or no more. It has been charged. */
static struct fw_segment *arena_take_empty(struct fw_arena *arena) FW_REQUIRES(arena->lock);
static struct fw_segment *arena_take_empty(struct fw_arena *arena)
{
    struct fw_segment *segment = segment_of(fw_list_pop_front(&arena->released));
    if (segment != NULL) {
        return segment;
    }
    size_t offset = arena->fresh << arena->segment_shift;
    if (arena->fresh == arena->segments_max ||
        fw_range_enable(&arena->records, offset, arena->segment_size) != 0) {
        return NULL;
    }
    return arena_segment(arena, arena->fresh++);
}

struct fw_segment *fw_arena_take(struct fw_arena *arena, bool is_cleaner)
{
    struct fw_segment *segment = NULL;
    fw_mutex_lock(&arena->lock);
    uint64_t free_count = atomic_load_explicit(&arena->free_count, memory_order_relaxed);
    uint64_t spare = is_cleaner ? 0 : FW_ARENA_SPARE;
    if (free_count > spare) {
        segment = segment_of(fw_list_pop_front(&arena->free));
        arena_count_free(arena, -1);
    } else if (fw_budget_charge(arena->budget, arena->segment_size,
                                (spare - (is_cleaner ? 0 : free_count)) * arena->segment_size)) {
        segment = arena_take_empty(arena);
        if (segment == NULL) {
            fw_budget_return(arena->budget, arena->segment_size);
        }
    }
    if (segment != NULL) {
        segment->state = FW_SEGMENT_OPEN;
        /* Relaxed: nothing in it can die before it is written to. */
        atomic_store_explicit(&segment->dead, 0, memory_order_relaxed);
    }
    fw_mutex_unlock(&arena->lock);
    return segment;
}

void fw_arena_seal(struct fw_arena *arena, struct fw_segment *segment, enum fw_queue queue,
                   uint32_t used)
{
    fw_mutex_lock(&arena->lock);
    FW_ASSERT(segment->state == FW_SEGMENT_OPEN);
    FW_ASSERT(used <= arena->segment_size);
    segment->state = FW_SEGMENT_SEALED;
    segment->used = used;
    segment->queue = (uint8_t)queue;
    fw_list_push_back(&arena->queues[queue], &segment->link);
    arena->queue_count[queue]++;
    fw_mutex_unlock(&arena->lock);
}

/* The most hollow of some segments, if one part in `of` of any is dead. */
static struct fw_segment *arena_hollow(struct fw_arena *arena, uint64_t looks, uint32_t of)
    FW_REQUIRES(arena->lock);
static struct fw_segment *arena_hollow(struct fw_arena *arena, uint64_t looks, uint32_t of)
{
    uint32_t dead_least = arena->segment_size / of;
    struct fw_segment *best = NULL;
    for (uint64_t i = 0; i < looks && i < arena->fresh; i++) {
        arena->hand = arena->hand + 1 < arena->fresh ? arena->hand + 1 : 0;
        struct fw_segment *segment = arena_segment(arena, arena->hand);
        uint32_t dead = atomic_load_explicit(&segment->dead, memory_order_relaxed);
        if (segment->state == FW_SEGMENT_SEALED && dead >= dead_least) {
            best = segment;
            dead_least = dead + 1;
        }
    }
    return best;
}

static struct fw_segment *arena_oldest(struct fw_arena *arena, uint64_t share)
    FW_REQUIRES(arena->lock);
static struct fw_segment *arena_oldest(struct fw_arena *arena, uint64_t share)
{
    uint64_t all = arena->queue_count[FW_PROBATION] + arena->queue_count[FW_MAIN];
    bool is_over = arena->queue_count[FW_MAIN] == 0 ||
                   (arena->queue_count[FW_PROBATION] > all * share / FW_SHARE_ONE &&
                    arena->since_main < FW_MAIN_EVERY);
    arena->since_main = is_over ? arena->since_main + 1 : 0;
    return segment_of(fw_list_first(&arena->queues[is_over ? FW_PROBATION : FW_MAIN]));
}

struct fw_segment *fw_arena_victim(struct fw_arena *arena, enum fw_victim victim, uint64_t share)
{
    fw_mutex_lock(&arena->lock);
    struct fw_segment *segment = arena_hollow(
        arena, victim == FW_VICTIM_OLDEST ? HOLLOW_LOOKS : HOLLOW_LOOKS_MAX, FW_SEGMENT_HOLLOW_OF);
    if (segment == NULL && victim == FW_VICTIM_OLDEST) {
        segment = arena_oldest(arena, share);
    } else if (segment == NULL && victim == FW_VICTIM_DEAD) {
        segment = arena_hollow(arena, DEAD_LOOKS, DEAD_OF);
        segment = segment != NULL ? segment : arena_hollow(arena, arena->fresh, DEAD_OF_ALL);
    }
    if (segment != NULL) {
        fw_list_remove(&segment->link);
        arena->queue_count[segment->queue]--;
        segment->state = FW_SEGMENT_CLEANING;
    }
    fw_mutex_unlock(&arena->lock);
    return segment;
}

void fw_arena_put_back(struct fw_arena *arena, struct fw_segment *segment)
{
    fw_mutex_lock(&arena->lock);
    FW_ASSERT(segment->state == FW_SEGMENT_CLEANING);
    segment->state = FW_SEGMENT_SEALED;
    fw_list_push_front(&arena->queues[segment->queue], &segment->link);
    arena->queue_count[segment->queue]++;
    fw_mutex_unlock(&arena->lock);
}

void fw_arena_free(struct fw_arena *arena, struct fw_segment *segment)
{
#if defined(FW_CHECKS)
    /* Who still looks, sees it. */
    memset(fw_arena_memory(arena, segment), 0xdd, arena->segment_size);
#endif
    if (FW_UNLIKELY(arena->erases)) {
        memset(fw_arena_memory(arena, segment), 0, arena->segment_size);
    }
    fw_mutex_lock(&arena->lock);
    FW_ASSERT(segment->state == FW_SEGMENT_CLEANING || segment->state == FW_SEGMENT_OPEN);
    segment->state = FW_SEGMENT_FREE;
    fw_list_push_front(&arena->free, &segment->link);
    arena_count_free(arena, 1);
    fw_mutex_unlock(&arena->lock);
    if (fw_budget_is_exceeded(arena->budget)) {
        (void)fw_arena_release(arena, 0);
    }
}

bool fw_arena_release(struct fw_arena *arena, uint64_t spare)
{
    struct fw_segment *segment = NULL;
    fw_mutex_lock(&arena->lock);
    if (atomic_load_explicit(&arena->free_count, memory_order_relaxed) > spare) {
        segment = segment_of(fw_list_pop_front(&arena->free));
        arena_count_free(arena, -1);
    }
    fw_mutex_unlock(&arena->lock);
    if (segment == NULL) {
        return false;
    }
    size_t offset = (size_t)(fw_arena_memory(arena, segment) - arena->records.memory);
    fw_range_give_back(&arena->records, offset, arena->segment_size);
    fw_mutex_lock(&arena->lock);
    segment->state = FW_SEGMENT_RELEASED;
    fw_list_push_front(&arena->released, &segment->link);
    fw_mutex_unlock(&arena->lock);
    fw_budget_return(arena->budget, arena->segment_size);
    return true;
}

bool fw_arena_collapse(struct fw_arena *arena)
{
    fw_mutex_lock(&arena->lock);
    size_t used = arena->fresh << arena->segment_shift;
    size_t offset = arena->collapsed;
    bool is_due = offset + FW_RANGE_HUGE_PAGE <= used;
    arena->collapsed += is_due ? FW_RANGE_HUGE_PAGE : 0;
    fw_mutex_unlock(&arena->lock);
    return is_due && fw_range_collapse(&arena->records, offset);
}
