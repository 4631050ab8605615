/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manager's side of a host: remote.h draws it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "io/clock.h"
#include "ring/core.h"
#include "volume/remote.h"

FW_LOG_MODULE_USE(volume);

enum { MESSAGES_PER_ROUND = 64, FULL_LOG_S = 60 };

/* ---- attaching ---- */

static int ring_attach(struct fw_volume_manager *manager, uint32_t host, enum fw_volume_part which,
                       struct fw_disk **part, struct fw_ring **ring, struct fw_reason *reason)
{
    bool is_up = which == FW_VOLUME_PART_UP;
    const struct fw_ring_options options = {.role = is_up ? FW_RING_CONSUMER : FW_RING_PRODUCER,
                                            .flags = FW_RING_ALONE | (is_up ? 0U : FW_RING_SYNCS),
                                            .queue = is_up ? "up" : "down",
                                            .client = "manager"};
    int rc = manager->store->ops->part(manager->store, which, host, part, reason);
    if (rc != 0) {
        *part = NULL;
        return rc;
    }
    rc = fw_ring_attach_on(ring, *part, manager->host_number, &options, reason);
    if (rc != 0) {
        *ring = NULL;
    }
    return rc;
}

void fw_volume_peer_detach(struct fw_volume_peer *peer)
{
    if (peer->up != NULL) {
        fw_ring_detach(peer->up);
    }
    if (peer->down != NULL) {
        fw_ring_detach(peer->down);
    }
    if (peer->up_part != NULL) {
        fw_disk_close(peer->up_part);
    }
    if (peer->down_part != NULL) {
        fw_disk_close(peer->down_part);
    }
    memset(peer, 0, sizeof *peer);
}

int fw_volume_peer_attach(struct fw_volume_manager *manager, uint32_t host,
                          struct fw_reason *reason)
{
    struct fw_volume_peer *peer = &manager->peers[host];
    int rc = ring_attach(manager, host, FW_VOLUME_PART_UP, &peer->up_part, &peer->up, reason);
    if (rc == 0) {
        rc = ring_attach(manager, host, FW_VOLUME_PART_DOWN, &peer->down_part, &peer->down, reason);
    }
    if (rc != 0) {
        fw_volume_peer_detach(peer);
        return rc;
    }
    /* What an earlier manager gave it was right then, and is so until it proves too much. */
    fw_volume_demand_init(&peer->demand, &manager->limits, manager->metadata.hosts[host].pool,
                          fw_clock_now_ns());
    peer->kept = UINT64_MAX;
    return 0;
}

/* ---- the up ring ---- */

static void receipt_tell(const struct fw_volume_manager *manager, uint32_t host,
                         const struct fw_volume_message *message,
                         const struct fw_volume_receipt *receipt)
{
    if (receipt->set_aside > 0) {
        FW_LOG(volume, WARNING,
               "host %s placed %" PRIu64 " extents in volume '%s' where they cannot be (%s); "
               "they are set aside until the host gives them back",
               manager->metadata.hosts[host].name, receipt->set_aside, message->name, receipt->why);
    }
    if (receipt->old > 0) {
        FW_LOG(volume, DEBUG, "host %s: an old '%s' of %" PRIu64 " extents",
               manager->metadata.hosts[host].name, fw_volume_kind_name(message->kind),
               receipt->old);
    }
}

