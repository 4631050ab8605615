/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/remote.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "base/thread.h"
#include "io/clock.h"
#include "io/disk_part.h"
#include "io/process.h"
#include "ring/core.h"
#include "volume/lvm.h"
#include "volume/operator.h"

FW_LOG_MODULE(volume);

enum { POOL_MIN = 16, QUIET_S = 60, LOW_PERCENT = 10, RING_OVERHEAD = 16 + 15 };

/* ---- changes and the log ---- */

static int pending_take(void *context, const struct fw_volume_message *change)
{
    struct fw_volume_manager *manager = context;
    int rc = fw_volume_batch_add(&manager->pending, change);
    if (rc != 0) {
        manager->broken = rc; /* Memory has it, the log never will. */
    }
    return rc;
}

struct fw_volume_sink fw_volume_manager_sink(struct fw_volume_manager *manager)
{
    return (struct fw_volume_sink){.take = pending_take, .context = manager};
}

int fw_volume_manager_change(struct fw_volume_manager *manager, struct fw_volume_message *change)
{
    const struct fw_volume_sink sink = fw_volume_manager_sink(manager);
    return fw_volume_metadata_change(&manager->metadata, change, &sink);
}

/* Takes all records out of the log: the metadata on the disk have them. */
static int log_empty(struct fw_volume_manager *manager, struct fw_reason *reason)
{
    struct fw_ring_message message;
    int rc = 0;
    while (rc == 0) {
        uint64_t position;
        rc = fw_ring_pop(manager->log, &message, &position, fw_volume_ring_reason(reason));
        if (rc == 0) {
            manager->log_end = position;
        }
    }
    if (rc == FW_RING_RETRY) {
        rc = manager->log_end > 0
                 ? fw_ring_advance(manager->log, manager->log_end, fw_volume_ring_reason(reason))
                 : 0;
    }
    return rc;
}

static int metadata_save(struct fw_volume_manager *manager, struct fw_reason *reason)
{
    int rc = fw_volume_lease_renew(&manager->lease, reason);
    if (rc == 0) {
        rc = manager->store->ops->save(manager->store, &manager->metadata, reason);
    }
    if (rc == 0) {
        manager->pending.length = 0;
        rc = log_empty(manager, reason);
    }
    return rc;
}

int fw_volume_manager_commit(struct fw_volume_manager *manager, struct fw_reason *reason)
{
    if (manager->pending.length == 0) {
        return 0;
    }
    int rc = fw_volume_lease_renew(&manager->lease, reason);
    if (rc == 0) {
        rc = fw_volume_batch_push(&manager->pending, manager->log, false, reason);
    }
    if (rc == FW_RING_RETRY || rc == -EMSGSIZE) {
        rc = metadata_save(manager, reason);
    }
    manager->pending.length = 0;
    if (rc != 0) {
        manager->broken = rc;
    }
    return rc;
}

int fw_volume_manager_commit_command(struct fw_volume_manager *manager, struct fw_reason *reason)
{
    struct fw_volume_message change;
    int rc = 0;
    if (manager->command != 0) {
        fw_volume_message_init(&change, FW_VOLUME_COMMANDED);
        change.value = manager->command;
        rc = fw_volume_manager_change(manager, &change);
    }
    return rc == 0 ? fw_volume_manager_commit(manager, reason) : rc;
}

int fw_volume_manager_flush(struct fw_volume_manager *manager, struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = fw_volume_reason(public_reason);
    if (manager->broken != 0) {
        return fw_reason_set(reason, manager->broken, "the manager has failed; open it anew");
    }
    int rc = metadata_save(manager, reason);
    if (rc != 0 && rc != -ENOSPC) {
        manager->broken = rc;
    }
    /* LVM's metadata may lag behind ours, so that they cannot be written is no disaster. */
    bool publishes = rc == 0 && manager->path != NULL && manager->store->geometry.is_lvm;
    return publishes
               ? fw_volume_lvm_publish(manager->path, manager->store, &manager->metadata, reason)
               : rc;
}

/* ---- opening and closing ---- */

