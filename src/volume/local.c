/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/local.h"

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

enum { MESSAGES_PER_STEP = 64, FULL_S = 5, FULL_LOG_S = 60 };

/* ---- opening and closing ---- */

static int ring_attach(struct fw_volume_agent *agent, bool is_up, uint64_t host_number,
                       const char *name, struct fw_reason *reason)
{
    const struct fw_ring_options options = {.role = is_up ? FW_RING_PRODUCER : FW_RING_CONSUMER,
                                            .queue = is_up ? "up" : "down",
                                            .client = name};
    struct fw_volume_store *store = is_up ? agent->up_store : agent->store;
    struct fw_disk **part = is_up ? &agent->up_part : &agent->down_part;
    struct fw_ring **ring = is_up ? &agent->up : &agent->down;
    int rc = store->ops->part(store, is_up ? FW_VOLUME_PART_UP : FW_VOLUME_PART_DOWN, agent->host,
                              part, reason);
    if (rc != 0) {
        *part = NULL;
        return rc;
    }
    rc = fw_ring_attach_on(ring, *part, host_number, &options, reason);
    if (rc != 0) {
        *ring = NULL;
    }
    return rc == -EBUSY ? fw_reason_set(reason, rc,
                                        "an agent of '%.80s' runs already, on another host or by "
                                        "another path to this disk; end that one first",
                                        name)
                        : rc;
}

static int host_find(struct fw_volume_agent *agent, const char *name, struct fw_reason *reason)
{
    struct fw_volume_metadata metadata;
    int rc = fw_volume_view(agent->store, FW_VOLUME_NONE, &metadata, reason);
    if (rc == 0) {
        agent->host = fw_volume_metadata_find_host(&metadata, name);
        fw_volume_metadata_fini(&metadata);
        if (agent->host == FW_VOLUME_NONE) {
            rc = fw_reason_set(reason, -ENOENT,
                               "there is no host '%.80s'; the manager must connect it first", name);
        }
    }
    return rc;
}

/*
 * Looks again when the rings are ours. An earlier life may have said LEFT: whether the manager has
 * heard it or not, from there on nothing that we say counts. Any later end of the host's would take
 * the rings from us.
 */
static int host_check(struct fw_volume_agent *agent, const char *name, struct fw_reason *reason)
{
    struct fw_volume_metadata metadata;
    int rc = fw_volume_view(agent->store, agent->host, &metadata, reason);
    if (rc != 0) {
        return rc;
    }
    bool is_there = fw_volume_metadata_find_host(&metadata, name) == agent->host;
    bool has_left = metadata.hosts[agent->host].has_left;
    fw_volume_metadata_fini(&metadata);
    if (!is_there || has_left) {
        rc = fw_reason_set(reason, -ESHUTDOWN,
                           "host '%.80s' has left the group; the manager must connect it again",
                           name);
    }
    return rc;
}

static void agent_free(struct fw_volume_agent *agent)
{
    if (agent->up != NULL) {
        fw_ring_detach(agent->up);
    }
    if (agent->down != NULL) {
        fw_ring_detach(agent->down);
    }
    if (agent->up_part != NULL) {
        fw_disk_close(agent->up_part);
    }
    if (agent->down_part != NULL) {
        fw_disk_close(agent->down_part);
    }
    if (agent->store != NULL) {
        agent->store->ops->close(agent->store);
    }
    if (agent->up_store != NULL) {
        agent->up_store->ops->close(agent->up_store);
    }
    if (agent->is_locked) {
        fw_file_lock_release(&agent->file_lock);
    }
    if (agent->owns_disks && agent->disk != NULL) {
        fw_disk_close(agent->disk);
    }
    if (agent->owns_disks && agent->up_disk != NULL) {
        fw_disk_close(agent->up_disk);
    }
    fw_volume_pool_fini(&agent->pool);
    fw_volume_pool_fini(&agent->incoming);
    fw_mutex_fini(&agent->lock);
    fw_mutex_fini(&agent->turn);
    free(agent);
}

