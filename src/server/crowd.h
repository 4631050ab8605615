/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All connections of a server, for threads that look at them from outside: `stats conns`, an
 * administrator, a drain, a change of rules.
 *
 * Connections need the lock to come and to go, so nobody may keep it while walking over all of
 * them: 8,000 took 34 ms. Each connection has a numbered place, the cursor of a walk is the number
 * of the next place, and a step looks at a bounded number of them. Between two steps connections
 * come and go. One that stays where it is during the whole walk is seen exactly once. One that
 * moves to another core meanwhile leaves its place and gets another, so it may be seen twice or not
 * at all. A list would need a cursor that survives the removal of the connection it points at; with
 * a thousand walks that nobody finishes, each removal would have to look at all of them.
 *
 * Ownership: the crowd owns nothing but its places. There are as many as connections are allowed,
 * so adding one cannot fail. Threads: any; a connection that was found is lent until the visitor
 * returns, or longer to its own core, on whose turn alone it ends.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "base/mutex.h"

struct fw_connection;

/* In one step: connections that are visited, and places that are looked at. */
enum { FW_CROWD_STEP = 16, FW_CROWD_STEP_PLACES = 512 };

struct fw_crowd {
    struct fw_mutex lock; /* FW_RANK_CROWD; guards the rest. */
    struct fw_connection **places;
    uint32_t *free; /* Numbers of places that were given back. */
    uint32_t free_count;
    uint32_t used_count; /* Places that were ever taken; those behind are untouched. */
    uint32_t limit;
};

FW_MUST_CHECK int fw_crowd_init(struct fw_crowd *crowd, uint32_t limit);
/* It is empty. */
void fw_crowd_fini(struct fw_crowd *crowd);

void fw_crowd_add(struct fw_crowd *crowd, struct fw_connection *connection);
void fw_crowd_remove(struct fw_crowd *crowd, struct fw_connection *connection);

/*
 * Visits the next FW_CROWD_STEP connections at most, under the lock. *cursor is 0 at first. True:
 * more may follow.
 */
bool fw_crowd_step(struct fw_crowd *crowd, uint64_t *cursor,
                   void (*visit)(struct fw_connection *connection, void *context), void *context);

/* Step after step. */
void fw_crowd_visit(struct fw_crowd *crowd,
                    void (*visit)(struct fw_connection *connection, void *context), void *context);
