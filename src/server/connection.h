/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client's connection: a fom with a stream and a session, and memory only while it needs some.
 *
 *       ┌── all is answered, or more to do: waits to be admitted again
 *       ▼   │
 *     SERVE ┴── the socket is full, or a value is in the file ──► SEND
 *       │ ▲ ▲ └── slaves have to confirm,                │ │
 *       │ │ │     or a login failed ──────► HOLD ───────►│ │
 *       │ │ └─► DISK: a part of a value is written       │ │
 *       │ └──────────────── all is sent ─────────────────┘ │
 *       └─── quit, end, error ──────► CLOSE ◄──────────────┘
 *
 * In SERVE it waits until it is admitted, and has its turn then. To wait in the phase in which it
 * is served saves two changes of phase per request, which is what a short one is made of.
 *
 * Nothing is served that the request scheduler has not admitted: that a connection is readable, or
 * that it has more to do when its share is over, is handed to its core's head (fairway/sched.h),
 * and one connection per core at a time is let through. A turn is what has arrived, up to the
 * input buffer's size and a number of commands and keys, or one buffer full of replies.
 *
 * Where no tenant is configured and the policy is first come, first served, the core is *open*: the
 * run-queue is in the order in which they came, nobody can be overtaken, refused or held, so
 * everyone is admitted at once and the head is only told what it came to.
 *
 * Whose it is, it is told by the server's rules (server/tenancy.h) when it is accepted, before any
 * of its bytes are read, and again when it has logged in. Where the policy sets tenants apart a
 * tick is short, and before the next one is let in the reactor is asked who else has come, as soon
 * as FW_CONNECTION_LOOK_COST has been spent since it was last asked. So a flood holds another
 * tenant up for that and for the turn that was under way: some tens of microseconds, and as much
 * with thousands of connections as with one.
 *
 * Where a rule looks at keys or commands, each command is asked about (cache/gate.h): one that is
 * another tenant's than was admitted ends the turn, and waits to be admitted as that tenant's. What
 * comes next on the connection is taken to be the same tenant's until it is known.
 *
 * What the scheduler gives out as shed is refused: commands are read and answered with an error, so
 * that the client's next one is understood.
 *
 * What the connections of a core share (struct fw_server_core): the scheduler's head, its part of
 * the cache, one buffer for input, one for replies. A connection that gets all it needs in one turn
 * owns no memory beyond this struct. Otherwise:
 *
 *   - input that is not a whole command yet stays in the shared buffer, which remembers whose it
 *     is; only when another connection needs the buffer it is copied to memory of its owner's. So a
 *     single busy connection copies nothing, and an idle one pays for what it left unfinished;
 *   - a reply that the socket does not take is kept (server/unsent.h), and nothing is read
 * meanwhile;
 *   - a large value is received into its own place in the table's memory; if it shall be in a file
 *     it goes there window by window, in DISK, and comes back so in SEND (server/large.h). In
 * either case a tick moves a slice of it, of which a socket takes 64 KiB in some 15 us; a system
 * call for all of it would keep everybody else waiting for a millisecond.
 *
 * Ownership: foms live in the domain's pools. Whoever looks at connections from outside (stats, a
 * drain) finds them in the server's crowd (server/crowd.h), which a connection leaves before it
 * closes its socket. Threads: all but its place there belongs to the core's turn; `active_ns` may
 * be read by anyone.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fairway/engine.h>
#include <fairway/sched.h>

#include "base/base.h"
#include "base/wheel.h"
#include "cache/cache.h"
#include "cache/session.h"
#include "io/clock.h"
#include "io/reactor.h"
#include "sched/rules.h"
#include "server/doubt.h"
#include "server/metrics.h"
#include "server/unsent.h"

struct fw_core;
struct fw_server;
struct fw_transfer;
struct fw_listening;
struct fw_connection;
struct fw_ruling;

enum {
    FW_CONNECTION_INPUT = 32 * 1024,               /* Received at once. */
    FW_CONNECTION_SLICE = 64 * 1024,               /* Of a large value, received or sent. */
    FW_CONNECTION_SEND_MAX = 256 * 1024,           /* A longer reply is sent in slices. */
    FW_CONNECTION_AHEAD = 256 * 1024,              /* With a large value, twice as much. */
    FW_CONNECTION_REST_MAX = FW_SESSION_INPUT_MAX, /* Of a command that is not complete. */
    FW_CONNECTION_TURNS = 16,                      /* In one tick, while nobody else waits. */
    /* Where tenants are set apart, in the units of fw_session_cost(): */
    FW_CONNECTION_TICK_COST = 128, /* A tick that has cost so much ends. */
    FW_CONNECTION_LOOK_COST = 128, /* After so much the reactor is asked; */
    FW_CONNECTION_LOOK_MANY = 128, /* and asked again if it has so much to say, */
    FW_CONNECTION_LOOKS = 32,      /* up to so often. */
    FW_CONNECTION_TURN_COST = 8,   /* What a turn's system calls add. */
};