static int log_replay(struct fw_volume_manager *manager, struct fw_reason *reason)
{
    struct fw_volume_message change;
    uint64_t first = manager->metadata.number;
    int rc = 0;
    while (rc == 0) {
        uint64_t position = 0;
        rc = fw_volume_queue_pop(manager->log, &change, &position, reason);
        if (rc == 0) {
            manager->log_end = position;
            rc = fw_volume_metadata_apply(&manager->metadata, &change, reason);
        }
    }
    if (rc == FW_RING_RETRY && manager->metadata.number > first) {
        FW_LOG(volume, NOTICE, "replayed %" PRIu64 " changes from the redo log",
               manager->metadata.number - first);
    }
    return rc == FW_RING_RETRY ? 0 : rc;
}

static int log_attach(struct fw_volume_manager *manager, struct fw_reason *reason)
{
    const struct fw_ring_options options = {
        .role = FW_RING_BOTH, .flags = FW_RING_ALONE, .queue = "redo log", .client = "manager"};
    int rc = manager->store->ops->part(manager->store, FW_VOLUME_PART_LOG, 0, &manager->log_part,
                                       reason);
    if (rc != 0) {
        manager->log_part = NULL;
        return rc;
    }
    rc =
        fw_ring_attach_on(&manager->log, manager->log_part, manager->host_number, &options, reason);
    if (rc != 0) {
        manager->log = NULL;
    }
    return rc;
}

/* How many extents a down ring can list, each in a run of its own. */
static void limits_set(struct fw_volume_manager *manager,
                       const struct fw_volume_manager_options *options, uint64_t capacity)
{
    uint64_t fits = (capacity / 2 - FW_VOLUME_HEADER_SIZE - RING_OVERHEAD) / FW_VOLUME_RUN_SIZE;
    uint32_t parts = fits < FW_VOLUME_RUNS_MAX ? (uint32_t)fits : FW_VOLUME_RUNS_MAX;
    if (options->parts_max != 0 && options->parts_max < parts) {
        parts = options->parts_max;
    }
    uint64_t part = FW_VOLUME_HEADER_SIZE + RING_OVERHEAD + (uint64_t)parts * FW_VOLUME_RUN_SIZE;
    uint64_t most = capacity / part * parts;
    struct fw_volume_limits *limits = &manager->limits;
    limits->min = options->pool_min != 0 ? options->pool_min : POOL_MIN;
    limits->max = options->pool_max != 0 && options->pool_max < most ? options->pool_max : most;
    limits->min = limits->min < limits->max ? limits->min : limits->max;
    limits->quiet_ns = options->quiet_ns != 0 ? options->quiet_ns : (int64_t)QUIET_S * FW_NS_PER_S;
    manager->parts_max = parts;
    manager->low_percent = options->low_percent != 0 ? options->low_percent : LOW_PERCENT;
}

/* All rings of hosts have the size of the first, which need not have been made yet. */
static int limits_find(struct fw_volume_manager *manager,
                       const struct fw_volume_manager_options *options, struct fw_reason *reason)
{
    struct fw_disk *part;
    struct fw_ring_geometry geometry;
    int rc = manager->store->ops->part(manager->store, FW_VOLUME_PART_DOWN, 0, &part, reason);
    if (rc == 0) {
        const struct fw_disk_properties *properties = fw_disk_properties(part);
        rc = fw_ring_geometry_init(&geometry, 2, properties->size, properties->sector_size, 0,
                                   reason);
        fw_disk_close(part);
    }
    if (rc == 0) {
        limits_set(manager, options, geometry.capacity);
    }
    return rc;
}

static int hosts_attach(struct fw_volume_manager *manager, struct fw_reason *reason)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < manager->store->geometry.hosts_max; i++) {
        if (!manager->metadata.hosts[i].is_used) {
            continue;
        }
        rc = fw_volume_peer_attach(manager, i, reason);
        if (rc == -EBADMSG || rc == -ENOENT) { /* The others can go on. */
            FW_LOG(volume, ERROR,
                   "the rings of host %s are damaged; it is left alone until it is reclaimed: %s",
                   manager->metadata.hosts[i].name, reason != NULL ? reason->text : "");
            rc = 0;
        }
    }
    return rc;
}

static int may_write(void *context)
{
    struct fw_volume_manager *manager = context;
    return fw_volume_lease_check(&manager->lease);
}

