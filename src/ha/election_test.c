/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: at no time two servers have a lease, whatever happens to their agents; when all is calm one
 * has; and of those that could be chosen it is the one that has most. Method: three elections on a
 * bus (epoch/bus.h) and a clock that the test moves. First by hand, one rule after the other; then
 * by seeds: messages and views that are late, members that are cut off, frozen, killed and started
 * again, servers that die. What was granted counts until its end, as a server would have it that
 * hears no more.
 */
#include "ha/election.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "epoch/bus.h"
#include "io/random.h"

enum { NODES = 3, HISTORY = 7, SEEDS = 500, STEPS = 4000 };

#define MS       INT64_C(1000000)
#define LEASE    (500 * MS)
#define OVER     (LEASE + LEASE / 16)
#define PATIENCE (10000 * MS)

static struct world {
    struct fw_bus bus;
    struct fw_group *groups[NODES]; /* NULL: nobody is at this place. */
    struct fw_election elections[NODES];
    struct fw_ha_standing standings[NODES];
    int64_t granted_ns[NODES];
    int64_t frozen_ns[NODES]; /* Until then nothing happens there. */
    int64_t now_ns;
    uint32_t acks;
} world;

/* ---- members ------------------------------------------------------------------------------- */

static uint32_t place_of(const struct fw_group *group)
{
    return (uint32_t)((struct fw_election *)group->user - world.elections);
}

/* What the server was given stays given until its time. */
static void grant(uint32_t place)
{
    int64_t until_ns = fw_election_until(&world.elections[place]);
    if (until_ns > world.granted_ns[place]) {
        world.granted_ns[place] = until_ns;
    }
}

static void delivered(struct fw_group *group, uint64_t sender, const void *bytes, size_t length)
{
    struct fw_ha_word word;
    assert_int_equal(fw_ha_word_read(&word, bytes, length), 0);
    fw_election_hear(group->user, sender, &word, world.now_ns);
    grant(place_of(group));
}

static void viewed(struct fw_group *group, const struct fw_group_view *view)
{
    fw_election_view(group->user, group->self, view, world.now_ns);
}

static void writable(struct fw_group *group)
{
    (void)group;
}

static const struct fw_group_events events = {
    .delivered = delivered, .viewed = viewed, .writable = writable};

static void member_start(uint32_t place, uint32_t component)
{
    const struct fw_election_config config = {
        .lease_ns = LEASE, .patience_ns = PATIENCE, .nodes = NODES, .acks = world.acks};
    fw_election_init(&world.elections[place], &config);
    struct fw_group *group = fw_bus_join(&world.bus, place, component);
    group->events = &events;
    group->user = &world.elections[place];
    world.groups[place] = group;
}

static void member_kill(uint32_t place)
{
    fw_bus_leave(&world.bus, place);
    world.groups[place] = NULL;
}

/* The server answers how it stands, and the agent says so. */
static void member_beat(uint32_t place)
{
    struct fw_ha_word word;
    char bytes[FW_HA_WORD_SIZE];
    struct fw_election *election = &world.elections[place];
    fw_election_stand(election, &world.standings[place], world.now_ns);
    if (fw_election_say(election, world.now_ns, &word)) {
        fw_ha_word_write(&word, bytes);
        if (fw_group_send(world.groups[place], bytes, sizeof bytes) != 0) {
            fw_election_say_again(election);
        }
    }
}

/* ---- the world ----------------------------------------------------------------------------- */

static void world_init(uint32_t acks)
{
    memset(&world, 0, sizeof world);
    world.now_ns = 1000 * MS;
    world.acks = acks;
    fw_bus_init(&world.bus, NODES);
    for (uint32_t i = 0; i < NODES; i++) {
        world.standings[i] = (struct fw_ha_standing){
            .is_alive = true, .is_complete = true, .history = HISTORY, .position = 100};
    }
}

static void world_fini(void)
{
    for (uint32_t i = 0; i < NODES; i++) {
        if (world.groups[i] != NULL) {
            member_kill(i);
        }
    }
    fw_bus_fini(&world.bus);
}

/* All that is under way arrives. */
static void world_deliver(void)
{
    bool is_more = true;
    while (is_more) {
        is_more = false;
        for (uint32_t i = 0; i < NODES; i++) {
            if (world.groups[i] != NULL) {
                is_more = fw_bus_order(&world.bus, i) || is_more;
                is_more = fw_bus_step(&world.bus, i) || is_more;
            }
        }
    }
}

