/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: resources are granted in the order of asking, never more of them than there is, and as soon
 * as there is enough; a claim may be taken back at any time; a fom's tick is told at once or woken
 * later, and never blocks. A writer of the long lock is not starved by readers.
 * Method: a core driven by hand, and a model that grants from a plain queue: random foms ask for
 * random amounts and give them, or their place in the queue, back.
 */
#include <errno.h>

#include "engine/core.h"
#include "io/random.h"
#include "support/engine_by_hand.h"

enum { PHASE_ASK = FW_PHASE_FIRST };
enum { CAPACITY = 10, CLAIMERS = 12, STEPS = 20 * 1000 };

struct claimer {
    struct fw_fom fom;
    struct fw_claim claim;
    uint64_t wants; /* 0: it gives back what it has, or its place. */
    bool has;
    bool may_end;
    uint32_t ticks;
};

static struct by_hand hand;
static struct fw_resource resource;

static enum fw_step claimer_tick(struct fw_fom *fom)
{
    struct claimer *self = FW_FOM_OF(fom, struct claimer);
    self->ticks++;
    if (self->wants == 0 || self->may_end) {
        fw_resource_put(&resource, &self->claim);
        self->has = false;
    } else {
        self->has = fw_resource_get(&resource, fom, &self->claim, self->wants);
    }
    return self->may_end ? fw_fom_finish(fom) : fw_fom_wait(fom, PHASE_ASK);
}

static const struct fw_phase phases[] = {{"ASK", FW_PHASE_BIT(FW_PHASE_FINISHED), true}};

static const struct fw_fom_type claimer_type = {
    .name = "claimer",
    .size = sizeof(struct claimer),
    .limit_count = CLAIMERS,
    .phases = phases,
    .phase_count = 1,
    .tick = claimer_tick,
};

static struct claimer *claimers[CLAIMERS];

static void begin(uint64_t capacity)
{
    by_hand_begin(&hand, &(struct fw_domain_config){.locality_count = 1}, &claimer_type);
    fw_resource_init(&resource, hand.domain, capacity);
    for (uint32_t i = 0; i < CLAIMERS; i++) {
        claimers[i] = FW_FOM_OF(by_hand_start(&hand, &claimer_type, 0), struct claimer);
    }
    by_hand_round(&hand, 0);
}

static void end(void)
{
    for (uint32_t i = 0; i < CLAIMERS; i++) {
        claimers[i]->may_end = true;
        fw_ticket_wake(fw_fom_ticket(&claimers[i]->fom));
    }
    by_hand_run(&hand, 4);
    assert_int_equal(by_hand_live(&hand), 0);
    fw_resource_fini(&resource);
    by_hand_end(&hand);
}

/* Has the fom ask for an amount, or with 0 let go. Rounds pass until all are told what they got. */
static void want(struct claimer *claimer, uint64_t amount)
{
    claimer->wants = amount;
    fw_ticket_wake(fw_fom_ticket(&claimer->fom));
    by_hand_round(&hand, 0);
    by_hand_round(&hand, 0);
}

/* ---- against a model ---- */

static struct {
    uint32_t queue[CLAIMERS];
    uint32_t length;
    uint64_t used;
    bool has[CLAIMERS];
} model;

static void model_grant(void)
{
    while (model.length > 0 && claimers[model.queue[0]]->wants <= CAPACITY - model.used) {
        model.used += claimers[model.queue[0]]->wants;
        model.has[model.queue[0]] = true;
        model.length--;
        memmove(model.queue, model.queue + 1, model.length * sizeof model.queue[0]);
    }
}

static void model_drop(uint32_t number)
{
    if (model.has[number]) {
        model.has[number] = false;
        model.used -= claimers[number]->wants;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < model.length; i++) {
        if (model.queue[i] != number) {
            model.queue[kept++] = model.queue[i];
        }
    }
    model.length = kept;
}

static void test_against_model(void **state)
{
    (void)state;
    begin(CAPACITY);
    memset(&model, 0, sizeof model);
    struct fw_random draws;
    fw_random_init(&draws, 9);
    uint32_t waiting_most = 0;
    for (int i = 0; i < STEPS; i++) {
        uint32_t number = (uint32_t)fw_random_below(&draws, CLAIMERS);
        struct claimer *claimer = claimers[number];
        if (claimer->wants == 0) {
            uint64_t amount = 1 + fw_random_below(&draws, CAPACITY);
            want(claimer, amount);
            model.queue[model.length++] = number;
        } else {
            model_drop(number);
            want(claimer, 0);
        }
        model_grant();
        waiting_most = model.length > waiting_most ? model.length : waiting_most;
        for (uint32_t k = 0; k < CLAIMERS; k++) {
            assert_int_equal(claimers[k]->has, model.has[k]);
        }
        assert_int_equal(resource.used, model.used);
    }
    assert_true(waiting_most > CLAIMERS / 2);
    end();
}

/* ---- single stories ---- */

