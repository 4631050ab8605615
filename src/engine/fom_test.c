/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a fom goes only where its type says it may; nobody gets past a standard phase that said no;
 * whatever goes wrong in whichever phase, the fom comes by FAILED, its `finish` is called once, and
 * nothing of it is left; an overload that is admitted piece by piece stays out of the run-queue.
 * Method: cores driven by hand. Every pair of phases is tried with each way to end a tick, and an
 * error is injected in each phase of a fom that holds memory, a clink and a timer.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/core.h"
#include "support/engine_by_hand.h"

enum { PHASE_A = FW_PHASE_FIRST, PHASE_B, PHASE_C };

#define BIT FW_PHASE_BIT

/* A may go on everywhere; B to C; C back to AUTHORISE, or to its end. */
static const struct fw_phase phases[] = {
    {"A", BIT(PHASE_B) | BIT(PHASE_C) | BIT(FW_PHASE_FINISHED), false},
    {"B", BIT(PHASE_C), false},
    {"C", BIT(FW_PHASE_AUTHORISE) | BIT(FW_PHASE_FINISHED), false},
};

static enum fw_step (*tick)(struct fw_fom *fom);
static int (*initialise)(struct fw_fom *fom);
static int finish_count;

static enum fw_step any_tick(struct fw_fom *fom)
{
    return tick(fom);
}

static int any_initialise(struct fw_fom *fom)
{
    return initialise != NULL ? initialise(fom) : 0;
}

struct holder {
    struct fw_fom fom;
    struct fw_clink clink;
    void *memory;
};

static void any_finish(struct fw_fom *fom)
{
    finish_count++;
    free(FW_FOM_OF(fom, struct holder)->memory);
}

static const struct fw_fom_type type = {
    .name = "test",
    .size = sizeof(struct holder),
    .limit_count = 4096,
    .phases = phases,
    .phase_count = FW_ARRAY_LENGTH(phases),
    .initialise = any_initialise,
    .tick = any_tick,
    .finish = any_finish,
};

static int setup(void **state)
{
    (void)state;
    tick = NULL;
    initialise = NULL;
    finish_count = 0;
    return 0;
}

/* ---- every pair of phases ---- */

static struct {
    unsigned from, to;
    enum fw_step step;
    bool is_done;     /* The step was taken. */
    unsigned reached; /* The first phase that had a tick after it. */
    int result;
    struct fw_ticket ticket;
} pair;

static enum fw_step pair_take(struct fw_fom *fom)
{
    pair.is_done = true;
    pair.ticket = fw_fom_ticket(fom);
    fom->next_phase = (uint8_t)pair.to;
    return pair.step;
}

/* In a phase that `from` led to: notes it and ends the fom. */
static enum fw_step pair_reached(struct fw_fom *fom)
{
    if (pair.reached == FW_PHASE_FINISHED) {
        pair.reached = fom->phase;
        pair.result = fom->result;
    }
    return fw_fom_fail(fom, -EIO);
}

static enum fw_step pair_standard(struct fw_fom *fom)
{
    if (pair.is_done) {
        return pair_reached(fom);
    }
    return fom->phase == pair.from ? pair_take(fom) : fw_fom_next(fom);
}

static enum fw_step pair_tick(struct fw_fom *fom)
{
    if (pair.is_done) {
        return pair_reached(fom);
    }
    if (fom->phase == pair.from) {
        return pair_take(fom);
    }
    assert_int_equal(fom->phase, PHASE_A);
    return pair.from == FW_PHASE_FAILED ? fw_fom_fail(fom, -EIO) : fw_fom_goto(fom, pair.from);
}

static bool pair_is_legal(void)
{
    static const uint64_t next[] = {
        [FW_PHASE_FAILED] = BIT(FW_PHASE_FINISHED),
        [FW_PHASE_AUTHENTICATE] = BIT(FW_PHASE_AUTHORISE),
        [FW_PHASE_AUTHORISE] = BIT(PHASE_A),
        [PHASE_A] = BIT(PHASE_B) | BIT(PHASE_C) | BIT(FW_PHASE_FINISHED),
        [PHASE_B] = BIT(PHASE_C),
        [PHASE_C] = BIT(FW_PHASE_AUTHORISE) | BIT(FW_PHASE_FINISHED),
    };
    return pair.to == pair.from || pair.to == FW_PHASE_FAILED ||
           (pair.to < 64 && (next[pair.from] & BIT(pair.to)) != 0);
}

