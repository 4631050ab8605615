/* SPDX-License-Identifier: Apache-2.0 */
#include "repl/link.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "engine/core.h"
#include "io/clock.h"

FW_LOG_MODULE_USE(repl);

/*
 * A tick is short, since a core that has nothing else to do makes sixteen of them before it looks
 * at its sockets: one group of the copy's keys, and so many bytes of the log. To those come as many
 * as clients have made since the last tick, or it would never catch up; that was their time. But no
 * more than a thousand changes, should it have waited for its slave.
 */
enum { COPIED_MAX = FW_REPL_LINK_GROUP, CHANGED_BYTES = 512, MADE_BYTES_MAX = 32 * 1024 };
enum { SEND_ENOUGH = FW_REPLY_SIZE / 2 };

/* A link that has read so much of the log since it last slept rests before it reads on. */
enum { BUSY_BYTES = 256, REST_SHARE = 16 };

#define REST_NS      (INT64_C(1) * FW_NS_PER_MS)
#define HEARTBEAT_NS (INT64_C(50) * FW_NS_PER_MS)
#define GREETING_NS  (INT64_C(1) * FW_NS_PER_S)
#define PROOF_NS     (INT64_C(3) * FW_NS_PER_S)
#define COPY_LOOK_NS (INT64_C(1) * FW_NS_PER_MS)

enum {
    LINK_GREET = FW_PHASE_FIRST,
    LINK_CONFIRM,
    LINK_STREAM,
    LINK_CLOSE,
};

static struct fw_repl_link *link_of_fom(struct fw_fom *fom)
{
    return FW_FOM_OF(fom, struct fw_repl_link);
}

static struct fw_repl_link *link_of(struct fw_stream *stream)
{
    return FW_CONTAINER_OF(stream, struct fw_repl_link, stream);
}

/* Goes to CLOSE, for this reason. */
static enum fw_step link_end(struct fw_repl_link *link, int error)
{
    link->error = error;
    return fw_fom_goto(&link->fom, LINK_CLOSE);
}

/* ---- the stream's events ------------------------------------------------------------------- */

static void link_readable(struct fw_stream *stream)
{
    link_of(stream)->is_waiting = false;
    fw_fom_wake(&link_of(stream)->fom);
}

static void link_closed(struct fw_stream *stream)
{
    link_of(stream)->is_closed = true;
    fw_fom_wake(&link_of(stream)->fom);
}

/* Takes note of what a send has answered. 0 or a negative errno. */
static int link_note_sent(struct fw_repl_link *link, ssize_t result)
{
    if (result < 0) {
        return (int)result;
    }
    fw_repl_count(&link->repl->metrics.bytes_sent, (uint64_t)result);
    if (link->slot != NULL) {
        /* Relaxed: a figure, and this link's alone to write. */
        atomic_fetch_add_explicit(&link->slot->bytes_sent, (uint64_t)result, memory_order_relaxed);
    }
    size_t left = (size_t)result;
    while (left > 0) {
        struct iovec *piece = &link->reply->pieces[link->piece];
        size_t part = left < piece->iov_len ? left : piece->iov_len;
        piece->iov_base = (char *)piece->iov_base + part;
        piece->iov_len -= part;
        left -= part;
        link->piece += piece->iov_len == 0;
    }
    return 0;
}

static void link_sent(struct fw_stream *stream, ssize_t result)
{
    struct fw_repl_link *link = link_of(stream);
    link->is_sending = false;
    int rc = link_note_sent(link, result);
    link->error = rc != 0 ? rc : link->error;
    fw_fom_wake(&link->fom);
}

static const struct fw_stream_events link_events = {
    .readable = link_readable, .sent = link_sent, .closed = link_closed};

/* Sends the reply as far as the socket takes it. True: it is sent, or an error is noted. */
static bool link_send(struct fw_repl_link *link)
{
    if (link->piece_count == 0) {
        link->piece = 0;
        link->piece_count = fw_reply_finish(link->reply);
        fw_repl_count(&link->repl->metrics.items_sent, link->item_count);
        link->item_count = 0;
    }
    while (link->piece < link->piece_count && link->error == 0) {
        ssize_t result = fw_stream_send(&link->stream, link->reply->pieces + link->piece,
                                        (int)(link->piece_count - link->piece));
        if (result == -EINPROGRESS) {
            link->is_sending = true;
            return false;
        }
        link->error = link_note_sent(link, result);
    }
    if (link->error == 0) {
        link->piece_count = 0;
        fw_reply_clear(link->reply);
    }
    return true;
}

