/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quiescence: when has everyone who might have seen an object let go of it?
 *
 * The domain has an epoch, a number that each request for quiescence raises. Each participant, a
 * thread that runs ticks or one that was attached, writes down which epoch it has seen at its last
 * safe point, where it holds no borrowed reference: between two ticks. While it sleeps, or is idle,
 * it is OFFLINE, and needs no safe point. A thread in a bracket is in the middle of a tick and has
 * passed none. A request is granted when all who are not OFFLINE have seen its epoch.
 *
 * Nobody polls. Whoever is last to see an epoch, or to go offline, grants. That works because of an
 * order of two steps on both sides, all sequentially consistent: a request raises the epoch and
 * then reads what participants have seen; a participant writes what it has seen (or OFFLINE) and
 * then reads the epoch. Whichever comes second sees the other.
 */
#include <fairway/engine.h>

#include "base/assert.h"
#include "base/fence.h"
#include "engine/core.h"

#define OFFLINE UINT64_MAX

static uint64_t epoch_seen_by_all(struct fw_domain *domain)
{
    uint64_t least = OFFLINE;
    FW_LIST_FOR_EACH (&domain->participants, struct fw_participant, link, participant) {
        uint64_t seen = atomic_load(&participant->seen);
        least = seen < least ? seen : least;
    }
    return least;
}

/* Grants all requests that everyone has seen. */
static void quiescence_check(struct fw_domain *domain)
{
    fw_mutex_lock(&domain->lock);
    uint64_t least = epoch_seen_by_all(domain);
    struct fw_list_link *link;
    /* They are in the order of their targets. */
    while ((link = fw_list_first(&domain->quiescences)) != NULL) {
        struct fw_quiescence *request = FW_LIST_ENTRY(link, struct fw_quiescence, link);
        if (request->target > least) {
            break;
        }
        fw_list_remove(link);
        struct fw_ticket ticket = request->ticket;
        /* Release, for the acquire in fw_domain_quiesce(); the request is its fom's again. */
        atomic_store_explicit(&request->is_passed, true, memory_order_release);
        fw_ticket_wake(ticket);
    }
    fw_mutex_unlock(&domain->lock);
}

void fw_safety_online(struct fw_participant *participant)
{
    /* Sequentially consistent: no reference is borrowed before this is seen. */
    uint64_t epoch = atomic_load(&participant->domain->epoch);
    atomic_store(&participant->seen, epoch);
    fw_fence_full(); /* Nor by a load that overtakes it. */
    FW_YIELD_POINT("quiesce: online");
}

/* Writes down `seen`, and grants what may have waited for that. */
static void safety_write(struct fw_participant *participant, uint64_t seen)
{
    /* Relaxed: the participant alone writes it. */
    uint64_t before = atomic_load_explicit(&participant->seen, memory_order_relaxed);
    atomic_store(&participant->seen, seen);
    FW_YIELD_POINT("quiesce: wrote what was seen");
    if (before != OFFLINE && atomic_load(&participant->domain->epoch) != before) {
        quiescence_check(participant->domain);
    }
}

void fw_safety_offline(struct fw_participant *participant)
{
    safety_write(participant, OFFLINE);
}

void fw_safety_pass(struct fw_participant *participant)
{
    /* Acquire, for who raised it; all it costs while nobody asks for quiescence. */
    uint64_t epoch = atomic_load_explicit(&participant->domain->epoch, memory_order_acquire);
    if (FW_UNLIKELY(epoch != atomic_load_explicit(&participant->seen, memory_order_relaxed))) {
        safety_write(participant, epoch);
    }
}

bool fw_domain_quiesce(struct fw_domain *domain, struct fw_fom *fom,
                       struct fw_quiescence *quiescence)
{
    if (quiescence->target == 0) {
        quiescence->ticket = fw_fom_ticket(fom);
        atomic_init(&quiescence->is_passed, false);
        fw_list_link_init(&quiescence->link);
        fw_mutex_lock(&domain->lock);
        quiescence->target = atomic_fetch_add(&domain->epoch, 1) + 1;
        fw_list_push_back(&domain->quiescences, &quiescence->link);
        fw_mutex_unlock(&domain->lock);
        /* The caller's own core has not passed it, so it cannot be granted before this returns. */
        return false;
    }
    /* Acquire, for the release in quiescence_check(). */
    return atomic_load_explicit(&quiescence->is_passed, memory_order_acquire);
}

void fw_quiescence_cancel(struct fw_domain *domain, struct fw_quiescence *quiescence)
{
    fw_mutex_lock(&domain->lock);
    if (fw_list_is_linked(&quiescence->link)) {
        fw_list_remove(&quiescence->link);
    }
    fw_mutex_unlock(&domain->lock);
}

void fw_participant_attach(struct fw_participant *participant, struct fw_domain *domain)
{
    participant->domain = domain;
    atomic_init(&participant->seen, OFFLINE);
    fw_list_link_init(&participant->link);
    fw_mutex_lock(&domain->lock);
    fw_list_push_back(&domain->participants, &participant->link);
    fw_mutex_unlock(&domain->lock);
}

void fw_participant_enter(struct fw_participant *participant)
{
    fw_safety_online(participant);
}

void fw_participant_leave(struct fw_participant *participant)
{
    fw_safety_offline(participant);
}

void fw_participant_detach(struct fw_participant *participant)
{
    FW_ASSERT(atomic_load_explicit(&participant->seen, memory_order_relaxed) == OFFLINE);
    struct fw_domain *domain = participant->domain;
    fw_mutex_lock(&domain->lock);
    fw_list_remove(&participant->link);
    fw_mutex_unlock(&domain->lock);
}
