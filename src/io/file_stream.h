/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of any length, written or read from the begin to the end: dumps, images of a table.
 *
 * A writer makes a file in one step, as fw_file_replace() does: until commit() nobody sees anything
 * of it, and whatever was at the path stays. Until then the file has no name where the file system
 * allows that (O_TMPFILE), so that not even a killed process leaves something behind; elsewhere it
 * lies beside the path, under a name that starts with the path's, and abandon() removes it.
 *
 * What cannot be replaced is written to as it comes: a pipe, a device, and standard output, which
 * is the path NULL. Then commit() has nothing to make visible, and who reads must notice an end
 * that came too early. The same goes for readers: NULL is standard input.
 *
 * These calls block. Any thread may make them, one at a time for each writer or reader.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/base.h"
#include "base/reason.h"

struct fw_file_writer {
    char *path;      /* NULL: standard output. */
    char *temporary; /* The name until commit(); NULL: it has none, or needs none. */
    int fd;
    bool is_direct; /* What is written is there. */
};

/* Returns 0 or a negative errno with the reason. The file gets exactly `mode`. */
FW_MUST_CHECK int fw_file_writer_open(struct fw_file_writer *writer, const char *path, mode_t mode,
                                      struct fw_reason *reason);

/* All of it, or a negative errno with the reason; then only abandon() makes sense. */
FW_MUST_CHECK int fw_file_writer_write(struct fw_file_writer *writer, const void *bytes,
                                       size_t size, struct fw_reason *reason);

/* Flushes and names it. Ends the writer in any case; after an error it is as if abandoned. */
FW_MUST_CHECK int fw_file_writer_commit(struct fw_file_writer *writer, struct fw_reason *reason);

/* Ends the writer, and nothing of it is left, but what went to a pipe or device. */
void fw_file_writer_abandon(struct fw_file_writer *writer);

struct fw_file_reader {
    const char *path; /* The caller's; NULL: standard input. */
    int fd;
    uint64_t size; /* Of a regular file, when it was opened; else 0. */
};

FW_MUST_CHECK int fw_file_reader_open(struct fw_file_reader *reader, const char *path,
                                      struct fw_reason *reason);

/* As many bytes as are asked for, fewer at the end, or a negative errno with the reason. */
FW_MUST_CHECK ssize_t fw_file_reader_read(struct fw_file_reader *reader, void *buffer, size_t size,
                                          struct fw_reason *reason);

/* Begins anew. False: it is a pipe, which cannot. */
FW_MUST_CHECK bool fw_file_reader_rewind(struct fw_file_reader *reader);
void fw_file_reader_close(struct fw_file_reader *reader);

/*
 * A file without a name, which is gone when its last descriptor is closed, however the process
 * ends. Others in this process open it by `path`, as long as `fd` is open.
 */
struct fw_file_temporary {
    int fd;
    char path[32];
    uint64_t size; /* What was asked for, or less where the process may not have such files. */
};

/* In that folder. Nothing is behind its bytes before they are written. */
FW_MUST_CHECK int fw_file_temporary_open(struct fw_file_temporary *temporary, const char *folder,
                                         uint64_t size, struct fw_reason *reason);
void fw_file_temporary_close(struct fw_file_temporary *temporary);

/* Removes a file. 0, also where there was none, or a negative errno with the reason. */
FW_MUST_CHECK int fw_file_remove(const char *path, struct fw_reason *reason);

/* True: what goes to standard error is seen by a person. */
bool fw_stderr_is_terminal(void);
