/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a domain goes from INIT to STOP by way of NORMAL and DRAIN whatever its foms are doing at
 * the time; new work is refused with -ESHUTDOWN from the drain on; every fom ends, once; nothing is
 * left of them or of a start that failed. While it runs, no fom is run by two threads at once.
 * Method: real threads, and foms of all kinds: some wait patiently, some for what comes or never
 * does, some block in brackets, some were created and not started. Under ASan this shows leaks,
 * under TSan accesses that nothing orders.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <fairway/engine.h>
#include <fairway/log.h>

#include "base/base.h"
#include "base/thread.h"
#include "engine/core.h"
#include "io/clock.h"
#include "support/fail_memory.h"

FW_LOG_MODULE_USE(engine);

enum { PHASE_PATIENT = FW_PHASE_FIRST, PHASE_LIMITED, PHASE_BRACKET, PHASE_BUSY };
#define END FW_PHASE_BIT(FW_PHASE_FINISHED)

static const struct fw_phase phases[] = {
    {"PATIENT",
     FW_PHASE_BIT(PHASE_LIMITED) | FW_PHASE_BIT(PHASE_BRACKET) | FW_PHASE_BIT(PHASE_BUSY) | END,
     true},
    {"LIMITED", END, false},
    {"BRACKET", END, false},
    {"BUSY", FW_PHASE_BIT(PHASE_PATIENT) | END, false},
};

struct subject {
    struct fw_fom fom;
    struct fw_clink clink;
    void *memory;
    unsigned kind; /* One of the phases. */
    atomic_bool is_inside;
    uint32_t count; /* Of ticks; not atomic, for TSan to see that no two run at once. */
};

static struct fw_domain *domain;
static struct fw_channel channel;
static _Atomic uint32_t started, finished, shut_down;
static int pipe_ends[2];
static struct fw_parker arrived; /* Somebody is inside a bracket. */

static int subject_initialise(struct fw_fom *fom)
{
    FW_FOM_OF(fom, struct subject)->memory = malloc(64);
    return 0;
}

static enum fw_step subject_block(struct fw_fom *fom)
{
    if (!fw_block_enter(fom)) {
        return fw_fom_wait(fom, PHASE_BRACKET);
    }
    fw_unpark(&arrived);
    char byte;
    ssize_t got = read(pipe_ends[0], &byte, 1);
    fw_block_leave(fom);
    return got == 1 ? fw_fom_finish(fom) : fw_fom_fail(fom, -EIO);
}

static enum fw_step subject_step(struct subject *self)
{
    struct fw_fom *fom = &self->fom;
    switch (fom->phase) {
    case FW_PHASE_FAILED:
        if (fom->result == -ESHUTDOWN) {
            atomic_fetch_add(&shut_down, 1);
        }
        return fw_fom_finish(fom);
    case PHASE_PATIENT:
        fw_fom_arm(fom, &self->clink, &channel);
        return self->kind == PHASE_PATIENT ? fw_fom_wait(fom, PHASE_PATIENT)
                                           : fw_fom_goto(fom, self->kind);
    case PHASE_LIMITED:
        fw_fom_arm(fom, &self->clink, &channel);
        return fw_fom_wait(fom, PHASE_LIMITED);
    case PHASE_BRACKET:
        return subject_block(fom);
    default:
        return self->count < 100 ? fw_fom_yield(fom, PHASE_BUSY) : fw_fom_finish(fom);
    }
}

static enum fw_step subject_tick(struct fw_fom *fom)
{
    struct subject *self = FW_FOM_OF(fom, struct subject);
    assert_false(atomic_exchange(&self->is_inside, true));
    self->count++;
    enum fw_step step = subject_step(self);
    atomic_store(&self->is_inside, false);
    return step;
}

static void subject_finish(struct fw_fom *fom)
{
    free(FW_FOM_OF(fom, struct subject)->memory);
    atomic_fetch_add(&finished, 1);
}

static const struct fw_fom_type subject_type = {
    .name = "subject",
    .size = sizeof(struct subject),
    .limit_count = 1000,
    .phases = phases,
    .phase_count = FW_ARRAY_LENGTH(phases),
    .initialise = subject_initialise,
    .tick = subject_tick,
    .finish = subject_finish,
};

