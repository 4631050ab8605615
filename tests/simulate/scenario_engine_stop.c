/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A domain that is drained and stopped while foms of all kinds are under way, others are being
 * created by threads and by foms, and some were created and have not begun.
 *
 * What must hold: from the drain on nothing new is accepted; all that was accepted ends, once;
 * those who wait patiently are told -ESHUTDOWN, the others go on to their ends undisturbed unless
 * the grace is over, and the stop says how many that met. Nothing is left when the domain is
 * destroyed.
 */
#include <errno.h>
#include <string.h>

#include <fairway/engine.h>

#include "engine/core.h"
#include "simulate/engine_world.h"
#include "simulate/scenarios.h"

enum { FOMS_MAX = 12, LIMIT_MS = 5, PATIENCE_S = 10 };
enum { BEGIN = FW_PHASE_FIRST, PATIENT, LIMITED, BRACKET, BUSY, PARENT };

static struct {
    struct fw_domain *domain;
    struct fw_channel channel;
    _Atomic uint32_t accepted, over;
    _Atomic uint64_t shut_down;
    bool is_hasty; /* Without grace. */
    atomic_bool is_stopped;
} world;

struct subject {
    struct fw_fom fom;
    struct fw_clink clink;
    unsigned kind;
    uint32_t steps;
    bool is_inside;
};

static const struct fw_fom_type subject_type;

static struct fw_fom *subject_create(struct fw_locality *home)
{
    unsigned kind = (unsigned)sim_between(PATIENT, PARENT);
    kind = sim_chance(2) ? PATIENT : kind;
    struct fw_fom *fom;
    int rc = fw_fom_create(&fom, world.domain, &subject_type, home);
    SIM_EXPECT(rc == 0 || rc == -ESHUTDOWN || rc == -ENOMEM);
    if (rc != 0) {
        return NULL;
    }
    FW_FOM_OF(fom, struct subject)->kind = kind;
    atomic_fetch_add(&world.accepted, 1);
    return fom;
}

static void subject_start(struct fw_fom *fom)
{
    if (fom != NULL) {
        fw_fom_start(fom);
    }
}

static struct fw_locality *any_home(void)
{
    uint32_t count = fw_domain_locality_count(world.domain);
    return fw_domain_locality(world.domain, (uint32_t)sim_between(0, count - 1));
}

static enum fw_step subject_failed(struct subject *self)
{
    int result = self->fom.result;
    if (result == -ESHUTDOWN) {
        atomic_fetch_add(&world.shut_down, 1);
        SIM_EXPECT(world.is_hasty || self->kind == PATIENT);
    } else {
        SIM_EXPECT(result == -ETIMEDOUT && self->kind == LIMITED);
    }
    return fw_fom_finish(&self->fom);
}

static enum fw_step subject_step(struct subject *self)
{
    struct fw_fom *fom = &self->fom;
    switch (fom->phase) {
    case FW_PHASE_FAILED:
        return subject_failed(self);
    case BEGIN:
        return fw_fom_goto(fom, self->kind);
    case PATIENT:
    case LIMITED:
        if (self->kind == PATIENT) {
            (void)fw_channel_signal(&world.channel); /* They keep each other busy for a while. */
        }
        fw_fom_arm(fom, &self->clink, &world.channel);
        return self->steps++ > 50 ? fw_fom_finish(fom) : fw_fom_wait(fom, self->kind);
    case BRACKET:
        if (!fw_block_enter(fom)) {
            return fw_fom_wait(fom, BRACKET);
        }
        sim_sleep(100 * SIM_US);
        fw_block_leave(fom);
        return fw_fom_finish(fom);
    case BUSY:
        return self->steps++ > 20 ? fw_fom_finish(fom) : fw_fom_yield(fom, BUSY);
    default:
        subject_start(subject_create(any_home()));
        return fw_fom_finish(fom);
    }
}

static enum fw_step subject_tick(struct fw_fom *fom)
{
    struct subject *self = FW_FOM_OF(fom, struct subject);
    SIM_EXPECT(!self->is_inside);
    self->is_inside = true;
    enum fw_step step = subject_step(self);
    self->is_inside = false;
    return step;
}

