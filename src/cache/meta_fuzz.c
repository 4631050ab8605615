/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says arbitrary bytes to a session as lines, the first of which begins with an m: once as they
 * are, and once in pieces of a size that the first byte chooses. For every input: both are answered
 * alike (but see below), answers end where a line ends, and the session keeps no more input than it
 * may (which converse.c asserts).
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "support/converse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_MAX = 1 << 20, WALL_S = 1700000000 };

static struct converse *begin(void)
{
    struct converse *converse = converse_create();
    converse->cache.start_wall_s = WALL_S;
    converse_say(converse, "m", 1, 0);
    return converse;
}

/*
 * A line that is longer than lines may be is taken if its end came with it, and else closes the
 * connection: with memcached too it depends on how it came. So answers may differ then.
 */
static bool has_long_line(const char *bytes, size_t size)
{
    while (size >= FW_SESSION_LINE_MAX) {
        const char *end = memchr(bytes, '\n', FW_SESSION_LINE_MAX);
        if (end == NULL) {
            return true;
        }
        size -= (size_t)(end + 1 - bytes);
        bytes = end + 1;
    }
    return false;
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
    size_t length = whole->replies_length;
    const char *replies = converse_answer(whole);
    if (!has_long_line(bytes, size - 1)) {
        FW_ASSERT(pieces->replies_length == length);
        FW_ASSERT(memcmp(replies, converse_answer(pieces), length) == 0);
        FW_ASSERT(whole->is_closed == pieces->is_closed);
    }
    FW_ASSERT(length == 0 || replies[length - 1] == '\n');
    converse_destroy(whole);
    converse_destroy(pieces);
    return 0;
}
