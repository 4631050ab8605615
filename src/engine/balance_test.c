/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: homes are chosen by key and by load, localities follow the machine, cores move without
 * losing a fom, and threads keep to their CPU and their node's memory, the spare ones too.
 * Method: choices are made in a domain without threads, whose figures are set by hand; localities
 * are looked at on fake machines. Moves run on real threads, for the sanitizers' sake; what depends
 * on time (that load levels out, that a core gives up) is in the simulator's scenarios engine-move
 * and engine-level.
 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include <fairway/engine.h>

#include "base/thread.h"
#include "engine/core.h"
#include "io/random.h"
#include "io/topology.h"

#define GRACE_NS INT64_C(60000000000)

static struct fw_domain *domain;

/* A domain of a fake machine with `types`, not started. */
static void domain_make(struct fw_domain_config config, const char *machine)
{
    fw_topology_fake = machine;
    int rc = fw_domain_create(&domain, &config);
    fw_topology_fake = NULL;
    assert_int_equal(rc, 0);
}

/* ---- choice of home ------------------------------------------------------------------------ */

enum { KEYS = 100000, HOMES = 4 };

/* Counts how many of `KEYS` draws each home gets. Returns the most, over the mean. */
static double skew(uint64_t (*draw)(void *state, uint32_t number), void *state)
{
    uint32_t counts[HOMES] = {0};
    uint32_t most = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        uint64_t key = draw(state, i);
        struct fw_locality *home = fw_domain_home_by_key(domain, key);
        assert_ptr_equal(home, fw_domain_home_by_key(domain, key));
        counts[home->index]++;
    }
    for (uint32_t i = 0; i < HOMES; i++) {
        most = counts[i] > most ? counts[i] : most;
    }
    return (double)most * HOMES / KEYS;
}

static uint64_t draw_in_order(void *state, uint32_t number)
{
    (void)state;
    return number;
}

static uint64_t draw_by_the_page(void *state, uint32_t number)
{
    (void)state;
    return (uint64_t)number << 12;
}

/* Some keys are asked for much more often than others: that of rank r about 1/r times as often. */
static uint64_t draw_skewed(void *state, uint32_t number)
{
    (void)number;
    uint64_t octave = UINT64_C(1) << fw_random_below(state, 17);
    return octave + fw_random_below(state, octave);
}

static void test_home_by_key(void **state)
{
    (void)state;
    domain_make((struct fw_domain_config){.locality_count = HOMES}, "core:4 pu:1");
    assert_true(skew(draw_in_order, NULL) < 1.02);
    assert_true(skew(draw_by_the_page, NULL) < 1.02);
    struct fw_random draws;
    fw_random_init(&draws, 1);
    double skewed = skew(draw_skewed, &draws);
    print_message("# homes by key: the busiest of 4 has %.3f times the mean of distinct keys, "
                  "%.3f times of keys drawn by 1/rank\n",
                  skew(draw_in_order, NULL), skewed);
    /* The first key alone is one draw in 17. A hash cannot split it, but spreads the rest. */
    assert_true(skewed < 1.5);
    fw_domain_destroy(domain);
}

static void set_load(uint32_t number, uint32_t lately, uint32_t ready, uint32_t residents)
{
    struct fw_core *core = &domain->cores[number];
    atomic_store(&core->load_lately, lately);
    atomic_store(&core->queue_length, ready);
    atomic_store(&core->resident_count, residents);
}

