/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a wait that is too long fails with -ETIMEDOUT, not before its limit and within the stated
 * bound after it, and what it waited for is nothing to it any more; patient phases, FAILED, and
 * waits with a deadline of their own are left alone; waiters cost nothing until they are due; the
 * limit follows latency and load, so that what is merely slow is not failed, and what hangs is.
 * Method: a core driven by hand, on a virtual clock that moves a millisecond per round. How often a
 * wait is looked at is counted by standing between the engine and fw_limit_ns()
 * and its kin.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/core.h"
#include "io/random.h"
#include "support/engine_by_hand.h"

enum { PHASE_LIMITED = FW_PHASE_FIRST, PHASE_PATIENT };

static const struct fw_phase phases[] = {
    {"LIMITED", FW_PHASE_BIT(PHASE_PATIENT) | FW_PHASE_BIT(FW_PHASE_FINISHED), false},
    {"PATIENT", FW_PHASE_BIT(FW_PHASE_FINISHED), true},
};

struct waiter {
    struct fw_fom fom;
    struct fw_clink clink;
    uint32_t number;
};

static enum fw_step (*tick)(struct fw_fom *fom);
static int finished;

static enum fw_step any_tick(struct fw_fom *fom)
{
    return tick(fom);
}

static void any_finish(struct fw_fom *fom)
{
    (void)fom;
    finished++;
}

#ifdef FW_CHECKS
enum { MANY = 100 * 1000 }; /* Sanitizers need several times the memory. */
#else
enum { MANY = 1000 * 1000 };
#endif

static const struct fw_fom_type type = {
    .name = "waiter",
    .size = sizeof(struct waiter),
    .limit_count = MANY,
    .phases = phases,
    .phase_count = FW_ARRAY_LENGTH(phases),
    .tick = any_tick,
    .finish = any_finish,
};

static uint64_t looks; /* At how long some fom may wait. */

int64_t __real_fw_limit_ns(const struct fw_core *core, const struct fw_fom *fom);
int64_t __wrap_fw_limit_ns(const struct fw_core *core, const struct fw_fom *fom);

int64_t __wrap_fw_limit_ns(const struct fw_core *core, const struct fw_fom *fom)
{
    looks++;
    return __real_fw_limit_ns(core, fom);
}

int64_t __real_fw_limit_shown_ns(const struct fw_core *core, const struct fw_fom *fom);
int64_t __wrap_fw_limit_shown_ns(const struct fw_core *core, const struct fw_fom *fom);

int64_t __wrap_fw_limit_shown_ns(const struct fw_core *core, const struct fw_fom *fom)
{
    looks++;
    return __real_fw_limit_shown_ns(core, fom);
}

static struct by_hand hand;

static const struct fw_domain_config config = {.locality_count = 1,
                                               .wait_min_ns = 100 * (int64_t)FW_NS_PER_MS,
                                               .wait_max_ns = 20 * (int64_t)FW_NS_PER_S};

/* Lets time pass, a round per millisecond. */
static void pass(int64_t duration_ns)
{
    int64_t until = by_hand_clock_ns + duration_ns;
    while (by_hand_clock_ns < until) {
        by_hand_clock_ns += FW_NS_PER_MS;
        by_hand_round(&hand, 0);
    }
}

/* ---- what is found overdue ---- */

static struct {
    struct fw_channel channel;
    struct fw_channel cleanup;
    struct fw_ticket ticket;
    int ticks;
    int failed_ticks;
    int result;
    int64_t failed_at;
    bool may_end;
} overdue;

static enum fw_step overdue_tick(struct fw_fom *fom)
{
    struct waiter *self = FW_FOM_OF(fom, struct waiter);
    if (fom->phase == FW_PHASE_FAILED) {
        overdue.failed_ticks++;
        overdue.result = fom->result;
        overdue.failed_at = overdue.failed_at == 0 ? by_hand_clock_ns : overdue.failed_at;
        fw_fom_arm(fom, &self->clink, &overdue.cleanup);
        return overdue.may_end ? fw_fom_finish(fom) : fw_fom_wait(fom, FW_PHASE_FAILED);
    }
    overdue.ticks++;
    overdue.ticket = fw_fom_ticket(fom);
    fw_fom_arm(fom, &self->clink, &overdue.channel);
    return fw_fom_wait(fom, PHASE_LIMITED);
}

static void overdue_begin(void)
{
    by_hand_begin(&hand, &config, &type);
    memset(&overdue, 0, sizeof overdue);
    finished = 0;
    fw_channel_init_shared(&overdue.channel, hand.domain);
    fw_channel_init_shared(&overdue.cleanup, hand.domain);
    tick = overdue_tick;
}

