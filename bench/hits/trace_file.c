/* SPDX-License-Identifier: Apache-2.0 */
/* Traces from files; trace.h says in which forms. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/hash.h"
#include "base/parse.h"
#include "bench/hits/trace.h"

#define TIME_MAX (UINT64_C(1) << 53)

enum { ALLOCATED_FIRST = 1024 };

enum form { UNKNOWN, SPACES, SIZES, TWITTER };

struct span {
    const char *text;
    size_t length;
};

/* What one line says. */
struct line {
    struct span key;
    uint64_t time;
    uint64_t size;
    uint64_t lifetime;
    bool is_request;
};

struct reading {
    struct fw_trace *trace;
    const char *path;
    struct fw_reason *reason;
    FILE *file;
    size_t number; /* Of the line. */
    enum form form;
    size_t requests_room, objects_room;
    /* Keys that were seen, by hash, in a table with room to spare. */
    uint64_t *hashes;
    uint32_t *numbers;
    size_t seen_room; /* A power of two. */
    uint64_t time_first, time_last;
    bool expires;
};

static int line_refuse(const struct reading *reading, const char *what)
{
    return fw_reason_set(reading->reason, -EINVAL, "%s, line %zu: %s", reading->path,
                         reading->number, what);
}

static int no_memory(const struct reading *reading)
{
    return fw_reason_errno(reading->reason, -ENOMEM, "%s", reading->path);
}

/* Takes the field up to `separator` off the line's begin. */
static struct span field_first(struct span *rest, char separator)
{
    const char *end = memchr(rest->text, separator, rest->length);
    struct span field = {rest->text, end != NULL ? (size_t)(end - rest->text) : rest->length};
    size_t taken = field.length + (end != NULL ? 1 : 0);
    rest->text += taken;
    rest->length -= taken;
    return field;
}

/* Takes the field behind the last comma off the line's end. */
static struct span field_last(struct span *rest)
{
    const char *comma = memrchr(rest->text, ',', rest->length);
    size_t before = comma != NULL ? (size_t)(comma - rest->text) : 0;
    size_t skipped = comma != NULL ? before + 1 : 0;
    struct span field = {rest->text + skipped, rest->length - skipped};
    rest->length = before;
    return field;
}

static size_t comma_count(struct span line)
{
    size_t count = 0;
    for (size_t i = 0; i < line.length; i++) {
        count += line.text[i] == ',';
    }
    return count;
}

static bool is_number(struct span field, uint64_t max, uint64_t *value)
{
    return fw_parse_uint(field.text, field.length, 0, max, value) == 0;
}

/* Whole seconds of "12" or "12.5". */
static bool is_time(struct span field, uint64_t *seconds)
{
    struct span fraction = field;
    struct span whole = field_first(&fraction, '.');
    uint64_t rest;
    return is_number(whole, TIME_MAX, seconds) &&
           (whole.length == field.length || is_number(fraction, UINT64_MAX, &rest));
}

static bool spans_equal(struct span field, const char *text)
{
    return field.length == strlen(text) && memcmp(field.text, text, field.length) == 0;
}

static bool is_operation(struct span field)
{
    static const char *const names[] = {"get",    "gets",    "set",    "add",  "replace", "cas",
                                        "append", "prepend", "delete", "incr", "decr"};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(names); i++) {
        if (spans_equal(field, names[i])) {
            return true;
        }
    }
    return false;
}

static int parse_spaces(const struct reading *reading, struct span rest, struct line *line)
{
    struct span fields[3] = {{NULL, 0}};
    size_t count = 0;
    while (rest.length > 0) {
        struct span field = field_first(&rest, ' ');
        if (field.length == 0) {
            continue; /* Two spaces. */
        }
        if (count == FW_ARRAY_LENGTH(fields)) {
            return line_refuse(reading, "more than key, bytes and seconds");
        }
        fields[count++] = field;
    }
    if (count < 2 || !is_number(fields[1], UINT64_MAX, &line->size)) {
        return line_refuse(reading, "no key and number of bytes");
    }
    if (count == 3 && !is_number(fields[2], UINT64_MAX, &line->lifetime)) {
        return line_refuse(reading, "the third word is no number of seconds");
    }
    line->key = fields[0];
    line->is_request = true;
    return 0;
}

static int parse_sizes(const struct reading *reading, struct span rest, struct line *line)
{
    if (!is_time(field_first(&rest, ','), &line->time)) {
        return line_refuse(reading, "the first field is no time in seconds");
    }
    line->key = field_first(&rest, ',');
    if (line->key.length == 0) {
        return line_refuse(reading, "the second field, the object, is empty");
    }
    if (!is_number(field_first(&rest, ','), UINT64_MAX, &line->size)) {
        return line_refuse(reading, "the third field is no number of bytes");
    }
    line->is_request = true;
    return 0;
}

