/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LVM's metadata as they are on a device: found by its label, read, never written.
 *
 * An agent reads them on hosts that need have nothing of LVM's installed, and while another host
 * writes them; so they are read as LVM itself reads them. LVM's newest text is whole at every
 * moment: a new one is written beside the old one before the header that points to it.
 */
#pragma once

#include "base/base.h"
#include "base/reason.h"
#include "io/disk.h"

/*
 * The text, for free(). -ENOENT: the device is not LVM's, or in no volume group; -EBADMSG: it is,
 * but cannot be read.
 */
FW_MUST_CHECK int fw_volume_lvm_text(struct fw_disk *disk, char **text, struct fw_reason *reason);
