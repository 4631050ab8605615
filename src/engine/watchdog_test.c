/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever does not get on is told of, once, with all that helps to find it; a self-contained
 * tick that stalls costs its core nothing but the thread; and nothing of this goes wrong when there
 * is no permit, no thread or no signal to be had.
 * Method: real threads. Ticks are held at gates for as long as the test needs to see what it waits
 * for: a report, or others that go on. That a report is not repeated is seen by holding one tick
 * while another, which stalls later, is told of.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "support/engine_threads.h"

enum { WORK = FW_PHASE_FIRST, CORES = 2, REPORTS_MAX = 64, STALL_NS = 50 * FW_NS_PER_MS };

static const struct fw_phase phases[] = {{"WORK", FW_PHASE_BIT(FW_PHASE_FINISHED), false}};

#define TYPE(type_name, self_contained, tick_function)                           \
    {                                                                            \
        .name = (type_name), .size = sizeof(struct fw_fom), .limit_count = 1000, \
        .is_self_contained = (self_contained), .phases = phases,                 \
        .phase_count = FW_ARRAY_LENGTH(phases), .tick = (tick_function),         \
    }

/* ---- what was told ------------------------------------------------------------------------- */

static struct {
    struct fw_stall stalls[REPORTS_MAX];
    char stack[REPORTS_MAX][16 * 1024];
    _Atomic uint32_t count;
} told;

static void stalled(void *context, const struct fw_stall *stall)
{
    FW_ASSERT(context == &told);
    uint32_t count = atomic_load(&told.count);
    FW_ASSERT(count < REPORTS_MAX);
    told.stalls[count] = *stall;
    if (stall->stack != NULL) {
        (void)snprintf(told.stack[count], sizeof told.stack[count], "%s", stall->stack);
        told.stalls[count].stack = told.stack[count];
    }
    atomic_store(&told.count, count + 1);
}

/* How often the fom was told of, in that phase; `last` is the last of these. */
static uint32_t told_of(int kind, uint64_t fom_id, const char *phase, const struct fw_stall **last)
{
    uint32_t found = 0;
    uint32_t count = atomic_load(&told.count);
    for (uint32_t i = 0; i < count; i++) {
        const struct fw_stall *stall = &told.stalls[i];
        if ((int)stall->kind == kind && stall->fom_id == fom_id &&
            strcmp(stall->phase, phase) == 0) {
            found++;
            *last = stall;
        }
    }
    return found;
}

static const struct fw_stall *wait_for(int kind, uint64_t fom_id, const char *phase)
{
    const struct fw_stall *stall = NULL;
    WAIT_UNTIL(told_of(kind, fom_id, phase, &stall) > 0);
    assert_true(stall->duration_ns >= STALL_NS);
    return stall;
}

/* ---- types --------------------------------------------------------------------------------- */

static struct gate gates[CORES]; /* One per core. */
static void *_Atomic held_at;

__attribute__((noinline)) static void hold(struct gate *gate)
{
    atomic_store(&held_at, __builtin_return_address(0));
    gate_pass(gate);
}

static enum fw_step held_tick(struct fw_fom *fom)
{
    hold(&gates[fw_fom_home(fom)->index]);
    return fw_fom_finish(fom);
}

static const struct fw_fom_type held_type = TYPE("held", false, held_tick);

static _Atomic uint32_t relieved_ticks;

static enum fw_step relieved_tick(struct fw_fom *fom)
{
    hold(&gates[fw_fom_home(fom)->index]);
    atomic_fetch_add(&relieved_ticks, 1);
    return fw_fom_finish(fom);
}

static void relieved_finish(struct fw_fom *fom)
{
    FW_ASSERT(fw_core_self() == fw_fom_core(fom)); /* It has its turn back. */
    FW_ASSERT(fw_core_self()->fom == fom);
    FW_ASSERT(fw_core_self()->holder == fw_thread_self()->handler);
}

static const struct fw_fom_type relieved_type = {
    .name = "relieved",
    .size = sizeof(struct fw_fom),
    .limit_count = 1000,
    .phases = phases,
    .phase_count = FW_ARRAY_LENGTH(phases),
    .is_self_contained = true,
    .tick = relieved_tick,
    .finish = relieved_finish,
};