static void pair_try(struct by_hand *hand)
{
    pair.is_done = false;
    pair.reached = FW_PHASE_FINISHED;
    pair.result = 0;
    int finished_before = finish_count;
    const struct fw_counter *counter = &hand->domain->cores[0].metrics->illegal_steps;
    uint64_t illegal_before = fw_counter_get(counter);
    (void)by_hand_start(hand, &type, 0);
    by_hand_round(hand, 0);
    for (int i = 0; i < 4; i++) {
        fw_ticket_wake(pair.ticket); /* If it waits where it went. */
        by_hand_round(hand, 0);
    }
    assert_true(pair.is_done);
    assert_int_equal(finish_count, finished_before + 1);
    assert_int_equal(by_hand_live(hand), 0);
    bool is_legal = pair_is_legal();
    assert_int_equal(fw_counter_get(counter), illegal_before + !is_legal);
    if (is_legal) {
        assert_int_equal(pair.reached, pair.to);
    } else if (pair.from == FW_PHASE_FAILED) {
        assert_int_equal(pair.reached, FW_PHASE_FINISHED); /* There is nowhere else left. */
    } else {
        assert_int_equal(pair.reached, FW_PHASE_FAILED);
        assert_int_equal(pair.result, -EPROTO);
    }
}

static void test_every_pair(void **state)
{
    (void)state;
    struct by_hand hand;
    by_hand_begin(&hand,
                  &(struct fw_domain_config){.locality_count = 1,
                                             .authenticate = pair_standard,
                                             .authorise = pair_standard},
                  &type);
    tick = pair_tick;
    static const unsigned froms[] = {
        FW_PHASE_FAILED, FW_PHASE_AUTHENTICATE, FW_PHASE_AUTHORISE, PHASE_A, PHASE_B, PHASE_C,
    };
    for (unsigned i = 0; i < FW_ARRAY_LENGTH(froms); i++) {
        pair.from = froms[i];
        for (pair.to = 0; pair.to <= UINT8_MAX; pair.to++) {
            for (int step = FW_STEP_AGAIN; step <= FW_STEP_WAIT; step++) {
                pair.step = (enum fw_step)step;
                pair_try(&hand);
            }
        }
    }
    by_hand_end(&hand);
}

/* ---- standard phases ---- */

static struct {
    int authenticated, authorised, specific, failed;
    int authenticate_error, authorise_error;
    int authorise_denied_from; /* The call from which on it says no. */
    int result;
} standard;

static enum fw_step standard_authenticate(struct fw_fom *fom)
{
    standard.authenticated++;
    int error = standard.authenticate_error;
    return error != 0 ? fw_fom_fail(fom, error) : fw_fom_next(fom);
}

static enum fw_step standard_authorise(struct fw_fom *fom)
{
    standard.authorised++;
    bool is_denied = standard.authorised >= standard.authorise_denied_from;
    return is_denied ? fw_fom_fail(fom, standard.authorise_error) : fw_fom_next(fom);
}

static enum fw_step standard_tick(struct fw_fom *fom)
{
    if (fom->phase == FW_PHASE_FAILED) {
        standard.failed++;
        standard.result = fom->result;
        return fw_fom_finish(fom);
    }
    standard.specific++;
    return fom->phase == PHASE_A ? fw_fom_goto(fom, PHASE_C) : fw_fom_goto(fom, FW_PHASE_AUTHORISE);
}

static int initialise_error;

static int failing_initialise(struct fw_fom *fom)
{
    assert_int_equal(fom->phase, FW_PHASE_INITIALISE);
    return initialise_error;
}

static void standard_run(void)
{
    struct by_hand hand;
    by_hand_begin(&hand,
                  &(struct fw_domain_config){.locality_count = 1,
                                             .authenticate = standard_authenticate,
                                             .authorise = standard_authorise},
                  &type);
    tick = standard_tick;
    initialise = failing_initialise;
    (void)by_hand_start(&hand, &type, 0);
    by_hand_run(&hand, 10);
    assert_int_equal(finish_count, 1);
    by_hand_end(&hand);
}

