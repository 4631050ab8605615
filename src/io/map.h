/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that outlives the process: a file that is mapped and written like memory, so that whatever
 * was stored before a kill -9 is in the file. Nothing is flushed: what survives is the end of the
 * process, not of the machine. A folder in memory (/dev/shm, /run) is the right place, for there
 * the kernel never writes the pages to a disk behind our back.
 *
 * All room is taken when the map is made. A file system that is full later cannot take it back; it
 * would do so by a SIGBUS at some store.
 *
 * Without a folder it is plain memory, for who does not need more. Calls block and are for start
 * and stop; the memory is the caller's to share among threads.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"

struct fw_map {
    void *memory; /* Zero when made, aligned to a page. */
    size_t size;
    char *path;       /* NULL: plain memory. */
    uint32_t process; /* Who made it. */
};

/*
 * Makes a new file FOLDER/STEM.PID.N, where N makes it new: what others left behind is never
 * touched. Only its owner may read it. NULL or an empty folder: plain memory. Returns 0 or a
 * negative errno with the reason.
 */
FW_MUST_CHECK int fw_map_create(struct fw_map *map, const char *folder, const char *stem,
                                size_t size, struct fw_reason *reason);

/* Gives the memory back and removes the file. */
void fw_map_destroy(struct fw_map *map);
