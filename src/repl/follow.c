/* SPDX-License-Identifier: Apache-2.0 */
#include "repl/follow.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "engine/core.h"
#include "io/clock.h"
#include "repl/apply.h"

FW_LOG_MODULE_USE(repl);

static_assert((int)FW_REPL_FOLLOW_INPUT > 2 * (int)FW_REPL_MESSAGE_MAX, "any message fits");

enum { APPLY_MAX = 64, CLEAR_BUCKETS = 32, RECEIVES_MAX = 4 };

/* To masters that are others', and how long they may take to say something. */
#define HEARTBEAT_NS (INT64_C(1) * FW_NS_PER_S)
#define GREETING_NS  (INT64_C(2) * FW_NS_PER_S)

/* Before it tries again what cannot succeed by itself, and what may but costs a whole copy. */
#define HINDERED_NS     (INT64_C(5) * FW_NS_PER_S)
#define OVERFLOW_NS_MAX (INT64_C(60) * FW_NS_PER_S)

/* A master has fewer items if it lacks more than one part in so many of what is here. */
enum { FEWER_OF = 10 };

enum {
    FOLLOW_CONNECT = FW_PHASE_FIRST,
    FOLLOW_GREET,
    FOLLOW_CLEAR,
    FOLLOW_APPLY,
    FOLLOW_CLOSE,
    FOLLOW_PAUSE,
};

static struct fw_repl_follow *follow_of_fom(struct fw_fom *fom)
{
    return FW_FOM_OF(fom, struct fw_repl_follow);
}

static struct fw_repl_follow *follow_of(struct fw_stream *stream)
{
    return FW_CONTAINER_OF(stream, struct fw_repl_follow, stream);
}

static void follow_set_state(struct fw_repl_follow *follow, enum fw_repl_follow_state state)
{
    /* Release, for the acquire of who looks. */
    atomic_store_explicit(&follow->repl->followed.state, state, memory_order_release);
}

static bool follow_must_end(const struct fw_repl_follow *follow)
{
    /* Acquire, for the release in fw_repl_unfollow(). */
    return atomic_load_explicit(&follow->repl->must_unfollow, memory_order_acquire);
}

/* Does it want a copy, and no more? */
static bool follow_is_fetching(const struct fw_repl_follow *follow)
{
    return atomic_load(&follow->repl->is_fetching);
}

/* Other servers can be followed; items are fetched only from our own, which say what they have. */
static bool follow_admits_others(const struct fw_repl_follow *follow)
{
    return follow->repl->config.admits_others && !follow_is_fetching(follow);
}

/* Does it want to know what a slave has, and not even that? */
static bool follow_is_looking(const struct fw_repl_follow *follow)
{
    return follow_is_fetching(follow) && follow->repl->look_ns > 0;
}

/* For how long the other side may say nothing. */
static int64_t follow_timeout(const struct fw_repl_follow *follow)
{
    return follow_is_looking(follow) ? follow->repl->look_ns : follow->repl->config.timeout_ns;
}

static enum fw_step follow_end(struct fw_repl_follow *follow, int error)
{
    follow->error = error;
    return fw_fom_goto(&follow->fom, FOLLOW_CLOSE);
}

/* ---- the stream's events ------------------------------------------------------------------- */

static void follow_connected(struct fw_stream *stream, int result)
{
    struct fw_repl_follow *follow = follow_of(stream);
    follow->is_connecting = false;
    follow->is_connected = result == 0;
    follow->error = result;
    fw_fom_wake(&follow->fom);
}

static void follow_readable(struct fw_stream *stream)
{
    follow_of(stream)->is_waiting = false;
    fw_fom_wake(&follow_of(stream)->fom);
}

static void follow_note_sent(struct fw_repl_follow *follow, ssize_t result)
{
    if (result < 0) {
        follow->error = (int)result;
        return;
    }
    follow->unsent.iov_base = (char *)follow->unsent.iov_base + result;
    follow->unsent.iov_len -= (size_t)result;
}

static void follow_sent(struct fw_stream *stream, ssize_t result)
{
    struct fw_repl_follow *follow = follow_of(stream);
    follow->is_sending = false;
    follow_note_sent(follow, result);
    fw_fom_wake(&follow->fom);
}

static void follow_closed(struct fw_stream *stream)
{
    struct fw_repl_follow *follow = follow_of(stream);
    follow->is_open = false;
    fw_fom_wake(&follow->fom);
}

static const struct fw_stream_events follow_events = {.readable = follow_readable,
                                                      .sent = follow_sent,
                                                      .connected = follow_connected,
                                                      .closed = follow_closed};

