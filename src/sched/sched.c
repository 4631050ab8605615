/* SPDX-License-Identifier: Apache-2.0 */
#include <fairway/sched.h>

#include <errno.h>

#include "base/assert.h"
#include "base/base.h"
#include "base/list.h"
#include "sched/policy.h"
#include "sched/tenants.h"

const struct fw_sched_policy *const fw_sched_policies[] = {
    [FW_SCHED_FIFO] = &fw_sched_fifo,   [FW_SCHED_CRR] = &fw_sched_crr,
    [FW_SCHED_WFQ] = &fw_sched_wfq,     [FW_SCHED_TBF] = &fw_sched_tbf,
    [FW_SCHED_SHARE] = &fw_sched_share, [FW_SCHED_GANG] = &fw_sched_gang,
};

/* Why nothing may be given out just now. */
enum {
    BUSY_MATCHING = 1, /* Call-backs are being run further up the stack. */
    BUSY_NO_EPOCH = 2, /* The first epoch has not begun. */
};

enum { NOW_UNKNOWN = 0 }; /* Nobody looked when the last request was given out. */

/* Where a request waits. */
enum { PLACE_RETURNED, PLACE_URGENT, PLACE_QUEUE, PLACE_POLICY };

static struct fw_sched_request *request_of(struct fw_list_link *link)
{
    return link != NULL ? FW_LIST_ENTRY(link, struct fw_sched_request, link) : NULL;
}

static void match(struct fw_sched *sched);

/* ---- lists, for policies ------------------------------------------------------------------- */

void fw_sched_list_init(struct fw_list *list)
{
    fw_list_init(list);
}

void fw_sched_list_push(struct fw_list *list, struct fw_sched_request *request)
{
    fw_list_push_back(list, &request->link);
}

struct fw_sched_request *fw_sched_list_pop(struct fw_list *list)
{
    return request_of(fw_list_pop_front(list));
}

void fw_sched_list_remove(struct fw_sched_request *request)
{
    fw_list_remove(&request->link);
}

/* ---- epochs -------------------------------------------------------------------------------- */

/* Without peers it goes on by itself: what is negative is as good a beginning. */
static void epoch_started(void *argument, int64_t number, void *data, size_t length)
{
    struct fw_sched *sched = argument;
    (void)data;
    (void)length;
    FW_ASSERT(!sched->has_left);
    sched->epoch_number = number > 0 ? number : FW_EPOCH_FIRST;
    sched->busy &= ~(uint32_t)BUSY_NO_EPOCH;
    match(sched);
}

static void epoch_leave(struct fw_sched *sched)
{
    if (!sched->has_left) {
        sched->has_left = true;
        fw_epoch_last(sched->epoch, sched->epoch_number);
    }
}

/* ---- making and ending --------------------------------------------------------------------- */

/* Takes the tenants, or makes some for a policy that cannot do without. */
static int tenants_prepare(struct fw_sched *sched, const struct fw_sched_policy *policy)
{
    if (sched->flows != NULL || (sched->tenants == NULL && !policy->has_tenants)) {
        return 0;
    }
    sched->has_own_tenants = sched->tenants == NULL;
    int rc = sched->has_own_tenants ? fw_tenants_create(&sched->tenants) : 0;
    if (rc != 0) {
        return rc;
    }
    sched->flows = fw_flows_create(sched->tenants);
    if (sched->flows == NULL && sched->has_own_tenants) {
        fw_tenants_destroy(sched->tenants);
        sched->tenants = NULL;
    }
    return sched->flows != NULL ? 0 : -ENOMEM;
}

static void tenants_leave(struct fw_sched *sched)
{
    if (sched->flows != NULL) {
        fw_flows_destroy(sched->flows);
        sched->flows = NULL;
        if (sched->has_own_tenants) {
            fw_tenants_destroy(sched->tenants);
        }
    }
}

static const struct fw_sched_policy *policy_of(enum fw_sched_policy_number number)
{
    FW_ASSERT(number < FW_SCHED_POLICIES);
    return fw_sched_policies[number];
}

