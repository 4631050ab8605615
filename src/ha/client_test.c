/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: how a server stands is read from its figures, and nothing is guessed where they are
 * strange. Method: texts as the administration socket gives them. That the socket is spoken to is
 * tested by tests/cluster/test_ha.py.
 */
#include "ha/client.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SLAVE \
    "enabled   yes\nrole      slave\nhistory   00000000deadbeef\nposition  17\ncomplete  yes\n"

static int standing_read(struct fw_ha_standing *standing, const char *text)
{
    return fw_ha_standing_read(standing, text, strlen(text));
}

static void test_figures(void **state)
{
    (void)state;
    struct fw_ha_standing standing;
    assert_int_equal(standing_read(&standing, SLAVE), 0);
    assert_true(standing.is_alive && standing.is_complete && !standing.is_master);
    assert_false(standing.is_allowed || standing.has_address);
    assert_int_equal(standing_read(&standing, SLAVE "address_here no"), 0);
    assert_false(standing.has_address);
    assert_int_equal(standing_read(&standing, SLAVE "address_here yes"), 0);
    assert_true(standing.has_address);
    assert_int_equal(standing.history, 0xdeadbeef);
    assert_int_equal(standing.position, 17);
    assert_int_equal(standing_read(&standing,
                                   "role master\ncomplete no\nposition 18446744073709551615\n"
                                   "history ffffffffffffffff"),
                     0);
    assert_true(standing.is_master && !standing.is_complete);
    assert_int_equal(standing.position, UINT64_MAX);
    assert_int_equal(standing.history, UINT64_MAX);
    assert_int_equal(standing_read(&standing, "  role  becoming master  \ncomplete yes\nhistory 0\n"
                                              "position_sent 1\nposition 0\n"),
                     0);
    assert_false(standing.is_master);
    assert_int_equal(standing.position, 0);
}

static void test_strange_figures(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "\n\n",
        "role slave\nhistory 1\nposition 1\n",
        "role slave\ncomplete yes\nposition 1\n",
        "role slave\ncomplete yes\nhistory 1\n",
        "role slave\ncomplete yes\nhistory 1\nposition\n",
        "role slave\ncomplete yes\nhistory 1\nposition  \n",
        "role slave\ncomplete yes\nhistory 1\nposition -1\n",
        "role slave\ncomplete yes\nhistory 1g\nposition 1\n",
        "role slave\ncomplete yes\nhistory 12345678123456781\nposition 1\n",
        "role slave\ncomplete yes\nhistory 1\nposition 18446744073709551616\n",
        "role slave\ncomplete yes\nhistory 1\nposition 1111111111111111111111111111111111111\n",
        "roles slave\ncomplete yes\nhistory 1\nposition 1\n",
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(texts); i++) {
        struct fw_ha_standing standing;
        assert_int_equal(standing_read(&standing, texts[i]), -EPROTO);
    }
}

/* As much of an answer as there may be: nothing behind it is read. */
static void test_cut_off(void **state)
{
    (void)state;
    static const char text[] = SLAVE;
    for (size_t length = 0; length + 4 < sizeof text - 1; length++) {
        struct fw_ha_standing standing;
        assert_int_equal(fw_ha_standing_read(&standing, text, length), -EPROTO);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_strange_figures),
        cmocka_unit_test(test_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
