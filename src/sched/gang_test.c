/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: all nodes serve the same tenant in the same epoch, each tenant that waits is chosen within
 * as many epochs as there are of them, nobody idles, and who is cut off goes on by weight. Method:
 * three nodes with a head each on a bus, and a clock that the test moves by hand. A node gives out
 * one request per millisecond, so that who is served when can be read off.
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
#include "epoch/bus.h"
#include "epoch/cluster.h"
#include "sched/gang.h"
#include "sched/tenants.h"

enum { NODES = 3, TENANTS = 3, REQUESTS = 40 };

#define MS INT64_C(1000000)

struct node {
    struct fw_sched sched;
    struct fw_sched_getter getter;
    struct fw_sched_request *got;
    struct fw_tenants *tenants;
    uint32_t numbers[TENANTS];
    struct fw_sched_request requests[TENANTS][REQUESTS];
    struct fw_gang gang;
    int64_t gang_ns;
    struct fw_epoch_cluster cluster;
    int64_t cluster_ns;
};

static struct node nodes[NODES];
static struct fw_bus bus;
static int64_t now_ns;

static int64_t gang_now(struct fw_gang *gang)
{
    (void)gang;
    return now_ns;
}

static void gang_arm(struct fw_gang *gang, int64_t when_ns)
{
    FW_CONTAINER_OF(gang, struct node, gang)->gang_ns = when_ns;
}

static int64_t cluster_now(struct fw_epoch_cluster *cluster)
{
    (void)cluster;
    return now_ns;
}

static void cluster_arm(struct fw_epoch_cluster *cluster, int64_t when_ns)
{
    FW_CONTAINER_OF(cluster, struct node, cluster)->cluster_ns = when_ns;
}

static int64_t sched_now(struct fw_sched *sched)
{
    (void)sched;
    return now_ns;
}

static int ready(struct fw_sched_getter *getter, struct fw_sched_request *request)
{
    FW_CONTAINER_OF(getter, struct node, getter)->got = request;
    return 0;
}

/* The same tenants on each node, in another order. */
static void node_start(uint32_t place)
{
    static const char *const names[TENANTS] = {"x", "y", "z"};
    struct node *node = &nodes[place];
    struct fw_tenant_config configs[TENANTS];
    *node = (struct node){.getter.ready = ready, .gang_ns = INT64_MAX, .cluster_ns = INT64_MAX};
    for (uint32_t i = 0; i < TENANTS; i++) {
        configs[i] = (struct fw_tenant_config){.name = names[(i + place) % TENANTS], .weight = 1};
    }
    assert_int_equal(fw_tenants_create(&node->tenants), 0);
    assert_int_equal(fw_tenants_configure(node->tenants, configs, TENANTS), 0);
    for (uint32_t i = 0; i < TENANTS; i++) {
        node->numbers[i] = (uint32_t)fw_tenants_find(node->tenants, names[i]);
    }
    struct fw_sched_config sched = {
        .policy = FW_SCHED_GANG, .tenants = node->tenants, .now = sched_now};
    assert_int_equal(fw_sched_init(&node->sched, &sched), 0);
    struct fw_epoch_cluster_config config = {
        .epoch = {.timeout_ns = 100 * MS, .combine = fw_share_combine, .swab = fw_share_swab},
        .now = cluster_now,
        .arm = cluster_arm,
    };
    struct fw_group *group = fw_bus_join(&bus, place, 0);
    assert_int_equal(fw_epoch_cluster_init(&node->cluster, group, &config), 0);
    struct fw_gang_config gang = {.tenants = node->tenants,
                                  .epoch_ns = 8 * MS,
                                  .timeout_ns = 100 * MS,
                                  .now = gang_now,
                                  .arm = gang_arm};
    assert_int_equal(fw_gang_init(&node->gang, &gang), 0);
    fw_gang_start(&node->gang, &node->cluster.epoch);
}