int fw_sched_init(struct fw_sched *sched, const struct fw_sched_config *config)
{
    *sched = (struct fw_sched){
        .policy = config->custom != NULL ? config->custom : policy_of(config->policy),
        .busy = BUSY_NO_EPOCH,
        .tenants = config->tenants,
        .armed_ns = INT64_MAX,
        .urgent_ratio = config->urgent_ratio != 0 ? config->urgent_ratio : FW_SCHED_URGENT_RATIO,
        .arm = config->arm,
        .now = config->now,
    };
    fw_list_init(&sched->getters);
    fw_list_init(&sched->returned);
    fw_list_init(&sched->urgent);
    fw_list_init(&sched->queue);
    int rc = tenants_prepare(sched, sched->policy);
    if (rc != 0) {
        return rc;
    }
    rc = sched->policy->init != NULL ? sched->policy->init(sched) : 0;
    if (rc != 0) {
        tenants_leave(sched);
        return rc;
    }
    sched->epoch = config->epoch;
    if (sched->epoch == NULL) {
        fw_epoch_local_init(&sched->local_epoch, NULL);
        sched->epoch = &sched->local_epoch;
    }
    fw_epoch_next(sched->epoch, FW_EPOCH_FIRST, NULL, 0, epoch_started, sched);
    return 0;
}

void fw_sched_fini(struct fw_sched *sched)
{
    FW_ASSERT(sched->waiting_count == 0 && (sched->busy & BUSY_MATCHING) == 0);
    FW_ASSERT(sched->getter == NULL);
    epoch_leave(sched);
    if (sched->armed_ns != INT64_MAX) {
        sched->arm(sched, INT64_MAX);
    }
    if (sched->policy->fini != NULL) {
        sched->policy->fini(sched);
    }
    tenants_leave(sched);
}

/* ---- figures ------------------------------------------------------------------------------- */

/* One more or one less waits. */
static void waiting_change(struct fw_sched *sched, const struct fw_sched_request *request,
                           int change)
{
    sched->waiting_count += (uint64_t)change;
    if (sched->flows != NULL) {
        fw_counter_add(&sched->flows->of[request->tenant].waiting, (uint64_t)change);
    }
}

/* One was served after that delay. */
static void delay_count(const struct fw_flows *flows, uint32_t number, int64_t delay_ns)
{
    uint64_t delay = delay_ns > 0 ? (uint64_t)delay_ns : 1;
    uint32_t power = 63 - (uint32_t)__builtin_clzll(delay);
    power = power < FW_SCHED_DELAYS ? power : FW_SCHED_DELAYS - 1;
    fw_counter_increment(fw_flows_delays(flows, power, number));
}

/* ---- matching ------------------------------------------------------------------------------ */

/* The usual case is one getter, which is in no list. */
static inline struct fw_sched_getter *getter_take(struct fw_sched *sched)
{
    struct fw_sched_getter *getter = sched->getter;
    struct fw_list_link *link = fw_list_pop_front(&sched->getters);
    sched->getter =
        FW_UNLIKELY(link != NULL) ? FW_LIST_ENTRY(link, struct fw_sched_getter, link) : NULL;
    return getter;
}

/* Of those that are not urgent. Every so often the queue goes before the policy. */
static struct fw_sched_request *ordinary_take(struct fw_sched *sched)
{
    const struct fw_sched_policy *policy = sched->policy;
    if (policy->dequeue == NULL) {
        return fw_sched_list_pop(&sched->queue);
    }
    if (FW_UNLIKELY(!fw_list_is_empty(&sched->queue)) && ++sched->turn >= sched->urgent_ratio) {
        sched->turn = 0;
        return fw_sched_list_pop(&sched->queue);
    }
    struct fw_sched_request *request = policy->dequeue(sched);
    return request != NULL ? request : fw_sched_list_pop(&sched->queue);
}

/* A policy that has tenants has looked already. */
static bool is_late(const struct fw_sched *sched, const struct fw_sched_request *request)
{
    if (sched->policy->has_tenants) {
        return request->is_shed;
    }
    uint32_t number = fw_flows_number(sched->flows, &request->class);
    /* Relaxed, as tenants.h says. */
    int64_t delay_max_ns =
        atomic_load_explicit(&sched->tenants->of[number].delay_max_ns, memory_order_relaxed);
    return delay_max_ns != 0 && sched->now_ns - request->since_ns > delay_max_ns;
}

