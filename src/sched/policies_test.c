/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: each policy keeps its promise, as a number with a bound, beside somebody who tries to make
 * it break it: order for `fifo`, turns for `crr`, shares by weight for `wfq`, rates and bursts for
 * `tbf` and `wfq`; urgent requests starve nobody; what waits too long is shed; shutdown overrides
 * rates; the figures tell all of it.
 * Method: time is a number here, and a request is served by adding to it. Senders hand in as many
 * requests as the test wants; what was given out is summed by tenant and by client.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <fairway/sched.h>

#include "base/base.h"
#include "io/clock.h"
#include "io/random.h"
#include "sched/policy.h"

enum { REQUESTS = 4096, TENANTS = 64, CLIENTS = 64 };

#define MS INT64_C(1000000)
#define S  INT64_C(1000000000)

static struct fw_sched sched;
static struct fw_tenants *tenants;
static struct fw_sched_getter getter;
static struct fw_sched_request requests[REQUESTS];
static struct fw_sched_request *got; /* Not taken note of yet; NULL: nothing. */
static bool is_asking;
static bool is_refusing; /* Gives the next one back. */
static int64_t clock_ns;
static int64_t armed_ns;
static uint64_t cost_of[TENANTS]; /* Given out so far, */
static uint64_t count_of[CLIENTS];

static int64_t test_clock(void)
{
    return clock_ns;
}

static const struct fw_clock_hooks clock_hooks = {.now_ns = test_clock, .wall_ns = test_clock};

static void arm(struct fw_sched *self, int64_t when_ns)
{
    assert_ptr_equal(self, &sched);
    assert_true(when_ns > clock_ns);
    armed_ns = when_ns;
}

static int ready(struct fw_sched_getter *self, struct fw_sched_request *request)
{
    assert_ptr_equal(self, &getter);
    is_asking = false;
    if (is_refusing) {
        is_refusing = false;
        return -EAGAIN;
    }
    got = request;
    return 0;
}

/* What was given out, now or since the last time. NULL: none may go; the getter waits on. */
static struct fw_sched_request *take(void)
{
    if (got == NULL && !is_asking) {
        is_asking = true;
        fw_sched_get_next(&sched, &getter);
    }
    struct fw_sched_request *request = got;
    got = NULL;
    if (request != NULL && !request->is_shed) {
        cost_of[request->class.tenant] += request->class.cost;
        count_of[request->class.client]++;
    }
    return request;
}

static void arrive(uint32_t number, uint32_t tenant, uint32_t client, uint32_t cost)
{
    requests[number].class =
        (struct fw_sched_class){.tenant = tenant, .client = client, .cost = cost};
    fw_sched_incoming(&sched, &requests[number]);
}

/* The same once more: its sender never runs out. */
static void again(struct fw_sched_request *request)
{
    fw_sched_incoming(&sched, request);
}

static void start(enum fw_sched_policy_number policy, const struct fw_tenant_config *configs,
                  size_t count)
{
    memset(requests, 0, sizeof requests);
    memset(cost_of, 0, sizeof cost_of);
    memset(count_of, 0, sizeof count_of);
    is_asking = false;
    is_refusing = false;
    got = NULL;
    clock_ns = S;
    armed_ns = INT64_MAX;
    getter = (struct fw_sched_getter){.ready = ready};
    fw_clock_hooks = &clock_hooks;
    int rc = fw_tenants_create(&tenants);
    assert_int_equal(rc, 0);
    rc = fw_tenants_configure(tenants, configs, count);
    assert_int_equal(rc, 0);
    rc = fw_sched_init(&sched,
                       &(struct fw_sched_config){.policy = policy, .tenants = tenants, .arm = arm});
    assert_int_equal(rc, 0);
}

static void stop(void)
{
    fw_sched_shutdown(&sched);
    while (sched.waiting_count > 0) {
        assert_non_null(take());
    }
    fw_sched_fini(&sched);
    fw_tenants_destroy(tenants);
    fw_clock_hooks = NULL;
}

