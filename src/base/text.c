/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <stdio.h>

void fw_text_init(struct fw_text *text, char *data, size_t size)
{
    FW_ASSERT(size > 0);
    *text = (struct fw_text){.data = data, .size = size};
    data[0] = '\0';
}

void fw_text_clear(struct fw_text *text)
{
    fw_text_init(text, text->data, text->size);
}

/* Takes note of `length` characters that were written behind the text. */
static void text_extend(struct fw_text *text, size_t length)
{
    FW_ASSERT(length <= fw_text_room(text));
    text->length += length;
    text->data[text->length] = '\0';
}

void fw_text_cut(struct fw_text *text, const void *bytes)
{
    if (!text->truncated) {
        size_t room = fw_text_room(text);
        memcpy(text->data + text->length, bytes, room);
        text_extend(text, room);
        text->truncated = true;
    }
}

/*
 * How many digits `value` has. 1233 / 4096 is log10(2), so `guess` is the answer or one less, and
 * less exactly if the value has reached the power of ten with that many zeros.
 */
static size_t decimal_length(uint64_t value)
{
    static const uint64_t powers[FW_TEXT_DECIMAL_MAX] = {
        0, /* Not 1: zero has a digit too. */
        UINT64_C(10),
        UINT64_C(100),
        UINT64_C(1000),
        UINT64_C(10000),
        UINT64_C(100000),
        UINT64_C(1000000),
        UINT64_C(10000000),
        UINT64_C(100000000),
        UINT64_C(1000000000),
        UINT64_C(10000000000),
        UINT64_C(100000000000),
        UINT64_C(1000000000000),
        UINT64_C(10000000000000),
        UINT64_C(100000000000000),
        UINT64_C(1000000000000000),
        UINT64_C(10000000000000000),
        UINT64_C(100000000000000000),
        UINT64_C(1000000000000000000),
        UINT64_C(10000000000000000000),
    };
    uint32_t bits = 64 - (uint32_t)__builtin_clzll(value | 1);
    uint32_t guess = bits * 1233 >> 12;
    return guess + (value >= powers[guess]);
}

/* Writes the `length` digits of `value`, two at a time from the end: half the divisions. */
static void decimal_write(char *digits, uint64_t value, size_t length)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";
    char *end = digits + length;
    for (; value >= 100; value /= 100) {
        end -= 2;
        memcpy(end, &pairs[value % 100 * 2], 2);
    }
    if (value >= 10) {
        end -= 2;
        memcpy(end, &pairs[value * 2], 2);
    } else {
        *--end = (char)('0' + value);
    }
    FW_ASSERT(end == digits);
}

size_t fw_text_decimal(char *digits, uint64_t value)
{
    size_t length = decimal_length(value);
    decimal_write(digits, value, length);
    return length;
}

/* The whole number or nothing. */
static void text_append_number(struct fw_text *text, bool negative, uint64_t magnitude)
{
    fw_text_invariant(text);
    size_t length = decimal_length(magnitude);
    if (length + negative > fw_text_room(text)) {
        text->truncated = true;
    }
    if (text->truncated) {
        return;
    }
    char *end = text->data + text->length;
    if (negative) {
        *end++ = '-';
    }
    decimal_write(end, magnitude, length);
    text_extend(text, length + negative);
}

void fw_text_append_unsigned(struct fw_text *text, uint64_t value)
{
    text_append_number(text, false, value);
}

void fw_text_append_signed(struct fw_text *text, int64_t value)
{
    bool negative = value < 0;
    text_append_number(text, negative, negative ? -(uint64_t)value : (uint64_t)value);
}

void fw_text_vprintf(struct fw_text *text, const char *format, va_list arguments)
{
    fw_text_invariant(text);
    if (text->truncated) {
        return;
    }
    size_t room = fw_text_room(text);
    /* clang-tidy 14 loses sight of a va_list that is passed on. */
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    int length = vsnprintf(text->data + text->length, room + 1, format, arguments);
    FW_ASSERT(length >= 0); /* The formats are ours and convert no wide characters. */
    text->truncated = (size_t)length > room;
    text_extend(text, text->truncated ? room : (size_t)length);
}

void fw_text_printf(struct fw_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fw_text_vprintf(text, format, arguments);
    va_end(arguments);
}
