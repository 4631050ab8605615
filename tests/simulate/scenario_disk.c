/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record in two slots on a disk whose power fails at any moment.
 *
 * Every update writes the slot that is not in use, flushes, and only then counts as made; who opens
 * the disk takes the slot with the higher version whose sum is right. The rule that must hold after
 * any crash: what was counted as made is there, or something newer that was begun. The planted twin
 * leaves the flush out.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/thread.h"
#include "io/disk.h"
#include "simulate/disk.h"
#include "simulate/scenarios.h"

enum { SECTOR = 512, SLOT_SECTORS = 4, SLOT = SECTOR * SLOT_SECTORS, LIVES = 4 };

static const char DISK[] = "/dev/record";

struct record {
    uint64_t sum; /* Over the rest. */
    uint64_t version;
    uint8_t filling[SLOT - 16];
};
static_assert(sizeof(struct record) == SLOT, "a slot is a record");

static bool with_flush;
static uint64_t made;  /* The version that was last counted as made. */
static uint64_t begun; /* The version that was last begun. */
static bool over;

static uint64_t record_sum(const struct record *record)
{
    return fw_hash(&record->version, SLOT - sizeof record->sum, 1);
}

static int disk_do(struct fw_disk *disk, enum fw_disk_kind kind, uint64_t slot,
                   struct record *record)
{
    struct fw_disk_op op = {.kind = kind,
                            .into = record,
                            .size = kind == FW_DISK_FLUSH ? 0 : SLOT,
                            .offset = slot * SLOT};
    return fw_disk_run(disk, &op, NULL);
}

/* The newest whole record; version 0 on a new disk. Errors are tried again: power is not lost. */
static int record_load(struct fw_disk *disk, struct record *buffer, uint64_t *version)
{
    *version = 0;
    for (uint64_t slot = 0; slot < 2; slot++) {
        int rc = disk_do(disk, FW_DISK_READ, slot, buffer);
        if (rc == -EIO) {
            slot--;
            continue;
        }
        if (rc != 0) {
            return rc;
        }
        if (buffer->sum == record_sum(buffer) && buffer->version > *version) {
            *version = buffer->version;
        }
    }
    return 0;
}

static int record_store(struct fw_disk *disk, struct record *buffer, uint64_t version)
{
    begun = version;
    memset(buffer->filling, (int)(version % 251), sizeof buffer->filling);
    buffer->version = version;
    buffer->sum = record_sum(buffer);
    int rc = disk_do(disk, FW_DISK_WRITE, version % 2, buffer);
    if (rc == 0 && with_flush) {
        rc = disk_do(disk, FW_DISK_FLUSH, 0, NULL);
    }
    if (rc == 0) {
        made = version;
    }
    return rc;
}

/* From one opening to the end of the disk's power. */
static void live(struct record *buffer)
{
    struct fw_disk *disk;
    struct fw_disk_options options = {.path = DISK};
    int rc = fw_disk_open(&disk, &options, NULL);
    SIM_EXPECT(rc == 0);
    uint64_t version;
    rc = record_load(disk, buffer, &version);
    if (rc == 0) {
        SIM_EXPECT(version >= made && version <= begun);
        made = version; /* Whatever it is, from now on it must not get older. */
        while (rc == 0 || rc == -EIO || rc == -ENOSPC) {
            if (rc == 0) {
                version++;
            }
            rc = record_store(disk, buffer, version);
        }
    }
    SIM_EXPECT(rc == -ENODEV);
    fw_disk_close(disk);
}

static void writer_run(void *argument)
{
    struct record *buffer = fw_disk_buffer(SLOT);
    FW_ASSERT(buffer != NULL);
    (void)argument;
    while (!over) {
        live(buffer);
    }
    free(buffer);
}

static void run(bool flush)
{
    with_flush = flush;
    made = 0;
    begun = 0;
    over = false;
    if (sim_chance(2)) {
        sim_disk_weather.error_one_in = 10;
        sim_disk_weather.full_one_in = 10;
    }
    sim_disk_make(DISK, (uint64_t)2 * SLOT, SECTOR);
    struct fw_thread writer;
    int rc = fw_thread_create(&writer, "writer", writer_run, NULL);
    FW_ASSERT(rc == 0);
    for (uint32_t i = 0; i < LIVES; i++) {
        sim_sleep(sim_between(0, 5000) * SIM_US);
        over = i == LIVES - 1;
        sim_disk_crash(DISK);
    }
    fw_thread_join(&writer);
}

static void disk_run(void)
{
    run(true);
}

const struct sim_scenario sim_scenario_disk = {
    .name = "disk",
    .purpose = "a record in two slots survives power failures, torn writes and errors",
    .run = disk_run,
};

static void planted_run(void)
{
    run(false);
}

const struct sim_scenario sim_scenario_planted_flush = {
    .name = "planted-flush",
    .purpose = "counts a write as durable that was never flushed",
    .run = planted_run,
    .planted = true,
};
