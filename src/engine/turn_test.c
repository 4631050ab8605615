/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: threads are few however many foms there are; who blocks in a bracket stops nobody else, and
 * more than the limit wait outside; every way to misuse a bracket or to run out of threads has the
 * outcome that was promised; a thread that has the turn does not wait.
 * Method: real threads. Ticks are held at gates, so "while they are inside" is a state that the
 * test sees and not a time; then it looks at counters, at the kernel's list of threads, and at how
 * often the kernel put a thread to sleep. pthread_create() fails when the test says so. Misuse ends
 * a child process, which says why.
 */
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "support/engine_threads.h"

enum { WORK = FW_PHASE_FIRST, SECOND };

static const struct fw_phase phases[] = {
    {"WORK", FW_PHASE_BIT(SECOND) | FW_PHASE_BIT(FW_PHASE_FINISHED), true},
    {"SECOND", FW_PHASE_BIT(WORK) | FW_PHASE_BIT(FW_PHASE_FINISHED), false},
};

#define TYPE(type_name, tick_function)                                                     \
    {                                                                                      \
        .name = (type_name), .size = sizeof(struct fw_fom), .limit_count = 128 * 1024,     \
        .phases = phases, .phase_count = FW_ARRAY_LENGTH(phases), .tick = (tick_function), \
    }

static struct gate gate;

/* ---- types --------------------------------------------------------------------------------- */

static _Atomic uint32_t parked;

static enum fw_step parking_tick(struct fw_fom *fom)
{
    if (fom->phase == FW_PHASE_FAILED) {
        return fw_fom_finish(fom);
    }
    atomic_fetch_add(&parked, 1);
    return fw_fom_wait(fom, WORK);
}

static const struct fw_fom_type parking_type = TYPE("parking", parking_tick);

/* Passes the gate inside a bracket. */
static _Atomic uint32_t inside, inside_max;

static enum fw_step sleeping_tick(struct fw_fom *fom)
{
    if (!fw_block_enter(fom)) {
        return fw_fom_wait(fom, WORK);
    }
    FW_ASSERT(fw_core_self() == NULL);
    uint32_t now = atomic_fetch_add(&inside, 1) + 1;
    if (now > atomic_load(&inside_max)) {
        atomic_store(&inside_max, now);
    }
    gate_pass(&gate);
    atomic_fetch_sub(&inside, 1);
    fw_block_leave(fom);
    FW_ASSERT(fw_core_self() == fw_fom_core(fom));
    return fw_fom_finish(fom);
}

static const struct fw_fom_type sleeping_type = TYPE("sleeping", sleeping_tick);

/* Yields until it is told to end, and counts. */
static _Atomic uint64_t runs;
static atomic_bool must_end;

static enum fw_step running_tick(struct fw_fom *fom)
{
    atomic_fetch_add(&runs, 1);
    return atomic_load(&must_end) ? fw_fom_finish(fom) : fw_fom_yield(fom, WORK);
}

static const struct fw_fom_type running_type = TYPE("running", running_tick);

static void runs_advance(void)
{
    uint64_t before = atomic_load(&runs);
    WAIT_UNTIL(atomic_load(&runs) >= before + 1000);
}

