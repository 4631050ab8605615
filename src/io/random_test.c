/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the numbers are those of the published generator, the same everywhere; bounds are kept
 * without bias; every order comes out of a shuffle; the simulator decides the seed.
 * Method: known answers; counts under fixed seeds against limits so wide (six standard deviations)
 * that only a fault can pass them, and since the seed is fixed they never fail by chance.
 */
#include "io/random.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

/* In place of the C library's: fails with `seed_errno` as often as `seed_failures` says. */
static int seed_errno, seed_failures;

ssize_t getrandom(void *buffer, size_t size, unsigned flags)
{
    if (seed_failures > 0) {
        seed_failures--;
        errno = seed_errno;
        return -1;
    }
    return syscall(SYS_getrandom, buffer, size, flags);
}

static void test_known_answers(void **state)
{
    (void)state;
    static const uint64_t expected[] = {
        11520,
        0,
        1509978240,
        1215971899390074240,
        1216172134540287360,
        607988272756665600,
        16172922978634559625U,
        8476171486693032832,
        10595114339597558777U,
        2904607092377533576,
    };
    struct fw_random generator = {.state = {1, 2, 3, 4}};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(expected); i++) {
        assert_true(fw_random_next(&generator) == expected[i]);
    }

    /* The state that SplitMix64 makes of this seed. */
    fw_random_init(&generator, 1234567);
    assert_true(generator.state[0] == 6457827717110365317);
    assert_true(generator.state[1] == 3203168211198807973);
    assert_true(generator.state[2] == 9817491932198370423U);
    assert_true(generator.state[3] == 4593380528125082431);
}

static void test_seed(void **state)
{
    (void)state;
    uint64_t one = 0;
    uint64_t other = 0;
    assert_int_equal(fw_random_seed(&one), 0);
    assert_int_equal(fw_random_seed(&other), 0);
    assert_true(one != other); /* Wrong once in 2^64. */
    seed_errno = EINTR;
    seed_failures = 2;
    assert_int_equal(fw_random_seed(&other), 0);
    assert_int_equal(seed_failures, 0);
    seed_errno = ENOSYS;
    seed_failures = 1;
    assert_int_equal(fw_random_seed(&other), -ENOSYS);
}

static uint64_t hook_seed(void)
{
    return 99;
}

static void test_seed_hook(void **state)
{
    (void)state;
    static const struct fw_random_hooks hooks = {.seed = hook_seed};
    uint64_t seed = 0;
    fw_random_hooks = &hooks;
    assert_int_equal(fw_random_seed(&seed), 0);
    fw_random_hooks = NULL;
    assert_true(seed == 99);
}

/* Fails if `count` of `total` draws is six standard deviations or more from `total / parts`. */
static void check_share(uint64_t count, uint64_t total, uint64_t parts)
{
    double expected = (double)total / (double)parts;
    double variance = expected * (1.0 - 1.0 / (double)parts);
    double distance = (double)count - expected;
    assert_true(distance * distance < 36.0 * variance);
}

static void test_below(void **state)
{
    (void)state;
    enum { BOUND = 7, DRAWS = 70000 };
    struct fw_random generator;
    uint64_t counts[BOUND] = {0};
    fw_random_init(&generator, 1);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t drawn = fw_random_below(&generator, BOUND);
        assert_true(drawn < BOUND);
        counts[drawn]++;
    }
    for (int i = 0; i < BOUND; i++) {
        check_share(counts[i], DRAWS, BOUND);
    }
    assert_true(fw_random_below(&generator, 1) == 0);
    for (int i = 0; i < 64; i++) { /* Nothing has to be thrown away for a power of two. */
        assert_true(fw_random_below(&generator, UINT64_C(1) << 63) < UINT64_C(1) << 63);
    }
    expect_assert_failure((void)fw_random_below(&generator, 0));
}

/*
 * With a bound of 3 * 2^62, a plain multiplication (or remainder) would give one third of the
 * numbers half of the draws.
 */
static void test_below_without_bias(void **state)
{
    (void)state;
    enum { DRAWS = 30000, PARTS = 3 };
    struct fw_random generator;
    uint64_t remainders[PARTS] = {0};
    uint64_t thirds[PARTS] = {0};
    fw_random_init(&generator, 2);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t drawn = fw_random_below(&generator, UINT64_C(3) << 62);
        remainders[drawn % PARTS]++;
        thirds[drawn >> 62]++;
    }
    for (int i = 0; i < PARTS; i++) {
        check_share(remainders[i], DRAWS, PARTS);
        check_share(thirds[i], DRAWS, PARTS);
    }
}

