/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the number of workers comes within 95 % of the best throughput in 30 windows, from wherever
 * it starts, stays there, and follows when the best moves.
 * Method: a plant in virtual time: throughput is a known function of the number of workers (it
 * rises, and falls again through contention), with noise drawn from a seed.
 */
#include "jobs/climb.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io/random.h"

enum { HIGH = 64, WINDOWS = 30, AFTER = 200 };

struct plant {
    double serial;    /* The part that does not run in parallel. */
    double contended; /* What each pair costs. */
    double noise;     /* Relative. */
    struct fw_random draw;
};

static double plant_mean(const struct plant *plant, uint32_t workers)
{
    double n = workers;
    return 1000 * n / (1 + plant->serial * (n - 1) + plant->contended * n * (n - 1));
}

static double plant_best(const struct plant *plant)
{
    double best = 0;
    for (uint32_t n = 1; n <= HIGH; n++) {
        best = plant_mean(plant, n) > best ? plant_mean(plant, n) : best;
    }
    return best;
}

/* The sum of twelve even draws is as good as normal. */
static double plant_sample(struct plant *plant, uint32_t workers)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        sum += (double)fw_random_below(&plant->draw, 1000000) / 1e6;
    }
    return plant_mean(plant, workers) * (1 + plant->noise * sum);
}

static uint32_t window(struct fw_climb *climb, struct plant *plant, uint32_t workers)
{
    for (int i = 0; i < FW_CLIMB_WINDOW; i++) {
        workers = fw_climb_sample(climb, plant_sample(plant, workers));
    }
    return workers;
}

/* The throughput over the windows after the first, in parts of the best. */
static double run_plant(struct plant *plant, struct fw_climb *climb, uint32_t *workers)
{
    for (int i = 0; i < WINDOWS; i++) {
        *workers = window(climb, plant, *workers);
    }
    double sum = 0;
    uint32_t below = 0;
    for (int i = 0; i < AFTER; i++) {
        sum += plant_mean(plant, *workers);
        below += plant_mean(plant, climb->best) < 0.95 * plant_best(plant) ? 1 : 0;
        *workers = window(climb, plant, *workers);
    }
    assert_true(below <= AFTER / 20); /* What it keeps is good nearly always. */
    return sum / AFTER / plant_best(plant);
}

static void test_plants(void **state)
{
    (void)state;
    const struct plant plants[] = {
        {.serial = 0.02, .contended = 0.002, .noise = 0.02},  /* Best at 22. */
        {.serial = 0.10, .contended = 0.01, .noise = 0.02},   /* Best at 9. */
        {.serial = 0, .contended = 0.0, .noise = 0.02},       /* The more the better. */
        {.serial = 1.0, .contended = 0.01, .noise = 0.02},    /* One is best. */
        {.serial = 0.05, .contended = 0.0005, .noise = 0.05}, /* Flat around 43, noisy. */
    };
    for (size_t p = 0; p < sizeof plants / sizeof plants[0]; p++) {
        for (uint64_t seed = 1; seed <= 20; seed++) {
            const uint32_t starts[] = {1, 8, HIGH};
            struct plant plant = plants[p];
            struct fw_climb climb;
            fw_random_init(&plant.draw, seed);
            uint32_t workers = starts[seed % 3];
            fw_climb_init(&climb, 1, HIGH, workers);
            assert_true(run_plant(&plant, &climb, &workers) >= 0.95);
        }
    }
}

