/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings as the allocators use them: of format 2, on parts of a group, with messages of message.h.
 */
#pragma once

#include <fairway/ring.h>

#include "io/disk.h"
#include "volume/message.h"

/* Where a struct fw_reason is at hand and the ring wants its own: one struct by two names. */
static inline struct fw_ring_reason *fw_volume_ring_reason(struct fw_reason *reason)
{
    return (struct fw_ring_reason *)(void *)reason;
}

static inline struct fw_reason *fw_volume_reason(struct fw_ring_reason *reason)
{
    return (struct fw_reason *)(void *)reason;
}

/* Makes an empty ring, whatever was there before. */
FW_MUST_CHECK int fw_volume_queue_make(struct fw_disk *part, struct fw_reason *reason);

/* Pushes one message. As fw_ring_push(). */
FW_MUST_CHECK int fw_volume_queue_push(struct fw_ring *ring,
                                       const struct fw_volume_message *message,
                                       struct fw_reason *reason);

/*
 * Pops one. As fw_ring_pop(); -EBADMSG: it is not readable, but may be advanced over: `position` is
 * set.
 */
FW_MUST_CHECK int fw_volume_queue_pop(struct fw_ring *ring, struct fw_volume_message *message,
                                      uint64_t *position, struct fw_reason *reason);

/* Encoded messages, one behind the other, to be pushed as one. */
struct fw_volume_batch {
    uint8_t *bytes; /* From the heap. */
    size_t length;
    size_t room;
};

/* Returns 0 or -ENOMEM. */
FW_MUST_CHECK int fw_volume_batch_add(struct fw_volume_batch *batch,
                                      const struct fw_volume_message *message);
void fw_volume_batch_fini(struct fw_volume_batch *batch);

/* Pushes all in one: `sync` as fw_ring_sync(), else as fw_ring_push_batch(). Keeps the batch. */
FW_MUST_CHECK int fw_volume_batch_push(const struct fw_volume_batch *batch, struct fw_ring *ring,
                                       bool sync, struct fw_reason *reason);

/* Calls `visit` for each; stops when it does not return 0, and returns that. */
FW_MUST_CHECK int fw_volume_batch_walk(const struct fw_volume_batch *batch,
                                       int (*visit)(void *context,
                                                    const struct fw_volume_message *message),
                                       void *context, struct fw_reason *reason);

/*
 * Adds all messages of a ring to the batch, without attaching: what is between its pointers. Those
 * that are no messages of ours are skipped. -EAGAIN: somebody changed it meanwhile, or a message is
 * damaged. -ENOENT: there is no ring, or its head is damaged so that it does not look like one.
 */
FW_MUST_CHECK int fw_volume_queue_read(struct fw_disk *part, struct fw_volume_batch *batch,
                                       struct fw_reason *reason);
