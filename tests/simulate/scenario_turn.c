/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The turn of a core changes hands: when ticks block in brackets while the domain is stopped, and
 * when they block outside of brackets and the watchdog takes the turn away. Whoever is told on
 * which core it runs (ordinary ticks, observers, finish) asks itself whether it is alone there.
 */
#include <errno.h>
#include <string.h>

#include <fairway/engine.h>
#include <fairway/log.h>

#include "base/assert.h"
#include "base/thread.h"
#include "engine/core.h"
#include "simulate/scenarios.h"

enum { FOMS_MAX = 8, STEPS = 12, CORES_MAX = 3 };
#define STALL_NS SIM_MS
enum { WORK = FW_PHASE_FIRST };

static struct {
    struct fw_domain *domain;
    const void *inside[CORES_MAX]; /* Who is on the turn of that core. */
    uint32_t steps;                /* Of all foms that finished. */
    uint32_t finished;
    uint32_t failed;
    uint32_t slow[2 * FOMS_MAX + 1]; /* How many ticks of the fom of that id took that long, */
    uint32_t told[2 * FOMS_MAX + 1]; /* and of how many the watchdog told. */
    uint32_t blocked;                /* Threads inside a tick that sleeps. */
    uint32_t blocked_max;
    bool has_plenty; /* Permits for all foms: no tick stays unrelieved. */
} world;

struct worker {
    struct fw_fom fom;
    uint32_t steps;
    bool is_inside; /* A tick: no two at once. */
};

/* The caller says that it has the turn. Nobody else says so until it is through. */
static void alone(const struct fw_fom *fom)
{
    struct fw_core *core = fw_core_self();
    SIM_EXPECT(core != NULL && core == fw_fom_core(fom) && core->fom == fom);
    SIM_EXPECT(core->holder == fw_thread_self()->handler);
    SIM_EXPECT(world.inside[core->index] == NULL);
    world.inside[core->index] = fom;
    FW_YIELD_POINT("scenario: on the turn");
    uint32_t idle = 0;
    fw_mutex_lock(&core->lock);
    FW_LIST_FOR_EACH (&core->idle, struct fw_handler, place, handler) {
        idle += handler->core == core;
    }
    SIM_EXPECT(idle == core->idle_count && idle <= core->domain->config.spare_limit);
    fw_mutex_unlock(&core->lock);
    SIM_EXPECT(world.inside[core->index] == fom);
    world.inside[core->index] = NULL;
}

static void block_for(int64_t duration)
{
    world.blocked++;
    world.blocked_max = world.blocked > world.blocked_max ? world.blocked : world.blocked_max;
    sim_sleep(duration);
    world.blocked--;
}

static void worker_finish(struct fw_fom *fom)
{
    alone(fom);
    world.steps += FW_FOM_OF(fom, struct worker)->steps;
    world.failed += fom->result != 0;
    world.finished++;
}

static void tick_ended(struct fw_fom *fom, void **cross_cut, enum fw_step step)
{
    (void)cross_cut;
    (void)step;
    alone(fom);
}

static void workers_start(const struct fw_fom_type *type, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct fw_fom *fom;
        int rc = fw_fom_create(&fom, world.domain, type, fw_domain_home_by_key(world.domain, i));
        FW_ASSERT(rc == 0);
        fw_fom_start(fom);
    }
}

static void domain_make(const struct fw_domain_config *config, const struct fw_fom_type *first,
                        const struct fw_fom_type *second)
{
    int rc = fw_domain_create(&world.domain, config);
    FW_ASSERT(rc == 0);
    rc = fw_domain_add_type(world.domain, first);
    FW_ASSERT(rc == 0);
    rc = fw_domain_add_type(world.domain, second);
    FW_ASSERT(rc == 0);
    rc = fw_domain_start(world.domain);
    FW_ASSERT(rc == 0);
}

/* ---- ticks that block outside of brackets -------------------------------------------------- */

