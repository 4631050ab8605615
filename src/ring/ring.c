/* SPDX-License-Identifier: Apache-2.0 */
#include "ring/core.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "io/clock.h"

FW_LOG_MODULE(ring);

static_assert(sizeof(struct fw_ring_reason) == sizeof(struct fw_reason),
              "a public reason is a private one by another name");

/* A thread in a blocking call. */
struct waiter {
    struct fw_parker parker;
    struct fw_list_link link;
};

/* ---- waves ---- */

static void io_failed(struct fw_ring *ring, const struct fw_disk_op *op)
{
    if (ring->io_error == 0) {
        ring->io_error = fw_disk_explain(ring->disk, op, &ring->reason);
    }
}

static void io_done(struct fw_disk_op *op)
{
    struct fw_ring *ring = FW_CONTAINER_OF(op, struct fw_ring_io, op)->ring;
    FW_ASSERT(ring->io_pending > 0);
    ring->io_pending--;
    if (op->result != 0) {
        io_failed(ring, op);
    }
}

void fw_ring_io(struct fw_ring *ring, const struct fw_disk_op *op)
{
    FW_ASSERT(ring->io_count < FW_RING_IOS);
    struct fw_ring_io *io = &ring->ios[ring->io_count++];
    io->op = *op;
    io->op.done = io_done;
    io->ring = ring;
    int rc = fw_disk_start(ring->disk, &io->op);
    if (rc == -EINPROGRESS) {
        ring->io_pending++;
    } else if (rc != 0) {
        io_failed(ring, &io->op);
    }
}

void fw_ring_io_area(struct fw_ring *ring, enum fw_ring_side side)
{
    struct fw_disk_op op = {.kind = FW_DISK_READ,
                            .into = ring->area_in[side],
                            .size = fw_ring_area_size(&ring->geometry),
                            .offset = fw_ring_area_offset(&ring->geometry, side)};
    fw_ring_io(ring, &op);
}

void fw_ring_io_flush(struct fw_ring *ring)
{
    struct fw_disk_op op = {.kind = FW_DISK_FLUSH};
    fw_ring_io(ring, &op);
}

uint32_t fw_ring_io_data(struct fw_ring *ring, enum fw_disk_kind kind, uint8_t *bytes,
                         uint64_t position, uint64_t size, bool sync)
{
    const struct fw_ring_geometry *geometry = &ring->geometry;
    uint64_t to_end = geometry->capacity - position % geometry->capacity;
    uint64_t first = size < to_end ? size : to_end;
    bool is_one = first == size;
    struct fw_disk_op op = {.kind = kind,
                            .sync = kind == FW_DISK_WRITE && sync && is_one,
                            .into = bytes,
                            .size = first,
                            .offset = fw_ring_disk_offset(geometry, position)};
    fw_ring_io(ring, &op);
    if (!is_one) {
        op.into = bytes + first;
        op.size = size - first;
        op.offset = geometry->data_offset;
        fw_ring_io(ring, &op);
    }
    return is_one ? 1 : 2;
}

/* ---- states ---- */

static void state_durable(struct fw_ring *ring, int rc)
{
    enum fw_ring_side side = ring->writing.side;
    if (rc != 0) {
        ring->broken = rc; /* It may be there, or not. */
    } else {
        ring->sides[side] = ring->writing.pointer;
        ring->written_ns[side] = fw_clock_now_ns();
    }
    ring->writing.then(ring, rc);
}

static void state_written(struct fw_ring *ring, int rc)
{
    if (rc != 0 || (ring->flags & FW_RING_FUA) != 0) {
        state_durable(ring, rc);
        return;
    }
    fw_ring_io_flush(ring);
    ring->step = state_durable;
}

void fw_ring_state_write(struct fw_ring *ring, enum fw_ring_side side, uint64_t position, bool flag,
                         void (*then)(struct fw_ring *ring, int rc))
{
    const struct fw_ring_names names = {.queue = ring->queue, .client = ring->client};
    struct fw_ring_pointer *pointer = &ring->writing.pointer;
    *pointer = ring->sides[side];
    pointer->position = position;
    pointer->flag = flag;
    pointer->sequence++;
    pointer->beat++;
    pointer->owner = ring->owner;
    pointer->host = ring->host;
    ring->writing.side = side;
    ring->writing.then = then;
    struct fw_disk_op op = {
        .kind = FW_DISK_WRITE,
        .sync = (ring->flags & FW_RING_FUA) != 0,
        .from = ring->state_out,
        .size = ring->geometry.sector_size,
        .offset = fw_ring_pointer_write(&ring->geometry, side, pointer, &names, ring->state_out)};
    fw_ring_io(ring, &op);
    ring->step = state_written;
}