static void test_initialise_fails(void **state)
{
    (void)state;
    memset(&standard, 0, sizeof standard);
    initialise_error = -ENOMEM;
    standard_run();
    initialise_error = 0;
    assert_int_equal(standard.authenticated, 0);
    assert_int_equal(standard.authorised, 0);
    assert_int_equal(standard.specific, 0);
    assert_int_equal(standard.failed, 1);
    assert_int_equal(standard.result, -ENOMEM);
}

static void test_authenticate_fails(void **state)
{
    (void)state;
    memset(&standard, 0, sizeof standard);
    standard.authenticate_error = -EACCES;
    standard_run();
    assert_int_equal(standard.authenticated, 1);
    assert_int_equal(standard.authorised, 0);
    assert_int_equal(standard.specific, 0);
    assert_int_equal(standard.failed, 1);
    assert_int_equal(standard.result, -EACCES);
}

static void test_authorise_fails(void **state)
{
    (void)state;
    for (int denied_from = 1; denied_from < 4; denied_from++) {
        memset(&standard, 0, sizeof standard);
        finish_count = 0;
        standard.authorise_error = -EPERM;
        standard.authorise_denied_from = denied_from;
        standard_run();
        assert_int_equal(standard.authenticated, 1); /* Once, however often it is authorised. */
        assert_int_equal(standard.authorised, denied_from);
        assert_int_equal(standard.specific, 2 * (denied_from - 1));
        assert_int_equal(standard.failed, 1);
        assert_int_equal(standard.result, -EPERM);
    }
}

static struct fw_channel answer_channel;
static bool answer_is_there;

static enum fw_step authenticate_waits(struct fw_fom *fom)
{
    fw_fom_arm(fom, &FW_FOM_OF(fom, struct holder)->clink, &answer_channel);
    standard.authenticated++;
    return answer_is_there ? fw_fom_next(fom) : fw_fom_wait(fom, FW_PHASE_AUTHENTICATE);
}

static enum fw_step finishing_tick(struct fw_fom *fom)
{
    standard.specific++;
    standard.failed += fom->phase == FW_PHASE_FAILED;
    standard.result = fom->result;
    return fw_fom_finish(fom);
}

static void test_authenticate_waits(void **state)
{
    (void)state;
    struct by_hand hand;
    by_hand_begin(
        &hand, &(struct fw_domain_config){.locality_count = 1, .authenticate = authenticate_waits},
        &type);
    fw_channel_init_shared(&answer_channel, hand.domain);
    tick = finishing_tick;
    memset(&standard, 0, sizeof standard);
    answer_is_there = false;
    (void)by_hand_start(&hand, &type, 0);
    by_hand_run(&hand, 3);
    assert_int_equal(standard.authenticated, 1);
    assert_int_equal(standard.specific, 0);
    answer_is_there = true;
    assert_true(fw_channel_signal(&answer_channel));
    by_hand_run(&hand, 2);
    assert_int_equal(standard.authenticated, 2);
    assert_int_equal(standard.specific, 1);
    assert_int_equal(finish_count, 1);

    /* Such a wait is limited as any other. */
    memset(&standard, 0, sizeof standard);
    answer_is_there = false;
    (void)by_hand_start(&hand, &type, 0);
    by_hand_run(&hand, 1);
    by_hand_clock_ns += FW_NS_PER_S + FW_DETECTION_BOUND_NS;
    by_hand_run(&hand, 2);
    assert_int_equal(standard.failed, 1);
    assert_int_equal(standard.result, -ETIMEDOUT);
    assert_int_equal(finish_count, 2);
    fw_channel_fini(&answer_channel);
    by_hand_end(&hand);
}

/* ---- an error in each phase ---- */

static struct {
    unsigned phase; /* Where it goes wrong. */
    bool waits;     /* In FAILED, before it ends. */
    int failed;
    struct fw_channel channel;
    struct fw_fom *fom;
} fault;