static struct fw_sched_request *request_take(struct fw_sched *sched)
{
    if (sched->waiting_count == 0) {
        return NULL;
    }
    if (sched->flows != NULL) {
        sched->now_ns = fw_sched_time(sched);
    }
    struct fw_sched_request *request = fw_sched_list_pop(&sched->returned);
    if (FW_UNLIKELY(request != NULL)) {
        return request;
    }
    bool is_urgent = !fw_list_is_empty(&sched->urgent);
    if (!is_urgent || sched->in_a_row >= sched->urgent_ratio) {
        request = ordinary_take(sched);
        if (request != NULL) {
            sched->in_a_row = 0;
            request->is_delayed = true;
            request->is_shed = sched->flows != NULL && is_late(sched, request);
            return request;
        }
    }
    request = fw_sched_list_pop(&sched->urgent);
    if (request != NULL) {
        sched->in_a_row++;
        request->is_delayed = true;
    }
    return request;
}

/*
 * It begins to wait. While another is being served it will do to know when that was given out: so
 * the clock is read once for each request instead of twice.
 */
static void request_begin(struct fw_sched *sched, struct fw_sched_request *request)
{
    request->number = ++sched->number;
    request->tenant = 0;
    request->since_ns = 0;
    if (sched->flows != NULL) {
        if (sched->getter != NULL || sched->now_ns == NOW_UNKNOWN) {
            sched->now_ns = fw_sched_time(sched);
        }
        request->tenant = (uint16_t)fw_flows_number(sched->flows, &request->class);
        request->since_ns = sched->now_ns;
    }
}

static void request_return(struct fw_sched *sched, struct fw_sched_request *request)
{
    FW_ASSERT(!fw_sched_is_waiting(request));
    request->place = PLACE_RETURNED;
    fw_list_push_front(&sched->returned, &request->link);
    waiting_change(sched, request, 1);
}

/* Gives it to the getter that has waited longest. */
static void request_give(struct fw_sched *sched, struct fw_sched_request *request)
{
    struct fw_sched_getter *getter = getter_take(sched);
    sched->waiting_count--;
    if (getter->ready(getter, request) != 0) {
        request_return(sched, request);
    } else {
        sched->admitted_count++;
    }
}

/* The same, where tenants are counted. The call-back may end the request's life. */
static void request_give_counted(struct fw_sched *sched, struct fw_sched_request *request)
{
    struct fw_flows *flows = sched->flows;
    uint32_t number = request->tenant;
    struct fw_flow *flow = &flows->of[number];
    uint32_t cost = request->class.cost;
    int64_t since_ns = request->since_ns;
    int64_t delay_ns = sched->now_ns - since_ns;
    bool is_shed = request->is_shed;
    uint64_t admitted_count = sched->admitted_count;
    fw_counter_add(&flow->waiting, (uint64_t)-1);
    request_give(sched, request);
    if (sched->admitted_count == admitted_count) {
        return; /* It was given back. */
    }
    if (FW_UNLIKELY(is_shed)) {
        fw_counter_increment(&flows->figures[number].shed);
        return;
    }
    fw_counter_add(&flow->cost, cost);
    if (FW_UNLIKELY(flow->held_until_ns != 0) && flow->held_until_ns >= since_ns) {
        fw_counter_increment(&flows->figures[number].throttled);
    }
    delay_count(flows, number, delay_ns);
}

/* Some wait for others than getters: asks to be called when they may go. */
static void poll_ask(struct fw_sched *sched)
{
    if (sched->arm == NULL || sched->policy->ready_ns == NULL) {
        return;
    }
    int64_t when_ns = sched->policy->ready_ns(sched);
    if (when_ns < sched->armed_ns) { /* Else it comes early, and asks again. */
        sched->armed_ns = when_ns;
        sched->arm(sched, when_ns);
    }
}

/* Brings requests and getters together until one side has run out. */
static void match(struct fw_sched *sched)
{
    if (sched->busy != 0) {
        return; /* Further up the stack this goes on, or when the epoch starts. */
    }
    sched->busy = BUSY_MATCHING;
    while (sched->getter != NULL) {
        struct fw_sched_request *request = request_take(sched);
        if (request != NULL && sched->flows != NULL) {
            request_give_counted(sched, request);
        } else if (request != NULL) {
            request_give(sched, request);
        } else if (sched->is_shut_down && sched->waiting_count == 0) {
            struct fw_sched_getter *getter = getter_take(sched);
            (void)getter->ready(getter, NULL); /* There is nothing to give back. */
        } else {
            break;
        }
    }
    sched->busy = 0;
    if (FW_UNLIKELY(sched->is_shut_down) && sched->waiting_count == 0) {
        epoch_leave(sched);
    } else if (sched->getter != NULL && sched->waiting_count > 0) {
        poll_ask(sched);
    }
}

