/* SPDX-License-Identifier: Apache-2.0 */
#include "log/format.h"

#include <errno.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/text.h"

static_assert(sizeof(long) == 8 && sizeof(long double) == 16, "words are of 64 bits");

enum { FLAGS_MAX = 6, TEXT_MAX = UINT16_MAX };

/* ---- Parsing. ---- */

/* A number, or a star. False: neither is wrong here, but this number is too large. */
static bool number_parse(const char **at, struct fw_text *spec, bool *star)
{
    uint32_t value = 0;
    *star = **at == '*';
    if (*star) {
        fw_text_append_char(spec, '*');
        (*at)++;
        return true;
    }
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        value = value * 10 + (uint32_t)(**at - '0');
        fw_text_append_char(spec, **at);
        if (value > FW_LOG_WIDTH_MAX) {
            return false;
        }
    }
    return true;
}

enum length { LENGTH_NONE, LENGTH_CHAR, LENGTH_SHORT, LENGTH_LONG, LENGTH_LONG_DOUBLE };

static enum length length_parse(const char **at)
{
    static const struct {
        char name[3];
        enum length length;
    } lengths[] = {{"hh", LENGTH_CHAR}, {"h", LENGTH_SHORT},      {"ll", LENGTH_LONG},
                   {"l", LENGTH_LONG},  {"j", LENGTH_LONG},       {"z", LENGTH_LONG},
                   {"t", LENGTH_LONG},  {"L", LENGTH_LONG_DOUBLE}};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(lengths); i++) {
        size_t size = strlen(lengths[i].name);
        if (strncmp(*at, lengths[i].name, size) == 0) {
            *at += size;
            return lengths[i].length;
        }
    }
    return LENGTH_NONE;
}

/* Which kind of argument a conversion takes, and its length modifier as printf() is to see it. */
static enum fw_log_kind kind_of(char conversion, enum length length, const char **modifier)
{
    *modifier = "";
    switch (conversion) {
    case 'd':
    case 'i':
    case 'u':
    case 'o':
    case 'x':
    case 'X':
        if (length == LENGTH_LONG) {
            *modifier = "l";
            return FW_LOG_KIND_LONG;
        }
        if (length == LENGTH_LONG_DOUBLE) {
            return FW_LOG_KIND_NONE;
        }
        *modifier = length == LENGTH_CHAR ? "hh" : length == LENGTH_SHORT ? "h" : "";
        return FW_LOG_KIND_INT;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case 'a':
    case 'A':
        if (length == LENGTH_LONG_DOUBLE) {
            *modifier = "L";
            return FW_LOG_KIND_LONG_DOUBLE;
        }
        return length == LENGTH_NONE || length == LENGTH_LONG ? FW_LOG_KIND_DOUBLE
                                                              : FW_LOG_KIND_NONE;
    case 'c':
        return length == LENGTH_NONE ? FW_LOG_KIND_INT : FW_LOG_KIND_NONE;
    case 'p':
        return length == LENGTH_NONE ? FW_LOG_KIND_POINTER : FW_LOG_KIND_NONE;
    case 's':
        return length == LENGTH_NONE ? FW_LOG_KIND_STRING : FW_LOG_KIND_NONE;
    default:
        return FW_LOG_KIND_NONE;
    }
}

static bool argument_add(struct fw_log_format *format, enum fw_log_kind kind, uint16_t limit)
{
    if (format->argument_count == FW_LOG_ARGUMENTS_MAX) {
        return false;
    }
    format->kinds[format->argument_count] = (uint8_t)kind;
    format->limits[format->argument_count] = limit;
    format->argument_count++;
    bool is_string = kind == FW_LOG_KIND_STRING || kind == FW_LOG_KIND_STRING_STAR;
    format->packed_max += is_string || kind == FW_LOG_KIND_LONG_DOUBLE ? 16 : 8;
    return true;
}

static uint8_t fast_of(const char *spec)
{
    static const struct {
        const char *spec;
        enum fw_log_fast fast;
    } all[] = {{"%s", FW_LOG_FAST_STRING},   {"%d", FW_LOG_FAST_SIGNED},
               {"%i", FW_LOG_FAST_SIGNED},   {"%ld", FW_LOG_FAST_SIGNED},
               {"%u", FW_LOG_FAST_UNSIGNED}, {"%lu", FW_LOG_FAST_UNSIGNED}};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(all); i++) {
        if (strcmp(all[i].spec, spec) == 0) {
            return (uint8_t)all[i].fast;
        }
    }
    return FW_LOG_SLOW;
}