/* Lets time pass as far as the head asks for, up to `until_ns`. False: that was reached. */
static bool wait_armed(int64_t until_ns)
{
    if (armed_ns > until_ns) {
        clock_ns = until_ns;
        return false;
    }
    clock_ns = armed_ns;
    armed_ns = INT64_MAX;
    fw_sched_poll(&sched);
    return true;
}

/* ---- fifo ---------------------------------------------------------------------------------- */

/* Whoever it is, and however many it hands in: the order is that of arrival. */
static void test_fifo(void **state)
{
    (void)state;
    struct fw_random dice;
    fw_random_init(&dice, 1);
    start(FW_SCHED_FIFO, NULL, 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        uint32_t client = fw_random_below(&dice, 10) == 0 ? 1 : 0;
        uint32_t cost = 1 + (uint32_t)fw_random_below(&dice, 100);
        arrive(i, 0, client, cost);
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        assert_ptr_equal(take(), &requests[i]);
    }
    stop();
}

/* ---- crr ----------------------------------------------------------------------------------- */

/*
 * One client floods, others have a few: between two of the flood's every other that waits gets one,
 * so that no two clients that wait differ by more than one.
 */
static void test_crr(void **state)
{
    (void)state;
    enum { OTHERS = 20, EACH = 30 };
    start(FW_SCHED_CRR, NULL, 0);
    uint32_t number = 0;
    for (; number < 3000; number++) {
        arrive(number, 0, 0, 1);
    }
    for (uint32_t i = 0; i < OTHERS * EACH; i++) {
        arrive(number++, 0, 1 + i / EACH, 1);
    }
    for (uint32_t i = 0; i < (OTHERS + 1) * EACH; i++) {
        assert_non_null(take());
        for (uint32_t j = 1; j <= OTHERS; j++) {
            assert_in_range(count_of[j] + 1 - count_of[0], 0, 2);
        }
    }
    for (uint32_t j = 0; j <= OTHERS; j++) {
        assert_int_equal(count_of[j], EACH);
    }
    stop();
}

/* A client that has one at a time is not behind one that has handed in all it has. */
static void test_crr_one_at_a_time(void **state)
{
    (void)state;
    start(FW_SCHED_CRR, NULL, 0);
    for (uint32_t i = 0; i < 1000; i++) {
        arrive(i, 0, 0, 1);
    }
    arrive(2000, 0, 1, 1);
    for (uint32_t i = 0; i < 500; i++) {
        struct fw_sched_request *request = take();
        if (request == &requests[2000]) {
            again(request);
        }
    }
    assert_in_range(count_of[1], 249, 251);
    stop();
}

/* Each client's own go in their order. */
static void test_crr_order_within(void **state)
{
    (void)state;
    uint32_t next[CLIENTS] = {0};
    start(FW_SCHED_CRR, NULL, 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        arrive(i, 0, i * 7 % CLIENTS, 1);
        requests[i].class.cost = i;
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        const struct fw_sched_request *request = take();
        assert_true(request->class.cost >= next[request->class.client]);
        next[request->class.client] = request->class.cost;
    }
    stop();
}

/* ---- wfq ----------------------------------------------------------------------------------- */

/*
 * Start-time fair queueing: over any time in which two tenants always have requests waiting, what
 * they have had by weight differs by no more than one request of each. The adversary sends large
 * requests from many clients; costs are random.
 */
