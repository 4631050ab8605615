/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/ready.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

enum { BUCKETS_MIN = 64, BUCKETS_MAX = 1 << 16, QUEUES = 2 * FW_JOBS_LANES };

int fw_ready_init(struct fw_ready *ready, const struct fw_jobs_policy *policy)
{
    uint32_t buckets = BUCKETS_MIN;
    while (buckets < policy->slots && buckets < BUCKETS_MAX) {
        buckets *= 2;
    }
    *ready = (struct fw_ready){.slots = policy->slots, .bucket_mask = buckets - 1};
    ready->slopes[FW_READY_PLAIN] = policy->ageing ? 1 : 0;
    ready->slopes[FW_READY_BOOSTED] = policy->ageing && policy->boosting
                                          ? 1 + (int64_t)policy->boost
                                          : ready->slopes[FW_READY_PLAIN];
    ready->levels = calloc(policy->slots, sizeof *ready->levels);
    ready->buckets = calloc(buckets, sizeof(struct fw_job_level *));
    if (ready->levels == NULL || ready->buckets == NULL) {
        fw_ready_fini(ready);
        return -ENOMEM;
    }
    return 0;
}

void fw_ready_fini(struct fw_ready *ready)
{
    free(ready->levels);
    free(ready->buckets);
    ready->levels = NULL;
    ready->buckets = NULL;
}

/* What does not age differently needs no queue of its own. */
static uint32_t ready_kind(const struct fw_ready *ready, uint32_t flags)
{
    bool differs = ready->slopes[FW_READY_BOOSTED] != ready->slopes[FW_READY_PLAIN];
    return differs && (flags & FW_JOB_BOOST) != 0 ? FW_READY_BOOSTED : FW_READY_PLAIN;
}

int64_t fw_ready_key(const struct fw_ready *ready, int32_t priority, uint32_t flags, int64_t tick)
{
    return priority - ready->slopes[ready_kind(ready, flags)] * tick;
}

int64_t fw_ready_priority(const struct fw_ready *ready, const struct fw_job *job, int64_t tick)
{
    return job->key + ready->slopes[ready_kind(ready, job->flags)] * tick;
}

int64_t fw_ready_inspections(const struct fw_ready *ready, const struct fw_job *job, int64_t tick)
{
    int64_t slope = ready->slopes[ready_kind(ready, job->flags)];
    return slope == 0 ? 0 : tick - (job->priority - job->key) / slope;
}

/* The heap. Every function takes and returns roots; a root has neither sibling nor predecessor. */

static struct fw_job_level *heap_meld(struct fw_job_level *a, struct fw_job_level *b)
{
    struct fw_job_level *parent = a->key > b->key ? a : b;
    struct fw_job_level *child = parent == a ? b : a;
    child->next = parent->child;
    child->previous = parent;
    if (parent->child != NULL) {
        parent->child->previous = child;
    }
    parent->child = child;
    return parent;
}

/* Makes one heap of siblings: in pairs from the first to the last, then from the last back. */
static struct fw_job_level *heap_merge(struct fw_job_level *first)
{
    struct fw_job_level *pairs = NULL;
    while (first != NULL) {
        struct fw_job_level *one = first;
        struct fw_job_level *other = one->next;
        first = other != NULL ? other->next : NULL;
        one->next = NULL;
        if (other != NULL) {
            other->next = NULL;
            one = heap_meld(one, other);
        }
        one->next = pairs;
        pairs = one;
    }
    struct fw_job_level *root = NULL;
    while (pairs != NULL) {
        struct fw_job_level *pair = pairs;
        pairs = pair->next;
        pair->next = NULL;
        root = root != NULL ? heap_meld(root, pair) : pair;
    }
    if (root != NULL) {
        root->previous = NULL;
    }
    return root;
}

static struct fw_job_level *heap_remove(struct fw_job_level *root, struct fw_job_level *level)
{
    struct fw_job_level *rest = heap_merge(level->child);
    if (level == root) {
        return rest;
    }
    if (level->previous->child == level) {
        level->previous->child = level->next;
    } else {
        level->previous->next = level->next;
    }
    if (level->next != NULL) {
        level->next->previous = level->previous;
    }
    return rest != NULL ? heap_meld(root, rest) : root;
}

/* Levels. */

static struct fw_job_level **level_bucket(const struct fw_ready *ready, uint32_t queue, int64_t key)
{
    /* Multiplied by the golden ratio, the high bits depend on all the low ones. */
    uint64_t mixed = ((uint64_t)key * QUEUES + queue) * UINT64_C(0x9E3779B97F4A7C15);
    return &ready->buckets[(mixed >> 40) & ready->bucket_mask];
}

