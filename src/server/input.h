/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: the one buffer that a core's connections share, and what a connection has left over.
 *
 * A connection claims the buffer for its tick, with what it had left over at the front, and leaves
 * it behind with what was not a whole command yet. That stays there until another connection claims
 * the buffer, and only then is copied to memory of its own; so a single busy connection copies
 * nothing. With --secure-erase whatever is not left over is overwritten when the tick ends.
 *
 * Ownership: the buffer is the core's, what was copied the connection's. Threads: the core's turn.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct fw_connection;
struct fw_server_core;

/* Copies what lies in the core's buffer to memory of the connection that left it there. */
void fw_connection_input_evict(struct fw_server_core *core);

/* Makes the core's buffer this connection's, with what it had left over at the front. */
void fw_connection_input_claim(struct fw_connection *connection);

/* What is left in the buffer is this connection's until another needs the buffer. */
void fw_connection_input_leave(struct fw_connection *connection);

/* Ends what the connection has in either place. */
void fw_connection_input_drop(struct fw_connection *connection);

/* Has enough come for another run to make sense? */
bool fw_connection_input_suffices(const struct fw_connection *connection);

/*
 * Receives behind what is there; a large value goes straight to its place. Bytes, 0 at the end of
 * the stream, or a negative errno.
 */
ssize_t fw_connection_input_receive(struct fw_connection *connection);
