/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "io/content.h"
#include "io/file.h"
#include "ring/core.h"
#include "volume/queue.h"
#include "volume/remote.h"
#include "volume/store.h"

/*
 * Opens the disk as it is, and looks at it; makes a file only where there is none, or an empty one.
 */
static int disk_open(struct fw_disk **disk, const struct fw_volume_format *format,
                     struct fw_disk_options *options, struct fw_content *content,
                     struct fw_reason *reason)
{
    struct fw_reason why;
    int rc = fw_disk_open(disk, options, reason);
    int refused = 0;
    *content = (struct fw_content){.kind = FW_CONTENT_NOTHING};
    if (rc == 0 || rc == -EINVAL) {
        refused = fw_content_check(format->path, FW_CONTENT_GROUP, format->force, content, &why);
    }
    if (refused != 0) {
        if (rc == 0) {
            fw_disk_close(*disk);
        }
        return fw_reason_set(reason, refused, "%s", why.text);
    }
    if ((rc == -ENOENT || rc == -EINVAL) && format->size > 0) {
        options->flags |= FW_DISK_CREATE;
        rc = fw_disk_open(disk, options, reason);
    }
    return rc;
}

/* Extends a file. The disk is another one afterwards; NULL if this fails. */
static int disk_grow(struct fw_disk **disk, struct fw_disk_options *options,
                     struct fw_reason *reason)
{
    fw_disk_close(*disk);
    *disk = NULL;
    options->flags |= FW_DISK_CREATE;
    int rc = fw_disk_open(disk, options, reason);
    *disk = rc == 0 ? *disk : NULL;
    return rc;
}

int fw_volume_format(const struct fw_volume_format *format, struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = fw_volume_reason(public_reason);
    struct fw_disk_options options = {
        .path = format->path, .flags = FW_DISK_DIRECT | FW_DISK_EXCLUSIVE, .size = format->size};
    struct fw_volume_layout layout = {.extent_size = format->extent_size,
                                      .hosts_max = format->hosts_max,
                                      .ring_size = format->ring_size,
                                      .log_size = format->log_size,
                                      .hold_ms = format->lease_ms,
                                      .replace = format->replace};
    struct fw_content content;
    struct fw_file_lock lock;
    struct fw_disk *disk = NULL;
    int rc = disk_open(&disk, format, &options, &content, reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_file_lock_take(&lock, format->path, FW_VOLUME_LOCK_MANAGER, reason);
    if (rc == -EBUSY) {
        (void)fw_reason_set(reason, rc, "a manager of %.150s runs on this host", format->path);
    }
    if (rc == 0) {
        layout.host_number = fw_ring_host_number(&lock);
        const struct fw_disk_properties *properties = fw_disk_properties(disk);
        bool stays = content.kind == FW_CONTENT_GROUP && !format->replace;
        if (properties->is_file && properties->size < format->size && !stays) {
            rc = disk_grow(&disk, &options, reason);
        }
        rc = rc == 0 ? fw_volume_plain_format(disk, &layout, reason) : rc;
        fw_file_lock_release(&lock);
    }
    if (rc == 0) {
        fw_disk_close(disk);
    } else if (disk != NULL) {
        fw_disk_close_undo(disk); /* If we have made it, there is nothing in it. */
    }
    return rc;
}
