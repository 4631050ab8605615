/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/metadata.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

enum { VOLUMES_FIRST = 16 };

int fw_volume_metadata_init(struct fw_volume_metadata *metadata, uint64_t extent_count)
{
    memset(metadata, 0, sizeof *metadata);
    if (extent_count == 0 || extent_count > FW_VOLUME_EXTENTS_MAX) {
        return -EINVAL;
    }
    uint32_t chains = 1;
    while (chains < extent_count) {
        chains *= 2;
    }
    metadata->extent_count = extent_count;
    metadata->free_count = extent_count;
    metadata->places_mask = chains - 1;
    metadata->extents = calloc(extent_count, sizeof *metadata->extents);
    metadata->places = malloc(chains * sizeof *metadata->places);
    if (metadata->extents == NULL || metadata->places == NULL) {
        fw_volume_metadata_fini(metadata);
        return -ENOMEM;
    }
    memset(metadata->places, 0xff, chains * sizeof *metadata->places); /* FW_VOLUME_NONE */
    return 0;
}

void fw_volume_metadata_fini(struct fw_volume_metadata *metadata)
{
    free(metadata->extents);
    free(metadata->places);
    free(metadata->volumes);
    memset(metadata, 0, sizeof *metadata);
}

/* ---- looking ---- */

uint32_t fw_volume_metadata_find(const struct fw_volume_metadata *metadata, const char *name)
{
    for (uint32_t i = 0; i < metadata->volumes_end; i++) {
        if (metadata->volumes[i].is_used && strcmp(metadata->volumes[i].name, name) == 0) {
            return i;
        }
    }
    return FW_VOLUME_NONE;
}

uint32_t fw_volume_metadata_find_uuid(const struct fw_volume_metadata *metadata,
                                      const struct fw_volume_uuid *uuid)
{
    for (uint32_t i = 0; i < metadata->volumes_end; i++) {
        if (metadata->volumes[i].is_used &&
            memcmp(&metadata->volumes[i].uuid, uuid, sizeof *uuid) == 0) {
            return i;
        }
    }
    return FW_VOLUME_NONE;
}

uint32_t fw_volume_metadata_find_host(const struct fw_volume_metadata *metadata, const char *name)
{
    for (uint32_t i = 0; i < FW_VOLUME_HOSTS_MAX; i++) {
        if (metadata->hosts[i].is_used && strcmp(metadata->hosts[i].name, name) == 0) {
            return i;
        }
    }
    return FW_VOLUME_NONE;
}

static uint32_t *place_head(const struct fw_volume_metadata *metadata, uint32_t volume,
                            uint64_t logical)
{
    const uint64_t key[2] = {volume, logical};
    return &metadata->places[fw_hash(key, sizeof key, 0) & metadata->places_mask];
}

uint32_t fw_volume_metadata_at(const struct fw_volume_metadata *metadata, uint32_t volume,
                               uint64_t logical)
{
    uint32_t extent = *place_head(metadata, volume, logical);
    while (extent != FW_VOLUME_NONE && (metadata->extents[extent].index != volume ||
                                        metadata->extents[extent].logical != logical)) {
        extent = metadata->extents[extent].next;
    }
    return extent;
}

/* ---- changing one extent ---- */

static void place_add(struct fw_volume_metadata *metadata, uint32_t extent)
{
    struct fw_volume_extent *entry = &metadata->extents[extent];
    uint32_t *head = place_head(metadata, entry->index, entry->logical);
    entry->next = *head;
    *head = extent;
    metadata->volumes[entry->index].placed++;
}

static void place_remove(struct fw_volume_metadata *metadata, uint32_t extent)
{
    struct fw_volume_extent *entry = &metadata->extents[extent];
    uint32_t *link = place_head(metadata, entry->index, entry->logical);
    while (*link != extent) {
        FW_ASSERT(*link != FW_VOLUME_NONE);
        link = &metadata->extents[*link].next;
    }
    *link = entry->next;
    metadata->volumes[entry->index].placed--;
}

/* Takes the extent out of what it is in, and makes it free. */
static void extent_free(struct fw_volume_metadata *metadata, uint32_t extent)
{
    struct fw_volume_extent *entry = &metadata->extents[extent];
    switch ((enum fw_volume_state)entry->state) {
    case FW_VOLUME_IS_FREE:
        return;
    case FW_VOLUME_IS_HOSTS:
        metadata->hosts[entry->index].pool--;
        break;
    case FW_VOLUME_IS_PLACED:
        place_remove(metadata, extent);
        break;
    case FW_VOLUME_IS_SET_ASIDE:
        metadata->hosts[entry->index].set_aside--;
        break;
    }
    entry->state = FW_VOLUME_IS_FREE;
    metadata->free_count++;
}

