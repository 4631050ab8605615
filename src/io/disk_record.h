/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that remembers every write and flush, so that a test can look at every disk a crash could
 * have left behind.
 *
 *     struct fw_disk_record *record;
 *     fw_disk_record_create(&record, &(struct fw_disk_memory_options){.size = 64 << 10});
 *     ... use fw_disk_record_disk(record), and say what has been promised to whom:
 *     fw_disk_record_mark(record, 1);
 *     ... then crash, in every way:
 *     rc = fw_disk_record_enumerate(record, NULL, &summary, check_recovery, context);
 *
 *     int check_recovery(const struct fw_disk_crash *crash, void *context)
 *     {
 *         ... open a ring or a journal on crash->disk; if crash->mark promised what is not there:
 *         fail_msg("%s", fw_disk_crash_describe(crash, text, sizeof text));
 *
 * Which images are legal. The machine can stop after any step: a write was started, a sync write
 * or a flush has finished, a mark was set. What a finished flush covers, and sync writes that have
 * finished, is there (io/disk.h has the rule). Of every other write any part may be there, unit by
 * unit; where several wrote a unit, what any of them wrote. So the images of a crash point are all
 * combinations of, for each unit, its durable bytes or those of one later write. Every prefix,
 * every subset and order of the unflushed writes and every tear is one of these, and each distinct
 * image is shown once per crash point. A unit is a sector, or a part of it if tears inside of a
 * sector are asked for.
 *
 * Combinations multiply. While a crash point has at most `exact_max` images, all are shown. Beyond
 * that, with n unflushed writes, these are: every prefix of the writes in the order they were
 * started; each write alone, and all but that one; for n up to 32 each pair alone, and all but
 * those two; each write cut in two at every unit, its head or its tail there, with all earlier
 * writes there and the later ones missing, and with all others there; and `samples` images where
 * chance decides for each write or for each unit. Some of them can be equal.
 *
 * A record belongs to one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "io/disk.h"
#include "io/disk_memory.h"

enum {
    FW_DISK_RECORD_EVENTS_MAX = 1 << 16, /* Beyond that, operations fail with -ENOSPC, */
    FW_DISK_RECORD_BYTES_MAX = 64 << 20, /* and beyond that, writes and discards do. */
    FW_DISK_RECORD_PAIRS_MAX = 32,       /* Unflushed writes of which all pairs are tried. */
    FW_DISK_CRASH_TEXT_SIZE = 1024,      /* Enough for most descriptions; others are cut. */
};

struct fw_disk_record;

struct fw_disk_record_limits {
    uint32_t tear_size; /* The unit: divides the sector size, or 0 for the sector size itself. */
    uint32_t exact_max; /* 0: 4096. */
    uint32_t samples;   /* 0: 256. */
    uint64_t seed;
};

struct fw_disk_record_summary {
    uint64_t points;
    uint64_t points_sampled; /* Of those the ones that had more than `exact_max` images. */
    uint64_t images;
};

struct fw_disk_crash {
    struct fw_disk *disk; /* What was left. May be written to: the next visit gets its own. */
    uint64_t mark;        /* The last one set before the crash, else 0. */
    uint64_t point;       /* Counted from 0. */
    uint64_t image;       /* Of this point, counted from 0. */
    const struct fw_disk_enumeration *enumeration; /* Private. */
};

/* As fw_disk_memory_create(), whose options say how the disk answers. */
FW_MUST_CHECK int fw_disk_record_create(struct fw_disk_record **record,
                                        const struct fw_disk_memory_options *options);

/* The same, starting with what is on crash->disk now: to crash the recovery in its turn. */
FW_MUST_CHECK int fw_disk_record_create_after(struct fw_disk_record **record,
                                              const struct fw_disk_memory_options *options,
                                              const struct fw_disk_crash *crash);

void fw_disk_record_destroy(struct fw_disk_record *record);

/* Lends the disk; it goes with the record and is not closed. */
struct fw_disk *fw_disk_record_disk(struct fw_disk_record *record);

/* Notes how far the test has come: what has been promised, or what is being tried now. */
void fw_disk_record_mark(struct fw_disk_record *record, uint64_t mark);

/*
 * Shows `visit` every image, crash point by crash point. Stops when it returns anything but 0 and
 * returns that; otherwise 0, -ENOMEM, or -EINVAL for a tear_size that does not divide the sector.
 * The record stays as it is; `limits` and `summary` may be NULL.
 */
FW_MUST_CHECK int
fw_disk_record_enumerate(struct fw_disk_record *record, const struct fw_disk_record_limits *limits,
                         struct fw_disk_record_summary *summary,
                         int (*visit)(const struct fw_disk_crash *crash, void *context),
                         void *context);

/* How the crash happened: after which step, and which unflushed writes are there. Returns `text`.
 */
const char *fw_disk_crash_describe(const struct fw_disk_crash *crash, char *text, size_t size);
