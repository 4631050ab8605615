/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels and clinks.
 *
 * The clink's `channel` says how it is: the channel while it is armed, NULL when it has fired, and
 * IDLE when it was disarmed before anything happened.
 *
 * A shared channel's list changes under its lock, and the foms are woken when the lock is free
 * again, by ticket: between the two a fom may find out by itself that its clink has fired, go on,
 * and even end. A wake-up under the lock would be simpler still, but may be a system call.
 *
 * Who disarms a clink of a shared channel does not look at the channel before it has the lock: if
 * another thread has fired the clink meanwhile, the channel may be gone. So the clink knows which
 * of the domain's locks it is.
 */
#include <fairway/engine.h>

#include "base/assert.h"
#include "engine/core.h"
#include "engine/word.h"

#define CLINK_IDLE ((struct fw_channel *)(uintptr_t)1)

void fw_channel_init(struct fw_channel *channel)
{
    fw_list_init(&channel->clinks);
    channel->core = fw_core_self();
    channel->lock = NULL;
    channel->name = NULL;
    FW_ASSERT(channel->core != NULL);
}

struct fw_mutex *fw_domain_pick_lock(struct fw_domain *domain)
{
    /* Relaxed: any number will do. By turns and not by address, which no simulation could repeat.
     */
    uint32_t number = atomic_fetch_add_explicit(&domain->next_lock, 1, memory_order_relaxed);
    return &domain->channel_locks[number % FW_CHANNEL_LOCKS].mutex;
}

void fw_channel_init_shared(struct fw_channel *channel, struct fw_domain *domain)
{
    fw_list_init(&channel->clinks);
    channel->core = NULL;
    channel->lock = fw_domain_pick_lock(domain);
    channel->name = NULL;
}

static void channel_lock(struct fw_channel *channel) FW_TSA_TRUSTED
{
    if (channel->core != NULL) {
        FW_ASSERT(fw_core_self() == channel->core);
    } else {
        fw_shared_lock(channel->lock);
    }
}

static void channel_unlock(struct fw_channel *channel) FW_TSA_TRUSTED
{
    if (channel->core == NULL) {
        fw_mutex_unlock(channel->lock);
    }
}

void fw_channel_fini(struct fw_channel *channel)
{
    /* A signaller may still be inside, if that is how the caller knows that it may end. */
    if (channel->core == NULL) {
        channel_lock(channel);
        channel_unlock(channel);
    }
    FW_ASSERT(fw_list_is_empty(&channel->clinks));
}

static struct fw_fom *clink_fom(struct fw_clink *clink)
{
    return (struct fw_fom *)(void *)((char *)clink - clink->offset);
}

struct fw_clink *fw_fom_clink(struct fw_fom *fom, uint32_t offset)
{
    return offset == 0 ? NULL : (struct fw_clink *)(void *)((char *)fom + offset);
}

/* Fires the first clink of the list; the caller has the lock. The ticket's fom is NULL: none. */
static struct fw_ticket clinks_fire(struct fw_list *clinks)
{
    struct fw_list_link *link = fw_list_pop_front(clinks);
    if (link == NULL) {
        return (struct fw_ticket){.fom = NULL};
    }
    struct fw_clink *clink = FW_LIST_ENTRY(link, struct fw_clink, link);
    struct fw_ticket ticket = fw_fom_ticket(clink_fom(clink));
    FW_YIELD_POINT("channel: fire");
    /* Release, for the acquire in fw_fom_disarm(): this is the last that is done to the clink. */
    atomic_store_explicit(&clink->channel, NULL, memory_order_release);
    return ticket;
}

bool fw_channel_signal(struct fw_channel *channel)
{
    channel_lock(channel);
    struct fw_ticket ticket = clinks_fire(&channel->clinks);
    channel_unlock(channel);
    if (ticket.fom == NULL) {
        return false;
    }
    fw_ticket_wake(ticket);
    return true;
}

uint32_t fw_channel_broadcast(struct fw_channel *channel)
{
    /*
     * Those that arm again before this ends are not woken twice: they join the other list. And the
     * last to be woken may end the channel, before this ends; the lock is not the channel's.
     */
    struct fw_channel firing = {.core = channel->core, .lock = channel->lock};
    fw_list_init(&firing.clinks);
    uint32_t count = 0;
    channel_lock(&firing);
    fw_list_append(&firing.clinks, &channel->clinks);
    for (;;) {
        struct fw_ticket ticket = clinks_fire(&firing.clinks);
        if (ticket.fom == NULL) {
            break;
        }
        channel_unlock(&firing);
        count++;
        fw_ticket_wake(ticket);
        channel_lock(&firing);
    }
    channel_unlock(&firing);
    return count;
}

