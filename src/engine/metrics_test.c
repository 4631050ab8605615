/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the engine's metrics say what happened, and are among the server's; an observer sees every
 * fom without its type knowing. Method: a clock that only ticks and the observer move, so that
 * shares and delays are exact; trylock is wrapped, so that a lock is contended when the test says.
 */
#include "engine/metrics.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fairway/engine.h>

#include "base/mutex.h"
#include "base/thread.h"
#include "engine/core.h"
#include "support/virtual_clock.h"

enum { WORK = FW_PHASE_FIRST };
/* A round then lasts as long as rounds should, and has 64 ticks throughout; see run.c. */
enum { TICK_NS = 200, AROUND_NS = 100, BUSY_TICKS = 64 * 64 * 3, CROWD = 100, CROWD_TICKS = 5 };
enum { CROWD_WAITS_NS = 1000 * 1000 };

/* ---- a lock that has to be waited for ------------------------------------------------------ */

static _Atomic uint32_t contended;

bool __real_fw_mutex_trylock(struct fw_mutex *mutex);
bool __wrap_fw_mutex_trylock(struct fw_mutex *mutex);
bool __wrap_fw_mutex_trylock(struct fw_mutex *mutex)
{
    if (atomic_load(&contended) > 0) {
        atomic_fetch_sub(&contended, 1);
        return false;
    }
    return __real_fw_mutex_trylock(mutex);
}

/* ---- foms ---------------------------------------------------------------------------------- */

struct worker {
    struct fw_fom fom;
    uint32_t ticks;
};

static struct fw_domain *domain;
static struct fw_channel shared;
static struct fw_parker over;
static _Atomic uint32_t gone;
static _Atomic uint32_t gone_expected;
static _Atomic int64_t run_queue_max;

static void worker_finish(struct fw_fom *fom)
{
    (void)fom;
    if (atomic_fetch_add(&gone, 1) + 1 == atomic_load(&gone_expected)) {
        fw_unpark(&over);
    }
}

static enum fw_step busy_tick(struct fw_fom *fom)
{
    struct worker *worker = FW_FOM_OF(fom, struct worker);
    virtual_clock_advance(TICK_NS);
    return ++worker->ticks == BUSY_TICKS ? fw_fom_finish(fom) : fw_fom_yield(fom, WORK);
}

static enum fw_step one_tick(struct fw_fom *fom)
{
    struct worker *worker = FW_FOM_OF(fom, struct worker);
    int64_t length = fw_gauge_get(&domain->cores[0].metrics->run_queue);
    if (length > atomic_load(&run_queue_max)) {
        atomic_store(&run_queue_max, length);
    }
    return ++worker->ticks == CROWD_TICKS ? fw_fom_finish(fom) : fw_fom_yield(fom, WORK);
}

static const struct fw_phase phases[] = {{"WORK", FW_PHASE_BIT(FW_PHASE_FINISHED), false}};

#define TYPE(type_name, type_tick)                                                        \
    {                                                                                     \
        .name = (type_name), .size = sizeof(struct worker), .limit_count = CROWD + 1,     \
        .phases = phases, .phase_count = 1, .tick = (type_tick), .finish = worker_finish, \
    }
static const struct fw_fom_type busy_type = TYPE("busy", busy_tick);
static const struct fw_fom_type one_type = TYPE("one", one_tick);

static enum fw_step crowd_tick(struct fw_fom *fom)
{
    for (uint32_t i = 0; i < CROWD; i++) {
        struct fw_fom *made;
        assert_int_equal(fw_fom_create(&made, domain, &one_type, NULL), 0);
        fw_fom_start(made);
    }
    virtual_clock_advance(CROWD_WAITS_NS);
    return fw_fom_finish(fom);
}
static const struct fw_fom_type crowd_type = TYPE("crowd", crowd_tick);

static enum fw_step signal_tick(struct fw_fom *fom)
{
    (void)fw_channel_signal(&shared);
    return fw_fom_finish(fom);
}
static const struct fw_fom_type signal_type = TYPE("signal", signal_tick);

static void domain_begin(const struct fw_domain_config *config)
{
    const struct fw_fom_type *const types[] = {&busy_type, &one_type, &crowd_type, &signal_type};
    assert_int_equal(fw_domain_create(&domain, config), 0);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(types); i++) {
        assert_int_equal(fw_domain_add_type(domain, types[i]), 0);
    }
    fw_parker_init(&over);
    atomic_store(&gone, 0);
    atomic_store(&contended, 0);
    assert_int_equal(fw_domain_start(domain), 0);
}