/* Holds all that a fom can hold. */
static void fault_hold(struct fw_fom *fom)
{
    struct holder *self = FW_FOM_OF(fom, struct holder);
    fw_fom_arm(fom, &self->clink, &fault.channel);
    (void)fw_fom_wait_until(fom, fom->phase, by_hand_clock_ns + FW_NS_PER_S);
}

static int fault_initialise(struct fw_fom *fom)
{
    FW_FOM_OF(fom, struct holder)->memory = malloc(100);
    if (fault.phase == FW_PHASE_INITIALISE) {
        fault_hold(fom);
        return -EIO;
    }
    return 0;
}

static enum fw_step fault_standard(struct fw_fom *fom)
{
    fault_hold(fom);
    return fom->phase == fault.phase ? fw_fom_fail(fom, -EIO) : fw_fom_next(fom);
}

static enum fw_step fault_tick(struct fw_fom *fom)
{
    fault_hold(fom);
    if (fom->phase == FW_PHASE_FAILED) {
        fault.failed++;
        assert_int_equal(fom->result, -EIO);
        if (fault.waits && !fw_fom_timed_out(fom)) {
            return fw_fom_wait_until(fom, FW_PHASE_FAILED, by_hand_clock_ns + FW_NS_PER_S);
        }
        return fault.phase == FW_PHASE_FAILED ? fw_fom_fail(fom, -ENOSPC) : fw_fom_finish(fom);
    }
    if (fom->phase == fault.phase || fom->phase == PHASE_C) {
        return fw_fom_fail(fom, -EIO);
    }
    return fw_fom_goto(fom, fom->phase + 1U);
}

static void test_error_in_each_phase(void **state)
{
    (void)state;
    struct by_hand hand;
    by_hand_begin(&hand,
                  &(struct fw_domain_config){.locality_count = 1,
                                             .authenticate = fault_standard,
                                             .authorise = fault_standard},
                  &type);
    fw_channel_init_shared(&fault.channel, hand.domain);
    tick = fault_tick;
    initialise = fault_initialise;
    for (fault.phase = FW_PHASE_FAILED; fault.phase <= PHASE_C; fault.phase++) {
        for (int waits = 0; waits < 2; waits++) {
            finish_count = 0;
            fault.waits = waits;
            fault.failed = 0;
            (void)by_hand_start(&hand, &type, 0);
            by_hand_round(&hand, 0);
            assert_int_equal(finish_count, !waits);
            by_hand_clock_ns += FW_NS_PER_S + FW_DETECTION_BOUND_NS;
            by_hand_round(&hand, 0);
            assert_int_equal(finish_count, 1);
            assert_int_equal(fault.failed, 1 + waits);
            assert_int_equal(by_hand_live(&hand), 0);
            assert_false(fw_channel_signal(&fault.channel)); /* No clink was left behind. */
            assert_int_equal(hand.domain->cores[0].wheel.pending_count, 0);
        }
    }
    fw_channel_fini(&fault.channel);
    by_hand_end(&hand);
}

static enum fw_step silent_failure(struct fw_fom *fom)
{
    if (fom->phase == FW_PHASE_FAILED) {
        standard.result = fom->result;
        return fw_fom_finish(fom);
    }
    return fw_fom_goto(fom, FW_PHASE_FAILED);
}

/* Who fails without saying why has a reason all the same. */
static void test_failure_has_a_result(void **state)
{
    (void)state;
    struct by_hand hand;
    by_hand_begin(&hand, &(struct fw_domain_config){.locality_count = 1}, &type);
    tick = silent_failure;
    standard.result = 0;
    (void)by_hand_start(&hand, &type, 0);
    by_hand_round(&hand, 0);
    assert_true(standard.result < 0);
    assert_int_equal(finish_count, 1);
    by_hand_end(&hand);
}

/* ---- types that contradict themselves, limits ---- */

static void refuse(struct fw_domain *domain, struct fw_fom_type bad)
{
    assert_int_equal(fw_domain_add_type(domain, &bad), -EINVAL);
}

