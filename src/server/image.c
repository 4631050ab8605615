/* SPDX-License-Identifier: Apache-2.0 */
#include "server/image.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mutex.h"
#include "cache/dump.h"
#include "cache/operation.h"
#include "cache/table.h"
#include "cache/walk.h"
#include "io/clock.h"
#include "io/file_stream.h"
#include "server/large.h"

enum {
    MODE = 0600,
    CLEAR_BUCKETS = 1024,
    UNITS = FW_WALK_PARTS_MAX, /* Of a save: parts of the table; of a load: blocks at a time. */
};

struct unit;

/* One save or load. */
struct work {
    struct fw_jobs *jobs;
    struct fw_job job; /* The feeder: whose owner is the work, and who owns the units. */
    struct fw_cache *cache;
    struct fw_image *image;
    uint32_t now; /* The cache's clock, and the wall clock at the same moment. */
    int64_t now_s;
    uint64_t number; /* load: CAS numbers below it are ours. 0: none is. */
    struct unit *units;
    struct fw_file_writer to;
    struct fw_dump_writer writer; /* Under the lock. */
    struct fw_file_reader from;
    struct fw_dump_reader reader; /* The feeder's. */
    atomic_bool must_end;         /* Something went wrong: no need to go on. */
    struct fw_mutex lock;         /* FW_RANK_BULK; guards the writer and what follows. */
    int rc;                       /* The first failure. */
    struct fw_reason reason;
};

struct unit {
    struct fw_job job;
    struct work *work;
    struct fw_table_local *local;
    struct fw_dump_block block;
    uint32_t part;
    struct fw_body *body; /* save: of an item that is too large for a block, until it has one. */
    struct fw_dump_item large;
    char large_key[FW_ITEM_KEY_MAX];
    uint64_t items, expired, refused;
};

static void work_fail(struct work *work, int rc, const struct fw_reason *reason)
{
    fw_mutex_lock(&work->lock);
    if (work->rc == 0) {
        work->rc = rc;
        work->reason = *reason;
    }
    fw_mutex_unlock(&work->lock);
    atomic_store(&work->must_end, true);
}

/* ---- save ---------------------------------------------------------------------------------- */

static int file_write(void *context, const void *bytes, size_t size, struct fw_reason *reason)
{
    return fw_file_writer_write(context, bytes, size, reason);
}

/* Which bits of an item are which of a dump. */
static const struct {
    uint8_t item;
    uint8_t dump;
} bits[] = {{FW_ITEM_FETCHED, FW_DUMP_FETCHED},
            {FW_ITEM_STALE, FW_DUMP_STALE},
            {FW_ITEM_WON, FW_DUMP_WON},
            {FW_ITEM_KEY_BINARY, FW_DUMP_BINARY}};

static struct fw_dump_item item_describe(const struct work *work, struct fw_item *item)
{
    uint32_t expires = fw_item_expires(item);
    struct fw_dump_item described = {
        .key = item->key,
        .key_length = item->key_length,
        .value = fw_item_is_stored(item) ? NULL : fw_item_bytes(item),
        .value_length = fw_item_length(item),
        .flags = fw_item_flags(item),
        .cas = fw_item_cas(item),
        .expires_s = expires == 0 ? 0 : work->now_s + expires - work->now,
        .accessed_s = work->now_s - fw_item_idle(item, work->now),
        .bits = (uint8_t)((item->bits & FW_ITEM_AGE) << FW_DUMP_AGE_SHIFT),
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(bits); i++) {
        described.bits |= (item->bits & bits[i].item) != 0 ? bits[i].dump : 0;
    }
    return described;
}

static bool save_take(struct fw_item *item, void *context)
{
    struct unit *unit = context;
    if (fw_item_is_stored(item)) {
        return false; /* One at a time, since it has to be read first. */
    }
    struct fw_dump_item described = item_describe(unit->work, item);
    return fw_dump_block_add(&unit->block, &described);
}

