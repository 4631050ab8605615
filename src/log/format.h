/* SPDX-License-Identifier: Apache-2.0 */
/*
 * printf() in two halves: the caller of the log stores the arguments, the writer makes text of
 * them.
 *
 * A format is parsed once into the list of what it takes from the stack and the list of pieces it
 * is made of. pack() then copies the arguments, one word each, with the bytes of strings behind
 * their length; render() turns them into what vsnprintf() would have written, to the byte. The two
 * halves may be in different processes: `fairway log recover` renders what a dead one packed. So
 * render() trusts neither format nor arguments. It never hands the format to printf(): each
 * conversion is rebuilt from the parts that the parser knows, with a value of the type that goes
 * with it.
 *
 * What cannot be packed is refused by the parser: %n, %m, wide characters, arguments by position,
 * widths or precisions beyond FW_LOG_WIDTH_MAX, more than FW_LOG_ARGUMENTS_MAX arguments. Such a
 * line is made by its caller.
 *
 * A message is cut at FW_LOG_MESSAGE_MAX, so strings together take at most one byte more than that:
 * what lies behind could never be seen.
 *
 * Concurrency: a parsed format is constant.
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <fairway/log.h>

#include "base/base.h"

enum {
    FW_LOG_ARGUMENTS_MAX = 16,
    FW_LOG_PIECES_MAX = 2 * FW_LOG_ARGUMENTS_MAX + 1,
    FW_LOG_WIDTH_MAX = 4095,
    FW_LOG_STRINGS_MAX = FW_LOG_MESSAGE_MAX + 1, /* Bytes of all strings of a line. */
    /* Bytes that pack() writes at most: a long double has two words, a string three more. */
    FW_LOG_PACKED_MAX = FW_LOG_ARGUMENTS_MAX * 3 * 8 + FW_LOG_STRINGS_MAX + 7,
};

enum fw_log_kind {
    FW_LOG_KIND_NONE, /* Of a piece: text alone. */
    FW_LOG_KIND_INT,
    FW_LOG_KIND_LONG,
    FW_LOG_KIND_DOUBLE,
    FW_LOG_KIND_LONG_DOUBLE,
    FW_LOG_KIND_POINTER,
    FW_LOG_KIND_STRING,      /* At most `limits` bytes of it. */
    FW_LOG_KIND_STRING_STAR, /* At most as many as the argument before it says. */
};

/* Conversions so common that they do without printf(). */
enum fw_log_fast { FW_LOG_SLOW, FW_LOG_FAST_SIGNED, FW_LOG_FAST_UNSIGNED, FW_LOG_FAST_STRING };

/* Some text, and then perhaps a conversion. */
struct fw_log_piece {
    uint16_t text_begin; /* In the format. */
    uint16_t text_length;
    uint8_t kind;  /* enum fw_log_kind. */
    uint8_t fast;  /* enum fw_log_fast. */
    uint8_t stars; /* Ints that come before the value: width, precision. */
    char spec[25]; /* For printf(), rebuilt. */
};

struct fw_log_format {
    const char *text; /* Lent by the caller of parse(). */
    uint32_t packed_max;
    uint8_t argument_count;
    uint8_t piece_count;
    uint8_t kinds[FW_LOG_ARGUMENTS_MAX];
    uint16_t limits[FW_LOG_ARGUMENTS_MAX];
    struct fw_log_piece pieces[FW_LOG_PIECES_MAX];
};

/* False if the arguments of this format cannot be packed. `text` must outlive `format`. */
FW_MUST_CHECK bool fw_log_format_parse(struct fw_log_format *format, const char *text);

/*
 * Appends to `out` at most FW_LOG_MESSAGE_MAX bytes and a zero, and returns how many it would have
 * been without that limit, or at least more than the limit; -EBADMSG if the `size` bytes at
 * `packed`, aligned to 8, are not what pack() makes for this format.
 */
FW_MUST_CHECK int fw_log_format_render(const struct fw_log_format *format,
                                       const unsigned char *packed, size_t size,
                                       char out[FW_LOG_MESSAGE_MAX + 1]);

static inline unsigned char *fw_log_pack_word(unsigned char *out, uint64_t word)
{
    memcpy(out, &word, sizeof word);
    return out + sizeof word;
}

/* The length, the bytes, a zero, and up to the next word. */
static inline unsigned char *fw_log_pack_string(unsigned char *out, const char *string,
                                                size_t limit, size_t *budget)
{
    if (FW_UNLIKELY(string == NULL)) {
        string = limit >= strlen("(null)") ? "(null)" : ""; /* As glibc does. */
    }
    size_t length = strnlen(string, limit < *budget ? limit : *budget);
    *budget -= length;
    out = fw_log_pack_word(out, length);
    memcpy(out, string, length);
    out[length] = '\0';
    return out + ((length + 8) & ~(size_t)7);
}

/*
 * Writes the arguments to `out`, aligned to 8, where there are `packed_max` bytes, and returns the
 * end of what it wrote, aligned to 8 too. Inline, for it is most of what a log call costs.
 */
static inline __attribute__((always_inline)) unsigned char *
fw_log_pack(const struct fw_log_format *format, unsigned char *out, va_list arguments)
{
    size_t budget = FW_LOG_STRINGS_MAX;
    int64_t last = 0;
    for (uint32_t i = 0; i < format->argument_count; i++) {
        /* The usual ones first, and no jump through a table, which is hard to foresee. */
        enum fw_log_kind kind = (enum fw_log_kind)format->kinds[i];
        if (FW_LIKELY(kind <= FW_LOG_KIND_LONG)) {
            last = FW_LIKELY(kind == FW_LOG_KIND_INT) ? va_arg(arguments, int)
                                                      : va_arg(arguments, long);
            out = fw_log_pack_word(out, (uint64_t)last);
        } else if (FW_LIKELY(kind == FW_LOG_KIND_STRING)) {
            out = fw_log_pack_string(out, va_arg(arguments, const char *), format->limits[i],
                                     &budget);
        } else if (kind == FW_LOG_KIND_STRING_STAR) { /* A negative precision is none. */
            out = fw_log_pack_string(out, va_arg(arguments, const char *),
                                     last >= 0 ? (size_t)last : SIZE_MAX, &budget);
        } else if (kind == FW_LOG_KIND_POINTER) {
            out = fw_log_pack_word(out, (uint64_t)(uintptr_t)va_arg(arguments, void *));
        } else if (kind == FW_LOG_KIND_DOUBLE) {
            double value = va_arg(arguments, double);
            memcpy(out, &value, sizeof value);
            out += sizeof value;
        } else {
            long double value = va_arg(arguments, long double);
            memcpy(out, &value, sizeof value);
            out += sizeof value;
        }
    }
    return out;
}
