/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     answer = *( NUMBER name VALUE digits / TEXT name VALUE text ) *( row / words )
 *     row    = ROW table *( NUMBER ... / TEXT ... )
 *     words  = WORDS text
 */
#include "jobs/answer.h"

#include <stdarg.h>
#include <string.h>

#include "base/assert.h"
#include "base/base.h"
#include "base/json.h"
#include "base/parse.h"

enum { ROW = 1, NUMBER, TEXT, WORDS, VALUE, MARK_MAX = VALUE };
enum { COLUMNS_MAX = 16, WIDTH_MAX = 48, GAP = 2 };

static const char cut_line[] = "(the answer was cut here)\n";

void fw_answer_init(struct fw_jobs_output *output, char *memory)
{
    *output = (struct fw_jobs_output){.whole = 0};
    fw_text_init(&output->said, memory, FW_JOBS_OUTPUT_SIZE);
}

/* ---- what is said -------------------------------------------------------------------------- */

static void say_mark(struct fw_jobs_output *output, char mark)
{
    fw_text_append_char(&output->said, mark);
    output->last = mark;
}

/* Words from outside must not be taken for marks. */
static void unmark(struct fw_jobs_output *output, size_t begin)
{
    for (size_t i = begin; i < output->said.length; i++) {
        if (output->said.data[i] >= 0 && output->said.data[i] <= MARK_MAX) {
            output->said.data[i] = '?';
        }
    }
}

static void say_cell(struct fw_jobs_output *output, char mark, const char *name)
{
    say_mark(output, mark);
    fw_text_append_string(&output->said, name);
    say_mark(output, VALUE);
}

/* All that was said so far is to be shown, also if what follows does not fit. */
static void said(struct fw_jobs_output *output)
{
    if (!output->said.truncated) {
        output->whole = output->said.length;
    }
}

static void said_cell(struct fw_jobs_output *output)
{
    if (!output->has_rows) { /* Else it needs the others of its row. */
        said(output);
    }
}

void fw_jobs_row(struct fw_jobs_output *output, const char *table)
{
    said(output);
    output->has_rows = true;
    say_mark(output, ROW);
    fw_text_append_string(&output->said, table);
}

void fw_jobs_number(struct fw_jobs_output *output, const char *name, int64_t value)
{
    say_cell(output, NUMBER, name);
    fw_text_append_signed(&output->said, value);
    said_cell(output);
}

void fw_jobs_text(struct fw_jobs_output *output, const char *name, const char *format, ...)
{
    va_list arguments;
    say_cell(output, TEXT, name);
    size_t begin = output->said.length;
    va_start(arguments, format);
    fw_text_vprintf(&output->said, format, arguments);
    va_end(arguments);
    unmark(output, begin);
    said_cell(output);
}

void fw_jobs_print(struct fw_jobs_output *output, const char *format, ...)
{
    va_list arguments;
    if (output->last != WORDS) {
        said(output);
        say_mark(output, WORDS);
    }
    if (output->said.truncated) {
        return;
    }
    size_t begin = output->said.length;
    va_start(arguments, format);
    fw_text_vprintf(&output->said, format, arguments);
    va_end(arguments);
    unmark(output, begin);
    output->whole = output->said.length; /* Words may be cut anywhere. */
}

/* ---- reading it ---------------------------------------------------------------------------- */

/* A piece, and how to get to the next. */
struct piece {
    char mark; /* 0: there is no more. */
    const char *name;
    size_t name_length;
    const char *value; /* Of NUMBER and TEXT. */
    size_t value_length;
};

struct reader {
    const char *at;
    const char *end;
};

static struct reader reader_of(const struct fw_jobs_output *output)
{
    const struct fw_text *all = &output->said;
    size_t length = all->truncated ? output->whole : all->length;
    return (struct reader){.at = all->data, .end = all->data + length};
}

static size_t unmarked(const char *at, const char *end)
{
    size_t length = 0;
    while (at + length < end && !(at[length] >= 0 && at[length] <= MARK_MAX)) {
        length++;
    }
    return length;
}

static struct piece piece_next(struct reader *reader)
{
    struct piece piece = {.mark = 0};
    if (reader->at == reader->end) {
        return piece;
    }
    piece.mark = *reader->at++;
    piece.name = reader->at;
    piece.name_length = unmarked(reader->at, reader->end);
    reader->at += piece.name_length;
    if (piece.mark == NUMBER || piece.mark == TEXT) {
        FW_ASSERT(reader->at < reader->end && *reader->at == VALUE);
        piece.value = ++reader->at;
        piece.value_length = unmarked(reader->at, reader->end);
        reader->at += piece.value_length;
    }
    return piece;
}

static bool is_same_table(const struct piece *a, const struct piece *b)
{
    return a->mark == ROW && b->mark == ROW && a->name_length == b->name_length &&
           memcmp(a->name, b->name, a->name_length) == 0;
}

/* ---- for people ---------------------------------------------------------------------------- */

struct table {
    size_t widths[COLUMNS_MAX]; /* Columns beyond are shown as wide as they are. */
};

static void spaces(struct fw_text *text, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fw_text_append_char(text, ' ');
    }
}

/* The larger of two widths, within the limit: one long value must not push all others away. */
static size_t larger(size_t a, size_t b)
{
    size_t width = a > b ? a : b;
    return width < WIDTH_MAX ? width : WIDTH_MAX;
}