/* Whether a change of this kind can be made to the extent. A snapshot's begin with free ones. */
static bool extent_allows(const struct fw_volume_metadata *metadata,
                          const struct fw_volume_message *change,
                          const struct fw_volume_extent *entry, uint64_t generation)
{
    bool is_fresh = change->number == 0 && entry->state == FW_VOLUME_IS_FREE;
    bool is_hosts = entry->state == FW_VOLUME_IS_HOSTS && entry->index == change->host &&
                    entry->generation == generation;
    if (change->kind == FW_VOLUME_GRANTED) {
        return entry->state == FW_VOLUME_IS_FREE && metadata->hosts[change->host].is_used;
    }
    if (change->kind == FW_VOLUME_FREED) {
        return entry->state != FW_VOLUME_IS_FREE && entry->generation == generation;
    }
    return is_fresh || is_hosts;
}

static void extent_change(struct fw_volume_metadata *metadata,
                          const struct fw_volume_message *change, uint32_t volume,
                          const struct fw_volume_run *run, uint64_t i)
{
    uint32_t extent = (uint32_t)(run->extent + i);
    struct fw_volume_extent *entry = &metadata->extents[extent];
    extent_free(metadata, extent);
    if (change->kind == FW_VOLUME_FREED) {
        return;
    }
    metadata->free_count--;
    entry->generation = run->generation;
    entry->index = change->host;
    if (change->kind == FW_VOLUME_GRANTED) {
        entry->state = FW_VOLUME_IS_HOSTS;
        metadata->hosts[change->host].pool++;
    } else if (change->kind == FW_VOLUME_QUARANTINED) {
        entry->state = FW_VOLUME_IS_SET_ASIDE;
        metadata->hosts[change->host].set_aside++;
    } else {
        entry->state = FW_VOLUME_IS_PLACED;
        entry->index = volume;
        entry->logical = (uint32_t)(run->logical + i);
        place_add(metadata, extent);
    }
}

static int apply_runs(struct fw_volume_metadata *metadata, const struct fw_volume_message *change,
                      struct fw_reason *reason)
{
    uint32_t volume = FW_VOLUME_NONE;
    if (change->kind == FW_VOLUME_PLACED) {
        volume = fw_volume_metadata_find_uuid(metadata, &change->uuid);
        if (volume == FW_VOLUME_NONE) {
            return fw_reason_set(reason, -EBADMSG, "extents are placed in %s, which is not there",
                                 change->name);
        }
    }
    for (uint32_t r = 0; r < change->count; r++) {
        const struct fw_volume_run *run = &change->runs[r];
        if (run->extent + run->count > metadata->extent_count) {
            return fw_reason_set(reason, -EBADMSG, "there is no extent %" PRIu64,
                                 run->extent + run->count - 1);
        }
        for (uint64_t i = 0; i < run->count; i++) {
            bool is_taken =
                volume != FW_VOLUME_NONE &&
                (run->logical + i >= metadata->volumes[volume].size ||
                 fw_volume_metadata_at(metadata, volume, run->logical + i) != FW_VOLUME_NONE);
            if (is_taken || !extent_allows(metadata, change, &metadata->extents[run->extent + i],
                                           run->generation)) {
                return fw_reason_set(reason, -EBADMSG, "extent %" PRIu64 " cannot be %s",
                                     run->extent + i, fw_volume_kind_name(change->kind));
            }
            extent_change(metadata, change, volume, run, i);
        }
        if (run->generation > metadata->generation) {
            metadata->generation = run->generation;
        }
    }
    return 0;
}

/* ---- changing volumes and hosts ---- */

static void volume_empty(struct fw_volume_metadata *metadata, uint32_t volume)
{
    for (uint32_t extent = 0; extent < metadata->extent_count; extent++) {
        const struct fw_volume_extent *entry = &metadata->extents[extent];
        if (entry->state == FW_VOLUME_IS_PLACED && entry->index == volume) {
            extent_free(metadata, extent);
        }
    }
}

/* Makes sure that there is an entry of that number. */
static int volumes_reserve(struct fw_volume_metadata *metadata, uint32_t index)
{
    if (index < metadata->volumes_room) {
        return 0;
    }
    uint32_t room = metadata->volumes_room == 0 ? VOLUMES_FIRST : 2 * metadata->volumes_room;
    struct fw_volume_entry *volumes = realloc(metadata->volumes, room * sizeof *volumes);
    if (volumes == NULL) {
        return -ENOMEM;
    }
    memset(volumes + metadata->volumes_room, 0, (room - metadata->volumes_room) * sizeof *volumes);
    metadata->volumes = volumes;
    metadata->volumes_room = room;
    return 0;
}