static int setup(void **state)
{
    (void)state;
    gate_init(&gate);
    atomic_store(&parked, 0);
    atomic_store(&inside, 0);
    atomic_store(&inside_max, 0);
    atomic_store(&runs, 0);
    atomic_store(&must_end, false);
    atomic_store(&threads_left, -1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gate_fini(&gate);
    return 0;
}

/* ---- how many threads ---------------------------------------------------------------------- */

static void threads_are_few_however_many_foms(void **state)
{
    (void)state;
    enum { FOMS = 100 * 1000, CORES = 2 };
    const struct fw_domain_config config = {.locality_count = CORES};
    const struct fw_fom_type *const types[] = {&parking_type};
    struct fw_domain *domain = domain_make(&config, types, 1);
    uint32_t before = threads_alone();
    assert_int_equal(fw_domain_start(domain), 0);
    for (uint32_t i = 0; i < FOMS; i++) {
        (void)fom_launch(domain, &parking_type, i % CORES);
    }
    WAIT_UNTIL(atomic_load(&parked) == FOMS);
    assert_int_equal(threads_count(), before + CORES + 1); /* And the watchdog. */
    domain_end(domain);
}

static void others_go_on_while_foms_sleep_in_brackets(void **state)
{
    (void)state;
    enum { SLEEPERS = 24 };
    const struct fw_domain_config config = {.locality_count = 1};
    const struct fw_fom_type *const types[] = {&sleeping_type, &running_type};
    struct fw_domain *domain = domain_make(&config, types, 2);
    uint32_t before = threads_alone();
    assert_int_equal(fw_domain_start(domain), 0);
    (void)fom_launch(domain, &running_type, 0);
    for (uint32_t i = 0; i < SLEEPERS; i++) {
        (void)fom_launch(domain, &sleeping_type, 0);
    }
    WAIT_UNTIL(atomic_load(&inside) == SLEEPERS);
    runs_advance();
    assert_int_equal(atomic_load(&inside), SLEEPERS);
    uint32_t handlers = threads_count() - before - 1 - SLEEPERS;
    assert_in_range(handlers, 1, 3);
    gate_open(&gate, SLEEPERS);
    atomic_store(&must_end, true);
    domain_end(domain);
}

/* Says how often its core had slept, and enters a bracket in the middle of a round. */
static _Atomic uint64_t sleeps_before;

static enum fw_step lonely_tick(struct fw_fom *fom)
{
    atomic_store(&sleeps_before, fw_counter_get(&fw_core_self()->metrics->sleeps));
    return sleeping_tick(fom);
}

static const struct fw_fom_type lonely_type = TYPE("lonely", lonely_tick);

static void a_core_sleeps_while_its_only_fom_is_blocked(void **state)
{
    (void)state;
    const struct fw_domain_config config = {.locality_count = 1};
    const struct fw_fom_type *const types[] = {&lonely_type, &running_type};
    struct fw_domain *domain = domain_make(&config, types, 2);
    assert_int_equal(fw_domain_start(domain), 0);
    atomic_store(&must_end, true);
    for (uint32_t i = 0; i < 10; i++) {
        (void)fom_launch(domain, &running_type, 0); /* For ticks of the round before that one. */
    }
    (void)fom_launch(domain, &lonely_type, 0);
    WAIT_UNTIL(atomic_load(&inside) == 1);
    const struct fw_core *core = &domain->cores[0];
    WAIT_UNTIL(fw_counter_get(&core->metrics->sleeps) > atomic_load(&sleeps_before));
    assert_int_equal(atomic_load(&core->queue_length), 0);
    gate_open(&gate, 1);
    domain_end(domain);
}

static void beyond_the_limit_foms_wait_outside(void **state)
{
    (void)state;
    enum { SLEEPERS = 9, LIMIT = 3 };
    const struct fw_domain_config config = {.locality_count = 2, .bracket_limit = LIMIT};
    const struct fw_fom_type *const types[] = {&sleeping_type, &running_type};
    struct fw_domain *domain = domain_make(&config, types, 2);
    assert_int_equal(fw_domain_start(domain), 0);
    (void)fom_launch(domain, &running_type, 0);
    (void)fom_launch(domain, &running_type, 1);
    for (uint32_t i = 0; i < SLEEPERS; i++) {
        (void)fom_launch(domain, &sleeping_type, i % 2);
    }
    const struct fw_core *cores = domain->cores;
    for (uint32_t i = 0; i < SLEEPERS; i++) {
        uint32_t there = SLEEPERS - i < LIMIT ? SLEEPERS - i : LIMIT;
        WAIT_UNTIL(atomic_load(&inside) == there &&
                   fw_counter_get(&cores[0].metrics->brackets_refused) +
                           fw_counter_get(&cores[1].metrics->brackets_refused) ==
                       SLEEPERS - LIMIT);
        runs_advance();
        gate_open(&gate, 1);
        WAIT_UNTIL(atomic_load(&gate.passed) == i + 1);
    }
    assert_int_equal(atomic_load(&inside_max), LIMIT);
    atomic_store(&must_end, true);
    domain_end(domain);
}

static void threads_above_the_limit_end_at_once(void **state)
{
    (void)state;
    enum { SLEEPERS = 6, LIMIT = 1 };
    const struct fw_domain_config config = {
        .locality_count = 1, .spare_limit = LIMIT, .spare_idle_ns = INT64_MAX / 4};
    const struct fw_fom_type *const types[] = {&sleeping_type};
    struct fw_domain *domain = domain_make(&config, types, 1);
    uint32_t before = threads_alone();
    assert_int_equal(fw_domain_start(domain), 0);
    for (uint32_t i = 0; i < SLEEPERS; i++) {
        (void)fom_launch(domain, &sleeping_type, 0);
    }
    WAIT_UNTIL(atomic_load(&inside) == SLEEPERS);
    gate_open(&gate, SLEEPERS);
    WAIT_UNTIL(threads_count() == before + 1 + 1 + LIMIT);
    const struct fw_metrics_engine *metrics = domain->cores[0].metrics;
    assert_int_equal(fw_counter_get(&metrics->threads_created), SLEEPERS + 1);
    assert_int_equal(fw_counter_get(&metrics->threads_reaped), SLEEPERS - LIMIT);
    domain_end(domain);
    assert_int_equal(threads_alone(), before);
}

static void threads_that_are_idle_for_long_end(void **state)
{
    (void)state;
    enum { SLEEPERS = 3 };
    const struct fw_domain_config config = {
        .locality_count = 1, .spare_limit = SLEEPERS, .spare_idle_ns = FW_NS_PER_MS};
    const struct fw_fom_type *const types[] = {&sleeping_type};
    struct fw_domain *domain = domain_make(&config, types, 1);
    uint32_t before = threads_alone();
    assert_int_equal(fw_domain_start(domain), 0);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < SLEEPERS; i++) {
            (void)fom_launch(domain, &sleeping_type, 0);
        }
        WAIT_UNTIL(atomic_load(&inside) == SLEEPERS);
        gate_open(&gate, SLEEPERS);
        WAIT_UNTIL(threads_count() == before + 1 + 1); /* The watchdog, and who has the turn. */
    }
    const struct fw_metrics_engine *metrics = domain->cores[0].metrics;
    assert_int_equal(fw_counter_get(&metrics->threads_reaped),
                     fw_counter_get(&metrics->threads_created) - 1);
    domain_end(domain);
}