static void test_wfq_share(void **state)
{
    (void)state;
    enum { COUNT = 4, COST_MAX = 1000 };
    static const uint64_t weights[COUNT] = {1, 2, 7, 30};
    const struct fw_tenant_config configs[] = {
        {.name = "default", .weight = 1},
        {.name = "b", .weight = 2},
        {.name = "c", .weight = 7},
        {.name = "d", .weight = 30},
    };
    struct fw_random dice;
    fw_random_init(&dice, 1);
    start(FW_SCHED_WFQ, configs, FW_ARRAY_LENGTH(configs));
    for (uint32_t i = 0; i < 40; i++) {
        arrive(i, i % COUNT, i, 1);
    }
    for (uint32_t i = 0; i < 100000; i++) {
        struct fw_sched_request *request = take();
        request->class.cost = 1 + (uint32_t)fw_random_below(&dice, COST_MAX);
        again(request);
        for (uint32_t a = 0; a < COUNT; a++) {
            for (uint32_t b = 0; b < a; b++) {
                double had_a = (double)cost_of[a] / (double)weights[a];
                double had_b = (double)cost_of[b] / (double)weights[b];
                double bound =
                    COST_MAX * (1.0 / (double)weights[a] + 1.0 / (double)weights[b]) + 0.01;
                assert_true(had_a - had_b <= bound && had_b - had_a <= bound);
            }
        }
    }
    stop();
}

/* What it really cost counts, though it is known only afterwards and nobody said so before. */
static void test_wfq_charged_later(void **state)
{
    (void)state;
    const struct fw_tenant_config configs[] = {{.name = "liar", .weight = 1}};
    uint64_t charged[2] = {0};
    start(FW_SCHED_WFQ, configs, FW_ARRAY_LENGTH(configs));
    for (uint32_t i = 0; i < 20; i++) {
        arrive(i, i % 2, i, i % 2 == 0 ? 10 : 1);
    }
    for (uint32_t i = 0; i < 10000; i++) {
        struct fw_sched_request *request = take();
        uint32_t tenant = request->class.tenant;
        uint32_t cost = tenant == 1 ? 100 : 2; /* More than it said, and less. */
        charged[tenant] += cost;
        fw_sched_charge(&sched, request, cost);
        again(request);
    }
    assert_in_range(charged[1] + 200 - charged[0], 0, 400);
    struct fw_tenant_figures figures;
    fw_tenants_read(tenants, 1, NULL, &figures);
    assert_int_equal(figures.cost, charged[1]);
    stop();
}

/* Who comes after a long silence starts with the others, and does not make up for it. */
static void test_wfq_nothing_is_saved_up(void **state)
{
    (void)state;
    const struct fw_tenant_config configs[] = {{.name = "late", .weight = 1}};
    start(FW_SCHED_WFQ, configs, FW_ARRAY_LENGTH(configs));
    for (uint32_t i = 0; i < 10; i++) {
        arrive(i, 0, i, 10);
    }
    for (uint32_t i = 0; i < 5000; i++) {
        again(take());
    }
    uint64_t before = cost_of[0];
    for (uint32_t i = 10; i < 20; i++) {
        arrive(i, 1, i, 10);
    }
    for (uint32_t i = 0; i < 1000; i++) {
        again(take());
    }
    assert_in_range(cost_of[1] + 20 - (cost_of[0] - before), 0, 40);
    stop();
}

/* A flood of one tenant makes another's single request wait for one request, not for the flood. */
static void test_wfq_modest(void **state)
{
    (void)state;
    const struct fw_tenant_config configs[] = {{.name = "flood", .weight = 1}};
    start(FW_SCHED_WFQ, configs, FW_ARRAY_LENGTH(configs));
    for (uint32_t i = 0; i < 3000; i++) {
        arrive(i, 1, i % 50, 100);
    }
    for (uint32_t i = 0; i < 100; i++) {
        for (uint32_t j = 0; j < 5; j++) {
            again(take());
        }
        arrive(4000, 0, 60, 1);
        const struct fw_sched_request *request = take();
        if (request != &requests[4000]) { /* One of the flood may have the very same time. */
            request = take();
        }
        assert_ptr_equal(request, &requests[4000]);
    }
    stop();
}

