/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the policies that know senders add to a request while many wait: 10,000 tenants with a
 * request each, or 10,000 clients, in an order that no cache can guess; and what they add when
 * nothing waits. Beside a list of the same requests that somebody pushes and pops.
 */
#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>

#include <fairway/sched.h>

#include "base/assert.h"
#include "base/base.h"
#include "base/list.h"
#include "bench/harness.h"
#include "io/random.h"

enum { TENANTS = 10000 };

struct head {
    struct fw_sched sched;
    struct fw_tenants *tenants;
    struct fw_sched_getter getter;
    struct fw_sched_request *served;
    struct sender *senders; /* One per tenant. */
};

/* In the server one lies in each connection, whose struct begins a line. */
struct sender {
    alignas(2 * FW_CACHE_LINE) struct fw_sched_request request;
};

static struct sender senders[4][TENANTS];
static uint32_t order[TENANTS];
static struct fw_list list;

static int getter_ready(struct fw_sched_getter *getter, struct fw_sched_request *request)
{
    FW_CONTAINER_OF(getter, struct head, getter)->served = request;
    return 0;
}

/* So many wait all the time: who was served comes again. */
static void waiting_run(void *state, uint64_t count)
{
    struct head *head = state;
    for (uint32_t i = 0; i < TENANTS; i++) {
        fw_sched_incoming(&head->sched, &head->senders[order[i]].request);
    }
    for (uint64_t i = 0; i < count; i++) {
        fw_sched_get_next(&head->sched, &head->getter);
        fw_sched_incoming(&head->sched, head->served);
    }
    for (uint32_t i = 0; i < TENANTS; i++) {
        fw_sched_get_next(&head->sched, &head->getter);
    }
}

/* Nothing waits, and each comes from another tenant. */
static void straight_run(void *state, uint64_t count)
{
    struct head *head = state;
    for (uint64_t i = 0; i < count; i++) {
        fw_sched_get_next(&head->sched, &head->getter);
        fw_sched_incoming(&head->sched, &head->senders[order[i % TENANTS]].request);
    }
}

static void list_run(void *state, uint64_t count)
{
    const struct head *head = state;
    for (uint32_t i = 0; i < TENANTS; i++) {
        fw_list_push_back(&list, &head->senders[order[i]].request.link);
    }
    for (uint64_t i = 0; i < count; i++) {
        struct fw_list_link *link = fw_list_pop_front(&list);
        fw_bench_use((uint64_t)(uintptr_t)link);
        fw_list_push_back(&list, link);
    }
    while (fw_list_pop_front(&list) != NULL) {
    }
}

/* Rates are there, and are looked at, but are never reached: nobody would be served. */
static void arm(struct fw_sched *sched, int64_t when_ns)
{
    (void)sched;
    (void)when_ns;
}

static void head_make(struct head *head, enum fw_sched_policy_number policy, uint64_t rate)
{
    static struct fw_tenant_config configs[TENANTS - 1];
    static char names[TENANTS - 1][16];
    for (uint32_t i = 0; i < TENANTS - 1; i++) {
        (void)snprintf(names[i], sizeof names[i], "t%u", i);
        configs[i] =
            (struct fw_tenant_config){.name = names[i], .weight = 1 + i % 100, .rate = rate};
    }
    int rc = fw_tenants_create(&head->tenants);
    FW_ASSERT(rc == 0);
    rc = fw_tenants_configure(head->tenants, configs, FW_ARRAY_LENGTH(configs));
    FW_ASSERT(rc == 0);
    rc = fw_sched_init(&head->sched, &(struct fw_sched_config){
                                         .policy = policy, .tenants = head->tenants, .arm = arm});
    FW_ASSERT(rc == 0);
    head->getter.ready = getter_ready;
    head->senders = senders[policy];
    for (uint32_t i = 0; i < TENANTS; i++) {
        head->senders[i].request =
            (struct fw_sched_request){.class = {.tenant = i, .client = i, .cost = 1 + i % 3}};
    }
}

int main(int argc, char **argv)
{
    static struct head crr;
    static struct head wfq;
    static struct head tbf;
    struct fw_random dice;
    fw_random_init(&dice, 1);
    for (uint32_t i = 0; i < TENANTS; i++) {
        order[i] = i;
    }
    fw_random_shuffle(&dice, order, TENANTS, sizeof order[0]);
    fw_list_init(&list);
    head_make(&crr, FW_SCHED_CRR, 0);
    head_make(&wfq, FW_SCHED_WFQ, 0);
    head_make(&tbf, FW_SCHED_TBF, FW_SCHED_RATE_MAX);
#define BENCH(title, what, function, head, limit_ns)                                          \
    {                                                                                         \
        .name = "sched-policies-" title, .unit = "ns per request",                            \
        .ours = {what, function, &(head)}, .peer = {"a list", list_run, &(head)}, .bar = 100, \
        .bar_ns = (limit_ns), .count = 1000000,                                               \
    }
    const struct fw_bench benches[] = {
        BENCH("crr", "10000 clients wait", waiting_run, crr, 150),
        BENCH("wfq", "10000 tenants wait", waiting_run, wfq, 150),
        BENCH("tbf", "10000 tenants wait", waiting_run, tbf, 150),
        BENCH("wfq-straight", "nothing waits", straight_run, wfq, 150),
        BENCH("tbf-straight", "nothing waits", straight_run, tbf, 150),
    };
#undef BENCH
    return fw_bench_main(argc, argv, benches, FW_ARRAY_LENGTH(benches));
}
