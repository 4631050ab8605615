/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent's volumes: their maps, and the allocation itself.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "io/clock.h"
#include "volume/local.h"

/* ---- messages about a volume ---- */

static void message_begin(const struct fw_volume *volume, enum fw_volume_kind kind,
                          struct fw_volume_message *message)
{
    fw_volume_message_init(message, kind);
    message->host = volume->agent->host;
    message->uuid = volume->uuid;
    memcpy(message->name, volume->name, sizeof message->name);
}

/* Adds a run to the batch, whose last message is `message`, not in it yet. */
static int run_add(const struct fw_volume *volume, struct fw_volume_batch *batch,
                   struct fw_volume_message *message, const struct fw_volume_run *run)
{
    if (fw_volume_message_add(message, run)) {
        return 0;
    }
    int rc = fw_volume_batch_add(batch, message);
    message_begin(volume, message->kind, message);
    (void)fw_volume_message_add(message, run);
    return rc;
}

static int use_push(struct fw_volume *volume, enum fw_volume_kind kind, struct fw_reason *reason)
{
    struct fw_volume_batch batch = {.bytes = NULL};
    struct fw_volume_message message;
    message_begin(volume, kind, &message);
    int rc = fw_volume_batch_add(&batch, &message);
    if (rc == 0) {
        rc = fw_volume_agent_push(volume->agent, &batch, reason);
    }
    fw_volume_batch_fini(&batch);
    return rc;
}

/* ---- opening ---- */

void fw_volume_free(struct fw_volume *volume)
{
    free(volume->places);
    free(volume);
}

/* Makes the map, whole, from what is true now. */
static void map_fill(struct fw_volume *volume, const struct fw_volume_metadata *metadata,
                     uint32_t index)
{
    for (uint32_t i = 0; i < metadata->extent_count; i++) {
        const struct fw_volume_extent *extent = &metadata->extents[i];
        if (extent->state == FW_VOLUME_IS_PLACED && extent->index == index) {
            volume->places[extent->logical] = (struct fw_volume_place){
                .state = FW_VOLUME_MAPPED, .generation = extent->generation, .extent = i};
        }
    }
}

static int others_check(const struct fw_volume_agent *agent,
                        const struct fw_volume_metadata *metadata,
                        const struct fw_volume_entry *entry, struct fw_reason *reason)
{
    uint64_t others = entry->users & ~(UINT64_C(1) << agent->host);
    return others == 0 ? 0
                       : fw_reason_set(reason, -EBUSY, "host %.60s has '%.60s' open",
                                       metadata->hosts[__builtin_ctzll(others)].name, entry->name);
}

static int volume_read(struct fw_volume *volume, const struct fw_volume_metadata *metadata,
                       const char *name, struct fw_reason *reason)
{
    uint32_t index = fw_volume_metadata_find(metadata, name);
    if (index == FW_VOLUME_NONE) {
        return fw_reason_set(reason, -ENOENT, "there is no volume '%.80s'", name);
    }
    const struct fw_volume_entry *entry = &metadata->volumes[index];
    int rc = others_check(volume->agent, metadata, entry, reason);
    if (rc != 0) {
        return rc;
    }
    volume->uuid = entry->uuid;
    volume->size = entry->size;
    memcpy(volume->name, entry->name, sizeof volume->name);
    volume->places = calloc(entry->size > 0 ? entry->size : 1, sizeof *volume->places);
    if (volume->places == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot open '%.80s'", name);
    }
    map_fill(volume, metadata, index);
    return 0;
}

/* What is true now, with what other hosts have said; where one's ring is damaged, without. */
static int look(struct fw_volume_agent *agent, struct fw_volume_metadata *metadata,
                struct fw_reason *reason)
{
    int rc = fw_volume_view(agent->store, FW_VOLUME_ALL, metadata, reason);
    return rc != -EBADMSG ? rc : fw_volume_view(agent->store, agent->host, metadata, reason);
}

/*
 * Looks for others again, once our own opening is in our ring. Of two hosts that open a volume at
 * the same moment each has announced it before it looks, so one at least sees the other and goes
 * back; maybe both do. Until now nobody has written.
 */
