/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulated disks: what fw_disk_open() opens in a run.
 *
 * A disk is found by its path and outlives those who open it, as a real one does. It keeps what is
 * durable apart from what was only written. A read sees the latest write; a power failure
 * (sim_disk_crash) leaves, of every sector written since the last flush, the old contents or any of
 * the new, sector by sector, as the seed draws: that is every legal tear and reordering. Operations
 * take time, overlap, finish in any order, and fail as the weather says.
 */
#pragma once

#include <stdint.h>

/* What disks do to everyone; set by the scenario, zeroed at the start of a run. */
struct sim_disk_weather {
    int64_t latency_min_ns;
    int64_t latency_max_ns;
    uint32_t error_one_in; /* Reads and writes that answer -EIO; 0: never. */
    uint32_t full_one_in;  /* Writes that answer -ENOSPC; 0: never. */
    uint32_t flush_error_one_in;
};
extern struct sim_disk_weather sim_disk_weather;

/* Makes a disk of zeros. */
void sim_disk_make(const char *path, uint64_t size, uint32_t sector_size);

/*
 * The disk's power fails. Operations under way may have happened in part and answer -ENODEV, and so
 * do all later ones until whoever has it open closes it and opens it anew.
 */
void sim_disk_crash(const char *path);

/* What a read would find at this very moment, all of it, without taking time. Not to be changed. */
uint8_t *sim_disk_look(const char *path);

/* Makes fw_disk_open() open simulated disks from now on. */
void sim_disk_install(void);

/* Called at the start and at the end of every run, by sim.c. */
void sim_disk_begin(void);
void sim_disk_end(void);
