/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: objects do not overlap, keep their stable bytes through free and alloc, come from the same
 * memory for the pool's whole life, and end at the limit; misuse is found where the build looks for
 * it. Method: fill pools of awkward sizes to the brim, writing every byte of every object; give all
 * back in another order and fill again; compare addresses and contents. Where the build has
 * FW_CHECKS or AddressSanitizer, misuse the pool and see it noticed.
 */
#include "base/pool.h"

#include <errno.h>
#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/fail_memory.h"

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNDER_ASAN 1
#endif
#endif

#if defined(UNDER_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

enum { LIMIT = 3000 };

static struct fw_pool pool;
static unsigned char *objects[LIMIT];
static unsigned char *again[LIMIT];

static void assert_filled(const unsigned char *bytes, size_t from, size_t to, unsigned char value)
{
    for (size_t i = from; i < to; i++) {
        assert_int_equal(bytes[i], value);
    }
}

/* Every object is used whole, twice. `stable` bytes must outlive the free. */
static void fill_and_refill(size_t size, size_t alignment, size_t stable)
{
    assert_int_equal(fw_pool_init(&pool, size, alignment, stable, LIMIT), 0);
    assert_int_equal(fw_pool_bytes(&pool), 0);
    for (int i = 0; i < LIMIT; i++) {
        objects[i] = fw_pool_alloc(&pool);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % alignment, 0);
        assert_filled(objects[i], 0, size, 0);
        memset(objects[i], i % 251, size);
    }
    assert_null(fw_pool_alloc(&pool));
    assert_int_equal(fw_pool_live_count(&pool), LIMIT);
    uint64_t bytes = fw_pool_bytes(&pool);
    assert_true(bytes >= LIMIT * size);

    for (int i = 0; i < LIMIT; i++) {
        assert_filled(objects[i], 0, size, (unsigned char)(i % 251));
    }
    for (int step = 0; step < LIMIT; step++) {
        fw_pool_free(&pool, objects[(step * 7) % LIMIT]); /* 7 does not divide the limit. */
    }
    assert_int_equal(fw_pool_live_count(&pool), 0);
    for (int i = 0; i < LIMIT; i++) {
        assert_filled(objects[i], 0, stable, (unsigned char)(i % 251));
    }

    for (int step = LIMIT - 1; step >= 0; step--) {
        int i = (step * 7) % LIMIT;
        again[i] = fw_pool_alloc(&pool);
        assert_ptr_equal(again[i], objects[i]); /* Last in, first out. */
        assert_filled(again[i], 0, stable, (unsigned char)(i % 251));
        memset(again[i], 1, size);
    }
    assert_null(fw_pool_alloc(&pool));
    assert_int_equal(fw_pool_bytes(&pool), bytes);
    for (int i = 0; i < LIMIT; i++) {
        fw_pool_free(&pool, again[i]);
    }
    fw_pool_fini(&pool);
}

static void test_fill_and_refill(void **state)
{
    (void)state;
    fill_and_refill(1, 1, 0);
    fill_and_refill(1, 1, 1);
    fill_and_refill(8, 8, 8);
    fill_and_refill(12, 4, 4);
    fill_and_refill(17, 1, 8);
    fill_and_refill(100, 4, 100);
    fill_and_refill(72, 64, 8);
    fill_and_refill(700, 1, 16);
}

static void test_large_objects(void **state)
{
    (void)state;
    assert_int_equal(fw_pool_init(&pool, FW_POOL_OBJECT_SIZE_MAX, FW_POOL_ALIGNMENT_MAX, 0, 3), 0);
    for (int i = 0; i < 3; i++) {
        objects[i] = fw_pool_alloc(&pool);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % FW_POOL_ALIGNMENT_MAX, 0);
        memset(objects[i], 'a' + i, FW_POOL_OBJECT_SIZE_MAX);
    }
    assert_null(fw_pool_alloc(&pool));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(objects[i][0], 'a' + i);
        assert_int_equal(objects[i][FW_POOL_OBJECT_SIZE_MAX - 1], 'a' + i);
        fw_pool_free(&pool, objects[i]);
    }
    fw_pool_fini(&pool);
}

static void test_limits(void **state)
{
    (void)state;
    assert_int_equal(fw_pool_init(&pool, 8, 8, 0, 0), -EINVAL);
    assert_int_equal(fw_pool_init(&pool, 8, 8, 0, (uint64_t)FW_POOL_LIMIT_MAX + 1), -EINVAL);
    expect_assert_failure((void)(fw_pool_init(&pool, 0, 8, 0, 1) == 0));
    expect_assert_failure((void)(fw_pool_init(&pool, 8, 3, 0, 1) == 0));
    expect_assert_failure((void)(fw_pool_init(&pool, 8, 8, 9, 1) == 0));
    expect_assert_failure((void)(fw_pool_init(&pool, FW_POOL_OBJECT_SIZE_MAX + 1, 8, 0, 1) == 0));
    expect_assert_failure(
        (void)(fw_pool_init(&pool, 8, 2 * (size_t)FW_POOL_ALIGNMENT_MAX, 0, 1) == 0));

    assert_int_equal(fw_pool_init(&pool, 8, 8, 0, FW_POOL_LIMIT_MAX), 0);
    fw_pool_fini(&pool);
    assert_int_equal(fw_pool_init(&pool, 40, 1, 0, 1), 0);
    char *bytes = fw_pool_alloc(&pool);
    expect_assert_failure(fw_pool_free(&pool, bytes + 4)); /* No object begins there. */
    fw_pool_free(&pool, bytes);
    fw_pool_fini(&pool);
    assert_int_equal(fw_pool_init(&pool, 64, 8, 0, 1), 0);
    void *only = fw_pool_alloc(&pool);
    assert_non_null(only);
    assert_true(fw_pool_bytes(&pool) < 256); /* Of a slab only what the limit can use. */
    assert_null(fw_pool_alloc(&pool));
    expect_assert_failure(fw_pool_fini(&pool)); /* One is still out. */
    fw_pool_free(&pool, only);
    expect_assert_failure(fw_pool_free(&pool, only)); /* More freed than were allocated. */
    fw_pool_fini(&pool);
    assert_null(fw_pool_alloc(&pool));
}

