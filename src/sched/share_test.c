/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: three nodes that divide a cluster's rate never serve more than 105 % of it in any second
 * together, and at least 95 % from 2 s after any change; whoever is cut off falls back, and comes
 * back; tenants are told apart by name, however many there are, in any order of combining.
 * Method: the nodes of tests/support/shares.h, which check both bounds at every millisecond, under
 * demand that is moved by hand and by chance. Combining is tried by itself, over random trees.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sched/share.h"
#include "sched/tenants.h"
#include "support/shares.h"

static struct shares shares;

static void start(bool keeps_fair)
{
    shares_init(&shares, keeps_fair, 1);
    for (uint32_t i = 0; i < SHARES_NODES; i++) {
        shares_start(&shares, i);
    }
}

static void pass(uint32_t milliseconds)
{
    shares_pass(&shares, milliseconds);
    if (shares.wrong != NULL) {
        print_message("after %d ms: %s (%llu and %llu)\n", (int)(shares.now_ns / 1000000 - 1000),
                      shares.wrong, (unsigned long long)shares.window[0],
                      (unsigned long long)shares.window[1]);
    }
    assert_null(shares.wrong);
}

static void stop(void)
{
    assert_true(shares.window_max[0] > 0);
    shares_fini(&shares);
}

static uint64_t part(uint32_t place, uint32_t tenant)
{
    const struct shares_node *node = &shares.nodes[place];
    return fw_share_part(&node->share, node->demands[tenant].number, shares.now_ns);
}

/* Whoever wants it has it, and all of them their fair parts if all want it. */
static void test_demand_moves(void **state)
{
    start(*state != NULL);
    for (uint32_t i = 0; i < SHARES_NODES; i++) {
        shares_want(&shares, i, 0, SHARES_ALL);
        pass(4000);
        assert_true(part(i, 0) > SHARES_RATE * 96 / 100);
        shares_want(&shares, i, 0, 0);
    }
    for (uint32_t i = 0; i < SHARES_NODES; i++) {
        shares_want(&shares, i, 0, SHARES_ALL);
    }
    pass(4000);
    for (uint32_t i = 0; i < SHARES_NODES; i++) {
        assert_in_range(part(i, 0), SHARES_RATE * 32 / 100, SHARES_RATE * 35 / 100);
    }
    stop();
}

/* Who wants little gets that, beside one that wants all. */
static void test_modest_beside_greedy(void **state)
{
    (void)state;
    start(false);
    shares_want(&shares, 0, 0, 1000);
    shares_want(&shares, 1, 0, SHARES_ALL);
    shares_want(&shares, 2, 0, 4000);
    pass(10000);
    assert_in_range(part(0, 0), 1000, 1200);
    assert_in_range(part(2, 0), 4000, 4400);
    stop();
}

/* The adversary: wherever the grant has just gone to, demand goes elsewhere. */
static void test_demand_moves_all_the_time(void **state)
{
    start(*state != NULL);
    for (uint32_t i = 0; i < 600; i++) {
        for (uint32_t j = 0; j < SHARES_NODES; j++) {
            shares_want(&shares, j, 0, i % SHARES_NODES == j ? SHARES_ALL : 0);
            shares_want(&shares, j, 1, i / 20 % SHARES_NODES == j ? SHARES_ALL : 0);
        }
        pass(50);
    }
    stop();
}

/* A node dies: the others have its part, or leave it if they cannot know. It returns. */
static void test_death_and_return(void **state)
{
    bool keeps_fair = *state != NULL;
    start(keeps_fair);
    for (uint32_t i = 0; i < SHARES_NODES; i++) {
        shares_want(&shares, i, 0, SHARES_ALL);
    }
    pass(4000);
    shares_kill(&shares, 1);
    pass(4000);
    uint64_t left = keeps_fair ? (uint64_t)SHARES_RATE * 2 / 3 : SHARES_RATE;
    assert_in_range(part(0, 0) + part(2, 0), left * 97 / 100, left);
    shares_start(&shares, 1);
    pass(4000);
    assert_in_range(part(1, 0), SHARES_RATE * 32 / 100, SHARES_RATE * 35 / 100);
    stop();
}