/* Within a tenant clients take turns: more requests of a client are not more service. */
static void test_wfq_clients(void **state)
{
    (void)state;
    const struct fw_tenant_config configs[] = {{.name = "other", .weight = 1}};
    start(FW_SCHED_WFQ, configs, FW_ARRAY_LENGTH(configs));
    for (uint32_t i = 0; i < 1000; i++) {
        arrive(i, 1, 1, 1);
    }
    for (uint32_t i = 1000; i < 1100; i++) {
        arrive(i, 1, 2, 1);
    }
    for (uint32_t i = 1100; i < 1200; i++) {
        arrive(i, 0, 2, 1); /* The same number with another tenant has turns of its own. */
    }
    for (uint32_t i = 0; i < 200; i++) {
        assert_non_null(take());
    }
    assert_in_range(cost_of[0], 99, 101);
    assert_in_range(count_of[1], 49, 51);
    stop();
}

/* Tags that would run over begin anew, and the shares stay what they were. */
static void test_wfq_for_ever(void **state)
{
    (void)state;
    const struct fw_tenant_config configs[] = {{.name = "b", .weight = 3}};
    start(FW_SCHED_WFQ, configs, FW_ARRAY_LENGTH(configs));
    for (uint32_t i = 0; i < 16; i++) {
        arrive(i, i % 2, i, FW_SCHED_COST_MAX);
    }
    uint64_t served[2] = {0};
    for (uint32_t i = 0; i < 40000; i++) { /* 2^51 each at weight 1: five times around. */
        struct fw_sched_request *request = take();
        served[request->class.tenant]++;
        assert_in_range(served[0] * 3 + 4 - served[1], 0, 8);
        again(request);
    }
    stop();
}

/* ---- rates --------------------------------------------------------------------------------- */

/* A number that there is not is the default's. */
static void test_unknown_tenant(void **state)
{
    (void)state;
    start(FW_SCHED_WFQ, NULL, 0);
    arrive(1, 5, 1, 1);
    arrive(2, UINT32_MAX, 2, 1);
    struct fw_tenant_figures figures;
    fw_tenants_read(tenants, 0, NULL, &figures);
    assert_int_equal(figures.waiting, 2);
    fw_sched_cancel(&sched, &requests[1]);
    fw_sched_cancel(&sched, &requests[2]);
    stop();
}

/* What tenant 1, who never runs out, gets in that time, if its requests cost that much. */
static uint64_t served_in(int64_t duration_ns, uint32_t cost)
{
    uint64_t before = cost_of[1];
    int64_t until_ns = clock_ns + duration_ns;
    for (uint32_t i = 0; i < 8; i++) {
        if (!fw_sched_is_waiting(&requests[i])) {
            arrive(i, 1, i, cost);
        }
    }
    do {
        for (struct fw_sched_request *request; (request = take()) != NULL;) {
            again(request);
        }
        assert_true(armed_ns != INT64_MAX);
    } while (wait_armed(until_ns));
    return cost_of[1] - before;
}

static const struct fw_tenant_config limited[] = {
    {.name = "limited", .weight = 1, .rate = 10000, .burst = 500}};

/* Over ten seconds the rate is held within 2 %, and no more than the burst comes at once. */
static void rate_holds(enum fw_sched_policy_number policy, uint32_t cost)
{
    start(policy, limited, FW_ARRAY_LENGTH(limited));
    uint64_t burst = served_in(0, cost);
    assert_in_range(burst, 500, 500 + cost - 1);
    for (uint32_t i = 0; i < 10; i++) { /* Each tenth of a second, and so any longer time. */
        assert_in_range(served_in(S / 10, cost), 1000 - cost - 10, 1000 + cost + 10);
    }
    assert_in_range(served_in(10 * S, cost), 98000, 102000);
    for (uint32_t i = 0; i < 8; i++) {
        fw_sched_cancel(&sched, &requests[i]);
    }
    clock_ns += 100 * S; /* A long silence saves no more than the burst. */
    assert_in_range(served_in(0, cost), 500, 500 + cost - 1);
    stop();
}

