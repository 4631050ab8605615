/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says arbitrary bytes to a session that speaks the protocol of counters: once as they are, and
 * once in pieces of a size that the first byte chooses. For every input: both are answered alike;
 * what is answered is a sequence of whole replies; the session keeps no more input than it may
 * (which converse.c asserts); and when it has ended nothing is claimed and all memory is free, but
 * for that of idle counters.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "cache/binary.h"
#include "cache/counter_protocol.h"
#include "cache/counters.h"
#include "support/converse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_MAX = 1 << 20 };

static struct converse *begin(void)
{
    struct converse *converse = converse_create();
    const struct fw_counters_config config = {.memory = FW_COUNTERS_MEMORY_MIN, .interval_s = 1};
    int error = fw_counters_create(&converse->cache.counters, &config, 1);
    FW_ASSERT(error == 0);
    converse->session.protocol = FW_PROTOCOL_COUNTERS;
    return converse;
}

static void replies_check(const char *replies, size_t length)
{
    while (length > 0) {
        FW_ASSERT(length >= FW_COUNTER_HEADER);
        FW_ASSERT((uint8_t)replies[0] == FW_COUNTER_REPLY);
        uint32_t body_length = fw_be32_get(replies + 4);
        FW_ASSERT(body_length <= length - FW_COUNTER_HEADER);
        replies += FW_COUNTER_HEADER + body_length;
        length -= FW_COUNTER_HEADER + body_length;
    }
}

static void row_check(const struct fw_counters_row *row, void *context)
{
    (void)context;
    FW_ASSERT(row->consumption == 0);
}

/* destroy() checks that idle counters were all that was left. */
static void end(struct converse *converse)
{
    struct fw_counters *counters = converse->cache.counters;
    struct fw_counters_stats stats;
    uint64_t cursor = 0;
    converse_reconnect(converse);
    fw_counters_stats(counters, &stats);
    FW_ASSERT(stats.claims == 0 && stats.memory_used <= stats.memory_limit);
    while (!fw_counters_visit(counters, &cursor, 0, row_check, NULL)) {
    }
    converse_destroy(converse);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > INPUT_MAX) {
        return 0;
    }
    const char *bytes = (const char *)data + 1;
    struct converse *whole = begin();
    struct converse *pieces = begin();
    converse_say(whole, bytes, size - 1, 0);
    converse_say(pieces, bytes, size - 1, (size_t)data[0] + 1);
    size_t length = whole->replies_length;
    const char *replies = converse_answer(whole);
    replies_check(replies, length);
    FW_ASSERT(pieces->replies_length == length);
    FW_ASSERT(memcmp(replies, converse_answer(pieces), length) == 0);
    FW_ASSERT(whole->is_closed == pieces->is_closed);
    end(whole);
    end(pieces);
    return 0;
}
