/* SPDX-License-Identifier: Apache-2.0 */
#include "io/disk_record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/text.h"

enum { EXACT_MAX_DEFAULT = 4096, SAMPLES_DEFAULT = 256 };

static const uint32_t NONE = UINT32_MAX;

struct record_write {
    uint64_t offset;
    size_t size;
    uint8_t *bytes;
    bool sync;
    uint32_t finished_at; /* While enumerating: the event, or NONE if it has not happened yet. */
};

enum event_kind { EVENT_STARTED, EVENT_FINISHED, EVENT_FLUSHED, EVENT_MARK };

struct record_event {
    enum event_kind kind;
    uint64_t value; /* The write; of a flush, the events before it was started; the mark. */
};

struct fw_disk_record {
    struct fw_disk_memory *memory;
    uint8_t *initial; /* What the disk held when the record began. */
    struct record_write *writes;
    struct record_event *events;
    uint32_t write_count;
    uint32_t event_count;
    uint32_t unfinished; /* Operations under way; each has an event to come. */
    size_t bytes_kept;
};

static void record_note(struct fw_disk_record *record, enum event_kind kind, uint64_t value)
{
    FW_ASSERT(record->event_count < FW_DISK_RECORD_EVENTS_MAX);
    record->events[record->event_count++] = (struct record_event){.kind = kind, .value = value};
}

static int record_write_keep(struct fw_disk_record *record, const struct fw_disk_op *op)
{
    if (op->size > FW_DISK_RECORD_BYTES_MAX - record->bytes_kept) {
        return -ENOSPC;
    }
    uint8_t *bytes = malloc(op->size);
    if (bytes == NULL) {
        return -ENOMEM;
    }
    if (op->kind == FW_DISK_WRITE) {
        memcpy(bytes, op->from, op->size);
    } else {
        memset(bytes, FW_DISK_MEMORY_DISCARDED, op->size);
    }
    record->bytes_kept += op->size;
    record->writes[record->write_count] = (struct record_write){
        .offset = op->offset,
        .size = op->size,
        .bytes = bytes,
        .sync = op->kind == FW_DISK_WRITE && op->sync,
    };
    return 0;
}

static int record_started(void *context, struct fw_disk_op *op)
{
    struct fw_disk_record *record = context;
    if (op->kind == FW_DISK_READ) {
        return 0;
    }
    if (record->event_count + record->unfinished + 2 > FW_DISK_RECORD_EVENTS_MAX) {
        return -ENOSPC; /* Its two events would not fit. */
    }
    if (op->kind == FW_DISK_FLUSH) {
        op->tag = record->event_count;
    } else {
        int rc = record_write_keep(record, op);
        if (rc != 0) {
            return rc;
        }
        op->tag = record->write_count++;
        record_note(record, EVENT_STARTED, op->tag);
    }
    record->unfinished++;
    return 0;
}

static void record_finished(void *context, struct fw_disk_op *op)
{
    struct fw_disk_record *record = context;
    if (op->kind != FW_DISK_READ) {
        record->unfinished--;
        record_note(record, op->kind == FW_DISK_FLUSH ? EVENT_FLUSHED : EVENT_FINISHED, op->tag);
    }
}

static const struct fw_disk_memory_observer record_observer = {
    .started = record_started,
    .finished = record_finished,
};

static void record_free(struct fw_disk_record *record)
{
    fw_disk_close(&record->memory->disk);
    free(record->events);
    free(record->writes);
    free(record->initial);
    free(record);
}

int fw_disk_record_create(struct fw_disk_record **record,
                          const struct fw_disk_memory_options *options)
{
    struct fw_disk_record *own = calloc(1, sizeof *own);
    if (own == NULL) {
        return -ENOMEM;
    }
    int rc = fw_disk_memory_create(&own->memory, options);
    if (rc != 0) {
        free(own);
        return rc;
    }
    own->memory->observer = &record_observer;
    own->memory->observer_context = own;
    own->initial = calloc(1, options->size);
    own->writes = calloc(FW_DISK_RECORD_EVENTS_MAX, sizeof *own->writes);
    own->events = calloc(FW_DISK_RECORD_EVENTS_MAX, sizeof *own->events);
    if (own->initial == NULL || own->writes == NULL || own->events == NULL) {
        record_free(own);
        return -ENOMEM;
    }
    *record = own;
    return 0;
}