static void test_tbf_rate(void **state)
{
    (void)state;
    rate_holds(FW_SCHED_TBF, 1);
    rate_holds(FW_SCHED_TBF, 7);
}

static void test_wfq_rate(void **state)
{
    (void)state;
    rate_holds(FW_SCHED_WFQ, 1);
    rate_holds(FW_SCHED_WFQ, 7);
}

/* Without a cluster a cluster's rate is the node's. */
static void test_share_rate(void **state)
{
    (void)state;
    rate_holds(FW_SCHED_SHARE, 1);
    rate_holds(FW_SCHED_SHARE, 7);
}

/* More than the burst may be taken at once if there is anything, and is paid for afterwards. */
static void test_debt(void **state)
{
    (void)state;
    start(FW_SCHED_TBF, limited, FW_ARRAY_LENGTH(limited));
    assert_in_range(served_in(10 * S, 5000), 95000, 105000 + 500);
    stop();
}

/* Costs that turn out otherwise are paid for, or given back. */
static void test_rate_charged_later(void **state)
{
    (void)state;
    start(FW_SCHED_TBF, limited, FW_ARRAY_LENGTH(limited));
    uint64_t charged = 0;
    int64_t until_ns = clock_ns + 10 * S;
    for (uint32_t i = 0; i < 8; i++) {
        arrive(i, 1, i, 50);
    }
    do {
        for (struct fw_sched_request *request; (request = take()) != NULL;) {
            uint32_t cost = request->class.client < 4 ? 90 : 10;
            charged += cost;
            fw_sched_charge(&sched, request, cost);
            again(request);
        }
    } while (wait_armed(until_ns));
    assert_in_range(charged, 98000, 102000 + 500);
    stop();
}

/* A rate that is changed while requests wait holds from then on, within a tenth of a second. */
static void test_rate_changed(void **state)
{
    (void)state;
    start(FW_SCHED_TBF, limited, FW_ARRAY_LENGTH(limited));
    (void)served_in(S, 1);
    struct fw_tenant_config config = {.name = "limited", .weight = 1, .rate = 2, .burst = 1};
    assert_int_equal(fw_tenants_configure(tenants, &config, 1), 0);
    assert_in_range(served_in(10 * S, 1), 19, 22);
    config.rate = 50000; /* The next token would have been half a second away. */
    config.burst = 0;
    assert_int_equal(fw_tenants_configure(tenants, &config, 1), 0);
    assert_in_range(served_in(2 * S, 1), 95000, 105000 + 5000);
    config.rate = 0;
    assert_int_equal(fw_tenants_configure(tenants, &config, 1), 0);
    assert_true(wait_armed(clock_ns + S / 10));
    for (uint32_t i = 0; i < 1000; i++) {
        again(take());
    }
    stop();
}

/* The smaller of the two limits counts. */
static void test_cluster_rate(void **state)
{
    (void)state;
    const struct fw_tenant_config config = {
        .name = "x", .weight = 1, .rate = 10000, .burst = 1, .cluster_rate = 1000};
    start(FW_SCHED_TBF, &config, 1);
    assert_in_range(served_in(10 * S, 1), 9800, 10200);
    stop();
}

/* One tenant without tokens does not keep others from going, in their order of arrival. */
static void test_tbf_order(void **state)
{
    (void)state;
    start(FW_SCHED_TBF, limited, FW_ARRAY_LENGTH(limited));
    (void)served_in(0, 1);
    for (uint32_t i = 100; i < 200; i++) {
        arrive(i, i % 3 == 0 ? 1 : 0, i % 8, 1);
    }
    for (uint32_t i = 100; i < 200; i++) {
        if (i % 3 != 0) {
            assert_ptr_equal(take(), &requests[i]);
        }
    }
    assert_null(take());
    clock_ns += S / 10;
    armed_ns = INT64_MAX;
    fw_sched_poll(&sched);
    assert_ptr_equal(take(), &requests[500 % 8]); /* Waits longest. */
    stop();
}

