/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine without threads: the test itself has each core's turn, one after the other, and runs it
 * round by round, by a clock that it sets. So what happens when is the test's to say, to the tick.
 *
 *     struct by_hand hand;
 *     by_hand_begin(&hand, &(struct fw_domain_config){.locality_count = 2}, &type);
 *     struct fw_fom *fom = by_hand_start(&hand, &type, 0);
 *     by_hand_round(&hand, 0);          one round of core 0: timers, mail, ticks
 *     by_hand_clock_ns += 1000;
 *     by_hand_end(&hand);               drains, runs rounds until all foms are gone, destroys
 *
 * A core is told to exit before each round, which the loop notices at the round's end: the rounds
 * are those of run.c and nothing is imitated.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <fairway/engine.h>
#include <fairway/log.h>

#include "base/thread.h"
#include "engine/core.h"
#include "io/clock.h"

enum { BY_HAND_CORES_MAX = 4 };

struct by_hand {
    struct fw_domain *domain;
    struct fw_handler handlers[BY_HAND_CORES_MAX];
};

FW_LOG_MODULE_USE(engine);

static int64_t by_hand_clock_ns;

static int64_t by_hand_now(void)
{
    return by_hand_clock_ns;
}

static const struct fw_clock_hooks by_hand_clock = {.now_ns = by_hand_now, .wall_ns = by_hand_now};

/* The test is on core `index`'s turn, or with -1 on nobody's. */
static void by_hand_turn(struct by_hand *hand, int index)
{
    fw_thread_self()->turn = index < 0 ? NULL : &hand->domain->cores[index];
    fw_thread_self()->handler = index < 0 ? NULL : &hand->handlers[index];
}

static void by_hand_begin(struct by_hand *hand, const struct fw_domain_config *config,
                          const struct fw_fom_type *type)
{
    memset(hand, 0, sizeof *hand);
    by_hand_clock_ns = FW_NS_PER_S;
    fw_clock_hooks = &by_hand_clock;
    atomic_store(&fw_log_module_engine.level, -1); /* The tests do wrong on purpose. */
    assert_int_equal(fw_domain_create(&hand->domain, config), 0);
    assert_true(hand->domain->core_count <= BY_HAND_CORES_MAX);
    assert_int_equal(fw_domain_add_type(hand->domain, type), 0);
    atomic_store(&hand->domain->state, FW_DOMAIN_NORMAL);
    for (uint32_t i = 0; i < hand->domain->core_count; i++) {
        struct fw_core *core = &hand->domain->cores[i];
        hand->handlers[i].core = core;
        core->holder = &hand->handlers[i];
        fw_participant_attach(&hand->handlers[i].safety, hand->domain);
        fw_safety_online(&hand->handlers[i].safety);
    }
}

static void by_hand_round(struct by_hand *hand, int index)
{
    struct fw_core *core = &hand->domain->cores[index];
    by_hand_turn(hand, index);
    atomic_store(&core->must_exit, true);
    fw_core_run(core, &hand->handlers[index]);
    atomic_store(&core->must_exit, false);
    by_hand_turn(hand, -1);
}

/* A fom of the core's locality, made by someone without a turn. */
static struct fw_fom *by_hand_create(struct by_hand *hand, const struct fw_fom_type *type,
                                     uint32_t locality)
{
    struct fw_fom *fom = NULL;
    int rc = fw_fom_create(&fom, hand->domain, type, fw_domain_locality(hand->domain, locality));
    assert_int_equal(rc, 0);
    return fom;
}

static struct fw_fom *by_hand_start(struct by_hand *hand, const struct fw_fom_type *type,
                                    uint32_t locality)
{
    struct fw_fom *fom = by_hand_create(hand, type, locality);
    fw_fom_start(fom);
    return fom;
}

static int64_t by_hand_live(const struct by_hand *hand)
{
    int64_t count = atomic_load(&hand->domain->live_count);
    for (uint32_t i = 0; i < hand->domain->core_count; i++) {
        count += atomic_load(&hand->domain->cores[i].live_count);
    }
    return count;
}

/* Rounds of all cores, until all foms are gone or `limit` is reached. */
static void by_hand_run(struct by_hand *hand, int limit)
{
    for (int i = 0; i < limit && by_hand_live(hand) > 0; i++) {
        for (uint32_t core = 0; core < hand->domain->core_count; core++) {
            by_hand_round(hand, (int)core);
        }
    }
}

static void by_hand_end(struct by_hand *hand)
{
    fw_domain_drain(hand->domain);
    by_hand_run(hand, 1000);
    assert_int_equal(by_hand_live(hand), 0);
    for (uint32_t i = 0; i < hand->domain->core_count; i++) {
        hand->domain->cores[i].holder = NULL;
        fw_safety_offline(&hand->handlers[i].safety);
        fw_participant_detach(&hand->handlers[i].safety);
    }
    assert_int_equal(fw_domain_stop(hand->domain, 0), 0);
    fw_domain_destroy(hand->domain);
    fw_clock_hooks = NULL;
}