static int volume_add(struct fw_volume_metadata *metadata, const struct fw_volume_message *change,
                      struct fw_reason *reason)
{
    uint32_t index = 0;
    while (index < metadata->volumes_end && metadata->volumes[index].is_used) {
        index++;
    }
    if (index == FW_VOLUME_VOLUMES_MAX || !fw_volume_name_is_valid(change->name) ||
        change->value > FW_VOLUME_EXTENTS_MAX ||
        fw_volume_metadata_find(metadata, change->name) != FW_VOLUME_NONE ||
        fw_volume_metadata_find_uuid(metadata, &change->uuid) != FW_VOLUME_NONE) {
        return fw_reason_set(reason, -EBADMSG, "volume '%s' cannot be added", change->name);
    }
    if (volumes_reserve(metadata, index) != 0) {
        return fw_reason_errno(reason, -ENOMEM, "cannot add volume '%s'", change->name);
    }
    struct fw_volume_entry *entry = &metadata->volumes[index];
    *entry = (struct fw_volume_entry){.is_used = true, .uuid = change->uuid, .size = change->value};
    memcpy(entry->name, change->name, sizeof entry->name);
    if (index == metadata->volumes_end) {
        metadata->volumes_end++;
    }
    return 0;
}

static int apply_volume(struct fw_volume_metadata *metadata, const struct fw_volume_message *change,
                        struct fw_reason *reason)
{
    if (change->kind == FW_VOLUME_VOLUME_ADDED) {
        return volume_add(metadata, change, reason);
    }
    uint32_t index = fw_volume_metadata_find_uuid(metadata, &change->uuid);
    if (index == FW_VOLUME_NONE || change->value > FW_VOLUME_EXTENTS_MAX) {
        return fw_reason_set(reason, -EBADMSG, "'%s' of volume '%s', which is not there",
                             fw_volume_kind_name(change->kind), change->name);
    }
    struct fw_volume_entry *entry = &metadata->volumes[index];
    if (change->kind == FW_VOLUME_VOLUME_REMOVED) {
        volume_empty(metadata, index);
        entry->is_used = false;
    } else if (change->kind == FW_VOLUME_VOLUME_RESIZED) {
        for (uint64_t i = change->value; i < entry->size; i++) {
            if (fw_volume_metadata_at(metadata, index, i) != FW_VOLUME_NONE) {
                return fw_reason_set(reason, -EBADMSG, "volume '%s' is cut at an extent",
                                     entry->name);
            }
        }
        entry->size = change->value;
    } else if (change->kind == FW_VOLUME_VOLUME_OPENED) {
        entry->users |= UINT64_C(1) << change->host;
    } else {
        entry->users &= ~(UINT64_C(1) << change->host);
    }
    return 0;
}

static int apply_host(struct fw_volume_metadata *metadata, const struct fw_volume_message *change,
                      struct fw_reason *reason)
{
    struct fw_volume_host *host = &metadata->hosts[change->host];
    bool adds = change->kind == FW_VOLUME_HOST_ADDED;
    if (adds ? host->is_used || !fw_volume_name_is_valid(change->name) ||
                   fw_volume_metadata_find_host(metadata, change->name) != FW_VOLUME_NONE
             : !host->is_used || host->pool > 0) {
        return fw_reason_set(reason, -EBADMSG, "'%s' of '%s', which cannot be",
                             fw_volume_kind_name(change->kind), change->name);
    }
    host->is_used = adds;
    host->leaving = adds ? change->value : 0;
    host->has_left = false;
    if (adds) {
        memcpy(host->name, change->name, sizeof host->name);
    }
    for (uint32_t i = 0; !adds && i < metadata->volumes_end; i++) {
        metadata->volumes[i].users &= ~(UINT64_C(1) << change->host);
    }
    return 0;
}

static int apply_leaving(struct fw_volume_metadata *metadata,
                         const struct fw_volume_message *change, struct fw_reason *reason)
{
    struct fw_volume_host *host = &metadata->hosts[change->host];
    bool leaves = change->kind == FW_VOLUME_HOST_LEAVING;
    if (!host->is_used || leaves != (change->value != 0)) {
        return fw_reason_set(reason, -EBADMSG, "'%s' of host %" PRIu32 ", which cannot be",
                             fw_volume_kind_name(change->kind), change->host);
    }
    host->leaving = change->value;
    return 0;
}

