/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group inside one process: what a cluster's network does, done by hand and by the seed.
 *
 * Members sit on the bus in *components*, parts that do not hear each other. Everything that
 * happens is a call of the owner's, so a test can bring about any order that a network could:
 *
 *     fw_bus_order(bus, member)    the oldest message it has sent gets its place in the order
 *     fw_bus_step(bus, member)     the next message or view in that order reaches it
 *     fw_bus_arrange(bus, ...)     the components are others from now on
 *
 * A member is slow if it is seldom stepped, and frozen if it never is. A component is quorate if it
 * has more than half of the places on the bus, taken or not.
 *
 * What is lost when components change: what a member has sent and nobody ordered yet is kept, and
 * ordered in its new component. What was ordered reaches all who stay with its sender; those who
 * are cut off from the sender may miss it, but all of them alike, and only if none of them has got
 * it already. That is what groups promise, and no more.
 *
 * Concurrency: none.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "base/list.h"
#include "epoch/group.h"

enum { FW_BUS_PLACES_MAX = 16, FW_BUS_OUTGOING_MAX = 4 };

struct fw_bus;

struct fw_bus_member {
    struct fw_group group;
    struct fw_bus *bus;
    bool is_taken;
    uint32_t component;
    struct fw_list outgoing; /* Sent, not ordered yet. */
    uint32_t outgoing_count;
    bool is_blocked;                      /* Was told -EAGAIN, and not yet that it may try again. */
    struct fw_list incoming;              /* Ordered, and views: not delivered yet. */
    uint64_t heard[FW_GROUP_MEMBERS_MAX]; /* The members of the view that it got last. */
    uint32_t heard_count;
};

struct fw_bus {
    struct fw_bus_member places[FW_BUS_PLACES_MAX];
    uint32_t place_count;
    uint64_t next_member;
    uint64_t next_view;
    uint64_t next_order;
};

void fw_bus_init(struct fw_bus *bus, uint32_t places);
void fw_bus_fini(struct fw_bus *bus);

/* A new member at a free place, in that component; its group is ready to be used. */
struct fw_group *fw_bus_join(struct fw_bus *bus, uint32_t place, uint32_t component);
/* The member dies. Its group must not be used any more. */
void fw_bus_leave(struct fw_bus *bus, uint32_t place);

/* False: there was nothing to do. */
bool fw_bus_order(struct fw_bus *bus, uint32_t place);
bool fw_bus_step(struct fw_bus *bus, uint32_t place);

/*
 * Member by member, which component it is in from now on. `loses` says whether those who are cut
 * off from a sender miss what none of them has got of it.
 */
void fw_bus_arrange(struct fw_bus *bus, const uint32_t *components, bool loses);
