/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the policy `gang` does for requests that fan out, in virtual time.
 *
 *     gang SECONDS SEED
 *
 * Three nodes, each a head of the request scheduler before one server. Requests of some tenants
 * come at random times; each has a part for every node, of random cost, and is complete when the
 * last part is. The nodes go in step over a bus whose messages take 0.1 to 0.2 ms. For each load,
 * from 10 to 95 % of what a node can do, the same requests are served by `fifo`, `wfq` and `gang`.
 * The last line is a JSON object: from load to policy to the mean and the 99th percentile of the
 * time to completion, in microseconds.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/sched.h>

#include "base/assert.h"
#include "base/base.h"
#include "base/histogram.h"
#include "base/parse.h"
#include "epoch/bus.h"
#include "epoch/cluster.h"
#include "io/clock.h"
#include "io/random.h"
#include "sched/gang.h"

enum {
    NODES = 3,
    TENANTS = 8,
    CLIENTS = 4, /* Of each tenant: whoever sends. */
    REQUESTS = 1 << 14,
    STEP_US = 10,
    BUS_STEPS = 10, /* The bus moves so seldom. */
    COST_MAX_US = 200,
    EPOCH_MS = 2,
    TIMEOUT_MS = 100,
    WARM_UP_STEPS = 10000,
};

#define US INT64_C(1000)
#define MS INT64_C(1000000)

/* One that fans out. */
struct fan {
    struct part {
        struct fw_sched_request request;
        struct fan *fan;
    } parts[NODES];
    int64_t since_ns;
    uint32_t open; /* Parts that are not done; 0: it is free. */
    struct fan *next_free;
};

struct node {
    struct fw_sched sched;
    struct fw_sched_getter getter;
    struct fw_tenants *tenants;
    struct part *serving;
    int64_t busy_until_ns;
    struct fw_gang gang;
    int64_t gang_ns;
    struct fw_epoch_cluster cluster;
    int64_t cluster_ns;
};

static struct {
    int64_t now_ns;
    struct node nodes[NODES];
    struct fw_bus bus;
    struct fw_random dice;
    struct fan fans[REQUESTS];
    struct fan *free;
    struct fw_histogram times;
    double sum;
    uint64_t count;
    uint64_t refused;
} world;

static int64_t world_clock(void)
{
    return world.now_ns;
}

static const struct fw_clock_hooks clock_hooks = {.now_ns = world_clock, .wall_ns = world_clock};

static int64_t gang_now(struct fw_gang *gang)
{
    (void)gang;
    return world.now_ns;
}

static void gang_arm(struct fw_gang *gang, int64_t when_ns)
{
    FW_CONTAINER_OF(gang, struct node, gang)->gang_ns = when_ns;
}

static int64_t cluster_now(struct fw_epoch_cluster *cluster)
{
    (void)cluster;
    return world.now_ns;
}

static void cluster_arm(struct fw_epoch_cluster *cluster, int64_t when_ns)
{
    FW_CONTAINER_OF(cluster, struct node, cluster)->cluster_ns = when_ns;
}

static int node_ready(struct fw_sched_getter *getter, struct fw_sched_request *request)
{
    struct node *node = FW_CONTAINER_OF(getter, struct node, getter);
    if (request != NULL) {
        node->serving = FW_CONTAINER_OF(request, struct part, request);
        node->busy_until_ns = world.now_ns + (int64_t)request->class.cost * US;
    }
    return 0;
}