static void domain_make(uint32_t localities, uint32_t cores)
{
    /* Nobody waits for too long here, however little the machine lets us run. */
    struct fw_domain_config config = {.locality_count = localities,
                                      .cores_per_locality = cores,
                                      .bracket_limit = 4,
                                      .wait_min_ns = 3600 * (int64_t)FW_NS_PER_S,
                                      .wait_max_ns = 3600 * (int64_t)FW_NS_PER_S};
    atomic_store(&fw_log_module_engine.level, -1); /* The tests do wrong on purpose. */
    assert_int_equal(fw_domain_create(&domain, &config), 0);
    assert_int_equal(fw_domain_add_type(domain, &subject_type), 0);
    fw_channel_init_shared(&channel, domain);
    atomic_store(&started, 0);
    atomic_store(&finished, 0);
    atomic_store(&shut_down, 0);
    fw_parker_init(&arrived);
    assert_int_equal(pipe(pipe_ends), 0);
}

static void domain_unmake(void)
{
    fw_channel_fini(&channel);
    fw_domain_destroy(domain);
    (void)close(pipe_ends[0]);
    (void)close(pipe_ends[1]);
}

static struct fw_fom *subject_create(unsigned kind, uint32_t key)
{
    struct fw_fom *fom = NULL;
    struct fw_locality *home = fw_domain_home_by_key(domain, key);
    int rc = fw_fom_create(&fom, domain, &subject_type, home);
    assert_int_equal(rc, 0);
    FW_FOM_OF(fom, struct subject)->kind = kind;
    return fom;
}

static void subject_start(unsigned kind, uint32_t key)
{
    atomic_fetch_add(&started, 1);
    fw_fom_start(subject_create(kind, key));
}

/* ---- states ---- */

static void expect_refusal(void)
{
    struct fw_fom *fom = NULL;
    int rc = fw_fom_create(&fom, domain, &subject_type, fw_domain_locality(domain, 0));
    assert_int_equal(rc, -ESHUTDOWN);
    assert_null(fom);
}

static void test_states(void **state)
{
    (void)state;
    domain_make(1, 1);
    expect_refusal(); /* In INIT. */
    domain_unmake();

    domain_make(1, 1);
    assert_int_equal(fw_domain_stop(domain, 0), 0);
    expect_refusal();
    domain_unmake();

    domain_make(2, 1);
    assert_int_equal(fw_domain_start(domain), 0);
    expect_assert_failure(fw_domain_destroy(domain));
    expect_assert_failure(assert_int_equal(fw_domain_add_type(domain, &subject_type), 0));
    expect_assert_failure(assert_int_equal(fw_domain_start(domain), 0));
    struct fw_fom *fom = subject_create(PHASE_PATIENT, 0);
    fw_domain_drain(domain);
    expect_refusal();
    fw_domain_drain(domain); /* Once is enough, twice no harm. */
    expect_refusal();
    expect_assert_failure(fw_domain_destroy(domain));
    fw_fom_discard(fom);
    assert_int_equal(fw_domain_stop(domain, FW_NS_PER_S), 0);
    expect_refusal();
    domain_unmake();
}

static void test_localities(void **state)
{
    (void)state;
    domain_make(3, 2);
    assert_int_equal(fw_domain_locality_count(domain), 3);
    assert_non_null(fw_domain_locality(domain, 2));
    assert_null(fw_domain_locality(domain, 3));
    domain_unmake();
    struct fw_domain *none = NULL;
    struct fw_domain_config config = {.locality_count = FW_CORES_MAX, .cores_per_locality = 2};
    assert_int_equal(fw_domain_create(&none, &config), -EINVAL);
    config.locality_count = UINT32_MAX;
    config.cores_per_locality = UINT32_MAX;
    assert_int_equal(fw_domain_create(&none, &config), -EINVAL);
}

/* ---- without memory ---- */

static void test_no_memory(void **state)
{
    (void)state;
    atomic_store(&fw_log_module_engine.level, -1);
    struct fw_domain_config config = {.locality_count = 2};
    int failures = 0;
    int rc = -ENOMEM;
    for (int i = 0; i < 40; i++) { /* Beyond the last; one or the other it may do without. */
        fail_memory_after(i);
        rc = fw_domain_create(&domain, &config);
        fail_memory_after(INT32_MAX);
        assert_true(rc == 0 || rc == -ENOMEM);
        failures += rc != 0;
        if (rc == 0) {
            fw_domain_destroy(domain);
        }
    }
    assert_true(failures >= 10);
    assert_int_equal(fw_domain_create(&domain, &config), 0);
    assert_int_equal(fw_domain_add_type(domain, &subject_type), 0);
    /* A start that fails, at the first thread or the second, leaves the domain in INIT. */
    for (int i = 0; i < 2; i++) {
        fail_memory_after(i);
        assert_int_equal(fw_domain_start(domain), -ENOMEM);
        expect_refusal();
    }
    fail_memory_after(INT32_MAX);
    assert_int_equal(fw_domain_start(domain), 0);
    struct fw_fom *fom = NULL;
    fail_memory_after(0);
    rc = fw_fom_create(&fom, domain, &subject_type, fw_domain_locality(domain, 0));
    fail_memory_after(INT32_MAX);
    assert_int_equal(rc, -ENOMEM);
    assert_int_equal(fw_domain_stop(domain, 0), 0);
    fw_domain_destroy(domain);
}

