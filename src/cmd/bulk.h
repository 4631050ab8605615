/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `fairway dump` and `fairway load` share: several connections to one server, each worked by a
 * thread of a job kernel, with a line of progress, and an end in order when a signal asks for it.
 *
 * The work is cut into units, requests of lane 2: a part of the table, a list of keys, a block of a
 * dump. The thread that runs the command posts them and takes them back with fw_bulk_rejoin(), out
 * of which progress is shown and signals are seen; so it must not wait elsewhere for long.
 *
 * The first failure of any thread is kept and told, and makes all others stop.
 *
 * Threads: begin(), rejoin() and end() are for the one that runs the command; the rest is anyone's.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/jobs.h>

#include "base/base.h"
#include "base/list.h"
#include "base/mutex.h"
#include "base/option.h"
#include "base/reason.h"
#include "cmd/cmd.h"
#include "cmd/login.h"
#include "cmd/peer.h"
#include "io/signal.h"

enum { FW_BULK_CONNECTIONS_MAX = 64 };

struct fw_bulk_config {
    const char *server;
    const char *login_file; /* NULL: none. */
    const char *prefix;     /* NULL: all keys. */
    uint64_t connections;
    int64_t patience_ns;
    bool json;
    bool adds;   /* load: what is there stays. */
    bool checks; /* load: only looks at the file. */
};

struct fw_bulk {
    const struct fw_bulk_config *config;
    const char *verb; /* "dumped", "loaded". */
    struct fw_address address;
    struct fw_login login;
    struct fw_jobs *jobs;
    struct fw_reactor *reactor;
    struct fw_signals signals;
    bool is_signalled_closed;
    bool shows_progress;
    int64_t start_ns;
    int64_t shown_ns; /* When progress was shown last; 0: never. */

    /* Written by all. Relaxed, but for must_end: figures. */
    atomic_bool must_end;
    _Atomic uint64_t items;
    _Atomic uint64_t bytes; /* Of keys and values. */
    _Atomic uint64_t expired;
    _Atomic uint64_t present; /* load: there already, and left as they are. */
    _Atomic uint64_t failed;
    /* How far it is, and how far it goes; 0: that is not known. */
    _Atomic uint64_t done;
    _Atomic uint64_t total;

    struct fw_mutex lock; /* FW_RANK_BULK; guards what follows. */
    struct fw_list idle;  /* Peers that nobody uses. */
    int rc;               /* The first failure. */
    struct fw_reason reason;
    struct fw_reason refusal; /* The first item that the server did not want: what it said. */
};

/* Reads the address, and starts threads. 0, or a negative errno with the reason. */
FW_MUST_CHECK int fw_bulk_begin(struct fw_bulk *bulk, const struct fw_bulk_config *config,
                                const char *verb, struct fw_reason *reason);

/* Ends threads and connections. */
void fw_bulk_end(struct fw_bulk *bulk);

/* Keeps the failure, if it is the first, and makes all stop. */
void fw_bulk_fail(struct fw_bulk *bulk, int rc, const struct fw_reason *reason);

/* Counts an item that the server did not want. */
void fw_bulk_refused(struct fw_bulk *bulk, const char *line, size_t length);

/* One of the connections, made if none is idle; NULL: it failed, which was kept. */
struct fw_peer *fw_bulk_peer_take(struct fw_bulk *bulk);

/* Gives it back. What is left in its input was not asked for: it is not used again then. */
void fw_bulk_peer_give(struct fw_bulk *bulk, struct fw_peer *peer, bool is_sound);

/* A unit that is done; NULL: all are, none is left. */
struct fw_job *fw_bulk_rejoin(struct fw_bulk *bulk);

/* The same without waiting; NULL: none is done yet. */
struct fw_job *fw_bulk_rejoin_ready(struct fw_bulk *bulk);

/* For a thread that posts for long without rejoining. */
void fw_bulk_tick(struct fw_bulk *bulk);

/*
 * Says how it went: the first failure, or the figures, `file` being what was written or read, on
 * stderr if the dump itself went to stdout.
 */
enum fw_cmd_status fw_bulk_report(struct fw_bulk *bulk, const char *file, bool is_stdout_taken);

static inline void fw_bulk_count(_Atomic uint64_t *count, uint64_t by)
{
    /* Relaxed: figures. */
    (void)atomic_fetch_add_explicit(count, by, memory_order_relaxed);
}
