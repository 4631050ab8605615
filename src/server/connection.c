/* SPDX-License-Identifier: Apache-2.0 */
#include "server/connection.h"

#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/core.h"
#include "sched/tenants.h"
#include "server/input.h"
#include "server/listen.h"
#include "server/state.h"

/* With its place in a pool and in the reactor. The limit is 1 KiB, but there are ten thousands. */
static_assert(sizeof(struct fw_connection) <= 512, "an idle connection is small");

/* What a turn has come to. */
enum outcome {
    IDLE, /* All that has come is answered. */
    MORE, /* There is more to do: another turn, when it is admitted. */
    KEPT, /* The socket did not take all of the reply. */
    FULL, /* A part of a large value is to be written to the file. */
    OVER, /* Close it. */
};

static struct fw_connection *connection_of_fom(struct fw_fom *fom)
{
    return FW_FOM_OF(fom, struct fw_connection);
}

static struct fw_connection *connection_of(struct fw_stream *stream)
{
    return FW_CONTAINER_OF(stream, struct fw_connection, stream);
}

/* ---- admission ----------------------------------------------------------------------------- */

/* For who looks at a trace. */
static inline void connection_mark(struct fw_connection *connection, const char *what)
{
    if (FW_UNLIKELY(connection->core->engine->trace != NULL)) {
        fw_fom_mark(&connection->fom, what);
    }
}

/* It may have a turn. */
static inline void connection_admit(struct fw_connection *connection)
{
    connection->is_admitted = true;
    connection_mark(connection, "ADMIT");
    if (connection != connection->core->serving) { /* Else it looks when this returns. */
        fw_fom_wake(&connection->fom);
    }
}

/* The scheduler's call-back: this connection is next. */
static int connection_admitted(struct fw_sched_getter *getter, struct fw_sched_request *request)
{
    struct fw_server_core *core = FW_CONTAINER_OF(getter, struct fw_server_core, getter);
    if (request == NULL) {
        return 0; /* The core ends. */
    }
    struct fw_connection *connection = FW_CONTAINER_OF(request, struct fw_connection, request);
    core->admitted = connection;
    connection->is_shed = request->is_shed;
    connection_admit(connection);
    return 0;
}

/* It has something to do. */
static inline void connection_hand_in(struct fw_connection *connection)
{
    if (FW_LIKELY(connection->core->is_open)) {
        connection_admit(connection);
    } else {
        fw_sched_incoming(&connection->core->sched, &connection->request);
    }
}

/* Uses the admission up. If it was the head's, that lets the next one in. */
static inline void connection_pass_on(struct fw_connection *connection)
{
    struct fw_server_core *core = connection->core;
    FW_ASSERT(connection->is_admitted);
    connection->is_admitted = false;
    if (FW_UNLIKELY(core->admitted == connection)) {
        core->admitted = NULL;
        connection->is_shed = false;
        fw_sched_get_next(&core->sched, &core->getter);
    }
}

/* The same for one that has more to do: behind all who wait; if nobody does, at once. */
static void connection_pass_on_and_return(struct fw_connection *connection)
{
    struct fw_server_core *core = connection->core;
    fw_counter_increment(&core->metrics->conn_yields);
    if (core->admitted == connection) { /* It is there when the head chooses. */
        fw_sched_incoming(&core->sched, &connection->request);
        connection_pass_on(connection);
    } else {
        connection_pass_on(connection);
        connection_hand_in(connection);
    }
}

/* Takes back that it has something to do. */
static void connection_withdraw(struct fw_connection *connection)
{
    if (fw_sched_is_waiting(&connection->request)) {
        fw_sched_cancel(&connection->core->sched, &connection->request);
    }
    if (connection->is_admitted) {
        connection_mark(connection, "WITHDRAW");
        connection_pass_on(connection);
    }
}

/* The cache asks whose the client is that is being served. */
static uint32_t core_whose(struct fw_cache_local *local)
{
    return fw_connection_tenant(FW_CONTAINER_OF(local, struct fw_server_core, cache)->serving);
}

static void connection_give_to(struct fw_connection *connection, struct fw_rule_verdict verdict)
{
    connection->request.class.tenant = verdict.tenant;
    connection->request.class.is_urgent = verdict.is_urgent;
}

/*
 * Whose it is, by what is known of it before a request is. False: it has logged in as a tenant that
 * may have no more connections.
 */
