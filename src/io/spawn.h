/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other people's programs: run one to its end and see what it said, or start one that stays.
 *
 * A program is found by PATH and /usr/sbin, and gets exactly the arguments that are given: there is
 * no shell. Its stdin is empty, it has no descriptor of ours but those named here, no signal is
 * blocked, and it speaks English (LC_ALL=C). All calls block; any thread may make them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/base.h"
#include "base/reason.h"

/*
 * Runs a program to its end. `arguments` ends with NULL; the first is the program. What it says on
 * stdout goes to `output`, cut to what fits and ended with a zero byte; `output` may be NULL.
 * Returns 0 if it ended with status 0; -ENOENT if there is no such program; -ECHILD if it failed,
 * with the last line that it said on stderr for a reason; or what the system said.
 */
FW_MUST_CHECK int fw_spawn_run(const char *const *arguments, char *output, size_t size,
                               struct fw_reason *reason);

/*
 * Starts one in a session of its own; what it says goes to the end of the file. One that makes a
 * daemon of itself ends, and is waited for as any other.
 */
FW_MUST_CHECK int fw_spawn_start(const char *const *arguments, const char *log_path, pid_t *child,
                                 struct fw_reason *reason);

/* Waits for a child of ours. Returns 0 if it ended with status 0, else -ECHILD. */
FW_MUST_CHECK int fw_spawn_wait(pid_t child);

/* Any process, not only a child: whether there is one, and whether the signal was sent. */
bool fw_spawn_is_alive(pid_t process);
FW_MUST_CHECK int fw_spawn_signal(pid_t process, int number);
