/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cluster-wide rates: which part of a tenant's cluster rate this node may serve.
 *
 * Each epoch (fairway/epoch.h) every node says, for each tenant that has a cluster rate, how much
 * of it it would like to have: its *claim*. The claims are summed, all nodes get the same sums, and
 * each takes
 *
 *     part = cluster rate * own claim / sum of the claims
 *
 * and grants it to its heads (sched/tenants.h). No node decides for another, none is asked while a
 * request waits, and what one node does not want the others have.
 *
 * Never too much. The parts of one epoch add up to the rate; but nodes do not begin an epoch at the
 * same time, and one that is cut off does not learn that the others go on without it. So
 *
 *   - a part is a *lease*: it ends `lease_ns` after the node said that it was ready for the epoch,
 *     unless another epoch has started by then. What heads do with it ends by their own clocks;
 *   - a part that is smaller than before counts at once. A larger one counts when all have said
 *     that they are ready for the epoch after it: then all have taken note of what it took from
 *     them. So each serves by the smaller of the last two;
 *   - who is not in an epoch any more has not said so, and may serve by the last one it was in.
 *     When the participants change, a larger part counts only when every epoch of the last
 *     `lease_ns` before that would have given as much. Before it took part a node had nothing, or
 *     its fair part.
 *
 * Then the sum of what all nodes may serve is never above the rate, whoever is late, frozen or cut
 * off: take the oldest epoch by which anybody still serves. If those who serve are the participants
 * of the last one, that is one of the last two for all of them, and nobody has more than what it
 * gave him. If it is one of another circle, all who were in it said so before anybody learnt that
 * it had started; so it started less than `lease_ns` ago for everybody, and again nobody has more
 * than that. What heads have saved up is no more than the burst of the parts they have now. So in
 * any second the cluster serves at most its rate and its burst, which is a fiftieth of the rate if
 * none is configured; and one request more per node, since the last one may cost more than there
 * is.
 *
 * Enough. A claim stays as it is while it is about right, so that parts do not flutter: each change
 * takes something away at once that it gives to another only later. A node whose tenant uses all it
 * is granted, or has more waiting, claims what it has, but at least its fair part; one that uses
 * less for a while claims what it uses and a little more. So each node gets its fair part if it
 * wants it, and all of it is used if anybody wants it.
 *
 * Cut off. A node whose lease has run out serves nothing of these tenants, for as long as others
 * may still count on it: a time-out and a lease. After that it serves its fallback: its fair part,
 * the rate divided by the number of the cluster's nodes, or nothing. The others know: of a node
 * that is missing they leave the fair part alone, for they cannot tell whether it is dead or
 * somewhere else. If the fallback is nothing they take all.
 *
 * Who is who. Tenants are named by a hash of their names, so nodes may have different ones, in any
 * order. A tenant that two nodes rate differently has the lower rate at both. An epoch's data has
 * room for FW_SHARE_RECORDS tenants, those whose hashes are lowest; which these are all agree on,
 * however data is combined. The others' rates are divided evenly. So is everything if nodes
 * disagree on their number or on the fallback.
 *
 * Threads: one, its handler's. `tenants` is shared with the heads. Its owner is asked by `arm` to
 * call poll() at a certain time.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fairway/epoch.h>
#include <fairway/sched.h>

#include "base/base.h"

enum {
    FW_SHARE_RECORDS = 255,
    FW_SHARE_HISTORY = 64, /* Epochs that are remembered: more than a lease takes. */
    FW_SHARE_WINDOW = 8,   /* Epochs over which use is measured. */
    FW_SHARE_NODES_MAX = 64,
};

struct fw_share;
struct fw_share_tenant;

