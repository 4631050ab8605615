/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for disk_uring.c in builds without liburing.
 */
#include <errno.h>

#include "io/disk_file.h"

int fw_disk_uring_open(struct fw_disk **disk, const struct fw_disk_options *options,
                       struct fw_reason *reason)
{
    (void)disk;
    return fw_reason_set(reason, -ENOSYS, "cannot open %.100s: %s; or choose the threads engine",
                         options->path, FW_REASON_ABSENT("io_uring", "io_uring"));
}
