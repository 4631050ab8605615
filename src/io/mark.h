/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that says which process does a job, and whether it still lives.
 *
 * A number in a file is not enough: the process may be gone, and another have its number. Whoever
 * believes it finds a server that is not there, or ends somebody else's process. So the file is
 * locked by the process that it names, and the kernel drops that lock when the process ends,
 * however it ends.
 *
 * The file appears whole, with the lock held: it is made under another name, locked, and renamed.
 * So of any file by this name the lock is held if and only if the process that it names lives. Who
 * wants to signal it opens a pidfd by the number first and looks at the lock then: if the lock is
 * held now, the process lived when the pidfd was opened, and the pidfd is its own.
 *
 * Everything here blocks shortly. Any thread may call it. Linux only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/base.h"
#include "base/reason.h"

enum { FW_MARK_TEXT = 64 };

/*
 * Makes the file, with our number and `text`, which may be empty, in a line. It is ours until the
 * process ends or another is made by the same name; the lock does not go along to a child that
 * calls exec. Removes nothing at the end.
 */
FW_MUST_CHECK int fw_mark_make(const char *path, const char *text, struct fw_reason *reason);

struct fw_mark {
    pid_t process; /* For people. */
    uint64_t id;   /* Not 0; differs between two processes, also where their numbers are equal. */
    char text[FW_MARK_TEXT];
    int fd; /* Of the process. */
};

/*
 * Finds the process that made the file. 0: it lives, and `mark` is to be closed. -ESRCH: it does
 * not; what the file says is in `mark` though. -ENOENT: there is no such file. Others: it lives,
 * but cannot be reached from here.
 */
FW_MUST_CHECK int fw_mark_find(const char *path, struct fw_mark *mark);
void fw_mark_close(struct fw_mark *mark);

/* Signals that process and no other. -ESRCH: it has ended. */
FW_MUST_CHECK int fw_mark_signal(const struct fw_mark *mark, int number);

/* Waits until the process has ended, at most that long. False: it has not. */
bool fw_mark_wait(const struct fw_mark *mark, int64_t patience_ns);
