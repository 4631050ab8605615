/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksum as the processor computes it beside our own tables, over what we checksum: a page
 * of a disk (4 KiB in n ns are 3815 / n GiB/s), a small header, a large value.
 */
#include <stdint.h>

#include "base/base.h"
#include "base/crc32c.h"
#include "bench/harness.h"

struct piece {
    size_t length;
    uint32_t crc; /* Each checksum starts from the one before, so that none overlaps the next. */
};

static unsigned char data[1 << 18];

static void chosen_run(void *state, uint64_t count)
{
    struct piece *piece = state;
    for (uint64_t i = 0; i < count; i++) {
        piece->crc = fw_crc32c(piece->crc, data, piece->length);
    }
}

static void table_run(void *state, uint64_t count)
{
    struct piece *piece = state;
    for (uint64_t i = 0; i < count; i++) {
        piece->crc = fw_crc32c_table(piece->crc, data, piece->length);
    }
}

int main(int argc, char **argv)
{
    struct piece header = {.length = 40}, page = {.length = 4096}, value = {.length = sizeof data};
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (unsigned char)(i * 131 >> 3);
    }
    const struct fw_bench benches[] = {
        {
            .name = "base-crc32c-page",
            .unit = "ns per 4 KiB",
            .ours = {"fw_crc32c", chosen_run, &page},
            .peer = {"tables, 8 bytes a step", table_run, &page},
            .bar = 0.15,
            .count = 20000,
        },
        {
            .name = "base-crc32c-header",
            .unit = "ns per 40 bytes",
            .ours = {"fw_crc32c", chosen_run, &header},
            .peer = {"tables, 8 bytes a step", table_run, &header},
            .bar = 0.5,
            .count = 1000000,
        },
        {
            .name = "base-crc32c-value",
            .unit = "ns per 256 KiB",
            .ours = {"fw_crc32c", chosen_run, &value},
            .peer = {"tables, 8 bytes a step", table_run, &value},
            .bar = 0.15,
            .count = 300,
        },
    };
    return fw_bench_main(argc, argv, benches, FW_ARRAY_LENGTH(benches));
}
