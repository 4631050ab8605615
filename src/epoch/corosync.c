/* SPDX-License-Identifier: Apache-2.0 */
#include "epoch/corosync.h"

#include <corosync/corotypes.h>
#include <corosync/cpg.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "epoch/corosync_attempt.h"
#include "io/alarm.h"
#include "io/clock.h"

FW_LOG_MODULE(epoch);

enum {
    BATCH = 64,     /* Messages and views in one turn of the reactor. */
    BLOCKED_MS = 2, /* After a TRY_AGAIN. */
    REST_MS = 500,  /* From a failed attempt to the next. */
};
enum { DOWN_MAX = FW_GROUP_MEMBERS_MAX };

enum state { CONNECTING, JOINED, RESTING };

struct corosync {
    struct fw_group group;
    struct fw_reactor *reactor;
    char name[FW_COROSYNC_NAME_MAX + 1];
    uint32_t node_count_given;
    int64_t timeout_ns;

    enum state state;
    struct fw_alarm alarm;     /* RESTING: the next attempt. JOINED: there is something left. */
    struct fw_watch answering; /* CONNECTING: the attempt's answer. */
    int answer_fd;
    struct fw_watch watch; /* JOINED: Corosync's descriptor. */
    cpg_handle_t handle;
    bool is_blocked; /* Its user was told -EAGAIN, and not yet that it may try again. */
    bool is_broken;  /* The connection is, as a call has shown. */
    struct fw_reason reason;

    uint32_t node_count;
    uint32_t token_ms;
    uint32_t consensus_ms;
    struct cpg_ring_id ring;
    uint32_t ring_count;       /* Nodes in it; 0: there is none yet. */
    struct fw_group_view view; /* As its user knows it; `count` is 0 before the first. */
    struct fw_group_view next; /* As Corosync says; told when the ring is known too. */
    uint32_t down[DOWN_MAX];   /* Nodes that it takes for lost since `view`, each once. */
    uint32_t down_count;
    uint64_t connected;
    uint64_t refused;

    uint32_t open_count;            /* Of the alarm and the watches. */
    void (*closed)(void *argument); /* NULL until close(). */
    void *closed_argument;
};

static struct corosync *corosync_of(struct fw_group *group)
{
    return FW_CONTAINER_OF(group, struct corosync, group);
}

static int64_t from_now(int64_t ms)
{
    return fw_clock_now_ns() + ms * FW_NS_PER_MS;
}

/* ---- what a reactor has closed ------------------------------------------------------------- */

static void part_closed(struct corosync *corosync)
{
    corosync->open_count--;
    if (corosync->open_count == 0 && corosync->closed != NULL) {
        void (*closed)(void *argument) = corosync->closed;
        void *argument = corosync->closed_argument;
        free(corosync);
        closed(argument);
    }
}

static void alarm_closed(struct fw_alarm *alarm)
{
    part_closed(FW_CONTAINER_OF(alarm, struct corosync, alarm));
}

static void answer_closed(struct fw_watch *watch)
{
    struct corosync *corosync = FW_CONTAINER_OF(watch, struct corosync, answering);
    fw_corosync_attempt_abandon(corosync->answer_fd); /* Its answer may have been taken. */
    part_closed(corosync);
}

static void watch_closed(struct fw_watch *watch)
{
    struct corosync *corosync = FW_CONTAINER_OF(watch, struct corosync, watch);
    fw_corosync_connection_end(corosync->handle);
    part_closed(corosync);
}

/* ---- views --------------------------------------------------------------------------------- */

static uint64_t member_of(uint32_t node, uint32_t process)
{
    return (uint64_t)node << 32 | process;
}

static bool is_majority(const struct corosync *corosync, uint32_t nodes)
{
    return (uint64_t)nodes * 2 > corosync->node_count;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 32;
}

/* The same at all who get this view, of whatever byte order. Never 0. */
static uint64_t view_id(const struct corosync *corosync, const struct fw_group_view *view)
{
    uint64_t id = mix(corosync->ring.seq, corosync->ring.nodeid);
    for (uint32_t i = 0; i < view->count; i++) {
        id = mix(id, view->members[i]);
    }
    return mix(id, view->has_joined) | 1;
}

