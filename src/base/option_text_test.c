/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what options say to people is right at its edges: numbers and their units, what is allowed,
 * quoted values, and the columns of the help.
 * Method: small tables made for the purpose, through the same calls that option_test.c uses; the
 * texts are compared whole.
 */
#include "base/option.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct config {
    int64_t any;
    int64_t below;
    int64_t above;
    uint64_t natural;
    uint64_t size;
    int64_t pause_ns;
    uint64_t mode;
    uint64_t level;
    bool on;
    int choice;
    const char *text;
    const char *other;
    struct fw_option_list list;
};

static struct config config;
static struct fw_reason reason;

static const struct fw_option rows[] = {
    FW_OPTION_INT(struct config, any, .section = "s", .name = "any", .default_text = "0",
                  .help = "x"),
    FW_OPTION_INT(struct config, below, .section = "s", .name = "below", .default_text = "0",
                  .min = -5, .help = "x"),
    FW_OPTION_INT(struct config, above, .section = "s", .name = "above", .default_text = "0",
                  .max = 5, .help = "x"),
    FW_OPTION_UINT(struct config, natural, .section = "s", .name = "natural", .default_text = "0",
                   .help = "x"),
    FW_OPTION_SIZE(struct config, size, .section = "s", .name = "size", .default_text = "0",
                   .help = "x"),
    FW_OPTION_DURATION(struct config, pause_ns, .section = "s", .name = "pause",
                       .default_text = "0", .help = "x"),
    FW_OPTION_OCTAL(struct config, mode, .section = "s", .name = "mode", .default_text = "0",
                    .help = "x"),
    FW_OPTION_STRING(struct config, text, .section = "s", .name = "text", .min = 1, .max = 32,
                     .help = "x"),
    FW_OPTION_BOOL(struct config, on, .section = "s", .name = "q", .default_text = "no",
                   .help = "x"),
};
static const struct fw_option_table table = {.module = "m",
                                             .options = rows,
                                             .count = FW_ARRAY_LENGTH(rows),
                                             .config = &config,
                                             .bare = true};
static struct fw_options options;

static int setup(void **state)
{
    (void)state;
    reason.text[0] = '\0';
    return fw_options_init(&options, &table, 1, &reason);
}

static int teardown(void **state)
{
    (void)state;
    fw_options_fini(&options);
    return 0;
}

/* One argument, from a copy. */
static int argument_parse(const char *text)
{
    char argument[128];
    char *const arguments[] = {argument};
    (void)snprintf(argument, sizeof argument, "%s", text);
    return fw_options_parse_arguments(&options, 1, arguments, NULL, &reason);
}

/* The shortest name there can be, and what else it is not. */
static void test_short_name(void **state)
{
    (void)state;
    assert_int_equal(argument_parse("--q"), 0);
    assert_true(config.on);
    assert_int_equal(argument_parse("--no_q"), 0);
    assert_false(config.on);
    assert_int_equal(argument_parse("--on-q"), -EINVAL);
    assert_int_equal(argument_parse("--no-"), -EINVAL);
    assert_string_equal(reason.text, "--no-: there is no such option; --help lists them");
}

static void assert_help(const struct fw_option_table *tables, size_t count, const char *expected)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    fw_options_print_help(tables, count, out);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, expected);
    free(text);
}

/* The edges of a number: with no limit, with one, and what a number without a unit counts. */
static void test_number_limits(void **state)
{
    (void)state;
    static const struct {
        const char *argument;
        const char *reason; /* NULL: it is taken. */
        struct config config;
    } cases[] = {
        {"--any=-9223372036854775808", NULL, {.any = INT64_MIN}},
        {"--any=9223372036854775807", NULL, {.any = INT64_MAX}},
        {"--any=9223372036854775808",
         "--any: '9223372036854775808' is out of range; give a number",
         {0}},
        {"--below=-5", NULL, {.below = -5}},
        {"--below=-6", "--below: '-6' is out of range; give a number from -5 to 0", {0}},
        {"--below=1", "--below: '1' is out of range; give a number from -5 to 0", {0}},
        {"--above=5", NULL, {.above = 5}},
        {"--above=6", "--above: '6' is out of range; give a number from 0 to 5", {0}},
        {"--above=-1", "--above: '-1' is out of range; give a number from 0 to 5", {0}},
        {"--natural=9223372036854775807", NULL, {.natural = INT64_MAX}},
        {"--natural=9223372036854775808",
         "--natural: '9223372036854775808' is out of range; give a number",
         {0}},
        {"--size=7", NULL, {.size = 7}},
        {"--size=9223372036854775807", NULL, {.size = INT64_MAX}},
        {"--size=9223372036854775808",
         "--size: '9223372036854775808' is out of range; give a size such as 512k or 64m",
         {0}},
        {"--pause=2", NULL, {.pause_ns = 2000000000}},
        {"--pause=9223372036854775807ns", NULL, {.pause_ns = INT64_MAX}},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
        assert_int_equal(argument_parse(cases[i].argument), cases[i].reason == NULL ? 0 : -EINVAL);
        assert_string_equal(reason.text, cases[i].reason == NULL ? "" : cases[i].reason);
        assert_memory_equal(&config, &cases[i].config, sizeof config);
    }
}