/* The same for one item alone. What is too large for a block is kept by its reference. */
static bool save_take_single(struct fw_item *item, void *context)
{
    struct unit *unit = context;
    if ((item->bits & FW_ITEM_BODY) == 0) {
        return save_take(item, unit);
    }
    unit->large = item_describe(unit->work, item);
    memcpy(unit->large_key, item->key, item->key_length);
    unit->large.key = unit->large_key;
    unit->body = fw_body_ref(fw_item_body(item));
    return true;
}

/* The block goes into the file, and is empty. */
static int save_put(struct unit *unit, struct fw_reason *reason)
{
    struct work *work = unit->work;
    if (unit->block.items == 0) {
        return 0;
    }
    fw_dump_block_seal(&unit->block);
    fw_mutex_lock(&work->lock);
    int rc = fw_dump_put(&work->writer, &unit->block, reason);
    fw_mutex_unlock(&work->lock);
    fw_dump_block_clear(&unit->block);
    return rc;
}

/* Where values in a file are. */
static struct fw_large_files *work_files(const struct work *work)
{
    return FW_CONTAINER_OF(fw_table_large(work->cache->table), struct fw_large_files, space);
}

/* The value comes from its file first. One that cannot be read is left out, as by any reader. */
static int save_add_stored(struct unit *unit)
{
    char *value = malloc(unit->body->length);
    if (value == NULL) {
        return -ENOMEM;
    }
    int rc = fw_large_fetch(work_files(unit->work), unit->body, value);
    if (rc == 0) {
        unit->large.value = value;
        rc = fw_dump_block_add_large(&unit->block, &unit->large) ? 0 : -ENOMEM;
    }
    free(value);
    return rc == -ENOMEM ? rc : 0;
}

static int save_put_large(struct unit *unit, struct fw_reason *reason)
{
    int rc = save_put(unit, reason);
    if (rc == 0) {
        rc = unit->body->is_stored                                 ? save_add_stored(unit)
             : fw_dump_block_add_large(&unit->block, &unit->large) ? 0
                                                                   : -ENOMEM;
        if (rc != 0) {
            (void)fw_reason_errno(reason, rc, "no memory to write a large item");
        }
    }
    fw_body_unref(unit->local, unit->body);
    unit->body = NULL;
    return rc == 0 ? save_put(unit, reason) : rc;
}

/* A bucket, of which not even an empty block has room for all. */
static int save_single(struct unit *unit, struct fw_walk *walk, struct fw_reason *reason)
{
    enum fw_walk_item item = FW_WALK_TAKEN;
    int rc = 0;
    while (rc == 0 && item != FW_WALK_OVER && !walk->is_done) {
        item = fw_walk_item(walk, unit->local, save_take_single, unit);
        if (unit->body != NULL) {
            rc = save_put_large(unit, reason);
        } else if (item == FW_WALK_REFUSED) {
            rc = save_put(unit, reason);
        }
    }
    return rc;
}

static int save_part(struct unit *unit, struct fw_reason *reason)
{
    struct fw_walk walk;
    int rc = 0;
    fw_walk_init(&walk, unit->part, UNITS);
    while (rc == 0 && !walk.is_done && !atomic_load(&unit->work->must_end)) {
        struct fw_dump_block before = unit->block;
        if (fw_walk_bucket(&walk, unit->local, save_take, unit)) {
            continue;
        }
        unit->block.length = before.length;
        unit->block.items = before.items;
        rc = before.items > 0 ? save_put(unit, reason) : save_single(unit, &walk, reason);
    }
    return rc == 0 ? save_put(unit, reason) : rc;
}

static void save_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct unit *unit = FW_CONTAINER_OF(job, struct unit, job);
    struct fw_reason reason;
    int rc = fw_dump_block_reserve(&unit->block)
                 ? save_part(unit, &reason)
                 : fw_reason_errno(&reason, -ENOMEM, "no memory for a block");
    if (rc != 0) {
        work_fail(unit->work, rc, &reason);
    }
}

static struct fw_job_runnable save_units = {.run = save_run, .name = "part of the table"};

static int unit_post(struct unit *unit, struct fw_job_runnable *runnable, struct fw_reason *reason)
{
    struct work *work = unit->work;
    int rc = fw_jobs_post(work->jobs, &unit->job, runnable, &work->job, 0,
                          FW_JOB_UNIT | FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY);
    return rc != 0 ? fw_reason_errno(reason, rc, "cannot post a unit of work") : 0;
}

