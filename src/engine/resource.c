/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resources: a limited amount of something, granted in the order of asking, and so the long lock.
 *
 * A claim is NONE, WAITING or GRANTED. It changes under the resource's lock; that it was granted
 * may be read without. Who gives something back grants what has become possible, one claim at a
 * time, and wakes each fom by ticket when the lock is free: a fom that looks at its claim meanwhile
 * may find it granted, use it, give it back and end before the wake-up comes.
 *
 * Only the oldest claim is ever looked at, so nothing is scanned and none is overtaken.
 */
#include <fairway/engine.h>

#include "base/assert.h"
#include "engine/core.h"

enum { CLAIM_NONE, CLAIM_WAITING, CLAIM_GRANTED };

void fw_resource_init(struct fw_resource *resource, struct fw_domain *domain, uint64_t capacity)
{
    *resource = (struct fw_resource){.lock = fw_domain_pick_lock(domain), .capacity = capacity};
    fw_list_init(&resource->claims);
}

void fw_resource_fini(struct fw_resource *resource)
{
    FW_ASSERT(fw_list_is_empty(&resource->claims) && resource->used == 0);
}

static bool claim_fits(const struct fw_resource *resource, const struct fw_claim *claim)
{
    return claim->amount <= resource->capacity - resource->used;
}

bool fw_resource_get(struct fw_resource *resource, struct fw_fom *fom, struct fw_claim *claim,
                     uint64_t amount)
{
    /* Acquire, for the release in resource_grant(). */
    int state = atomic_load_explicit(&claim->state, memory_order_acquire);
    if (state != CLAIM_NONE) {
        return state == CLAIM_GRANTED;
    }
    FW_ASSERT(amount <= resource->capacity);
    claim->amount = amount;
    claim->ticket = fw_fom_ticket(fom);
    fw_list_link_init(&claim->link);
    fw_shared_lock(resource->lock);
    bool is_granted = fw_list_is_empty(&resource->claims) && claim_fits(resource, claim);
    if (is_granted) {
        resource->used += amount;
    } else {
        fw_list_push_back(&resource->claims, &claim->link);
    }
    /* Relaxed: the lock orders it, and the fom itself. */
    atomic_store_explicit(&claim->state, is_granted ? CLAIM_GRANTED : CLAIM_WAITING,
                          memory_order_relaxed);
    fw_mutex_unlock(resource->lock);
    return is_granted;
}

/* Grants the oldest claim if there is enough for it. False: nothing to grant. */
static bool resource_grant(struct fw_resource *resource)
{
    struct fw_ticket ticket = {.fom = NULL};
    fw_shared_lock(resource->lock);
    struct fw_list_link *link = fw_list_first(&resource->claims);
    if (link != NULL) {
        struct fw_claim *claim = FW_LIST_ENTRY(link, struct fw_claim, link);
        if (claim_fits(resource, claim)) {
            fw_list_remove(link);
            resource->used += claim->amount;
            ticket = claim->ticket;
            FW_YIELD_POINT("resource: grant");
            /* Release, for the acquire in get(): this is the last that is done to the claim. */
            atomic_store_explicit(&claim->state, CLAIM_GRANTED, memory_order_release);
        }
    }
    fw_mutex_unlock(resource->lock);
    if (ticket.fom == NULL) {
        return false;
    }
    fw_ticket_wake(ticket);
    return true;
}

void fw_resource_put(struct fw_resource *resource, struct fw_claim *claim)
{
    fw_shared_lock(resource->lock);
    /* Relaxed: it changes under the lock. */
    int state = atomic_load_explicit(&claim->state, memory_order_relaxed);
    if (state == CLAIM_GRANTED) {
        FW_ASSERT(resource->used >= claim->amount);
        resource->used -= claim->amount;
    } else if (state == CLAIM_WAITING) {
        fw_list_remove(&claim->link); /* Those behind may fit where it did not. */
    }
    atomic_store_explicit(&claim->state, CLAIM_NONE, memory_order_relaxed);
    fw_mutex_unlock(resource->lock);
    if (state != CLAIM_NONE) {
        while (resource_grant(resource)) {
        }
    }
}
