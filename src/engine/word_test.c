/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: of all wake-ups of a parked fom exactly one wins it, one that comes while it is ready keeps
 * it from parking, and one that is meant for another generation does nothing, wherever between two
 * steps it falls.
 * Method: all sequences of seven steps (wake, late wake, begin, park, renew, finish and create)
 * against a model in plain words; then, with the thread hooks, a wake-up inside each step at its
 * yield point.
 */
#include "engine/word.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* ---- whole steps, all sequences ---- */

enum step { WAKE, WAKE_ANY, WAKE_LATE, BEGIN, PARK, RENEW, FINISH, CREATE, STEPS };
enum { LENGTH = 7 };

struct model {
    enum { GONE, READY, PARKED } state;
    bool notified;
    uint64_t generation;
};

static void check(const _Atomic uint64_t *word, const struct model *model)
{
    uint64_t now = fw_word_get(word);
    static const enum fw_word_state states[] = {FW_WORD_GONE, FW_WORD_READY, FW_WORD_PARKED};
    assert_int_equal(fw_word_state(now), states[model->state]);
    assert_int_equal((now & FW_WORD_NOTIFIED) != 0, model->notified);
    assert_int_equal(fw_word_generation(now), model->generation);
}

/* False: the step is not for this state. */
static bool model_allows(const struct model *model, enum step step)
{
    switch (step) {
    case BEGIN:
    case PARK:
    case RENEW:
    case FINISH:
        return model->state == READY;
    case CREATE:
        return model->state == GONE;
    case WAKE:
    case WAKE_ANY:
    case WAKE_LATE:
    case STEPS:
        break;
    }
    return true;
}

static void wake(_Atomic uint64_t *word, struct model *model, enum step step)
{
    uint64_t generation = step == WAKE_ANY ? FW_WORD_ANY : model->generation;
    bool is_late = step == WAKE_LATE;
    bool won = fw_word_wake(word, is_late ? model->generation + 1 : generation);
    bool counts = !is_late && model->state != GONE;
    assert_int_equal(won, counts && model->state == PARKED);
    model->notified |= counts && model->state == READY;
    model->state = won ? READY : model->state;
}

static void take_step(_Atomic uint64_t *word, struct model *model, enum step step)
{
    switch (step) {
    case WAKE:
    case WAKE_ANY:
    case WAKE_LATE:
        wake(word, model, step);
        break;
    case BEGIN:
        fw_word_begin(word);
        model->notified = false;
        break;
    case PARK:
        assert_int_equal(fw_word_park(word), !model->notified);
        model->state = model->notified ? READY : PARKED;
        break;
    case RENEW:
        fw_word_renew(word);
        model->generation++;
        model->notified = false; /* Whoever did that meant the generation before. */
        break;
    case FINISH:
        fw_word_finish(word);
        *model = (struct model){.state = GONE, .generation = model->generation + 1};
        break;
    case CREATE:
        fw_word_create(word);
        model->state = READY;
        break;
    case STEPS:
        fail();
    }
    check(word, model);
}

static void test_sequences(void **state)
{
    (void)state;
    uint32_t count = 1;
    for (int i = 0; i < LENGTH; i++) {
        count *= STEPS;
    }
    for (uint32_t sequence = 0; sequence < count; sequence++) {
        _Atomic uint64_t word = 0;
        struct model model = {.state = GONE};
        take_step(&word, &model, CREATE);
        uint32_t rest = sequence;
        for (int i = 0; i < LENGTH; i++, rest /= STEPS) {
            enum step step = (enum step)(rest % STEPS);
            if (!model_allows(&model, step)) {
                break; /* The sequences that begin like this one all do. */
            }
            take_step(&word, &model, step);
        }
    }
}