static void view_log(const struct corosync *corosync, const struct fw_group_view *view)
{
    const struct fw_group_view *before = &corosync->view;
    bool was_quorate = before->count > 0 && before->is_quorate;
    if (corosync->state != JOINED) {
        return; /* That has been said, with the reason. */
    }
    if (was_quorate && !view->is_quorate && is_majority(corosync, corosync->ring_count)) {
        FW_LOG(epoch, WARNING, "was away from the group %s, which has gone on", corosync->name);
    } else if (was_quorate && !view->is_quorate) {
        FW_LOG(epoch, WARNING, "cut off from the group %s: %u of %u nodes are here", corosync->name,
               corosync->ring_count, corosync->node_count);
    } else if (view->is_quorate && !was_quorate) {
        FW_LOG(epoch, NOTICE, "in the group %s with %u members, on %u of %u nodes", corosync->name,
               view->count, corosync->ring_count, corosync->node_count);
    }
}

static void view_tell(struct corosync *corosync, struct fw_group_view *view)
{
    view_log(corosync, view);
    view->id = view_id(corosync, view);
    corosync->view = *view;
    corosync->group.events->viewed(&corosync->group, view);
}

/* This member is on its own: nobody is heard, or those who are have been elsewhere. */
static void view_tell_alone(struct corosync *corosync)
{
    struct fw_group_view view = {.members = {corosync->group.self}, .count = 1};
    view_tell(corosync, &view);
}

static void member_insert(struct fw_group_view *view, uint64_t member)
{
    uint32_t place = view->count++;
    for (; place > 0 && view->members[place - 1] > member; place--) {
        view->members[place] = view->members[place - 1];
    }
    view->members[place] = member;
}

static void down_add(struct corosync *corosync, uint32_t node)
{
    for (uint32_t i = 0; i < corosync->down_count; i++) {
        if (corosync->down[i] == node) {
            return;
        }
    }
    if (corosync->down_count < DOWN_MAX) {
        corosync->down[corosync->down_count++] = node;
    }
}

/*
 * Of the nodes in the ring those that came here together with this one. Who was lost and is in the
 * ring again has been elsewhere; or this node has, if that is true of most.
 */
static uint32_t nodes_that_stayed(const struct corosync *corosync, const uint32_t *ring_nodes)
{
    uint32_t stayed = corosync->ring_count;
    for (uint32_t i = 0; i < corosync->down_count; i++) {
        for (uint32_t j = 0; j < corosync->ring_count; j++) {
            stayed -= corosync->down[i] == ring_nodes[j];
        }
    }
    return stayed;
}

/* ---- Corosync calls ------------------------------------------------------------------------ */

static struct corosync *corosync_of_handle(cpg_handle_t handle)
{
    void *context = NULL;
    cs_error_t error = cpg_context_get(handle, &context);
    FW_ASSERT(error == CS_OK && context != NULL);
    return context;
}

static void on_delivered(cpg_handle_t handle, const struct cpg_name *name, uint32_t node,
                         uint32_t process, void *bytes, size_t length)
{
    (void)name;
    struct fw_group *group = &corosync_of_handle(handle)->group;
    group->events->delivered(group, member_of(node, process), bytes, length);
}

static void broken_set(struct corosync *corosync, const char *why)
{
    corosync->is_broken = true;
    (void)fw_reason_set(&corosync->reason, -ENOTCONN, "%s", why);
}

/* True if they come or go with their node, in a ring that is about to be told of. */
static bool are_of_ring(const struct cpg_address *addresses, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (addresses[i].reason == CPG_REASON_NODEDOWN ||
            addresses[i].reason == CPG_REASON_NODEUP) {
            return true;
        }
    }
    return false;
}

static void next_tell(struct corosync *corosync)
{
    corosync->next.is_quorate = is_majority(corosync, corosync->ring_count);
    view_tell(corosync, &corosync->next);
    corosync->next.has_joined = false;
}

/*
 * Who is in the group has changed. If the ring has, that comes behind, with no message in between,
 * and both make one view.
 */
