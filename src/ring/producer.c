/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The producer's jobs: push, stage, publish, drop, sync, poll.
 *
 * The order of things on the disk, and why:
 *
 *   1. look at the consumer: does it want us to stop, and how much room is there?
 *   2. write the data, and make it durable;
 *   3. write the pointer, and make it durable. Only now is it published.
 *
 * A consumer, or whoever comes after a crash, that sees the pointer thus sees the data. 1 and 2 go
 * at the same time where it is certain that there is room, for data beyond the pointer harms nobody
 * if it then turns out that we are to stop.
 *
 * Room is certain only where the consumer's pointer is durable too: if we wrote over messages that
 * it has read, and a power failure then moved its pointer back, it would read rubbish. So the first
 * time that a new pointer of the consumer is needed, it is flushed; that is once in several pushes,
 * at most once in a round of the ring.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "ring/core.h"

static void produce_checked(struct fw_ring *ring);

static struct fw_ring_pointer *producer_of(struct fw_ring *ring)
{
    return &ring->sides[FW_RING_SIDE_PRODUCER];
}

static const struct fw_ring_pointer *consumer_of(const struct fw_ring *ring)
{
    return &ring->sides[FW_RING_SIDE_CONSUMER];
}

static bool consumer_is_ours(const struct fw_ring *ring)
{
    return (ring->role & FW_RING_CONSUMER) != 0;
}

static uint64_t room_of(const struct fw_ring *ring, uint64_t consumer)
{
    return ring->geometry.capacity - (ring->staged - consumer);
}

/* ---- the window ---- */

static uint8_t *window_at(const struct fw_ring *ring, uint64_t position)
{
    const struct fw_ring_window *window = &ring->out;
    return window->bytes +
           (window->whole ? position % ring->geometry.capacity : position - window->base);
}

/* Copies to the window; in a whole one perhaps round its end. */
static void window_put(struct fw_ring *ring, uint64_t position, const void *data, size_t length)
{
    size_t first = length;
    if (ring->out.whole) {
        uint64_t to_end = ring->geometry.capacity - position % ring->geometry.capacity;
        first = length < to_end ? length : to_end;
    }
    if (first > 0) {
        memcpy(window_at(ring, position), data, first);
    }
    if (length > first) {
        memcpy(ring->out.bytes, (const uint8_t *)data + first, length - first);
    }
}

static bool window_covers(const struct fw_ring *ring)
{
    const struct fw_ring_window *window = &ring->out;
    if (window->end == window->base) {
        return false;
    }
    return window->whole ||
           (ring->staged >= window->base && ring->staged + ring->batch_size <= window->end);
}

/*
 * Begins to load what surrounds the messages to be written, so that all else in their sectors stays
 * as it was, and as much more as is useful to later ones.
 */
static int window_load(struct fw_ring *ring)
{
    uint64_t capacity = ring->geometry.capacity;
    uint64_t base = fw_ring_sector_floor(ring, ring->staged);
    uint64_t need = fw_ring_sector_ceil(ring, ring->staged + ring->batch_size) - base;
    bool whole = capacity <= FW_RING_WINDOW || need >= capacity;
    uint64_t size = need > FW_RING_WINDOW ? need : FW_RING_WINDOW;
    if (whole) {
        base = 0;
        size = capacity;
    }
    int rc = fw_ring_window_reserve(ring, &ring->out, size);
    if (rc == 0) {
        ring->out.whole = whole;
        ring->out.base = base;
        ring->out.end = base + size;
        (void)fw_ring_io_data(ring, FW_DISK_READ, ring->out.bytes, base, size, false);
    }
    return rc;
}

static void window_forget(struct fw_ring *ring)
{
    ring->out.end = ring->out.base;
}

