/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that the kernel has behind a descriptor: a block device or a regular file. What the
 * engines have in common. Private to io/.
 */
#pragma once

#include "io/disk_backend.h"

/* The first member of the engines' own structs. */
struct fw_disk_file {
    struct fw_disk disk; /* disk.fd is an eventfd. */
    int fd;
    bool block_device;
};

/*
 * Opens what `options` name and fills in everything but disk.backend. Returns 0 or a negative errno
 * with the reason; then nothing is open.
 */
FW_MUST_CHECK int fw_disk_file_open(struct fw_disk_file *file,
                                    const struct fw_disk_options *options,
                                    struct fw_reason *reason);
void fw_disk_file_close(struct fw_disk_file *file);

/* Does all of a checked operation and sets its result. Blocks. Any thread. */
void fw_disk_file_execute(const struct fw_disk_file *file, struct fw_disk_op *op);

/* The back ends' zero(). */
FW_MUST_CHECK int fw_disk_file_zero(struct fw_disk *disk, uint64_t offset, uint64_t size);

/* Makes the eventfd readable, and unreadable again. Any thread. */
void fw_disk_file_signal(const struct fw_disk_file *file);
void fw_disk_file_signal_clear(const struct fw_disk_file *file);

/* The engines. -ENOSYS of the first: built without io_uring; other errors are the kernel's. */
FW_MUST_CHECK int fw_disk_uring_open(struct fw_disk **disk, const struct fw_disk_options *options,
                                     struct fw_reason *reason);
FW_MUST_CHECK int fw_disk_thread_open(struct fw_disk **disk, const struct fw_disk_options *options,
                                      struct fw_reason *reason);
FW_MUST_CHECK int fw_disk_caller_open(struct fw_disk **disk, const struct fw_disk_options *options,
                                      struct fw_reason *reason);