static uint32_t channel_lock_number(const struct fw_channel *channel, const struct fw_fom *fom)
{
    if (channel->core != NULL) {
        return 0;
    }
    const struct fw_shared_lock *lock =
        FW_CONTAINER_OF(channel->lock, struct fw_shared_lock, mutex);
    FW_ASSERT(lock->domain == fw_fom_core(fom)->domain);
    return (uint32_t)(lock - lock->domain->channel_locks) + 1;
}

void fw_fom_arm(struct fw_fom *fom, struct fw_clink *clink, struct fw_channel *channel)
{
    FW_ASSERT(fom->flags & FW_FOM_IN_TICK);
    FW_CHECK(!fw_list_is_linked(&clink->link));
    size_t offset = (size_t)((char *)clink - (char *)fom);
    FW_ASSERT(offset >= sizeof *fom && offset <= fom->type->size - sizeof *clink);
    clink->offset = (uint16_t)offset;
    clink->next = fom->armed;
    clink->lock_number = channel_lock_number(channel, fom);
    fom->armed = clink->offset;
    fw_list_link_init(&clink->link);
    struct fw_core *core = fw_fom_core(fom);
    if (FW_UNLIKELY(core->trace != NULL)) {
        fw_trace_fom(core, fom, FW_TRACE_ARM, (uintptr_t)channel->name);
    }
    channel_lock(channel);
    /* Relaxed: who fires it finds it under the lock, or on the same turn. */
    atomic_store_explicit(&clink->channel, channel, memory_order_relaxed);
    fw_list_push_back(&channel->clinks, &clink->link);
    channel_unlock(channel);
}

static void clink_lock(struct fw_fom *fom, const struct fw_clink *clink) FW_TSA_TRUSTED
{
    if (clink->lock_number != 0) {
        fw_shared_lock(&fw_fom_core(fom)->domain->channel_locks[clink->lock_number - 1].mutex);
    }
}

static void clink_unlock(struct fw_fom *fom, const struct fw_clink *clink) FW_TSA_TRUSTED
{
    if (clink->lock_number != 0) {
        fw_mutex_unlock(&fw_fom_core(fom)->domain->channel_locks[clink->lock_number - 1].mutex);
    }
}

/* Without the lock, and so only true for sure if it says so. */
static bool clink_has_fired(const struct fw_clink *clink)
{
    /* Acquire, for the release in clinks_fire(). */
    return atomic_load_explicit(&clink->channel, memory_order_acquire) == NULL;
}

static void clink_disarm(struct fw_fom *fom, struct fw_clink *clink)
{
    FW_YIELD_POINT("channel: disarm");
    if (clink_has_fired(clink)) {
        return;
    }
    clink_lock(fom, clink);
    /* Relaxed: it changes under the lock. */
    struct fw_channel *channel = atomic_load_explicit(&clink->channel, memory_order_relaxed);
    if (channel != NULL) {
        FW_ASSERT(clink->lock_number != 0 || fw_core_self() == channel->core);
        fw_list_remove(&clink->link);
        atomic_store_explicit(&clink->channel, CLINK_IDLE, memory_order_relaxed);
    }
    clink_unlock(fom, clink);
}

void fw_fom_disarm(struct fw_fom *fom)
{
    struct fw_clink *clink = fw_fom_clink(fom, fom->armed);
    fom->armed = 0;
    while (clink != NULL) {
        struct fw_clink *next = fw_fom_clink(fom, clink->next);
        clink_disarm(fom, clink);
        clink = next;
    }
}

bool fw_clink_name(struct fw_clink *clink, const char **name)
{
    struct fw_fom *fom = clink_fom(clink);
    if (clink_has_fired(clink)) {
        return false;
    }
    clink_lock(fom, clink);
    /* Relaxed: it changes under the lock. */
    struct fw_channel *channel = atomic_load_explicit(&clink->channel, memory_order_relaxed);
    *name = channel != NULL ? channel->name : NULL;
    clink_unlock(fom, clink);
    return channel != NULL;
}
