/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECTOR = 512, LINE_SIZE = 256, ROOM = 4096 };

struct segment {
    bool is_placed;
    uint64_t logical;
    uint64_t count;
    uint64_t extent; /* Where it is placed, the first. */
};

struct making {
    struct fw_volume_table *table;
    const struct fw_volume_geometry *geometry;
    const char *const *devices; /* The disk, and the NBD device. */
};

static int line_add(struct fw_volume_table *table, const char *line, size_t length)
{
    if (table->length + length + 1 > table->room) {
        size_t room = 2 * table->room + ROOM;
        char *text = realloc(table->text, room);
        if (text == NULL) {
            return -ENOMEM;
        }
        table->text = text;
        table->room = room;
    }
    memcpy(table->text + table->length, line, length + 1);
    table->length += length;
    return 0;
}

static int segment_add(const struct making *making, const struct segment *segment)
{
    uint64_t sectors = making->geometry->extent_size / SECTOR;
    uint64_t at = segment->is_placed
                      ? making->geometry->data_offset / SECTOR + segment->extent * sectors
                      : segment->logical * sectors;
    char line[LINE_SIZE];
    int length = snprintf(line, sizeof line, "%" PRIu64 " %" PRIu64 " linear %s %" PRIu64 "\n",
                          segment->logical * sectors, segment->count * sectors,
                          making->devices[segment->is_placed ? 0 : 1], at);
    return length > 0 && length < LINE_SIZE ? line_add(making->table, line, (size_t)length)
                                            : -ENAMETOOLONG;
}

int fw_volume_table_make(struct fw_volume_table *table, const struct fw_volume_metadata *metadata,
                         const struct fw_volume_geometry *geometry, const char *volume,
                         const char *const devices[2])
{
    const struct making making = {.table = table, .geometry = geometry, .devices = devices};
    *table = (struct fw_volume_table){.text = NULL};
    uint32_t index = fw_volume_metadata_find(metadata, volume);
    if (index == FW_VOLUME_NONE) {
        return -ENOENT;
    }
    uint64_t size = metadata->volumes[index].size;
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < size;) {
        uint32_t first = fw_volume_metadata_at(metadata, index, i);
        struct segment segment = {
            .is_placed = first != FW_VOLUME_NONE, .logical = i, .count = 1, .extent = first};
        while (i + segment.count < size &&
               fw_volume_metadata_at(metadata, index, i + segment.count) ==
                   (segment.is_placed ? first + segment.count : FW_VOLUME_NONE)) {
            segment.count++;
        }
        rc = segment_add(&making, &segment);
        i += segment.count;
    }
    if (rc != 0) {
        fw_volume_table_fini(table);
    }
    return rc;
}

void fw_volume_table_fini(struct fw_volume_table *table)
{
    free(table->text);
    *table = (struct fw_volume_table){.text = NULL};
}