static void test_home_by_load(void **state)
{
    (void)state;
    domain_make((struct fw_domain_config){.locality_count = 3}, "core:3 pu:1");
    /* Equals take turns. */
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(fw_domain_home_by_load(domain)->index, i % 3);
    }
    set_load(0, 5 * FW_LOAD_ONE, 0, 0);
    set_load(1, 3 * FW_LOAD_ONE, 0, 0);
    set_load(2, 4 * FW_LOAD_ONE, 0, 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(fw_domain_home_by_load(domain)->index, 1);
    }
    set_load(1, 3 * FW_LOAD_ONE, 6, 0); /* A burst has just come. */
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(fw_domain_home_by_load(domain)->index, 2);
    }
    atomic_store(&domain->cores[0].asleep_since,
                 1); /* Whatever it was, it has nothing to do now. */
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(fw_domain_home_by_load(domain)->index, 0);
    }
    atomic_store(&domain->cores[0].asleep_since, 0);
    set_load(0, FW_LOAD_ONE, 0, 100);
    set_load(1, FW_LOAD_ONE, 0, 98);
    set_load(2, FW_LOAD_ONE, 0, 99);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(fw_domain_home_by_load(domain)->index, 1);
    }
    fw_domain_destroy(domain);
}

static void test_core_of_locality(void **state)
{
    (void)state;
    domain_make((struct fw_domain_config){.locality_count = 2, .cores_per_locality = 3},
                "core:6 pu:1");
    struct fw_locality *locality = fw_domain_locality(domain, 1);
    set_load(3, 3 * FW_LOAD_ONE, 0, 0);
    set_load(4, 2 * FW_LOAD_ONE, 0, 0);
    set_load(5, FW_LOAD_ONE, 0, 0);
    assert_ptr_equal(fw_locality_core(locality), &domain->cores[5]);
    atomic_store(&domain->cores[5].is_leaving, true);
    assert_ptr_equal(fw_locality_core(locality), &domain->cores[4]);
    fw_domain_destroy(domain);
}

/* ---- when foms move ------------------------------------------------------------------------ */

#define WINDOW   (INT64_C(1) << 20)
#define INTERVAL (8 * WINDOW)

/* Two localities of two cores with nothing to do. */
static void look_begin(enum fw_balance balance)
{
    struct fw_domain_config config = {.locality_count = 2,
                                      .cores_per_locality = 2,
                                      .balance = balance,
                                      .balance_interval_ns = INTERVAL};
    domain_make(config, "core:4 pu:1");
    for (uint32_t i = 0; i < domain->core_count; i++) {
        domain->cores[i].now = INT64_C(1) << 40;
        fw_balance_init(&domain->cores[i]);
    }
}

/* A round of a core a time later, with so many foms ready. */
static void look_round(uint32_t number, int64_t later, uint32_t ready)
{
    struct fw_core *core = &domain->cores[number];
    core->now += later;
    core->queue.length = ready;
    fw_balance_round(core);
}

static void test_load_is_an_area(void **state)
{
    (void)state;
    look_begin(FW_BALANCE_OFF);
    struct fw_core *core = &domain->cores[0];
    look_round(0, 0, 8);
    look_round(0, WINDOW / 4, 4);
    assert_int_equal(atomic_load(&core->load_lately), 0); /* The window has not ended. */
    core->now += WINDOW / 4;
    fw_balance_asleep(core);
    assert_int_equal(atomic_load(&core->asleep_since), core->now);
    core->now += WINDOW / 2;
    fw_balance_awake(core);
    assert_int_equal(atomic_load(&core->asleep_since), 0);
    /* 8 for a quarter, 4 for a quarter and none for a half make 3; half and half with 0. */
    assert_int_equal(atomic_load(&core->load_lately), 3 * FW_LOAD_ONE / 2);
    look_round(0, 0, 10);
    look_round(0, WINDOW, 10);
    assert_int_equal(atomic_load(&core->load_lately), 23 * FW_LOAD_ONE / 4);
    look_round(0, 2 * WINDOW, 0); /* Nothing older counts beside two windows. */
    assert_int_equal(atomic_load(&core->load_lately), 10 * FW_LOAD_ONE);
    fw_domain_destroy(domain);
}

/* The next look of core 0, which had so many ready since the last. */
static struct fw_core *look_with(uint32_t ready)
{
    domain->cores[0].load.ready = ready;
    domain->cores[0].shed_count = 0;
    look_round(0, INTERVAL, ready);
    return &domain->cores[0];
}