static bool connection_classify(struct fw_connection *connection)
{
    const struct fw_rules *rules = connection->core->ruling->rules;
    struct fw_address peer;
    struct fw_rule_facts facts = {.listener = &connection->listening->listener.address,
                                  .login = connection->session.login};
    if (fw_rules_look_at_peers(rules) && fw_stream_peer(&connection->stream, &peer) == 0) {
        facts.peer = &peer;
    }
    if (facts.login != NULL) {
        facts.login_length = strlen(facts.login);
    }
    fw_rules_scope(rules, &facts, &connection->scope);
    struct fw_rule_verdict verdict = fw_rules_judge_connection(rules, &connection->scope);
    bool is_forced = !connection->session.has_new_login; /* A change of rules closes nobody. */
    bool has_place = verdict.tenant == connection->counted ||
                     fw_quota_move(&connection->core->server->quota, connection->counted,
                                   verdict.tenant, is_forced);
    if (has_place) {
        connection->counted = verdict.tenant;
        connection_give_to(connection, verdict);
    }
    connection->session.has_new_login = false;
    return has_place;
}

void fw_connection_classify_again(struct fw_connection *connection)
{
    struct fw_sched *sched = &connection->core->sched;
    bool is_waiting = fw_sched_is_waiting(&connection->request);
    if (is_waiting) {
        fw_sched_cancel(sched, &connection->request);
    }
    (void)connection_classify(connection);
    if (is_waiting) {
        fw_sched_incoming(sched, &connection->request);
    }
}

static void connection_readable(struct fw_stream *stream)
{
    struct fw_connection *connection = connection_of(stream);
    connection->is_waiting = false;
    connection_hand_in(connection);
}

/* ---- replies ------------------------------------------------------------------------------- */

/* Keeps all behind the first `sent` bytes. False: no memory, or its tenant holds too much. */
static bool reply_keep(struct fw_connection *connection, size_t sent)
{
    struct fw_unsent *unsent = fw_unsent_create(&connection->core->cache.reply, sent);
    if (unsent != NULL &&
        !fw_holding_grow(&unsent->claim, &connection->core->server->holdings,
                         fw_connection_tenant(connection), fw_unsent_size(unsent))) {
        fw_unsent_destroy(unsent, connection->core->cache.table);
        unsent = NULL;
    }
    connection->unsent = unsent;
    bool is_kept = unsent != NULL;
    atomic_store_explicit(&connection->is_kept, is_kept, memory_order_relaxed);
    return is_kept;
}

/* Does its reply have to wait? */
static inline bool reply_is_held(struct fw_connection *connection)
{
    return FW_UNLIKELY(connection->penalty_ms != 0) ||
           (FW_UNLIKELY(connection->doubt != NULL) && fw_doubt_holds(connection));
}

/*
 * Keeps the core's reply until enough slaves have confirmed what it says, or a failed login is
 * atoned for. False: no memory.
 */
static bool reply_hold(struct fw_connection *connection)
{
    struct fw_reply *reply = &connection->core->cache.reply;
    bool is_kept = reply_keep(connection, 0);
    if (is_kept && connection->doubt != NULL) {
        fw_doubt_enter(connection);
    }
    fw_reply_clear(reply);
    return is_kept;
}

/* Sends the core's reply, and keeps what the socket does not take. False: it is broken. */
static bool reply_send(struct fw_connection *connection)
{
    struct fw_server_core *core = connection->core;
    struct fw_reply *reply = &core->cache.reply;
    uint32_t count = fw_reply_finish(reply);
    if (FW_UNLIKELY(core->cache.notice.has_change) && !fw_doubt_note(connection)) {
        fw_reply_clear(reply);
        return false;
    }
    if (count == 0) {
        return true;
    }
    if (reply_is_held(connection)) {
        return reply_hold(connection);
    }
    size_t length = 0;
    for (uint32_t i = 0; i < count; i++) {
        length += reply->pieces[i].iov_len;
    }
    if (FW_UNLIKELY(fw_replication_is_silent(&core->server->replication))) {
        fw_reply_clear(reply);
        return false;
    }
    ssize_t sent = 0;
    /* What is in a file, or long, is sent in SEND, bit by bit. */
    if (FW_LIKELY(!reply->has_stored && length <= FW_CONNECTION_SEND_MAX)) {
        sent = fw_stream_send_now(&connection->stream, reply->pieces, (int)count);
        sent = sent == -EAGAIN ? 0 : sent;
    }
    bool is_whole = sent >= 0;
    if (sent >= 0) {
        fw_counter_add(&core->metrics->bytes_written, (uint64_t)sent);
    }
    if (FW_UNLIKELY(sent >= 0 && (size_t)sent < length)) {
        fw_counter_increment(&core->metrics->replies_kept);
        is_whole = reply_keep(connection, (size_t)sent);
    }
    fw_reply_clear(reply);
    return is_whole;
}

/* Nobody is at it. */
static void transfer_drop(struct fw_connection *connection)
{
    if (connection->transfer != NULL) {
        fw_transfer_destroy(connection->transfer, connection->core->cache.table);
        connection->transfer = NULL;
    }
}

