/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build/simulate: runs scenarios of the simulator.
 *
 *     simulate                              every scenario, 20 seeds each
 *     simulate --seeds 1000                 every scenario, seeds 1 to 1000
 *     simulate --scenario X --seed N        one run; N is what a failure printed
 *     simulate --scenario X --seed N --trace FILE    the same, every step written down
 *
 * Scenarios with a planted bug run only when named: they are how the simulator shows that it finds
 * what it is for.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "base/base.h"
#include "base/parse.h"
#include "simulate/scenarios.h"
#include "simulate/sim.h"

enum { SEEDS_DEFAULT = 20, EXIT_USAGE = 2 };

struct choice {
    const char *scenario; /* NULL: all that are not planted. */
    uint64_t first_seed;
    uint64_t seed_count;
    const char *trace_path;
};

static const struct sim_scenario *const scenarios[] = {SIM_SCENARIOS};

static void list(void)
{
    for (size_t i = 0; i < FW_ARRAY_LENGTH(scenarios); i++) {
        (void)printf("%-24s %s%s\n", scenarios[i]->name, scenarios[i]->purpose,
                     scenarios[i]->planted ? " (planted bug)" : "");
    }
}

/* The same seed alone, which prints its trace; see sim_trace_off(). */
static void run_again(const struct sim_scenario *scenario, uint64_t seed)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRIu64, seed);
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        (void)execl("/proc/self/exe", "simulate", "--scenario", scenario->name, "--seed", text,
                    (char *)NULL);
        _exit(EXIT_USAGE);
    }
    int status = 0;
    if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
        WEXITSTATUS(status) != 0) {
        _exit(WEXITSTATUS(status));
    }
    if (WIFSIGNALED(status)) {
        _exit(1);
    }
}

static double real_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void run_seeds(const struct sim_scenario *scenario, const struct choice *choice)
{
    double begin_s = real_s();
    double virtual_s = 0;
    uint64_t switches = 0;
    struct sim_result result = {.virtual_ns = 0};
    for (uint64_t i = 0; i < choice->seed_count; i++) {
        result = sim_run(scenario, choice->first_seed + i);
        virtual_s += (double)result.virtual_ns * 1e-9;
        switches += result.switches;
    }
    double taken_s = real_s() - begin_s;
    (void)printf("%-24s %6" PRIu64 " seeds  %9.1f s simulated  %7.2f s taken  %6.0f x  "
                 "%9" PRIu64 " switches",
                 scenario->name, choice->seed_count, virtual_s, taken_s, virtual_s / taken_s,
                 switches);
    if (choice->seed_count == 1) {
        (void)printf("  trace %016" PRIx64, result.trace_hash);
    }
    (void)printf("\n");
    (void)fflush(stdout);
}

static bool parse_number(const char *text, uint64_t *value)
{
    return text != NULL && fw_parse_uint(text, strlen(text), 0, UINT64_MAX, value) == 0;
}

/* Negative: run. Otherwise the exit status. */
static int parse(int argc, char **argv, struct choice *choice)
{
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool good = true;
        if (strcmp(argv[i], "--list") == 0) {
            list();
            return 0;
        }
        if (strcmp(argv[i], "--scenario") == 0) {
            choice->scenario = value;
            good = value != NULL;
        } else if (strcmp(argv[i], "--seed") == 0) {
            good = parse_number(value, &choice->first_seed);
            choice->seed_count = 1;
        } else if (strcmp(argv[i], "--seeds") == 0) {
            good = parse_number(value, &choice->seed_count);
        } else if (strcmp(argv[i], "--trace") == 0) {
            choice->trace_path = value;
            good = value != NULL;
        } else {
            good = false;
        }
        if (!good) {
            (void)fprintf(stderr, "usage: simulate [--list] [--scenario NAME] [--seed N | --seeds "
                                  "COUNT] [--trace FILE]\n");
            return EXIT_USAGE;
        }
    }
    return -1;
}

int main(int argc, char **argv)
{
    struct choice choice = {.first_seed = 1, .seed_count = SEEDS_DEFAULT};
    int status = parse(argc, argv, &choice);
    if (status >= 0) {
        return status;
    }
    if (choice.trace_path != NULL) {
        int fd = open(choice.trace_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0) {
            (void)fprintf(stderr, "simulate: cannot write %s: %s\n", choice.trace_path,
                          strerrordesc_np(errno));
            return 1;
        }
        sim_trace_to(fd);
    }
    if (choice.seed_count > 1 && choice.trace_path == NULL) {
        sim_trace_off(run_again);
    }
    int rc = fw_log_set_level(NULL, FW_LOG_ERROR); /* What a healthy server says is no news here. */
    FW_ASSERT(rc == 0);
    bool found = false;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(scenarios); i++) {
        bool wanted = choice.scenario == NULL ? !scenarios[i]->planted
                                              : strcmp(choice.scenario, scenarios[i]->name) == 0;
        if (wanted) {
            run_seeds(scenarios[i], &choice);
            found = true;
        }
    }
    if (!found) {
        (void)fprintf(stderr, "simulate: no scenario %s; --list shows them\n", choice.scenario);
        return EXIT_USAGE;
    }
    return 0;
}
