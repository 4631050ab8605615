/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: both implementations compute CRC-32C, and the same one.
 * Method: the answers of RFC 3720, section B.4, and the usual check value; then the two beside each
 * other, and beside the definition bit by bit, at all lengths around the sizes where they change
 * their way of working, at all alignments, in one piece and in two. Threads race to the first call.
 */
#include "base/crc32c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/thread.h"

enum { DATA_SIZE = 8192, RACERS = 4 };

static unsigned char data[DATA_SIZE];

typedef uint32_t crc_function(uint32_t crc, const void *data, size_t length);

static uint32_t next_random(void)
{
    static uint64_t seed = 1;
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33);
}

static int fill(void **state)
{
    (void)state;
    for (size_t i = 0; i < DATA_SIZE; i++) {
        data[i] = (unsigned char)next_random();
    }
    return 0;
}

/* The definition, as slow as it is plain. */
static uint32_t crc_by_bits(uint32_t crc, const void *bytes, size_t length)
{
    crc = ~crc;
    for (size_t i = 0; i < length; i++) {
        crc ^= ((const unsigned char *)bytes)[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78 : 0);
        }
    }
    return ~crc;
}

struct racer {
    struct fw_thread thread;
    crc_function *crc;
    uint32_t result;
};

static void racer_run(void *argument)
{
    struct racer *racer = argument;
    racer->result = racer->crc(0, data, 1000);
}

static void race(crc_function *crc)
{
    struct racer racers[RACERS];
    for (int i = 0; i < RACERS; i++) {
        racers[i].crc = crc;
        assert_int_equal(fw_thread_create(&racers[i].thread, "racer", racer_run, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        fw_thread_join(&racers[i].thread);
        assert_int_equal(racers[i].result, crc_by_bits(0, data, 1000));
    }
}

/* Before all other tests, while nobody has chosen yet and the tables are empty. */
static void test_first_calls_race(void **state)
{
    (void)state;
    race(fw_crc32c);
    race(fw_crc32c_table);
}

static void check_known_answers(crc_function *crc)
{
    /* A SCSI read command, the last example of the RFC. */
    static const unsigned char command[48] = {
        0x01, 0xc0, [16] = 0x14, [22] = 0x04, [27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 0x02};
    unsigned char bytes[32];
    assert_int_equal(crc(0, command, sizeof command), 0xD9963A56);
    memset(bytes, 0x00, sizeof bytes);
    assert_int_equal(crc(0, bytes, sizeof bytes), 0x8A9136AA);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(crc(0, bytes, sizeof bytes), 0x62A8AB43);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)i;
    }
    assert_int_equal(crc(0, bytes, sizeof bytes), 0x46DD794E);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(31 - i);
    }
    assert_int_equal(crc(0, bytes, sizeof bytes), 0x113FDB5C);
    assert_int_equal(crc(0, "123456789", 9), 0xE3069283);
    assert_int_equal(crc(0, NULL, 0), 0);
    assert_int_equal(crc(0x12345678, NULL, 0), 0x12345678);
}

static void test_known_answers(void **state)
{
    (void)state;
    check_known_answers(fw_crc32c);
    check_known_answers(fw_crc32c_table);
    check_known_answers(crc_by_bits); /* The yardstick below is right too. */
    if (fw_crc32c_has_hardware()) {
        check_known_answers(fw_crc32c_hardware);
    }
}

/* One function at one place: whole, and in two pieces cut anywhere. */
static void check_piece(crc_function *crc, const unsigned char *bytes, size_t length,
                        uint32_t expected)
{
    assert_int_equal(crc(0, bytes, length), expected);
    size_t cut = length > 0 ? next_random() % length : 0;
    assert_int_equal(crc(crc(0, bytes, cut), bytes + cut, length - cut), expected);
}

static void check_all(const unsigned char *bytes, size_t length)
{
    uint32_t expected = crc_by_bits(0, bytes, length);
    check_piece(fw_crc32c, bytes, length, expected);
    check_piece(fw_crc32c_table, bytes, length, expected);
    if (fw_crc32c_has_hardware()) {
        check_piece(fw_crc32c_hardware, bytes, length, expected);
    }
}

static void test_all_agree(void **state)
{
    (void)state;
    for (size_t length = 0; length <= 40; length++) {
        for (size_t shift = 0; shift < 8; shift++) {
            check_all(data + shift, length);
        }
    }
    for (size_t blocks = 1; blocks <= 3; blocks++) { /* The hardware's blocks are of 768 bytes. */
        for (size_t length = blocks * 768 - 9; length <= blocks * 768 + 9; length++) {
            check_all(data + blocks, length);
        }
    }
    for (int i = 0; i < 300; i++) {
        size_t shift = next_random() % 64;
        check_all(data + shift, next_random() % (DATA_SIZE - shift));
    }
}

/* Every single bit counts: no part of the data is skipped. */
static void test_every_bit_counts(void **state)
{
    (void)state;
    const size_t length = 768 + 8 + 3;
    uint32_t before = fw_crc32c(0, data, length);
    uint32_t before_table = fw_crc32c_table(0, data, length);
    for (size_t bit = 0; bit < length * 8; bit++) {
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(fw_crc32c(0, data, length), before);
        assert_int_not_equal(fw_crc32c_table(0, data, length), before_table);
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_calls_race),
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_all_agree),
        cmocka_unit_test(test_every_bit_counts),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