static void connection_sent(struct fw_stream *stream, ssize_t result)
{
    struct fw_connection *connection = connection_of(stream);
    connection->is_sending = false;
    connection->sent = result;
    fw_fom_wake(&connection->fom);
}

static void unsent_drop(struct fw_connection *connection)
{
    transfer_drop(connection);
    if (connection->unsent != NULL) {
        fw_holding_end(&connection->unsent->claim, &connection->core->server->holdings);
        fw_unsent_destroy(connection->unsent, connection->core->cache.table);
        connection->unsent = NULL;
        atomic_store_explicit(&connection->is_kept, false, memory_order_relaxed);
    }
}

/* ---- the stream's other events ------------------------------------------------------------- */

static void connection_closed(struct fw_stream *stream)
{
    struct fw_connection *connection = connection_of(stream);
    connection->is_closed = true;
    fw_fom_wake(&connection->fom);
}

static const struct fw_stream_events connection_events = {
    .readable = connection_readable,
    .sent = connection_sent,
    .closed = connection_closed,
};

/* ---- phases -------------------------------------------------------------------------------- */

/* On the core where it is to live from now on. Then it is known to who looks from outside. */
static int connection_settle(struct fw_connection *connection)
{
    struct fw_server *server = connection->listening->server;
    connection->core = server->cores[fw_fom_core(&connection->fom)->index];
    int rc = fw_stream_open(&connection->stream, connection->core->reactor, connection->fd,
                            &connection_events);
    if (rc == 0) {
        connection->is_open = true;
        (void)connection_classify(connection);
        fw_crowd_add(&server->crowd, connection);
    }
    return rc;
}

static void connection_hide(struct fw_connection *connection)
{
    fw_crowd_remove(&connection->listening->server->crowd, connection);
}

static int connection_initialise(struct fw_fom *fom)
{
    return connection_settle(connection_of_fom(fom));
}

/* While the engine has it, between two cores, it is only a descriptor and a session. */
static bool connection_depart(struct fw_fom *fom)
{
    struct fw_connection *connection = connection_of_fom(fom);
    struct fw_server_core *core = connection->core;
    if (!connection->is_open || connection->is_closing || core->admitted == connection ||
        connection->unsent != NULL || connection->transfer != NULL) {
        return false; /* It has something under way here. */
    }
    if (core->owner == connection) {
        fw_connection_input_evict(core);
    }
    if (connection->is_broken) { /* There was no memory for its input: it ends here. */
        return false;
    }
    if (connection->is_admitted) { /* By nobody: it is still to be read, over there. */
        connection_mark(connection, "WITHDRAW");
        connection->is_admitted = false;
    }
    connection_hide(connection);
    if (fw_sched_is_waiting(&connection->request)) {
        fw_sched_cancel(&core->sched, &connection->request);
    }
    connection->fd = fw_stream_take(&connection->stream);
    connection->is_open = false;
    connection->is_waiting = false;
    return true;
}

/* The tick that follows waits for input, or to be admitted if it has some left. */
static void connection_arrive(struct fw_fom *fom)
{
    struct fw_connection *connection = connection_of_fom(fom);
    connection->is_broken = connection_settle(connection) != 0 || connection->is_broken;
}

/* Nothing is to be done until the client says more. */
static enum fw_step connection_rest(struct fw_connection *connection)
{
    struct fw_fom *fom = &connection->fom;
    const struct fw_server *server = connection->core->server;
    /* Acquire, for the release in server.c. */
    if (FW_UNLIKELY(atomic_load_explicit(&server->is_draining, memory_order_acquire))) {
        return fw_fom_goto(fom, FW_CONNECTION_CLOSE);
    }
    if (!connection->is_waiting) {
        connection->is_waiting = true;
        fw_stream_wait(&connection->stream);
    }
    if (FW_LIKELY(server->config.idle_timeout_ns == 0)) {
        return fw_fom_wait(fom, FW_CONNECTION_SERVE);
    }
    /* Relaxed: its own. */
    int64_t since = atomic_load_explicit(&connection->active_ns, memory_order_relaxed);
    return fw_fom_wait_until(fom, FW_CONNECTION_SERVE, since + server->config.idle_timeout_ns);
}

/* It is not admitted; or a reply was sent at last: where to go from here. */
static enum fw_step connection_go_on(struct fw_connection *connection)
{
    struct fw_fom *fom = &connection->fom;
    if (connection->is_last || connection->is_broken) {
        return fw_fom_goto(fom, FW_CONNECTION_CLOSE);
    }
    if (fw_sched_is_waiting(&connection->request)) {
        return fw_fom_wait(fom, FW_CONNECTION_SERVE);
    }
    if (connection->needs_input) {
        return connection_rest(connection);
    }
    connection_hand_in(connection); /* If it is let in at once, that has woken it. */
    return fw_fom_wait(fom, FW_CONNECTION_SERVE);
}

