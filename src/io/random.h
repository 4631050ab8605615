/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers that can be replayed: the same seed gives the same numbers on every machine and
 * with every compiler. Not for secrets: who has seen a few numbers can tell the next.
 *
 * There is no generator of the process. Each owner has its own, which takes no lock, and whose
 * numbers do not depend on who else draws any; that is what makes a simulation replayable. One seed
 * comes from the system (or from the simulator, through the hook) and fw_random_fork() makes all
 * other generators from it.
 *
 * The generator is xoshiro256** by Blackman and Vigna: 32 bytes, about 1 ns, passes the usual
 * batteries. A generator belongs to its owner; two threads may not draw from one at once.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

struct fw_random {
    uint64_t state[4]; /* Never all zero. */
};

/* The simulator's side. Set once, before the first seed is asked for, never changed after. */
struct fw_random_hooks {
    uint64_t (*seed)(void);
};
extern const struct fw_random_hooks *fw_random_hooks;

/* A seed nobody can guess. Returns 0, or -ENOSYS or -EPERM where getrandom() is not allowed. */
FW_MUST_CHECK int fw_random_seed(uint64_t *seed);

/* Any seed will do, 0 as well. */
void fw_random_init(struct fw_random *generator, uint64_t seed);

/* Makes `child` a generator of its own, as far as anyone can tell unrelated to `generator`. */
void fw_random_fork(struct fw_random *generator, struct fw_random *child);

/* All 64 bits are equally good. */
uint64_t fw_random_next(struct fw_random *generator);

/* A number in [0, bound), all equally likely; bound > 0. */
uint64_t fw_random_below(struct fw_random *generator, uint64_t bound);

/* A number in [low, high], all equally likely; low <= high. */
uint64_t fw_random_between(struct fw_random *generator, uint64_t low, uint64_t high);

/* True in `numerator` of `denominator` cases; numerator <= denominator, denominator > 0. */
bool fw_random_chance(struct fw_random *generator, uint64_t numerator, uint64_t denominator);

void fw_random_fill(struct fw_random *generator, void *buffer, size_t size);

/* Puts `count` elements of `element_size` bytes in any order, all orders equally likely. */
void fw_random_shuffle(struct fw_random *generator, void *array, size_t count, size_t element_size);
