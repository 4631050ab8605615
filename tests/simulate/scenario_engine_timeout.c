/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits that end by their event, by their own deadline, or by the limit, with the event fired at
 * any time around that: by channel, and by tickets that are kept for ever and used again when their
 * fom has failed, is gone, or its memory is another's.
 *
 * What must hold: who fails does so because of -ETIMEDOUT, not before the limit, and not later than
 * the stated bound after it. Nobody has a tick that nobody caused, and to one that was found
 * overdue what it had waited for does nothing.
 */
#include <errno.h>
#include <string.h>

#include <fairway/engine.h>

#include "engine/core.h"
#include "simulate/engine_world.h"
#include "simulate/scenarios.h"

enum { LIVES = 24, AT_ONCE = 6, LIMIT_MS = 8, ROUNDS = 120 };
enum { LIFE_WAIT = FW_PHASE_FIRST };

/* One fom, from the outside. Stays when the fom is gone. */
struct life {
    struct fw_channel channel;
    struct fw_channel cleanup;
    struct fw_ticket ticket;
    _Atomic uint32_t wakes; /* Tried so far, by whatever way. */
    atomic_bool has_ticket, happened, is_clean, is_over;
    bool has_deadline;
};

static struct {
    struct fw_domain *domain;
    struct life lives[LIVES];
    _Atomic uint32_t born, over;
} world;

struct life_fom {
    struct fw_fom fom;
    struct fw_clink clink;
    struct life *life;
    uint32_t ticks;        /* In LIFE_WAIT. */
    uint32_t failed_ticks; /* In FAILED. */
    int64_t since;
};

static enum fw_step life_failed(struct life_fom *self)
{
    struct life *life = self->life;
    SIM_EXPECT(self->fom.result == -ETIMEDOUT);
    if (self->failed_ticks++ == 0) {
        int64_t waited = fw_fom_now(&self->fom) - self->since;
        SIM_EXPECT(!life->has_deadline);
        SIM_EXPECT(waited >= LIMIT_MS * SIM_MS);
        SIM_EXPECT(waited <= LIMIT_MS * SIM_MS + FW_DETECTION_BOUND_NS);
    } else {
        SIM_EXPECT(atomic_load(&life->is_clean)); /* Else a late event has woken it. */
    }
    fw_fom_arm(&self->fom, &self->clink, &life->cleanup);
    return atomic_load(&life->is_clean) ? fw_fom_finish(&self->fom)
                                        : fw_fom_wait(&self->fom, FW_PHASE_FAILED);
}

static enum fw_step life_tick(struct fw_fom *fom)
{
    struct life_fom *self = FW_FOM_OF(fom, struct life_fom);
    struct life *life = self->life;
    if (fom->phase == FW_PHASE_FAILED) {
        return life_failed(self);
    }
    bool is_late = fw_fom_timed_out(fom);
    SIM_EXPECT(!is_late || life->has_deadline);
    SIM_EXPECT(self->ticks <= atomic_load(&life->wakes) + (is_late ? 1 : 0));
    self->ticks++;
    life->ticket = fw_fom_ticket(fom);
    atomic_store(&life->has_ticket, true);
    fw_fom_arm(fom, &self->clink, &life->channel);
    if (is_late || atomic_load(&life->happened)) {
        return fw_fom_finish(fom);
    }
    self->since = fw_fom_now(fom);
    if (life->has_deadline) {
        return fw_fom_wait_until(fom, LIFE_WAIT, self->since + 2 * SIM_MS * LIMIT_MS);
    }
    return fw_fom_wait(fom, LIFE_WAIT);
}

static void life_finish(struct fw_fom *fom)
{
    atomic_store(&FW_FOM_OF(fom, struct life_fom)->life->is_over, true);
    atomic_fetch_add(&world.over, 1);
}

static const struct fw_phase life_phases[] = {{"WAIT", FW_PHASE_BIT(FW_PHASE_FINISHED), false}};

static const struct fw_fom_type life_type = {
    .name = "life",
    .size = sizeof(struct life_fom),
    .limit_count = AT_ONCE,
    .phases = life_phases,
    .phase_count = FW_ARRAY_LENGTH(life_phases),
    .tick = life_tick,
    .finish = life_finish,
};

static void life_begin(void)
{
    uint32_t number = atomic_load(&world.born);
    struct fw_fom *fom;
    struct fw_locality *home = fw_domain_home_by_key(world.domain, number);
    if (number == LIVES || fw_fom_create(&fom, world.domain, &life_type, home) != 0) {
        return; /* All are born, or too many live. */
    }
    struct life *life = &world.lives[number];
    life->has_deadline = sim_chance(3);
    FW_FOM_OF(fom, struct life_fom)->life = life;
    fw_fom_start(fom);
    atomic_store(&world.born, number + 1);
}

/* Does something to one of those that live, or have lived. */
static void life_disturb(struct life *life)
{
    atomic_fetch_add(&life->wakes, 1);
    switch (sim_between(0, 3)) {
    case 0:
        atomic_store(&life->happened, true);
        (void)fw_channel_signal(&life->channel);
        break;
    case 1:
        if (atomic_load(&life->has_ticket)) {
            struct fw_ticket ticket = life->ticket;
            fw_ticket_wake(ticket);
        }
        break;
    case 2:
        (void)fw_channel_broadcast(&life->channel); /* For no reason. */
        break;
    default:
        atomic_store(&life->is_clean, true);
        (void)fw_channel_broadcast(&life->cleanup);
    }
}

