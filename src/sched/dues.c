/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/dues.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/list.h"
#include "sched/heap.h"
#include "sched/policy.h"
#include "sched/tenants.h"
#include "sched/turns.h"

/* While all wait for tokens, how long new dues may go unnoticed. */
#define LOOK_AGAIN_NS INT64_C(100000000)
/* Far from where tags would run over: one request moves them by less than 2^52. */
#define VIRTUAL_MAX (UINT64_C(1) << 62)

/* What is held against a tenant is counted in these, of virtual time: so it fits 16 bits. */
#define ELSEWHERE_PART      (FW_TENANT_STEP / 32)
#define ELSEWHERE_PARTS_MAX (UINT64_C(32) * FW_SCHED_ELSEWHERE_MAX)
static_assert(ELSEWHERE_PARTS_MAX <= UINT16_MAX, "fits struct fw_flow");

struct dues {
    struct fw_heap ready;
    struct fw_heap held; /* By ns. */
    uint64_t virtual_now;
    uint32_t generation; /* Of the dues by which `held` was filled. */
    bool by_weight;
    struct fw_turns turns;
};

/* Relaxed, as tenants.h says. */
static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static struct fw_tenant *tenant_of(struct fw_sched *sched, uint64_t number)
{
    return &sched->tenants->of[number];
}

/* ---- making -------------------------------------------------------------------------------- */

int fw_dues_init(struct fw_sched *sched, bool by_weight)
{
    struct dues *dues = calloc(1, sizeof *dues);
    if (dues == NULL) {
        return -ENOMEM;
    }
    dues->by_weight = by_weight;
    if (fw_heap_init(&dues->ready, FW_SCHED_TENANTS_MAX) != 0 ||
        fw_heap_init(&dues->held, FW_SCHED_TENANTS_MAX) != 0 ||
        fw_turns_init(&dues->turns, true) != 0) {
        fw_heap_fini(&dues->ready);
        fw_heap_fini(&dues->held);
        free(dues);
        return -ENOMEM;
    }
    /* What was had under another policy is past. */
    uint32_t count = fw_tenants_count(sched->tenants);
    for (uint32_t i = 0; i < count; i++) {
        sched->flows->of[i].tag = 0;
        sched->flows->of[i].seen = load(&tenant_of(sched, i)->virtual_time);
    }
    sched->state = dues;
    return 0;
}

void fw_dues_fini(struct fw_sched *sched)
{
    struct dues *dues = sched->state;
    fw_turns_fini(&dues->turns);
    fw_heap_fini(&dues->ready);
    fw_heap_fini(&dues->held);
    free(dues);
}

/* ---- virtual time -------------------------------------------------------------------------- */

/*
 * Counts what other heads gave it since this was last asked. Each of its requests is put back by
 * FW_SCHED_ELSEWHERE_MAX units at most: however busy it is elsewhere, it goes then. These are units
 * of weight 1, that is virtual time, the same for all: were they its own, a tenant of weight 3
 * would be forgiven three times as much as one of weight 1 whenever another head was ahead.
 */
static void flow_catch_up(const struct dues *dues, struct fw_flow *flow,
                          const struct fw_tenant *tenant)
{
    uint64_t shared = load(&tenant->virtual_time);
    int64_t elsewhere = (int64_t)(shared - flow->seen);
    if (FW_LIKELY(elsewhere == 0)) {
        return;
    }
    flow->seen = shared;
    if (elsewhere > 0) {
        uint64_t left = (ELSEWHERE_PARTS_MAX - flow->elsewhere) * ELSEWHERE_PART;
        uint64_t held = (uint64_t)elsewhere < left ? (uint64_t)elsewhere : left;
        flow->elsewhere += (uint16_t)((held + ELSEWHERE_PART - 1) / ELSEWHERE_PART);
        flow->tag += held;
    } else if (flow->tag > dues->virtual_now) { /* It cost less than was thought. */
        uint64_t ahead = flow->tag - dues->virtual_now;
        uint64_t less = (uint64_t)-elsewhere;
        flow->tag -= less < ahead ? less : ahead;
    }
}

/* Starts to have something to do here: not before the others' present. */
static void flow_begin(const struct dues *dues, struct fw_flow *flow,
                       const struct fw_tenant *tenant)
{
    flow->tag = flow->tag > dues->virtual_now ? flow->tag : dues->virtual_now;
    flow_catch_up(dues, flow, tenant);
}

