/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/number.h"

struct number {
    uint64_t magnitude;
    bool is_negative;
};

/* As isspace() of the C locale: what other locales call a space is none in a protocol. */
static bool is_space(char character)
{
    return character == ' ' || (character >= '\t' && character <= '\r');
}

static bool is_digit(char character)
{
    return character >= '0' && character <= '9';
}

/* A zero byte ends the text, as it ends memcached's strings. */
static bool number_read(const char *text, size_t length, struct number *number)
{
    size_t at = 0;
    while (at < length && is_space(text[at])) {
        at++;
    }
    number->is_negative = at < length && text[at] == '-';
    if (at < length && (text[at] == '-' || text[at] == '+')) {
        at++;
    }
    if (at == length || !is_digit(text[at])) {
        return false;
    }
    uint64_t magnitude = 0;
    for (; at < length && is_digit(text[at]); at++) {
        if (__builtin_mul_overflow(magnitude, 10, &magnitude) ||
            __builtin_add_overflow(magnitude, (uint64_t)(text[at] - '0'), &magnitude)) {
            return false;
        }
    }
    number->magnitude = magnitude;
    return at == length || text[at] == '\0' || is_space(text[at]);
}

bool fw_number_u64(const char *text, size_t length, uint64_t *value)
{
    struct number number;
    if (!number_read(text, length, &number)) {
        return false;
    }
    uint64_t result = number.is_negative ? -number.magnitude : number.magnitude;
    if (number.is_negative && result > INT64_MAX) {
        return false;
    }
    *value = result;
    return true;
}

bool fw_number_i64(const char *text, size_t length, int64_t *value)
{
    struct number number;
    if (!number_read(text, length, &number) ||
        number.magnitude > (uint64_t)INT64_MAX + number.is_negative) {
        return false;
    }
    *value = (int64_t)(number.is_negative ? -number.magnitude : number.magnitude);
    return true;
}

bool fw_number_u32(const char *text, size_t length, uint32_t *value)
{
    uint64_t wide;
    if (!fw_number_u64(text, length, &wide)) {
        return false;
    }
    *value = (uint32_t)wide;
    return true;
}

bool fw_number_i32(const char *text, size_t length, int32_t *value)
{
    int64_t wide;
    if (!fw_number_i64(text, length, &wide)) {
        return false;
    }
    *value = (int32_t)wide;
    return true;
}
