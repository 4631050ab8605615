/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator asks of the manager. Each command is one change or two, durable when it returns.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "ring/core.h"
#include "volume/remote.h"

FW_LOG_MODULE_USE(volume);

static int manager_check(const struct fw_volume_manager *manager, const char *name,
                         struct fw_reason *reason)
{
    if (manager->broken != 0) {
        return fw_reason_set(reason, manager->broken, "the manager has failed; open it anew");
    }
    return fw_volume_name_check(name, reason);
}

static int change_commit(struct fw_volume_manager *manager, struct fw_volume_message *change,
                         struct fw_reason *reason)
{
    int rc = fw_volume_manager_change(manager, change);
    return rc == 0 ? fw_volume_manager_commit_command(manager, reason) : rc;
}

/* Finds the volume and begins a change of it. */
static int volume_find(struct fw_volume_manager *manager, const char *name, uint32_t *index,
                       struct fw_volume_message *change, struct fw_reason *reason)
{
    int rc = manager_check(manager, name, reason);
    if (rc != 0) {
        return rc;
    }
    *index = fw_volume_metadata_find(&manager->metadata, name);
    if (*index == FW_VOLUME_NONE) {
        return fw_reason_set(reason, -ENOENT, "there is no volume '%s'", name);
    }
    change->uuid = manager->metadata.volumes[*index].uuid;
    memcpy(change->name, manager->metadata.volumes[*index].name, sizeof change->name);
    return 0;
}

static int size_check(uint64_t size, struct fw_reason *reason)
{
    return size > 0 && size <= FW_VOLUME_EXTENTS_MAX
               ? 0
               : fw_reason_set(reason, -EINVAL, "a volume has 1 to %d extents",
                               FW_VOLUME_EXTENTS_MAX);
}

int fw_volume_manager_create(struct fw_volume_manager *manager, const char *name, uint64_t size,
                             struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = fw_volume_reason(public_reason);
    struct fw_volume_message change;
    int rc = manager_check(manager, name, reason);
    if (rc == 0) {
        rc = size_check(size, reason);
    }
    if (rc != 0) {
        return rc;
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < manager->metadata.volumes_end; i++) {
        count += manager->metadata.volumes[i].is_used ? 1 : 0;
    }
    if (count >= manager->store->geometry.volumes_max) {
        return fw_reason_set(reason, -ENOSPC, "the group was made for %" PRIu32 " volumes",
                             manager->store->geometry.volumes_max);
    }
    if (fw_volume_metadata_find(&manager->metadata, name) != FW_VOLUME_NONE) {
        return fw_reason_set(reason, -EEXIST, "there is a volume '%s' already", name);
    }
    fw_volume_message_init(&change, FW_VOLUME_VOLUME_ADDED);
    change.value = size;
    memcpy(change.name, name, strlen(name) + 1);
    rc = fw_volume_uuid_draw(&change.uuid, reason);
    return rc == 0 ? change_commit(manager, &change, reason) : rc;
}

int fw_volume_manager_resize(struct fw_volume_manager *manager, const char *name, uint64_t size,
                             struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = fw_volume_reason(public_reason);
    struct fw_volume_message change;
    uint32_t index = 0;
    fw_volume_message_init(&change, FW_VOLUME_VOLUME_RESIZED);
    int rc = volume_find(manager, name, &index, &change, reason);
    if (rc == 0) {
        rc = size_check(size, reason);
    }
    if (rc == 0) { /* Somebody may have opened it just now, and placed extents behind the end. */
        rc = fw_volume_manager_receive(manager, reason);
    }
    if (rc != 0) {
        return rc;
    }
    const struct fw_volume_entry *volume = &manager->metadata.volumes[index];
    if (size < volume->size && volume->users != 0) {
        return fw_reason_set(reason, -EBUSY, "a host has '%s' open; close it to make it smaller",
                             name);
    }
    for (uint64_t i = size; i < volume->size; i++) {
        if (fw_volume_metadata_at(&manager->metadata, index, i) != FW_VOLUME_NONE) {
            return fw_reason_set(reason, -EBUSY,
                                 "'%s' has data at extent %" PRIu64 "; discard it first", name, i);
        }
    }
    change.value = size;
    return change_commit(manager, &change, reason);
}

int fw_volume_manager_remove(struct fw_volume_manager *manager, const char *name,
                             struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = fw_volume_reason(public_reason);
    struct fw_volume_message change;
    uint32_t index = 0;
    fw_volume_message_init(&change, FW_VOLUME_VOLUME_REMOVED);
    int rc = volume_find(manager, name, &index, &change, reason);
    if (rc == 0) { /* Somebody may have opened it just now. */
        rc = fw_volume_manager_receive(manager, reason);
    }
    if (rc == 0 && manager->metadata.volumes[index].users != 0) {
        rc = fw_reason_set(reason, -EBUSY, "a host has '%s' open", name);
    }
    return rc == 0 ? change_commit(manager, &change, reason) : rc;
}