/* ---- what the slave says ------------------------------------------------------------------- */

/* The slave has all before the position, and a whole copy: that is what others may count on. */
static void link_vouch(struct fw_repl_link *link, uint64_t position)
{
    if (position + 1 == atomic_load_explicit(&link->slot->whole, memory_order_relaxed)) {
        return; /* Nothing new: only this link writes it, and has told everyone. */
    }
    FW_YIELD_POINT("link: a slave has confirmed");
    /* Release, for the acquire in fw_repl_is_confirmed(). */
    atomic_store_explicit(&link->slot->whole, position + 1, memory_order_release);
    link->repl->host.confirmed(link->repl->host.server);
}

/* A mark was answered: also those before it, should a slave answer only the last of several. */
static void link_confirm(struct fw_repl_link *link, const struct fw_repl_message *answer)
{
    uint32_t number = link->mark_first;
    while (number != link->mark_next &&
           link->marks[number % FW_REPL_LINK_MARKS].opaque != answer->opaque) {
        number++;
    }
    if (number == link->mark_next) {
        return; /* An answer to something else. */
    }
    const struct fw_repl_link_mark *mark = &link->marks[number % FW_REPL_LINK_MARKS];
    struct fw_repl_slot *slot = link->slot;
    link->mark_first = number + 1;
    link->echo = answer->cas;
    /* Relaxed: figures. */
    if (mark->is_current) {
        atomic_store_explicit(&slot->current_ns, mark->ns, memory_order_relaxed);
    }
    atomic_store_explicit(&slot->confirmed, mark->position, memory_order_relaxed);
    atomic_store_explicit(&slot->is_partial, answer->status != 0, memory_order_relaxed);
    if (mark->is_whole && answer->status == 0) {
        link_vouch(link, mark->position);
    }
}

/* Others say every second that they live: those of yrmcds by a zero byte, which begins no message.
 */
static void input_skip_beats(struct fw_repl_link *link)
{
    uint32_t count = 0;
    if (link->is_ours || !link->repl->config.admits_others) {
        return;
    }
    while (count < link->input_length && link->input[count] == '\0') {
        count++;
    }
    link->input_length -= count;
    memmove(link->input, link->input + count, link->input_length);
}

/* What came first of what is there, if it is whole. */
static enum fw_repl_decoded input_take(struct fw_repl_link *link, struct fw_repl_message *message)
{
    input_skip_beats(link);
    enum fw_repl_decoded decoded = fw_repl_decode(link->input, link->input_length, message);
    if (decoded == FW_REPL_MORE && message->size > sizeof link->input) {
        return FW_REPL_DAMAGED;
    }
    if (decoded == FW_REPL_MESSAGE) {
        if (message->is_large) {
            return FW_REPL_DAMAGED;
        }
        link->input_length -= (uint32_t)message->size;
        memmove(link->input, link->input + message->size, link->input_length);
    }
    return decoded;
}

/* Receives what has come. 0, -EAGAIN: nothing more now, or why the link ends. */
static int link_receive(struct fw_repl_link *link)
{
    if (link->is_waiting) {
        return -EAGAIN;
    }
    ssize_t received = fw_stream_receive_now(&link->stream, link->input + link->input_length,
                                             sizeof link->input - link->input_length);
    if (received == -EAGAIN) {
        link->is_waiting = true;
        fw_stream_wait(&link->stream);
        return -EAGAIN;
    }
    if (received <= 0) {
        return received == 0 ? -ECONNRESET : (int)received;
    }
    link->input_length += (uint32_t)received;
    return 0;
}

/* Takes the answers to marks that have come; others are skipped. 0 or why the link ends. */
static int link_hear(struct fw_repl_link *link)
{
    int rc = 0;
    while (rc == 0) {
        rc = link_receive(link);
        struct fw_repl_message message;
        enum fw_repl_decoded decoded = FW_REPL_MESSAGE;
        while (rc == 0 && decoded == FW_REPL_MESSAGE) {
            decoded = input_take(link, &message);
            if (decoded == FW_REPL_DAMAGED) {
                return -EPROTO;
            }
            if (decoded == FW_REPL_MESSAGE && message.is_answer && message.opcode == FW_REPL_NOOP) {
                link_confirm(link, &message);
            }
        }
    }
    return rc == -EAGAIN ? 0 : rc;
}