/* So much time passes, with a beat of everybody every tenth of a lease. */
static void world_pass(int64_t duration_ns)
{
    for (int64_t end_ns = world.now_ns + duration_ns; world.now_ns < end_ns;
         world.now_ns += LEASE / 10) {
        for (uint32_t i = 0; i < NODES; i++) {
            if (world.groups[i] != NULL) {
                member_beat(i);
            }
            world_deliver();
        }
    }
}

static bool has_lease(uint32_t place)
{
    return world.granted_ns[place] > world.now_ns;
}

/* The one that has; -1: nobody. */
static int holder_find(void)
{
    int holder = -1;
    for (uint32_t i = 0; i < NODES; i++) {
        if (has_lease(i)) {
            assert_int_equal(holder, -1);
            holder = (int)i;
        }
    }
    return holder;
}

static void start_all(void)
{
    for (uint32_t i = 0; i < NODES; i++) {
        member_start(i, 0);
    }
    world_deliver();
}

static void cut(uint32_t first, uint32_t second, uint32_t third)
{
    const uint32_t components[NODES] = {first, second, third};
    fw_bus_arrange(&world.bus, components, false);
}

static enum fw_election_gate gate_of(uint32_t place)
{
    return fw_election_gate(&world.elections[place], world.now_ns);
}

/* One is chosen, and its server gets the role. */
static int serve(void)
{
    world_pass(3 * LEASE);
    int holder = holder_find();
    assert_int_not_equal(holder, -1);
    world.standings[holder].is_master = true;
    world_pass(LEASE);
    assert_int_equal(holder_find(), holder);
    return holder;
}

/* All are there, and the first one serves. */
static void world_serve(uint32_t acks)
{
    world_init(acks);
    start_all();
    assert_int_equal(serve(), 0);
}

/* ---- by hand ------------------------------------------------------------------------------- */

static void test_one_is_chosen(void **state)
{
    (void)state;
    world_init(0);
    start_all();
    world_pass(OVER - LEASE / 10);
    assert_int_equal(holder_find(), -1); /* One that died before may still have a lease. */
    assert_int_equal(serve(), 0);
    assert_int_equal(gate_of(0), FW_ELECTION_OPEN);
    assert_int_equal(gate_of(1), FW_ELECTION_OPEN); /* They could succeed it. */
    world.standings[1].has_address = true;          /* But not while it serves. */
    world.standings[2].is_complete = false;         /* This one copies. */
    world_pass(LEASE);
    assert_int_equal(gate_of(1), FW_ELECTION_CLOSED);
    assert_int_equal(gate_of(2), FW_ELECTION_CLOSED);
    world_pass(10 * LEASE);
    assert_int_equal(holder_find(), 0);
    world_fini();
}

static void test_nobody_without_a_quorum(void **state)
{
    (void)state;
    world_init(0);
    member_start(0, 0);
    world_deliver();
    world_pass(10 * LEASE);
    assert_int_equal(holder_find(), -1);
    assert_int_equal(gate_of(0), FW_ELECTION_CLOSED);
    member_start(1, 0);
    world_deliver();
    assert_int_equal(serve(), 0);
    member_kill(1);
    world_deliver();
    assert_int_equal(gate_of(0), FW_ELECTION_CLOSED);
    world_pass(2 * LEASE);
    assert_int_equal(holder_find(), -1);
    world_fini();
}

/* On one side of a cut it ends, on the other it begins when it is over. */
static void test_cut(void **state)
{
    (void)state;
    world_serve(0);
    world.standings[2].position = 101;
    cut(0, 1, 1);
    world_deliver();
    int64_t cut_ns = world.now_ns;
    assert_true(has_lease(0));
    assert_int_equal(gate_of(1), FW_ELECTION_KEEP); /* Who has most is not known for sure. */
    world_pass(LEASE / 2);
    assert_int_equal(gate_of(1), FW_ELECTION_KEEP);
    assert_int_equal(gate_of(2), FW_ELECTION_KEEP);
    while (holder_find() != 2) {
        world_pass(LEASE / 10);
        assert_true(world.now_ns < cut_ns + 4 * LEASE);
        assert_true(holder_find() != 2 || world.now_ns >= cut_ns + OVER);
    }
    assert_int_equal(gate_of(0), FW_ELECTION_CLOSED);
    assert_int_equal(gate_of(1), FW_ELECTION_CLOSED);
    assert_int_equal(gate_of(2), FW_ELECTION_OPEN);
    cut(0, 0, 0);
    world_deliver();
    world.standings[2].is_master = true;
    world.standings[2].history = HISTORY + 1;
    world_pass(2 * LEASE);
    assert_int_equal(holder_find(), 2);
    assert_true(fw_election_must_resign(&world.elections[0])); /* It is master, too. */
    assert_false(fw_election_must_resign(&world.elections[1]));
    assert_false(fw_election_must_resign(&world.elections[2]));
    world_fini();
}