/* A node that is cut off has its fallback after a while, and says so; the others go on. */
static void test_cut_off(void **state)
{
    bool keeps_fair = *state != NULL;
    static const uint32_t cut[SHARES_NODES] = {0, 1, 0};
    static const uint32_t whole[SHARES_NODES] = {0};
    start(keeps_fair);
    shares_want(&shares, 1, 0, SHARES_ALL);
    pass(4000);
    uint64_t had = part(1, 0);
    assert_true(shares.nodes[1].share.is_in);
    shares_arrange(&shares, cut);
    pass(100);
    assert_false(shares.nodes[1].share.is_in);
    assert_int_equal(shares.nodes[1].share.last_error, -ENOTCONN);
    assert_in_range(part(1, 0), had - 10, had); /* Its lease. */
    pass(600);
    assert_int_equal(part(1, 0), 0);
    pass(1000);
    assert_int_equal(part(1, 0), keeps_fair ? SHARES_RATE / SHARES_NODES : 0);
    shares_want(&shares, 0, 0, SHARES_ALL);
    pass(4000);
    shares_arrange(&shares, whole);
    pass(4000);
    assert_true(shares.nodes[1].share.is_in);
    assert_int_equal(shares.nodes[1].share.cut_off_count, 1);
    stop();
}

/* One that is frozen is left behind; when it wakes up it has nothing before it knows. */
static void test_frozen(void **state)
{
    start(*state != NULL);
    for (uint32_t i = 0; i < SHARES_NODES; i++) {
        shares_want(&shares, i, 0, SHARES_ALL);
    }
    pass(4000);
    shares_freeze(&shares, 2, true);
    pass(5000);
    assert_int_equal(part(2, 0), 0);
    shares_freeze(&shares, 2, false);
    pass(5000);
    assert_true(part(2, 0) > SHARES_RATE * 30 / 100);
    stop();
}

/* Heads know by themselves when a grant has ended. */
static void test_deaf(void **state)
{
    start(*state != NULL);
    for (uint32_t i = 0; i < SHARES_NODES; i++) {
        shares_want(&shares, i, 0, SHARES_ALL);
    }
    pass(4000);
    shares_deafen(&shares, 0, true);
    pass(5000);
    assert_int_equal(part(0, 0), 0);
    shares_deafen(&shares, 0, false);
    pass(5000);
    assert_true(part(0, 0) > SHARES_RATE * 30 / 100);
    stop();
}

/* Anything, at any time. */
static void test_storm(void **state)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        shares_init(&shares, *state != NULL, seed);
        for (uint32_t i = 0; i < SHARES_NODES; i++) {
            shares_start(&shares, i);
        }
        for (uint32_t i = 0; i < 60; i++) {
            shares_random_change(&shares);
            pass(1 + (uint32_t)fw_random_below(
                         &shares.chance, fw_random_chance(&shares.chance, 1, 4) ? 5000 : 700));
        }
        shares_fini(&shares);
    }
}

/* ---- data ---------------------------------------------------------------------------------- */

enum { GIVERS = 8 };

static void data_random(struct fw_random *dice, struct fw_share_data *data)
{
    *data = (struct fw_share_data){.terms = 7, .participants = 1, .members = fw_random_next(dice)};
    uint64_t id = 0;
    data->count = (uint16_t)fw_random_below(dice, FW_SHARE_RECORDS + 1);
    for (uint32_t i = 0; i < data->count; i++) {
        id += 1 + fw_random_below(dice, 4);
        uint32_t claim = (uint32_t)fw_random_below(dice, FW_SHARE_WHOLE);
        uint32_t rate = 1 + (uint32_t)fw_random_below(dice, 1000);
        data->records[i] = (struct fw_share_record){.id = id, .claim = claim, .rate = rate};
    }
}

