/* SPDX-License-Identifier: Apache-2.0 */
#include "ring/inspect.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "ring/core.h"

enum { DAMAGES_MAX = INT_MAX / 2 };

struct look {
    struct fw_disk *disk;
    struct fw_ring_geometry geometry;
    const struct fw_ring_visitor *visitor;
    int damages;
    uint64_t end; /* The producer. */

    /* The bytes from `base` on. */
    uint8_t *bytes;
    size_t size;
    uint64_t base;
    uint64_t loaded;
};

static void damage(struct look *look, const char *text)
{
    look->damages += look->damages < DAMAGES_MAX ? 1 : 0;
    look->visitor->damage(look->visitor->context, text);
}

static int part_read(struct look *look, uint8_t *into, uint64_t position, uint64_t size,
                     struct fw_reason *reason)
{
    struct fw_disk_op op = {.kind = FW_DISK_READ,
                            .into = into,
                            .size = size,
                            .offset = fw_ring_disk_offset(&look->geometry, position)};
    return fw_disk_run(look->disk, &op, reason);
}

/* Has `size` bytes from `position` on in memory. */
static int bytes_load(struct look *look, uint64_t position, uint64_t size, struct fw_reason *reason)
{
    uint32_t sector = look->geometry.sector_size;
    if (position >= look->base && position + size <= look->base + look->loaded) {
        return 0;
    }
    uint64_t base = position / sector * sector;
    uint64_t need = (position + size + sector - 1) / sector * sector - base;
    uint64_t all = (look->end + sector - 1) / sector * sector - base;
    uint64_t wanted = need > FW_RING_WINDOW ? need : FW_RING_WINDOW;
    wanted = wanted < all ? wanted : all;
    if (wanted > look->size) {
        free(look->bytes);
        look->size = 0;
        look->bytes = fw_disk_buffer(wanted);
        if (look->bytes == NULL) {
            return fw_reason_errno(reason, -ENOMEM, "cannot hold %" PRIu64 " bytes", wanted);
        }
        look->size = wanted;
    }
    look->base = base;
    look->loaded = 0;
    while (look->loaded < wanted) {
        uint64_t at = base + look->loaded;
        uint64_t to_end = look->geometry.capacity - at % look->geometry.capacity;
        uint64_t part = wanted - look->loaded < to_end ? wanted - look->loaded : to_end;
        int rc = part_read(look, look->bytes + look->loaded, at, part, reason);
        if (rc != 0) {
            look->loaded = 0;
            return rc;
        }
        look->loaded += part;
    }
    return 0;
}

/*
 * Looks at one message. 0: it is sound, and `length` its length. -EBADMSG or -EMSGSIZE: it is not.
 */
static int message_look(struct look *look, uint64_t position, uint64_t *length,
                        const uint8_t **header, struct fw_reason *why)
{
    int rc = bytes_load(look, position, look->geometry.header_size, why);
    if (rc == 0) {
        *header = look->bytes + (position - look->base);
        rc = fw_ring_header_read(&look->geometry, position, look->end - position, *header, length,
                                 why);
    }
    if (rc == 0) {
        rc = bytes_load(look, position, look->geometry.header_size + *length, why);
    }
    if (rc == 0) {
        *header = look->bytes + (position - look->base);
        rc = fw_ring_message_check(&look->geometry, position, *header, *length, why);
    }
    return rc;
}

static bool is_damage(int rc)
{
    return rc == -EBADMSG || rc == -EMSGSIZE;
}

/* Where the next sound message of format 2 begins, or the end. */
static int message_search(struct look *look, uint64_t *position)
{
    uint64_t length;
    const uint8_t *header;
    int rc = -EBADMSG;
    while (is_damage(rc)) {
        *position += look->geometry.align;
        if (*position >= look->end) {
            *position = look->end;
            return 0;
        }
        rc = message_look(look, *position, &length, &header, NULL);
    }
    return rc;
}

static int messages_look(struct look *look, uint64_t position, struct fw_reason *reason)
{
    while (position < look->end) {
        uint64_t length = 0;
        const uint8_t *header = NULL;
        int rc = message_look(look, position, &length, &header, reason);
        if (rc == 0) {
            const struct fw_ring_message message = {.data = header + look->geometry.header_size,
                                                    .length = length};
            look->visitor->message(look->visitor->context, position, &message);
            position += fw_ring_message_size(&look->geometry, length);
            continue;
        }
        if (!is_damage(rc)) {
            return rc;
        }
        damage(look, reason->text);
        uint64_t from = position;
        if (look->geometry.format == 2) {
            rc = message_search(look, &position);
            if (rc != 0) {
                return fw_reason_errno(reason, rc, "cannot read on behind the damage");
            }
        } else {
            position = look->end;
        }
        char line[FW_REASON_SIZE];
        struct fw_text text;
        fw_text_init(&text, line, sizeof line);
        fw_text_printf(&text, "the bytes from %" PRIu64 " to %" PRIu64 " cannot be read", from,
                       position);
        damage(look, line);
    }
    return 0;
}

static const struct fw_ring_pointer *side_look(struct look *look, enum fw_ring_side side,
                                               struct fw_ring_pointer *pointer,
                                               struct fw_reason *reason, int *error)
{
    int rc = fw_ring_read_side(look->disk, &look->geometry, side, pointer, reason);
    if (rc == -EBADMSG) {
        damage(look, reason->text);
        return NULL;
    }
    if (rc != 0) {
        *error = rc;
        return NULL;
    }
    /* The first state of a new ring is alone. */
    if (look->geometry.format == 2 && pointer->slots_sound == 1 && pointer->sequence > 0) {
        damage(look, side == FW_RING_SIDE_PRODUCER
                         ? "blocks 1 and 2 (producer): one of the two states is torn; the "
                           "other is used"
                         : "blocks 3 and 4 (consumer): one of the two states is torn; the "
                           "other is used");
    }
    return pointer;
}

int fw_ring_inspect(struct fw_disk *disk, uint32_t sector_size,
                    const struct fw_ring_visitor *visitor, struct fw_reason *reason)
{
    struct fw_reason why;
    reason = reason != NULL ? reason : &why;
    struct look look = {.disk = disk, .visitor = visitor};
    struct fw_ring_pointer sides[2];
    if (sector_size == 0) {
        sector_size = fw_ring_sector_size(disk);
    }
    int rc = fw_ring_read_head(disk, sector_size, &look.geometry, reason);
    if (rc == -EBADMSG) {
        damage(&look, reason->text);
        return look.damages;
    }
    if (rc != 0) {
        return rc;
    }
    const struct fw_ring_pointer *producer =
        side_look(&look, FW_RING_SIDE_PRODUCER, &sides[0], reason, &rc);
    const struct fw_ring_pointer *consumer =
        side_look(&look, FW_RING_SIDE_CONSUMER, &sides[1], reason, &rc);
    if (rc != 0) {
        return rc;
    }
    visitor->head(visitor->context, &look.geometry, producer, consumer);
    if (producer != NULL && consumer != NULL) {
        if (fw_ring_pointers_check(&look.geometry, producer, consumer, reason) != 0) {
            damage(&look, reason->text);
        } else {
            look.end = producer->position;
            rc = messages_look(&look, consumer->position, reason);
        }
    }
    free(look.bytes);
    return rc != 0 ? rc : look.damages;
}
