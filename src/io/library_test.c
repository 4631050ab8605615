/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a library is loaded at the first call and not before; one that is missing answers what the
 * caller was told it would.
 * Method: the library of mathematics, which this program does not link, and names that are none.
 */
#include "io/library.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct fw_library math = {.name = "libm.so.6"};
static struct fw_library nowhere = {.name = "libnowhere.so.1"};

double cbrt(double value);
int nosuch(int value);
int nothing(void);

FW_LIBRARY_CALL(&math, double, cbrt, (double value), (value), -1.0)
FW_LIBRARY_CALL(&math, int, nosuch, (int value), (value), -2)
FW_LIBRARY_CALL(&nowhere, int, nothing, (void), (), -3)

static bool is_loaded(const char *name)
{
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        found = found || strstr(line, name) != NULL;
    }
    (void)fclose(maps);
    return found;
}

static void test_first_call_loads(void **state)
{
    (void)state;
    volatile double cube = 27.0; /* Or the compiler would know the answer. */
    assert_null(atomic_load(&math.handle));
    double root = cbrt(cube);
    assert_true(root > 2.99 && root < 3.01);
    assert_non_null(atomic_load(&math.handle));
    assert_true(is_loaded("libm.so.6"));
}

static void test_missing(void **state)
{
    (void)state;
    assert_int_equal(nosuch(1), -2);
    assert_int_equal(nothing(), -3);
    assert_false(is_loaded("nowhere"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_call_loads),
        cmocka_unit_test(test_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
