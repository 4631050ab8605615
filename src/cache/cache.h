/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache: what all connections of a server share, and what those of one locality share.
 *
 *     struct fw_cache         one per server: table, settings, clock, who may log in
 *     struct fw_cache_local   one per locality (and one for the sweeper): its part of the table,
 * its counters, the buffer for replies, the time
 *
 * The cache's clock counts seconds. It begins at FW_CACHE_CLOCK_START, so that 0 can mean never and
 * 1 can mean long ago, and follows a clock that does not go back; the wall clock is looked at once,
 * when the server starts, and clients' absolute times are converted with it. A test build can shift
 * the clock (the command `debugtime`).
 *
 * The server stands behind the cache, and the cache knows it only as a table of calls, struct
 * fw_cache_host: for `stats`, which shows what the server counts too, `shutdown`, `verbosity`.
 *
 * Threads: a struct fw_cache_local belongs to its turn. Of struct fw_cache the settings are
 * constant once served, but for those that say so.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"
#include "cache/counters.h"
#include "cache/metrics.h"
#include "cache/notice.h"
#include "cache/reply.h"
#include "cache/table.h"

struct fw_auth;
struct fw_locks;
struct fw_detail;
struct fw_holdings;

enum { FW_CACHE_CLOCK_START = 2 };

/*
 * What clients are told. Many of them look at the number to know what a server can do, and some
 * refuse one below 1; so it begins with the release of memcached that we answer like.
 * Who uses it includes base/version.h.
 */
#define FW_CACHE_VERSION "1.6.18-fairway-" FW_VERSION

/* One line of `stats`. */
typedef void (*fw_stat_emit)(void *context, const char *name, const char *value);

/*
 * How far a group of `stats` has been shown. Zero at first. A call shows a bounded number of rows
 * and says whether others are to follow; what it wants to know then it keeps here.
 */
struct fw_stat_walk {
    bool has_more;
    uint64_t next;
    uint64_t sum;
};

/* What the cache asks of the server. None may be NULL. */
struct fw_cache_host {
    void *server;
    /*
     * Rows that the server has for a group of `stats` ("" is the general one; "settings", "conns",
     * "threads", ...), shown before the cache's own. False: it knows no such group. It sets
     * walk->has_more, which is false before, if it has to be asked again.
     */
    bool (*stats)(void *server, const char *group, struct fw_stat_walk *walk, fw_stat_emit emit,
                  void *context);
    void (*stats_reset)(void *server);
    void (*set_verbosity)(void *server, unsigned level);
    /* 0, or -EPERM if the server was not started with permission to. */
    int (*shutdown)(void *server, bool is_graceful);
};

/* Counters (counters.h) are never chosen by what a client says: they have an address of their own.
 */
enum fw_protocol {
    FW_PROTOCOL_UNKNOWN,
    FW_PROTOCOL_TEXT,
    FW_PROTOCOL_BINARY,
    FW_PROTOCOL_COUNTERS,
};

struct fw_cache_settings {
    uint32_t item_size_max; /* memcached's -I: of its whole item; see fw_operation_fits(). */
    bool has_cas;           /* memcached's -C takes it away. */
    bool has_flush;         /* -F takes it away. */
    bool has_dump;          /* -X takes dumps away. */
    bool has_sizes;         /* -o track_sizes: `stats sizes` is answered. */
    bool needs_login;       /* -Y, or -S. */
    bool has_locking;       /* yrmcds' lock and unlock. */
    bool has_failed_disk;   /* There is no file for large values, though there should be one. */
    uint32_t lines_max;     /* Commands per turn of a connection; memcached's -R. */
    /* The only one that is spoken, memcached's -B; UNKNOWN: each connection's first byte says. */
    enum fw_protocol protocol;
    struct fw_counters_config counters; /* `memory` 0: there are none. */
};

