/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In place of lvm.c where there is no libdevmapper.
 */
#include <errno.h>

#include "volume/lvm.h"

int fw_volume_lvm_find(struct fw_disk *disk, struct fw_volume_lvm *lvm, struct fw_reason *reason)
{
    (void)disk;
    (void)lvm;
    return fw_reason_set(reason, -ENOENT,
                         "there is no group of volumes; 'fairway volume format' makes one; groups "
                         "of LVM cannot be read: " FW_REASON_ABSENT("LVM", "lvm"));
}

int fw_volume_lvm_adopt(const struct fw_volume_lvm_adopt *adopt, struct fw_reason *reason)
{
    (void)adopt;
    return fw_reason_set(reason, -ENOSYS, FW_REASON_ABSENT("LVM", "lvm"));
}

int fw_volume_lvm_publish(const char *path, struct fw_volume_store *store,
                          const struct fw_volume_metadata *metadata, struct fw_reason *reason)
{
    (void)path;
    (void)store;
    (void)metadata;
    return fw_reason_set(reason, -ENOSYS, FW_REASON_ABSENT("LVM", "lvm"));
}
