/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: an assertion that fails says which and where, and ends the process; one that holds costs
 * nothing but its condition, and FW_CHECK() not even that unless checks are on.
 * Method: the only test linked with the shipped fw_assert_failed(): it fails in a child process,
 * whose words and whose death are looked at.
 */
#include "base/assert.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void test_failure(void **state)
{
    (void)state;
    int ends[2];
    char said[512] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        (void)signal(SIGABRT, SIG_DFL); /* cmocka catches it. */
        FW_ASSERT(said[0] == 'x');
        _exit(0);
    }
    (void)close(ends[1]);
    size_t length = 0;
    ssize_t count;
    while ((count = read(ends[0], said + length, sizeof said - 1 - length)) > 0) {
        length += (size_t)count;
    }
    (void)close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(said, "assert_test.c:"));
    assert_non_null(strstr(said, ": assertion failed: said[0] == 'x'\n"));
}

static void test_success(void **state)
{
    (void)state;
    int evaluated = 0;
    FW_ASSERT(++evaluated == 1);
    assert_int_equal(evaluated, 1);
    FW_CHECK(++evaluated == 2);
#if defined(FW_CHECKS)
    assert_int_equal(evaluated, 2);
#else
    assert_int_equal(evaluated, 1);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_success),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
