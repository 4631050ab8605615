/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request scheduler: says which request is served next.
 *
 * Requests arrive when their senders like; those who serve take one when they are ready for it. In
 * between stands a *head*, one per core, and what waits there is ordered by a *policy*:
 *
 *     arrival --fw_sched_incoming()--> [ policy ] --fw_sched_get_next()--> call-back: serve it
 *
 *     static int serve(struct fw_sched_getter *getter, struct fw_sched_request *request) { ... }
 *
 *     struct fw_sched_getter getter = {.ready = serve};
 *     fw_sched_get_next(&sched, &getter);          whoever comes next, now or later
 *     fw_sched_incoming(&sched, &connection->request);
 *
 * It follows a public document, "Network Request Scheduler", section 4, in which a request is an
 * RPC. Here it may be whatever has a sender: a message, or the news that a connection can be read,
 * so that a flood is held back before its bytes are even looked at. What the document calls by
 * another name:
 *
 *     document                                 here
 *     --------                                 ----
 *     struct local_request_scheduler           struct fw_sched
 *     lrs_init                                 fw_sched_init()
 *     lrs_shutdown, lrs_fini                   fw_sched_shutdown(), fw_sched_fini()
 *     lrs_incoming_request                     fw_sched_incoming()
 *     lrs_get_next_request, callback, arg      fw_sched_get_next(), struct fw_sched_getter
 *     rq_peer, rq_list                         request->class, request->link
 *
 * Incoming. A request is a struct of its owner's, with its class filled in. Handing it in cannot
 * fail, allocates nothing and waits for nothing, and looks at the class and at the link only. From
 * then on it is the head's, until a getter's call-back gets it or fw_sched_cancel() takes it out.
 *
 * Getting. A getter has its call-back exactly once for each get_next(), from inside that call or
 * from a later incoming(), never from inside another call-back of the same head: a call-back that
 * asks for the next one is called again when it has returned, so nothing nests however much waits.
 * A call-back that cannot serve after all returns non-zero, and the request goes back to where it
 * was: it is the next to go. How many getters there are says how many requests are admitted and
 * not yet served; with one, the policy decides every time.
 *
 * Straight through. When nothing waits and a getter does, a request passes without the policy
 * having to look, if the policy says that it need not; that is the common case of a server that
 * keeps up, and costs a few nanoseconds.
 *
 * Charging. What a request costs is often known only when it was served. When it is given out it is
 * charged what its class says; fw_sched_charge() tells what it has really taken, and the difference
 * is its tenant's, for better or worse, before its next one goes.
 *
 * Two heads in one. What administers, replicates or checks health is marked urgent and has a queue
 * of its own before the policy; after `urgent_ratio` of these in a row one that is not urgent goes
 * in between, so that neither side starves.
 *
 * Tenants. The heads of a process share a `struct fw_tenants`: who there is, and what each is due,
 * so that a weight or a rate holds for the process whatever the number of cores. A tenant is a
 * number; 0 is the default, whom all belong to that nobody has given to another.
 *
 *   - Virtual time: what a tenant has had, divided by its weight. Each head lets that of its
 *     waiting tenants go which is furthest behind, counting what the other heads gave it since. Who
 *     was idle starts from the others' present, not from its own past: nothing is saved up. And
 *     what other heads gave is held against a tenant only up to FW_SCHED_ELSEWHERE_MAX units, so
 *     that one that has a whole core elsewhere still gets a little here.
 *   - Tokens: a tenant with a rate has one bucket in the process, filled by the clock and by
 *     nothing else. It is one word that all heads take from, so the rate and the burst are exact
 *     whatever their number. A head with requests but no tokens asks its owner to come back when
 *     there will be some (`arm`). Rates hold under `wfq` and `tbf` alike. A request may take more
 *     tokens than there are, once there is one; its tenant then waits until the debt is paid.
 *   - Shedding: what has waited longer than the tenant's `delay_max_ns` when its turn comes, or
 *     while its tenant waits for tokens, is given to the getter with `is_shed` set: it is to be
 *     refused, not served, and costs nothing.
 *
 * Policies. `fifo`: as they came. `crr`: clients by turns, one request each. `wfq`: tenants by
 * weight, in cost, and clients by turns within a tenant. `tbf`: tenants by their rates, as they
 * came among those who may go. `share`: as `wfq`, with rates that hold for a cluster. `gang`: the
 * tenant that a cluster's nodes have chosen, else as `wfq`. fw_sched_switch() changes the policy
 * while requests wait. Whoever wants another writes it: fairway/sched_policy.h.
 *
 * Epochs. A head goes in step with others through an epoch handler (fairway/epoch.h): it asks for
 * its first epoch when it is made and serves from then on, also if the answer is that there are no
 * peers to be reached. With none configured it makes a local one, which starts every epoch at once.
 * When all that waited after a shutdown is given out, it leaves.
 *
 * Threads: a head belongs to its core's turn; nothing a request meets takes a lock. Call-backs run
 * there too. The tenants are shared by atomics; any thread may configure and read them while heads
 * work. What it changes holds at the next request, or within a tenth of a second where all wait.
 *
 * Why not one head for all cores: every request would take its lock and move between caches. Why
 * not leave it to the kernel's queues: they know sockets, not whose they are.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fairway/api.h>