/* In `wfq` who has no tokens is as good as idle: it does not catch up when it has some again. */
static void test_wfq_held_is_idle(void **state)
{
    (void)state;
    start(FW_SCHED_WFQ, limited, FW_ARRAY_LENGTH(limited));
    (void)served_in(0, 1);
    for (uint32_t i = 100; i < 110; i++) {
        arrive(i, 0, i % 8, 10);
    }
    for (uint32_t i = 0; i < 10000; i++) {
        again(take());
    }
    const struct fw_tenant_config free = {.name = "limited", .weight = 1};
    assert_int_equal(fw_tenants_configure(tenants, &free, 1), 0);
    uint64_t before[] = {cost_of[0], cost_of[1]};
    for (uint32_t i = 0; i < 2000; i++) {
        again(take());
    }
    uint64_t had[] = {cost_of[0] - before[0], cost_of[1] - before[1]};
    assert_in_range(had[1] + 20 - had[0], 0, 40);
    stop();
}

/* After a shutdown all go at once, tokens or not. */
static void test_shutdown_overrides_rates(void **state)
{
    (void)state;
    start(FW_SCHED_WFQ, limited, FW_ARRAY_LENGTH(limited));
    (void)served_in(0, 1);
    for (uint32_t i = 100; i < 1100; i++) {
        arrive(i, 1, i % 8, 100);
    }
    assert_null(take());
    fw_sched_shutdown(&sched);
    assert_non_null(got); /* Who waited has one. */
    for (uint32_t i = 0; i < 1008; i++) {
        assert_non_null(take());
    }
    assert_null(take());
    stop();
}

/* Without anyone to call back later, nothing may be held. */
static void test_no_arm(void **state)
{
    (void)state;
    start(FW_SCHED_TBF, limited, FW_ARRAY_LENGTH(limited));
    sched.arm = NULL;
    for (uint32_t i = 0; i < 1000; i++) {
        arrive(i, 1, 1, 10);
        assert_non_null(take());
    }
    stop();
}

/* ---- urgent, shed, figures ----------------------------------------------------------------- */

static void arrive_urgent(uint32_t number)
{
    requests[number].class = (struct fw_sched_class){.client = 7, .cost = 1, .is_urgent = true};
    fw_sched_incoming(&sched, &requests[number]);
}

/* Eight urgent ones, then one that is not: neither side starves whatever the other does. */
static void test_urgent(void **state)
{
    enum fw_sched_policy_number policy = (enum fw_sched_policy_number)(uintptr_t)*state;
    start(policy, NULL, 0);
    for (uint32_t i = 0; i < 1000; i++) {
        arrive(i, 0, 1, 1);
    }
    for (uint32_t i = 1000; i < 1800; i++) {
        arrive_urgent(i);
    }
    for (uint32_t i = 0; i < 900; i++) {
        assert_int_equal(take()->class.is_urgent, i % 9 != 8);
    }
    arrive_urgent(1000); /* A single one overtakes all that wait. */
    assert_ptr_equal(take(), &requests[1000]);
    stop();
}

/* If no other may go, urgent ones go on. */
static void test_urgent_past_held(void **state)
{
    (void)state;
    start(FW_SCHED_TBF, limited, FW_ARRAY_LENGTH(limited));
    (void)served_in(0, 1);
    for (uint32_t i = 100; i < 150; i++) {
        arrive_urgent(i);
        assert_ptr_equal(take(), &requests[i]);
        assert_null(take());
    }
    stop();
}