int fw_disk_record_create_after(struct fw_disk_record **record,
                                const struct fw_disk_memory_options *options,
                                const struct fw_disk_crash *crash)
{
    int rc = fw_disk_record_create(record, options);
    if (rc == 0) {
        const struct fw_disk_memory *from =
            FW_CONTAINER_OF(crash->disk, struct fw_disk_memory, disk);
        FW_ASSERT(options->size == from->disk.properties.size);
        memcpy((*record)->initial, from->bytes, options->size);
        memcpy((*record)->memory->bytes, from->bytes, options->size);
    }
    return rc;
}

void fw_disk_record_destroy(struct fw_disk_record *record)
{
    for (uint32_t i = 0; i < record->write_count; i++) {
        free(record->writes[i].bytes);
    }
    record_free(record);
}

struct fw_disk *fw_disk_record_disk(struct fw_disk_record *record)
{
    return &record->memory->disk;
}

void fw_disk_record_mark(struct fw_disk_record *record, uint64_t mark)
{
    FW_ASSERT(record->event_count + record->unfinished < FW_DISK_RECORD_EVENTS_MAX);
    record_note(record, EVENT_MARK, mark);
}

/* The part of one live write that falls on one unit. */
struct piece {
    uint32_t live;    /* Index into `live`. */
    uint32_t unit;    /* Index into `units`. */
    uint32_t version; /* Of that unit. */
    uint64_t offset;
};

/* A unit that was written to, and may or may not hold that after the crash. */
struct unit {
    uint64_t offset;
    uint32_t version_first; /* Index into `versions`, where its durable bytes are. */
    uint32_t version_count; /* At least 1. */
    uint32_t chosen;        /* Which of them the image being made holds. */
};

struct fw_disk_enumeration {
    struct fw_disk_record *record;
    struct fw_disk_record_limits limits;
    struct fw_disk_record_summary summary;
    int (*visit)(const struct fw_disk_crash *crash, void *context);
    void *context;
    struct fw_disk_crash crash;
    const struct record_event *cause; /* The event before the crash point, NULL before all. */

    /*
     * Three copies of the disk: what is durable; the image as it was shown; and the image disk,
     * which the visitor may change until that is undone. Outside of `units` all three are equal.
     */
    uint8_t *durable;
    uint8_t *shown;
    struct fw_disk_memory *image;

    uint32_t *durable_writer; /* Of each unit: 1 + the write its durable bytes are of, or 0. */

    /* Writes that were started and are not durable, by their start. */
    uint32_t *live;
    uint32_t live_count;

    /* Made anew for each crash point. Pieces are in the order of live writes, then offsets. */
    struct piece *pieces;
    struct piece **by_offset; /* The same, in that order. */
    struct unit *units;
    const uint8_t **versions;
    uint32_t piece_count, unit_count, version_count;
    uint32_t piece_capacity;
    uint32_t *piece_first; /* Of each live write; one more for the end. */
};

static const struct record_write *live_write(const struct fw_disk_enumeration *own, uint32_t live)
{
    return &own->record->writes[own->live[live]];
}

static void image_set(struct fw_disk_enumeration *own, uint64_t offset, const uint8_t *bytes)
{
    memcpy(own->shown + offset, bytes, own->limits.tear_size);
    memcpy(own->image->bytes + offset, bytes, own->limits.tear_size);
}

static void image_apply_choice(struct fw_disk_enumeration *own)
{
    for (uint32_t i = 0; i < own->unit_count; i++) {
        const struct unit *unit = &own->units[i];
        image_set(own, unit->offset, own->versions[unit->version_first + unit->chosen]);
    }
}

static void image_restore_sector(void *context, uint64_t offset)
{
    struct fw_disk_enumeration *own = context;
    memcpy(own->image->bytes + offset, own->shown + offset,
           own->image->disk.properties.sector_size);
}

/* Shows the visitor the image whose versions have been chosen. */
static int image_show(struct fw_disk_enumeration *own)
{
    image_apply_choice(own);
    int rc = own->visit(&own->crash, own->context);
    FW_ASSERT(own->image->disk.in_flight == 0);
    fw_disk_memory_touched_take(own->image, image_restore_sector, own);
    own->crash.image++;
    own->summary.images++;
    return rc;
}

/* The write has become durable: nothing older can come back, and it cannot get lost. */
static void live_settle(struct fw_disk_enumeration *own, uint32_t live)
{
    const struct record_write *write = live_write(own, live);
    uint32_t writer = own->live[live] + 1;
    size_t tear_size = own->limits.tear_size;
    for (size_t done = 0; done < write->size; done += tear_size) {
        uint64_t offset = write->offset + done;
        if (own->durable_writer[offset / tear_size] < writer) {
            own->durable_writer[offset / tear_size] = writer;
            memcpy(own->durable + offset, write->bytes + done, tear_size);
            image_set(own, offset, write->bytes + done);
        }
    }
}

