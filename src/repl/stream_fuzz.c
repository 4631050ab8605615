/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a stream from a master: they are decoded, applied, waited for or refused; what has
 * to be waited for is bounded, and what came in pieces is the same as what came whole.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "repl/ages.h"
#include "repl/apply.h"
#include "support/converse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct converse *slave = converse_create();
    const char *bytes = (const char *)data;
    struct fw_repl_message message, cut;
    struct fw_repl_ageing ageing = {.cursor = 0};
    while (size > 0 && fw_repl_decode(bytes, size, &message) == FW_REPL_MESSAGE) {
        FW_ASSERT(message.size <= size && message.size <= FW_REPL_MESSAGE_MAX);
        FW_ASSERT(fw_repl_decode(bytes, message.size - 1, &cut) == FW_REPL_MORE);
        FW_ASSERT(cut.size > message.size - 1 || cut.size <= message.size);
        if (message.is_large) {
            break; /* It would have to come first. */
        }
        if (!message.is_answer) {
            int rc = message.opcode == FW_REPL_READ
                         ? fw_repl_ageing_apply(&ageing, &slave->local, &message)
                         : fw_repl_apply(&slave->local, &message);
            if (rc != 0) {
                break;
            }
        }
        bytes += message.size;
        size -= message.size;
    }
    converse_destroy(slave);
    return 0;
}
