/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may serve: one lease, and the members of a group that it goes round among.
 *
 * Each machine of a cluster has an agent, and each agent is a member of a group (epoch/group.h):
 * all get the same words and views in the same order. From these alone each computes who *holds*
 * the lease; clocks decide only when a member asks for something. What the holder gets by it is
 * time: each word in which it says that it holds the lease, and that comes back to itself while the
 * others agree, is worth `lease_ns` from when it was said. A member that is cut off hears its own
 * words no more, and its time runs out, also if it is stopped and cannot know.
 *
 *     nobody is known ──── "I hold it" of who held it in the former view ────► HELD
 *       ▲      └────────── a claim, when no lease can run any more ───────────►│  │ a claim, when
 * the └── "it is free" ──────────────── of the holder, or a view ◄───────────┘  ◄ holder is silent
 *
 * Why a claim is safe. A lease begins with a word. Who gets a view at `t` knows that whatever was
 * said in the former one was said before `t`, so that what comes of it is over at `t + lease_ns`;
 * the same with the last word of a holder that says no more. The claimer waits for that time, and
 * some more, for clocks that are not equally fast. A claim names the holder and its last word as
 * the claimer knows it: if the holder has said anything in between, in the order of the group, the
 * claim is void at all members alike. So is whatever was said in another view.
 *
 * Whom to choose. Only a server that answers and has a whole copy. First comes the history of who
 * served last, then the higher position, then the lower member. What is compared was asked for when
 * no lease could run any more (`is_settled`), since slaves confirm changes up to then. Where
 * replies wait for `acks` slaves, so many of the cluster's nodes have to be heard that one of them
 * has everything that was acknowledged. If nobody has a whole copy, and all nodes are there and
 * their servers answer, nothing better is to come, and the first one begins; else an operator has
 * to allow it.
 *
 * The *gate* is what keepalived is told: may the address come here? It is open at the holder, at
 * slaves that could succeed it while it serves, and, while nobody holds the lease, at the best one.
 * It only saves time: without the lease the address is of no use.
 *
 * Threads: one. Times are fw_clock_boot_ns()'s and come in as arguments. Nothing calls back.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "epoch/group.h"
#include "ha/word.h"

struct fw_election_config {
    int64_t lease_ns;
    int64_t patience_ns; /* A holder whose server does not get the role for so long gives up. */
    uint32_t nodes;      /* Of the cluster; 0: not known, then nobody begins anew. */
    uint32_t acks;       /* Slaves that replies wait for; 0: none. */
};

enum fw_election_gate { FW_ELECTION_KEEP, FW_ELECTION_CLOSED, FW_ELECTION_OPEN };

struct fw_election_member {
    uint64_t number;
    uint64_t sequence; /* Of its last word in this view; 0: none. */
    bool is_settled;
    struct fw_ha_standing standing;
};

struct fw_election {
    struct fw_election_config config;
    uint64_t self;

    /* The same at all members of a view that is quorate. */
    uint64_t view; /* 0: there is none, or it is not. */
    struct fw_election_member members[FW_GROUP_MEMBERS_MAX];
    uint32_t member_count;
    uint64_t holder; /* 0: nobody is known. */
    bool is_free;    /* It is known that nobody has it. */
    uint64_t term;
    uint64_t reign;

    /* This member's own. */
    struct fw_ha_standing standing;
    int64_t asked_ns;  /* When the question was sent that `standing` is the answer to. */
    bool was_holder;   /* In the former view, and wants it still. */
    bool is_leaving;   /* It wants it no more. */
    int64_t quiet_ns;  /* Since when no lease has begun, as far as it knows. */
    int64_t until_ns;  /* The end of the last lease that it had. */
    int64_t held_ns;   /* Since when it is the holder without the role. */
    bool is_beginning; /* It became the holder although it has no whole copy. */
    int64_t shy_ns;    /* Until when it does not claim. */
    uint64_t sequence;
    uint64_t said;   /* Its word that has not come back yet; 0: none. */
    int64_t said_ns; /* And when that was. */
};

void fw_election_init(struct fw_election *election, const struct fw_election_config *config);

/* The group has another view. `self` is known with it. */
void fw_election_view(struct fw_election *election, uint64_t self, const struct fw_group_view *view,
                      int64_t now_ns);

/* How the own server stands, as it answered a question sent at `asked_ns`. */
void fw_election_stand(struct fw_election *election, const struct fw_ha_standing *standing,
                       int64_t asked_ns);

/*
 * What to say now. False: nothing, since the last word has not come back, or there is no quorum.
 * After true the caller sends it; if that fails, say_again() is due.
 */
FW_MUST_CHECK bool fw_election_say(struct fw_election *election, int64_t now_ns,
                                   struct fw_ha_word *word);
void fw_election_say_again(struct fw_election *election);

/* A word has come. */
void fw_election_hear(struct fw_election *election, uint64_t sender, const struct fw_ha_word *word,
                      int64_t now_ns);

/* Wants to end: gives the lease up if it has it, and claims none. */
void fw_election_leave(struct fw_election *election);

/* Until when the own server may serve; in the past: not at all. Not what was given before. */
int64_t fw_election_until(const struct fw_election *election);

/* Must the own server be told that it is no longer master, since another one is? */
bool fw_election_must_resign(const struct fw_election *election);

enum fw_election_gate fw_election_gate(const struct fw_election *election, int64_t now_ns);

/* When something may become possible without a word; INT64_MAX: never. */
int64_t fw_election_due_ns(const struct fw_election *election);

static inline bool fw_election_is_holder(const struct fw_election *election)
{
    return election->view != 0 && election->holder == election->self;
}
