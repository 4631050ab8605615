/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A load generator for servers that speak memcached's text protocol. One thread, pinned if asked;
 * it prints one line, a JSON object. See `load --help`, bench/client.h and bench/traffic.h.
 *
 * Why our own: what we want to know is the server's CPU time for exactly the requests of one phase,
 * under loads that others do not make (a thousand idle connections beside fifty busy ones), with
 * every reply checked. And a generator that is slower than the server would measure itself.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/base.h"
#include "bench/arguments.h"
#include "bench/client.h"
#include "bench/server_cpu.h"
#include "bench/traffic.h"

enum {
    NO_CPU = 4096,
    PREFILL_IN_FLIGHT = 16,
    OUTPUT_MAX = 1 << 30, /* Of all connections together. */
};

struct settings {
    const char *host, *port;
    uint64_t connections, idle, in_flight;
    uint64_t requests, seconds, warm_up;
    uint64_t server_pid, cpu, seed, piece;
    bool prefill;
};

/* What a phase took from both processes. */
struct cost {
    struct fw_server_cpu server;
    uint64_t own_ns;
};

static void settings_parse(int argc, char **argv, struct settings *settings,
                           struct fw_traffic *traffic)
{
    const struct fw_argument table[] = {
        {.name = "host", .help = "name or address", .text = &settings->host},
        {.name = "port", .help = "TCP port", .text = &settings->port},
        {"connections", "busy ones", &settings->connections, 1, 100000, NULL, NULL},
        {"idle", "connections that never send", &settings->idle, 0, 100000, NULL, NULL},
        {"in-flight", "requests per connection", &settings->in_flight, 1, 10000, NULL, NULL},
        {"keys", "different ones, drawn uniformly", &traffic->keys, 1, UINT32_MAX, NULL, NULL},
        {"key-size", "bytes", &traffic->key_size, FW_TRAFFIC_KEY_MIN, FW_TRAFFIC_KEY_MAX, NULL,
         NULL},
        {"value-size", "bytes", &traffic->value_size, 0, FW_TRAFFIC_VALUE_MAX, NULL, NULL},
        {"sets", "percent of the requests", &traffic->set_percent, 0, 100, NULL, NULL},
        {"multiget", "keys per get", &traffic->multiget, 1, FW_TRAFFIC_MULTIGET_MAX, NULL, NULL},
        {"requests", "measured; see seconds", &settings->requests, 1, UINT64_MAX, NULL, NULL},
        {"seconds", "end then, if not 0", &settings->seconds, 0, 86400, NULL, NULL},
        {"warm-up", "requests before the measured ones", &settings->warm_up, 0, UINT64_MAX, NULL,
         NULL},
        {.name = "prefill", .help = "set every key once before", .flag = &settings->prefill},
        {.name = "verify", .help = "compare every value", .flag = &traffic->verify},
        {"server-pid", "whose CPU time to measure, if not 0", &settings->server_pid, 0, INT32_MAX,
         NULL, NULL},
        {"cpu", "to run on; the default is any", &settings->cpu, 0, NO_CPU, NULL, NULL},
        {"seed", "of the keys", &settings->seed, 0, UINT64_MAX, NULL, NULL},
        {"piece", "bytes per system call, at most", &settings->piece, 1, UINT32_MAX, NULL, NULL},
    };
    fw_arguments_parse(argc, argv, table, FW_ARRAY_LENGTH(table));
}

static _Noreturn void fail(const char *what, int error)
{
    (void)fprintf(stderr, "load: %s: %s\n", what, strerrordesc_np(-error));
    exit(EXIT_FAILURE);
}

static void pin(uint64_t cpu)
{
    if (cpu == NO_CPU) {
        return;
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0) {
        fail("--cpu", -errno);
    }
}