static struct fw_core *look(void)
{
    return look_with(20);
}

static void test_look(void **state)
{
    (void)state;
    look_begin(FW_BALANCE_OFF);
    struct fw_core *core = look();
    assert_int_equal(core->shed_count, 10);
    assert_ptr_equal(core->shed_to, &domain->cores[1]);
    assert_ptr_equal(core->shed_home, fw_domain_locality(domain, 0));
    assert_int_equal(atomic_load(&domain->cores[1].claimed_until), core->now + INTERVAL);
    /* Within the interval it does not look again, even if told to. */
    core->shed_count = 0;
    atomic_store(&core->must_level, true);
    look_round(0, INTERVAL - 1, 20);
    assert_int_equal(core->shed_count, 0);
    assert_true(atomic_load(&core->must_level));
    look_round(0, 1, 20);
    assert_false(atomic_load(&core->must_level));
    assert_true(core->shed_count > 0);
    fw_domain_destroy(domain);
}

static void test_look_leaves_small_differences(void **state)
{
    (void)state;
    look_begin(FW_BALANCE_OFF);
    set_load(1, 15 * FW_LOAD_ONE + 1, 0, 0); /* Less than a quarter. */
    assert_int_equal(look()->shed_count, 0);
    set_load(1, 15 * FW_LOAD_ONE, 0, 0);
    assert_int_equal(look()->shed_count, 2);
    set_load(1, 1, 0, 0); /* Less than two. */
    assert_int_equal(look_with(2)->shed_count, 0);
    set_load(1, 0, 0, 0);
    assert_int_equal(look_with(2)->shed_count, 1);
    fw_domain_destroy(domain);
}

static void test_look_knows_who_sleeps(void **state)
{
    (void)state;
    look_begin(FW_BALANCE_OFF);
    set_load(1, 20 * FW_LOAD_ONE, 0, 0); /* Long ago. */
    atomic_store(&domain->cores[1].asleep_since, domain->cores[0].now);
    assert_int_equal(look()->shed_count, 10);
    fw_domain_destroy(domain);
}

static void test_look_at_other_localities(void **state)
{
    (void)state;
    look_begin(FW_BALANCE_OFF);
    set_load(1, 20 * FW_LOAD_ONE, 0, 0);
    set_load(2, 4 * FW_LOAD_ONE, 0, 0);
    assert_int_equal(look()->shed_count, 0);
    atomic_store(&domain->cores[0].must_level, true);
    assert_int_equal(look()->shed_count, 10);
    assert_ptr_equal(domain->cores[0].shed_to, &domain->cores[3]);
    assert_ptr_equal(domain->cores[0].shed_home, fw_domain_locality(domain, 1));
    assert_int_equal(look()->shed_count, 0); /* Told once. */
    fw_domain_destroy(domain);

    look_begin(FW_BALANCE_FOMS);
    set_load(1, 20 * FW_LOAD_ONE, 0, 0);
    set_load(2, 4 * FW_LOAD_ONE, 0, 0);
    /* Another has claimed the least busy. */
    atomic_store(&domain->cores[3].claimed_until, INT64_MAX);
    assert_int_equal(look()->shed_count, 8);
    assert_ptr_equal(domain->cores[0].shed_to, &domain->cores[2]);
    atomic_store(&domain->cores[2].is_leaving, true);
    assert_int_equal(look()->shed_count, 0);
    fw_domain_destroy(domain);
}

/* ---- localities of the machine ------------------------------------------------------------- */