/* Sends what is in the output, and then the answer that is due, as far as the socket takes it. */
static void follow_send(struct fw_repl_follow *follow)
{
    while (!follow->is_sending && follow->error == 0) {
        if (follow->unsent.iov_len == 0 && follow->has_answer) {
            follow->has_answer = false;
            uint64_t time = follow->has_echo ? (uint64_t)fw_fom_now(&follow->fom) : 0;
            follow->unsent = (struct iovec){
                .iov_base = follow->output,
                .iov_len = fw_repl_put_mark_answer(follow->output, follow->answer_opaque,
                                                   !follow->is_smaller, time)};
        }
        int64_t now = fw_fom_now(&follow->fom);
        if (follow->unsent.iov_len == 0 && follow->is_other &&
            now - follow->beat_ns >= HEARTBEAT_NS) {
            follow->beat_ns = now;
            follow->unsent = (struct iovec){.iov_base = follow->output,
                                            .iov_len = fw_repl_put_heartbeat(follow->output)};
        }
        if (follow->unsent.iov_len == 0) {
            return;
        }
        ssize_t result = fw_stream_send(&follow->stream, &follow->unsent, 1);
        if (result == -EINPROGRESS) {
            follow->is_sending = true;
        } else {
            follow_note_sent(follow, result);
        }
    }
}

/* ---- connecting and greeting --------------------------------------------------------------- */

/*
 * Asks the resolver for the master's address. Once it is known it stays: who becomes master must
 * not wait for a resolver first. False: too many threads are blocked, and it is woken later.
 */
static bool follow_resolve(struct fw_repl_follow *follow)
{
    const struct fw_repl_master *master = &follow->repl->master;
    struct fw_reason why;
    if (!fw_block_enter(&follow->fom)) {
        return false;
    }
    int count =
        fw_address_parse(master->name, master->port, FW_ADDRESS_RESOLVE, &follow->master, 1, &why);
    fw_block_leave(&follow->fom);
    if (count < 0) {
        follow->master.length = 0;
        follow->error = -EADDRNOTAVAIL;
    }
    return true;
}

static enum fw_step follow_connect(struct fw_repl_follow *follow)
{
    struct fw_fom *fom = &follow->fom;
    if (follow->error == 0 && !follow_must_end(follow) && follow->master.length == 0 &&
        !follow_resolve(follow)) {
        return fw_fom_wait(fom, FOLLOW_CONNECT);
    }
    if (follow_must_end(follow) || follow->error != 0) {
        return fw_fom_goto(fom, FOLLOW_CLOSE);
    }
    if (!follow->is_open) {
        follow_set_state(follow, FW_REPL_FOLLOW_CONNECTING);
        follow->heard_ns = fw_fom_now(fom);
        int rc = fw_stream_connect(&follow->stream, fw_fom_core(fom)->reactor, &follow->master,
                                   &follow_events);
        if (rc != 0 && rc != -EINPROGRESS) {
            return follow_end(follow, rc);
        }
        follow->is_open = true;
        follow->is_connecting = rc == -EINPROGRESS;
        follow->is_connected = rc == 0;
    }
    if (follow->is_connected) {
        fw_repl_count(&follow->repl->metrics.connects, 1);
        return fw_fom_goto(fom, FOLLOW_GREET);
    }
    int64_t deadline = follow->heard_ns + follow_timeout(follow);
    if (fw_fom_now(fom) >= deadline) {
        return follow_end(follow, -ETIMEDOUT);
    }
    return fw_fom_wait_until(fom, FOLLOW_CONNECT, deadline);
}

/* Makes room and receives. 0, -EAGAIN: nothing more now, or why the link ends. */
static int follow_receive(struct fw_repl_follow *follow)
{
    if (follow->is_waiting) {
        return -EAGAIN;
    }
    uint32_t length = follow->input_end - follow->input_begin;
    memmove(follow->input, follow->input + follow->input_begin, length);
    follow->input_begin = 0;
    follow->input_end = length;
    bool is_body = follow->body != NULL && length == 0;
    char *to = is_body ? follow->body->bytes + follow->body_filled : follow->input + length;
    size_t room =
        is_body ? follow->body->length - follow->body_filled : sizeof follow->input - length;
    ssize_t received = fw_stream_receive_now(&follow->stream, to, room);
    if (received == -EAGAIN) {
        follow->is_waiting = true;
        fw_stream_wait(&follow->stream);
        return -EAGAIN;
    }
    if (received <= 0) {
        return received == 0 ? -ECONNRESET : (int)received;
    }
    follow->heard_ns = fw_fom_now(&follow->fom);
    fw_repl_count(&follow->repl->metrics.bytes_received, (uint64_t)received);
    if (is_body) {
        follow->body_filled += (uint32_t)received;
    } else {
        follow->input_end += (uint32_t)received;
    }
    return 0;
}

static void follow_say_hello(struct fw_repl_follow *follow)
{
    const struct fw_repl_followed *followed = &follow->repl->followed;
    /* Relaxed, all: written by followers only, of which this is the one. */
    bool is_torn = atomic_load_explicit(&followed->is_torn, memory_order_relaxed);
    const struct fw_repl_greeting greeting = {
        .history = is_torn ? 0 : atomic_load_explicit(&followed->history, memory_order_relaxed),
        .position = atomic_load_explicit(&followed->position, memory_order_relaxed),
        .knows = FW_REPL_KNOWS_ALL,
        .start = follow_is_fetching(follow) ? FW_REPL_FETCH : 0,
    };
    follow->unsent = (struct iovec){.iov_base = follow->output,
                                    .iov_len = fw_repl_put_hello(follow->output, &greeting)};
    follow->has_greeted = true;
    follow->hello_ns = fw_fom_now(&follow->fom);
    follow->hello_date_ns = fw_cache_date_ns(follow->local->cache);
    follow->ahead_s = 0;
    follow->is_keeping = false; /* Unless the master says what it drops. */
}

