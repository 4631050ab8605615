/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the table finds what was put and nothing else, stays within its memory, and never frees an
 * item that somebody holds. Method: each rule by hand on a store of the smallest size; ASan sees an
 * item freed too early or not at all.
 */
#include "cache/store.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MEMORY = 1 << 20, NOW = 1000 };

static struct fw_old_store *store;

static int setup(void **state)
{
    (void)state;
    return fw_old_store_create(&store, MEMORY);
}

static int teardown(void **state)
{
    (void)state;
    fw_old_store_destroy(store);
    return 0;
}

static void put(const char *key, const char *value, int64_t expires_s)
{
    struct fw_old_item *item = fw_old_store_item_new(store, key, strlen(key), strlen(value));
    assert_non_null(item);
    memcpy(fw_old_item_value(item), value, strlen(value));
    item->expires_s = expires_s;
    fw_old_store_put(store, item);
}

static void expect(const char *key, const char *value)
{
    struct fw_old_item *item = fw_old_store_get(store, key, strlen(key), NOW);
    if (value == NULL) {
        assert_null(item);
        return;
    }
    assert_non_null(item);
    assert_int_equal(item->value_size, strlen(value));
    assert_memory_equal(fw_old_item_value(item), value, strlen(value));
    fw_old_store_unref(store, item);
}

static void test_put_get_delete(void **state)
{
    (void)state;
    expect("a", NULL);
    put("a", "one", 0);
    put("b", "two", 0);
    expect("a", "one");
    expect("b", "two");
    put("a", "three", 0); /* Replaces. */
    expect("a", "three");
    assert_int_equal(fw_old_store_count(store), 2);
    assert_true(fw_old_store_delete(store, "a", 1, NOW));
    assert_false(fw_old_store_delete(store, "a", 1, NOW));
    expect("a", NULL);
    expect("b", "two");
}

static void test_expiry(void **state)
{
    (void)state;
    put("past", "x", NOW);
    put("future", "y", NOW + 1);
    expect("past", NULL);
    expect("future", "y");
    assert_int_equal(fw_old_store_count(store), 1);
    put("past", "x", NOW);
    assert_false(fw_old_store_delete(store, "past", 4, NOW));
}

static void test_limit(void **state)
{
    (void)state;
    struct fw_old_store *refused;
    assert_int_equal(fw_old_store_create(&refused, 100), -EINVAL);

    char key[32];
    char value[1001];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    for (int i = 0; i < 3000; i++) {
        (void)snprintf(key, sizeof key, "key-%d", i);
        put(key, value, 0);
        assert_true(fw_old_store_memory(store) <= MEMORY);
    }
    expect("key-0", NULL); /* The oldest left, the newest are there. */
    expect("key-2999", value);
    size_t count = fw_old_store_count(store);
    assert_true(count > 900 && count < 1100);
    (void)snprintf(key, sizeof key, "key-%d", (int)(3000 - count));
    expect(key, value);
    assert_null(fw_old_store_item_new(store, "large", 5, MEMORY));
    assert_int_equal(fw_old_store_count(store), 0); /* It tried. */
}

static void test_held_items_stay(void **state)
{
    (void)state;
    put("a", "one", 0);
    struct fw_old_item *held = fw_old_store_get(store, "a", 1, NOW);
    size_t memory = fw_old_store_memory(store);
    assert_true(fw_old_store_delete(store, "a", 1, NOW));
    assert_memory_equal(fw_old_item_value(held), "one", 3);
    assert_int_equal(fw_old_store_memory(store), memory); /* Still ours to count. */
    fw_old_store_unref(store, held);
    assert_true(fw_old_store_memory(store) < memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_put_get_delete, setup, teardown),
        cmocka_unit_test_setup_teardown(test_expiry, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_held_items_stay, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
