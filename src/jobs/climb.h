/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Autonomic throughput: finds the number of active workers at which most requests are finished.
 *
 * Too few workers leave the machine idle, too many fight over it, and where the best lies depends
 * on the load and cannot be computed. So it is sought by hill climbing: try another number for one
 * window, compare, and keep the better one. Throughput is noisy, so a window is WINDOW samples, or
 * more where their mean would be worth little; and one mean counts as higher than another only if
 * it is so by CRITICAL standard errors (Welch's test). Where two numbers cannot be told apart the
 * smaller one is kept: workers are not free. Many steps down, each too small to be told from
 * chance, would add up; so none may end more than TOLERANCE below the highest throughput that this
 * load has shown.
 *
 *     SETTLED --a while, or the throughput has changed--> CLIMBING
 *     CLIMBING --better: go on, step doubled--> CLIMBING
 *              --not better: back, other direction, step halved--> CLIMBING
 *              --both directions failed with step 1--> SETTLED
 *
 * Steps double while they pay, so that n workers are reached in about log n windows. Whether the
 * throughput has changed is decided by two windows in a row: one alone may have been disturbed by
 * what else the machine had to do, and to climb then would be to compare with nothing.
 *
 * It knows nothing of workers, clocks or threads: it is given the throughput of each interval, and
 * says how many workers to have.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    FW_CLIMB_WINDOW = 8,       /* Samples, */
    FW_CLIMB_WINDOW_MAX = 32,  /* and up to so many while their mean is too uncertain. */
    FW_CLIMB_PATIENCE_MIN = 4, /* Windows that it rests, doubled each time nothing was found. */
    FW_CLIMB_PATIENCE_MAX = 64,
};

struct fw_climb_mean {
    double mean;
    double variance; /* Of the mean. */
};

struct fw_climb {
    uint32_t low;
    uint32_t high;
    uint32_t best;  /* The number that is kept. */
    uint32_t trial; /* The number that is tried; best while settled. */
    uint32_t step;
    bool up;
    uint32_t failures; /* In a row, with step 1. */
    uint32_t patience;
    uint32_t rest; /* Windows left to rest; 0 while climbing. */
    bool doubted;  /* The last window of rest was of another load, or disturbed. */
    bool has_best;
    struct fw_climb_mean best_mean;
    double peak; /* The highest mean since the load last changed. */
    uint32_t sample_count;
    double sum;
    double sum_squares;
};

/* Between `low` and `high`, from `start` on. */
void fw_climb_init(struct fw_climb *climb, uint32_t low, uint32_t high, uint32_t start);

/* A sample: the throughput of an interval. Returns how many workers to have from now on. */
uint32_t fw_climb_sample(struct fw_climb *climb, double throughput);