/* Has had so many units, by this head; less than zero: it had been charged too many. */
static void flow_advance(struct fw_flow *flow, struct fw_tenant *tenant, int64_t units)
{
    uint64_t step = load(&tenant->step);
    flow->tag += (uint64_t)units * step;
    int64_t unshared = flow->unshared + units;
    if (unshared >= FW_TENANT_SHARED_AT || unshared <= -FW_TENANT_SHARED_AT) {
        uint64_t amount = (uint64_t)unshared * step;
        unshared = 0;
        flow->seen += amount;
        FW_YIELD_POINT("sched: has counted for itself");
        /* Relaxed, as tenants.h says; it meets the load in flow_catch_up(). */
        atomic_fetch_add_explicit(&tenant->virtual_time, amount, memory_order_relaxed);
    }
    flow->unshared = (int32_t)unshared;
}

/* Once in many billions of requests: all tags begin anew, in the same order. */
static void virtual_rebase(struct fw_sched *sched, struct dues *dues)
{
    uint64_t base = dues->virtual_now;
    uint32_t count = fw_tenants_count(sched->tenants);
    for (uint32_t i = 0; i < count; i++) {
        struct fw_flow *flow = &sched->flows->of[i];
        flow->tag = flow->tag > base ? flow->tag - base : 0;
    }
    for (uint32_t i = 0; i < dues->ready.count; i++) {
        struct fw_heap_entry *entry = &dues->ready.entries[i];
        entry->key = entry->key > base ? entry->key - base : 0;
    }
    dues->virtual_now = 0;
}

/* A request of that cost goes. */
static void flow_go(struct fw_sched *sched, struct dues *dues, struct fw_flow *flow,
                    struct fw_tenant *tenant, uint32_t cost)
{
    if (flow->tag > dues->virtual_now) {
        dues->virtual_now = flow->tag;
        if (FW_UNLIKELY(dues->virtual_now > VIRTUAL_MAX)) {
            virtual_rebase(sched, dues);
        }
    }
    flow->elsewhere = 0;
    flow_advance(flow, tenant, fw_sched_cost(cost));
}

/* ---- tokens -------------------------------------------------------------------------------- */

/* Its limit, or 0: none, none that could be held, or none that counts any more. */
static uint64_t rate_of(const struct fw_sched *sched, const struct fw_tenant *tenant)
{
    return sched->arm == NULL || sched->is_shut_down ? 0 : load(&tenant->rate);
}

static bool is_late(const struct fw_sched *sched, const struct fw_tenant *tenant,
                    const struct fw_sched_request *request)
{
    /* Relaxed, as tenants.h says. */
    int64_t delay_max_ns = atomic_load_explicit(&tenant->delay_max_ns, memory_order_relaxed);
    return delay_max_ns != 0 && sched->now_ns - request->since_ns > delay_max_ns;
}

/* The one on top of those that are ready has to wait for tokens until `again_ns`. */
static void flow_hold(struct fw_sched *sched, struct dues *dues, struct fw_flow *flow,
                      const struct fw_sched_request *request, int64_t again_ns)
{
    uint32_t number = (uint32_t)dues->ready.entries[0].tenant;
    int64_t delay_max_ns =
        atomic_load_explicit(&tenant_of(sched, number)->delay_max_ns, memory_order_relaxed);
    if (delay_max_ns != 0 && request->since_ns + delay_max_ns < again_ns) {
        again_ns = request->since_ns + delay_max_ns + 1;
    }
    fw_heap_pop(&dues->ready);
    fw_heap_push(&dues->held, (uint64_t)again_ns, number);
    flow->is_ready = false;
    flow->is_held = true;
    if (!flow->is_throttled) {
        flow->is_throttled = true;
        fw_gauge_set(&sched->flows->figures[number].throttled_since_ns, sched->now_ns);
    }
}

/* A request of its went, or none is left. */
static void flow_unthrottle(struct fw_sched *sched, uint32_t number)
{
    struct fw_flow *flow = &sched->flows->of[number];
    if (FW_UNLIKELY(flow->is_throttled)) {
        flow->is_throttled = false;
        fw_gauge_set(&sched->flows->figures[number].throttled_since_ns, 0);
    }
}

static uint64_t flow_key(const struct dues *dues, const struct fw_flow *flow)
{
    if (dues->by_weight) {
        return flow->tag;
    }
    struct fw_list_link *link = fw_list_first(&flow->waiting_here);
    return link != NULL ? FW_LIST_ENTRY(link, struct fw_sched_request, link)->number : 0;
}

/* Those whose time has come, or all if there are new dues or none any more. */
static void held_release(struct fw_sched *sched, struct dues *dues)
{
    uint32_t generation = atomic_load_explicit(&sched->tenants->generation, memory_order_relaxed);
    bool is_all = sched->is_shut_down || generation != dues->generation;
    dues->generation = generation;
    while (dues->held.count > 0 &&
           (is_all || dues->held.entries[0].key <= (uint64_t)sched->now_ns)) {
        uint32_t number = (uint32_t)dues->held.entries[0].tenant;
        struct fw_flow *flow = &sched->flows->of[number];
        fw_heap_pop(&dues->held);
        flow->is_held = false;
        flow->is_ready = true;
        flow->held_until_ns = sched->now_ns;
        if (dues->by_weight) { /* Who may not go is as good as idle: nothing is saved up. */
            flow_begin(dues, flow, tenant_of(sched, number));
        }
        fw_heap_push(&dues->ready, flow_key(dues, flow), number);
    }
}

