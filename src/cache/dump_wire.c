/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/dump_wire.h"

#include <string.h>

#include "base/text.h"
#include "cache/base64.h"
#include "cache/number.h"

enum { RELATIVE_MAX_S = 60 * 60 * 24 * 30 }; /* More is a date to servers. */

struct word {
    const char *text;
    size_t length;
};

/* The next word from `*at` on; without one its length is 0. */
static struct word word_take(const char **at, const char *end)
{
    while (*at < end && **at == ' ') {
        (*at)++;
    }
    const char *stop = memchr(*at, ' ', (size_t)(end - *at));
    stop = stop != NULL ? stop : end;
    struct word word = {.text = *at, .length = (size_t)(stop - *at)};
    *at = stop;
    return word;
}

static bool read_key(const struct word *word, bool is_binary, struct fw_dump_item *item,
                     char key[FW_ITEM_KEY_MAX])
{
    /* Three bytes for four characters, though some of them may be none. */
    char decoded[FW_DUMP_KEY_ENCODED_MAX];
    size_t length = word->length;
    const char *from = word->text;
    if (is_binary) {
        if (length > FW_DUMP_KEY_ENCODED_MAX) {
            return false;
        }
        length = fw_base64_decode(from, length, decoded);
        from = decoded;
    }
    if (length == 0 || length > FW_ITEM_KEY_MAX) {
        return false;
    }
    memcpy(key, from, length);
    item->key = key;
    item->key_length = (uint8_t)length;
    return true;
}

/* A flag with a number behind its letter. False: it is none, or wrong. */
static bool read_number(const struct word *word, uint64_t max, uint64_t *number)
{
    return fw_number_u64(word->text + 1, word->length - 1, number) && *number <= max;
}

static bool read_flag(const struct word *word, int64_t now_s, struct fw_dump_item *item)
{
    uint64_t number;
    switch (word->text[0]) {
    case 'f':
        if (!read_number(word, UINT32_MAX, &number)) {
            return false;
        }
        item->flags = (uint32_t)number;
        return true;
    case 't':
        if (word->length == 3 && memcmp(word->text, "t-1", 3) == 0) {
            item->expires_s = 0;
            return true;
        }
        if (!read_number(word, UINT32_MAX, &number)) {
            return false;
        }
        item->expires_s = now_s + (int64_t)number;
        return true;
    case 'c':
        return read_number(word, UINT64_MAX, &item->cas);
    case 'l':
        if (!read_number(word, UINT32_MAX, &number)) {
            return false;
        }
        item->accessed_s = now_s > (int64_t)number ? now_s - (int64_t)number : 0;
        return true;
    case 'h':
        item->bits |= word->length == 2 && word->text[1] == '1' ? FW_DUMP_FETCHED : 0;
        return true;
    case 'X':
        item->bits |= FW_DUMP_STALE;
        return true;
    case 'Z':
        item->bits |= FW_DUMP_WON;
        return true;
    case 'b':
        item->bits |= FW_DUMP_BINARY;
        return true;
    default:
        return true;
    }
}

bool fw_dump_wire_read(const char *line, size_t length, int64_t now_s, struct fw_dump_item *item,
                       char key[FW_ITEM_KEY_MAX])
{
    const char *at = line;
    const char *end = line + length;
    struct word word = word_take(&at, end);
    struct word key_word = {.length = 0};
    uint32_t value_length;
    *item = (struct fw_dump_item){.key = NULL};
    if (word.length != 2 || memcmp(word.text, "VA", 2) != 0) {
        return false;
    }
    word = word_take(&at, end);
    if (!fw_number_u32(word.text, word.length, &value_length) || value_length > FW_DUMP_VALUE_MAX) {
        return false;
    }
    item->value_length = value_length;
    for (word = word_take(&at, end); word.length > 0; word = word_take(&at, end)) {
        if (word.text[0] == 'k') {
            key_word = (struct word){.text = word.text + 1, .length = word.length - 1};
        } else if (!read_flag(&word, now_s, item)) {
            return false;
        }
    }
    return key_word.length > 0 &&
           read_key(&key_word, (item->bits & FW_DUMP_BINARY) != 0, item, key);
}

static int hex_digit(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    if (digit >= 'A' && digit <= 'F') {
        return digit - 'A' + 10;
    }
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

size_t fw_dump_wire_read_key(const char *line, size_t length, char key[FW_ITEM_KEY_MAX])
{
    enum { NAME = 4, ESCAPE = 3 };
    size_t count = 0;
    if (length < NAME || memcmp(line, "key=", NAME) != 0) {
        return 0;
    }
    const char *at = line + NAME;
    const char *end = memchr(at, ' ', length - NAME);
    end = end != NULL ? end : line + length;
    while (at < end) {
        int byte = (uint8_t)*at;
        size_t used = 1;
        if (byte == '%') {
            int high = end - at >= ESCAPE ? hex_digit(at[1]) : -1;
            int low = end - at >= ESCAPE ? hex_digit(at[2]) : -1;
            if (high < 0 || low < 0) {
                return 0;
            }
            byte = high * 16 + low;
            used = ESCAPE;
        }
        if (count == FW_ITEM_KEY_MAX) {
            return 0;
        }
        key[count++] = (char)byte;
        at += used;
    }
    return count;
}

bool fw_dump_wire_is_binary(const char *key, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if ((uint8_t)key[i] <= ' ') {
            return true;
        }
    }
    return false;
}

static char *put_text(char *to, const char *text, size_t length)
{
    memcpy(to, text, length);
    return to + length;
}

#define PUT(to, constant) put_text((to), (constant), sizeof(constant) - 1)

/* As it is, or in base64. */
static char *put_key(char *to, const char *key, size_t length, bool is_binary)
{
    return is_binary ? fw_base64_encode(key, length, to) : put_text(to, key, length);
}

char *fw_dump_wire_put_get(char *to, const char *key, size_t length)
{
    bool is_binary = fw_dump_wire_is_binary(key, length);
    to = PUT(to, "mg ");
    to = put_key(to, key, length, is_binary);
    to = is_binary ? PUT(to, " b") : to;
    return PUT(to, " k f t c h l v u q\r\n");
}

char *fw_dump_wire_put_set(char *to, const struct fw_dump_item *item, int64_t now_s, bool adds)
{
    bool is_binary =
        (item->bits & FW_DUMP_BINARY) != 0 || fw_dump_wire_is_binary(item->key, item->key_length);
    if (item->expires_s != 0 && item->expires_s <= now_s) {
        return NULL;
    }
    to = PUT(to, "ms ");
    to = put_key(to, item->key, item->key_length, is_binary);
    to = PUT(to, " ");
    to += fw_text_decimal(to, item->value_length);
    to = is_binary ? PUT(to, " b") : to;
    if (item->flags != 0) {
        to = PUT(to, " F");
        to += fw_text_decimal(to, item->flags);
    }
    if (item->expires_s != 0) {
        int64_t left = item->expires_s - now_s;
        /* Beyond what any server's clock can show there is no difference to never. */
        uint64_t given = (uint64_t)(left <= RELATIVE_MAX_S ? left : item->expires_s);
        if (given <= INT32_MAX) {
            to = PUT(to, " T");
            to += fw_text_decimal(to, given);
        }
    }
    to = adds ? PUT(to, " ME") : to;
    return PUT(to, " q\r\n");
}
