/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `wfq` and `tbf` have in common: tenants with requests stand in one of two heaps,
 *
 *               tokens are there                         tokens are there
 *     arrival ─────────────────► ready ──────► getter   ◄───────────────── held
 *                                  └──────────── none ────────────────────► ▲ by the time at which
 *                                                                             they should be back
 *
 * and differ in the order of the first: by virtual time, or by arrival.
 *
 * Virtual time (wfq). Start-time fair queueing: a request goes when its tenant's tag is the
 * smallest, and moves that on by cost / weight. `virtual_now` is the largest tag of a request that
 * went; who comes from idleness starts there. So while two tenants have requests waiting here, what
 * they have had, each divided by its weight, differs by no more than the largest request of either.
 * What other heads gave a tenant is found in the shared virtual time and moves its tag on too, by
 * FW_SCHED_ELSEWHERE_MAX units per request at most: a tenant is never held back for long for what
 * it had elsewhere, and heads' clocks, which nothing ties together, need not agree.
 *
 * Other heads move tags while a tenant stands in the heap, so its place there may be too early,
 * never too late but for costs that are corrected downwards. Who comes out on top is looked at
 * again, and put back with its present tag. A tenant that has run out of requests keeps its place
 * until it comes out on top: mostly it is back by then.
 *
 * Memory: two heaps with room for all tenants, and the table of clients; made with the policy.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fairway/sched_policy.h>

#include "base/base.h"

FW_MUST_CHECK int fw_dues_init(struct fw_sched *sched, bool by_weight);
void fw_dues_fini(struct fw_sched *sched);
bool fw_dues_enqueue(struct fw_sched *sched, struct fw_sched_request *request);
struct fw_sched_request *fw_dues_dequeue(struct fw_sched *sched);
/* The next of this tenant, whatever the order, if it may go; else NULL. For policies by weight. */
struct fw_sched_request *fw_dues_dequeue_of(struct fw_sched *sched, uint32_t number);
void fw_dues_remove(struct fw_sched *sched, struct fw_sched_request *request);
struct fw_sched_request *fw_dues_evacuate(struct fw_sched *sched);
bool fw_dues_pass(struct fw_sched *sched, const struct fw_sched_request *request);
void fw_dues_charge(struct fw_sched *sched, const struct fw_sched_request *request, uint32_t cost);
int64_t fw_dues_ready_ns(struct fw_sched *sched);

/* All but the name and the init(). */
#define FW_DUES_POLICY FW_DUES_POLICY_BUT_DEQUEUE, .dequeue = fw_dues_dequeue
/* And but how to choose. */
#define FW_DUES_POLICY_BUT_DEQUEUE                                                \
    .has_tenants = true, .fini = fw_dues_fini, .enqueue = fw_dues_enqueue,        \
    .remove = fw_dues_remove, .evacuate = fw_dues_evacuate, .pass = fw_dues_pass, \
    .charge = fw_dues_charge, .ready_ns = fw_dues_ready_ns