/* ---- foms of all kinds at the end ---- */

static void let_through(int count)
{
    for (int i = 0; i < count; i++) {
        assert_int_equal(write(pipe_ends[1], "x", 1), 1);
    }
}

static void test_drain_ends_patient_foms(void **state)
{
    (void)state;
    domain_make(2, 1);
    assert_int_equal(fw_domain_start(domain), 0);
    for (uint32_t i = 0; i < 100; i++) {
        subject_start(PHASE_PATIENT, i);
    }
    struct fw_fom *late = subject_create(PHASE_PATIENT, 7);
    fw_domain_drain(domain);
    fw_fom_start(late); /* It was made in time, and fails as soon as it would wait. */
    assert_int_equal(fw_domain_stop(domain, INT64_MAX), 0);
    assert_int_equal(atomic_load(&finished), 101);
    assert_int_equal(atomic_load(&shut_down), 101);
    domain_unmake();
}

/* Lets those in brackets go on when the grace is over. */
static void relieve(void *argument)
{
    const int *count = argument;
    while (!atomic_load(&domain->is_killing)) {
        (void)sched_yield();
    }
    let_through(*count);
}

static void test_grace_ends_others(void **state)
{
    (void)state;
    domain_make(2, 1);
    assert_int_equal(fw_domain_start(domain), 0);
    for (uint32_t i = 0; i < 10; i++) {
        subject_start(PHASE_LIMITED, i);
    }
    subject_start(PHASE_BRACKET, 0);
    fw_park(&arrived);
    int blocked = 1;
    struct fw_thread thread;
    assert_int_equal(fw_thread_create(&thread, "relief", relieve, &blocked), 0);
    /* Ten are failed. The one in its bracket is not: it comes back and ends by itself. */
    uint64_t failed = fw_domain_stop(domain, 0);
    fw_thread_join(&thread);
    assert_int_equal(atomic_load(&finished), 11);
    assert_int_equal(atomic_load(&shut_down), 10);
    assert_int_equal(failed, 10);
    domain_unmake();
}

static void cycle(uint32_t number)
{
    domain_make(1 + number % 3, 1 + number % 2);
    assert_int_equal(fw_domain_start(domain), 0);
    struct fw_fom *created[4];
    for (uint32_t i = 0; i < 4; i++) {
        created[i] = subject_create(PHASE_BUSY, i);
    }
    for (uint32_t i = 0; i < 20; i++) {
        subject_start(PHASE_PATIENT + (i + number) % 4, i);
    }
    let_through(5);
    if (number % 2 == 0) {
        fw_domain_drain(domain);
    }
    (void)fw_channel_signal(&channel);
    for (uint32_t i = 0; i < 4; i++) {
        if ((i + number) % 2 == 0) {
            atomic_fetch_add(&started, 1);
            fw_fom_start(created[i]);
        } else {
            fw_fom_discard(created[i]);
        }
    }
    uint64_t failed = fw_domain_stop(domain, number % 4 == 0 ? 0 : FW_NS_PER_MS);
    assert_int_equal(atomic_load(&finished), atomic_load(&started));
    assert_true(failed <= atomic_load(&shut_down));
    domain_unmake();
}

static void test_cycles(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < (FW_TSAN ? 100 : 1000); i++) {
        cycle(i);
    }
}

/* ---- creation against stop ---- */

static _Atomic uint32_t refusals;

/* Creates foms until it is told that it is too late. */
static void creator(void *argument)
{
    (void)argument;
    for (uint32_t i = 0; atomic_load(&refusals) == 0 || i < 100; i++) {
        struct fw_fom *fom = NULL;
        int rc = fw_fom_create(&fom, domain, &subject_type, fw_domain_home_by_key(domain, i));
        if (rc == -ESHUTDOWN) {
            atomic_fetch_add(&refusals, 1);
            return;
        }
        if (rc == -ENOMEM) {
            (void)sched_yield(); /* At the limit, until some have ended. */
            continue;
        }
        assert_int_equal(rc, 0);
        FW_FOM_OF(fom, struct subject)->kind = i % 2 == 0 ? PHASE_BUSY : PHASE_PATIENT;
        atomic_fetch_add(&started, 1);
        fw_fom_start(fom);
    }
}