/* While all are there it keeps the lease, also when others come and go. */
static void test_kept_over_views(void **state)
{
    (void)state;
    world_serve(0);
    for (int i = 0; i < 3; i++) {
        member_kill(2);
        while (fw_bus_step(&world.bus, 0)) {
        }
        assert_true(fw_election_until(&world.elections[0]) > world.now_ns); /* Not taken away. */
        world_deliver();
        world_pass(LEASE / 2);
        assert_true(has_lease(0));
        member_start(2, 0);
        world_deliver();
        world_pass(LEASE / 2);
        assert_true(has_lease(0));
    }
    world_fini();
}

static void test_server_dies(void **state)
{
    (void)state;
    world_serve(0);
    world.standings[0] = (struct fw_ha_standing){0};
    world.standings[1].position = 99;
    world_pass(LEASE / 10);
    assert_int_equal(gate_of(0), FW_ELECTION_CLOSED);
    world_pass(2 * LEASE); /* Its lease has ended, and nobody has to wait for more. */
    assert_int_equal(holder_find(), 2);
    /* It is back, and has nothing. */
    world.standings[0] = (struct fw_ha_standing){.is_alive = true};
    world.standings[2].is_master = true;
    world_pass(2 * LEASE);
    assert_int_equal(holder_find(), 2);
    assert_int_equal(gate_of(0), FW_ELECTION_CLOSED);
    world_fini();
}

/* A server that was started again while its agent did not look. */
static void test_server_is_back_empty(void **state)
{
    (void)state;
    world_serve(0);
    world.standings[0] = (struct fw_ha_standing){.is_alive = true};
    world_pass(2 * LEASE);
    assert_int_equal(holder_find(), 1);
    world_fini();
}

static void test_agent_is_started_again(void **state)
{
    (void)state;
    world_serve(0);
    member_kill(0);
    member_start(0, 0);
    world_deliver();
    world_pass(3 * LEASE);
    assert_int_equal(holder_find(), 0); /* Its server is the master, and has most. */
    world_fini();
}

/* Six leases pass in which all hear, but only these speak. Says whether the second one ever had a
 * lease. */
static bool pass_silent(uint32_t first, uint32_t last)
{
    bool had = false;
    for (int i = 0; i < 60; i++) {
        world.now_ns += LEASE / 10;
        for (uint32_t place = first; place <= last; place++) {
            member_beat(place);
        }
        world_deliver();
        had = holder_find() == 1 || had;
    }
    return had;
}

static void test_agent_hangs(void **state)
{
    (void)state;
    world_serve(0);
    assert_true(pass_silent(1, 2)); /* The others hear nothing of it. */
    assert_int_equal(holder_find(), 1);
    member_beat(0); /* What it says now counts as little as what it had said. */
    world_deliver();
    assert_int_equal(holder_find(), 1);
    world_fini();
}

/* The first one neither speaks nor hears, for so long that another one serves. */
static void pass_without_first(void)
{
    for (int i = 0; i < 30; i++) {
        world.now_ns += LEASE / 10;
        for (uint32_t place = 1; place < NODES; place++) {
            member_beat(place);
            while (fw_bus_order(&world.bus, place)) {
            }
            while (fw_bus_step(&world.bus, 1) || fw_bus_step(&world.bus, 2)) {
            }
        }
    }
    assert_int_equal(holder_find(), 1);
}

/* Its own word reaches it when another one serves: what it is worth has passed. */
static void test_frozen_and_thawed(void **state)
{
    (void)state;
    world_serve(0);
    member_beat(0);
    assert_true(fw_bus_order(&world.bus, 0)); /* The others will hear it, as it will. */
    cut(0, 1, 1);
    pass_without_first();
    world_deliver();
    assert_int_equal(holder_find(), 1);
    world_fini();
}

