/* SPDX-License-Identifier: Apache-2.0 */
#include "io/random.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/assert.h"

const struct fw_random_hooks *fw_random_hooks;

int fw_random_seed(uint64_t *seed)
{
    if (fw_random_hooks != NULL) {
        *seed = fw_random_hooks->seed();
        return 0;
    }
    /* So few bytes come whole or not at all; a signal interrupts only in the first second of boot.
     */
    ssize_t size;
    do {
        size = getrandom(seed, sizeof *seed, 0);
    } while (size < 0 && errno == EINTR);
    FW_ASSERT(size < 0 || size == (ssize_t)sizeof *seed);
    return size < 0 ? -errno : 0;
}

/* SplitMix64: a walk by the golden ratio, each step mixed. Turns near seeds into far states. */
static uint64_t seed_expand(uint64_t *seed)
{
    *seed += 0x9e3779b97f4a7c15;
    uint64_t mixed = *seed;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
}

void fw_random_init(struct fw_random *generator, uint64_t seed)
{
    /* Its four steps differ from each other, so at most one is zero and the state is legal. */
    for (size_t i = 0; i < FW_ARRAY_LENGTH(generator->state); i++) {
        generator->state[i] = seed_expand(&seed);
    }
}

void fw_random_fork(struct fw_random *generator, struct fw_random *child)
{
    fw_random_init(child, fw_random_next(generator));
}

static uint64_t rotate_left(uint64_t value, int count)
{
    return (value << count) | (value >> (64 - count));
}

uint64_t fw_random_next(struct fw_random *generator)
{
    uint64_t *state = generator->state;
    uint64_t result = rotate_left(state[1] * 5, 7) * 9;
    uint64_t shifted = state[1] << 17;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= shifted;
    state[3] = rotate_left(state[3], 45);
    return result;
}

/*
 * The upper half of next() * bound falls in [0, bound). Of the 2^64 numbers some come once more
 * than others, unless the (2^64 mod bound) lowest products are thrown away, which is what the loop
 * does. The first comparison spares the division nearly always.
 */
uint64_t fw_random_below(struct fw_random *generator, uint64_t bound)
{
    FW_ASSERT(bound > 0);
    __extension__ typedef unsigned __int128 product_t;
    product_t product = (product_t)fw_random_next(generator) * bound;
    if ((uint64_t)product < bound) {
        uint64_t rejected = -bound % bound;
        while ((uint64_t)product < rejected) {
            product = (product_t)fw_random_next(generator) * bound;
        }
    }
    return (uint64_t)(product >> 64);
}

uint64_t fw_random_between(struct fw_random *generator, uint64_t low, uint64_t high)
{
    FW_ASSERT(low <= high);
    uint64_t span = high - low;
    return span == UINT64_MAX ? fw_random_next(generator)
                              : low + fw_random_below(generator, span + 1);
}

bool fw_random_chance(struct fw_random *generator, uint64_t numerator, uint64_t denominator)
{
    FW_ASSERT(numerator <= denominator);
    return fw_random_below(generator, denominator) < numerator;
}

void fw_random_fill(struct fw_random *generator, void *buffer, size_t size)
{
    for (char *next = buffer; size > 0;) {
        uint64_t value = fw_random_next(generator);
        size_t part = size < sizeof value ? size : sizeof value;
        memcpy(next, &value, part);
        next += part;
        size -= part;
    }
}

static void bytes_swap(char *one, char *other, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        char held = one[i];
        one[i] = other[i];
        other[i] = held;
    }
}

void fw_random_shuffle(struct fw_random *generator, void *array, size_t count, size_t element_size)
{
    char *elements = array;
    for (size_t left = count; left > 1; left--) {
        size_t chosen = fw_random_below(generator, left);
        bytes_swap(&elements[chosen * element_size], &elements[(left - 1) * element_size],
                   element_size);
    }
}