/* Why the copy is not whole, or why there is no link; 0: no reason. Relaxed: it is only shown. */
static void follow_set_hindrance(struct fw_repl_follow *follow, int hindrance)
{
    atomic_store_explicit(&follow->repl->followed.hindrance, hindrance, memory_order_relaxed);
}

/* The master says what it is. 0, or -E2BIG: this one has less memory. */
static int follow_measure(struct fw_repl_follow *follow, const struct fw_repl_message *message)
{
    const struct fw_repl_about about = fw_repl_about_read(message);
    struct fw_table *table = follow->local->cache->table;
    uint64_t own = fw_table_memory(table);
    bool is_smaller = own < about.memory;
    if (is_smaller) {
        follow_set_hindrance(follow, -E2BIG);
    }
    if (is_smaller && !follow->repl->config.allows_smaller) {
        return -E2BIG;
    }
    if (is_smaller && !follow->is_smaller) {
        FW_LOG(repl, WARNING,
               "this server has %" PRIu64 " MiB, less than the %" PRIu64
               " MiB of its master: its copy will not be whole",
               own >> 20, about.memory >> 20);
        atomic_store(&follow->repl->followed.is_torn, true);
    }
    follow->is_smaller = is_smaller;
    follow->is_keeping = !is_smaller;
    fw_table_keep_items(table, follow->is_keeping);
    return 0;
}

/*
 * Would a copy replace what is here by less? Only if this is whole, and the master does not
 * continue it: see repl.h. A master that was started from its image may lack what expired
 * meanwhile. 0: it would not; -ESTALE: the master was behind; -EEXIST: it has fewer items.
 */
static int follow_loss(const struct fw_repl_follow *follow, const struct fw_repl_about *about)
{
    const struct fw_repl_followed *followed = &follow->repl->followed;
    struct fw_table_totals totals;
    /* Relaxed, all: written by followers only, of which this is the one. */
    if (atomic_load_explicit(&followed->is_torn, memory_order_relaxed) ||
        follow->answer.start == FW_REPL_GO_ON || atomic_load(&follow->repl->accepts)) {
        return 0;
    }
    if (about->origin == atomic_load_explicit(&followed->origin, memory_order_relaxed)) {
        if (about->parent_history ==
            atomic_load_explicit(&followed->history, memory_order_relaxed)) {
            bool is_behind = about->parent_position <
                             atomic_load_explicit(&followed->position, memory_order_relaxed);
            return is_behind ? -ESTALE : 0;
        }
        if (about->server == atomic_load_explicit(&followed->server, memory_order_relaxed)) {
            return 0; /* The same as before, which only has a new log. */
        }
    }
    fw_table_totals(follow->local->cache->table, &totals);
    return about->items < totals.items - totals.items / FEWER_OF ? -EEXIST : 0;
}

/* The master has said what it is, behind its answer. 0, or why it is not followed. */
static int follow_judge_about(struct fw_repl_follow *follow, const struct fw_repl_message *message)
{
    const struct fw_repl_about about = fw_repl_about_read(message);
    int rc = follow_measure(follow, message);
    if (rc == 0 && follow_is_fetching(follow)) {
        follow->repl->found = (struct fw_repl_found){.history = about.parent_history,
                                                     .position = about.parent_position,
                                                     .number = about.number};
        follow->is_done = follow_is_looking(follow);
        rc = follow->is_done ? -ECANCELED : 0;
    }
    int loss = rc == 0 ? follow_loss(follow, &about) : 0;
    bool is_held = loss != 0;
    if (is_held) {
        follow_set_hindrance(follow, loss);
        rc = loss;
    } else {
        atomic_store(&follow->repl->accepts, false);
    }
    follow->origin = about.origin;
    follow->server = about.server;
    follow->ahead_s =
        fw_repl_clock_ahead((int64_t)(about.date_ns & INT64_MAX), follow->hello_date_ns,
                            fw_cache_date_ns(follow->local->cache));
    if (follow->ahead_s != 0) {
        FW_LOG(repl, WARNING, "the master's clock is %" PRId64 " seconds ahead of the one here",
               follow->ahead_s);
    }
    atomic_store(&follow->repl->followed.is_held, is_held);
    return rc;
}

/* An item did not fit: the copy is not whole any more. Why the link ends. */
static int follow_overflow(struct fw_repl_follow *follow)
{
    atomic_store(&follow->repl->followed.is_torn, true);
    follow_set_hindrance(follow, -ENOSPC);
    fw_repl_count(&follow->repl->metrics.overflows, 1);
    return -ENOSPC;
}