/* Behind the '%'. Moves `at` behind the conversion. */
static bool conversion_parse(struct fw_log_format *format, struct fw_log_piece *piece,
                             const char **at)
{
    struct fw_text spec;
    fw_text_init(&spec, piece->spec, sizeof piece->spec);
    fw_text_append_char(&spec, '%');
    for (int flags = 0; **at != '\0' && strchr("-+ #0'", **at) != NULL; flags++, (*at)++) {
        if (flags == FLAGS_MAX) {
            return false;
        }
        fw_text_append_char(&spec, **at);
    }
    bool width_star;
    bool precision_star = false;
    uint16_t limit = UINT16_MAX;
    if (!number_parse(at, &spec, &width_star)) {
        return false;
    }
    if (**at == '.') {
        fw_text_append_char(&spec, '.');
        (*at)++;
        size_t digits = spec.length;
        if (!number_parse(at, &spec, &precision_star)) {
            return false;
        }
        limit = 0;
        for (const char *digit = spec.data + digits; !precision_star && *digit != '\0'; digit++) {
            limit = (uint16_t)(limit * 10 + (*digit - '0'));
        }
    }
    enum length length = length_parse(at);
    const char *modifier;
    enum fw_log_kind kind = kind_of(**at, length, &modifier);
    if (kind == FW_LOG_KIND_NONE) {
        return false;
    }
    fw_text_append_string(&spec, modifier);
    fw_text_append_char(&spec, **at);
    (*at)++;
    FW_ASSERT(!spec.truncated);
    piece->stars = (uint8_t)(width_star + precision_star);
    piece->fast = fast_of(piece->spec);
    for (uint8_t star = 0; star < piece->stars; star++) {
        if (!argument_add(format, FW_LOG_KIND_INT, 0)) {
            return false;
        }
    }
    if (kind == FW_LOG_KIND_STRING && precision_star) {
        kind = FW_LOG_KIND_STRING_STAR;
    }
    piece->kind = (uint8_t)kind;
    return argument_add(format, kind, limit);
}

bool fw_log_format_parse(struct fw_log_format *format, const char *text)
{
    *format = (struct fw_log_format){.text = text};
    if (strnlen(text, TEXT_MAX) == TEXT_MAX) {
        return false;
    }
    for (const char *at = text; *at != '\0';) {
        if (format->piece_count == FW_LOG_PIECES_MAX) {
            return false;
        }
        struct fw_log_piece *piece = &format->pieces[format->piece_count++];
        const char *begin = at;
        at += strcspn(at, "%");
        piece->text_begin = (uint16_t)(begin - text);
        piece->text_length = (uint16_t)(at - begin);
        if (at[0] == '%' && at[1] == '%') {
            piece->text_length++;
            at += 2;
        } else if (at[0] == '%') {
            at++;
            if (!conversion_parse(format, piece, &at)) {
                return false;
            }
        }
    }
    for (uint32_t i = 0; i < format->argument_count; i++) {
        if (format->kinds[i] >= FW_LOG_KIND_STRING) {
            format->packed_max += (FW_LOG_STRINGS_MAX + 7) & ~7U;
            break;
        }
    }
    FW_ASSERT(format->packed_max <= FW_LOG_PACKED_MAX);
    return true;
}

/* ---- Rendering. ---- */

/* What is still to be taken from the packed arguments. */
struct unpacked {
    const unsigned char *at;
    size_t left;
};

static bool take(struct unpacked *unpacked, void *value, size_t size)
{
    if (unpacked->left < size) {
        return false;
    }
    memcpy(value, unpacked->at, size);
    unpacked->at += size;
    unpacked->left -= size;
    return true;
}

static bool take_string(struct unpacked *unpacked, const char **string, size_t *length)
{
    uint64_t stored;
    if (!take(unpacked, &stored, sizeof stored) || stored > FW_LOG_STRINGS_MAX) {
        return false;
    }
    size_t room = ((size_t)stored + 8) & ~(size_t)7;
    if (unpacked->left < room || unpacked->at[stored] != '\0') {
        return false;
    }
    *string = (const char *)unpacked->at;
    *length = (size_t)stored;
    unpacked->at += room;
    unpacked->left -= room;
    return true;
}

/* Larger values change nothing that can be seen, but cost printf() time. */
static int star_clamp(int64_t value)
{
    return value > FW_LOG_WIDTH_MAX    ? FW_LOG_WIDTH_MAX
           : value < -FW_LOG_WIDTH_MAX ? -FW_LOG_WIDTH_MAX
                                       : (int)value;
}

/*
 * The specification was rebuilt by conversion_parse() for a value of just this type, which is what
 * the compiler cannot see.
 */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#define PRINT(value)                                                                 \
    (piece->stars == 0   ? snprintf(part, sizeof part, piece->spec, value)           \
     : piece->stars == 1 ? snprintf(part, sizeof part, piece->spec, stars[0], value) \
                         : snprintf(part, sizeof part, piece->spec, stars[0], stars[1], value))