/* ---- nested, unpaired, without threads ----------------------------------------------------- */

static enum fw_step nesting_tick(struct fw_fom *fom)
{
    for (int round = 0; round < 3; round++) {
        bool is_entered = fw_block_enter(fom);
        FW_ASSERT(is_entered && fw_core_self() == NULL);
        is_entered = fw_block_enter(fom);
        FW_ASSERT(is_entered && fw_core_self() == NULL);
        fw_block_leave(fom);
        FW_ASSERT(fw_core_self() == NULL);
        is_entered = fw_block_enter(fom); /* There is but one permit, and the fom has it. */
        FW_ASSERT(is_entered && fw_core_self() == NULL);
        fw_block_leave(fom);
        FW_ASSERT(fw_core_self() == NULL);
        fw_block_leave(fom);
        FW_ASSERT(fw_core_self() == fw_fom_core(fom) && fw_core_self()->fom == fom);
    }
    return fw_fom_finish(fom);
}

static const struct fw_fom_type nesting_type = TYPE("nesting", nesting_tick);

static void brackets_nest(void **state)
{
    (void)state;
    const struct fw_domain_config config = {.locality_count = 1, .bracket_limit = 1};
    const struct fw_fom_type *const types[] = {&nesting_type};
    struct fw_domain *domain = domain_make(&config, types, 1);
    assert_int_equal(fw_domain_start(domain), 0);
    (void)fom_launch(domain, &nesting_type, 0);
    assert_int_equal(fw_domain_stop(domain, INT64_MAX / 2), 0);
    assert_int_equal(fw_counter_get(&domain->cores[0].metrics->brackets), 3);
    assert_int_equal(atomic_load(&domain->permits), 1);
    fw_domain_destroy(domain);
}

