/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: requests go in the order of priority, age and posting, for every mix of lanes, boosts and
 * ticks, without anyone visiting those that wait.
 * Method: a model that keeps all requests in an array, raises every priority at every tick as the
 * document says, and searches for the greatest. Both are driven by the same random steps, with
 * removals from the middle; the ageing promises are also spelled out by hand.
 */
#include "jobs/ready.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io/random.h"
#include "support/fail_memory.h"

enum { SLOTS = 64 };

static struct fw_ready ready;
static struct fw_job jobs[SLOTS];
static uint64_t sequence;

static void setup(bool ageing, bool boosting, int32_t boost)
{
    struct fw_jobs_policy policy = {
        .slots = SLOTS, .ageing = ageing, .boosting = boosting, .boost = boost};
    assert_int_equal(fw_ready_init(&ready, &policy), 0);
}

static void push(struct fw_job *job, int32_t priority, uint32_t flags, int64_t tick)
{
    *job = (struct fw_job){.priority = priority,
                           .flags = flags,
                           .sequence = sequence++,
                           .key = fw_ready_key(&ready, priority, flags, tick)};
    fw_ready_push(&ready, job);
}

static struct fw_job *pop(uint32_t lane_lowest, int64_t tick)
{
    struct fw_job *job = fw_ready_first(&ready, lane_lowest, tick);
    if (job != NULL) {
        fw_ready_remove(&ready, job);
    }
    return job;
}

static void test_order(void **state)
{
    (void)state;
    setup(false, false, 0);
    assert_null(pop(0, 0));
    push(&jobs[0], 1, FW_JOB_PART, 0);
    push(&jobs[1], 5, FW_JOB_FEEDER, 0);
    push(&jobs[2], 5, FW_JOB_PART, 0);
    push(&jobs[3], INT32_MIN, FW_JOB_UNIT, 0);
    push(&jobs[4], INT32_MAX, FW_JOB_SERVICE, 0);
    assert_int_equal(fw_ready_count(&ready), 5);
    assert_int_equal(ready.waiting[3], 2);
    /* Lanes that are held back are passed over. */
    assert_ptr_equal(pop(2, 0), &jobs[2]);
    assert_ptr_equal(pop(0, 0), &jobs[4]);
    assert_ptr_equal(pop(0, 0), &jobs[1]);
    assert_ptr_equal(pop(3, 0), &jobs[0]);
    assert_null(pop(3, 0));
    assert_ptr_equal(pop(2, 0), &jobs[3]);
    assert_int_equal(fw_ready_count(&ready), 0);
    fw_ready_fini(&ready);
}

/* A low one is overtaken by a high one posted less than their difference later, and not after. */
static void test_ageing(void **state)
{
    (void)state;
    for (int64_t later = 0; later < 20; later++) {
        setup(true, false, 0);
        push(&jobs[0], 0, 0, 100);
        push(&jobs[1], 10, 0, 100 + later);
        /* As old as the difference it is equal, and was there first. */
        assert_ptr_equal(pop(0, 100 + later), later < 10 ? &jobs[1] : &jobs[0]);
        fw_ready_fini(&ready);

        setup(false, false, 0);
        push(&jobs[0], 0, 0, 100);
        push(&jobs[1], 10, 0, 100 + later);
        assert_ptr_equal(pop(0, 100 + later), &jobs[1]);
        fw_ready_fini(&ready);
    }
    setup(true, true, 4);
    push(&jobs[0], 7, FW_JOB_BOOST, 100);
    assert_int_equal(fw_ready_priority(&ready, &jobs[0], 103), 7 + 3 * 5);
    assert_int_equal(fw_ready_inspections(&ready, &jobs[0], 103), 3);
    fw_ready_fini(&ready);
}

/* The boost counts iff policy, mark and ageing are all on. */
static void test_boost(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        bool ageing = (i & 1) != 0, boosting = (i & 2) != 0, mark = (i & 4) != 0;
        setup(ageing, boosting, 9);
        push(&jobs[0], 0, mark ? FW_JOB_BOOST : 0, 0);
        push(&jobs[1], 5, 0, 0);
        /* After one tick: 1 + 9 against 5 + 1, or else 0 or 1 against 5 or 6. */
        assert_ptr_equal(pop(0, 1), ageing && boosting && mark ? &jobs[0] : &jobs[1]);
        fw_ready_fini(&ready);
    }
}

/* The model: every request with its present priority, -1 where there is none. */
static struct {
    bool present;
    int64_t priority;
    uint64_t sequence;
} model[SLOTS];

