/* SPDX-License-Identifier: Apache-2.0 */
#include "epoch/message.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/assert.h"

#define MAGIC 0x31706546u /* "Fep1" */

enum {
    FLAG_SYNCHRONISED = 1,
    FLAG_BIG_ENDIAN = 2, /* The data, that is; the head never is. */
    FLAGS_KNOWN = FLAG_SYNCHRONISED | FLAG_BIG_ENDIAN,
};

/* The first 64 bytes. All members little-endian. */
struct head {
    uint32_t magic;
    uint16_t kind;
    uint16_t flags;
    uint64_t incarnation;
    uint64_t number;
    uint64_t timeout_ns;
    uint64_t ticket;
    uint64_t view;
    uint32_t length;
    uint32_t reserved[3];
};

static_assert(sizeof(struct head) == FW_EPOCH_MESSAGE_HEAD, "the head is what the wire says");

static bool is_big_endian(void)
{
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
}

/* How many bytes follow the head. */
static size_t tail_size(enum fw_epoch_kind kind, uint32_t length)
{
    switch (kind) {
    case FW_EPOCH_NEXT:
        return length;
    case FW_EPOCH_STATE:
        return length * sizeof(struct fw_epoch_live);
    case FW_EPOCH_LAST:
    case FW_EPOCH_TIMEOUT:
        break;
    }
    return 0;
}

size_t fw_epoch_message_write(const struct fw_epoch_message *message, char *to)
{
    size_t size = tail_size(message->kind, message->length);
    FW_ASSERT(size <= FW_EPOCH_DATA_MAX);
    uint16_t flags = message->is_synchronised ? FLAG_SYNCHRONISED : 0;
    if (is_big_endian() != message->is_foreign) {
        flags |= FLAG_BIG_ENDIAN;
    }
    struct head head = {
        .magic = htole32(MAGIC),
        .kind = htole16((uint16_t)message->kind),
        .flags = htole16(flags),
        .incarnation = htole64(message->incarnation),
        .number = htole64((uint64_t)message->number),
        .timeout_ns = htole64((uint64_t)message->timeout_ns),
        .ticket = htole64(message->ticket),
        .view = htole64(message->view),
        .length = htole32(message->length),
    };
    memcpy(to, &head, sizeof head);
    to += sizeof head;
    if (message->kind == FW_EPOCH_NEXT && size > 0) {
        memcpy(to, message->data, size);
    } else if (message->kind == FW_EPOCH_STATE) {
        for (uint32_t i = 0; i < message->length; i++, to += sizeof(struct fw_epoch_live)) {
            uint64_t pair[2] = {htole64(message->live[i].member),
                                htole64((uint64_t)message->live[i].timeout_ns)};
            memcpy(to, pair, sizeof pair);
        }
    }
    return sizeof head + size;
}

static int live_read(struct fw_epoch_message *message, const char *from)
{
    for (uint32_t i = 0; i < message->length; i++, from += sizeof(struct fw_epoch_live)) {
        uint64_t pair[2];
        memcpy(pair, from, sizeof pair);
        message->live[i] = (struct fw_epoch_live){.member = le64toh(pair[0]),
                                                  .timeout_ns = (int64_t)le64toh(pair[1])};
        bool is_rising = i == 0 || message->live[i - 1].member < message->live[i].member;
        if (!is_rising || message->live[i].timeout_ns <= 0) {
            return -EBADMSG;
        }
    }
    return 0;
}

int fw_epoch_message_read(struct fw_epoch_message *message, const void *bytes, size_t length)
{
    struct head head;
    if (length < sizeof head) {
        return -EBADMSG;
    }
    memcpy(&head, bytes, sizeof head);
    uint16_t kind = le16toh(head.kind);
    uint16_t flags = le16toh(head.flags);
    uint32_t count = le32toh(head.length);
    uint64_t number = le64toh(head.number);
    uint64_t timeout_ns = le64toh(head.timeout_ns);
    uint32_t count_max = kind == FW_EPOCH_STATE ? FW_GROUP_MEMBERS_MAX : FW_EPOCH_DATA_MAX;
    if (le32toh(head.magic) != MAGIC || kind < FW_EPOCH_NEXT || kind > FW_EPOCH_STATE ||
        (flags & ~FLAGS_KNOWN) != 0 || count > count_max || number > INT64_MAX ||
        timeout_ns > INT64_MAX || (kind == FW_EPOCH_NEXT && timeout_ns == 0) ||
        length != sizeof head + tail_size(kind, count)) {
        return -EBADMSG;
    }
    message->kind = kind;
    message->incarnation = le64toh(head.incarnation);
    message->number = (int64_t)number;
    message->timeout_ns = (int64_t)timeout_ns;
    message->ticket = le64toh(head.ticket);
    message->view = le64toh(head.view);
    message->is_synchronised = (flags & FLAG_SYNCHRONISED) != 0;
    message->is_foreign = ((flags & FLAG_BIG_ENDIAN) != 0) != is_big_endian();
    message->length = count;
    message->data = (const char *)bytes + sizeof head;
    return kind == FW_EPOCH_STATE ? live_read(message, message->data) : 0;
}
