/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream from a master to its slaves: what it looks like, and how one item is put into it.
 *
 * It is the binary protocol of memcached, requests only, so that other memcached-compatible servers
 * can be slaves. What there is:
 *
 *     SetQ      the item as it is now: flags, expiry time, value
 *     DeleteQ   there is no such item
 *     Touch     only its expiry time has changed
 *     FlushQ    everything that was there is gone
 *     Noop      a mark: the slave has everything up to this position
 *
 * A slave that has said that it is ours is told more, in places where others would take offence:
 *
 *     SetQ      CAS: the item's. To anyone else that would be a comparison, so they get 0. Behind
 *               flags and expiry time stands the item's number, if its CAS is another.
 *     SetQ, Touch   opaque: the item's bits that clients can see (FW_REPL_BITS); and, with
 *               FW_REPL_AGED, its age and whether it was read.
 *     FlushQ    CAS: items with a lower number are gone. Others get no FlushQ: they are told of
 *               each item that was flushed, when it is found, since one that was stored right
 *               after the flush may already be theirs.
 *     Later     a flush is to come in so many seconds (extras), or none is (0). It comes with a
 *               FlushQ, on the master's word; a slave only remembers it, should it become master.
 *     Evicted   items that the master has dropped for want of memory: changes as in the log
 *               (cache/changes.h), one after the other. They say which number an item had, so what
 *               was written since stays, and from which queue it was dropped.
 *     Read      keys that were read not long ago, each behind its length; and how much older all
 *               others have become meanwhile (extras): ages.h.
 *     About     what the master is: its memory, how many items it has, where these began,
 *               from where in which history it went on, its next number, and which server it is.
 *               Numbers of 64 bits; a later release may add some. It stands behind the answer to
 *               HELLO, and again when the memory has changed.
 *     Noop      CAS: the position in the master's log of changes (cache/changes.h). Extras: the
 *               next number, of which the slave must know should it become master. Others get no
 *               marks: yrmcds' take a Noop for an error and answer none.
 *
 * How old a copy is must not depend on how long a mark was under way, nor on what time it is at the
 * master. So an answer to a mark says, as its CAS, what time it is at the slave, and every later
 * mark brings the last such time back, behind the number (FW_REPL_KNOWS_ECHO): if the mark is
 * current, the slave had all that its master had at that time of its own clock.
 *
 * The opaque of a mark comes back in the answer. Its two highest bits say whether
 * the slave has all there is at this moment, and whether it has been told of every item once; the
 * rest counts. A slave that could not keep all that it was told answers with a status that is not
 * 0, and does not count as one that has confirmed anything.
 *
 * Expiry times are dates (FW_REPL_KNOWS_DATES), so an item lives no longer at the slave, however
 * long it was under way. About says what time it is at the master; a slave that can be sure that
 * its own clock is another corrects dates by as much (fw_repl_clock_ahead()). To others times up to
 * 30 days are relative, as clients give them: an item lives longer there by what it takes to get
 * there.
 *
 * Before the stream the two greet each other:
 *
 *     slave:    HELLO          extras: version, what it knows, history and position that it has
 *                              (0: none)
 *     master:   HELLO answer   extras: version, what follows and what both know, history, position
 *
 * What it knows are bits (FW_REPL_KNOWS_...), in the upper byte of 16 bits of which releases before
 * them wrote and read zeros. So a fleet is upgraded one by one, in any order: what only one of the
 * two knows is not used.
 *
 * A server that was restarted with nothing says HELLO with FW_REPL_FETCH to slaves that it had: one
 * that has a whole copy and no master answers as a master does, and is left when all was sent, or
 * as soon as it has said what it has. Then the parent in About is where the slave itself is. One
 * that has no whole copy answers with FW_REPL_NOTHING and ends the link.
 *
 * Where they share a secret they prove it first, in between: secret.h.
 *
 * What follows is either the changes since that position, or a copy: then the slave forgets all it
 * has first. A slave that says nothing, as those of yrmcds, gets the plain form of a copy, where
 * that is allowed. And a master that begins without an answer, as yrmcds', is taken for one of
 * those: what it sends is a copy and then changes, without marks; it wants a Noop now and then.
 *
 * Decoding is for bytes from outside: any bytes give a message, a wish for more, or DAMAGED;
 * nothing is sized by what they say before it is checked. No state, any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "cache/cache.h"
