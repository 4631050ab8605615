/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "io/file.h"
#include "ring/core.h"
#include "volume/queue.h"
#include "volume/remote.h"
#include "volume/store.h"

int fw_volume_format(const struct fw_volume_format *format, struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = fw_volume_reason(public_reason);
    const struct fw_disk_options options = {
        .path = format->path,
        .flags = FW_DISK_DIRECT | (format->size > 0 ? (unsigned)FW_DISK_CREATE : 0),
        .size = format->size};
    const struct fw_volume_layout layout = {.extent_size = format->extent_size,
                                            .hosts_max = format->hosts_max,
                                            .ring_size = format->ring_size,
                                            .log_size = format->log_size,
                                            .host_number = fw_ring_host_number(),
                                            .replace = format->replace};
    struct fw_file_lock lock;
    struct fw_disk *disk;
    int rc = fw_disk_open(&disk, &options, reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_file_lock_take(&lock, format->path, FW_VOLUME_LOCK_MANAGER, reason);
    if (rc == -EBUSY) {
        (void)fw_reason_set(reason, rc, "a manager of %.150s runs on this host", format->path);
    }
    if (rc == 0) {
        rc = fw_volume_plain_format(disk, &layout, reason);
        fw_file_lock_release(&lock);
    }
    if (rc == 0) {
        fw_disk_close(disk);
    } else {
        fw_disk_close_undo(disk); /* If we have made it, there is nothing in it. */
    }
    return rc;
}
