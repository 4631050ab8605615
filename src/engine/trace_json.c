/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace as JSON, in the format that chrome://tracing and ui.perfetto.dev read.
 *
 * Each core is a track ("thread") with a slice per tick; each fom a track of asynchronous slices,
 * by its id: its whole life and, inside, its waits and brackets. A wait has the same name at its
 * beginning and at its end, made from type and phase: the phase is what a fom does not change while
 * it waits. An arrow goes from the tick that woke a fom to the tick that it was woken for, if both
 * were on one core; what comes from afar has no tick of this ring to start from.
 *
 * The rings are read one after the other, each at once, and written from the copy. So what was
 * traced while the file was written is in it for the later cores only, and a slice may end in the
 * file without having begun. Viewers bear that.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <fairway/engine.h>

#include "base/assert.h"
#include "base/json.h"
#include "engine/core.h"
#include "io/clock.h"

enum {
    BUFFER_SIZE = 8 * 1024,
    NAME_SIZE = 128,
    ARMED_SHOWN = 8,    /* Channels of one wait. */
    WAKES_KEPT = 1024,  /* Arrows that have begun; another fom in the same place: one less. */
    PROCESS_ID = 1,     /* The format wants one. */
    NS_PER_UNIT = 1000, /* It counts in microseconds. */
};

/* A moment by both clocks. */
struct pair {
    uint64_t cycles;
    int64_t ns;
};

struct wake {
    uint64_t fom_id;
    int64_t ns;
};

struct writer {
    struct fw_json json;
    struct fw_domain *domain;
    const struct fw_core *core;
    struct fw_trace_record *records;
    uint32_t count;
    int64_t epoch_ns;
    struct pair before; /* The record that is being written lies between these. */
    struct pair after;
    uint64_t arrows; /* So far, for their numbers. */
    struct wake wakes[WAKES_KEPT];
    uint64_t armed[ARMED_SHOWN]; /* Names of what was armed since the last tick of this core. */
    uint32_t armed_count;
    uint64_t waits_on[ARMED_SHOWN]; /* The same, of the last tick that ended. */
    uint32_t waits_count;
    char buffer[BUFFER_SIZE];
};

static const char *const step_names[] = {
    [FW_STEP_AGAIN] = "again", [FW_STEP_YIELD] = "yield", [FW_STEP_WAIT] = "wait"};
static const char *const wait_names[] = {
    [FW_TRACE_WAIT_PATIENT] = "event",
    [FW_TRACE_WAIT_LIMITED] = "event, limited",
    [FW_TRACE_WAIT_DEADLINE] = "event or deadline",
    [FW_TRACE_WAIT_PERMIT] = "permit to block",
    [FW_TRACE_WAIT_UNLIMITED] = "event, unlimited",
};
static const char *const ready_names[] = {
    [FW_TRACE_READY_STARTED] = "started",   [FW_TRACE_READY_EVENT] = "event",
    [FW_TRACE_READY_DEADLINE] = "deadline", [FW_TRACE_READY_OVERDUE] = "overdue",
    [FW_TRACE_READY_PERMIT] = "permit",     [FW_TRACE_READY_MOVED] = "moved",
};

/* ---- time ---------------------------------------------------------------------------------- */

/* Between the two pairs, in proportion, and never outside of them. */
static int64_t place(const struct writer *writer, uint64_t cycles)
{
    const struct pair *before = &writer->before;
    const struct pair *after = &writer->after;
    if (cycles <= before->cycles || after->ns <= before->ns) {
        return before->ns;
    }
    if (cycles >= after->cycles) {
        return after->ns;
    }
    __extension__ typedef unsigned __int128 product_t;
    product_t product = (product_t)(cycles - before->cycles) * (uint64_t)(after->ns - before->ns);
    return before->ns + (int64_t)(product / (after->cycles - before->cycles));
}

static int64_t ended_ns(const struct writer *writer, const struct fw_trace_record *record)
{
    return place(writer, record->cycles);
}

static int64_t begun_ns(const struct writer *writer, const struct fw_trace_record *record)
{
    uint64_t cycles = record->cycles;
    return place(writer, cycles > record->duration ? cycles - record->duration : 0);
}

