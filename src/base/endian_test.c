/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: each function reads and writes exactly its bytes, in the order of its name.
 * Method: a number whose bytes all differ, at an odd address between two guards, against the bytes
 * written down.
 */
#include "base/endian.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

#define GUARD "\xee"

static void test_little(void **state)
{
    (void)state;
    char bytes[1 + sizeof(uint64_t) + 1];

    memset(bytes, GUARD[0], sizeof bytes);
    fw_le16_put(bytes + 1, 0x0102);
    assert_memory_equal(bytes, GUARD "\x02\x01" GUARD, 4);
    assert_int_equal(fw_le16_get(bytes + 1), 0x0102);

    memset(bytes, GUARD[0], sizeof bytes);
    fw_le32_put(bytes + 1, 0x81020304);
    assert_memory_equal(bytes, GUARD "\x04\x03\x02\x81" GUARD, 6);
    assert_int_equal(fw_le32_get(bytes + 1), 0x81020304);

    memset(bytes, GUARD[0], sizeof bytes);
    fw_le64_put(bytes + 1, 0x8102030405060708);
    assert_memory_equal(bytes, GUARD "\x08\x07\x06\x05\x04\x03\x02\x81" GUARD, 10);
    assert_int_equal(fw_le64_get(bytes + 1), 0x8102030405060708);
}

static void test_big(void **state)
{
    (void)state;
    char bytes[1 + sizeof(uint64_t) + 1];

    memset(bytes, GUARD[0], sizeof bytes);
    fw_be16_put(bytes + 1, 0x0102);
    assert_memory_equal(bytes, GUARD "\x01\x02" GUARD, 4);
    assert_int_equal(fw_be16_get(bytes + 1), 0x0102);

    memset(bytes, GUARD[0], sizeof bytes);
    fw_be32_put(bytes + 1, 0x81020304);
    assert_memory_equal(bytes, GUARD "\x81\x02\x03\x04" GUARD, 6);
    assert_int_equal(fw_be32_get(bytes + 1), 0x81020304);

    memset(bytes, GUARD[0], sizeof bytes);
    fw_be64_put(bytes + 1, 0x8102030405060708);
    assert_memory_equal(bytes, GUARD "\x81\x02\x03\x04\x05\x06\x07\x08" GUARD, 10);
    assert_int_equal(fw_be64_get(bytes + 1), 0x8102030405060708);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_little),
        cmocka_unit_test(test_big),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
