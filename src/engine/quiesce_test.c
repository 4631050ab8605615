/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: quiescence is never granted while one who was there before the request still is, is granted
 * as soon as the last has gone or passed a safe point, whoever that is, and does not wait for those
 * who came later or sleep.
 * Method: two cores driven by hand and participants whose steps the test chooses. A model says when
 * it must be granted: random enters, leaves, rounds and requests, thousands of them.
 */
#include <errno.h>

#include "engine/core.h"
#include "io/random.h"
#include "support/engine_by_hand.h"

enum { PHASE_ASK = FW_PHASE_FIRST };

struct asker {
    struct fw_fom fom;
    struct fw_quiescence quiescence;
    bool asked;
    bool granted;
    bool may_end;
    bool gives_up;
};

static enum fw_step asker_tick(struct fw_fom *fom)
{
    struct asker *self = FW_FOM_OF(fom, struct asker);
    if (self->gives_up) {
        fw_quiescence_cancel(fw_fom_domain(fom), &self->quiescence);
        return fw_fom_finish(fom);
    }
    self->granted = fw_domain_quiesce(fw_fom_domain(fom), fom, &self->quiescence);
    if (!self->asked) {
        assert_false(self->granted); /* Its own tick is under way. */
    }
    self->asked = true;
    return self->may_end ? fw_fom_finish(fom) : fw_fom_wait(fom, PHASE_ASK);
}

static const struct fw_phase phases[] = {{"ASK", FW_PHASE_BIT(FW_PHASE_FINISHED), true}};

static const struct fw_fom_type asker_type = {
    .name = "asker",
    .size = sizeof(struct asker),
    .limit_count = 256,
    .phases = phases,
    .phase_count = 1,
    .tick = asker_tick,
};

static struct by_hand hand;

static void begin(uint32_t cores)
{
    by_hand_begin(&hand, &(struct fw_domain_config){.locality_count = cores}, &asker_type);
}

static struct asker *ask(void)
{
    struct fw_fom *fom = by_hand_start(&hand, &asker_type, 0);
    by_hand_round(&hand, 0);
    struct asker *asker = FW_FOM_OF(fom, struct asker);
    assert_true(asker->asked);
    return asker;
}

/* As long as its fom lives; what it is told is not yet known to it, so it has its tick first. */
static bool is_granted(struct asker *asker)
{
    by_hand_round(&hand, 0);
    return asker->granted;
}

static void dismiss(struct asker *asker)
{
    assert_true(asker->granted);
    asker->may_end = true;
    struct fw_ticket ticket = fw_fom_ticket(&asker->fom);
    fw_ticket_wake(ticket);
    by_hand_round(&hand, 0);
    by_hand_round(&hand, 0);
}

static void test_alone(void **state)
{
    (void)state;
    begin(1);
    struct asker *asker = ask(); /* The core has passed a safe point at the end of that round. */
    assert_true(is_granted(asker));
    dismiss(asker);
    by_hand_end(&hand);
}

static void test_waits_for_another_core(void **state)
{
    (void)state;
    begin(2);
    struct asker *asker = ask();
    assert_false(is_granted(asker));
    by_hand_round(&hand, 1);
    assert_true(is_granted(asker));
    dismiss(asker);

    /* Nor for one that sleeps, nor for one that wakes afterwards. */
    fw_safety_offline(&hand.handlers[1].safety);
    asker = ask();
    fw_safety_online(&hand.handlers[1].safety);
    assert_true(is_granted(asker));
    dismiss(asker);

    /* One that falls asleep will hold nothing: it is the last, and grants. */
    asker = ask();
    assert_false(is_granted(asker));
    fw_safety_offline(&hand.handlers[1].safety);
    assert_true(is_granted(asker));
    fw_safety_online(&hand.handlers[1].safety);
    dismiss(asker);
    by_hand_end(&hand);
}

static void test_waits_for_participants(void **state)
{
    (void)state;
    begin(1);
    struct fw_participant old;
    struct fw_participant late;
    fw_participant_attach(&old, hand.domain);
    fw_participant_attach(&late, hand.domain);
    struct asker *asker = ask();
    assert_true(is_granted(asker)); /* Attached, but not inside. */
    dismiss(asker);

    fw_participant_enter(&old);
    asker = ask();
    assert_false(is_granted(asker));
    fw_participant_enter(&late); /* After the request: it cannot have seen the object. */
    assert_false(is_granted(asker));
    fw_participant_leave(&old);
    assert_true(is_granted(asker));
    dismiss(asker);

    /* Who enters again has let go in between. */
    asker = ask();
    fw_participant_leave(&late);
    fw_participant_enter(&late);
    assert_true(is_granted(asker));
    dismiss(asker);
    expect_assert_failure(fw_participant_detach(&late));
    fw_participant_leave(&late);
    fw_participant_detach(&late);
    fw_participant_detach(&old);
    by_hand_end(&hand);
}

