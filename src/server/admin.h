/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The administration socket: the commands of the job kernel, for who may open a file.
 *
 *     client:  COMMAND [ARGUMENTS] LF
 *     server:  OK LENGTH LF, and an answer of LENGTH bytes; or
 *              ERROR NAME LENGTH LF, NAME being that of an errno, and a line of LENGTH bytes
 *
 * Before the command may stand `json`, which says how to answer, and before that `every DURATION`:
 * then it is answered so often, for the first time when that has passed, until the client sends
 * another line or nothing more. `help` lists the commands: the system's (src/jobs/system.c) and the
 * server's own (admin_command.c).
 *
 * It is off unless a path is given. A cache has no path of its own where it could always write, two
 * servers of one machine would fight over a default, and whoever starts it in memcached's place
 * expects no files of it. The file's mode is 0600, and that is all the authentication there is: who
 * may be the server's user may do all that the server can. So there is no TCP, and no abstract
 * name, which would have no permissions.
 *
 * Threads. Sockets are served by the thread that accepts connections and waits for nothing, so a
 * client that sends half a line or takes no answer delays nobody. Commands run on the job kernel's
 * workers. An answer comes back through the client's mailbox, a pointer that the worker fills and
 * that thread empties; while a timed one is not taken, those that follow are left out. No core of
 * the engine has a part in it, so it answers also while they are busy.
 *
 * Limits. A client has one command under way. There are SLOTS clients; of more than CLIENTS the one
 * that has done nothing for longest is closed, so that an administrator gets in whatever others
 * left open. Who comes while all slots are taken, by commands that run, waits in the backlog.
 *
 * Rejected: a thread per client, or a request of the kernel: a slow one would hold a worker.
 * Answers in the text protocol (`stats ...`): every client of the cache would be an administrator.
 */
#pragma once

#include <stdbool.h>

#include <fairway/jobs.h>

#include "base/base.h"
#include "base/reason.h"

struct fw_server;
struct fw_admin;

enum {
    FW_ADMIN_CLIENTS = 8,
    FW_ADMIN_SLOTS = 16,
    FW_ADMIN_CONNECTIONS_MAX = 1000, /* Shown by the command `connections`. */
};

/*
 * Opens the socket that the configuration names, if it does. Returns 0, or a negative errno with
 * the reason. The job kernel runs.
 */
FW_MUST_CHECK int fw_admin_open(struct fw_server *server, struct fw_reason *reason);

/* Whether open() could do with that path. 0, or a negative errno with the reason. */
FW_MUST_CHECK int fw_admin_check(const char *path, struct fw_reason *reason);

/* Of the thread that runs the server, after each poll: sends what workers have answered. */
void fw_admin_look(struct fw_server *server);

/* It could not accept a client for want of something, and should be looked at again soon. */
bool fw_admin_is_paused(const struct fw_server *server);

/* Closes socket and clients; what is open of them is in the server's `open_count`. */
void fw_admin_close(struct fw_server *server);

/* After close(), when the job kernel has ended: then no answer comes any more. */
void fw_admin_fini(struct fw_server *server);

/* The server's own commands; the context is the server. */
extern const struct fw_jobs_command fw_admin_commands[];
extern const size_t fw_admin_commands_count;
