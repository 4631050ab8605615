/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: it is the HMAC-SHA-256 of the standard, and the comparison sees every byte.
 * Method: test cases 2 and 6 of RFC 4231; one bit wrong in every place.
 */
#include "io/hmac.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_standard(void **state)
{
    (void)state;
    static const uint8_t expected[2][FW_HMAC_SIZE] = {
        {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24,
         0x26, 0x08, 0x95, 0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27,
         0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43},
        {0x60, 0xe4, 0x31, 0x59, 0x1e, 0xe0, 0xb6, 0x7f, 0x0d, 0x8a, 0x26,
         0xaa, 0xcb, 0xf5, 0xb7, 0x7f, 0x8e, 0x0b, 0xc6, 0x21, 0x37, 0x28,
         0xc5, 0x14, 0x05, 0x46, 0x04, 0x0f, 0x0e, 0xe3, 0x7f, 0x54},
    };
    static const char what[] = "what do ya want for nothing?";
    static const char hash[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    char key[131];
    char mac[FW_HMAC_SIZE];
    assert_int_equal(fw_hmac("Jefe", 4, what, sizeof what - 1, mac), 0);
    assert_memory_equal(mac, expected[0], sizeof mac);
    memset(key, 0xaa, sizeof key);
    assert_int_equal(fw_hmac(key, sizeof key, hash, sizeof hash - 1, mac), 0);
    assert_memory_equal(mac, expected[1], sizeof mac);
}

static void test_comparison(void **state)
{
    (void)state;
    char mac[FW_HMAC_SIZE];
    char other[FW_HMAC_SIZE];
    assert_int_equal(fw_hmac("k", 1, "v", 1, mac), 0);
    memcpy(other, mac, sizeof mac);
    assert_true(fw_hmac_is_equal(mac, other));
    for (size_t i = 0; i < sizeof mac; i++) {
        other[i] = (char)(other[i] ^ 1);
        assert_false(fw_hmac_is_equal(mac, other));
        other[i] = mac[i];
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_standard),
        cmocka_unit_test(test_comparison),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
