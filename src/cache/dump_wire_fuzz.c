/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds for every input: read as a line that tells of an item it is refused, or gives an item that
 * can be in a dump and that is stored by one line without a second one inside; and the same for a
 * line of a list of keys, with the line that asks for that key.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "cache/dump_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NOW = 1700000000 };

/* One line of words, and its end. */
static void look(const char *line, const char *end)
{
    FW_ASSERT(end - line > 2 && end - line <= FW_DUMP_LINE_MAX);
    FW_ASSERT(memchr(line, '\n', (size_t)(end - line)) == end - 1 && end[-2] == '\r');
    FW_ASSERT(memchr(line, '\0', (size_t)(end - line)) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char key[FW_ITEM_KEY_MAX];
    char line[FW_DUMP_LINE_MAX];
    struct fw_dump_item item;
    const char *text = (const char *)data;
    if (fw_dump_wire_read(text, size, NOW, &item, key)) {
        FW_ASSERT(item.key_length > 0 && item.key_length <= FW_ITEM_KEY_MAX);
        FW_ASSERT(item.value_length <= FW_DUMP_VALUE_MAX && (item.bits & ~FW_DUMP_BITS) == 0);
        FW_ASSERT(item.expires_s >= 0 && item.accessed_s >= 0 && item.accessed_s <= NOW);
        char *end = fw_dump_wire_put_set(line, &item, NOW, true);
        if (end != NULL) {
            look(line, end);
        } else {
            FW_ASSERT(item.expires_s == NOW);
        }
    }
    size_t length = fw_dump_wire_read_key(text, size, key);
    FW_ASSERT(length <= FW_ITEM_KEY_MAX);
    if (length > 0) {
        look(line, fw_dump_wire_put_get(line, key, length));
    }
    return 0;
}
