/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads of the request scheduler, each on a thread of its own, that share tenants.
 *
 * sched-rate: a tenant with a rate has more requests at every head than it may have served. Over
 * ten seconds it gets its rate within 2 %, with one head or four, under either policy, and never
 * more at once than its burst. The rate is set while all wait for tokens of another one.
 *
 * sched-share: tenants with weights wait at all heads, but one of them not at the first, and heads
 * are not equally fast. Together they get what their weights say.
 */
#include <string.h>

#include <fairway/sched.h>

#include "base/assert.h"
#include "base/thread.h"
#include "simulate/scenarios.h"

enum { HEADS_MAX = 4, REQUESTS = 6, TENANTS = 4, COST_MAX = 8 };

struct head {
    struct fw_sched sched;
    struct fw_sched_getter getter;
    struct fw_sched_request requests[REQUESTS];
    struct fw_sched_request *got;
    bool is_asking;
    int64_t armed_ns;
    int64_t unit_ns; /* What a unit of cost takes here. */
    struct fw_thread thread;
};

static struct {
    struct fw_tenants *tenants;
    enum fw_sched_policy_number policy;
    struct head heads[HEADS_MAX];
    uint32_t head_count;
    uint64_t had[TENANTS];
    uint64_t had_enough; /* When all have had so much together, it is over; 0: never. */
    int64_t end_ns;      /* And then. */
    /* A bucket as it should be; level in units, may be in debt by one request. */
    double rate;
    double burst;
    double level;
    int64_t level_ns;
} world;

static int head_ready(struct fw_sched_getter *getter, struct fw_sched_request *request)
{
    struct head *head = FW_CONTAINER_OF(getter, struct head, getter);
    head->got = request;
    head->is_asking = false;
    return 0;
}

static void head_arm(struct fw_sched *sched, int64_t when_ns)
{
    FW_CONTAINER_OF(sched, struct head, sched)->armed_ns = when_ns;
}

static uint64_t had_all(void)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < TENANTS; i++) {
        sum += world.had[i];
    }
    return sum;
}

static bool is_over(void)
{
    return sim_now() >= world.end_ns || (world.had_enough != 0 && had_all() >= world.had_enough);
}

/* The model's bucket: what is given out must have been in it. */
static void level_take(uint32_t cost)
{
    if (world.rate <= 0) {
        return;
    }
    double seconds = (double)(sim_now() - world.level_ns) / (double)SIM_S;
    world.level += seconds * world.rate;
    world.level = world.level < world.burst ? world.level : world.burst;
    world.level_ns = sim_now();
    world.level -= cost;
    /* What was just given out by another head may not have come here yet, a few steps ago. */
    SIM_EXPECT(world.level >= -(double)COST_MAX * (1 + world.head_count));
}

/* One round: serve what was got, or wait until there may be something. */
static void head_step(struct head *head)
{
    if (!head->is_asking) {
        head->is_asking = true;
        fw_sched_get_next(&head->sched, &head->getter);
    }
    struct fw_sched_request *request = head->got;
    head->got = NULL;
    if (request != NULL) {
        world.had[request->class.tenant] += request->class.cost;
        level_take(request->class.cost);
        int64_t duration = head->unit_ns * request->class.cost;
        sim_sleep(duration);
        request->class.cost = (uint32_t)sim_between(1, COST_MAX);
        fw_sched_incoming(&head->sched, request);
        return;
    }
    SIM_EXPECT(head->armed_ns != INT64_MAX);
    int64_t until_ns = head->armed_ns < world.end_ns ? head->armed_ns : world.end_ns;
    sim_sleep(until_ns > sim_now() ? until_ns - sim_now() : 0);
    head->armed_ns = INT64_MAX;
    fw_sched_poll(&head->sched);
}

static void head_run(void *argument)
{
    struct head *head = argument;
    while (!is_over()) {
        head_step(head);
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        if (fw_sched_is_waiting(&head->requests[i])) {
            fw_sched_cancel(&head->sched, &head->requests[i]);
        }
    }
    fw_sched_shutdown(&head->sched);
    fw_sched_fini(&head->sched);
}

static void head_make(struct head *head)
{
    head->getter.ready = head_ready;
    head->armed_ns = INT64_MAX;
    int rc = fw_sched_init(&head->sched, &(struct fw_sched_config){.policy = world.policy,
                                                                   .tenants = world.tenants,
                                                                   .arm = head_arm});
    FW_ASSERT(rc == 0);
}

