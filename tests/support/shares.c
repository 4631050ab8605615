/* SPDX-License-Identifier: Apache-2.0 */
#include "shares.h"

#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "io/clock.h"

enum { MS = 1000000, TIMEOUT_MS = 500, EPOCH_MS = 50, PERCENT_MAX = 105, PERCENT_MIN = 95 };

static void wrong(struct shares *shares, const char *what)
{
    if (shares->wrong == NULL) {
        shares->wrong = what;
    }
}

/* ---- what a node asks of its owner --------------------------------------------------------- */

static struct shares_node *node_of_cluster(struct fw_epoch_cluster *cluster)
{
    return FW_CONTAINER_OF(cluster, struct shares_node, cluster);
}

static struct shares_node *node_of_share(struct fw_share *share)
{
    return FW_CONTAINER_OF(share, struct shares_node, share);
}

static struct shares_node *node_of_sched(struct fw_sched *sched)
{
    return FW_CONTAINER_OF(sched, struct shares_node, sched);
}

static int64_t cluster_now(struct fw_epoch_cluster *cluster)
{
    return node_of_cluster(cluster)->shares->now_ns;
}

static void cluster_arm(struct fw_epoch_cluster *cluster, int64_t when_ns)
{
    node_of_cluster(cluster)->cluster_ns = when_ns;
}

static int64_t share_now(struct fw_share *share)
{
    return node_of_share(share)->shares->now_ns;
}

static void share_arm(struct fw_share *share, int64_t when_ns)
{
    node_of_share(share)->share_ns = when_ns;
}

static int64_t sched_now(struct fw_sched *sched)
{
    return node_of_sched(sched)->shares->now_ns;
}

static void sched_arm(struct fw_sched *sched, int64_t when_ns)
{
    node_of_sched(sched)->sched_ns = when_ns;
}

static int getter_ready(struct fw_sched_getter *getter, struct fw_sched_request *request)
{
    FW_CONTAINER_OF(getter, struct shares_node, getter)->got = request;
    return 0;
}

/* ---- life ---------------------------------------------------------------------------------- */

/* Every node has them in another order, beside others, and one has a tenant more. */
static void node_make_tenants(struct shares_node *node)
{
    static const char *const names[SHARES_TENANTS] = {"a", "b"};
    struct fw_tenant_config configs[4];
    uint32_t count = 0;
    if (node->place == 1) {
        configs[count++] =
            (struct fw_tenant_config){.name = "its own", .weight = 1, .cluster_rate = 100};
    }
    for (uint32_t i = 0; i < SHARES_TENANTS; i++) {
        uint32_t tenant = node->place == 2 ? SHARES_TENANTS - 1 - i : i;
        configs[count++] = (struct fw_tenant_config){
            .name = names[tenant], .weight = 1, .cluster_rate = SHARES_RATE};
    }
    int rc = fw_tenants_create(&node->tenants);
    FW_ASSERT(rc == 0);
    rc = fw_tenants_configure(node->tenants, configs, count);
    FW_ASSERT(rc == 0);
    for (uint32_t i = 0; i < SHARES_TENANTS; i++) {
        int number = fw_tenants_find(node->tenants, names[i]);
        FW_ASSERT(number > 0);
        node->demands[i].number = (uint32_t)number;
        node->demands[i].due_ns = node->shares->now_ns;
    }
}

void shares_init(struct shares *shares, bool keeps_fair, uint64_t seed)
{
    memset(shares, 0, sizeof *shares);
    fw_bus_init(&shares->bus, SHARES_NODES);
    fw_random_init(&shares->chance, seed);
    shares->now_ns = FW_NS_PER_S;
    shares->timeout_ns = (int64_t)TIMEOUT_MS * MS;
    shares->keeps_fair = keeps_fair;
    shares->least = 1;
    for (uint32_t i = 0; i < SHARES_NODES; i++) {
        shares->nodes[i].shares = shares;
        shares->nodes[i].place = i;
    }
}

