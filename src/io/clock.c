/* SPDX-License-Identifier: Apache-2.0 */
#include "io/clock.h"

#include <time.h>

#include "base/assert.h"
#include "base/base.h"

const struct fw_clock_hooks *fw_clock_hooks;

static int64_t timespec_ns(const struct timespec *time)
{
    return (int64_t)time->tv_sec * FW_NS_PER_S + time->tv_nsec;
}

static int64_t clock_read_ns(clockid_t clock)
{
    struct timespec time;
    int rc = clock_gettime(clock, &time);
    FW_ASSERT(rc == 0); /* All three exist on every Linux we support. */
    return timespec_ns(&time);
}

int64_t fw_clock_now_ns(void)
{
    if (FW_UNLIKELY(fw_clock_hooks != NULL)) {
        return fw_clock_hooks->now_ns();
    }
    return clock_read_ns(CLOCK_MONOTONIC);
}

int64_t fw_clock_coarse_ns(void)
{
    if (FW_UNLIKELY(fw_clock_hooks != NULL)) {
        return fw_clock_hooks->now_ns();
    }
    return clock_read_ns(CLOCK_MONOTONIC_COARSE);
}

int64_t fw_clock_wall_ns(void)
{
    if (FW_UNLIKELY(fw_clock_hooks != NULL)) {
        return fw_clock_hooks->wall_ns();
    }
    return clock_read_ns(CLOCK_REALTIME);
}

int64_t fw_clock_coarse_resolution_ns(void)
{
    if (FW_UNLIKELY(fw_clock_hooks != NULL)) {
        return 1;
    }
    struct timespec resolution;
    int rc = clock_getres(CLOCK_MONOTONIC_COARSE, &resolution);
    FW_ASSERT(rc == 0);
    return timespec_ns(&resolution);
}