/* Combined two by two in any order, the result is the same, to the byte. */
static void test_combine_in_any_order(void **state)
{
    (void)state;
    static struct fw_share_data given[GIVERS];
    static struct fw_share_data tree[GIVERS];
    static struct fw_share_data first;
    struct fw_random dice;
    fw_random_init(&dice, 1);
    for (uint32_t attempt = 0; attempt < 400; attempt++) {
        for (uint32_t i = 0; attempt % 20 == 0 && i < GIVERS; i++) {
            data_random(&dice, &given[i]);
        }
        memcpy(tree, given, sizeof tree);
        for (uint32_t left = GIVERS; left > 1; left--) {
            uint32_t a = (uint32_t)fw_random_below(&dice, left);
            uint32_t b = (a + 1 + (uint32_t)fw_random_below(&dice, left - 1)) % left;
            uint32_t into = fw_random_chance(&dice, 1, 2) ? a : b;
            fw_share_combine(&tree[into], &tree[a], sizeof tree[a], &tree[b], sizeof tree[b]);
            tree[into == a ? b : a] = tree[left - 1]; /* One fewer; it may be the combined one. */
        }
        first = attempt % 20 == 0 ? tree[0] : first;
        assert_memory_equal(&tree[0], &first, sizeof first);
    }
    assert_int_equal(first.participants, GIVERS);
    assert_int_equal(first.count, FW_SHARE_RECORDS);
}

/* The sums are those of all who named a tenant; the lowest rate counts. */
static void test_combine_sums(void **state)
{
    (void)state;
    struct fw_share_data a = {.terms = 7, .participants = 1, .count = 2};
    struct fw_share_data b = {.terms = 7, .participants = 2, .count = 2};
    a.records[0] = (struct fw_share_record){.id = 1, .claim = 10, .rate = 100};
    a.records[1] = (struct fw_share_record){.id = 5, .claim = 20, .rate = 100};
    b.records[0] = (struct fw_share_record){.id = 5, .claim = 3, .rate = 90};
    b.records[1] = (struct fw_share_record){.id = 9, .claim = 4, .rate = 100};
    fw_share_combine(&a, &a, sizeof a, &b, sizeof b);
    assert_int_equal(a.participants, 3);
    assert_int_equal(a.terms, 7);
    assert_int_equal(a.count, 3);
    assert_int_equal(a.records[1].id, 5);
    assert_int_equal(a.records[1].claim, 23);
    assert_int_equal(a.records[1].rate, 90);
    b.terms = 8;
    fw_share_combine(&a, &a, sizeof a, &b, sizeof b);
    assert_int_equal(a.terms, FW_SHARE_DISAGREED);
    fw_share_swab(&b, sizeof b);
    assert_int_equal(b.participants, 2 << 8);
    fw_share_swab(&b, sizeof b);
    assert_int_equal(b.records[1].id, 9);
    /* A short one, or one that claims to be longer than it is, harms nobody. */
    char shorter[20] = {0};
    memcpy(shorter, &b, sizeof shorter);
    fw_share_combine(shorter, shorter, sizeof shorter, &a, sizeof a);
    uint32_t terms;
    memcpy(&terms, shorter, sizeof terms);
    assert_int_equal(terms, FW_SHARE_DISAGREED);
    b.count = UINT16_MAX;
    fw_share_combine(&a, &a, sizeof a, &b, sizeof b);
    assert_in_range(a.count, 0, FW_SHARE_RECORDS);
}

/* ---- one node, whose peers are the test ----------------------------------------------------- */

enum { MANY = 300 };

static struct {
    struct fw_epoch epoch;
    struct fw_share share;
    struct fw_tenants *tenants;
    int64_t now_ns;
    int64_t armed_ns;
    int64_t number;
    struct fw_share_data *data;
    fw_epoch_started started;
    void *argument;
    uint32_t lasts;
} alone;

