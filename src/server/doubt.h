/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection whose last changes are in doubt: its replies wait until enough slaves have confirmed
 * them, or until it is too late, and then its client is told so.
 *
 * A turn that has changed something, for a tenant that wants slaves to confirm it, ends with its
 * replies gathered and not sent: they are kept (server/unsent.h) and the connection waits in HOLD.
 * Nothing is read from it meanwhile, so replies keep their order. Connections that only read do not
 * wait, nor does this one before it has changed something. What slaves have to confirm is the end
 * of the log of changes at that moment: one position per batch, however many commands that had.
 *
 *     SERVE ── replies, and a change in doubt ──► HOLD ── confirmed ───────────────► SEND
 *                                                   └──── too late: an error instead ─► SEND, CLOSE
 *
 * Changes to which nothing is replied (noreply, quiet commands) hold nobody up by themselves. The
 * doubt stays with the connection, and the first reply that comes then waits for it: a client that
 * ends a row of quiet commands with a Noop learns from its answer that all is confirmed.
 *
 * Each core has a list of those that wait. Who has heard a slave's confirmation, the slave's link
 * on its own core, sends a message to cores whose list is not empty; they wake who need not wait
 * any longer. (A channel that all wait at would wake all of them each time.)
 *
 * Where fewer slaves have a whole copy than must confirm, commands that write are refused before
 * they begin: that says the same as a time-out, at once, and leaves nothing in doubt.
 *
 * Ownership: the connection's. Threads: the core's turn, but for fw_doubts_look().
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/engine.h>

#include "base/base.h"
#include "base/list.h"
#include "cache/notice.h"

struct fw_connection;
struct fw_server;
struct fw_server_core;

struct fw_doubt {
    struct fw_list_link link; /* In its core's list, while replies are held. */
    struct fw_connection *connection;
    uint64_t position;   /* Slaves have to confirm the log up to here, */
    uint32_t slaves;     /* this many of them, */
    int64_t deadline_ns; /* before this time. */
    struct fw_notice_change change;
};

/* Those of a core. */
struct fw_doubts {
    struct fw_list held;
    _Atomic uint32_t held_count; /* For who confirms. */
    struct fw_message message;
    atomic_bool is_sent; /* The message, and it has not run yet. */
    bool is_short;       /* In a run: there are too few slaves to begin with. */
    uint32_t slaves;     /* In a run: how many must confirm what it changes. */
    uint32_t batch;      /* How many must confirm what the batch has changed so far. */
};

void fw_doubts_init(struct fw_doubts *doubts);
void fw_doubts_fini(struct fw_doubts *doubts);

/* Before and behind a run of the connection's session, where any tenant wants confirmations. */
void fw_doubts_begin_run(struct fw_connection *connection);
void fw_doubts_end_run(struct fw_connection *connection);

/* The replies of a batch are to be sent, and it has changed something. False: no memory. */
FW_MUST_CHECK bool fw_doubt_note(struct fw_connection *connection);

/* Must the replies that are to be sent wait? If not, the doubt is over and gone. */
bool fw_doubt_holds(struct fw_connection *connection);

/* They wait: connection->unsent. It is woken when they need not any longer. */
void fw_doubt_enter(struct fw_connection *connection);

/* It was not confirmed in time: an error is sent in place of what is in doubt. */
void fw_doubt_fail(struct fw_connection *connection);

/* Ends it, if there is one. */
void fw_doubt_drop(struct fw_connection *connection);

/* Any thread, when a slave has confirmed something: all cores look who need not wait any longer. */
void fw_doubts_look(struct fw_server *server);
