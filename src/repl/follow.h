/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slave's follower: a fom that connects to the master, hears what it says, and makes it so here.
 *
 *     CONNECT ──► GREET ──► APPLY ──┐
 *        ▲          └► CLEAR ─►┘    │ the link breaks, or is silent for too long
 *        └── PAUSE ◄── CLOSE ◄──────┘
 *                        └──► FINISHED, when it is told to end
 *
 *   CLEAR  the master will send a copy: forgets everything first, some buckets at a time
 *   APPLY  applies messages, some per tick, and answers marks
 *
 * It forgets only what the master says (cache/table.h, fw_table_keep_items()). Should an item not
 * fit all the same, the copy is not whole any more: that is told, the link ends, and after a while
 * the next greeting asks for another copy, which lies closer in memory. A server with less memory
 * than its master would always come to that, so it does not follow, unless it was allowed to. Then
 * it evicts by itself, its copy never counts as whole, and it confirms nothing.
 *
 * While it is away it keeps what it has and where it was (struct fw_repl_followed), so that it can
 * go on from there. That is known only when a mark has said that the copy is whole; until then the
 * table is torn, and the next greeting asks for a copy.
 *
 * One is there at a time. It applies only in its ticks, so once it has finished nothing comes from
 * the old master any more.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fairway/engine.h>

#include "io/reactor.h"
#include "repl/ages.h"
#include "repl/repl.h"
#include "repl/stream.h"

enum { FW_REPL_FOLLOW_INPUT = 48 * 1024 };

struct fw_repl_follow {
    struct fw_fom fom;
    struct fw_repl *repl;
    struct fw_cache_local *local; /* Of its core. */
    struct fw_address master;     /* Of length 0: its name could not be resolved yet. */
    struct fw_stream stream;
    struct fw_clink news;
    bool is_open;
    bool is_connecting;
    bool is_connected;
    bool is_waiting; /* For the stream to be readable. */
    bool is_sending;
    bool is_closing;
    bool is_other;    /* The master is another server's: it puts no marks. */
    bool has_echo;    /* Its marks bring back what time it was here. */
    bool has_greeted; /* Its HELLO is on its way or there. */
    bool has_proven;  /* That it knows the secret: told to the master. */
    bool is_proven;   /* The master has, too. */
    bool is_greeted;  /* The master has answered, and will say what it is. */
    bool is_smaller;  /* It has less memory than the master, and is allowed to. */
    uint64_t origin;  /* Of the items that the master sends. */
    uint64_t server;  /* Which one that is. */
    bool is_done;     /* It has fetched all that it wanted. */
    bool has_begun;   /* To fetch: what has come must go if the rest does not. */
    bool is_keeping;  /* It drops nothing by itself. */
    int told_error;   /* Why there is no link, as the log was told last; 0: there is one. */
    bool has_answer;  /* To a mark: to be sent. */
    int error;        /* Why the link ends. */
    uint32_t answer_opaque;
    uint64_t clear_cursor;
    int64_t heard_ns;
    int64_t hello_ns; /* When it greeted. */
    int64_t hello_date_ns;
    int64_t ahead_s;      /* By so much the master's clock is ahead of ours. */
    int64_t pause_ns;     /* Before it connects again. */
    int64_t overflow_ns;  /* That pause, if an item does not fit again. */
    int64_t beat_ns;      /* When it last said that it is there. */
    struct fw_body *body; /* A large value under way, of `pending`; NULL: none. */
    uint32_t body_filled;
    uint32_t skip; /* Bytes of a large value for which there is no memory. */
    struct fw_repl_message pending;
    char pending_key[FW_ITEM_KEY_MAX];
    struct fw_repl_message answer; /* To HELLO. */
    struct fw_repl_ageing ageing;
    struct iovec unsent;
    char master_nonce[FW_REPL_NONCE];
    char nonce[FW_REPL_NONCE];
    char output[FW_REPL_HEADER + FW_REPL_PROOF_MAX];
    uint32_t input_begin;
    uint32_t input_end;
    char input[FW_REPL_FOLLOW_INPUT];
};