/* ---- greeting ------------------------------------------------------------------------------ */

/* Only a master has slaves; but who was restarted may fetch from a slave what it had. */
static bool link_may_go_on(const struct fw_repl_link *link)
{
    /* Acquire, for the release of who changes the role. */
    return atomic_load_explicit(&link->repl->is_master, memory_order_acquire) ||
           (link->is_fetched && fw_repl_can_be_fetched(link->repl));
}

/* It is a slave: takes a place among them. 0 or why the link ends. */
static int link_take_slot(struct fw_repl_link *link)
{
    struct fw_repl_slot *slot = fw_repl_slot_take(link->repl);
    if (slot == NULL) {
        return -EUSERS;
    }
    slot->peer = link->peer;
    link->slot = slot;
    fw_repl_greeter_leave(link->greeter);
    link->greeter = NULL;
    return 0;
}

/* What it wants to know of the table beside what clients do. */
static uint32_t link_wants(const struct fw_repl_link *link)
{
    if (!link->is_ours) {
        return FW_CHANGES_RECLAIMED;
    }
    return fw_repl_link_knows(link, FW_REPL_KNOWS_EXPIRY) ? FW_CHANGES_EXPIRED : 0;
}

/* Refuses a peer. One that wants to fetch learns that there is no complete copy here. */
static enum fw_step link_refuse(struct fw_repl_link *link)
{
    if (link->is_fetched && !fw_repl_has_copy(link->repl)) {
        const struct fw_repl_greeting greeting = {.start = FW_REPL_NOTHING, .knows = link->knows};
        fw_repl_put_hello_answer(link->reply, &greeting);
    }
    (void)link_send(link); /* With our proof, so that the peer does not blame its secret. */
    return link_end(link, -ESHUTDOWN);
}

/* Enters the log, where the slave can go on if it knows the place. */
static enum fw_step link_enter(struct fw_repl_link *link, uint64_t history, uint64_t position)
{
    struct fw_repl *repl = link->repl;
    bool can_go_on;
    if (!link_may_go_on(link)) {
        return link_refuse(link);
    }
    int rc = link_take_slot(link);
    if (rc != 0) {
        (void)link_send(link); /* As above. */
        return link_end(link, rc);
    }
    rc = fw_changes_enter(repl->changes, repl->config.backlog, link_wants(link), &history,
                          &position, &can_go_on);
    if (rc != 0) {
        return link_end(link, rc);
    }
    link->is_in_log = true;
    link->history = history;
    link->position = position;
    link->mark_position = position;
    link->rest_position = position;
    link->seen_head = fw_changes_head(repl->changes);
    link->is_whole = can_go_on;
    fw_repl_count(can_go_on ? &repl->metrics.resumes : &repl->metrics.copies, 1);
    /* Relaxed: figures. */
    atomic_store_explicit(&link->slot->is_ours, link->is_ours, memory_order_relaxed);
    atomic_store_explicit(&link->slot->sent, position, memory_order_relaxed);
    atomic_store_explicit(&link->slot->confirmed, can_go_on ? position : 0, memory_order_relaxed);
    if (can_go_on) {
        link_vouch(link, position);
    }
    if (link->is_ours) {
        const struct fw_repl_greeting greeting = {
            .history = history,
            .position = position,
            .start = can_go_on ? FW_REPL_GO_ON : FW_REPL_COPY,
            .knows = link->knows,
        };
        fw_repl_put_hello_answer(link->reply, &greeting);
        fw_cache_local_set_time(link->local, fw_fom_now(&link->fom));
        fw_repl_link_tell_about(link);
        fw_repl_link_tell_later(link);
    }
    fw_repl_link_set_state(link, FW_REPL_LINK_CONFIRMING);
    return fw_fom_goto(&link->fom, LINK_CONFIRM);
}

static void reply_put_proof(struct fw_repl_link *link, enum fw_repl_opcode opcode,
                            const char *value, size_t length)
{
    struct fw_reply *reply = link->reply;
    fw_reply_advance(reply,
                     reply->next + fw_repl_put_proof(reply->next, opcode, true, value, length));
}

