/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what <fairway/sched.h> promises, for every policy: each get_next() is answered once, each
 * request given out once, none is lost, given back ones come first, shutdown ends it all, and so
 * does nothing but the first epoch begin it.
 * Method: every test is run with every policy. Requests with numbers, in structs all of whose other
 * bytes are poisoned; getters that write down what they got, and a depth that shows whether
 * call-backs nest. A random run compares counts with a model, while policies are switched, time
 * passes and tenants are held back by their rates. Memory that is allocated would fail, and be
 * missed. Time is a number here.
 */
#include <fairway/sched.h>

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "io/clock.h"
#include "io/random.h"
#include "sched/policy.h"
#include "support/fail_memory.h"

enum { REQUESTS = 1000, GETTERS = 50, STEPS = 100000, POISON = 0xa5, TENANTS = 7 };

struct sender {
    unsigned char before[32];
    struct fw_sched_request request;
    unsigned char behind[32];
    bool is_inside;
    uint32_t given_count;
};

struct taker {
    struct fw_sched_getter getter;
    bool is_waiting;
    bool asks_again; /* From inside its call-back. */
    int refuses;     /* So many times. */
    uint32_t call_count;
    struct fw_sched_request *got;
};

static struct fw_sched sched;
static struct fw_tenants *tenants;
static int64_t clock_ns;
static int64_t armed_ns;
static struct sender senders[REQUESTS];
static struct taker takers[GETTERS];
static uint32_t order[REQUESTS * 2]; /* Numbers of senders as they were given out. */
static uint32_t order_count;
static uint32_t depth;

static int taker_ready(struct fw_sched_getter *getter, struct fw_sched_request *request)
{
    struct taker *taker = FW_CONTAINER_OF(getter, struct taker, getter);
    assert_int_equal(++depth, 1);
    assert_true(taker->is_waiting);
    taker->is_waiting = false;
    taker->call_count++;
    taker->got = request;
    bool refuses = request != NULL && taker->refuses > 0;
    taker->refuses -= refuses;
    if (request != NULL && !refuses) {
        struct sender *sender = FW_CONTAINER_OF(request, struct sender, request);
        assert_true(sender->is_inside);
        assert_false(fw_sched_is_waiting(request));
        sender->is_inside = false;
        sender->given_count++;
        order[order_count++ % FW_ARRAY_LENGTH(order)] = (uint32_t)(sender - senders);
    }
    if (taker->asks_again && request != NULL) {
        taker->is_waiting = true;
        fw_sched_get_next(&sched, getter);
    }
    depth--;
    return refuses ? -1 : 0;
}

static void ask(uint32_t number)
{
    assert_false(takers[number].is_waiting);
    takers[number].is_waiting = true;
    fw_sched_get_next(&sched, &takers[number].getter);
}

static void arrive(uint32_t number)
{
    senders[number].is_inside = true;
    fw_sched_incoming(&sched, &senders[number].request);
}

static int64_t test_clock(void)
{
    return clock_ns;
}

static const struct fw_clock_hooks clock_hooks = {.now_ns = test_clock, .wall_ns = test_clock};

static void arm(struct fw_sched *self, int64_t when_ns)
{
    assert_ptr_equal(self, &sched);
    armed_ns = when_ns;
}

/* All that incoming() may look at is the class, and the link, which is the head's. */
static void sender_make(uint32_t number, const struct fw_sched_class *class)
{
    memset(&senders[number], POISON, sizeof senders[number]);
    senders[number].request.link = (struct fw_list_link){0};
    senders[number].request.class = *class;
    senders[number].is_inside = false;
    senders[number].given_count = 0;
}

static void world_make(void)
{
    for (uint32_t i = 0; i < REQUESTS; i++) {
        sender_make(i, &(struct fw_sched_class){.client = i, .cost = 1});
    }
    memset(takers, 0, sizeof takers);
    for (uint32_t i = 0; i < GETTERS; i++) {
        takers[i].getter.ready = taker_ready;
    }
    order_count = 0;
    depth = 0;
    clock_ns = 1000000000;
    armed_ns = INT64_MAX;
    fw_clock_hooks = &clock_hooks;
}