/* As on a busy machine: samples that are off by 15 % and more. Single runs may have bad luck. */
static void test_noisy(void **state)
{
    (void)state;
    enum { SEEDS = 20 };
    const struct plant plants[] = {
        {.serial = 0.02, .contended = 0.002, .noise = 0.15},
        {.serial = 0.10, .contended = 0.01, .noise = 0.15},
        {.serial = 0.05, .contended = 0.0005, .noise = 0.15},
    };
    for (size_t p = 0; p < sizeof plants / sizeof plants[0]; p++) {
        double sum = 0;
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct plant plant = plants[p];
            struct fw_climb climb;
            uint32_t workers = 1;
            fw_random_init(&plant.draw, seed);
            fw_climb_init(&climb, 1, HIGH, workers);
            for (int i = 0; i < WINDOWS; i++) {
                workers = window(&climb, &plant, workers);
            }
            for (int i = 0; i < AFTER; i++) {
                sum += plant_mean(&plant, workers) / plant_best(&plant);
                workers = window(&climb, &plant, workers);
            }
        }
        assert_true(sum / (SEEDS * AFTER) >= 0.95);
    }
}

static void test_follows(void **state)
{
    (void)state;
    struct plant plant = {.serial = 0.10, .contended = 0.01, .noise = 0.02};
    struct fw_climb climb;
    fw_random_init(&plant.draw, 7);
    uint32_t workers = 4;
    fw_climb_init(&climb, 1, HIGH, workers);
    assert_true(run_plant(&plant, &climb, &workers) >= 0.95);
    plant.serial = 0;
    plant.contended = 0.0005; /* From 9 to 45. */
    assert_true(run_plant(&plant, &climb, &workers) >= 0.95);
    plant.serial = 0.5;
    plant.contended = 0.05; /* And down to 3. */
    assert_true(run_plant(&plant, &climb, &workers) >= 0.95);
}

/* One window in which the machine had something else to do moves nothing; two are another load. */
static void test_disturbed(void **state)
{
    (void)state;
    struct plant plant = {.serial = 0.10, .contended = 0.01, .noise = 0.02};
    struct plant disturbed = {.serial = 0.10, .contended = 0.5, .noise = 0.02};
    for (uint32_t seed = 1; seed <= 20; seed++) {
        struct fw_climb climb;
        uint32_t workers = 4;
        fw_random_init(&plant.draw, seed);
        fw_random_init(&disturbed.draw, seed);
        fw_climb_init(&climb, 1, HIGH, workers);
        while (climb.patience < FW_CLIMB_PATIENCE_MAX || climb.rest < FW_CLIMB_PATIENCE_MAX / 2) {
            workers = window(&climb, &plant, workers);
        }
        uint32_t kept = climb.best;
        for (uint32_t i = 0; i < 8; i++) {
            workers = window(&climb, i % 4 == 0 ? &disturbed : &plant, workers);
            assert_int_equal(workers, kept);
        }
        (void)window(&climb, &disturbed, workers);
        assert_int_not_equal(window(&climb, &disturbed, workers), kept);
        /* Nor does it set out from what a disturbed window has shown. */
        fw_climb_init(&climb, 1, HIGH, workers);
        while (climb.rest != 1) {
            workers = window(&climb, &plant, workers);
        }
        kept = climb.best;
        assert_int_equal(window(&climb, &disturbed, workers), kept);
        assert_int_equal(climb.rest, 1); /* One more window, to compare with. */
        assert_int_not_equal(window(&climb, &plant, workers), kept);
    }
}

/* Limits hold, also where there is nothing to choose. */
static void test_range(void **state)
{
    (void)state;
    struct plant plant = {.serial = 0, .noise = 0.3};
    for (uint32_t low = 1; low <= 4; low++) {
        struct fw_climb climb;
        fw_random_init(&plant.draw, low);
        fw_climb_init(&climb, low, 4, 4);
        uint32_t workers = 4;
        for (int i = 0; i < 2000; i++) {
            workers = fw_climb_sample(&climb, plant_sample(&plant, workers));
            assert_in_range(workers, low, 4);
        }
    }
    struct fw_climb none;
    expect_assert_failure(fw_climb_init(&none, 0, 4, 4));
    expect_assert_failure(fw_climb_init(&none, 3, 4, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plants),  cmocka_unit_test(test_noisy),
        cmocka_unit_test(test_follows), cmocka_unit_test(test_disturbed),
        cmocka_unit_test(test_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
