/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What io/file.c and io/file_stream.c share: system calls on files that go on where they were
 * interrupted, and the words for those that fail. Private to io/.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/base.h"
#include "base/reason.h"

/* The reason "cannot VERB PATH: what the system said; what to do". Returns `error`. */
int fw_file_failed(struct fw_reason *reason, int error, const char *verb, const char *path);

/* A descriptor, closed on exec, or a negative errno. */
FW_MUST_CHECK int fw_file_open(const char *path, int flags, mode_t mode);

/* Reads until `size` bytes are there or the file ends. Returns how many, or a negative errno. */
FW_MUST_CHECK ssize_t fw_file_read_full(int fd, char *buffer, size_t size);

/* Writes all of it or fails. `done` says how much was written, in both cases. */
FW_MUST_CHECK int fw_file_write_full(int fd, const char *bytes, size_t size, size_t *done);

/* Makes a rename in the folder of `path` durable. Takes `path` apart. */
FW_MUST_CHECK int fw_file_flush_folder(char *path);