static void overdue_end(void)
{
    fw_channel_fini(&overdue.channel);
    fw_channel_fini(&overdue.cleanup);
    by_hand_end(&hand);
}

static void test_overdue_fails_within_the_bound(void **state)
{
    (void)state;
    overdue_begin();
    (void)by_hand_start(&hand, &type, 0);
    by_hand_round(&hand, 0);
    int64_t begin = by_hand_clock_ns;
    pass(config.wait_min_ns - FW_NS_PER_MS);
    assert_int_equal(overdue.failed_ticks, 0);
    pass(FW_DETECTION_BOUND_NS + FW_NS_PER_MS);
    assert_int_equal(overdue.failed_ticks, 1);
    assert_int_equal(overdue.result, -ETIMEDOUT);
    assert_in_range(overdue.failed_at - begin, config.wait_min_ns,
                    config.wait_min_ns + FW_DETECTION_BOUND_NS);
    assert_int_equal(fw_counter_get(&hand.domain->cores[0].metrics->foms_overdue), 1);

    /* The late event, by channel and by ticket, is nothing to it. */
    assert_false(fw_channel_signal(&overdue.channel));
    fw_ticket_wake(overdue.ticket);
    pass(10 * (int64_t)FW_NS_PER_MS);
    assert_int_equal(overdue.failed_ticks, 1);

    /* In FAILED it may wait for as long as it needs. */
    pass(2 * config.wait_max_ns);
    assert_int_equal(overdue.failed_ticks, 1);
    overdue.may_end = true;
    assert_true(fw_channel_signal(&overdue.cleanup));
    pass(FW_NS_PER_MS);
    assert_int_equal(finished, 1);
    fw_ticket_wake(overdue.ticket); /* It is gone. */
    overdue_end();
}

/*
 * Latency is suddenly far beyond sixteen times what it was: one after the other is failed, each
 * after twice the time of the one before, and soon as much is allowed as may be at all.
 */
static void test_failures_raise_the_limit(void **state)
{
    (void)state;
    overdue_begin();
    overdue.may_end = true;
    const struct fw_fom any = {.type_number = 0};
    struct fw_core *core = &hand.domain->cores[0];
    enum { PATIENCE = 16 }; /* Of limit.c: what division may lose. */
    int64_t limit = fw_limit_ns(core, &any);
    for (int failures = 0; limit < config.wait_max_ns;) {
        /* Two of them: that both fail at once is no reason to be twice as patient. */
        (void)by_hand_start(&hand, &type, 0);
        (void)by_hand_start(&hand, &type, 0);
        by_hand_round(&hand, 0);
        pass(limit - FW_NS_PER_MS);
        assert_int_equal(overdue.failed_ticks, failures);
        pass(FW_DETECTION_BOUND_NS + FW_NS_PER_MS);
        failures += 2;
        assert_int_equal(overdue.failed_ticks, failures);
        int64_t next = fw_limit_ns(core, &any);
        assert_in_range(next, next == config.wait_max_ns ? limit : 2 * limit - PATIENCE,
                        2 * (limit + FW_DETECTION_BOUND_NS));
        limit = next;
    }
    overdue_end();
}

/* The time is over and so is the wait: whichever comes first decides, whole. */
static void test_event_and_limit_together(void **state)
{
    (void)state;
    overdue_begin();
    overdue.may_end = true;
    (void)by_hand_start(&hand, &type, 0);
    by_hand_round(&hand, 0);
    by_hand_clock_ns += config.wait_min_ns + FW_DETECTION_BOUND_NS;
    assert_true(fw_channel_signal(&overdue.channel)); /* It was there before anyone looked. */
    by_hand_round(&hand, 0);
    assert_int_equal(overdue.failed_ticks, 0);
    assert_int_equal(overdue.ticks, 2);
    by_hand_clock_ns += 20 * config.wait_min_ns; /* Beyond what that wait has taught it. */
    by_hand_round(&hand, 0);
    assert_int_equal(overdue.failed_ticks, 1);
    overdue_end();
}

/* A wait that was over in time leaves nothing behind that could fail a later, patient one. */
static enum fw_step patient_tick(struct fw_fom *fom)
{
    struct waiter *self = FW_FOM_OF(fom, struct waiter);
    if (fom->phase == FW_PHASE_FAILED) {
        overdue.failed_ticks++;
        overdue.result = fom->result;
        return fw_fom_finish(fom);
    }
    overdue.ticks++;
    fw_fom_arm(fom, &self->clink, &overdue.channel);
    return fw_fom_wait(fom, overdue.ticks == 1 ? PHASE_LIMITED : PHASE_PATIENT);
}