/* NOLINTNEXTLINE(readability-function-size): as Corosync calls. */
static void on_members(cpg_handle_t handle, const struct cpg_name *name,
                       const struct cpg_address *members, size_t member_count,
                       const struct cpg_address *left, size_t left_count,
                       const struct cpg_address *joined, size_t joined_count)
{
    (void)name;
    struct corosync *corosync = corosync_of_handle(handle);
    struct fw_group_view *next = &corosync->next;
    if (member_count > FW_GROUP_MEMBERS_MAX) {
        broken_set(corosync, "the group has more members than Fairway can keep in step, 64");
        return;
    }
    bool is_own_there = false;
    next->count = 0;
    for (size_t i = 0; i < member_count; i++) {
        uint64_t member = member_of(members[i].nodeid, members[i].pid);
        is_own_there = is_own_there || member == corosync->group.self;
        member_insert(next, member);
    }
    if (!is_own_there) {
        broken_set(corosync, "Corosync has dropped this process from the group");
        return;
    }
    next->has_joined = next->has_joined || joined_count > 0;
    for (size_t i = 0; i < left_count; i++) {
        if (left[i].reason == CPG_REASON_NODEDOWN) {
            down_add(corosync, left[i].nodeid);
        }
    }
    if (corosync->ring_count > 0 && !are_of_ring(left, left_count) &&
        !are_of_ring(joined, joined_count)) {
        next_tell(corosync);
    }
}

/*
 * Who joins while a ring forms is told of it twice, as what is there and as what has come. Only the
 * first time makes a view: its peers, who are told once, would not have the second.
 */
static bool is_known(const struct corosync *corosync, struct cpg_ring_id ring)
{
    return corosync->view.count > 0 && corosync->ring_count > 0 && ring.seq == corosync->ring.seq &&
           ring.nodeid == corosync->ring.nodeid && corosync->down_count == 0 &&
           !corosync->next.has_joined && corosync->next.count == corosync->view.count &&
           memcmp(corosync->next.members, corosync->view.members,
                  corosync->next.count * sizeof corosync->next.members[0]) == 0;
}

/* The ring is another one, or is the first that we hear of. */
static void on_ring(cpg_handle_t handle, struct cpg_ring_id ring, uint32_t node_count,
                    const uint32_t *nodes)
{
    struct corosync *corosync = corosync_of_handle(handle);
    if (is_known(corosync, ring)) {
        return;
    }
    corosync->ring = ring;
    corosync->ring_count = node_count;
    if (corosync->view.is_quorate && is_majority(corosync, node_count) &&
        !is_majority(corosync, nodes_that_stayed(corosync, nodes))) {
        view_tell_alone(corosync);
    }
    corosync->down_count = 0;
    if (corosync->next.count > 0) {
        next_tell(corosync);
    }
}

static const cpg_model_v1_data_t model = {
    .model = CPG_MODEL_V1,
    .cpg_deliver_fn = on_delivered,
    .cpg_confchg_fn = on_members,
    .cpg_totem_confchg_fn = on_ring,
    .flags = CPG_MODEL_V1_DELIVER_INITIAL_TOTEM_CONF,
};

/* ---- being a member ------------------------------------------------------------------------ */

static int corosync_send(struct fw_group *group, const void *bytes, size_t length)
{
    struct corosync *corosync = corosync_of(group);
    if (length > FW_GROUP_MESSAGE_MAX) {
        return -EMSGSIZE;
    }
    if (corosync->state != JOINED || corosync->is_broken) {
        return -ENOTCONN;
    }
    struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    cs_error_t error = cpg_mcast_joined(corosync->handle, CPG_TYPE_AGREED, &piece, 1);
    if (error == CS_OK) {
        return 0;
    }
    if (error == CS_ERR_TRY_AGAIN) {
        corosync->refused++;
        corosync->is_blocked = true;
        fw_alarm_set(&corosync->alarm, from_now(BLOCKED_MS));
        return -EAGAIN;
    }
    broken_set(corosync, "Corosync has ended or was stopped");
    fw_alarm_set(&corosync->alarm, from_now(0)); /* Not from inside this call. */
    return -ENOTCONN;
}

/* The connection is gone. */
static void corosync_rest(struct corosync *corosync)
{
    FW_LOG(epoch, WARNING, "left the group %s: %s; trying to come back", corosync->name,
           corosync->reason.text);
    corosync->state = RESTING;
    corosync->is_blocked = false;
    corosync->ring_count = 0;
    corosync->down_count = 0;
    corosync->next = (struct fw_group_view){0};
    fw_watch_close(&corosync->watch); /* The handle is ended when that has been closed. */
    fw_alarm_set(&corosync->alarm, from_now(REST_MS));
    view_tell_alone(corosync);
}