static enum fw_step follow_begin(struct fw_repl_follow *follow,
                                 const struct fw_repl_message *message)
{
    struct fw_repl_followed *followed = &follow->repl->followed;
    bool goes_on = message->start == FW_REPL_GO_ON;
    char address[FW_ADDRESS_TEXT_SIZE];
    fw_address_format(&follow->master, address);
    follow->told_error = 0;
    FW_LOG(repl, NOTICE, "following the master %s, %s", address,
           goes_on ? "from where it was left" : "which sends everything");
    follow->is_other = !message->is_answer;
    follow->has_echo = (message->knows & (uint32_t)FW_REPL_KNOWS_ECHO) != 0;
    atomic_store_explicit(&followed->is_other, follow->is_other, memory_order_relaxed);
    fw_table_keep_expired(follow->local->cache->table,
                          (message->knows & (uint32_t)FW_REPL_KNOWS_EXPIRY) != 0);
    fw_table_keep_items(follow->local->cache->table, follow->is_keeping);
    if (goes_on) { /* In the same history. */
        follow_set_state(follow, FW_REPL_FOLLOW_STREAMING);
        return fw_fom_goto(&follow->fom, FOLLOW_APPLY);
    }
    /*
     * In this order, and seq-cst, as in fw_repl_standing(), which reads history, position, torn: so
     * nobody sees a position of one history beside the other, and a copy that is whole.
     */
    atomic_store(&followed->is_torn, true);
    atomic_store(&followed->position, 0);
    atomic_store(&followed->history, message->history);
    follow_set_state(follow, FW_REPL_FOLLOW_COPYING);
    follow->clear_cursor = 0;
    follow->has_begun = follow_is_fetching(follow);
    return fw_fom_goto(&follow->fom, FOLLOW_CLEAR);
}

/* The bytes that have not been looked at. */
static enum fw_repl_decoded input_look(const struct fw_repl_follow *follow,
                                       struct fw_repl_message *message)
{
    return fw_repl_decode(follow->input + follow->input_begin,
                          follow->input_end - follow->input_begin, message);
}

/* The master wants to know whether this one knows the secret. 0 or why the link ends. */
static int follow_prove(struct fw_repl_follow *follow, const struct fw_repl_message *message)
{
    const struct fw_repl_secret *secret = &follow->repl->secret;
    char proof[FW_REPL_SLAVE_PROOF];
    if (message->value_length != FW_REPL_NONCE || follow->has_proven) {
        return -EPROTO;
    }
    if (secret->length == 0) {
        return -ENOKEY;
    }
    memcpy(follow->master_nonce, message->value, FW_REPL_NONCE);
    int rc = fw_repl_nonce(follow->nonce);
    if (rc == 0) {
        memcpy(proof, follow->nonce, FW_REPL_NONCE);
        rc = fw_repl_prove(secret, FW_REPL_SLAVE_PROVES, follow->master_nonce, follow->nonce,
                           proof + FW_REPL_NONCE);
    }
    if (rc == 0) {
        follow->has_proven = true;
        follow->unsent = (struct iovec){.iov_base = follow->output,
                                        .iov_len = fw_repl_put_proof(follow->output, FW_REPL_PROOF,
                                                                     false, proof, sizeof proof)};
    }
    return rc;
}

/* Does the master know it? 0 or why the link ends. */
static int follow_judge(struct fw_repl_follow *follow, const struct fw_repl_message *message)
{
    if (message->value_length != FW_REPL_MASTER_PROOF || !follow->has_proven) {
        return -EPROTO;
    }
    follow->is_proven = fw_repl_is_proven(&follow->repl->secret, FW_REPL_MASTER_PROVES,
                                          follow->master_nonce, follow->nonce, message->value);
    return follow->is_proven ? 0 : -EKEYREJECTED;
}

/*
 * What the master says before it greets back: about the secret. 1: it was taken, 0: it is something
 * else; or why the link ends.
 */
static int follow_hear_proof(struct fw_repl_follow *follow, const struct fw_repl_message *message)
{
    bool is_challenge = message->opcode == FW_REPL_CHALLENGE;
    if (!message->is_answer || (!is_challenge && message->opcode != FW_REPL_PROOF)) {
        return follow->repl->secret.length == 0 || follow->is_proven ? 0 : -EKEYREJECTED;
    }
    if (follow->is_sending || follow->unsent.iov_len > 0) {
        return -EAGAIN; /* It is not known yet that all of the HELLO was sent: soon. */
    }
    int rc = is_challenge ? follow_prove(follow, message) : follow_judge(follow, message);
    if (rc == 0) {
        follow->input_begin += (uint32_t)message->size;
        follow_send(follow);
    }
    return rc == 0 ? 1 : rc;
}

/* One message of the greeting. 0: there is more to come; 1: there is not; or why the link ends. */
static int follow_greeted(struct fw_repl_follow *follow, const struct fw_repl_message *message)
{
    int rc = follow_hear_proof(follow, message);
    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    if (follow->is_greeted) {
        if (message->is_answer || message->opcode != FW_REPL_ABOUT) {
            return -EPROTO;
        }
        follow->input_begin += (uint32_t)message->size;
        rc = follow_judge_about(follow, message);
        return rc == 0 ? 1 : rc;
    }
    bool is_others = !message->is_answer && message->opcode != FW_REPL_HELLO;
    follow->answer = *message;
    if (message->opcode == FW_REPL_HELLO && message->is_answer &&
        message->version == FW_REPL_VERSION) {
        follow->input_begin += (uint32_t)message->size;
        follow->is_greeted = true;
        if (message->start == FW_REPL_NOTHING) {
            return -ENODATA;
        }
        return (message->knows & (uint32_t)FW_REPL_KNOWS_MEMORY) != 0 ? 0 : 1;
    }
    if (is_others && follow_admits_others(follow)) {
        return 1; /* It is applied when all else is forgotten. */
    }
    return is_others ? -EOPNOTSUPP : -EPROTONOSUPPORT;
}