/* Waits in poll(), which a signal would end. */
static enum fw_step bracket_tick(struct fw_fom *fom)
{
    struct gate *gate = &gates[fw_fom_home(fom)->index];
    if (!fw_block_enter(fom)) {
        return fw_fom_wait(fom, WORK);
    }
    struct pollfd fd = {.fd = gate->fds[0], .events = POLLIN};
    int rc = poll(&fd, 1, -1);
    FW_ASSERT(rc == 1);
    gate_pass(gate);
    fw_block_leave(fom);
    return fw_fom_finish(fom);
}

static const struct fw_fom_type bracket_type = TYPE("bracket", false, bracket_tick);

static _Atomic uint64_t runs;
static atomic_bool must_end;

static enum fw_step running_tick(struct fw_fom *fom)
{
    atomic_fetch_add(&runs, 1);
    return atomic_load(&must_end) ? fw_fom_finish(fom) : fw_fom_yield(fom, WORK);
}

static const struct fw_fom_type running_type = TYPE("running", false, running_tick);

static void runs_advance(void)
{
    uint64_t before = atomic_load(&runs);
    WAIT_UNTIL(atomic_load(&runs) >= before + 1000);
}

static struct fw_domain *start(uint32_t cores, uint32_t bracket_limit)
{
    const struct fw_domain_config config = {
        .locality_count = cores,
        .bracket_limit = bracket_limit,
        .stall_ns = STALL_NS,
        .stalled = stalled,
        .stalled_context = &told,
    };
    const struct fw_fom_type *const types[] = {&held_type, &relieved_type, &bracket_type,
                                               &running_type};
    struct fw_domain *domain = domain_make(&config, types, FW_ARRAY_LENGTH(types));
    assert_int_equal(fw_domain_start(domain), 0);
    return domain;
}

static uint64_t relieved_count(const struct fw_domain *domain)
{
    return fw_counter_get(&domain->cores[0].metrics->ticks_relieved);
}

static int setup(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < CORES; i++) {
        gate_init(&gates[i]);
    }
    atomic_store(&told.count, 0);
    atomic_store(&relieved_ticks, 0);
    atomic_store(&runs, 0);
    atomic_store(&must_end, false);
    atomic_store(&threads_left, -1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < CORES; i++) {
        gate_fini(&gates[i]);
    }
    return 0;
}

/* ---- ticks --------------------------------------------------------------------------------- */

static void a_held_tick_is_told_of_once(void **state)
{
    (void)state;
    struct fw_domain *domain = start(CORES, 0);
    uint64_t first = fom_launch(domain, &held_type, 1);
    const struct fw_stall *stall = wait_for(FW_STALL_TICK, first, "WORK");
    while (stall->stack == NULL) { /* The machine did not let the thread answer: another one. */
        gate_open(&gates[1], 1);
        first = fom_launch(domain, &held_type, 1);
        stall = wait_for(FW_STALL_TICK, first, "WORK");
    }
    assert_string_equal(stall->type, "held");
    assert_int_equal(stall->core, 1);
    char frame[64];
    (void)snprintf(frame, sizeof frame, "[%p]\n", atomic_load(&held_at));
    assert_non_null(strstr(stall->stack, frame));
    /* While that is still held, another stalls and is told of. */
    uint64_t second = fom_launch(domain, &held_type, 0);
    assert_int_equal(wait_for(FW_STALL_TICK, second, "WORK")->core, 0);
    gate_open(&gates[1], 1);
    gate_open(&gates[0], 1);
    domain_end(domain);
    assert_int_equal(told_of(FW_STALL_TICK, first, "WORK", &stall), 1);
    assert_int_equal(told_of(FW_STALL_TICK, second, "WORK", &stall), 1);
}