static void alone_next(struct fw_epoch *epoch, int64_t number, void *data, size_t length,
                       fw_epoch_started started, void *argument)
{
    assert_ptr_equal(epoch, &alone.epoch);
    assert_int_equal(length, sizeof *alone.data);
    alone.number = number;
    alone.data = data;
    alone.started = started;
    alone.argument = argument;
}

static void alone_last(struct fw_epoch *epoch, int64_t number)
{
    (void)epoch;
    assert_int_equal(number, alone.number == FW_EPOCH_FIRST ? number : alone.number);
    alone.lasts++;
}

static const struct fw_epoch_handler alone_handler = {
    .name = "alone", .next = alone_next, .last = alone_last};

static int64_t alone_now(struct fw_share *share)
{
    (void)share;
    return alone.now_ns;
}

static void alone_arm(struct fw_share *share, int64_t when_ns)
{
    (void)share;
    alone.armed_ns = when_ns;
}

static void alone_configure(uint32_t count, uint64_t rate)
{
    static char names[MANY][16];
    struct fw_tenant_config configs[MANY];
    for (uint32_t i = 0; i < count; i++) {
        (void)snprintf(names[i], sizeof names[i], "tenant %u", i);
        configs[i] = (struct fw_tenant_config){.name = names[i], .weight = 1, .cluster_rate = rate};
    }
    assert_int_equal(fw_tenants_configure(alone.tenants, configs, count), 0);
}

static void alone_start(uint32_t count, uint32_t nodes, bool keeps_fair)
{
    memset(&alone, 0, sizeof alone);
    alone.now_ns = INT64_C(1000000000);
    alone.epoch.handler = &alone_handler;
    assert_int_equal(fw_tenants_create(&alone.tenants), 0);
    alone_configure(count, 3000);
    struct fw_share_config config = {.tenants = alone.tenants,
                                     .epoch_ns = 50000000,
                                     .timeout_ns = 500000000,
                                     .nodes = nodes,
                                     .keeps_fair = keeps_fair,
                                     .member = 1,
                                     .now = alone_now,
                                     .arm = alone_arm};
    assert_int_equal(fw_share_init(&alone.share, &config), 0);
    fw_share_start(&alone.share, &alone.epoch);
}

/* The epoch starts, with what it gave and with that of others. */
static void alone_answer(const struct fw_share_data *others)
{
    int64_t number = alone.number == FW_EPOCH_FIRST ? 1 : alone.number + 1;
    if (others != NULL) {
        fw_share_combine(alone.data, alone.data, sizeof *alone.data, others, sizeof *others);
    }
    alone.started(alone.argument, number, alone.data, sizeof *alone.data);
    alone.now_ns = alone.armed_ns;
    fw_share_poll(&alone.share);
}

/* So many epochs that what was before does not count any more. */
static void alone_settle(const struct fw_share_data *others)
{
    for (uint32_t i = 0; i < 20; i++) {
        alone_answer(others);
    }
}

static uint64_t alone_part(uint32_t tenant)
{
    return fw_share_part(&alone.share, tenant, alone.now_ns);
}

static void alone_stop(void)
{
    fw_share_stop(&alone.share);
    assert_int_equal(alone.lasts, 1);
    fw_share_fini(&alone.share);
    fw_tenants_destroy(alone.tenants);
}

/* Those that an epoch's data has no room for are divided evenly, by all alike. */
static void test_more_tenants_than_fit(void **state)
{
    (void)state;
    static struct fw_share_data other;
    alone_start(MANY, 0, false);
    assert_int_equal(alone.data->count, FW_SHARE_RECORDS);
    other = *alone.data;
    other.members = 2;
    for (uint32_t i = 0; i < other.count; i++) {
        other.records[i].claim *= 2;
    }
    alone_settle(&other);
    uint32_t thirds = 0;
    uint32_t halves = 0;
    for (uint32_t i = 1; i <= MANY; i++) {
        thirds += alone_part(i) < 1100 && alone_part(i) > 10;
        halves += alone_part(i) == 1500;
    }
    assert_int_equal(thirds, FW_SHARE_RECORDS);
    assert_int_equal(halves, MANY - FW_SHARE_RECORDS);
    alone_stop();
}

