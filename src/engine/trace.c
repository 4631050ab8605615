/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/thread.h"
#include "engine/core.h"
#include "io/clock.h"

_Static_assert((FW_TRACE_RECORDS & (FW_TRACE_RECORDS - 1)) == 0, "so that counting may wrap");
_Static_assert(FW_PHASES_MAX <= UINT8_MAX && FW_FOM_TYPES_MAX <= UINT8_MAX, "they are packed");

static void record_unpack(const struct fw_trace *trace, uint64_t number,
                          struct fw_trace_record *record)
{
    const _Atomic uint64_t *words = trace->words[number % FW_TRACE_RECORDS];
    /* Acquire, for the release in fw_trace_put(). */
    record->cycles = atomic_load_explicit(&words[0], memory_order_acquire);
    record->fom_id = atomic_load_explicit(&words[1], memory_order_acquire);
    FW_YIELD_POINT("trace: read half a record");
    uint64_t packed = atomic_load_explicit(&words[2], memory_order_acquire);
    record->what = atomic_load_explicit(&words[3], memory_order_acquire);
    record->duration = (uint32_t)(packed >> 32);
    record->kind = (uint8_t)(packed >> 24);
    record->type_number = (uint8_t)(packed >> 16);
    record->phase = (uint8_t)(packed >> 8);
    record->detail = (uint8_t)packed;
}

uint32_t fw_trace_read(const struct fw_trace *trace, uint64_t first,
                       struct fw_trace_record *records)
{
    /* Acquire, for the release in fw_trace_put(): the words of all these have been written. */
    uint64_t end = atomic_load_explicit(&trace->count, memory_order_acquire);
    uint64_t begin = end > FW_TRACE_RECORDS ? end - FW_TRACE_RECORDS : 0;
    begin = begin > first ? begin : first;
    for (uint64_t i = begin; i < end; i++) {
        record_unpack(trace, i, &records[i - begin]);
    }
    /* Record `now` may be half written, in the place of the one that is so much older. */
    uint64_t now = atomic_load_explicit(&trace->count, memory_order_relaxed);
    uint64_t whole = now >= FW_TRACE_RECORDS ? now - FW_TRACE_RECORDS + 1 : 0;
    if (whole <= begin) {
        return (uint32_t)(end - begin);
    }
    if (whole >= end) {
        return 0;
    }
    memmove(records, &records[whole - begin], (end - whole) * sizeof *records);
    return (uint32_t)(end - whole);
}

/* ---- what the turn writes ------------------------------------------------------------------ */

void fw_trace_round(struct fw_core *core)
{
    core->trace->last = fw_clock_ticks();
    fw_trace_put(core->trace, &(struct fw_trace_record){.kind = FW_TRACE_ROUND,
                                                        .cycles = core->trace->last,
                                                        .what = (uint64_t)core->now});
}

void fw_trace_ticks_begin(struct fw_core *core)
{
    core->trace->last = fw_clock_ticks();
}

void fw_trace_slept(struct fw_core *core, uint64_t begun)
{
    core->trace->last = fw_clock_ticks();
    fw_trace_put(core->trace, &(struct fw_trace_record){
                                  .kind = FW_TRACE_SLEEP,
                                  .cycles = core->trace->last,
                                  .duration = fw_trace_duration(begun, core->trace->last)});
}

static void put_fom(struct fw_core *core, const struct fw_fom *fom, enum fw_trace_kind kind,
                    unsigned detail, uint64_t what)
{
    fw_trace_put(core->trace, &(struct fw_trace_record){
                                  .kind = (uint8_t)kind,
                                  .cycles = core->trace->last,
                                  .fom_id = fom->id,
                                  .type_number = fom->type_number,
                                  .phase = fom->phase,
                                  .detail = (uint8_t)detail,
                                  .what = what,
                              });
}

void fw_trace_fom(struct fw_core *core, const struct fw_fom *fom, enum fw_trace_kind kind,
                  uint64_t what)
{
    put_fom(core, fom, kind, 0, what);
}

enum fw_trace_wait fw_trace_wait_kind(const struct fw_fom *fom)
{
    if (fom->flags & FW_FOM_HAS_DEADLINE) {
        return FW_TRACE_WAIT_DEADLINE;
    }
    if (fom->flags & FW_FOM_WAS_PATIENT) {
        return FW_TRACE_WAIT_PATIENT;
    }
    return fom->flags & FW_FOM_IS_LIMITED ? FW_TRACE_WAIT_LIMITED : FW_TRACE_WAIT_UNLIMITED;
}

