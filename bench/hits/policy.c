/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/hits/policy.h"

#include <stdio.h>
#include <stdlib.h>

#define NONE UINT32_MAX /* No object. */

enum { FREQUENCY_MAX = 3, SMALL_PERCENT = 10 };
enum where { OUT, SMALL, MAIN }; /* LRU and SIEVE use MAIN only. */

const char *const fw_policy_names[FW_POLICY_KINDS] = {"lru", "s3-fifo", "sieve"};

struct node {
    uint32_t newer, older;
    uint32_t size;
    uint32_t expires;
    uint32_t ghost; /* When it went, counted in evictions; 0: not remembered. */
    uint8_t where;
    uint8_t frequency; /* Of hits since it came, up to FREQUENCY_MAX. SIEVE: whether any. */
};

struct queue {
    uint32_t newest, oldest;
    uint64_t bytes;
    uint32_t count;
};

struct fw_policy {
    enum fw_policy_kind kind;
    uint64_t capacity;
    struct queue queues[3]; /* By `where`. */
    uint32_t hand;          /* Of SIEVE. */
    uint32_t ghosts;        /* Evictions from the small queue so far. */
    struct node *nodes;
};

struct fw_policy *fw_policy_create(enum fw_policy_kind kind, uint64_t capacity, size_t objects)
{
    struct fw_policy *policy = calloc(1, sizeof *policy);
    struct node *nodes = calloc(objects, sizeof *nodes);
    if (policy == NULL || nodes == NULL) {
        perror("hits: no memory for a policy");
        exit(EXIT_FAILURE);
    }
    *policy = (struct fw_policy){.kind = kind, .capacity = capacity, .hand = NONE, .nodes = nodes};
    for (int i = 0; i < 3; i++) {
        policy->queues[i].newest = policy->queues[i].oldest = NONE;
    }
    return policy;
}

void fw_policy_destroy(struct fw_policy *policy)
{
    free(policy->nodes);
    free(policy);
}

static void queue_push(struct fw_policy *policy, uint32_t object, enum where where)
{
    struct queue *queue = &policy->queues[where];
    struct node *node = &policy->nodes[object];
    node->where = (uint8_t)where;
    node->newer = NONE;
    node->older = queue->newest;
    if (queue->newest != NONE) {
        policy->nodes[queue->newest].newer = object;
    } else {
        queue->oldest = object;
    }
    queue->newest = object;
    queue->bytes += node->size;
    queue->count++;
}

static void queue_remove(struct fw_policy *policy, uint32_t object)
{
    struct node *node = &policy->nodes[object];
    struct queue *queue = &policy->queues[node->where];
    if (policy->hand == object) {
        policy->hand = node->newer;
    }
    if (node->newer != NONE) {
        policy->nodes[node->newer].older = node->older;
    } else {
        queue->newest = node->older;
    }
    if (node->older != NONE) {
        policy->nodes[node->older].newer = node->newer;
    } else {
        queue->oldest = node->newer;
    }
    queue->bytes -= node->size;
    queue->count--;
    node->where = OUT;
}

/* From the small queue: to the main one if it was asked for more than once, else out. */
static void s3fifo_evict_small(struct fw_policy *policy)
{
    uint32_t object = policy->queues[SMALL].oldest;
    struct node *node = &policy->nodes[object];
    queue_remove(policy, object);
    if (node->frequency > 1) {
        node->frequency = 0;
        queue_push(policy, object, MAIN);
    } else {
        node->ghost = ++policy->ghosts;
    }
}

static void s3fifo_evict_main(struct fw_policy *policy)
{
    uint32_t object = policy->queues[MAIN].oldest;
    struct node *node = &policy->nodes[object];
    queue_remove(policy, object);
    if (node->frequency > 0) {
        node->frequency--;
        queue_push(policy, object, MAIN);
    }
}

static void s3fifo_evict(struct fw_policy *policy)
{
    bool small_is_full = policy->queues[SMALL].bytes * 100 >= policy->capacity * SMALL_PERCENT;
    if (policy->queues[MAIN].count == 0 || (small_is_full && policy->queues[SMALL].count > 0)) {
        s3fifo_evict_small(policy);
    } else {
        s3fifo_evict_main(policy);
    }
}

/* As many are remembered as the main queue has objects. */
static bool s3fifo_is_ghost(const struct fw_policy *policy, const struct node *node)
{
    return node->ghost != 0 && policy->ghosts - node->ghost < policy->queues[MAIN].count;
}

static void sieve_evict(struct fw_policy *policy)
{
    uint32_t object = policy->hand != NONE ? policy->hand : policy->queues[MAIN].oldest;
    while (policy->nodes[object].frequency > 0) {
        policy->nodes[object].frequency = 0;
        uint32_t newer = policy->nodes[object].newer;
        object = newer != NONE ? newer : policy->queues[MAIN].oldest;
    }
    policy->hand = object; /* Removing it moves the hand on. */
    queue_remove(policy, object);
}

static void evict(struct fw_policy *policy)
{
    if (policy->kind == FW_POLICY_S3FIFO) {
        s3fifo_evict(policy);
    } else if (policy->kind == FW_POLICY_SIEVE) {
        sieve_evict(policy);
    } else {
        queue_remove(policy, policy->queues[MAIN].oldest);
    }
}

static void hit(struct fw_policy *policy, uint32_t object)
{
    struct node *node = &policy->nodes[object];
    if (node->frequency < FREQUENCY_MAX) {
        node->frequency++;
    }
    if (policy->kind == FW_POLICY_LRU) {
        queue_remove(policy, object);
        queue_push(policy, object, MAIN);
    }
}

static void store(struct fw_policy *policy, uint32_t object, uint32_t size, uint32_t expires)
{
    if (size > policy->capacity) {
        return;
    }
    while (policy->queues[SMALL].bytes + policy->queues[MAIN].bytes + size > policy->capacity) {
        evict(policy);
    }
    struct node *node = &policy->nodes[object];
    node->size = size;
    node->expires = expires;
    node->frequency = 0;
    bool is_new = policy->kind == FW_POLICY_S3FIFO && !s3fifo_is_ghost(policy, node);
    node->ghost = 0;
    queue_push(policy, object, is_new ? SMALL : MAIN);
}

bool fw_policy_access(struct fw_policy *policy, uint32_t object, uint32_t size, uint32_t now,
                      uint32_t expires)
{
    struct node *node = &policy->nodes[object];
    if (node->where != OUT && (node->expires == 0 || node->expires > now)) {
        hit(policy, object);
        return true;
    }
    if (node->where != OUT) {
        queue_remove(policy, object);
    }
    store(policy, object, size, expires);
    return false;
}