/* One message. A message that cannot be is told of, and skipped: it must not stop the others. */
static int message_receive(struct fw_volume_manager *manager, uint32_t host, uint64_t *position,
                           struct fw_reason *reason)
{
    struct fw_volume_message message;
    struct fw_volume_receipt receipt = {.done = 0};
    struct fw_reason why = {.text = ""};
    uint64_t end = 0;
    if (manager->metadata.hosts[host].has_left) {
        return FW_RING_RETRY; /* It stays in the ring, for a next life, until the host is removed.
                               */
    }
    int rc = fw_volume_queue_pop(manager->peers[host].up, &message, &end, &why);
    if (rc == 0) {
        const struct fw_volume_sink sink = fw_volume_manager_sink(manager);
        rc = fw_volume_metadata_receive(&manager->metadata, host, &message, &sink, &receipt, &why);
    }
    if (rc == 0 && manager->metadata.hosts[host].has_left) {
        return FW_RING_RETRY;
    }
    if (rc == 0) {
        if (message.kind == FW_VOLUME_PLACE) {
            fw_volume_demand_use(&manager->peers[host].demand, receipt.done);
        }
        receipt_tell(manager, host, &message, &receipt);
    } else if (rc == -EBADMSG && end > 0) {
        FW_LOG(volume, ERROR, "host %s sent what cannot be, and it is skipped: %s",
               manager->metadata.hosts[host].name, why.text);
        rc = 0;
    }
    if (rc == 0) {
        *position = end;
    }
    return rc < 0 ? fw_reason_set(reason, rc, "%s", why.text) : rc;
}

/* Up to so many messages. Returns 0 or, if there are no more, FW_RING_RETRY. */
static int messages_receive(struct fw_volume_manager *manager, uint32_t host,
                            struct fw_reason *reason)
{
    uint64_t position = 0;
    int rc = 0;
    for (int i = 0; rc == 0 && i < MESSAGES_PER_ROUND; i++) {
        rc = message_receive(manager, host, &position, reason);
    }
    if (rc < 0 || position == 0) {
        return rc;
    }
    bool is_empty = rc == FW_RING_RETRY;
    rc = fw_volume_manager_commit(manager, reason);
    if (rc == 0) {
        rc = fw_ring_advance(manager->peers[host].up, position, fw_volume_ring_reason(reason));
    }
    return rc == 0 && is_empty ? FW_RING_RETRY : rc;
}

int fw_volume_peer_receive(struct fw_volume_manager *manager, uint32_t host,
                           struct fw_reason *reason)
{
    int rc = 0;
    while (rc == 0) {
        rc = messages_receive(manager, host, reason);
    }
    return rc == FW_RING_RETRY ? 0 : rc;
}

/* ---- the down ring ---- */

/* Gathers what the host has above a generation, as messages; a complete list has at least one. */
static int list_gather(struct fw_volume_manager *manager, uint32_t host, uint64_t above, bool sync,
                       struct fw_volume_batch *batch)
{
    struct fw_volume_message part, next;
    uint64_t cursor = 0;
    bool more = fw_volume_metadata_pool(&manager->metadata, host, above, manager->parts_max,
                                        &cursor, &part);
    if (!more && !sync) {
        return 0;
    }
    unsigned first = FW_VOLUME_FIRST;
    int rc = 0;
    do {
        more = fw_volume_metadata_pool(&manager->metadata, host, above, manager->parts_max, &cursor,
                                       &next);
        part.flags = (sync ? FW_VOLUME_SYNC | first : 0U) | (more ? 0U : FW_VOLUME_LAST);
        rc = fw_volume_batch_add(batch, &part);
        first = 0;
        part = next;
    } while (rc == 0 && more);
    return rc;
}

/* Sends what was granted and not sent. Whether it arrives now or later does not matter. */
static int grants_send(struct fw_volume_manager *manager, uint32_t host, struct fw_reason *reason)
{
    struct fw_volume_peer *peer = &manager->peers[host];
    struct fw_volume_batch batch = {.bytes = NULL};
    if (peer->sent == manager->metadata.generation) {
        return 0;
    }
    int rc = list_gather(manager, host, peer->sent, false, &batch);
    if (rc == 0) {
        rc = fw_volume_batch_push(&batch, peer->down, false, reason);
    }
    if (rc == 0) {
        peer->sent = manager->metadata.generation;
        peer->is_told_full = peer->is_told_full && batch.length == 0;
    }
    fw_volume_batch_fini(&batch);
    return rc < 0 ? rc : 0;
}

