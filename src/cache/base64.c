/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/base64.h"

#include <stdint.h>

enum {
    NONE = -1,    /* Of a character outside of the alphabet. */
    PADDING = 64, /* Where it stands among the others. */
};

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";

/* What a character stands for; '=' stands for 0. */
static int digit(char character)
{
    if (character >= 'A' && character <= 'Z') {
        return character - 'A';
    }
    if (character >= 'a' && character <= 'z') {
        return character - 'a' + 26;
    }
    if (character >= '0' && character <= '9') {
        return character - '0' + 52;
    }
    switch (character) {
    case '+':
        return 62;
    case '/':
        return 63;
    case '=':
        return 0;
    default:
        return NONE;
    }
}

size_t fw_base64_decode(const char *text, size_t length, char *bytes)
{
    size_t known = 0;
    for (size_t i = 0; i < length; i++) {
        known += digit(text[i]) != NONE;
    }
    if (known % 4 != 0) {
        return 0;
    }
    size_t count = 0;
    uint32_t group = 0;
    unsigned digits = 0;
    unsigned padding = 0;
    for (size_t i = 0; i < length; i++) {
        int value = digit(text[i]);
        if (value == NONE) {
            continue;
        }
        group = group << 6 | (uint32_t)value;
        padding += text[i] == '=';
        if (++digits < 4) {
            continue;
        }
        if (padding > 2) {
            return 0;
        }
        for (unsigned byte = 0; byte < 3 - padding; byte++) {
            bytes[count++] = (char)(group >> (16 - 8 * byte));
        }
        if (padding > 0) {
            break;
        }
        group = 0;
        digits = 0;
    }
    return count;
}

char *fw_base64_encode(const char *bytes, size_t length, char *text)
{
    for (size_t i = 0; i < length; i += 3) {
        size_t left = length - i;
        uint32_t group = (uint32_t)(uint8_t)bytes[i] << 16;
        group |= left > 1 ? (uint32_t)(uint8_t)bytes[i + 1] << 8 : 0;
        group |= left > 2 ? (uint32_t)(uint8_t)bytes[i + 2] : 0;
        *text++ = alphabet[group >> 18];
        *text++ = alphabet[group >> 12 & 63];
        *text++ = alphabet[left > 1 ? group >> 6 & 63 : PADDING];
        *text++ = alphabet[left > 2 ? group & 63 : PADDING];
    }
    return text;
}
