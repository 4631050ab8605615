/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replication in the server: its address, and which role the server has.
 *
 *               wish: slave                    clients and links are gone
 *     MASTER ───────────────────► RESIGNING ──────────────────────────────► SLAVE
 *        ▲                                                                    │
 *        └──────────── the follower is gone ──── UNFOLLOWING ◄────────────────┘
 *                                                             wish: master
 *
 * A server that would become master with nothing, since it was just started, asks those that it is
 * told of (--repl-fetch) for what it had, before it serves: FETCHING comes between then. It asks
 * all of them what they have, one after the other and those who do not answer again, until each has
 * answered, or for the time-out of replication. Then it fetches from the one that is furthest on.
 * If that breaks off it asks all again, and after the third time it begins with nothing.
 *
 * A wish comes from the command line, from an administrator (`promote`, `demote`), from the virtual
 * address, which netlink watches, or from a file that comes and goes. Wishes may come at any time,
 * from any thread; the thread that runs the server carries them out, step by step, and never waits:
 * each step begins what the next one looks for. So there is no moment in which a client is served
 * and a master is followed.
 *
 * A master that resigns drops its clients first. When they are gone nothing changes any more: it
 * waits until the slaves that had a whole copy have confirmed all that it has, but no longer than
 * replies would wait for them, and then ends its links. So the slave that is promoted next has
 * everything that was answered. One that is told to be hasty, since another is master, does not
 * wait.
 *
 * Only a master serves. A slave lets clients in, since who wants to see its figures or to dump its
 * items can, but refuses commands that write, and those that read unless it may serve them; the
 * error says why and where the master is. While the role changes clients are refused at once. Who
 * was a client when a master resigned is dropped: a connection remembers the *term* in which it
 * began.
 *
 * Where a lease is needed (server/lease.h) it has the last word. Nobody becomes master without one:
 * a virtual address may come to a server that was just started and has nothing. A master whose
 * lease is over stays master, but is silent: clients are dropped, and they and new slaves refused
 * until it runs again. And a master that loses the address stays what it is until it is told to
 * resign, since another one is master: one that stood still, and goes on with an older claim to the
 * address, takes it away for a moment, and who would follow it forgot what was acknowledged since.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"
#include "cache/cache.h"
#include "io/netlink.h"
#include "io/presence.h"
#include "io/reactor.h"
#include "repl/repl.h"
#include "server/lease.h"

struct fw_server;

enum { FW_REPLICATION_DOORS_MAX = 8 };

enum fw_replication_stage {
    FW_REPLICATION_MASTER,
    FW_REPLICATION_RESIGNING,
    FW_REPLICATION_SLAVE,
    FW_REPLICATION_UNFOLLOWING,
    FW_REPLICATION_FETCHING,
};

/* Of a master that resigns: have its slaves all that it has? */
enum fw_replication_outcome {
    FW_REPLICATION_WAITING, /* That is not known yet. */
    FW_REPLICATION_HANDED_OVER,
    FW_REPLICATION_HASTY, /* They were not waited for, or not long enough. */
};

/* An address where slaves connect. */
struct fw_replication_door {
    struct fw_listener listener;
    struct fw_server *server;
    bool is_paused; /* Something was short when somebody came. */
};

struct fw_replication {
    struct fw_repl repl;

    /* Anyone's. */
    struct fw_lease lease;
    _Atomic uint32_t wish;    /* enum fw_repl_role; AUTO: none. */
    atomic_bool has_address;  /* The virtual one. */
    atomic_bool is_hasty;     /* A master that resigns does not wait for its slaves. */
    _Atomic uint32_t outcome; /* enum fw_replication_outcome: of the last time that it resigned. */
    atomic_bool is_ordered;   /* By a person or an agent; else it is the address that says so. */
    _Atomic uint32_t stage;   /* enum fw_replication_stage; written by the thread that runs it. */
    _Atomic uint32_t term;    /* Raised when clients must go. */

