/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of the binary protocol, written, and replies, read, byte by byte and apart from the code
 * under test, so that both cannot be wrong in the same way.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"

enum { PACKETS_SIZE = 64 * 1024, PACKET_HEADER = 24, PACKET_OPAQUE = 0x01020304 };

struct packet {
    uint8_t opcode;
    const char *key; /* Strings; NULL is empty. */
    const char *value;
    const char *extras;
    uint8_t extras_length;
    uint64_t cas;
    /* To lie with: added to what the header says. */
    int key_more, body_more;
    uint8_t magic; /* 0: the right one. */
};

/* Requests, one behind the other. */
struct packets {
    size_t length;
    char bytes[PACKETS_SIZE];
};

static inline void packets_add_number(struct packets *packets, uint64_t number, size_t size)
{
    FW_ASSERT(packets->length + size <= PACKETS_SIZE);
    for (size_t i = size; i > 0; i--) {
        packets->bytes[packets->length++] = (char)(number >> (8 * (i - 1)));
    }
}

static inline void packets_add_bytes(struct packets *packets, const char *bytes, size_t length)
{
    FW_ASSERT(packets->length + length <= PACKETS_SIZE);
    memcpy(packets->bytes + packets->length, bytes, length);
    packets->length += length;
}

static inline void packets_add(struct packets *packets, struct packet packet)
{
    const char *key = packet.key != NULL ? packet.key : "";
    const char *value = packet.value != NULL ? packet.value : "";
    size_t body_length = strlen(key) + strlen(value) + packet.extras_length;
    packets_add_number(packets, packet.magic != 0 ? packet.magic : 0x80, 1);
    packets_add_number(packets, packet.opcode, 1);
    packets_add_number(packets, strlen(key) + (size_t)packet.key_more, 2);
    packets_add_number(packets, packet.extras_length, 1);
    packets_add_number(packets, 0, 3);
    packets_add_number(packets, body_length + (size_t)packet.body_more, 4);
    packets_add_number(packets, PACKET_OPAQUE, 4);
    packets_add_number(packets, packet.cas, 8);
    packets_add_bytes(packets, packet.extras != NULL ? packet.extras : "", packet.extras_length);
    packets_add_bytes(packets, key, strlen(key));
    packets_add_bytes(packets, value, strlen(value));
}

struct packet_reply {
    uint8_t opcode;
    uint16_t status;
    uint8_t extras_length;
    uint16_t key_length;
    uint32_t body_length;
    uint64_t cas;
    const char *body;
};

static inline uint64_t packet_number(const char *bytes, size_t size)
{
    uint64_t number = 0;
    for (size_t i = 0; i < size; i++) {
        number = number << 8 | (uint8_t)bytes[i];
    }
    return number;
}

/* Reads one of `length` bytes of replies; what all have in common is asserted. */
static inline struct packet_reply packet_reply_read(const char *at, size_t length)
{
    FW_ASSERT(length >= PACKET_HEADER);
    FW_ASSERT(packet_number(at, 1) == 0x81);
    FW_ASSERT(packet_number(at + 5, 1) == 0);
    FW_ASSERT(packet_number(at + 12, 4) == PACKET_OPAQUE);
    struct packet_reply reply = {
        .opcode = (uint8_t)packet_number(at + 1, 1),
        .status = (uint16_t)packet_number(at + 6, 2),
        .extras_length = (uint8_t)packet_number(at + 4, 1),
        .key_length = (uint16_t)packet_number(at + 2, 2),
        .body_length = (uint32_t)packet_number(at + 8, 4),
        .cas = packet_number(at + 16, 8),
        .body = at + PACKET_HEADER,
    };
    FW_ASSERT(reply.body_length <= length - PACKET_HEADER);
    return reply;
}
