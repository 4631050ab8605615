/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/message.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/endian.h"

/* Where the fields are. */
enum {
    AT_CRC = 0,
    AT_VERSION = 4,
    AT_KIND = 5,
    AT_FLAGS = 6,
    AT_NAME_LENGTH = 7,
    AT_HOST = 8,
    AT_RUNS = 12,
    AT_NUMBER = 16,
    AT_VALUE = 24,
    AT_UUID = 32,
};

static const struct {
    enum fw_volume_kind kind;
    const char *name;
} kinds[] = {
    {FW_VOLUME_PLACE, "place"},
    {FW_VOLUME_GIVE_BACK, "give back"},
    {FW_VOLUME_RETURN, "return"},
    {FW_VOLUME_OPEN, "open"},
    {FW_VOLUME_CLOSE, "close"},
    {FW_VOLUME_STAYS, "stays"},
    {FW_VOLUME_LEFT, "left"},
    {FW_VOLUME_FREE, "free"},
    {FW_VOLUME_KEEP, "keep"},
    {FW_VOLUME_LEAVE, "leave"},
    {FW_VOLUME_FULL, "full"},
    {FW_VOLUME_HOST_ADDED, "host added"},
    {FW_VOLUME_HOST_REMOVED, "host removed"},
    {FW_VOLUME_VOLUME_ADDED, "volume added"},
    {FW_VOLUME_VOLUME_RESIZED, "volume resized"},
    {FW_VOLUME_VOLUME_REMOVED, "volume removed"},
    {FW_VOLUME_VOLUME_OPENED, "volume opened"},
    {FW_VOLUME_VOLUME_CLOSED, "volume closed"},
    {FW_VOLUME_GRANTED, "granted"},
    {FW_VOLUME_PLACED, "placed"},
    {FW_VOLUME_FREED, "freed"},
    {FW_VOLUME_QUARANTINED, "quarantined"},
    {FW_VOLUME_COMMANDED, "commanded"},
    {FW_VOLUME_HOST_LEAVING, "host leaving"},
    {FW_VOLUME_HOST_STAYS, "host stays"},
    {FW_VOLUME_CREATE, "create"},
    {FW_VOLUME_RESIZE, "resize"},
    {FW_VOLUME_REMOVE, "remove"},
    {FW_VOLUME_CONNECT, "connect"},
    {FW_VOLUME_DISCONNECT, "disconnect"},
    {FW_VOLUME_RECLAIM, "reclaim"},
    {FW_VOLUME_FLUSH, "flush"},
    {FW_VOLUME_SHUTDOWN, "shutdown"},
    {FW_VOLUME_CANCEL, "cancel"},
};

const char *fw_volume_kind_name(enum fw_volume_kind kind)
{
    for (size_t i = 0; i < FW_ARRAY_LENGTH(kinds); i++) {
        if (kinds[i].kind == kind) {
            return kinds[i].name;
        }
    }
    return "?";
}

static bool is_kind(uint8_t kind)
{
    return fw_volume_kind_name((enum fw_volume_kind)kind)[0] != '?';
}

/* Its runs say where in a volume. */
static bool kind_places(enum fw_volume_kind kind)
{
    return kind == FW_VOLUME_PLACE || kind == FW_VOLUME_GIVE_BACK || kind == FW_VOLUME_PLACED;
}

static bool name_byte_is_valid(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || byte == '+' || byte == '_' || byte == '.' || byte == '-';
}

bool fw_volume_name_is_valid(const char *name)
{
    size_t length = strnlen(name, FW_VOLUME_NAME_MAX + 1);
    bool is_valid = length > 0 && length <= FW_VOLUME_NAME_MAX && name[0] != '-' && name[0] != '.';
    for (size_t i = 0; is_valid && i < length; i++) {
        is_valid = name_byte_is_valid(name[i]);
    }
    return is_valid;
}

int fw_volume_name_check(const char *name, struct fw_reason *reason)
{
    return fw_volume_name_is_valid(name)
               ? 0
               : fw_reason_set(reason, -EINVAL,
                               "'%.80s' is no name: up to %d letters, digits and +_.- are, not "
                               "beginning with - or .",
                               name, FW_VOLUME_NAME_MAX);
}

void fw_volume_message_init(struct fw_volume_message *message, enum fw_volume_kind kind)
{
    memset(message, 0, sizeof *message);
    message->kind = kind;
}

bool fw_volume_message_add(struct fw_volume_message *message, const struct fw_volume_run *run)
{
    FW_ASSERT(run->count > 0);
    if (message->count > 0) {
        struct fw_volume_run *last = &message->runs[message->count - 1];
        bool follows = last->extent + last->count == run->extent &&
                       last->generation == run->generation &&
                       (!kind_places(message->kind) || last->logical + last->count == run->logical);
        if (follows) {
            last->count += run->count;
            return true;
        }
    }
    if (message->count == FW_VOLUME_RUNS_MAX) {
        return false;
    }
    message->runs[message->count++] = *run;
    return true;
}

