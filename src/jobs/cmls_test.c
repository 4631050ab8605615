/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the lanes' limits are those of the document's worked example, and admit exactly the sets of
 * requests that can be matched to shares.
 * Method: the example with 10 workers and 100 slots, step by step; then, for every small number of
 * units, all percentages in steps and all states that can be reached, the four sums are compared
 * with a matcher that really hands out units.
 */
#include "jobs/cmls.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io/random.h"

static const uint32_t example_percent[3] = {0, 20, 20};

static void test_example_workers(void **state)
{
    (void)state;
    struct fw_cmls cmls;
    assert_int_equal(fw_cmls_init(&cmls, 10, example_percent, true), 0);
    uint64_t limits = fw_cmls_pack(&cmls);
    _Atomic uint64_t word = 0;

    /* Two of lane 1, not three; two of lane 2 beside them; no more than four of both. */
    assert_false(fw_cmls_enter(&word, limits, 0));
    assert_true(fw_cmls_enter(&word, limits, 1));
    assert_true(fw_cmls_enter(&word, limits, 1));
    assert_false(fw_cmls_enter(&word, limits, 1));
    assert_true(fw_cmls_enter(&word, limits, 2));
    assert_true(fw_cmls_enter(&word, limits, 2));
    assert_false(fw_cmls_enter(&word, limits, 2));
    for (int i = 0; i < 6; i++) {
        assert_true(fw_cmls_enter(&word, limits, 3));
    }
    assert_false(fw_cmls_enter(&word, limits, 3));
    assert_int_equal(fw_cmls_lowest(word, limits), FW_CMLS_LANES);

    /* Lane 3 alone may have all. */
    atomic_store(&word, 0);
    for (int i = 0; i < 10; i++) {
        assert_true(fw_cmls_enter(&word, limits, 3));
    }
    assert_false(fw_cmls_enter(&word, limits, 3));
}

static void test_example_borrowing(void **state)
{
    (void)state;
    struct fw_cmls cmls;
    assert_int_equal(fw_cmls_init(&cmls, 10, example_percent, true), 0);
    uint64_t limits = fw_cmls_pack(&cmls);
    _Atomic uint64_t word = 0;

    /* Four of lane 2, which use the share of lane 1: it gets none until they end. */
    for (int i = 0; i < 4; i++) {
        assert_true(fw_cmls_enter(&word, limits, 2));
    }
    assert_false(fw_cmls_enter(&word, limits, 2));
    assert_false(fw_cmls_enter(&word, limits, 1));
    fw_cmls_leave(&word, 2);
    fw_cmls_leave(&word, 2);
    assert_true(fw_cmls_enter(&word, limits, 1));
    assert_true(fw_cmls_enter(&word, limits, 1));
    assert_false(fw_cmls_enter(&word, limits, 1));
    assert_int_equal(fw_cmls_field(word, 1), 2);
    assert_int_equal(fw_cmls_field(word, 2), 2);
    expect_assert_failure(fw_cmls_leave(&word, 3));
}

static void test_example_slots(void **state)
{
    (void)state;
    struct fw_cmls cmls;
    assert_int_equal(fw_cmls_init(&cmls, 100, example_percent, true), 0);
    assert_true(fw_cmls_admits(&cmls, (uint32_t[]){0, 19, 0, 0}, 1));
    assert_false(fw_cmls_admits(&cmls, (uint32_t[]){0, 20, 0, 0}, 1));
    assert_true(fw_cmls_admits(&cmls, (uint32_t[]){0, 0, 39, 0}, 2));
    assert_false(fw_cmls_admits(&cmls, (uint32_t[]){0, 0, 40, 0}, 2));
    assert_true(fw_cmls_admits(&cmls, (uint32_t[]){0, 20, 19, 0}, 2));
    assert_false(fw_cmls_admits(&cmls, (uint32_t[]){0, 20, 20, 0}, 2));
    assert_true(fw_cmls_admits(&cmls, (uint32_t[]){0, 0, 0, 99}, 3));
    assert_false(fw_cmls_admits(&cmls, (uint32_t[]){0, 0, 0, 100}, 3));
    assert_false(fw_cmls_admits(&cmls, (uint32_t[]){0, 0, 0, 100}, 1)); /* The pool is full. */
}

