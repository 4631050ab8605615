/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is on a disk or in a file already, for commands that are about to overwrite it.
 *
 * A name is easily mistyped, and /dev/sdb is another disk after the next boot. So a command that
 * makes something new looks first, and refuses what it does not know to be worthless:
 *
 *     a block device   with a signature that libblkid knows (file systems, LVM, RAID, swap,
 *                      partition tables), or one of ours
 *     a file           the same, or with any byte that is not zero
 *
 * A device without a signature may be overwritten, whatever its blocks hold: new disks are not
 * always zeros, and every tool of the system has the same rule.
 *
 * Looking is not enough: a file system may be mounted meanwhile. So the command opens the disk with
 * FW_DISK_EXCLUSIVE (io/disk.h) before it looks, which the kernel refuses for what is mounted or
 * held by another driver, and keeps others from mounting it until it is closed.
 *
 * libblkid is loaded when it is first needed (io/library.h). Where it is missing, a block device is
 * refused: nobody can say what is on it.
 *
 * Everything here blocks. Any thread may call it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"
#include "base/reason.h"

enum { FW_CONTENT_TEXT = 160 };

enum fw_content_kind {
    FW_CONTENT_NOTHING, /* Nothing of worth, or no such file. */
    FW_CONTENT_RING,    /* One of ours (ring/format.h); perhaps damaged. */
    FW_CONTENT_GROUP,   /* A group of volumes of our own format (volume/store.h); likewise. */
    FW_CONTENT_OTHER,
};

struct fw_content {
    enum fw_content_kind kind;
    char text[FW_CONTENT_TEXT]; /* For people: "ext4, label 'data'". */
};

/* Returns 0 or a negative errno; what is neither a disk nor a file holds nothing. */
FW_MUST_CHECK int fw_content_look(const char *path, struct fw_content *content,
                                  struct fw_reason *reason);

/*
 * As above, and -EEXIST if there is something that is not `own`, unless it may be overwritten. Of
 * what is its own the caller knows more.
 */
FW_MUST_CHECK int fw_content_check(const char *path, enum fw_content_kind own, bool overwrite,
                                   struct fw_content *content, struct fw_reason *reason);

/* Why the kernel would not give a block device to us alone: "it is mounted on /srv". */
void fw_content_holder(const char *path, char *text, size_t size);
