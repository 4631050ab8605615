/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds a session with arbitrary bytes in pieces of arbitrary size. The first byte of the input
 * chooses the size of the pieces, so that the fuzzer explores cuts as well as contents. Beyond what
 * the sanitizers see, the session must never claim bytes it did not get, and must always go on.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "cache/protocol.h"
#include "cache/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MEMORY = 2 << 20, ITEM_SIZE_MAX = 4096, NOW = 1700000000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char input[2 * FW_OLD_PROTOCOL_LINE_MAX];
    static char output[FW_OLD_PROTOCOL_REPLY_MIN + 1];
    if (size == 0) {
        return 0;
    }
    size_t piece = (size_t)data[0] + 1;
    struct fw_old_store *store;
    if (fw_old_store_create(&store, MEMORY) != 0) {
        return 0;
    }
    struct fw_old_session session;
    fw_old_session_init(&session, store, ITEM_SIZE_MAX);
    size_t length = 0;
    for (size_t offset = 1; offset < size && session.state != FW_OLD_SESSION_CLOSED;) {
        size_t part = size - offset < piece ? size - offset : piece;
        FW_ASSERT(length + part <= sizeof input);
        memcpy(input + length, data + offset, part);
        length += part;
        offset += part;
        struct fw_old_session_step step;
        do {
            step = fw_old_session_run(&session, input, length, output, sizeof output, NOW);
            FW_ASSERT(step.consumed <= length);
            FW_ASSERT(step.produced <= sizeof output);
            length -= step.consumed;
            memmove(input, input + step.consumed, length);
        } while (step.more);
        FW_ASSERT(length < FW_OLD_PROTOCOL_LINE_MAX || session.state == FW_OLD_SESSION_CLOSED);
    }
    fw_old_session_fini(&session);
    fw_old_store_destroy(store);
    return 0;
}
