/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that a fom has done elsewhere.
 *
 * The work lies in the fom's memory and another thread is at it, so until it is done the fom is
 * neither found overdue nor failed by a stop: it has a count of such works, and a tick comes when
 * the last is done. The last that the other thread does to the fom's memory is to lower the count.
 * Then it wakes by ticket, which may be too late to mean anything, and is harmless.
 */
#include <errno.h>

#include <fairway/engine.h>

#include "base/assert.h"
#include "engine/core.h"

int fw_fom_offload(struct fw_fom *fom, struct fw_offload *work)
{
    const struct fw_domain_config *config = &fw_fom_domain(fom)->config;
    FW_ASSERT(fom->flags & FW_FOM_IN_TICK);
    if (config->offload == NULL) {
        return -ENOTSUP;
    }
    work->ticket = fw_fom_ticket(fom);
    fw_list_link_init(&work->link);
    atomic_init(&work->is_done, false);
    /* Relaxed: who is given the work gets it by something that orders memory. */
    atomic_fetch_add_explicit(&fom->offload_count, 1, memory_order_relaxed);
    int rc = config->offload(config->offload_context, work);
    if (rc != 0) {
        atomic_fetch_sub_explicit(&fom->offload_count, 1, memory_order_relaxed);
    }
    return rc;
}

void fw_offload_run(struct fw_offload *work)
{
    work->run(work);
    struct fw_ticket ticket = work->ticket;
    FW_YIELD_POINT("offload: done");
    /* Release, for the acquire of the fom that looks. */
    atomic_store_explicit(&work->is_done, true, memory_order_release);
    FW_YIELD_POINT("offload: said so");
    /* Release, for the acquire in fom_is_offloaded(). The work may be gone after this. */
    atomic_fetch_sub_explicit(&ticket.fom->offload_count, 1, memory_order_release);
    fw_ticket_wake(ticket);
}