/* ---- a group that runs full ---- */

void fw_volume_manager_low(struct fw_volume_manager *manager)
{
    const struct fw_volume_metadata *metadata = &manager->metadata;
    uint64_t limit = metadata->extent_count * manager->low_percent / 100;
    bool is_low = metadata->free_count < limit;
    /* Once on the way down. Half as much again must be free before it counts as over. */
    if (is_low && !manager->is_low) {
        FW_LOG(volume, WARNING,
               "only %" PRIu64 " of %" PRIu64 " extents are free; give some back or add no more",
               metadata->free_count, metadata->extent_count);
    }
    manager->is_low = is_low || (manager->is_low && metadata->free_count < limit + limit / 2);
}

/*
 * Takes back the pools of hosts without an agent. Nobody uses these extents: an agent gets to know
 * its pool from us, when it has attached, and one that has detached has forgotten it. One that died
 * is still attached, and may only be frozen.
 */
static int pools_take_back(struct fw_volume_manager *manager, struct fw_reason *reason)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < FW_VOLUME_HOSTS_MAX; i++) {
        struct fw_volume_message change;
        uint64_t cursor = 0;
        uint64_t pool = manager->metadata.hosts[i].pool;
        if (manager->peers[i].up == NULL || manager->peers[i].is_attached || pool == 0) {
            continue;
        }
        rc =
            fw_volume_peer_receive(manager, i, reason); /* What it has placed is not in the pool. */
        while (rc == 0 && fw_volume_metadata_pool(&manager->metadata, i, 0, FW_VOLUME_RUNS_MAX,
                                                  &cursor, &change)) {
            change.kind = FW_VOLUME_FREED;
            rc = fw_volume_manager_change(manager, &change);
        }
        if (rc == 0) {
            FW_LOG(volume, NOTICE, "took back the pool of host %s, which has no agent: %" PRIu64,
                   manager->metadata.hosts[i].name, pool);
        }
    }
    return rc == 0 ? fw_volume_manager_commit(manager, reason) : rc;
}

/* Tells the host that there is nothing for it, once, and the log, once in a while. */
static int full_send(struct fw_volume_manager *manager, uint32_t host, struct fw_reason *reason)
{
    struct fw_volume_peer *peer = &manager->peers[host];
    struct fw_volume_message message;
    int64_t now_ns = fw_clock_now_ns();
    if (manager->full_log_ns == 0 ||
        now_ns - manager->full_log_ns >= FULL_LOG_S * (int64_t)FW_NS_PER_S) {
        manager->full_log_ns = now_ns;
        FW_LOG(volume, WARNING,
               "the group is full: host %s wants extents and none is free; discard data, remove "
               "volumes, or disconnect --fenced hosts that are off",
               manager->metadata.hosts[host].name);
    }
    if (peer->is_told_full) {
        return 0;
    }
    fw_volume_message_init(&message, FW_VOLUME_FULL);
    message.host = host;
    int rc = fw_volume_queue_push(peer->down, &message, reason);
    peer->is_told_full = rc == 0;
    return rc < 0 ? rc : 0;
}

static uint32_t hosts_count(const struct fw_volume_manager *manager)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < FW_VOLUME_HOSTS_MAX; i++) {
        count += manager->peers[i].up != NULL && manager->peers[i].is_attached ? 1 : 0;
    }
    return count;
}

/* Somebody has nothing, and there is nothing left: the others are to give some back. */
static void others_squeeze(struct fw_volume_manager *manager, uint32_t host)
{
    for (uint32_t i = 0; i < FW_VOLUME_HOSTS_MAX; i++) {
        if (i != host && manager->peers[i].up != NULL &&
            manager->metadata.hosts[i].pool > manager->limits.min) {
            fw_volume_demand_squeeze(&manager->peers[i].demand, &manager->limits);
        }
    }
}