/* ---- the policy ---------------------------------------------------------------------------- */

bool fw_dues_enqueue(struct fw_sched *sched, struct fw_sched_request *request)
{
    struct dues *dues = sched->state;
    uint32_t number = request->tenant;
    struct fw_flow *flow = &sched->flows->of[number];
    if (FW_UNLIKELY(flow->waiting_here.head.next == NULL)) {
        fw_list_init(&flow->waiting_here);
    }
    bool is_first = fw_list_is_empty(&flow->waiting_here);
    if (dues->by_weight) {
        fw_turns_push(&dues->turns, &flow->waiting_here, request);
    } else {
        fw_list_push_back(&flow->waiting_here, &request->link);
    }
    if (is_first) {
        if (dues->by_weight) {
            flow_begin(dues, flow, tenant_of(sched, number));
        }
        if (!flow->is_ready && !flow->is_held) {
            flow->is_ready = true;
            fw_heap_push(&dues->ready, flow_key(dues, flow), number);
        }
    }
    return true;
}

static struct fw_sched_request *flow_pop(struct dues *dues, struct fw_flow *flow)
{
    return dues->by_weight ? fw_turns_pop(&dues->turns, &flow->waiting_here)
                           : fw_sched_list_pop(&flow->waiting_here);
}

/*
 * With thousands of tenants nothing of the next one is in a near cache. It is on top now, and the
 * one after it is among its children: those are fetched, and of the one on top, whose turn to be
 * fetched has been, the request. Half the time of a request goes by waiting for memory otherwise.
 */
static void tops_prefetch(struct fw_sched *sched, const struct dues *dues)
{
    uint32_t count = dues->ready.count < 5 ? dues->ready.count : 5;
    for (uint32_t i = 1; i < count; i++) {
        uint64_t number = dues->ready.entries[i].tenant;
        __builtin_prefetch(&sched->flows->of[number], 1);
        __builtin_prefetch(tenant_of(sched, number), 1);
    }
    const struct fw_flow *flow = &sched->flows->of[dues->ready.entries[0].tenant];
    __builtin_prefetch(flow->waiting_here.head.next, 1);
}

/* The first of a tenant's requests, if it may go: it is charged, and told whether it is shed. */
static bool flow_let_go(struct fw_sched *sched, struct dues *dues, uint32_t number,
                        struct fw_sched_request *request, int64_t *again_ns)
{
    struct fw_flow *flow = &sched->flows->of[number];
    struct fw_tenant *tenant = tenant_of(sched, number);
    request->is_shed = is_late(sched, tenant, request);
    if (request->is_shed) {
        return true;
    }
    uint64_t rate = rate_of(sched, tenant);
    if (rate != 0 && !fw_tenant_take(tenant, rate, request->class.cost, sched->now_ns, again_ns)) {
        return false;
    }
    flow_unthrottle(sched, number);
    if (dues->by_weight) {
        flow_go(sched, dues, flow, tenant, request->class.cost);
    }
    return true;
}

/* What the one on top gives out; NULL: it is not on top any more. */
static struct fw_sched_request *top_try(struct fw_sched *sched, struct dues *dues)
{
    uint32_t number = (uint32_t)dues->ready.entries[0].tenant;
    struct fw_flow *flow = &sched->flows->of[number];
    struct fw_list_link *link = fw_list_first(&flow->waiting_here);
    if (link == NULL) {
        fw_heap_pop(&dues->ready);
        flow->is_ready = false;
        flow_unthrottle(sched, number);
        return NULL;
    }
    if (dues->by_weight) {
        flow_catch_up(dues, flow, tenant_of(sched, number));
    }
    uint64_t key = flow_key(dues, flow);
    if (key > dues->ready.entries[0].key) {
        fw_heap_change_top(&dues->ready, key);
        return NULL;
    }
    struct fw_sched_request *request = FW_LIST_ENTRY(link, struct fw_sched_request, link);
    int64_t again_ns;
    if (!flow_let_go(sched, dues, number, request, &again_ns)) {
        flow_hold(sched, dues, flow, request, again_ns);
        return NULL;
    }
    struct fw_sched_request *popped = flow_pop(dues, flow);
    FW_ASSERT(popped == request);
    fw_heap_change_top(&dues->ready, flow_key(dues, flow));
    tops_prefetch(sched, dues);
    return popped;
}