/* Runs one fom of the type, until `count` are gone. */
static void run(const struct fw_fom_type *type, uint32_t count)
{
    struct fw_fom *fom;
    atomic_store(&gone_expected, atomic_load(&gone) + count);
    assert_int_equal(fw_fom_create(&fom, domain, type, NULL), 0);
    fw_fom_start(fom);
    fw_park(&over);
}

static void domain_end(void)
{
    assert_int_equal(fw_domain_stop(domain, INT64_MAX / 2), 0);
    fw_domain_destroy(domain);
}

/* ---- tests --------------------------------------------------------------------------------- */

static void around_tick(struct fw_fom *fom, void **cross_cut)
{
    (void)fom;
    (void)cross_cut;
    virtual_clock_advance(AROUND_NS);
}

static void test_overhead(void **state)
{
    (void)state;
    const struct fw_domain_config config = {.locality_count = 1,
                                            .observer = {.tick_begins = around_tick}};
    domain_begin(&config);
    const struct fw_metrics_engine *metrics = domain->cores[0].metrics;
    while (fw_counter_get(&metrics->sleeps) == 0) {
    }
    virtual_clock_advance(FW_NS_PER_S); /* The first round is measured, but not its sleep. */
    run(&busy_type, 1);
    assert_int_equal(fw_domain_stop(domain, INT64_MAX / 2), 0);
    uint64_t all = fw_counter_get(&metrics->sampled_cycles);
    uint64_t in_ticks = fw_counter_get(&metrics->sampled_tick_cycles);
    /* At least one round of 64 ticks of this fom was measured; rounds may also have been idle. */
    assert_true(in_ticks >= (uint64_t)60 * TICK_NS);
    assert_true(in_ticks < (uint64_t)BUSY_TICKS * TICK_NS / 8);
    /* The three standard phases take no time of their own, but the observer's; so may an end. */
    assert_in_range(all - in_ticks, in_ticks / 2, in_ticks / 2 + (uint64_t)4 * AROUND_NS);
    fw_domain_destroy(domain);
}

static void test_delays_and_lengths(void **state)
{
    (void)state;
    const struct fw_domain_config config = {.locality_count = 1};
    domain_begin(&config);
    const struct fw_metrics_engine *metrics = domain->cores[0].metrics;
    atomic_store(&run_queue_max, 0);
    run(&crowd_type, 1 + CROWD);
    assert_int_equal(fw_histogram_count(&metrics->first_tick), 1 + CROWD);
    /* The round in which the crowd was made ends early, being that long; who is left has waited. */
    assert_in_range(fw_histogram_max(&metrics->first_tick), CROWD_WAITS_NS / 2, 2 * CROWD_WAITS_NS);
    assert_in_range(atomic_load(&run_queue_max), CROWD - 1, CROWD);
    run(&busy_type, 1);
    /* Each visit of a measured round is one, and at least one full round was. */
    assert_in_range(fw_histogram_count(&metrics->ready_delay), 60, BUSY_TICKS / 8);
    assert_int_equal(fw_domain_stop(domain, INT64_MAX / 2), 0);
    assert_int_equal(fw_gauge_get(&metrics->run_queue), 0);
    int64_t live = fw_gauge_get(&metrics->foms_live) + fw_gauge_get(&domain->metrics->foms_live);
    assert_int_equal(live, 0);
    assert_int_equal(fw_gauge_get(&domain->metrics->foms_live), 2);
    fw_domain_destroy(domain);
}

static void test_wake_latency(void **state)
{
    (void)state;
    const struct fw_domain_config config = {.locality_count = 1};
    domain_begin(&config);
    const struct fw_metrics_engine *metrics = domain->cores[0].metrics;
    for (uint64_t i = 0; i < 5; i++) {
        while (fw_counter_get(&metrics->sleeps) < i + 1) {
        } /* Counted when its bell is armed, and nothing but us can end this sleep. */
        run(&one_type, 1);
    }
    assert_int_equal(fw_domain_stop(domain, INT64_MAX / 2), 0);
    assert_int_equal(fw_histogram_count(&metrics->wake_latency), 5);
    assert_int_equal(fw_histogram_max(&metrics->wake_latency), 0); /* The clock stood still. */
    fw_domain_destroy(domain);
}

