/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a reason says what it was given, is cut where it ends, and is optional.
 * Method: compare the text for short, longest and too long reasons, with and without the system's
 * part; the error must come back unchanged in all cases.
 */
#include "base/reason.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_set(void **state)
{
    (void)state;
    struct fw_reason reason;
    assert_int_equal(fw_reason_set(&reason, -EINVAL, "port %d of %s", 70000, "here"), -EINVAL);
    assert_string_equal(reason.text, "port 70000 of here");
    assert_int_equal(fw_reason_set(NULL, -ENOMEM, "%s", "nobody cares"), -ENOMEM);
    expect_assert_failure((void)fw_reason_set(&reason, 0, "not an error"));
    expect_assert_failure((void)fw_reason_set(&reason, EINVAL, "a sign forgotten"));
}

static void test_errno(void **state)
{
    (void)state;
    struct fw_reason reason;
    assert_int_equal(fw_reason_errno(&reason, -ENOENT, "open %s", "x.conf"), -ENOENT);
    assert_string_equal(reason.text, "open x.conf: No such file or directory");
    assert_int_equal(fw_reason_errno(&reason, -123456, "open"), -123456);
    assert_string_equal(reason.text, "open: unknown error");
    assert_int_equal(fw_reason_errno(NULL, -EACCES, "%s", "nobody cares"), -EACCES);
    expect_assert_failure((void)fw_reason_errno(&reason, 0, "not an error"));
}

static void test_too_long(void **state)
{
    (void)state;
    struct fw_reason reason;
    char text[2 * FW_REASON_SIZE];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_int_equal(fw_reason_set(&reason, -EINVAL, "%s", text), -EINVAL);
    assert_int_equal(strlen(reason.text), FW_REASON_SIZE - 1);
    /* What does not fit is missing at the end; what stands before it is whole. */
    text[FW_REASON_SIZE - 5] = '\0';
    assert_int_equal(fw_reason_errno(&reason, -ENOENT, "%s", text), -ENOENT);
    assert_string_equal(reason.text + FW_REASON_SIZE - 6, "x: No");
    text[FW_REASON_SIZE - 5] = 'x';
    assert_int_equal(fw_reason_errno(&reason, -ENOENT, "%s", text), -ENOENT);
    assert_int_equal(strlen(reason.text), FW_REASON_SIZE - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_errno),
        cmocka_unit_test(test_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
