/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: fw_hash() is XXH3 with its seed, for good: hashes go to disk and to other nodes.
 * Method: the known answers of xxHash's own sanity test, at least one for each of the lengths that
 * XXH3 treats differently, with and without a seed, and at every alignment.
 */
#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

/* The generator and the seed of xxHash's sanity test. */
#define PRIME32 UINT64_C(2654435761)
#define PRIME64 UINT64_C(11400714785074694797)

static const struct {
    size_t length;
    uint64_t hash, hash_seeded;
} answers[] = {
    {0, 0x2D06800538D394C2, 0xA8A6B918B2F0364A},    /* Nothing. */
    {1, 0xC44BDFF4074EECDB, 0x032BE332DD766EF8},    /* Up to 3. */
    {6, 0x27B56A84CD2D7325, 0x84589C116AB59AB9},    /* Up to 8. */
    {12, 0xA713DAF0DFBB77E7, 0xE7303E1B2336DE0E},   /* Up to 16. */
    {24, 0xA3FE70BF9D3510EB, 0x850E80FC35BDD690},   /* Up to 32. */
    {48, 0x397DA259ECBA1F11, 0xADC2CBAA44ACC616},   /* Up to 64. */
    {80, 0xBCDEFBBB2C47C90A, 0xC6DD0CB699532E73},   /* Up to 128. */
    {195, 0xCD94217EE362EC3A, 0xBA68003D370CB3D9},  /* Up to 240. */
    {403, 0xCDEB804D65C6DEA4, 0x6259F6ECFD6443FD},  /* One block, the last stripe overlaps. */
    {512, 0x617E49599013CB6B, 0x3CE457DE14C27708},  /* One block, to the end of a stripe. */
    {2048, 0xDD59E2C3A5F038E0, 0x66F81670669ABABC}, /* Two whole blocks. */
    {2367, 0xCB37AEB9E5D361ED, 0xD2DB3415B942B42A}, /* More, the last stripe overlaps. */
};

static void test_known_answers(void **state)
{
    (void)state;
    static unsigned char data[2367], moved[sizeof data + 8];
    uint64_t generator = PRIME32;
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (unsigned char)(generator >> 56);
        generator *= PRIME64;
    }
    for (size_t shift = 0; shift < 8; shift++) {
        memcpy(moved + shift, data, sizeof data);
        for (size_t i = 0; i < FW_ARRAY_LENGTH(answers); i++) {
            assert_int_equal(fw_hash(moved + shift, answers[i].length, 0), answers[i].hash);
            assert_int_equal(fw_hash(moved + shift, answers[i].length, PRIME64),
                             answers[i].hash_seeded);
        }
    }
    assert_int_equal(fw_hash(NULL, 0, 0), answers[0].hash);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known_answers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
