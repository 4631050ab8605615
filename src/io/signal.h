/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals, delivered as call-backs by the reactor.
 *
 * A signal handler may interrupt any instruction and so may call next to nothing. Here signals are
 * blocked instead and read from a descriptor (signalfd), in the turn of the locality that watches
 * it, where a call-back may do whatever any other may.
 *
 * fw_signals_block() comes first in main(), before there is a second thread: a signal goes to any
 * thread that does not block it, and threads inherit what is blocked. From then on the signals wait
 * in the kernel until fw_signals_open(), however late that is; several of one number become one.
 *
 * Children inherit what is blocked too: who starts another program restores its mask first.
 *
 * One owner per process; all calls but fw_signals_block() are made by the holder of the turn.
 */
#pragma once

#include <signal.h> /* The numbers, for those who fill in the table. IWYU pragma: export */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/base.h"
#include "base/reason.h"
#include "io/reactor.h"

struct fw_signals;

/* One row per signal. Rows are constant and outlive the struct fw_signals. */
struct fw_signal_event {
    int number;
    /* `sender` is the process that sent it, 0 if that was the kernel. May close `signals`. */
    void (*received)(struct fw_signals *signals, int number, pid_t sender);
};

/* Embedded in its owner's struct; stays there until `closed` has run. */
struct fw_signals {
    struct fw_watch watch;
    const struct fw_signal_event *events;
    size_t event_count;
    void (*closed)(struct fw_signals *signals); /* NULL until close(). */
    int fd;
};

/*
 * Blocks the signals of the table in the calling thread, hence in those it will create. Those that
 * only repeat what a system call's result says, SIGPIPE and SIGXFSZ, are ignored from here on.
 */
void fw_signals_block(const struct fw_signal_event events[], size_t event_count);

/* Starts delivery. Returns 0, or -EMFILE, -ENFILE, -ENOMEM or -ENOSPC with the reason. */
FW_MUST_CHECK int fw_signals_open(struct fw_signals *signals, struct fw_reactor *reactor,
                                  const struct fw_signal_event events[], size_t event_count,
                                  struct fw_reason *reason);

/* No signal is delivered any more; `closed` follows from a later poll. They stay blocked. */
void fw_signals_close(struct fw_signals *signals, void (*closed)(struct fw_signals *signals));