/* A value is quoted whole up to 47 bytes; a longer one is cut between two characters. */
static void test_quotes(void **state)
{
    static const struct {
        const char *value;
        const char *quote;
    } cases[] = {
        {"01234567890123456789012345678901234567890123456",
         "01234567890123456789012345678901234567890123456"},
        {"012345678901234567890123456789012345678901234567",
         "01234567890123456789012345678901234567890123..."},
        {"0123456789012345678901234567890123456789012\xc3\xa9---",
         "0123456789012345678901234567890123456789012..."},
        {"012345678901234567890123456789012345678901\xc3\xa9----",
         "012345678901234567890123456789012345678901\xc3\xa9..."},
        {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"
         "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"
         "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
         "..."},
        {"\x1f\x7f !~0123456789012345678901234567890", "?? !~0123456789012345678901234567890"},
    };
    (void)state;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        char argument[128];
        char expected[FW_REASON_SIZE];
        (void)snprintf(argument, sizeof argument, "--text=%s", cases[i].value);
        (void)snprintf(expected, sizeof expected,
                       "--text: '%s' is out of range; give a text from 1 to 32 characters long",
                       cases[i].quote);
        assert_int_equal(argument_parse(argument), -EINVAL);
        assert_string_equal(reason.text, expected);
    }
}

struct shown {
    const char *name;
    char value[64];
};

static void shown_visit(const struct fw_option_row *row, void *argument)
{
    struct shown *shown = argument;
    if (strcmp(row->long_name, shown->name) == 0) {
        (void)snprintf(shown->value, sizeof shown->value, "%s", row->value);
    }
}

/* Numbers are shown in the largest unit that loses nothing, at the edges of each unit. */
static void test_units(void **state)
{
    static const struct {
        const char *name;
        const char *given;
        const char *shown;
    } cases[] = {
        {"pause", "0", "0"},           {"pause", "1ns", "1ns"},
        {"pause", "999ns", "999ns"},   {"pause", "1000ns", "1us"},
        {"pause", "1001us", "1001us"}, {"pause", "1000us", "1ms"},
        {"pause", "2000ms", "2s"},     {"pause", "59s", "59s"},
        {"pause", "60s", "1m"},        {"pause", "59m", "59m"},
        {"pause", "120m", "2h"},       {"pause", "23h", "23h"},
        {"pause", "48h", "2d"},        {"size", "1023", "1023B"},
        {"size", "1024", "1KiB"},      {"size", "1025k", "1025KiB"},
        {"size", "1024k", "1MiB"},     {"size", "1025m", "1025MiB"},
        {"size", "1024m", "1GiB"},     {"size", "2049g", "2049GiB"},
        {"size", "2048g", "2TiB"},     {"size", "9223372036854775807", "9223372036854775807B"},
        {"any", "-20", "-20"},         {"mode", "0", "0"},
        {"mode", "17", "017"},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        char argument[128];
        struct shown shown = {.name = cases[i].name};
        (void)snprintf(argument, sizeof argument, "--%s=%s", cases[i].name, cases[i].given);
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
        assert_int_equal(argument_parse(argument), 0);
        fw_options_list(&options, shown_visit, &shown);
        assert_string_equal(shown.value, cases[i].shown);
    }
}

static int never_add(void *whole, const char *name, void **instance, struct fw_reason *why)
{
    (void)whole;
    (void)name;
    (void)instance;
    return fw_reason_set(why, -ENOSPC, "not here");
}

