/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A skewed load levels out: before, during, after.
 *
 *   off      two localities; all foms have their home in one and are always ready. For comparison.
 *   foms     the same, and foms may change their homes.
 *   cores    two localities of two cores each, and cores may change their localities.
 *
 * Printed are the foms of each core over time, and how many ticks all cores do per millisecond; the
 * latter grows only if there are processors for more cores. Judged is how even it is in the end:
 * the foms of the busiest core beside the even share of all cores that can serve them, the bar
 * being what the balancer leaves alone by design. Not a loop beside a peer, so it does without the
 * harness's main(), but answers as that does.
 */
#include <stdio.h>
#include <string.h>

#include <fairway/engine.h>

#include "base/assert.h"
#include "base/thread.h"
#include "bench/harness.h"
#include "engine/core.h"
#include "io/clock.h"

enum { FOMS = 60, WORK = 1000, SAMPLES = 16, SAMPLES_QUICK = 10 };
#define INTERVAL_NS INT64_C(25000000)
#define BAR         1.35 /* A quarter more than the other of two, and a fom more or less. */

static atomic_bool is_over;

/* About a microsecond of work. */
static enum fw_step work_tick(struct fw_fom *fom)
{
    uint64_t value = fom->id;
    for (int i = 0; i < WORK; i++) {
        value = value * 3 + 1;
        fw_bench_use(value);
    }
    return atomic_load_explicit(&is_over, memory_order_relaxed) ? fw_fom_finish(fom)
                                                                : fw_fom_yield(fom, FW_PHASE_FIRST);
}

static bool work_depart(struct fw_fom *fom)
{
    (void)fom;
    return true;
}

static void work_arrive(struct fw_fom *fom)
{
    (void)fom;
}

static const struct fw_phase phases[] = {{"WORK", FW_PHASE_BIT(FW_PHASE_FINISHED), false}};
static const struct fw_fom_type work_type = {
    .name = "work",
    .size = sizeof(struct fw_fom),
    .limit_count = FOMS,
    .phases = phases,
    .phase_count = FW_ARRAY_LENGTH(phases),
    .tick = work_tick,
    .depart = work_depart,
    .arrive = work_arrive,
};

struct strategy {
    const char *name;
    enum fw_balance balance;
    uint32_t cores_per_locality;
    uint32_t serving; /* So many cores can serve the foms in the end. */
};

static const struct strategy strategies[] = {
    {"off", FW_BALANCE_OFF, 1, 1},
    {"foms", FW_BALANCE_FOMS, 1, 2},
    {"cores", FW_BALANCE_CORES, 2, 3},
};

static uint64_t ticks_of(const struct fw_domain *domain)
{
    uint64_t ticks = 0;
    for (uint32_t i = 0; i < domain->core_count; i++) {
        ticks += atomic_load_explicit(&domain->cores[i].tick_count, memory_order_relaxed);
    }
    return ticks;
}

/* Watches for so many intervals. Returns the foms of the busiest core in the end. */
static uint32_t domain_watch(struct fw_domain *domain, int samples)
{
    struct fw_parker nobody;
    fw_parker_init(&nobody);
    int64_t begin = fw_clock_now_ns();
    int64_t before = begin;
    uint64_t ticks_before = ticks_of(domain);
    uint32_t busiest = 0;
    for (int i = 0; i < samples; i++) {
        (void)fw_park_for(&nobody, INTERVAL_NS); /* Which nobody ends. */
        int64_t now = fw_clock_now_ns();
        uint64_t ticks = ticks_of(domain);
        (void)printf("  %6.0f", (double)(now - begin) / 1e6);
        busiest = 0;
        for (uint32_t j = 0; j < domain->core_count; j++) {
            struct fw_core *core = &domain->cores[j];
            uint32_t foms = atomic_load_explicit(&core->resident_count, memory_order_relaxed);
            const struct fw_locality *home =
                atomic_load_explicit(&core->locality, memory_order_relaxed);
            (void)printf("   %3u (%u)", foms, home->index);
            busiest = foms > busiest ? foms : busiest;
        }
        (void)printf("   %7.0f\n", (double)(ticks - ticks_before) * 1e6 / (double)(now - before));
        before = now;
        ticks_before = ticks;
    }
    return busiest;
}

/* The busiest core's foms over its even share, in the end. */
static double strategy_run(const struct strategy *strategy, int samples)
{
    struct fw_domain_config config = {.locality_count = 2,
                                      .cores_per_locality = strategy->cores_per_locality,
                                      .balance = strategy->balance,
                                      .balance_interval_ns = INTERVAL_NS};
    struct fw_domain *domain;
    int rc = fw_domain_create(&domain, &config);
    FW_ASSERT(rc == 0);
    rc = fw_domain_add_type(domain, &work_type);
    FW_ASSERT(rc == 0);
    rc = fw_domain_start(domain);
    FW_ASSERT(rc == 0);
    atomic_store(&is_over, false);
    (void)printf("%s\n      ms   foms of each core (its locality), ticks per ms\n", strategy->name);
    for (uint32_t i = 0; i < FOMS; i++) {
        struct fw_fom *fom;
        rc = fw_fom_create(&fom, domain, &work_type, fw_domain_locality(domain, 0));
        FW_ASSERT(rc == 0);
        fw_fom_start(fom);
    }
    uint32_t busiest = domain_watch(domain, samples);
    atomic_store(&is_over, true);
    (void)fw_domain_stop(domain, INT64_MAX / 2);
    fw_domain_destroy(domain);
    double ratio = (double)busiest * strategy->serving / FOMS;
    (void)printf("  busiest core beside the even share: %.2f\n\n", ratio);
    return ratio;
}

int main(int argc, char **argv)
{
    bool is_quick = false;
    for (int i = 1; i < argc; i++) {
        is_quick = is_quick || strcmp(argv[i], "--quick") == 0;
    }
    double worst = 0;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(strategies); i++) {
        double ratio = strategy_run(&strategies[i], is_quick ? SAMPLES_QUICK : SAMPLES);
        worst = ratio > worst ? ratio : worst;
    }
    (void)printf("{\"bench\": \"engine-balance\", \"ratio\": %.3f, \"better\": \"lower\", "
                 "\"peer\": \"an even share\", \"bar\": %.2f, \"ok\": %s, \"runs\": 1, "
                 "\"spread\": 0, \"unit\": \"foms of the busiest core\", \"quick\": %s}\n",
                 worst, BAR, worst <= BAR ? "true" : "false", is_quick ? "true" : "false");
    return worst <= BAR || is_quick ? 0 : 1;
}