/*
 * Settles what has become durable and takes it off the list: sync writes that have finished, and
 * all that had finished before a flush was started that has finished now.
 */
static void lives_settle(struct fw_disk_enumeration *own, uint64_t flush_started_at)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < own->live_count; i++) {
        const struct record_write *write = live_write(own, i);
        bool synced = write->sync && write->finished_at != NONE;
        if (synced || write->finished_at < flush_started_at) {
            live_settle(own, i);
        } else {
            own->live[kept++] = own->live[i];
        }
    }
    own->live_count = kept;
}

/* Pieces of the same unit may come in any order. */
static int piece_compare(const void *left, const void *right)
{
    const struct piece *one = *(struct piece *const *)left;
    const struct piece *other = *(struct piece *const *)right;
    return one->offset < other->offset ? -1 : one->offset > other->offset;
}

static int pieces_grow(struct fw_disk_enumeration *own)
{
    uint32_t capacity = own->piece_capacity * 2;
    struct piece *pieces = realloc(own->pieces, capacity * sizeof *pieces);
    if (pieces == NULL) {
        return -ENOMEM;
    }
    own->pieces = pieces;
    struct piece **by_offset = realloc(own->by_offset, capacity * sizeof(struct piece *));
    if (by_offset == NULL) {
        return -ENOMEM;
    }
    own->by_offset = by_offset;
    struct unit *units = realloc(own->units, capacity * sizeof *units);
    if (units == NULL) {
        return -ENOMEM;
    }
    own->units = units;
    /* A unit has its durable bytes and at most one version for each of its pieces. */
    const uint8_t **versions = realloc(own->versions, 2 * (size_t)capacity * sizeof *versions);
    if (versions == NULL) {
        return -ENOMEM;
    }
    own->versions = versions;
    own->piece_capacity = capacity;
    return 0;
}

static int pieces_gather(struct fw_disk_enumeration *own)
{
    size_t tear_size = own->limits.tear_size;
    own->piece_count = 0;
    for (uint32_t live = 0; live < own->live_count; live++) {
        const struct record_write *write = live_write(own, live);
        own->piece_first[live] = own->piece_count;
        for (size_t done = 0; done < write->size; done += tear_size) {
            uint64_t offset = write->offset + done;
            if (own->durable_writer[offset / tear_size] > own->live[live]) {
                continue; /* A later write is durable already: this one will not come back. */
            }
            if (own->piece_count == own->piece_capacity) {
                int rc = pieces_grow(own);
                if (rc != 0) {
                    return rc;
                }
            }
            own->pieces[own->piece_count++] = (struct piece){.live = live, .offset = offset};
        }
    }
    own->piece_first[own->live_count] = own->piece_count;
    return 0;
}

/* The version of the unit that has these bytes, added if there is none. */
static uint32_t version_find(struct fw_disk_enumeration *own, struct unit *unit,
                             const uint8_t *bytes)
{
    for (uint32_t i = 0; i < unit->version_count; i++) {
        if (memcmp(own->versions[unit->version_first + i], bytes, own->limits.tear_size) == 0) {
            return i;
        }
    }
    own->versions[unit->version_first + unit->version_count] = bytes;
    return unit->version_count++;
}

/* Makes the unit that the pieces share. */
static void unit_make(struct fw_disk_enumeration *own, struct piece *const *pieces,
                      uint32_t piece_count)
{
    uint64_t offset = pieces[0]->offset;
    struct unit unit = {
        .offset = offset,
        .version_first = own->version_count,
        .version_count = 1,
    };
    own->versions[unit.version_first] = own->durable + offset;
    for (uint32_t i = 0; i < piece_count; i++) {
        const struct record_write *write = live_write(own, pieces[i]->live);
        pieces[i]->unit = own->unit_count;
        pieces[i]->version = version_find(own, &unit, write->bytes + (offset - write->offset));
    }
    own->units[own->unit_count++] = unit;
    own->version_count += unit.version_count;
}

