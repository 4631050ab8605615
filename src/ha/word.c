/* SPDX-License-Identifier: Apache-2.0 */
#include "ha/word.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/endian.h"

/* "Fha1", flags, and eight numbers, all little-endian. */
#define MAGIC 0x31616846u

enum {
    ALIVE = 1 << 0,
    MASTER = 1 << 1,
    COMPLETE = 1 << 2,
    ALLOWED = 1 << 3,
    SETTLED = 1 << 4,
    HOLDS = 1 << 5,
    FREES = 1 << 6,
    CLAIMS = 1 << 7,
    KNOWN = (1 << 8) - 1,
    NUMBERS = 9,
    HEAD = 8,
};

static_assert(FW_HA_WORD_SIZE == HEAD + NUMBERS * sizeof(uint64_t), "a word is full");

void fw_ha_word_write(const struct fw_ha_word *word, char to[static FW_HA_WORD_SIZE])
{
    const struct fw_ha_standing *standing = &word->standing;
    const uint64_t numbers[NUMBERS] = {
        standing->history,
        standing->position,
        word->holder,
        word->holder_sequence,
        word->view,
        word->sequence,
        word->term,
        word->reign,
        0, /* For what is to come. */
    };
    uint32_t flags = (standing->is_alive ? ALIVE : 0U) | (standing->is_master ? MASTER : 0U) |
                     (standing->is_complete ? COMPLETE : 0U) |
                     (standing->is_allowed ? ALLOWED : 0U) | (word->is_settled ? SETTLED : 0U) |
                     (word->holds ? HOLDS : 0U) | (word->frees ? FREES : 0U) |
                     (word->claims ? CLAIMS : 0U);
    fw_le32_put(to, MAGIC);
    fw_le32_put(to + sizeof(uint32_t), flags);
    for (size_t i = 0; i < NUMBERS; i++) {
        fw_le64_put(to + HEAD + i * sizeof(uint64_t), numbers[i]);
    }
}

int fw_ha_word_read(struct fw_ha_word *word, const void *bytes, size_t size)
{
    const char *from = bytes;
    uint64_t numbers[NUMBERS];
    if (size != FW_HA_WORD_SIZE || fw_le32_get(from) != MAGIC) {
        return -EPROTO;
    }
    uint32_t flags = fw_le32_get(from + sizeof(uint32_t));
    if ((flags & ~(uint32_t)KNOWN) != 0) {
        return -EPROTO;
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        numbers[i] = fw_le64_get(from + HEAD + i * sizeof(uint64_t));
    }
    *word = (struct fw_ha_word){
        .standing = {.is_alive = (flags & ALIVE) != 0,
                     .is_master = (flags & MASTER) != 0,
                     .is_complete = (flags & COMPLETE) != 0,
                     .is_allowed = (flags & ALLOWED) != 0,
                     .history = numbers[0],
                     .position = numbers[1]},
        .is_settled = (flags & SETTLED) != 0,
        .holds = (flags & HOLDS) != 0,
        .frees = (flags & FREES) != 0,
        .claims = (flags & CLAIMS) != 0,
        .holder = numbers[2],
        .holder_sequence = numbers[3],
        .view = numbers[4],
        .sequence = numbers[5],
        .term = numbers[6],
        .reign = numbers[7],
    };
    return numbers[NUMBERS - 1] == 0 ? 0 : -EPROTO;
}