/* Opens the store on a disk that lets nothing through, and then takes the lease. Blocks. */
static int lease_take(struct fw_volume_manager *manager, uint32_t hold_ms, struct fw_reason *reason)
{
    const struct fw_volume_lease_options options = {
        .host = manager->host_number, .holder = manager->holder, .hold_ms = hold_ms};
    struct fw_parker parker;
    fw_parker_init(&parker);
    int rc = manager->store->ops->part(manager->store, FW_VOLUME_PART_LEASE, 0,
                                       &manager->lease_part, reason);
    if (rc != 0) {
        manager->lease_part = NULL;
        return rc;
    }
    rc = fw_volume_lease_init(&manager->lease, manager->lease_part, &options, reason);
    if (rc == 0) {
        rc = fw_volume_lease_try(&manager->lease, reason);
    }
    if (rc == FW_VOLUME_WAIT) {
        FW_LOG(volume, NOTICE, "waiting until the lease of the last manager is over");
    }
    while (rc == FW_VOLUME_WAIT) {
        (void)fw_park_for(&parker, fw_volume_lease_pause_ns(&manager->lease));
        rc = fw_volume_lease_try(&manager->lease, reason);
    }
    return rc;
}

static int store_open(struct fw_volume_manager *manager, struct fw_reason *reason)
{
    int rc = fw_disk_part_open(&manager->leased, manager->disk, 0,
                               fw_disk_properties(manager->disk)->size, reason);
    if (rc != 0) {
        manager->leased = NULL;
        return rc;
    }
    fw_disk_part_guard(manager->leased, may_write, manager);
    rc = fw_volume_store_open(&manager->store, manager->leased, reason);
    if (rc != 0) {
        manager->store = NULL;
    }
    return rc;
}

static int manager_start(struct fw_volume_manager *manager,
                         const struct fw_volume_manager_options *options, struct fw_reason *reason)
{
    int rc = store_open(manager, reason);
    if (rc == 0) {
        rc = lease_take(manager, options->lease_ms, reason);
    }
    if (rc != 0) {
        return rc;
    }
    rc = limits_find(manager, options, reason);
    if (rc == 0) {
        rc = log_attach(manager, reason);
    }
    if (rc == 0) { /* When the log is ours nobody else saves. */
        rc = manager->store->ops->load(manager->store, &manager->metadata, reason);
    }
    if (rc == 0) {
        rc = log_replay(manager, reason);
    }
    if (rc == 0) {
        rc = fw_volume_metadata_check(&manager->metadata, reason);
    }
    if (rc == 0) {
        rc = fw_volume_orders_attach(manager, reason);
    }
    return rc == 0 ? hosts_attach(manager, reason) : rc;
}

static void rings_detach(struct fw_volume_manager *manager)
{
    for (uint32_t i = 0; i < FW_VOLUME_HOSTS_MAX; i++) {
        fw_volume_peer_detach(&manager->peers[i]);
    }
    fw_volume_orders_detach(manager);
    if (manager->log != NULL) {
        fw_ring_detach(manager->log);
        manager->log = NULL;
    }
}

void fw_volume_manager_drop(struct fw_volume_manager *manager)
{
    rings_detach(manager);
    if (manager->log_part != NULL) {
        fw_disk_close(manager->log_part);
    }
    fw_volume_metadata_fini(&manager->metadata);
    fw_volume_batch_fini(&manager->pending);
    if (manager->lease_part != NULL) {
        fw_disk_close(manager->lease_part);
    }
    if (manager->store != NULL) {
        manager->store->ops->close(manager->store);
    }
    if (manager->leased != NULL) {
        fw_disk_close(manager->leased);
    }
    if (manager->is_locked) {
        fw_file_lock_release(&manager->lock);
    }
    if (manager->owns_disk) {
        fw_disk_close(manager->disk);
    }
    free(manager->path);
    free(manager);
}

/* As drop(), and lets others have the lease. The rings first: their goodbye is a write too. */
static void manager_leave(struct fw_volume_manager *manager)
{
    rings_detach(manager);
    fw_volume_lease_release(&manager->lease);
    fw_volume_manager_drop(manager);
}