/*
 * The specification: s units of each share, a request of lane l may have one of a share <= l. The
 * requests of the lowest lane have the least choice, so they choose first, each the highest share
 * that it may use; if then somebody gets nothing, there is no matching at all.
 */
static bool matcher_fits(const uint32_t shares[FW_CMLS_LANES], const uint32_t used[FW_CMLS_LANES])
{
    uint32_t left[FW_CMLS_LANES];
    for (uint32_t k = 0; k < FW_CMLS_LANES; k++) {
        left[k] = shares[k];
    }
    for (uint32_t l = 0; l < FW_CMLS_LANES; l++) {
        for (uint32_t i = 0; i < used[l]; i++) {
            uint32_t k = l + 1;
            while (k > 0 && left[k - 1] == 0) {
                k--;
            }
            if (k == 0) {
                return false;
            }
            left[k - 1]--;
        }
    }
    return true;
}

/* Compares both forms of the admission with the matcher in one state. Returns the states seen. */
static void compare(const struct fw_cmls *cmls, const uint32_t shares[4], uint32_t used[4])
{
    uint64_t limits = fw_cmls_pack(cmls);
    uint64_t before = 0;
    for (uint32_t l = 0; l < FW_CMLS_LANES; l++) {
        before += used[l] * fw_cmls_unit(l);
    }
    for (uint32_t l = 0; l < FW_CMLS_LANES; l++) {
        used[l]++;
        bool fits = matcher_fits(shares, used);
        used[l]--;
        _Atomic uint64_t word = before;
        assert_int_equal(fw_cmls_admits(cmls, used, l), fits);
        assert_int_equal(fw_cmls_enter(&word, limits, l), fits);
        assert_int_equal(word, before + (fits ? fw_cmls_unit(l) : 0));
        if (fits) {
            fw_cmls_leave(&word, l);
            assert_int_equal(word, before);
        }
    }
}

static uint32_t compare_all_states(const struct fw_cmls *cmls, uint32_t count)
{
    uint32_t shares[4] = {cmls->sums[0], cmls->sums[1] - cmls->sums[0],
                          cmls->sums[2] - cmls->sums[1], cmls->sums[3] - cmls->sums[2]};
    uint32_t states = 0;
    uint32_t used[4];
    for (used[0] = 0; used[0] <= count; used[0]++) {
        for (used[1] = 0; used[1] <= count; used[1]++) {
            for (used[2] = 0; used[2] <= count; used[2]++) {
                for (used[3] = 0; used[3] <= count; used[3]++) {
                    if (matcher_fits(shares, used)) {
                        compare(cmls, shares, used);
                        states++;
                    }
                }
            }
        }
    }
    return states;
}

static void test_exhaustive(void **state)
{
    (void)state;
    uint32_t states = 0;
    for (uint32_t count = 1; count <= 8; count++) {
        for (uint32_t i = 0; i < 6 * 6 * 6; i++) {
            uint32_t percent[3] = {i % 6 * 20, i / 6 % 6 * 20, i / 36 * 20};
            struct fw_cmls cmls;
            if (fw_cmls_init(&cmls, count, percent, true) == 0) {
                states += compare_all_states(&cmls, count);
            }
        }
    }
    assert_true(states > 5000);
}