static enum fw_sched_policy_number policy_of(void **state)
{
    return (enum fw_sched_policy_number)(uintptr_t)*state;
}

static int setup(void **state)
{
    world_make();
    return fw_sched_init(&sched, &(struct fw_sched_config){.policy = policy_of(state)});
}

/* Tenants with all kinds of dues: the last three have rates. */
static int setup_tenants(void **state)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    struct fw_tenant_config configs[TENANTS - 1];
    world_make();
    for (uint32_t i = 0; i < TENANTS - 1; i++) {
        configs[i] = (struct fw_tenant_config){
            .name = names[i], .weight = i + 1, .rate = i < 3 ? 0 : 1000 * i};
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        sender_make(i, &(struct fw_sched_class){.tenant = i % (TENANTS + 1),
                                                .client = i / 3,
                                                .cost = 1 + i % 5,
                                                .is_urgent = i % 10 == 0});
    }
    int rc = fw_tenants_create(&tenants);
    assert_int_equal(rc, 0);
    rc = fw_tenants_configure(tenants, configs, FW_ARRAY_LENGTH(configs));
    assert_int_equal(rc, 0);
    return fw_sched_init(&sched, &(struct fw_sched_config){
                                     .policy = policy_of(state), .tenants = tenants, .arm = arm});
}

static int teardown(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        for (size_t j = 0; j < sizeof senders[i].before; j++) {
            assert_int_equal(senders[i].before[j], POISON);
            assert_int_equal(senders[i].behind[j], POISON);
        }
    }
    fw_sched_fini(&sched);
    fw_clock_hooks = NULL;
    return 0;
}

static int teardown_tenants(void **state)
{
    teardown(state);
    assert_int_equal(armed_ns, INT64_MAX); /* It was taken back. */
    fw_tenants_destroy(tenants);
    return 0;
}

static void finish(void)
{
    fw_sched_shutdown(&sched);
    for (uint32_t i = 0; i < GETTERS; i++) {
        while (sched.waiting_count > 0) {
            ask(i);
        }
    }
}

/* One request per client, and one tenant: any policy serves them as they came. */
static void test_order_among_equals(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 10; i++) {
        arrive(i);
        assert_true(fw_sched_is_waiting(&senders[i].request));
    }
    for (uint32_t i = 0; i < 10; i++) {
        ask(0);
        assert_ptr_equal(takers[0].got, &senders[i].request);
        assert_int_equal(takers[0].call_count, i + 1);
    }
    assert_int_equal(sched.admitted_count, 10);
    assert_int_equal(sched.passed_count, 0);
    finish();
}

/* A getter that waits gets who comes, at once; those that wait are served in their order. */
static void test_straight_through(void **state)
{
    (void)state;
    ask(0);
    ask(1);
    assert_int_equal(takers[0].call_count + takers[1].call_count, 0);
    arrive(7);
    assert_ptr_equal(takers[0].got, &senders[7].request);
    arrive(8);
    assert_ptr_equal(takers[1].got, &senders[8].request);
    assert_int_equal(sched.passed_count, 2);
    assert_int_equal(sched.admitted_count, 2);
    assert_int_equal(sched.waiting_count, 0);
    finish();
}

/* However much waits, a call-back that asks for the next is not called from inside itself. */
static void test_call_backs_do_not_nest(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        arrive(i);
    }
    takers[0].asks_again = true;
    ask(0);
    assert_int_equal(takers[0].call_count, REQUESTS);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        assert_int_equal(order[i], i);
    }
    arrive(5); /* It waits still, so this one passes. */
    assert_int_equal(takers[0].call_count, REQUESTS + 1);
    assert_true(takers[0].is_waiting);
    assert_int_equal(sched.passed_count, 1);
    finish();
    assert_null(takers[0].got);
}

