/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nearest.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"

/* A name cut short is as near as two slips: one real slip from another name is nearer. */
enum { ABBREVIATION_LENGTH_MIN = 2, ABBREVIATION_DISTANCE = 2 };

void fw_nearest_init(struct fw_nearest *nearest, const char *word, size_t length)
{
    *nearest = (struct fw_nearest){.word = word, .length = length, .distance_best = SIZE_MAX};
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

size_t fw_nearest_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    FW_ASSERT(a_length <= FW_NEAREST_LENGTH_MAX && b_length <= FW_NEAREST_LENGTH_MAX);
    /*
     * row[j] is the distance between the first i letters of `a` and the first j of `b`. A swap
     * looks two rows back, so three rows are kept and take turns.
     */
    size_t rows[3][FW_NEAREST_LENGTH_MAX + 1];
    for (size_t j = 0; j <= b_length; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= a_length; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3];
        const size_t *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t changed = above[j - 1] + !same_letter(a[i - 1], b[j - 1]);
            size_t lost_or_added = smaller(above[j], row[j - 1]) + 1;
            row[j] = smaller(changed, lost_or_added);
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1])) {
                row[j] = smaller(row[j], above2[j - 2] + 1);
            }
        }
    }
    return rows[a_length % 3][b_length];
}

static bool is_beginning(const struct fw_nearest *nearest, const char *name, size_t length)
{
    return nearest->length >= ABBREVIATION_LENGTH_MIN && nearest->length <= length &&
           strncasecmp(nearest->word, name, nearest->length) == 0;
}

void fw_nearest_offer(struct fw_nearest *nearest, const char *name, size_t length)
{
    if (nearest->length > FW_NEAREST_LENGTH_MAX || length > FW_NEAREST_LENGTH_MAX) {
        return;
    }
    size_t distance = fw_nearest_distance(nearest->word, nearest->length, name, length);
    size_t allowed = (smaller(nearest->length, length) + 1) / 3;
    if (is_beginning(nearest, name, length)) {
        distance = smaller(distance, ABBREVIATION_DISTANCE);
        allowed = ABBREVIATION_DISTANCE;
    }
    if (distance <= allowed && distance < nearest->distance_best) {
        nearest->distance_best = distance;
        memcpy(nearest->best, name, length);
        nearest->best[length] = '\0';
    }
}

bool fw_nearest_found(const struct fw_nearest *nearest)
{
    return nearest->distance_best != SIZE_MAX;
}
