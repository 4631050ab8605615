/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients by turns: of the requests that wait, one of each client, then the next of each.
 *
 *     turns:   a1 ──── b1 ──── c1        each client's first, in the order of their turns
 *              │       │
 *              a2      b2                its others hang on the first
 *              │
 *              a3
 *
 * The first of a client is found by the client's number, in a table whose chains go through the
 * requests themselves. So it needs no memory per client, takes any number of clients, and handing
 * in a request cannot fail. A record per client would have to be allocated, or run out.
 *
 * Who is alone in its list has nobody to take turns with and is not in the table; it goes there
 * when another comes. With ten thousand tenants of one request each, what is not looked up in the
 * table is a tenth of the time of a request.
 *
 * There is one table per head, and as many lists of turns as the policy has: one (`crr`), or one
 * per tenant (`wfq`). Concurrency: its head's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fairway/sched.h>

#include "base/base.h"

enum { FW_TURNS_BUCKETS = 8192 }; /* A power of two. */

struct fw_turns {
    struct fw_sched_request **buckets; /* The first of each client that has one. */
    bool by_tenant;                    /* One number with two tenants is two clients. */
};

/* Returns 0 or -ENOMEM. */
FW_MUST_CHECK int fw_turns_init(struct fw_turns *turns, bool by_tenant);
void fw_turns_fini(struct fw_turns *turns);

/* Behind its client's others; if there are none, its client's turn comes after those in `list`. */
void fw_turns_push(struct fw_turns *turns, struct fw_list *list, struct fw_sched_request *request);

/* Whose turn it is; its client's next one goes to the end. NULL: nobody waits. */
struct fw_sched_request *fw_turns_pop(struct fw_turns *turns, struct fw_list *list);

/* One that waits leaves; its client keeps its turn. */
void fw_turns_remove(struct fw_turns *turns, struct fw_sched_request *request);
