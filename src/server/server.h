/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: puts the parts together, from a configuration, and takes them apart again.
 *
 * A server has its own domain of localities, job kernel, cache, listeners and connections; nothing
 * is global, so the simulator runs several of them in one process. It speaks about itself only
 * through the log. state.h says what it is made of, connection.h how a client is served.
 *
 * Threads: create(), run() and destroy() are called by one thread; while it is in run() it accepts
 * connections and receives signals, and the domain's threads serve. stop() and drain() may be
 * called from any thread, and from a signal's watch.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"
#include "server/options.h"

struct fw_server;
struct fw_address;
struct fw_metrics;

/*
 * Opens everything the configuration names, which is copied, but for its strings and lists: they
 * last as long as the server. On failure the reason says what to do about it: -EINVAL, the
 * configuration is wrong; -EADDRNOTAVAIL, it cannot listen, why ever; else what the system said.
 */
FW_MUST_CHECK int fw_server_create(struct fw_server **server, const struct fw_server_config *config,
                                   struct fw_reason *reason);

/* Where the i-th listener is bound, with the port the kernel chose for port 0; NULL past the last.
 */
const struct fw_address *fw_server_address(const struct fw_server *server, uint32_t index);

/*
 * SIGTERM and SIGUSR1 drain the server, SIGINT stops it, SIGHUP opens the log's file again and
 * calls `reload`, if that is not NULL, to read again what may change. A program blocks them before
 * it creates the server, so that who saw it listen may stop it: until they are opened they wait.
 */
void fw_server_signals_block(void);
FW_MUST_CHECK int fw_server_signals_open(struct fw_server *server, void (*reload)(void *context),
                                         void *context, struct fw_reason *reason);

/* Before run(), which calls it when it begins to end: who waits for the end learns that it comes.
 */
void fw_server_on_end(struct fw_server *server, void (*ending)(void *context), void *context);

/*
 * Serves until drain() or stop(), then closes every connection and listener, and writes the image
 * if it has one. Returns 0, or a negative errno if that failed, which the log has told.
 */
int fw_server_run(struct fw_server *server);

/*
 * Takes over the tenants and the policy of another configuration, while it serves; the thread that
 * is in run(), so from `reload`. Returns 0, or a negative errno with the reason, and all stays.
 */
FW_MUST_CHECK int fw_server_change(struct fw_server *server, const struct fw_server_config *config,
                                   struct fw_reason *reason);

/* No new connections; those there are closed when they have nothing to do, or at the limit. */
void fw_server_drain(struct fw_server *server);

/* Ends at once, whatever is under way. */
void fw_server_stop(struct fw_server *server);

/* After run() has returned, or without it ever having been called. */
void fw_server_destroy(struct fw_server *server);

/* Where all parts of the server count, for a program that has more to add or wants to read it. */
struct fw_metrics *fw_server_metrics(struct fw_server *server);

/*
 * Calls emit() with each name and value of a group of figures, as `stats` shows them; "" is the
 * general group. False: there is no such group. Any thread.
 */
bool fw_server_visit_stats(struct fw_server *server, const char *group,
                           void (*emit)(void *context, const char *name, const char *value),
                           void *context);

/* Of so many descriptors (0: unknown), how many its clients leave for everything else. */
uint64_t fw_server_files_kept(uint64_t descriptors);

/* Does it take clients? Any thread. */
bool fw_server_is_ready(const struct fw_server *server);

/* Switches the engine's trace on; and writes what it has to `sink`. Any thread. See engine.h. */
FW_MUST_CHECK int fw_server_trace(struct fw_server *server);
FW_MUST_CHECK int
fw_server_trace_write(struct fw_server *server,
                      int (*sink)(const char *bytes, size_t length, void *context), void *context);
