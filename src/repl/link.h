/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A master's link to one slave: a fom that tells it of every change.
 *
 *     GREET ──► CONFIRM ──► STREAM ──► CLOSE
 *       └──────────┴────────────────────►
 *
 *   GREET    waits for the slave's HELLO; one that says nothing for GREETING_NS is another
 *            server's, and is admitted as such where that is allowed. Where there is a secret it
 *            has PROOF_NS more to prove that it knows it. Then it takes a place among the slaves;
 *            until then it may have to make way for others (greeters.h)
 *   CONFIRM  has entered the log; waits until every locality has passed a quiescent point
 *   STREAM   reads the log and the keys of the copy, looks each key up, sends what it finds
 *   CLOSE    leaves the log, ends the copy's job, closes the socket
 *
 * In STREAM a tick encodes some messages and yields; it sends when there is enough, or nothing more
 * to say. Some are few, so that clients do not wait long; but never fewer than the changes that
 * clients have made meanwhile. Each send ends with a mark, which the slave answers when it has
 * applied what stands before: one per batch, however many changes that has. Several may be under
 * way, so that a change is confirmed one round trip after it was sent, not after the round trip of
 * the batch before; when FW_REPL_LINK_MARKS are, the next batches have none until an answer comes.
 * An idle link has a mark every HEARTBEAT_NS, which says that the master is alive. When the log has
 * been read to its head it waits for news (fw_repl_nudge()); and now and then it tells what clients
 * have read (ages.h).
 *
 * While much changes it rests in between: what comes in a millisecond or two is then sent in one
 * call with one mark, where else each batch of each client would cost its own, and wake it up. It
 * does not where anybody has to wait for slaves, nor where the log could go round meanwhile.
 *
 * Its memory: the struct, and one reply of 64 KiB, which large values are not copied into.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/engine.h>

#include "cache/reply.h"
#include "io/reactor.h"
#include "repl/ages.h"
#include "repl/copy.h"
#include "repl/repl.h"
#include "repl/stream.h"

enum { FW_REPL_LINK_INPUT = 512, FW_REPL_LINK_MARKS = 16, FW_REPL_LINK_GROUP = 16 };

/* A mark under way. */
struct fw_repl_link_mark {
    uint32_t opaque;
    bool is_current; /* There was nothing behind it in the log. */
    bool is_whole;
    uint64_t position;
    int64_t ns; /* When it was sent. */
};

struct fw_repl_link {
    struct fw_fom fom;
    struct fw_repl *repl;
    struct fw_repl_greeter *greeter; /* Its place until it has a slot; NULL: it has left it. */
    struct fw_repl_slot *slot;       /* NULL: it is no slave yet. */
    struct fw_address peer;          /* If is_known. */
    struct fw_cache_local *local;    /* Of its core. */
    struct fw_stream stream;
    struct fw_clink news;
    struct fw_quiescence quiescence;
    struct fw_reply *reply;
    struct fw_repl_copy *copy;    /* NULL: none is under way. */
    struct fw_listener *listener; /* It came by. */
    int fd;                       /* Until the stream is open. */
    int error;                    /* Why it ends, for the log. */
    uint32_t piece;               /* Of the reply: the first that is not all sent. */
    uint32_t piece_count;         /* 0: nothing is being sent. */
    bool is_open;
    bool is_known; /* Who it is. */
    bool is_ours;
    bool is_challenged; /* It has to prove that it knows the secret. */
    bool is_waiting;    /* For the stream to be readable. */
    bool is_sending;    /* A send is under way. */
    bool is_asleep;     /* Counted among the sleepers. */
    bool is_in_log;     /* It has entered. */
    bool is_quiescing;  /* A request is under way. */
    bool is_closing;
    bool is_closed;
    bool is_fetched;     /* It was restarted, and wants what it had. */
    bool is_whole;       /* The slave has been told of every item. */
    bool is_whole_told;  /* And a mark has said so. */
    uint32_t mark_first; /* Of those under way, the oldest, by its number. */
    uint32_t mark_next;  /* The number of the next; none is under way: the same. */
    struct fw_repl_link_mark marks[FW_REPL_LINK_MARKS]; /* By their number. */
    uint64_t mark_position;                             /* Of the last, like the next. */
    int64_t mark_ns;
    bool is_echo_told; /* In a mark: any. */
    uint64_t echo;     /* What time it was at the slave when it last answered; 0: it has not. */
    int64_t begin_ns;  /* Of the greeting. */
    char nonce[FW_REPL_NONCE]; /* Of the challenge. */
    uint64_t hello_history;    /* What it said before it was challenged. */
    uint64_t hello_position;
    uint32_t knows;       /* What both sides know, of FW_REPL_KNOWS_... */
    uint64_t told_memory; /* What it was told of ours. */
    struct fw_repl_harvest harvest;
    uint64_t history;
    uint64_t position;      /* Where the log is read next. */
    uint64_t seen_head;     /* Where it ended when this link last told of something. */
    uint64_t rest_position; /* When it last began to rest, or might have. */
    int64_t rest_ns;        /* It rests until then. */
    uint32_t item_count;    /* Told and not yet counted. */
    uint32_t batch_next;
    uint32_t batch_end;
    uint32_t input_length;
    char input[FW_REPL_LINK_INPUT];
    char batch[FW_CHANGES_BATCH];
};

static inline void fw_repl_link_set_state(struct fw_repl_link *link, enum fw_repl_link_state state)
{
    /* Release, for the acquire of who looks. */
    atomic_store_explicit(&link->slot->state, state, memory_order_release);
}

static inline bool fw_repl_link_knows(const struct fw_repl_link *link, uint32_t what)
{
    return (link->knows & what) != 0;
}

/* Is there room in the reply for any message? */
static inline bool fw_repl_link_has_room(const struct fw_repl_link *link)
{
    return fw_reply_room(link->reply, FW_REPLY_ROOM_MIN) != NULL &&
           fw_reply_has_pieces(link->reply);
}

/* In link_tell.c; there is room. What the server is, if the slave wants to know. */
void fw_repl_link_tell_about(struct fw_repl_link *link);

/* Is a flush to come? Told again whenever that may have changed. */
void fw_repl_link_tell_later(struct fw_repl_link *link);

/* Of the next changes of the batch, which is not empty, while there is room. How many; -EPROTO. */
FW_MUST_CHECK int fw_repl_link_tell_changes(struct fw_repl_link *link);

/* Of the next keys of the copy, if there are some now and while there is room. Returns how many. */
uint32_t fw_repl_link_tell_copied(struct fw_repl_link *link);