static void test_steps_out_of_order(void **state)
{
    (void)state;
    _Atomic uint64_t word = 0;
    expect_assert_failure(fw_word_begin(&word));
    expect_assert_failure((void)fw_word_park(&word));
    expect_assert_failure(fw_word_renew(&word));
    expect_assert_failure(fw_word_finish(&word));
    fw_word_create(&word);
    expect_assert_failure(fw_word_create(&word));
    assert_true(fw_word_park(&word));
    expect_assert_failure(fw_word_begin(&word));
    expect_assert_failure(fw_word_finish(&word));
}

/* ---- a wake-up inside a step ---- */

static _Atomic uint64_t *target;
static uint64_t with_generation;
static int wins;
static int yields_left; /* The wake-up comes at the yield point that makes this 0. */

static void hook_yield(const char *where)
{
    (void)where;
    if (yields_left > 0 && --yields_left == 0) {
        wins += fw_word_wake(target, with_generation);
    }
}

static const struct fw_thread_hooks hooks = {.yield = hook_yield};

/* Runs the rest of the test with a wake-up at the next yield point. */
static void inject(_Atomic uint64_t *word, uint64_t generation)
{
    target = word;
    with_generation = generation;
    wins = 0;
    yields_left = 1;
    fw_thread_hooks = &hooks;
}

static int teardown(void **state)
{
    (void)state;
    fw_thread_hooks = NULL;
    return 0;
}

static void test_wake_inside_park(void **state)
{
    (void)state;
    _Atomic uint64_t word = 0;
    fw_word_create(&word);
    inject(&word, 0);
    assert_false(fw_word_park(&word)); /* It came after the look and before the swap. */
    assert_int_equal(wins, 0);
    fw_word_begin(&word);
    assert_true(fw_word_park(&word)); /* It counts once. */
}

static void test_two_wakers(void **state)
{
    (void)state;
    _Atomic uint64_t word = 0;
    fw_word_create(&word);
    assert_true(fw_word_park(&word));
    inject(&word, 0);
    bool won = fw_word_wake(&word, 0); /* The other comes between its look and its swap. */
    assert_int_equal(wins + won, 1);
    assert_int_equal(fw_word_state(fw_word_get(&word)), FW_WORD_READY);
    /* Who lost has left word: what it published was perhaps not seen by who runs already. */
    assert_false(fw_word_park(&word));
}

static void test_wake_inside_begin(void **state)
{
    (void)state;
    _Atomic uint64_t word = 0;
    fw_word_create(&word);
    inject(&word, 0);
    fw_word_begin(&word); /* The tick behind it sees what the waker wrote. */
    assert_int_equal(wins, 0);
    assert_true(fw_word_park(&word));
}

/* One that is meant for the old generation and comes while it is renewed is nothing to the new. */
static void test_wake_inside_renew(void **state)
{
    (void)state;
    _Atomic uint64_t word = 0;
    fw_word_create(&word);
    inject(&word, 0);
    fw_word_renew(&word);
    assert_int_equal(wins, 0);
    assert_int_equal(fw_word_generation(fw_word_get(&word)), 1);
    assert_true(fw_word_park(&word));
}

static void test_finish_inside_wake(void **state)
{
    (void)state;
    _Atomic uint64_t word = 0;
    fw_word_create(&word);
    inject(&word, 0);
    fw_word_finish(&word); /* And the other way round: a wake-up just before the end. */
    assert_int_equal(wins, 0);
    assert_int_equal(fw_word_get(&word), UINT64_C(1) << FW_WORD_GENERATION_SHIFT);
    assert_false(fw_word_wake(&word, 0));
    fw_word_create(&word);
    assert_true(fw_word_park(&word));
    assert_false(fw_word_wake(&word, 0)); /* Meant for who had the memory before. */
    assert_true(fw_word_wake(&word, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_steps_out_of_order),
        cmocka_unit_test_teardown(test_wake_inside_park, teardown),
        cmocka_unit_test_teardown(test_two_wakers, teardown),
        cmocka_unit_test_teardown(test_wake_inside_begin, teardown),
        cmocka_unit_test_teardown(test_wake_inside_renew, teardown),
        cmocka_unit_test_teardown(test_finish_inside_wake, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