static void model_tick(int32_t boost)
{
    for (int i = 0; i < SLOTS; i++) {
        if (model[i].present) {
            model[i].priority += 1 + ((jobs[i].flags & FW_JOB_BOOST) != 0 ? boost : 0);
        }
    }
}

static int model_first(uint32_t lane_lowest)
{
    int best = -1;
    for (int i = 0; i < SLOTS; i++) {
        if (!model[i].present || fw_job_lane(jobs[i].flags) < lane_lowest) {
            continue;
        }
        if (best < 0 || model[i].priority > model[best].priority ||
            (model[i].priority == model[best].priority &&
             model[i].sequence < model[best].sequence)) {
            best = i;
        }
    }
    return best;
}

static void model_take(int i)
{
    fw_ready_remove(&ready, &jobs[i]);
    model[i].present = false;
}

static void model_step(struct fw_random *draw, int64_t tick)
{
    int slot = (int)fw_random_below(draw, SLOTS);
    if (!model[slot].present) {
        int32_t priority = (int32_t)fw_random_below(draw, 12) - 6;
        uint32_t flags = (uint32_t)fw_random_below(draw, 4);
        flags |= fw_random_chance(draw, 1, 3) ? FW_JOB_BOOST : 0;
        push(&jobs[slot], priority, flags, tick);
        model[slot].present = true;
        model[slot].priority = priority;
        model[slot].sequence = jobs[slot].sequence;
    } else if (fw_random_chance(draw, 1, 8)) {
        model_take(slot); /* Somewhere in the middle: cancelled. */
    } else {
        uint32_t lane = (uint32_t)fw_random_below(draw, 4);
        int expected = model_first(lane);
        struct fw_job *first = fw_ready_first(&ready, lane, tick);
        assert_ptr_equal(first, expected < 0 ? NULL : &jobs[expected]);
        if (expected >= 0) {
            assert_int_equal(fw_ready_priority(&ready, first, tick), model[expected].priority);
            model_take(expected);
        }
    }
}

static void test_against_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fw_random draw;
        fw_random_init(&draw, seed);
        int32_t boost = (int32_t)fw_random_below(&draw, 4);
        setup(true, true, boost);
        int64_t tick = 0;
        for (int step = 0; step < 20000; step++) {
            if (fw_random_chance(&draw, 1, 10)) {
                tick++;
                model_tick(boost);
            }
            model_step(&draw, tick);
        }
        for (int left; (left = model_first(0)) >= 0;) {
            assert_ptr_equal(fw_ready_first(&ready, 0, tick), &jobs[left]);
            model_take(left);
        }
        assert_null(fw_ready_any(&ready));
        fw_ready_fini(&ready);
    }
}

/* As many levels as slots, all of different keys, over and over. */
static void test_levels_suffice(void **state)
{
    (void)state;
    setup(false, false, 0);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SLOTS; i++) {
            push(&jobs[i], (i * 37) % SLOTS, 0, 0);
        }
        for (int i = SLOTS - 1; i >= 0; i--) {
            assert_int_equal(pop(0, 0)->priority, i);
        }
    }
    fw_ready_fini(&ready);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct fw_jobs_policy policy = {.slots = SLOTS};
    for (int i = 0; i < 2; i++) {
        fail_memory_after(i);
        assert_int_equal(fw_ready_init(&ready, &policy), -ENOMEM);
    }
}

/* What two workers took is put back, in either order: it stands where it stood. */
static void test_return(void **state)
{
    (void)state;
    setup(false, false, 0);
    for (int i = 0; i < 6; i++) {
        push(&jobs[i], 3, FW_JOB_PART, 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_ptr_equal(pop(0, 0), &jobs[i]);
    }
    static const int order[] = {1, 0, 3, 2};
    for (int i = 0; i < 4; i++) {
        fw_ready_return(&ready, &jobs[order[i]]);
    }
    assert_int_equal(fw_ready_count(&ready), 6);
    fw_ready_remove(&ready, &jobs[2]); /* From the middle. */
    fw_ready_return(&ready, &jobs[2]);
    for (int i = 0; i < 6; i++) {
        assert_ptr_equal(pop(0, 0), &jobs[i]);
    }
    fw_ready_return(&ready, &jobs[0]); /* Where none of its key is left. */
    assert_ptr_equal(pop(0, 0), &jobs[0]);
    assert_null(pop(0, 0));
    fw_ready_fini(&ready);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_return),        cmocka_unit_test(test_order),
        cmocka_unit_test(test_ageing),        cmocka_unit_test(test_boost),
        cmocka_unit_test(test_against_model), cmocka_unit_test(test_levels_suffice),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