static struct fw_volume_agent *agent_make(void)
{
    struct fw_volume_agent *agent = calloc(1, sizeof *agent);
    if (agent != NULL) {
        fw_mutex_init(&agent->turn, FW_RANK_VOLUME_TURN);
        fw_mutex_init(&agent->lock, FW_RANK_VOLUME);
        fw_list_init(&agent->volumes);
        agent->keep = UINT64_MAX;
        agent->full_wait_ns = FULL_S * (int64_t)FW_NS_PER_S;
    }
    return agent;
}

static int agent_start(struct fw_volume_agent *agent, const char *path, uint64_t host_number,
                       const char *name, struct fw_reason *reason)
{
    int rc = fw_volume_store_open(&agent->store, agent->disk, reason);
    if (rc != 0) {
        agent->store = NULL;
        return rc;
    }
    rc = fw_volume_store_open(&agent->up_store, agent->up_disk, reason);
    if (rc != 0) {
        agent->up_store = NULL;
        return rc;
    }
    rc = host_find(agent, name, reason);
    if (rc == 0 && path != NULL) {
        rc = fw_file_lock_take(&agent->file_lock, path, FW_VOLUME_LOCK_HOSTS + agent->host, reason);
        agent->is_locked = rc == 0;
        host_number = rc == 0 ? fw_ring_host_number(&agent->file_lock) : 0;
        if (rc == -EBUSY) {
            (void)fw_reason_set(reason, rc,
                                "an agent of '%.80s' runs on this host already, and a host has "
                                "one: a server with --volume-host, 'fairway volume agent' or "
                                "'fairway volume attach'; end that one first",
                                name);
        }
    }
    if (rc == 0) {
        rc = ring_attach(agent, true, host_number, name, reason);
    }
    if (rc == 0) {
        rc = ring_attach(agent, false, host_number, name, reason);
    }
    return rc == 0 ? host_check(agent, name, reason) : rc;
}

int fw_volume_agent_open_on(struct fw_volume_agent **made,
                            const struct fw_volume_agent_disks *disks, uint64_t host_number,
                            const char *host, struct fw_reason *reason)
{
    struct fw_volume_agent *agent = agent_make();
    if (agent == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot open an agent");
    }
    agent->disk = disks->rest;
    agent->up_disk = disks->up;
    int rc = agent_start(agent, NULL, host_number, host, reason);
    if (rc != 0) {
        agent_free(agent);
        return rc;
    }
    *made = agent;
    return 0;
}

int fw_volume_agent_open(struct fw_volume_agent **made,
                         const struct fw_volume_agent_options *options,
                         struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = fw_volume_reason(public_reason);
    const struct fw_disk_options disk_options = {.path = options->path, .flags = FW_DISK_DIRECT};
    const struct fw_disk_options up_options = {
        .path = options->path, .flags = FW_DISK_DIRECT, .engine = FW_DISK_ENGINE_CALLER};
    struct fw_volume_agent *agent = agent_make();
    if (agent == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot open an agent");
    }
    agent->owns_disks = true;
    agent->full_wait_ns = options->full_ns != 0 ? options->full_ns : agent->full_wait_ns;
    int rc = fw_disk_open(&agent->disk, &disk_options, reason);
    agent->disk = rc == 0 ? agent->disk : NULL;
    if (rc == 0) {
        rc = fw_disk_open(&agent->up_disk, &up_options, reason);
        agent->up_disk = rc == 0 ? agent->up_disk : NULL;
    }
    if (rc == 0) {
        rc = agent_start(agent, options->path, 0, options->host, reason);
    }
    if (rc != 0) {
        agent_free(agent);
        return rc;
    }
    *made = agent;
    return 0;
}

void fw_volume_agent_prepare(struct fw_volume_agent *agent, fw_volume_prepare *prepare,
                             void *context)
{
    agent->prepare = prepare;
    agent->prepare_context = context;
}

void fw_volume_agent_drop(struct fw_volume_agent *agent)
{
    struct fw_list_link *link;
    while ((link = fw_list_pop_front(&agent->volumes)) != NULL) {
        fw_volume_free(FW_LIST_ENTRY(link, struct fw_volume, link));
    }
    agent_free(agent);
}

