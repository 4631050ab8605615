/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the local handler answers first, next and last at once; what comes back is the own data, in
 * its own buffer; numbers rise for ever, and those of an earlier life are refused.
 * Method: a call-back that writes down what it got, from inside the call that asked.
 */
#include <fairway/epoch.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/assert.h"

struct answer {
    uint32_t count;
    int64_t number;
    void *data;
    size_t length;
};

static void started(void *argument, int64_t number, void *data, size_t length)
{
    struct answer *answer = argument;
    *answer = (struct answer){answer->count + 1, number, data, length};
}

static void combine(void *combined, const void *a, size_t a_length, const void *b, size_t b_length)
{
    (void)combined;
    (void)a;
    (void)a_length;
    (void)b;
    (void)b_length;
    fail(); /* There is nobody to combine with. */
}

static int64_t ask(struct fw_epoch *epoch, int64_t number)
{
    struct answer answer = {0};
    fw_epoch_next(epoch, number, NULL, 0, started, &answer);
    assert_int_equal(answer.count, 1);
    return answer.number;
}

static void test_at_once_with_own_data(void **state)
{
    (void)state;
    struct fw_epoch epoch;
    fw_epoch_local_init(&epoch, &(struct fw_epoch_config){.timeout_ns = 1, .combine = combine});
    assert_string_equal(epoch.handler->name, "local");
    struct answer answer = {0};
    char data[FW_EPOCH_DATA_MAX];
    memset(data, 7, sizeof data);
    fw_epoch_next(&epoch, FW_EPOCH_FIRST, data, sizeof data, started, &answer);
    assert_int_equal(answer.count, 1);
    assert_int_equal(answer.number, 1);
    assert_int_equal(answer.length, sizeof data);
    for (size_t i = 0; i < sizeof data; i++) {
        assert_int_equal(((char *)answer.data)[i], 7);
    }
    fw_epoch_next(&epoch, 1, data, 5, started, &answer);
    assert_int_equal(answer.count, 2);
    assert_int_equal(answer.number, 2);
    assert_int_equal(answer.length, 5);
    assert_int_equal(epoch.number, 2);
    fw_epoch_last(&epoch, 2);
    assert_int_equal(answer.count, 2);
    assert_int_equal(epoch.number, 0);
}

/* Whoever still speaks of an epoch of an earlier life is told so, and changes nothing. */
static void test_lives(void **state)
{
    (void)state;
    struct fw_epoch epoch;
    fw_epoch_local_init(&epoch, NULL);
    assert_int_equal(ask(&epoch, FW_EPOCH_FIRST), 1);
    assert_int_equal(ask(&epoch, 1), 2);
    assert_int_equal(ask(&epoch, 1), -ESTALE);
    fw_epoch_last(&epoch, 2);
    assert_int_equal(ask(&epoch, 2), -ESTALE);
    assert_int_equal(epoch.number, 0);
    assert_int_equal(ask(&epoch, FW_EPOCH_FIRST), 3);
    assert_int_equal(ask(&epoch, 2), -ESTALE);
    assert_int_equal(ask(&epoch, 3), 4);
}

static void test_misuse(void **state)
{
    (void)state;
    struct fw_epoch epoch;
    fw_epoch_local_init(&epoch, NULL);
    assert_int_equal(ask(&epoch, FW_EPOCH_FIRST), 1);
    expect_assert_failure(fw_epoch_last(&epoch, 2));
    expect_assert_failure(ask(&epoch, -1));
    epoch.number_max = INT64_MAX;
    expect_assert_failure(ask(&epoch, FW_EPOCH_FIRST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_once_with_own_data),
        cmocka_unit_test(test_lives),
        cmocka_unit_test(test_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