static void test_patient(void **state)
{
    (void)state;
    overdue_begin();
    tick = patient_tick;
    (void)by_hand_start(&hand, &type, 0);
    by_hand_round(&hand, 0);
    pass(config.wait_min_ns / 2);
    assert_true(fw_channel_signal(&overdue.channel));
    pass(2 * config.wait_max_ns);
    assert_int_equal(overdue.ticks, 2);
    assert_int_equal(overdue.failed_ticks, 0);
    fw_domain_drain(hand.domain); /* Then it ends at once. */
    by_hand_round(&hand, 0);
    assert_int_equal(overdue.result, -ESHUTDOWN);
    assert_int_equal(finished, 1);
    overdue_end();
}

/* ---- deadlines ---- */

static struct {
    int64_t duration_ns;
    unsigned phase;
    int ticks;
    bool timed_out;
    int64_t at;
} deadline;

static enum fw_step deadline_tick(struct fw_fom *fom)
{
    struct waiter *self = FW_FOM_OF(fom, struct waiter);
    assert_int_not_equal(fom->phase, FW_PHASE_FAILED);
    if (deadline.ticks++ > 0) {
        deadline.timed_out = fw_fom_timed_out(fom);
        deadline.at = fw_fom_now(fom);
        return fw_fom_finish(fom);
    }
    assert_false(fw_fom_timed_out(fom));
    fw_fom_arm(fom, &self->clink, &overdue.channel);
    return fw_fom_wait_until(fom, deadline.phase, fw_fom_now(fom) + deadline.duration_ns);
}

static void deadline_start(int64_t duration_ns, unsigned phase)
{
    memset(&deadline, 0, sizeof deadline);
    deadline.duration_ns = duration_ns;
    deadline.phase = phase;
    (void)by_hand_start(&hand, &type, 0);
    by_hand_round(&hand, 0);
    assert_int_equal(deadline.ticks, 1);
}

static void test_deadlines(void **state)
{
    (void)state;
    overdue_begin();
    tick = deadline_tick;
    /* Below the limit of other waits, beyond it, and beyond the longest that there is. */
    const int64_t durations[] = {config.wait_min_ns / 5, config.wait_min_ns * 3,
                                 config.wait_max_ns * 3};
    for (unsigned i = 0; i < FW_ARRAY_LENGTH(durations); i++) {
        for (unsigned phase = PHASE_LIMITED; phase <= PHASE_PATIENT; phase++) {
            int64_t begin = by_hand_clock_ns;
            deadline_start(durations[i], phase);
            pass(durations[i] - FW_NS_PER_MS);
            assert_int_equal(deadline.ticks, 1);
            pass(FW_DETECTION_BOUND_NS);
            assert_int_equal(deadline.ticks, 2);
            assert_true(deadline.timed_out);
            assert_in_range(deadline.at - begin, durations[i],
                            durations[i] + FW_DETECTION_BOUND_NS);
            deadline_start(durations[i], phase);
            pass(durations[i] / 2);
            assert_true(fw_channel_signal(&overdue.channel));
            pass(FW_NS_PER_MS);
            assert_int_equal(deadline.ticks, 2);
            assert_false(deadline.timed_out); /* The event came, the time did not. */
        }
    }
    assert_int_equal(finished, 12);
    overdue_end();
}

/* ---- a million waiters ---- */

static enum fw_step crowd_tick(struct fw_fom *fom)
{
    return fom->phase == FW_PHASE_FAILED ? fw_fom_finish(fom) : fw_fom_wait(fom, PHASE_LIMITED);
}

static void test_many_waiters(void **state)
{
    (void)state;
    by_hand_begin(&hand, &config, &type);
    tick = crowd_tick;
    finished = 0;
    looks = 0;
    struct fw_core *core = &hand.domain->cores[0];
    for (int i = 0; i < MANY; i++) {
        (void)by_hand_start(&hand, &type, 0);
    }
    by_hand_round(&hand, 0);
    while (core->queue.length > 0) {
        by_hand_round(&hand, 0);
    }
    assert_int_equal(looks, MANY); /* When each began to wait. */
    looks = 0;
    pass(config.wait_min_ns - FW_NS_PER_MS);
    assert_int_equal(looks, 0); /* A hundred rounds, and none of them was looked at. */
    pass(FW_DETECTION_BOUND_NS);
    assert_int_equal(looks, MANY); /* Each once. */
    while (core->queue.length > 0) {
        by_hand_round(&hand, 0);
    }
    assert_int_equal(finished, MANY);
    by_hand_end(&hand);
}

