/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small files: read one whole, replace one in one step, append lines to one. And locks on files and
 * devices of any size.
 *
 * These calls block, so they are for start, shutdown, administration and threads that may block.
 * Data that matters lives on disks (io/disk.h). Every failure comes with a reason that names the
 * file and what to do about it. All functions may be called by any thread; an appender belongs to
 * its owner, who lets one thread in at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/base.h"
#include "base/reason.h"

enum { FW_FILE_SIZE_MAX = 1 << 30 }; /* Of a file that is read whole. */

/*
 * Reads the file whole into memory from the heap, which the caller frees, and ends it with a zero
 * byte that `size` does not count. Works on files that do not know their size, as those of /proc.
 * Returns 0, -EFBIG if there are more than `size_max` bytes (at most FW_FILE_SIZE_MAX), or what the
 * system said.
 */
FW_MUST_CHECK int fw_file_read(const char *path, size_t size_max, char **contents, size_t *size,
                               struct fw_reason *reason);

/* The same for secrets: -EPERM if others than its owner and group may read or write the file. */
FW_MUST_CHECK int fw_file_read_secret(const char *path, size_t size_max, char **contents,
                                      size_t *size, struct fw_reason *reason);

/*
 * Makes `contents` the contents of the file, new or not, in one step: whoever opens it, now or
 * after a crash, finds the old contents or the new, whole. It is written beside the file under a
 * name that starts with the file's own, flushed, and renamed; a crash may leave that behind, an
 * error does not. A symbolic link is replaced, not followed. The file gets exactly `mode`.
 *
 * On an error the old contents are still there. There is one exception, which the reason tells: the
 * folder could not be flushed, and a crash of the machine may bring the old contents back.
 */
FW_MUST_CHECK int fw_file_replace(const char *path, const void *contents, size_t size, mode_t mode,
                                  struct fw_reason *reason);

/* One byte of a file or block device that nobody else has. */
struct fw_file_lock {
    int fd;
};

/*
 * Takes the byte for this opening alone, as long as the process lives: the kernel gives it back
 * when the process ends, however it ends. Another opening of the same process is refused too (an
 * open file description lock). It binds those who ask for it, on this host, by the same file or
 * device node; reading and writing go on. -EBUSY if somebody has it. Never waits.
 */
FW_MUST_CHECK int fw_file_lock_take(struct fw_file_lock *lock, const char *path, uint64_t byte,
                                    struct fw_reason *reason);
void fw_file_lock_release(struct fw_file_lock *lock);

/* The same for a file that exists to be locked: makes it, for its user alone, if it is missing. */
FW_MUST_CHECK int fw_file_lock_make(struct fw_file_lock *lock, const char *path,
                                    struct fw_reason *reason);

/*
 * A short text in the file that is locked. write() replaces it and flushes; 0 or a negative errno.
 * read() ends it with a zero byte, and reads nothing where it fails.
 */
FW_MUST_CHECK int fw_file_lock_write(const struct fw_file_lock *lock, const char *text);
void fw_file_lock_read(const struct fw_file_lock *lock, char *text, size_t size);

/* Which version of a file this is: its size, and when it was last written. */
struct fw_file_version {
    uint64_t size;
    int64_t written_ns;
};

/* 0, or a negative errno. */
FW_MUST_CHECK int fw_file_version(const char *path, struct fw_file_version *version);

/* Which file or device node it is on: two numbers that no other has while anyone has it open. */
void fw_file_lock_place(const struct fw_file_lock *lock, uint64_t place[2]);

/*
 * A lock that others take by flock() on a file that they remove when they are done, as LVM does.
 * Waits. Makes the file if it is not there, and leaves it.
 */
FW_MUST_CHECK int fw_file_lock_wait(struct fw_file_lock *lock, const char *path,
                                    struct fw_reason *reason);

/* An open file to which lines are added, such as the log. */
struct fw_appender {
    char *path;
    int fd;
    mode_t mode;
    bool torn;     /* The last line in the file is not whole. */
    uint64_t size; /* Of the file, as far as we know: others may append too. */
};

/* Opens the file, making it with `mode` (less the umask) if it is not there. */
FW_MUST_CHECK int fw_appender_open(struct fw_appender *appender, const char *path, mode_t mode,
                                   struct fw_reason *reason);
void fw_appender_close(struct fw_appender *appender);

/*
 * Opens the path again, for the file has been renamed by who rotates logs. If that fails, what is
 * open stays open: better the old file than none.
 */
FW_MUST_CHECK int fw_appender_reopen(struct fw_appender *appender, struct fw_reason *reason);

/*
 * Begins the file anew: what is at the path becomes PATH.1, that PATH.2 and so on; what was PATH.N,
 * for `keep` = N >= 1, is no more. If that fails, lines go on to where they went before.
 */
FW_MUST_CHECK int fw_appender_rotate(struct fw_appender *appender, uint32_t keep,
                                     struct fw_reason *reason);

/*
 * Appends the lines, each of which ends with its newline; `done`, if not NULL, says how many of the
 * bytes are in the file, also if not all of them are. Several processes may append to one file; as
 * long as the file system takes a line at once, and for lines of a few KiB all do, they do not mix.
 * Where it takes less (no space is left) the rest follows or an error is returned, and the next
 * line starts on a line of its own.
 */
FW_MUST_CHECK int fw_appender_write(struct fw_appender *appender, const char *lines, size_t size,
                                    size_t *done, struct fw_reason *reason);

/* The same to the standard error stream of the process. */
FW_MUST_CHECK int fw_stderr_write(const char *lines, size_t size, size_t *done);

/* True if that is a connection to journald, which takes priorities as "<5>" before a line. */
bool fw_stderr_is_journal(void);