#include "cache/item.h"
#include "cache/reply.h"

enum {
    FW_REPL_PORT = 11213,
    FW_REPL_VERSION = 1,
    FW_REPL_HEADER = 24,
    FW_REPL_EXTRAS_MAX = 24,
    /* All of a message but a value that has a place of its own. */
    FW_REPL_MESSAGE_MAX =
        FW_REPL_HEADER + FW_REPL_EXTRAS_MAX + FW_ITEM_KEY_MAX + FW_ITEM_INLINE_MAX,
    FW_REPL_VALUE_MAX = 1 << 30,
    FW_REPL_BITS = FW_ITEM_STALE | FW_ITEM_WON | FW_ITEM_KEY_BINARY,
    FW_REPL_AGE_BITS = FW_ITEM_AGE | FW_ITEM_FETCHED,
    FW_REPL_AGED = 256, /* They are there. */
};

enum fw_repl_opcode {
    FW_REPL_SET = 0x01,
    FW_REPL_DELETE = 0x04,
    FW_REPL_NOOP = 0x0a,
    FW_REPL_SETQ = 0x11,
    FW_REPL_DELETEQ = 0x14,
    FW_REPL_FLUSHQ = 0x18,
    FW_REPL_TOUCH = 0x1c,
    FW_REPL_HELLO = 0xf0, /* Of no other server, nor the following. */
    FW_REPL_CHALLENGE = 0xf1,
    FW_REPL_PROOF = 0xf2,
    FW_REPL_LATER = 0xf3,
    FW_REPL_EVICTED = 0xf4,
    FW_REPL_READ = 0xf5,
    FW_REPL_ABOUT = 0xf6,
};

/* What releases can do that others cannot. */
enum {
    FW_REPL_KNOWS_LATER = 1,  /* Flushes that are to come are told. */
    FW_REPL_KNOWS_EXPIRY = 2, /* The master tells what expired; the slave keeps it until then. */
    FW_REPL_KNOWS_MEMORY = 4, /* About, Evicted: the slave drops nothing by itself. */
    FW_REPL_KNOWS_AGES = 8,   /* Read. */
    FW_REPL_KNOWS_ECHO = 16,  /* Marks bring back the slave's time. */
    FW_REPL_KNOWS_DATES = 32, /* Expiry times are dates. */
    FW_REPL_KNOWS_ALL = 63,
};

/* The opaque of a mark. */
#define FW_REPL_MARK_CURRENT                                                                    \
    (UINT32_C(1) << 31)                        /* All that was there a moment ago is before it. \
                                                */
#define FW_REPL_MARK_WHOLE (UINT32_C(1) << 30) /* No copy is under way. */
#define FW_REPL_MARK_COUNT (FW_REPL_MARK_WHOLE - 1)

enum fw_repl_start {
    FW_REPL_GO_ON = 1,
    FW_REPL_COPY = 2,
    FW_REPL_FETCH = 3,
    FW_REPL_NOTHING = 4, /* Only to FETCH: there is no whole copy here. */
};

/* A message of either direction. Key and value lie in the input. */
struct fw_repl_message {
    enum fw_repl_opcode opcode;
    bool is_answer;
    bool is_large;   /* The value is longer than FW_ITEM_INLINE_MAX, and need not be here. */
    uint16_t status; /* Of an answer. */
    uint32_t opaque;
    uint64_t cas;
    const char *key;
    const char *value;
    uint32_t key_length;
    uint32_t value_length;
    uint32_t flags;
    uint32_t expires;  /* As it stands in the message. Read: what share of all items ages. */
    uint64_t number;   /* SetQ: 0, or of an item with another CAS. Noop: 0, or the next. */
    uint64_t echo;     /* Noop: 0, or the time at the slave when it last answered. */
    uint64_t history;  /* HELLO. */
    uint64_t position; /* HELLO. Of a Noop it is the CAS. */
    uint32_t version;  /* HELLO. */
    uint32_t start;    /* HELLO and its answer: enum fw_repl_start, or 0. */
    uint32_t knows;    /* HELLO: bits. */
    size_t size;       /* Of the message without a large value. */
};

enum fw_repl_decoded { FW_REPL_MESSAGE, FW_REPL_MORE, FW_REPL_DAMAGED };