static void test_between_and_chance(void **state)
{
    (void)state;
    enum { DRAWS = 40000 };
    struct fw_random generator;
    uint64_t counts[4] = {0};
    uint64_t hits = 0;
    uint64_t above = 0;
    fw_random_init(&generator, 3);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t drawn = fw_random_between(&generator, 10, 13);
        assert_in_range(drawn, 10, 13);
        counts[drawn - 10]++;
        hits += fw_random_chance(&generator, 1, 8) ? 1 : 0;
        above += fw_random_between(&generator, 0, UINT64_MAX) > UINT64_MAX / 2 ? 1 : 0;
        assert_true(fw_random_chance(&generator, 5, 5));
        assert_false(fw_random_chance(&generator, 0, 5));
    }
    for (int i = 0; i < 4; i++) {
        check_share(counts[i], DRAWS, 4);
    }
    check_share(hits, DRAWS, 8);
    check_share(above, DRAWS, 2);
    assert_true(fw_random_between(&generator, 5, 5) == 5);
    expect_assert_failure((void)fw_random_between(&generator, 6, 5));
    expect_assert_failure((void)fw_random_chance(&generator, 2, 1));
}

static void test_bits(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    struct fw_random generator;
    uint64_t counts[64] = {0};
    fw_random_init(&generator, 4);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t drawn = fw_random_next(&generator);
        for (int bit = 0; bit < 64; bit++) {
            counts[bit] += (drawn >> bit) & 1;
        }
    }
    for (int bit = 0; bit < 64; bit++) {
        check_share(counts[bit], DRAWS, 2);
    }
}

static void test_shuffle(void **state)
{
    (void)state;
    enum { DRAWS = 60000, ORDERS = 6 };
    struct fw_random generator;
    uint64_t counts[3][3] = {0};
    fw_random_init(&generator, 5);
    for (int i = 0; i < DRAWS; i++) {
        static const uint16_t elements[3] = {0x000, 0x101, 0x202}; /* Both bytes must move. */
        uint16_t array[3];
        memcpy(array, elements, sizeof array);
        fw_random_shuffle(&generator, array, 3, sizeof array[0]);
        int seen = 0;
        for (int j = 0; j < 3; j++) {
            assert_in_range(array[j] & 0xff, 0, 2);
            assert_int_equal(array[j], elements[array[j] & 0xff]);
            seen |= 1 << (array[j] & 0xff);
        }
        assert_int_equal(seen, 7);
        counts[array[0] & 0xff][array[1] & 0xff]++;
    }
    for (int first = 0; first < 3; first++) {
        for (int second = 0; second < 3; second++) {
            if (first != second) {
                check_share(counts[first][second], DRAWS, ORDERS);
            }
        }
    }
    fw_random_shuffle(&generator, NULL, 0, 1); /* Nothing to do, nothing touched. */
}

static void test_fork_and_replay(void **state)
{
    (void)state;
    struct fw_random one, again, child, child_again;
    fw_random_init(&one, 6);
    fw_random_init(&again, 6);
    fw_random_fork(&one, &child);
    fw_random_fork(&again, &child_again);
    for (int i = 0; i < 100; i++) {
        uint64_t drawn = fw_random_next(&one);
        uint64_t drawn_by_child = fw_random_next(&child);
        assert_true(drawn != drawn_by_child);
        assert_true(drawn == fw_random_next(&again));
        assert_true(drawn_by_child == fw_random_next(&child_again));
    }
}

static void test_fill(void **state)
{
    (void)state;
    struct fw_random generator = {.state = {1, 2, 3, 4}};
    uint8_t bytes[20];
    memset(bytes, 0xee, sizeof bytes);
    fw_random_fill(&generator, bytes, 18); /* 11520, 0, and two bytes of 1509978240 = 0x5a007080. */
    static const uint8_t expected[20] = {0x00, 0x2d, 0, 0, 0, 0, 0,    0,    0,    0,
                                         0,    0,    0, 0, 0, 0, 0x80, 0x70, 0xee, 0xee};
    assert_memory_equal(bytes, expected, sizeof bytes);
    fw_random_fill(&generator, bytes, 0);
    generator = (struct fw_random){.state = {1, 2, 3, 4}};
    memset(bytes, 0xee, sizeof bytes);
    fw_random_fill(&generator, bytes, 17); /* One byte of the third. */
    assert_int_equal(bytes[16], 0x80);
    assert_int_equal(bytes[17], 0xee);
    for (size_t size = 1; size < sizeof bytes; size++) { /* Nothing behind the end, ever. */
        memset(bytes, 0xee, sizeof bytes);
        fw_random_fill(&generator, bytes, size);
        for (size_t i = size; i < sizeof bytes; i++) {
            assert_int_equal(bytes[i], 0xee);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_seed_hook),
        cmocka_unit_test(test_below),
        cmocka_unit_test(test_below_without_bias),
        cmocka_unit_test(test_between_and_chance),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_shuffle),
        cmocka_unit_test(test_fork_and_replay),
        cmocka_unit_test(test_fill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