/* Blocks, often for about as long as it takes the watchdog to lose patience. */
static void stuck_block(const struct fw_fom *fom)
{
    int64_t duration =
        sim_chance(2) ? sim_between(STALL_NS, 2 * STALL_NS) : sim_between(0, 4 * STALL_NS);
    uint32_t told = world.told[fom->id];
    block_for(duration);
    if (duration >= 2 * STALL_NS) {
        SIM_EXPECT(world.told[fom->id] > told);
        SIM_EXPECT(!world.has_plenty || fw_fom_core(fom)->holder != fw_thread_self()->handler);
    }
}

static enum fw_step stuck_tick(struct fw_fom *fom)
{
    struct worker *self = FW_FOM_OF(fom, struct worker);
    SIM_EXPECT(!self->is_inside && fom->phase == WORK);
    self->is_inside = true;
    int64_t begin = sim_now();
    if (sim_chance(2)) {
        stuck_block(fom);
    }
    bool is_refused = false;
    if (sim_chance(4)) {
        is_refused = !fw_block_enter(fom);
        if (!is_refused) {
            int64_t duration = sim_between(0, STALL_NS / 2);
            block_for(duration);
            fw_block_leave(fom);
        }
    }
    self->is_inside = false;
    world.slow[fom->id] += sim_now() - begin >= STALL_NS;
    if (is_refused) {
        return fw_fom_wait(fom, WORK);
    }
    self->steps++;
    if (self->steps == STEPS) {
        return fw_fom_finish(fom);
    }
    return sim_chance(2) ? fw_fom_goto(fom, WORK) : fw_fom_yield(fom, WORK);
}

static enum fw_step plain_tick(struct fw_fom *fom)
{
    struct worker *self = FW_FOM_OF(fom, struct worker);
    alone(fom);
    self->steps++;
    bool is_over = self->steps == STEPS || fom->phase == FW_PHASE_FAILED;
    return is_over ? fw_fom_finish(fom) : fw_fom_yield(fom, WORK);
}

static const struct fw_phase phases[] = {{"WORK", FW_PHASE_BIT(FW_PHASE_FINISHED), false}};

static const struct fw_fom_type stuck_type = {
    .name = "stuck",
    .size = sizeof(struct worker),
    .limit_count = FOMS_MAX,
    .phases = phases,
    .phase_count = FW_ARRAY_LENGTH(phases),
    .is_self_contained = true,
    .tick = stuck_tick,
    .finish = worker_finish,
};

static const struct fw_fom_type plain_type = {
    .name = "plain",
    .size = sizeof(struct worker),
    .limit_count = FOMS_MAX,
    .phases = phases,
    .phase_count = FW_ARRAY_LENGTH(phases),
    .tick = plain_tick,
    .finish = worker_finish,
};

static void stalled(void *context, const struct fw_stall *stall)
{
    (void)context;
    SIM_EXPECT(stall->duration_ns >= STALL_NS);
    SIM_EXPECT(stall->fom_id < FW_ARRAY_LENGTH(world.told));
    if (stall->kind == FW_STALL_TICK) {
        SIM_EXPECT(strcmp(stall->type, "stuck") == 0 && strcmp(stall->phase, "WORK") == 0);
        SIM_EXPECT(stall->stack == NULL);
        world.told[stall->fom_id]++;
    } else {
        SIM_EXPECT(stall->kind == FW_STALL_READY); /* No bracket lasts so long. */
    }
}

