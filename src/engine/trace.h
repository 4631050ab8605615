/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tracing: what every fom of a core did lately, and what it waited for; private to the engine.
 *
 * Each core has a ring of records of 32 bytes. Only the holder of its turn writes there, always
 * over the oldest record, so a trace costs the same for a second as for a month and nobody waits
 * for a reader. While tracing is off a tick pays one branch (fw_core.is_watched, which also stands
 * for the sampling of metrics); the ring's memory is taken when tracing is first switched on.
 *
 * Time. A clock per record would cost more than the tick that it measures. The processor's counter
 * is read once per tick, at its end, and the record holds how long that was after the last thing
 * that the core did: so a slice includes what the engine did to get there, and all that happens
 * inside of a tick (a wake-up, an armed channel) has the time at which the tick began. Each round
 * begins with a pair of cycles and nanoseconds, between which the reader places the others;
 * io/clock.h says why that is sound.
 *
 * Reading without stopping anyone. The writer stores the words of record n with release, when it
 * has published that there are n (the count); then it publishes n + 1. The reader loads words with
 * acquire and the count after them. If it has met any word of record n, it finds a count of n or
 * more, and knows that the record which was in that place before, n - FW_TRACE_RECORDS, is not to
 * be believed. All that is younger is whole. On x86-64 these are plain loads and stores. A sequence
 * number per record was rejected: it is a fifth word to say what the count says already.
 *
 * What a record points to (names of types, phases and channels) lives as long as the domain, or
 * for ever: that is why a channel's name must.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/engine.h>

#include "base/base.h"
#include "base/thread.h"

struct fw_core;

enum {
    FW_TRACE_RECORDS = 16 * 1024, /* Per core; a power of two. */
    FW_TRACE_WORDS = 4,           /* Of a record. */
};

struct fw_json;

enum fw_trace_kind {
    FW_TRACE_ROUND,   /* A round begins; `what` is the time in nanoseconds. */
    FW_TRACE_SLEEP,   /* The core slept. */
    FW_TRACE_TICK,    /* A tick ended; `detail` is its step and `what` the phase it chose. */
    FW_TRACE_ARM,     /* Inside of a tick: a clink was armed; `what` is the channel's name. */
    FW_TRACE_WAIT,    /* The fom parks; `detail` as enum fw_trace_wait, `what` its deadline. */
    FW_TRACE_READY,   /* It is ready again; enum fw_trace_ready, `what` the fom that woke it. */
    FW_TRACE_MOVE,    /* It leaves for the core number `what`. */
    FW_TRACE_FORCE,   /* It is failed with the error `what`. */
    FW_TRACE_BLOCK,   /* It enters a bracket: the turn goes to another thread. */
    FW_TRACE_UNBLOCK, /* It has the turn back. */
    FW_TRACE_MARK,    /* Its owner noted something; `what` is the text. */
};

enum fw_trace_wait {
    FW_TRACE_WAIT_PATIENT,   /* For an event, for ever. */
    FW_TRACE_WAIT_LIMITED,   /* For an event, until the domain's limit. */
    FW_TRACE_WAIT_DEADLINE,  /* For an event, or a time. */
    FW_TRACE_WAIT_PERMIT,    /* For leave to enter a bracket. */
    FW_TRACE_WAIT_UNLIMITED, /* In FAILED, or until offloaded work is done. */
};

enum fw_trace_ready {
    FW_TRACE_READY_STARTED,
    FW_TRACE_READY_EVENT,
    FW_TRACE_READY_DEADLINE,
    FW_TRACE_READY_OVERDUE,
    FW_TRACE_READY_PERMIT,
    FW_TRACE_READY_MOVED,
};

/* As a reader gets it. */
struct fw_trace_record {
    uint64_t cycles; /* When it was written. */
    uint64_t fom_id;
    uint64_t what;
    uint32_t duration; /* In cycles; UINT32_MAX: that long or longer. */
    uint8_t kind;      /* enum fw_trace_kind */
    uint8_t type_number;
    uint8_t phase;
    uint8_t detail;
};