/* From both ends, since a key may have commas in it. */
static int parse_twitter(const struct reading *reading, struct span rest, struct line *line)
{
    if (comma_count(rest) < 6) {
        return line_refuse(reading, "fewer than seven fields");
    }
    if (!is_time(field_first(&rest, ','), &line->time)) {
        return line_refuse(reading, "the first field is no time in seconds");
    }
    if (!is_number(field_last(&rest), UINT64_MAX, &line->lifetime)) {
        return line_refuse(reading, "the last field, the lifetime, is no number of seconds");
    }
    struct span operation = field_last(&rest);
    if (!is_operation(operation)) {
        return line_refuse(reading, "the last field but one is no operation");
    }
    (void)field_last(&rest); /* The client. */
    uint64_t key_size;
    if (!is_number(field_last(&rest), UINT64_MAX, &line->size) ||
        !is_number(field_last(&rest), UINT64_MAX, &key_size)) {
        return line_refuse(reading, "the sizes of key and value are no numbers");
    }
    if (rest.length == 0) {
        return line_refuse(reading, "the second field, the key, is empty");
    }
    line->key = rest;
    line->is_request = spans_equal(operation, "get") || spans_equal(operation, "gets");
    return 0;
}

static enum form form_of(struct span line)
{
    size_t commas = comma_count(line);
    if (commas < 2) {
        return SPACES;
    }
    (void)field_last(&line);
    return commas >= 6 && is_operation(field_last(&line)) ? TWITTER : SIZES;
}

/* Grows an array to at least `count` elements; `room` is how many it has. */
static bool array_grow(void **array, size_t *room, size_t count, size_t size)
{
    if (count <= *room) {
        return true;
    }
    size_t wanted = *room > 0 ? 2 * *room : ALLOCATED_FIRST;
    void *grown = reallocarray(*array, wanted, size);
    if (grown == NULL) {
        return false;
    }
    *array = grown;
    *room = wanted;
    return true;
}

static size_t seen_slot(const struct reading *reading, uint64_t hash)
{
    size_t i = hash & (reading->seen_room - 1);
    while (reading->hashes[i] != 0 && reading->hashes[i] != hash) {
        i = (i + 1) & (reading->seen_room - 1);
    }
    return i;
}

static bool seen_grow(struct reading *reading)
{
    struct reading old = *reading;
    reading->seen_room = old.seen_room > 0 ? 2 * old.seen_room : ALLOCATED_FIRST;
    reading->hashes = calloc(reading->seen_room, sizeof *reading->hashes);
    reading->numbers = calloc(reading->seen_room, sizeof *reading->numbers);
    bool can = reading->hashes != NULL && reading->numbers != NULL;
    for (size_t i = 0; can && i < old.seen_room; i++) {
        if (old.hashes[i] != 0) {
            size_t slot = seen_slot(reading, old.hashes[i]);
            reading->hashes[slot] = old.hashes[i];
            reading->numbers[slot] = old.numbers[i];
        }
    }
    free(old.hashes);
    free(old.numbers);
    return can;
}

/* The number of the key's object, which is a new one if it was not seen. False: no memory. */
static bool object_find(struct reading *reading, struct span key, uint32_t *number)
{
    struct fw_trace *trace = reading->trace;
    bool is_full = reading->hashes == NULL || 2 * (trace->object_count + 1) > reading->seen_room;
    if (is_full && !seen_grow(reading)) {
        return false;
    }
    uint64_t hash = fw_hash(key.text, key.length, 0);
    hash += hash == 0;
    size_t slot = seen_slot(reading, hash);
    if (reading->hashes[slot] == 0) {
        void *objects = trace->objects;
        if (!array_grow(&objects, &reading->objects_room, trace->object_count + 1,
                        sizeof *trace->objects)) {
            return false;
        }
        trace->objects = objects;
        trace->objects[trace->object_count] = (struct fw_trace_object){0};
        reading->hashes[slot] = hash;
        reading->numbers[slot] = (uint32_t)trace->object_count++;
    }
    *number = reading->numbers[slot];
    return true;
}

/* The first that is known of an object counts: a get that missed tells no size. */
static void object_learn(struct reading *reading, struct fw_trace_object *object,
                         const struct line *line)
{
    if (object->value_size == 0 && line->size > 0) {
        bool is_cut = line->size > FW_TRACE_VALUE_MAX;
        object->value_size = is_cut ? FW_TRACE_VALUE_MAX : (uint32_t)line->size;
        reading->trace->cut_count += is_cut ? 1 : 0;
    }
    if (object->lifetime == 0 && line->lifetime > 0) {
        bool is_long = line->lifetime > UINT32_MAX;
        object->lifetime = is_long ? UINT32_MAX : (uint32_t)line->lifetime;
        reading->expires = true;
    }
}