/* ---- the up ring ---- */

int fw_volume_agent_check(const struct fw_volume_agent *agent, struct fw_reason *reason)
{
    if (agent->broken != 0) {
        return fw_reason_set(reason, agent->broken, "the agent has failed; open it anew");
    }
    return agent->phase >= FW_VOLUME_SHUT
               ? fw_reason_set(reason, -ESHUTDOWN, "the manager has disconnected this host")
               : 0;
}

/* The manager wants no more of us. What the pool has is its own again when we have answered. */
static void agent_leave(struct fw_volume_agent *agent)
{
    fw_mutex_lock(&agent->lock);
    agent->phase = FW_VOLUME_OUT;
    fw_volume_pool_clear(&agent->pool);
    fw_mutex_unlock(&agent->lock);
}

static void agent_break(struct fw_volume_agent *agent, int rc)
{
    fw_mutex_lock(&agent->lock);
    agent->broken = rc;
    fw_mutex_unlock(&agent->lock);
}

int fw_volume_agent_push(struct fw_volume_agent *agent, const struct fw_volume_batch *batch,
                         struct fw_reason *reason)
{
    int rc = fw_volume_batch_push(batch, agent->up, false, reason);
    if (rc == FW_RING_RETRY) {
        return FW_VOLUME_WAIT;
    }
    if (rc == FW_RING_SUSPENDED) {
        agent_leave(agent);
        return fw_reason_set(reason, -ESHUTDOWN, "the manager has disconnected this host");
    }
    if (rc < 0 && rc != -EMSGSIZE && rc != -ENOMEM) {
        agent_break(agent, rc);
    }
    return rc;
}

/* Gives what is above `keep` back to the manager. When the ring is full, another time. */
static int pool_return(struct fw_volume_agent *agent, uint64_t keep, struct fw_reason *reason)
{
    struct fw_volume_batch batch = {.bytes = NULL};
    struct fw_volume_message message;
    fw_volume_message_init(&message, FW_VOLUME_RETURN);
    message.host = agent->host;
    fw_mutex_lock(&agent->lock);
    int rc = fw_volume_agent_check(agent, reason);
    while (rc == 0 && agent->pool.extents > keep && message.count < FW_VOLUME_RUNS_MAX) {
        const struct fw_volume_run run =
            fw_volume_pool_take(&agent->pool, agent->pool.extents - keep);
        (void)fw_volume_message_add(&message, &run);
    }
    agent->under_way += message.count > 0 ? 1 : 0;
    fw_mutex_unlock(&agent->lock);
    if (message.count == 0) {
        return rc;
    }
    rc = fw_volume_batch_add(&batch, &message);
    if (rc == 0) {
        rc = fw_volume_agent_push(agent, &batch, reason);
    }
    fw_volume_batch_fini(&batch);
    fw_mutex_lock(&agent->lock);
    agent->under_way--;
    /* Not pushed: still ours. Where there is no memory to note that, the next life finds them. */
    for (uint32_t i = 0; (rc == FW_VOLUME_WAIT || rc == -ENOMEM) && i < message.count; i++) {
        (void)!fw_volume_pool_add(&agent->pool, &message.runs[i]);
    }
    fw_mutex_unlock(&agent->lock);
    return rc == FW_VOLUME_WAIT || rc == -ENOMEM ? 0 : rc;
}

void fw_volume_agent_close(struct fw_volume_agent *agent, bool give_back)
{
    struct fw_reason reason = {.text = ""};
    FW_ASSERT(fw_list_is_empty(&agent->volumes));
    uint64_t before = UINT64_MAX;
    uint64_t left = fw_volume_agent_pool(agent);
    int rc = 0;
    while (give_back && rc == 0 && left > 0 && left < before) { /* Or the ring is full. */
        rc = pool_return(agent, 0, &reason);
        before = left;
        left = fw_volume_agent_pool(agent);
    }
    if (rc != 0 && rc != -ESHUTDOWN) {
        FW_LOG(volume, WARNING, "the pool stays the host's: %s", reason.text);
    }
    agent_free(agent);
}

