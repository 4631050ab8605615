/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: clients cannot choose prefixes that meet in one bucket.
 * Method: prefixes that do under FNV-1a, which needs no secret, and then how many buckets they are
 * in.
 */
#include "cache/detail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { PREFIXES = 200, BUCKETS_MIN = 150 };

static uint32_t fnv(const char *bytes)
{
    uint32_t hash = 2166136261U;
    for (; *bytes != '\0'; bytes++) {
        hash = (hash ^ (uint8_t)*bytes) * 16777619U;
    }
    return hash;
}

static size_t buckets_used(const struct fw_detail *detail)
{
    size_t count = 0;
    for (size_t i = 0; i < FW_DETAIL_BUCKETS; i++) {
        count += detail->buckets[i] != NULL;
    }
    return count;
}

static void test_chosen_prefixes(void **state)
{
    (void)state;
    struct fw_detail *detail;
    assert_int_equal(fw_detail_create(&detail, 12345), 0);
    int found = 0;
    for (int i = 0; found < PREFIXES; i++) {
        char text[32];
        int length = snprintf(text, sizeof text, "%d", i);
        if (fnv(text) % FW_DETAIL_BUCKETS == 0) {
            text[length] = ':';
            struct fw_key key = {.bytes = text, .length = (uint32_t)length + 1};
            fw_detail_count(detail, &key, FW_DETAIL_GET);
            found++;
        }
    }
    assert_int_equal(detail->count, PREFIXES);
    assert_true(buckets_used(detail) >= BUCKETS_MIN);
    fw_detail_destroy(detail);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chosen_prefixes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
