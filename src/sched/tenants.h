/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the heads of a process share about tenants, and what each head keeps about them.
 *
 * struct fw_tenant is shared. Two of its words are written by every head that serves the tenant,
 * by one atomic operation each: what it has had (virtual time), and when its bucket was empty. The
 * others are its dues, written when it is configured. What a tenant has had is added up by the head
 * and shared every FW_TENANT_SHARED_AT units: a little late is all that can come of it.
 *
 * struct fw_flow is one tenant on one head: where its requests wait, what this head knows of its
 * virtual time, and counters. Its head alone writes it; who reads figures sums over the heads.
 *
 * A bucket is one word: the time at which it was empty, or will be when its debts are paid. Since
 * then it has been filling at its rate, up to its burst: so many tokens are in it. To take some is
 * to move that time on, by one compare-and-swap. Leases, by which heads would take many at once and
 * meet seldom, were rejected: tokens that a head has leased and not used are a burst that nobody
 * configured, once per head, and a tenant that is limited is not one that is served often enough
 * for its word to be fought for.
 *
 * Who divides a cluster's rates among its nodes (sched/share.h) grants this process its part of
 * them, for a time. Heads look at that time themselves: a process that was stopped and wakes up has
 * nothing left of a grant that ran out meanwhile, whichever of its threads runs first. A grant that
 * is changed moves tokens, not time: a bucket keeps what it had, as far as it fits, and a higher
 * rate fills it from then on. Else who is given a rate by turns would find a full bucket each time.
 *
 * Memory for all tenants there may ever be is reserved when a set or a head is made, zeroed and
 * untouched: the system gives it when a tenant is first used. So configuring more of them while
 * heads work moves nothing, and handing in a request allocates nothing.
 *
 * With ten thousand tenants a request costs what memory costs. So what it needs is one line of each
 * of the two structs, the rest is kept apart, and the histograms of delay lie side by side, a row
 * of all tenants per power of two: delays are alike, so that few rows are in use.
 *
 * Atomics are relaxed throughout: each word is right by itself, a head that sees one of two dues
 * that were changed together late is a head that looked a moment earlier, and `count` only admits
 * numbers whose memory has been there since the beginning.
 */
#pragma once

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/sched.h>

#include "base/base.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/thread.h"

/* Virtual time per unit of cost at weight 1; at the largest weight it is off by 0.05 %. */
#define FW_TENANT_STEP (UINT64_C(1) << 24)

/* A head tells the others what it gave a tenant when it comes to so many units. */
enum { FW_TENANT_SHARED_AT = 16 };

/* Buckets count in sixteenths of ns: at 100 million per second a token is off by 0.3 %. */
#define FW_TENANT_TICKS        INT64_C(16)
#define FW_TENANT_TICKS_PER_S  (UINT64_C(1000000000) * 16)
#define FW_TENANT_BUCKET_FULL  (INT64_MIN / 2) /* Empty so long ago that it is full. */
#define FW_TENANT_EMPTY_AT_MAX (INT64_MAX / 2) /* A debt beyond that is forgiven. */
#define FW_TENANT_BURST_MAX    (INT64_MAX / 4)
#define FW_TENANT_COMEBACK_NS  INT64_C(1000000) /* How soon to ask for tokens again at most. */

struct fw_tenant {
    /* Every head's. */
    alignas(FW_CACHE_LINE) _Atomic uint64_t virtual_time;
    _Atomic int64_t empty_at; /* In ticks of the heads' clock. */
    /* Dues, made of `config`. */
    _Atomic uint64_t step; /* Virtual time per unit. */
    _Atomic uint64_t rate; /* Units per second; 0: no limit. */
    _Atomic int64_t burst; /* In ticks: how long an empty bucket takes to be full. */
    _Atomic int64_t delay_max_ns;
    _Atomic int64_t rate_until_ns; /* After that nothing goes until somebody grants more. */
};

/* The rest of it, under the set's lock. */
struct fw_tenant_about {
    struct fw_tenant_config config;
    uint64_t round;  /* The last that named it. */
    bool is_divided; /* Its rate is what was granted. */
    char name[FW_SCHED_NAME_MAX + 1];
};

struct fw_flow {
    /* For policies that look after tenants. */
    alignas(FW_CACHE_LINE) struct fw_list waiting_here; /* Zeroed: never used. */
    uint64_t tag;                                       /* Its virtual time on this head. */
    uint64_t seen; /* The shared one, as far as `tag` accounts for it. */
    int64_t held_until_ns;
    bool is_ready : 1;     /* In the heap of those who may go; */
    bool is_held : 1;      /* or of those who may not yet. */
    bool is_throttled : 1; /* It is or was just held, and none of its requests went since. */
    uint16_t elsewhere;    /* What of other heads is held against its next request, see dues.c. */
    int32_t unshared; /* Units that `tag` knows of, and the shared virtual time does not yet. */
    /* Figures, as in struct fw_tenant_figures. */
    struct fw_counter cost;
    struct fw_counter waiting;
};
static_assert(sizeof(struct fw_tenant) == FW_CACHE_LINE, "what a request needs is one line");
static_assert(sizeof(struct fw_flow) == FW_CACHE_LINE, "what a request needs is one line");

