/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what <fairway/sched.h> promises, for every policy: each get_next() is answered once, each
 * request given out once, none is lost, given back ones come first, shutdown ends it all; and for
 * `fifo` the order of arrival.
 * Method: requests with numbers, in structs whose other bytes are poisoned; getters that write down
 * what they got, and a depth that shows whether call-backs nest. A random run compares counts with
 * a model. Memory that is allocated would fail, and be missed.
 */
#include <fairway/sched.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "io/random.h"
#include "sched/policy.h"
#include "support/fail_memory.h"

enum { REQUESTS = 1000, GETTERS = 50, STEPS = 100000, POISON = 0xa5 };

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
        order[order_count++ % FW_ARRAY_LENGTH(order)] = request->class.client;
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

static int setup(void **state)
{
    (void)state;
    memset(senders, POISON, sizeof senders);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        senders[i].request = (struct fw_sched_request){.class = {.client = i, .cost = 1}};
        senders[i].is_inside = false;
        senders[i].given_count = 0;
    }
    memset(takers, 0, sizeof takers);
    for (uint32_t i = 0; i < GETTERS; i++) {
        takers[i].getter.ready = taker_ready;
    }
    order_count = 0;
    depth = 0;
    return fw_sched_init(&sched, &(struct fw_sched_config){.policy = FW_SCHED_FIFO});
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

static void test_fifo_order(void **state)
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

/* N getters and M requests in any order: who asked was answered once, what came was given once. */
static void test_bijection(void **state)
{
    (void)state;
    struct fw_random dice;
    fw_random_init(&dice, 1);
    uint64_t asked = 0;
    uint64_t came = 0;
    uint64_t cancelled = 0;
    fail_memory_after(0);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t taker = (uint32_t)fw_random_below(&dice, GETTERS);
        uint32_t sender = (uint32_t)fw_random_below(&dice, REQUESTS);
        bool is_inside = senders[sender].is_inside;
        if (fw_random_below(&dice, 2) == 0 && !takers[taker].is_waiting) {
            takers[taker].refuses = fw_random_below(&dice, 8) == 0 ? 1 : 0;
            asked++;
            ask(taker);
        } else if (!is_inside) {
            came++;
            arrive(sender);
        } else if (fw_random_below(&dice, 4) == 0) {
            cancelled++;
            fw_sched_cancel(&sched, &senders[sender].request);
            senders[sender].is_inside = false;
        }
    }
    void *volatile memory = malloc(1); /* Else the compiler may do without it. */
    assert_null(memory);               /* Nobody else has asked for any. */
    uint64_t answered = 0;
    uint64_t waiting = 0;
    for (uint32_t i = 0; i < GETTERS; i++) {
        answered += takers[i].call_count;
        waiting += takers[i].is_waiting;
    }
    uint64_t given = 0;
    uint64_t inside = 0;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        given += senders[i].given_count;
        inside += senders[i].is_inside;
        assert_int_equal(senders[i].is_inside, fw_sched_is_waiting(&senders[i].request));
    }
    assert_int_equal(asked, answered + waiting);
    assert_int_equal(came, given + inside + cancelled);
    assert_int_equal(sched.admitted_count, given);
    assert_int_equal(sched.waiting_count, inside);
    assert_true(waiting == 0 || inside == 0);
    finish();
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fifo_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_straight_through, setup, teardown),
        cmocka_unit_test_setup_teardown(test_call_backs_do_not_nest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_given_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_given_back_to_another, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shutdown, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shutdown_answers_who_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bijection, setup, teardown),
        cmocka_unit_test_setup_teardown(test_charge, setup, teardown),
        cmocka_unit_test_setup_teardown(test_misuse, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
