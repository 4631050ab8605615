/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listeners: from the configuration's addresses to connections that are dealt out to the cores.
 * All of it belongs to the thread that runs the server.
 */
#pragma once

#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"

struct fw_server;

/* Foms of connections beyond the limit: those that have ended, but not for the pool yet. */
enum { FW_LISTEN_SLACK = 1024 };

/* Listens on all that the configuration names. After a failure fw_listen_close() is due as well. */
FW_MUST_CHECK int fw_listen_open(struct fw_server *server, struct fw_reason *reason);

/*
 * If it has stopped accepting: for how long to wait before it tries again at the latest; else, for
 * ever, -1. What was short may be back without a connection having gone.
 */
int64_t fw_listen_patience_ns(const struct fw_server *server);

/* If it has stopped accepting, and there is room, or it has waited long enough: goes on. */
void fw_listen_resume(struct fw_server *server);

/* Begins to close; server->open_count says when it has ended. May be called twice. */
void fw_listen_close(struct fw_server *server);