/* The rarer rows, and a section that is spread over two modules. */
static void test_help_rows(void **state)
{
    (void)state;
    static const struct fw_option first[] = {
        FW_OPTION_UINT(struct config, natural, .section = "s", .name = "clients",
                       .default_text = "5", .unit = "connections", .help = "How many"),
        FW_OPTION_STRING(struct config, text, .section = "s", .name = "text", .default_text = "",
                         .help = "What to say"),
        FW_OPTION_DURATION(struct config, pause_ns, .section = "t", .name = "pause",
                           .default_text = "1s", .help = "How long"),
    };
    static const struct fw_option second[] = {
        FW_OPTION_LIST(struct config, list, .section = "s", .name = "names", .help = "Who"),
        FW_OPTION_STRING(struct config, other, .section = "t", .name = "more", .help = "And"),
    };
    static const struct fw_option named[] = {
        FW_OPTION_BOOL(struct config, on, .section = "u", .name = "on", .default_text = "yes",
                       .help = "Whether"),
        FW_OPTION_COUNT(struct config, level, .section = "u", .name = "loud", .default_text = "0",
                        .value_name = "N", .help = "How loud"),
    };
    const struct fw_option_table both[] = {
        {.module = "a", .options = first, .count = FW_ARRAY_LENGTH(first), .config = &config},
        {.module = "b", .options = second, .count = FW_ARRAY_LENGTH(second), .config = &config},
        {.module = "c",
         .options = named,
         .count = FW_ARRAY_LENGTH(named),
         .config = &config,
         .instance_add = never_add},
    };
    assert_help(both, FW_ARRAY_LENGTH(both),
                "[s]\n"
                "      --s-clients NUMBER      How many (default 5 connections)\n"
                "      --s-text TEXT           What to say\n"
                "      --s-names LIST          Who\n"
                "\n"
                "[t]\n"
                "      --t-pause TIME          How long (default 1s)\n"
                "      --t-more TEXT           And\n"
                "\n"
                "[u NAME], in the configuration file only:\n"
                "  on = yes|no                 Whether\n"
                "  loud = N                    How loud\n");
}

/* Sentences that are too long for their buffers are cut, here and in the help. */
static void test_long_texts(void **state)
{
    (void)state;
    enum { NAMES = 32 };
    static const char name[] = "name-of-33-characters------------";
    const char *names[NAMES + 1] = {"first"};
    for (size_t i = 1; i < NAMES; i++) {
        names[i] = name;
    }
    const struct fw_option own_rows[] = {
        FW_OPTION_ENUM(struct config, choice, .section = "s", .name = "enum",
                       .default_text = "first", .names = names, .help = "Which"),
        FW_OPTION_LIST(struct config, list, .section = "s", .name = "list", .max = 5,
                       .help = "Who"),
        FW_OPTION_STRING(struct config, text, .section = "s", .name = "text", .min = 1,
                         .help = "What"),
    };
    const struct fw_option_table own_table = {
        .module = "m", .options = own_rows, .count = 3, .config = &config, .bare = true};
    struct fw_options own;
    char enum_argument[] = "--enum=x";
    char list_argument[] = "--list=abcde,abcdef";
    char text_argument[] = "--text=";
    char *const arguments[] = {enum_argument, list_argument, text_argument};
    assert_int_equal(fw_options_init(&own, &own_table, 1, &reason), 0);
    assert_int_equal(fw_options_parse_arguments(&own, 1, arguments, NULL, &reason), -EINVAL);
    assert_string_equal(reason.text, "--enum: 'x' is not understood; give one of first, "
                                     "name-of-33-characters------------, "
                                     "name-of-33-characters------------, "
                                     "name-of-33-characters------------, "
                                     "name-of-33-characters------------, name-");
    assert_int_equal(fw_options_parse_arguments(&own, 1, arguments + 1, NULL, &reason), -EINVAL);
    assert_string_equal(reason.text, "--list: 'abcde,abcdef' is out of range; give items separated "
                                     "by commas, none of them empty, each from 0 to 5 characters "
                                     "long");
    assert_int_equal(fw_options_parse_arguments(&own, 1, arguments + 2, NULL, &reason), -EINVAL);
    assert_string_equal(reason.text,
                        "--text: '' is out of range; give a text of at least 1 characters long");
    fw_options_fini(&own);

    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    fw_options_print_help(&own_table, 1, out);
    assert_int_equal(fclose(out), 0);
    static const char begin[] = "[s]\n      --enum NAME             Which (one of first,\n";
    assert_int_equal(strncmp(text, begin, sizeof begin - 1), 0);
    assert_non_null(strstr(text, "\n      --list LIST             Who\n"));
    free(text);
}

