/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer's jobs: pop, advance, suspend, resume, poll.
 *
 * What the producer has written can be seen before it is durable. A consumer that acted on it, and
 * moved its own pointer, would stand ahead of a producer whose pointer a power failure has moved
 * back. So a pointer of the producer is flushed before anything behind it is believed. That goes
 * together with the reading of the messages and is paid once for all messages that were found.
 */
#include <errno.h>
#include <inttypes.h>

#include "base/assert.h"
#include "ring/core.h"

static const struct fw_ring_pointer *producer_of(const struct fw_ring *ring)
{
    return &ring->sides[FW_RING_SIDE_PRODUCER];
}

static const struct fw_ring_pointer *consumer_of(const struct fw_ring *ring)
{
    return &ring->sides[FW_RING_SIDE_CONSUMER];
}

/* ---- pop ---- */

static void pop_loaded(struct fw_ring *ring, int rc);

/* Begins to load at least `size` bytes from the cursor on; the messages end at `end`. */
static void pop_load(struct fw_ring *ring, uint64_t size, uint64_t end)
{
    uint64_t base = fw_ring_sector_floor(ring, ring->cursor);
    uint64_t need = fw_ring_sector_ceil(ring, ring->cursor + size) - base;
    uint64_t all = fw_ring_sector_ceil(ring, end) - base;
    uint64_t wanted = need > FW_RING_WINDOW ? need : FW_RING_WINDOW;
    wanted = wanted < all ? wanted : all;
    int rc = fw_ring_window_reserve(ring, &ring->in, wanted);
    if (rc != 0) {
        ring->io_error = rc; /* A flush may be under way: the step after it ends the job. */
    } else {
        /* A ring that is full and begins inside of a sector is a sector longer than itself. */
        uint64_t capacity = ring->geometry.capacity;
        uint64_t first = wanted < capacity ? wanted : capacity;
        (void)fw_ring_io_data(ring, FW_DISK_READ, ring->in.bytes, base, first, false);
        if (wanted > first) {
            (void)fw_ring_io_data(ring, FW_DISK_READ, ring->in.bytes + first, base + first,
                                  wanted - first, false);
        }
        ring->load_end = end;
        ring->in.base = base;
        ring->in.end = base + wanted < end ? base + wanted : end;
    }
    ring->step = pop_loaded;
}

static bool window_has(const struct fw_ring *ring, uint64_t size)
{
    return ring->cursor >= ring->in.base && ring->cursor + size <= ring->in.end;
}

/* There is a message at the cursor. Lends it, or loads what is missing of it. */
static void pop_take(struct fw_ring *ring)
{
    struct fw_ring_op *op = fw_ring_job(ring);
    const struct fw_ring_geometry *geometry = &ring->geometry;
    uint64_t room = ring->producer_safe - ring->cursor;
    if (!window_has(ring, geometry->header_size)) {
        pop_load(ring, geometry->header_size, ring->producer_safe);
        return;
    }
    const uint8_t *header = ring->in.bytes + (ring->cursor - ring->in.base);
    uint64_t length;
    int rc = fw_ring_header_read(geometry, ring->cursor, room, header, &length, &ring->reason);
    if (rc != 0) {
        fw_ring_finish(ring, rc);
        return;
    }
    uint64_t size = fw_ring_message_size(geometry, length);
    if (!window_has(ring, size)) {
        pop_load(ring, size, ring->producer_safe);
        return;
    }
    rc = fw_ring_message_check(geometry, ring->cursor, header, length, &ring->reason);
    if (rc == 0) {
        ring->cursor += size;
        op->position = ring->cursor;
        op->message =
            (struct fw_ring_message){.data = header + geometry->header_size, .length = length};
    }
    fw_ring_finish(ring, rc);
}

static void pop_loaded(struct fw_ring *ring, int rc)
{
    if (rc != 0) {
        ring->in.end = ring->in.base;
        fw_ring_finish(ring, rc);
        return;
    }
    ring->producer_safe = ring->load_end; /* Flushed, if it was new. */
    pop_take(ring);
}

static void pop_looked(struct fw_ring *ring, int rc)
{
    if (rc == 0) {
        rc = fw_ring_side_take(ring, FW_RING_SIDE_PRODUCER);
    }
    uint64_t producer = producer_of(ring)->position;
    if (rc != 0 || producer == ring->cursor) {
        fw_ring_finish(ring, rc != 0 ? rc : FW_RING_RETRY);
        return;
    }
    fw_ring_io_flush(ring);
    pop_load(ring, ring->geometry.header_size, producer);
}