/*
 * Nobody was before it, and somebody waits for it. This is what a request meets in a server that
 * keeps up, so it is kept free of all that only others need.
 */
static inline bool request_hand(struct fw_sched *sched, struct fw_sched_request *request)
{
    struct fw_sched_getter *getter = getter_take(sched);
    sched->busy = BUSY_MATCHING;
    bool is_returned = getter->ready(getter, request) != 0;
    sched->busy = 0;
    if (FW_UNLIKELY(is_returned)) {
        request_begin(sched, request);
        request_return(sched, request);
    } else {
        sched->admitted_count++;
        sched->passed_count++;
    }
    return !is_returned;
}

static void request_pass(struct fw_sched *sched, struct fw_sched_request *request)
{
    (void)request_hand(sched, request);
    if (FW_UNLIKELY(sched->getter != NULL)) {
        match(sched); /* With what the call-back has handed in, or did not want. */
    }
}

/* The same, where tenants are counted. */
static __attribute__((noinline)) void request_pass_counted(struct fw_sched *sched,
                                                           struct fw_sched_request *request)
{
    uint32_t number = fw_flows_number(sched->flows, &request->class);
    uint32_t cost = request->class.cost; /* Its life may end. */
    sched->now_ns = NOW_UNKNOWN;
    if (request_hand(sched, request)) {
        fw_counter_increment(&sched->flows->figures[number].passed);
        fw_counter_add(&sched->flows->of[number].cost, cost);
    }
    if (FW_UNLIKELY(sched->getter != NULL)) {
        match(sched);
    }
}

/* The policy may have an opinion. */
static bool request_may_pass(struct fw_sched *sched, const struct fw_sched_request *request)
{
    const struct fw_sched_policy *policy = sched->policy;
    return policy->lets_pass || request->class.is_urgent ||
           (policy->pass != NULL && policy->pass(sched, request));
}

/* Puts it where it belongs. */
static void request_place(struct fw_sched *sched, struct fw_sched_request *request)
{
    if (request->class.is_urgent) {
        request->place = PLACE_URGENT;
        fw_list_push_back(&sched->urgent, &request->link);
    } else if (sched->policy->enqueue != NULL && sched->policy->enqueue(sched, request)) {
        request->place = PLACE_POLICY;
    } else {
        request->place = PLACE_QUEUE;
        fw_list_push_back(&sched->queue, &request->link);
    }
}

/* It has to wait, be it but for a moment. */
static void request_wait(struct fw_sched *sched, struct fw_sched_request *request)
{
    request_begin(sched, request);
    waiting_change(sched, request, 1);
    request_place(sched, request);
    match(sched);
}

void fw_sched_incoming(struct fw_sched *sched, struct fw_sched_request *request)
{
    FW_ASSERT(!sched->is_shut_down && !fw_sched_is_waiting(request));
    request->is_shed = false;
    request->is_delayed = false;
    bool is_alone = sched->waiting_count == 0 && sched->busy == 0 && sched->getter != NULL;
    if (FW_UNLIKELY(!is_alone) || !request_may_pass(sched, request)) {
        request_wait(sched, request);
    } else if (FW_LIKELY(sched->flows == NULL)) {
        request_pass(sched, request);
    } else {
        request_pass_counted(sched, request);
    }
}

void fw_sched_get_next(struct fw_sched *sched, struct fw_sched_getter *getter)
{
    FW_ASSERT(getter != sched->getter && !fw_list_is_linked(&getter->link));
    if (FW_LIKELY(sched->getter == NULL)) {
        sched->getter = getter;
    } else {
        fw_list_push_back(&sched->getters, &getter->link);
    }
    if (sched->waiting_count > 0 || FW_UNLIKELY(sched->is_shut_down)) {
        match(sched);
    }
}

void fw_sched_poll(struct fw_sched *sched)
{
    sched->armed_ns = INT64_MAX;
    match(sched);
}

void fw_sched_shutdown(struct fw_sched *sched)
{
    sched->is_shut_down = true;
    sched->busy &= ~(uint32_t)BUSY_NO_EPOCH; /* What waits is not to wait for others. */
    match(sched);
}

