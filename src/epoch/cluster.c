/* SPDX-License-Identifier: Apache-2.0 */
#include "epoch/cluster.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"

/* What is to be sent. */
enum outbox {
    TELL = 1,     /* A STATE. */
    MOVE = 2,     /* NEXT, if one is pending, else LAST. */
    COMPLAIN = 4, /* A TIMEOUT. */
};

static struct fw_epoch_cluster *cluster_of(struct fw_epoch *epoch)
{
    return FW_CONTAINER_OF(epoch, struct fw_epoch_cluster, epoch);
}

static struct fw_epoch_cluster *cluster_of_coordinator(struct fw_epoch_coordinator *coordinator)
{
    return FW_CONTAINER_OF(coordinator, struct fw_epoch_cluster, coordinator);
}

static void deadlines_arm(struct fw_epoch_cluster *cluster)
{
    int64_t pending = cluster->pending_until_ns;
    int64_t clock = cluster->clock_until_ns;
    cluster->config.arm(cluster, pending < clock ? pending : clock);
}

/* ---- sending ------------------------------------------------------------------------------- */

static void message_make(struct fw_epoch_cluster *cluster, enum outbox which,
                         struct fw_epoch_message *message)
{
    if (which == TELL) {
        fw_epoch_coordinator_tell(&cluster->coordinator, message);
    } else if (which == COMPLAIN) {
        fw_epoch_coordinator_complain(&cluster->coordinator, message);
    } else if (cluster->is_pending) {
        *message = (struct fw_epoch_message){
            .kind = FW_EPOCH_NEXT,
            .incarnation = cluster->coordinator.incarnation,
            .number = cluster->number,
            .timeout_ns = cluster->config.epoch.timeout_ns,
            .ticket = cluster->ticket,
            .length = (uint32_t)cluster->length,
            .data = cluster->data,
        };
    } else {
        *message = (struct fw_epoch_message){.kind = FW_EPOCH_LAST};
    }
}

/* Sends what the group takes. */
static void outbox_flush(struct fw_epoch_cluster *cluster)
{
    while (cluster->outbox != 0) {
        enum outbox which = cluster->outbox & -cluster->outbox;
        struct fw_epoch_message message;
        char bytes[FW_EPOCH_MESSAGE_MAX];
        message_make(cluster, which, &message);
        size_t length = fw_epoch_message_write(&message, bytes);
        int rc = fw_group_send(cluster->group, bytes, length);
        if (rc == -EAGAIN) {
            return;
        }
        if (rc != 0) {
            cluster->figures.last_error = rc; /* It is lost; the bounds see to the rest. */
        }
        cluster->outbox &= ~(uint32_t)which;
    }
}

static void outbox_add(struct fw_epoch_cluster *cluster, enum outbox which)
{
    cluster->outbox |= which;
    outbox_flush(cluster);
}

/* ---- the participant ----------------------------------------------------------------------- */

/* Answers the next() that is pending. */
static void pending_answer(struct fw_epoch_cluster *cluster, int64_t number, size_t length)
{
    FW_ASSERT(cluster->is_pending);
    cluster->is_pending = false;
    cluster->outbox &= ~(uint32_t)MOVE;
    cluster->pending_until_ns = INT64_MAX;
    deadlines_arm(cluster);
    cluster->started(cluster->argument, number, cluster->data, length);
}

static void pending_refuse(struct fw_epoch_cluster *cluster, int error, uint64_t *count)
{
    (*count)++;
    cluster->figures.last_error = error;
    pending_answer(cluster, error, 0);
}

static bool number_is_current(const struct fw_epoch_cluster *cluster, int64_t number)
{
    const struct fw_epoch_coordinator *coordinator = &cluster->coordinator;
    return number == FW_EPOCH_FIRST ||
           (cluster->is_in && cluster->in_incarnation == coordinator->incarnation &&
            cluster->in_number == coordinator->number && number == coordinator->number);
}

