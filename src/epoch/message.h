/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the members of an epoch's group say to each other.
 *
 *     NEXT     I am ready for the epoch after `number`, and this is my data
 *     LAST     I leave
 *     TIMEOUT  somebody has been silent too long in the epoch after `number`
 *     STATE    what I know, for those who have joined with view `view`
 *
 * On the wire: a head of 64 bytes, whose numbers are little-endian, and what follows it: data, in
 * the sender's own byte order, which the head names; or, of a STATE, the numbers of the live
 * members with their time-outs. A member never trusts a message: what does not fit is refused, and
 * who sent it is said.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fairway/epoch.h>

#include "base/base.h"
#include "epoch/group.h"

enum fw_epoch_kind {
    FW_EPOCH_NEXT = 1,
    FW_EPOCH_LAST,
    FW_EPOCH_TIMEOUT,
    FW_EPOCH_STATE,
};

enum {
    FW_EPOCH_MESSAGE_HEAD = 64,
    FW_EPOCH_MESSAGE_MAX = FW_EPOCH_MESSAGE_HEAD + FW_EPOCH_DATA_MAX,
};

static_assert((int)FW_EPOCH_MESSAGE_MAX <= (int)FW_GROUP_MESSAGE_MAX, "every group takes it");

/* One that takes part, as a STATE tells it. */
struct fw_epoch_live {
    uint64_t member;
    int64_t timeout_ns;
};

static_assert(FW_GROUP_MEMBERS_MAX * sizeof(struct fw_epoch_live) <= FW_EPOCH_DATA_MAX,
              "all of them fit into a STATE");

struct fw_epoch_message {
    enum fw_epoch_kind kind;
    uint64_t incarnation;
    int64_t number;
    int64_t timeout_ns;   /* NEXT: the sender's. */
    uint64_t ticket;      /* NEXT: which of the sender's; rises. */
    uint64_t view;        /* STATE: which it is for. */
    bool is_synchronised; /* STATE: the sender knew what the others knew. */
    bool is_foreign;      /* NEXT: the data is in the other byte order than ours. */
    uint32_t length;      /* NEXT: bytes of data. STATE: entries of `live`. */
    const void *data;     /* NEXT. */
    struct fw_epoch_live live[FW_GROUP_MEMBERS_MAX]; /* STATE. */
};

/* Writes it; returns its length, at most FW_EPOCH_MESSAGE_MAX. */
size_t fw_epoch_message_write(const struct fw_epoch_message *message, char *to);

/* Reads one; `data` then points into `bytes`. Returns 0, or -EBADMSG. */
FW_MUST_CHECK int fw_epoch_message_read(struct fw_epoch_message *message, const void *bytes,
                                        size_t length);