/* A tick of one that is not admitted: new, moved, timed out, or to notice a change. */
static enum fw_step connection_look(struct fw_connection *connection)
{
    struct fw_fom *fom = &connection->fom;
    if (fw_fom_timed_out(fom) && !fw_sched_is_waiting(&connection->request)) {
        fw_counter_increment(&connection->core->metrics->idle_kicks);
        return fw_fom_goto(fom, FW_CONNECTION_CLOSE);
    }
    return connection_go_on(connection);
}

/* Sends what was replied so far. What comes of it decides where `outcome` leads. */
static enum outcome connection_flush(struct fw_connection *connection, enum outcome outcome)
{
    if (!reply_send(connection)) {
        return OVER;
    }
    return connection->unsent != NULL ? KEPT : outcome;
}

/* Goes through the input, and pays for it. What is refused costs nothing. */
static enum fw_session_end connection_run(struct fw_connection *connection, size_t received)
{
    struct fw_server_core *core = connection->core;
    struct fw_cache_local *cache = &core->cache;
    struct fw_cache_gate *gate = cache->gate;
    uint64_t bytes_before = fw_reply_length(&cache->reply);
    if (FW_UNLIKELY(core->ruling->has_slaves)) {
        fw_doubts_begin_run(connection);
    }
    /* Relaxed: it changes while there are no clients. */
    if (FW_UNLIKELY(connection->is_shed || core->doubts.is_short ||
                    !fw_cache_takes_writes(cache->cache))) {
        cache->gate = &core->gate;
    }
    struct fw_session_step step = fw_session_run(
        &connection->session, cache, core->input + core->begin, core->end - core->begin);
    cache->gate = gate;
    if (FW_UNLIKELY(core->ruling->has_slaves)) {
        fw_doubts_end_run(connection);
    }
    FW_ASSERT(step.consumed <= core->end - core->begin);
    core->begin += (uint32_t)step.consumed;
    connection->needs_input = step.end == FW_SESSION_INPUT;
    connection->wanted = connection->needs_input ? (uint32_t)step.wanted : 0;
    FW_ASSERT(!connection->needs_input || core->end - core->begin <= FW_CONNECTION_REST_MAX);
    uint64_t bytes = received + fw_reply_length(&cache->reply) - bytes_before;
    uint32_t cost = fw_session_cost(step.commands, step.keys, bytes);
    core->tick_cost += cost;
    if (FW_LIKELY(core->admitted != connection)) {
        fw_flows_count_open(core->sched.flows, cost);
    } else if (!connection->is_shed) {
        fw_sched_charge(&core->sched, &connection->request, cost);
    }
    return step.end;
}

/* Its tenant has no place for it: as a client beyond the limit is told when it connects. */
static enum outcome connection_refuse(struct fw_connection *connection)
{
    struct fw_reply *reply = &connection->core->cache.reply;
    if (connection->session.protocol == FW_PROTOCOL_TEXT &&
        fw_reply_room(reply, sizeof FW_LISTEN_REFUSAL) != NULL) {
        FW_REPLY_ADD(reply, FW_LISTEN_REFUSAL);
    }
    connection->is_last = true;
    return OVER;
}

/*
 * Answers what has come, up to the session's share. Replies are sent if there is no room for more;
 * else they may wait for those of the next turn.
 */
static enum outcome connection_turn(struct fw_connection *connection)
{
    struct fw_server_core *core = connection->core;
    ssize_t received = 0;
    if (connection->needs_input) {
        received = fw_connection_input_receive(connection);
        if (received <= 0) {
            return received == -EAGAIN ? IDLE : OVER;
        }
        fw_counter_add(&core->metrics->bytes_read, (uint64_t)received);
        if (!fw_connection_input_suffices(connection)) {
            return connection->has_input ? MORE : IDLE;
        }
    }
    enum fw_session_end end = connection_run(connection, (size_t)received);
    connection->has_more = end == FW_SESSION_TURN;
    if (FW_UNLIKELY(connection->session.has_new_login)) {
        bool has_failed = connection->session.has_failed_login;
        if (has_failed) {
            fw_connection_penalise(connection);
        }
        if (!connection_classify(connection)) {
            return connection_refuse(connection);
        }
        if (has_failed) {
            return connection_flush(connection, MORE);
        }
    }
    switch (end) {
    case FW_SESSION_INPUT: /* There is no need to be told that more has come. */
        return connection->has_input ? MORE : IDLE;
    case FW_SESSION_OUTPUT:
        return connection_flush(connection, MORE);
    case FW_SESSION_TURN:
        return MORE;
    case FW_SESSION_DISK:
        return FULL;
    case FW_SESSION_HELD:
        connection_give_to(connection, connection->held);
        return MORE;
    case FW_SESSION_CLOSE:
        connection->is_last = true;
        break;
    }
    return OVER;
}