/* Its place among those who are ready is too early then, which top_try() sees. */
struct fw_sched_request *fw_dues_dequeue_of(struct fw_sched *sched, uint32_t number)
{
    struct dues *dues = sched->state;
    struct fw_flow *flow = &sched->flows->of[number];
    struct fw_list_link *link = flow->is_ready ? fw_list_first(&flow->waiting_here) : NULL;
    if (link == NULL) {
        return NULL;
    }
    struct fw_sched_request *request = FW_LIST_ENTRY(link, struct fw_sched_request, link);
    int64_t again_ns;
    if (!flow_let_go(sched, dues, number, request, &again_ns)) {
        return NULL;
    }
    struct fw_sched_request *popped = flow_pop(dues, flow);
    FW_ASSERT(popped == request);
    return popped;
}

struct fw_sched_request *fw_dues_dequeue(struct fw_sched *sched)
{
    struct dues *dues = sched->state;
    if (dues->held.count > 0) {
        held_release(sched, dues);
    }
    while (dues->ready.count > 0) {
        struct fw_sched_request *request = top_try(sched, dues);
        if (request != NULL) {
            return request;
        }
    }
    return NULL;
}

void fw_dues_remove(struct fw_sched *sched, struct fw_sched_request *request)
{
    struct dues *dues = sched->state;
    if (dues->by_weight) {
        fw_turns_remove(&dues->turns, request);
    } else {
        fw_list_remove(&request->link);
    }
}

/* From the end of one heap: nobody minds the order, but all are to have left it. */
static struct fw_sched_request *heap_evacuate(struct fw_sched *sched, struct dues *dues,
                                              struct fw_heap *heap)
{
    while (heap->count > 0) {
        uint32_t number = (uint32_t)heap->entries[heap->count - 1].tenant;
        struct fw_flow *flow = &sched->flows->of[number];
        struct fw_sched_request *request = flow_pop(dues, flow);
        if (request != NULL) {
            return request;
        }
        (void)fw_heap_take_last(heap);
        flow->is_ready = false;
        flow->is_held = false;
        flow_unthrottle(sched, number);
    }
    return NULL;
}

struct fw_sched_request *fw_dues_evacuate(struct fw_sched *sched)
{
    struct dues *dues = sched->state;
    struct fw_sched_request *request = heap_evacuate(sched, dues, &dues->ready);
    return request != NULL ? request : heap_evacuate(sched, dues, &dues->held);
}

bool fw_dues_pass(struct fw_sched *sched, const struct fw_sched_request *request)
{
    struct dues *dues = sched->state;
    uint32_t number = fw_flows_number(sched->flows, &request->class);
    struct fw_flow *flow = &sched->flows->of[number];
    struct fw_tenant *tenant = tenant_of(sched, number);
    uint64_t rate = rate_of(sched, tenant);
    if (rate != 0) {
        int64_t again_ns;
        int64_t now_ns = fw_sched_time(sched);
        if (!fw_tenant_take(tenant, rate, request->class.cost, now_ns, &again_ns)) {
            return false;
        }
    }
    if (dues->by_weight) {
        flow_begin(dues, flow, tenant);
        flow_go(sched, dues, flow, tenant, request->class.cost);
    }
    return true;
}

void fw_dues_charge(struct fw_sched *sched, const struct fw_sched_request *request, uint32_t cost)
{
    const struct dues *dues = sched->state;
    uint32_t number = fw_flows_number(sched->flows, &request->class);
    struct fw_flow *flow = &sched->flows->of[number];
    struct fw_tenant *tenant = tenant_of(sched, number);
    int64_t more = (int64_t)fw_sched_cost(cost) - (int64_t)fw_sched_cost(request->class.cost);
    if (more == 0) {
        return;
    }
    uint64_t rate = rate_of(sched, tenant);
    if (rate != 0) {
        int64_t ticks = fw_tenant_ticks(cost, rate) - fw_tenant_ticks(request->class.cost, rate);
        fw_tenant_correct(tenant, ticks);
    }
    if (dues->by_weight) {
        /* Less than was thought: it was in the tag, so the difference is too. */
        flow_advance(flow, tenant, more);
        flow->tag = (int64_t)flow->tag < 0 ? 0 : flow->tag;
    }
}

int64_t fw_dues_ready_ns(struct fw_sched *sched)
{
    const struct dues *dues = sched->state;
    if (dues->held.count == 0) {
        return INT64_MAX;
    }
    int64_t when_ns = (int64_t)dues->held.entries[0].key;
    int64_t limit_ns = sched->now_ns + LOOK_AGAIN_NS;
    return when_ns < limit_ns ? when_ns : limit_ns;
}