/* A unit of the feeder's that is done; NULL: none is left. The feeder helps meanwhile. */
static struct unit *unit_rejoin(struct work *work)
{
    struct fw_job *job;
    enum fw_rejoin rejoin =
        fw_jobs_rejoin_wait(work->jobs, &work->job, FW_REJOIN_HELP, FW_JOBS_FOREVER, &job);
    FW_ASSERT(rejoin == FW_REJOIN_RETURNED || rejoin == FW_REJOIN_NONE_EXIST);
    return rejoin == FW_REJOIN_RETURNED ? FW_CONTAINER_OF(job, struct unit, job) : NULL;
}

static void save_feed(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct work *work = FW_CONTAINER_OF(job, struct work, job);
    struct fw_reason reason;
    int rc = 0;
    for (uint32_t i = 0; i < UNITS && rc == 0; i++) {
        work->units[i].part = i;
        rc = unit_post(&work->units[i], &save_units, &reason);
    }
    while (unit_rejoin(work) != NULL) {
    }
    if (rc != 0) {
        work_fail(work, rc, &reason);
    }
}

static struct fw_job_runnable save_feeder = {.run = save_feed, .name = "image"};

/* ---- load ---------------------------------------------------------------------------------- */

static ssize_t file_read(void *context, void *buffer, size_t size, struct fw_reason *reason)
{
    return fw_file_reader_read(context, buffer, size, reason);
}

/* All but the value. The item is held, and has room for it. */
static void item_restore(const struct work *work, struct fw_item *item,
                         const struct fw_dump_item *described, uint32_t expires)
{
    uint64_t cas = described->cas;
    int64_t idle = work->now_s - described->accessed_s;
    idle = described->accessed_s == 0 || idle < 0 ? 0 : idle;
    fw_item_set_flags(item, described->flags);
    fw_item_set_expires(item, expires);
    item->bits &= (uint8_t)~FW_ITEM_AGE;
    item->bits |= (uint8_t)((described->bits & FW_DUMP_AGE) >> FW_DUMP_AGE_SHIFT);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(bits); i++) {
        item->bits |= (described->bits & bits[i].dump) != 0 ? bits[i].item : 0;
    }
    /* The clock of access has 24 bits and may go back beyond its begin. */
    fw_item_set_accessed(
        item, work->now - (uint32_t)(idle < FW_ITEM_IDLE_MAX / 2 ? idle : FW_ITEM_IDLE_MAX / 2));
    if (cas != 0 && cas < work->number) {
        fw_item_set_number(item, cas);
    } else if ((item->fields & FW_ITEM_CAS) != 0) {
        fw_item_set_cas(item, cas);
    }
}

/* A body with the value, in memory or in a file. NULL: there is no room for it, or no disk. */
static struct fw_body *body_restore(struct unit *unit, const struct fw_dump_item *described)
{
    const struct fw_large *large = fw_table_large(unit->work->cache->table);
    uint32_t length = described->value_length;
    struct fw_body *body = NULL;
    if (large == NULL || length <= large->value_min) {
        body = fw_body_create(unit->local, length);
        if (body != NULL) {
            memcpy(body->bytes, described->value, length);
        }
    } else if (!unit->work->cache->settings.has_failed_disk &&
               fw_large_create(unit->local, length, &body) == FW_LARGE_DONE &&
               fw_large_put(work_files(unit->work), body, described->value) != 0) {
        fw_body_unref(unit->local, body);
        body = NULL;
    }
    return body;
}

