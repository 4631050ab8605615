/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agents of a cluster say to each other: one kind of message, of fixed size.
 *
 * Each word says how the sender's server stands, and may take or give up the lease (election.h).
 * It holds in the view in which it was said: what was under way when the view changed is void.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

enum { FW_HA_WORD_SIZE = 80 };

/* How a server stands: what a choice between two of them goes by. */
struct fw_ha_standing {
    bool is_alive;    /* It answers. The rest is void if it does not. */
    bool is_master;   /* It has the role. */
    bool is_complete; /* It has all of a history up to a position, or is the master of one. */
    bool has_address; /* The virtual address is there. Not told to others. */
    bool is_allowed;  /* To begin with whatever it has: an operator says so. */
    uint64_t history; /* Whose positions these are; 0: nobody's. */
    uint64_t position;
};

struct fw_ha_word {
    struct fw_ha_standing standing;
    bool is_settled;          /* It was asked how it stands when no lease could run any more. */
    bool holds;               /* The sender has the lease, and wants to keep it. */
    bool frees;               /* The sender's lease has ended, and it does not want it back. */
    bool claims;              /* The sender wants the lease: */
    uint64_t holder;          /* of this member, 0: of nobody, */
    uint64_t holder_sequence; /* if that has said nothing since. */
    uint64_t view;
    uint64_t sequence; /* Of the sender; rises. */
    uint64_t term;     /* How often the lease has changed hands, as far as the sender knows, */
    uint64_t reign;    /* and the history of the last one who served; 0: not known. */
};

void fw_ha_word_write(const struct fw_ha_word *word, char to[static FW_HA_WORD_SIZE]);

/* 0 or -EPROTO. */
FW_MUST_CHECK int fw_ha_word_read(struct fw_ha_word *word, const void *bytes, size_t size);