#include <fairway/epoch.h>
#include <fairway/types.h>

struct fw_flows;
struct fw_sched;
struct fw_sched_policy;
struct fw_tenants;

enum {
    FW_SCHED_TENANTS_MAX = 16384,
    FW_SCHED_NAME_MAX = 63,
    FW_SCHED_WEIGHT_MAX = 10000,
    FW_SCHED_RATE_MAX = 1000000000,
    FW_SCHED_COST_MAX = 1 << 27,   /* What is said to cost more counts as this. */
    FW_SCHED_ELSEWHERE_MAX = 1024, /* Units of cost at weight 1. */
    FW_SCHED_URGENT_RATIO = 8,     /* If none is configured. */
};

/* Who sent it and what it will take; made before it is handed in, and kept until it is charged. */
struct fw_sched_class {
    uint32_t tenant; /* 0: nobody in particular; so is a number that there is not. */
    uint32_t client; /* A number that no other sender of this process has. */
    uint32_t cost;   /* As far as it is known before; at least 1. */
    bool is_urgent;  /* Before all others; the policy does not see it. */
};

/* Inside its owner's struct: its link zeroed at first, its class made; the rest is the head's. */
struct fw_sched_request {
    struct fw_list_link link; /* The head's while it waits. */
    struct fw_sched_class class;
    uint16_t tenant;     /* Of its class, if there is such a one; else the default. */
    unsigned char place; /* Where it waits. */
    bool is_first;       /* Of its client. */
    bool is_tabled;      /* In a table of clients: it is first, and not alone in its list. */
    bool has_others;     /* In `behind`. */
    bool is_shed;        /* For the getter: it has waited too long, refuse it. */
    bool is_delayed;     /* For the getter: it had to wait for others, or for tokens. */
    uint64_t number;     /* In order of arrival at this head. */
    int64_t since_ns;    /* Waits since then; 0: that was not of interest. */
    struct fw_sched_request *next_client; /* In a table of clients. */
    struct fw_list behind;                /* If it is its client's first: the others. */
};

struct fw_sched_getter {
    struct fw_list_link link; /* The head's while it waits. */
    /*
     * The next request, or NULL: none will ever come, the head was shut down. Non-zero gives it
     * back. The getter is its owner's again before it is called.
     */
    int (*ready)(struct fw_sched_getter *getter, struct fw_sched_request *request);
};

/* In the order of the option's names. */
enum fw_sched_policy_number {
    FW_SCHED_FIFO,
    FW_SCHED_CRR,
    FW_SCHED_WFQ,
    FW_SCHED_TBF,
    FW_SCHED_SHARE,
    FW_SCHED_GANG,
    FW_SCHED_POLICIES
};