/* ---- hosts ---- */

static int host_find(struct fw_volume_manager *manager, const char *name, uint32_t *host,
                     struct fw_reason *reason)
{
    int rc = manager_check(manager, name, reason);
    if (rc == 0) {
        *host = fw_volume_metadata_find_host(&manager->metadata, name);
        rc = *host != FW_VOLUME_NONE
                 ? 0
                 : fw_reason_set(reason, -ENOENT, "there is no host '%s'", name);
    }
    return rc;
}

bool fw_volume_manager_has_host(struct fw_volume_manager *manager, const char *host)
{
    return fw_volume_metadata_find_host(&manager->metadata, host) != FW_VOLUME_NONE;
}

static int rings_make(struct fw_volume_manager *manager, uint32_t host, struct fw_reason *reason)
{
    static const enum fw_volume_part both[] = {FW_VOLUME_PART_UP, FW_VOLUME_PART_DOWN};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < FW_ARRAY_LENGTH(both); i++) {
        struct fw_disk *part;
        rc = manager->store->ops->part(manager->store, both[i], host, &part, reason);
        if (rc == 0) {
            rc = fw_volume_queue_make(part, reason);
            fw_disk_close(part);
        }
    }
    return rc;
}

/*
 * Whether nobody writes to the slot's rings any more: the agent of a host that had them before says
 * goodbye when it ends, and would write over what a new host has. -EBUSY: it has not ended.
 */
static int rings_leave(struct fw_volume_manager *manager, uint32_t host, struct fw_reason *reason)
{
    static const enum fw_volume_part both[] = {FW_VOLUME_PART_UP, FW_VOLUME_PART_DOWN};
    struct fw_file_lock lock;
    int rc = manager->path != NULL
                 ? fw_file_lock_take(&lock, manager->path, FW_VOLUME_LOCK_HOSTS + host, reason)
                 : 0;
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; rc == 0 && i < FW_ARRAY_LENGTH(both); i++) {
        const struct fw_ring_options options = {
            .role = both[i] == FW_VOLUME_PART_UP ? FW_RING_PRODUCER : FW_RING_CONSUMER,
            .client = "the manager, for a new host"};
        struct fw_disk *part;
        struct fw_ring *ring;
        rc = manager->store->ops->part(manager->store, both[i], host, &part, reason);
        if (rc != 0) {
            break;
        }
        rc = fw_ring_attach_on(&ring, part, manager->host_number, &options, reason);
        if (rc == 0) {
            fw_ring_detach(ring);
        }
        rc = rc == -ENOENT || rc == -EBADMSG ? 0 : rc; /* There was none, or it is no loss. */
        fw_disk_close(part);
    }
    if (manager->path != NULL) {
        fw_file_lock_release(&lock);
    }
    return rc;
}

/* A place in the list that nobody has, and whose rings nobody uses any more. */
static int slot_find(struct fw_volume_manager *manager, uint32_t *host, struct fw_reason *reason)
{
    uint32_t hosts_max = manager->store->geometry.hosts_max;
    int rc = fw_reason_set(reason, -ENOSPC, "the group was made for %" PRIu32 " hosts", hosts_max);
    for (*host = 0; *host < hosts_max; ++*host) {
        if (!manager->metadata.hosts[*host].is_used) {
            rc = rings_leave(manager, *host, reason);
            if (rc != -EBUSY) {
                return rc;
            }
        }
    }
    return rc == -EBUSY
               ? fw_reason_set(reason, rc, "the agent of a host that was here before has not ended")
               : rc;
}

int fw_volume_manager_connect(struct fw_volume_manager *manager, const char *name,
                              struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = fw_volume_reason(public_reason);
    struct fw_volume_message change;
    uint32_t host = 0;
    int rc = manager_check(manager, name, reason);
    if (rc != 0) {
        return rc;
    }
    if (fw_volume_manager_has_host(manager, name)) {
        return fw_reason_set(reason, -EEXIST, "host '%s' is connected already", name);
    }
    rc = slot_find(manager, &host, reason);
    /* The rings are there before the host is: until then a crash leaves nothing. */
    if (rc == 0) {
        rc = rings_make(manager, host, reason);
    }
    if (rc == 0) {
        rc = fw_volume_peer_attach(manager, host, reason);
    }
    if (rc != 0) {
        return rc;
    }
    fw_volume_message_init(&change, FW_VOLUME_HOST_ADDED);
    change.host = host;
    memcpy(change.name, name, strlen(name) + 1);
    return change_commit(manager, &change, reason);
}

