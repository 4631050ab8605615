/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a small play on one core of the engine, by a clock that only its ticks move, and prints the
 * trace. test_trace_json.py knows the play, and when what must have happened.
 *
 *     the script   SETUP   100 ns  starts the others
 *                  SIGNAL 2000 ns  signals the channel "right"
 *                  LEAP  10 ms     passes the sleeper's deadline
 *                  TELL    50 ns   finishes
 *     the reader   READ   1000 ns  arms "left" and "right", waits in REST
 *                  REST    300 ns  leaves the mark "halfway", finishes
 *     the sleeper  NAP      10 ns  waits until 5 ms later, in WOKEN, on no channel
 *                  WOKEN    20 ns  enters a bracket until the laggard is gone, and 7 ns; finishes
 *     the laggard  LATE      5 ns  waits for what never comes, and is overdue; fails
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <fairway/engine.h>

#include "base/assert.h"
#include "base/base.h"
#include "base/thread.h"
#include "support/virtual_clock.h"

enum { FIRST = FW_PHASE_FIRST, SECOND, THIRD, FOURTH };
enum { MS = 1000 * 1000, ACTORS = 4 };

struct actor {
    struct fw_fom fom;
    struct fw_clink clinks[2];
};

static struct fw_domain *domain;
static struct fw_channel left;
static struct fw_channel right;
static struct fw_channel never;
static struct fw_parker laggard_gone;
static struct fw_parker all_gone;
static _Atomic uint32_t gone_count;

static void start(const struct fw_fom_type *type)
{
    struct fw_fom *fom;
    int rc = fw_fom_create(&fom, domain, type, NULL);
    FW_ASSERT(rc == 0);
    fw_fom_start(fom);
}

static enum fw_step reader_tick(struct fw_fom *fom)
{
    struct actor *actor = FW_FOM_OF(fom, struct actor);
    if (fom->phase == FIRST) {
        virtual_clock_advance(1000);
        fw_fom_arm(fom, &actor->clinks[0], &left);
        fw_fom_arm(fom, &actor->clinks[1], &right);
        return fw_fom_wait(fom, SECOND);
    }
    fw_fom_mark(fom, "halfway");
    virtual_clock_advance(300);
    return fw_fom_finish(fom);
}

static enum fw_step sleeper_tick(struct fw_fom *fom)
{
    if (fom->phase == FIRST) {
        virtual_clock_advance(10);
        return fw_fom_wait_until(fom, SECOND, fw_fom_now(fom) + INT64_C(5) * MS);
    }
    virtual_clock_advance(20);
    if (!fw_block_enter(fom)) {
        return fw_fom_wait(fom, SECOND);
    }
    fw_park(&laggard_gone);
    virtual_clock_advance(7);
    fw_block_leave(fom);
    return fw_fom_finish(fom);
}

static enum fw_step laggard_tick(struct fw_fom *fom)
{
    struct actor *actor = FW_FOM_OF(fom, struct actor);
    if (fom->phase == FW_PHASE_FAILED) {
        return fw_fom_finish(fom);
    }
    virtual_clock_advance(5);
    fw_fom_arm(fom, &actor->clinks[0], &never);
    return fw_fom_wait(fom, FIRST);
}

static void actor_finish(struct fw_fom *fom)
{
    if (fom->phase == FW_PHASE_FINISHED && fom->result != 0) {
        fw_unpark(&laggard_gone);
    }
    if (atomic_fetch_add(&gone_count, 1) + 1 == ACTORS) {
        fw_unpark(&all_gone);
    }
}

static const struct fw_phase reader_phases[] = {
    {"READ", FW_PHASE_BIT(SECOND), false},
    {"REST", FW_PHASE_BIT(FW_PHASE_FINISHED), true},
};
static const struct fw_phase sleeper_phases[] = {
    {"NAP", FW_PHASE_BIT(SECOND), false},
    {"WOKEN", FW_PHASE_BIT(FW_PHASE_FINISHED), false},
};
static const struct fw_phase laggard_phases[] = {{"LATE", 0, false}};
static const struct fw_phase script_phases[] = {
    {"SETUP", FW_PHASE_BIT(SECOND), false},
    {"SIGNAL", FW_PHASE_BIT(THIRD), false},
    {"LEAP", FW_PHASE_BIT(FOURTH), false},
    {"TELL", FW_PHASE_BIT(FW_PHASE_FINISHED), false},
};

#define TYPE(type_name, type_phases, type_tick)                                                    \
    {                                                                                              \
        .name = (type_name), .size = sizeof(struct actor), .limit_count = 4,                       \
        .phases = (type_phases), .phase_count = FW_ARRAY_LENGTH(type_phases), .tick = (type_tick), \
        .finish = actor_finish,                                                                    \
    }
static const struct fw_fom_type reader_type = TYPE("reader", reader_phases, reader_tick);
static const struct fw_fom_type sleeper_type = TYPE("sleeper", sleeper_phases, sleeper_tick);
static const struct fw_fom_type laggard_type = TYPE("laggard", laggard_phases, laggard_tick);

static enum fw_step script_tick(struct fw_fom *fom)
{
    switch (fom->phase) {
    case FIRST:
        virtual_clock_advance(100);
        fw_channel_init(&left);
        fw_channel_set_name(&left, "left");
        fw_channel_init_shared(&right, domain);
        fw_channel_set_name(&right, "right");
        fw_channel_init(&never);
        start(&reader_type);
        start(&sleeper_type);
        start(&laggard_type);
        return fw_fom_yield(fom, SECOND);
    case SECOND:
        virtual_clock_advance(2000);
        (void)fw_channel_signal(&right);
        return fw_fom_yield(fom, THIRD);
    case THIRD:
        virtual_clock_advance(INT64_C(10) * MS);
        return fw_fom_yield(fom, FOURTH);
    default:
        virtual_clock_advance(50);
        return fw_fom_finish(fom);
    }
}
static const struct fw_fom_type script_type = TYPE("script", script_phases, script_tick);

static int print(const char *bytes, size_t length, void *context)
{
    (void)context;
    return write(STDOUT_FILENO, bytes, length) == (ssize_t)length ? 0 : -1;
}

int main(void)
{
    virtual_clock_install();
    fw_parker_init(&laggard_gone);
    fw_parker_init(&all_gone);
    const struct fw_domain_config config = {
        .locality_count = 1,
        .wait_min_ns = INT64_C(9) * MS, /* The laggard is overdue when the script has leapt. */
        .wait_max_ns = INT64_C(9) * MS,
    };
    const struct fw_fom_type *const types[] = {&reader_type, &sleeper_type, &laggard_type,
                                               &script_type};
    int rc = fw_domain_create(&domain, &config);
    for (size_t i = 0; rc == 0 && i < FW_ARRAY_LENGTH(types); i++) {
        rc = fw_domain_add_type(domain, types[i]);
    }
    FW_ASSERT(rc == 0);
    FW_ASSERT(fw_domain_trace_write(domain, print, NULL) < 0); /* Nothing was traced. */
    rc = fw_domain_trace(domain, true);
    FW_ASSERT(rc == 0);
    rc = fw_domain_start(domain);
    FW_ASSERT(rc == 0);
    struct fw_fom *script;
    rc = fw_fom_create(&script, domain, &script_type, NULL);
    FW_ASSERT(rc == 0);
    fw_fom_start(script);
    fw_park(&all_gone);
    uint64_t killed = fw_domain_stop(domain, 0);
    FW_ASSERT(killed == 0);
    rc = fw_domain_trace_write(domain, print, NULL);
    FW_ASSERT(rc == 0);
    fw_domain_destroy(domain);
    return 0;
}