/*
 * Before the scheduler chooses: asks who else has come, if that was not done for some time. The
 * engine does it between two rounds, but a round has many ticks. While the reactor brings many at a
 * time there may be more behind them, and one of those may be the one to choose.
 */
static void core_look(struct fw_server_core *core, const struct fw_fom *fom, uint32_t cost)
{
    if (fw_fom_now(fom) != core->seen_ns) {
        core->seen_ns = fw_fom_now(fom);
        core->unseen_cost = 0;
    }
    core->unseen_cost += cost + FW_CONNECTION_TURN_COST;
    if (core->unseen_cost >= FW_CONNECTION_LOOK_COST) {
        core->unseen_cost = 0;
        uint32_t looks = 1;
        while (fw_reactor_poll(core->reactor, 0) >= FW_CONNECTION_LOOK_MANY &&
               looks < FW_CONNECTION_LOOKS) {
            looks++;
        }
    }
}

/*
 * A dump has more to say for as long as it lasts, and a large value keeps coming or going: others
 * come in between, who may be new.
 */
static inline bool connection_is_bulky(const struct fw_connection *connection)
{
    const struct fw_session *session = &connection->session;
    return session->state == FW_SESSION_LISTING ||
           (session->state == FW_SESSION_BODY &&
            fw_session_body_rest(session) > FW_CONNECTION_SLICE) ||
           connection->transfer != NULL ||
           (connection->unsent != NULL && connection->unsent->rest > FW_CONNECTION_SLICE);
}

/*
 * Where tenants are set apart, or in a long list: a turn has ended, and the next is not chosen yet.
 * What was replied leaves first if the tick ends here, so that who is chosen does not wait for
 * that.
 */
static enum outcome turn_end(struct fw_connection *connection, enum outcome outcome, uint32_t cost)
{
    struct fw_server_core *core = connection->core;
    bool is_last = outcome != MORE || core->tick_cost >= FW_CONNECTION_TICK_COST ||
                   connection_is_bulky(connection);
    if (is_last && outcome != KEPT) {
        outcome = connection_flush(connection, outcome);
    }
    core_look(core, &connection->fom,
              connection_is_bulky(connection) ? FW_CONNECTION_LOOK_COST : cost);
    return outcome;
}

/* May the tick go on with another turn, since the connection was let in again? */
static bool tick_goes_on(const struct fw_server_core *core, uint32_t turns)
{
    if (connection_is_bulky(core->serving)) {
        return false;
    }
    if (core->is_open) {
        return turns < FW_CONNECTION_TURNS && core->engine->queue.length == 0;
    }
    return turns < FW_CONNECTION_TURNS &&
           (core->policy == FW_SCHED_FIFO || core->tick_cost < FW_CONNECTION_TICK_COST);
}

/* Turn after turn, as long as the scheduler has nobody else to let in. */
static enum outcome connection_turns(struct fw_connection *connection)
{
    struct fw_server_core *core = connection->core;
    enum outcome outcome;
    uint32_t turns = 0;
    core->tick_cost = 0;
    do {
        uint32_t cost_before = core->tick_cost;
        connection_mark(connection, "TURN");
        fw_counter_increment(&core->metrics->turns);
        outcome = connection->is_broken ? OVER : connection_turn(connection);
        if (core->policy != FW_SCHED_FIFO || connection_is_bulky(connection)) {
            outcome = turn_end(connection, outcome, core->tick_cost - cost_before);
        } else if (outcome == MORE && (connection->has_more || turns > 0)) {
            core_look(core, &connection->fom, core->tick_cost - cost_before);
        }
        if (outcome != MORE) {
            connection_pass_on(connection);
            break;
        }
        connection_pass_on_and_return(connection);
        turns++;
    } while (connection->is_admitted && tick_goes_on(core, turns));
    if (outcome != KEPT) {
        outcome = connection_flush(connection, outcome);
    }
    if (outcome == KEPT) {
        connection_withdraw(connection); /* Others are not made to wait for its client. */
    }
    return outcome;
}

/*
 * Where everybody is admitted, who asked for one thing goes before who asked for all there is, or
 * for more than a turn may have.
 */
static void connection_rank(struct fw_connection *connection)
{
    unsigned priority = connection->has_more || connection_is_bulky(connection)
                            ? FW_FOM_PRIORITIES - 1
                            : FW_FOM_PRIORITY_NORMAL;
    if (FW_UNLIKELY(connection->fom.priority != priority)) {
        fw_fom_set_priority(&connection->fom, priority);
    }
}