void shares_start(struct shares *shares, uint32_t place)
{
    struct shares_node *node = &shares->nodes[place];
    FW_ASSERT(!node->is_up);
    node->is_up = true;
    node->is_frozen = false;
    node->is_deaf = false;
    node->cluster_ns = INT64_MAX;
    node->share_ns = INT64_MAX;
    node->sched_ns = INT64_MAX;
    node->got = NULL;
    node->getter = (struct fw_sched_getter){.ready = getter_ready};
    node_make_tenants(node);
    int rc = fw_sched_init(&node->sched, &(struct fw_sched_config){.policy = FW_SCHED_SHARE,
                                                                   .tenants = node->tenants,
                                                                   .arm = sched_arm,
                                                                   .now = sched_now});
    FW_ASSERT(rc == 0);
    fw_sched_get_next(&node->sched, &node->getter);
    struct fw_epoch_cluster_config config = {
        .epoch = {.timeout_ns = shares->timeout_ns,
                  .combine = fw_share_combine,
                  .swab = fw_share_swab},
        .now = cluster_now,
        .arm = cluster_arm,
    };
    struct fw_group *group = fw_bus_join(&shares->bus, place, shares->bus.places[place].component);
    rc = fw_epoch_cluster_init(&node->cluster, group, &config);
    FW_ASSERT(rc == 0);
    rc = fw_share_init(&node->share,
                       &(struct fw_share_config){.tenants = node->tenants,
                                                 .epoch_ns = (int64_t)EPOCH_MS * MS,
                                                 .timeout_ns = shares->timeout_ns,
                                                 .nodes = SHARES_NODES,
                                                 .keeps_fair = shares->keeps_fair,
                                                 .member = fw_random_next(&shares->chance),
                                                 .now = share_now,
                                                 .arm = share_arm});
    FW_ASSERT(rc == 0);
    fw_share_start(&node->share, &node->cluster.epoch);
    shares->changed_ns = shares->now_ns;
}

void shares_kill(struct shares *shares, uint32_t place)
{
    struct shares_node *node = &shares->nodes[place];
    FW_ASSERT(node->is_up);
    node->is_up = false;
    fw_share_stop(&node->share); /* Others hear nothing of it: it is not stepped any more. */
    fw_share_fini(&node->share);
    fw_epoch_cluster_fini(&node->cluster);
    fw_bus_leave(&shares->bus, place);
    fw_sched_shutdown(&node->sched);
    while (node->got != NULL || node->sched.waiting_count > 0) {
        node->got = NULL;
        if (node->sched.waiting_count > 0) {
            fw_sched_get_next(&node->sched, &node->getter);
        }
    }
    if (node->sched.getter == NULL) {
        node->got = NULL;
    }
    fw_sched_fini(&node->sched);
    fw_tenants_destroy(node->tenants);
    for (uint32_t i = 0; i < SHARES_TENANTS; i++) {
        memset(node->demands[i].requests, 0, sizeof node->demands[i].requests);
        node->demands[i].due = 0;
    }
    shares->changed_ns = shares->now_ns;
}

void shares_fini(struct shares *shares)
{
    for (uint32_t i = 0; i < SHARES_NODES; i++) {
        if (shares->nodes[i].is_up) {
            shares_kill(shares, i);
        }
    }
    fw_bus_fini(&shares->bus);
}

void shares_freeze(struct shares *shares, uint32_t place, bool is_frozen)
{
    shares->nodes[place].is_frozen = is_frozen;
    shares->changed_ns = shares->now_ns;
}

void shares_deafen(struct shares *shares, uint32_t place, bool is_deaf)
{
    shares->nodes[place].is_deaf = is_deaf;
    shares->changed_ns = shares->now_ns;
}

void shares_arrange(struct shares *shares, const uint32_t *components)
{
    fw_bus_arrange(&shares->bus, components, false);
    shares->changed_ns = shares->now_ns;
}

void shares_want(struct shares *shares, uint32_t place, uint32_t tenant, uint32_t wanted)
{
    struct shares_demand *demand = &shares->nodes[place].demands[tenant];
    demand->wanted = wanted;
    demand->due = 0;
    demand->due_ns = shares->now_ns;
    shares->changed_ns = shares->now_ns;
}

