/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the ring keeps the newest records, whole and in order, for a reader that stops nobody; and
 * tracing can be switched on and off while foms run. Method: records whose members follow from
 * their number, so that one mixed from two is seen; a writer that laps the reader; then a domain
 * whose foms run all the time. What a trace says of them is compared by
 * tests/engine/test_trace_json.py.
 */
#include "engine/trace.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/thread.h"
#include "engine/core.h"
#include "io/clock.h"

enum { READS_MIN = 20, LAPS_MIN = 3, RECORDS_MIN = 100, RECORD_LENGTH_MIN = 50 };

static struct fw_trace_record record_of(uint64_t number)
{
    return (struct fw_trace_record){
        .cycles = number,
        .fom_id = number * 3,
        .what = number * 5,
        .duration = (uint32_t)(number * 7),
        .kind = (uint8_t)(number % 251),
        .type_number = (uint8_t)(number % 241),
        .phase = (uint8_t)(number % 239),
        .detail = (uint8_t)(number % 233),
    };
}

static void put(struct fw_trace *trace, uint64_t number)
{
    struct fw_trace_record record = record_of(number);
    fw_trace_put(trace, &record);
}

/* All members are those of the number that the first has. */
static void check_whole(const struct fw_trace_record *record)
{
    struct fw_trace_record expected = record_of(record->cycles);
    assert_int_equal(record->fom_id, expected.fom_id);
    assert_int_equal(record->what, expected.what);
    assert_int_equal(record->duration, expected.duration);
    assert_int_equal(record->kind, expected.kind);
    assert_int_equal(record->type_number, expected.type_number);
    assert_int_equal(record->phase, expected.phase);
    assert_int_equal(record->detail, expected.detail);
}

static void check_read(const struct fw_trace *trace, uint64_t first,
                       struct fw_trace_record *records, uint64_t expected_first,
                       uint64_t expected_end)
{
    uint32_t count = fw_trace_read(trace, first, records);
    assert_int_equal(count, expected_end - expected_first);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(records[i].cycles, expected_first + i);
        check_whole(&records[i]);
    }
}

static void test_ring(void **state)
{
    (void)state;
    struct fw_trace *trace = calloc(1, sizeof *trace);
    struct fw_trace_record *records = calloc(FW_TRACE_RECORDS, sizeof *records);
    assert_non_null(trace);
    assert_non_null(records);
    check_read(trace, 0, records, 0, 0);
    for (uint64_t i = 0; i < FW_TRACE_RECORDS - 1; i++) {
        put(trace, i);
    }
    check_read(trace, 0, records, 0, FW_TRACE_RECORDS - 1);
    check_read(trace, 100, records, 100, FW_TRACE_RECORDS - 1);
    /* The oldest is given up with the last place: the writer may be at it. */
    put(trace, FW_TRACE_RECORDS - 1);
    check_read(trace, 0, records, 1, FW_TRACE_RECORDS);
    for (uint64_t i = FW_TRACE_RECORDS; i < 2 * FW_TRACE_RECORDS + 5; i++) {
        put(trace, i);
    }
    uint64_t end = 2 * FW_TRACE_RECORDS + 5;
    check_read(trace, 0, records, end - FW_TRACE_RECORDS + 1, end);
    check_read(trace, end - 3, records, end - 3, end);
    check_read(trace, end, records, end, end);
    free(records);
    free(trace);
}

struct writer {
    struct fw_trace *trace;
    atomic_bool is_over;
};

static void writer_run(void *argument)
{
    struct writer *writer = argument;
    for (uint64_t i = 0; !atomic_load_explicit(&writer->is_over, memory_order_relaxed); i++) {
        put(writer->trace, i);
    }
}

static void test_reader_meets_no_half_record(void **state)
{
    (void)state;
    struct writer writer = {.trace = calloc(1, sizeof *writer.trace)};
    struct fw_trace_record *records = calloc(FW_TRACE_RECORDS, sizeof *records);
    assert_non_null(writer.trace);
    assert_non_null(records);
    struct fw_thread thread;
    assert_int_equal(fw_thread_create(&thread, "writer", writer_run, &writer), 0);
    uint64_t newest = 0;
    for (int i = 0; i < READS_MIN || newest < (uint64_t)LAPS_MIN * FW_TRACE_RECORDS; i++) {
        uint32_t count = fw_trace_read(writer.trace, 0, records);
        for (uint32_t j = 0; j < count; j++) {
            check_whole(&records[j]);
            assert_int_equal(records[j].cycles, records[0].cycles + j);
        }
        newest = count > 0 ? records[count - 1].cycles : newest;
    }
    atomic_store_explicit(&writer.is_over, true, memory_order_relaxed);
    fw_thread_join(&thread);
    free(records);
    free(writer.trace);
}

