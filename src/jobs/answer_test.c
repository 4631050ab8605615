/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a command says is shown to people in columns and to programs as JSON, whatever is in
 * it and however much it is.
 * Method: small answers are compared whole; one that does not fit is looked at where it ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "jobs/answer.h"

static char said[FW_JOBS_OUTPUT_SIZE];
static char memory[FW_ANSWER_LAID_OUT_SIZE];
static struct fw_jobs_output output;
static struct fw_text text;

static int setup(void **state)
{
    (void)state;
    fw_answer_init(&output, said);
    return 0;
}

static void assert_people(const char *expected)
{
    fw_text_init(&text, memory, sizeof memory);
    fw_answer_people(&output, &text);
    assert_string_equal(text.data, expected);
    assert_int_equal(text.length, strlen(expected));
}

static void assert_json(const char *expected)
{
    fw_text_init(&text, memory, sizeof memory);
    fw_answer_json(&output, &text);
    assert_string_equal(text.data, expected);
}

static void test_nothing(void **state)
{
    (void)state;
    assert_people("");
    assert_json("{}\n");
}

static void test_figures(void **state)
{
    (void)state;
    fw_jobs_number(&output, "n", INT64_MIN);
    fw_jobs_text(&output, "address", "%s:%d", "host", 11211);
    fw_jobs_text(&output, "empty", "%s", "");
    assert_people("n        -9223372036854775808\n"
                  "address  host:11211\n"
                  "empty    \n");
    assert_json("{\"n\":-9223372036854775808,\"address\":\"host:11211\",\"empty\":\"\"}\n");
}

static void test_tables(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "longer", "b"};
    fw_jobs_number(&output, "total", 3);
    for (int i = 0; i < 3; i++) {
        fw_jobs_row(&output, "things");
        fw_jobs_text(&output, "name", "%s", names[i]);
        fw_jobs_number(&output, "size", 99 * (int64_t)i * i);
        fw_jobs_text(&output, "where", "here");
    }
    fw_jobs_row(&output, "others");
    fw_jobs_number(&output, "only", 1234567);
    fw_jobs_print(&output, "and %d", 2);
    fw_jobs_print(&output, " words\n");
    assert_people("total  3\n"
                  "\n"
                  "name    size  where\n"
                  "a          0  here\n"
                  "longer    99  here\n"
                  "b        396  here\n"
                  "\n"
                  "   only\n"
                  "1234567\n"
                  "and 2 words\n");
    assert_json("{\"total\":3,"
                "\"things\":[{\"name\":\"a\",\"size\":0,\"where\":\"here\"},"
                "{\"name\":\"longer\",\"size\":99,\"where\":\"here\"},"
                "{\"name\":\"b\",\"size\":396,\"where\":\"here\"}],"
                "\"others\":[{\"only\":1234567}],"
                "\"text\":[\"and 2 words\\n\"]}\n");
}

/* What comes from outside cannot be taken for our marks, nor break the JSON. */
static void test_strange_words(void **state)
{
    (void)state;
    char strange[] = "\x01\x02\x03\x04\x05\x06\"\xff";
    fw_jobs_text(&output, "name", "%s", strange);
    fw_jobs_row(&output, "rows");
    fw_jobs_text(&output, "name", "%s%c", strange, 0);
    fw_jobs_print(&output, "%s", strange);
    assert_json("{\"name\":\"?????\\u0006\\\"\xef\xbf\xbd\","
                "\"rows\":[{\"name\":\"?????\\u0006\\\"\xef\xbf\xbd?\"}],"
                "\"text\":[\"?????\\u0006\\\"\xef\xbf\xbd\"]}\n");
}

/* A long value does not push the others away, and more columns than are aligned are shown. */
static void test_wide(void **state)
{
    (void)state;
    for (int row = 0; row < 2; row++) {
        fw_jobs_row(&output, "rows");
        fw_jobs_text(&output, "long", "%s",
                     row == 0 ? ""
                              : "0123456789012345678901234567890123456"
                                "789012345678901234567890123456789");
        for (int i = 0; i < 17; i++) {
            fw_jobs_number(&output, "c", row);
        }
    }
    fw_text_init(&text, memory, sizeof memory);
    fw_answer_people(&output, &text);
    assert_memory_equal(text.data, "long  ", 6); /* Nothing before the first table. */
    assert_non_null(strstr(text.data, "\n                                                  0  0"));
    assert_non_null(strstr(text.data, "\n0123456789012345678901234567890123456789012345678901234567"
                                      "890123456789  1  1"));
    assert_int_equal(text.data[text.length - 1], '\n');
}

/* Cut between two cells; and valid JSON, also if every byte has to be escaped. */
static void test_cut(void **state)
{
    (void)state;
    char escaped[101];
    memset(escaped, '\x1f', sizeof escaped - 1);
    escaped[100] = '\0';
    for (int i = 0; i < 1000; i++) {
        fw_jobs_row(&output, "rows");
        fw_jobs_text(&output, "name", "%s", escaped);
    }
    fw_jobs_print(&output, "not to be seen");
    fw_jobs_number(&output, "nor", 1);
    fw_text_init(&text, memory, sizeof memory);
    fw_answer_json(&output, &text);
    static const char end[] = "\\u001f\"}],\"cut\":true}\n";
    assert_false(text.truncated);
    assert_string_equal(text.data + text.length - strlen(end), end);
    fw_text_init(&text, memory, sizeof memory);
    fw_answer_people(&output, &text);
    static const char line[] = "\x1f\n(the answer was cut here)\n";
    assert_string_equal(text.data + text.length - strlen(line), line);
}

/* Words may be cut anywhere; and columns for people may need more than there is. */
static void test_cut_for_people(void **state)
{
    (void)state;
    for (int i = 0; i < FW_JOBS_OUTPUT_SIZE; i++) {
        fw_jobs_print(&output, "0123456789");
    }
    fw_text_init(&text, memory, sizeof memory);
    fw_answer_people(&output, &text);
    assert_int_equal(text.length,
                     FW_JOBS_OUTPUT_SIZE - 2 + strlen("\n(the answer was cut here)\n"));
    fw_text_init(&text, memory, 100);
    fw_answer_people(&output, &text);
    assert_int_equal(text.length, 99);
    assert_false(text.truncated);
    assert_string_equal(text.data + 99 - strlen("1\n(the answer was cut here)\n"),
                        "1\n(the answer was cut here)\n");
}

/* A row of which only a part fits is not shown at all, also if words follow that would fit. */
static void test_no_half_row(void **state)
{
    (void)state;
    char words[FW_JOBS_OUTPUT_SIZE - 14];
    memset(words, 'x', sizeof words - 1);
    words[sizeof words - 1] = '\0';
    fw_jobs_print(&output, "%s", words);
    fw_jobs_row(&output, "r");
    fw_jobs_number(&output, "n", 1);
    fw_jobs_number(&output, "m", 123456);
    fw_jobs_print(&output, "y");
    fw_text_init(&text, memory, sizeof memory);
    fw_answer_json(&output, &text);
    assert_non_null(strstr(text.data, "xx\"],\"cut\":true}\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_nothing, setup),
        cmocka_unit_test_setup(test_figures, setup),
        cmocka_unit_test_setup(test_tables, setup),
        cmocka_unit_test_setup(test_strange_words, setup),
        cmocka_unit_test_setup(test_wide, setup),
        cmocka_unit_test_setup(test_cut, setup),
        cmocka_unit_test_setup(test_cut_for_people, setup),
        cmocka_unit_test_setup(test_no_half_row, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