static int setup(void **state)
{
    (void)state;
    now_ns = 1000 * MS;
    fw_bus_init(&bus, NODES);
    for (uint32_t i = 0; i < NODES; i++) {
        node_start(i);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NODES; i++) {
        struct node *node = &nodes[i];
        fw_gang_stop(&node->gang);
        fw_gang_fini(&node->gang);
        fw_epoch_cluster_fini(&node->cluster);
        fw_bus_leave(&bus, i);
        fw_sched_shutdown(&node->sched);
        while (node->sched.waiting_count > 0) {
            fw_sched_get_next(&node->sched, &node->getter);
        }
        fw_sched_fini(&node->sched);
        fw_tenants_destroy(node->tenants);
    }
    fw_bus_fini(&bus);
    return 0;
}

/* Nothing of the tenant waits there any more, or so many do. */
static void want(uint32_t place, uint32_t tenant, uint32_t count)
{
    struct node *node = &nodes[place];
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct fw_sched_request *request = &node->requests[tenant][i];
        if (i < count && !fw_sched_is_waiting(request)) {
            *request = (struct fw_sched_request){
                .class = {.tenant = node->numbers[tenant], .client = i, .cost = 1}};
            fw_sched_incoming(&node->sched, request);
        } else if (i >= count && fw_sched_is_waiting(request)) {
            fw_sched_cancel(&node->sched, request);
        }
    }
}

static void bus_move(void)
{
    for (uint32_t i = 0; i < NODES; i++) {
        while (fw_bus_order(&bus, i)) {
        }
    }
    for (uint32_t i = 0; i < NODES; i++) {
        while (fw_bus_step(&bus, i)) {
        }
    }
}

/* A millisecond passes. */
static void pass(void)
{
    now_ns += MS;
    bus_move();
    for (uint32_t i = 0; i < NODES; i++) {
        if (nodes[i].cluster_ns <= now_ns) {
            fw_epoch_cluster_poll(&nodes[i].cluster);
        }
        if (nodes[i].gang_ns <= now_ns) {
            fw_gang_poll(&nodes[i].gang);
        }
    }
    bus_move();
}

/* Which tenant the node serves next: its place in the names; TENANTS: none. Its sender sends again.
 */
static uint32_t serve(uint32_t place)
{
    struct node *node = &nodes[place];
    if (node->sched.waiting_count == 0) {
        return TENANTS;
    }
    fw_sched_get_next(&node->sched, &node->getter);
    struct fw_sched_request *request = node->got;
    uint32_t tenant = 0;
    while (node->numbers[tenant] != request->class.tenant) {
        tenant++;
    }
    fw_sched_incoming(&node->sched, request);
    return tenant;
}

/* The tenant that is chosen, the same on all nodes; TENANTS: none. */
static uint32_t chosen(void)
{
    uint32_t found = TENANTS;
    for (uint32_t i = 0; i < NODES; i++) {
        uint32_t tenant = 0;
        while (tenant < TENANTS && nodes[i].gang.chosen != nodes[i].numbers[tenant] + 1) {
            tenant++;
        }
        assert_true(i == 0 || tenant == found);
        found = tenant;
    }
    return found;
}

/* All serve the chosen one, epoch for epoch another, and each is chosen in its turn. */
static void test_all_serve_the_same(void **state)
{
    (void)state;
    uint32_t times[TENANTS + 1] = {0};
    for (uint32_t i = 0; i < NODES; i++) {
        for (uint32_t j = 0; j < TENANTS; j++) {
            want(i, j, REQUESTS);
        }
    }
    int64_t number = 0;
    uint32_t since[TENANTS] = {0};
    for (uint32_t i = 0; i < 500; i++) {
        pass();
        uint32_t tenant = chosen();
        if (tenant == TENANTS) {
            continue;
        }
        for (uint32_t j = 0; j < NODES; j++) {
            assert_int_equal(serve(j), tenant);
        }
        if (nodes[0].gang.number != number) {
            number = nodes[0].gang.number;
            times[tenant]++;
            for (uint32_t j = 0; j < TENANTS; j++) {
                since[j] = j == tenant ? 0 : since[j] + 1;
                assert_in_range(since[j], 0, TENANTS);
            }
        }
    }
    for (uint32_t j = 0; j < TENANTS; j++) {
        assert_in_range(times[j], 10, 30);
    }
}