static void test_unsound_types(void **state)
{
    (void)state;
    struct fw_domain *domain;
    assert_int_equal(fw_domain_create(&domain, &(struct fw_domain_config){.locality_count = 1}), 0);
    atomic_store(&fw_log_module_engine.level, -1);
    struct fw_fom_type bad = type;
    bad.name = NULL;
    refuse(domain, bad);
    bad = type;
    bad.tick = NULL;
    refuse(domain, bad);
    bad = type;
    bad.size = sizeof(struct fw_fom) - 1;
    refuse(domain, bad);
    bad.size = FW_FOM_SIZE_MAX + 1;
    refuse(domain, bad);
    bad = type;
    bad.limit_count = 0;
    refuse(domain, bad);
    bad = type;
    bad.phases = NULL;
    refuse(domain, bad);
    bad = type;
    bad.phase_count = 0;
    refuse(domain, bad);
    bad.phase_count = FW_PHASES_MAX - FW_PHASE_FIRST + 1;
    refuse(domain, bad);
    static const uint64_t nonsense[] = {BIT(PHASE_C + 1), BIT(63), BIT(FW_PHASE_INITIALISE),
                                        BIT(FW_PHASE_AUTHENTICATE)};
    for (unsigned i = 0; i < FW_ARRAY_LENGTH(nonsense); i++) {
        struct fw_phase wrong[FW_ARRAY_LENGTH(phases)];
        memcpy(wrong, phases, sizeof wrong);
        wrong[2].next |= nonsense[i];
        bad = type;
        bad.phases = wrong;
        refuse(domain, bad);
        memcpy(wrong, phases, sizeof wrong);
        wrong[1].name = NULL;
        refuse(domain, bad);
    }
    assert_int_equal(domain->type_count, 0);
    for (int i = 0; i < FW_FOM_TYPES_MAX; i++) {
        assert_int_equal(fw_domain_add_type(domain, &type), 0);
    }
    assert_int_not_equal(fw_domain_add_type(domain, &type), 0);
    fw_domain_destroy(domain);
}

static void test_limit_count(void **state)
{
    (void)state;
    struct by_hand hand;
    struct fw_fom_type few = type;
    few.limit_count = 2;
    by_hand_begin(&hand, &(struct fw_domain_config){.locality_count = 1}, &few);
    struct fw_fom *first = by_hand_create(&hand, &few, 0);
    struct fw_fom *second = by_hand_create(&hand, &few, 0);
    struct fw_fom *third = NULL;
    struct fw_locality *home = fw_domain_locality(hand.domain, 0);
    assert_int_equal(fw_fom_create(&third, hand.domain, &few, home), -ENOMEM);
    assert_int_equal(by_hand_live(&hand), 2);
    fw_fom_discard(first);
    assert_int_equal(fw_fom_create(&third, hand.domain, &few, home), 0);
    fw_fom_discard(second);
    fw_fom_discard(third);
    assert_int_equal(finish_count, 0); /* Who never began does not end. */
    by_hand_end(&hand);
}

/* All of the user's struct is zero, also where another fom was before. */
static enum fw_step soiling_tick(struct fw_fom *fom)
{
    memset((char *)fom + sizeof *fom, 0xa5, sizeof(struct holder) - sizeof *fom);
    FW_FOM_OF(fom, struct holder)->memory = NULL;
    return fw_fom_finish(fom);
}

static int zero_initialise(struct fw_fom *fom)
{
    static const char zeroes[sizeof(struct holder) - sizeof(struct fw_fom)];
    assert_memory_equal((char *)fom + sizeof *fom, zeroes, sizeof zeroes);
    return 0;
}

static void test_born_zeroed(void **state)
{
    (void)state;
    struct by_hand hand;
    by_hand_begin(&hand, &(struct fw_domain_config){.locality_count = 1}, &type);
    tick = soiling_tick;
    initialise = zero_initialise;
    uint64_t id = 0;
    for (int i = 0; i < 3; i++) {
        struct fw_fom *fom = by_hand_start(&hand, &type, 0);
        assert_int_not_equal(fom->id, id);
        id = fom->id;
        by_hand_round(&hand, 0);
    }
    assert_int_equal(finish_count, 3);
    by_hand_end(&hand);
}

/* ---- order of ticks ---- */

static uint64_t order[64];
static uint32_t order_count;
static int yields;