struct fw_cache {
    struct fw_table *table;
    struct fw_cache_settings settings;
    struct fw_cache_host host;
    struct fw_metrics *registry;  /* The server's: locals register what they count. Never NULL. */
    struct fw_auth *auth;         /* The caller's, or NULL. */
    struct fw_locks *locks;       /* The cache's own, with has_locking; else NULL. */
    struct fw_counters *counters; /* The cache's own, or NULL. */
    struct fw_detail *detail;     /* What `stats detail` counts. */
    struct fw_holdings *holdings; /* The caller's. NULL: what sessions hold is not bounded. */
    int64_t start_ns;             /* By fw_clock_now_ns(). */
    int64_t start_wall_s;         /* The unix time at which the cache's clock stood at its start. */
    /* Of `debugtime`. Relaxed, both: a test waits for the answer. */
    _Atomic int64_t shift_s;
    _Atomic int64_t paused_ns; /* The clock stands still there; 0: it goes. */
    atomic_bool is_read_only;  /* It is a replica's: clients change nothing. Relaxed: a rule of
                                  thumb;  who changes it sees to it that nobody is at it. */
    atomic_bool is_used_up;    /* The table has no numbers left: clients change nothing. Relaxed. */
    _Atomic uint32_t flush_at; /* A delayed flush_all is due then; 0: none is. */
    /* The same at the master of this replica, by our clock; a new master takes it over. */
    _Atomic uint32_t master_flush_at;
    /* What was counted when `stats reset` came: shown is what came since. Relaxed: only shown. */
    _Atomic uint64_t counted_before[FW_CACHE_COUNTERS];
    _Atomic uint64_t table_before[FW_CACHE_TABLE_COUNTERS];
};

/*
 * READ_CHANGES: gat, and mg with flags that touch, create or win: rules take them for reads. FLUSH:
 * rules take it for a command that administers, but it changes items.
 */
enum fw_command_class {
    FW_COMMAND_READ,
    FW_COMMAND_READ_CHANGES,
    FW_COMMAND_WRITE,
    FW_COMMAND_FLUSH,
    FW_COMMAND_ADMIN
};
enum { FW_GATE_REFUSAL_MAX = 200 };
enum fw_gate { FW_GATE_PASS, FW_GATE_HOLD, FW_GATE_REFUSE };

/* Who is asked before each command is executed; gate.h says what comes of the answers. */
struct fw_cache_gate {
    const char *refusal; /* Why, of at most FW_GATE_REFUSAL_MAX bytes; NULL: out of capacity. */
    enum fw_gate (*ask)(struct fw_cache_gate *gate, enum fw_command_class class, const char *key,
                        size_t length);
};

struct fw_cache_local {
    struct fw_cache *cache;
    struct fw_cache_gate *gate; /* NULL: every command passes. The server's; between two runs. */
    struct fw_table_local *table;
    struct fw_metrics_cache *metrics;
    uint32_t now; /* The cache's clock, as of the begin of this tick. */
    /* The tenant whose session runs, for what it makes us hold. The server's; NULL: 0. */
    uint32_t (*whose)(struct fw_cache_local *local);
    struct fw_notice notice;
    struct fw_reply reply;
};

/* May clients change items? */
static inline bool fw_cache_takes_writes(const struct fw_cache *cache)
{
    return !atomic_load_explicit(&cache->is_read_only, memory_order_relaxed) &&
           !atomic_load_explicit(&cache->is_used_up, memory_order_relaxed);
}

/* May a client flush it? */
static inline bool fw_cache_can_flush(const struct fw_cache *cache)
{
    return cache->settings.has_flush &&
           !atomic_load_explicit(&cache->is_read_only, memory_order_relaxed);
}

/* The memory is the caller's, zero but for `settings`, `host` and `registry`, which it has set. */
FW_MUST_CHECK int fw_cache_init(struct fw_cache *cache, const struct fw_table_config *config,
                                struct fw_reason *reason);
void fw_cache_fini(struct fw_cache *cache);

/* What unix time it is by the cache's clock, which does not jump. Any thread. */
int64_t fw_cache_date_ns(const struct fw_cache *cache);

FW_MUST_CHECK int fw_cache_local_init(struct fw_cache_local *local, struct fw_cache *cache);
void fw_cache_local_fini(struct fw_cache_local *local);

/* The cache's clock at that time. Any thread. */
uint32_t fw_cache_clock(const struct fw_cache *cache, int64_t now_ns);

/* At the begin of a turn, with the time of the tick. Does a delayed flush that has become due. */
void fw_cache_local_set_time(struct fw_cache_local *local, int64_t now_ns);

/*
 * What a client's expiry time means, as memcached reads it: 0 is never, negative is at once, up to
 * 30 days are from now, more is a date. In seconds of the cache's clock.
 */
uint32_t fw_cache_expiry(const struct fw_cache_local *local, int64_t given);

/* `debugtime`: shifts the clock for all, and shows it to this local at once. */
void fw_cache_shift(struct fw_cache_local *local, int64_t seconds);
/* Stops the clock where it is, or lets it go, to where it would be if it never had stopped. */
void fw_cache_pause(struct fw_cache *cache, bool is_paused);