static void test_cancelled(void **state)
{
    (void)state;
    begin(1);
    struct fw_participant reader;
    fw_participant_attach(&reader, hand.domain);
    fw_participant_enter(&reader);
    struct asker *asker = ask();
    struct asker *other = ask();
    asker->gives_up = true;
    fw_ticket_wake(fw_fom_ticket(&asker->fom));
    by_hand_round(&hand, 0);
    assert_int_equal(by_hand_live(&hand), 1);
    assert_false(is_granted(other));
    fw_participant_leave(&reader);
    assert_true(is_granted(other)); /* And nobody has touched the one that is gone. */
    dismiss(other);

    /* To take back what was never asked for, or was granted, does nothing. */
    struct fw_quiescence never = {.target = 0};
    fw_quiescence_cancel(hand.domain, &never);
    asker = ask();
    assert_true(is_granted(asker));
    fw_quiescence_cancel(hand.domain, &asker->quiescence);
    assert_true(is_granted(asker));
    dismiss(asker);
    fw_participant_detach(&reader);
    by_hand_end(&hand);
}

/* ---- against a model ---- */

enum { READERS = 4, ASKERS = 4, STEPS = 20 * 1000 };

static struct {
    struct fw_participant readers[READERS];
    bool is_inside[READERS];
    struct asker *askers[ASKERS];
    bool blocks[ASKERS][READERS + 1]; /* Who was inside before it asked; the last is core 1. */
} model;

static void model_passed(uint32_t who)
{
    for (uint32_t i = 0; i < ASKERS; i++) {
        model.blocks[i][who] = false;
    }
}

static void model_ask(uint32_t number)
{
    if (model.askers[number] == NULL) {
        for (uint32_t i = 0; i < READERS; i++) {
            model.blocks[number][i] = model.is_inside[i];
        }
        model.blocks[number][READERS] = true;
        model.askers[number] = ask();
    }
}

static void model_check(void)
{
    for (uint32_t i = 0; i < ASKERS; i++) {
        if (model.askers[i] == NULL) {
            continue;
        }
        bool is_blocked = false;
        for (uint32_t k = 0; k <= READERS; k++) {
            is_blocked = is_blocked || model.blocks[i][k];
        }
        assert_int_equal(is_granted(model.askers[i]), !is_blocked);
        if (!is_blocked) {
            dismiss(model.askers[i]);
            model.askers[i] = NULL;
        }
    }
}

static void model_step(struct fw_random *draws)
{
    uint32_t who = (uint32_t)fw_random_below(draws, READERS);
    switch (fw_random_below(draws, 4)) {
    case 0:
        model_ask((uint32_t)fw_random_below(draws, ASKERS));
        break;
    case 1:
        by_hand_round(&hand, 1);
        model_passed(READERS);
        break;
    default:
        if (model.is_inside[who]) {
            fw_participant_leave(&model.readers[who]);
            model_passed(who);
        } else {
            fw_participant_enter(&model.readers[who]);
        }
        model.is_inside[who] = !model.is_inside[who];
    }
    model_check();
}

static void test_against_model(void **state)
{
    (void)state;
    begin(2);
    memset(&model, 0, sizeof model);
    for (uint32_t i = 0; i < READERS; i++) {
        fw_participant_attach(&model.readers[i], hand.domain);
    }
    struct fw_random draws;
    fw_random_init(&draws, 5);
    for (int i = 0; i < STEPS; i++) {
        model_step(&draws);
    }
    for (uint32_t i = 0; i < READERS; i++) {
        if (model.is_inside[i]) {
            fw_participant_leave(&model.readers[i]);
        }
        model_passed(i);
        fw_participant_detach(&model.readers[i]);
    }
    by_hand_round(&hand, 1);
    model_passed(READERS);
    model_check();
    by_hand_end(&hand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_waits_for_another_core),
        cmocka_unit_test(test_waits_for_participants),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_against_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
