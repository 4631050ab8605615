/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/traffic.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NUMBER_SIZE = 8, /* Hexadecimal digits: cheaper to write than decimal ones. */
    PATTERN_SHIFTS = 4096,
};

/* Steele, Lea and Flood's SplitMix64. */
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static void put_number(char *to, uint64_t number)
{
    for (unsigned i = 0; i < NUMBER_SIZE; i++) {
        to[i] = "0123456789abcdef"[(number >> (4 * (NUMBER_SIZE - 1 - i))) & 15];
    }
}

static char *put_text(char *to, const struct fw_traffic_text *text, uint64_t number)
{
    memcpy(to, text->text, text->size);
    put_number(to + text->number_at, number);
    return to + text->size;
}

static void text_make(struct fw_traffic_text *text, const char *before, uint64_t key_size,
                      const char *behind)
{
    int size = snprintf(text->text, sizeof text->text, "%s%.*s00000000%s", before,
                        (int)(key_size - NUMBER_SIZE),
                        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
                        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
                        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
                        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
                        behind);
    text->number_at = strlen(before) + key_size - NUMBER_SIZE;
    text->size = (size_t)size;
}

int fw_traffic_init(struct fw_traffic *traffic)
{
    if (traffic->key_size < FW_TRAFFIC_KEY_MIN || traffic->key_size > FW_TRAFFIC_KEY_MAX ||
        traffic->keys == 0 || traffic->keys > UINT32_MAX ||
        traffic->value_size > FW_TRAFFIC_VALUE_MAX || traffic->multiget == 0 ||
        traffic->multiget > FW_TRAFFIC_MULTIGET_MAX) {
        return -EINVAL;
    }
    size_t pattern_size = PATTERN_SHIFTS + FW_TRAFFIC_VALUE_MAX;
    traffic->pattern = malloc(pattern_size);
    if (traffic->pattern == NULL) {
        return -ENOMEM;
    }
    uint64_t state = 0;
    for (size_t i = 0; i < pattern_size; i++) {
        traffic->pattern[i] = (char)random_next(&state);
    }

    char behind[32];
    text_make(&traffic->key, " ", traffic->key_size, "");
    (void)snprintf(behind, sizeof behind, " 0 0 %" PRIu64 "\r\n", traffic->value_size);
    text_make(&traffic->set, "set ", traffic->key_size, behind);
    (void)snprintf(behind, sizeof behind, " 0 %" PRIu64 "\r\n", traffic->value_size);
    text_make(&traffic->value, "VALUE ", traffic->key_size, behind);
    return 0;
}

void fw_traffic_fini(struct fw_traffic *traffic)
{
    free(traffic->pattern);
    traffic->pattern = NULL;
}

size_t fw_traffic_request_max(const struct fw_traffic *traffic)
{
    size_t get = 3 + traffic->multiget * traffic->key.size + 2;
    size_t set = traffic->set.size + traffic->value_size + 2;
    return get > set ? get : set;
}

size_t fw_traffic_piece_max(const struct fw_traffic *traffic)
{
    size_t value = traffic->value.size + traffic->value_size + 2;
    return value > FW_TRAFFIC_HEADER_SIZE ? value : FW_TRAFFIC_HEADER_SIZE;
}

/* The part of the pattern that makes up the value of `key`, but for the number it begins with. */
static const char *value_pattern(const struct fw_traffic *traffic, uint64_t key)
{
    return traffic->pattern + (key * 2654435761 >> 8) % PATTERN_SHIFTS;
}

static bool value_has_number(const struct fw_traffic *traffic)
{
    return traffic->value_size >= NUMBER_SIZE;
}

static bool value_is_right(const struct fw_traffic *traffic, uint64_t key, const char *value)
{
    const char *pattern = value_pattern(traffic, key);
    size_t number_size = 0;
    if (value_has_number(traffic)) {
        char number[NUMBER_SIZE];
        put_number(number, key);
        if (memcmp(value, number, NUMBER_SIZE) != 0) {
            return false;
        }
        number_size = NUMBER_SIZE;
    }
    return memcmp(value + number_size, pattern + number_size, traffic->value_size - number_size) ==
           0;
}

static uint64_t draw_key(const struct fw_traffic *traffic, struct fw_traffic_source *source)
{
    return (random_next(&source->state) >> 32) * traffic->keys >> 32;
}

/* What is asked next: one or several keys, of which the first is drawn here. */
struct request {
    uint64_t key;
    uint32_t keys;
    bool set;
};