/* A word that was on its way when it was cut off comes to the others when it is back. */
static void test_word_of_another_view(void **state)
{
    (void)state;
    world_serve(0);
    member_beat(0);
    cut(0, 1, 1);
    pass_without_first();
    cut(0, 0, 0);
    assert_true(fw_bus_order(&world.bus, 0)); /* First of all. */
    world_deliver();
    world_pass(LEASE);
    assert_int_equal(holder_find(), 1);
    world_fini();
}

/* With acknowledgements nobody goes on without one that may have more. */
static void test_silent_one_is_waited_for(void **state)
{
    (void)state;
    world_serve(1);
    cut(0, 1, 1);
    assert_false(pass_silent(1, 1));
    world.standings[2].position = 101;
    world_pass(2 * LEASE);
    assert_int_equal(holder_find(), 2);
    world_fini();
}

/* Chosen, but the address never comes: others have their turn. */
static void test_address_does_not_come(void **state)
{
    (void)state;
    world_init(0);
    start_all();
    world_pass(3 * LEASE);
    assert_int_equal(holder_find(), 0);
    assert_int_equal(gate_of(1), FW_ELECTION_CLOSED);
    world_pass(PATIENCE + 2 * LEASE);
    assert_int_equal(holder_find(), 1);
    assert_int_equal(gate_of(0), FW_ELECTION_CLOSED);
    world_fini();
}

static void test_leaves(void **state)
{
    (void)state;
    world_serve(0);
    fw_election_leave(&world.elections[0]);
    world_pass(2 * LEASE);
    assert_int_equal(holder_find(), 1);
    world_fini();
}

/* ---- whom to choose ------------------------------------------------------------------------ */

static void test_most_is_chosen(void **state)
{
    (void)state;
    world_init(0);
    world.standings[0].position = 98;
    world.standings[1].position = 99;
    world.standings[2] = (struct fw_ha_standing){
        .is_alive = true, .history = HISTORY, .position = 1000}; /* Still copying. */
    start_all();
    world_pass(3 * LEASE);
    assert_int_equal(holder_find(), 1);
    world_fini();
}

/* Who has more of what nobody served last has nothing. */
static void test_last_history_is_chosen(void **state)
{
    (void)state;
    world_serve(0);
    world.standings[1].history = HISTORY - 1;
    world.standings[1].position = 1000;
    world_pass(LEASE);
    member_kill(0);
    world_deliver();
    world_pass(3 * LEASE);
    assert_int_equal(holder_find(), 2);
    world_fini();
}

/* A newcomer learns from the others who served last. */
static void test_newcomer_learns(void **state)
{
    (void)state;
    world_serve(0);
    member_kill(1);
    member_start(1, 0);
    world_deliver();
    world.standings[1].history = HISTORY - 1;
    world_pass(LEASE);
    member_kill(0);
    world_deliver();
    world_pass(3 * LEASE);
    assert_int_equal(holder_find(), 2);
    world_fini();
}

/* With acknowledgements, and servers that were just started. */
static void world_init_empty(void)
{
    world_init(1);
    for (uint32_t i = 0; i < NODES; i++) {
        world.standings[i] = (struct fw_ha_standing){.is_alive = true};
    }
}

static void test_all_empty(void **state)
{
    (void)state;
    world_init_empty();
    member_start(0, 0);
    member_start(1, 0);
    world_deliver();
    world_pass(10 * LEASE);
    assert_int_equal(holder_find(), -1); /* The third may have everything. */
    member_start(2, 0);
    world_deliver();
    assert_int_equal(serve(), 0);
    world_fini();
}

static void test_operator_allows(void **state)
{
    (void)state;
    world_init_empty();
    world.standings[1].is_allowed = true;
    member_start(0, 0);
    member_start(1, 0);
    world_deliver();
    world_pass(3 * LEASE);
    assert_int_equal(holder_find(), 1);
    world_fini();
}

/* With acknowledgements: of two slaves either may have what was acknowledged, so both are needed.
 */
static void test_acknowledged(void **state)
{
    (void)state;
    world_serve(1);
    world.standings[0] = (struct fw_ha_standing){0}; /* Its server dies, the agent does not. */
    member_kill(2);                                  /* And one host, at the same time. */
    world_deliver();
    world_pass(10 * LEASE);
    assert_int_equal(holder_find(), -1);
    member_start(2, 0);
    world_deliver();
    world.standings[2].position = 101;
    world_pass(3 * LEASE);
    assert_int_equal(holder_find(), 2);
    world_fini();
}

