/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A terminal taken over for a while: a picture instead of lines, keys instead of input.
 *
 *     fw_terminal_open(&terminal, &reason);
 *     do {
 *         fw_terminal_size(&terminal, &columns, &lines);
 *         fw_terminal_write(&terminal, picture, length);
 *     } while (fw_terminal_wait(&terminal, deadline_ns) != FW_TERMINAL_END);
 *     fw_terminal_close(&terminal);
 *
 * While it is open the other screen is shown, so that what stood there before stands there again
 * afterwards; the cursor is hidden, and keys come at once and unseen. All that is undone on every
 * way out: close(); signals that end a process, which wait() reports; a stop by SIGTSTP, for which
 * wait() leaves the terminal and takes it again when the process goes on; and a crash or a failed
 * assertion, by a handler that does nothing else. Only after SIGKILL there is nobody left to do it.
 *
 * Stdout is the terminal. Keys are read from stdin if that is one too.
 *
 * Why not ncurses: of what it can do, all that is needed here are five sequences which every
 * terminal since the VT220 understands, and it would keep the terminal's state where a handler
 * cannot undo it.
 *
 * One per process. Threads: the one that opened it, before there are others.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <termios.h>

#include "base/base.h"
#include "base/reason.h"

enum fw_terminal_event {
    FW_TERMINAL_TIME,   /* The deadline is here. */
    FW_TERMINAL_KEY,    /* terminal->key was pressed. */
    FW_TERMINAL_CHANGE, /* It has another size, or must be drawn again. */
    FW_TERMINAL_END,    /* A signal asks the process to end: terminal->signal. */
};

struct fw_terminal {
    int signals;          /* The descriptor that they are read from. */
    sigset_t mask_before; /* What was blocked before. */
    bool has_keys;        /* Stdin is a terminal, and has not ended. */
    char key;
    int signal;
};

/* Whether stdout is a terminal. */
bool fw_terminal_is_there(void);

/* Takes it over. Returns 0 or a negative errno with the reason; then all is as it was. */
FW_MUST_CHECK int fw_terminal_open(struct fw_terminal *terminal, struct fw_reason *reason);

/* Gives it back. */
void fw_terminal_close(struct fw_terminal *terminal);

/* How large it is now; 80 x 24 if it does not say. */
void fw_terminal_size(const struct fw_terminal *terminal, unsigned *columns, unsigned *lines);

/* Shows all of it. Returns 0, or a negative errno: nobody can see it any more. */
FW_MUST_CHECK int fw_terminal_write(struct fw_terminal *terminal, const char *bytes, size_t length);

/*
 * Waits until something happens, or until the deadline by fw_clock_now_ns(). One that has passed
 * only looks.
 */
enum fw_terminal_event fw_terminal_wait(struct fw_terminal *terminal, int64_t deadline_ns);
