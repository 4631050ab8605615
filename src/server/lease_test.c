/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a lease runs exactly until the time it was last renewed to, whatever comes late, too long,
 * or in the wrong order. Method: a clock that the test moves. That a server without one is silent
 * is shown by the simulator (scenario `lease`) and by tests/server/test_silence.py.
 */
#include "server/lease.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/virtual_clock.h"

#define MS ((int64_t)FW_NS_PER_MS)

static int64_t in(int64_t ms)
{
    return fw_clock_boot_ns() + ms * MS;
}

static void test_none_is_needed(void **state)
{
    (void)state;
    struct fw_lease lease = {.limit_ns = 0};
    assert_false(fw_lease_is_needed(&lease));
    assert_true(fw_lease_runs(&lease));
    assert_int_equal(fw_lease_renew(&lease, in(1)), -ENOTSUP);
    fw_lease_give_up(&lease);
    assert_true(fw_lease_runs(&lease));
}

static void test_runs_until_then(void **state)
{
    (void)state;
    struct fw_lease lease = {.limit_ns = 100 * MS};
    assert_true(fw_lease_is_needed(&lease));
    assert_false(fw_lease_runs(&lease)); /* Nobody has said anything yet. */
    assert_int_equal(fw_lease_left_ns(&lease), 0);
    assert_int_equal(fw_lease_renew(&lease, in(50)), 0);
    assert_true(fw_lease_runs(&lease));
    assert_int_equal(fw_lease_left_ns(&lease), 50 * MS);
    virtual_clock_advance(50 * MS - 1);
    assert_true(fw_lease_runs(&lease));
    virtual_clock_advance(1);
    assert_false(fw_lease_runs(&lease));
    assert_int_equal(fw_lease_left_ns(&lease), 0);
    virtual_clock_advance(1);
    assert_false(fw_lease_runs(&lease));
    assert_int_equal(fw_lease_left_ns(&lease), 0);
}

static void test_renewals_add_time(void **state)
{
    (void)state;
    struct fw_lease lease = {.limit_ns = 100 * MS};
    assert_int_equal(fw_lease_renew(&lease, in(50)), 0);
    virtual_clock_advance(30 * MS);
    assert_int_equal(fw_lease_renew(&lease, in(50)), 0);
    assert_int_equal(fw_lease_left_ns(&lease), 50 * MS);
    assert_int_equal(fw_lease_renew(&lease, in(20)), 0); /* Has overtaken, or was overtaken. */
    assert_int_equal(fw_lease_left_ns(&lease), 50 * MS);
}

/* As in the socket of a server that was stopped. */
static void test_late_renewals_are_refused(void **state)
{
    (void)state;
    struct fw_lease lease = {.limit_ns = 100 * MS};
    int64_t until = in(50);
    virtual_clock_advance(50 * MS);
    assert_int_equal(fw_lease_renew(&lease, until), -ESTALE);
    assert_false(fw_lease_runs(&lease));
    assert_int_equal(fw_lease_renew(&lease, INT64_MIN), -ESTALE);
    assert_int_equal(fw_lease_renew(&lease, until + 1), 0);
}

static void test_long_renewals_are_refused(void **state)
{
    (void)state;
    struct fw_lease lease = {.limit_ns = 100 * MS};
    assert_int_equal(fw_lease_renew(&lease, in(100) + 1), -ERANGE);
    assert_int_equal(fw_lease_renew(&lease, INT64_MAX), -ERANGE);
    assert_false(fw_lease_runs(&lease));
    assert_int_equal(fw_lease_renew(&lease, in(100)), 0);
    assert_int_equal(fw_lease_left_ns(&lease), 100 * MS);
}

static void test_is_given_up(void **state)
{
    (void)state;
    struct fw_lease lease = {.limit_ns = 100 * MS};
    assert_int_equal(fw_lease_renew(&lease, in(50)), 0);
    fw_lease_give_up(&lease);
    assert_false(fw_lease_runs(&lease));
    assert_int_equal(fw_lease_renew(&lease, in(20)), 0); /* And may be had again. */
    assert_int_equal(fw_lease_left_ns(&lease), 20 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none_is_needed),
        cmocka_unit_test(test_runs_until_then),
        cmocka_unit_test(test_renewals_add_time),
        cmocka_unit_test(test_late_renewals_are_refused),
        cmocka_unit_test(test_long_renewals_are_refused),
        cmocka_unit_test(test_is_given_up),
    };
    virtual_clock_install();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