struct fw_share_config {
    struct fw_tenants *tenants;
    int64_t epoch_ns;   /* How long an epoch lasts, at least. */
    int64_t timeout_ns; /* The handler's: who is silent so long is left behind. */
    uint32_t nodes;     /* Of the cluster; 0: not known, and then the fallback is nothing. */
    bool keeps_fair;    /* The fallback: its fair part; else nothing. */
    uint64_t member;    /* A random number: no other node's, nor that of an earlier life. */
    int64_t (*now)(struct fw_share *share);
    /* Call poll() then; INT64_MAX: not needed. Replaces what was asked before. */
    void (*arm)(struct fw_share *share, int64_t when_ns);
    /* It goes in step with others from now on, or does not any more: for the log. May be NULL. */
    void (*changed)(struct fw_share *share, bool is_in, int error);
};

/* One tenant in an epoch's data. */
struct fw_share_record {
    uint64_t id;
    uint32_t claim; /* Of FW_SHARE_WHOLE, which is the whole rate. Summed. */
    uint32_t rate;  /* Of the cluster. The lowest counts. */
};

/* An epoch's data, as it is sent, and combined. */
struct fw_share_data {
    uint32_t terms;        /* What all must agree on; FW_SHARE_DISAGREED: they do not. */
    uint16_t count;        /* Of records, by rising id. */
    uint16_t participants; /* Summed, as the next. */
    uint64_t members;      /* A number of each one's own, drawn when it was made. */
    struct fw_share_record records[FW_SHARE_RECORDS];
};

static_assert(sizeof(struct fw_share_data) == FW_EPOCH_DATA_MAX, "it always has the same length");

#define FW_SHARE_WHOLE     (UINT32_C(1) << 24)
#define FW_SHARE_DISAGREED UINT32_MAX
/* The terms of nodes that agree on whom to serve (sched/gang.h). Then claims are not summed: the
 * largest counts. */
#define FW_SHARE_GANG (UINT32_C(1) << 24)

struct fw_share {
    struct fw_share_config config;
    struct fw_epoch *epoch;
    int64_t lease_ns;
    struct fw_share_data data;
    bool is_running;
    bool is_pending; /* An answer of the handler is awaited. */
    bool is_asking;  /* Inside next(). */
    bool is_in;      /* Step with others. */
    int64_t number;
    int64_t asked_ns; /* When it last said that it was ready. */
    int64_t lease_until_ns;
    int64_t fallback_ns;   /* From then on the fallback; INT64_MAX: it is in step. */
    int64_t ask_ns;        /* When to say so next. */
    uint32_t unanswered;   /* Time-outs in a row. */
    uint32_t participants; /* Of the last epoch. */
    int64_t started_ns[FW_SHARE_HISTORY];
    uint64_t started_count;
    uint64_t circle; /* The first of these that had the present participants. */
    uint64_t members;
    int64_t measured_ns[FW_SHARE_WINDOW];
    uint64_t measured_count;
    /* By number, made when first seen with a cluster rate; and those that have one now, by id. */
    struct fw_share_tenant *tenants[FW_SCHED_TENANTS_MAX];
    struct fw_share_tenant **rated;
    uint32_t rated_count;
    uint64_t round; /* Of configuring, by which these were made. */
    int last_error;
    uint64_t cut_off_count;
};

/* For the handler's configuration. */
void fw_share_combine(void *combined, const void *a, size_t a_length, const void *b,
                      size_t b_length);
void fw_share_swab(void *data, size_t length);

/* Returns 0, -ENOMEM or -EINVAL: epochs are too short for the time-out, or too many nodes. */
FW_MUST_CHECK int fw_share_init(struct fw_share *share, const struct fw_share_config *config);
void fw_share_fini(struct fw_share *share);

/* Begins to divide with those whom the handler reaches. Cluster rates hold by grants from here. */
void fw_share_start(struct fw_share *share, struct fw_epoch *epoch);
/* Leaves them. Cluster rates are this node's alone, undivided; no call-back comes any more. */
void fw_share_stop(struct fw_share *share);

/* The time that was asked for has come. */
void fw_share_poll(struct fw_share *share);

/* What a tenant may serve by the grant it has then, in units per second; 0: nothing. */
uint64_t fw_share_part(const struct fw_share *share, uint32_t number, int64_t now_ns);