/* Makes a domain and compares the CPUs of its cores; all of a locality are of one node. */
static void cpus_check(struct fw_domain_config config, const char *machine, uint32_t localities,
                       uint32_t cores, const uint32_t expected[])
{
    domain_make(config, machine);
    assert_int_equal(fw_domain_locality_count(domain), localities);
    assert_int_equal(domain->core_count, localities * cores);
    for (uint32_t i = 0; i < domain->core_count; i++) {
        const struct fw_core *core = &domain->cores[i];
        assert_int_equal(core->cpu.id, expected[i]);
        assert_ptr_equal(fw_core_locality(core), fw_domain_locality(domain, i / cores));
        assert_int_equal(core->cpu.node, domain->cores[i - i % cores].cpu.node);
    }
    fw_domain_destroy(domain);
}

static void test_localities(void **state)
{
    (void)state;
    const char *machine = "numa:2 l3:2 core:2 pu:1";
    const uint32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    cpus_check((struct fw_domain_config){0}, machine, 8, 1, all);
    cpus_check((struct fw_domain_config){.cores_per_locality = 2}, machine, 4, 2, all);
    cpus_check((struct fw_domain_config){.locality_count = 4}, machine, 4, 2, all); /* L3s. */
    cpus_check((struct fw_domain_config){.locality_count = 2}, machine, 2, 4, all); /* Nodes. */
    cpus_check((struct fw_domain_config){.locality_count = 3}, machine, 3, 1, all);
    cpus_check((struct fw_domain_config){.cores_per_locality = 3}, machine, 2, 3,
               (const uint32_t[]){0, 1, 2, 4, 5, 6});
    cpus_check((struct fw_domain_config){0}, "pu:1", 1, 1, all);
    cpus_check((struct fw_domain_config){.locality_count = 2, .cores_per_locality = 2}, "pu:1", 2,
               2, (const uint32_t[]){0, 0, 0, 0});
}

/* ---- cores move ---------------------------------------------------------------------------- */

enum { WAIT = FW_PHASE_FIRST };
enum { FOMS = 64 };

static struct {
    struct fw_channel channel;
    _Atomic uint32_t waiting;
    _Atomic uint32_t finished;
    _Atomic uint32_t misplaced;
    _Atomic uint32_t arrived;
    atomic_bool is_over;
    struct fw_parker parker;
} world;

struct waiter {
    struct fw_fom fom;
    struct fw_clink clink;
    struct fw_locality *home;
    uint32_t ticks;
};

static void waiter_check(struct waiter *self)
{
    if (fw_core_locality(fw_core_self()) != self->home || fw_fom_home(&self->fom) != self->home) {
        atomic_fetch_add(&world.misplaced, 1);
    }
}

static enum fw_step waiter_tick(struct fw_fom *fom)
{
    struct waiter *self = FW_FOM_OF(fom, struct waiter);
    waiter_check(self);
    fw_fom_arm(fom, &self->clink, &world.channel);
    if (self->ticks++ == 0) {
        atomic_fetch_add(&world.waiting, 1);
        fw_unpark(&world.parker);
    }
    return atomic_load(&world.is_over) ? fw_fom_finish(fom) : fw_fom_wait(fom, WAIT);
}

static void waiter_finish(struct fw_fom *fom)
{
    (void)fom;
    atomic_fetch_add(&world.finished, 1);
}

static bool waiter_depart(struct fw_fom *fom)
{
    (void)fom;
    return true;
}

static void waiter_arrive(struct fw_fom *fom)
{
    waiter_check(FW_FOM_OF(fom, struct waiter));
    atomic_fetch_add(&world.arrived, 1);
}

static const struct fw_phase wait_phases[] = {{"WAIT", FW_PHASE_BIT(FW_PHASE_FINISHED), true}};

static const struct fw_fom_type mobile_type = {
    .name = "mobile",
    .size = sizeof(struct waiter),
    .limit_count = FOMS,
    .phases = wait_phases,
    .phase_count = FW_ARRAY_LENGTH(wait_phases),
    .tick = waiter_tick,
    .finish = waiter_finish,
    .depart = waiter_depart,
    .arrive = waiter_arrive,
};