void fw_trace_wait(struct fw_core *core, const struct fw_fom *fom, enum fw_trace_wait why)
{
    bool is_timed = why == FW_TRACE_WAIT_DEADLINE || why == FW_TRACE_WAIT_LIMITED;
    put_fom(core, fom, FW_TRACE_WAIT, why, is_timed ? (uint64_t)fom->timer.deadline : 0);
}

void fw_trace_ready(struct fw_core *core, const struct fw_fom *fom, bool has_moved)
{
    enum fw_trace_ready why = FW_TRACE_READY_EVENT;
    if (fom->flags & FW_FOM_IS_FRESH) {
        why = FW_TRACE_READY_STARTED;
    } else if (has_moved) {
        why = FW_TRACE_READY_MOVED;
    } else if (fom->flags & FW_FOM_OVERDUE) {
        why = FW_TRACE_READY_OVERDUE;
    } else if (fom->flags & FW_FOM_TIMED_OUT) {
        why = FW_TRACE_READY_DEADLINE;
    } else if (fom->flags & FW_FOM_HAS_PERMIT) {
        why = FW_TRACE_READY_PERMIT;
    }
    const struct fw_fom *waker = core->fom; /* Or itself, woken before it had parked. */
    put_fom(core, fom, FW_TRACE_READY, why, waker != NULL && waker != fom ? waker->id : 0);
}

void fw_trace_block(struct fw_core *core, const struct fw_fom *fom, bool enters)
{
    uint64_t now = fw_clock_ticks();
    struct fw_trace_record record = {
        .kind = enters ? FW_TRACE_BLOCK : FW_TRACE_UNBLOCK,
        .cycles = now,
        .duration = enters ? fw_trace_duration(core->trace->last, now) : 0,
        .fom_id = fom->id,
        .type_number = fom->type_number,
        .phase = fom->phase,
    };
    fw_trace_put(core->trace, &record);
    core->trace->last = now;
}

void fw_fom_mark(struct fw_fom *fom, const char *what)
{
    struct fw_core *core = fw_fom_core(fom);
    FW_ASSERT(fw_core_self() == core);
    if (FW_UNLIKELY(core->trace != NULL)) {
        fw_trace_fom(core, fom, FW_TRACE_MARK, (uintptr_t)what);
    }
}

/* ---- on and off ---------------------------------------------------------------------------- */

void fw_trace_adopt(struct fw_core *core)
{
    /* Acquire, for the release in fw_domain_trace(): the ring is made. */
    core->trace = atomic_load_explicit(&core->trace_wanted, memory_order_acquire);
    if (FW_UNLIKELY(core->trace != NULL)) {
        fw_trace_round(core);
    }
}

void fw_trace_fini(struct fw_core *core)
{
    free(core->trace_ring);
}

/* The memory for a core's ring, if it has none. */
static int trace_make(struct fw_core *core)
{
    if (core->trace_ring == NULL) {
        core->trace_ring = calloc(1, sizeof *core->trace_ring);
    }
    return core->trace_ring != NULL ? 0 : -ENOMEM;
}

int fw_domain_trace(struct fw_domain *domain, bool on)
{
    int rc = 0;
    fw_mutex_lock(&domain->lock);
    for (uint32_t i = 0; on && rc == 0 && i < domain->core_count; i++) {
        rc = trace_make(&domain->cores[i]);
    }
    bool begins = on && rc == 0 && !domain->is_tracing;
    if (begins) {
        domain->trace_epoch_ns = fw_clock_now_ns();
    }
    for (uint32_t i = 0; rc == 0 && i < domain->core_count; i++) {
        struct fw_core *core = &domain->cores[i];
        if (begins) {
            /* Relaxed: a record that is being written may be taken for the old or the new trace. */
            core->trace_ring->first =
                atomic_load_explicit(&core->trace_ring->count, memory_order_relaxed);
        }
        /* Release, for the acquire in fw_trace_adopt(). */
        atomic_store_explicit(&core->trace_wanted, on ? core->trace_ring : NULL,
                              memory_order_release);
    }
    domain->is_tracing = rc == 0 ? on : domain->is_tracing;
    fw_mutex_unlock(&domain->lock);
    return rc;
}