static void watchdog_run(void)
{
    memset(&world, 0, sizeof world);
    struct fw_domain_config config = {.stall_ns = STALL_NS, .stalled = stalled};
    config.observer.tick_ended = tick_ended;
    config.locality_count = (uint32_t)sim_between(1, CORES_MAX);
    world.has_plenty = sim_chance(2);
    config.bracket_limit = world.has_plenty ? FOMS_MAX : (uint32_t)sim_between(1, 4);
    config.spare_limit = (uint32_t)sim_between(1, 2);
    config.spare_idle_ns = sim_between(STALL_NS / 10, 10 * STALL_NS);
    int rc = fw_log_set_level("engine", FW_LOG_ERROR); /* Stalls are what it is about. */
    FW_ASSERT(rc == 0);
    domain_make(&config, &stuck_type, &plain_type);
    uint32_t stuck = (uint32_t)sim_between(1, FOMS_MAX);
    workers_start(&stuck_type, stuck);
    uint32_t plain = (uint32_t)sim_between(1, FOMS_MAX);
    workers_start(&plain_type, plain);
    uint64_t killed = fw_domain_stop(world.domain, 100 * SIM_S);
    SIM_EXPECT(killed == 0 && world.failed == 0);
    SIM_EXPECT(world.finished == stuck + plain);
    SIM_EXPECT(world.steps == STEPS * (stuck + plain));
    for (uint32_t id = 0; id < FW_ARRAY_LENGTH(world.told); id++) {
        SIM_EXPECT(world.told[id] <= world.slow[id]); /* Once each. */
    }
    SIM_EXPECT(atomic_load(&world.domain->permits) == (int32_t)config.bracket_limit);
    /* One per core that nobody could relieve, beside those that have a permit. */
    SIM_EXPECT(world.blocked_max <= config.bracket_limit + config.locality_count);
    fw_domain_destroy(world.domain);
    rc = fw_log_set_level("engine", FW_LOG_NOTICE);
    FW_ASSERT(rc == 0);
}

const struct sim_scenario sim_scenario_engine_watchdog = {
    .name = "engine-watchdog",
    .purpose = "ticks stall outside of brackets; the watchdog takes their turn as they end",
    .run = watchdog_run,
};

/* ---- brackets while the domain stops ------------------------------------------------------- */

/* Goes on for ever: into a bracket, out, and to the end of the queue. */
static enum fw_step endless_tick(struct fw_fom *fom)
{
    struct worker *self = FW_FOM_OF(fom, struct worker);
    SIM_EXPECT(!self->is_inside);
    if (fom->phase == FW_PHASE_FAILED) {
        SIM_EXPECT(fom->result == -ESHUTDOWN);
        return fw_fom_finish(fom);
    }
    if (!fw_block_enter(fom)) {
        return fw_fom_wait(fom, WORK);
    }
    self->is_inside = true;
    int64_t duration = sim_between(0, 200) * SIM_US;
    block_for(duration);
    fw_block_leave(fom);
    self->is_inside = false;
    alone(fom);
    return fw_fom_yield(fom, WORK);
}

static const struct fw_fom_type endless_type = {
    .name = "endless",
    .size = sizeof(struct worker),
    .limit_count = FOMS_MAX,
    .phases = phases,
    .phase_count = FW_ARRAY_LENGTH(phases),
    .tick = endless_tick,
    .finish = worker_finish,
};

static void block_stop_run(void)
{
    memset(&world, 0, sizeof world);
    struct fw_domain_config config = {.observer.tick_ended = tick_ended};
    config.locality_count = (uint32_t)sim_between(1, CORES_MAX);
    config.bracket_limit = (uint32_t)sim_between(1, 4);
    config.spare_limit = (uint32_t)sim_between(1, 2);
    config.spare_idle_ns = sim_between(1, 300) * SIM_US;
    domain_make(&config, &endless_type, &plain_type);
    uint32_t endless = (uint32_t)sim_between(1, FOMS_MAX);
    workers_start(&endless_type, endless);
    uint32_t plain = (uint32_t)sim_between(1, FOMS_MAX);
    workers_start(&plain_type, plain);
    int64_t pause = sim_between(0, 2000) * SIM_US;
    sim_sleep(pause);
    int64_t grace = sim_between(0, 500) * SIM_US;
    (void)fw_domain_stop(world.domain, grace);
    SIM_EXPECT(world.finished == endless + plain && world.failed >= endless);
    SIM_EXPECT(atomic_load(&world.domain->permits) == (int32_t)config.bracket_limit);
    SIM_EXPECT(world.blocked == 0 && world.blocked_max <= config.bracket_limit);
    fw_domain_destroy(world.domain);
}

const struct sim_scenario sim_scenario_engine_block_stop = {
    .name = "engine-block-stop",
    .purpose = "a domain is stopped while foms are in brackets, and wait to enter some",
    .run = block_stop_run,
};