/* How long a transfer waits before it asks a busy job kernel again. */
#define FW_CONNECTION_BUSY_NS (INT64_C(5) * FW_NS_PER_MS)

/* What the connections of one core share; the turn's. */
struct fw_server_core {
    struct fw_server *server;
    struct fw_core *engine;
    struct fw_reactor *reactor;
    struct fw_sched sched;
    struct fw_sched_getter getter;
    struct fw_timer sched_timer; /* When the head wants to be polled. */
    enum fw_sched_policy_number policy;
    bool is_open;                   /* Who comes is admitted. */
    struct fw_connection *admitted; /* By the head, which waits for it; or NULL. */
    struct fw_ruling *ruling;
    struct fw_cache_gate gate; /* On the cache's local where requests have to be looked at. */
    struct fw_doubts doubts;
    struct fw_message change;      /* See tenancy.c. */
    atomic_bool is_change_sent;    /* And has not run yet. */
    uint32_t tick_cost;            /* Of the tick under way. */
    uint32_t unseen_cost;          /* Since the reactor was asked. */
    int64_t seen_ns;               /* The round in which that was counted. */
    int64_t now_ns;                /* As the cache knows it. */
    struct fw_connection *serving; /* In a tick now. */
    struct fw_metrics_server *metrics;
    /* Input between `begin` and `end` is left over from a turn of `owner`; NULL: nobody's. */
    struct fw_connection *owner;
    uint32_t begin;
    uint32_t end;
    struct fw_cache_local cache;
    char input[FW_CONNECTION_REST_MAX + FW_CONNECTION_INPUT];
};

struct fw_connection {
    struct fw_fom fom;
    struct fw_server_core *core;
    struct fw_stream stream;
    struct fw_session session;
    struct fw_sched_request request;
    struct fw_rule_scope scope;
    struct fw_rule_verdict held; /* Whose the command is that was held. */
    struct fw_unsent *unsent;
    struct fw_doubt *doubt;       /* NULL: there is none. */
    struct fw_transfer *transfer; /* From or to the file of large values; NULL: none. */
    struct fw_rest *rest; /* Input left over from a turn; NULL: none, or in the core's buffer. */
    uint32_t rest_length;
    uint32_t wanted; /* So much input must be there before another run makes sense. */
    int fd;          /* Until the stream is open. */
    uint32_t term;   /* Of the server, when it came: when that is over it is closed. */
    bool is_open;
    bool is_waiting;           /* For the stream to be readable. */
    bool is_admitted;          /* By the scheduler, and not served since. */
    bool is_shed;              /* Only to be refused: it has waited for too long. */
    bool needs_input;          /* Else there is something left to do without. */
    bool has_more;             /* Its last turn was over before its commands were. */
    bool has_input;            /* Of a large value: not all that had come was received. */
    bool is_held_back;         /* Since the first one: see fw_stream_hold_back(). */
    bool is_sending;           /* A send is under way. */
    bool is_last;              /* When all is sent it closes. */
    bool is_broken;            /* Something of it was lost: close it. */
    bool is_closing;           /* Has let go of everything; waits for the reactor to do so too. */
    bool is_closed;            /* The reactor has. */
    atomic_bool is_kept;       /* It has something unsent. Relaxed: only shown. */
    uint16_t penalty_ms;       /* In HOLD: a login failed, so the answer waits since active_ns. */
    ssize_t sent;              /* What the last send that was under way has answered. */
    _Atomic int64_t active_ns; /* When it was last served. Relaxed: only shown, and its own. */
    struct fw_listening *listening;
    uint32_t place;   /* In the server's crowd. */
    uint32_t counted; /* The tenant whose connection it is: server/quota.h. */
};

/* Phases. */
enum {
    FW_CONNECTION_SERVE = FW_PHASE_FIRST,
    FW_CONNECTION_SEND,
    FW_CONNECTION_HOLD,
    FW_CONNECTION_DISK,
    FW_CONNECTION_CLOSE,
};

/* All but its limit, which is the server's. */
extern const struct fw_fom_type fw_connection_type;

/* The gate: may this command go in the turn that was admitted? In gate.c. */
enum fw_gate fw_connection_gate(struct fw_cache_gate *gate, enum fw_command_class class,
                                const char *key, size_t length);

/* Whose it is, as far as is known: a number below FW_SCHED_TENANTS_MAX. */
static inline uint32_t fw_connection_tenant(const struct fw_connection *connection)
{
    uint32_t tenant = connection->request.class.tenant;
    return tenant < FW_SCHED_TENANTS_MAX ? tenant : 0;
}

/* On its turn, when the core has another ruling: whose it is now. It may wait to be admitted. */
void fw_connection_classify_again(struct fw_connection *connection);

/*
 * Makes a core's share. `metrics` is registered. The core's turn is not in use yet. Returns 0 or a
 * negative errno.
 */
FW_MUST_CHECK int fw_server_core_init(struct fw_server_core *core, struct fw_server *server,
                                      struct fw_core *engine);
/* No connection is left. */
void fw_server_core_fini(struct fw_server_core *core);
