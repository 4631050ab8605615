/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what the writer writes is JSON whatever it is given, in both layouts, whole or in pieces;
 * errors last; and who uses it in a wrong order hears so.
 * Method: exact documents; every byte, and every pair and many triples and quadruples of bytes as
 * strings beside a check of UTF-8 by decoding; the same document through buffers of every size;
 * each misuse.
 */
#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

static char memory[1024];
static struct fw_text text;
static struct fw_json json;

static void begin(enum fw_json_layout layout)
{
    fw_text_init(&text, memory, sizeof memory);
    fw_json_init(&json, &text, layout);
}

static void check(const char *expected)
{
    assert_int_equal(fw_json_finish(&json), 0);
    assert_string_equal(memory, expected);
}

static void write_document(void)
{
    fw_json_object_begin(&json);
    fw_json_key(&json, "empty");
    fw_json_object_begin(&json);
    fw_json_object_end(&json);
    fw_json_key(&json, "list");
    fw_json_array_begin(&json);
    fw_json_unsigned(&json, UINT64_MAX);
    fw_json_signed(&json, INT64_MIN);
    fw_json_signed(&json, -1);
    fw_json_signed(&json, 7);
    fw_json_array_begin(&json);
    fw_json_array_end(&json);
    fw_json_object_begin(&json);
    fw_json_key_bytes(&json, "a\"\0b", 3);
    fw_json_null(&json);
    fw_json_object_end(&json);
    fw_json_array_end(&json);
    fw_json_key(&json, "yes");
    fw_json_bool(&json, true);
    fw_json_key(&json, "no");
    fw_json_bool(&json, false);
    fw_json_key(&json, "");
    fw_json_string(&json, "text");
    fw_json_object_end(&json);
}

static const char compact[] =
    "{\"empty\":{},\"list\":[18446744073709551615,-9223372036854775808,-1,7,[],"
    "{\"a\\\"\\u0000\":null}],\"yes\":true,\"no\":false,\"\":\"text\"}";

static const char pretty[] = "{\n"
                             "  \"empty\": {},\n"
                             "  \"list\": [\n"
                             "    18446744073709551615,\n"
                             "    -9223372036854775808,\n"
                             "    -1,\n"
                             "    7,\n"
                             "    [],\n"
                             "    {\n"
                             "      \"a\\\"\\u0000\": null\n"
                             "    }\n"
                             "  ],\n"
                             "  \"yes\": true,\n"
                             "  \"no\": false,\n"
                             "  \"\": \"text\"\n"
                             "}";

static void test_document(void **state)
{
    (void)state;
    begin(FW_JSON_COMPACT);
    write_document();
    check(compact);
    begin(FW_JSON_PRETTY);
    write_document();
    check(pretty);

    begin(FW_JSON_PRETTY); /* A single value is a document too. */
    fw_json_string(&json, "");
    check("\"\"");

    begin(FW_JSON_COMPACT); /* The one sign that 0 could get, and does not. */
    fw_json_signed(&json, 0);
    check("0");
}

/* Each bracket begins anew, whatever stood at its depth before. */
static void test_neighbours(void **state)
{
    (void)state;
    begin(FW_JSON_COMPACT);
    fw_json_array_begin(&json);
    for (unsigned i = 0; i < 3; i++) {
        fw_json_array_begin(&json);
        if (i < 2) {
            fw_json_unsigned(&json, i);
        }
        fw_json_array_end(&json);
    }
    fw_json_object_begin(&json);
    fw_json_key(&json, "a");
    fw_json_null(&json);
    fw_json_object_end(&json);
    fw_json_array_end(&json);
    check("[[0],[1],[],{\"a\":null}]");
}