static void subject_finish(struct fw_fom *fom)
{
    (void)fom;
    atomic_fetch_add(&world.over, 1);
}

#define END FW_PHASE_BIT(FW_PHASE_FINISHED)
static const struct fw_phase subject_phases[] = {
    {"BEGIN",
     FW_PHASE_BIT(PATIENT) | FW_PHASE_BIT(LIMITED) | FW_PHASE_BIT(BRACKET) | FW_PHASE_BIT(BUSY) |
         FW_PHASE_BIT(PARENT),
     false},
    {"PATIENT", END, true},
    {"LIMITED", END, false},
    {"BRACKET", END, false},
    {"BUSY", END, false},
    {"PARENT", END, false},
};

static const struct fw_fom_type subject_type = {
    .name = "subject",
    .size = sizeof(struct subject),
    .limit_count = FOMS_MAX,
    .phases = subject_phases,
    .phase_count = FW_ARRAY_LENGTH(subject_phases),
    .tick = subject_tick,
    .finish = subject_finish,
};

/* Creates some, starts or discards them later, and signals now and then. */
static void creator(void *argument)
{
    (void)argument;
    int64_t count = sim_between(1, 8);
    for (int64_t i = 0; i < count; i++) {
        struct fw_fom *fom = subject_create(any_home());
        int64_t pause_us = sim_between(0, 300);
        if (sim_chance(3)) {
            sim_sleep(pause_us * SIM_US);
        }
        if (fom != NULL && sim_chance(4)) {
            fw_fom_discard(fom);
            atomic_fetch_sub(&world.accepted, 1);
        } else {
            subject_start(fom);
        }
        (void)fw_channel_broadcast(&world.channel);
        if (sim_chance(8)) {
            fw_domain_drain(world.domain); /* Just when the foms get to their waits again. */
        }
        sim_sleep(sim_chance(2) ? pause_us * SIM_US : 0);
    }
}

/*
 * For a while. Or for some steps of the others, so that what comes next comes at a time when one of
 * them was interrupted, and not when nothing happens.
 */
static void loiter(int64_t steps_max)
{
    int64_t pause_us = sim_between(0, 5000);
    int64_t steps = sim_between(0, steps_max);
    if (sim_chance(2)) {
        sim_sleep(pause_us * SIM_US);
    } else {
        for (int64_t i = 0; i < steps; i++) {
            sim_sleep(0);
        }
    }
}

/* Of others: a domain may be drained from any thread, and more than once. */
static void drainer(void *argument)
{
    (void)argument;
    loiter(100);
    fw_domain_drain(world.domain);
    SIM_EXPECT(subject_create(any_home()) == NULL);
}

/* A stop that forgets somebody would wait for ever. */
static void sentinel(void *argument)
{
    (void)argument;
    for (int i = 0; i < PATIENCE_S && !atomic_load(&world.is_stopped); i++) {
        sim_sleep(SIM_S);
    }
    SIM_EXPECT(atomic_load(&world.is_stopped));
}

static void stop_run(void)
{
    memset(&world, 0, sizeof world);
    struct fw_domain_config config = {
        .bracket_limit = 2, .wait_min_ns = LIMIT_MS * SIM_MS, .wait_max_ns = LIMIT_MS * SIM_MS};
    world.domain = engine_create(config, &subject_type);
    world.is_hasty = sim_chance(3);
    fw_channel_init_shared(&world.channel, world.domain);
    SIM_EXPECT(subject_create(any_home()) == NULL); /* In INIT. */
    engine_start(world.domain);
    static void (*const roles[])(void *argument) = {sentinel, drainer, creator, creator};
    struct fw_thread threads[FW_ARRAY_LENGTH(roles)];
    uint32_t count = (uint32_t)sim_between(3, 4);
    for (uint32_t i = 0; i < count; i++) {
        int rc = fw_thread_create(&threads[i], "stranger", roles[i], NULL);
        FW_ASSERT(rc == 0);
    }
    loiter(100);
    uint64_t killed = fw_domain_stop(world.domain, world.is_hasty ? 0 : 2 * SIM_S * PATIENCE_S);
    atomic_store(&world.is_stopped, true);
    for (uint32_t i = 0; i < count; i++) {
        fw_thread_join(&threads[i]);
    }
    SIM_EXPECT(atomic_load(&world.over) == atomic_load(&world.accepted));
    SIM_EXPECT(killed <= (world.is_hasty ? atomic_load(&world.shut_down) : 0));
    SIM_EXPECT(subject_create(any_home()) == NULL);
    fw_channel_fini(&world.channel);
    fw_domain_destroy(world.domain);
}

