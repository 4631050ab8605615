/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Did you mean ...?": the known name nearest to a misspelt one.
 *
 *     struct fw_nearest nearest;
 *     fw_nearest_init(&nearest, word, strlen(word));
 *     for (each known name) { fw_nearest_offer(&nearest, name, strlen(name)); }
 *     if (fw_nearest_found(&nearest)) { ... nearest.best ... }
 *
 * Near is what one slip of the hand makes: a letter lost, added, changed, or two neighbours
 * swapped. Each counts one, and a name is found only if the slips are few for its length, about one
 * in three letters: a wild guess is worse than none. The beginning of a name is near to it too.
 * The names are offered one by one because they come from several tables, some put together on the
 * fly.
 *
 * The struct is the caller's and copies the best name; there is nothing to free.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { FW_NEAREST_LENGTH_MAX = 63 }; /* Of word and name; longer ones are near to nothing. */

struct fw_nearest {
    const char *word; /* The caller's. */
    size_t length;
    size_t distance_best;
    char best[FW_NEAREST_LENGTH_MAX + 1];
};

void fw_nearest_init(struct fw_nearest *nearest, const char *word, size_t length);

/* Of two names equally near the one offered first stays. */
void fw_nearest_offer(struct fw_nearest *nearest, const char *name, size_t length);

/* True if some name was near enough; `best` holds it then. */
bool fw_nearest_found(const struct fw_nearest *nearest);

/*
 * Slips between two words of at most FW_NEAREST_LENGTH_MAX characters, whatever their case: the
 * Damerau-Levenshtein distance in its restricted form, where no letter is touched twice.
 */
size_t fw_nearest_distance(const char *a, size_t a_length, const char *b, size_t b_length);
