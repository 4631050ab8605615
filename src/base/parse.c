/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"

#include <errno.h>
#include <strings.h>

/* All digits of `text` in `base`, up to 10; -ERANGE beyond 64 bits. */
static int parse_digits(const char *text, size_t length, unsigned base, uint64_t *value)
{
    if (length == 0) {
        return -EINVAL;
    }
    uint64_t sum = 0;
    bool overflow = false;
    for (size_t i = 0; i < length; i++) {
        /* One comparison: whatever is below '0' wraps around to something large. */
        unsigned digit = (unsigned)(unsigned char)text[i] - '0';
        if (digit >= base) {
            return -EINVAL; /* Even behind an overflow: nonsense is the more useful answer. */
        }
        overflow |= __builtin_mul_overflow(sum, base, &sum);
        overflow |= __builtin_add_overflow(sum, digit, &sum);
    }
    if (overflow) {
        return -ERANGE;
    }
    *value = sum;
    return 0;
}

int fw_parse_uint(const char *text, size_t length, uint64_t min, uint64_t max, uint64_t *value)
{
    uint64_t number;
    int rc = parse_digits(text, length, 10, &number);
    if (rc != 0) {
        return rc;
    }
    if (number < min || number > max) {
        return -ERANGE;
    }
    *value = number;
    return 0;
}

int fw_parse_int(const char *text, size_t length, int64_t min, int64_t max, int64_t *value)
{
    bool negative = length > 0 && text[0] == '-';
    uint64_t magnitude;
    int rc = parse_digits(text + negative, length - negative, 10, &magnitude);
    if (rc != 0) {
        return rc;
    }
    if (magnitude > (uint64_t)INT64_MAX + negative) {
        return -ERANGE;
    }
    /* Negated while unsigned, where INT64_MIN is no special case. */
    int64_t number = (int64_t)(negative ? -magnitude : magnitude);
    if (number < min || number > max) {
        return -ERANGE;
    }
    *value = number;
    return 0;
}

int fw_parse_octal(const char *text, size_t length, uint64_t max, uint64_t *value)
{
    uint64_t number;
    int rc = parse_digits(text, length, 8, &number);
    if (rc != 0) {
        return rc;
    }
    if (number > max) {
        return -ERANGE;
    }
    *value = number;
    return 0;
}

/* How many of the first characters are digits. */
static size_t digits_count(const char *text, size_t length)
{
    size_t count = 0;
    while (count < length && text[count] >= '0' && text[count] <= '9') {
        count++;
    }
    return count;
}

static bool equals_nocase(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && strncasecmp(text, word, length) == 0;
}

int fw_parse_size_unit(const char *text, size_t length, uint64_t *unit)
{
    static const struct {
        const char *name;
        const char *name_b;
        const char *name_ib;
        unsigned shift;
    } units[] = {{"b", "b", "b", 0},
                 {"k", "kb", "kib", 10},
                 {"m", "mb", "mib", 20},
                 {"g", "gb", "gib", 30},
                 {"t", "tb", "tib", 40}};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(units); i++) {
        if (equals_nocase(text, length, units[i].name) ||
            equals_nocase(text, length, units[i].name_b) ||
            equals_nocase(text, length, units[i].name_ib)) {
            *unit = UINT64_C(1) << units[i].shift;
            return 0;
        }
    }
    return -EINVAL;
}

int fw_parse_duration_unit(const char *text, size_t length, int64_t *unit_ns)
{
    static const struct {
        const char *name;
        int64_t ns;
    } units[] = {{"ns", 1},
                 {"us", 1000},
                 {"ms", 1000000},
                 {"s", 1000000000},
                 {"m", INT64_C(60) * 1000000000},
                 {"h", INT64_C(3600) * 1000000000},
                 {"d", INT64_C(86400) * 1000000000}};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(units); i++) {
        if (equals_nocase(text, length, units[i].name)) {
            *unit_ns = units[i].ns;
            return 0;
        }
    }
    return -EINVAL;
}

int fw_parse_size(const char *text, size_t length, uint64_t unit, uint64_t *value)
{
    size_t digits = digits_count(text, length);
    if (digits < length) {
        int rc = fw_parse_size_unit(text + digits, length - digits, &unit);
        if (rc != 0) {
            return rc;
        }
    }
    uint64_t number;
    int rc = parse_digits(text, digits, 10, &number);
    if (rc != 0) {
        return rc;
    }
    if (__builtin_mul_overflow(number, unit, &number)) {
        return -ERANGE;
    }
    *value = number;
    return 0;
}

int fw_parse_duration(const char *text, size_t length, int64_t unit_ns, int64_t *value)
{
    size_t digits = digits_count(text, length);
    if (digits < length) {
        int rc = fw_parse_duration_unit(text + digits, length - digits, &unit_ns);
        if (rc != 0) {
            return rc;
        }
    }
    uint64_t number;
    int rc = parse_digits(text, digits, 10, &number);
    if (rc != 0) {
        return rc;
    }
    int64_t ns; /* The built-in multiplies as if without limit: one check covers both types. */
    if (__builtin_mul_overflow(number, unit_ns, &ns)) {
        return -ERANGE;
    }
    *value = ns;
    return 0;
}

int fw_parse_bool(const char *text, size_t length, bool *value)
{
    static const struct {
        const char *name;
        bool value;
    } names[] = {{"yes", true}, {"true", true},   {"on", true},   {"1", true},
                 {"no", false}, {"false", false}, {"off", false}, {"0", false}};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(names); i++) {
        if (equals_nocase(text, length, names[i].name)) {
            *value = names[i].value;
            return 0;
        }
    }
    return -EINVAL;
}