static int pool_fill(struct fw_volume_manager *manager, uint32_t host, struct fw_reason *reason)
{
    struct fw_volume_peer *peer = &manager->peers[host];
    struct fw_volume_metadata *metadata = &manager->metadata;
    uint64_t want = fw_volume_demand_want(&peer->demand, &manager->limits,
                                          metadata->hosts[host].pool, fw_clock_now_ns());
    uint32_t hosts = hosts_count(manager);
    struct fw_volume_message change;
    if (!peer->is_attached) {
        return 0; /* It is given some when its agent runs; others may need them. */
    }
    if (want > 0 && metadata->free_count == 0) {
        int rc = pools_take_back(manager, reason);
        if (rc == 0 && metadata->free_count == 0) {
            others_squeeze(manager, host);
            rc = full_send(manager, host, reason);
        }
        if (rc != 0) {
            return rc;
        }
    }
    uint64_t fair = (metadata->free_count + hosts - 1) / hosts;
    want = want < fair ? want : fair;
    while (want > 0) {
        want -= fw_volume_metadata_grant(metadata, host, want, &change);
        int rc = fw_volume_manager_change(manager, &change);
        if (rc != 0) {
            return rc;
        }
    }
    /* Nobody may hear of a grant that a crash could take back. */
    return fw_volume_manager_commit(manager, reason);
}

static int pool_shrink(struct fw_volume_manager *manager, uint32_t host, struct fw_reason *reason)
{
    struct fw_volume_peer *peer = &manager->peers[host];
    struct fw_volume_message message;
    uint64_t target = peer->demand.target;
    if (manager->metadata.hosts[host].pool <= target) {
        peer->kept = UINT64_MAX; /* It has done what it was asked for. */
        return 0;
    }
    if (peer->kept == target) {
        return 0;
    }
    fw_volume_message_init(&message, FW_VOLUME_KEEP);
    message.host = host;
    message.value = target;
    int rc = fw_volume_queue_push(peer->down, &message, reason);
    if (rc == 0) {
        peer->kept = target;
    }
    return rc < 0 ? rc : 0;
}

/* All placements first, then the complete list: what is not in it has been placed. */
static int resync(struct fw_volume_manager *manager, uint32_t host, struct fw_reason *reason)
{
    struct fw_volume_peer *peer = &manager->peers[host];
    struct fw_volume_batch batch = {.bytes = NULL};
    int rc = fw_volume_peer_receive(manager, host, reason);
    if (rc == 0) {
        rc = list_gather(manager, host, 0, true, &batch);
    }
    if (rc == 0) {
        rc = fw_volume_batch_push(&batch, peer->down, true, reason);
    }
    if (rc == 0) {
        peer->sent = manager->metadata.generation;
        peer->kept = UINT64_MAX;
        peer->told = 0; /* The host has dropped all that was in the ring. */
        peer->is_told_full = false;
        peer->is_attached = true; /* It may have come since the last look. */
    }
    fw_volume_batch_fini(&batch);
    return rc < 0 ? rc : 0;
}

/* ---- a host that goes ---- */

int fw_volume_peer_remove(struct fw_volume_manager *manager, uint32_t host, bool is_known,
                          struct fw_reason *reason)
{
    struct fw_volume_message change;
    uint64_t cursor = 0;
    int rc = 0;
    while (rc == 0 && fw_volume_metadata_pool(&manager->metadata, host, 0, FW_VOLUME_RUNS_MAX,
                                              &cursor, &change)) {
        change.kind = is_known ? FW_VOLUME_FREED : FW_VOLUME_QUARANTINED;
        rc = fw_volume_manager_change(manager, &change);
    }
    if (rc == 0) {
        fw_volume_message_init(&change, FW_VOLUME_HOST_REMOVED);
        change.host = host;
        memcpy(change.name, manager->metadata.hosts[host].name, sizeof change.name);
        rc = fw_volume_manager_change(manager, &change);
    }
    if (rc == 0) {
        rc = fw_volume_manager_commit_command(manager, reason);
    }
    if (rc == 0) {
        fw_volume_peer_detach(&manager->peers[host]);
        FW_LOG(volume, NOTICE, "host %s is not connected any more", change.name);
    }
    return rc;
}