size_t fw_volume_message_encode(const struct fw_volume_message *message, uint8_t *bytes)
{
    size_t name_length = strlen(message->name);
    FW_ASSERT(message->count <= FW_VOLUME_RUNS_MAX && name_length <= FW_VOLUME_NAME_MAX);
    bytes[AT_VERSION] = FW_VOLUME_VERSION;
    bytes[AT_KIND] = (uint8_t)message->kind;
    bytes[AT_FLAGS] = (uint8_t)message->flags;
    bytes[AT_NAME_LENGTH] = (uint8_t)name_length;
    fw_le32_put(bytes + AT_HOST, message->host);
    fw_le32_put(bytes + AT_RUNS, message->count);
    fw_le64_put(bytes + AT_NUMBER, message->number);
    fw_le64_put(bytes + AT_VALUE, message->value);
    memcpy(bytes + AT_UUID, message->uuid.bytes, FW_VOLUME_UUID_SIZE);
    uint8_t *to = bytes + FW_VOLUME_HEADER_SIZE;
    memcpy(to, message->name, name_length);
    to += name_length;
    for (uint32_t i = 0; i < message->count; i++) {
        const struct fw_volume_run *run = &message->runs[i];
        fw_le64_put(to, run->extent);
        fw_le64_put(to + 8, run->count);
        fw_le64_put(to + 16, run->generation);
        fw_le64_put(to + 24, run->logical);
        to += FW_VOLUME_RUN_SIZE;
    }
    size_t length = (size_t)(to - bytes);
    fw_le32_put(bytes + AT_CRC, fw_crc32c(0, bytes + AT_VERSION, length - AT_VERSION));
    return length;
}

size_t fw_volume_message_length(const void *data, size_t size)
{
    const uint8_t *bytes = data;
    if (size < FW_VOLUME_HEADER_SIZE) {
        return 0;
    }
    uint32_t runs = fw_le32_get(bytes + AT_RUNS);
    if (runs > FW_VOLUME_RUNS_MAX || bytes[AT_NAME_LENGTH] > FW_VOLUME_NAME_MAX) {
        return 0;
    }
    size_t length =
        FW_VOLUME_HEADER_SIZE + bytes[AT_NAME_LENGTH] + (size_t)runs * FW_VOLUME_RUN_SIZE;
    return length <= size ? length : 0;
}

static bool run_is_valid(const struct fw_volume_run *run, bool places)
{
    const uint64_t max = FW_VOLUME_EXTENTS_MAX;
    return run->count > 0 && run->count <= max && run->extent <= max - run->count &&
           run->logical <= max - run->count && (places || run->logical == 0);
}

static int runs_decode(struct fw_volume_message *message, const uint8_t *from,
                       struct fw_reason *reason)
{
    for (uint32_t i = 0; i < message->count; i++) {
        struct fw_volume_run *run = &message->runs[i];
        run->extent = fw_le64_get(from);
        run->count = fw_le64_get(from + 8);
        run->generation = fw_le64_get(from + 16);
        run->logical = fw_le64_get(from + 24);
        from += FW_VOLUME_RUN_SIZE;
        if (!run_is_valid(run, kind_places(message->kind))) {
            return fw_reason_set(reason, -EBADMSG,
                                 "run %" PRIu32 " of a message '%s' has %" PRIu64
                                 " extents at %" PRIu64 " for %" PRIu64 ", which cannot be",
                                 i, fw_volume_kind_name(message->kind), run->count, run->extent,
                                 run->logical);
        }
    }
    return 0;
}

int fw_volume_message_decode(struct fw_volume_message *message, const void *data, size_t length,
                             struct fw_reason *reason)
{
    const uint8_t *bytes = data;
    if (length == 0 || fw_volume_message_length(data, length) != length) {
        return fw_reason_set(reason, -EBADMSG, "a message of %zu bytes has another length", length);
    }
    if (fw_le32_get(bytes + AT_CRC) != fw_crc32c(0, bytes + AT_VERSION, length - AT_VERSION)) {
        return fw_reason_set(reason, -EBADMSG, "the checksum of a message is wrong");
    }
    if (bytes[AT_VERSION] != FW_VOLUME_VERSION || !is_kind(bytes[AT_KIND])) {
        return fw_reason_set(reason, -EBADMSG,
                             "a message of version %d and kind %d; was it made by a newer program?",
                             bytes[AT_VERSION], bytes[AT_KIND]);
    }
    fw_volume_message_init(message, (enum fw_volume_kind)bytes[AT_KIND]);
    message->flags = bytes[AT_FLAGS];
    message->host = fw_le32_get(bytes + AT_HOST);
    message->count = fw_le32_get(bytes + AT_RUNS);
    message->number = fw_le64_get(bytes + AT_NUMBER);
    message->value = fw_le64_get(bytes + AT_VALUE);
    memcpy(message->uuid.bytes, bytes + AT_UUID, FW_VOLUME_UUID_SIZE);
    memcpy(message->name, bytes + FW_VOLUME_HEADER_SIZE, bytes[AT_NAME_LENGTH]);
    bool is_named = bytes[AT_NAME_LENGTH] > 0;
    if (is_named && (strlen(message->name) != bytes[AT_NAME_LENGTH] ||
                     !fw_volume_name_is_valid(message->name))) {
        return fw_reason_set(reason, -EBADMSG, "a name in a message '%s' cannot be one",
                             fw_volume_kind_name(message->kind));
    }
    if (message->flags > (FW_VOLUME_SYNC | FW_VOLUME_FIRST | FW_VOLUME_LAST) ||
        message->host >= FW_VOLUME_HOSTS_MAX) {
        return fw_reason_set(reason, -EBADMSG, "a message '%s' has flags %#x and host %" PRIu32,
                             fw_volume_kind_name(message->kind), message->flags, message->host);
    }
    return runs_decode(message, bytes + FW_VOLUME_HEADER_SIZE + bytes[AT_NAME_LENGTH], reason);
}