static void request_send(struct head *head, uint32_t index, uint32_t tenant)
{
    uint32_t cost = (uint32_t)sim_between(1, COST_MAX);
    uint32_t client = (uint32_t)(head - world.heads) * REQUESTS + index;
    head->requests[index].class =
        (struct fw_sched_class){.tenant = tenant, .client = client, .cost = cost};
    fw_sched_incoming(&head->sched, &head->requests[index]);
}

static void heads_start(void)
{
    for (uint32_t i = 0; i < world.head_count; i++) {
        int rc = fw_thread_create(&world.heads[i].thread, "head", head_run, &world.heads[i]);
        FW_ASSERT(rc == 0);
    }
}

static void heads_join(void)
{
    for (uint32_t i = 0; i < world.head_count; i++) {
        fw_thread_join(&world.heads[i].thread);
    }
}

static void world_make(void)
{
    memset(&world, 0, sizeof world);
    int rc = fw_tenants_create(&world.tenants);
    FW_ASSERT(rc == 0);
    world.head_count = (uint32_t)sim_between(1, HEADS_MAX);
}

static void tenants_set(const struct fw_tenant_config *configs, size_t count)
{
    int rc = fw_tenants_configure(world.tenants, configs, count);
    FW_ASSERT(rc == 0);
}

static void rate_run(void)
{
    world_make();
    world.policy = sim_chance(2) ? FW_SCHED_WFQ : FW_SCHED_TBF;
    struct fw_tenant_config config = {.name = "limited", .weight = 1, .rate = 1, .burst = 1};
    tenants_set(&config, 1);
    world.end_ns = INT64_MAX / 2;
    for (uint32_t i = 0; i < world.head_count; i++) {
        world.heads[i].unit_ns = sim_between(1, 20) * SIM_US;
        head_make(&world.heads[i]);
        for (uint32_t j = 0; j < REQUESTS; j++) {
            request_send(&world.heads[i], j, 1);
        }
    }
    heads_start();
    sim_sleep(sim_between(1, 1000) * SIM_MS);
    config.rate = (uint64_t)sim_between(500, 3000);
    config.burst = config.rate / (uint64_t)sim_between(4, 20);
    world.rate = (double)config.rate;
    world.burst = (double)config.burst;
    world.level = world.burst;
    world.level_ns = sim_now();
    memset(world.had, 0, sizeof world.had);
    world.end_ns = sim_now() + 10 * SIM_S;
    tenants_set(&config, 1);
    heads_join();
    double due = world.rate * 10;
    SIM_EXPECT((double)world.had[1] >= due * 0.98);
    SIM_EXPECT((double)world.had[1] <= due * 1.02 + world.burst);
    fw_tenants_destroy(world.tenants);
}

const struct sim_scenario sim_scenario_sched_rate = {
    .name = "sched-rate",
    .purpose = "a tenant's rate holds for all heads together, and may be changed while all wait",
    .run = rate_run,
};

static void share_run(void)
{
    world_make();
    world.policy = FW_SCHED_WFQ;
    world.head_count = (uint32_t)sim_between(2, HEADS_MAX);
    struct fw_tenant_config configs[] = {
        {.name = "a", .weight = 1}, {.name = "b", .weight = 1}, {.name = "c", .weight = 1}};
    configs[1].weight = (uint64_t)sim_between(1, 4);
    configs[2].weight = (uint64_t)sim_between(1, 4);
    tenants_set(configs, FW_ARRAY_LENGTH(configs));
    world.end_ns = INT64_MAX;
    world.had_enough = 4000;
    for (uint32_t i = 0; i < world.head_count; i++) {
        world.heads[i].unit_ns = sim_between(1000, 1400);
        head_make(&world.heads[i]);
        for (uint32_t j = 0; j < REQUESTS; j++) {
            request_send(&world.heads[i], j, i == 0 ? 2 + j % 2 : 1 + j % 3);
        }
    }
    heads_start();
    heads_join();
    /* What each head has not told the others yet, or has under way. */
    double bound = (double)(world.head_count * (16 + 2 * COST_MAX));
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t j = 0; j < i; j++) {
            double had_i = (double)world.had[i + 1] / (double)configs[i].weight;
            double had_j = (double)world.had[j + 1] / (double)configs[j].weight;
            SIM_EXPECT(had_i - had_j <= bound && had_j - had_i <= bound);
        }
    }
    fw_tenants_destroy(world.tenants);
}

const struct sim_scenario sim_scenario_sched_share = {
    .name = "sched-share",
    .purpose = "tenants share by weight over heads of unequal speed, one of which one misses",
    .run = share_run,
};