/* The word beside the plain sums, up to the most that its fields hold. */
static void test_large(void **state)
{
    (void)state;
    struct fw_random draw;
    fw_random_init(&draw, 1);
    for (int i = 0; i < 100000; i++) {
        uint32_t count = (uint32_t)fw_random_between(&draw, 4, FW_CMLS_FIELD_MAX);
        uint32_t percent[3];
        for (int l = 0; l < 3; l++) {
            percent[l] = (uint32_t)fw_random_below(&draw, 34);
        }
        struct fw_cmls cmls;
        if (fw_cmls_init(&cmls, count, percent, true) != 0) {
            continue;
        }
        uint32_t used[FW_CMLS_LANES], sum = 0;
        uint64_t word = 0;
        for (uint32_t l = 0; l < FW_CMLS_LANES; l++) {
            /* Often just at the limit; sometimes above it, as when limits have been lowered. */
            uint32_t limit = cmls.sums[l] - (sum < cmls.sums[l] ? sum : cmls.sums[l]);
            used[l] =
                fw_random_chance(&draw, 1, 2) ? limit : (uint32_t)fw_random_below(&draw, limit + 1);
            used[l] += sum + used[l] < count && fw_random_chance(&draw, 1, 8) ? 1 : 0;
            sum += used[l];
            word += used[l] * fw_cmls_unit(l);
        }
        uint32_t lowest = fw_cmls_lowest(word, fw_cmls_pack(&cmls));
        for (uint32_t l = 0; l < FW_CMLS_LANES; l++) {
            assert_int_equal(fw_cmls_admits(&cmls, used, l), l >= lowest);
        }
    }
    struct fw_cmls most = {.sums = {0, 0, 0, FW_CMLS_FIELD_MAX + 1}};
    expect_assert_failure((void)fw_cmls_pack(&most));
}

static void test_shares(void **state)
{
    (void)state;
    struct fw_cmls cmls;
    /* A small percentage is still one unit; what floor() cuts goes to lane 3. */
    assert_int_equal(fw_cmls_init(&cmls, 7, (uint32_t[]){1, 30, 0}, true), 0);
    assert_int_equal(cmls.sums[0], 1);
    assert_int_equal(cmls.sums[1], 3);
    assert_int_equal(cmls.sums[2], 3);
    assert_int_equal(cmls.sums[3], 7);
    assert_int_equal(fw_cmls_init(&cmls, 10, (uint32_t[]){0, 50, 50}, true), -EINVAL);
    assert_int_equal(fw_cmls_init(&cmls, 2, (uint32_t[]){0, 1, 1}, true), -EINVAL);
    assert_int_equal(fw_cmls_init(&cmls, 10, (uint32_t[]){0, 50, 50}, false), 0);
    for (int k = 0; k < 4; k++) {
        assert_int_equal(cmls.sums[k], 10);
    }
    assert_int_equal(fw_cmls_init(&cmls, 0, (uint32_t[]){0, 0, 0}, false), -EINVAL);
}

/* With fewer units every lane that had one keeps one, whatever the percentages. */
static void test_fit(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 11 * 11 * 11; i++) {
        uint32_t percent[3] = {i % 11 * 10, i / 11 % 11 * 10, i / 121 * 10};
        uint32_t least = fw_cmls_least(percent, true);
        for (uint32_t count = least; count < 12; count++) {
            struct fw_cmls cmls, exact;
            fw_cmls_fit(&cmls, count, percent, true);
            uint32_t sum = 0;
            for (uint32_t l = 0; l < 3; l++) {
                assert_true(percent[l] == 0 ? cmls.sums[l] == sum : cmls.sums[l] > sum);
                sum = cmls.sums[l];
            }
            assert_true(sum < count);
            assert_int_equal(cmls.sums[3], count);
            if (fw_cmls_init(&exact, count, percent, true) == 0) {
                assert_memory_equal(&cmls, &exact, sizeof cmls);
            }
        }
    }
    struct fw_cmls none;
    expect_assert_failure(fw_cmls_fit(&none, 3, (uint32_t[]){20, 20, 20}, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_example_workers),
        cmocka_unit_test(test_example_borrowing),
        cmocka_unit_test(test_example_slots),
        cmocka_unit_test(test_exhaustive),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