static uint32_t age_greatest(const struct fw_gang *gang)
{
    uint32_t greatest = 0;
    for (uint32_t i = 0; i < gang->id_count; i++) {
        greatest = gang->ages[i] > greatest ? gang->ages[i] : greatest;
    }
    return greatest;
}

/* Who waited for some epochs, and then no more, is no older than others when it comes again. */
static void test_age_is_lost(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < TENANTS; i++) {
        want(0, i, REQUESTS);
    }
    for (uint32_t i = 0; i < 50; i++) {
        pass();
    }
    assert_true(age_greatest(&nodes[0].gang) > 0);
    for (uint32_t i = 0; i < TENANTS; i++) {
        want(0, i, 0);
    }
    for (uint32_t i = 0; i < 50; i++) {
        pass();
    }
    assert_int_equal(age_greatest(&nodes[0].gang), 0);
}

/* One that has nothing waiting here is not waited for: the others go, by weight. */
static void test_nobody_idles(void **state)
{
    (void)state;
    want(0, 0, REQUESTS);
    want(1, 1, REQUESTS);
    want(1, 2, REQUESTS);
    uint32_t served[TENANTS] = {0};
    for (uint32_t i = 0; i < 300; i++) {
        pass();
        assert_int_equal(serve(0), 0);
        served[serve(1)]++;
        assert_int_equal(serve(2), TENANTS);
    }
    assert_in_range(served[1] + 16 - served[2], 0, 32);
}

/* An epoch ends early when nothing of the chosen one waits anywhere. */
static void test_short_epochs(void **state)
{
    (void)state;
    want(0, 0, 1);
    while (chosen() == TENANTS) {
        pass();
    }
    int64_t number = nodes[0].gang.number;
    want(0, 0, 0);
    for (uint32_t i = 0; i < 4; i++) {
        pass();
    }
    assert_true(nodes[0].gang.number > number);
}

/* A choice holds for an epoch and a time-out, whether anybody says so or not. */
static void test_choice_ends_by_the_clock(void **state)
{
    (void)state;
    want(0, 0, REQUESTS);
    want(0, 1, REQUESTS);
    while (chosen() == TENANTS) {
        pass();
    }
    uint32_t tenant = chosen();
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(serve(0), tenant);
    }
    now_ns += 108 * MS;
    bool has_other = false;
    for (uint32_t i = 0; i < 30; i++) {
        has_other |= serve(0) != tenant;
    }
    assert_true(has_other);
}

/* Cut off, it goes on by weight; when it is back it is in step. */
static void test_cut_off(void **state)
{
    (void)state;
    static const uint32_t cut[FW_BUS_PLACES_MAX] = {1};
    static const uint32_t whole[FW_BUS_PLACES_MAX] = {0};
    uint32_t served[TENANTS] = {0};
    for (uint32_t j = 0; j < TENANTS; j++) {
        want(0, j, REQUESTS);
        want(1, j, REQUESTS);
    }
    for (uint32_t i = 0; i < 50; i++) {
        pass();
    }
    assert_true(nodes[0].gang.is_in);
    fw_bus_arrange(&bus, cut, false);
    for (uint32_t i = 0; i < 20; i++) {
        pass();
    }
    assert_false(nodes[0].gang.is_in);
    assert_true(nodes[1].gang.is_in);
    for (uint32_t i = 0; i < 300; i++) {
        pass();
        served[serve(0)]++;
    }
    for (uint32_t j = 0; j < TENANTS; j++) {
        assert_in_range(served[j], 99, 101);
    }
    fw_bus_arrange(&bus, whole, false);
    for (uint32_t i = 0; i < 300; i++) {
        pass();
    }
    assert_true(nodes[0].gang.is_in);
    assert_true(chosen() < TENANTS);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_all_serve_the_same),
        TEST(test_age_is_lost),
        TEST(test_nobody_idles),
        TEST(test_short_epochs),
        TEST(test_choice_ends_by_the_clock),
        TEST(test_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