/* Tells the host to leave, as the log says. Whoever is told twice answers the first time only. */
static int leave_send(struct fw_volume_manager *manager, uint32_t host, struct fw_reason *reason)
{
    struct fw_volume_peer *peer = &manager->peers[host];
    struct fw_volume_message message;
    char names[FW_VOLUME_NAME_MAX];
    uint64_t number = manager->metadata.hosts[host].leaving;
    if (peer->told == number) {
        return 0;
    }
    if (fw_volume_metadata_open_on(&manager->metadata, host, names, sizeof names)) {
        fw_volume_message_init(&message, FW_VOLUME_HOST_STAYS); /* Opened since, by a past life. */
        message.host = host;
        int rc = fw_volume_manager_change(manager, &message);
        return rc == 0 ? fw_volume_manager_commit(manager, reason) : rc;
    }
    fw_volume_message_init(&message, FW_VOLUME_LEAVE);
    message.host = host;
    message.number = number;
    int rc = fw_volume_queue_push(peer->down, &message, reason);
    if (rc == 0) {
        peer->told = number;
    }
    return rc < 0 ? rc : 0;
}

/*
 * An up ring is suspended by reclaiming a host; what is found suspended here was given up half-way,
 * or is an order to leave as earlier releases gave it. Nothing was released: it may go on.
 */
static int suspended_resume(struct fw_volume_peer *peer, struct fw_reason *reason)
{
    struct fw_ring_state state;
    fw_ring_state(peer->up, &state);
    int rc = state.suspend_requested && state.suspend_acknowledged
                 ? fw_ring_resume(peer->up, fw_volume_ring_reason(reason))
                 : 0;
    return rc < 0 ? rc : 0;
}

/* ---- the round ---- */

static int round_do(struct fw_volume_manager *manager, uint32_t host, struct fw_reason *reason)
{
    struct fw_volume_peer *peer = &manager->peers[host];
    int rc = fw_ring_poll(peer->up, fw_volume_ring_reason(reason));
    peer->is_attached = fw_ring_other_is_attached(peer->up);
    if (rc == 0) {
        rc = messages_receive(manager, host, reason);
        rc = rc == FW_RING_RETRY ? 0 : rc;
    }
    if (rc == 0) {
        rc = suspended_resume(peer, reason);
    }
    if (rc != 0) {
        return rc;
    }
    if (manager->metadata.hosts[host]
            .has_left) { /* All it will ever have said has been taken in. */
        return fw_volume_peer_remove(manager, host, true, reason);
    }
    rc = fw_ring_poll(peer->down, fw_volume_ring_reason(reason));
    if (rc == FW_RING_RESYNC) {
        return resync(manager, host, reason);
    }
    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    if (manager->metadata.hosts[host].leaving != 0) {
        return leave_send(manager, host, reason);
    }
    rc = pool_fill(manager, host, reason);
    if (rc == 0) {
        rc = grants_send(manager, host, reason);
    }
    return rc == 0 ? pool_shrink(manager, host, reason) : rc;
}

int fw_volume_peer_round(struct fw_volume_manager *manager, uint32_t host, struct fw_reason *reason)
{
    struct fw_reason why = {.text = ""};
    int rc = round_do(manager, host, &why);
    if (manager->broken == 0 && rc == -EBADMSG) { /* One ring is damaged; the others are not. */
        FW_LOG(volume, ERROR, "a ring of host %s is damaged; it is left alone until reclaimed: %s",
               manager->metadata.hosts[host].name, why.text);
        fw_volume_peer_detach(&manager->peers[host]);
        return 0;
    }
    return rc < 0 ? fw_reason_set(reason, rc, "host %s: %s", manager->metadata.hosts[host].name,
                                  why.text)
                  : rc;
}