/* More of them, which fewer requests need. */
struct fw_flow_figures {
    struct fw_counter passed; /* Served without delay. */
    struct fw_counter throttled;
    struct fw_counter shed;
    struct fw_gauge throttled_since_ns;
};

/* All tenants on one head. */
struct fw_flows {
    struct fw_list_link link; /* In the set's list; under its lock. */
    struct fw_tenants *tenants;
    struct fw_flow *of;              /* By number. */
    struct fw_flow_figures *figures; /* By number. */
    struct fw_counter *delays;       /* By power, then number: see fw_flows_delays(). */
    void *memory;
};

struct fw_tenants {
    struct fw_tenant *of; /* By number. */
    struct fw_tenant_about *about;
    _Atomic uint32_t count;
    _Atomic uint32_t generation; /* Rises with each change of dues. */
    _Atomic uint32_t chosen;     /* The tenant to serve now (sched/gang.h), plus one; 0: none. */
    _Atomic int64_t chosen_until_ns;
    struct fw_mutex lock;  /* Guards the rest. */
    struct fw_list heads;  /* Of struct fw_flows. */
    struct fw_flows *past; /* Sums of the heads that are gone. */
    uint64_t round;        /* Of configuring. */
    bool is_divided;       /* Cluster rates hold by grants only. */
    uint16_t *names;       /* Numbers plus one, by hash. */
    void *memory;
};

/*
 * From now on a cluster's rates are granted to this process part by part; or no longer, and each is
 * this process's own.
 */
void fw_tenants_divide(struct fw_tenants *tenants, bool is_divided);

/*
 * The part of the cluster's rate that this process may have until then, in units per second; 0:
 * nothing. One that has no cluster rate is left alone.
 */
void fw_tenants_grant(struct fw_tenants *tenants, uint32_t number, uint64_t part, int64_t until_ns,
                      int64_t now_ns);
/* What it may have by its grant, or by its own rate; 0: nothing, or as much as it likes. */
uint64_t fw_tenants_part(const struct fw_tenants *tenants, uint32_t number, int64_t now_ns);
/* Another number whenever dues were configured. */
uint64_t fw_tenants_round(struct fw_tenants *tenants);
/* Some grants have changed: who waits for tokens looks again. */
void fw_tenants_granted(struct fw_tenants *tenants);

/* What who grants wants to know: sums over the heads. */
struct fw_tenant_use {
    uint64_t cost;      /* As in struct fw_tenant_figures, as the next two. */
    uint64_t throttled; /* Requests. */
    uint64_t waiting;   /* Requests. */
    bool is_held;       /* Waits for tokens now. */
};
void fw_tenants_use(struct fw_tenants *tenants, uint32_t number, struct fw_tenant_use *use);

/* Makes what a head knows of them, and lists it; NULL: no memory. */
struct fw_flows *fw_flows_create(struct fw_tenants *tenants);
void fw_flows_destroy(struct fw_flows *flows);

/* How many requests were served with a delay of that power of two. */
static inline struct fw_counter *fw_flows_delays(const struct fw_flows *flows, uint32_t power,
                                                 uint32_t number)
{
    return &flows->delays[power * FW_SCHED_TENANTS_MAX + number];
}

/* The tenant of a class: itself, or the default if there is no such number. */
static inline uint32_t fw_flows_number(const struct fw_flows *flows,
                                       const struct fw_sched_class *class)
{
    uint32_t count = atomic_load_explicit(&flows->tenants->count, memory_order_relaxed);
    return FW_LIKELY(class->tenant < count) ? class->tenant : 0;
}

/*
 * The default tenant was served, at that cost, by an owner of a head that had no need to ask it:
 * under a policy that gives requests out as they come, where nobody is due anything. All that the
 * scheduler costs such a server is here, where it can be measured.
 */
void fw_flows_count_open(struct fw_flows *flows, uint32_t cost);

static inline uint32_t fw_sched_cost(uint32_t cost)
{
    return cost < FW_SCHED_COST_MAX ? cost : FW_SCHED_COST_MAX;
}

/* How long a bucket of that rate takes to get so many tokens, in ticks. */
static inline int64_t fw_tenant_ticks(uint32_t cost, uint64_t rate)
{
    return (int64_t)(fw_sched_cost(cost) * FW_TENANT_TICKS_PER_S / rate);
}

/*
 * Takes tokens if there is at least one. If not, says when it makes sense to ask again: there is
 * one then, and where tokens come fast, some more.
 */
FW_MUST_CHECK bool fw_tenant_take(struct fw_tenant *tenant, uint64_t rate, uint32_t cost,
                                  int64_t now_ns, int64_t *again_ns);

/* Takes so many ticks' worth more; less than zero: gives them back. */
void fw_tenant_correct(struct fw_tenant *tenant, int64_t ticks);