/* Finds out which units can hold what after a crash at this point. Chosen is what is durable. */
static int point_prepare(struct fw_disk_enumeration *own)
{
    int rc = pieces_gather(own);
    if (rc != 0) {
        return rc;
    }
    for (uint32_t i = 0; i < own->piece_count; i++) {
        own->by_offset[i] = &own->pieces[i];
    }
    qsort(own->by_offset, own->piece_count, sizeof(struct piece *), piece_compare);
    own->unit_count = 0;
    own->version_count = 0;
    for (uint32_t first = 0, end = 0; first < own->piece_count; first = end) {
        uint64_t offset = own->by_offset[first]->offset;
        while (end < own->piece_count && own->by_offset[end]->offset == offset) {
            end++;
        }
        unit_make(own, &own->by_offset[first], end - first);
    }
    return 0;
}

/* How many images there are, or anything above `exact_max` if there are more. */
static uint64_t point_image_count(const struct fw_disk_enumeration *own)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < own->unit_count && count <= own->limits.exact_max; i++) {
        count *= own->units[i].version_count;
    }
    return count;
}

static void choose_none(struct fw_disk_enumeration *own)
{
    for (uint32_t i = 0; i < own->unit_count; i++) {
        own->units[i].chosen = 0;
    }
}

/* Lets the pieces [from, to) of a live write be there. */
static void choose_pieces(struct fw_disk_enumeration *own, uint32_t live, uint32_t from,
                          uint32_t to)
{
    uint32_t first = own->piece_first[live];
    FW_ASSERT(from <= to && first + to <= own->piece_first[live + 1]);
    for (uint32_t i = first + from; i < first + to; i++) {
        const struct piece *piece = &own->pieces[i];
        own->units[piece->unit].chosen = piece->version;
    }
}

static uint32_t live_piece_count(const struct fw_disk_enumeration *own, uint32_t live)
{
    return own->piece_first[live + 1] - own->piece_first[live];
}

static void choose_write(struct fw_disk_enumeration *own, uint32_t live)
{
    choose_pieces(own, live, 0, live_piece_count(own, live));
}

static void choose_all_but(struct fw_disk_enumeration *own, uint32_t one, uint32_t other)
{
    choose_none(own);
    for (uint32_t live = 0; live < own->live_count; live++) {
        if (live != one && live != other) {
            choose_write(own, live);
        }
    }
}

/* Every combination: counts through the versions as through the digits of a number. */
static int point_show_exact(struct fw_disk_enumeration *own)
{
    for (;;) {
        int rc = image_show(own);
        if (rc != 0) {
            return rc;
        }
        uint32_t digit = 0;
        while (digit < own->unit_count &&
               own->units[digit].chosen + 1 == own->units[digit].version_count) {
            own->units[digit++].chosen = 0;
        }
        if (digit == own->unit_count) {
            return 0;
        }
        own->units[digit].chosen++;
    }
}

static int show_prefixes(struct fw_disk_enumeration *own)
{
    int rc = image_show(own);
    for (uint32_t live = 0; rc == 0 && live < own->live_count; live++) {
        choose_write(own, live);
        rc = image_show(own);
    }
    return rc;
}

/* These two writes alone, then all but these two. They may be one and the same. */
static int show_pair(struct fw_disk_enumeration *own, uint32_t one, uint32_t other)
{
    choose_none(own);
    choose_write(own, one);
    choose_write(own, other);
    int rc = image_show(own);
    if (rc == 0) {
        choose_all_but(own, one, other);
        rc = image_show(own);
    }
    return rc;
}

static int show_pairs(struct fw_disk_enumeration *own)
{
    int rc = 0;
    for (uint32_t one = 0; rc == 0 && one < own->live_count; one++) {
        rc = show_pair(own, one, one);
        if (own->live_count <= FW_DISK_RECORD_PAIRS_MAX) {
            for (uint32_t other = one + 1; rc == 0 && other < own->live_count; other++) {
                rc = show_pair(own, one, other);
            }
        }
    }
    return rc;
}

/* The pieces [from, to) of the write, all earlier writes, and the later ones if asked for. */
static int show_tear(struct fw_disk_enumeration *own, uint32_t torn, uint32_t from, uint32_t to,
                     bool with_later)
{
    choose_none(own);
    for (uint32_t live = 0; live < torn; live++) {
        choose_write(own, live);
    }
    choose_pieces(own, torn, from, to);
    for (uint32_t live = torn + 1; with_later && live < own->live_count; live++) {
        choose_write(own, live);
    }
    return image_show(own);
}