static void test_large_claim_is_not_overtaken(void **state)
{
    (void)state;
    begin(CAPACITY);
    want(claimers[0], 1);
    want(claimers[1], CAPACITY);
    for (uint32_t i = 2; i < CLAIMERS; i++) {
        want(claimers[i], 1); /* There is room for these, and they wait all the same. */
        assert_false(claimers[i]->has);
    }
    want(claimers[0], 0);
    assert_true(claimers[1]->has);
    assert_false(claimers[2]->has);
    want(claimers[1], 0);
    for (uint32_t i = 2; i < CLAIMERS; i++) {
        assert_true(claimers[i]->has);
    }
    end();
}

static void test_claim_taken_back(void **state)
{
    (void)state;
    begin(CAPACITY);
    want(claimers[0], CAPACITY - 1);
    want(claimers[1], CAPACITY);
    want(claimers[2], 1);
    assert_false(claimers[2]->has);
    want(claimers[1], 0); /* Who stood in the way is gone. */
    assert_true(claimers[2]->has);
    assert_int_equal(resource.used, CAPACITY);
    want(claimers[1], 0); /* Nothing to give back. */
    assert_int_equal(resource.used, CAPACITY);
    end();
}

/* One that was granted is woken once, and asks again as often as it likes. */
static void test_granted_once(void **state)
{
    (void)state;
    begin(CAPACITY);
    want(claimers[0], CAPACITY);
    want(claimers[0], CAPACITY);
    assert_true(claimers[0]->has);
    assert_int_equal(resource.used, CAPACITY);
    want(claimers[1], 1);
    uint32_t ticks = claimers[1]->ticks;
    by_hand_round(&hand, 0);
    assert_int_equal(claimers[1]->ticks, ticks);
    want(claimers[0], 0);
    by_hand_round(&hand, 0);
    assert_int_equal(claimers[1]->ticks, ticks + 1);
    end();
}

static void test_bad_amounts(void **state)
{
    (void)state;
    begin(CAPACITY);
    struct fw_claim claim = {.amount = 0};
    expect_assert_failure(
        assert_true(fw_resource_get(&resource, &claimers[0]->fom, &claim, CAPACITY + 1)));
    want(claimers[0], 1);
    expect_assert_failure(fw_resource_fini(&resource));
    end();
}

/* ---- the long lock ---- */

enum { LOCK_ROUNDS = 1000, READERS = 8 };

static struct {
    struct fw_long_lock lock;
    int readers, writers; /* Inside. */
    int reads, writes;
    bool is_over;
} shared;

struct locker {
    struct fw_fom fom;
    struct fw_claim claim;
    bool writes;
    int held; /* Ticks so far. */
};

static bool locker_take(struct locker *self)
{
    return self->writes ? fw_long_lock_write(&shared.lock, &self->fom, &self->claim)
                        : fw_long_lock_read(&shared.lock, &self->fom, &self->claim);
}

static enum fw_step locker_tick(struct fw_fom *fom)
{
    struct locker *self = FW_FOM_OF(fom, struct locker);
    int *inside = self->writes ? &shared.writers : &shared.readers;
    if (!locker_take(self)) {
        return fw_fom_wait(fom, PHASE_ASK);
    }
    *inside += self->held == 0;
    assert_true(shared.writers == 0 || (shared.writers == 1 && shared.readers == 0));
    if (self->held++ < 3) { /* It is held over many ticks. */
        return fw_fom_yield(fom, PHASE_ASK);
    }
    self->held = 0;
    (*inside)--;
    *(self->writes ? &shared.writes : &shared.reads) += 1;
    fw_long_unlock(&shared.lock, &self->claim);
    return shared.is_over ? fw_fom_finish(fom) : fw_fom_yield(fom, PHASE_ASK);
}

static const struct fw_fom_type locker_type = {
    .name = "locker",
    .size = sizeof(struct locker),
    .limit_count = READERS + 2,
    .phases = phases,
    .phase_count = 1,
    .tick = locker_tick,
};

static void test_long_lock_is_fair(void **state)
{
    (void)state;
    by_hand_begin(&hand, &(struct fw_domain_config){.locality_count = 1}, &locker_type);
    memset(&shared, 0, sizeof shared);
    fw_long_lock_init(&shared.lock, hand.domain);
    for (int i = 0; i < READERS + 2; i++) {
        struct fw_fom *fom = by_hand_create(&hand, &locker_type, 0);
        FW_FOM_OF(fom, struct locker)->writes = i >= READERS;
        fw_fom_start(fom);
    }
    for (int i = 0; i < LOCK_ROUNDS; i++) {
        by_hand_round(&hand, 0);
    }
    /* In the order of asking all get it equally often, readers and writers. */
    assert_true(shared.writes > 100);
    assert_in_range(shared.reads, READERS * (shared.writes / 2 - 2),
                    READERS * (shared.writes / 2 + 2));
    shared.is_over = true;
    by_hand_run(&hand, 100);
    fw_long_lock_fini(&shared.lock);
    by_hand_end(&hand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_model),
        cmocka_unit_test(test_large_claim_is_not_overtaken),
        cmocka_unit_test(test_claim_taken_back),
        cmocka_unit_test(test_granted_once),
        cmocka_unit_test(test_bad_amounts),
        cmocka_unit_test(test_long_lock_is_fair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