static enum fw_step follow_greet(struct fw_repl_follow *follow)
{
    struct fw_fom *fom = &follow->fom;
    struct fw_repl_message message;
    if (follow_must_end(follow)) {
        return fw_fom_goto(fom, FOLLOW_CLOSE);
    }
    if (!follow->has_greeted) {
        follow_say_hello(follow);
    }
    follow_send(follow);
    for (;;) {
        enum fw_repl_decoded decoded = input_look(follow, &message);
        int heard = decoded == FW_REPL_MESSAGE   ? follow_greeted(follow, &message)
                    : decoded == FW_REPL_DAMAGED ? -EPROTONOSUPPORT
                                                 : 0;
        if (heard == -EAGAIN) {
            break;
        }
        if (heard != 0) {
            return heard > 0 ? follow_begin(follow, &follow->answer) : follow_end(follow, heard);
        }
        if (decoded == FW_REPL_MESSAGE) {
            continue;
        }
        int rc = follow->error != 0 ? follow->error : follow_receive(follow);
        if (rc == -EAGAIN) {
            break;
        }
        if (rc != 0) {
            bool is_gone = rc == -ECONNRESET || rc == -EPIPE;
            bool is_refused = is_gone && follow->has_proven && !follow->is_proven;
            return follow_end(follow, is_refused ? -EACCES : is_gone ? -ECONNABORTED : rc);
        }
    }
    bool admits_others = follow_admits_others(follow);
    int64_t patience_ns = admits_others ? GREETING_NS : follow_timeout(follow);
    int64_t deadline = follow->heard_ns + patience_ns;
    if (fw_fom_now(fom) < deadline) {
        return fw_fom_wait_until(fom, FOLLOW_GREET, deadline);
    }
    /* One of another server has nothing to say while it has nothing. */
    message = (struct fw_repl_message){.opcode = FW_REPL_NOOP};
    return admits_others ? follow_begin(follow, &message) : follow_end(follow, -ETIMEDOUT);
}

static enum fw_step follow_clear(struct fw_repl_follow *follow)
{
    struct fw_fom *fom = &follow->fom;
    if (follow_must_end(follow) || follow->error != 0) {
        return fw_fom_goto(fom, FOLLOW_CLOSE);
    }
    fw_cache_local_set_time(follow->local, fw_fom_now(fom));
    if (!fw_table_clear(follow->local->table, &follow->clear_cursor, CLEAR_BUCKETS)) {
        return fw_fom_yield(fom, FOLLOW_CLEAR);
    }
    follow->heard_ns = fw_fom_now(fom); /* It was we who took the time. */
    return fw_fom_goto(fom, FOLLOW_APPLY);
}

/* ---- applying ------------------------------------------------------------------------------ */

/* All that the master had is here, at this mark: notes as of when. */
static void follow_note_current(struct fw_repl_follow *follow,
                                const struct fw_repl_message *message)
{
    int64_t now = fw_fom_now(&follow->fom);
    int64_t since = now; /* A release before does not say how long the mark was under way. */
    if (follow->has_echo) {
        /* Before the first answer it is known that the master has heard the greeting. */
        uint64_t echo = message->echo != 0 ? message->echo : (uint64_t)follow->hello_ns;
        since = echo < (uint64_t)now ? (int64_t)echo : now;
    }
    /* Relaxed: what is read now could have been read a moment ago. */
    atomic_store_explicit(&follow->repl->followed.current_ns, since, memory_order_relaxed);
}

static void follow_marked(struct fw_repl_follow *follow, const struct fw_repl_message *message)
{
    struct fw_repl_followed *followed = &follow->repl->followed;
    if (message->number > 0) {
        fw_table_take_numbers(follow->local->cache->table, message->number - 1);
        /* Relaxed: it is read when there is no follower. */
        atomic_store_explicit(&followed->marked_ns, fw_fom_now(&follow->fom), memory_order_relaxed);
    }
    /* Seq-cst, and before the copy is called whole: see follow_begin(). */
    atomic_store(&followed->position, message->cas);
    if ((message->opaque & FW_REPL_MARK_WHOLE) != 0) {
        if (!follow->is_smaller) {
            if (atomic_load_explicit(&followed->is_torn, memory_order_relaxed)) {
                FW_LOG(repl, NOTICE, "the copy is whole");
            }
            atomic_store_explicit(&followed->origin, follow->origin, memory_order_relaxed);
            atomic_store_explicit(&followed->server, follow->server, memory_order_relaxed);
            atomic_store(&followed->is_torn, false);
            follow_set_hindrance(follow, 0);
        }
        follow_set_state(follow, FW_REPL_FOLLOW_STREAMING);
        if ((message->opaque & FW_REPL_MARK_CURRENT) != 0) {
            follow_note_current(follow, message);
        }
    }
    follow->has_answer = true;
    follow->answer_opaque = message->opaque;
    follow->is_done = follow_is_fetching(follow) && fw_repl_has_copy(follow->repl);
}