static int show_tears(struct fw_disk_enumeration *own, bool with_later)
{
    int rc = 0;
    for (uint32_t torn = 0; torn < own->live_count; torn++) {
        uint32_t count = live_piece_count(own, torn);
        for (uint32_t cut = 1; rc == 0 && cut < count; cut++) {
            rc = show_tear(own, torn, 0, cut, with_later);
            if (rc == 0) {
                rc = show_tear(own, torn, cut, count, with_later);
            }
        }
    }
    return rc;
}

/* Chance decides by writes and by units in turn. */
static int show_samples(struct fw_disk_enumeration *own)
{
    struct fw_random chance;
    fw_random_init(&chance, own->limits.seed + own->crash.point);
    int rc = 0;
    for (uint32_t sample = 0; rc == 0 && sample < own->limits.samples; sample++) {
        choose_none(own);
        if (sample % 2 == 0) {
            for (uint32_t live = 0; live < own->live_count; live++) {
                if (fw_random_chance(&chance, 1, 2)) {
                    choose_write(own, live);
                }
            }
        } else {
            for (uint32_t i = 0; i < own->unit_count; i++) {
                struct unit *unit = &own->units[i];
                unit->chosen = (uint32_t)fw_random_below(&chance, unit->version_count);
            }
        }
        rc = image_show(own);
    }
    return rc;
}

static int point_show_some(struct fw_disk_enumeration *own)
{
    own->summary.points_sampled++;
    int rc = show_prefixes(own);
    if (rc == 0) {
        rc = show_pairs(own);
    }
    if (rc == 0) {
        rc = show_tears(own, false);
    }
    if (rc == 0) {
        rc = show_tears(own, true);
    }
    return rc != 0 ? rc : show_samples(own);
}

static int point_show(struct fw_disk_enumeration *own)
{
    int rc = point_prepare(own);
    if (rc != 0) {
        return rc;
    }
    own->crash.image = 0;
    bool exact = point_image_count(own) <= own->limits.exact_max;
    rc = exact ? point_show_exact(own) : point_show_some(own);
    own->crash.point++;
    own->summary.points++;
    return rc;
}

/* Takes one event in. True if the crash could show something new after it. */
static bool event_take(struct fw_disk_enumeration *own, uint32_t number)
{
    struct fw_disk_record *record = own->record;
    const struct record_event *event = &record->events[number];
    own->cause = event;
    switch (event->kind) {
    case EVENT_STARTED:
        record->writes[event->value].finished_at = NONE;
        own->live[own->live_count++] = (uint32_t)event->value;
        break;
    case EVENT_FINISHED:
        record->writes[event->value].finished_at = number;
        lives_settle(own, 0);
        return record->writes[event->value].sync;
    case EVENT_FLUSHED:
        lives_settle(own, event->value);
        break;
    case EVENT_MARK:
        own->crash.mark = event->value;
        break;
    }
    return true;
}

static int enumeration_run(struct fw_disk_enumeration *own)
{
    int rc = point_show(own); /* Before anything happened. */
    for (uint32_t i = 0; rc == 0 && i < own->record->event_count; i++) {
        if (event_take(own, i)) {
            rc = point_show(own);
        }
    }
    return rc;
}

static void enumeration_fini(struct fw_disk_enumeration *own)
{
    if (own->image != NULL) {
        fw_disk_close(&own->image->disk);
    }
    free(own->piece_first);
    free(own->versions);
    free(own->units);
    free(own->by_offset);
    free(own->pieces);
    free(own->live);
    free(own->durable_writer);
    free(own->shown);
    free(own->durable);
}

static int enumeration_init(struct fw_disk_enumeration *own)
{
    const struct fw_disk_record *record = own->record;
    const struct fw_disk_properties *properties = &record->memory->disk.properties;
    size_t writes = record->write_count;
    own->durable = malloc(properties->size);
    own->shown = malloc(properties->size);
    own->durable_writer =
        calloc(properties->size / own->limits.tear_size, sizeof *own->durable_writer);
    own->live = calloc(writes + 1, sizeof *own->live);
    own->piece_first = calloc(writes + 1, sizeof *own->piece_first);
    own->piece_capacity = 1;
    int rc = pieces_grow(own);
    if (rc != 0 || own->durable == NULL || own->shown == NULL || own->durable_writer == NULL ||
        own->live == NULL || own->piece_first == NULL) {
        return -ENOMEM;
    }
    const struct fw_disk_memory_options options = {.size = properties->size,
                                                   .sector_size = properties->sector_size};
    rc = fw_disk_memory_create(&own->image, &options);
    if (rc != 0) {
        return rc;
    }
    memcpy(own->durable, record->initial, properties->size);
    memcpy(own->shown, record->initial, properties->size);
    memcpy(own->image->bytes, record->initial, properties->size);
    own->crash = (struct fw_disk_crash){.disk = &own->image->disk, .enumeration = own};
    return 0;
}