/* Starts to write the sectors from `position` to `end`; returns whether they will be durable. */
static bool window_write(struct fw_ring *ring, uint64_t position, uint64_t end)
{
    bool sync = (ring->flags & FW_RING_FUA) != 0;
    uint64_t first = fw_ring_sector_floor(ring, position);
    uint64_t size = fw_ring_sector_ceil(ring, end) - first;
    if (size >= ring->geometry.capacity) {
        FW_ASSERT(ring->out.whole);
        return fw_ring_io_data(ring, FW_DISK_WRITE, ring->out.bytes, 0, ring->geometry.capacity,
                               sync) == 1 &&
               sync;
    }
    if (!ring->out.whole) {
        return fw_ring_io_data(ring, FW_DISK_WRITE, window_at(ring, first), first, size, sync) ==
                   1 &&
               sync;
    }
    /* Where the area ends, the window does. */
    uint64_t to_end = ring->geometry.capacity - first % ring->geometry.capacity;
    if (size <= to_end) {
        (void)fw_ring_io_data(ring, FW_DISK_WRITE, window_at(ring, first), first, size, sync);
        return sync;
    }
    (void)fw_ring_io_data(ring, FW_DISK_WRITE, window_at(ring, first), first, to_end, false);
    (void)fw_ring_io_data(ring, FW_DISK_WRITE, ring->out.bytes, first + to_end, size - to_end,
                          false);
    return false;
}

/* ---- the job ---- */

/* Ends the job without publishing; what was staged may not be published later either. */
static void produce_stop(struct fw_ring *ring, int result)
{
    if (result == FW_RING_SUSPENDED) {
        ring->staged = producer_of(ring)->position;
    }
    fw_ring_finish(ring, result);
}

static void suspended_written(struct fw_ring *ring, int rc)
{
    produce_stop(ring, rc != 0 ? rc : FW_RING_SUSPENDED);
}

static void resumed_written(struct fw_ring *ring, int rc)
{
    if (rc != 0) {
        fw_ring_finish(ring, rc);
    } else {
        produce_checked(ring);
    }
}

static void beat_written(struct fw_ring *ring, int rc)
{
    if (rc == 0 && ring->role == FW_RING_BOTH && fw_ring_beat_is_due(ring, FW_RING_SIDE_CONSUMER)) {
        const struct fw_ring_pointer *consumer = consumer_of(ring);
        fw_ring_state_write(ring, FW_RING_SIDE_CONSUMER, consumer->position, consumer->flag,
                            beat_written);
        return;
    }
    bool suspended = consumer_of(ring)->flag && ring->role != FW_RING_BOTH;
    bool due = !suspended && producer_of(ring)->flag && ring->role != FW_RING_BOTH;
    fw_ring_finish(ring, rc != 0 ? rc : suspended ? FW_RING_SUSPENDED : due ? FW_RING_RESYNC : 0);
}

/* A poll that had nothing to acknowledge. */
static void poll_end(struct fw_ring *ring)
{
    struct fw_ring_pointer *producer = producer_of(ring);
    if (fw_ring_beat_is_due(ring, FW_RING_SIDE_PRODUCER)) {
        fw_ring_state_write(ring, FW_RING_SIDE_PRODUCER, producer->position, producer->flag,
                            beat_written);
    } else {
        beat_written(ring, 0);
    }
}

/*
 * Does what the consumer asks for. True: the job may go on at once. Otherwise it has ended, or goes
 * on from the beginning when the acknowledgement has been written.
 */
static bool handshake(struct fw_ring *ring)
{
    enum fw_ring_kind kind = fw_ring_job(ring)->kind;
    const struct fw_ring_pointer *producer = producer_of(ring);
    bool suspend = consumer_of(ring)->flag;
    if (suspend == producer->flag) {
        if (kind == FW_RING_POLL) {
            poll_end(ring);
            return false;
        }
        if (suspend) {
            produce_stop(ring, FW_RING_SUSPENDED);
            return false;
        }
        if (kind == FW_RING_SYNC) {
            fw_ring_finish(ring, fw_reason_set(&ring->reason, -EALREADY,
                                               "no resume is pending that a sync could answer"));
            return false;
        }
        return true;
    }
    if (suspend) {
        fw_ring_state_write(ring, FW_RING_SIDE_PRODUCER, producer->position, true,
                            suspended_written);
        return false;
    }
    if (kind == FW_RING_SYNC) {
        return true; /* The write that publishes is the answer. */
    }
    if ((ring->flags & FW_RING_SYNCS) == 0) {
        fw_ring_state_write(ring, FW_RING_SIDE_PRODUCER, producer->position, false,
                            resumed_written);
    } else if (kind == FW_RING_POLL) {
        poll_end(ring);
    } else {
        produce_stop(ring, FW_RING_RESYNC);
    }
    return false;
}