/* A tenant that another node knows and this does not is nothing to it; the others are found. */
static void test_different_tenants(void **state)
{
    (void)state;
    static struct fw_share_data other;
    alone_start(2, 0, false);
    other = *alone.data;
    other.members = 2;
    other.records[0].rate = 1200; /* The lower one counts. */
    other.records[1].id = UINT64_MAX;
    uint64_t id = other.records[0].id;
    alone_settle(&other);
    uint64_t parts[] = {alone_part(1), alone_part(2)};
    uint32_t shared = alone.data->records[0].id == id ? 0 : 1;
    assert_int_equal(shared, 0);
    uint64_t smaller = parts[0] < parts[1] ? parts[0] : parts[1];
    uint64_t larger = parts[0] < parts[1] ? parts[1] : parts[0];
    assert_in_range(smaller, 1, 1200);
    assert_int_equal(larger, 3000);
    alone_stop();
}

/* Nodes that are configured otherwise divide evenly. */
static void test_disagreement(void **state)
{
    (void)state;
    static struct fw_share_data other;
    alone_start(1, 3, true);
    other = *alone.data;
    other.members = 2;
    other.terms++;
    alone_settle(&other);
    assert_int_equal(alone_part(1), 1000); /* One third is left to the third. */
    alone_stop();
}

/* A rate that is configured anew holds from the next epoch; a new tenant has nothing before. */
static void test_configured_anew(void **state)
{
    (void)state;
    alone_start(1, 0, false);
    alone_settle(NULL);
    assert_int_equal(alone_part(1), 3000);
    alone_configure(2, 6000);
    int64_t again_ns;
    struct fw_tenant *second = &alone.tenants->of[2];
    assert_false(fw_tenant_take(second, 6000, 1, alone.now_ns, &again_ns));
    alone_answer(NULL);
    assert_int_equal(alone_part(2), 0);
    alone_settle(NULL);
    assert_int_equal(alone_part(1), 6000);
    assert_int_equal(alone_part(2), 6000);
    assert_true(fw_tenant_take(second, 6000, 1, alone.now_ns, &again_ns));
    alone_configure(0, 0);
    alone_settle(NULL);
    assert_int_equal(alone_part(1), 0);
    assert_int_equal(atomic_load(&second->rate), 0);
    alone_stop();
}

/* What is taken counts at once, what is given when all have said that they know. */
static void test_raised_an_epoch_later(void **state)
{
    (void)state;
    static struct fw_share_data other;
    alone_start(1, 0, false);
    other = *alone.data;
    other.members = 2;
    alone_settle(&other);
    uint64_t before = alone_part(1);
    assert_in_range(before, 1, 2999);
    other.records[0].claim /= 10;
    alone_answer(&other);
    assert_int_equal(alone_part(1), before);
    alone_answer(&other);
    assert_true(alone_part(1) > before);
    other.records[0].claim *= 10;
    alone_answer(&other);
    assert_int_equal(alone_part(1), before);
    alone_stop();
}

/* While it asks to come back its fallback ends: the others may be about to take it. */
static void test_fallback_ends_while_it_asks(void **state)
{
    (void)state;
    alone_start(1, 3, true);
    for (uint32_t i = 0; i < 2; i++) { /* Nobody answers: after the second time it takes a rest. */
        alone.started(alone.argument, -ETIMEDOUT, alone.data, 0);
        assert_int_equal(alone_part(1), 0);
        alone.now_ns = alone.armed_ns;
        fw_share_poll(&alone.share);
    }
    assert_int_equal(alone_part(1), 1000);
    alone.now_ns = alone.armed_ns;
    fw_share_poll(&alone.share);
    assert_true(alone.share.is_pending);
    assert_int_equal(fw_share_part(&alone.share, 1, alone.now_ns + 600000000), 1000);
    assert_int_equal(fw_share_part(&alone.share, 1, alone.now_ns + 600000001), 0);
    alone_stop();
}

