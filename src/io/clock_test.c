/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: each clock is the kernel's clock it claims to be, in nanoseconds, and the simulator can
 * replace all of them. Method: two readings of the kernel's own clock enclose ours, so nothing
 * depends on how long anything takes; then the hooks answer with fixed numbers.
 */
#include "io/clock.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { READINGS = 1000 };

static int64_t kernel_ns(clockid_t clock)
{
    struct timespec time;
    assert_int_equal(clock_gettime(clock, &time), 0);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* How often the kernel's clock enclosed ours. */
static int count_enclosed(clockid_t clock, int64_t (*ours_ns)(void))
{
    int count = 0;
    for (int i = 0; i < READINGS; i++) {
        int64_t before_ns = kernel_ns(clock);
        int64_t our_ns = ours_ns();
        int64_t after_ns = kernel_ns(clock);
        count += before_ns <= our_ns && our_ns <= after_ns ? 1 : 0;
    }
    return count;
}

static void check_enclosed(clockid_t clock, int64_t (*ours_ns)(void))
{
    assert_int_equal(count_enclosed(clock, ours_ns), READINGS);
}

static int64_t ticks(void)
{
    return (int64_t)fw_clock_ticks();
}

static void test_monotonic(void **state)
{
    (void)state;
    check_enclosed(CLOCK_MONOTONIC, fw_clock_now_ns);
    check_enclosed(CLOCK_MONOTONIC_COARSE, fw_clock_coarse_ns);
    check_enclosed(CLOCK_BOOTTIME, fw_clock_boot_ns);
    for (int i = 0; i < READINGS; i++) {
        int64_t coarse_ns = fw_clock_coarse_ns();
        assert_true(coarse_ns <= fw_clock_now_ns());
    }
    assert_in_range(fw_clock_coarse_resolution_ns(), 1, FW_NS_PER_S / 100);
}

/* Before the choice a tick is a nanosecond. After it too, or else the processor's. */
static void test_ticks_choice(void **state)
{
    (void)state;
    assert_true(fw_clock_ticks_are_ns());
    check_enclosed(CLOCK_MONOTONIC, ticks);
    fw_clock_ticks_choose();
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "r");
    char name[64] = "";
    if (file != NULL) {
        assert_non_null(fgets(name, sizeof name, file));
        assert_int_equal(fclose(file), 0);
    }
    bool is_counter = strcmp(name, "tsc\n") == 0 || strcmp(name, "arch_sys_counter\n") == 0;
    assert_true(fw_clock_ticks_are_ns() != is_counter);
    if (is_counter) { /* And so not the clock in disguise. */
        assert_true(count_enclosed(CLOCK_MONOTONIC, ticks) < READINGS);
    } else {
        check_enclosed(CLOCK_MONOTONIC, ticks);
    }
    fw_clock_ticks_choose(); /* Marks that were made stay comparable. */
    assert_true(fw_clock_ticks_are_ns() != is_counter);
}

/* All that is promised of them alone: on a thread that stays where it is they go on. */
static void test_ticks_go_on(void **state)
{
    (void)state;
    cpu_set_t before;
    cpu_set_t one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    uint64_t first = fw_clock_ticks();
    uint64_t last = first;
    for (int i = 0; i < READINGS || last == first; i++) {
        uint64_t now = fw_clock_ticks();
        assert_true(now >= last);
        last = now;
    }
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void test_wall(void **state)
{
    (void)state;
    /* The wall clock may be set back in between; that it is so three times running is no excuse. */
    for (int attempt = 0; attempt < 3; attempt++) {
        int64_t before_ns = kernel_ns(CLOCK_REALTIME);
        int64_t our_ns = fw_clock_wall_ns();
        int64_t after_ns = kernel_ns(CLOCK_REALTIME);
        if (before_ns <= our_ns && our_ns <= after_ns) {
            return;
        }
    }
    fail();
}

static int64_t hook_now_ns(void)
{
    return 17;
}

static int64_t hook_wall_ns(void)
{
    return 42;
}

static void test_hooks(void **state)
{
    (void)state;
    static const struct fw_clock_hooks hooks = {.now_ns = hook_now_ns, .wall_ns = hook_wall_ns};
    fw_clock_hooks = &hooks;
    assert_int_equal(fw_clock_now_ns(), 17);
    assert_int_equal(fw_clock_coarse_ns(), 17);
    assert_int_equal(fw_clock_boot_ns(), 17);
    assert_int_equal(fw_clock_wall_ns(), 42);
    assert_int_equal(fw_clock_coarse_resolution_ns(), 1);
    assert_int_equal(fw_clock_ticks(), 17); /* No processor knows the virtual time, */
    assert_true(fw_clock_ticks_are_ns());
    fw_clock_ticks_choose(); /* whatever was or is chosen. */
    assert_int_equal(fw_clock_ticks(), 17);
    fw_clock_hooks = NULL;
    assert_true(fw_clock_now_ns() > 42);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_monotonic),   cmocka_unit_test(test_wall),
        cmocka_unit_test(test_hooks),       cmocka_unit_test(test_ticks_choice),
        cmocka_unit_test(test_ticks_go_on), cmocka_unit_test(test_hooks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