/* The longest names there can be are named whole. */
static void test_long_names(void **state)
{
    (void)state;
#define SIXTY(letter) \
    letter letter letter letter letter letter letter letter letter letter letter letter
    static const char one[] = SIXTY("aaaaa");
    static const char other[] = SIXTY("bbbbb");
#undef SIXTY
    static const struct fw_option own_rows[] = {
        FW_OPTION_UINT(struct config, natural, .section = one, .name = "x", .default_text = "0",
                       .help = "x"),
        FW_OPTION_UINT(struct config, natural, .section = other, .name = "y", .default_text = "0",
                       .help = "x"),
    };
    static const struct fw_option_table own_table = {
        .module = "m", .options = own_rows, .count = 2, .config = &config};
    struct fw_options own;
    char text[128];
    char expected[FW_REASON_SIZE];
    int length = snprintf(text, sizeof text, "[%s]\ny = 1\n", one);
    (void)snprintf(expected, sizeof expected, "f:2: 'y' belongs under [%s], not [%s]", other, one);
    assert_int_equal(fw_options_init(&own, &own_table, 1, &reason), 0);
    assert_int_equal(fw_options_parse_file(&own, "f", text, (size_t)length, &reason), -EINVAL);
    assert_string_equal(reason.text, expected);
    fw_options_fini(&own);
}

/* At the edges: a left side that just fits or just not, a line that ends at column 80 exactly. */
static void test_help_width(void **state)
{
    (void)state;
    static const struct fw_option own_rows[] = {
        FW_OPTION_BOOL(struct config, on, .section = "s", .name = "twenty-letters-name-",
                       .default_text = "no",
                       .help = "Here are fifty letters, spaces counted, to the end"),
        FW_OPTION_BOOL(struct config, on, .section = "s", .name = "twenty-one-letters---",
                       .default_text = "no",
                       .help = "Here are fifty-one letters, one too many for a line"),
    };
    const struct fw_option_table own_table = {
        .module = "m", .options = own_rows, .count = 2, .config = &config, .bare = true};
    assert_help(&own_table, 1,
                "[s]\n"
                "      --twenty-letters-name-  Here are fifty letters, spaces counted, to the end\n"
                "      --twenty-one-letters---\n"
                "                              Here are fifty-one letters, one too many for a\n"
                "                              line\n");
}

/* A duration that may be yes, no or given without a value; a number behind it is its value. */
static void test_durations_that_may_be_yes(void **state)
{
    (void)state;
    static const struct fw_option own_rows[] = {
        FW_OPTION_DURATION(struct config, pause_ns, .section = "s", .name = "bound", .unit = "s",
                           .default_text = "no", .yes_text = "10s", .min = 250000000, .help = "x"),
        FW_OPTION_BOOL(struct config, on, .section = "s", .name = "on", .default_text = "no",
                       .help = "x"),
    };
    const struct fw_option_table own_table = {
        .module = "m", .options = own_rows, .count = 2, .config = &config, .bare = true};
    static const struct {
        const char *words[3];
        int rc;
        int64_t ns;
    } cases[] = {
        {{"--on", NULL}, 0, 0},
        {{"--bound", "--on", NULL}, 0, INT64_C(10000000000)},
        {{"--on", "--bound", NULL}, 0, INT64_C(10000000000)},
        {{"--bound", "500ms", "--on"}, 0, 500000000},
        {{"--bound=2", "--on", NULL}, 0, 2000000000},
        {{"--bound=yes", "--on", NULL}, 0, INT64_C(10000000000)},
        {{"--bound=no", "--on", NULL}, 0, 0},
        {{"--bound", "--no-bound", "--on"}, 0, 0},
        {{"--bound=1ms", NULL}, -EINVAL, 0},
        {{"--bound=soon", NULL}, -EINVAL, 0},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        char *words[3];
        int count = 0;
        for (; count < 3 && cases[i].words[count] != NULL; count++) {
            words[count] = strdup(cases[i].words[count]);
        }
        assert_int_equal(fw_options_init(&options, &own_table, 1, &reason), 0);
        assert_int_equal(fw_options_parse_arguments(&options, count, words, NULL, &reason),
                         cases[i].rc);
        if (cases[i].rc == 0) {
            assert_true(config.on && config.pause_ns == cases[i].ns);
        } else {
            assert_non_null(strstr(reason.text, "give yes, no or a duration"));
        }
        fw_options_fini(&options);
        while (count > 0) {
            free(words[--count]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_short_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_number_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_units, setup, teardown),
        cmocka_unit_test_setup_teardown(test_quotes, setup, teardown),
        cmocka_unit_test(test_help_rows),
        cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_help_width),
        cmocka_unit_test(test_durations_that_may_be_yes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
