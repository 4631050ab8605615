/* SPDX-License-Identifier: Apache-2.0 */
/* What is seen of commands that were sent ahead: set, mg and ms. */
#include <string.h>

#include "cache/text.h"

enum {
    DIGITS_MAX = 9,    /* Of a value's length. */
    SET_WORDS = 2,     /* Between the key of a set and the length: flags and time. */
    PREFIX_LENGTH = 4, /* More than that is there of any command that is looked at. */
    VALUE_END = 2,     /* "\r\n" */
};

/* The length of a value. False: it is odd, or not all there. */
static bool length_read(const char *at, const char *end, size_t *length)
{
    size_t value = 0;
    const char *begin = at;
    while (at < end && at - begin < DIGITS_MAX && (uint8_t)(*at - '0') <= 9) {
        value = value * 10 + (size_t)(*at - '0');
        at++;
    }
    *length = value;
    return at > begin && at < end && (uint8_t)*at <= ' ';
}

bool fw_text_sight(struct fw_sight *sight, const char *at, const char *end)
{
    if (end - at <= PREFIX_LENGTH) {
        return false;
    }
    bool is_set = memcmp(at, "set ", 4) == 0;
    bool is_meta_set = memcmp(at, "ms ", 3) == 0;
    if (!is_set && !is_meta_set && memcmp(at, "mg ", 3) != 0) {
        return false;
    }
    sight->key = at + (is_set ? 4 : 3);
    at = fw_text_scan(sight->key, end);
    sight->key_length = (size_t)(at - sight->key);
    for (int i = 0; is_set && i < SET_WORDS && at < end; i++) {
        at = fw_text_scan(at + 1, end);
    }
    size_t value = 0;
    if (is_set || is_meta_set) {
        if (at == end || !length_read(at + 1, end, &value)) {
            return false;
        }
        value += VALUE_END;
    }
    const char *line_end = memchr(at, '\n', (size_t)(end - at));
    if (line_end == NULL || (size_t)(end - line_end - 1) < value) {
        return false;
    }
    sight->end = line_end + 1 + value;
    return true;
}
