/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the tests of the reactor on the back end that the environment names in FW_TEST_REACTOR, on
 * epoll if it names none. The back ends keep the same promises, so the tests are the same too.
 *
 *     return fw_test_run_on_backend(tests);
 *
 * Where the kernel refuses io_uring, one skipped test stands for all.
 *
 * Include it after <cmocka.h>.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/reason.h"
#include "io/reactor.h"
#include "support/skip.h"

static struct fw_reason fw_test_backend_reason;

/* False: this machine has no such back end. Everything else that goes wrong ends the program. */
static inline bool fw_test_choose_backend(void)
{
    const char *name = getenv("FW_TEST_REACTOR"); /* NOLINT(concurrency-mt-unsafe): one thread. */
    struct fw_reactor *reactor;
    int rc = fw_reactor_choose(name != NULL ? name : "epoll", &fw_test_backend_reason);
    if (rc == 0) {
        rc = fw_reactor_create(&reactor, &fw_test_backend_reason);
    }
    if (rc == 0) {
        fw_reactor_destroy(reactor);
        return true;
    }
    if (rc != -EPERM && rc != -ENOSYS) {
        (void)fprintf(stderr, "%s\n", fw_test_backend_reason.text);
        exit(EXIT_FAILURE); /* NOLINT(concurrency-mt-unsafe): one thread. */
    }
    return false;
}

static inline void test_backend_is_there(void **state)
{
    (void)state;
    fw_test_skip("io-uring", fw_test_backend_reason.text);
}

static inline int fw_test_skip_backend(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_backend_is_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#define fw_test_run_on_backend(tests)                                       \
    (fw_test_choose_backend() ? cmocka_run_group_tests((tests), NULL, NULL) \
                              : fw_test_skip_backend())