static int apply_any(struct fw_volume_metadata *metadata, const struct fw_volume_message *change,
                     struct fw_reason *reason)
{
    switch ((int)change->kind) {
    case FW_VOLUME_HOST_ADDED:
    case FW_VOLUME_HOST_REMOVED:
        return apply_host(metadata, change, reason);
    case FW_VOLUME_HOST_LEAVING:
    case FW_VOLUME_HOST_STAYS:
        return apply_leaving(metadata, change, reason);
    case FW_VOLUME_VOLUME_ADDED:
    case FW_VOLUME_VOLUME_RESIZED:
    case FW_VOLUME_VOLUME_REMOVED:
    case FW_VOLUME_VOLUME_OPENED:
    case FW_VOLUME_VOLUME_CLOSED:
        return apply_volume(metadata, change, reason);
    case FW_VOLUME_GRANTED:
    case FW_VOLUME_PLACED:
    case FW_VOLUME_FREED:
    case FW_VOLUME_QUARANTINED:
        return apply_runs(metadata, change, reason);
    case FW_VOLUME_COMMANDED:
        metadata->command = change->value;
        return 0;
    default:
        break;
    }
    return fw_reason_set(reason, -EBADMSG, "a message '%s' is no change of the metadata",
                         fw_volume_kind_name(change->kind));
}

int fw_volume_metadata_apply(struct fw_volume_metadata *metadata,
                             const struct fw_volume_message *change, struct fw_reason *reason)
{
    if (change->number != 0 && change->number <= metadata->number) {
        return 0;
    }
    if (change->number != 0 && change->number != metadata->number + 1) {
        return fw_reason_set(reason, -EBADMSG,
                             "change %" PRIu64 " follows on %" PRIu64 "; some are missing",
                             change->number, metadata->number);
    }
    int rc = apply_any(metadata, change, reason);
    if (rc == 0 && change->number != 0) {
        metadata->number = change->number;
    }
    return rc;
}

int fw_volume_metadata_change(struct fw_volume_metadata *metadata, struct fw_volume_message *change,
                              const struct fw_volume_sink *sink)
{
    change->number = metadata->number + 1;
    int rc = fw_volume_metadata_apply(metadata, change, NULL);
    FW_ASSERT(rc == 0 || rc == -ENOMEM); /* Whoever makes a change has looked before. */
    return rc == 0 ? sink->take(sink->context, change) : rc;
}

/* ---- taking in messages ---- */

struct reception {
    struct fw_volume_metadata *metadata;
    const struct fw_volume_message *message;
    const struct fw_volume_sink *sink;
    struct fw_volume_receipt *receipt;
    uint32_t host;
    uint32_t volume;
    struct fw_volume_message change; /* What is being gathered. */
};

static int reception_flush(struct reception *reception)
{
    int rc = 0;
    if (reception->change.count > 0) {
        rc = fw_volume_metadata_change(reception->metadata, &reception->change, reception->sink);
    }
    reception->change.count = 0;
    return rc;
}

/* Why the extent cannot be there, or NULL. */
static const char *place_refuse(const struct reception *reception, uint64_t logical)
{
    const struct fw_volume_metadata *metadata = reception->metadata;
    if (reception->volume == FW_VOLUME_NONE) {
        return "there is no such volume";
    }
    if (logical >= metadata->volumes[reception->volume].size) {
        return "that is beyond the end of the volume";
    }
    return fw_volume_metadata_at(metadata, reception->volume, logical) != FW_VOLUME_NONE
               ? "there is another extent already"
               : NULL;
}

/* What change the message asks for of one extent; false: none, for it is old. */
static bool extent_judge(const struct reception *reception, const struct fw_volume_run *run,
                         enum fw_volume_kind *kind)
{
    if (run->extent >= reception->metadata->extent_count) {
        return false;
    }
    const struct fw_volume_extent *entry = &reception->metadata->extents[run->extent];
    bool is_hosts = entry->state == FW_VOLUME_IS_HOSTS && entry->index == reception->host;
    if (entry->generation != run->generation) {
        return false;
    }
    if (reception->message->kind == FW_VOLUME_PLACE) {
        const char *why = place_refuse(reception, run->logical);
        if (is_hosts && why != NULL) {
            reception->receipt->why = why;
        }
        *kind = why == NULL ? FW_VOLUME_PLACED : FW_VOLUME_QUARANTINED;
        return is_hosts;
    }
    *kind = FW_VOLUME_FREED;
    if (reception->message->kind == FW_VOLUME_RETURN) {
        return is_hosts;
    }
    bool is_placed = entry->state == FW_VOLUME_IS_PLACED && entry->index == reception->volume &&
                     entry->logical == run->logical;
    bool is_aside = entry->state == FW_VOLUME_IS_SET_ASIDE && entry->index == reception->host;
    return is_placed || is_aside;
}

