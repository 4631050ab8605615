/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: puts the parts together, from a configuration, and takes them apart again.
 *
 * A server has its own reactor, store, listeners and connections; nothing is global, so the
 * simulator runs several of them in one process. It speaks about itself only through the log.
 *
 * Threads: create(), run() and destroy() are called by one thread, which is the one that serves.
 * stop() may be called from any thread, and from a signal's watch.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"
#include "server/options.h"

struct fw_server;
struct fw_address;

/* Opens everything the configuration names. On failure the reason says what to do about it. */
FW_MUST_CHECK int fw_server_create(struct fw_server **server, const struct fw_server_config *config,
                                   struct fw_reason *reason);

/* Where the i-th listener is bound, with the port the kernel chose for port 0; NULL past the last.
 */
const struct fw_address *fw_server_address(const struct fw_server *server, uint32_t index);

/*
 * SIGTERM and SIGINT stop the server, SIGHUP opens the log's file again. A program blocks them
 * before it creates the server, so that who saw it listen may stop it: until they are opened they
 * wait.
 */
void fw_server_signals_block(void);
FW_MUST_CHECK int fw_server_signals_open(struct fw_server *server, struct fw_reason *reason);

/* Serves until stop(), then closes every connection and listener, and returns. */
void fw_server_run(struct fw_server *server);

void fw_server_stop(struct fw_server *server);

/* After run() has returned, or without it ever having been called. */
void fw_server_destroy(struct fw_server *server);