static void test_every_byte(void **state)
{
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        char bytes[3] = {'<', (char)byte, '>'}, expected[16];
        const char *letter = byte == 0 ? NULL : strchr("\bb\tt\nn\ff\rr\"\"\\\\", byte);
        if (byte >= 0x80) {
            (void)snprintf(expected, sizeof expected, "\"<\xef\xbf\xbd>\"");
        } else if (byte < 0x20 && letter == NULL) {
            (void)snprintf(expected, sizeof expected, "\"<\\u%04x>\"", (unsigned)byte);
        } else if (byte < 0x20 || byte == '"' || byte == '\\') {
            (void)snprintf(expected, sizeof expected, "\"<\\%c>\"", letter[1]);
        } else {
            (void)snprintf(expected, sizeof expected, "\"<%c>\"", byte);
        }
        begin(FW_JSON_COMPACT);
        fw_json_string_bytes(&json, bytes, sizeof bytes);
        check(expected);
    }
}

/* Sequences, at the ends of what is allowed and one beyond, and what they come to. */
static void test_utf8_edges(void **state)
{
    (void)state;
#define BAD "\xef\xbf\xbd"
    static const struct {
        const char *bytes, *expected;
    } cases[] = {
        {"\xc2\x80", "\xc2\x80"},                     /* U+0080, the first of two bytes. */
        {"\xdf\xbf", "\xdf\xbf"},                     /* U+07FF, the last. */
        {"\xe0\xa0\x80", "\xe0\xa0\x80"},             /* U+0800. */
        {"\xed\x9f\xbf", "\xed\x9f\xbf"},             /* U+D7FF, before the surrogates, */
        {"\xee\x80\x80", "\xee\x80\x80"},             /* U+E000, and after. */
        {"\xef\xbf\xbf", "\xef\xbf\xbf"},             /* U+FFFF. */
        {"\xf0\x90\x80\x80", "\xf0\x90\x80\x80"},     /* U+10000. */
        {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},     /* U+10FFFF. */
        {"\xc0\x80", BAD BAD},                        /* Overlong. */
        {"\xe0\x9f\xbf", BAD BAD BAD},                /* Overlong. */
        {"\xf0\x8f\xbf\xbf", BAD BAD BAD BAD},        /* Overlong. */
        {"\xed\xa0\x80", BAD BAD BAD},                /* A surrogate. */
        {"\xf4\x90\x80\x80", BAD BAD BAD BAD},        /* Above the last. */
        {"\xf5\x80\x80\x80", BAD BAD BAD BAD},        /* Far above. */
        {"\xe2\x82", BAD},                            /* Ends too early: one for all it has. */
        {"\xf0\x9f\x98", BAD},                        /* The same. */
        {"\xf0\x9f\x98\"", BAD "\\\""},               /* What follows is not swallowed. */
        {"\xe2\x82\xe2\x82\xac", BAD "\xe2\x82\xac"}, /* Nor if it starts a good one. */
        {"\x80\xbf", BAD BAD},                        /* Continues nothing. */
        {"\xc2\x7f", BAD "\x7f"},                     /* Just below what continues. */
    };
#undef BAD
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        char expected[32];
        (void)snprintf(expected, sizeof expected, "\"%s\"", cases[i].expected);
        begin(FW_JSON_COMPACT);
        fw_json_string(&json, cases[i].bytes);
        check(expected);
    }
}

/*
 * A sequence is well-formed if and only if decoding it, with no care for what is allowed, and
 * encoding the result by the book gives it back.
 */
static bool utf8_survives(const unsigned char *bytes, size_t length)
{
    static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = bytes[0] & masks[length];
    for (size_t i = 1; i < length; i++) {
        code = code << 6 | (bytes[i] & 0x3f);
    }
    unsigned char again[4];
    size_t needs = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    if (needs != length || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
        return false;
    }
    static const unsigned char marks[] = {0, 0x00, 0xc0, 0xe0, 0xf0};
    for (size_t i = length - 1; i > 0; i--, code >>= 6) {
        again[i] = (unsigned char)(0x80 | (code & 0x3f));
    }
    again[0] = (unsigned char)(marks[length] | code);
    return memcmp(bytes, again, length) == 0;
}

/* Two to four bytes, the first not ASCII: they come out as they are, or with a replacement. */
static void check_sequence(const unsigned char *bytes, size_t length)
{
    begin(FW_JSON_COMPACT);
    fw_json_string_bytes(&json, bytes, length);
    assert_int_equal(fw_json_finish(&json), 0);
    bool same = text.length == length + 2 && memcmp(text.data + 1, bytes, length) == 0;
    /* Two sequences of two are well-formed as four; the first bytes here never allow that. */
    assert_int_equal(same, utf8_survives(bytes, length));
}