int fw_ring_side_take(struct fw_ring *ring, enum fw_ring_side side)
{
    struct fw_ring_pointer pointer;
    int rc =
        fw_ring_pointer_read(&ring->geometry, side, ring->area_in[side], &pointer, &ring->reason);
    if (rc != 0) {
        return rc;
    }
    bool is_consumer = side == FW_RING_SIDE_CONSUMER;
    const struct fw_ring_pointer *producer =
        is_consumer ? &ring->sides[FW_RING_SIDE_PRODUCER] : &pointer;
    const struct fw_ring_pointer *consumer =
        is_consumer ? &pointer : &ring->sides[FW_RING_SIDE_CONSUMER];
    rc = fw_ring_pointers_check(&ring->geometry, producer, consumer, &ring->reason);
    uint64_t safe = is_consumer ? ring->consumer_safe : ring->producer_safe;
    if (rc == 0 && pointer.position < safe) {
        rc = fw_reason_set(&ring->reason, -EBADMSG,
                           "the %s went back from %" PRIu64 " to %" PRIu64 "; was the ring made "
                           "anew?",
                           is_consumer ? "consumer" : "producer", safe, pointer.position);
    }
    if (rc == 0) {
        ring->sides[side] = pointer;
    }
    return rc;
}

bool fw_ring_beat_is_due(const struct fw_ring *ring, enum fw_ring_side side)
{
    int64_t age_ns = fw_clock_now_ns() - ring->written_ns[side];
    return ring->geometry.format == 2 && age_ns >= (int64_t)FW_RING_BEAT_MS * FW_NS_PER_MS / 2;
}

int fw_ring_ownership_check(struct fw_ring *ring, enum fw_ring_side side)
{
    struct fw_ring_pointer pointer;
    if (ring->geometry.format == 1) {
        return 0;
    }
    int rc =
        fw_ring_pointer_read(&ring->geometry, side, ring->area_in[side], &pointer, &ring->reason);
    if (rc == 0 && pointer.owner != ring->owner) {
        rc = fw_reason_set(&ring->reason, -ESTALE,
                           "another host has taken over the %s's role of this ring",
                           side == FW_RING_SIDE_PRODUCER ? "producer" : "consumer");
        ring->broken = rc;
    }
    return rc;
}

int fw_ring_window_reserve(struct fw_ring *ring, struct fw_ring_window *window, uint64_t size)
{
    window->base = 0;
    window->end = 0;
    window->whole = false;
    if (window->size >= size) {
        return 0;
    }
    uint8_t *bytes = fw_disk_buffer(size);
    if (bytes == NULL) {
        return fw_reason_errno(&ring->reason, -ENOMEM, "cannot hold %" PRIu64 " bytes", size);
    }
    free(window->bytes);
    window->bytes = bytes;
    window->size = size;
    return 0;
}

/* ---- jobs ---- */

struct fw_ring_op *fw_ring_job(struct fw_ring *ring)
{
    return FW_LIST_ENTRY(fw_list_first(&ring->batch), struct fw_ring_op, link);
}

static void op_finish(struct fw_ring *ring, struct fw_ring_op *op, int result)
{
    op->result = result;
    if (result < 0 && op->reason != NULL) {
        memcpy(op->reason->text, ring->reason.text, sizeof op->reason->text);
    }
    if (op->waiter != NULL) {
        struct waiter *waiter = op->waiter;
        fw_unpark(&waiter->parker); /* It needs the lock to go away. */
    } else {
        fw_list_push_back(&ring->finished, &op->link);
    }
}

void fw_ring_finish(struct fw_ring *ring, int result)
{
    struct fw_list_link *link;
    while ((link = fw_list_pop_front(&ring->batch)) != NULL) {
        op_finish(ring, FW_LIST_ENTRY(link, struct fw_ring_op, link), result);
    }
}

/* What the messages of the operation take; more than there can be, if one is too long. */
static uint64_t op_size(const struct fw_ring *ring, const struct fw_ring_op *op)
{
    uint64_t size = 0;
    for (uint32_t i = 0; i < op->count; i++) {
        if (op->messages[i].length > ring->geometry.message_max) {
            return UINT64_MAX;
        }
        size += fw_ring_message_size(&ring->geometry, op->messages[i].length);
    }
    return size;
}

static bool kind_is_producers(const struct fw_ring *ring, enum fw_ring_kind kind)
{
    return kind <= FW_RING_SYNC || (kind == FW_RING_POLL && (ring->role & FW_RING_PRODUCER) != 0);
}

