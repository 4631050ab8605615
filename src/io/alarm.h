/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One time at which a reactor calls its owner.
 *
 * For threads that have a reactor and no timer wheel: localities have one (base/wheel.h), and what
 * runs there uses that. An alarm is a descriptor (timerfd), so it costs system calls, but not one
 * per call here: a deadline that moves away is only noted, and the kernel's time is set again when
 * the old one has come. Who sets a time-out anew with each message pays next to nothing.
 *
 * Threads: as all of the reactor's. The call-back may set and close.
 */
#pragma once

#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"
#include "io/reactor.h"

/* Embedded in its owner's struct; stays there until `closed` has run. */
struct fw_alarm {
    struct fw_watch watch;
    void (*rang)(struct fw_alarm *alarm);
    void (*closed)(struct fw_alarm *alarm); /* NULL until close(). */
    int64_t when_ns;                        /* INT64_MAX: never. */
    int64_t kernel_ns;                      /* What the kernel was told; not after `when_ns`. */
    int fd;
};

/* Opens it, set to never. Returns 0, or -EMFILE, -ENFILE, -ENOMEM or -ENOSPC with the reason. */
FW_MUST_CHECK int fw_alarm_open(struct fw_alarm *alarm, struct fw_reactor *reactor,
                                void (*rang)(struct fw_alarm *alarm), struct fw_reason *reason);

/* Rings once, at that time of fw_clock_now_ns() or soon after; INT64_MAX: never. Replaces. */
void fw_alarm_set(struct fw_alarm *alarm, int64_t when_ns);

/* Does not ring any more; `closed` follows from a later poll. */
void fw_alarm_close(struct fw_alarm *alarm, void (*closed)(struct fw_alarm *alarm));