static struct fw_job_level *level_new(struct fw_ready *ready, uint32_t queue, int64_t key)
{
    struct fw_job_level *level = ready->free_first;
    if (level != NULL) {
        ready->free_first = level->next;
    } else {
        FW_ASSERT(ready->fresh < ready->slots); /* No more levels than requests. */
        level = &ready->levels[ready->fresh++];
    }
    struct fw_job_level **bucket = level_bucket(ready, queue, key);
    *level = (struct fw_job_level){.key = key, .queue = queue, .hash_next = *bucket};
    *bucket = level;
    struct fw_job_level **root = &ready->heaps[queue];
    *root = *root != NULL ? heap_meld(*root, level) : level;
    ready->filled |= 1U << queue;
    return level;
}

static void level_free(struct fw_ready *ready, struct fw_job_level *level)
{
    ready->heaps[level->queue] = heap_remove(ready->heaps[level->queue], level);
    if (ready->heaps[level->queue] == NULL) {
        ready->filled &= ~(1U << level->queue);
    }
    struct fw_job_level **link = level_bucket(ready, level->queue, level->key);
    while (*link != level) {
        link = &(*link)->hash_next;
    }
    *link = level->hash_next;
    if (ready->recent[level->queue] == level) {
        ready->recent[level->queue] = NULL;
    }
    level->next = ready->free_first;
    ready->free_first = level;
}

static struct fw_job_level *level_get(struct fw_ready *ready, uint32_t queue, int64_t key)
{
    struct fw_job_level *level = ready->recent[queue];
    if (level != NULL && level->key == key) {
        return level;
    }
    level = *level_bucket(ready, queue, key);
    while (level != NULL && (level->key != key || level->queue != queue)) {
        level = level->hash_next;
    }
    if (level == NULL) {
        level = level_new(ready, queue, key);
    }
    ready->recent[queue] = level;
    return level;
}

void fw_ready_push(struct fw_ready *ready, struct fw_job *job)
{
    uint32_t lane = fw_job_lane(job->flags);
    struct fw_job_level *level =
        level_get(ready, 2 * lane + ready_kind(ready, job->flags), job->key);
    FW_ASSERT(level->last == NULL || level->last->sequence < job->sequence);
    job->level = level;
    job->next = NULL;
    job->previous = level->last;
    if (level->last != NULL) {
        level->last->next = job;
    } else {
        level->first = job;
    }
    level->last = job;
    ready->waiting[lane]++;
}

void fw_ready_return(struct fw_ready *ready, struct fw_job *job)
{
    uint32_t lane = fw_job_lane(job->flags);
    struct fw_job_level *level =
        level_get(ready, 2 * lane + ready_kind(ready, job->flags), job->key);
    struct fw_job *before = NULL;
    struct fw_job *behind = level->first;
    while (behind != NULL && behind->sequence < job->sequence) { /* Others that were put back. */
        before = behind;
        behind = behind->next;
    }
    job->level = level;
    job->previous = before;
    job->next = behind;
    *(before != NULL ? &before->next : &level->first) = job;
    *(behind != NULL ? &behind->previous : &level->last) = job;
    ready->waiting[lane]++;
}

void fw_ready_remove(struct fw_ready *ready, struct fw_job *job)
{
    struct fw_job_level *level = job->level;
    FW_ASSERT(level != NULL && level->first != NULL);
    if (job->previous != NULL) {
        job->previous->next = job->next;
    } else {
        level->first = job->next;
    }
    if (job->next != NULL) {
        job->next->previous = job->previous;
        /* It is likely to be the next to go, and where many wait it is in no cache. */
        __builtin_prefetch(job->next->next);
    } else {
        level->last = job->previous;
    }
    job->level = NULL;
    ready->waiting[fw_job_lane(job->flags)]--;
    if (level->first == NULL) {
        level_free(ready, level);
    }
}

/* True if `job` goes before `other` at `tick`. */
static bool ready_before(const struct fw_ready *ready, const struct fw_job *job,
                         const struct fw_job *other, int64_t tick)
{
    int64_t mine = fw_ready_priority(ready, job, tick);
    int64_t theirs = fw_ready_priority(ready, other, tick);
    return mine != theirs ? mine > theirs : job->sequence < other->sequence;
}

struct fw_job *fw_ready_best(const struct fw_ready *ready, uint32_t queues, int64_t tick)
{
    struct fw_job *best = NULL;
    while (queues != 0) {
        struct fw_job *head = ready->heaps[__builtin_ctz(queues)]->first;
        queues &= queues - 1;
        if (best == NULL || ready_before(ready, head, best, tick)) {
            best = head;
        }
    }
    return best;
}

struct fw_job *fw_ready_any(const struct fw_ready *ready)
{
    return fw_ready_first(ready, 0, 0);
}