/* What a getter does not want is the next for another, before all that came later. */
static void test_given_back(void **state)
{
    (void)state;
    takers[0].refuses = 1;
    arrive(1);
    arrive(2);
    ask(0);
    assert_int_equal(takers[0].call_count, 1);
    assert_true(fw_sched_is_waiting(&senders[1].request));
    ask(1);
    ask(2);
    assert_ptr_equal(takers[1].got, &senders[1].request);
    assert_ptr_equal(takers[2].got, &senders[2].request);
    /* The same where it would have gone straight through. */
    takers[3].refuses = 1;
    ask(3);
    arrive(3);
    assert_int_equal(takers[3].call_count, 1);
    assert_true(fw_sched_is_waiting(&senders[3].request));
    assert_int_equal(sched.admitted_count, 2);
    ask(4);
    assert_ptr_equal(takers[4].got, &senders[3].request);
    finish();
}

/* If another waits it goes there at once. */
static void test_given_back_to_another(void **state)
{
    (void)state;
    takers[0].refuses = 1;
    ask(0);
    ask(1);
    arrive(1);
    assert_ptr_equal(takers[1].got, &senders[1].request);
    assert_int_equal(senders[1].given_count, 1);
    assert_int_equal(sched.admitted_count, 1);
    finish();
}

static void test_cancel(void **state)
{
    (void)state;
    arrive(1);
    arrive(2);
    arrive(3);
    fw_sched_cancel(&sched, &senders[2].request);
    assert_false(fw_sched_is_waiting(&senders[2].request));
    ask(0);
    ask(1);
    assert_ptr_equal(takers[1].got, &senders[3].request);
    ask(2);
    assert_int_equal(takers[2].call_count, 0);
    arrive(2);
    assert_ptr_equal(takers[2].got, &senders[2].request);
    finish();
}

/* What waits is given out first; then all getters get NULL, those that wait and later ones. */
static void test_shutdown(void **state)
{
    (void)state;
    arrive(1);
    arrive(2);
    fw_sched_shutdown(&sched);
    ask(0);
    assert_ptr_equal(takers[0].got, &senders[1].request);
    fw_sched_cancel(&sched, &senders[2].request);
    takers[0].got = &senders[0].request;
    ask(0);
    assert_int_equal(takers[0].call_count, 2);
    assert_null(takers[0].got);
    expect_assert_failure(fw_sched_incoming(&sched, &senders[3].request));
}

static void test_shutdown_answers_who_waits(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        takers[i].got = &senders[i].request;
        ask(i);
    }
    fw_sched_shutdown(&sched);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(takers[i].call_count, 1);
        assert_null(takers[i].got);
    }
}

/* Counts of a random run. */
struct tally {
    uint64_t asked;
    uint64_t came;
    uint64_t cancelled;
    uint64_t given;   /* As the senders know it. */
    uint64_t inside;  /* Likewise. */
    uint64_t waiting; /* Getters. */
};

static void tally_check(struct tally *tally)
{
    uint64_t answered = 0;
    tally->given = 0;
    tally->inside = 0;
    tally->waiting = 0;
    for (uint32_t i = 0; i < GETTERS; i++) {
        answered += takers[i].call_count;
        tally->waiting += takers[i].is_waiting;
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        tally->given += senders[i].given_count;
        tally->inside += senders[i].is_inside;
        assert_int_equal(senders[i].is_inside, fw_sched_is_waiting(&senders[i].request));
    }
    assert_int_equal(tally->asked, answered + tally->waiting);
    assert_int_equal(tally->came, tally->given + tally->inside + tally->cancelled);
    assert_int_equal(sched.admitted_count, tally->given);
    assert_int_equal(sched.waiting_count, tally->inside);
}

static void step(struct fw_random *dice, struct tally *tally)
{
    uint32_t taker = (uint32_t)fw_random_below(dice, GETTERS);
    uint32_t sender = (uint32_t)fw_random_below(dice, REQUESTS);
    bool is_inside = senders[sender].is_inside;
    if (fw_random_below(dice, 2) == 0 && !takers[taker].is_waiting) {
        takers[taker].refuses = fw_random_below(dice, 8) == 0 ? 1 : 0;
        tally->asked++;
        ask(taker);
    } else if (!is_inside) {
        tally->came++;
        arrive(sender);
    } else if (fw_random_below(dice, 4) == 0) {
        tally->cancelled++;
        fw_sched_cancel(&sched, &senders[sender].request);
        senders[sender].is_inside = false;
    }
}