static enum fw_step ordered_tick(struct fw_fom *fom)
{
    order[order_count++] = fom->id;
    return order_count > (uint32_t)yields ? fw_fom_finish(fom) : fw_fom_yield(fom, PHASE_A);
}

/* Who yields goes behind all others that are ready. */
static void test_yield_order(void **state)
{
    (void)state;
    struct by_hand hand;
    by_hand_begin(&hand, &(struct fw_domain_config){.locality_count = 1}, &type);
    tick = ordered_tick;
    order_count = 0;
    yields = 9;
    uint64_t first = by_hand_start(&hand, &type, 0)->id;
    (void)by_hand_start(&hand, &type, 0);
    (void)by_hand_start(&hand, &type, 0);
    by_hand_run(&hand, 10);
    assert_int_equal(order_count, 12);
    for (uint32_t i = 0; i < order_count; i++) {
        assert_int_equal(order[i], first + i % 3);
    }
    by_hand_end(&hand);
}

static uint32_t greedy_ticks;

static enum fw_step greedy_tick(struct fw_fom *fom)
{
    if (fom->priority == 0) {
        return greedy_ticks > 1000 ? fw_fom_finish(fom)
                                   : (greedy_ticks++, fw_fom_goto(fom, PHASE_A));
    }
    order[order_count++] = greedy_ticks;
    return fw_fom_finish(fom);
}

/* Who goes on and on goes behind the others after a quantum, however urgent it is. */
static void test_quantum(void **state)
{
    (void)state;
    struct by_hand hand;
    by_hand_begin(&hand, &(struct fw_domain_config){.locality_count = 1}, &type);
    tick = greedy_tick;
    order_count = 0;
    greedy_ticks = 0;
    struct fw_fom *urgent = by_hand_create(&hand, &type, 0);
    fw_fom_set_priority(urgent, 0);
    fw_fom_start(urgent);
    (void)by_hand_start(&hand, &type, 0);
    by_hand_run(&hand, 100);
    assert_int_equal(order_count, 1);
    assert_true(order[0] > 0 && order[0] <= UINT64_C(64) * FW_FOM_QUANTUM);
    assert_true(greedy_ticks > 1000);
    by_hand_end(&hand);
}

/* ---- overload ---- */

static struct {
    struct fw_resource admission;
    bool is_used;
    uint32_t done;
} overload;

struct request {
    struct fw_fom fom;
    struct fw_claim claim;
    uint32_t work;
};

enum { REQUEST_WORK = 300, ARRIVALS = 10, ADMITTED = 8, OVERLOAD_ROUNDS = 200 };

static enum fw_step request_tick(struct fw_fom *fom)
{
    struct request *self = FW_FOM_OF(fom, struct request);
    if (overload.is_used && !fw_resource_get(&overload.admission, fom, &self->claim, 1)) {
        return fw_fom_wait(fom, PHASE_A);
    }
    return self->work++ < REQUEST_WORK ? fw_fom_yield(fom, PHASE_A) : fw_fom_finish(fom);
}

static void request_finish(struct fw_fom *fom)
{
    fw_resource_put(&overload.admission, &FW_FOM_OF(fom, struct request)->claim);
    overload.done++;
}

static const struct fw_fom_type request_type = {
    .name = "request",
    .size = sizeof(struct request),
    .limit_count = ARRIVALS * OVERLOAD_ROUNDS,
    .phases = phases,
    .phase_count = FW_ARRAY_LENGTH(phases),
    .tick = request_tick,
    .finish = request_finish,
};

/* More arrives in each round than a round can do. Returns how long the run-queue got. */
static uint32_t overload_run(bool is_used)
{
    struct by_hand hand;
    by_hand_begin(&hand, &(struct fw_domain_config){.locality_count = 1}, &request_type);
    fw_resource_init(&overload.admission, hand.domain, ADMITTED);
    overload.is_used = is_used;
    overload.done = 0;
    uint32_t longest = 0;
    for (int i = 0; i < OVERLOAD_ROUNDS; i++) {
        for (int k = 0; k < ARRIVALS; k++) {
            (void)by_hand_start(&hand, &request_type, 0);
        }
        by_hand_round(&hand, 0);
        uint32_t length = hand.domain->cores[0].queue.length;
        longest = length > longest ? length : longest;
    }
    by_hand_run(&hand, 1 << 20);
    assert_int_equal(overload.done, ARRIVALS * OVERLOAD_ROUNDS);
    fw_resource_fini(&overload.admission);
    by_hand_end(&hand);
    return longest;
}