/* What has waited too long is given out to be refused, and costs its tenant nothing. */
static void test_shed(void **state)
{
    enum fw_sched_policy_number policy = (enum fw_sched_policy_number)(uintptr_t)*state;
    const struct fw_tenant_config config = {.name = "x", .weight = 1, .delay_max_ns = 5 * MS};
    start(policy, &config, 1);
    for (uint32_t i = 0; i < 10; i++) {
        arrive(i, 1, i, 1);
    }
    clock_ns += 5 * MS;
    assert_false(take()->is_shed);
    clock_ns += 1;
    arrive(20, 0, 20, 1);
    arrive(21, 1, 21, 1);
    for (uint32_t i = 0; i < 11; i++) {
        const struct fw_sched_request *request = take();
        assert_non_null(request);
        bool is_old = request < &requests[10];
        assert_int_equal(request->is_shed, is_old);
    }
    assert_null(take());
    struct fw_tenant_figures figures;
    fw_tenants_read(tenants, 1, NULL, &figures);
    assert_int_equal(figures.shed, 9);
    assert_int_equal(figures.served, 2);
    assert_int_equal(figures.cost, 2);
    stop();
}

/* Who waits for tokens that come too late is told at the time, not when they come. */
static void test_shed_while_held(void **state)
{
    (void)state;
    const struct fw_tenant_config config = {
        .name = "x", .weight = 1, .rate = 1, .burst = 1, .delay_max_ns = 5 * MS};
    start(FW_SCHED_WFQ, &config, 1);
    for (uint32_t i = 0; i < 10; i++) {
        arrive(i, 1, i, 1);
    }
    int64_t begin_ns = clock_ns;
    assert_false(take()->is_shed);
    assert_null(take());
    assert_true(wait_armed(S * 10));
    assert_int_equal(clock_ns, begin_ns + 5 * MS + 1);
    for (uint32_t i = 0; i < 9; i++) {
        const struct fw_sched_request *request = take();
        assert_non_null(request);
        assert_true(request->is_shed);
    }
    assert_int_equal(sched.waiting_count, 0);
    stop();
}

/* Who was held back, why and for how long. */
static void test_figures(void **state)
{
    (void)state;
    struct fw_tenant_figures figures;
    start(FW_SCHED_TBF, limited, FW_ARRAY_LENGTH(limited));
    assert_null(take());
    arrive(0, 1, 1, 500); /* Passes, and takes all there is. */
    assert_ptr_equal(take(), &requests[0]);
    assert_false(requests[0].is_delayed);
    arrive(1, 1, 1, 1);
    arrive(2, 1, 1, 1);
    assert_null(take());
    clock_ns += 7 * MS / 100;
    fw_tenants_read(tenants, 1, NULL, &figures);
    assert_int_equal(figures.waiting, 2);
    assert_int_equal(figures.throttled_for_ns, 7 * MS / 100);
    assert_int_equal(figures.served, 1);
    assert_int_equal(figures.delayed, 0);
    assert_true(wait_armed(clock_ns + S));
    for (uint32_t i = 1; i < 3; i++) {
        assert_ptr_equal(take(), &requests[i]);
        assert_true(requests[i].is_delayed);
    }
    fw_tenants_read(tenants, 1, NULL, &figures);
    assert_int_equal(figures.throttled_for_ns, 0);
    assert_int_equal(figures.waiting, 0);
    assert_int_equal(figures.served, 3);
    assert_int_equal(figures.delayed, 2);
    assert_int_equal(figures.throttled, 2);
    assert_int_equal(figures.cost, 502);
    assert_int_equal(figures.delay_count[0], 1);
    assert_int_equal(figures.delay_count[19], 2); /* From 0.5 to 1.05 ms. */
    stop();
}

/*
 * What is given back is counted once, when it is taken, and charged once; its delay is that since
 * it was given back where it had not waited before. If it is cancelled then, nothing was charged.
 */
