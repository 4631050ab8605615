/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena: the memory that records lie in, in segments of 64 KiB; in a small table of 32 KiB, of
 * which the few that are open or spare are a noticeable part.
 *
 *     fresh ──► open ──► sealed, in a queue ──► being cleaned ──► free ──► open ...
 *                                                                  │
 *                                           its memory given back: released
 *
 * An open segment belongs to one local, which appends records to it (struct fw_log). When it is
 * full it is sealed and put at the end of one of two queues: PROBATION for what came in, MAIN for
 * what was worth keeping. A cleaner takes one out, moves or drops what is alive in it, and frees it
 * (clean.h). A sealed segment is walked from record to record up to `used`; nobody changes the
 * lengths in a record while it lies there.
 *
 * A record is named by its *place*: its distance from the arena's begin, in bytes. None lies at the
 * begin of its segment, so that the lower bits of a place are never all 0 (see bucket.h).
 *
 * Threads: any. The lock guards the lists and is taken once per segment; `dead` is counted by
 * whoever holds the bucket of a record that dies.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/list.h"
#include "base/mutex.h"
#include "base/reason.h"
#include "cache/budget.h"
#include "cache/item.h"
#include "io/range.h"

enum {
    FW_SEGMENT_SHIFT = 16,       /* A segment has two to the power of so many bytes, */
    FW_SEGMENT_SHIFT_SMALL = 15, /* or so many in a small arena. */
    FW_SEGMENT_SIZE_MAX = 1 << FW_SEGMENT_SHIFT,
    FW_SEGMENT_BEGIN = 1,     /* Where the first record lies. */
    FW_SEGMENT_HOLLOW_OF = 3, /* One part in so many dead: cleaning only compacts, drops no item. */
    FW_MAIN_EVERY = 48,
    FW_ARENA_SPARE = 2, /* Segments that only cleaners get, so that survivors have room. */
};

#define FW_ARENA_SMALL (UINT64_C(16) << 20) /* A limit of less than that. */

#define FW_SHARE_ONE UINT64_C(0x100000000) /* The whole of something that is shared out. */

enum fw_queue { FW_PROBATION, FW_MAIN, FW_QUEUES };

enum fw_segment_state {
    FW_SEGMENT_FREE,
    FW_SEGMENT_RELEASED, /* Free, and its memory was given back. */
    FW_SEGMENT_OPEN,
    FW_SEGMENT_SEALED,
    FW_SEGMENT_CLEANING,
};

struct fw_segment {
    struct fw_list_link link; /* In one of the arena's lists, as the state says. */
    uint32_t used;            /* Where the last record ends; set when it is sealed. */
    _Atomic uint32_t dead;    /* Bytes of records that died. */
    uint8_t state;
    uint8_t queue; /* Of a sealed one or one that is cleaned: where it was. */
};

struct fw_arena {
    struct fw_range records;
    struct fw_range segments; /* One struct fw_segment for each that the arena may have. */
    struct fw_budget *budget;
    uint64_t segments_max;
    uint32_t segment_shift;
    uint32_t segment_size;
    bool erases; /* Segments are made zeros when they are free. */

    struct fw_mutex lock; /* FW_RANK_TABLE_ARENA. Guards all below. */
    uint64_t fresh;       /* Segments from here on were never used. */
    size_t collapsed;     /* Up to here huge pages were made, or tried. */
    uint64_t hand;        /* Where the search for hollow segments goes on. */
    struct fw_list free;
    struct fw_list released;
    struct fw_list queues[FW_QUEUES];
    uint64_t queue_count[FW_QUEUES];
    uint32_t since_main;         /* Segments of PROBATION cleaned since one of MAIN was. */
    _Atomic uint64_t free_count; /* Written under the lock; read by those who clean ahead. */
};

/* The budget outlives it. `memory_max` is the most that the budget's limit can ever become. */
FW_MUST_CHECK int fw_arena_init(struct fw_arena *arena, struct fw_budget *budget,
                                uint64_t memory_max, struct fw_reason *reason);
void fw_arena_fini(struct fw_arena *arena);

/* A segment to write to, or NULL: there is none within the budget. */
struct fw_segment *fw_arena_take(struct fw_arena *arena, bool is_cleaner);

/* No more is written to it. */
void fw_arena_seal(struct fw_arena *arena, struct fw_segment *segment, enum fw_queue queue,
                   uint32_t used);

/* Which segment to clean, should none be hollow. */
enum fw_victim {
    FW_VICTIM_HOLLOW, /* None. */
    FW_VICTIM_DEAD,   /* The one with the most dead records that is found. */
    FW_VICTIM_OLDEST,
};

/*
 * Takes a segment out of its queue for cleaning: one that is hollow, a third or more of it dead, if
 * one is found. Else, OLDEST, the oldest of PROBATION if that has more than its share, in parts of
 * FW_SHARE_ONE, or else the oldest of MAIN, which is also taken after FW_MAIN_EVERY of PROBATION in
 * a row: so what is no longer read leaves MAIN even while that is short of its share, and its
 * ghosts tell what its length is worth. NULL: there is none.
 */
struct fw_segment *fw_arena_victim(struct fw_arena *arena, enum fw_victim victim, uint64_t share);

/* Cleaning was given up: it is the first of its queue again. */
void fw_arena_put_back(struct fw_arena *arena, struct fw_segment *segment);

/* Nothing is alive in it, nobody looks at it. */
void fw_arena_free(struct fw_arena *arena, struct fw_segment *segment);

/* Gives the memory of a free segment back to the budget. False: no more than `spare` are free. */
bool fw_arena_release(struct fw_arena *arena, uint64_t spare);

/* Makes a huge page of the next part that is in use. False: there is none, or it cannot be. */
bool fw_arena_collapse(struct fw_arena *arena);

/* Writers will not get a segment, or only the last. */
static inline bool fw_arena_is_short(const struct fw_arena *arena)
{
    /* Relaxed: a hint to clean ahead. */
    uint64_t free_count = atomic_load_explicit(&arena->free_count, memory_order_relaxed);
    return free_count <= FW_ARENA_SPARE + 1 &&
           !fw_budget_has(arena->budget, (FW_ARENA_SPARE + UINT64_C(2)) * arena->segment_size);
}

static inline char *fw_arena_memory(const struct fw_arena *arena, const struct fw_segment *segment)
{
    size_t index = (size_t)(segment - (const struct fw_segment *)(void *)arena->segments.memory);
    return arena->records.memory + (index << arena->segment_shift);
}

static inline struct fw_item *fw_arena_item(const struct fw_arena *arena, uint64_t place)
{
    return (struct fw_item *)(void *)(arena->records.memory + place);
}

static inline uint64_t fw_arena_place(const struct fw_arena *arena, const struct fw_item *item)
{
    return (uint64_t)((const char *)item - arena->records.memory);
}

static inline bool fw_arena_is_hollow(const struct fw_arena *arena,
                                      const struct fw_segment *segment)
{
    /* Relaxed: it guides a choice, nothing more. */
    return atomic_load_explicit(&segment->dead, memory_order_relaxed) >=
           arena->segment_size / FW_SEGMENT_HOLLOW_OF;
}

/* Counts a record as dead. The caller holds its bucket. */
static inline void fw_arena_bury(struct fw_arena *arena, uint64_t place, size_t size)
{
    struct fw_segment *segments = (struct fw_segment *)(void *)arena->segments.memory;
    /* Relaxed: it only guides the choice of what to clean. */
    (void)atomic_fetch_add_explicit(&segments[place >> arena->segment_shift].dead, (uint32_t)size,
                                    memory_order_relaxed);
}