static void test_utf8_beside_decoding(void **state)
{
    (void)state;
    static const unsigned char edges[] = {0x00, 0x22, 0x7f, 0x80, 0x81, 0x8f, 0x90,
                                          0x9f, 0xa0, 0xbf, 0xc0, 0xc2, 0xe0, 0xff};
    unsigned char bytes[4];
    for (unsigned first = 0x80; first < 0x100; first++) {
        for (unsigned second = 0x80; second < 0x100; second++) {
            bytes[0] = (unsigned char)first;
            bytes[1] = (unsigned char)second;
            check_sequence(bytes, 2);
            for (size_t i = 0; first >= 0xe0 && i < FW_ARRAY_LENGTH(edges); i++) {
                bytes[2] = edges[i];
                check_sequence(bytes, 3);
                for (size_t k = 0; first >= 0xf0 && k < FW_ARRAY_LENGTH(edges); k++) {
                    bytes[3] = edges[k];
                    check_sequence(bytes, 4);
                }
            }
        }
    }
}

static void check_double(double value, const char *expected)
{
    begin(FW_JSON_COMPACT);
    fw_json_double(&json, value);
    check(expected);
}

static void test_doubles(void **state)
{
    (void)state;
    check_double(0, "0");
    check_double(-0.0, "-0");
    check_double(0.1, "0.1");
    check_double(-1.5, "-1.5");
    check_double(100, "100");
    check_double(1.0 / 3, "0.3333333333333333");
    check_double(0.1 + 0.2, "0.30000000000000004");
    check_double(1e300, "1e+300");
    check_double(1.25e-9, "1.25e-09");
    check_double(5e-324, "4.94065645841247e-324");
    check_double(NAN, "null");
    check_double(INFINITY, "null");
    check_double(-INFINITY, "null");

    uint64_t seed = 1;
    for (int i = 0; i < 10000; i++) { /* Any bits: what is written reads back the same. */
        double value;
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(&value, &seed, sizeof value);
        if (isfinite(value)) {
            begin(FW_JSON_COMPACT);
            fw_json_double(&json, value);
            assert_int_equal(fw_json_finish(&json), 0);
            assert_true(strtod(memory, NULL) == value);
        }
    }
}

static void test_points_of_other_locales(void **state)
{
    (void)state;
    static const struct {
        const char *written, *expected;
    } cases[] = {{"12", "12"},
                 {"-0.25", "-0.25"},
                 {"0,25", "0.25"},
                 {"-1,25e-09", "-1.25e-09"},
                 {"1e+300", "1e+300"},
                 {"1\xd9\xab"
                  "5e+20",
                  "1.5e+20"}}; /* Pashto's point, two bytes. */
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        char digits[32];
        (void)snprintf(digits, sizeof digits, "%s", cases[i].written);
        fw_json_number_delocalise(digits);
        assert_string_equal(digits, cases[i].expected);
    }
}

struct sink {
    char bytes[1024];
    size_t length, calls, piece_max, fail_at;
};

static int sink_write(const char *bytes, size_t length, void *context)
{
    struct sink *sink = context;
    sink->calls++;
    if (sink->calls == sink->fail_at) {
        return -EPIPE;
    }
    assert_true(length > 0 && length <= sink->piece_max);
    assert_true(sink->length + length < sizeof sink->bytes);
    memcpy(sink->bytes + sink->length, bytes, length);
    sink->length += length;
    return 0;
}

static void begin_sink(struct sink *sink, size_t buffer_size, enum fw_json_layout layout)
{
    *sink = (struct sink){.piece_max = buffer_size - 1};
    fw_text_init(&text, memory, buffer_size);
    fw_json_init_sink(&json, &text, layout, sink_write, sink);
}

