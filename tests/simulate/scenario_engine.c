/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine, with its real threads' code and simulated threads: foms of several cores pass tokens
 * to each other through shared channels and tickets, some of them block in brackets, and a thread
 * that is no part of the engine wakes them at random. A lost wake-up is a deadlock or a fom that is
 * overdue, a doubled one runs a fom twice at once, which an assertion of the engine catches. One
 * more thread traces and dumps them meanwhile.
 */
#include <errno.h>
#include <stdlib.h>

#include <fairway/engine.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/thread.h"
#include "engine/core.h"
#include "simulate/scenarios.h"

/* ---- wake: tokens passed round a ring of foms, by channel ---------------------------------- */

enum { RING_FOMS_MAX = 8, RING_LAPS = 6, WATCHES = 3 };
enum { RING_TAKE = FW_PHASE_FIRST, RING_BLOCK, RING_PASS };

struct ring_place {
    struct fw_channel channel;
    _Atomic uint32_t tokens; /* Here, not yet taken. */
};

static struct {
    struct fw_domain *domain;
    struct ring_place places[RING_FOMS_MAX];
    uint32_t count;
    uint32_t tokens;
    _Atomic uint32_t passed;
    _Atomic uint32_t over;
    bool blocks;
} ring;

struct ring_fom {
    struct fw_fom fom;
    struct fw_clink clink;
    uint32_t number;
    bool is_inside; /* A tick: no two at once. */
};

static bool ring_is_over(void)
{
    return atomic_load(&ring.passed) >= RING_LAPS * ring.count;
}

static void ring_give(uint32_t number)
{
    struct ring_place *place = &ring.places[number % ring.count];
    atomic_fetch_add(&place->tokens, 1);
    (void)fw_channel_signal(&place->channel);
}

static enum fw_step ring_take(struct ring_fom *self)
{
    struct ring_place *place = &ring.places[self->number];
    fw_fom_arm(&self->fom, &self->clink, &place->channel);
    if (ring_is_over()) {
        return fw_fom_finish(&self->fom);
    }
    uint32_t tokens = atomic_load(&place->tokens);
    FW_YIELD_POINT("scenario: looked for a token");
    if (tokens == 0) {
        return fw_fom_wait(&self->fom, RING_TAKE);
    }
    atomic_fetch_sub(&place->tokens, 1);
    return fw_fom_goto(&self->fom, ring.blocks ? RING_BLOCK : RING_PASS);
}

static enum fw_step ring_tick(struct fw_fom *fom)
{
    struct ring_fom *self = FW_FOM_OF(fom, struct ring_fom);
    SIM_EXPECT(!self->is_inside);
    self->is_inside = true;
    enum fw_step step;
    switch (fom->phase) {
    case RING_TAKE:
        step = ring_take(self);
        break;
    case RING_BLOCK:
        if (!fw_block_enter(fom)) {
            step = fw_fom_wait(fom, RING_BLOCK);
            break;
        }
        sim_sleep(100 * SIM_US);
        fw_block_leave(fom);
        step = fw_fom_goto(fom, RING_PASS);
        break;
    case RING_PASS:
        atomic_fetch_add(&ring.passed, 1);
        ring_give(self->number + 1);
        if (ring_is_over()) {
            for (uint32_t i = 0; i < ring.count; i++) {
                (void)fw_channel_broadcast(&ring.places[i].channel);
            }
        }
        step = fw_fom_yield(fom, RING_TAKE);
        break;
    default:
        sim_fail("a fom of the ring is in phase %u with %d", fom->phase, fom->result);
    }
    self->is_inside = false;
    return step;
}

static void ring_finish(struct fw_fom *fom)
{
    (void)fom;
    atomic_fetch_add(&ring.over, 1);
}

static const struct fw_phase ring_phases[] = {
    {"TAKE", FW_PHASE_BIT(RING_BLOCK) | FW_PHASE_BIT(RING_PASS) | FW_PHASE_BIT(FW_PHASE_FINISHED),
     false},
    {"BLOCK", FW_PHASE_BIT(RING_PASS), false},
    {"PASS", FW_PHASE_BIT(RING_TAKE), false},
};