/* Numbers stand at the right, all else at the left, and nothing behind the last column. */
static void people_cell(struct fw_text *text, const struct piece *piece, size_t width, bool is_last,
                        bool is_header)
{
    const char *bytes = is_header ? piece->name : piece->value;
    size_t length = is_header ? piece->name_length : piece->value_length;
    size_t room = width > length ? width - length : 0;
    spaces(text, piece->mark == NUMBER ? room : 0);
    fw_text_append(text, bytes, length);
    if (is_last) {
        fw_text_append_char(text, '\n');
    } else {
        spaces(text, (piece->mark == NUMBER ? 0 : room) + GAP);
    }
}

/* The cells of a row, up to the next piece that is none. */
static void people_row(struct fw_text *text, struct reader row, const struct table *table,
                       bool is_header)
{
    for (uint32_t i = 0;; i++) {
        struct piece piece = piece_next(&row);
        if (piece.mark != NUMBER && piece.mark != TEXT) {
            return;
        }
        struct reader next = row;
        char follows = piece_next(&next).mark;
        people_cell(text, &piece, i < COLUMNS_MAX ? table->widths[i] : 0,
                    follows != NUMBER && follows != TEXT, is_header);
    }
}

/* All rows of the table that begins with `first`; returns where the next piece is. */
static struct reader people_table(struct fw_text *text, const struct piece *first,
                                  struct reader begin)
{
    struct table table = {.widths = {0}};
    struct reader reader = begin, end = begin;
    uint32_t column = 0;
    for (struct piece piece = piece_next(&reader);
         piece.mark == NUMBER || piece.mark == TEXT || is_same_table(&piece, first);
         piece = piece_next(&reader)) {
        end = reader;
        if (piece.mark == ROW) {
            column = 0;
        } else if (column < COLUMNS_MAX) {
            size_t *width = &table.widths[column++];
            *width = larger(*width, larger(piece.name_length, piece.value_length));
        }
    }
    people_row(text, begin, &table, true);
    people_row(text, begin, &table, false);
    for (reader = begin; reader.at != end.at;) {
        if (piece_next(&reader).mark == ROW) {
            people_row(text, reader, &table, false);
        }
    }
    return end;
}

/* A name and its value to a line. Returns where the next piece is. */
static struct reader people_list(struct fw_text *text, struct reader begin)
{
    size_t width = 0;
    struct reader end = begin;
    for (struct reader reader = begin;;) {
        struct piece piece = piece_next(&reader);
        if (piece.mark != NUMBER && piece.mark != TEXT) {
            break;
        }
        width = larger(width, piece.name_length);
        end = reader;
    }
    while (begin.at != end.at) {
        struct piece piece = piece_next(&begin);
        fw_text_append(text, piece.name, piece.name_length);
        spaces(text, (width > piece.name_length ? width - piece.name_length : 0) + GAP);
        fw_text_append(text, piece.value, piece.value_length);
        fw_text_append_char(text, '\n');
    }
    return end;
}

void fw_answer_people(const struct fw_jobs_output *output, struct fw_text *text)
{
    /* Room for saying that something is missing. */
    struct fw_text part;
    fw_text_init(&part, text->data + text->length, fw_text_room(text) + 1 - sizeof cut_line);
    struct reader reader = people_list(&part, reader_of(output));
    for (;;) {
        struct piece piece = piece_next(&reader);
        if (piece.mark == 0) {
            break;
        }
        if (piece.mark == WORDS) {
            fw_text_append(&part, piece.name, piece.name_length);
            continue;
        }
        if (part.length > 0) {
            fw_text_append_char(&part, '\n');
        }
        reader = people_table(&part, &piece, reader);
    }
    text->length += part.length;
    if (part.truncated || output->said.truncated) {
        if (part.length > 0 && part.data[part.length - 1] != '\n') {
            fw_text_append_char(text, '\n');
        }
        fw_text_append_string(text, cut_line);
    }
}

/* ---- for programs -------------------------------------------------------------------------- */

static void json_cell(struct fw_json *json, const struct piece *piece)
{
    fw_json_key_bytes(json, piece->name, piece->name_length);
    if (piece->mark == TEXT) {
        fw_json_string_bytes(json, piece->value, piece->value_length);
        return;
    }
    int64_t number = 0;
    int rc = fw_parse_int(piece->value, piece->value_length, INT64_MIN, INT64_MAX, &number);
    FW_ASSERT(rc == 0); /* It was written above. */
    fw_json_signed(json, number);
}

void fw_answer_json(const struct fw_jobs_output *output, struct fw_text *text)
{
    struct fw_json json;
    fw_json_init(&json, text, FW_JSON_COMPACT);
    fw_json_object_begin(&json);
    struct piece row = {.mark = 0}; /* That of the table which is open. */
    struct reader reader = reader_of(output);
    for (;;) {
        struct piece piece = piece_next(&reader);
        if (piece.mark == NUMBER || piece.mark == TEXT) {
            json_cell(&json, &piece);
            continue;
        }
        if (row.mark == ROW) {
            fw_json_object_end(&json);
        }
        if (row.mark != 0 && !is_same_table(&piece, &row)) {
            fw_json_array_end(&json);
        }
        if (piece.mark == 0) {
            break;
        }
        if (piece.mark == WORDS) {
            fw_json_key(&json, "text");
            fw_json_array_begin(&json);
            fw_json_string_bytes(&json, piece.name, piece.name_length);
        } else {
            if (!is_same_table(&piece, &row)) {
                fw_json_key_bytes(&json, piece.name, piece.name_length);
                fw_json_array_begin(&json);
            }
            fw_json_object_begin(&json);
        }
        row = piece;
    }
    if (output->said.truncated) {
        fw_json_key(&json, "cut");
        fw_json_bool(&json, true);
    }
    fw_json_object_end(&json);
    int rc = fw_json_finish(&json);
    FW_ASSERT(rc == 0); /* See FW_ANSWER_LAID_OUT_SIZE. */
    fw_text_append_char(text, '\n');
}