static bool item_store(struct unit *unit, const struct fw_dump_item *described, uint32_t expires)
{
    const struct work *work = unit->work;
    struct fw_table_local *local = unit->local;
    uint32_t length = described->value_length;
    struct fw_key key = fw_table_key(local, described->key, described->key_length);
    /* One that a client chose is no number of ours. */
    bool has_own_cas = work->number != 0 && described->cas >= work->number;
    uint8_t fields = fw_fields_needed(described->flags, expires, has_own_cas ? described->cas : 0);
    if (!fw_operation_fits(work->cache, key.length, described->flags, length)) {
        return false;
    }
    struct fw_body *body = length > FW_ITEM_INLINE_MAX ? body_restore(unit, described) : NULL;
    struct fw_hold hold;
    if ((length > FW_ITEM_INLINE_MAX && body == NULL) ||
        !fw_table_reserve(local, fw_item_size(key.length, length, FW_ITEM_FIELDS))) {
        if (body != NULL) {
            fw_body_unref(local, body);
        }
        return false;
    }
    fw_table_hold(local, &hold, &key);
    struct fw_item *item;
    if (body != NULL) {
        item = fw_hold_attach(&hold, body, fields);
    } else {
        item = fw_hold_write(&hold, length, fields, NULL);
        memcpy(fw_item_value(item), described->value, length);
    }
    item_restore(work, item, described, expires);
    fw_hold_release(&hold);
    return true;
}

static int load_block(struct unit *unit, struct fw_reason *reason)
{
    const struct work *work = unit->work;
    struct fw_dump_cursor cursor = {0};
    struct fw_dump_item item;
    int rc = fw_dump_check(&unit->block, reason);
    while (rc == 0 && (rc = fw_dump_next_item(&unit->block, &cursor, &item, reason)) == 1) {
        int64_t left = item.expires_s == 0 ? 0 : item.expires_s - work->now_s;
        rc = 0;
        if (left < 0 || (left == 0 && item.expires_s != 0)) {
            unit->expired++;
            continue;
        }
        left = left < UINT32_MAX - (int64_t)work->now ? left : UINT32_MAX - (int64_t)work->now;
        bool is_stored = item_store(unit, &item, left == 0 ? 0 : work->now + (uint32_t)left);
        unit->items += is_stored ? 1 : 0;
        unit->refused += is_stored ? 0 : 1;
    }
    return rc;
}

static void load_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct unit *unit = FW_CONTAINER_OF(job, struct unit, job);
    struct fw_reason reason;
    int rc = atomic_load(&unit->work->must_end) ? 0 : load_block(unit, &reason);
    if (rc != 0) {
        work_fail(unit->work, rc, &reason);
    }
}

static struct fw_job_runnable load_units = {.run = load_run, .name = "block of the image"};

static void load_feed(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct work *work = FW_CONTAINER_OF(job, struct work, job);
    struct fw_reason reason;
    uint32_t used = 0; /* So many units have been posted at least once. */
    int rc = fw_dump_open(&work->reader, &reason);
    if (rc == 0) {
        uint64_t number = work->reader.header.number;
        work->image->has_new_numbers = number > FW_ITEM_NUMBER_END / 2;
        work->number = work->image->has_new_numbers ? 0 : number;
    }
    while (rc == 0 && !atomic_load(&work->must_end)) {
        struct unit *unit = used < UNITS ? &work->units[used++] : unit_rejoin(work);
        FW_ASSERT(unit != NULL);
        rc = fw_dump_next_block(&work->reader, &unit->block, &reason);
        if (rc != 1) {
            break;
        }
        rc = unit_post(unit, &load_units, &reason);
    }
    while (unit_rejoin(work) != NULL) {
    }
    if (rc != 0) {
        work_fail(work, rc, &reason);
    }
}

static struct fw_job_runnable load_feeder = {.run = load_feed, .name = "image"};

/* ---- both ---------------------------------------------------------------------------------- */

static void work_fini(struct work *work)
{
    for (uint32_t i = 0; i < UNITS; i++) {
        struct unit *unit = &work->units[i];
        work->image->items += unit->items;
        work->image->expired += unit->expired;
        work->image->refused += unit->refused;
        fw_dump_block_fini(&unit->block);
        if (unit->local != NULL) {
            fw_table_local_destroy(unit->local);
        }
    }
    free(work->units);
    fw_mutex_fini(&work->lock);
}

