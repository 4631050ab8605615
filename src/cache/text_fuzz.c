/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds a session with arbitrary bytes in pieces of arbitrary size. The first byte of the input
 * chooses the size of the pieces, so that the fuzzer explores cuts as well as contents. Beyond what
 * the sanitizers see, tests/support/converse.c asserts that a session never claims bytes it did not
 * get, never asks to be called for nothing, and never wants more kept than it may.
 *
 * The cache is made once and flushed between inputs, for it is large. What one input leaves behind
 * (a clock that was shifted, details that are counted) is put back, so that an input does the same
 * whenever it runs.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"
#include "cache/locks.h"
#include "support/converse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct converse *converse;
    static const char reset[] =
        "flush_all\r\nstats detail off\r\nstats reset\r\ncache_memlimit 64\r\n";
    if (converse == NULL) {
        converse = converse_create();
        converse->cache.settings.item_size_max = 32 * 1024;
        converse->cache.settings.lines_max = 7;
        converse->cache.settings.has_locking = true;
        int error = fw_locks_create(&converse->cache.locks);
        FW_ASSERT(error == 0);
    }
    if (size == 0) {
        return 0;
    }
    converse_reconnect(converse);
    converse_say(converse, reset, sizeof reset - 1, 0);
    (void)converse_answer(converse);
    converse_say(converse, (const char *)data + 1, size - 1, data[0]);
    (void)converse_answer(converse);
    converse_reconnect(converse);
    return 0;
}
