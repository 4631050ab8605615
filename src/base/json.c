/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* U+FFFD, which stands for what is not text. */
static const char replacement[] = "\xef\xbf\xbd";

void fw_json_init_sink(struct fw_json *json, struct fw_text *buffer, enum fw_json_layout layout,
                       int (*sink)(const char *bytes, size_t length, void *context), void *context)
{
    FW_ASSERT(sink == NULL || buffer->size > 1); /* Else nothing would ever get through. */
    *json = (struct fw_json){.text = buffer, .sink = sink, .context = context, .layout = layout};
}

void fw_json_init(struct fw_json *json, struct fw_text *text, enum fw_json_layout layout)
{
    fw_json_init_sink(json, text, layout, NULL, NULL);
}

/* The buffer is not empty: put() empties it only when there is more to come. */
static void json_flush(struct fw_json *json)
{
    FW_ASSERT(json->error == 0);
    FW_ASSERT(json->text->length > 0);
    json->error = json->sink(json->text->data, json->text->length, json->context);
    FW_ASSERT(json->error <= 0);
    fw_text_clear(json->text);
}

/* All output goes through here. */
static void json_put(struct fw_json *json, const char *bytes, size_t length)
{
    if (json->sink != NULL) {
        for (size_t room = fw_text_room(json->text); length > room && json->error == 0;
             room = fw_text_room(json->text)) {
            fw_text_append(json->text, bytes, room);
            bytes += room;
            length -= room;
            json_flush(json);
        }
    }
    if (json->error == 0) {
        fw_text_append(json->text, bytes, length);
        if (json->text->truncated) {
            json->error = -EMSGSIZE;
        }
    }
}

static void json_put_string(struct fw_json *json, const char *string)
{
    json_put(json, string, strlen(string));
}

static void json_put_line(struct fw_json *json)
{
    if (json->layout == FW_JSON_PRETTY) {
        json_put(json, "\n", 1);
        for (uint32_t i = 0; i < json->depth; i++) {
            json_put(json, "  ", 2);
        }
    }
}

/* What stands between an element and the one before it, or the bracket. */
static void json_put_separator(struct fw_json *json)
{
    if (json->levels[json->depth].filled) {
        json_put(json, ",", 1);
    }
    json->levels[json->depth].filled = true;
    json_put_line(json);
}

/* Before every value: it has to be due here. */
static void json_value(struct fw_json *json)
{
    if (json->depth == 0) {
        FW_ASSERT(!json->levels[0].filled); /* A document is one value. */
        json->levels[0].filled = true;
    } else if (json->levels[json->depth].object) {
        FW_ASSERT(json->key_written);
        json->key_written = false;
    } else {
        json_put_separator(json);
    }
}

static void json_begin(struct fw_json *json, bool object)
{
    json_value(json);
    json_put(json, object ? "{" : "[", 1);
    FW_ASSERT(json->depth < FW_JSON_DEPTH_MAX);
    json->depth++;
    json->levels[json->depth].object = object;
    json->levels[json->depth].filled = false;
}

static void json_end(struct fw_json *json, bool object)
{
    FW_ASSERT(json->depth > 0);
    FW_ASSERT(json->levels[json->depth].object == object);
    FW_ASSERT(!json->key_written);
    bool filled = json->levels[json->depth].filled;
    json->depth--;
    if (filled) {
        json_put_line(json);
    }
    json_put(json, object ? "}" : "]", 1);
}

void fw_json_object_begin(struct fw_json *json)
{
    json_begin(json, true);
}

void fw_json_object_end(struct fw_json *json)
{
    json_end(json, true);
}

void fw_json_array_begin(struct fw_json *json)
{
    json_begin(json, false);
}

void fw_json_array_end(struct fw_json *json)
{
    json_end(json, false);
}

/*
 * The well-formed UTF-8 sequence at the start of `bytes`, or the longest start of one, which is
 * what Unicode wants replaced by one U+FFFD (chapter 3, "maximal subpart"). The second byte's range
 * depends on the first: that is what keeps out overlong forms, surrogates and all above U+10FFFF.
 */
static size_t utf8_next(const unsigned char *bytes, size_t left, bool *well_formed)
{
    unsigned char first = bytes[0];
    unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    size_t whole = 0; /* No sequence starts so. */
    if (first < 0x80) {
        whole = 1;
    } else if (first >= 0xc2 && first <= 0xdf) {
        whole = 2;
    } else if (first >= 0xe0 && first <= 0xef) {
        whole = 3;
    } else if (first >= 0xf0 && first <= 0xf4) {
        whole = 4;
    }
    size_t length = 1;
    while (length < whole && length < left && bytes[length] >= low && bytes[length] <= high) {
        length++;
        low = 0x80;
        high = 0xbf;
    }
    *well_formed = length == whole;
    return length;
}

