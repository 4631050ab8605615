/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that are replaced while others read them. Foms read them in their ticks, and inside
 * brackets; attached threads do between enter and leave. A fom that has replaced one waits for
 * quiescence and then takes the old one's life.
 *
 * What must hold: nobody who has found an object alive finds it dead before he has let go of it,
 * and every request is granted in the end.
 */
#include <string.h>

#include <fairway/engine.h>

#include "engine/core.h"
#include "simulate/engine_world.h"
#include "simulate/scenarios.h"

enum { OBJECTS = 64, FOMS = 5, READS = 12, REPLACEMENTS = 3 };
enum { READ = FW_PHASE_FIRST, READ_IN_BRACKET, REPLACE, WAIT };

static struct {
    struct fw_domain *domain;
    _Atomic uint32_t current;
    _Atomic uint32_t made;
    bool is_dead[OBJECTS];
    _Atomic uint32_t over;
} world;

struct reader {
    struct fw_fom fom;
    struct fw_quiescence quiescence;
    uint32_t old;
    uint32_t reads, replacements;
};

static void look_at_object(void)
{
    uint32_t object = atomic_load(&world.current);
    int64_t steps = sim_between(0, 3);
    for (int64_t i = 0; i <= steps; i++) {
        SIM_EXPECT(!world.is_dead[object]);
        FW_YIELD_POINT("scenario: looks at an object");
    }
    SIM_EXPECT(!world.is_dead[object]);
}

static enum fw_step read_in_bracket(struct fw_fom *fom)
{
    uint32_t object = atomic_load(&world.current);
    if (!fw_block_enter(fom)) {
        return fw_fom_wait(fom, READ_IN_BRACKET); /* It has let go of the object. */
    }
    int64_t pause_us = sim_between(0, 200);
    sim_sleep(pause_us * SIM_US);
    SIM_EXPECT(!world.is_dead[object]);
    fw_block_leave(fom);
    SIM_EXPECT(!world.is_dead[object]);
    return fw_fom_yield(fom, READ);
}

static enum fw_step replace(struct reader *self)
{
    uint32_t next = atomic_fetch_add(&world.made, 1) + 1;
    SIM_EXPECT(next < OBJECTS);
    self->old = atomic_exchange(&world.current, next);
    FW_YIELD_POINT("scenario: replaced an object");
    memset(&self->quiescence, 0, sizeof self->quiescence);
    bool is_granted = fw_domain_quiesce(world.domain, &self->fom, &self->quiescence);
    SIM_EXPECT(!is_granted);
    return fw_fom_wait(&self->fom, WAIT);
}

static enum fw_step reader_tick(struct fw_fom *fom)
{
    struct reader *self = FW_FOM_OF(fom, struct reader);
    switch (fom->phase) {
    case READ:
        look_at_object();
        if (self->reads++ < READS) {
            return sim_chance(4) ? fw_fom_goto(fom, READ_IN_BRACKET) : fw_fom_yield(fom, READ);
        }
        return self->replacements < REPLACEMENTS ? fw_fom_goto(fom, REPLACE) : fw_fom_finish(fom);
    case READ_IN_BRACKET:
        return read_in_bracket(fom);
    case REPLACE:
        self->replacements++;
        self->reads = 0;
        return replace(self);
    case WAIT:
        if (!fw_domain_quiesce(world.domain, fom, &self->quiescence)) {
            return fw_fom_wait(fom, WAIT);
        }
        world.is_dead[self->old] = true;
        return fw_fom_goto(fom, READ);
    default:
        sim_fail("quiescence was not granted: %d", fom->result);
    }
}

static void reader_finish(struct fw_fom *fom)
{
    (void)fom;
    atomic_fetch_add(&world.over, 1);
}

static const struct fw_phase reader_phases[] = {
    {"READ",
     FW_PHASE_BIT(READ_IN_BRACKET) | FW_PHASE_BIT(REPLACE) | FW_PHASE_BIT(FW_PHASE_FINISHED),
     false},
    {"READ_IN_BRACKET", FW_PHASE_BIT(READ), false},
    {"REPLACE", FW_PHASE_BIT(WAIT), false},
    {"WAIT", FW_PHASE_BIT(READ), false},
};

static const struct fw_fom_type reader_type = {
    .name = "reader",
    .size = sizeof(struct reader),
    .limit_count = FOMS,
    .phases = reader_phases,
    .phase_count = FW_ARRAY_LENGTH(reader_phases),
    .tick = reader_tick,
    .finish = reader_finish,
};

static void stranger(void *argument)
{
    (void)argument;
    struct fw_participant self;
    fw_participant_attach(&self, world.domain);
    for (int i = 0; i < READS; i++) {
        fw_participant_enter(&self);
        look_at_object();
        if (sim_chance(4)) {
            uint32_t object = atomic_load(&world.current);
            sim_sleep(100 * SIM_US);
            SIM_EXPECT(!world.is_dead[object]);
        }
        fw_participant_leave(&self);
        int64_t pause_us = sim_between(0, 100);
        sim_sleep(pause_us * SIM_US);
    }
    fw_participant_detach(&self);
}

static void quiesce_run(void)
{
    memset(&world, 0, sizeof world);
    world.domain = engine_create((struct fw_domain_config){.bracket_limit = 2}, &reader_type);
    engine_start(world.domain);
    uint32_t count = (uint32_t)sim_between(1, FOMS);
    for (uint32_t i = 0; i < count; i++) {
        struct fw_fom *fom;
        struct fw_locality *home = fw_domain_home_by_key(world.domain, i);
        int rc = fw_fom_create(&fom, world.domain, &reader_type, home);
        FW_ASSERT(rc == 0);
        fw_fom_start(fom);
    }
    engine_strangers((uint32_t)sim_between(0, 2), stranger);
    SIM_EXPECT(fw_domain_stop(world.domain, 1000 * SIM_S) == 0);
    SIM_EXPECT(atomic_load(&world.over) == count);
    fw_domain_destroy(world.domain);
}

const struct sim_scenario sim_scenario_engine_quiesce = {
    .name = "engine-quiesce",
    .purpose = "objects are replaced under readers in ticks, brackets and threads, and let go of",
    .run = quiesce_run,
};