/* The slave has said HELLO, and has to prove that it knows the secret. 0 or why the link ends. */
static int link_challenge(struct fw_repl_link *link, const struct fw_repl_message *hello)
{
    int rc = fw_repl_nonce(link->nonce);
    if (rc == 0) {
        link->is_challenged = true;
        link->hello_history = hello->history;
        link->hello_position = hello->position;
        reply_put_proof(link, FW_REPL_CHALLENGE, link->nonce, sizeof link->nonce);
        (void)link_send(link);
    }
    return rc;
}

/* Did it? If so, it is told the master's own proof. 0 or why the link ends. */
static int link_judge(struct fw_repl_link *link, const struct fw_repl_message *proof)
{
    const struct fw_repl_secret *secret = &link->repl->secret;
    char mac[FW_HMAC_SIZE];
    if (!fw_repl_is_proven(secret, FW_REPL_SLAVE_PROVES, link->nonce, proof->value,
                           proof->value + FW_REPL_NONCE)) {
        return -EKEYREJECTED;
    }
    int rc = fw_repl_prove(secret, FW_REPL_MASTER_PROVES, link->nonce, proof->value, mac);
    if (rc == 0) {
        reply_put_proof(link, FW_REPL_PROOF, mac, sizeof mac);
    }
    return rc;
}

/* One message of the greeting. */
static enum fw_step link_greeted(struct fw_repl_link *link, const struct fw_repl_message *message)
{
    struct fw_fom *fom = &link->fom;
    bool has_secret = link->repl->secret.length > 0;
    int rc = -EPROTO;
    if (message->is_answer) {
        return link_end(link, rc);
    }
    if (message->opcode == FW_REPL_HELLO && message->version == FW_REPL_VERSION &&
        !link->is_challenged) {
        link->is_ours = true;
        link->is_fetched = message->start == FW_REPL_FETCH;
        link->knows = message->knows & (uint32_t)FW_REPL_KNOWS_ALL;
        if (!has_secret) {
            return link_enter(link, message->history, message->position);
        }
        rc = link_challenge(link, message);
        if (rc == 0) {
            return fw_fom_goto(fom, LINK_GREET);
        }
    } else if (message->opcode == FW_REPL_PROOF && link->is_challenged) {
        rc = link_judge(link, message);
        if (rc == 0) {
            return link_enter(link, link->hello_history, link->hello_position);
        }
    }
    return link_end(link, rc);
}

static enum fw_step link_greet(struct fw_repl_link *link)
{
    struct fw_fom *fom = &link->fom;
    struct fw_repl_message message;
    const struct fw_repl *repl = link->repl;
    if (link->begin_ns == 0) {
        link->begin_ns = fw_fom_now(fom);
        fw_repl_greeter_settle(link->greeter, &link->peer, fw_fom_ticket(fom));
    }
    if (fw_repl_greeter_must_go(link->greeter)) {
        return link_end(link, -ECONNABORTED);
    }
    if (link->is_sending || (link->piece_count > 0 && !link_send(link))) {
        return fw_fom_wait(fom, LINK_GREET); /* The challenge is on its way. */
    }
    int rc = link->error;
    while (rc == 0) {
        enum fw_repl_decoded decoded = input_take(link, &message);
        if (decoded == FW_REPL_MESSAGE) {
            return link_greeted(link, &message);
        }
        rc = decoded == FW_REPL_MORE ? link_receive(link) : -EPROTO;
    }
    if (rc != -EAGAIN) {
        return link_end(link, rc);
    }
    int64_t deadline = link->begin_ns + GREETING_NS + (link->is_challenged ? PROOF_NS : 0);
    if (fw_fom_now(fom) < deadline) {
        return fw_fom_wait_until(fom, LINK_GREET, deadline);
    }
    if (!repl->config.admits_others || link->input_length > 0 || repl->secret.length > 0) {
        return link_end(link, -ETIMEDOUT);
    }
    return link_enter(link, 0, 0);
}

/* ---- confirming ---------------------------------------------------------------------------- */