/* What one tenant is due. */
struct fw_tenant_config {
    const char *name;      /* 1 to FW_SCHED_NAME_MAX characters; copied. */
    uint64_t weight;       /* 1 to FW_SCHED_WEIGHT_MAX. */
    uint64_t rate;         /* Units of cost per second in this process; 0: no limit. */
    uint64_t burst;        /* Units that may be had at once; 0: a tenth of the rate. */
    uint64_t cluster_rate; /* The same for all nodes together, so for this one; 0: no limit. */
    int64_t delay_max_ns;  /* What waits longer is shed; 0: nothing is. */
};

enum { FW_SCHED_DELAYS = 40 };

/* What was done to a tenant since the process began: the sum over the heads. */
struct fw_tenant_figures {
    uint64_t served;          /* Requests given out to be served. */
    uint64_t cost;            /* What they were charged. */
    uint64_t delayed;         /* Of those: had to wait. */
    uint64_t throttled;       /* Of those: had to wait for tokens. */
    uint64_t shed;            /* Given out to be refused. */
    uint64_t waiting;         /* Now. */
    int64_t throttled_for_ns; /* Waits for tokens so long now; 0: does not. */
    /* Delays of those served, in [2^i, 2^(i+1)) ns; none at all and 1 are in the first. */
    uint64_t delay_count[FW_SCHED_DELAYS];
};

/* Makes a set with the default tenant only: weight 1, no rate. Returns 0 or -ENOMEM. */
FW_PUBLIC FW_API_MUST_CHECK int fw_tenants_create(struct fw_tenants **tenants);
/* No head uses it any more. */
FW_PUBLIC void fw_tenants_destroy(struct fw_tenants *tenants);

/*
 * Sets what tenants are due, by name; names that are new get the next number, and those that are
 * not among them fall back to the default's dues. "default" names tenant 0. The words may be read
 * by heads meanwhile; what waits is looked at by the new ones. A bucket whose rate or burst changes
 * is full again. Returns 0, -EINVAL (something out of range, a name twice) or -ENOSPC (too many
 * names since the set was made), and then nothing has changed.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_tenants_configure(struct fw_tenants *tenants,
                                                     const struct fw_tenant_config *configs,
                                                     size_t count);

/* How many numbers there are, the default's included; only rises. Any thread, as the rest. */
FW_PUBLIC uint32_t fw_tenants_count(const struct fw_tenants *tenants);
/* Its number, or -ENOENT. */
FW_PUBLIC int fw_tenants_find(const struct fw_tenants *tenants, const char *name);
FW_PUBLIC const char *fw_tenants_name(const struct fw_tenants *tenants, uint32_t tenant);
/* What it is due and what was done to it; either may be NULL. */
FW_PUBLIC void fw_tenants_read(const struct fw_tenants *tenants, uint32_t tenant,
                               struct fw_tenant_config *config, struct fw_tenant_figures *figures);

struct fw_sched_config {
    enum fw_sched_policy_number policy;
    const struct fw_sched_policy *custom; /* The user's own, in place of `policy`; or NULL. */
    struct fw_tenants *tenants;           /* Shared by heads; NULL: all are the default tenant. */
    uint32_t urgent_ratio;                /* 0: FW_SCHED_URGENT_RATIO. */
    struct fw_epoch *epoch;               /* NULL: a local one. */
    /*
     * Asks the owner to call fw_sched_poll() at that time of `now`, or soon after; a later call
     * replaces an earlier one, INT64_MAX takes it back. NULL: rates are not held.
     */
    void (*arm)(struct fw_sched *sched, int64_t when_ns);
    /* The time, in ns; NULL: the system's monotonic clock. */
    int64_t (*now)(struct fw_sched *sched);
};