/* The round that record `number` begins, and the next, or if there is none the present. */
static void pairs_advance(struct writer *writer, uint32_t number)
{
    const struct fw_trace_record *record = &writer->records[number];
    writer->before = (struct pair){record->cycles, (int64_t)record->what};
    for (uint32_t i = number + 1; i < writer->count; i++) {
        if (writer->records[i].kind == FW_TRACE_ROUND) {
            writer->after =
                (struct pair){writer->records[i].cycles, (int64_t)writer->records[i].what};
            return;
        }
    }
    writer->after = (struct pair){fw_clock_ticks(), fw_clock_now_ns()};
}

/* ---- events -------------------------------------------------------------------------------- */

static void write_time(struct writer *writer, const char *key, int64_t ns)
{
    fw_json_key(&writer->json, key);
    fw_json_double(&writer->json, (double)ns / NS_PER_UNIT);
}

static void write_id(struct writer *writer, const char *key, uint64_t id)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRIx64, id);
    fw_json_key(&writer->json, key);
    fw_json_string(&writer->json, text);
}

static void write_string(struct writer *writer, const char *key, const char *value)
{
    fw_json_key(&writer->json, key);
    fw_json_string(&writer->json, value);
}

/* Begins an event: what all of them have. */
static void event_begin(struct writer *writer, const char *phase, const char *category,
                        const char *name, int64_t ns)
{
    struct fw_json *json = &writer->json;
    fw_json_object_begin(json);
    write_string(writer, "ph", phase);
    write_string(writer, "cat", category);
    write_string(writer, "name", name);
    fw_json_key(json, "pid");
    fw_json_unsigned(json, PROCESS_ID);
    fw_json_key(json, "tid");
    fw_json_unsigned(json, writer->core->index);
    write_time(writer, "ts", ns - writer->epoch_ns);
}

static void args_begin(struct writer *writer)
{
    fw_json_key(&writer->json, "args");
    fw_json_object_begin(&writer->json);
}

static void event_end(struct writer *writer)
{
    fw_json_object_end(&writer->json);
}

static void args_end(struct writer *writer)
{
    fw_json_object_end(&writer->json);
    event_end(writer);
}

static const struct fw_fom_type *type_of(const struct writer *writer,
                                         const struct fw_trace_record *record)
{
    FW_ASSERT(record->type_number < writer->domain->type_count);
    return writer->domain->types[record->type_number];
}

/* "type:phase", and what follows. */
static void name_format(const struct writer *writer, const struct fw_trace_record *record,
                        const char *suffix, char name[static NAME_SIZE])
{
    const struct fw_fom_type *type = type_of(writer, record);
    (void)snprintf(name, NAME_SIZE, "%s:%s%s", type->name, fw_phase_name(type, record->phase),
                   suffix);
}

/* The beginning ("b") or end ("e") of a slice on the fom's own track. */
static void fom_event_begin(struct writer *writer, const struct fw_trace_record *record,
                            const char *phase, const char *name)
{
    event_begin(writer, phase, "fom", name, ended_ns(writer, record));
    write_id(writer, "id", record->fom_id);
}

static void write_metadata(struct writer *writer, const char *what, const char *name)
{
    event_begin(writer, "M", "__metadata", what, writer->epoch_ns);
    args_begin(writer);
    write_string(writer, "name", name);
    args_end(writer);
}

/* ---- records ------------------------------------------------------------------------------- */

static void write_slice(struct writer *writer, const struct fw_trace_record *record,
                        const char *category, const char *name)
{
    int64_t begun = begun_ns(writer, record);
    event_begin(writer, "X", category, name, begun);
    write_time(writer, "dur", ended_ns(writer, record) - begun);
}

static struct wake *wake_of(struct writer *writer, uint64_t fom_id)
{
    return &writer->wakes[(fom_id ^ (fom_id >> 48)) % WAKES_KEPT];
}

/* The arrow to a tick from the one that woke its fom, if that is known. */
static void write_arrow(struct writer *writer, const struct fw_trace_record *record)
{
    struct wake *wake = wake_of(writer, record->fom_id);
    if (wake->fom_id != record->fom_id) {
        return;
    }
    wake->fom_id = 0;
    writer->arrows++;
    event_begin(writer, "s", "wake", "wake", wake->ns);
    write_id(writer, "id", writer->arrows);
    event_end(writer);
    event_begin(writer, "f", "wake", "wake", begun_ns(writer, record));
    write_id(writer, "id", writer->arrows);
    write_string(writer, "bp", "e");
    event_end(writer);
}