static enum fw_step link_confirming(struct fw_repl_link *link)
{
    struct fw_fom *fom = &link->fom;
    link->is_quiescing = true;
    if (!fw_domain_quiesce(fw_fom_domain(fom), fom, &link->quiescence)) {
        return fw_fom_wait(fom, LINK_CONFIRM);
    }
    link->is_quiescing = false;
    fw_cache_local_set_time(link->local, fw_fom_now(fom));
    fw_repl_harvest_begin(&link->harvest, link->local, fw_fom_now(fom), !link->is_whole);
    if (!link->is_whole) {
        int rc = fw_repl_copy_create(&link->copy, link->repl->host.cache, link->repl->host.jobs,
                                     fw_fom_ticket(fom));
        if (rc != 0) {
            return link_end(link, rc);
        }
    }
    fw_repl_link_set_state(link, link->is_whole ? FW_REPL_LINK_STREAMING : FW_REPL_LINK_COPYING);
    return fw_fom_goto(fom, LINK_STREAM);
}

/* ---- the stream ---------------------------------------------------------------------------- */

/* Up to where the slave has been told of all changes. */
static uint64_t link_told(const struct fw_repl_link *link)
{
    return link->position - (link->batch_end - link->batch_next);
}

/* Behind what is sent: a mark, if there is something new to say. There is room for it. */
static void link_mark(struct fw_repl_link *link)
{
    int64_t now = fw_fom_now(&link->fom);
    uint64_t told = link_told(link);
    if (!link->is_ours) {
        return; /* It would not understand one. */
    }
    if (link->told_memory != fw_table_memory(link->repl->host.cache->table)) {
        fw_repl_link_tell_about(link);
    }
    bool is_first_echo = link->echo != 0 && !link->is_echo_told; /* Else its copy seems old. */
    bool is_news =
        told != link->mark_position || link->is_whole != link->is_whole_told || is_first_echo;
    uint32_t under_way = link->mark_next - link->mark_first;
    if (under_way == FW_REPL_LINK_MARKS ||
        (!is_news && (under_way > 0 || now - link->mark_ns < HEARTBEAT_NS))) {
        return;
    }
    struct fw_repl_link_mark *mark = &link->marks[link->mark_next % FW_REPL_LINK_MARKS];
    bool is_current = told >= link->seen_head; /* All that was there when this tick began. */
    *mark = (struct fw_repl_link_mark){.opaque = (link->mark_next & FW_REPL_MARK_COUNT) |
                                                 (is_current ? FW_REPL_MARK_CURRENT : 0) |
                                                 (link->is_whole ? FW_REPL_MARK_WHOLE : 0),
                                       .is_current = is_current,
                                       .is_whole = link->is_whole,
                                       .position = told,
                                       .ns = now};
    link->mark_next++;
    link->mark_position = told;
    link->mark_ns = now;
    link->is_whole_told = link->is_whole;
    link->is_echo_told = link->echo != 0;
    const struct fw_repl_mark message = {
        .opaque = mark->opaque,
        .position = told,
        .number = fw_table_number(link->repl->host.cache->table),
        .has_echo = fw_repl_link_knows(link, FW_REPL_KNOWS_ECHO),
        .echo = link->echo, /* It came before this tick looked where the log ends. */
    };
    fw_repl_put_mark(link->reply, &message);
}

/* Reads on in the log, when the batch is used up. 0, or why the link ends. */
static int link_read(struct fw_repl_link *link)
{
    int length = fw_changes_read(link->repl->changes, &link->position, link->batch);
    link->batch_next = 0;
    link->batch_end = length > 0 ? (uint32_t)length : 0;
    /* Relaxed: a figure. */
    atomic_store_explicit(&link->slot->sent, link->position, memory_order_relaxed);
    return length < 0 ? length : 0;
}

/* What a tick may tell of. */
struct tick {
    uint64_t until;  /* Of the log. */
    uint32_t copied; /* Keys, so far. */
};

static struct tick tick_begin(struct fw_repl_link *link)
{
    uint64_t head = fw_changes_head(link->repl->changes);
    uint64_t made = head - link->seen_head;
    link->seen_head = head;
    return (struct tick){.until = link_told(link) + CHANGED_BYTES +
                                  (made < MADE_BYTES_MAX ? made : MADE_BYTES_MAX)};
}

static bool is_within(const struct fw_repl_link *link, const struct tick *tick)
{
    return link_told(link) < tick->until && tick->copied < COPIED_MAX;
}