/* Takes what Corosync has for us, a bounded part of it. */
static void corosync_dispatch(struct corosync *corosync)
{
    cs_error_t error = CS_OK;
    for (int i = 0; i < BATCH && error == CS_OK && !corosync->is_broken; i++) {
        error = cpg_dispatch(corosync->handle, CS_DISPATCH_ONE_NONBLOCKING);
    }
    if (error != CS_OK && error != CS_ERR_TRY_AGAIN && !corosync->is_broken) {
        broken_set(corosync, "Corosync has ended or was stopped");
    }
    if (corosync->is_broken) {
        corosync_rest(corosync);
        return;
    }
    if (corosync->is_blocked) {
        corosync->is_blocked = false;
        corosync->group.events->writable(&corosync->group);
    }
    if (error == CS_OK) {
        fw_alarm_set(&corosync->alarm, from_now(0)); /* There may be more. */
    }
}

static void watch_ready(struct fw_watch *watch)
{
    corosync_dispatch(FW_CONTAINER_OF(watch, struct corosync, watch));
}

/* ---- becoming one -------------------------------------------------------------------------- */

static void timeouts_check(const struct corosync *corosync)
{
    int64_t ring_ms = (int64_t)corosync->token_ms + corosync->consensus_ms;
    if (corosync->timeout_ns > 0 && ring_ms > 0 && corosync->timeout_ns <= ring_ms * FW_NS_PER_MS) {
        FW_LOG(epoch, WARNING,
               "the time-out of epochs, %lld ms, should be longer than token and consensus of "
               "Corosync, %lld ms: schedulers give up while it still looks for a lost node",
               (long long)(corosync->timeout_ns / FW_NS_PER_MS), (long long)ring_ms);
    }
}

/* The attempt has failed; the log says so unless it has said just that before. */
static void attempt_fail(struct corosync *corosync, const struct fw_reason *reason)
{
    bool is_news = strcmp(reason->text, corosync->reason.text) != 0;
    if (is_news) {
        corosync->reason = *reason;
        FW_LOG(epoch, WARNING, "cannot join the group %s: %s; trying again every %d ms",
               corosync->name, reason->text, (int)REST_MS);
    }
    corosync->state = RESTING;
    fw_alarm_set(&corosync->alarm, from_now(REST_MS));
    if (corosync->view.count == 0) {
        view_tell_alone(corosync);
    }
}

static void attempt_succeed(struct corosync *corosync, const struct fw_corosync_answer *answer)
{
    int fd = -1;
    struct fw_reason reason;
    uint32_t node_count =
        corosync->node_count_given > 0 ? corosync->node_count_given : answer->node_count;
    int rc = 0;
    if (node_count == 0) {
        rc = fw_reason_set(&reason, -EINVAL,
                           "Corosync's configuration has no nodelist, so the number of nodes must "
                           "be given");
    } else if (cpg_fd_get(answer->handle, &fd) != CS_OK ||
               cpg_context_set(answer->handle, corosync) != CS_OK) {
        rc = fw_reason_set(&reason, -EIO, "Corosync's library does not know the connection");
    } else {
        rc = fw_watch_open(&corosync->watch, corosync->reactor, fd, watch_ready, watch_closed);
        if (rc != 0) {
            rc = fw_reason_errno(&reason, rc, "cannot watch the connection to Corosync");
        }
    }
    if (rc != 0) {
        fw_corosync_connection_end(answer->handle);
        attempt_fail(corosync, &reason);
        return;
    }
    corosync->open_count++;
    corosync->handle = answer->handle;
    corosync->node_count = node_count;
    corosync->token_ms = answer->token_ms;
    corosync->consensus_ms = answer->consensus_ms;
    corosync->group.self = member_of(answer->node, (uint32_t)getpid());
    corosync->state = JOINED;
    corosync->is_broken = false;
    corosync->reason.text[0] = '\0';
    corosync->connected++;
    timeouts_check(corosync);
    fw_alarm_set(&corosync->alarm, from_now(0)); /* What came before we looked. */
}

