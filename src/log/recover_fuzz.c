/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: no file crashes the recovery or makes it print anything but whole lines without control
 * characters. A file of the right size is far too long for a fuzzer, so the input says how one
 * differs from an empty one: each patch is a place (which part, where in it), a length, and bytes.
 */
#include "log/recover.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/base.h"
#include "log/arena.h"

enum { INPUT_MAX = 8192, PATCH_SIZE = 4, RINGS = 1 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_line(void *context, const char *line, size_t length)
{
    (void)context;
    FW_ASSERT(length > 0 && length <= FW_LOG_LINE_MAX && line[length - 1] == '\n');
    for (size_t i = 0; i + 1 < length; i++) {
        FW_ASSERT((unsigned char)line[i] >= ' ');
    }
}

/* An arena in which nothing was ever logged. */
static void arena_make(unsigned char *contents)
{
    struct fw_log_arena arena = {.version = FW_LOG_ARENA_VERSION,
                                 .byte_order = FW_LOG_BYTE_ORDER,
                                 .ring_count = RINGS,
                                 .ring_size = FW_LOG_RING_SIZE_MIN,
                                 .dictionary_size = FW_LOG_DICTIONARY_SIZE,
                                 .anchors = {{.ns_per_tick = 1}}};
    memcpy(arena.magic, FW_LOG_ARENA_MAGIC, sizeof arena.magic);
    memcpy(contents, &arena, sizeof arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t parts[] = {0,
                            fw_log_arena_ring_offset(0),
                            fw_log_arena_ring_offset(RINGS),
                            fw_log_arena_dictionary_offset(RINGS),
                            fw_log_arena_data_offset(RINGS, FW_LOG_RING_SIZE_MIN, 0),
                            fw_log_arena_data_offset(RINGS, FW_LOG_RING_SIZE_MIN, RINGS)};
    const size_t file_size = fw_log_arena_size(RINGS, FW_LOG_RING_SIZE_MIN);
    if (size > INPUT_MAX) {
        return 0;
    }
    unsigned char *contents = calloc(1, file_size);
    FW_ASSERT(contents != NULL);
    arena_make(contents);
    while (size >= PATCH_SIZE) {
        size_t offset = parts[data[0] % FW_ARRAY_LENGTH(parts)] + data[1] + ((size_t)data[2] << 8);
        size_t length = data[3];
        data += PATCH_SIZE;
        size -= PATCH_SIZE;
        length = length < size ? length : size;
        if (offset <= file_size - length) {
            memcpy(contents + offset, data, length);
        }
        data += length;
        size -= length;
    }
    for (int layout = FW_LOG_LAYOUT_TEXT; layout <= FW_LOG_LAYOUT_JSON; layout++) {
        struct fw_log_recovered recovered;
        struct fw_reason reason;
        const struct fw_log_printer printer = {.layout = (enum fw_log_layout)layout,
                                               .print = on_line};
        int rc = fw_log_recover(contents, file_size, &printer, &recovered, &reason);
        FW_ASSERT(rc <= 0);
    }
    free(contents);
    return 0;
}