/* ---- a domain that never rests -------------------------------------------------------------- */

enum { SPIN_TURN = FW_PHASE_FIRST };

static atomic_bool spin_is_over;

static enum fw_step spin_tick(struct fw_fom *fom)
{
    return atomic_load_explicit(&spin_is_over, memory_order_relaxed) ? fw_fom_finish(fom)
                                                                     : fw_fom_yield(fom, SPIN_TURN);
}

static const struct fw_phase spin_phases[] = {{"TURN", FW_PHASE_BIT(FW_PHASE_FINISHED), false}};
static const struct fw_fom_type spin_type = {
    .name = "spin",
    .size = sizeof(struct fw_fom),
    .limit_count = 4,
    .phases = spin_phases,
    .phase_count = 1,
    .tick = spin_tick,
};

static uint64_t records_of(struct fw_domain *domain, uint32_t core)
{
    return atomic_load_explicit(&domain->cores[core].trace_ring->count, memory_order_relaxed);
}

static int sink_count(const char *bytes, size_t length, void *context)
{
    (void)bytes;
    *(size_t *)context += length;
    return 0;
}

static int sink_refuse(const char *bytes, size_t length, void *context)
{
    (void)bytes;
    (void)length;
    (void)context;
    return -EPIPE;
}

/* Waits until each core has begun a round that began after now. */
static void wait_for_rounds(struct fw_domain *domain)
{
    for (uint32_t i = 0; i < domain->core_count; i++) {
        const struct fw_counter *rounds = &domain->cores[i].metrics->rounds;
        uint64_t before = fw_counter_get(rounds);
        while (fw_counter_get(rounds) < before + 2) {
            fw_thread_yield();
        }
    }
}

static void test_on_and_off_while_running(void **state)
{
    (void)state;
    struct fw_domain *domain;
    size_t length = 0;
    const struct fw_domain_config config = {.locality_count = 2};
    assert_int_equal(fw_domain_create(&domain, &config), 0);
    assert_int_equal(fw_domain_add_type(domain, &spin_type), 0);
    assert_int_equal(fw_domain_start(domain), 0);
    assert_int_equal(fw_domain_trace_write(domain, sink_count, &length), -ENODATA);
    atomic_store(&spin_is_over, false);
    for (uint32_t i = 0; i < 2; i++) {
        struct fw_fom *fom;
        assert_int_equal(fw_fom_create(&fom, domain, &spin_type, fw_domain_locality(domain, i)), 0);
        fw_fom_start(fom);
    }
    assert_int_equal(fw_domain_trace(domain, true), 0);
    for (uint32_t i = 0; i < 2; i++) {
        while (records_of(domain, i) < RECORDS_MIN) {
            fw_thread_yield();
        }
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fw_domain_trace_write(domain, sink_count, &length), 0);
    }
    assert_true(length > 0);
    assert_int_equal(fw_domain_trace_write(domain, sink_refuse, NULL), -EPIPE);
    assert_int_equal(fw_domain_trace(domain, false), 0);
    wait_for_rounds(domain);
    uint64_t counts[2] = {records_of(domain, 0), records_of(domain, 1)};
    wait_for_rounds(domain);
    assert_int_equal(records_of(domain, 0), counts[0]);
    assert_int_equal(records_of(domain, 1), counts[1]);
    /* What was traced can still be read; a new trace begins without it. */
    length = 0;
    assert_int_equal(fw_domain_trace_write(domain, sink_count, &length), 0);
    assert_true(length > (size_t)2 * RECORDS_MIN * RECORD_LENGTH_MIN);
    assert_int_equal(fw_domain_trace(domain, true), 0);
    assert_int_equal(domain->cores[0].trace_ring->first, counts[0]);
    atomic_store(&spin_is_over, true);
    assert_int_equal(fw_domain_stop(domain, INT64_MAX / 2), 0);
    fw_domain_destroy(domain);
}

/* ---- what needs two cores, or waits for leave ------------------------------------------------ */

enum { MOVE_AWAY = FW_PHASE_FIRST, MOVE_THERE, MOVE_BLOCK };

static _Atomic uint32_t movers_over;

static bool mover_depart(struct fw_fom *fom)
{
    (void)fom;
    return true;
}

static void mover_arrive(struct fw_fom *fom)
{
    (void)fom;
}

