/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process can be made by itself: a daemon, another user's, allowed more, without swapping.
 *
 * All of it is for the start of a program, before there is a second thread, except questions, which
 * any thread may ask.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/base.h"
#include "base/reason.h"

/*
 * Opens /dev/null for each of stdin, stdout and stderr that is closed, so that nothing we open gets
 * their numbers: it would be printed to, or given up by fw_process_detach(). Call it first.
 */
void fw_process_fill_standard(void);

/*
 * Goes on in a new process, in a session of its own; the old one waits to hear how it went and
 * does not return from here: it exits with 0 when the new one has called fw_process_detach(), or
 * with the new one's status if that has ended before. So who started it sees, by the status and on
 * stderr, whether it serves. Daemons used to change their folder to `/`; this one does not, so that
 * names of files mean what they meant on the command line, also when they are opened again later.
 * Returns 0 or a negative errno with the reason, in the old process.
 */
FW_MUST_CHECK int fw_process_fork(struct fw_reason *reason);

/* Says so, and gives stdin, stdout and stderr up. Nothing happens without fw_process_fork(). */
void fw_process_detach(void);

/*
 * For a plugin of a program that closes stderr when it goes into the background: keeps a copy, and
 * makes it stderr again. Negative: there is none.
 */
int fw_process_errors_keep(void);
void fw_process_errors_restore(int kept);

/*
 * Becomes `user`, a name or a number, if the process is root's, with all groups of that user, and
 * for good. If it is not, and is not that user's already, it stays what it is: as memcached does.
 * Returns 0 or a negative errno with the reason.
 */
FW_MUST_CHECK int fw_process_become(const char *user, struct fw_reason *reason);

bool fw_process_is_root(void);

/* Writes the process's number to a file, for who wants to signal it. And takes the file away. */
FW_MUST_CHECK int fw_process_pid_file(const char *path, struct fw_reason *reason);
void fw_process_pid_file_remove(const char *path);

/* So many descriptors may be open: raises the limit as far as it must, and as the hard one lets it.
 * Returns the limit. */
uint64_t fw_process_allow_files(uint64_t count);

/* Whether the next descriptor that is opened will be below `limit`. Any thread may ask. */
bool fw_process_has_files(uint64_t limit);

/* Cores may be dumped, as large as they are. 0 or a negative errno. */
FW_MUST_CHECK int fw_process_allow_core(void);

/* All memory, now and later, stays in RAM. 0 or a negative errno. */
FW_MUST_CHECK int fw_process_lock_memory(void);

/* The value of a variable of the environment, or NULL. */
const char *fw_process_variable(const char *name);

pid_t fw_process_id(void);

/* The name of this host, cut if it is longer. */
void fw_process_host_name(char *name, size_t size);

/* Processor time so far, in microseconds. */
struct fw_process_usage {
    int64_t user_us;
    int64_t system_us;
};
struct fw_process_usage fw_process_usage(void);