static struct request draw_request(const struct fw_traffic *traffic,
                                   struct fw_traffic_source *source)
{
    struct request request;
    if (source->step != 0) {
        request.set = true;
        request.key = source->state;
        source->state += source->step;
    } else {
        /* One draw gives both: the upper half is the key, the lower the kind. */
        uint64_t draw = random_next(&source->state);
        request.set = ((draw & UINT32_MAX) * 100 >> 32) < traffic->set_percent;
        request.key = (draw >> 32) * traffic->keys >> 32;
    }
    request.keys = request.set ? 1 : (uint32_t)traffic->multiget;
    return request;
}

char *fw_traffic_compose(const struct fw_traffic *traffic, struct fw_traffic_source *source,
                         char *to)
{
    struct request request = draw_request(traffic, source);
    if (request.set) {
        to = put_text(to, &traffic->set, request.key);
        memcpy(to, value_pattern(traffic, request.key), traffic->value_size);
        if (value_has_number(traffic)) {
            put_number(to, request.key);
        }
        to += traffic->value_size;
    } else {
        memcpy(to, "get", 3);
        to = put_text(to + 3, &traffic->key, request.key);
        for (uint32_t i = 1; i < request.keys; i++) {
            to = put_text(to, &traffic->key, draw_key(traffic, source));
        }
    }
    memcpy(to, "\r\n", 2);
    return to + 2;
}

void fw_traffic_expect(const struct fw_traffic *traffic, struct fw_traffic_reply *reply)
{
    struct request request = draw_request(traffic, &reply->source);
    reply->key = request.key;
    reply->keys = request.keys;
    reply->keys_left = request.keys;
    reply->set = request.set;
    reply->done = false;
}

/* The key that may come next was seen or is missing: on to the one after it. */
static void reply_pass_key(const struct fw_traffic *traffic, struct fw_traffic_reply *reply)
{
    reply->keys_left--;
    if (reply->keys_left > 0) {
        reply->key = draw_key(traffic, &reply->source);
    }
}

static ptrdiff_t check_value(const struct fw_traffic *traffic, struct fw_traffic_reply *reply,
                             const char *at, const char *end, struct fw_traffic_counts *counts)
{
    char header[FW_TRAFFIC_HEADER_SIZE];
    size_t header_size = traffic->value.size;
    if ((size_t)(end - at) < header_size) {
        return 0;
    }
    /* Keys that the server does not have are passed over. */
    for (; reply->keys_left > 0; counts->misses++) {
        (void)put_text(header, &traffic->value, reply->key);
        if (memcmp(at, header, header_size) == 0) {
            break;
        }
        reply_pass_key(traffic, reply);
    }
    if (reply->keys_left == 0) {
        return -EBADMSG;
    }
    size_t piece_size = header_size + traffic->value_size + 2;
    if ((size_t)(end - at) < piece_size) {
        return 0;
    }
    if (memcmp(at + piece_size - 2, "\r\n", 2) != 0 ||
        (traffic->verify && !value_is_right(traffic, reply->key, at + header_size))) {
        return -EBADMSG;
    }
    counts->hits++;
    reply_pass_key(traffic, reply);
    return (ptrdiff_t)piece_size;
}

/* The size of a last line that must be `text`. */
static ptrdiff_t check_line(const char *at, const char *end, const char *text)
{
    size_t size = strlen(text);
    if ((size_t)(end - at) < size) {
        return 0;
    }
    return memcmp(at, text, size) == 0 ? (ptrdiff_t)size : -EBADMSG;
}

static ptrdiff_t check_error_line(const char *at, const char *end)
{
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    if (stop == NULL) {
        return end - at < FW_TRAFFIC_HEADER_SIZE ? 0 : -EBADMSG;
    }
    return stop + 1 - at;
}

ptrdiff_t fw_traffic_check(const struct fw_traffic *traffic, struct fw_traffic_reply *reply,
                           const char *at, const char *end, struct fw_traffic_counts *counts)
{
    if (end - at < 5) { /* As long as "END\r\n". */
        return 0;
    }
    if (!reply->set && at[0] == 'V') {
        return check_value(traffic, reply, at, end, counts);
    }

    bool error = memcmp(at, "SERVE", 5) == 0;
    ptrdiff_t size = error        ? check_error_line(at, end)
                     : reply->set ? check_line(at, end, "STORED\r\n")
                                  : check_line(at, end, "END\r\n");
    if (size > 0) {
        counts->requests++;
        counts->keys += reply->keys;
        counts->errors += error;
        counts->stores += reply->set && !error;
        for (; reply->keys_left > 0; reply_pass_key(traffic, reply)) {
            counts->misses += !reply->set && !error;
        }
        reply->done = true;
    }
    return size;
}
