/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what is stored is found until it is evicted, and the counts say so.
 * Method: more items than memory has room for.
 */
#include "cache/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void test_basic(void **state)
{
    (void)state;
    struct fw_table *table;
    struct fw_reason reason;
    struct fw_table_config config = {.memory = 64 << 20, .is_evicting = true, .seed = 1};
    assert_int_equal(fw_table_create(&table, &config, &reason), 0);
    struct fw_table_local *local;
    assert_int_equal(fw_table_local_create(&local, table), 0);
    enum { COUNT = 600000 };
    for (int i = 0; i < COUNT; i++) {
        char text[32];
        int length = snprintf(text, sizeof text, "key-%d", i);
        struct fw_key key = fw_table_key(local, text, (size_t)length);
        struct fw_hold hold;
        assert_true(fw_table_reserve(local, fw_item_size(key.length, 100)));
        fw_table_hold(local, &hold, &key);
        struct fw_item *item = fw_hold_write(&hold, 100, NULL);
        memset(fw_item_value(item), i & 255, 100);
        fw_hold_release(&hold);
    }
    int found = 0;
    for (int i = 0; i < COUNT; i++) {
        char text[32];
        int length = snprintf(text, sizeof text, "key-%d", i);
        struct fw_key key = fw_table_key(local, text, (size_t)length);
        struct fw_hold hold;
        fw_table_hold(local, &hold, &key);
        if (hold.item != NULL) {
            found++;
            assert_int_equal((unsigned char)fw_item_value(hold.item)[99], i & 255);
        }
        fw_hold_release(&hold);
    }
    struct fw_table_totals totals;
    fw_table_totals(table, &totals);
    assert_int_equal(found, totals.items);
    fw_table_local_destroy(local);
    fw_table_destroy(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_basic)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