static int op_check(struct fw_ring *ring, const struct fw_ring_op *op)
{
    unsigned role = op->kind == FW_RING_POLL
                        ? ring->role
                        : (kind_is_producers(ring, op->kind) ? FW_RING_PRODUCER : FW_RING_CONSUMER);
    if (ring->broken != 0) {
        return fw_reason_errno(&ring->reason, ring->broken,
                               "the ring cannot be used any more since a write failed; detach");
    }
    bool needs_other =
        op->kind == FW_RING_SYNC || op->kind == FW_RING_SUSPEND || op->kind == FW_RING_RESUME;
    if ((ring->role & role) == 0 || (needs_other && ring->role == FW_RING_BOTH)) {
        return fw_reason_set(&ring->reason, -EINVAL, "that is not for the role attached in");
    }
    if (op->count > FW_RING_MESSAGES_MAX) {
        return fw_reason_set(&ring->reason, -EINVAL, "at most %d messages can be pushed at once",
                             FW_RING_MESSAGES_MAX);
    }
    return 0;
}

/* Takes the next operation and makes its first step. False if there is none. */
static bool job_begin(struct fw_ring *ring)
{
    struct fw_list_link *link = fw_list_pop_front(&ring->queued);
    if (link == NULL) {
        return false;
    }
    struct fw_ring_op *op = FW_LIST_ENTRY(link, struct fw_ring_op, link);
    fw_list_push_back(&ring->batch, link);
    int rc = op_check(ring, op);
    ring->io_count = 0;
    if (rc != 0) {
        fw_ring_finish(ring, rc);
    } else if (kind_is_producers(ring, op->kind)) {
        fw_ring_produce(ring);
    } else {
        fw_ring_consume(ring);
    }
    return true;
}

/* Goes on until the disk has to be waited for or nothing is left to do. Under the lock. */
static void ring_drive(struct fw_ring *ring)
{
    while (ring->io_pending == 0) {
        if (ring->step != NULL) {
            void (*step)(struct fw_ring *, int) = ring->step;
            int rc = ring->io_error;
            ring->step = NULL;
            ring->io_error = 0;
            ring->io_count = 0;
            step(ring, rc);
        } else if (!job_begin(ring)) {
            break;
        }
        FW_ASSERT(ring->step != NULL || (ring->io_pending == 0 && fw_list_is_empty(&ring->batch)));
    }
}

static void op_prepare(const struct fw_ring *ring, struct fw_ring_op *op, void *waiter)
{
    fw_list_link_init(&op->link);
    op->waiter = waiter;
    op->result = -EINPROGRESS;
    op->size = op->kind <= FW_RING_SYNC ? op_size(ring, op) : 0;
}

int fw_ring_start(struct fw_ring *ring, struct fw_ring_op *op)
{
    FW_ASSERT(op->done != NULL);
    op_prepare(ring, op, NULL);
    fw_mutex_lock(&ring->lock);
    FW_ASSERT(!ring->driven); /* One way or the other. */
    fw_list_push_back(&ring->queued, &op->link);
    ring_drive(ring);
    int rc = op->result;
    if (rc != -EINPROGRESS) {
        fw_list_remove(&op->link);
    }
    fw_mutex_unlock(&ring->lock);
    return rc;
}

int fw_ring_reap(struct fw_ring *ring)
{
    int count = 0;
    (void)fw_disk_poll(ring->disk);
    fw_mutex_lock(&ring->lock);
    FW_ASSERT(!ring->driven);
    ring_drive(ring);
    struct fw_list_link *link;
    while ((link = fw_list_pop_front(&ring->finished)) != NULL) {
        struct fw_ring_op *op = FW_LIST_ENTRY(link, struct fw_ring_op, link);
        fw_mutex_unlock(&ring->lock);
        op->done(op);
        count++;
        fw_mutex_lock(&ring->lock);
    }
    fw_mutex_unlock(&ring->lock);
    return count;
}

int fw_ring_fd(const struct fw_ring *ring)
{
    return fw_disk_fd(ring->disk);
}

/* Makes steps until `op` is over; waits for the disk without the lock. */
static void ring_drive_until(struct fw_ring *ring, const struct fw_ring_op *op)
    FW_REQUIRES(ring->lock);

static void ring_drive_until(struct fw_ring *ring, const struct fw_ring_op *op)
{
    ring->driven = true;
    for (ring_drive(ring); op->result == -EINPROGRESS; ring_drive(ring)) {
        fw_mutex_unlock(&ring->lock);
        fw_disk_drain(ring->disk);
        fw_mutex_lock(&ring->lock);
    }
    ring->driven = false;
}