const struct sim_scenario sim_scenario_engine_stop = {
    .name = "engine-stop",
    .purpose = "a domain is drained and stopped under foms of all kinds, and while they are made",
    .run = stop_run,
};

/* ---- refusals ---- */

/* Creates foms without a pause, and nearly all for nothing, until they are refused. */
static void hurried_creator(void *argument)
{
    (void)argument;
    for (int i = 0; i < 200; i++) {
        struct fw_fom *fom = subject_create(any_home());
        if (fom == NULL) {
            break;
        }
        if (sim_chance(2)) {
            fw_fom_start(fom);
        } else {
            fw_fom_discard(fom);
            atomic_fetch_sub(&world.accepted, 1);
        }
    }
}

/* The stop finds none, or one that is just being made: refused, or waited for. */
static void refuse_run(void)
{
    memset(&world, 0, sizeof world);
    /* One core: the fewer there are, the sooner the stop is through. */
    struct fw_domain_config config = {
        .locality_count = 1, .wait_min_ns = LIMIT_MS * SIM_MS, .wait_max_ns = LIMIT_MS * SIM_MS};
    int rc = fw_domain_create(&world.domain, &config);
    FW_ASSERT(rc == 0);
    rc = fw_domain_add_type(world.domain, &subject_type);
    FW_ASSERT(rc == 0);
    fw_channel_init_shared(&world.channel, world.domain);
    engine_start(world.domain);
    struct fw_thread thread;
    rc = fw_thread_create(&thread, "creator", hurried_creator, NULL);
    FW_ASSERT(rc == 0);
    int64_t steps = sim_between(0, 12);
    for (int64_t i = 0; i < steps; i++) {
        sim_sleep(0);
    }
    SIM_EXPECT(fw_domain_stop(world.domain, PATIENCE_S * SIM_S) == 0);
    fw_thread_join(&thread);
    SIM_EXPECT(atomic_load(&world.over) == atomic_load(&world.accepted));
    fw_channel_fini(&world.channel);
    fw_domain_destroy(world.domain);
}

const struct sim_scenario sim_scenario_engine_refuse = {
    .name = "engine-refuse",
    .purpose = "a fom that is created while the domain stops is refused, or waited for",
    .run = refuse_run,
};

/* ---- a drain among foms that are about to park ---- */

static void drain_run(void)
{
    memset(&world, 0, sizeof world);
    world.domain = engine_create((struct fw_domain_config){.bracket_limit = 0}, &subject_type);
    fw_channel_init_shared(&world.channel, world.domain);
    engine_start(world.domain);
    for (int i = 0; i < 4; i++) {
        struct fw_fom *fom = subject_create(any_home());
        FW_ASSERT(fom != NULL);
        FW_FOM_OF(fom, struct subject)->kind = PATIENT; /* They wake each other all the time. */
        fw_fom_start(fom);
    }
    loiter(40);
    fw_domain_drain(world.domain);
    sim_sleep(SIM_S);
    SIM_EXPECT(atomic_load(&world.over) == atomic_load(&world.accepted));
    SIM_EXPECT(fw_domain_stop(world.domain, 0) == 0);
    fw_channel_fini(&world.channel);
    fw_domain_destroy(world.domain);
}

const struct sim_scenario sim_scenario_engine_drain = {
    .name = "engine-drain",
    .purpose = "foms that are about to wait patiently notice a drain all the same",
    .run = drain_run,
};
