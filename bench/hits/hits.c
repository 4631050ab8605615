/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hit ratios: replays a trace to a running server and simulates the policies of the literature on
 * the same trace with the same memory. Prints one line, a JSON object; see `hits --help`.
 *
 * The policies are given the server's whole memory limit and charged, for each object, its key, its
 * value and FW_HITS_OVERHEAD bytes: what an item's header and its place in the table take in
 * Fairway. So a server that is as clever as the best of them has the same hit ratio.
 *
 * The first fifth of a trace fills the cache and is not counted, for anyone.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "bench/arguments.h"
#include "bench/hits/inside.h"
#include "bench/hits/policy.h"
#include "bench/hits/replay.h"
#include "bench/hits/trace.h"

enum { FW_HITS_OVERHEAD = 24 };
#define MIB (UINT64_C(1) << 20)

struct settings {
    const char *host, *port, *trace, *file;
    uint64_t objects, requests, memory, percent, seed;
    bool list, inside, policies;
};

static void settings_parse(int argc, char **argv, struct settings *settings)
{
    const struct fw_argument table[] = {
        {.name = "host", .help = "name or address of the server", .text = &settings->host},
        {.name = "port", .help = "its TCP port; 0: to none", .text = &settings->port},
        {.name = "trace", .help = "a synthetic one, by name", .text = &settings->trace},
        {.name = "file", .help = "or from a file; see bench/hits/trace.h", .text = &settings->file},
        {"objects", "of a synthetic trace", &settings->objects, 100, 100000000, NULL, NULL},
        {"requests", "of a synthetic trace", &settings->requests, 100, 1000000000, NULL, NULL},
        {"memory", "bytes, the server's limit", &settings->memory, 1, UINT64_MAX, NULL, NULL},
        {"percent", "of the footprint, in place of memory", &settings->percent, 0, 100, NULL, NULL},
        {"seed", "of a synthetic trace", &settings->seed, 0, UINT64_MAX, NULL, NULL},
        {.name = "list", .help = "names the synthetic traces", .flag = &settings->list},
        {.name = "inside", .help = "replay to a table in here", .flag = &settings->inside},
        {.name = "policies", .help = "simulate those", .flag = &settings->policies},
    };
    fw_arguments_parse(argc, argv, table, FW_ARRAY_LENGTH(table));
}

static double simulate(const struct fw_trace *trace, enum fw_policy_kind kind, uint64_t memory,
                       size_t counted_from)
{
    struct fw_policy *policy = fw_policy_create(kind, memory, trace->object_count);
    uint64_t hits = 0;
    for (size_t i = 0; i < trace->request_count; i++) {
        uint32_t object = trace->requests[i];
        const struct fw_trace_object *what = &trace->objects[object];
        uint32_t now = trace->rate == 0 ? 0 : (uint32_t)(i / trace->rate);
        uint32_t expires = what->lifetime == 0 ? 0 : now + what->lifetime;
        uint32_t size = FW_TRACE_KEY_SIZE + what->value_size + FW_HITS_OVERHEAD;
        hits += fw_policy_access(policy, object, size, now, expires) && i >= counted_from;
    }
    fw_policy_destroy(policy);
    return (double)hits / (double)(trace->request_count - counted_from);
}

static void list_traces(void)
{
    for (size_t i = 0; fw_trace_names[i] != NULL; i++) {
        (void)puts(fw_trace_names[i]);
    }
}

int main(int argc, char **argv)
{
    struct settings settings = {.host = "127.0.0.1",
                                .port = "0",
                                .trace = "zipf-0.9",
                                .file = "",
                                .objects = 1000000,
                                .requests = 3000000,
                                .memory = 64 << 20,
                                .seed = 1};
    settings_parse(argc, argv, &settings);
    if (settings.list) {
        list_traces();
        return EXIT_SUCCESS;
    }
    struct fw_trace trace;
    const char *name = settings.trace;
    if (settings.file[0] != '\0') {
        name = settings.file;
        struct fw_reason reason;
        if (fw_trace_read(&trace, settings.file, &reason) != 0) {
            (void)fprintf(stderr, "hits: %s\n", reason.text);
            return EXIT_FAILURE;
        }
        if (trace.cut_count > 0) {
            (void)fprintf(stderr, "hits: %zu objects are larger than %d bytes and taken as that\n",
                          trace.cut_count, FW_TRACE_VALUE_MAX);
        }
    } else {
        fw_trace_make(&trace, name, settings.objects, settings.requests, settings.seed);
    }
    uint64_t footprint = fw_trace_footprint(&trace, FW_HITS_OVERHEAD);
    uint64_t memory = settings.memory;
    if (settings.percent > 0) {
        memory = (footprint * settings.percent / 100 + MIB / 2) / MIB * MIB;
        memory = memory > 2 * MIB ? memory : 2 * MIB;
    }
    (void)printf("{\"trace\": \"%s\", \"objects\": %zu, \"requests\": %zu, \"footprint\": %" PRIu64
                 ", \"memory\": %" PRIu64,
                 name, trace.object_count, trace.request_count, footprint, memory);
    size_t counted_from = trace.request_count / 5;
    double counted = (double)(trace.request_count - counted_from);
    for (enum fw_policy_kind kind = 0; settings.policies && kind < FW_POLICY_KINDS; kind++) {
        (void)printf(", \"%s\": %.5f", fw_policy_names[kind],
                     simulate(&trace, kind, memory, counted_from));
    }
    if (settings.inside) {
        (void)printf(", \"inside\": %.5f",
                     (double)fw_replay_inside(&trace, memory, counted_from) / counted);
    }
    if (strcmp(settings.port, "0") != 0) {
        (void)printf(", \"server\": %.5f",
                     (double)fw_replay(&trace, settings.host, settings.port, counted_from) /
                         counted);
    }
    (void)puts("}");
    fw_trace_free(&trace);
    return EXIT_SUCCESS;
}
