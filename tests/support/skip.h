/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a unit test says that this machine cannot run it.
 *
 *     if (!has_ipv6()) {
 *         fw_test_skip("ipv6", "no IPv6 loopback address");
 *     }
 *
 * The capability is one of those that tools/capabilities probes: in CI, tools/check fails the run
 * when a test was skipped for want of something that the machine has. A plain skip() names nothing
 * and counts as a failure.
 *
 * Include it after <cmocka.h>.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* Ends the running test as skipped. */
static inline void fw_test_skip(const char *capability, const char *why)
{
    print_message("# SKIP-REASON %s: %s\n", capability, why);
    skip();
}
