/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run-queue of a core: foms that are ready for their next tick.
 *
 * First in, first out within a priority level. Between levels the more urgent one goes first, but
 * only as long as it has credit: each level may take so many of a cycle of 64 and 16 and 4 and 1
 * ticks, and a new cycle begins when no level that has foms has credit left. So a level waits at
 * most one cycle for its share, whatever the others do. Strict priority was rejected: one busy
 * level would stop all below it, and time-outs there would fail requests that nobody worked on.
 *
 * Concurrency: none, it belongs to the turn. The links are the foms' own, and nothing is allocated.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fairway/engine.h>

#include "base/assert.h"
#include "base/base.h"

struct fw_queue_level {
    struct fw_fom *first;
    struct fw_fom *last;
};

struct fw_queue {
    struct fw_queue_level levels[FW_FOM_PRIORITIES];
    uint32_t credits[FW_FOM_PRIORITIES];
    uint32_t used; /* One bit for each level that has foms. */
    uint32_t able; /* One bit for each level that has credit. */
    uint32_t length;
};

/* Ticks per cycle of each level. */
static inline uint32_t fw_queue_share(unsigned level)
{
    return 1U << (2 * (FW_FOM_PRIORITIES - 1 - level));
}

static inline void fw_queue_refill(struct fw_queue *queue)
{
    for (unsigned level = 0; level < FW_FOM_PRIORITIES; level++) {
        queue->credits[level] = fw_queue_share(level);
    }
    queue->able = (1U << FW_FOM_PRIORITIES) - 1;
}

static inline void fw_queue_init(struct fw_queue *queue)
{
    *queue = (struct fw_queue){.length = 0};
    fw_queue_refill(queue);
}

static inline void fw_queue_level_push(struct fw_queue_level *level, struct fw_fom *fom)
{
    fom->next = NULL;
    if (level->first == NULL) {
        level->first = fom;
    } else {
        level->last->next = fom;
    }
    level->last = fom;
}

/* The oldest, or NULL. */
static inline struct fw_fom *fw_queue_level_pop(struct fw_queue_level *level)
{
    struct fw_fom *fom = level->first;
    if (fom != NULL) {
        level->first = fom->next;
    }
    return fom;
}

static inline void fw_queue_push(struct fw_queue *queue, struct fw_fom *fom)
{
    fw_queue_level_push(&queue->levels[fom->priority], fom);
    queue->used |= 1U << fom->priority;
    queue->length++;
}

/* The fom whose tick is next, or NULL. */
static inline struct fw_fom *fw_queue_pop(struct fw_queue *queue)
{
    if (queue->used == 0) {
        return NULL;
    }
    if ((queue->used & queue->able) == 0) {
        fw_queue_refill(queue);
    }
    unsigned number = (unsigned)__builtin_ctz(queue->used & queue->able);
    struct fw_queue_level *level = &queue->levels[number];
    struct fw_fom *fom = fw_queue_level_pop(level);
    __builtin_prefetch(level->first, 1); /* Which comes from memory while this one has its tick. */
    if ((queue->used & (queue->used - 1)) != 0 && --queue->credits[number] == 0) {
        queue->able &= ~(1U << number); /* Nobody is charged who keeps none waiting. */
    }
    if (level->first == NULL) {
        queue->used &= ~(1U << number);
    }
    queue->length--;
    return fom;
}