/*
 * Encodes messages while there is room and the tick has some left: changes and copied keys by
 * turns. 1: there may be more to say at once; 0: there is not; or why the link ends.
 */
static int link_fill(struct fw_repl_link *link, struct tick *tick)
{
    while (fw_repl_link_has_room(link) && is_within(link, tick)) {
        int changed = 0;
        if (link->batch_next == link->batch_end) {
            changed = link_read(link);
        }
        if (changed == 0 && link->batch_next < link->batch_end) {
            changed = fw_repl_link_tell_changes(link);
        }
        if (changed < 0) {
            return changed;
        }
        uint32_t copied = fw_repl_link_tell_copied(link);
        if (changed == 0 && copied == 0) {
            return 0;
        }
        tick->copied += copied;
    }
    return 1;
}

/* Is what clients read told, and could it be now? */
static bool link_harvests(const struct fw_repl_link *link)
{
    return link->is_whole && fw_repl_link_knows(link, FW_REPL_KNOWS_AGES) && !link->is_sending &&
           link->piece_count == 0;
}

/* Nothing to say, or nobody listens: until something happens, and a heartbeat at the latest. */
static enum fw_step link_wait(struct fw_repl_link *link)
{
    struct fw_fom *fom = &link->fom;
    struct fw_repl *repl = link->repl;
    fw_fom_arm(fom, &link->news, &repl->news);
    if (!link->is_sending) {
        /* Armed first, looked then; who changes something does so first and looks for us then. */
        link->is_asleep = true;
        atomic_fetch_add(&repl->sleeper_count, 1);
        FW_YIELD_POINT("link: is about to sleep");
        atomic_thread_fence(memory_order_seq_cst);
        if (fw_changes_head(repl->changes) != link->position) {
            return fw_fom_goto(fom, LINK_STREAM);
        }
    }
    int64_t until_ns = fw_fom_now(fom) + HEARTBEAT_NS;
    if (link_harvests(link) && link->harvest.due_ns < until_ns) {
        until_ns = link->harvest.due_ns;
    }
    return fw_fom_wait_until(fom, LINK_STREAM, until_ns);
}

/* Why the link has to end, or 0. */
static int link_check(const struct fw_repl_link *link)
{
    const struct fw_repl *repl = link->repl;
    if (link->error != 0) {
        return link->error;
    }
    if (!link_may_go_on(link)) {
        return -ESHUTDOWN;
    }
    if (fw_changes_has_lost(repl->changes, link->position)) {
        return -EOVERFLOW; /* What follows what it has read is gone. */
    }
    const struct fw_repl_link_mark *oldest = &link->marks[link->mark_first % FW_REPL_LINK_MARKS];
    if (link->mark_first != link->mark_next &&
        fw_fom_now(&link->fom) - oldest->ns > repl->config.timeout_ns) {
        return -ETIMEDOUT;
    }
    return 0;
}

/* All is told: rests, if it may, or waits for news. */
static enum fw_step link_pause(struct fw_repl_link *link)
{
    const struct fw_repl *repl = link->repl;
    uint64_t told = link->position - link->rest_position;
    link->rest_position = link->position;
    /* Relaxed: who waits for slaves for the first time may wait for the end of a rest. */
    if (told < BUSY_BYTES || told > repl->config.backlog / REST_SHARE ||
        atomic_load_explicit(&repl->is_urgent, memory_order_relaxed)) {
        return link_wait(link);
    }
    link->rest_ns = fw_fom_now(&link->fom) + REST_NS;
    return fw_fom_wait_until(&link->fom, LINK_STREAM, link->rest_ns);
}

/* Fills and sends, as much as a tick may. As link_fill(); -EINPROGRESS: the socket is full. */
static int link_talk(struct fw_repl_link *link)
{
    struct tick tick = tick_begin(link);
    int more = 1;
    while (more > 0 && is_within(link, &tick) && link->error == 0) {
        if (link->piece_count == 0) {
            more = link_fill(link, &tick);
            if (more < 0) {
                return more;
            }
            if (more > 0 && fw_repl_link_has_room(link) &&
                fw_reply_length(link->reply) < SEND_ENOUGH) {
                break; /* The next tick adds to it. */
            }
            link_mark(link);
        }
        if (!fw_reply_is_empty(link->reply) && !link_send(link)) {
            return -EINPROGRESS;
        }
    }
    return link->error != 0 ? link->error : more;
}

