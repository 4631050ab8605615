/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What time it is. The first four clocks answer in nanoseconds since an epoch of their own.
 *
 *   fw_clock_now_ns()     never goes back, exact; for time-outs and measurements. About 20 ns.
 *   fw_clock_coarse_ns()  the same clock as of the kernel's last tick, so it stands still for up to
 *                         1 to 10 ms (fw_clock_coarse_resolution_ns() tells) and is never ahead of
 *                         the exact one. About 6 ns; for what happens once per request and does not
 *                         care: ages of items, expiry in seconds.
 *   fw_clock_boot_ns()    since the machine was started, also while it sleeps: the one clock that
 *                         all processes of a machine read alike and that nobody sets; for times
 *                         that one process tells another.
 *   fw_clock_wall_ns()    since 1970, for people and for absolute expiry times. It jumps when the
 *                         administrator or NTP says so: nothing may be timed by it.
 *
 * Any thread may call them at any time. The TSC read by hand was rejected as a clock: it would save
 * half of what the vDSO costs, and would need the kernel's knowledge of when it cannot be trusted.
 *
 *   fw_clock_ticks()      for marks made so often that even 20 ns are too much (log, traces), which
 *                         are put in order first and made times of later, in bulk. It is the
 *                         processor's counter, in units of its own, where the kernel keeps time by
 *                         it too; otherwise fw_clock_now_ns(). About 10 ns.
 *
 * Ticks may be the counter read by hand because alone they promise nothing. Two of them taken by
 * different processors less than some 100 ns apart may come out in the wrong order, for a processor
 * may read its counter early. And the kernel can find out later that the counter is not to be
 * trusted. So who uses ticks writes down a pair (ticks, nanoseconds) every now and then and places
 * each mark by the pairs around it, never outside of them: a counter that runs at another rate,
 * stops or jumps then misplaces marks by no more than the distance of two pairs, and the pairs
 * themselves are the real clock's.
 *
 * The simulator's clocks come in through `fw_clock_hooks`, in the same way and for the same reason
 * as base/thread.h explains.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

enum { FW_NS_PER_US = 1000, FW_NS_PER_MS = 1000000, FW_NS_PER_S = 1000000000 };

/* The simulator's side. Set once, before the first thread is created, never changed after. */
struct fw_clock_hooks {
    int64_t (*now_ns)(void); /* The coarse and the boot's too: there is one virtual time. */
    int64_t (*wall_ns)(void);
};
extern const struct fw_clock_hooks *fw_clock_hooks;

int64_t fw_clock_now_ns(void);
int64_t fw_clock_coarse_ns(void);
int64_t fw_clock_boot_ns(void);
int64_t fw_clock_wall_ns(void);

/*
 * Decides what ticks are, once in the life of a process; before that they are nanoseconds. Who
 * takes marks calls it before the first one. Any thread, at any time.
 */
void fw_clock_ticks_choose(void);

enum fw_clock_unit { FW_CLOCK_UNDECIDED, FW_CLOCK_NANOSECONDS, FW_CLOCK_COUNTER };
FW_INTERNAL extern _Atomic(enum fw_clock_unit) fw_clock_ticks_unit; /* Private. */

/* Whether a tick is a nanosecond of fw_clock_now_ns(), as it always is in the simulator. */
static inline bool fw_clock_ticks_are_ns(void)
{
    /* Relaxed: no other data comes with it. */
    return FW_UNLIKELY(fw_clock_hooks != NULL) ||
           atomic_load_explicit(&fw_clock_ticks_unit, memory_order_relaxed) != FW_CLOCK_COUNTER;
}

static inline uint64_t fw_clock_ticks(void)
{
#if defined(__x86_64__)
    if (FW_LIKELY(!fw_clock_ticks_are_ns())) {
        return __builtin_ia32_rdtsc();
    }
#elif defined(__aarch64__)
    if (FW_LIKELY(!fw_clock_ticks_are_ns())) {
        uint64_t count;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
        return count;
    }
#endif
    return (uint64_t)fw_clock_now_ns();
}

/* How long the coarse clock may stand still: the kernel's tick, 4 ms on most systems. */
int64_t fw_clock_coarse_resolution_ns(void);
