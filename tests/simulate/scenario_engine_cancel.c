/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clinks that are disarmed while they are being fired. Foms arm several channels at a time and go
 * on before any of them has fired, or when one has, or end with all of them armed; their memory is
 * another fom's soon. Meanwhile strangers signal and broadcast, and wake by tickets of foms that
 * may be gone. Each fom also makes a channel of its own and ends it as soon as it was woken by it,
 * while the one who woke it may still be at it.
 *
 * What must hold: no channel has a clink left when all is over, no clink is touched when its fom
 * has gone on (the lists' assertions say so), and each fom is run by one thread at a time.
 */
#include <string.h>

#include <fairway/engine.h>

#include "engine/core.h"
#include "simulate/engine_world.h"
#include "simulate/scenarios.h"

enum { CHANNELS = 3, CLINKS = 3, AT_ONCE = 4, LIVES = 12, STEPS_MAX = 6 };
enum { ROAM = FW_PHASE_FIRST, CALL };

/*
 * Made by a fom, for itself. The stranger who takes it signals until it has found a clink, and then
 * leaves it alone: so the fom may end it as soon as it knows that its clink has fired.
 */
struct call {
    struct fw_channel channel;
    bool is_broadcast;
};

static struct {
    struct fw_domain *domain;
    struct fw_channel channels[CHANNELS];
    _Atomic(struct call *) called;
    struct fw_ticket tickets[LIVES];
    _Atomic uint32_t ticket_count, born, over;
} world;

struct roamer {
    struct fw_fom fom;
    struct fw_clink clinks[CLINKS];
    struct fw_clink answer;
    struct call call;
    uint32_t steps;
    bool has_called;
    bool is_inside;
};

static void note_ticket(struct fw_fom *fom)
{
    uint32_t number = atomic_load(&world.ticket_count);
    if (number < LIVES) {
        world.tickets[number] = fw_fom_ticket(fom);
        atomic_store(&world.ticket_count, number + 1); /* Of two at once one is enough. */
    }
}

/* Any of what may follow when clinks are armed. */
static enum fw_step roam(struct roamer *self)
{
    struct fw_fom *fom = &self->fom;
    uint32_t count = (uint32_t)sim_between(0, CLINKS);
    uint32_t first = (uint32_t)sim_between(0, CHANNELS - 1);
    for (uint32_t i = 0; i < count; i++) {
        fw_fom_arm(fom, &self->clinks[i], &world.channels[(first + i) % CHANNELS]);
        FW_YIELD_POINT("scenario: armed one");
    }
    if (self->steps++ == STEPS_MAX) {
        return fw_fom_finish(fom);
    }
    switch (sim_between(0, 3)) {
    case 0:
        return fw_fom_yield(fom, ROAM);
    case 1:
        return fw_fom_goto(fom, ROAM);
    case 2:
        return fw_fom_goto(fom, CALL);
    default:
        return fw_fom_wait_until(fom, ROAM, fw_fom_now(fom) + SIM_MS);
    }
}

/* Has itself called, if nobody else does at the time. */
static enum fw_step call(struct roamer *self)
{
    struct fw_fom *fom = &self->fom;
    if (self->has_called && fw_clink_fired(&self->answer)) {
        self->has_called = false;
        fw_channel_fini(&self->call.channel);
        memset(&self->call, 0x5a, sizeof self->call);
        return fw_fom_goto(fom, ROAM);
    }
    if (!self->has_called) {
        fw_channel_init_shared(&self->call.channel, world.domain);
        self->call.is_broadcast = sim_chance(2);
        struct call *none = NULL;
        self->has_called = atomic_compare_exchange_strong(&world.called, &none, &self->call);
        if (!self->has_called) {
            return fw_fom_goto(fom, ROAM); /* Another is before it. */
        }
    }
    fw_fom_arm(fom, &self->answer, &self->call.channel);
    return fw_fom_wait(fom, CALL);
}

static enum fw_step roamer_tick(struct fw_fom *fom)
{
    struct roamer *self = FW_FOM_OF(fom, struct roamer);
    SIM_EXPECT(!self->is_inside);
    self->is_inside = true;
    note_ticket(fom);
    SIM_EXPECT(fom->phase != FW_PHASE_FAILED);
    enum fw_step step = fom->phase == ROAM ? roam(self) : call(self);
    self->is_inside = false;
    return step;
}

static void roamer_finish(struct fw_fom *fom)
{
    memset((char *)fom + sizeof *fom, 0x5a, sizeof(struct roamer) - sizeof *fom);
    atomic_fetch_add(&world.over, 1);
}

static const struct fw_phase roamer_phases[] = {
    {"ROAM", FW_PHASE_BIT(CALL) | FW_PHASE_BIT(FW_PHASE_FINISHED), false},
    {"CALL", FW_PHASE_BIT(ROAM), false},
};

static const struct fw_fom_type roamer_type = {
    .name = "roamer",
    .size = sizeof(struct roamer),
    .limit_count = AT_ONCE,
    .phases = roamer_phases,
    .phase_count = FW_ARRAY_LENGTH(roamer_phases),
    .tick = roamer_tick,
    .finish = roamer_finish,
};

static void answer(void)
{
    struct call *call = atomic_exchange(&world.called, NULL);
    bool is_found = call == NULL;
    bool is_broadcast = !is_found && call->is_broadcast;
    while (!is_found) {
        is_found = is_broadcast ? fw_channel_broadcast(&call->channel) > 0
                                : fw_channel_signal(&call->channel);
        sim_sleep(SIM_US); /* It has not armed yet, or was about to look again. */
    }
}

static void create(void)
{
    uint32_t number = atomic_fetch_add(&world.born, 1);
    struct fw_fom *fom;
    struct fw_locality *home = fw_domain_home_by_key(world.domain, number);
    if (number < LIVES && fw_fom_create(&fom, world.domain, &roamer_type, home) == 0) {
        fw_fom_start(fom);
    } else {
        atomic_fetch_sub(&world.born, 1); /* All are born, or too many live. */
    }
}

static void stranger(void *argument)
{
    (void)argument;
    while (atomic_load(&world.over) < LIVES) {
        create();
        struct fw_channel *channel = &world.channels[sim_between(0, CHANNELS - 1)];
        if (sim_chance(2)) {
            (void)fw_channel_signal(channel);
        } else {
            (void)fw_channel_broadcast(channel);
        }
        uint32_t tickets = atomic_load(&world.ticket_count);
        if (tickets > 0) {
            fw_ticket_wake(world.tickets[sim_between(0, tickets - 1)]);
        }
        answer();
        int64_t pause_us = sim_between(0, 100);
        sim_sleep(pause_us * SIM_US);
    }
}

static void cancel_run(void)
{
    memset(&world, 0, sizeof world);
    world.domain = engine_create((struct fw_domain_config){.bracket_limit = 0}, &roamer_type);
    for (uint32_t i = 0; i < CHANNELS; i++) {
        fw_channel_init_shared(&world.channels[i], world.domain);
    }
    engine_start(world.domain);
    engine_strangers((uint32_t)sim_between(1, ENGINE_STRANGERS_MAX), stranger);
    SIM_EXPECT(fw_domain_stop(world.domain, SIM_S) == 0);
    SIM_EXPECT(atomic_load(&world.over) == LIVES);
    for (uint32_t i = 0; i < CHANNELS; i++) {
        fw_channel_fini(&world.channels[i]);
    }
    fw_domain_destroy(world.domain);
}

const struct sim_scenario sim_scenario_engine_cancel = {
    .name = "engine-cancel",
    .purpose = "clinks are disarmed, foms and channels end, while they are being fired",
    .run = cancel_run,
};
