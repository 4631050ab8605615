/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator: decides when an epoch starts, who is in it, and who is evicted.
 *
 * There is one, and every member of the group computes it: all start from the same state and get
 * the same messages and views in the same order (group.h), so all come to the same result at the
 * same place in that order. No member is special, and none can fail alone.
 *
 *              NEXT                  all live ones are ready
 *     IDLE ──────────► CLOSING ───────────────────────────────► WAITING
 *      ▲                │ ▲  ▲     or TIMEOUT: evict the others     │
 *      │    none left   │ │  └──────────────── NEXT ───────────────┘
 *      ├────────────────┘ │ (the ready ones have left: back to WAITING)
 *      └──────────────────┴──────────────── none left ──────────────┘
 *
 * The document draws NEXT as leading from IDLE to WAITING, by which a lone scheduler's own NEXT
 * would start no epoch. A *live* peer is one that takes part: it joined by a NEXT with
 * FW_EPOCH_FIRST and has neither left nor been evicted. IDLE ends with a new *life* that has a
 * number of its own, the incarnation: what was said in an earlier life is not taken for this one.
 *
 * Time is the one thing that members do not see alike. So the clock that runs while peers are
 * silent is every member's own, and when it has run out the member says so to all (TIMEOUT); the
 * first such message in the order of the group decides, and later ones find the epoch started.
 *
 * Joining. When a view brings somebody new, what the old ones know is not known to all. Each sends
 * its STATE for this view; when those of all in the view have come, the best of them (a life that
 * goes on before none, then the latest) is everybody's. Meanwhile nothing else counts: who had said
 * NEXT says it again afterwards. One that stays silent here is not waited for longer than anywhere
 * else; if it wakes up it finds in the order of the group what the others made of it. A member
 * without a quorum knows nothing from then on, whatever it had heard: the others may have gone on
 * without it.
 *
 * Concurrency: none. It sends nothing and keeps no time itself; `events` says what is to be done.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fairway/epoch.h>

#include "base/base.h"
#include "epoch/group.h"
#include "epoch/message.h"

enum fw_epoch_phase { FW_EPOCH_IDLE, FW_EPOCH_CLOSING, FW_EPOCH_WAITING };

/* One that is live. */
struct fw_epoch_peer {
    uint64_t member;
    int64_t timeout_ns;
    uint64_t ticket; /* Of the NEXT by which it is ready. */
    uint32_t length;
    bool is_ready;
    char *data; /* Room for FW_EPOCH_DATA_MAX. */
};

struct fw_epoch_coordinator;

/* What its owner has to do. None of these may deliver to the coordinator. */
struct fw_epoch_coordinator_events {
    /* Send a STATE for the view that was given last. */
    void (*asks)(struct fw_epoch_coordinator *coordinator);
    /* All know the same again; a NEXT or a LAST that was said before must be said anew. */
    void (*synchronised)(struct fw_epoch_coordinator *coordinator);
    /* There is no quorum; nothing is known any more. */
    void (*lost)(struct fw_epoch_coordinator *coordinator);
    /* After so long say TIMEOUT; 0: no longer. A new word replaces the one before. */
    void (*clock)(struct fw_epoch_coordinator *coordinator, int64_t timeout_ns);
    /* No longer live, since it was silent. */
    void (*evicted)(struct fw_epoch_coordinator *coordinator, uint64_t member);
    /*
     * Epoch `number` of the coordinator has started. `peer` is the own one as it was ready; NULL:
     * it takes no part. The data is valid until this returns, and may be written to.
     */
    void (*started)(struct fw_epoch_coordinator *coordinator, const struct fw_epoch_peer *peer,
                    char *data, size_t length);
};

struct fw_epoch_coordinator {
    const struct fw_epoch_coordinator_events *events;
    struct fw_epoch_config config;
    uint64_t self;
    enum fw_epoch_phase phase;
    uint64_t incarnation; /* Of the life that is, or was last. */
    int64_t number;       /* Of the epoch that runs, or ran last; 0: none has. */
    /* By member, rising; behind `count` they only hold their memory. */
    struct fw_epoch_peer peers[FW_GROUP_MEMBERS_MAX];
    uint32_t count;
    uint32_t ready_count;
    struct fw_group_view view; /* `id` is 0 before the first. */
    bool is_synchronised;      /* Knows, or did until it had to ask. */
    bool is_asking;            /* Waits for the STATE of those in `awaited`. */
    uint64_t asked_view;
    uint64_t awaited[FW_GROUP_MEMBERS_MAX];
    uint32_t awaited_count;
    struct fw_epoch_message best; /* Of what has come: the one to take over, if it is any. */
    bool has_best;
    uint64_t incarnation_max; /* That anyone has known, as the next. */
    int64_t number_max;
    char *memory;
    char reduced[FW_EPOCH_DATA_MAX];
};

/* Returns 0 or -ENOMEM. */
FW_MUST_CHECK int fw_epoch_coordinator_init(struct fw_epoch_coordinator *coordinator, uint64_t self,
                                            const struct fw_epoch_config *config,
                                            const struct fw_epoch_coordinator_events *events);
void fw_epoch_coordinator_fini(struct fw_epoch_coordinator *coordinator);

void fw_epoch_coordinator_view(struct fw_epoch_coordinator *coordinator,
                               const struct fw_group_view *view);
void fw_epoch_coordinator_deliver(struct fw_epoch_coordinator *coordinator, uint64_t sender,
                                  const struct fw_epoch_message *message);

/* What to send when events.asks() was called, and when the clock has run out. */
void fw_epoch_coordinator_tell(const struct fw_epoch_coordinator *coordinator,
                               struct fw_epoch_message *state);
void fw_epoch_coordinator_complain(const struct fw_epoch_coordinator *coordinator,
                                   struct fw_epoch_message *timeout);

/* It knows what all know, now. */
static inline bool fw_epoch_coordinator_is_ready(const struct fw_epoch_coordinator *coordinator)
{
    return coordinator->is_synchronised && !coordinator->is_asking;
}

/* The live peer with this number, or NULL. */
const struct fw_epoch_peer *
fw_epoch_coordinator_peer(const struct fw_epoch_coordinator *coordinator, uint64_t member);