int fw_volume_stays(const char *host, const char *names, struct fw_reason *reason)
{
    return fw_reason_set(reason, -EBUSY,
                         "host '%.63s' has %.300s open; detach there first, or say --fenced once "
                         "the host is off",
                         host, names[0] != '\0' ? names : "a volume");
}

int fw_volume_manager_disconnect(struct fw_volume_manager *manager, const char *name,
                                 struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = fw_volume_reason(public_reason);
    struct fw_volume_message change;
    char names[FW_RING_REASON_SIZE / 2];
    uint32_t host = 0;
    int rc = host_find(manager, name, &host, reason);
    if (rc != 0) {
        return rc;
    }
    struct fw_volume_peer *peer = &manager->peers[host];
    if (peer->up == NULL) {
        return fw_reason_set(reason, -EBADMSG, "the rings of '%s' are damaged; reclaim it", name);
    }
    rc = fw_volume_peer_receive(manager, host, reason); /* What it has opened counts. */
    if (rc != 0) {
        return rc;
    }
    if (fw_volume_metadata_open_on(&manager->metadata, host, names, sizeof names)) {
        return fw_volume_stays(name, names, reason);
    }
    if (manager->metadata.hosts[host].leaving != 0) {
        return fw_volume_manager_commit_command(manager, reason); /* It has been told. */
    }
    fw_volume_message_init(&change, FW_VOLUME_HOST_LEAVING);
    change.host = host;
    change.value = manager->metadata.number + 1; /* No order before had it. */
    return change_commit(manager, &change, reason);
}

static int lease_keep(void *context, struct fw_reason *reason)
{
    struct fw_volume_manager *manager = context;
    return fw_volume_lease_renew(&manager->lease, reason);
}

/* The agent is watched for longer than a lease may last, which is renewed meanwhile. */
static int producer_attach(struct fw_volume_manager *manager, uint32_t host, struct fw_ring **ring,
                           struct fw_reason *reason)
{
    const struct fw_ring_options options = {.role = FW_RING_PRODUCER,
                                            .flags = FW_RING_ALONE, /* It has been watched. */
                                            .queue = "up",
                                            .client = "reclaimed by the manager"};
    const struct fw_ring_watch watch = {
        .host = manager->host_number, .meanwhile = lease_keep, .context = manager};
    struct fw_disk *part = manager->peers[host].up_part;
    struct fw_ring_geometry geometry = {.format = 0};
    struct fw_ring_pointer pointer = {.position = 0};
    int rc = fw_ring_read_head(part, fw_ring_sector_size(part), &geometry, reason);
    if (rc == 0) {
        rc = fw_ring_read_side(part, &geometry, FW_RING_SIDE_PRODUCER, &pointer, reason);
    }
    if (rc == 0) {
        rc = fw_ring_owner_watch(part, &geometry, FW_RING_SIDE_PRODUCER, &watch, &pointer, reason);
    }
    return rc == 0 ? fw_ring_attach_on(ring, part, manager->host_number, &options, reason) : rc;
}

/* Makes sure that the host's agent can push no more. */
static int producer_take(struct fw_volume_manager *manager, uint32_t host, struct fw_ring **ring,
                         struct fw_reason *reason)
{
    struct fw_file_lock lock;
    if (manager->path == NULL) {
        return producer_attach(manager, host, ring, reason);
    }
    int rc = fw_file_lock_take(&lock, manager->path, FW_VOLUME_LOCK_HOSTS + host, reason);
    if (rc == 0) {
        rc = producer_attach(manager, host, ring, reason);
        fw_file_lock_release(&lock);
    }
    return rc;
}

int fw_volume_manager_reclaim(struct fw_volume_manager *manager, const char *name,
                              struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = fw_volume_reason(public_reason);
    struct fw_ring *taken = NULL;
    uint32_t host = 0;
    int rc = host_find(manager, name, &host, reason);
    if (rc != 0) {
        return rc;
    }
    if (manager->peers[host].up == NULL) {
        FW_LOG(volume, WARNING,
               "the rings of %s are damaged: what its pool had may hold data, and is set aside",
               name);
        return fw_volume_peer_remove(manager, host, false, reason);
    }
    rc = producer_take(manager, host, &taken, reason);
    if (rc == -EBUSY) {
        return fw_reason_set(reason, rc, "the agent of '%s' lives; stop it, or disconnect the host",
                             name);
    }
    if (rc != 0) {
        return rc;
    }
    /* Every push looks for a suspend, so from here on none of the old agent's gets through. */
    rc = fw_ring_suspend(manager->peers[host].up, public_reason);
    if (rc >= 0) {
        rc = fw_ring_poll(taken, public_reason);
    }
    if (rc >= 0) {
        rc = fw_volume_peer_receive(manager, host, reason);
    }
    fw_ring_detach(taken);
    return rc == 0 ? fw_volume_peer_remove(manager, host, true, reason) : rc;
}