static void assert_nobody_allocated(void)
{
    void *volatile memory = malloc(1); /* Else the compiler may do without it. */
    bool has_failed = memory == NULL;  /* Nobody else has asked for any. */
    free(memory);
    assert_true(has_failed);
}

/* N getters and M requests in any order: who asked was answered once, what came was given once. */
static void test_bijection(void **state)
{
    (void)state;
    struct fw_random dice;
    struct tally tally = {0};
    fw_random_init(&dice, 1);
    fail_memory_after(0);
    for (uint32_t i = 0; i < STEPS; i++) {
        step(&dice, &tally);
    }
    assert_nobody_allocated();
    tally_check(&tally);
    assert_true(tally.waiting == 0 || tally.inside == 0);
    finish();
}

/* What a sender is charged after it was served, or not at all. */
static void charge_some(struct fw_random *dice)
{
    const struct sender *sender = &senders[fw_random_below(dice, REQUESTS)];
    if (sender->given_count > 0 && !sender->is_inside) {
        fw_sched_charge(&sched, &sender->request, (uint32_t)fw_random_below(dice, 50));
    }
}

/* The figures of all tenants say what happened. */
static void figures_check(const struct tally *tally)
{
    struct fw_tenant_figures sum = {0};
    for (uint32_t i = 0; i < TENANTS; i++) {
        struct fw_tenant_figures figures;
        fw_tenants_read(tenants, i, NULL, &figures);
        uint64_t delays = 0;
        for (uint32_t j = 0; j < FW_SCHED_DELAYS; j++) {
            delays += figures.delay_count[j];
        }
        assert_int_equal(delays, figures.served);
        sum.served += figures.served;
        sum.delayed += figures.delayed;
        sum.waiting += figures.waiting;
        sum.shed += figures.shed;
    }
    assert_int_equal(sum.served, tally->given);
    assert_int_equal(sum.waiting, tally->inside);
    assert_int_equal(sum.served - sum.delayed, sched.passed_count);
    assert_int_equal(sum.shed, 0);
}

/* A policy of the user's own that has room for three, and leaves the rest to the head. */
static struct fw_list few;
static uint32_t few_count;

static int few_init(struct fw_sched *self)
{
    (void)self;
    fw_sched_list_init(&few);
    few_count = 0;
    return 0;
}

static bool few_enqueue(struct fw_sched *self, struct fw_sched_request *request)
{
    (void)self;
    if (few_count == 3) {
        return false;
    }
    few_count++;
    fw_sched_list_push(&few, request);
    return true;
}

static struct fw_sched_request *few_dequeue(struct fw_sched *self)
{
    (void)self;
    struct fw_sched_request *request = fw_sched_list_pop(&few);
    few_count -= request != NULL;
    return request;
}

static void few_remove(struct fw_sched *self, struct fw_sched_request *request)
{
    (void)self;
    few_count--;
    fw_sched_list_remove(request);
}

static const struct fw_sched_policy few_policy = {.name = "few",
                                                  .init = few_init,
                                                  .enqueue = few_enqueue,
                                                  .dequeue = few_dequeue,
                                                  .remove = few_remove};

/* What the policy has no place for is served too, however much comes that it has a place for. */
static void test_policy_without_room(void **state)
{
    (void)state;
    assert_int_equal(fw_sched_switch_custom(&sched, &few_policy), 0);
    for (uint32_t i = 0; i < 10; i++) {
        arrive(i);
    }
    uint32_t rounds = 0;
    while (senders[3].given_count == 0) { /* The first that it had no place for. */
        assert_true(++rounds <= FW_SCHED_URGENT_RATIO);
        ask(0);
        arrive(order[order_count - 1]);
    }
    finish();
}

/*
 * The same while time passes, tenants are held back, costs are corrected, dues change and policies
 * are switched: none is lost, doubled or stuck.
 */
