/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a word says all that was put into it, and nothing else is taken for one. Method: each flag
 * and number by itself, there and back; then bytes that are wrong in one place.
 */
#include "ha/word.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void assert_same(const struct fw_ha_word *a, const struct fw_ha_word *b)
{
    assert_int_equal(a->standing.is_alive, b->standing.is_alive);
    assert_int_equal(a->standing.is_master, b->standing.is_master);
    assert_int_equal(a->standing.is_complete, b->standing.is_complete);
    assert_int_equal(a->standing.is_allowed, b->standing.is_allowed);
    assert_int_equal(a->standing.history, b->standing.history);
    assert_int_equal(a->standing.position, b->standing.position);
    assert_int_equal(a->is_settled, b->is_settled);
    assert_int_equal(a->holds, b->holds);
    assert_int_equal(a->frees, b->frees);
    assert_int_equal(a->claims, b->claims);
    assert_int_equal(a->holder, b->holder);
    assert_int_equal(a->holder_sequence, b->holder_sequence);
    assert_int_equal(a->view, b->view);
    assert_int_equal(a->sequence, b->sequence);
    assert_int_equal(a->term, b->term);
    assert_int_equal(a->reign, b->reign);
}

static void test_there_and_back(void **state)
{
    (void)state;
    const struct fw_ha_word words[] = {
        {.standing = {.is_alive = true}},
        {.standing = {.is_master = true}},
        {.standing = {.is_complete = true}},
        {.standing = {.is_allowed = true}},
        {.standing = {.history = UINT64_MAX}},
        {.standing = {.position = UINT64_MAX - 1}},
        {.is_settled = true},
        {.holds = true},
        {.frees = true},
        {.claims = true},
        {.holder = 3},
        {.holder_sequence = 4},
        {.view = 5},
        {.sequence = 6},
        {.term = 7},
        {.reign = 8},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(words); i++) {
        char bytes[FW_HA_WORD_SIZE];
        struct fw_ha_word again;
        fw_ha_word_write(&words[i], bytes);
        assert_int_equal(fw_ha_word_read(&again, bytes, sizeof bytes), 0);
        assert_same(&words[i], &again);
    }
}

static void test_strange_bytes(void **state)
{
    (void)state;
    const struct fw_ha_word word = {.view = 1};
    struct fw_ha_word again;
    char bytes[FW_HA_WORD_SIZE + 1] = {0};
    fw_ha_word_write(&word, bytes);
    assert_int_equal(fw_ha_word_read(&again, bytes, FW_HA_WORD_SIZE - 1), -EPROTO);
    assert_int_equal(fw_ha_word_read(&again, bytes, FW_HA_WORD_SIZE + 1), -EPROTO);
    assert_int_equal(fw_ha_word_read(&again, bytes, 0), -EPROTO);
    bytes[0] ^= 1; /* Another magic. */
    assert_int_equal(fw_ha_word_read(&again, bytes, FW_HA_WORD_SIZE), -EPROTO);
    bytes[0] ^= 1;
    bytes[5] ^= 1; /* A flag that does not exist. */
    assert_int_equal(fw_ha_word_read(&again, bytes, FW_HA_WORD_SIZE), -EPROTO);
    bytes[5] ^= 1;
    bytes[FW_HA_WORD_SIZE - 1] = 1; /* What is to come has come. */
    assert_int_equal(fw_ha_word_read(&again, bytes, FW_HA_WORD_SIZE), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_strange_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