static void produce_published(struct fw_ring *ring, int rc)
{
    if (rc == 0) {
        FW_ASSERT(ring->staged == producer_of(ring)->position);
    }
    fw_ring_finish(ring, rc);
}

/* The data is durable, and nobody has asked us to stop since the job began. */
static void produce_durable(struct fw_ring *ring, int rc)
{
    const struct fw_ring_op *first = fw_ring_job(ring);
    if (rc != 0) {
        fw_ring_finish(ring, rc);
        return;
    }
    FW_LIST_FOR_EACH (&ring->batch, struct fw_ring_op, link, op) {
        ring->staged += op->size;
        op->position = ring->staged;
    }
    bool nothing_new = ring->staged == producer_of(ring)->position && first->kind != FW_RING_SYNC;
    if (first->kind == FW_RING_STAGE || nothing_new) {
        fw_ring_finish(ring, 0);
        return;
    }
    bool flag = producer_of(ring)->flag && first->kind != FW_RING_SYNC;
    fw_ring_state_write(ring, FW_RING_SIDE_PRODUCER, ring->staged, flag, produce_published);
}

static void produce_written(struct fw_ring *ring, int rc)
{
    if (rc != 0) {
        window_forget(ring); /* It is not what the disk holds. */
        fw_ring_finish(ring, rc);
        return;
    }
    if (!ring->looked) {
        rc = fw_ring_side_take(ring, FW_RING_SIDE_CONSUMER);
        if (rc != 0) {
            fw_ring_finish(ring, rc);
            return;
        }
        ring->looked = true;
        if (!handshake(ring)) {
            return;
        }
    }
    if (ring->data_synced) {
        produce_durable(ring, 0);
        return;
    }
    fw_ring_io_flush(ring);
    ring->step = produce_durable;
}

static void messages_put(struct fw_ring *ring)
{
    uint64_t position = ring->staged;
    FW_LIST_FOR_EACH (&ring->batch, struct fw_ring_op, link, op) {
        for (uint32_t i = 0; i < op->count; i++) {
            const struct fw_ring_message *message = &op->messages[i];
            uint8_t header[FW_RING_HEADER_MAX];
            uint32_t header_size = ring->geometry.header_size;
            fw_ring_header_write(&ring->geometry, position, message, header);
            window_put(ring, position, header, header_size);
            window_put(ring, position + header_size, message->data, message->length);
            position += fw_ring_message_size(&ring->geometry, message->length);
        }
    }
    FW_ASSERT(position == ring->staged + ring->batch_size);
}

static void produce_loaded(struct fw_ring *ring, int rc)
{
    if (rc != 0) {
        window_forget(ring);
        fw_ring_finish(ring, rc);
        return;
    }
    messages_put(ring);
    ring->data_synced = window_write(ring, ring->staged, ring->staged + ring->batch_size);
    if (!ring->looked) {
        fw_ring_io_area(ring, FW_RING_SIDE_CONSUMER);
    }
    ring->step = produce_written;
}

/* There is room for the batch. */
static void produce_write(struct fw_ring *ring)
{
    if (ring->batch_size == 0) {
        produce_durable(ring, 0);
    } else if (window_covers(ring)) {
        produce_loaded(ring, 0);
    } else {
        int rc = window_load(ring);
        if (rc != 0) {
            fw_ring_finish(ring, rc);
        } else {
            ring->step = produce_loaded;
        }
    }
}

/*
 * Adds to the job the pushes that wait behind it, as long as there is certainly room. False if
 * there is not even for the first.
 */