    /* Of the thread that runs the server. */
    struct fw_replication_door doors[FW_REPLICATION_DOORS_MAX];
    uint32_t door_count;
    struct fw_netlink netlink;
    bool has_netlink;
    struct fw_presence presence;
    bool has_presence;
    bool is_over;
    bool has_fetched;       /* Or tried to. */
    bool is_copying;        /* From fetch_next, which has the newest copy. */
    uint32_t broken_copies; /* That many have begun and were not finished. */
    size_t fetch_next;      /* Whom to ask next. */
    int64_t fetch_until_ns; /* When to wait no longer for those who have not answered. */
    int64_t fetch_due_ns;   /* When to ask again; 0: somebody is being asked. */
    struct fw_repl_found found[FW_REPL_SLAVES_MAX]; /* At those of --repl-fetch, in their order. */
    uint32_t resign_slots;    /* Of slaves that had a whole copy when it began to resign. */
    int64_t resign_until_ns;  /* For how long it waits for them; 0: clients are still there. */
    uint64_t resign_position; /* For what. */
    bool had_lease;           /* When last looked at. */
    bool has_master;
    struct fw_repl_master master; /* Whom to follow. */
    /* Constant: what clients of a slave are told. */
    char no_writes[FW_GATE_REFUSAL_MAX + 1];
    char no_reads[FW_GATE_REFUSAL_MAX + 1];
    char torn_reads[FW_GATE_REFUSAL_MAX + 1];
    char old_reads[FW_GATE_REFUSAL_MAX + 1];
    struct fw_address virtual; /* Who has it is master. */
};

/* Before the domain starts. Returns 0 or a negative errno. */
FW_MUST_CHECK int fw_replication_init(struct fw_server *server);
void fw_replication_fini(struct fw_server *server);

/* Whether open() could do with these options. 0, or a negative errno with the reason. */
FW_MUST_CHECK int fw_replication_check(const struct fw_repl_config *config,
                                       struct fw_reason *reason);

/* Opens what the configuration says. After a failure close() is due as well. */
FW_MUST_CHECK int fw_replication_open(struct fw_server *server, struct fw_reason *reason);
void fw_replication_close(struct fw_server *server);

/* Of the thread that runs the server, whenever it was woken: carries wishes out. */
void fw_replication_look(struct fw_server *server);

/* Whether a listener for slaves has paused, and look() should be called again soon. */
bool fw_replication_is_paused(const struct fw_replication *replication);

/* How long that thread may sleep: until the lease is over. -1: for ever. */
int64_t fw_replication_patience_ns(const struct fw_server *server);

/* Any thread: what it shall be. 0, or -ENOTSUP if it does not replicate, -EAGAIN: a copy is torn.
 * Forced: it becomes master all the same, or slave without waiting for its slaves.
 */
FW_MUST_CHECK int fw_replication_wish(struct fw_server *server, enum fw_repl_role role,
                                      bool is_forced);

/* Any thread. Relaxed: who changes the role sees to it that all look again. */
static inline enum fw_replication_stage
fw_replication_stage(const struct fw_replication *replication)
{
    return (enum fw_replication_stage)atomic_load_explicit(&replication->stage,
                                                           memory_order_relaxed);
}

/* Must a reply that is ready not leave? Asked just before it would. */
static inline bool fw_replication_is_silent(const struct fw_replication *replication)
{
    return fw_lease_is_needed(&replication->lease) &&
           fw_replication_stage(replication) == FW_REPLICATION_MASTER &&
           !fw_lease_runs(&replication->lease);
}

/* Are clients refused before they say anything? */
static inline bool fw_replication_refuses(const struct fw_replication *replication)
{
    enum fw_replication_stage stage = fw_replication_stage(replication);
    return stage == FW_REPLICATION_MASTER
               ? fw_replication_is_silent(replication)
               : stage != FW_REPLICATION_SLAVE && stage != FW_REPLICATION_FETCHING;
}

/* Are all commands refused that read or write? */
static inline bool fw_replication_refuses_reads(const struct fw_replication *replication)
{
    return fw_replication_stage(replication) != FW_REPLICATION_MASTER &&
           replication->repl.config.reads_ns == 0;
}

/* Why a slave does not do what a client wants; NULL: it does, or is none. */
const char *fw_replication_refusal(const struct fw_replication *replication, bool is_write);

/* `stats replication`. */
void fw_replication_stats(struct fw_server *server, fw_stat_emit emit, void *context);
