/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An epoch handler whose scheduler goes in step with those of the other members of a group.
 *
 * Here is the *participant*: one scheduler's place in what the coordinator (coordinator.h) decides.
 *
 *     OUT ──next(FIRST)──► READY ──started──► IN ──next(number)──► READY
 *      ▲                     │                │
 *      └── last, evicted, cut off, too late ──┴── (each of them ends a pending next())
 *
 * A next() is answered exactly once, unless last() takes it back:
 *
 *     the epoch's number   it has started; the data is what all gave, combined
 *     -ESTALE              the others have gone on: it was evicted, or speaks of an epoch that is
 *                          past. It may come back with FW_EPOCH_FIRST
 *     -ENOTCONN            its group has no quorum: it is cut off
 *     -ETIMEDOUT           nothing came for `bound_ns`, not even that it is cut off: the network
 *                          may be taking its time to find out. It has left; FW_EPOCH_FIRST again
 *
 * Who got an error goes on by itself and asks again after a while, not from inside the call-back:
 * the answer might be the same at once.
 *
 * Each NEXT has a ticket, so that a start is matched with the very next() it belongs to, also if
 * the scheduler has given up and asked anew meanwhile.
 *
 * Messages wait here while the group takes none, and never queue up: at most one STATE, one word on
 * whether the scheduler takes part, and one TIMEOUT, each as of when it is sent.
 *
 * Threads: as its group's. Time comes from the owner, who is asked to call poll() at a certain
 * time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fairway/epoch.h>

#include "base/base.h"
#include "epoch/coordinator.h"
#include "epoch/group.h"

struct fw_epoch_cluster;

struct fw_epoch_cluster_config {
    struct fw_epoch_config epoch;
    int64_t bound_ns; /* Longest wait of a next(); 0: three times the time-out. */
    int64_t (*now)(struct fw_epoch_cluster *cluster);
    /* Call poll() then; INT64_MAX: not needed. Replaces what was asked before. */
    void (*arm)(struct fw_epoch_cluster *cluster, int64_t when_ns);
};

/* For who looks. */
struct fw_epoch_figures {
    uint64_t started; /* Epochs in which it took part. */
    uint64_t missed;  /* Epochs in which it did not, though it saw them. */
    uint64_t evicted; /* Others, as it saw. */
    uint64_t stale;   /* Times that it was told -ESTALE, and so on. */
    uint64_t cut_off;
    uint64_t timed_out;
    uint64_t refused;  /* Messages that made no sense. */
    int64_t ragged_ns; /* From the first who was ready to the start; the last epoch's. */
    int64_t ragged_max_ns;
    int last_error; /* A negative errno; 0: none yet. */
};

struct fw_epoch_cluster {
    struct fw_epoch epoch; /* What schedulers see. */
    struct fw_epoch_coordinator coordinator;
    struct fw_epoch_cluster_config config;
    struct fw_group *group;
    /* The next() that is not answered. */
    bool is_pending;
    int64_t number;
    char *data;
    size_t length;
    fw_epoch_started started;
    void *argument;
    uint64_t ticket;
    int64_t pending_until_ns; /* INT64_MAX: nothing is. */
    /* It takes part in this epoch. */
    bool is_in;
    uint64_t in_incarnation;
    int64_t in_number;
    /* To be sent: bits of enum outbox, in cluster.c. */
    uint32_t outbox;
    int64_t clock_until_ns; /* When to complain; INT64_MAX: not. */
    int64_t closing_ns;     /* Since when somebody is ready. */
    struct fw_epoch_figures figures;
};

/*
 * Takes the group, in which nothing has happened yet. Returns 0 or -ENOMEM. `cluster` stays where
 * it is.
 */
FW_MUST_CHECK int fw_epoch_cluster_init(struct fw_epoch_cluster *cluster, struct fw_group *group,
                                        const struct fw_epoch_cluster_config *config);
/* Nothing is pending, and the group calls no more. */
void fw_epoch_cluster_fini(struct fw_epoch_cluster *cluster);

/* The time that was asked for has come. */
void fw_epoch_cluster_poll(struct fw_epoch_cluster *cluster);