/*
 * The message at the begin of the bytes. MORE: not all of it is there; with message->size bytes
 * there is a reason to ask again.
 */
enum fw_repl_decoded fw_repl_decode(const char *bytes, size_t size,
                                    struct fw_repl_message *message);

/*
 * Encoders write to a reply that has room for FW_REPLY_ROOM_MIN bytes and a piece, or to a buffer,
 * and then return how many bytes. `form`: what the slave understands.
 */
enum fw_repl_form { FW_REPL_PLAIN = 0, FW_REPL_OURS = 1, FW_REPL_DATED = 3 /* And ours. */ };
void fw_repl_put_item(struct fw_reply *reply, const struct fw_cache_local *local,
                      struct fw_item *item, enum fw_repl_form form);
void fw_repl_put_touch(struct fw_reply *reply, const struct fw_cache_local *local,
                       const struct fw_item *item, enum fw_repl_form form);
void fw_repl_put_delete(struct fw_reply *reply, const char *key, size_t key_length);
void fw_repl_put_flush(struct fw_reply *reply, uint64_t number);
void fw_repl_put_later(struct fw_reply *reply, const struct fw_cache_local *local);

struct fw_repl_mark {
    uint32_t opaque;
    uint64_t position;
    uint64_t number;
    bool has_echo;
    uint64_t echo; /* 0: none has come yet. */
};
void fw_repl_put_mark(struct fw_reply *reply, const struct fw_repl_mark *mark);

/* `is_whole`: it has kept all that it was told. `time`: what comes back as an echo, or 0. */
size_t fw_repl_put_mark_answer(char to[static FW_REPL_HEADER], uint32_t opaque, bool is_whole,
                               uint64_t time);

/* Whole changes, all of them evictions, of at most FW_ITEM_INLINE_MAX bytes. */
void fw_repl_put_evicted(struct fw_reply *reply, const char *changes, size_t length);

/* Keys, each behind its length; and what share of all items becomes older, of FW_REPL_AGE_ALL. */
#define FW_REPL_AGE_ALL (UINT64_C(1) << 32)
void fw_repl_put_read(struct fw_reply *reply, uint32_t share, const char *keys, size_t length);

struct fw_repl_about {
    uint64_t memory;
    uint64_t items;
    uint64_t origin;         /* Of its items: see repl.h. */
    uint64_t parent_history; /* Of the master that it was a whole slave of before; 0: of none. */
    uint64_t parent_position;
    uint64_t number;  /* The next. Of two servers with one origin the newer has the higher one. */
    uint64_t server;  /* Drawn when it was started. */
    uint64_t date_ns; /* What time it is there. */
};
void fw_repl_put_about(struct fw_reply *reply, const struct fw_repl_about *about);
struct fw_repl_about fw_repl_about_read(const struct fw_repl_message *message);

/*
 * By how many seconds the clock of a master that said `date_ns` is ahead of ours, if it was asked
 * when ours said `asked_ns`, and its answer came at `heard_ns`: at least by so many. Clocks are as
 * exact as a second.
 */
int64_t fw_repl_clock_ahead(int64_t date_ns, int64_t asked_ns, int64_t heard_ns);
/* Makes the expiry time of a message one by our clock. */
void fw_repl_correct(struct fw_repl_message *message, int64_t ahead_s);

/* What a slave says now and then to a master that puts no marks, so that it knows that it is there.
 */
size_t fw_repl_put_heartbeat(char to[static FW_REPL_HEADER]);

struct fw_repl_greeting {
    uint64_t history;
    uint64_t position;
    enum fw_repl_start start; /* Of the answer; or FETCH, of a HELLO. */
    uint32_t knows;
};
/* Of secret.h: master's are answers. All have a value only, of at most FW_REPL_PROOF_MAX bytes. */
enum { FW_REPL_PROOF_MAX = 48 };
size_t fw_repl_put_proof(char to[static FW_REPL_HEADER + FW_REPL_PROOF_MAX],
                         enum fw_repl_opcode opcode, bool is_answer, const char *value,
                         size_t length);

size_t fw_repl_put_hello(char to[static FW_REPL_HEADER + FW_REPL_EXTRAS_MAX],
                         const struct fw_repl_greeting *greeting);
void fw_repl_put_hello_answer(struct fw_reply *reply, const struct fw_repl_greeting *greeting);