static int extent_receive(struct reception *reception, const struct fw_volume_run *run)
{
    struct fw_volume_message *change = &reception->change;
    enum fw_volume_kind kind;
    if (!extent_judge(reception, run, &kind)) {
        reception->receipt->old++;
        return 0;
    }
    struct fw_volume_run made = *run;
    made.logical = kind == FW_VOLUME_PLACED ? run->logical : 0;
    int rc = 0;
    if (change->count > 0 && change->kind != kind) {
        rc = reception_flush(reception);
    }
    change->kind = kind;
    if (rc == 0 && !fw_volume_message_add(change, &made)) {
        rc = reception_flush(reception);
        (void)fw_volume_message_add(change, &made);
    }
    reception->receipt->done += kind == FW_VOLUME_QUARANTINED ? 0 : 1;
    reception->receipt->set_aside += kind == FW_VOLUME_QUARANTINED ? 1 : 0;
    return rc;
}

static int receive_runs(struct reception *reception)
{
    int rc = 0;
    for (uint32_t r = 0; rc == 0 && r < reception->message->count; r++) {
        struct fw_volume_run run = reception->message->runs[r];
        for (uint64_t left = run.count; rc == 0 && left > 0; left--) {
            run.count = 1;
            rc = extent_receive(reception, &run);
            run.extent++;
            run.logical++;
        }
        /* What one run did, the next must see: two could name one place. */
        rc = rc == 0 ? reception_flush(reception) : rc;
    }
    return rc;
}

static int receive_use(struct reception *reception)
{
    bool opens = reception->message->kind == FW_VOLUME_OPEN;
    if (reception->volume == FW_VOLUME_NONE) {
        reception->receipt->old++;
        return 0;
    }
    uint64_t bit = UINT64_C(1) << reception->host;
    bool is_open = (reception->metadata->volumes[reception->volume].users & bit) != 0;
    if (is_open == opens) {
        reception->receipt->old++;
        return 0;
    }
    reception->change.kind = opens ? FW_VOLUME_VOLUME_OPENED : FW_VOLUME_VOLUME_CLOSED;
    reception->receipt->done++;
    return fw_volume_metadata_change(reception->metadata, &reception->change, reception->sink);
}

/* The answer to an order to leave. What LEFT changes is the manager's to do. */
static int receive_answer(struct reception *reception)
{
    struct fw_volume_host *host = &reception->metadata->hosts[reception->host];
    struct fw_volume_message change;
    if (reception->message->kind == FW_VOLUME_LEFT) {
        host->has_left = true;
        return 0;
    }
    if (host->leaving == 0 || host->leaving != reception->message->number) {
        reception->receipt->old++;
        return 0;
    }
    fw_volume_message_init(&change, FW_VOLUME_HOST_STAYS);
    change.host = reception->host;
    reception->receipt->done++;
    return fw_volume_metadata_change(reception->metadata, &change, reception->sink);
}

int fw_volume_metadata_receive(struct fw_volume_metadata *metadata, uint32_t host,
                               const struct fw_volume_message *message,
                               const struct fw_volume_sink *sink, struct fw_volume_receipt *receipt,
                               struct fw_reason *reason)
{
    struct reception reception = {.metadata = metadata,
                                  .message = message,
                                  .sink = sink,
                                  .receipt = receipt,
                                  .host = host,
                                  .volume = fw_volume_metadata_find_uuid(metadata, &message->uuid)};
    *receipt = (struct fw_volume_receipt){.done = 0};
    fw_volume_message_init(&reception.change, message->kind);
    reception.change.host = host;
    reception.change.uuid = message->uuid;
    memcpy(reception.change.name, message->name, sizeof message->name);
    switch ((int)message->kind) {
    case FW_VOLUME_PLACE:
    case FW_VOLUME_GIVE_BACK:
    case FW_VOLUME_RETURN:
        return receive_runs(&reception);
    case FW_VOLUME_OPEN:
    case FW_VOLUME_CLOSE:
        return receive_use(&reception);
    case FW_VOLUME_STAYS:
    case FW_VOLUME_LEFT:
        return receive_answer(&reception);
    default:
        return fw_reason_set(reason, -EBADMSG, "a message '%s' is none that a host sends",
                             fw_volume_kind_name(message->kind));
    }
}