/* A value that goes to a body: the rest is received there. 0 or a negative errno. */
static int body_begin(struct fw_repl_follow *follow, const struct fw_repl_message *message)
{
    follow->pending = *message;
    memcpy(follow->pending_key, message->key, message->key_length);
    follow->pending.key = follow->pending_key;
    follow->pending.value = NULL;
    follow->body_filled = 0;
    follow->body = fw_body_create(follow->local->table, message->value_length);
    if (follow->body != NULL) {
        return 0;
    }
    struct fw_repl_message removal = {
        .opcode = FW_REPL_DELETEQ, .key = follow->pending_key, .key_length = message->key_length};
    int rc = fw_repl_apply(follow->local, &removal); /* Better a miss than an old value. */
    follow->skip = message->value_length;
    return rc == 0 ? -ENOSPC : rc;
}

/* Goes on with a large value. 1: it is all there, or nothing of it is wanted; 0: not yet. */
static int body_go_on(struct fw_repl_follow *follow)
{
    uint32_t there = follow->input_end - follow->input_begin;
    uint32_t wanted =
        follow->body != NULL ? follow->body->length - follow->body_filled : follow->skip;
    uint32_t count = there < wanted ? there : wanted;
    if (follow->body != NULL) {
        memcpy(follow->body->bytes + follow->body_filled, follow->input + follow->input_begin,
               count);
        follow->body_filled += count;
    } else {
        follow->skip -= count;
    }
    follow->input_begin += count;
    if (count < wanted) {
        return 0;
    }
    if (follow->body != NULL) {
        struct fw_body *body = follow->body;
        follow->body = NULL;
        int rc = fw_repl_apply_large(follow->local, &follow->pending, body);
        return rc == 0 ? 1 : rc;
    }
    return 1;
}

/* Applies a message that is all there but for a large value. 0 or a negative errno. */
static int follow_do(struct fw_repl_follow *follow, const struct fw_repl_message *message)
{
    fw_repl_count(&follow->repl->metrics.messages_received, 1);
    switch ((int)message->opcode) {
    case FW_REPL_NOOP:
        follow_marked(follow, message);
        return 0;
    case FW_REPL_READ:
        return fw_repl_ageing_apply(&follow->ageing, follow->local, message);
    case FW_REPL_ABOUT:
        return follow_measure(follow, message);
    default:
        return message->is_large ? body_begin(follow, message)
                                 : fw_repl_apply(follow->local, message);
    }
}

/* Takes one message, or a part of a large one. 1: it did; 0: not enough has come; or an error. */
static int follow_take(struct fw_repl_follow *follow)
{
    struct fw_repl_message message;
    if (follow->body != NULL || follow->skip > 0) {
        return body_go_on(follow);
    }
    enum fw_repl_decoded decoded = input_look(follow, &message);
    if (decoded == FW_REPL_MORE) {
        return 0;
    }
    if (decoded == FW_REPL_DAMAGED || message.is_answer || message.opcode == FW_REPL_HELLO) {
        return -EPROTO;
    }
    follow->input_begin += (uint32_t)message.size;
    if ((follow->answer.knows & (uint32_t)FW_REPL_KNOWS_DATES) != 0) {
        fw_repl_correct(&message, follow->ahead_s);
    }
    int rc = follow_do(follow, &message);
    return rc == 0 ? 1 : rc;
}

static enum fw_step follow_apply(struct fw_repl_follow *follow)
{
    struct fw_fom *fom = &follow->fom;
    uint32_t receives = 0;
    if (follow_must_end(follow) || follow->error != 0 || follow->is_done) {
        return fw_fom_goto(fom, FOLLOW_CLOSE);
    }
    fw_cache_local_set_time(follow->local, fw_fom_now(fom));
    for (uint32_t i = 0; i < APPLY_MAX; i++) {
        int taken = follow_take(follow);
        if (taken == -ENOSPC && follow->is_keeping) {
            return follow_end(follow, follow_overflow(follow));
        }
        if (taken < 0 && taken != -ENOSPC) {
            return follow_end(follow, taken);
        }
        if (taken == 0) {
            int rc = receives++ < RECEIVES_MAX ? follow_receive(follow) : 0;
            if (rc == -EAGAIN) {
                goto dry;
            }
            if (rc != 0) {
                return follow_end(follow, rc);
            }
        }
    }
    follow_send(follow);
    return fw_fom_yield(fom, FOLLOW_APPLY);

dry:
    follow_send(follow);
    if (follow->is_done) {
        return fw_fom_goto(fom, FOLLOW_CLOSE);
    }
    if (follow->is_other) {
        /* While one cannot be sent the next is not awaited. */
        int64_t since_ns = follow->is_sending ? fw_fom_now(fom) : follow->beat_ns;
        return fw_fom_wait_until(fom, FOLLOW_APPLY, since_ns + HEARTBEAT_NS);
    }
    int64_t deadline = follow->heard_ns + follow->repl->config.timeout_ns;
    if (fw_fom_now(fom) >= deadline) {
        return follow_end(follow, -ETIMEDOUT);
    }
    return fw_fom_wait_until(fom, FOLLOW_APPLY, deadline);
}

