/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A clock for tests that stands still until the test moves it, on any thread. Cycles are the same
 * nanoseconds (io/clock.h), so that what is traced has exact times. Threads still sleep by the
 * kernel's clock: to move this one wakes nobody.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "io/clock.h"

static _Atomic int64_t virtual_clock_ns = INT64_C(1000000000);

static inline int64_t virtual_clock_now(void)
{
    return atomic_load(&virtual_clock_ns);
}

static inline void virtual_clock_advance(int64_t ns)
{
    atomic_fetch_add(&virtual_clock_ns, ns);
}

/* Before the first thread is made. */
static inline void virtual_clock_install(void)
{
    static const struct fw_clock_hooks hooks = {.now_ns = virtual_clock_now,
                                                .wall_ns = virtual_clock_now};
    fw_clock_hooks = &hooks;
}
