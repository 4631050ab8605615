/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One attempt to become a member of a Corosync group, by a thread of its own.
 *
 * Corosync's library waits for the daemon's answers, without a limit: a daemon that is stopped, or
 * that forms a ring, would stop whoever connects. So the calls are made by a thread that nobody
 * waits for. What it finds out is one message on a socket, whose other end is given to a reactor:
 *
 *     start() ──► the descriptor becomes readable ──► take(), and close it
 *         └─────► or abandon(), at any time, which closes it
 *
 * The message is the only thing that the two threads share, and the socket decides who owns the
 * connection: the thread that cannot send its answer any more ends the connection itself.
 *
 * The thread is not one of base/thread.h, for those are joined, and joining is waiting.
 */
#pragma once

#include <corosync/cpg.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"

struct fw_corosync_answer {
    int error;               /* 0: joined; then all below is set, else the reason is. */
    cpg_handle_t handle;     /* Nothing was dispatched yet, and it has no context. */
    uint32_t node;           /* The own one. */
    uint32_t node_count;     /* Of the cluster, as its nodelist says; 0: there is none. */
    uint32_t token_ms;       /* 0: not known. */
    uint32_t consensus_ms;   /* 0: not known. */
    struct fw_reason reason; /* In words that finish "cannot join ...: ". */
};

/*
 * Begins. `name` is copied; `model` is not, and says who is called. Returns the descriptor, not
 * negative, or -EMFILE, -ENFILE, -ENOMEM or -EAGAIN.
 */
FW_MUST_CHECK int fw_corosync_attempt_start(const char *name, const cpg_model_v1_data_t *model);

/* Takes the answer; -EAGAIN: not yet. The descriptor stays open, and is the caller's to close. */
FW_MUST_CHECK int fw_corosync_attempt_take(int fd, struct fw_corosync_answer *answer);

/* Whatever becomes of it, nobody is interested. Closes the descriptor. */
void fw_corosync_attempt_abandon(int fd);

/* Leaves the group and frees the handle, without waiting for Corosync. */
void fw_corosync_connection_end(cpg_handle_t handle);