/* ---- a millisecond ------------------------------------------------------------------------- */

/*
 * Hands in what has become due; who wants all has a few waiting all the time. A sender that has too
 * many waiting gives up the rest: nobody owes it anything for the past.
 */
static void demand_arrive(struct shares_node *node, struct shares_demand *demand)
{
    enum { ENOUGH = 6, DUE_MAX = 64 };
    struct shares *shares = node->shares;
    bool wants_all = demand->wanted == SHARES_ALL;
    uint32_t limit = wants_all ? ENOUGH : SHARES_REQUESTS;
    demand->due += (double)(shares->now_ns - demand->due_ns) * demand->wanted / FW_NS_PER_S;
    demand->due = wants_all || demand->due > DUE_MAX ? DUE_MAX : demand->due;
    demand->due_ns = shares->now_ns;
    for (uint32_t i = 0; i < limit && demand->due >= 1; i++) {
        struct fw_sched_request *request = &demand->requests[i];
        if (fw_sched_is_waiting(request) || request == node->got) {
            continue;
        }
        uint32_t cost = 1 + (uint32_t)fw_random_below(&shares->chance, SHARES_COST_MAX);
        request->class =
            (struct fw_sched_class){.tenant = demand->number, .client = i, .cost = cost};
        demand->due -= cost;
        fw_sched_incoming(&node->sched, request);
    }
}

static void node_serve(struct shares_node *node)
{
    struct shares *shares = node->shares;
    while (node->got != NULL) {
        const struct fw_sched_request *request = node->got;
        for (uint32_t i = 0; i < SHARES_TENANTS; i++) {
            if (request->class.tenant == node->demands[i].number) {
                shares->served[i][shares->milliseconds % SHARES_WINDOW_MS] += request->class.cost;
                shares->window[i] += request->class.cost;
                if (node->demands[i].wanted == SHARES_ALL) {
                    node->got = NULL;
                    demand_arrive(node, &node->demands[i]);
                }
            }
        }
        node->got = NULL;
        fw_sched_get_next(&node->sched, &node->getter);
    }
}

static void node_poll(struct shares_node *node)
{
    struct shares *shares = node->shares;
    for (uint32_t i = 0; i < SHARES_TENANTS; i++) {
        demand_arrive(node, &node->demands[i]);
    }
    node_serve(node);
    if (node->sched_ns <= shares->now_ns) {
        node->sched_ns = INT64_MAX;
        fw_sched_poll(&node->sched);
        node_serve(node);
    }
}

/* Its head may well be faster than what tells it what it may serve. */
static void node_step(struct shares_node *node)
{
    struct shares *shares = node->shares;
    node_poll(node);
    if (node->is_deaf) {
        return;
    }
    while (fw_bus_step(&shares->bus, node->place)) {
    }
    if (node->cluster_ns <= shares->now_ns) {
        node->cluster_ns = INT64_MAX;
        fw_epoch_cluster_poll(&node->cluster);
    }
    if (node->share_ns <= shares->now_ns) {
        node->share_ns = INT64_MAX;
        fw_share_poll(&node->share);
    }
    node_poll(node);
}

/* Those who hear each other and are awake, if they are more than half; a mask. */
static uint32_t quorum(const struct shares *shares)
{
    for (uint32_t i = 0; i < SHARES_NODES; i++) {
        uint32_t component = shares->bus.places[i].component;
        uint32_t mask = 0;
        uint32_t count = 0;
        for (uint32_t j = 0; j < SHARES_NODES; j++) {
            const struct shares_node *node = &shares->nodes[j];
            bool is_there = node->is_up && shares->bus.places[j].component == component;
            count += is_there;
            mask |= is_there && !node->is_frozen && !node->is_deaf ? 1U << j : 0;
        }
        if (count * 2 > SHARES_NODES) {
            return mask;
        }
    }
    return 0;
}

