/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words to the service manager that started us: that we serve, that we live, that we end. systemd
 * waits for them with Type=notify, so who depends on the server starts when it answers and not when
 * it was forked; and with WatchdogSec= it ends who does not say in time that it lives.
 *
 * The protocol is one datagram of lines NAME=VALUE to the UNIX socket that $NOTIFY_SOCKET names, a
 * path or, after '@', an abstract name. Without that variable nobody listens, and every call
 * succeeds and does nothing. That is all that libsystemd's sd_notify() would do for us; the library
 * brings a compressor or two along.
 *
 * Any thread. A call may wait for the manager to take the datagram, so not on a core's turn; but
 * fw_notify_alive() does not.
 */
#pragma once

#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"

/* Nothing more has to happen before clients are served; also after fw_notify_reloading(). */
#define FW_NOTIFY_READY "READY=1"
/* From now on it ends, which may take as long as clients take to fetch their replies. */
#define FW_NOTIFY_STOPPING "STOPPING=1"

/* Returns 0, also if nobody listens; or a negative errno with the reason. */
FW_MUST_CHECK int fw_notify(const char *lines, struct fw_reason *reason);

/* The configuration is being read again; ready() follows. */
FW_MUST_CHECK int fw_notify_reloading(struct fw_reason *reason);

/* How often the manager wants to hear that this process lives: half of the time after which it
 * would end it. 0: it does not watch. */
int64_t fw_notify_alive_ns(void);

/* That it does. If the manager has no room for it just now, the next one will do. */
FW_MUST_CHECK int fw_notify_alive(struct fw_reason *reason);