static enum fw_step link_stream(struct fw_repl_link *link)
{
    struct fw_fom *fom = &link->fom;
    fw_cache_local_set_time(link->local, fw_fom_now(fom));
    int rc = link_check(link);
    rc = rc == 0 ? link_hear(link) : rc;
    if (rc != 0) {
        return link_end(link, rc);
    }
    if (link->is_sending) {
        return link_wait(link);
    }
    if (fw_fom_now(fom) < link->rest_ns) {
        return fw_fom_wait_until(fom, LINK_STREAM, link->rest_ns);
    }
    bool has_ages = link_harvests(link) && fw_repl_link_has_room(link) &&
                    fw_repl_harvest_go_on(&link->harvest, link->local, link->reply, fw_fom_now(fom),
                                          link->slot->bytes_sent);
    int more = link_talk(link);
    if (more == -EINPROGRESS) {
        return link_wait(link);
    }
    if (more < 0) {
        return link_end(link, more);
    }
    return more > 0 || has_ages ? fw_fom_yield(fom, LINK_STREAM) : link_pause(link);
}

/* ---- the end ------------------------------------------------------------------------------- */

static void link_say_why(const struct fw_repl_link *link)
{
    char peer[FW_ADDRESS_TEXT_SIZE];
    struct fw_metrics_repl *metrics = &link->repl->metrics;
    if (!link->is_known) {
        FW_LOG(repl, NOTICE, "a link ended before it began: %s", strerrordesc_np(-link->error));
        return;
    }
    fw_address_format(&link->peer, peer);
    switch (link->error) {
    case -EOVERFLOW:
        fw_repl_count(&metrics->drops, 1);
        FW_LOG(repl, WARNING,
               "dropped the slave %s: it was too slow, and changes were forgotten that it had not "
               "heard of; a larger --repl-backlog remembers more",
               peer);
        break;
    case -ETIMEDOUT:
        fw_repl_count(&metrics->silent, 1);
        FW_LOG(repl, NOTICE, "ended the link to %s: it %s", peer,
               link->slot != NULL    ? "does not answer"
               : link->is_challenged ? "did not prove in time that it knows the secret"
                                     : "did not greet in time");
        break;
    case -EUSERS:
        fw_repl_count(&metrics->refused, 1);
        FW_LOG(repl, NOTICE, "refused the slave %s: there are as many as --repl-slaves says", peer);
        break;
    case -ECONNABORTED:
        fw_repl_count(&metrics->refused, 1);
        FW_LOG(repl, NOTICE, "refused %s: it proved nothing, and too many others wait", peer);
        break;
    case -EPROTO:
        fw_repl_count(&metrics->damaged, 1);
        FW_LOG(repl, WARNING, "ended the link to %s: what it says is no replication", peer);
        break;
    case -EACCES:
        fw_repl_count(&metrics->refused, 1);
        FW_LOG(repl, WARNING, "refused %s as a slave: --repl-admit does not name it", peer);
        break;
    case -EKEYREJECTED:
        fw_repl_count(&metrics->refused, 1);
        fw_repl_count(&metrics->unproven, 1);
        FW_LOG(repl, WARNING,
               "refused %s as a slave: it does not know the secret of --repl-secret-file", peer);
        break;
    case -ESHUTDOWN:
        fw_repl_count(&metrics->refused, link->slot == NULL ? 1 : 0);
        FW_LOG(repl, NOTICE, "%s %s: this server %s", link->slot == NULL ? "refused" : "left", peer,
               link->slot == NULL ? "is no master" : "ends, or is no longer master");
        break;
    default:
        FW_LOG(repl, NOTICE, "the link to the slave %s has ended: %s", peer,
               strerrordesc_np(-link->error));
    }
}

