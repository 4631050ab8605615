/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate/mortal.h"

#include <errno.h>

#include "base/assert.h"
#include "io/disk_backend.h"
#include "simulate/sim.h"

static const struct fw_disk_backend *disk_backend; /* The simulator's. */
static struct sim_life *lives[SIM_LIVES_MAX];

static int mortal_start(struct fw_disk *disk, struct fw_disk_op *op)
{
    for (int i = 0; i < SIM_LIVES_MAX; i++) {
        const struct sim_life *life = lives[i];
        if (life != NULL && life->is_dead && (life->disks[0] == disk || life->disks[1] == disk)) {
            return -ENODEV;
        }
    }
    return disk_backend->start(disk, op);
}

void sim_life_begin(struct sim_life *life, const char *path)
{
    static struct fw_disk_backend mortal;
    int place = 0;
    while (place < SIM_LIVES_MAX && lives[place] != NULL) {
        place++;
    }
    FW_ASSERT(place < SIM_LIVES_MAX);
    lives[place] = life;
    life->is_dead = false;
    for (int i = 0; i < 2; i++) {
        const struct fw_disk_options options = {.path = path};
        int rc = fw_disk_open(&life->disks[i], &options, NULL);
        SIM_EXPECT(rc == 0);
        disk_backend = life->disks[i]->backend;
        mortal = *disk_backend;
        mortal.start = mortal_start;
        life->disks[i]->backend = &mortal;
    }
}

void sim_life_end(struct sim_life *life)
{
    for (int i = 0; i < SIM_LIVES_MAX; i++) {
        lives[i] = lives[i] == life ? NULL : lives[i];
    }
    for (int i = 0; i < 2; i++) {
        life->disks[i]->backend = disk_backend;
        fw_disk_close(life->disks[i]);
        life->disks[i] = NULL;
    }
}