static void answer_ready(struct fw_watch *watch)
{
    struct corosync *corosync = FW_CONTAINER_OF(watch, struct corosync, answering);
    struct fw_corosync_answer answer;
    int rc = fw_corosync_attempt_take(corosync->answer_fd, &answer);
    if (rc != 0) {
        FW_ASSERT(rc == -EAGAIN);
        return;
    }
    fw_watch_close(&corosync->answering);
    if (answer.error == 0) {
        attempt_succeed(corosync, &answer);
    } else {
        attempt_fail(corosync, &answer.reason);
    }
}

static int attempt_try(struct corosync *corosync, struct fw_reason *reason)
{
    int fd = fw_corosync_attempt_start(corosync->name, &model);
    if (fd < 0) {
        return fw_reason_errno(reason, fd, "cannot start a thread that connects to Corosync");
    }
    int rc =
        fw_watch_open(&corosync->answering, corosync->reactor, fd, answer_ready, answer_closed);
    if (rc != 0) {
        fw_corosync_attempt_abandon(fd);
        return fw_reason_errno(reason, rc, "cannot watch for the connection to Corosync");
    }
    corosync->answer_fd = fd;
    corosync->open_count++;
    corosync->state = CONNECTING;
    return 0;
}

static void attempt_start(struct corosync *corosync)
{
    struct fw_reason reason;
    if (attempt_try(corosync, &reason) != 0) {
        attempt_fail(corosync, &reason);
    }
}

static void alarm_rang(struct fw_alarm *alarm)
{
    struct corosync *corosync = FW_CONTAINER_OF(alarm, struct corosync, alarm);
    if (corosync->state == JOINED) {
        corosync_dispatch(corosync);
    } else if (corosync->state == RESTING) {
        attempt_start(corosync);
    }
}

/* ---- life ---------------------------------------------------------------------------------- */

bool fw_corosync_is_built_in(void)
{
    return true;
}

int fw_corosync_open(struct fw_group **group, struct fw_reactor *reactor,
                     const struct fw_corosync_options *options, struct fw_reason *reason)
{
    size_t length = strlen(options->group_name);
    if (length == 0 || length > FW_COROSYNC_NAME_MAX) {
        return fw_reason_set(reason, -EINVAL,
                             "the name of a cluster's group has 1 to %d characters, not %zu",
                             (int)FW_COROSYNC_NAME_MAX, length);
    }
    struct corosync *corosync = calloc(1, sizeof *corosync);
    if (corosync == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "no memory for the group %s", options->group_name);
    }
    corosync->group.send = corosync_send;
    corosync->reactor = reactor;
    memcpy(corosync->name, options->group_name, length);
    corosync->node_count_given = options->node_count;
    corosync->timeout_ns = options->timeout_ns;
    int rc = fw_alarm_open(&corosync->alarm, reactor, alarm_rang, reason);
    if (rc != 0) {
        free(corosync);
        return rc;
    }
    corosync->open_count++;
    corosync->state = RESTING;
    fw_alarm_set(&corosync->alarm, from_now(0)); /* When its user is ready to be called. */
    *group = &corosync->group;
    return 0;
}

void fw_corosync_close(struct fw_group *group, void (*closed)(void *argument), void *argument)
{
    struct corosync *corosync = corosync_of(group);
    FW_ASSERT(corosync->closed == NULL && closed != NULL);
    corosync->closed = closed;
    corosync->closed_argument = argument;
    fw_alarm_close(&corosync->alarm, alarm_closed);
    if (corosync->state == CONNECTING) {
        fw_watch_close(&corosync->answering);
    } else if (corosync->state == JOINED) {
        fw_watch_close(&corosync->watch);
    }
}

void fw_corosync_status(struct fw_group *group, struct fw_corosync_status *status)
{
    const struct corosync *corosync = corosync_of(group);
    *status = (struct fw_corosync_status){
        .is_joined = corosync->state == JOINED,
        .node_count = corosync->node_count,
        .ring_count = corosync->ring_count,
        .token_ns = (int64_t)corosync->token_ms * FW_NS_PER_MS,
        .consensus_ns = (int64_t)corosync->consensus_ms * FW_NS_PER_MS,
        .connected = corosync->connected,
        .refused = corosync->refused,
        .reason = corosync->reason.text,
    };
}
