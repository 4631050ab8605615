/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group (group.h) over Corosync: the members are processes on the nodes of a cluster.
 *
 * Corosync's closed process groups give ordered multicast and membership; what is added here is
 * what a `struct fw_group` promises beyond them:
 *
 *   - a member's number is its node's and its process's: `nodeid << 32 | pid`. It is known with the
 *     first view;
 *   - a view's id is computed from the ring's and from who is in it, so that it is the same for
 *     all;
 *   - a view is quorate if more than half of the cluster's nodes are in the ring. The ring comes by
 *     the totem call-back, which is ordered with messages and members; votequorum's word is not,
 *     and would come before some of what was said earlier. It is called *behind* the changes of
 *     members that it causes, so these wait for it: told at once they would belong to the old ring,
 *     and each member would begin a life of its own. A node that was away, and finds all others
 *     back when it returns, is told by Corosync that they left and joined at once: it gets a view
 *     without quorum in between, since they have gone on without it.
 *
 * Nothing here waits. Connecting to Corosync does, if that is stopped or slow, so it is done by a
 * thread of its own, one per attempt, that ends with the attempt. Nobody ever waits for that
 * thread: its answer comes by a socket, and if nobody is there to take it, it cleans up itself.
 *
 *                 joined                     connection lost
 *     CONNECTING ────────► JOINED ──────────────────────────────► RESTING ──► CONNECTING
 *         └──────────────────────── failed ─────────────────────────▲    after a while
 *
 * While it is not JOINED the group consists of its member alone, without a quorum: schedulers are
 * told -ENOTCONN and go on by themselves, and send() answers -ENOTCONN. Corosync may end, or be
 * started again, or not be there yet when the server starts: the log says so once each time, with
 * what to do, and the group comes back by itself.
 *
 * When Corosync takes no message just now (it says TRY_AGAIN for as long as a ring is formed),
 * send() answers -EAGAIN and a timer sees to `writable`. There is no queue here: its user keeps
 * what is to be said, a bounded number of messages, each made when it goes (cluster.h).
 *
 * What Corosync does not promise is uniformity, as group.h says. And one thing is left to numbers:
 * a process that dies and comes back with the very same number, as the first process of a container
 * does, is taken for the same member, but all get a view without it in between.
 *
 * Threads: as any group's; it is the reactor's thread, or turn, that calls back.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"
#include "epoch/group.h"
#include "io/reactor.h"

enum { FW_COROSYNC_NAME_MAX = 127 };

struct fw_corosync_options {
    const char *group_name; /* 1 to FW_COROSYNC_NAME_MAX bytes; all who share it are in step. */
    uint32_t node_count;    /* Of the cluster, for the quorum; 0: as Corosync's nodelist says. */
    int64_t timeout_ns; /* Of epochs: the log warns if the ring may take longer to form; 0: no. */
};

/* For who looks. Times are 0 while they are not known. */
struct fw_corosync_status {
    bool is_joined;
    uint32_t node_count; /* Of the cluster; 0: not known yet. */
    uint32_t ring_count; /* Nodes that this one hears, itself included. */
    int64_t token_ns;    /* Corosync's time-outs: a node is declared lost after both. */
    int64_t consensus_ns;
    uint64_t connected; /* Times that it joined. */
    uint64_t refused;   /* Times that Corosync said TRY_AGAIN. */
    const char *reason; /* Why it is not joined; valid until the next call. */
};

/* False: built without Corosync; open() then answers -EOPNOTSUPP. */
bool fw_corosync_is_built_in(void);

/*
 * Makes a group and begins to connect; whether Corosync is there is seen later. It is ready for
 * fw_epoch_cluster_init(), which must be called before the reactor is polled again. Returns 0, or a
 * negative errno with the reason: -EINVAL (the name), -EOPNOTSUPP, -ENOMEM, -EMFILE.
 */
FW_MUST_CHECK int fw_corosync_open(struct fw_group **group, struct fw_reactor *reactor,
                                   const struct fw_corosync_options *options,
                                   struct fw_reason *reason);

/*
 * Leaves; nothing is called any more but `closed`, from the reactor's poll(), when the memory of
 * the group is gone. Not from inside one of the group's own call-backs.
 */
void fw_corosync_close(struct fw_group *group, void (*closed)(void *argument), void *argument);

void fw_corosync_status(struct fw_group *group, struct fw_corosync_status *status);