static void test_lock_contention(void **state)
{
    (void)state;
    const struct fw_domain_config config = {.locality_count = 1};
    domain_begin(&config);
    const struct fw_metrics_engine *metrics = domain->cores[0].metrics;
    fw_channel_init_shared(&shared, domain);
    run(&signal_type, 1);
    (void)fw_channel_signal(&shared);
    assert_int_equal(fw_counter_get(&metrics->lock_waits), 0);
    assert_int_equal(fw_counter_get(&domain->metrics->lock_waits), 0);
    atomic_store(&contended, 1); /* By a thread without a turn. */
    (void)fw_channel_signal(&shared);
    assert_int_equal(fw_counter_get(&domain->metrics->lock_waits), 1);
    atomic_store(&contended, 1); /* From a tick. */
    run(&signal_type, 1);
    assert_int_equal(fw_counter_get(&metrics->lock_waits), 1);
    assert_int_equal(fw_histogram_count(&metrics->lock_wait), 1);
    assert_int_equal(fw_counter_get(&domain->metrics->lock_waits), 1);
    fw_channel_fini(&shared);
    domain_end();
}

struct found {
    uint64_t first_ticks;
    uint32_t count;
};

static void find(const struct fw_metric_value *value, void *context)
{
    struct found *found = context;
    found->count++;
    if (strcmp(value->name, "engine_first_tick") == 0) {
        found->first_ticks = fw_histogram_count(value->histogram);
    }
}

static void test_registered(void **state)
{
    (void)state;
    struct fw_metrics *registry = calloc(1, sizeof *registry);
    assert_non_null(registry);
    fw_metrics_init(registry);
    const struct fw_domain_config config = {.locality_count = 2, .metrics = registry};
    domain_begin(&config);
    run(&one_type, 1);
    struct found found = {.count = 0};
    fw_metrics_visit(registry, find, &found);
    assert_int_equal(found.count, fw_engine_metric_table.row_count);
    assert_int_equal(found.first_ticks, 1);
    domain_end();
    found = (struct found){.count = 0};
    fw_metrics_visit(registry, find, &found); /* What was counted stays when the domain goes. */
    assert_int_equal(found.first_ticks, 1);
    fw_metrics_fini(registry);
    free(registry);
}

/* ---- an observer --------------------------------------------------------------------------- */

struct seen {
    uint32_t begun;
    uint32_t ended;
    uint32_t phases;
    uint8_t phase;
};

static _Atomic uint32_t seen_created;
static _Atomic uint32_t seen_finished;
static _Atomic uint32_t seen_ticks;

static void seen_create(struct fw_fom *fom, void **cross_cut)
{
    struct seen *seen = calloc(1, sizeof *seen);
    assert_non_null(seen);
    assert_null(*cross_cut);
    assert_int_equal(fom->phase, FW_PHASE_INITIALISE);
    seen->phase = fom->phase;
    *cross_cut = seen;
    atomic_fetch_add(&seen_created, 1);
}

static void seen_begin(struct fw_fom *fom, void **cross_cut)
{
    struct seen *seen = *cross_cut;
    assert_int_equal(seen->begun, seen->ended);
    seen->begun++;
    seen->phases += fom->phase != seen->phase;
    seen->phase = fom->phase;
}

static void seen_end(struct fw_fom *fom, void **cross_cut, enum fw_step step)
{
    struct seen *seen = *cross_cut;
    seen->ended++;
    assert_int_equal(seen->begun, seen->ended);
    assert_int_equal(fom->phase, seen->phase);
    assert_int_equal(step,
                     fom->phase == WORK && fom->next_phase == WORK ? FW_STEP_YIELD : FW_STEP_AGAIN);
}

static void seen_finish(struct fw_fom *fom, void **cross_cut)
{
    struct seen *seen = *cross_cut;
    assert_int_equal(fom->phase, FW_PHASE_FINISHED);
    assert_int_equal(seen->phases, 3); /* Of INITIALISE to WORK. */
    atomic_fetch_add(&seen_ticks, seen->ended);
    atomic_fetch_add(&seen_finished, 1);
    free(seen);
}

static void test_observer(void **state)
{
    (void)state;
    const struct fw_domain_config config = {
        .locality_count = 1,
        .observer = {.created = seen_create,
                     .tick_begins = seen_begin,
                     .tick_ended = seen_end,
                     .finished = seen_finish},
    };
    domain_begin(&config);
    run(&crowd_type, 1 + CROWD);
    domain_end();
    assert_int_equal(atomic_load(&seen_created), 1 + CROWD);
    assert_int_equal(atomic_load(&seen_finished), 1 + CROWD);
    /* Three standard phases of each, and what the types do. */
    assert_int_equal(atomic_load(&seen_ticks), 3 * (1 + CROWD) + 1 + CROWD * CROWD_TICKS);
}

int main(void)
{
    virtual_clock_install();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overhead),     cmocka_unit_test(test_delays_and_lengths),
        cmocka_unit_test(test_wake_latency), cmocka_unit_test(test_lock_contention),
        cmocka_unit_test(test_registered),   cmocka_unit_test(test_observer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