static void link_let_go(struct fw_repl_link *link)
{
    struct fw_repl *repl = link->repl;
    link->is_closing = true;
    if (link->slot != NULL) {
        /* Release, as all stores to it: nobody is vouched for any more. */
        atomic_store_explicit(&link->slot->whole, 0, memory_order_release);
    }
    link_say_why(link);
    if (link->is_quiescing) {
        fw_quiescence_cancel(fw_fom_domain(&link->fom), &link->quiescence);
    }
    if (link->is_in_log) {
        fw_changes_leave(repl->changes, link_wants(link), link->position);
    }
    if (link->is_open) {
        fw_stream_close(&link->stream);
    } else {
        struct iovec nothing = {.iov_base = NULL, .iov_len = 0};
        fw_listener_refuse(link->listener, link->fd, &nothing);
        link->is_closed = true;
    }
}

/* In CLOSE and in FAILED. */
static enum fw_step link_close(struct fw_repl_link *link)
{
    struct fw_fom *fom = &link->fom;
    if (!link->is_closing) {
        link->error = link->error != 0 ? link->error : -ESHUTDOWN;
        link_let_go(link);
    }
    if (link->copy != NULL && !fw_repl_copy_end(link->copy)) {
        /* It looks again, since a fom that was failed is not to be woken by tickets any more. */
        return fw_fom_wait_until(fom, fom->phase, fw_fom_now(fom) + COPY_LOOK_NS);
    }
    if (!link->is_closed) {
        return fw_fom_wait(fom, fom->phase);
    }
    return fw_fom_finish(fom);
}

static void link_finish(struct fw_fom *fom)
{
    struct fw_repl_link *link = link_of_fom(fom);
    struct fw_repl *repl = link->repl;
    if (link->copy != NULL) {
        fw_repl_copy_destroy(link->copy);
    }
    if (link->reply != NULL) {
        fw_reply_clear(link->reply);
        free(link->reply);
    }
    if (link->greeter != NULL) {
        fw_repl_greeter_leave(link->greeter);
    }
    if (link->slot != NULL) {
        fw_repl_link_set_state(link, FW_REPL_LINK_NONE);
    }
    if (repl != NULL) {
        atomic_fetch_sub(&repl->link_count, 1);
        repl->host.gone(repl->host.server);
    }
}

/* ---- the type ------------------------------------------------------------------------------ */

static int link_initialise(struct fw_fom *fom)
{
    struct fw_repl_link *link = link_of_fom(fom);
    struct fw_core *core = fw_fom_core(fom);
    link->local = link->repl->host.local(link->repl->host.server, core->index);
    link->reply = malloc(sizeof *link->reply);
    if (link->reply == NULL) {
        return -ENOMEM;
    }
    fw_reply_init(link->reply, link->local->table);
    int rc = fw_stream_open(&link->stream, core->reactor, link->fd, &link_events);
    link->is_open = rc == 0;
    if (rc == 0) {
        rc = fw_stream_peer(&link->stream, &link->peer); /* Fails if it has hung up already. */
        link->is_known = rc == 0;
    }
    if (rc == 0 && !fw_repl_is_admitted(link->repl, &link->peer)) {
        rc = -EACCES;
    }
    link->error = rc;
    return rc;
}

static enum fw_step link_tick(struct fw_fom *fom)
{
    struct fw_repl_link *link = link_of_fom(fom);
    if (link->is_asleep) {
        link->is_asleep = false;
        atomic_fetch_sub(&link->repl->sleeper_count, 1);
    }
    switch (fom->phase) {
    case LINK_GREET:
        return link_greet(link);
    case LINK_CONFIRM:
        return link_confirming(link);
    case LINK_STREAM:
        return link_stream(link);
    default:
        return link_close(link);
    }
}

static const struct fw_phase link_phases[] = {
    {"GREET", FW_PHASE_BIT(LINK_GREET) | FW_PHASE_BIT(LINK_CONFIRM) | FW_PHASE_BIT(LINK_CLOSE),
     true},
    {"CONFIRM", FW_PHASE_BIT(LINK_STREAM) | FW_PHASE_BIT(LINK_CLOSE), true},
    {"STREAM", FW_PHASE_BIT(LINK_CLOSE), true},
    {"CLOSE", FW_PHASE_BIT(FW_PHASE_FINISHED), true},
};

const struct fw_fom_type fw_repl_link_type = {
    .name = "link",
    .size = sizeof(struct fw_repl_link),
    .phases = link_phases,
    .phase_count = FW_ARRAY_LENGTH(link_phases),
    .initialise = link_initialise,
    .tick = link_tick,
    .finish = link_finish,
};
