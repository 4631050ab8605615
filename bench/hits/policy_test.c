/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the policies that servers are compared with do what their papers say, at sizes small enough
 * to follow by hand; a wrong reference would flatter or blame us.
 * Method: objects of one byte and caches of a few bytes; after a sequence, which objects hit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/hits/policy.h"

enum { OBJECTS = 64 };

/* One access per letter; the answer has the letters that hit in upper case, others as dots. */
static void check(enum fw_policy_kind kind, uint64_t capacity, const char *sequence,
                  const char *expected)
{
    struct fw_policy *policy = fw_policy_create(kind, capacity, OBJECTS);
    for (size_t i = 0; sequence[i] != '\0'; i++) {
        bool is_hit = fw_policy_access(policy, (uint32_t)(sequence[i] - 'a'), 1, 0, 0);
        if (is_hit != (expected[i] == '+')) {
            fail_msg("access %zu of '%s': %s", i, sequence, is_hit ? "hit" : "miss");
        }
    }
    fw_policy_destroy(policy);
}

static void test_lru(void **state)
{
    (void)state;
    check(FW_POLICY_LRU, 3, "abcabc", "---+++");
    check(FW_POLICY_LRU, 3, "abcadacdb", "---+-+++-"); /* b was the oldest. */
    check(FW_POLICY_LRU, 3, "abcdabcd", "--------");   /* A loop. */
}

/* With one a that is spared, the hand takes b, goes on to c, and does not come back to a first. */
static void test_sieve(void **state)
{
    (void)state;
    check(FW_POLICY_SIEVE, 3, "abcada", "---+-+");
    check(FW_POLICY_SIEVE, 3, "abcadeadec", "---+--+++-");
    /* The hand spares a, once, and takes b; c and a are still there. */
    check(FW_POLICY_SIEVE, 3, "abcadca", "---+-++");
    check(FW_POLICY_SIEVE, 2, "ababcb", "--++-+"); /* All spared once: a, the oldest. */
}

/*
 * Capacity 20, of which 2 are the small queue. An object that is asked for once only goes by way of
 * the small queue and does not touch the main one; one that comes back soon after goes to main.
 */
static void test_s3fifo(void **state)
{
    (void)state;
    struct fw_policy *policy = fw_policy_create(FW_POLICY_S3FIFO, 20, 1000);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t object = 0; object < 10; object++) {
            bool is_hit = fw_policy_access(policy, object, 1, 0, 0);
            assert_int_equal(is_hit, round > 0);
        }
    }
    for (uint32_t object = 100; object < 500; object++) { /* One-hit wonders. */
        assert_false(fw_policy_access(policy, object, 1, 0, 0));
    }
    for (uint32_t object = 0; object < 10; object++) {
        assert_true(fw_policy_access(policy, object, 1, 0, 0));
    }
    /* The last that went are remembered, and then live in the main queue. */
    assert_false(fw_policy_access(policy, 489, 1, 0, 0));
    for (uint32_t object = 500; object < 600; object++) {
        assert_false(fw_policy_access(policy, object, 1, 0, 0));
    }
    assert_true(fw_policy_access(policy, 489, 1, 0, 0));
    assert_false(fw_policy_access(policy, 200, 1, 0, 0)); /* This one was forgotten. */
    fw_policy_destroy(policy);
}

static void test_bytes_and_time(void **state)
{
    (void)state;
    for (enum fw_policy_kind kind = 0; kind < FW_POLICY_KINDS; kind++) {
        struct fw_policy *policy = fw_policy_create(kind, 100, OBJECTS);
        assert_false(fw_policy_access(policy, 0, 60, 0, 0));
        assert_false(fw_policy_access(policy, 1, 60, 0, 0)); /* Both do not fit. */
        assert_true(fw_policy_access(policy, 1, 60, 0, 0));
        assert_false(fw_policy_access(policy, 2, 101, 0, 0)); /* Never fits, harms nobody. */
        assert_true(fw_policy_access(policy, 1, 60, 0, 0));
        fw_policy_destroy(policy);

        policy = fw_policy_create(kind, 100, OBJECTS);
        assert_false(fw_policy_access(policy, 0, 10, 5, 7));
        assert_true(fw_policy_access(policy, 0, 10, 6, 8));
        assert_false(fw_policy_access(policy, 0, 10, 7, 9)); /* A hit does not prolong it. */
        assert_true(fw_policy_access(policy, 0, 10, 8, 0));
        fw_policy_destroy(policy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lru),
        cmocka_unit_test(test_sieve),
        cmocka_unit_test(test_s3fifo),
        cmocka_unit_test(test_bytes_and_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