static void test_switching(void **state)
{
    (void)state;
    struct fw_random dice;
    struct tally tally = {0};
    fw_random_init(&dice, 2);
    uint64_t switched = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        step(&dice, &tally);
        charge_some(&dice);
        clock_ns += (int64_t)fw_random_below(&dice, 20000);
        if (armed_ns <= clock_ns) {
            armed_ns = INT64_MAX;
            fw_sched_poll(&sched);
        }
        if (fw_random_below(&dice, 50) == 0) {
            uint64_t other = fw_random_below(&dice, FW_SCHED_POLICIES + 1);
            int rc = other == FW_SCHED_POLICIES
                         ? fw_sched_switch_custom(&sched, &few_policy)
                         : fw_sched_switch(&sched, (enum fw_sched_policy_number)other);
            assert_int_equal(rc, 0);
            switched++;
        }
        if (i % 1000 == 0) {
            tally_check(&tally);
            figures_check(&tally);
        }
    }
    assert_true(switched > 1000);
    tally_check(&tally);
    assert_true(tally.inside > 0);
    fw_sched_shutdown(&sched);
    for (uint32_t i = 0; i < GETTERS; i++) {
        takers[i].refuses = 0;
        while (sched.waiting_count > 0) {
            tally.asked++;
            ask(i);
        }
    }
    tally_check(&tally);
    assert_int_equal(tally.inside, 0);
    figures_check(&tally);
}

/* With tenants and their rates, handing in allocates no more than without. */
static void test_tenants_without_memory(void **state)
{
    (void)state;
    struct fw_random dice;
    struct tally tally = {0};
    fw_random_init(&dice, 3);
    fail_memory_after(0);
    for (uint32_t i = 0; i < STEPS; i++) {
        step(&dice, &tally);
        clock_ns += (int64_t)fw_random_below(&dice, 20000);
        fw_sched_poll(&sched);
    }
    assert_nobody_allocated();
    tally_check(&tally);
    figures_check(&tally);
    finish();
}

/* A switch that finds no memory changes nothing. */
static void test_switch_without_memory(void **state)
{
    (void)state;
    const struct fw_sched_policy *before = sched.policy;
    for (uint32_t i = 0; i < 20; i++) {
        arrive(i);
    }
    for (int other = 0; other < FW_SCHED_POLICIES; other++) {
        for (int good = 0; fw_sched_policies[other] != before; good++) {
            fail_memory_after(good);
            int rc = fw_sched_switch(&sched, (enum fw_sched_policy_number)other);
            if (rc == 0) {
                break;
            }
            assert_int_equal(rc, -ENOMEM);
            assert_ptr_equal(sched.policy, before);
        }
        fail_memory_after(INT_MAX);
        assert_int_equal(fw_sched_switch(&sched, policy_of(state)), 0);
    }
    for (uint32_t i = 0; i < 20; i++) {
        ask(i);
        assert_ptr_equal(takers[i].got, &senders[i].request);
    }
}

/* ---- epochs -------------------------------------------------------------------------------- */

/* A handler that starts the epoch when the test says so. */
struct mock {
    struct fw_epoch epoch;
    uint32_t next_count;
    uint32_t last_count;
    int64_t last_number;
    fw_epoch_started started;
    void *argument;
};

static void mock_next(struct fw_epoch *epoch, int64_t number, void *data, size_t length,
                      fw_epoch_started started, void *argument)
{
    struct mock *mock = FW_CONTAINER_OF(epoch, struct mock, epoch);
    assert_int_equal(number, FW_EPOCH_FIRST);
    assert_int_equal(length, 0);
    (void)data;
    mock->next_count++;
    mock->started = started;
    mock->argument = argument;
}

static void mock_last(struct fw_epoch *epoch, int64_t number)
{
    struct mock *mock = FW_CONTAINER_OF(epoch, struct mock, epoch);
    mock->last_count++;
    mock->last_number = number;
}

static const struct fw_epoch_handler mock_handler = {"mock", mock_next, mock_last};
static struct mock mock;

static int setup_mock(void **state)
{
    world_make();
    mock = (struct mock){.epoch.handler = &mock_handler};
    return fw_sched_init(
        &sched, &(struct fw_sched_config){.policy = policy_of(state), .epoch = &mock.epoch});
}