/* ---- limits that adapt ---- */

enum { CLIENTS = 16 };

static struct {
    struct fw_random draws;
    struct fw_channel channels[CLIENTS];
    int64_t due[CLIENTS]; /* When each one's event comes; 0: it waits for none. */
    bool happened[CLIENTS];
    int64_t (*latency)(void);
    int64_t longest; /* Wait so far. */
    uint64_t waits;
    uint64_t failures;
    bool hangs;
} load;

static enum fw_step client_tick(struct fw_fom *fom)
{
    struct waiter *self = FW_FOM_OF(fom, struct waiter);
    uint32_t number = self->number;
    if (fom->phase == FW_PHASE_FAILED) {
        assert_int_equal(fom->result, -ETIMEDOUT);
        load.failures++;
        return fw_fom_finish(fom);
    }
    if (load.happened[number]) {
        load.happened[number] = false;
        load.due[number] = 0;
        load.waits++;
    }
    fw_fom_arm(fom, &self->clink, &load.channels[number]);
    if (load.due[number] == 0) {
        int64_t latency = load.latency();
        load.longest = latency > load.longest ? latency : load.longest;
        load.due[number] = by_hand_clock_ns + latency;
    }
    return fw_fom_wait(fom, PHASE_LIMITED);
}

static void load_pass(int64_t duration_ns)
{
    int64_t until = by_hand_clock_ns + duration_ns;
    while (by_hand_clock_ns < until) {
        by_hand_clock_ns += FW_NS_PER_MS;
        for (uint32_t i = 0; i < CLIENTS && !load.hangs; i++) {
            if (load.due[i] <= by_hand_clock_ns && !load.happened[i]) {
                load.happened[i] = true;
                (void)fw_channel_signal(&load.channels[i]);
            }
        }
        by_hand_round(&hand, 0);
    }
}

static void load_begin(int64_t (*latency)(void))
{
    by_hand_begin(&hand, &config, &type);
    memset(&load, 0, sizeof load);
    fw_random_init(&load.draws, 11);
    tick = client_tick;
    load.latency = latency;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        fw_channel_init_shared(&load.channels[i], hand.domain);
        struct fw_fom *fom = by_hand_create(&hand, &type, 0);
        FW_FOM_OF(fom, struct waiter)->number = i;
        fw_fom_start(fom);
    }
}

/* Nothing comes any more: every wait is found, none earlier than it may, none too late. */
static void load_end(void)
{
    assert_int_equal(load.failures, 0);
    load.hangs = true;
    load_pass(load.longest);
    assert_int_equal(load.failures, 0); /* As long as that some have waited before. */
    load_pass(config.wait_max_ns + FW_DETECTION_BOUND_NS);
    assert_int_equal(load.failures, CLIENTS);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        fw_channel_fini(&load.channels[i]);
    }
    by_hand_end(&hand);
}

static int64_t around(int64_t mean_ns)
{
    return mean_ns / 2 + (int64_t)fw_random_below(&load.draws, (uint64_t)mean_ns);
}

static int64_t latency_low(void)
{
    return around(30 * (int64_t)FW_NS_PER_MS);
}

static int64_t latency_high(void)
{
    return around(300 * (int64_t)FW_NS_PER_MS);
}

static int64_t latency_highest(void)
{
    return around(3000 * (int64_t)FW_NS_PER_MS);
}

static void test_tenfold_step(void **state)
{
    (void)state;
    load_begin(latency_low);
    load_pass(5 * (int64_t)FW_NS_PER_S);
    assert_true(load.waits > 1000);
    load.latency = latency_high; /* All of a sudden, and for all. */
    load_pass(20 * (int64_t)FW_NS_PER_S);
    load.latency = latency_highest;
    load_pass(60 * (int64_t)FW_NS_PER_S);
    assert_true(load.waits > 2000);
    load_end();
}

/* Most are quick, one in a hundred is fifty times slower. */
static int64_t latency_bimodal(void)
{
    bool is_slow = fw_random_below(&load.draws, 100) == 0;
    return around(is_slow ? 1000 * FW_NS_PER_MS : 20 * FW_NS_PER_MS);
}

static void test_bimodal_latency(void **state)
{
    (void)state;
    load_begin(latency_low);
    load_pass(FW_NS_PER_S);
    load.latency = latency_high; /* So the slow ones are nothing new. */
    load_pass(5 * (int64_t)FW_NS_PER_S);
    load.latency = latency_bimodal;
    load_pass(200 * (int64_t)FW_NS_PER_S);
    assert_true(load.waits > 10000);
    load_end();
}