static void json_put_escaped(struct fw_json *json, unsigned char byte)
{
    static const char letters[32] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    static const char hexadecimal[] = "0123456789abcdef";
    if (byte >= sizeof letters) {
        json_put(json, (char[]){'\\', (char)byte}, 2);
    } else if (letters[byte] != '\0') {
        json_put(json, (char[]){'\\', letters[byte]}, 2);
    } else {
        json_put(json,
                 (char[]){'\\', 'u', '0', '0', hexadecimal[byte >> 4], hexadecimal[byte & 15]}, 6);
    }
}

/* Goes from one byte that needs care to the next and writes what is between in one piece. */
static void json_put_quoted(struct fw_json *json, const unsigned char *bytes, size_t length)
{
    json_put(json, "\"", 1);
    size_t done = 0, at = 0;
    while (at < length) {
        bool well_formed;
        size_t next = at + utf8_next(bytes + at, length - at, &well_formed);
        bool escape = bytes[at] < 0x20 || bytes[at] == '"' || bytes[at] == '\\';
        if (escape || !well_formed) {
            json_put(json, (const char *)bytes + done, at - done);
            done = next;
        }
        if (escape) {
            json_put_escaped(json, bytes[at]);
        } else if (!well_formed) {
            json_put(json, replacement, sizeof replacement - 1);
        }
        at = next;
    }
    json_put(json, (const char *)bytes + done, length - done);
    json_put(json, "\"", 1);
}

void fw_json_key_bytes(struct fw_json *json, const void *bytes, size_t length)
{
    FW_ASSERT(json->levels[json->depth].object);
    FW_ASSERT(!json->key_written);
    json_put_separator(json);
    json_put_quoted(json, bytes, length);
    json_put_string(json, json->layout == FW_JSON_PRETTY ? ": " : ":");
    json->key_written = true;
}

void fw_json_key(struct fw_json *json, const char *name)
{
    fw_json_key_bytes(json, name, strlen(name));
}

void fw_json_string_bytes(struct fw_json *json, const void *bytes, size_t length)
{
    json_value(json);
    json_put_quoted(json, bytes, length);
}

void fw_json_string(struct fw_json *json, const char *string)
{
    fw_json_string_bytes(json, string, strlen(string));
}

void fw_json_unsigned(struct fw_json *json, uint64_t value)
{
    char digits[FW_TEXT_DECIMAL_MAX];
    json_value(json);
    json_put(json, digits, fw_text_decimal(digits, value));
}

void fw_json_signed(struct fw_json *json, int64_t value)
{
    if (value >= 0) {
        fw_json_unsigned(json, (uint64_t)value);
        return;
    }
    char digits[1 + FW_TEXT_DECIMAL_MAX] = "-";
    json_value(json);
    json_put(json, digits, 1 + fw_text_decimal(digits + 1, -(uint64_t)value));
}

void fw_json_number_delocalise(char *digits)
{
    static const char plain[] = "0123456789+-e";
    char *point = digits + strspn(digits, plain);
    if (*point != '\0') {
        char *rest = point + strcspn(point, plain); /* A point may have several bytes. */
        *point = '.';
        memmove(point + 1, rest, strlen(rest) + 1);
    }
}

void fw_json_double(struct fw_json *json, double value)
{
    if (!isfinite(value)) {
        fw_json_null(json);
        return;
    }
    /* 17 digits always read back the same; 15 do if that is what a person would write. */
    char digits[32];
    for (int precision = 15; precision <= 17; precision++) {
        (void)snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) {
            break;
        }
    }
    fw_json_number_delocalise(digits);
    json_value(json);
    json_put_string(json, digits);
}

void fw_json_bool(struct fw_json *json, bool value)
{
    json_value(json);
    json_put_string(json, value ? "true" : "false");
}

void fw_json_null(struct fw_json *json)
{
    json_value(json);
    json_put_string(json, "null");
}

int fw_json_finish(struct fw_json *json)
{
    FW_ASSERT(json->depth == 0);
    FW_ASSERT(json->levels[0].filled);
    if (json->sink != NULL && json->error == 0) {
        json_flush(json);
    }
    return json->error;
}
