/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: an alarm rings once, never before its time, whichever way that was moved, and not after it
 * was taken back or closed; moving it away costs no system call. Method: alarms are set for moments
 * from now and polled for without a limit, so that one that does not ring hangs; calls of
 * timerfd_settime() are counted and can be made to fail.
 */
#include "io/alarm.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <cmocka.h>

#include "io/clock.h"
#include "support/descriptor.h"
#include "support/reactor_backend.h"

int __real_timerfd_settime(int fd, int flags, const struct itimerspec *when,
                           struct itimerspec *before);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *when,
                           struct itimerspec *before);
int __real_timerfd_create(int clock, int flags);
int __wrap_timerfd_create(int clock, int flags);

static struct fw_reactor *reactor;
static struct fw_alarm alarms[2];
static int64_t rang_ns[2]; /* When last. */
static int rang_count[2];
static int closed_count;
static int settime_count;
static bool create_fails;
static int64_t again_ns; /* To be set from inside the call-back; 0: nothing. */

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *when,
                           struct itimerspec *before)
{
    settime_count++;
    return __real_timerfd_settime(fd, flags, when, before);
}

int __wrap_timerfd_create(int clock, int flags)
{
    if (create_fails) {
        errno = EMFILE;
        return -1;
    }
    return __real_timerfd_create(clock, flags);
}

static void on_rang(struct fw_alarm *alarm)
{
    ptrdiff_t which = alarm - alarms;
    rang_count[which]++;
    rang_ns[which] = fw_clock_now_ns();
    if (again_ns != 0) {
        fw_alarm_set(alarm, again_ns);
        again_ns = 0;
    }
}

static void on_closed(struct fw_alarm *alarm)
{
    assert_true(alarm == &alarms[0] || alarm == &alarms[1]);
    closed_count++;
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        rang_count[i] = 0;
        rang_ns[i] = 0;
    }
    closed_count = 0;
    settime_count = 0;
    again_ns = 0;
    if (fw_reactor_create(&reactor, NULL) != 0) {
        return -1;
    }
    return fw_alarm_open(&alarms[0], reactor, on_rang, NULL) != 0 ||
                   fw_alarm_open(&alarms[1], reactor, on_rang, NULL) != 0
               ? -1
               : 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        if (alarms[i].closed == NULL) {
            fw_alarm_close(&alarms[i], on_closed);
        }
    }
    while (closed_count < 2) {
        (void)fw_reactor_poll(reactor, -1);
    }
    fw_reactor_destroy(reactor);
    return 0;
}

static void wait_for(int which, int count)
{
    while (rang_count[which] < count) {
        (void)fw_reactor_poll(reactor, -1);
    }
    assert_int_equal(rang_count[which], count);
}

static int64_t from_now(int64_t ms)
{
    return fw_clock_now_ns() + ms * FW_NS_PER_MS;
}

static void test_rings_once_in_time(void **state)
{
    (void)state;
    int64_t when = from_now(2);
    fw_alarm_set(&alarms[0], when);
    wait_for(0, 1);
    assert_true(rang_ns[0] >= when);
    fw_alarm_set(&alarms[1], from_now(2));
    wait_for(1, 1);
    assert_int_equal(rang_count[0], 1);
}

/* Also the very beginning of time, which the kernel takes for "never". */
static void test_past(void **state)
{
    (void)state;
    fw_alarm_set(&alarms[0], fw_clock_now_ns());
    wait_for(0, 1);
    fw_alarm_set(&alarms[0], 0);
    wait_for(0, 2);
    fw_alarm_set(&alarms[0], -1);
    wait_for(0, 3);
}

static void test_moved(void **state)
{
    (void)state;
    int64_t hour = from_now(INT64_C(3600) * 1000);
    fw_alarm_set(&alarms[0], hour);
    fw_alarm_set(&alarms[0], from_now(1)); /* Earlier. */
    wait_for(0, 1);
    int64_t soon = from_now(2);
    int64_t later = soon + INT64_C(4) * FW_NS_PER_MS;
    fw_alarm_set(&alarms[0], soon);
    settime_count = 0;
    fw_alarm_set(&alarms[0], later - 1);
    fw_alarm_set(&alarms[0], later); /* Away: the kernel need not know yet. */
    assert_int_equal(settime_count, 0);
    wait_for(0, 2);
    assert_true(rang_ns[0] >= later);
}

static void test_taken_back(void **state)
{
    (void)state;
    fw_alarm_set(&alarms[0], from_now(1));
    fw_alarm_set(&alarms[0], INT64_MAX);
    fw_alarm_set(&alarms[1], from_now(4));
    wait_for(1, 1);
    assert_int_equal(rang_count[0], 0);
    fw_alarm_set(&alarms[0], from_now(1)); /* And it still works. */
    wait_for(0, 1);
}

static void test_set_from_inside(void **state)
{
    (void)state;
    again_ns = from_now(3);
    int64_t second = again_ns;
    fw_alarm_set(&alarms[0], from_now(1));
    wait_for(0, 2);
    assert_true(rang_ns[0] >= second);
}

static void test_closed_does_not_ring(void **state)
{
    (void)state;
    fw_alarm_set(&alarms[0], fw_clock_now_ns());
    fw_alarm_close(&alarms[0], on_closed);
    expect_assert_failure(fw_alarm_set(&alarms[0], 1));
    fw_alarm_set(&alarms[1], from_now(2));
    wait_for(1, 1);
    assert_int_equal(closed_count, 1);
    assert_int_equal(rang_count[0], 0);
}

static void test_no_descriptor(void **state)
{
    (void)state;
    struct fw_alarm third;
    struct fw_reason reason;
    int next = descriptor_next();
    create_fails = true;
    assert_int_equal(fw_alarm_open(&third, reactor, on_rang, &reason), -EMFILE);
    create_fails = false;
    assert_non_null(strstr(reason.text, "timer"));
    assert_int_equal(descriptor_next(), next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rings_once_in_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_past, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_moved, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_taken_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_set_from_inside, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_closed_does_not_ring, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_descriptor, set_up, tear_down),
    };
    return fw_test_run_on_backend(tests);
}
