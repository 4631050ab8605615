/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/harness.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/parse.h"

enum {
    RUNS_MIN = 7, /* Fewer say too little about the spread. */
    RUNS_DEFAULT = 11,
    RUNS_QUICK = 3,
    RUNS_MAX = 1001,
    QUICK_DIVISOR = 100,
    EXIT_USAGE = 2,
};

struct settings {
    uint32_t runs;
    bool quick;
    const char *only;
};

struct result {
    const struct fw_bench *bench;
    struct fw_bench_summary ours;
    struct fw_bench_summary peer;
    struct fw_bench_summary ratio;
    double used; /* How much of its bar, of the one that is nearer; up to 1 is met. */
    bool ok;
};

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static double quantile(const double sorted[], size_t count, double fraction)
{
    double position = fraction * (double)(count - 1);
    size_t below = (size_t)position;
    size_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (position - (double)below) * (sorted[above] - sorted[below]);
}

void fw_bench_summarise(double samples[], size_t count, struct fw_bench_summary *summary)
{
    qsort(samples, count, sizeof samples[0], compare_doubles);
    summary->min = samples[0];
    summary->p25 = quantile(samples, count, 0.25);
    summary->median = quantile(samples, count, 0.5);
    summary->p75 = quantile(samples, count, 0.75);
    summary->max = samples[count - 1];
    summary->spread = summary->median > 0 ? (summary->p75 - summary->p25) / summary->median : 0;
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* CPU nanoseconds per operation of one run. */
static double side_measure(const struct fw_bench_side *side, uint64_t count)
{
    uint64_t begin_ns = thread_cpu_ns();
    side->run(side->state, count);
    uint64_t end_ns = thread_cpu_ns();
    return (double)(end_ns - begin_ns) / (double)count;
}

static void bench_measure(const struct fw_bench *bench, const struct settings *settings,
                          struct result *result)
{
    static double ours_ns[RUNS_MAX];
    static double peer_ns[RUNS_MAX];
    static double ratios[RUNS_MAX];
    uint64_t count = bench->count;
    if (settings->quick) {
        count = (count + QUICK_DIVISOR - 1) / QUICK_DIVISOR;
    }

    bench->ours.run(bench->ours.state, count); /* Warms caches, predictors and the allocator. */
    bench->peer.run(bench->peer.state, count);
    for (uint32_t i = 0; i < settings->runs; i++) {
        if (i % 2 == 0) {
            ours_ns[i] = side_measure(&bench->ours, count);
            peer_ns[i] = side_measure(&bench->peer, count);
        } else {
            peer_ns[i] = side_measure(&bench->peer, count);
            ours_ns[i] = side_measure(&bench->ours, count);
        }
        /* A peer too short for the clock makes a ratio that nobody overlooks, yet valid JSON. */
        ratios[i] = ours_ns[i] / (peer_ns[i] > 0 ? peer_ns[i] : 1e-9);
    }

    result->bench = bench;
    fw_bench_summarise(ours_ns, settings->runs, &result->ours);
    fw_bench_summarise(peer_ns, settings->runs, &result->peer);
    fw_bench_summarise(ratios, settings->runs, &result->ratio);
    result->used = result->ratio.median / bench->bar;
    if (bench->bar_ns > 0 && result->ours.median / bench->bar_ns > result->used) {
        result->used = result->ours.median / bench->bar_ns;
    }
    result->ok = result->used <= 1;
}

static void print_row(const char *role, const char *name, const struct fw_bench_summary *summary)
{
    (void)printf("  %-5s %-28s %10.3f %10.3f %10.3f %10.3f %10.3f %7.1f%%\n", role, name,
                 summary->median, summary->min, summary->p25, summary->p75, summary->max,
                 summary->spread * 100);
}

static void print_table(const struct result *result, const struct settings *settings)
{
    const struct fw_bench *bench = result->bench;
    (void)printf("%s: CPU %s, %u runs%s\n", bench->name, bench->unit, settings->runs,
                 settings->quick ? ", quick: not for judging" : "");
    (void)printf("  %-34s %10s %10s %10s %10s %10s %8s\n", "", "median", "min", "p25", "p75", "max",
                 "spread");
    print_row("ours", bench->ours.name, &result->ours);
    print_row("peer", bench->peer.name, &result->peer);
    print_row("ratio", "ours / peer, round by round", &result->ratio);
    (void)printf("  bar %.2f", bench->bar);
    if (bench->bar_ns > 0) {
        (void)printf(", and ours %.0f ns", bench->bar_ns);
    }
    (void)printf(", lower is better: %s\n\n", result->ok ? "ok" : "NOT MET");
}

/* The members of the object without its braces, so that `parts` can be put behind them. */
static void print_members(const struct result *result, const struct settings *settings)
{
    const struct fw_bench *bench = result->bench;
    (void)printf("\"bench\": \"%s\", \"ratio\": %.4f, \"better\": \"lower\", \"peer\": \"%s\", "
                 "\"bar\": %.4f, \"ok\": %s, \"runs\": %u, \"spread\": %.4f, \"ours_ns\": %.4f, "
                 "\"peer_ns\": %.4f, \"unit\": \"%s\", \"quick\": %s",
                 bench->name, result->ratio.median, bench->peer.name, bench->bar,
                 result->ok ? "true" : "false", settings->runs, result->ratio.spread,
                 result->ours.median, result->peer.median, bench->unit,
                 settings->quick ? "true" : "false");
    if (bench->bar_ns > 0) {
        (void)printf(", \"bar_ns\": %.4f", bench->bar_ns);
    }
}

static void print_json(const struct result *worst, const struct result results[], size_t count,
                       const struct settings *settings)
{
    (void)printf("{");
    print_members(worst, settings);
    if (count > 1) {
        for (size_t i = 0; i < count; i++) {
            (void)printf("%s{", i == 0 ? ", \"parts\": [" : ", ");
            print_members(&results[i], settings);
            (void)printf("}");
        }
        (void)printf("]");
    }
    (void)printf("}\n");
}

static bool parse_settings(int argc, char **argv, struct settings *settings)
{
    static const struct option options[] = {
        {"runs", required_argument, NULL, 'r'},
        {"quick", no_argument, NULL, 'q'},
        {"only", required_argument, NULL, 'o'},
        {0},
    };
    *settings = (struct settings){0};
    uint64_t runs;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'q') {
            settings->quick = true;
        } else if (option == 'o') {
            settings->only = optarg;
        } else if (option == 'r' &&
                   fw_parse_uint(optarg, strlen(optarg), 1, RUNS_MAX, &runs) == 0) {
            settings->runs = (uint32_t)runs;
        } else {
            return false;
        }
    }
    if (settings->runs == 0) {
        settings->runs = settings->quick ? RUNS_QUICK : RUNS_DEFAULT;
    }
    return optind == argc && (settings->quick || settings->runs >= RUNS_MIN);
}

