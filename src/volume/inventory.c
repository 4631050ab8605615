/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes over all of the metadata: snapshots, free lists, grants, the check.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "volume/metadata.h"

/* ---- snapshots ---- */

static int snapshot_hosts(const struct fw_volume_metadata *metadata,
                          const struct fw_volume_sink *sink, struct fw_volume_message *change)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < FW_VOLUME_HOSTS_MAX; i++) {
        if (metadata->hosts[i].is_used) {
            fw_volume_message_init(change, FW_VOLUME_HOST_ADDED);
            change->host = i;
            change->value = metadata->hosts[i].leaving;
            memcpy(change->name, metadata->hosts[i].name, sizeof change->name);
            rc = sink->take(sink->context, change);
        }
    }
    return rc;
}

static int snapshot_volume(const struct fw_volume_entry *entry, const struct fw_volume_sink *sink,
                           struct fw_volume_message *change)
{
    fw_volume_message_init(change, FW_VOLUME_VOLUME_ADDED);
    change->value = entry->size;
    change->uuid = entry->uuid;
    memcpy(change->name, entry->name, sizeof change->name);
    int rc = sink->take(sink->context, change);
    for (uint32_t host = 0; rc == 0 && host < FW_VOLUME_HOSTS_MAX; host++) {
        if ((entry->users >> host & 1) != 0) {
            fw_volume_message_init(change, FW_VOLUME_VOLUME_OPENED);
            change->uuid = entry->uuid;
            change->host = host;
            rc = sink->take(sink->context, change);
        }
    }
    return rc;
}

static enum fw_volume_kind kind_of_state(uint8_t state)
{
    switch ((enum fw_volume_state)state) {
    case FW_VOLUME_IS_HOSTS:
        return FW_VOLUME_GRANTED;
    case FW_VOLUME_IS_PLACED:
        return FW_VOLUME_PLACED;
    case FW_VOLUME_IS_FREE:
    case FW_VOLUME_IS_SET_ASIDE:
        break;
    }
    return FW_VOLUME_QUARANTINED;
}

/* Begins a change that makes an extent what `entry` is. */
static void extent_begin(const struct fw_volume_metadata *metadata,
                         const struct fw_volume_extent *entry, struct fw_volume_message *change)
{
    fw_volume_message_init(change, kind_of_state(entry->state));
    if (entry->state == FW_VOLUME_IS_PLACED) {
        change->uuid = metadata->volumes[entry->index].uuid;
    } else {
        change->host = entry->index;
    }
}

static int snapshot_extents(const struct fw_volume_metadata *metadata,
                            const struct fw_volume_sink *sink, struct fw_volume_message *change)
{
    const struct fw_volume_extent *last = NULL;
    change->count = 0;
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < metadata->extent_count; i++) {
        const struct fw_volume_extent *entry = &metadata->extents[i];
        bool is_placed = entry->state == FW_VOLUME_IS_PLACED;
        const struct fw_volume_run run = {.extent = i,
                                          .count = 1,
                                          .generation = entry->generation,
                                          .logical = is_placed ? entry->logical : 0};
        if (entry->state == FW_VOLUME_IS_FREE) {
            continue;
        }
        bool goes_on = last != NULL && last->state == entry->state && last->index == entry->index;
        if (goes_on && fw_volume_message_add(change, &run)) {
            continue;
        }
        rc = last != NULL ? sink->take(sink->context, change) : 0;
        extent_begin(metadata, entry, change);
        (void)fw_volume_message_add(change, &run);
        last = entry;
    }
    return rc == 0 && last != NULL ? sink->take(sink->context, change) : rc;
}

int fw_volume_metadata_snapshot(const struct fw_volume_metadata *metadata,
                                const struct fw_volume_sink *sink)
{
    struct fw_volume_message change;
    int rc = snapshot_hosts(metadata, sink, &change);
    if (rc == 0 && metadata->command != 0) {
        fw_volume_message_init(&change, FW_VOLUME_COMMANDED);
        change.value = metadata->command;
        rc = sink->take(sink->context, &change);
    }
    for (uint32_t i = 0; rc == 0 && i < metadata->volumes_end; i++) {
        if (metadata->volumes[i].is_used) {
            rc = snapshot_volume(&metadata->volumes[i], sink, &change);
        }
    }
    return rc == 0 ? snapshot_extents(metadata, sink, &change) : rc;
}

/* ---- grants and free lists ---- */

