/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: no text crashes the parser, and what it accepts is the same address after a trip through
 * fw_address_format(). Names are not resolved, so that no run depends on a name server.
 */
#include "io/address.h"

#include <stdint.h>
#include <string.h>

#include "base/assert.h"

enum { TEXT_MAX = 512, ADDRESSES_MAX = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Formatting replaces bytes that do not print, so only texts without them come back the same. */
static bool text_prints(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == '\x7f') {
            return false;
        }
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[TEXT_MAX + 1];
    size_t length = size < TEXT_MAX ? size : TEXT_MAX;
    struct fw_address addresses[ADDRESSES_MAX];
    struct fw_reason reason = {""};

    memcpy(text, data, length);
    text[length] = '\0';
    int count = fw_address_parse(text, 11211, 0, addresses, ADDRESSES_MAX, &reason);
    FW_ASSERT(count != 0 && count <= ADDRESSES_MAX);
    FW_ASSERT((count < 0) == (reason.text[0] != '\0'));

    for (int i = 0; i < count; i++) {
        char formatted[FW_ADDRESS_TEXT_SIZE];
        struct fw_address again;
        fw_address_format(&addresses[i], formatted);
        FW_ASSERT(text_prints(formatted));
        if (text_prints(text)) {
            int again_count = fw_address_parse(formatted, 0, 0, &again, 1, NULL);
            FW_ASSERT(again_count == 1);
            FW_ASSERT(fw_address_equal(&again, &addresses[i]));
        }
    }
    return 0;
}