/* It serves from the first epoch on, and leaves once, when the last request is given out. */
static void test_epoch(void **state)
{
    (void)state;
    assert_int_equal(mock.next_count, 1);
    ask(0);
    arrive(1);
    arrive(2);
    assert_int_equal(takers[0].call_count, 0);
    mock.started(mock.argument, 7, NULL, 0);
    assert_ptr_equal(takers[0].got, &senders[1].request);
    fw_sched_shutdown(&sched);
    assert_int_equal(mock.last_count, 0); /* One waits still. */
    ask(1);
    assert_ptr_equal(takers[1].got, &senders[2].request);
    assert_int_equal(mock.last_count, 1);
    assert_int_equal(mock.last_number, 7);
    ask(2);
    fw_sched_shutdown(&sched);
    assert_int_equal(mock.last_count, 1);
    assert_int_equal(mock.next_count, 1);
}

/* Cut off from its peers it serves by itself. */
static void test_epoch_without_peers(void **state)
{
    (void)state;
    ask(0);
    arrive(1);
    mock.started(mock.argument, -ETIMEDOUT, NULL, 0);
    assert_ptr_equal(takers[0].got, &senders[1].request);
    fw_sched_shutdown(&sched);
    assert_int_equal(mock.last_count, 1);
    assert_int_equal(mock.last_number, FW_EPOCH_FIRST);
}

/* Whoever is shut down before it began serves what waits all the same. */
static void test_epoch_that_never_starts(void **state)
{
    (void)state;
    arrive(1);
    ask(0);
    assert_int_equal(takers[0].call_count, 0);
    fw_sched_shutdown(&sched);
    assert_ptr_equal(takers[0].got, &senders[1].request);
    assert_int_equal(mock.last_count, 1);
    ask(0);
    assert_null(takers[0].got);
}

static void test_charge(void **state)
{
    (void)state;
    fw_sched_charge(&sched, &senders[1].request, 20);
    fw_sched_charge(&sched, &senders[2].request, 3);
    assert_int_equal(sched.charged, 23);
}

static void test_misuse(void **state)
{
    (void)state;
    arrive(1);
    expect_assert_failure(fw_sched_incoming(&sched, &senders[1].request));
    expect_assert_failure(fw_sched_cancel(&sched, &senders[2].request));
    expect_assert_failure(fw_sched_fini(&sched));
    ask(0);
    ask(1);
    expect_assert_failure(fw_sched_fini(&sched));
    expect_assert_failure(fw_sched_get_next(&sched, &takers[1].getter));
    finish();
}

#define ONE(test, before, after, policy)                                                  \
    {                                                                                     \
#test " with " #policy, test, before, after, (void *)(uintptr_t)FW_SCHED_##policy \
    }
#define cmocka_unit_test_every(test, before, after)                                               \
    ONE(test, before, after, FIFO), ONE(test, before, after, CRR), ONE(test, before, after, WFQ), \
        ONE(test, before, after, TBF), ONE(test, before, after, SHARE),                           \
        ONE(test, before, after, GANG)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_every(test_order_among_equals, setup, teardown),
        cmocka_unit_test_every(test_straight_through, setup, teardown),
        cmocka_unit_test_every(test_call_backs_do_not_nest, setup, teardown),
        cmocka_unit_test_every(test_given_back, setup, teardown),
        cmocka_unit_test_every(test_given_back_to_another, setup, teardown),
        cmocka_unit_test_every(test_cancel, setup, teardown),
        cmocka_unit_test_every(test_shutdown, setup, teardown),
        cmocka_unit_test_every(test_shutdown_answers_who_waits, setup, teardown),
        cmocka_unit_test_every(test_bijection, setup, teardown),
        cmocka_unit_test_every(test_switching, setup_tenants, teardown_tenants),
        cmocka_unit_test_every(test_policy_without_room, setup, teardown),
        cmocka_unit_test_every(test_tenants_without_memory, setup_tenants, teardown_tenants),
        cmocka_unit_test_every(test_switch_without_memory, setup, teardown),
        cmocka_unit_test_every(test_epoch, setup_mock, teardown),
        cmocka_unit_test_every(test_epoch_without_peers, setup_mock, teardown),
        cmocka_unit_test_every(test_epoch_that_never_starts, setup_mock, teardown),
        cmocka_unit_test_every(test_charge, setup, teardown),
        cmocka_unit_test_every(test_misuse, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
