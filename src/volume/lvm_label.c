/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/lvm_label.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/endian.h"

/* LVM's on-disk format, version 2 with text: sectors of 512 bytes, little-endian. */
enum {
    LABEL_SECTORS = 4, /* The label is in one of these. */
    AT_LABEL_CONTENTS = 20,
    AT_LABEL_TYPE = 24,
    AT_PV_AREAS = 40, /* In the label's contents: pairs of offset and size, each list ended by 0. */
    PAIR = 16,
    AT_AREA_MAGIC = 4,
    AT_AREA_START = 24,
    AT_AREA_SIZE = 32,
    AT_AREA_TEXT = 40, /* Offset and size of the text, from the area's start. */
    TEXT_MAX = 256 << 20,
};

static const uint64_t SECTOR = 512;
static const char LABEL_ID[] = "LABELONE";
static const char LABEL_TYPE[] = "LVM2 001";
static const char AREA_MAGIC[] = " LVM2 x[5A%r0N*>";

/* Reads any range; the bytes are for free(). */
static int range_read(struct fw_disk *disk, uint64_t offset, uint64_t size, uint8_t **bytes,
                      struct fw_reason *reason)
{
    const struct fw_disk_properties *properties = fw_disk_properties(disk);
    uint64_t skew = offset % properties->sector_size;
    uint64_t whole = (skew + size + properties->sector_size - 1) / properties->sector_size *
                     properties->sector_size;
    if (size == 0 || offset > properties->size || whole > properties->size - (offset - skew)) {
        return fw_reason_set(reason, -EBADMSG, "LVM's metadata are beyond the end of the device");
    }
    uint8_t *buffer = fw_disk_buffer((size_t)whole);
    if (buffer == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot read LVM's metadata");
    }
    struct fw_disk_op op = {
        .kind = FW_DISK_READ, .into = buffer, .size = (size_t)whole, .offset = offset - skew};
    int rc = fw_disk_run(disk, &op, reason);
    if (rc != 0) {
        free(buffer);
        return rc;
    }
    memmove(buffer, buffer + skew, size);
    *bytes = buffer;
    return 0;
}

static int no_group(struct fw_reason *reason)
{
    return fw_reason_set(reason, -ENOENT,
                         "there is no group of volumes; 'fairway volume format' makes one, and "
                         "'fairway volume adopt' one in a volume group of LVM's");
}

/* Where the first metadata area is. */
static int area_find(struct fw_disk *disk, uint64_t *area, struct fw_reason *reason)
{
    uint8_t *sectors = NULL;
    if (fw_disk_properties(disk)->size < LABEL_SECTORS * SECTOR) {
        return no_group(reason);
    }
    int rc = range_read(disk, 0, LABEL_SECTORS * SECTOR, &sectors, reason);
    if (rc != 0 || sectors == NULL) {
        return rc;
    }
    rc = no_group(reason);
    for (uint32_t i = 0; rc == -ENOENT && i < LABEL_SECTORS; i++) {
        const uint8_t *label = sectors + (size_t)i * SECTOR;
        uint32_t at = fw_le32_get(label + AT_LABEL_CONTENTS) + AT_PV_AREAS;
        if (memcmp(label, LABEL_ID, sizeof LABEL_ID - 1) != 0 ||
            memcmp(label + AT_LABEL_TYPE, LABEL_TYPE, sizeof LABEL_TYPE - 1) != 0) {
            continue;
        }
        while (at + 2 * PAIR <= SECTOR && fw_le64_get(label + at) != 0) { /* Of data. */
            at += PAIR;
        }
        at += PAIR;
        *area = at + PAIR <= SECTOR ? fw_le64_get(label + at) : 0;
        rc =
            *area != 0 ? 0 : fw_reason_set(reason, -EBADMSG, "the device has no metadata of LVM's");
    }
    free(sectors);
    return rc;
}

/* The text can go round the end of its area, and on behind the area's header. */
static int text_read(struct fw_disk *disk, uint64_t start, uint64_t area_size,
                     const uint64_t place[2], char **made, struct fw_reason *reason)
{
    uint64_t first = place[0] + place[1] <= area_size ? place[1] : area_size - place[0];
    uint8_t *parts[2] = {NULL, NULL};
    char *text = malloc(place[1] + 1);
    int rc = text != NULL ? range_read(disk, start + place[0], first, &parts[0], reason)
                          : fw_reason_errno(reason, -ENOMEM, "cannot read LVM's metadata");
    if (rc == 0 && first < place[1]) {
        rc = range_read(disk, start + SECTOR, place[1] - first, &parts[1], reason);
    }
    if (rc == 0 && text != NULL && parts[0] != NULL) {
        memcpy(text, parts[0], first);
        if (parts[1] != NULL) {
            memcpy(text + first, parts[1], place[1] - first);
        }
        text[place[1]] = '\0';
        *made = text;
    } else {
        free(text);
    }
    free(parts[0]);
    free(parts[1]);
    return rc;
}

int fw_volume_lvm_text(struct fw_disk *disk, char **text, struct fw_reason *reason)
{
    uint64_t area = 0;
    uint8_t *header = NULL;
    int rc = area_find(disk, &area, reason);
    if (rc == 0) {
        rc = range_read(disk, area, SECTOR, &header, reason);
    }
    if (rc != 0 || header == NULL) {
        return rc;
    }
    bool is_area = memcmp(header + AT_AREA_MAGIC, AREA_MAGIC, sizeof AREA_MAGIC - 1) == 0;
    uint64_t start = fw_le64_get(header + AT_AREA_START);
    uint64_t size = fw_le64_get(header + AT_AREA_SIZE);
    const uint64_t place[2] = {fw_le64_get(header + AT_AREA_TEXT),
                               fw_le64_get(header + AT_AREA_TEXT + 8)};
    free(header);
    if (!is_area || start != area) {
        return fw_reason_set(reason, -EBADMSG, "LVM's metadata area is damaged; try vgck");
    }
    if (place[0] == 0) {
        return fw_reason_set(reason, -ENOENT, "the device is LVM's, but in no volume group");
    }
    if (place[0] < SECTOR || place[0] >= size || place[1] == 0 || place[1] > TEXT_MAX ||
        place[1] > size - SECTOR) {
        return fw_reason_set(reason, -EBADMSG, "LVM's metadata area is damaged; try vgck");
    }
    return text_read(disk, start, size, place, text, reason);
}