static enum fw_step connection_serve(struct fw_connection *connection)
{
    struct fw_server_core *core = connection->core;
    struct fw_fom *fom = &connection->fom;
    FW_ASSERT(connection->is_admitted && connection->unsent == NULL);
    FW_ASSERT(fw_reply_is_empty(&core->cache.reply) && !core->cache.notice.has_change);
    int64_t now_ns = core->engine->now;
    if (now_ns != core->now_ns) { /* The first of its round. */
        core->now_ns = now_ns;
        fw_cache_local_set_time(&core->cache, now_ns);
    }
    /* Relaxed: only shown, and its own. */
    atomic_store_explicit(&connection->active_ns, now_ns, memory_order_relaxed);
    core->serving = connection;
    fw_connection_input_claim(connection);
    enum outcome outcome = connection_turns(connection);
    core->serving = NULL;
    fw_connection_input_leave(connection);
    connection_rank(connection);
    fw_repl_nudge(&core->server->replication.repl);
    switch (outcome) {
    case IDLE:
        return connection_rest(connection);
    case MORE:
        return connection->is_admitted ? fw_fom_yield(fom, FW_CONNECTION_SERVE)
                                       : fw_fom_wait(fom, FW_CONNECTION_SERVE);
    case KEPT:
        return fw_fom_goto(fom, connection->doubt != NULL || connection->penalty_ms != 0
                                    ? FW_CONNECTION_HOLD
                                    : FW_CONNECTION_SEND);
    case FULL:
        return fw_fom_goto(fom, FW_CONNECTION_DISK);
    case OVER:
        break;
    }
    return fw_fom_goto(fom, FW_CONNECTION_CLOSE);
}

/* Its replies speak of changes that slaves have to confirm, or of a failed login. */
static enum fw_step connection_hold(struct fw_connection *connection)
{
    struct fw_fom *fom = &connection->fom;
    FW_ASSERT(connection->unsent != NULL && !connection->is_admitted);
    int64_t atoned_ns = fw_connection_atoned_ns(connection);
    if (fw_fom_now(fom) < atoned_ns) {
        return fw_fom_wait_until(fom, FW_CONNECTION_HOLD, atoned_ns);
    }
    connection->penalty_ms = 0;
    if (connection->doubt != NULL && fw_doubt_holds(connection)) {
        int64_t deadline_ns = connection->doubt->deadline_ns;
        if (fw_fom_now(fom) < deadline_ns) {
            return fw_fom_wait_until(fom, FW_CONNECTION_HOLD, deadline_ns);
        }
        fw_doubt_fail(connection);
        connection->is_last = true;
    }
    return fw_fom_goto(fom, FW_CONNECTION_SEND);
}

/* ---- large values -------------------------------------------------------------------------- */

/* The job kernel has it, or will have it when it is less busy. */
static enum fw_step transfer_begin(struct fw_connection *connection)
{
    struct fw_fom *fom = &connection->fom;
    if (fw_transfer_start(connection->transfer, fom) == 0) {
        return fw_fom_wait(fom, fom->phase);
    }
    return fw_fom_wait_until(fom, fom->phase, fw_fom_now(fom) + FW_CONNECTION_BUSY_NS);
}

/* The one that it has, or a new one; NULL: no memory. */
static struct fw_transfer *connection_transfer(struct fw_connection *connection, bool is_write)
{
    if (connection->transfer == NULL) {
        connection->transfer = fw_transfer_create(&connection->core->server->large, is_write);
    }
    return connection->transfer;
}

/* In DISK: the session's window goes to the file, and then the session goes on. */
static enum fw_step connection_write(struct fw_connection *connection)
{
    struct fw_cache_local *cache = &connection->core->cache;
    struct fw_transfer *transfer = connection_transfer(connection, true);
    int result = transfer != NULL ? transfer->result : -ENOMEM;
    if (result == -EINPROGRESS) {
        const struct fw_window *window;
        transfer->body = fw_session_window(&connection->session, &window, &transfer->size);
        transfer->window = *window;
        return transfer_begin(connection);
    }
    transfer_drop(connection);
    if (result != 0) {
        fw_large_write_failed(&connection->core->server->large);
    }
    fw_session_written(&connection->session, cache, result);
    return connection_go_on(connection);
}

/* What the next send takes: 0 with the pieces, or as fetch(). */
static int connection_next(struct fw_connection *connection, const struct iovec **pieces,
                           int *count)
{
    struct fw_unsent *unsent = connection->unsent;
    *count = (int)fw_unsent_next(unsent, FW_CONNECTION_SLICE, pieces);
    if (*count > 0) {
        return 0;
    }
    struct fw_transfer *transfer = connection_transfer(connection, false);
    if (transfer == NULL) {
        return -ENOMEM;
    }
    *pieces = &transfer->slice;
    *count = 1;
    return fw_transfer_look(transfer, &connection->core->cache, unsent->bodies[unsent->first],
                            unsent->pieces[unsent->first].iov_len, FW_CONNECTION_SLICE);
}

