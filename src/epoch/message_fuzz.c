/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever bytes a member of a group sends, the others neither read nor write where they
 * should not, and what they take for a message they would say in the same bytes.
 * Method: the input is a series of messages, each behind its length and its sender, delivered to a
 * member that has two peers; those that can be read are written again and compared.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "epoch/coordinator.h"
#include "epoch/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void nothing(struct fw_epoch_coordinator *coordinator)
{
    (void)coordinator;
}

static void no_clock(struct fw_epoch_coordinator *coordinator, int64_t timeout_ns)
{
    FW_ASSERT(timeout_ns >= 0);
    (void)coordinator;
}

static void no_eviction(struct fw_epoch_coordinator *coordinator, uint64_t member)
{
    FW_ASSERT(fw_epoch_coordinator_peer(coordinator, member) == NULL);
}

static void started(struct fw_epoch_coordinator *coordinator, const struct fw_epoch_peer *peer,
                    char *data, size_t length)
{
    FW_ASSERT(coordinator->number > 0 && length <= FW_EPOCH_DATA_MAX);
    (void)peer;
    (void)data;
}

static const struct fw_epoch_coordinator_events events = {
    .asks = nothing,
    .synchronised = nothing,
    .lost = nothing,
    .clock = no_clock,
    .evicted = no_eviction,
    .started = started,
};

static void combine(void *combined, const void *a, size_t a_length, const void *b, size_t b_length)
{
    memmove(combined, a_length < b_length ? a : b, a_length < b_length ? a_length : b_length);
}

static void message_try(struct fw_epoch_coordinator *coordinator, uint64_t sender,
                        const uint8_t *bytes, size_t size)
{
    struct fw_epoch_message message;
    char again[FW_EPOCH_MESSAGE_MAX];
    if (fw_epoch_message_read(&message, bytes, size) != 0) {
        return;
    }
    size_t length = fw_epoch_message_write(&message, again);
    struct fw_epoch_message second;
    int rc = fw_epoch_message_read(&second, again, length);
    FW_ASSERT(rc == 0 && length == size && second.kind == message.kind);
    if (message.number < INT64_MAX) { /* An epoch that nobody will live to see. */
        fw_epoch_coordinator_deliver(coordinator, sender, &message);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fw_epoch_coordinator coordinator;
    struct fw_epoch_config config = {.timeout_ns = 1, .combine = combine};
    struct fw_group_view view = {
        .id = 1, .members = {1, 2, 3}, .count = 3, .has_joined = true, .is_quorate = true};
    int rc = fw_epoch_coordinator_init(&coordinator, 1, &config, &events);
    FW_ASSERT(rc == 0);
    fw_epoch_coordinator_view(&coordinator, &view);
    while (size >= 3) {
        size_t length = data[1] + (size_t)256 * (data[2] & 31);
        uint64_t sender = data[0] % 4;
        data += 3;
        size -= 3;
        length = length < size ? length : size;
        message_try(&coordinator, sender, data, length);
        data += length;
        size -= length;
    }
    fw_epoch_coordinator_fini(&coordinator);
    return 0;
}
