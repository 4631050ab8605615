/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes text into memory of the caller's, and never past its end.
 *
 *     char line[64];
 *     struct fw_text text;
 *     fw_text_init(&text, line, sizeof line);
 *     fw_text_append_string(&text, "VALUE ");
 *     fw_text_append(&text, key, key_length);
 *     ...
 *     if (text.truncated) { return -EMSGSIZE; }
 *
 * The result is always a string: data[length] is 0, from init() on and after every call, so that
 * one byte of the memory is never part of the text.
 *
 * What does not fit is cut, and `truncated` says so from then on: the calls that follow do nothing,
 * because a later piece behind a gap would read as if nothing was missing. That is also why nobody
 * checks a result per call: one look at the end is enough. Bytes and printf() are cut where the
 * memory ends. A number is written whole or not at all: half a number is another number.
 *
 * Why not snprintf() and an offset: its result is what would have been written, which invites the
 * offset to run past the end; and its decimal numbers cost six times ours (text_bench.c).
 *
 * Ownership: the memory stays the caller's and outlives the text. Concurrency: none.
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/base.h"

enum { FW_TEXT_DECIMAL_MAX = 20 }; /* Digits of UINT64_MAX; also INT64_MIN with its sign. */

/* Read them freely; only the functions below change them. */
struct fw_text {
    char *data;     /* A string of `length` characters. */
    size_t size;    /* Of the memory, at least 1. */
    size_t length;  /* Less than `size`. */
    bool truncated; /* Something did not fit. */
};

/* An empty text in `size` bytes at `data`, at least one. */
void fw_text_init(struct fw_text *text, char *data, size_t size);

/* Makes it empty again, and no longer truncated. */
void fw_text_clear(struct fw_text *text);

/* How many more characters fit. */
static inline size_t fw_text_room(const struct fw_text *text)
{
    return text->size - 1 - text->length;
}

/* What every function relies on; the second line sees who wrote past the text behind its back. */
static inline void fw_text_invariant(const struct fw_text *text)
{
    FW_ASSERT(text->length < text->size);
    FW_CHECK(text->data[text->length] == '\0');
}

/* The rare case of append(): takes as many of the bytes as there is room for, the first time. */
void fw_text_cut(struct fw_text *text, const void *bytes);

/*
 * Appends `length` bytes, of any value. `bytes` may be NULL if `length` is 0. Inline, as the two
 * below, so that a piece of known length is a few moves and no call.
 */
static inline void fw_text_append(struct fw_text *text, const void *bytes, size_t length)
{
    fw_text_invariant(text);
    if (FW_UNLIKELY(text->truncated || length > fw_text_room(text))) {
        fw_text_cut(text, bytes);
    } else if (length > 0) {
        memcpy(text->data + text->length, bytes, length);
        text->length += length;
        text->data[text->length] = '\0';
    }
}

static inline void fw_text_append_string(struct fw_text *text, const char *string)
{
    fw_text_append(text, string, strlen(string));
}

static inline void fw_text_append_char(struct fw_text *text, char character)
{
    fw_text_append(text, &character, 1);
}

/* Decimal, without leading zeros. */
void fw_text_append_unsigned(struct fw_text *text, uint64_t value);
void fw_text_append_signed(struct fw_text *text, int64_t value);

/* As printf() does, for what is neither hot nor large. */
void fw_text_printf(struct fw_text *text, const char *format, ...) FW_PRINTF(2, 3);
void fw_text_vprintf(struct fw_text *text, const char *format, va_list arguments) FW_PRINTF(2, 0);

/*
 * Writes `value` in decimal to `digits`, which has room for FW_TEXT_DECIMAL_MAX, and returns how
 * many it wrote. No 0 at the end. For those who write into a buffer that is no text.
 */
size_t fw_text_decimal(char *digits, uint64_t value);