int fw_disk_record_enumerate(struct fw_disk_record *record,
                             const struct fw_disk_record_limits *limits,
                             struct fw_disk_record_summary *summary,
                             int (*visit)(const struct fw_disk_crash *crash, void *context),
                             void *context)
{
    struct fw_disk_enumeration own = {
        .record = record,
        .limits = limits != NULL ? *limits : (struct fw_disk_record_limits){0},
        .visit = visit,
        .context = context,
    };
    uint32_t sector_size = record->memory->disk.properties.sector_size;
    if (own.limits.tear_size == 0) {
        own.limits.tear_size = sector_size;
    }
    if (own.limits.exact_max == 0) {
        own.limits.exact_max = EXACT_MAX_DEFAULT;
    }
    if (own.limits.samples == 0) {
        own.limits.samples = SAMPLES_DEFAULT;
    }
    if (sector_size % own.limits.tear_size != 0) {
        return -EINVAL;
    }
    int rc = enumeration_init(&own);
    if (rc == 0) {
        rc = enumeration_run(&own);
    }
    if (summary != NULL) {
        *summary = own.summary;
    }
    enumeration_fini(&own);
    return rc;
}

static void describe_cause(struct fw_text *text, const struct record_event *cause)
{
    if (cause == NULL) {
        fw_text_printf(text, "before anything was written");
        return;
    }
    switch (cause->kind) {
    case EVENT_STARTED:
        fw_text_printf(text, "after write %" PRIu64 " was started", cause->value);
        break;
    case EVENT_FINISHED:
        fw_text_printf(text, "after sync write %" PRIu64 " had finished", cause->value);
        break;
    case EVENT_FLUSHED:
        fw_text_printf(text, "after a flush");
        break;
    case EVENT_MARK:
        fw_text_printf(text, "after the mark was set");
        break;
    }
}

/* Whether the piece is there, or looks as if it were. */
static bool piece_is_kept(const struct fw_disk_enumeration *own, const struct piece *piece)
{
    return own->units[piece->unit].chosen == piece->version;
}

static void describe_live(struct fw_text *text, const struct fw_disk_enumeration *own,
                          uint32_t live)
{
    const struct record_write *write = live_write(own, live);
    uint32_t first = own->piece_first[live];
    uint32_t end = own->piece_first[live + 1];
    uint32_t kept = 0;
    for (uint32_t i = first; i < end; i++) {
        kept += piece_is_kept(own, &own->pieces[i]) ? 1 : 0;
    }
    fw_text_printf(text, "%s write %" PRIu32 " (%zu bytes at %" PRIu64 ") %s", live == 0 ? "" : ",",
                   own->live[live], write->size, write->offset,
                   kept == end - first ? "kept"
                   : kept == 0         ? "lost"
                                       : "torn, kept of it");
    if (kept == 0 || kept == end - first) {
        return;
    }
    for (uint32_t i = first, next; i < end; i = next) {
        next = i + 1;
        if (piece_is_kept(own, &own->pieces[i])) {
            while (next < end && piece_is_kept(own, &own->pieces[next]) &&
                   own->pieces[next].offset ==
                       own->pieces[next - 1].offset + own->limits.tear_size) {
                next++;
            }
            uint64_t from = own->pieces[i].offset;
            uint64_t to = own->pieces[next - 1].offset + own->limits.tear_size - 1;
            fw_text_printf(text, " %" PRIu64 "-%" PRIu64, from, to);
        }
    }
}

const char *fw_disk_crash_describe(const struct fw_disk_crash *crash, char *buffer, size_t size)
{
    const struct fw_disk_enumeration *own = crash->enumeration;
    struct fw_text text;
    fw_text_init(&text, buffer, size);
    fw_text_printf(&text, "crash %" PRIu64 ".%" PRIu64 " ", crash->point, crash->image);
    describe_cause(&text, own->cause);
    fw_text_printf(&text, ", mark %" PRIu64, crash->mark);
    if (own->live_count > 0) {
        fw_text_append_string(&text, "; not flushed:");
        for (uint32_t live = 0; live < own->live_count; live++) {
            describe_live(&text, own, live);
        }
    }
    return buffer;
}