static void test_overload_waits_outside(void **state)
{
    (void)state;
    assert_in_range(overload_run(true), 1, ADMITTED);
    assert_true(overload_run(false) > ARRIVALS * OVERLOAD_ROUNDS / 2); /* It was an overload. */
}

/* ---- a message does not wait for the end of a long round ---- */

static struct {
    struct fw_message message;
    bool is_sent, is_there;
    uint32_t ticks_before; /* It was received. */
} letter;

static void letter_run(struct fw_message *message)
{
    (void)message;
    letter.is_there = true;
}

static enum fw_step sender_tick(struct fw_fom *fom)
{
    if (!letter.is_sent) {
        letter.is_sent = true;
        fw_locality_send(fw_fom_home(fom), &letter.message);
    }
    letter.ticks_before += !letter.is_there;
    return letter.is_there ? fw_fom_finish(fom) : fw_fom_yield(fom, PHASE_A);
}

static const struct fw_fom_type sender_type = {
    .name = "sender",
    .size = sizeof(struct fw_fom),
    .limit_count = 2,
    .phases = phases,
    .phase_count = FW_ARRAY_LENGTH(phases),
    .tick = sender_tick,
};

static void test_mail_within_a_round(void **state)
{
    (void)state;
    struct by_hand hand;
    by_hand_begin(&hand, &(struct fw_domain_config){.locality_count = 1}, &sender_type);
    memset(&letter, 0, sizeof letter);
    letter.message.run = letter_run;
    hand.domain->cores[0].round_ticks = 1024;
    (void)by_hand_start(&hand, &sender_type, 0);
    by_hand_round(&hand, 0);
    assert_true(letter.is_there);
    assert_in_range(letter.ticks_before, 1, 64);
    by_hand_end(&hand);
}

/* ---- nor does the outside, when ticks are longer than those before ---- */

static uint32_t long_ticks;

static enum fw_step long_tick(struct fw_fom *fom)
{
    by_hand_clock_ns += 50000;
    return ++long_ticks == 100 ? fw_fom_finish(fom) : fw_fom_yield(fom, PHASE_A);
}

static const struct fw_fom_type long_type = {
    .name = "long",
    .size = sizeof(struct fw_fom),
    .limit_count = 1,
    .phases = phases,
    .phase_count = FW_ARRAY_LENGTH(phases),
    .tick = long_tick,
};

static void test_long_ticks_end_a_round(void **state)
{
    (void)state;
    struct by_hand hand;
    by_hand_begin(&hand, &(struct fw_domain_config){.locality_count = 1}, &long_type);
    long_ticks = 0;
    hand.domain->cores[0].round_ticks = 1024; /* As after many short ones. */
    (void)by_hand_start(&hand, &long_type, 0);
    by_hand_round(&hand, 0);
    assert_in_range(long_ticks, 1, 16);
    by_hand_end(&hand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_every_pair, setup),
        cmocka_unit_test_setup(test_initialise_fails, setup),
        cmocka_unit_test_setup(test_authenticate_fails, setup),
        cmocka_unit_test_setup(test_authorise_fails, setup),
        cmocka_unit_test_setup(test_authenticate_waits, setup),
        cmocka_unit_test_setup(test_error_in_each_phase, setup),
        cmocka_unit_test_setup(test_failure_has_a_result, setup),
        cmocka_unit_test_setup(test_unsound_types, setup),
        cmocka_unit_test_setup(test_limit_count, setup),
        cmocka_unit_test_setup(test_born_zeroed, setup),
        cmocka_unit_test_setup(test_yield_order, setup),
        cmocka_unit_test_setup(test_quantum, setup),
        cmocka_unit_test_setup(test_overload_waits_outside, setup),
        cmocka_unit_test(test_mail_within_a_round),
        cmocka_unit_test(test_long_ticks_end_a_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