static const struct fw_fom_type fixed_type = {
    .name = "fixed",
    .size = sizeof(struct waiter),
    .limit_count = FOMS,
    .phases = wait_phases,
    .phase_count = FW_ARRAY_LENGTH(wait_phases),
    .tick = waiter_tick,
    .finish = waiter_finish,
};

static const struct fw_fom_type spinner_type;

static void world_begin(struct fw_domain_config config)
{
    atomic_store(&world.waiting, 0);
    atomic_store(&world.finished, 0);
    atomic_store(&world.misplaced, 0);
    atomic_store(&world.arrived, 0);
    atomic_store(&world.is_over, false);
    fw_parker_init(&world.parker);
    domain_make(config, "core:4 pu:1");
    fw_channel_init_shared(&world.channel, domain);
    assert_int_equal(fw_domain_add_type(domain, &mobile_type), 0);
    assert_int_equal(fw_domain_add_type(domain, &fixed_type), 0);
    assert_int_equal(fw_domain_add_type(domain, &spinner_type), 0);
    assert_int_equal(fw_domain_start(domain), 0);
}

/* Starts so many, with homes in turn, one when the one before has had a tick. */
static void world_add(const struct fw_fom_type *type, uint32_t count, uint32_t localities)
{
    for (uint32_t i = 0; i < count; i++) {
        struct fw_locality *home = fw_domain_locality(domain, i % localities);
        struct fw_fom *fom;
        assert_int_equal(fw_fom_create(&fom, domain, type, home), 0);
        FW_FOM_OF(fom, struct waiter)->home = home;
        uint32_t before = atomic_load(&world.waiting);
        fw_fom_start(fom);
        while (atomic_load(&world.waiting) == before) {
            fw_park(&world.parker);
        }
    }
}

static void world_end(uint32_t count)
{
    atomic_store(&world.is_over, true);
    (void)fw_channel_broadcast(&world.channel);
    assert_int_equal(fw_domain_stop(domain, GRACE_NS), 0);
    assert_int_equal(atomic_load(&world.finished), count);
    assert_int_equal(atomic_load(&world.misplaced), 0);
    fw_channel_fini(&world.channel);
    fw_domain_destroy(domain);
}

static uint32_t core_count(uint32_t locality)
{
    return atomic_load(&fw_domain_locality(domain, locality)->core_count);
}

/* It gives up when foms do not leave in time, and time means nothing on a busy machine. */
static void core_move(struct fw_locality *from, struct fw_locality *to)
{
    int rc;
    while ((rc = fw_domain_move_core(domain, from, to)) == -EBUSY) {
    }
    assert_int_equal(rc, 0);
}

static void test_core_moves(void **state)
{
    (void)state;
    world_begin((struct fw_domain_config){.locality_count = 2, .cores_per_locality = 2});
    struct fw_locality *left = fw_domain_locality(domain, 0);
    struct fw_locality *right = fw_domain_locality(domain, 1);
    world_add(&mobile_type, FOMS, 2);
    uint32_t parked = atomic_load(&domain->cores[1].resident_count);
    assert_true(parked > 0); /* Else nothing would be tested here. */
    core_move(left, right);
    assert_int_equal(core_count(0), 1);
    assert_int_equal(core_count(1), 3);
    assert_ptr_equal(atomic_load(&domain->cores[1].locality), right);
    assert_int_equal(fw_domain_move_core(domain, left, right), -EBUSY); /* Its last. */
    assert_int_equal(fw_domain_move_core(domain, left, left), -EINVAL);
    /* To and fro, while foms are woken and made. */
    for (uint32_t i = 0; i < 20; i++) {
        bool is_out = i % 2 == 1;
        core_move(is_out ? left : right, is_out ? right : left);
        (void)fw_channel_broadcast(&world.channel);
        fw_domain_balance(domain);
    }
    assert_int_equal(core_count(0) + core_count(1), 4);
    world_end(FOMS);
    assert_true(atomic_load(&world.arrived) >= parked);
}

