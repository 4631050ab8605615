/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two questions about foms that do nothing.
 *
 *   engine-parked  a million of them, each waiting on a channel with a limit: how many bytes does
 *                  each take, clink and timer included, and what does it cost to watch over them?
 *   engine-block   a hundred of them asleep in brackets: what do the others notice? They go through
 *                  the run-queue in turn, and each measures how long that takes. Told beside it,
 * but not judged: the same when the hundred wake and sleep again ten times a second each, so that
 * the turn changes hands two thousand times.
 *
 * Both print one JSON object as their last line, as bench/harness.h's do. Options: --runs N,
 * --quick.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <fairway/engine.h>

#include "base/assert.h"
#include "base/histogram.h"
#include "base/parse.h"
#include "base/thread.h"
#include "bench/harness.h"
#include "io/clock.h"

enum { RUNS_DEFAULT = 9, RUNS_MAX = 101, QUICK_DIVISOR = 100 };

static struct {
    uint32_t runs;
    uint32_t divisor;
} settings = {RUNS_DEFAULT, 1};

static bool settings_parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        uint64_t runs;
        if (strcmp(argv[i], "--quick") == 0) {
            settings.divisor = QUICK_DIVISOR;
        } else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc &&
                   fw_parse_uint(argv[i + 1], strlen(argv[i + 1]), 1, RUNS_MAX, &runs) == 0) {
            settings.runs = (uint32_t)runs;
            i++;
        } else {
            (void)fprintf(stderr, "usage: %s [--runs N] [--quick]\n", argv[0]);
            return false;
        }
    }
    return true;
}

/* `name` took `ours` of `bar`. */
static int report(const char *name, double ratios[], const char *peer, double bar)
{
    struct fw_bench_summary summary;
    fw_bench_summarise(ratios, settings.runs, &summary);
    bool ok = summary.median <= bar;
    (void)printf("  ratio %.3f to %s, spread %.1f%%, bar %.2f: %s\n\n", summary.median, peer,
                 summary.spread * 100, bar, ok ? "ok" : "NOT MET");
    (void)printf("{\"bench\": \"%s\", \"ratio\": %.4f, \"better\": \"lower\", \"peer\": \"%s\", "
                 "\"bar\": %.4f, \"ok\": %s, \"runs\": %u, \"spread\": %.4f, \"quick\": %s}\n",
                 name, summary.median, peer, bar, ok ? "true" : "false", settings.runs,
                 summary.spread, settings.divisor > 1 ? "true" : "false");
    return ok || settings.divisor > 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static struct fw_domain *domain_make(const struct fw_fom_type *const types[], size_t count)
{
    struct fw_domain_config config = {.locality_count = 1,
                                      .bracket_limit = 128,
                                      .stall_ns = 100 * INT64_C(1000000000),
                                      .wait_min_ns = 100 * INT64_C(1000000000),
                                      .wait_max_ns = 100 * INT64_C(1000000000)};
    struct fw_domain *domain;
    int rc = fw_domain_create(&domain, &config);
    FW_ASSERT(rc == 0);
    for (size_t i = 0; i < count; i++) {
        rc = fw_domain_add_type(domain, types[i]);
        FW_ASSERT(rc == 0);
    }
    rc = fw_domain_start(domain);
    FW_ASSERT(rc == 0);
    return domain;
}

static struct fw_fom *fom_make(struct fw_domain *domain, const struct fw_fom_type *type)
{
    struct fw_fom *fom;
    int rc = fw_fom_create(&fom, domain, type, NULL);
    FW_ASSERT(rc == 0);
    return fom;
}

/* ---- parked -------------------------------------------------------------------------------- */

enum { PARKED = 1000 * 1000, PARKED_BYTES = 160, WATCH_MS = 1000, WORK = FW_PHASE_FIRST };

struct parked {
    struct fw_fom fom;
    struct fw_clink clink;
};

static struct fw_channel parked_channel;
static _Atomic uint32_t parked_count;
static atomic_bool parked_stop;

static enum fw_step parked_tick(struct fw_fom *fom)
{
    struct parked *self = FW_FOM_OF(fom, struct parked);
    fw_fom_arm(fom, &self->clink, &parked_channel);
    if (atomic_load(&parked_stop)) {
        return fw_fom_finish(fom);
    }
    atomic_fetch_add(&parked_count, 1);
    return fw_fom_wait(fom, WORK);
}

static const struct fw_phase work_phases[] = {
    {"WORK", FW_PHASE_BIT(FW_PHASE_FINISHED), false},
};

static const struct fw_fom_type parked_type = {
    .name = "parked",
    .size = sizeof(struct parked),
    .limit_count = PARKED,
    .phases = work_phases,
    .phase_count = 1,
    .tick = parked_tick,
};

/* Of the whole process, in bytes; the text of the program and libraries is in it before and after.
 */
static double resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    FW_ASSERT(file != NULL);
    unsigned long total;
    unsigned long resident;
    int got = fscanf(file, "%lu %lu", &total, &resident);
    FW_ASSERT(got == 2);
    (void)fclose(file);
    return (double)resident * 4096;
}

static double process_cpu_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void sleep_ms(int64_t ms)
{
    struct fw_parker parker;
    fw_parker_init(&parker);
    (void)fw_park_for(&parker, ms * FW_NS_PER_MS);
}

