/* SPDX-License-Identifier: Apache-2.0 */
#include "io/alarm.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "io/clock.h"

static void kernel_set(struct fw_alarm *alarm)
{
    int64_t when = alarm->when_ns > 0 ? alarm->when_ns : 1; /* All zeros would mean never. */
    struct itimerspec time = {0};
    if (when != INT64_MAX) {
        time.it_value.tv_sec = when / FW_NS_PER_S;
        time.it_value.tv_nsec = when % FW_NS_PER_S;
    }
    int rc = timerfd_settime(alarm->fd, TFD_TIMER_ABSTIME, &time, NULL);
    FW_ASSERT(rc == 0);
    alarm->kernel_ns = when;
}

static void alarm_ready(struct fw_watch *watch)
{
    struct fw_alarm *alarm = FW_CONTAINER_OF(watch, struct fw_alarm, watch);
    uint64_t count = 0;
    if (read(alarm->fd, &count, sizeof count) < 0) {
        FW_ASSERT(errno == EAGAIN); /* It was set anew since. */
        return;
    }
    alarm->kernel_ns = INT64_MAX;
    if (alarm->when_ns == INT64_MAX) {
        return; /* Taken back. */
    }
    if (fw_clock_now_ns() < alarm->when_ns) {
        kernel_set(alarm); /* Moved away. */
        return;
    }
    alarm->when_ns = INT64_MAX;
    alarm->rang(alarm);
}

static void alarm_closed(struct fw_watch *watch)
{
    struct fw_alarm *alarm = FW_CONTAINER_OF(watch, struct fw_alarm, watch);
    (void)close(alarm->fd);
    alarm->fd = -1;
    alarm->closed(alarm);
}

int fw_alarm_open(struct fw_alarm *alarm, struct fw_reactor *reactor,
                  void (*rang)(struct fw_alarm *alarm), struct fw_reason *reason)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd < 0) {
        return fw_reason_errno(reason, -errno, "cannot open a descriptor for a timer");
    }
    *alarm =
        (struct fw_alarm){.rang = rang, .when_ns = INT64_MAX, .kernel_ns = INT64_MAX, .fd = fd};
    int rc = fw_watch_open(&alarm->watch, reactor, fd, alarm_ready, alarm_closed);
    if (rc != 0) {
        (void)close(fd);
        return fw_reason_errno(reason, rc, "cannot watch the descriptor of a timer");
    }
    return 0;
}

void fw_alarm_set(struct fw_alarm *alarm, int64_t when_ns)
{
    FW_ASSERT(alarm->closed == NULL);
    alarm->when_ns = when_ns;
    if (when_ns < alarm->kernel_ns) {
        kernel_set(alarm);
    }
}

void fw_alarm_close(struct fw_alarm *alarm, void (*closed)(struct fw_alarm *alarm))
{
    FW_ASSERT(alarm->closed == NULL && closed != NULL);
    alarm->closed = closed;
    fw_watch_close(&alarm->watch);
}