struct fw_trace {
    _Atomic uint64_t count; /* Records ever written. */
    uint64_t last;          /* The turn's: cycles at the end of the last thing that was timed. */
    uint64_t first;         /* Under the domain's lock: where the present trace begins. */
    _Atomic uint64_t words[FW_TRACE_RECORDS][FW_TRACE_WORDS];
};

/* The turn: adds a record. */
static inline void fw_trace_put(struct fw_trace *trace, const struct fw_trace_record *record)
{
    /* Relaxed: the turn alone writes it. */
    uint64_t count = atomic_load_explicit(&trace->count, memory_order_relaxed);
    _Atomic uint64_t *words = trace->words[count % FW_TRACE_RECORDS];
    uint64_t packed = ((uint64_t)record->duration << 32) | ((uint64_t)record->kind << 24) |
                      ((uint64_t)record->type_number << 16) | ((uint64_t)record->phase << 8) |
                      record->detail;
    /* Release, for the acquire in fw_trace_read(); the essay says what that gives. */
    atomic_store_explicit(&words[0], record->cycles, memory_order_release);
    atomic_store_explicit(&words[1], record->fom_id, memory_order_release);
    atomic_store_explicit(&words[2], packed, memory_order_release);
    FW_YIELD_POINT("trace: half a record");
    atomic_store_explicit(&words[3], record->what, memory_order_release);
    atomic_store_explicit(&trace->count, count + 1, memory_order_release);
}

static inline uint32_t fw_trace_duration(uint64_t begun, uint64_t ended)
{
    uint64_t cycles = ended > begun ? ended - begun : 0; /* On another processor it may be less. */
    return cycles < UINT32_MAX ? (uint32_t)cycles : UINT32_MAX;
}

/* The turn: a tick has ended, at `cycles`; the fom is in its phase still. Inline for speed. */
static inline void fw_trace_tick(struct fw_trace *trace, const struct fw_fom *fom,
                                 enum fw_step step, uint64_t cycles)
{
    const struct fw_trace_record record = {
        .kind = FW_TRACE_TICK,
        .cycles = cycles,
        .duration = fw_trace_duration(trace->last, cycles),
        .fom_id = fom->id,
        .type_number = fom->type_number,
        .phase = fom->phase,
        .detail = (uint8_t)step,
        .what = fom->next_phase,
    };
    fw_trace_put(trace, &record);
    trace->last = cycles;
}

/*
 * Any thread: copies the records from number `first` on that are still there to `records`, of
 * FW_TRACE_RECORDS. Returns how many, the oldest first.
 */
uint32_t fw_trace_read(const struct fw_trace *trace, uint64_t first,
                       struct fw_trace_record *records);

/*
 * The rest is called on the turn, and only while fw_core.trace is not NULL. A round and the loop of
 * ticks in it begin; the core has slept, since `begun`.
 */
void fw_trace_round(struct fw_core *core);
void fw_trace_ticks_begin(struct fw_core *core);
void fw_trace_slept(struct fw_core *core, uint64_t begun);

/* Something has happened to the fom. */
void fw_trace_fom(struct fw_core *core, const struct fw_fom *fom, enum fw_trace_kind kind,
                  uint64_t what);
enum fw_trace_wait fw_trace_wait_kind(const struct fw_fom *fom); /* Of one that parks. */
void fw_trace_wait(struct fw_core *core, const struct fw_fom *fom, enum fw_trace_wait why);
void fw_trace_ready(struct fw_core *core, const struct fw_fom *fom, bool has_moved);

/* Around a bracket, with the turn. */
void fw_trace_block(struct fw_core *core, const struct fw_fom *fom, bool enters);

/* Makes tracing take effect at the beginning of a round. */
void fw_trace_adopt(struct fw_core *core);

/* What the core's ring is made of ends with it. */
void fw_trace_fini(struct fw_core *core);

/* Events of others in the same file: times are in microseconds since the epoch that is told. */
struct fw_trace_more {
    void (*write)(struct fw_trace_more *more, struct fw_json *json, int64_t epoch_ns);
};

/* As fw_domain_trace_write(). `more` may be NULL. */
FW_MUST_CHECK int fw_domain_trace_write_more(struct fw_domain *domain, struct fw_trace_more *more,
                                             int (*sink)(const char *bytes, size_t length,
                                                         void *context),
                                             void *context);