static int parked_main(void)
{
    uint32_t count = PARKED / settings.divisor;
    double ratios[RUNS_MAX];
    for (uint32_t run = 0; run < settings.runs; run++) {
        const struct fw_fom_type *types[] = {&parked_type};
        atomic_store(&parked_stop, false);
        atomic_store(&parked_count, 0);
        struct fw_domain *domain = domain_make(types, 1);
        fw_channel_init_shared(&parked_channel, domain);
        double before = resident_bytes();
        for (uint32_t i = 0; i < count; i++) {
            fw_fom_start(fom_make(domain, &parked_type));
        }
        while (atomic_load(&parked_count) < count) {
            sleep_ms(1);
        }
        double bytes = (resident_bytes() - before) / count;
        double cpu = process_cpu_ms();
        sleep_ms(WATCH_MS);
        cpu = process_cpu_ms() - cpu;
        (void)printf("  %u foms parked: %.1f bytes each; watching over them takes %.2f ms of CPU "
                     "per second\n",
                     count, bytes, cpu * 1000 / WATCH_MS);
        ratios[run] = bytes / PARKED_BYTES;
        atomic_store(&parked_stop, true);
        (void)fw_channel_broadcast(&parked_channel);
        (void)fw_domain_stop(domain, FW_NS_PER_S * INT64_C(60));
        fw_channel_fini(&parked_channel);
        fw_domain_destroy(domain);
    }
    return report("engine-parked", ratios, "the limit of 160 bytes", 1.0);
}

/* ---- blocked ------------------------------------------------------------------------------- */

enum { SLEEPERS = 100, OTHERS = 100, NAP_MS = 100, MEASURE_MS = 1000, TICK_LOOPS = 2000 };

static atomic_bool block_stop;
static int64_t block_sleep_ms;
static _Atomic uint32_t block_asleep;
static struct fw_histogram block_times;

struct other {
    struct fw_fom fom;
    int64_t began;
};

static enum fw_step other_tick(struct fw_fom *fom)
{
    struct other *self = FW_FOM_OF(fom, struct other);
    int64_t now = fw_clock_now_ns();
    if (self->began != 0) {
        fw_histogram_record(&block_times, (uint64_t)(now - self->began));
    }
    self->began = now;
    for (uint64_t i = 0; i < TICK_LOOPS; i++) {
        fw_bench_use(i);
    }
    return atomic_load(&block_stop) ? fw_fom_finish(fom) : fw_fom_yield(fom, WORK);
}

static enum fw_step sleeper_tick(struct fw_fom *fom)
{
    if (atomic_load(&block_stop)) {
        return fw_fom_finish(fom);
    }
    if (!fw_block_enter(fom)) {
        return fw_fom_wait(fom, WORK);
    }
    atomic_fetch_add(&block_asleep, 1);
    sleep_ms(block_sleep_ms);
    fw_block_leave(fom);
    return fw_fom_yield(fom, WORK);
}

static const struct fw_fom_type other_type = {
    .name = "other",
    .size = sizeof(struct other),
    .limit_count = OTHERS,
    .phases = work_phases,
    .phase_count = 1,
    .tick = other_tick,
};

static const struct fw_fom_type sleeper_type = {
    .name = "sleeper",
    .size = sizeof(struct fw_fom),
    .limit_count = SLEEPERS,
    .phases = work_phases,
    .phase_count = 1,
    .tick = sleeper_tick,
};

/* The p99 of a trip through the run-queue, in microseconds. */
static double block_measure(uint32_t sleepers, int64_t asleep_ms)
{
    const struct fw_fom_type *types[] = {&other_type, &sleeper_type};
    struct fw_domain *domain = domain_make(types, 2);
    atomic_store(&block_stop, false);
    block_sleep_ms = asleep_ms;
    atomic_store(&block_asleep, 0);
    fw_histogram_init(&block_times);
    for (uint32_t i = 0; i < sleepers; i++) {
        fw_fom_start(fom_make(domain, &sleeper_type));
    }
    while (atomic_load(&block_asleep) < sleepers) {
        sleep_ms(1);
    }
    for (uint32_t i = 0; i < OTHERS; i++) {
        fw_fom_start(fom_make(domain, &other_type));
    }
    sleep_ms(MEASURE_MS / settings.divisor);
    atomic_store(&block_stop, true);
    (void)fw_domain_stop(domain, FW_NS_PER_S * INT64_C(60));
    fw_domain_destroy(domain);
    return (double)fw_histogram_percentile(&block_times, 99) / 1000;
}

static int block_main(void)
{
    double ratios[RUNS_MAX];
    for (uint32_t run = 0; run < settings.runs; run++) {
        int64_t measure_ms = MEASURE_MS / settings.divisor;
        double without = block_measure(0, 0);
        double with = block_measure(SLEEPERS, 2 * measure_ms);
        double napping = block_measure(SLEEPERS, NAP_MS);
        (void)printf(
            "  p99 of the others' trip through the run-queue: %.0f us, with %d foms asleep "
            "in brackets %.0f us, coming and going %.0f us\n",
            without, SLEEPERS, with, napping);
        ratios[run] = with / without;
    }
    return report("engine-block", ratios, "nobody in a bracket", 1.2);
}

int main(int argc, char **argv)
{
    if (!settings_parse(argc, argv)) {
        return 2;
    }
    return strstr(argv[0], "block") != NULL ? block_main() : parked_main();
}
