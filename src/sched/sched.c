/* SPDX-License-Identifier: Apache-2.0 */
#include <fairway/sched.h>

#include "base/assert.h"
#include "base/base.h"
#include "base/list.h"
#include "sched/policy.h"

const struct fw_sched_policy *const fw_sched_policies[] = {
    [FW_SCHED_FIFO] = &fw_sched_fifo,
};

int fw_sched_init(struct fw_sched *sched, const struct fw_sched_config *config)
{
    FW_ASSERT(config->policy < FW_SCHED_POLICIES);
    *sched = (struct fw_sched){.policy = fw_sched_policies[config->policy]};
    fw_list_init(&sched->queue);
    fw_list_init(&sched->getters);
    return sched->policy->init != NULL ? sched->policy->init(sched, config) : 0;
}

void fw_sched_fini(struct fw_sched *sched)
{
    FW_ASSERT(sched->waiting_count == 0 && !sched->is_matching);
    FW_ASSERT(fw_list_is_empty(&sched->queue) && sched->getter == NULL);
    if (sched->policy->fini != NULL) {
        sched->policy->fini(sched);
    }
}

/* The usual case is one getter, which is in no list. */
static inline struct fw_sched_getter *getter_take(struct fw_sched *sched)
{
    struct fw_sched_getter *getter = sched->getter;
    struct fw_list_link *link = fw_list_pop_front(&sched->getters);
    sched->getter =
        FW_UNLIKELY(link != NULL) ? FW_LIST_ENTRY(link, struct fw_sched_getter, link) : NULL;
    return getter;
}

static struct fw_sched_request *request_take(struct fw_sched *sched, bool *is_policys)
{
    if (sched->waiting_count == 0) {
        return NULL;
    }
    struct fw_sched_request *request = NULL;
    if (sched->policy->dequeue != NULL) {
        request = sched->policy->dequeue(sched);
    }
    *is_policys = request != NULL;
    if (request == NULL) {
        struct fw_list_link *link = fw_list_pop_front(&sched->queue);
        request = link != NULL ? FW_LIST_ENTRY(link, struct fw_sched_request, link) : NULL;
    }
    sched->waiting_count -= request != NULL;
    return request;
}

static void request_return(struct fw_sched *sched, struct fw_sched_request *request,
                           bool is_policys)
{
    FW_ASSERT(!fw_sched_is_waiting(request));
    if (is_policys) {
        sched->policy->requeue(sched, request);
    } else {
        fw_list_push_front(&sched->queue, &request->link);
    }
    sched->waiting_count++;
}

/* Brings requests and getters together until one side has run out. */
static void match(struct fw_sched *sched)
{
    bool is_policys = false;
    if (sched->is_matching) {
        return; /* Further up the stack this goes on. */
    }
    sched->is_matching = true;
    while (sched->getter != NULL) {
        struct fw_sched_request *request = request_take(sched, &is_policys);
        bool is_over = request == NULL && sched->is_shut_down && sched->waiting_count == 0;
        if (request == NULL && !is_over) {
            break;
        }
        struct fw_sched_getter *getter = getter_take(sched);
        /* With NULL there is nothing to give back. */
        bool is_returned = getter->ready(getter, request) != 0 && request != NULL;
        if (is_returned) {
            request_return(sched, request, is_policys);
        }
        sched->admitted_count += request != NULL && !is_returned;
    }
    sched->is_matching = false;
}

/* Nobody was before it, and somebody waits for it. */
static void request_pass(struct fw_sched *sched, struct fw_sched_request *request)
{
    struct fw_sched_getter *getter = getter_take(sched);
    sched->is_matching = true;
    bool is_returned = getter->ready(getter, request) != 0;
    sched->is_matching = false;
    if (FW_UNLIKELY(is_returned)) {
        request_return(sched, request, false);
    }
    sched->admitted_count += !is_returned;
    sched->passed_count += !is_returned;
    if (sched->getter != NULL) {
        match(sched); /* With what the call-back has handed in, or did not want. */
    }
}

void fw_sched_incoming(struct fw_sched *sched, struct fw_sched_request *request)
{
    FW_ASSERT(!sched->is_shut_down && !fw_sched_is_waiting(request));
    if (FW_LIKELY(sched->policy->lets_pass && sched->waiting_count == 0 && !sched->is_matching &&
                  sched->getter != NULL)) {
        request_pass(sched, request);
        return;
    }
    sched->waiting_count++;
    if (sched->policy->enqueue == NULL || !sched->policy->enqueue(sched, request)) {
        fw_list_push_back(&sched->queue, &request->link);
    }
    match(sched);
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

void fw_sched_shutdown(struct fw_sched *sched)
{
    sched->is_shut_down = true;
    match(sched);
}

void fw_sched_cancel(struct fw_sched *sched, struct fw_sched_request *request)
{
    FW_ASSERT(fw_sched_is_waiting(request));
    if (sched->policy->remove != NULL) {
        sched->policy->remove(sched, request);
    } else {
        fw_list_remove(&request->link);
    }
    sched->waiting_count--;
    if (FW_UNLIKELY(sched->is_shut_down)) {
        match(sched); /* It may have been the last. */
    }
}

void fw_sched_charge(struct fw_sched *sched, const struct fw_sched_request *request, uint32_t cost)
{
    sched->charged += cost;
    if (sched->policy->charge != NULL) {
        sched->policy->charge(sched, request, cost);
    }
}