int fw_volume_manager_open_on(struct fw_volume_manager **made, struct fw_disk *disk,
                              uint64_t host_number, const struct fw_volume_manager_options *options,
                              struct fw_reason *reason)
{
    struct fw_volume_manager *manager = calloc(1, sizeof *manager);
    if (manager == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot open a manager");
    }
    manager->disk = disk;
    manager->host_number = host_number;
    (void)snprintf(manager->holder, sizeof manager->holder, "host %" PRIu64, host_number);
    int rc = manager_start(manager, options, reason);
    if (rc != 0) {
        manager_leave(manager);
        return rc;
    }
    *made = manager;
    return 0;
}

int fw_volume_manager_open(struct fw_volume_manager **made,
                           const struct fw_volume_manager_options *options,
                           struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = fw_volume_reason(public_reason);
    struct fw_volume_manager *manager = calloc(1, sizeof *manager);
    if (manager == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot open a manager");
    }
    const struct fw_disk_options disk_options = {.path = options->path, .flags = FW_DISK_DIRECT};
    manager->path = strdup(options->path);
    int rc = manager->path != NULL ? fw_disk_open(&manager->disk, &disk_options, reason)
                                   : fw_reason_errno(reason, -ENOMEM, "cannot open a manager");
    manager->owns_disk = rc == 0;
    if (rc == 0) {
        rc = fw_file_lock_take(&manager->lock, options->path, FW_VOLUME_LOCK_MANAGER, reason);
        manager->is_locked = rc == 0;
        if (rc == -EBUSY) {
            (void)fw_reason_set(reason, rc, "a manager of %.150s runs on this host already",
                                options->path);
        }
    }
    manager->host_number = rc == 0 ? fw_ring_host_number(&manager->lock) : 0;
    char name[FW_VOLUME_NAME_MAX + 1];
    fw_process_host_name(name, sizeof name);
    (void)snprintf(manager->holder, sizeof manager->holder, "process %d of host %s",
                   (int)fw_process_id(), name);
    if (rc == 0) {
        rc = manager_start(manager, options, reason);
    }
    if (rc != 0) {
        manager_leave(manager);
        return rc;
    }
    FW_LOG(volume, NOTICE, "managing %s: %" PRIu64 " extents, %" PRIu64 " of them free",
           options->path, manager->metadata.extent_count, manager->metadata.free_count);
    *made = manager;
    return 0;
}

int fw_volume_manager_receive(struct fw_volume_manager *manager, struct fw_reason *reason)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < FW_VOLUME_HOSTS_MAX; i++) {
        if (manager->peers[i].up != NULL) {
            rc = fw_volume_peer_receive(manager, i, reason);
        }
    }
    return rc;
}

int fw_volume_manager_close(struct fw_volume_manager *manager, struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = fw_volume_reason(public_reason);
    int rc = manager->broken;
    if (rc == 0) {
        rc = fw_volume_manager_receive(manager, reason);
    }
    if (rc == 0) {
        rc = fw_volume_manager_flush(manager, public_reason);
    }
    manager_leave(manager);
    return rc;
}

void fw_volume_manager_figures(const struct fw_volume_manager *manager,
                               struct fw_volume_figures *figures)
{
    *figures = (struct fw_volume_figures){.extents = manager->metadata.extent_count,
                                          .free = manager->metadata.free_count,
                                          .is_low = manager->is_low};
}

int fw_volume_manager_step(struct fw_volume_manager *manager, struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = fw_volume_reason(public_reason);
    if (manager->broken != 0) {
        return fw_reason_set(reason, manager->broken, "the manager has failed; open it anew");
    }
    int rc = fw_volume_lease_renew(&manager->lease, reason);
    if (rc == 0) {
        rc = fw_ring_poll(manager->log, public_reason); /* Shows that we live. */
    }
    if (rc == 0) { /* First: a host that an earlier life was told to remove is still there. */
        rc = fw_volume_orders_round(manager, reason);
    }
    for (uint32_t i = 0; rc == 0 && i < FW_VOLUME_HOSTS_MAX; i++) {
        if (manager->peers[i].up != NULL) {
            rc = fw_volume_peer_round(manager, i, reason);
        }
    }
    fw_volume_manager_low(manager);
    if (rc != 0) {
        manager->broken = rc;
    }
    return rc == 0 && manager->is_ending
               ? fw_reason_set(reason, -ESHUTDOWN, "an operator has shut the manager down")
               : rc;
}