static void write_tick(struct writer *writer, const struct fw_trace_record *record)
{
    const struct fw_fom_type *type = type_of(writer, record);
    unsigned next = (unsigned)record->what;
    char name[NAME_SIZE];
    name_format(writer, record, "", name);
    write_slice(writer, record, "tick", name);
    args_begin(writer);
    write_id(writer, "fom", record->fom_id);
    write_string(writer, "step", step_names[record->detail]);
    write_string(writer, "next", fw_phase_name(type, next));
    args_end(writer);
    write_arrow(writer, record);
    if (next == FW_PHASE_FINISHED) {
        fom_event_begin(writer, record, "e", type->name);
        event_end(writer);
    }
    /* What was armed in this tick is what a wait behind it waits for. */
    for (uint32_t i = 0; i < writer->armed_count; i++) {
        writer->waits_on[i] = writer->armed[i];
    }
    writer->waits_count = writer->armed_count;
    writer->armed_count = 0;
}

static void note_armed(struct writer *writer, const struct fw_trace_record *record)
{
    if (writer->armed_count < ARMED_SHOWN) {
        writer->armed[writer->armed_count++] = record->what;
    }
}

static void write_wait(struct writer *writer, const struct fw_trace_record *record)
{
    char name[NAME_SIZE];
    name_format(writer, record, " waits", name);
    fom_event_begin(writer, record, "b", name);
    args_begin(writer);
    write_string(writer, "for", wait_names[record->detail]);
    fw_json_key(&writer->json, "on");
    fw_json_array_begin(&writer->json);
    for (uint32_t i = 0; i < writer->waits_count; i++) {
        const char *channel = (const char *)(uintptr_t)writer->waits_on[i];
        fw_json_string(&writer->json, channel != NULL ? channel : "a channel without a name");
    }
    fw_json_array_end(&writer->json);
    if (record->what != 0) {
        write_time(writer, "until", (int64_t)record->what - writer->epoch_ns);
    }
    args_end(writer);
}

static void write_ready(struct writer *writer, const struct fw_trace_record *record)
{
    char name[NAME_SIZE];
    if (record->what != 0) {
        *wake_of(writer, record->fom_id) = (struct wake){record->fom_id, ended_ns(writer, record)};
    }
    switch ((enum fw_trace_ready)record->detail) {
    case FW_TRACE_READY_STARTED:
        fom_event_begin(writer, record, "b", type_of(writer, record)->name);
        break;
    case FW_TRACE_READY_MOVED:
        name_format(writer, record, " arrives", name);
        fom_event_begin(writer, record, "n", name);
        break;
    case FW_TRACE_READY_EVENT:
    case FW_TRACE_READY_DEADLINE:
    case FW_TRACE_READY_OVERDUE:
    case FW_TRACE_READY_PERMIT:
        name_format(writer, record, " waits", name);
        fom_event_begin(writer, record, "e", name);
        break;
    }
    args_begin(writer);
    write_string(writer, "by", ready_names[record->detail]);
    if (record->what != 0) {
        write_id(writer, "waker", record->what);
    }
    args_end(writer);
}

/* Something that takes no time: "n" on the track of its fom. */
static void write_instant(struct writer *writer, const struct fw_trace_record *record)
{
    bool is_move = record->kind == FW_TRACE_MOVE;
    char name[NAME_SIZE];
    name_format(writer, record, is_move ? " leaves" : " is failed", name);
    fom_event_begin(writer, record, "n", name);
    args_begin(writer);
    fw_json_key(&writer->json, is_move ? "core" : "errno");
    fw_json_unsigned(&writer->json, record->what);
    args_end(writer);
}

static void write_mark(struct writer *writer, const struct fw_trace_record *record)
{
    fom_event_begin(writer, record, "n", (const char *)(uintptr_t)record->what);
    event_end(writer);
}