static void test_core_with_a_fixed_fom_stays(void **state)
{
    (void)state;
    world_begin((struct fw_domain_config){.locality_count = 2, .cores_per_locality = 2});
    struct fw_locality *left = fw_domain_locality(domain, 0);
    struct fw_locality *right = fw_domain_locality(domain, 1);
    while (atomic_load(&domain->cores[1].bound_count) == 0) {
        world_add(&fixed_type, 1, 1);
    }
    uint32_t fixed = atomic_load(&world.waiting);
    world_add(&mobile_type, FOMS, 2);
    uint32_t residents = atomic_load(&domain->cores[1].resident_count);
    assert_int_equal(fw_domain_move_core(domain, left, right), -EBUSY);
    assert_int_equal(core_count(0), 2);
    assert_int_equal(core_count(1), 2);
    assert_int_equal(atomic_load(&domain->cores[1].resident_count), residents);
    assert_int_equal(atomic_load(&world.arrived), 0);
    world_end(fixed + FOMS);
}

static void test_no_core_moves_unless_normal(void **state)
{
    (void)state;
    domain_make((struct fw_domain_config){.locality_count = 2, .cores_per_locality = 2},
                "core:4 pu:1");
    struct fw_locality *left = fw_domain_locality(domain, 0);
    struct fw_locality *right = fw_domain_locality(domain, 1);
    assert_int_equal(fw_domain_move_core(domain, left, right), -ESHUTDOWN);
    assert_int_equal(fw_domain_start(domain), 0);
    assert_int_equal(fw_domain_move_core(domain, left, right), 0);
    assert_int_equal(fw_domain_stop(domain, 0), 0);
    assert_int_equal(fw_domain_move_core(domain, right, left), -ESHUTDOWN);
    fw_domain_destroy(domain);
}

/* Is always ready, and says where it is. */
static enum fw_step spinner_tick(struct fw_fom *fom)
{
    struct waiter *self = FW_FOM_OF(fom, struct waiter);
    if (fw_core_locality(fw_core_self()) != fw_fom_home(fom)) {
        atomic_fetch_add(&world.misplaced, 1);
    }
    if (fw_fom_home(fom) != self->home || fw_core_self()->index >= 2) {
        self->home = fw_fom_home(fom);
        atomic_fetch_add(&world.waiting, 1);
        fw_unpark(&world.parker);
    }
    return atomic_load(&world.is_over) ? fw_fom_finish(fom) : fw_fom_yield(fom, WAIT);
}

static void spinner_arrive(struct fw_fom *fom)
{
    (void)fom;
}

static const struct fw_fom_type spinner_type = {
    .name = "spinner",
    .size = sizeof(struct waiter),
    .limit_count = FOMS,
    .phases = wait_phases,
    .phase_count = FW_ARRAY_LENGTH(wait_phases),
    .tick = spinner_tick,
    .finish = waiter_finish,
    .depart = waiter_depart,
    .arrive = spinner_arrive,
};

/* Sixteen on two cores; waits until one of them has a tick on the other two. */
static void spread_check(enum fw_balance balance)
{
    struct fw_domain_config config = {.locality_count = 2,
                                      .cores_per_locality = 2,
                                      .balance = balance,
                                      .balance_interval_ns = 1000000};
    world_begin(config);
    enum { SPINNERS = 16 };
    for (uint32_t i = 0; i < SPINNERS; i++) {
        struct fw_locality *home = fw_domain_locality(domain, 0);
        struct fw_fom *fom;
        assert_int_equal(fw_fom_create(&fom, domain, &spinner_type, home), 0);
        FW_FOM_OF(fom, struct waiter)->home = home;
        fw_fom_start(fom);
    }
    while (atomic_load(&world.waiting) == 0) {
        fw_park(&world.parker);
    }
    if (balance == FW_BALANCE_CORES) {
        assert_int_equal(core_count(0), 3);
        assert_int_equal(core_count(1), 1);
    }
    world_end(SPINNERS);
}