static int line_add(struct reading *reading, const struct line *line)
{
    struct fw_trace *trace = reading->trace;
    uint32_t number;
    if (!object_find(reading, line->key, &number)) {
        return no_memory(reading);
    }
    object_learn(reading, &trace->objects[number], line);
    if (!line->is_request) {
        return 0;
    }
    void *requests = trace->requests;
    if (!array_grow(&requests, &reading->requests_room, trace->request_count + 1,
                    sizeof *trace->requests)) {
        return no_memory(reading);
    }
    trace->requests = requests;
    if (trace->request_count == 0) {
        reading->time_first = line->time;
    }
    reading->time_last = line->time;
    trace->requests[trace->request_count++] = number;
    return 0;
}

static int line_read(struct reading *reading, struct span text)
{
    bool is_first = reading->form == UNKNOWN;
    if (is_first) {
        struct span rest = text;
        uint64_t time;
        reading->form = form_of(text);
        if (reading->form != SPACES && !is_time(field_first(&rest, ','), &time)) {
            reading->form = UNKNOWN; /* Names of the fields, which one line may have. */
            return reading->number == 1 ? 0 : line_refuse(reading, "no time in the first field");
        }
    }
    struct line line = {.time = 0};
    int rc = reading->form == SPACES    ? parse_spaces(reading, text, &line)
             : reading->form == TWITTER ? parse_twitter(reading, text, &line)
                                        : parse_sizes(reading, text, &line);
    return rc != 0 ? rc : line_add(reading, &line);
}

/* Objects that no request names have no place in a trace. */
static bool objects_number(struct fw_trace *trace)
{
    uint32_t *number_of = calloc(trace->object_count + 1, sizeof *number_of); /* 0: none. */
    struct fw_trace_object *objects = calloc(trace->object_count + 1, sizeof *objects);
    if (number_of == NULL || objects == NULL) {
        free(number_of);
        free(objects);
        return false;
    }
    uint32_t count = 0;
    for (size_t i = 0; i < trace->request_count; i++) {
        uint32_t old = trace->requests[i];
        if (number_of[old] == 0) {
            objects[count] = trace->objects[old];
            number_of[old] = ++count;
        }
        trace->requests[i] = number_of[old] - 1;
    }
    free(trace->objects);
    free(number_of);
    trace->objects = objects;
    trace->object_count = count;
    return true;
}

/* Lifetimes become seconds of the replay, and what is beyond what servers count is for ever. */
static void trace_compress(const struct reading *reading)
{
    struct fw_trace *trace = reading->trace;
    double scale = 1;
    if (reading->form != SPACES && reading->expires) {
        uint64_t seconds =
            reading->time_last > reading->time_first ? reading->time_last - reading->time_first : 1;
        scale = (double)trace->request_count / (double)seconds / FW_TRACE_RATE;
        trace->rate = FW_TRACE_RATE;
    }
    for (size_t i = 0; i < trace->object_count; i++) {
        struct fw_trace_object *object = &trace->objects[i];
        double lifetime = (double)object->lifetime * scale;
        if (object->lifetime == 0 || lifetime > FW_TRACE_LIFETIME_MAX) {
            object->lifetime = 0;
        } else {
            object->lifetime = lifetime < 1 ? 1 : (uint32_t)lifetime;
        }
    }
}

static int lines_read(struct reading *reading)
{
    char *text = NULL;
    size_t room = 0;
    int rc = 0;
    ssize_t length;
    while (rc == 0 && (length = getline(&text, &room, reading->file)) > 0) {
        reading->number++;
        while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\r')) {
            length--;
        }
        if (length > 0 && text[0] != '#') {
            rc = line_read(reading, (struct span){text, (size_t)length});
        }
    }
    free(text);
    if (rc == 0 && ferror(reading->file) != 0) {
        rc = fw_reason_errno(reading->reason, -EIO, "%s", reading->path);
    }
    return rc;
}

int fw_trace_read(struct fw_trace *trace, const char *path, struct fw_reason *reason)
{
    *trace = (struct fw_trace){0};
    struct reading reading = {.trace = trace, .path = path, .reason = reason};
    reading.file = fopen(path, "re");
    if (reading.file == NULL) {
        return fw_reason_errno(reason, -errno, "cannot read %s", path);
    }
    int rc = lines_read(&reading);
    (void)fclose(reading.file);
    free(reading.hashes);
    free(reading.numbers);
    if (rc == 0 && trace->request_count == 0) {
        rc = fw_reason_set(reason, -EINVAL, "%s: no request in it", path);
    }
    if (rc == 0 && !objects_number(trace)) {
        rc = no_memory(&reading);
    }
    if (rc != 0) {
        fw_trace_free(trace);
        *trace = (struct fw_trace){0};
        return rc;
    }
    trace_compress(&reading);
    return 0;
}