/* What a slave has confirmed after the cut, while the old master's lease ran, counts. */
static void test_settled(void **state)
{
    (void)state;
    world_serve(1);
    cut(0, 1, 1);
    world_deliver();
    world_pass(OVER - LEASE / 10);
    world.standings[2].position = 101;
    world_pass(2 * LEASE);
    assert_int_equal(holder_find(), 2);
    world_fini();
}

/* ---- by seeds ------------------------------------------------------------------------------ */

static uint64_t below(struct fw_random *draws, uint64_t limit)
{
    return fw_random_below(draws, limit);
}

static void storm_step(struct fw_random *draws)
{
    uint32_t place = (uint32_t)below(draws, NODES);
    uint64_t what = below(draws, 1000);
    bool is_long = below(draws, 300) == 0;
    world.now_ns += (int64_t)below(draws, is_long ? LEASE : LEASE / 64);
    if (world.now_ns < world.frozen_ns[place]) {
        return;
    }
    if (world.groups[place] == NULL) {
        if (what < 50) {
            member_start(place, (uint32_t)below(draws, 2));
        }
        return;
    }
    if (what < 200) {
        member_beat(place);
    } else if (what < 500) {
        (void)fw_bus_order(&world.bus, place);
    } else if (what < 980) {
        for (uint64_t i = below(draws, 6); i > 0; i--) {
            (void)fw_bus_step(&world.bus, place);
        }
    } else if (what < 983) {
        world.frozen_ns[place] = world.now_ns + (int64_t)below(draws, 3 * LEASE);
    } else if (what < 985) {
        member_kill(place);
    } else if (what < 988) {
        const uint32_t first = (uint32_t)below(draws, 2);
        const uint32_t second = (uint32_t)below(draws, 2);
        const uint32_t third = (uint32_t)below(draws, 2);
        const uint32_t components[NODES] = {first, second, third};
        const bool loses = below(draws, 2) == 0;
        fw_bus_arrange(&world.bus, components, loses);
    } else {
        world.standings[place].is_alive = below(draws, 5) > 0;
        world.standings[place].is_master = has_lease(place);
        world.standings[place].position = below(draws, 200);
    }
}

static void test_storm(void **state)
{
    (void)state;
    uint64_t served = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct fw_random draws;
        fw_random_init(&draws, seed);
        world_init((uint32_t)below(&draws, 2));
        start_all();
        for (int i = 0; i < STEPS; i++) {
            storm_step(&draws);
            served += holder_find() >= 0;
        }
        for (uint32_t i = 0; i < NODES; i++) { /* Calm again. */
            if (world.groups[i] == NULL) {
                member_start(i, 0);
            }
            world.standings[i].is_alive = true;
            world.standings[i].is_master = false;
        }
        cut(0, 0, 0);
        world_deliver();
        for (int i = 0; i < 50; i++) {
            world_pass(LEASE);
            for (uint32_t j = 0; j < NODES; j++) {
                world.standings[j].is_master = has_lease(j);
            }
        }
        assert_int_not_equal(holder_find(), -1);
        world_fini();
    }
    assert_true(served > SEEDS * STEPS / 4); /* It was no dead calm. */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_is_chosen),
        cmocka_unit_test(test_nobody_without_a_quorum),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_kept_over_views),
        cmocka_unit_test(test_server_dies),
        cmocka_unit_test(test_server_is_back_empty),
        cmocka_unit_test(test_agent_is_started_again),
        cmocka_unit_test(test_agent_hangs),
        cmocka_unit_test(test_frozen_and_thawed),
        cmocka_unit_test(test_word_of_another_view),
        cmocka_unit_test(test_silent_one_is_waited_for),
        cmocka_unit_test(test_address_does_not_come),
        cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_most_is_chosen),
        cmocka_unit_test(test_last_history_is_chosen),
        cmocka_unit_test(test_newcomer_learns),
        cmocka_unit_test(test_all_empty),
        cmocka_unit_test(test_operator_allows),
        cmocka_unit_test(test_acknowledged),
        cmocka_unit_test(test_settled),
        cmocka_unit_test(test_storm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