static int rivals_look(struct fw_volume *volume, struct fw_reason *reason)
{
    struct fw_volume_agent *agent = volume->agent;
    struct fw_volume_metadata metadata;
    int rc = look(agent, &metadata, reason);
    if (rc == 0) {
        uint32_t index = fw_volume_metadata_find_uuid(&metadata, &volume->uuid);
        rc = index != FW_VOLUME_NONE
                 ? others_check(agent, &metadata, &metadata.volumes[index], reason)
                 : fw_reason_set(reason, -ENOENT, "'%.80s' has been removed", volume->name);
        fw_volume_metadata_fini(&metadata);
    }
    if (rc != 0) { /* If that cannot be said now, our next opening and closing will do it. */
        (void)!use_push(volume, FW_VOLUME_CLOSE, NULL);
    }
    return rc;
}

static bool is_open(const struct fw_volume_agent *agent, const char *name)
{
    FW_LIST_FOR_EACH (&agent->volumes, struct fw_volume, link, volume) {
        if (strcmp(volume->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static int open_locked(struct fw_volume *volume, const char *name, struct fw_reason *reason)
{
    struct fw_volume_agent *agent = volume->agent;
    struct fw_volume_metadata metadata;
    fw_mutex_lock(&agent->lock);
    int rc = fw_volume_agent_check(agent, reason);
    if (rc == 0 && is_open(agent, name)) {
        rc = fw_reason_set(reason, -EBUSY, "'%.80s' is open already", name);
    }
    fw_mutex_unlock(&agent->lock);
    if (rc == 0) {
        rc = look(agent, &metadata, reason);
    }
    if (rc != 0) {
        return rc;
    }
    rc = volume_read(volume, &metadata, name, reason);
    fw_volume_metadata_fini(&metadata);
    if (rc == 0) {
        rc = use_push(volume, FW_VOLUME_OPEN, reason);
    }
    if (rc == 0) {
        rc = rivals_look(volume, reason);
    }
    if (rc == 0) {
        fw_mutex_lock(&agent->lock);
        fw_list_push_back(&agent->volumes, &volume->link);
        fw_mutex_unlock(&agent->lock);
    }
    return rc;
}

int fw_volume_open(struct fw_volume **made, struct fw_volume_agent *agent, const char *name,
                   struct fw_ring_reason *reason)
{
    struct fw_volume *volume = calloc(1, sizeof *volume);
    if (volume == NULL) {
        return fw_reason_errno(fw_volume_reason(reason), -ENOMEM, "cannot open '%.80s'", name);
    }
    volume->agent = agent;
    fw_mutex_lock(&agent->turn);
    int rc = open_locked(volume, name, fw_volume_reason(reason));
    fw_mutex_unlock(&agent->turn);
    if (rc != 0) {
        fw_volume_free(volume);
        return rc;
    }
    *made = volume;
    return 0;
}

int fw_volume_close(struct fw_volume *volume, struct fw_ring_reason *reason)
{
    struct fw_volume_agent *agent = volume->agent;
    fw_mutex_lock(&agent->turn); /* Who is told to leave finds it open or closed, in both places. */
    int rc = use_push(volume, FW_VOLUME_CLOSE, fw_volume_reason(reason));
    if (rc != FW_VOLUME_WAIT) {
        fw_mutex_lock(&agent->lock);
        fw_list_remove(&volume->link);
        fw_mutex_unlock(&agent->lock);
        fw_volume_free(volume);
    }
    fw_mutex_unlock(&agent->turn);
    return rc;
}

uint64_t fw_volume_size(const struct fw_volume *volume)
{
    return volume->size;
}

bool fw_volume_lookup(struct fw_volume *volume, uint64_t logical, uint64_t *offset)
{
    struct fw_volume_agent *agent = volume->agent;
    const struct fw_volume_geometry *geometry = &agent->store->geometry;
    if (logical >= volume->size) {
        return false;
    }
    fw_mutex_lock(&agent->lock);
    const struct fw_volume_place place = volume->places[logical];
    fw_mutex_unlock(&agent->lock);
    *offset = geometry->data_offset + place.extent * geometry->extent_size;
    return place.state == FW_VOLUME_MAPPED;
}

/* ---- allocating and discarding ---- */

/* How many places of the range are in this state; -EALREADY if somebody is at one of them. */
static int places_count(const struct fw_volume *volume, uint64_t logical, uint64_t count,
                        enum fw_volume_place_state state, uint64_t *found, struct fw_reason *reason)
{
    *found = 0;
    if (logical > volume->size || count > volume->size - logical) {
        return fw_reason_set(reason, -EINVAL, "'%s' has %" PRIu64 " extents", volume->name,
                             volume->size);
    }
    for (uint64_t i = logical; i < logical + count; i++) {
        if (volume->places[i].state == FW_VOLUME_BUSY) {
            return fw_reason_set(reason, -EALREADY, "another thread is at extent %" PRIu64, i);
        }
        *found += volume->places[i].state == (uint8_t)state ? 1 : 0;
    }
    return 0;
}

/* Takes extents for the holes of the range and reserves them. */
static int holes_reserve(struct fw_volume *volume, uint64_t logical, uint64_t count,
                         struct fw_volume_batch *batch)
{
    struct fw_volume_message message;
    int rc = 0;
    message_begin(volume, FW_VOLUME_PLACE, &message);
    for (uint64_t i = logical; i < logical + count; i++) {
        struct fw_volume_place *place = &volume->places[i];
        if (place->state != FW_VOLUME_HOLE) {
            continue;
        }
        struct fw_volume_run run = fw_volume_pool_take(&volume->agent->pool, 1);
        run.logical = i;
        *place = (struct fw_volume_place){
            .state = FW_VOLUME_BUSY, .generation = run.generation, .extent = (uint32_t)run.extent};
        int added = run_add(volume, batch, &message, &run);
        rc = rc == 0 ? added : rc;
    }
    return rc == 0 ? fw_volume_batch_add(batch, &message) : rc;
}

struct preparing {
    struct fw_volume_agent *agent;
    struct fw_reason *reason;
};

static int message_prepare(void *context, const struct fw_volume_message *message)
{
    const struct preparing *preparing = context;
    struct fw_volume_agent *agent = preparing->agent;
    const struct fw_volume_geometry *geometry = &agent->store->geometry;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < message->count; i++) {
        const struct fw_volume_run *run = &message->runs[i];
        rc = agent->prepare(agent->prepare_context,
                            geometry->data_offset + run->extent * geometry->extent_size,
                            run->count * geometry->extent_size, preparing->reason);
    }
    return rc;
}

/* Makes extents fit to be placed: they are reserved, and the pool's still. */
static int places_prepare(struct fw_volume_agent *agent, const struct fw_volume_batch *batch,
                          struct fw_reason *reason)
{
    struct preparing preparing = {.agent = agent, .reason = reason};
    return agent->prepare != NULL ? fw_volume_batch_walk(batch, message_prepare, &preparing, reason)
                                  : 0;
}

struct settling {
    struct fw_volume *volume;
    enum fw_volume_place_state state;
    bool to_pool;
};

static int message_settle(void *context, const struct fw_volume_message *message)
{
    const struct settling *settling = context;
    for (uint32_t r = 0; r < message->count; r++) {
        const struct fw_volume_run *run = &message->runs[r];
        for (uint64_t i = 0; i < run->count; i++) {
            settling->volume->places[run->logical + i].state = (uint8_t)settling->state;
        }
        if (settling->to_pool) { /* Without memory for it the next life finds it. */
            (void)!fw_volume_pool_add(&settling->volume->agent->pool, run);
        }
    }
    return 0;
}

/* The places of the messages become `state`; their extents go back to the pool if asked. */
static void places_settle(struct fw_volume *volume, const struct fw_volume_batch *batch,
                          enum fw_volume_place_state state, bool to_pool)
{
    struct settling settling = {.volume = volume, .state = state, .to_pool = to_pool};
    int rc = fw_volume_batch_walk(batch, message_settle, &settling, NULL);
    FW_ASSERT(rc == 0); /* We have written it ourselves. */
}

/* Whether the answer of a push says that it did not happen. */
static bool is_not_pushed(int rc)
{
    return rc == FW_VOLUME_WAIT || rc == -EMSGSIZE || rc == -ESHUTDOWN || rc == -ENOMEM;
}

/*
 * What to tell those who want more than there is. In a full group the first of them waits for what
 * other hosts may give back; when that has taken too long, all are refused until something comes.
 */
static int pool_is_empty(struct fw_volume_agent *agent, struct fw_reason *reason)
{
    int64_t now_ns = fw_clock_now_ns();
    if (!agent->is_full) {
        return FW_VOLUME_WAIT;
    }
    agent->dry_ns = agent->dry_ns != 0 ? agent->dry_ns : now_ns;
    return now_ns - agent->dry_ns < agent->full_wait_ns
               ? FW_VOLUME_WAIT
               : fw_reason_set(reason, -ENOSPC,
                               "the group is full; discard data or remove volumes");
}

int fw_volume_allocate(struct fw_volume *volume, uint64_t logical, uint64_t count,
                       struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = fw_volume_reason(public_reason);
    struct fw_volume_agent *agent = volume->agent;
    struct fw_volume_batch batch = {.bytes = NULL};
    uint64_t holes = 0;
    fw_mutex_lock(&agent->lock);
    int rc = fw_volume_agent_check(agent, reason);
    if (rc == 0) {
        rc = places_count(volume, logical, count, FW_VOLUME_HOLE, &holes, reason);
    }
    if (rc == 0 && holes > agent->pool.extents) {
        rc = pool_is_empty(agent, reason);
    }
    if (rc == 0 && holes > 0) {
        rc = holes_reserve(volume, logical, count, &batch);
        if (rc != 0) {
            agent->broken = rc; /* Out of memory half-way: the next life puts it in order. */
        } else {
            agent->under_way++;
        }
    }
    fw_mutex_unlock(&agent->lock);
    if (rc != 0 || holes == 0) {
        fw_volume_batch_fini(&batch);
        return rc;
    }
    rc = places_prepare(agent, &batch, reason);
    bool undo = rc != 0;
    if (!undo) {
        rc = fw_volume_agent_push(agent, &batch, reason);
        undo = is_not_pushed(rc);
    }
    fw_mutex_lock(&agent->lock);
    agent->under_way--;
    places_settle(volume, &batch,
                  rc == 0 ? FW_VOLUME_MAPPED
                  : undo  ? FW_VOLUME_HOLE
                          : FW_VOLUME_BUSY,
                  undo && agent->phase == FW_VOLUME_RUNNING);
    fw_mutex_unlock(&agent->lock);
    fw_volume_batch_fini(&batch);
    return rc;
}

/* Unmaps the range and gathers what was there. */
static int places_release(struct fw_volume *volume, uint64_t logical, uint64_t count,
                          struct fw_volume_batch *batch)
{
    struct fw_volume_message message;
    int rc = 0;
    message_begin(volume, FW_VOLUME_GIVE_BACK, &message);
    for (uint64_t i = logical; i < logical + count; i++) {
        struct fw_volume_place *place = &volume->places[i];
        if (place->state != FW_VOLUME_MAPPED) {
            continue;
        }
        place->state = FW_VOLUME_BUSY;
        const struct fw_volume_run run = {
            .extent = place->extent, .count = 1, .generation = place->generation, .logical = i};
        int added = run_add(volume, batch, &message, &run);
        rc = rc == 0 ? added : rc;
    }
    return rc == 0 ? fw_volume_batch_add(batch, &message) : rc;
}

int fw_volume_discard(struct fw_volume *volume, uint64_t logical, uint64_t count,
                      struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = fw_volume_reason(public_reason);
    struct fw_volume_agent *agent = volume->agent;
    struct fw_volume_batch batch = {.bytes = NULL};
    uint64_t mapped = 0;
    fw_mutex_lock(&agent->lock);
    int rc = fw_volume_agent_check(agent, reason);
    if (rc == 0) {
        rc = places_count(volume, logical, count, FW_VOLUME_MAPPED, &mapped, reason);
    }
    if (rc == 0 && mapped > 0) {
        rc = places_release(volume, logical, count, &batch);
        if (rc != 0) {
            agent->broken = rc;
        } else {
            agent->under_way++;
        }
    }
    fw_mutex_unlock(&agent->lock);
    if (rc != 0 || mapped == 0) {
        fw_volume_batch_fini(&batch);
        return rc;
    }
    rc = fw_volume_agent_push(agent, &batch, reason);
    fw_mutex_lock(&agent->lock);
    agent->under_way--;
    places_settle(volume, &batch,
                  rc == 0             ? FW_VOLUME_HOLE
                  : is_not_pushed(rc) ? FW_VOLUME_MAPPED
                                      : FW_VOLUME_BUSY,
                  false);
    fw_mutex_unlock(&agent->lock);
    fw_volume_batch_fini(&batch);
    return rc;
}