static void write_bracket(struct writer *writer, const struct fw_trace_record *record)
{
    bool enters = record->kind == FW_TRACE_BLOCK;
    char name[NAME_SIZE];
    if (enters) { /* The first part of the tick, up to here. */
        name_format(writer, record, "", name);
        write_slice(writer, record, "tick", name);
        args_begin(writer);
        write_id(writer, "fom", record->fom_id);
        write_string(writer, "step", "block");
        args_end(writer);
    }
    name_format(writer, record, " blocks", name);
    fom_event_begin(writer, record, enters ? "b" : "e", name);
    event_end(writer);
}

static void write_record(struct writer *writer, uint32_t number)
{
    const struct fw_trace_record *record = &writer->records[number];
    switch ((enum fw_trace_kind)record->kind) {
    case FW_TRACE_ROUND:
        pairs_advance(writer, number);
        break;
    case FW_TRACE_SLEEP:
        write_slice(writer, record, "core", "asleep");
        event_end(writer);
        break;
    case FW_TRACE_TICK:
        write_tick(writer, record);
        break;
    case FW_TRACE_ARM:
        note_armed(writer, record);
        break;
    case FW_TRACE_WAIT:
        write_wait(writer, record);
        break;
    case FW_TRACE_READY:
        write_ready(writer, record);
        break;
    case FW_TRACE_MOVE:
    case FW_TRACE_FORCE:
        write_instant(writer, record);
        break;
    case FW_TRACE_BLOCK:
    case FW_TRACE_UNBLOCK:
        write_bracket(writer, record);
        break;
    case FW_TRACE_MARK:
        write_mark(writer, record);
        break;
    }
}

static void write_core(struct writer *writer, const struct fw_core *core, uint64_t first)
{
    char name[32];
    writer->core = core;
    writer->armed_count = writer->waits_count = 0;
    (void)snprintf(name, sizeof name, "core %u", core->index);
    write_metadata(writer, "thread_name", name);
    writer->count = fw_trace_read(core->trace_ring, first, writer->records);
    /* Without a pair before them the oldest have no time: they are those of less than a round. */
    uint32_t i = 0;
    while (i < writer->count && writer->records[i].kind != FW_TRACE_ROUND) {
        i++;
    }
    for (; i < writer->count; i++) {
        write_record(writer, i);
    }
}

int fw_domain_trace_write(struct fw_domain *domain,
                          int (*sink)(const char *bytes, size_t length, void *context),
                          void *context)
{
    return fw_domain_trace_write_more(domain, NULL, sink, context);
}

int fw_domain_trace_write_more(struct fw_domain *domain, struct fw_trace_more *more,
                               int (*sink)(const char *bytes, size_t length, void *context),
                               void *context)
{
    uint64_t first[FW_CORES_MAX] = {0};
    struct writer *writer = calloc(1, sizeof *writer);
    struct fw_trace_record *records = calloc(FW_TRACE_RECORDS, sizeof *records);
    int rc = writer == NULL || records == NULL ? -ENOMEM : 0;
    if (rc == 0) {
        writer->domain = domain;
        writer->records = records;
        fw_mutex_lock(&domain->lock);
        writer->epoch_ns = domain->trace_epoch_ns;
        for (uint32_t i = 0; i < domain->core_count; i++) {
            const struct fw_trace *trace = domain->cores[i].trace_ring;
            rc = trace != NULL ? rc : -ENODATA;
            first[i] = trace != NULL ? trace->first : 0;
        }
        fw_mutex_unlock(&domain->lock);
    }
    if (rc == 0) {
        struct fw_text text;
        fw_text_init(&text, writer->buffer, sizeof writer->buffer);
        fw_json_init_sink(&writer->json, &text, FW_JSON_COMPACT, sink, context);
        fw_json_object_begin(&writer->json);
        write_string(writer, "displayTimeUnit", "ns");
        fw_json_key(&writer->json, "traceEvents");
        fw_json_array_begin(&writer->json);
        for (uint32_t i = 0; i < domain->core_count; i++) {
            write_core(writer, &domain->cores[i], first[i]);
        }
        if (more != NULL) {
            more->write(more, &writer->json, writer->epoch_ns);
        }
        fw_json_array_end(&writer->json);
        fw_json_object_end(&writer->json);
        rc = fw_json_finish(&writer->json);
    }
    free(records);
    free(writer);
    return rc;
}