/* By printf(), of a value that is no string. */
static bool render_value(const struct fw_log_piece *piece, const int stars[2],
                         struct unpacked *unpacked, struct fw_text *text)
{
    char part[FW_LOG_MESSAGE_MAX + 2];
    int length = -1;
    uint64_t word;
    double number;
    long double number_long;
    if (piece->kind == FW_LOG_KIND_LONG_DOUBLE) {
        if (!take(unpacked, &number_long, sizeof number_long)) {
            return false;
        }
        length = PRINT(number_long);
    } else if (piece->kind == FW_LOG_KIND_DOUBLE) {
        if (!take(unpacked, &number, sizeof number)) {
            return false;
        }
        length = PRINT(number);
    } else {
        if (!take(unpacked, &word, sizeof word)) {
            return false;
        }
        if (piece->kind == FW_LOG_KIND_LONG) {
            length = PRINT((unsigned long)word);
        } else if (piece->kind == FW_LOG_KIND_POINTER) {
            length = PRINT((void *)(uintptr_t)word);
        } else {
            length = PRINT((int)word);
        }
    }
    size_t shown = length < 0 ? 0 : (size_t)length < sizeof part ? (size_t)length : sizeof part - 1;
    fw_text_append(text, part, shown);
    return true;
}

static bool render_string(const struct fw_log_piece *piece, const int stars[2],
                          struct unpacked *unpacked, struct fw_text *text)
{
    const char *string;
    size_t string_length;
    if (!take_string(unpacked, &string, &string_length)) {
        return false;
    }
    if (piece->fast == FW_LOG_FAST_STRING) {
        fw_text_append(text, string, string_length);
        return true;
    }
    char part[FW_LOG_MESSAGE_MAX + 2];
    int length = PRINT(string);
    size_t shown = length < 0 ? 0 : (size_t)length < sizeof part ? (size_t)length : sizeof part - 1;
    fw_text_append(text, part, shown);
    return true;
}
#pragma GCC diagnostic pop

static void append_decimal(struct fw_text *text, bool negative, uint64_t magnitude)
{
    char digits[1 + FW_TEXT_DECIMAL_MAX];
    digits[0] = '-';
    size_t count = fw_text_decimal(digits + 1, magnitude);
    /* As bytes: a number that does not fit is cut like anything else. */
    fw_text_append(text, digits + !negative, count + negative);
}

static bool render_fast_number(const struct fw_log_piece *piece, struct unpacked *unpacked,
                               struct fw_text *text)
{
    uint64_t word;
    if (!take(unpacked, &word, sizeof word)) {
        return false;
    }
    if (piece->fast == FW_LOG_FAST_UNSIGNED) {
        append_decimal(text, false,
                       piece->kind == FW_LOG_KIND_INT ? (uint64_t)(uint32_t)word : word);
    } else {
        int64_t value = piece->kind == FW_LOG_KIND_INT ? (int64_t)(int32_t)word : (int64_t)word;
        append_decimal(text, value < 0, value < 0 ? -(uint64_t)value : (uint64_t)value);
    }
    return true;
}

static bool render_piece(const struct fw_log_piece *piece, struct unpacked *unpacked,
                         struct fw_text *text)
{
    int stars[2] = {0, 0};
    for (uint8_t i = 0; i < piece->stars; i++) {
        int64_t star;
        if (!take(unpacked, &star, sizeof star)) {
            return false;
        }
        stars[i] = star_clamp(star);
    }
    if (piece->fast == FW_LOG_FAST_SIGNED || piece->fast == FW_LOG_FAST_UNSIGNED) {
        return render_fast_number(piece, unpacked, text);
    }
    if (piece->kind == FW_LOG_KIND_STRING || piece->kind == FW_LOG_KIND_STRING_STAR) {
        return render_string(piece, stars, unpacked, text);
    }
    return render_value(piece, stars, unpacked, text);
}

int fw_log_format_render(const struct fw_log_format *format, const unsigned char *packed,
                         size_t size, char out[FW_LOG_MESSAGE_MAX + 1])
{
    struct unpacked unpacked = {.at = packed, .left = size};
    struct fw_text text;
    fw_text_init(&text, out, FW_LOG_MESSAGE_MAX + 1);
    for (uint32_t i = 0; i < format->piece_count; i++) {
        const struct fw_log_piece *piece = &format->pieces[i];
        fw_text_append(&text, format->text + piece->text_begin, piece->text_length);
        if (piece->kind != FW_LOG_KIND_NONE && !render_piece(piece, &unpacked, &text)) {
            return -EBADMSG;
        }
    }
    return unpacked.left > 0 ? -EBADMSG
           : text.truncated  ? FW_LOG_MESSAGE_MAX + 1
                             : (int)text.length;
}