static void test_stop_while_created(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        domain_make(2, 1);
        atomic_store(&refusals, 0);
        assert_int_equal(fw_domain_start(domain), 0);
        struct fw_thread threads[2];
        for (int k = 0; k < 2; k++) {
            assert_int_equal(fw_thread_create(&threads[k], "creator", creator, NULL), 0);
        }
        while (atomic_load(&started) < 10) {
            (void)sched_yield();
        }
        (void)fw_domain_stop(domain, 3600 * (int64_t)FW_NS_PER_S);
        for (int k = 0; k < 2; k++) {
            fw_thread_join(&threads[k]);
        }
        assert_true(atomic_load(&refusals) > 0);
        assert_int_equal(atomic_load(&finished), atomic_load(&started));
        domain_unmake();
    }
}

/* ---- many wakers ---- */

enum { RUNNERS = 16, WAKERS = 3, ROUNDS = 2000 };

struct runner {
    struct fw_fom fom;
    struct fw_clink clink;
    uint32_t number;
    atomic_bool is_inside;
    uint64_t seen; /* Not atomic, for TSan to see that no two run at once. */
};

static struct {
    struct fw_channel channels[RUNNERS];
    _Atomic uint64_t given[RUNNERS];
    _Atomic uint64_t tickets[RUNNERS]; /* Their generations; foms do not move in memory. */
    _Atomic(struct fw_fom *) foms[RUNNERS];
    atomic_bool is_over;
} race;

static enum fw_step runner_tick(struct fw_fom *fom)
{
    struct runner *self = FW_FOM_OF(fom, struct runner);
    assert_false(atomic_exchange(&self->is_inside, true));
    atomic_store(&race.tickets[self->number], fw_fom_ticket(fom).generation);
    atomic_store(&race.foms[self->number], fom);
    fw_fom_arm(fom, &self->clink, &race.channels[self->number]);
    self->seen = atomic_load(&race.given[self->number]);
    (void)fw_channel_signal(&race.channels[(self->number + 1) % RUNNERS]);
    bool is_over = atomic_load(&race.is_over) && self->seen == (uint64_t)WAKERS * ROUNDS;
    atomic_store(&self->is_inside, false);
    return is_over ? fw_fom_finish(fom) : fw_fom_wait(fom, PHASE_PATIENT);
}

static void runner_finish(struct fw_fom *fom)
{
    (void)fom;
    atomic_fetch_add(&finished, 1);
}

static const struct fw_fom_type runner_type = {
    .name = "runner",
    .size = sizeof(struct runner),
    .limit_count = RUNNERS,
    .phases = phases,
    .phase_count = FW_ARRAY_LENGTH(phases),
    .tick = runner_tick,
    .finish = runner_finish,
};

static void waker(void *argument)
{
    (void)argument;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        for (uint32_t k = 0; k < RUNNERS; k++) {
            atomic_fetch_add(&race.given[k], 1);
            struct fw_ticket ticket = {.fom = atomic_load(&race.foms[k]),
                                       .generation = atomic_load(&race.tickets[k])};
            if (i % 2 == 0 && ticket.fom != NULL) {
                fw_ticket_wake(ticket);
            } else {
                (void)fw_channel_signal(&race.channels[k]);
            }
        }
    }
}

static void test_many_wakers(void **state)
{
    (void)state;
    domain_make(2, 2);
    assert_int_equal(fw_domain_add_type(domain, &runner_type), 0);
    memset(&race, 0, sizeof race);
    for (uint32_t i = 0; i < RUNNERS; i++) {
        fw_channel_init_shared(&race.channels[i], domain);
    }
    assert_int_equal(fw_domain_start(domain), 0);
    for (uint32_t i = 0; i < RUNNERS; i++) {
        struct fw_fom *fom = NULL;
        struct fw_locality *home = fw_domain_home_by_key(domain, i);
        assert_int_equal(fw_fom_create(&fom, domain, &runner_type, home), 0);
        FW_FOM_OF(fom, struct runner)->number = i;
        fw_fom_start(fom);
    }
    struct fw_thread threads[WAKERS];
    for (int i = 0; i < WAKERS; i++) {
        assert_int_equal(fw_thread_create(&threads[i], "waker", waker, NULL), 0);
    }
    for (int i = 0; i < WAKERS; i++) {
        fw_thread_join(&threads[i]);
    }
    atomic_store(&race.is_over, true);
    for (uint32_t i = 0; i < RUNNERS; i++) {
        (void)fw_channel_broadcast(&race.channels[i]);
    }
    /* None was lost: each fom has seen what was given last, and ends. No drain had to help. */
    while (atomic_load(&finished) < RUNNERS) {
        (void)sched_yield();
    }
    assert_int_equal(fw_domain_stop(domain, 3600 * (int64_t)FW_NS_PER_S), 0);
    for (uint32_t i = 0; i < RUNNERS; i++) {
        fw_channel_fini(&race.channels[i]);
    }
    domain_unmake();
}

