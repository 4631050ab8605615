/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that are killed: their disks do nothing any more from one moment on, so that every
 * operation of theirs fails and none has an effect. Memory of the dead is left to them to free.
 */
#pragma once

#include <stdbool.h>

#include "io/disk.h"

enum { SIM_LIVES_MAX = 8 };

/* One life of a process. Zeroed at first; stays in place until it is over. */
struct sim_life {
    struct fw_disk *disks[2];
    bool is_dead;
};

/* Opens both disks of the path. */
void sim_life_begin(struct sim_life *life, const char *path);
void sim_life_end(struct sim_life *life);
