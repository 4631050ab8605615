/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What time it is. All three clocks answer in nanoseconds since an epoch of their own.
 *
 *   fw_clock_now_ns()     never goes back, exact; for time-outs and measurements. About 20 ns.
 *   fw_clock_coarse_ns()  the same clock as of the kernel's last tick, so it stands still for up to
 *                         1 to 10 ms (fw_clock_coarse_resolution_ns() tells) and is never ahead of
 *                         the exact one. About 6 ns; for what happens once per request and does not
 *                         care: ages of items, expiry in seconds.
 *   fw_clock_wall_ns()    since 1970, for people and for absolute expiry times. It jumps when the
 *                         administrator or NTP says so: nothing may be timed by it.
 *
 * Any thread may call them at any time. The TSC read by hand was rejected as a clock: it would save
 * half of what the vDSO costs, and would need the kernel's knowledge of when it cannot be trusted.
 *
 *   fw_clock_cycles()     the processor's counter, in units of its own; for marks made so often
 * that even 20 ns are too much, which are made times of afterwards.
 *
 * That one may read the counter by hand, because it promises nothing alone. Who uses it writes down
 * a pair (cycles, nanoseconds) every now and then and places each mark between the two pairs around
 * it, in proportion and never outside of them. A counter that runs at another rate, that stops, or
 * that jumps because the thread went to a processor that is not in step, then misplaces marks by no
 * more than the distance of two pairs, and the pairs themselves are the real clock's.
 *
 *   fw_clock_ticks()      for stamps of several threads that are put in order first and converted
 *                         later, in bulk (the log). The counter where the kernel keeps time by it
 *                         too, so that all processors are in step, about 10 ns; otherwise
 *                         fw_clock_now_ns(). Two stamps taken by different processors less than
 *                         some 100 ns apart may come out in the wrong order, for a processor may
 *                         read its counter early.
 *
 * The simulator's clocks come in through `fw_clock_hooks`, in the same way and for the same reason
 * as base/thread.h explains.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

enum { FW_NS_PER_US = 1000, FW_NS_PER_MS = 1000000, FW_NS_PER_S = 1000000000 };

/* The simulator's side. Set once, before the first thread is created, never changed after. */
struct fw_clock_hooks {
    int64_t (*now_ns)(void); /* The coarse form too: virtual time does not get cheaper. */
    int64_t (*wall_ns)(void);
};
extern const struct fw_clock_hooks *fw_clock_hooks;

int64_t fw_clock_now_ns(void);
int64_t fw_clock_coarse_ns(void);
int64_t fw_clock_wall_ns(void);

/* Of the processor that the caller runs on; the simulator's counts virtual nanoseconds. */
static inline uint64_t fw_clock_cycles(void)
{
    if (FW_UNLIKELY(fw_clock_hooks != NULL)) {
        return (uint64_t)fw_clock_hooks->now_ns();
    }
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t count;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
    return count;
#else
    return (uint64_t)fw_clock_now_ns();
#endif
}

/*
 * Decides what ticks are; before it they are nanoseconds of the exact clock. Call it while no stamp
 * is in use, since those taken before and after cannot be compared.
 */
void fw_clock_ticks_choose(void);
FW_INTERNAL extern bool fw_clock_ticks_are_tsc; /* Changed by fw_clock_ticks_choose() only. */

static inline int64_t fw_clock_ticks(void)
{
#if defined(__x86_64__)
    if (FW_LIKELY(fw_clock_ticks_are_tsc)) {
        return (int64_t)__builtin_ia32_rdtsc();
    }
#endif
    return fw_clock_now_ns();
}

/* How long the coarse clock may stand still: the kernel's tick, 4 ms on most systems. */
int64_t fw_clock_coarse_resolution_ns(void);
