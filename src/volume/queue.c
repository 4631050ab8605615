/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "ring/core.h"
#include "ring/inspect.h"

enum { BATCH_FIRST = 8192 };

int fw_volume_queue_make(struct fw_disk *part, struct fw_reason *reason)
{
    const struct fw_ring_create create = {.format = 2};
    uint8_t *zeroes = fw_disk_buffer(FW_RING_BLOCK);
    if (zeroes == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot make a ring");
    }
    struct fw_disk_op op = {.kind = FW_DISK_WRITE, .from = zeroes, .size = FW_RING_BLOCK};
    int rc = fw_disk_run(part, &op, reason);
    free(zeroes);
    if (rc == 0) { /* Or the old head might outlive the new states. */
        op = (struct fw_disk_op){.kind = FW_DISK_FLUSH};
        rc = fw_disk_run(part, &op, reason);
    }
    return rc == 0 ? fw_ring_create_on(part, &create, reason) : rc;
}

int fw_volume_queue_push(struct fw_ring *ring, const struct fw_volume_message *message,
                         struct fw_reason *reason)
{
    uint8_t bytes[FW_VOLUME_MESSAGE_MAX];
    size_t length = fw_volume_message_encode(message, bytes);
    return fw_ring_push(ring, bytes, length, fw_volume_ring_reason(reason));
}

int fw_volume_queue_pop(struct fw_ring *ring, struct fw_volume_message *message, uint64_t *position,
                        struct fw_reason *reason)
{
    struct fw_ring_message popped;
    int rc = fw_ring_pop(ring, &popped, position, fw_volume_ring_reason(reason));
    return rc == 0 ? fw_volume_message_decode(message, popped.data, popped.length, reason) : rc;
}

/* ---- batches ---- */

static int batch_append(struct fw_volume_batch *batch, const void *data, size_t length)
{
    if (length > batch->room - batch->length) {
        size_t room = batch->room == 0 ? BATCH_FIRST : 2 * batch->room;
        while (room - batch->length < length) {
            room *= 2;
        }
        uint8_t *bytes = realloc(batch->bytes, room);
        if (bytes == NULL) {
            return -ENOMEM;
        }
        batch->bytes = bytes;
        batch->room = room;
    }
    memcpy(batch->bytes + batch->length, data, length);
    batch->length += length;
    return 0;
}

int fw_volume_batch_add(struct fw_volume_batch *batch, const struct fw_volume_message *message)
{
    uint8_t bytes[FW_VOLUME_MESSAGE_MAX];
    return batch_append(batch, bytes, fw_volume_message_encode(message, bytes));
}

void fw_volume_batch_fini(struct fw_volume_batch *batch)
{
    free(batch->bytes);
    *batch = (struct fw_volume_batch){.bytes = NULL};
}

static size_t batch_count(const struct fw_volume_batch *batch)
{
    size_t count = 0;
    for (size_t at = 0; at < batch->length; count++) {
        at += fw_volume_message_length(batch->bytes + at, batch->length - at);
    }
    return count;
}

int fw_volume_batch_push(const struct fw_volume_batch *batch, struct fw_ring *ring, bool sync,
                         struct fw_reason *reason)
{
    size_t count = batch_count(batch);
    FW_ASSERT(count <= FW_RING_MESSAGES_MAX);
    struct fw_ring_message *messages = calloc(count + 1, sizeof *messages);
    if (messages == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot push %zu messages", count);
    }
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t length = fw_volume_message_length(batch->bytes + at, batch->length - at);
        messages[i] = (struct fw_ring_message){.data = batch->bytes + at, .length = length};
        at += length;
    }
    struct fw_ring_reason *why = fw_volume_ring_reason(reason);
    int rc = sync        ? fw_ring_sync(ring, messages, (uint32_t)count, why)
             : count > 0 ? fw_ring_push_batch(ring, messages, (uint32_t)count, why)
                         : 0;
    free(messages);
    return rc;
}

int fw_volume_batch_walk(const struct fw_volume_batch *batch,
                         int (*visit)(void *context, const struct fw_volume_message *message),
                         void *context, struct fw_reason *reason)
{
    struct fw_volume_message message;
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < batch->length;) {
        size_t length = fw_volume_message_length(batch->bytes + at, batch->length - at);
        rc = fw_volume_message_decode(&message, batch->bytes + at, length, reason);
        if (rc == 0) {
            rc = visit(context, &message);
        }
        at += length;
    }
    return rc;
}

/* ---- reading without attaching ---- */

struct reading {
    struct fw_volume_batch *batch;
    struct fw_ring_geometry geometry;
    uint64_t next; /* Where the next message must be, to be sure that none is missing. */
    uint64_t end;
    bool is_whole;
    bool has_memory;
};

static void on_head(void *context, const struct fw_ring_geometry *geometry,
                    const struct fw_ring_pointer *producer, const struct fw_ring_pointer *consumer)
{
    struct reading *reading = context;
    reading->is_whole = producer != NULL && consumer != NULL;
    if (reading->is_whole) {
        reading->geometry = *geometry;
        reading->next = consumer->position;
        reading->end = producer->position;
    }
}

static void on_message(void *context, uint64_t position, const struct fw_ring_message *message)
{
    struct reading *reading = context;
    struct fw_volume_message decoded;
    if (position != reading->next) {
        reading->is_whole = false;
        return;
    }
    reading->next += fw_ring_message_size(&reading->geometry, message->length);
    if (fw_volume_message_decode(&decoded, message->data, message->length, NULL) == 0 &&
        batch_append(reading->batch, message->data, message->length) != 0) {
        reading->has_memory = false;
    }
}

static void on_damage(void *context, const char *text)
{
    (void)context; /* Whether a message is missing is seen without it. */
    (void)text;
}

int fw_volume_queue_read(struct fw_disk *part, struct fw_volume_batch *batch,
                         struct fw_reason *reason)
{
    struct reading reading = {.batch = batch, .has_memory = true};
    const struct fw_ring_visitor visitor = {
        .head = on_head, .message = on_message, .damage = on_damage, .context = &reading};
    int rc = fw_ring_inspect(part, 0, &visitor, reason);
    if (rc < 0) {
        return rc;
    }
    if (!reading.has_memory) {
        return fw_reason_errno(reason, -ENOMEM, "cannot read a ring");
    }
    if (!reading.is_whole || reading.next != reading.end) {
        return fw_reason_set(reason, -EAGAIN, "a ring is damaged, or changed while it was read");
    }
    return 0;
}
