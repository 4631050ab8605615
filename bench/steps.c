/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long the longest step takes that the table does on behalf of all, while 10,000,000 items are
 * loaded: a store, which may split buckets or clean; a sweep over as many buckets as the sweeper
 * takes at once; and the making of a huge page, which is the sweeper's alone. Thread CPU time, in
 * microseconds; the clock itself takes a part of one. Interrupts, and what the machine under this
 * one takes, are in there too: so a step that does nothing but hash is the control. Of the steps
 * beyond the limit those are told apart in which the thread lost its processor, which charges it
 * for the switch and for caches that others have filled, and those in which the kernel had to find
 * a page, for which a machine under this one may have to find one first.
 *
 * A second table of a tenth of the memory is full all the time, so that its stores clean.
 *
 * Exit status 1: the other steps beyond the limit are more than three times as many, for the time
 * they took in all, as the control's.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/assert.h"
#include "base/hash.h"
#include "cache/table.h"

enum {
    KEY_LENGTH = 16,
    VALUE_LENGTH = 32,
    SWEEP_BUCKETS = 8, /* As server/sweeper.c. */
    SWEEP_EVERY = 1000,
    COLLAPSE_EVERY = 50000,
    TENTHS_MAX = 100000, /* Of a microsecond: of the longest step that is told from others. */
    LIMIT_US = 100,
};

#define ITEMS  UINT64_C(10000000)
#define MEMORY (UINT64_C(2) << 30)

struct steps {
    const char *name;
    uint64_t count;
    uint64_t ns;
    uint64_t beyond;          /* The limit: all, */
    uint64_t beyond_switched; /* those with a switch, */
    uint64_t beyond_faulted;  /* and of the others those with a fault. */
    uint64_t tenths[TENTHS_MAX + 1];
};

static uint64_t cpu_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

struct step {
    long switches, faults;
    uint64_t begin_ns;
};

static struct step step_begin(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_THREAD, &usage);
    return (struct step){usage.ru_nivcsw, usage.ru_minflt, cpu_ns()};
}

static void step_end(const struct step *step, struct steps *steps)
{
    uint64_t ns = cpu_ns() - step->begin_ns;
    uint64_t tenths = ns / 100;
    steps->count++;
    steps->ns += ns;
    steps->tenths[tenths < TENTHS_MAX ? tenths : TENTHS_MAX]++;
    if (ns > UINT64_C(1000) * LIMIT_US) {
        struct rusage usage;
        (void)getrusage(RUSAGE_THREAD, &usage);
        bool is_switched = usage.ru_nivcsw != step->switches;
        steps->beyond++;
        steps->beyond_switched += is_switched ? 1 : 0;
        steps->beyond_faulted += !is_switched && usage.ru_minflt != step->faults ? 1 : 0;
    }
}

/* The shortest time, in microseconds, that `share` of the steps do not exceed. */
static double steps_quantile(const struct steps *steps, double share)
{
    uint64_t wanted = (uint64_t)((double)steps->count * share);
    uint64_t sum = 0;
    for (uint64_t i = 0; i <= TENTHS_MAX; i++) {
        sum += steps->tenths[i];
        if (sum >= wanted && sum > 0) {
            return (double)i / 10;
        }
    }
    return (double)TENTHS_MAX / 10;
}

static uint64_t steps_long(const struct steps *steps)
{
    return steps->beyond - steps->beyond_switched - steps->beyond_faulted;
}

static void steps_print(const struct steps *steps)
{
    printf("%-22s %10" PRIu64 " steps, us: p50 %6.1f  p99.99 %6.1f  max %7.1f  beyond %d: %" PRIu64
           ", with a switch %" PRIu64 ", with a fault %" PRIu64 ", others %" PRIu64 "\n",
           steps->name, steps->count, steps_quantile(steps, 0.5), steps_quantile(steps, 0.9999),
           steps_quantile(steps, 1), LIMIT_US, steps->beyond, steps->beyond_switched,
           steps->beyond_faulted, steps_long(steps));
}

static struct fw_table *table_make(uint64_t memory, struct fw_table_local **local)
{
    struct fw_table *table;
    struct fw_table_config config = {.memory = memory, .is_evicting = true, .seed = 11};
    int rc = fw_table_create(&table, &config, NULL);
    FW_ASSERT(rc == 0);
    rc = fw_table_local_create(local, table);
    FW_ASSERT(rc == 0);
    return table;
}

static void store(struct fw_table_local *local, uint64_t number, struct steps *steps)
{
    char text[KEY_LENGTH + 1];
    (void)snprintf(text, sizeof text, "%016" PRIu64, number);
    struct fw_key key = fw_table_key(local, text, KEY_LENGTH);
    struct fw_hold hold;
    struct step step = step_begin();
    bool can = fw_table_reserve(local, fw_item_size(KEY_LENGTH, VALUE_LENGTH, 0));
    FW_ASSERT(can);
    fw_table_hold(local, &hold, &key);
    memset(fw_item_value(fw_hold_write(&hold, VALUE_LENGTH, 0, NULL)), 'v', VALUE_LENGTH);
    fw_hold_release(&hold);
    step_end(&step, steps);
}

static void control_step(struct steps *steps)
{
    static char bytes[4096];
    struct step step = step_begin();
    bytes[0] = (char)fw_hash(bytes, sizeof bytes, steps->count);
    step_end(&step, steps);
}

/* Beyond the limit more often than the machine's noise explains? */
static bool steps_are_long(const struct steps *steps, const struct steps *control)
{
    double noise = (double)(steps_long(control) + 1) / (double)control->ns;
    return (double)steps_long(steps) > 2 + 3 * noise * (double)steps->ns;
}

int main(void)
{
    static struct steps growing = {.name = "store, table grows"};
    static struct steps cleaning = {.name = "store, table is full"};
    static struct steps control = {.name = "control: a hash"};
    static struct steps sweeps = {.name = "sweep of 8 buckets"};
    static struct steps collapses = {.name = "one huge page"};
    struct fw_table_local *local;
    struct fw_table_local *sweeper;
    struct fw_table_local *small;
    struct fw_table *table = table_make(MEMORY, &local);
    struct fw_table *full = table_make(MEMORY / 20, &small);
    int rc = fw_table_local_create(&sweeper, table);
    FW_ASSERT(rc == 0);
    uint64_t cursor = 0;
    for (uint64_t i = 0; i < ITEMS; i++) {
        store(local, i, &growing);
        store(small, i, &cleaning);
        control_step(&control);
        if (i % SWEEP_EVERY == 0) {
            struct step step = step_begin();
            (void)fw_table_sweep(sweeper, &cursor, SWEEP_BUCKETS, true);
            step_end(&step, &sweeps);
        }
        if (i % COLLAPSE_EVERY == 0) {
            struct step step = step_begin();
            (void)fw_table_collapse(table);
            step_end(&step, &collapses);
        }
    }
    steps_print(&control);
    steps_print(&growing);
    steps_print(&cleaning);
    steps_print(&sweeps);
    steps_print(&collapses);
    fw_table_local_destroy(sweeper);
    fw_table_local_destroy(local);
    fw_table_local_destroy(small);
    fw_table_destroy(full);
    fw_table_destroy(table);
    bool is_long = steps_are_long(&growing, &control) || steps_are_long(&cleaning, &control) ||
                   steps_are_long(&sweeps, &control);
    return is_long ? 1 : 0;
}
