/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the budget is kept, the tenant that holds most is refused first, and nothing is lost.
 * Method: memory of several tenants, one after the other, until they are refused.
 */
#include "cache/holdings.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { LIMIT = 1200 };
static struct fw_holdings holdings;

static int reset(void **state)
{
    (void)state;
    holdings = (struct fw_holdings){.limit = LIMIT};
    return 0;
}

/* As much as it gets, byte by byte. */
static uint32_t fill(struct fw_holding *claim, uint32_t tenant)
{
    while (fw_holding_grow(claim, &holdings, tenant, 1)) {
    }
    return claim->bytes;
}

static void test_shares(void **state)
{
    (void)state;
    struct fw_holding first = {0}, second = {0}, modest = {0};
    assert_int_equal(fill(&first, 1), LIMIT / 2);
    assert_int_equal(fill(&second, 2), LIMIT / 4);
    assert_false(fw_holding_grow(&first, &holdings, 1, 1));
    assert_true(fw_holding_grow(&modest, &holdings, 3, LIMIT / 8)); /* Who holds little gets it. */
    assert_int_equal(holdings.used, LIMIT / 2 + LIMIT / 4 + LIMIT / 8);
    fw_holding_end(&first, &holdings);
    fw_holding_end(&second, &holdings);
    fw_holding_end(&modest, &holdings);
    assert_int_equal(holdings.used, 0);
    assert_int_equal(holdings.of_tenant[1] + holdings.of_tenant[2] + holdings.of_tenant[3], 0);
    assert_true(holdings.refused > 0);
}

/* Those of one tenant count together; each stays its tenant's. */
static void test_tenants(void **state)
{
    (void)state;
    struct fw_holding one = {0}, other = {0};
    assert_true(fw_holding_grow(&one, &holdings, 1, LIMIT / 2));
    assert_false(fw_holding_grow(&other, &holdings, 1, 1));
    assert_false(fw_holding_grow(&one, &holdings, 2, 1));
    assert_int_equal(one.tenant, 1);
    fw_holding_end(&one, &holdings);
    assert_true(fw_holding_grow(&one, &holdings, 2, 1));
    assert_int_equal(one.tenant, 2);
    fw_holding_end(&one, &holdings);
    fw_holding_end(&one, &holdings); /* Nothing. */
    assert_int_equal(holdings.used, 0);
}

static void test_no_limit(void **state)
{
    (void)state;
    struct fw_holding claim = {0};
    holdings.limit = 0;
    assert_true(fw_holding_grow(&claim, &holdings, 0, UINT32_MAX));
    fw_holding_end(&claim, &holdings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_shares, reset),
        cmocka_unit_test_setup(test_tenants, reset),
        cmocka_unit_test_setup(test_no_limit, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