static enum fw_step connection_send(struct fw_connection *connection)
{
    struct fw_fom *fom = &connection->fom;
    struct fw_unsent *unsent = connection->unsent;
    /* Nobody is made to wait for this client's sake. */
    FW_ASSERT(!connection->is_admitted && !fw_sched_is_waiting(&connection->request));
    while (!connection->is_sending) {
        if (FW_UNLIKELY(fw_replication_is_silent(&connection->core->server->replication))) {
            return fw_fom_goto(fom, FW_CONNECTION_CLOSE);
        }
        if (connection->sent == 0) {
            const struct iovec *pieces;
            int count;
            int rc = connection_next(connection, &pieces, &count);
            if (rc == -EINPROGRESS) {
                return transfer_begin(connection);
            }
            connection->sent = rc == 0 ? fw_stream_send(&connection->stream, pieces, count) : rc;
        }
        if (connection->sent == -EINPROGRESS) {
            connection->sent = 0;
            connection->is_sending = true;
            break;
        }
        if (connection->sent < 0) {
            return fw_fom_goto(fom, FW_CONNECTION_CLOSE);
        }
        fw_counter_add(&connection->core->metrics->bytes_written, (uint64_t)connection->sent);
        bool is_all = fw_unsent_advance(unsent, (size_t)connection->sent);
        connection->sent = 0;
        if (is_all) {
            unsent_drop(connection);
            return connection_go_on(connection);
        }
        if (connection_is_bulky(connection)) { /* Others come in between two slices of a value. */
            connection_rank(connection);
            core_look(connection->core, fom, FW_CONNECTION_LOOK_COST);
            return fw_fom_yield(fom, FW_CONNECTION_SEND);
        }
    }
    return fw_fom_wait(fom, FW_CONNECTION_SEND);
}

/*
 * Somebody else is at a window of it, and it may not touch anything: not even to end. What comes of
 * it wakes the fom. True: that is so.
 */
static bool connection_is_busy(struct fw_connection *connection)
{
    struct fw_transfer *transfer = connection->transfer;
    if (FW_LIKELY(transfer == NULL) || !transfer->is_under_way) {
        return false;
    }
    transfer->is_under_way = !fw_transfer_is_over(transfer);
    return transfer->is_under_way;
}

/* Gives back what it has of its core. */
static void connection_leave_core(struct fw_connection *connection)
{
    connection_withdraw(connection);
    fw_connection_input_drop(connection);
    unsent_drop(connection);
    fw_doubt_drop(connection);
    fw_session_fini(&connection->session, &connection->core->cache);
}

/* Lets go of all that others could meet it by, and of its memory. */
static void connection_let_go(struct fw_connection *connection)
{
    struct fw_listening *listening = connection->listening;
    connection->is_closing = true;
    if (connection->core != NULL) { /* Else it was ended before its first tick. */
        connection_leave_core(connection);
    }
    if (connection->is_open) {
        connection_hide(connection);
    }
    /* Before its client can see the end: who then connects again finds room. */
    fw_quota_put(&listening->server->quota, connection->counted);
    fw_server_connection_gone(listening->server);
    if (connection->is_open) {
        fw_stream_close(&connection->stream);
    } else {
        struct iovec nothing = {.iov_base = NULL, .iov_len = 0};
        fw_listener_refuse(&listening->listener, connection->fd, &nothing);
        connection->is_closed = true;
    }
}

/* In CLOSE and in FAILED. */
static enum fw_step connection_close(struct fw_connection *connection)
{
    if (!connection->is_closing) {
        connection_let_go(connection);
    }
    return connection->is_closed ? fw_fom_finish(&connection->fom)
                                 : fw_fom_wait(&connection->fom, connection->fom.phase);
}

static enum fw_step connection_tick(struct fw_fom *fom)
{
    struct fw_connection *connection = connection_of_fom(fom);
    const struct fw_server *server = connection->listening->server;
    if (FW_UNLIKELY(connection_is_busy(connection))) {
        return fw_fom_wait(fom, fom->phase);
    }
    /* Relaxed: who raises it wakes us then. */
    if (FW_UNLIKELY(connection->term !=
                    atomic_load_explicit(&server->replication.term, memory_order_relaxed))) {
        return fom->phase >= FW_PHASE_FIRST && fom->phase != FW_CONNECTION_CLOSE
                   ? fw_fom_goto(fom, FW_CONNECTION_CLOSE)
                   : connection_close(connection);
    }
    switch (fom->phase) {
    case FW_CONNECTION_SERVE:
        return FW_LIKELY(connection->is_admitted) ? connection_serve(connection)
                                                  : connection_look(connection);
    case FW_CONNECTION_SEND:
        return connection_send(connection);
    case FW_CONNECTION_HOLD:
        return connection_hold(connection);
    case FW_CONNECTION_DISK:
        return connection_write(connection);
    default:
        return connection_close(connection);
    }
}