/* What was slow once is forgotten, so that later a hang is found sooner. */
static void test_forgets(void **state)
{
    (void)state;
    load_begin(latency_low);
    load_pass(FW_NS_PER_S);
    load.latency = latency_high;
    load_pass(10 * (int64_t)FW_NS_PER_S);
    struct fw_core *core = &hand.domain->cores[0];
    const struct fw_fom any = {.type_number = 0};
    int64_t before = fw_limit_ns(core, &any);
    assert_true(before > INT64_C(16) * 250 * (int64_t)FW_NS_PER_MS);
    load.latency = latency_low;
    load_pass(20 * (int64_t)FW_NS_PER_S);
    int64_t after = fw_limit_ns(core, &any);
    assert_true(after < before / 4);
    load.longest = 45 * (int64_t)FW_NS_PER_MS;
    load_end();
}

/* So are failures that have raised the limit, once waits end in time again. */
static void test_forgets_failures(void **state)
{
    (void)state;
    by_hand_begin(&hand, &config, &type);
    struct fw_core *core = &hand.domain->cores[0];
    const struct fw_fom any = {.type_number = 0};
    fw_limit_missed(core, &any, config.wait_max_ns / 2);
    assert_true(fw_limit_ns(core, &any) > config.wait_min_ns);
    for (int i = 0; i < 100 * 1000; i++) {
        fw_limit_observe(core, &any, 1);
    }
    assert_int_equal(fw_limit_ns(core, &any), config.wait_min_ns);
    by_hand_end(&hand);
}

/* Foms that are ready wait long for their ticks: those that wait for others are given longer. */
static void test_load_counts(void **state)
{
    (void)state;
    by_hand_begin(&hand, &config, &type);
    struct fw_core *core = &hand.domain->cores[0];
    const struct fw_fom any = {.type_number = 0};
    assert_int_equal(fw_limit_ns(core, &any), config.wait_min_ns);
    tick = crowd_tick;
    finished = 0;
    for (int i = 0; i < 100 * 64; i++) {
        (void)by_hand_start(&hand, &type, 0);
    }
    for (int i = 0; i < 50; i++) {
        by_hand_clock_ns += 20 * (int64_t)FW_NS_PER_MS; /* Such a round is slow. */
        by_hand_round(&hand, 0);
    }
    assert_true(fw_limit_ns(core, &any) > 2 * config.wait_min_ns);
    assert_int_equal(finished, 0);
    while (core->queue.length > 0) {
        by_hand_round(&hand, 0);
    }
    for (int i = 0; i < 200; i++) {
        by_hand_round(&hand, 0);
    }
    assert_int_equal(fw_limit_ns(core, &any), config.wait_min_ns);
    pass(config.wait_max_ns);
    by_hand_end(&hand);
}

static void test_limits_of_the_limit(void **state)
{
    (void)state;
    by_hand_begin(&hand, &config, &type);
    struct fw_core *core = &hand.domain->cores[0];
    const struct fw_fom any = {.type_number = 0};
    struct fw_random draws;
    fw_random_init(&draws, 3);
    int64_t peak = 0;
    for (int i = 0; i < 100 * 1000; i++) {
        int64_t waited = (int64_t)fw_random_below(&draws, UINT64_C(1) << (i / 2000));
        fw_limit_observe(core, &any, waited);
        peak = waited > peak ? waited : peak;
        core->queue_delay_ns = (int64_t)fw_random_below(&draws, UINT64_C(1) << (i / 2000));
        int64_t limit = fw_limit_ns(core, &any);
        assert_in_range(limit, config.wait_min_ns, config.wait_max_ns);
        assert_true(limit == config.wait_max_ns || limit >= 10 * waited);
        assert_true(limit == config.wait_max_ns || limit >= 10 * core->queue_delay_ns);
    }
    assert_true(16 * peak > config.wait_max_ns);
    core->queue_delay_ns = 0;
    by_hand_end(&hand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overdue_fails_within_the_bound),
        cmocka_unit_test(test_failures_raise_the_limit),
        cmocka_unit_test(test_event_and_limit_together),
        cmocka_unit_test(test_patient),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_many_waiters),
        cmocka_unit_test(test_tenfold_step),
        cmocka_unit_test(test_bimodal_latency),
        cmocka_unit_test(test_forgets),
        cmocka_unit_test(test_forgets_failures),
        cmocka_unit_test(test_load_counts),
        cmocka_unit_test(test_limits_of_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