static void test_sink(void **state)
{
    (void)state;
    static struct sink sink;
    for (size_t size = 2; size <= sizeof pretty + 2; size++) {
        begin_sink(&sink, size, FW_JSON_PRETTY);
        write_document();
        assert_int_equal(fw_json_finish(&json), 0);
        assert_int_equal(sink.length, sizeof pretty - 1);
        assert_string_equal(sink.bytes, pretty);
        size_t pieces = (sizeof pretty - 1 + size - 2) / (size - 1);
        assert_int_equal(sink.calls, pieces); /* Full pieces, and nothing twice. */
        assert_int_equal(text.length, 0);
    }
    fw_text_init(&text, memory, 1);
    expect_assert_failure(fw_json_init_sink(&json, &text, FW_JSON_PRETTY, sink_write, &sink));
}

static void test_sink_fails(void **state)
{
    (void)state;
    static struct sink sink;
    enum { SIZE = 21, PIECES = (sizeof compact - 1 + SIZE - 2) / (SIZE - 1) };
    for (size_t fail_at = 1; fail_at <= PIECES; fail_at++) {
        begin_sink(&sink, SIZE, FW_JSON_COMPACT);
        sink.fail_at = fail_at;
        write_document();
        assert_int_equal(fw_json_finish(&json), -EPIPE);
        assert_int_equal(sink.calls, fail_at); /* Never called again. */
        assert_int_equal(sink.length, (fail_at - 1) * (SIZE - 1));
    }
}

static void test_memory_too_small(void **state)
{
    (void)state;
    for (size_t size = 1; size <= sizeof compact; size++) {
        fw_text_init(&text, memory, size);
        fw_json_init(&json, &text, FW_JSON_COMPACT);
        write_document();
        assert_int_equal(fw_json_finish(&json), size < sizeof compact ? -EMSGSIZE : 0);
        assert_int_equal(text.length, size - 1);
        assert_memory_equal(memory, compact, size - 1);
    }
}

static void test_depth(void **state)
{
    (void)state;
    begin(FW_JSON_COMPACT);
    for (int i = 0; i < FW_JSON_DEPTH_MAX; i++) {
        fw_json_array_begin(&json);
    }
    struct fw_json deepest = json;
    expect_assert_failure(fw_json_array_begin(&json));
    json = deepest;
    expect_assert_failure(fw_json_object_begin(&json));
    json = deepest;
    for (int i = 0; i < FW_JSON_DEPTH_MAX; i++) {
        fw_json_array_end(&json);
    }
    assert_int_equal(fw_json_finish(&json), 0);
}

static void test_wrong_order(void **state)
{
    (void)state;
    begin(FW_JSON_COMPACT);
    expect_assert_failure((void)(fw_json_finish(&json) == 0)); /* Nothing written. */
    expect_assert_failure(fw_json_key(&json, "key"));          /* Not in an object. */
    expect_assert_failure(fw_json_object_end(&json));          /* Not begun. */
    expect_assert_failure(fw_json_array_end(&json));

    fw_json_object_begin(&json);
    expect_assert_failure(fw_json_null(&json));        /* No key. */
    expect_assert_failure(fw_json_array_begin(&json)); /* The same. */
    expect_assert_failure(fw_json_array_end(&json));   /* An object is open. */
    expect_assert_failure((void)(fw_json_finish(&json) == 0));
    fw_json_key(&json, "key");
    expect_assert_failure(fw_json_key(&json, "key")); /* The value is due. */
    expect_assert_failure(fw_json_object_end(&json));
    fw_json_array_begin(&json);
    expect_assert_failure(fw_json_key(&json, "key")); /* Not in an array. */
    expect_assert_failure(fw_json_object_end(&json));
    fw_json_array_end(&json);
    expect_assert_failure(fw_json_unsigned(&json, 1)); /* One value per key. */
    fw_json_object_end(&json);
    expect_assert_failure(fw_json_unsigned(&json, 1)); /* One value per document. */
    check("{\"key\":[]}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_document),
        cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_utf8_edges),
        cmocka_unit_test(test_utf8_beside_decoding),
        cmocka_unit_test(test_doubles),
        cmocka_unit_test(test_points_of_other_locales),
        cmocka_unit_test(test_sink),
        cmocka_unit_test(test_sink_fails),
        cmocka_unit_test(test_memory_too_small),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_wrong_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