/* ---- the type ------------------------------------------------------------------------------ */

/*
 * A client may let us wait for its words and for its ear as long as it likes. When the server ends
 * it has drained before the domain does, so nothing is lost by failing those who wait.
 */
static const struct fw_phase connection_phases[] = {
    {"SERVE",
     FW_PHASE_BIT(FW_CONNECTION_SEND) | FW_PHASE_BIT(FW_CONNECTION_HOLD) |
         FW_PHASE_BIT(FW_CONNECTION_DISK) | FW_PHASE_BIT(FW_CONNECTION_CLOSE),
     true},
    {"SEND", FW_PHASE_BIT(FW_CONNECTION_SERVE) | FW_PHASE_BIT(FW_CONNECTION_CLOSE), true},
    {"HOLD", FW_PHASE_BIT(FW_CONNECTION_SEND) | FW_PHASE_BIT(FW_CONNECTION_CLOSE), true},
    {"DISK", FW_PHASE_BIT(FW_CONNECTION_SERVE) | FW_PHASE_BIT(FW_CONNECTION_CLOSE), true},
    {"CLOSE", FW_PHASE_BIT(FW_PHASE_FINISHED), false},
};

const struct fw_fom_type fw_connection_type = {
    .name = "connection",
    .size = sizeof(struct fw_connection),
    .phases = connection_phases,
    .phase_count = FW_ARRAY_LENGTH(connection_phases),
    .initialise = connection_initialise,
    .tick = connection_tick,
    .depart = connection_depart,
    .arrive = connection_arrive,
};

/* ---- cores --------------------------------------------------------------------------------- */

static void core_poll(struct fw_timer *timer)
{
    fw_sched_poll(&FW_CONTAINER_OF(timer, struct fw_server_core, sched_timer)->sched);
}

/* The head wants to be polled then. */
static void core_arm(struct fw_sched *sched, int64_t when_ns)
{
    struct fw_server_core *core = FW_CONTAINER_OF(sched, struct fw_server_core, sched);
    if (when_ns == INT64_MAX) {
        (void)fw_wheel_cancel(&core->engine->wheel, &core->sched_timer);
    } else {
        fw_wheel_start(&core->engine->wheel, &core->sched_timer, when_ns);
    }
}

int fw_server_core_init(struct fw_server_core *core, struct fw_server *server,
                        struct fw_core *engine)
{
    core->server = server;
    core->engine = engine;
    core->reactor = engine->reactor;
    core->owner = NULL;
    core->admitted = NULL;
    core->serving = NULL;
    core->now_ns = 0;
    core->seen_ns = 0;
    core->unseen_cost = 0;
    core->gate.ask = fw_connection_gate;
    fw_timer_init(&core->sched_timer, core_poll);
    fw_doubts_init(&core->doubts);
    core->getter = (struct fw_sched_getter){.ready = connection_admitted};
    core->metrics = aligned_alloc(alignof(struct fw_metrics_server), sizeof *core->metrics);
    if (core->metrics == NULL) {
        return -ENOMEM;
    }
    *core->metrics = (struct fw_metrics_server){0};
    int rc = fw_metrics_register(&server->metrics, &fw_server_metric_table, &core->metrics->source);
    if (rc != 0) {
        goto no_metrics;
    }
    rc = fw_cache_local_init(&core->cache, &server->cache);
    if (rc != 0) {
        goto no_cache;
    }
    core->cache.whose = core_whose;
    fw_tenancy_join(core);
    rc = fw_sched_init(&core->sched, &(struct fw_sched_config){.policy = core->policy,
                                                               .tenants = server->tenants,
                                                               .arm = core_arm});
    if (rc != 0) {
        goto no_sched;
    }
    fw_sched_get_next(&core->sched, &core->getter);
    return 0;

no_sched:
    fw_tenancy_leave(core);
    fw_cache_local_fini(&core->cache);
no_cache:
    fw_metrics_unregister(&server->metrics, &core->metrics->source);
no_metrics:
    free(core->metrics);
    return rc;
}

void fw_server_core_fini(struct fw_server_core *core)
{
    FW_ASSERT(core->owner == NULL && core->serving == NULL);
    fw_doubts_fini(&core->doubts);
    fw_sched_shutdown(&core->sched);
    fw_sched_fini(&core->sched);
    (void)fw_wheel_cancel(&core->engine->wheel, &core->sched_timer);
    fw_tenancy_leave(core);
    fw_cache_local_fini(&core->cache);
    fw_metrics_unregister(&core->server->metrics, &core->metrics->source);
    free(core->metrics);
}
