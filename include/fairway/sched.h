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
 *     lrs_init, lrs_shutdown, lrs_fini         fw_sched_init(), fw_sched_shutdown(),
 * fw_sched_fini() lrs_incoming_request                     fw_sched_incoming()
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
 * Charging. What a request costs is often known only when it was served. fw_sched_charge() tells,
 * and a policy that shares by cost remembers it for its sender's next one.
 *
 * Threads: a head belongs to its core's turn; nothing here takes a lock. Call-backs run there too.
 * What heads share for the sake of one policy (a tenant's weight, the tokens of a node) is the
 * policy's business.
 *
 * Why not one head for all cores: every request would take its lock and move between caches. Why
 * not leave it to the kernel's queues: they know sockets, not whose they are.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fairway/api.h>
#include <fairway/types.h>

struct fw_sched;
struct fw_sched_policy;

/* Who sent it and what it will take; made before it is handed in. */
struct fw_sched_class {
    uint32_t tenant; /* 0: nobody in particular. */
    uint32_t client; /* A number that no other sender of this process has. */
    uint32_t cost;   /* As far as it is known before; at least 1. */
};

/* Inside its owner's struct. Zeroed at first, but for its class. */
struct fw_sched_request {
    struct fw_list_link link; /* The head's while it waits. */
    struct fw_sched_class class;
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
enum fw_sched_policy_number { FW_SCHED_FIFO, FW_SCHED_POLICIES };

struct fw_sched_config {
    enum fw_sched_policy_number policy;
};

/* A head. All members are the scheduler's. */
struct fw_sched {
    const struct fw_sched_policy *policy;
    void *state;                    /* The policy's. */
    struct fw_list queue;           /* In order of arrival: what no policy has placed elsewhere. */
    struct fw_sched_getter *getter; /* The longest waiting, or NULL. */
    struct fw_list getters;         /* Those behind it, in their order. */
    uint64_t waiting_count;         /* Requests inside. */
    uint64_t admitted_count;        /* Handed to getters and not given back. */
    uint64_t passed_count;          /* Of these: straight through. */
    uint64_t charged;               /* What they cost, in sum. */
    bool is_matching;               /* Call-backs are being run further up the stack. */
    bool is_shut_down;
};

/* Makes a head in the caller's memory. Returns 0 or a negative errno of the policy. */
FW_PUBLIC FW_API_MUST_CHECK int fw_sched_init(struct fw_sched *sched,
                                              const struct fw_sched_config *config);

/*
 * No more requests will come. Those that wait are still given out, without regard to rates; after
 * the last every getter is called with NULL, those that wait and those that come later.
 */
FW_PUBLIC void fw_sched_shutdown(struct fw_sched *sched);

/* Nobody waits in it, neither requests nor getters. */
FW_PUBLIC void fw_sched_fini(struct fw_sched *sched);

FW_PUBLIC void fw_sched_incoming(struct fw_sched *sched, struct fw_sched_request *request);
FW_PUBLIC void fw_sched_get_next(struct fw_sched *sched, struct fw_sched_getter *getter);

/* Takes a request that waits back, as if it had never come. */
FW_PUBLIC void fw_sched_cancel(struct fw_sched *sched, struct fw_sched_request *request);

/* What a request that was given out has taken, in the units of class.cost. */
FW_PUBLIC void fw_sched_charge(struct fw_sched *sched, const struct fw_sched_request *request,
                               uint32_t cost);

/* It was handed in, and no getter has it yet. */
static inline bool fw_sched_is_waiting(const struct fw_sched_request *request)
{
    return request->link.next != NULL;
}