/* ---- quiescence ---- */

enum { REPLACERS = 3, REPLACEMENTS = 100, PARTICIPANTS = 2 };

/* An object that is read without a lock. Nothing but quiescence orders its end after the reads. */
struct object {
    uint64_t value;
};

static struct {
    _Atomic(struct object *) current;
    atomic_bool is_over;
} shelf;

struct replacer {
    struct fw_fom fom;
    struct fw_quiescence quiescence;
    struct object *old;
    uint32_t count;
};

static void read_object(void)
{
    const struct object *object = atomic_load_explicit(&shelf.current, memory_order_acquire);
    assert_int_equal(object->value, 42);
}

static struct object *object_make(void)
{
    struct object *object = malloc(sizeof *object);
    assert_non_null(object);
    object->value = 42;
    return object;
}

static enum fw_step replacer_tick(struct fw_fom *fom)
{
    struct replacer *self = FW_FOM_OF(fom, struct replacer);
    read_object();
    if (self->old == NULL) {
        if (self->count++ == REPLACEMENTS) {
            return fw_fom_finish(fom);
        }
        self->old = atomic_exchange(&shelf.current, object_make());
        memset(&self->quiescence, 0, sizeof self->quiescence);
    }
    if (!fw_domain_quiesce(domain, fom, &self->quiescence)) {
        return fw_fom_wait(fom, PHASE_PATIENT);
    }
    self->old->value = 0; /* Who reads it now has it from before its time. */
    free(self->old);
    self->old = NULL;
    return fw_fom_yield(fom, PHASE_PATIENT);
}

static const struct fw_fom_type replacer_type = {
    .name = "replacer",
    .size = sizeof(struct replacer),
    .limit_count = REPLACERS,
    .phases = phases,
    .phase_count = FW_ARRAY_LENGTH(phases),
    .tick = replacer_tick,
    .finish = runner_finish,
};

static void participant(void *argument)
{
    (void)argument;
    struct fw_participant self;
    fw_participant_attach(&self, domain);
    while (!atomic_load(&shelf.is_over)) {
        fw_participant_enter(&self);
        read_object();
        fw_participant_leave(&self);
    }
    fw_participant_detach(&self);
}

static void test_quiescence(void **state)
{
    (void)state;
    domain_make(3, 1);
    assert_int_equal(fw_domain_add_type(domain, &replacer_type), 0);
    atomic_store(&shelf.current, object_make());
    atomic_store(&shelf.is_over, false);
    assert_int_equal(fw_domain_start(domain), 0);
    struct fw_thread threads[PARTICIPANTS];
    for (int i = 0; i < PARTICIPANTS; i++) {
        assert_int_equal(fw_thread_create(&threads[i], "participant", participant, NULL), 0);
    }
    for (uint32_t i = 0; i < REPLACERS; i++) {
        struct fw_fom *fom = NULL;
        struct fw_locality *home = fw_domain_locality(domain, i % 3);
        assert_int_equal(fw_fom_create(&fom, domain, &replacer_type, home), 0);
        fw_fom_start(fom);
    }
    while (atomic_load(&finished) < REPLACERS) {
        (void)sched_yield();
    }
    atomic_store(&shelf.is_over, true);
    for (int i = 0; i < PARTICIPANTS; i++) {
        fw_thread_join(&threads[i]);
    }
    assert_int_equal(fw_domain_stop(domain, FW_NS_PER_S), 0);
    free(atomic_load(&shelf.current));
    domain_unmake();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_localities),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_drain_ends_patient_foms),
        cmocka_unit_test(test_grace_ends_others),
        cmocka_unit_test(test_cycles),
        cmocka_unit_test(test_stop_while_created),
        cmocka_unit_test(test_many_wakers),
        cmocka_unit_test(test_quiescence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