static void cluster_next(struct fw_epoch *epoch, int64_t number, void *data, size_t length,
                         fw_epoch_started started, void *argument)
{
    struct fw_epoch_cluster *cluster = cluster_of(epoch);
    const struct fw_group_view *view = &cluster->coordinator.view;
    FW_ASSERT(!cluster->is_pending && number >= 0 && length <= FW_EPOCH_DATA_MAX);
    cluster->is_pending = true;
    cluster->number = number;
    cluster->data = data;
    cluster->length = length;
    cluster->started = started;
    cluster->argument = argument;
    cluster->ticket++;
    if (view->count > 0 && !view->is_quorate) {
        pending_refuse(cluster, -ENOTCONN, &cluster->figures.cut_off);
    } else if (!number_is_current(cluster, number)) {
        pending_refuse(cluster, -ESTALE, &cluster->figures.stale);
    } else {
        cluster->pending_until_ns = cluster->config.now(cluster) + cluster->config.bound_ns;
        deadlines_arm(cluster);
        outbox_add(cluster, MOVE);
    }
}

/* Takes part no longer, unless it is about to join anew. */
static void cluster_leave(struct fw_epoch_cluster *cluster)
{
    cluster->is_in = false;
    cluster->epoch.number = 0;
    outbox_add(cluster, MOVE);
}

static void cluster_last(struct fw_epoch *epoch, int64_t number)
{
    struct fw_epoch_cluster *cluster = cluster_of(epoch);
    FW_ASSERT(number == FW_EPOCH_FIRST || number <= cluster->coordinator.number || !cluster->is_in);
    cluster->is_pending = false;
    cluster->pending_until_ns = INT64_MAX;
    deadlines_arm(cluster);
    cluster_leave(cluster);
}

static const struct fw_epoch_handler cluster_handler = {
    .name = "cluster",
    .next = cluster_next,
    .last = cluster_last,
};

/* ---- what the coordinator decides ---------------------------------------------------------- */

static void coordinator_asks(struct fw_epoch_coordinator *coordinator)
{
    outbox_add(cluster_of_coordinator(coordinator), TELL);
}

static void coordinator_synchronised(struct fw_epoch_coordinator *coordinator)
{
    struct fw_epoch_cluster *cluster = cluster_of_coordinator(coordinator);
    bool is_live = fw_epoch_coordinator_peer(coordinator, coordinator->self) != NULL;
    cluster->outbox &= ~(uint32_t)(TELL | COMPLAIN);
    cluster->is_in = is_live && number_is_current(cluster, cluster->in_number);
    if (cluster->is_pending && !number_is_current(cluster, cluster->number)) {
        pending_refuse(cluster, -ESTALE, &cluster->figures.stale);
    } else if (cluster->is_pending || (is_live && !cluster->is_in)) {
        outbox_add(cluster, MOVE);
    }
}

static void coordinator_lost(struct fw_epoch_coordinator *coordinator)
{
    struct fw_epoch_cluster *cluster = cluster_of_coordinator(coordinator);
    cluster->is_in = false;
    cluster->epoch.number = 0;
    if (cluster->is_pending) {
        pending_refuse(cluster, -ENOTCONN, &cluster->figures.cut_off);
    }
}

static void coordinator_clock(struct fw_epoch_coordinator *coordinator, int64_t timeout_ns)
{
    struct fw_epoch_cluster *cluster = cluster_of_coordinator(coordinator);
    cluster->clock_until_ns = INT64_MAX;
    cluster->outbox &= ~(uint32_t)COMPLAIN;
    if (timeout_ns > 0) {
        cluster->closing_ns = cluster->config.now(cluster);
        cluster->clock_until_ns = cluster->closing_ns + timeout_ns;
    }
    deadlines_arm(cluster);
}

static void coordinator_evicted(struct fw_epoch_coordinator *coordinator, uint64_t member)
{
    struct fw_epoch_cluster *cluster = cluster_of_coordinator(coordinator);
    cluster->figures.evicted++;
    if (member != coordinator->self) {
        return;
    }
    cluster->is_in = false;
    cluster->epoch.number = 0;
    /* One that wants to join anew has said, or will say, so in any case. */
    if (cluster->is_pending && cluster->number != FW_EPOCH_FIRST) {
        pending_refuse(cluster, -ESTALE, &cluster->figures.stale);
    }
}