/* However late it is told that an epoch has started: the others count from when it was ready. */
static void test_lease_begins_with_the_word(void **state)
{
    (void)state;
    alone_start(1, 0, false);
    alone_settle(NULL);
    int64_t ready_ns = alone.now_ns;
    alone.now_ns += 400000000;
    alone_answer(NULL);
    assert_int_equal(fw_share_part(&alone.share, 1, ready_ns + 600000000), 3000);
    assert_int_equal(fw_share_part(&alone.share, 1, ready_ns + 600000001), 0);
    alone_stop();
}

/* A grant ends by the heads' own clock, and a bucket that is given more has no more in it. */
static void test_grants(void **state)
{
    (void)state;
    int64_t again_ns;
    alone_start(1, 0, false);
    struct fw_tenant *tenant = &alone.tenants->of[1];
    int64_t now_ns = INT64_C(5000000000);
    fw_tenants_grant(alone.tenants, 1, 100, now_ns + 1000000000, now_ns);
    assert_false(fw_tenant_take(tenant, 100, 1, now_ns, &again_ns)); /* It begins empty. */
    now_ns += 500000000;
    fw_tenants_grant(alone.tenants, 1, 3000, now_ns + 100000000, now_ns);
    uint32_t taken = 0;
    while (fw_tenant_take(tenant, 3000, 1, now_ns, &again_ns)) {
        taken++;
    }
    assert_in_range(taken, 1, 2); /* A fiftieth of a second at the old rate. */
    now_ns += 100000000;
    assert_true(fw_tenant_take(tenant, 3000, 200, now_ns, &again_ns)); /* In debt: 140 units. */
    fw_tenants_grant(alone.tenants, 1, 300, INT64_MAX, now_ns);
    assert_false(fw_tenant_take(tenant, 300, 1, now_ns + 440000000, &again_ns));
    assert_true(fw_tenant_take(tenant, 300, 1, now_ns + 480000000, &again_ns));
    fw_tenants_grant(alone.tenants, 1, 300, now_ns + 1000000000, now_ns + 500000000);
    assert_false(fw_tenant_take(tenant, 300, 1, now_ns + 1000000001, &again_ns));
    alone_stop();
    /* And what is not in range is refused. */
    struct fw_share_config config = alone.share.config;
    config.epoch_ns = config.timeout_ns / 100;
    assert_int_equal(fw_share_init(&alone.share, &config), -EINVAL);
    config.epoch_ns = config.timeout_ns;
    config.nodes = FW_SHARE_NODES_MAX + 1;
    assert_int_equal(fw_share_init(&alone.share, &config), -EINVAL);
}

int main(void)
{
#define BOTH(test)                                                       \
    {#test " with nothing", test, NULL, NULL, NULL},                     \
    {                                                                    \
#test " with fair parts", test, NULL, NULL, (void *)(uintptr_t)1 \
    }
    const struct CMUnitTest tests[] = {
        BOTH(test_demand_moves),
        cmocka_unit_test(test_modest_beside_greedy),
        BOTH(test_demand_moves_all_the_time),
        BOTH(test_death_and_return),
        BOTH(test_cut_off),
        BOTH(test_frozen),
        BOTH(test_deaf),
        BOTH(test_storm),
        cmocka_unit_test(test_combine_in_any_order),
        cmocka_unit_test(test_combine_sums),
        cmocka_unit_test(test_more_tenants_than_fit),
        cmocka_unit_test(test_different_tenants),
        cmocka_unit_test(test_disagreement),
        cmocka_unit_test(test_configured_anew),
        cmocka_unit_test(test_raised_an_epoch_later),
        cmocka_unit_test(test_fallback_ends_while_it_asks),
        cmocka_unit_test(test_lease_begins_with_the_word),
        cmocka_unit_test(test_grants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
