/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group: totally ordered multicast, and views. All that the cluster's epochs know of a network.
 *
 * Members send messages to all, themselves included. Between two views every member that is in both
 * gets the same messages in the same order, and the changes of the view stand in that order too. So
 * members that start from the same state and compute the same from what they get stay the same,
 * with no leader, no vote and no acknowledgement: that is the whole trick of cluster.c.
 *
 * Two kinds of group exist: Corosync's (corosync.h), for real clusters, and one inside a process
 * (bus.h), for tests, the simulator and who wants to try.
 *
 * A view names who is there, and whether they are a quorum: at most one of several views at a time
 * is. Its id is the same for all who get it, and other than that of any view these members had
 * before. What delivery does not promise is uniformity: a member that is about to be cut off may
 * have got a message that nobody else will. It learns that it is cut off by a view without quorum.
 *
 * Sending never waits. -EAGAIN says that nothing was sent, and `writable` follows when it makes
 * sense to try again; -EMSGSIZE and others, that this message will never go.
 *
 * Threads: a group's calls and call-backs belong to one thread at a time. A call-back may send. A
 * group never calls back from inside send().
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

enum {
    FW_GROUP_MEMBERS_MAX = 64,
    FW_GROUP_MESSAGE_MAX = 8192, /* Bytes that every kind of group takes. */
};

struct fw_group;

/* Numbers of members never come back: a process that starts again is another member. */
struct fw_group_view {
    uint64_t id;
    uint64_t members[FW_GROUP_MEMBERS_MAX]; /* Rising; the own one among them. */
    uint32_t count;
    bool has_joined; /* Somebody is new, perhaps the own one. Who is absent has left. */
    bool is_quorate;
};

struct fw_group_events {
    void (*delivered)(struct fw_group *group, uint64_t sender, const void *bytes, size_t length);
    void (*viewed)(struct fw_group *group, const struct fw_group_view *view);
    void (*writable)(struct fw_group *group);
};

/* What a kind of group begins with. */
struct fw_group {
    int (*send)(struct fw_group *group, const void *bytes, size_t length);
    const struct fw_group_events *events; /* Of who uses it; set before anything happens. */
    void *user;
    uint64_t self; /* The own number; known with the first view, perhaps not before. */
};

FW_MUST_CHECK static inline int fw_group_send(struct fw_group *group, const void *bytes,
                                              size_t length)
{
    return group->send(group, bytes, length);
}
