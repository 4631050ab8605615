/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the figures that benchmarks are judged by are computed as harness.h defines them, both
 * sides do the same work in alternating order, and the exit status follows the bar.
 * Method: summaries of samples whose quartiles are known by hand; comparisons of two sides that
 * count their calls, one of which burns many times the other's CPU so that no machine can turn
 * the verdict round. What is printed is read by tests/bench.
 */
#include "bench/harness.h"

#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_summary(void **state)
{
    (void)state;
    struct fw_bench_summary summary;
    double odd[] = {5, 1, 4, 2, 3};
    fw_bench_summarise(odd, 5, &summary);
    assert_true(summary.min == 1 && summary.p25 == 2 && summary.median == 3);
    assert_true(summary.p75 == 4 && summary.max == 5);
    assert_true(summary.spread == 2.0 / 3);

    double even[] = {40, 10, 20, 30};
    fw_bench_summarise(even, 4, &summary);
    assert_true(summary.p25 == 17.5 && summary.median == 25 && summary.p75 == 32.5);
    assert_true(summary.spread == 15.0 / 25);

    double one[] = {7};
    fw_bench_summarise(one, 1, &summary);
    assert_true(summary.min == 7 && summary.median == 7 && summary.max == 7);
    assert_true(summary.spread == 0);

    double nothing[] = {0, 0, 0};
    fw_bench_summarise(nothing, 3, &summary);
    assert_true(summary.spread == 0);
}

enum { CALLS_MAX = 128, SLOW_FACTOR = 50, COUNT = 20000 };

static struct {
    char order[CALLS_MAX + 1];
    uint64_t operations[CALLS_MAX];
    uint32_t calls;
} journal;

static void journal_add(char side, uint64_t count)
{
    assert_true(journal.calls < CALLS_MAX);
    journal.order[journal.calls] = side;
    journal.operations[journal.calls] = count;
    journal.calls++;
}

static void burn(uint64_t steps)
{
    for (uint64_t i = 0; i < steps; i++) {
        fw_bench_use(i);
    }
}

static void fast_run(void *state, uint64_t count)
{
    (void)state;
    journal_add('f', count);
    burn(count);
}

static void slow_run(void *state, uint64_t count)
{
    (void)state;
    journal_add('s', count);
    burn(count * SLOW_FACTOR);
}

static const struct fw_bench_side fast = {.name = "fast", .run = fast_run};
static const struct fw_bench_side slow = {.name = "slow", .run = slow_run};

static int run(const struct fw_bench *benches, size_t count, const char *option, const char *value)
{
    char program[] = "harness_test";
    char texts[2][16] = {"", ""};
    char *arguments[] = {program, texts[0], texts[1], NULL};
    int argument_count = 1;
    if (option != NULL) {
        (void)snprintf(texts[0], sizeof texts[0], "%s", option);
        argument_count++;
    }
    if (value != NULL) {
        (void)snprintf(texts[1], sizeof texts[1], "%s", value);
        argument_count++;
    }
    memset(&journal, 0, sizeof journal);
    optind = 0; /* Lets getopt_long() start anew. */
    return fw_bench_main(argument_count, arguments, benches, count);
}

static struct fw_bench make(struct fw_bench_side ours, struct fw_bench_side peer)
{
    return (struct fw_bench){.name = "test",
                             .unit = "ns per step",
                             .ours = ours,
                             .peer = peer,
                             .bar = 1.0,
                             .count = COUNT};
}

static void test_order_and_count(void **state)
{
    (void)state;
    struct fw_bench bench = make(fast, slow);
    assert_int_equal(run(&bench, 1, "--runs", "7"), 0);
    assert_string_equal(journal.order, "fs" /* Warm-up. */ "fssffssffssffs");
    for (uint32_t i = 0; i < journal.calls; i++) {
        assert_int_equal(journal.operations[i], COUNT);
    }

    assert_int_equal(run(&bench, 1, "--quick", NULL), 0);
    assert_string_equal(journal.order, "fs"
                                       "fssffs");
    assert_int_equal(journal.operations[0], COUNT / 100);
}

static void test_status(void **state)
{
    (void)state;
    struct fw_bench met = make(fast, slow);
    struct fw_bench missed = make(slow, fast);
    assert_int_equal(run(&met, 1, NULL, NULL), 0);
    assert_int_equal(run(&missed, 1, NULL, NULL), 1);
    assert_int_equal(run(&missed, 1, "--quick", NULL), 0); /* Too short to judge. */
    missed.bar = 10.0 * SLOW_FACTOR;
    assert_int_equal(run(&missed, 1, NULL, NULL), 0);

    /* One bar that is not met decides, wherever it stands, even beside a greater ratio. */
    struct fw_bench several[] = {make(slow, fast), make(fast, slow), make(slow, fast)};
    several[0].bar = 10.0 * SLOW_FACTOR;
    several[1].bar = 1.0 / (100.0 * SLOW_FACTOR);
    several[2].bar = 10.0 * SLOW_FACTOR;
    assert_int_equal(run(several, 3, NULL, NULL), 1);
    several[1].bar = 1.0;
    assert_int_equal(run(several, 3, NULL, NULL), 0);
}

static void test_usage(void **state)
{
    (void)state;
    struct fw_bench bench = make(fast, slow);
    assert_int_equal(run(&bench, 1, "--runs", "6"), 2);
    assert_int_equal(run(&bench, 1, "--runs", "1002"), 2);
    assert_int_equal(run(&bench, 1, "--runs", "7x"), 2);
    assert_int_equal(run(&bench, 1, "--runs", ""), 2);
    assert_int_equal(run(&bench, 1, "--runs", "-9"), 2);
    assert_int_equal(run(&bench, 1, "--nonsense", NULL), 2);
    assert_int_equal(run(&bench, 1, "more", NULL), 2);
    assert_int_equal(run(&bench, 0, NULL, NULL), 2);
    assert_int_equal(journal.calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_order_and_count),
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
