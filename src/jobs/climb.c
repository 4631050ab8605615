/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/climb.h"

#include "base/assert.h"

/*
 * Standard errors by which a difference is believed. One is little, but where chance decides the
 * throughputs are nearly the same, and to stop short of the best costs more than to pass it.
 */
static const double CRITICAL = 1.0;
static const double TOLERANCE = 0.02;
static const double CHANGE = 0.1;     /* Relative, above which it is another load. */
static const double GAIN = 0.005;     /* Relative, below which more workers are not worth it. */
static const double PRECISION = 0.03; /* Relative standard error with which a window may end. */

void fw_climb_init(struct fw_climb *climb, uint32_t low, uint32_t high, uint32_t start)
{
    FW_ASSERT(low >= 1 && low <= start && start <= high);
    *climb = (struct fw_climb){.low = low,
                               .high = high,
                               .best = start,
                               .trial = start,
                               .step = 1,
                               .up = start < high,
                               .patience = FW_CLIMB_PATIENCE_MIN};
}

/* True if `a` is higher than `b` beyond chance. Squares compare without a square root. */
static bool climb_is_higher(struct fw_climb_mean a, struct fw_climb_mean b)
{
    double difference = a.mean - b.mean;
    return difference > 0 &&
           difference * difference > CRITICAL * CRITICAL * (a.variance + b.variance);
}

static struct fw_climb_mean climb_window_mean(const struct fw_climb *climb)
{
    double count = climb->sample_count;
    double mean = climb->sum / count;
    double variance = (climb->sum_squares - count * mean * mean) / (count - 1);
    return (struct fw_climb_mean){.mean = mean, .variance = (variance > 0 ? variance : 0) / count};
}

/* The next number to try, in the present direction or, at the end of the range, the other. */
static void climb_propose(struct fw_climb *climb)
{
    if (climb->best == climb->high) {
        climb->up = false;
    } else if (climb->best == climb->low) {
        climb->up = true;
    }
    uint32_t room = climb->up ? climb->high - climb->best : climb->best - climb->low;
    uint32_t step = climb->step < room ? climb->step : room;
    climb->trial = climb->up ? climb->best + step : climb->best - step;
}

static void climb_settle(struct fw_climb *climb)
{
    climb->trial = climb->best;
    climb->rest = climb->patience;
    climb->step = 1 + climb->best / 10; /* Wide enough to be told from chance, and no wider. */
    climb->failures = 0;
    if (climb->patience < FW_CLIMB_PATIENCE_MAX) {
        climb->patience *= 2;
    }
}

/* A window at `trial` is over. */
static void climb_judge(struct fw_climb *climb, struct fw_climb_mean mean)
{
    /* Upwards it must be better; downwards it suffices that it is not worse. */
    bool better = climb->up ? climb_is_higher(mean, climb->best_mean) &&
                                  mean.mean > (1 + GAIN) * climb->best_mean.mean
                            : !climb_is_higher(climb->best_mean, mean) &&
                                  mean.mean >= (1 - TOLERANCE) * climb->peak;
    if (better) {
        climb->best = climb->trial;
        climb->best_mean = mean;
        climb->peak = mean.mean > climb->peak ? mean.mean : climb->peak;
        climb->step *= 2;
        climb->failures = 0;
        climb->patience = FW_CLIMB_PATIENCE_MIN;
    } else {
        climb->failures += climb->step == 1 ? 1 : 0;
        climb->step = climb->step > 1 ? climb->step / 2 : 1;
        climb->up = !climb->up;
    }
    if (climb->failures >= 2 || climb->low == climb->high) {
        climb_settle(climb);
    } else {
        climb_propose(climb);
    }
}

/* A window of rest is over: is it still the load for which this number was found? */
static void climb_rest(struct fw_climb *climb, struct fw_climb_mean mean)
{
    double ratio = mean.mean / climb->best_mean.mean;
    bool changed = ratio > 1 + CHANGE || ratio < 1 - CHANGE;
    climb->rest--;
    if (changed && !climb->doubted) {
        climb->doubted = true;
        climb->rest += climb->rest == 0 ? 1 : 0; /* Not to be compared with, nor to set out from. */
        return;
    }
    climb->doubted = false;
    climb->best_mean = mean;
    if (changed) {
        climb->rest = 0;
        climb->peak = mean.mean;
        climb->patience = FW_CLIMB_PATIENCE_MIN;
    }
    if (climb->rest == 0 && climb->low < climb->high) {
        climb_propose(climb);
    }
}

uint32_t fw_climb_sample(struct fw_climb *climb, double throughput)
{
    climb->sum += throughput;
    climb->sum_squares += throughput * throughput;
    if (++climb->sample_count < FW_CLIMB_WINDOW) {
        return climb->trial;
    }
    struct fw_climb_mean mean = climb_window_mean(climb);
    if (mean.variance > PRECISION * PRECISION * mean.mean * mean.mean &&
        climb->sample_count < FW_CLIMB_WINDOW_MAX) {
        return climb->trial; /* Too noisy yet to be compared. */
    }
    climb->sample_count = 0;
    climb->sum = 0;
    climb->sum_squares = 0;
    if (!climb->has_best) {
        climb->has_best = true;
        climb->best_mean = mean;
        climb->peak = mean.mean;
        climb_propose(climb);
    } else if (climb->rest > 0) {
        climb_rest(climb, mean);
    } else {
        climb_judge(climb, mean);
    }
    return climb->trial;
}