/* As many descriptors as we may have: idle connections need them. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static struct cost cost_read(uint64_t server_pid)
{
    struct cost cost = {0};
    if (server_pid != 0) {
        int rc = fw_server_cpu_read((pid_t)server_pid, &cost.server);
        if (rc < 0) {
            fail("--server-pid", rc);
        }
    }
    struct timespec own;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    cost.own_ns = (uint64_t)own.tv_sec * 1000000000 + (uint64_t)own.tv_nsec;
    return cost;
}

static void report(const struct settings *settings, const struct fw_client_phase *phase,
                   const struct cost *before, const struct cost *after)
{
    const struct fw_traffic_counts *counts = &phase->counts;
    const struct fw_histogram *latency = &phase->latency_ns;
    double seconds = (double)phase->elapsed_ns / 1e9;
    double requests = (double)counts->requests;
    double keys = (double)counts->keys;
    (void)printf("{\"requests\": %" PRIu64 ", \"keys\": %" PRIu64 ", \"hits\": %" PRIu64
                 ", \"misses\": %" PRIu64 ", \"stores\": %" PRIu64 ", \"errors\": %" PRIu64 ", ",
                 counts->requests, counts->keys, counts->hits, counts->misses, counts->stores,
                 counts->errors);
    (void)printf("\"seconds\": %.6f, \"requests_per_second\": %.0f, \"keys_per_second\": %.0f, ",
                 seconds, requests / seconds, keys / seconds);
    (void)printf("\"latency_us\": {\"p50\": %.2f, \"p99\": %.2f, \"p99.9\": %.2f, \"max\": %.2f}, ",
                 (double)fw_histogram_percentile(latency, 50) / 1e3,
                 (double)fw_histogram_percentile(latency, 99) / 1e3,
                 (double)fw_histogram_percentile(latency, 99.9) / 1e3,
                 (double)fw_histogram_max(latency) / 1e3);
    if (settings->server_pid != 0) {
        double run_ns = (double)(after->server.run_ns - before->server.run_ns);
        double wait_ns = (double)(after->server.wait_ns - before->server.wait_ns);
        (void)printf("\"server_cpu_ns_per_request\": %.2f, \"server_cpu_ns_per_key\": %.2f, "
                     "\"server_wait_ns_per_request\": %.2f, ",
                     run_ns / requests, run_ns / keys, wait_ns / requests);
    }
    (void)printf("\"own_cpu_ns_per_key\": %.2f}\n",
                 (double)(after->own_ns - before->own_ns) / keys);
}

static void run(const struct settings *settings, struct fw_client *client)
{
    static struct fw_client_phase phase; /* Too large for the stack. */
    phase.duration_ns = UINT64_MAX;
    phase.seed = settings->seed;
    if (settings->prefill) {
        phase.prefill = true;
        phase.in_flight = PREFILL_IN_FLIGHT;
        fw_client_run(client, &phase);
        phase.prefill = false;
        if (phase.counts.errors > 0) {
            (void)fprintf(stderr, "load: the server refused %" PRIu64 " of the keys\n",
                          phase.counts.errors);
            exit(EXIT_FAILURE);
        }
    }
    phase.in_flight = (uint32_t)settings->in_flight;
    phase.requests = settings->warm_up;
    fw_client_run(client, &phase);

    phase.seed = ~settings->seed; /* Not the same keys again. */
    phase.requests = settings->requests;
    if (settings->seconds > 0) {
        phase.duration_ns = settings->seconds * 1000000000;
    }
    struct cost before = cost_read(settings->server_pid);
    fw_client_run(client, &phase);
    struct cost after = cost_read(settings->server_pid);
    report(settings, &phase, &before, &after);
}

int main(int argc, char **argv)
{
    struct settings settings = {
        .host = "127.0.0.1",
        .port = "11211",
        .connections = 50,
        .in_flight = 1,
        .requests = 100000,
        .warm_up = 10000,
        .cpu = NO_CPU,
        .seed = 1,
        .piece = UINT32_MAX,
    };
    struct fw_traffic traffic = {
        .keys = 300000, .key_size = 32, .value_size = 100, .set_percent = 9, .multiget = 1};
    settings_parse(argc, argv, &settings, &traffic);
    int rc = fw_traffic_init(&traffic);
    if (rc < 0) {
        fail("traffic", rc);
    }
    uint64_t in_flight_max =
        settings.in_flight > PREFILL_IN_FLIGHT ? settings.in_flight : PREFILL_IN_FLIGHT;
    if (in_flight_max * settings.connections * fw_traffic_request_max(&traffic) > OUTPUT_MAX) {
        fail("more than 1 GiB of requests in flight", -E2BIG);
    }
    pin(settings.cpu);
    raise_descriptor_limit();

    for (uint64_t i = 0; i < settings.idle; i++) {
        (void)fw_client_connect(settings.host, settings.port); /* Closed at exit. */
    }
    struct fw_client client;
    fw_client_open(&client, &traffic, settings.host, settings.port, (uint32_t)settings.connections,
                   (uint32_t)in_flight_max);
    client.piece_max = (size_t)settings.piece;
    run(&settings, &client);
    fw_client_close(&client);
    fw_traffic_fini(&traffic);
    return EXIT_SUCCESS;
}