static void test_given_back_counts_once(void **state)
{
    (void)state;
    struct fw_tenant_figures figures;
    start(FW_SCHED_WFQ, limited, FW_ARRAY_LENGTH(limited));
    assert_null(take());
    is_refusing = true;
    arrive(0, 1, 1, 300);
    assert_true(fw_sched_is_waiting(&requests[0]));
    clock_ns += 1024;
    assert_ptr_equal(take(), &requests[0]);
    fw_tenants_read(tenants, 1, NULL, &figures);
    assert_int_equal(figures.served, 1);
    assert_int_equal(figures.cost, 300);
    assert_int_equal(figures.delay_count[10], 1);
    is_refusing = true;
    assert_null(take());
    arrive(1, 1, 1, 200); /* That is all that is in the bucket. */
    fw_sched_cancel(&sched, &requests[1]);
    arrive(2, 1, 1, 200);
    assert_ptr_equal(take(), &requests[2]);
    arrive(3, 1, 1, 1);
    assert_null(take());
    stop();
}

/* Who comes while one is served that passed long ago has waited since it came. */
static void test_delay_after_a_pass(void **state)
{
    (void)state;
    struct fw_tenant_figures figures;
    start(FW_SCHED_WFQ, limited, FW_ARRAY_LENGTH(limited));
    arrive(0, 1, 1, 1);
    assert_ptr_equal(take(), &requests[0]); /* The time was looked up. */
    assert_null(take());
    arrive(1, 1, 1, 1); /* It was not. */
    assert_ptr_equal(take(), &requests[1]);
    clock_ns += S;
    arrive(2, 1, 1, 1);
    clock_ns += 1024;
    assert_ptr_equal(take(), &requests[2]);
    fw_tenants_read(tenants, 1, NULL, &figures);
    assert_int_equal(figures.delay_count[10], 1);
    stop();
}

int main(void)
{
#define cmocka_unit_test_with(test, policy) \
    cmocka_unit_test_prestate(test, (void *)(uintptr_t)FW_SCHED_##policy)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fifo),
        cmocka_unit_test(test_crr),
        cmocka_unit_test(test_crr_one_at_a_time),
        cmocka_unit_test(test_crr_order_within),
        cmocka_unit_test(test_wfq_share),
        cmocka_unit_test(test_wfq_charged_later),
        cmocka_unit_test(test_wfq_nothing_is_saved_up),
        cmocka_unit_test(test_wfq_modest),
        cmocka_unit_test(test_wfq_clients),
        cmocka_unit_test(test_wfq_for_ever),
        cmocka_unit_test(test_unknown_tenant),
        cmocka_unit_test(test_tbf_rate),
        cmocka_unit_test(test_wfq_rate),
        cmocka_unit_test(test_share_rate),
        cmocka_unit_test(test_debt),
        cmocka_unit_test(test_rate_charged_later),
        cmocka_unit_test(test_rate_changed),
        cmocka_unit_test(test_cluster_rate),
        cmocka_unit_test(test_tbf_order),
        cmocka_unit_test(test_wfq_held_is_idle),
        cmocka_unit_test(test_shutdown_overrides_rates),
        cmocka_unit_test(test_no_arm),
        cmocka_unit_test_with(test_urgent, FIFO),
        cmocka_unit_test_with(test_urgent, CRR),
        cmocka_unit_test_with(test_urgent, WFQ),
        cmocka_unit_test_with(test_urgent, TBF),
        cmocka_unit_test_with(test_urgent, SHARE),
        cmocka_unit_test_with(test_urgent, GANG),
        cmocka_unit_test(test_urgent_past_held),
        cmocka_unit_test_with(test_shed, FIFO),
        cmocka_unit_test_with(test_shed, CRR),
        cmocka_unit_test_with(test_shed, WFQ),
        cmocka_unit_test_with(test_shed, TBF),
        cmocka_unit_test_with(test_shed, SHARE),
        cmocka_unit_test_with(test_shed, GANG),
        cmocka_unit_test(test_shed_while_held),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_given_back_counts_once),
        cmocka_unit_test(test_delay_after_a_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