int fw_ring_run(struct fw_ring *ring, struct fw_ring_op *op, struct fw_ring_reason *reason)
{
    struct waiter waiter;
    fw_parker_init(&waiter.parker);
    fw_list_link_init(&waiter.link);
    op->reason = reason;
    op_prepare(ring, op, &waiter);
    fw_mutex_lock(&ring->lock);
    fw_list_push_back(&ring->queued, &op->link);
    fw_list_push_back(&ring->waiters, &waiter.link);
    while (op->result == -EINPROGRESS) {
        if (!ring->driven) {
            ring_drive_until(ring, op);
        } else {
            fw_mutex_unlock(&ring->lock);
            fw_park(&waiter.parker);
            fw_mutex_lock(&ring->lock);
        }
    }
    fw_list_remove(&waiter.link);
    if (!ring->driven && !fw_list_is_empty(&ring->waiters)) {
        struct waiter *next = FW_LIST_ENTRY(fw_list_first(&ring->waiters), struct waiter, link);
        fw_unpark(&next->parker); /* Somebody has to go on driving. */
    }
    fw_mutex_unlock(&ring->lock);
    return op->result;
}

/* ---- the blocking forms ---- */

int fw_ring_push(struct fw_ring *ring, const void *data, size_t length,
                 struct fw_ring_reason *reason)
{
    const struct fw_ring_message message = {.data = data, .length = length};
    return fw_ring_push_batch(ring, &message, 1, reason);
}

int fw_ring_push_batch(struct fw_ring *ring, const struct fw_ring_message *messages, uint32_t count,
                       struct fw_ring_reason *reason)
{
    struct fw_ring_op op = {.kind = FW_RING_PUSH, .messages = messages, .count = count};
    return fw_ring_run(ring, &op, reason);
}

int fw_ring_stage(struct fw_ring *ring, const void *data, size_t length,
                  struct fw_ring_reason *reason)
{
    const struct fw_ring_message message = {.data = data, .length = length};
    struct fw_ring_op op = {.kind = FW_RING_STAGE, .messages = &message, .count = 1};
    return fw_ring_run(ring, &op, reason);
}

int fw_ring_publish(struct fw_ring *ring, struct fw_ring_reason *reason)
{
    return fw_ring_run(ring, &(struct fw_ring_op){.kind = FW_RING_PUBLISH}, reason);
}

int fw_ring_drop(struct fw_ring *ring, struct fw_ring_reason *reason)
{
    return fw_ring_run(ring, &(struct fw_ring_op){.kind = FW_RING_DROP}, reason);
}

int fw_ring_sync(struct fw_ring *ring, const struct fw_ring_message *messages, uint32_t count,
                 struct fw_ring_reason *reason)
{
    struct fw_ring_op op = {.kind = FW_RING_SYNC, .messages = messages, .count = count};
    return fw_ring_run(ring, &op, reason);
}

int fw_ring_pop(struct fw_ring *ring, struct fw_ring_message *message, uint64_t *position,
                struct fw_ring_reason *reason)
{
    struct fw_ring_op op = {.kind = FW_RING_POP};
    int rc = fw_ring_run(ring, &op, reason);
    if (rc == 0) {
        *message = op.message;
        *position = op.position;
    }
    return rc;
}

int fw_ring_advance(struct fw_ring *ring, uint64_t position, struct fw_ring_reason *reason)
{
    struct fw_ring_op op = {.kind = FW_RING_ADVANCE, .position = position};
    return fw_ring_run(ring, &op, reason);
}

int fw_ring_suspend(struct fw_ring *ring, struct fw_ring_reason *reason)
{
    return fw_ring_run(ring, &(struct fw_ring_op){.kind = FW_RING_SUSPEND}, reason);
}

int fw_ring_resume(struct fw_ring *ring, struct fw_ring_reason *reason)
{
    return fw_ring_run(ring, &(struct fw_ring_op){.kind = FW_RING_RESUME}, reason);
}

int fw_ring_poll(struct fw_ring *ring, struct fw_ring_reason *reason)
{
    return fw_ring_run(ring, &(struct fw_ring_op){.kind = FW_RING_POLL}, reason);
}

void fw_ring_state(struct fw_ring *ring, struct fw_ring_state *state)
{
    const struct fw_ring_geometry *geometry = &ring->geometry;
    fw_mutex_lock(&ring->lock);
    *state = (struct fw_ring_state){
        .format = geometry->format,
        .sector_size = geometry->sector_size,
        .capacity = geometry->capacity,
        .message_max = geometry->message_max,
        .producer = ring->sides[FW_RING_SIDE_PRODUCER].position,
        .consumer = ring->sides[FW_RING_SIDE_CONSUMER].position,
        .suspend_requested = ring->sides[FW_RING_SIDE_CONSUMER].flag,
        .suspend_acknowledged = ring->sides[FW_RING_SIDE_PRODUCER].flag,
        .direct = fw_disk_properties(ring->disk)->direct,
    };
    fw_mutex_unlock(&ring->lock);
}