static void pop_begin(struct fw_ring *ring)
{
    if ((ring->role & FW_RING_PRODUCER) != 0) {
        ring->producer_safe = producer_of(ring)->position; /* Our own. */
    }
    if (ring->cursor < ring->producer_safe) {
        pop_take(ring);
    } else if ((ring->role & FW_RING_PRODUCER) != 0) {
        fw_ring_finish(ring, FW_RING_RETRY);
    } else {
        fw_ring_io_area(ring, FW_RING_SIDE_PRODUCER);
        ring->step = pop_looked;
    }
}

/* ---- the others ---- */

static void advance_begin(struct fw_ring *ring)
{
    const struct fw_ring_op *op = fw_ring_job(ring);
    const struct fw_ring_pointer *consumer = consumer_of(ring);
    if (op->position < consumer->position || op->position > ring->cursor ||
        op->position % ring->geometry.align != 0) {
        fw_ring_finish(ring,
                       fw_reason_set(&ring->reason, -EINVAL,
                                     "cannot advance to %" PRIu64 ": it is not where a message "
                                     "that was popped ends, between %" PRIu64 " and %" PRIu64,
                                     op->position, consumer->position, ring->cursor));
        return;
    }
    fw_ring_state_write(ring, FW_RING_SIDE_CONSUMER, op->position, consumer->flag, fw_ring_finish);
}

static void request_flushed(struct fw_ring *ring, int rc)
{
    if (rc != 0) {
        fw_ring_finish(ring, rc);
        return;
    }
    fw_ring_state_write(ring, FW_RING_SIDE_CONSUMER, consumer_of(ring)->position,
                        fw_ring_job(ring)->kind == FW_RING_SUSPEND, fw_ring_finish);
}

/*
 * A request may follow only on the answer to the one before, and on one that stays: if a power
 * failure took an acknowledgement back after we had resumed, nobody would know of the suspend.
 */
static void request_looked(struct fw_ring *ring, int rc)
{
    if (rc == 0) {
        rc = fw_ring_side_take(ring, FW_RING_SIDE_PRODUCER);
    }
    if (rc != 0) {
        fw_ring_finish(ring, rc);
    } else if (consumer_of(ring)->flag != producer_of(ring)->flag) {
        fw_ring_finish(ring, FW_RING_RETRY);
    } else {
        fw_ring_io_flush(ring);
        ring->step = request_flushed;
    }
}

static void poll_looked(struct fw_ring *ring, int rc)
{
    if (rc == 0) {
        rc = fw_ring_ownership_check(ring, FW_RING_SIDE_CONSUMER);
    }
    if (rc == 0) {
        rc = fw_ring_side_take(ring, FW_RING_SIDE_PRODUCER);
    }
    const struct fw_ring_pointer *consumer = consumer_of(ring);
    if (rc == 0 && fw_ring_beat_is_due(ring, FW_RING_SIDE_CONSUMER)) {
        fw_ring_state_write(ring, FW_RING_SIDE_CONSUMER, consumer->position, consumer->flag,
                            fw_ring_finish);
    } else {
        fw_ring_finish(ring, rc);
    }
}

void fw_ring_consume(struct fw_ring *ring)
{
    switch (fw_ring_job(ring)->kind) {
    case FW_RING_POP:
        pop_begin(ring);
        break;
    case FW_RING_ADVANCE:
        advance_begin(ring);
        break;
    case FW_RING_SUSPEND:
    case FW_RING_RESUME:
        fw_ring_io_area(ring, FW_RING_SIDE_PRODUCER);
        ring->step = request_looked;
        break;
    case FW_RING_POLL:
        fw_ring_io_area(ring, FW_RING_SIDE_PRODUCER);
        fw_ring_io_area(ring, FW_RING_SIDE_CONSUMER);
        ring->step = poll_looked;
        break;
    case FW_RING_PUSH:
    case FW_RING_STAGE:
    case FW_RING_PUBLISH:
    case FW_RING_DROP:
    case FW_RING_SYNC:
        FW_ASSERT(false); /* The producer's. */
    }
}