uint64_t fw_volume_agent_pool(struct fw_volume_agent *agent)
{
    fw_mutex_lock(&agent->lock);
    uint64_t extents = agent->pool.extents;
    fw_mutex_unlock(&agent->lock);
    return extents;
}

/* ---- the down ring ---- */

/* Pops up to so many messages and hands them on. Returns 0; RETRY: there are no more. */
static int messages_pop(struct fw_volume_agent *agent,
                        int (*take)(struct fw_volume_agent *agent,
                                    const struct fw_volume_message *message),
                        struct fw_reason *reason)
{
    struct fw_volume_message message;
    uint64_t end = 0;
    int rc = 0;
    for (int i = 0; rc == 0 && i < MESSAGES_PER_STEP; i++) {
        uint64_t position = 0;
        rc = fw_volume_queue_pop(agent->down, &message, &position, reason);
        if (rc == -EBADMSG && position > 0) {
            FW_LOG(volume, ERROR, "the manager sent what cannot be, and it is skipped: %s",
                   reason != NULL ? reason->text : "");
            rc = 0;
        } else if (rc == 0) {
            rc = take(agent, &message);
        }
        end = position > 0 ? position : end;
    }
    if (rc < 0 || end == 0) {
        return rc;
    }
    int advanced = fw_ring_advance(agent->down, end, fw_volume_ring_reason(reason));
    return advanced != 0 ? advanced : rc;
}

static int message_drop(struct fw_volume_agent *agent, const struct fw_volume_message *message)
{
    (void)agent;
    (void)message;
    return 0;
}

/* A part of the complete list. Until the last is there, nothing of it counts. */
static int message_list(struct fw_volume_agent *agent, const struct fw_volume_message *message)
{
    if (message->kind != FW_VOLUME_FREE || (message->flags & FW_VOLUME_SYNC) == 0) {
        return 0; /* From before the list: in it, if it is still true. */
    }
    if ((message->flags & FW_VOLUME_FIRST) != 0) {
        fw_volume_pool_clear(&agent->incoming);
        agent->is_incoming = true;
    }
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && agent->is_incoming && i < message->count; i++) {
        rc = fw_volume_pool_add(&agent->incoming, &message->runs[i]);
    }
    if (rc != 0 || !agent->is_incoming || (message->flags & FW_VOLUME_LAST) == 0) {
        return rc;
    }
    agent->is_incoming = false;
    fw_mutex_lock(&agent->lock);
    struct fw_volume_pool empty = agent->pool;
    agent->pool = agent->incoming;
    agent->incoming = empty;
    agent->seen = message->number;
    agent->phase = FW_VOLUME_RUNNING;
    fw_mutex_unlock(&agent->lock);
    return 0;
}

/* There is nothing for us. The log is told once in a while. */
static void full_take(struct fw_volume_agent *agent)
{
    int64_t now_ns = fw_clock_now_ns();
    fw_mutex_lock(&agent->lock);
    agent->is_full = true;
    uint64_t left = agent->pool.extents;
    fw_mutex_unlock(&agent->lock);
    if (agent->full_log_ns == 0 ||
        now_ns - agent->full_log_ns >= FULL_LOG_S * (int64_t)FW_NS_PER_S) {
        agent->full_log_ns = now_ns;
        FW_LOG(volume, WARNING,
               "the group is full: this host has %" PRIu64 " extents left, and then writes to new "
               "places fail until some are given back",
               left);
    }
}

/* The manager has something for us again, or is asked anew. Under the lock. */
static void full_end(struct fw_volume_agent *agent)
{
    agent->is_full = false;
    agent->dry_ns = 0;
}