static bool batch_gather(struct fw_ring *ring)
{
    uint64_t room = room_of(ring, ring->consumer_safe);
    const struct fw_ring_op *first = fw_ring_job(ring);
    ring->batch_size = 0;
    FW_LIST_FOR_EACH (&ring->batch, struct fw_ring_op, link, op) {
        if (op->size > room - ring->batch_size) {
            return false; /* Only the first can be too large: others were measured. */
        }
        ring->batch_size += op->size;
    }
    while (first->kind == FW_RING_PUSH && !fw_list_is_empty(&ring->queued)) {
        struct fw_list_link *link = fw_list_first(&ring->queued);
        const struct fw_ring_op *next = FW_LIST_ENTRY(link, struct fw_ring_op, link);
        uint64_t limit = room < FW_RING_BATCH_MAX ? room : FW_RING_BATCH_MAX;
        if (next->kind != FW_RING_PUSH || next->count > FW_RING_MESSAGES_MAX ||
            ring->batch_size > limit || next->size > limit - ring->batch_size) {
            break;
        }
        ring->batch_size += next->size;
        fw_list_remove(link);
        fw_list_push_back(&ring->batch, link);
    }
    return true;
}

static void room_flushed(struct fw_ring *ring, int rc)
{
    if (rc != 0) {
        fw_ring_finish(ring, rc);
        return;
    }
    ring->consumer_safe = consumer_of(ring)->position;
    bool fits = batch_gather(ring);
    FW_ASSERT(fits);
    produce_write(ring);
}

/* The consumer's side is known as it is now, and we are not to stop. */
static void produce_checked(struct fw_ring *ring)
{
    const struct fw_ring_op *op = fw_ring_job(ring);
    if (op->kind == FW_RING_POLL) {
        fw_ring_finish(ring, 0);
        return;
    }
    ring->looked = true;
    if (consumer_is_ours(ring)) {
        ring->consumer_safe = consumer_of(ring)->position;
    }
    if (batch_gather(ring)) {
        produce_write(ring);
        return;
    }
    if (op->size > ring->geometry.capacity) {
        fw_ring_finish(ring, fw_reason_set(&ring->reason, -EMSGSIZE,
                                           "it will never fit: a message has at most %" PRIu64
                                           " bytes, and all that is pushed at once, with its "
                                           "headers, %" PRIu64,
                                           ring->geometry.message_max, ring->geometry.capacity));
    } else if (op->size > room_of(ring, consumer_of(ring)->position)) {
        fw_ring_finish(ring, FW_RING_RETRY);
    } else {
        fw_ring_io_flush(ring);
        ring->step = room_flushed;
    }
}

static void produce_looked(struct fw_ring *ring, int rc)
{
    if (rc == 0 && fw_ring_job(ring)->kind == FW_RING_POLL) {
        rc = fw_ring_ownership_check(ring, FW_RING_SIDE_PRODUCER);
    }
    if (rc == 0) {
        rc = fw_ring_side_take(ring, FW_RING_SIDE_CONSUMER);
    }
    if (rc != 0) {
        fw_ring_finish(ring, rc);
    } else if (handshake(ring)) {
        produce_checked(ring);
    }
}

/* Who has both roles has nobody to look at but itself: is it still attached? */
static void poll_both_looked(struct fw_ring *ring, int rc)
{
    if (rc == 0) {
        rc = fw_ring_ownership_check(ring, FW_RING_SIDE_PRODUCER);
    }
    if (rc == 0) {
        rc = fw_ring_ownership_check(ring, FW_RING_SIDE_CONSUMER);
    }
    if (rc != 0) {
        fw_ring_finish(ring, rc);
    } else {
        poll_end(ring);
    }
}

void fw_ring_produce(struct fw_ring *ring)
{
    const struct fw_ring_op *op = fw_ring_job(ring);
    ring->looked = false;
    if (op->kind == FW_RING_DROP) {
        ring->staged = producer_of(ring)->position;
        fw_ring_finish(ring, 0);
        return;
    }
    if (consumer_is_ours(ring) && op->kind != FW_RING_POLL) {
        produce_checked(ring);
        return;
    }
    bool may_write = op->kind == FW_RING_PUSH || op->kind == FW_RING_STAGE;
    if (may_write && op->size > 0 && !producer_of(ring)->flag && batch_gather(ring)) {
        produce_write(ring);
        return;
    }
    fw_ring_io_area(ring, FW_RING_SIDE_CONSUMER);
    if (op->kind == FW_RING_POLL) {
        fw_ring_io_area(ring, FW_RING_SIDE_PRODUCER);
    }
    ring->step = consumer_is_ours(ring) ? poll_both_looked : produce_looked;
}
