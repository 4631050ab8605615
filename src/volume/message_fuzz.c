/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: no bytes make the decoder or what takes messages in crash, and none are believed that
 * cannot be. What is decoded is encoded again to the same bytes. Then it is taken in as a host's
 * message, and as a change, by small metadata with a volume and two hosts: whatever it was, the
 * metadata add up afterwards, and what was taken in from the host is nothing when it comes again.
 *
 * The input is messages one behind the other; the checksum of each is made right first, so that
 * what is behind it is reached.
 */
#include <endian.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "volume/metadata.h"

enum { EXTENTS = 64, INPUT_MAX = 16384 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int forget(void *context, const struct fw_volume_message *change)
{
    (void)context;
    (void)change;
    return 0;
}

static const struct fw_volume_sink nowhere = {.take = forget};

static void metadata_make(struct fw_volume_metadata *metadata)
{
    static const enum fw_volume_kind kinds[] = {FW_VOLUME_HOST_ADDED, FW_VOLUME_HOST_ADDED,
                                                FW_VOLUME_VOLUME_ADDED, FW_VOLUME_GRANTED};
    struct fw_volume_message change;
    int rc = fw_volume_metadata_init(metadata, EXTENTS);
    FW_ASSERT(rc == 0);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(kinds); i++) {
        const struct fw_volume_run run = {.extent = 0, .count = 32, .generation = 1};
        fw_volume_message_init(&change, kinds[i]);
        change.host = i < 2 ? (uint32_t)i : 0;
        change.value = kinds[i] == FW_VOLUME_VOLUME_ADDED ? 16 : 0;
        change.name[0] = (char)('a' + i);
        if (kinds[i] == FW_VOLUME_GRANTED) {
            (void)fw_volume_message_add(&change, &run);
        }
        rc = fw_volume_metadata_change(metadata, &change, &nowhere);
        FW_ASSERT(rc == 0);
    }
}

static void message_try(struct fw_volume_metadata *metadata,
                        const struct fw_volume_message *message)
{
    struct fw_volume_receipt receipt;
    int rc = fw_volume_metadata_receive(metadata, 0, message, &nowhere, &receipt, NULL);
    if (rc == 0) {
        uint64_t number = metadata->number;
        rc = fw_volume_metadata_receive(metadata, 0, message, &nowhere, &receipt, NULL);
        FW_ASSERT(rc == 0 && receipt.done + receipt.set_aside == 0 && metadata->number == number);
    }
    rc = fw_volume_metadata_check(metadata, NULL);
    FW_ASSERT(rc == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[INPUT_MAX], again[FW_VOLUME_MESSAGE_MAX];
    struct fw_volume_message message;
    struct fw_volume_metadata metadata, changed;
    size = size < INPUT_MAX ? size : INPUT_MAX;
    memcpy(bytes, data, size);
    metadata_make(&metadata);
    metadata_make(&changed);
    for (size_t at = 0; at < size;) {
        size_t length = fw_volume_message_length(bytes + at, size - at);
        if (length == 0) {
            break;
        }
        uint32_t crc = htole32(fw_crc32c(0, bytes + at + 4, length - 4));
        memcpy(bytes + at, &crc, sizeof crc);
        if (fw_volume_message_decode(&message, bytes + at, length, NULL) == 0) {
            FW_ASSERT(fw_volume_message_encode(&message, again) == length);
            FW_ASSERT(memcmp(bytes + at, again, length) == 0);
            message_try(&metadata, &message);
            message.number = message.number == 0 ? 0 : changed.number + 1;
            (void)!fw_volume_metadata_apply(&changed, &message, NULL);
        }
        at += length;
    }
    int rc = fw_volume_metadata_check(&changed, NULL);
    FW_ASSERT(rc == 0);
    fw_volume_metadata_fini(&metadata);
    fw_volume_metadata_fini(&changed);
    return 0;
}
