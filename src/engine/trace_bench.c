/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tracing costs per transition.
 *
 *   engine-trace-goto   phases of one fom that follow each other, traced. Peer: the same, not
 * traced, with one bare read of the processor's counter in each tick. The counter is what a record
 * cannot do without; the ratio is what all the rest costs. engine-trace-yield  the same for foms
 * that go through the run-queue with each tick. engine-trace-off    phases with tracing off, beside
 * an empty loop, to be compared with engine-goto before and after a change: off must cost nothing.
 *
 * The calling thread holds the turn of the only core and runs its real loop.
 */
#include <stdio.h>

#include <fairway/engine.h>

#include "base/assert.h"
#include "base/base.h"
#include "base/thread.h"
#include "bench/harness.h"
#include "engine/core.h"
#include "io/clock.h"

enum { STEP = FW_PHASE_FIRST, STEP_ELSE, YIELDERS = 64 };

static struct fw_domain *domain;
static struct fw_handler holder;
static uint64_t left;        /* Transitions still to be done. */
static bool is_counter_read; /* By the tick itself. */

static bool is_over(void)
{
    if (is_counter_read) {
        fw_bench_use(fw_clock_ticks());
    }
    if (left > 0) {
        left--;
        return false;
    }
    atomic_store_explicit(&domain->cores[0].must_exit, true, memory_order_relaxed);
    return true;
}

static enum fw_step goto_tick(struct fw_fom *fom)
{
    return is_over() ? fw_fom_finish(fom) : fw_fom_goto(fom, fom->phase == STEP ? STEP_ELSE : STEP);
}

static enum fw_step yield_tick(struct fw_fom *fom)
{
    return is_over() ? fw_fom_finish(fom) : fw_fom_yield(fom, STEP);
}

static const struct fw_phase phases[] = {
    {"STEP", FW_PHASE_BIT(STEP_ELSE) | FW_PHASE_BIT(FW_PHASE_FINISHED), false},
    {"STEP_ELSE", FW_PHASE_BIT(STEP) | FW_PHASE_BIT(FW_PHASE_FINISHED), false},
};

#define TYPE(type_name, type_tick)                                                     \
    {                                                                                  \
        .name = (type_name), .size = sizeof(struct fw_fom), .limit_count = YIELDERS,   \
        .phases = phases, .phase_count = FW_ARRAY_LENGTH(phases), .tick = (type_tick), \
    }
static const struct fw_fom_type goto_type = TYPE("goto", goto_tick);
static const struct fw_fom_type yield_type = TYPE("yield", yield_tick);

/* One side of a comparison. */
struct side {
    const struct fw_fom_type *type;
    uint32_t foms;
    bool is_traced;
    bool is_counter_read;
};

static void side_run(void *state, uint64_t count)
{
    const struct side *side = state;
    struct fw_core *core = &domain->cores[0];
    int rc = fw_domain_trace(domain, side->is_traced);
    FW_ASSERT(rc == 0);
    is_counter_read = side->is_counter_read;
    left = count;
    for (uint32_t i = 0; i < side->foms; i++) {
        struct fw_fom *fom;
        rc = fw_fom_create(&fom, domain, side->type, NULL);
        FW_ASSERT(rc == 0);
        fw_fom_start(fom);
    }
    do { /* The loop ends after the round in which the first fom did. */
        atomic_store_explicit(&core->must_exit, left == 0, memory_order_relaxed);
        fw_core_run(core, &holder);
    } while (core->queue.length > 0);
}

static void loop_run(void *state, uint64_t count)
{
    (void)state;
    for (uint64_t i = 0; i < count; i++) {
        fw_bench_use(i);
    }
}

static void domain_make(void)
{
    const struct fw_domain_config config = {.locality_count = 1};
    int rc = fw_domain_create(&domain, &config);
    FW_ASSERT(rc == 0);
    rc = fw_domain_add_type(domain, &goto_type);
    FW_ASSERT(rc == 0);
    rc = fw_domain_add_type(domain, &yield_type);
    FW_ASSERT(rc == 0);
    atomic_store(&domain->state, FW_DOMAIN_NORMAL);
    struct fw_core *core = &domain->cores[0];
    holder.core = core;
    fw_participant_attach(&holder.safety, domain);
    fw_safety_online(&holder.safety);
    fw_thread_self()->turn = core;
    fw_thread_self()->handler = &holder;
    core->holder = &holder;
}

int main(int argc, char **argv)
{
    static struct side goto_on = {&goto_type, 1, true, false};
    static struct side goto_off = {&goto_type, 1, false, false};
    static struct side goto_read = {&goto_type, 1, false, true};
    static struct side yield_on = {&yield_type, YIELDERS, true, false};
    static struct side yield_read = {&yield_type, YIELDERS, false, true};
    domain_make();
    const struct fw_bench benches[] = {
        {"engine-trace-goto",
         "ns per phase",
         {"traced", side_run, &goto_on},
         {"not traced, counter read", side_run, &goto_read},
         1.5,
         2000000,
         0},
        {"engine-trace-yield",
         "ns per tick",
         {"traced", side_run, &yield_on},
         {"not traced, counter read", side_run, &yield_read},
         1.5,
         2000000,
         0},
        {"engine-trace-off",
         "ns per phase",
         {"not traced", side_run, &goto_off},
         {"an empty loop", loop_run, NULL},
         100,
         2000000,
         35},
    };
    return fw_bench_main(argc, argv, benches, FW_ARRAY_LENGTH(benches));
}