static void node_make(struct node *node, uint32_t place, enum fw_sched_policy_number policy)
{
    static const char *const names[TENANTS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    struct fw_tenant_config configs[TENANTS];
    for (uint32_t i = 0; i < TENANTS; i++) {
        configs[i] = (struct fw_tenant_config){.name = names[i], .weight = 1};
    }
    *node =
        (struct node){.getter.ready = node_ready, .gang_ns = INT64_MAX, .cluster_ns = INT64_MAX};
    int rc = fw_tenants_create(&node->tenants);
    FW_ASSERT(rc == 0);
    rc = fw_tenants_configure(node->tenants, configs, TENANTS);
    FW_ASSERT(rc == 0);
    rc = fw_sched_init(&node->sched,
                       &(struct fw_sched_config){.policy = policy, .tenants = node->tenants});
    FW_ASSERT(rc == 0);
    fw_sched_get_next(&node->sched, &node->getter);
    struct fw_epoch_cluster_config config = {
        .epoch = {.timeout_ns = TIMEOUT_MS * MS, .combine = fw_share_combine},
        .now = cluster_now,
        .arm = cluster_arm,
    };
    struct fw_group *group = fw_bus_join(&world.bus, place, 0);
    rc = fw_epoch_cluster_init(&node->cluster, group, &config);
    FW_ASSERT(rc == 0);
    rc = fw_gang_init(&node->gang, &(struct fw_gang_config){.tenants = node->tenants,
                                                            .epoch_ns = EPOCH_MS * MS,
                                                            .timeout_ns = TIMEOUT_MS * MS,
                                                            .now = gang_now,
                                                            .arm = gang_arm});
    FW_ASSERT(rc == 0);
    if (policy == FW_SCHED_GANG) {
        fw_gang_start(&node->gang, &node->cluster.epoch);
    }
}

static void node_end(struct node *node, uint32_t place)
{
    fw_gang_stop(&node->gang);
    fw_gang_fini(&node->gang);
    fw_epoch_cluster_fini(&node->cluster);
    fw_bus_leave(&world.bus, place);
    fw_sched_shutdown(&node->sched);
    while (node->sched.waiting_count > 0) {
        fw_sched_get_next(&node->sched, &node->getter);
    }
    fw_sched_fini(&node->sched);
    fw_tenants_destroy(node->tenants);
}

static void part_done(struct part *part, bool counts)
{
    struct fan *fan = part->fan;
    if (--fan->open > 0) {
        return;
    }
    if (counts) {
        int64_t took_ns = world.now_ns - fan->since_ns;
        fw_histogram_record(&world.times, (uint64_t)took_ns);
        world.sum += (double)took_ns;
        world.count++;
    }
    fan->next_free = world.free;
    world.free = fan;
}

/* A request of anybody comes. */
static void fan_arrive(void)
{
    struct fan *fan = world.free;
    uint32_t tenant = 1 + (uint32_t)fw_random_below(&world.dice, TENANTS);
    uint32_t client = tenant * CLIENTS + (uint32_t)fw_random_below(&world.dice, CLIENTS);
    if (fan == NULL) {
        world.refused++;
        return;
    }
    world.free = fan->next_free;
    fan->open = NODES;
    fan->since_ns = world.now_ns;
    for (uint32_t i = 0; i < NODES; i++) {
        uint32_t cost = 1 + (uint32_t)fw_random_below(&world.dice, COST_MAX_US);
        fan->parts[i].fan = fan;
        fan->parts[i].request =
            (struct fw_sched_request){.class = {.tenant = tenant, .client = client, .cost = cost}};
        fw_sched_incoming(&world.nodes[i].sched, &fan->parts[i].request);
    }
}

static void node_step(struct node *node, uint32_t place, bool is_bus, bool counts)
{
    if (is_bus) {
        while (fw_bus_step(&world.bus, place)) {
        }
    }
    if (node->cluster_ns <= world.now_ns) {
        fw_epoch_cluster_poll(&node->cluster);
    }
    if (node->gang_ns <= world.now_ns) {
        fw_gang_poll(&node->gang);
    }
    while (node->serving != NULL && node->busy_until_ns <= world.now_ns) {
        struct part *part = node->serving;
        node->serving = NULL;
        part_done(part, counts);
        fw_sched_get_next(&node->sched, &node->getter);
    }
}

static void world_run(enum fw_sched_policy_number policy, double load, uint64_t steps,
                      uint64_t seed)
{
    memset(&world, 0, sizeof world);
    world.now_ns = FW_NS_PER_S;
    fw_histogram_init(&world.times);
    fw_random_init(&world.dice, seed);
    fw_bus_init(&world.bus, NODES);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        world.fans[i].next_free = world.free;
        world.free = &world.fans[i];
    }
    for (uint32_t i = 0; i < NODES; i++) {
        node_make(&world.nodes[i], i, policy);
    }
    /* So many arrive per step that their parts take that part of it. */
    double per_step = load * STEP_US / ((1 + COST_MAX_US) / 2.0);
    for (uint64_t step = 0; step < steps; step++) {
        world.now_ns += STEP_US * US;
        bool is_bus = step % BUS_STEPS == 0;
        for (uint32_t i = 0; is_bus && i < NODES; i++) {
            while (fw_bus_order(&world.bus, i)) {
            }
        }
        if ((double)fw_random_below(&world.dice, 1000000) < per_step * 1000000) {
            fan_arrive();
        }
        for (uint32_t i = 0; i < NODES; i++) {
            node_step(&world.nodes[i], i, is_bus, step > WARM_UP_STEPS);
        }
    }
    for (uint32_t i = 0; i < NODES; i++) {
        node_end(&world.nodes[i], i);
    }
    fw_bus_fini(&world.bus);
}

int main(int argc, char **argv)
{
    static const uint32_t loads[] = {10, 20, 30, 40, 50, 60, 70, 80, 85, 90, 95};
    static const struct {
        const char *name;
        enum fw_sched_policy_number policy;
    } sides[] = {{"fifo", FW_SCHED_FIFO}, {"wfq", FW_SCHED_WFQ}, {"gang", FW_SCHED_GANG}};
    uint64_t seconds;
    uint64_t seed;
    if (argc != 3 || fw_parse_uint(argv[1], strlen(argv[1]), 1, 10000, &seconds) != 0 ||
        fw_parse_uint(argv[2], strlen(argv[2]), 0, UINT64_MAX, &seed) != 0) {
        (void)fprintf(stderr, "usage: gang SECONDS SEED\n");
        return EXIT_FAILURE;
    }
    fw_clock_hooks = &clock_hooks;
    (void)printf("{");
    for (size_t i = 0; i < FW_ARRAY_LENGTH(loads); i++) {
        (void)printf("%s\"%" PRIu32 "\": {", i > 0 ? ", " : "", loads[i]);
        for (size_t j = 0; j < FW_ARRAY_LENGTH(sides); j++) {
            world_run(sides[j].policy, loads[i] / 100.0, seconds * 1000000 / STEP_US, seed);
            (void)printf("%s\"%s\": [%.1f, %.1f]", j > 0 ? ", " : "", sides[j].name,
                         world.sum / (double)world.count / 1000,
                         (double)fw_histogram_percentile(&world.times, 99) / 1000);
        }
        (void)printf("}");
    }
    (void)printf("}\n");
    return EXIT_SUCCESS;
}