static void a_core_without_work_is_not_told_of(void **state)
{
    (void)state;
    struct fw_domain *domain = start(CORES, 0);
    const struct fw_stall *stall;
    atomic_store(&must_end, true);
    uint64_t ended = fom_launch(domain, &running_type, 1);
    /* Core 1 has had a tick, which a busy machine may have stalled, and rests. */
    WAIT_UNTIL(fw_domain_live_count(domain) == 0 &&
               atomic_load(&domain->cores[1].asleep_since) != 0);
    uint32_t before = told_of(FW_STALL_TICK, ended, "WORK", &stall) +
                      told_of(FW_STALL_TICK, ended, "FINISHED", &stall);
    uint64_t held = fom_launch(domain, &held_type, 0);
    (void)wait_for(FW_STALL_TICK, held, "WORK"); /* So long were both looked at. */
    gate_open(&gates[0], 1);
    domain_end(domain);
    assert_int_equal(told_of(FW_STALL_TICK, ended, "WORK", &stall) +
                         told_of(FW_STALL_TICK, ended, "FINISHED", &stall),
                     before);
}

static void an_ordinary_tick_is_not_relieved(void **state)
{
    (void)state;
    struct fw_domain *domain = start(CORES, 0);
    uint64_t first = fom_launch(domain, &held_type, 0);
    (void)fom_launch(domain, &running_type, 0);
    (void)wait_for(FW_STALL_TICK, first, "WORK");
    uint64_t second = fom_launch(domain, &held_type, 1);
    (void)wait_for(FW_STALL_TICK, second,
                   "WORK"); /* Time enough to do something wrong to the first. */
    assert_int_equal(atomic_load(&runs), 0);
    assert_int_equal(relieved_count(domain), 0);
    atomic_store(&must_end, true);
    gate_open(&gates[0], 1);
    gate_open(&gates[1], 1);
    domain_end(domain);
}

static void a_spare_takes_the_turn_of_a_self_contained_tick(void **state)
{
    (void)state;
    struct fw_domain *domain = start(1, 0);
    uint64_t id = fom_launch(domain, &relieved_type, 0);
    (void)fom_launch(domain, &running_type, 0);
    assert_string_equal(wait_for(FW_STALL_TICK, id, "WORK")->type, "relieved");
    runs_advance(); /* On the only core, on which the tick is held. */
    assert_int_equal(atomic_load(&gates[0].passed), 0);
    /* More of them, one after the other, each with a thread of its own. */
    for (uint32_t i = 2; i <= 4; i++) {
        (void)fom_launch(domain, &relieved_type, 0);
        WAIT_UNTIL(atomic_load(&gates[0].arrived) == i && relieved_count(domain) == i);
        runs_advance();
    }
    assert_int_equal(atomic_load(&domain->permits), domain->config.bracket_limit - 4);
    gate_open(&gates[0], 4);
    WAIT_UNTIL(atomic_load(&relieved_ticks) == 4);
    atomic_store(&must_end, true);
    domain_end(domain);
    assert_int_equal(atomic_load(&relieved_ticks), 4);
    const struct fw_stall *stall;
    assert_int_equal(told_of(FW_STALL_TICK, id, "WORK", &stall), 1);
    assert_int_equal(told_of(FW_STALL_BRACKET, id, "WORK", &stall), 0);
}

static void at_the_limit_nobody_is_relieved(void **state)
{
    (void)state;
    struct fw_domain *domain = start(CORES, 1);
    uint64_t blocked = fom_launch(domain, &bracket_type, 1);
    (void)wait_for(FW_STALL_BRACKET, blocked, "WORK");
    uint64_t id = fom_launch(domain, &relieved_type, 0);
    (void)fom_launch(domain, &running_type, 0);
    (void)wait_for(FW_STALL_TICK, id, "WORK");
    assert_int_equal(relieved_count(domain), 0);
    gate_open(&gates[1], 1); /* Its permit comes back, and the watchdog has not given up. */
    WAIT_UNTIL(relieved_count(domain) == 1);
    runs_advance();
    gate_open(&gates[0], 1);
    atomic_store(&must_end, true);
    domain_end(domain);
}

static void without_threads_nobody_is_relieved(void **state)
{
    (void)state;
    struct fw_domain *domain = start(1, 0);
    atomic_store(&threads_left, 0);
    uint64_t id = fom_launch(domain, &relieved_type, 0);
    (void)fom_launch(domain, &running_type, 0);
    (void)wait_for(FW_STALL_TICK, id, "WORK");
    assert_int_equal(relieved_count(domain), 0);
    atomic_store(&threads_left, -1);
    WAIT_UNTIL(relieved_count(domain) == 1);
    runs_advance();
    gate_open(&gates[0], 1);
    atomic_store(&must_end, true);
    domain_end(domain);
}

