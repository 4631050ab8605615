/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says arbitrary bytes to a session that speaks the binary protocol, with yrmcds' extensions: once
 * as they are, and once in pieces of a size that the first byte chooses. For every input: both are
 * answered alike; what is answered is a sequence of whole replies; and the session keeps no more
 * input than it may (which converse.c asserts).
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cache/binary.h"
#include "cache/locks.h"
#include "support/converse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_MAX = 1 << 20, WALL_S = 1700000000 };

static struct converse *begin(void)
{
    struct converse *converse = converse_create();
    converse->cache.start_wall_s = WALL_S;
    converse->cache.settings.has_locking = true;
    int error = fw_locks_create(&converse->cache.locks);
    FW_ASSERT(error == 0);
    converse->session.protocol = FW_PROTOCOL_BINARY;
    return converse;
}

static void replies_check(const char *replies, size_t length)
{
    while (length > 0) {
        FW_ASSERT(length >= FW_BINARY_HEADER);
        FW_ASSERT((uint8_t)replies[0] == FW_BINARY_REPLY);
        uint64_t first = fw_be64_get(replies);
        uint32_t body_length = fw_be32_get(replies + 8);
        uint32_t key_length = (uint32_t)(first >> 32) & UINT16_MAX;
        uint32_t extras_length = (uint32_t)(first >> 24) & UINT8_MAX;
        FW_ASSERT(key_length + extras_length <= body_length);
        FW_ASSERT(body_length <= length - FW_BINARY_HEADER);
        replies += FW_BINARY_HEADER + body_length;
        length -= FW_BINARY_HEADER + body_length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > INPUT_MAX) {
        return 0;
    }
    size_t piece = (size_t)data[0] + 1;
    const char *bytes = (const char *)data + 1;
    struct converse *whole = begin();
    struct converse *pieces = begin();
    converse_say(whole, bytes, size - 1, 0);
    converse_say(pieces, bytes, size - 1, piece);
    FW_ASSERT(whole->replies_length == pieces->replies_length);
    FW_ASSERT(whole->is_closed == pieces->is_closed);
    size_t length = whole->replies_length;
    const char *replies = converse_answer(whole);
    FW_ASSERT(memcmp(replies, converse_answer(pieces), length) == 0);
    replies_check(replies, length);
    converse_destroy(whole);
    converse_destroy(pieces);
    return 0;
}