/* ---- the end of a link, and of it all ------------------------------------------------------ */

/* What the log says of an error, and what to do about it. */
static const char *error_text(int error)
{
    switch (error) {
    case 0:
        return "it was ended";
    case -ENOKEY:
        return "it wants to see a secret, see --repl-secret-file";
    case -EKEYREJECTED:
        return "it does not prove that it knows the secret of --repl-secret-file";
    case -EADDRNOTAVAIL:
        return "its name does not resolve";
    case -EPROTONOSUPPORT:
        return "what answers there does not replicate, or not in this version; --repl-master wants "
               "the address of the master's --repl-port, which is another than that for clients";
    case -EOPNOTSUPP:
        return "it does not greet, as other servers than Fairway; see --repl-admit-others";
    case -E2BIG:
        return "it has more memory than this server, which could not keep all items; give this one "
               "as much (-m), or allow that with --repl-smaller";
    case -EEXIST:
        return "it does not continue what is here, and has less: this server keeps its items and "
               "does "
               "not follow; 'fairway admin promote' makes it master, 'fairway admin accept' lets "
               "it "
               "follow and forget them";
    case -ESTALE:
        return "it was behind this server when it became master: this server keeps its items and "
               "does not follow; 'fairway admin promote' makes it master, 'fairway admin accept' "
               "lets it follow and forget them";
    case -EACCES:
        return "it ended the connection when it saw the proof: its secret is another one than that "
               "of --repl-secret-file here";
    case -ENODATA:
        return "it has no whole copy";
    case -ENOSPC:
        return "an item did not fit in the memory of this server, so its copy is not whole";
    case -ECONNABORTED:
        return "it closed the connection without a greeting; its log says why";
    default:
        return strerrordesc_np(-error);
    }
}

static void follow_say_why(struct fw_repl_follow *follow)
{
    char address[FW_ADDRESS_TEXT_SIZE];
    const struct fw_repl_master master = {.name = follow->repl->master.name,
                                          .address = follow->master};
    struct fw_metrics_repl *metrics = &follow->repl->metrics;
    int error = follow->error;
    if (follow_must_end(follow) || follow->is_done ||
        (follow->told_error != 0 && follow->told_error == error)) {
        return; /* Once for each reason, until it can be reached again. */
    }
    follow->told_error = error;
    fw_repl_master_format(&master, address);
    bool is_damaged = error == -EPROTO || error == -EPROTONOSUPPORT || error == -EOPNOTSUPP;
    fw_repl_count(&metrics->silent, error == -ETIMEDOUT ? 1 : 0);
    fw_repl_count(&metrics->damaged, is_damaged ? 1 : 0);
    fw_repl_count(&metrics->unproven, error == -EKEYREJECTED ? 1 : 0);
    if (follow_is_fetching(follow)) {
        FW_LOG(repl, NOTICE, "cannot fetch items from %s: %s%s", address, error_text(error),
               follow->has_begun ? "; what has come is dropped" : "");
        return;
    }
    FW_LOG(repl, WARNING, "no link to the master %s: %s; trying again", address, error_text(error));
}

static bool is_of_secret(int error)
{
    return error == -EACCES || error == -ENOKEY || error == -EKEYREJECTED;
}

/* A wrong secret is shown as the reason, until the link fails for another one or is there. */
static void follow_show_why(struct fw_repl_follow *follow)
{
    /* Relaxed: it is only shown. */
    int shown = atomic_load_explicit(&follow->repl->followed.hindrance, memory_order_relaxed);
    if (is_of_secret(follow->error)) {
        follow_set_hindrance(follow, follow->error);
    } else if (is_of_secret(shown)) {
        follow_set_hindrance(follow, 0);
    }
}

/* How long to wait before the next attempt. */
static int64_t follow_patience(struct fw_repl_follow *follow)
{
    int64_t pause_ns = 0;
    if (follow->error == -E2BIG || follow->error == -EEXIST || follow->error == -ESTALE) {
        pause_ns = HINDERED_NS;
    } else if (follow->error == -ENOSPC) {
        pause_ns = follow->overflow_ns > HINDERED_NS ? follow->overflow_ns : HINDERED_NS;
        follow->overflow_ns = 2 * pause_ns < OVERFLOW_NS_MAX ? 2 * pause_ns : OVERFLOW_NS_MAX;
    }
    int64_t retry_ns = follow->repl->config.retry_ns;
    return pause_ns > retry_ns ? pause_ns : retry_ns;
}

