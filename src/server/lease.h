/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A master's lease: until when it may answer.
 *
 * Somebody who knows the cluster (`fairway ha-agent`) says again and again until when this server
 * may serve as master, and says so no more when others may have chosen another one. Since the time
 * is checked after the work, just before replies leave, a server that was stopped, in the middle of
 * whatever, and goes on when another one serves, finds its time over and says nothing: it closes
 * its clients. Who would only be told that it is no longer master could not be sure of that, for a
 * stopped process is not told anything.
 *
 * What is renewed is a time, not a duration: `until`, in nanoseconds of fw_clock_boot_ns(), which
 * is the same for all processes of a machine and goes on while it sleeps. A renewal that was stuck
 * on its way, in the socket of a stopped server, is over when it is read. It may lie ahead by
 * `limit` at the most, so that a wrong one does no lasting harm.
 *
 * What is left is the time between the check and the system call: a thread that is stopped exactly
 * there sends one batch of replies late. Nothing short of a kernel that sends nothing after a
 * deadline would close that.
 *
 * Without a limit, the default, no lease is needed. Slaves need none for what they may do.
 *
 * Threads: any may renew and look. Who looks sees a renewal soon, or the next time: renewals only
 * ever add time, but for give_up(), and that returns to a caller who wants to be sure. So it is
 * sequentially consistent, and what a core has sent after it was checked before.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/option.h"
#include "io/clock.h"

struct fw_server_lease_config {
    int64_t limit_ns; /* 0: none is needed. */
};

extern const struct fw_option fw_server_lease_options[];
extern const size_t fw_server_lease_options_count;

struct fw_lease {
    int64_t limit_ns;         /* Constant. */
    _Atomic int64_t until_ns; /* It runs before this time. */
};

static inline bool fw_lease_is_needed(const struct fw_lease *lease)
{
    return FW_UNLIKELY(lease->limit_ns > 0);
}

/* May a master answer now? */
static inline bool fw_lease_runs(const struct fw_lease *lease)
{
    return !fw_lease_is_needed(lease) || fw_clock_boot_ns() < atomic_load(&lease->until_ns);
}

/*
 * It may run until then. Returns 0; -ENOTSUP: none is needed; -ESTALE: that time has passed;
 * -ERANGE: it is further ahead than the limit. An earlier time than is known changes nothing.
 */
FW_MUST_CHECK int fw_lease_renew(struct fw_lease *lease, int64_t until_ns);

/* It is over now. */
void fw_lease_give_up(struct fw_lease *lease);

/* How long it still runs; 0: not any more. */
int64_t fw_lease_left_ns(const struct fw_lease *lease);