static void test_busy_locality_sends_foms(void **state)
{
    (void)state;
    spread_check(FW_BALANCE_FOMS);
}

static void test_busy_locality_gets_a_core(void **state)
{
    (void)state;
    spread_check(FW_BALANCE_CORES);
}

/* ---- threads ------------------------------------------------------------------------------- */

static struct {
    struct fw_parker parker; /* Of the thread in the bracket. */
    atomic_int cpu_count;
    atomic_int is_right_cpu;
    atomic_int mode;
    atomic_int mode_rc;
} spare;

/* The first blocks; the second, which another thread must run, looks at that thread. */
static enum fw_step pinned_tick(struct fw_fom *fom)
{
    struct waiter *self = FW_FOM_OF(fom, struct waiter);
    if (self->ticks == 0) {
        if (!fw_block_enter(fom)) {
            return fw_fom_wait(fom, WAIT);
        }
        fw_park(&spare.parker);
        fw_block_leave(fom);
        return fw_fom_finish(fom);
    }
    struct fw_cpu_set set;
    int mode = -1;
    int rc = fw_cpu_set_get(&set);
    atomic_store(&spare.cpu_count, rc == 0 ? (int)fw_cpu_set_count(&set) : rc);
    atomic_store(&spare.is_right_cpu, fw_cpu_set_has(&set, fw_core_self()->cpu.id));
    atomic_store(&spare.mode_rc, (int)syscall(SYS_get_mempolicy, &mode, NULL, 0UL, NULL, 0UL));
    atomic_store(&spare.mode, mode);
    fw_unpark(&spare.parker);
    return fw_fom_finish(fom);
}

static const struct fw_fom_type pinned_type = {
    .name = "pinned",
    .size = sizeof(struct waiter),
    .limit_count = 2,
    .phases = wait_phases,
    .phase_count = FW_ARRAY_LENGTH(wait_phases),
    .tick = pinned_tick,
};

static void test_spare_threads_are_pinned_too(void **state)
{
    (void)state;
    domain_make((struct fw_domain_config){.locality_count = 1, .is_pinned = true}, NULL);
    fw_parker_init(&spare.parker);
    assert_int_equal(fw_domain_add_type(domain, &pinned_type), 0);
    assert_int_equal(fw_domain_start(domain), 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct fw_fom *fom;
        assert_int_equal(fw_fom_create(&fom, domain, &pinned_type, NULL), 0);
        FW_FOM_OF(fom, struct waiter)->ticks = i;
        fw_fom_start(fom);
    }
    assert_int_equal(fw_domain_stop(domain, GRACE_NS), 0);
    assert_int_equal(atomic_load(&spare.cpu_count), 1);
    assert_true(atomic_load(&spare.is_right_cpu));
    if (atomic_load(&spare.mode_rc) == 0) {
        assert_int_equal(atomic_load(&spare.mode), 1); /* MPOL_PREFERRED. */
    }
    fw_domain_destroy(domain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_home_by_key),
        cmocka_unit_test(test_home_by_load),
        cmocka_unit_test(test_core_of_locality),
        cmocka_unit_test(test_load_is_an_area),
        cmocka_unit_test(test_look),
        cmocka_unit_test(test_look_leaves_small_differences),
        cmocka_unit_test(test_look_knows_who_sleeps),
        cmocka_unit_test(test_look_at_other_localities),
        cmocka_unit_test(test_localities),
        cmocka_unit_test(test_core_moves),
        cmocka_unit_test(test_core_with_a_fixed_fom_stays),
        cmocka_unit_test(test_no_core_moves_unless_normal),
        cmocka_unit_test(test_busy_locality_sends_foms),
        cmocka_unit_test(test_busy_locality_gets_a_core),
        cmocka_unit_test(test_spare_threads_are_pinned_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