/* More for the pool: those that we have not been given before. */
static int message_run(struct fw_volume_agent *agent, const struct fw_volume_message *message)
{
    if (message->kind == FW_VOLUME_KEEP) {
        agent->keep = message->value;
        return 0;
    }
    if (message->kind == FW_VOLUME_FULL) {
        full_take(agent);
        return 0;
    }
    if (message->kind == FW_VOLUME_LEAVE && message->number > agent->stayed) {
        agent->leave = message->number;
        return 0;
    }
    if (message->kind != FW_VOLUME_FREE || (message->flags & FW_VOLUME_SYNC) != 0) {
        return 0;
    }
    int rc = 0;
    fw_mutex_lock(&agent->lock);
    for (uint32_t i = 0; rc == 0 && i < message->count; i++) {
        if (message->runs[i].generation > agent->seen) {
            rc = fw_volume_pool_add(&agent->pool, &message->runs[i]);
            full_end(agent);
        }
    }
    if (rc == 0 && (message->flags & FW_VOLUME_LAST) != 0) {
        agent->seen = message->number;
    }
    fw_mutex_unlock(&agent->lock);
    return rc;
}

static enum fw_volume_phase phase_get(struct fw_volume_agent *agent)
{
    fw_mutex_lock(&agent->lock); /* Who allocates may find out that we have to leave. */
    enum fw_volume_phase phase = agent->phase;
    fw_mutex_unlock(&agent->lock);
    return phase;
}

static int message_take(struct fw_volume_agent *agent, const struct fw_volume_message *message)
{
    return phase_get(agent) == FW_VOLUME_RUNNING ? message_run(agent, message)
                                                 : message_list(agent, message);
}

static void phase_set(struct fw_volume_agent *agent, enum fw_volume_phase phase)
{
    fw_mutex_lock(&agent->lock);
    agent->phase = phase;
    fw_mutex_unlock(&agent->lock);
}

/* Empties the pool, unless a push is under way that may yet fill it. */
static bool pool_drop(struct fw_volume_agent *agent)
{
    fw_mutex_lock(&agent->lock);
    bool is_quiet = agent->under_way == 0;
    if (is_quiet) {
        fw_volume_pool_clear(&agent->pool);
    }
    full_end(agent);
    fw_mutex_unlock(&agent->lock);
    agent->is_incoming = false;
    agent->keep = UINT64_MAX;
    agent->leave = 0; /* If it is still wanted, it is said again. */
    return is_quiet;
}

/*
 * Suspends the ring, whatever an earlier life has left of it. Returns 0 to go on, RETRY to come
 * again.
 */
static int step_start(struct fw_volume_agent *agent, struct fw_reason *reason)
{
    struct fw_ring_state state;
    if (!pool_drop(agent)) {
        return FW_RING_RETRY;
    }
    int rc = fw_ring_poll(agent->down, fw_volume_ring_reason(reason));
    fw_ring_state(agent->down, &state);
    if (rc == 0 && !state.suspend_requested) {
        rc = fw_ring_suspend(agent->down, fw_volume_ring_reason(reason));
    }
    if (rc == 0) {
        phase_set(agent, FW_VOLUME_ASKED);
    }
    return rc;
}

static int step_asked(struct fw_volume_agent *agent, struct fw_reason *reason)
{
    struct fw_ring_state state;
    int rc = fw_ring_poll(agent->down, fw_volume_ring_reason(reason));
    fw_ring_state(agent->down, &state);
    if (rc != 0 || !state.suspend_acknowledged) {
        return rc != 0 ? rc : FW_RING_RETRY;
    }
    while (rc == 0) {
        rc = messages_pop(agent, message_drop, reason);
    }
    if (rc != FW_RING_RETRY) {
        return rc;
    }
    rc = fw_ring_resume(agent->down, fw_volume_ring_reason(reason));
    if (rc == 0) {
        phase_set(agent, FW_VOLUME_RESUMED);
    }
    return rc;
}

/*
 * Answers an order to leave: STAYS where a volume is open; else nothing is under way that could
 * write, and with the gate closed nothing begins any more. The push flushes the disk before it
 * publishes LEFT, so all that was written before is durable when the manager hears of it.
 */
