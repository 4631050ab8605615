/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes all files below some folders, in parallel: hash_tree [--no-lanes] FOLDER...
 *
 * The three levels of a bulk tool. A *feeder* per folder walks it and posts a *unit* per file; the
 * unit cuts its file into *parts*, posts them, waits for them and combines their hashes. Feeders
 * and units wait for others while they hold a thread, so with threads alone the tool would hang
 * as soon as units have them all: their parts never run. Lanes keep some for the parts. With
 * --no-lanes you can see it hang.
 *
 * Prints one line per file, and progress to stderr twice a second.
 */
#include <fairway/jobs.h>
#include <fcntl.h>
#include <fts.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PART_SIZE = 64 * 1024, PARTS_MAX = 1 << 20, PROGRESS_NS = 500000000 };

static struct fw_jobs *jobs;
static _Atomic uint64_t files_done, bytes_done, failures;

struct part {
    struct fw_job job; /* First, so that a request's address is its struct's. */
    int fd;
    off_t offset;
    uint64_t hash;
    ssize_t size;
};

struct unit {
    struct fw_job job;
    off_t size;
    uint64_t hash;
    char path[];
};

struct feeder {
    struct fw_job job;
    char *folder;
};

/* FNV-1a, which is short; use a better hash for anything but an example. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001B3);
    }
    return hash;
}

static void part_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct part *part = (struct part *)job;
    char buffer[PART_SIZE];
    part->size = pread(part->fd, buffer, sizeof buffer, part->offset);
    if (part->size >= 0) {
        part->hash = hash_bytes(UINT64_C(0xCBF29CE484222325), buffer, (size_t)part->size);
        atomic_fetch_add(&bytes_done, (uint64_t)part->size);
    }
}
static struct fw_job_runnable part_runnable = {.run = part_run};

/* Posts the parts, collects them, and combines their hashes in the order of the file. */
static bool unit_hash(struct unit *unit, int fd, struct part *parts, size_t count)
{
    bool good = true;
    for (size_t i = 0; i < count; i++) {
        parts[i].fd = fd;
        parts[i].offset = (off_t)i * PART_SIZE;
        parts[i].size = -1;
        good = fw_jobs_post(jobs, &parts[i].job, &part_runnable, unit, 2,
                            FW_JOB_PART | FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY) == 0 &&
               good;
    }
    struct fw_job *job;
    while (fw_jobs_rejoin_wait(jobs, unit, 0, FW_JOBS_FOREVER, &job) == FW_REJOIN_RETURNED) {
        good = ((struct part *)job)->size >= 0 && good;
    }
    for (size_t i = 0; i < count; i++) {
        unit->hash = hash_bytes(unit->hash, &parts[i].hash, sizeof parts[i].hash);
    }
    return good;
}

static void unit_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct unit *unit = (struct unit *)job;
    size_t count = (size_t)((unit->size + PART_SIZE - 1) / PART_SIZE);
    int fd = count <= PARTS_MAX ? open(unit->path, O_RDONLY | O_CLOEXEC) : -1;
    struct part *parts = calloc(count + 1, sizeof *parts);
    if (fd < 0 || parts == NULL || !unit_hash(unit, fd, parts, count)) {
        atomic_fetch_add(&failures, 1);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    free(parts);
}
static struct fw_job_runnable unit_runnable = {.run = unit_run};

/* Takes back the units that are finished; with `all`, waits until none exists. */
static void feeder_collect(const struct feeder *feeder, bool all)
{
    struct fw_job *job;
    while (fw_jobs_rejoin_wait(jobs, feeder, 0, all ? FW_JOBS_FOREVER : 0, &job) ==
           FW_REJOIN_RETURNED) {
        struct unit *unit = (struct unit *)job;
        printf("%016llx %12lld %s\n", (unsigned long long)unit->hash, (long long)unit->size,
               unit->path);
        atomic_fetch_add(&files_done, 1);
        free(unit);
    }
}

static void feeder_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct feeder *feeder = (struct feeder *)job;
    char *const roots[] = {feeder->folder, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    FTSENT *entry;
    while (walk != NULL && (entry = fts_read(walk)) != NULL) {
        if (entry->fts_info != FTS_F) {
            continue;
        }
        struct unit *unit = calloc(1, sizeof *unit + entry->fts_pathlen + 1);
        if (unit != NULL) {
            unit->size = entry->fts_statp->st_size;
            memcpy(unit->path, entry->fts_path, entry->fts_pathlen);
        }
        if (unit == NULL ||
            fw_jobs_post(jobs, &unit->job, &unit_runnable, feeder, 1,
                         FW_JOB_UNIT | FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY) != 0) {
            atomic_fetch_add(&failures, 1);
            free(unit);
        }
        feeder_collect(feeder, false);
    }
    feeder_collect(feeder, true);
    if (walk == NULL || fts_close(walk) != 0) {
        atomic_fetch_add(&failures, 1);
    }
}
static struct fw_job_runnable feeder_runnable = {.run = feeder_run};

static void progress(const char *end)
{
    (void)fprintf(stderr, "\r%llu files, %llu KiB%s", (unsigned long long)atomic_load(&files_done),
                  (unsigned long long)atomic_load(&bytes_done) / 1024, end);
}

int main(int argc, char **argv)
{
    bool lanes = argc < 2 || strcmp(argv[1], "--no-lanes") != 0;
    int first = lanes ? 1 : 2;
    struct feeder *feeders = calloc((size_t)argc, sizeof *feeders);
    struct fw_jobs_policy policy;
    struct fw_jobs_reason reason;
    fw_jobs_policy_init(&policy);
    policy.slots = 64;
    policy.mode = lanes ? FW_JOBS_CMLS : FW_JOBS_UNCHECKED;
    if (feeders == NULL || first == argc || fw_jobs_create(&jobs, &policy, &reason) != 0 ||
        fw_jobs_start(jobs, &reason) != 0) {
        (void)fprintf(stderr, first == argc ? "hash_tree [--no-lanes] FOLDER...\n"
                                            : "hash_tree: cannot start\n");
        free(feeders);
        return 2;
    }
    for (int i = first; i < argc; i++) {
        feeders[i].folder = argv[i];
        if (fw_jobs_post(jobs, &feeders[i].job, &feeder_runnable, feeders, 0,
                         FW_JOB_FEEDER | FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY) != 0) {
            atomic_fetch_add(&failures, 1);
        }
    }
    struct fw_job *job;
    while (fw_jobs_rejoin_wait(jobs, feeders, 0, PROGRESS_NS, &job) != FW_REJOIN_NONE_EXIST) {
        progress("");
    }
    progress("\n");
    bool stopped = fw_jobs_stop(jobs, FW_JOBS_DRAIN, NULL) == 0;
    fw_jobs_destroy(jobs);
    free(feeders);
    return stopped && atomic_load(&failures) == 0 ? 0 : 1;
}
