/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lease of sanlock's, which a manager may hold beside the group's own (lease.h): where sanlock
 * runs with a watchdog, a host that hangs is reset before another one takes over, which no record
 * on a disk can do. The group's own lease is held as well: commands, and managers that were
 * started without sanlock, know only that.
 *
 * Resources and lockspaces are the administrator's; a resource is named as sanlock's own tool does,
 * LOCKSPACE:NAME:PATH:OFFSET. The lease is this process's: sanlock gives it back when the process
 * has ended, and ends the process if it cannot renew it.
 */
#pragma once

#include "base/base.h"
#include "base/reason.h"

/* -EBUSY: another has it; -ENOSYS: this build knows no sanlock; others: sanlock's. Blocks. */
FW_MUST_CHECK int fw_volume_sanlock_take(const char *resource, int *held, struct fw_reason *reason);
void fw_volume_sanlock_drop(int held);