/* A head. All members are the scheduler's; a policy reads some, see fairway/sched_policy.h. */
struct fw_sched {
    const struct fw_sched_policy *policy;
    struct fw_sched_getter *getter; /* The longest waiting, or NULL. */
    uint64_t waiting_count;         /* Requests inside. */
    uint32_t busy;                  /* Why nothing may be given out just now; 0: it may. */
    uint32_t in_a_row;              /* Urgent ones that went before others. */
    struct fw_flows *flows;         /* What this head knows of each tenant, or NULL. */
    uint64_t admitted_count;        /* Handed to getters and not given back. */
    uint64_t passed_count;          /* Of these: straight through. */
    uint64_t charged;               /* What they cost, in sum. */
    void *state;                    /* The policy's. */
    struct fw_tenants *tenants;     /* Whom `flows` are of. */
    struct fw_list getters;         /* Those behind `getter`, in their order. */
    struct fw_list returned;        /* Given back: these are next, before all others. */
    struct fw_list urgent;          /* In order of arrival, as the one below. */
    struct fw_list queue;           /* What no policy has placed elsewhere. */
    uint64_t number;                /* Of the last that had to wait. */
    uint64_t turn;                  /* Counts what the policy gave while the queue waited. */
    int64_t now_ns;                 /* As last looked up. */
    int64_t armed_ns;               /* Poll was asked for; INT64_MAX: it was not. */
    int64_t epoch_number;
    struct fw_epoch *epoch;
    struct fw_epoch local_epoch; /* If it has no other. */
    bool is_shut_down;
    bool has_left;         /* The epoch. */
    bool has_own_tenants;  /* For want of others. */
    uint32_t urgent_ratio; /* The rest as configured. */
    void (*arm)(struct fw_sched *sched, int64_t when_ns);
    int64_t (*now)(struct fw_sched *sched);
};

/* Makes a head in the caller's memory. Returns 0, -ENOMEM or a negative errno of the policy. */
FW_PUBLIC FW_API_MUST_CHECK int fw_sched_init(struct fw_sched *sched,
                                              const struct fw_sched_config *config);

/*
 * No more requests will come. Those that wait are still given out, without regard to rates; after
 * the last every getter is called with NULL, those that wait and those that come later.
 */
FW_PUBLIC void fw_sched_shutdown(struct fw_sched *sched);

/* Nobody waits in it, neither requests nor getters. No call-back comes after it. */
FW_PUBLIC void fw_sched_fini(struct fw_sched *sched);

FW_PUBLIC void fw_sched_incoming(struct fw_sched *sched, struct fw_sched_request *request);
FW_PUBLIC void fw_sched_get_next(struct fw_sched *sched, struct fw_sched_getter *getter);

/* The time that was asked for has come: what may go now goes. Harmless at any other time. */
FW_PUBLIC void fw_sched_poll(struct fw_sched *sched);

/*
 * Changes the policy. What waits is ordered anew, each once; who waits longest is handed to the new
 * policy first. Not from inside a call-back. Returns 0, or a negative errno and the old policy
 * stays.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_sched_switch(struct fw_sched *sched,
                                                enum fw_sched_policy_number policy);
FW_PUBLIC FW_API_MUST_CHECK int fw_sched_switch_custom(struct fw_sched *sched,
                                                       const struct fw_sched_policy *policy);

/* Takes a request that waits back, as if it had never come. */
FW_PUBLIC void fw_sched_cancel(struct fw_sched *sched, struct fw_sched_request *request);

/*
 * What a request that was given out to be served has taken, in the units of class.cost and in place
 * of it. At most once for each; it need not be the head's last, but has its class still.
 */
FW_PUBLIC void fw_sched_charge(struct fw_sched *sched, const struct fw_sched_request *request,
                               uint32_t cost);

/* It was handed in, and no getter has it yet. */
static inline bool fw_sched_is_waiting(const struct fw_sched_request *request)
{
    return request->link.next != NULL;
}
