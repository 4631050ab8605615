/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader copies a core's trace while its turn goes on writing over the oldest records. What is
 * believed must be whole, consecutive, and not less than the promise: all but those that were
 * written over, or may have been, by the time that the reader was done.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/thread.h"
#include "engine/trace.h"
#include "simulate/scenarios.h"

static struct fw_trace *trace;
static uint64_t to_write;

static void trace_write(uint64_t number)
{
    fw_trace_put(trace, &(struct fw_trace_record){.cycles = number,
                                                  .fom_id = number * 3,
                                                  .what = number * 5,
                                                  .duration = (uint32_t)number});
}

static void trace_writer(void *argument)
{
    (void)argument;
    uint64_t first = atomic_load(&trace->count);
    for (uint64_t i = first; i < first + to_write; i++) {
        trace_write(i);
    }
}

static void trace_check(const struct fw_trace_record *records, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t number = records[0].cycles + i;
        SIM_EXPECT(records[i].cycles == number);
        SIM_EXPECT(records[i].fom_id == number * 3);
        SIM_EXPECT(records[i].what == number * 5);
        SIM_EXPECT(records[i].duration == (uint32_t)number);
    }
}

static void trace_run(void)
{
    trace = calloc(1, sizeof *trace);
    struct fw_trace_record *records = calloc(FW_TRACE_RECORDS, sizeof *records);
    FW_ASSERT(trace != NULL && records != NULL);
    uint64_t before = FW_TRACE_RECORDS + (uint64_t)sim_between(-3, 3);
    to_write = (uint64_t)sim_between(1, 2000); /* Enough to overtake the reader now and then. */
    for (uint64_t i = 0; i < before; i++) {
        trace_write(i);
    }
    struct fw_thread writer;
    int rc = fw_thread_create(&writer, "writer", trace_writer, NULL);
    FW_ASSERT(rc == 0);
    uint32_t count = fw_trace_read(trace, 0, records);
    trace_check(records, count);
    SIM_EXPECT(count + to_write + 4 >= FW_TRACE_RECORDS);
    fw_thread_join(&writer);
    count = fw_trace_read(trace, 0, records);
    trace_check(records, count);
    SIM_EXPECT(count > 0 && records[count - 1].cycles == before + to_write - 1);
    free(records);
    free(trace);
}

const struct sim_scenario sim_scenario_engine_trace = {
    .name = "engine-trace",
    .purpose = "a trace is read while it is written: no record is mixed from two",
    .run = trace_run,
};