static void stranger(void *argument)
{
    (void)argument;
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t born = atomic_load(&world.born);
        if (born > 0) {
            uint32_t first = born > AT_ONCE && !sim_chance(4) ? born - AT_ONCE : 0;
            life_disturb(&world.lives[sim_between(first, born - 1)]);
        }
        int64_t pause_us = sim_between(0, 4 * LIMIT_MS * 1000 / AT_ONCE);
        sim_sleep(pause_us * SIM_US);
    }
}

static void midwife(void *argument)
{
    (void)argument;
    for (int i = 0; i < ROUNDS; i++) {
        life_begin();
        int64_t pause_us = sim_between(0, LIMIT_MS * 1000 / AT_ONCE);
        sim_sleep(pause_us * SIM_US);
    }
}

static void timeout_run(void)
{
    memset(&world, 0, sizeof world);
    /* The limit does not adapt here: it is what the foms are measured by. */
    struct fw_domain_config config = {.wait_min_ns = LIMIT_MS * SIM_MS,
                                      .wait_max_ns = LIMIT_MS * SIM_MS};
    world.domain = engine_create(config, &life_type);
    for (uint32_t i = 0; i < LIVES; i++) {
        fw_channel_init_shared(&world.lives[i].channel, world.domain);
        fw_channel_init_shared(&world.lives[i].cleanup, world.domain);
    }
    engine_start(world.domain);
    struct fw_thread births;
    int rc = fw_thread_create(&births, "midwife", midwife, NULL);
    FW_ASSERT(rc == 0);
    engine_strangers((uint32_t)sim_between(1, 2), stranger);
    fw_thread_join(&births);
    /* By now each has seen its event or its limit; what is left are those not cleaned up. */
    sim_sleep(4 * SIM_MS * LIMIT_MS + FW_DETECTION_BOUND_NS);
    for (uint32_t i = 0; i < atomic_load(&world.born); i++) {
        atomic_store(&world.lives[i].is_clean, true);
        (void)fw_channel_broadcast(&world.lives[i].cleanup);
    }
    sim_sleep(SIM_MS);
    SIM_EXPECT(atomic_load(&world.over) == atomic_load(&world.born));
    SIM_EXPECT(fw_domain_stop(world.domain, SIM_S) == 0);
    for (uint32_t i = 0; i < LIVES; i++) {
        fw_channel_fini(&world.lives[i].channel);
        fw_channel_fini(&world.lives[i].cleanup);
    }
    fw_domain_destroy(world.domain);
}

const struct sim_scenario sim_scenario_engine_timeout = {
    .name = "engine-timeout",
    .purpose = "overdue foms fail in time; late wake-ups, by channel or ticket, do nothing",
    .run = timeout_run,
};

/* ---- idle ---- */

enum { IDLERS = 20 };
enum { IDLE_FOR_EVER = FW_PHASE_FIRST };

static enum fw_step idle_tick(struct fw_fom *fom)
{
    return fom->phase == FW_PHASE_FAILED ? fw_fom_finish(fom) : fw_fom_wait(fom, IDLE_FOR_EVER);
}

static const struct fw_phase idle_phases[] = {{"IDLE", FW_PHASE_BIT(FW_PHASE_FINISHED), true}};

static const struct fw_fom_type idle_type = {
    .name = "idle",
    .size = sizeof(struct fw_fom),
    .limit_count = IDLERS,
    .phases = idle_phases,
    .phase_count = FW_ARRAY_LENGTH(idle_phases),
    .tick = idle_tick,
};

static uint64_t rounds_of(const struct fw_domain *domain)
{
    uint64_t rounds = 0;
    for (uint32_t i = 0; i < domain->core_count; i++) {
        rounds += fw_counter_get(&domain->cores[i].metrics->rounds);
    }
    return rounds;
}

/* An hour in which nothing happens costs no round; then all wake up at once. */
static void idle_run(void)
{
    struct fw_domain *domain =
        engine_create((struct fw_domain_config){.bracket_limit = 0}, &idle_type);
    engine_start(domain);
    for (uint32_t i = 0; i < IDLERS; i++) {
        struct fw_fom *fom;
        int rc = fw_fom_create(&fom, domain, &idle_type, fw_domain_home_by_key(domain, i));
        FW_ASSERT(rc == 0);
        fw_fom_start(fom);
    }
    sim_sleep(SIM_S);
    uint64_t before = rounds_of(domain);
    sim_sleep(3600 * SIM_S);
    SIM_EXPECT(rounds_of(domain) == before);
    SIM_EXPECT(fw_domain_stop(domain, SIM_S) == 0);
    fw_domain_destroy(domain);
}

const struct sim_scenario sim_scenario_engine_idle = {
    .name = "engine-idle",
    .purpose = "a domain whose foms all wait does nothing at all",
    .run = idle_run,
};
