/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listeners: from the configuration's addresses to connections that are dealt out to the cores.
 * All of it belongs to the thread that runs the server.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"
#include "io/clock.h"

struct fw_server;

/*
 * When descriptors run out. A listener that cannot accept pauses for FW_LISTEN_RETRY_NS and then
 * tries again, and the log is told once in FW_LISTEN_TELL_NS at most, for all listeners together.
 * Those of clients stop earlier, while FW_LISTEN_RESERVE descriptors are free (a quarter of all if
 * few are allowed): administrators, health checks, slaves and files get these. HTTP takes half of
 * them at most, so that it leaves some for the others. The system gives the lowest number that is
 * free, so the number of a new descriptor says how many are left.
 */
#define FW_LISTEN_RETRY_NS ((int64_t)FW_NS_PER_S)
#define FW_LISTEN_TELL_NS  (60 * (int64_t)FW_NS_PER_S)
enum { FW_LISTEN_RESERVE = 64, FW_LISTEN_RESERVE_PART = 4 };

/* What a client is told that is one too many, as memcached does. */
#define FW_LISTEN_REFUSAL "ERROR Too many open connections\r\n"

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

/* A listener has paused because accept() failed; `whom` it cannot accept is said in the log. */
void fw_listen_failed(struct fw_server *server, const char *whom, int error);

/* Whether listeners that have told fw_listen_failed() should try again. */
bool fw_listen_may_retry(const struct fw_server *server);

/* Begins to close; server->open_count says when it has ended. May be called twice. */
void fw_listen_close(struct fw_server *server);