/* In CLOSE and in FAILED. */
static enum fw_step follow_close(struct fw_repl_follow *follow)
{
    struct fw_fom *fom = &follow->fom;
    if (!follow->is_closing) {
        follow->is_closing = true;
        follow_say_why(follow);
        follow_show_why(follow);
        if (follow_is_fetching(follow) && !follow->is_done) {
            follow->repl->found.error = follow->error != 0 ? follow->error : -ECANCELED;
            follow->clear_cursor = 0;
        }
        if (follow->body != NULL) {
            fw_body_unref(follow->local->table, follow->body);
            follow->body = NULL;
        }
        if (follow->is_open) {
            fw_stream_close(&follow->stream);
        }
    }
    if (follow->is_open) {
        return fw_fom_wait(fom, fom->phase);
    }
    if (fom->phase == FOLLOW_CLOSE && follow->has_begun && !follow->is_done) {
        /* A part of the items is worse than none: nobody could tell which are missing. */
        fw_cache_local_set_time(follow->local, fw_fom_now(fom));
        if (!fw_table_clear(follow->local->table, &follow->clear_cursor, CLEAR_BUCKETS)) {
            return fw_fom_yield(fom, FOLLOW_CLOSE);
        }
    }
    if (fom->phase == FW_PHASE_FAILED || follow_must_end(follow) || follow_is_fetching(follow)) {
        return fw_fom_finish(fom);
    }
    follow->pause_ns = follow_patience(follow);
    follow->is_closing = false;
    follow->is_greeted = false;
    follow->is_smaller = false;
    follow->is_connected = false;
    follow->is_waiting = false;
    follow->is_sending = false;
    follow->has_greeted = false;
    follow->has_proven = false;
    follow->is_proven = false;
    follow->is_other = false;
    follow->has_answer = false;
    follow->error = 0;
    follow->skip = 0;
    follow->unsent.iov_len = 0;
    follow->input_begin = follow->input_end = 0;
    follow_set_state(follow, FW_REPL_FOLLOW_CONNECTING);
    follow->heard_ns = fw_fom_now(fom);
    return fw_fom_goto(fom, FOLLOW_PAUSE);
}

static enum fw_step follow_pause(struct fw_repl_follow *follow)
{
    struct fw_fom *fom = &follow->fom;
    int64_t deadline = follow->heard_ns + follow->pause_ns;
    if (follow_must_end(follow)) {
        return fw_fom_goto(fom, FOLLOW_CLOSE);
    }
    if (fw_fom_now(fom) < deadline && !atomic_load(&follow->repl->accepts)) {
        return fw_fom_wait_until(fom, FOLLOW_PAUSE, deadline);
    }
    return fw_fom_goto(fom, FOLLOW_CONNECT);
}

static void follow_finish(struct fw_fom *fom)
{
    struct fw_repl_follow *follow = follow_of_fom(fom);
    struct fw_repl *repl = follow->repl;
    follow_set_state(follow, FW_REPL_FOLLOW_NONE);
    repl->host.gone(repl->host.server);
}

/* ---- the type ------------------------------------------------------------------------------ */

static int follow_initialise(struct fw_fom *fom)
{
    struct fw_repl_follow *follow = follow_of_fom(fom);
    struct fw_repl *repl = follow->repl;
    follow->local = repl->host.local(repl->host.server, fw_fom_core(fom)->index);
    return 0;
}

static enum fw_step follow_tick(struct fw_fom *fom)
{
    struct fw_repl_follow *follow = follow_of_fom(fom);
    fw_fom_arm(fom, &follow->news, &follow->repl->news); /* For fw_repl_unfollow(). */
    switch (fom->phase) {
    case FOLLOW_CONNECT:
        return follow_connect(follow);
    case FOLLOW_GREET:
        return follow_greet(follow);
    case FOLLOW_CLEAR:
        return follow_clear(follow);
    case FOLLOW_APPLY:
        return follow_apply(follow);
    case FOLLOW_PAUSE:
        return follow_pause(follow);
    default:
        return follow_close(follow);
    }
}

static const struct fw_phase follow_phases[] = {
    {"CONNECT", FW_PHASE_BIT(FOLLOW_GREET) | FW_PHASE_BIT(FOLLOW_CLOSE), true},
    {"GREET", FW_PHASE_BIT(FOLLOW_CLEAR) | FW_PHASE_BIT(FOLLOW_APPLY) | FW_PHASE_BIT(FOLLOW_CLOSE),
     true},
    {"CLEAR", FW_PHASE_BIT(FOLLOW_APPLY) | FW_PHASE_BIT(FOLLOW_CLOSE), true},
    {"APPLY", FW_PHASE_BIT(FOLLOW_CLOSE), true},
    {"CLOSE", FW_PHASE_BIT(FOLLOW_PAUSE) | FW_PHASE_BIT(FW_PHASE_FINISHED), true},
    {"PAUSE", FW_PHASE_BIT(FOLLOW_CONNECT) | FW_PHASE_BIT(FOLLOW_CLOSE), true},
};

const struct fw_fom_type fw_repl_follow_type = {
    .name = "follower",
    .size = sizeof(struct fw_repl_follow),
    .phases = follow_phases,
    .phase_count = FW_ARRAY_LENGTH(follow_phases),
    .initialise = follow_initialise,
    .tick = follow_tick,
    .finish = follow_finish,
};