static const struct fw_fom_type ring_type = {
    .name = "ring",
    .size = sizeof(struct ring_fom),
    .limit_count = RING_FOMS_MAX,
    .phases = ring_phases,
    .phase_count = FW_ARRAY_LENGTH(ring_phases),
    .tick = ring_tick,
    .finish = ring_finish,
};

/* A thread of nobody's: gives tokens, and wakes those who have no reason to wake. */
static void ring_stranger(void *argument)
{
    (void)argument;
    for (uint32_t i = 0; i < ring.tokens; i++) {
        uint32_t number = (uint32_t)sim_between(0, ring.count - 1);
        ring_give(number);
        number = (uint32_t)sim_between(0, ring.count - 1);
        (void)fw_channel_signal(&ring.places[number].channel);
        sim_sleep(sim_between(0, 50) * SIM_US);
    }
}

static int ring_sink(const char *bytes, size_t length, void *context)
{
    (void)bytes;
    *(size_t *)context += length;
    return 0;
}

/* Another: looks at what they do, and disturbs nobody. */
static void ring_watcher(void *argument)
{
    (void)argument;
    for (uint32_t i = 0; i < WATCHES; i++) {
        size_t length = 0;
        int rc = fw_domain_trace(ring.domain, sim_chance(2));
        FW_ASSERT(rc == 0);
        sim_sleep(sim_between(0, 50) * SIM_US);
        rc = fw_domain_dump(ring.domain, (uint32_t)sim_between(0, RING_FOMS_MAX), ring_sink,
                            &length);
        SIM_EXPECT(rc == 0 && length > 0);
        rc = fw_domain_trace_write(ring.domain, ring_sink, &length);
        SIM_EXPECT(rc == 0 || rc == -ENODATA);
    }
}

static void ring_run(bool blocks)
{
    struct fw_domain_config config = {.bracket_limit = 2};
    config.locality_count = (uint32_t)sim_between(1, 3);
    config.cores_per_locality = (uint32_t)sim_between(1, 2);
    int rc = fw_domain_create(&ring.domain, &config);
    FW_ASSERT(rc == 0);
    rc = fw_domain_add_type(ring.domain, &ring_type);
    FW_ASSERT(rc == 0);
    ring.count = (uint32_t)sim_between(2, RING_FOMS_MAX);
    ring.tokens = (uint32_t)sim_between(1, ring.count);
    ring.blocks = blocks;
    atomic_store(&ring.passed, 0);
    atomic_store(&ring.over, 0);
    for (uint32_t i = 0; i < ring.count; i++) {
        atomic_store(&ring.places[i].tokens, 0);
        fw_channel_init_shared(&ring.places[i].channel, ring.domain);
    }
    rc = fw_domain_start(ring.domain);
    FW_ASSERT(rc == 0);
    for (uint32_t i = 0; i < ring.count; i++) {
        struct fw_fom *fom;
        struct fw_locality *home = fw_domain_home_by_key(ring.domain, i);
        rc = fw_fom_create(&fom, ring.domain, &ring_type, home);
        FW_ASSERT(rc == 0);
        FW_FOM_OF(fom, struct ring_fom)->number = i;
        fw_fom_start(fom);
    }
    struct fw_thread stranger;
    rc = fw_thread_create(&stranger, "stranger", ring_stranger, NULL);
    FW_ASSERT(rc == 0);
    struct fw_thread watcher;
    rc = fw_thread_create(&watcher, "watcher", ring_watcher, NULL);
    FW_ASSERT(rc == 0);
    fw_thread_join(&stranger);
    fw_thread_join(&watcher);
    uint64_t killed = fw_domain_stop(ring.domain, 100 * SIM_S);
    SIM_EXPECT(killed == 0);
    SIM_EXPECT(atomic_load(&ring.over) == ring.count);
    for (uint32_t i = 0; i < ring.count; i++) {
        fw_channel_fini(&ring.places[i].channel);
    }
    fw_domain_destroy(ring.domain);
}

static void wake_run(void)
{
    ring_run(false);
}

static void block_run(void)
{
    ring_run(true);
}

const struct sim_scenario sim_scenario_engine_wake = {
    .name = "engine-wake",
    .purpose = "foms of several cores wake each other through channels; no wake-up is lost",
    .run = wake_run,
};

const struct sim_scenario sim_scenario_engine_block = {
    .name = "engine-block",
    .purpose = "the same, and they block in brackets, more of them than may at once",
    .run = block_run,
};