static enum fw_step mover_tick(struct fw_fom *fom)
{
    switch (fom->phase) {
    case MOVE_AWAY:
        assert_int_equal(fw_fom_move(fom, fw_domain_locality(fw_fom_domain(fom), 1)), 0);
        return fw_fom_yield(fom, MOVE_THERE);
    case MOVE_THERE:
        return fw_fom_goto(fom, MOVE_BLOCK);
    default:
        if (!fw_block_enter(fom)) {
            return fw_fom_wait(fom, MOVE_BLOCK);
        }
        fw_block_leave(fom);
        return fw_fom_finish(fom);
    }
}

static void mover_finish(struct fw_fom *fom)
{
    (void)fom;
    atomic_fetch_add(&movers_over, 1);
}

static const struct fw_phase mover_phases[] = {
    {"AWAY", FW_PHASE_BIT(MOVE_THERE), false},
    {"THERE", FW_PHASE_BIT(MOVE_BLOCK), false},
    {"BLOCK", FW_PHASE_BIT(FW_PHASE_FINISHED), false},
};
static const struct fw_fom_type mover_type = {
    .name = "mover",
    .size = sizeof(struct fw_fom),
    .limit_count = 1,
    .phases = mover_phases,
    .phase_count = 3,
    .tick = mover_tick,
    .finish = mover_finish,
    .depart = mover_depart,
    .arrive = mover_arrive,
};

/* How many records of the core are of that kind and detail; `what` is that of the last. */
static uint32_t count_of(struct fw_domain *domain, uint32_t core, enum fw_trace_kind kind,
                         unsigned detail, uint64_t *what)
{
    struct fw_trace_record *records = calloc(FW_TRACE_RECORDS, sizeof *records);
    assert_non_null(records);
    uint32_t count = fw_trace_read(domain->cores[core].trace_ring, 0, records);
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (records[i].kind == kind && records[i].detail == detail) {
            *what = records[i].what;
            found++;
        }
    }
    free(records);
    return found;
}

static void test_moves_and_permits(void **state)
{
    (void)state;
    struct fw_domain *domain;
    struct fw_fom *fom;
    uint64_t what = 0;
    const struct fw_domain_config config = {.locality_count = 2,
                                            .bracket_limit = 1,
                                            .wait_min_ns = 3600 * (int64_t)FW_NS_PER_S,
                                            .wait_max_ns = 3600 * (int64_t)FW_NS_PER_S};
    assert_int_equal(fw_domain_create(&domain, &config), 0);
    assert_int_equal(fw_domain_add_type(domain, &mover_type), 0);
    assert_int_equal(fw_domain_trace(domain, true), 0);
    atomic_store(&domain->permits, 0); /* As if somebody were in a bracket. */
    assert_int_equal(fw_domain_start(domain), 0);
    assert_int_equal(fw_fom_create(&fom, domain, &mover_type, fw_domain_locality(domain, 0)), 0);
    fw_fom_start(fom);
    while (!atomic_load(&domain->cores[1].wants_permit)) {
        fw_thread_yield();
    }
    fw_domain_release_permit(domain);
    while (atomic_load(&movers_over) == 0) {
        fw_thread_yield();
    }
    assert_int_equal(fw_domain_stop(domain, INT64_MAX / 2), 0);
    assert_int_equal(count_of(domain, 0, FW_TRACE_MOVE, 0, &what), 1);
    assert_int_equal(what, 1);
    assert_int_equal(count_of(domain, 1, FW_TRACE_READY, FW_TRACE_READY_MOVED, &what), 1);
    assert_int_equal(count_of(domain, 1, FW_TRACE_WAIT, FW_TRACE_WAIT_PERMIT, &what), 1);
    assert_int_equal(what, 0);
    assert_int_equal(count_of(domain, 1, FW_TRACE_READY, FW_TRACE_READY_PERMIT, &what), 1);
    assert_int_equal(count_of(domain, 1, FW_TRACE_BLOCK, 0, &what), 1);
    assert_int_equal(count_of(domain, 1, FW_TRACE_UNBLOCK, 0, &what), 1);
    /* Here are the ticks of the standard phases and, with another step, the first. */
    assert_int_equal(count_of(domain, 0, FW_TRACE_TICK, FW_STEP_AGAIN, &what), 3);
    size_t length = 0;
    assert_int_equal(fw_domain_trace_write(domain, sink_count, &length), 0);
    fw_domain_destroy(domain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_reader_meets_no_half_record),
        cmocka_unit_test(test_on_and_off_while_running),
        cmocka_unit_test(test_moves_and_permits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