uint64_t fw_volume_metadata_grant(struct fw_volume_metadata *metadata, uint32_t host,
                                  uint64_t count, struct fw_volume_message *change)
{
    uint64_t granted = 0;
    uint64_t extent = metadata->cursor;
    fw_volume_message_init(change, FW_VOLUME_GRANTED);
    change->host = host;
    for (uint64_t seen = 0; granted < count && seen < metadata->extent_count; seen++) {
        if (extent >= metadata->extent_count) {
            extent = 0;
        }
        const struct fw_volume_run run = {
            .extent = extent, .count = 1, .generation = metadata->generation + 1};
        if (metadata->extents[extent].state == FW_VOLUME_IS_FREE) {
            if (!fw_volume_message_add(change, &run)) {
                break;
            }
            granted++;
        }
        extent++;
    }
    metadata->cursor = extent;
    return granted;
}

bool fw_volume_metadata_pool(const struct fw_volume_metadata *metadata, uint32_t host,
                             uint64_t above, uint32_t runs_max, uint64_t *cursor,
                             struct fw_volume_message *message)
{
    fw_volume_message_init(message, FW_VOLUME_FREE);
    message->host = host;
    message->number = metadata->generation;
    for (; *cursor < metadata->extent_count; ++*cursor) {
        const struct fw_volume_extent *entry = &metadata->extents[*cursor];
        if (entry->state != FW_VOLUME_IS_HOSTS || entry->index != host ||
            entry->generation <= above) {
            continue;
        }
        const struct fw_volume_run run = {
            .extent = *cursor, .count = 1, .generation = entry->generation};
        if (!fw_volume_message_add(message, &run)) {
            break;
        }
        if (message->count > runs_max) {
            message->count--; /* It comes in the next part. */
            break;
        }
    }
    return message->count > 0;
}

bool fw_volume_metadata_open_on(const struct fw_volume_metadata *metadata, uint32_t host,
                                char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
    for (uint32_t i = 0; length < size && i < metadata->volumes_end; i++) {
        const struct fw_volume_entry *entry = &metadata->volumes[i];
        if (entry->is_used && (entry->users >> host & 1) != 0) {
            length += (size_t)snprintf(text + length, size - length, "%s'%s'",
                                       length > 0 ? ", " : "", entry->name);
        }
    }
    return length > 0;
}

/* ---- the check ---- */

struct counts {
    uint64_t free;
    uint64_t hosts[FW_VOLUME_HOSTS_MAX];
    uint64_t aside[FW_VOLUME_HOSTS_MAX];
    uint64_t volumes[FW_VOLUME_VOLUMES_MAX];
};

static int extent_check(const struct fw_volume_metadata *metadata, uint32_t extent,
                        struct counts *counts, struct fw_reason *reason)
{
    const struct fw_volume_extent *entry = &metadata->extents[extent];
    bool is_sound = true;
    switch ((enum fw_volume_state)entry->state) {
    case FW_VOLUME_IS_FREE:
        counts->free++;
        break;
    case FW_VOLUME_IS_HOSTS:
        counts->hosts[entry->index]++;
        is_sound = metadata->hosts[entry->index].is_used;
        break;
    case FW_VOLUME_IS_SET_ASIDE:
        counts->aside[entry->index]++;
        break;
    case FW_VOLUME_IS_PLACED:
        counts->volumes[entry->index]++;
        is_sound = metadata->volumes[entry->index].is_used &&
                   entry->logical < metadata->volumes[entry->index].size &&
                   fw_volume_metadata_at(metadata, entry->index, entry->logical) == extent;
        break;
    }
    if (!is_sound || entry->generation > metadata->generation) {
        return fw_reason_set(reason, -EBADMSG,
                             "extent %" PRIu32 " is in state %d of %" PRIu32 " at %" PRIu32
                             ", which cannot be",
                             extent, entry->state, entry->index, entry->logical);
    }
    return 0;
}

int fw_volume_metadata_check(const struct fw_volume_metadata *metadata, struct fw_reason *reason)
{
    struct counts *counts = calloc(1, sizeof *counts);
    if (counts == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot check the metadata");
    }
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < metadata->extent_count; i++) {
        rc = extent_check(metadata, i, counts, reason);
    }
    bool agrees = counts->free == metadata->free_count;
    for (uint32_t i = 0; i < FW_VOLUME_HOSTS_MAX; i++) {
        agrees = agrees && counts->hosts[i] == metadata->hosts[i].pool &&
                 counts->aside[i] == metadata->hosts[i].set_aside;
    }
    for (uint32_t i = 0; i < metadata->volumes_end; i++) {
        agrees = agrees && (!metadata->volumes[i].is_used ||
                            counts->volumes[i] == metadata->volumes[i].placed);
    }
    if (rc == 0 && !agrees) {
        rc = fw_reason_set(reason, -EBADMSG, "the extents do not add up");
    }
    free(counts);
    return rc;
}
