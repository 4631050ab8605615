/* SPDX-License-Identifier: Apache-2.0 */
#include "io/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/base.h"
#include "io/file.h"

enum { SOURCE_NAME_MAX = 64 };

/* What the kernel calls the processor's counter where it keeps time by it. */
#if defined(__x86_64__)
#define COUNTER_SOURCE "tsc\n"
#elif defined(__aarch64__)
#define COUNTER_SOURCE "arch_sys_counter\n"
#else
#define COUNTER_SOURCE "" /* There is none that we could read. */
#endif

const struct fw_clock_hooks *fw_clock_hooks;

static int64_t timespec_ns(const struct timespec *time)
{
    return (int64_t)time->tv_sec * FW_NS_PER_S + time->tv_nsec;
}

static int64_t clock_read_ns(clockid_t clock)
{
    struct timespec time;
    int rc = clock_gettime(clock, &time);
    FW_ASSERT(rc == 0); /* All of them exist on every Linux we support. */
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

int64_t fw_clock_boot_ns(void)
{
    if (FW_UNLIKELY(fw_clock_hooks != NULL)) {
        return fw_clock_hooks->now_ns();
    }
    return clock_read_ns(CLOCK_BOOTTIME);
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

_Atomic(enum fw_clock_unit) fw_clock_ticks_unit;

void fw_clock_ticks_choose(void)
{
    static const char path[] = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    enum fw_clock_unit undecided = FW_CLOCK_UNDECIDED;
    enum fw_clock_unit unit = FW_CLOCK_NANOSECONDS;
    char *name;
    size_t size;
    if (fw_clock_hooks != NULL) {
        return; /* No processor knows the virtual time. */
    }
    if (fw_file_read(path, SOURCE_NAME_MAX, &name, &size, NULL) == 0) {
        unit = strcmp(name, COUNTER_SOURCE) == 0 ? FW_CLOCK_COUNTER : FW_CLOCK_NANOSECONDS;
        free(name);
    }
    /* Of several threads the first decides. Relaxed: no other data comes with it. */
    (void)atomic_compare_exchange_strong_explicit(&fw_clock_ticks_unit, &undecided, unit,
                                                  memory_order_relaxed, memory_order_relaxed);
}