/* ---- brackets, the queue, the signal ------------------------------------------------------- */

static void a_long_bracket_is_told_of_once_and_not_disturbed(void **state)
{
    (void)state;
    struct fw_domain *domain = start(CORES, 0);
    uint64_t first = fom_launch(domain, &bracket_type, 0);
    const struct fw_stall *stall = wait_for(FW_STALL_BRACKET, first, "WORK");
    assert_string_equal(stall->type, "bracket");
    assert_int_equal(stall->core, 0);
    assert_null(stall->stack);
    uint64_t second = fom_launch(domain, &bracket_type, 1);
    (void)wait_for(FW_STALL_BRACKET, second, "WORK");
    gate_open(&gates[0], 1);
    gate_open(&gates[1], 1);
    domain_end(domain);
    assert_int_equal(told_of(FW_STALL_BRACKET, first, "WORK", &stall), 1);
}

/*
 * Has a tick held on core 0 that began in time. One that a busy machine let wait is told of, and
 * whoever waits behind it is not: such a tick is let go, and another one tried.
 */
static void hold_in_time(struct fw_domain *domain)
{
    bool is_late;
    do {
        uint32_t arrived = atomic_load(&gates[0].arrived);
        (void)fom_launch(domain, &held_type, 0);
        WAIT_UNTIL(atomic_load(&gates[0].arrived) == arrived + 1);
        is_late = domain->cores[0].is_late; /* The turn's own, which is held. */
        if (is_late) {
            gate_open(&gates[0], 1);
        }
    } while (is_late);
}

static void who_is_ready_for_long_is_told_of(void **state)
{
    (void)state;
    struct fw_domain *domain = start(CORES, 0);
    atomic_store(&must_end, true);
    for (uint32_t round = 1; round <= 3; round++) {
        hold_in_time(domain);
        uint64_t first = fom_launch(domain, &running_type, 0);
        uint64_t second = fom_launch(domain, &running_type, 0);
        /* They have waited for so long when another tick, which begins now, has stalled. */
        uint64_t other = fom_launch(domain, &held_type, 1);
        (void)wait_for(FW_STALL_TICK, other, "WORK");
        gate_open(&gates[0], 1);
        const struct fw_stall *stall = wait_for(FW_STALL_READY, first, "INITIALISE");
        assert_string_equal(stall->type, "running");
        assert_int_equal(stall->core, 0);
        assert_null(stall->stack);
        /* Of the oldest only, until none is late any more. */
        assert_int_equal(told_of(FW_STALL_READY, second, "INITIALISE", &stall), 0);
        gate_open(&gates[1], 1);
        WAIT_UNTIL(atomic_load(&runs) == UINT64_C(2) * round);
    }
    domain_end(domain);
}

static void without_the_signal_there_is_no_stack(void **state)
{
    (void)state;
    const struct sigaction theirs = {.sa_handler = SIG_IGN};
    assert_int_equal(sigaction(FW_STACK_SIGNAL, &theirs, NULL), 0);
    struct fw_domain *domain = start(1, 0);
    uint64_t id = fom_launch(domain, &held_type, 0);
    assert_null(wait_for(FW_STALL_TICK, id, "WORK")->stack);
    gate_open(&gates[0], 1);
    domain_end(domain);
    const struct sigaction nobodys = {.sa_handler = SIG_DFL};
    assert_int_equal(sigaction(FW_STACK_SIGNAL, &nobodys, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* First: once the handler is there, it stays. */
        cmocka_unit_test_setup_teardown(without_the_signal_there_is_no_stack, setup, teardown),
        cmocka_unit_test_setup_teardown(a_held_tick_is_told_of_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_core_without_work_is_not_told_of, setup, teardown),
        cmocka_unit_test_setup_teardown(an_ordinary_tick_is_not_relieved, setup, teardown),
        cmocka_unit_test_setup_teardown(a_spare_takes_the_turn_of_a_self_contained_tick, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(at_the_limit_nobody_is_relieved, setup, teardown),
        cmocka_unit_test_setup_teardown(without_threads_nobody_is_relieved, setup, teardown),
        cmocka_unit_test_setup_teardown(a_long_bracket_is_told_of_once_and_not_disturbed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(who_is_ready_for_long_is_told_of, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
