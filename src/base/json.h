/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON (RFC 8259), a piece at a time, into memory or through a small buffer to a sink.
 *
 *     fw_json_object_begin(&json);
 *     fw_json_key(&json, "items");
 *     fw_json_unsigned(&json, items);
 *     fw_json_object_end(&json);
 *     int rc = fw_json_finish(&json);
 *
 * There is no tree: what is said is written, so memory does not grow with the document, and a dump
 * of millions of entries goes out through a few KiB. The writer puts the commas and, in the pretty
 * layout, the lines. Whoever says things out of order (a value in an object without its key, an end
 * without its begin, more than FW_JSON_DEPTH_MAX levels) has a bug, not an input, and meets an
 * assertion; so what finish() accepts is one complete value and no reader will refuse it.
 *
 * Data can be anything. Strings come out as valid UTF-8: quotes, backslashes and control characters
 * are escaped, and each ill-formed sequence becomes U+FFFD. JSON has no way to carry other bytes,
 * so who needs the very bytes of a key back has to write it in hexadecimal. Infinity and NaN have
 * no form in JSON and become null. 64-bit integers are written exactly, though some readers
 * (JavaScript) keep only 53 bits of them.
 *
 * Errors are kept until finish(): the memory was full, or what the sink returned. The calls after
 * one write nothing. So nobody checks a result per call.
 *
 * Ownership: writer, text and sink's context are the caller's; nothing is allocated, so there is no
 * fini(). Concurrency: none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/text.h"

enum { FW_JSON_DEPTH_MAX = 32 };

enum fw_json_layout {
    FW_JSON_COMPACT, /* No space at all: for programs. */
    FW_JSON_PRETTY,  /* A line per element, two spaces per level: for people. */
};

/* Private, all of it. */
struct fw_json {
    struct fw_text *text;
    int (*sink)(const char *bytes, size_t length, void *context); /* NULL: it stays in the text. */
    void *context;
    enum fw_json_layout layout;
    int error;        /* The first there was, negative, or 0. */
    bool key_written; /* ...and its value is due. */
    uint32_t depth;   /* Of objects and arrays begun and not ended. */
    struct {
        bool object; /* Or an array; or the document itself, at depth 0. */
        bool filled; /* The next element needs a comma. */
    } levels[FW_JSON_DEPTH_MAX + 1];
};

/* Writes at the end of `text`, whose memory bounds the document. */
void fw_json_init(struct fw_json *json, struct fw_text *text, enum fw_json_layout layout);

/*
 * Uses `buffer` only as such: each time it is full, and at the end, its content goes to
 * `sink(bytes, length, context)`, which takes all of it and returns 0, or a negative errno.
 */
void fw_json_init_sink(struct fw_json *json, struct fw_text *buffer, enum fw_json_layout layout,
                       int (*sink)(const char *bytes, size_t length, void *context), void *context);

/*
 * Ends the document, which must be complete. Returns 0, -EMSGSIZE if the memory did not suffice, or
 * the sink's error.
 */
FW_MUST_CHECK int fw_json_finish(struct fw_json *json);

void fw_json_object_begin(struct fw_json *json);
void fw_json_object_end(struct fw_json *json);
void fw_json_array_begin(struct fw_json *json);
void fw_json_array_end(struct fw_json *json);

/* Before each value of an object. That keys differ from each other is the caller's business. */
void fw_json_key(struct fw_json *json, const char *name);
void fw_json_key_bytes(struct fw_json *json, const void *bytes, size_t length);

void fw_json_string(struct fw_json *json, const char *string);
void fw_json_string_bytes(struct fw_json *json, const void *bytes, size_t length);
void fw_json_unsigned(struct fw_json *json, uint64_t value);
void fw_json_signed(struct fw_json *json, int64_t value);
void fw_json_double(struct fw_json *json, double value); /* As short as reads back the same. */
void fw_json_bool(struct fw_json *json, bool value);
void fw_json_null(struct fw_json *json);

/*
 * Puts JSON's point where printf() wrote that of a locale: "0,5" becomes "0.5". The locale is the
 * program's that links us, and a comma would be another value. Apart from fw_json_double() only for
 * the test, which cannot count on such a locale being installed.
 */
void fw_json_number_delocalise(char *digits);