static int leave_answer(struct fw_volume_agent *agent, struct fw_reason *reason)
{
    struct fw_volume_batch batch = {.bytes = NULL};
    struct fw_volume_message message;
    fw_mutex_lock(&agent->lock);
    bool stays = !fw_list_is_empty(&agent->volumes);
    bool is_quiet = agent->under_way == 0;
    if (!stays && is_quiet) {
        agent->phase = FW_VOLUME_SHUT;
        fw_volume_pool_clear(&agent->pool);
    }
    fw_mutex_unlock(&agent->lock);
    if (!stays && !is_quiet) {
        return FW_RING_RETRY;
    }
    fw_volume_message_init(&message, stays ? FW_VOLUME_STAYS : FW_VOLUME_LEFT);
    message.host = agent->host;
    message.number = agent->leave;
    int rc = fw_volume_batch_add(&batch, &message);
    if (rc == 0) {
        rc = fw_volume_agent_push(agent, &batch, reason);
    }
    fw_volume_batch_fini(&batch);
    if (rc == 0 && stays) {
        agent->stayed = agent->leave;
        agent->leave = 0;
    } else if (rc == 0) {
        agent_leave(agent);
    }
    return rc == FW_VOLUME_WAIT ? FW_RING_RETRY : rc; /* Full: the next step says it. */
}

static int step_running(struct fw_volume_agent *agent, struct fw_reason *reason)
{
    int rc = fw_ring_poll(agent->down, fw_volume_ring_reason(reason));
    if (rc == 0) {
        rc = messages_pop(agent, message_take, reason);
    }
    if (rc >= 0 && phase_get(agent) == FW_VOLUME_RUNNING &&
        fw_volume_agent_pool(agent) > agent->keep) {
        int returned = pool_return(agent, agent->keep, reason);
        rc = returned != 0 ? returned : rc;
        if (fw_volume_agent_pool(agent) <= agent->keep) {
            agent->keep = UINT64_MAX; /* Done, until it is said again. */
        }
    }
    if (rc >= 0 && agent->leave != 0) {
        int answered = leave_answer(agent, reason);
        rc = answered != 0 ? answered : rc;
    }
    return rc;
}

/* The next phase, as long as there is one to go to. */
static int step_phases(struct fw_volume_agent *agent, struct fw_reason *reason)
{
    int rc = 0;
    while (rc == 0) {
        enum fw_volume_phase before = phase_get(agent);
        switch (before) {
        case FW_VOLUME_OUT: /* Another thread has learnt it just now. */
            rc = fw_reason_set(reason, -ESHUTDOWN, "the manager has disconnected this host");
            break;
        case FW_VOLUME_START:
            rc = step_start(agent, reason);
            break;
        case FW_VOLUME_ASKED:
            rc = step_asked(agent, reason);
            break;
        case FW_VOLUME_RESUMED:
        case FW_VOLUME_RUNNING:
            rc = step_running(agent, reason);
            break;
        case FW_VOLUME_SHUT:
            rc = leave_answer(agent, reason);
            break;
        }
        if (rc == 0 && before == FW_VOLUME_RUNNING) {
            break;
        }
    }
    if ((rc == 0 || rc == FW_RING_RETRY) && phase_get(agent) == FW_VOLUME_OUT) {
        return fw_reason_set(reason, -ESHUTDOWN, "the manager has disconnected this host");
    }
    return rc == FW_RING_RETRY ? 0 : rc;
}

int fw_volume_agent_step(struct fw_volume_agent *agent, struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = fw_volume_reason(public_reason);
    fw_mutex_lock(&agent->turn);
    fw_mutex_lock(&agent->lock);
    int rc = agent->phase == FW_VOLUME_SHUT ? 0 : fw_volume_agent_check(agent, reason);
    fw_mutex_unlock(&agent->lock); /* Who has left touches the rings no more. */
    if (rc == 0) {
        rc = fw_ring_poll(agent->up, public_reason);
    }
    if (rc == FW_RING_SUSPENDED) {
        agent_leave(agent);
        rc = fw_reason_set(reason, -ESHUTDOWN, "the manager has disconnected this host");
    } else if (rc == 0) {
        rc = step_phases(agent, reason);
    }
    if (rc < 0 && rc != -ESHUTDOWN && rc != -ENOMEM) {
        agent_break(agent, rc);
    }
    fw_mutex_unlock(&agent->turn);
    return rc;
}