void fw_sched_cancel(struct fw_sched *sched, struct fw_sched_request *request)
{
    FW_ASSERT(fw_sched_is_waiting(request));
    if (request->place == PLACE_POLICY) {
        sched->policy->remove(sched, request);
    } else {
        fw_list_remove(&request->link);
    }
    waiting_change(sched, request, -1);
    bool was_charged = request->place == PLACE_RETURNED && !request->is_shed;
    if (was_charged && !request->class.is_urgent && sched->policy->charge != NULL) {
        sched->policy->charge(sched, request, 0);
    }
    if (FW_UNLIKELY(sched->is_shut_down)) {
        match(sched); /* It may have been the last. */
    }
}

void fw_sched_charge(struct fw_sched *sched, const struct fw_sched_request *request, uint32_t cost)
{
    sched->charged += cost;
    if (sched->flows != NULL) {
        uint32_t number = fw_flows_number(sched->flows, &request->class);
        fw_counter_add(&sched->flows->of[number].cost, (uint64_t)cost - request->class.cost);
    }
    if (sched->policy->charge != NULL && !request->class.is_urgent) {
        sched->policy->charge(sched, request, cost);
    }
}

/* ---- switching ----------------------------------------------------------------------------- */

/* Merges two lists that are in order of arrival. */
static void lists_merge(struct fw_list *into, struct fw_list *from)
{
    struct fw_list merged;
    fw_list_init(&merged);
    while (!fw_list_is_empty(into) && !fw_list_is_empty(from)) {
        struct fw_list *first =
            request_of(fw_list_first(into))->number < request_of(fw_list_first(from))->number
                ? into
                : from;
        fw_list_push_back(&merged, fw_list_pop_front(first));
    }
    fw_list_append(&merged, into);
    fw_list_append(&merged, from);
    fw_list_append(into, &merged);
}

/*
 * Takes all out of the old policy and its queue, in order of arrival. A merge sort that carries
 * like a binary counter: runs[i] is empty or has 2^i requests, so nothing is allocated and n
 * requests take n log n steps.
 */
static void requests_gather(struct fw_sched *sched, struct fw_list *all)
{
    enum { RUNS = 64 };
    struct fw_list runs[RUNS];
    for (int i = 0; i < RUNS; i++) {
        fw_list_init(&runs[i]);
    }
    const struct fw_sched_policy *policy = sched->policy;
    struct fw_sched_request *(*take)(struct fw_sched *) =
        policy->evacuate != NULL ? policy->evacuate : policy->dequeue;
    fw_list_init(all);
    for (;;) {
        struct fw_sched_request *request = take != NULL ? take(sched) : NULL;
        request = request != NULL ? request : fw_sched_list_pop(&sched->queue);
        if (request == NULL) {
            break;
        }
        struct fw_list run;
        fw_list_init(&run);
        fw_list_push_back(&run, &request->link);
        int i = 0;
        for (; !fw_list_is_empty(&runs[i]); i++) {
            lists_merge(&run, &runs[i]);
        }
        fw_list_append(&runs[i], &run);
    }
    for (int i = 0; i < RUNS; i++) {
        lists_merge(all, &runs[i]);
    }
}

int fw_sched_switch_custom(struct fw_sched *sched, const struct fw_sched_policy *policy)
{
    FW_ASSERT((sched->busy & BUSY_MATCHING) == 0);
    if (policy == sched->policy) {
        return 0;
    }
    int rc = tenants_prepare(sched, policy);
    if (rc != 0) {
        return rc;
    }
    void *old_state = sched->state;
    sched->state = NULL;
    rc = policy->init != NULL ? policy->init(sched) : 0;
    if (rc != 0) {
        sched->state = old_state;
        return rc;
    }
    void *new_state = sched->state;
    struct fw_list all;
    sched->state = old_state;
    requests_gather(sched, &all);
    if (sched->policy->fini != NULL) {
        sched->policy->fini(sched);
    }
    sched->policy = policy;
    sched->state = new_state;
    for (struct fw_sched_request *request; (request = fw_sched_list_pop(&all)) != NULL;) {
        request_place(sched, request);
    }
    match(sched);
    return 0;
}

int fw_sched_switch(struct fw_sched *sched, enum fw_sched_policy_number policy)
{
    return fw_sched_switch_custom(sched, policy_of(policy));
}