/* What the stable bytes are for: a handle of an object's earlier life is told apart. */
static void test_generation(void **state)
{
    (void)state;
    struct fom {
        uint32_t generation;
        uint32_t waiting;
    };
    assert_int_equal(fw_pool_init(&pool, sizeof(struct fom), alignof(struct fom),
                                  offsetof(struct fom, waiting), LIMIT),
                     0);
    struct fom *first = fw_pool_alloc(&pool);
    uint32_t handle = first->generation;
    first->waiting = 1;
    first->generation++;
    fw_pool_free(&pool, first);
    assert_int_not_equal(first->generation, handle); /* Freed: readable, and not the same. */
    struct fom *second = fw_pool_alloc(&pool);
    assert_ptr_equal(second, first);
    assert_int_not_equal(first->generation, handle); /* In use again: not the same either. */
    fw_pool_free(&pool, second);
    fw_pool_fini(&pool);
}

static void test_no_memory(void **state)
{
    (void)state;
    assert_int_equal(fw_pool_init(&pool, FW_POOL_SLAB_SIZE, 8, 0, 2), 0);
    void *first = fw_pool_alloc(&pool);
    assert_non_null(first);
    fail_memory_after(0);
    assert_null(fw_pool_alloc(&pool)); /* The second needs a slab of its own. */
    assert_int_equal(fw_pool_live_count(&pool), 1);
    void *second = fw_pool_alloc(&pool); /* And may have it when there is memory again. */
    assert_non_null(second);
    fw_pool_free(&pool, first);
    fw_pool_free(&pool, second);
    fw_pool_fini(&pool);
}

#if defined(FW_CHECKS)
static void test_checks_find_misuse(void **state)
{
    (void)state;
    struct fw_pool other;
    assert_int_equal(fw_pool_init(&pool, 40, 8, 8, LIMIT), 0);
    assert_int_equal(fw_pool_init(&other, 40, 8, 8, LIMIT), 0);
    char *kept = fw_pool_alloc(&pool);
    char *object = fw_pool_alloc(&pool);
    char *stranger = fw_pool_alloc(&other);
    expect_assert_failure(fw_pool_free(&pool, stranger));
    fw_pool_free(&other, stranger);
    fw_pool_free(&pool, object);
    expect_assert_failure(fw_pool_free(&pool, object)); /* Twice. */
    object = fw_pool_alloc(&pool);
    fw_pool_free(&pool, object);
    ASAN_UNPOISON_MEMORY_REGION(object, 48); /* These are for builds where nobody stops it. */
    ASAN_UNPOISON_MEMORY_REGION(kept, 48);
    object[39] ^= 1; /* Written while free. */
    expect_assert_failure((void)(fw_pool_alloc(&pool) == NULL));
    object[39] ^= 1;
    kept[40] ^= 1; /* Beyond the end. */
    expect_assert_failure(fw_pool_free(&pool, kept));
    kept[40] ^= 1;
    fw_pool_free(&pool, kept);
    fw_pool_fini(&pool);
    fw_pool_fini(&other);
}
#endif

#if defined(UNDER_ASAN)
static void test_asan_sees_freed_objects(void **state)
{
    (void)state;
    assert_int_equal(fw_pool_init(&pool, 36, 4, 8, LIMIT), 0);
    char *object = fw_pool_alloc(&pool);
    assert_null(__asan_region_is_poisoned(object, 36));
    assert_true(__asan_address_is_poisoned(object + 36));
    assert_true(__asan_address_is_poisoned(object + 40)); /* The mark, or the next object. */
    fw_pool_free(&pool, object);
    assert_null(__asan_region_is_poisoned(object, 8)); /* The stable bytes. */
    for (int i = 8; i < 36; i++) {
        assert_true(__asan_address_is_poisoned(object + i));
    }
    assert_ptr_equal(fw_pool_alloc(&pool), object);
    assert_null(__asan_region_is_poisoned(object, 36));
    assert_true(__asan_address_is_poisoned(object + 36));
    fw_pool_free(&pool, object);
    fw_pool_fini(&pool);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fill_and_refill),
        cmocka_unit_test(test_large_objects),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_generation),
        cmocka_unit_test(test_no_memory),
#if defined(FW_CHECKS)
        cmocka_unit_test(test_checks_find_misuse),
#endif
#if defined(UNDER_ASAN)
        cmocka_unit_test(test_asan_sees_freed_objects),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
