/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers at any address, in the byte order that a format or protocol fixes.
 *
 * `le` is little-endian: what we write to disks and to our own peers. `be` is big-endian: the
 * protocols of others. An address need not be aligned, and a compiler makes one instruction of each
 * function. Any thread may call them.
 *
 * Why not packed structs with htole64() at every member: a forgotten conversion compiles and works
 * on every machine that we test on. Here the order is in the name of the only way to the bytes. A
 * struct without holes that is converted whole, member by member, in one place, is fine too.
 */
#pragma once

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t fw_le16_get(const void *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return le16toh(value);
}

static inline uint32_t fw_le32_get(const void *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return le32toh(value);
}

static inline uint64_t fw_le64_get(const void *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return le64toh(value);
}

static inline void fw_le16_put(void *to, uint16_t value)
{
    value = htole16(value);
    memcpy(to, &value, sizeof value);
}

static inline void fw_le32_put(void *to, uint32_t value)
{
    value = htole32(value);
    memcpy(to, &value, sizeof value);
}

static inline void fw_le64_put(void *to, uint64_t value)
{
    value = htole64(value);
    memcpy(to, &value, sizeof value);
}

static inline uint16_t fw_be16_get(const void *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return be16toh(value);
}

static inline uint32_t fw_be32_get(const void *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return be32toh(value);
}

static inline uint64_t fw_be64_get(const void *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return be64toh(value);
}

static inline void fw_be16_put(void *to, uint16_t value)
{
    value = htobe16(value);
    memcpy(to, &value, sizeof value);
}

static inline void fw_be32_put(void *to, uint32_t value)
{
    value = htobe32(value);
    memcpy(to, &value, sizeof value);
}

static inline void fw_be64_put(void *to, uint64_t value)
{
    value = htobe64(value);
    memcpy(to, &value, sizeof value);
}