static void coordinator_started(struct fw_epoch_coordinator *coordinator,
                                const struct fw_epoch_peer *peer, char *data, size_t length)
{
    struct fw_epoch_cluster *cluster = cluster_of_coordinator(coordinator);
    struct fw_epoch_figures *figures = &cluster->figures;
    figures->ragged_ns = cluster->config.now(cluster) - cluster->closing_ns;
    if (figures->ragged_ns > figures->ragged_max_ns) {
        figures->ragged_max_ns = figures->ragged_ns;
    }
    if (peer == NULL || !cluster->is_pending || peer->ticket != cluster->ticket) {
        figures->missed++;
        return;
    }
    figures->started++;
    cluster->is_in = true;
    cluster->in_incarnation = coordinator->incarnation;
    cluster->in_number = coordinator->number;
    cluster->epoch.number = coordinator->number;
    if (length > 0) {
        memcpy(cluster->data, data, length);
    }
    pending_answer(cluster, coordinator->number, length);
}

static const struct fw_epoch_coordinator_events coordinator_events = {
    .asks = coordinator_asks,
    .synchronised = coordinator_synchronised,
    .lost = coordinator_lost,
    .clock = coordinator_clock,
    .evicted = coordinator_evicted,
    .started = coordinator_started,
};

/* ---- what the group brings ----------------------------------------------------------------- */

static void group_delivered(struct fw_group *group, uint64_t sender, const void *bytes,
                            size_t length)
{
    struct fw_epoch_cluster *cluster = group->user;
    struct fw_epoch_message message;
    if (fw_epoch_message_read(&message, bytes, length) != 0) {
        cluster->figures.refused++;
        return;
    }
    fw_epoch_coordinator_deliver(&cluster->coordinator, sender, &message);
}

static void group_viewed(struct fw_group *group, const struct fw_group_view *view)
{
    struct fw_epoch_cluster *cluster = group->user;
    cluster->coordinator.self = group->self;
    fw_epoch_coordinator_view(&cluster->coordinator, view);
}

static void group_writable(struct fw_group *group)
{
    outbox_flush(group->user);
}

static const struct fw_group_events group_events = {
    .delivered = group_delivered,
    .viewed = group_viewed,
    .writable = group_writable,
};

/* ---- life ---------------------------------------------------------------------------------- */

int fw_epoch_cluster_init(struct fw_epoch_cluster *cluster, struct fw_group *group,
                          const struct fw_epoch_cluster_config *config)
{
    int rc = fw_epoch_coordinator_init(&cluster->coordinator, group->self, &config->epoch,
                                       &coordinator_events);
    if (rc != 0) {
        return rc;
    }
    cluster->epoch = (struct fw_epoch){.handler = &cluster_handler, .config = config->epoch};
    cluster->config = *config;
    if (config->bound_ns == 0) {
        cluster->config.bound_ns = 3 * config->epoch.timeout_ns;
    }
    cluster->group = group;
    cluster->is_pending = false;
    cluster->ticket = 0;
    cluster->pending_until_ns = INT64_MAX;
    cluster->clock_until_ns = INT64_MAX;
    cluster->is_in = false;
    cluster->outbox = 0;
    cluster->figures = (struct fw_epoch_figures){0};
    group->events = &group_events;
    group->user = cluster;
    return 0;
}

void fw_epoch_cluster_fini(struct fw_epoch_cluster *cluster)
{
    FW_ASSERT(!cluster->is_pending);
    cluster->group->events = NULL;
    fw_epoch_coordinator_fini(&cluster->coordinator);
}

void fw_epoch_cluster_poll(struct fw_epoch_cluster *cluster)
{
    int64_t now = cluster->config.now(cluster);
    if (now >= cluster->clock_until_ns) {
        cluster->clock_until_ns = INT64_MAX;
        outbox_add(cluster, COMPLAIN);
    }
    deadlines_arm(cluster);
    if (cluster->is_pending && now >= cluster->pending_until_ns) {
        pending_refuse(cluster, -ETIMEDOUT, &cluster->figures.timed_out);
        cluster_leave(cluster);
    }
}