static int work_init(struct work *work, struct fw_jobs *jobs, struct fw_cache *cache,
                     struct fw_image *image, struct fw_reason *reason)
{
    *image = (struct fw_image){0};
    *work = (struct work){.jobs = jobs,
                          .cache = cache,
                          .image = image,
                          .now = fw_cache_clock(cache, fw_clock_now_ns()),
                          .now_s = fw_clock_wall_ns() / FW_NS_PER_S,
                          .units = calloc(UNITS, sizeof(struct unit))};
    if (work->units == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "no memory");
    }
    fw_mutex_init(&work->lock, FW_RANK_BULK);
    for (uint32_t i = 0; i < UNITS; i++) {
        work->units[i].work = work;
        int rc = fw_table_local_create(&work->units[i].local, cache->table);
        if (rc != 0) {
            work_fini(work);
            return fw_reason_errno(reason, rc, "no memory");
        }
        fw_table_local_set_now(work->units[i].local, work->now);
    }
    return 0;
}

/* Lets the feeder do it, and waits. What came of it is in work->rc. */
static void work_run(struct work *work, struct fw_job_runnable *feeder)
{
    struct fw_job *job;
    struct fw_reason reason;
    int rc = fw_jobs_post(work->jobs, &work->job, feeder, work, 0,
                          FW_JOB_FEEDER | FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY);
    if (rc != 0) {
        work_fail(work, fw_reason_errno(&reason, rc, "cannot post the work"), &reason);
        return;
    }
    enum fw_rejoin rejoin = fw_jobs_rejoin_wait(work->jobs, work, 0, FW_JOBS_FOREVER, &job);
    FW_ASSERT(rejoin == FW_REJOIN_RETURNED && job == &work->job);
}

/* The file is complete, or is not to be. */
static int save_finish(struct work *work, struct fw_reason *reason)
{
    int rc = work->rc;
    *reason = work->reason;
    if (rc == 0) {
        rc = fw_dump_end(&work->writer, reason);
    }
    if (rc != 0) {
        fw_file_writer_abandon(&work->to);
        return rc;
    }
    work->image->items = work->writer.items;
    work->image->bytes = work->writer.bytes;
    return fw_file_writer_commit(&work->to, reason);
}

int fw_image_save(struct fw_jobs *jobs, struct fw_cache *cache, const char *path,
                  struct fw_image *image, struct fw_reason *reason)
{
    struct work work;
    int64_t start_ns = fw_clock_now_ns();
    int rc = work_init(&work, jobs, cache, image, reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_file_writer_open(&work.to, path, MODE, reason);
    if (rc != 0) {
        work_fini(&work);
        return rc;
    }
    work.writer = (struct fw_dump_writer){.write = file_write, .context = &work.to};
    const struct fw_dump_header header = {.made_s = work.now_s,
                                          .number = fw_table_number(cache->table)};
    rc = fw_dump_begin(&work.writer, &header, &work.reason);
    if (rc == 0) {
        work_run(&work, &save_feeder);
    } else {
        work.rc = rc;
    }
    rc = save_finish(&work, reason);
    work_fini(&work);
    image->took_ns = fw_clock_now_ns() - start_ns;
    return rc;
}

int fw_image_load(struct fw_jobs *jobs, struct fw_cache *cache, const char *path,
                  struct fw_image *image, struct fw_reason *reason)
{
    struct work work;
    int64_t start_ns = fw_clock_now_ns();
    int rc = work_init(&work, jobs, cache, image, reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_file_reader_open(&work.from, path, reason);
    if (rc != 0) {
        work_fini(&work);
        return rc;
    }
    work.reader = (struct fw_dump_reader){.read = file_read, .context = &work.from};
    work_run(&work, &load_feeder);
    image->bytes = work.reader.offset;
    if (work.rc != 0) {
        /* Not by a flush, which would take only items with lower numbers than the next. */
        uint64_t cursor = 0;
        while (!fw_table_clear(work.units[0].local, &cursor, CLEAR_BUCKETS)) {
        }
        *reason = work.reason;
    } else if (work.number > 0) {
        fw_table_take_numbers(cache->table, work.number - 1);
    }
    rc = work.rc;
    fw_file_reader_close(&work.from);
    work_fini(&work);
    image->took_ns = fw_clock_now_ns() - start_ns;
    return rc;
}