static enum fw_step unleft_tick(struct fw_fom *fom)
{
    (void)!fw_block_enter(fom);
    return fw_fom_finish(fom);
}

static enum fw_step unentered_tick(struct fw_fom *fom)
{
    fw_block_leave(fom);
    return fw_fom_finish(fom);
}

static const struct fw_fom_type unleft_type = TYPE("unleft", unleft_tick);
static const struct fw_fom_type unentered_type = TYPE("unentered", unentered_tick);

/* Runs a fom of the type in a child, which must abort and say `why`. */
static void expect_abort(const struct fw_fom_type *type, const char *why)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)dup2(fds[1], STDERR_FILENO);
        const struct fw_domain_config config = {.locality_count = 1};
        struct fw_domain *domain = domain_make(&config, &type, 1);
        (void)!fw_domain_start(domain);
        (void)fom_launch(domain, type, 0);
        (void)fw_domain_stop(domain, INT64_MAX / 2);
        _exit(0);
    }
    (void)close(fds[1]);
    static char text[64 * 1024];
    size_t used = 0;
    ssize_t size;
    while ((size = read(fds[0], text + used, sizeof text - 1 - used)) > 0) {
        used += (size_t)size;
    }
    text[used] = '\0';
    (void)close(fds[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_non_null(strstr(text, why));
}

static void unpaired_brackets_abort(void **state)
{
    (void)state;
    expect_abort(&unleft_type, "core->fom == fom");
    expect_abort(&unentered_type, "handler->depth > 0");
}

static enum fw_step unrelieved_tick(struct fw_fom *fom)
{
    struct fw_core *core = fw_core_self();
    const struct fw_metrics_engine *metrics = core->metrics;
    atomic_store(&threads_left, 0);
    bool is_entered = fw_block_enter(fom);
    FW_ASSERT(is_entered && fw_core_self() == core); /* It keeps the turn. */
    FW_ASSERT(core->fom == fom && core->holder == fw_thread_self()->handler);
    FW_ASSERT(fw_counter_get(&metrics->brackets_unrelieved) == 1);
    atomic_store(&threads_left, -1);
    is_entered = fw_block_enter(fom); /* Nested in such a one: nothing happens. */
    FW_ASSERT(is_entered && fw_core_self() == core);
    fw_block_leave(fom);
    fw_block_leave(fom);
    FW_ASSERT(fw_core_self() == core && core->fom == fom);
    is_entered = fw_block_enter(fom);
    FW_ASSERT(is_entered && fw_core_self() == NULL);
    fw_block_leave(fom);
    FW_ASSERT(fw_counter_get(&metrics->brackets_unrelieved) == 1);
    return fw_fom_finish(fom);
}

static const struct fw_fom_type unrelieved_type = TYPE("unrelieved", unrelieved_tick);

static void without_threads_the_bracket_keeps_the_turn(void **state)
{
    (void)state;
    const struct fw_domain_config config = {.locality_count = 1};
    const struct fw_fom_type *const types[] = {&unrelieved_type};
    struct fw_domain *domain = domain_make(&config, types, 1);
    assert_int_equal(fw_domain_start(domain), 0);
    (void)fom_launch(domain, &unrelieved_type, 0);
    domain_end(domain);
}

static void a_domain_without_threads_does_not_start(void **state)
{
    (void)state;
    enum { CORES = 2 };
    const struct fw_domain_config config = {.locality_count = CORES};
    const struct fw_fom_type *const types[] = {&running_type};
    struct fw_domain *domain = domain_make(&config, types, 1);
    uint32_t before = threads_alone();
    for (int made = 0; made < CORES + 1; made++) { /* The last is the watchdog. */
        atomic_store(&threads_left, made);
        assert_int_equal(fw_domain_start(domain), -EAGAIN);
        assert_int_equal(threads_alone(), before);
    }
    atomic_store(&threads_left, -1);
    assert_int_equal(fw_domain_start(domain), 0);
    atomic_store(&must_end, true);
    (void)fom_launch(domain, &running_type, 1);
    domain_end(domain);
    assert_int_equal(atomic_load(&runs), 1);
}

/* ---- who has the turn does not wait -------------------------------------------------------- */

enum { STRETCH = 20 * 1000 };
static _Atomic uint64_t waits_of_the_stretch;

static uint64_t waits_of_thread(void)
{
    struct rusage usage;
    int rc = getrusage(RUSAGE_THREAD, &usage);
    FW_ASSERT(rc == 0);
    return (uint64_t)usage.ru_nvcsw;
}

/* Two foms play ball over channels, timers run, the reactor is asked each round. */
static struct {
    struct fw_channel channel[2]; /* The turn's own, and a shared one. */
    uint32_t balls;
    uint64_t waits;
    uint64_t ticks;
} game;

struct player {
    struct fw_fom fom;
    struct fw_clink clinks[2];
};

static enum fw_step playing_tick(struct fw_fom *fom)
{
    struct player *self = FW_FOM_OF(fom, struct player);
    if (game.ticks == 0) {
        fw_channel_init(&game.channel[0]);
    }
    if (++game.ticks == 100) { /* All is warm. */
        game.waits = waits_of_thread();
    } else if (game.ticks == STRETCH) {
        atomic_store(&waits_of_the_stretch, waits_of_thread() - game.waits);
        atomic_store(&must_end, true);
    }
    if (atomic_load(&must_end)) {
        (void)fw_channel_signal(&game.channel[0]);
        (void)fw_channel_broadcast(&game.channel[1]);
        return fw_fom_finish(fom);
    }
    (void)fw_channel_signal(&game.channel[game.ticks % 2]);
    fw_fom_arm(fom, &self->clinks[0], &game.channel[0]);
    fw_fom_arm(fom, &self->clinks[1], &game.channel[1]);
    return fw_fom_wait_until(fom, WORK, fw_fom_now(fom) + INT64_C(10) * FW_NS_PER_US);
}

static const struct fw_fom_type playing_type = {
    .name = "playing",
    .size = sizeof(struct player),
    .limit_count = 2,
    .phases = phases,
    .phase_count = FW_ARRAY_LENGTH(phases),
    .tick = playing_tick,
};

static void who_has_the_turn_does_not_wait(void **state)
{
    (void)state;
    memset(&game, 0, sizeof game);
    atomic_store(&waits_of_the_stretch, UINT64_MAX);
    const struct fw_domain_config config = {.locality_count = 1};
    const struct fw_fom_type *const types[] = {&playing_type, &running_type};
    struct fw_domain *domain = domain_make(&config, types, 2);
    fw_channel_init_shared(&game.channel[1], domain);
    assert_int_equal(fw_domain_start(domain), 0);
    (void)fom_launch(domain, &running_type, 0); /* So the queue is never empty. */
    (void)fom_launch(domain, &playing_type, 0);
    (void)fom_launch(domain, &playing_type, 0);
    WAIT_UNTIL(atomic_load(&must_end));
    assert_int_equal(fw_domain_stop(domain, INT64_MAX / 2), 0);
    fw_channel_fini(&game.channel[1]);
    fw_domain_destroy(domain);
    assert_int_equal(atomic_load(&waits_of_the_stretch), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* First: TSan does not like a fork when there have been threads. */
        cmocka_unit_test_setup_teardown(unpaired_brackets_abort, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_are_few_however_many_foms, setup, teardown),
        cmocka_unit_test_setup_teardown(others_go_on_while_foms_sleep_in_brackets, setup, teardown),
        cmocka_unit_test_setup_teardown(a_core_sleeps_while_its_only_fom_is_blocked, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(beyond_the_limit_foms_wait_outside, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_above_the_limit_end_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_that_are_idle_for_long_end, setup, teardown),
        cmocka_unit_test_setup_teardown(brackets_nest, setup, teardown),
        cmocka_unit_test_setup_teardown(without_threads_the_bracket_keeps_the_turn, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_domain_without_threads_does_not_start, setup, teardown),
        cmocka_unit_test_setup_teardown(who_has_the_turn_does_not_wait, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