int fw_bench_main(int argc, char **argv, const struct fw_bench *bench, size_t bench_count)
{
    struct settings settings;
    if (!parse_settings(argc, argv, &settings)) {
        (void)fprintf(
            stderr,
            "usage: %s [--runs N] [--quick] [--only NAME], N from %d (with --quick: 1) to %d\n",
            argv[0], RUNS_MIN, RUNS_MAX);
        return EXIT_USAGE;
    }
    struct result *results = calloc(bench_count, sizeof *results);
    if (results == NULL || bench_count == 0) {
        (void)fprintf(stderr, "%s: nothing to measure\n", argv[0]);
        free(results);
        return EXIT_USAGE;
    }

    size_t measured = 0;
    const struct result *worst = &results[0];
    for (size_t i = 0; i < bench_count; i++) {
        if (settings.only != NULL && strcmp(settings.only, bench[i].name) != 0) {
            continue;
        }
        struct result *result = &results[measured++];
        bench_measure(&bench[i], &settings, result);
        print_table(result, &settings);
        if (result->used > worst->used) {
            worst = result;
        }
    }
    if (measured == 0) {
        (void)fprintf(stderr, "%s: there is no benchmark %s\n", argv[0], settings.only);
        free(results);
        return EXIT_USAGE;
    }
    print_json(worst, results, measured, &settings);

    int status = worst->ok || settings.quick ? EXIT_SUCCESS : EXIT_FAILURE;
    free(results);
    return status;
}