/* What can be had of what is wanted, per second. */
static double obtainable(const struct shares *shares, uint32_t tenant)
{
    uint32_t mask = quorum(shares);
    double available = SHARES_RATE;
    double wanted = 0;
    if (shares->keeps_fair) {
        available = (double)SHARES_RATE * __builtin_popcount(mask) / SHARES_NODES;
    }
    for (uint32_t i = 0; i < SHARES_NODES; i++) {
        uint32_t one = shares->nodes[i].demands[tenant].wanted;
        if ((mask & 1U << i) != 0) {
            wanted += one == SHARES_ALL ? SHARES_RATE : one;
        }
    }
    return wanted < available ? wanted : available;
}

static void windows_check(struct shares *shares)
{
    for (uint32_t i = 0; i < SHARES_TENANTS; i++) {
        uint64_t window = shares->window[i];
        shares->window_max[i] = window > shares->window_max[i] ? window : shares->window_max[i];
        if (window > SHARES_RATE * PERCENT_MAX / 100 + SHARES_NODES * SHARES_COST_MAX) {
            wrong(shares, "more than 105 % of a cluster's rate was served in a second");
        }
        int64_t settled_ns = (int64_t)(SHARES_SETTLE_MS + SHARES_WINDOW_MS) * MS;
        double due = obtainable(shares, i);
        if (shares->now_ns - shares->changed_ns > settled_ns && due > 0) {
            double part = (double)(window + (uint64_t)SHARES_NODES * SHARES_COST_MAX) / due;
            shares->least = part < shares->least ? part : shares->least;
            if (part * 100 < PERCENT_MIN) {
                wrong(shares, "less than 95 % of what could be had was served in a second");
            }
        }
    }
}

static void millisecond(struct shares *shares)
{
    for (uint32_t i = 0; i < SHARES_TENANTS; i++) {
        uint32_t *oldest = &shares->served[i][shares->milliseconds % SHARES_WINDOW_MS];
        shares->window[i] -= *oldest;
        *oldest = 0;
    }
    for (uint32_t i = 0; i < SHARES_NODES; i++) {
        while (fw_bus_order(&shares->bus, i)) {
        }
    }
    for (uint32_t i = 0; i < SHARES_NODES; i++) {
        struct shares_node *node = &shares->nodes[i];
        bool is_late = !shares->is_prompt && fw_random_chance(&shares->chance, 1, 4);
        if (node->is_up && !node->is_frozen && !is_late) {
            node_step(node);
        }
    }
    windows_check(shares);
    shares->milliseconds++;
    shares->now_ns += MS;
}

void shares_pass(struct shares *shares, uint32_t milliseconds)
{
    for (uint32_t i = 0; i < milliseconds && shares->wrong == NULL; i++) {
        millisecond(shares);
    }
}

/* ---- chance -------------------------------------------------------------------------------- */

static void demand_random(struct shares *shares, uint32_t place)
{
    uint32_t tenant = (uint32_t)fw_random_below(&shares->chance, SHARES_TENANTS);
    uint64_t kind = fw_random_below(&shares->chance, 4);
    uint32_t paced = (uint32_t)fw_random_below(&shares->chance, SHARES_RATE);
    shares_want(shares, place, tenant, kind == 0 ? 0 : kind == 1 ? paced : SHARES_ALL);
}

void shares_random_change(struct shares *shares)
{
    uint32_t place = (uint32_t)fw_random_below(&shares->chance, SHARES_NODES);
    struct shares_node *node = &shares->nodes[place];
    uint32_t components[FW_BUS_PLACES_MAX] = {0};
    switch (fw_random_below(&shares->chance, 9)) {
    case 0:
        if (node->is_up) {
            shares_kill(shares, place);
        }
        break;
    case 1:
        if (node->is_up) {
            shares_freeze(shares, place, !node->is_frozen);
        }
        break;
    case 5:
        if (node->is_up) {
            shares_deafen(shares, place, !node->is_deaf);
        }
        break;
    case 2:
        for (uint32_t i = 0; i < SHARES_NODES; i++) {
            components[i] = (uint32_t)fw_random_below(&shares->chance, 2);
        }
        shares_arrange(shares, components);
        break;
    case 3:
        shares_arrange(shares, components);
        break;
    case 4:
        if (!node->is_up) {
            shares_start(shares, place);
        }
        break;
    default:
        demand_random(shares, place);
        break;
    }
}
