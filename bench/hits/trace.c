/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/hits/trace.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/hash.h"

#define UNNAMED UINT32_MAX /* An object that no request has named yet. */

enum { EXIT_USAGE = 2 };

const char *const fw_trace_names[] = {"zipf-0.6", "zipf-0.8", "zipf-0.9", "zipf-1.0",
                                      "zipf-1.2", "one-hit",  "scan",     "loop",
                                      "shift",    "sizes",    "expiry",   NULL};

static void *allocate(size_t count, size_t size)
{
    void *made = calloc(count > 0 ? count : 1, size);
    if (made == NULL) {
        perror("hits: no memory for the trace");
        exit(EXIT_FAILURE);
    }
    return made;
}

/* A generator by its hash: the n-th number of a seed. */
static uint64_t draw(uint64_t seed, uint64_t n)
{
    return fw_hash(&n, sizeof n, seed);
}

static double draw_unit(uint64_t seed, uint64_t n)
{
    return (double)(draw(seed, n) >> 11) * 0x1p-53;
}

/* The share of requests that go to the first so many ranks. */
static double *zipf_table(size_t count, double exponent)
{
    double *share = allocate(count, sizeof *share);
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += pow((double)(i + 1), -exponent);
        share[i] = sum;
    }
    for (size_t i = 0; i < count; i++) {
        share[i] /= sum;
    }
    return share;
}

static uint32_t zipf_draw(const double *share, size_t count, double unit)
{
    size_t low = 0;
    size_t high = count - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (share[middle] < unit) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return (uint32_t)low;
}

/* What one request of a trace is for; `popular` is what zipf would say. */
struct maker {
    const char *name;
    size_t objects;
    size_t requests;
    uint64_t seed;
    uint32_t next_single; /* Objects that come once are numbered from `objects`. */
};

static uint32_t make_one_hit(struct maker *maker, size_t i, uint32_t popular)
{
    return i % 2 == 0 ? popular : maker->next_single++;
}

/* A scan of a tenth of the objects after every fifth of as many requests as there are objects. */
static uint32_t make_scan(struct maker *maker, size_t i, uint32_t popular)
{
    size_t length = maker->objects / 10;
    size_t round = maker->objects / 5 + length;
    size_t place = i % round;
    if (place < round - length) {
        return popular;
    }
    size_t begin = draw(maker->seed + 1, i / round) % (maker->objects - length);
    return (uint32_t)(begin + (place - (round - length)));
}

static uint32_t make_loop(struct maker *maker, size_t i, uint32_t popular)
{
    (void)popular;
    return (uint32_t)(i % maker->objects);
}

static uint32_t make_shift(struct maker *maker, size_t i, uint32_t popular)
{
    size_t tenth = i * 10 / maker->requests;
    return (uint32_t)((popular + tenth * (maker->objects / 10)) % maker->objects);
}

static uint32_t make_popular(struct maker *maker, size_t i, uint32_t popular)
{
    (void)maker;
    (void)i;
    return popular;
}

static const struct {
    const char *name;
    double exponent;
    uint32_t (*make)(struct maker *maker, size_t i, uint32_t popular);
    uint32_t size_min, size_max; /* Of values; sizes between are equally likely by logarithm. */
    bool expires;
} kinds[] = {
    {"zipf-0.6", 0.6, make_popular, 100, 2000, false},
    {"zipf-0.8", 0.8, make_popular, 100, 2000, false},
    {"zipf-0.9", 0.9, make_popular, 100, 2000, false},
    {"zipf-1.0", 1.0, make_popular, 100, 2000, false},
    {"zipf-1.2", 1.2, make_popular, 100, 2000, false},
    {"one-hit", 0.9, make_one_hit, 100, 2000, false},
    {"scan", 0.9, make_scan, 100, 2000, false},
    {"loop", 0.9, make_loop, 100, 2000, false},
    {"shift", 0.9, make_shift, 100, 2000, false},
    {"sizes", 0.9, make_popular, 50, 40960, false},
    {"expiry", 0.9, make_popular, 100, 2000, true},
};

static struct fw_trace_object make_object(size_t kind, uint64_t seed, uint32_t number)
{
    double least = kinds[kind].size_min;
    double most = kinds[kind].size_max;
    struct fw_trace_object object = {0};
    object.value_size = (uint32_t)(least * pow(most / least, draw_unit(seed + 2, number)));
    uint64_t fate = draw(seed + 3, number);
    object.lifetime = kinds[kind].expires && fate % 3 != 0 ? 2 + (uint32_t)(fate / 3 % 4) : 0;
    return object;
}

/* Numbers the objects anew, in the order in which they are first asked for. */
static void trace_number(struct fw_trace *trace, size_t kind, uint64_t seed, size_t numbers)
{
    uint32_t *number_of = allocate(numbers, sizeof *number_of);
    memset(number_of, 0xff, numbers * sizeof *number_of);
    trace->objects = allocate(numbers, sizeof *trace->objects);
    for (size_t i = 0; i < trace->request_count; i++) {
        uint32_t old = trace->requests[i];
        if (number_of[old] == UNNAMED) {
            trace->objects[trace->object_count] = make_object(kind, seed, old);
            number_of[old] = (uint32_t)trace->object_count++;
        }
        trace->requests[i] = number_of[old];
    }
    free(number_of);
}

void fw_trace_make(struct fw_trace *trace, const char *name, size_t objects, size_t requests,
                   uint64_t seed)
{
    size_t kind = 0;
    while (kind < FW_ARRAY_LENGTH(kinds) && strcmp(kinds[kind].name, name) != 0) {
        kind++;
    }
    if (kind == FW_ARRAY_LENGTH(kinds)) {
        (void)fprintf(stderr, "hits: no trace is called '%s'; --list shows them\n", name);
        exit(EXIT_USAGE);
    }
    *trace = (struct fw_trace){.request_count = requests};
    trace->rate = kinds[kind].expires ? FW_TRACE_RATE : 0;
    trace->requests = allocate(requests, sizeof *trace->requests);
    struct maker maker = {.name = name,
                          .objects = objects,
                          .requests = requests,
                          .seed = seed,
                          .next_single = (uint32_t)objects};
    double *share = zipf_table(objects, kinds[kind].exponent);
    for (size_t i = 0; i < requests; i++) {
        uint32_t popular = zipf_draw(share, objects, draw_unit(seed, i));
        trace->requests[i] = kinds[kind].make(&maker, i, popular);
    }
    free(share);
    trace_number(trace, kind, seed, objects + requests);
}

void fw_trace_free(struct fw_trace *trace)
{
    free(trace->requests);
    free(trace->objects);
}

uint64_t fw_trace_footprint(const struct fw_trace *trace, uint32_t overhead)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < trace->object_count; i++) {
        bytes += FW_TRACE_KEY_SIZE + trace->objects[i].value_size + overhead;
    }
    return bytes;
}
