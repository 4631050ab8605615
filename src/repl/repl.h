/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replication of one server: what its parts share, and what the server does with them.
 *
 *        master                                                        slave
 *     ┌───────────────────────────────┐                            ┌──────────────────────┐
 *     │ connections ── holds ── table │                            │ table                │
 *     │                  │        ▲   │   SetQ DeleteQ FlushQ Noop │   ▲                  │
 *     │          keys    ▼   looks│   │ ─────────────────────────► │   │ applies          │
 *     │   log of changes ───► link│fom│ ◄───────────────────────── │ follower, a fom      │
 *     │   copy job, keys ───►     │   │        answers to Noop     │                      │
 *     └───────────────────────────────┘                            └──────────────────────┘
 *
 * Order. A slave's link is the only one who encodes for it, one key after the other, each as it is
 * at that moment, in a hold. So what the slave hears of a key is in the order of its bucket's lock.
 * A change that comes after the link has looked is written down in the log, in its own hold, and
 * the link will come to it. Nothing is missed, whatever the threads do in between; and where two
 * localities' changes stand in the log relative to each other matters only for positions.
 *
 * A new slave. The link enters the log, then waits until every locality has passed a quiescent
 * point (the document's synchronisation request), so that whoever did not know yet that changes are
 * written down has let go of its bucket; only then the slave is *confirmed* and the copy begins. A
 * job goes round the table and collects keys, which the link tells of between the changes, as many
 * of the one as of the other: neither a busy master nor a large table keeps the other waiting.
 *
 * Bounds. The log is a ring of fixed size: a link that has fallen out of it is dropped, and the
 * slave begins again; clients are never held up. What a link has encoded and its socket has not
 * taken is one reply of 64 KiB. One mark is under way per slave. A slave that is back before the
 * log has gone round gets what it missed.
 *
 * Roles. A server is master or slave; who decides is the server's business (server/replication.h).
 * To become slave it drops its clients, forgets the log, starts a follower. To become master it
 * ends the follower first, waits until that is gone, then skips numbers (apply.h) and
 * serves.
 *
 * Origins. Items have an *origin*, a number that is drawn when a server starts, and that a slave
 * takes over with a whole copy, and keeps when it becomes master. So a slave knows whether a master
 * continues what it has, whatever the histories. One that does not, and has fewer items, was
 * restarted, or is the wrong one: the slave then keeps what it has, and stays without a link, until
 * it is told to accept that (fw_repl_accept()) or to be master itself. The same if a new master of
 * the same origin was behind this slave when it took over, or when it fetched its items; and if a
 * server of the same origin that this slave has never followed has fewer items, and does not say
 * that it went on from this slave's history. Until then it is not complete, so that no agent
 * chooses it, and confirms nothing.
 *
 * Threads. Links and the follower are foms of the server's domain, on the turn of their core. Jobs
 * collect keys. The rest may be called by anyone, unless it says otherwise.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/engine.h>
#include <fairway/jobs.h>

#include "base/base.h"
#include "cache/cache.h"
#include "cache/changes.h"
#include "io/address.h"
#include "io/reactor.h"
#include "repl/greeters.h"
#include "repl/metrics.h"
#include "repl/options.h"
#include "repl/secret.h"

enum { FW_REPL_SLAVES_MAX = 16, FW_REPL_ADMITTED_MAX = 64 };

enum fw_repl_link_state {
    FW_REPL_LINK_NONE,     /* The slot is free. */
    FW_REPL_LINK_ENTERING, /* It was just taken. */
    FW_REPL_LINK_CONFIRMING,
    FW_REPL_LINK_COPYING,
    FW_REPL_LINK_STREAMING,
};

/* What others may see of a link. Relaxed, all but `state`, which is taken and given back with it.
 */
struct fw_repl_slot {
    _Atomic uint32_t state; /* enum fw_repl_link_state */
    struct fw_address peer; /* Written by the link while it is ENTERING. */
    atomic_bool is_ours;
    atomic_bool is_partial;     /* It says that it could not keep all that it was told. */
    _Atomic uint64_t sent;      /* Position. */
    _Atomic uint64_t confirmed; /* Position of the last mark that was answered. */
    /* One behind the position up to which it has everything; 0: its copy is not whole. Release. */
    _Atomic uint64_t whole;
    _Atomic int64_t current_ns;  /* It has confirmed all that was changed before this time. */
    _Atomic uint64_t bytes_sent; /* Of the stream. */
};

enum fw_repl_follow_state {
    FW_REPL_FOLLOW_NONE, /* There is no follower. */
    FW_REPL_FOLLOW_CONNECTING,
    FW_REPL_FOLLOW_COPYING,
    FW_REPL_FOLLOW_STREAMING,
};

/* What a slave knows. Written by the follower, and read by anyone when there is none. Relaxed. */
struct fw_repl_followed {
    _Atomic uint32_t state;     /* enum fw_repl_follow_state; release, acquire. */
    _Atomic uint64_t history;   /* Whose position it is; 0: nobody's. */
    _Atomic uint64_t position;  /* Of the last mark: all before it is applied. */
    _Atomic int64_t current_ns; /* When it last had all that its master had; 0: never. */
    _Atomic int64_t marked_ns;  /* When the last mark came; 0: none has. */
    atomic_bool is_other;       /* Its master is none of ours, and does not say how old this is. */
    atomic_bool is_torn;        /* No copy is whole yet: some items are missing, or all. */
    _Atomic uint64_t origin;    /* Of the items, if the copy is whole; 0: not known. */
    _Atomic uint64_t server;    /* Whose copy it is, if it is whole; 0: not known. */
    atomic_bool is_held;        /* It keeps what it has instead of following its master. */
    _Atomic int hindrance;      /* A negative errno: why that is so, or why there is no link. */
};

/* What a server that was restarted has found at a slave. */
struct fw_repl_found {
    int error;        /* Why it has nothing, or the copy is not whole; 0: the rest is known. */
    uint64_t history; /* Where the slave is. */
    uint64_t position;
    uint64_t number; /* Its next. */
};

/* Whom a slave follows. */
struct fw_repl_master {
    const char *name;          /* As it was given. Constant, and outlives all followers. */
    uint16_t port;             /* If that does not say one. */
    struct fw_address address; /* Of length 0: the name could not be resolved yet. */
};

/* What replication wants of the server. */
struct fw_repl_host {
    void *server;
    struct fw_domain *domain;
    struct fw_jobs *jobs;
    struct fw_cache *cache;
    struct fw_metrics *registry;
    /* The part of the cache that belongs to the core of this index. On its turn. */
    struct fw_cache_local *(*local)(void *server, uint32_t core);
    /* A link or the follower has gone. Any thread. */
    void (*gone)(void *server);
    /* A slave has confirmed something. A link's turn. */
    void (*confirmed)(void *server);
};

struct fw_repl {
    struct fw_repl_config config;
    struct fw_repl_host host;
    struct fw_changes *changes;
    struct fw_fom_type link_type;
    struct fw_fom_type follow_type;
    struct fw_channel news;         /* Links wait here for changes. */
    _Atomic uint32_t sleeper_count; /* How many do. */
    atomic_bool is_master;          /* Links end when it is not. */
    atomic_bool is_urgent;          /* Somebody has waited for slaves to confirm something. */
    atomic_bool must_unfollow;      /* The follower ends. */
    atomic_bool is_fetching;        /* The follower ends when it has a whole copy, or fails. */
    int64_t look_ns;                /* For so long it looks what a slave has; 0: it fetches. */
    struct fw_repl_found found;     /* At the slave that was asked last; if no follower is left. */
    atomic_bool accepts;            /* Whatever the master has: ordered. */
    uint64_t own_origin;            /* Drawn at the start. Constant. */
    uint64_t parent_history;        /* Where a master took over; 0: it did not. Constant while it */
    uint64_t parent_position;       /* is master. */
    _Atomic uint32_t link_count;    /* Until their sockets are closed. */
    struct fw_repl_master master;   /* Whom to follow; the thread that runs the server. */
    struct fw_address admitted[FW_REPL_ADMITTED_MAX]; /* Who may be a slave; constant. */
    uint32_t admitted_count;
    struct fw_repl_secret secret; /* Constant. */
    struct fw_repl_slot slots[FW_REPL_SLAVES_MAX];
    struct fw_repl_greeters greeters;
    struct fw_repl_followed followed;
    struct fw_metrics_repl metrics;
    struct fw_metric_collector collector;
};

/*
 * Where a server is: what a quorum compares. Of two slaves with the same history the one with the
 * higher position has all that the other has; one that is not complete has nothing to go by.
 */
struct fw_repl_standing {
    uint64_t history;  /* Whose positions these are; 0: nobody's. */
    uint64_t position; /* A slave's: what it has applied. A master's: the end of its log. */
    bool is_complete;  /* A master, or a slave whose copy is whole. */
};

/* The domain is in INIT: makes the types known to it. Returns 0 or a negative errno. */
FW_MUST_CHECK int fw_repl_init(struct fw_repl *repl, const struct fw_repl_config *config,
                               const struct fw_repl_host *host);
void fw_repl_fini(struct fw_repl *repl); /* The domain has stopped. */

/*
 * A connection was accepted on the replication's address: makes a link of it. `fd` is taken over if
 * it returns 0. -EUSERS: too many have come that are no slaves yet. The thread that runs the
 * server.
 */
FW_MUST_CHECK int fw_repl_admit(struct fw_repl *repl, struct fw_listener *listener, int fd);

/* A place for the slave of a link, which is on its turn; NULL: there are as many as may be. */
struct fw_repl_slot *fw_repl_slot_take(struct fw_repl *repl);

/* Reads who may be a slave, before anybody is admitted. Returns 0 or -EINVAL with the reason. */
FW_MUST_CHECK int fw_repl_read_admitted(struct fw_repl *repl, struct fw_reason *reason);

/* May a machine with this address be a slave? Whoever comes by a file's permissions may. */
bool fw_repl_is_admitted(const struct fw_repl *repl, const struct fw_address *peer);

/* From a tick that may have changed something, outside of holds: wakes links that wait. */
void fw_repl_nudge_slowly(struct fw_repl *repl);
static inline void fw_repl_nudge(struct fw_repl *repl)
{
    if (fw_changes_wants(repl->changes, FW_CHANGES_ON)) {
        fw_repl_nudge_slowly(repl);
    }
}

/*
 * Any thread: have so many slaves a whole copy, and have they applied and confirmed all changes
 * before the position? Who waits for it looks again after host.confirmed().
 */
bool fw_repl_is_confirmed(const struct fw_repl *repl, uint32_t slaves, uint64_t position);
/* Which slaves that is true of, a bit for each of their slots. Position 0: which have a whole copy.
 */
uint32_t fw_repl_confirmed_slots(const struct fw_repl *repl, uint64_t position);
/* Have so many a whole copy at all? */
static inline bool fw_repl_has_whole(const struct fw_repl *repl, uint32_t slaves)
{
    return fw_repl_is_confirmed(repl, slaves, 0);
}

/*
 * The three steps of changing roles, of the thread that runs the server. host.gone() tells when to
 * look again whether the second may come.
 */
void fw_repl_serve(struct fw_repl *repl);  /* Is master from now on. No follower is left. */
void fw_repl_resign(struct fw_repl *repl); /* Is no longer; links end. */
FW_MUST_CHECK int fw_repl_follow(struct fw_repl *repl, const struct fw_repl_master *master);
/*
 * The same for a server that was restarted: the follower ends when it has a whole copy, or fails.
 * Or it only looks what the slave has, for at most `look_ns` if that is not 0. `found` says what
 * came of it.
 */
FW_MUST_CHECK int fw_repl_fetch(struct fw_repl *repl, const struct fw_repl_master *slave,
                                int64_t look_ns);
/* Of two slaves: has the first what the second has, and maybe more? As far as can be known. */
bool fw_repl_is_newer(const struct fw_repl_found *first, const struct fw_repl_found *second);
/* Is it a slave with a whole copy, and without a master? Any thread. */
bool fw_repl_can_be_fetched(const struct fw_repl *repl);
/* Is there a whole copy of a master? Any thread. */
bool fw_repl_has_copy(const struct fw_repl *repl);
void fw_repl_unfollow(struct fw_repl *repl);
bool fw_repl_is_following(const struct fw_repl *repl);

/* Of the items here. Any thread. */
uint64_t fw_repl_origin(const struct fw_repl *repl);

/* Any thread: a slave that is held shall follow all the same. -EINVAL: it is not held. */
FW_MUST_CHECK int fw_repl_accept(struct fw_repl *repl);

/* In figures.c. Any thread. */
/* Its address, or its name while that could not be resolved. */
void fw_repl_master_format(const struct fw_repl_master *master,
                           char text[static FW_ADDRESS_TEXT_SIZE]);
void fw_repl_standing(struct fw_repl *repl, struct fw_repl_standing *standing);
/* What clients of a slave would read, if it may be `bound_ns` old. */
enum fw_repl_freshness { FW_REPL_FRESH, FW_REPL_TORN, FW_REPL_OLD };
enum fw_repl_freshness fw_repl_freshness(const struct fw_repl *repl, int64_t bound_ns);
/* Shows `stats replication`, but for the role. */
void fw_repl_stats(struct fw_repl *repl, fw_stat_emit emit, void *context);
/* Tells the registry, from now on and no longer. */
void fw_repl_figures_begin(struct fw_repl *repl);
void fw_repl_figures_end(struct fw_repl *repl);

/* Of the parts: the types, all but their limits. */
extern const struct fw_fom_type fw_repl_link_type;
extern const struct fw_fom_type fw_repl_follow_type;
